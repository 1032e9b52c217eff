//! Schemas as people write them: `id int64, price decimal(10,2), t timestamp[us, UTC]`.
//!
//! A column is a name and a type; commas are between columns. A name with spaces, commas or quotes in it is within double quotes, and a quote in it doubled. Types are
//! `bool`, `int8` to `int64`, `uint8` to `uint64`, `float32`, `float64`, `decimal(DIGITS,SCALE)`, `date`, `timestamp[UNIT]`, `timestamp[UNIT, ZONE]` with the units `s`, `ms`, `us`, `ns`, and `text`;
//! of JSON lines also `list(TYPE)`, `struct(NAME TYPE, ...)`, `map(text, TYPE)` and `null`.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;

use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, TimeUnit};

use super::SourceError;
use crate::plain::DEPTH_MAX;

/// Names and types of columns, in their order.
pub type NamedTypes = Vec<(String, DataType)>;

/// Reads the text of a schema.
///
/// # Errors
/// [`SourceError::Schema`], with the rest of the text from where it is wrong.
pub fn parse_schema(text: &str) -> Result<NamedTypes, SourceError> {
    let (columns, rest) = columns(text.trim_start(), 1)?;
    match rest.is_empty() {
        true => Ok(columns),
        false => Err(wrong(rest, "a comma belongs between columns")),
    }
}

/// Names and types with commas between them, and what is behind the last one. `depth`: of their types.
fn columns(text: &str, depth: usize) -> Result<(NamedTypes, &str), SourceError> {
    let (mut columns, mut names) = (NamedTypes::new(), HashSet::new());
    let mut rest = text;
    loop {
        let at = rest;
        let (name, behind) = name(rest)?;
        if !names.insert(name.clone()) {
            return Err(wrong(at, format!("column {name} is there twice")));
        }
        let (data_type, behind) = data_type(behind.trim_start(), depth)?;
        columns.push((name, data_type));
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind.trim_start(),
            None => return Ok((columns, rest)),
        }
    }
}

/// The text of one column.
pub fn print_column(name: &str, data_type: &DataType) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| !c.is_whitespace() && !matches!(c, ',' | '"' | '(' | ')'));
    let name = if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) };
    format!("{name} {}", print_type(data_type))
}

/// The text of a schema.
pub fn print_schema<'a>(columns: impl IntoIterator<Item = (&'a str, &'a DataType)>) -> String {
    let mut text = String::new();
    for (name, data_type) in columns {
        let comma = if text.is_empty() { "" } else { ", " };
        // To a text nothing fails.
        let _ = write!(text, "{comma}{}", print_column(name, data_type));
    }
    text
}

/// The text of a type; of one that text cannot have, as Arrow prints it.
pub fn print_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "bool".to_owned(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => data_type.to_string().to_lowercase(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            data_type.to_string().to_lowercase()
        }
        DataType::Float32 | DataType::Float64 => data_type.to_string().to_lowercase(),
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            format!("decimal({digits},{scale})")
        }
        DataType::Date32 => "date".to_owned(),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", print_unit(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp[{}, {zone}]", print_unit(*unit)),
        DataType::Utf8 => "text".to_owned(),
        DataType::Null => "null".to_owned(),
        DataType::List(of) => format!("list({})", print_type(of.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| (field.name().as_str(), field.data_type()));
            format!("struct({})", print_schema(fields))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(of) if of.len() == 2 => {
                format!("map({}, {})", print_type(of[0].data_type()), print_type(of[1].data_type()))
            }
            _ => data_type.to_string(),
        },
        other => other.to_string(),
    }
}

fn print_unit(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn wrong(at: &str, what: impl Into<String>) -> SourceError {
    SourceError::Schema { at: at.chars().take(40).collect(), what: what.into() }
}

fn name(text: &str) -> Result<(String, &str), SourceError> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | '"')).unwrap_or(text.len());
        return match end {
            0 => Err(wrong(text, "the name of a column belongs here")),
            end => Ok((text[..end].to_owned(), &text[end..])),
        };
    };
    let (mut name, mut rest) = (String::new(), quoted);
    loop {
        let end = rest.find('"').ok_or_else(|| wrong(text, "the name has no quote at its end"))?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                name.push('"');
                rest = behind;
            }
            None => return Ok((name, rest)),
        }
    }
}

fn data_type(text: &str, depth: usize) -> Result<(DataType, &str), SourceError> {
    if depth > DEPTH_MAX {
        return Err(wrong(text, format!("types are nested {DEPTH_MAX} deep at most")));
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let data_type = match word {
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        "date" => DataType::Date32,
        "text" => DataType::Utf8,
        "decimal" => return decimal(text, rest),
        "timestamp" => return timestamp(text, rest),
        "null" => DataType::Null,
        "list" => return list(text, rest, depth),
        "struct" => return structure(text, rest, depth),
        "map" => return map(text, rest, depth),
        _ => {
            let known = "bool, int8 to int64, uint8 to uint64, float32, float64, decimal(10,2), date, timestamp[us], timestamp[us, UTC] and text, and of JSON lines list(text), struct(a text, b int64), map(text, int64) and null";
            return Err(wrong(text, format!("a type belongs here: {known} are known")));
        }
    };
    Ok((data_type, rest))
}

/// What is between brackets, and what is behind them.
fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    text.strip_prefix(open)?.split_once(close)
}

/// What is behind an opening bracket, and behind the closing one that is behind what `inside` reads there.
fn within<'a, T>(
    at: &str,
    text: &'a str,
    form: &str,
    inside: impl FnOnce(&'a str) -> Result<(T, &'a str), SourceError>,
) -> Result<(T, &'a str), SourceError> {
    let text = text.strip_prefix('(').ok_or_else(|| wrong(at, format!("a type belongs here, as {form}")))?;
    let (found, rest) = inside(text.trim_start())?;
    let rest = rest.trim_start();
    let closed = rest.strip_prefix(')').ok_or_else(|| wrong(rest, format!("a bracket belongs here, as in {form}")))?;
    Ok((found, closed))
}

fn list<'a>(at: &str, text: &'a str, depth: usize) -> Result<(DataType, &'a str), SourceError> {
    let (of, rest) = within(at, text, "list(text)", |text| data_type(text, depth + 1))?;
    Ok((DataType::new_list(of, true), rest))
}

fn structure<'a>(at: &str, text: &'a str, depth: usize) -> Result<(DataType, &'a str), SourceError> {
    let fields = |text: &'a str| match text.starts_with(')') {
        true => Ok((NamedTypes::new(), text)),
        false => columns(text, depth + 1),
    };
    let (fields, rest) = within(at, text, "struct(a text, b int64)", fields)?;
    Ok((DataType::Struct(fields.into_iter().map(|(name, of)| Field::new(name, of, true)).collect()), rest))
}

fn map<'a>(at: &str, text: &'a str, depth: usize) -> Result<(DataType, &'a str), SourceError> {
    const FORM: &str = "map(text, int64)";
    let types = |text: &'a str| {
        let (key, rest) = data_type(text, depth + 2)?;
        if key != DataType::Utf8 {
            return Err(wrong(text, "keys of maps are text"));
        }
        let rest = rest.trim_start();
        let rest = rest.strip_prefix(',').ok_or_else(|| wrong(rest, format!("a comma belongs here, as in {FORM}")))?;
        data_type(rest.trim_start(), depth + 2)
    };
    let (of, rest) = within(at, text, FORM, types)?;
    Ok((map_of(of), rest))
}

/// Maps of text to values of this type.
pub(crate) fn map_of(values: DataType) -> DataType {
    let entries = vec![Field::new("keys", DataType::Utf8, false), Field::new("values", values, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false)
}

fn decimal<'a>(at: &str, text: &'a str) -> Result<(DataType, &'a str), SourceError> {
    let of = || {
        let (inside, rest) = bracketed(text, '(', ')')?;
        let (digits, scale) = inside.split_once(',')?;
        let (digits, scale) = (digits.trim().parse::<u8>().ok()?, scale.trim().parse::<i8>().ok()?);
        (digits > 0 && scale >= 0 && scale as u8 <= digits && digits <= DECIMAL256_MAX_PRECISION)
            .then_some((digits, scale, rest))
    };
    let (digits, scale, rest) = of()
        .ok_or_else(|| wrong(at, "decimals have digits, 76 at most, and a scale, no more than these: decimal(10,2)"))?;
    match digits <= DECIMAL128_MAX_PRECISION {
        true => Ok((DataType::Decimal128(digits, scale), rest)),
        false => Ok((DataType::Decimal256(digits, scale), rest)),
    }
}

fn timestamp<'a>(at: &str, text: &'a str) -> Result<(DataType, &'a str), SourceError> {
    let of = || {
        let (inside, rest) = bracketed(text, '[', ']')?;
        let (unit, zone) = match inside.split_once(',') {
            Some((unit, zone)) => (unit, Some(zone.trim())),
            None => (inside, None),
        };
        let unit = match unit.trim() {
            "s" => TimeUnit::Second,
            "ms" => TimeUnit::Millisecond,
            "us" => TimeUnit::Microsecond,
            "ns" => TimeUnit::Nanosecond,
            _ => return None,
        };
        (zone != Some("")).then(|| (DataType::Timestamp(unit, zone.map(Into::into)), rest))
    };
    of().ok_or_else(|| wrong(at, "timestamps have a unit of s, ms, us or ns, and a zone or none: timestamp[us, UTC]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_printed_as_it_is_read() {
        let text = "id int64, price decimal(10,2), \"a, \"\"b\"\"\" text, t timestamp[us, UTC], u timestamp[ns], d date, big decimal(50,0), ok bool, f float32, n uint8";
        let columns = parse_schema(text).unwrap();
        let nested = "a struct(b list(struct(\"c d\" int64, e struct())), f map(text, list(null))), g list(list(text))";
        assert_eq!(print_schema(parse_schema(nested).unwrap().iter().map(|(name, of)| (name.as_str(), of))), nested);
        assert_eq!(parse_schema("a list( text ), b struct( c text )").unwrap().len(), 2);
        assert_eq!(columns[1], ("price".to_owned(), DataType::Decimal128(10, 2)));
        assert_eq!(columns[2], ("a, \"b\"".to_owned(), DataType::Utf8));
        assert_eq!(columns[3].1, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
        assert_eq!(print_schema(columns.iter().map(|(name, of)| (name.as_str(), of))), text);
    }

    #[test]
    fn a_text_that_is_no_schema_says_where() {
        let deep = format!("a {}text{}", "list(".repeat(16), ")".repeat(16));
        for (text, at, what) in [
            ("", "", "name of a column"),
            ("id", "", "a type belongs here"),
            ("id int64 price text", "price text", "a comma"),
            ("id int65", "int65", "a type belongs here"),
            ("id int64, id text", "id text", "twice"),
            ("a decimal(10,12)", "decimal(10,12)", "decimals have"),
            ("a decimal(77,2)", "decimal(77,2)", "decimals have"),
            ("t timestamp[min]", "timestamp[min]", "timestamps have"),
            ("\"id int64", "\"id int64", "no quote"),
            ("a list", "list", "as list(text)"),
            ("a list(text", "", "a bracket belongs here"),
            ("a struct(b text, b text)", "b text)", "twice"),
            ("a struct(b text, )", "", "a type belongs here"),
            ("a map(int64, text)", "int64, text)", "keys of maps"),
            ("a map(text)", ")", "a comma belongs here"),
            (&deep, "text))))))))))))))))", "16 deep"),
        ] {
            let error = parse_schema(text).unwrap_err();
            let SourceError::Schema { at: found, what: said } = &error else { panic!("{error}") };
            assert!(found == at && said.contains(what), "{text}: {error}");
        }
    }
}
