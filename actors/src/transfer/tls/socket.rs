//! A socket around a socket: what goes through it is encrypted.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::debug;

use super::super::network::Socket;
use super::super::wire;
use super::CertifiedNode;
use super::error::{SecureError, Told};
use super::session::{RECORD_BYTES, Room, Session, Step};

/// Encrypted, and sent, in one go: it stays in the processor's cache.
const SEND_BYTES: usize = 4 * RECORD_BYTES;
/// Received in one go, where much comes.
const RECEIVE_BYTES: usize = 128 * 1024;
/// The same, where nothing has come yet: a connection that rests holds no more. A record has less than four times as much.
const FIRST_BYTES: usize = 8 * 1024;
/// What is read of who was turned away, so that the system does not drop the reason on its way because something was not read.
const LINGER_READS: usize = 16;

/// What a connection takes while it is in use, beside what it takes without TLS.
pub(in crate::transfer) const BUFFER_BYTES: u64 = (SEND_BYTES + RECEIVE_BYTES + 2 * RECORD_BYTES) as u64;

/// One end of a connection with TLS. See the [module](super) for who believes whom; the handshake happens in the first call that sends or
/// receives.
pub(in crate::transfer) struct TlsSocket {
    inner: Arc<dyn Socket>,
    told: Told,
    /// Locked last, and never while a call of `inner` may block.
    session: Mutex<Session>,
    /// Locked before `outgoing`.
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    established: AtomicBool,
}

impl std::fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSocket").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What has come.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// Whether the last call of the system filled all the room there was.
    filled: bool,
    /// What was decrypted and had no room where it was wanted.
    plain: Vec<u8>,
    taken: usize,
    /// What is wrong with what came behind the bytes that were handed out.
    broken: Option<SecureError>,
}

impl Incoming {
    fn take(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.plain.len() - self.taken);
        to[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.plain.len() {
            (self.plain, self.taken) = (std::mem::take(&mut self.plain), 0);
            self.plain.clear();
        }
        count
    }

    fn discard(&mut self, count: usize) {
        self.from += count;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Receives more; 0: there is no more.
    fn receive(&mut self, socket: &dyn Socket) -> io::Result<usize> {
        // The beginning of a record.
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.filled || self.bytes.is_empty() {
            let more = (4 * self.bytes.len()).clamp(FIRST_BYTES, RECEIVE_BYTES);
            self.bytes.resize(more, 0);
        }
        let count = socket.receive(&mut self.bytes[self.to..])?;
        self.to += count;
        self.filled = self.to == self.bytes.len();
        Ok(count)
    }
}

/// What is on its way out.
#[derive(Default)]
struct Outgoing {
    room: Room,
    /// Of it, what has gone.
    gone: usize,
    /// Where records with the caller's bytes end, and how many bytes those are; none of them was said to be sent.
    records: std::collections::VecDeque<(usize, usize)>,
}

impl Outgoing {
    fn flush(&mut self, socket: &dyn Socket) -> io::Result<()> {
        while self.gone < self.room.bytes().len() {
            match socket.send(&[IoSlice::new(&self.room.bytes()[self.gone..])])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => self.gone += count,
            }
        }
        Ok(())
    }

    /// How many of the caller's bytes have gone in whole records since it was asked last.
    fn sent(&mut self) -> usize {
        let mut sent = 0;
        while let Some((_, bytes)) = self.records.pop_front_if(|(end, _)| *end <= self.gone) {
            sent += bytes;
        }
        if self.gone == self.room.bytes().len() {
            self.room.clear();
            self.gone = 0;
        }
        sent
    }
}

/// How far a handshake is.
enum Greeting {
    Done,
    /// The other side has gone without a reason.
    Ended,
}

impl TlsSocket {
    pub(super) fn new(inner: Arc<dyn Socket>, session: Session, told: Told) -> Self {
        let (session, incoming, outgoing) = (Mutex::new(session), Mutex::default(), Mutex::default());
        Self { inner, told, session, incoming, outgoing, established: AtomicBool::new(false) }
    }

    /// The node that has shown its certificate, once something was received.
    pub(in crate::transfer) fn peer(&self) -> Option<&CertifiedNode> {
        let established = self.established.load(Ordering::Acquire);
        (established && self.session.lock().has_certificate()).then(|| self.told.shown.get()).flatten()
    }

    /// Makes the connection one that is believed, if it is not yet.
    fn greet(&self, incoming: &mut Incoming) -> io::Result<Greeting> {
        if self.established.load(Ordering::Acquire) {
            return Ok(Greeting::Done);
        }
        let mut outgoing = self.outgoing.lock();
        loop {
            outgoing.flush(&*self.inner)?;
            outgoing.sent();
            let Incoming { bytes, from, to, plain, .. } = &mut *incoming;
            let take = |piece: &[u8]| plain.extend_from_slice(piece);
            let (done, step) = self.session.lock().step(&mut bytes[*from..*to], &mut outgoing.room, take);
            incoming.discard(done);
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Ready) => {
                    outgoing.flush(&*self.inner)?;
                    outgoing.sent();
                    self.established.store(true, Ordering::Release);
                    return Ok(Greeting::Done);
                }
                Ok(Step::Blocked) => {
                    if incoming.receive(&*self.inner)? == 0 {
                        return Ok(Greeting::Ended);
                    }
                    if incoming.bytes[incoming.from..incoming.to].starts_with(&wire::MAGIC) {
                        return Err(self.plain_peer().into());
                    }
                }
                Ok(Step::Closed) => return Ok(Greeting::Ended),
                Err(error) => {
                    drop(outgoing);
                    return Err(self.give_up(&error, incoming, true).into());
                }
            }
        }
    }

    /// The other side speaks our protocol without TLS: it is told in its own words.
    fn plain_peer(&self) -> SecureError {
        let text =
            "it speaks without TLS: the data connections of all nodes have it, or of none (security.data_ca_file)";
        if self.session.lock().is_serving() {
            let reason = format!(
                "the data connections of node {} need TLS: security.data_ca_file, and for a node data_cert_file and data_key_file",
                self.told.me.node
            );
            // It goes unheard where the other side has gone.
            let _ = self.inner.send(&[IoSlice::new(&wire::encode_welcome(Err(&reason)))]);
            self.linger();
        }
        SecureError::Untrusted(text.to_owned())
    }

    /// Ends the session for this reason, and tells the other side where it can be told.
    fn give_up(&self, error: &rustls::Error, incoming: &mut Incoming, in_handshake: bool) -> SecureError {
        let (mut last, mut session) = (Room::default(), self.session.lock());
        // Where there is an alert it comes first. What the other side has ended needs none.
        if !matches!(error, rustls::Error::AlertReceived(_)) {
            let _ = session.step(&mut incoming.bytes[incoming.from..incoming.to], &mut last, |_| {});
        }
        let serving = session.is_serving();
        drop(session);
        // Behind half a record it would be no alert; and who is in the way of one does not wait for it.
        let free = self.outgoing.try_lock().is_some_and(|outgoing| outgoing.room.bytes().len() == outgoing.gone);
        if free && !last.bytes().is_empty() {
            let _ = self.inner.send(&[IoSlice::new(last.bytes())]);
            if serving {
                self.linger();
            }
        }
        self.told.of(error, in_handshake)
    }

    /// Says no more, and reads what the other side has said meanwhile.
    fn linger(&self) {
        let _ = self.inner.shutdown(Shutdown::Write);
        let mut rest = [0; 4096];
        for _ in 0..LINGER_READS {
            match self.inner.receive(&mut rest) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }

    /// Decrypts whole records of what came, into `to`, and where that is full into `plain`: how many bytes `to` has.
    fn decrypt(&self, incoming: &mut Incoming, to: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        let mut unforeseen = Room::default();
        if let Some(broken) = incoming.broken.take() {
            return Err(broken.into());
        }
        while incoming.from < incoming.to && filled < to.len() {
            let Incoming { bytes, from, to: end, plain, .. } = &mut *incoming;
            let take = |piece: &[u8]| {
                let count = piece.len().min(to.len() - filled);
                to[filled..filled + count].copy_from_slice(&piece[..count]);
                plain.extend_from_slice(&piece[count..]);
                filled += count;
            };
            let (done, step) = self.session.lock().step(&mut bytes[*from..*end], &mut unforeseen, take);
            incoming.discard(done);
            match step {
                Ok(Step::Again) => {}
                Ok(_) => break,
                Err(error) => {
                    let broken = self.give_up(&error, incoming, false);
                    if filled == 0 {
                        return Err(broken.into());
                    }
                    // What came before is right.
                    incoming.broken = Some(broken);
                    break;
                }
            }
        }
        match unforeseen.bytes() {
            [] => Ok(filled),
            // Answers to a change of keys go in front of what is sent next, by the session itself.
            _ => Err(SecureError::Garbled("the handshake began anew".to_owned()).into()),
        }
    }

    /// Encrypts the next bytes of `pieces`.
    fn encrypt(&self, pieces: &[IoSlice<'_>], outgoing: &mut Outgoing) -> io::Result<()> {
        let mut session = self.session.lock();
        let records = pieces.iter().flat_map(|piece| piece.chunks(RECORD_BYTES));
        let mut bytes = 0;
        for record in records {
            if bytes >= SEND_BYTES {
                break;
            }
            let encrypted = session.encrypt(record, &mut outgoing.room);
            encrypted.map_err(|error| io::Error::from(self.told.of(&error, false)))?;
            outgoing.records.push_back((outgoing.room.bytes().len(), record.len()));
            bytes += record.len();
        }
        Ok(())
    }
}

impl Socket for TlsSocket {
    fn receive(&self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        let mut incoming = self.incoming.lock();
        if let Greeting::Ended = self.greet(&mut incoming)? {
            return Ok(0);
        }
        loop {
            let count = incoming.take(to);
            if count > 0 {
                return Ok(count);
            }
            let count = self.decrypt(&mut incoming, to)?;
            if count > 0 {
                return Ok(count);
            }
            if incoming.receive(&*self.inner)? == 0 {
                return Ok(0);
            }
        }
    }

    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.established.load(Ordering::Acquire)
            && let Greeting::Ended = self.greet(&mut self.incoming.lock())?
        {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut outgoing = self.outgoing.lock();
        if outgoing.records.is_empty() {
            self.encrypt(pieces, &mut outgoing)?;
        }
        let flushed = outgoing.flush(&*self.inner);
        match (outgoing.sent(), flushed) {
            (0, Err(error)) => Err(error),
            (sent, Err(error)) => {
                debug!(%error, sent, "sent in part");
                Ok(sent)
            }
            (sent, Ok(())) => Ok(sent),
        }
    }

    fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_receive_timeout(timeout)
    }

    fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_send_timeout(timeout)
    }

    /// Part of a record counts, too.
    fn is_readable(&self) -> bool {
        let waits = |incoming: &Incoming| incoming.taken < incoming.plain.len() || incoming.from < incoming.to;
        self.incoming.try_lock().is_some_and(|incoming| waits(&incoming)) || self.inner.is_readable()
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }

    fn rest(&self) {
        if let Some(mut incoming) = self.incoming.try_lock()
            && incoming.from == incoming.to
            && incoming.taken == incoming.plain.len()
        {
            *incoming = Incoming::default();
        }
        if let Some(mut outgoing) = self.outgoing.try_lock()
            && outgoing.room.bytes().is_empty()
        {
            *outgoing = Outgoing::default();
        }
    }
}
