//! Results: keeps what outlives its job on this node. One per node.
//!
//! | message | from                     | answer                | if repeated                  | if lost                                      |
//! |---------|--------------------------|-----------------------|------------------------------|----------------------------------------------|
//! | `Keep`  | the keeper of a job, a node that leaves | `KeptMember`, or why not | the same answer again: what is being kept is waited for, what was kept is compared | asked again after its deadline, here or elsewhere |
//! | `Drop`  | the keeper of a job, who was asked to delete | –      | ignored                      | the sweep finds that no record names it, and drops it |

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CopyId, JobId, NodeId};
use crate::shell::{Reply, Wire};

/// The name under which what keeps the results of a node is registered.
pub const ACTOR: &str = "results";

/// Most files of a result.
pub const FILES_MAX: usize = 64;
/// Most members of all files of a result: its record is one message.
pub const MEMBERS_MAX: usize = 1024;
/// Longest name of a file, bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// What became of what a program wanted to keep, for the end of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKept {
    /// It is there, under the id of the job.
    Result {
        /// How many files.
        files: u64,
        /// How many bytes in all of them.
        bytes: u64,
        /// Until when, milliseconds since 1970 by the clock of the node that hosted the job.
        until_unix_ms: u64,
    },
    /// There is no result.
    Nothing {
        /// Why, for people.
        why: String,
    },
}

/// A member of a result that a node has kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMember {
    /// How many bytes.
    pub bytes: u64,
    /// The xxh3-128 of all of them.
    #[serde(with = "crate::ids::as_bytes")]
    pub hash: u128,
}

/// Why a node has not kept a member of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotKept {
    /// The copy is not there, or not all of it, or its bytes are not what they were.
    Gone(String),
    /// Its disks do not take it.
    NoRoom(String),
}

/// Everything that others can tell the results of a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum ResultsMsg {
    /// Keep this copy beyond its job.
    Keep {
        /// For whom.
        tenant: Arc<str>,
        /// The job whose result it belongs to.
        job: JobId,
        /// Under which number of the result.
        kept: u64,
        /// The copy, ...
        #[serde(with = "crate::ids::copy_as_bytes")]
        copy: CopyId,
        /// ... which is on this node, or is fetched from it.
        at: NodeId,
        /// Whether it was kept.
        reply: Reply<Result<KeptMember, NotKept>>,
    },
    /// Nobody needs the result of this job any more.
    Drop {
        /// The job.
        job: JobId,
    },
}

impl Wire for ResultsMsg {
    const PROTOCOL: &'static str = "results";
}
