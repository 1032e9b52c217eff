//! Specs in JSON, read more strictly than JSON is: a name is there once, and numbers are what is written.

use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value, error::Category};

use super::parse::{place, plain, too_deep};
use super::value::{Seed, TOO_DEEP};
use super::{DEPTH_MAX, SpecCode, SpecError, shown};

/// The table that a text is.
pub(super) fn table(text: &str) -> Result<Map<String, Value>, SpecError> {
    numbers(text)?;
    let mut from = serde_json::Deserializer::from_str(text);
    let value = Seed { depth_left: DEPTH_MAX }.deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    let error = match value {
        Ok(Value::Object(table)) => return Ok(table),
        Ok(_) => return Err(SpecError::new(SpecCode::BadSpec, "the spec is no table of fields")),
        Err(error) => error,
    };
    let at = format!("line {}, column {}", error.line(), error.column());
    let message = error.to_string();
    if message.starts_with(TOO_DEEP) {
        return Err(too_deep(at));
    }
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let what = match error.classify() {
        Category::Data => plain(message),
        Category::Eof => "the spec is no JSON: it ends too early".to_owned(),
        Category::Syntax | Category::Io => format!("the spec is no JSON: {}", plain(message)),
    };
    Err(SpecError::new(SpecCode::BadSpec, what).at(at))
}

/// Refuses whole numbers that no 64 bits hold: the parser would make the nearest float of them.
fn numbers(text: &str) -> Result<(), SpecError> {
    let bytes = text.as_bytes();
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            b'-' | b'0'..=b'9' if !is_text => {
                let is_of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(is_of_number).count();
                let number = &text[at..at + length];
                let digits = number.strip_prefix('-').unwrap_or(number);
                let is_whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
                if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    let message = format!("{} is no number of 64 bits", shown(number));
                    return Err(SpecError::new(SpecCode::WrongType, message).at(place(text, at)));
                }
                at += length - 1;
            }
            _ => (),
        }
        at += 1;
    }
    Ok(())
}
