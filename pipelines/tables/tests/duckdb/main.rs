//! What verbs make of random tables is what DuckDB makes of them.
//!
//! A seed is a table, or two that are joined (made by `oracle.py`, in files of any format and schema), and a verb with its options ([`case`]); what came out is compared there with what DuckDB
//! answers ([`oracle`]): rows in order, types, and values bit by bit. A failure names its seed, and the command that runs it alone.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `EXOBUS_DUCKDB_SEEDS` | how many seeds | 500 |
//! | `EXOBUS_DUCKDB_SEED` | this one alone | |
//! | `EXOBUS_DUCKDB_PYTHON` | a Python that has what `requirements.txt` says | that of `target/duckdb` |

mod case;
mod oracle;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use case::Case;
use oracle::Oracle;

const SEEDS: u64 = 500;
/// Tests that share the seeds, so that they run beside each other.
const SHARES: u64 = 4;
/// One seed in so many is a join, of tables that have columns for it.
const JOINED: u64 = 3;
/// One seed in so many also goes through the program.
const THROUGH_PROGRAM: u64 = 50;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// Runs every seed of a share: 0, 4, 8 and so on.
async fn run_share(share: u64) {
    let one = variable("EXOBUS_DUCKDB_SEED");
    let seeds = one.map_or(0..variable("EXOBUS_DUCKDB_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let mut oracle = Oracle::start();
    let mut failed = Vec::new();
    for seed in seeds.filter(|seed| seed % SHARES == share) {
        if let Err(what) = run(&mut oracle, seed).await {
            eprintln!("seed {seed}: {what}\n  EXOBUS_DUCKDB_SEED={seed} cargo xtask test -- -E 'binary(duckdb)'");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "results are others than DuckDB's for seeds {failed:?}");
}

/// Makes the table of a seed, and the one with which it is joined, does with them what the seed says, and asks DuckDB.
async fn run(oracle: &mut Oracle, seed: u64) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("in")).unwrap();
    let table = oracle.make(seed, &at("in"));
    let is_joined = seed % JOINED == 2 && table.refused.is_none();
    let right = is_joined.then(|| {
        std::fs::create_dir(at("right")).unwrap();
        oracle.join(seed, &at("right"))
    });
    let case = Case::new(seed, table, right.flatten());
    let said = |what: String| format!("{what}\n  {case}");
    let done = case.run(&case.shape, &at("out"), &at("spill")).await;
    if let Some(column) = &case.table.refused {
        return match done {
            Err(error) if error.to_string().contains(column.as_str()) && !at("out").exists() => Ok(()),
            other => Err(said(format!("column {column} has two types that are none together: {other:?}"))),
        };
    }
    let rows = done.map_err(|error| said(error.to_string()))?;
    let check =
        |oracle: &mut Oracle, name: &str, rows| oracle.check(&case.question(&at(name), rows)).map_or(Ok(()), Err);
    check(oracle, "out", Some(rows)).map_err(said)?;
    if let Some(shape) = &case.again {
        case.run(shape, &at("again"), &at("spill")).await.map_err(|error| said(format!("again: {error}")))?;
        if files_of(&at("out")) != files_of(&at("again")) {
            return Err(said("another node makes other files".to_owned()));
        }
    }
    if seed.is_multiple_of(THROUGH_PROGRAM) {
        case.run_program(&at("program"), &at("spill")).map_err(said)?;
        check(oracle, "program", None).map_err(|what| said(format!("by the program: {what}")))?;
    }
    Ok(())
}

/// Paths of the parts of an output, in folders of values too, and their bytes.
fn files_of(output: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut parts = BTreeMap::new();
    for entry in std::fs::read_dir(output).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name().into_string().unwrap(), entry.path());
        if name.starts_with("part-") {
            parts.insert(PathBuf::from(name), std::fs::read(path).unwrap());
        } else if name.contains('=') {
            let below = files_of(&path).into_iter();
            parts.extend(below.map(|(part, bytes)| (Path::new(&name).join(part), bytes)));
        }
    }
    parts
}

#[tokio::test]
async fn results_are_those_of_duckdb_in_the_first_share_of_seeds() {
    run_share(0).await;
}

#[tokio::test]
async fn results_are_those_of_duckdb_in_the_second_share_of_seeds() {
    run_share(1).await;
}

#[tokio::test]
async fn results_are_those_of_duckdb_in_the_third_share_of_seeds() {
    run_share(2).await;
}

#[tokio::test]
async fn results_are_those_of_duckdb_in_the_fourth_share_of_seeds() {
    run_share(3).await;
}
