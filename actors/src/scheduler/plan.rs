//! Who should have what: a fair division of the cluster, as a pure function.
//!
//! Progressive filling: again and again the job with the smallest dominant share, of the tenant with the smallest
//! dominant share, gets one more slot, until nobody's next slot fits anywhere. The division is made anew from nothing
//! each time, so that it depends on demands and nodes, not on history; only *where* a slot is put looks at what is
//! lent now, so that an unchanged demand changes no lease.
//!
//! A slot is put, in this order: where the job has room of its own already; where there is room now; where there will
//! be room when others have given theirs back. Among these where the least would be wasted (a slot without gpu prefers
//! a node without), then where most is free.
//!
//! Cost: slots x (jobs + nodes x kinds of resources): 1 ms for 1 000 slots on 100 nodes and 10 jobs.

use std::collections::BTreeMap;

/// Amounts by kind of resource, in an order that all tables of one plan share.
pub type Amounts = Vec<u64>;

/// A node that can be lent from.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// All it has.
    pub total: Amounts,
    /// What of it is neither lent nor waits to be given back.
    pub free_now: Amounts,
}

/// One kind of slot that a job wants.
#[derive(Clone, Debug)]
pub struct PlanShape {
    /// What one slot takes.
    pub need: Amounts,
    /// How many.
    pub count: u32,
    /// Nodes (by index) where it may be.
    pub nodes: Vec<usize>,
}

/// A job that wants something.
#[derive(Clone, Debug)]
pub struct PlanJob {
    /// Its tenant, by index.
    pub tenant: usize,
    /// What it wants.
    pub shapes: Vec<PlanShape>,
    /// What it has now by node, what it is giving back included.
    pub held: BTreeMap<usize, Amounts>,
    /// Its dominant share now, in billionths.
    pub share_now: u64,
    /// Whether its turn is not over: it keeps its first slot against those that have none.
    pub protected: bool,
    /// What it has used so far (share x time): of those without a slot, who used least comes first.
    pub used: u128,
    /// What its tenant has used so far.
    pub tenant_used: u128,
}

/// Slots by (job, node, shape), all by index. No entry is zero.
pub type Plan = BTreeMap<(usize, usize, usize), u32>;

/// Largest number of slots that need nothing, per job, node and shape: they are never scarce, but not endless either.
pub const FREE_SLOTS_MAX: u32 = 64;

/// One unit of share: the whole cluster is a billion.
pub const WHOLE: u64 = 1_000_000_000;

/// The part of `total` that `amounts` is, of the resource of which it is the largest part; in billionths.
pub fn dominant_share(amounts: &[u64], total: &[u64]) -> u64 {
    let share = |(amount, total): (&u64, &u64)| match (*amount, *total) {
        (0, _) => 0,
        (_, 0) => WHOLE,
        (amount, total) => (u128::from(amount) * u128::from(WHOLE) / u128::from(total)) as u64,
    };
    amounts.iter().zip(total).map(share).max().unwrap_or(0)
}

fn fits(need: &[u64], room: &[u64]) -> bool {
    need.iter().zip(room).all(|(need, room)| need <= room)
}

fn add(to: &mut [u64], amounts: &[u64]) {
    for (to, amount) in to.iter_mut().zip(amounts) {
        *to += amount;
    }
}

/// Takes `amounts` away and returns what was not there.
fn take(from: &mut [u64], amounts: &[u64]) -> Amounts {
    let mut rest = amounts.to_vec();
    for (from, rest) in from.iter_mut().zip(&mut rest) {
        let part = (*from).min(*rest);
        *from -= part;
        *rest -= part;
    }
    rest
}

/// Divides the nodes among the jobs. Jobs are in an order that decides ties; it should not change between plans.
pub fn divide(nodes: &[PlanNode], jobs: &[PlanJob], tenants: usize) -> Plan {
    let mut kinds = nodes.first().map_or(0, |node| node.total.len());
    kinds = kinds.max(jobs.iter().flat_map(|job| &job.shapes).map(|shape| shape.need.len()).max().unwrap_or(0));
    let mut cluster = vec![0; kinds];
    for node in nodes {
        add(&mut cluster, &node.total);
    }
    let mut filling = Filling {
        nodes,
        jobs,
        room: nodes.iter().map(|node| node.total.clone()).collect(),
        room_now: nodes.iter().map(|node| node.free_now.clone()).collect(),
        own: jobs.iter().map(|job| job.held.clone()).collect(),
        got: vec![vec![0; kinds]; jobs.len()],
        tenant_got: vec![vec![0; kinds]; tenants],
        open: jobs.iter().map(|job| vec![true; job.shapes.len()]).collect(),
        slots: jobs.iter().map(|job| vec![0; job.shapes.len()]).collect(),
        plan: Plan::new(),
        cluster,
    };
    while let Some(job) = filling.next_job() {
        filling.give(job);
    }
    filling.plan
}

struct Filling<'a> {
    nodes: &'a [PlanNode],
    jobs: &'a [PlanJob],
    /// Not planned yet, by node.
    room: Vec<Amounts>,
    /// Not planned and not lent to anybody, by node.
    room_now: Vec<Amounts>,
    /// Held by the job and not planned for it yet.
    own: Vec<BTreeMap<usize, Amounts>>,
    got: Vec<Amounts>,
    tenant_got: Vec<Amounts>,
    /// Shapes of which one more may fit somewhere.
    open: Vec<Vec<bool>>,
    slots: Vec<Vec<u32>>,
    plan: Plan,
    cluster: Amounts,
}

impl Filling<'_> {
    fn wants(&self, job: usize, shape: usize) -> bool {
        self.open[job][shape] && self.slots[job][shape] < self.jobs[job].shapes[shape].count
    }

    fn next_job(&self) -> Option<usize> {
        let wanting =
            (0..self.jobs.len()).filter(|job| (0..self.open[*job].len()).any(|shape| self.wants(*job, shape)));
        wanting.min_by_key(|index| {
            let job = &self.jobs[*index];
            let share = dominant_share(&self.got[*index], &self.cluster);
            let tenant_share = dominant_share(&self.tenant_got[job.tenant], &self.cluster);
            // A first slot goes to whose turn it is; of equals that have slots, to who has more now.
            let none = (false, 0);
            let tenant_turn = if tenant_share == 0 { (!job.protected, job.tenant_used) } else { none };
            let first = self.slots[*index].iter().all(|slots| *slots == 0);
            let turn = if first { (!job.protected, job.used) } else { none };
            (tenant_share, tenant_turn, share, turn, job.share_now <= share, *index)
        })
    }

    /// Gives one more slot to `job`, or closes a shape of it that fits nowhere.
    fn give(&mut self, job: usize) {
        let shapes = &self.jobs[job].shapes;
        // Shapes that are bound to one node come first; of equals the one that has the smallest part of what it
        // wants; of equals the largest, which is the hardest to fit.
        let shape = (0..shapes.len()).filter(|shape| self.wants(job, *shape)).min_by_key(|at| {
            let shape = &shapes[*at];
            let part = u64::from(self.slots[job][*at]) * WHOLE / u64::from(shape.count);
            let size = dominant_share(&shape.need, &self.cluster);
            (shape.nodes.len() > 1, part, u64::MAX - size, *at)
        });
        let Some(shape) = shape else { return };
        let Some(node) = self.best_node(job, shape) else {
            self.open[job][shape] = false;
            return;
        };
        let need = &shapes[shape].need;
        take(&mut self.room[node], need);
        let rest = match self.own[job].get_mut(&node) {
            Some(own) => take(own, need),
            None => need.clone(),
        };
        take(&mut self.room_now[node], &rest);
        add(&mut self.got[job], need);
        add(&mut self.tenant_got[self.jobs[job].tenant], need);
        self.slots[job][shape] += 1;
        *self.plan.entry((job, node, shape)).or_default() += 1;
    }

    fn best_node(&self, job: usize, shape: usize) -> Option<usize> {
        let PlanShape { need, nodes, .. } = &self.jobs[job].shapes[shape];
        let nothing = need.iter().all(|amount| *amount == 0);
        let fitting = nodes.iter().copied().filter(|node| {
            let here = self.plan.get(&(job, *node, shape)).copied().unwrap_or(0);
            fits(need, &self.room[*node]) && !(nothing && here >= FREE_SLOTS_MAX)
        });
        fitting.min_by_key(|node| {
            let own = self.own[job].get(node);
            let owned = own.is_some_and(|own| fits(need, own));
            let now = || {
                let mut rest = need.clone();
                if let Some(own) = own {
                    rest = take(&mut own.clone(), need);
                }
                fits(&rest, &self.room_now[*node])
            };
            let class = match owned {
                true => 0,
                false if now() => 1,
                false => 2,
            };
            let total = &self.nodes[*node].total;
            let wasted = need.iter().zip(total).filter(|(need, total)| **need == 0 && **total > 0).count();
            let taken: Amounts = total.iter().zip(&self.room[*node]).map(|(total, room)| total - room).collect();
            // Slots without needs spread by their number.
            let here = self.plan.get(&(job, *node, shape)).copied().unwrap_or(0);
            (class, wasted, dominant_share(&taken, total), here, *node)
        })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
