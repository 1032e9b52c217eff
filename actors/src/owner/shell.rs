//! The Owner's shell: it feeds the [core](super::core) with events and does what comes of them.

use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Clock, Store, WriterOptions};
use hashbrown::HashMap;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::core::{Beginning, OwnerCore, OwnerPlace, Surroundings, unanswered};
use super::effect::{JobOutcome, OwnerEffect};
use super::event::{OwnerEvent, ReadError};
use crate::admission::Ticket;
use crate::event::{Event, EventKind, EventSink, NodeFigures};
use crate::ids::{CopyId, Epoch, JobId, NodeId};
use crate::joblog::{JobLog, Run, Written};
use crate::jobs::quotas::Quotas;
use crate::node_manager::Stager;
use crate::protocol;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{NodeInfo, SchedulerMsg};
use crate::scheduler::SchedulerLink;
use crate::shell::{Actor, Address, Kind, Living, Post, Scope};
use crate::task::{FailureKind, JobError, Parts, TaskSpec};

/// The log of a job that is about to run.
pub(crate) struct OwnerLog {
    /// The choices of its past are the program's.
    pub(crate) run: Run,
    /// Who is told when the program may begin.
    pub(crate) settled: oneshot::Sender<()>,
}

/// What an Owner is made of.
pub(crate) struct OwnerParts {
    pub(crate) post: Post,
    pub(crate) job: JobId,
    pub(crate) tenant: Arc<str>,
    pub(crate) scheduler: SchedulerLink,
    pub(crate) store: Store,
    pub(crate) stager: Stager,
    /// The nodes that there are when the job starts.
    pub(crate) cluster: Vec<NodeInfo>,
    pub(crate) events: Option<EventSink>,
    /// Figures of this node, taken now.
    pub(crate) figures: Arc<dyn Fn() -> NodeFigures + Send + Sync>,
    /// Whether the job may begin, and what its tables take.
    pub(crate) admission: Arc<Ticket>,
    pub(crate) done: oneshot::Sender<JobOutcome>,
    /// Where the job is logged, if it is.
    pub(crate) log: Option<OwnerLog>,
    /// Bytes that its log may have.
    pub(crate) log_quota_bytes: u64,
    /// What else it may use.
    pub(crate) quotas: Quotas,
}

/// The actor.
pub(crate) struct OwnerActor {
    core: OwnerCore,
    around: NodeSurroundings,
    job: JobId,
    events: Option<EventSink>,
    started: Duration,
    store: Store,
    stager: Stager,
    figures: Arc<dyn Fn() -> NodeFigures + Send + Sync>,
    /// What is being done; kept for its memory.
    effects: Vec<OwnerEffect>,
    nodes: HashMap<NodeId, Address<NodeMsg>>,
    mergers: HashMap<NodeId, Address<MergerMsg>>,
    /// The log, until it is opened.
    begins: Option<OwnerLog>,
    log_quota_bytes: u64,
    settled: Option<oneshot::Sender<()>>,
    done: Option<oneshot::Sender<JobOutcome>>,
    _living: Living,
}

/// What the core looks at.
struct NodeSurroundings {
    post: Post,
    clock: Arc<dyn Clock>,
    scheduler: SchedulerLink,
    admission: Arc<Ticket>,
    log: Option<JobLog>,
}

impl Surroundings for NodeSurroundings {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn epoch(&self) -> Epoch {
        self.scheduler.epoch()
    }

    fn scheduler_speaks(&self) -> bool {
        self.scheduler.speaks()
    }

    fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, JobLog::waiting_bytes)
    }

    fn logged(&self) -> Option<Written> {
        self.log.as_ref().map(JobLog::written)
    }

    fn admission(&self) -> Option<String> {
        self.admission.reason()
    }
}

impl OwnerActor {
    pub(crate) fn new(parts: OwnerParts) -> Self {
        let OwnerParts { post, job, tenant, scheduler, store, stager, cluster, .. } = parts;
        let clock = post.clock().clone();
        let place = OwnerPlace {
            job,
            tenant,
            quotas: parts.quotas,
            node: post.node().clone(),
            incarnation: post.incarnation(),
            events: parts.events.as_ref().map(EventSink::sample_ms),
        };
        Self {
            core: OwnerCore::new(place, cluster, clock.now()),
            job,
            events: parts.events,
            started: clock.now(),
            store,
            stager,
            figures: parts.figures,
            effects: Vec::new(),
            nodes: HashMap::new(),
            mergers: HashMap::new(),
            begins: parts.log,
            log_quota_bytes: parts.log_quota_bytes,
            settled: None,
            done: Some(parts.done),
            _living: post.census().living(Kind::Owner),
            around: NodeSurroundings { post, clock, scheduler, admission: parts.admission, log: None },
        }
    }

    /// Opens the log of the job, if it has one.
    fn open_log(&mut self, scope: &mut Scope<'_, Self>) -> Option<Beginning> {
        let OwnerLog { run: Run { logs, past, head }, settled } = self.begins.take()?;
        self.settled = Some(settled);
        let (forgets, inbox) = (head.forgets(), scope.inbox().clone());
        // The writer has it, and drops it when it ends.
        let living = self.around.post.census().living(Kind::LogWriter);
        let news = move |news| {
            let _ = &living;
            drop(inbox.send(OwnerEvent::Log(news)));
        };
        match JobLog::start(&logs, head, (self.log_quota_bytes, self.around.clock.clone()), news) {
            Ok(log) => self.around.log = Some(log),
            Err(error) => warn!(job_id = %self.job, %error, "the job is not logged"),
        }
        Some(Beginning { past, forgets, logged: self.around.log.is_some() })
    }

    fn perform(&mut self, effect: OwnerEffect, scope: &mut Scope<'_, Self>) {
        match effect {
            OwnerEffect::Run { node, spec } => self.run(node, spec, scope),
            OwnerEffect::EndJob { node } => {
                let job = self.job;
                if let Err(error) = self.node(&node).send(NodeMsg::EndJob { job }) {
                    warn!(job_id = %job, %node, %error, "node not told of the end");
                    self.comes_back(OwnerEvent::EndUnsent(node), scope);
                }
            }
            OwnerEffect::Send { node, message } => {
                if let Err(error) = self.node(&node).send(message) {
                    warn!(job_id = %self.job, %error, "node not told");
                }
            }
            OwnerEffect::Advise { node, message } => self.advise(node, message),
            OwnerEffect::SendScheduler(message) => {
                let ends = matches!(message, SchedulerMsg::JobDone { .. });
                if let Err(error) = self.around.scheduler.send(message) {
                    match ends {
                        true => warn!(job_id = %self.job, %error, "scheduler not told of the end"),
                        false => debug!(job_id = %self.job, %error, "scheduler not told"),
                    }
                }
            }
            OwnerEffect::AskNodes { deadline } => {
                let scheduler = self.around.scheduler.clone();
                scope.later(async move {
                    let nodes = scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, deadline).await;
                    Some(OwnerEvent::Nodes(nodes.unwrap_or_default()))
                });
            }
            OwnerEffect::AskDoing { question, node, attempts, deadline } => {
                let (job, address) = (self.job, self.node(&node).clone());
                scope.later(async move {
                    let answer = address.ask(|reply| NodeMsg::Doing { job, attempts, reply }, deadline).await;
                    let answer = answer.map_err(|error| unanswered(&error));
                    Some(OwnerEvent::Doing { question, node, answer })
                });
            }
            OwnerEffect::Answer { reply, why } => self.around.post.answer(reply, why),
            OwnerEffect::After(delay, timer) => scope.after(delay, OwnerEvent::Timer(timer)),
            OwnerEffect::Put { copy, maker, bytes, rows, row_hash } => {
                let bytes_hint = bytes.len() as u64;
                let options = WriterOptions { bytes_hint, maker: maker.get(), ..WriterOptions::default() };
                if let Err(error) = self.store.put_as(copy, options, &bytes, rows, row_hash) {
                    warn!(job_id = %self.job, copy_id = %copy, %error, "lost output not put back");
                    self.comes_back(OwnerEvent::NotPut(copy), scope);
                }
            }
            OwnerEffect::Read { read, copy, parts, from } => self.read(read, (copy, parts), from, scope),
            OwnerEffect::LookAtFigures => {
                let figures = OwnerEvent::Figures(Box::new((self.figures)()), self.stager.received.read());
                self.comes_back(figures, scope);
            }
            OwnerEffect::DeleteAll => self.store.delete_group(self.job.group()),
            OwnerEffect::Append(entry) => {
                if let Some(log) = &self.around.log {
                    log.add(entry);
                }
            }
            OwnerEffect::LookAtLog => {
                if let Some(log) = &self.around.log {
                    log.look();
                }
            }
            OwnerEffect::EndLog => self.around.log = None,
            OwnerEffect::Settled => {
                if let Some(settled) = self.settled.take() {
                    let _ = settled.send(());
                }
            }
            OwnerEffect::Takes(bytes) => self.around.admission.takes(bytes),
            OwnerEffect::CountStale => self.around.post.count_stale(1),
            OwnerEffect::Event { at, kind } => self.emit(at, *kind),
            OwnerEffect::End(outcome) => {
                if let Some(done) = self.done.take() {
                    let _ = done.send(outcome);
                }
                scope.stop();
            }
        }
    }

    /// Something has come of what was done: an event of its own, after those that wait.
    fn comes_back(&self, event: OwnerEvent, scope: &Scope<'_, Self>) {
        let _ = scope.inbox().send(event);
    }

    fn node(&mut self, node: &NodeId) -> &Address<NodeMsg> {
        if !self.nodes.contains_key(node) {
            let address = self.around.post.address(node, protocol::node_manager::ACTOR);
            self.nodes.insert(node.clone(), address);
        }
        &self.nodes[node]
    }

    fn run(&mut self, node: NodeId, spec: Arc<TaskSpec>, scope: &Scope<'_, Self>) {
        let (task, attempt, owner) = (spec.id, spec.attempt, self.around.post.node().clone());
        if let Err(error) = self.node(&node).send(NodeMsg::Run { owner, spec }) {
            warn!(job_id = %self.job, task_id = %task, %attempt, %error, "task not sent");
            let never = error.lasting.then(|| error.to_string());
            self.comes_back(OwnerEvent::Unsent { node, task, attempt, never }, scope);
        }
    }

    /// Pushing is advice: a Merger that cannot be reached costs time and nothing else.
    fn advise(&mut self, node: NodeId, message: MergerMsg) {
        let post = &self.around.post;
        let merger = self.mergers.entry(node);
        let merger = merger.or_insert_with_key(|node| post.address(node, protocol::merger::ACTOR));
        if let Err(error) = merger.send(message) {
            debug!(job_id = %self.job, %error, "merger not told");
        }
    }

    fn read(&mut self, read: u64, (copy, parts): (CopyId, Parts), from: Option<NodeId>, scope: &mut Scope<'_, Self>) {
        if let Some(node) = from {
            let (stager, job) = (self.stager.clone(), self.job);
            return scope.later(async move {
                let outcome = match stager.get(job, copy, parts, node).await {
                    Err(failure) if failure.kind == FailureKind::ArgumentLost => Err(ReadError::Unreadable),
                    Err(failure) => Err(ReadError::Failed(JobError::Store { message: failure.to_string() })),
                    Ok(block) => Ok(block),
                };
                Some(OwnerEvent::Read { read, outcome })
            });
        }
        if let Some(block) = self.store.try_get(&copy, parts) {
            return self.core.on(OwnerEvent::Read { read, outcome: Ok(block) }, &self.around);
        }
        let block = self.store.get(&copy, parts);
        scope.later(async move {
            let outcome = block.await.map_err(|error| match error.is_lost() {
                true => ReadError::Unreadable,
                false => ReadError::Failed(JobError::from(error)),
            });
            Some(OwnerEvent::Read { read, outcome })
        });
    }

    fn emit(&self, node: NodeId, kind: EventKind) {
        if let Some(events) = &self.events {
            let at_us = self.around.now().saturating_sub(self.started).as_micros() as u64;
            events.emit(Event { at_us, node, job: Some(self.job), kind });
        }
    }
}

impl Actor for OwnerActor {
    type Message = OwnerMsg;
    type Event = OwnerEvent;

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        let begins = self.open_log(scope);
        self.core.started(begins, (self.figures)());
    }

    fn handle(&mut self, event: OwnerEvent, _scope: &mut Scope<'_, Self>) {
        self.core.on(event, &self.around);
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        self.core.flush(&self.around);
        let mut effects = std::mem::take(&mut self.effects);
        self.core.take_effects(&mut effects);
        // What is in memory is read at once, and more may come of that.
        while !effects.is_empty() {
            effects.drain(..).for_each(|effect| self.perform(effect, scope));
            self.core.take_effects(&mut effects);
        }
        self.effects = effects;
    }
}
