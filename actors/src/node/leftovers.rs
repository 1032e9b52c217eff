//! What an earlier process of this node left on its disks. Objects of jobs that are not over stay: their Owners ask what is here
//! (`TakeInventory`), and need not make them again. What belongs to jobs that are known to be over is deleted before anybody
//! hears that the node is there. A log that does not answer says nothing: then it is as with jobs that end while a node is away,
//! the node tells the Scheduler of which jobs it has something (`SchedulerMsg::Holds`). Neither happens before what a job kept has the
//! names of its result again, which the records of results say: until they can be read, nothing is deleted or freed, and no job is told of; and what
//! belongs to a job whose record is of another version stays as long as that record.

use std::time::Duration;

use exobus_store::Store;
use tokio::sync::oneshot;
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
    let named = name_again(results.clone(), me.clone());
    let look = async {
        // Files that were closed before their job was over know what outlives it by its first name alone.
        if named.await != Ok(true) {
            return;
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
}

/// Gives what results were kept here their names again, as soon as their records can be read, however long that takes: it ends then, or with
/// the node. Says whether it was so at the first time; nobody need hear that.
fn name_again(results: ResultsBase, me: NodeId) -> oneshot::Receiver<bool> {
    let (tell, named) = oneshot::channel();
    let mut tell = Some(tell);
    actix_rt::spawn(async move {
        loop {
            let read = results.name_again(&me).await;
            let first = tell.take();
            match (&read, &first) {
                (Ok(()), _) => {}
                (Err(error), Some(_)) => {
                    warn!(%error, "what results were kept here cannot be read yet: objects of jobs that are over stay until then");
                }
                (Err(error), None) => debug!(%error, "what results were kept here cannot be read yet"),
            }
            if let Some(tell) = first {
                let _ = tell.send(read.is_ok());
            }
            if read.is_ok() {
                return;
            }
            tokio::time::sleep(READ_AGAIN).await;
        }
    });
    named
}
