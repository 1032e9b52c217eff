//! Sizes and times as people write them.

use std::time::Duration;

use bytesize::ByteSize;
use thiserror::Error;

use super::shown;

/// A text that is no size, share or time.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct UnitError(pub String);

/// Bytes from a text such as `4GiB`, `1.5 GB`, `1000`; more than 0.
///
/// # Errors
/// It is no such text.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err(UnitError("a size of 0 is too small".into())),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err(UnitError(format!("{:?} is no size such as 4GiB, 500MB or 1000", shown(text)))),
    }
}

/// Bytes for people: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// A time from a text such as `3s`, `500ms`, `1m 30s`; more than 0.
///
/// # Errors
/// It is no such text.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    match humantime::parse_duration(text.trim()) {
        Ok(Duration::ZERO) => Err(UnitError("a time of 0 is too short".into())),
        Ok(duration) => Ok(duration),
        Err(_) => Err(UnitError(format!("{:?} is no time such as 3s or 500ms", shown(text)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "3", "0s", "soon"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
