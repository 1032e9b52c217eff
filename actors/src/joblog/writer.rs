//! Writing a log: one append at a time, of everything that gathered meanwhile.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_bus::streams::{Expect, Stream};
use exobus_bus::{BusError, Subject, codec};
use exobus_store::Clock;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::cut::Cut;
use super::entry::Entry;
use super::logs::{Head, JobLogs, LATER, LogError, Mark, append, encode, record_bytes};
use crate::causes;
use crate::ids::JobId;

/// So many bytes of entries, about, make a record, as far as they are there: half of what a value on the bus may have.
const RECORD_BYTES: usize = codec::SIZE_BYTES_MAX / 2;
/// What an entry takes beside its values, about.
const ENTRY_BYTES: usize = 128;
/// So many bytes may wait. More gather only where the bus stands still for long while tasks complete.
pub(super) const WAITING_BYTES_MAX: u64 = 64 << 20;
/// Pause before an append that the bus could not take is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// For so long it is waited for streams that are lost to be made anew, as candidates for Scheduler do
/// ([`election`](crate::election)).
const MISSING_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether the log is there still, besides when another Scheduler begins: who makes streams anew does.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What became of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogNews {
    /// Nothing up to this position waits for the log any more: it is durable, or never will be.
    Durable(u64),
    /// Another run has begun: this one must end.
    TakenOver,
    /// Nothing is noted from now on but how the job ends.
    Cut(Cut),
}

/// How much of its quota a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes in the stream, about; those that it had when it was cut.
    pub(crate) bytes: u64,
    /// Bytes that it may have there.
    pub(crate) quota_bytes: u64,
}

/// Another run has begun.
struct TakenOver;

/// The log of a job, for the Owner that writes it.
#[derive(Debug)]
pub(crate) struct JobLog {
    entries: mpsc::UnboundedSender<Entry>,
    /// Of the entries that wait to be written.
    bytes: Arc<AtomicU64>,
    /// Of the log.
    written: Arc<AtomicU64>,
    quota_bytes: u64,
    look: Arc<Notify>,
}

impl JobLog {
    /// Goes on where the run has begun, on the current arbiter, up to so many bytes of the log; the clock says when that is. `news` hears
    /// what became of it.
    ///
    /// # Errors
    /// The job has no subject.
    pub(crate) fn start(
        logs: &JobLogs,
        head: Head,
        (quota_bytes, clock): (u64, Arc<dyn Clock>),
        news: impl Fn(LogNews) + 'static,
    ) -> Result<Self, LogError> {
        let job = head.spec.job;
        let (stream, subject) = logs.continued(job)?;
        let (entries, queue) = mpsc::unbounded_channel();
        let (look, bytes) = (Arc::<Notify>::default(), Arc::<AtomicU64>::default());
        let written = Arc::new(AtomicU64::new(head.bytes));
        let mut writer = Writer {
            job,
            logs: logs.clone(),
            stream,
            subject,
            head,
            queue,
            bytes: bytes.clone(),
            waiting: VecDeque::new(),
            settled: 0,
            written: written.clone(),
            quota_bytes,
            clock,
            whole: true,
            cut: None,
            look: look.clone(),
            look_at: Instant::now() + LOOK_EVERY,
            missing: None,
        };
        tokio::task::spawn_local(async move {
            if let Err(TakenOver) = writer.run(&news).await {
                news(LogNews::TakenOver);
            }
        });
        Ok(Self { entries, bytes, written, quota_bytes, look })
    }

    /// Notes something.
    pub(crate) fn add(&self, entry: Entry) {
        self.bytes.fetch_add(bytes_of(&entry) as u64, Ordering::Relaxed);
        // A writer that has ended has said why.
        let _ = self.entries.send(entry);
    }

    /// Bytes that wait to be written, about.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How much of its quota the log has.
    pub(crate) fn written(&self) -> Written {
        Written { bytes: self.written.load(Ordering::Relaxed), quota_bytes: self.quota_bytes }
    }

    /// Streams may have been made anew: it is looked now.
    pub(crate) fn look(&self) {
        self.look.notify_one();
    }
}

struct Writer {
    job: JobId,
    logs: JobLogs,
    stream: Stream,
    subject: Subject,
    head: Head,
    queue: mpsc::UnboundedReceiver<Entry>,
    /// Of what is in it, and what waits.
    bytes: Arc<AtomicU64>,
    /// Taken from the queue, and not in a record yet.
    waiting: VecDeque<Entry>,
    /// How many entries nothing waits for any more.
    settled: u64,
    /// Bytes of the log, about, and how many it may have.
    written: Arc<AtomicU64>,
    quota_bytes: u64,
    clock: Arc<dyn Clock>,
    /// Whether all that was noted is in the log. Else no more goes in than how the job ends.
    whole: bool,
    /// Since when that is so, where the log was not lost and begun anew.
    cut: Option<CutOff>,
    look: Arc<Notify>,
    /// When it is looked next whether the log is there still.
    look_at: Instant,
    /// Since when there is no stream.
    missing: Option<Instant>,
}

/// A log that is cut.
struct CutOff {
    cut: Cut,
    /// Whether that stands in it.
    marked: bool,
}

/// Bytes that an entry takes while it waits, about.
pub(crate) fn bytes_of(entry: &Entry) -> usize {
    let values = match entry {
        Entry::Done(done) => {
            let values: usize = done.values.iter().map(|(_, bytes)| bytes.len()).sum();
            values + ENTRY_BYTES / 2 * (done.outputs.len() + done.consumed.len())
        }
        Entry::Choice(choice) => choice.bytes(ENTRY_BYTES / 2),
        Entry::End(Ok(value)) => value.len(),
        Entry::Run { .. } | Entry::Committing | Entry::Cut(_) | Entry::End(Err(_)) => 0,
    };
    ENTRY_BYTES + values
}

impl Writer {
    /// Writes until the job is over, or its Owner is.
    async fn run(&mut self, news: &impl Fn(LogNews)) -> Result<(), TakenOver> {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.look_at) => self.look().await?,
                () = self.look.notified() => self.look().await?,
                entry = self.queue.recv() => {
                    let Some(entry) = entry else { return Ok(()) };
                    self.waiting.push_back(entry);
                    if self.write_waiting(news).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Writes what waits, as far as it goes in; true when that was how the job ends.
    async fn write_waiting(&mut self, news: &impl Fn(LogNews)) -> Result<bool, TakenOver> {
        loop {
            if let Some(bytes) = self.gather() {
                self.cut_off(format!("{bytes} bytes waited to be written"), news).await?;
            }
            let entries = self.record();
            if entries == 0 {
                return Ok(false);
            }
            if !self.write(entries, news).await? {
                continue;
            }
            let (mut over, mut bytes) = (false, 0);
            for entry in self.waiting.drain(..entries) {
                over |= matches!(entry, Entry::End(_));
                bytes += bytes_of(&entry) as u64;
            }
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.settled += entries as u64;
            news(LogNews::Durable(self.settled));
            if over {
                return Ok(true);
            }
        }
    }

    /// Takes what is in the queue; how many bytes wait, where these are too many for a log that is whole.
    fn gather(&mut self) -> Option<u64> {
        while let Ok(entry) = self.queue.try_recv() {
            self.waiting.push_back(entry);
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        (self.whole && bytes > WAITING_BYTES_MAX).then_some(bytes)
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

    /// Writes a record of the first entries. False: the log is another one than it was, and it is to be looked again what goes in.
    ///
    /// Only a stream of the same identity can tell that somebody else writes the log now. Another one knows nothing of it: the server
    /// was emptied.
    async fn write(&mut self, entries: usize, news: &impl Fn(LogNews)) -> Result<bool, TakenOver> {
        let goes_in = |entry: &&Entry| self.whole || matches!(entry, Entry::End(_));
        let record: Vec<_> = self.waiting.iter().take(entries).filter(goes_in).collect();
        if record.is_empty() {
            return Ok(true);
        }
        let record = match encode(&record) {
            Ok(record) => record,
            Err(error) => return self.refused(&error, news).await,
        };
        let bytes = record_bytes(record.len());
        if self.whole && self.written.load(Ordering::Relaxed) + bytes > self.quota_bytes {
            self.cut_at(Cut::at_quota(self.clock.unix_ms(), self.quota_bytes), news).await?;
            return Ok(false);
        }
        // The last word is no repetition of a record of which the outcome is not known.
        let end = if self.whole { "" } else { "-end" };
        let id = format!("{}-{}-{}{end}", self.job, self.head.name, self.head.last.sequence);
        loop {
            let expect = Expect::LastOfSubject(self.head.last.sequence);
            let error = match append(&self.stream, &self.subject, record.clone(), (expect, &id), LATER).await {
                Ok(sequence) => {
                    (self.head.last.sequence, self.missing) = (sequence, None);
                    self.written.fetch_add(bytes, Ordering::Relaxed);
                    return Ok(true);
                }
                Err(BusError::Conflict { .. }) => match self.logs.identity().await {
                    Ok(identity) if identity == self.head.last.identity => {
                        self.after_own_last().await?;
                        return Ok(false);
                    }
                    Ok(identity) => {
                        let ends = !self.whole;
                        if let Err(error) = self.begin_anew(identity).await? {
                            if ends && !self.is_patient(&error) {
                                return self.refused(&error, news).await;
                            }
                            sleep(PAUSE).await;
                        }
                        return Ok(false);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let error = LogError::Bus(error);
            if !self.is_patient(&error) {
                return self.refused(&error, news).await;
            }
            debug!(job_id = %self.job, error = &error as &dyn Error, "log not written yet");
            sleep(PAUSE).await;
        }
    }

    /// Somebody has written the log after the record that this run takes for its last one. Where that was this run, in an append of which
    /// the outcome was not known, it goes on after that.
    async fn after_own_last(&mut self) -> Result<(), TakenOver> {
        match self.logs.last_by(self.job, &self.head.name).await {
            Ok(Some(sequence)) if sequence != self.head.last.sequence => self.head.last.sequence = sequence,
            Ok(_) => return Err(TakenOver),
            Err(error) => {
                debug!(job_id = %self.job, error = &error as &dyn Error, "who has written the log is not known yet");
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    async fn cut_off(&mut self, reason: String, news: &impl Fn(LogNews)) -> Result<(), TakenOver> {
        self.cut_at(Cut { at_ms: self.clock.unix_ms(), reason }, news).await
    }

    /// Nothing goes in from now on but how the job ends. That is noted at once, where it can be: before anybody counts on what is not in it.
    async fn cut_at(&mut self, cut: Cut, news: &impl Fn(LogNews)) -> Result<(), TakenOver> {
        self.whole = false;
        self.cut = Some(CutOff { cut: cut.clone(), marked: false });
        self.mark().await?;
        news(LogNews::Cut(cut));
        Ok(())
    }

    /// Notes that the log is cut, where it is and that is not noted, and makes the room free that the rest of it takes. Where it cannot be
    /// noted now, it is tried again when it is looked next.
    async fn mark(&mut self) -> Result<(), TakenOver> {
        let Some(CutOff { cut, marked: false }) = &self.cut else { return Ok(()) };
        let marked = encode(&[Entry::Cut(cut.clone())]);
        let Ok(record) = marked.inspect_err(|error| warn!(job_id = %self.job, %error, "the cut of the log")) else {
            return Ok(());
        };
        let id = format!("{}-{}-cut", self.job, self.head.name);
        let last = (self.head.last.sequence, &*id);
        match self.logs.append_making_room(&self.subject, record, last, LATER).await {
            Ok(sequence) => {
                self.head.last.sequence = sequence;
                self.cut.iter_mut().for_each(|cut| cut.marked = true);
                if let Err(error) = self.logs.remove_before(&self.subject, sequence).await {
                    debug!(job_id = %self.job, %error, "the rest of the log is left");
                }
            }
            // What goes on in streams that were made anew is noted there first, when it is looked next.
            Err(BusError::Conflict { .. }) if self.is_in_same_streams().await => self.after_own_last().await?,
            Err(error) => debug!(job_id = %self.job, %error, "it is not noted yet that the log is cut"),
        }
        // It may have taken long, and what waits to be written has its turn first.
        self.look_at = Instant::now() + LOOK_EVERY;
        Ok(())
    }

    async fn is_in_same_streams(&self) -> bool {
        self.logs.identity().await.is_ok_and(|identity| identity == self.head.last.identity)
    }

    /// Whether the streams are others than those of this log, as far as that is known.
    async fn is_lost(&self) -> bool {
        self.logs.identity().await.is_ok_and(|identity| identity != self.head.last.identity)
    }

    /// Whether the last record of the log is known, if nobody else has written it.
    fn knows_last(&self) -> bool {
        self.whole || self.cut.as_ref().is_some_and(|cut| cut.marked)
    }

    /// Whether what failed like this is to be tried again.
    fn is_patient(&mut self, error: &LogError) -> bool {
        if !matches!(error, LogError::Bus(BusError::StreamMissing { .. })) {
            return error.may_heal();
        }
        if self.missing.is_none() {
            warn!(job_id = %self.job, "the NATS server was emptied, and has lost what was logged; the job goes on");
        }
        self.missing.get_or_insert_with(Instant::now).elapsed() < MISSING_MAX
    }

    /// The bus does not take a record, and will not. Where that says how the job ends, it ends all the same, if it is this run's to end;
    /// where that cannot be known, as it would without a log.
    async fn refused(&mut self, error: &(dyn Error + 'static), news: &impl Fn(LogNews)) -> Result<bool, TakenOver> {
        if self.whole && self.is_lost().await {
            // It is begun anew where it is looked next.
            warn!(job_id = %self.job, error, "the log is lost with its server; the job goes on");
            self.whole = false;
            return Ok(false);
        }
        if self.whole {
            self.cut_off(format!("it cannot be written any more: {}", causes(error)), news).await?;
            return Ok(false);
        }
        warn!(job_id = %self.job, error, "the end of the job cannot be logged");
        match self.logs.is_last(self.job, &self.head.last).await {
            Ok(false) => Err(TakenOver),
            Ok(true) | Err(_) => Ok(true),
        }
    }

    /// Looks whether the log is there still, and this run's, whether or not there is something to write: as long as the Owner lives, its
    /// job stands in the log that there is; and one that has nothing to write hears of a later run, too.
    async fn look(&mut self) -> Result<(), TakenOver> {
        self.look_at = Instant::now() + LOOK_EVERY;
        let last = self.logs.last(self.job).await;
        // Asked after it: what was the last one is of the same streams.
        let failed = match self.logs.identity().await {
            Ok(identity) if identity == self.head.last.identity => match last {
                // Of a log that is not whole a record of this run may have gone in of which that is not known.
                Ok(last) if self.knows_last() && last != Some(self.head.last.sequence) => return Err(TakenOver),
                Ok(_) => {
                    self.mark().await?;
                    None
                }
                Err(error) => Some(error),
            },
            Ok(identity) => self.begin_anew(identity).await?.err(),
            Err(error) => Some(error.into()),
        };
        if let Some(error) = failed {
            debug!(job_id = %self.job, error = &error as &dyn Error, "whether the job is logged is not known now");
        }
        Ok(())
    }

    /// The log has begun anew with its server, and notes no more than that the job runs, and how it ends: what it learned and did is not
    /// known to the Writer any more. Where it fails it is tried again soon, if that is of use.
    async fn begin_anew(&mut self, identity: String) -> Result<Result<(), LogError>, TakenOver> {
        (self.whole, self.missing) = (false, None);
        // It is to be noted there, too.
        self.cut.iter_mut().for_each(|cut| cut.marked = false);
        match self.logs.begin_anew(&self.head).await {
            Ok(sequence) => {
                warn!(job_id = %self.job, "the NATS server was emptied; it is logged anew that the job runs");
                self.head.last = Mark { identity, sequence };
                if self.cut.is_some() {
                    self.look_at = Instant::now() + PAUSE;
                }
                Ok(Ok(()))
            }
            Err(LogError::Bus(BusError::Conflict { .. })) => Err(TakenOver),
            Err(error) if error.may_heal() => {
                self.look_at = Instant::now() + PAUSE;
                Ok(Err(error))
            }
            Err(error) => {
                warn!(job_id = %self.job, error = &error as &dyn Error, "the job is not logged now");
                Ok(Err(error))
            }
        }
    }
}
