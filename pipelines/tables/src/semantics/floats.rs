//! Sums of floats, and of their squares, that are exact, so that no order of additions shows.
//!
//! A float is a whole number of 53 bits times a power of two, so any sum of floats is a whole number times 2^-1074, of some 2100 bits and those of the count: the long accumulator
//! of Kulisch (*Computer Arithmetic and Validity*, 2013, ch. 8). Hardly any column needs all of them, which is what Neal's *Fast exact summation using small and large superaccumulators*
//! (2015) is about, and Demmel and Hida's *Accurate and efficient floating point summation* (2003) before it. Here a sum is a *window*: some 64-bit words of the long number, which
//! begin at a bit that follows from the first value. What does not fit into it makes it a long number of as many words as there are bits in use, on the heap.
//!
//! Whatever the form, and whatever happened to a sum, its bytes and its value follow from the values alone.

use smallvec::SmallVec;

use crate::TableError;

/// Of sums as [`FloatSum::encode`] writes them.
const VERSION: u8 = 1;
/// The lowest bit of the square of the least float.
const LOWEST: i32 = -2 * 1074;
/// Above all bits of as many squares of the largest float as can be counted.
const ABOVE: i32 = 2 * 1024 + 64;
/// Bits of the number of a float, and of its square.
const BITS: u32 = 53;
const SQUARE_BITS: u32 = 106;
/// Where a window begins that has no place yet: nothing fits.
const NOWHERE: i16 = i16::MAX;

const NAN: u8 = 1;
const INFINITY: u8 = 2;
const NEGATIVE_INFINITY: u8 = 4;
/// Of encoded sums: what is finite of it is below zero.
const NEGATIVE: u8 = 8;

/// The exact sum of floats; 40 bytes, and more on the heap where these are of very different sizes: within 2^70 of the first one they are not.
pub type ExactFloatSum = FloatSum<4>;
/// The exact sum of squares of floats; 56 bytes, and more on the heap where these are of very different sizes: within 2^53 of the first one they are not.
pub type ExactSquareSum = FloatSum<6>;

/// An exact sum with a window of so many words. The sum of nothing is zero.
#[derive(Clone, Debug)]
pub struct FloatSum<const WORDS: usize>(Form<WORDS>);

#[derive(Clone, Debug)]
enum Form<const WORDS: usize> {
    /// A number in two's complement, the lowest word first, times 2 to the power of `base`.
    ///
    /// What is added ends 64 bits below the top, so that 2^63 additions do not overflow it.
    Window {
        base: i16,
        words: [u64; WORDS],
    },
    Long(Box<Long>),
}

/// A number in two's complement, the lowest word first, times 2 to the power of 64 times `base`; and what is not finite.
#[derive(Clone, Debug, Default)]
struct Long {
    /// [`NAN`], [`INFINITY`], [`NEGATIVE_INFINITY`].
    special: u8,
    base: i32,
    /// The highest one has the sign alone of whatever is added, as in windows.
    words: Vec<u64>,
}

/// Words of a magnitude, the lowest first: those of a window are not on the heap.
type Magnitude = SmallVec<[u64; 6]>;

/// A sum as sign, magnitude and the exponent of its lowest bit.
struct Parts {
    special: u8,
    is_negative: bool,
    magnitude: Magnitude,
    exponent: i32,
}

/// A float, or its square: sign, magnitude, exponent.
#[derive(Clone, Copy)]
struct Summand {
    is_negative: bool,
    magnitude: u128,
    exponent: i32,
}

/// Number, exponent and sign of a float; what is not finite has an exponent above all others.
#[inline(always)]
fn taken_apart(value: f64) -> (u64, i32, bool) {
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32 & 0x7ff);
    let is_normal = u64::from(exponent != 0);
    (fraction | is_normal << 52, exponent + 1 - is_normal as i32 - 1075, bits >> 63 == 1)
}

/// The exponent of infinities and NaNs as [`taken_apart`] has it.
const NOT_FINITE: i32 = 0x7ff - 1075;

impl<const WORDS: usize> Default for FloatSum<WORDS> {
    fn default() -> Self {
        Self(Form::Window { base: NOWHERE, words: [0; WORDS] })
    }
}

impl<const WORDS: usize> FloatSum<WORDS> {
    /// Bits of a window that what is added may have.
    const ROOM: u32 = 64 * (WORDS as u32 - 1);

    /// Of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value; how many bytes more it has on the heap then.
    #[inline]
    pub fn add(&mut self, value: f64) -> usize {
        let (magnitude, exponent, is_negative) = taken_apart(value);
        if let Form::Window { base, words } = &mut self.0 {
            // A zero fits wherever it is.
            let shift = if magnitude == 0 { 0 } else { exponent.wrapping_sub(i32::from(*base)) as u32 };
            if shift <= Self::ROOM - BITS && exponent != NOT_FINITE {
                let shifted = u128::from(magnitude) << (shift % 64);
                add_at(words, shift / 64, [shifted as u64, (shifted >> 64) as u64], is_negative);
                return 0;
            }
        }
        match exponent == NOT_FINITE {
            true => self.add_special(value),
            false => self.add_slowly(Summand { is_negative, magnitude: magnitude.into(), exponent }, BITS),
        }
    }

    /// Adds the square of a value, which no float may have; how many bytes more it has on the heap then.
    #[inline]
    pub fn add_square(&mut self, value: f64) -> usize {
        let (root, exponent, _) = taken_apart(value);
        let magnitude = u128::from(root) * u128::from(root);
        if let Form::Window { base, words } = &mut self.0 {
            let shift = if root == 0 { 0 } else { (2 * exponent).wrapping_sub(i32::from(*base)) as u32 };
            if shift <= Self::ROOM - SQUARE_BITS && exponent != NOT_FINITE {
                let (low, high) = ((magnitude as u64 as u128) << (shift % 64), (magnitude >> 64) << (shift % 64));
                let middle = (low >> 64) as u64 | high as u64;
                add_at(words, shift / 64, [low as u64, middle, (high >> 64) as u64], false);
                return 0;
            }
        }
        match exponent == NOT_FINITE {
            true => self.add_special(value.abs()),
            false => self.add_slowly(Summand { is_negative: false, magnitude, exponent: 2 * exponent }, SQUARE_BITS),
        }
    }

    /// Adds another sum; how many bytes more it has on the heap then.
    pub fn merge(&mut self, other: &Self) -> usize {
        self.add_parts(&other.parts())
    }

    /// Adds a sum as it was [encoded](Self::encode), and nothing else may be in the bytes; how many bytes more it has on the heap then.
    ///
    /// # Errors
    /// As of [`decode`](Self::decode).
    pub fn merge_encoded(&mut self, bytes: &[u8]) -> Result<usize, TableError> {
        let (parts, rest) = Parts::decode(bytes)?;
        if !rest.is_empty() {
            return Err(TableError::NotASum);
        }
        Ok(self.add_parts(&parts))
    }

    /// The float that is nearest to the sum, of two that are equally near the one whose last bit is 0. NaN where a NaN was added, or infinities of both signs; zero is 0.0.
    pub fn value(&self) -> f64 {
        let parts = self.parts();
        let special = parts.special();
        special.unwrap_or_else(|| nearest(parts.is_negative, &parts.magnitude, parts.exponent, false))
    }

    /// NaN or an infinity; `None`: the sum is finite, though it may be above all floats.
    pub(crate) fn special(&self) -> Option<f64> {
        match &self.0 {
            Form::Window { .. } => None,
            Form::Long(long) => special(long.special),
        }
    }

    /// Sign, magnitude (the lowest word first) and exponent of what is finite of the sum.
    pub(crate) fn exact(&self) -> (bool, Vec<u64>, i32) {
        let Parts { is_negative, magnitude, exponent, .. } = self.parts();
        match bit_length(&magnitude) {
            0 => (false, Vec::new(), 0),
            _ => (is_negative, magnitude.into_vec(), exponent),
        }
    }

    /// How many bytes it has on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Window { .. } => 0,
            Form::Long(long) => size_of::<Long>() + 8 * long.words.capacity(),
        }
    }

    /// Adds the sum to bytes: version; a byte whose bits say that a NaN (1), infinity (2), negative infinity (4) was added and that what is finite is below zero (8); the exponent of the
    /// lowest bit that is set (2 bytes), how many bytes the magnitude has (2), all little-endian; the magnitude from that bit on, the lowest byte first. A sum of finite values that is
    /// zero has the exponent 0 and no magnitude. 6 to some 540 bytes, the same for the same values.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        self.parts().encode(bytes);
    }

    /// What [`encode`](Self::encode) has written at the beginning of these bytes, and the bytes behind it.
    ///
    /// # Errors
    /// [`TableError::SumVersion`]: another release wrote it. [`TableError::NotASum`]: nothing of the kind, or not what `encode` writes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), TableError> {
        let (parts, rest) = Parts::decode(bytes)?;
        let mut sum = Self::default();
        sum.add_parts(&parts);
        Ok((sum, rest))
    }

    #[cold]
    #[inline(never)]
    fn add_special(&mut self, value: f64) -> usize {
        let special = match value {
            f64::INFINITY => INFINITY,
            f64::NEG_INFINITY => NEGATIVE_INFINITY,
            _ => NAN,
        };
        self.lengthened(|long| long.special |= special)
    }

    #[cold]
    #[inline(never)]
    fn add_slowly(&mut self, summand: Summand, bits: u32) -> usize {
        let Summand { is_negative, magnitude, exponent } = summand;
        if let Form::Window { base, words } = &mut self.0
            && words.iter().all(|word| *word == 0)
        {
            // In the middle of what fits.
            let shift = (Self::ROOM - bits) / 2;
            *base = (exponent - shift as i32) as i16;
            let (low, high) = ((magnitude as u64 as u128) << (shift % 64), (magnitude >> 64) << (shift % 64));
            let middle = (low >> 64) as u64 | high as u64;
            add_at(words, shift / 64, [low as u64, middle, (high >> 64) as u64], is_negative);
            return 0;
        }
        self.lengthened(|long| long.add(is_negative, &[magnitude as u64, (magnitude >> 64) as u64], exponent))
    }

    /// Adds a number however long; a window stays one if it fits.
    fn add_parts(&mut self, parts: &Parts) -> usize {
        let Parts { special, is_negative, magnitude, exponent } = parts;
        let bits = bit_length(magnitude);
        if *special == 0 && bits == 0 {
            return 0;
        }
        if let Form::Window { base, words } = &mut self.0
            && *special == 0
            && bits <= Self::ROOM
        {
            if words.iter().all(|word| *word == 0) {
                *base = (exponent - (Self::ROOM - bits) as i32 / 2) as i16;
            }
            let shift = exponent.wrapping_sub(i32::from(*base));
            if (0..=(Self::ROOM - bits) as i32).contains(&shift) {
                let mut shifted = [0; WORDS];
                shift_into(&mut shifted, magnitude, shift as u32);
                add_at(words, 0, shifted, *is_negative);
                return 0;
            }
        }
        self.lengthened(|long| {
            long.special |= special;
            long.add(*is_negative, magnitude, *exponent);
        })
    }

    /// Adds to the sum as a long number, which it is from now on; how many bytes more it has on the heap then.
    fn lengthened(&mut self, add: impl FnOnce(&mut Long)) -> usize {
        let before = self.heap_bytes();
        if let Form::Window { base, words } = self.0 {
            let mut long = Long::default();
            let (is_negative, magnitude) = magnitude(&words);
            long.add(is_negative, &magnitude, if base == NOWHERE { 0 } else { base.into() });
            self.0 = Form::Long(Box::new(long));
        }
        if let Form::Long(long) = &mut self.0 {
            add(long);
        }
        self.heap_bytes() - before
    }

    fn parts(&self) -> Parts {
        match &self.0 {
            Form::Window { base, words } => {
                let (is_negative, magnitude) = magnitude(words);
                Parts { special: 0, is_negative, magnitude, exponent: (*base).into() }
            }
            Form::Long(long) => {
                let (is_negative, magnitude) = magnitude(&long.words);
                Parts { special: long.special, is_negative, magnitude, exponent: 64 * long.base }
            }
        }
    }
}

/// Adds a magnitude, or takes it away, at a word: what is above the last word is lost.
#[inline(always)]
fn add_at<const WORDS: usize, const PARTS: usize>(
    words: &mut [u64; WORDS],
    at: u32,
    parts: [u64; PARTS],
    is_negative: bool,
) {
    // Without a branch that signs or exponents decide: these are anything.
    let sign = (is_negative as u64).wrapping_neg();
    let mut carry = is_negative;
    for (number, word) in words.iter_mut().enumerate() {
        let mut part = 0;
        for (behind, value) in parts.iter().enumerate() {
            part |= if at as usize + behind == number { *value } else { 0 };
        }
        let (sum, over) = word.overflowing_add(part ^ sign);
        let (sum, over_again) = sum.overflowing_add(u64::from(carry));
        (*word, carry) = (sum, over | over_again);
    }
}

/// A number in two's complement as sign and magnitude.
fn magnitude(words: &[u64]) -> (bool, Magnitude) {
    let is_negative = words.last().is_some_and(|last| last >> 63 == 1);
    let mut carry = is_negative;
    let turned = words.iter().map(|word| match is_negative {
        true => {
            let turned;
            (turned, carry) = (!*word).overflowing_add(u64::from(carry));
            turned
        }
        false => *word,
    });
    (is_negative, turned.collect())
}

/// Which bit is the highest that is set, from 1; 0 of zero.
pub(crate) fn bit_length(words: &[u64]) -> u32 {
    let highest = words.iter().rposition(|word| *word != 0);
    highest.map_or(0, |at| 64 * at as u32 + 64 - words[at].leading_zeros())
}

/// A number, so many bits higher; what is above the last word is lost.
fn shift_into(to: &mut [u64], words: &[u64], shift: u32) {
    let (whole, bits) = ((shift / 64) as usize, shift % 64);
    for (at, word) in words.iter().enumerate() {
        let wide = u128::from(*word) << bits;
        for (to, part) in to.iter_mut().skip(at + whole).zip([wide as u64, (wide >> 64) as u64]) {
            *to |= part;
        }
    }
}

impl Long {
    /// Adds a magnitude, or takes it away.
    fn add(&mut self, is_negative: bool, magnitude: &[u64], exponent: i32) {
        let bits = bit_length(magnitude);
        if bits == 0 {
            return;
        }
        let (first, shift) = (exponent.div_euclid(64), exponent.rem_euclid(64) as u32);
        let count = (bits + shift).div_ceil(64) as usize;
        self.reserve(first, count);
        let mut carry = is_negative;
        let sign = (is_negative as u64).wrapping_neg();
        let mut below = 0;
        let from = (first - self.base) as usize;
        for (number, word) in self.words[from..].iter_mut().enumerate() {
            if number >= count && carry == is_negative {
                // Nothing but the sign is left to be added, and the carry makes up for it.
                break;
            }
            let wide = u128::from(magnitude.get(number).copied().unwrap_or(0)) << shift;
            let part = if number < count { wide as u64 | below } else { 0 };
            below = (wide >> 64) as u64;
            let (sum, over) = word.overflowing_add(part ^ sign);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, over | over_again);
        }
    }

    /// Has these words, and one above them.
    fn reserve(&mut self, first: i32, count: usize) {
        if self.words.is_empty() {
            self.base = first;
        }
        if first < self.base {
            let more = (self.base - first) as usize;
            self.words.splice(0..0, std::iter::repeat_n(0, more));
            self.base = first;
        }
        let needed = (first - self.base) as usize + count + 1;
        if needed > self.words.len() {
            let sign = self.words.last().map_or(0, |last| ((*last as i64) >> 63) as u64);
            self.words.resize(needed, sign);
        }
    }
}

fn special(special: u8) -> Option<f64> {
    match special {
        0 => None,
        INFINITY => Some(f64::INFINITY),
        NEGATIVE_INFINITY => Some(f64::NEG_INFINITY),
        _ => Some(f64::NAN),
    }
}

impl Parts {
    fn special(&self) -> Option<f64> {
        special(self.special)
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let bits = bit_length(&self.magnitude);
        let Some(lowest) = self.magnitude.iter().position(|word| *word != 0) else {
            return bytes.extend_from_slice(&[VERSION, self.special, 0, 0, 0, 0]);
        };
        let below = 64 * lowest as u32 + self.magnitude[lowest].trailing_zeros();
        let count = (bits - below).div_ceil(8) as usize;
        let negative = if self.is_negative { NEGATIVE } else { 0 };
        bytes.extend_from_slice(&[VERSION, self.special | negative]);
        bytes.extend_from_slice(&((self.exponent + below as i32) as i16).to_le_bytes());
        bytes.extend_from_slice(&(count as u16).to_le_bytes());
        let word = |at: usize| u128::from(self.magnitude.get(at).copied().unwrap_or(0));
        let (from, shift) = ((below / 64) as usize, below % 64);
        let shifted = (from..).map(|at| ((word(at) | word(at + 1) << 64) >> shift) as u64);
        let before = bytes.len();
        shifted.take(count.div_ceil(8)).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.truncate(before + count);
    }

    fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), TableError> {
        let (version, rest) = bytes.split_first().ok_or(TableError::NotASum)?;
        if *version != VERSION {
            return Err(TableError::SumVersion { found: *version, expected: VERSION });
        }
        let ([flags, low, high, count, count_high], rest) = rest.split_first_chunk().ok_or(TableError::NotASum)?;
        let exponent = i32::from(i16::from_le_bytes([*low, *high]));
        let count = usize::from(u16::from_le_bytes([*count, *count_high]));
        let (magnitude, rest) = rest.split_at_checked(count).ok_or(TableError::NotASum)?;
        let (special, is_negative) = (flags & !NEGATIVE, flags & NEGATIVE != 0);
        let is_one = match magnitude {
            [] => exponent == 0 && !is_negative,
            [first, ..] => first & 1 == 1 && magnitude.last().is_some_and(|last| *last != 0),
        };
        let is_in_range = exponent >= LOWEST && exponent + 8 * count as i32 <= ABOVE + 8;
        if !is_one || !is_in_range || special > NAN | INFINITY | NEGATIVE_INFINITY {
            return Err(TableError::NotASum);
        }
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        Ok((Self { special, is_negative, magnitude: magnitude.chunks(8).map(word).collect(), exponent }, rest))
    }
}

/// The float that is nearest to a magnitude times 2 to the power of an exponent, of two that are equally near the one whose last bit is 0. `more`: the magnitude is a bit larger, less
/// than by one, and has 64 bits at least.
pub(crate) fn nearest(is_negative: bool, magnitude: &[u64], exponent: i32, more: bool) -> f64 {
    let length = bit_length(magnitude) as i32;
    if length == 0 {
        return 0.0;
    }
    let sign = if is_negative { -1.0 } else { 1.0 };
    if length + exponent > 1024 {
        return sign * f64::INFINITY;
    }
    // The place of the last bit that the float has.
    let last = (length - 53).max(-1074 - exponent);
    let number = match last {
        ..=0 => magnitude[0] << -last,
        _ => {
            let last = last as u32;
            let bit = |at: u32| magnitude.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1);
            let word = |at: usize| u128::from(magnitude.get(at).copied().unwrap_or(0));
            let at = (last / 64) as usize;
            let number = ((word(at) | word(at + 1) << 64) >> (last % 64)) as u64;
            let half = last - 1;
            let words_below = magnitude.iter().take((half / 64) as usize).any(|word| *word != 0);
            let is_more = || more || words_below || word((half / 64) as usize) as u64 & ((1 << (half % 64)) - 1) != 0;
            number + u64::from(bit(half) && (number & 1 == 1 || is_more()))
        }
    };
    // What is carried out of the number raises the exponent, which stands above it.
    let place = exponent + last;
    let bits = match place == -1074 {
        true => number,
        false => (((place + 1075) as u64) << 52) + (number - (1 << 52)),
    };
    // Zero has no sign.
    sign * f64::from_bits(bits) + 0.0
}
