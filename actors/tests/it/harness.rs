//! A cluster in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exobus_actors::event::Event;
use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeError, NodeOptions};
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::registry::{functions, programs};
use exobus_actors::task::JobError;
use exobus_actors::transfer::network::{MemoryNetwork, Network};
use exobus_bus::{Bus, Credentials, Subjects};
use parking_lot::RwLock;

use crate::common::run_on;

/// Bytes of each node's store.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// How long something may take that is bound to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives others their turn until this is so.
pub async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it comes about within its time");
}

/// Asks again until this is so.
pub async fn until_async(mut so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it comes about within its time");
}

/// Nodes that know each other; the first one has the Scheduler. They stop in order when this is dropped.
pub struct Cluster {
    pub bus: Bus,
    pub subjects: Subjects,
    network: Arc<dyn Network>,
    nodes: RwLock<Vec<Arc<Node>>>,
    spill: tempfile::TempDir,
    next: AtomicUsize,
}

impl Cluster {
    /// Without a socket.
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryNetwork::new()))
    }

    /// Its nodes know these tokens.
    pub fn with(credentials: Credentials) -> Self {
        let mut cluster = Self::new();
        cluster.bus = cluster.bus.with_credentials(credentials);
        cluster
    }

    /// Objects go between the nodes over this network.
    pub fn over(network: Arc<dyn Network>) -> Self {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        Self {
            bus,
            subjects,
            network,
            nodes: RwLock::default(),
            spill: tempfile::tempdir().unwrap(),
            next: AtomicUsize::new(0),
        }
    }

    /// Starts a node with one executor that lacks the functions of these names.
    pub fn start_without(&self, name: &str, lacking: &[&str]) {
        self.start_of(name, lacking, MEMORY_BYTES);
    }

    /// Starts a node with one executor and a store of so many bytes.
    pub fn start_of(&self, name: &str, lacking: &[&str], memory_bytes: u64) {
        let first = self.nodes.read().is_empty();
        self.start_on(&self.bus, first, name, lacking, memory_bytes);
    }

    /// Starts a node that may become the Scheduler, with a way of its own to the others.
    pub fn start_candidate(&self, name: &str, bus: &Bus) {
        self.start_on(bus, true, name, &[], MEMORY_BYTES);
    }

    /// Stops a node in order.
    pub fn stop(&self, name: &str) {
        let node = self.node(name);
        self.nodes.write().retain(|node| node.post().node().as_str() != name);
        drop(node);
    }

    /// Starts a node under a name that another one may have, elsewhere: with a folder of its own to spill to.
    pub fn start_elsewhere(&self, name: &str, bus: &Bus) -> Result<Node, NodeError> {
        Node::start(self.elsewhere(name, false, bus))
    }

    /// How a node is set up under a name that another one may have: with a folder of its own to spill to.
    pub fn elsewhere(&self, name: &str, scheduler: bool, bus: &Bus) -> NodeOptions {
        let mut options = self.options(bus, scheduler, name, &[], MEMORY_BYTES);
        let spill = self.spill.path().join(format!("of-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        options.store.spill_dirs = vec![spill];
        options
    }

    fn start_on(&self, bus: &Bus, scheduler: bool, name: &str, lacking: &[&str], memory_bytes: u64) {
        let node = Arc::new(self.try_start(bus, scheduler, name, lacking, memory_bytes).unwrap());
        self.nodes.write().push(node);
    }

    /// Starts a node with a way of its own to the others, which is none of the cluster's yet.
    pub fn try_start(
        &self,
        bus: &Bus,
        scheduler: bool,
        name: &str,
        lacking: &[&str],
        memory_bytes: u64,
    ) -> Result<Node, NodeError> {
        Node::start(self.options(bus, scheduler, name, lacking, memory_bytes))
    }

    fn options(&self, bus: &Bus, scheduler: bool, name: &str, lacking: &[&str], memory_bytes: u64) -> NodeOptions {
        let all = functions().keys().map(ToString::to_string).chain(programs().keys().cloned());
        let kept = all.filter(|key| !lacking.contains(&key.split('@').next().unwrap()));
        let mut options = NodeOptions::alone(1, memory_bytes);
        options.name = NodeId::new(name);
        options.functions = Some(kept.collect());
        options.store.spill_dirs = vec![self.spill.path().to_owned()];
        options.store.keep_files = true;
        options.network = self.network.clone();
        options.cluster = Some(ClusterOptions {
            bus: bus.clone(),
            subjects: self.subjects.clone(),
            scheduler,
            membership: MembershipOptions::default(),
            listen: "127.0.0.1:0".parse().unwrap(),
            join_deadline: Duration::from_secs(30),
        });
        options
    }

    /// Where a node spills.
    pub fn spill_dir(&self, name: &str) -> PathBuf {
        self.spill.path().join(format!("{}.{name}", self.subjects.cluster()))
    }

    /// Files there.
    pub fn spill_files(&self, name: &str) -> usize {
        let entries = std::fs::read_dir(self.spill_dir(name)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "spill")).count()
    }

    /// Starts a node with one executor.
    pub fn start(&self, name: &str) {
        self.start_without(name, &[]);
    }

    pub fn node(&self, name: &str) -> Arc<Node> {
        self.nodes.read().iter().find(|node| node.post().node().as_str() == name).unwrap().clone()
    }

    /// Runs a program on a node; also returns its events.
    pub fn run<T, P>(&self, host: &str, program: P) -> (Result<T, JobError>, JobEnd, Vec<Event>)
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Send + 'static,
    {
        run_on(&self.node(host), program)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The Scheduler's node last: the others say farewell to it.
        while let Some(node) = self.nodes.write().pop() {
            drop(node);
        }
    }
}
