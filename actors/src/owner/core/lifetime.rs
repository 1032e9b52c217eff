//! Who needs what: references, lineage, waiting, sealing, freeing, running again.

use smallvec::SmallVec;

use super::object::Object;
use super::placement::NodeIndex;
use super::rare::Waiter;
use super::state::Effect;
use super::tables::{ArgEntry, EntrySource, OwnerState, marker};
use super::task::{State, Task};
use crate::arena::Index;
use crate::ids::CopyNumber;
use crate::task::{Arg, JobError, Output, Returns, Source};

impl OwnerState {
    pub(super) fn resolve_args(&self, args: &[Arg]) -> Result<Box<[ArgEntry]>, JobError> {
        let resolve = |arg: &Arg| {
            let source = match arg.source {
                Source::Object(id) => self.object_of(id).map(EntrySource::Object).ok_or(id.as_u128()),
                Source::Set(id) => self.by_set.get(&id).copied().map(EntrySource::Set).ok_or(id.as_u128()),
            };
            let released = |id| JobError::program(format!("argument {id:032x} was released"));
            source.map(|source| ArgEntry { source, parts: arg.parts }).map_err(released)
        };
        args.iter().map(resolve).collect()
    }

    /// The task exists: the descriptions of its arguments are kept.
    pub(super) fn remember_args(&mut self, task: Index) {
        for position in 0..self.tasks[task].args.len() {
            match self.tasks[task].args[position].source {
                EntrySource::Object(index) => self.objects[index].uses.remember(),
                EntrySource::Set(index) => {
                    let Self { sets, tasks, .. } = self;
                    sets[index].uses.remember();
                    sets[index].is_read_by(task, |other| tasks.get(other).is_some_and(|other| other.reads_set(index)));
                }
            }
        }
    }

    /// The task does not exist any more: nor need the descriptions of its arguments.
    pub(super) fn forget_args(&mut self, task: Index) {
        for entry in std::mem::take(&mut self.tasks[task].args) {
            self.forget(entry.source);
        }
    }

    fn forget(&mut self, source: EntrySource) {
        match source {
            EntrySource::Object(index) => {
                self.objects[index].uses.forget();
                self.drop_if_unused(index);
            }
            EntrySource::Set(index) => {
                self.sets[index].uses.forget();
                self.drop_set_if_unused(index);
            }
        }
    }

    /// The task is going to run: the values of its arguments are kept.
    pub(super) fn reference_args(&mut self, task: Index) {
        for position in 0..self.tasks[task].args.len() {
            match self.tasks[task].args[position].source {
                EntrySource::Object(index) => drop(self.objects[index].uses.reference()),
                EntrySource::Set(index) => self.reference_set(index),
            }
        }
    }

    /// The task is over: the values of its arguments may go.
    pub(super) fn unreference_args(&mut self, task: Index) {
        for position in 0..self.tasks[task].args.len() {
            match self.tasks[task].args[position].source {
                EntrySource::Object(index) => self.unreference_object(index),
                EntrySource::Set(index) => self.unreference_set(index),
            }
        }
    }

    pub(super) fn reference_set(&mut self, index: Index) {
        if !self.sets[index].uses.reference() {
            return;
        }
        // Nobody had referenced it: its members' values may be gone, and are wanted again; or they have moved.
        self.set_changed(index);
        for position in 0..self.sets[index].members.len() {
            let member = self.sets[index].members[position];
            self.objects[member].uses.reference();
            if self.objects[member].is_here() {
                continue;
            }
            self.sets[index].lacks_one_more(false);
            self.objects[member].add_waiter(Waiter::Set(index));
        }
    }

    /// Makes sure that all members of a set that are missing are being made.
    pub(super) fn ask_for_members(&mut self, index: Index) {
        if !self.sets[index].ask() {
            return;
        }
        for position in 0..self.sets[index].members.len() {
            let member = self.sets[index].members[position];
            if !self.objects[member].is_here() {
                self.want_value(member);
            }
        }
    }

    /// Counts what is missing, asks for it, and makes the task ready when nothing is; `front`: before all others.
    pub(super) fn await_args(&mut self, task: Index, front: bool) {
        let mut missing = 0;
        self.set_speculated(task, false);
        self.tasks[task].wait(u32::MAX);
        for position in 0..self.tasks[task].args.len() {
            let failed = match self.tasks[task].args[position].source {
                EntrySource::Object(object) => {
                    if self.objects[object].is_here() {
                        continue;
                    }
                    self.objects[object].add_waiter(Waiter::Task(task));
                    self.want_value(object)
                }
                EntrySource::Set(set) => {
                    if self.sets[set].is_complete() {
                        continue;
                    }
                    self.sets[set].add_waiter(task);
                    self.ask_for_members(set);
                    let mut missing = self.sets[set].members.iter().filter(|member| !self.objects[**member].is_here());
                    missing.find_map(|member| self.never_made(*member))
                }
            };
            if let Some(error) = failed {
                return self.fail_task(task, error);
            }
            missing += 1;
        }
        if missing == 0 {
            self.make_ready(task, front);
        } else {
            self.tasks[task].wait(missing);
        }
    }

    /// Makes sure that a missing object is being made; the error when it never will be. What was made once can be made again, though its
    /// task was cancelled since: that ends what it would have made.
    pub(super) fn want_value(&mut self, object: Index) -> Option<JobError> {
        match self.never_made(object) {
            Some(JobError::Cancelled) if self.objects[object].was_made() => {
                let producer = self.objects[object].task?;
                self.tasks[producer].revive();
                self.want_outputs(producer);
                self.run_again(producer);
            }
            Some(error) => return Some(error),
            None => {
                let producer = self.objects[object].task?;
                self.want(producer);
                self.begin_again_if_it_has_passed(producer, object);
            }
        }
        None
    }

    /// Why a missing object is not being made, and will not be.
    fn never_made(&self, object: Index) -> Option<JobError> {
        let object = &self.objects[object];
        match object.task {
            Some(task) => self.tasks[task].failure().cloned(),
            None => Some(JobError::PutLost { object: object.id }),
        }
    }

    /// An attempt of a task that was revived does not announce again what it has: if that is lost and wanted, the task begins again, since it
    /// need not have an end.
    fn begin_again_if_it_has_passed(&mut self, task: Index, object: Index) {
        let entry = &self.tasks[task];
        let announced = entry.rare.get().map_or(0, |rare| rare.announced);
        let passed = (0..announced).rev().any(|index| entry.id.output(index) == self.objects[object].id);
        if entry.state() == State::Running && passed {
            self.begin_again(task);
        }
    }

    fn begin_again(&mut self, task: Index) {
        self.withdraw(task);
        self.tasks[task].want_again();
        self.tasks[task].rare.change(|rare| rare.announced = 0);
        self.wanted.push(task);
    }

    /// The outputs of a task that are known, from the last one on.
    fn outputs_of(&self, task: Index) -> impl Iterator<Item = Index> + '_ {
        let entry = &self.tasks[task];
        (0..entry.outputs()).rev().filter_map(|index| self.object_of(entry.id.output(index)))
    }

    /// What stands for a task in the table of objects: its outputs, behind what stands for it as a whole, where that has an entry.
    pub(super) fn entries_of(&self, task: Index) -> impl Iterator<Item = Index> + '_ {
        let entry = &self.tasks[task];
        let has_marker = self.options[entry.options as usize].options.returns != Returns::One;
        let whole = has_marker.then(|| marker(entry.id)).and_then(|marker| self.object_of(marker));
        whole.into_iter().chain(self.outputs_of(task))
    }

    /// Whether nothing was done about an output of the task that is not there; from now on something is.
    fn want_outputs(&mut self, task: Index) -> bool {
        let outputs: SmallVec<[Index; 2]> = self.outputs_of(task).collect();
        outputs.into_iter().fold(false, |gone, object| gone | self.objects[object].want())
    }

    /// Somebody needs a value of this task: if it was freed or lost, the task runs again (law 2).
    pub(super) fn want(&mut self, task: Index) {
        if self.tasks[task].state() != State::Done {
            return;
        }
        let nothing_known = self.tasks[task].outputs() == 0 && self.tasks[task].tries() == 0;
        if self.want_outputs(task) || nothing_known {
            self.run_again(task);
        }
    }

    /// Attempt `number` of `task` has made output `index`, on `node`.
    pub(super) fn seal(&mut self, task: Index, index: u32, output: Output, (node, number): (NodeIndex, CopyNumber)) {
        let id = self.tasks[task].id.output(index);
        let known = self.object_of(id);
        let object = known.unwrap_or_else(|| {
            self.tasks[task].announces(index);
            self.add_object(Object::pending(id, task, 0))
        });
        if !self.same_again(object, output) {
            return;
        }
        if self.objects[object].is_here() {
            // It was made again together with another output of its task.
            return self.free_copy(object, node, number);
        }
        self.objects[object].forget_bytes();
        self.was_made(object, output);
        if known.is_none() {
            // New in its stream: readers are told once, however often it is made.
            let readers = self.tasks[task].rare.get().map(|rare| rare.readers.clone());
            for tracker in readers.unwrap_or_default() {
                self.objects[object].uses.reference();
                self.effects.push(Effect::Streamed { tracker, item: Ok(Some(id)) });
            }
        }
        self.exists(object, node, number, false);
    }

    /// An object was made, and is this.
    pub(super) fn was_made(&mut self, object: Index, output: Output) {
        let first = !self.objects[object].was_made();
        self.objects[object].made(output);
        if first {
            self.enter_edges(object);
        }
    }

    /// An attempt is about to make outputs of a task: where another attempt may give another result, nothing that one has made counts any
    /// more.
    pub(super) fn do_without_other_attempts(&mut self, task: Index, attempt: CopyNumber) {
        if self.function(task).deterministic {
            return;
        }
        let others: Vec<Index> = self.of_other_attempts(task, Some(attempt)).collect();
        others.iter().for_each(|object| self.objects[*object].forget_bytes());
        self.do_without(&others);
    }

    /// This copy of an object counts from now on, parts of which may be freed: who waits for it is told.
    pub(super) fn exists(&mut self, object: Index, node: NodeIndex, number: CopyNumber, spent: bool) {
        let entry = &mut self.objects[object];
        entry.is_at(node, number, spent);
        let (id, bytes, waiters) = (entry.id, entry.output().bytes, entry.take_waiters());
        self.has_stored(bytes);
        for waiter in waiters {
            match waiter {
                Waiter::Tracker(tracker) => {
                    self.effects.push(Effect::Resolved { tracker, object: id, outcome: Ok(()) })
                }
                Waiter::Task(task) => self.one_less_missing(task),
                Waiter::Set(set) => self.has_a_member_more(set),
            }
        }
        if !self.objects[object].is_kept() {
            self.free_value(object);
        }
    }

    /// A member that a set lacked is there.
    fn has_a_member_more(&mut self, set: Index) {
        self.set_changed(set);
        let waiters = self.sets[set].lacks_one_less();
        waiters.into_iter().for_each(|task| self.one_less_missing(task));
    }

    fn one_less_missing(&mut self, task: Index) {
        if self.tasks[task].lacks_one_less() {
            self.make_ready(task, false);
        }
    }

    /// A task that gives up waiting is no longer told.
    fn stop_waiting(&mut self, task: Index) {
        for position in 0..self.tasks[task].args.len() {
            match self.tasks[task].args[position].source {
                EntrySource::Object(object) => {
                    self.objects[object].forget_waiter(Waiter::Task(task));
                }
                EntrySource::Set(set) => {
                    self.sets[set].forget_waiter(task);
                }
            }
        }
    }

    pub(super) fn unreference_object(&mut self, index: Index) {
        let object = &mut self.objects[index];
        if !object.uses.unreference() || object.is_kept() {
            return;
        }
        let task = object.task;
        if object.is_here() {
            self.let_value_go(index);
        } else {
            // Should the last copy come back, nobody needs it.
            object.forget_last();
        }
        // Of a stream that is under way, perhaps.
        task.into_iter().for_each(|task| self.end_if_nobody_needs_it(task));
        if self.objects.get(index).is_some() {
            self.drop_if_unused(index);
        }
    }

    fn free_value(&mut self, index: Index) {
        self.let_value_go(index);
        self.drop_if_unused(index);
    }

    fn let_value_go(&mut self, index: Index) {
        if let Some((node, copy)) = self.copy_that_counts(index) {
            self.effects.push(Effect::Free { node, copy });
        }
        self.objects[index].forget_bytes();
        self.objects[index].drop_value();
    }

    /// Frees a copy of an object, unless it is the one that counts.
    pub(super) fn free_copy(&mut self, object: Index, node: NodeIndex, number: CopyNumber) {
        if self.objects[object].copy().at() == Some((node, number)) {
            return;
        }
        let (node, copy) = (self.nodes[usize::from(node)].id.clone(), self.objects[object].id.copy(self.job, number));
        self.effects.push(Effect::Free { node, copy });
    }

    /// Drops an object that nobody references or remembers, with its task when that was the last.
    fn drop_if_unused(&mut self, index: Index) {
        let object = &self.objects[index];
        if object.uses.any() {
            return;
        }
        match object.task {
            Some(task) => self.retire_if_unused(task),
            None => {
                self.let_value_go(index);
                self.remove_object(index);
            }
        }
    }

    fn remove_object(&mut self, index: Index) {
        let Some(object) = self.objects.remove(index) else { return };
        // Copies of it that are found from now on are nobody's.
        self.resumed.forget(object.id);
        if let Ok(entry) = self.by_object.find_entry(super::tables::object_hash(object.id), |other| *other == index) {
            entry.remove();
        }
    }

    pub(super) fn unreference_set(&mut self, index: Index) {
        if !self.sets[index].uses.unreference() {
            return;
        }
        for position in 0..self.sets[index].members.len() {
            let member = self.sets[index].members[position];
            self.objects[member].forget_waiter(Waiter::Set(index));
            self.unreference_object(member);
        }
        self.sets[index].lacks_nothing();
        self.drop_set_if_unused(index);
    }

    fn drop_set_if_unused(&mut self, index: Index) {
        if self.sets[index].uses.any() {
            return;
        }
        let Some(set) = self.sets.remove(index) else { return };
        self.by_set.remove(&set.id);
        for member in &set.members {
            self.objects[*member].uses.forget();
            self.drop_if_unused(*member);
        }
        if let Some(edge) = set.edge() {
            self.edge_lost_set(edge);
        }
    }

    /// Forgets all but the id of a task that is over and whose outputs nobody references or remembers.
    pub(super) fn retire_if_unused(&mut self, task: Index) {
        let Some(entry) = self.tasks.get(task) else { return };
        if !entry.state().is_over() {
            return;
        }
        let (id, state, numbers, counted) = (entry.id, entry.state(), entry.numbers(), entry.is_counted());
        let mut unused = SmallVec::<[Index; 2]>::new();
        for object in self.entries_of(task) {
            if self.objects[object].uses.any() {
                return;
            }
            unused.push(object);
        }
        for object in unused {
            self.remove_object(object);
        }
        match state {
            State::Done => drop(self.ended.done.insert(id)),
            _ => drop(self.ended.failed.insert(id, counted)),
        }
        if numbers > 1 {
            self.ended.numbers.insert(id, numbers);
        }
        let removed = self.tasks.remove(task);
        for entry in removed.into_iter().flat_map(|task| task.args) {
            self.forget(entry.source);
        }
    }

    /// Takes a task from wherever it waits or runs; the caller says what becomes of it.
    pub(super) fn withdraw(&mut self, task: Index) {
        match self.tasks[task].state() {
            State::Waiting { .. } => self.stop_waiting(task),
            State::Ready => self.ready.remove(self.key(task), task),
            State::Running => self.cancel_attempts(task),
            State::Wanted | State::Done | State::Failed => {}
        }
    }

    /// Somebody has been told of this failure.
    pub(super) fn observe(&mut self, error: &JobError) {
        self.unobserved.retain(|_, unseen| unseen != error);
    }

    /// The task failed for good: its outputs will never be, and so those of who waits for them. Where it was cancelled, and somebody waits for
    /// what it had made, it goes on for that, and for nothing else.
    pub(super) fn fail_task(&mut self, root: Index, error: JobError) {
        if error != JobError::Cancelled {
            self.unobserved.insert(self.tasks[root].id, error.clone());
        }
        let mut failing = vec![root];
        while let Some(task) = failing.pop() {
            let Some(state) = self.tasks.get(task).map(Task::state) else { continue };
            if state.is_over() {
                continue;
            }
            for tracker in self.tasks[task].take_readers() {
                self.observe(&error);
                self.effects.push(Effect::Streamed { tracker, item: Err(error.clone()) });
            }
            let mut awaited = false;
            for object in self.outputs_of(task).collect::<SmallVec<[Index; 2]>>() {
                if error == JobError::Cancelled && self.objects[object].was_made() {
                    awaited |= self.is_awaited(object);
                } else {
                    self.fail_waiters(object, &error, &mut failing);
                }
            }
            if awaited {
                // Its attempt may have announced before what is awaited, or have ended.
                let anew = !self.tasks[task].is_replay() || self.tasks[task].live().is_empty();
                self.tasks[task].revive();
                if anew && state == State::Running {
                    self.begin_again(task);
                }
                continue;
            }
            self.withdraw(task);
            self.tasks[task].fail(error.clone());
            self.unreference_args(task);
            self.retire_if_unused(task);
        }
    }

    /// Whether somebody waits for an object that is missing; a set of which nobody reads anything asks for it when somebody does.
    fn is_awaited(&mut self, object: Index) -> bool {
        let Self { objects, sets, .. } = self;
        if !objects[object].uses.is_referenced() {
            return false;
        }
        let waiters = objects[object].rare().get().map_or(&[][..], |rare| &rare.waiters);
        let mut awaited = false;
        for waiter in waiters {
            match waiter {
                Waiter::Set(set) if !sets[*set].has_waiters() => sets[*set].is_asked_no_more(),
                Waiter::Set(_) | Waiter::Task(_) | Waiter::Tracker(_) => awaited = true,
            }
        }
        awaited
    }

    /// An object will never be: neither will what waits for it.
    fn fail_waiters(&mut self, object: Index, error: &JobError, failing: &mut Vec<Index>) {
        for waiter in self.objects[object].take_waiters() {
            match waiter {
                Waiter::Tracker(tracker) => {
                    self.observe(error);
                    let outcome = Err(error.clone());
                    self.effects.push(Effect::Resolved { tracker, object: self.objects[object].id, outcome });
                }
                Waiter::Task(task) => failing.push(task),
                Waiter::Set(set) => {
                    failing.append(&mut self.sets[set].take_waiters());
                    // Its maker may be submitted again: then it is missing no more.
                    self.objects[object].add_waiter(waiter);
                }
            }
        }
    }
}
