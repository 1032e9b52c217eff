//! What becomes of rows, one by one: which stay, and what is computed of them. It travels as bytes, and [`LANGUAGE`] makes it ready where rows are read.
//!
//! Expressions are worked out by DataFusion, whose options are pinned: the time zone is UTC, and what depends on when the query was asked was put in its place when it was planned.

mod constants;
mod first;
mod floats;
mod looked_up;
mod scalar;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, SortOptions};
use arrow_select::concat::concat_batches;
use datafusion_common::cast::as_boolean_array;
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Expr, ExprSchemable, Operator};
use datafusion_physical_expr::expressions::BinaryExpr;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use exobus_actors::inventory;
use exobus_tables::plain::plain_type;
use exobus_tables::reading::{Beside, Computation, Computed, DynComputation, Language};
use exobus_tables::sources::{MemoryBudget, SourceError, value_bytes};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::error::plainly;

pub use self::constants::{Constants, NoConstants};
use self::floats::compared_as_keys;
pub use self::looked_up::LookUp;
use self::looked_up::{BoundLookUp, LookedUp};
pub(crate) use self::looked_up::{Measured, measure};
pub(crate) use self::scalar::FUNCTIONS;
use self::scalar::{DEPTH_MAX, PROGRAM_BYTES_MAX};
pub use self::scalar::{NoScalar, Scalar, Unary};

/// The name of the language of plans.
pub const LANGUAGE: &str = "sql.plan";

/// The version of what is written here: another release reads no other.
const VERSION: u32 = 3;

inventory::submit! {
    Language { name: LANGUAGE, bind, reads }
}

/// What is told of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Program {
    version: u32,
    /// The columns that rows have: those that are read, and behind them what is looked up, table by table.
    names: Vec<String>,
    /// Tables in which rows are looked up, one after the other: each may go by what those before it have given.
    looked_up: Vec<LookedUp>,
    constants: ByteBuf,
    /// What rows have to meet, all of it.
    keep: Vec<Scalar>,
    /// Names of columns, and what they are.
    columns: Vec<(String, Scalar)>,
    /// Of each batch only those rows are wanted that may be among the first ones.
    first: Option<FirstRows>,
}

/// The first rows in some order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FirstRows {
    /// What they are ordered by, whether it falls, and whether its nulls are first.
    order: Vec<(Scalar, bool, bool)>,
    /// How many.
    rows: u64,
}

/// The first rows in some order, as they are planned.
#[derive(Clone, Debug)]
pub struct First {
    /// What they are ordered by.
    pub order: Vec<(Expr, SortOptions)>,
    /// How many.
    pub rows: u64,
}

/// What becomes of rows, as it is planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned<'a> {
    /// What is looked up for them.
    pub looked_up: &'a [LookUp],
    /// What they have to meet.
    pub keep: &'a [Expr],
    /// Names of columns, and what they are.
    pub columns: &'a [(String, Expr)],
    /// Of the first rows those are left alone that nobody can rule out: which rows are the first ones of all is seen later.
    pub first: Option<&'a First>,
    /// A column that is read where others look at none, since rows are counted in one.
    pub spare: Option<&'a str>,
}

impl Planned<'_> {
    /// As it travels. The folders of what is looked up are not known yet.
    ///
    /// # Errors
    /// [`NoScalar`].
    pub fn computed(&self) -> Result<Computed, NoScalar> {
        // What is looked up stands behind what is read: it is seen first what that is, and what of it is looked at.
        let mut met = Vec::new();
        self.program(&mut met)?;
        let is_met = |(name, _): &(String, String)| met.contains(name);
        let of_table = |table: &LookUp| LookUp {
            columns: table.columns.iter().filter(|column| is_met(column)).cloned().collect(),
            ..table.clone()
        };
        let looked_up: Vec<LookUp> = self.looked_up.iter().map(of_table).collect();
        let planned = Planned { looked_up: &looked_up, ..*self };
        let is_looked_up =
            |name: &String| self.looked_up.iter().flat_map(LookUp::fields).any(|field| field.name() == name);
        let added: Vec<String> = looked_up.iter().flat_map(LookUp::fields).map(|field| field.name().clone()).collect();
        let mut reads: Vec<String> = met.iter().filter(|name| !is_looked_up(name)).cloned().collect();
        if reads.is_empty() {
            reads.extend(self.spare.map(str::to_owned));
        }
        let mut names = [reads.as_slice(), added.as_slice()].concat();
        let program = planned.program(&mut names)?;
        let scalars = program.keep.iter().chain(program.columns.iter().map(|(_, one)| one));
        let keys = program.looked_up.iter().flat_map(LookedUp::key);
        if let Some(depth) = scalars.chain(keys).map(Scalar::depth).max()
            && depth > DEPTH_MAX
        {
            return Err(NoScalar::TooDeep { depth });
        }
        let program =
            rmp_serde::to_vec_named(&program).map_err(|error| NoScalar::NoOperator { what: error.to_string() })?;
        if program.len() > PROGRAM_BYTES_MAX {
            return Err(NoScalar::TooLong { bytes: program.len() });
        }
        Ok(Computed {
            language: LANGUAGE.to_owned(),
            program: ByteBuf::from(program),
            reads: Some(reads),
            leaves_out: !self.keep.is_empty() || self.first.is_some(),
            unchanged: Vec::new(),
            beside: Beside::default(),
        })
    }

    /// The program over columns of these names, to which those are added that are not among them.
    fn program(&self, names: &mut Vec<String>) -> Result<Program, NoScalar> {
        let mut constants = Constants::default();
        let mut of = |one: &Expr| Scalar::of(one, names, &mut constants);
        let keep = self.keep.iter().map(&mut of).collect::<Result<Vec<_>, _>>()?;
        let columns = self.columns.iter().map(|(name, one)| Ok((name.clone(), of(one)?)));
        let columns = columns.collect::<Result<Vec<_>, NoScalar>>()?;
        let first = self.first.map(|First { order, rows }| {
            let order = order
                .iter()
                .map(|(one, SortOptions { descending, nulls_first })| Ok((of(one)?, *descending, *nulls_first)));
            Ok::<_, NoScalar>(FirstRows { order: order.collect::<Result<_, NoScalar>>()?, rows: *rows })
        });
        let first = first.transpose()?;
        let looked_up = self.looked_up.iter().map(|table| LookedUp::of(table, names, &mut constants));
        let looked_up = looked_up.collect::<Result<Vec<_>, _>>()?;
        let constants = ByteBuf::from(constants.encode()?);
        Ok(Program { version: VERSION, names: names.clone(), looked_up, constants, keep, columns, first })
    }
}

/// A type as expressions have it: texts are views, as files of Parquet are decoded.
pub fn viewed_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
        // DataFusion compares bytes of one length with no others.
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        other => plain_type(other),
    }
}

/// A schema as expressions have it.
pub fn viewed(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let data_type = viewed_type(field.data_type());
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Rows on their way through a program.
struct Bound {
    /// Of rows as expressions see them, without what is looked up.
    read: SchemaRef,
    looked_up: Vec<BoundLookUp>,
    keep: Vec<Arc<dyn PhysicalExpr>>,
    columns: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    first: Option<BoundFirst>,
    /// How many rows are worked out at a time.
    at_a_time: usize,
}

/// Rows that are worked out at a time where long texts are made of short ones.
const GROWING_ROWS: usize = 256;
/// What may be made of them, bytes: who reads asks for it when it is there.
const GROWN_BYTES_MAX: u64 = 256 << 20;

/// The first rows in some order.
struct BoundFirst {
    order: Vec<(Arc<dyn PhysicalExpr>, SortOptions)>,
    rows: usize,
}

fn reads(program: &[u8], _table: &SchemaRef) -> Result<Vec<String>, String> {
    let program = Program::decode(program)?;
    let added = program.added()?.len();
    Ok(program.names[..program.names.len().saturating_sub(added)].to_vec())
}

impl Program {
    /// # Errors
    /// Bytes that are none, or one of another version.
    fn decode(program: &[u8]) -> Result<Self, String> {
        let program: Self = rmp_serde::from_slice(program).map_err(|error| format!("a plan of rows: {error}"))?;
        match program.version {
            VERSION => Ok(program),
            version => {
                Err(format!("the plan is of version {version}, this release reads version {VERSION}: plan it again"))
            }
        }
    }

    /// Columns that are looked up.
    fn added(&self) -> Result<Vec<Field>, String> {
        let fields = self.looked_up.iter().map(LookedUp::fields).collect::<Result<Vec<_>, _>>()?;
        Ok(fields.into_iter().flatten().collect())
    }
}

pub(crate) fn bind(program: &[u8], columns: &SchemaRef) -> Result<DynComputation, String> {
    let text = |error: DataFusionError| plainly(&error.strip_backtrace());
    let program = Program::decode(program)?;
    let added = program.added()?;
    let Program { names, looked_up, constants, keep, columns: computed, first, .. } = program;
    let Some((reads, _)) = names.split_at_checked(names.len().saturating_sub(added.len())) else {
        return Err("a plan of rows has fewer columns than are looked up".to_owned());
    };
    let read = Arc::new(viewed(&columns.project(&places(columns, reads)?).map_err(|error| error.to_string())?));
    let constants = Constants::decode(&constants).map_err(|error| error.to_string())?;
    let fields = read.fields().iter().map(|field| field.as_ref().clone()).chain(added);
    let seen = Schema::new(fields.collect::<Vec<_>>());
    let schema = DFSchema::try_from(seen.clone()).map_err(text)?;
    let of = |scalar: &Scalar| {
        let expression = scalar.expression(&names, &constants);
        let expression = expression.ok_or_else(|| format!("a plan of rows has {scalar:?}, which is none"))?;
        let bound = physical(&expression, &schema).map_err(text)?;
        Ok::<_, String>((expression, bound))
    };
    let keep_said = keep;
    let keep = keep_said.iter().map(|one| Ok(of(one)?.1)).collect::<Result<_, String>>()?;
    let (mut fields, mut bound) = (Vec::new(), Vec::new());
    for (name, scalar) in &computed {
        let (expression, one) = of(scalar)?;
        let data_type = expression.get_type(&schema).map_err(text)?;
        let nullable = expression.nullable(&schema).map_err(text)?;
        fields.push(Field::new(name, plain_type(&data_type), nullable));
        bound.push(one);
    }
    let first = first.map(|FirstRows { order, rows }| {
        let order = order.iter().map(|(one, descending, nulls_first)| {
            Ok((of(one)?.1, SortOptions { descending: *descending, nulls_first: *nulls_first }))
        });
        Ok::<_, String>(BoundFirst { order: order.collect::<Result<_, String>>()?, rows: rows as usize })
    });
    let first = first.transpose()?;
    let grows = computed.iter().map(|(_, one)| one).chain(&keep_said).any(Scalar::grows);
    let at_a_time = if grows { GROWING_ROWS } else { usize::MAX };
    let (mut before, mut tables) = (read.fields().len(), Vec::new());
    for table in &looked_up {
        let values = table.key().map(|one| Ok(of(one)?.1)).collect::<Result<Vec<_>, String>>()?;
        let columns = seen.project(&(0..before).collect::<Vec<_>>()).map_err(|error| error.to_string())?;
        before += table.fields()?.len();
        tables.push(BoundLookUp::new(table, &columns, values)?);
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(Arc::new(Bound { read, looked_up: tables, keep, columns: bound, schema, first, at_a_time }))
}

/// An expression that can be worked out: what does not fit the type of a sum, a difference or a product is an error, and floats compare as keys of tables.
fn physical(expression: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let checked = |expression: Arc<dyn PhysicalExpr>| match expression.downcast_ref::<BinaryExpr>() {
        Some(binary) if matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) => {
            Ok(Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true)) as Arc<dyn PhysicalExpr>))
        }
        _ => Ok(Transformed::no(expression)),
    };
    let expression = compared_as_keys(expression.clone(), schema)?;
    Ok(create_physical_expr(&expression, schema, &properties, &context)?.transform_up(checked)?.data)
}

/// Why an expression of no column has no value; `None`: it has one, or nobody knows before rows are there.
pub(crate) fn constant_error(expression: &Expr) -> Option<String> {
    let bound = physical(expression, &DFSchema::empty()).ok()?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).ok()?;
    evaluated(&bound, &row).err()
}

/// Where columns of these names are.
fn places(schema: &Schema, names: &[String]) -> Result<Vec<usize>, String> {
    names.iter().map(|name| schema.index_of(name).map_err(|error| error.to_string())).collect()
}

/// Rows with the types that these columns have.
fn as_types(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().zip(rows.columns());
    let columns = columns.map(|(field, column)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

fn evaluated(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef, String> {
    let value = expression.evaluate(rows).and_then(|value: ColumnarValue| value.into_array(rows.num_rows()));
    value.map_err(|error| plainly(&error.strip_backtrace()))
}

impl Computation for Bound {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn prepare(&self, beside: &Beside, budget: &Arc<dyn MemoryBudget>) -> Result<(), SourceError> {
        self.looked_up.iter().zip(&beside.folders).try_for_each(|(table, folder)| table.prepare(folder, budget))
    }

    fn seen(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let rows = as_types(rows, &self.read).map_err(|error| error.to_string())?;
        self.looked_up.iter().try_fold(rows, |rows, table| table.seen(&rows))
    }

    fn kept(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, String> {
        if self.keep.is_empty() && self.first.is_none() {
            return Ok(None);
        }
        let mut all: Option<BooleanArray> = None;
        for condition in &self.keep {
            // Rows that met no condition before are not looked at: one may see to it that another can be asked.
            let kept = match &all {
                None => evaluated(condition, rows)?,
                Some(all) => {
                    let kept = condition.evaluate_selection(rows, all);
                    kept.and_then(|kept| kept.into_array(rows.num_rows()))
                        .map_err(|error| plainly(&error.strip_backtrace()))?
                }
            };
            let kept = match kept.data_type() {
                DataType::Null => BooleanArray::new_null(kept.len()),
                _ => as_boolean_array(&kept).map_err(|error| plainly(&error.strip_backtrace()))?.clone(),
            };
            // Null is not true.
            let truths = match kept.nulls() {
                None => kept.values().clone(),
                Some(nulls) => kept.values() & nulls.inner(),
            };
            all = Some(match all {
                None => BooleanArray::new(truths, None),
                Some(all) => BooleanArray::new(all.values() & &truths, None),
            });
        }
        match &self.first {
            None => Ok(all),
            Some(first) => first.among(rows, all),
        }
    }

    fn compute(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        if rows.num_rows() <= self.at_a_time {
            return self.computed(rows);
        }
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for from in (0..rows.num_rows()).step_by(self.at_a_time) {
            let part = self.computed(&rows.slice(from, self.at_a_time.min(rows.num_rows() - from)))?;
            bytes += value_bytes(&part, 0..part.num_rows());
            if bytes > GROWN_BYTES_MAX {
                let (rows, most) = (rows.num_rows(), GROWN_BYTES_MAX >> 20);
                return Err(format!("what is computed of {rows} rows takes more than {most} MiB: make shorter texts"));
            }
            parts.push(part);
        }
        concat_batches(&parts[0].schema(), &parts).map_err(|error| error.to_string())
    }
}

impl Bound {
    fn computed(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let columns = self.columns.iter().map(|column| evaluated(column, rows)).collect::<Result<Vec<_>, _>>()?;
        // As encoded as they came: types without their encodings are the same.
        let fields = self.schema.fields().iter().zip(&columns);
        let fields = fields.map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use datafusion_common::Column;

    use super::*;

    #[test]
    fn what_another_release_has_planned_for_rows_is_refused() {
        let columns = [("x".to_owned(), Expr::Column(Column::new_unqualified("x")))];
        let planned = Planned { columns: &columns, ..Planned::default() };
        let Computed { program, .. } = planned.computed().unwrap();
        let mut program: Program = rmp_serde::from_slice(&program).unwrap();
        let bytes = |program: &Program| rmp_serde::to_vec_named(program).unwrap();
        assert_eq!(Program::decode(&bytes(&program)).unwrap(), program);
        program.version += 1;
        let refused = Program::decode(&bytes(&program)).unwrap_err();
        assert!(refused.contains(&format!("reads version {VERSION}: plan it again")), "{refused}");
    }
}
