//! What a backend with durable streams owes. Repeating, key-value and bounds are built on it once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Append, Appended, Batch, ConsumerConfig, Purge, ReadFrom, Record, StreamConfig, StreamState, Usage};
use crate::error::BusError;
use crate::subject::{Pattern, Subject};

/// Durable streams. Arguments are checked already. Every call ends within its deadline, with `TimedOut` at the latest,
/// which says nothing about whether it was done; no call repeats anything by itself.
///
/// Errors common to all: `StreamMissing`, `TimedOut`, `NoResponders` (not ready yet), `Unsupported`, `Storage`, `Closed`.
#[async_trait]
pub trait StreamBackend: Send + Sync {
    /// What all streams together take.
    ///
    /// # Errors
    /// The common ones but `StreamMissing`.
    async fn usage(&self, deadline: Duration) -> Result<Usage, BusError>;

    /// Makes the stream, or opens the one that is there.
    ///
    /// # Errors
    /// `StreamDiffers` when the one that is there has other settings.
    async fn open(&self, config: &StreamConfig, deadline: Duration) -> Result<(), BusError>;

    /// Appends once. The dedupe id is looked at before the condition.
    ///
    /// # Errors
    /// `Conflict`, `StreamFull`, `TooLarge`; `NotInStream` for a foreign subject.
    async fn append(&self, stream: &str, append: Append, deadline: Duration) -> Result<Appended, BusError>;

    /// The last record of a subject, as of now (never of a replica that lags).
    ///
    /// # Errors
    /// The common ones.
    async fn last(&self, stream: &str, subject: &Subject, deadline: Duration) -> Result<Option<Record>, BusError>;

    /// What the stream holds.
    ///
    /// # Errors
    /// The common ones.
    async fn state(&self, stream: &str, deadline: Duration) -> Result<StreamState, BusError>;

    /// Removes records, says how many.
    ///
    /// # Errors
    /// The common ones.
    async fn purge(&self, stream: &str, purge: &Purge, deadline: Duration) -> Result<u64, BusError>;

    /// Removes the stream with its consumers; whether there was one.
    ///
    /// # Errors
    /// The common ones but `StreamMissing`.
    async fn delete(&self, stream: &str, deadline: Duration) -> Result<bool, BusError>;

    /// Reads in order. What exists when this returns, and what comes, is what the source gives.
    ///
    /// # Errors
    /// The common ones.
    async fn read(
        &self,
        stream: &str,
        from: ReadFrom,
        subjects: Option<Pattern>,
        deadline: Duration,
    ) -> Result<Box<dyn Source>, BusError>;

    /// Makes a durable consumer, or opens the one that is there.
    ///
    /// # Errors
    /// `StreamDiffers` when the one that is there has other settings.
    async fn consume(
        &self,
        stream: &str,
        config: &ConsumerConfig,
        deadline: Duration,
    ) -> Result<Arc<dyn ConsumerBackend>, BusError>;

    /// Forgets a durable consumer; whether there was one.
    ///
    /// # Errors
    /// The common ones.
    async fn delete_consumer(&self, stream: &str, name: &str, deadline: Duration) -> Result<bool, BusError>;
}

/// Records of a stream, in order and without gaps; what heals of itself (a server that restarts) is healed here.
#[async_trait]
pub trait Source: Send {
    /// Up to `max` records as soon as there is one; none when `wait` is over. Cancelled, it loses nothing.
    ///
    /// # Errors
    /// As [`StreamBackend`]; calling again goes on after the last record that was given out.
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Batch, BusError>;
}

/// A record that wants an acknowledgement.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The record.
    pub record: Record,
    /// How manieth delivery this is, from 1; in process, counted since the bus was made.
    pub attempt: u64,
    /// What the backend knows the delivery by.
    pub token: String,
}

/// What becomes of a delivered record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Done: never again.
    Ack,
    /// Not done: again after so long.
    Nack(Duration),
    /// Still at it: `ack_wait` begins anew.
    InProgress,
}

/// A durable consumer.
#[async_trait]
pub trait ConsumerBackend: Send + Sync {
    /// Up to `max` records as soon as there is one; none when `wait` is over.
    ///
    /// # Errors
    /// `ConsumerMissing`; as [`StreamBackend`] otherwise.
    async fn fetch(&self, max: usize, wait: Duration) -> Result<Vec<Fetched>, BusError>;

    /// Settles a delivery and waits until the server has noted it. Of one that is settled already, nothing.
    ///
    /// # Errors
    /// As [`StreamBackend`].
    async fn settle(&self, fetched: &Fetched, settle: Settle, deadline: Duration) -> Result<(), BusError>;
}
