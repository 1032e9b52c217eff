//! What goes into a stream and comes out of it.

use std::time::Duration;

use crate::error::BusError;
use crate::message::{DEDUPE_ID, HeaderError, Message};
use crate::streams::{EXPIRY_MARKER, RESERVED};
use crate::subject::{Pattern, Subject};

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the stream: from 1, growing, never used twice; gaps are records that are gone.
    pub sequence: u64,
    /// What it is about.
    pub subject: Subject,
    /// What was appended, the dedupe id's header included.
    pub message: Message,
}

impl Record {
    /// Whether the bus wrote it because the last record of its subject had expired.
    pub fn is_expiry_marker(&self) -> bool {
        self.message.headers.get(EXPIRY_MARKER).is_some()
    }
}

/// Which record must be the last one for an append to happen: fencing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expect {
    /// Whichever.
    #[default]
    Any,
    /// The last of the stream has this sequence; 0: there was none ever.
    Last(u64),
    /// The last of the record's subject has this sequence; 0: there is none.
    LastOfSubject(u64),
}

/// A record on its way into a stream.
#[derive(Debug, Clone)]
pub struct Append {
    /// What it is about; within the stream's pattern.
    pub subject: Subject,
    /// What is appended.
    pub message: Message,
    /// What must be the last record before.
    pub expect: Expect,
    /// After which it is removed; whole seconds, at least one. `None`: the stream's `max_age` decides alone.
    pub ttl: Option<Duration>,
}

impl Append {
    /// A record without conditions.
    pub fn new(subject: Subject, message: impl Into<Message>) -> Self {
        Self { subject, message: message.into(), expect: Expect::Any, ttl: None }
    }

    /// The same, known by `id`: appended once, however often it is sent within the stream's window.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn dedupe(mut self, id: &str) -> Result<Self, HeaderError> {
        self.message.headers.insert(DEDUPE_ID, id)?;
        Ok(self)
    }

    /// The same under a condition.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Its dedupe id.
    pub fn dedupe_id(&self) -> Option<&str> {
        self.message.headers.get(DEDUPE_ID)
    }

    /// Bytes as the payload limit counts them, conditions included.
    pub fn wire_bytes(&self) -> usize {
        // "Nats-Expected-Last-Subject-Sequence: <20 digits>\r\n" and "Nats-TTL: <20 digits>s\r\n", and the frame of
        // headers, should there be no others.
        let condition = if self.expect == Expect::Any { 0 } else { 64 + 12 };
        let ttl = if self.ttl.is_none() { 0 } else { 36 + 12 };
        self.message.wire_bytes() + condition + ttl
    }

    /// Refuses what would be taken for the bus's own words.
    pub(crate) fn check(&self) -> Result<(), BusError> {
        let reserved = |name: &str| name.starts_with(RESERVED) && name != DEDUPE_ID;
        if let Some((name, _)) = self.message.headers.iter().find(|(name, _)| reserved(name)) {
            return Err(HeaderError::Reserved(name.to_owned()).into());
        }
        match self.ttl {
            Some(ttl) if ttl < Duration::from_secs(1) || ttl.subsec_nanos() != 0 => {
                Err(BusError::Config(format!("record for {}: a ttl is whole seconds, not {ttl:?}", self.subject)))
            }
            _ => Ok(()),
        }
    }
}

/// Where an append went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The record's sequence; of a duplicate, that of the first.
    pub sequence: u64,
    /// A record with the same dedupe id was there already; nothing was appended.
    pub duplicate: bool,
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the oldest record there is.
    First,
    /// With this sequence, or the first after it that there is.
    Sequence(u64),
    /// After everything that is there now.
    New,
    /// With the last record of each subject, in order of their sequences; then everything newer.
    LastOfEachSubject,
}

/// Some records, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// May be empty.
    pub records: Vec<Record>,
    /// Nothing more was there when this was read.
    pub caught_up: bool,
}

/// What to remove from a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// Only records of these subjects; `None`: of all.
    pub subjects: Option<Pattern>,
    /// Only records before this sequence; `None`: all.
    pub before: Option<u64>,
}

/// What a stream holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Records in it.
    pub records: u64,
    /// Their bytes as the backend counts them; JetStream adds some 30 a record.
    pub bytes: u64,
    /// Sequence of the oldest record; when there is none, of the next one.
    pub first_sequence: u64,
    /// The highest sequence ever given; 0: none.
    pub last_sequence: u64,
}

/// What all streams of a backend take, as far as we may know: those of our account on a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are.
    pub streams: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Most bytes; `None`: no limit but the disk's.
    pub bytes_max: Option<u64>,
}
