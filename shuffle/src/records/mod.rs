//! Benchmark records: 100 bytes, of which the first 10 are the key, compared as unsigned bytes.
//!
//! What is kept here, and by which file:
//!
//! - [`random`]: the 128-bit congruential generator with a jump to any number in O(log n);
//! - [`generator`]: the four kinds of records (binary or text, plain or skewed), the same bytes as gensort 1.5;
//! - [`mod@checksum`]: the sum of CRC-32 that generator and validator report;
//! - [`hash`]: the row hash of conservation (law 1), which is *not* the benchmark's checksum;
//! - [`summary`]: what the validator says of a run of records, mergeable in order, the same bytes as valsort 1.5.
//!
//! Everything works on plain slices whose length is a multiple of [`RECORD_BYTES`]; files belong to [`crate::files`].

pub mod checksum;
pub mod generator;
pub mod hash;
pub mod random;
pub mod summary;

pub use checksum::checksum;
pub use generator::{Generator, Mode};
pub use hash::{RowHash, row_hash, row_hash_sum};
pub use summary::{SUMMARY_BYTES, Summary, SummaryError};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 100;

/// Bytes of the key, at the start of the record.
pub const KEY_BYTES: usize = 10;

/// One record.
pub type Record = [u8; RECORD_BYTES];

/// The records in `bytes`.
///
/// # Panics
/// When the length is not a multiple of [`RECORD_BYTES`]: torn files are refused where they are opened, so a torn slice
/// is a mistake of the program.
pub fn as_records(bytes: &[u8]) -> &[Record] {
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    assert!(rest.is_empty(), "{} bytes are no whole number of {RECORD_BYTES}-byte records", bytes.len());
    records
}

/// The records in `bytes`, to be written.
///
/// # Panics
/// As [`as_records`].
pub fn as_records_mut(bytes: &mut [u8]) -> &mut [Record] {
    let len = bytes.len();
    let (records, rest) = bytes.as_chunks_mut::<RECORD_BYTES>();
    assert!(rest.is_empty(), "{len} bytes are no whole number of {RECORD_BYTES}-byte records");
    records
}

/// The whole key as a number: its 10 bytes, first byte most significant, in the low 80 bits.
///
/// Numbers compare as the keys do, so kernels compare one `u128` where others compare a prefix and then look again.
#[inline(always)]
pub fn key_number(record: &Record) -> u128 {
    let head =
        u64::from_be_bytes([record[0], record[1], record[2], record[3], record[4], record[5], record[6], record[7]]);
    let tail = u16::from_be_bytes([record[8], record[9]]);
    (u128::from(head) << 16) | u128::from(tail)
}
