//! Texts of specs as tables of values.

use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{DEPTH_MAX, SPEC_BYTES_MAX, SpecCode, SpecError, shown};

/// The table that a text is.
pub(super) fn table(text: &[u8]) -> Result<Map<String, Value>, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        let message = format!("the spec has {} bytes, and may have {SPEC_BYTES_MAX}", text.len());
        return Err(SpecError::new(SpecCode::TooLarge, message));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let good = std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default();
        SpecError::new(SpecCode::BadSpec, "the bytes are no UTF-8").at(place(good, good.len()))
    })?;
    match text.trim_start().starts_with('{') {
        true => super::json::table(text),
        false => toml_table(text),
    }
}

/// A value of TOML that is written in the code.
pub(super) fn toml_value(text: &str) -> Value {
    let table = table(format!("value = {text}").as_bytes());
    table.ok().and_then(|mut table| table.remove("value")).unwrap_or_else(|| panic!("{text} is no value of TOML"))
}

/// "line 3, column 5", both from 1, the column in characters.
pub(super) fn place(text: &str, offset: usize) -> String {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

fn toml_table(text: &str) -> Result<Map<String, Value>, SpecError> {
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let code = match error.message().contains("recursion limit") || error.message().contains("recurse further") {
            true => SpecCode::TooDeep,
            false => SpecCode::BadSpec,
        };
        SpecError::new(code, format!("the spec is no TOML: {}", plain(error.message()))).at(place(text, offset))
    })?;
    Toml { text }.table(table.get_ref(), 1)
}

/// The message of a parser, in one line.
pub(super) fn plain(message: &str) -> String {
    message.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Lists and tables are within each other deeper than is allowed.
pub(super) fn too_deep(at: String) -> SpecError {
    let message = format!("lists and tables are {} deep within each other here, and may be {DEPTH_MAX}", DEPTH_MAX + 1);
    SpecError::new(SpecCode::TooDeep, message).at(at)
}

/// Makes values of those of TOML.
struct Toml<'a> {
    text: &'a str,
}

impl Toml<'_> {
    fn table(&self, table: &DeTable<'_>, depth: usize) -> Result<Map<String, Value>, SpecError> {
        let item = |(name, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
            Ok((name.get_ref().to_string(), self.value(value, depth)?))
        };
        table.iter().map(item).collect()
    }

    fn list(&self, list: &DeArray<'_>, depth: usize) -> Result<Value, SpecError> {
        list.iter().map(|value| self.value(value, depth)).collect::<Result<_, _>>().map(Value::Array)
    }

    /// A value that is in so many lists and tables.
    fn value(&self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Value, SpecError> {
        let at = || place(self.text, value.span().start);
        let refused = |message: String| Err(SpecError::new(SpecCode::WrongType, message).at(at()));
        match value.get_ref() {
            DeValue::Array(_) | DeValue::Table(_) if depth == DEPTH_MAX => Err(too_deep(at())),
            DeValue::Array(list) => self.list(list, depth + 1),
            DeValue::Table(table) => self.table(table, depth + 1).map(Value::Object),
            DeValue::String(text) => Ok(Value::String(text.to_string())),
            DeValue::Boolean(flag) => Ok(Value::Bool(*flag)),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Ok(number.into()),
                Err(_) => refused(format!("{} is no number of 64 bits", shown(&number.to_string()))),
            },
            DeValue::Float(number) => {
                let finite = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
                match finite {
                    Some(number) => Ok(Value::Number(number)),
                    None => refused(format!("{} is no finite number of 64 bits", shown(&number.to_string()))),
                }
            }
            DeValue::Datetime(time) => {
                refused(format!("{time} is a date or a time, which no field takes: write it in quotes"))
            }
        }
    }
}
