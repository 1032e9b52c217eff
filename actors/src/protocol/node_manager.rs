//! NodeManager: decides which task starts next on its node, and gets arguments ready. One per node.
//!
//! | message     | from         | answer                                | if repeated            | if lost                       |
//! |-------------|--------------|---------------------------------------|------------------------|-------------------------------|
//! | `Run`       | Owner        | `Completed` or `Failed`, ...          | ignored by attempt     | repeated by the session       |
//! | `DefineSet` | Owner        | –                                     | same content           | repeated by the session       |
//! | `Recall`    | Owner        | `Recalled` for those not started      | ignored                | the task runs here            |
//! | `Cancel`    | Owner        | `Completed` where it was done anyway  | ignored                | result is dropped by attempt  |
//! | `Free`      | Owner        | –                                     | ignored: no name is given twice | freed with the job   |
//! | `FreeParts` | Owner        | –                                     | ignored                | freed with the object         |
//! | `EndJob`    | Owner        | –                                     | ignored                | repeated by the session       |
//! | `Watch`     | Owner        | `NodeFigures` now and then regularly  | replaces               | repeated by the session       |
//! | `TakeInventory` | Owner    | `Inventory`                           | same answer, or less   | repeated by the session       |
//! | `SuspectUnreachable` | Owner | –                                     | lasts longer           | found out by a fetch          |
//! | `Doing`     | Owner        | `AttemptState`s, in that order        | same question again    | asked again after the deadline |
//!
//! From the Owner of a run after which another has begun, `Run` and `TakeInventory` are turned away with `TakenOver`, and `DefineSet` and `FreeParts`
//! are dropped. `Free` is done, whoever says it: it names one copy, and is said only when the log of the job has who read it last.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, JobId, NodeId, SetId, TaskId};
use crate::protocol::copies::{CopyIds, LocatedObjects};
use crate::shell::{Reply, Wire};
use crate::task::{Parts, TaskSpec};

/// Members of one `DefineSet`: 16 bytes and a node index each, far below the message limit.
pub const SET_MEMBERS_PER_MESSAGE: usize = 4096;

/// Copies of one `Inventory`: 16 bytes each, and up to some 45 for what it is.
pub(crate) const INVENTORY_PER_MESSAGE: usize = 2048;

/// Everything that others can tell a NodeManager.
#[derive(Debug, Serialize, Deserialize)]
pub enum NodeMsg {
    /// Run an attempt of a task.
    Run {
        /// The node of the job's Owner.
        owner: NodeId,
        /// What to run.
        spec: Arc<TaskSpec>,
    },
    /// The next members of a set; sent once per node and version of the set, before the first task that uses that.
    DefineSet {
        /// The job.
        job: JobId,
        /// Which run of it says so.
        run: u32,
        /// The set.
        set: SetId,
        /// Which copies of its members are meant: a later version, or one of a later run, replaces an earlier one.
        version: u32,
        /// How many members come before these.
        start: u32,
        /// How many members there are in all.
        total: u32,
        /// Members in order.
        members: LocatedObjects,
    },
    /// Give back attempts that have not started.
    Recall {
        /// The job.
        job: JobId,
        /// Task and attempt of each.
        tasks: Vec<(TaskId, Attempt)>,
    },
    /// Stop an attempt, started or not.
    Cancel {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
    },
    /// Nobody needs these copies any more.
    Free {
        /// The job.
        job: JobId,
        /// The copies.
        copies: CopyIds,
    },
    /// Nobody needs these parts of the copies that a version of a set means. Who knows another one keeps them: they go with their copies.
    FreeParts {
        /// The job.
        job: JobId,
        /// Which run of it says so.
        run: u32,
        /// The set.
        set: SetId,
        /// Which version.
        version: u32,
        /// Which parts of each member.
        parts: Parts,
    },
    /// The job is over: everything of it can go.
    EndJob {
        /// The job.
        job: JobId,
    },
    /// Send this node's figures to the job's Owner, now and from time to time.
    Watch {
        /// The job.
        job: JobId,
        /// The node of the job's Owner.
        owner: NodeId,
        /// How often, milliseconds; 0: every half second.
        #[serde(default)]
        sample_ms: u64,
        /// Whose job it is.
        tenant: Arc<str>,
    },
    /// Say which copies of the job are here: the node was away.
    TakeInventory {
        /// The job.
        job: JobId,
        /// The node of the job's Owner.
        owner: NodeId,
        /// Which run of the job it is, from 0; Owners of earlier ones are told that they are over.
        #[serde(default)]
        run: u32,
    },
    /// One of these could not fetch from the other: probe each before anything is fetched from it.
    SuspectUnreachable {
        /// The job.
        job: JobId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// What do these attempts do, or wait for? Asked when the job stands still, or somebody wants to know.
    Doing {
        /// The job.
        job: JobId,
        /// Task and attempt of each; what is over [`ATTEMPTS_ASKED_MAX`] is not answered.
        attempts: Vec<(TaskId, Attempt)>,
        /// One state for each, in order.
        reply: Reply<Vec<AttemptState>>,
    },
}

impl Wire for NodeMsg {
    const PROTOCOL: &'static str = "node";

    fn about(&self) -> Option<(JobId, TaskId, Attempt)> {
        match self {
            Self::Run { spec, .. } => Some((spec.job, spec.id, spec.attempt)),
            _ => None,
        }
    }
}

/// Most attempts in one question: their answer stays far below the message limit.
pub const ATTEMPTS_ASKED_MAX: usize = 64;
/// What an attempt does, or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    /// The node does not have it: it was not told yet, or has just ended.
    NotHere,
    /// Others are before it.
    Queued {
        /// How many.
        ahead: u64,
    },
    /// Its arguments are being made ready, and nothing in particular is waited for.
    Staging,
    /// The Merger is asked for what was pushed here.
    Pushed,
    /// Other nodes are asked for sizes and checksums of its arguments.
    Asking {
        /// The first of them.
        from: Vec<NodeId>,
    },
    /// The store has no memory for its arguments, or loads them from disk.
    Memory {
        /// How many attempts on this node asked before it.
        ahead: u64,
        /// What arguments of tasks want there in all.
        wanted_bytes: u64,
        /// What the store has handed out.
        used_bytes: u64,
        /// What it may.
        budget_bytes: u64,
        /// Of what is handed out, what stands in for memory beside the store: of tasks, executor processes, tables.
        #[serde(default)]
        outside_bytes: u64,
        /// Of what is wanted, memory beside the store that this attempt needs.
        #[serde(default)]
        outside_wanted_bytes: u64,
    },
    /// Its arguments come from other nodes.
    Fetching {
        /// The first of them.
        from: Vec<NodeId>,
        /// How many bytes come from all of them; 0: not known.
        bytes: u64,
    },
    /// Its arguments are there; the executors, or the resources that it needs, are not.
    Ready {
        /// How many attempts are with the executors.
        handed: u64,
        /// How many executors there are.
        executors: u64,
    },
    /// It runs.
    Running,
    /// It runs, and was denied memory beside the store.
    Denied {
        /// How much it asked for the last time, beside what it has.
        bytes: u64,
        /// What it has.
        held_bytes: u64,
        /// How often it was denied.
        times: u64,
        /// How long ago the last time was, milliseconds.
        ago_ms: u64,
    },
    /// It runs in a process that has more memory than was declared for it.
    BeyondDeclared {
        /// The process.
        process: u32,
        /// What it has.
        used_bytes: u64,
        /// What was declared, or granted since.
        declared_bytes: u64,
    },
    /// It was cancelled, and runs on until it looks.
    Cancelled,
}

/// An attempt, for who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptState {
    /// The task.
    pub task: TaskId,
    /// Which try.
    pub attempt: Attempt,
    /// What it does.
    pub doing: Doing,
    /// For how long, milliseconds.
    pub for_ms: u64,
}

/// The name under which the NodeManager of a node is registered.
pub const ACTOR: &str = "node";
