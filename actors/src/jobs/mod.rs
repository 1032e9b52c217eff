//! Jobs as durable records: what is known of a job, from when it is accepted to long after its end.
//!
//! The Scheduler decides about them ([`book`]). What it decides is noted in the [journal](journal), one stream, whose records each hold
//! everything that waited; a record is under way at a time, and nobody is told what is not durable. Jobs that are over go to the
//! history, a record a job, for [`history::ENDED_KEPT_MS`] or until their tenant has [`history::ENDED_MAX`] later ones.
//!
//! | subject of the cluster | record | until |
//! |---|---|---|
//! | `stream.journal` | what happened to jobs, in order, some together | all of that job is in the history |
//! | `stream.history.<tenant>.<job>` | [`JobRecord`](crate::protocol::job::JobRecord) of a job that is over; of its spec and plan, lengths and hashes | 30 days, or 10 000 later jobs of the tenant |
//! | `stream.jobs.<job>.{spec,plan}.<n>` | a spec or a plan that is too large for the journal, in pieces | the job is over |
//! | `kv.jobs.<tenant>.<job>` | how it stands, JSON: for who watches | a view, in memory, of jobs that are not over and were so lately |
//!
//! # Promises
//! - An accepted job is accepted: it is not lost with the Scheduler, a node or the server, and ends in exactly one of three states.
//! - Who hands a job in twice under one key has one job.
//! - The view may lag behind the journal, and never leads it.
//! - A job that waits costs a record here, and no Owner.
//!
//! # Which stands where
//! That a job starts is not noted here: its own [log](crate::joblog) says so, and whoever opens that log runs it, so two Schedulers that
//! start it both have it run once. Where the bus keeps no streams, records are in the Scheduler's memory, and end with it.

pub(crate) mod book;
pub mod history;
pub(crate) mod journal;
mod keys;
mod queue;
pub mod quotas;
pub mod transition;
pub(crate) mod view;

#[cfg(test)]
mod version_tests;

pub use book::BookOptions;

/// The version of records of the journal and of the history; a change of their types is another version.
pub const JOURNAL_VERSION: u8 = 1;
