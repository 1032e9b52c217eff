//! The log of a job: what must be known to take it up again elsewhere (laws 2 and 3).
//!
//! A job is what its program does with what it learns. So the log has three kinds of [`Entry`]: each run of the program, what
//! the program learned that could have been different, and tasks that completed, with what they made, what they read, and
//! the bytes of small outputs. Whoever [opens](JobLogs::open_job) the log of a job that is there already gets its [`Past`]: the
//! program runs again, learns the same, submits the same tasks, and finds those that completed done. Their objects are where
//! nodes say that they still are; the others are like objects that were lost with a node, and are made again if somebody
//! needs them ([`docs/decisions/011-the-log-of-a-job.md`]).
//!
//! | subject of the cluster | record | until |
//! |---|---|---|
//! | `stream.jobs.identity` | which streams these are, a random text | they are lost |
//! | `stream.jobs.<job>.spec` | [`JobSpec`](crate::protocol::host::JobSpec): the job was accepted | the job is over |
//! | `stream.jobs.<job>.log` | entries, in order, some together | the job is over |
//! | `stream.ends.<job>` | [`JobEnd`](crate::protocol::host::JobEnd): how it ended | a day |
//!
//! Copies in stores and in spill files of nodes, and the output folder, outlive the host of a job, too.
//!
//! # Promises
//! - Any prefix of a log is a log: a tail that was lost costs the work that it told of, nothing else.
//! - One Owner writes. Each append names the record that it takes for the last one; who opens a log appends that a run begins,
//!   and from then on appends of an earlier run are refused: it was [taken over](LogNews::TakenOver), and ends without a word. One that
//!   has nothing to append looks for that, too, with each new Scheduler and every 10 s.
//! - The job of an Owner that lives stands in the log that there is, whether or not it has something to note: a server that was emptied
//!   takes over nothing, its streams are made anew with another identity, and the Writer looks for that with each new Scheduler and
//!   every 10 s, besides when an append is refused. It begins the log of the job anew there, with no more than that it runs, and in the
//!   end how it ends; who takes it up before that does so from its beginning.
//! - A log that has its quota, or cannot be written any more (its stream is full, the bus refuses it), does not end its job. It is [`Cut`]:
//!   that is the last thing in it but how the job ends, and makes its room free for others. Whoever would take the job up fails it with
//!   these words. Where even that cannot be written (a disk is full), it is tried again every 10 s.
//!
//! - Records begin with the version of the log ([`LOG_VERSION`]). The log of a job that another release wrote is refused with both numbers and
//!   stays as it is: that release can go on with the job, and other jobs go on here.
//!
//! # What waits for it
//! Accepting a job, and telling its end. Freeing objects and parts waits until the completion of their last consumer is
//! durable: else a lost tail would cost more than the tail. Everything else goes on meanwhile; while one append is under
//! way, entries gather for the next.
//!
//! In a cluster the streams are the bus's; without a bus they are in one file ([`Bus::in_process_durable`]).
//!
//! [`docs/decisions/011-the-log-of-a-job.md`]: https://github.com/exobus/exobus/blob/main/docs/decisions/011-the-log-of-a-job.md
//! [`Bus::in_process_durable`]: exobus_bus::Bus::in_process_durable

mod choice;
mod cut;
mod entry;
mod logs;
mod writer;

#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod emptied_tests;
#[cfg(test)]
mod version_tests;

/// The version of records of logs, of what was accepted and of how jobs ended; a change of their types is another version.
///
/// 1: records had no version but the codec's. 2: it did not say that a job commits, and what a job was accepted with was in one record.
/// 3: this.
pub const LOG_VERSION: u8 = 3;

pub use choice::{Choice, FoldDue, NodeShape};
pub use cut::Cut;
pub use entry::{Entry, Past, TaskDone};
pub use logs::{JobLogs, LogError, LogsLink, Opened, Run};
pub(crate) use logs::{PLAN, SPEC_TEXT};
pub use writer::LogNews;
pub(crate) use writer::{JobLog, Written, bytes_of};

/// Bytes that the log of a job may have unless somebody says otherwise: about 400 000 tasks. All jobs of a cluster that are not over share
/// 256 MiB.
pub const QUOTA_BYTES: u64 = 64 << 20;
