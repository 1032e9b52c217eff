//! What an earlier process of this node left on its disks. Objects of jobs that are not over stay: their Owners ask what is here
//! (`TakeInventory`), and need not make them again. What belongs to jobs that are known to be over is deleted before anybody
//! hears that the node is there. A log that does not answer says nothing: then it is as with jobs that end while a node is away,
//! the node tells the Scheduler of which jobs it has something (`SchedulerMsg::Holds`). Neither happens before what a job kept has the
//! names of its result again, which the records of results say: until they can be read, nothing is deleted, and no job is told of; and what
//! belongs to a job whose record is of another version stays as long as that record.

use std::time::Duration;

use exobus_store::Store;
use tracing::{debug, info, warn};

use crate::ids::{JobId, NodeId};
use crate::joblog::LogsLink;
use crate::results::ResultsBase;

/// How long the node waits for the log.
const DEADLINE: Duration = Duration::from_secs(3);

/// How often it is tried to read the records of results.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// In a store that was just opened, before any task runs; it may take [`DEADLINE`].
pub(super) async fn delete_leftovers(store: &Store, logs: &LogsLink, results: &ResultsBase, me: &NodeId) {
    // Results have groups of their own, and are swept by their records.
    let jobs: Vec<_> = store.groups().into_iter().map(JobId::from_u128).filter(|job| !job.is_taken()).collect();
    if jobs.is_empty() {
        return results.nothing_to_name();
    }
    info!(jobs = jobs.len(), "objects of an earlier process are here");
    let look = async {
        // Files that were closed before their job was over know what outlives it by its first name alone.
        if let Err(error) = results.name_again(me).await {
            return warn!(%error, "what results were kept here cannot be read yet: objects of jobs that are over stay until then");
        }
        let logs = match logs.get().await {
            Ok(Some(logs)) => logs,
            Ok(None) => return,
            Err(error) => return debug!(%error, "the log of jobs does not answer"),
        };
        for job in jobs {
            match logs.is_over(job).await {
                Ok(false) => {}
                Ok(true) if results.spared.spares(job) => {}
                Ok(true) => store.delete_group(job.group()),
                Err(error) => debug!(job_id = %job, %error, "whether the job is over cannot be read"),
            }
        }
    };
    let _ = tokio::time::timeout(DEADLINE, look).await;
    if results.spared.spares_all() {
        let (results, me) = (results.clone(), me.clone());
        // It ends with the records' answer, or with the node.
        actix_rt::spawn(async move {
            while let Err(error) = results.name_again(&me).await {
                debug!(%error, "what results were kept here cannot be read yet");
                tokio::time::sleep(READ_AGAIN).await;
            }
        });
    }
}
