//! Tenants: for whom jobs run, and what these may do. A job has its tenant's rights on each node, never the node's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::ids::JobId;
use crate::jobs::quotas::{Quotas, TenantQuotas};
use crate::registry::Roots;

/// The tenant that there is where none is named.
pub const DEFAULT_TENANT: &str = "default";

/// What a tenant may do.
#[derive(Clone, Debug, Default)]
pub struct Tenant {
    /// Where its jobs may read and write files.
    pub roots: Roots,
    /// What they may use.
    pub quotas: Quotas,
}

/// The tenants of a cluster, as this node knows them, and the jobs of which it knows for whom they run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tenants(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// Whether jobs of every other name have the rights of the only tenant there is: a process asks nobody whose jobs it runs.
    any: bool,
    named: BTreeMap<Arc<str>, Tenant>,
    jobs: RwLock<Jobs>,
}

/// For whom jobs run that nodes have something of.
#[derive(Debug, Default)]
struct Jobs {
    /// Whether a job is over, as far as was said last, too.
    known: BTreeMap<JobId, (Arc<str>, bool)>,
    /// Those of which it was said that they are over, in that order.
    over: VecDeque<JobId>,
}

/// Jobs that are over and are remembered: an Owner of an earlier run may say so of a job of which a later one hands out tasks.
const OVER_MAX: usize = 4096;

impl Default for Tenants {
    /// One, whose jobs may use all files.
    fn default() -> Self {
        Self::one(Roots::default())
    }
}

impl Tenants {
    /// All jobs are kept to these folders, whatever their tenant is called. Who hands jobs in from outside calls it "default".
    pub fn one(roots: Roots) -> Self {
        Self::new(true, [(Arc::from(DEFAULT_TENANT), Tenant { roots, ..Tenant::default() })])
    }

    /// These and no others.
    pub fn of(named: impl IntoIterator<Item = (Arc<str>, Tenant)>) -> Self {
        Self::new(false, named)
    }

    fn new(any: bool, named: impl IntoIterator<Item = (Arc<str>, Tenant)>) -> Self {
        Self(Arc::new(Known { any, named: named.into_iter().collect(), jobs: RwLock::default() }))
    }

    /// Whether jobs of this tenant may run here.
    pub(crate) fn admits(&self, name: &str) -> bool {
        self.0.any || self.get(name).is_some()
    }

    /// What a tenant may do; `None`: there is none of that name.
    pub fn get(&self, name: &str) -> Option<&Tenant> {
        self.0.named.get(name)
    }

    /// What the jobs of this tenant may use.
    pub(crate) fn quotas_of(&self, name: &str) -> Quotas {
        self.get(name).map(|tenant| tenant.quotas).unwrap_or_default()
    }

    /// What the jobs of each may use.
    pub(crate) fn quotas(&self) -> TenantQuotas {
        TenantQuotas::of(self.0.named.iter().map(|(name, tenant)| (name.clone(), tenant.quotas)))
    }

    /// A job is this tenant's: to be said before anything of it runs here.
    pub(crate) fn job_begins(&self, job: JobId, tenant: &Arc<str>) {
        self.0.jobs.write().known.insert(job, (tenant.clone(), false));
    }

    /// A job is over, as somebody says.
    pub(crate) fn job_ends(&self, job: JobId) {
        let Jobs { known, over } = &mut *self.0.jobs.write();
        match known.get_mut(&job) {
            Some((_, is_over)) if !*is_over => *is_over = true,
            _ => return,
        }
        over.push_back(job);
        if over.len() > OVER_MAX
            && let Some(oldest) = over.pop_front()
            && known.get(&oldest).is_some_and(|(_, is_over)| *is_over)
        {
            known.remove(&oldest);
        }
    }

    /// Where a job may read and write files.
    ///
    /// # Errors
    /// In words: it is not known for whom it runs, or that tenant is not known here.
    pub(crate) fn roots_of(&self, job: JobId) -> Result<&Roots, String> {
        let named = &self.0.named;
        if let Some((_, only)) = named.first_key_value().filter(|_| self.0.any) {
            return Ok(&only.roots);
        }
        let jobs = self.0.jobs.read();
        match jobs.known.get(&job) {
            Some((name, _)) => match named.get(name) {
                Some(tenant) => Ok(&tenant.roots),
                None => Err(format!("this node's configuration has no tenant {name}")),
            },
            None => Err(format!("for whom job {job} runs is not known on this node")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_roots_of_its_tenant_and_none_before_that_is_known() {
        let folders = tempfile::tempdir().unwrap();
        let tenant = |name: &str| {
            let folder = folders.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            (Arc::from(name), Tenant { roots: Roots::open(&[folder]).unwrap(), ..Tenant::default() })
        };
        let tenants = Tenants::of([tenant("a"), tenant("b")]);
        let (one, other, third) = (JobId::from_u128(1), JobId::from_u128(2), JobId::from_u128(3));
        tenants.job_begins(one, &"a".into());
        tenants.job_begins(third, &"c".into());
        let file = folders.path().join("a/file");
        assert!(tenants.roots_of(one).unwrap().check(&file).is_ok());
        tenants.job_begins(other, &"b".into());
        assert!(tenants.roots_of(other).unwrap().check(&file).is_err());
        assert_eq!(tenants.roots_of(third).unwrap_err(), "this node's configuration has no tenant c");
        assert!(tenants.roots_of(JobId::from_u128(4)).unwrap_err().contains("is not known on this node"));
        // An Owner of an earlier run may say that; the later one goes on.
        tenants.job_ends(one);
        assert!(tenants.roots_of(one).unwrap().check(&file).is_ok());
    }

    #[test]
    fn jobs_that_are_over_are_forgotten_and_others_are_not() {
        let tenants = Tenants::default();
        let name = Arc::from("a");
        for job in 0..2 * OVER_MAX as u128 {
            tenants.job_begins(JobId::from_u128(job), &name);
            if job > 0 {
                tenants.job_ends(JobId::from_u128(job));
            }
        }
        let jobs = tenants.0.jobs.read();
        assert_eq!((jobs.known.len(), jobs.over.len()), (OVER_MAX + 1, OVER_MAX));
        assert!(jobs.known.contains_key(&JobId::from_u128(0)));
    }

    #[test]
    fn a_node_that_does_not_know_the_tenant_of_a_job_gives_it_the_rights_of_no_other() {
        assert!(Tenants::default().roots_of(JobId::from_u128(7)).unwrap().is_empty(), "a process that asks nobody");
        let tenants = Tenants::of([(Arc::from(DEFAULT_TENANT), Tenant::default())]);
        assert!(tenants.admits("default") && !tenants.admits("lab-a"));
        tenants.job_begins(JobId::from_u128(7), &"lab-a".into());
        assert_eq!(tenants.roots_of(JobId::from_u128(7)).unwrap_err(), "this node's configuration has no tenant lab-a");
    }
}
