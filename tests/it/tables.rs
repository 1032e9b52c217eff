//! Tables as commands sort them: in one process and on a cluster, and what becomes of that when something dies.

use crate::support;

use std::{fmt::Write as _, fs, path::Path, process::Command};

use rustix::process::{Signal, kill_process};
use support::{
    Scratch,
    cluster::{Cluster, watched},
    command, exobus, finish, names,
};

/// Rows of the files of [`write_table`].
pub(crate) const ROWS: u64 = 300_000;
const KEY: &str = "city,ts:desc";

/// Three files of text with columns in other orders, cities in quotes, some of which are missing, and times that occur many times.
pub(crate) fn write_table(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for file in 0..3 {
        let mut text = String::from(if file == 1 { "ts,id,city\n" } else { "id,city,ts\n" });
        for row in 0..ROWS / 3 {
            let id = file * ROWS / 3 + row;
            let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let city = if mixed.is_multiple_of(13) { String::new() } else { format!("\"city, {}\"", mixed % 400) };
            let ts = mixed % 97;
            match file {
                1 => writeln!(text, "{ts},{id},{city}").unwrap(),
                _ => writeln!(text, "{id},{city},{ts}").unwrap(),
            }
        }
        fs::write(folder.join(format!("{file}.csv")), text).unwrap();
    }
}

/// Names and bytes of the files of a folder.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let tables = names(folder).into_iter().filter(|name| name.ends_with(".parquet"));
    tables.map(|name| (name.clone(), fs::read(folder.join(&name)).unwrap())).collect()
}

/// Sorts the table in this process and nothing happens meanwhile.
fn sorted(scratch: &Scratch, output: &str, more: &[&str]) -> Vec<(String, Vec<u8>)> {
    let (input, output) = (scratch.text("table"), scratch.text(output));
    let mut args =
        vec!["sort", &input, "--key", KEY, "--output", &output, "--partitions", "12", "--format", "parquet", "--json"];
    args.extend(more);
    let run = support::with_own_spill(scratch, &args);
    let summary = run.expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["row_hash_in"]), (&ROWS.into(), &summary["row_hash_out"]));
    files(Path::new(&output))
}

#[test]
fn the_files_of_a_sorted_table_are_the_same_whatever_the_memory_the_executors_and_the_strategy_are() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let first = sorted(&scratch, "first", &[]);
    assert_eq!(first.len(), 12);
    let other = sorted(&scratch, "other", &["--memory", "128MiB", "--executors", "4", "--strategy", "two_stage"]);
    assert!(first == other);
    // Sorted again it is what it was.
    let (input, output) = (scratch.text("first"), scratch.text("again"));
    let args =
        ["sort", &input, "--key", KEY, "--output", &output, "--partitions", "12", "--format", "parquet", "--json"];
    let again = support::with_own_spill(&scratch, &args).expect(0, &[]).json();
    assert_eq!((&again["rows"], &again["row_hash_in"]), (&ROWS.into(), &again["row_hash_out"]));
}

#[test]
fn what_is_wrong_with_a_table_or_its_key_is_said_with_what_to_do() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let (input, output, csv) = (scratch.text("table"), scratch.text("out"), scratch.text("table/0.csv"));
    let sort = |more: &[&str]| exobus(&[&["sort", &input, "--output", &output], more].concat());
    exobus(&["sort", &csv, "--output", &output]).expect(2, &["a table is sorted by columns", "--key"]);
    sort(&["--key", "cty"]).expect(2, &["cty", "city"]);
    sort(&["--key", "city:down"]).expect(2, &["city:down", ":desc"]);
    sort(&["--key", "id", "--compression", "rar"]).expect(2, &["snappy", "zstd"]);
    sort(&["--key", "id", "--compression", "snappy"]).expect(2, &["csv is not written with", "snappy", "gzip:9"]);
    sort(&["--key", "id", "--schema", "city int64"]).expect(1, &["0.csv", "line", "column city", "--schema"]);
    fs::write(scratch.path("table/3.csv"), "id,city,ts\n1,2\n").unwrap();
    sort(&["--key", "id"]).expect(1, &["3.csv", "line 2"]);
    assert!(
        !scratch.path("out").exists() || files(&scratch.path("out")).is_empty(),
        "nothing stands under a final name"
    );
}

/// A sort of the table that runs in one process and keeps its log in the scratch folder.
pub(crate) fn alone(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = command(args);
    command.env("XDG_STATE_HOME", scratch.path("state"));
    command
}

#[test]
fn a_sort_of_a_table_that_is_killed_is_resumed_and_makes_the_same_files() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let expected = sorted(&scratch, "expected", &[]);
    let (input, output) = (scratch.text("table"), scratch.text("out"));
    let args = [
        "sort",
        &input,
        "--key",
        KEY,
        "--output",
        &output,
        "--partitions",
        "12",
        "--format",
        "parquet",
        "--strategy",
        "simple",
    ];
    let mut command = alone(&scratch, &args);
    command.args(["--memory", "128MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
    let mut killed = false;
    let (run, _) = watched(&scratch, command, |events, pid| {
        if !killed && events.finished("table.reduce") >= 4 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{run:#?}");
    let command = alone(&scratch, &["resume", "--json", "--spill", &scratch.text("spill")]);
    let (run, events) = watched(&scratch, command, |_, _| {});
    let summary = run.expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["row_hash_in"]), (&ROWS.into(), &summary["row_hash_out"]));
    events.nothing_is_done_twice("table.reduce");
    assert!(files(&scratch.path("out")) == expected);
}

#[test]
fn a_job_over_a_table_that_is_given_up_is_listed_with_its_folders_and_frees_its_output() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let (input, output) = (scratch.text("table"), scratch.text("out"));
    let mut command = alone(&scratch, &["sort", &input, "--key", KEY, "--output", &output, "--partitions", "12"]);
    command.args(["--memory", "128MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
    let mut killed = false;
    let (run, _) = watched(&scratch, command, |events, pid| {
        if !killed && events.finished("table.reduce") >= 2 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{run:#?}");
    let list = finish(alone(&scratch, &["resume", "--list"]));
    assert!(list.expect(0, &[]).stdout.contains(&format!("{input} -> {output}")), "{list:#?}");
    let job = list.stdout.split(' ').next().unwrap();
    finish(alone(&scratch, &["resume", "--drop", job])).expect(0, &["is given up", &format!("{output} is free")]);
    sorted(&scratch, "out", &[]);
}

#[test]
fn a_node_that_is_killed_changes_nothing_of_the_files_of_a_sorted_table() {
    let cluster = Cluster::start("go-on");
    let scratch = &cluster.scratch;
    write_table(&scratch.path("table"));
    let expected = sorted(scratch, "expected", &[]);
    let (input, output) = (scratch.text("table"), scratch.text("out"));
    let args =
        ["sort", &input, "--key", KEY, "--output", &output, "--partitions", "12", "--format", "parquet", "--json"];
    let mut killed = false;
    let (run, _) = cluster.run(&args, |events, _| {
        if !killed && events.finished("table.reduce") >= 2 {
            cluster.kill("n3");
            killed = true;
        }
    });
    assert!(killed, "the node died while work went on");
    let summary = run.expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["nodes"]), (&ROWS.into(), &3.into()));
    assert!(files(&scratch.path("out")) == expected);
    cluster.end();
}
