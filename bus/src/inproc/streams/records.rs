//! Where the engine keeps what must last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::BusError;
use crate::streams::{ConsumerConfig, Record, StreamConfig};

/// A record as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) record: Record,
    /// When it was appended, in milliseconds since 1970.
    pub(super) time_ms: u64,
    /// When it is to be removed; 0: never.
    pub(super) expires_ms: u64,
}

/// What of a stream, besides its records, must last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedStream {
    /// Its number: keys of records are short, and a new stream of an old name finds nothing of the old one's.
    pub(super) number: u32,
    pub(super) config: StreamConfig,
    pub(super) last_sequence: u64,
}

/// What of a consumer must last: its place. Everything from `next` on was never delivered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedConsumer {
    pub(super) config: ConsumerConfig,
    pub(super) next: u64,
    /// Delivered and not acknowledged.
    pub(super) unacked: Vec<u64>,
}

/// Storage of records and places. An error means that nothing can be trusted any more.
pub(super) trait Records {
    fn insert(&mut self, stream: u32, stored: &Stored) -> Result<(), BusError>;
    fn get(&mut self, stream: u32, sequence: u64) -> Result<Option<Stored>, BusError>;
    /// The first record whose sequence is `from` or higher.
    fn next(&mut self, stream: u32, from: u64) -> Result<Option<Stored>, BusError>;
    fn remove(&mut self, stream: u32, sequence: u64) -> Result<(), BusError>;
    /// Forgets all records of a stream, and its consumers.
    fn clear(&mut self, stream: u32) -> Result<(), BusError>;
    fn save_stream(&mut self, stream: &SavedStream) -> Result<(), BusError>;
    fn drop_stream(&mut self, name: &str) -> Result<(), BusError>;
    fn save_consumer(&mut self, stream: u32, consumer: &SavedConsumer) -> Result<(), BusError>;
    fn drop_consumer(&mut self, stream: u32, name: &str) -> Result<(), BusError>;
}

/// In memory; what must last for the engine's own life only is not saved.
#[derive(Debug, Default)]
pub(super) struct MemoryRecords {
    records: BTreeMap<(u32, u64), Stored>,
}

impl Records for MemoryRecords {
    fn insert(&mut self, stream: u32, stored: &Stored) -> Result<(), BusError> {
        self.records.insert((stream, stored.record.sequence), stored.clone());
        Ok(())
    }

    fn get(&mut self, stream: u32, sequence: u64) -> Result<Option<Stored>, BusError> {
        Ok(self.records.get(&(stream, sequence)).cloned())
    }

    fn next(&mut self, stream: u32, from: u64) -> Result<Option<Stored>, BusError> {
        Ok(self.records.range((stream, from)..=(stream, u64::MAX)).next().map(|(_, stored)| stored.clone()))
    }

    fn remove(&mut self, stream: u32, sequence: u64) -> Result<(), BusError> {
        self.records.remove(&(stream, sequence));
        Ok(())
    }

    fn clear(&mut self, stream: u32) -> Result<(), BusError> {
        self.records.retain(|(of, _), _| *of != stream);
        Ok(())
    }

    fn save_stream(&mut self, _stream: &SavedStream) -> Result<(), BusError> {
        Ok(())
    }

    fn drop_stream(&mut self, _name: &str) -> Result<(), BusError> {
        Ok(())
    }

    fn save_consumer(&mut self, _stream: u32, _consumer: &SavedConsumer) -> Result<(), BusError> {
        Ok(())
    }

    fn drop_consumer(&mut self, _stream: u32, _name: &str) -> Result<(), BusError> {
        Ok(())
    }
}
