//! Time behind a trait, so that the same code runs on real and on simulated time (law 9).

use std::any::Any;
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

    /// How long the calling thread has had a processor, since an arbitrary start; what else the machine does shows little in it.
    /// Without such a figure, and where time is simulated, it is `now`.
    fn thread_time(&self) -> Duration {
        self.now()
    }

    /// A thread has something to do that somebody waits for: simulated time, which passes while everybody waits, stands still until
    /// this is dropped. Real time passes all the same.
    fn hold(&self) -> Hold {
        Hold::default()
    }
}

/// See [`Clock::hold`].
#[derive(Default)]
pub struct Hold(Option<Box<dyn Any + Send + Sync>>);

impl Hold {
    /// Ends when `held` is dropped.
    pub fn of(held: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(held)))
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hold").field(&self.0.is_some()).finish()
    }
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

    fn thread_time(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    }

    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}
