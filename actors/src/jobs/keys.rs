//! Which job a key stands for: who hands a job in twice under one key has one job.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::JobId;
use crate::protocol::job::Digest;

/// For so long a key stands for the job that it was used for first.
pub const KEY_LASTS_MS: u64 = 24 * 3600 * 1000;
/// Keys that are remembered: the latest.
const KEYS_MAX: usize = 500_000;

/// The keys, each by a hash of it and its tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    keys: BTreeMap<u128, Keyed>,
    by_end: BTreeSet<(u64, u128)>,
}

#[derive(Clone, Copy, Debug)]
struct Keyed {
    job: JobId,
    /// Of its spec.
    spec: u128,
    until: u64,
}

/// A tenant is a token, and has no zero byte in it.
fn hash(tenant: &str, key: &str) -> u128 {
    twox_hash::XxHash3_128::oneshot(&[tenant.as_bytes(), &[0], key.as_bytes()].concat())
}

impl Keys {
    /// The job that a key stands for now, and the hash of its spec.
    pub(super) fn of(&self, tenant: &str, key: &str, unix_ms: u64) -> Option<(JobId, u128)> {
        let keyed = self.keys.get(&hash(tenant, key)).filter(|keyed| keyed.until > unix_ms)?;
        Some((keyed.job, keyed.spec))
    }

    /// A key stands for a job that was accepted then, unless it does for a later one.
    pub(super) fn add(&mut self, (tenant, key): (&str, &str), (job, spec): (JobId, Digest), accepted_unix_ms: u64) {
        let (hash, until) = (hash(tenant, key), accepted_unix_ms.saturating_add(KEY_LASTS_MS));
        if let Some(known) = self.keys.get(&hash) {
            if known.until > until {
                return;
            }
            self.by_end.remove(&(known.until, hash));
        }
        self.keys.insert(hash, Keyed { job, spec: spec.hash, until });
        self.by_end.insert((until, hash));
        if self.keys.len() > KEYS_MAX
            && let Some((_, oldest)) = self.by_end.pop_first()
        {
            self.keys.remove(&oldest);
        }
    }

    /// Forgets those that stand for nothing any more.
    pub(super) fn forget_old(&mut self, unix_ms: u64) {
        while let Some((_, oldest)) = self.by_end.first().copied().filter(|(until, _)| *until <= unix_ms) {
            self.by_end.pop_first();
            self.keys.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_for_the_latest_job_of_a_day_and_each_tenant_has_its_own() {
        let mut keys = Keys::default();
        let (first, second) = (JobId::from_u128(1), JobId::from_u128(2));
        let spec = Digest::of(b"spec");
        keys.add(("a", "k"), (first, spec), 1000);
        assert_eq!(keys.of("a", "k", 2000), Some((first, spec.hash)));
        assert_eq!((keys.of("b", "k", 2000), keys.of("a", "l", 2000)), (None, None));
        assert_eq!(keys.of("a", "k", 1000 + KEY_LASTS_MS), None);
        keys.add(("a", "k"), (second, spec), 1000 + KEY_LASTS_MS);
        // What is said once more of the first changes nothing.
        keys.add(("a", "k"), (first, spec), 1000);
        keys.forget_old(1000 + KEY_LASTS_MS);
        assert_eq!(keys.of("a", "k", 2000 + KEY_LASTS_MS), Some((second, spec.hash)));
        keys.forget_old(u64::MAX);
        assert_eq!((keys.keys.len(), keys.by_end.len()), (0, 0));
    }
}
