//! Files of tables, cut into splits and read within memory that is asked for.
//!
//! - [`Source`]: a file of any format, told by its name ([`InputFormat`]); a list of splits, and the rows of each;
//! - [`ipc`]: files and streams of Arrow;
//! - [`json`]: JSON lines, also packed;
//! - [`parquet`]: row groups, decoded page by page;
//! - [`records`]: those of the sort benchmark;
//! - [`text`]: CSV and TSV, also packed; [`parse_schema`]: schemas as people write them;
//! - [`InputFile`]: a file as it was listed; [`MemoryBudget`]: what is asked for before memory is taken;
//! - [`SourceBatch`]: bounded rows with their place.
//!
//! Promises, of every format: splits follow from the input alone; rows of a split come in the order of the file, in bounded batches; damaged or
//! unexpected input is an error with file and place, never a panic, and never more memory than was granted.

mod batches;
mod error;
mod folders;
mod format;
mod front;
mod input;
pub mod ipc;
pub mod json;
mod memory;
mod names;
pub mod parquet;
pub mod records;
mod schema_text;
pub mod text;

pub use batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, SourceBatch, value_bytes};
pub(crate) use batches::{array_bytes, is_counted_by_row, larger_row};
pub(crate) use error::shown;
pub use error::{Misfit, Place, SourceError};
pub(crate) use folders::{FolderColumns, folder_statistics, folder_types, run_bytes, with_folders, without_runs};
pub use format::InputFormat;
pub(crate) use format::alike;
pub use front::{Source, SourceRows, TextOptions};
pub use input::{InputFile, ListedFile};
pub use memory::{FixedBudget, MemoryBudget, MemoryDenied, Reservation, StoreBudget};
pub use names::{check_names, column_index};
pub(crate) use schema_text::map_of;
pub use schema_text::{NamedTypes, parse_schema, print_column, print_schema, print_type};

/// A piece of a file that one task reads: it follows from the file alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Which of the file's, from 0.
    pub index: usize,
    /// Bytes of the file that are in it.
    pub bytes: u64,
    /// How many rows it has, where the file says so.
    pub rows: Option<u64>,
}
