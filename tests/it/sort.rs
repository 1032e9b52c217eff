//! `exobus sort` in one process, as users call it: right and odd input, and that nothing is left behind.

use crate::support;

use std::{fs, time::Duration};

use support::{Running, Scratch, Trace, command, exobus, names, parts, with_own_spill};

const KEYS: [&str; 17] = [
    "rows",
    "bytes",
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

#[track_caller]
fn sort(scratch: &Scratch, args: &[&str]) -> support::Run {
    with_own_spill(scratch, &[&["sort"], args].concat())
}

fn generate(scratch: &Scratch, records: u64) -> String {
    let input = scratch.text("in");
    exobus(&["generate", "--records", &records.to_string(), "--files", "3", &input]).expect(0, &[]);
    input
}

#[test]
fn records_come_out_in_order_with_the_promised_summary() {
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, 50_000), scratch.text("out"));
    let run = sort(&scratch, &[&input, "--output", &output, "--memory", "256MiB", "--partitions", "4", "--json"]);
    run.expect(0, &[]);
    let summary = run.json();
    let mut keys: Vec<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let mut promised = KEYS;
    keys.sort_unstable();
    promised.sort_unstable();
    assert_eq!(keys, promised);
    assert_eq!(summary["rows"], 50_000);
    assert_eq!(summary["bytes"], 5_000_000);
    assert_eq!(summary["partitions"], 4);
    assert_eq!(summary["strategy"], "simple");
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    assert_eq!(summary["row_hash_in"].as_str().unwrap().len(), 32);
    assert!(summary["peak_memory_bytes"].as_u64().unwrap() > 0);
    assert!(summary["control_messages"].as_u64().unwrap() > 0);
    assert!(summary["owner_bytes"].as_u64().unwrap() > 0);

    assert_eq!(parts(&scratch.path("out")), ["part-00000", "part-00001", "part-00002", "part-00003"]);
    let sorted = exobus(&["validate", "--json", &output]);
    sorted.expect(0, &[]);
    let given = exobus(&["validate", "--json", &input]).json();
    assert_eq!(sorted.json()["records"], 50_000);
    assert_eq!(sorted.json()["checksum"], given["checksum"]);
    assert_eq!(summary["row_hash_in"], given["row_hash"], "from the bytes read");
    assert_eq!(summary["row_hash_out"], sorted.json()["row_hash"], "from the bytes written");
}

#[test]
fn more_data_than_memory_is_spilled_and_comes_out_right() {
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, 2_000_000), scratch.text("out"));
    let run = sort(&scratch, &[&input, "--output", &output, "--memory", "96MiB", "--executors", "2", "--json"]);
    run.expect(0, &[]);
    assert!(run.json()["spilled_bytes"].as_u64().unwrap() > 50_000_000, "{run:#?}");
    exobus(&["validate", &output]).expect(0, &[]);
}

#[test]
fn a_timeline_and_a_plot_show_every_task_once() {
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, 1_200_000), scratch.text("out"));
    let (timeline, plot) = (scratch.text("t.json"), scratch.text("p.svg"));
    fs::write(&timeline, "x".repeat(1_000_000)).unwrap();
    let sized = ["--memory", "96MiB", "--executors", "2", "--partitions", "9"];
    let asked = ["--timeline", &timeline, "--plot", &plot];
    let run = sort(&scratch, &[&[&input, "--output", &output, "--json"][..], &sized, &asked].concat());
    run.expect(0, &["t.json", "ui.perfetto.dev", "p.svg"]);
    assert!(run.json()["spilled_bytes"].as_u64().unwrap() > 0, "{run:#?}");
    let trace = Trace::read(&scratch.path("t.json"));
    assert_eq!(trace.outcome, "finished");
    assert_eq!((trace.count("sort.list"), trace.count("sort.reduce"), trace.count("shuffle.commit")), (1, 9, 1));
    assert!(trace.count("sort.map") >= 3 && trace.count("sort.sample") >= 1, "{:?}", trace.attempts);
    let helpers = ["sort.list", "shuffle.prepare", "sort.sample", "shuffle.sizes", "shuffle.commit"]
        .map(|stage| trace.count(stage));
    let helpers: usize = helpers.iter().sum();
    assert_eq!(trace.attempts.len(), trace.count("sort.map") + 9 + helpers, "nothing else");
    for (_, process, lane) in &trace.attempts {
        assert_eq!(process, "node local");
        assert!(lane == "executor 0" || lane == "executor 1", "{lane}");
    }
    assert!(trace.count_category("disk") > 0 && trace.count_category("wait") > 0, "spills, and waits for memory");
    let svg = fs::read_to_string(scratch.path("p.svg")).unwrap();
    assert_eq!(svg.matches("class=\"task\"").count(), trace.attempts.len());
    assert!(svg.contains("Disk writes") && svg.contains("Spill so far") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_timeline_that_cannot_be_written_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, 10), scratch.text("out"));
    let nowhere = scratch.text("no/such/folder/t.json");
    sort(&scratch, &[&input, "--output", &output, "--timeline", &nowhere]).expect(3, &["write", &nowhere]);
    assert!(!scratch.path("out").exists());
    // Nor does a job that never began leave empty ones.
    let plot = scratch.text("p.svg");
    sort(&scratch, &[&scratch.text("missing"), "--output", &output, "--plot", &plot]).expect(3, &["missing"]);
    assert!(!scratch.path("p.svg").exists());
    // A full disk shows only at the end: the sort itself went well.
    let run = sort(&scratch, &[&input, "--output", &output, "--plot", "/dev/full"]);
    run.expect(3, &["write /dev/full", "No space left"]);
    assert!(run.stdout.contains("sorted 10 records"), "{run:#?}");
    exobus(&["validate", &output]).expect(0, &[]);
}

/// One partition of all the data, several times the memory: it is merged from streams.
#[test]
fn a_partition_larger_than_memory_is_merged_from_streams() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 1_000_000);
    let output = scratch.text("out");
    let run = sort(&scratch, &[&input, "--output", &output, "--memory", "80MiB", "--partitions", "1", "--json"]);
    run.expect(0, &[]);
    let summary = run.json();
    assert_eq!(summary["partitions"], 1);
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    assert!(summary["spilled_bytes"].as_u64().unwrap() > 50_000_000, "{summary}");
    exobus(&["validate", &output]).expect(0, &[]);
}

/// Files of `count` records, the key of each chosen by its number; 16 bytes behind it are the number.
fn write_records(scratch: &Scratch, count: u64, key: impl Fn(u64) -> [u8; 10]) -> String {
    let mut bytes = vec![b'.'; count as usize * 100];
    for (number, record) in (0..).zip(bytes.chunks_mut(100)) {
        record[..10].copy_from_slice(&key(number));
        record[10..26].copy_from_slice(&u128::from(number).to_le_bytes());
    }
    fs::create_dir(scratch.path("in")).unwrap();
    fs::write(scratch.path("in/records"), bytes).unwrap();
    scratch.text("in")
}

/// Nine tenths of the keys begin with a zero byte, and with even cuts they all go to the first of four partitions.
#[test]
fn a_partition_that_is_far_too_large_is_written_as_several_files_in_order() {
    let scratch = Scratch::new();
    let input = write_records(&scratch, 400_000, |number| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut key = [0; 10];
        match number % 10 {
            0 => key[..8].copy_from_slice(&mixed),
            _ => key[1..9].copy_from_slice(&mixed),
        }
        key
    });
    let given = exobus(&["validate", "--json", &input]).json();
    for strategy in ["simple", "two_stage"] {
        let output = scratch.text(strategy);
        let sized = ["--memory", "80MiB", "--executors", "2", "--partitions", "4", "--cuts", "uniform"];
        let run =
            sort(&scratch, &[&[&input, "--output", &output, "--strategy", strategy, "--json"][..], &sized].concat());
        run.expect(0, &[]);
        let (files, summary) = (parts(&scratch.path(strategy)), run.json());
        let ranges = files.iter().filter(|name| name.starts_with("part-00000-")).count();
        assert!(ranges >= 4, "{files:?}");
        assert_eq!(files[ranges..], ["part-00001", "part-00002", "part-00003"], "{files:?}");
        assert_eq!((&summary["partitions"], &summary["files"]), (&4.into(), &files.len().into()));
        let sorted = exobus(&["validate", "--json", &output]);
        sorted.expect(0, &[]);
        assert_eq!(sorted.json()["checksum"], given["checksum"], "{strategy}");
        let largest = files.iter().map(|name| fs::metadata(scratch.path(strategy).join(name)).unwrap().len()).max();
        assert!(largest.unwrap() <= 16 << 20, "{largest:?}");
        fs::remove_dir_all(&output).unwrap();
    }
    // A sample finds better cuts, and nothing has to be divided.
    let output = scratch.text("sampled");
    sort(&scratch, &[&input, "--output", &output, "--memory", "80MiB", "--partitions", "4"]).expect(0, &[]);
    assert_eq!(parts(&scratch.path("sampled")), ["part-00000", "part-00001", "part-00002", "part-00003"]);
    exobus(&["validate", &output]).expect(0, &[]);
}

/// Dividing would not help: all of it is merged from streams.
#[test]
fn one_hot_key_larger_than_memory_is_sorted() {
    let scratch = Scratch::new();
    let input = write_records(&scratch, 700_000, |_| *b"always it!");
    for strategy in ["simple", "push", "two_stage"] {
        let output = scratch.text(strategy);
        let sized = ["--memory", "80MiB", "--executors", "2", "--partitions", "4", "--strategy", strategy];
        let run = sort(&scratch, &[&[&input, "--output", &output, "--json"][..], &sized].concat());
        run.expect(0, &[]);
        let summary = run.json();
        assert_eq!(summary["row_hash_in"], summary["row_hash_out"], "{strategy}");
        assert_eq!(parts(&scratch.path(strategy)).len(), 4, "{strategy}");
        exobus(&["validate", &output]).expect(0, &[]);
        fs::remove_dir_all(&output).unwrap();
    }
}

#[test]
fn generate_needs_no_input_and_leaves_nothing() {
    let scratch = Scratch::new();
    let mut command = command(&["sort", "--generate", "3MB"]);
    command.env("TMPDIR", scratch.root());
    let run = support::finish(command);
    run.expect(0, &["generating 3.00 MB"]);
    assert!(run.stdout.contains("sorted 30 000 records"), "{run:#?}");
    assert!(run.stdout.contains("validated 3.00 MB: 30 000 records in order"), "{run:#?}");
    assert_eq!(names(scratch.root()), [""; 0]);

    let output = scratch.text("kept");
    let mut command = support::command(&["sort", "--generate", "3MB", "--output", &output, "--json"]);
    command.env("TMPDIR", scratch.root());
    let run = support::finish(command);
    run.expect(0, &["validated"]);
    assert_eq!(run.json()["rows"], 30_000);
    assert_eq!(names(scratch.root()), ["kept"], "only the output stays");
    exobus(&["validate", &output]).expect(0, &[]);
}

#[test]
fn no_records_give_one_empty_file() {
    let scratch = Scratch::new();
    fs::write(scratch.path("empty"), "").unwrap();
    let output = scratch.text("out");
    let run = sort(&scratch, &[&scratch.text("empty"), "--output", &output, "--json"]);
    run.expect(0, &[]);
    assert_eq!(run.json()["rows"], 0);
    assert_eq!(parts(&scratch.path("out")), ["part-00000"]);
    assert_eq!(fs::metadata(scratch.path("out/part-00000")).unwrap().len(), 0);
}

#[test]
fn more_partitions_than_records_are_fine() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 5);
    let output = scratch.text("out");
    sort(&scratch, &[&input, "--output", &output, "--partitions", "12"]).expect(0, &[]);
    assert_eq!(parts(&scratch.path("out")).len(), 12);
    exobus(&["validate", &output]).expect(0, &[]);
}

#[test]
fn output_that_cannot_be_used_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 100);
    fs::create_dir(scratch.path("full")).unwrap();
    fs::write(scratch.path("full/mine"), "precious").unwrap();
    sort(&scratch, &[&input, "--output", &scratch.text("full")]).expect(3, &["full", "not empty", "mine"]);
    assert_eq!(fs::read_to_string(scratch.path("full/mine")).unwrap(), "precious");
    // The input's own folder is not empty either.
    sort(&scratch, &[&input, "--output", &input]).expect(3, &["not empty"]);
    assert_eq!(parts(&scratch.path("in")).len(), 3);

    fs::write(scratch.path("file"), "x").unwrap();
    sort(&scratch, &[&input, "--output", &scratch.text("file")]).expect(3, &["file"]);
    sort(&scratch, &[&input, "--output", &scratch.text("file/below")]).expect(3, &["file/below"]);
    // Even root cannot write here.
    sort(&scratch, &[&input, "--output", "/proc/exobus-out"]).expect(3, &["/proc/exobus-out"]);
}

#[test]
fn output_inside_the_input_folder_is_no_input() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 1000);
    let output = scratch.text("in/sorted/deep");
    sort(&scratch, &[&input, "--output", &output, "--json"]).expect(0, &[]);
    exobus(&["validate", &output]).expect(0, &[]);
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_works() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 1000);
    let output = scratch.text("out");
    let run = sort(&scratch, &[&input, "--output", &output, "--memory", "1MiB", "--executors", "2"]);
    run.expect(2, &["too"]);
    assert!(!scratch.path("out").exists(), "{run:#?}");
    let least = run.stderr.split_once("Give it ").and_then(|(_, said)| said.split_once(" or more"));
    let least = least.unwrap_or_else(|| panic!("no least size: {run:#?}")).0.replace(' ', "");
    sort(&scratch, &[&input, "--output", &output, "--memory", &least, "--executors", "2"]).expect(0, &[]);
}

#[test]
fn an_unreachable_cluster_is_named_with_the_time_that_was_tried() {
    let scratch = Scratch::new();
    let input = generate(&scratch, 10);
    let output = scratch.text("out");
    // Nothing listens on port 9 (discard) of the loopback.
    let mut command = command(&["sort", &input, "--output", &output, "--cluster", "nats://127.0.0.1:9"]);
    command.env("EXOBUS_CLUSTER__CONNECT_DEADLINE", "1200ms");
    support::finish(command).expect(4, &["nats://127.0.0.1:9", "tried for "]);
    assert!(!scratch.path("out").exists());
}

#[test]
fn ctrl_c_ends_it_and_leaves_nothing() {
    let scratch = Scratch::new();
    let spill = scratch.text("spill");
    let output = scratch.text("out");
    let seen = Scratch::new();
    let (timeline, plot) = (seen.text("t.json"), seen.text("p.svg"));
    let mut command = command(&[
        "sort",
        "--timeline",
        &timeline,
        "--plot",
        &plot,
        "--generate",
        "2GB",
        "--output",
        &output,
        "--memory",
        "96MiB",
        "--executors",
        "1",
        "--spill",
        &spill,
    ]);
    command.env("TMPDIR", scratch.root()).env("EXOBUS_LOG", "info");
    let mut running = Running::start(command);
    running.wait_for("sort.map", Duration::from_secs(60)).expect("it ended before it worked");
    running.signal(rustix::process::Signal::INT);
    let (code, said) = running.end(Duration::from_secs(30));
    assert_eq!(code, Some(130), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("error: interrupted")), "{said:#?}");
    assert_eq!(names(scratch.root()), [""; 0], "{said:#?}");
    let trace = Trace::read(&seen.path("t.json"));
    assert_eq!(trace.outcome, "cancelled");
    assert!(trace.count("sort.map") > 0, "what was done is shown: {:?}", trace.attempts);
    let svg = fs::read_to_string(seen.path("p.svg")).unwrap();
    assert_eq!(svg.matches("class=\"task\"").count(), trace.attempts.len());
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_under_the_final_names() {
    // Only root can mount a small disk; the check of the same error without one is in the shuffle crate.
    let scratch = Scratch::new();
    let small = scratch.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(&small)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("not root: a full disk was not tried");
        return;
    }
    let input = generate(&scratch, 100_000);
    let output = scratch.text("small/out");
    let run = sort(&scratch, &[&input, "--output", &output]);
    let left = names(&scratch.path("small"));
    let unmounted = std::process::Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
    run.expect(3, &["disk full", "part-00000"]);
    assert_eq!(left, [""; 0]);
}
