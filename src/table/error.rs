//! Why a table was not read or written.

use exobus_actors::task::JobError;
use exobus_files::FileError;
use exobus_tables::aggregates::AggregateError;
use exobus_tables::jobs::join::NoPair;
use exobus_tables::semantics::NoKeyColumn;
use exobus_tables::sources::SourceError;

/// Why a [`Table`](super::Table) was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableJobError {
    /// The text of a column of a key is none.
    #[error(transparent)]
    Key(#[from] NoKeyColumn),
    /// A key has no column.
    #[error("there is no key: name a column at least")]
    NoKey,
    /// The text of a pair of columns is none.
    #[error(transparent)]
    Pair(#[from] NoPair),
    /// The text of an aggregate is none.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// It is said of each value of which columns some groups stay, and not how many.
    #[error("`per` says of what the first groups stay, and `top` does not say how many")]
    NoTop,
    /// There is no file, or the output folder cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file that was looked at is no table, or not such a one.
    #[error(transparent)]
    Table(#[from] SourceError),
    /// The node of this process could not start: too little memory, no room to spill.
    #[error("{message}")]
    Node {
        /// Why.
        message: String,
    },
    /// The job failed; the message names the file, column, line or row group where it is about one.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The job failed, and what it had written could not be removed.
    #[error("{error}; besides, files of it are left: {withdraw}")]
    Withdraw {
        /// Why it failed.
        error: Box<JobError>,
        /// Why they are left.
        withdraw: Box<FileError>,
    },
}
