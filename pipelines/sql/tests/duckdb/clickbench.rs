//! The queries of ClickBench, over rows with its columns.

use super::{World, asked};

const ROWS: u64 = 60_000;

/// As they are there, but for what tells apart groups that have as many rows, and for names of functions.
const QUERIES: &str = include_str!("clickbench.sql");

#[tokio::test]
async fn queries_of_clickbench_are_answered_as_duckdb_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::create_dir(&path).unwrap();
    let texts = folder.path().join("queries.sql");
    std::fs::write(&texts, QUERIES).unwrap();
    let [path_text, texts] = [&path, &texts].map(|path| path.to_str().unwrap());
    let (tables, queries) = asked(&["clickbench", path_text, texts, &ROWS.to_string()]);
    assert_eq!(queries.len(), 43);
    let world = World::new(&path, tables, (2, 256 << 20));
    let mut failed = Vec::new();
    for (number, asked) in (1..).zip(&queries) {
        assert!(!asked.rows.is_empty(), "query {number} answers nothing, so it shows nothing: {}", asked.sql);
        if let Some(what) = world.difference(asked).await {
            eprintln!("query {number}: {}\n  {what}", asked.sql);
            failed.push(number);
        }
    }
    world.node.stop();
    assert!(failed.is_empty(), "answers are others than DuckDB's for queries {failed:?}");
}
