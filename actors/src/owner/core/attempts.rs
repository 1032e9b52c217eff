//! What nodes report: attempts that succeeded, failed or came back. Those that died with their node are in `replay`.
//!
//! A message of an attempt that is not live is late: it changes nothing, and what the attempt has made is freed. (What executors of a node say late is
//! dropped there, in `node_manager/core/ending.rs`.) Whether a task is tried again is decided in `attempt_failed`: on another node only after an
//! executor that died or a full disk (`retry_placement`), or where its arguments are out of reach (`reach`). Memory that is denied and arguments that
//! are lost are no try of a task (`not_its_fault`), for so many times that others must have ended in between.
//!
//! What an attempt makes are copies with a number of its own. Until its node has told the Owner of one, it is the node's, which deletes
//! what an attempt has made in vain; from then on the Owner's, which frees what does not count.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::edge::EdgeEntry;
use super::placement::NodeIndex;
use super::retry_placement::Tried;
use super::state::Effect;
use super::tables::{ArgEntry, EntrySource, OwnerState};
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, CopyNumber, Incarnation, NodeId, ObjectId, TaskId};
use crate::task::{Consumed, FailureKind, JobError, Output, Parts, Resources, TaskFailure, TaskFigures};

/// How often a task may be denied memory: each time, others have ended in between.
const DENIALS_MAX: u32 = 100;

impl OwnerState {
    /// The leases of the job, all of them.
    pub(super) fn leases(&mut self, leases: &[(NodeId, Incarnation, Resources)]) {
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

    /// An attempt succeeded. The first valid one wins; which attempt has made each output that counts now, if this one did, for a log.
    pub(super) fn completed(
        &mut self,
        from: (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        outputs: &[Output],
        consumed: &[Consumed],
        figures: TaskFigures,
    ) -> Option<Vec<CopyNumber>> {
        let node = self.admit(from)?;
        let (from, _) = from;
        let live = self.find_task(id).filter(|task| self.tasks[*task].live().contains(&(attempt, node)));
        let Some(task) = live else {
            (0..outputs.len() as u32).for_each(|index| self.free_unless_it_counts(from, id.output(index), attempt));
            self.late_completion(id, outputs);
            return None;
        };
        self.end_attempt(task, attempt, node);
        self.cancel_attempts(task);
        self.counts.printed_bytes += figures.printed_bytes;
        self.counts.finished += 1;
        self.counts.dispensable_finished += u64::from(self.tasks[task].is_dispensable());
        self.learn(self.tasks[task].function, figures.micros);
        if self.told_of_attempts {
            self.tell_finished(from, task, attempt, outputs, consumed, figures);
        }
        self.account(task, consumed);
        // The outputs of a stream were announced one by one; the list at its end repeats them.
        let announced = if self.is_stream(task) { self.tasks[task].outputs() } else { 0 };
        if (outputs.len() as u32) < announced {
            // An earlier attempt had announced more.
            let function = self.function(task).name.to_string();
            self.effects.push(Effect::Fail(JobError::NonDeterministic { task: id, function }));
            return None;
        }
        self.do_without_other_attempts(task, attempt.makes());
        for (index, output) in outputs.iter().enumerate().skip(announced as usize) {
            self.seal(task, index as u32, *output, (node, attempt.makes()));
        }
        if self.tasks[task].is_revived() {
            // Only what it had made counts, and is there, or is made again.
            self.fail_task(task, JobError::Cancelled);
            return None;
        }
        let made_by = if self.logs_makers { self.made_by(task, attempt) } else { Vec::new() };
        for tracker in self.tasks[task].take_readers() {
            self.effects.push(Effect::Streamed { tracker, item: Ok(None) });
        }
        // Only now: an output that nobody references must not retire the task while it holds its arguments.
        self.tasks[task].is_done();
        let is_new = !self.tasks[task].is_counted();
        self.tasks[task].count();
        self.committed |= self.commits(task);
        if is_new {
            self.has_written(figures.outside_out_bytes);
        }
        self.tasks[task].rare.change_if_there(|rare| {
            (rare.denials, rare.outside_bytes, rare.tried) = (0, 0, Tried::default());
        });
        self.unreference_args(task);
        if announced > 0 {
            self.ask_again_for_what_is_gone(task);
        }
        self.retire_if_unused(task);
        Some(made_by)
    }

    /// Which attempt has made each output of a task of which `attempt` was accepted: what it announced before the others may be of an
    /// earlier one.
    fn made_by(&self, task: Index, attempt: Attempt) -> Vec<CopyNumber> {
        let id = self.tasks[task].id;
        let made_by = |index: u32| self.objects[self.object_of(id.output(index))?].maker();
        (0..self.tasks[task].outputs()).map(|index| made_by(index).unwrap_or(attempt.makes())).collect()
    }

    /// What an attempt of a stream has announced may be lost, or freed to be made again, before it ends: it does not make it twice, so who
    /// waits for it needs another attempt.
    fn ask_again_for_what_is_gone(&mut self, task: Index) {
        let id = self.tasks[task].id;
        let awaited = |index: u32| {
            let object = self.object_of(id.output(index))?;
            let object = &self.objects[object];
            (object.has_waiters() && object.copy().is_missing()).then_some(())
        };
        if (0..self.tasks[task].outputs()).any(|index| awaited(index).is_some()) {
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
        self.happened(from.clone(), kind);
    }

    /// A streaming attempt sealed output `index`.
    pub(super) fn yielded(
        &mut self,
        from: (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        index: u32,
        output: Output,
    ) {
        let Some(node) = self.admit(from) else { return };
        let (from, _) = from;
        let live = self.find_task(id).filter(|task| self.tasks[*task].live().contains(&(attempt, node)));
        match live {
            // An attempt after the first one gives again what was announced.
            Some(task) if index <= self.tasks[task].outputs() => {
                self.do_without_other_attempts(task, attempt.makes());
                let missing = |object: Index| !self.objects[object].is_here();
                let revived = self.tasks[task].is_revived();
                let awaited = revived && self.object_of(id.output(index)).is_some_and(missing);
                self.seal(task, index, output, (node, attempt.makes()));
                if revived {
                    self.tasks[task].rare.change(|rare| rare.announced = index + 1);
                }
                if awaited {
                    self.unless_still_wanted(task);
                }
            }
            Some(_) | None => {
                self.free_unless_it_counts(from, id.output(index), attempt);
            }
        }
    }

    /// An attempt that does not count any more has made this. What it announced of a stream before that may count.
    fn free_unless_it_counts(&mut self, node: &NodeId, object: ObjectId, attempt: Attempt) {
        if self.that_counts(object, attempt.makes()).is_none() {
            let copy = object.copy(self.job, attempt.makes());
            self.effects.push(Effect::Free { node: node.clone(), copy });
        }
    }

    /// An attempt failed; `figures` where it ran.
    pub(super) fn failed(
        &mut self,
        from: (&NodeId, Incarnation),
        id: TaskId,
        attempt: Attempt,
        failure: TaskFailure,
        figures: Option<TaskFigures>,
    ) {
        let Some(node) = self.admit(from) else { return };
        let (from, _) = from;
        let Some(task) = self.find_task(id) else { return };
        if !self.end_attempt(task, attempt, node) {
            return;
        }
        self.counts.printed_bytes += figures.map_or(0, |figures| figures.printed_bytes);
        if failure.kind != FailureKind::Cancelled {
            self.attempt_failed(task, attempt, from, failure, figures);
        }
    }

    /// An attempt ended without a fault of its own, and does not count. Memory being tight never fails a job (law 5): the task
    /// goes behind those that hold the memory now; and nor do arguments that are lost. Only when it happens again and again
    /// is something wrong with the task. One that was denied memory beside the store begins again when it can have all that it asked for.
    fn not_its_fault(&mut self, task: Index, node: &NodeId, failure: &TaskFailure) -> bool {
        if !matches!(failure.kind, FailureKind::Denied | FailureKind::ArgumentLost) {
            return false;
        }
        self.arguments_lost(task, node, failure);
        if !self.tasks[task].live().is_empty() {
            // The other attempt goes on.
            return true;
        }
        let denials = self.tasks[task].rare.change(|rare| {
            rare.denials += 1;
            rare.outside_bytes = rare.outside_bytes.max(failure.needs_bytes);
            rare.denials
        });
        if denials > DENIALS_MAX {
            return false;
        }
        self.tasks[task].try_was_none(false);
        self.await_args(task, failure.kind == FailureKind::ArgumentLost);
        true
    }

    /// Memory beside the store that attempts of a task were denied.
    pub(super) fn needs_outside(&self, task: Index) -> u64 {
        self.tasks[task].rare.get().map_or(0, |rare| rare.outside_bytes)
    }

    pub(super) fn attempt_failed(
        &mut self,
        task: Index,
        attempt: Attempt,
        node: &NodeId,
        failure: TaskFailure,
        figures: Option<TaskFigures>,
    ) {
        if self.not_its_fault(task, node, &failure) {
            return;
        }
        let again = match failure.kind {
            FailureKind::ExecutorLost | FailureKind::OutOfMemory => {
                self.executor_lost(task, node, failure.kind == FailureKind::OutOfMemory)
            }
            FailureKind::DiskFull => self.disk_full(task, node),
            kind => kind.retry(),
        };
        let alone = self.tasks[task].live().is_empty();
        self.counts.failed_attempts += 1;
        let entry = &self.tasks[task];
        let stage = self.stage(task);
        let attempts_max = self.options[entry.options as usize].options.attempts;
        // What only this node cannot do, the other attempt may.
        let last = match alone {
            true => !again || entry.tries() >= attempts_max,
            false => {
                let for_all = [FailureKind::ExecutorLost, FailureKind::OutOfMemory, FailureKind::Final];
                !again && for_all.contains(&failure.kind)
            }
        };
        let (id, error) = (entry.id, failure.to_string());
        let (micros, timing) = (figures.map_or(0, |figures| figures.micros), figures.map(|figures| figures.timing));
        let kind = EventKind::TaskFailed { task: id, attempt, stage: stage.clone(), error, last, micros, timing };
        self.happened(node.clone(), kind);
        if last {
            let (function, node) = (stage.to_string(), node.to_string());
            self.fail_task(task, JobError::Task { task: id, function, attempt, node, failure: Box::new(failure) });
        } else if alone {
            // What it reads may have been lost meanwhile.
            self.await_args(task, true);
        }
    }

    /// An attempt that had not started was given back.
    pub(super) fn recalled(&mut self, from: (&NodeId, Incarnation), id: TaskId, attempt: Attempt) {
        if let (Some(node), Some(task)) = (self.admit(from), self.find_task(id))
            && self.end_attempt(task, attempt, node)
        {
            self.given_back(task);
        }
    }

    /// An attempt has ended that never ran, as far as is known: it does not count.
    pub(super) fn given_back(&mut self, task: Index) {
        if self.tasks[task].live().is_empty() {
            self.tasks[task].try_was_none(true);
            self.await_args(task, true);
        } else {
            // Nor does a speculative one.
            self.set_speculated(task, false);
        }
    }

    /// A node could not decode what it was told about an attempt. It does not say in which incarnation, and need not: the attempt is live
    /// only if it was handed to the one that is known.
    pub(super) fn rejected(&mut self, node: &NodeId, id: TaskId, attempt: Attempt, reason: String) {
        let Some(index) = self.known_node(node) else { return };
        let incarnation = self.nodes[usize::from(index)].incarnation;
        let failure = TaskFailure::new(FailureKind::Rejected, reason);
        self.failed((node, incarnation), id, attempt, failure, None);
    }

    /// Takes a live attempt out of the tables; false when it was not live.
    pub(super) fn end_attempt(&mut self, task: Index, attempt: Attempt, node: NodeIndex) -> bool {
        let ends = self.tasks[task].attempt_ends(attempt, node);
        if ends {
            self.leave(task, node);
        }
        ends
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
        self.set_speculated(task, false);
        for (attempt, node) in self.tasks[task].attempts_end() {
            self.leave(task, node);
            let (at, id) = (self.nodes[usize::from(node)].id.clone(), self.tasks[task].id);
            self.effects.push(Effect::Cancel { node: at, task: id, attempt });
        }
    }

    /// An attempt that had been ended completed: if another one has won, the rows must be the same.
    fn late_completion(&mut self, id: TaskId, outputs: &[Output]) {
        let Some(task) = self.find_task(id).filter(|task| self.function(*task).deterministic) else { return };
        let differs = (0..).zip(outputs).any(|(index, output)| {
            let winner = self.object_of(id.output(index)).map(|object| &self.objects[object]);
            winner.is_some_and(|winner| winner.is_here() && winner.output() != *output)
        });
        if differs {
            let function = self.function(task).name.to_string();
            self.effects.push(Effect::Fail(JobError::NonDeterministic { task: id, function }));
        }
    }

    /// The tasks that a node has, but for those that it has said that it runs: it would not give these back.
    pub(super) fn held(&self, node: NodeIndex) -> Vec<Index> {
        let held = self.tasks.iter().filter_map(|(index, task)| {
            let attempt = task.live_at(node)?;
            self.told_running(task.id, attempt, node).is_none().then_some(index)
        });
        held.collect()
    }

    /// Asks a node for tasks of which it may not have started its attempt.
    pub(super) fn recall(&mut self, node: NodeIndex, tasks: &[Index]) {
        let id = self.nodes[usize::from(node)].id.clone();
        for task in tasks {
            let task = &self.tasks[*task];
            if let Some(attempt) = task.live_at(node) {
                self.effects.push(Effect::Recall { node: id.clone(), task: task.id, attempt });
            }
        }
    }

    /// Checks what an accepted attempt has read, takes it into the ledgers of its edges, and frees what nobody reads again.
    pub(super) fn account(&mut self, task: Index, consumed: &[Consumed]) {
        let mut by_arg = Cow::Borrowed(consumed);
        // As a rule they come in order.
        if !by_arg.is_sorted_by_key(|consumed| consumed.arg) {
            by_arg.to_mut().sort_by_key(|consumed| consumed.arg);
        }
        let mut reads = by_arg.chunk_by(|one, other| one.arg == other.arg).peekable();
        for position in 0..self.tasks[task].args.len() {
            if !self.tasks[task].is_replay() {
                let of_this = reads.next_if(|reads| reads[0].arg as usize == position).unwrap_or_default();
                if let Err(error) = self.check_read(task, position, of_this) {
                    self.effects.push(Effect::Fail(error));
                }
                if let ArgEntry { source: EntrySource::Set(set), parts } = self.tasks[task].args[position] {
                    self.count_read(set, parts, of_this);
                }
            }
            let ArgEntry { source: EntrySource::Set(set), parts } = self.tasks[task].args[position] else { continue };
            if parts != Parts::All && self.edge_of(set).is_some_and(EdgeEntry::is_read_once) {
                self.free_parts(set, parts);
            }
        }
    }

    /// What is counted in ledgers of what an attempt has read: all that has to be known of it should the job be taken up again.
    pub(super) fn counts_in_ledgers(&self, task: TaskId, consumed: &[Consumed]) -> Vec<Consumed> {
        let Some(task) = self.find_task(task) else { return Vec::new() };
        let of_edge = |arg: &ArgEntry| match arg.source {
            EntrySource::Set(set) => self.sets[set].edge().is_some(),
            EntrySource::Object(_) => false,
        };
        let counts = |consumed: &&Consumed| self.tasks[task].args.get(consumed.arg as usize).is_some_and(of_edge);
        consumed.iter().filter(counts).copied().collect()
    }

    /// Parts of all members of a set are freed, wherever they are; the nodes that hold some. Members are looked through once for each version of
    /// the set, not for each of its readers.
    pub(super) fn spend(&mut self, set: Index) -> Vec<NodeIndex> {
        let Self { sets, objects, resumed, nodes, .. } = self;
        let set = &mut sets[set];
        if set.spent().is_none() {
            let mut holders = BTreeSet::new();
            for member in &set.members {
                let object = &mut objects[*member];
                object.spend();
                resumed.spend(object.id);
                holders.extend(object.holder());
            }
            set.is_spent_at(holders);
        }
        // What has no bytes is still there when its node is not.
        set.spent().into_iter().flatten().copied().filter(|at| nodes[usize::from(*at)].alive).collect()
    }

    fn learn(&mut self, function: u32, micros: u64) {
        let stats = &mut self.functions[function as usize].stats;
        stats.times.add(micros);
        stats.mean_micros =
            if stats.times.len() == 1 { micros.max(1) } else { ((stats.mean_micros * 7 + micros) / 8).max(1) };
    }
}
