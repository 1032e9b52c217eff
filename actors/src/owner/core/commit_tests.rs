//! Tasks that commit: what is checked before one is handed out, and when a cancel has to wait.

use super::commit::Commit;
use super::world_tests::{INCARNATION, SECRET, World, node, offer, output};
use crate::ids::{RowHash, SetId, TaskId};
use crate::task::EdgeShape;
use crate::task::{Arg, Consumed, Description, FailureKind, JobError, Output, Parts, Source, TaskOptions};

/// A world whose node can commit, and an edge from one map to one reduce, of which the reduce has read `rows` of 10 rows.
fn shuffled(rows: u64, shared: bool) -> (World, TaskId) {
    let mut world = World::new(&[("n", 4)]);
    world.owner.offers(&node("n"), INCARNATION, offer(&["f@1", "commit@1"]));
    world.owner.commit = Commit::Noted;
    let map = world.submit("map", &[]);
    let members = [map.output(0)];
    let set = SetId::of(&members);
    let shape = EdgeShape { keep: shared, ..EdgeShape::new("map -> reduce", 1) };
    world.owner.make_edge_set(set, &members, shape);
    let reduce = world.submit("reduce", &[Arg { source: Source::Set(set), parts: Parts::one(0) }]);
    world.complete_with(map, &[output(100, 10)], &[]);
    let read = Output { bytes: rows * 10, rows, row_hash: RowHash(u128::from(rows)) };
    world.complete_with(reduce, &[output(1, 1)], &[Consumed { arg: 0, read, ..Consumed::default() }]);
    (world, reduce)
}

/// Submits the commit of what a task made.
fn commit(world: &mut World, reduce: TaskId) -> TaskId {
    let outputs = [reduce.output(0)];
    let set = SetId::of(&outputs);
    world.owner.make_set(set, &outputs, None);
    let args = [Arg { source: Source::Set(set), parts: Parts::All }];
    let plain = World::description("commit", &args, TaskOptions::default());
    let description = Description { function: "commit@1".into(), commits: true, ..plain };
    let id = description.id(SECRET);
    world.owner.submit(id, description);
    world.owner.track(id.output(0), 1);
    world.settle();
    id
}

#[test]
fn a_commit_is_handed_out_when_its_ledger_balances() {
    for shared in [false, true] {
        let (mut world, reduce) = shuffled(10, shared);
        let commit = commit(&mut world, reduce);
        assert!(world.runs(commit));
        world.complete(commit);
        assert_eq!((world.resolved[&1].clone(), world.owner.close()), (Ok(()), Ok(())));
    }
}

#[test]
fn a_commit_waits_until_the_log_says_that_the_job_commits() {
    let (mut world, reduce) = shuffled(10, false);
    world.owner.commit = Commit::NotYet;
    let commit = commit(&mut world, reduce);
    assert!(!world.runs(commit) && !world.owner.is_committing());
    assert_eq!(world.owner.commit, Commit::Wanted);
    world.owner.commit = Commit::Noted;
    world.settle();
    assert!(world.runs(commit) && world.owner.is_committing());
}

#[test]
fn a_job_of_which_an_earlier_run_has_handed_a_commit_out_is_not_cancelled() {
    let (mut world, _) = shuffled(10, false);
    world.owner.was_committing = true;
    assert!(world.owner.is_committing(), "its output may be there");
}

#[test]
fn a_commit_is_not_handed_out_while_the_ledger_of_an_edge_does_not_balance() {
    for shared in [false, true] {
        let (mut world, reduce) = shuffled(9, shared);
        let commit = commit(&mut world, reduce);
        assert!(!world.runs(commit));
        let told = world.resolved[&1].clone().unwrap_err();
        assert!(matches!(&told, JobError::Conservation { edge, .. } if edge == "map -> reduce"), "{told}");
    }
}

#[test]
fn a_commit_is_not_handed_out_after_a_failure_that_nobody_was_told_of() {
    let (mut world, reduce) = shuffled(10, false);
    let unseen = world.submit("unseen", &[]);
    world.fail(unseen, FailureKind::Final);
    let commit = commit(&mut world, reduce);
    assert!(!world.runs(commit) && world.resolved[&1].is_err());
}

#[test]
fn a_job_is_committing_from_when_the_task_runs_until_its_attempt_fails_or_other_tasks_come() {
    let (mut world, reduce) = shuffled(10, false);
    assert!(!world.owner.is_committing());
    let commit = commit(&mut world, reduce);
    assert!(world.owner.is_committing());
    let (attempt, at) = world.attempt_of(commit);
    world.owner.recalled((&at, INCARNATION), commit, attempt);
    assert!(!world.owner.is_committing(), "it was given back");
    world.running.clear();
    world.settle();
    world.complete(commit);
    world.release(commit);
    assert!(world.owner.is_committing(), "the program is about to end");
    let other = world.submit("other", &[]);
    assert!(!world.owner.is_committing(), "it goes on");
    world.complete(other);
    assert!(world.owner.is_committing());
}
