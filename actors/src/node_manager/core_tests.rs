//! What a NodeManager wants done, event by event, without anything around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::StoreStats;

use super::actor::test_world;
use super::core::{Completed, Listeners, NodeCore, NodeCounts, NodeEffect, TICK};
use super::event::{FiguresTaken, NodeEvent, NodeTimer, StagingDone};
use super::executor::{Flags, Report};
use super::state::Key;
use super::waits::Waits;
use crate::event::{NodeFigures, Received};
use crate::ids::{Attempt, CopyId, CopyNumber, Incarnation, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::protocol::copies::Whereabouts;
use crate::protocol::node_manager::{Doing, NodeMsg};
use crate::protocol::owner::OwnerMsg;
use crate::registry::{Function, TaskContext};
use crate::task::{
    FailureKind, LocatedArg, LocatedSource, Output, Parts, Resources, Returns, TaskFailure, TaskFigures, TaskSpec,
};

const JOB: JobId = JobId::from_u128(1);
const SET: SetId = SetId::from_u128(9);
const EXECUTORS: usize = 2;

static FUNCTION: Function = Function {
    name: "test",
    version: 1,
    modes: &[],
    setup: None,
    deterministic: true,
    module: module_path!(),
    call: |_: &mut TaskContext<'_>, _: &[u8]| Ok(()),
};

fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

fn key(task: u128) -> Key {
    (JOB, TaskId::from_u128(task << 64), Attempt::FIRST)
}

fn object(number: u128) -> ObjectId {
    ObjectId::from_u128(number << 32)
}

fn copy(number: u128) -> CopyId {
    object(number).copy(JOB, CopyNumber::FIRST)
}

fn number_of((_, task, _): Key) -> u128 {
    task.as_u128() >> 64
}

fn spec(task: u128) -> TaskSpec {
    test_world::World::spec(task, Attempt::FIRST, Returns::Many(2))
}

fn set_arg(version: u32) -> LocatedArg {
    LocatedArg { source: LocatedSource::Set { set: SET, version }, parts: Parts::All }
}

fn object_arg(number: u128, at: &str) -> LocatedArg {
    let source = LocatedSource::Object { object: object(number), at: Some((node(at), CopyNumber::FIRST)) };
    LocatedArg { source, parts: Parts::All }
}

/// A set of one object, in a version of the first run.
fn define(version: u32, at: Whereabouts) -> NodeMsg {
    let members = [(object(1), at)].into_iter().collect();
    NodeMsg::DefineSet { job: JOB, run: 0, set: SET, version, start: 0, total: 1, members }
}

fn here() -> Whereabouts {
    Whereabouts::At(node("here"), CopyNumber::FIRST)
}

fn inventory(owner: &str, run: u32) -> NodeMsg {
    NodeMsg::TakeInventory { job: JOB, owner: node(owner), run }
}

struct World {
    core: NodeCore<()>,
    now: Duration,
    /// What executors have been given.
    handed: BTreeMap<Key, Arc<Flags>>,
}

impl World {
    /// A node with two executors.
    fn new() -> Self {
        let functions = BTreeMap::from([("test@1".into(), &FUNCTION)]);
        let me = (node("here"), Incarnation(1));
        let core = NodeCore::new(me, EXECUTORS, Resources::cpu(1000 * EXECUTORS as u64), functions);
        Self { core, now: Duration::ZERO, handed: BTreeMap::new() }
    }

    /// What is wanted when this happens.
    fn on(&mut self, event: impl Into<NodeEvent<()>>) -> Vec<String> {
        self.core.on(event.into(), None, self.now);
        self.core.flush(self.now);
        let effects = self.core.effects();
        for effect in &effects {
            if let NodeEffect::Hand { spec, flags, .. } = effect {
                self.handed.insert((spec.job, spec.id, spec.attempt), flags.clone());
            }
        }
        effects.into_iter().map(said).collect()
    }

    fn run(&mut self, spec: TaskSpec) -> Vec<String> {
        self.on(NodeMsg::Run { owner: node("a"), spec: spec.into() })
    }

    /// An attempt comes to an executor, and starts.
    fn runs(&mut self, spec: TaskSpec) {
        let key = (spec.job, spec.id, spec.attempt);
        assert_eq!(self.run(spec), [format!("hand {}", number_of(key))]);
        assert!(self.handed[&key].start(self.now));
    }

    fn finished(&mut self, task: u128, outcome: Result<Vec<Output>, TaskFailure>) -> Vec<String> {
        let ((job, task, attempt), figures) = (key(task), TaskFigures::default());
        let outcome = outcome.map(|outputs| (outputs, Vec::new()));
        self.on(NodeEvent::Executor(Report::Finished { job, task, attempt, outcome, figures, value: None }))
    }

    fn cancel(&mut self, task: u128) -> Vec<String> {
        let (job, task, attempt) = key(task);
        self.on(NodeMsg::Cancel { job, task, attempt })
    }

    fn tick(&mut self) -> Vec<String> {
        self.now += TICK;
        self.on(NodeEvent::Timer(NodeTimer::Tick))
    }
}

fn message(message: OwnerMsg) -> String {
    let of = |task, attempt| number_of((JOB, task, attempt));
    match message {
        OwnerMsg::TakenOver { run } => format!("run {run} has begun"),
        OwnerMsg::Recalled { task, attempt, .. } => format!("{} is recalled", of(task, attempt)),
        OwnerMsg::Failed { task, attempt, failure, .. } => format!("{} failed: {:?}", of(task, attempt), failure.kind),
        OwnerMsg::Completed { task, attempt, .. } => format!("{} was completed", of(task, attempt)),
        OwnerMsg::Yielded { task, attempt, index, .. } => format!("{}.{index}", of(task, attempt)),
        OwnerMsg::NodeFigures { received, last, running, .. } => {
            let received: Vec<_> = received.iter().map(|from| format!("{} of {}", from.bytes, from.from)).collect();
            format!("figures: {received:?}, {} running, last: {last}", running.len())
        }
        other => format!("{other:?}"),
    }
}

/// Outputs of the tasks of these tests by task and index, other objects by their number.
fn named(copies: &[CopyId]) -> String {
    let name = |copy: &CopyId| {
        let (object, _) = ObjectId::of_copy(*copy);
        let mut outputs = (1..=5).flat_map(|task| (0..2).map(move |index| (task, index)));
        match outputs.find(|(task, index)| key(*task).1.output(*index) == object) {
            Some((task, index)) => format!("{task}.{index}"),
            None => (object.as_u128() >> 32).to_string(),
        }
    };
    copies.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn said(effect: NodeEffect<()>) -> String {
    match effect {
        NodeEffect::Tell { owner, message, .. } => format!("tell {owner}: {}", self::message(message)),
        NodeEffect::TellCompleted { key, owner, completed: Completed { values, .. }, small } => {
            let small: Vec<_> = small.into_iter().map(|(index, _)| index).collect();
            format!("tell {owner}: {} is completed, {} values and {small:?}", number_of(key), values.len())
        }
        NodeEffect::TellFailed { key, owner, failure, read, .. } => {
            format!("tell {owner}: {} failed: {:?}, having read {}", number_of(key), failure.kind, named(&read))
        }
        NodeEffect::AskForSet { key, owner, .. } => format!("ask {owner} for the set of {}", number_of(key)),
        NodeEffect::TellInventory { owner, .. } => format!("inventory for {owner}"),
        NodeEffect::TellDoing { attempts, .. } => format!("answer for {}", attempts.len()),
        NodeEffect::TellHolds => "holds".to_owned(),
        NodeEffect::TakeFigures(listeners) => format!("figures for {listeners:?}"),
        NodeEffect::Follow { owner, .. } => format!("follow {owner}"),
        NodeEffect::Forget(_) => "forget".to_owned(),
        NodeEffect::Stage { key, arguments, .. } => {
            let names: Vec<_> = arguments.iter().flatten().map(|piece| piece.name).collect();
            format!("stage {}: {}", number_of(key), named(&names))
        }
        NodeEffect::CannotStage { key, failure } => format!("cannot stage {}: {:?}", number_of(key), failure.kind),
        NodeEffect::Hand { spec, .. } => format!("hand {}", number_of((spec.job, spec.id, spec.attempt))),
        NodeEffect::Delete(copies) => format!("delete {}", named(&copies)),
        NodeEffect::DeleteJob(_) => "delete the job".to_owned(),
        NodeEffect::Release { copies, .. } => format!("release of {}", named(&copies)),
        NodeEffect::SuspectUnreachable(nodes) => format!("suspect {nodes:?}"),
        NodeEffect::After(delay, timer) => format!("{timer:?} after {delay:?}"),
        NodeEffect::Count(_) => "count".to_owned(),
        NodeEffect::Stale => "stale".to_owned(),
    }
}

#[test]
fn the_owner_of_an_earlier_run_is_turned_away_and_told_so() {
    let mut world = World::new();
    assert_eq!(world.on(inventory("b", 1)), ["follow b", "inventory for b"]);
    assert_eq!(world.run(spec(1)), ["tell a: run 1 has begun", "stale"]);
    assert_eq!(world.on(inventory("a", 0)), ["tell a: run 1 has begun"]);
    let parts = NodeMsg::FreeParts { job: JOB, run: 0, set: SET, version: 0, parts: Parts::All };
    for late in [define(1, here()), parts] {
        assert_eq!(world.on(late), ["stale"]);
    }
    assert_eq!(world.core.counts(), NodeCounts { attempts: 0, waiting: 0, handed: 0, sets: 0, jobs: 1 });
    let attempt = Attempt::of(CopyNumber::new(1, 1).unwrap());
    assert_eq!(world.run(TaskSpec { attempt, ..spec(1) }), ["hand 1"]);
}

#[test]
fn who_hands_out_an_attempt_of_a_later_run_is_obeyed_though_an_earlier_owner_has_ended_the_job_here_since() {
    let mut world = World::new();
    assert_eq!(world.on(inventory("b", 1)), ["follow b", "inventory for b"]);
    world.on(NodeMsg::EndJob { job: JOB });
    world.on(NodeMsg::Watch { job: JOB, owner: node("a"), sample_ms: 0, tenant: "default".into() });
    let attempt = Attempt::of(CopyNumber::new(1, 1).unwrap());
    let told = world.on(NodeMsg::Run { owner: node("b"), spec: TaskSpec { attempt, ..spec(1) }.into() });
    assert_eq!(told, ["tell a: run 1 has begun", "follow b", "hand 1"]);
    assert_eq!(world.run(spec(2)), ["tell a: run 1 has begun", "stale"]);
}

#[test]
fn a_cancelled_attempt_takes_with_it_what_it_made() {
    let failed = || Err(TaskFailure::new(FailureKind::Cancelled, ""));
    let outputs = || Ok(vec![Output::default(); 2]);
    for (returns, outcome, ends) in [
        (Returns::Many(2), outputs(), vec!["delete 1.0, 1.1", "tell a: 1 was completed"]),
        (Returns::Many(2), failed(), vec!["delete 1.0, 1.1"]),
        (Returns::One, failed(), vec!["delete 1.0"]),
        // Its Owner was told of what it had sealed, and frees it.
        (Returns::Stream, failed(), vec![]),
    ] {
        let mut world = World::new();
        world.on(NodeMsg::Watch { job: JOB, owner: node("a"), sample_ms: 0, tenant: "default".into() });
        world.runs(TaskSpec { returns, ..spec(1) });
        assert_eq!(world.cancel(1), [""; 0]);
        assert_eq!(world.core.counts().attempts, 1, "it runs on");
        let doing = world.core.doing(JOB, &[(key(1).1, key(1).2)], &StoreStats::default(), world.now);
        assert_eq!(doing[0].doing, Doing::Cancelled);
        assert_eq!(world.finished(1, outcome), ends);
        assert_eq!(world.core.counts().attempts, 0);
    }
}

#[test]
fn a_cancelled_attempt_that_has_not_started_is_gone() {
    let mut world = World::new();
    assert_eq!(world.run(spec(1)), ["hand 1"]);
    assert_eq!(world.cancel(1), [""; 0]);
    assert_eq!(world.core.counts().attempts, 0);
    assert!(!world.handed[&key(1)].start(world.now), "no executor starts it");
}

#[test]
fn an_attempt_is_recalled_wherever_it_is_unless_an_executor_has_begun_it() {
    let mut world = World::new();
    world.runs(spec(1));
    assert_eq!(world.run(spec(2)), ["hand 2"]);
    assert_eq!(world.run(spec(3)), [""; 0], "ready, and there is no executor for it");
    let reads = |task| TaskSpec { args: vec![object_arg(7, "there")], ..spec(task) };
    assert_eq!(world.run(reads(4)), ["stage 4: 7"]);
    assert_eq!(world.run(reads(5)), ["stage 5: 7"]);
    assert_eq!(world.run(reads(6)), [""; 0], "queued");
    let recall = || NodeMsg::Recall { job: JOB, tasks: (1..=7).map(|task| (key(task).1, key(task).2)).collect() };
    let recalled: Vec<_> = (2..=6).map(|task| format!("tell a: {task} is recalled")).collect();
    assert_eq!(world.on(recall()), recalled);
    assert!(!world.handed[&key(2)].start(world.now), "no executor starts it");
    assert_eq!(world.core.counts().attempts, 1, "the one that has begun runs on");
    assert_eq!(world.on(recall()), [""; 0]);
    let staged = NodeEvent::Staged(Box::new(StagingDone { key: key(4), outcome: Ok(((), Waits::default())) }));
    assert_eq!(world.on(staged), [""; 0], "its arguments come in vain");
    assert_eq!(world.finished(1, Ok(vec![])), ["tell a: 1 is completed, 0 values and []"]);
    for task in 7..=8 {
        assert_eq!(world.run(spec(task)), [format!("hand {task}")], "all executors are free again");
    }
}

#[test]
fn with_an_incarnation_of_a_node_its_attempts_end_whether_they_have_begun_or_not() {
    let mut world = World::new();
    world.runs(spec(1));
    assert_eq!(world.run(spec(2)), ["hand 2"]);
    world.core.end();
    assert!(world.handed[&key(1)].is_cancelled(), "it is asked to stop");
    assert!(!world.handed[&key(2)].start(world.now), "no executor starts it");
    assert!(!world.handed[&key(2)].is_cancelled(), "nobody is to look");
    assert!(world.core.effects().is_empty(), "its Owner hears that the incarnation is over");
}

#[test]
fn an_inventory_takes_back_all_attempts_before_it_is_told() {
    let mut world = World::new();
    world.runs(spec(1));
    world.runs(spec(2));
    assert_eq!(world.run(spec(3)), [""; 0]);
    assert_eq!(world.run(TaskSpec { args: vec![object_arg(7, "there")], ..spec(4) }), ["stage 4: 7"]);
    world.on(NodeMsg::Watch { job: JOB, owner: node("a"), sample_ms: 0, tenant: "default".into() });
    let told = [
        "tell a: run 0 has begun",
        "follow b",
        "tell b: 1 is recalled",
        "tell b: 2 is recalled",
        "tell b: 3 is recalled",
        "tell b: 4 is recalled",
        "inventory for b",
    ];
    assert_eq!(world.on(inventory("b", 0)), told);
    assert_eq!(world.core.counts().attempts, 2, "those that have started run on");
    // What comes of them is nobody's, and the next Owner hears of it.
    assert_eq!(world.finished(1, Ok(vec![])), ["delete 1.0, 1.1", "tell b: 1 was completed"]);
    let key = key(4);
    let staged = NodeEvent::Staged(Box::new(StagingDone { key, outcome: Ok(((), Waits::default())) }));
    assert_eq!(world.on(staged), [""; 0], "its arguments come in vain");
}

#[test]
fn an_inventory_comes_in_parts_the_last_of_which_says_so() {
    let world = World::new();
    for (held, parts) in [(0, vec![0]), (1, vec![1]), (2048, vec![2048]), (5000, vec![2048, 2048, 904])] {
        let held: Vec<_> = (1..=held).map(|number| (copy(number), 1, Output::default())).collect();
        let messages = world.core.inventory(&held).into_iter().map(|message| match message {
            OwnerMsg::Inventory { copies, makers, outputs, last, .. } => {
                assert_eq!((makers.len(), outputs.len()), (copies.len(), copies.len()));
                (copies.len(), last)
            }
            other => panic!("{other:?}"),
        });
        let last = parts.len() - 1;
        let parts: Vec<_> = parts.into_iter().enumerate().map(|(index, copies)| (copies, index == last)).collect();
        assert_eq!(messages.collect::<Vec<_>>(), parts);
    }
}

#[test]
fn a_set_is_asked_for_that_is_not_known_in_the_version_that_an_attempt_means() {
    let reads = |version| TaskSpec { args: vec![set_arg(version)], ..spec(1) };
    let asks = vec!["ask a for the set of 1", "cannot stage 1: ArgumentLost"];
    let fails = vec!["cannot stage 1: ArgumentLost"];
    let stages = vec!["stage 1: 1"];
    for (known, wants, told) in [
        (None, 0, asks.clone()),
        (Some(define(1, here())), 2, asks),
        (Some(define(2, here())), 2, stages.clone()),
        (Some(define(3, here())), 2, stages),
        // It is known, and there is nothing to ask for.
        (Some(define(2, Whereabouts::Lost)), 2, fails),
    ] {
        let mut world = World::new();
        known.into_iter().for_each(|define| drop(world.on(define)));
        let run = NodeEvent::Wire(NodeMsg::Run { owner: node("a"), spec: reads(wants).into() });
        assert_eq!(world.core.arguments_of(&run).is_some(), told[0].starts_with("stage"), "nothing else is tried");
        assert_eq!(world.on(run), told);
        if !told[0].starts_with("stage") {
            let outcome = Err(TaskFailure::new(FailureKind::ArgumentLost, ""));
            let failed = world.on(NodeEvent::Staged(Box::new(StagingDone { key: key(1), outcome })));
            assert_eq!(failed, ["tell a: 1 failed: ArgumentLost"]);
        }
        assert_eq!(world.core.counts().attempts, usize::from(told[0].starts_with("stage")));
    }
}

#[test]
fn an_attempt_that_cannot_be_staged_makes_room_for_the_next() {
    let mut world = World::new();
    let reads = |task| TaskSpec { args: vec![object_arg(7, "there")], ..spec(task) };
    let staged: Vec<_> = (1..=3).flat_map(|task| world.run(reads(task))).collect();
    assert_eq!(staged, ["stage 1: 7", "stage 2: 7", "stage 3: 7"]);
    assert_eq!(world.run(TaskSpec { args: vec![set_arg(0)], ..spec(4) }), [""; 0]);
    assert_eq!(world.run(reads(5)), [""; 0]);
    let outcome = Err(TaskFailure::new(FailureKind::Denied, ""));
    let told = ["tell a: 2 failed: Denied", "ask a for the set of 4", "cannot stage 4: ArgumentLost"];
    assert_eq!(world.on(NodeEvent::Staged(Box::new(StagingDone { key: key(2), outcome }))), told);
    let outcome = Err(TaskFailure::new(FailureKind::ArgumentLost, ""));
    let told = ["tell a: 4 failed: ArgumentLost", "stage 5: 7"];
    assert_eq!(world.on(NodeEvent::Staged(Box::new(StagingDone { key: key(4), outcome }))), told);
}

#[test]
fn a_set_that_comes_soon_after_the_attempts_that_read_it_fails_few_of_them() {
    let mut world = World::new();
    let reads = |task| TaskSpec { args: vec![set_arg(1)], ..spec(task) };
    let told: Vec<_> = (1..=100).flat_map(|task| world.run(reads(task))).collect();
    let fails = told.iter().filter(|told| told.starts_with("cannot stage")).count();
    assert!((1..=EXECUTORS + 1).contains(&fails), "those that would have been staged: {told:?}");
    world.on(define(1, here()));
    let outcome = Err(TaskFailure::new(FailureKind::ArgumentLost, ""));
    let next = world.on(NodeEvent::Staged(Box::new(StagingDone { key: key(1), outcome })));
    assert!(next.iter().any(|told| told.starts_with("stage")), "{next:?}");
}

#[test]
fn an_attempt_that_asks_for_memory_is_staged_wherever_its_arguments_are() {
    type Asks = fn(TaskSpec) -> TaskSpec;
    let asks: [Asks; 3] = [
        |spec| TaskSpec { scratch_bytes: vec![1], ..spec },
        |spec| TaskSpec { outside_bytes: 1, ..spec },
        |spec| TaskSpec { memory_max_bytes: 1, ..spec },
    ];
    for asks in asks {
        let mut world = World::new();
        let spec1 = asks(TaskSpec { args: vec![object_arg(7, "here")], ..spec(1) });
        let run = NodeEvent::Wire(NodeMsg::Run { owner: node("a"), spec: spec1.into() });
        assert!(world.core.arguments_of(&run).is_none(), "its memory has to be granted");
        assert_eq!(world.on(run), ["stage 1: 7"]);
        let run = NodeEvent::Wire(NodeMsg::Run { owner: node("a"), spec: asks(spec(2)).into() });
        assert_eq!(world.on(run), ["stage 2: "], "without arguments, too");
    }
}

#[test]
fn what_is_there_at_once_is_not_staged() {
    let mut world = World::new();
    let run =
        || NodeMsg::Run { owner: node("a"), spec: TaskSpec { args: vec![object_arg(7, "here")], ..spec(1) }.into() };
    world.core.on(run().into(), Some(()), world.now);
    world.core.flush(world.now);
    assert_eq!(world.core.effects().into_iter().map(said).collect::<Vec<_>>(), ["hand 1"]);
    assert_eq!(world.on(run()), [""; 0], "it is known");
    let spec = TaskSpec { function: "other@1".into(), ..spec(2) };
    assert_eq!(world.run(spec), ["tell a: 2 failed: Rejected"]);
}

#[test]
fn an_attempt_that_ends_is_told_with_what_its_owner_wants_to_have() {
    let output = |bytes| Output { bytes, ..Output::default() };
    let error = || Err(TaskFailure::new(FailureKind::Error, ""));
    let cancelled = || Err(TaskFailure::new(FailureKind::Cancelled, ""));
    for (owner, outcome, told) in [
        ("a", Ok(vec![output(0), output(9)]), vec!["tell a: 1 is completed, 0 values and [1]"]),
        ("a", Ok(vec![output(2048), output(2049)]), vec!["tell a: 1 is completed, 0 values and [0]"]),
        ("a", Ok(vec![output(1); 17]), vec!["tell a: 1 is completed, 0 values and []"]),
        ("here", Ok(vec![output(9)]), vec!["tell here: 1 is completed, 0 values and []"]),
        ("a", error(), vec!["delete 1.0, 1.1", "tell a: 1 failed: Error, having read 7, 1"]),
        ("a", cancelled(), vec!["delete 1.0, 1.1", "tell a: 1 failed: Cancelled, having read "]),
    ] {
        let mut world = World::new();
        world.on(define(0, here()));
        let args = vec![object_arg(7, "here"), object_arg(8, "there"), set_arg(0)];
        let run = NodeMsg::Run { owner: node(owner), spec: TaskSpec { args, ..spec(1) }.into() };
        assert_eq!(world.on(run), ["stage 1: 7, 8, 1"]);
        let staged = StagingDone { key: key(1), outcome: Ok(((), Waits::default())) };
        assert_eq!(world.on(NodeEvent::Staged(Box::new(staged))), ["hand 1"]);
        assert_eq!(world.finished(1, outcome), told);
    }
}

#[test]
fn an_attempt_that_takes_too_long_is_stopped_and_fails_for_that() {
    let mut world = World::new();
    world.runs(TaskSpec { timeout_ms: 1200, ..spec(1) });
    let told: Vec<_> = (0..4).flat_map(|_| world.tick()).filter(|said| !said.starts_with("Tick after")).collect();
    assert_eq!(told, ["count", "count", "count", "count", "holds"], "nobody wants figures");
    let error = Err(TaskFailure::new(FailureKind::Error, "it was interrupted"));
    assert_eq!(world.finished(1, error), ["delete 1.0, 1.1", "tell a: 1 failed: Timeout, having read "]);
}

#[test]
fn figures_are_told_to_those_who_want_them_and_what_came_once() {
    let taken = |listeners, bytes: &[(&str, u64)]| {
        let received = bytes.iter().map(|(from, bytes)| Received { from: node(from), bytes: *bytes, micros: 0 });
        NodeEvent::Figures(Box::new(FiguresTaken {
            listeners,
            figures: NodeFigures::default(),
            received: received.collect(),
        }))
    };
    let one = |last| Listeners::One { job: JOB, owner: node("a"), last };
    let mut world = World::new();
    let watch = NodeMsg::Watch { job: JOB, owner: node("a"), sample_ms: 1, tenant: "default".into() };
    assert_eq!(world.on(watch), [format!("figures for {:?}", one(false)), "Sample after 20ms".to_owned()]);
    world.runs(spec(1));
    for (now_ms, listeners, received, told) in [
        (0, one(false), [("b", 5), ("c", 1)], "[\"5 of b\", \"1 of c\"], 0 running, last: false"),
        (900, Listeners::Watching, [("b", 5), ("c", 1)], "[\"5 of b\", \"1 of c\"], 0 running, last: false"),
        (1000, Listeners::Watching, [("b", 5), ("c", 2)], "[\"2 of c\"], 1 running, last: false"),
        (1000, Listeners::Watching, [("b", 5), ("c", 2)], "[], 1 running, last: false"),
        (1000, one(true), [("b", 5), ("c", 2)], "[\"5 of b\", \"2 of c\"], 1 running, last: true"),
    ] {
        world.now = Duration::from_millis(now_ms);
        assert_eq!(world.on(taken(listeners, &received)), [format!("tell a: figures: {told}")]);
    }
    let ends = ["delete the job".to_owned(), format!("figures for {:?}", one(true)), "forget".to_owned()];
    assert_eq!(world.on(NodeMsg::EndJob { job: JOB }), ends);
    assert_eq!(world.on(NodeEvent::Timer(NodeTimer::Sample)), [""; 0], "nobody wants them any more");
    assert_eq!(world.finished(1, Ok(vec![])), ["delete 1.0, 1.1"], "nobody is told");
    assert_eq!(world.core.counts(), NodeCounts { attempts: 0, waiting: 0, handed: 0, sets: 0, jobs: 0 });
}
