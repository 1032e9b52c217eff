//! How long the tasks of a function take: a histogram of fixed size, whatever the number of tasks.

/// Buckets for each doubling: a bucket is at most a quarter wider than where it begins.
const STEPS: u64 = 4;
/// Up to 2^42 microseconds, 50 days; what takes longer is counted there.
const BUCKETS: usize = 160;

/// Times of tasks that are done.
#[derive(Debug)]
pub(super) struct RunTimes {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Default for RunTimes {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl RunTimes {
    pub(super) fn add(&mut self, micros: u64) {
        let count = &mut self.counts[bucket(micros)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.total
    }

    /// The time within which half of them were done: never less, and at most a quarter more. 0 where there is none.
    pub(super) fn median_micros(&self) -> u64 {
        let mut seen = 0;
        let half = |count: &u32| {
            seen += u64::from(*count);
            seen * 2 >= self.total
        };
        if self.total == 0 { 0 } else { self.counts.iter().position(half).map_or(u64::MAX, last_of) }
    }
}

fn bucket(micros: u64) -> usize {
    // Less than STEPS microseconds are not told apart.
    let micros = micros.max(STEPS);
    let doublings = u64::from(micros.ilog2() - STEPS.ilog2());
    let step = (micros >> doublings) - STEPS;
    ((doublings * STEPS + step) as usize).min(BUCKETS - 1)
}

/// The longest time, microseconds, that is counted in a bucket.
fn last_of(bucket: usize) -> u64 {
    let (doublings, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    ((STEPS + step + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_bucket_which_is_a_quarter_wide_at_most() {
        for shift in 2..42 {
            for micros in [1u64 << shift, (1 << shift) + 1, (3 << shift) / 2, (2 << shift) - 1] {
                let last = last_of(bucket(micros));
                assert!(micros <= last && last <= micros + micros / 4, "{micros} is counted as {last}");
            }
        }
        assert_eq!(bucket(0), bucket(4));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn half_of_the_tasks_took_the_median_or_less() {
        let median = |times: &[u64]| {
            let mut all = RunTimes::default();
            times.iter().for_each(|micros| all.add(*micros));
            all.median_micros()
        };
        let about = |micros: u64| micros..=micros + micros / 4;
        assert_eq!(median(&[]), 0);
        assert!(about(1_000).contains(&median(&[1_000])));
        assert!(about(2_000).contains(&median(&[9_000_000, 2_000, 1_000])), "one straggler does not move it");
        assert!(about(1_000).contains(&median(&[1_000, 1_000, 9_000, 9_000])), "the lower one of two");
    }
}
