//! Rows in other files: as many as are wanted, together by some columns, or in folders.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecError, Takes};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, ROW_GROUP_ROWS, SCHEMA, SELECT, VERIFY,
    WHERE, invalid, rewrite,
};
use crate::jobs::convert::ConvertTable;
use crate::jobs::repartition::RepartitionTable;
use crate::jobs::{Folders, TableJob};

const FIELDS: &[Field] = &[
    INPUTS,
    output(
        "Folder for part-00000.parquet, part-00001.parquet, ..., which stand in folders of their own where `partition_by` says so; made if missing, must be \
         empty.",
    ),
    Field::new(
        "by",
        Takes::Texts,
        "[\"user\", \"ts:desc\"]",
        "Columns; rows that are alike in them are in one file, or in one of each folder, in the order of these columns. Unless they are said, rows stay in \
         their order.",
    )
    .shown(),
    Field::new(
        PARTITION_BY,
        Takes::Texts,
        "[\"day\", \"city\"]",
        "Columns whose values are folders, as Hive has them, day=2024-01-31/city=oslo, and which are in no file.",
    ),
    Field::new(
        MAX_FOLDERS,
        Takes::Number(1, 1_000_000),
        "100000",
        "How many folders `partition_by` may make: each has a file at least.",
    )
    .or("10000"),
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

const PARTITION_BY: &str = "partition_by";
const MAX_FOLDERS: &str = "max_folders";

job_kind!(
    "repartition",
    "Write tables as so many files, with rows of a key together, or in folders of the values of columns",
    FIELDS,
    plan,
    explain
);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of(RepartitionTable::NAME, &job(fields)?)
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let job = job(fields)?;
    match job.moves_rows() {
        true => Plan::of("table.repartition.explain", &job),
        false => Plan::of("table.convert.explain", &ConvertTable { table: job.table, rows: None }),
    }
}

fn job(fields: &Fields<'_>) -> Result<RepartitionTable, SpecError> {
    let columns: Vec<String> = fields.texts(PARTITION_BY).into_iter().map(str::to_owned).collect();
    let folders_max = fields.number(MAX_FOLDERS);
    if columns.is_empty() && folders_max.is_some() {
        let message = "`max_folders` is for folders, and `partition_by` does not say of which columns these are";
        return Err(invalid(MAX_FOLDERS, message.to_owned()));
    }
    let folders_max = folders_max.unwrap_or(Folders::MAX);
    let folders = (!columns.is_empty()).then_some(Folders { columns, folders_max });
    let job = RepartitionTable { table: rewrite(fields)?, by: fields.all_parsed("by")?, folders };
    if !job.moves_rows() && !fields.has(PARTITIONS.name) {
        let message = "say how: in `partitions = 80` files, `by = \"COLUMN\"`, or in folders of `partition_by = \"COLUMN\"`; `exobus convert` writes files of another format or length";
        return Err(invalid(PARTITIONS.name, message.to_owned()));
    }
    Ok(job)
}
