//! Typed values <-> bytes: one format-version byte, then MessagePack with field names kept.
//!
//! Field names are kept so that unknown fields can be ignored and new ones defaulted (`#[serde(default)]`) when
//! versions mix. Bytes come from outside, so before `rmp-serde` sees them a scan that neither recurses nor allocates
//! checks that they are exactly one value, nested at most [`DEPTH_MAX`] deep, whose every declared length fits in the
//! bytes that are there. `rmp-serde` alone overflows the stack on some 100 kB of deeply nested enums.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The format that [`encode`] writes, the first byte of all values.
pub const FORMAT_VERSION: u8 = 1;
/// Deepest nesting of arrays and maps; a scalar has depth 0. Control messages use less than ten.
pub const DEPTH_MAX: usize = 32;
/// Largest encoded value in bytes, version byte included. Control messages carry references, not data.
pub const SIZE_BYTES_MAX: usize = 256 * 1024;

/// Why a value was not encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// No bytes at all.
    #[error("empty message")]
    Empty,
    /// The first byte names a format that we do not know.
    #[error("format version {found}, this build reads {known}")]
    Version {
        /// The byte found.
        found: u8,
        /// The one that was looked for.
        known: u8,
    },
    /// Not the bytes that were written.
    #[error("another checksum than the value was written with")]
    Checksum,
    /// Larger than [`SIZE_BYTES_MAX`].
    #[error("value of {bytes} bytes, at most {SIZE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} levels at byte {at}")]
    TooDeep {
        /// Offset of the value that is too deep.
        at: usize,
    },
    /// A declared length or count that the bytes cannot hold, or the end before a value is whole.
    #[error("value at byte {at} is longer than the message")]
    Truncated {
        /// Offset of that value.
        at: usize,
    },
    /// Bytes after the value.
    #[error("{bytes} bytes too many after the value")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The byte 0xc1, which MessagePack never uses.
    #[error("no MessagePack at byte {at}")]
    Reserved {
        /// Where.
        at: usize,
    },
    /// Well-formed, but not the expected type.
    #[error("not the expected type: {0}")]
    Type(#[from] rmp_serde::decode::Error),
    /// The value cannot be written.
    #[error("cannot encode: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
}

/// Encodes a value.
///
/// # Errors
/// `TooLarge` and `TooDeep` as the receiver would say; `Encode` when `serde` cannot write it.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, CodecError> {
    encode_as(FORMAT_VERSION, value)
}

pub(crate) fn encode_as<T: Serialize + ?Sized>(version: u8, value: &T) -> Result<Bytes, CodecError> {
    let mut bytes = Vec::with_capacity(256);
    bytes.push(version);
    value.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map())?;
    check_as(version, &bytes)?;
    Ok(bytes.into())
}

/// Decodes a value. Unknown fields are ignored.
///
/// # Errors
/// See [`CodecError`]. Never panics and never overflows the stack, whatever the bytes.
pub fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError> {
    decode_as(FORMAT_VERSION, bytes)
}

pub(crate) fn decode_as<'de, T: Deserialize<'de>>(version: u8, bytes: &'de [u8]) -> Result<T, CodecError> {
    check_as(version, bytes)?;
    Ok(rmp_serde::from_slice(&bytes[1..])?)
}

/// Encodes a value for where no frame of a session has a checksum around it: its CRC-32 follows. A heartbeat of which one
/// bit flipped could be one of a later incarnation, and end the node that it names.
///
/// # Errors
/// As [`encode`].
pub fn encode_checked<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, CodecError> {
    encode_checked_as(FORMAT_VERSION, value)
}

/// The same for what is kept, and may be read by another release: `version` is that of the caller's format, and counts changes of the
/// type, too.
///
/// # Errors
/// As [`encode`].
pub fn encode_checked_as<T: Serialize + ?Sized>(version: u8, value: &T) -> Result<Bytes, CodecError> {
    let mut bytes = Vec::from(encode_as(version, value)?);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Ok(bytes.into())
}

/// Decodes what [`encode_checked`] wrote.
///
/// # Errors
/// `Checksum`: it is not what was written. As [`decode`].
pub fn decode_checked<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError> {
    decode_checked_as(FORMAT_VERSION, bytes)
}

/// Decodes what [`encode_checked_as`] wrote with the same version.
///
/// # Errors
/// As [`decode_checked`]; `Version` with both numbers.
pub fn decode_checked_as<'de, T: Deserialize<'de>>(version: u8, bytes: &'de [u8]) -> Result<T, CodecError> {
    let (value, sum) = bytes.split_last_chunk().ok_or(CodecError::Checksum)?;
    if crc32fast::hash(value) != u32::from_le_bytes(*sum) {
        return Err(CodecError::Checksum);
    }
    decode_as(version, value)
}

/// Checks version byte, size, nesting and lengths without decoding.
///
/// # Errors
/// See [`CodecError`].
pub fn check(bytes: &[u8]) -> Result<(), CodecError> {
    check_as(FORMAT_VERSION, bytes)
}

fn check_as(version: u8, bytes: &[u8]) -> Result<(), CodecError> {
    if bytes.len() > SIZE_BYTES_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    match bytes.first() {
        None => return Err(CodecError::Empty),
        Some(&found) if found != version => return Err(CodecError::Version { found, known: version }),
        Some(_) => {}
    }
    let end = scan(bytes, 1)?;
    if end != bytes.len() {
        return Err(CodecError::Trailing { bytes: bytes.len() - end });
    }
    Ok(())
}

/// Walks over one MessagePack value from `start`, returns where it ends. `open[..depth]` holds how many values each
/// open array or map still lacks.
fn scan(bytes: &[u8], start: usize) -> Result<usize, CodecError> {
    let mut open = [0_u64; DEPTH_MAX];
    let mut depth = 0;
    let mut at = start;
    loop {
        let value_at = at;
        let truncated = CodecError::Truncated { at: value_at };
        let Some(&marker) = bytes.get(at) else { return Err(truncated) };
        at += 1;
        // Bytes that follow the marker: of a length field, of the value itself, and values it contains.
        let (length_bytes, fixed_bytes, kind) = match marker {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0, Kind::Scalar),
            0x80..=0x8f => (0, u64::from(marker & 0x0f), Kind::Map),
            0x90..=0x9f => (0, u64::from(marker & 0x0f), Kind::Array),
            0xa0..=0xbf => (0, u64::from(marker & 0x1f), Kind::Scalar),
            0xc1 => return Err(CodecError::Reserved { at: value_at }),
            0xc4 | 0xd9 => (1, 0, Kind::Scalar),
            0xc5 | 0xda => (2, 0, Kind::Scalar),
            0xc6 | 0xdb => (4, 0, Kind::Scalar),
            0xc7 => (1, 1, Kind::Scalar),
            0xc8 => (2, 1, Kind::Scalar),
            0xc9 => (4, 1, Kind::Scalar),
            0xcc | 0xd0 => (0, 1, Kind::Scalar),
            0xcd | 0xd1 | 0xd4 => (0, 2, Kind::Scalar),
            0xd5 => (0, 3, Kind::Scalar),
            0xce | 0xd2 | 0xca => (0, 4, Kind::Scalar),
            0xd6 => (0, 5, Kind::Scalar),
            0xcf | 0xd3 | 0xcb => (0, 8, Kind::Scalar),
            0xd7 => (0, 9, Kind::Scalar),
            0xd8 => (0, 17, Kind::Scalar),
            0xdc => (2, 0, Kind::Array),
            0xdd => (4, 0, Kind::Array),
            0xde => (2, 0, Kind::Map),
            0xdf => (4, 0, Kind::Map),
        };
        let mut declared = fixed_bytes;
        if length_bytes > 0 {
            let Some(field) = bytes.get(at..at + length_bytes) else { return Err(truncated) };
            declared += field.iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
            at += length_bytes;
        }
        let left = (bytes.len() - at) as u64;
        let inside = match kind {
            Kind::Scalar => {
                if declared > left {
                    return Err(truncated);
                }
                at += declared as usize;
                0
            }
            Kind::Array => declared,
            Kind::Map => declared * 2,
        };
        // Each contained value takes a byte at least, so a count can be checked before anybody trusts it.
        if inside > left {
            return Err(truncated);
        }
        if !matches!(kind, Kind::Scalar) {
            if depth == DEPTH_MAX {
                return Err(CodecError::TooDeep { at: value_at });
            }
            open[depth] = inside;
            depth += 1;
        } else if depth > 0 {
            open[depth - 1] -= 1;
        }
        while depth > 0 && open[depth - 1] == 0 {
            depth -= 1;
            if depth > 0 {
                open[depth - 1] -= 1;
            }
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Scalar,
    Array,
    Map,
}
