//! Partition: group the records of a chunk by the partition of their key, without ordering them.
//!
//! One sweep finds and counts each record's partition (a table on the first 16 bits of the key answers at once, unless a
//! cut falls into that slice of the key space: then the cuts inside are searched), a second one copies the record
//! behind the others of its partition. Inside a partition records keep the order they came in.

use super::memory::as_small_numbers;
use crate::cuts::Cuts;
use crate::records::hash::hash_number;
use crate::records::{Record, RowHash, as_records, as_records_mut, key_number};

/// Bytes of scratch that [`partition()`] needs for `rows` records: 4 a record, and 3 for alignment.
pub const fn partition_scratch_bytes(rows: usize) -> usize {
    rows * size_of::<u32>() + align_of::<u32>() - 1
}

/// One partition of a chunk, in the order of the cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitioned {
    /// Records in the partition.
    pub rows: u64,
    /// Sum of their row hashes.
    pub row_hash: RowHash,
}

/// Copies the records of `bytes` to `out`, grouped by partition; partition after partition in the order of the cuts,
/// without gaps. Returns what each partition got, empty ones included.
///
/// # Panics
/// When `bytes` and `out` differ in length or are no whole number of records, or when `scratch` is too small.
pub fn partition(bytes: &[u8], cuts: &Cuts, scratch: &mut [u8], out: &mut [u8]) -> Vec<Partitioned> {
    let records = as_records(bytes);
    let out = as_records_mut(out);
    assert_eq!(records.len(), out.len(), "partition: as much room as records");
    let found = as_small_numbers(scratch, records.len(), "partition");
    let finder = Finder::new(cuts);
    let mut rows = vec![0usize; cuts.partitions()];
    for (record, found) in records.iter().zip(&mut *found) {
        let partition = finder.partition_of(record);
        rows[partition] += 1;
        *found = partition as u32;
    }
    let mut next = 0;
    let mut positions: Vec<usize> = rows.iter().map(|rows| (next, next += rows).0).collect();
    let mut sums = vec![0u128; rows.len()];
    for (record, partition) in records.iter().zip(&*found) {
        let partition = *partition as usize;
        out[positions[partition]] = *record;
        positions[partition] += 1;
        sums[partition] = sums[partition].wrapping_add(hash_number(record));
    }
    let parts = rows.into_iter().zip(sums);
    parts.map(|(rows, sum)| Partitioned { rows: rows as u64, row_hash: RowHash(sum) }).collect()
}

/// Finds the partition of a record from a table over the first 16 bits of the key.
struct Finder {
    cuts: Vec<u128>,
    /// For each value of the first 16 bits, and one beyond: how many cuts are at or below its first key.
    below: Vec<u32>,
}

impl Finder {
    fn new(cuts: &Cuts) -> Finder {
        let cuts: Vec<u128> = cuts.key_numbers().collect();
        let below = (0..=1u128 << 16).map(|slice| cuts.partition_point(|cut| *cut <= slice << 64) as u32).collect();
        Finder { cuts, below }
    }

    #[inline(always)]
    fn partition_of(&self, record: &Record) -> usize {
        let slice = usize::from(u16::from_be_bytes([record[0], record[1]]));
        let (from, to) = (self.below[slice] as usize, self.below[slice + 1] as usize);
        if from == to {
            return from;
        }
        let key = key_number(record);
        from + self.cuts[from..to].partition_point(|cut| *cut <= key)
    }
}
