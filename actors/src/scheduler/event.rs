//! What happens to a Scheduler: what others say, and what only its own process can say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Epoch, Incarnation, JobId, NodeId};
use crate::jobs::book::Found;
use crate::jobs::journal::{Journal, Place};
use crate::protocol::job::{Carried, Outcome};
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
    /// The journal of jobs is open, and this is what stands in it; `None`: the bus has none.
    JournalOpened(Epoch, Option<Box<OpenedJournal>>),
    /// What this Scheduler noted is durable; or something else that it wanted of the journal is done.
    Noted(Epoch, Noted),
    /// Another Scheduler writes the journal.
    Fenced(Epoch),
    /// What people watch is lost with the server, and begins anew.
    ViewLost(Epoch),
    /// How a job ended, as its log says; `None`: it says nothing.
    LookedForEnd(JobId, Option<Box<Outcome>>),
    /// Look of which jobs there is what they were to be accepted with.
    Sweep,
    /// Of these there is.
    Pieces(BTreeSet<JobId>),
    /// Time has passed.
    Tick,
}

/// A journal to which a Scheduler appends from now on.
#[derive(Clone, Debug)]
pub struct OpenedJournal {
    pub(crate) journal: Journal,
    pub(crate) place: Place,
    pub(crate) found: Found,
}

impl PartialEq for OpenedJournal {
    fn eq(&self, other: &Self) -> bool {
        (self.place, &self.found) == (other.place, &other.found)
    }
}

/// What of the journal is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Noted {
    /// Appended, as the record with this number.
    Appended(u64),
    /// The streams were lost with the server, and made anew: nothing of what was noted is there.
    Lost,
    /// Jobs are in the history.
    Archived(Vec<JobId>),
    /// What jobs were accepted with has been read.
    Read(Vec<(JobId, Carried)>),
}

impl From<SchedulerMsg> for SchedulerEvent {
    fn from(message: SchedulerMsg) -> Self {
        Self::Wire(message)
    }
}
