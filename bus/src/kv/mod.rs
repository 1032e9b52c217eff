//! Keys with revisions, on a durable [stream](crate::streams) that keeps the last record of each key.
//!
//! A revision is the sequence of the record that set the value: it grows with every change of any key of the bucket, so
//! one that was given to a new leader fences its predecessor. What a lost and a repeated call do:
//!
//! | call | answer lost, called again |
//! |---|---|
//! | [`get`](Kv::get), [`entries`](Kv::entries) | the same answer, or a later one |
//! | [`put`](Kv::put) | the value is set, under a higher revision |
//! | [`create`](Kv::create), [`create_for`](Kv::create_for), [`update`](Kv::update), [`update_for`](Kv::update_for), [`delete`](Kv::delete) with a revision | `Conflict`: compare the value to see whose it is |
//!
//! Within a call the handle itself repeats lost tries until its deadline, and does recognise its own: so `Conflict` from a first call always means
//! somebody else. `TimedOut` means: not known; ask [`get`](Kv::get).
//!
//! With a [`ttl`](KvConfig::ttl) a key is gone when nobody has written it for so long: a lease is a key that its holder
//! keeps updating at its own last revision. The server decides, by its clock alone, and may be late by a second or so; so the
//! holder stops acting on it after a ttl that *it* measured from before its last successful update was sent.

mod watch;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

pub use watch::{Change, Watch, WatchEvent};

use crate::bus::Bus;
use crate::error::BusError;
use crate::message::Message;
use crate::streams::{Append, Expect, Purge, ReadFrom, Record, Stream, StreamConfig};
use crate::subject::{Pattern, Subject, SubjectError, unique_token};

/// Header of a record that removes its key; name and value are those of other clients' key-value stores.
pub(crate) const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
/// How often a conditional write looks again when the key changes between a refusal and the look at it.
const LOOKS_MAX: usize = 16;

/// Settings of a bucket; fixed when it is made, but for the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvConfig {
    /// Name of its stream, a token.
    pub name: String,
    /// What its keys' subjects begin with; nothing else may use these subjects.
    pub prefix: Subject,
    /// A key that was not written for so long is gone; zero: never. At least 1 s. Default zero.
    pub ttl: Duration,
    /// Most bytes of keys and values. Default 16 MiB.
    pub bytes_max: u64,
    /// Whether it is lost with its server: for what can be made again. Default false.
    pub in_memory: bool,
    /// How long the record of a deletion is kept for watchers that were away. Whole seconds. Default an hour.
    pub deletions_kept: Duration,
    /// How long each call may take. Default 5 s.
    pub deadline: Duration,
}

impl KvConfig {
    /// Defaults.
    pub fn new(name: &str, prefix: Subject) -> Self {
        Self {
            name: name.to_owned(),
            prefix,
            ttl: Duration::ZERO,
            bytes_max: 16 * 1024 * 1024,
            in_memory: false,
            deletions_kept: Duration::from_secs(3600),
            deadline: Duration::from_secs(5),
        }
    }

    fn stream(&self) -> Result<StreamConfig, BusError> {
        if !self.ttl.is_zero() && self.ttl < Duration::from_secs(1) {
            return Err(BusError::Config(format!("bucket {}: a ttl is at least 1 s", self.name)));
        }
        let subjects = Pattern::parse(&format!("{}.>", self.prefix))?;
        Ok(StreamConfig {
            bytes_max: self.bytes_max,
            in_memory: self.in_memory,
            age_max: self.ttl,
            last_of_subject_only: true,
            expiry_markers: if self.ttl.is_zero() { Duration::ZERO } else { self.marker_ttl() },
            ..StreamConfig::new(&self.name, subjects)
        })
    }

    fn marker_ttl(&self) -> Duration {
        Duration::from_secs(self.deletions_kept.as_secs().max(1))
    }
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Tokens separated by dots.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Of the change that set it.
    pub revision: u64,
}

/// A bucket; clones share it.
#[derive(Clone)]
pub struct Kv {
    stream: Stream,
    config: KvConfig,
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kv").field(&self.config.name).finish()
    }
}

impl Kv {
    /// Makes the bucket, or opens the one that is there.
    ///
    /// # Errors
    /// `StreamDiffers` when there is one with other settings; `Config`, `Unsupported`, `TimedOut`, `Closed`.
    pub async fn open(bus: &Bus, config: &KvConfig) -> Result<Self, BusError> {
        let stream = Stream::open(bus, &config.stream()?, config.deadline).await?;
        Ok(Self { stream, config: config.clone() })
    }

    /// Whether the bucket is there. Nothing is made.
    ///
    /// # Errors
    /// As [`Stream::is_there`].
    pub async fn is_there(bus: &Bus, config: &KvConfig) -> Result<bool, BusError> {
        Stream::is_there(bus, &config.name, config.deadline).await
    }

    /// The stream it stands on, e.g. to [delete](Stream::delete) it.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The value of a key, as of now; `None` when it was never set, was deleted, or has expired.
    ///
    /// # Errors
    /// `Subject` when the key is none; `TimedOut`, `StreamMissing`, `Storage`, `Closed`.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, BusError> {
        let record = self.stream.last(&self.subject(key)?).await?;
        Ok(record.filter(|record| !is_removal(record)).map(|record| entry(key.to_owned(), record)))
    }

    /// Sets a key, whatever it was. Returns the revision.
    ///
    /// # Errors
    /// As [`get`](Self::get), and `TooLarge`, `StreamFull`.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<u64, BusError> {
        self.write(key, Message::new(value), Expect::Any, None).await
    }

    /// Sets a key that has no value. Returns the revision.
    ///
    /// # Errors
    /// `Conflict` when it has one; as [`put`](Self::put) otherwise.
    pub async fn create(&self, key: &str, value: impl Into<Bytes>) -> Result<u64, BusError> {
        self.create_lasting(key, value.into(), None).await
    }

    /// The same for a value that is gone after `lasts`, whole seconds of at least one, unless it is written again.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_for(&self, key: &str, value: impl Into<Bytes>, lasts: Duration) -> Result<u64, BusError> {
        self.create_lasting(key, value.into(), Some(lasts)).await
    }

    async fn create_lasting(&self, key: &str, value: Bytes, lasts: Option<Duration>) -> Result<u64, BusError> {
        let subject = self.subject(key)?;
        let mut expected = 0;
        for _ in 0..LOOKS_MAX {
            let message = Message::new(value.clone());
            let written = self.write(key, message, Expect::LastOfSubject(expected), lasts).await;
            let Err(error @ BusError::Conflict { .. }) = written else { return written };
            // A deleted or expired key has a record that says so; the new value takes its place.
            expected = match self.stream.last(&subject).await? {
                Some(record) if is_removal(&record) && record.sequence != expected => record.sequence,
                None if expected != 0 => 0,
                _ => return Err(error),
            };
        }
        Err(BusError::TimedOut { what: format!("create {subject}, which others change"), after: self.config.deadline })
    }

    /// Sets a key whose revision is `revision`. Returns the new one.
    ///
    /// # Errors
    /// `Conflict` when it has another or none; as [`put`](Self::put) otherwise.
    pub async fn update(&self, key: &str, value: impl Into<Bytes>, revision: u64) -> Result<u64, BusError> {
        self.write(key, Message::new(value), Expect::LastOfSubject(revision), None).await
    }

    /// The same for a value that is gone after `lasts`, whole seconds of at least one, unless it is written again.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_for(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        revision: u64,
        lasts: Duration,
    ) -> Result<u64, BusError> {
        self.write(key, Message::new(value), Expect::LastOfSubject(revision), Some(lasts)).await
    }

    /// Removes a key; with `revision`, only if that is its revision. Removing what is not there is fine.
    ///
    /// # Errors
    /// `Conflict`; as [`put`](Self::put) otherwise.
    pub async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), BusError> {
        let message = Message::default().with_header(OPERATION, DELETED)?;
        let expect = revision.map_or(Expect::Any, Expect::LastOfSubject);
        self.write(key, message, expect, Some(self.config.marker_ttl())).await.map(drop)
    }

    /// Removes what there is of a key, and tells nobody who follows it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn forget(&self, key: &str) -> Result<(), BusError> {
        let subjects = Some(self.subject(key)?.into());
        self.stream.purge(&Purge { subjects, ..Purge::default() }).await.map(drop)
    }

    /// All keys with values.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn entries(&self) -> Result<Vec<Entry>, BusError> {
        let mut entries = std::collections::BTreeMap::new();
        let take = |change| match change {
            Change::Put(entry) => drop(entries.insert(entry.key.clone(), entry)),
            Change::Removed { key, .. } => drop(entries.remove(&key)),
        };
        self.each(None, take).await?;
        Ok(entries.into_values().collect())
    }

    /// The values that are there of the keys of a pattern (of the key alone), or of all, one after the other: what is larger than memory
    /// can be looked through. A key that changes meanwhile may come several times; the last one counts.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn each(&self, keys: Option<&Pattern>, mut take: impl FnMut(Change)) -> Result<(), BusError> {
        let mut watch = self.watch(keys).await?;
        let end = tokio::time::Instant::now() + self.config.deadline;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            match watch.next(left).await? {
                Some(WatchEvent::Changed(change)) => take(change),
                Some(WatchEvent::CaughtUp) => return Ok(()),
                None => {
                    let what = format!("entries of {}", self.config.name);
                    return Err(BusError::TimedOut { what, after: self.config.deadline });
                }
            }
        }
    }

    /// Follows the keys of a pattern (of the key alone), or all: first the values that are there, then
    /// [`WatchEvent::CaughtUp`], then every change. Of a key that changes faster than it is read, only the latest value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn watch(&self, keys: Option<&Pattern>) -> Result<Watch, BusError> {
        let subjects = match keys {
            Some(keys) => Some(Pattern::parse(&format!("{}.{keys}", self.config.prefix))?),
            None => None,
        };
        let reader = self.stream.read(ReadFrom::LastOfEachSubject, subjects).await?;
        Ok(Watch::new(reader, self.config.prefix.clone()))
    }

    fn subject(&self, key: &str) -> Result<Subject, SubjectError> {
        Subject::parse(&format!("{}.{key}", self.config.prefix))
    }

    async fn write(&self, key: &str, message: Message, expect: Expect, ttl: Option<Duration>) -> Result<u64, BusError> {
        let append = Append { subject: self.subject(key)?, message, expect, ttl }.dedupe(&unique_token())?;
        Ok(self.stream.append(append, self.config.deadline).await?.sequence)
    }
}

/// Whether a record says that its key is gone.
fn is_removal(record: &Record) -> bool {
    record.is_expiry_marker() || record.message.headers.get(OPERATION).is_some()
}

fn entry(key: String, record: Record) -> Entry {
    Entry { key, value: record.message.payload, revision: record.sequence }
}
