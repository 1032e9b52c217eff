//! Where one file ends and the next begins: it follows from the input alone.
//!
//! A cut is the key of a row and, behind it, its place: a key with more rows than a file has is divided by these. Where rows of one key have to come together it is the key alone.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{JobError, TaskOptions};
use exobus_shuffle::cuts::Cuts;
use serde_bytes::ByteBuf;

use super::arrangement::Arrangement;
use super::sample::{SampleParams, SampledBatches, sample};
use crate::jobs::count::{Counted, even_cuts};
use crate::jobs::described::{Described, LOOK_BYTES};
use crate::jobs::table::Piece;
use crate::sources::BATCH_ROWS_MAX;

/// So much of a key is in a cut; a longer one is cut there, and not divided.
const CUT_KEY_MAX: usize = 256;
/// So many splits are looked at, at least, and so many for each file.
const SPLITS_MIN: usize = 32;
const SPLITS_PER_FILE: usize = 4;
/// Batches that are looked at, at least.
const BATCHES_MIN: u64 = 64;
/// Keys that are sampled for each file, and in all at least and at most.
const KEYS_PER_FILE: u64 = 40;
const KEYS_MIN: u64 = 2_000;
const KEYS_MAX: u64 = 40_000;
/// Splits that one task samples.
const SPLITS_PER_TASK: usize = 4;

/// What is looked at for cuts.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct LookedAt {
    /// Batches for each partition.
    batches: u64,
    /// Rows of each of them that are read of a file that can pass over others.
    rows: u64,
    /// Into so many parts a table that is in order is divided by what is looked at; `None`: into as many as there are partitions.
    apart: Option<u32>,
}

impl LookedAt {
    /// For files: how even they are is seen.
    pub(in crate::jobs) const FOR_FILES: Self = Self { batches: 8, rows: BATCH_ROWS_MAX as u64, apart: None };
    /// For partitions of groups: these are many and small, so nearly all rows would be read.
    pub(in crate::jobs) const FOR_GROUPS: Self = Self { batches: 8, rows: 4096, apart: None };
    /// The same where so many partitions would be enough for memory: of a table that is in order as many parts are told apart. To tell more of them apart costs more than it is good for: for some rows of a split its dictionaries are unpacked.
    pub(in crate::jobs) fn for_few_groups(partitions: u64) -> Self {
        Self { batches: 1, apart: Some(u32::try_from(partitions).unwrap_or(u32::MAX)), ..Self::FOR_GROUPS }
    }

    /// How many of so many splits are looked at: no more than have a batch that is, if all have as many.
    fn splits(self, splits: usize, partitions: u32) -> usize {
        let of_partition = SPLITS_PER_FILE.min(self.batches as usize);
        splits.min(SPLITS_MIN.max(of_partition * self.apart(partitions) as usize))
    }

    /// One of so many batches is looked at, where there are so many in the splits that are.
    fn every(self, batches: u64, partitions: u32) -> u64 {
        (batches / (u64::from(self.apart(partitions)) * self.batches).max(BATCHES_MIN)).max(1)
    }

    fn apart(self, partitions: u32) -> u32 {
        self.apart.map_or(partitions, |apart| apart.min(partitions))
    }
}

/// The cut before a row of this key and, unless rows of one key come together, of this place.
pub(super) fn cut(key: &[u8], place: Option<u64>) -> Vec<u8> {
    match place {
        _ if key.len() > CUT_KEY_MAX => key[..CUT_KEY_MAX].to_vec(),
        Some(place) => [key, &place.to_be_bytes()].concat(),
        None => key.to_vec(),
    }
}

/// Whether a row of this key and place is before a cut. No key is the beginning of another one.
pub(in crate::jobs) fn is_before(cut: &[u8], key: &[u8], place: u64) -> bool {
    match cut.strip_prefix(key) {
        Some(of_place) => place.to_be_bytes().as_slice() < of_place,
        None => key < cut,
    }
}

/// The cuts between so many partitions.
pub(in crate::jobs) async fn cuts(
    futures: &Futures,
    described: &Described,
    arrangement: &Arrangement,
    layout: &ObjectRef,
    (partitions, looked_at): (u32, LookedAt),
) -> Result<Cuts, JobError> {
    if partitions == 1 || described.splits().next().is_none() {
        return Cuts::from_sample(Vec::new(), partitions as usize).map_err(JobError::program);
    }
    match arrangement.seed() {
        Some(seed) => even_cuts(futures, &Counted::of(described)?, seed, partitions).await,
        None => {
            let (keys, _) = sampled(futures, described, (arrangement, false), layout, (partitions, looked_at)).await?;
            cuts_of(keys, partitions)
        }
    }
}

/// The cuts between so many partitions, by keys that were [sampled](sampled).
pub(in crate::jobs) fn cuts_of(keys: Vec<Vec<u8>>, partitions: u32) -> Result<Cuts, JobError> {
    match keys.is_empty() {
        // Nobody knows a key: all rows, if there are any, are before every cut.
        true => Cuts::new(vec![vec![u8::MAX]; partitions as usize - 1]).map_err(JobError::program),
        false => Cuts::from_sample(keys, partitions as usize).map_err(JobError::program),
    }
}

/// Cuts before rows of some splits that stand for all, and how many rows these are. `drops_nulls`: rows whose key has a null go to no partition, so there are no cuts before them.
pub(in crate::jobs) async fn sampled(
    futures: &Futures,
    described: &Described,
    (arrangement, drops_nulls): (&Arrangement, bool),
    layout: &ObjectRef,
    (partitions, looked_at): (u32, LookedAt),
) -> Result<(Vec<Vec<u8>>, usize), JobError> {
    let read = (0..).zip(described.numbered_splits()).filter(|(_, (file, split))| !file.splits[*split].is_left_out);
    let splits: Vec<Piece> = read.map(|(before, (file, split))| Piece::new(file, split, before)).collect();
    let count = looked_at.splits(splits.len(), partitions);
    let pieces: Vec<Piece> = (0..count).map(|at| splits[at * splits.len() / count].clone()).collect();
    // What says how many rows it has is read column by column, and text as a whole: of many pieces of that the first rows stand for all.
    let are_read =
        |pieces: &[Piece]| count <= SPLITS_MIN || pieces.iter().all(|piece| piece.file.splits[0].state.is_none());
    let batches = |piece: &Piece| piece.file.splits[0].rows_about().div_ceil(BATCH_ROWS_MAX as u64).max(1);
    let all: u64 = pieces.iter().map(batches).sum();
    let every = looked_at.every(all, partitions);
    let wanted = (u64::from(partitions) * KEYS_PER_FILE).clamp(KEYS_MIN, KEYS_MAX.max(2 * u64::from(partitions)));
    let keys = (wanted * every).div_ceil(all.max(1)).max(1) as usize;
    let tasks = pieces.chunks(SPLITS_PER_TASK).map(|pieces| {
        let look = if are_read(pieces) { SampledBatches::Every(every) } else { SampledBatches::First };
        let largest = pieces.iter().map(|piece| piece.file.splits[0].value_bytes).max().unwrap_or(0);
        let outside_bytes = LOOK_BYTES + largest / 4 + described.reading.options.beside_bytes();
        let (reading, arrangement) = (described.reading.clone(), arrangement.clone());
        let pieces = pieces.to_vec();
        let params = SampleParams { pieces, reading, arrangement, keys, look, rows_read: looked_at.rows, drops_nulls };
        let options = TaskOptions { outside_bytes, ..TaskOptions::default() };
        futures.submit_with(sample, &params, &[layout.arg()], options)
    });
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let (mut keys, mut rows) = (Vec::new(), 0);
    for task in &tasks {
        let sampled: Vec<ByteBuf> = futures.get_value(task).await?;
        rows += sampled.len();
        keys.extend(sampled.into_iter().map(ByteBuf::into_vec).filter(|cut| !cut.is_empty()));
    }
    Ok((keys, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_split_that_is_looked_at_some_batches_are() {
        for looked_at in [LookedAt::FOR_FILES, LookedAt::FOR_GROUPS, LookedAt::for_few_groups(27)] {
            for (splits, partitions) in [(2048, 512), (256, 64), (1028, 64), (512, 64), (120, 512), (31, 2), (5000, 2)]
            {
                for batches in [1, 2, 16] {
                    let count = looked_at.splits(splits, partitions);
                    let every = looked_at.every(batches * count as u64, partitions);
                    assert!(every <= batches, "{looked_at:?}: one of {every} of {batches}, {splits}, {partitions}");
                }
            }
        }
    }

    #[test]
    fn a_cut_stands_before_its_row_and_behind_those_before_it() {
        let at = cut(b"key", Some(7));
        for (key, place, before) in
            [("key", 6, true), ("key", 7, false), ("key", 8, false), ("kex", 9, true), ("kez", 0, false)]
        {
            assert_eq!(is_before(&at, key.as_bytes(), place), before, "{key} {place}");
        }
        let whole = cut(b"key", None);
        assert!(!is_before(&whole, b"key", 0) && is_before(&whole, b"kex", 9));
        let long = vec![b'x'; CUT_KEY_MAX + 1];
        assert!(!is_before(&cut(&long, Some(1)), &long, 0), "a key that is too long is not divided");
    }
}
