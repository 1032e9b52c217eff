//! Bounds that rest on means of totals of blocks being about normal: Student's t over residuals of totals.
//!
//! A total T of a term is estimated by the ratio of what was read of it to the sizes that were read, R = Σt / Σm, times the size of all, M: where blocks differ in size that explains most of how their totals
//! differ. What is left of each block is its residual e = t - R m, and Var(M R) = (M / m̄)² (1 - n / N) s² / n, with s² = Σe² / (n - 1) and m̄ the mean size (Cochran, "Sampling Techniques", 1977, section 6.4).
//! For an expression of totals the residual is the sum of those of its totals, each with the derivative by it (section 6.19; Woodruff, "A simple method for approximating the variance of a complicated estimate", 1971).
//!
//! It asks for 30 blocks, and 30 of them with the group, whose residuals are not all zero: a value that is alike in all of them would have bounds without any width, though it may be another one in blocks that were not
//! read. What is known without reading is not asked for here. What it is worth where totals of blocks are very uneven is measured in `docs/online.md`.

use super::answer::{Bounds, Estimate, Kind, NoBounds};
use super::dual::Dual;
use super::looks::Look;
use super::quantiles::student;
use super::totals::{Sample, Totals};

/// Bounds are given where so many blocks were read that have the group.
pub const BLOCKS_MIN: u64 = 30;

/// What an expression of the totals of a group is in all of the table. Where all was read, what was is the answer.
pub fn estimate(look: &Look, sample: &Sample, totals: &Totals, expression: impl FnOnce(&[Dual]) -> Dual) -> Estimate {
    let terms = totals.terms();
    let (n, all) = (sample.blocks as f64, look.population.blocks as f64);
    let is_all = sample.blocks >= look.population.blocks;
    // A table whose size is known and of which nothing was read that has a size has no rows there.
    let grown = if is_all || sample.size == 0.0 { 1.0 } else { look.population.size / sample.size };
    let of_term = |term| Dual::estimate(grown * totals.sum(term), term, terms);
    let estimated = expression(&(0..terms).map(of_term).collect::<Vec<_>>());
    if !estimated.value.is_finite() {
        return Estimate::unbounded(estimated.value, NoBounds::NoNumber);
    }
    if is_all {
        return Estimate::exact(estimated.value, Kind::Approximate);
    }
    if sample.blocks < BLOCKS_MIN {
        return Estimate::unbounded(estimated.value, NoBounds::FewBlocks { blocks: sample.blocks, least: BLOCKS_MIN });
    }
    if totals.blocks() < BLOCKS_MIN {
        return Estimate::unbounded(
            estimated.value,
            NoBounds::RareGroup { blocks: totals.blocks(), least: BLOCKS_MIN },
        );
    }
    // Σ(w - R m)² = Σw² - 2 R Σwm + R² Σm², with w the sum of the terms with their derivatives.
    let weighted = totals.weighted(&estimated.gradient);
    let ratio = if sample.size == 0.0 { 0.0 } else { weighted.sum / sample.size };
    let of_size = ratio * (ratio * sample.size_squares - 2.0 * weighted.with_size);
    // What is left where they are all but alike is what sums were rounded by.
    let of_sizes = ratio * ratio * sample.size_squares + 2.0 * (ratio * weighted.with_size).abs();
    let (squares, rounded) = (weighted.squares + of_size, f64::EPSILON * n * (weighted.magnitude + of_sizes));
    if !rounded.is_finite() {
        return Estimate::unbounded(estimated.value, NoBounds::NoNumber);
    }
    if squares <= rounded {
        return Estimate::unbounded(estimated.value, NoBounds::NoVariation);
    }
    let variance = (squares + rounded) / (n - 1.0) * (1.0 - n / all) / n;
    let half_width = student(look.error_probability / 2.0, n - 1.0) * n * grown * variance.sqrt();
    if !half_width.is_finite() {
        return Estimate::unbounded(estimated.value, NoBounds::NoNumber);
    }
    let (low, high) = (estimated.value - half_width, estimated.value + half_width);
    Estimate { value: estimated.value, bounds: Ok(Bounds { low, high, kind: Kind::Approximate, level: look.level() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::Population;

    fn look(blocks: u64, size: f64) -> Look {
        Look { population: Population { blocks, size }, error_probability: 0.05 }
    }

    /// Blocks with so many rows each, and totals of two terms in them.
    fn read(blocks: impl IntoIterator<Item = (f64, [f64; 2])>) -> (Sample, Totals) {
        let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
        for (size, of) in blocks {
            sample.add(size);
            totals.add(size, &of);
        }
        (sample, totals)
    }

    #[test]
    fn where_blocks_do_not_differ_but_in_size_there_are_no_bounds() {
        let look = look(400, 9_000.0);
        let sum_of = |sum: &dyn Fn(f64) -> f64| {
            let (sample, totals) = read((10..50).map(|size| (f64::from(size), [sum(f64::from(size)), 1.0])));
            estimate(&look, &sample, &totals, |of| of[0].clone())
        };
        // As much in each row of the blocks that were read. What sums are rounded by is no difference.
        for of_row in [0.0, 3.0, 0.1, -1e12 / 3.0] {
            let sum = sum_of(&|size| of_row * size);
            let expected = 9_000.0 * of_row;
            assert!((sum.value - expected).abs() <= 1e-9 * expected.abs(), "{sum:?}");
            assert_eq!(sum.bounds, Err(NoBounds::NoVariation), "{of_row}");
        }
        // One block that differs is enough.
        let sum = sum_of(&|size| if size == 40.0 { 1.0 } else { 0.0 });
        assert!(sum.bounds.unwrap().half_width() > 0.0, "{sum:?}");
        let (sample, totals) = read((10..50).map(|size| (f64::from(size), [f64::from(size), f64::from(size % 7)])));
        let mean = estimate(&look, &sample, &totals, |of| &of[0] / &of[0]);
        assert_eq!((mean.value, mean.bounds), (1.0, Err(NoBounds::NoVariation)));
        let all = Look { population: Population { blocks: 40, size: sample.size }, error_probability: 0.05 };
        assert!(estimate(&all, &sample, &totals, |of| of[0].clone()).bounds.unwrap().are_exact());
    }

    #[test]
    fn numbers_that_are_too_large_have_no_bounds() {
        let (sample, totals) = read((0..40).map(|block| (10.0, [1e200 * f64::from(block % 3), 1.0])));
        let sum = estimate(&look(400, 4_000.0), &sample, &totals, |of| of[0].clone());
        assert_eq!(sum.bounds, Err(NoBounds::NoNumber));
    }

    #[test]
    fn a_total_of_even_blocks_has_the_bounds_of_its_mean() {
        let (sample, totals) = read((0..50).map(|block| (100.0, [f64::from(block % 5), 1.0])));
        let sum = estimate(&look(1_000, 100_000.0), &sample, &totals, |of| of[0].clone());
        // Values 0, 1, 2, 3, 4 ten times each: mean 2, variance 2 * 50 / 49.
        let error = 1_000.0 * (2.0 * 50.0 / 49.0 / 50.0 * 0.95_f64).sqrt();
        let bounds = sum.bounds.unwrap();
        assert!((sum.value - 2_000.0).abs() < 1e-9);
        assert!((bounds.half_width() - 2.009_575 * error).abs() < 1e-3, "{bounds:?}");
        assert_eq!((bounds.kind, bounds.level), (Kind::Approximate, 0.95));
    }

    #[test]
    fn too_few_blocks_have_no_bounds_and_all_of_them_are_the_answer() {
        let (sample, totals) = read((0..29).map(|block| (1.0, [f64::from(block), 1.0])));
        let few = estimate(&look(100, 100.0), &sample, &totals, |of| of[0].clone());
        assert_eq!(few.bounds, Err(NoBounds::FewBlocks { blocks: 29, least: 30 }));
        let all = estimate(&look(29, 29.0), &sample, &totals, |of| &of[0] / &of[1]);
        assert_eq!((all.value, all.bounds.unwrap().half_width()), (14.0, 0.0));
        let (mut sample, totals) = read((0..29).map(|block| (1.0, [f64::from(block), 1.0])));
        (0..20).for_each(|_| sample.add(1.0));
        let rare = estimate(&look(100, 100.0), &sample, &totals, |of| of[0].clone());
        assert_eq!(rare.bounds, Err(NoBounds::RareGroup { blocks: 29, least: 30 }));
        let zero = estimate(&look(100, 100.0), &sample, &totals, |of| &of[0] / &(&of[1] - &of[1]));
        assert_eq!(zero.bounds, Err(NoBounds::NoNumber));
    }
}
