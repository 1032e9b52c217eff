//! Why a sort ends early.

use exobus_shuffle::files::FileError;

/// Why a sort ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The memory is too small for the input, its partitions, or its most frequent keys.
    #[error("{0}")]
    Memory(String),
    /// Rows were lost, repeated or changed: a fault of this program.
    #[error("conservation: {0}")]
    Conservation(String),
    /// Another thread has failed and says why.
    #[error("stopped by another thread")]
    Stopped,
}
