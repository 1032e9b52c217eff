//! How a node is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Clock, Disk, RealDisk, StoreOptions, SystemClock};

use crate::futures::{Compute, ComputeThreads};
use crate::ids::NodeId;
use crate::isolation::Isolation;
use crate::joblog::{LogsLink, QUOTA_BYTES};
use crate::joining::ClusterOptions;
use crate::printing::Secrets;
use crate::random::{Random, SystemRandom};
use crate::task::Resources;
use crate::tenants::Tenants;
use crate::transfer::network::{Network, RealNetwork};
use crate::transfer::tls::DataTls;

/// How a node is set up.
pub struct NodeOptions {
    /// Its name, unique in its cluster.
    pub name: NodeId,
    /// How many tasks run at a time.
    pub executors: usize,
    /// Which functions run in processes of their own. Default: none.
    pub isolation: Isolation,
    /// What it lends to jobs; usually `cpu` 1000 for each executor.
    pub resources: Resources,
    /// key=value labels.
    pub labels: BTreeMap<String, String>,
    /// Functions and programs that it offers, "name@version", of those that this binary has; `None`: all. What it does
    /// not offer is not placed here, and refused.
    pub functions: Option<BTreeSet<String>>,
    /// For whom jobs run, and what these may do. Default: one tenant, whose jobs read and write files everywhere.
    pub tenants: Tenants,
    /// What nobody may print: `***` stands in its place.
    pub secrets: Secrets,
    /// The object store; `executors` is taken from above.
    pub store: StoreOptions,
    /// Where the store spills.
    pub disk: Arc<dyn Disk>,
    /// Where jobs are logged; the cluster's bus where there is one.
    pub logs: LogsLink,
    /// Bytes that the log of a job that this node hosts may have; at the quota the job goes on, and cannot be taken up again.
    /// Default: [`QUOTA_BYTES`].
    pub log_quota_bytes: u64,
    /// The cluster it joins; `None`: it is alone, without bus and sockets.
    pub cluster: Option<ClusterOptions>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Where programs compute ([`Futures::compute`](crate::futures::Futures::compute)).
    pub compute: Arc<dyn Compute>,
    /// How long the results of jobs that it hosts are there after them. Default [`KEPT_FOR`](crate::results::KEPT_FOR).
    pub results_kept: Duration,
    /// Over which objects go from node to node, where there is a cluster.
    pub network: Arc<dyn Network>,
    /// What the node shows, and whom it believes, on those connections. Default: nothing, all goes in the clear.
    pub tls: Option<DataTls>,
}

impl NodeOptions {
    /// A node that is alone: `executors` threads, and a store of `store_bytes`. What its process takes beside the store
    /// ([`memory::SET_ASIDE_BYTES`](super::memory::SET_ASIDE_BYTES)) is not in that number; in
    /// [`within`](Self::within) it is.
    pub fn alone(executors: usize, store_bytes: u64) -> Self {
        Self {
            name: NodeId::new("local"),
            executors,
            isolation: Isolation::default(),
            resources: Resources::cpu(1000 * executors as u64),
            labels: BTreeMap::new(),
            functions: None,
            tenants: Tenants::default(),
            secrets: Secrets::default(),
            store: StoreOptions { memory_bytes: store_bytes, ..StoreOptions::default() },
            disk: Arc::new(RealDisk::default()),
            logs: LogsLink::default(),
            log_quota_bytes: QUOTA_BYTES,
            cluster: None,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            compute: Arc::new(ComputeThreads),
            results_kept: crate::results::KEPT_FOR,
            network: Arc::new(RealNetwork::new()),
            tls: None,
        }
    }

    /// Whether the node offers this function or program.
    pub(super) fn offers(&self, key: &str) -> bool {
        self.functions.as_ref().is_none_or(|functions| functions.contains(key))
    }
}
