//! What was ended since nobody needed it, and is needed again since something that had read of it was lost.

use super::world_tests::{INCARNATION, JOB, World, node, output};
use crate::ids::{CopyNumber, EdgeId, JobSecret, ObjectId, SetId, TaskId};
use crate::task::{Arg, Consumed, EdgeShape, JobError, Loss, Parts, Place, Returns, Source, TaskOptions};

const EDGE: EdgeId = EdgeId::from_u128(7);

fn at(name: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: node(name), soft: true }, ..TaskOptions::default() }
}

fn output_of(task: TaskId, index: u32) -> Arg {
    Arg { source: Source::Object(task.output(index)), parts: Parts::All }
}

/// The attempt of a stream that is under way says that it has made an output.
fn announce(world: &mut World, stream: TaskId, index: u32) {
    let (attempt, at) = world.attempt_of(stream);
    let copy = stream.output(index).copy(JOB, attempt.makes());
    world.stored.insert((at.clone(), copy), attempt.makes());
    world.owner.yielded((&at, world.incarnation(&at)), stream, attempt, index, output(100, 10));
    world.settle();
}

/// What a task read of its only argument.
fn read() -> [Consumed; 1] {
    [Consumed { arg: 0, read: output(100, 10), ..Consumed::default() }]
}

/// A stream without an end, on node a, whose first two outputs the program holds and has let join an edge, and a task on node b that has
/// read the first one.
fn stream_and_reader(world: &mut World, args: &[Arg]) -> (TaskId, TaskId) {
    let stream = world.submit_with("stream", args, TaskOptions { returns: Returns::Stream, ..at("a") });
    world.owner.track_stream(stream, 1);
    world.owner.open_edge(EDGE, EdgeShape::new("stream -> reduce", 1));
    for index in 0..2 {
        announce(world, stream, index);
        world.owner.join_edge(EDGE, stream.output(index));
    }
    let reader = world.submit_with("reader", &[output_of(stream, 0)], at("b"));
    assert_eq!(world.attempt_of(reader).1, node("b"));
    world.complete_with(reader, &[output(10, 1)], &read());
    (stream, reader)
}

/// An edge that a map fills, and the argument of who reads its only part.
fn read_edge(world: &mut World, map_at: &str) -> (EdgeId, TaskId, SetId, Arg) {
    let input = EdgeId::from_u128(8);
    world.owner.open_edge(input, EdgeShape::new("map -> stream", 1));
    let map = world.submit_with("map", &[], at(map_at));
    world.owner.join_edge(input, map.output(0));
    let set = SetId::of_members(input, &[map.output(0)]);
    world.owner.make_set(set, &[map.output(0)], Some(input));
    world.complete_with(map, &[output(100, 10)], &[]);
    (input, map, set, Arg { source: Source::Set(set), parts: Parts::one(0) })
}

fn let_go(world: &mut World, stream: TaskId) {
    (0..2).for_each(|index| world.owner.release_object(stream.output(index)));
    world.owner.release_stream(stream);
    world.settle();
}

#[test]
fn what_a_stream_made_before_it_was_ended_by_a_stop_is_made_again_for_who_had_read_it() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, reader) = stream_and_reader(&mut world, &[]);
    world.owner.stop_edges(Some(EDGE));
    let_go(&mut world, stream);
    assert!(!world.runs(stream));
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 2);
    world.settle();
    assert!(world.runs(stream) && world.failed.is_none(), "{:?}", world.failed);
    announce(&mut world, stream, 0);
    assert!(!world.runs(stream), "it has no end, and nobody needs the rest");
    assert_eq!(world.owner.counts().replayed, 2, "the reader, and what it reads");
    world.owner.track_stream(stream, 3);
    world.settle();
    assert_eq!(world.streamed[&3].last(), Some(&Err(JobError::Cancelled)), "it is as it was");
    (0..2).for_each(|index| world.owner.release_object(stream.output(index)));
    world.complete_with(reader, &[output(10, 1)], &read());
    assert_eq!(world.resolved[&2], Ok(()));
    world.owner.release_edge(EDGE);
    world.release(reader);
    assert_eq!((world.owner.close(), world.failed.as_ref(), world.owner.sizes()), (Ok(()), None, (0, 0, 0)));
}

#[test]
fn a_stop_ends_a_stream_when_the_last_output_that_is_there_is_released() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, reader) = stream_and_reader(&mut world, &[]);
    world.owner.stop_edges(Some(EDGE));
    world.owner.release_stream(stream);
    world.owner.release_object(stream.output(0));
    world.settle();
    assert!(world.runs(stream), "the program holds an output");
    world.owner.release_object(stream.output(1));
    world.settle();
    assert!(!world.runs(stream));
    world.owner.release_edge(EDGE);
    world.release(reader);
    assert_eq!((world.owner.close(), world.owner.sizes()), (Ok(()), (0, 0, 0)));
}

#[test]
fn a_reader_of_a_stopped_edge_whose_outputs_were_read_makes_them_again_and_what_it_reads_is_whole() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (input, map, set, column) = read_edge(&mut world, "a");
    let (stream, reader) = stream_and_reader(&mut world, &[column]);
    world.release(map);
    world.owner.release_set(set);
    world.owner.unread(input, 0..1);
    let_go(&mut world, stream);
    assert!(!world.runs(stream), "what it reads is not read any more");
    // The edge knows that nobody reads the part, and it was freed.
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 2);
    world.settle();
    assert!(world.runs(map) && !world.runs(stream), "the part of what it makes was freed");
    world.complete_with(map, &[output(100, 10)], &[]);
    assert!(world.runs(stream));
    world.owner.stop_edges(None);
    world.settle();
    assert!(world.runs(stream), "somebody waits for what it had made");
    announce(&mut world, stream, 0);
    world.complete_with(reader, &[output(10, 1)], &read());
    assert_eq!(world.resolved[&2], Ok(()));
    assert!(!world.runs(stream));
    [EDGE, input].iter().for_each(|edge| world.owner.release_edge(*edge));
    world.release(reader);
    assert_eq!((world.owner.close(), world.failed.as_ref(), world.owner.sizes()), (Ok(()), None, (0, 0, 0)));
}

#[test]
fn who_waits_for_what_a_task_had_made_when_it_is_cancelled_gets_it_and_who_waits_for_the_rest_does_not() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    world.crash(&node("a"), false);
    world.owner.track(stream.output(0), 2);
    world.settle();
    let first = world.attempt_of(stream).0;
    world.owner.cancel(stream);
    world.settle();
    assert!(matches!(world.streamed[&1].last(), Some(Err(JobError::Cancelled))));
    assert!(world.attempt_of(stream).0 > first && !world.resolved.contains_key(&2));
    announce(&mut world, stream, 0);
    assert_eq!(world.resolved[&2], Ok(()));
    assert!(world.runs(stream), "the program holds the second one, which is gone");
    let_go(&mut world, stream);
    assert!(!world.runs(stream));
}

#[test]
fn a_set_is_read_whose_member_is_there_though_its_maker_was_cancelled_since() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    world.owner.cancel(stream);
    let other = world.submit("other", &[]);
    let members = [stream.output(0), other.output(0)];
    let set = SetId::of(&members);
    world.owner.make_set(set, &members, None);
    let joined = world.submit("joined", &[Arg { source: Source::Set(set), parts: Parts::All }]);
    assert!(!world.runs(joined));
    world.complete_with(other, &[output(100, 10)], &[]);
    assert!(world.runs(joined));
}

#[test]
fn a_task_that_is_submitted_again_after_it_was_forgotten_makes_what_is_asked_of_it_though_the_rest_is_released() {
    let mut world = World::new(&[("a", 2)]);
    let options = TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() };
    let two = world.submit_with("two", &[], options.clone());
    world.complete_with(two, &[output(8, 1); 2], &[]);
    (0..2).for_each(|index| world.owner.release_object(two.output(index)));
    world.settle();
    assert_eq!(world.owner.sizes(), (0, 0, 0));
    world.submit_with("two", &[], options);
    world.owner.track(two.output(1), 1);
    world.settle();
    world.release(two);
    assert!(world.runs(two), "the other one is awaited");
    world.complete_with(two, &[output(8, 1); 2], &[]);
    assert_eq!(world.resolved[&1], Ok(()));
}

#[test]
fn a_stream_that_is_submitted_again_while_it_makes_what_it_had_made_goes_on_to_its_end() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    world.owner.cancel(stream);
    world.crash(&node("a"), false);
    world.owner.track(stream.output(1), 2);
    world.settle();
    assert!(world.runs(stream));
    world.submit_with("stream", &[], TaskOptions { returns: Returns::Stream, ..at("a") });
    world.owner.track_stream(stream, 3);
    (0..2).for_each(|index| announce(&mut world, stream, index));
    assert!(world.runs(stream) && world.resolved[&2] == Ok(()), "who submitted it again reads on");
    announce(&mut world, stream, 2);
    world.complete_with(stream, &[output(100, 10); 3], &[]);
    assert_eq!(world.streamed[&3].last(), Some(&Ok(None)));
}

#[test]
fn what_is_lost_again_after_a_stream_without_an_end_has_passed_it_is_made_by_another_attempt() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, reader) = stream_and_reader(&mut world, &[]);
    world.owner.stop_edges(Some(EDGE));
    world.owner.release_stream(stream);
    world.owner.cancel(stream);
    world.crash(&node("a"), false);
    world.restart(&node("a"));
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 2);
    world.owner.track(stream.output(1), 3);
    world.settle();
    let first = world.attempt_of(stream).0;
    announce(&mut world, stream, 0);
    let (attempt, at) = world.attempt_of(reader);
    world.stored.clear();
    world.lose_argument(reader, attempt, world.lost(stream.output(0), at, Loss::Gone));
    assert!(world.attempt_of(stream).0 > first, "the one that ran does not make it again");
    (0..2).for_each(|index| announce(&mut world, stream, index));
    assert!(!world.runs(stream), "all is there that is needed");
    world.complete_with(reader, &[output(10, 1)], &read());
    assert_eq!((&world.resolved[&2], &world.resolved[&3], &world.failed), (&Ok(()), &Ok(()), &None));
}

/// A stream that reads an edge was cancelled, and another task has read that in its place; then what the stream had made is lost and awaited,
/// by tracker 2, and it is under way again.
struct Replaced {
    input: EdgeId,
    map: TaskId,
    set: SetId,
    stream: TaskId,
    other: TaskId,
}

impl Replaced {
    fn new(world: &mut World) -> Self {
        let (input, map, set, column) = read_edge(world, "b");
        let (stream, _) = stream_and_reader(world, &[column]);
        world.owner.cancel(stream);
        let other = world.submit("other", &[column]);
        world.complete_with(other, &[output(10, 1)], &read());
        world.crash(&node("a"), false);
        world.owner.track(stream.output(1), 2);
        world.settle();
        let replaced = Self { input, map, set, stream, other };
        replaced.map_completes(world);
        replaced
    }

    /// What the stream reads is made again, where it has to be.
    fn map_completes(&self, world: &mut World) {
        if world.runs(self.map) {
            world.complete_with(self.map, &[output(100, 10)], &[]);
        }
    }

    /// Nothing is read any more, and what was is counted once.
    fn balances(self, world: &mut World) {
        world.release(self.map);
        world.owner.release_set(self.set);
        world.owner.release_edge(self.input);
        world.owner.stop_edges(Some(EDGE));
        let_go(world, self.stream);
        world.release(self.other);
        assert_eq!((world.owner.close(), &world.failed), (Ok(()), &None));
    }
}

#[test]
fn what_a_cancelled_stream_reads_when_it_ends_again_is_counted_nowhere() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let replaced = Replaced::new(&mut world);
    let stream = replaced.stream;
    (0..2).for_each(|index| announce(&mut world, stream, index));
    assert!(!world.runs(stream));
    replaced.balances(&mut world);
}

#[test]
fn a_stop_ends_a_stream_whose_last_output_that_is_released_has_not_joined() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    announce(&mut world, stream, 2);
    world.owner.stop_edges(Some(EDGE));
    let_go(&mut world, stream);
    assert!(world.runs(stream), "the program holds the one that has not joined");
    world.owner.release_object(stream.output(2));
    world.settle();
    assert!(!world.runs(stream));
}

#[test]
fn a_stream_that_is_cancelled_does_not_run_again_for_a_set_that_nobody_reads_until_somebody_does() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    let members = [stream.output(0)];
    let set = SetId::of(&members);
    world.owner.make_set(set, &members, None);
    world.crash(&node("a"), false);
    world.owner.cancel(stream);
    world.settle();
    assert!(!world.runs(stream));
    let late = world.submit("late", &[Arg { source: Source::Set(set), parts: Parts::All }]);
    assert!(world.runs(stream) && !world.runs(late));
    announce(&mut world, stream, 0);
    assert!(world.runs(late));
}

#[test]
fn what_the_program_put_is_there_for_who_read_it_and_runs_again() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (put, reader) = put_and_reader(&mut world);
    assert!(world.freed.is_empty(), "the task could run again");
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 1);
    world.settle();
    assert!(world.runs(reader));
    world.complete_with(reader, &[output(10, 1)], &[]);
    assert_eq!(world.resolved[&1], Ok(()));
    world.release(reader);
    assert!(world.freed.contains(&(node("a"), put)));
    assert_eq!((world.owner.close(), world.owner.sizes()), (Ok(()), (0, 0, 0)));
}

#[test]
fn who_makes_again_what_it_had_made_reads_whole_members_and_nothing_of_them_is_freed_meanwhile() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    let (input, map, _, column) = read_edge(&mut world, "c");
    let (stream, reader) = stream_and_reader(&mut world, &[column]);
    world.owner.unread(input, 0..1);
    let_go(&mut world, stream);
    world.settle();
    let freed = world.freed_parts.len();
    assert!(freed > 0 && !world.runs(stream));
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 2);
    world.settle();
    assert!(world.runs(map), "the member is there, without the part");
    world.owner.unread(input, 0..1);
    world.settle();
    assert_eq!(world.freed_parts.len(), freed, "the stream is going to read it");
    world.complete_with(map, &[output(100, 10)], &[]);
    announce(&mut world, stream, 0);
    world.complete_with(reader, &[output(10, 1)], &read());
    assert_eq!((&world.resolved[&2], &world.failed), (&Ok(()), &None));
}

#[test]
fn what_was_never_made_is_cancelled_for_who_asks_later() {
    let mut world = World::new(&[("a", 1)]);
    let task = world.submit("t", &[]);
    world.owner.cancel(task);
    world.owner.track(task.output(0), 1);
    world.settle();
    assert_eq!(world.resolved[&1], Err(JobError::Cancelled));
    assert!(!world.runs(task));
}

#[test]
fn what_a_task_has_read_that_was_cancelled_when_it_ran_again_is_counted_once() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (input, map, set, column) = read_edge(&mut world, "a");
    let reader = world.submit_with("reader", &[column], at("b"));
    world.complete_with(reader, &[output(10, 1)], &read());
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 1);
    world.settle();
    world.owner.cancel(reader);
    world.settle();
    if world.runs(map) {
        world.complete_with(map, &[output(100, 10)], &[]);
    }
    assert!(world.runs(reader), "it was made, and somebody waits for it");
    world.complete_with(reader, &[output(10, 1)], &read());
    assert_eq!(world.resolved[&1], Ok(()));
    world.release(map);
    world.release(reader);
    world.owner.release_set(set);
    world.owner.release_edge(input);
    assert_eq!((world.owner.close(), world.owner.edges.len()), (Ok(()), 0));
}

#[test]
fn a_set_that_was_asked_for_and_is_read_no_more_is_asked_for_again_after_its_makers_were_cancelled() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    let members = [stream.output(0)];
    let set = SetId::of(&members);
    world.owner.make_set(set, &members, None);
    world.crash(&node("a"), false);
    let reads = Arg { source: Source::Set(set), parts: Parts::All };
    let first = world.submit("first", &[reads]);
    world.owner.cancel(first);
    world.owner.cancel(stream);
    world.settle();
    assert!(!world.runs(stream));
    let late = world.submit("late", &[reads]);
    assert!(world.runs(stream) && !world.runs(late));
}

#[test]
fn a_future_that_was_dropped_keeps_no_cancelled_stream_under_way() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (stream, _) = stream_and_reader(&mut world, &[]);
    world.crash(&node("a"), false);
    world.owner.track(stream.output(0), 2);
    world.owner.cancel(stream);
    world.settle();
    assert!(world.runs(stream));
    let_go(&mut world, stream);
    assert!(!world.runs(stream), "nobody refers to what it had made any more");
}

#[test]
fn a_cancelled_stream_that_ends_while_something_it_had_made_is_gone_again_counts_nowhere_and_makes_it_for_who_asks() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let replaced = Replaced::new(&mut world);
    let stream = replaced.stream;
    announce(&mut world, stream, 0);
    world.unreadable(stream.output(0));
    announce(&mut world, stream, 1);
    assert!(world.runs(stream), "the first one is referenced, and gone again");
    world.complete_with(stream, &[output(100, 10); 2], &read());
    assert!(!world.runs(stream), "nobody waits for it");
    world.owner.track(stream.output(0), 3);
    world.settle();
    replaced.map_completes(&mut world);
    announce(&mut world, stream, 0);
    assert_eq!((&world.resolved[&2], &world.resolved[&3]), (&Ok(()), &Ok(())));
    replaced.balances(&mut world);
}

/// The program has put an object on node a, which a task on node b has read, and refers to it no more.
fn put_and_reader(world: &mut World) -> (ObjectId, TaskId) {
    let put = ObjectId::of_content(JobSecret::from_u128(1), 7);
    world.owner.put((put, CopyNumber::FIRST), output(8, 0), &node("a"), INCARNATION);
    world.keep(&node("a"), put, 1);
    let reader = world.submit_with("reader", &[Arg { source: Source::Object(put), parts: Parts::All }], at("b"));
    world.owner.release_object(put);
    world.complete_with(reader, &[output(10, 1)], &[]);
    (put, reader)
}

#[test]
fn what_the_program_put_is_an_error_for_who_would_read_it_again_when_it_is_lost_and_for_nobody_else() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    let (put, reader) = put_and_reader(&mut world);
    world.crash(&node("a"), false);
    assert_eq!(world.failed, None, "nobody needs it");
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 1);
    world.settle();
    let gone = JobError::PutLost { object: put };
    assert_eq!(world.resolved[&1], Err(gone.clone()));
    let members = [put];
    assert!(world.owner.object_of(put).is_some());
    world.owner.make_set(SetId::of(&members), &members, None);
    let set = Arg { source: Source::Set(SetId::of(&members)), parts: Parts::All };
    let late = world.submit("late", &[set]);
    world.owner.track(late.output(0), 2);
    world.settle();
    assert_eq!(world.resolved[&2], Err(gone));
}

#[test]
fn what_the_program_put_is_taken_back_with_its_node_for_who_could_read_it_again() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let (put, reader) = put_and_reader(&mut world);
    world.crash(&node("a"), true);
    world.restart(&node("a"));
    world.inventory(&node("a"));
    assert!(world.freed.is_empty() && world.holds(&node("a"), put));
    world.crash(&node("b"), false);
    world.owner.track(reader.output(0), 1);
    world.settle();
    assert!(world.runs(reader));
}

#[test]
fn each_new_copy_of_a_member_is_known_to_lack_what_was_read_since() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    world.owner.open_edge(EDGE, EdgeShape::new("map -> reduce", 2));
    let map = world.submit_with("map", &[], at("a"));
    world.owner.join_edge(EDGE, map.output(0));
    let set = SetId::of_members(EDGE, &[map.output(0)]);
    world.owner.make_set(set, &[map.output(0)], Some(EDGE));
    world.complete_with(map, &[output(100, 10)], &[]);
    let readers = [0, 1].map(|part| {
        let column = Arg { source: Source::Set(set), parts: Parts::one(part) };
        world.submit_with(&format!("reader {part}"), &[column], at("b"))
    });
    world.complete_with(
        readers[0],
        &[output(10, 1)],
        &[Consumed { arg: 0, read: output(50, 5), ..Consumed::default() }],
    );
    world.crash(&node("a"), false);
    world.fail(readers[1], crate::task::FailureKind::Error);
    if world.runs(map) {
        world.complete_with(map, &[output(100, 10)], &[]);
    }
    world.complete_with(
        readers[1],
        &[output(10, 1)],
        &[Consumed { arg: 0, read: output(50, 5), ..Consumed::default() }],
    );
    let spent = world.owner.object_of(map.output(0)).map(|object| world.owner.objects[object].copy());
    assert!(spent.is_some_and(super::copy::Copy::is_spent), "{spent:?}");
}
