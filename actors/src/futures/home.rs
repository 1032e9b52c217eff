//! Where a job runs, and what is known there of other jobs.

use std::path::PathBuf;
use std::time::Duration;

use exobus_files::Claimant;
use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::joblog::LogsLink;
use crate::protocol::scheduler::SchedulerMsg;
use crate::scheduler::SchedulerLink;
use crate::task::JobError;

/// How long the Scheduler may take to list its jobs: one that has just begun, or has lost a node, waits until it has heard of all that
/// live ([`SchedulerOptions::settle`](crate::scheduler::SchedulerOptions::settle)).
const LIST_DEADLINE: Duration = Duration::from_secs(30);

/// Where a job runs, for who finds what it has left. The same for all runs of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The name of its cluster; `None`: one process runs it alone.
    pub cluster: Option<String>,
    /// The file of its log, where it runs alone and is logged: there as long as the job can be taken up again, and locked by the
    /// process that runs it.
    pub log: Option<PathBuf>,
}

impl Home {
    /// Who claims a folder: the job of this program.
    pub fn claimant<'a>(&'a self, program: &'a str) -> Claimant<'a> {
        Claimant { program, cluster: self.cluster.as_deref(), log: self.log.as_deref() }
    }
}

/// Who knows of other jobs. The default knows nothing.
#[derive(Clone, Default)]
pub(crate) struct OtherJobs(Option<(SchedulerLink, LogsLink)>);

impl OtherJobs {
    pub(crate) fn new(scheduler: SchedulerLink, logs: LogsLink) -> Self {
        Self(Some((scheduler, logs)))
    }

    /// Whether a job of this cluster neither runs nor is going to: a job that is over stays so, so a program that is run again may
    /// ask again.
    pub(super) async fn is_over(&self, job: JobId) -> Result<bool, JobError> {
        let unknown = |reason: String| JobError::Runtime { reason: format!("how it stands with job {job}: {reason}") };
        let Some((scheduler, logs)) = &self.0 else { return Err(unknown("nobody knows here".to_owned())) };
        let jobs = scheduler.ask(|reply| SchedulerMsg::ListJobs { settled: true, reply }, LIST_DEADLINE).await;
        if jobs.map_err(|error| unknown(error.to_string()))?.iter().any(|info| info.job == job) {
            return Ok(false);
        }
        // Nobody may run it just now; what is accepted stands in the log.
        let accepted = match logs.get().await.map_err(|error| unknown(error.to_string()))? {
            Some(logs) => logs.spec(job).await.map_err(|error| unknown(error.to_string()))?.is_some(),
            None => false,
        };
        Ok(!accepted)
    }
}
