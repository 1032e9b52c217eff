//! Nodes that die while a job runs: real processes, a real nats-server, SIGKILL. The job's output is what it would have been.

use crate::support;

use support::cluster::{Cluster, is_sorted};

/// Kills a node when so many tasks of a stage are done, some of them there.
/// So often it is tried to kill a node while work goes on: who watches a job hears of it a moment later, and it may be over by then.
const TRIES: usize = 10;

fn survives(strategy: &str, stage: &str, done: usize, on_loss: &str) {
    let heard = (0..TRIES).any(|_| survives_once(strategy, stage, done, on_loss));
    assert!(heard, "the job never heard of a node that died");
}

/// Whether the job heard of it.
fn survives_once(strategy: &str, stage: &str, done: usize, on_loss: &str) -> bool {
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
    let heard = events.of("Node").any(died);
    assert_eq!(summary["rows"], 1_000_000);
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    is_sorted(&cluster.scratch);
    cluster.end();
    heard
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
    survives("push", "sort.merge", 1, "go-on");
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
