//! What tasks allocate, against what they were granted: all data and all scratch of a task lie in memory of the store, so
//! on its heap there is next to nothing. The allocator of this test binary counts what threads of executors take.
#![allow(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::JobError;
use exobus_shuffle::files::generate_dir;
use exobus_shuffle::jobs::aggregate::Operation;
use exobus_shuffle::jobs::sort::{CutsFrom, SortParams, sort};
use exobus_shuffle::jobs::{Aggregate, RandomShuffle, WordCount};
use exobus_shuffle::keyed::{self, KeyedParams, Registered};
use exobus_shuffle::records::Mode;

/// What a thread of an executor may have on its heap: names, parameters, directories of parts, what one block needs. The
/// chunks, windows and buffers that tasks work in are each larger.
const HEAP_MAX: i64 = 1 << 20;

/// The most that one thread of an executor had since it was set to zero, bytes.
static PEAK: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Whether this is a thread of an executor; `None`: nobody has looked.
    static EXECUTES: Cell<Option<bool>> = const { Cell::new(None) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count(bytes: i64) {
        // While a thread ends there is nothing to count with.
        let _ = EXECUTES.try_with(|executes| {
            let known = executes.get().unwrap_or_else(|| {
                // Asking for the name may allocate, which must not ask again.
                executes.set(Some(false));
                let is_one = std::thread::current().name().is_some_and(|name| name.starts_with("exobus-exec-"));
                executes.set(Some(is_one));
                is_one
            });
            if known {
                let live = LIVE.get() + bytes;
                LIVE.set(live);
                PEAK.fetch_max(live, Ordering::Relaxed);
            }
        });
    }
}

// SAFETY: all is done by the system's allocator; counting allocates nothing but once, as said above.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A function that takes memory without a grant.
#[task(name = "heap.greedy")]
fn greedy(_: &mut TaskContext<'_>, bytes: u64) -> Result<u64, TaskError> {
    Ok(std::hint::black_box(vec![1u8; bytes as usize]).len() as u64)
}

/// Runs a program on a node of its own, whose store is several times smaller than the input; the most that one of its
/// executors had on its heap.
fn peak_of<R: Send + 'static>(
    folder: &Path,
    program: impl AsyncFnOnce(Futures) -> Result<R, JobError> + Send + 'static,
) -> i64 {
    let mut options = NodeOptions::alone(2, 24 << 20);
    options.store.spill_dirs = vec![folder.join("spill")];
    let node = Node::start(options).unwrap();
    PEAK.store(0, Ordering::Relaxed);
    let (result, _) = futures::executor::block_on(node.run(JobId::new(), "heap", None, program));
    assert!(result.is_ok(), "{:?}", result.err());
    node.stop();
    PEAK.load(Ordering::Relaxed)
}

fn keyed_peak<J: Registered>(folder: &Path, job: J, inputs: Vec<PathBuf>) -> i64 {
    let params =
        KeyedParams { inputs, output: folder.join(J::NAME), partitions: Some(40), strategy: None, partial: false, job };
    peak_of(folder, async move |futures| keyed::run(futures, params).await)
}

/// One test, since what is counted is the process's.
#[test]
fn tasks_take_their_memory_from_the_store_and_what_does_not_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let seen =
        peak_of(folder, async |futures| futures.get_value::<u64>(&futures.submit(greedy, &(3 << 20), &[])?).await);
    assert!(seen >= 3 << 20, "{seen} bytes were counted of a task that takes 3 MiB");

    generate_dir(&folder.join("in"), Mode::default(), 0, 600_000, 3, 1).unwrap();
    let mut table = std::fs::File::create(folder.join("table")).unwrap();
    let lines: String = (0..1_000_000u64).map(|row| format!("key{},{}\n", row * 7919 % 300_000, row % 1000)).collect();
    table.write_all(lines.as_bytes()).unwrap();

    let (inputs, output) = (vec![folder.join("in")], folder.join("sorted"));
    let params =
        SortParams { inputs, output, partitions: Some(40), strategy: None, cuts: CutsFrom::default(), partial: false };
    let operations = vec![Operation::Count, Operation::Sum];
    let aggregate = Aggregate { key: "1".into(), value: Some("2".into()), operations, delimiter: b',', header: false };
    let peaks = [
        ("sort", peak_of(folder, async move |futures| sort(futures, params).await)),
        ("random shuffle", keyed_peak(folder, RandomShuffle { seed: 1 }, vec![folder.join("in")])),
        ("word count", keyed_peak(folder, WordCount {}, vec![folder.join("table")])),
        ("aggregate", keyed_peak(folder, aggregate, vec![folder.join("table")])),
    ];
    eprintln!("{peaks:?}");
    for (job, peak) in peaks {
        assert!(peak <= HEAP_MAX, "an executor had {peak} bytes on its heap in a {job}");
    }
}
