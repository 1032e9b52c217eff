//! The loop of an Owner, event by event: what it says, and when.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::Block;
use tokio::sync::oneshot;

use super::world_tests::{INCARNATION, JOB, SECRET, World, node, output, whole};
use super::{Beginning, OwnerCore, OwnerPlace, Surroundings};
use crate::event::{EventKind, NodeFigures, NodeState};
use crate::futures::{Notify, ProgramCall, queue};
use crate::ids::{Attempt, CopyId, CopyNumber, EdgeId, Epoch, LeaseId, NodeId, ObjectId, SetId, TaskId};
use crate::joblog::{Cut, Entry, LogNews, Past, TaskDone};
use crate::jobs::quotas::Quotas;
use crate::owner::effect::{JobOutcome, OwnerEffect, OwnerTimer};
use crate::owner::event::{OwnerEvent, ReadError};
use crate::protocol::node_manager::{AttemptState, Doing, NodeMsg};
use crate::protocol::owner::{OwnerMsg, Standing, Why};
use crate::protocol::scheduler::{Lease, NodeInfo, NodeSpec, SchedulerMsg};
use crate::shell::Reply;
use crate::task::{
    Arg, Consumed, EdgeShape, JobError, LocatedSource, Loss, LostObject, Parts, Resources, Returns, Source,
    TaskFailure, TaskOptions, TaskSpec,
};

/// What the Owner looks at, as a test sets it.
struct Around {
    now: Cell<Duration>,
    epoch: Epoch,
}

impl Surroundings for Around {
    fn now(&self) -> Duration {
        self.now.get()
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn scheduler_speaks(&self) -> bool {
        true
    }

    fn log_bytes(&self) -> u64 {
        0
    }

    fn admission(&self) -> Option<String> {
        None
    }
}

/// An Owner on node "a" of a cluster of "a" and "b", which has a log.
struct Test {
    core: OwnerCore,
    around: Around,
}

fn info(name: &str) -> NodeInfo {
    let spec = NodeSpec {
        node: node(name),
        incarnation: INCARNATION,
        resources: Resources::cpu(1000),
        labels: Default::default(),
        functions: vec!["f@1".into()],
        data_address: String::new(),
        memory_bytes: 0,
    };
    NodeInfo { spec, up: true, free: Resources::cpu(1000), hosts: 0, leases: 0 }
}

impl Test {
    fn new() -> Self {
        let (test, begins) = Self::begun(Past::default(), false);
        assert!(begins.iter().any(|effect| matches!(effect, OwnerEffect::Settled)), "nothing is to be found again");
        test
    }

    /// With what earlier runs have noted (`forgets`: nodes may know the job from runs that its log has forgotten), and what the Owner says
    /// first.
    fn begun(past: Past, forgets: bool) -> (Self, Vec<OwnerEffect>) {
        let place = OwnerPlace {
            job: JOB,
            tenant: "t".into(),
            quotas: Quotas::default(),
            node: node("a"),
            incarnation: INCARNATION,
            events: Some(0),
        };
        let around = Around { now: Cell::default(), epoch: Epoch(2) };
        let mut core = OwnerCore::new(place, vec![info("a"), info("b")], Duration::ZERO);
        core.started(Some(Beginning { past, forgets, logged: true }), NodeFigures::default());
        let mut test = Self { core, around };
        let begins = test.flush();
        (test, begins)
    }

    fn flush(&mut self) -> Vec<OwnerEffect> {
        self.core.flush(&self.around);
        let mut effects = Vec::new();
        self.core.take_effects(&mut effects);
        effects
    }

    /// What comes of several events, which were waiting together.
    fn batch(&mut self, events: impl IntoIterator<Item = OwnerEvent>) -> Vec<OwnerEffect> {
        events.into_iter().for_each(|event| self.core.on(event, &self.around));
        self.flush()
    }

    /// A second passes.
    fn tick(&mut self) -> Vec<OwnerEffect> {
        self.around.now.set(self.around.now.get() + Duration::from_secs(1));
        self.on(OwnerEvent::Timer(OwnerTimer::Tick))
    }

    fn says_figures(&mut self, name: &str) -> Vec<OwnerEffect> {
        self.on(OwnerMsg::NodeFigures {
            node: node(name),
            figures: Box::default(),
            received: Vec::new(),
            last: true,
            running: Vec::new(),
        })
    }

    /// What comes of an event.
    fn on(&mut self, event: impl Into<OwnerEvent>) -> Vec<OwnerEffect> {
        self.core.on(event.into(), &self.around);
        self.flush()
    }

    fn leases(&mut self, epoch: u64, nodes: &[&str]) -> Vec<OwnerEffect> {
        let lease = |(id, name): (usize, &&str)| Lease {
            id: LeaseId(id as u64),
            epoch: Epoch(epoch),
            version: 1,
            job: JOB,
            node: node(name),
            incarnation: INCARNATION,
            resources: Resources::cpu(1000),
            lasts_ms: 3000,
        };
        let leases = nodes.iter().enumerate().map(lease).collect();
        self.on(OwnerMsg::Leases { epoch: Epoch(epoch), leases: Some(leases), wait: None })
    }

    fn submit(&mut self, name: &str, args: &[Arg]) -> (TaskId, Vec<OwnerEffect>) {
        let description = World::description(name, args, TaskOptions::default());
        let id = description.id(SECRET);
        (id, self.on(ProgramCall::Submit { id, description: Box::new(description) }))
    }

    fn completes(&mut self, at: &NodeId, spec: &TaskSpec) -> Vec<OwnerEffect> {
        self.on(completed(at, spec))
    }

    /// A node says that it holds this copy of what a first attempt has made, and nothing else.
    fn holds(&mut self, at: &str, copy: CopyId) -> Vec<OwnerEffect> {
        self.on(OwnerMsg::Inventory {
            node: node(at),
            incarnation: INCARNATION,
            copies: [copy].into_iter().collect(),
            makers: vec![Attempt::nth(1).makes().get()],
            outputs: vec![output(8, 1)],
            last: true,
        })
    }

    /// Lets a task on "b" make what two others read a part of each, and says how each of them runs there.
    fn two_readers_on_b(&mut self) -> [TaskSpec; 2] {
        let map = self.first_on_b("map");
        self.completes(&node("b"), &map);
        let members = vec![map.id.output(0)];
        let set = SetId::of(&members);
        let shape = EdgeShape::new("map -> reduce", 2);
        let edge = EdgeId::from_u128(1);
        self.on(ProgramCall::OpenEdge { edge, shape });
        members.iter().for_each(|object| drop(self.on(ProgramCall::JoinEdge { edge, object: *object })));
        self.on(ProgramCall::MakeSet { set, members, edge: Some(edge) });
        [0, 1].map(|part| {
            let arg = Arg { source: Source::Set(set), parts: Parts::one(part) };
            let (_, effects) = self.submit(&format!("reader {part}"), &[arg]);
            let [(at, spec)] = <[_; 1]>::try_from(handed(&effects)).expect("what it reads is there");
            assert_eq!(at, node("b"));
            spec
        })
    }

    /// Lets the first task run on "b", and says how.
    fn first_on_b(&mut self, name: &str) -> TaskSpec {
        let (_, effects) = self.submit(name, &[]);
        let lent = self.leases(2, &["b"]);
        let mut handed = handed(&effects);
        handed.extend(self::handed(&lent));
        let [(at, spec)] = <[_; 1]>::try_from(handed).expect("one task, one slot");
        assert_eq!(at, node("b"));
        spec
    }
}

/// A node says that an attempt has made what it is to make.
fn completed(at: &NodeId, spec: &TaskSpec) -> OwnerMsg {
    let consumed = spec.args.iter().enumerate();
    let consumed = consumed.map(|(arg, _)| Consumed { arg: arg as u32, read: output(100, 1), ..Consumed::default() });
    OwnerMsg::Completed {
        node: at.clone(),
        incarnation: INCARNATION,
        task: spec.id,
        attempt: spec.attempt,
        outputs: vec![output(100, 1)],
        consumed: consumed.collect(),
        figures: Box::default(),
        values: Vec::new(),
    }
}

/// The version of the set that an attempt reads.
fn version_of(spec: &TaskSpec) -> u32 {
    let LocatedSource::Set { version, .. } = spec.args[0].source else { panic!("it reads a set: {:?}", spec.args) };
    version
}

/// Attempts that are handed out, and to whom.
fn handed(effects: &[OwnerEffect]) -> Vec<(NodeId, TaskSpec)> {
    let run = |effect: &OwnerEffect| match effect {
        OwnerEffect::Run { node, spec } => Some((node.clone(), (**spec).clone())),
        _ => None,
    };
    effects.iter().filter_map(run).collect()
}

/// Copies that are to be freed, and where.
fn freed(effects: &[OwnerEffect]) -> Vec<(NodeId, Vec<CopyId>)> {
    let free = |effect: &OwnerEffect| match effect {
        OwnerEffect::Send { node, message: NodeMsg::Free { copies, .. } } => {
            Some((node.clone(), copies.iter(JOB).collect()))
        }
        _ => None,
    };
    effects.iter().filter_map(free).collect()
}

/// Parts that are to be freed, where, and of what a set means in which version.
fn parts_freed(effects: &[OwnerEffect]) -> Vec<(NodeId, u32, Parts)> {
    let free = |effect: &OwnerEffect| match effect {
        OwnerEffect::Send { node, message: NodeMsg::FreeParts { version, parts, .. } } => {
            Some((node.clone(), *version, *parts))
        }
        _ => None,
    };
    effects.iter().filter_map(free).collect()
}

fn told(effects: Vec<OwnerEffect>) -> Vec<Why> {
    let why = |effect| if let OwnerEffect::Answer { why, .. } = effect { Some(why) } else { None };
    effects.into_iter().filter_map(why).collect()
}

fn asks_nodes(effects: &[OwnerEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, OwnerEffect::AskNodes { .. }))
}

/// Nodes that are told to watch the job, of these effects.
fn watchers(effects: &[OwnerEffect]) -> Vec<NodeId> {
    let watch = |effect: &OwnerEffect| match effect {
        OwnerEffect::Send { node, message: NodeMsg::Watch { .. } } => Some(node.clone()),
        _ => None,
    };
    effects.iter().filter_map(watch).collect()
}

fn ends(effects: &[OwnerEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, OwnerEffect::End(_)))
}

#[test]
fn a_node_is_told_to_watch_the_job_before_anything_else_and_once_in_an_incarnation() {
    let mut test = Test::new();
    let (_, before) = test.submit("one", &[]);
    let lent = test.leases(2, &["b"]);
    let to_b = |effect: &&OwnerEffect| match effect {
        OwnerEffect::Send { node: to, .. } | OwnerEffect::Run { node: to, .. } => *to == node("b"),
        _ => false,
    };
    let said: Vec<_> = before.iter().chain(&lent).filter(to_b).collect();
    assert!(matches!(&said[..], [OwnerEffect::Send { message: NodeMsg::Watch { .. }, .. }, OwnerEffect::Run { .. }]));
    let [(_, spec)] = <[_; 1]>::try_from(handed(&lent)).expect("one task, one slot");
    let mut more = test.completes(&node("b"), &spec);
    more.extend(test.submit("two", &[]).1);
    assert_eq!((handed(&more).len(), watchers(&more)), (1, vec![]), "it has been told");
    let reset = test.on(OwnerEvent::SessionReset { node: node("b"), incarnation: INCARNATION });
    assert_eq!(watchers(&reset), [node("b")], "what it was told may be lost");
}

#[test]
fn nodes_that_are_to_forget_earlier_runs_watch_the_job_again() {
    let mut test = Test::begun(Past::default(), true).0;
    test.submit("one", &[]);
    assert_eq!(watchers(&test.leases(2, &["b"])), [node("b")], "that the job was over took the watching with it");
}

/// It would tell the Owner of an earlier run what it has made, which listens no more.
#[test]
fn a_node_that_is_heard_of_later_is_told_once_and_first_that_earlier_runs_are_over() {
    let over_at = |effects: &[OwnerEffect]| {
        let over = |effect: &OwnerEffect| match effect {
            OwnerEffect::EndJob { node } => Some(node.clone()),
            _ => None,
        };
        effects.iter().filter_map(over).collect::<Vec<_>>()
    };
    let up = |name: &str| OwnerEvent::NodeState { node: node(name), incarnation: INCARNATION, state: NodeState::Up };
    let (mut test, begins) = Test::begun(Past::default(), true);
    assert_eq!(over_at(&begins), [node("a"), node("b")]);
    assert_eq!(over_at(&test.on(up("c"))), [node("c")]);
    assert_eq!(over_at(&test.on(up("c"))), []);
    test.submit("one", &[]);
    test.on(OwnerEvent::Nodes(vec![info("c"), info("d")]));
    let lent = test.leases(2, &["d"]);
    assert_eq!(
        (over_at(&lent), handed(&lent).len()),
        (vec![node("d")], 1),
        "its Scheduler was faster than its heartbeat"
    );
    let first = lent.iter().position(|effect| matches!(effect, OwnerEffect::EndJob { .. }));
    let run = lent.iter().position(|effect| matches!(effect, OwnerEffect::Run { .. }));
    assert!(first < run);
    let (mut test, _) = Test::begun(Past::default(), false);
    assert_eq!(over_at(&test.on(up("c"))), [], "its log knows all runs");
}

#[test]
fn leases_of_a_scheduler_that_is_over_are_counted_and_not_used() {
    let mut test = Test::new();
    test.submit("one", &[]);
    let effects = test.leases(1, &["b"]);
    assert!(effects.iter().any(|effect| matches!(effect, OwnerEffect::CountStale)), "epoch 2 is followed");
    assert!(handed(&effects).is_empty());
    assert_eq!(handed(&test.leases(2, &["b"])).len(), 1);
}

#[test]
fn the_scheduler_is_asked_once_at_a_time_which_nodes_there_are_and_again_when_it_did_not_answer() {
    let mut test = Test::new();
    assert!(asks_nodes(&test.leases(2, &["c"])), "nobody has heard of c");
    assert!(!asks_nodes(&test.leases(2, &["c"])), "the question is open");
    test.on(OwnerEvent::Nodes(Vec::new()));
    assert!(asks_nodes(&test.leases(2, &["c"])), "it was lost");
    test.on(OwnerEvent::Nodes(vec![info("c")]));
    assert!(!asks_nodes(&test.leases(2, &["c"])), "c is known");
}

#[test]
fn an_attempt_that_could_not_be_sent_is_handed_out_again_a_second_later() {
    let mut test = Test::new();
    let TaskSpec { id: task, attempt, .. } = test.first_on_b("one");
    assert_eq!(handed(&test.on(OwnerEvent::Unsent { node: node("b"), task, attempt, never: None })), [], "not at once");
    let [(_, next)] = <[_; 1]>::try_from(handed(&test.tick())).expect("it is handed out again");
    assert_eq!((next.id, next.attempt > attempt), (task, true));
}

#[test]
fn a_task_that_can_never_be_sent_fails_the_job_with_the_reason() {
    let mut test = Test::new();
    let TaskSpec { id: task, attempt, .. } = test.first_on_b("one");
    let (notify, mut outcome) = oneshot::channel();
    test.on(ProgramCall::Track { object: task.output(0), notify: Notify::Once(notify) });
    let never = Some("a message of 300000 bytes".to_owned());
    let effects = test.on(OwnerEvent::Unsent { node: node("b"), task, attempt, never });
    assert_eq!(handed(&effects), []);
    let error = outcome.try_recv().expect("the program is told").expect_err("it failed");
    assert!(error.to_string().contains("a message of 300000 bytes"), "{error}");
}

#[test]
fn what_a_task_has_read_is_freed_when_it_is_in_the_log_that_it_is_done() {
    let mut test = Test::new();
    let first = test.first_on_b("first");
    let done = test.completes(&node("b"), &first);
    assert!(
        done.iter().any(|effect| matches!(effect, OwnerEffect::Append(Entry::Done(done)) if done.task == first.id))
    );
    let (_, effects) = test.submit("second", &[whole(first.id)]);
    let [(_, second)] = <[_; 1]>::try_from(handed(&effects)).expect("its argument is there");
    test.on(ProgramCall::ReleaseObject(first.id.output(0)));
    let done = test.completes(&node("b"), &second);
    assert_eq!(freed(&done), [], "its completion is not durable");
    assert_eq!(freed(&test.on(OwnerEvent::Log(LogNews::Durable(1)))), [], "only the first one's is");
    let copy = first.id.output(0).copy(JOB, first.attempt.makes());
    assert_eq!(freed(&test.on(OwnerEvent::Log(LogNews::Durable(2)))), [(node("b"), vec![copy])]);
}

#[test]
fn parts_that_a_task_has_read_are_freed_when_it_is_in_the_log_that_it_is_done() {
    let mut test = Test::new();
    let [reader, _] = test.two_readers_on_b();
    let done = test.completes(&node("b"), &reader);
    assert_eq!(parts_freed(&done), [], "its completion is not durable");
    assert_eq!(parts_freed(&test.on(OwnerEvent::Log(LogNews::Durable(1)))), [], "only that of who made them is");
    let freed = parts_freed(&test.on(OwnerEvent::Log(LogNews::Durable(2))));
    assert_eq!(freed, [(node("b"), version_of(&reader), Parts::one(0))]);
}

/// Its node frees them of the copies that it was told of under that version, whatever it has been told of since.
#[test]
fn parts_that_wait_for_the_log_are_freed_of_what_was_read_and_not_of_what_was_made_again_since() {
    let mut test = Test::new();
    let [reader, other] = test.two_readers_on_b();
    test.completes(&node("b"), &reader);
    let object = World::description("map", &[], TaskOptions::default()).id(SECRET).output(0);
    let lost = LostObject { object, number: Attempt::nth(1).makes(), node: node("b"), loss: Loss::Gone };
    let again = test.on(OwnerMsg::Failed {
        node: node("b"),
        incarnation: INCARNATION,
        task: other.id,
        attempt: other.attempt,
        failure: TaskFailure::argument_lost("gone", [lost]),
        figures: None,
    });
    let [(at, map)] = <[_; 1]>::try_from(handed(&again)).expect("what it reads is made again");
    let [(_, other)] = <[_; 1]>::try_from(handed(&test.completes(&at, &map))).expect("what it reads is there again");
    let freed = parts_freed(&test.on(OwnerEvent::Log(LogNews::Durable(2))));
    assert_eq!(freed, [(node("b"), version_of(&reader), Parts::one(0))]);
    assert!(version_of(&other) > version_of(&reader), "what was made again is another copy");
}

/// The node of this Owner made it in the first run, and was away in the second, in which "b" put it back.
#[test]
fn a_small_value_that_is_put_back_is_not_what_waits_to_be_freed_of_an_earlier_run() {
    let map = World::description("map", &[], TaskOptions::default()).id(SECRET);
    let first = Attempt::nth(1).makes();
    let done = TaskDone {
        task: map,
        node: node("a"),
        outputs: vec![output(8, 1)],
        made_by: vec![first],
        consumed: Vec::new(),
        values: vec![(0, Bytes::from_static(b"8 bytes!"))],
    };
    let (mut test, _) = Test::begun(Past { runs: 2, done: vec![done], ..Past::default() }, false);
    let put_back_before = map.output(0).copy(JOB, CopyNumber::new(1, 1).unwrap());
    test.holds("b", put_back_before);
    test.on(OwnerEvent::Timer(OwnerTimer::Settle));
    let spec = test.first_on_b("one");
    test.completes(&node("b"), &spec);
    let left = map.output(0).copy(JOB, first);
    assert_eq!(freed(&test.holds("a", left)), [], "what was noted before is not durable");
    test.on(OwnerEvent::NodeState { node: node("b"), incarnation: INCARNATION, state: NodeState::Dead });
    let (_, effects) = test.submit("map", &[]);
    let put = |effect: &OwnerEffect| if let OwnerEffect::Put { copy, .. } = effect { Some(*copy) } else { None };
    let [put_back] = <[_; 1]>::try_from(effects.iter().filter_map(put).collect::<Vec<_>>()).expect("it is put back");
    assert_eq!(freed(&test.on(OwnerEvent::Log(LogNews::Durable(1)))), [(node("a"), vec![left])]);
    assert!(![left, put_back_before].contains(&put_back), "the copy has a name of its own");
}

#[test]
fn a_job_ends_when_that_is_durable_and_its_nodes_have_said_their_figures() {
    let mut test = Test::new();
    test.first_on_b("one");
    let returned = test.on(ProgramCall::Finished(Ok(b"value".to_vec())));
    assert!(returned.iter().any(|effect| matches!(effect, OwnerEffect::Append(Entry::End(Ok(_))))));
    let tells =
        |effects: &[OwnerEffect]| effects.iter().filter(|effect| matches!(effect, OwnerEffect::EndJob { .. })).count();
    assert_eq!((tells(&returned), ends(&returned)), (0, false), "it is not in the log");
    let durable = test.on(OwnerEvent::Log(LogNews::Durable(1)));
    assert_eq!((tells(&durable), ends(&durable)), (2, false), "nobody has said figures");
    let [
        ..,
        OwnerEffect::DeleteAll,
        OwnerEffect::SendScheduler(SchedulerMsg::JobDone { .. }),
        OwnerEffect::LookAtFigures,
        _,
    ] = &durable[..]
    else {
        panic!("figures are looked at when all is given back: {durable:?}");
    };
    assert!(!ends(&test.on(OwnerEvent::Figures(Box::default(), Vec::new()))), "b has not said its figures");
    let over = test.says_figures("b");
    let Some(OwnerEffect::End(JobOutcome::Over { result, nodes, .. })) = over.last() else {
        panic!("nobody is awaited: {over:?}")
    };
    assert_eq!((result, nodes.len()), (&Ok(b"value".to_vec()), 2));
    assert!(test.on(OwnerEvent::NewEpoch).is_empty(), "nothing comes after that");
}

/// A stream that the program has let go ends while the end of the job is written into the log: nothing of it is somewhere when nodes are
/// told of the end.
#[test]
fn what_comes_with_the_news_that_the_end_is_durable_is_taken_in_before_the_job_ends() {
    let mut test = Test::new();
    let options = TaskOptions { returns: Returns::Stream, ..TaskOptions::default() };
    let description = Box::new(World::description("stream", &[], options));
    let stream = description.id(SECRET);
    test.on(ProgramCall::Submit { id: stream, description });
    let [(at, spec)] = <[_; 1]>::try_from(handed(&test.leases(2, &["b"]))).expect("one task, one slot");
    let (queue, reader) = queue(Result::is_ok);
    test.on(ProgramCall::TrackStream { task: stream, queue });
    drop(reader);
    test.on(ProgramCall::ReleaseStream(stream));
    test.on(ProgramCall::Finished(Ok(Vec::new())));
    let yielded = OwnerMsg::Yielded {
        node: at.clone(),
        incarnation: INCARNATION,
        task: stream,
        attempt: spec.attempt,
        index: 0,
        output: output(100, 1),
    };
    let durable = OwnerEvent::Log(LogNews::Durable(1));
    let effects = test.batch([yielded.into(), completed(&at, &spec).into(), durable]);
    let position = |is: fn(&OwnerEffect) -> bool| effects.iter().position(is).expect("it is said");
    let told = |effect: &OwnerEffect| matches!(effect, OwnerEffect::Event { kind, .. } if matches!(**kind, EventKind::TaskFinished { .. }));
    assert!(position(told) < position(|effect| matches!(effect, OwnerEffect::EndJob { .. })));
    assert_eq!(test.core.state.lookup(stream.output(0)), None, "nobody reads it");
}

#[test]
fn an_owner_of_which_the_end_is_durable_has_the_last_word_and_one_that_was_taken_over_before_has_not() {
    let taken_over = || OwnerMsg::TakenOver { run: 1 }.into();
    let durable = || OwnerEvent::Log(LogNews::Durable(1));
    for (batch, has) in [([durable(), taken_over()], true), ([taken_over(), durable()], false)] {
        let mut test = Test::new();
        test.first_on_b("one");
        test.on(ProgramCall::Finished(Ok(Vec::new())));
        let effects = test.batch(batch);
        let says = effects.iter().any(|effect| matches!(effect, OwnerEffect::EndJob { .. }));
        assert_eq!((says, ends(&effects)), (has, !has), "{effects:?}");
    }
}

#[test]
fn a_job_ends_without_the_figures_of_nodes_that_do_not_say_them_in_time_or_could_not_be_told() {
    for event in [OwnerEvent::Timer(OwnerTimer::Close), OwnerEvent::EndUnsent(node("b"))] {
        let mut test = Test::new();
        test.first_on_b("one");
        test.on(ProgramCall::Finished(Ok(Vec::new())));
        test.on(OwnerEvent::Log(LogNews::Durable(1)));
        assert!(!ends(&test.on(OwnerEvent::Figures(Box::default(), Vec::new()))));
        assert!(ends(&test.on(event)));
    }
}

#[test]
fn a_scheduler_that_begins_while_the_job_ends_is_told_that_it_is_over() {
    let mut test = Test::new();
    test.first_on_b("one");
    test.on(ProgramCall::Finished(Ok(Vec::new())));
    test.on(OwnerEvent::Log(LogNews::Durable(1)));
    let effects = test.on(OwnerEvent::NewEpoch);
    assert!(matches!(&effects[..], [OwnerEffect::SendScheduler(SchedulerMsg::JobDone { .. })]), "{effects:?}");
}

#[test]
fn an_owner_that_is_over_does_nothing_with_the_rest_of_its_batch() {
    let mut test = Test::new();
    let spec = test.first_on_b("one");
    let completed = OwnerMsg::Completed {
        node: node("b"),
        incarnation: INCARNATION,
        task: spec.id,
        attempt: spec.attempt,
        outputs: vec![output(100, 1)],
        consumed: Vec::new(),
        figures: Box::default(),
        values: Vec::new(),
    };
    let effects = test.batch([completed.into(), OwnerEvent::Log(LogNews::TakenOver), OwnerEvent::NewEpoch]);
    let [OwnerEffect::Append(Entry::Done(_)), OwnerEffect::EndLog, OwnerEffect::End(JobOutcome::Abandoned { .. })] =
        &effects[..]
    else {
        panic!("what was done before is noted, and then it is over: {effects:?}");
    };
}

#[test]
fn an_owner_whose_job_was_taken_over_says_nothing_more() {
    let mut test = Test::new();
    let spec = test.first_on_b("one");
    let effects = test.on(OwnerEvent::Log(LogNews::TakenOver));
    assert!(
        matches!(&effects[..], [OwnerEffect::EndLog, OwnerEffect::End(JobOutcome::Abandoned { .. })]),
        "{effects:?}"
    );
    assert!(test.completes(&node("b"), &spec).is_empty());
}

#[test]
fn a_job_that_has_lost_what_its_program_put_begins_again_where_a_log_has_what_it_has_made() {
    let lost = JobError::PutLost { object: ObjectId::from_u128(77 << 32) };
    let finished = || OwnerEvent::Program(ProgramCall::Finished(Err(lost.clone())));
    let mut logged = Test::new();
    logged.first_on_b("one");
    let effects = logged.on(finished());
    let ends = |effects: &[OwnerEffect]| match effects.last() {
        Some(OwnerEffect::End(JobOutcome::Abandoned { reason })) => Some(reason.clone()),
        _ => None,
    };
    assert_eq!(ends(&effects), Some(lost.to_string()), "{effects:?}");
    assert!(effects.iter().any(|effect| matches!(effect, OwnerEffect::EndLog)), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, OwnerEffect::EndJob { .. })), "{effects:?}");
    // Its log is full: nobody can take it up.
    let mut cut = Test::new();
    cut.first_on_b("one");
    let so = Cut { at_ms: 0, reason: "its quota is used up".to_owned() };
    cut.on(OwnerEvent::Log(LogNews::Cut(so)));
    let effects = cut.on(finished());
    assert!(
        matches!(&effects[..], [OwnerEffect::Append(Entry::End(Err(JobError::PutLost { .. })))]),
        "the job is over: {effects:?}"
    );
}

/// Whether it learns that before or after what else has come: the job is not its to end, for nodes and the Scheduler.
#[test]
fn an_owner_whose_job_was_taken_over_does_not_end_it_with_the_rest_of_its_batch() {
    let finished = || ProgramCall::Finished(Ok(Vec::new())).into();
    let taken_over = || OwnerEvent::Log(LogNews::TakenOver);
    for batch in [vec![finished(), taken_over()], vec![taken_over(), OwnerEvent::NewEpoch, finished()]] {
        let mut test = Test::new();
        test.first_on_b("one");
        let effects = test.batch(batch);
        let says_nothing =
            matches!(&effects[..], [OwnerEffect::EndLog, OwnerEffect::End(JobOutcome::Abandoned { .. })]);
        assert!(says_nothing, "{effects:?}");
    }
}

/// Its completion is in no log any more: whoever runs the job now knows nothing of it, and lets it read them.
#[test]
fn an_owner_whose_job_was_taken_over_does_not_free_what_was_read_in_the_rest_of_its_batch() {
    for first in [true, false] {
        let mut test = Test::new();
        let [reader, _] = test.two_readers_on_b();
        let mut batch = [completed(&node("b"), &reader).into(), OwnerEvent::Log(LogNews::TakenOver)];
        if first {
            batch.reverse();
        }
        let effects = test.batch(batch);
        assert_eq!(parts_freed(&effects), []);
        assert!(matches!(effects.last(), Some(OwnerEffect::End(JobOutcome::Abandoned { .. }))), "{effects:?}");
    }
}

#[test]
fn the_program_gets_an_object_from_where_it_is_and_again_when_it_could_not_be_read_there() {
    let mut test = Test::new();
    let first = test.first_on_b("first");
    let object = first.id.output(0);
    let (answer, mut block) = oneshot::channel();
    test.on(ProgramCall::Get { object, parts: Parts::All, answer });
    let reads = |effects: Vec<OwnerEffect>| {
        let read = |effect| if let OwnerEffect::Read { read, from, .. } = effect { Some((read, from)) } else { None };
        effects.into_iter().filter_map(read).collect::<Vec<_>>()
    };
    let [(read, from)] = <[_; 1]>::try_from(reads(test.completes(&node("b"), &first))).expect("it is there");
    assert_eq!(from, Some(node("b")));
    let lost = test.on(OwnerEvent::Read { read, outcome: Err(ReadError::Unreadable) });
    let [(at, again)] = <[_; 1]>::try_from(handed(&lost)).expect("it is made again");
    assert!(block.try_recv().is_err(), "the program waits");
    let [(read, _)] = <[_; 1]>::try_from(reads(test.completes(&at, &again))).expect("it is there again");
    test.on(OwnerEvent::Read { read, outcome: Ok(Block::empty()) });
    assert_eq!(block.try_recv().unwrap().map(|block| block.len()), Ok(0));
}

#[test]
fn who_asks_why_is_answered_when_each_node_has_answered_or_had_its_time() {
    let mut test = Test::new();
    test.submit("one", &[]);
    test.submit("two", &[]);
    test.leases(2, &["a", "b"]);
    let asked = test.on(OwnerMsg::Why { ask: true, reply: Reply::to(node("client"), 1) });
    let asks: Vec<_> = asked
        .iter()
        .filter_map(|effect| match effect {
            OwnerEffect::AskDoing { question, node, attempts, .. } => Some((*question, node.clone(), attempts.clone())),
            _ => None,
        })
        .collect();
    let [(question, _, attempts), (_, _, _)] = &asks[..] else { panic!("two nodes have attempts: {asked:?}") };
    let running = |(task, attempt): &(TaskId, Attempt)| AttemptState {
        task: *task,
        attempt: *attempt,
        doing: Doing::Running,
        for_ms: 7,
    };
    let answer = Ok(attempts.iter().map(running).collect());
    assert!(told(test.on(OwnerEvent::Doing { question: *question, node: node("a"), answer })).is_empty());
    let answer = Err("no answer within 2 s".to_owned());
    let whys = told(test.on(OwnerEvent::Doing { question: *question, node: node("b"), answer: answer.clone() }));
    let [why] = &whys[..] else { panic!("one answer: {whys:?}") };
    let words = format!("{:?}", why.chains);
    assert!(words.contains("no answer within 2 s"), "{words}");
    assert!(told(test.on(OwnerEvent::Doing { question: *question, node: node("b"), answer })).is_empty(), "once");
}

#[test]
fn attempts_that_a_quiet_job_has_on_no_node_are_handed_out_again() {
    let mut test = Test::new();
    let spec = test.first_on_b("one");
    let mut asked = Vec::new();
    for second in 1..=12 {
        test.around.now.set(Duration::from_secs(second));
        asked.extend(test.leases(2, &["b"]));
        asked.extend(test.on(OwnerEvent::Timer(OwnerTimer::Tick)));
    }
    let question = asked.iter().find_map(|effect| match effect {
        OwnerEffect::AskDoing { question, .. } => Some(*question),
        _ => None,
    });
    let question = question.expect("nothing has moved for ten seconds");
    let gone = AttemptState { task: spec.id, attempt: spec.attempt, doing: Doing::NotHere, for_ms: 0 };
    let effects = test.on(OwnerEvent::Doing { question, node: node("b"), answer: Ok(vec![gone]) });
    assert_eq!(handed(&effects).len(), 1);
}

/// It is about an attempt that has ended meanwhile, and says nothing of the one that runs on the same node now.
#[test]
fn a_late_rejection_of_an_attempt_that_has_ended_does_not_end_the_live_one() {
    let mut test = Test::new();
    let first = test.first_on_b("one");
    let (task, attempt) = (first.id, first.attempt);
    let given_back = test.on(OwnerMsg::Recalled { node: node("b"), incarnation: INCARNATION, task, attempt });
    let [(at, second)] = <[_; 1]>::try_from(handed(&given_back)).expect("its slot is free");
    assert_eq!((at, second.id), (node("b"), task));
    assert_ne!(second.attempt, attempt);
    let rejects = |attempt| OwnerMsg::Rejected { node: node("b"), task, attempt, reason: "no such field".into() };
    let late = test.on(rejects(attempt));
    assert!(late.is_empty(), "{late:?}");
    let fails = test.on(rejects(second.attempt));
    let last = |effect: &OwnerEffect| matches!(effect, OwnerEffect::Event { kind, .. } if matches!(**kind, EventKind::TaskFailed { last: true, .. }));
    assert!(fails.iter().any(last), "{fails:?}");
}

#[test]
fn a_node_that_dies_is_not_waited_for() {
    let mut test = Test::new();
    test.first_on_b("one");
    test.on(ProgramCall::Finished(Err(JobError::Cancelled)));
    test.on(OwnerEvent::Log(LogNews::Durable(1)));
    test.on(OwnerEvent::Figures(Box::default(), Vec::new()));
    let dead = OwnerEvent::NodeState { node: node("b"), incarnation: INCARNATION, state: NodeState::Dead };
    assert!(matches!(test.on(dead).last(), Some(OwnerEffect::End(JobOutcome::Over { result: Err(_), .. }))));
}

#[test]
fn a_question_that_is_open_when_the_job_ends_is_answered_once() {
    let mut test = Test::new();
    test.first_on_b("one");
    let asked = test.on(OwnerMsg::Why { ask: true, reply: Reply::to(node("client"), 1) });
    assert!(asked.iter().any(|effect| matches!(effect, OwnerEffect::AskDoing { .. })), "{asked:?}");
    test.on(ProgramCall::Finished(Ok(Vec::new())));
    let whys = told(test.on(OwnerEvent::Log(LogNews::Durable(1))));
    assert_eq!(whys.iter().map(|why| why.standing).collect::<Vec<_>>(), [Standing::Ending]);
    let late = OwnerEvent::Doing { question: 1, node: node("b"), answer: Ok(Vec::new()) };
    assert!(told(test.on(late)).is_empty());
}

#[test]
fn an_owner_has_so_many_questions_open_at_a_time_and_answers_more_without_asking_nodes() {
    let mut test = Test::new();
    test.first_on_b("one");
    let asks = |test: &mut Test| test.on(OwnerMsg::Why { ask: true, reply: Reply::to(node("client"), 1) });
    for _ in 0..16 {
        assert!(told(asks(&mut test)).is_empty(), "its nodes are asked");
    }
    assert_eq!(told(asks(&mut test)).len(), 1, "it is answered at once");
}

#[test]
fn what_could_not_be_put_back_is_made_again() {
    let mut test = Test::new();
    let spec = test.first_on_b("one");
    let values = vec![(0, bytes::Bytes::from_static(b"0123456789"))];
    test.on(OwnerMsg::Completed {
        node: node("b"),
        incarnation: INCARNATION,
        task: spec.id,
        attempt: spec.attempt,
        outputs: vec![output(10, 1)],
        consumed: Vec::new(),
        figures: Box::default(),
        values,
    });
    test.leases(2, &["a", "b"]);
    let lost = test.on(OwnerEvent::NodeState { node: node("b"), incarnation: INCARNATION, state: NodeState::Dead });
    let put = lost.iter().find_map(|effect| match effect {
        OwnerEffect::Put { copy, bytes, .. } => Some((*copy, bytes.clone())),
        _ => None,
    });
    let (copy, bytes) = put.expect("its bytes are known");
    assert_eq!(&bytes[..], b"0123456789");
    let (answer, _block) = oneshot::channel();
    let get = ProgramCall::Get { object: spec.id.output(0), parts: Parts::All, answer };
    let effects = test.batch([OwnerEvent::NotPut(copy), get.into()]);
    assert_eq!(
        handed(&effects).iter().map(|(at, spec)| (at.clone(), spec.id)).collect::<Vec<_>>(),
        [(node("a"), spec.id)]
    );
}

#[test]
fn a_job_that_ends_names_the_threads_on_which_its_program_computes_still() {
    let mut test = Test::new();
    for number in 0..2 {
        test.on(ProgramCall::Computes { number, thread: format!("exobus-comp-{number}") });
    }
    test.on(ProgramCall::Computed { number: 0 });
    let cancelled = test.on(OwnerMsg::Cancel);
    let appended = cancelled.iter().any(|effect| matches!(effect, OwnerEffect::Append(Entry::End(_))));
    assert!(appended, "it ends when that is durable: {cancelled:?}");
    let ended = test.on(OwnerEvent::Log(LogNews::Durable(1)));
    let notes = ended.iter().filter_map(|effect| {
        let OwnerEffect::Event { kind, .. } = effect else { return None };
        if let EventKind::Note { text } = &**kind { Some(text.as_str()) } else { None }
    });
    let left = "thread exobus-comp-1 of this node computes for the job still, until its function returns";
    assert_eq!(notes.collect::<Vec<_>>(), [left]);
}

#[test]
fn what_becomes_of_an_attempt_is_told_and_its_log_has_who_made_what_and_what_counts_of_what_was_read() {
    let mut test = Test::new();
    let [first, _] = test.two_readers_on_b();
    let done = test.completes(&node("b"), &first);
    let told = |done: &[OwnerEffect], is: fn(&EventKind) -> bool| {
        done.iter().any(|effect| matches!(effect, OwnerEffect::Event { kind, .. } if is(kind)))
    };
    assert!(told(&done, |kind| matches!(kind, EventKind::TaskFinished { .. })), "{done:?}");
    let entry = done.iter().find_map(|effect| match effect {
        OwnerEffect::Append(Entry::Done(done)) => Some(done.clone()),
        _ => None,
    });
    let entry = entry.expect("it is noted");
    assert_eq!((entry.made_by, entry.consumed.len()), (vec![first.attempt.makes()], 1));
    let (_, submitted) = test.submit("next", &[]);
    assert!(told(&submitted, |kind| matches!(kind, EventKind::TaskPlaced { .. })), "{submitted:?}");
}
