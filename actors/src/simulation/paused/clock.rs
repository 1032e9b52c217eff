//! The paused clock of a tokio runtime, for everybody who asks a [`Clock`].

use std::sync::mpsc;
use std::time::Duration;

use exobus_store::{Clock, Hold};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::simulation::dice::BEGIN_MS;

/// Time passes when nobody on the runtime can go on, to the next moment that somebody waits for; and not while a thread has something to
/// do ([`Clock::hold`]).
pub(super) struct PausedClock {
    runtime: Handle,
    began: Instant,
}

impl PausedClock {
    /// The clock of the current runtime, which begins at zero.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), began: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Duration {
        // Threads of their own would be told the real time.
        let _within = self.runtime.enter();
        Instant::now() - self.began
    }

    fn unix_ms(&self) -> u64 {
        BEGIN_MS + self.now().as_millis() as u64
    }

    fn hold(&self) -> Hold {
        let (hold, over) = mpsc::channel::<()>();
        // The clock of a runtime stands while it has blocking work.
        drop(self.runtime.spawn_blocking(move || over.recv()));
        Hold::of(hold)
    }
}
