//! What can go wrong between two nodes, and what is to be done about it.

use std::net::SocketAddr;
use std::{fmt, io};

use exobus_store::{CopyId, StoreError};

use super::tls::SecureError;
use super::wire::WireError;

/// A node and where its Transfer listens: "n3 at 127.0.0.1:7000".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    /// The node's name, which the server there must have; empty where only the address is known.
    pub node: String,
    /// `host:port`.
    pub address: String,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node.as_str() {
            "" => f.write_str(&self.address),
            node => write!(f, "{node} at {}", self.address),
        }
    }
}

impl From<&str> for PeerName {
    /// The peer of this address, whatever its name.
    fn from(address: &str) -> Self {
        Self { node: String::new(), address: address.to_owned() }
    }
}

impl From<&String> for PeerName {
    fn from(address: &String) -> Self {
        address.as_str().into()
    }
}

impl From<SocketAddr> for PeerName {
    fn from(address: SocketAddr) -> Self {
        address.to_string().as_str().into()
    }
}

impl From<&PeerName> for PeerName {
    fn from(peer: &PeerName) -> Self {
        peer.clone()
    }
}

/// Why bytes did not come from another node.
///
/// Healed by asking the same node again: [`Busy`](Self::Busy), [`Interrupted`](Self::Interrupted),
/// [`Stalled`](Self::Stalled), [`Garbled`](Self::Garbled), [`Corrupt`](Self::Corrupt) the first time. Healed by another
/// copy or a replay: those again, [`Unreachable`](Self::Unreachable), [`Absent`](Self::Absent),
/// [`Failed`](Self::Failed). A mistake in the set-up: [`Refused`](Self::Refused), [`Untrusted`](Self::Untrusted). The others are this node's own: nobody else is to blame.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransferError {
    /// No connection came about.
    #[error("cannot reach {peer}: {cause}")]
    Unreachable {
        /// The other node.
        peer: PeerName,
        /// What the operating system said.
        cause: String,
    },
    /// The other node does not want to talk: wrong token, other version, other node.
    #[error("{peer} refuses: {reason}")]
    Refused {
        /// The other node.
        peer: PeerName,
        /// Its words.
        reason: String,
    },
    /// This process does not believe that it is the other node.
    #[error("{peer} is not believed: {reason}")]
    Untrusted {
        /// The other node.
        peer: PeerName,
        /// What is wrong with it.
        reason: String,
    },
    /// The other node has as many connections as it may have.
    #[error("{peer} is busy: {reason}")]
    Busy {
        /// The other node.
        peer: PeerName,
        /// Its words.
        reason: String,
    },
    /// The connection ended in the middle.
    #[error("connection to {peer} ended after {bytes} bytes: {cause}")]
    Interrupted {
        /// The other node.
        peer: PeerName,
        /// Bytes of parts that had arrived in this request.
        bytes: u64,
        /// What ended it.
        cause: String,
    },
    /// Nothing, or next to nothing, came for too long.
    #[error("{peer} stalled after {bytes} bytes: {millis} ms without progress")]
    Stalled {
        /// The other node.
        peer: PeerName,
        /// Bytes of parts that had arrived in this request.
        bytes: u64,
        /// For how long, milliseconds.
        millis: u64,
    },
    /// What came is not the protocol, or not what was asked for.
    #[error("garbled answer of {peer} after {bytes} bytes: {cause}")]
    Garbled {
        /// The other node.
        peer: PeerName,
        /// Bytes of parts that had arrived in this request.
        bytes: u64,
        /// What was wrong.
        cause: String,
    },
    /// Bytes came whose checksum does not fit; the copy was dropped, the connection closed.
    #[error("object {object} came corrupt from {peer}: {cause}")]
    Corrupt {
        /// The other node.
        peer: PeerName,
        /// The object.
        object: CopyId,
        /// Which part.
        cause: String,
    },
    /// The other node does not have it (any more).
    #[error("object {object} is not on {peer}")]
    Absent {
        /// The other node.
        peer: PeerName,
        /// The object.
        object: CopyId,
    },
    /// The other node has it but cannot read it.
    #[error("{peer} cannot read object {object}: {reason}")]
    Failed {
        /// The other node.
        peer: PeerName,
        /// The object.
        object: CopyId,
        /// Its words.
        reason: String,
    },
    /// The memory here that the bytes were to go to did not take them.
    #[error("object {object} cannot be stored here: {cause}")]
    Store {
        /// The object.
        object: CopyId,
        /// What the store said.
        cause: StoreError,
    },
    /// Who was to take the bytes here does not.
    #[error("object {object} cannot be written here: {cause}")]
    Taken {
        /// The object.
        object: CopyId,
        /// What it said.
        cause: String,
    },
    /// More fetches wait already than the queue takes.
    #[error("{waiting} fetches are waiting already")]
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// There is no thread to fetch with, and none can be made.
    #[error("no thread to fetch with: {cause}")]
    NoThread {
        /// What the operating system said.
        cause: String,
    },
    /// Transfer was stopped, or the fetch was cancelled.
    #[error("the transfer was stopped")]
    Stopped,
}

impl TransferError {
    /// Whether nothing was heard of the peer.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Stalled { .. })
    }

    /// Whether this node has no room for what the other one has.
    pub fn is_lack_of_room(&self) -> bool {
        matches!(self, Self::Store { cause: exobus_store::StoreError::DiskFull { .. }, .. })
    }

    /// Whether asking the same node again, once, is of use.
    pub fn is_worth_a_retry(&self) -> bool {
        use TransferError as E;
        matches!(
            self,
            E::Busy { .. } | E::Interrupted { .. } | E::Stalled { .. } | E::Garbled { .. } | E::Corrupt { .. }
        )
    }

    /// Whether another copy of the object may be had where this one was not.
    pub fn is_about_the_peer(&self) -> bool {
        use TransferError as E;
        !matches!(self, E::Store { .. } | E::Taken { .. } | E::QueueFull { .. } | E::NoThread { .. } | E::Stopped)
    }
}

/// What went wrong on a connection, before it is known in which fetch.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The other side closed.
    Ended,
    /// No progress.
    Stalled { millis: u64 },
    /// Not what the layout says.
    Garbled(String),
    /// The other side cannot be believed.
    Untrusted(String),
    /// The other side does not believe this one.
    Refused(String),
    /// The operating system said so.
    Io(io::Error),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<SecureError>() {
            Ok(SecureError::Untrusted(why)) => Self::Untrusted(why),
            Ok(SecureError::Refused(why)) => Self::Refused(why),
            Ok(SecureError::Garbled(what)) => Self::Garbled(what),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Ended,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<WireError> for LinkError {
    fn from(error: WireError) -> Self {
        Self::Garbled(error.to_string())
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("closed by the other side"),
            Self::Stalled { millis } => write!(f, "{millis} ms without progress"),
            Self::Garbled(what) | Self::Untrusted(what) | Self::Refused(what) => f.write_str(what),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl LinkError {
    /// As an error of a fetch from `peer` of which `bytes` had arrived.
    pub(super) fn of(self, peer: &PeerName, bytes: u64) -> TransferError {
        let peer = peer.clone();
        match self {
            Self::Stalled { millis } => TransferError::Stalled { peer, bytes, millis },
            Self::Garbled(cause) => TransferError::Garbled { peer, bytes, cause },
            Self::Untrusted(reason) => TransferError::Untrusted { peer, reason },
            Self::Refused(reason) => TransferError::Refused { peer, reason },
            ended @ (Self::Ended | Self::Io(_)) => TransferError::Interrupted { peer, bytes, cause: ended.to_string() },
        }
    }
}
