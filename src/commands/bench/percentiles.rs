//! p50 and p99 of measured times.

use std::time::Duration;

/// The time that this share (0 to 1) of the measurements did not exceed; sorts them.
pub(super) fn percentile(times: &mut [Duration], share: f64) -> Duration {
    if times.is_empty() {
        return Duration::ZERO;
    }
    times.sort_unstable();
    let rank = (times.len() as f64 * share).ceil() as usize;
    times[rank.clamp(1, times.len()) - 1]
}

/// Microseconds with their fraction.
pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(&mut times, 0.5), Duration::from_micros(50));
        assert_eq!(percentile(&mut times, 0.99), Duration::from_micros(99));
        assert_eq!(percentile(&mut times, 1.0), Duration::from_micros(100));
        assert_eq!(percentile(&mut [], 0.5), Duration::ZERO);
    }
}
