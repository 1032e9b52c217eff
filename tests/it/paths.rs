//! Names of files are bytes: those that are no text work everywhere, and so do URLs of files.

use crate::support;

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use support::{Running, Scratch, cluster::PATIENCE, command, exobus, finish};

/// A name that is no text, and looks like another one where it is printed.
fn strange(stem: &str) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&[stem.as_bytes(), b"-na\xefve"].concat()))
}

fn run(mut command: Command, args: &[&Path]) -> support::Run {
    command.args(args);
    finish(command)
}

/// Every job over input with strange names, in a strange folder, into another one.
fn every_job(scratch: &Scratch, setup: &[&str]) {
    let folder = scratch.root().join(strange("folder"));
    let (records, text) = (folder.join(strange("records")), folder.join(strange("text")));
    fs::create_dir_all(&folder).unwrap();
    run(command(&["generate", "--records", "20000", "--files", "2"]), &[&records]).expect(0, &[]);
    fs::rename(records.join("part-00000"), records.join(strange("part-00000"))).unwrap();
    fs::write(&text, "one,1\ntwo,2\none,3\n").unwrap();
    for (job, args, input) in [
        ("sort", vec!["--partitions", "3"], &records),
        ("random-shuffle", vec!["--seed", "1"], &records),
        ("wordcount", vec![], &text),
        ("aggregate", vec!["--key", "1", "--value", "2"], &text),
    ] {
        let output = folder.join(strange(job));
        let command_of = |words: &[&str]| command(&[words, &args, setup].concat());
        run(command_of(&[job]), &[input, Path::new("--output"), &output]).expect(0, &[]);
        assert!(output.join("part-00000").exists(), "{job}");
        if job == "sort" {
            run(command(&["validate"]), &[&output]).expect(0, &[]);
        }
        if job != "random-shuffle" {
            run(command_of(&["explain", job]), &[input]).expect(0, &[]);
        }
        fs::remove_dir_all(output).unwrap();
        // An error names it as far as it can be written.
        let missing = run(command_of(&[job]), &[&folder.join(strange("missing")), Path::new("-o"), &folder.join("o")]);
        missing.expect(3, &["missing-na\u{fffd}ve: look up"]);
    }
}

#[test]
fn names_that_are_no_text_work_in_this_process() {
    let scratch = Scratch::new();
    every_job(&scratch, &["--memory", "64MiB"]);
}

/// A `file://` URL of this machine is the path in it, wherever a file or a folder is named; with another scheme it is nobody's here.
#[test]
fn urls_of_files_are_paths_and_those_of_unknown_schemes_are_refused() {
    let scratch = Scratch::new();
    let url = |name: &str| format!("file://{}", scratch.text(name));
    exobus(&["generate", "--records", "20000", "--files", "2", &url("a%20folder")]).expect(0, &[]);
    let records = scratch.path("a folder");
    assert_eq!(fs::metadata(records.join("part-00000")).unwrap().len(), 1_000_000);
    for (job, args) in [("sort", vec!["--partitions", "3"]), ("random-shuffle", vec!["--seed", "1"])] {
        exobus(&[&[job, &url("a%20folder"), "--output", &url(job), "--memory", "64MiB"], &args[..]].concat())
            .expect(0, &[]);
        assert!(scratch.path(job).join("part-00000").exists());
        exobus(&["explain", job, &url("a%20folder")]).expect(0, &[]);
        let known = "there are no files of scheme gs here; known are paths and file, http, https, s3";
        exobus(&[&[job, "gs://bucket/in", "--output", &url("o")], &args[..]].concat())
            .expect(3, &["gs://bucket/in", known]);
        exobus(&[&[job, &url("a%20folder"), "--output", "gs://bucket/o"], &args[..]].concat())
            .expect(3, &["gs://bucket/o", known]);
    }
    exobus(&["validate", &url("sort")]).expect(0, &[]);
    let names: Vec<_> = support::names(scratch.root());
    assert_eq!(
        names,
        ["a folder", "random-shuffle", "sort"],
        "nothing is made for what is refused, least of all a folder `gs:`"
    );
}

#[test]
fn names_that_are_no_text_work_on_a_cluster() {
    let scratch = Scratch::new();
    let mut dev = command(&["dev", "--nodes", "2", "--port", "0", "--memory", "64MiB", "--executors", "1"]);
    dev.args(["--dir", &scratch.text("cluster")]);
    let mut dev = Running::start(dev);
    let url = dev.ready_at("nats://", PATIENCE);
    every_job(&scratch, &["--cluster", &url]);
    dev.signal(Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}
