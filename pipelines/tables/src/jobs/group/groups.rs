//! Numbers of groups by their keys.
//!
//! A table of open addressing whose slots have 32 bits of the hash of a key and where that key is: keys lie one behind the other beside it, each behind the number of its group and its length, so
//! that a look-up goes to two places. Groups are numbered in the order in which they are met, so nothing that is made of them depends on hashes. Slots are asked for some rows ahead, and the keys
//! that they lead to some rows later: where there are more groups than caches hold, several look-ups wait for memory at a time.

use std::hash::{BuildHasher as _, Hasher as _};

use arrow_array::{Array as _, BinaryArray};
use arrow_buffer::OffsetBuffer;
use exobus_shuffle::kernels::{prefetch, prefetch_value};
use foldhash::quality::FixedState;

use crate::TableError;

/// The number of no group.
pub(in crate::jobs) const NONE: u32 = u32::MAX;
/// Rows between asking for a key and looking at it, and between asking for a slot and looking for its key.
const AHEAD: usize = 16;
/// Slots of a table at least.
const SLOTS_MIN: usize = 1024;
/// Bytes before a key: the number of its group, and how many bytes the key has.
const HEADER_BYTES: usize = 8;
/// Longer keys are compared by `memcmp`.
const SHORT_BYTES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::jobs) struct Groups {
    hasher: FixedState,
    /// The upper half of a slot is the hash of a key, the lower half says where in `keys` that begins. 0 is a slot without a key: before each key is a header, so none begins at 0. A power of
    /// two, twice as many as groups at least.
    slots: Vec<u64>,
    /// Of each group its number, how many bytes its key has, and these.
    keys: Vec<u8>,
    /// Where the key of each group begins.
    begins: Vec<u32>,
    /// Hashes of the keys of a batch.
    hashes: Vec<u32>,
}

impl Groups {
    /// How many there are.
    pub(in crate::jobs) fn len(&self) -> usize {
        self.begins.len()
    }

    /// Bytes of all keys, with what stands before each of them.
    pub(in crate::jobs) fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// The key of a group.
    pub(in crate::jobs) fn key(&self, group: u32) -> &[u8] {
        self.key_at(self.begins[group as usize]).1
    }

    /// The group whose key begins here, and that key.
    #[inline]
    fn key_at(&self, begin: u32) -> (u32, &[u8]) {
        let (header, keys) = self.keys[begin as usize - HEADER_BYTES..].split_at(HEADER_BYTES);
        let header = u64::from_le_bytes(*header.first_chunk().expect("so many bytes"));
        (header as u32, &keys[..(header >> 32) as usize])
    }

    /// Adds a group. Returns its number, and where its key begins.
    fn push(&mut self, key: &[u8]) -> (u32, u32) {
        let group = self.len() as u32;
        self.keys.extend_from_slice(&(u64::from(group) | (key.len() as u64) << 32).to_le_bytes());
        let begin = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.begins.push(begin);
        (group, begin)
    }

    /// Keys of some groups.
    pub(in crate::jobs) fn keys_of(&self, groups: &[u32]) -> BinaryArray {
        // As many bytes as keys have on average.
        let all = (self.keys.len() - HEADER_BYTES * self.len()) as u64;
        let about = (all * groups.len() as u64).div_ceil(self.len().max(1) as u64) as usize;
        let mut bytes = Vec::with_capacity(about);
        let mut offsets = Vec::with_capacity(groups.len() + 1);
        offsets.push(0);
        for (at, group) in groups.iter().enumerate() {
            if let Some(group) = groups.get(at + AHEAD) {
                self.prefetch_key(self.begins[*group as usize], about / groups.len());
            }
            bytes.extend_from_slice(self.key(*group));
            offsets.push(i32::try_from(bytes.len()).expect("keys of a message have less than 2 GiB"));
        }
        if bytes.capacity() > bytes.len() + bytes.len() / 8 {
            bytes.shrink_to_fit();
        }
        BinaryArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), None)
    }

    /// Bytes of memory that it takes.
    pub(in crate::jobs) fn bytes(&self) -> u64 {
        let bytes =
            8 * self.slots.capacity() + self.keys.capacity() + 4 * (self.begins.capacity() + self.hashes.capacity());
        bytes as u64
    }

    /// Bytes of memory that it takes at most while so many more groups are added, whose keys have so many bytes: what grows is there twice for a moment.
    pub(in crate::jobs) fn bytes_with(&self, groups: usize, key_bytes: usize) -> u64 {
        let grown = |len: usize, more: usize, capacity: usize, width: usize| match len + more {
            needed if needed <= capacity => width * capacity,
            needed => width * (capacity + needed.max(2 * capacity)),
        };
        let slots = slots_of(self.len() + groups);
        let slots = if slots <= self.slots.len() { 8 * self.slots.len() } else { 8 * (self.slots.len() + slots) };
        let keys = grown(self.keys.len(), key_bytes + groups * HEADER_BYTES, self.keys.capacity(), 1);
        let begins = grown(self.begins.len(), groups, self.begins.capacity(), 4);
        (slots + keys + begins + grown(0, groups, self.hashes.capacity(), 4)) as u64
    }

    /// The number of the group of each key, which is added where it is new. Keys have no nulls.
    ///
    /// # Errors
    /// [`TableError::KeysTooLarge`]: all keys together, with 8 bytes for each of them, take 4 GiB.
    pub(in crate::jobs) fn intern(&mut self, keys: &BinaryArray, groups: &mut Vec<u32>) -> Result<(), TableError> {
        let key_bytes = keys.value_data().len() + keys.len() * HEADER_BYTES;
        if self.keys.len() + key_bytes > u32::MAX as usize || self.len() + keys.len() >= NONE as usize {
            return Err(TableError::KeysTooLarge { rows: self.len() + keys.len() });
        }
        self.make_room(keys.len());
        self.keys.reserve(key_bytes);
        self.begins.reserve(keys.len());
        self.hash(keys);
        groups.clear();
        groups.reserve(keys.len());
        for row in 0..keys.len() {
            self.ask(keys, row);
            let (hash, key) = (self.hashes[row], keys.value(row));
            groups.push(match self.place_of(hash, key) {
                (_, Some(group)) => group,
                (slot, None) => {
                    let (group, begin) = self.push(key);
                    self.slots[slot] = u64::from(hash) << 32 | u64::from(begin);
                    group
                }
            });
        }
        Ok(())
    }

    /// The number of the group of each key; [`NONE`] where there is none.
    pub(in crate::jobs) fn find(&mut self, keys: &BinaryArray, groups: &mut Vec<u32>) {
        self.make_room(0);
        self.hash(keys);
        groups.clear();
        groups.reserve(keys.len());
        for row in 0..keys.len() {
            self.ask(keys, row);
            groups.push(self.place_of(self.hashes[row], keys.value(row)).1.unwrap_or(NONE));
        }
    }

    /// Which of these keys are those of groups that are there, and the numbers of these. `hashes`: of the keys.
    pub(in crate::jobs) fn known(&self, keys: &BinaryArray, hashes: &[u32], marks: &Marks, known: &mut Known) {
        let Known { rows, groups } = known;
        marks.marked(hashes, rows);
        groups.clear();
        rows.retain(|row| {
            let (_, group) = self.place_of(hashes[*row as usize], keys.value(*row as usize));
            groups.extend(group);
            group.is_some()
        });
    }

    /// Makes [`hashes`](Self::hashes) of keys that nobody looks for.
    pub(in crate::jobs) fn hash_only(&mut self, keys: &BinaryArray) {
        self.hash(keys);
    }

    /// The hashes of the keys that were looked for last.
    pub(in crate::jobs) fn hashes(&self) -> &[u32] {
        &self.hashes
    }

    /// Forgets all groups, and keeps the memory for others.
    pub(in crate::jobs) fn clear(&mut self) {
        self.slots.fill(0);
        self.keys.clear();
        self.begins.clear();
    }

    fn hash(&mut self, keys: &BinaryArray) {
        let hash_of = |row| {
            let mut hasher = self.hasher.build_hasher();
            hasher.write(keys.value(row));
            (hasher.finish() >> 32) as u32
        };
        self.hashes.clear();
        self.hashes.extend((0..keys.len()).map(hash_of));
    }

    /// Asks for the slot of a row that is looked at after some others, and for the key of the group that the slot of one before has.
    #[inline]
    fn ask(&self, keys: &BinaryArray, row: usize) {
        if let Some(hash) = self.hashes.get(row + 2 * AHEAD) {
            prefetch_value(&self.slots[self.first_slot(*hash)]);
        }
        if let Some(hash) = self.hashes.get(row + AHEAD) {
            let slot = self.slots[self.first_slot(*hash)];
            if slot != 0 && (slot >> 32) as u32 == *hash {
                // A key that is the same is as long.
                self.prefetch_key(slot as u32, keys.value_length(row + AHEAD) as usize);
            }
        }
    }

    /// Prefetches the key that begins here, of so many bytes, and what stands before it.
    #[inline]
    fn prefetch_key(&self, begin: u32, bytes: usize) {
        let begin = begin as usize;
        prefetch(&self.keys[begin - HEADER_BYTES..self.keys.len().min(begin + bytes)]);
    }

    #[inline]
    fn first_slot(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// The group of a key, or the slot where it is to be put.
    #[inline]
    fn place_of(&self, hash: u32, key: &[u8]) -> (usize, Option<u32>) {
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return (at, None);
            }
            if (slot >> 32) as u32 == hash {
                let (group, known) = self.key_at(slot as u32);
                if are_same(known, key) {
                    return (at, Some(group));
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Makes slots for so many more groups.
    fn make_room(&mut self, groups: usize) {
        let slots = slots_of(self.len() + groups);
        if slots <= self.slots.len() {
            return;
        }
        // Slots are read before they are written. Memory that the kernel has zeroed would be mapped twice: first the page of zeros that all processes share, then, with an interruption of all other processors, one of its own. So nobody may see that it is zeros which are written.
        let mut empty = Vec::with_capacity(slots);
        empty.resize(slots, std::hint::black_box(0));
        let before = std::mem::replace(&mut self.slots, empty);
        for slot in before.into_iter().filter(|slot| *slot != 0) {
            let mut at = self.first_slot((slot >> 32) as u32);
            while self.slots[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = slot;
        }
    }
}

/// Keys that were looked for: which of them are those of groups, and the numbers of these.
#[derive(Debug, Default)]
pub(in crate::jobs) struct Known {
    pub(in crate::jobs) rows: Vec<u32>,
    pub(in crate::jobs) groups: Vec<u32>,
}

/// Bits by the hashes of the keys of few groups: of a key that is none of these, nothing else is looked at, mostly.
#[derive(Debug, Default)]
pub(in crate::jobs) struct Marks {
    bits: Vec<u64>,
}

impl Known {
    /// Those of the first groups, so many, among these. [`NONE`] is the number of none.
    pub(in crate::jobs) fn find_first(&mut self, numbers: &[u32], groups: u32) {
        // Each row is written, and the next one over it where it is of another group: that is quicker than to ask.
        let Self { rows, groups: found } = self;
        rows.clear();
        rows.resize(numbers.len(), 0);
        found.clear();
        found.resize(numbers.len(), 0);
        let mut kept = 0;
        for (row, group) in (0..).zip(numbers) {
            (rows[kept], found[kept]) = (row, *group);
            kept += usize::from(*group < groups);
        }
        rows.truncate(kept);
        found.truncate(kept);
    }

    /// Bytes of memory that it takes.
    pub(in crate::jobs) fn bytes(&self) -> u64 {
        4 * (self.rows.capacity() + self.groups.capacity()) as u64
    }

    /// Bytes of memory that those of so many rows take at most.
    pub(in crate::jobs) fn bytes_of(rows: usize) -> u64 {
        8 * rows as u64
    }
}

impl Marks {
    /// Bytes of memory that it takes.
    pub(in crate::jobs) fn bytes(&self) -> u64 {
        8 * self.bits.capacity() as u64
    }

    /// Of all groups that are there.
    pub(in crate::jobs) fn of(groups: &Groups) -> Self {
        // Of 64 bits one is set, about: 64 KiB for 8192 groups.
        let mut bits = vec![0; groups.len().next_power_of_two()];
        for slot in groups.slots.iter().filter(|slot| **slot != 0) {
            let (word, bit) = Self::place(bits.len(), (slot >> 32) as u32);
            bits[word] |= bit;
        }
        Self { bits }
    }

    /// The bit of a hash among so many words, a power of two.
    fn place(words: usize, hash: u32) -> (usize, u64) {
        (hash as usize >> 6 & (words - 1), 1 << (hash & 63))
    }

    /// The rows of hashes that are marked.
    fn marked(&self, hashes: &[u32], rows: &mut Vec<u32>) {
        // Each row is written, and the next one over it where it is not marked: that is quicker than to ask.
        rows.clear();
        rows.resize(hashes.len(), 0);
        let mut marked = 0;
        for (row, hash) in (0..).zip(hashes) {
            let (word, bit) = Self::place(self.bits.len(), *hash);
            rows[marked] = row;
            marked += usize::from(self.bits[word] & bit != 0);
        }
        rows.truncate(marked);
    }
}

/// Whether two keys are the same. Most are short: to call `memcmp` for them takes longer than to compare them here.
#[inline]
fn are_same(one: &[u8], other: &[u8]) -> bool {
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        // The last eight bytes cover what is behind the last whole word.
        (Some(last), Some(of_other)) if one.len() <= SHORT_BYTES => {
            one.len() == other.len() && words(one).eq(words(other)) && last == of_other
        }
        _ => one == other,
    }
}

fn words(key: &[u8]) -> impl Iterator<Item = u64> {
    key.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// How many slots so many groups have.
fn slots_of(groups: usize) -> usize {
    (2 * groups).next_power_of_two().max(SLOTS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: impl IntoIterator<Item = String>) -> BinaryArray {
        texts.into_iter().map(|text| Some(text.into_bytes())).collect()
    }

    #[test]
    fn groups_are_numbered_as_their_keys_are_met_however_many_there_are() {
        let (mut groups, mut numbers) = (Groups::default(), Vec::new());
        let mut expected = std::collections::HashMap::new();
        for batch in 0..40_u64 {
            let texts: Vec<String> =
                (0..1000_u64).map(|row| format!("{}", (batch * 7919 + row * row) % 9973)).collect();
            let next = |text: &String| {
                let number = expected.len() as u32;
                *expected.entry(text.clone()).or_insert(number)
            };
            let wanted: Vec<u32> = texts.iter().map(next).collect();
            let before = groups.bytes_with(1000, 4000);
            groups.intern(&keys(texts.clone()), &mut numbers).unwrap();
            assert!(groups.bytes() <= before, "more memory than was said");
            assert_eq!(numbers, wanted);
            assert!(numbers.iter().zip(&texts).all(|(group, text)| groups.key(*group) == text.as_bytes()));
        }
        assert_eq!(groups.len(), expected.len());
        groups.find(&keys(["0".to_owned(), "none".to_owned(), String::new()]), &mut numbers);
        assert_eq!(numbers, [expected["0"], NONE, NONE]);
        assert_eq!(groups.keys_of(&[3, 1]).value(1), groups.key(1));
        groups.clear();
        groups.find(&keys(["0".to_owned()]), &mut numbers);
        assert_eq!((groups.len(), &numbers[..]), (0, &[NONE][..]));
        groups.intern(&keys(["x".to_owned(), "y".to_owned(), "x".to_owned()]), &mut numbers).unwrap();
        assert_eq!(numbers, [0, 1, 0]);
    }

    #[test]
    fn keys_of_any_length_are_told_apart_and_come_back_in_any_order() {
        let mut groups = Groups::default();
        let mut numbers = Vec::new();
        groups.intern(&keys([String::new()]), &mut numbers).unwrap();
        groups.find(&keys([String::new(), "x".to_owned()]), &mut numbers);
        assert_eq!((&numbers[..], groups.key(0)), (&[0, NONE][..], &b""[..]));
        groups.clear();
        // The empty key comes in the middle, and once more in the end.
        let texts: Vec<String> = [5, 0, 1, 200, 70, 64, 65, 7, 8, 9, 16, 24]
            .into_iter()
            .flat_map(|len| ["a", "b", "\0"].map(|text| text.repeat(len)))
            .collect();
        let mut distinct: Vec<String> = Vec::new();
        for text in texts.iter().chain(&[String::new()]) {
            groups.intern(&keys([text.clone()]), &mut numbers).unwrap();
            let known = distinct.iter().position(|known| known == text);
            assert_eq!(numbers, [known.unwrap_or(distinct.len()) as u32], "{text:?}");
            if known.is_none() {
                distinct.push(text.clone());
            }
        }
        let backwards: Vec<u32> = (0..groups.len() as u32).rev().collect();
        let found = groups.keys_of(&backwards);
        assert!(found.iter().flatten().eq(distinct.iter().rev().map(String::as_bytes)));
        assert!(groups.keys_of(&[]).is_empty());
        let long = groups.keys_of(&[9; 100]);
        assert_eq!(long.value_data().len(), 100 * groups.key(9).len());
        assert!(long.get_buffer_memory_size() < 2 * (long.value_data().len() + 404));
    }

    #[test]
    fn keys_are_the_same_where_all_their_bytes_are() {
        let bytes: Vec<u8> = (0..80).collect();
        for len in 0..bytes.len() {
            let key = &bytes[..len];
            let copy = key.to_vec();
            assert!(are_same(key, &copy), "{len}");
            assert!(!are_same(key, &bytes[..len + 1]) && !are_same(&bytes[..len + 1], key), "{len}");
            for at in 0..len {
                let mut other = key.to_vec();
                other[at] ^= 1;
                assert!(!are_same(key, &other), "{len}, {at}");
            }
        }
    }

    #[test]
    fn of_many_keys_those_of_few_groups_are_found() {
        let (mut few, mut many, mut numbers) = (Groups::default(), Groups::default(), Vec::new());
        let all = keys((0..20_000).map(|number| format!("key {number}")));
        for followed in [0, 1, 3, 700] {
            few.clear();
            few.intern(&keys((0..followed).map(|number| format!("key {}", number * 17))), &mut numbers).unwrap();
            many.intern(&all, &mut numbers).unwrap();
            let mut known = Known::default();
            few.known(&all, many.hashes(), &Marks::of(&few), &mut known);
            assert!(known.rows.iter().copied().eq((0..followed).map(|number| number * 17)), "{followed}");
            assert!(known.groups.iter().copied().eq(0..followed), "{followed}");
            let expected = known;
            // In a table that has them before others they have the first numbers.
            let mut both = Groups::default();
            both.intern(&keys((0..followed).map(|number| format!("key {}", number * 17))), &mut numbers).unwrap();
            both.intern(&all, &mut numbers).unwrap();
            let mut known = Known::default();
            known.find_first(&numbers, followed);
            assert_eq!((&known.rows, &known.groups), (&expected.rows, &expected.groups), "{followed}");
        }
    }
}
