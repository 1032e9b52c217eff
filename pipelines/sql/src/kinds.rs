//! How people ask, and what runs.

use std::path::{Path, PathBuf};

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecCode, SpecError, Takes};
use exobus_files::Location;
use exobus_queries::kinds::{ONLINE, online};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY};
use exobus_tables::hint::{did_you_mean, nearest};
use exobus_tables::kinds::{COMPRESSION, FILE_BYTES, FORMAT, ROW_GROUP_ROWS, VERIFY, writing};

use crate::program::{NamedTable, Online, SqlQuery};
use crate::text::{self, TableName};

const SQL: Field = Field::new(
    "sql",
    Takes::Text,
    "\"SELECT city, sum(price) AS total FROM 'sales/*.parquet' GROUP BY city ORDER BY total DESC LIMIT 10\"",
    "The query: a SELECT, with files in quotes where it names tables. EXPLAIN before it says how it would be done.",
)
.needed(Need::Always)
.shown();

const OWN: [Field; 6] = [
    SQL,
    Field::new(
        "tables",
        Takes::Texts,
        "[\"sales=/data/sales/*.parquet\"]",
        "Names that the query gives to files, each as NAME=FILES.",
    ),
    Field::new(
        "directory",
        Takes::Reads,
        "[\"/data\"]",
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
    ),
    Field::new(
        "rows",
        Takes::Number(0, 1_000_000),
        "100",
        "How many rows of the answer the job returns, at most, and no more than 4 MiB of them, where it has no `output`.",
    )
    .or("1000"),
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
    let is_explained = text::parse(text).is_ok_and(|parsed| parsed.explains);
    let text = if is_explained { text.to_owned() } else { format!("EXPLAIN {text}") };
    Plan::of(SqlQuery::NAME, &asked(fields, &text)?)
}

fn asked(fields: &Fields<'_>, text: &str) -> Result<SqlQuery, SpecError> {
    let parsed = text::parse(text).map_err(|error| invalid("sql", error.to_string()))?;
    let named = named(fields)?;
    let directory = fields.paths("directory").into_iter().next();
    let tables = parsed.tables.iter().map(|table| found(table, &named, directory.as_deref()));
    let tables = tables.collect::<Result<Vec<_>, _>>()?;
    if let Some((unused, _)) = named.iter().find(|(name, _)| tables.iter().all(|table| table.name != *name)) {
        return Err(invalid("tables", format!("the query names no table {unused}")));
    }
    let output = fields.path("output");
    let beside = output.as_deref().map(beside);
    let scratch = fields.path("scratch").or(beside).ok_or_else(|| {
        let what = "a query is done in steps, which write files until the answer is there: say `scratch`, a folder that all nodes reach, or `output`, beside which it is made";
        invalid("scratch", what.to_owned())
    })?;
    let online = online(fields)?.map(|(until, seed, bounds)| Online { seed, until, bounds });
    let query = SqlQuery {
        output: output.into_iter().collect(),
        writing: writing(fields)?,
        strategy: exobus_shuffle::kinds::strategy(fields),
        partial: fields.flag(PARTIAL.name),
        online,
        rows_shown: fields.number("rows").unwrap_or(1000),
        ..SqlQuery::new(text, tables, scratch)
    };
    query.check().map_err(|(at, what)| invalid(at, what))?;
    Ok(query)
}

/// The folder beside one in which steps write.
fn beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".steps");
    name.into()
}

/// The names that are given to files.
fn named(fields: &Fields<'_>) -> Result<Vec<(String, PathBuf)>, SpecError> {
    let of = |text: &str| match text.split_once('=') {
        Some((name, files)) if !name.trim().is_empty() && !files.is_empty() => {
            Ok((name.trim().to_lowercase(), PathBuf::from(files)))
        }
        _ => Err(invalid("tables", format!("{text:?} gives no name to files: NAME=FILES"))),
    };
    fields.texts("tables").into_iter().map(of).collect()
}

/// The table that a query names.
fn found(table: &TableName, named: &[(String, PathBuf)], directory: Option<&Path>) -> Result<NamedTable, SpecError> {
    let TableName { name, is_quoted, place: (line, column) } = table;
    let known = named.iter().find(|(known, _)| known == name || *is_quoted && *known == name.to_lowercase());
    let path = match known {
        Some((_, files)) => files.clone(),
        None if *is_quoted => PathBuf::from(name),
        None => {
            let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
            let hint = nearest(name, &names).map_or_else(
                || format!("files go into quotes, FROM '{name}', and --table {name}=FILES gives them a name"),
                did_you_mean,
            );
            return Err(invalid("sql", format!("line {line}, column {column}: no table {name}; {hint}")));
        }
    };
    let location = Location::from(&path);
    let path = match (location.scheme(), directory) {
        (None, Some(directory)) if path.is_relative() => directory.join(path),
        (None, None) if path.is_relative() => {
            let what = format!(
                "line {line}, column {column}: {} does not say which folder it is in: begin it with one, or say `directory`",
                path.display()
            );
            return Err(invalid("sql", what));
        }
        _ => path,
    };
    Ok(NamedTable { name: name.clone(), inputs: vec![path], reading: Default::default() })
}

fn invalid(at: &str, message: String) -> SpecError {
    SpecError::new(SpecCode::Invalid, message).at(at)
}
