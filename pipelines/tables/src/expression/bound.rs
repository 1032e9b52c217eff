//! A condition for rows of one schema.

use arrow_array::{BooleanArray, RecordBatch};

use super::columns::{BoundColumn, Pair, Set};
use super::like::Pattern;
use super::tree::Comparison;
use super::truth::Truth;
use crate::TableError;

/// A condition whose columns and values were looked up in a schema.
#[derive(Clone, Debug)]
pub struct Bound {
    pub(super) root: Node,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Constant(Option<bool>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    IsNull(BoundColumn),
    /// Whether its value is in the set; where it is not, false, or null.
    Among {
        column: BoundColumn,
        set: Set,
        or_null: bool,
    },
    /// Whether its text is like the pattern; all that are, are within the set.
    Like {
        column: BoundColumn,
        pattern: Pattern,
        within: Set,
    },
    Pair(Box<Pair>, Comparison),
}

impl Bound {
    pub(super) fn new(root: Node) -> Self {
        Self { root }
    }

    /// Numbers of the columns of the schema that it looks at, rising.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        self.root.add_columns(&mut columns);
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Whether the condition is true, for each row; neither false nor null is. The batch has the columns of the schema that it looks at in their places, in any encoding.
    /// Takes two bits of memory a row for each level of the condition, and what its columns have is not copied.
    ///
    /// # Errors
    /// A column has another name or type than was said ([`check_type`](crate::semantics::check_type)).
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray, TableError> {
        Ok(BooleanArray::new(self.root.evaluate(batch)?.is_true, None))
    }
}

impl Node {
    fn evaluate(&self, batch: &RecordBatch) -> Result<Truth, TableError> {
        let rows = batch.num_rows();
        match self {
            Self::Constant(value) => Ok(Truth::constant(*value, rows)),
            Self::And(all) => {
                let mut truth = Truth::constant(Some(true), rows);
                for one in all {
                    // What is false stays so.
                    if truth.is_false.count_set_bits() == rows {
                        break;
                    }
                    truth = truth.and(&one.evaluate(batch)?);
                }
                Ok(truth)
            }
            Self::Or(all) => {
                let mut truth = Truth::constant(Some(false), rows);
                for one in all {
                    if truth.is_true.count_set_bits() == rows {
                        break;
                    }
                    truth = truth.or(&one.evaluate(batch)?);
                }
                Ok(truth)
            }
            Self::Not(of) => Ok(of.evaluate(batch)?.not()),
            Self::IsNull(column) => column.nulls(batch),
            Self::Among { column, set, or_null } => {
                let truth = column.are_among(batch, set)?;
                Ok(if *or_null { truth.true_or_null() } else { truth })
            }
            Self::Like { column, pattern, .. } => column.texts(batch, |text| pattern.is_like(text)),
            Self::Pair(pair, comparison) => pair.compared(batch, *comparison),
        }
    }

    fn add_columns(&self, columns: &mut Vec<usize>) {
        match self {
            Self::Constant(_) => (),
            Self::And(all) | Self::Or(all) => all.iter().for_each(|one| one.add_columns(columns)),
            Self::Not(of) => of.add_columns(columns),
            Self::IsNull(column) | Self::Among { column, .. } | Self::Like { column, .. } => {
                columns.push(column.path[0])
            }
            Self::Pair(pair, _) => columns.extend(pair.columns().map(|column| column.path[0])),
        }
    }
}
