//! Owner: keeps a job's truth. One per job, on the node that hosts the job.
//!
//! | message       | from         | answer           | if repeated                        | if lost                             |
//! |---------------|--------------|------------------|------------------------------------|-------------------------------------|
//! | `Leases`      | Scheduler    | –                | the later replaces the earlier     | sent again at renewal               |
//! | `Completed`   | NodeManager  | –                | second one is checked, then freed  | repeated by the session             |
//! | `Yielded`     | NodeManager  | –                | ignored by index                   | repeated by the session             |
//! | `Failed`      | NodeManager  | –                | ignored by attempt                 | repeated by the session             |
//! | `Recalled`    | NodeManager  | –                | ignored by attempt                 | the task runs where it was          |
//! | `Rejected`    | Post         | –                | ignored by attempt                 | task timeout                        |
//! | `Inventory`   | NodeManager  | –                | nothing more is missing            | made again; freed with the job      |
//! | `SetUnknown`  | NodeManager  | `DefineSet`, before the next attempt there | told once more | the next attempt finds it out, too |
//! | `TakenOver`   | NodeManager, Scheduler | –      | ignored                            | the log refuses the next entry      |
//! | `NodeFigures` | NodeManager  | –                | the later replaces the earlier     | the next one comes soon             |
//! | `FoldDue`     | Merger       | –                | ignored by block                   | the program folds at its end        |
//! | `Why`         | client       | `Why`            | answered again                     | asked again after the deadline      |
//! | `Cancel`      | client       | –                | ignored                            | client asks again                   |
//!
//! What only its own process tells it is in `OwnerEvent` (`owner/event.rs`).
//!
//! What a Scheduler of an older epoch than that of the one that is followed says is dropped.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{NodeFigures, Received};
use crate::ids::{Attempt, Epoch, Incarnation, JobId, NodeId, SetId, TaskId};
use crate::protocol::copies::CopyIds;
use crate::protocol::scheduler::{Lease, Wait};

use crate::shell::{Reply, Wire};
use crate::task::{Consumed, Output, StillRunning, TaskFailure, TaskFigures};

/// Everything that others can tell an Owner.
#[derive(Debug, Serialize, Deserialize)]
pub enum OwnerMsg {
    /// The leases that the job has now, and why it has no more.
    Leases {
        /// The epoch of who says so; those of older ones are void.
        epoch: Epoch,
        /// Slots on nodes, all of them; `None`: those that it had.
        leases: Option<Vec<Lease>>,
        /// Why its demand is not met; `None`: it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Wait>,
    },
    /// An attempt succeeded.
    Completed {
        /// Who ran it.
        node: NodeId,
        /// Which incarnation of the node.
        incarnation: Incarnation,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Its outputs in order; for a stream all of them once more.
        outputs: Vec<Output>,
        /// What it says it has read.
        consumed: Vec<Consumed>,
        /// Time and bytes.
        figures: Box<TaskFigures>,
        /// The bytes of outputs that are small, by index: should their node be lost, they are there still.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        values: Vec<(u32, Bytes)>,
    },
    /// A streaming attempt sealed an output.
    Yielded {
        /// Who runs it.
        node: NodeId,
        /// Which incarnation of the node.
        incarnation: Incarnation,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Position in the stream, from 0.
        index: u32,
        /// The output.
        output: Output,
    },
    /// An attempt failed.
    Failed {
        /// Who ran it.
        node: NodeId,
        /// Which incarnation of the node.
        incarnation: Incarnation,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Why.
        failure: TaskFailure,
        /// Time and place, where it ran at all.
        #[serde(default)]
        figures: Option<Box<TaskFigures>>,
    },
    /// An attempt that had not started was given back.
    Recalled {
        /// Who had it.
        node: NodeId,
        /// Which incarnation of the node.
        incarnation: Incarnation,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
    },
    /// A node could not decode what it was told about this attempt.
    Rejected {
        /// The node.
        node: NodeId,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Why.
        reason: String,
    },
    /// What a node holds of this job; all of it, or as much as goes into one message.
    Inventory {
        /// The node.
        node: NodeId,
        /// Which incarnation of the node.
        incarnation: Incarnation,
        /// The copies that are sealed there, ...
        copies: CopyIds,
        /// ... for each, the number of the copy that an attempt made whose bytes it has; 0: it is no copy that an Owner asked for, ...
        makers: Vec<u32>,
        /// ... and what each is.
        outputs: Vec<Output>,
        /// Whether that was all.
        #[serde(default)]
        last: bool,
    },
    /// A node was to read a set of which it knows no such version, or a later one.
    SetUnknown {
        /// The node.
        node: NodeId,
        /// The set.
        set: SetId,
    },
    /// Another run of the job has begun, or has ended it: this Owner is over.
    TakenOver {
        /// Which one; older ones than the receiver's mean nothing. The largest number where the job is over.
        run: u32,
    },
    /// Figures of a node that works for this job.
    NodeFigures {
        /// The node.
        node: NodeId,
        /// The figures, counted since its process started.
        figures: Box<NodeFigures>,
        /// What it has received so far from the nodes of which that has grown.
        #[serde(default)]
        received: Vec<Received>,
        /// Whether they are the answer to the end of the job.
        #[serde(default)]
        last: bool,
        /// The attempts of this job that it has been running for a while; those that were cancelled and run on as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        running: Vec<StillRunning>,
    },
    /// Blocks that were pushed to a node are to be folded there now.
    FoldDue {
        /// The node.
        node: NodeId,
        /// The job's lane.
        lane: u32,
        /// The blocks.
        blocks: CopyIds,
        /// Bytes of them that were copied there.
        bytes: u64,
        /// Whether they are fewer than wanted, or not all there, because memory is short.
        tight: bool,
    },
    /// What does the job wait for, and since when?
    Why {
        /// Whether its nodes are asked, too, which takes some seconds where one is silent.
        ask: bool,
        /// The answer.
        reply: Reply<Why>,
    },
    /// The client wants the job to end.
    Cancel,
}

impl Wire for OwnerMsg {
    const PROTOCOL: &'static str = "owner";

    fn rejected(task: TaskId, attempt: Attempt, node: NodeId, reason: String) -> Option<Self> {
        Some(Self::Rejected { node, task, attempt, reason })
    }
}

/// How it stands with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Something moved in the last seconds.
    Running,
    /// Nothing has moved for some seconds.
    Quiet,
    /// Nothing has moved for a minute or more.
    Stalled,
    /// Everything that was asked for is there, or nothing was: the program does something of its own. No stall.
    Program,
    /// It is over, but for the last words of some nodes.
    Ending,
}

/// What a job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub job: JobId,
    /// How it stands with it.
    pub standing: Standing,
    /// For how long nothing has moved, milliseconds.
    pub still_ms: u64,
    /// What has moved since it began.
    pub moved: Moved,
    /// Chains from the job to a cause, each link the reason of the one before it.
    pub chains: Vec<Vec<String>>,
    /// How much of its quota its log has; `None`: it has no log.
    #[serde(default)]
    pub log: Option<LogUse>,
}

/// How much of its quota the log of a job has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogUse {
    /// Bytes that it has in the stream of logs, about; those that it had when it was cut.
    pub bytes: u64,
    /// Bytes that it may have.
    pub quota_bytes: u64,
    /// Since when it is cut, and why, in words: the job cannot be taken up again.
    pub cut: Option<String>,
}

impl Why {
    /// The chains in one line.
    pub fn line(&self) -> String {
        let chains: Vec<_> = self.chains.iter().map(|chain| chain.join(" <- ")).collect();
        chains.join("; ")
    }
}

/// What has moved since the job began; each number rises only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// Tasks that completed.
    pub finished: u64,
    /// Outputs of streams that were sealed.
    pub outputs: u64,
    /// Attempts that were seen to run for a second or more.
    pub begun: u64,
    /// Bytes that the job's nodes received, spilled, loaded, read and wrote, for this job and others.
    pub bytes: u64,
}

pub use crate::shell::actor_of_job as actor_name;
