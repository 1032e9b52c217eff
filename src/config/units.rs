//! Sizes and times as people write them.

use std::{fmt, str::FromStr, time::Duration};

use serde::Deserialize;

pub use exobus_actors::spec::units::{UnitError, parse_duration, parse_size, size};

/// A byte budget: fixed, or a share of the memory that is available when the process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum MemoryBudget {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths, 1 to 95, of the available memory.
    Percent(u8),
}

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

/// For `#[serde(deserialize_with)]`.
pub fn deserialize_duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// For `#[serde(deserialize_with)]`.
pub fn deserialize_size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// For `#[serde(deserialize_with)]`, of a key that need not be set.
pub fn deserialize_size_if_any<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    deserialize_size(from).map(Some)
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
}
