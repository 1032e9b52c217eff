//! Nodes that live and do not reach each other.

use super::world_tests::{INCARNATION, World, node, output, whole};
use crate::ids::{Attempt, CopyNumber, NodeId, ObjectId, SetId, TaskId};
use crate::task::{Arg, Loss, Parts, Place, Source, TaskOptions};

fn placed(name: &str, soft: bool) -> TaskOptions {
    TaskOptions { place: Place::Node { node: node(name), soft }, ..TaskOptions::default() }
}

fn made(world: &mut World, name: &str, at: &str) -> TaskId {
    let task = world.submit_with(name, &[], placed(at, true));
    world.complete(task);
    task
}

/// The reader of an object could not fetch it from there; the task's node then.
fn cannot_reach(world: &mut World, reader: TaskId, object: ObjectId, there: &str) -> Option<NodeId> {
    let (attempt, _) = world.attempt_of(reader);
    let lost = world.lost(object, node(there), Loss::Unreachable);
    world.lose_argument(reader, attempt, lost);
    world.runs(reader).then(|| world.attempt_of(reader).1)
}

#[test]
fn what_one_node_cannot_reach_another_one_reads() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    let first = made(&mut world, "first", "a");
    let second = world.submit_with("second", &[whole(first)], placed("b", true));
    let now = cannot_reach(&mut world, second, first.output(0), "a");
    assert!(now.is_some_and(|now| now != node("b")), "nothing has to be made again");
    assert_eq!(world.freed, []);
    // Nobody else is sent there to find out the same.
    let third = world.submit_with("third", &[whole(first)], placed("b", true));
    assert_ne!(world.attempt_of(third).1, node("b"));
    // The node itself is well.
    let fourth = world.submit_with("fourth", &[], placed("b", true));
    assert_eq!(world.attempt_of(fourth).1, node("b"));
}

#[test]
fn all_nodes_hear_that_one_could_not_reach_another_until_it_is_clear_which() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)]);
    world.crash(&node("e"), false);
    let first = made(&mut world, "first", "a");
    let mut told = |name, from, everybody| {
        let reader = world.submit_with(name, &[whole(first)], placed(from, true));
        assert_eq!(world.attempt_of(reader).1, node(from));
        cannot_reach(&mut world, reader, first.output(0), "a");
        let heard: Vec<_> = world.suspected.drain(..).collect();
        let all = ["a", "b", "c", "d"].map(|name| (node(name), [node(from), node("a")]));
        assert_eq!(heard, if everybody { all.to_vec() } else { vec![] }, "from {from}");
    };
    told("second", "b", true);
    // It may have been either of them.
    told("third", "c", true);
    told("fourth", "d", false);
}

#[test]
fn a_pair_is_tried_again_after_a_while_and_at_once_in_another_incarnation() {
    let mut world = World::new(&[("a", 4), ("b", 4)]);
    let first = made(&mut world, "first", "a");
    let reader = world.submit_with("reader", &[whole(first)], placed("b", true));
    assert_eq!(cannot_reach(&mut world, reader, first.output(0), "a"), Some(node("a")));
    for _ in 0..29 {
        world.owner.rebalance();
    }
    let early = world.submit_with("early", &[whole(first)], placed("b", true));
    assert_eq!(world.attempt_of(early).1, node("a"));
    world.owner.rebalance();
    let late = world.submit_with("late", &[whole(first)], placed("b", true));
    assert_eq!(world.attempt_of(late).1, node("b"));
    assert_eq!(cannot_reach(&mut world, late, first.output(0), "a"), Some(node("a")));
    world.crash(&node("b"), false);
    world.restart(&node("b"));
    let reborn = world.submit_with("reborn", &[whole(first)], placed("b", true));
    assert_eq!(world.attempt_of(reborn).1, node("b"));
}

#[test]
fn only_what_no_node_reads_together_is_made_again_and_the_least_of_it() {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    let maps = ["a", "b", "c"].map(|at| made(&mut world, &format!("map-{at}"), at));
    let objects = maps.map(|map| map.output(0));
    let set = SetId::of(&objects);
    world.owner.make_set(set, &objects, None);
    let reads = Arg { source: Source::Set(set), parts: Parts::All };
    let reader = world.submit_with("reader", &[reads], placed("b", true));
    // The node "b" is cut off from both others: they complain of it, and it of them.
    let on_c = cannot_reach(&mut world, reader, objects[0], "a");
    assert_eq!((on_c, world.freed.len()), (Some(node("c")), 0), "nothing is known of c yet");
    assert_eq!(cannot_reach(&mut world, reader, objects[1], "b"), None);
    assert_eq!(world.freed, [(node("b"), objects[1])], "one of three is made again, not two");
    assert_eq!(world.attempt_of(maps[1]).1, node("c"), "where it was asked for");
    world.complete(maps[1]);
    assert_ne!(world.attempt_of(reader).1, node("b"));
    assert_eq!(world.owner.counts().failed_attempts, 0);
}

#[test]
fn what_a_bound_task_cannot_reach_is_made_again_there() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let first = made(&mut world, "first", "a");
    let second = world.submit_with("second", &[whole(first)], placed("b", false));
    assert_eq!(cannot_reach(&mut world, second, first.output(0), "a"), None);
    assert_eq!(world.attempt_of(first).1, node("b"));
    world.complete(first);
    assert_eq!(world.attempt_of(second).1, node("b"));
}

#[test]
fn what_the_program_put_is_read_where_it_can_be() {
    let mut world = World::new(&[("home", 1), ("a", 1), ("b", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    let object = ObjectId::from_u128(77 << 32);
    world.owner.put((object, CopyNumber::FIRST), output(8, 0), &node("home"), INCARNATION);
    let reads = [Arg { source: Source::Object(object), parts: Parts::All }];
    let reader = world.submit_with("reader", &reads, placed("a", true));
    let elsewhere = cannot_reach(&mut world, reader, object, "home");
    assert!(elsewhere.is_some_and(|at| at != node("a")));
    // One that can go nowhere else asks there again.
    let bound = world.submit_with("bound", &reads, placed("a", false));
    assert_eq!(cannot_reach(&mut world, bound, object, "home"), Some(node("a")));
    assert_eq!(world.attempt_of(bound).0, Attempt::nth(2));
    assert_eq!((world.failed.clone(), world.freed.len()), (None, 0));
}
