//! Input that cannot be used, for every command that runs or explains a job: named, with an exit code, and nothing is left.

use crate::support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;

use support::{Scratch, command, exobus, finish, names, parts};

/// Each job with an argument list that only lacks what it reads and writes.
const JOBS: [(&str, &[&str]); 4] = [
    ("sort", &[]),
    ("random-shuffle", &["--seed", "1"]),
    ("wordcount", &[]),
    ("aggregate", &["--key", "1", "--ops", "count"]),
];

/// Runs every job, and explains it, over one input. What comes of it is given to `look`.
fn every_job(scratch: &Scratch, input: &str, mut look: impl FnMut(&str, support::Run)) {
    let sized = ["--spill", &scratch.text("spill"), "--memory", "64MiB"];
    for (job, args) in JOBS {
        let output = scratch.text("out");
        let run = exobus(&[&[job, input, "--output", &output], args, &sized].concat());
        let worked = run.code == Some(0);
        assert_eq!(fs::exists(&output).unwrap(), worked, "{job}: output is there when the job worked, only then");
        look(job, run);
        if worked {
            fs::remove_dir_all(output).unwrap();
        }
        let spilled = scratch.path("spill");
        assert!(!spilled.exists() || names(&spilled).is_empty(), "{job}: spill files are left");
        // The order that a seed gives is nothing that could be explained.
        let args = if job == "random-shuffle" { &[] } else { args };
        look(job, exobus(&[&["explain", job, input], args, &sized].concat()));
    }
}

#[test]
fn paths_that_are_no_input_are_refused_by_every_job() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("hollow")).unwrap();
    fs::write(scratch.path("file"), [b'x'; 100]).unwrap();
    symlink(scratch.path("circle"), scratch.path("circle")).unwrap();
    for (input, texts) in [
        ("missing", ["missing", "No such file"]),
        ("hollow", ["hollow", "no files"]),
        ("file/below", ["file/below", "Not a directory"]),
        ("circle", ["circle", "symbolic links"]),
    ] {
        every_job(&scratch, &scratch.text(input), |_, run| {
            run.expect(3, &texts);
        });
    }
    assert_eq!(names(scratch.root()), ["circle", "file", "hollow"], "neither output nor spill files");
}

#[test]
fn records_that_are_not_whole_are_refused_by_jobs_over_records() {
    let scratch = Scratch::new();
    fs::write(scratch.path("torn"), vec![b'x'; 1234]).unwrap();
    every_job(&scratch, &scratch.text("torn"), |job, run| match job {
        "sort" | "random-shuffle" => drop(run.expect(1, &["torn", "truncated", "offset 1200"])),
        _ => drop(run.expect(0, &[])),
    });
}

#[test]
fn a_table_that_cannot_be_used_is_told_by_file_and_line_first() {
    let scratch = Scratch::new();
    let prices: String = (2..30).map(|line| format!("bonn,{}\n", if line == 17 { "12x" } else { "7" })).collect();
    fs::write(scratch.path("sales.csv"), format!("city,price\n{prices}")).unwrap();
    fs::write(scratch.path("quote.csv"), "a,1\n\"b,2\nc,3\n").unwrap();
    fs::write(scratch.path("ragged.csv"), "a,1\nb\n").unwrap();
    let named = ["--header", "--key", "city", "--value"];
    let numbered = ["--key", "1", "--value", "2"];
    for (file, args, code, text) in [
        ("sales.csv", [&named[..], &["price"]].concat(), 1, "sales.csv:17: 12x is not a number (column price)"),
        ("sales.csv", [&named[..], &["cost"]].concat(), 2, "sales.csv:1: no column \"cost\"; there are"),
        (
            "sales.csv",
            vec!["--key", "3", "--ops", "count"],
            2,
            "sales.csv:1: no column 3: the first record has 2 fields",
        ),
        ("ragged.csv", numbered.to_vec(), 1, "ragged.csv:2: the record has 1 field, there is no column 2"),
        ("quote.csv", numbered.to_vec(), 1, "quote.csv:2: a quote is opened in this record and never closed"),
        ("quote.csv", vec!["--key", "1", "--ops", "count"], 1, "quote.csv:2: a quote is opened in this record"),
    ] {
        let (input, output) = (scratch.text(file), scratch.text("out"));
        let spill = scratch.text("spill");
        let sized = ["--spill", &spill, "--memory", "64MiB"];
        for command in [vec!["aggregate", &input, "--output", &output], vec!["explain", "aggregate", &input]] {
            let run = exobus(&[&command, &args[..], &sized].concat());
            run.expect(code, &[]);
            let folder = scratch.root().display();
            assert!(run.stderr.contains(&format!("error: {folder}/{text}")), "{run:#?}");
            assert!(run.stderr.trim_end().ends_with(')') && run.stderr.contains("(aggregate."), "{run:#?}");
        }
    }
    assert_eq!(names(scratch.root()), ["quote.csv", "ragged.csv", "sales.csv"], "no output");
}

#[test]
fn compressed_files_are_called_so_by_every_job() {
    let scratch = Scratch::new();
    fs::write(scratch.path("in.gz"), b"\x1f\x8b\x08\x08\x22\xa9\x03\x6b\x00\x03and some more").unwrap();
    every_job(&scratch, &scratch.text("in.gz"), |_, run| {
        run.expect(1, &["in.gz: is a gzip file; unpack it first"]);
    });
}

/// Root may read everything, so whoever runs the tests as root has them run the command as nobody in particular.
#[test]
fn what_nobody_may_read_or_write_is_named() {
    let scratch = Scratch::new();
    let nobody = |args: &[&str]| {
        let mut command = command(args);
        command.env("TMPDIR", scratch.root());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    };
    fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o777)).unwrap();
    if let Err(error) = nobody(&["--version"]).output() {
        eprintln!("the binary is out of reach for others, so this was not tried: {error}");
        return;
    }
    for (name, mode) in [("in/file", 0o000), ("shut/file", 0o644), ("good/file", 0o644)] {
        fs::create_dir(scratch.path(name).parent().unwrap()).unwrap();
        fs::write(scratch.path(name), [b'x'; 100]).unwrap();
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(scratch.path("locked")).unwrap();
    for (name, mode) in [("shut", 0o000), ("locked", 0o555)] {
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let spill = scratch.text("spill");
    let sized = ["--spill", &spill, "--memory", "64MiB"];
    for (job, args) in JOBS {
        let run = |input: &str, output: &str| {
            finish(nobody(
                &[&[job, &scratch.text(input), "--output", &scratch.text(output)], args, &sized[..]].concat(),
            ))
        };
        run("shut", "out").expect(3, &["shut", "denied"]);
        run("shut/file", "out").expect(3, &["shut/file", "denied"]);
        run("good", "locked/out").expect(3, &["locked/out", "denied"]);
        // That it cannot be opened shows only when a task tries.
        run("in", "out").expect(3, &["in/file", "denied"]);
        run("good", "out").expect(0, &[]);
        assert_eq!(parts(&scratch.path("out")), ["part-00000"]);
        fs::remove_dir_all(scratch.path("out")).unwrap();
    }
    assert_eq!(names(scratch.root()), ["good", "in", "locked", "shut"], "neither output nor spill files");
    fs::set_permissions(scratch.path("shut"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn one_row_and_equal_rows_go_through_every_job() {
    let scratch = Scratch::new();
    for (name, rows) in [("one", 1), ("equal", 20_000)] {
        let bytes = format!("{:99}\n", "the_same_key").repeat(rows);
        fs::write(scratch.path(name), &bytes).unwrap();
        every_job(&scratch, &scratch.text(name), |job, run| {
            run.expect(0, &[]);
            // Explaining makes no files.
            if names(&scratch.path("out")).is_empty() {
                assert!(run.stdout.contains("maps of"), "{job}: {run:#?}");
                return;
            }
            let parts = parts(&scratch.path("out")).into_iter().map(|part| scratch.path("out").join(part));
            let output: Vec<u8> = parts.flat_map(|part| fs::read(part).unwrap()).collect();
            let expected = match job {
                "wordcount" => format!("the_same_key\t{rows}\n"),
                "aggregate" => format!("{:99},{rows}\n", "the_same_key"),
                _ => bytes.clone(),
            };
            assert!(output == expected.as_bytes(), "{job}, {name}: {} bytes", output.len());
        });
    }
}
