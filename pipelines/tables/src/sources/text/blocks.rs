//! Text by 64 bytes at once: which of them are delimiters, ends of lines and quotes, as bits of a number.
//!
//! Whether a byte is within quotes is told by the number of quotes before it, odd or even. That is so as long as quotes stand where they may: one that opens is the first byte of its field,
//! and behind one that closes its field ends, or the next quote makes the two a doubled one. [`Quotes`] says where the first one is that does not.

use multiversion::multiversion;
use multiversion::target::match_target;

/// Bytes of a block, each of which is a bit of a number.
pub(super) const BLOCK: usize = 64;
/// Blocks that are looked at together.
pub(super) const BLOCKS: usize = 32;

/// The bytes that rows are told by, beside the end of a line: ASCII, and no two are the same.
#[derive(Clone, Copy)]
pub(super) struct Marks {
    pub(super) delimiter: u8,
    pub(super) quote: Option<u8>,
}

/// Says of each block which of its bytes are what. It is a function of its own, and no part of the loops that ask for that: as one, the compiler takes the numbers apart into bytes again,
/// which takes three times as long.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn look_at(blocks: &[[u8; BLOCK]], marks: Marks, bits: &mut [Bits; BLOCKS]) {
    // A quote that is an end of a line is none.
    let bytes = [marks.delimiter, b'\n', marks.quote.unwrap_or(b'\n')];
    for (block, bits) in blocks.iter().zip(bits) {
        *bits = Bits::of(match_target! {
            "x86_64+avx2" => equal_by_halves(block, bytes),
            _ => equal_by_words(block, bytes),
        });
    }
}

/// Whether text is within quotes, and whether a quote may open, between two blocks: in the lowest bit of each.
#[derive(Clone, Copy)]
pub(super) struct Quotes {
    inside: u64,
    /// Behind the end of a field, or a quote that closes.
    may_open: u64,
    /// Behind a quote that closes.
    closed: u64,
}

impl Quotes {
    /// Not within quotes: before a field, where one may open, or in one.
    pub(super) fn outside(may_open: bool) -> Self {
        Self { inside: 0, may_open: may_open.into(), closed: 0 }
    }

    /// Within quotes.
    pub(super) fn inside() -> Self {
        Self { inside: 1, may_open: 0, closed: 0 }
    }

    /// Behind a quote that closes, or is the first of two.
    pub(super) fn closed() -> Self {
        Self { inside: 0, may_open: 1, closed: 1 }
    }

    /// Whether it is within quotes.
    pub(super) fn is_inside(&self) -> bool {
        self.inside != 0
    }

    /// Whether it is behind a quote that closes, or is the first of two.
    pub(super) fn is_closed(&self) -> bool {
        self.closed != 0
    }

    /// Passes over a block if it has nothing to do with quotes; whether it has not.
    #[inline(always)]
    pub(super) fn pass_plain(&mut self, bits: &Bits) -> bool {
        let is_plain = (bits.quotes | self.inside | self.closed) == 0;
        if is_plain {
            self.may_open = bits.ends >> 63;
        }
        is_plain
    }

    /// Leaves those ends that are not within quotes, and before the first quote that is where none may be; whether there is no such.
    pub(super) fn pass(&mut self, bits: &mut Bits, text: &[u8], at: usize) -> bool {
        // Each bit becomes the sum of those up to it: set from a quote that opens to the byte before the one that closes.
        let mut inside = bits.quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        inside ^= self.inside.wrapping_neg();
        let (opens, closes) = (bits.quotes & inside, bits.quotes & !inside);
        bits.ends &= !inside;
        let may_open = (bits.ends | closes) << 1 | self.may_open;
        let closed = closes << 1 | self.closed;
        let mut wrong = opens & !may_open | closed & !(bits.ends | bits.quotes);
        while wrong != 0 {
            let first = wrong.trailing_zeros();
            let place = at + first as usize;
            // Between a quote that closes and the end of its line a `\r` may be.
            if closed >> first & 1 == 0 || text.get(place..place + 2) != Some(b"\r\n") {
                bits.ends &= (1 << first) - 1;
                return false;
            }
            wrong &= wrong - 1;
        }
        *self = Self { inside: inside >> 63, may_open: (bits.ends | closes) >> 63, closed: closes >> 63 };
        true
    }
}

/// Which bytes of a block are what: the first one is in the lowest bit.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// Delimiters and ends of lines.
    pub(super) ends: u64,
    pub(super) lines: u64,
    quotes: u64,
}

impl Bits {
    #[inline(always)]
    fn of([delimiters, lines, quotes]: [u64; 3]) -> Self {
        Self { ends: delimiters | lines, lines, quotes: quotes & !lines }
    }

    /// The same, of the first so many bytes alone, fewer than a block has.
    pub(super) fn of_first(self, bytes: usize) -> Self {
        let mask = (1 << bytes) - 1;
        Self { ends: self.ends & mask, lines: self.lines & mask, quotes: self.quotes & mask }
    }
}

/// Which bytes of a block are each of these three.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn equal_by_halves(block: &[u8; BLOCK], bytes: [u8; 3]) -> [u64; 3] {
    use std::arch::x86_64::{_mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set_epi64x, _mm256_set1_epi8};
    let words = block.as_chunks::<8>().0;
    let half = |at: usize| {
        let word = |number: usize| i64::from_le_bytes(words[at + number]);
        _mm256_set_epi64x(word(3), word(2), word(1), word(0))
    };
    let (low, high) = (half(0), half(4));
    let mut found = [0; 3];
    for (found, byte) in found.iter_mut().zip(bytes) {
        let wanted = _mm256_set1_epi8(byte as i8);
        let of_low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, wanted)) as u32;
        let of_high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, wanted)) as u32;
        *found = u64::from(of_low) | u64::from(of_high) << 32;
    }
    found
}

/// The same, 8 bytes at a time, on any processor.
#[inline(always)]
fn equal_by_words(block: &[u8; BLOCK], bytes: [u8; 3]) -> [u64; 3] {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let mut found = [0; 3];
    for (number, word) in block.as_chunks::<8>().0.iter().enumerate() {
        for (found, byte) in found.iter_mut().zip(bytes) {
            let other = u64::from_le_bytes(*word) ^ u64::from_le_bytes([byte; 8]);
            // The highest bit of each byte that is 0, and from these bits a byte of them.
            let zeros = !(((other & LOW) + LOW) | other | LOW);
            *found |= ((zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * number);
        }
    }
    found
}

/// Which bytes of a block are each of these three, as fast as the processor can.
#[cfg(test)]
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn equal(block: &[u8; BLOCK], bytes: [u8; 3]) -> [u64; 3] {
    match_target! {
        "x86_64+avx2" => equal_by_halves(block, bytes),
        _ => equal_by_words(block, bytes),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn any_processor_finds_the_same_bytes(block in any::<[[u8; 32]; 2]>(), bytes in any::<[u8; 3]>(), same in any::<[u8; 8]>()) {
            let mut block: [u8; BLOCK] = block.concat().try_into().unwrap();
            same.iter().zip(bytes.iter().cycle()).for_each(|(at, byte)| block[usize::from(*at) % BLOCK] = *byte);
            let of = |wanted: u8| (0..BLOCK).filter(|at| block[*at] == wanted).fold(0, |bits, at| bits | 1_u64 << at);
            prop_assert_eq!(equal(&block, bytes), bytes.map(of));
            prop_assert_eq!(equal_by_words(&block, bytes), bytes.map(of));
        }
    }
}
