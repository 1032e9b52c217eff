//! Transfer: how ranges of objects move between nodes. One per node; the data plane.
//!
//! A plain protocol ([`wire`]) over TCP, or whatever else a [`Network`](network::Network) is: a node asks another for
//! parts of objects, the answer comes from memory or straight from the spill file and goes straight from the socket into
//! the memory that the asking node's store has granted ([`Fill`](exobus_store::Fill)). One request may ask for the same
//! part of a whole set: thousands of tiny parts share one request, their answers share writes.
//!
//! # Promises
//! - A block is visible only when all its bytes have come and the checksum of each of its parts fits. Anything less is
//!   dropped; a checksum that does not fit is counted, closes the connection, and is
//!   [`TransferError::Corrupt`].
//! - Nothing waits for ever: a peer that is silent, or trickles, for 4 s ([`ClientOptions::stall`], [`ServerOptions::stall`]), a stream that
//!   ends early, an answer that is not the protocol end the fetch within 5 s with an error that names peer and cause.
//! - A cancelled fetch (its future was dropped) gives its memory back at once when it had not begun, and as soon as
//!   its socket is shut down when it had.
//! - Bounded: threads, connections per peer and in all, waiting fetches; nothing is allocated by a length that a peer
//!   declares. What is full says so.
//! - Every connection proves to know the cluster's token, compared in constant time; with TLS ([`tls`]), nodes prove their names, too, and the
//!   token crosses nothing in the clear.
//!
//! # Why threads
//! A fetch is a few blocking calls on one socket, with the copy from the kernel and the checksum on the same core. On
//! two cores blocking threads move a stream as fast as the loopback does; a poller in between adds wake-ups and nothing
//! else. There are few peers and few connections to each, so there are few threads. Measured between two processes on
//! the reference machine, objects of 100 MB, every byte verified: 1.9-2.5 GB/s one at a time, 2.6-4.3 GB/s two at a
//! time, a bare stream 2.2-2.4 GB/s in the same runs; 10 000 parts of 1 kB in one request: 14 ms (the example
//! `transfer`, 2026-11-21).
//!
//! # Deliberately absent
//! Pushes by the
//! sender (who will need bytes early fetches them early: [`merger`](crate::merger)); the same over NATS for nodes that can only dial out. In one process the block is handed over without
//! any of this.

mod client;
mod copy;
mod download;
mod error;
mod fetch;
mod link;
pub mod network;
mod pool;
mod server;
mod ticket;
pub mod tls;
mod token;
pub mod wire;
mod work;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_store::{Clock, CopyId, Fill, PartMeta, Parts, Store};

pub use download::download;
pub use error::{PeerName, TransferError};
pub use fetch::{Copying, Directories, Fetch, FetchEach};
pub use ticket::TransferTicket;
pub use token::TOKEN_BYTES_MIN;

use network::{Network, RealNetwork};
use tls::DataTls;
use token::ClusterToken;

use crate::random::{Random, SystemRandom};

/// Parts of an object, as they are asked for.
pub type Item = (CopyId, Parts);

/// The directories of the items of a request, in order; `None` where the peer does not have it.
pub type DirectoryList = Vec<Option<Vec<PartMeta>>>;

/// How a node serves its objects.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// This node's name: who wants another node is refused, since an address may have passed to another process.
    /// Empty (the default): whoever asks is served.
    pub node: String,
    /// Where to listen; port 0 takes a free one. Default `127.0.0.1:0`. Whether another address is allowed is the
    /// configuration's decision.
    pub listen: SocketAddr,
    /// The network to listen on. Default: the real one, TCP.
    pub network: Arc<dyn Network>,
    /// What this node shows and whom it believes; of a node. Default: nothing, all goes in the clear.
    pub tls: Option<DataTls>,
    /// Connections of who has shown the token that are served at a time; a further one is told that this node is busy. Default 256.
    pub connections_max: usize,
    /// Connections of who has not shown it yet, beside those; when one more comes the oldest is closed. Default 64.
    pub strangers_max: usize,
    /// Without progress (64 KiB) for so long a connection is given up. Default 4 s.
    pub stall: Duration,
    /// Who connects must have said who it is, to the last byte, within this time. Default 2 s.
    pub welcome: Duration,
    /// A connection on which nothing is asked for so long is closed. Default 60 s.
    pub idle: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            node: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            network: Arc::new(RealNetwork::new()),
            tls: None,
            connections_max: 256,
            strangers_max: 64,
            stall: Duration::from_secs(4),
            welcome: Duration::from_secs(2),
            idle: Duration::from_secs(60),
        }
    }
}

/// How a node fetches from others.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// This node's name, told to peers for their logs. Default empty.
    pub node: String,
    /// The network to connect over. Default: the real one, TCP.
    pub network: Arc<dyn Network>,
    /// What this process shows and whom it believes. Default: nothing, all goes in the clear.
    pub tls: Option<DataTls>,
    /// Where the ids of copies come from. Default: the operating system.
    pub random: Arc<dyn Random>,
    /// Threads that fetch, started when they are needed; so many requests are under way at a time. Default 4.
    pub threads: usize,
    /// Requests under way to one peer at a time, each on its own connection. Default 2.
    pub connections_per_peer: usize,
    /// Requests that wait; one more ends with [`TransferError::QueueFull`]. Default 65 536.
    pub waiting_max: usize,
    /// Without progress (64 KiB) for so long a connection is given up. Default 4 s.
    pub stall: Duration,
    /// To connect, and to be welcomed, may each take so long. Default 2 s.
    pub connect: Duration,
    /// A connection that nobody uses is closed after this time. Default 30 s.
    pub idle: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            node: String::new(),
            network: Arc::new(RealNetwork::new()),
            tls: None,
            random: Arc::new(SystemRandom),
            threads: 4,
            connections_per_peer: 2,
            waiting_max: 65_536,
            stall: Duration::from_secs(4),
            connect: Duration::from_secs(2),
            idle: Duration::from_secs(30),
        }
    }
}

/// Parts of an object to be fetched, and where they go.
#[derive(Debug)]
pub struct FetchItem {
    /// The object.
    pub object: CopyId,
    /// Which parts.
    pub parts: Parts,
    /// Memory for them, granted for the [`PartMeta`]s that the peer's directory has for these parts.
    pub fill: Fill,
}

/// What a server counted since its start; all rise only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Items that were answered.
    pub items: u64,
    /// Bytes of parts that were sent.
    pub bytes: u64,
    /// Connections taken in.
    pub accepted: u64,
    /// Connections turned away: silent or wrong token, other version, other node, too many. One a minute is logged.
    pub refused: u64,
    /// Connections closed because what came was not the protocol.
    pub garbled: u64,
    /// Connections given up because the other side did not read, or did not finish what it was saying.
    pub stalled: u64,
    /// Times that no connection could be taken in: out of descriptors, threads or memory.
    pub accept_errors: u64,
}

/// What a client counted since its start; all rise only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Items that were fetched whole.
    pub items: u64,
    /// Bytes of parts that arrived.
    pub bytes: u64,
    /// Items whose bytes did not fit their checksum.
    pub corrupt: u64,
    /// Items that did not come for another reason.
    pub failed: u64,
    /// Connections made.
    pub connected: u64,
}

/// A counter that threads share.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves the objects of a store to other nodes. Dropping it stops: what is being sent breaks off.
#[derive(Debug)]
pub struct TransferServer(server::Server);

impl TransferServer {
    /// Listens on `listen`, other options being the defaults.
    ///
    /// # Errors
    /// See [`start_with`](Self::start_with).
    pub fn start(listen: SocketAddr, token: &str, store: Store, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Self::start_with(ServerOptions { listen, ..ServerOptions::default() }, token, store, clock)
    }

    /// Listens, and serves who knows the token.
    ///
    /// # Errors
    /// What the network says; a token of less than [`TOKEN_BYTES_MIN`] or more than 256 bytes; TLS of who is no node.
    pub fn start_with(options: ServerOptions, token: &str, store: Store, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let token = ClusterToken::new(token);
        if !token.is_acceptable() {
            let text = format!("a cluster token has {TOKEN_BYTES_MIN} to {} bytes", wire::HELLO_TEXT_MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if options.tls.as_ref().is_some_and(|tls| !tls.is_of_a_node()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, tls::TlsError::NoCertificate));
        }
        server::Server::start(options, token, store, clock).map(Self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// What it counted.
    pub fn stats(&self) -> ServerStats {
        self.0.stats()
    }

    /// Stops serving and waits for the threads.
    pub fn stop(self) {}
}

/// Fetches from other nodes. A cheap handle; when the last one is dropped what is under way ends with
/// [`TransferError::Stopped`]. Makes no thread before it is first asked.
#[derive(Clone, Debug)]
pub struct TransferClient {
    queue: pool::Queue,
    threads: Arc<pool::Threads>,
}

impl TransferClient {
    /// A client with the default options.
    pub fn new(token: &str, clock: Arc<dyn Clock>) -> Self {
        Self::with(ClientOptions::default(), token, clock)
    }

    /// A client that shows `token` to who it fetches from.
    pub fn with(options: ClientOptions, token: &str, clock: Arc<dyn Clock>) -> Self {
        let threads = pool::Threads::new(options, ClusterToken::new(token), clock);
        Self { queue: threads.queue().clone(), threads: Arc::new(threads) }
    }

    /// Whether `peer` welcomes a connection, on a thread of its own: other requests may wait for others. To connect, and to be
    /// welcomed, may each take so long. Whatever else it says shows that it is there; so it counts where there is no thread to see.
    pub async fn is_there(&self, peer: impl Into<PeerName>, within: Duration) -> bool {
        self.queue.is_there(peer.into(), within).await
    }

    /// Asks `peer` for the directories of parts of objects, all in one request; `None` for those that are not there.
    pub fn directory(&self, peer: impl Into<PeerName>, items: Vec<Item>) -> Directories {
        fetch::directories(&self.queue, &peer.into(), wire::Kind::Directory, items)
    }

    /// As [`directory`](Self::directory), once `peer` has compared all bytes of the objects with their checksums: for who
    /// got bytes that do not fit, and cannot know whether the peer has them wrong or the way garbled them. A copy that is
    /// corrupt leaves the peer's store, so the answer is `None`.
    pub fn verify(&self, peer: impl Into<PeerName>, items: Vec<Item>) -> Directories {
        fetch::directories(&self.queue, &peer.into(), wire::Kind::Verify, items)
    }

    /// Fetches parts of objects from `peer` into memory that was granted for them, `fills[i]` for `items[i]`, all in
    /// one request. The first failure fails the whole fetch.
    ///
    /// # Panics
    /// When there are not as many fills as items.
    pub fn fetch(&self, peer: impl Into<PeerName>, items: Vec<Item>, fills: Vec<Fill>) -> Fetch {
        assert_eq!(items.len(), fills.len(), "a fill for each item");
        let items = items.into_iter().zip(fills).map(|((object, parts), fill)| FetchItem { object, parts, fill });
        fetch::all(&self.queue, &peer.into(), items.collect())
    }

    /// Like [`fetch`](Self::fetch), with a result for each item: a failure leaves the others alone as far as it can.
    pub fn fetch_each(&self, peer: impl Into<PeerName>, items: Vec<FetchItem>) -> FetchEach {
        fetch::each(&self.queue, &peer.into(), items)
    }

    /// Copies parts of an object from `peer` into `store`, into memory if there is any, else to its disk, so that
    /// objects larger than memory can be read as streams. The answer is the id of the copy: a new one, an object of
    /// its own in the group of the original, never equal to that of the original, and deleted by whoever asked for it.
    pub fn copy_here(&self, store: &Store, peer: impl Into<PeerName>, item: Item) -> Copying {
        fetch::copy(&self.queue, &peer.into(), store.clone(), item, None)
    }

    /// Like [`copy_here`](Self::copy_here), under a name that the caller gives it, so that its file on disk knows it by that name, too. Nothing
    /// in `store` may have the name.
    pub fn copy_here_as(&self, store: &Store, peer: impl Into<PeerName>, item: Item, name: CopyId) -> Copying {
        fetch::copy(&self.queue, &peer.into(), store.clone(), item, Some(name))
    }

    /// Bytes of parts that arrived since the start.
    pub fn received_bytes(&self) -> u64 {
        self.stats().bytes
    }

    /// What it counted.
    pub fn stats(&self) -> ClientStats {
        self.threads.stats()
    }
}

#[cfg(test)]
mod tests;
