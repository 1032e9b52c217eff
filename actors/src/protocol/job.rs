//! What is known of a job, from when it is accepted to long after its end, and how it may go on: a pure state machine.
//!
//! ```text
//!   queued --> starting --> running --> committing --> succeeded
//!     |  ^________|            |             |
//!     |                        +-------------+-------> failed
//!     +------------------------+---------------------> cancelled
//! ```
//!
//! A job that is `committing` makes its output visible: a cancel that comes then waits, and comes to nothing where the job succeeds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::host::JobEnd;
use crate::event::NodeFigures;
use crate::ids::{JobId, NodeId};
use crate::task::JobError;

/// Most bytes of the name of a job, of who has handed it in, and of its key.
pub const WORDS_BYTES_MAX: usize = 128;
/// What a program returned stands in the record of its job in so many bytes at most.
pub const VALUE_BYTES_MAX: usize = 2048;
/// Most bytes of the reason why a job failed: what is longer is cut.
pub const REASON_BYTES_MAX: usize = 2048;

/// How it stands with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is accepted, and waits for its turn.
    Queued,
    /// A node is told to host it.
    Starting,
    /// Its program runs.
    Running,
    /// It makes its output visible.
    Committing,
    /// It did what it should.
    Succeeded,
    /// It could not.
    Failed,
    /// Somebody did not want it any more.
    Cancelled,
}

impl JobState {
    /// All of them, in the order in which a job passes them.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Starting, Self::Running, Self::Committing, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// What the door says of a job, in `state` of its answer.
    pub fn of_answer(answer: &serde_json::Value) -> Option<Self> {
        answer["state"].as_str()?.parse().ok()
    }

    /// Whether nothing comes after it.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Whether its program runs on some node.
    pub const fn is_hosted(self) -> bool {
        matches!(self, Self::Running | Self::Committing)
    }

    /// As it stands in answers and records.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Committing => "committing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a job that is here may be there next. One whose host was lost starts again, from wherever it was; one that could not
    /// even be started is queued again.
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (now, _) if now.is_over() => false,
            (_, Self::Queued) => matches!(self, Self::Queued | Self::Starting),
            _ => true,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

impl std::str::FromStr for JobState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let of = Self::ALL.into_iter().find(|state| state.token() == text);
        of.ok_or_else(|| format!("{} is what a job can be", Self::ALL.map(Self::token).join(", ")))
    }
}

/// Bytes that lie elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many.
    pub bytes: u64,
    /// Their xxh3-128.
    #[serde(with = "crate::ids::as_bytes")]
    pub hash: u128,
}

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, hash: twox_hash::XxHash3_128::oneshot(bytes) }
    }
}

/// Why a job did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Reason {
    /// A reason, its message as long as a record may have it.
    pub fn new(code: &str, message: &str) -> Self {
        let mut end = message.len().min(REASON_BYTES_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < message.len() { " ..." } else { "" };
        Self { code: code.to_owned(), message: format!("{}{cut}", &message[..end]) }
    }

    /// Why a job ended with this error.
    pub fn of(error: &JobError) -> Self {
        Self::new(error.code(), &error.to_string())
    }
}

/// That somebody, or its time limit, wants a job to end before it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// When that was accepted, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Who says that he wants it, where somebody does.
    pub who: Option<String>,
    /// Its time limit, milliseconds, where that is over: the job fails then.
    pub limit_ms: Option<u64>,
}

/// What a job used, of all its nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Nodes that worked for it.
    pub nodes: u32,
    /// Bytes that were spilled.
    pub spilled_bytes: u64,
    /// Bytes that nodes fetched from each other.
    pub received_bytes: u64,
    /// Sum of the greatest memory of the nodes.
    pub peak_memory_bytes: u64,
    /// The most that the Owner's tables took.
    pub owner_bytes: u64,
}

impl Used {
    /// What the end of a job says of that.
    pub fn of(end: &JobEnd) -> Self {
        let sum = |of: fn(&NodeFigures) -> u64| end.nodes.values().map(of).sum();
        Self {
            nodes: end.nodes.len() as u32,
            spilled_bytes: sum(|node| node.spilled_bytes),
            received_bytes: sum(|node| node.received_bytes),
            peak_memory_bytes: sum(|node| node.peak_memory_bytes),
            owner_bytes: end.owner_bytes,
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What its program returned, or why it did not.
    pub result: Result<Digest, Reason>,
    /// What its program returned, where that is small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Bytes>,
    /// Whether that is since somebody wanted it to end.
    pub cancelled: bool,
    /// What it used.
    pub used: Used,
}

impl Outcome {
    /// Of this end.
    pub fn of(end: &JobEnd) -> Self {
        let cancelled = matches!(end.result, Err(JobError::Cancelled));
        let value = end.result.as_ref().ok().filter(|value| value.len() <= VALUE_BYTES_MAX).cloned();
        let result = end.result.as_ref().map(|bytes| Digest::of(bytes)).map_err(Reason::of);
        Self { result, value, cancelled, used: Used::of(end) }
    }

    /// Of a job that ended without having run, or of which nothing else is known.
    pub fn failed(reason: Reason) -> Self {
        Self { result: Err(reason), value: None, cancelled: false, used: Used::default() }
    }
}

/// A job. At most 8 KiB as it is stored: texts are bounded, what has no bound lies elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its id.
    pub job: JobId,
    /// For whom it runs.
    pub tenant: Arc<str>,
    /// What its spec calls what it does: "sort".
    pub kind: String,
    /// What its spec calls the job.
    pub name: Option<String>,
    /// Name and version of the program that does it: "sort@3".
    pub program: String,
    /// Who has handed it in, as he says.
    pub who: Option<String>,
    /// By which a repeated submission is known.
    pub key: Option<String>,
    /// -100 to 100; of two jobs of a tenant the one with more has its turn more often.
    pub priority: i32,
    /// How long it may run, milliseconds.
    pub limit_ms: Option<u64>,
    /// How often figures of nodes are wanted, milliseconds; 0: every half second.
    pub sample_ms: u64,
    /// The spec, in canonical JSON.
    pub spec: Digest,
    /// The parameters of the program.
    pub plan: Digest,
    /// How it stands.
    pub state: JobState,
    /// When it was accepted, milliseconds since 1970, ...
    pub accepted_unix_ms: u64,
    /// ... when its program began last, ...
    pub started_unix_ms: Option<u64>,
    /// ... and when it ended.
    pub ended_unix_ms: Option<u64>,
    /// Where its program runs, or ran last.
    pub host: Option<NodeId>,
    /// How often its program began.
    pub runs: u32,
    /// Who wants it to end.
    pub stop: Option<Stop>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

impl JobRecord {
    /// A job that waits, of which nothing is said but what it does.
    pub(crate) fn queued(job: JobId, tenant: &str, kind: &str, program: &str) -> Self {
        Self {
            job,
            tenant: tenant.into(),
            kind: kind.into(),
            name: None,
            program: program.into(),
            who: None,
            key: None,
            priority: 0,
            limit_ms: None,
            sample_ms: 0,
            spec: Digest::default(),
            plan: Digest::default(),
            state: JobState::Queued,
            accepted_unix_ms: 0,
            started_unix_ms: None,
            ended_unix_ms: None,
            host: None,
            runs: 0,
            stop: None,
            outcome: None,
        }
    }

    /// How the job has ended, by this outcome: a program that was cancelled since its time was over has failed.
    pub fn end_state(&self, outcome: &Outcome) -> (JobState, Outcome) {
        let limit = self.stop.as_ref().and_then(|stop| stop.limit_ms);
        match (&outcome.result, outcome.cancelled, limit) {
            (Ok(_), ..) => (JobState::Succeeded, outcome.clone()),
            (Err(_), true, Some(limit_ms)) => {
                let limit = std::time::Duration::from_millis(limit_ms);
                let message = format!("its time limit of {} is over", humantime::format_duration(limit));
                let result = Err(Reason::new("timed_out", &message));
                (JobState::Failed, Outcome { result, cancelled: false, ..outcome.clone() })
            }
            (Err(_), true, None) => (JobState::Cancelled, outcome.clone()),
            (Err(_), false, _) => (JobState::Failed, outcome.clone()),
        }
    }
}

/// What a job was accepted with, as far as it is small; what is not lies in the job's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bodies {
    /// Its spec, in canonical JSON.
    pub spec: Bytes,
    /// The parameters of its program, MessagePack.
    pub plan: Bytes,
}

impl Bodies {
    /// How many bytes they are together.
    pub(crate) fn bytes(&self) -> usize {
        self.spec.len() + self.plan.len()
    }
}

/// Where these are, for the record of the journal that says that the job was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carried {
    /// In the same record.
    Here(Bodies),
    /// In the job's log.
    Pieces(Pieces),
    /// Nobody needs them any more: the job's log has what it runs with.
    Nowhere,
}

/// Into how many pieces bodies are cut that lie in the job's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Of the spec.
    pub spec: u32,
    /// Of the plan.
    pub plan: u32,
}

/// Where somebody finds them who needs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodiesAt {
    /// Here.
    Here(Bodies),
    /// In the record of the journal with this number.
    Journal(u64),
    /// In the job's log.
    Pieces(Pieces),
    /// Nowhere: the job's log has what it runs with.
    Nowhere,
}

impl Carried {
    /// Where they are that the record `sequence` of the journal carries.
    pub fn at(&self, sequence: u64) -> BodiesAt {
        match self {
            Self::Here(_) => BodiesAt::Journal(sequence),
            Self::Pieces(pieces) => BodiesAt::Pieces(*pieces),
            Self::Nowhere => BodiesAt::Nowhere,
        }
    }
}

/// A job that somebody hands in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// What is known of it; state and times are the Scheduler's to say.
    pub record: JobRecord,
    /// What it is handed in with.
    pub carried: Carried,
}

/// What somebody is answered who hands a job in or cancels one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The job.
    pub job: JobId,
    /// How it stands with it.
    pub state: JobState,
    /// Whether it was known before by the same key.
    pub known: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(job: u128, tenant: &str) -> JobRecord {
        JobRecord::queued(JobId::from_u128(job), tenant, "sort", "sort@1")
    }

    #[test]
    fn a_job_that_is_over_becomes_nothing_else_and_one_that_runs_is_not_queued_again() {
        for over in JobState::ALL.into_iter().filter(|state| state.is_over()) {
            assert!(JobState::ALL.into_iter().all(|next| !over.may_become(next)), "{over}");
        }
        assert!(JobState::Starting.may_become(JobState::Queued));
        assert!(!JobState::Running.may_become(JobState::Queued));
        assert!(JobState::Queued.may_become(JobState::Succeeded), "that it started is not noted");
        assert!(JobState::Committing.may_become(JobState::Starting), "its host may be lost");
        for state in JobState::ALL {
            assert_eq!(state.token().parse(), Ok(state));
        }
    }

    #[test]
    fn the_largest_record_is_at_most_8_kib() {
        let words = Some("ä".repeat(WORDS_BYTES_MAX / 2));
        let outcome = Outcome {
            result: Err(Reason::new("program", &"x".repeat(100_000))),
            value: Some(vec![7; VALUE_BYTES_MAX].into()),
            cancelled: false,
            used: Used {
                nodes: u32::MAX,
                spilled_bytes: u64::MAX,
                received_bytes: u64::MAX,
                peak_memory_bytes: u64::MAX,
                owner_bytes: u64::MAX,
            },
        };
        let record = JobRecord {
            tenant: "t".repeat(64).into(),
            kind: "k".repeat(128),
            name: words.clone(),
            program: "p".repeat(128),
            who: words.clone(),
            key: words.clone(),
            limit_ms: Some(u64::MAX),
            accepted_unix_ms: u64::MAX,
            started_unix_ms: Some(u64::MAX),
            ended_unix_ms: Some(u64::MAX),
            host: Some(NodeId::new(&"n".repeat(64))),
            stop: Some(Stop { at_unix_ms: u64::MAX, who: words, limit_ms: Some(u64::MAX) }),
            outcome: Some(outcome),
            ..record(u128::MAX, "t")
        };
        let bytes = rmp_serde::to_vec_named(&record).unwrap().len();
        assert!(bytes <= 8192, "{bytes}");
    }

    #[test]
    fn a_job_whose_time_was_over_has_failed_unless_it_was_done() {
        let cancelled = Outcome { cancelled: true, ..Outcome::failed(Reason::of(&JobError::Cancelled)) };
        let stop = |limit_ms| Some(Stop { at_unix_ms: 1, who: None, limit_ms });
        let limited = JobRecord { stop: stop(Some(90_000)), ..record(1, "t") };
        let (state, outcome) = limited.end_state(&cancelled);
        assert_eq!(state, JobState::Failed);
        assert_eq!(outcome.result.unwrap_err().message, "its time limit of 1m 30s is over");
        let done = Outcome { result: Ok(Digest::of(b"7")), value: None, cancelled: false, used: Used::default() };
        assert_eq!(limited.end_state(&done).0, JobState::Succeeded);
        let stopped = JobRecord { stop: stop(None), ..record(1, "t") };
        assert_eq!(stopped.end_state(&cancelled).0, JobState::Cancelled);
    }
}
