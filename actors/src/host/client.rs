//! A process that submits jobs to a cluster and is told of them.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Bus, BusError, Subjects};
use exobus_store::Clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{ACTOR, CLIENT_ACTOR, ClientMsg, HostMsg, JobEnd, JobSpec};
use crate::event::Event;
use crate::ids::{Incarnation, JobId, NodeId};
use crate::membership::Directory;
use crate::node::{NodeError, find_scheduler, pump};
use crate::owner::{self, OwnerMsg, Why};
use crate::random::Random;
use crate::scheduler::{self, JobInfo, NodeInfo, Refusal, SchedulerMsg};
use crate::shell::{AskError, Post, PostOptions, Reply, mailbox};

/// A host that says nothing for so long has lost the job: it reports at least twice a second.
const HOST_SILENCE: Duration = Duration::from_secs(15);
/// A Scheduler that does not answer in this time may be over: whoever is it then is asked.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
const FAREWELL: Duration = Duration::from_secs(2);

/// How a client connects.
pub struct ClientOptions {
    /// The way to the cluster.
    pub bus: Bus,
    /// The names of the cluster.
    pub subjects: Subjects,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where its name and the ids of its jobs come from.
    pub random: Arc<dyn Random>,
    /// How long to look for the Scheduler.
    pub deadline: Duration,
}

/// Why a client cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The bus does not do what is asked.
    #[error("bus")]
    Bus(#[from] BusError),
    /// No Scheduler answers.
    #[error(transparent)]
    NoScheduler(#[from] NodeError),
    /// The Scheduler does not answer any more.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No node can host the job.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The host says nothing any more.
    #[error("node {host}, which hosts the job, has been silent for {silent:?}")]
    HostSilent {
        /// The node.
        host: NodeId,
        /// For how long.
        silent: Duration,
    },
}

/// A connected client.
pub struct Client {
    post: Post,
    random: Arc<dyn Random>,
    endpoint: Endpoint,
    bus: Bus,
    subjects: Subjects,
    inbox: mpsc::UnboundedReceiver<ClientMsg>,
    pump: tokio::task::JoinHandle<()>,
}

impl Client {
    /// Connects, on the current tokio runtime.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        let name = format!("client-{:032x}", options.random.next_u128());
        let incarnation = options.clock.unix_ms();
        let post = Post::new(PostOptions {
            node: NodeId::new(&name),
            incarnation: Incarnation(incarnation),
            clock: options.clock.clone(),
            on_fatal: Box::new(|_| {}),
        });
        let me = Peer { node: name, incarnation };
        let (endpoint, events) =
            Endpoint::open(options.bus.clone(), options.subjects.clone(), me, SessionOptions::default()).await?;
        post.connect(endpoint.clone());
        let (_, inbox) = mailbox::<ClientMsg>(&post, CLIENT_ACTOR);
        // Nobody is known to be dead here: heartbeats are for nodes.
        let pump = tokio::spawn(pump(events, post.clone(), Directory::default()));
        find_scheduler(&options.bus, &options.subjects, options.deadline, &options.clock).await?;
        let ClientOptions { bus, subjects, random, .. } = options;
        Ok(Self { post, random, endpoint, bus, subjects, inbox, pump })
    }

    /// Asks whoever is the Scheduler now; when that one does not answer, whoever is it then.
    async fn ask<T>(&self, question: impl Fn(Reply<T>) -> SchedulerMsg, deadline: Duration) -> Result<T, ClientError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let clock = self.post.clock();
        let started = clock.now();
        loop {
            let left = deadline.saturating_sub(clock.now().saturating_sub(started));
            let reign = find_scheduler(&self.bus, &self.subjects, left, clock).await?;
            let scheduler = self.post.address::<SchedulerMsg>(&reign.node, scheduler::ACTOR);
            match scheduler.ask(&question, left.min(ANSWER_DEADLINE)).await {
                Ok(answer) => return Ok(answer),
                Err(error) if clock.now().saturating_sub(started) >= deadline => return Err(error.into()),
                // It may have died with the question.
                Err(_) => {}
            }
        }
    }

    /// The nodes of the cluster.
    ///
    /// # Errors
    /// The Scheduler does not answer.
    pub async fn nodes(&self, deadline: Duration) -> Result<Vec<NodeInfo>, ClientError> {
        self.ask(|reply| SchedulerMsg::ListNodes { reply }, deadline).await
    }

    /// The jobs of the cluster.
    ///
    /// # Errors
    /// The Scheduler does not answer.
    pub async fn jobs(&self, deadline: Duration) -> Result<Vec<JobInfo>, ClientError> {
        self.ask(|reply| SchedulerMsg::ListJobs { reply }, deadline).await
    }

    /// What a job waits for, as its Owner on `home` says; with `ask` after asking the job's nodes, which takes some seconds
    /// where one of them is silent.
    ///
    /// # Errors
    /// The Owner does not answer: its node is silent, or the job is over.
    pub async fn why(&self, job: JobId, home: &NodeId, ask: bool, deadline: Duration) -> Result<Why, ClientError> {
        let owner = self.post.address::<OwnerMsg>(home, &owner::actor_name(job));
        Ok(owner.ask(|reply| OwnerMsg::Why { ask, reply }, deadline).await?)
    }

    /// Runs a job and returns how it ended; `news` is called for every event on the way. When `cancel` resolves, the job
    /// is ended.
    ///
    /// # Errors
    /// See [`ClientError`]; an error of the job itself is in [`JobEnd::result`].
    pub async fn run(
        &mut self,
        spec: JobSpec,
        mut news: impl FnMut(Event),
        cancel: impl Future<Output = ()>,
    ) -> Result<JobEnd, ClientError> {
        let (job, tenant) = (spec.job, spec.tenant.clone());
        let functions = vec![Arc::from(spec.program.as_str())];
        let submit = |reply| {
            let (tenant, functions) = (tenant.clone(), functions.clone());
            SchedulerMsg::SubmitJob { job, tenant, functions, reply }
        };
        let placement = self.ask(submit, HOST_SILENCE).await??;
        let host = self.post.address::<HostMsg>(&placement.node, ACTOR);
        host.send(HostMsg::Start { spec, client: self.post.node().clone() }).map_err(AskError::from)?;
        let mut cancel = std::pin::pin!(cancel);
        let mut cancelled = false;
        loop {
            tokio::select! {
                biased;
                message = tokio::time::timeout(HOST_SILENCE, self.inbox.recv()) => match message {
                    Ok(Some(ClientMsg::Events(events))) => events.into_iter().for_each(&mut news),
                    Ok(Some(ClientMsg::Finished { job: finished, end })) if finished == job => return Ok(end),
                    Ok(Some(ClientMsg::Finished { .. })) => {}
                    Ok(None) | Err(_) => {
                        return Err(ClientError::HostSilent { host: placement.node, silent: HOST_SILENCE });
                    }
                },
                () = &mut cancel, if !cancelled => {
                    cancelled = true;
                    host.send(HostMsg::Cancel { job }).map_err(AskError::from)?;
                }
            }
        }
    }

    /// A job id that nobody else has.
    pub fn new_job(&self) -> JobId {
        JobId::made(&**self.post.clock(), &*self.random)
    }

    /// Says farewell to the cluster.
    pub async fn close(self) {
        let _ = self.endpoint.drain(FAREWELL).await;
        self.pump.abort();
    }
}
