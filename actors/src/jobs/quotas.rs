//! What the jobs of a tenant may use.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What the jobs of a tenant may use. Where there is no number, there is no bound but the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Jobs that are not over, those that wait included; 20 000.
    pub jobs: usize,
    /// Jobs under way at a time.
    pub jobs_running: Option<usize>,
    /// Bytes that the log of one job may have: see [`NodeOptions::log_quota_bytes`](crate::node::NodeOptions::log_quota_bytes).
    pub job_log_bytes: Option<u64>,
    /// Bytes of objects that one job may have at a time, in memory and on disks, on all nodes together.
    pub job_stored_bytes: Option<u64>,
    /// Bytes of files that one job may write.
    pub job_output_bytes: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { jobs: 20_000, jobs_running: None, job_log_bytes: None, job_stored_bytes: None, job_output_bytes: None }
    }
}

/// The quotas of all tenants. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TenantQuotas(Arc<BTreeMap<Arc<str>, Quotas>>);

impl TenantQuotas {
    /// These.
    pub(crate) fn of(named: impl IntoIterator<Item = (Arc<str>, Quotas)>) -> Self {
        Self(Arc::new(named.into_iter().collect()))
    }

    /// Of this tenant. One that is not known here, as its jobs were accepted where it is, has what every tenant has.
    pub(crate) fn get(&self, tenant: &str) -> Quotas {
        self.0.get(tenant).copied().unwrap_or_default()
    }
}
