//! Serves the objects of this node's store to others.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use exobus_bus::Pace;
use exobus_store::{Clock, PartMeta, RangeRead, Store, StoreError};
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::error::LinkError;
use super::link::Link;
use super::network::{Listener, Socket};
use super::ticket::TransferTicket;
use super::tls::{self, TlsSocket};
use super::token::ClusterToken;
use super::wire::{self, Item, Kind, Status};
use super::{Counter, ServerOptions, ServerStats};

/// Answers below this size are collected before they are written.
const COLLECT_BYTES: usize = 128 * 1024;
/// Bodies from this size on are written from where they are instead of being copied to the others.
const DIRECT_BYTES: usize = 32 * 1024;

/// Read from disk in one go.
const DISK_BYTES: u64 = 512 << 10;
/// Everything large of a connection is on the heap.
const STACK_BYTES: usize = 256 * 1024;

/// The listening side.
#[derive(Debug)]
pub(super) struct Server {
    listener: Arc<dyn Listener>,
    /// Dropped to stop.
    stop: Option<Sender<()>>,
    accepting: Option<JoinHandle<()>>,
    service: Arc<Service>,
    connections: Arc<Connections>,
}

/// What each connection needs.
struct Service {
    options: ServerOptions,
    token: ClusterToken,
    store: Store,
    clock: Arc<dyn Clock>,
    counters: Counters,
    /// How often it is said that somebody was turned away.
    pace: Mutex<Pace>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("options", &self.options).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Counters {
    items: Counter,
    bytes: Counter,
    accepted: Counter,
    refused: Counter,
    garbled: Counter,
    stalled: Counter,
    accept_errors: Counter,
}

/// The sockets that are open, so that they can be shut down, and their threads.
#[derive(Debug, Default)]
struct Connections {
    open: Mutex<Open>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// By number, in the order in which they came.
#[derive(Debug, Default)]
struct Open {
    /// Who has shown the token.
    peers: BTreeMap<u64, Arc<dyn Socket>>,
    /// Who has not, yet: they have a few places of their own, and the newest has one.
    strangers: BTreeMap<u64, Arc<dyn Socket>>,
}

impl Connections {
    /// Lets somebody in that nobody knows. True: there were too many of those, and the oldest has to go.
    fn enter(&self, number: u64, socket: &Arc<dyn Socket>, strangers_max: usize) -> bool {
        let mut open = self.open.lock();
        open.strangers.insert(number, Arc::clone(socket));
        let one_too_many = open.strangers.len() > strangers_max.max(1);
        let oldest = if one_too_many { open.strangers.pop_first() } else { None };
        drop(open);
        // Its thread sees that, and ends.
        if let Some((_, socket)) = oldest {
            let _ = socket.shutdown(Shutdown::Both);
        }
        one_too_many
    }

    /// One of them has shown the token. False: there are too many peers.
    fn welcome(&self, number: u64, peers_max: usize) -> bool {
        let mut open = self.open.lock();
        let room = open.peers.len() < peers_max;
        if room && let Some(socket) = open.strangers.remove(&number) {
            open.peers.insert(number, socket);
        }
        room
    }

    fn leave(&self, number: u64) {
        let mut open = self.open.lock();
        open.peers.remove(&number);
        open.strangers.remove(&number);
    }
}

impl Server {
    /// Serves `store` to who connects.
    pub(super) fn start(
        options: ServerOptions,
        token: ClusterToken,
        store: Store,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let listener = options.network.listen(options.listen)?;
        let connections = Arc::new(Connections::default());
        let (stop, stopped) = bounded(0);
        let (counters, pace) = (Counters::default(), Mutex::default());
        let service = Arc::new(Service { options, token, store, clock, counters, pace });
        let (listening, own, open) = (Arc::clone(&listener), Arc::clone(&service), Arc::clone(&connections));
        let accepting = std::thread::Builder::new()
            .name("transfer-accept".to_owned())
            .spawn(move || accept(&*listening, &stopped, &own, &open))?;
        Ok(Self { listener, stop: Some(stop), accepting: Some(accepting), service, connections })
    }

    pub(super) fn stats(&self) -> ServerStats {
        let Counters { items, bytes, accepted, refused, garbled, stalled, accept_errors } = &self.service.counters;
        ServerStats {
            items: items.get(),
            bytes: bytes.get(),
            accepted: accepted.get(),
            refused: refused.get(),
            garbled: garbled.get(),
            stalled: stalled.get(),
            accept_errors: accept_errors.get(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        // Wakes the thread that is blocked in accept.
        self.listener.close();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let open = self.connections.open.lock();
        for socket in open.peers.values().chain(open.strangers.values()) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(open);
        for thread in self.connections.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

/// How long to wait after so many failed accepts in a row: 20 ms, doubled each time, at most 1 s. The listener's
/// backlog keeps the callers meanwhile.
fn backoff(failures: u32) -> Duration {
    Duration::from_millis(10 << failures.min(7)).min(Duration::from_secs(1))
}

fn accept(listener: &dyn Listener, stopped: &Receiver<()>, service: &Arc<Service>, connections: &Arc<Connections>) {
    let mut failures = 0;
    let mut next = 0;
    loop {
        let accepted = listener.accept();
        let stopping = |wait| !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
        if stopping(Duration::ZERO) {
            return;
        }
        let (socket, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: taking in nobody for a moment lets connections end.
                failures += 1;
                service.counters.accept_errors.add(1);
                warn!(%error, failures, "connection not accepted");
                if stopping(backoff(failures)) {
                    return;
                }
                continue;
            }
        };
        failures = 0;
        next += 1;
        connections.threads.lock().retain(|thread| !thread.is_finished());
        service.counters.accepted.add(1);
        // Whoever it is, this thread neither waits for it nor speaks to it.
        if connections.enter(next, &socket, service.options.strangers_max) {
            service.turned_away(from, &"more connect than say who they are; the oldest go");
        }
        let (own, open) = (Arc::clone(service), Arc::clone(connections));
        let work = move || {
            serve(&own, &open, next, socket, from);
            open.leave(next);
        };
        match std::thread::Builder::new().name(format!("transfer-serve-{next}")).stack_size(STACK_BYTES).spawn(work) {
            Ok(thread) => connections.threads.lock().push(thread),
            Err(error) => {
                // Threads run out as descriptors do: this caller is turned away, the node goes on.
                connections.leave(next);
                service.counters.accept_errors.add(1);
                warn!(%from, %error, "no thread for a connection");
            }
        }
    }
}

impl Service {
    /// Counts who is turned away; one a minute is logged.
    fn turned_away(&self, from: SocketAddr, why: &dyn std::fmt::Display) {
        self.counters.refused.add(1);
        if let Some(connections) = self.pace.lock().happened(self.clock.now()) {
            warn!(%from, %why, connections, "connections turned away, this one and more; logged once a minute");
        }
    }
}

/// Begins a refusal that time heals.
pub(super) const BUSY: &str = "busy";

fn serve(service: &Service, connections: &Connections, number: u64, socket: Arc<dyn Socket>, from: SocketAddr) {
    let secured = match service.options.tls.as_ref().map(|tls| tls.serve(Arc::clone(&socket))).transpose() {
        Ok(secured) => secured.map(Arc::new),
        Err(error) => return service.turned_away(from, &error),
    };
    let socket = secured.clone().map_or(socket, |secured| secured);
    // All of the greeting has this time, however it trickles.
    let mut link = match Link::new(socket, Arc::clone(&service.clock), service.options.welcome) {
        Ok(link) => link,
        Err(error) => return debug!(%from, %error, "connection not set up"),
    };
    let Caller { name: caller, ticket } = match greet(service, connections, number, &mut link, secured.as_deref()) {
        Ok(caller) => caller,
        // It only looked whether somebody is there (`membership`), or was a stranger for too long.
        Err(LinkError::Ended) => {
            service.counters.refused.add(1);
            return;
        }
        // It is counted before the other side hears of it.
        Err(LinkError::Garbled(reason)) => {
            service.turned_away(from, &reason);
            let _ = link.write(&wire::encode_welcome(Err(&reason)), &[]);
            return;
        }
        Err(error) => return service.turned_away(from, &error),
    };
    if let Err(error) = link.write(&wire::encode_welcome(Ok(service.options.node.as_str())), &[]) {
        return service.turned_away(from, &error);
    }
    link.set_stall(service.options.stall);
    let mut out = Vec::new();
    // What a connection keeps from one answer to the next, and what reads from disk take beside it.
    let mut buffers = service.store.told(exobus_store::Beside::Tables);
    loop {
        link.rest();
        if !matches!(link.wait(service.options.idle), Ok(true)) {
            break;
        }
        if ticket.is_some_and(|ticket| ticket.is_over(service.clock.unix_ms())) {
            debug!(node = caller, %from, "the time of a ticket is over");
            break;
        }
        link.begin();
        match answer(service, &mut link, &mut out, ticket) {
            Ok(()) => {}
            // Cancelled by the other side, or it died: its own business.
            Err(LinkError::Ended | LinkError::Io(_)) => break,
            Err(LinkError::Garbled(cause) | LinkError::Untrusted(cause) | LinkError::Refused(cause)) => {
                service.counters.garbled.add(1);
                warn!(node = caller, %from, cause, "garbled request");
                break;
            }
            Err(error @ LinkError::Stalled { .. }) => {
                service.counters.stalled.add(1);
                warn!(node = caller, %from, %error, "connection given up");
                break;
            }
        }
        out.clear();
        buffers.set(2 * out.capacity() as u64 + if secured.is_some() { tls::BUFFER_BYTES } else { 0 });
    }
}

/// Who calls.
struct Caller {
    name: String,
    /// What it has shown in place of the cluster's token.
    ticket: Option<TransferTicket>,
}

/// Reads the hello: who calls; `Garbled`: why it is refused.
fn greet(
    service: &Service,
    connections: &Connections,
    number: u64,
    link: &mut Link,
    secured: Option<&TlsSocket>,
) -> Result<Caller, LinkError> {
    let head = link.read_array::<{ wire::HELLO_BYTES }>()?;
    let lengths = match wire::decode_hello_head(&head) {
        Ok(lengths) => lengths,
        Err(error) => return refuse(error.to_string()),
    };
    let texts = link.read_vec(lengths.iter().sum::<usize>() as u64)?;
    let hello = wire::decode_hello_texts(lengths, &texts)?;
    let me = service.options.node.as_str();
    let ticket = match service.token.matches(hello.token) {
        true => None,
        false => match TransferTicket::genuine(hello.token, service.token.expose()) {
            Some(ticket) if ticket.is_over(service.clock.unix_ms()) => {
                return refuse("the time of the ticket is over: ask for another one".to_owned());
            }
            Some(ticket) => Some(ticket),
            None => return refuse("wrong cluster token".to_owned()),
        },
    };
    if let Some(reason) = secured.and_then(|secured| not_certified(secured, hello.from, ticket.is_some())) {
        return refuse(reason);
    }
    if !hello.to.is_empty() && !me.is_empty() && hello.to != me {
        return refuse(format!("this is node {me}, not {}", hello.to));
    }
    let most = service.options.connections_max;
    if !connections.welcome(number, most) {
        return refuse(format!("{BUSY}: serves {most} connections"));
    }
    Ok(Caller { name: hello.from.to_owned(), ticket })
}

/// Why a caller is not who it says, by its certificate.
fn not_certified(secured: &TlsSocket, says: &str, has_ticket: bool) -> Option<String> {
    match (secured.peer(), says) {
        (Some(shown), says) if says.is_empty() || shown.node == says => None,
        (Some(shown), says) => Some(format!("the hello is of node {says}, the certificate of {shown}")),
        (None, "") if has_ticket => None,
        (None, "") => Some("the token of nodes needs the certificate of one".to_owned()),
        (None, says) => Some(format!("node {says} has shown no certificate")),
    }
}

fn refuse(reason: String) -> Result<Caller, LinkError> {
    Err(LinkError::Garbled(reason))
}

fn answer(
    service: &Service,
    link: &mut Link,
    out: &mut Vec<u8>,
    ticket: Option<TransferTicket>,
) -> Result<(), LinkError> {
    let head = wire::decode_request_head(&link.read_array::<{ wire::REQUEST_BYTES }>()?)?;
    let body = link.read_vec((head.items * wire::ITEM_BYTES) as u64)?;
    let items = wire::decode_items(&head, &body)?;
    drop(body);
    let mut bytes = 0;
    for (index, item) in items.iter().enumerate() {
        let index = index as u32;
        let opened = ticket.is_none_or(|ticket| ticket.group == item.object.group);
        // That reads all of an object: who only has a ticket compares what it gets.
        if head.kind == Kind::Verify
            && ticket.is_none()
            && let Err(error) = service.store.verify(&item.object)
        {
            // It is not here any more, or cannot be read: what follows says so.
            warn!(object_id = %item.object, %error, "object verified for who got wrong bytes");
        }
        let found = if opened { find(&service.store, item) } else { Found::Absent };
        let parts = match found {
            Found::Parts(parts) => parts,
            Found::Absent => {
                wire::encode_answer_head(out, index, Status::Absent, 0, &[]);
                continue;
            }
            Found::Failed(reason) => {
                fail(out, index, &reason);
                continue;
            }
        };
        match head.kind {
            Kind::Directory | Kind::Verify => {
                let body = wire::encode_parts(&parts);
                wire::encode_answer_head(out, index, Status::Here, body.len() as u64, &body);
                put(link, out, &body)?;
            }
            Kind::Read => bytes += send(service, link, out, index, item, &parts)?,
        }
        if out.len() >= COLLECT_BYTES {
            link.write(out, &[])?;
            out.clear();
        }
    }
    link.write(out, &[])?;
    service.counters.items.add(items.len() as u64);
    service.counters.bytes.add(bytes);
    Ok(())
}

enum Found {
    Parts(Vec<PartMeta>),
    Absent,
    Failed(String),
}

fn find(store: &Store, item: &Item) -> Found {
    let Some(meta) = store.meta(&item.object) else { return Found::Absent };
    match item.parts.range(meta.parts.len()) {
        Some(range) => Found::Parts(meta.parts[range].to_vec()),
        None => Found::Failed(format!("it has {} parts, {:?} were asked for", meta.parts.len(), item.parts)),
    }
}

fn fail(out: &mut Vec<u8>, index: u32, reason: &str) {
    let body = &reason.as_bytes()[..reason.floor_char_boundary(wire::TEXT_BYTES_MAX as usize)];
    wire::encode_answer_head(out, index, Status::Failed, body.len() as u64, body);
    out.extend_from_slice(body);
}

/// Collects a small body, writes a large one together with what was collected.
fn put(link: &mut Link, out: &mut Vec<u8>, body: &[u8]) -> Result<(), LinkError> {
    if body.len() < DIRECT_BYTES {
        out.extend_from_slice(body);
        return Ok(());
    }
    link.write(out, body)?;
    out.clear();
    Ok(())
}

/// Sends the bytes of `parts`; how many there were.
fn send(
    service: &Service,
    link: &mut Link,
    out: &mut Vec<u8>,
    index: u32,
    item: &Item,
    parts: &[PartMeta],
) -> Result<u64, LinkError> {
    let range = wire::byte_range(parts);
    let bytes = range.end - range.start;
    if bytes == 0 {
        wire::encode_answer_head(out, index, Status::Here, 0, &[]);
        return Ok(0);
    }
    let read = match service.store.read_range(&item.object, range.start, bytes) {
        Ok(read) => read,
        Err(StoreError::NotFound(_)) => {
            wire::encode_answer_head(out, index, Status::Absent, 0, &[]);
            return Ok(0);
        }
        Err(error) => {
            fail(out, index, &error.to_string());
            return Ok(0);
        }
    };
    wire::encode_answer_head(out, index, Status::Here, bytes, &[]);
    match read {
        RangeRead::Memory(block) => put(link, out, &block)?,
        RangeRead::Disk(mut disk) => {
            while disk.remaining() > 0 {
                let begin = out.len();
                out.resize(begin + disk.remaining().min(DISK_BYTES) as usize, 0);
                disk.read(&mut out[begin..]).map_err(|error| gone(item, &error))?;
                if out.len() >= COLLECT_BYTES {
                    link.write(out, &[])?;
                    out.clear();
                }
            }
        }
    }
    Ok(bytes)
}

/// An object that went away in the middle of its bytes: all that can be said is to say no more.
fn gone(item: &Item, error: &StoreError) -> LinkError {
    warn!(object_id = %item.object, %error, "object lost while it was sent");
    LinkError::Ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_backs_off_up_to_a_second() {
        let waits: Vec<_> = (1..10).map(|failures| backoff(failures).as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    }
}
