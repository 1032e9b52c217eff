//! The Owner's shell: messages in, effects out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Clock, Store, WriterOptions};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::asking::{Reads, Unread};
use crate::protocol;
use crate::protocol::node_manager::{NodeMsg, SET_MEMBERS_PER_MESSAGE};
use crate::protocol::owner::{OwnerMsg, Why};
use crate::protocol::scheduler::{Lease, NodeInfo, SchedulerMsg, Wait};

use super::deferred::Freed;
use super::event::OwnerEvent;
use super::figures::JobFigures;
use super::lanes::Lanes;
use super::leasing::{Asker, Leasing};
use super::logging::{Logging, OwnerLog};

use super::reading::Waiter;
use super::state::{Effect, Tracker};
use super::tables::OwnerState;
use super::watchdog::Watchdog;
use crate::admission::Ticket;
use crate::event::{Event, EventKind, EventSink, NodeFigures, NodeState, Received};
use crate::futures::ProgramCall;
use crate::ids::{Attempt, CopyId, Epoch, Incarnation, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::joblog::TaskDone;
use crate::node_manager::Stager;
use crate::scheduler::SchedulerLink;
use crate::shell::{Actor, Address, Kind, Living, Post, Reply, Scope};
use crate::task::{JobError, Resources};

/// How long the Scheduler may take to say what nodes can run; it is asked again after that.
const NODES_DEADLINE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
/// Tables that grow by so much within a second are counted before it is over.
const COUNT_AGAIN_BYTES: u64 = 1 << 20;
/// How long nodes may take to say their last figures when the job ends; what one says later is not counted.
const FAREWELL: Duration = Duration::from_millis(500);

/// How an Owner ended.
#[derive(Debug)]
pub(crate) enum JobOutcome {
    /// With its job.
    Over { result: Result<Vec<u8>, JobError>, nodes: BTreeMap<NodeId, NodeFigures>, owner_bytes_peak: u64 },
    /// Without it: the job goes on elsewhere.
    Abandoned { reason: String },
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
}

/// The actor.
pub(crate) struct OwnerActor {
    pub(super) post: Post,
    clock: Arc<dyn Clock>,
    pub(super) job: JobId,
    tenant: Arc<str>,
    scheduler: SchedulerLink,
    pub(super) store: Store,
    pub(super) stager: Stager,
    events: Option<EventSink>,
    pub(super) done: Option<oneshot::Sender<JobOutcome>>,
    pub(super) state: OwnerState,
    pub(super) waiters: HashMap<Tracker, Waiter>,
    pub(super) next_tracker: Tracker,
    nodes: HashMap<NodeId, Address<NodeMsg>>,
    leasing: Leasing,
    /// Whether the Scheduler was asked what nodes can run, and has not answered.
    asking: bool,
    figures: JobFigures,
    figures_here: Arc<dyn Fn() -> NodeFigures + Send + Sync>,
    pub(super) frees: BTreeMap<NodeId, Vec<CopyId>>,
    recalls: BTreeMap<NodeId, Vec<(TaskId, Attempt)>>,
    pub(super) lanes: Lanes,
    pub(super) logging: Logging,
    failure: Option<JobError>,
    /// Somebody wants the job to end.
    cancelled: bool,
    result: Option<Result<Vec<u8>, JobError>>,
    started: Duration,
    pub(super) watchdog: Watchdog,
    /// How often the program has called.
    pub(super) calls: u64,
    pub(super) unread: Unread,
    /// Who wants to know what the job waits for, while its nodes are asked.
    pub(super) questions: BTreeMap<u64, Reply<Why>>,
    pub(super) reads: Reads,
    /// Nodes that are silent, and since when.
    pub(super) suspected: BTreeMap<NodeId, Duration>,
    /// Why the Scheduler does not give what is asked for.
    refused_for: Option<String>,
    owner_bytes_peak: u64,
    /// What [`growing_bytes`](Self::growing_bytes) were when all of its memory was counted last.
    counted_bytes: u64,
    pub(super) admission: Arc<Ticket>,
    ending: Option<Ending>,
    _living: Living,
}

/// A job that is over but for the last figures of some nodes.
struct Ending {
    result: Result<Vec<u8>, JobError>,
    awaited: BTreeSet<NodeId>,
}

impl OwnerActor {
    pub(crate) fn new(parts: OwnerParts) -> Self {
        let clock = parts.post.clock().clone();
        let now = clock.now();
        let mut owner = Self {
            _living: parts.post.census().living(Kind::Owner),
            clock,
            post: parts.post,
            job: parts.job,
            tenant: parts.tenant,
            scheduler: parts.scheduler,
            store: parts.store,
            stager: parts.stager,
            events: parts.events,
            done: Some(parts.done),
            state: OwnerState::new(parts.job),
            waiters: HashMap::new(),
            next_tracker: 1,
            nodes: HashMap::new(),
            leasing: Leasing::default(),
            asking: false,
            figures: JobFigures::default(),
            figures_here: parts.figures,
            frees: BTreeMap::new(),
            recalls: BTreeMap::new(),
            lanes: Lanes::default(),
            logging: Logging::new(parts.log),
            failure: None,
            cancelled: false,
            result: None,
            started: now,
            watchdog: Watchdog::new(now),
            calls: 0,
            unread: Unread::default(),
            questions: BTreeMap::new(),
            reads: Reads::default(),
            suspected: BTreeMap::new(),
            refused_for: None,
            owner_bytes_peak: 0,
            counted_bytes: 0,
            admission: parts.admission,
            ending: None,
        };
        owner.state.is_at_home(owner.post.node(), owner.post.incarnation());
        owner.nodes_said(parts.cluster);
        owner
    }

    fn emit(&self, node: NodeId, kind: EventKind) {
        if let Some(events) = &self.events {
            let at_us = self.clock.now().saturating_sub(self.started).as_micros() as u64;
            events.emit(Event { at_us, node, job: Some(self.job), kind });
        }
    }

    pub(super) fn emit_here(&self, kind: EventKind) {
        self.emit(self.post.node().clone(), kind);
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Whether it has said how it ends: nothing comes of it any more.
    fn is_over(&self) -> bool {
        self.done.is_none()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Questions of the program that are not answered; streams are none, they are read when there is something.
    pub(super) fn open_questions(&self) -> u64 {
        self.waiters.values().filter(|waiter| !matches!(waiter, Waiter::Stream(_))).count() as u64
    }

    /// Why the Scheduler does not give what is asked for.
    pub(super) fn refused_for(&self) -> Option<String> {
        self.refused_for.clone()
    }

    fn program(&mut self, call: ProgramCall) {
        self.calls += 1;
        match call {
            ProgramCall::Submit { id, description } => self.state.submit(id, description),
            ProgramCall::Put { object, number, output } => {
                self.state.put((object, number), output, self.post.node(), self.post.incarnation());
            }
            ProgramCall::Track { object, notify } => {
                let tracker = self.wait(Waiter::Notify(notify));
                self.state.track_made(object, tracker);
            }
            ProgramCall::TrackStream { task, queue } => {
                self.unread.add(queue.unread());
                let tracker = self.wait(Waiter::Stream(queue));
                self.state.track_stream(task, tracker);
            }
            ProgramCall::Get { object, parts, answer } => {
                let tracker = self.wait(Waiter::Get { parts, answer });
                self.state.track(object, tracker);
            }
            ProgramCall::Stat { object, answer } => {
                let tracker = self.wait(Waiter::Stat(answer));
                self.state.track_made(object, tracker);
            }
            ProgramCall::MakeSet { set, members, exchange } => self.state.make_set(set, &members, exchange),
            ProgramCall::ReleaseObject(object) => self.state.release_object(object),
            ProgramCall::ReleaseSet(set) => self.state.release_set(set),
            ProgramCall::ReleaseStream(task) => self.state.release_stream(task),
            ProgramCall::Cancel(object) => self.state.cancel_maker(object),
            ProgramCall::OpenLane { lane, node, ranges, fold_at, news } => {
                self.open_lane(lane, node, ranges, fold_at, news);
            }
            ProgramCall::Push { object, lanes } => self.lanes.push(&self.state, object, lanes),
            ProgramCall::MayGiveUp(object) => self.state.may_give_up(object),
            ProgramCall::Locations { object, answer } => {
                let _ = answer.send(self.state.locations(object));
            }
            ProgramCall::Plan { stage, tasks, bytes } => {
                self.emit_here(EventKind::StagePlanned { stage, tasks, bytes });
            }
            ProgramCall::Say { text } => {
                info!(job_id = %self.job, text, "the program says");
                self.emit_here(EventKind::Note { text });
            }
            ProgramCall::OwnerBytes { answer } => {
                let _ = answer.send(self.state.bytes());
            }
            ProgramCall::Chose(choice) => self.note_choice(choice),
            ProgramCall::Finished(result) => self.result = Some(result),
        }
    }

    fn act(&mut self, effect: Effect, scope: &mut Scope<'_, Self>) {
        match effect {
            Effect::DefineSet { node, set } => self.define_set(&node, set),
            Effect::Run { node, spec } => {
                let owner = self.post.node().clone();
                let (task, attempt) = (spec.id, spec.attempt);
                if let Err(error) = self.node(&node).send(NodeMsg::Run { owner, spec: *spec }) {
                    warn!(job_id = %self.job, task_id = %task, %error, "task not sent");
                    let incarnation = self.state.life_of(&node);
                    let _ = scope.inbox().send(OwnerMsg::Recalled { node, incarnation, task, attempt });
                }
            }
            Effect::Recall { node, task, attempt } => self.recalls.entry(node).or_default().push((task, attempt)),
            Effect::Cancel { node, task, attempt } => {
                let job = self.job;
                self.tell(&node, NodeMsg::Cancel { job, task, attempt });
            }
            Effect::Free { node, copy } => self.free_when_durable(node, Freed::Copy(copy)),
            Effect::Restore { copy, maker, bytes, rows, row_hash } => {
                let bytes_hint = bytes.len() as u64;
                let options = WriterOptions { bytes_hint, maker: maker.get(), ..WriterOptions::default() };
                if let Err(error) = self.store.put_as(copy, options, &bytes, rows, row_hash) {
                    warn!(job_id = %self.job, copy_id = %copy, %error, "lost output not put back");
                    self.state.not_restored(copy);
                }
            }
            Effect::TakeInventory { node } => {
                // It is another process or another life, or what it was told may be lost: it knows nothing of this job.
                self.nodes.remove(&node);
                self.take_inventory(&node);
            }
            Effect::Doubt { node, of } => {
                let message = NodeMsg::Doubt { job: self.job, nodes: of.into() };
                self.tell(&node, message);
            }
            Effect::FreeParts { node, set, version, parts } => {
                self.free_when_durable(node, Freed::Parts(set, version, parts));
            }
            Effect::Resolved { tracker, object, outcome } => self.resolved(tracker, object, outcome, scope),
            Effect::Streamed { tracker, item } => self.streamed(tracker, item),
            Effect::Demand(demand) => {
                self.leasing.wants(demand);
                self.say_demand();
            }
            Effect::Event { at, kind } => {
                if let EventKind::TaskFailed { task, attempt, stage, error, last, .. } = &kind {
                    info!(job_id = %self.job, task_id = %task, %attempt, %stage, error, last, "attempt failed");
                }
                self.emit(at, kind);
            }
            Effect::Fail(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }

    pub(super) fn node(&mut self, node: &NodeId) -> &Address<NodeMsg> {
        if !self.nodes.contains_key(node) {
            let address = self.post.address(node, protocol::node_manager::ACTOR);
            let (job, owner) = (self.job, self.post.node().clone());
            let sample_ms = self.events.as_ref().map_or(0, EventSink::sample_ms);
            if let Err(error) = address.send(NodeMsg::Watch { job, owner, sample_ms }) {
                warn!(job_id = %job, %error, "node not watched");
            }
            self.nodes.insert(node.clone(), address);
        }
        &self.nodes[node]
    }

    pub(super) fn tell(&mut self, node: &NodeId, message: NodeMsg) {
        // A node that cannot be reached is dead or full; Membership tells which.
        if let Err(error) = self.node(node).send(message) {
            warn!(job_id = %self.job, %error, "node not told");
        }
    }

    fn define_set(&mut self, node: &NodeId, set: SetId) {
        let (version, members) = self.state.set_members(set);
        let (job, run) = (self.job, self.state.run());
        let total = members.len() as u32;
        // A set without members is told, too: one message without any.
        let chunks = members.chunks(SET_MEMBERS_PER_MESSAGE).chain(members.is_empty().then_some(&[][..]));
        for (index, chunk) in chunks.enumerate() {
            let members = chunk.iter().cloned().collect();
            let start = (index * SET_MEMBERS_PER_MESSAGE) as u32;
            self.tell(node, NodeMsg::DefineSet { job, run, set, version, start, total, members });
        }
    }

    fn say_demand(&mut self) {
        let asker = Asker {
            job: self.job,
            tenant: self.tenant.clone(),
            node: self.post.node().clone(),
            incarnation: self.post.incarnation(),
        };
        let in_use = |node: &NodeId, leased: &Resources| self.state.in_use(node, leased);
        let demand = self.leasing.demand(asker, self.scheduler.epoch(), in_use);
        if let Err(error) = self.scheduler.send(SchedulerMsg::Demand(demand)) {
            debug!(job_id = %self.job, %error, "scheduler not told");
        }
    }

    /// Whether a word of this reign counts.
    fn is_of_now(&mut self, epoch: Epoch) -> bool {
        let now = self.leasing.is_of_now(epoch, self.scheduler.epoch());
        if !now {
            self.post.count_stale(1);
            debug!(job_id = %self.job, epoch = epoch.0, "word of a scheduler that is over");
        }
        now
    }

    fn waits_for(&mut self, wait: Option<Wait>) {
        if let Some(error) = self.state.refused(wait.as_ref()) {
            self.failure.get_or_insert(error);
        }
        self.refused_for = wait.map(|wait| wait.reason);
    }

    fn leased(&mut self, epoch: Epoch, leases: Vec<Lease>, scope: &mut Scope<'_, Self>) {
        self.leasing.leased(self.clock.now(), epoch, leases);
        self.state.leases(&self.leasing.lent());
        if !self.asking && self.state.unheard().next().is_some() {
            self.asking = true;
            let scheduler = self.scheduler.clone();
            scope.later(async move {
                let nodes = scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, NODES_DEADLINE).await;
                Some(OwnerEvent::Nodes(nodes.unwrap_or_default()))
            });
        }
    }

    /// Leases run out when the Scheduler is there and does not renew them. While none speaks, they go on.
    fn run_out(&mut self) {
        if self.leasing.run_out(self.clock.now(), self.scheduler.speaks()) {
            warn!(job_id = %self.job, "leases were not renewed in time and have ended");
            self.state.leases(&self.leasing.lent());
        }
    }

    fn nodes_said(&mut self, nodes: Vec<NodeInfo>) {
        for NodeInfo { spec, .. } in nodes.into_iter().filter(|info| info.up) {
            self.state.offers(&spec.node, spec.incarnation, spec.functions.into_iter().collect());
            self.state.could_lend(&spec.node, spec.incarnation, spec.resources);
        }
    }

    fn tick(&mut self, scope: &mut Scope<'_, Self>) {
        self.run_out();
        self.state.rebalance();
        self.say_demand();
        self.count_tables();
        self.watch(scope);
    }

    /// What grows fast, and is known without a walk.
    fn growing_bytes(&self) -> u64 {
        self.state.entries_bytes() + self.logging.waiting_bytes()
    }

    /// Says what the tables take by now, with what waits for the log; a walk over all tasks, objects and sets.
    fn count_tables(&mut self) {
        let bytes = self.state.bytes();
        self.owner_bytes_peak = self.owner_bytes_peak.max(bytes);
        self.counted_bytes = self.growing_bytes();
        self.admission.takes(bytes + self.logging.waiting_bytes());
    }

    /// Ends the job: everything of it is given back everywhere. The nodes answer with their last figures.
    pub(super) fn end(&mut self, result: Result<Vec<u8>, JobError>, scope: &mut Scope<'_, Self>) {
        self.count_tables();
        let job = self.job;
        let mut awaited = BTreeSet::new();
        for (node, address) in &self.nodes {
            match address.send(NodeMsg::EndJob { job }) {
                // Who waits for the end has the figures of this process at hand.
                Ok(()) if node != self.post.node() && self.state.is_alive(node) => drop(awaited.insert(node.clone())),
                Ok(()) => {}
                Err(error) => warn!(job_id = %job, %node, %error, "node not told of the end"),
            }
        }
        self.lanes.end(job);
        self.store.delete_group(job.group());
        if let Err(error) = self.scheduler.send(SchedulerMsg::JobDone { job }) {
            warn!(job_id = %job, %error, "scheduler not told of the end");
        }
        self.ending = Some(Ending { result, awaited });
        self.answer_open_questions();
        scope.after(FAREWELL, OwnerEvent::Close);
    }

    /// Says how the job ended, when all nodes that are awaited have answered.
    fn close(&mut self, scope: &mut Scope<'_, Self>) {
        if self.ending.as_ref().is_none_or(|ending| !ending.awaited.is_empty()) {
            return;
        }
        let (Some(Ending { result, .. }), Some(done)) = (self.ending.take(), self.done.take()) else { return };
        let error = result.as_ref().err().map(ToString::to_string);
        // The others have said theirs.
        self.figured(self.post.node().clone(), (self.figures_here)(), self.stager.received.read());
        self.emit_here(EventKind::JobFinished { error });
        let nodes = std::mem::take(&mut self.figures).into_nodes();
        let _ = done.send(JobOutcome::Over { result, nodes, owner_bytes_peak: self.owner_bytes_peak });
        scope.stop();
    }

    pub(super) fn send_frees(&mut self, node: &NodeId) {
        let job = self.job;
        for chunk in self.frees.remove(node).unwrap_or_default().chunks(SET_MEMBERS_PER_MESSAGE) {
            self.tell(node, NodeMsg::Free { job, copies: chunk.iter().copied().collect() });
        }
    }

    fn send_collected(&mut self) {
        let job = self.job;
        while let Some(node) = self.frees.keys().next().cloned() {
            self.send_frees(&node);
        }
        for (node, tasks) in std::mem::take(&mut self.recalls) {
            for chunk in tasks.chunks(SET_MEMBERS_PER_MESSAGE) {
                self.tell(&node, NodeMsg::Recall { job, tasks: chunk.to_vec() });
            }
        }
    }

    fn figured(&mut self, node: NodeId, figures: NodeFigures, received: Vec<Received>) {
        for from_one in received {
            self.emit(node.clone(), EventKind::Received(from_one));
        }
        let figures = self.figures.said(&node, figures);
        self.watchdog.figures(&node, &figures);
        self.emit(node, EventKind::NodeFigures(figures));
    }

    fn node_state(&mut self, node: NodeId, incarnation: Incarnation, state: NodeState) {
        self.emit_here(EventKind::Node { about: node.clone(), state });
        match state {
            NodeState::Suspected => drop(self.suspected.entry(node.clone()).or_insert(self.clock.now())),
            NodeState::Up | NodeState::Dead | NodeState::Left => drop(self.suspected.remove(&node)),
        }
        if matches!(state, NodeState::Dead | NodeState::Left) {
            if let Some(ending) = &mut self.ending {
                ending.awaited.remove(&node);
            }
            self.logging.answers_no_more(&node);
            self.state.node_dead(&node, incarnation);
        } else if state == NodeState::Up {
            self.state.node_up(&node, incarnation);
        }
    }

    fn message(&mut self, message: OwnerMsg, scope: &mut Scope<'_, Self>) {
        match message {
            OwnerMsg::Completed { node, incarnation, task, attempt, outputs, consumed, figures, values } => {
                let made_by = self.state.completed((&node, incarnation), task, attempt, &outputs, &consumed, figures);
                if let Some(made_by) = made_by {
                    if node != *self.post.node() {
                        self.state.values(task, attempt, &values);
                    }
                    self.note_done(TaskDone { task, node, outputs, made_by, consumed, values });
                }
            }
            OwnerMsg::Yielded { node, incarnation, task, attempt, index, output } => {
                self.watchdog.output();
                self.state.yielded((&node, incarnation), task, attempt, index, output);
            }
            OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures } => {
                self.state.failed((&node, incarnation), task, attempt, failure, figures);
            }
            OwnerMsg::Recalled { node, incarnation, task, attempt } => {
                self.state.recalled((&node, incarnation), task, attempt);
            }
            OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last } => {
                // What came before may have had something freed there.
                self.flush(scope);
                let held = copies.iter(self.job).zip(makers).zip(outputs);
                let held = held.map(|((copy, maker), output)| (copy, maker, output));
                self.inventory((&node, incarnation), held, last);
            }
            OwnerMsg::SetUnknown { node, set } => self.state.set_unknown(&node, set),
            // One that has ended its job has the last word.
            OwnerMsg::TakenOver { run } if run > self.state.run() && !self.is_ending() => self.taken_over(scope),
            OwnerMsg::TakenOver { .. } => {}
            OwnerMsg::Rejected { node, task, reason } => self.state.rejected(&node, task, reason),
            OwnerMsg::Leases { epoch, leases, wait } if self.is_of_now(epoch) => {
                self.waits_for(wait);
                if let Some(leases) = leases {
                    self.leased(epoch, leases, scope);
                }
            }
            OwnerMsg::Leases { .. } => {}
            OwnerMsg::NodeFigures { node, figures, received, last, running } => {
                if let Some(ending) = self.ending.as_mut().filter(|_| last) {
                    ending.awaited.remove(&node);
                }
                self.watchdog.runs(&node, &running);
                self.state.still_running(&node, &running);
                self.figured(node, figures, received);
            }
            OwnerMsg::FoldDue { node, lane, blocks, bytes, tight } => {
                let count = blocks.len() as u32;
                let blocks = blocks.iter(self.job).map(|block| ObjectId::of_copy(block).0).collect();
                if self.lanes.fold_due(lane, blocks) {
                    self.emit(node, EventKind::FoldDue { blocks: count, bytes, tight });
                }
            }
            OwnerMsg::Why { ask, reply } => self.asked_why(ask, reply, scope),
            OwnerMsg::Cancel => self.cancelled = true,
        }
    }
}

impl Actor for OwnerActor {
    type Message = OwnerMsg;
    type Event = OwnerEvent;

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        let here = self.post.node().clone();
        // From here on, whatever the node manager says later: a job may be over before it does.
        self.figures.said(&here, (self.figures_here)());
        self.forget_earlier_runs();
        self.node(&here);
        self.begin_log(scope);
        scope.after(TICK, OwnerEvent::Tick);
    }

    fn handle(&mut self, event: OwnerEvent, scope: &mut Scope<'_, Self>) {
        // The rest of the batch in which it ended: what an Owner that was taken over makes of it is nobody's business.
        if self.is_over() {
            return;
        }
        match event {
            OwnerEvent::Wire(message) => self.message(message, scope),
            OwnerEvent::Program(call) => self.program(call),
            OwnerEvent::NewReign => {
                self.say_demand();
                self.logging.new_reign();
            }
            OwnerEvent::Nodes(nodes) => {
                self.asking = false;
                self.nodes_said(nodes);
            }
            OwnerEvent::NodeState { node, incarnation, state } => self.node_state(node, incarnation, state),
            OwnerEvent::SessionReset { node, incarnation } => self.state.session_reset(&node, incarnation),
            OwnerEvent::Log(news) => self.log_news(news, scope),
            OwnerEvent::Settle => self.logging.settle(),
            OwnerEvent::Unreadable { copy, parts, answer } => {
                self.state.unreadable(copy);
                // Not at once: what is put back is there only when that has been done.
                let tracker = self.wait(Waiter::Get { parts, answer });
                self.state.track(ObjectId::of_copy(copy).0, tracker);
            }
            OwnerEvent::Told(told) => self.told(told),
            OwnerEvent::Close => {
                if let Some(ending) = &mut self.ending {
                    ending.awaited.clear();
                }
            }
            OwnerEvent::Tick if self.ending.is_some() => {}
            OwnerEvent::Tick => {
                self.tick(scope);
                scope.after(TICK, OwnerEvent::Tick);
            }
        }
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        if self.is_over() {
            return;
        }
        if self.ending.is_some() {
            return self.close(scope);
        }
        for effect in self.state.flush() {
            self.act(effect, scope);
        }
        if self.growing_bytes() >= self.counted_bytes + COUNT_AGAIN_BYTES {
            self.count_tables();
        }
        self.send_collected();
        self.lanes.send(self.job);
        if self.cancelled && !self.state.is_committing() {
            self.cancelled = false;
            self.failure.get_or_insert(JobError::Cancelled);
        }
        let result = match (self.failure.take(), self.result.take()) {
            (Some(error), _) => Some(Err(error)),
            (None, Some(Ok(value))) => Some(self.state.close().map(|()| value)),
            (None, other) => other,
        };
        if let Some(result) = result {
            self.end_when_durable(result, scope);
        }
        self.close(scope);
    }
}
