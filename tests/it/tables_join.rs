//! `join` as a command: what it writes, and what it refuses.

use std::fs;

use crate::support::{self, Run, Scratch, exobus, names, parts};

/// Keys that are there twice, that the other table has not, and that are missing.
const LEFT: &str = "id,city\n2,rome\n1,oslo\n,nowhere\n1,bergen\n4,lima\n";
const RIGHT: &str = "uid,price\n1,5\n3,9\n,8\n1,7\n";
const BOTH: [&str; 2] = ["left.csv", "right.csv"];

fn tables() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path("left.csv"), LEFT).unwrap();
    fs::write(scratch.path("right.csv"), RIGHT).unwrap();
    scratch
}

/// Joins two files, or folders, of the scratch folder.
fn join(scratch: &Scratch, [left, right]: [&str; 2], more: &[&str]) -> Run {
    let (left, right, output) = (scratch.text(left), scratch.text(right), scratch.text("out"));
    let run = support::with_own_spill(scratch, &[&["join", &left, &right, "--output", &output][..], more].concat());
    assert!(run.code == Some(0) || names(&scratch.path("out")).is_empty(), "{run:#?}");
    run
}

/// What it writes as CSV in the order of the key, which small tables have where none is broadcast.
#[track_caller]
fn joined(scratch: &Scratch, tables: [&str; 2], more: &[&str]) -> String {
    written(scratch, tables, &[more, &["--broadcast", "never"]].concat())
}

/// What it writes as CSV.
#[track_caller]
fn written(scratch: &Scratch, tables: [&str; 2], more: &[&str]) -> String {
    join(scratch, tables, more).expect(0, &[]);
    let text = fs::read_to_string(scratch.path("out/part-00000.csv")).unwrap();
    fs::remove_dir_all(scratch.path("out")).unwrap();
    text
}

#[test]
fn each_kind_writes_its_rows_in_the_order_of_the_key_and_then_of_the_tables() {
    let scratch = tables();
    let pairs = "id,city,price\n1,oslo,5\n1,oslo,7\n1,bergen,5\n1,bergen,7\n";
    let expected = [
        ("inner", pairs.to_owned()),
        ("left", format!("{pairs}2,rome,\n4,lima,\n,nowhere,\n")),
        ("right", format!("{pairs}3,,9\n,,8\n")),
        ("full", format!("{pairs}2,rome,\n3,,9\n4,lima,\n,nowhere,\n,,8\n")),
        ("semi", "id,city\n1,oslo\n1,bergen\n".to_owned()),
        ("anti", "id,city\n2,rome\n4,lima\n,nowhere\n".to_owned()),
    ];
    for (how, text) in expected {
        assert_eq!(joined(&scratch, BOTH, &["--on", "id=uid", "--how", how]), text, "{how}");
    }
    assert_eq!(joined(&scratch, BOTH, &["--on", "id=uid"]), pairs, "inner is what it is unless it is said");
}

#[test]
fn a_small_table_is_broadcast_and_rows_stay_in_the_order_of_the_other_one() {
    let scratch = tables();
    let rows = "id,city,price\n2,rome,\n1,oslo,5\n1,oslo,7\n,nowhere,\n1,bergen,5\n1,bergen,7\n4,lima,\n";
    for more in [&[][..], &["--broadcast", "right"]] {
        assert_eq!(written(&scratch, BOTH, &[&["--on", "id=uid", "--how", "left"], more].concat()), rows);
    }
    let right = ["--on", "id=uid", "--how", "right"];
    let of_right = "id,city,price\n1,oslo,5\n1,bergen,5\n3,,9\n,,8\n1,oslo,7\n1,bergen,7\n";
    assert_eq!(written(&scratch, BOTH, &right), of_right);
    let refused = join(&scratch, BOTH, &[&right[..], &["--broadcast", "right"]].concat());
    refused.expect(2, &["right table", "cannot be broadcast"]);
    let run = join(&scratch, BOTH, &["--on", "id=uid", "--broadcast", "all"]);
    run.expect(2, &["auto, left, right or never"]);
}

#[test]
fn what_begins_with_right_is_said_of_the_right_table_and_all_else_of_the_left_one() {
    let scratch = tables();
    let rows = ["--where", "city <> 'bergen'", "--right-where", "price > 5", "--how", "left"];
    assert_eq!(
        joined(&scratch, BOTH, &[&["--on", "id=uid"], &rows[..]].concat()),
        "id,city,price\n1,oslo,7\n2,rome,\n4,lima,\n,nowhere,\n"
    );
    let columns = ["--on", "id=uid", "--select", "city,id", "--right-select", "uid"];
    assert_eq!(joined(&scratch, BOTH, &columns), "city,id\noslo,1\noslo,1\nbergen,1\nbergen,1\n");
    let types = ["--on", "id=uid", "--right-schema", "price decimal(10,2)"];
    assert!(joined(&scratch, BOTH, &types).starts_with("id,city,price\n1,oslo,5.00\n"));
    fs::write(scratch.path("left.jsonl"), "{\"id\":1,\"x\":2}\n{\"id\":4,\"x\":\"a\"}\n").unwrap();
    join(&scratch, ["left.jsonl", "right.csv"], &["--on", "id=uid", "--json-mixed", "text"]).expect(0, &[]);
    let text = fs::read_to_string(scratch.path("out/part-00000.jsonl")).unwrap();
    assert_eq!(text, "{\"id\":1,\"x\":\"2\",\"price\":5}\n{\"id\":1,\"x\":\"2\",\"price\":7}\n");
}

#[test]
fn keys_of_two_types_become_the_one_that_holds_both() {
    let scratch = tables();
    let (left, narrow) = (scratch.text("left.csv"), scratch.text("narrow"));
    exobus(&["convert", &left, "--schema", "id int32", "--format", "parquet", "--output", &narrow]).expect(0, &[]);
    let more = ["--on", "id=uid", "--how", "semi"];
    let text = joined(&scratch, ["narrow", "right.csv"], &[&more[..], &["--format", "csv"]].concat());
    assert_eq!(text, "id,city\n1,oslo\n1,bergen\n");
    let text = joined(&scratch, BOTH, &[&more[..], &["--schema", "id decimal(10,2)"]].concat());
    assert_eq!(text, "id,city\n1.00,oslo\n1.00,bergen\n");
    // All NaNs are one, and so are both zeros.
    fs::write(scratch.path("left.csv"), "x\nNaN\n-0.0\n1.5\n").unwrap();
    fs::write(scratch.path("right.csv"), "x\nNaN\n0.0\n2.5\n").unwrap();
    let more = ["--on", "x", "--schema", "x float64", "--right-schema", "x float32", "--json"];
    let summary = join(&scratch, BOTH, &more).expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["rows_out"]), (&6.into(), &2.into()));
}

/// Whatever the right one is.
#[test]
fn files_are_written_as_those_of_the_left_table_are() {
    let scratch = tables();
    let (left, folder) = (scratch.text("left.csv"), scratch.text("folder"));
    exobus(&["convert", &left, "--format", "parquet", "--output", &folder]).expect(0, &[]);
    let more = ["--on", "id=uid", "--compression", "snappy", "--row-group-rows", "3"];
    join(&scratch, ["folder", "right.csv"], &more).expect(0, &[]);
    assert_eq!(parts(&scratch.path("out")), ["part-00000.parquet"]);
    fs::remove_dir_all(scratch.path("out")).unwrap();
    let text = joined(&scratch, ["left.csv", "folder"], &["--on", "id", "--how", "full", "--suffix", "_2"]);
    assert_eq!(
        text,
        "id,city,city_2\n1,oslo,oslo\n1,oslo,bergen\n1,bergen,oslo\n1,bergen,bergen\n2,rome,rome\n4,lima,lima\n,nowhere,\n,,nowhere\n"
    );
}

#[test]
fn a_table_is_joined_with_itself() {
    let scratch = tables();
    fs::write(scratch.path("people.csv"), "id,name,boss\n1,ada,\n2,bo,1\n3,cy,1\n").unwrap();
    let more = ["--on", "boss=id", "--how", "left", "--right-select", "id,name", "--suffix", "_of_boss"];
    assert_eq!(
        joined(&scratch, ["people.csv", "people.csv"], &more),
        "id,name,boss,name_of_boss\n2,bo,1,ada\n3,cy,1,ada\n1,ada,,\n"
    );
}

#[test]
fn the_summary_says_how_many_rows_there_are_and_explain_what_would_be_done() {
    let scratch = tables();
    let run = join(&scratch, BOTH, &["--on", "id=uid"]);
    assert!(run.expect(0, &[]).stdout.contains("joined 9 rows, 4 rows written"), "{run:#?}");
    let summary = join(&tables(), BOTH, &["--on", "id=uid", "--how", "anti", "--json"]).expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["rows_out"], &summary["files"]), (&9.into(), &3.into(), &1.into()));
    let (left, right) = (scratch.text("left.csv"), scratch.text("right.csv"));
    let explain = |more: &[&str]| exobus(&[&["explain", "join", &left, &right, "--on", "id=uid"][..], more].concat());
    let explained = explain(&["--json"]).expect(0, &[]).json();
    assert_eq!((&explained["shuffled"]["maps"], &explained["broadcast_bytes"][1]), (&2.into(), &0.into()));
    let told = explain(&[]).expect(0, &[]).stdout.clone();
    assert!(told.contains("the right table is broadcast"), "{told}");
    // Of four rows with a key two have the most frequent one, and so have two of three.
    assert!(
        told.contains("left table: the most frequent key has 50.0 % of 4 rows that were sampled, and is in 1 file;"),
        "{told}"
    );
    assert!(told.contains("right table: the most frequent key has 66.7 % of 3 rows"), "{told}");
    assert!(explain(&["--how", "left"]).expect(0, &[]).stdout.contains("it cannot be broadcast"));
    let run = explain(&["--how", "full"]);
    run.expect(0, &[]);
    for strategy in exobus::shuffle::Strategy::ALL {
        assert!(run.stdout.contains(strategy.name()), "{} is not in {run:#?}", strategy.name());
    }
}

#[test]
fn what_no_join_can_be_is_refused_with_what_to_do() {
    let refused = |more: &[&str], texts: &[&str]| {
        join(&tables(), BOTH, more).expect(2, texts);
    };
    refused(&[], &["--on"]);
    refused(&["--on", "id="], &["\"id=\"", "LEFT=RIGHT"]);
    refused(&["--on", "id=uid,id=price"], &["in two pairs"]);
    refused(&["--on", "id"], &["no column id"]);
    refused(&["--on", "town=uid"], &["no column town"]);
    refused(&["--on", "id=prize"], &["no column prize; did you mean price?"]);
    refused(&["--on", "id=uid", "--right-select", "price"], &["uid", "not selected"]);
    refused(&["--on", "city=uid"], &["city=uid is text in the left table and int64 in the right table"]);
    refused(
        &["--on", "id=uid", "--right-schema", "uid float64"],
        &["int64 in the left table", "float64 in the right table"],
    );
    refused(&["--on", "id=uid", "--how", "lefft"], &["\"lefft\"", "did you mean left?"]);
    refused(&["--on", "id=uid", "--how", "outer"], &["inner, left, right, full, semi or anti"]);
    refused(&["--on", "id=uid", "--rows-per-file", "3"], &["--rows-per-file"]);
    refused(&["--on", "id=uid", "--files", "2", "--file-bytes", "1MiB"], &["--file-bytes"]);
    refused(&["--on", "id=uid", "--right-json-mixed", "text"], &["JSON lines"]);
    join(&tables(), ["left.csv", "none.csv"], &["--on", "id=uid"]).expect(3, &["none.csv"]);
}

#[test]
fn columns_that_would_have_one_name_are_refused_unless_a_suffix_tells_them_apart() {
    let scratch = tables();
    fs::write(scratch.path("right.csv"), "uid,City,city_r\n1,Oslo,x\n").unwrap();
    join(&scratch, BOTH, &["--on", "id=uid"])
        .expect(2, &["\"city\"", "\"City\" of the right table", "--suffix", "--right-select"]);
    join(&scratch, BOTH, &["--on", "id=uid", "--suffix", "_R"]).expect(2, &["\"_R\"", "another --suffix"]);
    assert_eq!(
        joined(&scratch, BOTH, &["--on", "id=uid", "--suffix", "_right"]),
        "id,city,City_right,city_r\n1,oslo,Oslo,x\n1,bergen,Oslo,x\n"
    );
    assert_eq!(joined(&scratch, BOTH, &["--on", "id=uid", "--how", "semi"]), "id,city\n1,oslo\n1,bergen\n");
}
