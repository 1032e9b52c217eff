//! Where the logs of all jobs are.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::codec::{self, CodecError};
use exobus_bus::message::{DEDUPE_ID, Message};
use exobus_bus::streams::{Append, Expect, Purge, ReadFrom, Record, Stream, StreamConfig};
use exobus_bus::{Bus, BusError, Pattern, Subject, SubjectError, Subjects};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::LOG_VERSION;
use super::cut::Cut;
use super::entry::{Entry, Past};
use crate::protocol::host::{JobEnd, JobSpec};

use crate::durable::open_durable;
use crate::ids::{Incarnation, JobId, JobSecret, NodeId};
use crate::task::JobError;

/// The streams, and what their subjects begin with.
const JOBS: &str = "jobs";
const ENDS: &str = "ends";
/// Bytes of the logs of all jobs that are not over. A million tasks take some 200 MB.
const JOBS_BYTES_MAX: u64 = 256 << 20;
const ENDS_BYTES_MAX: u64 = 32 << 20;
/// For so long it is known how a job ended.
const ENDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Below the prefix of the jobs' stream: what tells it from another one that is made later.
const IDENTITY: &str = "identity";
/// What the identity of streams begins with that were made again for a cluster that had some.
const ANEW: &str = "anew-";
/// How long one call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long one of two appends may take of which somebody waits for the outcome, ...
const SOON: Duration = Duration::from_secs(2);
/// ... and of those that nobody waits for.
pub(super) const LATER: Duration = Duration::from_secs(5);
/// So many appends in a row stay unanswered, by a server that answers questions, before it is said to store nothing.
const TRIES: u32 = 2;
/// How long the answer to a question may take.
const QUESTION_DEADLINE: Duration = Duration::from_secs(1);
/// For so long it is believed that there are none.
const ABSENT_FOR: Duration = Duration::from_secs(30);
/// How often who opens a log tries while an earlier run still writes it.
const TAKEOVERS_MAX: usize = 32;
/// How long to wait for a spec that should be there: the last one may have gone meanwhile.
const SPEC_WAIT: Duration = Duration::from_millis(500);
/// Records that are read at a time.
const RECORDS: usize = 256;
/// Pieces that are read at a time.
const PIECES: usize = 16;
/// What pieces of parameters, and of specs, are called in the log of their job.
pub(crate) const PLAN: &str = "plan";
pub(crate) const SPEC_TEXT: &str = "spectext";
/// Bytes of a piece of what is too large for one message.
const PIECE_BYTES: usize = 192 << 10;
/// What a record takes in a stream beside its payload, about: subject, headers and what servers keep with them.
const RECORD_EXTRA_BYTES: u64 = 256;

/// How the ids of records of a log end that say that a run begins, before the sequence of the record before it, ...
const OPENS: &str = "opens-";
/// ... and that a run goes on whose log was lost.
const BEGINS_ANEW: &str = "anew";

/// Whether a log begins with this record, and does not lack what came before it.
fn is_beginning(record: &Record) -> bool {
    let id = record.message.headers.get(DEDUPE_ID).unwrap_or_default();
    id.ends_with(&format!("-{OPENS}0")) || id.ends_with(&format!("-{BEGINS_ANEW}"))
}

/// Bytes that a record with so many bytes of payload takes in a stream, about.
pub(super) fn record_bytes(payload_bytes: usize) -> u64 {
    payload_bytes as u64 + RECORD_EXTRA_BYTES
}

/// The logs of a cluster, or of a process that is alone. Cheap to clone.
#[derive(Clone)]
pub struct JobLogs {
    jobs: Stream,
    ends: Stream,
    jobs_prefix: Subject,
    ends_prefix: Subject,
}

impl fmt::Debug for JobLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobLogs({})", self.jobs_prefix)
    }
}

/// The way to the logs, which are opened when somebody asks for them. Cheap to clone; the default leads nowhere.
#[derive(Clone, Default)]
pub struct LogsLink(Option<Arc<Unopened>>);

struct Unopened {
    bus: Bus,
    subjects: Subjects,
    file: Option<PathBuf>,
    opened: Mutex<Known>,
}

/// What the bus has said of the logs.
enum Known {
    Nothing,
    There(JobLogs),
    /// It has none; a server that has just been started may say so, too.
    Absent(Instant),
}

impl fmt::Debug for LogsLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogsLink({})", if self.0.is_some() { "a bus" } else { "none" })
    }
}

impl LogsLink {
    /// To the logs on this bus.
    pub fn new(bus: Bus, subjects: Subjects) -> Self {
        Self(Some(Arc::new(Unopened { bus, subjects, file: None, opened: Mutex::new(Known::Nothing) })))
    }

    /// To the log of one job on a bus of its own, which keeps it in `file`: there as long as the job is not over.
    pub fn in_file(bus: Bus, subjects: Subjects, file: PathBuf) -> Self {
        Self(Some(Arc::new(Unopened { bus, subjects, file: Some(file), opened: Mutex::new(Known::Nothing) })))
    }

    /// The file that holds the log of the only job, where there is one.
    pub fn file(&self) -> Option<&Path> {
        self.0.as_ref()?.file.as_deref()
    }

    /// The bus that keeps the logs of all jobs of a cluster; `None` where there are no logs, or those of one job alone.
    pub(crate) fn cluster(&self) -> Option<(&Bus, &Subjects)> {
        let link = self.0.as_ref().filter(|link| link.file.is_none())?;
        Some((&link.bus, &link.subjects))
    }

    /// The logs; `None` where there are none. The first call may take seconds.
    ///
    /// # Errors
    /// The bus does not answer: the next call tries again.
    pub async fn get(&self) -> Result<Option<JobLogs>, BusError> {
        let Some(link) = &self.0 else { return Ok(None) };
        let mut known = link.opened.lock().await;
        match &*known {
            Known::There(logs) => return Ok(Some(logs.clone())),
            Known::Absent(since) if since.elapsed() < ABSENT_FOR => return Ok(None),
            Known::Absent(_) | Known::Nothing => {}
        }
        let opened = JobLogs::open(&link.bus, &link.subjects, true, CALL_DEADLINE).await?;
        *known = opened.clone().map_or_else(|| Known::Absent(Instant::now()), Known::There);
        Ok(opened)
    }
}

/// Why a log cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The bus does not do what is asked.
    #[error("the log of jobs")]
    Bus(#[from] BusError),
    /// It cannot be written down.
    #[error("a record of the log of jobs")]
    Encode(#[source] CodecError),
    /// A record is none of ours.
    #[error("the log of job {job}, record {sequence}")]
    Record {
        /// Whose log it is.
        job: JobId,
        /// Which one.
        sequence: u64,
        /// What is wrong.
        source: CodecError,
    },
    /// Another release has written it.
    #[error(
        "the log of job {job} is of version {found}, this exobus reads version {known}: use the exobus that wrote it, to go on with \
         the job or to give it up"
    )]
    Version {
        /// Whose log it is.
        job: JobId,
        /// The version that it has.
        found: u8,
        /// [`LOG_VERSION`](super::LOG_VERSION).
        known: u8,
    },
    /// Others have begun to run the job again and again meanwhile.
    #[error("others write the log of job {0}")]
    Contended(JobId),
}

impl LogError {
    /// Whether what is in the way may be out of it soon: streams of a server that was emptied are made anew.
    pub fn may_heal(&self) -> bool {
        matches!(self, Self::Bus(error) if error.may_heal())
    }
}

impl From<SubjectError> for LogError {
    fn from(error: SubjectError) -> Self {
        Self::Bus(error.into())
    }
}

/// What there is of a job.
#[derive(Debug)]
pub enum Opened {
    /// It is over.
    Over(Box<JobEnd>),
    /// It has ended, as its log says, and nobody has closed it: who ran it may have died before it gave back what the job had taken
    /// outside. Whoever has done that closes it. A job whose log is [cut](Cut) has ended when somebody would take it up.
    Ended(Box<JobEnd>),
    /// It is to run.
    Runs(Box<Run>),
}

/// A run of a job that is about to begin.
#[derive(Debug)]
pub struct Run {
    pub(crate) logs: JobLogs,
    /// What earlier runs have left.
    pub(crate) past: Past,
    pub(crate) head: Head,
}

/// Where a run writes.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(super) spec: JobSpec,
    pub(super) node: NodeId,
    /// What the run is called, as no other one.
    pub(super) name: String,
    /// From what all ids of the job start.
    pub(super) secret: JobSecret,
    /// How many runs began before.
    pub(super) runs: u32,
    /// Bytes of the log so far, about.
    pub(super) bytes: u64,
    /// The log's last record.
    pub(super) last: Mark,
}

impl Head {
    /// From what all ids of the job start.
    pub(crate) fn secret(&self) -> JobSecret {
        self.secret
    }

    /// How many runs began before.
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether earlier runs are not known here, and nodes may know of some: servers were emptied.
    pub(crate) fn forgets(&self) -> bool {
        self.runs == 0 && self.last.identity.starts_with(ANEW)
    }
}

/// A record, as no other stream of the same name has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Of the stream.
    pub(super) identity: String,
    /// Of the record.
    pub(super) sequence: u64,
}

/// Appends once, however often it is tried: `Conflict` means that somebody else has. Tries `TRIES` times for `each`.
///
/// A server whose disk is full takes what is sent and says nothing, until it is started anew, as if it were away. But it
/// answers questions: what stays unanswered between them, again and again, is `StoresNothing`, which no patience heals.
pub(super) async fn append(
    stream: &Stream,
    subject: &Subject,
    payload: impl Into<Message>,
    (expect, id): (Expect, &str),
    each: Duration,
) -> Result<u64, BusError> {
    let append = Append::new(subject.clone(), payload).expect(expect).dedupe(id)?;
    let begun = Instant::now();
    for tries in 1.. {
        let appended = stream.append(append.clone(), each).await;
        let Err(error @ BusError::TimedOut { .. }) = appended else { return Ok(appended?.sequence) };
        if !matches!(timeout(QUESTION_DEADLINE, stream.state()).await, Ok(Ok(_))) {
            return Err(error);
        }
        if tries == TRIES {
            break;
        }
    }
    let reason = format!("{TRIES} appends in {:?} were not acknowledged; its disk may be full", begun.elapsed());
    Err(BusError::StoresNothing { stream: stream.name().to_owned(), reason })
}

impl JobLogs {
    /// Opens the logs, or makes them, `anew` where there may have been others before; `None` where the bus has no durable streams. Tries
    /// for `deadline`.
    ///
    /// # Errors
    /// The bus does not answer, or refuses.
    pub async fn open(
        bus: &Bus,
        subjects: &Subjects,
        anew: bool,
        deadline: Duration,
    ) -> Result<Option<Self>, BusError> {
        let (jobs_prefix, ends_prefix) = (subjects.stream(JOBS)?, subjects.stream(ENDS)?);
        let config = |name: &str, prefix: &Subject| -> Result<StreamConfig, BusError> {
            Ok(StreamConfig::new(&subjects.durable_name("stream", name)?, Pattern::parse(&format!("{prefix}.>"))?))
        };
        let jobs = StreamConfig { bytes_max: JOBS_BYTES_MAX, ..config(JOBS, &jobs_prefix)? };
        let ends = StreamConfig {
            bytes_max: ENDS_BYTES_MAX,
            age_max: ENDS_KEPT,
            last_of_subject_only: true,
            ..config(ENDS, &ends_prefix)?
        };
        let open = async || {
            let jobs = Stream::open(bus, &jobs, CALL_DEADLINE).await?;
            let ends = Stream::open(bus, &ends, CALL_DEADLINE).await?;
            let logs = Self { jobs, ends, jobs_prefix: jobs_prefix.clone(), ends_prefix: ends_prefix.clone() };
            // Before anything else is written.
            logs.jobs.identity(&logs.identified()?, if anew { ANEW } else { "" }).await?;
            Ok(logs)
        };
        match open_durable(deadline, open).await {
            Ok(Ok(logs)) => Ok(Some(logs)),
            Ok(Err(error)) | Err(error @ BusError::StreamFull { .. }) => {
                warn!(%error, "there is no log of jobs: a job ends with the node that hosts it");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Loses them, as a server does that is emptied.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) async fn lose(&self) -> Result<(), BusError> {
        self.jobs.delete().await?;
        self.ends.delete().await.map(drop)
    }

    /// What tells these logs from those of a server that was emptied and has begun anew.
    ///
    /// # Errors
    /// The bus does not answer, or `StreamMissing`: it was emptied, and they are not made anew yet.
    pub async fn identity(&self) -> Result<String, BusError> {
        self.jobs.identity(&self.identified()?, ANEW).await
    }

    fn identified(&self) -> Result<Subject, SubjectError> {
        Subject::parse(&format!("{}.{IDENTITY}", self.jobs_prefix))
    }

    fn subject(&self, job: JobId, what: &str) -> Result<Subject, SubjectError> {
        Subject::parse(&format!("{}.{job}.{what}", self.jobs_prefix))
    }

    fn end_of(&self, job: JobId) -> Result<Subject, SubjectError> {
        Subject::parse(&format!("{}.{job}", self.ends_prefix))
    }

    /// Bytes of what there is of jobs that are not over.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn bytes(&self) -> Result<u64, LogError> {
        Ok(self.jobs.state().await?.bytes)
    }

    /// Notes that a job was accepted; nothing where it was noted before.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn accept(&self, spec: &JobSpec) -> Result<(), LogError> {
        let subject = self.subject(spec.job, "spec")?;
        let id = format!("{}-spec", spec.job);
        let mut record = spec.clone();
        if spec.params.len() > PIECE_BYTES {
            record.plan_pieces = self.put_pieces(spec.job, PLAN, &spec.params).await?;
            record.params = bytes::Bytes::new();
        }
        match append(&self.jobs, &subject, encode(&record)?, (Expect::LastOfSubject(0), &id), SOON).await {
            Ok(_) | Err(BusError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What was accepted under this id, if it is not over.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn spec(&self, job: JobId) -> Result<Option<JobSpec>, LogError> {
        let record = self.jobs.last(&self.subject(job, "spec")?).await?;
        let Some(mut spec) = record.map(|record| decode::<JobSpec>(job, &record)).transpose()? else { return Ok(None) };
        if spec.plan_pieces > 0 {
            let pieces = std::mem::take(&mut spec.plan_pieces);
            let Some(params) = self.pieces(job, PLAN, pieces).await? else { return Ok(None) };
            spec.params = params;
        }
        Ok(Some(spec))
    }

    /// Puts bytes into the log of a job that is not accepted yet, or was, in pieces that messages can carry; returns how many.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn put_pieces(&self, job: JobId, what: &str, bytes: &[u8]) -> Result<u32, LogError> {
        let mut count = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            let subject = self.subject(job, &format!("{what}.{count}"))?;
            let id = format!("{job}-{what}-{count}");
            let piece = bytes::Bytes::copy_from_slice(piece);
            match append(&self.jobs, &subject, piece, (Expect::LastOfSubject(0), &id), SOON).await {
                Ok(_) | Err(BusError::Conflict { .. }) => count += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }

    /// The bytes that were [put](Self::put_pieces) into it in so many pieces; `None`: some are not there any more.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn pieces(&self, job: JobId, what: &str, count: u32) -> Result<Option<bytes::Bytes>, LogError> {
        let mut bytes = bytes::BytesMut::new();
        for number in 0..count {
            let piece = self.jobs.last(&self.subject(job, &format!("{what}.{number}"))?).await?;
            let Some(piece) = piece else { return Ok(None) };
            bytes.extend_from_slice(&piece.message.payload);
        }
        Ok(Some(bytes.freeze()))
    }

    /// The jobs of which there are pieces of a spec: accepted ones, and such as never were.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn with_pieces(&self) -> Result<BTreeSet<JobId>, LogError> {
        let mut jobs = BTreeSet::new();
        let take = async |record: &Record| {
            // `...<job>.spectext.0`
            jobs.extend(record.subject.as_str().rsplit('.').nth(2).and_then(|job| job.parse::<JobId>().ok()));
            Ok(())
        };
        self.each_last(&format!("*.{SPEC_TEXT}.0"), PIECES, take).await?;
        Ok(jobs)
    }

    /// Hands over the last record of each of these subjects of jobs; so many are read at a time.
    async fn each_last(
        &self,
        of_jobs: &str,
        at_a_time: usize,
        mut take: impl AsyncFnMut(&Record) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let subjects = Pattern::parse(&format!("{}.{of_jobs}", self.jobs_prefix))?;
        // Its identity is always there.
        if self.jobs.state().await?.records <= 1 {
            return Ok(());
        }
        let mut reader = self.jobs.read(ReadFrom::LastOfEachSubject, Some(subjects)).await?;
        loop {
            let batch = reader.next(at_a_time, SPEC_WAIT).await?;
            for record in &batch.records {
                take(record).await?;
            }
            if batch.caught_up || batch.records.is_empty() {
                return Ok(());
            }
        }
    }

    /// Forgets the pieces of a job that was not accepted; whether it was none. One that some node hosts is left alone.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn forget_pieces(&self, job: JobId) -> Result<bool, LogError> {
        if self.jobs.last(&self.subject(job, "spec")?).await?.is_some() {
            return Ok(false);
        }
        self.forget(job).await?;
        Ok(true)
    }

    /// Begins a run of an accepted job on a node: whoever wrote its log before cannot any more. `fresh`: its secret, where it has none yet.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn open_job(
        &self,
        spec: &JobSpec,
        (node, incarnation): (&NodeId, Incarnation),
        fresh: JobSecret,
    ) -> Result<Opened, LogError> {
        let job = spec.job;
        let subject = self.subject(job, "log")?;
        for _ in 0..TAKEOVERS_MAX {
            let identity = self.identity().await?;
            if let Some(end) = self.end(job).await? {
                return Ok(Opened::Over(Box::new(end)));
            }
            let (mut past, last, bytes) = self.past(job, &subject).await?;
            if let Some(result) = past.end.take() {
                return Ok(Opened::Ended(Box::new(JobEnd::of(result))));
            }
            if let Some(cut) = past.cut.take() {
                match self.end_cut(job, &subject, last, &cut).await {
                    Ok(end) if self.identity().await? == identity => return Ok(Opened::Ended(Box::new(end))),
                    Ok(_) | Err(BusError::Conflict { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            let secret = past.secret.unwrap_or(fresh);
            let run = encode(&[Entry::Run { node: node.clone(), secret }])?;
            let name = format!("{}-{node}-{}", past.runs, incarnation.0);
            let id = format!("{job}-{name}-{OPENS}{last}");
            let appended = append(&self.jobs, &subject, run, (Expect::LastOfSubject(last), &id), SOON).await;
            // It was accepted in streams that may be lost.
            if appended.is_ok() {
                self.accept(spec).await?;
            }
            match appended {
                Ok(sequence) if self.identity().await? == identity => {
                    let last = Mark { identity, sequence };
                    let head =
                        Head { spec: spec.clone(), node: node.clone(), name, secret, runs: past.runs, bytes, last };
                    return Ok(Opened::Runs(Box::new(Run { logs: self.clone(), past, head })));
                }
                // What was appended meanwhile counts, too. Where streams were made anew meanwhile, what was read is of the lost ones.
                Ok(_) | Err(BusError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(LogError::Contended(job))
    }

    /// A job whose log is cut cannot be taken up: it ends, with these words. Whoever runs it still cannot write its log any more.
    async fn end_cut(&self, job: JobId, subject: &Subject, last: u64, cut: &Cut) -> Result<JobEnd, BusError> {
        let error = JobError::LogCut { cut: cut.to_string() };
        let entry = Entry::End(Err(error.clone()));
        let entry = encode(&[entry]).map_err(|error| BusError::Config(error.to_string()))?;
        let id = format!("{job}-ends-cut-{last}");
        self.append_making_room(subject, entry, (last, &id), SOON).await?;
        Ok(JobEnd::failed(error))
    }

    /// Appends the next record of a log after its last one. Where the stream is full, what came before that one makes room for it: a log
    /// without its beginning is one that is cut.
    pub(super) async fn append_making_room(
        &self,
        subject: &Subject,
        record: bytes::Bytes,
        (last, id): (u64, &str),
        each: Duration,
    ) -> Result<u64, BusError> {
        let expect = Expect::LastOfSubject(last);
        match append(&self.jobs, subject, record.clone(), (expect, id), each).await {
            Err(BusError::StreamFull { .. }) => {
                self.remove_before(subject, last).await?;
                append(&self.jobs, subject, record, (expect, id), each).await
            }
            appended => appended,
        }
    }

    /// Removes the records of a log before this one.
    pub(super) async fn remove_before(&self, subject: &Subject, sequence: u64) -> Result<(), BusError> {
        let purge = Purge { subjects: Some(Pattern::from(subject.clone())), before: Some(sequence) };
        self.jobs.purge(&purge).await.map(drop)
    }

    /// The sequence of the last record of a job's log, if a run of this name has written it.
    pub(super) async fn last_by(&self, job: JobId, run: &str) -> Result<Option<u64>, LogError> {
        let last = self.jobs.last(&self.subject(job, "log")?).await?;
        let by_it = |id: &str| id.starts_with(&format!("{job}-{run}-"));
        Ok(last.filter(|last| last.message.headers.get(DEDUPE_ID).is_some_and(by_it)).map(|last| last.sequence))
    }

    /// Notes a run that goes on, and nothing of what it has done, in logs that were made anew since it began; returns the sequence
    /// of its log's last record.
    ///
    /// # Errors
    /// `Conflict`: another run has begun there. Otherwise as [`LogError`] says.
    pub(super) async fn begin_anew(&self, head: &Head) -> Result<u64, LogError> {
        self.accept(&head.spec).await?;
        let (job, name) = (head.spec.job, &head.name);
        // Whoever takes it up is a later run than this one for all nodes.
        let entry = Entry::Run { node: head.node.clone(), secret: head.secret };
        let run = encode(&vec![entry; head.runs as usize + 1])?;
        let id = format!("{job}-{name}-{BEGINS_ANEW}");
        let subject = self.subject(job, "log")?;
        Ok(append(&self.jobs, &subject, run, (Expect::LastOfSubject(0), &id), SOON).await?)
    }

    /// What earlier runs have noted, the sequence of the last record, and how many bytes the log has.
    async fn past(&self, job: JobId, subject: &Subject) -> Result<(Past, u64, u64), LogError> {
        let (mut past, mut last, mut bytes) = (Past::default(), 0, 0);
        // Most jobs are new.
        if self.jobs.last(subject).await?.is_none() {
            return Ok((past, last, bytes));
        }
        let mut reader = self.jobs.read(ReadFrom::First, Some(Pattern::parse(subject.as_str())?)).await?;
        loop {
            let batch = reader.next(RECORDS, CALL_DEADLINE).await?;
            for record in &batch.records {
                if last == 0 && !is_beginning(record) {
                    past.cut = Some(Cut::without_beginning());
                }
                past.add(decode(job, record)?);
                last = record.sequence;
                bytes += record_bytes(record.message.payload.len());
            }
            if batch.caught_up {
                return Ok((past, last, bytes));
            }
        }
    }

    /// A log that goes on after the record with this sequence.
    pub(super) fn continued(&self, job: JobId) -> Result<(Stream, Subject), LogError> {
        Ok((self.jobs.clone(), self.subject(job, "log")?))
    }

    /// Whether nobody else has opened a job's log since this record, its last one, was written. Of logs that were made anew
    /// meanwhile, what is not there says nothing.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(super) async fn is_last(&self, job: JobId, mark: &Mark) -> Result<bool, LogError> {
        let same = self.identity().await? == mark.identity;
        Ok(self.last(job).await?.map_or(!same, |sequence| same && sequence == mark.sequence))
    }

    /// The sequence of the last record of a job's log, where there is one.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(super) async fn last(&self, job: JobId) -> Result<Option<u64>, LogError> {
        Ok(self.jobs.last(&self.subject(job, "log")?).await?.map(|record| record.sequence))
    }

    /// How a job ended, as long as it is remembered.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn end(&self, job: JobId) -> Result<Option<JobEnd>, LogError> {
        let record = self.ends.last(&self.end_of(job)?).await?;
        record.filter(|record| !record.is_expiry_marker()).map(|record| decode(job, &record)).transpose()
    }

    /// Whether a job is known to be over, or not to be a job that is logged: such a one ends with the node that hosts it. Streams that
    /// were made anew do not know that of a job that they have never heard of: its Owner may live, and be about to note it.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn is_over(&self, job: JobId) -> Result<bool, LogError> {
        if self.end(job).await?.is_some() {
            return Ok(true);
        }
        Ok(self.spec(job).await?.is_none() && !self.identity().await?.starts_with(ANEW))
    }

    /// Notes how a job ended, and forgets the rest of it.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn close_job(&self, job: JobId, end: &JobEnd) -> Result<(), LogError> {
        let subject = self.end_of(job)?;
        let encoded = match encode(end) {
            Ok(encoded) => encoded,
            // It is told to who listens now; who asks later learns that it is over.
            Err(error) => {
                let reason = format!("the job is over, and its result could not be kept: {error}");
                let end = JobEnd { result: Err(JobError::Runtime { reason }), ..end.clone() };
                encode(&end)?
            }
        };
        let id = format!("{job}-end");
        match append(&self.ends, &subject, encoded.clone(), (Expect::Any, &id), SOON).await {
            Err(BusError::StreamFull { .. }) => {
                // The older half is of interest to fewer.
                let state = self.ends.state().await?;
                let before = Some(state.first_sequence + (state.last_sequence - state.first_sequence) / 2 + 1);
                self.ends.purge(&Purge { subjects: None, before }).await?;
                append(&self.ends, &subject, encoded, (Expect::Any, &id), SOON).await?;
            }
            other => drop(other?),
        }
        self.forget(job).await
    }

    /// Forgets a job as if it had never been accepted.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn forget(&self, job: JobId) -> Result<(), LogError> {
        let all = Pattern::parse(&format!("{}.{job}.>", self.jobs_prefix))?;
        self.jobs.purge(&Purge { subjects: Some(all), before: None }).await?;
        Ok(())
    }

    /// The jobs that were accepted and are not over, the oldest first. One whose record cannot be read does not keep others
    /// from going on: it is left out.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn unfinished(&self) -> Result<Vec<JobSpec>, LogError> {
        let leave_out = |error: LogError| {
            warn!(error = &error as &dyn std::error::Error, "a job that was accepted cannot be read");
            Ok(())
        };
        self.accepted(leave_out).await
    }

    /// The same where there is one job only: that its record cannot be read is not that there is none.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn unfinished_if_readable(&self) -> Result<Vec<JobSpec>, LogError> {
        self.accepted(Err).await
    }

    async fn accepted(&self, unreadable: impl Fn(LogError) -> Result<(), LogError>) -> Result<Vec<JobSpec>, LogError> {
        let mut jobs = Vec::new();
        let take = async |record: &Record| {
            // `...<job>.spec`
            let job = record.subject.as_str().rsplit('.').nth(1).and_then(|job| job.parse().ok());
            match decode::<JobSpec>(job.unwrap_or(JobId::from_u128(0)), record) {
                Err(error) => unreadable(error)?,
                // Whoever noted the end was stopped before the rest was forgotten.
                Ok(spec) if self.end(spec.job).await?.is_some() => self.forget(spec.job).await?,
                Ok(spec) => jobs.push(spec),
            }
            Ok(())
        };
        self.each_last("*.spec", RECORDS, take).await?;
        Ok(jobs)
    }
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<bytes::Bytes, LogError> {
    codec::encode_checked_as(LOG_VERSION, value).map_err(LogError::Encode)
}

fn decode<T: serde::de::DeserializeOwned>(job: JobId, record: &Record) -> Result<T, LogError> {
    codec::decode_checked_as(LOG_VERSION, &record.message.payload).map_err(|source| match source {
        CodecError::Version { found, known } => LogError::Version { job, found, known },
        source => LogError::Record { job, sequence: record.sequence, source },
    })
}

#[cfg(test)]
mod tests {
    use exobus_bus::chaos::{Chaos, Faults};

    use super::*;

    fn spec() -> JobSpec {
        JobSpec {
            job: JobId::from_u128(7),
            tenant: "default".into(),
            program: "sort@1".to_owned(),
            params: Vec::new().into(),
            sample_ms: 0,
            plan_pieces: 0,
        }
    }

    async fn logs() -> (Chaos, JobLogs) {
        let chaos = Chaos::around(&Bus::in_process(), 1, Faults::default());
        let subjects = Subjects::new("test").unwrap();
        let logs = JobLogs::open(&chaos.bus(), &subjects, false, CALL_DEADLINE).await.unwrap().unwrap();
        (chaos, logs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_and_stores_nothing_is_told_from_one_that_is_away() {
        let (chaos, logs) = logs().await;
        let begun = Instant::now();
        chaos.set(Faults { disk_full: true, ..Faults::default() });
        let refused = logs.accept(&spec()).await.unwrap_err();
        assert!(matches!(refused, LogError::Bus(BusError::StoresNothing { .. })), "{refused:?}");
        assert!(begun.elapsed() <= Duration::from_secs(5), "after {:?}", begun.elapsed());
        chaos.set(Faults { drop: 1.0, ..Faults::default() });
        let LogError::Bus(away) = logs.accept(&spec()).await.unwrap_err() else { panic!("not the bus") };
        assert!(away.is_retryable(), "{away:?}");
        chaos.set(Faults::default());
        chaos.heal();
        logs.accept(&spec()).await.unwrap();
        assert!(logs.spec(spec().job).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn pieces_of_jobs_that_were_never_accepted_are_found_and_forgotten() {
        let (_, logs) = logs().await;
        let jobs = [7, 8].map(JobId::from_u128);
        for job in jobs {
            logs.put_pieces(job, SPEC_TEXT, &vec![b' '; PIECE_BYTES + 1]).await.unwrap();
            logs.put_pieces(job, PLAN, b"plan").await.unwrap();
        }
        logs.accept(&spec()).await.unwrap();
        assert_eq!(logs.with_pieces().await.unwrap(), jobs.into());
        assert!(!logs.forget_pieces(jobs[0]).await.unwrap(), "a node hosts it");
        assert!(logs.forget_pieces(jobs[1]).await.unwrap());
        assert_eq!(logs.with_pieces().await.unwrap(), [jobs[0]].into());
        assert_eq!(logs.pieces(jobs[1], PLAN, 1).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_job_that_cannot_be_read_is_not_taken_for_none() {
        let (_, logs) = logs().await;
        assert_eq!(logs.unfinished_if_readable().await.unwrap().len(), 0);
        let subject = logs.subject(JobId::from_u128(7), "spec").unwrap();
        let damaged = bytes::Bytes::from_static(b"damaged");
        append(&logs.jobs, &subject, damaged, (Expect::Any, "1"), CALL_DEADLINE).await.unwrap();
        let error = logs.unfinished_if_readable().await.unwrap_err();
        assert!(matches!(error, LogError::Record { job, .. } if job == JobId::from_u128(7)), "{error}");
        assert_eq!(logs.unfinished().await.unwrap().len(), 0, "others go on");
    }
}
