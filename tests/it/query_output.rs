//! What `exobus query` prints: all rows of an answer where a format is said, on standard output that takes them; and what it refuses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::stdout::{FULL, on_full_disk, unread};
use crate::support::{Run, Scratch, command, finish, names};

const ROWS: usize = 100_000;

/// A file of rows that take 6 MB, more than a job returns, and its text.
fn many() -> (Scratch, String) {
    let scratch = Scratch::new();
    let rows: String =
        (0..ROWS).map(|row| format!("{row},the text of row {row:06} of one hundred thousand\n")).collect();
    let text = format!("id,text\n{rows}");
    fs::write(scratch.path("many.csv"), &text).unwrap();
    fs::write(scratch.path("few.csv"), "a,b\n1,x\n2,y\n3,x\n").unwrap();
    (scratch, text)
}

/// A query in the folder of the tables.
fn query(scratch: &Scratch, args: &[&str]) -> std::process::Command {
    let mut command = command(&["query", "--memory", "128MiB", "--spill", &scratch.text("spill"), "--local"]);
    command.args(args).current_dir(scratch.root());
    command
}

/// The same, run; nothing is left behind.
#[track_caller]
fn queried(scratch: &Scratch, args: &[&str]) -> Run {
    let run = finish(query(scratch, args));
    assert_eq!(names(&scratch.path("spill")), [""; 0], "something is left: {run:#?}");
    run
}

#[test]
fn a_format_prints_all_rows_in_their_order() {
    let (scratch, text) = many();
    // In as many files as it takes: the names of the columns are there once.
    let all = queried(&scratch, &["SELECT * FROM 'many.csv'", "--format", "csv", "--files", "3"]);
    assert!(all.expect(0, &[]).stdout == text, "{} bytes of {}", all.stdout.len(), text.len());
    let sorted =
        queried(&scratch, &["SELECT id FROM 'many.csv' ORDER BY id DESC", "--format", "jsonl", "--files", "3"]);
    let expected: String = (0..ROWS).rev().map(|row| format!("{{\"id\":{row}}}\n")).collect();
    assert!(sorted.expect(0, &[]).stdout == expected, "{} bytes of {}", sorted.stdout.len(), expected.len());
    // A name of a column may have lines.
    let named = "SELECT a AS \"one \"\"a\"\"\nof\tmany\", b FROM 'few.csv' ORDER BY a";
    let printed = queried(&scratch, &[named, "--format", "tsv", "--files", "3"]);
    assert_eq!(printed.expect(0, &[]).stdout, "\"one \"\"a\"\"\nof\tmany\"\tb\n1\tx\n2\ty\n3\tx\n");
    // Also where somebody says where steps write, which is there afterwards, and empty.
    let steps = scratch.text("steps");
    let text = "SELECT b, count(*) AS n FROM 'few.csv' GROUP BY b ORDER BY b";
    let printed = queried(&scratch, &[text, "--format", "csv", "--scratch", &steps]);
    assert_eq!(printed.expect(0, &[]).stdout, "b,n\nx,2\ny,1\n");
    assert_eq!(names(&scratch.path("steps")), [""; 0]);
    let explained = queried(&scratch, &[&format!("EXPLAIN {text}"), "--format", "csv"]);
    assert!(explained.expect(0, &[]).stdout.contains(" 1. group by b"), "{explained:#?}");
}

#[test]
fn so_many_rows_are_printed_as_are_asked_for_and_it_is_an_error_where_they_are_not() {
    let (scratch, text) = many();
    let first = queried(&scratch, &["SELECT * FROM 'many.csv'", "--format", "csv", "--rows", "7"]);
    first.expect(0, &["these are the first 7 rows: --rows prints more"]);
    assert_eq!(first.stdout, text.split_inclusive('\n').take(8).collect::<String>());
    let most = queried(&scratch, &["SELECT * FROM 'many.csv'", "--format", "csv", "--rows", "1000000"]);
    most.expect(3, &["error: these are the first ", "and there are more: a job returns 4 MiB of them at most"]);
    assert!(text.starts_with(&most.stdout) && most.stdout.len() > 1 << 20, "{} bytes", most.stdout.len());
    let few = queried(&scratch, &["SELECT * FROM 'few.csv'", "--format", "csv", "--rows", "1000000"]);
    assert_eq!(few.expect(0, &[]).stdout, "a,b\n1,x\n2,y\n3,x\n");
    assert!(!few.stderr.contains("these are the first"), "{few:#?}");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_one_that_nobody_reads_is_not() {
    let (scratch, _) = many();
    let lines: [&[&str]; 6] = [
        &["SELECT * FROM 'many.csv'", "--format", "csv"],
        &["SELECT * FROM 'few.csv'", "--format", "jsonl"],
        &["SELECT * FROM 'few.csv'", "--format", "csv", "--rows", "1"],
        &["SELECT * FROM 'few.csv'"],
        &["SELECT * FROM 'few.csv'", "--json"],
        &["SELECT b, count(*) AS n FROM 'few.csv' GROUP BY b", "--online", "--json"],
    ];
    for line in lines {
        on_full_disk(query(&scratch, line)).expect(3, &[FULL]);
        let run = unread(query(&scratch, line));
        assert!(!run.expect(0, &[]).stderr.contains("error"), "{run:#?}");
        assert_eq!(names(&scratch.path("spill")), [""; 0], "{line:?}");
    }
}

#[test]
fn a_query_that_is_interrupted_while_it_prints_leaves_nothing() {
    let (scratch, text) = many();
    let mut command = query(&scratch, &["SELECT * FROM 'many.csv'", "--format", "csv"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut read = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    read.read_line(&mut line).unwrap();
    assert_eq!(line, "id,text\n");
    // It waits for who reads, who does not: the second signal ends it.
    assert!(text.len() > 4 << 20 && !names(&scratch.path("spill")).is_empty());
    for signal in [Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(&scratch.path("spill")), [""; 0]);
    drop(read);
}

#[test]
fn a_query_may_begin_with_a_comment() {
    let (scratch, _) = many();
    let text = "-- the largest = the last\nSELECT max(a) AS most FROM 'few.csv'";
    let expected = "most\n3\n";
    for args in [[text, "--format", "csv"], ["--format", "csv", text]] {
        assert_eq!(queried(&scratch, &args).expect(0, &[]).stdout, expected);
    }
    let text = "--the largest\nSELECT max(a) AS most FROM few";
    let printed = queried(&scratch, &["--table", "few=few.csv", text, "--format=csv"]);
    assert_eq!(printed.expect(0, &[]).stdout, expected);
    let wrong = queried(&scratch, &["-- the largest\nSELECT max(c) FROM 'few.csv'"]);
    wrong.expect(2, &["line 2, column 12: no column c"]);
    assert!(finish(command(&["query", "--help"])).expect(0, &[]).stdout.contains("Usage: exobus query"));
    queried(&scratch, &["--formt", "csv", text]).expect(2, &["unexpected argument '--formt'"]);
}

#[test]
fn what_has_no_effect_or_two_meanings_is_refused() {
    let (scratch, _) = many();
    let refused = |more: &[&str], told: &str| {
        let text = "SELECT b, count(*) AS n FROM t GROUP BY b";
        let run = queried(&scratch, &[&[text, "--table", "t=few.csv"], more].concat());
        assert_eq!(run.expect(2, &[told]).stdout, "");
    };
    refused(&["--table", " T =many.csv"], "--table says twice what T is");
    refused(&["--json", "--format", "jsonl"], "--json prints one object");
    refused(&["--format", "arrow"], "arrow is not printed");
    refused(&["--format", "csv", "--compression", "gzip"], "--compression says how the files of an answer are written");
    refused(&["--row-group-rows", "7"], "--row-group-rows says how the files of an answer are written");
    refused(&["--file-bytes", "1MiB"], "--file-bytes says how the files of an answer are written");
    refused(&["--format", "csv", "--verify"], "--verify says how the files of an answer are written");
    refused(&["--online", "--until", "error=5%", "--format", "csv"], "--until ends the query when its answer is known");
    queried(&scratch, &["--continue", "0123456", "--rows", "7"]).expect(2, &["cannot be used with"]);
    queried(&scratch, &["SELECT * FROM ''"]).expect(2, &["a table has a name, or files in quotes"]);
    let written = ["SELECT * FROM 'few.csv'", "--output", "out", "--json", "--format", "csv", "--compression", "gzip"];
    queried(&scratch, &written).expect(0, &[]);
    assert!(scratch.path("out/part-00000.csv.gz").exists());
    let shown =
        queried(&scratch, &["SELECT b, count(*) AS n FROM 'few.csv' GROUP BY b", "--online", "--format", "csv"]);
    assert_eq!(shown.expect(0, &[]).stdout.lines().count(), 3);
}
