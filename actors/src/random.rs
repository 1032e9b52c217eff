//! Randomness behind a trait, so that the same code runs on real and on seeded randomness (law 9).
//!
//! Names, ids and salts come from here. What a *program* learns is not random at all: [`Futures::random`] follows from
//! the job's id, so that the program can run again (law 3).
//!
//! [`Futures::random`]: crate::futures::Futures::random

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where everybody takes random numbers from.
///
/// Implementers owe numbers of which all bits are evenly distributed, different for each call and each thread.
pub trait Random: Debug + Send + Sync {
    /// The next number.
    fn next_u128(&self) -> u128;
}

/// The random numbers of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[allow(clippy::disallowed_methods, reason = "this is the one that asks the operating system")]
    fn next_u128(&self) -> u128 {
        // Six bits of each UUID are fixed: bits 62, 63 and 76 to 79, which the other one, turned, covers.
        let [one, other] = [(); 2].map(|()| uuid::Uuid::new_v4().as_u128());
        one ^ other.rotate_left(64)
    }
}

/// Numbers that follow from a seed: the same ones in the same order for whoever asks, thread by thread as they come.
/// For tests and simulations; who knows one of them knows all.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The numbers of this seed, from the first one on.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    /// Two steps of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    fn next_u128(&self) -> u128 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let before = self.0.fetch_add(GAMMA.wrapping_mul(2), Ordering::Relaxed);
        let half = |steps: u64| {
            let state = before.wrapping_add(GAMMA.wrapping_mul(steps));
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(mixed ^ (mixed >> 31))
        };
        half(1) << 64 | half(2)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeded_numbers_are_those_of_splitmix64() {
        // The reference implementation with the seed 1234567.
        let random = SeededRandom::new(1_234_567);
        let expected = [(6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973_u64)];
        for (high, low) in expected {
            assert_eq!(random.next_u128(), u128::from(high) << 64 | u128::from(low));
        }
        assert_ne!(SeededRandom::new(1).next_u128(), SeededRandom::new(2).next_u128());
    }

    #[test]
    fn every_bit_of_the_system_is_random() {
        let numbers: BTreeSet<u128> = (0..200).map(|_| SystemRandom.next_u128()).collect();
        assert_eq!(numbers.len(), 200);
        // A bit that were fixed would be the same in all; by chance one is so in 2^-192 of the runs.
        assert_eq!(numbers.iter().fold(0, |all, number| all | number), u128::MAX);
        assert_eq!(numbers.iter().fold(u128::MAX, |all, number| all & number), 0);
    }
}
