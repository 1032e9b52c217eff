//! NodeManager: decides which task starts next on its node, and gets arguments ready. One per node.
//!
//! | message     | from         | answer                                | if repeated            | if lost                       |
//! |-------------|--------------|---------------------------------------|------------------------|-------------------------------|
//! | `Run`       | Owner        | `Completed` or `Failed`, ...          | ignored by attempt     | repeated by the session       |
//! | `DefineSet` | Owner        | –                                     | same content           | repeated by the session       |
//! | `Recall`    | Owner        | `Recalled` for those not started      | ignored                | the task runs here            |
//! | `Cancel`    | Owner        | `Completed` where it was done anyway  | ignored                | result is dropped by attempt  |
//! | `Free`      | Owner        | –                                     | ignored                | freed with the job            |
//! | `FreeParts` | Owner        | –                                     | ignored                | freed with the object         |
//! | `EndJob`    | Owner        | –                                     | ignored                | repeated by the session       |
//! | `Watch`     | Owner        | `NodeFigures` now and then regularly  | replaces               | repeated by the session       |
//! | `TakeStock` | Owner        | `Stock`                               | same answer, or less   | repeated by the session       |
//! | `Doubt`     | Owner        | –                                     | lasts longer           | found out by a fetch          |
//! | `Doing`     | Owner        | `AttemptState`s, in that order        | same question again    | asked again after the deadline |

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, JobId, NodeId, SetId, TaskId};
use crate::shell::{Reply, Wire};
use crate::task::{Parts, TaskSpec};

/// A list of object ids as raw bytes: 16 each, big-endian. As short on the wire as it can be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectIds(#[serde(with = "serde_bytes")] Vec<u8>);

impl FromIterator<crate::ids::ObjectId> for ObjectIds {
    fn from_iter<I: IntoIterator<Item = crate::ids::ObjectId>>(ids: I) -> Self {
        Self(ids.into_iter().flat_map(|id| id.0.to_be_bytes()).collect())
    }
}

impl ObjectIds {
    /// The ids in order; a torn last one is left out.
    pub fn iter(&self) -> impl Iterator<Item = crate::ids::ObjectId> + '_ {
        self.0.as_chunks::<16>().0.iter().map(|bytes| crate::ids::ObjectId(u128::from_be_bytes(*bytes)))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len() / 16
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Members of one `DefineSet`: 16 bytes and a node index each, far below the message limit.
pub const SET_MEMBERS_PER_MESSAGE: usize = 4096;

/// Objects of one `Stock`: 16 bytes each, and up to some 40 for what it is.
pub(crate) const STOCK_PER_MESSAGE: usize = 2048;

/// In `at` of [`NodeMsg::DefineSet`]: the member has no bytes.
pub const NO_BYTES: u16 = u16::MAX;
/// In `at` of [`NodeMsg::DefineSet`]: the member is lost, and is being made again.
pub const LOST: u16 = u16::MAX - 1;

/// Everything that others can tell a NodeManager.
#[derive(Debug, Serialize, Deserialize)]
pub enum NodeMsg {
    /// Run an attempt of a task.
    Run {
        /// The node of the job's Owner.
        owner: NodeId,
        /// What to run.
        spec: TaskSpec,
    },
    /// The next members of a set; sent once per node and set, before the first task that uses the set.
    DefineSet {
        /// The job.
        job: JobId,
        /// Which run of it says so.
        run: u32,
        /// The set.
        set: SetId,
        /// How many members come before these.
        start: u32,
        /// How many members there are in all.
        total: u32,
        /// Members in order.
        members: ObjectIds,
        /// The nodes that hold them ...
        nodes: Vec<NodeId>,
        /// ... and which of these nodes holds each, [`NO_BYTES`] or [`LOST`].
        at: Vec<u16>,
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
    /// Nobody needs these objects any more.
    Free {
        /// The job.
        job: JobId,
        /// Which run of it says so.
        run: u32,
        /// The objects.
        objects: ObjectIds,
    },
    /// Nobody needs these parts of the members of a set any more.
    FreeParts {
        /// The job.
        job: JobId,
        /// Which run of it says so.
        run: u32,
        /// The set.
        set: SetId,
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
    },
    /// Say which objects of the job are here: the node was away.
    TakeStock {
        /// The job.
        job: JobId,
        /// The node of the job's Owner.
        owner: NodeId,
        /// Which run of the job it is, from 0; Owners of earlier ones are told that they are over.
        #[serde(default)]
        run: u32,
    },
    /// One of these could not fetch from the other: see whether they answer before anything is fetched from them.
    Doubt {
        /// The job.
        job: JobId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// What do these attempts do, or wait for? Asked when the job stands still, or somebody wants to know.
    Doing {
        /// The job.
        job: JobId,
        /// Task and attempt of each; what is over [`ATTEMPTS_ASKED_MAX`](super::ATTEMPTS_ASKED_MAX) is not answered.
        attempts: Vec<(TaskId, Attempt)>,
        /// One state for each, in order.
        reply: Reply<Vec<AttemptState>>,
    },
}

impl Wire for NodeMsg {
    const PROTOCOL: &'static str = "node";

    fn about(&self) -> Option<(JobId, TaskId)> {
        match self {
            Self::Run { spec, .. } => Some((spec.job, spec.id)),
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
