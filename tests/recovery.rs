//! Nodes that die while a job runs: real processes, a real nats-server, SIGKILL. The job's output is what it would have been.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    time::Duration,
};

use rustix::process::{Signal, kill_process};
use support::{Running, Scratch, command, exobus, names, node_process};

/// A test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster whose nodes may die.
struct Cluster {
    scratch: Scratch,
    dev: Running,
    url: String,
}

impl Cluster {
    fn start(nodes: &str, on_loss: &str) -> Self {
        let scratch = Scratch::new();
        let folder = scratch.text("cluster");
        let mut command = command(&["dev", "--nodes", nodes, "--port", "0", "--memory", "64MiB", "--executors", "1"]);
        command.args(["--dir", &folder, "--on-loss", on_loss]);
        let mut dev = Running::start(command);
        let ready = dev.wait_for("ready at nats://", PATIENCE).unwrap_or_else(|| panic!("{:#?}", dev.seen));
        let url = ready.split_whitespace().find(|word| word.starts_with("nats://")).unwrap().to_owned();
        exobus(&["generate", "--records", "1000000", "--files", "4", &scratch.text("in")]).expect(0, &[]);
        Self { scratch, dev, url }
    }

    /// Sorts, and calls `happening` for each event of the job. What the job said at its end, and the events.
    fn sort(&self, strategy: &str, mut happening: impl FnMut(&Events)) -> (serde_json::Value, Events) {
        let pipe = self.scratch.path("events");
        let (input, output) = (self.scratch.text("in"), self.scratch.text("out"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut command = command(&["sort", &input, "--output", &output, "--cluster", &self.url, "--json"]);
        command.args(["--strategy", strategy, "--partitions", "12", "--events", pipe.to_str().unwrap()]);
        let running = std::thread::Builder::new().spawn(move || support::finish(command)).unwrap();
        let mut events = Events::default();
        for line in BufReader::new(fs::File::open(&pipe).unwrap()).lines() {
            events.0.push(serde_json::from_str(&line.unwrap()).unwrap());
            happening(&events);
        }
        let run = running.join().unwrap();
        run.expect(0, &[]);
        fs::remove_file(&pipe).unwrap();
        (run.json(), events)
    }

    /// The output is the input, sorted, and nothing else.
    fn is_sorted(&self, files: usize) {
        let output = self.scratch.text("out");
        let sorted = exobus(&["validate", "--json", &output]);
        sorted.expect(0, &[]);
        let input = exobus(&["validate", "--json", &self.scratch.text("in")]).json();
        assert_eq!(sorted.json()["checksum"], input["checksum"]);
        assert_eq!(names(&self.scratch.path("out")).len(), files, "{:?}", names(&self.scratch.path("out")));
    }

    fn end(self) {
        self.dev.signal(Signal::INT);
        let (code, said) = self.dev.end(PATIENCE);
        assert_eq!(code, Some(0), "{said:#?}");
    }
}

/// What has been heard of a job so far.
#[derive(Default)]
struct Events(Vec<serde_json::Value>);

impl Events {
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a serde_json::Value> {
        self.0.iter().filter_map(move |event| event["kind"].get(kind))
    }

    fn finished(&self, stage: &str) -> usize {
        self.of("TaskFinished").filter(|event| event["stage"] == stage).count()
    }

    fn finished_on(&self, node: &str, stage: &str) -> bool {
        let on = |event: &&serde_json::Value| event["node"] == node && event["kind"]["TaskFinished"]["stage"] == stage;
        self.0.iter().any(|event| on(&event))
    }
}

/// Kills a node when so many tasks of a stage are done, some of them there.
fn survives(strategy: &str, stage: &str, done: usize, on_loss: &str) {
    let cluster = Cluster::start("3", on_loss);
    let mut killed = false;
    let (summary, events) = cluster.sort(strategy, |events| {
        if !killed && events.finished(stage) >= done && events.finished_on("n3", stage) {
            kill_process(node_process(&cluster.scratch.path("cluster/n3.toml")), Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert!(killed, "the node died while work went on");
    let died =
        |event: &serde_json::Value| event["about"] == "n3" && (event["state"] == "Dead" || event["state"] == "Up");
    assert!(events.of("Node").any(died), "the job heard of it");
    assert_eq!(summary["rows"], 1_000_000);
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    cluster.is_sorted(12);
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
