//! Host: runs jobs on its node. One per node.
//!
//! | message  | from   | answer                                         | if repeated           | if lost                  |
//! |----------|--------|------------------------------------------------|-----------------------|--------------------------|
//! | `Run`    | Scheduler | `JobStarted`, `JobEnded` or `JobTurnedAway` to it | ignored by job    | said again after a while |
//! | `Resume` | Scheduler | –                                           | ignored by job        | said again after a while |
//! | `Cancel` | Scheduler | – (the job ends)                            | ignored               | said again after a while |
//! | `Tell`   | a door | `Option<bool>`                                 | the same answer       | said again by who asked  |
//! | `Look`   | a door | `Option<News>`                                 | –                     | asked again              |
//! | `TellEnd` | a door | `Option<JobEnd>`                              | –                     | asked again              |

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::{BodiesAt, JobRecord};
use crate::event::{Event, NodeFigures, Progress};
use crate::ids::{JobId, NodeId};
use crate::protocol::results::JobKept;
use crate::shell::{Reply, Wire};
use crate::task::JobError;
use crate::words::Word;

/// The name under which the Host of a node is registered.
pub const ACTOR: &str = "host";

/// The events of each run of a job are numbered from a multiple of this on.
pub(crate) const RUN: u64 = 1_000_000_000;

/// A job as it is submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its id; where the client has made it, handing it in twice is one job.
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
    /// In so many pieces of its log are the parameters, where they are too large to stand here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub plan_pieces: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl JobSpec {
    /// A job that runs the registered program `program`, "sum@1", with these parameters.
    ///
    /// # Errors
    /// The parameters cannot be encoded.
    pub fn of(job: JobId, program: &str, params: &impl Serialize) -> Result<Self, JobError> {
        let params = rmp_serde::to_vec_named(params).map_err(JobError::program)?.into();
        Ok(Self { job, tenant: "default".into(), program: program.to_owned(), params, sample_ms: 0, plan_pieces: 0 })
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
    /// Run a job that has its turn.
    Run {
        /// What is known of it.
        record: Box<JobRecord>,
        /// Where what it is to run with is.
        bodies: BodiesAt,
    },
    /// How does it stand with a job here?
    Look {
        /// The job.
        job: JobId,
        /// What is wanted.
        look: Look,
        /// `None`: it is not here.
        reply: Reply<Option<Box<News>>>,
    },
    /// How did a job end here?
    TellEnd {
        /// The job.
        job: JobId,
        /// `None`: that is not known here, or not any more.
        reply: Reply<Option<Box<JobEnd>>>,
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
    /// Tell the program of a job something.
    Tell {
        /// The job.
        job: JobId,
        /// What.
        word: Word,
        /// Whether the program listens, or was told the same before; `None`: it does not run here.
        reply: Reply<Option<bool>>,
    },
}

/// What somebody wants to know of a job that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// The last number that he has heard of; 0: he has heard nothing.
    pub after: u64,
    /// Answer when there is something after that, or when so many milliseconds are over.
    pub wait_ms: u64,
    /// So many events at most; 0: no more than how it stands.
    pub events: u32,
    /// What is wanted is what its result looks like by now: after `after`, or none.
    pub estimate: bool,
}

/// How it stands with a job that runs, and what has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct News {
    /// For whom the job runs.
    pub tenant: Arc<str>,
    /// The number of the latest event.
    pub last: u64,
    /// How far it has come.
    pub progress: Progress,
    /// What has happened, each under its number, in order.
    pub events: Vec<(u64, Event)>,
    /// How many events before the first of these are not there any more: the progress counts them.
    pub skipped: u64,
    /// Whether it has ended here.
    pub over: bool,
    /// What its result looks like by now, with the number of the event that said so; `None`: that was not asked for, nothing was said, or nothing new.
    pub estimate: Option<(u64, String)>,
}

impl News {
    /// The number of the first event that is there, where some after `after`, which is what was asked for, are not any more.
    pub fn first(&self, after: u64) -> Option<u64> {
        let base = self.last / RUN * RUN;
        // As the host takes it: who has heard of another run begins anew.
        let after = if after > self.last { base } else { after.max(base) };
        (self.skipped > 0).then_some(after + self.skipped + 1)
    }
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
}
