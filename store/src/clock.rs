//! Time behind a trait, so that the same code runs on real and on simulated time (law 9).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where everybody takes the time from.
///
/// Implementers owe: `now` never goes backwards, is the same for all threads, and is not moved by changes of the wall
/// clock; leases, waits and measured times use nothing else. `unix_ms` is for people only (log lines, file headers).
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since an arbitrary start, usually that of the process.
    fn now(&self) -> Duration;

    /// Wall-clock milliseconds since 1970; may jump.
    fn unix_ms(&self) -> u64;
}

/// The clock of the operating system.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

#[allow(clippy::disallowed_methods, reason = "this is the one clock that reads the real time")]
impl SystemClock {
    /// A clock whose `now` starts at zero.
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the one clock that reads the real time")]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}
