//! How people ask, and what runs.

use std::path::PathBuf;

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecCode, SpecError, Takes};
use exobus_queries::kinds::{ONLINE, online};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY};
use exobus_tables::kinds::{COMPRESSION, FILE_BYTES, FORMAT, ROW_GROUP_ROWS, VERIFY, writing};

use crate::program::{SqlQuery, scratch_beside};
use crate::text::{self, TableNames};

const SQL: Field = Field::new(
    "sql",
    Takes::Text,
    "\"SELECT city, sum(price) AS total FROM '/data/sales/*.parquet' GROUP BY city ORDER BY total DESC LIMIT 10\"",
    "The query: a SELECT, with files in quotes where it names tables. EXPLAIN before it says how it would be done.",
)
.needed(Need::Always)
.shown();

const OWN: [Field; 6] = [
    SQL,
    Field::new(
        "table",
        Takes::Texts,
        "[\"sales=/data/sales/*.parquet\"]",
        "Names that the query gives to files, each as NAME=FILES.",
    ),
    Field::new(
        "directory",
        Takes::Text,
        "\"/data\"",
        "The folder of files whose names in the query do not begin with one. Unless it is said, names begin with `/` or say their store.",
    ),
    Field::new(
        "output",
        Takes::Writes,
        "\"/data/totals\"",
        "A folder for the answer, as files of a table. Unless it is said, the job returns the first rows of the answer, and writes nothing else.",
    ),
    Field::new(
        "scratch",
        Takes::Writes,
        "\"/data/totals.steps\"",
        "A folder, which all nodes reach, for what steps of the query write until the answer is there. Unless it is said, that beside `output` whose name has `.steps` behind it; one of both is needed.",
    )
    .shown(),
    Field::new(
        "rows",
        Takes::Number(0, 1_000_000),
        "1000",
        "How many rows of the answer the job returns, at most, and no more than 4 MiB of them (some 200 KiB on a cluster, where results are logged), where it has no `output`.",
    )
    .or("100"),
];

const WRITTEN: [Field; 8] = [PARTITIONS, STRATEGY, PARTIAL, FORMAT, COMPRESSION, ROW_GROUP_ROWS, FILE_BYTES, VERIFY];

const FIELDS: [Field; OWN.len() + ONLINE.len() + WRITTEN.len()] = {
    let mut fields = [SQL; OWN.len() + ONLINE.len() + WRITTEN.len()];
    let mut at = 0;
    while at < fields.len() {
        let behind = at - if at < OWN.len() { at } else { OWN.len() };
        fields[at] = if at < OWN.len() {
            OWN[at]
        } else if behind < ONLINE.len() {
            ONLINE[behind]
        } else {
            WRITTEN[behind - ONLINE.len()]
        };
        at += 1;
    }
    fields
};

job_kind!("query", "Answer a query of SQL over files", &FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of(SqlQuery::NAME, &asked(fields, fields.text("sql").unwrap_or_default())?)
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let text = fields.text("sql").unwrap_or_default();
    Plan::of(SqlQuery::NAME, &SqlQuery { explains: true, ..asked(fields, text)? })
}

fn asked(fields: &Fields<'_>, text: &str) -> Result<SqlQuery, SpecError> {
    let parsed = text::parse(text).map_err(|error| invalid("sql", error.to_string()))?;
    let named = named(fields)?;
    let directory = fields.text("directory").map(PathBuf::from);
    if let Some(other) = directory.as_ref().filter(|directory| directory.is_relative()) {
        return Err(invalid("directory", format!("{}: a folder begins with `/` here", other.display())));
    }
    let tables = TableNames { named: &named, directory: directory.as_deref() }.resolved(&parsed);
    let tables = tables.map_err(|error| invalid("sql", error.to_string()))?;
    let output = fields.path("output");
    let beside = output.as_deref().map(scratch_beside);
    let scratch = fields.path("scratch").or(beside).ok_or_else(|| {
        let what = "a query is done in steps, which write files until the answer is there: say `scratch`, a folder that all nodes reach, or `output`, beside which it is made";
        invalid("scratch", what.to_owned())
    })?;
    let online = online(fields)?;
    let query = SqlQuery {
        output: output.into_iter().collect(),
        writing: writing(fields)?,
        strategy: exobus_shuffle::kinds::strategy(fields),
        partial: fields.flag(PARTIAL.name),
        online,
        rows_shown: fields.number("rows").unwrap_or(100),
        ..SqlQuery::new(text, tables, scratch)
    };
    query.check().map_err(|(at, what)| invalid(at, what))?;
    Ok(query)
}

/// The names that are given to files.
fn named(fields: &Fields<'_>) -> Result<Vec<(String, PathBuf)>, SpecError> {
    let of = |text: &str| match text.split_once('=') {
        Some((name, files)) if !name.trim().is_empty() && !files.is_empty() => {
            Ok((name.trim().to_lowercase(), PathBuf::from(files)))
        }
        _ => Err(invalid("table", format!("{text:?} gives no name to files: NAME=FILES"))),
    };
    fields.texts("table").into_iter().map(of).collect()
}

fn invalid(at: &str, message: String) -> SpecError {
    SpecError::new(SpecCode::Invalid, message).at(at)
}
