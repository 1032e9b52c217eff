//! Every mode of the generator, every strategy, plenty and little memory, one node and three: what comes out is in order and
//! is what went in. The three nodes need a nats-server.

mod support;

use std::time::Duration;

use exobus::shuffle::Strategy;
use support::{Running, Scratch, command, exobus};

/// Flags of the generator's four modes.
const MODES: [&[&str]; 4] = [&[], &["--ascii"], &["--skewed"], &["--ascii", "--skewed"]];
/// 20 MB: what is plenty holds it, what is little has to spill most of it.
const RECORDS: &str = "200000";

/// Sorts the input of each mode with each strategy and compares the output.
fn every_mode_and_strategy(scratch: &Scratch, options: &[&str], spills: bool) {
    for (number, mode) in MODES.iter().enumerate() {
        let input = scratch.text(&format!("in{number}"));
        exobus(&[&["generate", "--records", RECORDS, "--files", "3", &input][..], mode].concat()).expect(0, &[]);
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
    every_mode_and_strategy(&scratch, &["--spill", &spill, "--memory", "256MiB", "--executors", "2"], false);
}

#[test]
fn one_node_with_little_memory() {
    let scratch = Scratch::new();
    let spill = scratch.text("spill");
    every_mode_and_strategy(&scratch, &["--spill", &spill, "--memory", "24MiB", "--executors", "2"], true);
}

fn three_nodes(memory: &str, spills: bool) {
    let scratch = Scratch::new();
    let folder = scratch.text("cluster");
    let options = ["--nodes", "3", "--port", "0", "--executors", "1", "--memory", memory, "--dir", &folder];
    let mut dev = command(&["dev"]);
    dev.args(options);
    let mut cluster = Running::start(dev);
    let ready = cluster.wait_for("ready at nats://", Duration::from_secs(90));
    let ready = ready.unwrap_or_else(|| panic!("{:#?}", cluster.seen));
    let url = ready.split_whitespace().find(|word| word.starts_with("nats://")).unwrap().to_owned();
    every_mode_and_strategy(&scratch, &["--cluster", &url], spills);
    cluster.signal(rustix::process::Signal::INT);
    cluster.end(Duration::from_secs(90));
}

#[test]
fn three_nodes_with_plenty_of_memory() {
    three_nodes("256MiB", false);
}

#[test]
fn three_nodes_with_little_memory() {
    three_nodes("12MiB", true);
}
