//! `exobus explain`: what `auto` would pick is what it picks, and the figures are those of the job.

use crate::support;

use std::fs;

use support::{Scratch, exobus};

/// Explains a job and runs it, with these arguments besides input and output; both as JSON.
fn explained_and_run(
    scratch: &Scratch,
    job: &str,
    input: &str,
    shared: &[&str],
) -> (serde_json::Value, serde_json::Value) {
    let spill = scratch.text("spill");
    let shared = [shared, &["--json", "--memory", "64MiB", "--executors", "2", "--spill", &spill]].concat();
    let explained = exobus(&[&["explain", job, input], &shared[..]].concat());
    explained.expect(0, &[]);
    let output = tempfile::tempdir_in(scratch.root()).unwrap().keep().display().to_string();
    let seed: &[&str] = if job.ends_with("shuffle") { &["--seed", "1"] } else { &[] };
    let run = exobus(&[&[job, input, "--output", &output], seed, &shared].concat());
    run.expect(0, &[]);
    (explained.json(), run.json())
}

#[test]
fn what_is_explained_is_what_is_done() {
    let scratch = Scratch::new();
    let records = scratch.text("records");
    exobus(&["generate", "--records", "200000", "--files", "2", &records]).expect(0, &[]);
    let few = scratch.text("few");
    exobus(&["generate", "--records", "20000", &few]).expect(0, &[]);
    let rows = |row: &dyn Fn(u32) -> String| (0..150_000).map(row).collect::<String>();
    fs::write(scratch.path("words"), rows(&|row| format!("word{} and ", row % 50_000))).unwrap();
    fs::write(scratch.path("table"), rows(&|row| format!("{},key{}\n", row % 1000, row % 50_000))).unwrap();
    let numbers: String = (0..30_000).map(|row| format!("{row},word{}\n", row % 5_000)).collect();
    fs::write(scratch.path("words.csv"), format!("id,word\n{numbers}")).unwrap();
    let (words, table, csv) = (scratch.text("words"), scratch.text("table"), scratch.text("words.csv"));
    for (job, input, args) in [
        ("sort", &records, &[][..]),
        ("random-shuffle", &records, &["--partitions", "300"]),
        ("wordcount", &words, &["--partitions", "300"]),
        ("aggregate", &table, &["--key", "2", "--value", "1"]),
        ("sort", &csv, &["--key", "word", "--file-bytes", "200kB"]),
        ("shuffle", &records, &["--partitions", "300"]),
        ("shuffle", &few, &["--rows-per-file", "7000"]),
        ("shuffle", &csv, &["--rows-per-file", "7000"]),
        ("dedupe", &csv, &["--key", "word", "--order-by", "id:desc", "--file-bytes", "200kB"]),
        ("dedupe", &few, &[]),
    ] {
        let (explained, ran) = explained_and_run(&scratch, job, input, args);
        let case = format!("{job}: {explained}\n{ran}");
        assert_eq!(explained["input_bytes"], ran["bytes"], "{case}");
        assert_eq!(explained["plan"]["partitions"], ran["partitions"], "{case}");
        assert_eq!(explained["estimates"][0]["strategy"], ran["strategy"], "{case}");
        let made = explained["sizes"]["input_bytes"].as_u64().unwrap();
        if job.ends_with("shuffle") && args.first() == Some(&"--partitions") {
            assert_eq!(made, 200_000 * (8 + 16 + 100), "{case}");
        }
    }
}

#[test]
fn a_conversion_is_explained_by_its_files() {
    let scratch = Scratch::new();
    let rows: String = (0..30_000).map(|row| format!("{row},word{}\n", row % 5_000)).collect();
    fs::write(scratch.path("words.csv"), format!("id,word\n{rows}")).unwrap();
    let csv = scratch.text("words.csv");
    for args in [&[][..], &["--rows-per-file", "7000"], &["--partitions", "3"]] {
        let (explained, ran) = explained_and_run(&scratch, "convert", &csv, args);
        let case = format!("{args:?}: {explained}\n{ran}");
        assert_eq!(explained["input_bytes"], ran["bytes"], "{case}");
        assert_eq!(explained["files"], ran["files"], "{case}");
        assert!(explained["task_bytes"].as_u64().unwrap() > 4 << 20, "{case}");
    }
    let run = exobus(&["explain", "convert", &csv, "--rows-per-file", "7000", "--memory", "64MiB"]);
    run.expect(0, &[]);
    for text in ["on 1 node with", "5 files of", "no row goes to another node"] {
        assert!(run.stdout.contains(text), "{text:?} is not in {run:#?}");
    }
    let memory = ["--memory", "64MiB"];
    let explain = |args: &[&str]| exobus(&[&["explain"], args, &memory].concat());
    // What the jobs themselves would refuse is refused here.
    explain(&["dedupe", &csv]).expect(2, &["--key COLUMN"]);
    explain(&["dedupe", &csv, "--key", "wrd"]).expect(2, &["word"]);
    explain(&["random-shuffle", &csv]).expect(0, &[]);
}

#[test]
fn people_see_every_strategy_and_why_one_is_picked() {
    let scratch = Scratch::new();
    let records = scratch.text("records");
    exobus(&["generate", "--records", "400000", &records]).expect(0, &[]);
    let run = exobus(&["explain", "random-shuffle", &records, "--memory", "64MiB", "--executors", "2"]);
    run.expect(0, &[]);
    let texts =
        ["40.0 MB, of which maps make 49.6 MB, on 1 node with", "maps of", "partitions of", "have to be spilled"];
    let strategies = exobus::shuffle::Strategy::ALL.map(|strategy| strategy.name());
    for text in texts.into_iter().chain(strategies) {
        assert!(run.stdout.contains(text), "{text:?} is not in {run:#?}");
    }
    // What the job itself would refuse is refused here.
    fs::write(scratch.path("table.csv"), "a,b\n1,2\n").unwrap();
    let table = scratch.text("table.csv");
    exobus(&["explain", "aggregate", &table, "--key", "c", "--header", "--ops", "count"])
        .expect(2, &["table.csv:1: no column \"c\""]);
    exobus(&["explain", "aggregate", &table, "--key", "1"]).expect(2, &["--ops sum needs --value"]);
}

#[test]
fn early_spilling_is_named_where_there_is_memory_to_spare() {
    let scratch = Scratch::new();
    let records = scratch.text("records");
    // Holes: it is not the content that matters.
    fs::File::create(&records).unwrap().set_len(700_000_000).unwrap();
    let said = |memory: &str| {
        let run = exobus(&["explain", "sort", &records, "--memory", memory, "--executors", "2"]);
        run.expect(0, &[]);
        run.stdout.contains("nodes spill early although there is room; the summary of the job says how much")
    };
    assert!(said("2GiB"));
    assert!(!said("200MiB"), "all that memory is touched without asking");
}
