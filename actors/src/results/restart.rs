//! What an earlier process of a node has kept gets the names of its results again, where files on disk know it by another one.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use exobus_store::{CopyId, Store};
use tracing::{info, warn};

use super::record::{ResultRecord, kept_name, replacing_name};
use super::records::{RecordsError, Scanned};
use super::{ResultsBase, holder};
use crate::causes;
use crate::ids::{JobId, NodeId, ObjectId};
use crate::node_manager::Unneeded;

/// A member of a result that is here, as its record says.
struct KeptHere {
    kept: u64,
    /// What it was called in its job.
    copy: CopyId,
    hash: u128,
}

/// What records say that is here, and which of them cannot be read, whose they are and why.
#[derive(Default)]
struct RecordsRead {
    members: BTreeMap<JobId, Vec<KeptHere>>,
    unread: BTreeMap<JobId, (Arc<str>, RecordsError)>,
}

impl ResultsBase {
    /// There is nothing that an earlier process has kept under the names of its job.
    pub(crate) fn nothing_to_name(&self) {
        self.free_now(self.spared.spare(BTreeMap::new()));
    }

    /// Gives what an earlier process of this node has kept the name of a result again, where files on disk know it by the name that it had in
    /// its job.
    ///
    /// # Errors
    /// The records cannot be read: until they can, nothing is known of what outlives its job.
    pub(crate) async fn name_again(&self, me: &NodeId) -> Result<(), RecordsError> {
        // Answers of the bucket have a deadline: nothing is done meanwhile that takes a while.
        let take = |read: &mut RecordsRead, scanned| {
            let (Scanned::Record((_, job, _)) | Scanned::Gone(_, job)) = &scanned;
            read.members.remove(job);
            read.unread.remove(job);
            let Scanned::Record((tenant, job, record)) = scanned else { return };
            self.tenants.lock().insert(job, tenant.clone());
            match record {
                Ok(record) => drop(read.members.insert(job, members_at(me, job, &record))),
                // Which objects it names nobody can say: all of its job stay.
                Err(error) => drop(read.unread.insert(job, (tenant, error))),
            }
        };
        let RecordsRead { members, mut unread } = self.records.fold(None, RecordsRead::default, take).await?;
        self.name_members(members).await;
        let groups = BTreeSet::from_iter(self.store.groups());
        unread.retain(|job, _| groups.contains(&job.group()));
        for (job, (_, error)) in &unread {
            warn!(job_id = %job, error = causes(error), "objects of this job stay: they may be a result");
        }
        let spared = unread.into_iter().map(|(job, (tenant, _))| (job, tenant)).collect();
        self.free_now(self.spared.spare(spared));
        Ok(())
    }

    /// Gives members their names, on a thread that may block.
    async fn name_members(&self, members: BTreeMap<JobId, Vec<KeptHere>>) {
        let store = self.store.clone();
        let name = move || members.into_iter().for_each(|(job, members)| name_members(&store, job, members));
        if let Err(error) = tokio::task::spawn_blocking(name).await {
            warn!(%error, "the thread that looked for members of results ended");
        }
    }

    /// Spares those jobs no more whose records could not be read, and are gone, or can be read by now, or of which nothing is here any more.
    pub(super) async fn look_at_unread(&self, me: &NodeId) {
        let unread = self.spared.unread();
        if unread.is_empty() {
            return;
        }
        let groups = BTreeSet::from_iter(self.store.groups());
        for (job, tenant) in unread {
            if groups.contains(&job.group()) {
                let Ok(record) = self.records.now(&tenant, job).await else { continue };
                let members = record.map(|record| members_at(me, job, &record));
                self.name_members(members.map(|members| (job, members)).into_iter().collect()).await;
            }
            self.free_now(self.spared.spare_no_more(job));
        }
    }

    /// Frees what was not to be freed before.
    fn free_now(&self, freed: Vec<Unneeded>) {
        freed.into_iter().for_each(|freed| freed.free(&self.store));
    }
}

fn members_at(me: &NodeId, job: JobId, record: &ResultRecord) -> Vec<KeptHere> {
    let here = record.kept().filter(|(_, member)| member.node == *me);
    here.map(|(kept, member)| KeptHere { kept, copy: CopyId::new(job.group(), member.copy), hash: member.hash })
        .collect()
}

/// Gives those their names that have not got them. One that is not here as the copy that its record names may be what was fetched in the place of
/// another one, or another copy of the same object: then it is known by its bytes.
fn name_members(store: &Store, job: JobId, members: Vec<KeptHere>) {
    let mut held: Option<Vec<CopyId>> = None;
    for KeptHere { kept, copy, hash } in members {
        let (name, replacing) = (kept_name(job, kept), replacing_name(job, kept));
        let has_bytes = |copy: &CopyId| holder::hash_of(store, *copy).is_ok_and(|found| found == hash);
        if store.contains(&name) {
            // What was deleted comes back with a file in which there was more: the name may be that of a member of an earlier run.
            let candidates = [copy, replacing].into_iter().filter(|copy| store.contains(copy)).collect::<Vec<_>>();
            if !candidates.is_empty() && !has_bytes(&name) {
                let found = candidates.into_iter().filter(has_bytes).find(|copy| store.move_name(copy, name).is_ok());
                info!(job_id = %job, kept, ?found, "what has the name of a member of a result is not what its record says");
            }
            continue;
        }
        if store.name_also(&copy, name).is_ok() {
            info!(job_id = %job, kept, "a member of a result is here again");
            continue;
        }
        let held =
            held.get_or_insert_with(|| store.inventory(job.group()).into_iter().map(|(meta, _)| meta.id).collect());
        let object = ObjectId::of_copy(copy).0;
        let others = held.iter().copied().filter(|held| *held != copy && ObjectId::of_copy(*held).0 == object);
        let mut found = iter::once(replacing).chain(others).filter(has_bytes);
        if let Some(copy) = found.find(|copy| store.name_also(copy, name).is_ok()) {
            info!(job_id = %job, kept, copy_id = %copy, "a member of a result is here again, as another copy");
        }
    }
}
