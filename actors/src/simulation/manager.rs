//! The NodeManager of a node: its pure core, and a mirror of its shell (`node_manager/actor.rs`), message by message.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::acts::{Act, Answer, Cx, Message, Piece, Pieces, Reads, Timer, Work};
use super::program::{Params, functions};
use super::store::Found;
use crate::event::NodeFigures;
use crate::ids::{Attempt, CopyNumber, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::node_manager::{Effect, Flags, Key, NodeEvent, NodeState, Phase, Report};
use crate::protocol::copies::{LocatedObjects, Whereabouts};
use crate::protocol::node_manager::{AttemptState, Doing, NodeMsg, SET_MEMBERS_PER_MESSAGE};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::SchedulerMsg;

use crate::task::{
    FailureKind, LocatedSource, Loss, LostObject, Output, Parts, Resources, StillRunning, TaskFailure, TaskFigures,
    TaskSpec,
};

const TICK: Duration = Duration::from_millis(500);
const HOLDS_EVERY: u64 = 4;
/// As in the real one.
const VALUES_MAX: usize = 16;
const VALUE_MAX_BYTES: u64 = 2048;

/// Members of a set, as far as this node was told of them.
#[derive(Debug, Default)]
struct Members {
    version: (u32, u32),
    total: usize,
    members: Vec<(ObjectId, Option<(NodeId, CopyNumber)>)>,
    /// One of them is lost.
    lost: bool,
}

#[derive(Debug)]
struct Running {
    owner: NodeId,
    spec: Rc<TaskSpec>,
    reads: Option<Reads>,
    flags: Rc<Flags>,
}

#[derive(Debug)]
struct Cancelled {
    flags: Rc<Flags>,
    outputs: u32,
}

#[derive(Debug)]
pub(super) struct Manager {
    state: NodeState,
    attempts: BTreeMap<Key, Running>,
    cancelled: BTreeMap<Key, Cancelled>,
    sets: BTreeMap<(JobId, SetId), Members>,
    owners: BTreeMap<JobId, NodeId>,
    runs: BTreeMap<JobId, u32>,
    watched: BTreeSet<JobId>,
    ticks: u64,
}

impl Manager {
    pub(super) fn new(executors: usize) -> Self {
        Self {
            state: NodeState::new(executors, Resources::cpu(executors as u64 * 1000)),
            attempts: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            sets: BTreeMap::new(),
            owners: BTreeMap::new(),
            runs: BTreeMap::new(),
            watched: BTreeSet::new(),
            ticks: 0,
        }
    }

    pub(super) fn started(&mut self, cx: &mut Cx<'_>) {
        cx.after(TICK, Timer::Manager);
    }

    /// The life of the node is over: attempts that have started run on until they look.
    pub(super) fn end(&mut self) {
        for running in self.attempts.values() {
            if !running.flags.take_back() {
                running.flags.cancel();
            }
        }
    }

    /// Whether nothing of any job is left.
    pub(super) fn is_idle(&self) -> bool {
        self.attempts.is_empty() && self.cancelled.is_empty() && self.sets.is_empty()
    }

    pub(super) fn handle(&mut self, event: NodeEvent, cx: &mut Cx<'_>) {
        match event {
            NodeEvent::Wire(message) => self.message(message, cx),
            NodeEvent::Executor(report) => self.report(report, cx),
            NodeEvent::Tick => {
                self.state.tick();
                for job in self.watched.clone() {
                    self.say(job, false, cx);
                }
                self.ticks += 1;
                if self.ticks.is_multiple_of(HOLDS_EVERY) {
                    self.say_holds(cx);
                }
                cx.after(TICK, Timer::Manager);
            }
            NodeEvent::Staged(_) | NodeEvent::Sample => unreachable!("they never leave the real shell"),
        }
        self.flush(cx);
    }

    fn message(&mut self, message: NodeMsg, cx: &mut Cx<'_>) {
        match message {
            NodeMsg::Run { owner, spec } => self.run(owner, spec, cx),
            NodeMsg::DefineSet { job, run, .. } | NodeMsg::FreeParts { job, run, .. }
                if self.is_taken_over(job, run) => {}
            NodeMsg::DefineSet { job, run, set, version, start, total, members } => {
                self.define((job, set), (run, version), start, total, &members);
            }
            NodeMsg::Recall { job, tasks } => {
                for (task, attempt) in tasks {
                    self.recall((job, task, attempt), cx);
                }
            }
            NodeMsg::Cancel { job, task, attempt } => self.cancel((job, task, attempt)),
            NodeMsg::Free { job, copies } => {
                for copy in copies.iter(job) {
                    cx.note(|| format!("{copy} is freed"));
                    cx.store.delete(copy);
                }
            }
            NodeMsg::FreeParts { job, run, set, version, parts } => {
                self.free_parts((job, set), (run, version), parts, cx)
            }
            NodeMsg::EndJob { job } => self.end_job(job, cx),
            NodeMsg::TakeInventory { job, owner, run } => self.take_inventory(job, &owner, run, cx),
            // Fetches of this world find out by themselves.
            NodeMsg::Doubt { .. } => {}
            NodeMsg::Doing { job, attempts, reply } => {
                let (to, slot) = reply.goes_to();
                let answer = Answer::Doing(self.doing(job, &attempts, cx.now));
                cx.send(&to.clone(), Message::Answer { slot, answer });
            }
            NodeMsg::Watch { job, owner, .. } => {
                self.owners.entry(job).or_insert(owner);
                self.watched.insert(job);
                self.say(job, false, cx);
            }
        }
    }

    fn tell(&mut self, job: JobId, node: &NodeId, message: OwnerMsg, cx: &mut Cx<'_>) {
        let owner = self.owners.entry(job).or_insert_with(|| node.clone()).clone();
        cx.send(&owner, Message::Owner(message));
    }

    fn is_taken_over(&self, job: JobId, run: u32) -> bool {
        self.runs.get(&job).is_some_and(|latest| run < *latest)
    }

    fn turns_away(&self, job: JobId, owner: &NodeId, run: u32, cx: &mut Cx<'_>) -> bool {
        let taken_over = self.is_taken_over(job, run);
        if taken_over {
            let run = self.runs[&job];
            cx.send(owner, Message::Owner(OwnerMsg::TakenOver { run }));
        }
        taken_over
    }

    fn run(&mut self, owner: NodeId, spec: TaskSpec, cx: &mut Cx<'_>) {
        let key = (spec.job, spec.id, spec.attempt);
        if self.turns_away(spec.job, &owner, spec.attempt.run(), cx) {
            return;
        }
        let pieces = self.pieces(&spec);
        // What is in memory is taken at once, now and then.
        let here = |piece: &Piece| match &piece.at {
            None => Some(cx.oracle.truth.nothing(piece.object, piece.parts)),
            Some((node, number)) if node == cx.me => {
                match cx.store.find(piece.object.copy(cx.job, *number), piece.parts) {
                    Found::Here(parts) => Some(parts),
                    Found::Released | Found::Absent => None,
                }
            }
            Some(_) => None,
        };
        let all_here = || {
            let arg = |arg: &Vec<Piece>| arg.iter().map(|piece| Some((piece.object, here(piece)?))).collect();
            pieces.as_ref().ok()?.iter().map(arg).collect::<Option<Reads>>()
        };
        let prepared = if spec.args.is_empty() { Some(Reads::new()) } else { all_here() };
        let prepared = prepared.filter(|_| spec.args.is_empty() || cx.dice.chance(500));
        let all = functions();
        let function: &'static str = match all.iter().position(|name| *name == spec.function) {
            Some(0) => "sim.map",
            Some(1) => "sim.stream",
            Some(2) => "sim.merge",
            Some(3) => "sim.reduce",
            _ => "sim.commit",
        };
        if !self.state.add(key, function, spec.resources.clone(), prepared.is_none(), spec.alone) {
            return;
        }
        let running = Running { owner, spec: Rc::new(spec), reads: prepared, flags: Rc::default() };
        self.attempts.insert(key, running);
    }

    /// The arguments of an attempt, as far as this node knows its sets.
    fn pieces(&self, spec: &TaskSpec) -> Result<Pieces, TaskFailure> {
        let arg = |located: &crate::task::LocatedArg| {
            let parts = located.parts;
            match &located.source {
                LocatedSource::Object { object, at } => Ok(vec![Piece { object: *object, parts, at: at.clone() }]),
                LocatedSource::Set { set: id, version } => {
                    let version = (spec.attempt.run(), *version);
                    let set = self.sets.get(&(spec.job, *id));
                    let set = set.filter(|set| set.version >= version && set.members.len() == set.total);
                    let set = set.ok_or_else(|| {
                        TaskFailure::new(FailureKind::Error, format!("set {id} is not known on this node"))
                    })?;
                    if set.lost {
                        return Err(TaskFailure::new(FailureKind::ArgumentLost, "a member of its set is lost"));
                    }
                    let members = set.members.iter().cloned();
                    Ok(members.map(|(object, at)| Piece { object, parts, at }).collect())
                }
            }
        };
        spec.args.iter().map(arg).collect()
    }

    fn fail(&mut self, key: Key, owner: &NodeId, failure: TaskFailure, figures: Option<TaskFigures>, cx: &mut Cx<'_>) {
        let (node, incarnation, (job, task, attempt)) = (cx.me.clone(), cx.incarnation, key);
        self.tell(job, owner, OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures }, cx);
    }

    fn stage(&mut self, key: Key, cx: &mut Cx<'_>) {
        let Some(running) = self.attempts.get(&key) else { return };
        let spec = running.spec.clone();
        match self.pieces(&spec) {
            Ok(pieces) => cx.acts.push(Act::Stage(key, spec, pieces)),
            Err(failure) => {
                if failure.kind == FailureKind::Error {
                    cx.oracle.set_unknown(&spec);
                }
                self.staged(key, Err(failure), cx);
            }
        }
    }

    /// Arguments are there, or cannot be had.
    pub(super) fn staged(&mut self, key: Key, outcome: Result<Reads, TaskFailure>, cx: &mut Cx<'_>) {
        match outcome {
            Ok(reads) => {
                if self.state.staged(key)
                    && let Some(running) = self.attempts.get_mut(&key)
                {
                    running.reads = Some(reads);
                }
            }
            Err(failure) => {
                if let Some(running) = self.forget(key, None) {
                    self.fail(key, &running.owner, failure, None, cx);
                }
            }
        }
        self.flush(cx);
    }

    fn forget(&mut self, key: Key, micros: Option<u64>) -> Option<Running> {
        self.state.remove(key, micros);
        self.attempts.remove(&key)
    }

    fn report(&mut self, report: Report, cx: &mut Cx<'_>) {
        let (node, incarnation) = (cx.me.clone(), cx.incarnation);
        match report {
            Report::Yielded { job, task, attempt, index, output } => {
                let message = OwnerMsg::Yielded { node, incarnation, task, attempt, index, output };
                match self.attempts.get(&(job, task, attempt)).map(|running| running.owner.clone()) {
                    Some(owner) => self.tell(job, &owner, message, cx),
                    None => delete_made((job, task, attempt), index..index + 1, cx),
                }
            }
            Report::Finished { job, task, attempt, outcome, figures, .. } => {
                let key = (job, task, attempt);
                let Some(running) = self.forget(key, outcome.is_ok().then_some(figures.micros)) else {
                    let sealed = self.cancelled.remove(&key).map_or(0, |cancelled| cancelled.outputs);
                    delete_made(key, 0..sealed, cx);
                    if let (Ok((outputs, consumed)), Some(owner)) = (outcome, self.owners.get(&job).cloned()) {
                        let values = Vec::new();
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
                        cx.send(&owner, Message::Owner(message));
                    }
                    return;
                };
                match outcome {
                    Ok((outputs, consumed)) => {
                        let values = small(&running.owner, key, &outputs, cx);
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
                        self.tell(job, &running.owner, message, cx);
                    }
                    Err(failure) => {
                        delete_made(key, 0..running.spec.announced_at_its_end(), cx);
                        let failure = self.with_losses(&running.spec, failure, cx);
                        self.fail(key, &running.owner, failure, Some(figures), cx);
                    }
                }
            }
        }
    }

    /// As the real stager words a failure: arguments of this node that are gone make it another one.
    fn with_losses(&self, spec: &TaskSpec, failure: TaskFailure, cx: &Cx<'_>) -> TaskFailure {
        if !matches!(failure.kind, FailureKind::Error | FailureKind::Final | FailureKind::Panic) {
            return failure;
        }
        let pieces = self.pieces(spec).unwrap_or_default();
        let here = pieces.iter().flatten().filter_map(|piece| {
            let (node, number) = piece.at.as_ref()?;
            (node == cx.me).then_some((piece.object, *number))
        });
        let gone = here.filter(|(object, number)| !cx.store.has(object.copy(cx.job, *number)));
        let node = || cx.me.clone();
        let lost = gone.map(|(object, number)| LostObject { object, number, node: node(), loss: Loss::Gone });
        let lost: Vec<_> = lost.take(TaskFailure::LOST_MAX).collect();
        if lost.is_empty() { failure } else { TaskFailure::argument_lost(failure.message, lost) }
    }

    fn take_back(&mut self, key: Key) -> Option<Running> {
        let started = match self.state.phase(key)? {
            Phase::Handed => !self.attempts.get(&key)?.flags.take_back(),
            Phase::Queued | Phase::Staging | Phase::Ready => false,
        };
        if started { None } else { self.forget(key, None) }
    }

    fn recall(&mut self, key: Key, cx: &mut Cx<'_>) {
        if let Some(running) = self.take_back(key) {
            let (node, incarnation, (job, task, attempt)) = (cx.me.clone(), cx.incarnation, key);
            self.tell(job, &running.owner, OwnerMsg::Recalled { node, incarnation, task, attempt }, cx);
        }
    }

    fn cancel(&mut self, key: Key) {
        if self.take_back(key).is_none()
            && let Some(running) = self.attempts.remove(&key)
        {
            running.flags.cancel();
            let outputs = running.spec.announced_at_its_end();
            self.cancelled.insert(key, Cancelled { flags: running.flags, outputs });
        }
    }

    fn define(&mut self, set: (JobId, SetId), version: (u32, u32), start: u32, total: u32, members: &LocatedObjects) {
        let known = self.sets.entry(set).or_default();
        if version < known.version {
            return;
        }
        if version > known.version || start == 0 {
            *known = Members { version, ..Members::default() };
        }
        known.total = total as usize;
        if known.members.len() == start as usize {
            for (object, at) in members.iter() {
                known.lost |= at == Whereabouts::Lost;
                let at = if let Whereabouts::At(node, number) = at { Some((node, number)) } else { None };
                known.members.push((object, at));
            }
        }
    }

    fn free_parts(&mut self, set: (JobId, SetId), version: (u32, u32), parts: Parts, cx: &mut Cx<'_>) {
        let Some(set) = self.sets.get(&set).filter(|set| set.version == version) else { return };
        for (object, at) in &set.members {
            if let Some((_, number)) = at.as_ref().filter(|(node, _)| node == cx.me) {
                let copy = object.copy(cx.job, *number);
                cx.note(|| format!("{parts:?} of {copy} are released"));
                cx.store.release(copy, parts);
            }
        }
    }

    fn take_inventory(&mut self, job: JobId, owner: &NodeId, run: u32, cx: &mut Cx<'_>) {
        if self.turns_away(job, owner, run, cx) {
            return;
        }
        self.runs.insert(job, run);
        if let Some(before) = self.owners.insert(job, owner.clone())
            && before != *owner
        {
            cx.send(&before, Message::Owner(OwnerMsg::TakenOver { run }));
        }
        for key in self.state.keys_of(job) {
            self.cancel(key);
            let (node, incarnation, (_, task, attempt)) = (cx.me.clone(), cx.incarnation, key);
            self.tell(job, owner, OwnerMsg::Recalled { node, incarnation, task, attempt }, cx);
        }
        let held = cx.store.ids();
        cx.note(|| format!("takes an inventory for {owner}, run {run}: {} copies", held.len()));
        let chunks = held.chunks(SET_MEMBERS_PER_MESSAGE).chain(held.is_empty().then_some(&[][..]));
        let count = chunks.clone().count();
        for (index, held) in chunks.enumerate() {
            let (node, incarnation) = (cx.me.clone(), cx.incarnation);
            let outputs = held.iter().filter_map(|copy| cx.store.output_of(*copy)).collect();
            let makers = held.iter().filter_map(|copy| cx.store.maker_of(*copy)).map(CopyNumber::get).collect();
            let (copies, last) = (held.iter().copied().collect(), index + 1 == count);
            self.tell(job, owner, OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last }, cx);
        }
    }

    fn end_job(&mut self, job: JobId, cx: &mut Cx<'_>) {
        for key in self.state.keys_of(job) {
            self.cancel(key);
        }
        self.sets.retain(|(of, _), _| *of != job);
        cx.store.clear();
        if self.watched.remove(&job) {
            self.say(job, true, cx);
        }
        self.owners.remove(&job);
        self.runs.remove(&job);
    }

    fn say_holds(&self, cx: &mut Cx<'_>) {
        let known = self.owners.keys().copied().chain(self.sets.keys().map(|(job, _)| *job));
        let stored = (cx.store.len() > 0).then_some(cx.job);
        let jobs: BTreeSet<_> = known.chain(stored).chain(self.attempts.keys().map(|(job, ..)| *job)).collect();
        if !jobs.is_empty() {
            cx.tell_scheduler(SchedulerMsg::Holds { node: cx.me.clone(), jobs: jobs.into_iter().collect() });
        }
    }

    fn say(&mut self, job: JobId, last: bool, cx: &mut Cx<'_>) {
        let Some(owner) = self.owners.get(&job).cloned() else { return };
        let (node, figures, running) = (cx.me.clone(), NodeFigures::default(), self.still_running(job, cx.now));
        let message = OwnerMsg::NodeFigures { node, figures, received: Vec::new(), last, running };
        cx.send(&owner, Message::Owner(message));
    }

    fn still_running(&self, job: JobId, now: Duration) -> Vec<StillRunning> {
        let wanted = self.attempts.iter().map(|(key, running)| (key, &running.flags));
        let cancelled = self.cancelled.iter().map(|(key, cancelled)| (key, &cancelled.flags));
        let long = wanted.chain(cancelled).filter_map(|((of, task, attempt), flags)| {
            let time = flags.running_for(now).filter(|time| *of == job && *time >= StillRunning::AFTER)?;
            Some(StillRunning { task: *task, attempt: *attempt, micros: time.as_micros() as u64 })
        });
        let mut long: Vec<_> = long.collect();
        long.sort_unstable_by_key(|running| (std::cmp::Reverse(running.micros), running.task));
        long
    }

    fn doing(&self, job: JobId, attempts: &[(TaskId, Attempt)], now: Duration) -> Vec<AttemptState> {
        let doing = |(task, attempt): &(TaskId, Attempt)| {
            let key = (job, *task, *attempt);
            let doing = match self.attempts.get(&key) {
                None if self.cancelled.contains_key(&key) => Doing::Cancelled,
                None => Doing::NotHere,
                Some(running) => match self.state.phase(key) {
                    None => Doing::NotHere,
                    Some(Phase::Handed) if running.flags.running_for(now).is_some() => Doing::Running,
                    Some(_) => Doing::Staging,
                },
            };
            AttemptState { task: *task, attempt: *attempt, doing, for_ms: 0 }
        };
        attempts.iter().map(doing).collect()
    }

    fn flush(&mut self, cx: &mut Cx<'_>) {
        let mut effects = Vec::new();
        self.state.advance(&mut effects);
        for effect in effects {
            match effect {
                Effect::Stage(key) => self.stage(key, cx),
                Effect::Hand(key) => {
                    let Some(running) = self.attempts.get_mut(&key) else { continue };
                    let (spec, flags) = (running.spec.clone(), running.flags.clone());
                    let reads = running.reads.take().unwrap_or_default();
                    cx.acts.push(Act::Hand(Work { key, life: cx.incarnation, spec, reads, flags }));
                }
            }
        }
    }
}

/// Deletes what an attempt has made and its Owner does not count.
fn delete_made((_, task, attempt): Key, outputs: std::ops::Range<u32>, cx: &mut Cx<'_>) {
    for index in outputs {
        cx.store.delete(task.output(index).copy(cx.job, attempt.makes()));
    }
}

/// The bytes of small outputs of one part, for an Owner on another node and for its log.
fn small(owner: &NodeId, (_, task, attempt): Key, outputs: &[Output], cx: &Cx<'_>) -> Vec<(u32, Bytes)> {
    let value = |(index, output): (u32, &Output)| {
        let small = (1..=VALUE_MAX_BYTES).contains(&output.bytes);
        let whole = cx.store.parts_of(task.output(index).copy(cx.job, attempt.makes())) == Some(1);
        (small && whole).then(|| (index, Bytes::from(vec![0; output.bytes as usize])))
    };
    // What a function returns as its value comes with its report, wherever the Owner is; here that is each single output.
    if outputs.len() > VALUES_MAX || (owner == cx.me && outputs.len() > 1) {
        return Vec::new();
    }
    (0..).zip(outputs).filter_map(value).collect()
}

/// What an attempt makes of what it has read.
pub(super) fn params_of(spec: &TaskSpec) -> Params {
    Params::decode(&spec.params)
}
