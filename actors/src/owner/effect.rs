//! What comes of what happens to an Owner: its shell, or the simulation, does it in this order and decides nothing.
//!
//! Questions and reads are begun in this order, and go on beside what comes after them. The program is answered at once, before effects are
//! done: it lives on the arbiter of its Owner, and goes on after them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::event::{EventKind, NodeFigures};
use crate::ids::{Attempt, CopyId, CopyNumber, NodeId, RowHash, TaskId};
use crate::joblog::Entry;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::Why;
use crate::protocol::scheduler::SchedulerMsg;
use crate::shell::Reply;
use crate::task::{JobError, Parts, TaskSpec};

/// How an Owner ended.
#[derive(Debug)]
pub(crate) enum JobOutcome {
    /// With its job.
    Over { result: Result<Vec<u8>, JobError>, nodes: BTreeMap<NodeId, NodeFigures>, owner_bytes_peak: u64 },
    /// Without it: the job goes on elsewhere.
    Abandoned { reason: String },
}

/// What an Owner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerTimer {
    /// The next second.
    Tick,
    /// The end of the time in which nodes may say what they hold of a job that is taken up again.
    Settle,
    /// The end of the time in which nodes may say their last figures.
    Close,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum OwnerEffect {
    /// Hand an attempt to a node. Where that cannot be sent it comes back as [`OwnerEvent::Unsent`](super::OwnerEvent::Unsent).
    Run { node: NodeId, spec: Arc<TaskSpec> },
    /// Tell a node that the job is over. Where that cannot be sent it comes back as
    /// [`OwnerEvent::EndUnsent`](super::OwnerEvent::EndUnsent).
    EndJob { node: NodeId },
    /// Say something to a node. Where it cannot be sent, the node is dead or full: Membership says which.
    Send { node: NodeId, message: NodeMsg },
    /// Give the Merger of a node advice, which may be lost.
    Advise { node: NodeId, message: MergerMsg },
    /// Say something to the Scheduler, if there is one.
    SendScheduler(SchedulerMsg),
    /// Ask the Scheduler which nodes there are. Comes back as [`OwnerEvent::Nodes`](super::OwnerEvent::Nodes), without any where nobody
    /// answers in time.
    AskNodes { deadline: Duration },
    /// Ask a node what these attempts do. Comes back as [`OwnerEvent::Doing`](super::OwnerEvent::Doing), with a reason where it does
    /// not answer in time.
    AskDoing { question: u64, node: NodeId, attempts: Vec<(TaskId, Attempt)>, deadline: Duration },
    /// Answer who wants to know what the job waits for.
    Answer { reply: Reply<Why>, why: Why },
    /// Come back as [`OwnerEvent::Timer`](super::OwnerEvent::Timer) after so long.
    After(Duration, OwnerTimer),
    /// Put a copy into the Owner's own store. Comes back as [`OwnerEvent::NotPut`](super::OwnerEvent::NotPut) where that fails.
    Put { copy: CopyId, maker: CopyNumber, bytes: Bytes, rows: u64, row_hash: RowHash },
    /// Read parts of a copy, from another node or (`None`) from the Owner's own store. Comes back as
    /// [`OwnerEvent::Read`](super::OwnerEvent::Read).
    Read { read: u64, copy: CopyId, parts: Parts, from: Option<NodeId> },
    /// Delete everything of the job in the Owner's own store.
    DeleteAll,
    /// Look what this node has counted. Comes back as [`OwnerEvent::Figures`](super::OwnerEvent::Figures).
    LookAtFigures,
    /// Note something in the log of the job.
    Append(Entry),
    /// Look whether the log of the job is there still.
    LookAtLog,
    /// Note in the log no more.
    EndLog,
    /// The program may begin.
    Settled,
    /// Say how much memory the job takes in this process.
    Takes(u64),
    /// Count a message of a Scheduler that is over.
    CountStale,
    /// Tell people something, about something at a node.
    Event { at: NodeId, kind: Box<EventKind> },
    /// The Owner ends: nothing comes after this.
    End(JobOutcome),
}
