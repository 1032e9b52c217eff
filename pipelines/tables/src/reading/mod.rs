//! Tables as rows are read of them: the columns that are selected, and of the rows those that meet a condition. One place for all that reads rows.
//!
//! - [`ReadOptions`]: what people say of it;
//! - `TableReader`: the rows of a split of a file, of the columns that are needed alone;
//! - `FileRows`: those of its splits one behind the other, some or all, and at last whether it was the file that was listed;
//! - `FileStatistics`: which splits need not be read, as footers say.
//!
//! Values are compared as the table has them, whatever type a file has: the types of the columns that the condition looks at travel with it ([`Reading`]).

mod computed;
mod in_memory;
mod leaving_out;
mod options;
mod pages;
mod rows;
mod walk;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

pub use self::computed::{Beside, Computation, Computed, DynComputation, Language};
pub use self::in_memory::{InMemory, SeenRows};
pub(crate) use self::leaving_out::FileStatistics;
pub(crate) use self::options::Opener;
pub use self::options::ReadOptions;
pub(crate) use self::rows::{ReadRows, TableFile, TableReader, ToRead};
pub(crate) use self::walk::{ALL_ROWS, Wanted};
use crate::TableError;
use crate::block::Layout;
use crate::expression::{Bound, Expression};
use crate::semantics::{conformed, find_column};

/// How rows are read: what tasks are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// With the types of all columns of text.
    pub(crate) options: ReadOptions,
    /// The [`Layout`] of the columns that the condition looks at, encoded.
    condition_columns: Option<ByteBuf>,
    /// The same of the columns that others are computed of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    computed_columns: Option<ByteBuf>,
}

impl Reading {
    /// Of the table of this schema, which has all columns.
    ///
    /// # Errors
    /// The condition is none for its rows.
    pub(crate) fn new(options: ReadOptions, table: &Schema) -> Result<Self, TableError> {
        let encoded = |schema: &Schema| Ok::<_, TableError>(ByteBuf::from(Layout::new(schema)?.encode()));
        let computed = options.computed.as_ref().map(|computed| encoded(&*computed.read(table)?));
        let computed_columns = computed.transpose()?;
        let Some(condition) = &options.filter else {
            return Ok(Self { options, condition_columns: None, computed_columns });
        };
        condition.bind(table)?;
        let columns = named_columns(condition, table)?;
        // A condition of no column is one of all rows: these are counted in a column.
        let columns = if columns.is_empty() { vec![0] } else { columns };
        let condition_columns = Some(encoded(&table.project(&columns)?)?);
        Ok(Self { options, condition_columns, computed_columns })
    }

    fn condition(&self) -> Result<Option<Condition>, TableError> {
        let (Some(condition), Some(layout)) = (&self.options.filter, &self.condition_columns) else { return Ok(None) };
        let schema = Layout::decode(layout)?.schema().clone();
        Ok(Some(Condition { bound: condition.bind(&schema)?, schema }))
    }
}

/// Numbers of the columns that a condition names, rising: also of those whose values decide nothing, as where they are compared with null or are nulls only, since it is
/// bound to the schema of these columns again.
fn named_columns(condition: &Expression, table: &Schema) -> Result<Vec<usize>, TableError> {
    let names = condition.columns().into_iter();
    let found = names.filter_map(|name| find_column(table.fields(), name).transpose());
    let mut columns = found.map(|found| Ok(found?.0[0])).collect::<Result<Vec<usize>, TableError>>()?;
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}

/// What rows have to meet.
struct Condition {
    bound: Bound,
    /// Of the columns that it looks at, as the table has them.
    schema: SchemaRef,
}

impl Condition {
    /// Which rows of a batch meet it that has the columns that it looks at, as far as the file and its folders have them.
    fn kept(&self, batch: &RecordBatch) -> Result<BooleanArray, TableError> {
        self.bound.evaluate(&conformed(batch, &self.schema)?)
    }
}

#[cfg(test)]
mod tests;
