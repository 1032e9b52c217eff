//! Where one file ends and the next begins: one row of cuts for both tables, which follows from them alone.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::JobError;
use exobus_shuffle::cuts::Cuts;
use serde_bytes::ByteBuf;

use super::exchange::Arranged;
use super::query::Side;
use crate::jobs::dedupe::Keep;
use crate::jobs::described::Described;
use crate::jobs::rewrite::{Arrangement, sampled};

/// Bytes of a place behind a key.
const PLACE_BYTES: usize = size_of::<u64>();

/// Cuts of a join.
#[derive(Debug)]
pub(super) struct JoinCuts {
    pub(super) cuts: Cuts,
    /// Of each file, keys of which rows of the left table are in other files, too.
    pub(super) divided: Vec<Vec<ByteBuf>>,
}

/// Rows of one table that stand for all of it, as cuts, and for how many bytes each of them does.
struct Sample {
    cuts: Vec<Vec<u8>>,
    weight: u64,
}

/// The cuts between so many files.
pub(super) async fn join_cuts(
    futures: &Futures,
    (described, layouts): (&[Described; 2], &[ObjectRef; 2]),
    arranged: &Arranged,
    partitions: u32,
) -> Result<JoinCuts, JobError> {
    // Rows of the right table go where those of the left one with their key are: places of theirs divide nothing.
    let right = Arrangement::distinct(arranged.query.right_key(), Vec::new(), Keep::First);
    let mut samples = Vec::new();
    for (side, arrangement) in Side::BOTH.into_iter().zip([arranged.of(Side::Left), &right]) {
        let (table, layout) = (&described[side as usize], &layouts[side as usize]);
        let has_rows = partitions > 1 && table.splits().next().is_some();
        let cuts = match has_rows {
            true => sampled(futures, table, arrangement, layout, partitions).await?,
            false => Vec::new(),
        };
        let weight = table.value_bytes() / cuts.len().max(1) as u64 + 1;
        samples.push((side, Sample { cuts, weight }));
    }
    JoinCuts::of(samples, partitions as usize)
}

impl JoinCuts {
    /// Cuts between so many files of as many bytes of both tables each, about.
    fn of(samples: Vec<(Side, Sample)>, partitions: usize) -> Result<Self, JobError> {
        let mut all: Vec<(Vec<u8>, Side, u64)> = Vec::new();
        for (side, Sample { cuts, weight }) in samples {
            all.extend(cuts.into_iter().map(|cut| (cut, side, weight)));
        }
        all.sort_unstable();
        let total: u128 = all.iter().map(|(.., weight)| u128::from(*weight)).sum();
        let (mut cuts, mut divided) = (Vec::new(), vec![Vec::new(); partitions]);
        let mut before = 0_u128;
        for (cut, side, weight) in &all {
            // A row is where the file of this number begins that is as far from the beginning as that is.
            while cuts.len() + 1 < partitions && before >= total * (cuts.len() as u128 + 1) / partitions as u128 {
                if let Some(key) = divided_key(cut, *side) {
                    let number = cuts.len();
                    [number, number + 1].into_iter().for_each(|file| divided[file].push(ByteBuf::from(key)));
                }
                cuts.push(cut.clone());
            }
            before += u128::from(*weight);
        }
        // Nobody knows a key that would begin a file: there are fewer rows than files.
        cuts.resize(partitions - 1, vec![u8::MAX]);
        Ok(Self { cuts: Cuts::new(cuts).map_err(JobError::program)?, divided })
    }
}

/// The key that a cut divides.
fn divided_key(cut: &[u8], side: Side) -> Option<&[u8]> {
    // What is left of a key that was cut without a place is none: no key is the beginning of another one.
    let key = cut.len().checked_sub(PLACE_BYTES).filter(|_| side == Side::Left)?;
    Some(&cut[..key])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(keys: &[(&str, u64)]) -> (Side, Sample) {
        let cut = |(key, place): &(&str, u64)| [key.as_bytes(), &place.to_be_bytes()].concat();
        (Side::Left, Sample { cuts: keys.iter().map(cut).collect(), weight: 10 })
    }

    fn right(keys: &[&str], weight: u64) -> (Side, Sample) {
        (Side::Right, Sample { cuts: keys.iter().map(|key| key.as_bytes().to_vec()).collect(), weight })
    }

    #[test]
    fn a_key_with_many_rows_on_the_left_is_divided_and_both_files_know() {
        let cuts = JoinCuts::of(vec![left(&[("a", 1), ("k", 2), ("k", 3), ("k", 4)]), right(&["b"], 1)], 2).unwrap();
        assert_eq!(cuts.cuts.keys(), [[b"k".as_slice(), &3_u64.to_be_bytes()].concat()]);
        assert_eq!(cuts.divided, [[ByteBuf::from(b"k")], [ByteBuf::from(b"k")]]);
    }

    #[test]
    fn files_have_as_many_bytes_of_both_tables_each() {
        let keys = ["a", "b", "c", "d", "e", "f"];
        let cuts = JoinCuts::of(vec![left(&[("a", 1), ("b", 2), ("c", 3)]), right(&keys, 10)], 3).unwrap();
        // Three of nine samples each: a, a, b | b, c, c | d, e, f.
        assert_eq!(cuts.cuts.keys(), [[b"b".as_slice(), &2_u64.to_be_bytes()].concat(), b"d".to_vec()]);
        assert_eq!(cuts.divided[2], Vec::<ByteBuf>::new());
        let none = JoinCuts::of(vec![left(&[]), right(&[], 1)], 3).unwrap();
        assert_eq!(none.cuts.keys(), [[u8::MAX], [u8::MAX]]);
    }
}
