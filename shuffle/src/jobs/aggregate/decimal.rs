//! Exact decimal numbers: whole multiples of 10^-18 below 10^20, and sums of as many of them as there can be.
//!
//! Binary floating point would make a sum depend on the order of its terms, and so on strategy, memory and nodes.

use std::fmt;

/// Digits after the point.
pub const FRACTION_DIGITS: u32 = 18;
/// Digits before the point.
pub const WHOLE_DIGITS: u32 = 20;
/// How many units one is.
const ONE: i128 = 10i128.pow(FRACTION_DIGITS);
/// All numbers are below this many units; an `i128` holds 1.7 times as many.
const LIMIT: i128 = 10i128.pow(FRACTION_DIGITS + WHOLE_DIGITS);

/// Why a text is no number that can be added exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// It is no decimal number.
    #[error("{} is not a number", .0.escape_debug())]
    NotANumber(String),
    /// Its size is 10^20 or more.
    #[error("{} has more than {WHOLE_DIGITS} digits before the point", .0.escape_debug())]
    TooLarge(String),
    /// It is no multiple of 10^-18.
    #[error("{} has more than {FRACTION_DIGITS} digits after the point", .0.escape_debug())]
    TooPrecise(String),
}

/// Reads a number, in units of 10^-18: sign, digits, point, digits, exponent (`-12.5`, `.5`, `1e-3`), ASCII white space
/// around it. `None` when there is nothing but white space.
///
/// # Errors
/// See [`DecimalError`].
pub fn parse(text: &[u8]) -> Result<Option<i128>, DecimalError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    // What is quoted in an error stays readable.
    let quoted = || String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
    let not_a_number = || DecimalError::NotANumber(quoted());
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (digits, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&rest[..at], parse_exponent(&rest[at + 1..]).ok_or_else(not_a_number)?),
        None => (rest, 0),
    };
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &digits[digits.len()..]),
    };
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(not_a_number());
    }
    // Where the last digit stands, in digits after the point, once zeros behind it are left out.
    let used = |digits: &[u8]| digits.len() - digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let (whole_used, fraction_used) = (used(whole), used(fraction));
    let significant = match fraction_used {
        0 => whole[..whole_used].iter().chain(&[]),
        _ => whole.iter().chain(&fraction[..fraction_used]),
    };
    let last = match fraction_used {
        0 => whole_used as i64 - whole.len() as i64,
        _ => fraction_used as i64,
    };
    let mut units = 0i128;
    for digit in significant {
        // More digits than the limit has are too large or too precise; which of the two, the last one tells.
        let added = units.checked_mul(10).and_then(|units| units.checked_add(i128::from(digit - b'0')));
        let precise = last - exponent > i64::from(FRACTION_DIGITS);
        let error = if precise { DecimalError::TooPrecise } else { DecimalError::TooLarge };
        units = added.ok_or_else(|| error(quoted()))?;
    }
    if units == 0 {
        return Ok(Some(0));
    }
    let shift = i64::from(FRACTION_DIGITS) + exponent - last;
    if shift < 0 {
        return Err(DecimalError::TooPrecise(quoted()));
    }
    let factor = u32::try_from(shift).ok().and_then(|shift| 10i128.checked_pow(shift));
    let units = factor.and_then(|factor| units.checked_mul(factor)).filter(|units| *units < LIMIT);
    let units = units.ok_or_else(|| DecimalError::TooLarge(quoted()))?;
    Ok(Some(if negative { -units } else { units }))
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Beyond this the number is zero or out of range whatever its digits are.
    let size = digits.iter().fold(0i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(1_000_000_000));
    Some(if text[0] == b'-' { -size } else { size })
}

/// A sum of numbers: exact, and in range for as many of them as a 64-bit count counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The greatest whole number that is not above it.
    pub whole: i128,
    /// What is left, in units; below 10^18.
    pub fraction: u64,
}

impl Sum {
    /// Of one number, in units.
    pub fn of(units: i128) -> Self {
        Self { whole: units.div_euclid(ONE), fraction: units.rem_euclid(ONE) as u64 }
    }

    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        let fraction = self.fraction + other.fraction;
        let carry = u64::from(fraction >= ONE as u64);
        self.whole += other.whole + i128::from(carry);
        self.fraction = fraction - carry * ONE as u64;
    }
}

/// As few digits as it takes, without exponent.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = match self.fraction {
            // The fraction counts up from the whole part, the digits away from zero.
            1.. if self.whole < 0 => (self.whole + 1, ONE as u64 - self.fraction),
            fraction => (self.whole, fraction),
        };
        let sign = if self.whole < 0 { "-" } else { "" };
        write!(f, "{sign}{}", whole.unsigned_abs())?;
        if fraction > 0 {
            let digits = format!("{fraction:018}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(text: &str) -> String {
        parse(text.as_bytes()).unwrap().map_or_else(String::new, |units| Sum::of(units).to_string())
    }

    #[test]
    fn numbers_are_read_as_people_and_programs_write_them() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("007", "7"),
            (" +12 ", "12"),
            ("-12.50", "-12.5"),
            (".5", "0.5"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.25E-2", "0.0125"),
            ("1200e-2", "12"),
            ("0e999999999999", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("99999999999999999999.999999999999999999", "99999999999999999999.999999999999999999"),
            ("-0.000000000000000001", "-0.000000000000000001"),
            ("1.000000000000000000000000000000000000000000000000", "1"),
            ("0.0000000000000000000000001e7", "0.000000000000000001"),
            ("", ""),
            ("  ", ""),
        ] {
            assert_eq!(show(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_added_exactly_is_refused() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        for text in ["x", "1x", "-", ".", "1.2.3", "1e", "1e+", "nan", "inf", "1 2", "0x10", "1,5", "--1"] {
            assert_eq!(error(text), DecimalError::NotANumber(text.into()));
        }
        for text in ["100000000000000000000", "1e20", "1e999999999999", "-340282366920938463463374607431768211456"] {
            assert_eq!(error(text), DecimalError::TooLarge(text.into()));
        }
        for text in ["0.0000000000000000001", "1e-19", "0.1234567890123456789", "1e-999999999999"] {
            assert_eq!(error(text), DecimalError::TooPrecise(text.into()));
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(units in -(LIMIT - 1)..LIMIT) {
            prop_assert_eq!(parse(Sum::of(units).to_string().as_bytes()).unwrap(), Some(units));
        }

        #[test]
        fn sums_are_those_of_whole_numbers(units in proptest::collection::vec(-(1i128 << 100)..1i128 << 100, 0..50)) {
            let mut sum = Sum::default();
            units.iter().for_each(|units| sum.add(Sum::of(*units)));
            prop_assert_eq!(sum, Sum::of(units.iter().sum()));
        }
    }
}
