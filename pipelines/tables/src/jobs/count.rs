//! How many rows there are, and which hash has so many before it: what files of even length are made from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Schema;
use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskOptions};
use exobus_shuffle::cuts::Cuts;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::budget::TaskBudget;
use super::described::{Described, DescribedSplit, LOOK_BYTES};
use super::pieces::PieceReader;
use super::rewrite::{MixedSeed, place_hash};
use super::row_limit::RowLimit;
use super::table::{Piece, first_place, push_split};
use crate::reading::{Reading, Wanted};

/// What `count` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CountParams {
    pieces: Vec<Piece>,
    reading: Reading,
}

/// How many rows are to be read of each of some splits, in their order.
#[task(name = "table.count", deterministic = true)]
fn count_rows(context: &mut TaskContext<'_>, params: CountParams) -> Result<Vec<u64>, TaskError> {
    let budget = TaskBudget::new(context);
    let CountParams { pieces, reading } = params;
    // No column but those of the condition.
    let reader = PieceReader::new(&reading, &Arc::new(Schema::empty()), RowLimit::NONE, &budget)?;
    let mut all = Vec::new();
    for piece in &pieces {
        let mut counted: BTreeMap<usize, u64> = piece.splits().map(|(split, ..)| (split, 0)).collect();
        reader.each(context, piece, &mut Wanted::ALL.clone(), |rows| {
            *counted.entry(rows.split).or_default() += rows.batch.num_rows() as u64;
            Ok(())
        })?;
        all.extend(counted.into_values());
    }
    Ok(all)
}

/// Splits that one task counts at least, and at most: as many of them as have fewer bytes than that, so that a table of very many small files is few tasks.
const SPLITS_PER_TASK: (usize, usize) = (8, 256);
const COUNTED_BYTES: u64 = 64 << 20;

/// Reads the table for how many rows of each split are to be read, where nobody says.
pub(super) async fn count(futures: &Futures, described: &mut Described) -> Result<(), JobError> {
    let is_filtered = described.reading.options.leaves_out();
    let is_unknown = |split: &DescribedSplit| !split.is_left_out && (is_filtered || split.rows.is_none());
    let numbered = (0..).zip(described.numbered_splits());
    let unknown: Vec<_> = numbered.filter(|(_, (file, split))| is_unknown(&file.splits[*split])).collect();
    let bytes: Vec<u64> = unknown.iter().map(|(_, (file, split))| file.splits[*split].value_bytes).collect();
    let mut tasks = Vec::new();
    for group in groups(&bytes) {
        let mut pieces = Vec::new();
        unknown[group.clone()]
            .iter()
            .for_each(|(before, (file, split))| push_split(&mut pieces, file, *split, *before));
        let largest = bytes[group].iter().max().copied().unwrap_or(0);
        let options = TaskOptions { outside_bytes: LOOK_BYTES + largest / 4, ..TaskOptions::default() };
        let params = CountParams { pieces, reading: described.reading.clone() };
        tasks.push(futures.submit_with(count_rows, &params, &[], options)?);
    }
    let mut splits = described.files.iter_mut().flat_map(|file| &mut file.splits).filter(|split| is_unknown(split));
    for task in &tasks {
        let counted: Vec<u64> = futures.get_value(task).await?;
        for (rows, split) in counted.into_iter().zip(&mut splits) {
            split.rows = Some(rows);
        }
    }
    Ok(())
}

/// Splits of so many bytes in the groups that tasks count.
fn groups(splits: &[u64]) -> Vec<Range<usize>> {
    let (least, most) = SPLITS_PER_TASK;
    let (mut groups, mut from, mut bytes) = (Vec::new(), 0, 0_u64);
    for (at, split) in splits.iter().enumerate() {
        let is_full = at - from >= most || (at - from >= least && bytes + split > COUNTED_BYTES);
        if is_full {
            groups.push(std::mem::replace(&mut from, at)..at);
            bytes = 0;
        }
        bytes += split;
    }
    groups.extend((from < splits.len()).then_some(from..splits.len()));
    groups
}

/// The rows of a table, counted: of each split how many are before it, and in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted(Vec<(u32, u64)>);

impl Counted {
    /// Of a table whose splits are all counted.
    pub(super) fn of(described: &Described) -> Result<Self, JobError> {
        let splits = (0..).zip(described.splits()).map(|(before, split)| Some((before, split.rows?)));
        splits.collect::<Option<_>>().map(Self).ok_or_else(|| JobError::program("rows of a split were not counted"))
    }

    fn rows(&self) -> u64 {
        self.0.iter().map(|(_, rows)| rows).sum()
    }
}

/// What `rank` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RankParams {
    /// The number of each split and its rows.
    splits: Vec<(u32, u64)>,
    seed: u64,
    asked: Asked,
}

/// Hashes that begin with some bits are counted by the bits behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    /// First bits of hashes, `bits` of each, rising.
    prefixes: Vec<u64>,
    bits: u32,
    /// How many bits behind them are counted by; none: the hashes themselves are wanted.
    more: u32,
}

/// Rows that one task hashes, unless a single split has more.
const ROWS_PER_TASK: u64 = 1 << 25;
/// Rows between two looks at whether the task is still wanted.
const ROWS_PER_LOOK: u64 = 1 << 16;
/// Of so few rows the hashes are looked at one by one.
const HASHES_MAX: u64 = 1 << 18;
/// Counts of one round, at most, and bits by which one round counts.
const COUNTS_MAX: u32 = 1 << 20;
const BITS_MAX: u32 = 16;

/// Counts, four bytes for each prefix and each number behind it; or hashes, sixteen bytes each.
#[task(name = "table.rank", deterministic = true)]
fn rank(context: &mut TaskContext<'_>, params: RankParams) -> Result<ByteBuf, TaskError> {
    let RankParams { splits, seed, asked } = params;
    let mut answer = Answer::new(&asked);
    let mixed = MixedSeed::new(seed);
    for (before, rows) in splits {
        for row in 0..rows {
            if row % ROWS_PER_LOOK == 0 {
                context.check_cancelled()?;
            }
            answer.add(place_hash(mixed, first_place(before) + row));
        }
    }
    Ok(ByteBuf::from(answer.bytes()))
}

/// What is known of hashes of which something was asked.
struct Answer<'a> {
    asked: &'a Asked,
    counts: Vec<u32>,
    hashes: Vec<u8>,
}

impl<'a> Answer<'a> {
    fn new(asked: &'a Asked) -> Self {
        let counts = if asked.more > 0 { asked.prefixes.len() << asked.more } else { 0 };
        Self { asked, counts: vec![0; counts], hashes: Vec::new() }
    }

    fn add(&mut self, hash: u128) {
        let Asked { prefixes, bits, more } = self.asked;
        let Ok(at) = prefixes.binary_search(&first_bits(hash, *bits)) else { return };
        match *more {
            0 => self.hashes.extend_from_slice(&hash.to_be_bytes()),
            more => self.counts[at << more | first_bits(hash << *bits, more) as usize] += 1,
        }
    }

    fn bytes(mut self) -> Vec<u8> {
        self.hashes.extend(self.counts.iter().flat_map(|count| count.to_le_bytes()));
        self.hashes
    }
}

/// So many first bits of a hash, 64 at most.
fn first_bits(hash: u128, bits: u32) -> u64 {
    if bits == 0 { 0 } else { (hash >> (128 - bits)) as u64 }
}

/// The hashes at even distances of all rows, so that partitions differ by one row at most.
pub(super) async fn even_cuts(
    futures: &Futures,
    counted: &Counted,
    seed: u64,
    partitions: u32,
) -> Result<Cuts, JobError> {
    if counted.rows() == 0 {
        return Cuts::even(partitions as usize).map_err(JobError::program);
    }
    let mut selection = Selection::new(counted.rows(), partitions);
    loop {
        let asked = selection.asks();
        let params = |splits: &[(u32, u64)]| RankParams { splits: splits.to_vec(), seed, asked: asked.clone() };
        let tasks = chunks(&counted.0).map(|splits| futures.submit(rank, &params(splits), &[]));
        let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
        let mut answers: Vec<ByteBuf> = Vec::with_capacity(tasks.len());
        for task in &tasks {
            answers.push(futures.get_value(task).await?);
        }
        if let Some(cuts) = selection.answered(&asked, answers.iter().map(|answer| answer.as_slice())) {
            return Cuts::new(cuts).map_err(JobError::program);
        }
    }
}

/// Splits that follow each other, as many as a task hashes.
fn chunks(splits: &[(u32, u64)]) -> impl Iterator<Item = &[(u32, u64)]> {
    let mut rows = 0;
    splits.chunk_by(move |(_, before), (_, next)| {
        rows += before;
        let goes_on = rows + next <= ROWS_PER_TASK;
        if !goes_on {
            rows = 0;
        }
        goes_on
    })
}

/// A radix selection of the hashes of several ranks at once.
#[derive(Debug)]
struct Selection {
    sought: Vec<Sought>,
    /// How many bits of each are known, and how many hashes begin as one of them does.
    bits: u32,
    candidates: u64,
}

/// A cut that is looked for: among hashes with this beginning it is the one of this rank.
#[derive(Clone, Copy, Debug)]
struct Sought {
    prefix: u64,
    rank: u64,
}

impl Selection {
    /// Of the cuts between so many partitions of so many rows, of which there is one.
    fn new(rows: u64, partitions: u32) -> Self {
        // Where there are more partitions than rows, cuts are equal and partitions between them empty.
        let rank_of = |cut: u32| (u128::from(cut) * u128::from(rows) / u128::from(partitions)) as u64;
        let sought = (1..partitions).map(|cut| Sought { prefix: 0, rank: rank_of(cut) }).collect();
        Self { sought, bits: 0, candidates: rows }
    }

    fn asks(&self) -> Asked {
        let mut prefixes: Vec<u64> = self.sought.iter().map(|sought| sought.prefix).collect();
        prefixes.dedup();
        let groups = prefixes.len().max(1) as u32;
        let more = (COUNTS_MAX / groups).max(2).ilog2().min(BITS_MAX).min(64 - self.bits);
        let are_few = self.candidates <= HASHES_MAX + 4 * u64::from(groups);
        Asked { prefixes, bits: self.bits, more: if are_few { 0 } else { more } }
    }

    /// Takes what all rows together answer, in pieces; the cuts when they are found.
    fn answered<'a>(&mut self, asked: &Asked, answers: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Vec<u8>>> {
        if asked.more == 0 {
            let mut hashes: Vec<u128> =
                answers.flat_map(|hashes| hashes.as_chunks().0).map(|bytes| u128::from_be_bytes(*bytes)).collect();
            hashes.sort_unstable();
            let cut = |sought: &Sought| {
                let first = hashes.partition_point(|hash| first_bits(*hash, asked.bits) < sought.prefix);
                hashes[first + sought.rank as usize].to_be_bytes().to_vec()
            };
            return Some(self.sought.iter().map(cut).collect());
        }
        let mut counts = vec![0_u64; asked.prefixes.len() << asked.more];
        for answer in answers {
            let of_task = answer.as_chunks().0.iter().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
            counts.iter_mut().zip(of_task).for_each(|(sum, count)| *sum += count);
        }
        self.narrow(asked, &counts);
        None
    }

    /// Looks for each cut further among the hashes that begin as it does, some bits further.
    fn narrow(&mut self, Asked { prefixes, more, .. }: &Asked, counts: &[u64]) {
        let mut last = None;
        self.candidates = 0;
        for sought in &mut self.sought {
            let group = prefixes.partition_point(|prefix| *prefix < sought.prefix);
            let mut next = group << more;
            while sought.rank >= counts[next] {
                sought.rank -= counts[next];
                next += 1;
            }
            sought.prefix = sought.prefix << more | (next - (group << more)) as u64;
            if last.replace(sought.prefix) != Some(sought.prefix) {
                self.candidates += counts[next];
            }
        }
        self.bits += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_the_hashes_of_their_ranks_however_many_rounds_it_takes() {
        let splits = [(0, 700_000), (1, 0), (2, 300_001)];
        let mixed = MixedSeed::new(3);
        let hashes = |splits: &[(u32, u64)]| {
            let places = splits.iter().flat_map(|(before, rows)| (0..*rows).map(move |row| first_place(*before) + row));
            places.map(|place| place_hash(mixed, place)).collect::<Vec<u128>>()
        };
        let mut sorted = hashes(&splits);
        sorted.sort_unstable();
        for partitions in [2, 3, 80, 5000] {
            let mut selection = Selection::new(1_000_001, partitions);
            let mut rounds = 0;
            let cuts = loop {
                let asked = selection.asks();
                let answers: Vec<Vec<u8>> = [&splits[..1], &splits[1..]]
                    .map(|splits| {
                        let mut answer = Answer::new(&asked);
                        hashes(splits).into_iter().for_each(|hash| answer.add(hash));
                        answer.bytes()
                    })
                    .into();
                rounds += 1;
                if let Some(cuts) = selection.answered(&asked, answers.iter().map(Vec::as_slice)) {
                    break cuts;
                }
            };
            assert!(rounds >= 2, "{partitions} partitions took no round of counts");
            let at = |cut: usize| sorted[(cut as u128 * 1_000_001 / u128::from(partitions)) as usize];
            let expected: Vec<Vec<u8>> = (1..partitions as usize).map(|cut| at(cut).to_be_bytes().to_vec()).collect();
            assert!(cuts == expected, "{partitions} partitions");
        }
    }

    #[test]
    fn a_task_counts_many_small_splits_and_few_large_ones_and_each_is_counted_once() {
        let lengths = |splits: &[u64]| {
            let groups = groups(splits);
            assert!(groups.iter().cloned().flatten().eq(0..splits.len()), "{groups:?}");
            groups.into_iter().map(|group| group.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&[1]), [1]);
        assert_eq!(lengths(&[10; 1000]), [256, 256, 256, 232]);
        assert_eq!(lengths(&[64 << 20; 20]), [8, 8, 4]);
        assert_eq!(lengths(&[2 << 20; 40]), [32, 8]);
        // A large one does not count towards those before it.
        assert_eq!(lengths(&[vec![1; 100], vec![1 << 30], vec![1; 100]].concat()), [100, 8, 93]);
    }

    #[test]
    fn a_task_hashes_some_splits_and_each_is_hashed_once() {
        let splits = [(0, ROWS_PER_TASK - 1), (1, 1), (2, 1), (3, 3 * ROWS_PER_TASK), (4, 5)];
        assert_eq!(chunks(&splits).collect::<Vec<_>>(), [&splits[..2], &splits[2..3], &splits[3..4], &splits[4..]]);
    }
}
