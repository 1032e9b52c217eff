//! One stream: what must be known at once, beside the records themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::consumer_state::ConsumerState;
use super::engine::{Cursor, FetchedSome, Read};
use super::records::{Records, SavedConsumer, SavedStream, Stored};
use crate::error::BusError;
use crate::message::{DEDUPE_ID, Message};
use crate::streams::{
    Append, Appended, Batch, ConsumerConfig, EXPIRY_MARKER, Expect, Fetched, Purge, Record, Settle, StreamConfig,
    StreamState,
};
use crate::subject::Subject;

/// Records that one look goes over at most, so that nobody else waits long.
const LOOK_MAX: usize = 4096;
/// Bytes that one look gathers at most (and one record more).
const LOOK_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Dedupe ids that are remembered at most; the oldest go first.
const DEDUPE_IDS_MAX: usize = 1_000_000;

/// Index of one stream.
#[derive(Debug)]
pub(super) struct StreamIndex {
    saved: SavedStream,
    records: u64,
    bytes: u64,
    /// The last record of each subject, and how many it has.
    subjects: HashMap<Subject, (u64, u64)>,
    dedupe: HashMap<String, u64>,
    /// The same by time.
    dedupe_times: VecDeque<(u64, String)>,
    /// (time, sequence) of what will expire.
    expiring: BTreeSet<(u64, u64)>,
    consumers: BTreeMap<String, ConsumerState>,
}

impl StreamIndex {
    pub(super) fn new(saved: SavedStream) -> Self {
        Self {
            saved,
            records: 0,
            bytes: 0,
            subjects: HashMap::new(),
            dedupe: HashMap::new(),
            dedupe_times: VecDeque::new(),
            expiring: BTreeSet::new(),
            consumers: BTreeMap::new(),
        }
    }

    /// Reads every record once.
    pub(super) fn restore(
        records: &mut dyn Records,
        now_ms: u64,
        saved: SavedStream,
        consumers: Vec<SavedConsumer>,
    ) -> Result<Self, BusError> {
        let mut index = Self::new(saved);
        let mut next = 1;
        while let Some(stored) = records.next(index.number(), next)? {
            // No stream gets so far: it is damage, and there is nothing behind it.
            let Some(behind) = stored.record.sequence.checked_add(1) else {
                return Err(BusError::Storage(format!("record {} of a stream is the last there can be", u64::MAX)));
            };
            next = behind;
            index.saved.last_sequence = index.saved.last_sequence.max(stored.record.sequence);
            index.note(&stored);
        }
        index.forget_ids(now_ms);
        for saved in consumers {
            index.consumers.insert(saved.config.name.clone(), ConsumerState::restore(saved, now_ms));
        }
        Ok(index)
    }

    pub(super) fn number(&self) -> u32 {
        self.saved.number
    }

    pub(super) fn config(&self) -> &StreamConfig {
        &self.saved.config
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn append(
        &mut self,
        records: &mut dyn Records,
        now_ms: u64,
        append: Append,
    ) -> Result<Appended, BusError> {
        self.forget_ids(now_ms);
        if let Some(sequence) = append.dedupe_id().and_then(|id| self.dedupe.get(id)) {
            return Ok(Appended { sequence: *sequence, duplicate: true });
        }
        if !self.config().subjects.matches(&append.subject) {
            let (stream, subject) = (self.config().name.clone(), append.subject.to_string());
            return Err(BusError::NotInStream { stream, subject });
        }
        self.check_expected(&append)?;
        let replaced = self.subjects.get(&append.subject).filter(|_| self.config().last_of_subject_only).copied();
        self.check_room(&append, replaced.is_some())?;
        let sequence = self.put(records, now_ms, append)?;
        if let Some((old, _)) = replaced {
            self.remove(records, old)?;
        }
        Ok(Appended { sequence, duplicate: false })
    }

    fn check_expected(&self, append: &Append) -> Result<(), BusError> {
        let (expected, found) = match append.expect {
            Expect::Any => return Ok(()),
            Expect::Last(expected) => (expected, self.saved.last_sequence),
            Expect::LastOfSubject(expected) => {
                (expected, self.subjects.get(&append.subject).map_or(0, |(last, _)| *last))
            }
        };
        if expected == found {
            return Ok(());
        }
        Err(BusError::Conflict { subject: append.subject.to_string(), expected, found: Some(found) })
    }

    fn check_room(&self, append: &Append, replaces: bool) -> Result<(), BusError> {
        let config = self.config();
        let full = |reason: String| Err(BusError::StreamFull { stream: config.name.clone(), reason });
        if replaces {
            return Ok(());
        }
        if config.records_max > 0 && self.records >= config.records_max {
            return full(format!("{} records", config.records_max));
        }
        if self.bytes + size(&append.subject, &append.message) > config.bytes_max {
            return full(format!("{} of {} bytes", self.bytes, config.bytes_max));
        }
        Ok(())
    }

    fn put(&mut self, records: &mut dyn Records, now_ms: u64, append: Append) -> Result<u64, BusError> {
        let sequence = self.saved.last_sequence + 1;
        let age_ms = millis(self.config().age_max);
        let ttl_ms = append.ttl.map_or(0, millis);
        let life_ms = [age_ms, ttl_ms].into_iter().filter(|ms| *ms > 0).min();
        let record = Record { sequence, subject: append.subject, message: append.message };
        let stored = Stored { record, time_ms: now_ms, expires_ms: life_ms.map_or(0, |life| now_ms + life) };
        records.insert(self.number(), &stored)?;
        self.saved.last_sequence = sequence;
        records.save_stream(&self.saved)?;
        self.note(&stored);
        Ok(sequence)
    }

    /// Enters a record into the index.
    fn note(&mut self, stored: &Stored) {
        let Stored { record, time_ms, expires_ms } = stored;
        self.records += 1;
        self.bytes += size(&record.subject, &record.message);
        let (last, count) = self.subjects.entry(record.subject.clone()).or_default();
        (*last, *count) = (record.sequence, *count + 1);
        if let Some(id) = record.message.headers.get(DEDUPE_ID) {
            self.dedupe.insert(id.to_owned(), record.sequence);
            self.dedupe_times.push_back((*time_ms, id.to_owned()));
        }
        if *expires_ms > 0 {
            self.expiring.insert((*expires_ms, record.sequence));
        }
    }

    fn forget_ids(&mut self, now_ms: u64) {
        let window_ms = millis(self.config().dedupe_window);
        while let Some((time_ms, id)) = self.dedupe_times.front() {
            if self.dedupe_times.len() <= DEDUPE_IDS_MAX && time_ms + window_ms > now_ms {
                return;
            }
            self.dedupe.remove(id);
            self.dedupe_times.pop_front();
        }
    }

    /// Removes a record, if it is there.
    fn remove(&mut self, records: &mut dyn Records, sequence: u64) -> Result<Option<Stored>, BusError> {
        let Some(stored) = records.get(self.number(), sequence)? else { return Ok(None) };
        records.remove(self.number(), sequence)?;
        self.records -= 1;
        self.bytes -= size(&stored.record.subject, &stored.record.message);
        if stored.expires_ms > 0 {
            self.expiring.remove(&(stored.expires_ms, sequence));
        }
        let subject = &stored.record.subject;
        let Some((last, count)) = self.subjects.get_mut(subject) else { return Ok(Some(stored)) };
        *count -= 1;
        if *count == 0 {
            self.subjects.remove(subject);
        } else if *last == sequence {
            // Only a ttl of its own takes a subject's last record before its older ones: look for the one before.
            let subject = subject.clone();
            let before = self.last_before(records, &subject, sequence)?;
            if let Some((last, _)) = self.subjects.get_mut(&subject) {
                *last = before;
            }
        }
        Ok(Some(stored))
    }

    fn last_before(&self, records: &mut dyn Records, subject: &Subject, before: u64) -> Result<u64, BusError> {
        for sequence in (1..before).rev() {
            if let Some(stored) = records.get(self.number(), sequence)?
                && stored.record.subject == *subject
            {
                return Ok(sequence);
            }
        }
        Ok(0)
    }

    /// Removes what has expired and writes markers where they are wanted.
    pub(super) fn expire(&mut self, records: &mut dyn Records, now_ms: u64) -> Result<(), BusError> {
        while let Some((expires_ms, sequence)) = self.expiring.first().copied() {
            if expires_ms > now_ms {
                return Ok(());
            }
            self.expiring.remove(&(expires_ms, sequence));
            let Some(Stored { record, .. }) = self.remove(records, sequence)? else { continue };
            let marked = !self.config().expiry_markers.is_zero() && !self.subjects.contains_key(&record.subject);
            if marked && !is_tombstone(&record.message) {
                let message = Message::default().with_header(EXPIRY_MARKER, "MaxAge")?;
                let ttl = Some(self.config().expiry_markers);
                self.put(records, now_ms, Append { subject: record.subject, message, expect: Expect::Any, ttl })?;
            }
        }
        Ok(())
    }

    pub(super) fn last(&self, records: &mut dyn Records, subject: &Subject) -> Result<Option<Record>, BusError> {
        let Some((last, _)) = self.subjects.get(subject) else { return Ok(None) };
        Ok(records.get(self.number(), *last)?.map(|stored| stored.record))
    }

    pub(super) fn state(&self, records: &mut dyn Records) -> Result<StreamState, BusError> {
        let last_sequence = self.saved.last_sequence;
        let first = records.next(self.number(), 1)?.map_or(last_sequence + 1, |stored| stored.record.sequence);
        Ok(StreamState { records: self.records, bytes: self.bytes, first_sequence: first, last_sequence })
    }

    pub(super) fn purge(&mut self, records: &mut dyn Records, purge: &Purge) -> Result<u64, BusError> {
        let (mut next, mut removed) = (1, 0);
        while let Some(stored) = records.next(self.number(), next)? {
            let sequence = stored.record.sequence;
            if purge.before.is_some_and(|before| sequence >= before) {
                break;
            }
            next = sequence + 1;
            if purge.subjects.as_ref().is_none_or(|subjects| subjects.matches(&stored.record.subject)) {
                self.remove(records, sequence)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub(super) fn read(&self, records: &mut dyn Records, cursor: &Cursor, max: usize) -> Result<Read, BusError> {
        let due_ms = self.expiring.first().map(|(expires_ms, _)| *expires_ms);
        let (mut batch, mut next, mut bytes) = (Batch::default(), cursor.next, 0);
        for _ in 0..LOOK_MAX {
            if batch.records.len() >= max || bytes >= LOOK_BYTES_MAX {
                break;
            }
            let Some(Stored { record, .. }) = records.next(self.number(), next)? else {
                next = next.max(self.saved.last_sequence + 1);
                break;
            };
            next = record.sequence + 1;
            let replaced = record.sequence <= cursor.conflate_until
                && self.subjects.get(&record.subject).is_none_or(|(last, _)| *last != record.sequence);
            if !replaced && cursor.subjects.as_ref().is_none_or(|subjects| subjects.matches(&record.subject)) {
                bytes += record.message.wire_bytes();
                batch.records.push(record);
            }
        }
        batch.caught_up = next > self.saved.last_sequence;
        Ok(Read { batch, next, due_ms })
    }

    pub(super) fn consume(&mut self, records: &mut dyn Records, config: ConsumerConfig) -> Result<(), BusError> {
        if let Some(consumer) = self.consumers.get(&config.name) {
            return match consumer.config().difference(&config) {
                Some(what) => Err(BusError::StreamDiffers { name: config.name, what }),
                None => Ok(()),
            };
        }
        let saved = SavedConsumer { config, next: 1, unacked: Vec::new() };
        records.save_consumer(self.number(), &saved)?;
        self.consumers.insert(saved.config.name.clone(), ConsumerState::restore(saved, 0));
        Ok(())
    }

    pub(super) fn delete_consumer(&mut self, records: &mut dyn Records, name: &str) -> Result<bool, BusError> {
        if self.consumers.remove(name).is_none() {
            return Ok(false);
        }
        records.drop_consumer(self.number(), name)?;
        Ok(true)
    }

    fn consumer(&mut self, name: &str) -> Result<&mut ConsumerState, BusError> {
        let stream = &self.saved.config.name;
        let missing = || BusError::ConsumerMissing { stream: stream.clone(), consumer: name.to_owned() };
        self.consumers.get_mut(name).ok_or_else(missing)
    }

    pub(super) fn fetch(
        &mut self,
        records: &mut dyn Records,
        now_ms: u64,
        name: &str,
        max: usize,
    ) -> Result<FetchedSome, BusError> {
        let (number, last) = (self.number(), self.saved.last_sequence);
        let consumer = self.consumer(name)?;
        let (mut fetched, mut bytes) = (Vec::new(), 0);
        let mut at_once = true;
        for _ in 0..LOOK_MAX {
            if fetched.len() >= max || bytes >= LOOK_BYTES_MAX {
                break;
            }
            let Some(want) = consumer.next_due(now_ms).or_else(|| consumer.next_new()) else {
                at_once = false;
                break;
            };
            let Some(Stored { record, .. }) = records.next(number, want)? else {
                // Whatever it was is gone.
                consumer.skip(want, last + 1);
                at_once = false;
                if consumer.next_due(now_ms).is_some() {
                    continue;
                }
                break;
            };
            if record.sequence != want {
                consumer.skip(want, record.sequence);
                continue;
            }
            if !consumer.config().subjects.as_ref().is_none_or(|subjects| subjects.matches(&record.subject)) {
                consumer.skip(want, want + 1);
                continue;
            }
            let attempt = consumer.deliver(want, now_ms);
            bytes += record.message.wire_bytes();
            fetched.push(Fetched { record, attempt, token: String::new() });
        }
        let due_ms = consumer.due_ms();
        Ok(FetchedSome { records: fetched, at_once, due_ms })
    }

    pub(super) fn settle(
        &mut self,
        records: &mut dyn Records,
        now_ms: u64,
        name: &str,
        sequence: u64,
        settle: Settle,
    ) -> Result<(), BusError> {
        let number = self.number();
        let consumer = self.consumer(name)?;
        if consumer.settle(sequence, settle, now_ms) {
            records.save_consumer(number, &consumer.saved())?;
        }
        Ok(())
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}

/// Bytes that count towards the stream's limit.
fn size(subject: &Subject, message: &Message) -> u64 {
    (subject.as_str().len() + message.wire_bytes()) as u64
}

/// Says itself that something is gone, so its own expiry is no news.
fn is_tombstone(message: &Message) -> bool {
    message.headers.get(EXPIRY_MARKER).is_some() || message.headers.get(crate::kv::OPERATION).is_some()
}
