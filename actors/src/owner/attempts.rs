//! What nodes report: attempts that succeeded, failed or came back. Those that died with their node are in `replay`.
//!
//! Two attempts of a task make objects of the same ids, so only the Owner deletes what an attempt that does not count has
//! made: it alone knows whether the object of that id on that node is the one that does. Two attempts are never live on
//! one node, messages to a node arrive in order, and what an ended attempt made beside a live one on its node goes, or
//! stays, with that one.

use std::collections::BTreeSet;

use super::placement::NodeIndex;
use super::retry_placement::Tried;
use super::state::Effect;
use super::tables::{ArgEntry, EntrySource, NOWHERE, OwnerState, State, Value};
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, Incarnation, NodeId, ObjectId, TaskId};
use crate::task::{Consumed, FailureKind, JobError, Output, Parts, Resources, TaskFailure, TaskFigures};

/// How often a task may be denied memory: each time, others have ended in between.
const DENIALS_MAX: u32 = 100;

impl OwnerState {
    /// The leases of the job, all of them.
    pub(crate) fn leases(&mut self, leases: &[(NodeId, Incarnation, Resources)]) {
        for node in &mut self.nodes {
            node.leased = Resources::default();
        }
        for (node, incarnation, resources) in leases {
            let index = usize::from(self.node_index(node, *incarnation));
            for (name, milli) in &resources.0 {
                *self.nodes[index].leased.0.entry(name.clone()).or_default() += milli;
            }
        }
        // A node that is no longer lent gives back what it has not started.
        for index in 0..self.nodes.len() {
            if self.nodes[index].leased.0.is_empty() && self.nodes[index].in_flight.values().any(|n| *n > 0) {
                self.recall(index as NodeIndex, &self.held(index as NodeIndex));
            }
        }
    }

    /// An attempt succeeded. The first valid one wins; whether this one did, as the first of its task ever.
    pub(crate) fn completed(
        &mut self,
        (from, incarnation): (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        outputs: &[Output],
        consumed: &[Consumed],
        figures: TaskFigures,
    ) -> bool {
        let node = self.node_index(from, incarnation);
        let Some(task) = self.find_task(id) else {
            (0..)
                .zip(outputs)
                .for_each(|(index, output)| self.found_or_freed((node, incarnation), id.output(index), *output));
            return false;
        };
        if !self.end_attempt(task, attempt, node, incarnation) {
            self.late_completion(task, node, outputs);
            return false;
        }
        self.cancel_attempts(task);
        self.counts.finished += 1;
        self.dispensable_finished += u64::from(self.tasks[task].dispensable);
        self.learn(self.tasks[task].function, figures.micros);
        self.tell_finished(from, task, attempt, outputs, consumed, figures);
        self.account(task, consumed);
        // The outputs of a stream were announced one by one; the list at its end repeats them.
        let announced = if self.is_stream(task) { self.tasks[task].outputs } else { 0 };
        if (outputs.len() as u32) < announced {
            // An earlier attempt had announced more.
            let function = self.function(task).name.to_string();
            self.effects.push(Effect::Fail(JobError::NonDeterministic { task: id, function }));
            return false;
        }
        let first = !self.tasks[task].counted;
        for (index, output) in outputs.iter().enumerate().skip(announced as usize) {
            self.seal(task, index as u32, *output, node);
        }
        for tracker in self.tasks[task].take_readers() {
            self.effects.push(Effect::Streamed { tracker, item: Ok(None) });
        }
        // Only now: an output that nobody references must not retire the task while it holds its arguments.
        (self.tasks[task].state, self.tasks[task].counted) = (State::Done, true);
        self.committed |= self.commits(task);
        self.tasks[task].rare.change_if_there(|rare| (rare.denials, rare.tried) = (0, Tried::default()));
        self.unreference_args(task);
        self.ask_again_for_what_is_gone(task);
        self.retire_if_unused(task);
        first
    }

    /// What an attempt of a stream has announced may be lost, or freed to be made again, before it ends: it does not make it twice, so who
    /// waits for it needs another attempt.
    fn ask_again_for_what_is_gone(&mut self, task: Index) {
        let id = self.tasks[task].id;
        let awaited = |index: u32| {
            let object = self.object_of(id.output(index))?;
            let object = &self.objects[object];
            (object.has_waiters() && object.value == Value::Freed).then_some(())
        };
        if (0..self.tasks[task].outputs).any(|index| awaited(index).is_some()) {
            self.want(task);
        }
    }

    fn tell_finished(
        &mut self,
        from: &NodeId,
        task: Index,
        attempt: Attempt,
        outputs: &[Output],
        consumed: &[Consumed],
        figures: TaskFigures,
    ) {
        let rows_in: u64 = consumed.iter().map(|consumed| consumed.read.rows).sum();
        let rows_out: u64 = outputs.iter().map(|output| output.rows).sum();
        let kind = EventKind::TaskFinished {
            task: self.tasks[task].id,
            attempt,
            stage: self.stage(task),
            bytes_in: figures.outside_in_bytes + figures.args_bytes,
            bytes_out: figures.outside_out_bytes + outputs.iter().map(|output| output.bytes).sum::<u64>(),
            rows: rows_in.max(rows_out),
            outside_in_bytes: figures.outside_in_bytes,
            outside_out_bytes: figures.outside_out_bytes,
            micros: figures.micros,
            timing: figures.timing,
        };
        self.effects.push(Effect::Event { at: from.clone(), kind });
    }

    /// A streaming attempt sealed output `index`.
    pub(crate) fn yielded(
        &mut self,
        (from, incarnation): (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        index: u32,
        output: Output,
    ) {
        let node = self.node_index(from, incarnation);
        let live = self.find_task(id).filter(|task| self.tasks[*task].live.contains(&(attempt, node)));
        match live {
            // An attempt after the first one gives again what was announced.
            Some(task) if index <= self.tasks[task].outputs => self.seal(task, index, output, node),
            Some(_) => {}
            None => self.found_or_freed((node, incarnation), id.output(index), output),
        }
    }

    /// An attempt failed; `figures` where it ran.
    pub(crate) fn failed(
        &mut self,
        (from, incarnation): (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        failure: TaskFailure,
        figures: Option<TaskFigures>,
    ) {
        let node = self.node_index(from, incarnation);
        let Some(task) = self.find_task(id) else { return };
        if !self.end_attempt(task, attempt, node, incarnation) {
            return;
        }
        self.free_leftovers(task, node);
        if failure.kind != FailureKind::Cancelled {
            self.attempt_failed(task, attempt, from, failure, figures);
        }
    }

    /// An attempt that had been ended has stopped, and may have sealed outputs since what it had left was freed.
    pub(crate) fn stopped(&mut self, (from, incarnation): (&NodeId, Incarnation), id: TaskId, outputs: u32) {
        let node = self.node_index(from, incarnation);
        match self.find_task(id) {
            Some(task) => self.free_leftovers(task, node),
            None => self.free_outputs(node, id, outputs),
        }
    }

    /// Frees outputs of a task that nobody remembers.
    fn free_outputs(&mut self, node: NodeIndex, id: TaskId, outputs: u32) {
        // What the log remembers may be submitted yet.
        let unknown = (0..outputs).map(|index| id.output(index)).filter(|object| !self.resumed.is_at(*object, node));
        let node = &self.nodes[usize::from(node)].id;
        let free: Vec<_> = unknown.map(|object| Effect::Free { node: node.clone(), object }).collect();
        self.effects.extend(free);
    }

    /// A node has an output of a task that was not submitted by this run: if the log has it, it is as good as one that the node had said
    /// that it holds, and says yet.
    fn found_or_freed(&mut self, (node, incarnation): (NodeIndex, Incarnation), object: ObjectId, output: Output) {
        let view = &self.nodes[usize::from(node)];
        if view.incarnation != incarnation || !view.alive {
            // That life is over. What its node still has it says when it is asked.
            return;
        }
        if !self.found(object, node, output) {
            let node = self.nodes[usize::from(node)].id.clone();
            self.effects.push(Effect::Free { node, object });
        }
    }

    /// Frees what attempts that do not count may have left on a node where one of them has just ended.
    fn free_leftovers(&mut self, task: Index, node: NodeIndex) {
        for index in 0..self.tasks[task].outputs {
            self.free_unless_needed(task, node, index);
        }
    }

    fn free_unless_needed(&mut self, task: Index, node: NodeIndex, index: u32) {
        let entry = &self.tasks[task];
        let object = entry.id.output(index);
        let known = self.object_of(object).map(|object| &self.objects[object]);
        let counts = known.is_some_and(|known| known.value == Value::Here && known.at == node);
        if !counts && entry.live.iter().all(|(_, at)| *at != node) {
            let node = self.nodes[usize::from(node)].id.clone();
            self.effects.push(Effect::Free { node, object });
        }
    }

    /// An attempt ended without a fault of its own, and does not count. Memory being tight never fails a job (law 5): the task
    /// goes behind those that hold the memory now; and nor do arguments that are lost. Only when it happens again and again
    /// is something wrong with the task.
    fn not_its_fault(&mut self, task: Index, attempt: Attempt, node: &NodeId, failure: &TaskFailure) -> bool {
        if !matches!(failure.kind, FailureKind::Denied | FailureKind::ArgumentLost) {
            return false;
        }
        self.arguments_lost(task, attempt, node, failure);
        if !self.tasks[task].live.is_empty() {
            // The other attempt goes on.
            return true;
        }
        let denials = self.tasks[task].rare.change(|rare| {
            rare.denials += 1;
            rare.denials
        });
        if denials > DENIALS_MAX {
            return false;
        }
        self.tasks[task].tries = self.tasks[task].tries.saturating_sub(1);
        self.await_args(task, failure.kind == FailureKind::ArgumentLost);
        true
    }

    pub(super) fn attempt_failed(
        &mut self,
        task: Index,
        attempt: Attempt,
        node: &NodeId,
        failure: TaskFailure,
        figures: Option<TaskFigures>,
    ) {
        if self.not_its_fault(task, attempt, node, &failure) {
            return;
        }
        let again = match failure.kind {
            FailureKind::ExecutorLost | FailureKind::OutOfMemory => {
                self.executor_lost(task, node, failure.kind == FailureKind::OutOfMemory)
            }
            FailureKind::DiskFull => self.disk_full(task, node),
            kind => kind.retry(),
        };
        let alone = self.tasks[task].live.is_empty();
        self.counts.failed_attempts += 1;
        let entry = &self.tasks[task];
        let stage = self.stage(task);
        let attempts_max = self.options[entry.options as usize].options.attempts;
        // What only this node cannot do, the other attempt may.
        let last = match alone {
            true => !again || entry.tries >= attempts_max,
            false => {
                let for_all = [FailureKind::ExecutorLost, FailureKind::OutOfMemory, FailureKind::Final];
                !again && for_all.contains(&failure.kind)
            }
        };
        let (id, error) = (entry.id, failure.to_string());
        let (micros, timing) = (figures.map_or(0, |figures| figures.micros), figures.map(|figures| figures.timing));
        let kind = EventKind::TaskFailed { task: id, attempt, stage: stage.clone(), error, last, micros, timing };
        self.effects.push(Effect::Event { at: node.clone(), kind });
        if last {
            let (function, node) = (stage.to_string(), node.to_string());
            self.fail_task(task, JobError::Task { task: id, function, attempt, node, failure: Box::new(failure) });
        } else if alone {
            // What it reads may have been lost meanwhile.
            self.await_args(task, true);
        }
    }

    /// An attempt that had not started was given back.
    pub(crate) fn recalled(&mut self, node: &NodeId, id: TaskId, attempt: Attempt) {
        let Some(index) = self.known_node(node) else { return };
        let incarnation = self.nodes[usize::from(index)].incarnation;
        if let Some(task) = self.find_task(id)
            && self.end_attempt(task, attempt, index, incarnation)
        {
            self.free_leftovers(task, index);
            self.given_back(task);
        }
    }

    /// An attempt has ended that never ran, as far as is known: it does not count.
    pub(super) fn given_back(&mut self, task: Index) {
        if self.tasks[task].live.is_empty() {
            self.tasks[task].tries -= 1;
            self.tasks[task].recalled = true;
            self.await_args(task, true);
        } else {
            // Nor does a copy.
            self.set_copied(task, false);
        }
    }

    /// A node could not decode what it was told about a task.
    pub(crate) fn rejected(&mut self, node: &NodeId, id: TaskId, reason: String) {
        let Some(index) = self.known_node(node) else { return };
        let incarnation = self.nodes[usize::from(index)].incarnation;
        let Some(task) = self.find_task(id) else { return };
        let attempt = self.tasks[task].live.iter().find(|(_, at)| *at == index).map(|(attempt, _)| *attempt);
        if let Some(attempt) = attempt {
            let failure = TaskFailure::new(FailureKind::Rejected, reason);
            self.failed((node, incarnation), id, attempt, failure, None);
        }
    }

    /// Takes a live attempt out of the books; false when it was not live.
    pub(super) fn end_attempt(
        &mut self,
        task: Index,
        attempt: Attempt,
        node: NodeIndex,
        incarnation: Incarnation,
    ) -> bool {
        if self.nodes[usize::from(node)].incarnation != incarnation {
            return false;
        }
        let live = &mut self.tasks[task].live;
        let Some(position) = live.iter().position(|entry| *entry == (attempt, node)) else { return false };
        live.remove(position);
        self.leave(task, node);
        true
    }

    fn leave(&mut self, task: Index, node: NodeIndex) {
        let kind = (self.key(task).shape, self.tasks[task].function);
        if let Some(tasks) = self.nodes[usize::from(node)].in_flight.get_mut(&kind) {
            *tasks = tasks.saturating_sub(1);
        }
        self.counts.running -= 1;
    }

    /// No attempt of the task is wanted any more.
    pub(super) fn cancel_attempts(&mut self, task: Index) {
        self.set_copied(task, false);
        for (attempt, node) in std::mem::take(&mut self.tasks[task].live) {
            self.leave(task, node);
            let (at, id) = (self.nodes[usize::from(node)].id.clone(), self.tasks[task].id);
            self.effects.push(Effect::Cancel { node: at, task: id, attempt });
            self.free_leftovers(task, node);
        }
    }

    /// An attempt that had been ended completed: if another one has won, the rows must be the same.
    fn late_completion(&mut self, task: Index, node: NodeIndex, outputs: &[Output]) {
        let id = self.tasks[task].id;
        let mut differs = false;
        for (index, output) in (0..).zip(outputs) {
            let winner = self.object_of(id.output(index)).map(|object| &self.objects[object]);
            differs |= winner.is_some_and(|winner| winner.value == Value::Here && winner.output != *output);
            self.free_unless_needed(task, node, index);
        }
        if differs && self.function(task).deterministic {
            let function = self.function(task).name.to_string();
            self.effects.push(Effect::Fail(JobError::NonDeterministic { task: id, function }));
        }
    }

    /// The tasks that a node has, but for those that it has said that it runs: it would not give these back.
    pub(super) fn held(&self, node: NodeIndex) -> Vec<Index> {
        let held = self.tasks.iter().filter_map(|(index, task)| {
            let (attempt, _) = task.live.iter().find(|(_, at)| *at == node)?;
            self.told_running(task.id, *attempt, node).is_none().then_some(index)
        });
        held.collect()
    }

    /// Asks a node for tasks of which it may not have started its attempt.
    pub(super) fn recall(&mut self, node: NodeIndex, tasks: &[Index]) {
        let id = self.nodes[usize::from(node)].id.clone();
        for task in tasks {
            let task = &self.tasks[*task];
            if let Some((attempt, _)) = task.live.iter().find(|(_, at)| *at == node) {
                self.effects.push(Effect::Recall { node: id.clone(), task: task.id, attempt: *attempt });
            }
        }
    }

    /// Takes what an accepted attempt has read into the books of its exchanges, and frees what nobody reads again.
    pub(super) fn account(&mut self, task: Index, consumed: &[Consumed]) {
        for position in 0..self.tasks[task].args.len() {
            let ArgEntry { source: EntrySource::Set(set), parts } = self.tasks[task].args[position] else { continue };
            let (members, counted) = (self.sets[set].members.len(), self.tasks[task].counted);
            let Some(ledger) = self.ledger(set) else { continue };
            let mut read = Output::default();
            for part in consumed.iter().filter(|consumed| consumed.arg as usize == position) {
                read.add(part.read);
            }
            if !counted {
                ledger.consumed(parts, members, read);
            }
            if ledger.read_once() && parts != Parts::All {
                // What has no bytes is still there when its node is not.
                let is_there = |at: &NodeIndex| *at != NOWHERE && self.nodes[usize::from(*at)].alive;
                let here = self.sets[set].members.iter().map(|member| self.objects[*member].at);
                let holders: BTreeSet<_> = here.filter(is_there).collect();
                for node in holders {
                    self.define_set(set, node);
                    let (node, set) = (self.nodes[usize::from(node)].id.clone(), self.sets[set].id);
                    self.effects.push(Effect::FreeParts { node, set, parts });
                }
            }
        }
    }

    fn learn(&mut self, function: u32, micros: u64) {
        let stats = &mut self.functions[function as usize].stats;
        stats.times.add(micros);
        stats.mean_micros =
            if stats.times.len() == 1 { micros.max(1) } else { ((stats.mean_micros * 7 + micros) / 8).max(1) };
    }
}
