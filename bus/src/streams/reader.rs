//! [`Reader`]: records in order, without acknowledgements.

use std::fmt;
use std::time::Duration;

use super::{Batch, Source};
use crate::error::BusError;

/// Reads a stream in order. It keeps its place itself, so it ends with the process: whoever must go on elsewhere notes
/// the last sequence and reads [from there](super::ReadFrom::Sequence), or takes a [consumer](super::Consumer).
pub struct Reader {
    source: Box<dyn Source>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        Self { source }
    }

    /// Up to `max` records (at least 1) as soon as there is one; none when `wait` is over. [`Batch::caught_up`] tells a replay
    /// where the past ends. Cancel safe; on NATS a cancelled wait costs a new
    /// consumer on the server, so rather give it a wait than cancel it often.
    ///
    /// # Errors
    /// `TimedOut` and others that are retryable: call again, it goes on where it was. `StreamMissing`, `Storage`, `Closed` are final.
    pub async fn next(&mut self, max: usize, wait: Duration) -> Result<Batch, BusError> {
        self.source.next(max.max(1), wait).await
    }
}
