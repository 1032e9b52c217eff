//! What happens to a job, as the journal has it.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, JobId, NodeId};
use crate::protocol::job::{Carried, JobRecord, JobState, Outcome, Stop};

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Transition {
    /// A Scheduler begins: those of lower epochs append nothing from here on.
    Begins(Epoch),
    /// A job is accepted; or it was, and this stands for all that is known of it, so that what stands before can go.
    Accepted(Box<JobRecord>, Carried),
    /// Its program begins on this node.
    Started {
        /// The job.
        job: JobId,
        /// The node.
        host: NodeId,
        /// Milliseconds since 1970.
        at_unix_ms: u64,
    },
    /// It makes its output visible.
    Committing(JobId),
    /// It is to end.
    Stopped(JobId, Stop),
    /// It has ended.
    Ended {
        /// The job.
        job: JobId,
        /// As what.
        state: JobState,
        /// How.
        outcome: Outcome,
        /// Milliseconds since 1970.
        at_unix_ms: u64,
    },
}

impl Transition {
    /// The job that it is of.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Begins(_) => None,
            Self::Accepted(record, _) => Some(record.job),
            Self::Committing(job) | Self::Stopped(job, _) | Self::Started { job, .. } | Self::Ended { job, .. } => {
                Some(*job)
            }
        }
    }

    /// About how many bytes it takes in the journal.
    pub fn bytes(&self) -> usize {
        const PLAIN: usize = 256;
        match self {
            Self::Accepted(record, carried) => {
                let words = [&record.name, &record.who, &record.key].into_iter().flatten().map(String::len);
                let bodies = match carried {
                    Carried::Here(bodies) => bodies.bytes(),
                    Carried::Pieces(_) | Carried::Nowhere => 0,
                };
                4 * PLAIN + words.sum::<usize>() + bodies
            }
            Self::Ended { outcome, .. } => {
                2 * PLAIN + outcome.result.as_ref().err().map_or(0, |reason| reason.message.len())
            }
            _ => PLAIN,
        }
    }
}
