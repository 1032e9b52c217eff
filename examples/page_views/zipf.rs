//! Ranks by Zipf's law, and the random numbers that they are drawn with.

use exobus::random::{Random, SeededRandom};

/// Numbers that follow from a seed.
pub struct Numbers(SeededRandom);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// Two independent ones from 0 up to 1, without 1.
    pub fn two(&self) -> (f64, f64) {
        let number = self.0.next_u128();
        let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        (unit((number >> 64) as u64), unit(number as u64))
    }
}

/// All bits of a number in all bits of another one, as the last step of SplitMix64 has it.
pub fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Ranks from 1 on, of which each is drawn as often as `rank^-exponent` says: rejection-inversion (Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
/// 1996), which takes the same time, and no memory, however many ranks there are.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    exponent: f64,
    ranks: f64,
    /// The integral at the lower end, less what the first rank has of it, and at the upper end.
    ends: (f64, f64),
    /// So near to a point that is drawn its rank is accepted at once.
    near: f64,
}

impl Zipf {
    /// `ranks` is 1 at least, `exponent` above 0.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!(ranks > 0 && exponent > 0.0, "{ranks} ranks, exponent {exponent}");
        let mut zipf = Self { exponent, ranks: ranks as f64, ends: (0.0, 0.0), near: 0.0 };
        zipf.ends = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.ranks + 0.5));
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// The next rank.
    pub fn draw(&self, numbers: &Numbers) -> u64 {
        let (low, high) = self.ends;
        loop {
            let (one, other) = numbers.two();
            for unit in [one, other] {
                let at = high + unit * (low - high);
                let point = self.inverse(at);
                let rank = (point + 0.5).floor().clamp(1.0, self.ranks);
                if rank - point <= self.near || at >= self.integral(rank + 0.5) - self.density(rank) {
                    return rank as u64;
                }
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        (-self.exponent * at.ln()).exp()
    }

    /// Of the density, from 1 on.
    fn integral(&self, at: f64) -> f64 {
        let log = at.ln();
        let power = (1.0 - self.exponent) * log;
        log * if power.abs() < 1e-8 { 1.0 + power / 2.0 } else { power.exp_m1() / power }
    }

    /// Where the integral is so much.
    fn inverse(&self, integral: f64) -> f64 {
        let power = ((1.0 - self.exponent) * integral).max(-1.0);
        (integral * if power.abs() < 1e-8 { 1.0 - power / 2.0 } else { power.ln_1p() / power }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_the_law_says() {
        const DRAWS: u64 = 200_000;
        for (ranks, exponent) in [(1, 1.0), (2, 0.9), (50, 1.0), (1_000, 0.95), (1_000, 1.3)] {
            let (zipf, numbers) = (Zipf::new(ranks, exponent), Numbers::new(3));
            let mut drawn = vec![0_u64; ranks as usize];
            (0..DRAWS).for_each(|_| drawn[zipf.draw(&numbers) as usize - 1] += 1);
            let weight = |rank: u64| (rank as f64).powf(-exponent);
            let all: f64 = (1..=ranks).map(weight).sum();
            // The first ranks one by one, and all others together.
            let mut rest = (0, 0.0);
            for rank in 1..=ranks {
                let (found, expected) = (drawn[rank as usize - 1], DRAWS as f64 * weight(rank) / all);
                if rank > 20 {
                    rest = (rest.0 + found, rest.1 + expected);
                } else {
                    assert!((found as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{ranks} {rank}: {found}");
                }
            }
            assert!((rest.0 as f64 - rest.1).abs() <= 5.0 * rest.1.sqrt(), "{ranks}: {rest:?}");
        }
    }

    #[test]
    fn millions_of_ranks_are_drawn_without_a_table() {
        let (zipf, numbers) = (Zipf::new(50_000_000, 0.95), Numbers::new(1));
        let drawn: Vec<u64> = (0..10_000).map(|_| zipf.draw(&numbers)).collect();
        assert!(drawn.iter().all(|rank| (1..=50_000_000).contains(rank)));
        assert!(drawn.iter().max() > Some(&40_000_000) && drawn.contains(&1));
    }
}
