//! What a program learns is logged, and given again to a program that is run again (law 3).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use ::futures::{FutureExt as _, join};
use exobus_store::{RealDisk, StoreOptions, SystemClock};
use tokio::sync::mpsc;

use super::super::arrivals::Arrivals;
use super::super::compute::{COMPUTED_BYTES_MAX, ComputeThreads};
use super::super::pushes::{Fold, Pushes};
use super::super::window::Window;
use super::*;
use crate::ids::Incarnation;
use crate::owner::OwnerEvent;
use crate::protocol::owner::OwnerMsg;
use crate::shell::{Post, PostOptions, mailbox};
use crate::task::Place;

/// A clock that is set by hand.
#[derive(Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct World {
    wall: Arc<Wall>,
    store: Store,
    compute: Arc<dyn Compute>,
    /// What the last program said to its Owner.
    inbox: RefCell<Option<mpsc::UnboundedReceiver<OwnerEvent>>>,
    _spill: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let spill = tempfile::tempdir().unwrap();
        let spill_dirs = vec![spill.path().to_owned()];
        let options = StoreOptions { memory_bytes: 64 << 20, executors: 1, spill_dirs, ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(RealDisk::default()), Arc::new(SystemClock::new())).unwrap();
        let compute = Arc::new(ComputeThreads);
        Self { wall: Arc::default(), store, compute, inbox: RefCell::default(), _spill: spill }
    }

    /// The futures of a program that is run, or run again, with what an earlier run learned.
    fn futures(&self, choices: Choices, seed: u64) -> Futures {
        let (futures, inbox) = self.futures_and_owner(choices, seed);
        *self.inbox.borrow_mut() = Some(inbox);
        futures
    }

    /// The same, with what its Owner is told.
    fn futures_and_owner(&self, choices: Choices, seed: u64) -> (Futures, mpsc::UnboundedReceiver<OwnerEvent>) {
        self.of(choices, seed, Words::default())
    }

    /// The same for a program that is told words.
    fn told(&self, choices: Choices, words: Words) -> (Futures, mpsc::UnboundedReceiver<OwnerEvent>) {
        self.of(choices, 7, words)
    }

    fn of(&self, choices: Choices, seed: u64, words: Words) -> (Futures, mpsc::UnboundedReceiver<OwnerEvent>) {
        let node = NodeId::new("n");
        let clock: Arc<dyn Clock> = self.wall.clone();
        let on_fatal = Box::new(|_| {});
        let post = Post::new(PostOptions { node, incarnation: Incarnation(1), clock: clock.clone(), on_fatal });
        let (owner, inbox) = mailbox::<OwnerMsg, OwnerEvent>(&post, "owner");
        let futures = Futures::new(FuturesParts {
            job: JobId::from_u128(1),
            secret: JobSecret::from_u128(2),
            run: 0,
            owner: owner.inlet(),
            store: self.store.clone(),
            functions: BTreeMap::new(),
            nodes: vec![NodeShape { node: NodeId::new("n"), cpu_milli: seed, memory_bytes: 0 }],
            choices,
            seed,
            clock,
            compute: self.compute.clone(),
            printer: crate::printing::Printer::nowhere(),
            home: Default::default(),
            others: Default::default(),
            keeps: Default::default(),
            words,
        });
        (futures, inbox)
    }

    fn at(&self, ms: u64) {
        self.wall.0.store(ms, Ordering::Relaxed);
    }
}

fn object(number: u128) -> ObjectId {
    ObjectId::from_u128(number << 32)
}

fn program(futures: &Futures) -> (Duration, u64, Vec<NodeShape>, Duration) {
    (futures.now(), futures.random(), futures.nodes(), futures.now())
}

#[test]
fn a_program_that_is_run_again_learns_the_same() {
    let world = World::new();
    world.at(1_700_000_000_123);
    let first = world.futures(Choices::default(), 7);
    let learned = program(&first);
    assert_eq!(learned.0, Duration::from_millis(1_700_000_000_123));
    assert_eq!(first.choices()[0], Choice::Time(1_700_000_000_123));
    assert_eq!(first.choices().len(), 4);

    // Later, on another node, with other numbers at hand.
    world.at(1_800_000_000_000);
    let again = world.futures(Choices::replaying(first.choices()), 8);
    assert_eq!(program(&again), learned);
    assert_eq!(again.choices(), first.choices(), "and so would a third run");
    assert_eq!(again.now(), Duration::from_millis(1_800_000_000_000), "live from here on");
    assert_ne!(again.random(), learned.1);
    assert_eq!(again.choices().len(), 6);
}

#[test]
fn a_program_that_asks_for_something_else_is_told_that_it_is_not_deterministic() {
    let world = World::new();
    let asked = |choice: Choice, ask: fn(&Futures)| {
        let futures = world.futures(Choices::replaying(vec![choice]), 7);
        let panic = catch_unwind(AssertUnwindSafe(|| ask(&futures))).unwrap_err();
        crate::panic_text(&*panic)
    };
    let cases =
        [asked(Choice::Random(1), |futures| _ = futures.now()), asked(Choice::Time(1), |futures| _ = futures.random())];
    for text in cases {
        assert!(text.contains("not deterministic"), "{text}");
    }
}

#[test]
fn where_objects_are_is_learned_object_by_object_whoever_asks_first() {
    let [a, b] = [1, 2].map(|id| (object(id), vec![NodeId::new(&format!("n{id}"))]));
    let log = vec![Choice::Located(a.0, a.1.clone()), Choice::Random(7), Choice::Located(b.0, b.1.clone())];
    let mut choices = Choices::replaying(log);
    assert_eq!(choices.located(b.0), Some(b.1), "though others come before in the log");
    assert_eq!(choices.replayed(), Some(Choice::Random(7)));
    assert_eq!(choices.replayed(), None, "live");
    assert_eq!((choices.located(a.0), choices.located(a.0)), (Some(a.1), None));
}

/// What folds were due and what was left to the program, by lane.
type Folds = (Vec<(usize, Vec<ObjectId>)>, Vec<(usize, Vec<ObjectId>)>);

impl World {
    /// Four blocks are pushed along two lanes; then the Mergers say that these are to be folded.
    fn push(&self, futures: &Futures, said: &[(u32, Vec<ObjectId>)]) -> Folds {
        let lanes = ["a", "b"].map(|node| (Place::Node { node: NodeId::new(node), soft: true }, vec![0..3, 3..5]));
        let mut pushes = Pushes::open(futures, &lanes, 3).unwrap();
        let blocks = (1..=4).map(|id| ObjectRef::adopt(&futures.0.owner, object(id)));
        for block in blocks.collect::<Vec<_>>() {
            pushes.push(futures, &block).unwrap();
        }
        let mut news = BTreeMap::new();
        while let Ok(message) = self.inbox.borrow_mut().as_mut().unwrap().try_recv() {
            if let OwnerEvent::Program(ProgramCall::OpenLane { lane, news: sender, .. }) = message {
                news.insert(lane, sender);
            }
        }
        assert_eq!(news.len(), 2);
        for (lane, blocks) in said {
            news[lane].send((*lane, blocks.clone())).unwrap();
        }
        let ids = |folds: Vec<Fold>| {
            folds.into_iter().map(|fold| (fold.lane, fold.blocks.iter().map(ObjectRef::id).collect())).collect()
        };
        (ids(pushes.due(futures).unwrap()), ids(pushes.rest()))
    }
}

#[test]
fn folds_are_learned_once_and_again_when_the_program_is_run_again() {
    let (world, ids) = (World::new(), |ids: &[u128]| ids.iter().map(|id| object(*id)).collect::<Vec<_>>());
    let first = world.futures(Choices::default(), 7);
    // What was never pushed, or is folded, is of no interest.
    let learned = world.push(&first, &[(1, ids(&[3, 1, 9])), (0, ids(&[9])), (1, ids(&[3, 4]))]);
    assert_eq!(learned.0, [(1, ids(&[1, 3])), (1, ids(&[4]))], "in the order in which they were pushed");
    assert_eq!(learned.1, [(0, ids(&[1, 2, 3])), (0, ids(&[4])), (1, ids(&[2]))], "in folds of the usual size");

    // This time the Mergers see it differently.
    let again = world.futures(Choices::replaying(first.choices()), 8);
    assert_eq!(world.push(&again, &[(0, ids(&[1, 2, 3]))]), learned);
    assert_eq!(again.choices(), first.choices());

    let other = world.futures(Choices::replaying(vec![Choice::Random(1)]), 7);
    let error = Pushes::open(&other, &[], 3).unwrap().due(&other).unwrap_err();
    assert!(error.to_string().contains("not deterministic"), "{error}");
}

/// Waits for an object that the program can do without.
async fn waits(futures: &Futures) -> Result<Option<Came>, JobError> {
    let object = ObjectRef::adopt(&futures.0.owner, object(7));
    let mut window = Window::new(1);
    window.track_best_effort(futures, &object)?;
    let came = window.next_came(futures).await?;
    assert!(window.is_empty());
    Ok(came.map(|came| came.map(|object| object.id())))
}

/// What the program asked of its Owner but to give back references; whoever waits for an object is told `outcome`.
fn asked(told: &mut mpsc::UnboundedReceiver<OwnerEvent>, outcome: Result<(), JobError>) -> Vec<&'static str> {
    let calls = std::iter::from_fn(|| told.try_recv().ok());
    let asked = calls.filter_map(|call| match call {
        OwnerEvent::Program(ProgramCall::MayGiveUp(given)) if given == object(7) => Some("may give up"),
        OwnerEvent::Program(ProgramCall::Cancel(given)) if given == object(7) => Some("cancel"),
        OwnerEvent::Program(ProgramCall::Track { object, notify }) => {
            match notify {
                Notify::Once(answer) => drop(answer.send(outcome.clone())),
                Notify::Queue(queue) => drop(queue.send((object, outcome.clone()))),
            }
            Some("track")
        }
        OwnerEvent::Program(ProgramCall::Chose(_) | ProgramCall::ReleaseObject(_)) => None,
        other => panic!("{other:?}"),
    });
    asked.collect()
}

/// Runs `waits` while an Owner says `outcome`.
async fn learns(
    futures: &Futures,
    told: &mut mpsc::UnboundedReceiver<OwnerEvent>,
    outcome: Result<(), JobError>,
) -> (Result<Option<Came>, JobError>, Vec<&'static str>) {
    let mut calls = Vec::new();
    let mut waits = pin!(waits(futures));
    let came = loop {
        if let Poll::Ready(came) = ::futures::poll!(waits.as_mut()) {
            break came;
        }
        calls.extend(asked(told, outcome.clone()));
        assert_ne!(calls.len(), 0, "the program waits for nothing");
    };
    calls.extend(asked(told, outcome));
    (came, calls)
}

#[tokio::test]
async fn what_was_given_up_is_given_up_when_the_program_is_run_again() {
    let cases = [
        (Ok(()), Came::Made(object(7)), Choice::Ready(vec![object(7)]), vec!["track", "track"]),
        (
            Err(JobError::Cancelled),
            Came::GivenUp(object(7)),
            Choice::GivenUp(object(7)),
            vec!["may give up", "track", "cancel"],
        ),
    ];
    for (outcome, expected, choice, again_asked) in cases {
        let world = World::new();
        let (first, mut told) = world.futures_and_owner(Choices::default(), 7);
        let (came, calls) = learns(&first, &mut told, outcome).await;
        assert_eq!(came, Ok(Some(expected)));
        assert_eq!(calls, ["may give up", "track"]);
        assert_eq!(first.choices(), [choice]);

        // What was made then is not given up now, but waited for; what was given up is cancelled, whatever has come of it.
        let (again, mut told) = world.futures_and_owner(Choices::replaying(first.choices()), 8);
        let (came, calls) = learns(&again, &mut told, Ok(())).await;
        assert_eq!((came, calls), (Ok(Some(expected)), again_asked));
        assert_eq!(again.choices(), first.choices());
    }
}

#[tokio::test]
async fn what_may_be_given_up_can_fail_all_the_same() {
    let world = World::new();
    let (futures, mut told) = world.futures_and_owner(Choices::default(), 7);
    let error = JobError::program("its disk is full");
    let (came, _) = learns(&futures, &mut told, Err(error.clone())).await;
    assert_eq!(came, Err(error));
    assert_eq!(futures.choices(), []);
}

/// What says what the streams of a program announce.
type Announcer = Teller<Result<Option<ObjectId>, JobError>>;

/// Two streams, as one.
fn two_streams(futures: &Futures) -> ([(TaskId, Announcer); 2], Arrivals) {
    let streams = [1, 2].map(|task| TaskId::from_u128(task << 64)).map(|task| {
        let (announcer, told) = queue::queue(|_| true);
        ((task, announcer), ObjectStream::adopt(&futures.0.owner, task, told))
    });
    let [first, second] = streams;
    ([first.0, second.0], Arrivals::of(vec![first.1, second.1]))
}

#[tokio::test]
async fn in_which_order_streams_announce_is_learned_and_is_the_same_when_the_program_is_run_again() {
    let world = World::new();
    let futures = world.futures(Choices::default(), 7);
    let ([first, second], mut arrivals) = two_streams(&futures);
    let mut expected = Vec::new();
    for ((task, announcer), index) in [(&second, 0), (&first, 0), (&second, 1)] {
        assert!(announcer.send(Ok(Some(task.output(index)))));
        expected.push(task.output(index));
        let came = arrivals.next(&futures).await.unwrap();
        assert_eq!(came.map(|object| object.id()), expected.last().copied());
    }
    [&first, &second].iter().for_each(|(_, announcer)| assert!(announcer.send(Ok(None))));
    assert!(arrivals.next(&futures).await.unwrap().is_none());

    // This time all are there at once.
    let again = world.futures(Choices::replaying(futures.choices()), 8);
    let ([first, second], mut arrivals) = two_streams(&again);
    for ((task, announcer), count) in [(&first, 1), (&second, 2)] {
        (0..count).for_each(|index| assert!(announcer.send(Ok(Some(task.output(index))))));
        announcer.send(Ok(None));
    }
    let mut came = Vec::new();
    while let Some(object) = arrivals.next(&again).await.unwrap() {
        came.push(object.id());
    }
    assert_eq!(came, expected);
    assert_eq!(again.choices(), futures.choices(), "the end is one of them");
    assert_eq!(futures.choices().len(), 4);

    let other = world.futures(Choices::replaying(vec![Choice::Ready(vec![object(9)])]), 7);
    let (_announcers, mut arrivals) = two_streams(&other);
    let error = arrivals.next(&other).await.unwrap_err();
    assert!(error.to_string().contains("not deterministic"), "{error}");
}

#[tokio::test]
async fn what_a_program_learns_behind_the_end_of_streams_it_learns_again_and_no_shorter_stream_is_taken_for_the_end() {
    let world = World::new();
    let futures = world.futures(Choices::default(), 7);
    let ([first, second], mut arrivals) = two_streams(&futures);
    assert!(first.1.send(Ok(Some(first.0.output(0)))));
    [&first, &second].iter().for_each(|(_, announcer)| assert!(announcer.send(Ok(None))));
    assert!(arrivals.next(&futures).await.unwrap().is_some());
    assert!(arrivals.next(&futures).await.unwrap().is_none());
    assert!(arrivals.next(&futures).await.unwrap().is_none(), "asked once more");
    let number = futures.random();

    let again = world.futures(Choices::replaying(futures.choices()), 8);
    let (announcers, mut arrivals) = two_streams(&again);
    assert!(announcers[0].1.send(Ok(Some(announcers[0].0.output(0)))));
    announcers.iter().for_each(|(_, announcer)| assert!(announcer.send(Ok(None))));
    while arrivals.next(&again).await.unwrap().is_some() {}
    assert!(arrivals.next(&again).await.unwrap().is_none(), "asked once more");
    assert_eq!(again.random(), number);
    assert_eq!(again.choices(), futures.choices());

    let shorter = world.futures(Choices::replaying(futures.choices()), 8);
    let (announcers, mut arrivals) = two_streams(&shorter);
    announcers.iter().for_each(|(_, announcer)| assert!(announcer.send(Ok(None))));
    let error = arrivals.next(&shorter).await.unwrap_err();
    assert!(error.to_string().contains("not deterministic"), "{error}");
}

#[tokio::test]
async fn a_stream_that_has_announced_much_does_not_hide_another_one() {
    let world = World::new();
    let futures = world.futures(Choices::default(), 7);
    let ([first, second], mut arrivals) = two_streams(&futures);
    (0..8).for_each(|index| assert!(first.1.send(Ok(Some(first.0.output(index))))));
    (0..8).for_each(|index| assert!(second.1.send(Ok(Some(second.0.output(index))))));
    let mut of_second = 0;
    for _ in 0..8 {
        let came = arrivals.next(&futures).await.unwrap().expect("there are more");
        of_second += u32::from((0..8).any(|index| came.id() == second.0.output(index)));
    }
    assert_eq!(of_second, 4, "of eight");
}

/// Branches of a program that open edges that are declared alike in another order make tasks of other names.
#[tokio::test]
async fn what_the_log_has_as_ready_and_the_program_does_not_wait_for_is_no_program_that_is_deterministic() {
    let world = World::new();
    for replayed in [object(9), object(1)] {
        let log = || Choices::replaying(vec![Choice::Ready(vec![replayed])]);
        let is_its = replayed == object(1);
        let futures = world.futures(log(), 7);
        let own = ObjectRef::adopt(&futures.0.owner, object(1));
        let waited = futures.wait(std::slice::from_ref(&own), 1, None).await;
        match waited {
            Ok((ready, rest)) => assert!(is_its && ready.len() == 1 && rest.is_empty()),
            Err(error) => assert!(!is_its && error.to_string().contains("not deterministic"), "{error}"),
        }

        let (futures, mut told) = world.futures_and_owner(log(), 7);
        let own = ObjectRef::adopt(&futures.0.owner, object(1));
        let mut window = Window::new(1);
        window.track(&futures, &own).unwrap();
        let came = {
            let mut next = pin!(window.next(&futures));
            loop {
                match ::futures::poll!(next.as_mut()) {
                    Poll::Ready(came) => break came,
                    Poll::Pending => assert!(!asked(&mut told, Ok(())).is_empty(), "the program waits for nothing"),
                }
            }
        };
        match came {
            Ok(came) => assert!(is_its && came.is_some()),
            Err(error) => assert!(!is_its && error.to_string().contains("not deterministic"), "{error}"),
        }
    }
}

/// What a program has said of edges, and which objects it has let go.
fn said(told: &mut mpsc::UnboundedReceiver<OwnerEvent>) -> Vec<String> {
    let calls = std::iter::from_fn(|| told.try_recv().ok()).filter_map(|event| match event {
        OwnerEvent::Program(ProgramCall::OpenEdge { .. }) => Some("opens".into()),
        OwnerEvent::Program(ProgramCall::JoinEdge { object, .. }) => Some(format!("joins {}", object.as_u128() >> 32)),
        OwnerEvent::Program(ProgramCall::MakeSet { members, edge, .. }) => {
            assert!(edge.is_some());
            let members: Vec<_> = members.iter().map(|member| member.as_u128() >> 32).collect();
            Some(format!("reads {members:?}"))
        }
        OwnerEvent::Program(ProgramCall::Unread { parts, .. }) => Some(format!("unread {parts:?}")),
        OwnerEvent::Program(ProgramCall::StopEdges(edge)) => Some(format!("stops {}", edge.map_or("all", |_| "one"))),
        OwnerEvent::Program(ProgramCall::ReleaseEdge(_)) => Some("closes".into()),
        OwnerEvent::Program(ProgramCall::ReleaseObject(object)) => Some(format!("drops {}", object.as_u128() >> 32)),
        _ => None,
    });
    calls.collect()
}

#[test]
fn an_edge_holds_its_members_until_it_is_closed_and_those_that_are_read_once_until_a_set_holds_them() {
    use crate::task::EdgeShape;
    let world = World::new();
    let (futures, mut told) = world.futures_and_owner(Choices::default(), 7);
    let objects = |of: std::ops::Range<u128>| -> Vec<ObjectRef> {
        of.map(|number| ObjectRef::adopt(&futures.0.owner, object(number))).collect()
    };
    for readers in [1, 2] {
        let edge = futures.edge(EdgeShape { readers, ..EdgeShape::new("map -> reduce", 4) }).unwrap();
        edge.join_all(&objects(1..4)).unwrap();
        edge.join(&edge.members()[0]).unwrap();
        assert_eq!(said(&mut told), ["opens", "joins 1", "joins 2", "joins 3", "joins 1"], "and holds them");
        assert_eq!((edge.len(), edge.members().len()), (4, 4));
        let error = edge.first(5).unwrap_err();
        assert!(
            error.to_string().contains("4 objects have joined the edge map -> reduce, 5 were asked for"),
            "{error}"
        );
        let first = edge.first(2).unwrap();
        let member = edge.members().remove(2);
        let third = edge.of(std::slice::from_ref(&member)).unwrap();
        drop(member);
        edge.unread(1..3).unwrap();
        let lets_go: &[&str] = if readers == 1 { &["drops 3"] } else { &[] };
        assert_eq!(said(&mut told), [&["reads [1, 2]", "reads [3]"], lets_go, &["unread 1..3"]].concat());
        let all = edge.close().unwrap();
        let mut closes = said(&mut told);
        closes[1..].sort();
        let rest: &[&str] = if readers == 1 { &[] } else { &["drops 3"] };
        assert_eq!(closes, [&["reads [1, 2, 3, 1]", "closes", "drops 1", "drops 2"], rest].concat());
        assert_eq!((first.len(), third.len(), all.len()), (2, 1, 4));
    }
    let [one, other] = [(); 2].map(|()| futures.edge(EdgeShape::new("alike", 1)).unwrap());
    let member = objects(9..10);
    [&one, &other].iter().for_each(|edge| edge.join_all(&member).unwrap());
    assert_ne!(one.first(1).unwrap().id(), other.first(1).unwrap().id(), "edges that are declared alike are two");
    drop(member);
    said(&mut told);
    one.stop().unwrap();
    assert_eq!(said(&mut told), ["stops one", "closes"], "the other one holds its member");
    other.stop().unwrap();
    assert_eq!(said(&mut told), ["drops 9", "stops one", "closes"]);
    futures.stop_edges().unwrap();
    assert_eq!(said(&mut told), ["stops all"]);
}

#[tokio::test]
async fn who_listens_hears_words_and_a_program_that_is_run_again_hears_them_where_it_was_then() {
    let world = World::new();
    let words = Words::default();
    let (first, mut told) = world.told(Choices::default(), words.clone());
    let (one, other) = (first.listen(), first.listen());
    assert!(words.say(Word::Enough));
    assert_eq!(one.hears(|| 7).await, (Word::Enough, 7));
    let waits = tokio::time::timeout(Duration::from_millis(10), one.hears(|| 8));
    assert!(waits.await.is_err(), "nothing else was said");
    assert!(words.say(Word::GoOn));
    assert_eq!(one.hears(|| 9).await, (Word::GoOn, 9));
    assert_eq!(other.hears(|| 3).await, (Word::GoOn, 3), "what was said last");
    let logged = [Choice::Told(0, Word::Enough, 7), Choice::Told(0, Word::GoOn, 9), Choice::Told(1, Word::GoOn, 3)];
    assert_eq!(first.choices(), logged);
    let noted = std::iter::from_fn(|| told.try_recv().ok())
        .filter(|event| matches!(event, OwnerEvent::Program(ProgramCall::Chose(Choice::Told(..)))));
    assert_eq!(noted.count(), 3);
    // Nobody says anything to the next run, and random numbers have an order of their own.
    let words = Words::default();
    let past = [&logged[..1], &[Choice::Random(7)], &logged[1..]].concat();
    let (again, _told) = world.told(Choices::replaying(past), words.clone());
    let (one, other) = (again.listen(), again.listen());
    assert_eq!(other.hears(|| 0).await, (Word::GoOn, 3));
    assert_eq!(one.hears(|| 0).await, (Word::Enough, 7));
    assert_eq!((again.random(), one.hears(|| 0).await), (7, (Word::GoOn, 9)));
    assert!(words.say(Word::GoOn));
    let waits = tokio::time::timeout(Duration::from_millis(10), one.hears(|| 8));
    assert!(waits.await.is_err(), "it has heard that before");
    drop((one, other));
    assert!(!words.say(Word::Enough), "nobody listens");
}

#[tokio::test]
async fn a_program_that_is_run_again_reads_what_it_has_noted_before_anything_is_said() {
    let world = World::new();
    let words = Words::default();
    let (first, _told) = world.told(Choices::default(), words.clone());
    let (listener, notes) = (first.listen(), first.notes());
    assert_eq!(notes.noted(), None);
    notes.note(Word::Enough, 7);
    assert_eq!(notes.noted(), None, "what this run has noted is not what an earlier one has");
    assert_eq!(first.choices(), [Choice::Told(1, Word::Enough, 7)]);
    drop(listener);
    assert!(!words.say(Word::Enough), "notes are no listener");
    let (again, _told) = world.told(Choices::replaying(first.choices()), Words::default());
    let (listener, notes) = (again.listen(), again.notes());
    assert_eq!(notes.noted(), Some((Word::Enough, 7)));
    assert_eq!(notes.noted(), None);
    let waits = tokio::time::timeout(Duration::from_millis(10), listener.hears(|| 8));
    assert!(waits.await.is_err(), "a note is nothing that people have said");
}

/// Two computations, of which the first is over when the second is.
async fn computes(futures: &Futures) -> (Result<u64, JobError>, Result<String, JobError>) {
    let (tell, told) = std::sync::mpsc::channel();
    let first = futures.compute(move || told.recv().unwrap());
    let second = futures.compute(|| "second".to_owned());
    join!(first, async {
        let second = second.await;
        tell.send(7).unwrap();
        second
    })
}

#[tokio::test]
async fn what_was_computed_is_learned_whoever_is_done_first_and_not_computed_again() {
    let world = World::new();
    let (first, mut told) = world.futures_and_owner(Choices::default(), 7);
    let computed = computes(&first).await;
    assert_eq!(computed, (Ok(7), Ok("second".to_owned())));
    let numbers: Vec<_> = first.choices().iter().map(|choice| matches!(choice, Choice::Computed(1, Ok(_)))).collect();
    assert_eq!(numbers, [true, false], "in the order in which they were done: {:?}", first.choices());
    let (mut begun, mut over) = (Vec::new(), Vec::new());
    while over.len() < 2 {
        match told.recv().await {
            Some(OwnerEvent::Program(ProgramCall::Computes { number, thread })) => begun.push((number, thread)),
            Some(OwnerEvent::Program(ProgramCall::Computed { number })) => over.push(number),
            _ => {}
        }
    }
    over.sort_unstable();
    assert_eq!((begun.len(), over), (2, vec![0, 1]), "its Owner knows of each thread as long as it computes");
    assert!(
        begun.iter().all(|(_, thread)| thread.starts_with("exobus-comp-")) && begun[0].1 != begun[1].1,
        "{begun:?}"
    );

    let again = world.futures(Choices::replaying(first.choices()), 8);
    let forbidden = |_: &str| -> u64 { panic!("it was computed before") };
    let (a, b) = (again.compute(move || forbidden("first")), again.compute(|| -> String { panic!("as above") }));
    assert_eq!((a.await, b.await), computed);
    assert_eq!(again.compute(|| 9).await, Ok(9), "live from here on");
    assert_eq!(again.choices().len(), 3);
}

#[tokio::test]
async fn what_is_pure_is_computed_again_and_may_have_any_size() {
    let world = World::new();
    let compute = async |futures: &Futures| futures.compute_pure(|| vec![7_u8; 2 * COMPUTED_BYTES_MAX]).await.unwrap();
    let first = world.futures(Choices::default(), 7);
    let made = compute(&first).await;
    assert_eq!(first.choices(), []);
    let again = world.futures(Choices::replaying(first.choices()), 8);
    assert_eq!(compute(&again).await, made);
}

#[tokio::test]
async fn a_result_that_is_too_large_for_the_log_is_refused_and_refused_again() {
    let world = World::new();
    let compute = async |futures: &Futures, bytes: usize| futures.compute(move || "x".repeat(bytes)).await;
    let first = world.futures(Choices::default(), 7);
    // With its length before it.
    assert!(compute(&first, COMPUTED_BYTES_MAX - 3).await.is_ok());
    let refused = compute(&first, COMPUTED_BYTES_MAX).await.unwrap_err();
    assert!(refused.to_string().contains("a result of 65541 bytes, and the log of the job takes 65536"), "{refused}");
    let again = world.futures(Choices::replaying(first.choices()), 8);
    assert!(compute(&again, 1).await.is_ok_and(|value| value.len() == COMPUTED_BYTES_MAX - 3));
    assert_eq!(compute(&again, 1).await, Err(refused), "though it would fit now");
}

#[tokio::test]
async fn a_computation_that_panics_panics_in_its_program() {
    let world = World::new();
    let futures = world.futures(Choices::default(), 7);
    let panic = AssertUnwindSafe(futures.compute(|| -> u64 { panic!("no plan for {} nodes", 0) })).catch_unwind().await;
    assert_eq!(crate::panic_text(&*panic.unwrap_err()), "no plan for 0 nodes");
    assert_eq!(futures.choices(), []);
}

/// A system that has no threads left.
#[derive(Debug)]
struct NoThreads;

impl Compute for NoThreads {
    fn begin(&self, _: &str, _: super::super::compute::Computation) -> std::io::Result<()> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

#[tokio::test]
async fn a_computation_for_which_there_is_no_thread_is_an_error_and_none_under_way() {
    let world = World { compute: Arc::new(NoThreads), ..World::new() };
    let (futures, mut told) = world.futures_and_owner(Choices::default(), 7);
    // More often than there may be at a time.
    for _ in 0..20 {
        let error = futures.compute(|| 7).await.unwrap_err();
        assert!(error.to_string().contains("a thread to compute on"), "{error}");
    }
    let calls = std::iter::from_fn(|| told.try_recv().ok());
    let over = calls.filter(|call| matches!(call, OwnerEvent::Program(ProgramCall::Computed { .. })));
    assert_eq!((over.count(), futures.choices().len()), (20, 0));
}
