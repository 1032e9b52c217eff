//! Random shuffles: of records as they are, and of tables.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecError, Takes};
use exobus_shuffle::jobs::RandomShuffle;
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, explain_keyed, output, plan_keyed};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, ROWS_PER_FILE,
    SCHEMA, SELECT, VERIFY, WHERE, input_format, rewrite, rows_per_file, table_field,
};
use crate::jobs::TableJob;
use crate::jobs::shuffle::ShuffleTable;
use crate::sources::InputFormat;

const FIELDS: &[Field] = &[
    INPUTS,
    output(OUTPUT_DOC),
    Field::new(
        "seed",
        Takes::Number(0, u64::MAX),
        "7",
        "Decides the order; the same for the same input files, whatever memory, nodes and strategy.",
    )
    .needed(Need::ToRun),
    PARTITIONS,
    rows_per_file("Rows of a file of a table, at most; files differ by one row."),
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

job_kind!(
    "shuffle",
    "Put tables, or files of 100-byte records, into a random order that a seed decides, as files of even length",
    FIELDS,
    plan,
    explain
);

/// Whether records are shuffled as they are: where nothing is asked for that tables alone have.
fn is_raw(fields: &Fields<'_>) -> Result<bool, SpecError> {
    let asks_for_more = table_field(fields).is_some() || fields.has(ROWS_PER_FILE);
    let is_of_records = |(format, _)| format == InputFormat::Records;
    Ok(!asks_for_more && input_format(fields)?.is_some_and(is_of_records))
}

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let seed = fields.number("seed").unwrap_or_default();
    match is_raw(fields)? {
        true => plan_keyed(fields, RandomShuffle { seed }),
        false => Plan::of(ShuffleTable::NAME, &ShuffleTable { table: rewrite(fields)?, seed }),
    }
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    // Which order it is changes nothing about the work.
    match is_raw(fields)? {
        true => explain_keyed(fields, RandomShuffle { seed: 0 }),
        false => Plan::of("table.shuffle.explain", &ShuffleTable { table: rewrite(fields)?, seed: 0 }),
    }
}
