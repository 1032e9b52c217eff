//! Merger: knows which pushed parts are on its node, and decides when they are folded. One per node.
//!
//! | message  | from        | answer                    | if repeated            | if lost                                     |
//! |----------|-------------|---------------------------|------------------------|---------------------------------------------|
//! | `Open`   | Owner       | –                         | ignored                | its pushes are ignored                      |
//! | `Push`   | Owner       | `FoldDue`, with others    | ignored by copy        | the program folds at its end, merges fetch  |
//! | `EndJob` | Owner       | –                         | ignored                | repeated by the session                     |

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::protocol::copies::LocatedObjects;

use crate::shell::Wire;
use crate::task::Parts;

/// The name under which the Merger of a node is registered.
pub const ACTOR: &str = "merger";

/// Everything that others can tell a Merger.
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
        objects: LocatedObjects,
    },
    /// The job is over: all copies of it go.
    EndJob {
        /// The job.
        job: JobId,
    },
}

impl Wire for MergerMsg {
    const PROTOCOL: &'static str = "merger";
}
