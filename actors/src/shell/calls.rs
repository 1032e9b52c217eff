//! [`Calls`]: how often something was asked for, and how long that took.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// An error's text is kept up to here, in characters.
const ERROR_CHARS_MAX: usize = 200;

/// Counts the requests of one endpoint. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Count>>);

/// What was counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// Empty: there was none.
    pub(crate) last_error: String,
    /// How long all of them took together.
    pub(crate) took: Duration,
}

impl Calls {
    /// A request was worked on for so long, and failed with this error, if any.
    pub(crate) fn note(&self, took: Duration, error: Option<String>) {
        let mut count = self.0.lock();
        count.requests += 1;
        count.took += took;
        if let Some(error) = error {
            count.errors += 1;
            count.last_error = error.chars().take(ERROR_CHARS_MAX).collect();
        }
    }

    pub(crate) fn read(&self) -> Count {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_errors_and_their_time_add_up() {
        let calls = Calls::default();
        calls.note(Duration::from_millis(2), None);
        calls.clone().note(Duration::from_millis(3), Some("x".repeat(1000)));
        calls.note(Duration::from_millis(5), None);
        let last_error = "x".repeat(ERROR_CHARS_MAX);
        assert_eq!(calls.read(), Count { requests: 3, errors: 1, last_error, took: Duration::from_millis(10) });
    }
}
