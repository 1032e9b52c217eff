//! Values that can be shown.

use std::fmt::{self, Write as _};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use crate::plain::Indirection;
use crate::raw::{ByteRanges, ElementRanges, WholeNumbers};
use crate::sinks::field_text;

/// A value of a table, as text where it has no simpler form.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// None.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer, or a float that is a number.
    Number(String),
    /// A decimal, a float that is no number, a date, a time: as text has it.
    Exact(String),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list; a map is one of keys and values.
    List(Vec<Value>),
    /// Names of fields and their values.
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// It as JSON: what has no form there is text.
    pub fn into_json(self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => value.into(),
            // An integer of 64 bits or a float: JSON has their digits.
            Self::Number(text) => serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)),
            Self::Exact(text) | Self::Text(text) => text.into(),
            bytes @ Self::Bytes(_) => bytes.to_string().into(),
            Self::List(values) => values.into_iter().map(Self::into_json).collect(),
            Self::Struct(fields) => fields.into_iter().map(|(name, value)| (name, value.into_json())).collect(),
        }
    }

    /// The value of a row.
    ///
    /// # Panics
    /// There is no such row.
    pub fn of(array: &ArrayRef, row: usize) -> Self {
        if let Some(indirection) = Indirection::of(array.as_ref()) {
            return match indirection.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                true => Self::Null,
                false => Self::of(&indirection.values, indirection.place(row)),
            };
        }
        if array.is_null(row) || *array.data_type() == DataType::Null {
            return Self::Null;
        }
        match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().value(row)),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(String::from_utf8_lossy(&bytes(array, row)).into_owned())
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytes(bytes(array, row))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                Self::Struct(columns.map(|(field, column)| (field.name().clone(), Self::of(column, row))).collect())
            }
            integer if integer.is_integer() => Self::Number(field_text(array.as_ref(), row)),
            DataType::Float32 | DataType::Float64 => match field_text(array.as_ref(), row) {
                text if text.ends_with(|c: char| c.is_ascii_digit()) => Self::Number(text),
                text => Self::Exact(text),
            },
            DataType::Float16 => {
                let value = f32::from(array.as_primitive::<arrow_array::types::Float16Type>().value(row));
                if value.is_finite() { Self::Number(format!("{value:?}")) } else { Self::Exact(format!("{value:?}")) }
            }
            DataType::Date32 | DataType::Timestamp(..) => Self::Exact(field_text(array.as_ref(), row)),
            decimal if decimal.is_decimal() => Self::Exact(field_text(array.as_ref(), row)),
            DataType::Date64 => time_of_day(array, row, TimeUnit::Millisecond, true),
            DataType::Time32(unit) | DataType::Time64(unit) => time_of_day(array, row, *unit, false),
            DataType::Duration(unit) => {
                let unit = ["s", "ms", "us", "ns"][*unit as usize];
                Self::Exact(format!("{} {unit}", whole(array, row)))
            }
            _ => match ElementRanges::of(array.as_ref()) {
                Some((ranges, elements)) => {
                    let (from, len) = ranges.get(row);
                    Self::List((from..from + len).map(|at| Self::of(&elements, at)).collect())
                }
                None => Self::Exact(format!("{:?}", array.slice(row, 1))),
            },
        }
    }
}

fn bytes(array: &ArrayRef, row: usize) -> Vec<u8> {
    ByteRanges::of(array.as_ref()).map_or_else(Vec::new, |ranges| ranges.get(row).to_vec())
}

fn whole(array: &ArrayRef, row: usize) -> i128 {
    WholeNumbers::of(array.as_ref()).map_or(0, |numbers| numbers.narrow(row))
}

/// A time of the day; of milliseconds since 1970, with the date before it where it is no midnight.
fn time_of_day(array: &ArrayRef, row: usize, unit: TimeUnit, has_date: bool) -> Value {
    let (value, digits) = (whole(array, row), 3 * unit as usize);
    let units = 10_i128.pow(digits as u32);
    let (seconds, part) = (value.div_euclid(units), value.rem_euclid(units));
    let days = seconds.div_euclid(86_400);
    let second = if has_date { seconds.rem_euclid(86_400) } else { seconds };
    let mut text = if has_date { crate::sinks::date_text(days as i64) } else { String::new() };
    if !has_date || second > 0 || part > 0 {
        let space = if has_date { " " } else { "" };
        // To a text nothing fails.
        let _ = write!(text, "{space}{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    }
    if part > 0 {
        let _ = write!(text, ".{part:0digits$}");
    }
    Value::Exact(text)
}

impl fmt::Display for Value {
    /// As it stands in a cell of a table: what is no value is `null`, and a text that could be taken for something else is within quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(text) | Self::Exact(text) => f.write_str(text),
            Self::Text(text) => {
                let is_plain =
                    !text.is_empty() && text != "null" && text.trim().len() == text.len() && !text.starts_with('\'');
                let text: String = text.chars().flat_map(shown).collect();
                if is_plain { f.write_str(&text) } else { write!(f, "'{text}'") }
            }
            Self::Bytes(bytes) => {
                f.write_str("x'")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            Self::List(values) => {
                f.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Struct(fields) => {
                f.write_str("{")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// A character, or what stands for one that would do something to a terminal.
fn shown(c: char) -> impl Iterator<Item = char> {
    // What changes the direction of text is no control character, and hides what is behind it.
    let is_hidden =
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let escaped = is_hidden.then(|| c.escape_debug().chain(std::iter::empty()).collect::<String>());
    let text = escaped.unwrap_or_else(|| c.to_string());
    text.chars().collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::*;

    use super::*;

    #[test]
    fn values_of_all_types_are_shown() {
        let micros = TimestampMicrosecondArray::from(vec![-1]).with_timezone("UTC");
        let decimals = Decimal128Array::from(vec![-5]).with_precision_and_scale(10, 2).unwrap();
        let words: DictionaryArray<Int8Type> = vec![Some("a\u{1b}[1m\n")].into_iter().collect();
        let list = ListArray::from_iter_primitive::<Int8Type, _, _>([Some([Some(1), None])]);
        for (array, expected) in [
            (Arc::new(Int8Array::from(vec![-3])) as ArrayRef, "-3"),
            (Arc::new(Int8Array::from(vec![None])), "null"),
            (Arc::new(NullArray::new(1)), "null"),
            (Arc::new(BooleanArray::from(vec![true])), "true"),
            (Arc::new(Float64Array::from(vec![0.1])), "0.1"),
            (Arc::new(Float32Array::from(vec![f32::NAN])), "NaN"),
            (Arc::new(decimals), "-0.05"),
            (Arc::new(Date32Array::from(vec![19_753])), "2024-01-31"),
            (Arc::new(Date64Array::from(vec![-86_400_000])), "1969-12-31"),
            (Arc::new(Date64Array::from(vec![-1])), "1969-12-31 23:59:59.999"),
            (Arc::new(micros), "1969-12-31 23:59:59.999999Z"),
            (Arc::new(Time32MillisecondArray::from(vec![43_215_500])), "12:00:15.500"),
            (Arc::new(DurationSecondArray::from(vec![-7])), "-7 s"),
            (Arc::new(StringArray::from(vec!["null"])), "'null'"),
            (Arc::new(StringArray::from(vec![""])), "''"),
            (Arc::new(StringViewArray::from(vec!["it's"])), "it's"),
            (Arc::new(words), "'a\\u{1b}[1m\\n'"),
            (Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..]])), "x'00ff'"),
            (Arc::new(list), "[1, null]"),
        ] {
            assert_eq!(Value::of(&array, 0).to_string(), expected, "{}", array.data_type());
        }
    }
}
