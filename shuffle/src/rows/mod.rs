//! Keyed rows of any length: their bytes in blocks, ordering them in bounded memory, merging them.
//!
//! # Layout
//! A part of a block is rows back to back, in ascending order of their keys; an empty part has no bytes. A row is
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `k`, length of the key, little-endian |
//! | 4 | `v`, length of the value, little-endian |
//! | `k` | the key |
//! | `v` | the value |
//!
//! Keys compare byte by byte as unsigned numbers, a shorter one before every longer one that it begins: a job whose keys
//! are numbers writes them so that their bytes order as they do (big-endian, sign bit turned over). Rows are not aligned.
//! The hash of a row, for conservation (law 1), is XXH3-128 of all of it, lengths included, seed 0.
//!
//! - [`RowBuffer`]: rows in any order in, ordered by partition and key out, in memory that is given;
//! - [`RowMerge`]: many sorted runs into one, from memory ([`SliceRows`]) or through small windows ([`ReadRows`]).

mod buffer;
mod merge;
mod run;
#[cfg(test)]
mod tests;

pub use buffer::{Combine, RowBuffer};
pub use merge::RowMerge;
pub use run::{ReadRows, RowRun, SliceRows};

use exobus_store::RowHash;
use twox_hash::XxHash3_128;

/// Bytes of a row before its key.
pub const ROW_HEADER_BYTES: usize = 8;

/// Bytes that are no rows. A block is checked when it is read, so this is a mistake of whoever wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} begins a row of {needed} bytes, but only {left} are left")]
pub struct RowError {
    /// Where the row begins.
    pub offset: usize,
    /// Bytes that it should have, as far as its header is there; else those of a header.
    pub needed: u64,
    /// Bytes that there are.
    pub left: usize,
}

/// Why rows cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// Bytes that are no rows.
    #[error(transparent)]
    Torn(#[from] RowError),
    /// A run is not in order: a mistake of the function that wrote it.
    #[error("run {run}: row {row} has a smaller key than the row before it, runs have to be sorted")]
    Unsorted {
        /// Which run, from 0.
        run: usize,
        /// Which of its rows, from 0.
        row: u64,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
}

/// One row, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    bytes: &'a [u8],
    key_end: usize,
}

impl<'a> Row<'a> {
    /// The row that `bytes` begin with.
    ///
    /// # Errors
    /// There are fewer bytes than it has, counting from `offset`.
    pub fn first_of(bytes: &'a [u8], offset: usize) -> Result<Self, RowError> {
        let torn = |needed| RowError { offset, needed, left: bytes.len() };
        let Some(header) = bytes.first_chunk::<ROW_HEADER_BYTES>() else { return Err(torn(ROW_HEADER_BYTES as u64)) };
        let (key, value) = lengths(header);
        let needed = ROW_HEADER_BYTES as u64 + key + value;
        if needed > bytes.len() as u64 {
            return Err(torn(needed));
        }
        Ok(Self { bytes: &bytes[..needed as usize], key_end: ROW_HEADER_BYTES + key as usize })
    }

    /// The key.
    pub fn key(self) -> &'a [u8] {
        &self.bytes[ROW_HEADER_BYTES..self.key_end]
    }

    /// The value.
    pub fn value(self) -> &'a [u8] {
        &self.bytes[self.key_end..]
    }

    /// All of it, as in the block.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Its row hash.
    pub fn hash(self) -> RowHash {
        hash_of(self.bytes)
    }
}

/// The row hash of all bytes of a row.
pub(crate) fn hash_of(row: &[u8]) -> RowHash {
    RowHash(XxHash3_128::oneshot(row))
}

fn lengths(header: &[u8; ROW_HEADER_BYTES]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h] = *header;
    (u32::from_le_bytes([a, b, c, d]).into(), u32::from_le_bytes([e, f, g, h]).into())
}

/// The header of a row.
///
/// # Panics
/// A key or value of 4 GiB or more: jobs are refused such rows long before.
pub fn row_header(key: &[u8], value: &[u8]) -> [u8; ROW_HEADER_BYTES] {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("keys and values are shorter than 4 GiB");
    let mut header = [0; ROW_HEADER_BYTES];
    header[..4].copy_from_slice(&length(key).to_le_bytes());
    header[4..].copy_from_slice(&length(value).to_le_bytes());
    header
}

/// Puts a row behind `bytes`, replacing nothing.
pub fn push_row(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    bytes.extend_from_slice(&row_header(key, value));
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
}

/// The rows of a part, one after the other; after an error there are none.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Rows<'a> {
    /// Those of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<Row<'a>, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.offset..];
        if rest.is_empty() {
            return None;
        }
        let row = Row::first_of(rest, self.offset);
        self.offset = row.map_or(self.bytes.len(), |row| self.offset + row.bytes.len());
        Some(row)
    }
}
