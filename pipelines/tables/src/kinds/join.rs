//! Rows of two tables, side by side.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecError, Takes};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, inputs, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, SCHEMA, SELECT,
    VERIFY, WHERE, invalid, reading, rewrite,
};
use crate::jobs::TableJob;
use crate::jobs::join::{Broadcast, JoinKind, JoinQuery, JoinTables};

const RIGHT: &str = "right";
/// What the names of fields begin with that say of the right table what those without it say of the left one.
const RIGHT_READING: &str = "right_";

const FIELDS: &[Field] = &[
    inputs(
        "[\"/data/events\"]",
        "The left table: files of Parquet, CSV, TSV, JSON lines, Arrow and 100-byte records, folders of such files, or patterns \
         (\"/data/events/**/*.csv\").",
    ),
    Field::new(
        RIGHT,
        Takes::Reads,
        "[\"/data/users.parquet\"]",
        "The right table: files, folders or patterns, as those of the left one.",
    )
    .needed(Need::Always),
    output(OUTPUT_DOC),
    Field::new(
        "on",
        Takes::Texts,
        "[\"id=uid\", \"day\"]",
        "Columns that have to be the same in both tables: COLUMN where both have it, or LEFT=RIGHT. Null is like nothing, also not like null.",
    )
    .shown()
    .needed(Need::Always),
    Field::new(
        "how",
        Takes::Word(|| JoinKind::NAMES.map(|(name, _)| name).to_vec()),
        "\"left\"",
        "Which rows are written. inner: pairs of rows that match; left, right, full: these, and rows of the left table, the right one or both \
         that match none; semi: rows of the left table that match one, each once; anti: those that match none.",
    )
    .or("\"inner\""),
    Field::new(
        "suffix",
        Takes::Text,
        "\"_right\"",
        "What is behind the name of a column of the right table where the left one has a column of this name. Unless it is said, such names \
         are refused.",
    ),
    Field::new(
        "broadcast",
        Takes::Word(|| Broadcast::NAMES.map(|(name, _)| name).to_vec()),
        "\"never\"",
        "Which table all tasks have as a whole: left, right or never. Nothing of the other one goes to another node then, and the output is in its order \
         instead of that of the key. auto: the right one, or else the left one, where it has no more than 64 MiB of values and no row of it is \
         written that matches none.",
    )
    .or("\"auto\""),
    PARTITIONS,
    STRATEGY,
    PARTIAL,
    Field { doc: "How the files of the left table are read. Unless it is said, as their names say.", ..INPUT_FORMAT },
    Field {
        doc: "Whether folders below those that are named of the left table, or behind what is fixed of a pattern, are columns whose names say so, as Hive \
              has them: day=2024-01-31/city=oslo.",
        ..HIVE
    },
    Field { doc: "Columns of the left table that are read, in the order that they are to have. Unless they are said, all.", ..SELECT },
    Field { doc: "Rows of the left table that are read; docs/semantics.md says which conditions there are.", ..WHERE },
    Field {
        doc: "Types of columns of text of the left table; those of others are inferred, and where no file of it is text it is refused.",
        ..SCHEMA
    },
    Field {
        doc: "What is made of values of one column of JSON lines of the left table that have no one type, as a number and a text: refuse, or \
              text. Where no file of it is JSON lines it is refused.",
        ..JSON_MIXED
    },
    Field { name: "right_input_format", doc: "How the files of the right table are read, as `input_format`.", ..INPUT_FORMAT },
    Field { name: "right_hive", doc: "Whether folders of the right table are columns, as `hive`.", ..HIVE },
    Field {
        name: "right_select",
        example: "[\"uid\", \"name\"]",
        doc: "Columns of the right table that are read, as `select`.",
        ..SELECT
    },
    Field {
        name: "right_where",
        example: "\"country = 'no'\"",
        doc: "Rows of the right table that are read, as `where`.",
        ..WHERE
    },
    Field {
        name: "right_schema",
        example: "\"uid int64\"",
        doc: "Types of columns of text of the right table, as `schema`.",
        ..SCHEMA
    },
    Field {
        name: "right_json_mixed",
        doc: "What is made of values of JSON lines of the right table, as `json_mixed`.",
        ..JSON_MIXED
    },
    FORMAT,
    COMPRESSION,
    ROW_GROUP_ROWS,
    FILE_BYTES,
    VERIFY,
];

job_kind!("join", "Join two tables: rows that have the same key, side by side", FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of(JoinTables::NAME, &job(fields)?)
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of("table.join.explain", &job(fields)?)
}

fn job(fields: &Fields<'_>) -> Result<JoinTables, SpecError> {
    let suffix = fields.text("suffix").map(str::to_owned);
    let query = JoinQuery { on: fields.all_parsed("on")?, kind: fields.parsed("how")?.unwrap_or_default(), suffix };
    let right_reading = reading(fields, RIGHT_READING)?;
    let broadcast = fields.parsed("broadcast")?.unwrap_or_default();
    let job = JoinTables { table: rewrite(fields)?, right: fields.paths(RIGHT), right_reading, query, broadcast };
    job.check().map_err(|(field, message)| invalid(field, message))?;
    Ok(job)
}
