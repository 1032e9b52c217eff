//! Cuts: the keys at which the key space is divided into partitions.
//!
//! A cut is a byte string of any length, compared byte by byte, a shorter string before every longer one that it
//! begins. `R - 1` cuts in ascending order make `R` partitions; partition `r` holds the keys from cut `r - 1`
//! (included) to cut `r` (excluded). Equal cuts are allowed and leave the partition between them empty, so that the
//! number of partitions is what the user asked for however few distinct keys a sample shows.

use serde::{Deserialize, Serialize};

/// The borders between the partitions of a key space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Vec<u8>>", into = "Vec<Vec<u8>>")]
pub struct Cuts {
    keys: Vec<Vec<u8>>,
}

/// Why some keys are no cuts. The fault is the caller's and a retry is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutsError {
    /// A cut is below the one before it.
    #[error("cut {index} is below the cut before it: cuts must be in ascending order")]
    OutOfOrder {
        /// Index of the cut that is too low.
        index: usize,
    },
    /// No partition was asked for.
    #[error("at least one partition is needed")]
    NoPartitions,
}

impl Cuts {
    /// The cuts `keys`: one partition more than there are keys.
    ///
    /// # Errors
    /// [`CutsError::OutOfOrder`] names the first key that is below its predecessor.
    pub fn new(keys: Vec<Vec<u8>>) -> Result<Cuts, CutsError> {
        match keys.windows(2).position(|pair| pair[1] < pair[0]) {
            Some(index) => Err(CutsError::OutOfOrder { index: index + 1 }),
            None => Ok(Cuts { keys }),
        }
    }

    /// Cuts that divide the space of uniform keys into `partitions` of equal width; each cut has 8 bytes.
    ///
    /// # Errors
    /// [`CutsError::NoPartitions`].
    pub fn even(partitions: usize) -> Result<Cuts, CutsError> {
        if partitions == 0 {
            return Err(CutsError::NoPartitions);
        }
        let cut = |index: usize| (((index as u128) << 64) / partitions as u128) as u64;
        Ok(Cuts { keys: (1..partitions).map(|index| cut(index).to_be_bytes().to_vec()).collect() })
    }

    /// Cuts that divide a sample of keys, and so what it stands for, into `partitions` of equally many keys. The
    /// sample may be in any order and may be empty: then the cuts are even.
    ///
    /// # Errors
    /// [`CutsError::NoPartitions`].
    pub fn from_sample(mut sample: Vec<Vec<u8>>, partitions: usize) -> Result<Cuts, CutsError> {
        if partitions == 0 {
            return Err(CutsError::NoPartitions);
        }
        if sample.is_empty() {
            return Cuts::even(partitions);
        }
        sample.sort_unstable();
        let at = |index: usize| (index as u128 * sample.len() as u128 / partitions as u128) as usize;
        Ok(Cuts { keys: (1..partitions).map(|index| sample[at(index)].clone()).collect() })
    }

    /// Cuts that divide the range of keys that a sample was drawn from into about `ranges` of equally many keys. A key
    /// that fills a range, or more, gets one for itself: nothing else will make the ranges beside it smaller.
    /// The sample may be in any order; one without two different keys divides nothing.
    pub fn dividing(mut sample: Vec<Vec<u8>>, ranges: usize) -> Cuts {
        sample.sort_unstable();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut push = |key: Vec<u8>| {
            if keys.last().is_none_or(|last| *last < key) {
                keys.push(key);
            }
        };
        let ranges = if sample.first() == sample.last() { 1 } else { ranges };
        for index in 1..ranges {
            let key = &sample[(index as u128 * sample.len() as u128 / ranges as u128) as usize];
            let below = sample.partition_point(|other| other < key);
            let same = sample[below..].partition_point(|other| other == key);
            push(key.clone());
            if same > 1 && same * ranges >= sample.len() {
                push(next_key(key));
            }
        }
        Cuts { keys }
    }

    /// Whether partition `index` holds one key at most.
    pub fn is_one_key(&self, index: usize) -> bool {
        let (lowest, end) = (index.checked_sub(1).and_then(|below| self.keys.get(below)), self.keys.get(index));
        lowest.zip(end).is_some_and(|(lowest, end)| *end <= next_key(lowest))
    }

    /// How many partitions there are; at least 1.
    pub fn partitions(&self) -> usize {
        self.keys.len() + 1
    }

    /// The cuts in ascending order, one fewer than partitions.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// The partition that `key` belongs to.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|cut| cut.as_slice() <= key)
    }

    /// What finds partitions of very many keys.
    pub fn finder(&self) -> Finder<'_> {
        Finder::new(&self.keys)
    }

    /// The cuts as [`crate::records::key_number`] counts: a record is at or above the cut when its key number is.
    /// The last value, for a cut above every 10-byte key, is 2^80.
    pub(crate) fn key_numbers(&self) -> impl Iterator<Item = u128> + '_ {
        self.keys.iter().map(|cut| {
            let mut padded = [0u8; 16];
            let kept = cut.len().min(crate::records::KEY_BYTES);
            padded[6..6 + kept].copy_from_slice(&cut[..kept]);
            // A key equal to the first ten bytes of a longer cut is a prefix of it, so it stays below.
            u128::from_be_bytes(padded) + u128::from(cut.len() > crate::records::KEY_BYTES)
        })
    }
}

/// Finds the partitions of keys by numbers that compare as the first bytes of cuts do, behind those that all cuts begin with; where these are the same, by those behind them. Whole cuts are looked at in the end alone.
#[derive(Debug, Clone)]
pub struct Finder<'a> {
    cuts: &'a [Vec<u8>],
    /// How many bytes all cuts begin with alike.
    common: usize,
    /// Numbers of the bytes behind these, each once, and how many cuts there are before the first one that has it.
    prefixes: Vec<u64>,
    begins: Vec<usize>,
    /// What finds a key among cuts that have the same number; `None`: they are few, or do not differ behind it.
    alike: Vec<Option<Finder<'a>>>,
}

/// So many cuts are looked at one by one.
const CUTS_ALIKE: usize = 2;

impl<'a> Finder<'a> {
    fn new(cuts: &'a [Vec<u8>]) -> Self {
        // Cuts are in order, so what the first and the last have in common all have.
        let common = match cuts {
            [first, .., last] => first.iter().zip(last).take_while(|(one, other)| one == other).count(),
            [only] => only.len(),
            [] => 0,
        };
        let (mut prefixes, mut begins, mut alike) = (Vec::new(), Vec::new(), Vec::new());
        let mut begin = 0;
        for run in cuts.chunk_by(|one, other| key_prefix(&one[common..]) == key_prefix(&other[common..])) {
            prefixes.push(key_prefix(&run[0][common..]));
            begins.push(begin);
            begin += run.len();
            // Zeros at the end of a cut are no bytes that it lacks: such cuts may not differ any further on.
            let goes_on = run.len() > CUTS_ALIKE && run.iter().all(|cut| cut.len() >= common + size_of::<u64>());
            alike.push(goes_on.then(|| Self::new(run)));
        }
        Self { cuts, common, prefixes, begins, alike }
    }

    /// The partition that `key` belongs to, as [`Cuts::partition_of`] says.
    #[inline]
    pub fn partition_of(&self, key: &[u8]) -> usize {
        let Some(first) = self.cuts.first() else { return 0 };
        let begin = &key[..key.len().min(self.common)];
        match begin.cmp(&first[..self.common]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.cuts.len(),
            std::cmp::Ordering::Equal => (),
        }
        let of_key = key_prefix(&key[self.common..]);
        let number = self.prefixes.partition_point(|of_cut| *of_cut < of_key);
        let Some(begin) = self.begins.get(number) else { return self.cuts.len() };
        if self.prefixes[number] != of_key {
            return *begin;
        }
        let end = self.begins.get(number + 1).copied().unwrap_or(self.cuts.len());
        begin
            + match &self.alike[number] {
                Some(finder) => finder.partition_of(key),
                None => self.cuts[*begin..end].partition_point(|cut| cut.as_slice() <= key),
            }
    }
}

/// The first eight bytes of a key as a number that compares as they do; where there are fewer, zeros stand for what is not there. Keys whose numbers are the same are compared as wholes.
#[inline]
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

/// The first key above `key`.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl TryFrom<Vec<Vec<u8>>> for Cuts {
    type Error = CutsError;

    fn try_from(keys: Vec<Vec<u8>>) -> Result<Cuts, CutsError> {
        Cuts::new(keys)
    }
}

impl From<Cuts> for Vec<Vec<u8>> {
    fn from(cuts: Cuts) -> Vec<Vec<u8>> {
        cuts.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{RECORD_BYTES, key_number};
    use proptest::prelude::*;

    #[test]
    fn even_cuts_are_equally_wide() {
        assert_eq!(Cuts::even(0), Err(CutsError::NoPartitions));
        assert_eq!(Cuts::even(1).unwrap().keys().len(), 0);
        let cuts = Cuts::even(4).unwrap();
        let first_bytes: Vec<u8> = cuts.keys().iter().map(|cut| cut[0]).collect();
        assert_eq!(first_bytes, [0x40, 0x80, 0xC0]);
        for partitions in [3usize, 80, 4_000, 100_000] {
            let cuts = Cuts::even(partitions).unwrap();
            assert_eq!(cuts.partitions(), partitions);
            assert_eq!(cuts.partition_of(&[0; 10]), 0);
            assert_eq!(cuts.partition_of(&[0xFF; 10]), partitions - 1);
            assert!(cuts.keys().is_sorted());
        }
    }

    #[test]
    fn cuts_out_of_order_are_refused_by_index() {
        let keys = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(Cuts::new(keys(&["b", "c", "a"])), Err(CutsError::OutOfOrder { index: 2 }));
        assert_eq!(Cuts::new(keys(&["b", "b", "c"])).unwrap().partitions(), 4);
        assert_eq!(Cuts::new(Vec::new()).unwrap().partitions(), 1);
    }

    #[test]
    fn equal_cuts_leave_the_partition_between_them_empty() {
        let cuts = Cuts::new(vec![b"m".to_vec(), b"m".to_vec()]).unwrap();
        assert_eq!(cuts.partition_of(b"a"), 0);
        assert_eq!(cuts.partition_of(b"m"), 2);
        assert_eq!(cuts.partition_of(b"z"), 2);
    }

    #[test]
    fn a_sample_is_divided_into_equal_shares() {
        let sample: Vec<Vec<u8>> = (0..=255u8).rev().map(|byte| vec![byte]).collect();
        let cuts = Cuts::from_sample(sample, 4).unwrap();
        assert_eq!(cuts.keys(), [vec![64], vec![128], vec![192]]);
        assert_eq!(Cuts::from_sample(Vec::new(), 3), Cuts::even(3));
        assert_eq!(Cuts::from_sample(vec![vec![5]; 10], 3).unwrap().partitions(), 3);
        assert_eq!(Cuts::from_sample(vec![vec![5]], 0), Err(CutsError::NoPartitions));
    }

    #[test]
    fn a_key_that_fills_a_range_gets_one_for_itself() {
        let sample = |texts: &str| texts.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        let divided = |texts, ranges| {
            let cuts = Cuts::dividing(sample(texts), ranges);
            let single = (0..cuts.partitions()).filter(|index| cuts.is_one_key(*index)).collect::<Vec<_>>();
            (cuts.keys, single)
        };
        assert_eq!(divided("", 4), (vec![], vec![]));
        assert_eq!(divided("hgfedcba", 4), (sample("ceg"), vec![]));
        assert_eq!(divided("abhhhhyz", 4), (vec![b"h".to_vec(), b"h\0".to_vec(), b"y".to_vec()], vec![1]));
        assert_eq!(divided("hhhhhhhh", 4), (vec![], vec![]), "there is nothing to divide it from");
        assert_eq!(divided("aahhhz", 2), (vec![b"h".to_vec(), b"h\0".to_vec()], vec![1]));
        let cuts = Cuts::dividing(sample("hhhhz"), 4);
        assert_eq!([&b"g"[..], b"h", b"ha", b"i"].map(|key| cuts.partition_of(key)), [0, 1, 2, 2]);
    }

    #[test]
    fn cuts_that_come_over_the_wire_are_checked() {
        let wire = |keys: Vec<Vec<u8>>| serde_json::from_str::<Cuts>(&serde_json::to_string(&keys).unwrap());
        assert!(wire(vec![vec![1], vec![2]]).is_ok());
        assert!(wire(vec![vec![2], vec![1]]).unwrap_err().to_string().contains("cut 1"));
    }

    proptest! {
        /// The kernels compare numbers; the definition compares byte strings of any length.
        #[test]
        fn key_numbers_of_cuts_compare_as_the_bytes_do(
            cuts in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..13), 0..8),
            keys in proptest::collection::vec(proptest::collection::vec(0u8..3, 10), 1..20),
        ) {
            let mut cuts = cuts;
            cuts.sort();
            let cuts = Cuts::new(cuts).unwrap();
            for key in keys {
                let mut record = [0; RECORD_BYTES];
                record[..10].copy_from_slice(&key);
                let by_number = cuts.key_numbers().filter(|cut| *cut <= key_number(&record)).count();
                prop_assert_eq!(by_number, cuts.partition_of(&key));
            }
        }
    }

    #[test]
    fn a_cut_above_every_key_has_a_number_above_every_key() {
        let cuts = Cuts::new(vec![vec![0xFF; 11]]).unwrap();
        assert_eq!(cuts.key_numbers().collect::<Vec<_>>(), [1u128 << 80]);
    }

    #[test]
    fn a_finder_finds_what_a_look_at_all_cuts_finds() {
        let texts = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>();
        let sets = [
            texts(&[]),
            texts(&["k"]),
            texts(&["", "", "a"]),
            texts(&[
                "key",
                "key",
                "key\0",
                "key\0\0\0\0\0\0\0\0\0",
                "keys of a kind",
                "keys of a kind and more",
                "kez",
            ]),
            texts(&[
                "a long beginning 1",
                "a long beginning 12345678",
                "a long beginning 123456789",
                "a long beginning 2",
            ]),
            vec![vec![u8::MAX]; 3],
        ];
        for keys in sets {
            let cuts = Cuts::new(keys.clone()).unwrap();
            let finder = cuts.finder();
            let mut asked =
                texts(&["", "\0", "k", "ke", "key\0\0", "l", "a long", "a long beginning 1234567", "zzzzzzzzzzzz"]);
            for key in &keys {
                asked.push(key.clone());
                asked.push([key.as_slice(), &[0]].concat());
                asked.push([key.as_slice(), &[0xff; 9]].concat());
                asked.push(key[..key.len().saturating_sub(1)].to_vec());
            }
            asked.push(vec![u8::MAX; 12]);
            for key in asked {
                assert_eq!(finder.partition_of(&key), cuts.partition_of(&key), "{key:?} among {keys:?}");
            }
        }
    }
}
