//! What mutants of the code could do unseen: tests of single decisions that nothing else held, by the file that takes them.

use super::state::Effect;
use super::world_tests::{INCARNATION, JOB, SECRET, World, node, offer, output, whole};
use crate::event::EventKind;
use crate::ids::{Attempt, Incarnation, SetId, TaskId};
use crate::joblog::Choice;
use crate::joblog::{Past, TaskDone};
use crate::task::EdgeShape;
use crate::task::{
    Arg, Consumed, FailureKind, JobError, Loss, Output, Parts, Place, Resources, Returns, Source, StillRunning,
    TaskFigures, TaskOptions,
};

fn at(name: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: node(name), soft: true }, ..TaskOptions::default() }
}

fn part(set: SetId, part: u32) -> Arg {
    Arg { source: Source::Set(set), parts: Parts::one(part) }
}

fn read(rows: u64) -> Consumed {
    Consumed { arg: 0, read: output(rows * 10, rows), ..Consumed::default() }
}

fn shape() -> EdgeShape {
    EdgeShape::new("map -> reduce", 2)
}

fn two_maps(world: &mut World) -> ([TaskId; 2], SetId) {
    let maps = [world.submit_with("map0", &[], at("a")), world.submit_with("map1", &[], at("b"))];
    maps.iter().for_each(|map| world.complete_with(*map, &[output(100, 10)], &[]));
    let members = maps.map(|map| map.output(0));
    let set = SetId::of(&members);
    world.owner.make_edge_set(set, &members, shape());
    (maps, set)
}

// attempts.rs

#[test]
fn a_lease_that_goes_on_takes_nothing_back() {
    let mut world = World::new(&[("a", 1)]);
    (0..3).for_each(|number| {
        world.submit(&format!("t{number}"), &[]);
    });
    world.owner.leases(&[(node("a"), INCARNATION, Resources::cpu(1000))]);
    world.settle();
    assert_eq!(world.recalled, []);
}

#[test]
fn what_nobody_holds_any_more_when_it_is_made_is_not_made_again() {
    let mut world = World::new(&[("n", 1)]);
    // Another output keeps the task.
    let task = world.submit_with("t", &[], TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() });
    world.release(task);
    world.complete_with(task, &[output(8, 1); 2], &[]);
    assert!(!world.runs(task));
    assert_eq!((world.owner.counts().replayed, world.freed.len()), (0, 1));
}

#[test]
fn the_log_names_the_attempt_whose_outputs_count_also_when_a_task_ran_again() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    world.crash(&node("a"), false);
    world.owner.track(task.output(0), 1);
    world.settle();
    world.complete(task);
    assert_eq!(world.resolved[&1], Ok(()));
    let made_by = world.log.iter().map(|done| done.made_by.clone());
    assert_eq!(Vec::from_iter(made_by), [1, 2].map(|attempt| vec![Attempt::nth(attempt).makes()]));
}

#[test]
fn what_people_are_told_of_a_task_that_is_done() {
    let mut world = World::new(&[("a", 1)]);
    let task = world.submit("t", &[]);
    let figures = TaskFigures {
        micros: 5,
        args_bytes: 300,
        outside_in_bytes: 20,
        outside_out_bytes: 1000,
        ..TaskFigures::default()
    };
    let consumed = [
        Consumed { arg: 0, read: output(300, 30), ..Consumed::default() },
        Consumed { arg: 1, read: output(0, 2), ..Consumed::default() },
    ];
    world.owner.completed((&node("a"), INCARNATION), task, Attempt::nth(1), &[output(8, 1)], &consumed, figures);
    let told = world.owner.flush().into_iter().find_map(|effect| {
        let Effect::Event { at, kind } = effect else { return None };
        let EventKind::TaskFinished { task, stage, bytes_in, bytes_out, rows, .. } = *kind else { return None };
        Some((at, task, stage, bytes_in, bytes_out, rows))
    });
    assert_eq!(told, Some((node("a"), task, "f".into(), 320, 1008, 32)));
}

#[test]
fn an_output_of_a_stream_that_comes_too_early_is_not_announced() {
    let mut world = World::new(&[("n", 1)]);
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let task = world.submit_with("s", &[], options);
    world.owner.track_stream(task, 5);
    for index in [0, 2] {
        world.owner.yielded((&node("n"), INCARNATION), task, Attempt::nth(1), index, output(8, 1));
    }
    world.settle();
    assert_eq!(world.streamed[&5], [Ok(Some(task.output(0)))]);
}

#[test]
fn what_a_stream_that_nobody_knows_yields_is_freed() {
    let mut world = World::new(&[("n", 1)]);
    let task = TaskId::from_u128(77);
    world.keep(&node("n"), task.output(0), 1);
    world.owner.yielded((&node("n"), INCARNATION), task, Attempt::nth(1), 0, output(8, 1));
    world.settle();
    assert_eq!(world.freed, [(node("n"), task.output(0))]);
}

#[test]
fn who_was_denied_memory_goes_behind_the_others_and_who_lost_an_argument_does_not() {
    for (kind, behind) in [(FailureKind::Denied, true), (FailureKind::ArgumentLost, false)] {
        let mut world = World::new(&[("a", 1)]);
        world.micros = 1_000_000;
        let first = world.submit("first", &[]);
        let others: Vec<_> = (0..4).map(|number| world.submit(&format!("other{number}"), &[])).collect();
        assert!(!world.runs(others[3]), "it waits for a slot");
        world.fail(first, kind);
        assert_eq!(world.runs(first), !behind, "{kind:?}");
    }
}

#[test]
fn attempts_that_were_given_back_are_no_tries() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit_with("t", &[], TaskOptions { attempts: 2, ..TaskOptions::default() });
    for _ in 0..5 {
        let (attempt, at) = world.attempt_of(task);
        world.running.clear();
        world.owner.recalled((&at, INCARNATION), task, attempt);
        world.settle();
    }
    world.fail(task, FailureKind::Error);
    assert!(world.runs(task), "that was the first try");
    world.fail(task, FailureKind::Error);
    assert!(!world.runs(task), "that was the second one");
    assert_eq!(world.owner.counts().failed_attempts, 2);
}

#[test]
fn a_task_that_its_node_cannot_decode_fails() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.owner.track(task.output(0), 1);
    let (attempt, _) = world.attempt_of(task);
    for not_there in ["b", "nobody"] {
        world.owner.rejected(&node(not_there), task, attempt, "no such field".to_owned());
        world.settle();
        assert!(!world.resolved.contains_key(&1), "{not_there} does not run it");
    }
    world.running.clear();
    world.owner.rejected(&node("a"), task, attempt, "no such field".to_owned());
    world.settle();
    let error = world.resolved[&1].clone().unwrap_err();
    let rejected = matches!(&error, JobError::Task { failure, .. } if failure.kind == FailureKind::Rejected);
    assert!(rejected && error.to_string().contains("no such field"), "{error}");
}

#[test]
fn parts_are_freed_as_they_are_read_only_where_nobody_reads_them_again() {
    for (keep, readers, parts, frees) in [
        (false, 1, Parts::one(0), true),
        (true, 1, Parts::one(0), false),
        (false, 2, Parts::one(0), false),
        (false, 1, Parts::All, false),
    ] {
        let mut world = World::new(&[("n", 1)]);
        let map = world.submit("map", &[]);
        world.complete_with(map, &[output(100, 10)], &[]);
        let set = SetId::of(&[map.output(0)]);
        world.owner.make_edge_set(set, &[map.output(0)], EdgeShape { keep, readers, ..shape() });
        let reduce = world.submit("reduce", &[Arg { source: Source::Set(set), parts }]);
        world.complete_with(reduce, &[output(8, 1)], &[read(6)]);
        assert_eq!(!world.freed_parts.is_empty(), frees, "keep {keep}, {readers} readers, {parts:?}");
    }
}

#[test]
fn the_mean_follows_what_tasks_take_lately() {
    let mut world = World::new(&[("n", 1)]);
    let mut mean_after = |name: &str, micros| {
        world.micros = micros;
        let task = world.submit(name, &[]);
        world.complete(task);
        world.owner.functions[0].stats.mean_micros
    };
    assert_eq!(mean_after("first", 800), 800);
    assert_eq!(mean_after("second", 1600), 900);
    assert_eq!(mean_after("third", 100), 800);
    (0..40).for_each(|number| {
        mean_after(&format!("more {number}"), 0);
    });
    assert_eq!(mean_after("last", 0), 1, "0 would say that it is not known");
}

// replay.rs

#[test]
fn what_a_stream_has_announced_and_a_set_lacks_is_made_by_another_attempt() {
    let mut world = World::new(&[("a", 1), ("b", 2)]);
    let task = world.submit_with("stream", &[], TaskOptions { returns: Returns::Stream, ..at("b") });
    world.owner.track_stream(task, 1);
    world.keep(&node("b"), task.output(0), 1);
    world.owner.yielded((&node("b"), INCARNATION), task, Attempt::nth(1), 0, output(8, 10));
    world.settle();
    let set = SetId::of(&[task.output(0)]);
    world.owner.make_set(set, &[task.output(0)], None);
    let reader = world.submit_with("reader", &[Arg { source: Source::Set(set), parts: Parts::All }], at("a"));
    let (attempt, _) = world.attempt_of(reader);
    world.lose_argument(reader, attempt, world.lost(task.output(0), node("b"), Loss::Gone));
    world.complete_with(task, &[output(8, 10)], &[]);
    assert_eq!(world.attempt_of(task).0, Attempt::nth(2), "the set lacks it");
}

#[test]
fn a_node_that_was_called_dead_by_mistake_is_back_in_the_same_incarnation_with_what_it_has() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let done = world.submit_with("done", &[], at("a"));
    world.complete(done);
    world.owner.node_dead(&node("a"), INCARNATION);
    world.settle();
    assert_eq!((world.owner.is_alive(&node("a")), world.lookup(done.output(0))), (false, None));
    world.owner.node_up(&node("a"), Incarnation(0));
    world.settle();
    assert!(!world.owner.is_alive(&node("a")), "that was said of an earlier incarnation");
    world.owner.node_up(&node("a"), INCARNATION);
    world.settle();
    assert!(world.owner.is_alive(&node("a")));
    assert_eq!(world.lookup(done.output(0)), Some((output(8, 1), node("a"))), "it was asked");
}

#[test]
fn a_session_of_an_earlier_incarnation_or_with_a_dead_node_is_no_news() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let done = world.submit_with("done", &[], at("a"));
    world.complete(done);
    world.owner.session_reset(&node("a"), Incarnation(0));
    assert_eq!(world.owner.flush(), []);
    assert!(world.lookup(done.output(0)).is_some(), "what it holds it still holds");
    world.crash(&node("a"), true);
    world.owner.session_reset(&node("a"), INCARNATION);
    assert_eq!(world.owner.flush(), [], "it will be asked when it is back");
}

#[test]
fn what_is_lost_is_told() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    for name in ["t", "u"] {
        let task = world.submit_with(name, &[], at("a"));
        world.complete(task);
    }
    world.owner.node_dead(&node("a"), INCARNATION);
    let told: Vec<_> = world.owner.flush().into_iter().filter(|it| matches!(it, Effect::Event { .. })).collect();
    let kind = EventKind::ObjectsLost { objects: 2, bytes: 16 };
    assert_eq!(told, [Effect::Event { at: node("a"), kind: Box::new(kind) }]);
    world.owner.node_dead(&node("b"), INCARNATION);
    assert!(!world.owner.flush().iter().any(|it| matches!(it, Effect::Event { .. })), "it held nothing");
}

/// Three readers of two maps: the last one began before both were lost, one after the other.
#[test]
fn what_was_lost_first_is_old_news_also_when_more_was_lost_since() {
    let mut world = World::new(&[("a", 2), ("b", 4)]);
    let maps = ["map0", "map1"].map(|name| {
        let map = world.submit_with(name, &[], at("a"));
        world.complete(map);
        map
    });
    let args = maps.map(whole);
    let reader = world.submit_with("reader", &args, at("b"));
    let old = world.lost(maps[0].output(0), node("a"), Loss::Gone);
    for (name, map) in ["other0", "other1"].into_iter().zip(maps) {
        let other = world.submit_with(name, &[whole(map)], at("b"));
        world.lose_argument(other, Attempt::nth(1), world.lost(map.output(0), node("a"), Loss::Gone));
        world.complete(map);
    }
    world.lose_argument(reader, Attempt::nth(1), old);
    assert!(!world.runs(maps[0]), "it was made again since the reader was told where it is");
    assert!(world.runs(reader));
}

#[test]
fn what_was_lost_before_an_attempt_began_is_no_old_news_for_it() {
    let mut world = World::new(&[("a", 2), ("b", 4)]);
    let maps = ["map0", "map1"].map(|name| {
        let map = world.submit_with(name, &[], at("a"));
        world.complete(map);
        map
    });
    let lost = |world: &World, map: TaskId| world.lost(map.output(0), node("a"), Loss::Gone);
    let first = world.submit_with("first", &[whole(maps[0])], at("b"));
    world.lose_argument(first, Attempt::nth(1), lost(&world, maps[0]));
    world.complete(maps[0]);
    let reader = world.submit_with("reader", &maps.map(whole), at("b"));
    let second = world.submit_with("second", &[whole(maps[1])], at("b"));
    world.lose_argument(second, Attempt::nth(1), lost(&world, maps[1]));
    world.complete(maps[1]);
    world.lose_argument(reader, Attempt::nth(1), lost(&world, maps[0]));
    assert!(world.runs(maps[0]), "it was told where this one is after it had been made again");
}

#[test]
fn a_member_without_bytes_is_not_made_again_with_those_whose_parts_were_read() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let maps = ["full", "empty"].map(|name| world.submit_with(name, &[], at("a")));
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    world.complete_with(maps[1], &[output(0, 0)], &[]);
    let members = maps.map(|map| map.output(0));
    let set = SetId::of(&members);
    world.owner.make_edge_set(set, &members, shape());
    let reduce = world.submit_with("reduce", &[part(set, 0)], at("b"));
    world.complete_with(reduce, &[output(8, 1)], &[read(4)]);
    world.crash(&node("b"), false);
    world.owner.track(reduce.output(0), 1);
    world.settle();
    assert!(world.runs(maps[0]) && !world.runs(maps[1]));
}

#[test]
fn what_the_program_cannot_be_given_is_made_again_where_the_program_is() {
    let mut world = World::new(&[("a", 1), ("home", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    let another = task.output(0).copy(JOB, Attempt::nth(2).makes());
    world.owner.unreadable(another);
    world.settle();
    assert_eq!(world.freed, [], "that copy does not count");
    world.unreadable(task.output(0));
    world.owner.track(task.output(0), 1);
    world.settle();
    assert_eq!(world.freed, [(node("a"), task.output(0))]);
    assert_eq!(world.attempt_of(task).1, node("home"));
}

#[test]
fn what_a_node_of_an_earlier_incarnation_or_a_dead_one_says_that_it_holds_is_not_taken() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    world.crash(&node("a"), true);
    let copy = task.output(0).copy(JOB, Attempt::nth(1).makes());
    let held = || std::iter::once((copy, 1, output(8, 1)));
    world.owner.inventory((&node("a"), INCARNATION), held());
    assert_eq!(world.lookup(task.output(0)), None, "it is dead");
    world.stored.clear();
    world.restart(&node("a"));
    world.owner.inventory((&node("a"), INCARNATION), held());
    assert_eq!(world.lookup(task.output(0)), None, "that was the incarnation before");
}

/// It answers after it was asked, and works meanwhile.
#[test]
fn what_counts_and_what_is_being_made_stays_when_its_node_says_what_it_holds() {
    let mut world = World::new(&[("a", 2), ("b", 1)]);
    let done = world.submit_with("done", &[], at("a"));
    world.complete(done);
    let several = world.submit_with("several", &[], TaskOptions { returns: Returns::Many(2), ..at("a") });
    world.keep(&node("a"), several.output(0), 1);
    world.inventory(&node("a"));
    assert_eq!(world.freed, []);
    world.complete_with(several, &[output(8, 1); 2], &[]);
    assert_eq!(world.lookup(done.output(0)).map(|(_, at)| at), Some(node("a")));
}

#[test]
fn a_copy_that_did_not_count_is_not_taken_for_one_that_was_lost() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    // What another attempt left there, that did not count.
    world.crash(&node("b"), true);
    world.keep(&node("b"), task.output(0), 7);
    world.crash(&node("a"), true);
    world.restart(&node("b"));
    assert_eq!(world.lookup(task.output(0)), None);
    assert_eq!(world.freed, [(node("b"), task.output(0))]);
}

#[test]
fn what_is_found_again_of_an_edge_is_kept_as_long_as_nobody_had_read_of_it() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let (maps, set) = two_maps(&mut world);
    let [other, reader] = ["other", "reader"].map(|name| world.submit_with(name, &[], at("b")));
    world.complete(other);
    world.crash(&node("a"), true);
    let reduce = world.submit_with("reduce", &[part(set, 0)], at("b"));
    assert!(world.runs(reader) && world.runs(maps[0]) | !world.runs(reduce));
    world.restart(&node("a"));
    assert_eq!(world.freed, [], "it is whole");
    assert_eq!(world.lookup(maps[0].output(0)).map(|(_, at)| at), Some(node("a")));
    assert!(!world.runs(maps[0]));
}

#[test]
fn a_replay_ends_though_an_output_that_nobody_holds_is_gone() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], TaskOptions { returns: Returns::Many(2), ..at("a") });
    world.complete_with(task, &[output(8, 1); 2], &[]);
    world.owner.release_object(task.output(1));
    world.settle();
    world.crash(&node("a"), true);
    world.owner.track(task.output(0), 1);
    world.settle();
    assert!(world.runs(task));
    world.restart(&node("a"));
    assert_eq!(world.resolved[&1], Ok(()));
    assert!(!world.runs(task), "nobody needs the other one");
}

/// The second time it is something else, of a function that may do so: a fault only if somebody has read the first.
#[test]
fn what_may_differ_the_second_time_may_not_where_the_first_was_read() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Reader {
        Nobody,
        OfAnother,
        Waits,
        Done,
        Running,
        DoneOfSet,
        OfEdge,
    }
    use Reader::*;
    for reader in [Nobody, OfAnother, Waits, Done, Running, DoneOfSet, OfEdge] {
        let mut world = World::new(&[("a", 1), ("b", 3)]);
        for name in ["a", "b"] {
            world.owner.offers(&node(name), INCARNATION, offer(&["f@1", "dice@1"]));
        }
        let mut description = World::description("dice", &[], at("a"));
        (description.function, description.deterministic) = ("dice@1".into(), false);
        let task = description.id(SECRET);
        world.owner.submit(task, description);
        world.settle();
        let set = SetId::of(&[task.output(0)]);
        let of_set = Arg { source: Source::Set(set), parts: Parts::All };
        let pending = world.submit_with("pending", &[], at("b"));
        match reader {
            OfEdge => world.owner.make_edge_set(set, &[task.output(0)], shape()),
            _ => world.owner.make_set(set, &[task.output(0)], None),
        }
        world.complete(task);
        match reader {
            Nobody | OfEdge => {}
            OfAnother => {
                world.complete(pending);
                let other = world.submit_with("other", &[whole(pending)], at("b"));
                world.complete(other);
            }
            Waits => drop(world.submit_with("waits", &[whole(task), whole(pending)], at("b"))),
            Done | Running => {
                let reads = world.submit_with("reads", &[whole(task)], at("b"));
                if reader == Done {
                    world.complete(reads);
                }
            }
            DoneOfSet => {
                let reads = world.submit_with("reads", &[of_set], at("b"));
                world.complete(reads);
            }
        }
        world.crash(&node("a"), false);
        world.owner.track(task.output(0), 1);
        world.settle();
        world.complete_with(task, &[output(9, 2)], &[]);
        let fails = matches!(reader, Done | Running | DoneOfSet | OfEdge);
        assert_eq!(matches!(world.failed, Some(JobError::NonDeterministic { .. })), fails, "{reader:?}");
    }
}

// reach.rs

#[test]
fn the_death_of_a_third_node_does_not_send_a_task_back_where_it_cannot_read() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
    let made = |world: &mut World, name: &str, at_node: &str| {
        let task = world.submit_with(name, &[], at(at_node));
        world.complete(task);
        task
    };
    let first = made(&mut world, "first", "a");
    let reader = world.submit_with("reader", &[whole(first)], TaskOptions { place: Place::Spread, ..at("b") });
    let (attempt, here) = world.attempt_of(reader);
    let there = if here == node("a") { return } else { node("a") };
    let lost = world.lost(first.output(0), there, Loss::Unreachable);
    world.lose_argument(reader, attempt, lost);
    let rather_at = |world: &World| {
        let tasks = world.owner.tasks.iter();
        tasks.filter_map(|(_, task)| task.rare.get()?.rather_at).collect::<Vec<_>>()
    };
    let rather = rather_at(&world);
    assert_eq!(rather.len(), 1);
    let dies = ["b", "c", "d"].map(node).into_iter().find(|it| world.owner.known_node(it) != Some(rather[0])).unwrap();
    world.crash(&dies, false);
    assert_eq!(rather_at(&world), rather);
}

// retry_placement.rs

#[test]
fn a_task_under_which_an_executor_died_waits_for_no_node_where_it_has_no_room() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    // Half of what the task needs, and it could not be more.
    world
        .owner
        .leases(&[(node("a"), INCARNATION, Resources::cpu(1000)), (node("b"), INCARNATION, Resources::cpu(500))]);
    world.owner.could_lend(&node("b"), INCARNATION, Resources::cpu(500));
    let task = world.submit("t", &[]);
    assert_eq!(world.attempt_of(task).1, node("a"));
    world.fail(task, FailureKind::ExecutorLost);
    assert_eq!(world.attempt_of(task).1, node("a"));
}

#[test]
fn a_task_under_which_an_executor_died_goes_to_a_node_with_room_on_its_disks_first() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    let full = world.submit_with("full", &[], at("b"));
    world.fail(full, FailureKind::DiskFull);
    world.complete(full);
    world.submit_with("busy", &[], at("c"));
    let task = world.submit_with("t", &[], at("a"));
    world.fail(task, FailureKind::ExecutorLost);
    assert_eq!(world.attempt_of(task).1, node("c"), "busier, and not full");
}

#[test]
fn a_task_whose_next_node_is_gone_waits_in_no_queue_of_that_node() {
    let mut world = World::new(&[("a", 1)]);
    let task = world.submit("t", &[]);
    world.fail(task, FailureKind::ExecutorLost);
    world.owner.offers(&node("b"), INCARNATION, offer(&["f@1"]));
    world.owner.could_lend(&node("b"), INCARNATION, Resources::cpu(1000));
    world.fail(task, FailureKind::ExecutorLost);
    world.settle();
    let fill: Vec<_> = (0..3).map(|number| world.submit(&format!("fill{number}"), &[])).collect();
    world.owner.node_dead(&node("b"), INCARNATION);
    world.settle();
    assert!(!world.runs(task) && fill.iter().all(|fill| world.runs(*fill)));
    assert!(world.demand.iter().all(|demand| demand.node.is_none()), "{:?}", world.demand);
    world.owner.cancel(task);
    world.settle();
    fill.iter().for_each(|fill| world.complete(*fill));
    assert!(!world.runs(task), "it was taken from where it waited");
}

// resume.rs

fn done(task: TaskId, at: &str, made: &[Output]) -> TaskDone {
    let made_by = vec![Attempt::nth(1).makes(); made.len()];
    TaskDone { task, node: node(at), outputs: made.to_vec(), made_by, consumed: Vec::new(), values: Vec::new() }
}

fn resumed(nodes: &[(&str, u64)], done: Vec<TaskDone>, choices: Vec<Choice>) -> World {
    let mut world = World::new(nodes);
    world.owner.is_at_home(&node("home"), INCARNATION);
    world.owner.resume(Past { runs: 1, choices, done, ..Past::default() });
    world
}

fn task(name: &str) -> TaskId {
    World::description(name, &[], TaskOptions::default()).id(SECRET)
}

#[test]
fn a_node_that_nobody_has_named_is_asked_when_it_comes_up() {
    let map = task("map");
    let mut world = resumed(&[("a", 1)], vec![done(map, "a", &[output(8, 1)])], Vec::new());
    world.keep(&node("late"), map.output(0), 1);
    world.owner.node_up(&node("late"), INCARNATION);
    world.settle();
    world.submit("map", &[]);
    assert_eq!(world.lookup(map.output(0)), Some((output(8, 1), node("late"))));
    // In a first run it can have nothing.
    let mut world = World::new(&[("a", 1)]);
    world.owner.node_up(&node("late"), INCARNATION);
    assert_eq!(world.owner.flush(), []);
}

#[test]
fn what_an_incarnation_of_a_node_had_said_that_it_holds_is_not_taken_from_the_next() {
    let map = task("map");
    let mut world = resumed(&[("a", 1), ("b", 1)], vec![done(map, "b", &[output(8, 1)])], Vec::new());
    world.keep(&node("b"), map.output(0), 1);
    world.inventory(&node("b"));
    world.crash(&node("b"), false);
    world.restart(&node("b"));
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert!(world.runs(map));
}

#[test]
fn what_the_log_has_is_kept_though_another_node_dies() {
    let map = task("map");
    let mut world = resumed(&[("a", 1), ("b", 1)], vec![done(map, "b", &[output(8, 1)])], Vec::new());
    world.keep(&node("b"), map.output(0), 1);
    world.inventory(&node("b"));
    world.crash(&node("a"), false);
    world.submit("map", &[]);
    assert_eq!(world.lookup(map.output(0)), Some((output(8, 1), node("b"))));
}

#[test]
fn of_two_nodes_that_hold_the_same_the_first_is_believed() {
    let map = task("map");
    let mut world = resumed(&[("a", 1), ("b", 1)], vec![done(map, "a", &[output(8, 1)])], Vec::new());
    for name in ["b", "a"] {
        world.keep(&node(name), map.output(0), 1);
        world.inventory(&node(name));
    }
    world.inventory(&node("b"));
    assert_eq!(world.freed, [(node("a"), map.output(0))]);
    world.submit("map", &[]);
    assert_eq!(world.lookup(map.output(0)), Some((output(8, 1), node("b"))));
}

#[test]
fn only_what_was_cancelled_waits_for_that_and_only_once() {
    let merge = task("merge");
    let mut world = resumed(&[("a", 1)], Vec::new(), vec![Choice::GivenUp(merge.output(0))]);
    let other = world.submit("other", &[]);
    assert!(world.runs(other), "nobody has cancelled this one");
    world.submit("merge", &[]);
    assert!(!world.runs(merge));
    world.owner.cancel_maker(merge.output(0));
    // With the last handle all but its name is forgotten.
    world.release(merge);
    world.submit("merge", &[]);
    assert!(world.runs(merge), "it is another task");
}

#[test]
fn an_output_without_bytes_needs_neither_node_nor_log() {
    let empty = task("empty");
    let mut world = resumed(&[("a", 1)], vec![done(empty, "gone", &[output(0, 0)])], Vec::new());
    world.submit("empty", &[]);
    world.owner.track(empty.output(0), 1);
    world.settle();
    assert_eq!(world.resolved[&1], Ok(()));
    assert!(world.running.is_empty());
}

#[test]
fn an_owner_knows_which_run_of_the_job_it_is() {
    assert_eq!(World::new(&[]).owner.run(), 0);
    for runs in [1, 2, 7] {
        let mut world = World::new(&[]);
        world.owner.resume(Past { runs, ..Past::default() });
        assert_eq!(world.owner.run(), runs);
    }
}

// stragglers.rs

#[test]
fn a_node_with_another_slot_keeps_what_is_queued_there() {
    let mut world = World::new(&[("a", 2)]);
    let slow = world.submit("slow", &[]);
    world.owner.cancel(slow);
    world.settle();
    (0..4).for_each(|number| {
        world.submit(&format!("queued {number}"), &[]);
    });
    world.owner.still_running(&node("a"), &[StillRunning { task: slow, attempt: Attempt::nth(1), micros: 20_000_000 }]);
    world.settle();
    assert_eq!(world.recalled, [], "one slot is held, one is not");
}

// replay.rs: a list that changes under who goes through it

/// One output of a task that failed when it made the other one again is there still. When it is lost, too, who waits to read it fails, and with that others
/// that wait for both.
#[test]
fn those_that_fail_with_another_one_when_something_is_lost_fail_once() {
    for held in [true, false] {
        let mut world = World::new(&[("a", 1)]);
        world.micros = 1_000_000;
        let options = TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() };
        let maker = world.submit_with("maker", &[], options);
        world.complete_with(maker, &[output(8, 1); 2], &[]);
        let reads_other = Arg { source: Source::Object(maker.output(1)), parts: Parts::All };
        let reader = world.submit("reader", &[reads_other]);
        world.lose_argument(reader, Attempt::nth(1), world.lost(maker.output(1), node("a"), Loss::Gone));
        assert!(world.runs(maker), "it makes the other one again");
        (0..3).for_each(|number| {
            world.submit(&format!("fill{number}"), &[]);
        });
        let first = world.submit("first", &[whole(maker)]);
        let second = world.submit("second", &[whole(maker), whole(first)]);
        world.fail(maker, FailureKind::Final);
        assert!(!world.runs(first) && !world.runs(second), "one waits for a slot, one for the other");
        if held {
            world.owner.track(second.output(0), 1);
        } else {
            world.release(first);
            world.release(second);
        }
        world.crash(&node("a"), false);
        world.restart(&node("a"));
        if held {
            assert!(matches!(world.resolved[&1], Err(JobError::Task { .. })), "{:?}", world.resolved);
            world.release(first);
            world.release(second);
        }
        world.release(maker);
        world.owner.release_object(maker.output(1));
        world.release(reader);
        (0..3).for_each(|number| {
            let fill = task(&format!("fill{number}"));
            world.complete(fill);
            world.release(fill);
        });
        assert_eq!((world.failed.clone(), world.owner.sizes()), (None, (0, 0, 0)));
        assert_eq!(world.owner.counts().running, 0);
    }
}
