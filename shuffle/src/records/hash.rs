//! The row hash of a record: XXH3-128 of its 100 bytes, seed 0.
//!
//! [`row_hash`] is the library's algorithm for inputs of 97 to 128 bytes, written out for exactly 100, so that no length
//! is tested and it is inlined into the copy loops: 7.4 ns a cached record on the reference machine, where `twox-hash`
//! takes 9.7. A test holds it to that crate's answers.

pub use exobus_store::RowHash;

use super::{Record, as_records};

const PRIME_1: u64 = 0x9E3779B185EBCA87;
const PRIME_2: u64 = 0xC2B2AE3D27D4EB4F;
const PRIME_4: u64 = 0x85EBCA77C2B2AE63;

/// The first 128 bytes of XXH3's default secret, as little-endian words. A static, not a constant: as constants in the
/// code the words cost an instruction of ten bytes each, and 2 ns a record.
static SECRET: [u64; 16] = secret_words();

const fn secret_words() -> [u64; 16] {
    const BYTES: [u8; 128] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
        0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
        0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
        0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
        0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
        0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
        0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
        0x73, 0x64,
    ];
    let mut words = [0; 16];
    let mut index = 0;
    while index < 128 {
        words[index / 8] |= (BYTES[index] as u64) << (8 * (index % 8));
        index += 1;
    }
    words
}

/// The row hash of one record.
#[inline]
pub fn row_hash(record: &Record) -> RowHash {
    RowHash(hash_number(record))
}

/// The sum of the row hashes of the records in `bytes`; sums of several ranges add up, whatever their order.
///
/// # Panics
/// When the length is not a multiple of the record size.
pub fn row_hash_sum(bytes: &[u8]) -> RowHash {
    RowHash(as_records(bytes).iter().fold(0u128, |sum, record| sum.wrapping_add(hash_number(record))))
}

/// The row hash as a plain number, for the inner loops of the kernels.
#[inline(always)]
pub(crate) fn hash_number(record: &Record) -> u128 {
    // The rounds take words from the front and, 4 bytes out of step, from the back. Where the compiler sees that they
    // overlap it pieces the words together from 4-byte loads, which costs 2 ns more than loading everything twice.
    let back = std::hint::black_box(record);
    let mut low = (record.len() as u64).wrapping_mul(PRIME_1);
    let mut high = 0u64;
    (low, high) = mix_pair::<12>(low, high, word(record, 48), word(record, 56), word(back, 36), word(back, 44));
    (low, high) = mix_pair::<8>(low, high, word(record, 32), word(record, 40), word(back, 52), word(back, 60));
    (low, high) = mix_pair::<4>(low, high, word(record, 16), word(record, 24), word(back, 68), word(back, 76));
    (low, high) = mix_pair::<0>(low, high, word(record, 0), word(record, 8), word(back, 84), word(back, 92));
    let hash_low = avalanche(low.wrapping_add(high));
    let hash_high = low
        .wrapping_mul(PRIME_1)
        .wrapping_add(high.wrapping_mul(PRIME_4))
        .wrapping_add((record.len() as u64).wrapping_mul(PRIME_2));
    let hash_high = avalanche(hash_high).wrapping_neg();
    (u128::from(hash_high) << 64) | u128::from(hash_low)
}

/// One round over 16 bytes from the front (`a`, `b`) and 16 from the back (`c`, `d`).
#[inline(always)]
fn mix_pair<const WORD: usize>(low: u64, high: u64, a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let low = low.wrapping_add(fold(a ^ SECRET[WORD], b ^ SECRET[WORD + 1])) ^ c.wrapping_add(d);
    let high = high.wrapping_add(fold(c ^ SECRET[WORD + 2], d ^ SECRET[WORD + 3])) ^ a.wrapping_add(b);
    (low, high)
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(0x165667919E3779F9);
    hash ^ (hash >> 32)
}

#[inline(always)]
fn word(record: &Record, at: usize) -> u64 {
    u64::from_le_bytes([
        record[at],
        record[at + 1],
        record[at + 2],
        record[at + 3],
        record[at + 4],
        record[at + 5],
        record[at + 6],
        record[at + 7],
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use twox_hash::XxHash3_128;

    proptest! {
        #[test]
        fn the_row_hash_is_xxh3_128(bytes in proptest::collection::vec(any::<u8>(), 100)) {
            let record: &Record = bytes.as_slice().try_into().unwrap();
            prop_assert_eq!(row_hash(record).0, XxHash3_128::oneshot(&bytes));
        }

        #[test]
        fn the_sum_does_not_depend_on_the_order(bytes in proptest::collection::vec(any::<u8>(), 300)) {
            let mut turned = bytes.clone();
            turned.rotate_left(100);
            prop_assert_eq!(row_hash_sum(&bytes).0, row_hash_sum(&turned).0);
            let one_by_one = bytes.chunks(100).fold(0u128, |sum, row| sum.wrapping_add(XxHash3_128::oneshot(row)));
            prop_assert_eq!(row_hash_sum(&bytes).0, one_by_one);
        }
    }

    #[test]
    fn pairs_of_equal_rows_do_not_cancel() {
        let pair = [7u8; 200];
        assert_ne!(row_hash_sum(&pair).0, 0);
        assert_eq!(row_hash_sum(&[]).0, 0);
    }
}
