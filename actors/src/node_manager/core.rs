//! What a NodeManager decides: one event in, effects out. It has no clock and no store, and talks to nobody: what it shares with
//! executors and with staging are flags and steps.
//!
//! Whoever drives it gives it each event with [`NodeCore::on`], calls [`NodeCore::flush`] after the events that were waiting, and does
//! what [`NodeCore::effects`] says after each of both, in that order.

mod effect;
mod ending;
mod saying;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

pub(crate) use self::effect::{Completed, Listeners, NodeEffect};
use super::event::{NodeEvent, NodeTimer, StagingDone};
use super::executor::Flags;
use super::sets::{Arguments, ENTRY_BYTES, Sets, Version};
use super::state::{Effect, Key, NodeState, Phase, Wants};
use super::waits::Waits;
use super::why::Trail;
use crate::ids::{Incarnation, JobId, NodeId, SetId};
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::registry::Function;
use crate::task::{FailureKind, LocatedArg, Parts, Resources, TaskFailure, TaskSpec, TaskTiming};

/// A list of what is to be done that became longer than this is not kept.
const EFFECTS_KEPT_MAX: usize = 1024;
/// How often timeouts are looked after and figures are sent.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// So many ticks apart the Scheduler is told of which jobs something is here.
const HOLDS_EVERY: u64 = 4;
/// So much more is counted before the next tick.
const COUNT_AGAIN_BYTES: u64 = 1 << 20;

/// A NodeManager, without the world around it. `P` is what an attempt needs to start.
pub(crate) struct NodeCore<P> {
    node: NodeId,
    incarnation: Incarnation,
    /// What the node offers.
    functions: BTreeMap<Arc<str>, &'static Function>,
    state: NodeState,
    attempts: HashMap<Key, Running<P>>,
    /// Attempts that were cancelled and run on until they look.
    cancelled: HashMap<Key, Cancelled>,
    sets: Sets,
    /// The node of each job's Owner.
    owners: HashMap<JobId, NodeId>,
    /// The latest run of jobs that were taken up again.
    runs: HashMap<JobId, u32>,
    /// Who hears of this node's figures, and how often, milliseconds; 0: with every tick.
    watched: BTreeMap<JobId, u64>,
    /// Whether a [`NodeTimer::Sample`] is under way.
    sampling: bool,
    /// Bytes from each node that the Owners have heard of.
    received_told: BTreeMap<NodeId, u64>,
    ticks: u64,
    /// Bytes of attempts and sets that have come since all were counted.
    grown: u64,
    effects: Vec<NodeEffect<P>>,
}

/// An attempt on this node.
struct Running<P> {
    owner: NodeId,
    spec: Arc<TaskSpec>,
    function: &'static Function,
    prepared: Option<P>,
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

/// How many things there are of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeCounts {
    /// Those that were cancelled and run on, too.
    pub(crate) attempts: usize,
    /// Of them those that wait, for their arguments or for an executor.
    pub(crate) waiting: usize,
    /// Of them those that executors have.
    pub(crate) handed: usize,
    pub(crate) sets: usize,
    pub(crate) jobs: usize,
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

fn attempt_bytes<P>(spec: &TaskSpec) -> u64 {
    let args = size_of::<LocatedArg>() * spec.args.len() + size_of::<u64>() * spec.scratch_bytes.len();
    (ENTRY_BYTES + size_of::<Running<P>>() + size_of::<TaskSpec>() + args + spec.params.len()) as u64
}

impl<P: Default> NodeCore<P> {
    /// A NodeManager without tasks, on a node with so many executors, these resources and these functions.
    pub(crate) fn new(
        (node, incarnation): (NodeId, Incarnation),
        executors: usize,
        resources: Resources,
        functions: BTreeMap<Arc<str>, &'static Function>,
    ) -> Self {
        Self {
            node,
            incarnation,
            functions,
            state: NodeState::new(executors, resources),
            attempts: HashMap::new(),
            cancelled: HashMap::new(),
            sets: Sets::default(),
            owners: HashMap::new(),
            runs: HashMap::new(),
            watched: BTreeMap::new(),
            sampling: false,
            received_told: BTreeMap::new(),
            ticks: 0,
            grown: 0,
            effects: Vec::new(),
        }
    }

    /// Called once, before the first event.
    pub(crate) fn started(&mut self) {
        self.effects.push(NodeEffect::After(TICK, NodeTimer::Tick));
    }

    /// The arguments of an attempt that comes with this event, for who looks whether all of them are in memory already: then it is not
    /// staged. `None`: it needs nothing, or must be staged in any case; or no attempt comes.
    pub(crate) fn arguments_of<'a>(
        &self,
        event: &'a NodeEvent<P>,
    ) -> Option<(&'a TaskSpec, &'static Function, Arguments)> {
        let NodeEvent::Wire(NodeMsg::Run { spec, .. }) = event else { return None };
        if spec.args.is_empty() || spec.asks_for_memory() || self.is_taken_over(spec.job, spec.attempt.run()) {
            return None;
        }
        // What comes ready holds its arguments from now on: not beside what is to run alone, nor before that can run.
        if spec.alone || self.state.has_alone() {
            return None;
        }
        let function = *self.functions.get(&spec.function)?;
        Some((spec, function, self.sets.arguments(spec).ok()?))
    }

    /// Something happens. `at_once`: what the attempt that comes with it needs to start, where it is [there](Self::arguments_of).
    pub(crate) fn on(&mut self, event: NodeEvent<P>, at_once: Option<P>, now: Duration) {
        match event {
            NodeEvent::Wire(message) => self.message(message, at_once, now),
            NodeEvent::Executor(report) => self.report(report),
            NodeEvent::Staged(done) => self.staged(*done, now),
            NodeEvent::Figures(taken) => self.say_figures(*taken, now),
            NodeEvent::Timer(NodeTimer::Sample) => {
                self.take_figures();
                self.sample_later();
            }
            NodeEvent::Timer(NodeTimer::Tick) => self.tick(now),
        }
    }

    /// After the events that were waiting: what can be staged or run is.
    pub(crate) fn flush(&mut self, now: Duration) {
        let mut todo = Vec::new();
        self.state.advance(&mut todo);
        for effect in todo {
            match effect {
                Effect::Stage(key) => self.stage(key, now),
                Effect::Hand(key) => self.hand(key),
            }
        }
    }

    /// What is to be done, in this order.
    pub(crate) fn effects(&mut self) -> Vec<NodeEffect<P>> {
        std::mem::take(&mut self.effects)
    }

    /// The list of what was to be done is empty, and serves for what comes: a long one is not allocated for each batch of events.
    pub(crate) fn give_back(&mut self, effects: Vec<NodeEffect<P>>) {
        if self.effects.is_empty() && effects.capacity() <= EFFECTS_KEPT_MAX {
            self.effects = effects;
        }
    }

    /// With an incarnation of the node end its attempts: those that have started as soon as they look, whatever they make is dropped.
    pub(crate) fn end(&mut self) {
        for running in self.attempts.values() {
            if !running.flags.take_back() {
                running.flags.cancel();
            }
        }
    }

    /// How many attempts are wanted.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.len()
    }

    pub(crate) fn counts(&self) -> NodeCounts {
        let [waiting, handed] = self.state.counts();
        NodeCounts {
            waiting,
            handed,
            attempts: self.attempts.len() + self.cancelled.len(),
            sets: self.sets.len(),
            jobs: self.owners.len().max(self.runs.len()).max(self.watched.len()),
        }
    }

    fn message(&mut self, message: NodeMsg, at_once: Option<P>, now: Duration) {
        match message {
            NodeMsg::Run { owner, spec } => self.run(owner, spec, at_once, now),
            NodeMsg::DefineSet { job, run, .. } | NodeMsg::FreeParts { job, run, .. }
                if self.is_taken_over(job, run) =>
            {
                self.effects.push(NodeEffect::Stale);
            }
            NodeMsg::DefineSet { job, run, set, version, start, total, members } => {
                if self.sets.define((job, set), (run, version), start, total, &members) {
                    self.grew(Sets::bytes_of(members.len()));
                }
            }
            NodeMsg::Recall { job, tasks } => {
                for (task, attempt) in tasks {
                    self.recall((job, task, attempt));
                }
            }
            NodeMsg::Cancel { job, task, attempt } => self.cancel((job, task, attempt)),
            NodeMsg::Free { job, copies } => self.effects.push(NodeEffect::Delete(copies.iter(job).collect())),
            NodeMsg::FreeParts { job, run, set, version, parts } => self.free_parts((job, set), (run, version), parts),
            NodeMsg::EndJob { job } => self.end_job(job),
            NodeMsg::TakeInventory { job, owner, run } => self.take_inventory(job, owner, run),
            NodeMsg::SuspectUnreachable { mut nodes, .. } => {
                nodes.retain(|node| *node != self.node);
                self.effects.push(NodeEffect::SuspectUnreachable(nodes));
            }
            NodeMsg::Doing { job, attempts, reply } => {
                self.effects.push(NodeEffect::TellDoing { job, attempts, reply });
            }
            NodeMsg::Watch { job, owner, sample_ms, .. } => self.watch(job, &owner, sample_ms),
        }
    }

    /// Where the Owner of a job is: on `node`, unless it is known to be on another one.
    fn owner(&mut self, job: JobId, node: &NodeId) -> NodeId {
        self.owners.entry(job).or_insert_with(|| node.clone()).clone()
    }

    fn tell(&mut self, job: JobId, node: &NodeId, message: OwnerMsg) {
        let owner = self.owner(job, node);
        self.effects.push(NodeEffect::Tell { job, owner, message });
    }

    /// Whether a job is known to have begun again since this run of it: an Owner of that run is over, and may know nothing of it.
    fn is_taken_over(&self, job: JobId, run: u32) -> bool {
        self.runs.get(&job).is_some_and(|latest| run < *latest)
    }

    /// Whether a job has begun again since this run of it; its Owner is told so. It learns it from the log, too.
    fn turns_away(&mut self, job: JobId, owner: &NodeId, run: u32) -> bool {
        let taken_over = self.is_taken_over(job, run);
        if taken_over {
            let message = OwnerMsg::TakenOver { run: self.runs[&job] };
            self.effects.push(NodeEffect::Tell { job, owner: owner.clone(), message });
        }
        taken_over
    }

    fn run(&mut self, owner: NodeId, spec: Arc<TaskSpec>, at_once: Option<P>, now: Duration) {
        let key = (spec.job, spec.id, spec.attempt);
        if self.turns_away(spec.job, &owner, spec.attempt.run()) {
            return self.effects.push(NodeEffect::Stale);
        }
        let run = spec.attempt.run();
        if run > 0 && self.runs.get(&spec.job).is_none_or(|latest| *latest < run) {
            // What it had asked for before was forgotten: an Owner of an earlier run has ended the job here since.
            self.follow(spec.job, &owner, run);
        }
        let Some(function) = self.functions.get(&spec.function).copied() else {
            let message = format!("function {} is not known to node {}", spec.function, self.node);
            return self.fail(key, &owner, TaskFailure::new(FailureKind::Rejected, message));
        };
        let needs_nothing = spec.args.is_empty() && !spec.asks_for_memory();
        let prepared = if needs_nothing { Some(P::default()) } else { at_once };
        let memory_beside = spec.outside_bytes > 0 || spec.memory_max_bytes > 0;
        let wants = Wants { staging: prepared.is_none(), memory_beside, alone: spec.alone };
        if !self.state.add(key, function.name, spec.resources.clone(), wants) {
            return;
        }
        let bytes = attempt_bytes::<P>(&spec);
        let (flags, timed_out) = (Arc::default(), false);
        let (waits_since, waited) = (now, TaskTiming::default());
        let trail = None;
        let running = Running { owner, spec, function, prepared, flags, timed_out, waits_since, waited, trail };
        self.attempts.insert(key, running);
        self.grew(bytes);
    }

    /// An attempt that has not run fails.
    fn fail(&mut self, key: Key, owner: &NodeId, failure: TaskFailure) {
        let message = self.failed(key, failure, None);
        self.tell(key.0, owner, message);
    }

    /// Begins to get the arguments of an attempt ready. Where a set is not known that it reads, that is asked for, and the attempt fails; the
    /// next one finds the set.
    fn stage(&mut self, key: Key, now: Duration) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        running.waited.queued_us = micros(now.saturating_sub(running.waits_since));
        match self.sets.arguments(&running.spec) {
            Ok(arguments) => {
                let trail = Trail::begun(now);
                running.trail = Some(trail.clone());
                let (spec, function) = (running.spec.clone(), running.function);
                self.effects.push(NodeEffect::Stage { key, spec, function, arguments, trail });
            }
            Err(failure) => {
                let (unknown, owner) = (self.sets.unknown(&running.spec), running.owner.clone());
                for set in unknown {
                    let owner = self.owner(key.0, &owner);
                    self.effects.push(NodeEffect::AskForSet { key, owner, set });
                }
                self.effects.push(NodeEffect::CannotStage { key, failure });
            }
        }
    }

    fn staged(&mut self, StagingDone { key, outcome }: StagingDone<P>, now: Duration) {
        match outcome {
            Ok((prepared, waits)) => {
                // Taken back or cancelled meanwhile: the memory goes with it.
                if self.state.staged(key)
                    && let Some(running) = self.attempts.get_mut(&key)
                {
                    let Waits { memory, load, fetch } = waits;
                    let (memory_us, load_us, fetch_us) = (micros(memory), micros(load), micros(fetch));
                    running.waited = TaskTiming { memory_us, load_us, fetch_us, ..running.waited };
                    running.waits_since = now;
                    running.prepared = Some(prepared);
                }
            }
            Err(failure) => {
                if let Some(running) = self.forget(key, None) {
                    self.fail(key, &running.owner, failure);
                }
            }
        }
    }

    fn hand(&mut self, key: Key) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let prepared = running.prepared.take().unwrap_or_default();
        let (owner, spec, flags) = (running.owner.clone(), running.spec.clone(), running.flags.clone());
        self.effects.push(NodeEffect::Hand { owner, spec, function: running.function, prepared, flags });
    }

    fn forget(&mut self, key: Key, micros: Option<u64>) -> Option<Running<P>> {
        self.state.remove(key, micros);
        self.attempts.remove(&key)
    }

    /// Takes an attempt back when it has not started.
    fn take_back(&mut self, key: Key) -> Option<Running<P>> {
        let started = match self.state.phase(key)? {
            Phase::Handed => !self.attempts.get(&key)?.flags.take_back(),
            Phase::Queued | Phase::Staging | Phase::Ready => false,
        };
        if started { None } else { self.forget(key, None) }
    }

    fn recall(&mut self, key: Key) {
        if let Some(running) = self.take_back(key) {
            self.tell(key.0, &running.owner, self.recalled(key));
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

    fn free_parts(&mut self, set: (JobId, SetId), version: Version, parts: Parts) {
        let copies = self.sets.meant_on(&self.node, set, version);
        self.effects.push(NodeEffect::Release { copies, parts });
    }

    /// The Owner of the latest run of a job is obeyed from now on; the one of the run before is told so.
    fn follow(&mut self, job: JobId, owner: &NodeId, run: u32) {
        self.runs.insert(job, run);
        if let Some(before) = self.owners.insert(job, owner.clone())
            && before != *owner
        {
            self.effects.push(NodeEffect::Tell { job, owner: before, message: OwnerMsg::TakenOver { run } });
        }
        self.effects.push(NodeEffect::Follow { job, owner: owner.clone() });
    }

    /// Says what is here of a job. Its Owner counts no attempt of this node as live: it is another Owner, held the node
    /// dead, or lost the session with it.
    fn take_inventory(&mut self, job: JobId, owner: NodeId, run: u32) {
        if self.turns_away(job, &owner, run) {
            return;
        }
        self.follow(job, &owner, run);
        for key in self.state.keys_of(job) {
            self.cancel(key);
            // Should it count one after all, it hands it out again.
            self.tell(job, &owner, self.recalled(key));
        }
        self.effects.push(NodeEffect::TellInventory { job, owner });
    }

    fn end_job(&mut self, job: JobId) {
        for key in self.state.keys_of(job) {
            self.cancel(key);
        }
        self.sets.end_job(job);
        self.effects.push(NodeEffect::DeleteJob(job));
        let owner = self.owners.remove(&job);
        if self.watched.remove(&job).is_some()
            && let Some(owner) = owner
        {
            self.effects.push(NodeEffect::TakeFigures(Listeners::One { job, owner, last: true }));
        }
        self.effects.push(NodeEffect::Forget(job));
        self.runs.remove(&job);
    }

    fn tick(&mut self, now: Duration) {
        self.state.tick();
        for running in self.attempts.values_mut() {
            let limit = Duration::from_millis(running.spec.timeout_ms);
            // From its start: it may have waited for an executor, or for the node not to be fenced.
            if !limit.is_zero() && running.flags.running_for(now).is_some_and(|time| time > limit) {
                running.timed_out = true;
                running.flags.cancel();
            }
        }
        self.count();
        self.take_figures();
        self.ticks += 1;
        if self.ticks.is_multiple_of(HOLDS_EVERY) {
            self.effects.push(NodeEffect::TellHolds);
        }
        self.effects.push(NodeEffect::After(TICK, NodeTimer::Tick));
    }

    /// So much has come.
    fn grew(&mut self, bytes: u64) {
        self.grown += bytes;
        if self.grown >= COUNT_AGAIN_BYTES {
            self.count();
        }
    }

    /// Counts everything; a walk over all attempts and sets.
    fn count(&mut self) {
        let attempts: u64 = self.attempts.values().map(|running| attempt_bytes::<P>(&running.spec)).sum();
        self.effects.push(NodeEffect::Count(attempts + self.sets.bytes()));
        self.grown = 0;
    }
}
