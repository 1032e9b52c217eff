//! Durable streams of the in-process bus: in memory, or in one file.
//!
//! `engine` is a plain state machine (command and time in, answer out) over `records`: in memory it is called in
//! place, so it follows virtual time; in a file it runs on a thread of its own, which takes all commands that wait into one
//! transaction, syncs, and only then answers (`file`). After a failed write nothing is trusted: everything says `Storage`
//! until the file is opened anew.

mod consumer_state;
mod engine;
mod file;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod records;
mod stream_state;

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, timeout};

use self::engine::{Answer, Command, Cursor, Engine, FetchedSome, Read};
use self::file::FileStreams;
use self::records::MemoryRecords;
use crate::error::BusError;
use crate::streams::{
    Append, Appended, Batch, ConsumerBackend, ConsumerConfig, Fetched, Purge, ReadFrom, Record, Settle, Source,
    StreamBackend, StreamConfig, StreamState, Usage,
};
use crate::subject::{Pattern, Subject};

/// The streams of one bus; clones share them.
#[derive(Clone)]
pub(super) struct Streams {
    inner: Arc<Inner>,
}

struct Inner {
    place: Place,
    clock: StreamClock,
    /// Who waits for something to read, by stream. As many as there are streams.
    news: Mutex<HashMap<String, Arc<Notify>>>,
    closed: AtomicBool,
}

enum Place {
    Memory(Mutex<(Engine, MemoryRecords)>),
    File(FileStreams),
}

/// Milliseconds since 1970: the wall clock when the bus was made, from then on tokio's time, which tests can stop and
/// which never goes back.
struct StreamClock {
    base_ms: u64,
    started: Instant,
}

impl StreamClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "expiry must survive a restart, so it is kept by the wall clock; in memory nothing does, so there it begins at 0"
    )]
    fn wall() -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { base_ms: u64::try_from(since_1970.as_millis()).unwrap_or(0), started: Instant::now() }
    }

    fn now_ms(&self) -> u64 {
        self.base_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

impl Streams {
    pub(super) fn in_memory() -> Self {
        let place = Place::Memory(Mutex::new((Engine::default(), MemoryRecords::default())));
        Self::over(place, StreamClock { base_ms: 0, started: Instant::now() })
    }

    pub(super) async fn open(path: &Path) -> Result<Self, BusError> {
        let clock = StreamClock::wall();
        let file = FileStreams::open(path, clock.now_ms()).await?;
        let names = file.names.clone();
        let streams = Self::over(Place::File(file), clock);
        for name in names {
            streams.inner.news.lock().insert(name, Arc::default());
        }
        Ok(streams)
    }

    fn over(place: Place, clock: StreamClock) -> Self {
        let inner = Inner { place, clock, news: Mutex::default(), closed: AtomicBool::new(false) };
        Self { inner: Arc::new(inner) }
    }

    /// Refuses everything from now on and waits until the file is let go of.
    pub(super) async fn close(&self, deadline: Duration) -> Result<(), BusError> {
        self.inner.closed.store(true, Ordering::Release);
        for news in self.inner.news.lock().values() {
            news.notify_waiters();
        }
        match &self.inner.place {
            Place::Memory(_) => Ok(()),
            Place::File(file) => file.close(deadline).await,
        }
    }

    async fn call(&self, command: Command, deadline: Duration) -> Result<Answer, BusError> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(BusError::Closed);
        }
        let now_ms = self.inner.clock.now_ms();
        match &self.inner.place {
            Place::Memory(place) => {
                let (engine, records) = &mut *place.lock();
                engine.apply(records, now_ms, command)
            }
            Place::File(file) => file.call(command, now_ms, deadline).await,
        }
    }

    fn news(&self, stream: &str) -> Option<Arc<Notify>> {
        self.inner.news.lock().get(stream).cloned()
    }

    fn tell(&self, stream: &str) {
        if let Some(news) = self.news(stream) {
            news.notify_waiters();
        }
    }

    /// Prepares to wait for news of a stream.
    fn waiting(&self, stream: &str, wait: Duration) -> Result<Waiting<'_>, BusError> {
        let missing = || BusError::StreamMissing { stream: stream.to_owned() };
        let news = self.news(stream).ok_or_else(missing)?;
        Ok(Waiting { clock: &self.inner.clock, news, end: Instant::now() + wait })
    }
}

/// How long a read or a fetch waits for the thread, beyond the wait that its caller grants for news.
const CALL_MAX: Duration = Duration::from_secs(5);

/// Somebody who waits for a record.
struct Waiting<'a> {
    clock: &'a StreamClock,
    news: Arc<Notify>,
    end: Instant,
}

impl Waiting<'_> {
    /// Listening begins before looking, so nothing falls between the two.
    fn listen(&self) -> Pin<Box<OwnedNotified>> {
        let mut notified = Box::pin(self.news.clone().notified_owned());
        notified.as_mut().enable();
        notified
    }

    /// Waits for news, or until something falls due; `false`: time is over.
    async fn again(&self, notified: Pin<Box<OwnedNotified>>, due_ms: Option<u64>) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let due = due_ms.map(|due| Duration::from_millis(due.saturating_sub(self.clock.now_ms()).max(1)));
        let _ = timeout(due.unwrap_or(left).min(left), notified).await;
        true
    }
}

/// Takes the one answer that a command has.
macro_rules! answer {
    ($call:expr, $variant:ident) => {
        match $call.await? {
            Answer::$variant(value) => value,
            other => unreachable!("a {} command was answered with {other:?}", stringify!($variant)),
        }
    };
}

#[async_trait]
impl StreamBackend for Streams {
    async fn usage(&self, deadline: Duration) -> Result<Usage, BusError> {
        Ok(answer!(self.call(Command::Usage, deadline), Usage))
    }

    async fn open(&self, config: &StreamConfig, deadline: Duration) -> Result<(), BusError> {
        self.call(Command::Open(config.clone()), deadline).await?;
        self.inner.news.lock().entry(config.name.clone()).or_default();
        Ok(())
    }

    async fn append(&self, stream: &str, append: Append, deadline: Duration) -> Result<Appended, BusError> {
        let appended = answer!(self.call(Command::Append(stream.to_owned(), append), deadline), Appended);
        self.tell(stream);
        Ok(appended)
    }

    async fn last(&self, stream: &str, subject: &Subject, deadline: Duration) -> Result<Option<Record>, BusError> {
        Ok(answer!(self.call(Command::Last(stream.to_owned(), subject.clone()), deadline), Record))
    }

    async fn state(&self, stream: &str, deadline: Duration) -> Result<StreamState, BusError> {
        Ok(answer!(self.call(Command::State(stream.to_owned()), deadline), State))
    }

    async fn purge(&self, stream: &str, purge: &Purge, deadline: Duration) -> Result<u64, BusError> {
        Ok(answer!(self.call(Command::Purge(stream.to_owned(), purge.clone()), deadline), Count))
    }

    async fn delete(&self, stream: &str, deadline: Duration) -> Result<bool, BusError> {
        let deleted = answer!(self.call(Command::Delete(stream.to_owned()), deadline), Existed);
        if let Some(news) = self.inner.news.lock().remove(stream) {
            news.notify_waiters();
        }
        Ok(deleted)
    }

    async fn read(
        &self,
        stream: &str,
        from: ReadFrom,
        subjects: Option<Pattern>,
        deadline: Duration,
    ) -> Result<Box<dyn Source>, BusError> {
        let state = self.state(stream, deadline).await?;
        let (next, conflate_until) = match from {
            ReadFrom::First => (1, 0),
            ReadFrom::Sequence(sequence) => (sequence.max(1), 0),
            ReadFrom::New => (state.last_sequence + 1, 0),
            ReadFrom::LastOfEachSubject => (1, state.last_sequence),
        };
        let cursor = Cursor { next, conflate_until, subjects };
        Ok(Box::new(InProcessSource { streams: self.clone(), stream: stream.to_owned(), cursor }))
    }

    async fn consume(
        &self,
        stream: &str,
        config: &ConsumerConfig,
        deadline: Duration,
    ) -> Result<Arc<dyn ConsumerBackend>, BusError> {
        self.call(Command::Consume(stream.to_owned(), config.clone()), deadline).await?;
        let (streams, stream, name) = (self.clone(), stream.to_owned(), config.name.clone());
        Ok(Arc::new(InProcessConsumer { streams, stream, name }))
    }

    async fn delete_consumer(&self, stream: &str, name: &str, deadline: Duration) -> Result<bool, BusError> {
        let command = Command::DeleteConsumer(stream.to_owned(), name.to_owned());
        Ok(answer!(self.call(command, deadline), Existed))
    }
}

struct InProcessSource {
    streams: Streams,
    stream: String,
    cursor: Cursor,
}

#[async_trait]
impl Source for InProcessSource {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Batch, BusError> {
        let waiting = self.streams.waiting(&self.stream, wait)?;
        loop {
            let notified = waiting.listen();
            let command = Command::Read(self.stream.clone(), self.cursor.clone(), max);
            let Read { batch, next, due_ms } = answer!(self.streams.call(command, CALL_MAX), Read);
            self.cursor.next = next;
            let more = batch.records.is_empty() && !batch.caught_up;
            if !more && (!batch.records.is_empty() || !waiting.again(notified, due_ms).await) {
                return Ok(batch);
            }
        }
    }
}

struct InProcessConsumer {
    streams: Streams,
    stream: String,
    name: String,
}

#[async_trait]
impl ConsumerBackend for InProcessConsumer {
    async fn fetch(&self, max: usize, wait: Duration) -> Result<Vec<Fetched>, BusError> {
        let waiting = self.streams.waiting(&self.stream, wait)?;
        loop {
            let notified = waiting.listen();
            let command = Command::Fetch(self.stream.clone(), self.name.clone(), max);
            let FetchedSome { records, at_once, due_ms } = answer!(self.streams.call(command, CALL_MAX), Fetched);
            let more = records.is_empty() && at_once;
            if !more && (!records.is_empty() || !waiting.again(notified, due_ms).await) {
                return Ok(records);
            }
        }
    }

    async fn settle(&self, fetched: &Fetched, settle: Settle, deadline: Duration) -> Result<(), BusError> {
        let sequence = fetched.record.sequence;
        let command = Command::Settle(self.stream.clone(), self.name.clone(), sequence, settle);
        self.streams.call(command, deadline).await?;
        // Others may fetch what is due again, or what there was no room for.
        self.streams.tell(&self.stream);
        Ok(())
    }
}
