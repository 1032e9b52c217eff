//! Host: starts the Owner and the coordinator of jobs on this node. One per node, on the arbiter of jobs.
//!
//! What it is told is in [`protocol::host`](crate::protocol::host).
//!
//! A job that has its turn is written down first ([`joblog`](crate::joblog)). When its host is gone, the Scheduler has another one
//! resume it; whoever opens the log runs the job. The Scheduler is told when its program begins, when it commits, and how it ended; the next
//! one is told again. What happens meanwhile is kept here for who asks ([`Ring`]): the latest of it, and what it adds up to.

mod job;
mod over;
mod parts;
mod ring;
mod running;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use ring::Ring;
pub(crate) use running::RunningJobs;

use crate::causes;
use crate::event::{Event, EventKind, EventSink};
use crate::futures::{CleanUp, Futures};
use crate::ids::{JobId, JobSecret};
use crate::joblog::{JobLogs, LogError, Opened, Run};
use crate::jobs::journal::JournalError;
use crate::protocol;
use crate::protocol::host::{HostMsg, JobEnd, JobSpec, Look, News};
use crate::protocol::job::{BodiesAt, JobRecord, Outcome};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::SchedulerMsg;
use crate::registry::programs;
use crate::results::{discard, kept_by};

use crate::shell::{Actor, Kind, Reply, Scope};
use crate::task::JobError;
use crate::words::{Word, Words};

/// How often it is tried to write down how a job ended, and how long between two tries.
pub(crate) const CLOSES_MAX: usize = 10;
pub(crate) const CLOSE_AGAIN: Duration = Duration::from_secs(1);
/// Servers that replicate streams elect a leader within some 5 s when one is gone, and streams of one that was emptied are made anew
/// after 10 s: so long nobody is refused.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(12);
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// How long who looks at a job may wait for something to happen.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(30);

/// What is in a Host's mailbox.
#[derive(Debug)]
pub(crate) enum HostEvent {
    /// Somebody said this, in this process or another one.
    Wire(HostMsg),
    /// The program of a job is about to begin.
    Begins {
        /// The job.
        job: JobId,
    },
    /// A job has ended here.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        how: Box<Hosted>,
    },
    /// Another Scheduler is followed, which may not know what the one before was told.
    NewScheduler,
}

impl From<HostMsg> for HostEvent {
    fn from(message: HostMsg) -> Self {
        Self::Wire(message)
    }
}

/// What became of a job here.
#[derive(Debug)]
pub(crate) enum Hosted {
    /// It is over.
    Over(JobEnd),
    /// It goes on elsewhere, or is not known.
    Elsewhere,
    /// There is no room for it, or its log cannot be written now.
    TurnedAway(String),
}

/// With what a job is to run.
enum Brought {
    /// What it was accepted with.
    Turn(Box<JobRecord>, BodiesAt),
    /// What its log has.
    Log,
}

/// A job that runs here.
#[derive(Clone, Default)]
struct Running {
    /// For whom it runs, as soon as that is known.
    tenant: Arc<Mutex<Arc<str>>>,
    ring: Ring,
    /// Whether its program has begun.
    begun: bool,
    /// Whether somebody wants it to end.
    cancelled: Arc<AtomicBool>,
    /// What people say to its program.
    words: Words,
}

/// A job that ran here.
struct Ran {
    job: JobId,
    tenant: Arc<str>,
    ring: Ring,
    words: Words,
    outcome: Box<Outcome>,
    /// All of it, unless what it returned is large.
    end: Option<Box<JobEnd>>,
}

/// What a program returned is kept here in so many bytes at most.
const VALUE_KEPT_BYTES: usize = 64 << 10;

/// Jobs of which it is remembered how they ended here: for who asks a moment later, and for the next Scheduler.
const RAN_MAX: usize = 64;

/// The actor.
pub(crate) struct Host {
    node: NodeParts,
    jobs: BTreeMap<JobId, Running>,
    ran: VecDeque<Ran>,
}

impl Host {
    pub(crate) fn new(node: NodeParts) -> Self {
        Self { node, jobs: BTreeMap::new(), ran: VecDeque::new() }
    }

    /// Runs a job, unless it runs here already.
    fn start(&mut self, job: JobId, brought: Brought, scope: &mut Scope<'_, Self>) {
        if let Some(running) = self.jobs.get(&job) {
            if running.begun {
                self.tell_that_it_runs(job);
            }
            return;
        }
        let running = self.jobs.entry(job).or_default().clone();
        let (node, begins) = (self.node.clone(), scope.inbox().clone());
        let entered = node.running.enter();
        scope.later(async move {
            let begins = || drop(begins.send(HostEvent::Begins { job }));
            let how = Box::new(host(&node, job, brought, &running, begins).await);
            drop(entered);
            Some(HostEvent::Ended { job, how })
        });
    }

    fn tell(&self, message: SchedulerMsg) {
        // The next Scheduler is told again.
        let _ = self.node.scheduler.send(message);
    }

    fn tell_that_it_runs(&self, job: JobId) {
        self.tell(SchedulerMsg::JobStarted { job, host: self.node.post.node().clone() });
    }

    fn ended(&mut self, job: JobId, how: Hosted) {
        let Some(Running { tenant, ring, words, .. }) = self.jobs.remove(&job) else { return };
        ring.close();
        match how {
            Hosted::Over(end) => {
                let outcome = Box::new(Outcome::of(&end));
                self.tell(SchedulerMsg::JobEnded { job, outcome: outcome.clone() });
                let is_large = end.result.as_ref().is_ok_and(|value| value.len() > VALUE_KEPT_BYTES);
                let end = (!is_large).then(|| Box::new(end));
                let tenant = tenant.lock().clone();
                self.ran.push_back(Ran { job, tenant, ring, words, outcome, end });
                if self.ran.len() > RAN_MAX {
                    self.ran.pop_front();
                }
            }
            Hosted::Elsewhere => {}
            Hosted::TurnedAway(reason) => self.tell(SchedulerMsg::JobTurnedAway { job, reason }),
        }
    }

    /// Says a word to the program of a job; see [`HostMsg::Tell`].
    fn told(&self, job: JobId, word: Word) -> Option<bool> {
        match self.jobs.get(&job) {
            Some(running) => Some(running.words.say(word)),
            // Who says it again may have ended it by that.
            None => self.ran.iter().any(|ran| ran.job == job && ran.words.was_told(word)).then_some(true),
        }
    }

    /// What of a job somebody wants to know.
    fn look(&self, job: JobId, look: Look, reply: Reply<Option<Box<News>>>, scope: &mut Scope<'_, Self>) {
        let ran = || self.ran.iter().rev().find(|ran| ran.job == job).map(|ran| (ran.tenant.clone(), ran.ring.clone()));
        let runs = self.jobs.get(&job).map(|running| (running.tenant.lock().clone(), running.ring.clone()));
        let Some((tenant, ring)) = runs.or_else(ran) else {
            return self.node.post.answer(reply, None);
        };
        let post = self.node.post.clone();
        scope.later(async move {
            let wait = Duration::from_millis(look.wait_ms).min(LOOK_WAIT_MAX);
            let _ = match look {
                Look { estimate: true, .. } => tokio::time::timeout(wait, ring.estimated(look.after)).await,
                Look { events: 0, .. } => tokio::time::timeout(wait, ring.progressed(look.after)).await,
                _ => tokio::time::timeout(wait, ring.changed(look.after)).await,
            };
            post.answer(reply, Some(Box::new(ring.news(&tenant, look))));
            None
        });
    }
}

/// Runs a job to its end; `begins` is called when its program does.
async fn host(node: &NodeParts, job: JobId, brought: Brought, running: &Running, begins: impl Fn()) -> Hosted {
    if job.is_taken() {
        let reason = format!("{job} is no id of a job: results are kept under such");
        return Hosted::Over(JobEnd::failed(JobError::Runtime { reason }));
    }
    let brings = if let Brought::Turn(record, _) = &brought { record.plan.bytes } else { 0 };
    if let Brought::Turn(record, _) = &brought
        && !node.tenants.admits(&record.tenant)
    {
        warn!(job_id = %job, tenant = &*record.tenant, "job not taken up: this node's configuration has no such tenant");
        return Hosted::TurnedAway(format!("its configuration has no tenant {}", record.tenant));
    }
    // Before it is written down: one that is turned away is no job.
    let admission = match node.admission.enter(brings) {
        Ok(admission) => admission,
        Err(crowded) => return turned_away(job, &crowded),
    };
    let has_turn = matches!(brought, Brought::Turn(..));
    let (brought, is_known) = match bring(node, job, brought).await {
        Ok(Some(spec)) => (Some(spec), true),
        Ok(None) => (None, false),
        Err(error) => return turned_away(job, &error),
    };
    let (spec, log) = match accept_patiently(node, job, brought).await {
        Ok(Accepted::Runs(spec, log)) => (*spec, log),
        Ok(Accepted::Over(end)) => return Hosted::Over(*end),
        Ok(Accepted::Unknown) if has_turn => {
            let reason = "what it was to run with was lost with the NATS server".to_owned();
            return Hosted::Over(JobEnd::failed(JobError::Runtime { reason }));
        }
        Ok(Accepted::Unknown) => return Hosted::Elsewhere,
        Err(error) => return turned_away(job, &error),
    };
    if !is_known {
        admission.brings(spec.params.len() as u64);
    }
    info!(job_id = %job, program = spec.program, logged = log.is_some(), "job accepted");
    *running.tenant.lock() = spec.tenant.clone();
    running.ring.ran_before(log.as_ref().map_or(0, |log| log.head.runs()));
    begins();
    let events = {
        let (ring, scheduler) = (running.ring.clone(), node.scheduler.clone());
        let tell = move |event: Event| {
            if event.kind == EventKind::Committing {
                let _ = scheduler.send(SchedulerMsg::JobCommitting { job });
            }
            // Events of single tasks are for those who run in this process; others get what progress is made of.
            if event.kind.for_clients() {
                ring.push(event);
            }
        };
        Some(EventSink::new(tell).sampled_every(spec.sample_ms))
    };
    let JobSpec { tenant, program, params, .. } = spec;
    let end = match programs().get(&program) {
        Some(known) => {
            let give_back = known.give_back.map(|give_back| {
                let params = params.clone();
                Box::new(move || give_back(job, &params)) as CleanUp
            });
            let words = running.words.clone();
            let run = JobRun { job, tenant, name: program, events, log, admission, words, give_back };
            let program = |futures: Futures| -> LocalBoxFuture<'_, Result<Vec<u8>, JobError>> {
                // It may have been before there was anybody to be told.
                if running.cancelled.load(Ordering::Relaxed) {
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
        RunEnd::Over(end) => Hosted::Over(end),
        RunEnd::Abandoned(reason) => {
            info!(job_id = %job, reason, "job abandoned here");
            Hosted::Elsewhere
        }
    }
}

/// A job is not taken up here, for this reason: it goes on, later or elsewhere.
fn turned_away(job: JobId, error: &dyn std::error::Error) -> Hosted {
    let reason = causes(error);
    warn!(job_id = %job, reason, "job not taken up");
    Hosted::TurnedAway(reason)
}

/// What a job is to run with; `None`: what its log has.
async fn bring(node: &NodeParts, job: JobId, brought: Brought) -> Result<Option<JobSpec>, JournalError> {
    let Brought::Turn(record, at) = brought else { return Ok(None) };
    let bodies = match (&at, node.journal.get().await?) {
        (BodiesAt::Here(bodies), _) => bodies.clone(),
        (_, Some(journal)) => match journal.bodies(job, &at).await? {
            Some(bodies) => bodies,
            None => return Ok(None),
        },
        (_, None) => return Err(JournalError::NoBodies(job)),
    };
    let JobRecord { tenant, program, sample_ms, .. } = *record;
    Ok(Some(JobSpec { job, tenant, program, params: bodies.plan, sample_ms, plan_pieces: 0 }))
}

/// Runs a job whose program is at hand; where it is `logged`, it can be taken up again.
pub(crate) async fn run_here(
    node: &NodeParts,
    spec: JobSpec,
    logged: bool,
    (events, words): (Option<EventSink>, Words),
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
    JobRun { job, tenant, name, events, log, admission, words, give_back: None }.run(node, program).await.job_end()
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
            HostMsg::Run { record, bodies } => self.start(record.job, Brought::Turn(record, bodies), scope),
            HostMsg::Resume { job } => self.start(job, Brought::Log, scope),
            HostMsg::Look { job, look, reply } => self.look(job, look, reply, scope),
            HostMsg::TellEnd { job, reply } => {
                let ran = self.ran.iter().rev().find(|ran| ran.job == job);
                self.node.post.answer(reply, ran.and_then(|ran| ran.end.clone()));
            }
            HostMsg::Tell { job, word, reply } => self.node.post.answer(reply, self.told(job, word)),
            HostMsg::Cancel { job } => {
                if let Some(running) = self.jobs.get(&job) {
                    running.cancelled.store(true, Ordering::Relaxed);
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

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        let (mut leaders, inbox) = (self.node.scheduler.changes(), scope.inbox().clone());
        scope.later(async move {
            while leaders.changed().await.is_ok() {
                let _ = inbox.send(HostEvent::NewScheduler);
            }
            None
        });
    }

    fn handle(&mut self, event: HostEvent, scope: &mut Scope<'_, Self>) {
        match event {
            HostEvent::Wire(message) => self.message(message, scope),
            HostEvent::Begins { job } => {
                if let Some(running) = self.jobs.get_mut(&job) {
                    running.begun = true;
                    self.tell_that_it_runs(job);
                }
            }
            HostEvent::Ended { job, how } => self.ended(job, *how),
            HostEvent::NewScheduler => {
                let begun = self.jobs.iter().filter(|(_, running)| running.begun);
                begun.for_each(|(job, _)| self.tell_that_it_runs(*job));
                for Ran { job, outcome, .. } in &self.ran {
                    self.tell(SchedulerMsg::JobEnded { job: *job, outcome: outcome.clone() });
                }
            }
        }
    }

    fn flush(&mut self, _: &mut Scope<'_, Self>) {
        self.node.post.census().set(Kind::Hosted, self.jobs.len());
    }
}
