//! Which blocks are read in which order, and after which of them somebody looks.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Looks before the end see half as many blocks more than the one before.
const GROWTH: f64 = 1.5;
/// The first look sees one block of so many.
const FIRST_OF: u64 = 100;
/// Blocks that the first look sees at least.
const FIRST_MIN: u64 = 2;

/// So many blocks that follow each other are read in an order that does not see where they are: a range of twice as many or more is halved by [`spread_order`].
const RANGE_MIN: u64 = 32;

/// The numbers of so many blocks in a random order: each prefix is a simple random sample of them. It follows from the seed alone and never changes: who keeps a seed keeps an order.
pub fn random_order(blocks: u64, seed: u64) -> Vec<u64> {
    random_range(0..blocks, seed)
}

/// The numbers of so many blocks in a random order whose prefixes have blocks from everywhere: of each half of the table as many as of the other one, and so on down to ranges of 32 to 63 blocks, in which they are in a
/// random order. Each block is in a prefix with the same probability, so estimates are as unbiased as those of a simple random sample. They are nearer to the truth where what is asked rises and falls along the table, as with
/// the hour, and as far from it as those elsewhere: of no population the variance is more than 32/31 times as large. Bounds by the variance of the sample
/// hold, and do not become narrower, since that has what differs between ranges in it (stratified and systematic sampling: Cochran, "Sampling Techniques", 1977, chapters 5 and 8; by pairs: Deville and Tillé, "Unequal
/// probability sampling without replacement through a splitting method", Biometrika 1998). It follows from the seed alone and never changes.
pub fn spread_order(blocks: u64, seed: u64) -> Vec<u64> {
    spread_range(0..blocks, seed)
}

fn spread_range(range: Range<u64>, seed: u64) -> Vec<u64> {
    let len = range.end - range.start;
    if len < 2 * RANGE_MIN {
        return random_range(range, seed);
    }
    let middle = range.start + len.div_ceil(2);
    let [left, right] = [range.start..middle, middle..range.end].map(|half| spread_range(half, seed));
    let chance = |of: u64| hash(seed, &[range.start, range.end, of]);
    // Where one half has a block more, that comes anywhere; the others come by pairs.
    let alone = (left.len() > right.len()).then(|| chance(len) % len);
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let mut order = Vec::with_capacity(len as usize);
    while order.len() < len as usize {
        if alone == Some(order.len() as u64) {
            order.extend(left.next());
        }
        let pair = [left.next(), right.next()];
        let is_turned = chance(order.len() as u64) & 1 == 1;
        // The block that comes alone may come between two of a pair.
        let [first, second] = if is_turned { [pair[1], pair[0]] } else { pair };
        order.extend(first);
        if alone == Some(order.len() as u64) {
            order.extend(left.next());
        }
        order.extend(second);
    }
    order
}

fn random_range(range: Range<u64>, seed: u64) -> Vec<u64> {
    let mut keyed: Vec<(u64, u64)> = range.map(|block| (hash(seed, &[block]), block)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, block)| block).collect()
}

fn hash(seed: u64, of: &[u64]) -> u64 {
    let bytes: Vec<u8> = of.iter().flat_map(|number| number.to_le_bytes()).collect();
    XxHash3_64::oneshot_with_seed(seed, &bytes)
}

/// All of the table that is read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Population {
    /// How many blocks there are.
    pub blocks: u64,
    /// The sizes of all blocks: rows, or bytes where nobody knows how many rows there are.
    pub size: f64,
}

/// When the sample is looked at: fixed before anything is read, by how many blocks there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    blocks: u64,
    before_end: Vec<u64>,
}

impl Looks {
    /// At ceil(n₁ 1.5ᵏ) blocks for k = 0, 1, ..., with n₁ a hundredth of all blocks and 2 at least, and at the end.
    pub fn new(blocks: u64) -> Self {
        let first = blocks.div_ceil(FIRST_OF).max(FIRST_MIN) as f64;
        let at = (0..).map(|look| (first * GROWTH.powi(look)).ceil() as u64);
        Self { blocks, before_end: at.take_while(|seen| *seen < blocks).collect() }
    }

    /// How many blocks each of them sees, the last one all.
    pub fn seen(&self) -> impl Iterator<Item = u64> + '_ {
        self.before_end.iter().copied().chain([self.blocks])
    }

    /// The share of an error probability that a look has: that at the end has none, since nothing is estimated there.
    pub fn share(&self, error_probability: f64) -> f64 {
        error_probability / self.before_end.len().max(1) as f64
    }
}

/// One look at the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What the sample is of.
    pub population: Population,
    /// With which probability a bound may be wrong: see [`Looks::share`].
    pub error_probability: f64,
}

impl Look {
    /// With which probability a bound holds.
    pub fn level(&self) -> f64 {
        1.0 - self.error_probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_block_once_and_never_changes() {
        for order in [random_order, spread_order] {
            for blocks in [0, 1, 10, 63, 64, 65, 127, 1_001] {
                let mut sorted = order(blocks, 7);
                assert_eq!(sorted, order(blocks, 7));
                assert!(blocks < 2 || sorted != order(blocks, 8));
                sorted.sort_unstable();
                assert_eq!(sorted, (0..blocks).collect::<Vec<_>>());
            }
            assert_eq!(order(10, 7), FIXED);
        }
        assert_eq!(spread_order(100, 7)[..10], FIXED_OF_MANY);
    }

    #[test]
    fn each_prefix_of_a_spread_order_has_blocks_from_everywhere_and_each_block_as_often() {
        const BLOCKS: u64 = 1_000;
        const SEEDS: u64 = 2_000;
        let mut often = [0_u64; BLOCKS as usize];
        for seed in 0..SEEDS {
            let order = spread_order(BLOCKS, seed);
            for seen in [10, 77, 200, 501, 999] {
                for parts in [2, 4, 8, 16] {
                    for part in 0..parts {
                        let even = seen as f64 / parts as f64;
                        let in_part = |block: &&u64| **block * parts / BLOCKS == part;
                        let met = order[..seen].iter().filter(in_part).count() as f64;
                        // Halves of odd lengths differ by a block, as do prefixes of them.
                        assert!(
                            (met - even).abs() <= 2.0,
                            "{met} of {seen} are in part {part} of {parts}, seed {seed}"
                        );
                    }
                }
            }
            order[..250].iter().for_each(|block| often[*block as usize] += 1);
        }
        // A quarter of the seeds each; the standard deviation is 19.
        let (least, most) = (often.iter().min().unwrap(), often.iter().max().unwrap());
        assert!(*least > 500 - 95 && *most < 500 + 95, "{least} {most}");
    }

    #[test]
    fn blocks_are_missed_together_no_more_often_than_if_each_were_missed_by_itself() {
        const SEEDS: u64 = 4_000;
        let (blocks, seen, with_group) = (256_u64, 20, 30_u64);
        let chance = (1.0 - seen as f64 / blocks as f64).powi(with_group as i32);
        let orders: Vec<Vec<u64>> = (0..SEEDS).map(|seed| spread_order(blocks, seed)).collect();
        let side_by_side: Vec<u64> = (0..with_group).collect();
        let here_and_there: Vec<u64> = (0..with_group).map(|number| number * blocks / with_group).collect();
        let by_turns: Vec<u64> = (0..with_group).map(|number| 2 * number).collect();
        for of_group in [side_by_side, here_and_there, by_turns] {
            let missed =
                orders.iter().filter(|order| !order[..seen].iter().any(|block| of_group.contains(block))).count();
            // The standard deviation is 18.
            assert!((missed as f64) < chance * SEEDS as f64 + 54.0, "{of_group:?}: {missed}");
        }
    }

    /// Of ten blocks, with the seed 7.
    const FIXED: [u64; 10] = [5, 3, 9, 0, 2, 1, 6, 4, 7, 8];
    /// The first of a hundred.
    const FIXED_OF_MANY: [u64; 10] = [32, 69, 65, 11, 5, 64, 40, 74, 3, 78];

    #[test]
    fn looks_grow_by_half_and_the_last_one_sees_everything() {
        let seen = |blocks| Looks::new(blocks).seen().collect::<Vec<_>>();
        assert_eq!(seen(1000), [10, 15, 23, 34, 51, 76, 114, 171, 257, 385, 577, 865, 1000]);
        assert_eq!(seen(10), [2, 3, 5, 7, 10]);
        assert_eq!((seen(2), seen(1), seen(0)), (vec![2], vec![1], vec![0]));
        assert_eq!(Looks::new(1000).share(0.06), 0.005);
        assert_eq!(Looks::new(1).share(0.05), 0.05);
    }
}
