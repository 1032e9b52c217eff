//! All streams of a bus: commands in, answers out; no clock and no waiting.

use std::collections::BTreeMap;

use super::records::{Records, SavedConsumer, SavedStream};
use super::stream_state::StreamIndex;
use crate::error::BusError;
use crate::streams::{
    Append, Appended, Batch, ConsumerConfig, Fetched, Purge, Record, Settle, StreamConfig, StreamState, Usage,
};
use crate::subject::{Pattern, Subject};

/// What the engine can be told; the text is the stream's name.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Usage,
    Open(StreamConfig),
    Delete(String),
    Append(String, Append),
    Last(String, Subject),
    State(String),
    Purge(String, Purge),
    Read(String, Cursor, usize),
    Consume(String, ConsumerConfig),
    DeleteConsumer(String, String),
    Fetch(String, String, usize),
    Settle(String, String, u64, Settle),
}

/// What the engine answers.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Done,
    Usage(Usage),
    Existed(bool),
    Appended(Appended),
    Record(Option<Record>),
    State(StreamState),
    Count(u64),
    Read(Read),
    Fetched(FetchedSome),
}

/// A reader's place.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    /// The first sequence that was not looked at.
    pub(super) next: u64,
    /// Up to here only the last record of each subject is wanted.
    pub(super) conflate_until: u64,
    pub(super) subjects: Option<Pattern>,
}

/// What a look into a stream found.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) batch: Batch,
    /// The reader's new place.
    pub(super) next: u64,
    /// When the next record expires, which may bring a marker.
    pub(super) due_ms: Option<u64>,
}

/// What a consumer gets.
#[derive(Debug, Clone)]
pub(super) struct FetchedSome {
    pub(super) records: Vec<Fetched>,
    /// Looking was ended by its bound, not by the end of the stream.
    pub(super) at_once: bool,
    /// When the next delivery falls due again.
    pub(super) due_ms: Option<u64>,
}

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Engine {
    streams: BTreeMap<String, StreamIndex>,
    next_number: u32,
    /// Time never goes back here, whatever order commands arrive in.
    latest_ms: u64,
}

impl Engine {
    /// Takes a stream over from storage.
    pub(super) fn restore(
        &mut self,
        records: &mut dyn Records,
        now_ms: u64,
        saved: SavedStream,
        consumers: Vec<SavedConsumer>,
    ) -> Result<(), BusError> {
        let next_number = saved.number.checked_add(1);
        let next_number =
            next_number.ok_or_else(|| BusError::Storage("a stream's row: its number is the last".into()))?;
        self.next_number = self.next_number.max(next_number);
        let name = saved.config.name.clone();
        let index = StreamIndex::restore(records, now_ms, saved, consumers)?;
        self.streams.insert(name, index);
        Ok(())
    }

    /// Names of all streams.
    pub(super) fn names(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }

    /// Does what is asked. Errors are answers, but for `Storage`, after which nothing here can be trusted.
    pub(super) fn apply(
        &mut self,
        records: &mut dyn Records,
        now_ms: u64,
        command: Command,
    ) -> Result<Answer, BusError> {
        self.latest_ms = self.latest_ms.max(now_ms);
        let now_ms = self.latest_ms;
        match command {
            Command::Usage => Ok(Answer::Usage(self.usage())),
            Command::Open(config) => self.open(records, config),
            Command::Delete(name) => self.delete(records, &name),
            Command::Append(name, append) => {
                self.current(records, now_ms, &name)?.append(records, now_ms, append).map(Answer::Appended)
            }
            Command::Last(name, subject) => {
                self.current(records, now_ms, &name)?.last(records, &subject).map(Answer::Record)
            }
            Command::State(name) => self.current(records, now_ms, &name)?.state(records).map(Answer::State),
            Command::Purge(name, purge) => {
                self.current(records, now_ms, &name)?.purge(records, &purge).map(Answer::Count)
            }
            Command::Read(name, cursor, max) => {
                self.current(records, now_ms, &name)?.read(records, &cursor, max).map(Answer::Read)
            }
            Command::Consume(name, config) => {
                self.current(records, now_ms, &name)?.consume(records, config).map(|()| Answer::Done)
            }
            Command::DeleteConsumer(name, consumer) => {
                self.current(records, now_ms, &name)?.delete_consumer(records, &consumer).map(Answer::Existed)
            }
            Command::Fetch(name, consumer, max) => {
                self.current(records, now_ms, &name)?.fetch(records, now_ms, &consumer, max).map(Answer::Fetched)
            }
            Command::Settle(name, consumer, sequence, settle) => self
                .current(records, now_ms, &name)?
                .settle(records, now_ms, &consumer, sequence, settle)
                .map(|()| Answer::Done),
        }
    }

    fn usage(&self) -> Usage {
        let bytes = self.streams.values().map(StreamIndex::bytes).sum();
        Usage { streams: self.streams.len() as u64, bytes, bytes_max: None }
    }

    /// A stream, without what has expired.
    fn current(&mut self, records: &mut dyn Records, now_ms: u64, name: &str) -> Result<&mut StreamIndex, BusError> {
        let missing = || BusError::StreamMissing { stream: name.to_owned() };
        let stream = self.streams.get_mut(name).ok_or_else(missing)?;
        stream.expire(records, now_ms)?;
        Ok(stream)
    }

    fn open(&mut self, records: &mut dyn Records, config: StreamConfig) -> Result<Answer, BusError> {
        if let Some(stream) = self.streams.get(&config.name) {
            return match stream.config().difference(&config) {
                Some(what) => Err(BusError::StreamDiffers { name: config.name, what }),
                None => Ok(Answer::Done),
            };
        }
        if let Some(other) = self.streams.values().find(|other| overlap(&other.config().subjects, &config.subjects)) {
            let what = format!("stream {} has some of its subjects", other.config().name);
            return Err(BusError::StreamDiffers { name: config.name, what });
        }
        let saved = SavedStream { number: self.next_number, config, last_sequence: 0 };
        self.next_number += 1;
        records.save_stream(&saved)?;
        self.streams.insert(saved.config.name.clone(), StreamIndex::new(saved));
        Ok(Answer::Done)
    }

    fn delete(&mut self, records: &mut dyn Records, name: &str) -> Result<Answer, BusError> {
        let Some(stream) = self.streams.remove(name) else { return Ok(Answer::Existed(false)) };
        records.clear(stream.number())?;
        records.drop_stream(name)?;
        Ok(Answer::Existed(true))
    }
}

/// Whether a subject could belong to both.
fn overlap(one: &Pattern, other: &Pattern) -> bool {
    let (mut ones, mut others) = (one.as_str().split('.'), other.as_str().split('.'));
    loop {
        match (ones.next(), others.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_when_a_subject_could_belong_to_both() {
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (Pattern::parse(one).unwrap(), Pattern::parse(other).unwrap());
            assert_eq!((overlap(&one, &other), overlap(&other, &one)), (expected, expected), "{one} and {other}");
        };
        check("a.>", "a.b", true);
        check("a.>", "a", false);
        check("a.*", "a.b", true);
        check("a.*", "*.b", true);
        check("a.*.c", "a.b.d", false);
        check("a.b", "a.b.c", false);
        check(">", "x.y", true);
        check("a.x.>", "a.y.>", false);
    }
}
