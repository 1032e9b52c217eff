//! Connections between nodes behind a trait, so that the same code runs over TCP and in memory (law 9).
//!
//! [`RealNetwork`] is TCP. [`MemoryNetwork`] joins nodes of one process without a socket. [`ChaosNetwork`] wraps either
//! and cuts connections, for tests. All keep the promises written at the traits, which one list of tests holds them to.
//!
//! Calls block: each connection is one thread's (see [why](super#why-threads)). Over TCP, bytes go from the caller's
//! memory to the kernel and back, nothing is copied in between; the trait object costs one indirect call each time.

mod chaos;
mod memory;
mod real;

use std::fmt::Debug;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use chaos::ChaosNetwork;
pub use memory::MemoryNetwork;
pub use real::RealNetwork;

/// Where connections come from.
pub trait Network: Debug + Send + Sync {
    /// Connects to `address`, `host:port`, the first one that the name stands for.
    ///
    /// # Errors
    /// `NotFound`: no such host. `ConnectionRefused`: nobody listens there. `TimedOut`: no answer within `timeout`.
    /// What else the system says.
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>>;

    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse`: somebody listens there. What else the system says.
    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>>;
}

/// A place that others connect to. Dropping it closes it.
pub trait Listener: Debug + Send + Sync {
    /// Where it listens, with the port that it got.
    fn address(&self) -> SocketAddr;

    /// Waits for the next connection; also from where it comes. One that broke before it could be handed out is passed
    /// over.
    ///
    /// # Errors
    /// After [`close`](Self::close), always. Otherwise a want of descriptors or memory, which may pass.
    fn accept(&self) -> io::Result<(Arc<dyn Socket>, SocketAddr)>;

    /// Nobody can connect any more; whoever waits in [`accept`](Self::accept) is woken. Repeating it does nothing. The
    /// address is free when the listener is dropped.
    fn close(&self);
}

/// One end of a connection: two streams of bytes, one each way. Threads may share it; dropping it closes it.
///
/// The other side reads all that was sent before this side shut down or was dropped, unless the connection broke.
pub trait Socket: Debug + Send + Sync {
    /// Receives some bytes, at least one; 0: the end, no more will come.
    ///
    /// # Errors
    /// `WouldBlock`: nothing came within the time-out. `Interrupted`: to be tried again. Others end the connection.
    fn receive(&self, to: &mut [u8]) -> io::Result<usize>;

    /// Sends some bytes of `pieces`, in their order, at least one where there is one; how many.
    ///
    /// # Errors
    /// `WouldBlock`: there was no room within the time-out, nothing was sent; the next call sends the same bytes, or
    /// none. `Interrupted`: the same. Others end the connection; the other side being gone is one of them.
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// How long [`receive`](Self::receive) waits; zero is an error. At first: for ever.
    ///
    /// # Errors
    /// What the system says.
    fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// How long [`send`](Self::send) waits; zero is an error. At first: for ever.
    ///
    /// # Errors
    /// What the system says.
    fn set_send_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// Whether [`receive`](Self::receive) would return at once: with bytes, with the end, or with an error.
    fn is_readable(&self) -> bool;

    /// Ends one direction or both. Threads that wait in a call of that direction, on either side, are woken.
    ///
    /// # Errors
    /// What the system says; `NotConnected`, where the other side has ended it already and the network minds.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// Nothing is said for a while: what only makes it faster may go.
    fn rest(&self) {}
}

impl Read for &dyn Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.receive(to)
    }
}

impl Write for &dyn Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(from)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
