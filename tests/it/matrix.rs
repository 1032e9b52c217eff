//! Every mode of the generator, every strategy, plenty and little memory, one node and three: what comes out is in order and
//! is what went in. The three nodes need a nats-server.

use crate::support;

use std::time::Duration;

use exobus::shuffle::Strategy;
use support::{Running, Scratch, command, exobus};

/// Flags of the generator's four modes. One node with plenty of memory sorts all of them; what else there is sorts some.
const MODES: [&[&str]; 4] = [&[], &["--ascii"], &["--skewed"], &["--ascii", "--skewed"]];
/// 20 MB, which plenty of memory holds.
const RECORDS: &str = "200000";

/// Sorts so many records of each mode with each strategy and compares the output.
fn every_strategy(scratch: &Scratch, options: &[&str], modes: &[&[&str]], records: &str, spills: bool) {
    for (number, mode) in modes.iter().enumerate() {
        let input = scratch.text(&format!("in{number}"));
        exobus(&[&["generate", "--records", records, "--files", "3", &input][..], mode].concat()).expect(0, &[]);
        let expected = exobus(&["validate", "--json", &input]).json()["checksum"].clone();
        for strategy in Strategy::ALL {
            let name = strategy.name();
            let output = scratch.text(&format!("out{number}-{name}"));
            let asked = ["sort", &input, "--output", &output, "--strategy", name, "--partitions", "9", "--json"];
            let run = exobus(&[&asked[..], options].concat());
            run.expect(0, &[]);
            let summary = run.json();
            assert_eq!(summary["strategy"], name);
            assert_eq!(summary["row_hash_in"], summary["row_hash_out"], "{mode:?} {name}: {summary}");
            if spills {
                assert!(summary["spilled_bytes"].as_u64().unwrap() > 0, "{mode:?} {name}: {summary}");
            }
            let sorted = exobus(&["validate", "--json", &output]);
            sorted.expect(0, &[]);
            assert_eq!(sorted.json()["checksum"], expected, "{mode:?} {name}");
            std::fs::remove_dir_all(&output).unwrap();
        }
    }
}

#[test]
fn one_node_with_plenty_of_memory() {
    let scratch = Scratch::new();
    let spill = scratch.text("spill");
    let options = ["--spill", &spill, "--memory", "256MiB", "--executors", "2"];
    every_strategy(&scratch, &options, &MODES, RECORDS, false);
}

#[test]
fn one_node_with_little_memory() {
    let scratch = Scratch::new();
    let spill = scratch.text("spill");
    // The store has 32 MiB of it.
    let options = ["--spill", &spill, "--memory", "64MiB", "--executors", "2"];
    every_strategy(&scratch, &options, &MODES[1..3], "400000", true);
}

fn three_nodes(memory: &str, modes: &[&[&str]], records: &str, spills: bool) {
    let scratch = Scratch::new();
    let folder = scratch.text("cluster");
    let options = ["--nodes", "3", "--port", "0", "--executors", "1", "--memory", memory, "--dir", &folder];
    let mut dev = command(&["dev"]);
    dev.args(options);
    let mut cluster = Running::start(dev);
    let url = cluster.ready_at("nats://", Duration::from_secs(90));
    every_strategy(&scratch, &["--cluster", &url], modes, records, spills);
    cluster.signal(rustix::process::Signal::INT);
    cluster.end(Duration::from_secs(90));
}

#[test]
fn three_nodes_with_plenty_of_memory() {
    three_nodes("256MiB", &[MODES[0], MODES[3]], RECORDS, false);
}

#[test]
fn three_nodes_with_little_memory() {
    // More than the stores of all three hold, 32 MiB each; one mode, since that is much to sort.
    three_nodes("64MiB", &MODES[3..], "1200000", true);
}
