//! When a job may begin here: what every job takes has to fit beside the tables of those that run.
//!
//! A job takes memory beside its objects: the tables of its Owner, which grow with its tasks, its queues, its lists and its
//! session with a client. They are counted in the budget of the store ([`Outside`]), and [`JOB_BYTES`] of them from the
//! start. The first job is always admitted; another one waits, in order of arrival, while it would take the tables of all
//! beyond what the store can give way to. A job that waits has its Owner, which says so to who asks what it waits for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Outside, Store};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ids::NodeId;

/// What a job takes at least.
pub(crate) const JOB_BYTES: u64 = 1 << 20;
/// How often a job that waits looks again: tables become smaller while their job runs, too.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The jobs of a node; clones share them.
#[derive(Clone)]
pub(crate) struct Admission {
    node: NodeId,
    store: Store,
    jobs: Arc<Mutex<Jobs>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Jobs {
    running: u64,
    waiting: BTreeSet<u64>,
    next: u64,
}

impl Jobs {
    /// Whether the job of this number may begin when the tables of all take `taken` of `most` bytes.
    fn may_begin(&self, number: u64, taken: u64, most: u64) -> bool {
        let is_first = self.waiting.first() == Some(&number);
        is_first && (self.running == 0 || taken + JOB_BYTES <= most)
    }

    /// Why it may not.
    fn reason(&self, number: u64, node: &NodeId, taken: u64, most: u64) -> String {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let before = self.waiting.range(..number).count();
        let waits = if before > 0 { format!(", and {before} more wait before it") } else { String::new() };
        format!(
            "memory for its tables on {node}: it needs {}, jobs that run there ({}) take {} of {}{waits}",
            mib(JOB_BYTES),
            self.running,
            mib(taken),
            mib(most)
        )
    }
}

/// A job that wants to run here, or does; it leaves when this is dropped.
pub(crate) struct Ticket {
    admission: Admission,
    number: u64,
    /// Once it is admitted.
    tables: Mutex<Option<Outside>>,
}

impl Admission {
    pub(crate) fn new(node: NodeId, store: Store) -> Self {
        Self { node, store, jobs: Arc::default(), changed: Arc::default() }
    }

    /// A job joins the end of the queue.
    pub(crate) fn queue(&self) -> Ticket {
        let mut jobs = self.jobs.lock();
        let number = jobs.next;
        jobs.next += 1;
        jobs.waiting.insert(number);
        Ticket { admission: self.clone(), number, tables: Mutex::default() }
    }
}

impl Ticket {
    /// Waits until the job may begin.
    pub(crate) async fn admitted(&self) {
        loop {
            let changed = self.admission.changed.notified();
            if self.try_begin() {
                // The next one may fit as well.
                return self.admission.changed.notify_waiters();
            }
            // Whatever is missed meanwhile is seen by then.
            let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
        }
    }

    fn try_begin(&self) -> bool {
        let Admission { store, jobs, .. } = &self.admission;
        let mut jobs = jobs.lock();
        let stats = store.stats();
        if !jobs.may_begin(self.number, stats.outside_bytes, stats.outside_max_bytes) {
            return false;
        }
        jobs.waiting.remove(&self.number);
        jobs.running += 1;
        let mut tables = store.outside();
        tables.set(JOB_BYTES);
        *self.tables.lock() = Some(tables);
        true
    }

    /// The tables of the job take so many bytes now.
    pub(crate) fn takes(&self, bytes: u64) {
        if let Some(tables) = &mut *self.tables.lock() {
            tables.set(bytes.max(JOB_BYTES));
        }
    }

    /// Why the job waits; `None`: it has begun.
    pub(crate) fn reason(&self) -> Option<String> {
        if self.tables.lock().is_some() {
            return None;
        }
        let Admission { node, store, jobs, .. } = &self.admission;
        let stats = store.stats();
        Some(jobs.lock().reason(self.number, node, stats.outside_bytes, stats.outside_max_bytes))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let began = self.tables.lock().take().is_some();
        let mut jobs = self.admission.jobs.lock();
        jobs.waiting.remove(&self.number);
        jobs.running -= u64::from(began);
        drop(jobs);
        self.admission.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use exobus_store::{RealDisk, StoreOptions, SystemClock};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn admission() -> Admission {
        let options = StoreOptions { memory_bytes: 16 << 20, executors: 1, ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(RealDisk::default()), Arc::new(SystemClock::new())).unwrap();
        Admission::new(NodeId::new("n1"), store)
    }

    #[test]
    fn one_job_always_runs_and_the_next_waits_with_its_reason_until_it_fits() {
        let admission = admission();
        let most = admission.store.stats().outside_max_bytes;
        let (first, second, third) = (admission.queue(), admission.queue(), admission.queue());
        assert!(!second.try_begin(), "in order of arrival");
        assert!(first.try_begin());
        assert_eq!((first.reason(), admission.store.stats().outside_bytes), (None, JOB_BYTES));
        // Its tables may be larger than all that there is for tables.
        first.takes(most + 7 * MIB);
        assert!(!second.try_begin());
        let reason = second.reason().unwrap();
        assert!(reason.contains("on n1") && reason.contains("needs 1.0 MiB") && reason.contains("(1)"), "{reason}");
        assert!(third.reason().unwrap().contains("1 more wait before it"));
        first.takes(most - JOB_BYTES);
        assert!(second.try_begin() && !third.try_begin());
        drop(first);
        assert!(third.try_begin());
        drop((second, third));
        assert_eq!(admission.store.stats().outside_bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_begins_when_the_one_before_it_ends_and_one_that_is_cancelled_leaves_the_queue() {
        let admission = admission();
        let first = admission.queue();
        first.admitted().await;
        first.takes(admission.store.stats().outside_max_bytes);
        let (cancelled, second) = (admission.queue(), admission.queue());
        let mut waits = pin!(second.admitted());
        assert_eq!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        drop(cancelled);
        drop(first);
        waits.await;
        assert_eq!(second.reason(), None);
    }
}
