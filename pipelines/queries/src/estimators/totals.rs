//! What is known of the blocks that were read.

use serde::{Deserialize, Serialize};

/// The blocks that were read, whatever they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How many.
    pub blocks: u64,
    /// Their sizes.
    pub size: f64,
    /// The squares of their sizes.
    pub size_squares: f64,
}

impl Sample {
    /// A block of this size was read.
    pub fn add(&mut self, size: f64) {
        self.merge(&Self { blocks: 1, size, size_squares: size * size });
    }

    /// What somebody else has read.
    pub fn merge(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.size += other.size;
        self.size_squares += other.size_squares;
    }
}

/// Of a group, sums and products of the totals that its terms have in blocks that were read. Blocks without it need not be told.
///
/// They are numbers that add up, one behind the other: how many blocks have the group; of each term the sum, and the sum of its products with the sizes of blocks; of each pair of terms, the first not before
/// the second, the sum of their products, row by row the lower half of a matrix. Who keeps those of many groups keeps [`numbers_of`](Self::numbers_of) for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    terms: usize,
    numbers: Vec<f64>,
}

impl Totals {
    /// Of so many terms.
    pub fn new(terms: usize) -> Self {
        Self { terms, numbers: vec![0.0; Self::numbers_of(terms)] }
    }

    /// How many numbers those of so many terms are.
    #[inline]
    pub fn numbers_of(terms: usize) -> usize {
        1 + 2 * terms + terms * (terms + 1) / 2
    }

    /// Of these numbers.
    ///
    /// # Panics
    /// They are more or fewer than [`numbers_of`](Self::numbers_of) says.
    pub fn of_numbers(terms: usize, numbers: Vec<f64>) -> Self {
        assert_eq!(numbers.len(), Self::numbers_of(terms), "the numbers of so many terms");
        Self { terms, numbers }
    }

    /// Adds to such numbers that a block of this size has the group, and these totals of it.
    ///
    /// # Panics
    /// As of [`of_numbers`](Self::of_numbers).
    pub fn add_to(numbers: &mut [f64], size: f64, totals: &[f64]) {
        /// The same for a number of terms that the compiler knows, mostly.
        #[inline(always)]
        fn add(numbers: &mut [f64], size: f64, totals: &[f64]) {
            let (first, products) = numbers.split_at_mut(1 + 2 * totals.len());
            first[0] += 1.0;
            let (sums, with_size) = first[1..].split_at_mut(totals.len());
            let mut products = products.iter_mut();
            for (row, ((sum, with_size), total)) in sums.iter_mut().zip(with_size).zip(totals).enumerate() {
                *sum += total;
                *with_size += size * total;
                // Row by row, as `place` has it.
                totals[..=row].iter().zip(&mut products).for_each(|(other, product)| *product += total * other);
            }
        }
        assert_eq!(numbers.len(), Self::numbers_of(totals.len()), "the numbers of so many terms");
        // Most groups have few terms: of one aggregate one, two or three, and how many rows there are.
        match *totals {
            [one] => add(numbers, size, &[one]),
            [one, two] => add(numbers, size, &[one, two]),
            [one, two, three] => add(numbers, size, &[one, two, three]),
            [one, two, three, four] => add(numbers, size, &[one, two, three, four]),
            [one, two, three, four, five] => add(numbers, size, &[one, two, three, four, five]),
            _ => add(numbers, size, totals),
        }
    }

    /// How many terms there are.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// How many blocks have the group.
    pub fn blocks(&self) -> u64 {
        self.numbers[0] as u64
    }

    /// The sum of a term over what was read.
    pub fn sum(&self, term: usize) -> f64 {
        self.sums()[term]
    }

    fn sums(&self) -> &[f64] {
        &self.numbers[1..1 + self.terms]
    }

    fn with_size(&self) -> &[f64] {
        &self.numbers[1 + self.terms..1 + 2 * self.terms]
    }

    fn products(&self) -> &[f64] {
        &self.numbers[1 + 2 * self.terms..]
    }

    /// A block of this size has the group, and these totals of it.
    ///
    /// # Panics
    /// There are fewer or more totals than terms.
    pub fn add(&mut self, size: f64, totals: &[f64]) {
        Self::add_to(&mut self.numbers, size, totals);
    }

    /// What blocks have that somebody else has read.
    ///
    /// # Panics
    /// It is of other terms.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(other.terms(), self.terms(), "the same terms");
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(here, there)| *here += there);
    }

    /// Of a sum of terms with these weights: its sum over blocks, that of its products with their sizes, and that of its squares.
    pub(super) fn weighted(&self, weights: &[f64]) -> Weighted {
        let dot = |of: &[f64]| weights.iter().zip(of).map(|(weight, of)| weight * of).sum();
        let (mut squares, mut magnitude) = (0.0, 0.0);
        for row in 0..weights.len() {
            for column in 0..=row {
                let twice = if row == column { 1.0 } else { 2.0 };
                let product = twice * weights[row] * weights[column] * self.products()[place(row, column)];
                squares += product;
                magnitude += product.abs();
            }
        }
        Weighted { sum: dot(self.sums()), with_size: dot(self.with_size()), squares, magnitude }
    }
}

/// See [`Totals::weighted`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighted {
    pub(super) sum: f64,
    pub(super) with_size: f64,
    pub(super) squares: f64,
    /// Of what the squares were added up, without signs: a part of this may be lost in them.
    pub(super) magnitude: f64,
}

fn place(row: usize, column: usize) -> usize {
    row * (row + 1) / 2 + column
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_of_terms_have_the_squares_of_their_totals(
            blocks in proptest::collection::vec((0_i32..100, -100_i32..100, -100_i32..100, 1_i32..50), 0..20),
            weights in [-5_i32..5, -5..5, -5..5],
        ) {
            let (mut one, mut other) = (Totals::new(3), Totals::new(3));
            let weights = weights.map(f64::from);
            let (mut sum, mut with_size, mut squares) = (0.0, 0.0, 0.0);
            for (number, (a, b, c, size)) in blocks.iter().enumerate() {
                let (totals, size) = ([*a, *b, *c].map(f64::from), f64::from(*size));
                if number % 2 == 0 { one.add(size, &totals) } else { other.add(size, &totals) }
                let total: f64 = totals.iter().zip(&weights).map(|(total, weight)| total * weight).sum();
                (sum, with_size, squares) = (sum + total, with_size + size * total, squares + total * total);
            }
            one.merge(&other);
            let weighted = one.weighted(&weights);
            prop_assert_eq!(one.blocks() as usize, blocks.len());
            prop_assert_eq!((weighted.sum, weighted.with_size, weighted.squares), (sum, with_size, squares));
        }
    }
}
