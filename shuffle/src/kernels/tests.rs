//! Kernels against the plain way to do the same: `slice::sort_by`, a filter per partition, a concatenation sorted.

use std::io;

use proptest::prelude::*;

use super::*;
use crate::cuts::Cuts;
use crate::records::{Generator, KEY_BYTES, Mode, RECORD_BYTES, row_hash_sum};

/// Records with the given keys; the payload tells where each stood, so that stability shows.
fn rows(keys: &[[u8; KEY_BYTES]]) -> Vec<u8> {
    let mut bytes = vec![0xA5; keys.len() * RECORD_BYTES];
    for (index, (record, key)) in bytes.chunks_mut(RECORD_BYTES).zip(keys).enumerate() {
        record[..KEY_BYTES].copy_from_slice(key);
        record[12..20].copy_from_slice(&(index as u64).to_be_bytes());
    }
    bytes
}

/// The records in order of their key, equal keys in the order they came.
fn naively_sorted(bytes: &[u8]) -> Vec<u8> {
    let mut records: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
    records.sort_by(|left, right| left[..KEY_BYTES].cmp(&right[..KEY_BYTES]));
    records.concat()
}

fn kernel_sorted(bytes: &[u8]) -> Vec<u8> {
    let mut scratch = vec![0; sort_scratch_bytes(bytes.len() / RECORD_BYTES)];
    let mut out = vec![0; bytes.len()];
    let sorted = sort(bytes, &mut scratch);
    let row_hash = sorted.gather(0..sorted.rows(), &mut out);
    assert_eq!(row_hash, row_hash_sum(bytes));
    out
}

/// Keys of several shapes: crowded in few bytes, equal but for the last two, uniform.
fn key() -> impl Strategy<Value = [u8; KEY_BYTES]> {
    prop_oneof![
        proptest::array::uniform10(0u8..2),
        proptest::array::uniform10(any::<u8>()),
        (any::<u8>(), 0u8..3).prop_map(|(last, before)| [9, 9, 9, 9, 9, 9, 9, 9, before, last]),
        Just([0xFF; KEY_BYTES]),
        Just([0; KEY_BYTES]),
    ]
}

fn cuts() -> impl Strategy<Value = Cuts> {
    proptest::collection::vec(proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..12), 0..12).prop_map(
        |mut keys| {
            keys.sort();
            Cuts::new(keys).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn sorting_equals_the_naive_sort(keys in proptest::collection::vec(key(), 0..1500)) {
        let bytes = rows(&keys);
        prop_assert!(kernel_sorted(&bytes) == naively_sorted(&bytes));
    }

    #[test]
    fn pieces_sort_as_the_whole_does(
        keys in proptest::collection::vec(key(), 0..1500), lengths in proptest::collection::vec(0usize..300, 0..12),
    ) {
        let bytes = rows(&keys);
        let (mut pieces, mut rest) = (Vec::new(), bytes.as_slice());
        for length in lengths {
            let (piece, behind) = rest.split_at((length * RECORD_BYTES).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        let mut scratch = vec![0; sort_scratch_bytes(keys.len())];
        let sorted = sort_pieces(&pieces, &mut scratch);
        let mut out = vec![0; bytes.len()];
        let row_hash = sorted.gather(0..sorted.rows(), &mut out);
        prop_assert_eq!(row_hash, row_hash_sum(&bytes));
        prop_assert!(out == naively_sorted(&bytes));
    }

    #[test]
    fn scattering_fills_one_buffer_after_the_other(
        keys in proptest::collection::vec(key(), 0..600), cuts in cuts(), room in 1usize..8, step in 1usize..90,
    ) {
        let bytes = rows(&keys);
        let buffer = || vec![0u8; room * RECORD_BYTES];
        let mut filled = vec![Vec::new(); cuts.partitions()];
        let mut scatter = Scatter::new(&cuts, (0..cuts.partitions()).map(|_| buffer()));
        for block in bytes.chunks(step * RECORD_BYTES) {
            let replaced = scatter.push(block, |partition, full| {
                filled[partition].extend_from_slice(&std::mem::replace(full, buffer()));
                Ok::<(), ()>(())
            });
            prop_assert_eq!(replaced, Ok(()));
        }
        prop_assert_eq!(scatter.rows(), keys.len() as u64);
        prop_assert_eq!(scatter.row_hash(), row_hash_sum(&bytes));
        for (partition, (last, bytes)) in scatter.into_buffers().enumerate() {
            filled[partition].extend_from_slice(&last[..bytes]);
        }
        for (partition, filled) in filled.iter().enumerate() {
            let of_partition = |record: &&[u8]| cuts.partition_of(&record[..KEY_BYTES]) == partition;
            let expected: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).filter(of_partition).collect();
            prop_assert!(*filled == expected.concat());
        }
    }

    #[test]
    fn partitions_of_a_sorted_chunk_are_those_of_the_cuts(
        keys in proptest::collection::vec(key(), 0..600), cuts in cuts(), step in 1usize..50,
    ) {
        let bytes = rows(&keys);
        let expected = naively_sorted(&bytes);
        let mut scratch = vec![0; sort_scratch_bytes(keys.len())];
        let sorted = sort(&bytes, &mut scratch);
        let bounds = sorted.bounds(&cuts);
        prop_assert_eq!(bounds.len(), cuts.partitions() + 1);
        let mut out = Vec::new();
        for (partition, bound) in bounds.windows(2).enumerate() {
            // A partition may be gathered in pieces of any size.
            let mut from = bound[0];
            while from < bound[1] {
                let to = bound[1].min(from + step);
                let mut piece = vec![0; (to - from) * RECORD_BYTES];
                let row_hash = sorted.gather(from..to, &mut piece);
                prop_assert_eq!(row_hash, row_hash_sum(&piece));
                for record in piece.chunks(RECORD_BYTES) {
                    prop_assert_eq!(cuts.partition_of(&record[..KEY_BYTES]), partition);
                }
                out.extend_from_slice(&piece);
                from = to;
            }
        }
        prop_assert!(out == expected);
    }

    #[test]
    fn partitioning_keeps_the_order_inside_a_partition(keys in proptest::collection::vec(key(), 0..600), cuts in cuts()) {
        let bytes = rows(&keys);
        let mut scratch = vec![0; partition_scratch_bytes(keys.len())];
        let mut out = vec![0; bytes.len()];
        let parts = partition(&bytes, &cuts, &mut scratch, &mut out);
        prop_assert_eq!(parts.len(), cuts.partitions());
        let mut from = 0;
        for (index, part) in parts.iter().enumerate() {
            let expected: Vec<&[u8]> = bytes
                .chunks(RECORD_BYTES)
                .filter(|record| cuts.partition_of(&record[..KEY_BYTES]) == index)
                .collect();
            let got = &out[from..from + part.rows as usize * RECORD_BYTES];
            prop_assert!(got == expected.concat());
            prop_assert_eq!(part.row_hash, row_hash_sum(got));
            from += got.len();
        }
        prop_assert_eq!(from, out.len());
    }

    #[test]
    fn merging_equals_sorting_the_runs_one_after_the_other(
        runs in proptest::collection::vec(proptest::collection::vec(key(), 0..80), 0..20),
        window in 1usize..9, room in 100usize..1000, streamed in any::<bool>(),
    ) {
        let mut all = rows(&runs.concat());
        let mut from = 0;
        for run in &runs {
            let range = from..from + run.len() * RECORD_BYTES;
            let sorted = naively_sorted(&all[range.clone()]);
            all[range.clone()].copy_from_slice(&sorted);
            from = range.end;
        }
        let slices = split(&all, &runs.iter().map(Vec::len).collect::<Vec<_>>());
        let merged = if streamed {
            let streams = slices.iter().map(|run| ReadRun::new(Stutter(run, 0), vec![0; window * RECORD_BYTES + 7]));
            merge_all(streams.collect(), room)
        } else {
            merge_all(slices.iter().map(|run| SliceRun::new(run)).collect(), room)
        };
        prop_assert!(merged == naively_sorted(&all));
    }
}

/// A reader that gives a few bytes at a time, of changing number, and is interrupted now and then.
struct Stutter<'a>(&'a [u8], usize);

impl io::Read for Stutter<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let some = out.len().min(1 + self.1 * 37 % 250);
        io::Read::read(&mut self.0, &mut out[..some])
    }
}

fn split<'a>(mut bytes: &'a [u8], rows: &[usize]) -> Vec<&'a [u8]> {
    let mut runs = Vec::new();
    for rows in rows {
        let (run, rest) = bytes.split_at(rows * RECORD_BYTES);
        runs.push(run);
        bytes = rest;
    }
    runs
}

fn merge_all<S: RunSource>(runs: Vec<S>, room: usize) -> Vec<u8> {
    let mut merge = Merge::new(runs).unwrap();
    let mut out = Vec::new();
    let mut piece = vec![0; room];
    loop {
        let bytes = merge.next_into(&mut piece).unwrap();
        if bytes == 0 {
            break;
        }
        out.extend_from_slice(&piece[..bytes]);
    }
    assert_eq!(merge.rows() as usize * RECORD_BYTES, out.len());
    assert_eq!(merge.row_hash(), row_hash_sum(&out));
    out
}

#[test]
fn edges_of_sorting() {
    let equal = [[7; KEY_BYTES]; 5000];
    let mut last_bytes_differ = [[7; KEY_BYTES]; 5000];
    for (index, key) in last_bytes_differ.iter_mut().enumerate() {
        key[8..].copy_from_slice(&(60_000 - 7 * index as u16).to_be_bytes());
    }
    // All but one key in a narrow range: the bits are chosen from a sample that may miss the outlier.
    let mut outlier = last_bytes_differ;
    outlier[4321] = [0xFF; KEY_BYTES];
    outlier[1234] = [0; KEY_BYTES];
    for keys in [&[][..], &equal[..1], &equal, &last_bytes_differ, &outlier] {
        let bytes = rows(keys);
        assert!(kernel_sorted(&bytes) == naively_sorted(&bytes), "{} keys", keys.len());
    }
}

#[test]
fn benchmark_records_of_every_kind_are_sorted() {
    for (ascii, skewed) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bytes = vec![0; 30_000 * RECORD_BYTES];
        Generator::new(Mode { ascii, skewed }).fill(1 << 25, &mut bytes);
        assert!(kernel_sorted(&bytes) == naively_sorted(&bytes), "ascii {ascii}, skewed {skewed}");
    }
}

#[test]
fn any_number_of_runs_merges() {
    let mut bytes = vec![0; 2_000 * RECORD_BYTES];
    Generator::new(Mode { ascii: false, skewed: true }).fill(77, &mut bytes);
    for runs in [1, 2, 3, 7, 64, 65, 255, 500] {
        let pieces: Vec<Vec<u8>> =
            bytes.chunks(bytes.len().div_ceil(runs * RECORD_BYTES) * RECORD_BYTES).map(naively_sorted).collect();
        let merged = merge_all(pieces.iter().map(|piece| SliceRun::new(piece)).collect(), 64 * RECORD_BYTES);
        assert!(merged == naively_sorted(&pieces.concat()), "{runs} runs");
    }
    assert_eq!(Merge::<SliceRun>::new(Vec::new()).unwrap().next_into(&mut [0; 200]).unwrap(), 0);
}

#[test]
fn a_run_that_ends_inside_a_record_is_an_error() {
    let bytes = rows(&[[1; KEY_BYTES]; 3]);
    let torn = ReadRun::new(&bytes[..250], vec![0; 200]);
    let mut merge = Merge::new(vec![torn]).unwrap();
    let mut out = [0; 1000];
    let error = merge.next_into(&mut out).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("50 bytes into a record"), "{error}");
}

#[test]
fn a_piece_too_small_for_a_record_gets_none_and_loses_none() {
    let bytes = rows(&[[1; KEY_BYTES]; 2]);
    let mut merge = Merge::new(vec![SliceRun::new(&bytes)]).unwrap();
    assert_eq!(merge.next_into(&mut [0; 99]).unwrap(), 0);
    let mut out = [0; 299];
    assert_eq!(merge.next_into(&mut out).unwrap(), 200);
    assert_eq!(out[..200], bytes);
}

#[test]
#[should_panic(expected = "scratch")]
fn too_little_scratch_is_named() {
    let bytes = rows(&[[1; KEY_BYTES]; 300]);
    sort(&bytes, &mut vec![0; 300 * 16 - 1]);
}

#[test]
fn a_scatter_that_gets_no_buffer_says_why() {
    let cuts = Cuts::even(1).unwrap();
    let mut scatter = Scatter::new(&cuts, [vec![0; RECORD_BYTES]]);
    assert_eq!(scatter.push(&[0; 2 * RECORD_BYTES], |partition, _| Err((partition, "full"))), Err((0, "full")));
}

#[test]
#[should_panic(expected = "a buffer of 150 bytes is no whole number of records")]
fn a_scatter_refuses_torn_buffers() {
    Scatter::new(&Cuts::even(1).unwrap(), [vec![0; 150]]);
}

#[test]
fn a_run_that_is_not_sorted_is_named() {
    let record = |key: u8| {
        let mut record = [0; RECORD_BYTES];
        record[0] = key;
        record
    };
    let runs = [[1, 3, 5], [2, 6, 4]].map(|keys| keys.map(record).concat());
    let mut out = vec![0; 6 * RECORD_BYTES];
    let error =
        Merge::new(runs.iter().map(|run| SliceRun::new(run)).collect()).unwrap().next_into(&mut out).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("run 1")), (io::ErrorKind::InvalidData, true), "{error}");
}
