//! The Owner's tables without a runtime: what happened in, effects out.

use super::state::{Demand, Tracker};
use super::world_tests::{INCARNATION, SECRET, World, node, offer, output, whole};
use crate::ids::{Attempt, Incarnation, NodeId, ObjectId, RowHash, SetId};
use crate::task::Exchange;
use crate::task::{
    Arg, Consumed, Description, FailureKind, JobError, LocatedSource, Output, Parts, Place, Resources, Returns, Source,
    TaskFailure, TaskFigures, TaskOptions,
};

#[test]
fn a_task_runs_when_its_arguments_exist() {
    let mut world = World::new(&[("n", 2)]);
    let first = world.submit("first", &[]);
    let second = world.submit("second", &[whole(first)]);
    assert!(world.runs(first) && !world.runs(second));
    world.complete(first);
    assert!(world.runs(second));
    let (_, spec) = &world.running[&(second, Attempt::nth(1))];
    let LocatedSource::Object { at: told, .. } = &spec.args[0].source else { panic!("{:?}", spec.args) };
    let counts = Attempt::nth(1).makes();
    assert_eq!(told, &Some((node("n"), counts)), "it is told where the argument is, and which copy of it");
}

#[test]
fn the_same_description_is_one_task() {
    let mut world = World::new(&[("n", 2)]);
    let one = world.submit("same", &[]);
    let other = world.submit("same", &[]);
    assert_eq!(one, other);
    assert_eq!(world.running.len(), 1);
    world.complete(one);
    world.release(one);
    assert!(world.freed.is_empty(), "the second handle still holds it");
    world.release(one);
    assert_eq!(world.freed, [(node("n"), one.output(0))]);
}

#[test]
fn a_completed_task_stays_completed_and_runs_again_only_for_who_needs_the_value() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    world.complete(task);
    world.release(task);
    let again = world.submit("t", &[]);
    assert_eq!(again, task);
    assert!(!world.runs(task), "nobody needs the value");
    world.owner.track(task.output(0), 7);
    world.settle();
    assert!(world.runs(task), "now somebody does");
    world.complete(task);
    assert_eq!(world.resolved[&7], Ok(()));
}

#[test]
fn a_freed_argument_is_made_again_for_a_new_consumer() {
    let mut world = World::new(&[("n", 2)]);
    let first = world.submit("first", &[]);
    let second = world.submit("second", &[whole(first)]);
    world.complete(first);
    world.complete(second);
    // Its value goes, its description stays: the second task could be asked for again.
    world.release(first);
    assert_eq!(world.freed.len(), 1);
    let again = world.submit("first", &[]);
    let third = world.submit("third", &[whole(again)]);
    assert!(world.runs(first) && !world.runs(third));
    world.complete(first);
    assert!(world.runs(third));
}

#[test]
fn failed_attempts_are_repeated_three_times_and_then_everybody_is_told() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    let dependent = world.submit("d", &[whole(task)]);
    world.owner.track(dependent.output(0), 1);
    for attempt in 1..=3 {
        assert_eq!(world.attempt_of(task).0, Attempt::nth(attempt));
        world.fail(task, FailureKind::Error);
    }
    assert!(!world.runs(task) && !world.runs(dependent));
    let error = world.resolved[&1].clone().unwrap_err();
    assert!(
        matches!(&error, JobError::Task { task: failed, attempt, .. } if (*failed, *attempt) == (task, Attempt::nth(3))),
        "{error}"
    );
    assert_eq!(world.owner.close(), Ok(()), "the failure was seen");
}

#[test]
fn denied_memory_is_no_failed_attempt_but_not_asked_for_for_ever() {
    let mut world = World::new(&[("n", 1)]);
    let options = TaskOptions { attempts: 1, ..TaskOptions::default() };
    let task = world.submit_with("t", &[], options);
    world.owner.track(task.output(0), 1);
    for _ in 0..100 {
        world.fail(task, FailureKind::Denied);
        assert!(world.runs(task));
    }
    world.fail(task, FailureKind::Denied);
    assert!(matches!(&world.resolved[&1], Err(JobError::Task { failure, .. }) if failure.kind == FailureKind::Denied));
}

#[test]
fn a_task_that_was_denied_memory_beside_the_store_begins_again_with_the_most_that_it_needed() {
    let mut world = World::new(&[("n", 1)]);
    let options = TaskOptions { attempts: 1, outside_bytes: 10, ..TaskOptions::default() };
    let task = world.submit_with("t", &[], options);
    let asked_for = |world: &World| {
        let mut running = world.running.iter().filter(|((id, _), _)| *id == task);
        running.next().map(|(_, (_, spec))| spec.outside_bytes)
    };
    assert_eq!(asked_for(&world), Some(10), "what was declared");
    for (needs_bytes, then) in [(40, 40), (0, 40), (30, 40), (50, 50)] {
        world.fail_with(task, TaskFailure { needs_bytes, ..TaskFailure::new(FailureKind::Denied, "why") });
        assert_eq!(asked_for(&world), Some(then), "{needs_bytes}");
    }
    world.complete(task);
    let forgotten = |world: &World| world.owner.tasks.iter().all(|(task, _)| world.owner.needs_outside(task) == 0);
    assert!(forgotten(&world), "what went well is forgotten");
}

#[test]
fn a_failure_that_nobody_saw_fails_the_job() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    world.fail(task, FailureKind::Final);
    assert!(matches!(world.owner.close(), Err(JobError::Task { .. })));
}

#[test]
fn messages_of_ended_attempts_and_older_incarnations_are_dropped() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    let old = world.attempt_of(task).0;
    world.fail(task, FailureKind::Panic);
    let figures = TaskFigures::default();
    world.owner.completed((&node("n"), INCARNATION), task, old, &[output(8, 1)], &[], figures);
    world.settle();
    assert!(world.runs(task), "the second attempt goes on");
    world.owner.completed((&node("n"), Incarnation(0)), task, Attempt::nth(2), &[output(8, 1)], &[], figures);
    world.settle();
    assert!(world.lookup(task.output(0)).is_none(), "an older incarnation of the node completes nothing");
    world.complete(task);
    assert!(world.lookup(task.output(0)).is_some());
}

#[test]
fn a_second_completion_with_other_rows_fails_the_job() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    world.complete_with(task, &[output(8, 1)], &[]);
    world.keep(&node("m"), task.output(0), 9);
    world.owner.completed(
        (&node("m"), INCARNATION),
        task,
        Attempt::nth(9),
        &[output(8, 1)],
        &[],
        TaskFigures::default(),
    );
    world.settle();
    assert_eq!(world.failed, None);
    assert_eq!(world.freed, [(node("m"), task.output(0))], "the second copy goes");
    world.owner.completed(
        (&node("m"), INCARNATION),
        task,
        Attempt::nth(9),
        &[output(8, 2)],
        &[],
        TaskFigures::default(),
    );
    world.settle();
    assert!(matches!(world.failed, Some(JobError::NonDeterministic { .. })));
}

#[test]
fn a_recalled_attempt_does_not_count() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit_with("t", &[], TaskOptions { attempts: 1, ..TaskOptions::default() });
    for _ in 0..5 {
        let (attempt, at) = world.attempt_of(task);
        world.running.clear();
        world.owner.recalled((&at, INCARNATION), task, attempt);
        world.settle();
    }
    assert_eq!(world.attempt_of(task).0, Attempt::nth(6), "numbers are never used twice");
    world.complete(task);
    assert!(world.lookup(task.output(0)).is_some());
}

#[test]
fn cancelling_ends_attempts_and_submitting_again_is_a_new_one() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit("t", &[]);
    let dependent = world.submit("d", &[whole(task)]);
    world.owner.track(dependent.output(0), 1);
    world.owner.cancel(task);
    world.settle();
    assert_eq!(world.cancelled, [(task, Attempt::nth(1))]);
    assert_eq!(world.resolved[&1], Err(JobError::Cancelled));
    world.submit("t", &[]);
    assert_eq!(world.attempt_of(task).0, Attempt::nth(2));
    assert_eq!(world.owner.close(), Ok(()));
}

/// Its node deletes what it has made; what it had told of before it was cancelled is freed, by a name that nothing else has.
#[test]
fn what_an_attempt_that_was_cancelled_has_told_of_is_freed_and_what_counts_stays() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit("t", &[]);
    world.owner.cancel(task);
    world.settle();
    world.submit("t", &[]);
    world.complete(task);
    let (.., counts) = world.owner.lookup(task.output(0)).unwrap();
    world.keep(&node("n"), task.output(0), 1);
    let figures = TaskFigures::default();
    world.owner.completed((&node("n"), INCARNATION), task, Attempt::nth(1), &[output(8, 1)], &[], figures);
    world.settle();
    assert_eq!(world.freed, [(node("n"), task.output(0))]);
    assert_eq!(Vec::from_iter(world.stored.keys()), [&(node("n"), counts)]);
}

/// Ids have 96 bits, and a program may have two descriptions with one id: they are found, not mixed.
#[test]
fn another_description_with_the_id_of_a_task_fails_the_job() {
    let described =
        |name: &str, returns| World::description(name, &[], TaskOptions { returns, ..TaskOptions::default() });
    let of_function = |mut description: crate::task::Description| {
        description.function = "g@1".into();
        description
    };
    let others = [
        (described("other", Returns::One), false),
        (described("t", Returns::Many(2)), false),
        (of_function(described("t", Returns::One)), false),
        (described("t", Returns::One), true),
    ];
    for (other, same) in others {
        let mut world = World::new(&[("n", 1)]);
        let task = world.submit("t", &[]);
        world.owner.submit(task, other);
        world.settle();
        let found = matches!(&world.failed, Some(error) if error.to_string().contains("two descriptions have the id"));
        assert_eq!(found, !same, "{:?}", world.failed);
    }
}

/// The last word on numbers: they are never used twice, so there is an end of them.
#[test]
fn a_task_that_has_used_up_its_numbers_fails_the_job_in_those_words() {
    let mut world = World::new(&[("home", 0), ("a", 1)]);
    world.owner.is_at_home(&node("home"), INCARNATION);
    world.owner.numbering.most = 3;
    let options = TaskOptions { attempts: 100, ..TaskOptions::default() };
    let task = world.submit_with("t", &[], options);
    world.fail(task, FailureKind::Error);
    world.complete(task);
    world.owner.values(task, Attempt::nth(2), &[(0, bytes::Bytes::from_static(b"8 bytes!"))]);
    world.crash(&node("a"), false);
    assert_eq!((world.restored.len(), &world.failed), (1, &None), "what was put back has the third");
    world.unreadable(task.output(0));
    world.restart(&node("a"));
    world.owner.track(task.output(0), 1);
    world.settle();
    let Some(JobError::Runtime { reason }) = &world.failed else { panic!("{:?}", world.failed) };
    assert!(reason.contains("all 3 numbers for copies of its outputs were given"), "{reason}");
}

/// Of a function that may give another result each time, what counts is of one attempt; of one that does not, what is there serves.
#[test]
fn all_outputs_of_a_task_that_may_give_another_result_come_from_one_attempt() {
    for deterministic in [false, true] {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        for name in ["a", "b"] {
            world.owner.offers(&node(name), INCARNATION, offer(&["f@1", "dice@1"]));
        }
        let options = TaskOptions { returns: Returns::Many(2), ..TaskOptions::default() };
        let mut description = World::description("t", &[], options);
        (description.function, description.deterministic) = ("dice@1".into(), deterministic);
        let task = description.id(SECRET);
        world.owner.submit(task, description);
        world.settle();
        let first = [output(8, 1), output(8, 2)];
        world.complete_with(task, &first, &[]);
        world.unreadable(task.output(0));
        world.owner.track(task.output(0), 1);
        world.settle();
        let again = if deterministic { first } else { [output(8, 3), output(8, 4)] };
        world.complete_with(task, &again, &[]);
        let numbers = [0, 1].map(|index| {
            let (made, _, copy) = world.owner.lookup(task.output(index)).unwrap();
            assert_eq!(made, again[index as usize]);
            ObjectId::of_copy(copy).1.unwrap().counted()
        });
        assert_eq!(numbers, if deterministic { [2, 1] } else { [2, 2] });
        assert_eq!((world.stored.len(), &world.failed), (2, &None), "the others are freed");
    }
}

#[test]
fn sets_are_complete_when_all_members_are_and_columns_are_freed_as_they_are_read() {
    let mut world = World::new(&[("n", 4)]);
    let maps: Vec<_> = (0..3).map(|map| world.submit(&format!("map{map}"), &[])).collect();
    let members: Vec<_> = maps.iter().map(|map| map.output(0)).collect();
    let set = SetId::of(&members);
    let exchange = Exchange { name: "map -> reduce".into(), parts: 2, readers: 1, keep: false, shared: false };
    world.owner.make_set(set, &members, Some(exchange));
    let column = |part| Arg { source: Source::Set(set), parts: Parts::one(part) };
    let reduces: Vec<_> = (0..2).map(|part| world.submit(&format!("reduce{part}"), &[column(part)])).collect();
    world.owner.release_set(set);
    for map in &maps {
        world.release(*map);
        assert!(!world.runs(reduces[0]));
        world.complete_with(*map, &[output(100, 10)], &[]);
    }
    assert!(world.runs(reduces[0]) && world.runs(reduces[1]));
    let read = |rows| Consumed { arg: 0, read: Output { bytes: rows * 10, rows, row_hash: RowHash(u128::from(rows)) } };
    world.complete_with(reduces[0], &[output(1, 1)], &[read(12)]);
    assert_eq!(world.freed_parts, [(node("n"), set, Parts::one(0))]);
    assert!(world.freed.is_empty());
    world.complete_with(reduces[1], &[output(1, 1)], &[read(18)]);
    assert_eq!(world.freed.len(), 3, "the last reader is done");
    assert_eq!(world.owner.close(), Ok(()));
    world.release(reduces[0]);
    world.release(reduces[1]);
    assert_eq!(world.owner.close(), Ok(()));
    assert_eq!(world.owner.sizes(), (0, 0, 0), "nothing is remembered but ids");
}

#[test]
fn a_set_that_is_made_again_holds_its_members_again() {
    let mut world = World::new(&[("n", 2)]);
    let member = world.submit("member", &[]);
    world.complete(member);
    let set = SetId::of(&[member.output(0)]);
    world.owner.make_set(set, &[member.output(0)], None);
    let arg = Arg { source: Source::Set(set), parts: Parts::All };
    let reader = world.submit("reader", &[arg]);
    world.complete(reader);
    world.owner.release_set(set);
    world.release(member);
    assert_eq!(world.freed.len(), 1, "nobody needs the value, but the reader remembers the set");
    world.submit("member", &[]);
    world.owner.make_set(set, &[member.output(0)], None);
    world.release(member);
    let again = world.submit("another reader", &[arg]);
    world.complete(member);
    assert!(world.runs(again));
    world.complete(again);
    world.owner.release_set(set);
    world.release(reader);
    world.release(again);
    assert_eq!(world.owner.sizes(), (0, 0, 0));
}

#[test]
fn rows_that_get_lost_in_an_exchange_fail_the_job() {
    let mut world = World::new(&[("n", 4)]);
    let map = world.submit("map", &[]);
    let members = [map.output(0)];
    let set = SetId::of(&members);
    world.owner.make_set(
        set,
        &members,
        Some(Exchange { name: "edge".into(), parts: 1, readers: 1, keep: false, shared: false }),
    );
    let reduce = world.submit("reduce", &[Arg { source: Source::Set(set), parts: Parts::one(0) }]);
    world.complete_with(map, &[output(100, 10)], &[]);
    let short = Consumed { arg: 0, read: Output { bytes: 90, rows: 9, row_hash: RowHash(9) } };
    world.complete_with(reduce, &[output(1, 1)], &[short]);
    match world.owner.close() {
        Err(JobError::Conservation { edge, detail }) => {
            assert_eq!(edge, "edge");
            assert!(detail.contains("sealed 10 rows"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_is_announced_in_order_and_ends() {
    let mut world = World::new(&[("n", 1)]);
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let task = world.submit_with("s", &[], options);
    world.owner.track_stream(task, 5);
    let (attempt, at) = world.attempt_of(task);
    for index in [0, 1, 1, 0] {
        world.owner.yielded((&at, INCARNATION), task, attempt, index, output(8, 1));
    }
    world.settle();
    let announced = [Ok(Some(task.output(0))), Ok(Some(task.output(1)))];
    assert_eq!(world.streamed[&5], announced, "repeats are ignored");
    world.complete_with(task, &[output(8, 1), output(8, 1)], &[]);
    assert_eq!(world.streamed[&5][2], Ok(None));
    world.owner.track_stream(task, 6);
    world.settle();
    assert_eq!(world.streamed[&6].len(), 3, "a later reader gets all of it");
    for _ in 0..2 {
        world.owner.release_object(task.output(0));
        world.owner.release_object(task.output(1));
    }
    world.owner.release_stream(task);
    world.settle();
    assert_eq!(world.freed.len(), 2);
    assert_eq!(world.owner.sizes(), (0, 0, 0));
}

#[test]
fn a_lease_that_ends_takes_back_what_has_not_started() {
    let mut world = World::new(&[("a", 1)]);
    for number in 0..3 {
        world.submit(&format!("t{number}"), &[]);
    }
    assert_eq!(world.running.len(), 3, "one runs, two are queued");
    world.owner.leases(&[]);
    world.settle();
    assert_eq!(world.recalled.len(), 3);
}

#[test]
fn a_task_bound_to_a_node_waits_for_it() {
    let mut world = World::new(&[("a", 1)]);
    let place = Place::Node { node: node("b"), soft: false };
    let task = world.submit_with("t", &[], TaskOptions { place, ..TaskOptions::default() });
    assert!(!world.runs(task));
    world
        .owner
        .leases(&[(node("a"), INCARNATION, Resources::cpu(1000)), (node("b"), INCARNATION, Resources::cpu(1000))]);
    world.owner.offers(&node("b"), INCARNATION, offer(&["f@1"]));
    world.settle();
    assert_eq!(world.attempt_of(task).1, node("b"));
}

fn lease(name: &str, slots: u64) -> (NodeId, Incarnation, Resources) {
    (node(name), INCARNATION, Resources::cpu(slots * 1000))
}

#[test]
fn a_task_waits_for_a_node_that_has_its_function_and_says_so() {
    let mut world = World::new(&[]);
    world.owner.leases(&[lease("bare", 4)]);
    let task = world.submit("t", &[]);
    assert!(!world.runs(task));
    assert_eq!(world.owner.unheard().collect::<Vec<_>>(), [&node("bare")]);
    assert_eq!(world.owner.unplaced()[0].1, "1 tasks wait to hear which functions bare has");

    world.owner.offers(&node("bare"), INCARNATION, offer(&["g@1"]));
    world.settle();
    assert!(!world.runs(task));
    assert_eq!(world.owner.unheard().count(), 0);
    let why = world.owner.unplaced();
    assert_eq!(why[0].1, "1 tasks wait for a lease on a node with f@1; lent are bare, which lack it");
    assert_eq!(world.demand.len(), 1);
    assert_eq!(world.demand[0].function.as_deref(), Some("f@1"), "the Scheduler is told what the node must have");

    // A node that joins later.
    world.owner.leases(&[lease("bare", 4), lease("able", 1)]);
    world.settle();
    assert!(!world.runs(task), "nothing is known of it yet");
    world.owner.offers(&node("able"), INCARNATION, offer(&["f@1"]));
    world.settle();
    assert_eq!(world.attempt_of(task).1, node("able"));
}

#[test]
fn tasks_that_lack_a_node_hold_up_no_others() {
    let mut world = World::new(&[]);
    world.owner.leases(&[lease("bare", 1)]);
    world.owner.offers(&node("bare"), INCARNATION, offer(&["g@1"]));
    let stuck = world.submit("stuck", &[]);
    let description = Description { function: "g@1".into(), ..World::description("t", &[], TaskOptions::default()) };
    let id = description.id(SECRET);
    world.owner.submit(id, description);
    world.settle();
    assert!(world.runs(id) && !world.runs(stuck));
    world.complete(id);
    world.owner.cancel(stuck);
    world.settle();
    assert_eq!(world.owner.unplaced(), [], "it is in no queue any more");
}

#[test]
fn a_new_incarnation_of_a_node_is_heard_before_it_gets_anything() {
    let mut world = World::new(&[("a", 1)]);
    let later = Incarnation(2);
    world.owner.leases(&[(node("a"), later, Resources::cpu(1000))]);
    let task = world.submit("t", &[]);
    assert!(!world.runs(task), "what the incarnation before had is no promise");
    world.owner.offers(&node("a"), INCARNATION, offer(&["f@1"]));
    world.settle();
    assert!(!world.runs(task), "a word of the incarnation before");
    world.owner.offers(&node("a"), later, offer(&["f@1"]));
    world.settle();
    assert!(world.runs(task));
}

#[test]
fn a_demand_in_flight_is_counted_where_it_is_when_functions_become_scarce() {
    let mut world = World::new(&[("a", 2)]);
    for number in 0..4 {
        world.submit(&format!("t{number}"), &[]);
    }
    assert_eq!(world.demand, [Demand { resources: Resources::cpu(1000), node: None, function: None, slots: 4 }]);
    world.owner.offers(&node("b"), INCARNATION, offer(&[]));
    world.settle();
    let function = Some("f@1".into());
    assert_eq!(world.demand, [Demand { resources: Resources::cpu(1000), node: None, function, slots: 4 }]);
}

#[test]
fn a_node_that_comes_back_under_another_incarnation_unnoticed_has_lost_its_attempts() {
    let mut world = World::new(&[("a", 1)]);
    let task = world.submit("t", &[]);
    let tracker: Tracker = 1;
    world.owner.track(task.output(0), tracker);
    assert_eq!(world.running.len(), 1);
    world.running.clear();
    // The Scheduler has heard of its next incarnation; nobody called it dead.
    world.owner.leases(&[(node("a"), Incarnation(2), Resources::cpu(1000))]);
    world.owner.offers(&node("a"), Incarnation(2), offer(&["f@1"]));
    world.settle();
    assert_eq!(world.running.keys().collect::<Vec<_>>(), [&(task, Attempt::nth(2))], "made again");
    // What the incarnation before says in the end does not count.
    let output = Output { bytes: 1, rows: 1, row_hash: RowHash(1) };
    let figures = TaskFigures::default();
    world.owner.completed((&node("a"), INCARNATION), task, Attempt::nth(1), &[output], &[], figures);
    world.owner.completed((&node("a"), INCARNATION), task, Attempt::nth(2), &[output], &[], figures);
    world.settle();
    assert!(!world.resolved.contains_key(&tracker));
    world.owner.completed((&node("a"), Incarnation(2)), task, Attempt::nth(2), &[output], &[], figures);
    world.settle();
    assert_eq!(world.resolved.get(&tracker), Some(&Ok(())));
}
