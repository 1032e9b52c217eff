//! What the job was lent, in which epoch, until when, and what it asks for.
//!
//! What a Scheduler of an epoch that is over says counts no more. Leases run out when their Scheduler is there and does not renew them; while none
//! speaks, they go on. What was lent in an earlier epoch is told to the next one as held, and goes on until that one says what the job has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::state::Demand;
use crate::ids::{Epoch, Incarnation, JobId, LeaseId, NodeId};
use crate::protocol::scheduler::{HeldLease, JobDemand, Lease, LeaseUse, Shape};

use crate::task::Resources;

/// Leases of a job, and its demand.
#[derive(Debug, Default)]
pub(super) struct Leasing {
    leases: BTreeMap<LeaseId, Lease>,
    /// The epoch in which they were made.
    epoch: Epoch,
    /// When they end, if a Scheduler that is heard does not renew them.
    end: Duration,
    demand: Vec<Demand>,
    sequence: u64,
}

/// Whose demand it is.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) job: JobId,
    pub(super) tenant: Arc<str>,
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
}

impl Leasing {
    /// Whether what a Scheduler says in this epoch counts, where `followed` is the highest epoch that was heard of.
    pub(super) fn is_of_now(&self, epoch: Epoch, followed: Epoch) -> bool {
        epoch >= self.epoch && epoch >= followed
    }

    /// The epoch of the Scheduler that made the leases.
    #[cfg(feature = "simulation")]
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The leases that the job has now, all of them.
    pub(super) fn leased(&mut self, now: Duration, epoch: Epoch, leases: Vec<Lease>) {
        self.epoch = epoch;
        let lasts_ms = leases.iter().map(|lease| lease.lasts_ms).max().unwrap_or(0);
        self.end = now + Duration::from_millis(lasts_ms);
        self.leases = leases.into_iter().map(|lease| (lease.id, lease)).collect();
    }

    /// Ends leases that a Scheduler which `speaks` has not renewed; whether there were any.
    pub(super) fn run_out(&mut self, now: Duration, speaks: bool) -> bool {
        let over = !self.leases.is_empty() && now >= self.end && speaks;
        if over {
            self.leases.clear();
        }
        over
    }

    /// What was lent, as the tables of the job count it.
    pub(super) fn lent(&self) -> Vec<(NodeId, Incarnation, Resources)> {
        let lent = |lease: &Lease| (lease.node.clone(), lease.incarnation, lease.resources.clone());
        self.leases.values().map(lent).collect()
    }

    /// The job could use this from now on.
    pub(super) fn wants(&mut self, demand: Vec<Demand>) {
        self.demand = demand;
    }

    /// The next demand, where `followed` is the highest epoch that was heard of; `in_use`: what tasks occupy of a lease on a node.
    pub(super) fn demand(
        &mut self,
        asker: Asker,
        followed: Epoch,
        in_use: impl Fn(&NodeId, &Resources) -> Resources,
    ) -> JobDemand {
        self.sequence += 1;
        let shape = |demand: &Demand| Shape {
            node: demand.node.clone(),
            function: demand.function.clone(),
            ..Shape::anywhere(demand.resources.clone(), u32::try_from(demand.slots).unwrap_or(u32::MAX))
        };
        let in_use = |lease: &Lease| in_use(&lease.node, &lease.resources);
        let report = |lease: &Lease| LeaseUse {
            epoch: lease.epoch,
            lease: lease.id,
            version: lease.version,
            in_use: in_use(lease),
        };
        let hold = |lease: &Lease| HeldLease { lease: lease.clone(), in_use: in_use(lease) };
        // What was lent in an earlier epoch goes on until this one says what the job has.
        let succeeded = self.epoch < followed;
        let leases = || self.leases.values();
        JobDemand {
            job: asker.job,
            tenant: asker.tenant,
            owner: asker.node,
            incarnation: asker.incarnation,
            sequence: self.sequence,
            shapes: self.demand.iter().map(shape).collect(),
            leases: leases().filter(|_| !succeeded).map(report).collect(),
            held: leases().filter(|_| succeeded).map(hold).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(epoch: u64) -> Lease {
        Lease {
            id: LeaseId(1),
            epoch: Epoch(epoch),
            version: 1,
            job: JobId::from_u128(1),
            node: NodeId::new("a"),
            incarnation: Incarnation(1),
            resources: Resources::cpu(1000),
            lasts_ms: 3000,
        }
    }

    fn lent(epoch: u64) -> Leasing {
        let mut leasing = Leasing::default();
        leasing.leased(at(10), Epoch(epoch), vec![lease(epoch)]);
        leasing
    }

    #[test]
    fn words_of_an_older_epoch_than_the_leases_or_than_is_followed_count_no_more() {
        let leasing = lent(5);
        assert!(leasing.is_of_now(Epoch(5), Epoch(5)) && leasing.is_of_now(Epoch(6), Epoch(5)));
        assert!(!leasing.is_of_now(Epoch(4), Epoch(0)), "older than the leases");
        assert!(!leasing.is_of_now(Epoch(5), Epoch(6)), "older than what is followed");
    }

    #[test]
    fn leases_run_out_where_a_scheduler_speaks_and_go_on_where_none_does() {
        let mut leasing = lent(5);
        assert!(!leasing.run_out(at(12), true), "not yet");
        assert!(!leasing.run_out(at(99), false), "nobody could renew them");
        assert_eq!(leasing.lent().len(), 1);
        assert!(leasing.run_out(at(13), true));
        assert!(leasing.lent().is_empty() && !leasing.run_out(at(14), true));
    }

    #[test]
    fn a_new_scheduler_is_told_of_leases_as_held_and_its_own_are_reported() {
        let asker = || Asker {
            job: JobId::from_u128(1),
            tenant: "t".into(),
            node: NodeId::new("home"),
            incarnation: Incarnation(1),
        };
        let mut leasing = lent(5);
        let own = leasing.demand(asker(), Epoch(5), |_, leased| leased.clone());
        assert_eq!((own.leases.len(), own.held.len(), own.sequence), (1, 0, 1));
        let next = leasing.demand(asker(), Epoch(6), |_, leased| leased.clone());
        assert_eq!((next.leases.len(), next.held.len(), next.sequence), (0, 1, 2));
        assert_eq!(next.held[0].in_use, Resources::cpu(1000));
    }
}
