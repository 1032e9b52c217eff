//! Poison tasks: those under which executors die. Such a task gets no more than [`EXECUTORS_LOST_MAX`] attempts, whatever its
//! options say, and each on another node where there is one: it may be the node that is broken and not the task.
//!
//! Until it has run there, it is bound to that node, in a queue of its own: it keeps no other task waiting.

use std::collections::HashMap;

use super::placement::NodeIndex;
use super::tables::OwnerState;
use crate::arena::Index;
use crate::ids::{Incarnation, NodeId};
use crate::task::Resources;

/// So many attempts of a task that were lost with their executor are enough.
pub(super) const EXECUTORS_LOST_MAX: usize = 3;

/// Tasks under which executors have died, until they complete.
pub(super) type Poison = HashMap<Index, Lost>;

/// What a task has cost.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Where executors died.
    at: Vec<NodeIndex>,
    /// Where it is to be tried next.
    next: Option<NodeIndex>,
}

impl OwnerState {
    /// A node says what could be lent there.
    pub(crate) fn could_lend(&mut self, node: &NodeId, incarnation: Incarnation, resources: Resources) {
        let index = usize::from(self.node_index(node, incarnation));
        if self.nodes[index].incarnation == incarnation {
            self.nodes[index].could_lend = resources;
        }
    }

    /// An executor died under a task; whether that was once too often.
    pub(super) fn executor_lost(&mut self, task: Index, node: &NodeId) -> bool {
        let Some(node) = self.known_node(node) else { return false };
        let lost = self.poison.entry(task).or_default();
        lost.at.push(node);
        lost.next = None;
        let at = lost.at.clone();
        if at.len() >= EXECUTORS_LOST_MAX {
            self.poison.remove(&task);
            return true;
        }
        let (key, function) = (self.key(task), self.tasks[task].function);
        if key.pinned.is_none() {
            let need = &self.shapes[usize::from(key.shape)];
            let fits = |index: &NodeIndex| {
                let view = &self.nodes[usize::from(*index)];
                let room = view.leased.times(need) > 0 && !view.leased.0.is_empty() || view.could_lend.times(need) > 0;
                !at.contains(index) && view.alive && view.has(function) && room
            };
            let load = |index: &NodeIndex| self.nodes[usize::from(*index)].load(&self.shapes);
            let next = (0..self.nodes.len() as NodeIndex).filter(fits).min_by_key(load);
            self.poison.entry(task).or_default().next = next;
        }
        false
    }

    /// The node that a task has to run on since executors of others died under it.
    pub(super) fn apart(&self, task: Index) -> Option<NodeIndex> {
        self.poison.get(&task)?.next
    }

    /// A node is gone: what was to run there may run anywhere. Whether there was anything.
    pub(super) fn apart_no_more(&mut self, node: NodeIndex) -> bool {
        let bound = self.poison.values_mut().filter(|lost| lost.next == Some(node));
        bound.map(|lost| lost.next = None).count() > 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::world_tests::{LIFE, World, node, offer};
    use super::*;
    use crate::task::{FailureKind, JobError, TaskOptions};

    #[test]
    fn the_third_executor_that_dies_under_a_task_fails_it_whatever_its_options() {
        let mut world = World::new(&[("a", 2), ("b", 2)]);
        let options = TaskOptions { attempts: 100, ..TaskOptions::default() };
        let task = world.submit_with("t", &[], options);
        world.owner.track(task.output(0), 1);
        let mut tried = BTreeSet::new();
        for _ in 0..EXECUTORS_LOST_MAX {
            assert!(world.runs(task));
            tried.insert(world.attempt_of(task).1);
            world.fail(task, FailureKind::ExecutorLost);
        }
        assert!(!world.runs(task));
        let error = world.resolved[&1].clone().unwrap_err();
        assert!(
            matches!(&error, JobError::Task { failure, .. } if failure.kind == FailureKind::ExecutorLost),
            "{error}"
        );
        assert_eq!(tried, BTreeSet::from([node("a"), node("b")]));
        assert!(world.owner.poison.is_empty());
    }

    #[test]
    fn the_next_attempt_waits_for_another_node_and_keeps_nobody_waiting() {
        let mut world = World::new(&[("a", 1), ("b", 1)]);
        let task = world.submit("t", &[]);
        let (_, first) = world.attempt_of(task);
        let other = if first == node("a") { node("b") } else { node("a") };
        // The other node is full.
        let fill: Vec<_> = (0..9).map(|number| world.submit(&format!("fill{number}"), &[])).collect();
        world.fail(task, FailureKind::ExecutorLost);
        let running = || fill.iter().filter(|fill| world.runs(**fill)).count();
        let before = running();
        assert!(!world.runs(task), "it does not go back to {first}");
        assert!(before > 4, "its place is taken by others");
        let there: Vec<_> =
            fill.iter().filter(|fill| world.runs(**fill) && world.attempt_of(**fill).1 == other).collect();
        world.complete(*there[0]);
        assert_eq!(world.attempt_of(task).1, other);
        world.complete(task);
        assert!(world.owner.poison.is_empty(), "what went well is forgotten");
    }

    #[test]
    fn where_there_is_no_other_node_or_none_any_more_the_same_one_does() {
        let mut world = World::new(&[("a", 1)]);
        let task = world.submit("t", &[]);
        world.fail(task, FailureKind::ExecutorLost);
        assert_eq!(world.attempt_of(task).1, node("a"));
        // One that could be lent is asked for by name.
        world.owner.offers(&node("b"), LIFE, offer(&["f@1"]));
        world.owner.could_lend(&node("b"), LIFE, Resources::cpu(1000));
        world.fail(task, FailureKind::ExecutorLost);
        world.settle();
        assert!(!world.runs(task));
        let demanded = world.demand.iter().any(|demand| demand.node == Some(node("b")) && demand.slots > 0);
        assert!(demanded, "{:?}", world.demand);
        world.owner.node_dead(&node("b"), LIFE);
        world.settle();
        assert_eq!(world.attempt_of(task).1, node("a"));
    }
}
