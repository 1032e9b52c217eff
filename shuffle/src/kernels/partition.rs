//! Partition: group the records of a chunk by the partition of their key, without ordering them.
//!
//! One sweep finds and counts each record's partition (a table on the first 16 bits of the key answers at once, unless a
//! cut falls into that slice of the key space: then the cuts inside are searched), a second one copies the record
//! behind the others of its partition. Inside a partition records keep the order they came in.
//!
//! Where partitions need not lie one behind the other, [`Scatter`] does it in one sweep, into a buffer per partition.

use std::ops::DerefMut;

use super::memory::{as_small_numbers, prefetch_ahead};
use crate::cuts::Cuts;
use crate::records::hash::hash_number;
use crate::records::{RECORD_BYTES, Record, RowHash, as_records, as_records_mut, key_number};

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

/// Groups records by partition in one sweep: each is copied behind the last one of its partition, into a buffer that the
/// caller takes away when it is full.
///
/// Per record: one look-up, one copy, one hash. Buffers may be cold memory: the lines that a partition writes next are
/// asked for when it is written to, long before its next record comes.
#[derive(Debug)]
pub struct Scatter<B> {
    finder: Finder,
    slots: Vec<Slot<B>>,
    rows: u64,
    sum: u128,
}

/// Where the next record of a partition goes.
#[derive(Debug)]
struct Slot<B> {
    buffer: B,
    filled: usize,
}

impl<B: DerefMut<Target = [u8]>> Scatter<B> {
    /// Begins with one of `buffers` for each partition; all must hold a whole number of records, at least one.
    ///
    /// # Panics
    /// When there are not as many buffers as partitions, or one is of another length.
    pub fn new(cuts: &Cuts, buffers: impl IntoIterator<Item = B>) -> Scatter<B> {
        let slots: Vec<Slot<B>> = buffers.into_iter().map(|buffer| Slot { buffer, filled: 0 }).collect();
        assert_eq!(slots.len(), cuts.partitions(), "scatter: a buffer for each partition");
        slots.iter().for_each(|slot| check_buffer(&slot.buffer));
        Scatter { finder: Finder::new(cuts), slots, rows: 0, sum: 0 }
    }

    /// Copies the records of `bytes` to their partitions. When a partition's buffer is full and another record comes,
    /// `replace` is given the partition and its buffer, and leaves another one there.
    ///
    /// # Errors
    /// Those of `replace`; which records of `bytes` have been copied is not known then.
    ///
    /// # Panics
    /// When `bytes`, or a buffer that `replace` leaves, is not a whole number of records.
    pub fn push<E>(&mut self, bytes: &[u8], mut replace: impl FnMut(usize, &mut B) -> Result<(), E>) -> Result<(), E> {
        let records = as_records(bytes);
        let mut sum = self.sum;
        for record in records {
            let partition = self.finder.partition_of(record);
            let slot = &mut self.slots[partition];
            if slot.filled == slot.buffer.len() {
                replace(partition, &mut slot.buffer)?;
                check_buffer(&slot.buffer);
                slot.filled = 0;
            }
            let room = &mut slot.buffer[slot.filled..];
            room[..RECORD_BYTES].copy_from_slice(record);
            prefetch_ahead(room, RECORD_BYTES + 63);
            prefetch_ahead(room, 2 * RECORD_BYTES + 63);
            slot.filled += RECORD_BYTES;
            sum = sum.wrapping_add(hash_number(record));
        }
        self.sum = sum;
        self.rows += records.len() as u64;
        Ok(())
    }

    /// Records copied so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sum of the row hashes of the records copied so far.
    pub fn row_hash(&self) -> RowHash {
        RowHash(self.sum)
    }

    /// The buffer of each partition, and how many of its bytes are filled.
    pub fn into_buffers(self) -> impl Iterator<Item = (B, usize)> {
        self.slots.into_iter().map(|slot| (slot.buffer, slot.filled))
    }
}

fn check_buffer(buffer: &[u8]) {
    let len = buffer.len();
    assert!(
        len > 0 && len.is_multiple_of(RECORD_BYTES),
        "scatter: a buffer of {len} bytes is no whole number of records"
    );
}

/// Finds the partition of a record from a table over the first 16 bits of the key.
#[derive(Debug)]
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
