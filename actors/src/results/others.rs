//! What is asked of the results of other nodes: to keep a member, which a job has made or which this node hands over before it leaves.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::adopting::Outcome;
use super::record::{ResultRecord, kept_name};
use super::{ResultsParts, holder};
use crate::ids::{JobId, NodeId};
use crate::protocol::results::{ACTOR, NotKept, ResultsMsg};
use crate::shell::Reply;

/// How often, and at what intervals, a node that leaves looks whether there is another one.
const LOOKS_FOR_OTHERS: u32 = 12;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a node may take to fetch and keep one member when another one leaves.
const HAND_OVER_MIN: Duration = Duration::from_secs(5);

impl ResultsParts {
    /// Asks a node to keep a member; one that dies, or begins another incarnation, does not answer any more.
    pub(super) async fn ask_to_keep(
        &self,
        node: &NodeId,
        question: impl FnOnce(Reply<Outcome>) -> ResultsMsg,
        within: Duration,
    ) -> Outcome {
        let address = self.post.address::<ResultsMsg>(node, ACTOR);
        tokio::select! {
            biased;
            asked = address.ask(question, within) => asked.unwrap_or_else(|error| Err(NotKept::Gone(error.to_string()))),
            () = self.is_over(node) => Err(NotKept::Gone(format!("node {node} went while it was to keep it"))),
        }
    }

    /// Returns when a node, as it is known now, has died or left; where it is this node, or is not known, never.
    pub(super) async fn is_over(&self, node: &NodeId) {
        let (directory, mut changes) = (&self.directory, self.directory.changes());
        let known = directory.members().into_iter().find(|member| member.node == *node);
        let Some(member) = known.filter(|member| member.node != *self.post.node()) else {
            return std::future::pending().await;
        };
        while !directory.is_over(node, member.incarnation) && !directory.is_gone(node) {
            // Of changes that were missed the directory knows what came of them.
            let _ = changes.recv().await;
        }
    }

    /// Hands everything that is kept here to other nodes, before this one leaves; what was not taken `within` the time stays here, on disk.
    pub(crate) async fn hand_over(&self, within: Duration) {
        let held = self.held();
        if held.is_empty() {
            return;
        }
        let handing = async {
            // A node that has just come may not have heard anybody yet.
            let mut looks = 0;
            while self.others().is_empty() && looks < LOOKS_FOR_OTHERS {
                tokio::time::sleep(LOOK_EVERY).await;
                looks += 1;
            }
            self.know_tenants(held.keys().copied()).await;
            for (job, kept) in &held {
                let Some(tenant) = self.tenants.lock().get(job).cloned() else { continue };
                for kept in kept {
                    self.hand_over_one((&tenant, *job), *kept).await;
                }
            }
        };
        if tokio::time::timeout(within, handing).await.is_err() {
            warn!(node = %self.post.node(), "not all results were handed over in time: the rest is here when the node is started again");
        }
    }

    async fn hand_over_one(&self, (tenant, job): (&Arc<str>, JobId), kept: u64) {
        let (me, name) = (self.post.node(), kept_name(job, kept));
        let Some(bytes) = self.store.meta(&name).map(|meta| meta.bytes) else { return };
        for node in self.others() {
            let question =
                |reply| ResultsMsg::Keep { tenant: tenant.clone(), job, kept, copy: name, at: me.clone(), reply };
            let within = HAND_OVER_MIN + holder::put_away_within(bytes);
            if let Err(why) = self.ask_to_keep(&node, question, within).await {
                info!(job_id = %job, kept, %node, ?why, "a result was not taken over");
                continue;
            }
            let moved = |record: Option<ResultRecord>| {
                let mut record = record?;
                record.moved(kept, me, &node).then_some(record)
            };
            match self.records.change(tenant, job, moved).await {
                Ok(_) => info!(job_id = %job, kept, %node, bytes, "a result was handed over"),
                Err(error) => warn!(job_id = %job, kept, %error, "not noted where a result is by now"),
            }
            return;
        }
        warn!(job_id = %job, kept, "no other node takes a result: it is here when the node is started again");
    }

    /// All nodes that live but this one.
    pub(crate) fn others_than(&self, node: &NodeId) -> Vec<NodeId> {
        let all = self.others().into_iter().chain([self.post.node().clone()]);
        all.filter(|other| other != node).collect()
    }

    /// The other nodes that live, as far as is known here.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        let members = self.directory.members().into_iter();
        let alive = members.filter(|member| !member.health.is_gone() && member.node != *self.post.node());
        alive.map(|member| member.node).collect()
    }
}
