//! The bus's server: the key of the Scheduler's lease, and the log of the job, on a disk that takes its time.
//!
//! What it is asked to write it answers when that is durable. A power cut takes what was not.

use std::time::Duration;

use bytes::Bytes;

use super::dice::Dice;
use super::owner::Run;
use crate::election;
use crate::ids::{Incarnation, JobSecret, NodeId};
use crate::joblog::{Entry, Past};
use crate::task::JobError;

/// What is asked of it.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Of the lease.
    Create(String),
    Update(String, u64),
    Get,
    /// Is the job accepted and not over?
    Unfinished,
    /// The job is accepted, where `accept`, and begun here.
    Open {
        node: NodeId,
        incarnation: Incarnation,
        accept: bool,
    },
    Append {
        entries: Vec<Entry>,
        last: u64,
        id: String,
    },
    /// Which record of the log is the last one?
    Last,
    Close(Result<Bytes, JobError>),
}

#[derive(Debug)]
pub(super) enum Answered {
    /// The lease is the asker's, under this revision.
    Written(u64),
    Refused,
    Lease(Option<(String, u64)>),
    Unfinished(bool),
    Runs(Box<Run>),
    Last(u64),
    Over,
    Unknown,
    Appended(u64),
    /// Somebody else has.
    Conflict,
    Closed,
    /// No answer came.
    Lost,
}

#[derive(Clone, Debug)]
struct Lease {
    holder: String,
    revision: u64,
    ends: Duration,
}

/// A record of the log.
#[derive(Debug)]
struct Record {
    entries: Vec<Entry>,
    sequence: u64,
    id: String,
}

/// Something that is durable from a moment on.
#[derive(Debug)]
struct Kept<T>(T, Duration);

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) up: bool,
    /// Rises with every start.
    pub(super) boot: u32,
    leases: Vec<Kept<Lease>>,
    revision: u64,
    accepted: Option<Kept<()>>,
    records: Vec<Kept<Record>>,
    end: Option<Kept<Result<Bytes, JobError>>>,
    /// Until when writes before this one take.
    durable_at: Duration,
}

impl Server {
    pub(super) fn new() -> Self {
        Self { up: true, ..Self::default() }
    }

    /// The power fails.
    pub(super) fn cut(&mut self, now: Duration) {
        self.up = false;
        self.leases.retain(|Kept(_, at)| *at <= now);
        self.records.retain(|Kept(_, at)| *at <= now);
        self.accepted.take_if(|Kept(_, at)| *at > now);
        self.end.take_if(|Kept(_, at)| *at > now);
        self.durable_at = now;
    }

    pub(super) fn start(&mut self) {
        self.up = true;
        self.boot += 1;
    }

    /// Whether the job was accepted.
    pub(super) fn knows(&self) -> bool {
        self.accepted.is_some()
    }

    /// How the job ended, if that is durable.
    pub(super) fn end(&self, now: Duration) -> Option<&Result<Bytes, JobError>> {
        self.end.as_ref().filter(|Kept(_, at)| *at <= now).map(|Kept(end, _)| end)
    }

    /// What the log has, all runs together.
    pub(super) fn past(&self) -> Past {
        let mut past = Past::default();
        self.records.iter().for_each(|Kept(record, _)| past.add(record.entries.clone()));
        past
    }

    /// What is answered, and when.
    pub(super) fn ask(&mut self, now: Duration, question: Question, dice: &mut Dice) -> (Answered, Duration) {
        let lease = self.leases.last().map(|Kept(lease, _)| lease);
        let lease = lease.filter(|lease| now < lease.ends).cloned();
        let (answered, writes) = match question {
            Question::Create(_) if lease.is_some() => (Answered::Refused, false),
            Question::Update(_, revision) if lease.as_ref().is_none_or(|lease| lease.revision != revision) => {
                (Answered::Refused, false)
            }
            Question::Create(holder) | Question::Update(holder, _) => {
                self.revision += 1;
                let ends = now + election::TTL;
                let lease = Lease { holder, revision: self.revision, ends };
                self.leases.push(Kept(lease, Duration::MAX));
                (Answered::Written(self.revision), true)
            }
            Question::Get => (Answered::Lease(lease.map(|lease| (lease.holder, lease.revision))), false),
            Question::Unfinished => (Answered::Unfinished(self.accepted.is_some() && self.end.is_none()), false),
            Question::Open { node, incarnation, accept } => self.open(node, incarnation, accept),
            Question::Append { entries, last, id } => self.append(entries, last, id),
            Question::Last => (Answered::Last(self.last()), false),
            Question::Close(end) => {
                self.end.get_or_insert(Kept(end, Duration::MAX));
                (Answered::Closed, true)
            }
        };
        let mut at = now + dice.micros(50..500);
        if writes {
            // One write after the other; now and then the disk takes its time.
            let slow = dice.chance(20);
            let takes = if slow { dice.millis(50..400) } else { dice.micros(500..5000) };
            at = self.durable_at.max(now) + takes;
            self.durable_at = at;
            let leases = self.leases.iter_mut().map(|Kept(_, at)| at);
            let records = self.records.iter_mut().map(|Kept(_, at)| at);
            let accepted = self.accepted.iter_mut().map(|Kept(_, at)| at);
            let end = self.end.iter_mut().map(|Kept(_, at)| at);
            leases.chain(records).chain(accepted).chain(end).filter(|at| **at == Duration::MAX).for_each(|it| *it = at);
            let keep = self.leases.len().saturating_sub(8);
            self.leases.drain(..keep);
        }
        (answered, at)
    }

    fn open(&mut self, node: NodeId, incarnation: Incarnation, accept: bool) -> (Answered, bool) {
        if self.end.is_some() {
            return (Answered::Over, false);
        }
        if !accept && self.accepted.is_none() {
            return (Answered::Unknown, false);
        }
        self.accepted.get_or_insert(Kept((), Duration::MAX));
        let mut past = self.past();
        if let Some(end) = past.end.take() {
            self.end = Some(Kept(end, Duration::MAX));
            return (Answered::Over, true);
        }
        let last = self.last() + 1;
        let name = format!("{}-{node}-{}", past.runs, incarnation.0);
        let (entries, id) = (vec![Entry::Run { node, secret: JobSecret::from_u128(0) }], format!("{name}-opens"));
        self.records.push(Kept(Record { entries, sequence: last, id }, Duration::MAX));
        (Answered::Runs(Box::new(Run { past, name, last })), true)
    }

    fn last(&self) -> u64 {
        self.records.last().map_or(0, |Kept(record, _)| record.sequence)
    }

    fn append(&mut self, entries: Vec<Entry>, last: u64, id: String) -> (Answered, bool) {
        if let Some(Kept(record, _)) = self.records.iter().find(|Kept(record, _)| record.id == id) {
            // The answer to it was lost.
            return (Answered::Appended(record.sequence), true);
        }
        if self.last() != last {
            return (Answered::Conflict, false);
        }
        let sequence = last + 1;
        self.records.push(Kept(Record { entries, sequence, id }, Duration::MAX));
        (Answered::Appended(sequence), true)
    }
}
