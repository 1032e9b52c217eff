//! Taking a job up again: what its log says was done is done, and is found where nodes say that they still have it.
//!
//! The program runs again from its beginning and submits the tasks that it submitted before. One that the log has completed is
//! not run: its outputs are known by size, rows and hash, and what it read goes into the books as it is in the log. Their
//! values are taken, in this order, from a node that says that it holds them, from the log, where they are small, or they are
//! like values that were lost with a node: made again when somebody needs them.
//!
//! Nodes say what they hold before the program begins; what is of a task in the log is kept until it is submitted, what is of
//! no task that anybody knows is freed.

use std::collections::{HashMap, HashSet};

use super::placement::{NodeIndex, NodeView};
use super::state::Effect;
use super::tables::{EntrySource, OwnerState, Value};
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, Incarnation, NodeId, ObjectId, TaskId};
use crate::joblog::Choice;
use crate::joblog::{Past, TaskDone};
use crate::task::Output;

/// What earlier runs have left and this one has not come to yet.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Tasks that completed.
    tasks: HashMap<TaskId, TaskDone>,
    /// What they made that has bytes, and a node that has said that it holds it.
    outputs: HashMap<ObjectId, (Output, Option<NodeIndex>)>,
    /// Makers of these are going to be cancelled: they must not complete before.
    cancelled: HashSet<ObjectId>,
}

impl Resumed {
    /// A life of a node is over.
    pub(super) fn node_lost(&mut self, node: NodeIndex) {
        self.outputs.values_mut().filter(|(_, at)| *at == Some(node)).for_each(|(_, at)| *at = None);
    }

    /// What the log says of an object whose task has not been submitted.
    #[cfg(test)]
    pub(super) fn logged(&self, object: ObjectId) -> Option<Output> {
        self.outputs.get(&object).map(|(output, _)| *output)
    }

    /// Whether an object is where a node has said that it holds it, and its task has not been submitted.
    pub(super) fn is_at(&self, object: ObjectId, node: NodeIndex) -> bool {
        self.outputs.get(&object).is_some_and(|(_, at)| *at == Some(node))
    }

    /// An object of an earlier run is of no use where it was found.
    pub(super) fn is_gone(&mut self, object: ObjectId) {
        self.outputs.remove(&object);
    }

    /// The maker of an object was cancelled.
    pub(super) fn was_cancelled(&mut self, object: ObjectId) {
        self.cancelled.remove(&object);
    }
}

impl OwnerState {
    /// The job was run before. Nodes that are named and not known by now are held to be dead.
    pub(crate) fn resume(&mut self, past: Past) {
        self.attempts_from = past.runs.saturating_mul(Attempt::PER_RUN);
        for choice in &past.choices {
            match choice {
                Choice::GivenUp(object) => drop(self.resumed.cancelled.insert(*object)),
                Choice::Nodes(nodes) => nodes.iter().for_each(|shape| self.may_be_dead(&shape.node)),
                _ => {}
            }
        }
        for done in past.done {
            self.may_be_dead(&done.node);
            let outputs = (0..).zip(&done.outputs).filter(|(_, output)| output.bytes > 0);
            self.resumed.outputs.extend(outputs.map(|(index, output)| (done.task.output(index), (*output, None))));
            self.resumed.tasks.insert(done.task, done);
        }
    }

    pub(super) fn may_be_dead(&mut self, node: &NodeId) {
        if self.known_node(node).is_none() {
            let mut view = NodeView::new(node.clone(), Incarnation(0));
            // Should it come, it is asked what it has.
            (view.alive, view.lost) = (false, true);
            self.nodes.push(view);
        }
    }

    /// Which run of the job this is, from 0.
    pub(crate) fn run(&self) -> u32 {
        Attempt(self.attempts_from).run()
    }

    /// What the log has of a task that is submitted now.
    pub(super) fn done_before(&mut self, task: TaskId) -> Option<TaskDone> {
        self.resumed.tasks.remove(&task)
    }

    /// Whether the program is going to cancel this task at once, since it did.
    pub(super) fn is_to_be_cancelled(&self, task: TaskId, outputs: u32) -> bool {
        !self.resumed.cancelled.is_empty()
            && (0..outputs).any(|index| self.resumed.cancelled.contains(&task.output(index)))
    }

    /// A task that was submitted is done: what it made and read is what the log says.
    pub(super) fn take_up(&mut self, task: Index, done: &TaskDone) {
        let at = self.node_or_add(&done.node);
        for (index, output) in (0..).zip(&done.outputs) {
            let Some(object) = self.object_of(done.task.output(index)) else { continue };
            let entry = &mut self.objects[object];
            (entry.output, entry.made) = (*output, true);
            if output.bytes > 0 {
                entry.was_lost_at(at);
            }
        }
        for (index, bytes) in &done.values {
            if let Some(object) = self.object_of(done.task.output(*index)) {
                self.objects[object].keep_bytes(bytes);
            }
        }
        self.enter_what_was_read(task);
        self.account(task, &done.consumed);
        self.tasks[task].counted = true;
        self.committed |= self.commits(task);
        self.counts.finished += 1;
        let stage = self.stage(task);
        let kind = EventKind::TaskResumed { task: done.task, stage };
        let here = usize::from(self.home.unwrap_or(at));
        self.effects.push(Effect::Event { at: self.nodes[here].id.clone(), kind });
        for index in 0..done.outputs.len() as u32 {
            if let Some(object) = self.object_of(done.task.output(index)) {
                self.find_again(object);
            }
        }
    }

    /// What a task has read was made, though it may be gone: its exchanges count it.
    fn enter_what_was_read(&mut self, task: Index) {
        for position in 0..self.tasks[task].args.len() {
            let EntrySource::Set(set) = self.tasks[task].args[position].source else { continue };
            for position in 0..self.sets[set].members.len() {
                let member = self.sets[set].members[position];
                if self.objects[member].made {
                    self.enter(set, member);
                }
            }
        }
    }

    /// Gives an object of an earlier run its value back, where it can be had without making it again and somebody holds it.
    pub(super) fn find_again(&mut self, object: Index) {
        let entry = &self.objects[object];
        let (id, Output { bytes, rows, row_hash }) = (entry.id, entry.output);
        if entry.value != Value::Freed || !entry.made || entry.references == 0 {
            return;
        }
        let found = self.resumed.outputs.get(&id).and_then(|(_, at)| *at);
        let found = found.filter(|at| self.nodes[usize::from(*at)].alive);
        match (found, self.home, entry.kept_bytes()) {
            (Some(at), ..) => {
                self.resumed.outputs.remove(&id);
                self.exists(object, at);
            }
            (None, Some(home), _) if bytes == 0 => self.exists(object, home),
            (None, Some(home), Some(bytes)) => {
                self.effects.push(Effect::Restore { object: id, bytes, rows, row_hash });
                self.exists(object, home);
            }
            _ => {}
        }
    }

    /// A node holds an object; whether it is of an earlier run, and is kept.
    pub(super) fn found(&mut self, id: ObjectId, at: NodeIndex, output: Output) -> bool {
        let Some((logged, slot)) = self.resumed.outputs.get_mut(&id) else { return false };
        // Another attempt has made it, of a task that is not deterministic, and nobody has heard of that one.
        if *logged != output {
            return false;
        }
        // What a node that is gone had said is worth nothing.
        let before = slot.filter(|before| self.nodes[usize::from(*before)].alive).unwrap_or(at);
        *slot = Some(before);
        let first = before == at;
        let Some(object) = self.object_of(id) else { return first };
        self.find_again(object);
        self.resumed.outputs.remove(&id);
        self.objects.get(object).is_some_and(|object| object.value == Value::Here && object.at == at)
    }
}
