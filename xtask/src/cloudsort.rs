//! `cargo xtask cloudsort`: the CloudSort benchmark's three steps on object storage, measured here and scaled to 100 TB by a table of
//! prices.
//!
//! What is measured is how many requests a byte costs, which is the same for any size; times are those of this machine and its local
//! server, and are not scaled: of those of a cluster, only assumptions are made, which are printed.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::workspace::{Workspace, run_visibly};

/// What CloudSort sorts (sortbenchmark.org).
const WHOLE_BYTES: f64 = 100e12;
/// What Exoshuffle-CloudSort (Luan et al., 2022) had, and reached: 40 workers, 5 378 s.
const WORKERS: f64 = 40.0;
const PAPER_SECONDS: f64 = 5378.0;
const PAPER_DOLLARS: f64 = 97.0;
/// Bytes a second that a worker of that kind moves to and from the object store at a time: 25 Gbit/s up to, of which the paper saw about
/// half.
const WORKER_BYTES_PER_SECOND: f64 = 1.5e9;

/// See `docs/cloudsort/prices.toml`.
#[derive(Debug, Deserialize)]
struct Prices {
    date: String,
    worker_hour: f64,
    head_hour: f64,
    disk_gb_month: f64,
    disk_gb: f64,
    storage_gb_month: [f64; 2],
    reads_per_thousand: f64,
    writes_per_thousand: f64,
    month_hours: f64,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    name: &'static str,
    seconds: f64,
    reads: f64,
    writes: f64,
    deletes: f64,
    received: f64,
    sent: f64,
}

impl Step {
    fn of(name: &'static str, printed: &Value) -> Result<Self> {
        let usage = &printed["requests"];
        let number = |value: &Value, key: &str| value[key].as_f64().with_context(|| format!("{name} prints no {key}"));
        Ok(Self {
            name,
            seconds: number(printed, "seconds")?,
            reads: number(usage, "reads")?,
            writes: number(usage, "writes")?,
            deletes: number(usage, "deletes")?,
            received: number(usage, "bytes_received")?,
            sent: number(usage, "bytes_sent")?,
        })
    }
}

/// When tasks of a stage ran: its name, and seconds from the first beginning to the last end.
fn stages(timeline: &Value) -> Vec<(String, f64)> {
    let mut stages: Vec<(String, f64, f64)> = Vec::new();
    let events = timeline["traceEvents"].as_array().map(Vec::as_slice).unwrap_or_default();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (Some(name), Some(begin), Some(took)) =
            (event["name"].as_str(), event["ts"].as_f64(), event["dur"].as_f64())
        else {
            continue;
        };
        let name = name.split_whitespace().next().unwrap_or_default();
        if !name.starts_with("sort.") {
            continue;
        }
        match stages.iter_mut().find(|(known, ..)| known == name) {
            Some((_, first, last)) => (*first, *last) = (first.min(begin), last.max(begin + took)),
            None => stages.push((name.to_owned(), begin, begin + took)),
        }
    }
    stages.into_iter().map(|(name, first, last)| (name, (last - first) / 1e6)).collect()
}

/// A server that ends with this process.
struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    fn start(workspace: &Workspace, root: &Path) -> Result<Self> {
        let mut command = Command::new(workspace.target_dir.join("release/examples/s3_server"));
        let mut child =
            command.arg(root).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().context("start the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it has a stdout")?).read_line(&mut line)?;
        let endpoint = line.trim().strip_prefix("ready at ").context("the server has not begun")?.to_owned();
        Ok(Self { child, endpoint })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the three steps over so many GB in `folder`, and prints what they cost here and at 100 TB.
pub fn run(workspace: &Workspace, gigabytes: u64, folder: &Path, memory: &str) -> Result<()> {
    // As everything of the workspace is built, so that it is built once.
    let build = ["build", "--release", "--workspace", "--all-features", "--bins", "--example", "s3_server"];
    run_visibly(&mut workspace.cargo(&build))?;
    let binary = workspace.target_dir.join("release/exobus");
    fs::create_dir_all(folder.join("buckets/sort")).context("make a bucket")?;
    let server = Server::start(workspace, &folder.join("buckets"))?;
    let exobus = |arguments: &[&str]| -> Result<Value> {
        let mut command = Command::new(&binary);
        command.args(arguments).env("EXOBUS_OBJECTS__S3_ENDPOINT", &server.endpoint);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret").stderr(Stdio::inherit());
        let output = command.output().context("start exobus")?;
        ensure!(output.status.success(), "exobus {} has ended with {}", arguments.join(" "), output.status);
        serde_json::from_slice(&output.stdout).context("read what it prints")
    };
    let (records, files) = ((gigabytes * 10_000_000).to_string(), gigabytes.to_string());
    let (spill, timeline) = (folder.join("spill"), folder.join("timeline.json"));
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is text");
    let generated = exobus(&["generate", "--json", "--records", &records, "--files", &files, "s3://sort/in"])?;
    let (spill, at) = (path(&spill)?, path(&timeline)?);
    let sort = ["sort", "--json", "s3://sort/in", "--output", "s3://sort/out", "--memory", memory];
    let sorted = exobus(&[&sort[..], &["--spill", &spill, "--timeline", &at]].concat())?;
    let checked = exobus(&["validate", "--json", "s3://sort/out"])?;
    ensure!(checked["checksum"] == generated["checksum"], "the output is not the input");
    ensure!(checked["unordered_records"] == 0, "the output is not in order");
    let steps = [Step::of("generate", &generated)?, Step::of("sort", &sorted)?, Step::of("validate", &checked)?];
    let prices = fs::read_to_string(workspace.root.join("docs/cloudsort/prices.toml")).context("read the prices")?;
    let prices: Prices = toml::from_str(&prices).context("read the prices")?;
    let stages = stages(&serde_json::from_slice(&fs::read(&timeline)?).context("read the timeline")?);
    println!("{}", report(gigabytes as f64 * 1e9, &steps, &stages, &prices));
    Ok(())
}

/// The tables, as `docs/cloudsort.md` has them.
fn report(bytes: f64, steps: &[Step], stages: &[(String, f64)], prices: &Prices) -> String {
    let mut text = String::from(
        "| step | s | GB/s | reads | writes | deletes | GB read | GB written |\n|---|---|---|---|---|---|---|---|\n",
    );
    for step in steps {
        let Step { name, seconds, reads, writes, deletes, received, sent } = *step;
        let (rate, received, sent) = (bytes / 1e9 / seconds.max(1e-9), received / 1e9, sent / 1e9);
        let _ = writeln!(
            text,
            "| {name} | {seconds:.1} | {rate:.2} | {reads} | {writes} | {deletes} | {received:.2} | {sent:.2} |"
        );
    }
    let stages: Vec<_> = stages.iter().map(|(name, seconds)| format!("{name} {seconds:.1} s")).collect();
    let _ = writeln!(text, "\nStages of the sort, from the first task to the last: {}.\n", stages.join(", "));
    let scale = WHOLE_BYTES / bytes;
    let sort = steps.iter().find(|step| step.name == "sort").expect("it is one of the steps");
    // Input and output cross the network of the workers once each, one behind the other.
    let seconds = 2.0 * WHOLE_BYTES / (WORKERS * WORKER_BYTES_PER_SECOND);
    let hours = seconds / 3600.0;
    let gb = WHOLE_BYTES / (1u64 << 30) as f64;
    let month = prices.month_hours;
    let first = (50.0 * 1024.0_f64).min(gb);
    let stored_hour = (first * prices.storage_gb_month[0] + (gb - first) * prices.storage_gb_month[1]) / month;
    let lines = [
        ("workers, 40 for the time", WORKERS * prices.worker_hour * hours),
        ("head, 1 for the time", prices.head_hour * hours),
        ("boot disks, 41 for the time", (WORKERS + 1.0) * prices.disk_gb * prices.disk_gb_month / month * hours),
        // The input is there all the time, the output half of it on average.
        ("objects, input for the time", stored_hour * hours),
        ("objects, output for half the time", stored_hour * hours / 2.0),
        ("reads of the sort", sort.reads * scale / 1000.0 * prices.reads_per_thousand),
        ("writes of the sort", sort.writes * scale / 1000.0 * prices.writes_per_thousand),
    ];
    let _ = writeln!(text, "| 100 TB, prices of {} | $ |\n|---|---|", prices.date);
    for (name, dollars) in lines {
        let _ = writeln!(text, "| {name} | {dollars:.2} |");
    }
    let all: f64 = lines.iter().map(|(_, dollars)| dollars).sum();
    let _ = writeln!(text, "| **all** ({seconds:.0} s) | **{all:.2}** |");
    let _ = write!(
        text,
        "\nExoshuffle-CloudSort: {PAPER_SECONDS} s, ${PAPER_DOLLARS}. {:.1} million reads and {:.1} million writes here.",
        sort.reads * scale / 1e6,
        sort.writes * scale / 1e6
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_scale_with_bytes_and_time_does_not() {
        let prices = include_str!("../../docs/cloudsort/prices.toml");
        let prices: Prices = toml::from_str(prices).unwrap();
        let step = |name| Step {
            name,
            seconds: 50.0,
            reads: 1200.0,
            writes: 1300.0,
            deletes: 10.0,
            received: 1e10,
            sent: 1e10,
        };
        let text = report(1e10, &[step("generate"), step("sort")], &[("sort.map".into(), 20.0)], &prices);
        assert!(text.contains("| sort | 50.0 | 0.20 | 1200 | 1300 | 10 | 10.00 | 10.00 |"), "{text}");
        assert!(text.contains("12.0 million reads and 13.0 million writes"), "{text}");
        assert!(
            text.contains("| reads of the sort | 4.80 |") && text.contains("| writes of the sort | 65.00 |"),
            "{text}"
        );
        assert!(text.contains("(3333 s)"), "{text}");
    }

    #[test]
    fn stages_last_from_their_first_task_to_their_last() {
        let timeline = serde_json::json!({"traceEvents": [
            {"ph": "M", "name": "process_name"},
            {"ph": "X", "name": "sort.map", "ts": 1e6, "dur": 2e6},
            {"ph": "X", "name": "sort.map", "ts": 5e5, "dur": 1e6},
            {"ph": "X", "name": "waits", "ts": 0, "dur": 9e9},
        ]});
        assert_eq!(stages(&timeline), [("sort.map".to_owned(), 2.5)]);
    }
}
