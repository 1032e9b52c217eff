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

/// Of groups, by the bytes of their keys. They are numbered in the order in which they are met; what each has lies one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    terms: usize,
    keys: Vec<u8>,
    /// Where the key of each group ends.
    ends: Vec<usize>,
    /// Of each group so many as [`Totals::numbers_of`] says.
    numbers: Vec<f64>,
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

    /// The group is followed, whether or not a block has it.
    pub(super) fn follow(&mut self, key: &[u8]) {
        self.numbers_of(key);
    }

    /// A block of this size has the group, and these totals of it.
    pub(super) fn add(&mut self, key: &[u8], size: f64, totals: &[f64]) {
        Totals::add_to(self.numbers_of(key), size, totals);
    }

    /// These are the numbers of a group; one that no block has is left out.
    pub(super) fn insert(&mut self, key: &[u8], numbers: &[f64]) {
        if numbers[0] > 0.0 {
            self.numbers_of(key).copy_from_slice(numbers);
        }
    }

    fn key(&self, group: usize) -> &[u8] {
        key_of(&self.keys, &self.ends, group)
    }

    /// The numbers of a group, which is there from here on.
    fn numbers_of(&mut self, key: &[u8]) -> &mut [f64] {
        let Self { keys, ends, numbers, table, hasher, .. } = self;
        let many = Totals::numbers_of(self.terms);
        let is_key = |group: &u32| key_of(keys, ends, *group as usize) == key;
        let rehash = |group: &u32| hasher.hash_one(key_of(keys, ends, *group as usize));
        let group = match table.entry(hasher.hash_one(key), is_key, rehash) {
            Entry::Occupied(group) => *group.get() as usize,
            Entry::Vacant(vacant) => {
                let group = ends.len();
                vacant.insert(group as u32);
                keys.extend_from_slice(key);
                ends.push(keys.len());
                numbers.resize(numbers.len() + many, 0.0);
                group
            }
        };
        &mut numbers[many * group..][..many]
    }

    /// The numbers of a group, if it is there.
    fn known(&mut self, key: &[u8]) -> Option<&mut [f64]> {
        let Self { keys, ends, numbers, table, hasher, .. } = self;
        let many = Totals::numbers_of(self.terms);
        let is_key = |group: &u32| key_of(keys, ends, *group as usize) == key;
        let group = *table.find(hasher.hash_one(key), is_key)? as usize;
        Some(&mut numbers[many * group..][..many])
    }

    /// Adds what others know of groups; `are_all`: of those that are here.
    pub(super) fn merge(&mut self, other: &EncodedMoments, are_all: bool) {
        let many = Totals::numbers_of(self.terms);
        for (key, of_group) in other.keys().zip(other.numbers.chunks_exact(8 * many)) {
            let here = if are_all { self.known(key) } else { Some(self.numbers_of(key)) };
            for (here, bytes) in here.into_iter().flatten().zip(of_group.as_chunks().0) {
                *here += f64::from_le_bytes(*bytes);
            }
        }
    }

    /// Forgets all but so many groups, those of the most rows, which are their first term; whether some were forgotten.
    pub(super) fn keep_largest(&mut self, most: usize) -> bool {
        self.keep_first(most, |_| false)
    }

    /// The same; groups whose keys are first are kept before others.
    pub(super) fn keep_first(&mut self, most: usize, is_first: impl Fn(&[u8]) -> bool) -> bool {
        if self.len() <= most {
            return false;
        }
        let many = Totals::numbers_of(self.terms);
        let mut groups: Vec<usize> = (0..self.len()).collect();
        if most > 0 {
            let rows = |group: &usize| self.numbers[many * group + 1];
            let are_first: Vec<bool> = groups.iter().map(|group| is_first(self.key(*group))).collect();
            // Of those that have as many, the ones whose keys are less.
            groups.select_nth_unstable_by(most - 1, |one, other| {
                let first = are_first[*other].cmp(&are_first[*one]);
                let more = || rows(other).total_cmp(&rows(one));
                first.then_with(more).then_with(|| self.key(*one).cmp(self.key(*other)))
            });
        }
        groups.truncate(most);
        groups.sort_unstable();
        let mut kept = Self::new(self.terms);
        for group in groups {
            kept.numbers_of(self.key(group)).copy_from_slice(&self.numbers[many * group..][..many]);
        }
        *self = kept;
        true
    }

    /// Each group, in the order of keys.
    pub(super) fn into_totals(self) -> (Vec<Vec<u8>>, Vec<Totals>) {
        let many = Totals::numbers_of(self.terms);
        let mut groups: Vec<usize> = (0..self.len()).collect();
        groups.sort_unstable_by_key(|group| self.key(*group));
        let totals = |group: &usize| Totals::of_numbers(self.terms, self.numbers[many * group..][..many].to_vec());
        let keys = groups.iter().map(|group| self.key(*group).to_vec()).collect();
        (keys, groups.iter().map(totals).collect())
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

    fn moments(groups: &[(&str, f64)]) -> Moments {
        let mut moments = Moments::new(2);
        for (key, rows) in groups {
            moments.add(key.as_bytes(), 10.0, &[*rows, 2.0 * rows]);
        }
        moments
    }

    #[test]
    fn what_several_know_is_what_one_knows_who_has_read_all_of_it() {
        let (one, other) = (moments(&[("a", 1.0), ("b", 2.0), ("a", 3.0)]), moments(&[("c", 5.0), ("a", 7.0)]));
        let all = moments(&[("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 5.0), ("a", 7.0)]);
        let mut merged = Moments::new(2);
        for part in [&one, &other] {
            let encoded = part.encode();
            assert!(encoded.is_whole(2) && !encoded.is_whole(3));
            merged.merge(&encoded, false);
        }
        assert_eq!(merged.encode(), all.encode());
        let (keys, totals) = merged.into_totals();
        assert_eq!(keys, [b"a", b"b", b"c"]);
        assert_eq!((totals[0].blocks(), totals[0].sum(0), totals[0].sum(1)), (3, 11.0, 22.0));
        assert_eq!((totals[2].blocks(), totals[2].sum(0)), (1, 5.0));
    }

    #[test]
    fn those_that_have_the_most_rows_are_kept() {
        let mut some = moments(&[("a", 1.0), ("b", 2.0), ("c", 2.0), ("d", 9.0)]);
        assert!(!some.keep_largest(4) && some.keep_largest(2) && some.len() == 2);
        some.merge(&moments(&[("x", 1.0), ("d", 1.0), ("c", 1.0)]).encode(), true);
        let (keys, totals) = some.into_totals();
        assert_eq!(keys, [b"b", b"d"], "of those that have as many, the first");
        assert_eq!((totals[0].sum(0), totals[1].sum(0)), (2.0, 10.0));
        let mut first = moments(&[("a", 1.0), ("b", 2.0), ("c", 2.0), ("d", 9.0)]);
        assert!(first.keep_first(3, |key| key == b"a" || key == b"c"));
        assert_eq!(first.into_totals().0, [b"a", b"c", b"d"], "however few rows they have");
        let mut none = moments(&[("a", 1.0)]);
        assert!(none.keep_largest(0) && none.len() == 0);
    }
}
