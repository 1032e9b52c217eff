//! The configuration as a JSON schema, for editors that complete and check TOML: made from the table of keys.
//!
//! A schema says less than the checks of this crate: whether two keys go together, or whether a file is there, no editor learns from it.
//! It never refuses what they accept.

use serde_json::{Map, Value, json};

use super::keys::{Key, Kind, SECTIONS, Section};

/// The schema, of draft 2020-12.
pub fn schema() -> Value {
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "exobus",
        "description": "Configuration of a node, or of a client, of an exobus cluster. Made by `exobus config schema`.",
    });
    close(&mut root);
    for section in SECTIONS {
        // A nested section comes after the one that it is in.
        let place = section.name.split('.').fold(&mut root, |table, name| match name {
            "*" => &mut table["additionalProperties"],
            name => &mut table["properties"][name],
        });
        *place = of_section(section);
    }
    root
}

/// An object that has no other keys than those that are put into it.
fn close(object: &mut Value) {
    object["type"] = json!("object");
    object["properties"] = json!({});
    object["additionalProperties"] = json!(false);
}

fn of_section(section: &Section) -> Value {
    let mut schema = json!({ "description": section.doc });
    close(&mut schema);
    if let Some((kind, _)) = section.free {
        schema["additionalProperties"] = Value::Object(of_kind(kind));
    }
    for key in section.keys {
        schema["properties"][key.name] = of_key(key);
    }
    schema
}

fn of_key(key: &Key) -> Value {
    let mut schema = of_kind(key.kind);
    schema.insert("description".into(), json!(key.doc));
    if let Some(default) = key.default_value() {
        schema.insert("default".into(), json!(default));
    }
    if let Some(example) = key.example_value() {
        schema.insert("examples".into(), json!([example]));
    }
    Value::Object(schema)
}

/// A server of NATS, with its port where it has one, without user, password and path.
const SERVER: &str = r"(nats|tls)://[^@/ ,]+";

/// White space, without the classes that editors' engines know by different names.
const WHITE: &str = "[ \\t]*";
/// A unit of bytes.
const UNIT: &str = "[kKmMgGtTpPeE]?[iI]?[bB]?";

/// What values of a kind are.
fn of_kind(kind: Kind) -> Map<String, Value> {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let schema = match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Token => text("^[A-Za-z0-9_-]{1,64}$"),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Count => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Kind::Replicas => json!({ "type": "integer", "enum": [1, 3, 5] }),
        Kind::Memory => text(&format!("^{WHITE}\\+?[0-9.]+{WHITE}(%|{UNIT}){WHITE}$")),
        Kind::Size => text(&format!("^{WHITE}[0-9.]+{WHITE}{UNIT}{WHITE}$")),
        Kind::Duration => text(&format!("^{WHITE}[0-9].*[A-Za-zµ]{WHITE}$")),
        Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Paths | Kind::Texts => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        Kind::Listen => text(r"^([0-9.]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}$"),
        Kind::NatsUrl => text(&format!("^{SERVER}(,{SERVER})*$")),
        Kind::Executor => json!({ "type": "string", "enum": ["thread", "process", "process-all"] }),
        Kind::Submitters => json!({ "type": "string", "enum": ["token", "nats", "none"] }),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("all of them are objects"),
    }
}
