//! Owners that die, and what the next one makes of the log, of what nodes hold, and of the same program.

use bytes::Bytes;
use proptest::prelude::*;

use super::world_tests::{JOB, World, node, output, whole};
use crate::event::EventKind;
use crate::ids::{Attempt, SetId, TaskId};
use crate::joblog::{Choice, NodeShape};
use crate::joblog::{Past, TaskDone};
use crate::task::Exchange;
use crate::task::{Arg, Consumed, JobError, Parts, Returns, Source, TaskOptions};

fn done(task: TaskId, at: &str, outputs: usize) -> TaskDone {
    TaskDone { task, node: node(at), outputs: vec![output(8, 1); outputs], consumed: Vec::new(), values: Vec::new() }
}

/// A world whose job was run before.
fn resumed(nodes: &[(&str, u64)], done: Vec<TaskDone>, choices: Vec<Choice>) -> World {
    let mut world = World::new(nodes);
    world.owner.is_at_home(&node("home"), super::world_tests::LIFE);
    world.owner.resume(Past { runs: 1, choices, done, end: None });
    world
}

fn task(name: &str, args: &[Arg]) -> TaskId {
    World::description(name, args, TaskOptions::default()).id(JOB)
}

#[test]
fn what_was_done_does_not_run_and_what_reads_it_does_where_it_is() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 2)], vec![done(map, "a", 1)], Vec::new());
    world.stored.insert((node("a"), map.output(0)));
    world.stock(&node("a"));
    assert_eq!(world.submit("map", &[]), map);
    let reduce = world.submit("reduce", &[whole(map)]);
    assert!(!world.runs(map) && world.runs(reduce));
    assert_eq!(world.attempt_of(reduce).0, Attempt(10_001), "attempts of the run before have other numbers");
    assert_eq!(world.owner.lookup(map.output(0)), Some((output(8, 1), node("a"))));
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
    assert!(world.stored.contains(&(node("home"), map.output(0))));
}

#[test]
fn what_a_node_holds_of_no_task_that_anybody_knows_is_freed_and_what_comes_late_is_taken() {
    let [map, lost] = ["map", "lost"].map(|name| task(name, &[]));
    let mut world = resumed(&[("a", 1)], vec![done(map, "a", 1)], Vec::new());
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert!(world.runs(map), "nobody has it, as far as is known");
    world.stored.extend([(node("a"), map.output(0)), (node("a"), lost.output(0))]);
    world.stock(&node("a"));
    assert_eq!(world.freed, [(node("a"), lost.output(0))], "its completion was not logged");
    assert_eq!(world.resolved[&1], Ok(()));
    assert!(!world.runs(map), "it need not be made again");
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

/// An attempt of the run before ends after its Owner, and its node says so before it says what it holds.
#[test]
fn what_an_attempt_of_the_run_before_makes_again_is_taken_for_what_was_lost() {
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let (map, unknown) = (task("map", &[]), task("unknown", &[]));
    let stream = World::description("stream", &[], options.clone()).id(JOB);
    let past = vec![done(map, "gone", 1), done(stream, "gone", 2)];
    let mut world = resumed(&[("a", 1)], past, Vec::new());
    let from = (&node("a"), super::world_tests::LIFE);
    let made = [map.output(0), stream.output(0), stream.output(1), unknown.output(0)];
    world.stored.extend(made.map(|object| (node("a"), object)));
    let figures = Default::default();
    for id in [map, unknown] {
        assert!(!world.owner.completed(from, id, Attempt(1), &[output(8, 1)], &[], figures));
    }
    for index in 0..2 {
        world.owner.yielded(from, stream, Attempt(1), index, output(8, 1));
    }
    world.owner.stopped(from, stream, 2);
    world.settle();
    assert_eq!(world.freed, [(node("a"), unknown.output(0))], "only of that the log knows nothing");
    world.stock(&node("a"));
    world.submit("map", &[]);
    world.submit_with("stream", &[], options);
    world.owner.track_stream(stream, 1);
    let reduce = world.submit("reduce", &[whole(map)]);
    assert!(!world.runs(map) && world.runs(reduce));
    assert_eq!(world.owner.lookup(stream.output(1)), Some((output(8, 1), node("a"))));
}

#[test]
fn what_a_life_that_is_over_had_made_again_is_not_taken() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
    let life = super::world_tests::LIFE;
    let a = node("a");
    world.owner.node_up(&a, crate::ids::Incarnation(life.0 + 1));
    world.owner.completed((&a, life), map, Attempt(1), &[output(8, 1)], &[], Default::default());
    world.owner.node_dead(&a, crate::ids::Incarnation(life.0 + 1));
    world.settle();
    assert_eq!(world.freed, []);
    world.owner.stock(&node("b"), life, std::iter::empty());
    world.submit("map", &[]);
    world.owner.track(map.output(0), 1);
    world.settle();
    assert_eq!(world.owner.lookup(map.output(0)), None);
}

#[test]
fn what_an_attempt_of_the_run_before_makes_otherwise_is_freed() {
    let map = task("map", &[]);
    let mut world = resumed(&[("a", 1)], vec![done(map, "gone", 1)], Vec::new());
    world.stored.insert((node("a"), map.output(0)));
    let from = (&node("a"), super::world_tests::LIFE);
    world.owner.completed(from, map, Attempt(1), &[output(8, 2)], &[], Default::default());
    world.settle();
    assert_eq!(world.freed, [(node("a"), map.output(0))]);
    world.submit("map", &[]);
    let reduce = world.submit("reduce", &[whole(map)]);
    assert!(world.runs(map) && !world.runs(reduce));
}

#[test]
fn outputs_of_a_stream_that_was_done_are_told_in_order_and_are_where_they_were() {
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let stream = World::description("stream", &[], options.clone()).id(JOB);
    let mut world = resumed(&[("a", 1)], vec![done(stream, "a", 3)], Vec::new());
    world.stored.extend((0..3).map(|index| (node("a"), stream.output(index))));
    world.stock(&node("a"));
    world.submit_with("stream", &[], options);
    world.owner.track_stream(stream, 1);
    world.settle();
    let told: Vec<_> = world.streamed[&1].iter().map(|item| item.clone().unwrap()).collect();
    assert_eq!(told, [Some(stream.output(0)), Some(stream.output(1)), Some(stream.output(2)), None]);
    assert!(world.running.is_empty());
    for index in 0..3 {
        assert_eq!(world.owner.lookup(stream.output(index)), Some((output(8, 1), node("a"))));
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
        let super::state::Effect::Event { kind: EventKind::TaskResumed { task, .. }, .. } = effect else {
            return false;
        };
        task == map
    });
    assert!(told);
}

/// Nodes die as often as they like.
fn patience() -> TaskOptions {
    TaskOptions { attempts: 1000, ..TaskOptions::default() }
}

fn patient(name: &str, args: &[Arg]) -> TaskId {
    World::description(name, args, patience()).id(JOB)
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
        let exchange = Exchange { name: "map -> reduce".into(), parts: self.parts, readers: 1, keep, shared: keep };
        world.owner.make_set(self.set(), &members, Some(exchange));
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
            world.complete_attempt(task, attempt, &[output(8, 1)], &[Consumed { arg: 0, read }]);
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
        next.owner.is_at_home(&node("home"), super::world_tests::LIFE);
        next.log = log.clone();
        let living: Vec<_> = next
            .nodes
            .iter()
            .filter(|(_, (.., lives))| *lives)
            .map(|(node, (_, life, _))| (node.clone(), *life))
            .collect();
        for (node, life) in &living {
            next.owner.offers(node, *life, super::world_tests::offer(&["f@1"]));
        }
        next.lend();
        next.owner.resume(Past { runs, choices: Vec::new(), done: log, end: None });
        for node in living.iter().map(|(node, _)| node).chain([&node("home")]) {
            next.stock(node);
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
        world.owner.is_at_home(&node("home"), super::world_tests::LIFE);
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
        prop_assert_eq!(world.owner.close(), Ok(()), "the books balance");
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
        prop_assert_eq!(&world.stored, &std::collections::BTreeSet::new());
    }
}
