//! Messages: bytes with headers. The payload limit counts both, as a NATS server does.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Header: id of the trace that the message belongs to.
pub const TRACE_ID: &str = "Exo-Trace-Id";
/// Header: how many milliseconds the sender still waits.
pub const DEADLINE_MS: &str = "Exo-Deadline-Ms";
/// Header: id by which a repeated message is known; the name is the one that JetStream looks at.
pub const DEDUPE_ID: &str = "Nats-Msg-Id";

/// Why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The name is empty or holds something else than letters, digits, `-` and `_`.
    #[error("header name {0:?} is not made of letters, digits, `-` and `_`")]
    Name(String),
    /// The value holds control characters (line ends would forge headers), or space around it, which would be lost.
    #[error("value of header {0} holds control characters or space around it")]
    Value(String),
    /// The name is one that the bus itself uses on records of streams.
    #[error("header {0} belongs to the bus")]
    Reserved(String),
}

/// Names with values, sorted by name; a name may come several times. Small: a handful at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    entries: Vec<(String, String)>,
}

impl Headers {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a name; earlier values of it are gone.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        check(name, value)?;
        self.entries.retain(|(known, _)| known != name);
        self.append(name, value)
    }

    /// Adds a value to a name, after its earlier ones.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn append(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        check(name, value)?;
        let at = self.entries.partition_point(|(known, _)| known.as_str() <= name);
        self.entries.insert(at, (name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The first value of a name. Names are compared byte by byte.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All names with values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes on the wire: 0 when there are none.
    pub fn wire_bytes(&self) -> usize {
        if self.entries.is_empty() {
            return 0;
        }
        // "NATS/1.0\r\n", then "name: value\r\n" each, then "\r\n".
        12 + self.entries.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>()
    }
}

fn check(name: &str, value: &str) -> Result<(), HeaderError> {
    let name_ok = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(name_ok) {
        return Err(HeaderError::Name(name.to_owned()));
    }
    if value.chars().any(char::is_control) || value.trim() != value {
        return Err(HeaderError::Value(name.to_owned()));
    }
    Ok(())
}

/// What is sent and received. Cheap to clone but for its headers, which most messages lack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The bytes.
    pub payload: Bytes,
    /// Names with values.
    pub headers: Headers,
}

impl Message {
    /// Bytes without headers.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), headers: Headers::new() }
    }

    /// The same with a header more.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        self.headers.insert(name, value)?;
        Ok(self)
    }

    /// Payload and headers as the payload limit counts them, in bytes.
    pub fn wire_bytes(&self) -> usize {
        self.payload.len() + self.headers.wire_bytes()
    }
}

impl From<Bytes> for Message {
    fn from(payload: Bytes) -> Self {
        Self::new(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_sorted_and_keep_the_order_of_equal_names() {
        let mut headers = Headers::new();
        headers.append("b", "1").unwrap();
        headers.append("a", "2").unwrap();
        headers.append("b", "3").unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "1"), ("b", "3")]);
        headers.insert("b", "4").unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "4")]);
    }

    #[test]
    fn a_header_cannot_forge_another() {
        let mut headers = Headers::new();
        assert!(matches!(headers.insert("a", "x\r\nb: y"), Err(HeaderError::Value(_))));
        assert!(matches!(headers.insert("a:", "x"), Err(HeaderError::Name(_))));
        assert!(matches!(headers.insert("", "x"), Err(HeaderError::Name(_))));
        assert!(headers.is_empty());
    }
}
