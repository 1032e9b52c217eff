//! Host: starts jobs on its node. One per node. Client: hears of its jobs.
//!
//! | message  | from   | answer                                         | if repeated           | if lost                  |
//! |----------|--------|------------------------------------------------|-----------------------|--------------------------|
//! | `Start`  | client | `Events` while it runs, `Finished` at the end  | one job, told once    | repeated by the session  |
//! | `Resume` | Scheduler | –                                           | ignored by job        | said again after a while |
//! | `Cancel` | client | `Finished` with `Cancelled`                    | ignored               | repeated by the session  |

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::event::{Event, NodeFigures};
use crate::ids::{JobId, NodeId};
use crate::protocol::results::JobKept;
use crate::shell::{SaidBy, Wire};
use crate::task::JobError;

/// The name under which the Host of a node is registered.
pub const ACTOR: &str = "host";

/// A job as it is submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its id, made by the client, so that asking twice is one job.
    pub job: JobId,
    /// For whom it runs.
    pub tenant: Arc<str>,
    /// Name and version of its program, "sort@1".
    pub program: String,
    /// Parameters of the program, MessagePack.
    pub params: Bytes,
    /// How often the client wants the figures of nodes, milliseconds; 0: every half second.
    #[serde(default)]
    pub sample_ms: u64,
}

impl JobSpec {
    /// A job that runs the registered program `program`, "sum@1", with these parameters.
    ///
    /// # Errors
    /// The parameters cannot be encoded.
    pub fn of(job: JobId, program: &str, params: &impl Serialize) -> Result<Self, JobError> {
        let params = rmp_serde::to_vec_named(params).map_err(JobError::program)?.into();
        Ok(Self { job, tenant: "default".into(), program: program.to_owned(), params, sample_ms: 0 })
    }
}

/// How a job ended, for its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// What the program returned, MessagePack, or why there is nothing.
    pub result: Result<Bytes, JobError>,
    /// The last figures of each node that worked for it; counters count since the job came to the node.
    pub nodes: BTreeMap<NodeId, NodeFigures>,
    /// The most that the Owner's tables took, bytes.
    pub owner_bytes: u64,
    /// Control messages that the processes of these nodes handed over while they worked for the job; where several jobs
    /// run, those of the others are among them.
    pub control_messages: u64,
    /// What became of what the program wanted to keep; `None`: it kept nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<JobKept>,
}

/// Everything that others can tell a Host.
#[derive(Debug, Serialize, Deserialize)]
pub enum HostMsg {
    /// Run a job, or go on telling of it.
    Start {
        /// What to run.
        spec: JobSpec,
        /// Whom to tell.
        client: NodeId,
    },
    /// Run a job that was accepted before, as its log has it: the node that hosted it is gone.
    Resume {
        /// The job.
        job: JobId,
    },
    /// End a job.
    Cancel {
        /// The job.
        job: JobId,
    },
}

impl JobEnd {
    /// What the program returned.
    ///
    /// # Errors
    /// The job's; the program returns another type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, JobError> {
        crate::task::decode(self.result.as_ref().map_err(Clone::clone)?)
    }

    pub(crate) fn failed(error: JobError) -> Self {
        Self::of(Err(error))
    }

    /// Of a job of which nothing else is known.
    pub(crate) fn of(result: Result<Bytes, JobError>) -> Self {
        Self { result, nodes: BTreeMap::new(), owner_bytes: 0, control_messages: 0, kept: None }
    }
}

impl Wire for HostMsg {
    const PROTOCOL: &'static str = "host";

    fn said_by(&self) -> SaidBy<'_> {
        match self {
            Self::Start { client, .. } => SaidBy::Anybody(client),
            Self::Cancel { .. } => SaidBy::AnybodyAtAll,
            Self::Resume { .. } => SaidBy::Nodes,
        }
    }
}

/// Everything a client is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ClientMsg {
    /// News of a job, in order.
    Events(Vec<Event>),
    /// A job has ended; the last message about it.
    Finished {
        /// The job.
        job: JobId,
        /// How.
        end: JobEnd,
    },
}

impl Wire for ClientMsg {
    const PROTOCOL: &'static str = "client";
}

/// The name under which a client is registered in its process.
pub const CLIENT_ACTOR: &str = "client";
