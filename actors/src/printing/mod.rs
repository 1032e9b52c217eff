//! What tasks and programs print: lines for people, on their way to who watches the job.
//!
//! A function prints with [`TaskContext::print`](crate::registry::TaskContext::print), a program with
//! [`Futures::print`](crate::futures::Futures::print); what functions write to stdout and stderr in executor processes is the same. In a
//! cluster each node publishes what is printed there on `job.<tenant>.<job>.log`, as [`Printed`]; a node that is alone writes it to stderr,
//! behind who printed it.
//!
//! # Promises
//! - Printing never waits: lines gather in a queue of 256 pieces of up to 8 KiB, and what finds it full is dropped and counted. Nobody has to
//!   read it, and who reads slowly costs nothing.
//! - An attempt prints at most [`TASK_BYTES_MAX`], and the tasks of a job [`JOB_BYTES_MAX`] together: its Owner adds up what attempts had printed
//!   that have ended, and attempts that it hands out after that print nothing, so a job is beyond it by what ran at that moment at most. On one
//!   node nothing of a job, its program included, is printed beyond it at all. Where an attempt is cut, a line says so; that a job is, each node says once.
//! - [Secrets] that the node knows are replaced by `***`, also where one comes in pieces.
//!
//! ```text
//! mod.rs      what is printed, and how much may be   secrets.rs  what is replaced
//! output.rs   what one attempt or program prints     queue.rs    to the bus, or to stderr
//! ```

mod output;
mod queue;
mod secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use exobus_bus::subject::JobChannel;
use exobus_bus::{Bus, Subject, Subjects};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::output::Origin;
pub(crate) use self::output::Output;
use self::queue::Queue;
pub(crate) use self::secrets::Filter;
pub use self::secrets::Secrets;
use crate::ids::{Attempt, JobId, NodeId, TaskId};
use crate::task::TaskSpec;

/// Bytes that an attempt of a task may print.
pub const TASK_BYTES_MAX: usize = 1 << 20;
/// Bytes that a job may print, and that a node prints of it at most.
pub const JOB_BYTES_MAX: usize = 64 << 20;
/// Of so many jobs a node knows how much they have printed, the latest ones.
const JOBS_MAX: usize = 1 << 14;

/// A piece of what was printed: whole lines, but for one that is long, or the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// Where.
    pub node: NodeId,
    /// By whom.
    pub by: PrintedBy,
    /// What.
    pub text: String,
}

/// Who prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrintedBy {
    /// The program of the job.
    Program,
    /// A task.
    Task {
        /// Which one.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Name and version of its function.
        function: Arc<str>,
    },
}

impl fmt::Display for Printed {
    /// Each line behind where it comes from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.text.lines().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match &self.by {
                PrintedBy::Program => write!(f, "[{} program] {line}", self.node)?,
                PrintedBy::Task { task, attempt, function } => {
                    let task = (task.as_u128() >> 96) as u32;
                    write!(f, "[{} {function} {task:08x}/{attempt}] {line}", self.node)?;
                }
            }
        }
        Ok(())
    }
}

/// Where a function or a program prints. Cheap to clone; what is left of it when an attempt is over prints for that attempt still.
#[derive(Clone)]
pub struct Printer(Arc<dyn Prints>);

/// What takes what is printed. It does not wait.
pub(crate) trait Prints: Send + Sync {
    fn print(&self, bytes: &[u8]);

    /// Replaces secrets of the node in a text that goes another way than what is printed, such as why something failed.
    fn hide(&self, _: &mut String) {}
}

impl Printer {
    pub(crate) fn to(prints: Arc<dyn Prints>) -> Self {
        Self(prints)
    }

    /// Where nothing is read.
    pub fn nowhere() -> Self {
        struct Nowhere;
        impl Prints for Nowhere {
            fn print(&self, _: &[u8]) {}
        }
        Self(Arc::new(Nowhere))
    }

    /// Replaces secrets of the node in a text that goes another way.
    pub(crate) fn hide(&self, text: &mut String) {
        self.0.hide(text);
    }

    /// Prints a line.
    pub fn line(&self, text: &str) {
        self.0.print(format!("{text}\n").as_bytes());
    }
}

impl io::Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.print(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Printer")
    }
}

/// What a job has printed on this node.
#[derive(Debug)]
struct JobPrints {
    job: JobId,
    /// `None`: it is not known whose job it is, and nobody hears of it.
    tenant: Option<Arc<str>>,
    /// Bytes that it may print still.
    left: AtomicUsize,
    /// Whether it was said that it may print no more.
    cut: AtomicBool,
}

impl JobPrints {
    /// Takes so many bytes of what is left, or as many as there are.
    fn take(&self, bytes: usize) -> usize {
        let before =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        bytes.min(before.unwrap_or_default())
    }

    /// Whether it is to be said that it may print no more: to the first who asks.
    fn is_cut_now(&self) -> bool {
        !self.cut.swap(true, Ordering::Relaxed)
    }
}

/// The way of what is printed on a node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Printing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: NodeId,
    secrets: Secrets,
    queue: Queue,
    jobs: Mutex<BTreeMap<JobId, Arc<JobPrints>>>,
}

impl Printing {
    /// To who watches jobs on this bus, or else to stderr.
    pub(crate) fn new(node: NodeId, secrets: Secrets, bus: Option<(Bus, Subjects)>) -> Self {
        Self(Arc::new(Inner { node, secrets, queue: Queue::new(bus), jobs: Mutex::default() }))
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.0.secrets
    }

    /// The tenant of a job, known before its tasks come.
    pub(crate) fn belongs_to(&self, job: JobId, tenant: &Arc<str>) {
        self.job(job, Some(tenant));
    }

    fn job(&self, job: JobId, tenant: Option<&Arc<str>>) -> Arc<JobPrints> {
        let mut jobs = self.0.jobs.lock();
        if let Some(known) = jobs.get(&job).filter(|known| known.tenant.is_some() || tenant.is_none()) {
            return known.clone();
        }
        if jobs.len() >= JOBS_MAX {
            // Ids of jobs rise with time.
            jobs.pop_first();
        }
        // Of one that was forgotten since, as so many came after it.
        let left = if tenant.is_some() { JOB_BYTES_MAX } else { 0 };
        let cut = AtomicBool::new(tenant.is_none());
        let prints = Arc::new(JobPrints { job, tenant: tenant.cloned(), left: AtomicUsize::new(left), cut });
        jobs.insert(job, prints.clone());
        prints
    }

    /// What an attempt prints. Most print nothing, so this costs next to nothing.
    /// Each executor has a `Printing` of its own: a counter that all share would go from processor to processor for each attempt.
    pub(crate) fn of_task(self: &Arc<Self>, spec: &Arc<TaskSpec>) -> Arc<Output> {
        if spec.silent {
            self.job(spec.job, None).take(JOB_BYTES_MAX);
        }
        Arc::new(Output::new(self.clone(), Origin::Task(spec.clone())))
    }

    /// What a program prints.
    pub(crate) fn of_program(&self, job: JobId, tenant: &Arc<str>) -> Printer {
        self.belongs_to(job, tenant);
        Printer::to(Arc::new(Output::new(Arc::new(self.clone()), Origin::Program(job))))
    }

    /// Sends a piece; false: too much waits, and it is dropped.
    fn send(&self, job: &JobPrints, by: PrintedBy, text: String) -> bool {
        let Some(tenant) = &job.tenant else { return true };
        let printed = Printed { node: self.0.node.clone(), by, text };
        self.0.queue.send(tenant.clone(), job.job, printed)
    }

    /// What waits is printed, as far as that does not take long; nothing else is from now on.
    pub(crate) fn close(&self) {
        self.0.queue.close();
    }
}

/// Where what a job prints is to be heard.
///
/// # Errors
/// The tenant is no token.
pub fn subject(subjects: &Subjects, tenant: &str, job: JobId) -> Result<Subject, exobus_bus::SubjectError> {
    subjects.job(tenant, &job.to_string(), JobChannel::Log)
}

#[cfg(test)]
mod tests;
