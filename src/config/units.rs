//! Sizes and times as people write them.

use std::{fmt, str::FromStr, time::Duration};

use bytesize::ByteSize;
use serde::Deserialize;
use thiserror::Error;

/// A byte budget: fixed, or a share of the memory that is available when the process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum MemoryBudget {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths, 1 to 95, of the available memory.
    Percent(u8),
}

/// A text that is no size, share or time.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct UnitError(String);

impl MemoryBudget {
    /// The budget when `available_bytes` are available.
    pub fn bytes(self, available_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(available_bytes) * u128::from(percent) / 100) as u64,
        }
    }
}

impl FromStr for MemoryBudget {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let text = text.trim();
        if let Some(number) = text.strip_suffix('%') {
            return match number.trim().parse() {
                Ok(percent @ 1..=95) => Ok(Self::Percent(percent)),
                _ => Err(UnitError(format!("{text:?} is no share from 1% to 95%"))),
            };
        }
        parse_size(text).map(Self::Bytes)
    }
}

impl TryFrom<String> for MemoryBudget {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => size(*bytes).fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Bytes from a text such as `4GiB`, `1.5 GB`, `1000`; more than 0.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err(UnitError("a size of 0 is too small".into())),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err(UnitError(format!("{text:?} is no size such as 4GiB, 500MB or 1000"))),
    }
}

/// A time from a text such as `3s`, `500ms`, `1m 30s`; more than 0.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    match humantime::parse_duration(text.trim()) {
        Ok(Duration::ZERO) => Err(UnitError("a time of 0 is too short".into())),
        Ok(duration) => Ok(duration),
        Err(_) => Err(UnitError(format!("{text:?} is no time such as 3s or 500ms"))),
    }
}

/// For `#[serde(deserialize_with)]`.
pub fn deserialize_duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// For `#[serde(deserialize_with)]`.
pub fn deserialize_size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// Bytes for people: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_sizes_or_shares() {
        let check = |text: &str, expected| assert_eq!(text.parse::<MemoryBudget>().ok(), expected, "{text}");
        check("4GiB", Some(MemoryBudget::Bytes(4 << 30)));
        check("1GB", Some(MemoryBudget::Bytes(1_000_000_000)));
        check(" 512 MiB ", Some(MemoryBudget::Bytes(512 << 20)));
        check("60%", Some(MemoryBudget::Percent(60)));
        for bad in ["", "0", "0%", "96%", "lots", "4 XiB", "-1GB", "60.5%"] {
            check(bad, None);
        }
        assert_eq!(MemoryBudget::Percent(60).bytes(u64::MAX), (u128::from(u64::MAX) * 60 / 100) as u64);
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "3", "0s", "soon"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
