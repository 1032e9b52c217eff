//! Rows on their way up a plan.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema};
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Expr, ExprSchemable};

use super::Input;
use super::projected::Projected;
use crate::SqlError;
use crate::plan::{Origin, Slice};
use crate::rows::{LookUp, viewed};

/// How large expressions may become when those below them are put in their places.
const EXPRESSION_MAX: usize = 100_000;

/// Rows of a table, or of what steps have written, and what becomes of them one by one.
#[derive(Clone)]
pub(super) struct Relation {
    pub(super) origin: Origin,
    /// Of what is read and looked up, as expressions have it.
    pub(super) schema: SchemaRef,
    /// What is looked up for each row.
    pub(super) looked_up: Vec<LookUp>,
    /// What rows have to meet, over the columns that are read.
    pub(super) keep: Vec<Expr>,
    /// The columns, over those that are read.
    pub(super) columns: Vec<Expr>,
    /// Which of the rows that are left, in their order.
    pub(super) slice: Slice,
}

impl Relation {
    /// These columns of what has this schema.
    pub(super) fn of(origin: Origin, schema: &Schema, columns: impl IntoIterator<Item = usize>) -> Self {
        let schema = Arc::new(viewed(schema));
        let column = |at: usize| Expr::Column(Column::new_unqualified(schema.field(at).name()));
        let columns = columns.into_iter().map(column).collect();
        Self { origin, schema, looked_up: Vec::new(), keep: Vec::new(), columns, slice: Slice::default() }
    }

    /// All columns of a plan, by the names that it has for them: of no use but to put expressions over them together.
    pub(super) fn all_of(schema: &DFSchema) -> Self {
        let columns = schema.columns().into_iter().map(Expr::Column).collect();
        Self { columns, ..Self::of(Origin::Steps(Vec::new()), schema.as_arrow(), []) }
    }

    /// The columns of these names.
    pub(super) fn named(origin: Origin, schema: &Schema, names: &[String]) -> Self {
        let columns = names.iter().map(|name| Expr::Column(Column::new_unqualified(name))).collect();
        Self { columns, ..Self::of(origin, schema, []) }
    }

    /// An expression over columns as one over those that are read; `schema` has names for the columns.
    pub(super) fn over(&self, expr: &Expr, schema: &DFSchema) -> Result<Expr, SqlError> {
        let put = |expr: Expr| match &expr {
            Expr::Column(column) => {
                let at = schema.index_of_column(column)?;
                Ok(Transformed::yes(self.columns[at].clone()))
            }
            Expr::Alias(alias) => Ok(Transformed::yes((*alias.expr).clone())),
            _ => Ok(Transformed::no(expr)),
        };
        let expr = expr.clone().transform_up(put)?.data;
        let mut size = 0;
        expr.apply(|_| {
            size += 1;
            Ok(match size > EXPRESSION_MAX {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        match size > EXPRESSION_MAX {
            true => {
                Err(SqlError::new("an expression becomes too large where those of subqueries are put in its place"))
            }
            false => Ok(expr),
        }
    }

    /// Leaves out rows that do not meet a condition.
    pub(super) fn keep(&mut self, condition: Expr) {
        self.keep.extend(split_conjunction_owned(condition));
    }

    /// These columns of it, as an operator reads them.
    pub(super) fn read(self, columns: Projected) -> Input {
        let Self { origin, schema, looked_up, keep, .. } = self;
        Input { origin, schema, looked_up, keep, columns, selects: false, first: None }
    }

    /// The types of the columns.
    pub(super) fn types(&self) -> Vec<DataType> {
        let schema = DFSchema::try_from(self.schema.as_ref().clone());
        let of = |column: &Expr| schema.as_ref().ok().and_then(|schema| column.get_type(schema).ok());
        self.columns.iter().map(|column| of(column).unwrap_or(DataType::Null)).collect()
    }
}
