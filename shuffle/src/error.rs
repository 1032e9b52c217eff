//! Why a shuffle fails.

use exobus_actors::task::JobError;

use crate::plan::PlanError;

/// Why a shuffle fails. Lost and repeated messages and failed attempts are healed below and never seen here.
#[derive(Debug, thiserror::Error)]
pub enum ShuffleError {
    /// A future failed, or the runtime ended.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The numbers do not work out.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl From<ShuffleError> for JobError {
    fn from(error: ShuffleError) -> Self {
        match error {
            ShuffleError::Job(error) => error,
            ShuffleError::Plan(error) => Self::program(error),
        }
    }
}
