//! Which blocks are read in which order, and after which of them somebody looks.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Looks before the end see half as many blocks more than the one before.
const GROWTH: f64 = 1.5;
/// The first look sees one block of so many.
const FIRST_OF: u64 = 100;
/// Blocks that the first look sees at least.
const FIRST_MIN: u64 = 2;

/// The numbers of so many blocks in the order in which they are read. It follows from the seed alone and never changes: who keeps a seed keeps an order.
pub fn order(blocks: u64, seed: u64) -> Vec<u64> {
    let mut keyed: Vec<(u64, u64)> =
        (0..blocks).map(|block| (XxHash3_64::oneshot_with_seed(seed, &block.to_le_bytes()), block)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, block)| block).collect()
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
        let order_of_seven = order(10, 7);
        assert_eq!(order_of_seven, order(10, 7));
        let mut sorted = order_of_seven.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        assert_ne!(order_of_seven, order(10, 8));
        assert_eq!(order_of_seven, FIXED);
    }

    /// Of ten blocks, with the seed 7.
    const FIXED: [u64; 10] = [5, 3, 9, 0, 2, 1, 6, 4, 7, 8];

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
