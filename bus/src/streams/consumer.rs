//! [`Consumer`]: records that are delivered until somebody has acknowledged them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::stream::CALL_DEADLINE;
use super::{ConsumerBackend, Fetched, Record, Settle};
use crate::error::BusError;

/// A durable consumer; clones, and all who open it by name, share its records. It outlives them, with its place.
#[derive(Clone)]
pub struct Consumer {
    backend: Arc<dyn ConsumerBackend>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Consumer")
    }
}

impl Consumer {
    pub(super) fn new(backend: Arc<dyn ConsumerBackend>) -> Self {
        Self { backend }
    }

    /// Up to `max` records (at least 1) as soon as there is one; none when `wait` is over. What was delivered first comes
    /// first, whatever is due again before what is new. Cancelled, what was under way comes again after `ack_wait`.
    ///
    /// # Errors
    /// `ConsumerMissing`, `StreamMissing`, `TimedOut`, `Storage`, `Closed`.
    pub async fn fetch(&self, max: usize, wait: Duration) -> Result<Vec<Delivered>, BusError> {
        let fetched = self.backend.fetch(max.max(1), wait).await?;
        Ok(fetched.into_iter().map(|fetched| Delivered { fetched, backend: self.backend.clone() }).collect())
    }
}

/// A record that is delivered again after the consumer's `ack_wait`, unless it is acknowledged. Dropping it does nothing.
#[derive(Clone)]
pub struct Delivered {
    fetched: Fetched,
    backend: Arc<dyn ConsumerBackend>,
}

impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivered").field(&self.fetched).finish()
    }
}

impl Delivered {
    /// The record.
    pub fn record(&self) -> &Record {
        &self.fetched.record
    }

    /// How manieth delivery this is, from 1. There is no limit: whoever gives up on a record acknowledges it. In process it
    /// counts since the bus was made, on a server since the consumer was made.
    pub fn attempt(&self) -> u64 {
        self.fetched.attempt
    }

    /// Done: it will not be delivered again. JetStream writes that down a moment after it has answered: when the server is
    /// killed within it, the record comes again, so what is done with records must bear to be done twice. In a file it
    /// is synced before the answer.
    ///
    /// # Errors
    /// `TimedOut` after 5 s, `Storage`, `Closed`: it may be delivered again.
    pub async fn ack(&self) -> Result<(), BusError> {
        self.backend.settle(&self.fetched, Settle::Ack, CALL_DEADLINE).await
    }

    /// Not done: deliver it again after `delay`.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn nack(&self, delay: Duration) -> Result<(), BusError> {
        self.backend.settle(&self.fetched, Settle::Nack(delay), CALL_DEADLINE).await
    }

    /// Still at it: `ack_wait` begins anew.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn in_progress(&self) -> Result<(), BusError> {
        self.backend.settle(&self.fetched, Settle::InProgress, CALL_DEADLINE).await
    }
}
