//! The columns that an operator reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{Column, DFSchema};
use datafusion_expr::{Expr, ExprSchemable, lit};
use exobus_tables::reading::Computed;

use super::{Input, NO_WINDOW, ROW_NUMBER, written};
use crate::SqlError;
use crate::conditions;
use crate::plan::{Origin, Rows};
use crate::rows::{LookUp, Planned};

/// Columns with names, no two of which are the same but for case.
#[derive(Clone, Debug, Default)]
pub(super) struct Projected {
    columns: Vec<(String, Expr)>,
    taken: BTreeSet<String>,
}

impl Projected {
    /// Leaves names alone that others have.
    pub(super) fn avoiding(others: &Self) -> Self {
        Self { columns: Vec::new(), taken: others.taken.clone() }
    }

    /// The name of a column, which is there once: its own, or one that begins so.
    pub(super) fn add(&mut self, expr: &Expr, prefix: &str) -> String {
        match self.name_of(expr) {
            Some(name) => name.to_owned(),
            None => self.add_apart(expr, prefix, true),
        }
    }

    /// The same where others are the same, too. `is_itself`: it may have its own name.
    pub(super) fn add_apart(&mut self, expr: &Expr, prefix: &str, is_itself: bool) -> String {
        // What stands between names where they are said together is in none of them.
        let own = match expr {
            Expr::Column(column) if is_itself && !column.name.contains(['=', ',', ':']) => Some(column.name.clone()),
            _ => None,
        };
        let mut names = own.into_iter().chain((0..).map(|number| format!("{prefix}{number}")));
        let name = names.find(|name| !self.taken.contains(&name.to_lowercase())).unwrap_or_default();
        self.push(name.clone(), expr.clone());
        name
    }

    /// A column of this name, which none has.
    pub(super) fn push(&mut self, name: String, expr: Expr) {
        self.taken.insert(name.to_lowercase());
        self.columns.push((name, expr));
    }

    /// Whether one has this name, but for case.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.taken.contains(&name.to_lowercase())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// The name of a column that is there.
    pub(super) fn name_of(&self, expr: &Expr) -> Option<&str> {
        self.columns.iter().find(|(_, known)| known == expr).map(|(name, _)| name.as_str())
    }

    /// Calls a column otherwise.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some((name, _)) = self.columns.iter_mut().find(|(name, _)| name == from) {
            self.taken.remove(&from.to_lowercase());
            self.taken.insert(to.to_lowercase());
            *name = to.to_owned();
        }
    }

    /// Their schema, over what is read.
    pub(super) fn schema(&self, read: &Schema) -> Result<SchemaRef, SqlError> {
        without_number(self.columns.iter().map(|(_, expr)| expr))?;
        let schema = DFSchema::try_from(read.clone())?;
        let fields = self.columns.iter().map(|(name, expr)| Ok(written(name, &expr.get_type(&schema)?)));
        Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, SqlError>>()?)))
    }
}

impl Input {
    /// Rows of these columns.
    pub(super) fn rows(self) -> Result<Rows, SqlError> {
        let Self { origin, schema, looked_up, keep, columns: Projected { mut columns, .. }, selects, first } = self;
        without_number(columns.iter().map(|(_, expr)| expr).chain(&keep))?;
        // Files say nothing of what is looked up.
        let added: Vec<Field> = looked_up.iter().flat_map(LookUp::fields).collect();
        let of_files = schema.fields().iter().filter(|field| added.iter().all(|added| added.name() != field.name()));
        let of_files = Schema::new(of_files.cloned().collect::<Vec<_>>());
        let (filter, keep) = conditions::split(keep, &of_files);
        if columns.is_empty() && (!selects || !keep.is_empty()) {
            // Rows are counted by a column.
            columns.push(match of_files.fields().first() {
                Some(field) => (field.name().clone(), Expr::Column(Column::new_unqualified(field.name()))),
                None => ("rows".to_owned(), lit(1_i32)),
            });
        }
        let is_itself = |(name, expr): &(String, Expr)| matches!(expr, Expr::Column(column) if column.name == *name);
        let is_read_alone = keep.is_empty() && first.is_none() && looked_up.is_empty();
        if is_read_alone && columns.iter().all(is_itself) {
            let select = (!selects && !is_all(&origin, &columns, &schema))
                .then(|| columns.into_iter().map(|(name, _)| name).collect());
            return Ok(Rows { origin, filter, computed: None, select, beside: Vec::new(), said: String::new() });
        }
        let mut said: Vec<String> = columns
            .iter()
            .filter(|column| !is_itself(column))
            .map(|(name, expr)| format!("{} AS {name}", expr.human_display()))
            .collect();
        if !said.is_empty() {
            said.insert(0, "with".to_owned());
        }
        let said_kept: Vec<String> = keep.iter().map(|one| one.human_display().to_string()).collect();
        let mut text =
            said.split_first().map_or(String::new(), |(with, columns)| format!("{with} {}", columns.join(", ")));
        if !said_kept.is_empty() {
            text =
                format!("{}where {}", if text.is_empty() { text } else { format!("{text} ") }, said_kept.join(" AND "));
        }
        let spare = of_files.fields().first().map(|field| field.name().as_str());
        let planned = Planned { looked_up: &looked_up, keep: &keep, columns: &columns, first: first.as_ref(), spare };
        let unchanged = columns.iter().filter_map(|(name, expr)| Some((name.clone(), numbers_of(expr, &of_files)?)));
        let computed = Computed { unchanged: unchanged.collect(), ..planned.computed()? };
        let beside = looked_up.iter().map(|table| table.step).collect();
        Ok(Rows { origin, filter, computed: Some(computed), select: None, beside, said: text })
    }
}

/// The column whose numbers an expression has: one of whole numbers or decimals, or one of whole numbers in another type that has room for them.
fn numbers_of(expr: &Expr, of_files: &Schema) -> Option<String> {
    let is_whole = |data_type: &DataType| data_type.is_integer();
    let (column, is_number): (_, fn(&DataType) -> bool) = match expr {
        Expr::Column(column) => (column, |data_type| data_type.is_integer() || data_type.is_decimal()),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Column(column)
                if is_whole(cast.field.data_type()) || *cast.field.data_type() == DataType::Float64 =>
            {
                (column, is_whole)
            }
            _ => return None,
        },
        _ => return None,
    };
    let field = of_files.field_with_name(&column.name).ok()?;
    is_number(field.data_type()).then(|| column.name.clone())
}

/// Refuses what reads the number that a row has in its part: rows have none.
pub(super) fn without_number<'a>(mut read: impl Iterator<Item = &'a Expr>) -> Result<(), SqlError> {
    match read.any(|expr| expr.column_refs().iter().any(|column| column.name == ROW_NUMBER)) {
        true => Err(SqlError::new(NO_WINDOW).about(&["over"])),
        false => Ok(()),
    }
}

/// Whether these are all columns of what steps have written, in their order.
fn is_all(origin: &Origin, columns: &[(String, Expr)], schema: &Schema) -> bool {
    let names = columns.iter().map(|(name, _)| name.as_str());
    matches!(origin, Origin::Steps(_)) && names.eq(schema.fields().iter().map(|field| field.name().as_str()))
}
