//! How a task function fails.

use exobus_store::StoreError;

use crate::task::{FailureKind, TaskFailure};

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

    pub(crate) fn into_failure(self) -> TaskFailure {
        let message = self.to_string();
        let kind = match self {
            Self::Failed(_) => FailureKind::Error,
            Self::Final(_) | Self::Store(StoreError::TooLarge { .. }) => FailureKind::Final,
            Self::Cancelled => FailureKind::Cancelled,
            Self::DiskFull(_) | Self::Store(StoreError::DiskFull { .. }) => FailureKind::DiskFull,
            Self::Store(StoreError::Denied { .. } | StoreError::ReserveExhausted { .. }) => FailureKind::Denied,
            Self::Store(_) => FailureKind::Error,
        };
        TaskFailure::new(kind, message)
    }
}

impl From<super::RootsError> for TaskError {
    fn from(error: super::RootsError) -> Self {
        Self::fatal(error)
    }
}

impl From<std::io::Error> for TaskError {
    fn from(error: std::io::Error) -> Self {
        // Of an output that is written through `io::Write`.
        if let Some(store) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
            return Self::Store(store.clone());
        }
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        if full { Self::DiskFull(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}
