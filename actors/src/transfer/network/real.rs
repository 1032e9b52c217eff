//! TCP.
#![allow(clippy::disallowed_methods, reason = "this is the one network that opens real sockets")]

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, sockopt};
use tracing::debug;

use super::{Listener, Network, Socket};

/// The network of the operating system, over TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNetwork;

impl RealNetwork {
    /// It holds nothing.
    pub fn new() -> Self {
        Self
    }
}

impl Network for RealNetwork {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        let no_host = || io::Error::new(io::ErrorKind::NotFound, "no such host");
        let address = address.to_socket_addrs()?.next().ok_or_else(no_host)?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        set_up(&stream)?;
        Ok(Arc::new(RealSocket(stream)))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Arc::new(RealListener { listener, address }))
    }
}

/// Small messages go at once. A dead peer goes unnoticed for more than 25 s by default; so it takes about 3 s.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    Ok(sockopt::set_tcp_user_timeout(stream, 3000)?)
}

#[derive(Debug)]
struct RealListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener for RealListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> io::Result<(Arc<dyn Socket>, SocketAddr)> {
        loop {
            let (stream, from) = self.listener.accept()?;
            match set_up(&stream) {
                Ok(()) => return Ok((Arc::new(RealSocket(stream)), from)),
                Err(error) => debug!(%from, %error, "connection not set up"),
            }
        }
    }

    fn close(&self) {
        // Wakes the thread that is blocked in accept; a second time it is not connected, which is no harm.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

#[derive(Debug)]
struct RealSocket(TcpStream);

impl Socket for RealSocket {
    fn receive(&self, to: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(to)
    }

    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(pieces)
    }

    fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(timeout))
    }

    fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_write_timeout(Some(timeout))
    }

    fn is_readable(&self) -> bool {
        let peeked = rustix::net::recv(&self.0, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Err(rustix::io::Errno::WOULDBLOCK))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}
