//! The promises of networks, sockets and listeners; each network keeps them.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::{ChaosNetwork, Listener, MemoryNetwork, Network, RealNetwork, Socket};
use crate::transfer::tls::{DataTls, test_authority::Authority};

macro_rules! each_network_keeps {
    ($($clause:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $clause() { super::$clause(&super::RealNetwork::new()) })*
        }
        mod memory {
            $(#[test] fn $clause() { super::$clause(&super::MemoryNetwork::new()) })*
        }
        mod memory_byte_by_byte {
            $(#[test] fn $clause() { super::$clause(&super::MemoryNetwork::with_pipes(1)) })*
        }
        mod tls {
            $(#[test] fn $clause() { super::$clause(&super::TlsNetwork::over(super::RealNetwork::new())) })*
        }
        // A handshake fits, a record does not.
        mod tls_through_small_pipes {
            $(#[test] fn $clause() {
                super::$clause(&super::TlsNetwork::over(super::MemoryNetwork::with_pipes(4096)));
            })*
        }
        mod chaos_that_does_nothing {
            use std::sync::Arc;
            $(#[test] fn $clause() {
                super::$clause(&super::ChaosNetwork::new(Arc::new(super::MemoryNetwork::new())));
            })*
        }
    };
}

each_network_keeps! {
    bytes_arrive_in_their_order_both_ways,
    nothing_comes_within_the_time_out,
    a_sender_whom_nobody_reads_waits_and_is_told,
    what_was_said_before_the_end_is_read,
    a_shut_down_end_wakes_both_sides,
    whoever_sends_to_nobody_is_told,
    what_can_be_read_is_seen_without_reading,
    nobody_there_and_no_such_place_are_errors,
    an_address_is_one_listeners_until_it_is_dropped,
    a_closed_listener_wakes_who_waits,
}

const SOON: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// A network whose sockets have TLS around them, as those of nodes do.
#[derive(Debug)]
struct TlsNetwork {
    inner: Box<dyn Network>,
    tls: DataTls,
}

impl TlsNetwork {
    fn over(inner: impl Network + 'static) -> Self {
        Self { inner: Box::new(inner), tls: Authority::new().of_node("n1") }
    }
}

impl Network for TlsNetwork {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        let socket = self.inner.connect(address, timeout)?;
        Ok(Arc::new(self.tls.ask(socket, "n1").unwrap()))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        Ok(Arc::new(TlsListener { inner: self.inner.listen(address)?, tls: self.tls.clone() }))
    }
}

#[derive(Debug)]
struct TlsListener {
    inner: Arc<dyn Listener>,
    tls: DataTls,
}

impl Listener for TlsListener {
    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn accept(&self) -> io::Result<(Arc<dyn Socket>, SocketAddr)> {
        let (socket, from) = self.inner.accept()?;
        Ok((Arc::new(self.tls.serve(socket).unwrap()), from))
    }

    fn close(&self) {
        self.inner.close();
    }
}

fn listen(network: &dyn Network) -> Arc<dyn Listener> {
    network.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

/// Both ends of a new connection, which know each other: where they have to shake hands they have.
fn connected(network: &dyn Network) -> (Arc<dyn Socket>, Arc<dyn Socket>) {
    let listener = listen(network);
    let here = network.connect(&listener.address().to_string(), PATIENCE).unwrap();
    let (there, _) = listener.accept().unwrap();
    for socket in [&here, &there] {
        socket.set_receive_timeout(PATIENCE).unwrap();
        socket.set_send_timeout(PATIENCE).unwrap();
    }
    std::thread::scope(|threads| {
        threads.spawn(|| {
            send_all(&*here, b"?");
            assert_eq!(here.receive(&mut [0; 10]).unwrap(), 1);
        });
        assert_eq!(there.receive(&mut [0; 10]).unwrap(), 1);
        send_all(&*there, b"!");
    });
    (here, there)
}

/// Sends all of it, in pieces as they are taken.
fn send_all(socket: &dyn Socket, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let sent = socket.send(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)]).unwrap();
        assert!(sent > 0);
        bytes = &bytes[sent..];
    }
}

/// Everything up to the end.
fn receive_all(socket: &dyn Socket) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        match socket.receive(&mut buffer).unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn bytes_arrive_in_their_order_both_ways(network: &dyn Network) {
    let (here, there) = connected(network);
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_le_bytes()[..3].to_vec()).collect();
    let (up, down) = (&bytes[..200_000], &bytes[100_000..]);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            send_all(&*here, up);
            here.shutdown(Shutdown::Write).unwrap();
        });
        threads.spawn(|| {
            send_all(&*there, down);
            there.shutdown(Shutdown::Write).unwrap();
        });
        let received = threads.spawn(|| receive_all(&*there));
        assert!(receive_all(&*here) == down);
        assert!(received.join().unwrap() == up);
    });
}

fn nothing_comes_within_the_time_out(network: &dyn Network) {
    let (here, there) = connected(network);
    here.set_receive_timeout(SOON).unwrap();
    let nothing = here.receive(&mut [0; 10]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    send_all(&*there, b"7");
    here.set_receive_timeout(PATIENCE).unwrap();
    assert_eq!(here.receive(&mut [0; 10]).unwrap(), 1);
    assert!(here.set_receive_timeout(Duration::ZERO).is_err());
    assert!(here.set_send_timeout(Duration::ZERO).is_err());
}

fn a_sender_whom_nobody_reads_waits_and_is_told(network: &dyn Network) {
    let (here, there) = connected(network);
    here.set_send_timeout(SOON).unwrap();
    let (bytes, mut sent) = (vec![7; 1 << 20], 0);
    let error = loop {
        match here.send(&[IoSlice::new(&bytes)]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent < 1 << 30, "nobody reads, and all is taken");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // What was taken arrives, and nothing else.
    here.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive_all(&*there).len(), sent);
}

fn what_was_said_before_the_end_is_read(network: &dyn Network) {
    let (here, there) = connected(network);
    send_all(&*here, b"7");
    drop(here);
    assert_eq!(receive_all(&*there), b"7");
    assert_eq!(there.receive(&mut [0; 10]).unwrap(), 0, "the end stays the end");
}

fn a_shut_down_end_wakes_both_sides(network: &dyn Network) {
    let (here, there) = connected(network);
    std::thread::scope(|threads| {
        let waiting = [&here, &there].map(|socket| threads.spawn(|| socket.receive(&mut [0; 10])));
        here.shutdown(Shutdown::Both).unwrap();
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap().unwrap(), 0);
        }
    });
    assert!(here.send(&[IoSlice::new(b"7")]).is_err());
}

fn whoever_sends_to_nobody_is_told(network: &dyn Network) {
    let (here, there) = connected(network);
    drop(there);
    let bytes = [7; 1000];
    let error = (0..100_000).find_map(|_| here.send(&[IoSlice::new(&bytes)]).err()).expect("nobody is there");
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error:?}");
}

fn what_can_be_read_is_seen_without_reading(network: &dyn Network) {
    let (here, there) = connected(network);
    assert!(!here.is_readable());
    send_all(&*there, b"7");
    assert!(here.is_readable(), "a byte");
    assert_eq!(here.receive(&mut [0; 10]).unwrap(), 1);
    assert!(!here.is_readable(), "it was taken");
    drop(there);
    assert!(here.is_readable(), "the end");
}

fn nobody_there_and_no_such_place_are_errors(network: &dyn Network) {
    let listener = listen(network);
    let address = listener.address().to_string();
    drop(listener);
    let error = network.connect(&address, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    for address in ["no.such.host.invalid:1", "no address", ""] {
        assert!(network.connect(address, PATIENCE).is_err(), "{address:?}");
    }
}

fn an_address_is_one_listeners_until_it_is_dropped(network: &dyn Network) {
    let (first, other) = (listen(network), listen(network));
    assert_ne!(first.address(), other.address());
    let address = first.address();
    assert_eq!(network.listen(address).unwrap_err().kind(), ErrorKind::AddrInUse);
    first.close();
    drop(first);
    let second = network.listen(address).unwrap();
    assert_eq!(second.address(), address);
    network.connect(&address.to_string(), PATIENCE).unwrap();
    second.accept().unwrap();
}

fn a_closed_listener_wakes_who_waits(network: &dyn Network) {
    let listener = listen(network);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| listener.accept().map(drop));
        listener.close();
        listener.close();
        assert!(waiting.join().unwrap().is_err());
    });
    assert!(listener.accept().is_err(), "closed for ever");
    assert!(network.connect(&listener.address().to_string(), PATIENCE).is_err());
}

/// A chaos network that was told to cut.
fn chaos() -> ChaosNetwork {
    ChaosNetwork::new(Arc::new(MemoryNetwork::new()))
}

#[test]
fn chaos_cuts_after_so_many_bytes_once() {
    let network = chaos();
    let (here, there) = connected(&network);
    network.cut_after(1500);
    send_all(&*there, &[7; 4000]);
    assert_eq!(receive_all(&*here), [7; 1500]);
    assert_eq!(network.cuts(), 1);
    assert!(there.send(&[IoSlice::new(b"7")]).is_err(), "the other side is told");
    let (here, there) = connected(&network);
    send_all(&*there, &[7; 4000]);
    drop(there);
    assert_eq!(receive_all(&*here).len(), 4000);
    assert_eq!(network.cuts(), 1);
}

#[test]
fn chaos_cuts_all_that_are_open() {
    let network = chaos();
    let (first, second) = (connected(&network), connected(&network));
    drop(second);
    network.cut_all();
    assert_eq!(network.cuts(), 1, "one was closed before");
    assert_eq!(receive_all(&*first.0), b"");
    assert_eq!(receive_all(&*first.1), b"");
}
