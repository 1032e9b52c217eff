//! What keeps results on a node: an actor that keeps and drops, the door, and the sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Bus, BusError, Subjects};
use exobus_store::{CopyId, Parts, Store};
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::adopting::{Adopting, Adoption, Outcome, Turn};
use super::holder::Provenance;
use super::record::{ResultRecord, kept_name, number_of, replacing_name};
use super::records::{Listed, ResultRecords};
use super::sweep::{SweepStep, Unnamed, sweep};
use super::{door, holder};
use crate::ids::{JobId, NodeId};
use crate::membership::Directory;
use crate::node_manager::Spared;
use crate::protocol::results::{ACTOR, NotKept, ResultsMsg};
use crate::shell::calls::Calls;
use crate::shell::{Actor, Post, Scope, spawn};
use crate::transfer::{PeerName, TransferClient, TransferError};

/// How often it is looked what is to go, ...
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// ... or four times in the time of a result, where that is short, but no more often than this.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(250);

/// What a node has for results, whatever incarnation it is in. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ResultsBase {
    pub(crate) store: Store,
    pub(crate) records: ResultRecords,
    /// Where requests come from: the cluster's, or one of the process alone.
    pub(crate) bus: Bus,
    pub(crate) subjects: Subjects,
    /// How long a result is there after its job.
    pub(crate) kept_for: Duration,
    /// Whose results are kept here, as far as is known.
    pub(crate) tenants: Arc<Mutex<BTreeMap<JobId, Arc<str>>>>,
    /// What is being hashed and put on disk, which no record can name yet.
    pub(crate) adopting: Adopting,
    /// Whose objects may not be deleted as those of a job that is over.
    pub(crate) spared: Spared,
}

impl std::fmt::Debug for ResultsBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResultsBase({:?})", self.records)
    }
}

/// What the results of an incarnation of a node are made of. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ResultsParts {
    pub(crate) base: ResultsBase,
    pub(crate) post: Post,
    pub(crate) directory: Directory,
    pub(crate) transfer: TransferClient,
    /// Where this node's data port listens; empty where it has none.
    pub(crate) data_address: String,
    /// What nodes show each other there, from which tickets are made; empty where it has none.
    pub(crate) data_token: Arc<str>,
    /// What was asked for at the door.
    pub(crate) calls: Calls,
}

impl std::ops::Deref for ResultsParts {
    type Target = ResultsBase;

    fn deref(&self) -> &ResultsBase {
        &self.base
    }
}

/// The actor.
pub(crate) struct Results(ResultsParts);

impl Results {
    /// Keeps results on this node, on the current arbiter, as long as that lives; when it returns, requests are answered.
    ///
    /// # Errors
    /// The bus does not do what is asked.
    pub(crate) async fn start(parts: &ResultsParts) -> Result<(), BusError> {
        spawn(&parts.post, ACTOR, Self(parts.clone()));
        door::open(parts).await?;
        actix_rt::spawn(sweep_for_ever(parts.clone()));
        Ok(())
    }
}

impl Actor for Results {
    type Message = ResultsMsg;
    type Event = ResultsMsg;

    fn handle(&mut self, message: ResultsMsg, scope: &mut Scope<'_, Self>) {
        match message {
            ResultsMsg::Keep { tenant, job, kept, copy, at, reply } => {
                let parts = self.0.clone();
                scope.later(async move {
                    let outcome = parts.keep((tenant, job), kept, copy, &at).await;
                    if let Err(why) = &outcome {
                        info!(job_id = %job, kept, ?why, "a member of a result is not kept here");
                    }
                    parts.post.answer(reply, outcome);
                    None
                });
            }
            ResultsMsg::Drop { job } => self.0.drop_all(job),
        }
    }
}

impl ResultsParts {
    /// Keeps a copy that is here, or is fetched first: one at a time under one number of a result.
    async fn keep(&self, (tenant, job): (Arc<str>, JobId), kept: u64, copy: CopyId, at: &NodeId) -> Outcome {
        self.tenants.lock().insert(job, tenant);
        loop {
            match self.adopting.begin(job, kept, (copy, at.clone())) {
                Turn::Ours(adoption) => return self.adopt(adoption, copy, at, (job, kept)).await,
                Turn::UnderWay(waiting) => {
                    if let Some(outcome) = waiting.over().await {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn adopt(&self, adoption: Adoption, copy: CopyId, at: &NodeId, (job, kept): (JobId, u64)) -> Outcome {
        let provenance = match at == self.post.node() {
            true => Ok(Provenance::Here(copy)),
            false => self.fetch(copy, at, (job, kept)).await,
        };
        let provenance = match provenance {
            Ok(provenance) => provenance,
            Err(why) => return adoption.end(Err(why)),
        };
        let (store, name) = (self.store.clone(), kept_name(job, kept));
        let adopt = move || adoption.end(holder::adopt(&store, provenance, name));
        let outcome = tokio::task::spawn_blocking(adopt).await;
        outcome.unwrap_or_else(|error| Err(NotKept::Gone(format!("the thread that kept it ended: {error}"))))
    }

    /// Has a copy of another node here. It comes under its name as the member of a result: files on disk know it by the first name that it has here,
    /// and after a restart it is looked for by that one. Where something else has that name, as what an earlier run of the job has left, it comes
    /// under one of its own, by which it is looked for then, too, and takes the place of the other when it is on disk.
    async fn fetch(&self, copy: CopyId, from: &NodeId, (job, kept): (JobId, u64)) -> Result<Provenance, NotKept> {
        let (name, replacing) = (kept_name(job, kept), replacing_name(job, kept));
        let gone = |error: TransferError| match error.is_lack_of_room() {
            true => NotKept::NoRoom(error.to_string()),
            false => NotKept::Gone(error.to_string()),
        };
        let address = self.directory.data_address(from);
        let address = address.ok_or_else(|| NotKept::Gone(format!("node {from}, which has it, is not known here")))?;
        let peer = PeerName { node: from.to_string(), address };
        let item = (copy, Parts::All);
        if let Some(here) = self.store.meta(&name) {
            let directory = self.transfer.directory(peer.clone(), vec![item]).await.map_err(gone)?;
            let there = directory.into_iter().next().flatten();
            let there = there.ok_or_else(|| NotKept::Gone(format!("node {from} does not have it")))?;
            if holder::are_same(&here.parts, &there) {
                return Ok(Provenance::Before);
            }
            // Of an adoption that broke off.
            self.store.delete(&[replacing]);
            self.transfer.copy_here_as(&self.store, peer, item, replacing).await.map_err(gone)?;
            return Ok(Provenance::Replacing(replacing));
        }
        self.transfer.copy_here_as(&self.store, peer, item, name).await.map_err(gone)?;
        Ok(Provenance::Fetched)
    }

    fn drop_all(&self, job: JobId) {
        self.tenants.lock().remove(&job);
        self.store.delete_group(job.result_group());
    }

    /// What of which results is here.
    pub(super) fn held(&self) -> BTreeMap<JobId, Vec<u64>> {
        let groups = self.store.groups().into_iter().filter_map(|group| Some((group, JobId::of_result_group(group)?)));
        let numbers = |group| {
            let held = self.store.inventory(group);
            let numbers = held.iter().filter_map(|(meta, _)| number_of(meta.id)).collect::<BTreeSet<_>>();
            numbers.into_iter().collect()
        };
        groups.map(|(group, job)| (job, numbers(group))).collect()
    }

    /// Whose these results are: what is not known, as after a start, the records say. False: they cannot be read.
    pub(super) async fn know_tenants(&self, jobs: impl Iterator<Item = JobId>) -> bool {
        let unknown: Vec<JobId> = {
            let tenants = self.tenants.lock();
            jobs.filter(|job| !tenants.contains_key(job)).collect()
        };
        if unknown.is_empty() {
            return true;
        }
        let found = |(tenant, job, _): Listed| unknown.contains(&job).then_some((job, tenant));
        match self.records.each(None, found).await {
            Ok(found) => {
                self.tenants.lock().extend(found);
                true
            }
            Err(error) => {
                warn!(%error, "whose results are kept here cannot be read: nothing of them is freed");
                false
            }
        }
    }

    /// Frees what is to go; `unnamed` is what was found so far.
    async fn sweep(&self, unnamed: &mut BTreeMap<JobId, Unnamed>) {
        self.look_at_unread(self.post.node()).await;
        let lately = self.adopting.lately();
        let held = self.held();
        unnamed.retain(|job, _| held.contains_key(job));
        let known = self.know_tenants(held.keys().copied()).await;
        for (job, kept) in held {
            let tenant = self.tenants.lock().get(&job).cloned();
            let record = match &tenant {
                Some(tenant) => self.records.now(tenant, job).await,
                None if known => Ok(None),
                // It may have a record that could not be read.
                None => continue,
            };
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    debug!(job_id = %job, %error, "the record of a result cannot be read");
                    continue;
                }
            };
            let clock = self.post.clock();
            let now = (clock.now(), clock.unix_ms());
            match sweep(record.as_deref(), self.post.node(), &kept, unnamed.entry(job).or_default(), now) {
                SweepStep::Expire => {
                    // A run of the job may have begun it anew since it was read, or be about to.
                    if self.expire(tenant.as_deref().unwrap_or_default(), job, now.1).await {
                        let members = self.free(job, &kept, &lately);
                        info!(job_id = %job, members, "the time of a result is over");
                        if members == kept.len() {
                            self.tenants.lock().remove(&job);
                        }
                    }
                }
                SweepStep::Free(unnamed) => match self.free(job, &unnamed, &lately) {
                    0 => {}
                    members => info!(job_id = %job, members, "no record names these members of a result"),
                },
            }
        }
    }

    /// Notes that the time of a result is over. False: it is not, by now, or that is not noted.
    async fn expire(&self, tenant: &str, job: JobId, now_unix_ms: u64) -> bool {
        let over = |record: Option<ResultRecord>| {
            let mut record = record.filter(|record| !record.expired && record.is_over(now_unix_ms))?;
            record.expire();
            Some(record)
        };
        match self.records.change(tenant, job, over).await {
            Ok(record) => record.is_some_and(|record| record.expired),
            Err(error) => {
                debug!(job_id = %job, %error, "not noted that the time of a result is over");
                false
            }
        }
    }

    /// Frees what is kept under these numbers; not what was adopted so `lately`, or is being, and may be in no record yet.
    fn free(&self, job: JobId, kept: &[u64], lately: &BTreeSet<(JobId, u64)>) -> usize {
        let kept: Vec<u64> = kept.iter().copied().filter(|kept| !lately.contains(&(job, *kept))).collect();
        self.adopting.free_settled(job, &kept, |kept| {
            let names = kept.iter().flat_map(|kept| [kept_name(job, *kept), replacing_name(job, *kept)]);
            self.store.delete(&names.collect::<Vec<_>>());
        })
    }
}

async fn sweep_for_ever(parts: ResultsParts) {
    let every = (parts.kept_for / 4).clamp(SWEEP_EVERY_MIN, SWEEP_EVERY);
    let mut unnamed = BTreeMap::new();
    loop {
        tokio::time::sleep(every).await;
        parts.sweep(&mut unnamed).await;
    }
}

#[cfg(test)]
mod tests;
