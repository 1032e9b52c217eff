//! What a function of the user makes of the rows of a table.

use exobus_actors::job_kind;
use exobus_actors::registry;
use exobus_actors::registry::function_named;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecCode, SpecError, Takes, nearest, shown};
use exobus_actors::task::{Resources, TaskOptions};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, SCHEMA,
    SELECT, VERIFY, WHERE, invalid, rewrite, rows_per_file,
};
use crate::jobs::TableJob;
use crate::jobs::map_batches::MapTable;

const FIELDS: &[Field] = &[
    INPUTS,
    output(OUTPUT_DOC),
    Field::new(
        "function",
        Takes::Text,
        "\"mine.clean@1\"",
        "Name and version of a function of the nodes' binary, which takes batches of rows and returns such, or its name alone: the \
         latest version.",
    )
    .needed(Need::Always),
    Field::new(
        "resources",
        Takes::Texts,
        "[\"gpu=1\"]",
        "What each task needs of its node, NAME=NUMBER each: `cpu` is 1 unless it is said. Without a node that has it the job is refused.",
    ),
    PARTITIONS,
    rows_per_file("Rows that are read for a file; for the last one, those that are left."),
    PARTIAL,
    INPUT_FORMAT,
    HIVE,
    SELECT,
    WHERE,
    SCHEMA,
    JSON_MIXED,
    FORMAT,
    COMPRESSION,
    ROW_GROUP_ROWS,
    FILE_BYTES,
    VERIFY,
];

job_kind!("map_batches", "Write what a function makes of the rows of a table, batch by batch", FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let name = fields.text("function").unwrap_or_default();
    let function = function_named(name).ok_or_else(|| unknown(name))?;
    Plan::of(MapTable::NAME, &MapTable { table: rewrite(fields)?, function, resources: resources(fields)? })
}

/// The most of a resource that somebody may mean.
const MOST: f64 = 1e6;

fn resources(fields: &Fields<'_>) -> Result<Resources, SpecError> {
    let mut resources = TaskOptions::default().resources;
    for text in fields.texts("resources") {
        let named = text.split_once('=').map(|(name, number)| (name.trim(), number.trim().parse::<f64>()));
        let of_name =
            |name: &str| !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        match named {
            Some((name, Ok(number))) if of_name(name) && (0.001..=MOST).contains(&number) => {
                resources = resources.with(name, (number * 1000.0).round() as u64);
            }
            _ => {
                let text = shown(text);
                return Err(invalid(
                    "resources",
                    format!("{text:?} is no resource: NAME=NUMBER is one, `gpu=1`, from 0.001 on"),
                ));
            }
        }
    }
    Ok(resources)
}

fn unknown(name: &str) -> SpecError {
    let of_users = registry::functions().values().filter(|function| !function.is_built_in());
    let hint = nearest(name, of_users.map(|function| function.key())).map(|key| format!("; did you mean {key}?"));
    let what = format!("no function is registered here as {:?}{}", shown(name), hint.unwrap_or_default());
    invalid("function", what)
}

fn explain(_fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let what = "what a function makes of rows is not known before it runs, so `map_batches` cannot be explained";
    Err(SpecError::new(SpecCode::Invalid, what).at("kind"))
}
