//! The journal and the history of jobs, as streams of the bus.
//!
//! One Scheduler appends to the journal. Each record says in which epoch it was written, and each append names the record that it takes for
//! the last one; so one that was succeeded, and does not know that yet, is refused, and is [`Fenced`](JournalError::Fenced).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::codec::{self, CodecError};
use exobus_bus::streams::{Append, Expect, Purge, ReadFrom, Record, Stream, StreamConfig};
use exobus_bus::{Bus, BusError, Pattern, Subject, Subjects};
use futures::future::join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

use super::JOURNAL_VERSION;
use super::book::{Found, KEPT_BYTES_EACH};
use super::history::{ENDED_KEPT_MS, Ended};
use super::transition::Transition;
use super::view::View;
use crate::durable::open_durable;
use crate::ids::{Epoch, JobId};
use crate::joblog::{LogError, LogsLink, PLAN, SPEC_TEXT};
use crate::protocol::job::{Bodies, BodiesAt, Carried, JobRecord};

const JOURNAL: &str = "journal";
const HISTORY: &str = "history";
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
const HISTORY_BYTES_MAX: u64 = 256 << 20;
/// How long one call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How often it is tried to begin, while the one before still appends.
const BEGINS_MAX: usize = 32;
/// Records that are read at a time.
const RECORDS: usize = 256;

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// Of the Scheduler that wrote it.
    pub epoch: Epoch,
    /// What happened, in order.
    pub transitions: Vec<Transition>,
}

/// Why the journal does not do what is asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// Another Scheduler appends.
    #[error("another Scheduler, of epoch {0:?}, writes the journal of jobs")]
    Fenced(Epoch),
    /// The bus does not do what is asked.
    #[error("the journal of jobs")]
    Bus(#[from] BusError),
    /// A record is none of ours, or another release has written it.
    #[error("the journal of jobs, record {sequence}")]
    Record { sequence: u64, source: CodecError },
    /// It cannot be written down.
    #[error("a record of the journal of jobs")]
    Encode(#[source] CodecError),
    /// The log of a job.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What a job is to run with is not where it should be.
    #[error("what job {0} is to run with is not in the journal any more")]
    NoBodies(JobId),
}

impl JournalError {
    /// Whether what is in the way may be out of it soon.
    fn may_heal(&self) -> bool {
        match self {
            Self::Bus(error) => error.may_heal(),
            Self::Log(error) => error.may_heal(),
            _ => false,
        }
    }
}

impl From<exobus_bus::SubjectError> for JournalError {
    fn from(error: exobus_bus::SubjectError) -> Self {
        Self::Bus(error.into())
    }
}

/// The streams. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Journal {
    bus: Bus,
    subjects: Subjects,
    journal: Stream,
    history: Stream,
    transitions: Subject,
    history_prefix: Subject,
    logs: LogsLink,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal({})", self.transitions)
    }
}

/// The way to the journal beside the logs of all jobs, which is opened when somebody asks for it. Cheap to clone; the default leads nowhere.
#[derive(Clone, Debug, Default)]
pub struct JournalLink {
    logs: LogsLink,
    opened: Arc<Mutex<Option<Journal>>>,
}

impl JournalLink {
    /// To the journal beside these logs.
    pub fn new(logs: LogsLink) -> Self {
        Self { logs, opened: Arc::default() }
    }

    /// The logs beside it.
    pub(crate) fn logs(&self) -> &LogsLink {
        &self.logs
    }

    /// The journal; `None` where there are no logs, or those of one job alone.
    pub(crate) async fn get(&self) -> Result<Option<Journal>, BusError> {
        let Some(cluster) = self.logs.cluster() else { return Ok(None) };
        if self.logs.get().await?.is_none() {
            return Ok(None);
        }
        let mut opened = self.opened.lock().await;
        if opened.is_none() {
            *opened = Journal::open(cluster, self.logs.clone(), CALL_DEADLINE).await?;
        }
        Ok(opened.clone())
    }
}

/// The last record that a Scheduler has appended, which its next one names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) epoch: Epoch,
    pub(crate) last: u64,
}

impl Journal {
    /// Opens the streams, or makes them; `None` where the bus has none. Tries for `deadline`.
    pub(crate) async fn open(
        (bus, subjects): (&Bus, &Subjects),
        logs: LogsLink,
        deadline: Duration,
    ) -> Result<Option<Self>, BusError> {
        let (journal_prefix, history_prefix) = (subjects.stream(JOURNAL)?, subjects.stream(HISTORY)?);
        let transitions = Subject::parse(&format!("{journal_prefix}.transitions"))?;
        let config = |name: &str, prefix: &Subject| -> Result<StreamConfig, BusError> {
            Ok(StreamConfig::new(&subjects.durable_name("stream", name)?, Pattern::parse(&format!("{prefix}.>"))?))
        };
        let journal = StreamConfig { bytes_max: JOURNAL_BYTES_MAX, ..config(JOURNAL, &journal_prefix)? };
        let history = StreamConfig {
            bytes_max: HISTORY_BYTES_MAX,
            age_max: Duration::from_millis(ENDED_KEPT_MS),
            last_of_subject_only: true,
            ..config(HISTORY, &history_prefix)?
        };
        let open = async || {
            let journal = Stream::open(bus, &journal, CALL_DEADLINE).await?;
            let history = Stream::open(bus, &history, CALL_DEADLINE).await?;
            let (transitions, history_prefix) = (transitions.clone(), history_prefix.clone());
            Ok(Self {
                bus: bus.clone(),
                subjects: subjects.clone(),
                journal,
                history,
                transitions,
                history_prefix,
                logs: logs.clone(),
            })
        };
        match open_durable(deadline, open).await? {
            Ok(journal) => Ok(Some(journal)),
            Err(error) => {
                warn!(%error, "there is no journal of jobs: those that wait, and what is known of those that are over, end with the Scheduler");
                Ok(None)
            }
        }
    }

    /// The view beside it, anew.
    pub(crate) fn view(&self, lost: impl Fn() + 'static) -> View {
        View::start(self.bus.clone(), self.subjects.clone(), lost)
    }

    /// Begins to append as the Scheduler of `epoch`, and reads what there is.
    pub(crate) async fn begin(&self, epoch: Epoch) -> Result<(Place, Found), JournalError> {
        for _ in 0..BEGINS_MAX {
            let last = self.journal.last(&self.transitions).await?;
            let before = last.as_ref().map(decode::<JournalRecord>).transpose()?;
            if let Some(later) = before.map(|record| record.epoch).filter(|before| succeeds(*before, epoch)) {
                return Err(JournalError::Fenced(later));
            }
            let place = Place { epoch, last: last.map_or(0, |record| record.sequence) };
            match self.append(place, vec![Transition::Begins(epoch)]).await {
                Ok(place) => return Ok((place, self.found().await?)),
                Err(JournalError::Fenced(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(JournalError::Fenced(epoch))
    }

    /// Makes the streams again where they may have been lost.
    pub(crate) async fn reopen_if(&self, may_be_lost: bool) -> Result<(), JournalError> {
        if may_be_lost {
            for stream in [&self.journal, &self.history] {
                Stream::open(&self.bus, stream.config(), CALL_DEADLINE).await?;
            }
        }
        Ok(())
    }

    /// Appends what happened, once, however often it is called with the same place.
    pub(crate) async fn append(&self, place: Place, transitions: Vec<Transition>) -> Result<Place, JournalError> {
        let Place { epoch, last } = place;
        let payload = encode(&JournalRecord { epoch, transitions })?;
        let append = Append::new(self.transitions.clone(), payload)
            .expect(Expect::LastOfSubject(last))
            .dedupe(&format!("{}-{last}", epoch.0))
            .map_err(BusError::from)?;
        match self.journal.append(append, CALL_DEADLINE).await {
            Ok(appended) => Ok(Place { epoch, last: appended.sequence }),
            Err(BusError::Conflict { .. }) => {
                let last = self.journal.last(&self.transitions).await?;
                let by = last.as_ref().map(decode::<JournalRecord>).transpose()?;
                Err(JournalError::Fenced(by.map_or(epoch, |record| record.epoch)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the streams have now.
    pub(crate) async fn found(&self) -> Result<Found, JournalError> {
        let mut found = Found::default();
        let take = |record: &Record| {
            let JournalRecord { transitions, .. } = decode(record)?;
            found.transitions.extend(transitions.into_iter().map(|transition| {
                let transition = match transition {
                    // Of what is large in the journal nothing but where is needed in memory.
                    Transition::Accepted(job, Carried::Here(bodies)) if bodies.plan.len() > KEPT_BYTES_EACH => {
                        Transition::Accepted(job, Carried::Here(Bodies::default()))
                    }
                    transition => transition,
                };
                (record.sequence, transition)
            }));
            Ok(())
        };
        each(&self.journal, ReadFrom::First, take).await?;
        let take = |record: &Record| {
            if record.is_expiry_marker() {
                return Ok(());
            }
            match decode::<JobRecord>(record) {
                Ok(job) => {
                    let keyed = job.key.clone().map(|key| (key, job.spec, job.accepted_unix_ms));
                    found.ended.push((Ended::of(&job), keyed));
                }
                // What is over is over: who asks for it is told.
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a record of the history of jobs is left out")
                }
            }
            Ok(())
        };
        each(&self.history, ReadFrom::LastOfEachSubject, take).await?;
        found.ended.sort_by_key(|(ended, _)| ended.at_unix_ms);
        Ok(found)
    }

    /// What a job was accepted with.
    pub(crate) async fn bodies(&self, job: JobId, at: &BodiesAt) -> Result<Option<Bodies>, JournalError> {
        match at {
            BodiesAt::Here(bodies) => Ok(Some(bodies.clone())),
            BodiesAt::Nowhere => Ok(None),
            BodiesAt::Pieces(pieces) => {
                let Some(logs) = self.logs.get().await? else { return Err(JournalError::NoBodies(job)) };
                let spec = logs.pieces(job, SPEC_TEXT, pieces.spec).await?;
                let plan = logs.pieces(job, PLAN, pieces.plan).await?;
                match (spec, plan) {
                    (Some(spec), Some(plan)) => Ok(Some(Bodies { spec, plan })),
                    _ => Err(JournalError::NoBodies(job)),
                }
            }
            BodiesAt::Journal(sequence) => match self.carried(job, *sequence).await? {
                Carried::Here(bodies) => Ok(Some(bodies)),
                carried => Box::pin(self.bodies(job, &carried.at(*sequence))).await,
            },
        }
    }

    /// What the record of this number carries of a job.
    pub(crate) async fn carried(&self, job: JobId, sequence: u64) -> Result<Carried, JournalError> {
        let only = Pattern::from(self.transitions.clone());
        let mut reader = self.journal.read(ReadFrom::Sequence(sequence), Some(only)).await?;
        let batch = reader.next(1, CALL_DEADLINE).await?;
        let record = batch.records.first().filter(|record| record.sequence == sequence);
        let Some(record) = record else { return Err(JournalError::NoBodies(job)) };
        let found = decode::<JournalRecord>(record)?.transitions.into_iter().find_map(|transition| match transition {
            Transition::Accepted(record, carried) if record.job == job => Some(carried),
            _ => None,
        });
        found.ok_or(JournalError::NoBodies(job))
    }

    /// Puts jobs that are over into the history; those that are there. What can never be put there is left out of it.
    pub(crate) async fn archive(&self, jobs: &[(Box<JobRecord>, BodiesAt)]) -> Result<Vec<JobId>, JournalError> {
        let put = join_all(jobs.iter().map(async |(record, at)| (record.job, self.put(record, at).await))).await;
        let (mut archived, mut failed) = (Vec::new(), None);
        for (job, outcome) in put {
            match outcome {
                Ok(()) => archived.push(job),
                Err(JournalError::Bus(BusError::StreamFull { .. })) => {
                    // The older half is of interest to fewer.
                    let state = self.history.state().await?;
                    let before = Some(state.first_sequence + (state.last_sequence - state.first_sequence) / 2 + 1);
                    self.history.purge(&Purge { subjects: None, before }).await?;
                }
                Err(error) if error.may_heal() => failed = Some(error),
                Err(error) => {
                    warn!(job_id = %job, error = &error as &dyn std::error::Error, "a job that is over is left out of the history");
                    archived.push(job);
                }
            }
        }
        match failed.filter(|_| archived.is_empty()) {
            Some(error) => Err(error),
            None => Ok(archived),
        }
    }

    async fn put(&self, record: &JobRecord, at: &BodiesAt) -> Result<(), JournalError> {
        let job = record.job;
        let payload = encode(record)?;
        let subject = self.of_history(&record.tenant, job)?;
        let append = Append::new(subject, payload).dedupe(&format!("{job}-over")).map_err(BusError::from)?;
        self.history.append(append, CALL_DEADLINE).await?;
        if matches!(at, BodiesAt::Pieces(_))
            && let Some(logs) = self.logs.get().await?
        {
            // It may have ended before it began.
            logs.forget(job).await?;
        }
        Ok(())
    }

    /// What the history has of a job.
    pub(crate) async fn archived(&self, tenant: &str, job: JobId) -> Result<Option<JobRecord>, JournalError> {
        let record = self.history.last(&self.of_history(tenant, job)?).await?;
        record.filter(|record| !record.is_expiry_marker()).as_ref().map(decode).transpose()
    }

    /// Loses them, as a server does that is emptied.
    #[cfg(feature = "simulation")]
    pub(crate) async fn lose(&self) -> Result<(), BusError> {
        self.journal.delete().await?;
        self.history.delete().await.map(drop)
    }

    /// Takes jobs out of the history.
    pub(crate) async fn forget(&self, jobs: &[(Arc<str>, JobId)]) -> Result<(), JournalError> {
        for (tenant, job) in jobs {
            let subjects = Some(Pattern::from(self.of_history(tenant, *job)?));
            self.history.purge(&Purge { subjects, before: None }).await?;
        }
        Ok(())
    }

    /// Removes the records before this one.
    pub(crate) async fn trim(&self, before: u64) -> Result<(), JournalError> {
        self.journal.purge(&Purge { subjects: None, before: Some(before) }).await?;
        Ok(())
    }

    fn of_history(&self, tenant: &str, job: JobId) -> Result<Subject, exobus_bus::SubjectError> {
        Subject::parse(&format!("{}.{tenant}.{job}", self.history_prefix))
    }
}

/// Whether the Scheduler of an epoch came after that of another one. Those of servers that were emptied in between do not compare: they begin
/// with what tells these apart, in the upper half.
fn succeeds(one: Epoch, other: Epoch) -> bool {
    one.0 >> 32 == other.0 >> 32 && one > other
}

/// Hands over each record that a stream has now.
async fn each(
    stream: &Stream,
    from: ReadFrom,
    mut take: impl FnMut(&Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    if stream.state().await?.records == 0 {
        return Ok(());
    }
    let mut reader = stream.read(from, None).await?;
    loop {
        let batch = reader.next(RECORDS, CALL_DEADLINE).await?;
        batch.records.iter().try_for_each(&mut take)?;
        if batch.caught_up || batch.records.is_empty() {
            return Ok(());
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes, JournalError> {
    codec::encode_checked_as(JOURNAL_VERSION, value).map_err(JournalError::Encode)
}

fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, JournalError> {
    codec::decode_checked_as(JOURNAL_VERSION, &record.message.payload)
        .map_err(|source| JournalError::Record { sequence: record.sequence, source })
}
