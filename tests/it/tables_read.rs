//! Which rows and columns of a table commands read: `--select` and `--where`.

use crate::support;

use std::{fmt::Write as _, fs};

use support::{Scratch, cluster::Cluster, exobus, names};

const ROWS: u64 = 20_000;

/// Two files of text: numbers, a city, a price and a day, some of which are missing.
pub(super) fn write_table(scratch: &Scratch) -> String {
    fs::create_dir_all(scratch.path("table")).unwrap();
    for file in 0..2 {
        let mut text = String::from("id,city,price,day\n");
        for row in 0..ROWS / 2 {
            let id = file * ROWS / 2 + row;
            let city = if id.is_multiple_of(7) { String::new() } else { format!("city {}", id % 10) };
            writeln!(text, "{id},{city},{}.5,2024-01-{:02}", id % 100, 1 + id % 28).unwrap();
        }
        fs::write(scratch.path(&format!("table/{file}.csv")), text).unwrap();
    }
    scratch.text("table")
}

/// Rows and hash of what a sort has read.
fn sorted(scratch: &Scratch, input: &str, output: &str, more: &[&str]) -> serde_json::Value {
    let output = scratch.text(output);
    let args = ["sort", input, "--output", &output, "--format", "parquet", "--json"];
    let summary = support::with_own_spill(scratch, &[&args[..], more].concat()).expect(0, &[]).json();
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    summary
}

#[test]
fn rows_that_meet_the_condition_are_sorted_with_the_columns_that_are_selected() {
    let scratch = Scratch::new();
    let input = write_table(&scratch);
    let condition = "price > 90 and city in ('city 1', 'city 2') and day != '2024-01-03'";
    let expected = (0..ROWS)
        .filter(|id| id % 100 >= 90 && !id.is_multiple_of(7) && [1, 2].contains(&(id % 10)) && 1 + id % 28 != 3);
    let expected: Vec<u64> = expected.collect();
    let args = ["--key", "city,id", "--where", condition, "--select", "id,city", "--partitions", "3"];
    let of_text = sorted(&scratch, &input, "out", &args);
    assert_eq!(of_text["rows"], expected.len());
    let shown = exobus(&["show", &scratch.text("out"), "--json", "--rows", "1000000"]).expect(0, &[]).json();
    let columns: Vec<_> = shown["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(columns, ["id", "city"]);
    let mut ids: Vec<u64> = shown["rows"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted_by_key(|id| (id % 10, *id)), "{ids:?}");
    ids.sort_unstable();
    assert_eq!(ids, expected);
    // The same rows of Parquet, whose row groups are in the order of their numbers, so that most are not read.
    sorted(&scratch, &input, "parquet", &["--key", "id", "--row-group-rows", "500"]);
    let of_parquet = sorted(&scratch, &scratch.text("parquet"), "again", &args);
    assert_eq!((&of_parquet["rows"], &of_parquet["row_hash_in"]), (&of_text["rows"], &of_text["row_hash_in"]));
    let few = ["--key", "id:desc", "--where", "id between 700 and 709", "--strategy"];
    for strategy in ["simple", "push"] {
        let summary = sorted(&scratch, &scratch.text("parquet"), strategy, &[&few[..], &[strategy]].concat());
        assert_eq!(summary["rows"], 10);
    }
    let bytes = |folder: &str| fs::read(scratch.path(&format!("{folder}/part-00000.parquet"))).unwrap();
    assert!(bytes("simple") == bytes("push"));
}

#[test]
fn a_condition_that_no_row_meets_makes_a_table_without_rows() {
    let scratch = Scratch::new();
    let input = write_table(&scratch);
    sorted(&scratch, &input, "parquet", &["--key", "id", "--row-group-rows", "500"]);
    for (input, output) in [(input, "of-text"), (scratch.text("parquet"), "of-parquet")] {
        let summary = sorted(&scratch, &input, output, &["--key", "id", "--where", "id < 0", "--select", "price,id"]);
        assert_eq!(summary["rows"], 0);
        let shown = exobus(&["show", &scratch.text(output)]).expect(0, &[]).stdout.clone();
        assert!(shown.contains("price") && shown.contains("0 rows, which are all"), "{shown}");
    }
}

#[test]
fn what_is_wrong_with_a_condition_or_a_selection_is_said_with_its_place() {
    let scratch = Scratch::new();
    let (input, output) = (write_table(&scratch), scratch.text("out"));
    let sort = |more: &[&str]| {
        let args = ["sort", &input, "--output", &output, "--format", "parquet", "--key", "id"];
        exobus(&[&args[..], more].concat())
    };
    sort(&["--where", "price >"])
        .expect(2, &["--where", "condition price >, character 8", "a column or a value belongs here"]);
    sort(&["--where", "id = 3 and pirce > 3"]).expect(2, &["character 12", "no column pirce", "did you mean price?"]);
    sort(&["--where", "city = 3"]).expect(2, &["character 8", "write '3'"]);
    sort(&["--where", "day > '2024-02-30'"]).expect(2, &["character 7", "'2024-02-30' is no time"]);
    sort(&["--select", "id,prise"]).expect(2, &["no column prise", "did you mean price?"]);
    sort(&["--select", "id,city,id"]).expect(2, &["column id is selected twice"]);
    sort(&["--select", "city"]).expect(2, &["key column id is not selected"]);
    exobus(&["sort", &input, "--output", &output, "--where", "id = 3"]).expect(2, &["--key COLUMN"]);
    assert!(!scratch.path("out").exists() || names(&scratch.path("out")).is_empty());
}

#[test]
fn nodes_of_a_cluster_read_the_same_rows() {
    let cluster = Cluster::start("go-on");
    let scratch = &cluster.scratch;
    let input = write_table(scratch);
    let condition = "city in ('city 3', 'it''s') and price <= 40.5 or id is null";
    let args = ["--key", "id:desc", "--where", condition, "--select", "price,id", "--partitions", "4"];
    let alone = sorted(scratch, &input, "alone", &args);
    let output = scratch.text("out");
    let (run, _) = cluster
        .run(&[&["sort", &input, "--output", &output, "--format", "parquet", "--json"], &args[..]].concat(), |_, _| {});
    let summary = run.expect(0, &[]).json();
    assert_eq!(summary["rows"], alone["rows"]);
    for part in 0..4 {
        let bytes = |folder: &str| fs::read(scratch.path(&format!("{folder}/part-0000{part}.parquet"))).unwrap();
        assert!(bytes("alone") == bytes("out"), "part {part}");
    }
    cluster.end();
}

#[test]
fn a_pattern_names_the_files_that_match_and_one_without_a_match_is_an_error() {
    let scratch = Scratch::new();
    let folder = write_table(&scratch);
    fs::write(scratch.path("table/notes.md"), "no table").unwrap();
    let key = ["--key", "id"];
    // The files that a shell, or a user, would have named.
    let (one, other) = (format!("{folder}/0.csv"), format!("{folder}/1.csv"));
    let args = ["sort", &one, &other, "--output", &scratch.text("named"), "--json", "--key", "id"];
    let named = support::with_own_spill(&scratch, &args).expect(0, &[]).json();
    for (pattern, output) in [("table/?.csv", "a"), ("**/[01].csv", "b")] {
        let matched = sorted(&scratch, &scratch.text(pattern), output, &key);
        assert_eq!((&matched["rows"], &matched["row_hash_in"]), (&named["rows"], &named["row_hash_in"]), "{pattern}");
    }
    exobus(&["show", &format!("{folder}/*.csv"), "--rows", "1"]).expect(0, &[]);
    let missing = format!("{folder}/*.parquet");
    for command in [&["show", &missing][..], &["sort", &missing, "--key", "id", "--output", &scratch.text("none")]] {
        exobus(command).expect(3, &["*.parquet: no file has such a name", "match none"]);
    }
    assert!(!scratch.path("none").exists());
}
