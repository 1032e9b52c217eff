//! One row of each key.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecError, Takes};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, SCHEMA,
    SELECT, VERIFY, WHERE, input_format, invalid, key_of_records, rewrite,
};
use crate::jobs::TableJob;
use crate::jobs::dedupe::{DedupeTable, Keep};
use crate::semantics::KeyColumn;
use crate::sources::InputFormat;

const FIELDS: &[Field] = &[
    INPUTS,
    output(OUTPUT_DOC),
    Field::new(
        "key",
        Takes::Texts,
        "[\"url\"]",
        "Columns of which rows that are alike are one. Unless they are said, the key of 100-byte records, and a table is refused.",
    )
    .shown(),
    Field::new(
        "keep",
        Takes::Word(|| Keep::NAMES.map(|(name, _)| name).to_vec()),
        "\"last\"",
        "Which row of a key stays.",
    )
    .or("\"first\""),
    Field::new(
        "order_by",
        Takes::Texts,
        "[\"ts:desc\"]",
        "In which order rows of a key are, before that of the input: columns, each with :desc and :nulls-first where that is wanted.",
    ),
    PARTITIONS,
    STRATEGY,
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

job_kind!("dedupe", "Leave one row of each key of a table", FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of(DedupeTable::NAME, &job(fields)?)
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of("table.dedupe.explain", &job(fields)?)
}

fn job(fields: &Fields<'_>) -> Result<DedupeTable, SpecError> {
    let (key, order_by) = (key(fields)?, fields.all_parsed("order_by")?);
    Ok(DedupeTable { table: rewrite(fields)?, key, keep: fields.parsed("keep")?.unwrap_or_default(), order_by })
}

/// By which columns the input is deduplicated.
fn key(fields: &Fields<'_>) -> Result<Vec<KeyColumn>, SpecError> {
    let key: Vec<KeyColumn> = fields.all_parsed("key")?;
    if !key.is_empty() {
        return Ok(key);
    }
    match input_format(fields)? {
        Some((InputFormat::Records, _)) => Ok(key_of_records()),
        _ => {
            let message = "a table is deduplicated by columns: say which, `key = \"COLUMN\"`; records are by theirs: \
                           `input_format = \"records\"`";
            Err(invalid("key", message.to_owned()))
        }
    }
}
