//! When a job may begin here: what every job takes has to fit beside the tables of those that run.
//!
//! A job takes memory beside its objects: the tables of its Owner, which grow with its tasks, its queues, its lists and its
//! session with a client. They are counted in the budget of the store ([`Told`]) from when it comes here: [`WAITING_BYTES`] and
//! what it brings while it waits, [`JOB_BYTES`] at least from when it begins. The first job is always admitted; another one waits, in
//! order of arrival, while it would take the tables of all beyond what the store can give way to. A job that waits has its
//! Owner, which says so to who asks what it waits for. Those that wait have a [`WAITING_SHARE`]th of what tables can have; one that
//! comes beyond that is turned away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Beside, Store, Told};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ids::NodeId;

/// What a job takes at least.
pub(crate) const JOB_BYTES: u64 = 1 << 20;
/// What a job takes that has not begun, beside what it brings: its Owner, the writer of its log, its session.
const WAITING_BYTES: u64 = 48 << 10;
/// Jobs that wait have this part of what tables can have, together.
const WAITING_SHARE: u64 = 4;
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
    /// How many have not begun, whether or not they wait for memory, and what they take.
    coming: u64,
    coming_bytes: u64,
    waiting: BTreeSet<u64>,
    next: u64,
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl Jobs {
    /// Whether the job of this number may begin that needs so much, when all others take `taken` of `most` bytes.
    fn may_begin(&self, number: u64, needs: u64, taken: u64, most: u64) -> bool {
        let is_first = self.waiting.first() == Some(&number);
        is_first && (self.running == 0 || taken + needs <= most)
    }

    /// Why it may not.
    fn reason(&self, number: u64, node: &NodeId, taken: u64, most: u64) -> String {
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

/// Too many jobs wait here already.
#[derive(Debug, thiserror::Error)]
#[error(
    "too many jobs wait on {node}: {waiting} take {} of the {} that jobs have there that have not begun; submit it again later",
    mib(*bytes),
    mib(*most)
)]
pub(crate) struct Crowded {
    node: NodeId,
    waiting: u64,
    bytes: u64,
    most: u64,
}

/// A job that wants to run here, or does; it leaves when this is dropped.
pub(crate) struct Ticket {
    admission: Admission,
    own: Mutex<Own>,
}

/// How it stands with a job. Locked after the jobs of the node.
struct Own {
    place: Place,
    /// What it has beside its tables.
    brought: u64,
    tables: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It does not wait for memory yet.
    Coming,
    /// The number under which it waits.
    Waiting(u64),
    Running,
}

impl Own {
    /// The job takes so much now, with its tables.
    fn set(&mut self, jobs: &mut Jobs, bytes: u64) {
        if self.place == Place::Running {
            return self.tables.set(bytes.max(JOB_BYTES));
        }
        jobs.coming_bytes = jobs.coming_bytes - self.tables.bytes() + bytes;
        self.tables.set(bytes);
    }
}

impl Admission {
    pub(crate) fn new(node: NodeId, store: Store) -> Self {
        Self { node, store, jobs: Arc::default(), changed: Arc::default() }
    }

    /// A job comes, with so many bytes of its own.
    ///
    /// # Errors
    /// There is no room for it; there always is for one.
    pub(crate) fn enter(&self, bytes: u64) -> Result<Ticket, Crowded> {
        let bytes = WAITING_BYTES + bytes;
        let most = self.store.stats().outside_max_bytes / WAITING_SHARE;
        let mut jobs = self.jobs.lock();
        if jobs.coming > 0 && jobs.coming_bytes + bytes > most {
            return Err(Crowded { node: self.node.clone(), waiting: jobs.coming, bytes: jobs.coming_bytes, most });
        }
        jobs.coming += 1;
        jobs.coming_bytes += bytes;
        let mut tables = self.store.told(Beside::Tables);
        tables.set(bytes);
        let own = Own { place: Place::Coming, brought: bytes, tables };
        Ok(Ticket { admission: self.clone(), own: Mutex::new(own) })
    }
}

impl Ticket {
    /// Joins the end of the queue, and waits until the job may begin.
    pub(crate) async fn admitted(&self) {
        self.queue();
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

    fn queue(&self) {
        let (mut jobs, mut own) = (self.admission.jobs.lock(), self.own.lock());
        if own.place == Place::Coming {
            own.place = Place::Waiting(jobs.next);
            let number = jobs.next;
            jobs.waiting.insert(number);
            jobs.next += 1;
        }
    }

    fn try_begin(&self) -> bool {
        let Admission { store, jobs, .. } = &self.admission;
        let (mut jobs, mut own) = (jobs.lock(), self.own.lock());
        let Place::Waiting(number) = own.place else { return own.place == Place::Running };
        let (stats, bytes) = (store.stats(), own.tables.bytes());
        let needs = bytes.max(JOB_BYTES);
        if !jobs.may_begin(number, needs, stats.outside_bytes.saturating_sub(bytes), stats.outside_max_bytes) {
            return false;
        }
        jobs.waiting.remove(&number);
        jobs.coming -= 1;
        jobs.coming_bytes -= bytes;
        jobs.running += 1;
        own.place = Place::Running;
        own.tables.set(needs);
        true
    }

    /// The job has so many bytes more beside its tables.
    pub(crate) fn brings(&self, bytes: u64) {
        let (mut jobs, mut own) = (self.admission.jobs.lock(), self.own.lock());
        own.brought += bytes;
        let now = own.tables.bytes() + bytes;
        own.set(&mut jobs, now);
    }

    /// The tables of the job take so many bytes now.
    pub(crate) fn takes(&self, bytes: u64) {
        let (mut jobs, mut own) = (self.admission.jobs.lock(), self.own.lock());
        let now = own.brought + bytes;
        own.set(&mut jobs, now);
    }

    /// Why the job waits; `None`: it has begun, or does not wait for memory yet.
    pub(crate) fn reason(&self) -> Option<String> {
        let Admission { node, store, jobs, .. } = &self.admission;
        let stats = store.stats();
        let (jobs, own) = (jobs.lock(), self.own.lock());
        let Place::Waiting(number) = own.place else { return None };
        Some(jobs.reason(number, node, stats.outside_bytes, stats.outside_max_bytes))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut jobs = self.admission.jobs.lock();
        let own = self.own.get_mut();
        match own.place {
            Place::Running => jobs.running -= 1,
            Place::Coming | Place::Waiting(_) => {
                jobs.coming -= 1;
                jobs.coming_bytes -= own.tables.bytes();
            }
        }
        if let Place::Waiting(number) = own.place {
            jobs.waiting.remove(&number);
        }
        // Who looks then sees it gone.
        own.tables.set(0);
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

    fn queued(admission: &Admission) -> Ticket {
        let ticket = admission.enter(0).unwrap();
        ticket.queue();
        ticket
    }

    fn admission() -> Admission {
        let options = StoreOptions { memory_bytes: 16 << 20, executors: 1, ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(RealDisk::default()), Arc::new(SystemClock::new())).unwrap();
        Admission::new(NodeId::new("n1"), store)
    }

    #[test]
    fn one_job_always_runs_and_the_next_waits_with_its_reason_until_it_fits() {
        let admission = admission();
        let most = admission.store.stats().outside_max_bytes;
        let (first, second, third) = (queued(&admission), queued(&admission), queued(&admission));
        assert!(!second.try_begin(), "in order of arrival");
        assert!(first.try_begin());
        assert_eq!((first.reason(), admission.store.stats().outside_bytes), (None, JOB_BYTES + 2 * WAITING_BYTES));
        // Its tables may be larger than all that there is for tables.
        first.takes(most + 7 * MIB);
        assert!(!second.try_begin());
        let reason = second.reason().unwrap();
        assert!(reason.contains("on n1") && reason.contains("needs 1.0 MiB") && reason.contains("(1)"), "{reason}");
        assert!(third.reason().unwrap().contains("1 more wait before it"));
        // The third one waits on.
        first.takes(most - JOB_BYTES - 2 * WAITING_BYTES + 1);
        assert!(!second.try_begin());
        first.takes(most - JOB_BYTES - 2 * WAITING_BYTES);
        assert!(second.try_begin() && !third.try_begin());
        drop(first);
        assert!(third.try_begin());
        drop((second, third));
        assert_eq!(admission.store.stats().outside_bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_begins_when_the_one_before_it_ends_and_one_that_is_cancelled_leaves_the_queue() {
        let admission = admission();
        let first = admission.enter(0).unwrap();
        first.admitted().await;
        first.takes(admission.store.stats().outside_max_bytes);
        let (cancelled, second) = (queued(&admission), queued(&admission));
        let mut waits = pin!(second.admitted());
        assert_eq!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        drop(cancelled);
        drop(first);
        waits.await;
        assert_eq!(second.reason(), None);
    }

    #[test]
    fn jobs_that_have_not_begun_are_counted_with_what_they_bring_and_those_beyond_their_share_are_turned_away() {
        let admission = admission();
        let bytes = || admission.store.stats().outside_bytes;
        let most = admission.store.stats().outside_max_bytes / WAITING_SHARE;
        let (mut tickets, mut turned_away) = (Vec::new(), None);
        for _ in 0..1000 {
            match admission.enter(1 << 10) {
                Ok(ticket) => tickets.push(ticket),
                Err(crowded) => drop(turned_away.get_or_insert(crowded.to_string())),
            }
        }
        assert_eq!(bytes(), tickets.len() as u64 * (WAITING_BYTES + (1 << 10)));
        assert!(bytes() <= most && bytes() + WAITING_BYTES + (1 << 10) > most, "{} of {most}", bytes());
        let turned_away = turned_away.expect("they do not all fit");
        assert!(turned_away.contains("on n1") && turned_away.contains("again later"), "{turned_away}");
        // Tables may grow before a job begins: what is left of it by earlier runs is known.
        let before = bytes();
        tickets[0].takes(3 * MIB);
        tickets[0].brings(MIB);
        assert_eq!(bytes(), before + 4 * MIB);
        assert!(admission.enter(0).is_err());
        // One may always come, whatever it brings.
        drop(tickets);
        assert_eq!(bytes(), 0);
        let large = admission.enter(most).unwrap();
        assert!(admission.enter(0).is_err());
        large.queue();
        assert!(large.try_begin());
        assert_eq!(bytes(), most + WAITING_BYTES);
        assert!(admission.enter(0).is_ok(), "it waits no more");
    }

    #[test]
    fn a_job_that_is_not_ready_to_begin_is_in_nobodys_way() {
        let admission = admission();
        let (resumed, next) = (admission.enter(0).unwrap(), queued(&admission));
        assert!(next.try_begin());
        assert_eq!(resumed.reason(), None, "it does not wait for memory");
        next.takes(admission.store.stats().outside_max_bytes);
        resumed.queue();
        assert!(!resumed.try_begin() && resumed.reason().is_some());
    }
}
