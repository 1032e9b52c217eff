//! Where one file ends and the next begins: one row of cuts for both tables, which follows from them alone.
//!
//! A key with more rows of the left table than a file has is divided by their places. One with very many rows of the right table stays in its files, and is divided there: each *piece* of these rows
//! goes to a partition of its own, with all rows of the left table that the file has of the key.

use std::collections::BTreeMap;
use std::ops::Range;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::JobError;
use exobus_shuffle::cuts::Cuts;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::FrequentKey;
use super::exchange::Arranged;
use super::query::Side;
use crate::jobs::described::Described;
use crate::jobs::rewrite::{LookedAt, sampled};

/// Bytes of a place behind a key.
const PLACE_BYTES: usize = size_of::<u64>();
/// Rows of the right table with one key that take no more than so many bytes fit each node, so they are not divided, however small files are.
const HEAVY_BYTES_MIN: u64 = 8 << 20;

/// Cuts of a join.
#[derive(Debug)]
pub(super) struct JoinCuts {
    pub(super) borders: Borders,
    /// Of each file, keys of which rows of the left table are in other files, too.
    pub(super) divided: Vec<Vec<ByteBuf>>,
}

/// Which rows go to which partition of the exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Borders {
    /// Between files.
    pub(super) cuts: Cuts,
    /// Of each file that has some its heavy keys, in their order.
    heavy: BTreeMap<u32, Vec<HeavyKey>>,
}

/// A key with more rows of the right table than one task is to have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HeavyKey {
    pub(super) key: ByteBuf,
    /// Places of the right table with which a piece of these rows ends and the next one begins, rising.
    pub(super) places: Vec<u64>,
}

/// What of a file goes to a partition of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// Rows of keys before, between or behind its heavy ones.
    Stretch,
    /// Of a heavy key the rows of the left table, and a piece of those of the right one. It is of so many pieces.
    Cell(usize),
}

/// Rows of one table that stand for all of it, as cuts, and for how many bytes each of them does.
struct Sample {
    cuts: Vec<Vec<u8>>,
    weight: u64,
}

/// The cuts between so many files.
pub(super) async fn join_cuts(
    futures: &Futures,
    tables: (&[Described; 2], &[ObjectRef; 2]),
    arranged: &Arranged,
    files: u32,
) -> Result<JoinCuts, JobError> {
    let none = || Sample { cuts: Vec::new(), weight: 1 };
    let [left, right] = if files > 1 { samples(futures, tables, arranged, files).await? } else { [none(), none()] };
    // Where rows of the right table are not written, maps pass on one of each key.
    JoinCuts::of(left, (right, arranged.query.kind.has_pairs()), files as usize)
}

/// The most frequent key of each table, by rows that stand for all of it, and where its rows would go with so many files.
pub(super) async fn frequent_keys(
    futures: &Futures,
    tables: (&[Described; 2], &[ObjectRef; 2]),
    arranged: &Arranged,
    files: u32,
) -> Result<[Option<FrequentKey>; 2], JobError> {
    let [mut left, right] = samples(futures, tables, arranged, files).await?;
    let mut right = (right, arranged.query.kind.has_pairs());
    let found = [most_frequent(&mut left, true), most_frequent(&mut right.0, right.1)];
    let sampled = [left.cuts.len() as u64, right.0.cuts.len() as u64];
    let borders = JoinCuts::of(left, right, files as usize)?.borders;
    let frequent = |side: Side| {
        let (key, rows) = found[side as usize].as_ref()?;
        let of_files = borders.files_of(key);
        let heavy = borders.heavy(of_files.start as u32).iter().find(|heavy| heavy.key[..] == key[..]);
        let pieces = heavy.map_or(1, |heavy| heavy.places.len() as u64 + 1);
        Some(FrequentKey { rows: *rows, sampled: sampled[side as usize], files: of_files.len() as u64, pieces })
    };
    Ok(Side::BOTH.map(frequent))
}

/// The key that most rows of a sample have, and how many. Cuts may have places.
fn most_frequent(sample: &mut Sample, has_places: bool) -> Option<(Vec<u8>, u64)> {
    sample.cuts.sort_unstable();
    let key = |cut: &Vec<u8>| if has_places { key_and_place(cut).0.to_vec() } else { cut.clone() };
    let of_key = sample.cuts.chunk_by(|one, other| key(one) == key(other));
    of_key.max_by_key(|rows| rows.len()).map(|rows| (key(&rows[0]), rows.len() as u64))
}

/// Rows of both tables, enough for so many files. Those that maps leave out, since their key has a null, are none of them.
async fn samples(
    futures: &Futures,
    (described, layouts): (&[Described; 2], &[ObjectRef; 2]),
    arranged: &Arranged,
    files: u32,
) -> Result<[Sample; 2], JobError> {
    let kind = arranged.query.kind;
    let sample = async |side: Side| {
        let (table, layout) = (&described[side as usize], &layouts[side as usize]);
        let (cuts, rows) = match table.splits().next() {
            Some(_) => {
                sampled(futures, table, (arranged.of(side), !kind.keeps(side)), layout, (files, LookedAt::FOR_FILES))
                    .await?
            }
            None => (Vec::new(), 0),
        };
        Ok::<_, JobError>(Sample { cuts, weight: table.value_bytes() / rows.max(1) as u64 + 1 })
    };
    Ok([sample(Side::Left).await?, sample(Side::Right).await?])
}

impl JoinCuts {
    /// Cuts between so many files of as many bytes of both tables each, about. Cuts of the right table may have places.
    fn of(left: Sample, (mut right, has_places): (Sample, bool), files: usize) -> Result<Self, JobError> {
        right.cuts.sort_unstable();
        // Rows of the right table go where those of the left one with their key are: places of theirs divide no file.
        let of_right = right.cuts.iter().map(|cut| if has_places { key_and_place(cut).0 } else { cut });
        let mut all: Vec<(&[u8], Side, u64)> = of_right.map(|key| (key, Side::Right, right.weight)).collect();
        all.extend(left.cuts.iter().map(|cut| (&cut[..], Side::Left, left.weight)));
        all.sort_unstable();
        let total: u128 = all.iter().map(|(.., weight)| u128::from(*weight)).sum();
        let (mut cuts, mut divided) = (Vec::new(), vec![Vec::new(); files]);
        let mut before = 0_u128;
        for (cut, side, weight) in &all {
            // A row is where the file of this number begins that is as far from the beginning as that is.
            while cuts.len() + 1 < files && before >= total * (cuts.len() as u128 + 1) / files as u128 {
                if *side == Side::Left {
                    let number = cuts.len();
                    let key = key_and_place(cut).0;
                    [number, number + 1].into_iter().for_each(|file| divided[file].push(ByteBuf::from(key)));
                }
                cuts.push(cut.to_vec());
            }
            before += u128::from(*weight);
        }
        // Nobody knows a key that would begin a file: there are fewer rows than files.
        cuts.resize(files - 1, vec![u8::MAX]);
        let heavy_bytes = HEAVY_BYTES_MIN.max((total / files as u128) as u64);
        let heavy = if has_places { heavy_keys(&right, heavy_bytes) } else { Vec::new() };
        Ok(Self { borders: Borders::new(Cuts::new(cuts).map_err(JobError::program)?, heavy), divided })
    }
}

/// Keys whose rows of the right table, by this sample in order, take more than so many bytes: they are divided into pieces of half as many.
fn heavy_keys(right: &Sample, heavy_bytes: u64) -> Vec<HeavyKey> {
    let of_key = right.cuts.chunk_by(|one, other| key_and_place(one).0 == key_and_place(other).0);
    let heavy = of_key.filter_map(|rows| {
        let bytes = rows.len() as u64 * right.weight;
        let pieces = bytes.div_ceil(heavy_bytes / 2).min(rows.len() as u64) as usize;
        let place = |piece: usize| key_and_place(&rows[piece * rows.len() / pieces]).1;
        let key = || ByteBuf::from(key_and_place(&rows[0]).0);
        (bytes > heavy_bytes).then(|| HeavyKey { key: key(), places: (1..pieces).map(place).collect() })
    });
    heavy.collect()
}

/// The key and the place of a row before which there is a cut. What is left of a key that was cut without a place is none: no key is the beginning of another one.
fn key_and_place(cut: &[u8]) -> (&[u8], u64) {
    let (key, place) = cut.split_last_chunk::<PLACE_BYTES>().unwrap_or((cut, &[0; PLACE_BYTES]));
    (key, u64::from_be_bytes(*place))
}

impl Borders {
    /// Of these cuts between files, and these heavy keys in their order.
    pub(super) fn new(cuts: Cuts, keys: Vec<HeavyKey>) -> Self {
        let mut heavy = BTreeMap::<u32, Vec<HeavyKey>>::new();
        for key in keys {
            for file in files_of(&cuts, &key.key) {
                heavy.entry(file as u32).or_default().push(key.clone());
            }
        }
        Self { cuts, heavy }
    }

    /// In which files rows of a key are.
    fn files_of(&self, key: &[u8]) -> Range<usize> {
        files_of(&self.cuts, key)
    }

    /// The heavy keys of a file, in their order.
    pub(super) fn heavy(&self, file: u32) -> &[HeavyKey] {
        self.heavy.get(&file).map_or(&[], |keys| keys)
    }

    /// What goes to each partition: of which file, and what of it. Partitions of a file follow each other, in the order of keys, and those of a heavy key in that of its pieces.
    pub(super) fn shares(&self) -> Vec<(u32, Share)> {
        let of_file = |file: u32| {
            let heavy = self.heavy(file);
            let first = if heavy.is_empty() { Share::Whole } else { Share::Stretch };
            let of_key = |key: &HeavyKey| {
                let pieces = key.places.len() + 1;
                std::iter::repeat_n(Share::Cell(pieces), pieces).chain([Share::Stretch])
            };
            let shares = std::iter::once(first).chain(heavy.iter().flat_map(of_key));
            shares.map(move |share| (file, share)).collect::<Vec<_>>()
        };
        (0..self.cuts.partitions() as u32).flat_map(of_file).collect()
    }
}

/// In which files rows of a key are: in that of the first of them, and in those that begin with a row of the left table that has it.
fn files_of(cuts: &Cuts, key: &[u8]) -> Range<usize> {
    let first = cuts.keys().partition_point(|cut| cut[..] <= *key);
    let more = cuts.keys()[first..].iter().take_while(|cut| cut.starts_with(key)).count();
    first..first + more + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_places(keys: &[(&str, u64)], weight: u64) -> Sample {
        let cut = |(key, place): &(&str, u64)| [key.as_bytes(), &place.to_be_bytes()].concat();
        Sample { cuts: keys.iter().map(cut).collect(), weight }
    }

    fn left(keys: &[(&str, u64)]) -> Sample {
        with_places(keys, 10)
    }

    fn right(keys: &[&str], weight: u64) -> (Sample, bool) {
        (with_places(&keys.iter().map(|key| (*key, 7)).collect::<Vec<_>>(), weight), true)
    }

    #[test]
    fn a_key_with_many_rows_on_the_left_is_divided_and_both_files_know() {
        let cuts = JoinCuts::of(left(&[("a", 1), ("k", 2), ("k", 3), ("k", 4)]), right(&["b"], 1), 2).unwrap();
        assert_eq!(cuts.borders.cuts.keys(), [[b"k".as_slice(), &3_u64.to_be_bytes()].concat()]);
        assert_eq!(cuts.divided, [[ByteBuf::from(b"k")], [ByteBuf::from(b"k")]]);
        assert_eq!(cuts.borders.shares(), [(0, Share::Whole), (1, Share::Whole)]);
    }

    #[test]
    fn the_most_frequent_key_is_known_with_its_files() {
        let mut sample = left(&[("a", 1), ("k", 2), ("k", 3), ("k", 4), ("z", 1), ("z", 2)]);
        assert_eq!(most_frequent(&mut sample, true), Some((b"k".to_vec(), 3)));
        assert_eq!(most_frequent(&mut left(&[]), true), None);
        let borders = JoinCuts::of(sample, right(&[], 1), 3).unwrap().borders;
        // a, k | k, k | z, z: a row of z with a lower place than that which was seen is in the second file.
        assert_eq!([b"a", b"k", b"z"].map(|key| borders.files_of(key)), [0..1, 0..2, 1..3]);
    }

    #[test]
    fn files_have_as_many_bytes_of_both_tables_each() {
        let keys = ["a", "b", "c", "d", "e", "f"];
        let cuts = JoinCuts::of(left(&[("a", 1), ("b", 2), ("c", 3)]), right(&keys, 10), 3).unwrap();
        // Three of nine samples each: a, a, b | b, c, c | d, e, f.
        assert_eq!(cuts.borders.cuts.keys(), [[b"b".as_slice(), &2_u64.to_be_bytes()].concat(), b"d".to_vec()]);
        assert_eq!(cuts.divided[2], Vec::<ByteBuf>::new());
        // The same of keys that have no places.
        let alone = Sample { cuts: keys.iter().map(|key| key.as_bytes().to_vec()).collect(), weight: 10 };
        let without = JoinCuts::of(left(&[("a", 1), ("b", 2), ("c", 3)]), (alone, false), 3).unwrap();
        assert_eq!((without.borders, without.divided), (cuts.borders, cuts.divided));
        let none = JoinCuts::of(left(&[]), right(&[], 1), 3).unwrap();
        assert_eq!(none.borders.cuts.keys(), [[u8::MAX], [u8::MAX]]);
    }

    #[test]
    fn rows_of_the_right_table_with_one_key_that_are_more_than_a_file_come_in_pieces_to_each_of_its_files() {
        let rows: Vec<(&str, u64)> = (0..12).map(|place| ("k", place)).chain([("a", 99), ("z", 98)]).collect();
        let of = |weight: u64, left_weight: u64| {
            let left = with_places(&[("k", 500), ("k", 700), ("z", 800)], left_weight);
            JoinCuts::of(left, (with_places(&rows, weight), true), 4).unwrap().borders
        };
        // 12 of 17 parts, where a file has 4.25: pieces are half of that. Files begin with k, and with its first row of the left table that was seen.
        let mib = 1 << 20;
        let borders = of(4 * mib, 4 * mib);
        let first = [b"k".as_slice(), &500_u64.to_be_bytes()].concat();
        assert_eq!(borders.cuts.keys(), [b"k".to_vec(), b"k".to_vec(), first]);
        let key = HeavyKey { key: ByteBuf::from(b"k"), places: vec![2, 4, 6, 8, 10] };
        for (file, heavy) in [(0, false), (1, false), (2, true), (3, true)] {
            assert_eq!(borders.heavy(file), if heavy { std::slice::from_ref(&key) } else { &[] }, "file {file}");
        }
        let of_file = |file: u32| {
            let cells = std::iter::repeat_n((file, Share::Cell(6)), 6);
            std::iter::once((file, Share::Stretch)).chain(cells).chain([(file, Share::Stretch)])
        };
        let whole = [(0, Share::Whole), (1, Share::Whole)].into_iter();
        assert_eq!(borders.shares(), whole.chain(of_file(2)).chain(of_file(3)).collect::<Vec<_>>());
        // What fits any node is not divided.
        assert!(of(mib / 2, mib / 2).shares().iter().all(|(_, share)| *share == Share::Whole));
    }
}
