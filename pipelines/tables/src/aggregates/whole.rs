//! Whole numbers of several words, which sums do not overflow.

use arrow_buffer::i256;

use crate::semantics::nearest;

/// In two's complement, the lowest word first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Default for Whole<WORDS> {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl<const WORDS: usize> Whole<WORDS> {
    /// How many bytes it has.
    pub(super) const BYTES: usize = 8 * WORDS;

    /// Adds a number of words in two's complement, no more than there are.
    #[inline]
    fn add_words(&mut self, more: &[u64]) {
        let fill = more.last().map_or(0, |last| ((*last as i64) >> 63) as u64);
        let mut carry = false;
        for (at, word) in self.0.iter_mut().enumerate() {
            let (sum, over) = word.overflowing_add(more.get(at).copied().unwrap_or(fill));
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, over | over_again);
        }
    }

    #[inline]
    pub(super) fn add(&mut self, other: &Self) {
        self.add_words(&other.0);
    }

    #[inline]
    pub(super) fn add_i128(&mut self, value: i128) {
        match &mut self.0[..] {
            // Two additions that the compiler knows.
            [low, high] => {
                let sum = (u128::from(*high) << 64 | u128::from(*low)).wrapping_add(value as u128);
                (*low, *high) = (sum as u64, (sum >> 64) as u64);
            }
            _ => self.add_words(&[value as u64, (value >> 64) as u64]),
        }
    }

    #[inline]
    pub(super) fn add_u128(&mut self, value: u128) {
        self.add_words(&[value as u64, (value >> 64) as u64, 0]);
    }

    #[inline]
    pub(super) fn add_i256(&mut self, value: i256) {
        let (low, high) = value.to_parts();
        self.add_words(&[low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64]);
    }

    /// Adds the square of a number of up to four words.
    pub(super) fn add_square(&mut self, value: i256) {
        // The least number has no negative, but the right bits for its magnitude.
        let magnitude = if value.is_negative() { i256::ZERO.wrapping_sub(value) } else { value };
        let (low, high) = magnitude.to_parts();
        let words = [low as u64, (low >> 64) as u64, high as u64, (high as u128 >> 64) as u64];
        let mut square = [0; 9];
        for (at, one) in words.into_iter().enumerate() {
            let mut carry = 0;
            for (to, other) in words.into_iter().enumerate() {
                let sum = u128::from(one) * u128::from(other) + u128::from(square[at + to]) + carry;
                (square[at + to], carry) = (sum as u64, sum >> 64);
            }
            square[at + 4] = carry as u64;
        }
        self.add_words(&square[..WORDS.min(9)]);
    }

    /// `None`: it has more than 128 bits.
    pub(super) fn as_i128(&self) -> Option<i128> {
        let sign = ((self.0[1] as i64) >> 63) as u64;
        let fits = self.0[2..].iter().all(|word| *word == sign);
        fits.then(|| (u128::from(self.0[1]) << 64 | u128::from(self.0[0])) as i128)
    }

    /// `None`: it has more than 256 bits.
    pub(super) fn as_i256(&self) -> Option<i256> {
        let fill = ((self.0[WORDS - 1] as i64) >> 63) as u64;
        let word = |at: usize| self.0.get(at).copied().unwrap_or(fill);
        let sign = ((word(3) as i64) >> 63) as u64;
        let wide = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        let fits = (4..WORDS).all(|at| word(at) == sign);
        fits.then(|| i256::from_parts(wide(word(0), word(1)), wide(word(2), word(3)) as i128))
    }

    /// The float that is nearest to it, or next to that, where so many of its digits stand behind the point.
    pub(super) fn as_f64(&self, scale: i32) -> f64 {
        let unscaled = self.as_i128().map(|whole| whole as f64).unwrap_or_else(|| {
            let (is_negative, magnitude) = self.parts();
            nearest(is_negative, &magnitude, 0, false)
        });
        unscaled / 10_f64.powi(scale)
    }

    /// Whether it is below zero, and the words of its magnitude.
    pub(super) fn parts(&self) -> (bool, [u64; WORDS]) {
        let is_negative = self.0[WORDS - 1] >> 63 == 1;
        let mut words = self.0;
        if is_negative {
            let mut carry = true;
            words.iter_mut().for_each(|word| (*word, carry) = (!*word).overflowing_add(u64::from(carry)));
        }
        (is_negative, words)
    }

    /// Its bytes, the lowest first.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }

    /// Of [`BYTES`](Self::BYTES) bytes.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut words = [0; WORDS];
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        Self(words)
    }
}
