//! Second attempts of tasks that take too long: when there is one, and what becomes of both.

use super::world_tests::{INCARNATION, SECRET, World, node, offer, output, whole};
use crate::ids::{Attempt, Incarnation, NodeId, SetId, TaskId};
use crate::task::EdgeShape;
use crate::task::{
    Arg, Consumed, FailureKind, JobError, Output, Parts, Place, Resources, Returns, Source, StillRunning, TaskOptions,
};

const SECOND: u64 = 1_000_000;
const FIRST: Attempt = Attempt::nth(1);
const COPY: Attempt = Attempt::nth(2);

/// `done` tasks took a second each, the last one runs: on the first node, the others being as idle.
fn world_with(nodes: &[(&str, u64)], done: usize, micros: u64, options: TaskOptions) -> (World, TaskId) {
    let mut world = World::new(nodes);
    world.micros = micros;
    for number in 0..done {
        let task = world.submit(&format!("done {number}"), &[]);
        world.complete(task);
        world.release(task);
    }
    world.freed.clear();
    let slow = world.submit_with("slow", &[], options);
    (world, slow)
}

fn two_nodes() -> (World, TaskId) {
    world_with(&[("a", 1), ("b", 1)], 5, SECOND, TaskOptions::default())
}

/// The node of the task's first attempt says for how long that has been running.
fn runs_for(world: &mut World, task: TaskId, micros: u64) {
    let (attempt, at) = world.attempt_of(task);
    world.owner.still_running(&at, &[StillRunning { task, attempt, micros }]);
    world.settle();
}

/// A node says for how long the task's first attempt has been running there.
fn runs_for_at(world: &mut World, at: &NodeId, task: TaskId, micros: u64) {
    world.owner.still_running(at, &[StillRunning { task, attempt: FIRST, micros }]);
    world.settle();
}

/// A straggler and its copy, and where each runs.
fn copied() -> (World, TaskId, [NodeId; 2]) {
    let (mut world, task) = two_nodes();
    runs_for(&mut world, task, 10 * SECOND);
    assert_eq!(world.copied.len(), 1);
    let at = [FIRST, COPY].map(|attempt| world.running[&(task, attempt)].0.clone());
    assert_ne!(at[0], at[1], "never two on one node");
    (world, task, at)
}

#[test]
fn a_straggler_gets_one_copy_on_another_node() {
    let (mut world, task, at) = copied();
    assert_eq!(world.copied, [(task, COPY, at[1].clone())]);
    runs_for(&mut world, task, 20 * SECOND);
    world.owner.still_running(&at[1], &[StillRunning { task, attempt: COPY, micros: 20 * SECOND }]);
    world.settle();
    assert_eq!(world.running.len(), 2, "there is no third attempt");
}

#[test]
fn only_what_takes_three_times_the_median_and_a_second_is_copied() {
    // Done tasks, what each took, how long the last one has been running: the median may be a quarter too high.
    let cases = [
        (5, SECOND, 4 * SECOND, true),
        (5, SECOND, 3 * SECOND, false),
        (4, SECOND, 100 * SECOND, false),
        (5, 1_000, SECOND - 1, false),
        (5, 1_000, SECOND, true),
        (100, 60 * SECOND, 100 * SECOND, false),
        (100, 60 * SECOND, 240 * SECOND, true),
    ];
    for (done, micros, running, expected) in cases {
        let (mut world, task) = world_with(&[("a", 1), ("b", 1)], done, micros, TaskOptions::default());
        runs_for(&mut world, task, running);
        assert_eq!(world.copied.len(), usize::from(expected), "{done} took {micros}, one runs for {running}");
    }
}

#[test]
fn a_straggler_is_not_copied_when_what_it_reads_was_lost_since_it_began() {
    for (lost, in_set) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
        world.micros = SECOND;
        for number in 0..5 {
            let task = world.submit(&format!("done {number}"), &[]);
            world.complete(task);
        }
        let place = Place::Node { node: node("c"), soft: true };
        let map = world.submit_with("map", &[], TaskOptions { place, ..TaskOptions::default() });
        world.complete(map);
        let set = SetId::of(&[map.output(0)]);
        world.owner.make_set(set, &[map.output(0)], None);
        let source = if in_set { Source::Set(set) } else { Source::Object(map.output(0)) };
        let place = Place::Node { node: node("a"), soft: true };
        let arg = Arg { source, parts: Parts::All };
        let slow = world.submit_with("slow", &[arg], TaskOptions { place, ..TaskOptions::default() });
        if lost {
            world.crash(&node("c"), false);
        }
        runs_for(&mut world, slow, 10 * SECOND);
        // The copy would be told that it is nowhere, which is what is said of objects without bytes.
        assert_eq!(world.copied.len(), usize::from(!lost), "lost: {lost}, in a set: {in_set}");
    }
}

#[test]
fn one_straggler_that_is_done_does_not_hide_the_next() {
    let (mut world, task) = two_nodes();
    world.micros = 1000 * SECOND;
    world.complete(task);
    let next = world.submit("next", &[]);
    runs_for(&mut world, next, 5 * SECOND);
    assert_eq!(world.copied.len(), 1, "the mean would say otherwise");
}

#[test]
fn what_may_not_be_copied_is_not() {
    let pinned = Place::Node { node: node("a"), soft: false };
    let cases = [
        ("the task forbids it", TaskOptions { speculate: false, ..TaskOptions::default() }),
        ("it is bound to its node", TaskOptions { place: pinned, ..TaskOptions::default() }),
        ("it is a stream", TaskOptions { returns: Returns::Stream, ..TaskOptions::default() }),
    ];
    for (why, options) in cases {
        let (mut world, task) = world_with(&[("a", 1), ("b", 1)], 5, SECOND, options);
        runs_for(&mut world, task, 100 * SECOND);
        assert_eq!(world.copied, [], "{why}");
    }
}

#[test]
fn a_function_that_is_not_declared_deterministic_is_not_copied_and_not_compared() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    for name in ["a", "b"] {
        world.owner.offers(&node(name), INCARNATION, offer(&["dice@1"]));
    }
    let submit = |world: &mut World, name: &str| {
        let mut description = World::description(name, &[], TaskOptions::default());
        (description.function, description.deterministic) = ("dice@1".into(), false);
        let task = description.id(SECRET);
        world.owner.submit(task, description);
        world.settle();
        task
    };
    for number in 0..5 {
        let task = submit(&mut world, &number.to_string());
        world.complete(task);
    }
    let task = submit(&mut world, "slow");
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.copied, []);
    world.owner.cancel(task);
    submit(&mut world, "slow");
    world.complete_attempt(task, COPY, &[output(8, 1)], &[]);
    world.complete_attempt(task, FIRST, &[output(9, 2)], &[]);
    assert_eq!(world.failed, None, "the first that completed counts");
}

#[test]
fn copies_take_only_slots_that_idle() {
    for (why, nodes) in [("there is one node", &[("a", 4)][..]), ("the other has no slot", &[("a", 1), ("b", 0)])] {
        let (mut world, task) = world_with(nodes, 5, SECOND, TaskOptions::default());
        runs_for(&mut world, task, 100 * SECOND);
        assert_eq!(world.copied, [], "{why}");
    }
    let (mut world, task) = two_nodes();
    let (_, slow) = world.attempt_of(task);
    let other_node = node(if slow == node("a") { "b" } else { "a" });
    world.owner.offers(&other_node, INCARNATION, offer(&["g@1"]));
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.copied, [], "the other lacks the function");
    let (mut world, task) = two_nodes();
    let other = world.submit("other", &[]);
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.copied, [], "the other node is busy");
    world.complete(other);
    let place = Place::Node { node: node("elsewhere"), soft: false };
    let waits = world.submit_with("waits", &[], TaskOptions { place, ..TaskOptions::default() });
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.copied, [], "a task waits");
    world.owner.cancel(waits);
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.copied.len(), 1, "now none does");
}

#[test]
fn there_is_one_copy_for_ten_that_run_and_always_one() {
    for (tasks, copies) in [(2, 1), (19, 1), (20, 2), (35, 3)] {
        let (mut world, first) = world_with(&[("a", 40), ("b", 40), ("c", 40)], 5, SECOND, TaskOptions::default());
        let mut all: Vec<_> = (1..tasks).map(|number| world.submit(&format!("t{number}"), &[])).collect();
        all.push(first);
        for task in all {
            runs_for(&mut world, task, 10 * SECOND);
        }
        // A copy runs, too, so the tenth of all is reached sooner than the tenth of the tasks.
        assert!(world.copied.len().abs_diff(copies) <= 1, "{} copies of {tasks}", world.copied.len());
        assert!(world.copied.len() <= (world.running.len() / 10).max(1));
    }
}

#[test]
fn whichever_completes_first_wins_and_the_other_leaves_nothing() {
    for (winner, loser) in [(FIRST, COPY), (COPY, FIRST)] {
        let (mut world, task, at) = copied();
        world.owner.track(task.output(0), 1);
        world.complete_attempt(task, winner, &[output(8, 1)], &[]);
        assert_eq!(world.resolved[&1], Ok(()));
        assert_eq!(world.cancelled, [(task, loser)]);
        let of = |attempt: Attempt| at[attempt.makes().counted() as usize - 1].clone();
        assert_eq!(world.owner.locations(task.output(0)), [of(winner)]);
        world.complete_attempt(task, loser, &[output(8, 1)], &[]);
        assert_eq!(Vec::from_iter(world.stored.values()), [&winner.makes()], "its node deletes what the loser made");
        assert_eq!(world.owner.counts().running, 0);
        world.release(task);
        assert!(world.stored.is_empty());
        assert_eq!(world.failed, None);
    }
}

#[test]
fn attempts_that_disagree_end_the_job() {
    let (mut world, task, _) = copied();
    world.complete_attempt(task, COPY, &[output(8, 1)], &[]);
    world.complete_attempt(task, FIRST, &[output(8, 2)], &[]);
    assert!(matches!(world.failed, Some(JobError::NonDeterministic { .. })), "{:?}", world.failed);
}

#[test]
fn what_both_have_read_is_counted_once() {
    let (mut world, map) = two_nodes();
    let set = SetId::of(&[map.output(0)]);
    let shape = EdgeShape::new("edge", 1);
    world.owner.make_edge_set(set, &[map.output(0)], shape);
    world.complete_with(map, &[output(100, 10)], &[]);
    let reduce = world.submit("reduce", &[Arg { source: Source::Set(set), parts: Parts::one(0) }]);
    runs_for(&mut world, reduce, 10 * SECOND);
    let read = [Consumed { arg: 0, read: Output { ..output(100, 10) }, ..Consumed::default() }];
    for attempt in [COPY, FIRST] {
        world.complete_attempt(reduce, attempt, &[output(1, 1)], &read);
    }
    assert_eq!(world.owner.close(), Ok(()));
}

#[test]
fn as_long_as_one_attempt_runs_the_failure_of_the_other_costs_nothing() {
    for (fails, goes_on) in [(FIRST, COPY), (COPY, FIRST)] {
        for kind in [FailureKind::Error, FailureKind::Denied, FailureKind::Rejected, FailureKind::DiskFull] {
            let (mut world, task, _) = copied();
            world.fail_attempt(task, fails, kind);
            assert_eq!(world.running.keys().collect::<Vec<_>>(), [&(task, goes_on)], "{kind:?}: no third attempt");
            runs_for(&mut world, task, 100 * SECOND);
            assert_eq!(world.copied.len(), 1, "{kind:?}: and no second copy");
            for attempt in 3..=4 {
                world.fail(task, FailureKind::Error);
                assert_eq!(world.attempt_of(task).0, Attempt::nth(attempt), "{kind:?}: three tries, as without a copy");
            }
            world.fail(task, FailureKind::Error);
            assert!(matches!(world.owner.close(), Err(JobError::Task { .. })));
        }
    }
}

#[test]
fn a_failure_that_no_attempt_can_heal_ends_both() {
    let (mut world, task, _) = copied();
    world.fail_attempt(task, COPY, FailureKind::Final);
    assert_eq!(world.cancelled, [(task, FIRST)]);
    assert!(matches!(world.owner.close(), Err(JobError::Task { .. })));
    assert_eq!(world.owner.counts().running, 0);
}

#[test]
fn the_death_of_either_node_costs_only_what_ran_there() {
    for (dies, goes_on) in [(FIRST, COPY), (COPY, FIRST)] {
        let (mut world, task, at) = copied();
        world.running.remove(&(task, dies));
        world.owner.node_dead(&at[dies.makes().counted() as usize - 1], INCARNATION);
        world.settle();
        assert_eq!(world.running.keys().collect::<Vec<_>>(), [&(task, goes_on)]);
        world.complete(task);
        assert!(world.lookup(task.output(0)).is_some());
        assert_eq!((world.failed, world.owner.counts().running), (None, 0));
    }
}

#[test]
fn a_copy_that_is_given_back_costs_nothing_and_there_may_be_another() {
    let (mut world, task, at) = copied();
    world.running.remove(&(task, COPY));
    world.owner.recalled((&at[1], INCARNATION), task, COPY);
    world.settle();
    assert_eq!(world.running.keys().collect::<Vec<_>>(), [&(task, FIRST)]);
    runs_for(&mut world, task, 10 * SECOND);
    assert_eq!(world.copied.last(), Some(&(task, Attempt::nth(3), at[1].clone())));
}

#[test]
fn cancelling_the_task_ends_both() {
    let (mut world, task, _) = copied();
    world.owner.cancel(task);
    world.settle();
    assert_eq!(world.cancelled, [(task, FIRST), (task, COPY)]);
    for attempt in [FIRST, COPY] {
        world.complete_attempt(task, attempt, &[output(8, 1)], &[]);
    }
    assert!(world.stored.is_empty());
}

/// The slow attempt goes on where a later one of the same task runs: whatever it does, the object of the later one stays.
#[test]
fn a_loser_that_completes_late_takes_nothing_from_a_later_attempt_on_its_node() {
    for loser_first in [true, false] {
        let (mut world, task, at) = copied();
        world.complete_attempt(task, COPY, &[output(8, 1)], &[]);
        world.release(task);
        world.owner.leases(&[(at[0].clone(), INCARNATION, Resources::cpu(1000))]);
        world.submit("slow", &[]);
        world.owner.track(task.output(0), 1);
        world.settle();
        let third = Attempt::nth(3);
        assert_eq!(world.running[&(task, third)].0, at[0], "next to the first one");
        for attempt in if loser_first { [FIRST, third] } else { [third, FIRST] } {
            world.complete_attempt(task, attempt, &[output(8, 1)], &[]);
        }
        assert_eq!(
            Vec::from_iter(world.stored.values()),
            [&third.makes()],
            "what the first one made is gone, and only that"
        );
        assert_eq!(world.resolved[&1], Ok(()));
        world.release(task);
        assert!(world.stored.is_empty());
    }
}

#[test]
fn a_node_whose_executors_are_held_by_ended_attempts_gets_nothing_and_gives_back() {
    let (mut world, task, at) = copied();
    world.complete_attempt(task, COPY, &[output(8, 1)], &[]);
    let queued: Vec<_> = (0..4).map(|number| world.submit(&format!("queued {number}"), &[])).collect();
    let there: Vec<_> = queued.into_iter().filter(|task| world.attempt_of(*task).1 == at[0]).collect();
    assert!(!there.is_empty(), "nobody knows yet that the slow attempt goes on");
    world.owner.still_running(&at[0], &[StillRunning { task, attempt: FIRST, micros: 20 * SECOND }]);
    world.settle();
    assert_eq!(world.recalled.len(), there.len());
    for (task, attempt) in std::mem::take(&mut world.recalled) {
        world.running.remove(&(task, attempt));
        world.owner.recalled((&at[0], INCARNATION), task, attempt);
        world.settle();
    }
    assert!(world.running.values().all(|(at_node, _)| *at_node == at[1]));
    world.owner.still_running(&at[0], &[]);
    world.settle();
    assert!(there.iter().all(|task| world.runs(*task)), "the executor is free again");
}

#[test]
fn what_a_node_says_that_is_not_known_changes_nothing() {
    let (mut world, task) = two_nodes();
    world.owner.still_running(&node("nobody"), &[StillRunning { task, attempt: FIRST, micros: 100 * SECOND }]);
    let unknown = TaskId::from_u128(77);
    world.owner.still_running(&node("b"), &[StillRunning { task: unknown, attempt: FIRST, micros: 100 * SECOND }]);
    world.owner.node_index(&node("b"), Incarnation(2));
    world.settle();
    assert_eq!(world.copied, []);
}

/// The job can do without these tasks.
fn may_give_up(world: &mut World, tasks: &[TaskId]) {
    tasks.iter().for_each(|task| world.owner.may_give_up(task.output(0)));
}

#[test]
fn an_overdue_task_that_can_be_done_without_is_given_up_and_what_it_makes_late_is_dropped() {
    let (mut world, task) = world_with(&[("a", 2)], 5, SECOND, TaskOptions::default());
    let quick = world.submit("quick", &[]);
    world.owner.track(task.output(0), 1);
    may_give_up(&mut world, &[quick, task]);
    runs_for(&mut world, task, 10 * SECOND);
    assert_eq!(world.cancelled, [], "another one may have ended just now");
    runs_for(&mut world, task, 11 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST)]);
    assert_eq!(world.resolved[&1], Err(JobError::Cancelled));
    runs_for_at(&mut world, &node("a"), task, 12 * SECOND);
    assert_eq!(world.cancelled.len(), 1, "once");
    world.complete_attempt(task, FIRST, &[output(8, 1)], &[]);
    assert!(world.stored.is_empty());
    assert_eq!(world.lookup(task.output(0)), None);
    world.complete(quick);
    assert_eq!(world.owner.close(), Ok(()), "nobody has to be told of it");
}

#[test]
fn what_is_needed_or_in_time_or_has_a_fresh_copy_is_not_given_up() {
    let (mut world, task) = world_with(&[("a", 1)], 5, SECOND, TaskOptions::default());
    (1..100).for_each(|seconds| runs_for(&mut world, task, seconds * SECOND));
    assert_eq!(world.cancelled, [], "the program has not said that it can do without it");
    may_give_up(&mut world, &[task]);
    runs_for(&mut world, task, 100 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST)]);

    let (mut world, task) = world_with(&[("a", 1)], 5, SECOND, TaskOptions::default());
    may_give_up(&mut world, &[task]);
    runs_for(&mut world, task, SECOND - 1);
    runs_for(&mut world, task, 3 * SECOND);
    assert_eq!(world.cancelled, [], "it takes no longer than others");
    world.complete(task);
    assert!(world.lookup(task.output(0)).is_some());

    let (mut world, task, at) = copied();
    may_give_up(&mut world, &[task]);
    let say = |world: &mut World, attempt: Attempt, micros: u64| {
        let at = &at[usize::from(attempt == COPY)];
        world.owner.still_running(at, &[StillRunning { task, attempt, micros }]);
        world.settle();
    };
    say(&mut world, FIRST, 12 * SECOND);
    assert_eq!(world.cancelled, [], "the copy has just begun");
    say(&mut world, COPY, 10 * SECOND);
    say(&mut world, COPY, 11 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST), (task, COPY)]);
}

#[test]
fn as_long_as_others_end_that_can_be_done_without_an_overdue_task_is_waited_for() {
    let (mut world, task) = world_with(&[("a", 3)], 5, SECOND, TaskOptions::default());
    let [merge, other] = ["merge", "other"].map(|name| world.submit(name, &[]));
    may_give_up(&mut world, &[task, merge]);
    runs_for(&mut world, task, 10 * SECOND);
    world.complete(merge);
    runs_for(&mut world, task, 11 * SECOND);
    assert_eq!(world.cancelled, []);
    world.complete(other);
    runs_for(&mut world, task, 12 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST)], "other tasks say nothing of those");
}

#[test]
fn what_was_made_once_and_is_lost_is_not_given_up() {
    let (mut world, task) = world_with(&[("a", 1), ("b", 1)], 5, SECOND, TaskOptions::default());
    may_give_up(&mut world, &[task]);
    let at = world.attempt_of(task).1;
    world.complete(task);
    world.crash(&at, false);
    let reads = world.submit("reads", &[whole(task)]);
    let again = world.attempt_of(task);
    for seconds in 1..100 {
        world.owner.still_running(&again.1, &[StillRunning { task, attempt: again.0, micros: seconds * SECOND }]);
        world.settle();
    }
    assert!(!world.cancelled.iter().any(|(cancelled, _)| *cancelled == task), "{reads} reads it");
}

#[test]
fn where_nothing_finishes_what_runs_is_overdue_without_a_median() {
    let (mut world, first) = world_with(&[("a", 2)], 0, SECOND, TaskOptions::default());
    let second = world.submit("work", &[]);
    may_give_up(&mut world, &[first, second]);
    let say = |world: &mut World, micros: u64| {
        let running = [first, second].map(|task| StillRunning { task, attempt: FIRST, micros });
        world.owner.still_running(&node("a"), &running);
        world.settle();
    };
    say(&mut world, 2 * SECOND);
    say(&mut world, 10 * SECOND - 1);
    assert_eq!(world.cancelled, []);
    say(&mut world, 10 * SECOND);
    assert_eq!(world.cancelled, [(first, FIRST), (second, FIRST)]);
}

#[test]
fn where_there_is_a_median_nothing_is_given_up_that_takes_no_longer() {
    let (mut world, task) = world_with(&[("a", 1)], 5, 20 * SECOND, TaskOptions::default());
    may_give_up(&mut world, &[task]);
    for seconds in 1..=60 {
        runs_for(&mut world, task, seconds * SECOND);
    }
    assert_eq!(world.cancelled, [], "though nothing has finished for long");
    runs_for(&mut world, task, 63 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST)]);
}

/// Each that is given up without a median says that tasks of the function take that long at least.
#[test]
fn healthy_tasks_that_take_long_are_not_given_up_for_ever() {
    let (mut world, first) = world_with(&[("a", 1)], 0, SECOND, TaskOptions::default());
    let mut task = first;
    for number in 0..5 {
        may_give_up(&mut world, &[task]);
        (1..=10).for_each(|seconds| runs_for(&mut world, task, seconds * SECOND));
        assert_eq!(world.cancelled.len(), number + 1);
        // It has looked, and ended.
        world.owner.still_running(&node("a"), &[]);
        task = world.submit(&format!("again {number}"), &[]);
    }
    may_give_up(&mut world, &[task]);
    (1..=20).for_each(|seconds| runs_for(&mut world, task, seconds * SECOND));
    assert_eq!(world.cancelled.len(), 5);
}

#[test]
fn what_finishes_while_a_task_runs_shows_that_the_job_goes_on() {
    let (mut world, task) = world_with(&[("a", 2)], 0, SECOND, TaskOptions::default());
    may_give_up(&mut world, &[task]);
    let other = world.submit("other", &[]);
    runs_for(&mut world, task, SECOND);
    world.complete(other);
    runs_for(&mut world, task, 100 * SECOND);
    // And later it does not.
    runs_for(&mut world, task, 110 * SECOND - 1);
    assert_eq!(world.cancelled, []);
    runs_for(&mut world, task, 110 * SECOND);
    assert_eq!(world.cancelled, [(task, FIRST)]);
}

/// Law 1 where a merge is done without: each part is read once, by a merge or by the reduce.
#[test]
fn what_an_overdue_task_would_have_read_others_read_and_its_ledger_balances() {
    for late in [false, true] {
        let (mut world, map) = world_with(&[("a", 2)], 5, SECOND, TaskOptions::default());
        let set = SetId::of(&[map.output(0)]);
        let shape = EdgeShape { keep: true, ..EdgeShape::new("map -> merge", 2) };
        world.owner.make_edge_set(set, &[map.output(0)], shape);
        world.complete_with(map, &[output(100, 10)], &[]);
        let column = |part| Arg { source: Source::Set(set), parts: Parts::one(part) };
        let read = |bytes, rows| [Consumed { arg: 0, read: output(bytes, rows), ..Consumed::default() }];
        let [done, overdue] = [0, 1].map(|part| world.submit(&format!("merge {part}"), &[column(part)]));
        world.complete_with(done, &[output(60, 6)], &read(60, 6));
        may_give_up(&mut world, &[overdue]);
        runs_for(&mut world, overdue, 10 * SECOND);
        runs_for(&mut world, overdue, 11 * SECOND);
        assert_eq!(world.cancelled, [(overdue, FIRST)]);
        assert!(matches!(world.owner.close(), Err(JobError::Conservation { .. })), "part 1 is still to be read");
        let reduce = world.submit("reduce", &[column(1)]);
        if late {
            world.complete_attempt(overdue, FIRST, &[output(40, 4)], &read(40, 4));
        }
        world.complete_with(reduce, &[output(1, 1)], &read(40, 4));
        assert_eq!(world.owner.close(), Ok(()), "late: {late}");
    }
}
