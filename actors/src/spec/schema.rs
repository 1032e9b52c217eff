//! What kinds take, as JSON schemas (draft 2020-12), for editors and programs.

use serde_json::{Map, Value, json};

use super::field::{Field, Need, Takes};
use super::{Kind, SPEC_BYTES_MAX, common, kinds, parse};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of specs of a kind with these fields.
pub fn schema(kind: &str, doc: &str, table: &[Field]) -> Value {
    let mut properties = Map::new();
    properties.insert("kind".to_owned(), json!({ "const": kind, "description": doc }));
    properties.extend(common::schema());
    properties.extend(table.iter().map(|field| (field.name.to_owned(), property(field))));
    let needed = table.iter().filter(|field| field.need != Need::Never).map(|field| field.name);
    object(kind, doc, properties, std::iter::once("kind").chain(needed).collect())
}

/// The schema of specs of all kinds, programs included.
pub fn all_schemas() -> Value {
    let mut any: Vec<Value> = kinds().values().map(|kind| (kind.schema)()).collect();
    any.push(program_schema());
    for schema in any.iter_mut().filter_map(Value::as_object_mut) {
        schema.remove("$schema");
    }
    json!({
        "$schema": DRAFT,
        "title": "job",
        "description": format!("A job of exobus, as TOML or JSON of at most {SPEC_BYTES_MAX} bytes."),
        "oneOf": any,
    })
}

/// The schema of specs whose kind is a program.
pub fn program_schema() -> Value {
    let doc = "A program of the nodes' registry, and what it is told.";
    let names: Vec<&str> = kinds().keys().copied().collect();
    let mut properties = Map::new();
    let kind = "Name and version of the program, \"table.sort@2\", or its name alone: the latest version.";
    let kind = json!({ "type": "string", "description": kind, "not": { "enum": names }, "examples": ["table.sort@2"] });
    properties.insert("kind".to_owned(), kind);
    properties.extend(common::schema());
    let params = "The parameters of the program, by the names of its fields.";
    properties.insert("params".to_owned(), json!({ "description": params }));
    object("program", doc, properties, vec!["kind"])
}

fn object(title: &str, doc: &str, properties: Map<String, Value>, required: Vec<&str>) -> Value {
    json!({
        "$schema": DRAFT,
        "title": title,
        "description": doc,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(field: &Field) -> Value {
    let mut property = of(field.takes);
    let table = property.as_object_mut().expect("a schema is a table");
    table.insert("description".to_owned(), field.doc.into());
    table.insert("examples".to_owned(), json!([parse::toml_value(field.example)]));
    if let Some(default) = field.default {
        table.insert("default".to_owned(), parse::toml_value(default));
    }
    property
}

fn of(takes: Takes) -> Value {
    let one_or_list = |item: Value| json!({ "anyOf": [item, { "type": "array", "items": item }] });
    let path = || {
        let byte = json!({ "type": "integer", "minimum": 0, "maximum": 255 });
        let bytes = json!({ "bytes": { "type": "array", "items": byte } });
        let bytes =
            json!({ "type": "object", "properties": bytes, "required": ["bytes"], "additionalProperties": false });
        json!({ "anyOf": [{ "type": "string", "minLength": 1 }, bytes] })
    };
    match takes {
        Takes::Text => json!({ "type": "string" }),
        Takes::Texts => one_or_list(json!({ "type": "string" })),
        Takes::Word(words) => json!({ "type": "string", "enum": words() }),
        Takes::Words(words) => {
            let list = json!({ "type": "array", "items": { "type": "string", "enum": words() } });
            json!({ "anyOf": [{ "type": "string" }, list] })
        }
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::Number(least, u64::MAX) => json!({ "type": "integer", "minimum": least }),
        Takes::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Takes::Size => json!({ "type": "string", "pattern": "^ *[0-9.]+ *[kKmMgGtTpPeE]?i?[bB]? *$" }),
        Takes::Reads => {
            let mut schema = one_or_list(path());
            schema["anyOf"][1]["minItems"] = 1.into();
            schema
        }
        Takes::Writes => path(),
    }
}

impl Kind {
    /// A spec of this kind as people write it: its fields with their examples, those as comments that need not be there.
    pub fn example_toml(&self) -> String {
        let mut text = format!("{}\nkind = {:?}\n", comment(&format!("{}.", self.doc)), self.name);
        for (name, example, doc) in common::OTHERS {
            text.push_str(&format!("\n{}\n# {name} = {example}\n", comment(doc)));
        }
        for field in self.fields {
            let default = field.default.map(|default| format!(" Default: {default}.")).unwrap_or_default();
            let mark = if field.need == Need::Never && !field.is_shown { "# " } else { "" };
            text.push_str(&format!("\n{}\n{mark}{}\n", comment(&format!("{}{default}", field.doc)), field.example()));
        }
        text
    }
}

/// Comments of TOML, some 100 characters a line.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        match line.len() + word.len() > 100 {
            true => lines.push(format!("# {word}")),
            false => line.push_str(&format!(" {word}")),
        }
    }
    lines.join("\n")
}
