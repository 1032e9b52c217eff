//! Files of tables, cut into splits and read within memory that is asked for.
//!
//! - [`parquet`]: row groups, decoded page by page;
//! - [`InputFile`]: a file as it was listed; [`MemoryBudget`]: what is asked for before memory is taken;
//! - [`SourceBatch`]: bounded rows with their place.
//!
//! Promises, of every format: splits follow from the input alone; rows of a split come in the order of the file, in bounded batches; damaged or
//! unexpected input is an error with file and place, never a panic, and never more memory than was granted.

mod batches;
mod error;
mod input;
mod memory;
pub mod parquet;

pub use batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, SourceBatch};
pub use error::{Place, SourceError};
pub use input::InputFile;
pub use memory::{FixedBudget, MemoryBudget, MemoryDenied, Reservation, StoreBudget};

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
