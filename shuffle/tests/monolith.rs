//! The monolith of `benches/monolith` sorts: a benchmark that gives a wrong answer is no yardstick.

#[path = "../benches/monolith/engine/mod.rs"]
mod engine;

use std::fs;
use std::path::{Path, PathBuf};

use engine::{Failure, Options, Report};
use exobus_shuffle::files::{InputFile, generate_dir, list_inputs, validate_files};
use exobus_shuffle::records::{Mode, RECORD_BYTES, Summary};

const MB: u64 = 1_000_000;

/// A directory with input in `in`.
fn generated(mode: Mode, bytes: u64, files: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    generate_dir(&directory.path().join("in"), mode, 0, bytes / RECORD_BYTES as u64, files, 2).unwrap();
    directory
}

fn sort(directory: &Path, partitions: usize, memory_bytes: Option<u64>) -> Result<Report, Failure> {
    let (inputs, output) = (vec![directory.join("in")], directory.join("out"));
    engine::sort(&Options { inputs, output, partitions, memory_bytes })
}

fn summary(directory: PathBuf) -> (Vec<InputFile>, Summary) {
    let files = list_inputs(&[directory], false).unwrap();
    let summary = validate_files(&files, 2).unwrap();
    (files, summary)
}

/// Sorts, and holds the output to the input's count and checksum, to order over all files, and to nothing else lying there.
fn check(directory: &Path, partitions: usize, memory_bytes: Option<u64>) -> Report {
    let report = sort(directory, partitions, memory_bytes).unwrap();
    let (_, input) = summary(directory.join("in"));
    let (files, output) = summary(directory.join("out"));
    assert!(output.is_ordered(), "{output:?}");
    assert_eq!((output.records, output.checksum), (input.records, input.checksum));
    assert_eq!((u128::from(report.rows), report.row_hash_in), (input.records, report.row_hash_out));
    let names: Vec<String> = (0..partitions).map(|index| format!("part-{index:05}")).collect();
    let mut found: Vec<String> = fs::read_dir(directory.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names);
    assert_eq!(files.iter().map(|file| file.bytes).sum::<u64>(), report.bytes);
    let stages: Vec<&str> = report.stages.iter().map(|stage| stage.name).collect();
    assert_eq!(stages, ["sample", "scatter", "gather", "commit"]);
    for stage in &report.stages {
        // Processor time is counted in ticks of 10 ms.
        let limit = 64.0 * stage.seconds + 1.0;
        assert!(stage.user_seconds + stage.system_seconds <= limit, "{stage:?}");
    }
    report
}

#[test]
fn what_fits_stays_in_memory_and_the_rest_is_spilled() {
    let directory = generated(Mode::default(), 50 * MB, 3);
    let report = check(directory.path(), 8, Some(16 * MB));
    assert!(report.planned_bytes <= 16 * MB, "{report:?}");
    assert!(report.spilled_bytes >= 50 * MB - 16 * MB, "{report:?}");
    assert!(report.spilled_bytes < 50 * MB, "{report:?}");
    assert!(report.buckets > 8, "a partition of 6 MB is too much for this memory at once: {report:?}");
}

#[test]
fn without_a_limit_nothing_is_spilled() {
    let directory = generated(Mode::default(), 10 * MB, 2);
    assert_eq!(check(directory.path(), 7, None).spilled_bytes, 0);
}

#[test]
fn skewed_keys_are_cut_by_the_sample() {
    let directory = generated(Mode { ascii: false, skewed: true }, 30 * MB, 1);
    let report = check(directory.path(), 5, Some(12 * MB));
    assert!(report.spilled_bytes > 0, "{report:?}");
}

#[test]
fn few_records_make_files_that_are_short_or_empty() {
    for rows in [0, 1, 3] {
        let directory = generated(Mode::default(), rows * RECORD_BYTES as u64, 1);
        check(directory.path(), 4, Some(16 * MB));
    }
}

#[test]
fn one_key_that_does_not_fit_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("in")).unwrap();
    fs::write(directory.path().join("in/same"), vec![7; 30 * MB as usize]).unwrap();
    let error = sort(directory.path(), 4, Some(12 * MB)).unwrap_err();
    assert!(matches!(error, Failure::Memory(_)), "{error}");
    assert_eq!(fs::read_dir(directory.path().join("out")).unwrap().count(), 0);
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let directory = generated(Mode::default(), MB, 1);
    let error = sort(directory.path(), 80, Some(2 * MB)).unwrap_err();
    assert!(error.to_string().contains("too little for 1000000 bytes in 80 partitions"), "{error}");
}
