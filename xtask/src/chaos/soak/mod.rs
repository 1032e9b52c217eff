//! `cargo xtask soak`: several clients run jobs on a cluster of four small nodes, while faults happen at random; then again,
//! for as long as wished.
//!
//! What it holds the binary to:
//! - each job that says it is done has the result of a reference that is no part of exobus, and its folder says that it is whole;
//! - each job that fails, and each client that is refused, says a text that stands in [`texts`] beside the fault that
//!   explains it, and that fault did happen then: any other text fails the soak;
//! - nobody is stuck: what does not end within [`PATIENCE`] fails the soak, with what `exobus jobs` says of it;
//! - seen from outside, each process with a memory budget keeps to it, in every sample ([`memory`]);
//! - no panic, and nothing is left at the end.

mod clients;
mod faults;
mod inputs;
mod memory;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::cluster::{Cluster, Setup};
use super::flips::Random;
use super::ground::{Ground, finish};
use crate::nats;
use crate::workspace::{Workspace, run_visibly};
use faults::{Fault, History};
use inputs::Inputs;

/// What a client that has not ended within this time is: stuck. Longer than any fault lasts, and the time to recover.
const PATIENCE: Duration = Duration::from_secs(240);
/// Clients at work at a time.
const CLIENTS: u64 = 3;
/// Memory budget of a node.
const MEMORY: &str = "96MiB";

/// How long, from which seed, and with which binary.
pub struct Options {
    pub minutes: u64,
    pub seed: u64,
    /// `None`: the release binary, built anew.
    pub binary: Option<PathBuf>,
}

/// What all threads of a soak share.
struct Soak<'a> {
    ground: &'a Ground,
    inputs: Inputs,
    url: String,
    begun: Instant,
    history: Mutex<History>,
    tally: Mutex<Tally>,
    over: AtomicBool,
    jobs: AtomicU64,
}

/// What has come of the jobs so far.
#[derive(Default)]
struct Tally {
    /// How often each kind of job ended in each way.
    ends: BTreeMap<(String, &'static str), u64>,
    /// The texts of failures, the faults that explain them, and how often.
    texts: BTreeMap<(&'static str, String), u64>,
    /// What fails the soak.
    wrong: Vec<String>,
}

impl Soak<'_> {
    /// Time since the soak began.
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn wrong(&self, what: String) {
        eprintln!("soak: {:.1} s: WRONG: {what}", self.now().as_secs_f64());
        let mut tally = self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tally.wrong.push(what);
        // What follows would be about the same.
        if tally.wrong.len() >= 5 {
            self.over.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs a soak; a report on stdout at the end.
///
/// # Errors
/// Something did not go as the module says; what is left is kept for a look at it.
#[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            run_visibly(&mut workspace.cargo(&["build", "--release", "--workspace", "--all-features", "--bins"]))?;
            workspace.target_dir.join("release/exobus")
        }
    };
    let server = nats::provide(workspace)?;
    let ground = Ground::new(binary, server.path, super::Workload::Sort)?;
    let inputs = Inputs::make(&ground)?;
    let setup = Setup { nodes: 4, memory: Some(MEMORY), ..Setup::default() };
    let cluster = Cluster::start_as(&ground, setup)?;
    let soak = Soak {
        ground: &ground,
        inputs,
        url: cluster.nats.url(),
        begun: Instant::now(),
        history: Mutex::default(),
        tally: Mutex::default(),
        over: AtomicBool::new(false),
        jobs: AtomicU64::new(0),
    };
    let ended = at_work(&soak, &cluster, options);
    let peaks = match ended {
        Ok(peaks) => peaks,
        Err(error) => {
            soak.wrong(format!("{error:#}"));
            memory::Peaks::default()
        }
    };
    report(&soak, &peaks, options);
    let wrong = soak.tally.lock().map_or(0, |tally| tally.wrong.len());
    if wrong > 0 {
        let kept = ground.path("cluster");
        eprintln!("soak: logs and files are kept below {}", kept.display());
        // Their folders are for a look at them; processes end with this one.
        cluster.abandon();
        std::mem::forget(ground);
        bail!("{wrong} things did not go as they must (seed {})", options.seed);
    }
    soak.nothing_runs()?;
    cluster.end()?;
    drop(soak);
    inputs::remove(&ground)?;
    ground.nothing_is_left()
}

/// Clients, faults and the look at memory, beside each other, until the time is over.
#[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
fn at_work(soak: &Soak<'_>, cluster: &Cluster<'_>, options: &Options) -> Result<memory::Peaks> {
    let until = Duration::from_secs(options.minutes * 60);
    let settled = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let sampler = threads.spawn(|| memory::sample(soak, &settled));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut random = Random::new((options.seed + 1) * 1_000_003 + number * 7919);
                threads.spawn(move || {
                    while !soak.is_over() {
                        clients::one(soak, &mut random);
                    }
                })
            })
            .collect();
        let mut random = Random::new(options.seed * 2_000_003 + 17);
        let mut harmed = Ok(());
        while harmed.is_ok() && soak.now() < until && !soak.is_over() {
            harmed = faults::one(soak, cluster, &mut random);
        }
        let mended = faults::mended(cluster);
        soak.over.store(true, Ordering::Relaxed);
        let panicked = clients.into_iter().filter_map(|client| client.join().err()).count();
        settled.store(true, Ordering::Relaxed);
        let peaks = sampler.join().map_err(|_| anyhow::anyhow!("the look at memory panicked"))?;
        harmed.context("inject a fault")?;
        mended.context("mend the cluster")?;
        ensure!(panicked == 0, "{panicked} clients of the soak panicked");
        Ok(peaks)
    })
}

impl Soak<'_> {
    /// Fails where the cluster still has jobs when all clients have ended.
    fn nothing_runs(&self) -> Result<()> {
        super::cluster::wait(|| {
            let jobs = finish(self.ground.command(&["jobs", "--json", "--cluster", &self.url]))?;
            Ok(jobs.code == Some(0) && jobs.jobs()? == 0)
        })
        .context("jobs are left that nobody waits for")
    }
}

fn report(soak: &Soak<'_>, peaks: &memory::Peaks, options: &Options) {
    let Ok(tally) = soak.tally.lock() else { return };
    let Ok(history) = soak.history.lock() else { return };
    let (minutes, seed, jobs) = (soak.now().as_secs_f64() / 60.0, options.seed, soak.jobs.load(Ordering::Relaxed));
    println!("soak: {minutes:.1} minutes, seed {seed}, {jobs} jobs, {} faults", history.count());
    println!("\n| job | ended | times |\n|---|---|---|");
    for ((kind, end), times) in &tally.ends {
        println!("| {kind} | {end} | {times} |");
    }
    println!("\n| fault | times |\n|---|---|");
    for (fault, times) in history.counts() {
        println!("| {} | {times} |", fault.name());
    }
    println!("\n| text | explained by | times |\n|---|---|---|");
    for ((text, faults), times) in &tally.texts {
        println!("| {text} | {faults} | {times} |");
    }
    println!("\n{peaks}");
    println!("\nwrong: {}", tally.wrong.len());
    for wrong in &tally.wrong {
        println!("- {wrong}");
    }
}

/// The faults around an end of a job: those that happened while it ran or shortly before.
fn around(soak: &Soak<'_>, from: Duration, until: Duration) -> Vec<Fault> {
    soak.history.lock().map_or_else(|_| Vec::new(), |history| history.between(from, until))
}
