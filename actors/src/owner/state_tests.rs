//! The Owner's tables without a runtime: what happened in, effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::exchange::Exchange;
use super::state::{Demand, Effect, Tracker};
use super::tables::{Object, OwnerState, Value};
use crate::event::EventKind;
use crate::ids::{Attempt, Incarnation, JobId, NodeId, ObjectId, RowHash, SetId, TaskId};
use crate::task::{
    Arg, Consumed, Description, FailureKind, JobError, Loss, LostObject, Output, Parts, Place, Resources, Returns,
    Source, StillRunning, TaskFailure, TaskFigures, TaskOptions, TaskSpec,
};

pub(super) const JOB: JobId = JobId::from_u128(1);
pub(super) const LIFE: Incarnation = Incarnation(1);

pub(super) fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

pub(super) fn offer(functions: &[&str]) -> BTreeSet<Arc<str>> {
    functions.iter().map(|name| Arc::from(*name)).collect()
}

/// Members of a set, and where each is.
type Members = Vec<(ObjectId, Option<NodeId>)>;

/// An Owner with nodes that do what they are told.
pub(super) struct World {
    pub(super) owner: OwnerState,
    /// Slots of each node, which life it is in, and whether it lives.
    pub(super) nodes: BTreeMap<NodeId, (u64, Incarnation, bool)>,
    pub(super) running: BTreeMap<(TaskId, Attempt), (NodeId, TaskSpec)>,
    /// Attempts that were cancelled while they ran.
    pub(super) zombies: BTreeMap<(TaskId, Attempt), (NodeId, TaskSpec)>,
    /// What the stores of the nodes hold.
    pub(super) stored: BTreeSet<(NodeId, ObjectId)>,
    /// What each node was told of each set.
    pub(super) defined: BTreeMap<(NodeId, SetId), Members>,
    /// Second attempts beside a first one.
    pub(super) copied: Vec<(TaskId, Attempt, NodeId)>,
    /// How long tasks take.
    pub(super) micros: u64,
    pub(super) resolved: BTreeMap<Tracker, Result<(), JobError>>,
    pub(super) streamed: BTreeMap<Tracker, Vec<Result<Option<ObjectId>, JobError>>>,
    pub(super) freed: Vec<(NodeId, ObjectId)>,
    pub(super) freed_parts: Vec<(NodeId, SetId, Parts)>,
    pub(super) cancelled: Vec<(TaskId, Attempt)>,
    pub(super) recalled: Vec<(TaskId, Attempt)>,
    pub(super) failed: Option<JobError>,
    demand: Vec<Demand>,
}

impl World {
    pub(super) fn new(nodes: &[(&str, u64)]) -> Self {
        let mut owner = OwnerState::new(JOB);
        let leases: Vec<_> =
            nodes.iter().map(|(name, slots)| (node(name), LIFE, Resources::cpu(slots * 1000))).collect();
        owner.leases(&leases);
        for (node, ..) in &leases {
            owner.offers(node, LIFE, offer(&["f@1"]));
        }
        let nodes = nodes.iter().map(|(name, slots)| (node(name), (*slots, LIFE, true))).collect();
        Self {
            owner,
            nodes,
            running: BTreeMap::new(),
            zombies: BTreeMap::new(),
            stored: BTreeSet::new(),
            defined: BTreeMap::new(),
            copied: Vec::new(),
            micros: 0,
            resolved: BTreeMap::new(),
            streamed: BTreeMap::new(),
            freed: Vec::new(),
            freed_parts: Vec::new(),
            cancelled: Vec::new(),
            recalled: Vec::new(),
            failed: None,
            demand: Vec::new(),
        }
    }

    pub(super) fn description(name: &str, args: &[Arg], options: TaskOptions) -> Description {
        let params = Bytes::from(name.to_owned());
        Description { function: "f@1".into(), deterministic: true, params, args: args.to_vec(), options }
    }

    pub(super) fn submit_with(&mut self, name: &str, args: &[Arg], options: TaskOptions) -> TaskId {
        let description = Self::description(name, args, options);
        let id = description.id(JOB);
        self.owner.submit(id, description);
        self.settle();
        id
    }

    pub(super) fn submit(&mut self, name: &str, args: &[Arg]) -> TaskId {
        self.submit_with(name, args, TaskOptions::default())
    }

    pub(super) fn settle(&mut self) {
        let mut asked = Vec::new();
        for effect in self.owner.flush() {
            match effect {
                Effect::Run { node, spec } => {
                    for arg in &spec.args {
                        if let Source::Set(set) = arg.arg.source {
                            let told = self.defined.get(&(node.clone(), set));
                            assert_eq!(told, Some(&self.owner.set_members(set)), "{node} knows where {set} is");
                        }
                    }
                    let before = self.running.insert((spec.id, spec.attempt), (node, *spec));
                    assert!(before.is_none(), "an attempt is run once");
                }
                Effect::Resolved { tracker, outcome, .. } => drop(self.resolved.insert(tracker, outcome)),
                Effect::Streamed { tracker, item } => self.streamed.entry(tracker).or_default().push(item),
                Effect::Free { node, object } => {
                    if self.stored.remove(&(node.clone(), object)) {
                        self.freed.push((node, object));
                    }
                }
                Effect::Restore { object, .. } => drop(self.stored.insert((node("home"), object))),
                Effect::TakeStock { node } => asked.push(node),
                Effect::FreeParts { node, set, parts } => self.freed_parts.push((node, set, parts)),
                Effect::Cancel { task, attempt, .. } => {
                    self.zombies.extend(self.running.remove_entry(&(task, attempt)));
                    self.cancelled.push((task, attempt));
                }
                Effect::Recall { task, attempt, .. } => self.recalled.push((task, attempt)),
                Effect::Fail(error) => drop(self.failed.get_or_insert(error)),
                Effect::Demand(demand) => self.demand = demand,
                Effect::Event { at, kind: EventKind::TaskCopied { task, attempt, .. } } => {
                    self.copied.push((task, attempt, at));
                }
                Effect::DefineSet { node, set } => {
                    self.defined.insert((node, set), self.owner.set_members(set));
                }
                Effect::Event { .. } => {}
            }
        }
        // It answers when it has done what it was told before.
        asked.iter().for_each(|node| self.stock(node));
    }

    pub(super) fn life(&self, node: &NodeId) -> Incarnation {
        self.nodes.get(node).map_or(LIFE, |(_, life, _)| *life)
    }

    /// A node says what it holds.
    fn stock(&mut self, node: &NodeId) {
        let life = self.life(node);
        let held: Vec<_> = self.stored.iter().filter(|(at, _)| at == node).map(|(_, object)| *object).collect();
        self.owner.stock(node, life, held.into_iter());
        self.settle();
    }

    /// A node is gone, with or without what it held.
    pub(super) fn crash(&mut self, node: &NodeId, keeps: bool) {
        let life = self.life(node);
        self.nodes.get_mut(node).expect("it is known").2 = false;
        self.defined.retain(|(at, _), _| at != node);
        self.running.retain(|_, (at, _)| at != node);
        self.zombies.retain(|_, (at, _)| at != node);
        self.stored.retain(|(at, _)| keeps || at != node);
        self.owner.node_dead(node, life);
        self.lend();
    }

    /// A node is there again, in a new life.
    pub(super) fn restart(&mut self, node: &NodeId) {
        let entry = self.nodes.get_mut(node).expect("it is known");
        (entry.1, entry.2) = (Incarnation(entry.1.0 + 1), true);
        let life = entry.1;
        self.owner.node_up(node, life);
        self.owner.offers(node, life, offer(&["f@1"]));
        self.lend();
    }

    fn lend(&mut self) {
        let living = self.nodes.iter().filter(|(_, (_, _, lives))| *lives);
        let leases: Vec<_> =
            living.map(|(node, (slots, life, _))| (node.clone(), *life, Resources::cpu(slots * 1000))).collect();
        self.owner.leases(&leases);
        self.settle();
    }

    pub(super) fn attempt_of(&self, task: TaskId) -> (Attempt, NodeId) {
        let found = self.running.iter().find(|((id, _), _)| *id == task).expect("the task runs");
        (found.0.1, found.1.0.clone())
    }

    pub(super) fn runs(&self, task: TaskId) -> bool {
        self.running.keys().any(|(id, _)| *id == task)
    }

    pub(super) fn complete_with(&mut self, task: TaskId, outputs: &[Output], consumed: &[Consumed]) {
        let attempt = self.attempt_of(task).0;
        self.complete_attempt(task, attempt, outputs, consumed);
    }

    /// An attempt completes, whether or not it was cancelled.
    pub(super) fn complete_attempt(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        outputs: &[Output],
        consumed: &[Consumed],
    ) {
        let key = (task, attempt);
        let (node, _) = self.running.remove(&key).or_else(|| self.zombies.remove(&key)).expect("the attempt runs");
        self.stored.extend((0..outputs.len()).map(|index| (node.clone(), task.output(index as u32))));
        let figures = TaskFigures { micros: self.micros, ..TaskFigures::default() };
        let life = self.life(&node);
        self.owner.completed((&node, life), task, attempt, outputs, consumed, figures);
        self.settle();
    }

    pub(super) fn complete(&mut self, task: TaskId) {
        self.complete_with(task, &[output(8, 1)], &[]);
    }

    pub(super) fn fail(&mut self, task: TaskId, kind: FailureKind) {
        let attempt = self.attempt_of(task).0;
        self.fail_attempt(task, attempt, kind);
    }

    pub(super) fn fail_attempt(&mut self, task: TaskId, attempt: Attempt, kind: FailureKind) {
        let (node, spec) = self.running.remove(&(task, attempt)).expect("the attempt runs");
        // Those of several outputs may be sealed before the end.
        self.stored.extend((1..outputs_of(&spec)).map(|index| (node.clone(), task.output(index))));
        let life = self.life(&node);
        self.owner.failed((&node, life), task, attempt, TaskFailure::new(kind, "why"), None);
        self.settle();
    }

    /// An attempt did not find an argument.
    pub(super) fn lose_argument(&mut self, task: TaskId, attempt: Attempt, lost: LostObject) {
        let (node, _) = self.running.remove(&(task, attempt)).expect("the attempt runs");
        let life = self.life(&node);
        self.owner.failed((&node, life), task, attempt, TaskFailure::argument_lost("gone", [lost]), None);
        self.settle();
    }

    /// An attempt that was cancelled stops when it has sealed all outputs but the first.
    pub(super) fn stop(&mut self, (task, attempt): (TaskId, Attempt)) {
        let (node, spec) = self.zombies.remove(&(task, attempt)).expect("it runs on");
        let outputs = outputs_of(&spec);
        self.stored.extend((1..outputs).map(|index| (node.clone(), task.output(index))));
        let life = self.life(&node);
        self.owner.stopped((&node, life), task, outputs);
        self.settle();
    }

    pub(super) fn release(&mut self, task: TaskId) {
        self.owner.release_object(task.output(0));
        self.settle();
    }
}

pub(super) fn outputs_of(spec: &TaskSpec) -> u32 {
    if let Returns::Many(n) = spec.returns { n } else { 1 }
}

pub(super) fn output(bytes: u64, rows: u64) -> Output {
    Output { bytes, rows, row_hash: RowHash(u128::from(rows)) }
}

pub(super) fn whole(task: TaskId) -> Arg {
    Arg { source: Source::Object(task.output(0)), parts: Parts::All }
}

#[test]
fn a_task_runs_when_its_arguments_exist() {
    let mut world = World::new(&[("n", 2)]);
    let first = world.submit("first", &[]);
    let second = world.submit("second", &[whole(first)]);
    assert!(world.runs(first) && !world.runs(second));
    world.complete(first);
    assert!(world.runs(second));
    let (_, spec) = &world.running[&(second, Attempt(1))];
    assert_eq!(spec.args[0].at, Some(node("n")), "it is told where the argument is");
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
        assert_eq!(world.attempt_of(task).0, Attempt(attempt));
        world.fail(task, FailureKind::Error);
    }
    assert!(!world.runs(task) && !world.runs(dependent));
    let error = world.resolved[&1].clone().unwrap_err();
    assert!(matches!(&error, JobError::Task { task: failed, attempt: Attempt(3), .. } if *failed == task), "{error}");
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
fn a_failure_that_nobody_saw_fails_the_job() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    world.fail(task, FailureKind::Final);
    assert!(matches!(world.owner.close(), Err(JobError::Task { .. })));
}

#[test]
fn messages_of_ended_attempts_and_older_lives_are_dropped() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    let old = world.attempt_of(task).0;
    world.fail(task, FailureKind::Panic);
    let figures = TaskFigures::default();
    world.owner.completed((&node("n"), LIFE), task, old, &[output(8, 1)], &[], figures);
    world.settle();
    assert!(world.runs(task), "the second attempt goes on");
    world.owner.completed((&node("n"), Incarnation(0)), task, Attempt(2), &[output(8, 1)], &[], figures);
    world.settle();
    assert!(world.owner.lookup(task.output(0)).is_none(), "an older life of the node completes nothing");
    world.complete(task);
    assert!(world.owner.lookup(task.output(0)).is_some());
}

#[test]
fn a_second_completion_with_other_rows_fails_the_job() {
    let mut world = World::new(&[("n", 2)]);
    let task = world.submit("t", &[]);
    world.complete_with(task, &[output(8, 1)], &[]);
    world.stored.insert((node("m"), task.output(0)));
    world.owner.completed((&node("m"), LIFE), task, Attempt(9), &[output(8, 1)], &[], TaskFigures::default());
    world.settle();
    assert_eq!(world.failed, None);
    assert_eq!(world.freed, [(node("m"), task.output(0))], "the second copy goes");
    world.owner.completed((&node("m"), LIFE), task, Attempt(9), &[output(8, 2)], &[], TaskFigures::default());
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
        world.owner.recalled(&at, task, attempt);
        world.settle();
    }
    assert_eq!(world.attempt_of(task).0, Attempt(6), "numbers are never used twice");
    world.complete(task);
    assert!(world.owner.lookup(task.output(0)).is_some());
}

#[test]
fn cancelling_ends_attempts_and_submitting_again_is_a_new_one() {
    let mut world = World::new(&[("n", 1)]);
    let task = world.submit("t", &[]);
    let dependent = world.submit("d", &[whole(task)]);
    world.owner.track(dependent.output(0), 1);
    world.owner.cancel(task);
    world.settle();
    assert_eq!(world.cancelled, [(task, Attempt(1))]);
    assert_eq!(world.resolved[&1], Err(JobError::Cancelled));
    world.submit("t", &[]);
    assert_eq!(world.attempt_of(task).0, Attempt(2));
    assert_eq!(world.owner.close(), Ok(()));
}

#[test]
fn what_a_cancelled_attempt_seals_before_it_stops_is_freed_unless_another_one_counts() {
    let mut world = World::new(&[("n", 1)]);
    let several = TaskOptions { returns: Returns::Many(3), ..TaskOptions::default() };
    let task = world.submit_with("t", &[], several.clone());
    world.owner.cancel(task);
    world.settle();
    world.stop((task, Attempt(1)));
    assert_eq!(world.freed, [1, 2].map(|index| (node("n"), task.output(index))));
    assert_eq!(world.stored, BTreeSet::new());

    // Submitted again, and made there, before the next one stops.
    world.submit_with("t", &[], several.clone());
    world.owner.cancel(task);
    world.settle();
    world.submit_with("t", &[], several);
    world.complete_with(task, &[output(8, 1); 3], &[]);
    world.stop((task, Attempt(2)));
    assert_eq!(world.stored.len(), 3, "what counts stays");
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
        world.owner.yielded((&at, LIFE), task, attempt, index, output(8, 1));
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
    world.owner.leases(&[(node("a"), LIFE, Resources::cpu(1000)), (node("b"), LIFE, Resources::cpu(1000))]);
    world.owner.offers(&node("b"), LIFE, offer(&["f@1"]));
    world.settle();
    assert_eq!(world.attempt_of(task).1, node("b"));
}

fn lease(name: &str, slots: u64) -> (NodeId, Incarnation, Resources) {
    (node(name), LIFE, Resources::cpu(slots * 1000))
}

#[test]
fn a_task_waits_for_a_node_that_has_its_function_and_says_so() {
    let mut world = World::new(&[]);
    world.owner.leases(&[lease("bare", 4)]);
    let task = world.submit("t", &[]);
    assert!(!world.runs(task));
    assert_eq!(world.owner.unheard().collect::<Vec<_>>(), [&node("bare")]);
    assert_eq!(world.owner.unplaced()[0].1, "1 tasks wait to hear which functions bare has");

    world.owner.offers(&node("bare"), LIFE, offer(&["g@1"]));
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
    world.owner.offers(&node("able"), LIFE, offer(&["f@1"]));
    world.settle();
    assert_eq!(world.attempt_of(task).1, node("able"));
}

#[test]
fn tasks_that_lack_a_node_hold_up_no_others() {
    let mut world = World::new(&[]);
    world.owner.leases(&[lease("bare", 1)]);
    world.owner.offers(&node("bare"), LIFE, offer(&["g@1"]));
    let stuck = world.submit("stuck", &[]);
    let description = Description { function: "g@1".into(), ..World::description("t", &[], TaskOptions::default()) };
    let id = description.id(JOB);
    world.owner.submit(id, description);
    world.settle();
    assert!(world.runs(id) && !world.runs(stuck));
    world.complete(id);
    world.owner.cancel(stuck);
    world.settle();
    assert_eq!(world.owner.unplaced(), [], "it is in no queue any more");
}

#[test]
fn a_new_life_of_a_node_is_heard_before_it_gets_anything() {
    let mut world = World::new(&[("a", 1)]);
    let later = Incarnation(2);
    world.owner.leases(&[(node("a"), later, Resources::cpu(1000))]);
    let task = world.submit("t", &[]);
    assert!(!world.runs(task), "what the life before had is no promise");
    world.owner.offers(&node("a"), LIFE, offer(&["f@1"]));
    world.settle();
    assert!(!world.runs(task), "a word of the life before");
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
    world.owner.offers(&node("b"), LIFE, offer(&[]));
    world.settle();
    let function = Some("f@1".into());
    assert_eq!(world.demand, [Demand { resources: Resources::cpu(1000), node: None, function, slots: 4 }]);
}

/// What a random program and random nodes do.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        args: Vec<prop::sample::Index>,
        outputs: u32,
    },
    Repeat(prop::sample::Index),
    Set(Vec<prop::sample::Index>),
    Complete(prop::sample::Index),
    Fail(prop::sample::Index),
    Recall(prop::sample::Index),
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    /// A node says that an attempt has been running for long.
    Slow(prop::sample::Index),
    /// An attempt that was cancelled completes.
    Late(prop::sample::Index),
    /// An attempt that was cancelled stops.
    Stop(prop::sample::Index),
    /// A node dies, and what it held with it, or not.
    Crash(prop::sample::Index, bool),
    /// A node comes back.
    Restart(prop::sample::Index),
    /// An argument of an attempt is not where it should be.
    Lost(prop::sample::Index, prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let any = || any::<prop::sample::Index>();
    prop_oneof![
        4 => (prop::collection::vec(any(), 0..3), 1..4u32).prop_map(|(args, outputs)| Step::Submit { args, outputs }),
        1 => any().prop_map(Step::Repeat),
        1 => prop::collection::vec(any(), 0..4).prop_map(Step::Set),
        5 => any().prop_map(Step::Complete),
        1 => any().prop_map(Step::Fail),
        1 => any().prop_map(Step::Recall),
        1 => any().prop_map(Step::Cancel),
        3 => any().prop_map(Step::Release),
        2 => any().prop_map(Step::Slow),
        1 => any().prop_map(Step::Late),
        1 => any().prop_map(Step::Stop),
        1 => (any(), proptest::bool::ANY).prop_map(|(node, keeps)| Step::Crash(node, keeps)),
        2 => any().prop_map(Step::Restart),
        1 => (any(), any()).prop_map(|(attempt, object)| Step::Lost(attempt, object)),
    ]
}

/// What the program holds.
#[derive(Clone, Copy)]
enum Held {
    Object(ObjectId),
    Set(SetId),
}

impl Held {
    fn arg(self) -> Arg {
        let source = match self {
            Self::Object(object) => Source::Object(object),
            Self::Set(set) => Source::Set(set),
        };
        Arg { source, parts: Parts::All }
    }
}

/// Completes an attempt with all its outputs.
fn complete_all(world: &mut World, (task, attempt): (TaskId, Attempt)) {
    let (_, spec) = world.running.get(&(task, attempt)).unwrap_or_else(|| &world.zombies[&(task, attempt)]);
    let outputs = outputs_of(spec) as usize;
    world.complete_attempt(task, attempt, &vec![output(8, 1); outputs], &[]);
}

/// Whether what the Owner thinks exists does.
fn what_counts_is_stored(world: &World) -> bool {
    let here = world.owner.objects.iter().filter(|(_, object)| object.value == Value::Here);
    let place = |object: &Object| (world.owner.holder(object).expect("it has bytes"), object.id);
    here.map(|(_, object)| place(object)).all(|place| world.stored.contains(&place))
}

fn drop_held(world: &mut World, held: Held) {
    match held {
        Held::Object(object) => world.owner.release_object(object),
        Held::Set(set) => world.owner.release_set(set),
    }
}

fn do_step(world: &mut World, held: &mut Vec<Held>, submitted: &mut Vec<Description>, step: Step) {
    let running = |world: &World, at: &prop::sample::Index| {
        (!world.running.is_empty()).then(|| *world.running.keys().nth(at.index(world.running.len())).unwrap())
    };
    match step {
        Step::Submit { args, outputs } => {
            let args: Vec<_> =
                if held.is_empty() { vec![] } else { args.iter().map(|at| held[at.index(held.len())].arg()).collect() };
            let returns = if outputs == 1 { Returns::One } else { Returns::Many(outputs) };
            let options = TaskOptions { returns, ..TaskOptions::default() };
            let description = World::description(&format!("t{}", submitted.len()), &args, options);
            let id = description.id(JOB);
            submitted.push(description.clone());
            world.owner.submit(id, description);
            held.extend((0..outputs).map(|index| Held::Object(id.output(index))));
        }
        Step::Repeat(at) => {
            // Only what has no arguments: those of others may have been released.
            let again: Vec<_> = submitted.iter().filter(|description| description.args.is_empty()).collect();
            if !again.is_empty() {
                let description = again[at.index(again.len())].clone();
                let id = description.id(JOB);
                let outputs = match description.options.returns {
                    Returns::Many(n) => n,
                    _ => 1,
                };
                world.owner.submit(id, description);
                held.extend((0..outputs).map(|index| Held::Object(id.output(index))));
            }
        }
        Step::Set(members) => {
            let objects: Vec<_> = held
                .iter()
                .filter_map(|held| if let Held::Object(object) = held { Some(*object) } else { None })
                .collect();
            if !objects.is_empty() {
                let members: Vec<_> = members.iter().map(|at| objects[at.index(objects.len())]).collect();
                let set = SetId::of(&members);
                world.owner.make_set(set, &members, None);
                held.push(Held::Set(set));
            }
        }
        Step::Complete(at) => {
            if let Some(attempt) = running(world, &at) {
                complete_all(world, attempt);
            }
        }
        Step::Fail(at) => {
            if let Some((task, attempt)) = running(world, &at) {
                world.fail_attempt(task, attempt, FailureKind::Error);
            }
        }
        Step::Recall(at) => {
            if let Some((task, attempt)) = running(world, &at) {
                let (at, _) = world.running.remove(&(task, attempt)).unwrap();
                world.owner.recalled(&at, task, attempt);
            }
        }
        Step::Slow(at) => {
            if let Some((task, attempt)) = running(world, &at) {
                let node = world.running[&(task, attempt)].0.clone();
                world.owner.still_running(&node, &[StillRunning { task, attempt, micros: u64::MAX }]);
            }
        }
        Step::Late(at) => {
            if !world.zombies.is_empty() {
                let attempt = *world.zombies.keys().nth(at.index(world.zombies.len())).unwrap();
                complete_all(world, attempt);
            }
        }
        Step::Stop(at) => {
            if !world.zombies.is_empty() {
                let attempt = *world.zombies.keys().nth(at.index(world.zombies.len())).unwrap();
                world.stop(attempt);
            }
        }
        Step::Crash(at, keeps) => {
            let node = world.nodes.keys().nth(at.index(world.nodes.len())).unwrap().clone();
            if world.nodes[&node].2 {
                world.crash(&node, keeps);
            }
        }
        Step::Restart(at) => {
            let node = world.nodes.keys().nth(at.index(world.nodes.len())).unwrap().clone();
            if !world.nodes[&node].2 {
                world.restart(&node);
            }
        }
        Step::Lost(attempt, object) => {
            let reads = |spec: &TaskSpec| !spec.args.is_empty();
            let reading: Vec<_> =
                world.running.iter().filter(|(_, (_, spec))| reads(spec)).map(|(key, _)| *key).collect();
            let stored: Vec<_> = world.stored.iter().cloned().collect();
            if !reading.is_empty() && !stored.is_empty() {
                let (task, attempt) = reading[attempt.index(reading.len())];
                let (node, object) = stored[object.index(stored.len())].clone();
                let loss = if object.0 % 2 == 0 { Loss::Gone } else { Loss::Unreachable };
                // Of who was told where things were before some were lost, the Owner believes nothing: then it is not so.
                let old =
                    world.owner.find_task(task).is_some_and(|at| world.owner.reading.contains_key(&(at, attempt)));
                if loss == Loss::Gone && !old {
                    world.stored.remove(&(node.clone(), object));
                }
                world.lose_argument(task, attempt, LostObject { object, node, loss });
            }
        }
        Step::Cancel(at) => {
            if let Some((task, _)) = running(world, &at) {
                world.owner.cancel(task);
            }
        }
        Step::Release(at) => {
            if !held.is_empty() {
                let released = held.swap_remove(at.index(held.len()));
                drop_held(world, released);
            }
        }
    }
    world.settle();
}

#[test]
fn a_node_that_comes_back_under_another_life_unnoticed_has_lost_its_attempts() {
    let mut world = World::new(&[("a", 1)]);
    let task = world.submit("t", &[]);
    let tracker: Tracker = 1;
    world.owner.track(task.output(0), tracker);
    assert_eq!(world.running.len(), 1);
    world.running.clear();
    // The Scheduler has heard of its next life; nobody called it dead.
    world.owner.leases(&[(node("a"), Incarnation(2), Resources::cpu(1000))]);
    world.owner.offers(&node("a"), Incarnation(2), offer(&["f@1"]));
    world.settle();
    assert_eq!(world.running.keys().collect::<Vec<_>>(), [&(task, Attempt(2))], "made again");
    // What the life before says in the end does not count.
    let output = Output { bytes: 1, rows: 1, row_hash: RowHash(1) };
    let figures = TaskFigures::default();
    world.owner.completed((&node("a"), LIFE), task, Attempt(1), &[output], &[], figures);
    world.owner.completed((&node("a"), LIFE), task, Attempt(2), &[output], &[], figures);
    world.settle();
    assert!(!world.resolved.contains_key(&tracker));
    world.owner.completed((&node("a"), Incarnation(2)), task, Attempt(2), &[output], &[], figures);
    world.settle();
    assert_eq!(world.resolved.get(&tracker), Some(&Ok(())));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_task_ends_once_and_nothing_is_left(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        let (mut held, mut submitted) = (Vec::new(), Vec::new());
        for step in steps {
            do_step(&mut world, &mut held, &mut submitted, step);
            prop_assert!(what_counts_is_stored(&world));
        }
        prop_assert_eq!(&world.failed, &None);
        let dead: Vec<_> = world.nodes.iter().filter(|(_, (_, _, lives))| !lives).map(|(node, _)| node.clone()).collect();
        dead.iter().for_each(|node| world.restart(node));
        // Everything that runs completes, and with it all that waits.
        while let Some(attempt) = world.running.keys().next().copied() {
            complete_all(&mut world, attempt);
        }
        let waiting: BTreeSet<_> = held.iter().filter_map(|held| match held {
            Held::Object(object) => Some(*object),
            Held::Set(_) => None,
        }).collect();
        for (tracker, object) in waiting.iter().enumerate() {
            world.owner.track(*object, tracker as Tracker);
            world.settle();
            while let Some(attempt) = world.running.keys().next().copied() {
                complete_all(&mut world, attempt);
            }
            prop_assert!(world.resolved.contains_key(&(tracker as Tracker)), "whoever waits is told");
        }
        for held in held {
            drop_held(&mut world, held);
        }
        world.settle();
        while let Some(attempt) = world.zombies.keys().next().copied() {
            complete_all(&mut world, attempt);
        }
        prop_assert_eq!(&world.failed, &None);
        prop_assert_eq!(world.owner.sizes(), (0, 0, 0));
        prop_assert_eq!(world.owner.counts().running, 0);
        prop_assert!(world.owner.copied.is_empty());
        prop_assert_eq!(world.stored, BTreeSet::new());
    }
}
