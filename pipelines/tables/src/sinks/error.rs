//! What can go wrong where tables are written.

use exobus_files::FileError;

use crate::TableError;
use crate::sources::MemoryDenied;

/// Why a file of a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The disk, or who answers for it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A batch is not of the schema of the file.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no memory for what is written at once.
    #[error("{what} takes {} bytes of memory more, which were denied: give more memory", denied.wanted)]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// How many bytes were asked for.
        denied: MemoryDenied,
    },
    /// The library of the format refused what was checked before.
    #[error("the file cannot be written as {format}: {what}")]
    Refused {
        /// The format.
        format: &'static str,
        /// What the library says.
        what: String,
    },
}
