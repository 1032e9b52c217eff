//! Connections within one process, without a socket.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Listener, Network, Socket};

/// What one direction of a connection holds unless said otherwise, about what the kernel holds on the loopback.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that wait to be accepted; one more waits for its turn, as long as it is ready to.
const BACKLOG: usize = 128;
/// Ports are given out from here on.
const FIRST_PORT: u16 = 1024;

/// A network in memory. A cheap handle: who has a clone of the same network can be reached, nobody else. Addresses are
/// names only; `127.0.0.1:1024` here and on the machine have nothing to do with each other.
#[derive(Clone, Debug)]
pub struct MemoryNetwork(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pipe_bytes: usize,
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    /// Who listens, and where callers are put.
    listening: BTreeMap<SocketAddr, Sender<Caller>>,
    next_port: u16,
}

/// A connection that waits to be accepted, and where it comes from.
type Caller = (MemorySocket, SocketAddr);

impl Places {
    /// A port of this address that nobody listens on.
    fn free_port(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        for _ in FIRST_PORT..=u16::MAX {
            let candidate = SocketAddr::new(address.ip(), self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.listening.contains_key(&candidate) {
                return Ok(candidate);
            }
        }
        Err(ErrorKind::AddrNotAvailable.into())
    }
}

impl MemoryNetwork {
    /// A network on which nobody listens yet. Each direction of a connection holds 256 KiB before its sender waits.
    pub fn new() -> Self {
        Self::with_pipes(PIPE_BYTES)
    }

    /// The same, with directions that hold `pipe_bytes`.
    ///
    /// # Panics
    /// When that is zero.
    pub fn with_pipes(pipe_bytes: usize) -> Self {
        assert!(pipe_bytes > 0, "a pipe of no bytes passes nothing");
        let places = Places { listening: BTreeMap::new(), next_port: FIRST_PORT };
        Self(Arc::new(Shared { pipe_bytes, places: Mutex::new(places) }))
    }
}

impl Default for MemoryNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl Network for MemoryNetwork {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        let no_host = |_| io::Error::new(ErrorKind::NotFound, "no such host");
        let address: SocketAddr = address.parse().map_err(no_host)?;
        let (callers, from) = {
            let mut places = self.0.places.lock();
            let callers = places.listening.get(&address).cloned().ok_or(ErrorKind::ConnectionRefused)?;
            (callers, places.free_port(SocketAddr::from(([127, 0, 0, 1], 0)))?)
        };
        let (here, there) = MemorySocket::pair(self.0.pipe_bytes);
        match callers.send_timeout((there, from), timeout) {
            Ok(()) => Ok(Arc::new(here)),
            Err(SendTimeoutError::Timeout(_)) => Err(ErrorKind::TimedOut.into()),
            Err(SendTimeoutError::Disconnected(_)) => Err(ErrorKind::ConnectionRefused.into()),
        }
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        let mut places = self.0.places.lock();
        let address = if address.port() == 0 { places.free_port(address)? } else { address };
        if places.listening.contains_key(&address) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let (callers, accepting) = bounded(BACKLOG);
        places.listening.insert(address, callers);
        let listener = MemoryListener { network: Arc::clone(&self.0), address, accepting, open: Mutex::new(true) };
        Ok(Arc::new(listener))
    }
}

#[derive(Debug)]
struct MemoryListener {
    network: Arc<Shared>,
    address: SocketAddr,
    accepting: Receiver<Caller>,
    /// Whether the entry of this address is this listener's.
    open: Mutex<bool>,
}

impl Listener for MemoryListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> io::Result<(Arc<dyn Socket>, SocketAddr)> {
        let closed = |_| io::Error::new(ErrorKind::InvalidInput, "the listener is closed");
        let (socket, from) = self.accepting.recv().map_err(closed)?;
        match *self.open.lock() {
            true => Ok((Arc::new(socket), from)),
            false => Err(closed(crossbeam_channel::RecvError)),
        }
    }

    fn close(&self) {
        let mut open = self.open.lock();
        if std::mem::take(&mut *open) {
            // With the only sender gone, whoever waits for callers is woken.
            self.network.places.lock().listening.remove(&self.address);
        }
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// One end: it reads from one pipe and writes to the other.
#[derive(Debug)]
struct MemorySocket {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    receive_timeout: Mutex<Option<Duration>>,
    send_timeout: Mutex<Option<Duration>>,
}

impl MemorySocket {
    /// The two ends of a connection.
    fn pair(pipe_bytes: usize) -> (Self, Self) {
        let (up, down) = (Arc::new(Pipe::new(pipe_bytes)), Arc::new(Pipe::new(pipe_bytes)));
        let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>| Self {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            receive_timeout: Mutex::default(),
            send_timeout: Mutex::default(),
        };
        (end(&down, &up), end(&up, &down))
    }
}

fn not_zero(timeout: Duration) -> io::Result<Option<Duration>> {
    match timeout.is_zero() {
        true => Err(io::Error::new(ErrorKind::InvalidInput, "a time-out of zero")),
        false => Ok(Some(timeout)),
    }
}

impl Socket for MemorySocket {
    fn receive(&self, to: &mut [u8]) -> io::Result<usize> {
        let timeout = *self.receive_timeout.lock();
        self.incoming.read(to, timeout)
    }

    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let timeout = *self.send_timeout.lock();
        self.outgoing.write(pieces, timeout)
    }

    fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        *self.receive_timeout.lock() = not_zero(timeout)?;
        Ok(())
    }

    fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        *self.send_timeout.lock() = not_zero(timeout)?;
        Ok(())
    }

    fn is_readable(&self) -> bool {
        let flow = self.incoming.flow.lock();
        !flow.bytes.is_empty() || flow.is_ended()
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.incoming.end_reading();
        }
        if how != Shutdown::Read {
            self.outgoing.end_writing();
        }
        Ok(())
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.incoming.end_reading();
        self.outgoing.end_writing();
    }
}

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    capacity: usize,
    flow: Mutex<Flow>,
    readable: Condvar,
    writable: Condvar,
}

#[derive(Debug, Default)]
struct Flow {
    bytes: VecDeque<u8>,
    /// The writer has said all; what is here may still be read.
    written: bool,
    /// The reader is gone; nothing more is taken.
    unread: bool,
}

impl Flow {
    fn is_ended(&self) -> bool {
        self.written || self.unread
    }
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self { capacity, flow: Mutex::default(), readable: Condvar::new(), writable: Condvar::new() }
    }

    fn read(&self, to: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        let mut flow = self.flow.lock();
        wait_while(&self.readable, &mut flow, timeout, |flow| flow.bytes.is_empty() && !flow.is_ended())?;
        // The bytes may be in two pieces; the second read takes the rest.
        let count = flow.bytes.read(to)?;
        let count = count + flow.bytes.read(&mut to[count..])?;
        drop(flow);
        self.writable.notify_all();
        Ok(count)
    }

    fn write(&self, pieces: &[IoSlice<'_>], timeout: Option<Duration>) -> io::Result<usize> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        let mut flow = self.flow.lock();
        wait_while(&self.writable, &mut flow, timeout, |flow| flow.bytes.len() >= self.capacity && !flow.is_ended())?;
        if flow.is_ended() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let before = flow.bytes.len();
        for piece in pieces {
            let room = self.capacity - flow.bytes.len();
            flow.bytes.extend(&piece[..piece.len().min(room)]);
        }
        let count = flow.bytes.len() - before;
        drop(flow);
        self.readable.notify_all();
        Ok(count)
    }

    fn end_writing(&self) {
        self.flow.lock().written = true;
        self.wake();
    }

    fn end_reading(&self) {
        let mut flow = self.flow.lock();
        flow.unread = true;
        flow.bytes.clear();
        drop(flow);
        self.wake();
    }

    fn wake(&self) {
        self.readable.notify_all();
        self.writable.notify_all();
    }
}

/// Waits as long as `blocked`; `WouldBlock` when it still is after `timeout`.
fn wait_while(
    wake: &Condvar,
    flow: &mut MutexGuard<'_, Flow>,
    timeout: Option<Duration>,
    mut blocked: impl FnMut(&mut Flow) -> bool,
) -> io::Result<()> {
    let Some(timeout) = timeout else {
        wake.wait_while(flow, blocked);
        return Ok(());
    };
    wake.wait_while_for(flow, &mut blocked, timeout);
    match blocked(flow) {
        true => Err(ErrorKind::WouldBlock.into()),
        false => Ok(()),
    }
}
