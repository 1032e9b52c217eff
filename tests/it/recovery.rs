//! Nodes that die while a job runs: real processes, a real nats-server, SIGKILL. The job's output is what it would have been.

use crate::support;

use support::cluster::{Cluster, is_sorted};

/// Kills a node when so many tasks of a stage are done, some of them there.
fn survives(strategy: &str, stage: &str, done: usize, on_loss: &str) {
    let cluster = Cluster::start(on_loss);
    let mut killed = false;
    let (run, events) = cluster.sort(strategy, |events, _| {
        if !killed && events.finished(stage) >= done && events.finished_on("n3", stage) {
            cluster.kill("n3");
            killed = true;
        }
    });
    assert!(killed, "the node died while work went on");
    run.expect(0, &[]);
    let summary = run.json();
    let died =
        |event: &serde_json::Value| event["about"] == "n3" && (event["state"] == "Dead" || event["state"] == "Up");
    assert!(events.of("Node").any(died), "the job heard of it");
    assert_eq!(summary["rows"], 1_000_000);
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    is_sorted(&cluster.scratch);
    cluster.end();
}

#[test]
fn a_node_is_killed_among_the_maps() {
    survives("simple", "sort.map", 2, "go-on");
}

#[test]
fn a_node_is_killed_among_the_reduces() {
    survives("simple", "sort.reduce", 3, "go-on");
}

#[test]
fn a_node_is_killed_among_the_merges_of_push() {
    survives("push", "sort.merge", 2, "go-on");
}

#[test]
fn a_node_is_killed_among_the_merges_of_two_stage() {
    survives("two_stage", "sort.merge", 2, "go-on");
}

#[test]
fn a_node_is_killed_among_the_folds_of_streaming() {
    survives("streaming", "sort.merge", 14, "go-on");
}

#[test]
fn a_node_is_killed_and_comes_back() {
    survives("riffle", "sort.reduce", 2, "restart");
}
