//! Stragglers: a task that runs for much longer than others of its function gets a second attempt on another node; the
//! first valid completion wins, the other attempt is cancelled (law 4). MapReduce's backup tasks, with the bounds that
//! keep them from costing more than they save:
//!
//! - nodes say what they have been running for a second or more, timed there: waiting for a slot, for memory or for
//!   arguments is no running;
//! - a straggler has run for more than [`TIMES_MEDIAN`] times the median of its function, of which [`DONE_MIN`] tasks are
//!   done;
//! - only where the function is declared deterministic and the task allows it, and not for streams: what a stream has
//!   announced cannot be taken back;
//! - only onto slots that idle while no task waits, one second attempt a task, and at most one in [`RUNNING_PER_SPECULATION`] attempts that
//!   run, or one;
//! - **never on a node where an attempt of the task is live.** What made the first one slow (a disk, a neighbour) would make
//!   the second one slow. So on a single node there is no second attempt.
//!
//! Attempts side by side count as one try: a second attempt never makes a task fail that would not have failed without it.
//!
//! What can do without a task need not wait for it: a program says which tasks those are (the merges of a push-based shuffle,
//! whose inputs can be reduced as they are), and where none of them has finished for [`QUIET`], those whose attempts have all
//! run for too long are given up. That is no business of the program, which may be waiting for tasks that queue behind them.
//!
//! A cancelled attempt runs on until it looks. As long as its node says so, the node has a slot less.

use std::time::Duration;

use super::placement::{self, NodeIndex};
use super::reach::SetsAt;
use super::tables::{EntrySource, OwnerState, SeenCount, Told};
use super::task::State;
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, NodeId, ObjectId, TaskId};
use crate::task::{Returns, StillRunning};

/// How many times the median is too long.
const TIMES_MEDIAN: u64 = 3;
/// So many tasks of a function must be done before their median says something.
const DONE_MIN: u64 = 5;
/// There is one copy at most for so many attempts that run.
const RUNNING_PER_SPECULATION: u64 = 10;
/// What has run on for so long while no task of the job finished is overdue, where there is no median.
const STANDSTILL: Duration = Duration::from_secs(10);
/// As long as tasks that can be done without finish so often, those that take longer are waited for.
const QUIET: Duration = Duration::from_secs(1);

impl OwnerState {
    /// A node says what it has been running for a while; the later replaces the earlier.
    pub(super) fn still_running(&mut self, from: &NodeId, running: &[StillRunning]) {
        let Some(node) = self.known_node(from) else { return };
        let told = |running: &StillRunning| {
            let (before, now) = (self.told_running(running.task, running.attempt, node), running.micros);
            let (finished, dispensable) = (before.map(|it| it.finished), before.map(|it| it.dispensable_finished));
            Told {
                running: *running,
                finished: SeenCount::seen(finished, self.counts.finished, now, 0),
                dispensable_finished: SeenCount::seen(dispensable, self.counts.dispensable_finished, now, now),
            }
        };
        let told = running.iter().map(told).collect();
        self.nodes[usize::from(node)].long_running = told;
        self.give_up_overdue(node, running);
        let lingering = running.iter().filter(|running| self.live_task(running, node).is_none()).count() as u64;
        self.linger(node, lingering);
        for straggler in running {
            let Some(task) = self.live_task(straggler, node) else { continue };
            let Some(median_us) = self.too_long(task, straggler.micros) else { continue };
            if !self.may_speculate(task) {
                continue;
            }
            let (shape, function) = (self.key(task).shape, self.tasks[task].function);
            let mut not = self.kept_from(task, &mut SetsAt::new());
            not.push(node);
            let Some(idle) = placement::idle(&self.nodes, &self.options.shapes, shape, function, &not) else {
                continue;
            };
            let Some(attempt) = self.launch(task, idle) else { return };
            self.set_speculated(task, true);
            let kind = EventKind::TaskSpeculated {
                task: straggler.task,
                attempt,
                stage: self.stage(task),
                slow: from.clone(),
                running_us: straggler.micros,
                median_us,
            };
            self.happened(self.nodes[usize::from(idle)].id.clone(), kind);
        }
    }

    fn live_task(&self, running: &StillRunning, node: NodeIndex) -> Option<Index> {
        self.find_task(running.task).filter(|task| self.tasks[*task].live().contains(&(running.attempt, node)))
    }

    /// Attempts that were ended hold executors of a node. When they hold all that is lent, nothing that is queued there
    /// would ever start: it is asked for back.
    fn linger(&mut self, node: NodeIndex, attempts: u64) {
        let view = &mut self.nodes[usize::from(node)];
        view.lingering = attempts;
        if attempts > 0 && view.is_stuck(&self.options.shapes) {
            self.recall(node, &self.held(node));
        }
    }

    /// The median of the function, when `micros` is much more.
    fn too_long(&self, task: Index, micros: u64) -> Option<u64> {
        let times = &self.function(task).stats.times;
        let median = times.median_micros();
        let long = micros >= StillRunning::AFTER.as_micros() as u64 && micros / TIMES_MEDIAN > median;
        (times.len() >= DONE_MIN && long).then_some(median)
    }

    /// The program can do without the task that makes this object, as long as that is not done: who waits for it is told that
    /// it was cancelled, should it be overdue.
    pub(super) fn may_give_up(&mut self, object: ObjectId) {
        if let Some(task) = self.object_of(object).and_then(|object| self.objects[object].task) {
            self.tasks[task].may_be_given_up();
        }
    }

    /// Gives up what the job can do without and is overdue: a copy has not helped either. What was done once is not given up
    /// when it runs again: others have been told to read it.
    fn give_up_overdue(&mut self, node: NodeIndex, running: &[StillRunning]) {
        let overdue = |running: &StillRunning| {
            let task = self.live_task(running, node)?;
            let told = self.told_running(running.task, running.attempt, node)?;
            let quiet_us = told.running.micros.saturating_sub(told.dispensable_finished.since);
            let entry = &self.tasks[task];
            let quiet = quiet_us >= QUIET.as_micros() as u64;
            let given_up = entry.is_dispensable() && !entry.is_replay() && quiet && self.is_overdue(task);
            given_up.then_some((running.task, running.micros))
        };
        let overdue: Vec<(TaskId, u64)> = running.iter().filter_map(overdue).collect();
        for (id, micros) in overdue {
            // It takes that long at least: where all do, the next ones are given more time.
            if let Some(task) = self.find_task(id) {
                let function = self.tasks[task].function;
                self.functions[function as usize].stats.times.add(micros);
            }
            self.cancel(id);
        }
    }

    /// Whether every attempt has been running for too long.
    fn is_overdue(&self, task: Index) -> bool {
        let entry = &self.tasks[task];
        let too_long = |(attempt, node): &(Attempt, NodeIndex)| {
            let told = self.told_running(entry.id, *attempt, *node);
            told.is_some_and(|told| self.too_long(task, told.running.micros).is_some() || self.stands_still(task, told))
        };
        entry.state() == State::Running && !entry.live().is_empty() && entry.live().iter().all(too_long)
    }

    /// Whether nothing at all has finished for long while the attempt ran, and there is no median. Where such attempts hold every
    /// executor, no task of their function will ever be done to measure them by.
    fn stands_still(&self, task: Index, told: &Told) -> bool {
        let still = told.running.micros.saturating_sub(told.finished.since);
        self.function(task).stats.times.len() < DONE_MIN
            && still >= STANDSTILL.as_micros() as u64
            && told.finished.count == self.counts.finished
    }

    /// What the node has last said of an attempt that it had been running for a while by then.
    pub(super) fn told_running(&self, task: TaskId, attempt: Attempt, node: NodeIndex) -> Option<&Told> {
        let told = &self.nodes[usize::from(node)].long_running;
        told.iter().find(|told| told.running.task == task && told.running.attempt == attempt)
    }

    fn may_speculate(&self, task: Index) -> bool {
        let entry = &self.tasks[task];
        let options = &self.options[entry.options as usize].options;
        let allowed = options.speculate && options.returns != Returns::Stream && self.key(task).pinned.is_none();
        let speculated_max = (self.counts.running / RUNNING_PER_SPECULATION).max(1);
        allowed
            && self.function(task).deterministic
            && entry.state() == State::Running
            && entry.live().len() == 1
            && !entry.is_speculated()
            && self.counts.speculated < speculated_max
            && self.ready.is_empty()
            && self.args_are_here(task)
    }

    /// Whether nothing that the task reads was lost since it began: a node that is told of an object that is nowhere takes it for one
    /// without bytes.
    fn args_are_here(&self, task: Index) -> bool {
        self.tasks[task].args.iter().all(|arg| match arg.source {
            EntrySource::Object(object) => self.objects[object].is_here(),
            EntrySource::Set(set) => self.sets[set].is_complete(),
        })
    }
}
