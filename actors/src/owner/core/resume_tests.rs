//! Owners that die, and what the next one makes of the log, of what nodes hold, and of the same program.

use bytes::Bytes;
use proptest::prelude::*;

use super::state::Effect;
use super::world_tests::{INCARNATION, JOB, SECRET, World, node, offer, output, whole};
use crate::event::EventKind;
use crate::ids::{Attempt, CopyNumber, EdgeId, Incarnation, SetId, TaskId};
use crate::joblog::{Choice, NodeShape};
use crate::joblog::{Past, TaskDone};
use crate::task::EdgeShape;
use crate::task::{Arg, Consumed, JobError, Parts, Returns, Source, TaskOptions};

fn done(task: TaskId, at: &str, outputs: usize) -> TaskDone {
    let (outputs, made_by) = (vec![output(8, 1); outputs], vec![Attempt::nth(1).makes(); outputs]);
    TaskDone { task, node: node(at), outputs, made_by, consumed: Vec::new(), values: Vec::new() }
}

/// A world whose job was run before.
fn resumed(nodes: &[(&str, u64)], done: Vec<TaskDone>, choices: Vec<Choice>) -> World {
    let mut world = World::new(nodes);
    world.owner.is_at_home(&node("home"), INCARNATION);
    world.owner.resume(Past { runs: 1, choices, done, ..Past::default() });
    world
}

fn task(name: &str, args: &[Arg]) -> TaskId {
    World::description(name, args, TaskOptions::default()).id(SECRET)
}

#[test]
fn what_was_done_does_not_run_and_what_reads_it_does_where_it_is() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 2)], vec![done(map, "a", 1)], Vec::new());
    world.keep(&node("a"), map.output(0), 1);
    world.inventory(&node("a"));
    assert_eq!(world.submit("map", &[]), map);
    let reduce = world.submit("reduce", &[whole(map)]);
    assert!(!world.runs(map) && world.runs(reduce));
    assert_eq!(
        world.attempt_of(reduce).0,
        Attempt::of(CopyNumber::new(1, 1).unwrap()),
        "that of the run before has another number"
    );
    assert_eq!(world.lookup(map.output(0)), Some((output(8, 1), node("a"))));
    assert_eq!(world.owner.counts().finished, 1);
}

#[test]
fn what_nobody_has_is_made_again_when_somebody_reads_it_and_not_before() {
    let [map, unread] = ["map", "unread"].map(|name| task(name, &[]));
    let mut world = resumed(&[("a", 2)], vec![done(map, "b", 1), done(unread, "b", 1)], Vec::new());
    world.submit("map", &[]);
    world.submit("unread", &[]);
    let set = SetId::of(&[map.output(0), unread.output(0)]);
    world.owner.make_set(set, &[map.output(0), unread.output(0)], None);
    world.owner.track_made(map.output(0), 1);
    world.settle();
    assert!(world.running.is_empty(), "it is enough to know that it was made");
    assert_eq!(world.resolved[&1], Ok(()));
    let reduce = world.submit("reduce", &[whole(map)]);
    assert!(world.runs(map) && !world.runs(unread) && !world.runs(reduce));
    world.complete(map);
    assert!(world.runs(reduce));
    assert_eq!(world.failed, None);
}

/// Until then it obeys the Owner of the run before.
#[test]
fn a_node_that_is_known_from_the_log_alone_is_asked_what_it_holds_when_it_is_heard_of() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "late", 1)], Vec::new());
    world.submit("map", &[]);
    world.owner.offers(&node("late"), INCARNATION, offer(&["f@1"]));
    let asked = Effect::TakeInventory { node: node("late") };
    assert_eq!(world.owner.flush().iter().filter(|effect| **effect == asked).count(), 1);
    world.owner.offers(&node("late"), INCARNATION, offer(&["f@1"]));
    assert!(!world.owner.flush().contains(&asked), "once");
}

#[test]
fn a_small_value_comes_from_the_log() {
    let map = task("map", &[]);
    let logged = TaskDone { values: vec![(0, Bytes::from_static(b"8 bytes!"))], ..done(map, "gone", 1) };
    let mut world = resumed(&[("a", 1)], vec![logged], Vec::new());
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert_eq!(world.resolved[&1], Ok(()));
    assert!(world.running.is_empty());
    assert!(world.holds(&node("home"), map.output(0)));
}

#[test]
fn what_a_node_holds_of_no_task_that_anybody_knows_is_freed_and_what_comes_late_is_taken() {
    let [map, lost] = ["map", "lost"].map(|name| task(name, &[]));
    let mut world = resumed(&[("a", 1)], vec![done(map, "a", 1)], Vec::new());
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert!(world.runs(map), "nobody has it, as far as is known");
    [map, lost].iter().for_each(|made| world.keep(&node("a"), made.output(0), 1));
    world.inventory(&node("a"));
    assert_eq!(world.freed, [(node("a"), lost.output(0))], "its completion was not logged");
    assert_eq!(world.resolved[&1], Ok(()));
    assert!(!world.runs(map), "it need not be made again");
}

const READ: EdgeId = EdgeId::from_u128(1);
const OTHER: EdgeId = EdgeId::from_u128(2);

fn column(set: SetId) -> Arg {
    Arg { source: Source::Set(set), parts: Parts::one(0) }
}

/// A map has joined two edges, as in the run before, which had made it on `a`, where it is found by now or later, and read a part of it.
fn joined_two_edges(map: TaskId, reduce: TaskId, found_late: bool) -> World {
    let mut world = resumed(&[("a", 2)], vec![done(map, "a", 1), done(reduce, "gone", 1)], Vec::new());
    world.keep(&node("a"), map.output(0), 1);
    if !found_late {
        world.inventory(&node("a"));
    }
    world.submit("map", &[]);
    for edge in [READ, OTHER] {
        world.owner.open_edge(edge, EdgeShape::new("map -> reduce", 1));
        world.owner.join_edge(edge, map.output(0));
    }
    world
}

/// In the run before, one of the edges was over when the other one was read, and parts were freed.
#[test]
fn what_may_have_been_freed_by_the_run_before_is_made_again_for_who_read_it_and_runs_again() {
    let map = task("map", &[]);
    let members = [map.output(0)];
    let set = SetId::of_members(READ, &members);
    let reduce = task("reduce", &[column(set)]);
    for found_late in [false, true] {
        let mut world = joined_two_edges(map, reduce, found_late);
        world.owner.make_set(set, &members, Some(READ));
        world.submit("reduce", &[column(set)]);
        if found_late {
            world.inventory(&node("a"));
        }
        world.submit("reader", &[whole(reduce)]);
        assert!(world.runs(map) && !world.runs(reduce), "found late: {found_late}");
        world.complete_with(map, &[output(8, 1)], &[]);
        assert!(world.runs(reduce));
    }
}

/// Parts of it may be gone, and nodes know that first when they are asked for.
#[test]
fn what_may_have_been_freed_by_the_run_before_is_made_again_for_readers_of_another_edge() {
    let map = task("map", &[]);
    let members = [map.output(0)];
    let [set, others] = [READ, OTHER].map(|edge| SetId::of_members(edge, &members));
    let reduce = task("reduce", &[column(set)]);
    for found_late in [false, true] {
        let mut world = joined_two_edges(map, reduce, found_late);
        world.owner.make_set(set, &members, Some(READ));
        world.owner.make_set(others, &members, Some(OTHER));
        world.submit("reduce", &[column(set)]);
        let reader = world.submit("reader", &[column(others)]);
        if found_late {
            world.inventory(&node("a"));
        }
        assert!(world.runs(map) && !world.runs(reader), "found late: {found_late}");
        world.complete_with(map, &[output(8, 1)], &[]);
        assert!(world.runs(reader));
    }
}

/// The run before had freed a part for who read it, before its object joined another edge.
#[test]
fn what_the_run_before_had_freed_when_it_joined_another_edge_is_made_again_though_its_node_comes_back() {
    let map = task("map", &[]);
    let members = [map.output(0)];
    let [set, others] = [READ, OTHER].map(|edge| SetId::of_members(edge, &members));
    let reduce = task("reduce", &[column(set)]);
    for found_late in [false, true] {
        let mut world = resumed(&[("a", 2)], vec![done(map, "a", 1), done(reduce, "gone", 1)], Vec::new());
        world.keep(&node("a"), map.output(0), 1);
        if !found_late {
            world.inventory(&node("a"));
        }
        world.submit("map", &[]);
        for (edge, set) in [(READ, set), (OTHER, others)] {
            world.owner.open_edge(edge, EdgeShape::new("map -> reduce", 1));
            world.owner.join_edge(edge, map.output(0));
            world.owner.make_set(set, &members, Some(edge));
            if edge == READ {
                world.submit("reduce", &[column(set)]);
            }
        }
        let reader = world.submit("reader", &[column(others)]);
        world.inventory(&node("a"));
        assert!(world.runs(map) && !world.runs(reader), "found late: {found_late}");
        world.complete_with(map, &[output(8, 1)], &[]);
        assert!(world.runs(reader));
    }
}

/// In the run before nobody read again when the parts were declared unread.
#[test]
fn what_was_declared_unread_while_another_reader_runs_again_is_made_again_for_readers_of_another_edge() {
    let [map, other] = ["map", "other"].map(|name| task(name, &[]));
    let sets = [map, other].map(|map| SetId::of_members(READ, &[map.output(0)]));
    let reduce = task("reduce", &[column(sets[0])]);
    let log = vec![done(map, "gone", 1), done(other, "a", 1), done(reduce, "gone", 1)];
    let mut world = resumed(&[("a", 4)], log, Vec::new());
    world.keep(&node("a"), other.output(0), 1);
    world.inventory(&node("a"));
    world.owner.open_edge(READ, EdgeShape::new("map -> reduce", 2));
    for ((name, map), set) in [("map", map), ("other", other)].into_iter().zip(sets) {
        world.submit(name, &[]);
        world.owner.join_edge(READ, map.output(0));
        world.owner.make_set(set, &[map.output(0)], Some(READ));
    }
    world.submit("reduce", &[column(sets[0])]);
    world.submit("reader", &[whole(reduce)]);
    assert!(world.runs(map) && !world.runs(other), "who has read the first one runs again");
    world.owner.unread(READ, 0..2);
    let others = SetId::of_members(OTHER, &[other.output(0)]);
    world.owner.open_edge(OTHER, EdgeShape::new("map -> reduce", 2));
    world.owner.join_edge(OTHER, other.output(0));
    world.owner.make_set(others, &[other.output(0)], Some(OTHER));
    let reader = world.submit("another reader", &[column(others)]);
    assert!(world.runs(other) && !world.runs(reader), "parts of its only copy may be gone");
    world.complete_with(other, &[output(8, 1)], &[]);
    assert!(world.runs(reader));
}

#[test]
fn a_task_that_was_cancelled_waits_for_that() {
    let merge = task("merge", &[]);
    let mut world = resumed(&[("a", 1)], Vec::new(), vec![Choice::GivenUp(merge.output(0))]);
    world.submit("merge", &[]);
    assert!(!world.runs(merge), "it could complete before it is cancelled, and be read");
    world.owner.track(merge.output(0), 1);
    world.owner.cancel_maker(merge.output(0));
    world.settle();
    assert_eq!(world.resolved[&1], Err(JobError::Cancelled));
    world.submit("merge", &[]);
    assert!(world.runs(merge), "submitted again it is another task");
}

/// The log names the attempt that was accepted: what it made, wherever it is, and nothing that another one has made.
#[test]
fn only_what_the_accepted_attempt_made_is_taken_up() {
    let map = task("map", &[]);
    for (made_by, taken) in [(1, true), (2, false)] {
        let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
        world.keep(&node("a"), map.output(0), made_by);
        world.inventory(&node("a"));
        assert_eq!(world.freed.is_empty(), taken, "it is freed on sight");
        world.submit("map", &[]);
        let reduce = world.submit("reduce", &[whole(map)]);
        assert_eq!((world.runs(map), world.runs(reduce)), (!taken, taken));
    }
}

/// A copy that was put back has a number of its own, and keeps that of its maker.
#[test]
fn a_copy_that_was_put_back_is_taken_up_by_its_maker() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
    let put_back = map.output(0).copy(JOB, Attempt::nth(5).makes());
    world.stored.insert((node("a"), put_back), Attempt::nth(1).makes());
    world.inventory(&node("a"));
    world.submit("map", &[]);
    assert_eq!(world.owner.lookup(map.output(0)), Some((output(8, 1), node("a"), put_back)));
}

/// Whatever an attempt of the run before says after its Owner is over: its node deletes what it has made.
#[test]
fn what_an_attempt_of_the_run_before_says_does_not_count() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
    let from = (&node("a"), INCARNATION);
    world.keep(&node("a"), map.output(0), 2);
    let made_by = world.owner.completed(from, map, Attempt::nth(2), &[output(8, 1)], &[], Default::default());
    world.owner.yielded(from, map, Attempt::nth(2), 0, output(8, 1));
    world.settle();
    assert_eq!((made_by, &world.freed[..]), (None, &[(node("a"), map.output(0))][..]));
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert!(world.runs(map));
}

/// Its node was asked what it holds, and named it before it heard that it is to be freed.
#[test]
fn what_an_attempt_of_the_run_before_ended_with_is_not_taken_back_when_its_node_names_it_late() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
    ends_late(&mut world, map);
    world.submit("map", &[]);
    let reader = world.submit("reader", &[whole(map)]);
    assert!(world.runs(map) && !world.runs(reader));
}

#[test]
fn what_an_attempt_of_the_run_before_ended_with_is_not_taken_for_what_was_lost_with_two_nodes() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 0), ("b", 1), ("c", 1)], vec![done(map, "b", 1)], Vec::new());
    world.keep(&node("b"), map.output(0), 1);
    world.inventory(&node("b"));
    world.submit("map", &[]);
    world.crash(&node("b"), false);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert_eq!(world.attempt_of(map).1, node("c"), "the only one with a slot");
    world.complete(map);
    world.crash(&node("c"), false);
    world.restart(&node("c"));
    ends_late(&mut world, map);
    let reader = world.submit("reader", &[whole(map)]);
    assert!(world.runs(map) && !world.runs(reader));
}

/// The second attempt of the run before of a task ends on "a", which names what it has made when that was freed.
fn ends_late(world: &mut World, task: TaskId) {
    let (a, made, of) = (node("a"), Attempt::nth(2).makes(), output(8, 1));
    let incarnation = world.incarnation(&a);
    world.keep(&a, task.output(0), 2);
    world.owner.completed((&a, incarnation), task, Attempt::nth(2), &[of], &[], Default::default());
    world.settle();
    assert_eq!(world.freed, [(a.clone(), task.output(0))]);
    let held = (task.output(0).copy(JOB, made), made.get(), of);
    world.owner.inventory((&a, incarnation), std::iter::once(held));
    world.settle();
}

/// A session says so before a heartbeat does, and what the node had said that it holds was its incarnation before's.
#[test]
fn a_session_with_a_later_incarnation_of_a_node_ends_the_incarnation_before_of_a_job_that_was_resumed() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1), ("b", 1)], vec![done(map, "a", 1)], Vec::new());
    let (a, incarnation) = (node("a"), Incarnation(INCARNATION.0 + 1));
    world.keep(&a, map.output(0), 1);
    world.inventory(&a);
    world.nodes.get_mut(&a).unwrap().1 = incarnation;
    world.stored.clear();
    world.owner.session_reset(&a, incarnation);
    world.settle();
    world.submit("map", &[]);
    let reader = world.submit("reader", &[whole(map)]);
    assert!(world.runs(map) && !world.runs(reader), "what it held went with the incarnation before");
    assert_eq!(world.attempt_of(map).1, node("b"), "the new incarnation is lent to nobody yet");
}

/// An Owner that has not heard that it was taken over frees by name, and so do its nodes.
#[test]
fn what_a_run_makes_has_no_name_that_a_run_before_gave() {
    let names = |mut world: World| {
        let map = world.submit("map", &[]);
        world.complete(map);
        world.unreadable(map.output(0));
        world.owner.track(map.output(0), 1);
        world.settle();
        let made: Vec<_> = world.log.iter().flat_map(|done| done.made_by.clone()).collect();
        world.complete(map);
        let (.., counts) = world.owner.lookup(map.output(0)).unwrap();
        [map.output(0).copy(JOB, made[0]), counts]
    };
    let [before, now] = [World::new(&[("a", 1)]), resumed(&[("a", 1)], Vec::new(), Vec::new())].map(names);
    assert!(before.iter().all(|name| !now.contains(name)), "{before:?} {now:?}");
}

/// It was put back from the log, read, and is over: a copy that a node says late that it has is nobody's.
#[test]
fn a_copy_that_is_found_when_its_object_is_over_is_freed() {
    let map = task("map", &[]);
    let logged = TaskDone { values: vec![(0, Bytes::from_static(b"8 bytes!"))], ..done(map, "a", 1) };
    let mut world = resumed(&[("a", 1)], vec![logged], Vec::new());
    world.submit("map", &[]);
    world.release(map);
    world.keep(&node("a"), map.output(0), 1);
    world.inventory(&node("a"));
    assert_eq!(world.stored, std::collections::BTreeMap::new());
}

#[test]
fn what_a_task_that_ran_again_has_made_is_known_with_what_was_known_before() {
    let map = task("map", &[]);
    let before = TaskDone { values: vec![(0, Bytes::from_static(b"8 bytes!"))], ..done(map, "a", 2) };
    let again = |attempt| {
        let made_by = vec![Attempt::nth(1).makes(), Attempt::nth(attempt).makes()];
        TaskDone { made_by, consumed: vec![Consumed::default()], ..done(map, "b", 2) }.after(before.clone())
    };
    assert_eq!((again(2).values, again(2).consumed), (before.values.clone(), Vec::new()), "the first is as it was");
    let other = TaskDone { made_by: vec![Attempt::nth(2).makes(); 2], ..done(map, "b", 2) };
    assert_eq!(other.after(before).values, Vec::new());
}

#[test]
fn a_job_is_not_begun_more_often_than_there_are_numbers_for() {
    let mut world = World::new(&[("a", 1)]);
    world.owner.resume(Past { runs: CopyNumber::RUNS, ..Past::default() });
    world.settle();
    assert!(matches!(&world.failed, Some(JobError::Runtime { reason }) if reason.contains("4096 times")));
}

#[test]
fn outputs_of_a_stream_that_was_done_are_told_in_order_and_are_where_they_were() {
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let stream = World::description("stream", &[], options.clone()).id(SECRET);
    let mut world = resumed(&[("a", 1)], vec![done(stream, "a", 3)], Vec::new());
    (0..3).for_each(|index| world.keep(&node("a"), stream.output(index), 1));
    world.inventory(&node("a"));
    world.submit_with("stream", &[], options);
    world.owner.track_stream(stream, 1);
    world.settle();
    let told: Vec<_> = world.streamed[&1].iter().map(|item| item.clone().unwrap()).collect();
    assert_eq!(told, [Some(stream.output(0)), Some(stream.output(1)), Some(stream.output(2)), None]);
    assert!(world.running.is_empty());
    for index in 0..3 {
        assert_eq!(world.lookup(stream.output(index)), Some((output(8, 1), node("a"))));
        world.owner.release_object(stream.output(index));
    }
    world.owner.release_stream(stream);
    world.settle();
    assert!(world.stored.is_empty());
}

#[test]
fn what_binds_a_task_to_a_node_of_the_run_before_that_is_gone_does_not() {
    let shape = NodeShape { node: node("gone"), cpu_milli: 1000, memory_bytes: 1 };
    let mut world = resumed(&[("a", 1)], Vec::new(), vec![Choice::Nodes(vec![shape])]);
    let place = crate::task::Place::Node { node: node("gone"), soft: false };
    let pinned = world.submit_with("pinned", &[], TaskOptions { place, ..TaskOptions::default() });
    assert_eq!(world.attempt_of(pinned).1, node("a"));
}

#[test]
fn a_task_that_was_done_is_told_as_resumed() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "a", 1)], Vec::new());
    let description = World::description("map", &[], TaskOptions::default());
    world.owner.submit(map, description);
    let told = world.owner.flush().into_iter().any(|effect| {
        let super::state::Effect::Event { kind, .. } = effect else { return false };
        matches!(*kind, EventKind::TaskResumed { task, .. } if task == map)
    });
    assert!(told);
}

/// Nodes die as often as they like.
fn patience() -> TaskOptions {
    TaskOptions { attempts: 1000, ..TaskOptions::default() }
}

fn patient(name: &str, args: &[Arg]) -> TaskId {
    World::description(name, args, patience()).id(SECRET)
}

/// A shuffle: what the program submits, always the same.
#[derive(Clone, Debug)]
struct Shuffle {
    maps: u32,
    parts: u32,
    /// Whether map outputs are kept as long as the program holds them, and whether it does.
    keep: bool,
    /// Whether what reduces return is small enough to be logged.
    small: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Complete(prop::sample::Index),
    /// A node dies, and what it held with it, or not.
    Crash(prop::sample::Index, bool),
    Restart(prop::sample::Index),
    /// The Owner dies. So many entries of its log were not durable.
    Die(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any = || any::<prop::sample::Index>();
    prop_oneof![
        8 => any().prop_map(Step::Complete),
        1 => (any(), proptest::bool::ANY).prop_map(|(node, keeps)| Step::Crash(node, keeps)),
        1 => any().prop_map(Step::Restart),
        2 => (0..3usize).prop_map(Step::Die),
    ]
}

impl Shuffle {
    fn name_of(&self, task: TaskId) -> (bool, TaskId) {
        let is_map = (0..self.maps).any(|map| self.map(map) == task);
        (is_map, task)
    }

    fn map(&self, map: u32) -> TaskId {
        patient(&format!("map {map}"), &[])
    }

    fn set(&self) -> SetId {
        let members: Vec<_> = (0..self.maps).map(|map| self.map(map).output(0)).collect();
        SetId::of(&members)
    }

    fn column(&self, part: u32) -> Arg {
        Arg { source: Source::Set(self.set()), parts: Parts::one(part) }
    }

    fn reduce(&self, part: u32) -> TaskId {
        patient(&format!("reduce {part}"), &[self.column(part)])
    }

    /// Runs the program from its beginning to where it waits for the reduces.
    fn begin(&self, world: &mut World) {
        let members: Vec<_> =
            (0..self.maps).map(|map| world.submit_with(&format!("map {map}"), &[], patience()).output(0)).collect();
        let keep = self.keep;
        let shape = EdgeShape { keep, ..EdgeShape::new("map -> reduce", self.parts) };
        world.owner.make_edge_set(self.set(), &members, shape);
        for part in 0..self.parts {
            let reduce = world.submit_with(&format!("reduce {part}"), &[self.column(part)], patience());
            world.owner.track(reduce.output(0), u64::from(part));
            world.settle();
        }
        if !keep {
            members.iter().for_each(|member| world.owner.release_object(*member));
            world.owner.release_set(self.set());
        }
        world.settle();
    }

    fn complete(&self, world: &mut World, (task, attempt): (TaskId, Attempt)) {
        if self.name_of(task).0 {
            let made = output(10 * u64::from(self.parts), u64::from(self.parts));
            world.complete_attempt(task, attempt, &[made], &[]);
        } else {
            let read = output(10 * u64::from(self.maps), u64::from(self.maps));
            world.complete_attempt(task, attempt, &[output(8, 1)], &[Consumed { arg: 0, read, ..Consumed::default() }]);
        }
    }

    /// The next Owner, with what is left of the log.
    fn again(&self, world: World, lost: usize, runs: u32) -> World {
        let mut log = world.log;
        log.truncate(log.len().saturating_sub(lost));
        for done in &mut log {
            if self.small && !self.name_of(done.task).0 {
                done.values = vec![(0, Bytes::from_static(b"8 bytes!"))];
            }
        }
        let mut next = World::new(&[]);
        next.nodes = world.nodes;
        next.stored = world.stored;
        // Nodes that are there are known, and have said what they hold, before the program begins.
        next.owner.is_at_home(&node("home"), INCARNATION);
        next.log = log.clone();
        let living: Vec<_> = next
            .nodes
            .iter()
            .filter(|(_, (.., lives))| *lives)
            .map(|(node, (_, incarnation, _))| (node.clone(), *incarnation))
            .collect();
        for (node, incarnation) in &living {
            next.owner.offers(node, *incarnation, super::world_tests::offer(&["f@1"]));
        }
        next.lend();
        next.owner.resume(Past { runs, done: log, ..Past::default() });
        for node in living.iter().map(|(node, _)| node).chain([&node("home")]) {
            next.inventory(node);
        }
        self.begin(&mut next);
        next
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn however_often_its_owner_dies_a_shuffle_ends_with_each_row_once_and_nothing_is_left(
        (maps, parts, keep, small) in (1..5u32, 1..5u32, any::<bool>(), any::<bool>()),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let shuffle = Shuffle { maps, parts, keep, small };
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        world.owner.is_at_home(&node("home"), INCARNATION);
        shuffle.begin(&mut world);
        let mut runs = 0;
        for step in steps {
            match step {
                Step::Complete(at) => {
                    if let Some(attempt) = world.any_running(&at) {
                        shuffle.complete(&mut world, attempt);
                    }
                }
                Step::Crash(at, keeps) => world.crash_one(&at, keeps),
                Step::Restart(at) => world.restart_one(&at),
                Step::Die(lost) => {
                    runs += 1;
                    world = shuffle.again(world, lost, runs);
                    // What is in the log and needs nothing that is lost is not done again.
                    for done in &world.log {
                        let again = !shuffle.name_of(done.task).0 && small && world.runs(done.task);
                        prop_assert!(!again, "a partition that was finished runs again");
                    }
                }
            }
            prop_assert_eq!(&world.failed, &None);
        }
        world.restart_all();
        while let Some(attempt) = world.running.keys().next().copied() {
            shuffle.complete(&mut world, attempt);
        }
        for part in 0..parts {
            prop_assert_eq!(world.resolved.get(&u64::from(part)), Some(&Ok(())), "partition {}", part);
        }
        prop_assert_eq!(world.owner.close(), Ok(()), "the ledgers balance");
        for part in 0..parts {
            world.owner.release_object(shuffle.reduce(part).output(0));
        }
        if keep {
            (0..maps).for_each(|map| world.owner.release_object(shuffle.map(map).output(0)));
            world.owner.release_set(shuffle.set());
        }
        world.settle();
        while let Some(attempt) = world.zombies.keys().next().copied() {
            shuffle.complete(&mut world, attempt);
        }
        prop_assert_eq!(&world.failed, &None);
        prop_assert_eq!(world.owner.sizes(), (0, 0, 0));
        prop_assert_eq!(&world.stored, &std::collections::BTreeMap::new());
    }
}
