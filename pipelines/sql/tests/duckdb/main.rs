//! What queries answer is what DuckDB answers: on random tables and queries, and on those of TPC-H and ClickBench, over data of theirs.
//!
//! `queries.py` makes the tables of a seed and prints queries with DuckDB's answers. Numbers are compared to nine digits, since floats are added in another order there; rows in their order, where a query says
//! one. A failure names its seed, and the query.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `EXOBUS_SQL_SEEDS` | how many seeds, of 25 queries each | 12 |
//! | `EXOBUS_SQL_SEED` | this one alone | |
//! | `EXOBUS_DUCKDB_PYTHON` | a Python that has what `pipelines/tables/tests/duckdb/requirements.txt` says | that of `target/duckdb` |

mod clickbench;
mod conditions;
mod tpch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;
use exobus_queries::estimators::Kind;
use exobus_queries::online::Online;
use exobus_queries::snapshot::{SHOWN_MAX, ShownGroup, Snapshot};
use exobus_sql::program::{Answered, NamedTable, SqlQuery, query};
use exobus_sql::text::parse;
use exobus_tables::arrow_array::RecordBatch;
use exobus_tables::look::Value;
use exobus_tables::reading::ReadOptions;
use serde::Deserialize;

const QUERIES: u64 = 25;
const SEEDS: u64 = 12;

/// Tables by their names, or a query with its answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Tables { tables: BTreeMap<String, PathBuf> },
    Query(Asked),
}

/// A query, and what it has to answer.
#[derive(Deserialize)]
struct Asked {
    sql: String,
    /// Whether its rows come in an order.
    ordered: bool,
    rows: Vec<Vec<serde_json::Value>>,
}

/// What `queries.py` says.
fn asked(arguments: &[&str]) -> (BTreeMap<String, PathBuf>, Vec<Asked>) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fetched = || package.join("../../target/duckdb/venv/bin/python");
    let python = std::env::var_os("EXOBUS_DUCKDB_PYTHON").map_or_else(fetched, PathBuf::from);
    let mut command = Command::new(&python);
    command.arg("-B").arg(package.join("tests/duckdb/queries.py")).args(arguments).stderr(Stdio::inherit());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask duckdb` fetches it", python.display()));
    assert!(output.status.success(), "queries.py {arguments:?}");
    let (mut named, mut queries) = (BTreeMap::new(), Vec::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Said::Tables { tables } => named = tables,
            Said::Query(asked) => queries.push(asked),
        }
    }
    (named, queries)
}

/// Asks a node for all rows of an answer.
async fn ask_over(
    node: &Node,
    scratch: &Path,
    text: &str,
    tables: Vec<NamedTable>,
    online: Option<Online>,
) -> Result<Answered, JobError> {
    let asked = SqlQuery { rows_shown: 1_000_000, online, ..SqlQuery::new(text, tables, scratch.to_owned()) };
    node.run(JobId::new(), "query.sql", None, async move |futures| query(futures, asked).await).await.0
}

/// A node of this process, and tables.
struct World {
    node: Node,
    folder: PathBuf,
    tables: BTreeMap<String, PathBuf>,
}

impl World {
    fn new(folder: &Path, tables: BTreeMap<String, PathBuf>, (executors, memory): (usize, u64)) -> Self {
        let mut options = NodeOptions::alone(executors, memory);
        options.store.spill_dirs = vec![folder.join("spill")];
        Self { node: Node::start(options).unwrap(), folder: folder.to_owned(), tables }
    }

    async fn ask(&self, text: &str) -> Result<Answered, JobError> {
        self.ask_early(text, None).await
    }

    /// The same, which shows what it knows before it is done where that is possible.
    async fn ask_early(&self, text: &str, online: Option<Online>) -> Result<Answered, JobError> {
        let named = parse(text).map_err(JobError::program)?.tables;
        let tables = named.into_iter().map(|table| {
            let path = self.tables.get(&table.name).unwrap_or_else(|| panic!("{} in {text}", table.name));
            NamedTable { name: table.name, inputs: vec![self.folder.join(path)], reading: ReadOptions::default() }
        });
        ask_over(&self.node, &self.folder.join("scratch"), text, tables.collect(), online).await
    }

    /// How an answer differs from what is expected.
    async fn difference(&self, asked: &Asked) -> Option<String> {
        match self.ask(&asked.sql).await {
            Ok(answered) => self.difference_of(&answered, asked),
            Err(error) => Some(error.to_string()),
        }
    }

    /// How an answer differs, before which something was shown; whether that was so.
    async fn difference_early(&self, asked: &Asked, seed: u64) -> (Option<String>, bool) {
        let online = Online { seed, until: None, bounds: Kind::Approximate, simultaneous: false, keep_for: None };
        match self.ask_early(&asked.sql, Some(online)).await {
            Ok(answered) => {
                let shown = answered.online.as_ref().map(|online| &online.snapshot);
                let is_open = shown.is_some_and(|last| !last.is_final);
                let open = is_open.then(|| "the last look is not that at the end".to_owned());
                let shown_otherwise = shown.and_then(|last| shown_otherwise(&answered, last));
                (self.difference_of(&answered, asked).or(open).or(shown_otherwise), shown.is_some())
            }
            Err(error) => (Some(error.to_string()), false),
        }
    }

    fn difference_of(&self, answered: &Answered, Asked { ordered, rows: expected, .. }: &Asked) -> Option<String> {
        let (_, batches) = answered.shown.batches().unwrap();
        let rows = batches.iter().flat_map(|batch| {
            (0..batch.num_rows())
                .map(|row| batch.columns().iter().map(|column| cell(&Value::of(column, row).into_json())).collect())
        });
        let mut found: Vec<Vec<Cell>> = rows.collect();
        let mut expected: Vec<Vec<Cell>> = expected.iter().map(|row| row.iter().map(cell).collect()).collect();
        if !*ordered {
            found.sort_by_key(|row| format!("{row:?}"));
            expected.sort_by_key(|row| format!("{row:?}"));
        }
        if found.len() != expected.len() {
            return Some(format!("{} rows, not {}: {found:?}, not {expected:?}", found.len(), expected.len()));
        }
        let differ = found.iter().zip(&expected).find(|(found, expected)| {
            found.len() != expected.len() || found.iter().zip(expected.iter()).any(|(one, other)| !one.is(other))
        });
        let left = std::fs::read_dir(self.folder.join("scratch")).is_ok_and(|mut left| left.next().is_some());
        let left = left.then(|| "something is left in the scratch folder".to_owned());
        differ.map(|(found, expected)| format!("{found:?}, not {expected:?}")).or(left)
    }
}

/// How the rows of the last look differ from those of the answer.
fn shown_otherwise(answered: &Answered, last: &Snapshot) -> Option<String> {
    let (schema, batches) = answered.shown.batches().unwrap();
    let of_batch = |batch: &RecordBatch| {
        let json = |row: usize| batch.columns().iter().map(|column| Value::of(column, row).into_json()).collect();
        (0..batch.num_rows()).map(json).collect::<Vec<Vec<serde_json::Value>>>()
    };
    let rows: Vec<_> = batches.iter().flat_map(of_batch).collect();
    let of_group = |group: &ShownGroup| {
        let values: Vec<_> = group.key.iter().chain(group.values.iter().map(|value| &value.estimate)).collect();
        let at = |name: &String| last.columns.iter().position(|column| column == name).unwrap();
        schema.fields().iter().map(|field| values[at(field.name())].clone()).collect()
    };
    let shown: Vec<Vec<serde_json::Value>> = last.groups.iter().map(of_group).collect();
    // Of many groups the first ones are shown.
    let rows = if rows.len() > SHOWN_MAX { &rows[..shown.len()] } else { &rows[..] };
    (shown != rows).then(|| format!("the last look has {shown:?}, the answer {rows:?}"))
}

/// A value as it is compared.
#[derive(Clone, PartialEq)]
enum Cell {
    Null,
    Number(f64),
    Text(String),
}

impl std::fmt::Debug for Cell {
    /// Numbers to the digits that are compared, so that rows that are the same are sorted alike.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(value) => write!(f, "{:.7e}", value + 0.0),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Cell {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => {
                (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
            }
            _ => self == other,
        }
    }
}

fn cell(value: &serde_json::Value) -> Cell {
    match value {
        serde_json::Value::Null => Cell::Null,
        serde_json::Value::Bool(value) => Cell::Text(value.to_string()),
        serde_json::Value::Number(number) => Cell::Number(number.as_f64().unwrap()),
        serde_json::Value::String(text) => {
            // A date is the beginning of its day.
            let text = text.replace('T', " ");
            let text = text.strip_suffix(" 00:00:00").unwrap_or(&text).to_owned();
            match text.parse::<f64>() {
                Ok(number) if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') => {
                    Cell::Number(number)
                }
                _ => Cell::Text(text),
            }
        }
        other => Cell::Text(other.to_string()),
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

async fn run_share(share: u64) {
    let one = variable("EXOBUS_SQL_SEED");
    let seeds = one.map_or(0..variable("EXOBUS_SQL_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let (mut failed, mut early) = (Vec::new(), 0);
    for seed in seeds.filter(|seed| seed % 4 == share) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::create_dir(&path).unwrap();
        let (tables, queries) = asked(&["random", path.to_str().unwrap(), &seed.to_string(), &QUERIES.to_string()]);
        let world = World::new(&path, tables, if seed % 2 == 0 { (2, 256 << 20) } else { (1, 128 << 20) });
        for (number, asked) in (0..).zip(queries) {
            let mut differs = world.difference(&asked).await;
            if differs.is_none() && number % 4 == seed % 4 {
                let (differs_early, is_early) = world.difference_early(&asked, number).await;
                differs = differs_early.map(|what| format!("shown early: {what}"));
                early += u64::from(is_early);
            }
            if let Some(what) = differs {
                let text = &asked.sql;
                eprintln!(
                    "seed {seed}: {text}\n  {what}\n  EXOBUS_SQL_SEED={seed} cargo xtask test -- -E 'package(exobus-sql)'"
                );
                failed.push(seed);
            }
        }
        world.node.stop();
    }
    assert!(failed.is_empty(), "answers are others than DuckDB's for seeds {failed:?}");
    assert!(one.is_some() || early > 0, "nothing was shown before any of the answers");
}

#[tokio::test]
async fn random_queries_are_answered_as_duckdb_does_share_0() {
    run_share(0).await;
}

#[tokio::test]
async fn random_queries_are_answered_as_duckdb_does_share_1() {
    run_share(1).await;
}

#[tokio::test]
async fn random_queries_are_answered_as_duckdb_does_share_2() {
    run_share(2).await;
}

#[tokio::test]
async fn random_queries_are_answered_as_duckdb_does_share_3() {
    run_share(3).await;
}
