//! The NodeManager's shell: messages in, executors, staging and answers out.

mod counting;
mod saying;

#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod test_world;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::{Clock, Store};
use tracing::{debug, warn};

use self::counting::Counted;
use super::event::NodeEvent;
use super::executor::{ExecutorLink, Flags, Report, Work};
use super::losses::objects_of;
use crate::protocol;
use crate::protocol::copies::{LocatedObjects, Whereabouts};
use crate::protocol::node_manager::{INVENTORY_PER_MESSAGE, NodeMsg};
use crate::protocol::owner::OwnerMsg;

use super::staging::{Members, Prepared, Stager, StagingDone, Version};
use super::state::{Effect, Key, NodeState, Phase};
use super::waits::Waits;
use super::why::Trail;
use crate::event::NodeFigures;
use crate::ids::{Incarnation, JobId, NodeId, SetId};
use crate::registry::{Function, VALUE_MAX_BYTES};
use crate::scheduler::SchedulerLink;
use crate::shell::{Actor, Address, Inbox, Kind, Post, Scope};
use crate::task::{
    Consumed, FailureKind, LocatedSource, Output, Parts, Resources, TaskFailure, TaskFigures, TaskSpec, TaskTiming,
};

/// How often timeouts are looked after and figures are sent.
const TICK: Duration = Duration::from_millis(500);
/// Small outputs are told to the Owner with the completion where there are so many outputs at most.
const VALUES_MAX: usize = 16;
/// So many ticks apart the Scheduler is told of which jobs something is here.
const HOLDS_EVERY: u64 = 4;
/// Figures are not taken more often than this: taking them costs some 50 us.
const SAMPLE_MIN_MS: u64 = 20;

/// What a NodeManager is made of.
pub struct NodeManagerParts {
    pub(crate) post: Post,
    pub(crate) store: Store,
    pub(crate) stager: Stager,
    /// They outlive a life of the node; its attempts do not.
    pub(crate) executors: Arc<dyn ExecutorLink>,
    /// What the node offers.
    pub(crate) functions: BTreeMap<Arc<str>, &'static Function>,
    pub(crate) resources: Resources,
    /// How long to stay awake for a task that was handed out.
    pub(crate) spin: Duration,
    /// Figures of the process, taken now.
    pub(crate) figures: Box<dyn Fn() -> NodeFigures>,
    /// Who is told of which jobs something is here. None where the node is alone: it knows its jobs, and what it has of others may be
    /// taken up again.
    pub(crate) scheduler: Option<SchedulerLink>,
}

/// The actor.
pub struct NodeManager {
    post: Post,
    incarnation: Incarnation,
    clock: Arc<dyn Clock>,
    store: Store,
    stager: Stager,
    executors: Arc<dyn ExecutorLink>,
    /// Where they report.
    reports: Arc<Inbox<NodeEvent>>,
    functions: BTreeMap<Arc<str>, &'static Function>,
    figures: Box<dyn Fn() -> NodeFigures>,
    state: NodeState,
    attempts: HashMap<Key, Running>,
    /// Attempts that were cancelled and run on until they look.
    cancelled: HashMap<Key, Cancelled>,
    sets: HashMap<(JobId, SetId), Arc<Members>>,
    owners: HashMap<JobId, Address<OwnerMsg>>,
    /// The latest run of jobs that were taken up again.
    runs: HashMap<JobId, u32>,
    /// Who hears of this node's figures, and how often, milliseconds; 0: with every tick.
    watched: BTreeMap<JobId, u64>,
    /// Whether a [`NodeEvent::Sample`] is under way.
    sampling: bool,
    /// Bytes from each node that the Owners have heard of.
    received_told: BTreeMap<NodeId, u64>,
    awake: Rc<Cell<bool>>,
    awake_until: Rc<Cell<Duration>>,
    spin: Duration,
    scheduler: Option<SchedulerLink>,
    ticks: u64,
    /// What of all this is told to the store.
    counted: Counted,
}

/// An attempt on this node.
struct Running {
    owner: NodeId,
    spec: Arc<TaskSpec>,
    function: &'static Function,
    prepared: Option<Prepared>,
    flags: Arc<Flags>,
    timed_out: bool,
    /// When it came here, or when its arguments were ready.
    waits_since: Duration,
    /// What it has waited for so far.
    waited: TaskTiming,
    /// Where its staging is, once it has begun.
    trail: Option<Trail>,
}

/// An attempt that runs on although it was cancelled.
struct Cancelled {
    flags: Arc<Flags>,
    /// How many outputs it may seal and have told nobody of when it ends.
    outputs: u32,
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

impl NodeManager {
    /// A NodeManager without tasks, whose mailbox is `inbox`.
    pub fn new(parts: NodeManagerParts, inbox: &Inbox<NodeEvent>) -> Self {
        Self {
            incarnation: parts.post.incarnation(),
            clock: parts.post.clock().clone(),
            state: NodeState::new(parts.executors.count(), parts.resources),
            counted: Counted::new(|| parts.store.outside()),
            post: parts.post,
            store: parts.store,
            stager: parts.stager,
            executors: parts.executors,
            reports: Arc::new(inbox.clone()),
            functions: parts.functions,
            figures: parts.figures,
            attempts: HashMap::new(),
            cancelled: HashMap::new(),
            sets: HashMap::new(),
            owners: HashMap::new(),
            runs: HashMap::new(),
            watched: BTreeMap::new(),
            sampling: false,
            received_told: BTreeMap::new(),
            awake: Rc::default(),
            awake_until: Rc::default(),
            spin: parts.spin,
            scheduler: parts.scheduler,
            ticks: 0,
        }
    }

    fn node(&self) -> NodeId {
        self.post.node().clone()
    }

    fn owner(&mut self, job: JobId, node: &NodeId) -> Address<OwnerMsg> {
        let post = &self.post;
        self.owners.entry(job).or_insert_with(|| post.address(node, &protocol::owner::actor_name(job))).clone()
    }

    fn tell(&mut self, job: JobId, node: &NodeId, message: OwnerMsg) {
        // An Owner that cannot be reached is gone or on a node that is: its Membership says which, and ends the job.
        if let Err(error) = self.owner(job, node).send(message) {
            debug!(job_id = %job, %error, "owner not told");
        }
    }

    /// Whether a job is known to have begun again since this run of it: an Owner of that run is over, and may know nothing of it.
    fn is_taken_over(&self, job: JobId, run: u32) -> bool {
        self.runs.get(&job).is_some_and(|latest| run < *latest)
    }

    /// Whether a job has begun again since this run of it; its Owner is told so. It learns it from the log, too.
    fn turns_away(&self, job: JobId, owner: &NodeId, run: u32) -> bool {
        let taken_over = self.is_taken_over(job, run);
        if taken_over {
            let asks = self.post.address::<OwnerMsg>(owner, &protocol::owner::actor_name(job));
            let _ = asks.send(OwnerMsg::TakenOver { run: self.runs[&job] });
        }
        taken_over
    }

    fn run(&mut self, owner: NodeId, spec: TaskSpec) {
        let key = (spec.job, spec.id, spec.attempt);
        if self.turns_away(spec.job, &owner, spec.attempt.run()) {
            self.post.count_stale(1);
            return;
        }
        let Some(function) = self.functions.get(&spec.function).copied() else {
            let message = format!("function {} is not known to node {}", spec.function, self.post.node());
            return self.fail(key, &owner, TaskFailure::new(FailureKind::Rejected, message), None);
        };
        let mut prepared = Some(Prepared::default());
        if !spec.args.is_empty() || !spec.scratch_bytes.is_empty() {
            prepared = self.stager.at_once(&spec, function, &|id| self.sets.get(&(spec.job, id)).cloned());
        }
        if !self.state.add(key, function.name, spec.resources.clone(), prepared.is_none(), spec.alone) {
            return;
        }
        let bytes = counting::attempt_bytes(&spec);
        let (spec, flags) = (Arc::new(spec), Arc::default());
        let timed_out = false;
        let (waits_since, waited) = (self.clock.now(), TaskTiming::default());
        let trail = None;
        let running = Running { owner, spec, function, prepared, flags, timed_out, waits_since, waited, trail };
        self.attempts.insert(key, running);
        self.grew(bytes);
    }

    /// `figures`: of an attempt that ran.
    fn fail(&mut self, key: Key, owner: &NodeId, failure: TaskFailure, figures: Option<TaskFigures>) {
        let (node, incarnation) = (self.node(), self.incarnation);
        let (job, task, attempt) = key;
        self.tell(job, owner, OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures });
    }

    fn stage(&mut self, key: Key, scope: &mut Scope<'_, Self>) {
        let now = self.clock.now();
        self.ask_for_sets(key);
        let Some(running) = self.attempts.get_mut(&key) else { return };
        running.waited.queued_us = micros(now.saturating_sub(running.waits_since));
        let sets = |id| self.sets.get(&(key.0, id)).cloned();
        let trail = Trail::new(&self.clock);
        running.trail = Some(trail.clone());
        let work = self.stager.stage(&running.spec, running.function, &sets, trail);
        scope.later(async move { Some(NodeEvent::Staged(StagingDone { key, outcome: work.await })) });
    }

    /// Asks for the sets that an attempt reads and this node does not know: it fails, and the next one finds them.
    fn ask_for_sets(&mut self, (job, task, attempt): Key) {
        let Some(running) = self.attempts.get(&(job, task, attempt)) else { return };
        let known = |set, version| {
            let known = self.sets.get(&(job, set));
            known.is_some_and(|known| known.is_known((attempt.run(), version)))
        };
        let unknown = running.spec.args.iter().filter_map(|arg| match arg.source {
            LocatedSource::Set { set, version } if !known(set, version) => Some(set),
            LocatedSource::Set { .. } | LocatedSource::Object { .. } => None,
        });
        let (owner, unknown) = (running.owner.clone(), unknown.collect::<Vec<_>>());
        for set in unknown {
            let node = self.node();
            self.tell(job, &owner, OwnerMsg::SetUnknown { node, set });
        }
    }

    fn staged(&mut self, done: StagingDone) {
        match done.outcome {
            Ok(prepared) => {
                // Taken back or cancelled meanwhile: the memory goes with it.
                if self.state.staged(done.key)
                    && let Some(running) = self.attempts.get_mut(&done.key)
                {
                    let Waits { memory, load, fetch } = prepared.waits;
                    let (memory_us, load_us, fetch_us) = (micros(memory), micros(load), micros(fetch));
                    running.waited = TaskTiming { memory_us, load_us, fetch_us, ..running.waited };
                    running.waits_since = self.clock.now();
                    running.prepared = Some(prepared);
                }
            }
            Err(failure) => {
                if let Some(running) = self.forget(done.key, None) {
                    self.fail(done.key, &running.owner, failure, None);
                }
            }
        }
    }

    fn hand(&mut self, key: Key) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Prepared { args, memory, copies, .. } = running.prepared.take().unwrap_or_default();
        self.executors.run(Work {
            owner: running.owner.clone(),
            spec: running.spec.clone(),
            function: running.function,
            args,
            memory,
            copies,
            flags: running.flags.clone(),
            reports: self.reports.clone(),
        });
    }

    /// Keeps this thread from sleeping for a moment after it handed out work: a short task is back before a sleeping core
    /// is awake again.
    fn stay_awake(&mut self, scope: &mut Scope<'_, Self>) {
        self.awake_until.set(self.clock.now() + self.spin);
        if self.awake.replace(true) {
            return;
        }
        let (clock, awake, until) = (self.clock.clone(), self.awake.clone(), self.awake_until.clone());
        scope.later(async move {
            while clock.now() < until.get() {
                tokio::task::yield_now().await;
            }
            awake.set(false);
            None
        });
    }

    fn forget(&mut self, key: Key, micros: Option<u64>) -> Option<Running> {
        self.state.remove(key, micros);
        self.attempts.remove(&key)
    }

    fn report(&mut self, report: Report) {
        let (node, incarnation) = (self.node(), self.incarnation);
        match report {
            Report::Yielded { job, task, attempt, index, output } => {
                let message = OwnerMsg::Yielded { node, incarnation, task, attempt, index, output };
                match self.attempts.get(&(job, task, attempt)).map(|running| running.owner.clone()) {
                    Some(owner) => self.tell(job, &owner, message),
                    None => self.delete_made((job, task, attempt), index..index + 1),
                }
            }
            Report::Finished { job, task, attempt, outcome, mut figures, value } => {
                let key = (job, task, attempt);
                let Some(running) = self.forget(key, outcome.is_ok().then_some(figures.micros)) else {
                    let outputs = self.cancelled.remove(&key).map_or(0, |cancelled| cancelled.outputs);
                    return self.ended_in_vain(key, outputs, outcome, figures);
                };
                let TaskTiming { executor, started_us, .. } = figures.timing;
                let ready_us = started_us.saturating_sub(micros(running.waits_since));
                figures.timing = TaskTiming { executor, started_us, ready_us, ..running.waited };
                match outcome {
                    Ok((outputs, consumed)) => {
                        let values = self.small(&running.owner, key, &outputs, value);
                        let message = OwnerMsg::Completed {
                            node,
                            incarnation,
                            task,
                            attempt,
                            outputs,
                            consumed,
                            figures,
                            values,
                        };
                        self.tell(job, &running.owner, message);
                    }
                    Err(_) if running.timed_out => {
                        self.delete_made(key, 0..running.spec.announced_at_its_end());
                        let message = format!("after {} ms", running.spec.timeout_ms);
                        let failure = TaskFailure::new(FailureKind::Timeout, message);
                        self.fail(key, &running.owner, failure, Some(figures));
                    }
                    Err(failure) => {
                        self.delete_made(key, 0..running.spec.announced_at_its_end());
                        let objects = objects_of(&running.spec, &|id| self.sets.get(&(job, id)).cloned());
                        let failure = self.stager.with_losses(failure, objects.iter());
                        self.fail(key, &running.owner, failure, Some(figures));
                    }
                }
            }
        }
    }

    /// The bytes of small outputs, for the job's log, and for an Owner on another node: what a job would have to begin anew for,
    /// should this node be lost, is often a few bytes that say what was written where.
    fn small(
        &self,
        owner: &NodeId,
        (job, task, attempt): Key,
        outputs: &[Output],
        value: Option<Bytes>,
    ) -> Vec<(u32, Bytes)> {
        if let Some(value) = value {
            return vec![(0, value)];
        }
        if *owner == *self.post.node() || outputs.len() > VALUES_MAX {
            return Vec::new();
        }
        let small = (0..).zip(outputs).filter(|(_, output)| (1..=VALUE_MAX_BYTES as u64).contains(&output.bytes));
        let value = |(index, _): (u32, &Output)| {
            let id = task.output(index).copy(job, attempt.makes());
            // What has several parts is put back without knowing where they end: it is made again.
            self.store.meta(&id).filter(|meta| meta.parts.len() == 1)?;
            Some((index, Bytes::copy_from_slice(&self.store.try_get(&id, Parts::All)?)))
        };
        small.filter_map(value).collect()
    }

    /// An attempt has ended that had been cancelled: what it has made is nobody's, and goes. Its Owner compares what it made with what
    /// another attempt made.
    fn ended_in_vain(
        &mut self,
        key: Key,
        may_have_sealed: u32,
        outcome: Result<(Vec<Output>, Vec<Consumed>), TaskFailure>,
        figures: TaskFigures,
    ) {
        self.delete_made(key, 0..may_have_sealed);
        let (job, task, attempt) = key;
        if let (Ok((outputs, consumed)), Some(owner)) = (outcome, self.owners.get(&job)) {
            let (node, incarnation, values) = (self.node(), self.incarnation, Vec::new());
            let message = OwnerMsg::Completed { node, incarnation, task, attempt, outputs, consumed, figures, values };
            if let Err(error) = owner.send(message) {
                debug!(job_id = %job, %error, "owner not told of an attempt that it had cancelled");
            }
        }
    }

    /// Deletes what an attempt has made and its Owner does not count: its copies have names of their own.
    fn delete_made(&self, (job, task, attempt): Key, outputs: Range<u32>) {
        self.store.delete(&outputs.map(|index| task.output(index).copy(job, attempt.makes())).collect::<Vec<_>>());
    }

    /// Takes an attempt back when it has not started.
    fn take_back(&mut self, key: Key) -> Option<Running> {
        let started = match self.state.phase(key)? {
            Phase::Handed => !self.attempts.get(&key)?.flags.take_back(),
            Phase::Queued | Phase::Staging | Phase::Ready => false,
        };
        if started { None } else { self.forget(key, None) }
    }

    fn recall(&mut self, key: Key) {
        if let Some(running) = self.take_back(key) {
            let (node, incarnation, (job, task, attempt)) = (self.node(), self.incarnation, key);
            self.tell(job, &running.owner, OwnerMsg::Recalled { node, incarnation, task, attempt });
        }
    }

    fn cancel(&mut self, key: Key) {
        if self.take_back(key).is_none()
            && let Some(running) = self.attempts.remove(&key)
        {
            // It runs on until it looks; its slot is taken until then, its result is dropped.
            running.flags.cancel();
            let outputs = running.spec.announced_at_its_end();
            self.cancelled.insert(key, Cancelled { flags: running.flags, outputs });
        }
    }

    fn define(
        &mut self,
        (job, set): (JobId, SetId),
        version: Version,
        start: u32,
        total: u32,
        members: &LocatedObjects,
    ) {
        let entry = self.sets.entry((job, set)).or_default();
        if version < entry.version {
            return;
        }
        let known = Arc::make_mut(entry);
        if version > known.version || start == 0 {
            *known = Members { version, ..Members::default() };
        }
        // Though its beginning may not have been heard: it is not empty.
        known.total = total as usize;
        if known.members.len() == start as usize {
            for (object, at) in members.iter() {
                known.members.push(match at {
                    Whereabouts::At(node, number) => Some((object.copy(job, number), node)),
                    Whereabouts::NoBytes => None,
                    Whereabouts::Lost => {
                        known.lost = Some(object);
                        None
                    }
                });
            }
        }
        self.grew(counting::set_bytes(members.len()));
    }

    fn free_parts(&mut self, set: (JobId, SetId), version: Version, parts: Parts) {
        let Some(set) = self.sets.get(&set).filter(|set| set.version == version) else { return };
        let here = set.members.iter().flatten().filter(|(_, at)| at == self.post.node());
        let copies: Vec<_> = here.map(|(copy, _)| *copy).collect();
        self.store.release_parts(&copies, parts);
    }

    /// Says what is here of a job. Its Owner counts no attempt of this node as live: it is another Owner, held the node
    /// dead, or lost the session with it.
    fn take_inventory(&mut self, job: JobId, owner: &NodeId, run: u32) {
        if self.turns_away(job, owner, run) {
            return;
        }
        self.runs.insert(job, run);
        let asks = self.post.address::<OwnerMsg>(owner, &protocol::owner::actor_name(job));
        if let Some(before) = self.owners.insert(job, asks)
            && before.node() != owner
        {
            let _ = before.send(OwnerMsg::TakenOver { run });
        }
        for key in self.state.keys_of(job) {
            self.cancel(key);
            // Should it count one after all, it hands it out again.
            let (node, incarnation, (_, task, attempt)) = (self.node(), self.incarnation, key);
            self.tell(job, owner, OwnerMsg::Recalled { node, incarnation, task, attempt });
        }
        let held = self.store.inventory(job.group());
        // Nothing is said, too.
        let chunks = held.chunks(INVENTORY_PER_MESSAGE).chain(held.is_empty().then_some(&[][..]));
        let count = chunks.clone().count();
        for (index, held) in chunks.enumerate() {
            let (node, incarnation) = (self.node(), self.incarnation);
            let copies = held.iter().map(|(meta, _)| meta.id).collect();
            let makers = held.iter().map(|(_, maker)| *maker).collect();
            let outputs = held.iter().map(|(meta, _)| meta.into()).collect();
            let last = index + 1 == count;
            self.tell(job, owner, OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last });
        }
    }

    fn end_job(&mut self, job: JobId) {
        for key in self.state.keys_of(job) {
            self.cancel(key);
        }
        self.sets.retain(|(of, _), _| *of != job);
        self.store.delete_group(job.group());
        if self.watched.remove(&job).is_some() {
            self.say(job, (self.figures)(), &self.stager.received.read(), true);
        }
        self.owners.remove(&job);
        self.runs.remove(&job);
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        for running in self.attempts.values_mut() {
            let limit = Duration::from_millis(running.spec.timeout_ms);
            // From its start: it may have waited for an executor, or for the node not to be fenced.
            if !limit.is_zero() && running.flags.running_for(now).is_some_and(|time| time > limit) {
                running.timed_out = true;
                running.flags.cancel();
            }
        }
        self.count();
        self.say_figures();
        self.ticks += 1;
        if self.ticks.is_multiple_of(HOLDS_EVERY) {
            self.say_holds();
        }
    }
}

/// With a life of the node end its attempts: those that have started as soon as they look, whatever they make is dropped.
impl Drop for NodeManager {
    fn drop(&mut self) {
        for running in self.attempts.values() {
            if !running.flags.take_back() {
                running.flags.cancel();
            }
        }
    }
}

impl NodeManager {
    fn message(&mut self, message: NodeMsg, scope: &mut Scope<'_, Self>) {
        match message {
            NodeMsg::Run { owner, spec } => self.run(owner, spec),
            NodeMsg::DefineSet { job, run, .. } | NodeMsg::FreeParts { job, run, .. }
                if self.is_taken_over(job, run) =>
            {
                self.post.count_stale(1);
            }
            NodeMsg::DefineSet { job, run, set, version, start, total, members } => {
                self.define((job, set), (run, version), start, total, &members);
            }
            NodeMsg::Recall { job, tasks } => {
                for (task, attempt) in tasks {
                    self.recall((job, task, attempt));
                }
            }
            NodeMsg::Cancel { job, task, attempt } => self.cancel((job, task, attempt)),
            NodeMsg::Free { job, copies } => self.store.delete(&copies.iter(job).collect::<Vec<_>>()),
            NodeMsg::FreeParts { job, run, set, version, parts } => self.free_parts((job, set), (run, version), parts),
            NodeMsg::EndJob { job } => self.end_job(job),
            NodeMsg::TakeInventory { job, owner, run } => self.take_inventory(job, &owner, run),
            NodeMsg::Doubt { nodes, .. } => {
                let now = self.post.clock().now();
                nodes
                    .iter()
                    .filter(|node| *node != self.post.node())
                    .for_each(|node| self.stager.doubts.raise(node, now));
            }
            NodeMsg::Doing { job, attempts, reply } => self.post.answer(reply, self.doing(job, &attempts)),
            NodeMsg::Watch { job, owner, sample_ms } => self.watch(job, &owner, sample_ms, scope),
        }
    }
}

impl Actor for NodeManager {
    type Message = NodeMsg;
    type Event = NodeEvent;

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        scope.after(TICK, NodeEvent::Tick);
    }

    fn handle(&mut self, event: NodeEvent, scope: &mut Scope<'_, Self>) {
        match event {
            NodeEvent::Wire(message) => self.message(message, scope),
            NodeEvent::Executor(report) => self.report(report),
            NodeEvent::Staged(done) => self.staged(done),
            NodeEvent::Sample => {
                self.say_figures();
                self.sample_later(scope);
            }
            NodeEvent::Tick => {
                self.state.tick();
                self.tick();
                scope.after(TICK, NodeEvent::Tick);
            }
        }
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        let census = self.post.census();
        census.set(Kind::Attempt, self.attempts.len() + self.cancelled.len());
        census.set(Kind::Set, self.sets.len());
        census.set(Kind::JobAtNode, self.owners.len().max(self.runs.len()).max(self.watched.len()));
        let mut effects = Vec::new();
        self.state.advance(&mut effects);
        if self.attempts.is_empty() {
            self.awake_until.set(Duration::ZERO);
        } else if !self.spin.is_zero() && effects.iter().any(|effect| matches!(effect, Effect::Hand(_))) {
            self.stay_awake(scope);
        }
        for effect in effects {
            match effect {
                Effect::Stage(key) => self.stage(key, scope),
                Effect::Hand(key) => self.hand(key),
            }
        }
    }

    fn stopped(&mut self) {
        if !self.attempts.is_empty() {
            warn!(node = %self.post.node(), attempts = self.attempts.len(), "node manager stops with work in hand");
        }
    }
}
