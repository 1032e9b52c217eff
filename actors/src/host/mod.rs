//! Host: starts the Owner and the coordinator of jobs on this node. One per node, on the arbiter of jobs.
//!
//! What it is told is in [`protocol::host`](crate::protocol::host).
//!
//! A job that is accepted is written down first ([`joblog`](crate::joblog)). When its host is gone, the Scheduler has another one
//! resume it, or the client, which asks where it is by now, is there before; either way whoever opens the log runs the job.
//!
//! A client is a peer without a store: an actor of its own receives [`ClientMsg`].

mod job;
mod over;
mod parts;
mod running;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::BusError;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tracing::{info, warn};

#[cfg(feature = "simulation")]
pub(crate) use job::NODES_DEADLINE;
use job::{JobRun, RunEnd};
#[cfg(feature = "simulation")]
pub(crate) use job::{offers, shapes};
pub(crate) use over::JobsOver;
pub(crate) use parts::NodeParts;
pub(crate) use running::RunningJobs;

use crate::causes;
use crate::event::{Event, EventKind, EventSink};
use crate::futures::Futures;
use crate::ids::{JobId, JobSecret, NodeId};
use crate::joblog::{JobLogs, LogError, Opened, Run};
use crate::protocol;
use crate::protocol::host::{CLIENT_ACTOR, ClientMsg, HostMsg, JobEnd, JobSpec};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::SchedulerMsg;
use crate::registry::programs;
use crate::results::{discard, kept_by};

use crate::shell::{Actor, Address, Kind, Scope};
use crate::task::JobError;

/// How often it is tried to write down how a job ended, and how long between two tries.
pub(crate) const CLOSES_MAX: usize = 10;
pub(crate) const CLOSE_AGAIN: Duration = Duration::from_secs(1);
/// Servers that replicate streams elect a leader within some 5 s when one is gone, and streams of one that was emptied are made anew
/// after 10 s: so long nobody is refused.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(12);
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// What is in a Host's mailbox.
#[derive(Debug)]
pub(crate) enum HostEvent {
    /// Somebody said this, in this process or another one.
    Wire(HostMsg),
    /// A job has ended.
    Ended {
        /// The job.
        job: JobId,
    },
}

impl From<HostMsg> for HostEvent {
    fn from(message: HostMsg) -> Self {
        Self::Wire(message)
    }
}

/// Who listens to a job, and what who comes later must hear, too.
#[derive(Default)]
struct Audience {
    clients: Vec<Address<ClientMsg>>,
    /// What the program is and plans.
    plan: Vec<Event>,
    /// Tasks of each stage that are done, and how many of all were when the job was taken up again.
    done: BTreeMap<Arc<str>, u64>,
    resumed: u64,
    cancelled: bool,
}

impl Audience {
    fn tell(&mut self, event: Event) {
        match &event.kind {
            EventKind::JobStarted { .. } | EventKind::StagePlanned { .. } => self.plan.push(event.clone()),
            EventKind::TaskFinished { stage, .. } => *self.done.entry(stage.clone()).or_default() += 1,
            EventKind::TaskResumed { stage, .. } => {
                *self.done.entry(stage.clone()).or_default() += 1;
                self.resumed += 1;
            }
            _ => {}
        }
        for client in &self.clients {
            let _ = client.send(ClientMsg::Events(vec![event.clone()]));
        }
    }

    fn join(&mut self, client: Address<ClientMsg>) {
        // The same client asks again where it is not sure.
        if self.clients.iter().all(|known| known.node() != client.node()) {
            if let Some(first) = self.plan.first() {
                let kind = EventKind::Joined { done: self.done.clone(), resumed: self.resumed };
                let joined = Event { kind, ..first.clone() };
                let _ = client.send(ClientMsg::Events(self.plan.iter().cloned().chain([joined]).collect()));
            }
            self.clients.push(client);
        }
    }
}

type Shared<T> = Arc<Mutex<T>>;

/// The actor.
pub(crate) struct Host {
    node: NodeParts,
    jobs: BTreeMap<JobId, Shared<Audience>>,
}

impl Host {
    pub(crate) fn new(node: NodeParts) -> Self {
        Self { node, jobs: BTreeMap::new() }
    }

    /// Runs a job, unless it runs here already; `spec`: as a client gives it, else as it is in the log.
    fn start(&mut self, job: JobId, spec: Option<JobSpec>, client: Option<&NodeId>, scope: &mut Scope<'_, Self>) {
        let runs = self.jobs.contains_key(&job);
        let audience = self.jobs.entry(job).or_default().clone();
        if let Some(client) = client {
            audience.lock().join(self.node.post.address::<ClientMsg>(client, CLIENT_ACTOR));
        }
        if runs {
            return;
        }
        let node = self.node.clone();
        let entered = node.running.enter();
        scope.later(async move {
            if job.is_taken() {
                let reason = format!("{job} is no id of a job: results are kept under such");
                let end = JobEnd::failed(JobError::Runtime { reason });
                audience.lock().clients.iter().for_each(|client| {
                    let _ = client.send(ClientMsg::Finished { job, end: end.clone() });
                });
                return Some(HostEvent::Ended { job });
            }
            if let Some(end) = host(&node, job, spec, &audience).await {
                for client in &audience.lock().clients {
                    let _ = client.send(ClientMsg::Finished { job, end: end.clone() });
                }
            }
            drop(entered);
            Some(HostEvent::Ended { job })
        });
    }
}

/// Runs a job to its end; `None`: it goes on elsewhere, or is not known.
async fn host(node: &NodeParts, job: JobId, spec: Option<JobSpec>, audience: &Shared<Audience>) -> Option<JobEnd> {
    let known = spec.is_some();
    let brings = spec.as_ref().map_or(0, |spec| spec.params.len() as u64);
    // Before it is written down: one that is turned away is no job.
    let admission = match node.admission.enter(brings) {
        Ok(admission) => admission,
        Err(crowded) => return turned_away(node, job, known, &crowded).await,
    };
    let (spec, log) = match accept_patiently(node, job, spec).await {
        Ok(Accepted::Runs(spec, log)) => (*spec, log),
        Ok(Accepted::Over(end)) => return Some(*end),
        Ok(Accepted::Unknown) => return None,
        Err(error) => return turned_away(node, job, known, &error).await,
    };
    if !known {
        admission.brings(spec.params.len() as u64);
    }
    info!(job_id = %job, program = spec.program, logged = log.is_some(), "job accepted");
    let events = {
        let audience = audience.clone();
        // Events of single tasks are for those who run in this process; a client gets what progress is made of.
        let tell = move |event: Event| {
            if event.kind.for_clients() {
                audience.lock().tell(event);
            }
        };
        Some(EventSink::new(tell).sampled_every(spec.sample_ms))
    };
    let JobSpec { tenant, program, params, .. } = spec;
    let end = match programs().get(&program) {
        Some(known) => {
            let give_back = known.give_back.map(|give_back| {
                let params = params.clone();
                Box::new(move || give_back(job, &params)) as Box<dyn FnOnce()>
            });
            let run = JobRun { job, tenant, name: program, events, log, admission, give_back };
            let cancelled = audience.clone();
            let program = |futures: Futures| -> LocalBoxFuture<'_, Result<Vec<u8>, JobError>> {
                // It may have been before there was anybody to be told.
                if cancelled.lock().cancelled {
                    return Box::pin(std::future::ready(Err(JobError::Cancelled)));
                }
                (known.run)(futures, &params)
            };
            run.run(node, program).await
        }
        None => {
            let lacking = vec![node.post.node().to_string()];
            let end = JobEnd::failed(JobError::UnknownFunction { function: program, lacking });
            if let Some(run) = log {
                close(&run.logs, job, &end).await;
            }
            RunEnd::Over(end)
        }
    };
    match end {
        RunEnd::Over(end) => Some(end),
        RunEnd::Abandoned(reason) => {
            info!(job_id = %job, reason, "job abandoned here");
            None
        }
    }
}

/// A job is not taken up here, for this reason. `known`: its client is to hear of it, unless it was accepted before: then it goes on,
/// later or elsewhere, and its client asks again.
async fn turned_away(node: &NodeParts, job: JobId, known: bool, error: &dyn std::error::Error) -> Option<JobEnd> {
    let reason = causes(error);
    warn!(job_id = %job, reason, "job not taken up");
    let unknown = known && !may_be_accepted(node, job).await;
    unknown.then(|| JobEnd::failed(JobError::Runtime { reason }))
}

/// Runs a job whose program is at hand; where it is `logged`, it can be taken up again.
pub(crate) async fn run_here(
    node: &NodeParts,
    spec: JobSpec,
    logged: bool,
    events: Option<EventSink>,
    program: impl FnOnce(Futures) -> LocalBoxFuture<'static, Result<Vec<u8>, JobError>>,
) -> JobEnd {
    let (job, tenant) = (spec.job, spec.tenant.clone());
    let admission = match node.admission.enter(spec.params.len() as u64) {
        Ok(admission) => admission,
        Err(crowded) => return JobEnd::failed(JobError::Runtime { reason: causes(&crowded) }),
    };
    let name = spec.program.split('@').next().unwrap_or_default().to_owned();
    let accepted = if logged { accept(node, job, Some(spec)).await } else { Ok(Accepted::Unknown) };
    let log = match accepted {
        Ok(Accepted::Runs(_, log)) => log,
        Ok(Accepted::Over(end)) => return *end,
        Ok(Accepted::Unknown) => None,
        Err(error) => return JobEnd::failed(JobError::Runtime { reason: causes(&error) }),
    };
    JobRun { job, tenant, name, events, log, admission, give_back: None }.run(node, program).await.job_end()
}

/// As `accept`, over a while in which the bus does not answer.
async fn accept_patiently(node: &NodeParts, job: JobId, spec: Option<JobSpec>) -> Result<Accepted, LogError> {
    let begun = node.post.clock().now();
    loop {
        match accept(node, job, spec.clone()).await {
            Err(error) if error.may_heal() && node.post.clock().now() < begun + ACCEPT_DEADLINE => {
                warn!(job_id = %job, error = causes(&error), "the log of jobs cannot be written now");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            accepted => return accepted,
        }
    }
}

enum Accepted {
    Runs(Box<JobSpec>, Option<Box<Run>>),
    Over(Box<JobEnd>),
    Unknown,
}

/// Writes down that a job is accepted, or looks up what was.
async fn accept(node: &NodeParts, job: JobId, spec: Option<JobSpec>) -> Result<Accepted, LogError> {
    let Some(logs) = node.logs.get().await? else {
        return Ok(spec.map_or(Accepted::Unknown, |spec| Accepted::Runs(Box::new(spec), None)));
    };
    let accepted = match spec {
        Some(spec) => {
            logs.accept(&spec).await?;
            spec
        }
        None => match logs.spec(job).await? {
            Some(spec) => spec,
            None => return Ok(Accepted::Unknown),
        },
    };
    Ok(
        match logs
            .open_job(&accepted, (node.post.node(), node.post.incarnation()), JobSecret::new(&*node.random))
            .await?
        {
            Opened::Ended(end) => {
                // As it was accepted, whatever the client says that asks now.
                let spec = logs.spec(job).await?.unwrap_or(accepted);
                match programs().get(&spec.program) {
                    Some(known) => known.give_back.into_iter().for_each(|give_back| give_back(job, &spec.params)),
                    None => {
                        warn!(job_id = %job, program = spec.program, "what the job has taken outside is not given back")
                    }
                }
                // Who hosted it may have been gone before it said, or did, this.
                let kept = match &end.result {
                    Ok(_) => kept_by(&node.results, &spec.tenant, job).await,
                    Err(_) => {
                        discard(&node.results, &spec.tenant, job).await;
                        None
                    }
                };
                let end = Box::new(JobEnd { kept, ..*end });
                logs.close_job(job, &end).await?;
                over(node, job);
                Accepted::Over(end)
            }
            Opened::Over(end) => {
                // It may have been written down once more just now.
                logs.forget(job).await?;
                over(node, job);
                Accepted::Over(end)
            }
            Opened::Runs(run) => {
                // Its end may have been lost with a server that was emptied.
                node.over.forget(job);
                Accepted::Runs(Box::new(accepted), Some(run))
            }
        },
    )
}

/// A job is over. Who ran it may not have told the Scheduler, which may have given it a host again.
fn over(node: &NodeParts, job: JobId) {
    node.over.add(job);
    let _ = node.scheduler.send(SchedulerMsg::JobDone { job });
}

/// Whether a job may have been written down, as far as that can be known.
async fn may_be_accepted(node: &NodeParts, job: JobId) -> bool {
    match node.logs.get().await {
        Ok(Some(logs)) => !matches!(logs.spec(job).await, Ok(None)),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Writes down how a job ended, before anybody is told: else who takes it up again would do it again.
async fn close(logs: &JobLogs, job: JobId, end: &JobEnd) {
    for _ in 0..CLOSES_MAX {
        match logs.close_job(job, end).await {
            Ok(()) => return,
            // Who waits for the job is not to wait for a disk.
            Err(LogError::Bus(error @ (BusError::StoresNothing { .. } | BusError::StreamMissing { .. }))) => {
                warn!(job_id = %job, %error, "the end of the job is not logged yet");
                let (logs, end) = (logs.clone(), end.clone());
                tokio::task::spawn_local(async move {
                    while logs.close_job(job, &end).await.is_err() {
                        tokio::time::sleep(CLOSE_AGAIN).await;
                    }
                });
                return;
            }
            Err(error) => warn!(job_id = %job, error = causes(&error), "the end of the job is not logged yet"),
        }
        tokio::time::sleep(CLOSE_AGAIN).await;
    }
}

impl Host {
    fn message(&mut self, message: HostMsg, scope: &mut Scope<'_, Self>) {
        match message {
            HostMsg::Start { spec, client } => self.start(spec.job, Some(spec), Some(&client), scope),
            HostMsg::Resume { job } => self.start(job, None, None, scope),
            HostMsg::Cancel { job } => {
                if let Some(audience) = self.jobs.get(&job) {
                    audience.lock().cancelled = true;
                }
                let owner =
                    self.node.post.address::<OwnerMsg>(self.node.post.node(), &protocol::owner::actor_name(job));
                let _ = owner.send(OwnerMsg::Cancel);
            }
        }
    }
}

impl Actor for Host {
    type Message = HostMsg;
    type Event = HostEvent;

    fn handle(&mut self, event: HostEvent, scope: &mut Scope<'_, Self>) {
        match event {
            HostEvent::Wire(message) => self.message(message, scope),
            HostEvent::Ended { job } => drop(self.jobs.remove(&job)),
        }
    }

    fn flush(&mut self, _: &mut Scope<'_, Self>) {
        self.node.post.census().set(Kind::Hosted, self.jobs.len());
    }
}
