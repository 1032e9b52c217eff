//! A process that submits jobs to a cluster and is told of them.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::auth::SUBMITTER_PREFIX;
use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Bus, BusError, Subjects};
use exobus_store::Clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::event::{Event, EventKind};
use crate::ids::{Incarnation, JobId, NodeId};
use crate::joining::{NodeError, Search, ask_scheduler, find_scheduler, pump};
use crate::membership::Directory;
use crate::protocol;
use crate::protocol::host::{CLIENT_ACTOR, ClientMsg, HostMsg, JobEnd, JobSpec};
use crate::protocol::owner::{OwnerMsg, Why};
use crate::protocol::scheduler::{JobInfo, NodeInfo, Placement, Refusal, SchedulerMsg};
use crate::random::Random;
use crate::scheduler::{self, JobList};
use crate::shell::{AskError, Post, PostOptions, Reply, mailbox};

/// A host that says nothing for so long may have lost the job, as it reports at least twice a second: it is asked where the job
/// is by now.
const HOST_QUIET: Duration = Duration::from_secs(2);
/// How often it is looked whether it is silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When nothing was heard of a job for so long, it is not waited for any more. A cluster may be started anew meanwhile.
const HOST_SILENCE: Duration = Duration::from_secs(60);
/// A Scheduler that does not answer in this time may be over: whoever is it then is asked.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// What it calls the job when it speaks of it.
const JOB: &str = "the job";
const FAREWELL: Duration = Duration::from_secs(2);

/// How a client connects.
pub struct ClientOptions {
    /// The way to the cluster, with the submitters' token ([`Bus::with_credentials`]).
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
    /// The host says nothing any more: the job may go on, there or elsewhere.
    #[error("node {host}, which hosts the job, has been silent for {} s", silent.as_secs())]
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

/// Who waits for an answer hears soon that there is none to be had.
fn search(deadline: Duration) -> Search {
    Search { deadline, trouble: Duration::from_secs(2) }
}

/// Who does not answer besides the host of a job.
fn nobody(error: &ClientError) -> &'static str {
    match error {
        ClientError::Bus(_) => "is silent, and so is the NATS server",
        ClientError::NoScheduler(_) | ClientError::Ask(_) => "is silent, and no Scheduler answers",
        ClientError::Refused(_) | ClientError::HostSilent { .. } => "is silent, and no other node takes it up",
    }
}

/// What a client has heard of its job, and what it says when it hears nothing.
struct Hearing {
    job: JobId,
    /// On this process's clock.
    heard_at: Duration,
    /// On the job's clock.
    event_us: u64,
    /// Whether it was said that the job waits.
    told: bool,
}

impl Hearing {
    fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard_at)
    }

    /// Something was heard.
    fn heard(&mut self, host: &NodeId, now: Duration, events: Vec<Event>, news: &mut impl FnMut(Event)) {
        let after_ms = self.silent(now).as_millis() as u64;
        self.heard_at = now;
        if std::mem::take(&mut self.told) {
            self.say(host, after_ms, EventKind::GoesOn { what: JOB.into(), after_ms }, news);
        }
        for event in events {
            self.event_us = self.event_us.max(event.at_us);
            news(event);
        }
    }

    /// Nothing is heard, since the host, and perhaps somebody else, does not answer.
    fn tell(&mut self, host: &NodeId, silent: Duration, who: &str, news: &mut impl FnMut(Event)) {
        self.told = true;
        let for_ms = silent.as_millis() as u64;
        let reason = format!("node {host}, which hosts it, {who}");
        self.say(host, for_ms, EventKind::Waiting { what: JOB.into(), reason, for_ms }, news);
    }

    fn say(&self, host: &NodeId, after_ms: u64, kind: EventKind, news: &mut impl FnMut(Event)) {
        let at_us = self.event_us + 1000 * after_ms;
        news(Event { at_us, node: host.clone(), job: Some(self.job), kind });
    }
}

/// Lists the jobs of a cluster: a request to its Scheduler, for which nobody needs a session.
///
/// # Errors
/// The Scheduler does not answer within `deadline`.
pub async fn list_jobs(options: &ClientOptions, deadline: Duration) -> Result<JobList, ClientError> {
    let bus = options.bus.speaking_as(options.me());
    Ok(ask_scheduler(&bus, &options.subjects, scheduler::JOBS, search(deadline), &options.clock).await?)
}

impl ClientOptions {
    /// A submitter that nobody has been before.
    fn me(&self) -> Peer {
        let node = format!("{SUBMITTER_PREFIX}{:032x}", self.random.next_u128());
        Peer { node, incarnation: self.clock.unix_ms() }
    }
}

impl Client {
    /// Connects, on the current tokio runtime.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        let me = options.me();
        let post = Post::new(PostOptions {
            node: NodeId::new(&me.node),
            incarnation: Incarnation(me.incarnation),
            clock: options.clock.clone(),
            on_fatal: Box::new(|_| {}),
        });
        let bus = options.bus.speaking_as(me.clone());
        let (endpoint, events) =
            Endpoint::open(bus.clone(), options.subjects.clone(), me, SessionOptions::default()).await?;
        post.connect(endpoint.clone());
        let (_, inbox) = mailbox::<ClientMsg, ClientMsg>(&post, CLIENT_ACTOR);
        // Nobody is known to be dead here: heartbeats are for nodes.
        let pump = tokio::spawn(pump(events, post.clone(), Directory::default()));
        find_scheduler(&bus, &options.subjects, search(options.deadline), &options.clock).await?;
        let ClientOptions { subjects, random, .. } = options;
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
            let leader = find_scheduler(&self.bus, &self.subjects, search(left), clock).await?;
            let scheduler = self.post.address::<SchedulerMsg>(&leader.node, protocol::scheduler::ACTOR);
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
        self.ask(|reply| SchedulerMsg::ListJobs { settled: false, reply }, deadline).await
    }

    /// What a job waits for, as its Owner on `home` says; with `ask` after asking the job's nodes, which takes some seconds
    /// where one of them is silent.
    ///
    /// # Errors
    /// The Owner does not answer: its node is silent, or the job is over.
    pub async fn why(&self, job: JobId, home: &NodeId, ask: bool, deadline: Duration) -> Result<Why, ClientError> {
        let owner = self.post.address::<OwnerMsg>(home, &protocol::owner::actor_name(job));
        Ok(owner.ask(|reply| OwnerMsg::Why { ask, reply }, deadline).await?)
    }

    /// Runs a job and returns how it ended; `news` is called for every event on the way. When `cancel` resolves, the job
    /// is ended. When its host falls silent, `news` is told that the job [waits](EventKind::Waiting) and why; it may go on
    /// elsewhere, and then so does this.
    ///
    /// # Errors
    /// See [`ClientError`]; an error of the job itself is in [`JobEnd::result`].
    pub async fn run(
        &mut self,
        spec: JobSpec,
        mut news: impl FnMut(Event),
        cancel: impl Future<Output = ()>,
    ) -> Result<JobEnd, ClientError> {
        let job = spec.job;
        let mut placement = self.submit(&spec, ANSWER_DEADLINE * 5).await?;
        let mut hearing = Hearing { job, heard_at: self.post.clock().now(), event_us: 0, told: false };
        let mut cancel = std::pin::pin!(cancel);
        let mut cancelled = false;
        loop {
            tokio::select! {
                biased;
                message = tokio::time::timeout(LOOK_EVERY, self.inbox.recv()) => match message {
                    Ok(Some(ClientMsg::Finished { job: finished, end })) if finished == job => return Ok(end),
                    Ok(Some(message)) => {
                        let events = if let ClientMsg::Events(events) = message { events } else { Vec::new() };
                        hearing.heard(&placement.node, self.post.clock().now(), events, &mut news);
                    }
                    Ok(None) | Err(_) => {
                        let silent = hearing.silent(self.post.clock().now());
                        if silent >= HOST_SILENCE {
                            return Err(ClientError::HostSilent { host: placement.node, silent });
                        }
                        if silent < HOST_QUIET {
                            continue;
                        }
                        // Before anybody else is asked, which may take a while.
                        if !hearing.told {
                            hearing.tell(&placement.node, silent, "is silent", &mut news);
                        }
                        // A Scheduler that does not answer may be over: the next one is asked.
                        match self.submit(&spec, ANSWER_DEADLINE).await {
                            // Where the job is by now is heard of soon.
                            Ok(now) => {
                                if cancelled && now != placement {
                                    self.cancel(&now, job);
                                }
                                hearing.tell(&placement.node, silent, "is silent", &mut news);
                                placement = now;
                            }
                            Err(error) => {
                                let silent = hearing.silent(self.post.clock().now());
                                hearing.tell(&placement.node, silent, nobody(&error), &mut news);
                            }
                        }
                    }
                },
                () = &mut cancel, if !cancelled => {
                    cancelled = true;
                    self.cancel(&placement, job);
                }
            }
        }
    }

    /// Hands a job to the node that hosts it, or is to; that node runs it once, however often it is told.
    async fn submit(&self, spec: &JobSpec, deadline: Duration) -> Result<Placement, ClientError> {
        let functions = vec![Arc::from(spec.program.as_str())];
        let question = |reply| {
            let (tenant, functions) = (spec.tenant.clone(), functions.clone());
            SchedulerMsg::SubmitJob { job: spec.job, tenant, functions, reply }
        };
        let placement = match self.ask(question, deadline).await? {
            Ok(placement) => placement,
            // Any node can look up how it ended.
            Err(Refusal::Over) => {
                let nodes = self.nodes(deadline).await?;
                let up = nodes.into_iter().find(|info| info.up).ok_or(Refusal::NoNodes)?;
                Placement { node: up.spec.node, incarnation: up.spec.incarnation }
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let host = self.post.address::<HostMsg>(&placement.node, protocol::host::ACTOR);
        let client = self.post.node().clone();
        host.send(HostMsg::Start { spec: spec.clone(), client }).map_err(AskError::from)?;
        Ok(placement)
    }

    fn cancel(&self, placement: &Placement, job: JobId) {
        // A host that cannot be told is silent, and the next one is told.
        let _ = self.post.address::<HostMsg>(&placement.node, protocol::host::ACTOR).send(HostMsg::Cancel { job });
    }

    /// A job id that nobody else has.
    pub fn new_job(&self) -> JobId {
        JobId::made(self.post.clock().unix_ms(), self.random.next_u128())
    }

    /// Says farewell to the cluster.
    pub async fn close(self) {
        let _ = self.endpoint.drain(FAREWELL).await;
        let _ = self.endpoint.leave(FAREWELL).await;
        self.pump.abort();
    }
}
