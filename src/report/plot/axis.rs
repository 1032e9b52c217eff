//! Axes: where a value is drawn, and which values are written beside it.

use super::super::text;
use crate::config::units::size;

/// The time of a job from left to right.
pub(super) struct Time {
    duration_us: u64,
    left: f64,
    right: f64,
}

impl Time {
    pub(super) fn new(duration_us: u64, left: f64, right: f64) -> Self {
        Self { duration_us: duration_us.max(1), left, right }
    }

    /// Where a moment is; what is later than the end is at the end.
    pub(super) fn x(&self, at_us: u64) -> f64 {
        let share = at_us.min(self.duration_us) as f64 / self.duration_us as f64;
        self.left + share * (self.right - self.left)
    }

    pub(super) fn left(&self) -> f64 {
        self.left
    }

    pub(super) fn right(&self) -> f64 {
        self.right
    }

    pub(super) fn duration_us(&self) -> u64 {
        self.duration_us
    }

    /// Round moments, at most a dozen, and how they are written.
    pub(super) fn ticks(&self) -> Vec<(u64, String)> {
        const STEPS_US: [u64; 30] = [
            1,
            2,
            5,
            10,
            20,
            50,
            100,
            200,
            500,
            1_000,
            2_000,
            5_000,
            10_000,
            20_000,
            50_000,
            100_000,
            200_000,
            500_000,
            1_000_000,
            2_000_000,
            5_000_000,
            10_000_000,
            20_000_000,
            30_000_000,
            60_000_000,
            120_000_000,
            300_000_000,
            600_000_000,
            1_800_000_000,
            3_600_000_000,
        ];
        let enough = |step: &u64| self.duration_us / step <= 12;
        let last = STEPS_US[STEPS_US.len() - 1];
        let step = STEPS_US.into_iter().find(enough).unwrap_or((self.duration_us / 12).next_multiple_of(last));
        (0..=self.duration_us / step).map(|nth| (nth * step, moment(nth * step, step))).collect()
    }
}

fn moment(at_us: u64, step_us: u64) -> String {
    match step_us {
        _ if at_us == 0 => "0".into(),
        1..1_000 => format!("{at_us} µs"),
        1_000..100_000 => format!("{} ms", at_us / 1_000),
        100_000..1_000_000 => format!("{:.1} s", at_us as f64 / 1e6),
        1_000_000..60_000_000 => format!("{} s", at_us / 1_000_000),
        60_000_000..3_600_000_000 => format!("{} min", at_us / 60_000_000),
        _ => format!("{} h", at_us / 3_600_000_000),
    }
}

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// Data, powers of ten.
    Bytes,
    /// The same, each second.
    BytesPerSecond,
    /// Memory, powers of two.
    Memory,
    /// A number of something.
    Count,
}

impl Unit {
    /// Round values from 0 up to the first that is not below `most`, three to five of them.
    pub(super) fn ticks(self, most: f64) -> Vec<f64> {
        let least = match self {
            Self::Count => 1.0,
            Self::Bytes | Self::BytesPerSecond | Self::Memory => 1024.0,
        };
        let wanted = most.max(least) / 4.0;
        let step = match self {
            Self::Memory => wanted.log2().ceil().exp2(),
            _ => {
                let power = 10f64.powf(wanted.log10().floor());
                let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|round| round * power >= wanted * 0.999);
                round.unwrap_or(10.0) * power
            }
        };
        (0..=(most.max(least) / step * 0.999).ceil() as u64).map(|nth| nth as f64 * step).collect()
    }

    pub(super) fn written(self, value: f64) -> String {
        match self {
            _ if value == 0.0 => "0".into(),
            Self::Bytes => round(&text::bytes(value as u64)),
            Self::BytesPerSecond => format!("{}/s", round(&text::bytes(value as u64))),
            Self::Memory => round(&size(value as u64)),
            Self::Count => format!("{}", (value * 100.0).round() / 100.0),
        }
    }
}

/// "2.00 GB" as "2 GB": ticks are round numbers.
fn round(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_largest_value() {
        let check = |unit: Unit, most: f64, expected: &[&str]| {
            let ticks: Vec<String> = unit.ticks(most).into_iter().map(|tick| unit.written(tick)).collect();
            assert_eq!(ticks, expected, "{most}");
            assert!(unit.ticks(most).last().unwrap() * 1.01 >= most);
        };
        check(Unit::BytesPerSecond, 1.9e9, &["0", "500 MB/s", "1 GB/s", "1.5 GB/s", "2 GB/s"]);
        check(Unit::Bytes, 1e9, &["0", "250 MB", "500 MB", "750 MB", "1 GB"]);
        check(Unit::Memory, 300.0 * 1048576.0, &["0", "128 MiB", "256 MiB", "384 MiB"]);
        check(Unit::Count, 2.3, &["0", "1", "2", "3"]);
        check(Unit::Count, 0.0, &["0", "0.25", "0.5", "0.75", "1"]);
    }

    #[test]
    fn moments_have_the_unit_of_their_step() {
        let written = |duration_us: u64| {
            let ticks = Time::new(duration_us, 0.0, 100.0).ticks();
            assert!(ticks.len() <= 13, "{ticks:?}");
            ticks[1].1.clone()
        };
        assert_eq!(written(9_000), "1 ms");
        assert_eq!(written(4_700_000), "0.5 s");
        assert_eq!(written(100_000_000), "10 s");
        assert_eq!(written(700_000_000), "1 min");
        assert_eq!(written(90 * 3_600_000_000), "8 h");
    }
}
