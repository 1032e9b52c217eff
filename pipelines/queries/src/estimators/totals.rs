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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    blocks: u64,
    sums: Vec<f64>,
    /// Of each term with the sizes of blocks.
    with_size: Vec<f64>,
    /// Of each pair of terms, the first not before the second: row by row the lower half of a matrix.
    products: Vec<f64>,
}

impl Totals {
    /// Of so many terms.
    pub fn new(terms: usize) -> Self {
        let products = vec![0.0; terms * (terms + 1) / 2];
        Self { blocks: 0, sums: vec![0.0; terms], with_size: vec![0.0; terms], products }
    }

    /// How many terms there are.
    pub fn terms(&self) -> usize {
        self.sums.len()
    }

    /// How many blocks have the group.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The sum of a term over what was read.
    pub fn sum(&self, term: usize) -> f64 {
        self.sums[term]
    }

    /// A block of this size has the group, and these totals of it.
    ///
    /// # Panics
    /// There are fewer or more totals than terms.
    pub fn add(&mut self, size: f64, totals: &[f64]) {
        assert_eq!(totals.len(), self.terms(), "a total for each term");
        self.blocks += 1;
        for (row, total) in totals.iter().enumerate() {
            self.sums[row] += total;
            self.with_size[row] += size * total;
            for (column, other) in totals[..=row].iter().enumerate() {
                self.products[place(row, column)] += total * other;
            }
        }
    }

    /// What blocks have that somebody else has read.
    ///
    /// # Panics
    /// It is of other terms.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(other.terms(), self.terms(), "the same terms");
        self.blocks += other.blocks;
        let add =
            |here: &mut Vec<f64>, there: &[f64]| here.iter_mut().zip(there).for_each(|(here, there)| *here += there);
        add(&mut self.sums, &other.sums);
        add(&mut self.with_size, &other.with_size);
        add(&mut self.products, &other.products);
    }

    /// Of a sum of terms with these weights: its sum over blocks, that of its products with their sizes, and that of its squares.
    pub(super) fn weighted(&self, weights: &[f64]) -> Weighted {
        let dot = |of: &[f64]| weights.iter().zip(of).map(|(weight, of)| weight * of).sum();
        let (mut squares, mut magnitude) = (0.0, 0.0);
        for row in 0..weights.len() {
            for column in 0..=row {
                let twice = if row == column { 1.0 } else { 2.0 };
                let product = twice * weights[row] * weights[column] * self.products[place(row, column)];
                squares += product;
                magnitude += product.abs();
            }
        }
        Weighted { sum: dot(&self.sums), with_size: dot(&self.with_size), squares, magnitude }
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
