//! What can go wrong with tables.

use arrow_schema::{ArrowError, DataType};

/// Why something about a table could not be done. Nothing here is healed by a retry but what the store says itself.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A column has a type that tables do not have.
    #[error("column {column} is {data_type}: {why}")]
    Unsupported {
        /// Path of names from the top, with dots.
        column: String,
        /// Its type.
        data_type: DataType,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// A column cannot be a key.
    #[error("column {column} cannot be a key: {data_type} has no order ({why})")]
    NoOrder {
        /// Path of names from the top, with dots.
        column: String,
        /// Its type.
        data_type: DataType,
        /// Why it has none.
        why: &'static str,
    },
    /// Times with a zone, which are instants, meet times without one, which are none.
    #[error(
        "column {column}: {left} and {right} do not compare: one is an instant, the other what a clock showed nobody says where; \
         give both a zone, or none"
    )]
    ZonesMixed {
        /// Path of names from the top, with dots.
        column: String,
        /// One type.
        left: DataType,
        /// The other one.
        right: DataType,
    },
    /// Values of two columns do not compare, or a batch is not of the schema that was said.
    #[error("column {column} is {found}, not {expected}")]
    TypeDiffers {
        /// Path of names from the top, with dots.
        column: String,
        /// What was said.
        expected: DataType,
        /// What it is.
        found: DataType,
    },
    /// Another column, or another field of a struct, stands where one was said to stand.
    #[error("column {found} stands where column {expected} belongs")]
    NameDiffers {
        /// Path of names from the top, with dots, as was said.
        expected: String,
        /// The last name of the path, as it is.
        found: String,
    },
    /// A list has more elements than are looked at.
    #[error("a list of column {column} has {elements} elements; it may have {elements_max}")]
    TooManyElements {
        /// Path of names from the top, with dots.
        column: String,
        /// How many.
        elements: u64,
        /// How many it may have.
        elements_max: u64,
    },
    /// A null in a column that says that it has none.
    #[error(
        "row {row} of batch {batch} has a null in column {column}, whose field says that there is none: make the field nullable"
    )]
    NullInColumn {
        /// Path of names from the top, with dots.
        column: String,
        /// Which of the batches that rows are taken from, from 0.
        batch: u32,
        /// Which row of it, from 0.
        row: u32,
    },
    /// A batch has another number of columns than was said.
    #[error("{found} columns, not {expected}")]
    ColumnsDiffer {
        /// How many were said.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// No block can hold the row.
    #[error("row {row} of batch {batch} takes {bytes} bytes; a row may take {bytes_max}")]
    RowTooLarge {
        /// Which of the batches that rows are taken from, from 0.
        batch: u32,
        /// Which row of it, from 0.
        row: u32,
        /// How many bytes a message with this row alone has; `u64::MAX`: more than offsets of its columns can count.
        bytes: u64,
        /// How many it may have.
        bytes_max: u64,
    },
    /// The schema of blocks was written by another release.
    #[error("blocks are of version {found}, this release reads version {expected}: use the exobus that wrote them")]
    BlockVersion {
        /// The version that was found.
        found: u32,
        /// The one that this release writes and reads.
        expected: u32,
    },
    /// A message of a block was written for another schema.
    #[error("the block at byte {at} was written for the schema {found}, not for {expected}, which it is read with")]
    LayoutDiffers {
        /// Where in the part.
        at: usize,
        /// The hash of the schema that it was written for.
        found: String,
        /// The hash of the schema that it is read with.
        expected: String,
    },
    /// Bytes that are no block.
    #[error("not a block, at byte {at}: {what}")]
    NotABlock {
        /// Where in the part.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// A sum is outside what its type can hold.
    #[error("sum of column {column} is outside {data_type}")]
    SumOverflows {
        /// Name of the column.
        column: String,
        /// The type of the sum.
        data_type: DataType,
    },
    /// The store gave no memory, or its disk failed.
    #[error(transparent)]
    Store(#[from] exobus_store::StoreError),
    /// Arrow refused something that was checked before.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

impl TableError {
    /// Whether the data or the request is to blame, rather than this program or its store.
    pub fn is_of_the_input(&self) -> bool {
        !matches!(self, Self::Store(_) | Self::Arrow(_) | Self::NotABlock { .. } | Self::LayoutDiffers { .. })
    }
}
