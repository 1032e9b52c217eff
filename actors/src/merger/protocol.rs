//! Merger: knows which pushed parts are on its node, and decides when they are folded. One per node.
//!
//! | message  | from        | answer                    | if repeated            | if lost                                     |
//! |----------|-------------|---------------------------|------------------------|---------------------------------------------|
//! | `Open`   | Owner       | –                         | ignored                | its pushes are ignored                      |
//! | `Push`   | Owner       | `FoldDue`, with others    | ignored by object      | the program folds at its end, merges fetch  |
//! | `EndJob` | Owner       | –                         | ignored                | repeated by the session                     |
//! | `Look`   | NodeManager | which copies are here     | –                      | never leaves the process                    |
//! | `Take`   | NodeManager | the copies                | nothing is there       | never leaves the process                    |
//! | `News`   | itself      | –                         | ignored by its number  | never leaves the process                    |
//! | `Tight`  | the store   | –                         | copies may go again    | never leaves the process                    |

use std::fmt;

use exobus_store::{Block, PartMeta};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::copying::Copied;
use crate::ids::{JobId, NodeId, ObjectId};
use crate::node_manager::ObjectIds;
use crate::shell::Wire;
use crate::task::Parts;

/// The name under which the Merger of a node is registered.
pub const ACTOR: &str = "merger";

/// Everything a Merger can be told.
#[derive(Debug, Serialize, Deserialize)]
pub enum MergerMsg {
    /// Parts are going to be pushed here.
    Open {
        /// The job.
        job: JobId,
        /// The node of the job's Owner.
        owner: NodeId,
        /// Which of the job's lanes.
        lane: u32,
        /// What is wanted of each object, in the pieces in which tasks will ask for it.
        ranges: Vec<Parts>,
        /// How many blocks make a fold; at least 1.
        fold_at: u32,
    },
    /// These objects exist, and what the lane wants of them will be merged here.
    Push {
        /// The job.
        job: JobId,
        /// The lane.
        lane: u32,
        /// The objects in order.
        objects: ObjectIds,
        /// The nodes that hold them ...
        nodes: Vec<NodeId>,
        /// ... and which of these nodes holds each; `u16::MAX`: it has no bytes.
        at: Vec<u16>,
    },
    /// The job is over: all copies of it go.
    EndJob {
        /// The job.
        job: JobId,
    },
    /// Which of these are here? Answered when none of them is on its way.
    #[serde(skip)]
    Look(Look),
    /// A task that has all its other memory takes these.
    #[serde(skip)]
    Take(Take),
    /// How work number `.0` goes on.
    #[serde(skip)]
    News(u64, News),
    /// Arguments find no memory.
    #[serde(skip)]
    Tight,
}

impl Wire for MergerMsg {
    const PROTOCOL: &'static str = "merger";
}

/// Parts of objects, as a task will read them.
pub type Pieces = Vec<(ObjectId, Parts)>;

/// See [`MergerMsg::Look`].
#[derive(Debug)]
pub struct Look {
    /// The job.
    pub job: JobId,
    /// What is wanted.
    pub pieces: Pieces,
    /// Whether each is here.
    pub answer: oneshot::Sender<Vec<bool>>,
}

/// See [`MergerMsg::Take`].
#[derive(Debug)]
pub struct Take {
    /// The job.
    pub job: JobId,
    /// What is wanted.
    pub pieces: Pieces,
    /// Each of them, `None` where it is not here.
    pub answer: oneshot::Sender<Vec<Option<Block>>>,
}

/// What happened to a copy that is being made.
pub enum News {
    /// The directories of its pieces; `None`: its holder cannot be asked, or does not have it.
    Sized(Option<Vec<Vec<PartMeta>>>),
    /// The store has no memory for it now.
    Short,
    /// The store has granted its memory.
    Granted,
    /// It is here.
    Copied(Vec<Copied>),
    /// It will not come.
    Failed,
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sized(_) => "Sized",
            Self::Short => "Short",
            Self::Granted => "Granted",
            Self::Copied(_) => "Copied",
            Self::Failed => "Failed",
        })
    }
}
