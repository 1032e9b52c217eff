//! One session of the library, without buffers of its own: bytes that came go in, plain ones come out, and the other way round.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use rustls::{ClientConfig, Error, ServerConfig};

/// Most plain bytes of a record.
pub(super) const RECORD_BYTES: usize = 16 * 1024;

/// Bytes that are on their way out.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: Vec<u8>,
    end: usize,
}

impl Room {
    /// What is to be sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    pub(super) fn clear(&mut self) {
        self.end = 0;
    }

    /// Lets `write` append, with as much room as it needs.
    fn append(&mut self, mut write: impl FnMut(&mut [u8]) -> Result<usize, Lack>) -> Result<(), Error> {
        loop {
            match write(&mut self.bytes[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(Lack::Room(needed)) => self.bytes.resize(self.end + needed, 0),
                Err(Lack::Other(text)) => return Err(Error::General(text)),
            }
        }
    }
}

/// Why nothing was appended.
enum Lack {
    Room(usize),
    Other(String),
}

impl From<EncodeError> for Lack {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Self::Room(required_size),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<EncryptError> for Lack {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Self::Room(required_size),
            other => Self::Other(other.to_string()),
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do.
    Again,
    /// The handshake needs more bytes from the other side.
    Blocked,
    /// The handshake is done; for more plain bytes, more have to come.
    Ready,
    /// The other side has said that it says no more.
    Closed,
}

/// One end of a session.
pub(super) enum Session {
    Asking(Box<UnbufferedClientConnection>),
    Serving(Box<UnbufferedServerConnection>),
}

impl Session {
    pub(super) fn asking(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        Ok(Self::Asking(Box::new(UnbufferedClientConnection::new(config, name)?)))
    }

    pub(super) fn serving(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self::Serving(Box::new(UnbufferedServerConnection::new(config)?)))
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self, Self::Serving(_))
    }

    /// Whether the other side has shown a certificate.
    pub(super) fn has_certificate(&self) -> bool {
        match self {
            Self::Asking(session) => session.peer_certificates().is_some(),
            Self::Serving(session) => session.peer_certificates().is_some(),
        }
    }

    /// Looks at the bytes that came: how many of them are done with, and what came of it. Plain bytes go to `take`, what is to be said to
    /// the other side to `out`.
    pub(super) fn step(
        &mut self,
        came: &mut [u8],
        out: &mut Room,
        take: impl FnMut(&[u8]),
    ) -> (usize, Result<Step, Error>) {
        match self {
            Self::Asking(session) => step(session.process_tls_records(came), out, take),
            Self::Serving(session) => step(session.process_tls_records(came), out, take),
        }
    }

    /// Appends `plain` to `out` as records.
    pub(super) fn encrypt(&mut self, plain: &[u8], out: &mut Room) -> Result<(), Error> {
        match self {
            Self::Asking(session) => encrypt(session.process_tls_records(&mut []), plain, out),
            Self::Serving(session) => encrypt(session.process_tls_records(&mut []), plain, out),
        }
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Room,
    mut take: impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let work = || {
        Ok(match state? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    take(record.payload);
                }
                Step::Again
            }
            ConnectionState::EncodeTlsData(mut data) => {
                out.append(|room| data.encode(room).map_err(Lack::from))?;
                Step::Again
            }
            // It is in `out`, in front of all that follows.
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Step::Again
            }
            ConnectionState::BlockedHandshake => Step::Blocked,
            ConnectionState::WriteTraffic(_) => Step::Ready,
            ConnectionState::PeerClosed | ConnectionState::Closed => Step::Closed,
            other => return Err(Error::General(format!("a state that is not foreseen: {other:?}"))),
        })
    };
    let came_to = work();
    (discard, came_to)
}

fn encrypt<Data>(status: UnbufferedStatus<'_, '_, Data>, plain: &[u8], out: &mut Room) -> Result<(), Error> {
    match status.state? {
        ConnectionState::WriteTraffic(mut traffic) => {
            out.append(|room| traffic.encrypt(plain, room).map_err(Lack::from))
        }
        other => Err(Error::General(format!("nothing can be sent: {other:?}"))),
    }
}
