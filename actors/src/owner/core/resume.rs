//! Taking a job up again: what its log says was done is done, and is found where nodes say that they still have it.
//!
//! The program runs again from its beginning and submits the tasks that it submitted before. One that the log has completed is
//! not run: its outputs are known by size, rows and hash, and what it read goes into the ledgers as it is in the log. Their
//! values are taken, in this order, from a node that says that it holds them, from the log, where they are small, or they are
//! like values that were lost with a node: made again when somebody needs them.
//!
//! Nodes say what they hold before the program begins. The log names, for each output, the attempt that was accepted: a copy of what that
//! one made is kept until the task is submitted, one for each output. Whatever else is found is freed on sight, and what was done and not
//! logged is done again.

use std::collections::{HashMap, HashSet};

use super::placement::{NodeIndex, NodeView};
use super::state::Effect;
use super::tables::OwnerState;
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{CopyNumber, Incarnation, NodeId, ObjectId, TaskId};
use crate::joblog::Choice;
use crate::joblog::{Past, TaskDone};
use crate::task::{JobError, Output};

/// What earlier runs have left and this one has not come to yet.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Tasks that completed.
    tasks: HashMap<TaskId, TaskDone>,
    /// What they made that has bytes.
    outputs: HashMap<ObjectId, Made>,
    /// Makers of these are going to be cancelled: they must not complete before.
    cancelled: HashSet<ObjectId>,
}

/// An output of a task that the log says was done.
#[derive(Clone, Copy, Debug)]
struct Made {
    output: Output,
    /// The attempt that was accepted.
    by: CopyNumber,
    /// A copy of what that one made, and a node that has said that it holds it.
    found: Option<(NodeIndex, CopyNumber)>,
    /// Parts of all copies were freed, since they had been read.
    spent: bool,
}

impl Resumed {
    /// An incarnation of a node is over.
    pub(super) fn node_lost(&mut self, node: NodeIndex) {
        let there = |made: &&mut Made| made.found.is_some_and(|(at, _)| at == node);
        self.outputs.values_mut().filter(there).for_each(|made| made.found = None);
    }

    /// What the log says of an object whose task has not been submitted.
    #[cfg(test)]
    pub(super) fn logged(&self, object: ObjectId) -> Option<Output> {
        self.outputs.get(&object).map(|made| made.output)
    }

    /// Parts of an object are freed, wherever copies of it are.
    pub(super) fn spend(&mut self, object: ObjectId) {
        if let Some(made) = self.outputs.get_mut(&object) {
            made.spent = true;
        }
    }

    /// Whether parts of an object were freed of which no copy has been taken.
    pub(super) fn is_spent(&self, object: ObjectId) -> bool {
        self.outputs.get(&object).is_some_and(|made| made.spent)
    }

    /// A copy of this object is of use only if it is whole.
    pub(super) fn whole_or_none(&mut self, object: ObjectId) {
        if self.is_spent(object) {
            self.forget(object);
        }
    }

    /// Copies of this object that are found from now on are of no use.
    pub(super) fn forget(&mut self, object: ObjectId) {
        // Most jobs are run once, and objects go all the time.
        if !self.outputs.is_empty() {
            self.outputs.remove(&object);
        }
    }

    /// The maker of an object was cancelled.
    pub(super) fn was_cancelled(&mut self, object: ObjectId) {
        self.cancelled.remove(&object);
    }
}

impl OwnerState {
    /// The job was run before. Nodes that are named and not known by now are held to be dead.
    pub(super) fn resume(&mut self, past: Past) {
        self.numbering.run = past.runs;
        if self.numbering.run >= CopyNumber::RUNS {
            let reason = format!("the job was begun {} times, and no number is left for another run", CopyNumber::RUNS);
            self.effects.push(Effect::Fail(JobError::Runtime { reason }));
        }
        for choice in &past.choices {
            match choice {
                Choice::GivenUp(object) => drop(self.resumed.cancelled.insert(*object)),
                Choice::Nodes(nodes) => nodes.iter().for_each(|shape| self.may_be_dead(&shape.node)),
                _ => {}
            }
        }
        for done in past.done {
            self.may_be_dead(&done.node);
            let made = (0..).zip(done.outputs.iter().zip(&done.made_by)).filter(|(_, (output, _))| output.bytes > 0);
            self.resumed.outputs.extend(made.map(|(index, (output, by))| {
                (done.task.output(index), Made { output: *output, by: *by, found: None, spent: false })
            }));
            let before = self.resumed.tasks.remove(&done.task);
            let done = before.map_or(done.clone(), |before| done.after(before));
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
        self.numbering.run
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
            self.was_made(object, *output);
        }
        for (index, bytes) in &done.values {
            let by = done.made_by.get(*index as usize);
            if let Some((object, by)) = self.object_of(done.task.output(*index)).zip(by) {
                self.objects[object].keep_bytes(*by, bytes);
            }
        }
        self.account(task, &done.consumed);
        self.tasks[task].count();
        self.committed |= self.commits(task);
        self.counts.finished += 1;
        let stage = self.stage(task);
        let kind = EventKind::TaskResumed { task: done.task, stage };
        let here = usize::from(self.home.unwrap_or(at));
        self.happened(self.nodes[here].id.clone(), kind);
        for index in 0..done.outputs.len() as u32 {
            if let Some(object) = self.object_of(done.task.output(index)) {
                self.find_again(object);
            }
        }
    }

    /// Gives an object of an earlier run its value back, where it can be had without making it again and somebody holds it.
    pub(super) fn find_again(&mut self, object: Index) {
        let entry = &self.objects[object];
        let (id, bytes) = (entry.id, entry.output().bytes);
        if entry.is_here() || !entry.was_made() || !entry.uses.is_referenced() {
            return;
        }
        let made = self.resumed.outputs.get(&id).filter(|made| !self.mixes(object, Some(made.by)));
        let found = made.and_then(|made| Some((made.found?, made.spent)));
        let found = found.filter(|((at, _), _)| self.nodes[usize::from(*at)].alive);
        match (found, self.home) {
            (Some(((at, number), spent)), _) => {
                self.resumed.forget(id);
                self.is_back(object, at, number, spent);
            }
            // Nothing of it was ever anywhere.
            (None, Some(home)) if bytes == 0 => self.is_back(object, home, CopyNumber::FIRST, false),
            (None, Some(home)) => {
                if let Some(number) = self.put_back(object) {
                    self.is_back(object, home, number, false);
                }
            }
            (None, None) => {}
        }
    }

    /// A node holds a copy of an object, of what this attempt made; whether that is one of an earlier run, and is kept.
    pub(super) fn found(
        &mut self,
        id: ObjectId,
        copy: (NodeIndex, CopyNumber),
        by: Option<CopyNumber>,
        output: Output,
    ) -> bool {
        let Some(made) = self.resumed.outputs.get_mut(&id) else { return false };
        if Some(made.by) != by || made.output != output {
            return false;
        }
        // What a node that is gone had said is worth nothing.
        let kept = made.found.filter(|(before, _)| self.nodes[usize::from(*before)].alive).unwrap_or(copy);
        made.found = Some(kept);
        let Some(object) = self.object_of(id) else { return kept == copy };
        self.find_again(object);
        self.resumed.forget(id);
        self.objects.get(object).is_some_and(|object| object.copy().at() == Some(copy))
    }
}
