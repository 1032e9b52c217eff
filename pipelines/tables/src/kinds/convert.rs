//! Rows as they are, in other files.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecError};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, SCHEMA,
    SELECT, VERIFY, WHERE, rewrite, rows_per_file,
};
use crate::jobs::TableJob;
use crate::jobs::convert::ConvertTable;

const FIELDS: &[Field] = &[
    INPUTS,
    output(OUTPUT_DOC),
    PARTITIONS,
    rows_per_file("Rows of a file; the last one has what is left."),
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

job_kind!("convert", "Write tables as files of another format or length", FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of(ConvertTable::NAME, &ConvertTable { table: rewrite(fields)?, rows: None })
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of("table.convert.explain", &ConvertTable { table: rewrite(fields)?, rows: None })
}
