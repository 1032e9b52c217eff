//! Writing a log: one append at a time, of everything that gathered meanwhile.

use std::time::Duration;

use exobus_bus::streams::{Expect, Stream};
use exobus_bus::{BusError, Subject, codec};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::entry::Entry;
use super::logs::{Head, JobLogs, LATER, LogError, Mark, append};
use crate::ids::JobId;

/// So many bytes of entries, about, make a record, as far as they are there: half of what a value on the bus may have.
const RECORD_BYTES: usize = codec::SIZE_BYTES_MAX / 2;
/// What an entry takes beside its values, about.
const ENTRY_BYTES: usize = 128;
/// So many bytes may wait. More gather only where the bus stands still for long while tasks complete.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Pause before an append that the bus could not take is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// For so long it is waited for streams that are lost to be made anew, as candidates for Scheduler do
/// ([`election`](crate::election)).
const MISSING_MAX: Duration = Duration::from_secs(20);
/// What became of the log of a job whose server was emptied.
const EMPTIED: &str = "the NATS server was emptied, and has lost what was logged";

/// What became of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogNews {
    /// Everything up to this position is durable.
    Durable(u64),
    /// It cannot be written any more.
    Trouble(Trouble),
}

/// Why a log cannot be written any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Another run has begun: this one must end.
    TakenOver,
    /// The bus does not take it, and will not.
    Refused {
        /// Why.
        reason: String,
        /// Its last record, if it was ever written.
        last: Option<Mark>,
    },
}

/// The log of a job, for the Owner that writes it.
#[derive(Debug)]
pub(crate) struct JobLog {
    entries: mpsc::UnboundedSender<Entry>,
    position: u64,
    durable: u64,
}

impl JobLog {
    /// Goes on where the run has begun, on the current arbiter. `news` hears what became of it.
    ///
    /// # Errors
    /// The job has no subject.
    pub(crate) fn start(logs: &JobLogs, head: Head, news: impl Fn(LogNews) + 'static) -> Result<Self, LogError> {
        let job = head.spec.job;
        let (stream, subject) = logs.continued(job)?;
        let (entries, queue) = mpsc::unbounded_channel();
        let writer = Writer { job, logs: logs.clone(), stream, subject, head, queue, waiting: Vec::new() };
        tokio::task::spawn_local(async move {
            if let Err(trouble) = writer.run(&news).await {
                news(LogNews::Trouble(trouble));
            }
        });
        Ok(Self { entries, position: 0, durable: 0 })
    }

    /// Notes something.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.position += 1;
        // A writer that is in trouble has said so.
        let _ = self.entries.send(entry);
    }

    /// How many entries were added.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Everything up to this position has become durable.
    pub(crate) fn became_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Up to which position it is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }
}

struct Writer {
    job: JobId,
    logs: JobLogs,
    stream: Stream,
    subject: Subject,
    head: Head,
    queue: mpsc::UnboundedReceiver<Entry>,
    /// Taken from the queue, and not in a record yet.
    waiting: Vec<Entry>,
}

fn bytes_of(entry: &Entry) -> usize {
    let values = match entry {
        Entry::Done(done) => {
            let values: usize = done.values.iter().map(|(_, bytes)| bytes.len()).sum();
            values + ENTRY_BYTES / 2 * (done.outputs.len() + done.consumed.len())
        }
        Entry::Choice(choice) => choice.entries() * ENTRY_BYTES / 2,
        Entry::End(Ok(value)) => value.len(),
        Entry::Run { .. } | Entry::End(Err(_)) => 0,
    };
    ENTRY_BYTES + values
}

impl Writer {
    async fn run(mut self, news: &impl Fn(LogNews)) -> Result<(), Trouble> {
        let mut written = 0;
        while let Some(first) = self.queue.recv().await {
            self.waiting.push(first);
            loop {
                self.gather()?;
                let entries = self.record();
                if entries == 0 {
                    break;
                }
                let record =
                    codec::encode_checked(&self.waiting[..entries]).map_err(|error| self.refused(error.to_string()))?;
                self.write(record).await?;
                self.waiting.drain(..entries);
                written += entries as u64;
                news(LogNews::Durable(written));
            }
        }
        Ok(())
    }

    /// Takes what is in the queue.
    fn gather(&mut self) -> Result<(), Trouble> {
        while let Ok(entry) = self.queue.try_recv() {
            self.waiting.push(entry);
        }
        let bytes: usize = self.waiting.iter().map(bytes_of).sum();
        if bytes > WAITING_BYTES_MAX {
            return Err(self.refused(format!("{bytes} bytes wait to be logged")));
        }
        Ok(())
    }

    fn refused(&self, reason: String) -> Trouble {
        Trouble::Refused { reason, last: Some(self.head.last.clone()) }
    }

    /// How many entries the next record has.
    fn record(&self) -> usize {
        let mut bytes = 0;
        let fits = self.waiting.iter().take_while(|entry| {
            bytes += bytes_of(entry);
            bytes <= RECORD_BYTES
        });
        // One that is too large alone is refused by the bus.
        fits.count().max(self.waiting.len().min(1))
    }

    async fn write(&mut self, record: bytes::Bytes) -> Result<(), Trouble> {
        let id = format!("{}-{}-{}", self.job, self.head.name, self.head.last.sequence);
        let mut missing = None;
        loop {
            let expect = Expect::LastOfSubject(self.head.last.sequence);
            match append(&self.stream, &self.subject, record.clone(), (expect, &id), LATER).await {
                Ok(sequence) => {
                    self.head.last.sequence = sequence;
                    return Ok(());
                }
                Err(error) => self.failed(error, &mut missing).await?,
            }
        }
    }

    /// What it means that an append failed with this; nothing: it is tried again. `missing`: since when there is no stream.
    ///
    /// Only a stream of the same identity can tell that somebody else writes the log now. Another one knows nothing of it: the server
    /// was emptied.
    async fn failed(&self, error: BusError, missing: &mut Option<Instant>) -> Result<(), Trouble> {
        let error = match error {
            BusError::Conflict { .. } => match self.logs.identity().await {
                Ok(identity) if identity == self.head.last.identity => return Err(Trouble::TakenOver),
                Ok(identity) => return Err(self.begin_anew(identity).await),
                Err(error) => error,
            },
            error => error,
        };
        let patient = match &error {
            BusError::StreamMissing { .. } => {
                if missing.is_none() {
                    warn!(job_id = %self.job, "{EMPTIED}; the job goes on");
                }
                missing.get_or_insert_with(Instant::now).elapsed() < MISSING_MAX
            }
            error => error.is_retryable(),
        };
        if !patient {
            warn!(job_id = %self.job, %error, "log cannot be written any more");
            return Err(self.refused(error.to_string()));
        }
        debug!(job_id = %self.job, %error, "log not written yet");
        sleep(PAUSE).await;
        Ok(())
    }

    /// The log has begun anew with its server, and notes no more than that the job runs: what it learned and did is not known to the
    /// Writer any more, and half of it would be wrong.
    async fn begin_anew(&self, identity: String) -> Trouble {
        match self.logs.begin_anew(&self.head).await {
            Ok(sequence) => Trouble::Refused { reason: EMPTIED.to_owned(), last: Some(Mark { identity, sequence }) },
            Err(LogError::Bus(BusError::Conflict { .. })) => Trouble::TakenOver,
            Err(error) => {
                warn!(job_id = %self.job, %error, "the job is not logged any more");
                Trouble::Refused { reason: EMPTIED.to_owned(), last: None }
            }
        }
    }
}
