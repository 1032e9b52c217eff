//! Jobs of which nothing is freed though they are over, or their Owners say so, for a result may consist of objects of theirs that have no names of
//! its own here.
//!
//! After a start these are all jobs, until the records of results were read and what they name has its names; then those whose records
//! cannot be read here and of which something is here, until these records are gone. What an Owner frees meanwhile is kept back, and freed when the
//! job is spared no more; that a job is over the Scheduler says again.

use std::collections::BTreeMap;
use std::sync::Arc;

use exobus_store::{Parts, Store};
use parking_lot::RwLock;

use crate::ids::{CopyId, JobId};

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spared(Arc<RwLock<Sparing>>);

#[derive(Debug, Default)]
struct Sparing {
    which: Which,
    kept_back: BTreeMap<JobId, Vec<Unneeded>>,
}

#[derive(Debug, Default)]
enum Which {
    #[default]
    All,
    /// These, of these tenants.
    These(BTreeMap<JobId, Arc<str>>),
}

/// What the Owner of a job needs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unneeded {
    /// Copies.
    Copies(Vec<CopyId>),
    /// Parts of copies.
    Parts(Vec<CopyId>, Parts),
}

impl Unneeded {
    /// Of which job; `None`: it is nothing.
    fn job(&self) -> Option<JobId> {
        let (Self::Copies(copies) | Self::Parts(copies, _)) = self;
        copies.first().map(|copy| JobId::from_u128(copy.group))
    }

    /// Frees it.
    pub(crate) fn free(self, store: &Store) {
        match self {
            Self::Copies(copies) => store.delete(&copies),
            Self::Parts(copies, parts) => store.release_parts(&copies, parts),
        }
    }
}

impl Sparing {
    fn spares(&self, job: JobId) -> bool {
        match &self.which {
            Which::All => true,
            Which::These(jobs) => jobs.contains_key(&job),
        }
    }

    /// What is kept back of jobs that are spared no more.
    fn free(&mut self) -> Vec<Unneeded> {
        let kept_back = std::mem::take(&mut self.kept_back);
        let (spared, free): (BTreeMap<_, _>, BTreeMap<_, _>) =
            kept_back.into_iter().partition(|(job, _)| self.spares(*job));
        self.kept_back = spared;
        free.into_values().flatten().collect()
    }
}

impl Spared {
    /// Whether nothing of this job may be deleted, or be asked to be.
    pub(crate) fn spares(&self, job: JobId) -> bool {
        self.0.read().spares(job)
    }

    /// Takes what an Owner frees, to be freed later; given back: to be freed now.
    pub(crate) fn keep_back(&self, freed: Unneeded) -> Option<Unneeded> {
        let job = freed.job()?;
        if !self.spares(job) {
            return Some(freed);
        }
        let mut state = self.0.write();
        // It may be spared no more since.
        if !state.spares(job) {
            return Some(freed);
        }
        state.kept_back.entry(job).or_default().push(freed);
        None
    }

    /// The records were read: none but these are spared from now on. What is to be freed now.
    pub(crate) fn spare(&self, jobs: BTreeMap<JobId, Arc<str>>) -> Vec<Unneeded> {
        let mut state = self.0.write();
        state.which = Which::These(jobs);
        state.free()
    }

    /// This one is spared no more. What is to be freed now.
    pub(crate) fn spare_no_more(&self, job: JobId) -> Vec<Unneeded> {
        let mut state = self.0.write();
        if let Which::These(jobs) = &mut state.which {
            jobs.remove(&job);
        }
        state.free()
    }

    /// Those whose records could not be read, and whose they are.
    pub(crate) fn unread(&self) -> Vec<(JobId, Arc<str>)> {
        match &self.0.read().which {
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
        assert!(spared.spares(job) && spared.spares(other) && spared.unread().is_empty());
        spared.spare_no_more(job);
        assert!(spared.spares(job), "nothing is known yet");
        spared.spare(BTreeMap::from([(job, "t".into())]));
        assert!(spared.spares(job) && !spared.spares(other));
        assert_eq!(spared.unread(), [(job, "t".into())]);
        spared.spare_no_more(job);
        assert!(!spared.spares(job) && spared.unread().is_empty());
    }

    #[test]
    fn what_is_freed_of_a_job_that_is_spared_is_kept_back_until_it_is_not() {
        let (spared, job, other) = (Spared::default(), JobId::from_u128(7), JobId::from_u128(8));
        let copy = |job: JobId, number| CopyId::new(job.group(), number);
        let copies = |job, number| Unneeded::Copies(vec![copy(job, number)]);
        let parts = Unneeded::Parts(vec![copy(job, 2)], Parts::one(3));
        assert_eq!(spared.keep_back(copies(job, 1)), None);
        assert_eq!(spared.keep_back(parts.clone()), None);
        assert_eq!(spared.keep_back(copies(other, 1)), None);
        assert_eq!(spared.spare(BTreeMap::from([(job, "t".into())])), [copies(other, 1)]);
        assert_eq!(spared.keep_back(copies(other, 2)), Some(copies(other, 2)));
        assert_eq!(spared.spare_no_more(job), [copies(job, 1), parts.clone()]);
        assert_eq!(spared.keep_back(parts.clone()), Some(parts));
        assert_eq!(spared.spare_no_more(job), []);
    }
}
