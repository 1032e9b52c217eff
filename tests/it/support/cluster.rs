//! A cluster whose processes are killed while it sorts, and what its jobs say meanwhile.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Run, Running, Scratch, command, exobus, names, node_process};

/// A test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(100);

/// A cluster whose nodes may die.
pub struct Cluster {
    pub scratch: Scratch,
    pub dev: Running,
    pub url: String,
}

impl Cluster {
    /// With records to sort.
    pub fn start(on_loss: &str) -> Self {
        let cluster = Self::of(Scratch::new(), &["--memory", "96MiB", "--on-loss", on_loss]);
        exobus(&["generate", "--records", "1000000", "--files", "4", &cluster.scratch.text("in")]).expect(0, &[]);
        cluster
    }

    /// Three nodes of one executor each, with these options besides.
    pub fn of(scratch: Scratch, more: &[&str]) -> Self {
        let folder = scratch.text("cluster");
        let mut command = command(&["dev", "--nodes", "3", "--port", "0", "--executors", "1", "--dir", &folder]);
        command.args(more);
        let mut dev = Running::start(command);
        let url = dev.ready_at("nats://", PATIENCE);
        Self { scratch, dev, url }
    }

    /// Waits until a node that was killed is in the cluster again.
    pub fn wait_until_back(&mut self, node: &str) {
        let ready = self.dev.wait_for(&format!("ready {node} in cluster"), PATIENCE);
        assert!(ready.is_some(), "{:#?}", self.dev.seen);
    }

    pub fn kill(&self, node: &str) {
        let config = self.scratch.path(&format!("cluster/{node}.toml"));
        kill_process(node_process(&config), Signal::KILL).unwrap();
    }

    pub fn sort(&self, strategy: &str, happening: impl FnMut(&Events, Pid)) -> (Run, Events) {
        let (input, output) = (self.scratch.text("in"), self.scratch.text("out"));
        let args = ["sort", &input, "--output", &output, "--json", "--strategy", strategy, "--partitions", "12"];
        self.run(&args, happening)
    }

    /// Has the cluster run a job.
    pub fn run(&self, args: &[&str], happening: impl FnMut(&Events, Pid)) -> (Run, Events) {
        let mut command = command(args);
        command.args(["--cluster", &self.url]);
        watched(&self.scratch, command, happening)
    }

    /// Ends it; what was said.
    pub fn end(self) -> Vec<String> {
        self.dev.signal(Signal::INT);
        let (code, said) = self.dev.end(PATIENCE);
        assert_eq!(code, Some(0), "{said:#?}");
        said
    }
}

/// What has been heard of a job so far.
#[derive(Default)]
pub struct Events(pub Vec<serde_json::Value>);

impl Events {
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a serde_json::Value> {
        self.0.iter().filter_map(move |event| event["kind"].get(kind))
    }

    pub fn finished(&self, stage: &str) -> usize {
        self.of("TaskFinished").filter(|event| event["stage"] == stage).count()
    }

    pub fn finished_on(&self, node: &str, stage: &str) -> bool {
        let on = |event: &&serde_json::Value| event["node"] == node && event["kind"]["TaskFinished"]["stage"] == stage;
        self.0.iter().any(|event| on(&event))
    }

    /// The node that hosts the job.
    pub fn host(&self) -> Option<String> {
        let started = self.0.iter().rfind(|event| event["kind"].get("JobStarted").is_some())?;
        Some(started["node"].as_str().unwrap().to_owned())
    }

    /// In the last run each of the 12 tasks of this stage was done once, and some of the job were done before it began (not
    /// always of this stage: completions are logged in batches, and what was in none is made again).
    pub fn nothing_is_done_twice(&self, stage: &str) {
        let began = self.0.iter().rposition(|event| event["kind"].get("JobStarted").is_some()).unwrap();
        let run = Self(self.0[began..].to_vec());
        let resumed = run.of("TaskResumed").filter(|event| event["stage"] == stage).count();
        let (mut before, mut done) = (run.of("TaskResumed").count() as u64, (resumed + run.finished(stage)) as u64);
        // Who listens from later on is told how far it is by then.
        for joined in run.of("Joined") {
            let progress = &joined["progress"];
            before += progress["resumed_tasks"].as_u64().unwrap();
            let stages = progress["stages"].as_array().unwrap();
            let of_stage = stages.iter().find(|known| known["name"] == stage);
            done += of_stage.and_then(|stage| stage["tasks_done"].as_u64()).unwrap_or_default();
        }
        assert!(before > 0 && done == 12, "{before} before, {done} in all");
    }
}

/// Runs a command whose events go through a pipe, and calls `happening` for each of them with the process.
pub fn watched(scratch: &Scratch, mut command: Command, mut happening: impl FnMut(&Events, Pid)) -> (Run, Events) {
    let pipe = scratch.path("events");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    command.args(["--events", pipe.to_str().unwrap()]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let ended = std::thread::Builder::new().spawn(move || child.wait_with_output().unwrap()).unwrap();
    let (mut events, mut torn) = (Events::default(), Vec::new());
    for line in BufReader::new(fs::File::open(&pipe).unwrap()).lines() {
        let line = line.unwrap();
        match serde_json::from_str(&line) {
            Ok(event) => {
                events.0.push(event);
                happening(&events, pid);
            }
            Err(_) => torn.push(line),
        }
    }
    fs::remove_file(&pipe).unwrap();
    let output = ended.join().unwrap();
    // The last line of a process that was killed may be half of one.
    assert!(torn.is_empty() || torn.len() == 1 && output.status.code().is_none(), "{torn:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }, events)
}

/// The output is the input, sorted, in 12 files, and nothing else.
pub fn is_sorted(scratch: &Scratch) {
    let sorted = exobus(&["validate", "--json", &scratch.text("out")]);
    sorted.expect(0, &[]);
    let input = exobus(&["validate", "--json", &scratch.text("in")]).json();
    assert_eq!(sorted.json()["checksum"], input["checksum"]);
    let made = names(&scratch.path("out"));
    assert_eq!((made.len(), made.first().map(String::as_str)), (13, Some("_exobus.json")), "{made:?}");
}
