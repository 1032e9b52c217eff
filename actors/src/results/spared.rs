//! Jobs whose objects stay though the jobs are over, for a result may consist of them that has no names of its own for them here.
//!
//! After a start these are all jobs, until the records of results were read and what they name has its names; then those whose records
//! cannot be read here, until these are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::ids::JobId;

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spared(Arc<RwLock<Which>>);

#[derive(Debug, Default)]
enum Which {
    #[default]
    All,
    /// These, of these tenants.
    These(BTreeMap<JobId, Arc<str>>),
}

impl Spared {
    /// Whether nothing of this job may be deleted, or be asked to be.
    pub(crate) fn spares(&self, job: JobId) -> bool {
        match &*self.0.read() {
            Which::All => true,
            Which::These(jobs) => jobs.contains_key(&job),
        }
    }

    /// Whether the records were not read yet.
    pub(crate) fn spares_all(&self) -> bool {
        matches!(*self.0.read(), Which::All)
    }

    /// The records were read: none but these are spared from now on.
    pub(super) fn spare(&self, jobs: BTreeMap<JobId, Arc<str>>) {
        *self.0.write() = Which::These(jobs);
    }

    /// This one is spared no more.
    pub(super) fn let_go(&self, job: JobId) {
        if let Which::These(jobs) = &mut *self.0.write() {
            jobs.remove(&job);
        }
    }

    /// Those whose records could not be read, and whose they are.
    pub(super) fn unread(&self) -> Vec<(JobId, Arc<str>)> {
        match &*self.0.read() {
            Which::All => Vec::new(),
            Which::These(jobs) => jobs.iter().map(|(job, tenant)| (*job, tenant.clone())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_spared_until_it_is_known_which() {
        let (spared, job, other) = (Spared::default(), JobId::from_u128(7), JobId::from_u128(8));
        assert!(spared.spares_all() && spared.spares(job) && spared.unread().is_empty());
        spared.let_go(job);
        assert!(spared.spares(job), "nothing is known yet");
        spared.spare(BTreeMap::from([(job, "t".into())]));
        assert!(!spared.spares_all() && spared.spares(job) && !spared.spares(other));
        assert_eq!(spared.unread(), [(job, "t".into())]);
        spared.let_go(job);
        assert!(!spared.spares(job) && spared.unread().is_empty());
    }
}
