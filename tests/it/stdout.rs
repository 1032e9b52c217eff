//! What commands print: where it cannot be written the command has failed, and who reads no more is not told.

use std::fs::{self, File};
use std::process::Command;

use crate::support::{Run, Scratch, command, finish};

/// Runs a command whose standard output is a disk that is full.
pub fn on_full_disk(mut command: Command) -> Run {
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    finish(command)
}

/// Runs a command whose standard output nobody reads.
pub fn unread(mut command: Command) -> Run {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    finish(command)
}

pub const FULL: &str = "error: write standard output: No space left on device";

#[test]
fn what_cannot_be_printed_is_an_error_of_any_command() {
    let scratch = Scratch::new();
    fs::write(scratch.path("table.csv"), "a,b\n2,x\n1,y\n").unwrap();
    let [table, file, unread_file] = ["table.csv", "records", "unread"].map(|name| scratch.text(name));
    let [sorted, unread_sorted] = ["sorted", "sorted-unread"].map(|name| scratch.text(name));
    let spill = scratch.text("spill");
    let lines: [&[&str]; 8] = [
        &["--help"],
        &["sort", "--help"],
        &["config", "default"],
        &["protocols"],
        &["schema"],
        &["show", &table],
        &["validate", &table],
        &["explain", "sort", &table, "--key", "a", "--memory", "64MiB", "--spill", &spill],
    ];
    for line in lines {
        on_full_disk(command(line)).expect(3, &[FULL]);
        let run = unread(command(line));
        assert!(!run.expect(0, &[]).stderr.contains("error"), "{run:#?}");
    }
    // What a command does besides is done.
    let generate = |file: &str| command(&["generate", "--records", "10", file]);
    on_full_disk(generate(&file)).expect(3, &[FULL]);
    assert_eq!(unread(generate(&unread_file)).expect(0, &[]).stderr, "");
    let sort = |output: &str| {
        command(&["sort", &table, "--key", "a", "-o", output, "--json", "--files", "1", "--spill", &spill])
    };
    on_full_disk(sort(&sorted)).expect(3, &[FULL]);
    unread(sort(&unread_sorted)).expect(0, &[]);
    for folder in [sorted, unread_sorted] {
        assert_eq!(fs::read_to_string(format!("{folder}/part-00000.csv")).unwrap(), "a,b\n1,y\n2,x\n");
    }
    for file in [file, unread_file] {
        assert_eq!(fs::metadata(file).unwrap().len(), 1000);
    }
}
