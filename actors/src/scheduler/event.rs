//! What happens to a Scheduler: what others say, and what only its own process can say.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Epoch, Incarnation, JobId, NodeId};
use crate::protocol::scheduler::SchedulerMsg;

/// A job that is not over: which, whose, and the functions that its host must have.
pub type UnfinishedJob = (JobId, Arc<str>, Vec<Arc<str>>);

/// What is in a Scheduler's mailbox.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerEvent {
    /// Somebody said this, in this process or another one.
    Wire(SchedulerMsg),
    /// An incarnation of a node is over, as Membership of this node thinks: said again until it is so. Later incarnations are not
    /// concerned.
    NodeDown {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// For people: "silent for 3 s".
        reason: String,
    },
    /// Act as the Scheduler of this epoch; or go on, where it is known.
    Elected {
        /// Which epoch.
        epoch: Epoch,
        /// When to stop by itself, on the node's clock.
        until: Duration,
        /// Whether there was another one before.
        succeeds: bool,
    },
    /// Act no longer.
    StepDown,
    /// Nodes and Owners had their time.
    Gathered,
    /// Look which jobs are not over.
    Look,
    /// These are not over. `None`: that cannot be known now.
    Unfinished(Option<Vec<UnfinishedJob>>),
    /// Time has passed.
    Tick,
}

impl From<SchedulerMsg> for SchedulerEvent {
    fn from(message: SchedulerMsg) -> Self {
        Self::Wire(message)
    }
}
