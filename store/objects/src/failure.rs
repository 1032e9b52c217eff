//! What goes wrong with a request, and what a caller of the file system is told.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use exobus_files::{FileError, Location};
use http::StatusCode;
use object_store::client::{HttpError, HttpErrorKind};

use crate::retry::PATIENCE;

/// Why a request has no answer that is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server says so.
    Status {
        /// The status.
        status: StatusCode,
        /// The server's own code, and what it says to people, where it has said any.
        says: Option<(String, String)>,
    },
    /// The server sends elsewhere.
    Redirect {
        /// Where, or the region that it names.
        to: String,
    },
    /// The name stands for an address that is not allowed.
    Address(IpAddr),
    /// Nobody knows the name of the server.
    Name(String),
    /// No connection, or one that broke.
    Connection(String),
    /// Nothing came for so long.
    Silent(Duration),
    /// Nobody's keys were found, or they cannot be used.
    Credentials(String),
}

/// A failure that is the last word.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    pub(crate) failure: Failure,
    /// How often the request was made; 0: its answer had begun, and broke.
    pub(crate) attempts: u32,
    /// Since it was made first.
    pub(crate) since: Duration,
}

impl Failure {
    /// Whether the same request may succeed later.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Status { status, says } => {
                let code = says.as_ref().map(|(code, _)| code.as_str());
                matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504 | 509)
                    || matches!(
                        code,
                        Some(
                            "ConditionalRequestConflict"
                                | "OperationAborted"
                                | "RequestTimeout"
                                | "SlowDown"
                                | "InternalError"
                        )
                    )
            }
            Self::Name(_) | Self::Connection(_) | Self::Silent(_) => true,
            Self::Redirect { .. } | Self::Address(_) | Self::Credentials(_) => false,
        }
    }

    /// How long it is hoped that it passes; `is_named`: in a request to where somebody's URL leads.
    pub(crate) fn patience(&self, is_named: bool) -> Duration {
        match self {
            // It may be a slip of the pen.
            Self::Name(_) if is_named => Duration::from_secs(10),
            _ => PATIENCE,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Status { status, .. } if matches!(status.as_u16(), 401 | 403) => io::ErrorKind::PermissionDenied,
            Self::Status { status, .. } if *status == StatusCode::NOT_FOUND => io::ErrorKind::NotFound,
            Self::Address(_) | Self::Credentials(_) => io::ErrorKind::PermissionDenied,
            failure if failure.passes() => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { says: Some((code, _)), .. } if code == "NoSuchBucket" => {
                f.write_str("there is no such bucket")
            }
            Self::Status { status, says } => {
                write!(f, "the server answers {status}")?;
                match says {
                    Some((code, message)) if message.is_empty() => write!(f, " ({code})"),
                    Some((code, message)) => write!(f, " ({code}: {message})"),
                    None => Ok(()),
                }
            }
            Self::Redirect { to } => {
                write!(
                    f,
                    "the server sends to {to}, which is not followed: the endpoint and the region are to be configured"
                )
            }
            Self::Address(address) => write!(
                f,
                "{address} is no public address: the networks that URLs may lead to are named in objects.networks"
            ),
            Self::Name(reason) => write!(f, "the name of the server is not found: {reason}"),
            Self::Connection(reason) => write!(f, "no connection: {reason}"),
            Self::Silent(time) => write!(f, "nothing came for {} s", time.as_secs()),
            Self::Credentials(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure)?;
        match self.attempts {
            0 | 1 => Ok(()),
            attempts => write!(f, ", {attempts} times in {} s", self.since.as_secs()),
        }
    }
}

impl Error for GivenUp {}

impl From<GivenUp> for HttpError {
    fn from(given_up: GivenUp) -> Self {
        HttpError::new(HttpErrorKind::Unknown, given_up)
    }
}

/// What the server says in the body of an answer: the elements `Code` and `Message` of S3's errors.
pub(crate) fn said(body: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(body);
    let element = |name: &str| {
        let from = text.find(&format!("<{name}>"))? + name.len() + 2;
        let to = text[from..].find(&format!("</{name}>"))?;
        let words: String = text[from..from + to].chars().filter(|letter| !letter.is_control()).take(300).collect();
        Some(words)
    };
    Some((element("Code")?, element("Message").unwrap_or_default()))
}

/// The failure that an error of the library comes from.
pub(crate) fn given_up(error: &object_store::Error) -> Option<&GivenUp> {
    cause(error)
}

/// The error of this type among an error and those behind it.
pub(crate) fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let behind = |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> { (*error).source() };
    std::iter::successors(Some(error), behind).find_map(|error| error.downcast_ref())
}

/// An error of the library as one of a file: its kind says whether the file is not there, is not for us, or may be had later.
pub(crate) fn failed(location: &Location, operation: &'static str, error: &object_store::Error) -> FileError {
    use object_store::Error as E;
    let source = match (given_up(error), error) {
        (Some(given_up), _) => io::Error::new(given_up.failure.kind(), given_up.clone()),
        (None, E::NotFound { .. }) => io::ErrorKind::NotFound.into(),
        (None, E::AlreadyExists { .. }) => io::ErrorKind::AlreadyExists.into(),
        (None, E::Precondition { .. }) => return FileError::Changed { path: location.to_path_buf() },
        (None, E::PermissionDenied { .. } | E::Unauthenticated { .. }) => io::ErrorKind::PermissionDenied.into(),
        (None, error) => io::Error::other(innermost(error)),
    };
    FileError::io(location, operation, 0, source)
}

/// The words of the error that is behind the others.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut last: &dyn Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_found_and_told() {
        let body = b"<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Please\n reduce</Message></Error>";
        assert_eq!(said(body), Some(("SlowDown".into(), "Please reduce".into())));
        assert_eq!(said(b"<html>"), None);
        let failure = Failure::Status { status: StatusCode::SERVICE_UNAVAILABLE, says: said(body) };
        assert!(failure.passes());
        let words = GivenUp { failure, attempts: 3, since: Duration::from_secs(7) }.to_string();
        assert!(words.contains("503") && words.ends_with("(SlowDown: Please reduce), 3 times in 7 s"), "{words}");
    }

    #[test]
    fn what_nobody_can_mend_by_waiting_does_not_pass() {
        let status = |status: u16| Failure::Status { status: StatusCode::from_u16(status).unwrap(), says: None };
        assert!([500, 502, 503, 504, 429, 408].into_iter().all(|code| status(code).passes()));
        assert!([400, 401, 403, 405, 416, 501].into_iter().all(|code| !status(code).passes()));
        assert!(!Failure::Address("127.0.0.1".parse().unwrap()).passes());
    }
}
