//! Lending: from the division of the cluster to leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::loan::{Loan, add, minus};
use super::plan::{self, PlanJob, PlanNode, PlanShape};
use crate::protocol::scheduler::{NodeSpec, Shape};

use super::state::{Node, State};
use crate::ids::{Incarnation, JobId, LeaseId, NodeId};
use crate::task::Resources;

/// Slots that somebody should have: by what one has.
type Target = BTreeMap<Resources, u32>;

impl State {
    /// What of each node is neither lent nor waits to be given back; nothing of nodes that are down.
    pub(super) fn free(&self) -> BTreeMap<NodeId, Resources> {
        let up = self.nodes.iter().filter(|(_, node)| node.up);
        let mut free: BTreeMap<_, _> = up.map(|(name, node)| (name.clone(), node.spec.resources.clone())).collect();
        for ((_, node), loan) in &self.loans {
            if let Some(free) = free.get_mut(node) {
                *free = minus(free, &loan.held());
            }
        }
        free
    }

    /// Ends what has run out.
    pub(super) fn run_out(&mut self, now: Duration) {
        let mut freed = false;
        let (jobs, options) = (&self.jobs, &self.options);
        self.loans.retain(|(id, _), loan| {
            let speaks = jobs.get(id).is_some_and(|job| job.speaks(now, options));
            freed |= loan.run_out(now, speaks);
            !loan.is_over()
        });
        self.stale |= freed;
    }

    /// Divides the cluster, takes back what is too much, lends what is free.
    pub(super) fn divide(&mut self, now: Duration, renew: bool, changed: &mut BTreeSet<JobId>) {
        // Leases that were taken over on nodes that this Scheduler has never heard of: gone with the epoch before.
        self.loans.retain(|(_, node), _| self.nodes.contains_key(node));
        let targets = self.targets(now);
        let mut keys: BTreeSet<_> = self.loans.keys().cloned().collect();
        keys.extend(targets.keys().cloned());
        let none = Target::new();
        for key in &keys {
            if self.loans.get_mut(key).is_some_and(|loan| loan.shrink(targets.get(key).unwrap_or(&none))) {
                changed.insert(key.0);
            }
        }
        // Who has least is served first: there may not be room for all until others have given theirs back.
        let mut wanting: Vec<_> = targets.iter().collect();
        wanting.sort_by_key(|((job, node), _)| (self.jobs[job].share, *job, node.clone()));
        let mut free = self.free();
        for (key, target) in wanting {
            if let Some(free) = free.get_mut(&key.1)
                && self.grow(now, key, target, free)
            {
                changed.insert(key.0);
            }
        }
        if renew {
            let ends_at = now + self.options.lease + self.options.grace;
            for ((id, _), loan) in &mut self.loans {
                if self.jobs.get(id).is_some_and(|job| job.speaks(now, &self.options)) {
                    loan.ends_at = ends_at;
                    changed.insert(*id);
                }
            }
        }
        self.loans.retain(|_, loan| !loan.is_over());
        self.measure(now);
    }

    /// Lends slots up to `target` out of `free`. False when nothing could be lent.
    fn grow(&mut self, now: Duration, key: &(JobId, NodeId), target: &Target, free: &mut Resources) -> bool {
        let ends_at = now + self.options.lease + self.options.grace;
        if let Some(loan) = self.loans.get_mut(key) {
            return loan.grow(target, free, ends_at);
        }
        let incarnation = self.nodes.get(&key.1).map_or(Incarnation(0), |node| node.spec.incarnation);
        let mut loan = Loan::new(LeaseId(self.next_lease), incarnation);
        let grown = loan.grow(target, free, ends_at);
        if grown {
            self.next_lease += 1;
            self.loans.insert(key.clone(), loan);
        }
        grown
    }

    /// What everybody should have: slots by (job, node).
    fn targets(&self, now: Duration) -> BTreeMap<(JobId, NodeId), Target> {
        let wanting: Vec<_> =
            self.jobs.iter().filter(|(_, job)| !job.shapes.is_empty() && job.speaks(now, &self.options)).collect();
        let nodes: Vec<(&NodeId, &Node)> = self.nodes.iter().filter(|(_, node)| node.up).collect();
        let mut kinds = BTreeSet::new();
        kinds.extend(nodes.iter().flat_map(|(_, node)| node.spec.resources.0.keys()));
        kinds.extend(wanting.iter().flat_map(|(_, job)| &job.shapes).flat_map(|shape| shape.resources.0.keys()));
        let amounts = |of: &Resources| kinds.iter().map(|kind| of.get(kind)).collect::<Vec<_>>();
        let free = self.free();
        let plan_nodes: Vec<_> = nodes
            .iter()
            .map(|(name, node)| PlanNode { total: amounts(&node.spec.resources), free_now: amounts(&free[*name]) })
            .collect();
        let tenants: BTreeSet<_> = wanting.iter().map(|(_, job)| &job.tenant).collect();
        let tenants: BTreeMap<_, _> = tenants.into_iter().enumerate().map(|(index, name)| (name, index)).collect();
        let at: BTreeMap<_, _> = nodes.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
        let plan_jobs: Vec<_> = wanting
            .iter()
            .map(|(id, job)| PlanJob {
                tenant: tenants[&job.tenant],
                shapes: job
                    .shapes
                    .iter()
                    .map(|shape| PlanShape {
                        need: amounts(&shape.resources),
                        count: shape.count,
                        nodes: (0..nodes.len()).filter(|node| eligible(shape, &nodes[*node].1.spec)).collect(),
                    })
                    .collect(),
                held: self.loans_of(**id).map(|(node, loan)| (at[node], amounts(&loan.held()))).collect(),
                share_now: job.share,
                protected: job.lent_since.is_some_and(|since| now.saturating_sub(since) < self.options.turn),
                used: job.used,
                tenant_used: self.tenants_used.get(&job.tenant).copied().unwrap_or(0),
            })
            .collect();
        let mut targets: BTreeMap<_, Target> = BTreeMap::new();
        for ((job, node, shape), count) in plan::divide(&plan_nodes, &plan_jobs, tenants.len()) {
            let key = (*wanting[job].0, nodes[node].0.clone());
            let need = wanting[job].1.shapes[shape].resources.clone();
            *targets.entry(key).or_default().entry(need).or_default() += count;
        }
        targets
    }

    /// Shares and turns after a division.
    fn measure(&mut self, now: Duration) {
        let mut cluster = Resources::default();
        for node in self.nodes.values().filter(|node| node.up) {
            add(&mut cluster, &node.spec.resources, 1);
        }
        let mut sums: BTreeMap<JobId, (Resources, bool)> = BTreeMap::new();
        for ((job, _), loan) in &self.loans {
            let (sum, lent) = sums.entry(*job).or_default();
            add(sum, &loan.resources(), 1);
            *lent |= !loan.slots.is_empty();
        }
        for (id, job) in &mut self.jobs {
            let (sum, lent) = sums.remove(id).unwrap_or_default();
            let (has, all): (Vec<_>, Vec<_>) = sum.0.iter().map(|(kind, amount)| (*amount, cluster.get(kind))).unzip();
            job.share = plan::dominant_share(&has, &all);
            job.lent_since = if lent { job.lent_since.or(Some(now)) } else { None };
        }
    }
}

/// Whether slots of this shape may be on this node at all.
pub(super) fn eligible(shape: &Shape, node: &NodeSpec) -> bool {
    shape.node.as_ref().is_none_or(|name| *name == node.node)
        && shape.function.as_ref().is_none_or(|function| node.functions.contains(function))
        && shape.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}
