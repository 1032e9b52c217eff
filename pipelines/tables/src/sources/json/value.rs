//! Values as they are written in JSON, and where they are in a row.

use std::borrow::Cow;
use std::fmt;

use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field};

use super::super::schema_text::map_of;

/// What a value is, which its first byte tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    Text,
    List,
    Object,
}

impl Kind {
    /// Of a value whose text begins with it.
    pub(super) fn of(raw: &str) -> Self {
        match raw.as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::List,
            Some(b'"') => Self::Text,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }

    /// In words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "text",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// One step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To the field of an object, or the value of a map.
    Field(String),
    /// To an element of a list, from 0.
    Element(usize),
}

/// Steps from a row to a value inside it, the first one at the end: they are noted while an error goes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps(pub(super) Vec<Step>);

impl Steps {
    /// Names of columns inside others as `--select` and errors have them: `a.b[3].c`.
    pub(super) fn path(&self) -> String {
        self.to_string()
    }

    /// The first name, and what is behind it.
    pub(super) fn column(&self) -> Option<(&str, Vec<&Step>)> {
        let (first, rest) = self.0.split_last()?;
        let Step::Field(name) = first else { return None };
        Some((name, rest.iter().rev().collect()))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().rev().enumerate() {
            match step {
                Step::Field(name) if at == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Element(number) => write!(f, "[{number}]")?,
            }
        }
        Ok(())
    }
}

/// The type of a column with another type at the end of these steps into it; a field that it has not is put behind the others.
pub(super) fn with_type_at(column: &DataType, steps: &[&Step], of: DataType) -> DataType {
    let Some((step, rest)) = steps.split_first() else { return of };
    match (column, step) {
        (DataType::List(items), Step::Element(_)) => {
            DataType::new_list(with_type_at(items.data_type(), rest, of), items.is_nullable())
        }
        (DataType::Struct(fields), Step::Field(name)) => {
            let mut fields: Vec<_> = fields.iter().map(|field| field.as_ref().clone()).collect();
            match fields.iter_mut().find(|field| field.name() == name) {
                Some(field) => field.set_data_type(with_type_at(&field.data_type().clone(), rest, of)),
                None => fields.push(Field::new(name, of, true)),
            }
            DataType::Struct(fields.into())
        }
        (DataType::Map(entries, _), Step::Field(_)) => match entries.data_type() {
            DataType::Struct(entry) if entry.len() == 2 => map_of(with_type_at(entry[1].data_type(), rest, of)),
            _ => of,
        },
        _ => of,
    }
}

/// Puts a value behind `out`, without blanks between its parts. Blanks in texts stay.
pub(super) fn push_compact(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some(at) = rest.find(|c: char| c.is_ascii_whitespace() || c == '"') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if !rest.starts_with('"') {
            rest = &rest[1..];
            continue;
        }
        // To the quote that closes it, behind what is escaped.
        let (mut end, bytes) = (1, rest.as_bytes());
        while bytes.get(end).is_some_and(|byte| *byte != b'"') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(rest.len());
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    out.push_str(rest);
}

/// Whether a number is written without a point and an exponent.
pub(super) fn is_whole(number: &str) -> bool {
    !number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

/// How many digits a whole number has.
pub(super) fn digits(whole: &str) -> usize {
    whole.len() - usize::from(whole.starts_with('-'))
}

/// A number without its exponent and with the same value; `None`: it is no number, or has more digits in front of or behind the point than any decimal.
pub(super) fn without_exponent(number: &str) -> Option<Cow<'_, str>> {
    let Some((mantissa, exponent)) = number.split_once(['e', 'E']) else { return Some(Cow::Borrowed(number)) };
    let (sign, unsigned) =
        if let Some(unsigned) = mantissa.strip_prefix('-') { ("-", unsigned) } else { ("", mantissa) };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let exponent_digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    if exponent_digits.is_empty() || !are_digits(exponent_digits) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let Some(first) = digits.bytes().position(|byte| byte != b'0') else { return Some(Cow::Borrowed("0")) };
    let end = digits.trim_end_matches('0').len();
    // Where the point comes to stand, counted from the first digit that is none of these zeros.
    let exponent = exponent.parse::<i64>().ok()?;
    let point = exponent.checked_add(whole.len() as i64 - first as i64)?;
    let (significant, digits_max) = (&digits[first..end], i64::from(DECIMAL256_MAX_PRECISION));
    if point > digits_max || significant.len() as i64 - point > digits_max {
        return None;
    }
    Some(Cow::Owned(match usize::try_from(point) {
        Err(_) | Ok(0) => format!("{sign}0.{}{significant}", "0".repeat(point.unsigned_abs() as usize)),
        Ok(point) if point >= significant.len() => format!("{sign}{significant:0<point$}"),
        Ok(point) => format!("{sign}{}.{}", &significant[..point], &significant[point..]),
    }))
}

/// Whether texts that are numbers are values of a column of that type: only where it is said, and these two may have been inferred from whole numbers.
pub(super) fn takes_texts_of_numbers(of: &DataType) -> bool {
    of.is_decimal()
        && !matches!(
            of,
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0) | DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0)
        )
}

/// A type that has all values of a column of that type of decimals, and the number that is in this text with its quotes.
pub(super) fn wider_of_text(column: &DataType, text: &str) -> Option<DataType> {
    let number: String = serde_json::from_str(text).ok()?;
    let raw = serde_json::from_str::<&serde_json::value::RawValue>(&number).ok()?.get();
    let is_number = raw == number && Kind::of(raw) == Kind::Number;
    let wider = wider_number(column, &number).filter(|_| is_number)?;
    takes_texts_of_numbers(&wider).then_some(wider)
}

/// Whether a float of 64 bits, or of 32, stands for a number: whole numbers keep all of their digits, others have one that is nearest to them, and none is as large as infinity.
pub(super) fn has_float(number: &str, is_wide: bool) -> bool {
    let (sure_digits, sure_bytes) = if is_wide { (15, 300) } else { (7, 38) };
    let shortest = || match is_wide {
        true => number.parse::<f64>().map(|value| format!("{value:e}")),
        false => number.parse::<f32>().map(|value| format!("{value:e}")),
    };
    if is_whole(number) {
        let significant = |text: &str| {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            digits.trim_end_matches('0').to_owned()
        };
        return digits(number) <= sure_digits
            || shortest().is_ok_and(|float| significant(float.split('e').next().unwrap_or("")) == significant(number));
    }
    let is_surely_finite = number.len() < sure_bytes && !number.contains(['e', 'E']);
    is_surely_finite || shortest().is_ok_and(|float| !float.contains("inf"))
}

/// The type of whole numbers of so many digits that do not all fit in 64 bits; `None`: no decimal has as many.
pub(super) fn whole_decimal(digits: usize) -> Option<DataType> {
    match digits {
        ..=38 => Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)),
        39..=76 => Some(DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0)),
        _ => None,
    }
}

/// A type of numbers that has all values of a column of that type, and this one too, where there is one that is sure to.
pub(super) fn wider_number(column: &DataType, number: &str) -> Option<DataType> {
    let is_whole = is_whole(number);
    match column {
        of if of.is_integer() && is_whole => match number.parse::<i64>() {
            Ok(_) if *of != DataType::Int64 && *of != DataType::UInt64 => Some(DataType::Int64),
            _ if of.is_signed_integer() || number.starts_with('-') => whole_decimal(digits(number).max(20)),
            _ => number.parse::<u64>().ok().map(|_| DataType::UInt64).or_else(|| whole_decimal(digits(number).max(20))),
        },
        of if of.is_integer() => has_float(number, true).then_some(DataType::Float64),
        DataType::Float32 => has_float(number, true).then_some(DataType::Float64),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            let number = without_exponent(number)?;
            let (whole, fraction) = number.trim_start_matches('-').split_once('.').unwrap_or((&number, ""));
            let scale = usize::try_from(*scale).ok()?;
            let before = (usize::from(*precision).saturating_sub(scale)).max(digits(whole));
            let scale = scale.max(fraction.len());
            match before + scale {
                of @ ..=38 => Some(DataType::Decimal128(of as u8, scale as i8)),
                of @ ..=76 => Some(DataType::Decimal256(of as u8, scale as i8)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What is wrong with a text that is no JSON, at which byte of it, and what to do. `of`: a line, or the value that it is.
pub(super) fn syntax(line: &str, error: &serde_json::Error, of: &str) -> String {
    let text = error.to_string();
    // Lines have no others in them, so it is the first that the library counts.
    let what = text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    if error.is_eof() {
        return format!(
            "the line ends before its object does ({what}): rows are JSON objects, each in a line of its own. Of a file that is one JSON \
             document `jq -c . FILE` makes one line, and `jq -c '.[]' FILE` lines of its elements; or the file is cut off"
        );
    }
    let at = error.column().saturating_sub(1).min(line.len());
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'_');
    let bytes = line.as_bytes();
    let begin = at - bytes[..at].iter().rev().take_while(|byte| is_part(byte)).count();
    let word: Vec<u8> = bytes[begin..].iter().take_while(|byte| is_part(byte)).take(20).copied().collect();
    let word = String::from_utf8_lossy(&word);
    let advice = match word.trim_start_matches(['-', '+']).to_ascii_lowercase().as_str() {
        "nan" | "inf" | "infinity" => format!("; JSON has no {word}: write null, or a text"),
        "none" | "true" | "false" | "undefined" => format!("; {word} is not how JSON writes it: null, true and false are"),
        _ if what.contains("surrogate") || what.contains("hex escape") || what.contains("unicode code point") => {
            "; two \\u escapes are one character beyond \\uffff, and one of them alone is none: write the characters themselves".to_owned()
        }
        _ if what == "trailing characters" => "; a line has one object and nothing behind it".to_owned(),
        _ if what.starts_with("control character") => "; within a text it is written as an escape, \\t for one".to_owned(),
        _ if line.as_bytes().get(at) == Some(&b'\'') => "; JSON has double quotes".to_owned(),
        _ => String::new(),
    };
    format!("it is no JSON at byte {} of the {of}: {what}{advice}", at + 1)
}

/// What is said where a file seems to be one document.
pub(super) const DOCUMENT: &str = "rows are JSON objects, each in a line of its own: of a file that is one JSON document, `jq -c '.[]' FILE` makes lines of its elements";

/// What is wrong with a line that does not begin as an object does.
pub(super) fn not_object(line: &str) -> String {
    let value = line.trim_start_matches([' ', '\t', '\r']);
    match Kind::of(value) {
        Kind::List => format!("the row is a list; {DOCUMENT}"),
        kind => match serde_json::from_str::<&serde_json::value::RawValue>(line) {
            Ok(_) => format!("the row is {}; {DOCUMENT}", kind.name()),
            Err(error) => syntax(line, &error, "line"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_floats_that_are_written_with_their_digits() {
        for (number, wide, narrow) in [
            ("0", true, true),
            ("-9007199254740992", true, false),
            ("9007199254740993", false, false),
            ("123456789012345680000", true, false),
            ("100000000000000000000000", true, true),
            ("16777217", true, false),
            ("16777216", true, true),
            ("0.1234567890123456789", true, true),
            ("1e39", true, false),
            ("1e308", true, false),
            ("1e309", false, false),
            ("-1E400", false, false),
            ("1e-400", true, true),
        ] {
            assert_eq!((has_float(number, true), has_float(number, false)), (wide, narrow), "{number}");
        }
        let huge = "9".repeat(400);
        assert!(!has_float(&huge, true) && !has_float(&format!("{huge}.5"), true));
    }

    #[test]
    fn values_are_made_compact_without_a_change_of_their_texts() {
        for (raw, expected) in [
            ("[ 1 ,\t2 ]", "[1,2]"),
            (r#"{ "a b" : " \" x " , "c\\" : { } }"#, r#"{"a b":" \" x ","c\\":{}}"#),
            ("1.50", "1.50"),
            ("\"\u{e9} \u{1f600}\"", "\"\u{e9} \u{1f600}\""),
        ] {
            let mut out = String::new();
            push_compact(raw, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn numbers_lose_their_exponents_and_nothing_else() {
        for (number, expected) in [
            ("12.50", Some("12.50")),
            ("1.25e1", Some("12.5")),
            ("1.250E+1", Some("12.5")),
            ("-125e-2", Some("-1.25")),
            ("125e-5", Some("0.00125")),
            ("0.00125e3", Some("1.25")),
            ("1e3", Some("1000")),
            ("12e0", Some("12")),
            ("0.5e-1", Some("0.05")),
            ("0e999999999999999999999", Some("0")),
            ("-0.0e5", Some("0")),
            ("1e75", Some(&format!("1{}", "0".repeat(75)))),
            ("1e76", None),
            ("1e-76", Some(&format!("0.{}1", "0".repeat(75)))),
            ("1e-77", None),
            ("1e99999999999999999999", None),
            ("1e", None),
            ("e1", None),
            ("1e+", None),
            ("x1e1", None),
            ("1e1.5", None),
        ] {
            assert_eq!(without_exponent(number).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn a_type_that_takes_a_number_too_is_the_least_that_is_sure_to() {
        use DataType::*;
        for (column, number, expected) in [
            (Int64, "1.5", Some(Float64)),
            (Int64, "9223372036854775808", Some(Decimal128(38, 0))),
            (UInt64, "-1", Some(Decimal128(38, 0))),
            (UInt8, "300", Some(Int64)),
            (Int8, "18446744073709551615", Some(Decimal128(38, 0))),
            (UInt8, "18446744073709551615", Some(UInt64)),
            (Float64, "9007199254740993", None),
            (Float32, "1e39", Some(Float64)),
            (Decimal128(10, 2), "123456789.125", Some(Decimal128(12, 3))),
            (Decimal128(10, 2), "1e9", Some(Decimal128(12, 2))),
            (Decimal128(10, 2), "-125e-3", Some(Decimal128(11, 3))),
            (Decimal128(10, 2), "1e99", None),
            (Boolean, "1", None),
        ] {
            assert_eq!(wider_number(&column, number), expected, "{column} {number}");
        }
    }
}
