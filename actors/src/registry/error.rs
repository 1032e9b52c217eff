//! How a task function fails.

use exobus_files::FileError;
use exobus_store::StoreError;

use crate::task::{FailureKind, Fault, TaskFailure};

/// The error of a task function. Says by its kind whether another attempt is of use.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// Something went wrong that may go well another time.
    #[error("{0}")]
    Failed(String),
    /// No attempt can succeed: the input is bad, say.
    #[error("{0}")]
    Final(String),
    /// The task saw [`TaskContext::cancelled`](super::TaskContext::cancelled) and stopped.
    #[error("cancelled")]
    Cancelled,
    /// No room on the disk that the task writes to.
    #[error("{0}")]
    DiskFull(String),
    /// No attempt can succeed, since what was asked for cannot be: a column that is not there, say.
    #[error("{0}")]
    Request(String),
    /// No attempt can succeed, since the input is not what it should be.
    #[error("{0}")]
    Data(String),
    /// A file, or a folder, cannot be read or written.
    #[error("{message}")]
    Files {
        /// Which, and why.
        message: String,
        /// Whether another attempt may succeed.
        retry: bool,
    },
    /// The store could not do what was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskError {
    /// A failure worth another attempt.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failure that no attempt can heal.
    pub fn fatal(error: impl std::fmt::Display) -> Self {
        Self::Final(error.to_string())
    }

    /// What was asked for cannot be.
    pub fn request(error: impl std::fmt::Display) -> Self {
        Self::Request(error.to_string())
    }

    /// The input is not what it should be.
    pub fn data(error: impl std::fmt::Display) -> Self {
        Self::Data(error.to_string())
    }

    /// What is at fault.
    fn fault(&self) -> Fault {
        match self {
            Self::Request(_) => Fault::Request,
            Self::Data(_) => Fault::Data,
            Self::Files { .. } | Self::DiskFull(_) | Self::Store(StoreError::DiskFull { .. }) => Fault::Files,
            Self::Failed(_) | Self::Final(_) | Self::Cancelled | Self::Store(_) => Fault::Unknown,
        }
    }

    pub(crate) fn into_failure(self) -> TaskFailure {
        let (message, fault) = (self.to_string(), self.fault());
        let kind = match self {
            Self::Failed(_) | Self::Files { retry: true, .. } => FailureKind::Error,
            Self::Final(_) | Self::Request(_) | Self::Data(_) | Self::Files { retry: false, .. } => FailureKind::Final,
            Self::Store(StoreError::TooLarge { .. } | StoreError::NeverGranted { .. }) => FailureKind::Final,
            Self::Cancelled => FailureKind::Cancelled,
            Self::DiskFull(_) | Self::Store(StoreError::DiskFull { .. }) => FailureKind::DiskFull,
            Self::Store(StoreError::Denied { .. } | StoreError::ReserveExhausted { .. }) => FailureKind::Denied,
            Self::Store(_) => FailureKind::Error,
        };
        TaskFailure { fault, ..TaskFailure::new(kind, message) }
    }
}

impl From<super::RootsError> for TaskError {
    fn from(error: super::RootsError) -> Self {
        Self::Files { message: error.to_string(), retry: false }
    }
}

impl From<FileError> for TaskError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::DiskFull { .. } => Self::DiskFull(error.to_string()),
            _ if error.is_about_data() => Self::data(error),
            _ => Self::Files { retry: error.retry_is_of_use(), message: error.to_string() },
        }
    }
}

impl From<std::io::Error> for TaskError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        // Of an output that is written through `io::Write`.
        if let Some(store) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
            return Self::Store(store.clone());
        }
        let full = matches!(error.kind(), StorageFull | QuotaExceeded);
        let message = error.to_string();
        if full { Self::DiskFull(message) } else { Self::Files { message, retry: true } }
    }
}
