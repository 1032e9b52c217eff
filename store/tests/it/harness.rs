//! A store on a temporary directory, and bytes that can be told apart.

use std::{path::PathBuf, sync::Arc};

use exobus_store::{
    CopyId, ObjectMeta, ObjectReader, Parts, RealDisk, RowHash, Store, StoreError, StoreOptions, SystemClock,
    WriterOptions,
};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

/// A store that spills to a directory of its own, which goes with it.
pub struct Fixture {
    pub store: Store,
    pub dir: TempDir,
}

/// Options with room for `blocks` bytes of objects beside the least reserve of two executors.
pub fn options(blocks: u64, dirs: Vec<PathBuf>) -> StoreOptions {
    StoreOptions {
        memory_bytes: blocks + 4 * MIB,
        spill_dirs: dirs,
        executors: 2,
        reserve_per_executor_bytes: 2 * MIB,
        io_threads: 2,
        ..StoreOptions::default()
    }
}

pub fn open(options: StoreOptions) -> Store {
    Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap()
}

pub fn fixture(blocks: u64) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = open(options(blocks, vec![dir.path().to_owned()]));
    Fixture { store, dir }
}

/// Bytes that depend on the seed at every place.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    // Eight at a time: tests run without optimisation.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut content = Vec::with_capacity(length + 8);
    while content.len() < length {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        content.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    content.truncate(length);
    content
}

/// A stream of parts of an object, through a window of so many bytes.
pub fn stream(store: &Store, id: &CopyId, parts: Parts, window_bytes: u64) -> Result<ObjectReader, StoreError> {
    store.reader(id, parts, store.scratch(window_bytes)?)
}

/// The copy with these bits in the group of most tests.
pub const fn copy(bits: u128) -> CopyId {
    CopyId::new(1, bits)
}

/// Puts bytes into a group, under a name that their content gives.
pub fn put(store: &Store, group: u128, bytes: &[u8]) -> Result<ObjectMeta, StoreError> {
    store.put(bytes, |content| CopyId::new(group, content))
}

/// Writes an object with parts of these contents; one row per part.
pub fn write(store: &Store, id: CopyId, options: WriterOptions, parts: &[&[u8]]) -> ObjectMeta {
    let mut writer = store.writer(id, options);
    for part in parts {
        writer.begin_part(Some(part.len() as u64)).unwrap();
        writer.write(part).unwrap();
        writer.end_part(1, RowHash::of(part));
    }
    writer.seal().unwrap()
}
