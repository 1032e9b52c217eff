//! An argument that is corrupt, unreadable, missing or out of reach fails the attempt with its name and its node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_store::disk::{Fault, FaultyDisk, MemoryDisk, Op};
use exobus_store::{ObjectMeta, RowHash, StoreOptions, SystemClock, WriterOptions};
use parking_lot::Mutex;

use super::losses;
use super::remote::FetchError;
use super::sets::Sets;
use super::staging::{Prepared, Stager};
use super::suspicions::Verdict;
use super::*;
use crate::ids::{CopyId, CopyNumber, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::isolation::ExecutorKind;
use crate::protocol::copies::Whereabouts;
use crate::registry::{Argument, Function, Mode};
use crate::task::{FailureKind, LocatedArg, LocatedSource, Loss, LostObject, Parts, TaskFailure, TaskSpec};
use crate::transfer::network::{ChaosNetwork, MemoryNetwork, Network};
use crate::transfer::{ClientOptions, PeerName, ServerOptions, TransferClient, TransferError, TransferServer};

const TOKEN: &str = "a token of the tests";
const MIB: usize = 1 << 20;
const JOB: JobId = JobId::from_u128(1);

/// The first copy of the object of this number.
fn copy(number: u64) -> CopyId {
    ObjectId::from_u128(u128::from(number + 1) << 32).copy(JOB, CopyNumber::FIRST)
}

fn function(modes: &'static [Mode]) -> &'static Function {
    let call = |_: &mut crate::registry::TaskContext<'_>, _: &[u8]| Ok(());
    Box::leak(Box::new(Function {
        name: "test",
        version: 1,
        modes,
        setup: None,
        deterministic: true,
        module: module_path!(),
        call,
    }))
}

struct Node {
    name: NodeId,
    stager: Stager,
    disk: FaultyDisk,
    server: TransferServer,
}

impl Node {
    fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

struct World {
    network: Arc<dyn Network>,
    addresses: Arc<Mutex<BTreeMap<NodeId, String>>>,
    made: AtomicU64,
}

use std::sync::Arc;

impl World {
    fn new(network: Arc<dyn Network>) -> Self {
        Self { network, addresses: Arc::default(), made: AtomicU64::new(0) }
    }

    /// A node with 8 MiB for objects and a disk that fails when told.
    fn node(&self, name: &str) -> Node {
        let node = NodeId::new(name);
        let disk = FaultyDisk::new(Arc::new(MemoryDisk::new()));
        let clock: Arc<dyn exobus_store::Clock> = Arc::new(SystemClock::new());
        let options = StoreOptions {
            node: name.to_owned(),
            memory_bytes: 12 << 20,
            reserve_per_executor_bytes: 4 << 20,
            spill_dirs: vec!["/spill".into()],
            ..StoreOptions::default()
        };
        let store = exobus_store::Store::open(options, Arc::new(disk.clone()), clock.clone()).unwrap();
        let serving =
            ServerOptions { node: name.to_owned(), network: self.network.clone(), ..ServerOptions::default() };
        let server = TransferServer::start_with(serving, TOKEN, store.clone(), clock.clone()).unwrap();
        self.addresses.lock().insert(node.clone(), server.address().to_string());
        let fetching =
            ClientOptions { node: name.to_owned(), network: self.network.clone(), ..ClientOptions::default() };
        let known = self.addresses.clone();
        let stager = Stager {
            node: node.clone(),
            store,
            executors: 2,
            transfer: TransferClient::with(fetching, TOKEN, clock.clone()),
            addresses: Arc::new(move |node| known.lock().get(node).cloned()),
            is_gone: Arc::new(|_| false),
            suspicions: Suspicions::default(),
            clock,
            received: Tally::default(),
            pushed: Pushed::default(),
            executor: ExecutorKind::Thread,
        };
        Node { name: node, stager, disk, server }
    }

    /// Puts objects of a mebibyte onto a node until the first ones are on disk only; the first four.
    fn fill(&self, node: &Node) -> Vec<CopyId> {
        let objects: Vec<_> = (0..24).map(|_| self.write(node).id).collect();
        node.stager.store.wait_until_idle();
        assert!(objects[..4].iter().all(|id| node.stager.store.try_get(id, Parts::All).is_none()), "on disk only");
        objects[..4].to_vec()
    }

    fn write(&self, node: &Node) -> ObjectMeta {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let options = WriterOptions { bytes_hint: MIB as u64, ..WriterOptions::default() };
        let mut writer = node.stager.store.writer(copy(number), options);
        writer.begin_part(Some(MIB as u64)).unwrap();
        writer.write(&content(number)).unwrap();
        writer.end_part(1, RowHash(u128::from(number)));
        writer.seal().unwrap()
    }
}

fn content(number: u64) -> Vec<u8> {
    (0..MIB as u64 / 8).flat_map(|at| (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

fn content_of(object: CopyId) -> Vec<u8> {
    content((object.bits >> 32) as u64 - 1)
}

fn spec(args: Vec<LocatedArg>) -> TaskSpec {
    TaskSpec { args, ..TaskSpec::plain(JOB, TaskId::from_u128(2), "test@1") }
}

fn object_arg(copy: CopyId, at: &NodeId) -> LocatedArg {
    let (object, number) = ObjectId::of_copy(copy);
    let at = Some((at.clone(), number.expect("it is a copy that an Owner asked for")));
    LocatedArg { source: LocatedSource::Object { object, at }, parts: Parts::All }
}

fn set_arg(version: u32) -> LocatedArg {
    LocatedArg { source: LocatedSource::Set { set: SET, version }, parts: Parts::All }
}

fn lost(copy: CopyId, node: &NodeId, loss: Loss) -> LostObject {
    losses::lost(copy, node, loss).expect("it is a copy that an Owner asked for")
}

fn gone(copy: CopyId, node: &Node) -> LostObject {
    lost(copy, &node.name, Loss::Gone)
}

const SET: SetId = SetId::from_u128(9);

/// A set of these objects.
fn set_of(objects: impl ExactSizeIterator<Item = (CopyId, Whereabouts)>) -> Sets {
    let (mut sets, total) = (Sets::default(), objects.len() as u32);
    let members = objects.map(|(copy, at)| (ObjectId::of_copy(copy).0, at)).collect();
    assert!(sets.define((JOB, SET), (0, 0), 0, total, &members));
    sets
}

/// Stages what a task reads that knows these sets.
async fn stage(here: &Node, modes: &'static [Mode], spec: &TaskSpec, sets: &Sets) -> Result<Prepared, TaskFailure> {
    let trail = why::Trail::begun(here.stager.clock.now());
    here.stager.stage(spec, function(modes), sets.arguments(spec)?, trail).await
}

/// Stages one argument that is all of these objects.
async fn stage_set(here: &Node, modes: &'static [Mode], objects: &[(CopyId, &Node)]) -> Result<Prepared, TaskFailure> {
    let at = |node: &Node| Whereabouts::At(node.name.clone(), CopyNumber::FIRST);
    let sets = set_of(objects.iter().map(|(copy, node)| (*copy, at(node))));
    stage(here, modes, &spec(vec![set_arg(0)]), &sets).await
}

/// What a whole argument has in it, object by object.
fn whole(prepared: &Prepared) -> Vec<Vec<u8>> {
    let Argument::Whole(blocks) = &prepared.args[0] else { panic!("not whole") };
    blocks.iter().map(|block| block.to_vec()).collect()
}

fn memory() -> Arc<dyn Network> {
    Arc::new(MemoryNetwork::new())
}

/// `stage` fails, and says that exactly these are gone; they are, and are counted.
async fn loses(here: &Node, modes: &'static [Mode], objects: &[(CopyId, &Node)], lost: &[LostObject]) -> TaskFailure {
    let failure = stage_set(here, modes, objects).await.expect_err("an argument is lost");
    assert_eq!(failure.kind, FailureKind::ArgumentLost, "{failure}");
    assert!(failure.kind.retry());
    assert_eq!(failure.lost, lost, "{failure}");
    failure
}

#[tokio::test]
async fn a_corrupt_or_unreadable_argument_of_this_node_is_lost_by_name() {
    for fault in [Fault::FlipBit(4321), Fault::Errno(5)] {
        let world = World::new(memory());
        let node = world.node("n1");
        let objects = world.fill(&node);
        node.disk.fail(Op::Read, 0, fault);
        let wanted = [(objects[0], &node), (objects[2], &node)];
        let failure = stage_set(&node, &[Mode::Whole], &wanted).await.expect_err("an argument is lost");
        assert_eq!(node.disk.fired(), 1);
        assert_eq!(failure.kind, FailureKind::ArgumentLost, "{failure}");
        // Which of the two is read first is the disk's affair.
        assert!([vec![gone(objects[0], &node)], vec![gone(objects[2], &node)]].contains(&failure.lost), "{failure}");
        let lost = failure.lost[0].object.copy(JOB, failure.lost[0].number);
        assert!(!node.stager.store.contains(&lost), "it is not served again");
        assert_eq!(node.stager.store.stats().lost_objects, 1);
        let other = if lost == objects[0] { objects[2] } else { objects[0] };
        assert_eq!(whole(&stage_set(&node, &[Mode::Whole], &[(other, &node)]).await.unwrap()), [content_of(other)]);
    }
}

/// It must not be taken for one without bytes.
#[tokio::test]
async fn a_set_of_which_a_member_is_lost_is_not_read() {
    let world = World::new(memory());
    let node = world.node("n1");
    let objects = world.fill(&node);
    let at = Whereabouts::At(node.name.clone(), CopyNumber::FIRST);
    let sets = set_of([(objects[0], at), (objects[1], Whereabouts::Lost)].into_iter());
    let spec = spec(vec![set_arg(0)]);
    for mode in [&[Mode::Whole], &[Mode::Stream], &[Mode::InPlace]] {
        let failure = stage(&node, mode, &spec, &sets).await.expect_err("a member is lost");
        assert_eq!((failure.kind, failure.lost.len()), (FailureKind::ArgumentLost, 0), "{failure}");
    }
}

#[tokio::test]
async fn a_stream_that_turns_out_corrupt_in_a_running_task_names_its_object_whatever_the_function_says() {
    let world = World::new(memory());
    let node = world.node("n1");
    let objects = world.fill(&node);
    node.disk.fail(Op::Read, 0, Fault::FlipBit(99));
    let spec = spec(vec![object_arg(objects[1], &node.name), object_arg(objects[2], &node.name)]);
    let Prepared { args, .. } = stage(&node, &[Mode::Stream], &spec, &Sets::default()).await.unwrap();
    let mut read = args.into_iter().map(|arg| {
        let Argument::Stream(mut readers) = arg else { panic!("not a stream") };
        std::io::copy(&mut readers[0], &mut std::io::sink())
    });
    assert!(read.any(|read| read.is_err()));
    let read_here = Sets::default().read_on(&node.name, &spec);
    for kind in [FailureKind::Error, FailureKind::Final, FailureKind::Panic] {
        let failure = node.stager.with_losses(TaskFailure::new(kind, "unexpected end"), &read_here);
        assert_eq!(failure.kind, FailureKind::ArgumentLost);
        assert_eq!((failure.lost.len(), failure.message.as_str()), (1, "unexpected end"));
        assert!([gone(objects[1], &node), gone(objects[2], &node)].contains(&failure.lost[0]));
    }
    let cancelled = TaskFailure::new(FailureKind::Cancelled, "");
    assert_eq!(node.stager.with_losses(cancelled.clone(), &read_here), cancelled);
}

#[tokio::test]
async fn arguments_that_another_node_does_not_have_are_all_named() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let objects: Vec<_> = (0..100).map(|number| copy(1000 + number)).collect();
    let (has, own) = (world.write(&there).id, world.write(&here).id);
    let wanted: Vec<_> = objects.iter().map(|object| (*object, &there)).chain([(has, &there), (own, &here)]).collect();
    let lost: Vec<_> = objects.iter().map(|object| gone(*object, &there)).take(TaskFailure::LOST_MAX).collect();
    let failure = loses(&here, &[Mode::Whole], &wanted, &lost).await;
    assert!(failure.message.contains("n2") && failure.message.contains("100 in all"), "{failure}");
    let streamed = loses(&here, &[Mode::Stream], &[(objects[7], &there)], &[gone(objects[7], &there)]).await;
    assert!(streamed.message.contains("n2"), "{streamed}");
    assert_eq!(here.stager.store.stats().pinned_bytes, 0, "nothing is held");
}

#[tokio::test]
async fn what_another_node_has_wrong_is_dropped_there_and_lost() {
    for modes in [&[Mode::Whole], &[Mode::Stream]] {
        let world = World::new(memory());
        let (here, there) = (world.node("n1"), world.node("n2"));
        let objects = world.fill(&there);
        // Wrong whenever it is read: the disk has it wrong.
        there.disk.always(Op::Read, "/spill".as_ref(), Fault::FlipBit(12_345));
        let failure = loses(&here, modes, &[(objects[0], &there)], &[gone(objects[0], &there)]).await;
        assert!(failure.message.contains("n2"), "{failure}");
        there.disk.heal();
        assert!(!there.stager.store.contains(&objects[0]), "it is not served again");
        assert_eq!(there.stager.store.stats().corrupt_blocks, 1);
        stage_set(&here, modes, &[(objects[1], &there)]).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_only_garbled_on_its_way_is_fetched_again() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let objects = world.fill(&there);
    // Once wrong, as from a bus or a cable: the next time it is right.
    there.disk.fail(Op::Read, 0, Fault::FlipBit(777));
    let prepared = stage_set(&here, &[Mode::Whole], &[(objects[0], &there), (objects[1], &there)]).await.unwrap();
    assert_eq!(there.disk.fired(), 1);
    assert_eq!(whole(&prepared), [content_of(objects[0]), content_of(objects[1])]);
    assert_eq!(here.stager.transfer.stats().corrupt, 1, "it is counted");
    assert!(there.stager.store.contains(&objects[0]));
}

#[tokio::test]
async fn what_is_garbled_on_its_way_again_and_again_is_not_lost() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let object = world.write(&there).id;
    let garbled = || {
        let peer = PeerName { node: there.name.to_string(), address: there.address().to_string() };
        let error = TransferError::Corrupt { peer, object, cause: "a flipped bit".into() };
        FetchError::new(&there.name, &[(object, Parts::All)], error)
    };
    let mut patience = here.stager.patience();
    for _ in 0..3 {
        here.stager.again(&mut patience, garbled()).await.expect("it is right where it is");
    }
    assert!(there.stager.store.contains(&object));
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_body_is_made_again() {
    let network = Arc::new(ChaosNetwork::new(memory()));
    let world = World::new(network.clone());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let objects: Vec<_> = (0..4).map(|_| world.write(&there).id).collect();
    network.cut_after(2 * MIB as u64);
    let wanted: Vec<_> = objects.iter().map(|object| (*object, &there)).collect();
    let prepared = stage_set(&here, &[Mode::Whole], &wanted).await.unwrap();
    assert_eq!(network.cuts(), 1);
    assert_eq!(whole(&prepared), objects.iter().map(|object| content_of(*object)).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_node_out_of_reach_has_is_lost_with_a_word_that_it_may_be_there() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let object = world.write(&there).id;
    let (address, node) = (there.address(), there.name.clone());
    drop(there);
    let spec = spec(vec![object_arg(object, &node)]);
    for modes in [&[Mode::Whole], &[Mode::Stream]] {
        let failure = stage(&here, modes, &spec, &Sets::default()).await.expect_err("nobody is there");
        assert_eq!(failure.kind, FailureKind::ArgumentLost, "{failure}");
        assert_eq!(failure.lost, [lost(object, &node, Loss::Unreachable)]);
        assert!(failure.message.contains(&address.to_string()), "{failure}");
    }
}

/// The system's clock, and what it is ahead, in milliseconds.
#[derive(Debug, Default)]
struct Ahead(SystemClock, AtomicU64);

impl exobus_store::Clock for Ahead {
    fn now(&self) -> Duration {
        self.0.now() + Duration::from_millis(self.1.load(Ordering::Relaxed))
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }
}

#[tokio::test]
async fn waiting_for_memory_is_not_held_against_the_node_that_is_asked_then() {
    let world = World::new(memory());
    let mut here = world.node("n1");
    let clock = Arc::new(Ahead::default());
    here.stager.clock = clock.clone();
    let node = NodeId::new("n2");
    let broken = || {
        let peer = PeerName { node: node.to_string(), address: "there".into() };
        let error = TransferError::Interrupted { peer, bytes: 1, cause: "reset".into() };
        FetchError::new(&node, &[(copy(0), Parts::All)], error)
    };
    let mut patience = here.stager.patience();
    clock.1.fetch_add(60_000, Ordering::Relaxed);
    here.stager.asks(&mut patience);
    here.stager.again(&mut patience, broken()).await.expect("it was asked just now");
    clock.1.fetch_add(60_000, Ordering::Relaxed);
    here.stager.again(&mut patience, broken()).await.expect_err("it has been asked for long enough");
}

#[tokio::test]
async fn of_a_node_that_answers_one_connection_that_stands_still_is_forgiven() {
    let world = World::new(memory());
    let (mut here, there) = (world.node("n1"), world.node("n2"));
    let clock = Arc::new(Ahead::default());
    here.stager.clock = clock.clone();
    let (node, object) = (there.name.clone(), world.write(&there).id);
    let stalled = || {
        clock.1.fetch_add(4_000, Ordering::Relaxed);
        let peer = PeerName { node: node.to_string(), address: "there".into() };
        FetchError::new(&node, &[(object, Parts::All)], TransferError::Stalled { peer, bytes: 1, millis: 4_000 })
    };
    let mut patience = here.stager.patience();
    here.stager.again(&mut patience, stalled()).await.expect("it answers");
    here.stager.again(&mut patience, stalled()).await.expect_err("not for ever");
    let mut patience = here.stager.patience();
    drop(there);
    here.stager.again(&mut patience, stalled()).await.expect_err("it does not answer");
}

#[tokio::test]
async fn a_node_that_is_known_to_be_dead_is_asked_once() {
    let world = World::new(memory());
    let (mut here, there) = (world.node("n1"), world.node("n2"));
    let object = world.write(&there).id;
    let node = there.name.clone();
    drop(there);
    let looked = Arc::new(AtomicU64::new(0));
    let looks = looked.clone();
    here.stager.is_gone = Arc::new(move |_| {
        looks.fetch_add(1, Ordering::Relaxed);
        true
    });
    let spec = spec(vec![object_arg(object, &node)]);
    let staged = stage(&here, &[Mode::Whole], &spec, &Sets::default()).await;
    let failure = staged.expect_err("nobody is there");
    assert_eq!(failure.lost, [lost(object, &node, Loss::Unreachable)]);
    assert_eq!(looked.load(Ordering::Relaxed), 1, "after the first failure it was given up");
}

#[tokio::test]
async fn a_node_that_others_waited_for_in_vain_is_probed_and_no_more() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let object = world.write(&there).id;
    let node = there.name.clone();
    let spec = spec(vec![object_arg(object, &node)]);
    let now = || here.stager.clock.now();
    let none = Sets::default();
    let stage = || stage(&here, &[Mode::Whole], &spec, &none);
    here.stager.suspicions.suspect(&node, now());
    let prepared = stage().await.expect("it is there");
    assert_eq!(whole(&prepared), [content_of(object)]);
    assert_eq!(here.stager.suspicions.of(&node, now()), Verdict::Trusted, "it answered the probe");
    drop(there);
    here.stager.suspicions.suspect(&node, now());
    for _ in 0..2 {
        let failure = stage().await.expect_err("nobody is there");
        assert_eq!(failure.lost, [lost(object, &node, Loss::Unreachable)]);
        assert!(failure.message.contains("answers no probe"), "it was asked: {failure}");
    }
    assert!(matches!(here.stager.suspicions.of(&node, now()), Verdict::Wait(..)));
}

#[tokio::test]
async fn who_waits_for_a_suspected_node_goes_on_as_soon_as_it_answers_somebody() {
    let world = World::new(memory());
    let (here, there) = (world.node("n1"), world.node("n2"));
    let object = world.write(&there).id;
    let spec = spec(vec![object_arg(object, &there.name)]);
    let none = Sets::default();
    let stage = || stage(&here, &[Mode::Whole], &spec, &none);
    // Somebody probes it, and takes its time.
    let now = here.stager.clock.now();
    here.stager.suspicions.suspect(&there.name, now);
    let Verdict::Probe(_) = here.stager.suspicions.of(&there.name, now) else { panic!("nobody probes it yet") };
    let waiting = futures::future::join_all([stage(), stage()]);
    let clears = async {
        tokio::task::yield_now().await;
        here.stager.suspicions.clear(&there.name);
    };
    let (staged, ()) = futures::future::join(waiting, clears).await;
    for prepared in staged {
        assert_eq!(whole(&prepared.expect("it is there")), [content_of(object)]);
    }
    // And who probed it last in vain speaks for those who waited.
    here.stager.suspicions.suspect(&there.name, now);
    let Verdict::Probe(suspicion) = here.stager.suspicions.of(&there.name, now) else { panic!("nobody probes it yet") };
    let fails = async {
        tokio::task::yield_now().await;
        here.stager.suspicions.probe_failed(&there.name, suspicion, here.stager.clock.now());
    };
    let (failed, ()) = futures::future::join(futures::future::join_all([stage(), stage()]), fails).await;
    assert!(failed.iter().all(Result::is_err));
}
