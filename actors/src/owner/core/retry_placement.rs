//! Tasks that are tried on another node, since the one where they failed may be what is wrong:
//!
//! - *poison tasks*, those under which executors die. Such a task gets no more than [`EXECUTORS_LOST_MAX`] attempts, whatever
//!   its options say, and each on another node where there is one; if memory has run out, with nothing else on that node;
//! - those that found no room on any disk of their node. They go to nodes where they were not tried yet, [`DISKS_FULL_MAX`]
//!   at most: a folder that all nodes share is as full for the next one. Other tasks keep away from such a node for a while,
//!   as long as there is one that has room (`placement`).
//!
//! Until it has run there, such a task is bound to that node, in a queue of its own: it keeps no other task waiting.

use super::placement::{NodeIndex, NodeView};
use super::tables::OwnerState;
use super::task::Task;
use crate::arena::Index;
use crate::ids::{Incarnation, NodeId};
use crate::task::Resources;

/// So many attempts of a task that were lost with their executor are enough.
pub(super) const EXECUTORS_LOST_MAX: usize = 3;
/// So many nodes without room on their disks are enough.
pub(super) const DISKS_FULL_MAX: usize = 3;

/// Where a task was tried in vain: on nodes that may be why. Forgotten when it completes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tried {
    /// Where executors died under it.
    executors_lost: Vec<NodeIndex>,
    /// One of them for want of memory.
    out_of_memory: bool,
    /// Where it found no room on a disk.
    disks_full: Vec<NodeIndex>,
    /// Where it is to be tried next.
    next: Option<NodeIndex>,
}

impl OwnerState {
    /// A node says what could be lent there.
    pub(super) fn could_lend(&mut self, node: &NodeId, incarnation: Incarnation, resources: Resources) {
        let index = usize::from(self.node_index(node, incarnation));
        if self.nodes[index].incarnation == incarnation {
            self.nodes[index].could_lend = resources;
        }
    }

    /// An executor died under a task, for want of memory or otherwise; whether it may be tried again.
    pub(super) fn executor_lost(&mut self, task: Index, node: &NodeId, out_of_memory: bool) -> bool {
        let Some(node) = self.known_node(node) else { return true };
        let lost = self.tried(task, |tried| {
            tried.executors_lost.push(node);
            tried.out_of_memory |= out_of_memory;
            tried.executors_lost.len()
        });
        if lost >= EXECUTORS_LOST_MAX {
            self.tried(task, |tried| *tried = Tried::default());
            return false;
        }
        // What binds a task to a node binds it still: the node is there.
        let next = if self.key(task).pinned.is_none() { self.untried(task, |_| true) } else { None };
        self.tried(task, |tried| tried.next = next);
        true
    }

    /// A task found no room on any disk of its node; whether it may be tried on another one that is not known to be full. One that
    /// was bound to its node, too: it could not run there.
    pub(super) fn disk_full(&mut self, task: Index, node: &NodeId) -> bool {
        let Some(node) = self.known_node(node) else { return false };
        self.nodes[usize::from(node)].found_full();
        let full = self.tried(task, |tried| {
            tried.disks_full.push(node);
            tried.disks_full.len()
        });
        let enough = full >= DISKS_FULL_MAX;
        let has_room = |view: &NodeView| view.full_ticks == 0;
        let next = if enough { None } else { self.untried(task, has_room) };
        self.tried(task, |tried| match next {
            Some(_) => tried.next = next,
            None => *tried = Tried::default(),
        });
        next.is_some()
    }

    fn tried<R>(&mut self, task: Index, change: impl FnOnce(&mut Tried) -> R) -> R {
        self.tasks[task].rare.change(|rare| change(&mut rare.tried))
    }

    fn where_tried(&self, task: Index) -> Option<&Tried> {
        self.tasks[task].rare.get().map(|rare| &rare.tried)
    }

    /// The least loaded node where the task could run and has not failed, one with room on its disks first.
    fn untried(&mut self, task: Index, may: impl Fn(&NodeView) -> bool) -> Option<NodeIndex> {
        let at: Vec<NodeIndex> = self.tried(task, |tried| {
            tried.next = None;
            tried.executors_lost.iter().chain(&tried.disks_full).copied().collect()
        });
        let (shape, function) = (self.key(task).shape, self.tasks[task].function);
        let need = &self.options.shapes[usize::from(shape)];
        let fits = |index: &NodeIndex| {
            let view = &self.nodes[usize::from(*index)];
            let room = view.leased.times(need) > 0 && !view.leased.0.is_empty() || view.could_lend.times(need) > 0;
            !at.contains(index) && view.alive && view.has(function) && room && may(view)
        };
        let order = |index: &NodeIndex| {
            let view = &self.nodes[usize::from(*index)];
            (view.full_ticks > 0, view.load(&self.options.shapes))
        };
        (0..self.nodes.len() as NodeIndex).filter(fits).min_by_key(order)
    }

    /// Whether memory has run out under a task, with others on the same node: it is tried again where nothing else runs meanwhile.
    pub(super) fn needs_a_node_alone(&self, task: Index) -> bool {
        self.where_tried(task).is_some_and(|tried| tried.out_of_memory)
    }

    /// The node that a task has to run on since it failed on others.
    pub(super) fn retried_at(&self, task: Index) -> Option<NodeIndex> {
        self.where_tried(task)?.next
    }

    /// A node is gone: what was to run there may run anywhere. Whether there was anything.
    pub(super) fn retried_no_more_at(&mut self, node: NodeIndex) -> bool {
        let unbind = |(_, task): (Index, &mut Task)| {
            task.rare.change_if_there(|rare| rare.tried.next.take_if(|next| *next == node).is_some())
        };
        self.tasks.iter_mut().map(unbind).fold(false, |any, unbound| any | unbound)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::placement::FULL_TICKS;
    use super::super::world_tests::{INCARNATION, World, node, offer};
    use super::*;
    use crate::ids::TaskId;
    use crate::task::{FailureKind, JobError, Place, TaskOptions};

    fn nothing_was_tried(world: &World) -> bool {
        world
            .owner
            .tasks
            .iter()
            .all(|(task, _)| world.owner.where_tried(task).is_none_or(|tried| *tried == Tried::default()))
    }

    #[test]
    fn a_task_under_which_memory_ran_out_is_tried_again_alone_and_fails_the_third_time() {
        let mut world = World::new(&[("a", 2), ("b", 2)]);
        let options = TaskOptions { attempts: 100, ..TaskOptions::default() };
        let [task, other] = ["t", "other"].map(|name| world.submit_with(name, &[], options.clone()));
        world.owner.track(task.output(0), 1);
        let alone = |world: &World, of| world.running.iter().any(|((id, _), (_, spec))| *id == of && spec.alone);
        assert!(!alone(&world, task));
        world.fail(task, FailureKind::OutOfMemory);
        assert!(alone(&world, task));
        world.fail(task, FailureKind::ExecutorLost);
        assert!(alone(&world, task), "however it died the second time");
        world.fail(task, FailureKind::OutOfMemory);
        let error = world.resolved[&1].clone().unwrap_err();
        assert!(
            matches!(&error, JobError::Task { failure, .. } if failure.kind == FailureKind::OutOfMemory),
            "{error}"
        );
        world.fail(other, FailureKind::ExecutorLost);
        assert!(!alone(&world, other), "it may have been its own fault alone");
    }

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
        assert!(nothing_was_tried(&world));
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
        assert!(nothing_was_tried(&world), "what went well is forgotten");
    }

    #[test]
    fn a_task_whose_executor_was_lost_goes_to_the_same_node_where_there_is_no_other_or_none_any_more() {
        let mut world = World::new(&[("a", 1)]);
        let task = world.submit("t", &[]);
        world.fail(task, FailureKind::ExecutorLost);
        assert_eq!(world.attempt_of(task).1, node("a"));
        // One that could be lent is asked for by name.
        world.owner.offers(&node("b"), INCARNATION, offer(&["f@1"]));
        world.owner.could_lend(&node("b"), INCARNATION, Resources::cpu(1000));
        world.fail(task, FailureKind::ExecutorLost);
        world.settle();
        assert!(!world.runs(task));
        let demanded = world.demand.iter().any(|demand| demand.node == Some(node("b")) && demand.slots > 0);
        assert!(demanded, "{:?}", world.demand);
        world.owner.node_dead(&node("b"), INCARNATION);
        world.settle();
        assert_eq!(world.attempt_of(task).1, node("a"));
    }

    /// The tasks among these that run, and where.
    fn places(world: &World, tasks: &[TaskId]) -> Vec<NodeId> {
        tasks.iter().filter(|task| world.runs(**task)).map(|task| world.attempt_of(*task).1).collect()
    }

    #[test]
    fn a_task_that_finds_a_disk_full_goes_to_other_nodes_and_so_do_those_after_it() {
        let mut world = World::new(&[("a", 4), ("b", 4)]);
        let task = world.submit("t", &[]);
        let (_, full) = world.attempt_of(task);
        let other = if full == node("a") { node("b") } else { node("a") };
        world.fail(task, FailureKind::DiskFull);
        assert_eq!(world.attempt_of(task).1, other);
        let more: Vec<_> = (0..4).map(|number| world.submit(&format!("more{number}"), &[])).collect();
        assert_eq!(places(&world, &more), vec![other.clone(); 4], "none goes to the full one");
        // It is tried again in time.
        (0..FULL_TICKS).for_each(|_| world.owner.rebalance());
        let later: Vec<_> = (0..4).map(|number| world.submit(&format!("later{number}"), &[])).collect();
        assert!(places(&world, &later).contains(&full));
        world.complete(task);
        assert!(nothing_was_tried(&world));
    }

    #[test]
    fn where_every_disk_is_full_the_task_fails_with_that() {
        for nodes in [&[("a", 1)][..], &[("a", 1), ("b", 1)], &[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]] {
            let mut world = World::new(nodes);
            let options = TaskOptions { attempts: 100, ..TaskOptions::default() };
            let task = world.submit_with("t", &[], options);
            world.owner.track(task.output(0), 1);
            let mut tried = BTreeSet::new();
            while world.runs(task) {
                assert!(tried.insert(world.attempt_of(task).1), "no node twice");
                world.fail(task, FailureKind::DiskFull);
            }
            assert_eq!(tried.len(), nodes.len().min(DISKS_FULL_MAX));
            let error = world.resolved[&1].clone().unwrap_err();
            assert!(
                matches!(&error, JobError::Task { failure, .. } if failure.kind == FailureKind::DiskFull),
                "{error}"
            );
            assert!(nothing_was_tried(&world));
            // Full everywhere is no reason to place nothing: others may need no disk.
            let next = world.submit("next", &[]);
            assert!(world.runs(next));
        }
    }

    #[test]
    fn a_task_that_is_bound_to_a_node_leaves_it_when_its_disk_is_full() {
        let mut world = World::new(&[("a", 1), ("b", 1)]);
        let place = Place::Node { node: node("a"), soft: false };
        let task = world.submit_with("t", &[], TaskOptions { place, ..TaskOptions::default() });
        assert_eq!(world.attempt_of(task).1, node("a"));
        world.fail(task, FailureKind::DiskFull);
        assert_eq!(world.attempt_of(task).1, node("b"));
    }
}
