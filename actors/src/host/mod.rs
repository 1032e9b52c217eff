//! Host: starts the Owner and the coordinator of jobs on this node. One per node, on the arbiter of jobs.
//!
//! | message  | from   | answer                                         | if repeated           | if lost                  |
//! |----------|--------|------------------------------------------------|-----------------------|--------------------------|
//! | `Start`  | client | `Events` while it runs, `Finished` at the end  | ignored by job        | repeated by the session  |
//! | `Cancel` | client | `Finished` with `Cancelled`                    | ignored               | repeated by the session  |
//!
//! A client is a peer without a store: an actor of its own receives [`ClientMsg`].

mod client;
mod job;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::info;

pub use client::{Client, ClientError, ClientOptions};
pub(crate) use job::run;

use crate::event::{Event, EventSink, NodeFigures};
use crate::futures::Futures;
use crate::ids::{JobId, NodeId};
use crate::node::NodeParts;
use crate::owner::{self, OwnerMsg};
use crate::registry::programs;
use crate::shell::{Actor, Scope, Wire};
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
}

/// Everything a Host can be told.
#[derive(Debug, Serialize, Deserialize)]
pub enum HostMsg {
    /// Run a job.
    Start {
        /// What to run.
        spec: JobSpec,
        /// Whom to tell.
        client: NodeId,
    },
    /// End a job.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// A job has ended.
    #[serde(skip)]
    Ended {
        /// The job.
        job: JobId,
    },
}

impl Wire for HostMsg {
    const PROTOCOL: &'static str = "host";
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

/// The actor.
pub(crate) struct Host {
    node: NodeParts,
    jobs: BTreeMap<JobId, NodeId>,
}

impl Host {
    pub(crate) fn new(node: NodeParts) -> Self {
        Self { node, jobs: BTreeMap::new() }
    }

    fn start(&mut self, spec: JobSpec, client: NodeId, scope: &mut Scope<'_, Self>) {
        if self.jobs.insert(spec.job, client.clone()).is_some() {
            return;
        }
        info!(job_id = %spec.job, program = spec.program, client = %client, "job accepted");
        let address = self.node.post.address::<ClientMsg>(&client, CLIENT_ACTOR);
        let events = {
            let address = address.clone();
            // Events of single tasks are for those who run in this process; a client gets what progress is made of.
            EventSink::new(move |event| {
                if event.kind.for_clients() {
                    let _ = address.send(ClientMsg::Events(vec![event]));
                }
            })
            .sampled_every(spec.sample_ms)
        };
        let node = self.node.clone();
        let job = spec.job;
        let entered = node.life.enter();
        scope.later(async move {
            let (program, params) = (spec.program, spec.params);
            let end = match programs().get(&program) {
                Some(known) => {
                    let run_program = |futures: Futures| (known.run)(futures, &params);
                    run(&node, job, spec.tenant, &program, Some(events), run_program).await
                }
                None => {
                    let lacking = vec![node.post.node().to_string()];
                    JobEnd::failed(JobError::UnknownFunction { function: program, lacking })
                }
            };
            let _ = address.send(ClientMsg::Finished { job, end });
            drop(entered);
            Some(HostMsg::Ended { job })
        });
    }
}

impl JobEnd {
    pub(crate) fn failed(error: JobError) -> Self {
        Self { result: Err(error), nodes: BTreeMap::new(), owner_bytes: 0, control_messages: 0 }
    }
}

impl Actor for Host {
    type Message = HostMsg;

    fn handle(&mut self, message: HostMsg, scope: &mut Scope<'_, Self>) {
        match message {
            HostMsg::Start { spec, client } => self.start(spec, client, scope),
            HostMsg::Cancel { job } => {
                let owner = self.node.post.address::<OwnerMsg>(self.node.post.node(), &owner::actor_name(job));
                let _ = owner.send(OwnerMsg::Cancel);
            }
            HostMsg::Ended { job } => {
                self.jobs.remove(&job);
            }
        }
    }
}
