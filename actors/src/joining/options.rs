//! The cluster that a node joins, and why it does not.

use std::net::SocketAddr;
use std::time::Duration;

use exobus_bus::{Bus, BusError, Denied, Subjects};
use exobus_store::StoreError;

use crate::ids::NodeId;
use crate::membership::MembershipOptions;

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

/// `64 MiB`; bytes where it is no whole number of these.
fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process may use less than a node needs.
    #[error(
        "{} of memory are too little for a node: {} are set aside for code, stacks and connections, and the rest is for \
         data. Give it {} or more (--memory, node.memory)",
        mebibytes(*given),
        mebibytes(*set_aside_bytes),
        mebibytes(*least_bytes)
    )]
    TooLittleMemory {
        /// What it was given, bytes.
        given: u64,
        /// What is not its store's, bytes.
        set_aside_bytes: u64,
        /// What it needs, bytes.
        least_bytes: u64,
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
