//! [`Leftovers`]: what is in the store of a node when a life of it begins: objects that an earlier process spilled, or that
//! an earlier life of this one made. Those of jobs that are not over stay: their Owners ask what is here (`TakeStock`), and
//! need not make them again. Others are deleted; whoever ended those jobs did not know that the node has them.
//!
//! Only what is known to be over is deleted: a log that does not answer says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use exobus_store::{ObjectId, Store};
use tracing::{debug, info};

use crate::ids::JobId;
use crate::joblog::{JobLogs, LogError, LogsLink};

const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long the node waits for the first look before it goes on.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// After so many looks that found no log of jobs in the cluster there is none: no job outlives the node that hosts it, and
/// what an earlier process left is of little use.
const ABSENT_MAX: u32 = 8;

/// See the module.
pub(super) struct Leftovers {
    store: Store,
    logs: LogsLink,
    /// Whether they are an earlier process's: that may have worked for jobs that were never logged and are no more.
    of_earlier_process: bool,
    jobs: BTreeMap<JobId, Vec<ObjectId>>,
    absent: u32,
}

impl Leftovers {
    /// At the beginning of a life, the first one of its process or a later one.
    pub(super) fn of(store: &Store, logs: LogsLink, first: bool) -> Self {
        let groups = store.groups().into_iter();
        let jobs: BTreeMap<_, _> = groups.map(|group| (JobId::from_u128(group), store.ids_of(group))).collect();
        if !jobs.is_empty() {
            info!(jobs = jobs.len(), objects = jobs.values().map(Vec::len).sum::<usize>(), "objects are here already");
        }
        Self { store: store.clone(), logs, of_earlier_process: first, jobs, absent: 0 }
    }

    /// Before anybody is told that the node is there; does not wait long for a bus that does not answer.
    pub(super) async fn first_look(&mut self) {
        if !self.jobs.is_empty() {
            let _ = tokio::time::timeout(FIRST_LOOK, self.look()).await;
        }
    }

    /// Looks until nothing is left of which a job could be over.
    pub(super) async fn keep_looking(mut self) {
        while !self.jobs.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let logs = match self.logs.get().await {
            Ok(Some(logs)) => logs,
            Ok(None) => {
                self.absent += 1;
                if self.absent >= ABSENT_MAX && self.of_earlier_process {
                    let jobs = std::mem::take(&mut self.jobs);
                    jobs.values().for_each(|objects| self.store.delete(objects));
                }
                return;
            }
            Err(error) => return debug!(%error, "the log of jobs does not answer"),
        };
        self.absent = 0;
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            match self.is_over(&logs, job).await {
                Ok(false) => {}
                Ok(true) => {
                    let objects = self.jobs.remove(&job).unwrap_or_default();
                    self.store.delete(&objects);
                }
                Err(error) => debug!(job_id = %job, %error, "whether the job is over cannot be read"),
            }
        }
    }

    async fn is_over(&self, logs: &JobLogs, job: JobId) -> Result<bool, LogError> {
        let forgotten = self.of_earlier_process && logs.spec(job).await?.is_none();
        Ok(forgotten || logs.end(job).await?.is_some())
    }
}
