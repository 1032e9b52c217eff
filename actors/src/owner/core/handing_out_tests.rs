//! What is queued where: taken back from where it waits for nothing, and placed elsewhere.

use super::world_tests::{INCARNATION, World, node};
use crate::ids::{Attempt, TaskId};
use crate::printing::JOB_BYTES_MAX;
use crate::protocol::scheduler::{Shape, Wait};
use crate::task::{FailureKind, JobError, Place, Resources, StillRunning, TaskFailure, TaskFigures, TaskOptions};

const SECOND: u64 = 1_000_000;

fn submit(world: &mut World, name: &str, at: &str, soft: bool) -> TaskId {
    let place = Place::Node { node: node(at), soft };
    world.submit_with(name, &[], TaskOptions { place, ..TaskOptions::default() })
}

/// Three tasks that would rather be on `a`, where one slot is: one runs, two are queued. `b` idles.
fn queued_on_one_of_two() -> (World, [TaskId; 3]) {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let tasks = ["0", "1", "2"].map(|name| submit(&mut world, name, "a", true));
    assert!(tasks.iter().all(|task| world.attempt_of(*task).1 == node("a")));
    (world, tasks)
}

/// A second passes: the node says what runs, and gives back what it is asked for and has not started.
fn a_second_passes(world: &mut World, running: TaskId) {
    let (attempt, at) = world.attempt_of(running);
    world.owner.still_running(&at, &[StillRunning { task: running, attempt, micros: 2 * SECOND }]);
    world.owner.rebalance();
    world.settle();
    for (task, attempt) in std::mem::take(&mut world.recalled) {
        assert_ne!(task, running, "it has been said that this one runs");
        let (at, _) = world.running.remove(&(task, attempt)).expect("what is asked for is there");
        world.owner.recalled((&at, INCARNATION), task, attempt);
        world.settle();
    }
}

#[test]
fn what_is_queued_behind_a_task_that_does_not_end_runs_where_a_slot_idles() {
    for stuck in 0..3 {
        let (mut world, tasks) = queued_on_one_of_two();
        for other in (0..3).filter(|other| *other != stuck) {
            a_second_passes(&mut world, tasks[stuck]);
            let on_b = tasks.iter().find(|task| world.runs(**task) && world.attempt_of(**task).1 == node("b"));
            let on_b = *on_b.unwrap_or_else(|| panic!("{stuck} is stuck, {other} is not: none went over"));
            world.complete(on_b);
        }
        assert_eq!(world.running.len(), 1, "all but the one that does not end are done");
    }
}

#[test]
fn what_cannot_go_elsewhere_is_left_and_does_not_stand_for_what_can() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let (stuck, soft) = (submit(&mut world, "0", "a", true), submit(&mut world, "1", "a", true));
    let pinned = submit(&mut world, "2", "a", false);
    a_second_passes(&mut world, stuck);
    assert_eq!(world.attempt_of(soft), (Attempt::nth(2), node("b")));
    assert_eq!(world.attempt_of(pinned), (Attempt::nth(1), node("a")), "it was not asked for");
}

#[test]
fn a_node_whose_tasks_are_all_bound_to_it_does_not_stand_before_another() {
    let mut world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
    for name in ["0", "1", "2"] {
        submit(&mut world, name, "a", false);
    }
    let (runs, queued) = (submit(&mut world, "3", "b", true), submit(&mut world, "4", "b", true));
    a_second_passes(&mut world, runs);
    assert_eq!(world.attempt_of(queued), (Attempt::nth(2), node("c")));
}

#[test]
fn what_was_denied_memory_keeps_its_place() {
    let (mut world, tasks) = queued_on_one_of_two();
    world.fail(tasks[2], FailureKind::Denied);
    assert_eq!(world.attempt_of(tasks[2]), (Attempt::nth(2), node("a")));
}

#[test]
fn what_was_taken_back_goes_where_it_likes_to_be_when_that_idles() {
    let (mut world, tasks) = queued_on_one_of_two();
    let (attempt, at) = world.attempt_of(tasks[2]);
    for task in &tasks[..2] {
        world.complete(*task);
    }
    world.running.clear();
    world.owner.recalled((&at, INCARNATION), tasks[2], attempt);
    world.settle();
    assert_eq!(world.attempt_of(tasks[2]), (Attempt::nth(2), node("a")));
}

#[test]
fn what_no_node_could_ever_run_fails_the_job_for_as_long_as_it_is_wanted() {
    let (mut world, _) = queued_on_one_of_two();
    let gpu = || Resources::default().with("gpu", 1000);
    let asks = |world: &World| world.demand.iter().any(|demand| demand.resources == gpu());
    let task = world.submit_with("gpu", &[], TaskOptions { resources: gpu(), ..TaskOptions::default() });
    assert!(asks(&world));
    let never = Shape::anywhere(gpu(), 1);
    let wait = Wait { reason: "needs 1 gpu, cluster has 0".into(), never: Some(Box::new(never)) };
    let turn = Wait { never: None, ..wait.clone() };
    assert_eq!(world.owner.refused(Some(&turn)), None, "its turn will come");
    let other = Wait { never: Some(Box::new(Shape::anywhere(Resources::cpu(9000), 1))), ..wait.clone() };
    assert_eq!(world.owner.refused(Some(&other)), None, "that was asked for by nobody here");
    assert_eq!(world.owner.refused(Some(&wait)), Some(JobError::Unplaceable { reason: wait.reason.clone() }));
    world.owner.cancel(task);
    world.settle();
    assert_eq!(world.owner.refused(Some(&wait)), None, "nothing waits for it any more");
    world.settle();
    assert!(!asks(&world), "{:?}", world.demand);
}

#[test]
fn what_is_handed_out_when_ended_attempts_have_printed_what_a_job_may_prints_nothing() {
    let mut world = World::new(&[("a", 1)]);
    let half = TaskFigures { printed_bytes: JOB_BYTES_MAX as u64 / 2, ..TaskFigures::default() };
    let silent = |world: &World, task: TaskId| {
        let mut specs = world.running.iter().filter(|((running, _), _)| *running == task).map(|(_, (_, spec))| spec);
        specs.next().expect("it was handed out").silent
    };
    let (from, task) = ((&node("a"), INCARNATION), world.submit("0", &[]));
    assert!(!silent(&world, task));
    world.running.clear();
    let failure = TaskFailure::new(FailureKind::Error, "why");
    world.owner.failed(from, task, Attempt::nth(1), failure, Some(half));
    world.settle();
    assert!(!silent(&world, task), "half of it");
    world.owner.completed(from, task, Attempt::nth(2), &[], &[], half);
    let task = world.submit("1", &[]);
    assert!(silent(&world, task), "all of it");
}
