//! Values of conditions among the values of a column: each value that the column can have is a whole number in their order, and what is compared with stands at one of these
//! or between two.

use std::cmp::Ordering;
use std::ops::Bound;

use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};

use super::ranges::Ranges;
use super::tree::{Comparison, Literal};
use crate::semantics::float_order;
use crate::sources::text::{Time, float};

/// What kind of values a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// Of no value.
    Null,
    Bool,
    /// Integers, and decimals with so many digits behind the point.
    Whole(i32),
    /// Of so many bytes.
    Float(usize),
    Text,
    Binary,
    /// Of so many nanoseconds each, from 1970-01-01.
    Date(i128),
    /// Likewise, and whether they have a zone.
    Timestamp(i128, bool),
    /// Of so many nanoseconds each, from midnight.
    Clock(i128),
    /// Of so many nanoseconds each.
    Duration(i128),
    /// What does not compare.
    Other,
}

impl Domain {
    /// Of a plain type.
    pub(super) fn of(data_type: &DataType) -> Self {
        use DataType::*;
        let nanos = |unit: &TimeUnit| match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        match data_type {
            Null => Self::Null,
            Boolean => Self::Bool,
            integer if integer.is_integer() => Self::Whole(0),
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale) => {
                Self::Whole((*scale).into())
            }
            Float16 => Self::Float(2),
            Float32 => Self::Float(4),
            Float64 => Self::Float(8),
            Utf8 | LargeUtf8 => Self::Text,
            Binary | LargeBinary | FixedSizeBinary(_) => Self::Binary,
            Date32 => Self::Date(86_400_000_000_000),
            Date64 => Self::Date(1_000_000),
            Timestamp(unit, zone) => Self::Timestamp(nanos(unit), zone.is_some()),
            Time32(unit) | Time64(unit) => Self::Clock(nanos(unit)),
            Duration(unit) => Self::Duration(nanos(unit)),
            _ => Self::Other,
        }
    }
}

/// Where a value stands among those that a column can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// The largest one that is not larger; `None`: all are.
    below: Option<i256>,
    /// The smallest one that is not smaller; `None`: all are.
    above: Option<i256>,
}

impl Point {
    fn exactly(value: i256) -> Self {
        Self { below: Some(value), above: Some(value) }
    }

    /// Between a value and the next one.
    fn behind(below: i256) -> Self {
        Self { below: Some(below), above: below.checked_add(i256::ONE) }
    }

    /// Beyond all values, on that side.
    fn beyond(is_negative: bool) -> Self {
        let (least, greatest) = (Some(i256::MIN), Some(i256::MAX));
        if is_negative { Self { below: None, above: least } } else { Self { below: greatest, above: None } }
    }

    /// The value that it is, if the column can have it.
    pub(super) fn value(self) -> Option<i256> {
        self.below.filter(|_| self.below == self.above)
    }

    /// The values that compare so with it.
    pub(super) fn compared(self, comparison: Comparison) -> Ranges<i256> {
        let within = |least: Bound<i256>, greatest: Bound<i256>| Ranges::within(least, greatest);
        let equal = || self.value().map_or_else(Ranges::none, Ranges::one);
        match comparison {
            Comparison::Equal => equal(),
            Comparison::NotEqual => equal().complement(),
            Comparison::Less => {
                self.above.map_or_else(Ranges::all, |above| within(Bound::Unbounded, Bound::Excluded(above)))
            }
            Comparison::LessOrEqual => {
                self.below.map_or_else(Ranges::none, |below| within(Bound::Unbounded, Bound::Included(below)))
            }
            Comparison::Greater => {
                self.below.map_or_else(Ranges::all, |below| within(Bound::Excluded(below), Bound::Unbounded))
            }
            Comparison::GreaterOrEqual => {
                self.above.map_or_else(Ranges::none, |above| within(Bound::Included(above), Bound::Unbounded))
            }
        }
    }
}

/// Where a literal that is not null stands among the values of a column.
///
/// # Errors
/// Why it does not compare with them, and what would.
pub(super) fn point(domain: Domain, literal: &Literal) -> Result<Point, String> {
    match (domain, literal) {
        (Domain::Bool, Literal::Bool(value)) => Ok(Point::exactly(i256::from(i64::from(*value)))),
        (Domain::Bool, _) => Err(format!("{literal} is neither true nor false")),
        (Domain::Whole(scale), Literal::Number(text)) => Ok(Number::read(text)?.scaled(scale.into())),
        (Domain::Float(width), Literal::Number(text)) => of_float(width, text),
        (Domain::Float(width), Literal::Text(text)) => match float(text.as_bytes()) {
            Some(word) if text.bytes().all(|byte| !byte.is_ascii_digit()) => Ok(Point::exactly(order_of(width, word))),
            _ => {
                Err(format!("{literal} is a text: numbers are written without quotes, and 'nan' and 'inf' within them"))
            }
        },
        (Domain::Whole(_) | Domain::Float(_), _) => Err(format!("{literal} is no number: write one without quotes")),
        (Domain::Date(nanos), _) => time(literal, nanos, Some(false)),
        (Domain::Timestamp(nanos, has_zone), _) => time(literal, nanos, Some(has_zone)),
        (Domain::Clock(nanos), Literal::Text(text)) => {
            let clock =
                Time::read(format!("1970-01-01 {text}").as_bytes()).filter(|clock| clock.offset_seconds.is_none());
            clock
                .map(|clock| in_units(clock.nanos(), nanos))
                .ok_or_else(|| format!("{literal} is no time: write '12:30:15.5'"))
        }
        (Domain::Clock(_), _) => Err(format!("{literal} is no time: write '12:30:15.5'")),
        (Domain::Duration(_), _) => Err("durations compare with other columns of durations only".to_owned()),
        (Domain::Null | Domain::Text | Domain::Binary | Domain::Other, _) => {
            Err(format!("{literal} does not compare with it"))
        }
    }
}

/// The bytes of a literal that is compared with a column of texts or of bytes.
///
/// # Errors
/// What it is instead.
pub(super) fn bytes(literal: &Literal) -> Result<Vec<u8>, String> {
    match literal {
        Literal::Text(text) => Ok(text.clone().into_bytes()),
        Literal::Number(text) => Err(format!("{text} is a number: write '{text}'")),
        other => Err(format!("{other} is no text: write one in single quotes")),
    }
}

/// A number as it is written.
struct Number {
    digits: i256,
    /// So many of them stand behind the point; below zero: so many zeros follow.
    scale: i64,
}

/// Most digits of a number, as those of decimals.
const DIGITS_MAX: usize = 76;
/// Beyond this nothing that is compared has digits.
const EXPONENT_MAX: i64 = 1 << 20;

impl Number {
    fn read(text: &str) -> Result<Self, String> {
        let (is_negative, unsigned) = text.strip_prefix('-').map_or((false, text), |unsigned| (true, unsigned));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_small = exponent.starts_with('-');
        let exponent = exponent.parse().unwrap_or(if is_small { -EXPONENT_MAX } else { EXPONENT_MAX });
        let all = format!("{whole}{fraction}");
        let (without_end, from_start) = (all.trim_end_matches('0'), all.trim_start_matches('0'));
        let (zeros, digits) = (all.len() - without_end.len(), from_start.trim_end_matches('0'));
        if digits.is_empty() {
            return Ok(Self { digits: i256::ZERO, scale: 0 });
        }
        if digits.len() > DIGITS_MAX {
            return Err(format!("a number has {DIGITS_MAX} digits at most"));
        }
        let digits = i256::from_string(digits).ok_or_else(|| format!("{text} is no number"))?;
        let scale = fraction.len() as i64 - zeros as i64 - exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX);
        Ok(Self { digits: if is_negative { digits.wrapping_neg() } else { digits }, scale })
    }

    /// Among numbers with so many digits behind the point.
    fn scaled(&self, scale: i64) -> Point {
        let (more, is_negative) = (scale - self.scale, self.digits.is_negative());
        let power = |exponent: i64| {
            let exponent = u32::try_from(exponent).ok().filter(|exponent| *exponent <= DIGITS_MAX as u32);
            exponent.and_then(|exponent| i256::from(10i64).checked_pow(exponent))
        };
        if self.digits == i256::ZERO {
            return Point::exactly(i256::ZERO);
        }
        if more >= 0 {
            let value = power(more).and_then(|power| self.digits.checked_mul(power));
            return value.map_or_else(|| Point::beyond(is_negative), Point::exactly);
        }
        let minus_one = i256::ZERO.wrapping_sub(i256::ONE);
        let Some(power) = power(-more) else {
            return Point::behind(if is_negative { minus_one } else { i256::ZERO });
        };
        let (whole, rest) = (self.digits.wrapping_div(power), self.digits.wrapping_rem(power));
        match (rest == i256::ZERO, is_negative) {
            (true, _) => Point::exactly(whole),
            (false, false) => Point::behind(whole),
            (false, true) => Point::behind(whole.wrapping_sub(i256::ONE)),
        }
    }
}

/// Among floats of so many bytes. A whole number is what it is; a number with a point or an exponent is the float that is nearest to it, as it is in the column.
fn of_float(width: usize, text: &str) -> Result<Point, String> {
    let nearest = match width {
        4 => f64::from(text.parse::<f32>().map_err(|_| format!("{text} is no number"))?),
        _ => text.parse::<f64>().map_err(|_| format!("{text} is no number"))?,
    };
    let nearest = if width == 2 { f64::from(Half::from_f64(nearest)) } else { nearest };
    let order = order_of(width, nearest);
    if text.contains(['.', 'e', 'E']) {
        return Ok(Point::exactly(order));
    }
    Ok(match compare_whole(Number::read(text)?.scaled(0).value().unwrap_or_default(), nearest) {
        Ordering::Equal => Point::exactly(order),
        Ordering::Greater => Point::behind(order),
        Ordering::Less => Point::behind(order.wrapping_sub(i256::ONE)),
    })
}

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// What stands for a float in the order of those of so many bytes, of which it is one.
pub(super) fn order_of(width: usize, value: f64) -> i256 {
    let order = match width {
        2 => float_order(Half::from_f64(value).to_le_bytes()),
        4 => float_order((value as f32).to_le_bytes()),
        _ => float_order(value.to_le_bytes()),
    };
    i256::from_i128(order.into())
}

/// How a whole number compares with a float: by what both are, without rounding one of them.
pub(super) fn compare_whole(whole: i256, float: f64) -> Ordering {
    /// 2^127: what is smaller is a whole number of 128 bits, but for what is behind its point.
    const NARROW: f64 = 1.7014118346046923e38;
    if float.is_nan() {
        return Ordering::Less;
    }
    if float.abs() < NARROW {
        let before = float.trunc();
        let of_rest = 0.0.partial_cmp(&(float - before)).unwrap_or(Ordering::Equal);
        return whole.cmp(&i256::from_i128(before as i128)).then(of_rest);
    }
    // A large float is 53 bits and zeros behind them, 255 bits at most together.
    let (bits, is_negative) = (float.to_bits(), float.is_sign_negative());
    let shift = ((bits >> 52) & 0x7ff) as u32 - 1075;
    let beyond = if is_negative { Ordering::Greater } else { Ordering::Less };
    if shift > 202 {
        return beyond;
    }
    let magnitude = i256::from_i128(i128::from(bits & ((1 << 52) - 1) | 1 << 52)) << shift as u8;
    whole.cmp(&if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

fn time(literal: &Literal, nanos: i128, has_zone: Option<bool>) -> Result<Point, String> {
    let (Literal::Text(text) | Literal::Date(text) | Literal::Timestamp(text)) = literal else {
        return Err(format!("{literal} is no time: write '2024-01-31' or '2024-01-31 12:30:15'"));
    };
    let time = Time::read(text.as_bytes())
        .ok_or_else(|| format!("'{text}' is no time: write '2024-01-31' or '2024-01-31 12:30:15'"))?;
    match (has_zone, time.offset_seconds.is_some()) {
        (Some(true), false) => Err(format!("the column has a zone and '{text}' has none: write Z or +02:00 behind it")),
        (Some(false), true) => Err(format!("'{text}' has a zone and the column has none: write it without one")),
        _ => Ok(in_units(time.nanos(), nanos)),
    }
}

fn in_units(nanos: i128, unit: i128) -> Point {
    let below = i256::from_i128(nanos.div_euclid(unit));
    if nanos.rem_euclid(unit) == 0 { Point::exactly(below) } else { Point::behind(below) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(domain: Domain, text: &str) -> (Option<i128>, Option<i128>) {
        let point = point(domain, &Literal::Number(text.to_owned())).unwrap();
        (point.below.and_then(i256::to_i128), point.above.and_then(i256::to_i128))
    }

    #[test]
    fn numbers_stand_among_whole_ones_without_rounding() {
        let exactly = |value| (Some(value), Some(value));
        for (scale, text, expected) in [
            (0, "3", exactly(3)),
            (0, "-3.5", (Some(-4), Some(-3))),
            (0, "3.5", (Some(3), Some(4))),
            (0, "3.500e1", exactly(35)),
            (2, "3.50", exactly(350)),
            (2, "-0.001", (Some(-1), Some(0))),
            (2, ".5", exactly(50)),
            (0, "1e-400", (Some(0), Some(1))),
            (-2, "350", (Some(3), Some(4))),
            (0, "000", exactly(0)),
            (0, "-0.0e99", exactly(0)),
            (0, "9223372036854775808", exactly(1 << 63)),
        ] {
            assert_eq!(at(Domain::Whole(scale), text), expected, "{text}");
        }
        let large = point(Domain::Whole(0), &Literal::Number("-1e400".to_owned())).unwrap();
        assert_eq!((large.below, large.above), (None, Some(i256::MIN)));
        assert!(point(Domain::Whole(0), &Literal::Number("1".repeat(77))).is_err());
    }

    #[test]
    fn whole_numbers_stand_among_floats_as_what_they_are() {
        let two_53 = i256::from(1i64 << 53);
        let exact = |text: &str| point(Domain::Float(8), &Literal::Number(text.to_owned())).unwrap();
        assert!(exact("9007199254740992").value().is_some());
        // The next float is two further.
        let between = exact("9007199254740993");
        assert_eq!(between.value(), None);
        assert_eq!(between.below, exact("9007199254740992").value());
        assert_eq!(between.above, exact("9007199254740994").value());
        assert_eq!(compare_whole(two_53.wrapping_add(i256::ONE), 9007199254740992.0), Ordering::Greater);
        for (whole, float, expected) in [
            (i256::from(3i64), 3.5, Ordering::Less),
            (i256::from(-3i64), -3.5, Ordering::Greater),
            (i256::from(3i64), f64::NAN, Ordering::Less),
            (i256::MAX, f64::INFINITY, Ordering::Less),
            (i256::MIN, f64::NEG_INFINITY, Ordering::Greater),
            (i256::MAX, 2f64.powi(254), Ordering::Greater),
            (i256::MAX, 2f64.powi(255), Ordering::Less),
            (i256::ONE << 200, 2f64.powi(200), Ordering::Equal),
            (i256::ONE << 127, 2f64.powi(127), Ordering::Equal),
        ] {
            assert_eq!(compare_whole(whole, float), expected, "{whole} and {float}");
        }
        // What has a point is the nearest float, of the width of the column.
        let of = |width, value: f64| Some(order_of(width, value));
        let tenth = |width| point(Domain::Float(width), &Literal::Number("0.1".to_owned())).unwrap().value();
        assert_eq!((tenth(8), tenth(4)), (of(8, 0.1), of(4, f64::from(0.1f32))));
    }
}
