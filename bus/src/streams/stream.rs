//! [`Stream`]: the handle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    Append, Appended, Consumer, ConsumerConfig, Expect, Purge, ReadFrom, Reader, Record, StreamBackend, StreamConfig,
    StreamState,
};
use crate::bus::Bus;
use crate::error::BusError;
use crate::message::{DEDUPE_ID, Message};
use crate::subject::{Pattern, Subject, unique_token};

/// How long calls without a deadline of their own wait.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// After so long without an answer, what may be repeated is. Synced servers answer in milliseconds, alone; behind
/// thousands of others in a second.
const TRY_MAX: Duration = Duration::from_secs(2);
/// Pause before something that failed at once is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// A durable stream; clones share it. See [the module](crate::streams) for what lost and repeated calls do.
#[derive(Clone)]
pub struct Stream {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) bus: Bus,
    pub(super) backend: Arc<dyn StreamBackend>,
    config: StreamConfig,
}

/// Calls until it succeeds, fails for good, or time is over.
macro_rules! repeated {
    ($tries:expr, $left:ident => $call:expr) => {{
        let tries = $tries;
        loop {
            let $left = tries.left();
            match $call.await {
                Err(error) if tries.again(&error).await => {}
                other => break other,
            }
        }
    }};
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.inner.config.name).finish()
    }
}

impl Stream {
    /// Makes the stream, or opens the one that is there; tries for as long as `deadline`, as a server that has just
    /// started is not ready at once.
    ///
    /// # Errors
    /// `StreamDiffers` when there is one with other settings; `Config`, `Unsupported`, `TimedOut`, `Closed`.
    pub async fn open(bus: &Bus, config: &StreamConfig, deadline: Duration) -> Result<Self, BusError> {
        let config = config.checked()?;
        let backend = bus.stream_backend()?;
        // Opening is idempotent.
        repeated!(Tries::new(deadline, TRY_MAX), left => backend.open(&config, left))?;
        Ok(Self { inner: Arc::new(Inner { bus: bus.clone(), backend, config }) })
    }

    /// Whether there is a stream of this name, whatever its settings. Nothing is made.
    ///
    /// # Errors
    /// `TimedOut` after `deadline`, `NoResponders`, `Unsupported`, `Storage`, `Closed`.
    pub async fn is_there(bus: &Bus, name: &str, deadline: Duration) -> Result<bool, BusError> {
        match bus.stream_backend()?.state(name, deadline).await {
            Ok(_) => Ok(true),
            Err(BusError::StreamMissing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What tells this stream from one that is made later under its name: a random text, in a record on `subject` that whoever asks
    /// first appends after `mark`, and that nobody may remove. Another answer than before means that the stream was lost with all that it
    /// held; its sequences have begun anew.
    ///
    /// # Errors
    /// As [`append`](Self::append), but for `Conflict`.
    pub async fn identity(&self, subject: &Subject, mark: &str) -> Result<String, BusError> {
        loop {
            if let Some(record) = self.last(subject).await? {
                return Ok(String::from_utf8_lossy(&record.message.payload).into_owned());
            }
            let random = format!("{mark}{}", unique_token());
            let first = Append::new(subject.clone(), Message::new(random.clone())).expect(Expect::LastOfSubject(0));
            match self.append(first.dedupe(&random)?, CALL_DEADLINE).await {
                // Somebody else was faster, and that one counts.
                Err(BusError::Conflict { .. }) => {}
                appended => return appended.map(|_| random),
            }
        }
    }

    /// Its settings, as they are.
    pub fn config(&self) -> &StreamConfig {
        &self.inner.config
    }

    /// Its name at the servers.
    pub fn name(&self) -> &str {
        &self.inner.config.name
    }

    /// Appends a record and waits until it is durable. With a dedupe id, lost tries are repeated until `deadline`.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold, `StreamFull`, `TooLarge`, `NotInStream`, `StreamMissing`; `TimedOut`: it may
    /// have been appended or not.
    pub async fn append(&self, append: Append, deadline: Duration) -> Result<Appended, BusError> {
        append.check()?;
        let (bytes, max_bytes) = (append.wire_bytes(), self.inner.bus.payload_max_bytes());
        if bytes > max_bytes {
            return Err(BusError::TooLarge { subject: append.subject.to_string(), bytes, max_bytes });
        }
        if !self.inner.config.subjects.matches(&append.subject) {
            return Err(BusError::NotInStream { stream: self.name().to_owned(), subject: append.subject.to_string() });
        }
        if append.dedupe_id().is_none() {
            return self.inner.backend.append(self.name(), append, deadline).await;
        }
        // Soon enough that the id of a lost one is still known.
        let again_after = TRY_MAX.min(self.inner.config.dedupe_window / 2);
        let appended = repeated!(Tries::new(deadline, again_after), left => {
            self.inner.backend.append(self.name(), append.clone(), left)
        });
        let Err(error @ BusError::Conflict { .. }) = appended else { return appended };
        match self.last(&append.subject).await? {
            // Repeated after its id was forgotten: the record is our own.
            Some(record) if record.message.headers.get(DEDUPE_ID) == append.dedupe_id() => {
                Ok(Appended { sequence: record.sequence, duplicate: true })
            }
            _ => Err(error),
        }
    }

    /// The last record of a subject.
    ///
    /// # Errors
    /// `TimedOut` after 5 s, `StreamMissing`, `Storage`, `Closed`.
    pub async fn last(&self, subject: &Subject) -> Result<Option<Record>, BusError> {
        repeated!(Tries::default(), left => self.inner.backend.last(self.name(), subject, left))
    }

    /// What it holds.
    ///
    /// # Errors
    /// As [`last`](Self::last).
    pub async fn state(&self) -> Result<StreamState, BusError> {
        repeated!(Tries::default(), left => self.inner.backend.state(self.name(), left))
    }

    /// Removes records, says how many. Their sequences are not used again.
    ///
    /// # Errors
    /// As [`last`](Self::last).
    pub async fn purge(&self, purge: &Purge) -> Result<u64, BusError> {
        self.inner.backend.purge(self.name(), purge, CALL_DEADLINE).await
    }

    /// Removes the stream with everything in it; whether there was one.
    ///
    /// # Errors
    /// As [`last`](Self::last).
    pub async fn delete(&self) -> Result<bool, BusError> {
        self.inner.backend.delete(self.name(), CALL_DEADLINE).await
    }

    /// Reads records in order, of some subjects or all.
    ///
    /// # Errors
    /// As [`last`](Self::last).
    pub async fn read(&self, from: ReadFrom, subjects: Option<Pattern>) -> Result<Reader, BusError> {
        let backend = &self.inner.backend;
        let source = repeated!(Tries::default(), left => backend.read(self.name(), from, subjects.clone(), left))?;
        Ok(Reader::new(source))
    }

    /// Makes a durable consumer that begins with the oldest record, or goes on with the one that is there.
    ///
    /// # Errors
    /// `StreamDiffers` when it is there with other settings; as [`last`](Self::last) otherwise.
    pub async fn consumer(&self, config: &ConsumerConfig) -> Result<Consumer, BusError> {
        config.check()?;
        let backend = repeated!(Tries::default(), left => self.inner.backend.consume(self.name(), config, left))?;
        Ok(Consumer::new(backend))
    }

    /// Forgets a durable consumer; whether there was one.
    ///
    /// # Errors
    /// As [`last`](Self::last).
    pub async fn delete_consumer(&self, name: &str) -> Result<bool, BusError> {
        self.inner.backend.delete_consumer(self.name(), name, CALL_DEADLINE).await
    }
}

impl Default for Tries {
    fn default() -> Self {
        Self::new(CALL_DEADLINE, TRY_MAX)
    }
}

/// Tries of one call that may be repeated.
struct Tries {
    end: Instant,
    try_max: Duration,
}

impl Tries {
    /// All of them together have `deadline`, each `try_max` at most.
    fn new(deadline: Duration, try_max: Duration) -> Self {
        Self { end: Instant::now() + deadline, try_max }
    }

    /// How long the next one has.
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now()).min(self.try_max)
    }

    /// Whether to try again after this, now.
    async fn again(&self, error: &BusError) -> bool {
        if !error.is_retryable() || Instant::now() + PAUSE >= self.end {
            return false;
        }
        tracing::debug!(%error, "stream call tried again");
        if !matches!(error, BusError::TimedOut { .. }) {
            sleep(PAUSE).await;
        }
        true
    }
}
