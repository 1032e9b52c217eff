//! Chance and time of a world: both follow from its seed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_store::Clock;

use crate::random::{Random as _, SeededRandom};

/// What is drawn.
#[derive(Debug)]
pub(super) struct Dice(SeededRandom);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// A number below `n`; 0 where `n` is.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let drawn = (self.0.next_u128() >> 64) as u64;
        drawn.checked_rem(n).unwrap_or(0)
    }

    pub(super) fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Whether something happens that does so `per_mille` times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// A time in a range of microseconds.
    pub(super) fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.between(range))
    }

    /// A time in a range of milliseconds.
    pub(super) fn millis(&mut self, range: Range<u64>) -> Duration {
        self.micros(range.start * 1000..range.end * 1000)
    }

    /// One of several.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }
}

/// The time of a world, for whoever of ours asks a clock.
#[derive(Debug, Default)]
pub(super) struct VirtualClock(AtomicU64);

impl VirtualClock {
    pub(super) fn set(&self, now: Duration) {
        self.0.store(now.as_micros() as u64, Ordering::Relaxed);
    }
}

/// What the wall clock says when a world begins.
pub(super) const BEGIN_MS: u64 = 1_000_000;

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn unix_ms(&self) -> u64 {
        BEGIN_MS + self.now().as_millis() as u64
    }
}
