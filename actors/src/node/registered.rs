//! What a node says of itself to the Scheduler again and again.

use std::time::Duration;

use tracing::{info, warn};

use crate::host::JobsOver;
use crate::protocol::scheduler::{NodeSpec, SchedulerMsg};
use crate::scheduler::SchedulerLink;

/// How often a node tells the Scheduler that it is there.
const REGISTER_EVERY: Duration = Duration::from_secs(2);

/// Tells the Scheduler from time to time, and each new one at once, that the node is there and which jobs ended on it.
pub(crate) async fn keep_registered(scheduler: SchedulerLink, spec: NodeSpec, over: JobsOver) {
    let mut every = tokio::time::interval(REGISTER_EVERY);
    let mut changes = scheduler.changes();
    loop {
        let another = tokio::select! {
            biased;
            Ok(()) = changes.changed() => true,
            _ = every.tick() => false,
        };
        let Some(reign) = scheduler.reign() else { continue };
        if another {
            info!(node = %reign.node, epoch = reign.epoch.0, "another scheduler is followed");
            let jobs = over.list();
            if !jobs.is_empty()
                && let Err(error) = scheduler.send(SchedulerMsg::JobsOver { jobs })
            {
                warn!(%error, "scheduler not told of jobs that are over");
            }
        }
        if let Err(error) = scheduler.send(SchedulerMsg::NodeUp(spec.clone())) {
            warn!(%error, "scheduler not told");
        }
    }
}
