//! What becomes of rows, one by one: which stay, and what is computed of them. It travels as bytes, and [`LANGUAGE`] makes it ready where rows are read.
//!
//! Expressions are worked out by DataFusion, whose options are pinned: the time zone is UTC, and what depends on when the query was asked was put in its place when it was planned.

mod constants;
mod scalar;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::cast::as_boolean_array;
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Expr, ExprSchemable};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use exobus_actors::inventory;
use exobus_tables::plain::plain_type;
use exobus_tables::reading::{Computation, Computed, DynComputation, Language};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

pub use self::constants::{Constants, NoConstants};
pub(crate) use self::scalar::FUNCTIONS;
pub use self::scalar::{NoScalar, Scalar, Unary};

/// The name of the language.
pub const LANGUAGE: &str = "sql";

/// The version of what is written here: another release reads no other.
const VERSION: u32 = 1;

inventory::submit! {
    Language { name: LANGUAGE, bind }
}

/// What is told of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Program {
    version: u32,
    /// The columns that are read.
    reads: Vec<String>,
    constants: ByteBuf,
    /// What rows have to meet, all of it.
    keep: Vec<Scalar>,
    /// Names of columns, and what they are.
    columns: Vec<(String, Scalar)>,
}

/// What is computed of rows that meet conditions, over columns of a table: names of columns, and what they are. Where they look at none, a `spare` one is read, since rows are counted in one.
///
/// # Errors
/// [`NoScalar`].
pub fn computed<'a>(
    keep: impl IntoIterator<Item = &'a Expr>,
    columns: impl IntoIterator<Item = (String, &'a Expr)>,
    spare: Option<String>,
) -> Result<Computed, NoScalar> {
    let (mut reads, mut constants) = (Vec::new(), Constants::default());
    let keep =
        keep.into_iter().map(|one| Scalar::of(one, &mut reads, &mut constants)).collect::<Result<Vec<_>, _>>()?;
    let columns = columns.into_iter().map(|(name, one)| Ok((name, Scalar::of(one, &mut reads, &mut constants)?)));
    let columns = columns.collect::<Result<Vec<_>, NoScalar>>()?;
    if reads.is_empty() {
        reads.extend(spare);
    }
    let leaves_out = !keep.is_empty();
    let constants = ByteBuf::from(constants.encode()?);
    let program = Program { version: VERSION, reads: reads.clone(), constants, keep, columns };
    let program = rmp_serde::to_vec(&program).map_err(|error| NoScalar::NoOperator { what: error.to_string() })?;
    Ok(Computed { language: LANGUAGE.to_owned(), program: ByteBuf::from(program), reads, leaves_out })
}

/// A type as expressions have it: texts are views, as files of Parquet are decoded.
pub fn viewed_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::BinaryView,
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
    /// Types that columns have before anything is worked out.
    types: Vec<DataType>,
    /// Of rows as expressions see them.
    read: SchemaRef,
    keep: Vec<Arc<dyn PhysicalExpr>>,
    columns: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

fn bind(program: &[u8], columns: &SchemaRef) -> Result<DynComputation, String> {
    let text = |error: DataFusionError| error.strip_backtrace();
    let program: Program = rmp_serde::from_slice(program).map_err(|error| format!("a plan of rows: {error}"))?;
    let Program { version, reads, constants, keep, columns: computed } = program;
    if version != VERSION {
        return Err(format!("the plan is of version {version}, this release reads version {VERSION}: plan it again"));
    }
    let read = Arc::new(viewed(&columns.project(&places(columns, &reads)?).map_err(|error| error.to_string())?));
    let constants = Constants::decode(&constants).map_err(|error| error.to_string())?;
    let schema = DFSchema::try_from(read.as_ref().clone()).map_err(text)?;
    let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let of = |scalar: &Scalar| {
        let expression = scalar.expression(&reads, &constants);
        let expression = expression.ok_or_else(|| format!("a plan of rows has {scalar:?}, which is none"))?;
        let bound = create_physical_expr(&expression, &schema, &properties, &context).map_err(text)?;
        Ok::<_, String>((expression, bound))
    };
    let keep = keep.iter().map(|one| Ok(of(one)?.1)).collect::<Result<_, String>>()?;
    let (mut fields, mut bound) = (Vec::new(), Vec::new());
    for (name, scalar) in &computed {
        let (expression, one) = of(scalar)?;
        let data_type = expression.get_type(&schema).map_err(text)?;
        let nullable = expression.nullable(&schema).map_err(text)?;
        fields.push(Field::new(name, plain_type(&data_type), nullable));
        bound.push(one);
    }
    let types = read.fields().iter().map(|field| field.data_type().clone()).collect();
    Ok(Arc::new(Bound { types, read, keep, columns: bound, schema: Arc::new(Schema::new(fields)) }))
}

/// Where columns of these names are.
fn places(schema: &Schema, names: &[String]) -> Result<Vec<usize>, String> {
    names.iter().map(|name| schema.index_of(name).map_err(|error| error.to_string())).collect()
}

impl Bound {
    /// Rows as expressions see them.
    fn seen(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let columns = self.types.iter().zip(rows.columns());
        let columns = columns.map(|(data_type, column)| match column.data_type() == data_type {
            true => Ok(column.clone()),
            false => cast(column, data_type),
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().map_err(|error| error.to_string())?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(self.read.clone(), columns, &options).map_err(|error| error.to_string())
    }
}

fn evaluated(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef, String> {
    let value = expression.evaluate(rows).and_then(|value: ColumnarValue| value.into_array(rows.num_rows()));
    value.map_err(|error| error.strip_backtrace())
}

impl Computation for Bound {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn kept(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, String> {
        if self.keep.is_empty() {
            return Ok(None);
        }
        let rows = self.seen(rows)?;
        let mut all: Option<BooleanArray> = None;
        for condition in &self.keep {
            // Rows that met no condition before are not looked at: one may see to it that another can be asked.
            let kept = match &all {
                None => evaluated(condition, &rows)?,
                Some(all) => {
                    let kept = condition.evaluate_selection(&rows, all);
                    kept.and_then(|kept| kept.into_array(rows.num_rows())).map_err(|error| error.strip_backtrace())?
                }
            };
            let kept = match kept.data_type() {
                DataType::Null => BooleanArray::new_null(kept.len()),
                _ => as_boolean_array(&kept).map_err(|error| error.strip_backtrace())?.clone(),
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
        Ok(all)
    }

    fn compute(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let rows = self.seen(rows)?;
        let columns = self.columns.iter().map(|column| evaluated(column, &rows)).collect::<Result<Vec<_>, _>>()?;
        // As encoded as they came: types without their encodings are the same.
        let fields = self.schema.fields().iter().zip(&columns);
        let fields = fields.map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(|error| error.to_string())
    }
}
