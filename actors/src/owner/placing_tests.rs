//! What is queued where: taken back from where it waits for nothing, and placed elsewhere.

use super::state_tests::{World, node};
use crate::ids::{Attempt, TaskId};
use crate::task::{Place, StillRunning, TaskOptions};

const SECOND: u64 = 1_000_000;

/// Three tasks that would rather be on `a`, where one slot is: one runs, two are queued. `b` idles.
fn queued_on_one_of_two() -> (World, [TaskId; 3]) {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let place = Place::Node { node: node("a"), soft: true };
    let tasks = ["0", "1", "2"].map(|name| {
        let options = TaskOptions { place: place.clone(), ..TaskOptions::default() };
        world.submit_with(name, &[], options)
    });
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
        world.owner.recalled(&at, task, attempt);
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
            let on_b = *on_b.unwrap_or_else(|| panic!("{other} tasks are done, {stuck} is stuck: none went over"));
            world.complete(on_b);
        }
        assert_eq!(world.running.len(), 1, "all but the one that does not end are done");
    }
}

#[test]
fn what_was_taken_back_goes_where_it_likes_to_be_when_that_idles() {
    let (mut world, tasks) = queued_on_one_of_two();
    let (attempt, at) = world.attempt_of(tasks[2]);
    for task in &tasks[..2] {
        world.complete(*task);
    }
    world.running.clear();
    world.owner.recalled(&at, tasks[2], attempt);
    world.settle();
    assert_eq!(world.attempt_of(tasks[2]), (Attempt(2), node("a")));
}
