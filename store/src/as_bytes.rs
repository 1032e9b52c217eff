//! Numbers of 128 bits on the wire: MessagePack has none, so they travel as 16 big-endian bytes. People read 32 hexadecimal digits.
//! For `#[serde(with = "exobus_store::as_bytes")]`.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Writes a number.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(bits: &u128, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        return to.collect_str(&format_args!("{bits:032x}"));
    }
    serde_bytes::serialize(&bits.to_be_bytes()[..], to)
}

/// Reads a number.
///
/// # Errors
/// Something else is there.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
    if from.is_human_readable() {
        let text = String::deserialize(from)?;
        return u128::from_str_radix(&text, 16).map_err(D::Error::custom);
    }
    serde_bytes::deserialize::<serde_bytes::ByteArray<16>, D>(from).map(|bytes| u128::from_be_bytes(*bytes))
}
