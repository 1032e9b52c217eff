//! The memory that a user gives is what the process may use, seen from outside: anonymous and shared memory together.

use crate::support;

use std::cell::Cell;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus::bus::Role;
use exobus::config::{NodeConfig, Overrides};
use exobus::random::SystemRandom;
use exobus::shuffle::jobs::sort::SortParams;
use exobus::store::SystemClock;
use exobus::{Client, ClientOptions, JobError, JobSpec, cluster};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rustix::process::{Pid, Signal};
use support::{Run, Running, Scratch, command, exobus, node_process};

const MIB: u64 = 1 << 20;
/// What a node may have beside its memory in any sample.
const BESIDE_BYTES: u64 = 16 * MIB;
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// What a process has of anonymous and of shared memory; `None`: it has ended.
fn memory_of(pid: Pid) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?)
    };
    Some((field("RssAnon:")?, field("RssShmem:")?))
}

/// The most that each process has of both together, and of anonymous memory, while `work` goes on, and how many samples
/// there were.
#[allow(clippy::disallowed_methods, reason = "what real processes take is looked at in real time")]
fn watched<R>(pids: &[Pid], work: impl FnOnce() -> R) -> (R, Vec<(u64, u64)>, u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let (mut peaks, mut samples) = (vec![(0, 0); pids.len()], 0);
            while !over.load(Ordering::Relaxed) {
                for (pid, peak) in pids.iter().zip(&mut peaks) {
                    let (anonymous, shared) = memory_of(*pid).expect("nodes live on");
                    *peak = (peak.0.max(anonymous + shared), peak.1.max(anonymous));
                    samples += 1;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            (peaks, samples)
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        let (peaks, samples) = sampler.join().unwrap();
        (result, peaks, samples)
    })
}

#[test]
fn less_than_64_mib_is_refused_in_words_that_say_what_to_do() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "1000", &scratch.text("in")]).expect(0, &[]);
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let told = ["63 MiB", "set aside", "64 MiB or more", "--memory", "node.memory"];
    exobus(&["sort", &input, "--output", &output, "--memory", "63MiB"]).expect(2, &told);
    assert!(!scratch.path("out").exists());
    exobus(&["sort", &input, "--output", &output, "--memory", "64MiB"]).expect(0, &[]);
    std::fs::write(scratch.path("node.toml"), "[node]\nmemory = \"63MiB\"\n").unwrap();
    let looked = exobus(&["doctor", "--config", &scratch.text("node.toml")]);
    assert!(looked.stdout.contains("set aside") && looked.stdout.contains("64 MiB or more"), "{looked:#?}");
}

/// Two nodes with four executors each, and six jobs at once that have several times the data that both hold.
#[test]
fn nodes_under_several_jobs_keep_to_their_memory_in_every_sample() {
    const MEMORY: u64 = 96 * MIB;
    let scratch = Scratch::new();
    let folder = scratch.text("cluster");
    let mut dev = command(&["dev", "--nodes", "2", "--port", "0", "--memory", "96MiB", "--executors", "4"]);
    dev.args(["--dir", &folder]);
    let mut cluster = Running::start(dev);
    let url = cluster.ready_at("nats://", Duration::from_secs(90));
    let input = scratch.text("in");
    exobus(&["generate", "--records", "600000", "--files", "8", &input]).expect(0, &[]);
    let given = exobus(&["validate", "--json", &input]).json()["checksum"].clone();
    let pids = ["n1", "n2"].map(|node| node_process(&scratch.path(&format!("cluster/{node}.toml"))));

    let job = |nth: usize| -> Child {
        let output = scratch.text(&format!("out{nth}"));
        let strategy = ["simple", "two_stage", "push"][nth % 3];
        let mut sort = command(&["sort", &input, "--output", &output, "--cluster", &url, "--strategy", strategy]);
        let pipe = std::process::Stdio::piped;
        sort.args(["--partitions", "24"]).stdout(pipe()).stderr(pipe()).spawn().unwrap()
    };
    let (runs, peaks, samples) = watched(&pids, || {
        let jobs: Vec<Child> = (0..6).map(job).collect();
        let outputs = jobs.into_iter().map(|job| job.wait_with_output().unwrap());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let run = |output: std::process::Output| Run {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        outputs.map(run).collect::<Vec<_>>()
    });
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    for (node, (all, anonymous)) in ["n1", "n2"].iter().zip(&peaks) {
        eprintln!(
            "{node}: at most {:.1} MiB, {:.1} of them anonymous, in {samples} samples",
            mib(*all),
            mib(*anonymous)
        );
    }
    for (nth, run) in runs.iter().enumerate() {
        run.expect(0, &[]);
        let sorted = exobus(&["validate", "--json", &scratch.text(&format!("out{nth}"))]);
        sorted.expect(0, &[]);
        assert_eq!(sorted.json()["checksum"], given, "job {nth}");
    }
    assert!(samples > 200, "{samples}");
    for (all, _) in peaks {
        assert!(all > MEMORY / 2, "they worked: {:.1} MiB", mib(all));
        assert!(all <= MEMORY + BESIDE_BYTES, "{:.1} MiB", mib(all));
    }
    cluster.signal(Signal::INT);
    let (code, said) = cluster.end(Duration::from_secs(90));
    assert_eq!(code, Some(0), "{said:#?}");
}

/// Many more jobs than may run at once on a node with the least memory that there can be: they wait, and none is turned away.
#[test]
fn a_burst_of_jobs_keeps_to_the_memory_of_their_node() {
    const MEMORY: u64 = 64 * MIB;
    const JOBS: usize = 1500;
    /// Those that are looked at to their end; the others end with the cluster.
    const TO_THEIR_END: usize = 5;
    const PATIENCE: Duration = Duration::from_secs(90);
    let scratch = Scratch::new();
    let folder = scratch.text("cluster");
    let mut dev = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "64MiB", "--executors", "2"]);
    // This process has the token that stands in the cluster's files.
    dev.args(["--dir", &folder]).env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    let mut dev = Running::start(dev);
    dev.wait_for("ready at nats://", PATIENCE).unwrap_or_else(|| panic!("{:#?}", dev.seen));
    let input = scratch.text("in");
    exobus(&["generate", "--records", "200000", "--files", "4", &input]).expect(0, &[]);
    let config = scratch.path("cluster/n1.toml");
    let pid = node_process(&config);
    let config = NodeConfig::load(Some(&config), &Overrides::default()).unwrap();

    let submit = async || {
        let (bus, subjects) = cluster::connect(&config, Role::Submitter, "burst").await.unwrap();
        let (waited, turned_away) = (Cell::new(0), Cell::new(0));
        let job = async |nth: usize| {
            let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SystemRandom));
            let (bus, subjects) = (bus.clone(), subjects.clone());
            let options = ClientOptions { clock, random, deadline: PATIENCE, ..ClientOptions::new(bus, subjects) };
            let client = Client::connect(options).await.unwrap();
            let params = SortParams {
                inputs: vec![input.clone().into()],
                output: scratch.path(&format!("out{nth}")),
                partitions: Some(4),
                strategy: None,
                cuts: Default::default(),
                partial: false,
            };
            let spec = JobSpec::of(client.new_job(), "sort@1", &params).unwrap();
            let end = client.run_spec(spec, |_| {}, std::future::pending()).await.unwrap();
            match end.result {
                Ok(_) => waited.set(waited.get() + 1),
                Err(JobError::Runtime { reason }) if reason.contains("too many jobs wait on n1") => {
                    turned_away.set(turned_away.get() + 1);
                }
                Err(error) => panic!("{error}"),
            }
        };
        let mut jobs: FuturesUnordered<_> = (0..JOBS).map(job).collect();
        while waited.get() < TO_THEIR_END {
            jobs.next().await.expect("they do not all end at once");
        }
        turned_away.get()
    };
    let (turned_away, peaks, samples) = watched(&[pid], || cluster::runtime().unwrap().block_on(submit()));
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let (all, anonymous) = peaks[0];
    eprintln!(
        "at most {:.1} MiB, {:.1} of them anonymous, in {samples} samples; {turned_away} turned away",
        mib(all),
        mib(anonymous)
    );
    assert!(samples > 200, "{samples}");
    assert!(all > MEMORY / 4, "it worked: {:.1} MiB", mib(all));
    assert!(all <= MEMORY + BESIDE_BYTES, "{:.1} MiB", mib(all));
    assert_eq!(turned_away, 0, "those that the node cannot keep wait with the Scheduler");
    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}
