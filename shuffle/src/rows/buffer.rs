//! Rows in any order in, rows in order of partition and key out, in memory that does not grow.
//!
//! Rows lie one behind the other from the front of the memory, each behind eight bytes for its number; the entries that
//! are sorted in their place are made at its back when they are needed, and room for them is always kept. Where rows of a
//! key are combined, a hash table over a quarter of the memory finds the row that is there already, so that many rows of
//! few keys take the room of few rows.
//!
//! What does not fit is not written anywhere: it is made again. When the memory is full, the upper half of the rows goes, and
//! with it everything that comes later and belongs above; when the lower half has been taken out, the maker of the rows is
//! run again for what is above ([`RowBuffer::next_pass`]). Maps are functions of their input, so the same rows come in the
//! same order. With memory for half of the rows that makes two or three passes over the input, and none is ever refused.

use exobus_actors::registry::TaskError;
use twox_hash::XxHash3_64;

use super::{ROW_HEADER_BYTES, Row, row_header};
use crate::cuts::key_prefix;

/// Makes one value of two of the same key: `combine(key, into, value)`. Associative and commutative.
pub type Combine<'a> = &'a dyn Fn(&[u8], &mut Vec<u8>, &[u8]) -> Result<(), TaskError>;

/// Bytes before a row: its number in the order in which they came.
const NUMBER_BYTES: usize = 8;
/// A row that another one has replaced.
const DEAD: u64 = u64::MAX;
const ENTRY_BYTES: usize = 16;
const SLOT_BYTES: usize = 8;
/// Bits of an entry, or a slot, for the place of a row: a terabyte.
const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Bits of an entry for the partition; there are at most a million.
const PARTITION_BITS: u32 = 24;

/// A place in the order of all rows: everything below it has another fate than what is at it or above.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bound {
    partition: u32,
    key: Vec<u8>,
    /// Number of a row; 0 where rows of a key are combined, since they stay together.
    number: u64,
}

impl Bound {
    fn is_above(&self, partition: u32, key: &[u8], number: u64) -> bool {
        (partition, key, number) < (self.partition, &self.key[..], self.number)
    }
}

/// See the module.
pub struct RowBuffer<'a> {
    memory: &'a mut [u8],
    table: &'a mut [[u8; SLOT_BYTES]],
    partition_of: &'a dyn Fn(&[u8]) -> u32,
    combine: Option<Combine<'a>>,
    used: usize,
    /// Rows that are not dead.
    rows: usize,
    dead_bytes: usize,
    /// Rows that came in this pass.
    came: u64,
    /// This pass is for what is at or above `from` and below `to`.
    from: Option<Bound>,
    to: Option<Bound>,
    value: Vec<u8>,
}

impl<'a> RowBuffer<'a> {
    /// The least memory that makes sense, bytes.
    pub const BYTES_MIN: usize = 1024;

    /// A buffer in `memory`. Rows of a key are combined as they come where there is a `combine`.
    ///
    /// # Panics
    /// With a terabyte of memory or more, or with less than [`RowBuffer::BYTES_MIN`].
    pub fn new(
        memory: &'a mut [u8],
        partition_of: &'a dyn Fn(&[u8]) -> u32,
        combine: Option<Combine<'a>>,
    ) -> RowBuffer<'a> {
        let fits = memory.len() >= Self::BYTES_MIN && (memory.len() as u64) < PLACE_MASK;
        assert!(fits, "a buffer of {} bytes", memory.len());
        let slots = slots(memory.len(), combine.is_some());
        let (table, memory) = memory.split_at_mut((slots * SLOT_BYTES).min(memory.len()));
        let table = table.as_chunks_mut().0;
        table.fill([0; SLOT_BYTES]);
        RowBuffer {
            memory,
            table,
            partition_of,
            combine,
            used: 0,
            rows: 0,
            dead_bytes: 0,
            came: 0,
            from: None,
            to: None,
            value: Vec::new(),
        }
    }

    /// How many bytes of rows fit into a buffer of `memory_bytes`, where rows have `row_bytes` on average: beyond that their maker is
    /// run again.
    pub fn room(memory_bytes: usize, row_bytes: usize, combines: bool) -> usize {
        let slots = slots(memory_bytes, combines);
        let row_bytes = row_bytes.max(1);
        let rows = memory_bytes.saturating_sub(slots * SLOT_BYTES) / (NUMBER_BYTES + row_bytes + ENTRY_BYTES);
        let rows = if combines { rows.min(slots / 4 * 3) } else { rows };
        rows * row_bytes
    }

    /// Takes a row in, if it is one of this pass.
    ///
    /// # Errors
    /// A row that is larger than half of the memory; what `combine` says.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let number = self.came;
        self.came += 1;
        let hash = XxHash3_64::oneshot(key);
        if let Some(combine) = self.combine
            && let Some((slot, place)) = self.find(hash, key)
        {
            return self.fold(combine, hash, slot, place, value);
        }
        if self.belongs(key, number) { self.append(hash, key, value, number) } else { Ok(()) }
    }

    fn belongs(&self, key: &[u8], number: u64) -> bool {
        if self.from.is_none() && self.to.is_none() {
            return true;
        }
        let partition = (self.partition_of)(key);
        let number = if self.combine.is_some() { 0 } else { number };
        !self.from.as_ref().is_some_and(|from| from.is_above(partition, key, number))
            && self.to.as_ref().is_none_or(|to| to.is_above(partition, key, number))
    }

    /// Combines `value` into the row at `place`.
    fn fold(
        &mut self,
        combine: Combine<'_>,
        hash: u64,
        slot: usize,
        place: usize,
        value: &[u8],
    ) -> Result<(), TaskError> {
        let row = row_at(self.memory, place);
        let mut combined = std::mem::take(&mut self.value);
        combined.clear();
        combined.extend_from_slice(row.value());
        combine(row.key(), &mut combined, value)?;
        if combined.len() == row.value().len() {
            let end = place + NUMBER_BYTES + row.bytes().len();
            self.memory[end - combined.len()..end].copy_from_slice(&combined);
        } else {
            // It goes to the end, where there is room; the table finds it there.
            let (key, number, bytes) = (row.key().to_vec(), number_at(self.memory, place), row.bytes().len());
            self.kill(place, bytes);
            self.table[slot] = [0; SLOT_BYTES];
            self.reinsert_cluster(slot);
            self.append(hash, &key, &combined, number)?;
        }
        self.value = combined;
        Ok(())
    }

    fn kill(&mut self, place: usize, row_bytes: usize) {
        self.memory[place..place + NUMBER_BYTES].copy_from_slice(&DEAD.to_le_bytes());
        self.dead_bytes += NUMBER_BYTES + row_bytes;
        self.rows -= 1;
    }

    fn append(&mut self, hash: u64, key: &[u8], value: &[u8], number: u64) -> Result<(), TaskError> {
        let bytes = NUMBER_BYTES + ROW_HEADER_BYTES + key.len() + value.len();
        if bytes + ENTRY_BYTES > self.memory.len() / 2 || bytes > u32::MAX as usize {
            return Err(TaskError::fatal(format!(
                "a row of {} bytes of key and {} bytes of value is too large for a buffer of {} bytes: give the nodes \
                 more memory",
                key.len(),
                value.len(),
                self.memory.len()
            )));
        }
        while self.is_full(bytes) {
            self.make_room();
            if !self.belongs(key, number) {
                return Ok(());
            }
        }
        let place = self.used;
        let mut at = place;
        for piece in [&number.to_le_bytes()[..], &row_header(key, value), key, value] {
            self.memory[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.used = at;
        self.rows += 1;
        self.insert(hash, place);
        Ok(())
    }

    fn is_full(&self, more: usize) -> bool {
        let crowded = self.combine.is_some() && (self.rows + 1) * 4 > self.table.len() * 3;
        crowded || self.used + more + (self.rows + 1) * ENTRY_BYTES > self.memory.len()
    }

    /// Frees what dead rows take, or else gives the upper half of the rows up for this pass.
    fn make_room(&mut self) {
        // Two rows always fit: there is a half to keep, unless it is dead rows that take the room.
        if self.dead_bytes <= self.used / 4 && self.rows >= 2 {
            let half = self.rows / 2;
            let combines = self.combine.is_some();
            let (memory, entries) = self.entries();
            entries.select_nth_unstable_by(half, |a, b| compare(memory, *a, *b));
            let split = place_of(entries[half]);
            let row = row_at(memory, split);
            let bound = Bound {
                partition: (u128::from_be_bytes(entries[half]) >> (128 - PARTITION_BITS)) as u32,
                key: row.key().to_vec(),
                number: if combines { 0 } else { number_at(memory, split) },
            };
            for place in entries[half..].iter().map(|entry| place_of(*entry)) {
                memory[place..place + NUMBER_BYTES].copy_from_slice(&DEAD.to_le_bytes());
            }
            self.to = Some(bound);
        }
        self.compact();
    }

    /// Moves the rows together that are not dead, keeping their order.
    fn compact(&mut self) {
        self.table.fill([0; SLOT_BYTES]);
        let (mut from, end) = (0, self.used);
        (self.used, self.rows, self.dead_bytes) = (0, 0, 0);
        while from < end {
            let bytes = NUMBER_BYTES + row_at(self.memory, from).bytes().len();
            if number_at(self.memory, from) != DEAD {
                let place = self.used;
                self.memory.copy_within(from..from + bytes, place);
                self.used += bytes;
                self.rows += 1;
                if self.combine.is_some() {
                    let hash = XxHash3_64::oneshot(row_at(self.memory, place).key());
                    self.insert(hash, place);
                }
            }
            from += bytes;
        }
    }

    /// The row of this key: its slot and place.
    fn find(&self, hash: u64, key: &[u8]) -> Option<(usize, usize)> {
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = u64::from_le_bytes(self.table[slot]);
            if entry == 0 {
                return None;
            }
            if entry >> PLACE_BITS == hash >> PLACE_BITS {
                let place = (entry & PLACE_MASK) as usize - 1;
                if row_at(self.memory, place).key() == key {
                    return Some((slot, place));
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    fn insert(&mut self, hash: u64, place: usize) {
        if self.combine.is_none() {
            return;
        }
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        while self.table[slot] != [0; SLOT_BYTES] {
            slot = (slot + 1) & mask;
        }
        let entry = (hash & !PLACE_MASK) | (place as u64 + 1);
        self.table[slot] = entry.to_le_bytes();
    }

    /// After a slot has been emptied: what was put behind it because it was taken is put where it is found again.
    fn reinsert_cluster(&mut self, emptied: usize) {
        let mask = self.table.len() - 1;
        let mut slot = (emptied + 1) & mask;
        while self.table[slot] != [0; SLOT_BYTES] {
            let entry = u64::from_le_bytes(std::mem::replace(&mut self.table[slot], [0; SLOT_BYTES]));
            let place = (entry & PLACE_MASK) as usize - 1;
            let hash = XxHash3_64::oneshot(row_at(self.memory, place).key());
            self.insert(hash, place);
            slot = (slot + 1) & mask;
        }
    }

    /// Makes an entry for each row, unordered: partition, first bytes of the key, place.
    fn entries(&mut self) -> (&mut [u8], &mut [[u8; ENTRY_BYTES]]) {
        let split = self.memory.len() - self.rows * ENTRY_BYTES;
        let (memory, entries) = self.memory.split_at_mut(split);
        let entries = entries.as_chunks_mut().0;
        let (mut place, mut next) = (0, 0);
        while place < self.used {
            let row = row_at(memory, place);
            if number_at(memory, place) != DEAD {
                let partition = u128::from((self.partition_of)(row.key())) << (128 - PARTITION_BITS);
                let prefix = u128::from(key_prefix(row.key())) << PLACE_BITS;
                entries[next] = (partition | prefix | place as u128).to_be_bytes();
                next += 1;
            }
            place += NUMBER_BYTES + row.bytes().len();
        }
        debug_assert_eq!(next, entries.len());
        (memory, entries)
    }

    /// Orders the rows of this pass: by partition, then key, then as they came.
    pub fn sorted(&mut self) -> impl ExactSizeIterator<Item = (u32, Row<'_>)> {
        let (memory, entries) = self.entries();
        entries.sort_unstable_by(|a, b| compare(memory, *a, *b));
        let memory = &*memory;
        entries.iter().map(|entry| {
            let partition = (u128::from_be_bytes(*entry) >> (128 - PARTITION_BITS)) as u32;
            (partition, row_at(memory, place_of(*entry)))
        })
    }

    /// How many rows are held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the rows that are held.
    pub fn bytes(&self) -> usize {
        self.used - self.dead_bytes - self.rows * NUMBER_BYTES
    }

    /// Empties the buffer. True when there were rows that did not fit: push all rows again, in the same order.
    pub fn next_pass(&mut self) -> bool {
        self.table.fill([0; SLOT_BYTES]);
        (self.used, self.rows, self.dead_bytes, self.came) = (0, 0, 0, 0);
        let again = self.to.is_some();
        self.from = self.to.take();
        again
    }
}

/// Slots of the table of a buffer.
fn slots(memory_bytes: usize, combines: bool) -> usize {
    if combines { 1 << (memory_bytes / 4 / SLOT_BYTES).max(1).ilog2() } else { 0 }
}

impl std::fmt::Debug for RowBuffer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowBuffer({} rows in {} of {} bytes)", self.rows, self.used, self.memory.len())
    }
}

fn row_at(memory: &[u8], place: usize) -> Row<'_> {
    Row::first_of(&memory[place + NUMBER_BYTES..], place).expect("a row that was put here")
}

fn number_at(memory: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(*memory[place..].first_chunk().expect("a row that was put here"))
}

fn place_of(entry: [u8; ENTRY_BYTES]) -> usize {
    (u128::from_be_bytes(entry) as u64 & PLACE_MASK) as usize
}

/// By partition and key; rows of one key by their places, which are in the order in which they came.
fn compare(memory: &[u8], a: [u8; ENTRY_BYTES], b: [u8; ENTRY_BYTES]) -> std::cmp::Ordering {
    let head = |entry| u128::from_be_bytes(entry) >> PLACE_BITS;
    head(a).cmp(&head(b)).then_with(|| {
        let key = |entry| row_at(memory, place_of(entry)).key();
        key(a).cmp(key(b)).then_with(|| a.cmp(&b))
    })
}
