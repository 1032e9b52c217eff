//! The Scheduler's decisions. Time comes in with every event; what is to be done comes out as effects.
//!
//! | event                                        | then                                                              |
//! |----------------------------------------------|-------------------------------------------------------------------|
//! | new node, changed node                       | divided anew                                                      |
//! | node up with an incarnation that is over     | ignored                                                           |
//! | node down, or up with a later incarnation    | its leases end at once                                            |
//! | demand changed                               | divided anew; leases that must shrink shrink now, what was taken  |
//! |                                              | is lent again when it is reported idle or its loan has run out    |
//! | demand repeated                              | renewed at the next renewal                                       |
//! | demand not repeated for 3 s                  | not renewed: the leases run out                                   |
//! | slots reported in use after their loan ended | stay the job's for as long as they are reported                   |
//! | job done                                     | everything of it is free at once                                  |
//! | time for renewal                             | divided anew, all leases renewed                                  |
//! | demand with leases of an earlier epoch       | what they use is nobody else's until it is reported idle or ends  |
//! | submission or list while it gathers          | answered when it has gathered                                     |
//! | a job is logged as unfinished, has no home   | it is given one                                                   |
//! | a node has something of a job that is over   | the node is told that it is                                       |
//! | ... of a job of which nothing is heard       | it is looked whether it is over; if it is, and nothing was heard  |
//! |                                              | of it for 10 s, the node is told that                             |

mod jobs;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::event::UnfinishedJob;
use super::loan::{Loan, add};
use super::plan;
use crate::protocol::scheduler::{
    HeldLease, JobDemand, JobInfo, Lease, LeaseUse, NodeInfo, NodeSpec, Placement, Refusal, SHAPES_MAX, Shape, Wait,
};

use super::why;
use crate::ids::{Epoch, Incarnation, JobId, LeaseId, NodeId};
use crate::task::Resources;

/// The times of the Scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// How long a lease lasts; 4 s.
    pub lease: Duration,
    /// How much later than its end a lease's slots are lent again: what a message may take; 1 s.
    pub grace: Duration,
    /// Time between two renewals; 1 s.
    pub renew_every: Duration,
    /// A demand that is not repeated for so long counts no more; 3 s.
    pub demand_lasts: Duration,
    /// How long a job keeps its only slot before one that has none may get it; 10 s.
    pub turn: Duration,
    /// A job without leases from which nothing was heard for so long is forgotten; 60 s.
    pub forget_after: Duration,
    /// A job of which a node has something, and nothing is heard for so long, is over if no log says otherwise; 10 s.
    pub orphan_after: Duration,
    /// How long one that succeeds another only listens to nodes and Owners before it lends; 500 ms.
    pub gather: Duration,
    /// What no node that is known can run may wait for one that is not: so long after the Scheduler before this one was lost,
    /// or a node was, it is not said that a demand can never be met; 10 s.
    pub settle: Duration,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(4),
            grace: Duration::from_secs(1),
            renew_every: Duration::from_secs(1),
            demand_lasts: Duration::from_secs(3),
            turn: Duration::from_secs(10),
            forget_after: Duration::from_secs(60),
            orphan_after: Duration::from_secs(10),
            gather: Duration::from_millis(500),
            settle: Duration::from_secs(10),
        }
    }
}

/// What happens to the Scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A node is there, or has changed.
    NodeUp(NodeSpec),
    /// An incarnation of a node is over.
    NodeDown {
        /// The node.
        node: NodeId,
        /// Which incarnation.
        incarnation: Incarnation,
    },
    /// A job wants a host; answered with [`Effect::Answer`].
    Submit {
        /// Whom to answer.
        ask: u64,
        /// The job.
        job: JobId,
        /// For whom it runs.
        tenant: Arc<str>,
        /// Functions that the host must have.
        functions: Vec<Arc<str>>,
    },
    /// What a job could use.
    Demand(JobDemand),
    /// Slots are idle.
    Release {
        /// The job.
        job: JobId,
        /// What is in use still.
        lease: LeaseUse,
    },
    /// A job is over.
    JobDone {
        /// The job.
        job: JobId,
    },
    /// Jobs are over, as a node has seen.
    JobsOver(Vec<JobId>),
    /// A node has something of these jobs.
    Holds {
        /// The node.
        node: NodeId,
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Jobs that were accepted and are not over, as their logs say: job, tenant, functions that the host must have.
    Unfinished(Vec<UnfinishedJob>),
    /// Time has passed.
    Tick,
}

/// What the Scheduler wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the job's Owner all leases that it has and why it has no more; at every change and at every renewal.
    Leases {
        /// The job.
        job: JobId,
        /// The node of its Owner.
        owner: NodeId,
        /// All of them, by node; `None`: nothing is said of them, since there may be some of an earlier epoch that is not known yet.
        leases: Option<Vec<Lease>>,
        /// Why its demand is not met; `None`: it is.
        wait: Option<Wait>,
    },
    /// Answer a submission.
    Answer {
        /// The question.
        ask: u64,
        /// The node, or why there is none.
        answer: Result<Placement, Refusal>,
    },
    /// A job that nobody hosts is to be taken up by this node.
    Resume {
        /// The job.
        job: JobId,
        /// The node.
        on: NodeId,
    },
    /// Tell a node that a job of which it has something is over.
    EndJob {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
    },
    /// Look in the logs which jobs are not over.
    Look,
    /// The node that hosts a job's Owner is dead: the job must be picked up elsewhere.
    HomeLost {
        /// The job.
        job: JobId,
        /// The node that died.
        node: NodeId,
    },
}

/// The pure core of the Scheduler.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) epoch: Epoch,
    pub(super) options: SchedulerOptions,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) loans: BTreeMap<(JobId, NodeId), Loan>,
    /// What each tenant has used, share x milliseconds.
    pub(super) tenants_used: BTreeMap<Arc<str>, u128>,
    over: VecDeque<JobId>,
    /// Jobs of which nodes have something and nothing is heard: since when.
    strangers: BTreeMap<JobId, Duration>,
    /// Which jobs were not over when that was looked last, and when that was.
    unfinished: Option<(Duration, BTreeSet<JobId>)>,
    pub(super) next_lease: u64,
    accounted_at: Duration,
    renew_at: Duration,
    /// Until then it listens.
    lend_from: Duration,
    /// From then on nodes that are not known are held not to come.
    settled_from: Duration,
    /// Submissions that came meanwhile.
    submitted: Vec<Submission>,
    /// Something changed that may change the division.
    pub(super) stale: bool,
}

#[derive(Clone, Debug)]
struct Submission {
    ask: u64,
    job: JobId,
    tenant: Arc<str>,
    functions: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) up: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) tenant: Arc<str>,
    pub(super) home: Option<Placement>,
    sequence: u64,
    pub(super) shapes: Vec<Shape>,
    heard_at: Duration,
    pub(super) used: u128,
    /// Since when it has any slot without interruption.
    pub(super) lent_since: Option<Duration>,
    pub(super) share: u64,
    pub(super) wait: Option<Wait>,
}

impl Job {
    /// Whether the last demand still counts.
    pub(super) fn speaks(&self, now: Duration, options: &SchedulerOptions) -> bool {
        now.saturating_sub(self.heard_at) < options.demand_lasts
    }
}

/// Jobs remembered as done, so that a late word of theirs does not bring them back.
const OVER_MAX: usize = 4096;

impl State {
    /// The first Scheduler of a cluster.
    pub fn new(epoch: Epoch, options: SchedulerOptions) -> Self {
        Self {
            epoch,
            options,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            loans: BTreeMap::new(),
            tenants_used: BTreeMap::new(),
            over: VecDeque::new(),
            strangers: BTreeMap::new(),
            unfinished: None,
            next_lease: 1,
            accounted_at: Duration::ZERO,
            renew_at: Duration::ZERO,
            lend_from: Duration::ZERO,
            settled_from: Duration::ZERO,
            submitted: Vec::new(),
            stale: false,
        }
    }

    /// A Scheduler after another one: lends nothing until nodes and Owners had their time to say what there is.
    pub fn take_over(epoch: Epoch, options: SchedulerOptions, now: Duration) -> Self {
        Self { lend_from: now + options.gather, settled_from: now + options.settle, ..Self::new(epoch, options) }
    }

    /// Whether all nodes are known that there will be, and all jobs whose Owners live.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        now >= self.settled_from
    }

    /// Whether it only listens for now.
    pub fn gathers(&self, now: Duration) -> bool {
        now < self.lend_from
    }

    /// Which epoch this is.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let mut free = self.free();
        let info = |(name, node): (&NodeId, &Node)| NodeInfo {
            spec: node.spec.clone(),
            up: node.up,
            free: free.remove(name).unwrap_or_default(),
            hosts: self.hosts(name),
            leases: self.loans.keys().filter(|(_, on)| on == name).count() as u32,
        };
        self.nodes.iter().map(info).collect()
    }

    /// How many nodes are there.
    pub(super) fn nodes_up(&self) -> usize {
        self.nodes.values().filter(|node| node.up).count()
    }

    /// The node that a job was placed on does not take it: unless its Owner was heard there, it is placed anew.
    pub(super) fn was_turned_away(&mut self, job: JobId) {
        if let Some(job) = self.jobs.get_mut(&job).filter(|job| job.sequence == 0) {
            job.home = None;
        }
    }

    /// No log says how a job ended, whatever nodes remember of it: its end was lost with a server that was emptied. It may run again.
    pub(super) fn has_no_end(&mut self, job: JobId) {
        self.over.retain(|over| *over != job);
    }

    /// Whether the Owner of a job is heard.
    pub(super) fn hears_of(&self, job: JobId, now: Duration) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.speaks(now, &self.options))
    }

    /// All jobs, by id.
    pub fn jobs(&self) -> Vec<JobInfo> {
        self.jobs.keys().filter_map(|job| self.job_info(*job)).collect()
    }

    /// A job of which something is known.
    pub(super) fn job_info(&self, id: JobId) -> Option<JobInfo> {
        let info = |id: &JobId, job: &Job| {
            let mut resources = Resources::default();
            let mut slots = 0;
            for loan in self.loans_of(*id).map(|(_, loan)| loan) {
                add(&mut resources, &loan.resources(), 1);
                slots += loan.slots.values().map(|count| u64::from(*count)).sum::<u64>();
            }
            JobInfo {
                job: *id,
                tenant: Arc::clone(&job.tenant),
                home: job.home.as_ref().map(|home| home.node.clone()),
                wanted_slots: job.shapes.iter().map(|shape| u64::from(shape.count)).sum(),
                slots,
                resources,
                share_milli: (job.share / (plan::WHOLE / 1000)) as u32,
                wait: job.wait.clone(),
            }
        };
        self.jobs.get(&id).map(|job| info(&id, job))
    }

    /// How many jobs, loans, and jobs of which nothing is heard there are.
    pub(super) fn living(&self) -> [usize; 3] {
        [self.jobs.len(), self.loans.len(), self.strangers.len()]
    }

    /// When the next tick has something to do; `None` while there are no jobs.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if !self.submitted.is_empty() {
            return Some(self.lend_from);
        }
        if self.jobs.is_empty() {
            return None;
        }
        let ends = self.loans.values().filter(|loan| !loan.returning.0.is_empty() && loan.kept.0.is_empty());
        ends.map(|loan| loan.returning_until).chain([self.renew_at.max(self.lend_from)]).min()
    }

    /// Takes one event in; what is to be done is appended to `effects`, in order.
    pub fn on(&mut self, now: Duration, event: Event, effects: &mut Vec<Effect>) {
        self.account(now);
        let mut changed = BTreeSet::new();
        match event {
            Event::NodeUp(spec) => self.node_up(spec, now, &mut changed, effects),
            Event::NodeDown { node, incarnation } => self.node_down(&node, incarnation, now, &mut changed, effects),
            Event::Submit { ask, job, tenant, functions } => {
                self.submitted.push(Submission { ask, job, tenant, functions });
            }
            Event::Demand(demand) => self.demand(now, demand),
            Event::Release { job, lease } => self.in_use(job, &lease),
            Event::JobDone { job } => self.job_done(job),
            Event::JobsOver(jobs) => jobs.into_iter().for_each(|job| self.job_done(job)),
            Event::Holds { node, jobs } => self.holds(now, &node, jobs, effects),
            Event::Unfinished(jobs) => {
                self.unfinished = Some((now, jobs.iter().map(|(job, ..)| *job).collect()));
                if !self.gathers(now) {
                    self.take_up(now, jobs, effects);
                }
            }
            Event::Tick => {}
        }
        if self.gathers(now) {
            return;
        }
        for Submission { ask, job, tenant, functions } in std::mem::take(&mut self.submitted) {
            let answer = self.submit(now, job, tenant, &functions);
            effects.push(Effect::Answer { ask, answer });
        }
        let renew = now >= self.renew_at;
        if renew {
            self.renew_at = now + self.options.renew_every;
            self.forget(now);
        }
        self.run_out(now);
        if renew || std::mem::take(&mut self.stale) {
            self.stale = false;
            self.divide(now, renew, &mut changed);
            let waiting = self.explain(now, renew);
            let waiting = waiting.into_iter().filter(|job| !changed.contains(job)).collect::<Vec<_>>();
            waiting.into_iter().for_each(|job| self.tell(job, None, effects));
        }
        for job in changed {
            self.tell(job, Some(now), effects);
        }
    }

    pub(super) fn loans_of(&self, job: JobId) -> impl Iterator<Item = (&NodeId, &Loan)> {
        let first = (job, least_node());
        self.loans.range(first..).take_while(move |((of, _), _)| *of == job).map(|((_, node), loan)| (node, loan))
    }

    fn hosts(&self, node: &NodeId) -> u32 {
        self.jobs.values().filter(|job| job.home.as_ref().is_some_and(|home| home.node == *node)).count() as u32
    }

    /// What was used since the last event goes on the bills.
    fn account(&mut self, now: Duration) {
        let millis = now.saturating_sub(self.accounted_at).as_millis();
        if millis == 0 {
            return;
        }
        self.accounted_at = now;
        for job in self.jobs.values_mut() {
            let used = u128::from(job.share) * millis;
            job.used += used;
            *self.tenants_used.entry(Arc::clone(&job.tenant)).or_default() += used;
        }
    }

    fn node_up(&mut self, spec: NodeSpec, now: Duration, changed: &mut BTreeSet<JobId>, effects: &mut Vec<Effect>) {
        if let Some(known) = self.nodes.get(&spec.node) {
            let (older, same) = (spec.incarnation < known.spec.incarnation, spec.incarnation == known.spec.incarnation);
            if older || (same && !known.up) || (same && known.spec == spec) {
                return;
            }
            if !same {
                let before = known.spec.incarnation;
                self.node_down(&spec.node, before, now, changed, effects);
            }
        }
        self.stale = true;
        // Those that were taken over before the node was known.
        self.loans.retain(|(_, on), loan| *on != spec.node || loan.incarnation >= spec.incarnation);
        self.nodes.insert(spec.node.clone(), Node { spec, up: true });
    }

    fn node_down(
        &mut self,
        name: &NodeId,
        incarnation: Incarnation,
        now: Duration,
        changed: &mut BTreeSet<JobId>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if incarnation < node.spec.incarnation || !node.up {
            return;
        }
        node.spec.incarnation = incarnation;
        node.up = false;
        self.settled_from = now + self.options.settle;
        self.stale = true;
        let lost: Vec<_> = self.loans.keys().filter(|(_, on)| on == name).cloned().collect();
        for key in lost {
            changed.insert(key.0);
            self.loans.remove(&key);
        }
        for (id, job) in &mut self.jobs {
            if job.home.as_ref().is_some_and(|home| home.node == *name && home.incarnation <= incarnation) {
                job.home = None;
                job.shapes.clear();
                job.sequence = 0;
                job.wait = None;
                effects.push(Effect::HomeLost { job: *id, node: name.clone() });
            }
        }
    }

    fn demand(&mut self, now: Duration, demand: JobDemand) {
        let JobDemand { job, tenant, owner, incarnation, sequence, shapes, leases, held } = demand;
        let home = Placement { node: owner, incarnation };
        if self.is_newest(job, &home, sequence) {
            self.wants(now, job, tenant, home, sequence, shapes);
            for held in held {
                self.take_in(now, job, held);
            }
            for lease in leases {
                self.in_use(job, &lease);
            }
        }
    }

    /// Whether a demand is of a job that goes on, of an incarnation of its host that does, and no older than what is known.
    fn is_newest(&self, id: JobId, home: &Placement, sequence: u64) -> bool {
        let over = |node: &Node| {
            home.incarnation < node.spec.incarnation || (home.incarnation == node.spec.incarnation && !node.up)
        };
        if self.over.contains(&id) || self.nodes.get(&home.node).is_some_and(over) {
            return false;
        }
        let known = self.jobs.get(&id).filter(|job| job.home.as_ref() == Some(home));
        known.is_none_or(|job| sequence > job.sequence)
    }

    /// Takes over what a job wants.
    fn wants(
        &mut self,
        now: Duration,
        id: JobId,
        tenant: Arc<str>,
        home: Placement,
        sequence: u64,
        mut shapes: Vec<Shape>,
    ) {
        shapes.truncate(SHAPES_MAX);
        shapes.retain(|shape| shape.count > 0);
        let idle = self.jobs.get(&id).is_none_or(|job| job.shapes.is_empty());
        if idle && !shapes.is_empty() {
            self.join(now, id, &tenant);
        }
        let job = self.job(now, id, tenant);
        let same = job.shapes == shapes && job.home.as_ref() == Some(&home);
        (job.home, job.sequence) = (Some(home), sequence);
        if !same {
            job.shapes = shapes;
            self.stale = true;
        }
    }

    /// A lease of an earlier epoch goes on: nobody else gets it, unless it is reported idle or would have ended. The job
    /// itself is lent from it first.
    fn take_in(&mut self, now: Duration, job: JobId, HeldLease { lease, in_use }: HeldLease) {
        let over = |node: &Node| {
            lease.incarnation < node.spec.incarnation || (lease.incarnation == node.spec.incarnation && !node.up)
        };
        if lease.epoch >= self.epoch || lease.job != job || self.nodes.get(&lease.node).is_some_and(over) {
            return;
        }
        let ends_at = now + self.options.lease + self.options.grace;
        // Said again, or there are new leases already: the first word counts.
        if let Entry::Vacant(entry) = self.loans.entry((job, lease.node)) {
            entry.insert(Loan::taken_over(
                LeaseId(self.next_lease),
                lease.incarnation,
                &lease.resources,
                &in_use,
                ends_at,
            ));
            self.next_lease += 1;
            self.stale = true;
        }
    }

    /// The Owner says what it uses of a lease: what it was to give back and does not use is free.
    fn in_use(&mut self, job: JobId, report: &LeaseUse) {
        if report.epoch != self.epoch {
            return;
        }
        let mut of_job = self.loans.range_mut((job, least_node())..).take_while(|((of, _), _)| *of == job);
        if let Some((_, loan)) = of_job.find(|(_, loan)| loan.id == report.lease) {
            self.stale |= loan.report(report.version, &report.in_use);
        }
    }

    /// Finds out why jobs wait; those for which that has changed and, at a renewal, all that wait.
    fn explain(&mut self, now: Duration, renew: bool) -> Vec<JobId> {
        let mut told = Vec::new();
        let speaking = self.jobs.iter().filter(|(_, job)| job.speaks(now, &self.options));
        let speaking: Vec<_> = speaking.map(|(id, _)| *id).collect();
        for id in speaking {
            let wait = why::wait(self, id, now);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.wait != wait || (renew && wait.is_some()) {
                told.push(id);
            }
            job.wait = wait;
        }
        told
    }

    /// Tells a job's Owner why it waits and, where a time is given, its leases as they are then.
    fn tell(&self, id: JobId, leases_at: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(home) = &job.home else { return };
        let lease = |now: Duration, node: &NodeId, loan: &Loan| Lease {
            id: loan.id,
            epoch: self.epoch,
            version: loan.version,
            job: id,
            node: node.clone(),
            incarnation: loan.incarnation,
            resources: loan.resources(),
            lasts_ms: loan.ends_at.saturating_sub(now).saturating_sub(self.options.grace).as_millis() as u64,
        };
        let leases = |now: Duration| self.loans_of(id).map(|(node, loan)| lease(now, node, loan)).collect();
        let (owner, leases, wait) = (home.node.clone(), leases_at.map(leases), job.wait.clone());
        effects.push(Effect::Leases { job: id, owner, leases, wait });
    }
}

/// The first of all node names, for ranges: `-` is the smallest character of a token.
fn least_node() -> NodeId {
    NodeId::new("-")
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
