//! Bounds that rest on the sample being random and on ranges from metadata alone.
//!
//! The mean of n of N values in [a, b], drawn without replacement, is above that of all by more than σ̂ √(2 ρ ln(5/δ) / n) + κ (b - a) ln(5/δ) / n with probability δ at most, with σ̂² the variance of what was drawn, by n,
//! ρ = 1 - (n - 1) / N up to half of all and (1 - n / N) (1 + 1 / n) from there on, and κ = 7/3 + 3/√2; the same below (empirical Bernstein-Serfling: Bardenet and Maillard, "Concentration inequalities for sampling
//! without replacement", Bernoulli 2015, theorem 4.3). Here values are totals of blocks. What blocks that were not read may have at least and at most is a bound, too, which nothing makes wrong.

use serde::{Deserialize, Serialize};

use super::answer::{Bounds, Estimate, Kind, NoBounds};
use super::looks::Look;
use super::totals::{Sample, Totals, Weighted};

/// Fewer blocks have no variance.
pub const BLOCKS_MIN: u64 = 2;
/// How close to the end of a bound of a mean it is given: this part of the range of the values.
const MEAN_PRECISION: f64 = 1e-9;

/// The least and the most that something can be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Range {
    fn width(&self) -> f64 {
        self.high - self.low
    }

    fn clamped(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// The part that it has in common with another one that holds as well.
    fn and(&self, other: &Self) -> Self {
        let low = self.low.max(other.low);
        Self { low, high: self.high.min(other.high).max(low) }
    }
}

/// What a total of a group can be, by metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TotalRanges {
    /// In any block.
    pub of_block: Range,
    /// In all blocks together that were not read.
    pub of_rest: Range,
}

/// What the total of a term of a group is in all of the table.
pub fn total(look: &Look, sample: &Sample, totals: &Totals, term: usize, ranges: &TotalRanges) -> Estimate {
    let mut weights = vec![0.0; totals.terms()];
    weights[term] = 1.0;
    let weighted = totals.weighted(&weights);
    let blocks = look.population.blocks as f64;
    if sample.blocks >= look.population.blocks {
        return Estimate::exact(weighted.sum, Kind::Guaranteed);
    }
    let expanded = blocks * weighted.sum / sample.blocks.max(1) as f64;
    if sample.blocks < BLOCKS_MIN {
        return Estimate::unbounded(expanded, NoBounds::FewBlocks { blocks: sample.blocks, least: BLOCKS_MIN });
    }
    let error = blocks * deviation(look, sample.blocks, &weighted, ranges.of_block.width());
    let drawn = Range { low: expanded - error, high: expanded + error };
    let left = Range { low: weighted.sum + ranges.of_rest.low, high: weighted.sum + ranges.of_rest.high };
    given(look, drawn.and(&left), expanded)
}

/// What the mean of the values of a group is, which are in this range: the terms are how many rows have one, and their sum. A block has so many rows at most.
///
/// Of the mean of all, r, the totals Σ(x - r) of blocks add up to zero: what is between the bounds are those r for which what was read does not contradict that.
pub fn mean(
    look: &Look,
    sample: &Sample,
    totals: &Totals,
    (count, sum): (usize, usize),
    values: &Range,
    rows_max: f64,
) -> Estimate {
    let value = totals.sum(sum) / totals.sum(count);
    if !value.is_finite() {
        return Estimate::unbounded(value, NoBounds::NoNumber);
    }
    if sample.blocks >= look.population.blocks {
        return Estimate::exact(value, Kind::Guaranteed);
    }
    if sample.blocks < BLOCKS_MIN {
        return Estimate::unbounded(value, NoBounds::FewBlocks { blocks: sample.blocks, least: BLOCKS_MIN });
    }
    let value = values.clamped(value);
    // How much the mean total of what was read is away from zero, where this is the mean of all, beyond what chance makes of that.
    let contradicts = |mean: f64| {
        let mut weights = vec![0.0; totals.terms()];
        weights[sum] += 1.0;
        weights[count] -= mean;
        let weighted = totals.weighted(&weights);
        let width = rows_max * ((values.high - mean).max(0.0) + (mean - values.low).max(0.0));
        (weighted.sum / sample.blocks as f64).abs() > deviation(look, sample.blocks, &weighted, width)
    };
    let end = |outer: f64| {
        // `inner` does not contradict, `outer` may.
        let (mut inner, mut outer) = (value, outer);
        if !contradicts(outer) {
            return outer;
        }
        while (outer - inner).abs() > MEAN_PRECISION * values.width() {
            let middle = inner + (outer - inner) / 2.0;
            if middle == inner || middle == outer {
                break;
            }
            if contradicts(middle) { outer = middle } else { inner = middle }
        }
        outer
    };
    given(look, Range { low: end(values.low), high: end(values.high) }, value)
}

/// How many blocks have rows of a group at most that none of those has that were read: were there more, one would have been met, but for this probability. With a share s of the blocks, h of them are all missed with a
/// probability of (1 - s)^h at most, in [either order](super::spread_order): blocks are missed together no more often than if each were missed by itself.
pub fn blocks_with_absent(look: &Look, read: u64) -> u64 {
    let unread = look.population.blocks.saturating_sub(read);
    let missed = unread as f64 / look.population.blocks as f64;
    // With which probability none of so many is met.
    let mut unmet = 1.0;
    for blocks in 0..unread {
        unmet *= missed;
        if unmet <= look.error_probability {
            return blocks;
        }
    }
    unread
}

fn given(look: &Look, bounds: Range, value: f64) -> Estimate {
    let Range { low, high } = bounds;
    let bounds = Bounds { low, high, kind: Kind::Guaranteed, level: look.level() };
    Estimate { value: Range { low, high }.clamped(value), bounds: Ok(bounds) }
}

/// How far the mean of totals of blocks may be away from that of all, on either side.
fn deviation(look: &Look, read: u64, totals: &Weighted, width: f64) -> f64 {
    let (n, all) = (read as f64, look.population.blocks as f64);
    let mean = totals.sum / n;
    // Squares may have cancelled each other: what they were rounded by is part of it.
    let variance = (totals.squares / n - mean * mean).max(0.0) + f64::EPSILON * totals.magnitude;
    let rho =
        if read * 2 <= look.population.blocks { 1.0 - (n - 1.0) / all } else { (1.0 - n / all) * (1.0 + 1.0 / n) };
    // Each side may be wrong with half of the probability.
    let log = (5.0 / (look.error_probability / 2.0)).ln();
    let kappa = 7.0 / 3.0 + 3.0 / std::f64::consts::SQRT_2;
    (2.0 * variance * rho * log / n).sqrt() + kappa * width * log / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::Population;

    fn look(blocks: u64) -> Look {
        Look { population: Population { blocks, size: blocks as f64 * 10.0 }, error_probability: 0.05 }
    }

    /// Blocks of ten rows, with how many of the group and their sum.
    fn read(blocks: impl IntoIterator<Item = [f64; 2]>) -> (Sample, Totals) {
        let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
        for of in blocks {
            sample.add(10.0);
            totals.add(10.0, &of);
        }
        (sample, totals)
    }

    #[test]
    fn a_deviation_is_what_the_theorem_says() {
        let (sample, totals) = read([[1.0, 0.0], [3.0, 0.0], [1.0, 0.0], [3.0, 0.0]]);
        let ranges = TotalRanges { of_block: Range { low: 0.0, high: 10.0 }, of_rest: Range { low: 0.0, high: 1e9 } };
        let bounds = total(&look(100), &sample, &totals, 0, &ranges).bounds.unwrap();
        // σ̂ = 1, ρ = 0.97, ln(5 / 0.025) = 5.2983, κ = 4.4547.
        let expected = 100.0 * ((2.0 * 0.97 * 5.298_317_f64 / 4.0).sqrt() + 4.454_653_7 * 10.0 * 5.298_317 / 4.0);
        assert!((bounds.high - 200.0 - expected).abs() < 1e-2, "{bounds:?} {expected}");
        assert_eq!((bounds.low, bounds.kind), (8.0, Kind::Guaranteed), "what was read is there");
    }

    #[test]
    fn what_was_not_read_bounds_what_is_left() {
        let (sample, totals) = read((0..90).map(|_| [5.0, 20.0]));
        let ranges = TotalRanges { of_block: Range { low: 0.0, high: 10.0 }, of_rest: Range { low: 0.0, high: 100.0 } };
        let count = total(&look(100), &sample, &totals, 0, &ranges);
        let bounds = count.bounds.unwrap();
        assert_eq!((count.value, bounds.low, bounds.high), (500.0, 450.0, 550.0));
        let all = total(&look(90), &sample, &totals, 0, &ranges);
        assert_eq!((all.value, all.bounds.unwrap().half_width()), (450.0, 0.0));
    }

    #[test]
    fn a_mean_is_between_bounds_that_close_as_more_is_read() {
        let values = Range { low: 0.0, high: 8.0 };
        let width = |blocks: u64| {
            let (sample, totals) = read((0..blocks).map(|block| [5.0, 20.0 + (block % 3) as f64]));
            let mean = mean(&look(100_000), &sample, &totals, (0, 1), &values, 10.0);
            let bounds = mean.bounds.unwrap();
            assert!(bounds.contain(mean.value) && bounds.low >= 0.0 && bounds.high <= 8.0, "{mean:?}");
            bounds.half_width()
        };
        assert!(
            width(100) > 2.0 * width(1_000) && width(1_000) > 4.0 * width(10_000),
            "{} {}",
            width(100),
            width(10_000)
        );
        let (sample, totals) = read([[0.0, 0.0], [0.0, 0.0]]);
        assert_eq!(mean(&look(10), &sample, &totals, (0, 1), &values, 10.0).bounds, Err(NoBounds::NoNumber));
    }

    #[test]
    fn values_that_are_large_beside_their_spread_have_bounds_that_are_not_too_narrow() {
        // Milliseconds since 1970, all within a second; the mean of all is known to be in the middle.
        let values = Range { low: 1.7e12, high: 1.7e12 + 1e3 };
        let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
        for block in 0..100 {
            sample.add(25_000.0);
            totals.add(25_000.0, &[25_000.0, 25_000.0 * (1.7e12 + f64::from(block % 11) * 100.0)]);
        }
        let look = Look { population: Population { blocks: 10_000, size: 2.5e8 }, error_probability: 0.05 };
        let bounds = mean(&look, &sample, &totals, (0, 1), &values, 25_000.0).bounds.unwrap();
        assert!(bounds.low <= 1.7e12 + 480.0 && bounds.high >= 1.7e12 + 520.0, "{bounds:?}");
        // So large that there is nothing between two of them.
        let values = Range { low: 1.7e18, high: 1.7e18 + 1e3 };
        let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
        (0..9).for_each(|_| {
            sample.add(10.0);
            totals.add(10.0, &[10.0, 1.7e19]);
        });
        assert!(mean(&look, &sample, &totals, (0, 1), &values, 10.0).bounds.is_ok());
    }

    #[test]
    fn so_many_blocks_have_what_was_never_met_and_one_more_would_have_been_seen() {
        // 0.7 to the power of h is 0.0576 for h = 8 and 0.0404 for 9.
        assert_eq!(blocks_with_absent(&look(100), 30), 8);
        assert_eq!((blocks_with_absent(&look(100), 100), blocks_with_absent(&look(100), 0)), (0, 100));
        // One block is missed by 90 of 100 with a probability of 0.1, two with one of 0.01.
        assert_eq!((blocks_with_absent(&look(100), 90), blocks_with_absent(&look(100), 99)), (1, 0));
    }
}
