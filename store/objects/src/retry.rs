//! When a request is made again: decided here, without a clock and without a connection.
//!
//! Full jitter (Brooker, "Exponential Backoff And Jitter", 2015): the wait is drawn from 0 to a bound that doubles. All requests of the
//! process share a budget for repeating, so that a store that is overloaded is asked less, not more.

use std::time::Duration;

/// How long a request is repeated, from its beginning on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
const FIRST_BOUND: Duration = Duration::from_millis(100);
const LAST_BOUND: Duration = Duration::from_secs(20);

/// One request, as often as it is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    made: u32,
}

impl Attempts {
    /// How often it was made.
    pub(crate) fn made(self) -> u32 {
        self.made
    }

    /// It has failed, `since` after it was made first, with what passes. How long to wait before it is made again; `None`: it is given up.
    /// `draw`: a number from 0 to 1. `asked`: what the server has asked to wait (`Retry-After`), which is waited at least.
    pub(crate) fn failed(
        &mut self,
        since: Duration,
        patience: Duration,
        draw: f64,
        asked: Option<Duration>,
    ) -> Option<Duration> {
        let bound = FIRST_BOUND.saturating_mul(1 << self.made.min(16)).min(LAST_BOUND);
        self.made += 1;
        // What all would do at once when the time that the server has asked for is over is spread, too.
        let wait = asked.unwrap_or_default().saturating_add(bound.mul_f64(draw.clamp(0.0, 1.0)));
        (since.saturating_add(wait) <= patience).then_some(wait)
    }
}

/// What all requests of the process may repeat: each repetition takes a token, and so many come back with time.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: f64,
    at: Duration,
}

impl Budget {
    const FULL: f64 = 100.0;
    const PER_SECOND: f64 = 20.0;

    /// Full, at a time since some beginning.
    pub(crate) fn new(now: Duration) -> Self {
        Self { tokens: Self::FULL, at: now }
    }

    /// Takes a token; how long to wait until it is there.
    pub(crate) fn take(&mut self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + since * Self::PER_SECOND).min(Self::FULL) - 1.0;
        self.at = now.max(self.at);
        Duration::from_secs_f64((-self.tokens).max(0.0) / Self::PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn waits_are_drawn_below_a_bound_that_doubles_until_patience_ends() {
        let mut attempts = Attempts::default();
        let waits: Vec<_> = (0..10).map(|_| attempts.failed(Duration::ZERO, PATIENCE, 1.0, None).unwrap()).collect();
        assert_eq!((waits[0], waits[1], waits[6], waits[9]), (S / 10, S / 5, 6400 * S / 1000, 20 * S));
        assert_eq!(attempts.made(), 10);
        assert_eq!(Attempts::default().failed(Duration::ZERO, PATIENCE, 0.0, None), Some(Duration::ZERO));
        assert_eq!(attempts.failed(PATIENCE - S, PATIENCE, 1.0, None), None, "20 s more are beyond it");
        assert_eq!(attempts.failed(PATIENCE - S, PATIENCE, 0.01, None), Some(S / 5));
    }

    #[test]
    fn what_the_server_asks_for_is_waited_at_least() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.failed(Duration::ZERO, PATIENCE, 0.5, Some(7 * S)), Some(7 * S + S / 20));
        assert_eq!(attempts.failed(Duration::ZERO, PATIENCE, 0.5, Some(PATIENCE + S)), None);
        assert_eq!(attempts.failed(S, PATIENCE, 1.0, Some(Duration::from_secs(u64::MAX))), None);
    }

    #[test]
    fn a_budget_is_shared_and_comes_back() {
        let mut budget = Budget::new(S);
        for _ in 0..100 {
            assert_eq!(budget.take(S), Duration::ZERO);
        }
        assert_eq!(budget.take(S), S / 20);
        assert_eq!(budget.take(S), S / 10, "those who wait do so one behind the other");
        assert_eq!(budget.take(6 * S), Duration::ZERO);
    }
}
