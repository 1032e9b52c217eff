//! What is known of the groups of a table by blocks that were read: of each the numbers of its [`Totals`].

use std::hash::BuildHasher as _;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::estimators::Totals;

/// What a group takes beside its key and its numbers, about: its places in a table, and where its key ends.
const GROUP_BYTES: u64 = 24;
/// Bytes of a key, where nobody knows them.
const KEY_BYTES: u64 = 64;

/// Of groups, which are numbered in the order in which they were added; what each has lies one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    terms: usize,
    keys: Vec<u8>,
    /// Where the key of each group ends.
    ends: Vec<usize>,
    /// Of each group so many as [`Totals::numbers_of`] says.
    numbers: Vec<f64>,
}

/// Of groups that are found by their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct MomentsByKey {
    moments: Moments,
    /// Groups by their keys.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The same as bytes, groups in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EncodedMoments {
    terms: u32,
    /// Keys one behind the other, and how many bytes each of them has.
    keys: ByteBuf,
    lengths: Vec<u32>,
    /// Numbers of all groups, little-endian.
    numbers: ByteBuf,
}

/// Memory that so many groups of so many terms take, about, with what encodes them.
pub(super) fn memory_bytes(groups: u64, terms: usize) -> u64 {
    let numbers = 8 * Totals::numbers_of(terms) as u64;
    // What grows is there twice for a moment.
    groups * (GROUP_BYTES + 2 * (KEY_BYTES + numbers))
}

impl Moments {
    pub(super) fn new(terms: usize) -> Self {
        Self { terms, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory that they take, about, with what encodes them.
    pub(super) fn bytes(&self) -> u64 {
        self.len() as u64 * GROUP_BYTES + 2 * (self.keys.capacity() + 8 * self.numbers.capacity()) as u64
    }

    /// As of [`bytes`](Self::bytes), with so many groups that are numbered: what grows is there twice for a moment.
    pub(super) fn bytes_of(&self, groups: usize) -> u64 {
        let numbers = Totals::numbers_of(self.terms) * groups;
        let grown =
            if numbers > self.numbers.capacity() { 8 * 2 * numbers.max(2 * self.numbers.capacity()) } else { 0 };
        self.bytes() + grown as u64
    }

    /// Has so many groups, of which new ones are in no block so far. They have no keys before they are [named](Self::named).
    pub(super) fn number(&mut self, groups: usize) {
        self.numbers.resize(Totals::numbers_of(self.terms) * groups, 0.0);
    }

    /// Numbered groups with their keys, in their order, without those that no block has.
    pub(super) fn named<'a>(mut self, keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let many = Totals::numbers_of(self.terms);
        let mut met = 0;
        for (group, key) in keys.take(self.numbers.len() / many).enumerate() {
            if self.numbers[many * group] > 0.0 {
                self.keys.extend_from_slice(key);
                self.ends.push(self.keys.len());
                self.numbers.copy_within(many * group..many * (group + 1), many * met);
                met += 1;
            }
        }
        self.numbers.truncate(many * met);
        self
    }

    /// Adds a group that no block has so far.
    pub(super) fn push(&mut self, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.numbers.resize(self.numbers.len() + Totals::numbers_of(self.terms), 0.0);
    }

    pub(super) fn key(&self, group: usize) -> &[u8] {
        key_of(&self.keys, &self.ends, group)
    }

    /// The numbers of a group.
    pub(super) fn numbers_of(&mut self, group: usize) -> &mut [f64] {
        let many = Totals::numbers_of(self.terms);
        &mut self.numbers[many * group..][..many]
    }

    /// Forgets all but so many groups, those of the most rows, which are their first term; whether some were forgotten.
    pub(super) fn keep_largest(&mut self, most: usize) -> bool {
        self.keep_first(most, |_| false)
    }

    /// The same; groups that are first are kept before others.
    pub(super) fn keep_first(&mut self, most: usize, is_first: impl Fn(usize) -> bool) -> bool {
        if self.len() <= most {
            return false;
        }
        let many = Totals::numbers_of(self.terms);
        // Of those that have as many rows, the ones whose keys are less.
        let rank = |group: usize| (!is_first(group), -self.numbers[many * group + 1], group);
        let mut groups: Vec<(bool, f64, usize)> = (0..self.len()).map(rank).collect();
        if most > 0 {
            groups.select_nth_unstable_by(most - 1, |one, other| {
                let order = one.0.cmp(&other.0).then(one.1.total_cmp(&other.1));
                order.then_with(|| self.key(one.2).cmp(self.key(other.2)))
            });
        }
        groups.truncate(most);
        let mut groups: Vec<usize> = groups.into_iter().map(|(_, _, group)| group).collect();
        groups.sort_unstable();
        *self = self.of(&groups);
        true
    }

    /// Numbers groups in the order of their keys.
    pub(super) fn sort(&mut self) {
        let mut groups: Vec<usize> = (0..self.len()).collect();
        groups.sort_unstable_by_key(|group| self.key(*group));
        *self = self.of(&groups);
    }

    /// These groups, in this order.
    fn of(&self, groups: &[usize]) -> Self {
        let many = Totals::numbers_of(self.terms);
        let bytes = groups.iter().map(|group| self.key(*group).len()).sum();
        let mut of = Self {
            terms: self.terms,
            keys: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(groups.len()),
            numbers: Vec::with_capacity(many * groups.len()),
        };
        for group in groups {
            of.keys.extend_from_slice(self.key(*group));
            of.ends.push(of.keys.len());
            of.numbers.extend_from_slice(&self.numbers[many * group..][..many]);
        }
        of
    }

    /// The keys of all groups.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        (0..self.len()).map(|group| self.key(group)).collect()
    }

    /// What is known of each group.
    pub(super) fn totals(&self) -> Vec<Totals> {
        let of_groups = self.numbers.chunks_exact(Totals::numbers_of(self.terms));
        of_groups.map(|numbers| Totals::of_numbers(self.terms, numbers.to_vec())).collect()
    }

    pub(super) fn encode(&self) -> EncodedMoments {
        let mut numbers = Vec::with_capacity(8 * self.numbers.len());
        self.numbers.iter().for_each(|number| numbers.extend_from_slice(&number.to_le_bytes()));
        EncodedMoments {
            terms: self.terms as u32,
            keys: ByteBuf::from(self.keys.clone()),
            lengths: (0..self.len()).map(|group| self.key(group).len() as u32).collect(),
            numbers: ByteBuf::from(numbers),
        }
    }
}

impl MomentsByKey {
    pub(super) fn new(terms: usize) -> Self {
        Self { moments: Moments::new(terms), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.moments.len()
    }

    /// As of [`Moments::bytes`].
    pub(super) fn bytes(&self) -> u64 {
        self.moments.bytes()
    }

    /// Adds what others know of groups; `are_all`: of those that are here.
    pub(super) fn merge(&mut self, other: &EncodedMoments, are_all: bool) {
        let many = Totals::numbers_of(self.moments.terms);
        if !are_all {
            self.reserve(other);
        }
        for (key, of_group) in other.keys().zip(other.numbers.chunks_exact(8 * many)) {
            let group = if are_all { self.find(key) } else { Some(self.find_or_add(key)) };
            let here = group.map(|group| self.moments.numbers_of(group));
            for (here, bytes) in here.into_iter().flatten().zip(of_group.as_chunks().0) {
                *here += f64::from_le_bytes(*bytes);
            }
        }
    }

    /// Adds what is known of these.
    pub(super) fn add(&mut self, other: &Moments) {
        for (group, of_group) in other.numbers.chunks_exact(Totals::numbers_of(other.terms)).enumerate() {
            let here = self.find_or_add(other.key(group));
            self.moments.numbers_of(here).iter_mut().zip(of_group).for_each(|(here, more)| *here += more);
        }
    }

    /// As of [`Moments::keep_largest`].
    pub(super) fn keep_largest(&mut self, most: usize) -> bool {
        let is_less = self.moments.keep_largest(most);
        if is_less {
            let Self { moments: Moments { keys, ends, .. }, table, hasher } = self;
            let hash = |group: &u32| hasher.hash_one(key_of(keys, ends, *group as usize));
            table.clear();
            for group in 0..ends.len() as u32 {
                table.insert_unique(hash(&group), group, hash);
            }
        }
        is_less
    }

    /// The groups, in the order of their keys.
    pub(super) fn sorted(self) -> Moments {
        let mut moments = self.moments;
        moments.sort();
        moments
    }

    /// Makes room for those of others, as if none was here. What turns out to be too much is never touched.
    fn reserve(&mut self, other: &EncodedMoments) {
        let Self { moments: Moments { keys, ends, numbers, .. }, table, hasher } = self;
        table.reserve(other.lengths.len(), |group| hasher.hash_one(key_of(keys, ends, *group as usize)));
        keys.reserve(other.keys.len());
        ends.reserve(other.lengths.len());
        numbers.reserve(other.numbers.len() / 8);
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        let Self { moments, table, hasher } = self;
        let is_key = |group: &u32| moments.key(*group as usize) == key;
        table.find(hasher.hash_one(key), is_key).map(|group| *group as usize)
    }

    fn find_or_add(&mut self, key: &[u8]) -> usize {
        let Self { moments, table, hasher } = self;
        let is_key = |group: &u32| moments.key(*group as usize) == key;
        let rehash = |group: &u32| hasher.hash_one(moments.key(*group as usize));
        match table.entry(hasher.hash_one(key), is_key, rehash) {
            Entry::Occupied(group) => *group.get() as usize,
            Entry::Vacant(vacant) => {
                let group = moments.len();
                vacant.insert(group as u32);
                moments.push(key);
                group
            }
        }
    }
}

fn key_of<'a>(keys: &'a [u8], ends: &[usize], group: usize) -> &'a [u8] {
    let begin = group.checked_sub(1).map_or(0, |before| ends[before]);
    &keys[begin..ends[group]]
}

impl EncodedMoments {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.keys.as_slice();
        self.lengths.iter().map(move |length| {
            let (key, behind) = rest.split_at(*length as usize);
            rest = behind;
            key
        })
    }

    /// Whether it can be read: of so many terms, with as many numbers as keys need.
    pub(super) fn is_whole(&self, terms: usize) -> bool {
        let bytes: u64 = self.lengths.iter().map(|length| u64::from(*length)).sum();
        let numbers = 8 * Totals::numbers_of(terms) * self.lengths.len();
        bytes == self.keys.len() as u64 && self.terms as usize == terms && self.numbers.len() == numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each a block's; groups may be there several times.
    fn moments(blocks: &[(&str, f64)]) -> MomentsByKey {
        let mut moments = MomentsByKey::new(2);
        for (key, rows) in blocks {
            let group = moments.find_or_add(key.as_bytes());
            Totals::add_to(moments.moments.numbers_of(group), 10.0, &[*rows, 2.0 * rows]);
        }
        moments
    }

    fn keys(moments: &Moments) -> Vec<&str> {
        moments.keys().into_iter().map(|key| std::str::from_utf8(key).unwrap()).collect()
    }

    #[test]
    fn what_several_know_is_what_one_knows_who_has_read_all_of_it() {
        let (one, other) = (moments(&[("a", 1.0), ("b", 2.0), ("a", 3.0)]), moments(&[("c", 5.0), ("a", 7.0)]));
        let all = moments(&[("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 5.0), ("a", 7.0)]);
        let mut merged = MomentsByKey::new(2);
        for part in [&one, &other] {
            let encoded = part.moments.encode();
            assert!(encoded.is_whole(2) && !encoded.is_whole(3));
            merged.merge(&encoded, false);
        }
        assert_eq!(merged.moments.encode(), all.moments.encode());
        let sorted = merged.sorted();
        assert_eq!(keys(&sorted), ["a", "b", "c"]);
        let totals = sorted.totals();
        assert_eq!((totals[0].blocks(), totals[0].sum(0), totals[0].sum(1)), (3, 11.0, 22.0));
        assert_eq!((totals[2].blocks(), totals[2].sum(0)), (1, 5.0));
    }

    #[test]
    fn those_that_have_the_most_rows_are_kept() {
        let mut some = moments(&[("a", 1.0), ("d", 9.0), ("c", 2.0), ("b", 2.0)]);
        assert!(!some.keep_largest(4) && some.keep_largest(2) && some.len() == 2);
        some.merge(&moments(&[("x", 1.0), ("d", 1.0), ("c", 1.0)]).moments.encode(), true);
        let sorted = some.sorted();
        assert_eq!(keys(&sorted), ["b", "d"], "of those that have as many, the first");
        let totals = sorted.totals();
        assert_eq!((totals[0].sum(0), totals[1].sum(0)), (2.0, 10.0));
        let mut first = moments(&[("a", 1.0), ("b", 2.0), ("c", 2.0), ("d", 9.0)]).sorted();
        assert!(first.keep_first(3, |group| group == 0 || group == 2));
        assert_eq!(keys(&first), ["a", "c", "d"], "however few rows they have");
        let mut none = moments(&[("a", 1.0)]);
        assert!(none.keep_largest(0) && none.len() == 0);
    }

    #[test]
    fn numbered_groups_have_their_keys_in_the_end_unless_no_block_has_them() {
        let mut some = Moments::new(2);
        some.number(2);
        Totals::add_to(some.numbers_of(1), 10.0, &[3.0, 6.0]);
        some.number(4);
        Totals::add_to(some.numbers_of(3), 10.0, &[5.0, 9.0]);
        let some = some.named(["a", "b", "c", "d"].map(str::as_bytes).into_iter());
        let totals = some.totals();
        assert_eq!((keys(&some), totals[0].sum(0), totals[1].sum(1)), (vec!["b", "d"], 3.0, 9.0));
    }
}
