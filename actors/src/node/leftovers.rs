//! What an earlier process of this node left on its disks. Objects of jobs that are not over stay: their Owners ask what is here
//! (`TakeInventory`), and need not make them again. What belongs to jobs that are known to be over is deleted before anybody
//! hears that the node is there. A log that does not answer says nothing: then it is as with jobs that end while a node is away,
//! the node tells the Scheduler of which jobs it has something (`SchedulerMsg::Holds`).

use std::time::Duration;

use exobus_store::Store;
use tracing::{debug, info};

use crate::ids::{JobId, NodeId};
use crate::joblog::LogsLink;
use crate::results::ResultsBase;

/// How long the node waits for the log.
const DEADLINE: Duration = Duration::from_secs(3);

/// In a store that was just opened, before any task runs; it may take [`DEADLINE`].
pub(super) async fn delete_leftovers(store: &Store, logs: &LogsLink, results: &ResultsBase, me: &NodeId) {
    // Results have groups of their own, and are swept by their records.
    let jobs: Vec<_> = store.groups().into_iter().map(JobId::from_u128).filter(|job| !job.is_taken()).collect();
    if jobs.is_empty() {
        return;
    }
    info!(jobs = jobs.len(), "objects of an earlier process are here");
    let look = async {
        // Files that were closed before their job was over know what outlives it by its first name alone.
        results.name_again(me).await;
        let logs = match logs.get().await {
            Ok(Some(logs)) => logs,
            Ok(None) => return,
            Err(error) => return debug!(%error, "the log of jobs does not answer"),
        };
        for job in jobs {
            match logs.is_over(job).await {
                Ok(false) => {}
                Ok(true) => store.delete_group(job.group()),
                Err(error) => debug!(job_id = %job, %error, "whether the job is over cannot be read"),
            }
        }
    };
    let _ = tokio::time::timeout(DEADLINE, look).await;
}
