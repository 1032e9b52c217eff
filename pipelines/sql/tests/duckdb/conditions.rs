//! A condition means in SQL what it means as `--where`: the conditions that the tests of tables draw (`pipelines/tables/tests/duckdb/conditions.py`), over their tables in files of any format and schema.
//!
//! Each is asked as `WHERE`, where it becomes one of tables as far as it fits, and as a column, where it never does. That `--where` is DuckDB's as well is tested there.

#[path = "../../../tables/tests/duckdb/oracle.rs"]
#[allow(dead_code, reason = "the tests of tables ask more")]
mod oracle;

use exobus_actors::node::{Node, NodeOptions};
use exobus_sql::program::NamedTable;
use exobus_tables::arrow_array::cast::AsArray as _;
use exobus_tables::arrow_array::types::Int64Type;
use exobus_tables::reading::ReadOptions;
use serde::Deserialize;
use serde_json::json;

use self::oracle::{Oracle, Table};
use crate::{ask_over, variable};

/// Tables of a share.
const TABLES: u64 = 40;
/// Conditions over each.
const CONDITIONS: u64 = 10;
/// Tests that share the seeds, so that they run beside each other.
const SHARES: u64 = 2;

/// A condition of `--where`.
#[derive(Deserialize)]
struct Condition {
    text: String,
    /// The values of `id` that rows have which meet it; they rise.
    ids: Vec<i64>,
}

/// Rows whose condition is true, by their ids.
async fn met(node: &Node, scratch: &std::path::Path, table: &Table, text: &str) -> Result<Vec<i64>, String> {
    let reading = ReadOptions { schema: table.schema.clone(), ..ReadOptions::default() };
    let inputs = if table.is_a_folder() { vec![table.folder()] } else { table.inputs.clone() };
    let named = NamedTable { name: "t".to_owned(), inputs, reading };
    let answered = ask_over(node, scratch, text, vec![named], None).await.map_err(|error| error.to_string())?;
    let (_, batches) = answered.shown.batches().unwrap();
    let mut ids: Vec<i64> = Vec::new();
    for batch in &batches {
        let of_batch = batch.column(0).as_primitive::<Int64Type>().values();
        let is_met = batch.columns().get(1).map(|met| met.as_boolean().iter());
        match is_met {
            None => ids.extend(of_batch),
            Some(met) => ids.extend(of_batch.iter().zip(met).filter(|(_, met)| *met == Some(true)).map(|(id, _)| id)),
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Asks for the conditions of a seed; what differs.
async fn run(oracle: &mut Oracle, seed: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("in")).unwrap();
    let table = oracle.make(seed, &at("in"));
    if table.refused.is_some() {
        return Vec::new();
    }
    let mut options = NodeOptions::alone(1, 128 << 20);
    options.store.spill_dirs = vec![at("spill")];
    let node = Node::start(options).unwrap();
    let mut differ = Vec::new();
    let drawn = oracle.ask(&json!({ "conditions": { "seed": seed, "count": CONDITIONS } }));
    for condition in serde_json::from_value::<Vec<Condition>>(drawn).unwrap() {
        let text = &condition.text;
        for sql in [format!("SELECT id FROM t WHERE {text}"), format!("SELECT id, ({text}) AS met FROM t")] {
            let found = met(&node, &at("scratch"), &table, &sql).await;
            if found.as_ref() != Ok(&condition.ids) {
                differ
                    .push(format!("{sql}\n  {found:?}, not {:?}\n  {} {:?}", condition.ids, table.mode, table.columns));
            }
        }
    }
    node.stop();
    differ
}

async fn run_share(share: u64) {
    let one = variable("EXOBUS_SQL_SEED");
    let mut oracle = Oracle::start();
    let mut failed = Vec::new();
    for seed in one.map_or(0..TABLES * SHARES, |seed| seed..seed + 1).filter(|seed| seed % SHARES == share) {
        for what in run(&mut oracle, seed).await {
            eprintln!("seed {seed}: {what}\n  EXOBUS_SQL_SEED={seed} cargo xtask test -- -E 'package(exobus-sql)'");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "conditions mean something else than in DuckDB for seeds {failed:?}");
}

#[tokio::test]
async fn conditions_mean_what_they_mean_as_where_share_0() {
    run_share(0).await;
}

#[tokio::test]
async fn conditions_mean_what_they_mean_as_where_share_1() {
    run_share(1).await;
}
