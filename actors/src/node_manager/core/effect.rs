//! What a NodeManager wants done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::ids::{Attempt, CopyId, JobId, NodeId, SetId, TaskId};
use crate::node_manager::event::NodeTimer;
use crate::node_manager::executor::Flags;
use crate::node_manager::sets::Arguments;
use crate::node_manager::state::Key;
use crate::node_manager::why::Trail;
use crate::protocol::node_manager::AttemptState;
use crate::protocol::owner::OwnerMsg;
use crate::registry::Function;
use crate::shell::Reply;
use crate::task::{Consumed, Output, Parts, TaskFailure, TaskFigures, TaskSpec};

/// What a NodeManager wants done, in this order. `P` is what an attempt needs to start.
pub(crate) enum NodeEffect<P> {
    /// Say this to the Owner of a job.
    Tell { job: JobId, owner: NodeId, message: OwnerMsg },
    /// Say to an Owner that an attempt has [completed](super::NodeCore::completed): with these values, and with the bytes of those of
    /// these outputs that are here as one part.
    TellCompleted { key: Key, owner: NodeId, completed: Completed, small: Vec<(u32, CopyId)> },
    /// Say to an Owner that an attempt has [failed](super::NodeCore::failed), which had read these copies here: which of them are gone
    /// is part of it (`losses.rs`).
    TellFailed { key: Key, owner: NodeId, failure: TaskFailure, figures: Box<TaskFigures>, read: Vec<CopyId> },
    /// Say to an Owner that a set is not known here that an attempt reads.
    AskForSet { key: Key, owner: NodeId, set: SetId },
    /// Say to an Owner [what is here](super::NodeCore::inventory) of its job.
    TellInventory { job: JobId, owner: NodeId },
    /// Answer what these attempts [do](super::NodeCore::doing).
    TellDoing { job: JobId, attempts: Vec<(TaskId, Attempt)>, reply: Reply<Vec<AttemptState>> },
    /// Tell the Scheduler of which jobs [something is here](super::NodeCore::holds).
    TellHolds,
    /// Take figures of the node, and tell this NodeManager of them at once.
    TakeFigures(Listeners),
    /// The Owner of a job is on this node from now on: what was known of how to reach it is void.
    Follow { job: JobId, owner: NodeId },
    /// Nothing is said to the Owner of a job any more.
    Forget(JobId),
    /// Get the arguments of an attempt ready.
    Stage { key: Key, spec: Arc<TaskSpec>, function: &'static Function, arguments: Arguments, trail: Trail },
    /// An attempt cannot be staged. Comes back as [`Staged`](super::super::NodeEvent::Staged) after the events that wait: what they say may let the next ones be.
    CannotStage { key: Key, failure: TaskFailure },
    /// Give an attempt to the executors.
    Hand { owner: NodeId, spec: Arc<TaskSpec>, function: &'static Function, prepared: P, flags: Arc<Flags> },
    /// Delete copies.
    Delete(Vec<CopyId>),
    /// Delete all copies of a job.
    DeleteJob(JobId),
    /// Release parts of copies.
    Release { copies: Vec<CopyId>, parts: Parts },
    /// These nodes may be out of reach: probe each before anything is fetched from it.
    SuspectUnreachable(Vec<NodeId>),
    /// Say when so much time has passed.
    After(Duration, NodeTimer),
    /// What is known of attempts and sets takes so many bytes.
    Count(u64),
    /// Somebody was not obeyed who is over, and may not know it.
    Stale,
}

/// What came of an attempt that completed.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) outputs: Vec<Output>,
    pub(crate) consumed: Vec<Consumed>,
    pub(crate) figures: Box<TaskFigures>,
    /// The bytes of small outputs, by index.
    pub(crate) values: Vec<(u32, Bytes)>,
}

/// Who hears of the figures of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listeners {
    /// The Owners of all jobs that want to: of what has grown since.
    Watching,
    /// The Owner of this job, of everything; `last`: it hears of no others.
    One { job: JobId, owner: NodeId, last: bool },
}
