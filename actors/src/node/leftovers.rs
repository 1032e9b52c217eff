//! [`Leftovers`]: what an earlier process of this node left on disk. Objects of jobs that are not over stay: their Owners
//! ask what is here (`TakeStock`), and need not make them again. Those of other jobs are deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::Store;
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::ids::JobId;
use crate::joblog::{LogError, LogsLink};

/// A job whose Owner does not know this node ends without a word to it.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long the node waits for the first look before it joins.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// See the module. Clones are the same.
#[derive(Clone)]
pub(super) struct Leftovers {
    store: Store,
    logs: LogsLink,
    /// Jobs of which something was found and that were not over yet.
    jobs: Arc<Mutex<BTreeSet<JobId>>>,
}

impl Leftovers {
    /// Of a store that was just opened.
    pub(super) fn of(store: &Store, logs: LogsLink) -> Self {
        let jobs: BTreeSet<JobId> = store.groups().into_iter().map(JobId::from_u128).collect();
        if !jobs.is_empty() {
            info!(jobs = jobs.len(), objects = store.ids().len(), "objects of earlier jobs are here");
        }
        Self { store: store.clone(), logs, jobs: Arc::new(Mutex::new(jobs)) }
    }

    /// The first look, before anybody is told that the node is there; it does not wait for a bus that does not answer.
    pub(super) async fn first_look(&self) {
        if !self.are_gone() && tokio::time::timeout(FIRST_LOOK, self.look()).await.is_err() {
            warn!("the log of jobs does not answer: what is left of jobs that are over is deleted later");
        }
    }

    /// Looks until nothing is left of jobs that are over.
    pub(super) async fn keep_looking(self) {
        while !self.are_gone() {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    fn are_gone(&self) -> bool {
        self.jobs.lock().is_empty()
    }

    async fn look(&self) {
        match self.unfinished().await {
            Ok(unfinished) => self.keep_only(&unfinished),
            Err(error) => warn!(%error, "which jobs are over cannot be read"),
        }
    }

    async fn unfinished(&self) -> Result<BTreeSet<JobId>, LogError> {
        // Without a log, no job is known to go on: what is left is of no use, or made again.
        let Some(logs) = self.logs.get().await? else { return Ok(BTreeSet::new()) };
        Ok(logs.unfinished().await?.into_iter().map(|spec| spec.job).collect())
    }

    fn keep_only(&self, unfinished: &BTreeSet<JobId>) {
        let over: Vec<JobId> = {
            let mut jobs = self.jobs.lock();
            let over = jobs.difference(unfinished).copied().collect();
            jobs.retain(|job| unfinished.contains(job));
            over
        };
        for job in over {
            self.store.delete_group(job.group());
        }
    }
}
