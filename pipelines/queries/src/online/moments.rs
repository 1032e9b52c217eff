//! What is known of the groups of a table by blocks that were read: of each the numbers of its [`Totals`].

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::estimators::Totals;

/// What a group takes beside its key and its numbers, about: its places in a table, and two pieces of memory.
const GROUP_BYTES: u64 = 96;
/// Bytes of a key, where nobody knows them.
const KEY_BYTES: u64 = 64;

/// Of groups, by the bytes of their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    terms: usize,
    key_bytes: u64,
    groups: HashMap<Vec<u8>, Box<[f64]>>,
}

/// The same as bytes: groups in the order of their keys, so that what is the same has the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EncodedMoments {
    terms: u32,
    /// Keys one behind the other, and where each of them ends.
    keys: ByteBuf,
    ends: Vec<u32>,
    /// Numbers of all groups, little-endian.
    numbers: ByteBuf,
}

/// Memory that so many groups of so many terms take, about, with what encodes them.
pub(super) fn memory_bytes(groups: u64, terms: usize) -> u64 {
    let numbers = 8 * Totals::numbers_of(terms) as u64;
    groups * (GROUP_BYTES + 2 * (KEY_BYTES + numbers))
}

impl Moments {
    pub(super) fn new(terms: usize) -> Self {
        Self { terms, key_bytes: 0, groups: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Memory that they take, about, with what encodes them.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = 8 * Totals::numbers_of(self.terms) as u64;
        self.groups.len() as u64 * (GROUP_BYTES + 2 * numbers) + 2 * self.key_bytes
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.groups.contains_key(key)
    }

    /// The group is followed, whether or not a block has it.
    pub(super) fn follow(&mut self, key: &[u8]) {
        self.numbers(key);
    }

    /// A block of this size has the group, and these totals of it.
    pub(super) fn add(&mut self, key: &[u8], size: f64, totals: &[f64]) {
        Totals::add_to(self.numbers(key), size, totals);
    }

    /// These are the numbers of a group; one that no block has is left out.
    pub(super) fn insert(&mut self, key: &[u8], numbers: &[f64]) {
        if numbers[0] > 0.0 {
            self.numbers(key).copy_from_slice(numbers);
        }
    }

    fn numbers(&mut self, key: &[u8]) -> &mut [f64] {
        let none = || vec![0.0; Totals::numbers_of(self.terms)].into_boxed_slice();
        match self.groups.entry_ref(key) {
            EntryRef::Occupied(numbers) => numbers.into_mut(),
            EntryRef::Vacant(vacant) => {
                self.key_bytes += key.len() as u64;
                vacant.insert(none())
            }
        }
    }

    /// Adds what others know of groups of which this is true.
    pub(super) fn merge(&mut self, other: &EncodedMoments, mut counts: impl FnMut(&Self, &[u8]) -> bool) {
        let many = Totals::numbers_of(self.terms);
        for (number, key) in other.keys().enumerate() {
            if counts(self, key) {
                let of_group = &other.numbers[8 * many * number..8 * many * (number + 1)];
                let here = self.numbers(key);
                for (here, bytes) in here.iter_mut().zip(of_group.as_chunks().0) {
                    *here += f64::from_le_bytes(*bytes);
                }
            }
        }
    }

    /// Forgets all but so many groups, those of the most rows, which are their first term; whether some were forgotten.
    pub(super) fn keep_largest(&mut self, most: usize) -> bool {
        if self.groups.len() <= most {
            return false;
        }
        let mut ranked: Vec<(f64, Vec<u8>)> =
            self.groups.iter().map(|(key, numbers)| (numbers[1], key.clone())).collect();
        // Of those that have as many, the ones whose keys are first.
        ranked.sort_unstable_by(|(rows, key), (other_rows, other)| other_rows.total_cmp(rows).then(key.cmp(other)));
        for (_, key) in &ranked[most..] {
            self.groups.remove(key.as_slice());
            self.key_bytes -= key.len() as u64;
        }
        self.groups.shrink_to_fit();
        true
    }

    /// Each group, in the order of keys.
    pub(super) fn into_totals(self) -> (Vec<Vec<u8>>, Vec<Totals>) {
        let terms = self.terms;
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_unstable_by(|(key, _), (other, _)| key.cmp(other));
        groups.into_iter().map(|(key, numbers)| (key, Totals::of_numbers(terms, numbers.into_vec()))).unzip()
    }

    pub(super) fn encode(&self) -> EncodedMoments {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_unstable_by_key(|(key, _)| *key);
        let mut encoded = EncodedMoments { terms: self.terms as u32, ..EncodedMoments::default() };
        for (key, numbers) in groups {
            encoded.keys.extend_from_slice(key);
            encoded.ends.push(encoded.keys.len() as u32);
            numbers.iter().for_each(|number| encoded.numbers.extend_from_slice(&number.to_le_bytes()));
        }
        encoded
    }
}

impl EncodedMoments {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.keys[begin as usize..*end as usize])
    }

    /// Whether it can be read: of so many terms, with as many numbers as keys need.
    pub(super) fn is_whole(&self, terms: usize) -> bool {
        let rises = self.ends.is_sorted() && self.ends.last().map_or(0, |end| *end as usize) == self.keys.len();
        let numbers = 8 * Totals::numbers_of(terms) * self.ends.len();
        rises && self.terms as usize == terms && self.numbers.len() == numbers
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
            merged.merge(&encoded, |_, _| true);
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
        assert!(some.has(b"d") && some.has(b"b"), "of those that have as many, the first");
        let mut merged = Moments::new(2);
        merged.merge(&moments(&[("x", 1.0), ("d", 1.0)]).encode(), |_, key| some.has(key));
        assert_eq!((merged.len(), merged.has(b"d")), (1, true));
    }
}
