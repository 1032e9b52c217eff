//! What a node says of itself to the Scheduler again and again.

use std::time::Duration;

use tracing::{info, warn};

use crate::host::JobsOver;
use crate::protocol::scheduler::{NodeSpec, SchedulerMsg};
use crate::scheduler::SchedulerLink;

/// How often a node tells the Scheduler that it is there.
pub(crate) const REGISTER_EVERY: Duration = Duration::from_secs(2);

/// What a node says of itself, in this order; `another`: to a Scheduler to which it has said nothing yet.
pub(crate) fn registration(another: bool, spec: &NodeSpec, over: &JobsOver) -> Vec<SchedulerMsg> {
    let jobs = if another { over.list() } else { Vec::new() };
    let over = (!jobs.is_empty()).then_some(SchedulerMsg::JobsOver { jobs });
    over.into_iter().chain([SchedulerMsg::NodeUp(spec.clone())]).collect()
}

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
        let Some(leader) = scheduler.leader() else { continue };
        if another {
            info!(node = %leader.node, epoch = leader.epoch.0, "another scheduler is followed");
        }
        for message in registration(another, &spec, &over) {
            if let Err(error) = scheduler.send(message) {
                warn!(%error, "scheduler not told");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, JobId, NodeId};
    use crate::task::Resources;

    #[test]
    fn a_scheduler_that_is_new_to_a_node_hears_first_which_jobs_ended_there() {
        let spec = NodeSpec {
            node: NodeId::new("n1"),
            incarnation: Incarnation(1),
            resources: Resources::cpu(1000),
            labels: Default::default(),
            functions: Vec::new(),
            data_address: String::new(),
            memory_bytes: 0,
        };
        let up = || SchedulerMsg::NodeUp(spec.clone());
        let over = JobsOver::default();
        assert_eq!(registration(true, &spec, &over), [up()], "none has ended");
        over.add(JobId::from_u128(7));
        assert_eq!(registration(false, &spec, &over), [up()], "it was told");
        let jobs = SchedulerMsg::JobsOver { jobs: vec![JobId::from_u128(7)] };
        assert_eq!(registration(true, &spec, &over), [jobs, up()]);
    }
}
