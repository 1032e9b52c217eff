//! Sorts: of records as they are, and of tables.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecError, Takes};
use exobus_shuffle::jobs::sort::{CutsFrom, ExplainParams, SortParams};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, output, partitions, strategy};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, ROW_GROUP_ROWS, SCHEMA, SELECT, VERIFY,
    WHERE, input_format, invalid, key_of_records, rewrite, table_field,
};
use crate::jobs::TableJob;
use crate::jobs::sort::SortTable;
use crate::semantics::KeyColumn;
use crate::sources::InputFormat;

const FIELDS: &[Field] = &[
    INPUTS,
    output(
        "Folder for part-00000.parquet, part-00001.parquet, ... (records: part-00000, ...) in key order; made if missing, must be \
         empty. A part of records that would be far larger than the others is written as several files, part-00000-000, \
         part-00000-001, ...",
    ),
    Field::new(
        "key",
        Takes::Texts,
        "[\"user\", \"ts:desc\", \"name:nulls-first\"]",
        "Columns that a table is sorted by, the first decides first, each with :desc and :nulls-first where that is wanted. Unless \
         they are said, records are sorted by their first 10 bytes, and a table is refused.",
    )
    .shown(),
    PARTITIONS,
    Field::new(
        "cuts",
        Takes::Word(|| vec![SAMPLED, UNIFORM]),
        "\"uniform\"",
        "Where one part of records ends and the next begins. sampled: at keys of a random sample of the input, so that parts are \
         about even, whatever the keys are; uniform: at even distances in the space of keys, for keys that are spread evenly, or \
         parts that must hold the same keys always.",
    )
    .or("\"sampled\""),
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

const SAMPLED: &str = "sampled";
const UNIFORM: &str = "uniform";

job_kind!("sort", "Sort tables by columns, or files of 100-byte records", FIELDS, plan, explain);

/// How files are sorted.
enum Way {
    /// Records, as they are.
    Raw,
    /// As a table, by this key.
    Table(Vec<KeyColumn>),
}

impl Way {
    /// What these fields ask for of this input.
    fn of(fields: &Fields<'_>) -> Result<Self, SpecError> {
        let key: Vec<KeyColumn> = fields.all_parsed("key")?;
        if !key.is_empty() {
            return Ok(Self::Table(key));
        }
        let format = input_format(fields)?;
        if let Some((_, name)) = format.as_ref().filter(|(format, _)| *format != InputFormat::Records) {
            let message = format!("{name}: a table is sorted by columns: say which, `key = \"COLUMN\"`");
            return Err(invalid("key", message));
        }
        match (table_field(fields), format) {
            (None, _) => Ok(Self::Raw),
            (Some(_), Some(_)) => Ok(Self::Table(key_of_records())),
            (Some(field), None) => {
                let message = format!(
                    "`{field}` is for tables, which are sorted by `key = \"COLUMN\"`, and for records: `input_format = \"records\"`"
                );
                Err(invalid(field, message))
            }
        }
    }
}

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let is_uniform = fields.text("cuts") == Some(UNIFORM);
    match Way::of(fields)? {
        Way::Raw => {
            let params = SortParams {
                inputs: fields.paths("inputs"),
                output: fields.path("output").unwrap_or_default(),
                partitions: partitions(fields),
                strategy: strategy(fields),
                cuts: if is_uniform { CutsFrom::Uniform } else { CutsFrom::Sampled },
                partial: fields.flag(PARTIAL.name),
            };
            Plan::of("sort", &params)
        }
        Way::Table(_) if is_uniform => {
            let field = fields.first_of(&["key"]).or_else(|| table_field(fields)).unwrap_or("key");
            let what =
                format!("`cuts` is for records that are sorted as they are, and `{field}` makes a table of them");
            Err(invalid("cuts", what))
        }
        Way::Table(key) => Plan::of(SortTable::NAME, &SortTable { table: rewrite(fields)?, key }),
    }
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    match Way::of(fields)? {
        Way::Raw => {
            let (inputs, partitions, partial) = (fields.paths("inputs"), partitions(fields), fields.flag(PARTIAL.name));
            Plan::of("sort.explain", &ExplainParams { inputs, partitions, partial })
        }
        Way::Table(key) => Plan::of("table.explain", &SortTable { table: rewrite(fields)?, key }),
    }
}
