//! The four kinds of records of the Sort Benchmark, byte for byte as gensort 1.5 writes them.
//!
//! A record depends on its number and the mode only, so any range of numbers can be made anywhere, in parallel.

use super::random::Random;
use super::{Record, as_records_mut};

/// Which kind of records to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Printable keys and a readable payload that ends with CR LF, instead of random bytes.
    pub ascii: bool,
    /// Keys that crowd together instead of being uniform.
    pub skewed: bool,
}

/// Makes records of one mode.
#[derive(Debug, Clone)]
pub struct Generator {
    mode: Mode,
    /// The six skew bytes of each skew index; empty unless the mode is skewed.
    skew: Vec<[u8; SKEW_BYTES]>,
}

/// Bytes of a key that skew can replace.
const SKEW_BYTES: usize = 6;

/// Numbers drawn at once; small enough to stay in the first-level cache.
const BATCH: usize = 256;

/// What the ten groups of a binary record are xored with.
const GROUPS: [u128; 10] = [
    0,
    0xF0E8E4E2E1D8D4D2_D1CC000000000000,
    0xCAC9C6C5C3B8B4B2_B1AC000000000000,
    0xAAA9A6A5A39C9A99_9695000000000000,
    0x938E8D8B87787472_716C000000000000,
    0x6A696665635C5A59_5655000000000000,
    0x534E4D4B473C3A39_3635000000000000,
    0x332E2D2B271E1D1B_170F000000000000,
    0xC8C4C2C198949291_8CE0000000000000,
    0x170F332E2D2B271E_1D1B000000000000,
];

impl Generator {
    /// A generator for `mode`.
    pub fn new(mode: Mode) -> Generator {
        let mut skew = Vec::new();
        if mode.skewed {
            let plain = Generator::new(Mode { skewed: false, ..mode });
            for index in 0..=128u128 {
                let mut record = [0; super::RECORD_BYTES];
                plain.fill(index, &mut record);
                skew.push([record[0], record[1], record[2], record[3], record[4], record[5]]);
            }
        }
        Generator { mode, skew }
    }

    /// Fills `out` with the records `first`, `first + 1`, and so on; record numbers wrap at 2^128.
    ///
    /// # Panics
    /// When the length of `out` is not a multiple of the record size.
    pub fn fill(&self, first: u128, out: &mut [u8]) {
        let mut random = Random::at(first);
        let mut number = first;
        let mut drawn = [0u128; BATCH + 9];
        drawn[BATCH..].fill_with(|| random.draw());
        for batch in as_records_mut(out).chunks_mut(BATCH) {
            // Records overlap in the numbers they use: record n takes rand(n) to rand(n + 9).
            drawn.copy_within(BATCH.., 0);
            drawn[9..].fill_with(|| random.draw());
            for (index, record) in batch.iter_mut().enumerate() {
                if self.mode.ascii {
                    ascii_record(number, drawn[index], record);
                } else {
                    let window: &[u128; 10] = drawn[index..].first_chunk().expect("nine more numbers than records");
                    binary_record(window, record);
                }
                if self.mode.skewed {
                    self.skew_key(number, drawn[index], record);
                }
                number = number.wrapping_add(1);
            }
        }
    }

    /// Replaces high-order parts of the key, as many as the record's own random number says.
    #[inline]
    fn skew_key(&self, number: u128, random: u128, record: &mut Record) {
        let skew = &self.skew[skew_index(number)];
        let amount = (random >> 32) as u32;
        if self.mode.ascii {
            let count = amount & 7;
            if count <= 6 {
                record[..count as usize].copy_from_slice(&skew[..count as usize]);
            }
        } else {
            let bits = amount & 63;
            if bits > 0 && bits <= 48 {
                let [a, b, c, d, e, f] = *skew;
                let replaced = u64::MAX << (64 - bits);
                let head: &mut [u8; 8] = record.first_chunk_mut().expect("a record is longer than 8 bytes");
                let plain = u64::from_be_bytes(*head);
                let skewed = u64::from_be_bytes([a, b, c, d, e, f, 0, 0]);
                *head = ((plain & !replaced) | (skewed & replaced)).to_be_bytes();
            }
        }
    }
}

/// Ten groups of ten bytes; each is stored as 16 bytes whose last six the next group overwrites.
#[inline]
fn binary_record(window: &[u128; 10], record: &mut Record) {
    for group in 0..9 {
        let bytes = (window[group] ^ GROUPS[group]).to_be_bytes();
        record[group * 10..group * 10 + 16].copy_from_slice(&bytes);
    }
    record[90..].copy_from_slice(&(window[9] ^ GROUPS[9]).to_be_bytes()[..10]);
}

#[inline]
fn ascii_record(number: u128, random: u128, record: &mut Record) {
    let mut high = (random >> 64) as u64;
    let low = random as u64;
    for byte in &mut record[..8] {
        *byte = b' ' + (high % 95) as u8;
        high /= 95;
    }
    record[8] = b' ' + (low % 95) as u8;
    record[9] = b' ' + (low / 95 % 95) as u8;
    record[10..12].fill(b' ');
    for (index, byte) in number.to_be_bytes().into_iter().enumerate() {
        record[12 + 2 * index] = hex_digit(byte >> 4);
        record[13 + 2 * index] = hex_digit(byte & 15);
    }
    record[44..46].fill(b' ');
    for group in 0..13 {
        let digit = hex_digit((low >> (48 - 4 * group)) as u8 & 15);
        record[46 + 4 * group..50 + 4 * group].copy_from_slice(&[digit; 4]);
    }
    record[98] = b'\r';
    record[99] = b'\n';
}

/// The upper-case hexadecimal digit of a number below 16.
#[inline(always)]
fn hex_digit(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[nibble as usize & 15]
}

/// Significant bits of the record's number, with the two quirks of the reference tool: a half whose four top bits are
/// not all zero counts as full.
fn skew_index(number: u128) -> usize {
    let (high, low) = ((number >> 64) as u64, number as u64);
    if high == 0 {
        if low >> 60 != 0 { 64 } else { (64 - low.leading_zeros()) as usize }
    } else if high >> 60 != 0 {
        128
    } else {
        (128 - number.leading_zeros()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn skew_counts_bits_with_the_quirks_of_the_reference_tool() {
        for (number, expected) in [
            (0, 0),
            (1, 1),
            (2, 2),
            (255, 8),
            (1 << 59, 60),
            (1 << 60, 64),
            (u128::from(u64::MAX), 64),
            (1 << 64, 65),
            (1 << 123, 124),
            (1 << 124, 128),
            (u128::MAX, 128),
        ] {
            assert_eq!(skew_index(number), expected, "number {number:#x}");
        }
    }

    proptest! {
        /// Parallel generation rests on this: a range is the same whoever makes it and wherever it is cut.
        #[test]
        fn a_range_made_in_two_pieces_is_the_same(
            first in any::<u128>(), rows in 0usize..700, cut in 0usize..700, ascii in any::<bool>(), skewed in any::<bool>(),
        ) {
            let cut = cut.min(rows);
            let generator = Generator::new(Mode { ascii, skewed });
            let mut whole = vec![0; rows * 100];
            generator.fill(first, &mut whole);
            let mut pieces = vec![0; rows * 100];
            let (left, right) = pieces.split_at_mut(cut * 100);
            generator.fill(first.wrapping_add(cut as u128), right);
            generator.fill(first, left);
            prop_assert!(whole == pieces);
        }
    }
}
