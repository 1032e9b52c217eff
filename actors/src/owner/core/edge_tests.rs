//! Edges, with tasks that make members, tasks that read them, and programs that have seen enough.

use proptest::prelude::*;

use super::world_tests::{World, node, output, whole};
use crate::ids::{EdgeId, RowHash, SetId, TaskId};
use crate::task::{Arg, Consumed, EdgeShape, JobError, Left, Output, Parts, Returns, Source, TaskOptions};

const EDGE: EdgeId = EdgeId::from_u128(7);

fn column(set: SetId, part: u32) -> Arg {
    Arg { source: Source::Set(set), parts: Parts::one(part) }
}

/// So many rows, each of its own hash.
fn read(rows: u64) -> [Consumed; 1] {
    [Consumed { arg: 0, read: output(rows * 10, rows), ..Consumed::default() }]
}

/// So many maps, whose outputs join an open edge.
fn maps(world: &mut World, shape: EdgeShape, count: usize) -> Vec<TaskId> {
    world.owner.open_edge(EDGE, shape);
    let maps: Vec<_> = (0..count).map(|map| world.submit(&format!("map {map}"), &[])).collect();
    maps.iter().for_each(|map| world.owner.join_edge(EDGE, map.output(0)));
    maps
}

/// The first `count` of what these make, as a set of the edge.
fn first(world: &mut World, maps: &[TaskId], count: usize) -> SetId {
    let members: Vec<_> = maps[..count].iter().map(|map| map.output(0)).collect();
    let set = SetId::of_members(EDGE, &members);
    world.owner.make_set(set, &members, Some(EDGE));
    set
}

fn stop(world: &mut World) {
    world.owner.stop_edges(Some(EDGE));
    world.settle();
}

fn conservation(error: Option<&JobError>) -> (&str, &str) {
    match error {
        Some(JobError::Conservation { edge, detail }) => (edge, detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_edge_that_is_stopped_cancels_who_would_read_it_and_who_made_members_for_nobody_else() {
    let mut world = World::new(&[("n", 9)]);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 2), 3);
    let set = first(&mut world, &maps, 3);
    let reduces = [0, 1].map(|part| world.submit(&format!("reduce {part}"), &[column(set, part)]));
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    // The program holds what one map makes.
    maps[..2].iter().for_each(|map| world.release(*map));
    world.owner.release_set(set);
    stop(&mut world);
    assert!(!world.runs(maps[1]) && world.runs(maps[2]), "the one that nobody refers to is cancelled");
    assert!(reduces.iter().all(|reduce| !world.runs(*reduce)));
    assert_eq!(world.freed, [(node("n"), maps[0].output(0))], "nobody reads it any more");
    world.owner.release_edge(EDGE);
    reduces.iter().for_each(|reduce| world.release(*reduce));
    world.complete_with(maps[2], &[output(100, 10)], &[]);
    assert_eq!((world.owner.close(), &world.failed), (Ok(()), &None));
    world.release(maps[2]);
    assert_eq!(world.owner.sizes(), (0, 0, 0));
    assert_eq!(world.owner.edges.len(), 0);
}

#[test]
fn a_member_that_is_released_after_its_edge_was_stopped_is_not_made() {
    let mut world = World::new(&[("n", 1)]);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 1), 1);
    stop(&mut world);
    assert!(world.runs(maps[0]), "the program still refers to it");
    world.release(maps[0]);
    assert!(!world.runs(maps[0]));
    world.owner.release_edge(EDGE);
    assert_eq!((world.owner.close(), world.owner.edges.len()), (Ok(()), 0));
}

#[test]
fn what_joins_an_edge_that_was_stopped_is_not_made_when_nobody_refers_to_it() {
    let mut world = World::new(&[("n", 2)]);
    world.owner.open_edge(EDGE, EdgeShape::new("map -> reduce", 1));
    stop(&mut world);
    let [joined, other] = ["joined", "other"].map(|name| world.submit(name, &[]));
    world.owner.join_edge(EDGE, joined.output(0));
    assert!(world.runs(joined) && world.runs(other));
    [joined, other].iter().for_each(|task| world.release(*task));
    assert!(!world.runs(joined) && world.runs(other), "what is of no edge runs to its end");
}

#[test]
fn a_member_that_nobody_refers_to_is_not_made_any_more_when_its_edge_is_stopped() {
    let mut world = World::new(&[("n", 1)]);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 1), 1);
    world.release(maps[0]);
    assert!(world.runs(maps[0]));
    stop(&mut world);
    assert!(!world.runs(maps[0]));
}

#[test]
fn a_task_of_which_one_output_is_wanted_goes_on_when_the_edge_of_another_one_is_stopped() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit_with("two", &[], TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() });
    world.owner.open_edge(EDGE, EdgeShape::new("two -> reduce", 1));
    world.owner.join_edge(EDGE, task.output(0));
    world.owner.release_object(task.output(0));
    stop(&mut world);
    assert!(world.runs(task));
    world.owner.release_object(task.output(1));
    world.settle();
    assert!(!world.runs(task));
}

#[test]
fn all_edges_are_stopped_together_and_one_alone() {
    for one in [false, true] {
        let mut world = World::new(&[("n", 4)]);
        let other = EdgeId::from_u128(8);
        let maps = maps(&mut world, EdgeShape::new("map -> reduce", 1), 1);
        world.owner.open_edge(other, EdgeShape::new("map -> other", 1));
        world.owner.join_edge(other, maps[0].output(0));
        let members = [maps[0].output(0)];
        let sets = [EDGE, other].map(|edge| (edge, SetId::of_members(edge, &members)));
        sets.iter().for_each(|(edge, set)| world.owner.make_set(*set, &members, Some(*edge)));
        let readers = sets.map(|(_, set)| world.submit("reader", &[column(set, 0)]));
        world.complete_with(maps[0], &[output(100, 10)], &[]);
        world.owner.stop_edges(one.then_some(EDGE));
        world.settle();
        assert!(!world.runs(readers[0]));
        assert_eq!(world.runs(readers[1]), one, "the other edge goes on");
    }
}

#[test]
fn parts_are_not_freed_while_another_edge_may_read_them() {
    let mut world = World::new(&[("n", 4)]);
    let other = EdgeId::from_u128(8);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 1), 1);
    world.owner.open_edge(other, EdgeShape::new("map -> other", 1));
    world.owner.join_edge(other, maps[0].output(0));
    let set = first(&mut world, &maps, 1);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    let reduce = world.submit("reduce", &[column(set, 0)]);
    world.complete_with(reduce, &[output(1, 1)], &read(10));
    world.owner.unread(EDGE, 0..1);
    world.settle();
    assert_eq!(world.freed_parts, []);
}

#[test]
fn parts_that_are_declared_unread_stay_where_they_are_kept_and_where_who_has_read_them_runs_again() {
    for keep in [true, false] {
        let mut world = World::new(&[("a", 4), ("b", 4)]);
        let maps = maps(&mut world, EdgeShape { keep, ..EdgeShape::new("map -> reduce", 2) }, 1);
        let set = first(&mut world, &maps, 1);
        world.complete_with(maps[0], &[output(100, 10)], &[]);
        let reduce = world.submit("reduce", &[column(set, 0)]);
        let at = world.attempt_of(reduce).1;
        world.complete_with(reduce, &[output(100, 1)], &read(5));
        if !keep {
            let pending = world.submit("pending", &[]);
            world.submit("reader", &[whole(reduce), whole(pending)]);
            world.crash(&at, false);
            if world.runs(maps[0]) {
                world.complete_with(maps[0], &[output(100, 10)], &[]);
            }
            assert!(world.runs(reduce), "it runs again");
        }
        world.freed_parts.clear();
        world.owner.unread(EDGE, 0..2);
        world.settle();
        assert_eq!(world.freed_parts, [], "kept: {keep}");
    }
}

#[test]
fn what_was_read_is_checked_argument_by_argument_in_whatever_order_it_is_said() {
    for swapped in [false, true] {
        let mut world = World::new(&[("n", 4)]);
        let made = [1, 2].map(|rows| {
            let map = world.submit(&format!("map {rows}"), &[]);
            world.complete_with(map, &[output(10 * rows, rows)], &[]);
            map
        });
        let reader = world.submit("reader", &[whole(made[0]), whole(made[1])]);
        let mut consumed = [0, 1].map(|arg| Consumed {
            arg,
            read: output(10 * (u64::from(arg) + 1), u64::from(arg) + 1),
            ..Consumed::default()
        });
        if swapped {
            consumed.reverse();
        }
        world.complete_with(reader, &[output(1, 1)], &consumed);
        assert_eq!(world.failed, None);
        // The second one is right.
        let wrong = world.submit("wrong", &[whole(made[1]), whole(made[1])]);
        world.complete_with(wrong, &[output(1, 1)], &consumed);
        assert!(conservation(world.failed.as_ref()).1.contains("was given"));
    }
}

#[test]
fn a_stream_that_only_a_stopped_edge_needed_ends() {
    let mut world = World::new(&[("n", 1)]);
    let stream = world.submit_with("stream", &[], TaskOptions { returns: Returns::Stream, ..TaskOptions::default() });
    world.owner.track_stream(stream, 1);
    let (attempt, at) = world.attempt_of(stream);
    world.owner.yielded((&at, world.incarnation(&at)), stream, attempt, 0, output(100, 10));
    world.owner.open_edge(EDGE, EdgeShape::new("stream -> reduce", 1));
    world.owner.join_edge(EDGE, stream.output(0));
    stop(&mut world);
    world.release(stream);
    assert!(world.runs(stream), "the program reads on");
    world.owner.release_stream(stream);
    world.settle();
    assert!(!world.runs(stream));
}

#[test]
fn an_edge_that_is_not_stopped_and_not_read_fails_the_job() {
    let mut world = World::new(&[("n", 2)]);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 2), 1);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    world.release(maps[0]);
    world.owner.release_edge(EDGE);
    let error = world.owner.close().unwrap_err();
    assert_eq!(conservation(Some(&error)), ("map -> reduce", "0 part reads, expected 2"));
    // It is not too late.
    world.owner.stop_edges(None);
    assert_eq!((world.owner.close(), world.owner.edges.len()), (Ok(()), 0));
}

#[test]
fn an_edge_that_is_stopped_before_the_first_member_balances() {
    let mut world = World::new(&[("n", 1)]);
    world.owner.open_edge(EDGE, EdgeShape::new("map -> reduce", 3));
    stop(&mut world);
    world.owner.release_edge(EDGE);
    assert_eq!((world.owner.close(), world.owner.edges.len()), (Ok(()), 0));
}

#[test]
fn a_state_is_there_for_both_of_its_declared_readers_and_made_once() {
    let mut world = World::new(&[("n", 4)]);
    let shape = EdgeShape { readers: 2, ..EdgeShape::new("fold -> fold", 1) };
    let states = maps(&mut world, shape, 1);
    let set = first(&mut world, &states, 1);
    world.complete_with(states[0], &[output(100, 10)], &[]);
    world.release(states[0]);
    let estimate = world.submit("estimate", &[column(set, 0)]);
    world.complete_with(estimate, &[output(1, 1)], &read(10));
    assert_eq!((world.freed.len(), world.freed_parts.len()), (0, 0), "the next fold reads it, too");
    let fold = world.submit("fold", &[column(set, 0)]);
    assert!(world.runs(fold) && !world.runs(states[0]));
    world.owner.release_set(set);
    world.owner.release_edge(EDGE);
    world.complete_with(fold, &[output(1, 1)], &read(10));
    assert_eq!(world.freed, [(node("n"), states[0].output(0))]);
    assert_eq!(world.owner.close(), Ok(()));
    [estimate, fold].iter().for_each(|reader| world.release(*reader));
    assert_eq!(world.owner.edges.len(), 0);
}

#[test]
fn the_first_members_of_an_open_edge_are_read_whatever_joins_later() {
    let mut world = World::new(&[("n", 9)]);
    let shape = EdgeShape { readers: 2, ..EdgeShape::new("map -> reduce", 1) };
    let mut all = maps(&mut world, shape, 2);
    let early = first(&mut world, &all, 2);
    let estimate = world.submit("estimate", &[column(early, 0)]);
    all.push(world.submit("map 2", &[]));
    world.owner.join_edge(EDGE, all[2].output(0));
    let set = first(&mut world, &all, 3);
    let reduce = world.submit("reduce", &[column(set, 0)]);
    all[..2].iter().for_each(|map| world.complete_with(*map, &[output(100, 10)], &[]));
    assert!(world.runs(estimate) && !world.runs(reduce));
    world.complete_with(estimate, &[output(1, 1)], &read(20));
    world.complete_with(all[2], &[output(100, 10)], &[]);
    world.complete_with(reduce, &[output(1, 1)], &read(30));
    let error = world.owner.close().unwrap_err();
    assert_eq!(conservation(Some(&error)).1, "5 part reads, expected 6", "nobody else has read the last one twice");
    world.owner.unread(EDGE, 0..1);
    assert_eq!(world.owner.close(), Ok(()));
}

#[test]
fn parts_that_are_declared_unread_are_freed_and_not_awaited() {
    let mut world = World::new(&[("n", 9)]);
    let maps = maps(&mut world, EdgeShape::new("map -> reduce", 3), 2);
    let set = first(&mut world, &maps, 2);
    let reduces = [0, 1].map(|part| world.submit(&format!("reduce {part}"), &[column(set, part)]));
    maps.iter().for_each(|map| world.complete_with(*map, &[output(30, 3)], &[]));
    world.complete_with(reduces[0], &[output(1, 1)], &read(2));
    world.freed_parts.clear();
    world.owner.unread(EDGE, 1..3);
    world.settle();
    assert_eq!(world.freed_parts, [(node("n"), set, Parts::Range(1, 3))]);
    assert!(!world.runs(reduces[1]), "it would have read one of these");
    assert_eq!(world.owner.close(), Ok(()));
}

#[test]
fn a_reader_that_runs_again_is_not_cancelled_by_a_stop() {
    let mut world = World::new(&[("a", 4), ("b", 4)]);
    let maps = maps(&mut world, EdgeShape { keep: true, ..EdgeShape::new("map -> reduce", 1) }, 1);
    let set = first(&mut world, &maps, 1);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    let reduce = world.submit("reduce", &[column(set, 0)]);
    let at = world.attempt_of(reduce).1;
    world.complete_with(reduce, &[output(100, 1)], &read(10));
    let pending = world.submit("pending", &[]);
    let reader = world.submit("reader", &[whole(reduce), whole(pending)]);
    world.crash(&at, false);
    stop(&mut world);
    let made_again = |world: &World| world.runs(reduce) || world.runs(maps[0]);
    assert!(made_again(&world), "what the reader needs is made again");
    if world.runs(maps[0]) {
        world.complete_with(maps[0], &[output(100, 10)], &[]);
    }
    world.complete_with(reduce, &[output(100, 1)], &read(10));
    world.complete(pending);
    assert!(world.runs(reader));
}

#[test]
fn a_function_that_reads_no_further_than_it_says_leaves_the_rest_unread() {
    let mut world = World::new(&[("n", 4)]);
    let maps = maps(&mut world, EdgeShape::new("map -> limit", 1), 1);
    let set = first(&mut world, &maps, 1);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    let limit = world.submit("limit", &[column(set, 0)]);
    let left = Left::Unread(Output { bytes: 60, rows: 6, row_hash: RowHash(6) });
    let consumed =
        Consumed { arg: 0, read: Output { bytes: 40, rows: 4, row_hash: RowHash(4) }, left, ..Consumed::default() };
    world.complete_with(limit, &[output(1, 1)], &[consumed]);
    assert_eq!((world.owner.close(), &world.failed), (Ok(()), &None));
}

#[test]
fn a_function_that_reads_less_than_it_was_given_and_does_not_say_so_fails_the_job_by_name() {
    let mut world = World::new(&[("n", 4)]);
    let made = world.submit("map", &[]);
    world.complete_with(made, &[output(100, 10)], &[]);
    let reader = world.submit("reader", &[Arg { parts: Parts::one(0), ..whole(made) }]);
    let left = Left::Missing(Output { bytes: 10, rows: 1, row_hash: RowHash(3) });
    world.complete_with(reader, &[output(1, 1)], &[Consumed { arg: 0, left, ..Consumed::default() }]);
    let (edge, detail) = conservation(world.failed.as_ref());
    assert_eq!(edge, "f -> f");
    assert!(
        detail.contains(&format!("(task {reader}) has read 1 rows in 10 bytes less than it was given")),
        "{detail}"
    );
}

#[test]
fn what_is_read_of_single_objects_and_of_sets_is_what_was_sealed() {
    for (given, fails) in [(output(100, 10), false), (output(100, 9), true), (output(90, 10), true)] {
        for of_set in [false, true] {
            let mut world = World::new(&[("n", 4)]);
            let made = world.submit("map", &[]);
            world.complete_with(made, &[output(100, 10)], &[]);
            let set = SetId::of(&[made.output(0)]);
            world.owner.make_set(set, &[made.output(0)], None);
            let arg = if of_set { Arg { source: Source::Set(set), parts: Parts::All } } else { whole(made) };
            let reader = world.submit("reader", &[arg]);
            let consumed = Consumed { arg: 0, read: given, unsaid: true, ..Consumed::default() };
            world.complete_with(reader, &[output(1, 1)], &[consumed]);
            assert_eq!(world.failed.is_some(), fails, "{given:?}");
            if fails {
                assert_eq!(conservation(world.failed.as_ref()).0, "f -> f");
            }
        }
    }
}

#[test]
fn an_object_may_be_a_member_twice_and_of_several_edges() {
    let mut world = World::new(&[("n", 4)]);
    let other = EdgeId::from_u128(8);
    let maps = maps(&mut world, EdgeShape { keep: true, ..EdgeShape::new("map -> reduce", 1) }, 1);
    world.owner.join_edge(EDGE, maps[0].output(0));
    world.owner.open_edge(other, EdgeShape::new("map -> other", 1));
    world.owner.join_edge(other, maps[0].output(0));
    let twice = [maps[0].output(0); 2];
    let set = SetId::of_members(EDGE, &twice);
    world.owner.make_set(set, &twice, Some(EDGE));
    let once = SetId::of_members(other, &twice[..1]);
    world.owner.make_set(once, &twice[..1], Some(other));
    let readers = [world.submit("reduce", &[column(set, 0)]), world.submit("other", &[column(once, 0)])];
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    world.complete_with(readers[0], &[output(1, 1)], &read(20));
    world.complete_with(readers[1], &[output(1, 1)], &read(10));
    assert_eq!(world.owner.close(), Ok(()));
    [set, once].iter().for_each(|set| world.owner.release_set(*set));
    [EDGE, other].iter().for_each(|edge| world.owner.release_edge(*edge));
    readers.iter().chain(&maps).for_each(|task| world.release(*task));
    assert_eq!((world.owner.sizes(), world.owner.edges.len()), ((0, 0, 0), 0));
}

#[test]
fn a_member_that_joins_when_parts_of_it_were_freed_is_made_again_for_who_reads_it_there() {
    let mut world = World::new(&[("n", 4)]);
    let maps = maps(&mut world, EdgeShape::new("map -> estimate", 2), 1);
    let set = first(&mut world, &maps, 1);
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    let estimate = world.submit("estimate", &[column(set, 0)]);
    world.complete_with(estimate, &[output(1, 1)], &read(5));
    assert_eq!(world.freed_parts, [(node("n"), set, Parts::one(0))]);
    let other = EdgeId::from_u128(8);
    world.owner.open_edge(other, EdgeShape::new("map -> reduce", 2));
    world.owner.join_edge(other, maps[0].output(0));
    let members = [maps[0].output(0)];
    let all = SetId::of_members(other, &members);
    world.owner.make_set(all, &members, Some(other));
    let reduces = [0, 1].map(|part| world.submit(&format!("reduce {part}"), &[column(all, part)]));
    assert!(world.runs(maps[0]) && !reduces.iter().any(|reduce| world.runs(*reduce)), "it is not whole");
    world.complete_with(maps[0], &[output(100, 10)], &[]);
    assert!(reduces.iter().all(|reduce| world.runs(*reduce)));
    // Those that read it here free nothing of it for each other, nor do they make it again.
    reduces.iter().for_each(|reduce| world.complete_with(*reduce, &[output(1, 1)], &read(5)));
    world.owner.stop_edges(Some(EDGE));
    assert_eq!((world.owner.close(), world.runs(maps[0])), (Ok(()), false));
}

#[test]
fn a_set_of_an_edge_has_no_strangers() {
    let mut world = World::new(&[("n", 4)]);
    maps(&mut world, EdgeShape::new("map -> reduce", 1), 1);
    let stranger = world.submit("stranger", &[]).output(0);
    world.owner.open_edge(EdgeId::from_u128(8), EdgeShape::new("stranger -> reduce", 1));
    world.owner.join_edge(EdgeId::from_u128(8), stranger);
    world.owner.make_set(SetId::of_members(EDGE, &[stranger]), &[stranger], Some(EDGE));
    world.settle();
    let expected = format!("object {stranger} has not joined the edge map -> reduce");
    assert_eq!(world.failed, Some(JobError::program(expected)));
}

/// What a program and its nodes do to an edge.
#[derive(Clone, Debug)]
enum Step {
    Completes(proptest::sample::Index),
    Crash(proptest::sample::Index, bool),
    Restart(proptest::sample::Index),
    Unread(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<proptest::sample::Index>;
    let step = prop_oneof![
        12 => index().prop_map(Step::Completes),
        1 => (index(), any::<bool>()).prop_map(|(at, keeps)| Step::Crash(at, keeps)),
        1 => index().prop_map(Step::Restart),
        1 => (0..4u32).prop_map(Step::Unread),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// Maps of three parts of a row each, and a reduce for each part; the program stops at some moment, or when everything is done.
    #[test]
    fn a_stop_at_any_moment_balances_and_leaves_nothing(
        steps in steps(),
        readers in 1..3u32,
        keep in any::<bool>(),
        holds in any::<bool>(),
        count in 1..4usize,
    ) {
        const PARTS: u32 = 3;
        let mut world = World::new(&[("a", 2), ("b", 2)]);
        world.owner.is_at_home(&node("a"), world.incarnation(&node("a")));
        let patient = || TaskOptions { attempts: 1000, ..TaskOptions::default() };
        world.owner.open_edge(EDGE, EdgeShape { readers, keep, ..EdgeShape::new("map -> reduce", PARTS) });
        let maps: Vec<_> = (0..count).map(|map| world.submit_with(&format!("map {map}"), &[], patient())).collect();
        maps.iter().for_each(|map| world.owner.join_edge(EDGE, map.output(0)));
        let set = first(&mut world, &maps, count);
        let reduces: Vec<_> = (0..PARTS * readers)
            .map(|number| world.submit_with(&format!("reduce {number}"), &[column(set, number % PARTS)], patient()))
            .collect();
        reduces.iter().zip(1..).for_each(|(reduce, tracker)| world.owner.track(reduce.output(0), tracker));
        if !holds {
            maps.iter().for_each(|map| world.release(*map));
            world.owner.release_set(set);
        }
        let complete = |world: &mut World, at: &proptest::sample::Index| {
            let Some((task, attempt)) = world.any_running(at) else { return };
            let rows = count as u64;
            match maps.contains(&task) {
                true => world.complete_attempt(task, attempt, &[output(30, 3)], &[]),
                false => world.complete_attempt(task, attempt, &[output(8, 1)], &[Consumed {
                    arg: 0,
                    read: output(10 * rows, rows),
                    ..Consumed::default()
                }]),
            }
        };
        for step in &steps {
            match step {
                Step::Completes(at) => complete(&mut world, at),
                Step::Crash(at, keeps) => world.crash_one(at, *keeps),
                Step::Restart(at) => world.restart_one(at),
                Step::Unread(part) => world.owner.unread(EDGE, *part..*part + 1),
            }
            world.settle();
        }
        stop(&mut world);
        world.owner.release_edge(EDGE);
        if holds {
            maps.iter().for_each(|map| world.release(*map));
            world.owner.release_set(set);
        }
        reduces.iter().for_each(|reduce| world.release(*reduce));
        world.restart_all();
        // Nothing is to be made any more, but what somebody else refers to.
        prop_assert!(world.running.is_empty(), "{:?}", world.running.keys());
        prop_assert_eq!(world.owner.close(), Ok(()));
        prop_assert_eq!(&world.failed, &None);
        prop_assert_eq!((world.owner.sizes(), world.owner.edges.len()), ((0, 0, 0), 0));
        prop_assert!(world.stored.is_empty(), "{:?}", world.stored.keys());
    }
}
