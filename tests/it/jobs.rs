//! `exobus wordcount`, `aggregate` and `random-shuffle` in one process, as users call them.

use crate::support;

use std::fs;

use support::{Scratch, exobus, parts, with_own_spill};

const KEYS: [&str; 21] = [
    "rows",
    "rows_out",
    "keys",
    "bytes",
    "output_bytes",
    "shuffled_rows",
    "seconds",
    "gb_per_s",
    "requests",
    "peak_memory_bytes",
    "spilled_bytes",
    "spilled_early_bytes",
    "row_hash_in",
    "row_hash_out",
    "strategy",
    "partitions",
    "files",
    "control_messages",
    "owner_bytes",
    "cluster",
    "nodes",
];

/// A job with little memory.
#[track_caller]
fn job(scratch: &Scratch, args: &[&str]) -> support::Run {
    with_own_spill(scratch, &[args, &["--memory", "96MiB", "--executors", "2"]].concat())
}

/// Lines of all part files, sorted.
fn lines(scratch: &Scratch, folder: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for name in parts(&scratch.path(folder)) {
        assert!(name.starts_with("part-"), "{name}");
        let text = fs::read_to_string(scratch.path(folder).join(name)).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

#[test]
fn words_are_counted_with_the_promised_summary() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    fs::write(scratch.path("in/a"), "to be or not\nto be").unwrap();
    fs::write(scratch.path("in/b"), "that\u{a0}is  the question\n").unwrap();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let run = job(&scratch, &["wordcount", &input, "--output", &output, "--json", "--partitions", "3"]);
    run.expect(0, &[]);
    let summary = run.json();
    let mut keys: Vec<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let mut promised = KEYS;
    keys.sort_unstable();
    promised.sort_unstable();
    assert_eq!(keys, promised);
    assert_eq!((&summary["rows"], &summary["rows_out"], &summary["keys"]), (&10.into(), &10.into(), &8.into()));
    assert_eq!(parts(&scratch.path("out")), ["part-00000", "part-00001", "part-00002"]);
    let expected = ["be\t2", "is\t1", "not\t1", "or\t1", "question\t1", "that\t1", "the\t1", "to\t2"];
    assert_eq!(lines(&scratch, "out"), expected);

    let run = job(&scratch, &["wordcount", &input, "--output", &scratch.text("again")]);
    run.expect(0, &[]);
    for text in ["counted 10 words, 8 different", "every one of the words exactly once: 10 were read, counts of 10"] {
        assert!(run.stdout.contains(text), "{run:#?}");
    }
    // Nothing is overwritten, nothing is made for input that is not there.
    job(&scratch, &["wordcount", &input, "--output", &output]).expect(3, &["directory is not empty"]);
    let nowhere = scratch.text("nowhere");
    job(&scratch, &["wordcount", &scratch.text("missing"), "--output", &nowhere]).expect(3, &["missing"]);
    assert!(!scratch.path("nowhere").exists());
}

#[test]
fn a_table_is_aggregated_by_names_and_by_numbers() {
    let scratch = Scratch::new();
    let rows = "Bonn;1.5;\"a\nb\"\nKöln;2;x\nBonn;-3;\"\"\n\"Bad; Ems\";1e1;y\n";
    fs::write(scratch.path("named.csv"), format!("city;value;note\n{rows}")).unwrap();
    fs::write(scratch.path("plain.csv"), rows).unwrap();
    let aggregate = |file: &str, folder: &str, args: &[&str]| {
        let (input, output) = (scratch.text(file), scratch.text(folder));
        job(&scratch, &[&["aggregate", &input, "--output", &output, "--delimiter", ";"], args].concat())
    };
    let named = ["--header", "--key", "city", "--value", "value"];
    aggregate("named.csv", "named", &named).expect(0, &[]);
    let expected = ["\"Bad; Ems\";10;1;10;10", "Bonn;-1.5;2;-3;1.5", "Köln;2;1;2;2", "city;sum;count;min;max"];
    assert_eq!(lines(&scratch, "named"), expected);
    aggregate("plain.csv", "plain", &["--key", "1", "--ops", "count"]).expect(0, &[]);
    assert_eq!(lines(&scratch, "plain"), ["\"Bad; Ems\";1", "Bonn;2", "Köln;1"]);

    let wrong = |args: &[&str], code, texts: &[&str]| {
        aggregate("named.csv", "wrong", args).expect(code, texts);
        assert!(!scratch.path("wrong").exists(), "a job that fails leaves nothing");
    };
    let columns = ["named.csv:1: no column \"town\"; there are \"city\", \"value\", \"note\""];
    wrong(&["--header", "--key", "town", "--value", "value"], 2, &columns);
    let number = ["named.csv:2: a\\nb is not a number (column note)"];
    wrong(&["--header", "--key", "city", "--value", "note"], 1, &number);
    wrong(&["--header", "--key", "city"], 2, &["--ops sum needs --value"]);
    wrong(&["--key", "1", "--ops", "median"], 2, &["median"]);
    let delimiter = ["--key", "1", "--ops", "count", "--delimiter", "ab"];
    exobus(&[&["aggregate", "x", "--output", "y"], &delimiter[..]].concat()).expect(2, &["one ASCII character"]);
}

#[test]
fn a_seed_gives_the_same_bytes_with_any_memory_and_strategy() {
    let scratch = Scratch::new();
    let input = scratch.text("in");
    exobus(&["generate", "--records", "300000", "--files", "3", &input]).expect(0, &[]);
    let shuffle = |folder: &str, args: &[&str]| {
        let run =
            job(&scratch, &[&["random-shuffle", &input, "--output", &scratch.text(folder), "--json"], args].concat());
        run.expect(0, &[]);
        assert_eq!(run.json()["row_hash_in"], run.json()["row_hash_out"]);
        let files = parts(&scratch.path(folder)).into_iter();
        (files.flat_map(|name| fs::read(scratch.path(folder).join(name)).unwrap()).collect::<Vec<u8>>(), run.json())
    };
    let (expected, summary) = shuffle("a", &["--seed", "42"]);
    assert_eq!((&summary["rows"], &summary["bytes"]), (&300_000.into(), &30_000_000.into()));
    let given = exobus(&["validate", "--json", &input]).json();
    assert_eq!(summary["row_hash_in"], given["row_hash"], "the hash is that of the records");
    let (two_stage, _) = shuffle("b", &["--seed", "42", "--strategy", "two_stage", "--partitions", "7"]);
    assert!(two_stage == expected);
    assert!(shuffle("c", &["--seed", "43"]).0 != expected);
    assert_eq!(expected.len(), 30_000_000);
}
