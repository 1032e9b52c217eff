//! The fields that every spec has.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::units::parse_duration;
use super::{DEPTH_MAX, Spec, SpecCode, SpecError, parse, shown};

/// Most characters of a name, and of a key.
const NAME_CHARS_MAX: usize = 128;
const PRIORITIES: std::ops::RangeInclusive<i64> = -100..=100;

/// Their names.
pub(super) const NAMES: [&str; 5] = ["kind", "name", "priority", "timeout", "idempotency_key"];

/// Those but the kind: name, example as TOML, what it says.
pub(super) const OTHERS: [(&str, &str, &str); 4] = [
    ("name", "\"nightly\"", "What the job is called in lists."),
    ("priority", "10", "Jobs of higher priority start first: -100 to 100, 0 unless it is said."),
    ("timeout", "\"2h 30m\"", "How long the job may run; it is cancelled then."),
    (
        "idempotency_key",
        "\"nightly-2026-11-26\"",
        "A spec that is submitted again with the same one is the same job; the same one with another spec is refused.",
    ),
];

/// Those but the kind as properties of a JSON schema.
pub(super) fn schema() -> Map<String, Value> {
    let property = |(name, example, doc): (&str, &str, &str)| {
        let mut property = match name {
            "priority" => {
                json!({ "type": "integer", "minimum": PRIORITIES.start(), "maximum": PRIORITIES.end(), "default": 0 })
            }
            "timeout" => json!({ "type": "string" }),
            _ => json!({ "type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": "^[ -~]*$" }),
        };
        property["description"] = doc.into();
        property["examples"] = json!([parse::toml_value(example)]);
        (name.to_owned(), property)
    };
    OTHERS.into_iter().map(property).collect()
}

/// The spec that a table is.
pub(super) fn of(mut table: Map<String, Value>) -> Result<Spec, SpecError> {
    let kind = text(&mut table, "kind")?.ok_or_else(|| {
        let message = "the spec has no `kind`, which says what is to be done: kind = \"sort\"";
        SpecError::new(SpecCode::Missing, message).at("kind")
    })?;
    let name = text(&mut table, "name")?.map(|name| limited("name", name)).transpose()?;
    let key = text(&mut table, "idempotency_key")?.map(|key| limited("idempotency_key", key)).transpose()?;
    let priority = priority(table.remove("priority"))?;
    let timeout = text(&mut table, "timeout")?.map(|text| timeout(&text)).transpose()?;
    Ok(Spec { kind, name, priority, timeout, key, fields: table })
}

/// Says a field, or one of a table in a table, otherwise.
pub(super) fn set(table: &mut Map<String, Value>, path: &str, text: &str) -> Result<(), SpecError> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let Some(rest) = rest else {
        let value = parse::table(format!("value = {text}").as_bytes()).ok().filter(|table| table.len() == 1);
        table.insert(name.to_owned(), value.and_then(|mut table| table.remove("value")).unwrap_or_else(|| text.into()));
        return Ok(());
    };
    if rest.matches('.').count() >= DEPTH_MAX {
        return Err(parse::too_deep(shown(path)));
    }
    match table.entry(name).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(table) => set(table, rest, text),
        _ => Err(wrong_type(&shown(name), "no table, and has no fields")),
    }
}

/// The spec as JSON, its names in order.
pub(super) fn canonical(spec: &Spec) -> Vec<u8> {
    let Spec { kind, name, priority, timeout, key, fields } = spec;
    let mut table = fields.clone();
    let timeout = timeout.map(|timeout| humantime::format_duration(timeout).to_string());
    let texts = [
        ("kind", Some(kind)),
        ("name", name.as_ref()),
        ("idempotency_key", key.as_ref()),
        ("timeout", timeout.as_ref()),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            table.insert(field.to_owned(), text.as_str().into());
        }
    }
    if *priority != 0 {
        table.insert("priority".to_owned(), (*priority).into());
    }
    // A map of values is in the order of its names.
    serde_json::to_vec(&table).expect("values are written to memory")
}

fn wrong_type(field: &str, expected: &str) -> SpecError {
    SpecError::new(SpecCode::WrongType, format!("`{field}` is {expected}")).at(field)
}

fn text(table: &mut Map<String, Value>, field: &str) -> Result<Option<String>, SpecError> {
    match table.remove(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong_type(field, "a text")),
    }
}

fn limited(field: &str, text: String) -> Result<String, SpecError> {
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match is_printable && (1..=NAME_CHARS_MAX).contains(&text.len()) {
        true => Ok(text),
        false => {
            let message = format!("`{field}` is 1 to {NAME_CHARS_MAX} printable characters of ASCII");
            Err(SpecError::new(SpecCode::Invalid, message).at(field))
        }
    }
}

fn priority(value: Option<Value>) -> Result<i32, SpecError> {
    let expected = format!("a whole number from {} to {}", PRIORITIES.start(), PRIORITIES.end());
    let Some(value) = value else { return Ok(0) };
    let number = value.as_i64().ok_or_else(|| wrong_type("priority", &expected))?;
    let invalid = || SpecError::new(SpecCode::Invalid, format!("`priority` is {expected}, and not {number}"));
    PRIORITIES.contains(&number).then_some(number as i32).ok_or_else(|| invalid().at("priority"))
}

fn timeout(text: &str) -> Result<Duration, SpecError> {
    parse_duration(text).map_err(|error| SpecError::new(SpecCode::Invalid, error.to_string()).at("timeout"))
}
