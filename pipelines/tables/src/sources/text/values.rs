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

fn without_sign(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"-").unwrap_or(text)
}

pub(super) fn integer(text: &[u8]) -> Option<i64> {
    if !is_digits(without_sign(text)) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn unsigned(text: &[u8]) -> Option<u64> {
    if !is_digits(text) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
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

pub(crate) fn float(text: &[u8]) -> Option<f64> {
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

/// Days since 1970-01-01.
pub(super) fn date(text: &[u8]) -> Option<i32> {
    let time = Time::read(text).filter(|time| time.is_date)?;
    i32::try_from(time.days).ok()
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

/// Days from 1970-01-01 to a date of the Gregorian calendar.
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
    // Years begin in March, so that the day that leap years have is their last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

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
