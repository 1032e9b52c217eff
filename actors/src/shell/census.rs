//! [`Census`]: how many things a process has of each kind that comes with a job, a client or a question, and goes with it.
//!
//! Whoever keeps a table says here how large it is after each batch of messages; what lives by itself holds a [`Living`].
//! When no job runs and nobody asks, all of them are what they were before the first job: that is how memory stays flat
//! (`tests/it/census.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident $name:literal;)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[$doc])+ $kind),+
        }

        const NAMES: &[&str] = &[$($name),+];
    };
}

kinds! {
    /// Jobs that the Host runs or looks up.
    Hosted "jobs hosted";
    /// Owners, from their beginning to where their memory is given back.
    Owner "owners";
    /// Writers of the logs of jobs.
    LogWriter "writers of logs";
    /// Attempts that the NodeManager has.
    Attempt "attempts";
    /// Those of them that wait: for their arguments, or for an executor.
    AttemptWaiting "attempts that wait";
    /// Those of them that executors have; short ones are handed out ahead.
    AttemptHanded "attempts with executors";
    /// Sets that it knows.
    Set "sets";
    /// Jobs that it knows: their Owners, their runs, and who watches.
    JobAtNode "jobs that the node knows";
    /// Lanes of the Merger.
    Lane "lanes";
    /// What is copied ahead, or about to be.
    Push "pushes";
    /// Jobs whose Owners it knows.
    JobAtMerger "jobs that the merger knows";
    /// Jobs of the Scheduler.
    JobAtScheduler "jobs that the scheduler knows";
    /// Jobs that wait there for their turn.
    JobWaiting "jobs that wait for their turn";
    /// Jobs that were handed in and are not over, those that wait included.
    JobNotOver "jobs that are not over";
    /// What it has lent.
    Loan "loans";
    /// Jobs of which a node has something and nothing is heard.
    Stranger "strange jobs";
}

/// See the module. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Census(Arc<[AtomicU64]>);

impl Default for Census {
    fn default() -> Self {
        Self(NAMES.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl Census {
    /// There are so many of them.
    pub(crate) fn set(&self, kind: Kind, count: usize) {
        self.0[kind as usize].store(count as u64, Ordering::Relaxed);
    }

    /// One more lives as long as what is returned.
    pub(crate) fn living(&self, kind: Kind) -> Living {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
        Living(self.clone(), kind)
    }

    /// How many there are of a kind.
    pub(crate) fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    /// All of them, by what they are called.
    pub(crate) fn read(&self) -> BTreeMap<&'static str, u64> {
        NAMES.iter().copied().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

/// Something that lives.
#[derive(Debug)]
pub(crate) struct Living(Census, Kind);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.0[self.1 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
