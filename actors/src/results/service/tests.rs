//! The results of one node, which keeps what another node serves.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use exobus_store::disk::MemoryDisk;
use exobus_store::{Clock, RowHash, StoreOptions, SystemClock, WriterOptions};
use futures::FutureExt as _;
use parking_lot::Condvar;
use tokio::sync::mpsc;
use twox_hash::XxHash3_128;

use super::super::record::{MemberRecord, RECORD_VERSION, replacing_name};
use super::super::records::tests::SetForward;
use super::super::sweep::UNNAMED_FOR;
use super::*;
use crate::event::NodeState;
use crate::ids::Incarnation;
use crate::node_manager::Unneeded;
use crate::protocol::membership::{Figures, Health, Member};
use crate::protocol::results::KeptMember;
use crate::shell::{self, PostOptions};
use crate::transfer::network::{Listener, MemoryNetwork, Network, Socket};
use crate::transfer::{ClientOptions, ServerOptions, TransferServer};

const TOKEN: &str = "a token of the tests";
const TENANT: &str = "t";
const JOB: JobId = JobId::from_u128(7 << 64);
const KEPT: u64 = 3;

/// A network whose connections wait at a gate; it tells of each that comes.
#[derive(Debug)]
struct Gate {
    inside: MemoryNetwork,
    open: Mutex<bool>,
    opened: Condvar,
    knocks: mpsc::UnboundedSender<()>,
}

impl Gate {
    fn set(&self, open: bool) {
        *self.open.lock() = open;
        self.opened.notify_all();
    }
}

impl Network for Gate {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        let _ = self.knocks.send(());
        self.opened.wait_while(&mut self.open.lock(), |open| !*open);
        self.inside.connect(address, timeout)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        self.inside.listen(address)
    }
}

fn store(clock: &Arc<dyn Clock>) -> Store {
    let spill_dirs = vec![PathBuf::from("/spill")];
    let options = StoreOptions { memory_bytes: 64 << 20, spill_dirs, ..StoreOptions::default() };
    Store::open(options, Arc::new(MemoryDisk::new()), clock.clone()).unwrap()
}

/// A node, and another one from which it fetches.
struct World {
    parts: ResultsParts,
    there: Store,
    time: Arc<SetForward>,
    _server: TransferServer,
    gate: Arc<Gate>,
    knocks: mpsc::UnboundedReceiver<()>,
}

impl World {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (tell, knocks) = mpsc::unbounded_channel();
        let (inside, opened) = (MemoryNetwork::new(), Condvar::new());
        let gate = Arc::new(Gate { inside, open: Mutex::new(true), opened, knocks: tell });
        let (here, there) = (store(&clock), store(&clock));
        let serving = ServerOptions { node: "there".to_owned(), network: gate.clone(), ..ServerOptions::default() };
        let server = TransferServer::start_with(serving, TOKEN, there.clone(), clock.clone()).unwrap();
        let there_is = member("there", 1, Health::Alive, &server.address().to_string());
        let fetching = ClientOptions { network: gate.clone(), ..ClientOptions::default() };
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let time = SetForward::new();
        let on_fatal = Box::new(|fatal: shell::Fatal| panic!("{}", fatal.reason));
        let (node, incarnation) = (NodeId::new("here"), Incarnation(1));
        let base = ResultsBase {
            store: here,
            records: ResultRecords::new(bus.clone(), subjects.clone(), clock.clone()),
            bus,
            subjects,
            kept_for: Duration::from_secs(60),
            tenants: Arc::default(),
            adopting: Adopting::default(),
            spared: Spared::default(),
        };
        let parts = ResultsParts {
            base,
            post: Post::new(PostOptions { node, incarnation, clock: time.clone(), on_fatal }),
            directory: Directory::of([there_is, member("here", 1, Health::Alive, "")]),
            transfer: TransferClient::with(fetching, TOKEN, clock),
            data_address: String::new(),
            data_token: TOKEN.into(),
            calls: Calls::default(),
        };
        Self { parts, there, time, _server: server, gate, knocks }
    }

    /// Has the node keep a copy that the other one has.
    async fn keep(&self, copy: CopyId) -> Outcome {
        self.parts.keep((TENANT.into(), JOB), KEPT, copy, &NodeId::new("there")).await
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        holder::read_member(&self.parts.store, &kept_name(JOB, KEPT), 0, 1 << 20).is_ok_and(|read| read == bytes)
    }
}

fn member(node: &str, incarnation: u64, health: Health, data_address: &str) -> Member {
    Member {
        node: NodeId::new(node),
        incarnation: Incarnation(incarnation),
        health,
        figures: Figures::default(),
        data_address: data_address.to_owned(),
        silent_ms: 0,
    }
}

/// The record of a result of one member, which a node has.
fn record(node: &str, kept: u64, copy: u128, bytes: &[u8]) -> ResultRecord {
    let mut record = ResultRecord::new(0, u64::MAX);
    let (hash, node) = (XxHash3_128::oneshot(bytes), NodeId::new(node));
    let member = MemberRecord { bytes: bytes.len() as u64, hash, node, kept, copy };
    record.set_member((0, &"rows".into()), 0, member);
    record
}

fn copy(number: u128) -> CopyId {
    CopyId::new(JOB.group(), number)
}

fn put(store: &Store, copy: CopyId, bytes: &[u8]) {
    let mut writer = store.writer(copy, WriterOptions::default());
    writer.begin_part(Some(bytes.len() as u64)).unwrap();
    writer.write(bytes).unwrap();
    writer.end_part(1, RowHash::of(bytes));
    writer.seal().unwrap();
}

fn kept(bytes: &[u8]) -> Outcome {
    Ok(KeptMember { bytes: bytes.len() as u64, hash: XxHash3_128::oneshot(bytes) })
}

#[tokio::test]
async fn a_member_that_is_asked_for_again_while_it_is_fetched_is_fetched_once() {
    let mut world = World::new();
    put(&world.there, copy(1), b"bytes of a member");
    world.gate.set(false);
    let parts = world.parts.clone();
    let first = async move { parts.keep((TENANT.into(), JOB), KEPT, copy(1), &NodeId::new("there")).await };
    let first = tokio::spawn(first);
    world.knocks.recv().await.unwrap();
    let mut again = Box::pin(world.keep(copy(1)));
    assert_eq!((&mut again).now_or_never(), None, "it is fetched still");
    world.gate.set(true);
    assert_eq!(first.await.unwrap(), kept(b"bytes of a member"));
    assert_eq!(again.await, kept(b"bytes of a member"));
    assert!(world.holds(b"bytes of a member"));
    assert_eq!(world.parts.transfer.received_bytes(), 17);
}

#[tokio::test]
async fn a_member_that_is_asked_for_again_is_compared_and_neither_fetched_nor_deleted() {
    let world = World::new();
    put(&world.there, copy(1), b"bytes of a member");
    assert_eq!(world.keep(copy(1)).await, kept(b"bytes of a member"));
    assert_eq!(world.keep(copy(1)).await, kept(b"bytes of a member"));
    // Another copy of the same bytes is the same member.
    put(&world.there, copy(2), b"bytes of a member");
    assert_eq!(world.keep(copy(2)).await, kept(b"bytes of a member"));
    assert_eq!(world.parts.transfer.received_bytes(), 17);
    // One that is not there is not kept, and takes nothing away.
    world.there.delete(&[copy(1)]);
    let absent = world.keep(copy(1)).await;
    assert!(matches!(&absent, Err(NotKept::Gone(why)) if why.contains("there")), "{absent:?}");
    assert!(world.holds(b"bytes of a member"));
    // What an earlier run of the job has left is another member's.
    put(&world.there, copy(3), b"of another run");
    assert_eq!(world.keep(copy(3)).await, kept(b"of another run"));
    assert!(world.holds(b"of another run"));
}

#[tokio::test]
async fn of_two_copies_for_one_member_the_second_is_looked_at_when_the_first_is_kept() {
    let mut world = World::new();
    for number in [1, 2] {
        put(&world.there, copy(number), b"bytes of a member");
    }
    world.gate.set(false);
    let parts = world.parts.clone();
    let first = async move { parts.keep((TENANT.into(), JOB), KEPT, copy(1), &NodeId::new("there")).await };
    let first = tokio::spawn(first);
    world.knocks.recv().await.unwrap();
    let mut second = Box::pin(world.keep(copy(2)));
    assert_eq!((&mut second).now_or_never(), None);
    world.gate.set(true);
    assert_eq!(first.await.unwrap(), kept(b"bytes of a member"));
    assert_eq!(second.await, kept(b"bytes of a member"));
    assert_eq!(world.parts.transfer.received_bytes(), 17);
}

/// A job of which an earlier process of the node has left this object, and which is over.
fn left(world: &World, bytes: &[u8]) -> (JobId, CopyId) {
    let job = JobId::new();
    let copy = CopyId::new(job.group(), 1 << 64 | 1);
    put(&world.parts.store, copy, bytes);
    (job, copy)
}

#[tokio::test]
async fn what_a_record_of_another_version_names_stays_and_its_neighbours_are_served() {
    let world = World::new();
    let (parts, here) = (&world.parts, NodeId::new("here"));
    let (unread, its_copy) = left(&world, b"of another release");
    let (neighbour, copy) = left(&world, b"bytes of a neighbour");
    let (over, _) = left(&world, b"of no result");
    let its_record = record("here", 0, its_copy.bits, b"of another release");
    let of_another_release = exobus_bus::codec::encode_checked_as(RECORD_VERSION + 1, &its_record).unwrap();
    parts.records.put_bytes(TENANT, unread, of_another_release).await;
    let neighbours = record("here", 0, copy.bits, b"bytes of a neighbour");
    parts.records.change(TENANT, neighbour, |_| Some(neighbours.clone())).await.unwrap();
    // What the other release has kept under the names of results, and what nobody has.
    put(&parts.store, kept_name(unread, 1), b"named before");
    put(&parts.store, kept_name(over, 1), b"named by nobody");

    assert!([unread, neighbour, over].iter().all(|job| parts.spared.spares(*job)), "nothing is known yet");
    parts.name_again(&here).await.unwrap();
    assert!(parts.spared.spares(unread) && !parts.spared.spares(neighbour) && !parts.spared.spares(over));
    for job in [neighbour, over] {
        parts.store.delete_group(job.group());
    }
    let mut unnamed = BTreeMap::new();
    parts.sweep(&mut unnamed).await;
    world.time.by(2 * UNNAMED_FOR);
    parts.sweep(&mut unnamed).await;
    assert!(!parts.store.contains(&kept_name(over, 1)), "it was swept");
    assert!(parts.store.contains(&its_copy) && parts.store.contains(&kept_name(unread, 1)));
    let served = holder::read_member(&parts.store, &kept_name(neighbour, 0), 0, 100).unwrap();
    assert_eq!(served, b"bytes of a neighbour");
    // A job that has no result gives up nothing of a record that is not read.
    let (_, mut told) = shell::mailbox::<ResultsMsg, ResultsMsg>(&parts.post, ACTOR);
    crate::results::discard(parts, TENANT, unread).await;
    assert!(told.try_recv().is_err());
    crate::results::discard(parts, TENANT, neighbour).await;
    assert!(matches!(told.try_recv(), Ok(ResultsMsg::Drop { job }) if job == neighbour));

    // The other release has ended, and this one has written it anew.
    parts
        .records
        .put_bytes(TENANT, unread, exobus_bus::codec::encode_checked_as(RECORD_VERSION, &its_record).unwrap())
        .await;
    parts.sweep(&mut unnamed).await;
    assert!(!parts.spared.spares(unread));
    parts.store.delete_group(unread.group());
    assert_eq!(holder::read_member(&parts.store, &kept_name(unread, 0), 0, 100).unwrap(), b"of another release");
}

#[tokio::test]
async fn a_job_whose_record_is_gone_by_its_time_is_spared_no_more() {
    let world = World::new();
    let (parts, here) = (&world.parts, NodeId::new("here"));
    let (job, _) = left(&world, b"of another release");
    parts.records.put_bytes(TENANT, job, "no record".into()).await;
    parts.name_again(&here).await.unwrap();
    parts.sweep(&mut BTreeMap::new()).await;
    assert!(parts.spared.spares(job));
    parts.records.delete(TENANT, job).await;
    parts.sweep(&mut BTreeMap::new()).await;
    assert!(!parts.spared.spares(job));
}

#[tokio::test]
async fn a_member_that_is_here_as_another_copy_of_its_object_is_found_by_its_bytes() {
    let world = World::new();
    let parts = &world.parts;
    let copies = [1, 2, 3].map(|number| CopyId::new(JOB.group(), 2 << 64 | number));
    let other = CopyId::new(JOB.group(), 1 << 64 | 1);
    put(&parts.store, copies[0], b"other bytes");
    put(&parts.store, copies[1], b"bytes of a member");
    put(&parts.store, other, b"bytes of a member");
    let record = record("here", KEPT, copies[2].bits, b"bytes of a member");
    parts.records.change(TENANT, JOB, |_| Some(record.clone())).await.unwrap();
    parts.name_again(&NodeId::new("here")).await.unwrap();
    assert!(world.holds(b"bytes of a member"));
    // It is that copy, and not the one of another object.
    parts.store.delete(&[copies[0], other]);
    assert!(world.holds(b"bytes of a member"));
    parts.store.delete(&[copies[1]]);
    assert!(world.holds(b"bytes of a member"), "it outlives its job");

    // Another object with the same bytes goes with its job.
    let job = JobId::new();
    let (absent, other) = (CopyId::new(job.group(), 2 << 64 | 1), CopyId::new(job.group(), 1 << 64 | 1));
    put(&parts.store, other, b"bytes of a member");
    let record = self::record("here", KEPT, absent.bits, b"bytes of a member");
    parts.records.change(TENANT, job, |_| Some(record.clone())).await.unwrap();
    parts.name_again(&NodeId::new("here")).await.unwrap();
    assert!(!parts.store.contains(&kept_name(job, KEPT)));
}

#[tokio::test]
async fn what_is_here_is_kept_without_being_fetched_and_what_others_have_is_not_taken_for_it() {
    let world = World::new();
    let (parts, here) = (&world.parts, NodeId::new("here"));
    put(&parts.store, copy(1), b"bytes of a member");
    assert_eq!(parts.keep((TENANT.into(), JOB), KEPT, copy(1), &here).await, kept(b"bytes of a member"));
    assert!(world.holds(b"bytes of a member"));
    parts.drop_all(JOB);
    assert!(!world.holds(b"bytes of a member") && parts.tenants.lock().is_empty());
    let theirs = record("there", KEPT, copy(1).bits, b"bytes of a member");
    parts.records.change(TENANT, JOB, |_| Some(theirs.clone())).await.unwrap();
    parts.name_again(&here).await.unwrap();
    assert!(parts.store.contains(&copy(1)) && !world.holds(b"bytes of a member"));
}

#[tokio::test]
async fn what_is_being_adopted_is_not_swept() {
    let world = World::new();
    let parts = &world.parts;
    put(&parts.store, kept_name(JobId::of_result_group(JOB.result_group()).unwrap(), KEPT), b"bytes");
    let job = JobId::of_result_group(JOB.result_group()).unwrap();
    let adoption = parts.adopting.begin(job, KEPT, (copy(1), NodeId::new("here")));
    let (name, mut unnamed) = (kept_name(job, KEPT), BTreeMap::new());
    for _ in 0..2 {
        parts.sweep(&mut unnamed).await;
        world.time.by(2 * UNNAMED_FOR);
    }
    assert!(parts.store.contains(&name));
    drop(adoption);
    parts.sweep(&mut unnamed).await;
    world.time.by(2 * UNNAMED_FOR);
    parts.sweep(&mut unnamed).await;
    assert!(!parts.store.contains(&name));
}

#[tokio::test]
async fn a_result_whose_time_is_over_is_freed_and_its_record_says_so() {
    let world = World::new();
    let (parts, job) = (&world.parts, JobId::new());
    put(&parts.store, kept_name(job, 0), b"bytes");
    let over = ResultRecord { until_unix_ms: 1, ..record("here", 0, 1, b"bytes") };
    parts.records.change(TENANT, job, |_| Some(over.clone())).await.unwrap();
    parts.sweep(&mut BTreeMap::new()).await;
    assert!(!parts.store.contains(&kept_name(job, 0)));
    let record = parts.records.now(TENANT, job).await.unwrap().unwrap();
    assert!(record.expired && record.files.is_empty());
}

#[tokio::test]
async fn what_a_run_has_kept_since_the_time_of_a_result_was_over_stays() {
    let world = World::new();
    let (parts, here, job) = (&world.parts, NodeId::new("here"), JobId::new());
    let copy = CopyId::new(job.group(), 1);
    let of_this_run = kept_name(job, KEPT);
    let of_the_one_before = [kept_name(job, KEPT + 1), replacing_name(job, KEPT + 2)];
    of_the_one_before.iter().for_each(|name| put(&parts.store, *name, b"of the run before"));
    let over = ResultRecord { until_unix_ms: 1, ..record("here", KEPT, 1, b"bytes of a member") };
    parts.records.change(TENANT, job, |_| Some(over.clone())).await.unwrap();
    put(&parts.store, copy, b"bytes of a member");
    // It is asked for, and not in the record yet.
    assert!(parts.keep((TENANT.into(), job), KEPT, copy, &here).await.is_ok());
    parts.sweep(&mut BTreeMap::new()).await;
    assert!(parts.store.contains(&of_this_run), "it was kept just now");
    assert!(of_the_one_before.iter().all(|name| !parts.store.contains(name)));
    let begun = record("here", KEPT, 1, b"bytes of a member");
    parts.records.change(TENANT, job, |_| Some(begun.clone())).await.unwrap();
    for _ in 0..3 {
        parts.sweep(&mut BTreeMap::new()).await;
        assert!(parts.store.contains(&of_this_run), "it is in the record");
    }
}

#[tokio::test]
async fn a_result_that_was_begun_anew_since_its_record_was_read_is_not_over() {
    let world = World::new();
    let parts = &world.parts;
    let begun = record("here", KEPT, 1, b"bytes of a member");
    parts.records.change(TENANT, JOB, |_| Some(begun.clone())).await.unwrap();
    assert!(!parts.expire(TENANT, JOB, 1).await);
    assert_eq!(parts.records.now(TENANT, JOB).await.unwrap().as_deref(), Some(&begun));
    assert!(!parts.expire(TENANT, JobId::new(), 1).await, "there is none");
    let over = ResultRecord { until_unix_ms: 1, ..begun };
    parts.records.change(TENANT, JOB, |_| Some(over.clone())).await.unwrap();
    for _ in 0..2 {
        assert!(parts.expire(TENANT, JOB, 1).await, "by whoever has said so");
    }
}

#[tokio::test]
async fn records_that_cannot_be_read_are_asked_for_while_something_of_their_jobs_is_here() {
    let world = World::new();
    let (parts, here) = (&world.parts, NodeId::new("here"));
    let (left, its_copy) = left(&world, b"of another release");
    for job in [left, JobId::new(), JobId::new()] {
        parts.records.put_bytes(TENANT, job, "no record".into()).await;
    }
    parts.name_again(&here).await.unwrap();
    assert_eq!(parts.spared.unread(), [(left, TENANT.into())], "of the others nothing is here");
    let freed = Unneeded::Copies(vec![its_copy]);
    assert_eq!(parts.spared.keep_back(freed), None);
    parts.look_at_unread(&here).await;
    assert!(parts.spared.spares(left));
    // Its record can be read, and names something else.
    let read = record("here", KEPT, 1 << 64 | 2, b"bytes");
    let read = exobus_bus::codec::encode_checked_as(RECORD_VERSION, &read).unwrap();
    parts.records.put_bytes(TENANT, left, read).await;
    parts.look_at_unread(&here).await;
    assert!(!parts.spared.spares(left) && !parts.store.contains(&its_copy), "what was kept back is freed");
}

#[tokio::test]
async fn what_was_fetched_in_the_place_of_another_one_is_found_by_its_bytes_after_a_restart() {
    let world = World::new();
    let (parts, here) = (&world.parts, NodeId::new("here"));
    put(&parts.store, replacing_name(JOB, KEPT), b"of a run that broke off");
    let named = record("here", KEPT, 1, b"bytes of a member");
    parts.records.change(TENANT, JOB, |_| Some(named.clone())).await.unwrap();
    parts.name_again(&here).await.unwrap();
    assert!(!parts.store.contains(&kept_name(JOB, KEPT)));
    parts.store.delete(&[replacing_name(JOB, KEPT)]);
    // It comes back with its file.
    put(&parts.store, kept_name(JOB, KEPT), b"of an earlier run");
    parts.name_again(&here).await.unwrap();
    assert!(world.holds(b"of an earlier run"), "there is no other one");
    put(&parts.store, replacing_name(JOB, KEPT), b"bytes of a member");
    parts.name_again(&here).await.unwrap();
    assert!(world.holds(b"bytes of a member"));
}

#[tokio::test]
async fn what_is_fetched_in_the_place_of_another_one_has_the_name_of_the_member_alone() {
    let world = World::new();
    put(&world.parts.store, kept_name(JOB, KEPT), b"of an earlier run");
    put(&world.there, copy(1), b"bytes of a member");
    assert_eq!(world.keep(copy(1)).await, kept(b"bytes of a member"));
    assert!(world.holds(b"bytes of a member"));
    assert_eq!(world.parts.store.ids(), [kept_name(JOB, KEPT)], "under one name");
}

#[tokio::test]
async fn who_is_asked_to_keep_is_not_waited_for_when_it_is_over() {
    let world = World::new();
    let (parts, there) = (&world.parts, NodeId::new("there"));
    for (incarnation, health, state) in
        [(1, Health::Dead, NodeState::Dead), (1, Health::Left, NodeState::Left), (2, Health::Alive, NodeState::Up)]
    {
        parts.directory.becomes(member("there", 1, Health::Alive, ""), NodeState::Up);
        let mut over = Box::pin(parts.is_over(&there));
        assert!((&mut over).now_or_never().is_none());
        parts.directory.becomes(member("there", 1, Health::Suspected, ""), NodeState::Suspected);
        assert!((&mut over).now_or_never().is_none());
        parts.directory.becomes(member("there", incarnation, health, ""), state);
        assert!(over.now_or_never().is_some(), "{health:?}");
        assert_eq!(parts.others(), if health.is_gone() { vec![] } else { vec![there.clone()] });
    }
    parts.directory.becomes(member("here", 2, Health::Dead, ""), NodeState::Dead);
    for never in ["here", "nobody"] {
        assert!(parts.is_over(&NodeId::new(never)).now_or_never().is_none());
    }
}
