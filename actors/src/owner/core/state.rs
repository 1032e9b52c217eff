//! The truth about a job: tasks, objects, sets, references, attempts. Pure: what happened goes in, effects come out.
//!
//! The states of tasks, objects and sets are drawn in the module of the [Owner](crate::owner).
//!
//! The program's calls are here; what nodes report is in `attempts` and, of tasks that take too long, in `stragglers`;
//! counting is in `lifetime`, handing out in `handing_out`, the tables themselves in `tables`.

use std::sync::Arc;

use bytes::Bytes;

use super::object::Object;
use super::rare::Waiter;
use super::set::Set;
use super::tables::{ArgEntry, OwnerState, marker};
use super::task::{State, Task};
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, CopyId, CopyNumber, EdgeId, Incarnation, NodeId, ObjectId, RowHash, SetId, TaskId};
use crate::protocol::copies::Whereabouts;
use crate::task::{Description, JobError, Output, Parts, Resources, Returns, TaskSpec};

/// Who waits for an object or a stream: numbered by the program's futures.
pub type Tracker = u64;

/// Slots that a job could use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// What one slot has.
    pub(crate) resources: Resources,
    /// The node, where only this one will do.
    pub(crate) node: Option<NodeId>,
    /// The function that the node must have, where some lack it.
    pub(crate) function: Option<Arc<str>>,
    /// How many.
    pub(crate) slots: u64,
}

/// What the Owner does to the world.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Tell a node the members of a set.
    DefineSet { node: NodeId, set: SetId },
    /// Hand an attempt to a node.
    Run { node: NodeId, spec: Arc<TaskSpec> },
    /// Ask for an attempt that has not started.
    Recall { node: NodeId, task: TaskId, attempt: Attempt },
    /// End an attempt.
    Cancel { node: NodeId, task: TaskId, attempt: Attempt },
    /// Delete a copy.
    Free { node: NodeId, copy: CopyId },
    /// Put a copy into the Owner's own store, from the bytes that the Owner has and this attempt made.
    Restore { copy: CopyId, maker: CopyNumber, bytes: Bytes, rows: u64, row_hash: RowHash },
    /// Ask a node which copies of the job it holds.
    TakeInventory { node: NodeId },
    /// Tell a node that one of these could not fetch from the other.
    SuspectUnreachable { node: NodeId, of: [NodeId; 2] },
    /// Delete parts of the copies that a version of a set means.
    FreeParts { node: NodeId, set: SetId, version: u32, parts: Parts },
    /// An object that somebody waits for is there, or never will be.
    Resolved { tracker: Tracker, object: ObjectId, outcome: Result<(), JobError> },
    /// A stream went on: the next object, or its end.
    Streamed { tracker: Tracker, item: Result<Option<ObjectId>, JobError> },
    /// What the job could use.
    Demand(Vec<Demand>),
    /// Something to tell people, about something at a node.
    Event { at: NodeId, kind: Box<EventKind> },
    /// The job cannot go on.
    Fail(JobError),
}

impl OwnerState {
    /// Something happened at a node that people are told of.
    pub(super) fn happened(&mut self, at: NodeId, kind: EventKind) {
        self.effects.push(Effect::Event { at, kind: Box::new(kind) });
    }

    /// A task is wanted; its outputs get one reference each. A description that is known is the same task.
    pub(super) fn submit(&mut self, id: TaskId, description: Description) {
        self.counts.submitted += 1;
        if let Some(task) = self.find_task(id) {
            return self.submit_again(task, &description);
        }
        let args = match self.resolve_args(&description.args) {
            Ok(args) => args,
            Err(error) => return self.effects.push(Effect::Fail(error)),
        };
        let logged = self.done_before(id);
        let completed_before = self.ended.done.remove(&id) || logged.is_some();
        // Attempts of its earlier incarnation may still run: their numbers are not used again.
        let failed = self.ended.failed.remove(&id);
        let again = completed_before || failed.is_some();
        let numbers = if again { self.ended.numbers.remove(&id).unwrap_or(1) } else { 0 };
        let (function, options) = (self.intern_function(&description), self.intern_options(description.options));
        let returns = self.options[options as usize].options.returns;
        let outputs = match returns {
            Returns::One => 1,
            Returns::Many(n) => n,
            Returns::Stream => logged.as_ref().map_or(0, |done| done.outputs.len() as u32),
        };
        let params = description.params.as_ref().into();
        let task = self.tasks.insert(Task::new(id, params, args, (function, options), outputs, numbers));
        if completed_before {
            self.tasks[task].is_done();
        }
        if completed_before && logged.is_none() || failed == Some(true) {
            self.tasks[task].count();
        }
        for index in 0..outputs {
            // Who reads a stream gets a reference to each output then.
            let references = u32::from(returns != Returns::Stream);
            let object = self.add_object(Object::pending(id.output(index), task, references));
            if completed_before {
                self.objects[object].drop_value();
            }
        }
        if returns != Returns::One {
            let handles = u32::from(returns == Returns::Stream);
            self.add_object(Object::pending(marker(id), task, handles));
        }
        self.remember_args(task);
        if let Some(done) = logged {
            self.take_up(task, &done);
        } else if !completed_before {
            self.reference_args(task);
            // Otherwise it waits until that happens.
            if !self.is_to_be_cancelled(id, outputs) {
                self.await_args(task, false);
            }
        }
    }

    fn submit_again(&mut self, task: Index, description: &Description) {
        let (id, outputs) = (self.tasks[task].id, self.tasks[task].outputs());
        if !self.describes(task, description) {
            let (known, name) = (self.function(task).name.clone(), &description.function);
            let error = JobError::program(format!("two descriptions have the id {id}: one of {known}, one of {name}"));
            return self.effects.push(Effect::Fail(error));
        }
        if self.is_stream(task) {
            if let Some(marker) = self.object_of(marker(id)) {
                self.objects[marker].uses.reference();
            }
        } else {
            for index in 0..outputs {
                if let Some(object) = self.object_of(id.output(index)) {
                    self.objects[object].uses.reference();
                }
            }
        }
        self.tasks[task].is_submitted_again();
        // Cancelled or failed before: submitting again is a new attempt. Its arguments may have been replaced since.
        if self.tasks[task].state() == State::Failed {
            match self.resolve_args(&description.args) {
                Ok(args) => {
                    self.unobserved.remove(&id);
                    self.forget_args(task);
                    self.tasks[task].begin_anew(args);
                    self.remember_args(task);
                    self.reference_args(task);
                    self.await_args(task, false);
                }
                Err(error) => self.effects.push(Effect::Fail(error)),
            }
        }
    }

    /// Whether this is the description of a task, as far as it is kept: the salt is in the id alone.
    fn describes(&self, task: Index, description: &Description) -> bool {
        let (entry, known) = (&self.tasks[task], &self.options[self.tasks[task].options as usize].options);
        let same = |args: Box<[ArgEntry]>| entry.state() == State::Failed || args == entry.args;
        self.function(task).name == description.function
            && *entry.params == *description.params
            && (known.returns, known.target_bytes) == (description.options.returns, description.options.target_bytes)
            && known.align == description.options.align
            && entry.args.len() == description.args.len()
            && self.resolve_args(&description.args).map_or(true, same)
    }

    /// The program put a copy of `object` on its node; it gets one reference.
    pub(super) fn put(
        &mut self,
        (object, number): (ObjectId, CopyNumber),
        output: Output,
        node: &NodeId,
        incarnation: Incarnation,
    ) {
        let at = self.node_index(node, incarnation);
        match self.object_of(object) {
            // The same content was put before, and is there still.
            Some(known) if self.objects[known].is_here() => {
                self.objects[known].uses.reference();
                if output.bytes > 0 {
                    self.free_copy(known, at, number);
                }
            }
            Some(known) => {
                self.objects[known].uses.reference();
                self.was_made(known, output);
                self.exists(known, at, number, false);
            }
            None => {
                self.add_object(Object::put(object, output, (at, number)));
                self.has_stored(output.bytes);
            }
        }
    }

    /// The bytes of what the program put: they are put back where its copy is lost.
    pub(super) fn keep_put(&mut self, object: ObjectId, number: CopyNumber, bytes: &[u8]) {
        // Of what was put before, and is there still, they are known.
        if let Some((index, _)) = self.that_counts(object, number) {
            self.objects[index].keep_bytes(number, bytes);
        }
    }

    /// Somebody waits for an object.
    pub(super) fn track(&mut self, object: ObjectId, tracker: Tracker) {
        let Some(index) = self.object_of(object) else {
            let outcome = Err(JobError::program(format!("object {object} was released")));
            return self.effects.push(Effect::Resolved { tracker, object, outcome });
        };
        if self.objects[index].is_here() {
            return self.effects.push(Effect::Resolved { tracker, object, outcome: Ok(()) });
        }
        if let Some(error) = self.want_value(index) {
            self.observe(&error);
            return self.effects.push(Effect::Resolved { tracker, object, outcome: Err(error) });
        }
        self.objects[index].add_waiter(Waiter::Tracker(tracker));
    }

    /// Somebody wants to know that an object was made, and not its value: it may be gone by now.
    pub(super) fn track_made(&mut self, object: ObjectId, tracker: Tracker) {
        match self.object_of(object) {
            Some(index) if self.objects[index].was_made() => {
                self.effects.push(Effect::Resolved { tracker, object, outcome: Ok(()) });
            }
            _ => self.track(object, tracker),
        }
    }

    /// Somebody reads the outputs of a streaming task; those sealed before are given at once.
    pub(super) fn track_stream(&mut self, id: TaskId, tracker: Tracker) {
        let Some(task) = self.find_task(id) else {
            let error = JobError::program(format!("stream {id} was released"));
            return self.effects.push(Effect::Streamed { tracker, item: Err(error) });
        };
        let made = |object: Index| self.objects[object].was_made();
        let outputs = self.tasks[task].outputs();
        // What was made is told of, whether or not it is there still.
        if outputs == 0 || !(0..outputs).filter_map(|index| self.object_of(id.output(index))).all(made) {
            self.want(task);
        }
        for index in 0..outputs {
            if let Some(object) = self.object_of(id.output(index)) {
                self.objects[object].uses.reference();
                self.find_again(object);
                self.effects.push(Effect::Streamed { tracker, item: Ok(Some(id.output(index))) });
            }
        }
        match self.tasks[task].state() {
            State::Done => self.effects.push(Effect::Streamed { tracker, item: Ok(None) }),
            State::Failed => {
                let error = self.tasks[task].failure().cloned().expect("a task that has failed says why");
                self.observe(&error);
                self.effects.push(Effect::Streamed { tracker, item: Err(error) });
            }
            State::Wanted | State::Waiting { .. } | State::Ready | State::Running => {
                self.tasks[task].rare.change(|rare| rare.readers.push(tracker));
            }
        }
    }

    /// The program made a set, of members of an edge or of any objects; it gets one reference, and so does each member. The same list is
    /// the same set.
    pub(super) fn make_set(&mut self, id: SetId, members: &[ObjectId], edge: Option<EdgeId>) {
        if let Some(set) = self.by_set.get(&id).copied() {
            // Its last reference may be gone while a task remembers it: then its members are wanted again.
            self.reference_set(set);
            return self.ask_for_members(set);
        }
        let known: Vec<_> = members.iter().map_while(|member| self.object_of(*member)).collect();
        if known.len() < members.len() {
            let error = JobError::program(format!("set member {} was released", members[known.len()]));
            return self.effects.push(Effect::Fail(error));
        }
        let edge = match edge.map(|edge| self.edge_with(edge, &known)).transpose() {
            Ok(edge) => edge,
            Err(error) => return self.effects.push(Effect::Fail(error)),
        };
        if let Some(edge) = edge {
            self.make_whole_what_joined_late(edge);
        }
        let version = self.next_version();
        let set = self.sets.insert(Set::new(id, known.into(), edge, version));
        if let Some(edge) = edge {
            self.edge_has_set(edge, set);
        }
        self.by_set.insert(id, set);
        for position in 0..members.len() {
            let member = self.sets[set].members[position];
            self.objects[member].uses.reference();
            self.objects[member].uses.remember();
            if self.objects[member].is_here() {
                continue;
            }
            self.objects[member].add_waiter(Waiter::Set(set));
            // It was made once: it is gone, and perhaps nobody reads it any more.
            let was_made = self.objects[member].was_made();
            self.sets[set].lacks_one_more(!was_made);
            if !was_made && let Some(task) = self.objects[member].task {
                self.want(task);
            }
        }
    }

    /// One reference of the program to an object is gone.
    pub(super) fn release_object(&mut self, object: ObjectId) {
        if let Some(index) = self.object_of(object) {
            self.unreference_object(index);
        }
    }

    /// One reference of the program to a stream is gone.
    pub(super) fn release_stream(&mut self, task: TaskId) {
        self.release_object(marker(task));
    }

    /// One reference of the program to a set is gone.
    pub(super) fn release_set(&mut self, set: SetId) {
        if let Some(index) = self.by_set.get(&set).copied() {
            self.unreference_set(index);
        }
    }

    /// The program no longer wants a task; whoever waits for it is told so. Done tasks stay done.
    pub(super) fn cancel(&mut self, id: TaskId) {
        let Some(task) = self.find_task(id) else { return };
        for index in 0..self.tasks[task].outputs() {
            self.resumed.was_cancelled(id.output(index));
        }
        if !self.tasks[task].state().is_over() {
            self.fail_task(task, JobError::Cancelled);
        }
    }

    /// The program no longer wants the task that makes an object.
    pub(super) fn cancel_maker(&mut self, object: ObjectId) {
        if let Some(task) = self.object_of(object).and_then(|index| self.objects[index].task) {
            self.cancel(self.tasks[task].id);
        }
    }

    /// Nodes that hold an object; empty while it does not exist.
    pub(super) fn locations(&self, object: ObjectId) -> Vec<NodeId> {
        self.lookup(object).map(|(_, node, _)| node).into_iter().collect()
    }

    /// Where an object that exists is.
    pub(super) fn where_is(&self, object: ObjectId) -> Option<Whereabouts> {
        let object = &self.objects[self.object_of(object)?];
        object.is_here().then(|| self.whereabouts(object))
    }

    /// Size and place of an object that exists.
    pub(crate) fn lookup(&self, object: ObjectId) -> Option<(Output, NodeId, CopyId)> {
        let object = &self.objects[self.object_of(object)?];
        let (node, number) = object.copy().at()?;
        Some((object.output(), self.nodes[usize::from(node)].id.clone(), object.id.copy(self.job, number)))
    }
}
