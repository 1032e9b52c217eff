//! Second half: buckets to output files.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use exobus_shuffle::kernels::{sort_pieces, sort_scratch_bytes};
use exobus_shuffle::records::RECORD_BYTES;

use super::layout::{Layout, SORTERS};
use super::output::{Outputs, Token};
use super::scatter::start;
use super::spill::SpillFile;
use super::store::Store;
use super::{Failure, Passed};

/// Threads that bring buckets back from disk.
const LOADERS: usize = 4;

/// Sorts the buckets of `store` into files under temporary names, whose tokens go to `tokens`, by way of the buffers `io`.
pub(super) fn run<'a>(
    directory: &Path,
    layout: &Layout,
    io: Vec<&'a mut [u8]>,
    store: &Store<'a>,
    spill: &SpillFile,
    tokens: &Mutex<Vec<Token>>,
) -> Result<Passed, Failure> {
    let next = AtomicUsize::new(0);
    let passed = Mutex::new(Passed::default());
    let scratch_bytes = sort_scratch_bytes(store.largest_rows());
    let outputs = Outputs::new(directory, layout.partitions, io, tokens);
    thread::scope(|scope| {
        for _ in 0..LOADERS {
            start(scope, "load", || spill.load_all(store), store);
        }
        outputs.start_writers(scope, store);
        let sort = || {
            let mut scratch = vec![0; scratch_bytes];
            while store.check().is_ok() {
                let file = next.fetch_add(1, Ordering::Relaxed);
                if file >= layout.partitions {
                    return;
                }
                match sort_file(file, layout, &outputs, store, &mut scratch) {
                    Ok(written) => *passed.lock().unwrap_or_else(PoisonError::into_inner) += written,
                    Err(failure) => return store.fail(failure),
                }
            }
        };
        let sorters: Vec<_> = (0..SORTERS).filter_map(|_| start(scope, "sort", sort, store)).collect();
        for sorter in sorters {
            sorter.join().expect("sorters do not panic");
        }
        outputs.end();
    });
    store.outcome(passed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn sort_file<'a>(
    file: usize,
    layout: &Layout,
    outputs: &Outputs<'_, 'a>,
    store: &Store<'a>,
    scratch: &mut [u8],
) -> Result<Passed, Failure> {
    let buckets = file * layout.buckets_per_partition..(file + 1) * layout.buckets_per_partition;
    let mut output = outputs.open(file, store.bytes_of(buckets.clone()))?;
    let mut passed = Passed::default();
    for bucket in buckets {
        let pieces = store.collect(bucket)?;
        let slices: Vec<&[u8]> = pieces.iter().map(|(segment, filled)| &segment[..*filled]).collect();
        let sorted = sort_pieces(&slices, scratch);
        let mut from = 0;
        while from < sorted.rows() {
            store.check()?;
            let room = output.spare();
            let rows = (room.len() / RECORD_BYTES).min(sorted.rows() - from);
            let row_hash = sorted.gather(from..from + rows, &mut room[..rows * RECORD_BYTES]);
            output.advance(rows * RECORD_BYTES);
            passed += Passed { rows: rows as u64, row_hash };
            from += rows;
        }
        store.give_back(pieces);
    }
    output.finish()?;
    Ok(passed)
}
