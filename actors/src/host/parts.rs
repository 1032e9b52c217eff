//! What a Host has of its node.

use std::sync::Arc;

use exobus_store::Store;

use super::{JobsOver, RunningJobs};
use crate::admission::Admission;
use crate::event::NodeFigures;
use crate::futures::{Compute, Home};
use crate::joblog::LogsLink;
use crate::jobs::journal::JournalLink;
use crate::membership::Directory;
use crate::node_manager::{Gate, Stager};
use crate::printing::Printing;
use crate::random::Random;
use crate::results::ResultsParts;
use crate::scheduler::SchedulerLink;
use crate::shell::Post;
use crate::tenants::Tenants;

/// What a job needs of the node that hosts it.
#[derive(Clone)]
pub(crate) struct NodeParts {
    pub(crate) post: Post,
    pub(crate) store: Store,
    pub(crate) stager: Stager,
    pub(crate) scheduler: SchedulerLink,
    pub(crate) over: JobsOver,
    pub(crate) running: RunningJobs,
    pub(crate) gate: Gate,
    pub(crate) directory: Directory,
    /// Where random numbers come from.
    pub(crate) random: Arc<dyn Random>,
    /// Where programs compute.
    pub(crate) compute: Arc<dyn Compute>,
    /// Where programs print.
    pub(crate) printing: Printing,
    /// Where jobs are logged.
    pub(crate) logs: LogsLink,
    /// What is known of jobs beyond that.
    pub(crate) journal: JournalLink,
    /// Bytes that the log of a job may have.
    pub(crate) log_quota_bytes: u64,
    /// For whom jobs run, and what these may do.
    pub(crate) tenants: Tenants,
    /// Where jobs run that this node hosts.
    pub(crate) home: Home,
    pub(crate) figures: Arc<dyn Fn() -> NodeFigures + Send + Sync>,
    /// What keeps results.
    pub(crate) results: ResultsParts,
    /// Which jobs may begin.
    pub(crate) admission: Admission,
}
