//! What nodes are told, what the Scheduler is told and lends, and which nodes there are.

use std::time::Duration;

use tracing::{debug, warn};

use super::leasing::Asker;
use super::{OwnerCore, Surroundings};
use crate::ids::{Attempt, Epoch, NodeId, SetId, TaskId};
use crate::owner::effect::OwnerEffect;
use crate::protocol::node_manager::{NodeMsg, SET_MEMBERS_PER_MESSAGE};
use crate::protocol::scheduler::{Lease, NodeInfo, SchedulerMsg, Wait};
use crate::task::Resources;

/// How long the Scheduler may take to say what nodes can run; it is asked again after that.
const NODES_DEADLINE: Duration = Duration::from_secs(5);

impl OwnerCore {
    /// Sees to it that a node watches the job: from then on it says what it counts for it.
    pub(super) fn watched_by(&mut self, node: &NodeId) {
        if self.watching.contains(node) {
            return;
        }
        self.watching.insert(node.clone());
        self.end_earlier_runs_at(node);
        let (job, owner, sample_ms) = (self.place.job, self.place.node.clone(), self.place.events.unwrap_or(0));
        let tenant = self.place.tenant.clone();
        let message = NodeMsg::Watch { job, owner, sample_ms, tenant };
        self.effects.push(OwnerEffect::Send { node: node.clone(), message });
    }

    pub(super) fn tell(&mut self, node: &NodeId, message: NodeMsg) {
        self.watched_by(node);
        self.effects.push(OwnerEffect::Send { node: node.clone(), message });
    }

    /// Asks a node what these attempts do.
    pub(super) fn ask_doing(
        &mut self,
        question: u64,
        node: &NodeId,
        attempts: Vec<(TaskId, Attempt)>,
        deadline: Duration,
    ) {
        self.watched_by(node);
        self.effects.push(OwnerEffect::AskDoing { question, node: node.clone(), attempts, deadline });
    }

    /// Attempts that could not be sent are handed out again, a while later: who was full may not be any more.
    pub(super) fn hand_out_what_was_unsent(&mut self) {
        for (node, task, attempt) in std::mem::take(&mut self.unsent) {
            self.state.recalled((&node, self.state.incarnation_of(&node)), task, attempt);
        }
    }

    /// Tells a node which copies of its members a set means.
    pub(super) fn send_set(&mut self, node: &NodeId, set: SetId) {
        let (version, members) = self.state.set_members(set);
        let (job, run) = (self.place.job, self.state.run());
        let total = members.len() as u32;
        // A set without members is told, too: one message without any.
        let chunks = members.chunks(SET_MEMBERS_PER_MESSAGE).chain(members.is_empty().then_some(&[][..]));
        for (index, chunk) in chunks.enumerate() {
            let members = chunk.iter().cloned().collect();
            let start = (index * SET_MEMBERS_PER_MESSAGE) as u32;
            self.tell(node, NodeMsg::DefineSet { job, run, set, version, start, total, members });
        }
    }

    /// Asks a node what it holds of the job.
    pub(super) fn take_inventory(&mut self, node: &NodeId) {
        let (job, owner, run) = (self.place.job, self.place.node.clone(), self.state.run());
        self.tell(node, NodeMsg::TakeInventory { job, owner, run });
    }

    fn send_frees(&mut self, node: &NodeId) {
        let job = self.place.job;
        for chunk in self.frees.remove(node).unwrap_or_default().chunks(SET_MEMBERS_PER_MESSAGE) {
            self.tell(node, NodeMsg::Free { job, copies: chunk.iter().copied().collect() });
        }
    }

    /// Says to each node what it is to free, and what it is to give back.
    pub(super) fn send_collected(&mut self) {
        let job = self.place.job;
        while let Some(node) = self.frees.keys().next().cloned() {
            self.send_frees(&node);
        }
        for (node, tasks) in std::mem::take(&mut self.recalls) {
            for chunk in tasks.chunks(SET_MEMBERS_PER_MESSAGE) {
                self.tell(&node, NodeMsg::Recall { job, tasks: chunk.to_vec() });
            }
        }
    }

    pub(super) fn say_demand(&mut self, around: &dyn Surroundings) {
        let asker = Asker {
            job: self.place.job,
            tenant: self.place.tenant.clone(),
            node: self.place.node.clone(),
            incarnation: self.place.incarnation,
        };
        let in_use = |node: &NodeId, leased: &Resources| self.state.in_use(node, leased);
        let demand = self.leasing.demand(asker, around.epoch(), in_use);
        self.effects.push(OwnerEffect::SendScheduler(SchedulerMsg::Demand(demand)));
    }

    /// Whether a message of a Scheduler of this epoch counts.
    pub(super) fn is_of_now(&mut self, epoch: Epoch, around: &dyn Surroundings) -> bool {
        let now = self.leasing.is_of_now(epoch, around.epoch());
        if !now {
            self.effects.push(OwnerEffect::CountStale);
            debug!(job_id = %self.place.job, epoch = epoch.0, "word of a scheduler that is over");
        }
        now
    }

    /// The Scheduler says why it does not give what is asked for, if it does not.
    pub(super) fn waits_for(&mut self, wait: Option<Wait>) {
        if let Some(error) = self.state.refused(wait.as_ref()) {
            self.ending.fail(error);
        }
        self.questions.scheduler_waits_for = wait.map(|wait| wait.reason);
    }

    pub(super) fn leased(&mut self, epoch: Epoch, leases: Vec<Lease>, around: &dyn Surroundings) {
        self.leasing.leased(around.now(), epoch, leases);
        self.state.leases(&self.leasing.lent());
        if !self.asking && self.state.unheard().next().is_some() {
            self.asking = true;
            self.effects.push(OwnerEffect::AskNodes { deadline: NODES_DEADLINE });
        }
    }

    /// Leases run out when the Scheduler is there and does not renew them. While none speaks, they go on.
    pub(super) fn run_out(&mut self, around: &dyn Surroundings) {
        if self.leasing.run_out(around.now(), around.scheduler_speaks()) {
            warn!(job_id = %self.place.job, "leases were not renewed in time and have ended");
            self.state.leases(&self.leasing.lent());
        }
    }

    pub(super) fn nodes_said(&mut self, nodes: Vec<NodeInfo>) {
        for NodeInfo { spec, .. } in nodes.into_iter().filter(|info| info.up) {
            self.state.offers(&spec.node, spec.incarnation, spec.functions.into_iter().collect());
            self.state.could_lend(&spec.node, spec.incarnation, spec.resources);
        }
    }
}
