//! Values of text: which types they could be, and reading them as one.
//!
//! # Inference
//! A column has the first of these types that all values which were looked at have; nulls are of every type:
//!
//! | type | values |
//! |---|---|
//! | `bool` | `true` and `false`, in any case |
//! | `int64` | digits, with `-` before them or not, that fit in 64 bits; no zeros before the first digit: `007` is text, since its zeros are part of it |
//! | `float64` | digits with a point, an exponent, both or none, one at least of which is no word; the words `nan`, `inf` and `infinity` in any case, with `-` or not |
//! | `date` | `2025-11-30` |
//! | `timestamp[us]` | a date, a space or `T`, and `12:30`, `12:30:15` or `12:30:15.123456`, without a zone. Dates may stand between them and are their midnights. `timestamp[ns]` where one has more than six digits behind the point |
//! | `timestamp[us, UTC]` | the same with a zone: `Z`, `+02`, `+0200`, `+02:00`. By instant. Both kinds in one column are text: what has no zone is never taken for UTC |
//! | `text` | all else: whole numbers too that do not all fit in 64 bits, since a float has not their digits; and columns of nulls only |
//!
//! Decimals, and numbers of other widths, come by `--schema` alone. Reading a column as a type takes what the table says and nothing more: no spaces, no signs of thousands.

use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};

/// What the values of a column could be.
#[derive(Clone, Debug)]
pub(in crate::sources) struct Evidence {
    values: u64,
    numbers: u64,
    is_bool: bool,
    is_int: bool,
    /// Whether all are whole numbers, which may have more digits than fit.
    is_whole: bool,
    is_float: bool,
    is_date: bool,
    is_time: bool,
    is_instant: bool,
    /// Most digits behind the point of a second.
    digits: usize,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            values: 0,
            numbers: 0,
            is_bool: true,
            is_int: true,
            is_whole: true,
            is_float: true,
            is_date: true,
            is_time: true,
            is_instant: true,
            digits: 0,
        }
    }
}

impl Evidence {
    /// Looks at a value that is not null.
    pub(in crate::sources) fn look_at(&mut self, text: &[u8]) {
        self.values += 1;
        self.is_bool = self.is_bool && boolean(text).is_some();
        self.is_int = self.is_int && integer(text).is_some();
        self.is_whole = self.is_whole && is_digits(without_sign(text));
        if self.is_float {
            self.is_float = float(text).is_some();
            self.numbers += u64::from(is_number(text));
        }
        let time = if self.is_date || self.is_time || self.is_instant { Time::read(text) } else { None };
        self.is_date = self.is_date && time.as_ref().is_some_and(|time| time.is_date);
        self.is_time = self.is_time && time.as_ref().is_some_and(|time| time.offset_seconds.is_none());
        self.is_instant = self.is_instant && time.as_ref().is_some_and(|time| time.offset_seconds.is_some());
        self.digits = self.digits.max(time.map_or(0, |time| time.digits));
    }

    /// Adds what another part of the column could be.
    pub(super) fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.numbers += other.numbers;
        self.is_bool &= other.is_bool;
        self.is_int &= other.is_int;
        self.is_whole &= other.is_whole;
        self.is_float &= other.is_float;
        self.is_date &= other.is_date;
        self.is_time &= other.is_time;
        self.is_instant &= other.is_instant;
        self.digits = self.digits.max(other.digits);
    }

    /// The type that the column has.
    pub(in crate::sources) fn data_type(&self) -> DataType {
        let unit = if self.digits > 6 { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        match self {
            _ if self.values == 0 => DataType::Utf8,
            _ if self.is_bool => DataType::Boolean,
            _ if self.is_int => DataType::Int64,
            _ if self.is_float && self.numbers > 0 && !self.is_whole => DataType::Float64,
            _ if self.is_date => DataType::Date32,
            _ if self.is_time => DataType::Timestamp(unit, None),
            _ if self.is_instant => DataType::Timestamp(unit, Some("UTC".into())),
            _ => DataType::Utf8,
        }
    }
}

/// A type that has all values of a column of that type, and this one too: what helps where it does not fit.
pub(super) fn wider(data_type: &DataType, text: &[u8]) -> DataType {
    let mut evidence = Evidence::default();
    evidence.look_at(text);
    match (data_type, evidence.data_type()) {
        (of, DataType::Int64) if of.is_integer() && *of != DataType::Int64 => DataType::Int64,
        (of, DataType::Float64) if of.is_integer() => DataType::Float64,
        (DataType::Date32, DataType::Timestamp(unit, None)) => DataType::Timestamp(unit, None),
        (
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond, zone),
            DataType::Timestamp(unit, other),
        ) if zone.is_some() == other.is_some() => DataType::Timestamp(unit, zone.clone()),
        _ => DataType::Utf8,
    }
}

pub(super) fn boolean(text: &[u8]) -> Option<bool> {
    match text.len() {
        4 if text.eq_ignore_ascii_case(b"true") => Some(true),
        5 if text.eq_ignore_ascii_case(b"false") => Some(false),
        _ => None,
    }
}

/// Whether there are digits only, and no zero before others.
fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text[0] != b'0')
}

#[inline]
fn without_sign(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"-").unwrap_or(text)
}

/// Most digits that are read by [`few_digits`].
const FEW_DIGITS: usize = 16;
/// `0` in each byte.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// A text of 1 to 8 bytes as one number, the first byte in its lowest bits.
#[inline(always)]
fn word(text: &[u8]) -> u64 {
    let byte = |at: usize| u64::from(text[at]) << (8 * at);
    let four = |at: usize| u64::from(u32::from_le_bytes(*text[at..].first_chunk().expect("4 bytes"))) << (8 * at);
    // Bytes that are in both parts are the same ones.
    match text.len() {
        len @ 4.. => four(0) | four(len - 4),
        len => byte(0) | byte(len / 2) | byte(len - 1),
    }
}

/// The number that so many digits are, 1 to 8, in the lowest bytes of a word; `None`: not all of them are digits.
#[inline(always)]
fn number_of_word(word: u64, digits: usize) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const SIX: u64 = 0x0606_0606_0606_0606;
    // With zeros before them they are 8.
    let word = word << (64 - 8 * digits) | ZEROS.unbounded_shr(8 * digits as u32);
    if (word & HIGH) | ((word.wrapping_add(SIX) & HIGH) >> 4) != ZEROS | ZEROS >> 4 {
        return None;
    }
    // Neighbours are added: digits to pairs, these to fours, and these to all.
    let word = word - ZEROS;
    let pairs = (word.wrapping_mul(10) + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours & 0xffff_ffff) * 10_000 + (fours >> 32))
}

/// The number that up to 16 digits are; `None`: there are more or none, or others among them.
#[inline(always)]
fn few_digits(text: &[u8]) -> Option<u64> {
    match text.len() {
        len @ 1..=8 => number_of_word(word(text), len),
        len @ 9..=FEW_DIGITS => {
            let (first, last) = text.split_at(len - 8);
            Some(number_of_word(word(first), len - 8)? * 100_000_000 + number_of_word(word(last), 8)?)
        }
        _ => None,
    }
}

/// The digits of a number without a sign and an exponent as one number, and how many of them are behind the point; `None`: it is none, or longer than is read this way.
#[inline(always)]
fn few_digits_with_point(text: &[u8]) -> Option<(u64, usize)> {
    const POINTS: u64 = u64::from_le_bytes([b'.'; 8]);
    const LOW: u64 = u64::from_le_bytes([1; 8]);
    let len = text.len();
    let (number, whole, fraction) = match len {
        1..=8 => {
            let word = word(text);
            let other = word ^ POINTS;
            // The lowest bit that is set is in the first byte that is a point.
            let points = other.wrapping_sub(LOW) & !other & (LOW << 7);
            match points {
                0 => (number_of_word(word, len)?, len, 0),
                _ if len == 1 => return None,
                _ => {
                    let at = points.trailing_zeros() as usize / 8;
                    let before = (1 << (8 * at)) - 1;
                    let digits = word & before | (word >> 8) & !before;
                    (number_of_word(digits, len - 1)?, at, len - 1 - at)
                }
            }
        }
        9..=FEW_DIGITS => match text.iter().position(|byte| *byte == b'.') {
            None => (few_digits(text)?, len, 0),
            Some(at) => {
                let digits = |text: &[u8]| if text.is_empty() { Some(0) } else { few_digits(text) };
                let fraction = &text[at + 1..];
                let number = digits(&text[..at])? * 10_u64.pow(fraction.len() as u32) + digits(fraction)?;
                (number, at, fraction.len())
            }
        },
        _ => return None,
    };
    (whole <= 1 || text[0] != b'0').then_some((number, fraction))
}

#[inline]
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = without_sign(text);
    if digits.len() > FEW_DIGITS {
        return if is_digits(digits) { std::str::from_utf8(text).ok()?.parse().ok() } else { None };
    }
    let number = few_digits(digits).filter(|_| digits.len() == 1 || digits[0] != b'0')? as i64;
    Some(if digits.len() < text.len() { -number } else { number })
}

#[inline]
pub(super) fn unsigned(text: &[u8]) -> Option<u64> {
    if text.len() > FEW_DIGITS {
        return if is_digits(text) { std::str::from_utf8(text).ok()?.parse().ok() } else { None };
    }
    few_digits(text).filter(|_| text.len() == 1 || text[0] != b'0')
}

/// Whether it is a number written with digits.
fn is_number(text: &[u8]) -> bool {
    let text = without_sign(text);
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let exponent_is_right = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    });
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    let whole_is_right = is_digits(whole) || (whole.is_empty() && !fraction.is_empty());
    exponent_is_right && whole_is_right && fraction.iter().all(u8::is_ascii_digit)
}

#[inline]
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    /// The powers of ten that are floats exactly, as far as they are needed.
    const POWERS: [f64; FEW_DIGITS] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;
    let digits = without_sign(text);
    // The quotient of two numbers that are floats exactly is rounded once, as the number itself is.
    if let Some((number, fraction)) = few_digits_with_point(digits).filter(|(number, _)| *number <= EXACT_MAX) {
        let value = number as f64 / POWERS[fraction];
        return Some(if digits.len() < text.len() { -value } else { value });
    }
    if is_number(text) {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let word = without_sign(text);
    let value = match word.len() {
        3 if word.eq_ignore_ascii_case(b"nan") => f64::NAN,
        3 if word.eq_ignore_ascii_case(b"inf") => f64::INFINITY,
        8 if word.eq_ignore_ascii_case(b"infinity") => f64::INFINITY,
        _ => return None,
    };
    Some(if word.len() < text.len() { -value } else { value })
}

/// As [`float`], rounded once: by way of 64 bits it would be twice.
pub(super) fn float32(text: &[u8]) -> Option<f32> {
    match is_number(text) {
        true => std::str::from_utf8(text).ok()?.parse().ok(),
        false => float(text).map(|word| word as f32),
    }
}

/// The digits of a decimal of that scale, as one number; `None`: it is none, or has more digits than fit behind the point or at all.
pub(super) fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i256> {
    let digits = without_sign(text);
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    let is_right = is_digits(whole) || (whole.is_empty() && !fraction.is_empty());
    if !is_right || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Zeros at the end say nothing.
    let zeros = fraction.iter().rev().take_while(|byte| **byte == b'0').count();
    let fraction = &fraction[..fraction.len() - zeros];
    let scale = usize::try_from(scale).ok()?;
    let missing = scale.checked_sub(fraction.len())?;
    let all = whole.iter().chain(fraction).copied().chain(std::iter::repeat_n(b'0', missing));
    let significant: Vec<u8> = all.skip_while(|byte| *byte == b'0').collect();
    if significant.len() > usize::from(precision) {
        return None;
    }
    let number = match significant.is_empty() {
        true => i256::ZERO,
        false => i256::from_string(std::str::from_utf8(&significant).ok()?)?,
    };
    Some(if digits.len() < text.len() { number.wrapping_neg() } else { number })
}

/// As [`decimal`], of at most 38 digits.
#[inline]
pub(super) fn decimal128(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let digits = without_sign(text);
    if let Some((number, fraction)) = few_digits_with_point(digits)
        && let Some(missing) = usize::try_from(scale).ok().and_then(|scale| scale.checked_sub(fraction))
        && let Some(power) = POWERS_128.get(missing)
        && let Some(number) = power.checked_mul(i128::from(number))
    {
        // More digits than fit are none of the type, and 38 are all that there are.
        let fits = POWERS_128.get(usize::from(precision)).is_none_or(|end| number < *end);
        return fits.then_some(if digits.len() < text.len() { -number } else { number });
    }
    decimal(text, precision, scale)?.to_i128()
}

/// The powers of ten below 2^127.
const POWERS_128: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Days since 1970-01-01.
#[inline]
pub(super) fn date(text: &[u8]) -> Option<i32> {
    let [a, b, c, d, b'-', e, f, b'-', g, h] = *text else { return None };
    let number = number_of_word(u64::from_le_bytes([a, b, c, d, e, f, g, h]), 8)? as i64;
    i32::try_from(days(number / 10_000, number / 100 % 100, number % 100)?).ok()
}

/// Units since 1970-01-01, of a timestamp with a zone or without one, whichever is said; `None`: it is none, or has more digits behind the point than the unit.
pub(super) fn timestamp(text: &[u8], unit: TimeUnit, has_zone: bool) -> Option<i64> {
    let time = Time::read(text)?;
    if time.offset_seconds.is_some() != has_zone {
        return None;
    }
    let seconds = time.days * 86_400 + time.seconds - time.offset_seconds.unwrap_or(0);
    let nanos_of_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    if time.nanos % nanos_of_unit != 0 {
        return None;
    }
    // The seconds of the first time that there is are before it.
    let units = i128::from(seconds) * i128::from(1_000_000_000 / nanos_of_unit);
    (units + i128::from(time.nanos / nanos_of_unit)).try_into().ok()
}

/// What a text says of a time.
pub(crate) struct Time {
    /// Days from 1970-01-01, and seconds of the day.
    days: i64,
    seconds: i64,
    nanos: i64,
    /// Digits behind the point of the second.
    digits: usize,
    /// East of Greenwich; `None`: it has no zone.
    pub(crate) offset_seconds: Option<i64>,
    /// Whether it has no clock, and is the midnight of a date.
    pub(crate) is_date: bool,
}

impl Time {
    /// Nanoseconds from 1970-01-01, of the instant where there is a zone.
    pub(crate) fn nanos(&self) -> i128 {
        let seconds = self.days * 86_400 + self.seconds - self.offset_seconds.unwrap_or(0);
        i128::from(seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// A date, or a date and a clock, with a zone or without one.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        if text.len() < 10 || text[4] != b'-' || text[7] != b'-' {
            return None;
        }
        let days = days(number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?)?;
        let date = Self { days, seconds: 0, nanos: 0, digits: 0, offset_seconds: None, is_date: true };
        let Some((b' ' | b'T', clock)) = text[10..].split_first() else {
            return (text.len() == 10).then_some(date);
        };
        if clock.len() < 5 || clock[2] != b':' {
            return None;
        }
        let (hours, minutes) = (number(&clock[..2])?, number(&clock[3..5])?);
        let (seconds, mut rest) = match clock.get(5..8) {
            Some([b':', tens, ones]) => (number(&[*tens, *ones])?, &clock[8..]),
            _ => (0, &clock[5..]),
        };
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        let mut time = Self { seconds: hours * 3600 + minutes * 60 + seconds, is_date: false, ..date };
        if let Some(fraction) = rest.strip_prefix(b".").filter(|_| clock.len() >= 8 && clock[5] == b':') {
            time.digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if time.digits == 0 || time.digits > 9 {
                return None;
            }
            time.nanos = number(&fraction[..time.digits])? * 10_i64.pow(9 - time.digits as u32);
            rest = &fraction[time.digits..];
        }
        time.offset_seconds = offset(rest)?;
        Some(time)
    }
}

/// The zone at the end of a time: `Some(None)` where there is none.
fn offset(text: &[u8]) -> Option<Option<i64>> {
    let (sign, digits) = match text {
        [] => return Some(None),
        b"Z" => return Some(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b] => (number(&[*a, *b])?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (number(&[*a, *b])?, number(&[*c, *d])?),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(Some(sign * (hours * 3600 + minutes * 60)))
}

fn number(digits: &[u8]) -> Option<i64> {
    let add = |number: i64, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'));
    digits.iter().try_fold(0, add)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, in a year of four digits.
#[inline]
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let of_month = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=of_month).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day that leap years have is their last one; 400 years more, and they are not less than nothing.
    let (year, month) = if month > 2 { (year + 400, month - 3) } else { (year + 399, month + 9) };
    let (year, of_year) = (year as u32, (153 * month as u32 + 2) / 5 + day as u32);
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(i64::from(year * 365 + leap_days + of_year) - 1 - 146_097 - 719_468)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn short_numbers_are_what_they_are_digit_by_digit(
            text in prop_oneof![
                "-?[0-9]{1,20}",
                "-?[0-9]{0,9}\\.[0-9]{0,9}",
                "-?[0-9]{0,17}\\.[0-9]{0,17}",
                "[-.0-9/:e]{0,18}",
                "-?0{0,3}[0-9]{0,3}\\.?0{0,8}[0-9]{0,2}0{0,3}",
            ],
            precision in 1..=38_u8,
            scale in 0..=38_i8,
        ) {
            let bytes = text.as_bytes();
            let parsed = |is_right: bool| is_right.then(|| text.parse::<f64>().unwrap());
            let whole = is_digits(without_sign(bytes));
            prop_assert_eq!(integer(bytes), whole.then(|| text.parse().ok()).flatten());
            prop_assert_eq!(unsigned(bytes), is_digits(bytes).then(|| text.parse().ok()).flatten());
            prop_assert_eq!(float(bytes).map(f64::to_bits), parsed(is_number(bytes)).map(f64::to_bits));
            let scale = scale.min(precision as i8);
            let exact = decimal(bytes, precision, scale).map(|number| number.to_i128().unwrap());
            prop_assert_eq!(decimal128(bytes, precision, scale), exact);
        }

        #[test]
        fn dates_are_times_without_a_clock(text in "[0-9]{3,4}-[01][0-9]-[0-3][0-9]|[-0-9:]{9,11}") {
            let time = Time::read(text.as_bytes()).filter(|time| time.is_date).map(|time| time.days as i32);
            prop_assert_eq!(date(text.as_bytes()), time);
        }
    }

    #[test]
    fn columns_have_the_first_type_that_all_values_have() {
        let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        for (values, expected) in [
            (vec![], DataType::Utf8),
            (vec!["true", "FALSE"], DataType::Boolean),
            (vec!["0", "1"], DataType::Int64),
            (vec!["1", "-9223372036854775808"], DataType::Int64),
            (vec!["9223372036854775808"], DataType::Utf8),
            (vec!["1", "007"], DataType::Utf8),
            (vec!["1", "+7"], DataType::Utf8),
            (vec!["1", " 7"], DataType::Utf8),
            (vec!["1", "2.5", "-.5", "1e9", "NaN", "-inf"], DataType::Float64),
            (vec!["nan", "inf"], DataType::Utf8),
            (vec!["1", "1e"], DataType::Utf8),
            (vec!["2025-02-28", "0001-01-01"], DataType::Date32),
            (vec!["2025-02-29"], DataType::Utf8),
            (vec!["2024-02-29", "2025-01-02 12:30", "2025-01-02T12:30:15.5"], micros(None)),
            (vec!["2025-01-02 12:30:15.1234567"], DataType::Timestamp(TimeUnit::Nanosecond, None)),
            (vec!["2025-01-02 12:30Z", "2025-01-02 12:30:00+0200"], micros(Some("UTC"))),
            (vec!["2025-01-02 12:30Z", "2025-01-02 12:30"], DataType::Utf8),
            (vec!["2025-01-02 12:30Z", "2025-01-02"], DataType::Utf8),
            (vec!["2025-01-02 24:00"], DataType::Utf8),
            (vec!["2025-01-02 12:30:15."], DataType::Utf8),
            (vec!["2025-01-02 12:30.5"], DataType::Utf8),
        ] {
            let mut evidence = Evidence::default();
            values.iter().for_each(|value| evidence.look_at(value.as_bytes()));
            assert_eq!(evidence.data_type(), expected, "{values:?}");
        }
    }

    #[test]
    fn times_are_counted_from_1970() {
        assert_eq!(date(b"1970-01-01"), Some(0));
        assert_eq!(date(b"1969-12-31"), Some(-1));
        assert_eq!(date(b"2000-03-01"), Some(11_017));
        assert_eq!(date(b"0001-01-01"), Some(-719_162));
        assert_eq!(date(b"9999-12-31"), Some(2_932_896));
        let zone = |text: &str| timestamp(text.as_bytes(), TimeUnit::Second, true);
        assert_eq!(zone("1970-01-01 02:00:00+02:00"), Some(0));
        assert_eq!(zone("1969-12-31T22:30-0130"), Some(0));
        assert_eq!(zone("1970-01-01 00:00"), None);
        assert_eq!(timestamp(b"1970-01-01 00:00Z", TimeUnit::Second, false), None);
        assert_eq!(timestamp(b"1969-12-31 23:59:59.999", TimeUnit::Millisecond, false), Some(-1));
        assert_eq!(timestamp(b"1969-12-31 23:59:59.9991", TimeUnit::Millisecond, false), None);
        assert_eq!(timestamp(b"2300-01-01 00:00", TimeUnit::Nanosecond, false), None);
        let least = timestamp(b"1677-09-21 00:12:43.145224192", TimeUnit::Nanosecond, false);
        assert_eq!(least, Some(i64::MIN));
        assert_eq!(timestamp(b"1677-09-21 00:12:43.145224191", TimeUnit::Nanosecond, false), None);
    }

    #[test]
    fn decimals_are_exact_or_none() {
        let read = |text: &str| decimal(text.as_bytes(), 5, 2).and_then(|number| number.to_i128());
        for (text, expected) in [
            ("3.10", Some(310)),
            ("-3.1", Some(-310)),
            ("3", Some(300)),
            (".5", Some(50)),
            ("0.500000", Some(50)),
            ("0", Some(0)),
            ("999.99", Some(99_999)),
            ("1000", None),
            ("0.001", None),
            ("1e2", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn the_type_that_helps_has_the_value() {
        assert_eq!(wider(&DataType::Int64, b"3.5"), DataType::Float64);
        assert_eq!(wider(&DataType::Int8, b"300"), DataType::Int64);
        assert_eq!(wider(&DataType::Int64, b"n/a"), DataType::Utf8);
        assert_eq!(wider(&DataType::Date32, b"2025-01-02 12:30"), DataType::Timestamp(TimeUnit::Microsecond, None));
        assert_eq!(wider(&DataType::Float64, b"1,5"), DataType::Utf8);
    }
}
