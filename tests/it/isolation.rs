//! A sort whose every function runs in executor processes, which are killed while it runs, or must end with it.

use crate::support;

use std::{collections::BTreeMap, fs, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use support::{Running, Scratch, command, exobus, names};

/// 100 MB: some seconds of an unoptimised build.
const RECORDS: &str = "1000000";
const PATIENCE: Duration = Duration::from_secs(90);

/// What `/proc/PID/stat` says behind the name, by position from the state on.
fn stat(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn lives(process: u32) -> bool {
    stat(process).is_some_and(|stat| !matches!(stat[0].as_str(), "Z" | "X"))
}

/// The executor processes of a node, and the processor time of each so far, in ticks of 10 ms.
fn executors(node: u32) -> BTreeMap<u32, u64> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let executor = |process: u32| {
        let stat = stat(process).filter(|stat| stat[1] == node.to_string() && stat[0] != "Z")?;
        let name = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        name.starts_with(b"exobus-executor\0").then(|| (process, stat[11].parse::<u64>().unwrap()))
    };
    processes.filter_map(executor).collect()
}

/// Until there is an executor process that works: one that has taken processor time since it was last looked at.
fn busy(node: u32) -> u32 {
    let mut before = executors(node);
    for _ in 0..PATIENCE.as_millis() / 20 {
        std::thread::park_timeout(Duration::from_millis(20));
        let now = executors(node);
        let works = |process: &u32| before.get(process).is_some_and(|ticks| now[process] > *ticks);
        if let Some(process) = now.keys().copied().find(works) {
            return process;
        }
        before = now;
    }
    panic!("no executor process works: {before:?}");
}

fn until_gone(processes: &[u32]) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if !processes.iter().any(|process| lives(*process)) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("they live: {processes:?}");
}

/// Starts a sort in processes of records that it makes.
fn sort(scratch: &Scratch) -> Running {
    let input = scratch.text("in");
    exobus(&["generate", "--records", RECORDS, "--files", "4", &input]).expect(0, &[]);
    let (output, spill) = (scratch.text("out"), scratch.text("spill"));
    let mut sort = command(&["sort", &input, "--output", &output, "--spill", &spill, "--json"]);
    sort.args(["--memory", "96MiB", "--executors", "2"]).env("EXOBUS_NODE__EXECUTOR", "process-all");
    Running::start(sort)
}

#[test]
fn a_sort_survives_executor_processes_that_are_killed() {
    let scratch = Scratch::new();
    let running = sort(&scratch);
    let node = running.child.id();
    let mut killed = Vec::new();
    for _ in 0..2 {
        let process = busy(node);
        kill_process(Pid::from_raw(process as i32).unwrap(), Signal::KILL).unwrap();
        killed.push(process);
        until_gone(&killed);
    }
    let (code, said) = running.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("attempts failed and ran again")), "the faults fired: {said:#?}");
    let summary: serde_json::Value =
        said.iter().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("{said:#?}"));
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"], "{summary}");
    let expected = exobus(&["validate", "--json", &scratch.text("in")]).json()["checksum"].clone();
    let sorted = exobus(&["validate", "--json", &scratch.text("out")]);
    sorted.expect(0, &[]);
    assert_eq!(sorted.json()["checksum"], expected);
    assert_eq!(names(&scratch.path("spill")), Vec::<String>::new());
    assert!(executors(node).is_empty());
}

#[test]
fn executor_processes_end_with_a_node_that_is_killed_or_interrupted() {
    for (signal, expected) in [(Signal::KILL, None), (Signal::INT, Some(130))] {
        let scratch = Scratch::new();
        let running = sort(&scratch);
        let node = running.child.id();
        busy(node);
        let processes: Vec<u32> = executors(node).into_keys().collect();
        running.signal(signal);
        let (code, said) = running.end(PATIENCE);
        assert_eq!(code, expected, "{said:#?}");
        until_gone(&processes);
    }
}
