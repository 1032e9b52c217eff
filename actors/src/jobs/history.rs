//! Which jobs are over, for as long as that is remembered: an index of less than 100 bytes a job; the records are in the history stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::JobId;
use crate::protocol::job::{JobRecord, JobState};

/// Jobs that are over, of a tenant, that are remembered: the latest.
pub const ENDED_MAX: usize = 10_000;
/// For so long.
pub const ENDED_KEPT_MS: u64 = 30 * 24 * 3600 * 1000;
/// Where there is no stream, so many records stay in memory.
pub(super) const KEPT_IN_MEMORY: usize = 1000;

/// A job that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) job: JobId,
    pub(crate) tenant: Arc<str>,
    pub(crate) state: JobState,
    pub(crate) at_unix_ms: u64,
}

impl Ended {
    pub(crate) fn of(record: &JobRecord) -> Self {
        let at_unix_ms = record.ended_unix_ms.unwrap_or(record.accepted_unix_ms);
        Self { job: record.job, tenant: record.tenant.clone(), state: record.state, at_unix_ms }
    }
}

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    jobs: BTreeMap<JobId, Ended>,
    /// Of each tenant, by when they ended.
    by_end: BTreeMap<Arc<str>, BTreeSet<(u64, JobId)>>,
}

impl History {
    pub(crate) fn get(&self, job: JobId) -> Option<&Ended> {
        self.jobs.get(&job)
    }

    /// Another one is over; returns what is remembered no more.
    pub(crate) fn add(&mut self, ended: Ended, unix_ms: u64) -> Vec<(Arc<str>, JobId)> {
        if ended.at_unix_ms + ENDED_KEPT_MS <= unix_ms {
            return vec![(ended.tenant, ended.job)];
        }
        let of_tenant = self.by_end.entry(ended.tenant.clone()).or_default();
        of_tenant.insert((ended.at_unix_ms, ended.job));
        let oldest = if of_tenant.len() > ENDED_MAX { of_tenant.pop_first() } else { None };
        let forgotten = oldest.map(|(_, job)| (ended.tenant.clone(), job));
        self.jobs.insert(ended.job, ended);
        if let Some((_, job)) = &forgotten {
            self.jobs.remove(job);
        }
        forgotten.into_iter().collect()
    }

    /// Forgets what was over long ago; returns it.
    pub(crate) fn forget_old(&mut self, unix_ms: u64) -> Vec<(Arc<str>, JobId)> {
        let mut forgotten = Vec::new();
        for (tenant, ended) in &mut self.by_end {
            while let Some((at, job)) = ended.first().copied().filter(|(at, _)| at + ENDED_KEPT_MS <= unix_ms) {
                ended.remove(&(at, job));
                self.jobs.remove(&job);
                forgotten.push((tenant.clone(), job));
            }
        }
        self.by_end.retain(|_, ended| !ended.is_empty());
        forgotten
    }

    /// Those with ids from `first` to `last`.
    pub(crate) fn between(&self, first: JobId, last: JobId) -> impl Iterator<Item = &Ended> {
        self.jobs.range(first..=last).map(|(_, ended)| ended)
    }

    /// Those of a tenant, the latest first, with ids below `before`.
    pub(crate) fn of(&self, tenant: &str, before: Option<JobId>, most: usize) -> impl Iterator<Item = &Ended> {
        let upper = before.unwrap_or(JobId::from_u128(u128::MAX));
        self.jobs.range(..upper).rev().map(|(_, ended)| ended).filter(move |ended| *ended.tenant == *tenant).take(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::job::tests::record;

    fn ended(job: u128, at: u64) -> Ended {
        Ended { state: JobState::Succeeded, at_unix_ms: at, ..Ended::of(&record(job, "a")) }
    }

    #[test]
    fn the_latest_of_a_tenant_are_remembered_for_30_days() {
        let mut history = History::default();
        let forgotten: Vec<_> =
            (0..ENDED_MAX as u64 + 2).flat_map(|at| history.add(ended(u128::from(at), at), 0)).collect();
        assert_eq!(forgotten.len(), 2);
        assert!(history.get(JobId::from_u128(1)).is_none() && history.get(JobId::from_u128(2)).is_some());
        let latest: Vec<_> = history.of("a", None, 2).map(|ended| ended.job.as_u128()).collect();
        assert_eq!(latest, [ENDED_MAX as u128 + 1, ENDED_MAX as u128]);
        assert_eq!(history.of("b", None, 2).count(), 0);
        assert_eq!(history.forget_old(ENDED_KEPT_MS + 4).len(), 3);
        assert!(!history.add(ended(7, 0), ENDED_KEPT_MS).is_empty(), "it was over too long ago");
    }

    #[test]
    fn a_job_takes_less_than_100_bytes_in_the_index() {
        let index = size_of::<(JobId, Ended)>() + size_of::<(u64, JobId)>();
        assert!(index <= 100, "{index}");
    }
}
