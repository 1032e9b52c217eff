//! What can be wrong with TLS: with the files of this process, and on a connection.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, Error};

use super::CertifiedNode;

/// Why a process has no TLS for its data connections.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system, or the form of the file, says.
        cause: String,
    },
    /// Others on this machine can read the key.
    #[error("{path}: mode is {mode:04o}, but a key must be readable by its owner only; chmod 600 it")]
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file holds something else.
    #[error("{path}: {what}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Who listens shows a certificate.
    #[error("a node needs a certificate of its own for its data connections")]
    NoCertificate,
    /// A name that cannot be one.
    #[error("no name: {0}")]
    Name(String),
    /// The library does not do it.
    #[error("set up TLS: {0}")]
    Library(#[from] Error),
}

/// Why a connection is of no use, inside of the `io::Error` of a socket.
#[derive(Debug)]
pub(in crate::transfer) enum SecureError {
    /// This side does not believe the other one.
    Untrusted(String),
    /// The other side does not believe this one.
    Refused(String),
    /// What came is not what the other side said.
    Garbled(String),
}

impl fmt::Display for SecureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Untrusted(text) | Self::Refused(text) | Self::Garbled(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for SecureError {}

impl From<SecureError> for io::Error {
    fn from(error: SecureError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// What errors of a connection tell.
#[derive(Debug)]
pub(in crate::transfer) struct Told {
    pub(super) me: CertifiedNode,
    /// The file of the authorities that are known.
    pub(super) authorities: String,
    /// Whose certificate the other side has shown, whether or not it is believed.
    pub(super) shown: Arc<OnceLock<CertifiedNode>>,
}

impl Told {
    /// In plain words, where `during` the handshake is meant or what follows.
    pub(super) fn of(&self, error: &Error, in_handshake: bool) -> SecureError {
        match error {
            Error::InvalidCertificate(why) => SecureError::Untrusted(self.why_not(why)),
            Error::AlertReceived(alert) => SecureError::Refused(self.why_refused(*alert)),
            _ if in_handshake => SecureError::Untrusted(format!("it does not speak TLS as it should: {error}")),
            _ => SecureError::Garbled(format!("what came over TLS is not what was sent: {error}")),
        }
    }

    fn why_not(&self, why: &CertificateError) -> String {
        let named = self.shown.get().map(|node| format!(" of {node}")).unwrap_or_default();
        let because = match why {
            CertificateError::UnknownIssuer => format!("is signed by no authority of {}", self.authorities),
            other => because(other),
        };
        format!("its certificate{named} {because}")
    }

    fn why_refused(&self, alert: AlertDescription) -> String {
        let because = match alert {
            AlertDescription::UnknownCA => "is signed by no authority that it knows",
            AlertDescription::CertificateExpired => "has expired, or is not valid yet",
            AlertDescription::CertificateUnknown => "is not of the node and the cluster that it looks for",
            other => return format!("it ended the handshake of TLS: {other:?}"),
        };
        format!("the certificate of {} {because}", self.me)
    }
}

/// What is wrong with a certificate, to stand behind its name.
pub(super) fn because(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet".to_owned(),
        CertificateError::Other(other) => other.0.to_string(),
        other => format!("is not valid: {other}"),
    }
}
