//! How a node is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Bus, BusError, Denied, Subjects};
use exobus_store::{Clock, Disk, RealDisk, StoreError, StoreOptions, SystemClock};

use crate::ids::NodeId;
use crate::isolation::Isolation;
use crate::joblog::LogsLink;
use crate::membership::MembershipOptions;
use crate::random::{Random, SystemRandom};
use crate::registry::Roots;
use crate::task::Resources;
use crate::transfer::network::{Network, RealNetwork};

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
    /// Where the tasks of jobs may read and write files. Default: everywhere.
    pub roots: Roots,
    /// The object store; `executors` is taken from above.
    pub store: StoreOptions,
    /// Where the store spills.
    pub disk: Arc<dyn Disk>,
    /// Where jobs are logged; the cluster's bus where there is one.
    pub logs: LogsLink,
    /// The cluster it joins; `None`: it is alone, without bus and sockets.
    pub cluster: Option<ClusterOptions>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Over which objects go from node to node, where there is a cluster.
    pub network: Arc<dyn Network>,
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
            roots: Roots::default(),
            store: StoreOptions { memory_bytes: store_bytes, ..StoreOptions::default() },
            disk: Arc::new(RealDisk::default()),
            logs: LogsLink::default(),
            cluster: None,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            network: Arc::new(RealNetwork::new()),
        }
    }

    /// Whether the node offers this function or program.
    pub(super) fn offers(&self, key: &str) -> bool {
        self.functions.as_ref().is_none_or(|functions| functions.contains(key))
    }
}

/// The cluster that a node joins.
#[derive(Clone)]
pub struct ClusterOptions {
    /// The way to the others, with the tokens of a node ([`Bus::with_credentials`]); what peers must know to be served objects is made
    /// from them.
    pub bus: Bus,
    /// The names of the cluster.
    pub subjects: Subjects,
    /// Whether this node may become the Scheduler of the cluster ([`election`](crate::election)). Where the bus has no
    /// durable streams, exactly one node may.
    pub scheduler: bool,
    /// When nodes are suspected and dead.
    pub membership: MembershipOptions,
    /// Where objects are served, `127.0.0.1:0` for any free port of the loopback.
    pub listen: SocketAddr,
    /// How long to look for the Scheduler before giving up.
    pub join_deadline: Duration,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process may use less than a node needs.
    #[error(
        "{given} bytes of memory are too little for a node: {} MiB are set aside for code, stacks and connections, and the \
         rest is for data. Give it {} bytes (64 MiB) or more (--memory, node.memory)",
        super::memory::SET_ASIDE_BYTES >> 20,
        super::memory::MEMORY_MIN_BYTES
    )]
    TooLittleMemory {
        /// What it was given, bytes.
        given: u64,
    },
    /// The store cannot be opened.
    #[error("object store")]
    Store(#[from] StoreError),
    /// The bus does not do what is asked.
    #[error("bus")]
    Bus(#[from] BusError),
    /// The system refuses a thread or a socket.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another process lives under the node's name.
    #[error("the name {name} is taken: {holder} has it. Stop that one, or give this node another name")]
    NameTaken {
        /// The name.
        name: NodeId,
        /// Who has it, for people.
        holder: String,
    },
    /// Nobody says where the Scheduler is.
    #[error("no scheduler answered in cluster {cluster} for {:.1} s: {why}", waited.as_secs_f64())]
    NoScheduler {
        /// The cluster.
        cluster: String,
        /// How long was waited.
        waited: Duration,
        /// What a candidate says, or what to do.
        why: String,
    },
    /// The cluster does not believe that this process is what it says.
    #[error(transparent)]
    Denied(Denied),
    /// What the cluster keeps on its NATS servers does not open under this process's token.
    #[error(
        "{why}. Stream {stream} of the NATS server says so; if token or release of the whole cluster were changed, stop all its nodes,          remove that stream, and start them again"
    )]
    Sealed {
        /// The token is another one, or the release.
        why: String,
        /// The stream.
        stream: String,
    },
    /// The node cannot say that it has its name.
    #[error("{name} cannot take its name: the NATS server answers, but stores nothing; its disk may be full")]
    StoresNothing {
        /// The name.
        name: NodeId,
    },
    /// It was told to stop before it was there.
    #[error("told to stop before the node was in the cluster")]
    Stopped,
    /// Something else, as text.
    #[error("{0}")]
    Other(String),
}

impl NodeError {
    /// Whether it may be that the bus is away, and nothing else.
    pub fn is_of_the_bus(&self) -> bool {
        match self {
            Self::Bus(error) => error.is_retryable(),
            Self::NoScheduler { .. } | Self::StoresNothing { .. } => true,
            _ => false,
        }
    }
}
