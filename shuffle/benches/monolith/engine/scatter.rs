//! First half: input files to buckets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use crossbeam_channel::{Receiver, Sender, bounded};
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::files::{Chunk, InputFile, ReadOptions, chunks, read_chunk};
use exobus_shuffle::kernels::Scatter;

use super::layout::Layout;
use super::spill::SpillFile;
use super::store::{Segment, Store};
use super::{Failure, Passed};

/// Threads that write buckets to disk.
const SPILL_WRITERS: usize = 4;

/// Reads `inputs` through the buffers `io` into the buckets of `store`.
///
/// Each reading thread has one request or one block under way; as many scatters as shall work at once are handed round, so
/// a block goes from the disk to its buckets without leaving its thread.
pub(super) fn run<'a>(
    inputs: &[InputFile],
    layout: &Layout,
    cuts: &Cuts,
    io: &mut [&mut [u8]],
    store: &Store<'a>,
    spill: &SpillFile,
) -> Result<Passed, Failure> {
    let chunks = chunks(inputs, (layout.request_bytes - exobus_shuffle::files::STRIDE_BYTES).max(1) as u64);
    let (give, take) = bounded(layout.scatters);
    for _ in 0..layout.scatters {
        let buffers = (0..cuts.partitions()).map(|_| store.take()).collect::<Result<Vec<_>, _>>()?;
        give.send(Scatter::new(cuts, buffers)).expect("room for each");
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..SPILL_WRITERS {
            start(scope, "spill", || spill.write_all(store), store);
        }
        let readers: Vec<_> = io
            .iter_mut()
            .filter_map(|buffer| {
                let read = || read(&chunks, &next, buffer, &give, &take, store);
                start(scope, "read", read, store)
            })
            .collect();
        for reader in readers {
            reader.join().expect("readers do not panic");
        }
        store.end_scatter();
    });
    drop(give);
    let mut passed = Passed::default();
    for scatter in take {
        passed += Passed { rows: scatter.rows(), row_hash: scatter.row_hash() };
        for (bucket, piece) in scatter.into_buffers().enumerate() {
            store.add_last(bucket, piece);
        }
    }
    store.outcome(passed)
}

/// Starts a thread; when that fails, so does the sort.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
    store: &Store<'_>,
) -> Option<thread::ScopedJoinHandle<'scope, ()>> {
    let started = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    started.map_err(|error| store.fail(Failure::Memory(format!("start a thread: {error}")))).ok()
}

fn read<'a>(
    chunks: &[Chunk],
    next: &AtomicUsize,
    buffer: &mut [u8],
    give: &Sender<Scatter<Segment<'a>>>,
    take: &Receiver<Scatter<Segment<'a>>>,
    store: &Store<'a>,
) {
    let options = ReadOptions { request_bytes: buffer.len(), requests_in_flight: 1 };
    while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
        let scattered = read_chunk(chunk, buffer, &options).map_err(Failure::from).and_then(|bytes| {
            let mut scatter = take.recv().expect("this thread has a sender");
            let replace = |bucket, segment: &mut Segment<'a>| {
                let full = std::mem::replace(segment, store.take()?);
                store.add_full(bucket, full);
                Ok(())
            };
            let pushed = scatter.push(bytes, replace);
            give.send(scatter).expect("this thread has a receiver");
            pushed
        });
        if let Err(failure) = scattered {
            return store.fail(failure);
        }
    }
}
