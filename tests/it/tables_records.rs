//! The records of the sort benchmark, as tables and as they are.

use std::fs;

use crate::support::{self, Scratch, exobus, names};

const RECORDS: &str = "30000";

/// Two files of records, whose keys are all different.
fn generated(scratch: &Scratch) -> String {
    let input = scratch.text("in");
    exobus(&["generate", "--records", RECORDS, "--files", "2", &input]).expect(0, &[]);
    input
}

/// What the files of a folder have, one behind the other.
fn bytes_of(scratch: &Scratch, folder: &str) -> Vec<u8> {
    let parts = names(&scratch.path(folder)).into_iter().filter(|name| name != "_exobus.json");
    parts.flat_map(|name| fs::read(scratch.path(folder).join(name)).unwrap()).collect()
}

#[test]
fn records_are_sorted_as_they_are_unless_more_is_asked_for_and_their_order_is_the_same() {
    let scratch = Scratch::new();
    let input = generated(&scratch);
    let sorted = |output: &str, more: &[&str]| {
        let output = scratch.text(output);
        let run = support::with_own_spill(&scratch, &[&["sort", &input, "--output", &output, "--json"], more].concat());
        let summary = run.expect(0, &[]).json();
        assert!(exobus(&["validate", &output]).expect(0, &[]).stdout.contains("SUCCESS - all records are in order"));
        summary
    };
    sorted("raw", &["--partitions", "3"]);
    let manifest = |folder: &str| fs::read_to_string(scratch.path(folder).join("_exobus.json")).unwrap();
    assert!(manifest("raw").contains("\"program\":\"sort\""), "{}", manifest("raw"));
    sorted("told", &["--format", "records", "--input-format", "records"]);
    assert!(manifest("told").contains("\"program\":\"sort\""), "{}", manifest("told"));
    sorted("table", &["--verify", "--files", "3"]);
    assert!(manifest("table").contains("\"program\":\"table.sort\""), "{}", manifest("table"));
    assert_eq!(names(&scratch.path("table")), ["_exobus.json", "part-00000", "part-00001", "part-00002"]);
    assert!(bytes_of(&scratch, "raw") == bytes_of(&scratch, "table"));
    assert!(bytes_of(&scratch, "raw") == bytes_of(&scratch, "told"));
    let high = sorted("high", &["--where", "key >= '\u{7f}'", "--files", "1"]);
    let above = bytes_of(&scratch, "raw")
        .chunks(100)
        .filter(|record| record[0] >= 0x7f)
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>();
    assert_eq!(high["rows"], above.len());
    assert!(bytes_of(&scratch, "high") == above.concat());
    let found = exobus(&["validate", &scratch.text("table"), "--key", "key", "--json"]).expect(0, &[]).json();
    assert_eq!((&found["rows"], &found["unordered_rows"], &found["manifests"]), (&30_000.into(), &0.into(), &1.into()));
}

#[test]
fn records_go_through_parquet_and_every_verb() {
    let scratch = Scratch::new();
    let input = generated(&scratch);
    let run = |verb: &str, input: &str, output: &str, more: &[&str]| {
        let output = scratch.text(output);
        support::with_own_spill(&scratch, &[&[verb, input, "--output", &output], more].concat()).expect(0, &[]);
    };
    run("convert", &input, "parquet", &["--format", "parquet", "--compression", "zstd"]);
    run("convert", &scratch.text("parquet"), "back", &["--format", "records", "--files", "1"]);
    assert!(bytes_of(&scratch, "back") == bytes_of(&scratch, "in"));
    let twice = [scratch.text("in"), scratch.text("back")];
    let output = scratch.text("once");
    let args = ["dedupe", &twice[0], &twice[1], "--output", &output, "--files", "1"];
    support::with_own_spill(&scratch, &args).expect(0, &[]);
    run("sort", &input, "sorted", &["--partitions", "1"]);
    assert!(bytes_of(&scratch, "once") == bytes_of(&scratch, "sorted"));
    run("shuffle", &input, "shuffled", &["--seed", "3", "--rows-per-file", "7000"]);
    assert_eq!(fs::metadata(scratch.path("shuffled/part-00004")).unwrap().len() % 100, 0);
    assert!(bytes_of(&scratch, "shuffled") != bytes_of(&scratch, "in"));
    // Files of both kinds are no table.
    fs::copy(scratch.path("parquet/part-00000.parquet"), scratch.path("in/z.parquet")).unwrap();
    let both = scratch.text("both");
    exobus(&["convert", &input, "--output", &both]).expect(1, &["z.parquet", "in/part-00000", "--input-format"]);
    exobus(&["show", &input]).expect(1, &["z.parquet", "in/part-00000", "--input-format"]);
    assert!(!scratch.path("both").exists());
    exobus(&["dedupe", &scratch.text("parquet"), "--output", &both])
        .expect(2, &["--key COLUMN", "--input-format records"]);
    exobus(&["sort", &scratch.text("back"), "--verify", "--cuts", "uniform", "--output", &both])
        .expect(2, &["--cuts", "--verify"]);
    // What is explained is what would be done.
    exobus(&["explain", "sort", &scratch.text("back")]).expect(0, &[]);
    exobus(&["explain", "sort", &scratch.text("back"), "--where", "keyed is null"]).expect(2, &["keyed", "key"]);
    exobus(&["explain", "sort", &scratch.text("parquet")]).expect(2, &["--key COLUMN"]);
}

/// Options that no file could follow.
#[test]
fn row_groups_of_formats_without_any_and_types_where_no_file_is_text_are_refused() {
    let scratch = Scratch::new();
    let (input, output) = (generated(&scratch), scratch.text("out"));
    let refused = |args: &[&str], texts: &[&str]| {
        let with_output = [args, &["--output", &output]].concat();
        support::with_own_spill(&scratch, &with_output).expect(2, texts);
        assert!(!scratch.path("out").exists(), "{args:?}");
    };
    let groups = ["--row-group-rows", "500"];
    let no_groups = ["records has no row groups", "leave --row-group-rows out", "--format parquet"];
    refused(&[&["sort", &input][..], &groups].concat(), &no_groups);
    refused(&[&["shuffle", &input, "--seed", "1"][..], &groups].concat(), &no_groups);
    refused(&[&["dedupe", &input][..], &groups].concat(), &no_groups);
    refused(&[&["convert", &input, "--format", "arrow"][..], &groups].concat(), &["arrow has no row groups"]);
    let types = ["--schema", "key text"];
    let no_text = ["--schema", "no file is text", "in/part-00000 is of records"];
    for verb in [&["sort", &input][..], &["shuffle", &input, "--seed", "1"], &["dedupe", &input], &["convert", &input]]
    {
        refused(&[verb, &types].concat(), &no_text);
    }
    exobus(&[&["explain", "sort", &input][..], &groups].concat()).expect(2, &no_groups);
    exobus(&[&["explain", "sort", &input][..], &types].concat()).expect(2, &no_text);
    exobus(&[&["validate", &input, "--key", "key"][..], &types].concat()).expect(2, &no_text);
    exobus(&["show", &input, "--schema-text", "key text"]).expect(2, &no_text);
    // Where a file of several is text, types of its columns may be said, and are of no other file.
    fs::write(scratch.path("a.csv"), "id\n1\n").unwrap();
    fs::write(scratch.path("b.csv"), "id\n2\n").unwrap();
    let (a, b, arrow) = (scratch.text("a.csv"), scratch.text("b.csv"), scratch.text("arrow"));
    exobus(&["convert", &a, "--format", "arrow", "--output", &arrow]).expect(0, &[]);
    exobus(&["show", &arrow, &b, "--schema-text", "id int32", "--rows", "9"]).expect(0, &[]);
    exobus(&["convert", &arrow, &b, "--schema", "id int32", "--format", "csv", "--output", &output]).expect(0, &[]);
}
