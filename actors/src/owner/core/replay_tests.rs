//! What is made again, and what is not, when nodes and objects are lost.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::world_tests::{INCARNATION, JOB, SECRET, World, node, offer, output, whole};
use crate::ids::{Attempt, CopyNumber, Incarnation, ObjectId, RowHash, SetId, TaskId};
use crate::protocol::copies::Whereabouts;
use crate::task::EdgeShape;
use crate::task::{
    Arg, Consumed, FailureKind, JobError, LocatedSource, Loss, Output, Parts, Place, Returns, Source, TaskFigures,
    TaskOptions,
};

fn at(name: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: node(name), soft: true }, ..TaskOptions::default() }
}

fn bound(name: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: node(name), soft: false }, ..TaskOptions::default() }
}

fn shape(readers: u32) -> EdgeShape {
    EdgeShape { readers, ..EdgeShape::new("map -> reduce", 2) }
}

fn part(set: SetId, part: u32) -> Arg {
    Arg { source: Source::Set(set), parts: Parts::one(part) }
}

fn read(rows: u64) -> Consumed {
    Consumed {
        arg: 0,
        read: Output { bytes: rows * 10, rows, row_hash: RowHash(u128::from(rows)) },
        ..Consumed::default()
    }
}

/// Two maps, one on each node, and their edge.
fn two_maps(world: &mut World) -> ([TaskId; 2], SetId) {
    let maps = [world.submit_with("map0", &[], at("a")), world.submit_with("map1", &[], at("b"))];
    maps.iter().for_each(|map| world.complete_with(*map, &[output(100, 10)], &[]));
    let members = maps.map(|map| map.output(0));
    let set = SetId::of(&members);
    world.owner.make_edge_set(set, &members, shape(1));
    (maps, set)
}

#[test]
fn tasks_of_a_dead_node_run_elsewhere() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.crash(&node("a"), false);
    assert_eq!(world.attempt_of(task), (Attempt::nth(2), node("b")));
    world.complete(task);
    assert_eq!(world.failed, None);
}

#[test]
fn what_another_attempt_has_made_is_not_taken_for_what_was_lost() {
    for foreign in [false, true] {
        let mut world = World::new(&[("a", 1), ("b", 1)]);
        let done = world.submit_with("done", &[], at("a"));
        world.complete(done);
        world.crash(&node("a"), true);
        world.foreign.extend(foreign.then(|| done.output(0)));
        world.restart(&node("a"));
        let next = world.submit("next", &[whole(done)]);
        assert_eq!((world.runs(done), world.runs(next)), (foreign, !foreign));
        assert_eq!(world.holds(&node("a"), done.output(0)), !foreign, "it is freed");
    }
}

#[test]
fn what_was_lost_with_a_session_is_handed_out_and_asked_again_and_is_no_failure() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let done = world.submit_with("done", &[], at("a"));
    world.complete(done);
    let under_way = world.submit_with("under way", &[], TaskOptions { attempts: 1, ..at("a") });
    assert_eq!(world.attempt_of(under_way), (Attempt::nth(1), node("a")));
    world.owner.session_reset(&node("a"), Incarnation(0));
    world.settle();
    assert_eq!(world.attempt_of(under_way).0, Attempt::nth(1), "that was an earlier incarnation");
    world.owner.session_reset(&node("a"), INCARNATION);
    // Whatever the node does with it does not count any more.
    world.running.remove(&(under_way, Attempt::nth(1)));
    world.settle();
    assert_eq!(
        world.attempt_of(under_way),
        (Attempt::nth(2), node("a")),
        "its one try is not used up, its slot not gone"
    );
    let next = world.submit("next", &[whole(done)]);
    assert!(world.runs(next) && !world.runs(done), "the node has said that it has it");
    [under_way, next].into_iter().for_each(|task| world.complete(task));
    assert_eq!(world.failed, None);
}

/// Its process was killed and started again, and the session says so before any heartbeat does.
#[test]
fn a_session_with_a_later_incarnation_of_a_node_ends_the_incarnation_before() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let held = world.submit_with("held", &[], at("a"));
    world.complete(held);
    let under_way = world.submit_with("under way", &[], at("a"));
    let (incarnation, a) = (Incarnation(INCARNATION.0 + 1), node("a"));
    world.nodes.get_mut(&a).unwrap().1 = incarnation;
    world.stored.retain(|(at, _), _| *at != a);
    world.running.clear();
    world.owner.session_reset(&a, incarnation);
    world.settle();
    assert_eq!(
        world.attempt_of(under_way),
        (Attempt::nth(2), node("b")),
        "the new incarnation has nothing, and is lent to nobody yet"
    );
    world.complete(under_way);
    let reader = world.submit("reader", &[whole(held)]);
    assert!(world.runs(held) && !world.runs(reader), "what it held went with the incarnation before");
    // Nothing new for the Owner, when the others say so too.
    world.owner.node_dead(&a, INCARNATION);
    world.owner.node_up(&a, incarnation);
    world.lend();
    assert_eq!(world.owner.counts().replayed, 1);
    assert_eq!(world.failed, None);
}

#[test]
fn what_a_dead_node_held_is_made_again_only_for_who_needs_it_and_backwards_as_far_as_it_takes() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let first = world.submit_with("first", &[], at("a"));
    world.complete(first);
    let second = world.submit_with("second", &[whole(first)], at("a"));
    world.complete(second);
    let unneeded = world.submit_with("unneeded", &[], at("a"));
    world.complete(unneeded);
    world.release(first);
    world.crash(&node("a"), false);
    assert!(world.running.is_empty(), "handles alone need nothing: {:?}", world.running);

    let third = world.submit("third", &[whole(second)]);
    assert!(world.runs(first), "the argument of what was lost was freed long ago");
    assert!(!world.runs(second) && !world.runs(third) && !world.runs(unneeded));
    world.complete(first);
    world.complete(second);
    assert_eq!(world.attempt_of(third).1, node("b"));
    world.complete(third);
    assert_eq!((world.failed.clone(), world.owner.counts().replayed), (None, 2));
}

#[test]
fn whoever_waits_for_a_value_that_is_lost_waits_until_it_is_made_again() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    world.crash(&node("a"), false);
    assert_eq!(world.owner.stat(task.output(0)), Some(output(8, 1)), "what it was is known");
    world.owner.track(task.output(0), 7);
    world.settle();
    assert!(world.runs(task) && !world.resolved.contains_key(&7));
    world.complete(task);
    assert_eq!(world.resolved[&7], Ok(()));
}

#[test]
fn tasks_that_wait_for_a_slot_wait_for_their_arguments_again() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    world.micros = 1_000_000;
    let (maps, set) = two_maps(&mut world);
    // Queues are full: the last ones have no slot.
    let busy: Vec<_> = (0..8).map(|n| world.submit(&format!("busy{n}"), &[])).collect();
    let reduce = world.submit("reduce", &[part(set, 0)]);
    let direct = world.submit("direct", &[whole(maps[0])]);
    world.crash(&node("a"), false);
    while let Some(task) = busy.iter().find(|task| world.runs(**task)) {
        world.complete(*task);
    }
    assert!(world.runs(maps[0]) && !world.runs(maps[1]), "one map is lost");
    assert!(!world.runs(reduce) && !world.runs(direct));
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    assert!(world.runs(direct));
    world.complete(direct);
    let (_, spec) = world.running.values().find(|(_, spec)| spec.id == reduce).expect("it runs");
    let LocatedSource::Set { set: told, .. } = spec.args[0].source else { panic!("{:?}", spec.args) };
    assert_eq!((told, spec.args[0].parts), (set, Parts::one(0)));
    assert_eq!(
        world.owner.set_members(set).1.iter().map(|(_, at)| at.clone()).collect::<Vec<_>>(),
        [2, 1].map(|attempt| Whereabouts::At(node("b"), Attempt::nth(attempt).makes()))
    );
}

#[test]
fn a_reader_of_parts_that_were_freed_makes_whole_objects_again_and_counts_once() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (maps, set) = two_maps(&mut world);
    let reduces = [0, 1].map(|n| world.submit_with(&format!("reduce{n}"), &[part(set, n)], at("b")));
    world.complete_with(reduces[0], &[output(8, 1)], &[read(8)]);
    assert_eq!(world.freed_parts.len(), 2);
    world.crash(&node("b"), false);
    // What is lost is the second map, the first reduce, and the attempt of the second.
    world.owner.track(reduces[0].output(0), 1);
    world.settle();
    assert!(world.runs(maps[0]), "its first part was freed, on a node that is well");
    assert!(world.runs(maps[1]));
    maps.iter().for_each(|map| world.complete_with(*map, &[output(100, 10)], &[]));
    world.complete_with(reduces[0], &[output(8, 1)], &[read(8)]);
    world.complete_with(reduces[1], &[output(8, 1)], &[read(12)]);
    assert_eq!(world.resolved[&1], Ok(()));
    world.owner.release_set(set);
    world.settle();
    assert_eq!((world.failed.clone(), world.owner.close()), (None, Ok(())), "the ledgers balance");
}

/// What was read frees its parts, for which nodes are told of the set; attempts that wait there read what they are told then.
#[test]
fn a_node_that_is_told_of_a_set_while_a_member_is_lost_is_told_that_it_is_lost() {
    let mut world = World::new(&[("a", 3), ("b", 3)]);
    let (maps, set) = two_maps(&mut world);
    let reduces = [0, 1].map(|n| world.submit_with(&format!("reduce{n}"), &[part(set, n)], at("a")));
    let unreadable = world.lost(maps[1].output(0), node("b"), Loss::Gone);
    let reader = world.submit_with("reader", &[whole(maps[1])], at("b"));
    world.lose_argument(reader, Attempt::nth(1), unreadable);
    assert!(world.runs(maps[1]), "it is made again");
    world.complete_with(reduces[0], &[output(8, 1)], &[read(8)]);
    let told = &world.defined[&(node("a"), set)];
    let here = Whereabouts::At(node("a"), Attempt::nth(1).makes());
    assert_eq!(told.1.iter().map(|(_, at)| at).collect::<Vec<_>>(), [&here, &Whereabouts::Lost]);
    // Who reads it then cannot, and waits until it is there.
    world.fail(reduces[1], FailureKind::ArgumentLost);
    assert!(!world.runs(reduces[1]));
    world.complete_with(maps[1], &[output(100, 10)], &[]);
    assert!(world.runs(reduces[1]) && world.failed.is_none());
}

#[test]
fn rows_that_differ_the_second_time_fail_the_job() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    let reader = world.submit("reader", &[whole(task)]);
    world.complete(reader);
    world.crash(&node("a"), false);
    world.owner.track(task.output(0), 1);
    world.settle();
    world.complete_with(task, &[output(8, 2)], &[]);
    assert!(matches!(world.failed, Some(JobError::NonDeterministic { .. })), "{:?}", world.failed);
}

#[test]
fn a_stream_goes_on_where_it_was_and_must_say_the_same_again() {
    for honest in [true, false] {
        let mut world = World::new(&[("a", 1), ("b", 1)]);
        let options = TaskOptions { returns: Returns::Stream, ..at("a") };
        let task = world.submit_with("stream", &[], options);
        world.owner.track_stream(task, 1);
        let seal = |world: &mut World, attempt, name: &str, index, rows| {
            world.keep(&node(name), task.output(index), attempt);
            world.owner.yielded((&node(name), INCARNATION), task, Attempt::nth(attempt), index, output(8, rows));
            world.settle();
        };
        seal(&mut world, 1, "a", 0, 10);
        seal(&mut world, 1, "a", 1, 11);
        world.owner.release_object(task.output(0));
        world.crash(&node("a"), false);
        assert_eq!(world.attempt_of(task), (Attempt::nth(2), node("b")));
        seal(&mut world, 2, "b", 0, 10);
        assert!(!world.holds(&node("b"), task.output(0)), "nobody needs it again");
        seal(&mut world, 2, "b", 1, if honest { 11 } else { 12 });
        seal(&mut world, 2, "b", 2, 13);
        let announced: Vec<_> = world.streamed[&1].iter().map(|item| item.clone().unwrap().unwrap()).collect();
        assert_eq!(announced, [0, 1, 2].map(|index| task.output(index)), "each is announced once");
        assert_eq!(matches!(world.failed, Some(JobError::NonDeterministic { .. })), !honest);
        if honest {
            let all = [10, 11, 13].map(|rows| output(8, rows));
            world.complete_with(task, &all, &[]);
            assert_eq!(world.streamed[&1].last(), Some(&Ok(None)));
            assert_eq!(world.lookup(task.output(1)).map(|(_, at)| at), Some(node("b")));
        }
    }
}

#[test]
fn what_was_read_in_part_by_who_runs_again_is_not_taken_back_but_made_again() {
    let mut world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
    let map = world.submit_with("map", &[], at("a"));
    world.complete(map);
    let set = SetId::of(&[map.output(0)]);
    let shape = EdgeShape::new("map -> reduce", 2);
    world.owner.make_edge_set(set, &[map.output(0)], shape);
    let part = |part| Arg { source: Source::Set(set), parts: Parts::one(part) };
    let read = Consumed { arg: 0, read: output(4, 0), ..Consumed::default() };
    let first = world.submit_with("first", &[part(0)], at("b"));
    world.complete_with(first, &[output(8, 1)], &[read]);
    let freed = world.freed_parts.clone();
    assert_eq!(freed, [(node("a"), set, Parts::one(0))], "its part of it is gone there");
    let other = world.submit_with("other", &[part(1)], at("c"));
    assert!(world.runs(other));
    // The map's node is called dead by mistake, and keeps what it has; what the first reader made is lost and asked for.
    world.crash(&node("a"), true);
    world.crash(&node("b"), false);
    world.owner.track(first.output(0), 1);
    world.settle();
    assert_eq!(world.attempt_of(map).1, node("c"), "the first reader needs it whole");
    world.restart(&node("a"));
    assert!(world.freed.contains(&(node("a"), map.output(0))), "there it lacks a part");
    assert!(world.runs(map) && !world.runs(first));
    world.complete(map);
    assert!(world.runs(first));
    assert_eq!(world.failed, None);
}

#[test]
fn a_copy_of_which_a_part_was_freed_is_not_whole_for_having_been_away() {
    let mut world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
    let map = world.submit_with("map", &[], at("a"));
    world.complete_with(map, &[output(100, 10)], &[]);
    let set = SetId::of(&[map.output(0)]);
    world.owner.make_edge_set(set, &[map.output(0)], shape(1));
    let first = world.submit_with("first", &[part(set, 0)], at("b"));
    world.complete_with(first, &[output(8, 1)], &[read(4)]);
    assert_eq!(world.freed_parts, [(node("a"), set, Parts::one(0))]);
    world.crash(&node("a"), true);
    let second = world.submit_with("second", &[part(set, 1)], at("c"));
    assert!(world.runs(map));
    world.restart(&node("a"));
    assert!(world.runs(second) && !world.runs(map), "it has the part that the second reads");
    world.crash(&node("b"), false);
    world.owner.track(first.output(0), 1);
    world.settle();
    assert!(world.runs(map) && !world.runs(first), "it lacks the part that the first has read, and reads again");
    world.complete_with(map, &[output(100, 10)], &[]);
    world.complete_with(first, &[output(8, 1)], &[read(4)]);
    assert_eq!((world.failed.clone(), world.resolved.get(&1)), (None, Some(&Ok(()))));
}

#[test]
fn what_a_stream_has_announced_and_is_lost_before_it_ends_is_made_by_another_attempt() {
    let mut world = World::new(&[("a", 1), ("b", 2)]);
    let task = world.submit_with("stream", &[], TaskOptions { returns: Returns::Stream, ..at("b") });
    world.owner.track_stream(task, 1);
    let seal = |world: &mut World, attempt| {
        world.keep(&node("b"), task.output(0), 1);
        world.owner.yielded((&node("b"), INCARNATION), task, Attempt::nth(attempt), 0, output(8, 10));
        world.settle();
    };
    seal(&mut world, 1);
    let reader = world.submit_with("reader", &[whole(task)], at("a"));
    let (attempt, reader_at) = world.attempt_of(reader);
    assert_eq!(reader_at, node("a"), "the stream goes on meanwhile");
    world.stored.clear();
    world.lose_argument(reader, attempt, world.lost(task.output(0), node("b"), Loss::Gone));
    assert!(!world.runs(reader) && world.attempt_of(task).0 == Attempt::nth(1));
    world.complete_with(task, &[output(8, 10)], &[]);
    assert_eq!(world.attempt_of(task).0, Attempt::nth(2), "it had said it, and does not say it twice");
    seal(&mut world, 2);
    assert!(world.runs(reader));
    world.complete(reader);
    world.complete_with(task, &[output(8, 10)], &[]);
    assert!(!world.runs(task));
    assert_eq!(world.failed, None);
}

#[test]
fn a_stream_that_ends_earlier_the_second_time_fails_the_job() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("stream", &[], TaskOptions { returns: Returns::Stream, ..at("a") });
    world.owner.track_stream(task, 1);
    for index in 0..2 {
        world.owner.yielded((&node("a"), INCARNATION), task, Attempt::nth(1), index, output(8, 10));
    }
    world.settle();
    world.crash(&node("a"), false);
    world.complete_with(task, &[output(8, 10)], &[]);
    assert!(matches!(world.failed, Some(JobError::NonDeterministic { .. })), "{:?}", world.failed);
}

#[test]
fn an_argument_that_is_gone_is_made_again_and_costs_the_reader_no_attempt() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let first = world.submit_with("first", &[], at("a"));
    world.complete(first);
    let options = TaskOptions { attempts: 1, ..at("b") };
    let second = world.submit_with("second", &[whole(first)], options);
    for attempt in 1..4 {
        let holder = world.lookup(first.output(0)).unwrap().1;
        let lost = world.lost(first.output(0), holder, Loss::Gone);
        world.lose_argument(second, Attempt::nth(attempt), lost);
        assert!(world.runs(first) && !world.runs(second));
        world.complete(first);
        assert!(world.runs(second));
    }
    world.complete(second);
    assert_eq!((world.failed.clone(), world.owner.counts().failed_attempts), (None, 0));
}

#[test]
fn an_old_complaint_about_an_object_that_has_moved_changes_nothing() {
    let mut world = World::new(&[("a", 1), ("b", 2)]);
    let first = world.submit_with("first", &[], at("a"));
    world.complete(first);
    let readers = ["r1", "r2"].map(|name| world.submit_with(name, &[whole(first)], at("b")));
    let lost = world.lost(first.output(0), node("a"), Loss::Gone);
    world.lose_argument(readers[0], Attempt::nth(1), lost.clone());
    world.complete(first);
    world.lose_argument(readers[1], Attempt::nth(1), lost.clone());
    assert!(!world.runs(first), "it is there");
    assert!(world.runs(readers[0]) && world.runs(readers[1]));
    let new = world.lost(first.output(0), node("a"), Loss::Gone);
    world.lose_argument(readers[0], Attempt::nth(2), new);
    assert!(world.runs(first), "what is said of the new one is not old");
}

#[test]
fn a_small_output_is_put_back_instead_of_made_again() {
    let mut world = World::new(&[("home", 0), ("a", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    world.owner.values(task, Attempt::nth(1), &[(0, Bytes::from_static(b"8 bytes!"))]);
    world.crash(&node("a"), false);
    assert_eq!(world.lookup(task.output(0)), Some((output(8, 1), node("home"))));
    assert!(world.holds(&node("home"), task.output(0)));
    world.restart(&node("a"));
    // The disk of the Owner is full, say.
    let (.., put_back) = world.owner.lookup(task.output(0)).unwrap();
    world.owner.not_restored(put_back);
    world.owner.track(task.output(0), 1);
    world.settle();
    assert!(world.runs(task), "then it is made again");
}

#[test]
fn bytes_of_another_length_or_of_an_attempt_that_does_not_count_are_not_taken_for_an_output() {
    let mut world = World::new(&[("home", 0), ("a", 1), ("b", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let task = world.submit_with("t", &[], at("a"));
    world.complete(task);
    world.owner.values(task, Attempt::nth(1), &[(0, Bytes::from_static(b"short"))]);
    world.owner.values(task, Attempt::nth(2), &[(0, Bytes::from_static(b"8 bytes!"))]);
    world.crash(&node("a"), false);
    assert_eq!(world.lookup(task.output(0)), None);
}

#[test]
fn a_node_that_is_back_gives_what_is_missing_and_ends_the_replay() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let kept = world.submit_with("kept", &[], at("a"));
    let freed = world.submit_with("freed", &[], at("a"));
    let elsewhere = world.submit_with("elsewhere", &[], at("a"));
    for task in [kept, freed, elsewhere] {
        world.complete(task);
    }
    world.crash(&node("a"), true);
    world.release(freed);
    for (tracker, task) in [(1, elsewhere), (2, kept)] {
        world.owner.track(task.output(0), tracker);
    }
    world.settle();
    world.complete(elsewhere);
    assert!(world.runs(kept) && !world.resolved.contains_key(&2));
    world.restart(&node("a"));
    assert_eq!(world.resolved[&2], Ok(()), "it is there again");
    assert!(!world.runs(kept), "and is not made a second time");
    assert_eq!(world.lookup(kept.output(0)).map(|(_, at)| at), Some(node("a")));
    let here = world.stored.keys().filter(|(at, _)| *at == node("a"));
    let left: Vec<_> = here.map(|(_, copy)| ObjectId::of_copy(*copy).0).collect();
    assert_eq!(left, [kept.output(0)], "what is not needed goes");
}

#[test]
fn a_new_incarnation_of_a_node_ends_the_old_one_though_nobody_called_it_dead() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let done = world.submit_with("done", &[], at("a"));
    world.complete(done);
    let running = world.submit_with("running", &[], at("a"));
    world.running.clear();
    world.stored.clear();
    world.owner.node_up(&node("a"), Incarnation(2));
    world.settle();
    assert_eq!(world.lookup(done.output(0)), None);
    assert_eq!(world.attempt_of(running), (Attempt::nth(2), node("b")));
    world.owner.node_dead(&node("a"), INCARNATION);
    world.settle();
    assert!(world.owner.is_alive(&node("a")), "that was the incarnation before");
}

#[test]
fn a_task_that_is_bound_to_a_dead_node_runs_elsewhere() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("look", &[], bound("a"));
    let waiting: Vec<_> = (0..5).map(|n| world.submit_with(&format!("look{n}"), &[], bound("a"))).collect();
    world.crash(&node("a"), false);
    assert_eq!(world.attempt_of(task).1, node("b"));
    for task in std::iter::once(task).chain(waiting) {
        world.complete(task);
    }
    let later = world.submit_with("later", &[], bound("a"));
    assert_eq!(world.attempt_of(later).1, node("b"), "what is submitted later, too");
}

#[test]
fn outputs_that_are_lost_again_and_again_end_the_job_with_the_task() {
    let mut world = World::new(&[("a", 1)]);
    let first = world.submit("first", &[]);
    let second = world.submit("second", &[whole(first)]);
    world.complete(first);
    world.owner.track(second.output(0), 1);
    world.settle();
    for _ in 0..40 {
        if !world.runs(second) {
            break;
        }
        let attempt = world.attempt_of(second).0;
        let lost = world.lost(first.output(0), node("a"), Loss::Gone);
        world.lose_argument(second, attempt, lost);
        if world.runs(first) {
            world.complete(first);
        }
    }
    let failed = matches!(&world.resolved[&1], Err(JobError::Task { task, .. }) if *task == first);
    assert!(failed, "{:?}", world.resolved[&1]);
}

#[test]
fn a_long_chain_is_replayed_without_a_deep_stack() {
    const LINKS: u32 = 20_000;
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let mut last: Option<TaskId> = None;
    for link in 0..LINKS {
        let args: Vec<Arg> = last
            .map(|before| {
                // As the folds of a streaming shuffle: each in a set of its own.
                let set = SetId::of(&[before.output(0)]);
                world.owner.make_set(set, &[before.output(0)], None);
                Arg { source: Source::Set(set), parts: Parts::All }
            })
            .into_iter()
            .collect();
        let task = world.submit_with(&format!("link{link}"), &args, at("a"));
        world.complete(task);
        if let (Some(before), Some(Arg { source: Source::Set(set), .. })) = (last, args.first()) {
            world.owner.release_set(*set);
            world.release(before);
        }
        last = Some(task);
    }
    let last = last.unwrap();
    world.crash(&node("a"), false);
    world.owner.track(last.output(0), 1);
    world.settle();
    for _ in 0..LINKS {
        let (task, attempt) = *world.running.keys().next().expect("one link after the other");
        world.complete_attempt(task, attempt, &[output(8, 1)], &[]);
    }
    assert_eq!(world.resolved[&1], Ok(()));
}

#[test]
fn an_object_that_the_program_put_cannot_be_made_again() {
    let mut world = World::new(&[("home", 1), ("a", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let object = ObjectId::from_u128(77 << 32);
    world.owner.put((object, CopyNumber::FIRST), output(8, 0), &node("home"), INCARNATION);
    let reader = world.submit_with("reader", &[Arg { source: Source::Object(object), parts: Parts::All }], at("a"));
    world.lose_argument(reader, Attempt::nth(1), world.lost(object, node("home"), Loss::Gone));
    assert_eq!(world.failed, Some(JobError::PutLost { object }));
}

#[test]
fn few_bytes_that_the_program_put_are_put_back_as_often_as_they_are_lost() {
    let mut world = World::new(&[("home", 1), ("a", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let object = ObjectId::from_u128(77 << 32);
    world.owner.put((object, CopyNumber::FIRST), output(8, 0), &node("home"), INCARNATION);
    world.owner.keep_put(object, CopyNumber::FIRST, b"8 bytes!");
    let reader = world.submit_with("reader", &[Arg { source: Source::Object(object), parts: Parts::All }], at("a"));
    for attempt in 1..4 {
        world.lose_argument(reader, Attempt::nth(attempt), world.lost(object, node("home"), Loss::Gone));
        assert!(world.runs(reader) && world.failed.is_none(), "{:?}", world.failed);
        assert_eq!(world.restored.len() as u32, attempt);
    }
    let copies: BTreeSet<_> = world.restored.iter().map(|(copy, _)| *copy).collect();
    assert_eq!(copies.len(), 3, "each copy has a name of its own");
    assert!(world.restored.iter().all(|(_, bytes)| **bytes == *b"8 bytes!"));
    // Its own disk is full, say.
    let (.., put_back) = world.owner.lookup(object).unwrap();
    world.owner.not_restored(put_back);
    world.settle();
    assert_eq!(world.failed, Some(JobError::PutLost { object }));
}

#[test]
fn a_lost_attempt_of_a_task_with_another_one_costs_nothing() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let task = world.submit_with("t", &[], TaskOptions { attempts: 1, ..at("a") });
    world.fail(task, FailureKind::Denied);
    assert!(world.runs(task));
    world.complete(task);
    assert_eq!(world.failed, None);
}

/// What has no bytes counts as there when its node is dead: that node is told nothing, since its next incarnation would not know it.
#[test]
fn a_node_that_was_dead_when_parts_were_freed_learns_where_a_set_is_when_it_is_back() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let maps = ["full", "empty"].map(|name| world.submit(name, &[]));
    let (_, dies) = world.attempt_of(maps[1]);
    let members = maps.map(|map| map.output(0));
    let set = SetId::of(&members);
    world.owner.make_edge_set(set, &members, shape(1));
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    world.complete_with(maps[1], &[output(0, 0)], &[]);
    world.crash(&dies, false);
    let reads = |bytes, rows| [Consumed { arg: 0, read: output(bytes, rows), ..Consumed::default() }];
    let first = world.submit("first", &[part(set, 0)]);
    world.complete_with(first, &[output(1, 1)], &reads(60, 6));
    assert!(world.freed_parts.iter().all(|(node, ..)| *node != dies), "{:?}", world.freed_parts);
    let holds_the_other = world.submit("long", &[]);
    assert_ne!(world.attempt_of(holds_the_other).1, dies);
    world.restart(&dies);
    // The world looks whether a node that is to run a task knows its sets.
    let second = world.submit("second", &[part(set, 1)]);
    assert_eq!(world.attempt_of(second).1, dies);
    world.complete_with(second, &[output(1, 1)], &reads(40, 4));
    assert_eq!(world.owner.close(), Ok(()));
}

/// Two faults, and a table's slot that is used again: the bytes that the Owner has of one object are not put under the name of another.
#[test]
fn what_the_owner_knows_of_an_object_goes_with_it() {
    let mut world = World::new(&[("home", 1), ("a", 1), ("b", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let first = world.submit_with("first", &[], at("a"));
    world.complete_with(first, &[output(4, 1)], &[]);
    world.owner.values(first, Attempt::nth(1), &[(0, Bytes::from_static(b"1111"))]);
    world.crash(&node("a"), false);
    let put_back = [(first.output(0).copy(JOB, Attempt::nth(2).makes()), Bytes::from_static(b"1111"))];
    assert_eq!(world.restored, put_back, "its node is gone, its bytes are not");
    world.unreadable(first.output(0));
    world.release(first);
    let second = world.submit_with("second", &[], at("b"));
    world.complete_with(second, &[output(8, 1)], &[]);
    world.crash(&node("b"), false);
    assert_eq!(world.restored, put_back, "nobody has sent any bytes of the second");
    let reader = world.submit("reader", &[whole(second)]);
    assert!(world.runs(second) && !world.runs(reader), "it is made again");
}

/// What is made again of a function that is not deterministic may be something else, as long as nobody has read it.
#[test]
fn the_bytes_of_what_was_made_first_are_not_put_back_for_what_was_made_next() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    for name in ["a", "b"] {
        world.owner.offers(&node(name), INCARNATION, offer(&["f@1", "dice@1"]));
    }
    world.owner.is_at_home(&node("home"), INCARNATION);
    let mut description = World::description("t", &[], at("a"));
    (description.function, description.deterministic) = ("dice@1".into(), false);
    let task = description.id(SECRET);
    world.owner.submit(task, description);
    world.settle();
    world.complete_with(task, &[output(4, 1)], &[]);
    world.owner.values(task, Attempt::nth(1), &[(0, Bytes::from_static(b"1111"))]);
    world.crash(&node("a"), false);
    assert_eq!(world.restored.len(), 1);
    world.unreadable(task.output(0));
    world.owner.track(task.output(0), 1);
    world.settle();
    let (_, made_at) = world.attempt_of(task);
    world.complete_with(task, &[output(9, 2)], &[]);
    assert_eq!(world.resolved[&1], Ok(()));
    world.crash(&made_at, false);
    assert_eq!(world.restored.len(), 1, "nobody has sent any bytes of what was made next");
}

/// A stream that runs again is ended when all that was missing is back; what it had announced until then counts, and its end comes late.
#[test]
fn what_a_stream_has_announced_that_is_ended_since_the_rest_is_back_stays() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let options = TaskOptions { returns: Returns::Stream, ..at("a") };
    let task = world.submit_with("stream", &[], options);
    world.owner.track_stream(task, 1);
    let seal = |world: &mut World, attempt, name: &str, index| {
        world.keep(&node(name), task.output(index), attempt);
        world.owner.yielded((&node(name), INCARNATION), task, Attempt::nth(attempt), index, output(8, 10));
        world.settle();
    };
    [0, 1].into_iter().for_each(|index| seal(&mut world, 1, "a", index));
    world.complete_with(task, &[output(8, 10); 2], &[]);
    world.crash(&node("a"), true);
    // Only the second is still there when the node comes back.
    world.stored.retain(|(_, copy), _| ObjectId::of_copy(*copy).0 == task.output(1));
    [0, 1].into_iter().for_each(|index| world.owner.track(task.output(index), u64::from(index) + 2));
    world.settle();
    assert_eq!(world.attempt_of(task), (Attempt::nth(2), node("b")));
    seal(&mut world, 2, "b", 0);
    world.restart(&node("a"));
    assert_eq!(world.cancelled, [(task, Attempt::nth(2))], "nothing is missing any more");
    let figures = TaskFigures::default();
    world.owner.completed((&node("b"), INCARNATION), task, Attempt::nth(2), &[output(8, 10); 2], &[], figures);
    world.settle();
    let places = [0, 1].map(|index| world.lookup(task.output(index)).map(|(_, at)| at));
    assert_eq!(places, [Some(node("b")), Some(node("a"))]);
    assert!(world.holds(&node("b"), task.output(0)), "{:?}", world.freed);
}

/// It was asked what it holds, and said so before it heard that this copy is to be freed.
#[test]
fn what_was_freed_on_a_node_is_not_taken_to_be_there_when_the_node_names_it_late() {
    let mut world = World::new(&[("a", 1), ("b", 2)]);
    let map = world.submit_with("map", &[], at("a"));
    world.complete(map);
    let reader = world.submit_with("reader", &[whole(map)], at("b"));
    world.lose_argument(reader, Attempt::nth(1), world.lost(map.output(0), node("a"), Loss::Gone));
    assert_eq!(world.freed, [(node("a"), map.output(0))]);
    let held = (map.output(0).copy(JOB, Attempt::nth(1).makes()), Attempt::nth(1).makes().get(), output(8, 1));
    world.owner.inventory((&node("a"), INCARNATION), std::iter::once(held));
    world.settle();
    assert_eq!(world.lookup(map.output(0)), None);
    assert!(world.runs(map) && !world.runs(reader), "its next attempt would not find it either");
}

/// The old copy lacks a part, and is freed under a name of its own: whatever its node hears first, the new one stays whole.
#[test]
fn what_is_made_again_where_parts_of_it_were_freed_is_another_copy() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (maps, set) = two_maps(&mut world);
    let reduce = world.submit_with("reduce", &[part(set, 0)], at("b"));
    world.complete_with(reduce, &[output(8, 1)], &[read(8)]);
    let counts = |world: &World| world.owner.lookup(maps[0].output(0)).map(|(_, at, copy)| (at, copy)).unwrap();
    let (before, there) = (counts(&world), node("a"));
    assert!(world.freed_parts.contains(&(there.clone(), set, Parts::one(0))));
    world.crash(&node("b"), false);
    world.owner.track(reduce.output(0), 1);
    world.settle();
    assert_eq!(world.attempt_of(maps[0]).1, there);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    let again = counts(&world);
    assert!(again.0 == there && again != before);
    assert!(world.stored.contains_key(&again) && !world.stored.contains_key(&before));
}

#[test]
fn a_node_that_does_not_know_a_set_is_told_again_before_the_next_attempt() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let (_, set) = two_maps(&mut world);
    let reduce = world.submit_with("reduce", &[part(set, 0)], at("a"));
    let told = world.defined.remove(&(node("a"), set)).expect("it was told before the attempt");
    world.owner.set_unknown(&node("a"), set);
    // The world looks whether a node that is to run a task knows its sets.
    world.fail(reduce, FailureKind::ArgumentLost);
    assert_eq!(world.attempt_of(reduce), (Attempt::nth(2), node("a")));
    assert_eq!(world.defined[&(node("a"), set)], told);
    assert_eq!(world.owner.counts().failed_attempts, 0);
}

/// A world in which a function may give another result each time, and a task of it.
fn dice(nodes: &[(&str, u64)], name: &str, options: TaskOptions) -> (World, TaskId) {
    let mut world = World::new(nodes);
    world.nodes.keys().cloned().collect::<Vec<_>>().iter().for_each(|node| {
        world.owner.offers(node, INCARNATION, offer(&["f@1", "dice@1"]));
    });
    let mut description = World::description(name, &[], options);
    (description.function, description.deterministic) = ("dice@1".into(), false);
    let task = description.id(SECRET);
    world.owner.submit(task, description);
    world.settle();
    (world, task)
}

/// What the Owner knows of the bytes of an output is of the attempt that counts, and nothing of another one is put back.
#[test]
fn bytes_that_another_attempt_made_are_not_put_back_where_all_is_made_again() {
    let (mut world, task) = dice(
        &[("home", 0), ("a", 1), ("b", 1)],
        "t",
        TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() },
    );
    world.owner.is_at_home(&node("home"), INCARNATION);
    let made = [output(4, 1), output(100, 1)];
    world.complete_with(task, &made, &[]);
    world.owner.values(task, Attempt::nth(1), &[(0, Bytes::from_static(b"1111"))]);
    world.unreadable(task.output(1));
    world.owner.track(task.output(1), 1);
    world.settle();
    world.complete_with(task, &made, &[]);
    assert_eq!(world.restored, [], "all of it is of the second attempt");
    let second = vec![Attempt::nth(2).makes(); 2];
    assert_eq!((world.log.last().map(|done| &done.made_by), world.stored.len()), (Some(&second), 2));
    assert!(world.stored.values().all(|maker| *maker == Attempt::nth(2).makes()));
}

/// Of a stream that may give another result, what was made first is not mixed with what is made again.
#[test]
fn a_stream_that_may_give_another_result_is_of_one_attempt_though_a_node_comes_back() {
    let options = TaskOptions { returns: Returns::Stream, ..at("a") };
    let (mut world, task) = dice(&[("a", 1), ("b", 1)], "stream", options);
    let seal = |world: &mut World, attempt, name: &str, index| {
        world.keep(&node(name), task.output(index), attempt);
        world.owner.yielded((&node(name), INCARNATION), task, Attempt::nth(attempt), index, output(8, 10));
        world.settle();
    };
    world.owner.track_stream(task, 1);
    [0, 1].into_iter().for_each(|index| seal(&mut world, 1, "a", index));
    world.complete_with(task, &[output(8, 10); 2], &[]);
    world.crash(&node("a"), true);
    [0, 1].into_iter().for_each(|index| world.owner.track(task.output(index), u64::from(index) + 2));
    world.settle();
    seal(&mut world, 2, "b", 0);
    world.restart(&node("a"));
    assert!(world.runs(task), "what is back is of another attempt than what counts");
    seal(&mut world, 2, "b", 1);
    world.complete_with(task, &[output(8, 10); 2], &[]);
    assert!(world.stored.values().all(|maker| *maker == Attempt::nth(2).makes()), "{:?}", world.stored);
    assert_eq!((world.stored.len(), &world.failed), (2, &None));
}

/// Nodes keep what they know of a set when its last reference is gone.
#[test]
fn a_set_that_is_made_again_has_a_later_version() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let map = world.submit_with("map", &[], at("a"));
    let set = SetId::of(&[map.output(0)]);
    world.owner.make_set(set, &[map.output(0)], None);
    world.complete(map);
    let (before, _) = world.owner.set_members(set);
    world.owner.release_set(set);
    world.settle();
    assert_eq!(world.owner.set_members(set), (0, Vec::new()), "it is forgotten");
    world.owner.make_set(set, &[map.output(0)], None);
    assert!(world.owner.set_members(set).0 > before);
}

/// It is over, and has not heard of it: what it does not know of may count for the next one.
#[test]
fn an_owner_frees_no_copies_of_a_later_run() {
    let mut world = World::new(&[("a", 1)]);
    let later = TaskId::from_u128(77).output(0).copy(JOB, CopyNumber::new(1, 1).unwrap());
    world.stored.insert((node("a"), later), CopyNumber::FIRST);
    world.inventory(&node("a"));
    assert_eq!(world.freed, []);
}
