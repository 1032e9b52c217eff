//! Two real stores in one process, a server and a client between them, and a proxy that does harm; nearly all of it
//! over TCP and in memory.

/// Makes two tests of each function that takes a network.
macro_rules! on_each_network {
    ($($test:ident),* $(,)?) => {
        mod over_tcp {
            $(#[test] fn $test() { super::$test(&super::super::tcp()) })*
        }
        mod in_memory {
            $(#[test] fn $test() { super::$test(&super::super::memory()) })*
        }
    };
}

mod bodies;
mod faults;
mod limits;
mod proxy;
mod secured;

use std::sync::Arc;
use std::time::Duration;

use exobus_store::{
    Align, Block, Class, Clock, CopyId, Fill, ObjectMeta, PartMeta, Parts, RealDisk, RowHash, StageItem, StageRequest,
    StagedItem, Store, StoreOptions, SystemClock, WriterOptions,
};
use tempfile::TempDir;

use super::network::{MemoryNetwork, Network, RealNetwork};
use super::{ClientOptions, Item, ServerOptions, TransferClient, TransferError, TransferServer};

const TOKEN: &str = "a token of the tests";
const GROUP: u128 = 7;

/// The copy with these bits, of the only group.
const fn id(bits: u128) -> CopyId {
    CopyId::new(GROUP, bits)
}

fn tcp() -> Arc<dyn Network> {
    Arc::new(RealNetwork::new())
}

fn memory() -> Arc<dyn Network> {
    Arc::new(MemoryNetwork::new())
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// A store with `mebibytes` of memory; the directory is its disk.
fn store(mebibytes: u64) -> (Store, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        memory_bytes: mebibytes << 20,
        spill_dirs: vec![dir.path().to_owned()],
        executors: 1,
        reserve_per_executor_bytes: 4 << 20,
        ..StoreOptions::default()
    };
    (Store::open(options, Arc::new(RealDisk::new()), clock()).unwrap(), dir)
}

/// Bytes that differ by object and place.
fn content(object: u128, part: usize, bytes: usize) -> Vec<u8> {
    let mut state = (object as u64) << 20 | (part as u64 + 1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    content.truncate(bytes);
    content
}

/// Writes an object whose parts have these sizes.
fn write(store: &Store, object: u128, align: Align, sizes: &[usize]) -> ObjectMeta {
    let mut writer = store.writer(id(object), WriterOptions { align, ..WriterOptions::default() });
    for (part, bytes) in sizes.iter().enumerate() {
        writer.begin_part(Some(*bytes as u64)).unwrap();
        writer.write(&content(object, part, *bytes)).unwrap();
        writer.end_part(part as u64 + 1, RowHash(u128::from(part as u64)));
    }
    writer.seal().unwrap()
}

/// Memory of `store` for parts that come from elsewhere.
fn fills(store: &Store, wanted: Vec<(CopyId, Vec<PartMeta>)>) -> Vec<Fill> {
    let items = wanted.into_iter().map(|(object, metas)| StageItem::Remote { object, metas }).collect();
    let staged = store.stage(StageRequest { items, class: Class::Arguments }).wait().unwrap();
    let fill = |item| match item {
        StagedItem::Fill(fill) => fill,
        other => panic!("{other:?} is not remote"),
    };
    staged.items.into_iter().map(fill).collect()
}

/// A serving node and a fetching one.
struct Pair {
    served: Store,
    server: TransferServer,
    here: Store,
    client: TransferClient,
    _dirs: [TempDir; 2],
}

/// Short enough for a test, longer than a busy machine pauses.
const STALL: Duration = Duration::from_millis(1500);

impl Pair {
    fn new(network: &Arc<dyn Network>) -> Self {
        Self::with(network, 64, 64, ServerOptions::default(), ClientOptions::default())
    }

    fn with(
        network: &Arc<dyn Network>,
        served_mebibytes: u64,
        here_mebibytes: u64,
        server: ServerOptions,
        client: ClientOptions,
    ) -> Self {
        let ((served, served_dir), (here, here_dir)) = (store(served_mebibytes), store(here_mebibytes));
        let server = ServerOptions { node: "serving".to_owned(), network: Arc::clone(network), ..server };
        let server = TransferServer::start_with(server, TOKEN, served.clone(), clock()).unwrap();
        let client = ClientOptions { node: "fetching".to_owned(), network: Arc::clone(network), ..client };
        let client = TransferClient::with(client, TOKEN, clock());
        Self { served, server, here, client, _dirs: [served_dir, here_dir] }
    }

    fn directory(&self, items: &[Item]) -> Vec<Option<Vec<PartMeta>>> {
        self.client.directory(self.server.address(), items.to_vec()).wait().unwrap()
    }

    /// Room for these items, as their directories say.
    fn fills(&self, items: &[Item]) -> Vec<Fill> {
        let directory = self.directory(items);
        let metas = items.iter().zip(directory).map(|((object, _), metas)| (*object, metas.unwrap()));
        fills(&self.here, metas.collect())
    }

    fn fetch(&self, items: &[Item]) -> Result<Vec<Block>, TransferError> {
        let fills = self.fills(items);
        self.client.fetch(self.server.address(), items.to_vec(), fills).wait()
    }

    /// Whether a block is what the serving store has.
    fn check(&self, block: &Block, object: u128, parts: Parts) {
        let original = self.served.get(&id(object), parts).wait().unwrap();
        assert!(**block == *original, "object {object} {parts:?}: other bytes");
        assert_eq!(block.parts(), original.parts(), "object {object} {parts:?}");
    }
}
