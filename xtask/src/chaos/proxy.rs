//! A proxy on the byte stream between nodes, above TCP: a flipped bit in a packet would never reach them, since TCP sends it
//! again. It stands before each node's port, on the node's own host.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::{DATA_PORT, NODES};
use super::lan::{DEVICE, Lan, thread};

/// What comes for the node's port is led here.
const PROXY_PORT: u16 = DATA_PORT + 1;
const CHUNK_BYTES: usize = 64 * 1024;
/// How often a connection that is stalled looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is done to what a node answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Harm {
    /// A bit is flipped in so many chunks of a thousand.
    Flip(u64),
    /// The stream ends in the middle of a chunk, in so many of a thousand: as if the node had closed it.
    Truncate(u64),
    /// The same, and the connection is reset.
    Reset(u64),
    /// Nothing comes any more, and nobody is told, in so many of a thousand.
    Stall(u64),
}

/// Proxies before all nodes; they end when it is dropped.
pub(super) struct Proxies {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
}

#[derive(Default)]
struct Shared {
    harm: Mutex<Option<Harm>>,
    chunks: AtomicU64,
    harmed: AtomicU64,
    is_over: AtomicBool,
}

impl Proxies {
    pub(super) fn start(lan: &Lan) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let mut listeners = Vec::new();
        for node in NODES {
            let target = SocketAddr::from((lan.address(node)?, DATA_PORT));
            let listener = lan.within(node, || listen(target))?;
            redirect(lan, node)?;
            let (accepting, shared) = (listener.try_clone()?, Arc::clone(&shared));
            // The connections to the node have to be made on its host as well.
            lan.thread_on(node, "chaos-proxy", move || shared.accept(&accepting, target))?;
            listeners.push(listener);
        }
        Ok(Self { shared, listeners })
    }

    pub(super) fn set(&self, harm: Option<Harm>) {
        *self.shared.harm.lock().unwrap_or_else(PoisonError::into_inner) = harm;
    }

    /// How often harm was done.
    pub(super) fn harmed(&self) -> u64 {
        self.shared.harmed.load(Ordering::Relaxed)
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for listener in &self.listeners {
            // Wakes the thread that is blocked in accept.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "between real processes")]
fn listen(target: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind((target.ip(), PROXY_PORT)).context("listen before a node")
}

/// What other hosts send to the node's port comes to the proxy; what this host does, the proxy's own, does not.
fn redirect(lan: &Lan, node: &str) -> Result<()> {
    let [first, rest @ ..] = lan.on(node);
    let rules = format!(
        "table ip chaos {{\n chain before {{\n type nat hook prerouting priority -100;\n iifname {DEVICE} tcp dport {DATA_PORT} redirect to :{PROXY_PORT}\n }}\n}}\n"
    );
    let output = std::process::Command::new(first).args(rest).args(["nft", rules.trim()]).output()?;
    ensure!(output.status.success(), "nft on {node}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

impl Shared {
    #[allow(clippy::disallowed_methods, reason = "between real processes")]
    fn accept(self: Arc<Self>, listener: &TcpListener, target: SocketAddr) {
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((client, _)) = listener.accept() else { break };
            // A node that does not listen: the client sees a connection that ends.
            let Ok(node) = TcpStream::connect(target) else { continue };
            let Ok(pair) = client.try_clone().and_then(|client| Ok((client, node.try_clone()?))) else { continue };
            let shared = Arc::clone(&self);
            let asked = thread("chaos-asked", move || drop(pass(&pair.0, &pair.1)));
            let answered = thread("chaos-answered", move || shared.harm(&node, &client));
            if asked.and(answered).is_err() {
                break;
            }
        }
    }

    /// Passes on what a node answers, with harm.
    fn harm(&self, node: &TcpStream, client: &TcpStream) {
        let (mut from, mut to) = (node, client);
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let chunk = &mut chunk[..length];
            match self.next_harm() {
                None => {}
                Some(Harm::Flip(_)) => {
                    let at = self.draw(length as u64) as usize;
                    chunk[at] ^= 1 << self.draw(8);
                }
                Some(Harm::Truncate(_)) => {
                    let _ = to.write_all(&chunk[..length / 2]);
                    break;
                }
                Some(Harm::Reset(_)) => {
                    let _ = to.write_all(&chunk[..length / 2]);
                    // With nothing to linger for, closing resets; the other thread closes when nothing more can come.
                    let _ = rustix::net::sockopt::set_socket_linger(to, Some(Duration::ZERO));
                    let _ = (node.shutdown(Shutdown::Both), client.shutdown(Shutdown::Read));
                    return;
                }
                Some(Harm::Stall(_)) => {
                    let _ = to.write_all(&chunk[..length / 2]);
                    self.stall(to);
                    break;
                }
            }
            if to.write_all(chunk).is_err() {
                break;
            }
        }
        // The other thread holds the sockets as well: without this they would not be closed.
        let _ = (node.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
    }

    /// Holds the connection until the client closes it.
    fn stall(&self, client: &TcpStream) {
        let _ = client.set_read_timeout(Some(LOOK_EVERY));
        let mut byte = [0];
        while !self.is_over.load(Ordering::Relaxed) {
            match client.peek(&mut byte) {
                Ok(0) => break,
                Err(error)
                    if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    break;
                }
                // What it asks further is of no interest, and would make a loop of this.
                Ok(_) => std::thread::park_timeout(LOOK_EVERY),
                Err(_) => {}
            }
        }
    }

    fn next_harm(&self) -> Option<Harm> {
        let harm = (*self.harm.lock().unwrap_or_else(PoisonError::into_inner))?;
        let (Harm::Flip(share) | Harm::Truncate(share) | Harm::Reset(share) | Harm::Stall(share)) = harm;
        let happens = self.draw(1000) < share;
        self.harmed.fetch_add(u64::from(happens), Ordering::Relaxed);
        happens.then_some(harm)
    }

    /// A number below `limit`, another one each time.
    fn draw(&self, limit: u64) -> u64 {
        let number = self.chunks.fetch_add(1, Ordering::Relaxed);
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) % limit.max(1)
    }
}

/// Passes everything on.
fn pass(mut from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
    let result = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    result.map(drop)
}
