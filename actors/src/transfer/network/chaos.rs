//! A network around a network that cuts connections.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Listener, Network, Socket};

/// Another network, on which connections can be made to break. Concerns those that are *made* through it; what only
/// listens, listens on the other network.
#[derive(Clone, Debug)]
pub struct ChaosNetwork {
    inner: Arc<dyn Network>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Bytes that are still received before the next cut.
    left: Option<u64>,
    cuts: u64,
    made: Vec<Weak<ChaosSocket>>,
}

impl ChaosNetwork {
    /// Does nothing to `inner` until it is told to.
    pub fn new(inner: Arc<dyn Network>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Of the bytes that arrive from now on, over all connections together, the first `bytes` are still received; the
    /// connection that would bring the next one breaks there, once.
    pub fn cut_after(&self, bytes: u64) {
        self.plan.lock().left = Some(bytes);
    }

    /// Breaks all connections that were made and are open.
    pub fn cut_all(&self) {
        let made = std::mem::take(&mut self.plan.lock().made);
        made.iter().filter_map(Weak::upgrade).for_each(|socket| socket.cut());
    }

    /// How many connections were broken.
    pub fn cuts(&self) -> u64 {
        self.plan.lock().cuts
    }
}

impl Network for ChaosNetwork {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        let inner = self.inner.connect(address, timeout)?;
        let mut plan = self.plan.lock();
        plan.made.retain(|socket| socket.strong_count() > 0);
        let socket = Arc::new(ChaosSocket { inner, plan: Arc::clone(&self.plan), broken: AtomicBool::new(false) });
        plan.made.push(Arc::downgrade(&socket));
        Ok(socket)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        self.inner.listen(address)
    }
}

#[derive(Debug)]
struct ChaosSocket {
    inner: Arc<dyn Socket>,
    plan: Arc<Mutex<Plan>>,
    broken: AtomicBool,
}

impl ChaosSocket {
    /// How many of `count` bytes may arrive.
    fn admit(&self, count: usize) -> usize {
        let mut plan = self.plan.lock();
        let Some(left) = plan.left else { return count };
        let admitted = left.min(count as u64) as usize;
        plan.left = if admitted < count { None } else { Some(left - admitted as u64) };
        admitted
    }

    fn cut(&self) {
        // The kernel hands out what had arrived even then: hence the flag.
        self.broken.store(true, Ordering::SeqCst);
        self.plan.lock().cuts += 1;
        let _ = self.inner.shutdown(Shutdown::Both);
    }
}

impl Socket for ChaosSocket {
    fn receive(&self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.receive(to)?;
        if self.broken.load(Ordering::SeqCst) {
            return Ok(0);
        }
        let admitted = self.admit(count);
        if admitted < count {
            self.cut();
        }
        Ok(admitted)
    }

    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.send(pieces)
    }

    fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_receive_timeout(timeout)
    }

    fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_send_timeout(timeout)
    }

    fn is_readable(&self) -> bool {
        self.inner.is_readable()
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }

    fn rest(&self) {
        self.inner.rest();
    }
}
