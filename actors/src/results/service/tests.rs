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

use super::*;
use crate::ids::Incarnation;
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
        let member = Member {
            node: NodeId::new("there"),
            incarnation: Incarnation(1),
            health: Health::Alive,
            figures: Figures::default(),
            data_address: server.address().to_string(),
            silent_ms: 0,
        };
        let fetching = ClientOptions { network: gate.clone(), ..ClientOptions::default() };
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
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
            named: Arc::default(),
        };
        let parts = ResultsParts {
            base,
            post: Post::new(PostOptions { node, incarnation, clock: clock.clone(), on_fatal }),
            directory: Directory::of([member]),
            transfer: TransferClient::with(fetching, TOKEN, clock),
            data_address: String::new(),
            data_token: TOKEN.into(),
        };
        Self { parts, there, _server: server, gate, knocks }
    }

    /// Has the node keep a copy that the other one has.
    async fn keep(&self, copy: CopyId) -> Outcome {
        self.parts.keep((TENANT.into(), JOB), KEPT, copy, &NodeId::new("there")).await
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        holder::read_member(&self.parts.store, &kept_name(JOB, KEPT), 0, 1 << 20).is_ok_and(|read| read == bytes)
    }
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
