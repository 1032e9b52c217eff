//! Rows that need not go anywhere: those of one table whose key the other one has not, where such rows are not written.
//!
//! Where one table is much smaller, its maps run first and say the hashes of their keys. One task makes a filter of them, and maps of the other table leave out the rows whose key is not in it
//! before they are put in order. Which rows match does not follow from that, so a key that the filter takes for another one costs its way and nothing else.
//!
//! The filter is a blocked Bloom filter (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", JEA 2009): a key is eight bits in one block of 256, one in each of its words
//! of 32, as in the split block filters of Parquet. With 12 bits for each key about one of a hundred keys that are not there seems to be.

use arrow_array::RecordBatch;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_shuffle::Sizes;
use exobus_shuffle::kernels::prefetch_value;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::query::{JoinKind, Side};
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::described::Described;
use crate::jobs::parts::arguments;
use crate::jobs::rewrite::Ordered;
use crate::semantics::{KeyColumn, KeyEncoder, KeyRows};
use crate::sources::Reservation;

/// A table is much smaller where it has this part of the bytes of the other one, at most.
const SMALLER: u64 = 4;
/// A table of fewer bytes is as soon passed on as looked at.
const BYTES_MIN: u64 = 4 << 20;
/// A filter takes this part of the store of a node at most, or there is none; hashes of keys take five times as much while it is made.
const STORE_SHARE: u64 = 32;
/// A short row of text has so many bytes.
const SHORT_ROW_BYTES: u64 = 8;
/// What a map takes beside its rows to look at those of a batch, about.
pub(super) const SIEVE_BYTES: u64 = 1 << 20;
/// Bits for each row of the small table.
const BITS: u64 = 12;
/// Words of a block.
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();
/// Odd numbers that make the bit of each word of a hash (those of Parquet's split block filters).
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];
/// So many rows show whether a map leaves out enough of them.
const TRIED_ROWS: u64 = 1 << 16;
/// It goes on looking where it leaves out one of so many.
const LEFT_OUT_MIN: u64 = 8;
/// Rows between asking for a block and looking at it.
const AHEAD: usize = 64;
/// What a row takes beside its key while it is looked at: where that ends, its hash, and whether it is left out.
const ROW_BYTES: u64 = (size_of::<u32>() + size_of::<u64>() + size_of::<bool>()) as u64;
/// Hashes that are written at a time.
const HASHES_AT_ONCE: usize = 8192;

/// Which table is much smaller, so that its keys make a filter, and how many blocks that has. It follows from memory, and the output does not follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filtering {
    /// The small table.
    pub(super) by: Side,
    blocks: u32,
}

impl Filtering {
    /// `None`: all rows go on.
    pub(super) fn of(kind: JoinKind, described: &[Described; 2], sizes: Sizes) -> Option<Self> {
        let is_much_smaller = |by: &Side| {
            let [small, large] = [*by, by.other()].map(|side| described[side as usize].value_bytes());
            large >= BYTES_MIN && small.saturating_mul(SMALLER) <= large
        };
        let by = Side::BOTH.into_iter().filter(|by| !kind.keeps(by.other())).find(is_much_smaller)?;
        // Where nobody knows how many rows there are, there may be very short ones.
        let small = &described[by as usize];
        let rows = small.rows().unwrap_or(small.value_bytes() / SHORT_ROW_BYTES);
        let blocks = (rows * BITS).div_ceil(8 * BLOCK_BYTES as u64).max(1);
        let fits = blocks * BLOCK_BYTES as u64 <= sizes.memory_bytes / STORE_SHARE;
        u32::try_from(blocks).ok().filter(|_| fits).map(|blocks| Self { by, blocks })
    }

    pub(super) fn params(self) -> FilterParams {
        FilterParams { blocks: self.blocks }
    }

    /// Bytes of the filter.
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES as u64
    }
}

/// What `make_filter` is told. Its arguments are hashes of keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FilterParams {
    blocks: u32,
}

/// A filter of the keys of a table.
#[task(name = "join.filter", deterministic = true)]
pub(super) fn make_filter(context: &mut TaskContext<'_>, params: FilterParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let bytes = params.blocks as usize * BLOCK_BYTES;
    let _memory = Reservation::of(&budget.shared(), bytes as u64).map_err(|denied| budget.of_rows(denied))?;
    let mut blocks = vec![0; bytes];
    for hashes in arguments(context, 0).into_iter().flatten() {
        context.check_cancelled()?;
        let (hashes, rest) = hashes.as_chunks::<{ size_of::<u64>() }>();
        if !rest.is_empty() {
            return Err(TaskError::fatal("hashes of keys end within one"));
        }
        hashes.iter().for_each(|hash| insert(&mut blocks, u64::from_le_bytes(*hash)));
    }
    let writer = context.output()?;
    writer.begin_part(Some(bytes as u64))?;
    writer.write(&blocks)?;
    writer.end_part(0, Default::default());
    Ok(())
}

/// Writes the hashes of the keys of rows, which are in order, as an output.
pub(super) fn write_hashes(
    context: &mut TaskContext<'_>,
    output: usize,
    ordered: &Ordered<'_>,
) -> Result<(), TaskError> {
    let writer = context.output_at(output)?;
    writer.begin_part(None)?;
    let (mut bytes, mut last) = (Vec::with_capacity(HASHES_AT_ONCE * size_of::<u64>()), None);
    for row in 0..ordered.len() {
        let hash = hash(ordered.row(row).0);
        // Rows of one key follow each other.
        if last.replace(hash) == Some(hash) {
            continue;
        }
        bytes.extend_from_slice(&hash.to_le_bytes());
        if bytes.len() == bytes.capacity() {
            writer.write(&bytes)?;
            bytes.clear();
        }
    }
    writer.write(&bytes)?;
    writer.end_part(0, Default::default());
    Ok(())
}

fn hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// Where the block of a hash begins among so many bytes.
fn block_of(bytes: usize, hash: u64) -> usize {
    let blocks = (bytes / BLOCK_BYTES) as u64;
    (((hash >> 32) * blocks) >> 32) as usize * BLOCK_BYTES
}

/// The bit of each word of a block.
fn bits(hash: u64) -> [u32; WORDS] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

fn insert(blocks: &mut [u8], hash: u64) {
    let at = block_of(blocks.len(), hash);
    let (words, _) = blocks[at..at + BLOCK_BYTES].as_chunks_mut::<{ size_of::<u32>() }>();
    for (word, bit) in words.iter_mut().zip(bits(hash)) {
        *word = (u32::from_le_bytes(*word) | bit).to_le_bytes();
    }
}

fn contains(blocks: &[u8], hash: u64) -> bool {
    let at = block_of(blocks.len(), hash);
    let (words, _) = blocks[at..at + BLOCK_BYTES].as_chunks::<{ size_of::<u32>() }>();
    // Without a branch for each: most blocks are read from memory once, and then all of it is there.
    words.iter().zip(bits(hash)).fold(0, |missing, (word, bit)| missing | (bit & !u32::from_le_bytes(*word))) == 0
}

/// Leaves out rows of a map whose keys are not in a filter, as long as these are not few.
pub(super) struct Sieve<'a> {
    blocks: &'a [u8],
    encoder: KeyEncoder,
    keys: KeyRows,
    /// Of the rows of a batch.
    hashes: Vec<u64>,
    memory: Reservation,
    seen: u64,
    left_out: u64,
}

impl<'a> Sieve<'a> {
    /// Of rows with this layout and this key; `memory` is for their keys.
    pub(super) fn of(
        blocks: &'a [u8],
        (layout, key): (&arrow_schema::Schema, &[KeyColumn]),
        memory: Reservation,
    ) -> Result<Self, TaskError> {
        if blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK_BYTES) {
            return Err(TaskError::fatal(format!("{} bytes are no filter", blocks.len())));
        }
        let encoder = KeyEncoder::new(layout, key).map_err(of_table)?;
        Ok(Self { blocks, encoder, keys: KeyRows::default(), hashes: Vec::new(), memory, seen: 0, left_out: 0 })
    }

    /// Which rows of a batch match nothing; `None`: that is not known of any.
    ///
    /// # Errors
    /// There is no memory for their keys.
    pub(super) fn left_out(&mut self, batch: &RecordBatch) -> Result<Option<Vec<bool>>, Unordered> {
        if self.seen >= TRIED_ROWS && self.left_out * LEFT_OUT_MIN < self.seen {
            return Ok(None);
        }
        // What is wrong with a key is told with its place where rows are put in order.
        let Ok(measured) = self.encoder.measure(batch) else { return Ok(None) };
        let Ok(bytes) = measured.bytes() else { return Ok(None) };
        self.memory.at_least(bytes + ROW_BYTES * batch.num_rows() as u64)?;
        self.keys.clear();
        measured.append(&mut self.keys)?;
        self.hashes.clear();
        self.hashes.extend((0..batch.num_rows()).map(|row| hash(self.keys.get(row))));
        let is_left_out = |(row, hash): (usize, &u64)| {
            if let Some(ahead) = self.hashes.get(row + AHEAD) {
                prefetch_value(&self.blocks[block_of(self.blocks.len(), *ahead)]);
            }
            !contains(self.blocks, *hash)
        };
        let left_out: Vec<bool> = self.hashes.iter().enumerate().map(is_left_out).collect();
        self.seen += left_out.len() as u64;
        self.left_out += left_out.iter().filter(|is_left_out| **is_left_out).count() as u64;
        Ok(Some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use super::*;
    use crate::sources::{FixedBudget, MemoryBudget};

    #[test]
    fn a_filter_has_all_of_its_keys_and_few_others() {
        let key = |number: u64| number.to_be_bytes();
        let rows = 100_000_u64;
        let mut blocks = vec![0; (rows * BITS).div_ceil(8 * BLOCK_BYTES as u64) as usize * BLOCK_BYTES];
        (0..rows).for_each(|number| insert(&mut blocks, hash(&key(number))));
        assert!((0..rows).all(|number| contains(&blocks, hash(&key(number)))));
        let others = (rows..11 * rows).filter(|number| contains(&blocks, hash(&key(*number)))).count();
        assert!(others < 15_000, "{others} of a million that are not there");
        let mut one = vec![0; BLOCK_BYTES];
        insert(&mut one, u64::MAX);
        assert!(contains(&one, u64::MAX) && !contains(&one, 0));
    }

    #[test]
    fn rows_are_left_out_as_long_as_they_are_not_few() {
        let key = [KeyColumn::rising("id")];
        let batch = |ids: std::ops::Range<i64>| {
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
            RecordBatch::try_from_iter([("id", ids)]).unwrap()
        };
        let small = batch(0..1_000);
        let encoder = KeyEncoder::new(&small.schema(), &key).unwrap();
        let mut blocks = vec![0; 64 * BLOCK_BYTES];
        let keys = encoder.encode(&small).unwrap();
        (0..keys.len()).for_each(|row| insert(&mut blocks, hash(keys.get(row))));
        let shared: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 20));
        let sieve = || Sieve::of(&blocks, (&small.schema(), &key), Reservation::none(&shared)).unwrap();
        let mut most = sieve();
        for from in (0..2_000_000).step_by(8_000) {
            let left_out = most.left_out(&batch(from..from + 8_000)).unwrap().expect("most rows are left out");
            let stay = left_out.iter().filter(|is_left_out| !**is_left_out).count();
            assert!(stay < 400 + if from == 0 { 1_000 } else { 0 }, "{stay} from {from}");
            assert!(from > 0 || !left_out[..1_000].contains(&true), "what is there stays");
        }
        let mut few = sieve();
        let looked_at = (0..20).filter(|_| few.left_out(&small).unwrap().is_some()).count();
        assert_eq!(looked_at, 20, "so many rows show nothing yet");
        let looked_at = (0..100).filter(|_| few.left_out(&small).unwrap().is_some()).count();
        assert_eq!(looked_at, TRIED_ROWS.div_ceil(1_000) as usize - 20);
        assert!(Sieve::of(&blocks[..40], (&small.schema(), &key), Reservation::none(&shared)).is_err());
    }
}
