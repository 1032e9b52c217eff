//! Runs exobus in simulated worlds: its cores, see [`exobus_actors::simulation`], or with `--actors` all of it on a paused clock, see
//! [`exobus_actors::simulation::paused`].
//!
//! ```text
//! exobus-sim --seed N                                 one seed, and what happened in it
//! exobus-sim --runs K [--from SEED] [--minutes M]     many; ends with the first finding, or after M minutes
//! ```

use std::io::Write as _;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use exobus_actors::simulation::{paused, run};
use exobus_store::{Clock as _, SystemClock};
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

const USAGE: &str = "exobus-sim [--actors] --seed N | --runs K [--from SEED] [--minutes M] [--keep-going]";

/// What is wanted.
#[derive(Default)]
struct Wanted {
    seed: Option<u64>,
    runs: Option<u64>,
    from: u64,
    minutes: Option<u64>,
    /// All findings are told, not the first one only.
    keeps_going: bool,
    /// The actors, not their cores only.
    actors: bool,
}

/// What came of a seed.
struct Told {
    finding: bool,
    summary: String,
    trace: Vec<String>,
}

impl Wanted {
    fn run(&self, seed: u64, traced: bool) -> Told {
        let (finding, took, work, trace) = if self.actors {
            let paused::Report { finding, took, finished, replayed, faults, .. } = paused::run(seed);
            (finding, took, format!("{finished} attempts, {replayed} replayed, {faults} faults"), Vec::new())
        } else {
            let report = run(seed, traced);
            (report.finding, report.took, format!("{} events, {:?}", report.events, report.work), report.trace)
        };
        let how = finding.as_deref().unwrap_or("all is well");
        let summary = format!("seed {seed}: {how} ({:.1} s of virtual time, {work})", took.as_secs_f64());
        Told { finding: finding.is_some(), summary, trace }
    }
}

fn wanted() -> Result<Wanted, String> {
    let (mut wanted, mut args) = (Wanted::default(), std::env::args().skip(1));
    while let Some(name) = args.next() {
        let mut number = || {
            let text = args.next().ok_or(format!("{name} needs a number"))?;
            text.parse().map_err(|_| format!("{name} {text}: not a number"))
        };
        match name.as_str() {
            "--seed" => wanted.seed = Some(number()?),
            "--runs" => wanted.runs = Some(number()?),
            "--from" => wanted.from = number()?,
            "--minutes" => wanted.minutes = Some(number()?),
            "--keep-going" => wanted.keeps_going = true,
            "--actors" => wanted.actors = true,
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    match wanted() {
        Ok(wanted @ Wanted { seed: Some(seed), .. }) => replay(&wanted, seed),
        Ok(Wanted { runs: None, minutes: None, .. }) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Ok(wanted) => many(&wanted),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The time of the runtime that the current thread is in.
struct VirtualTime(Instant);

impl FormatTime for VirtualTime {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        write!(to, "{:>10.6}", (Instant::now() - self.0).as_secs_f64())
    }
}

fn replay(wanted: &Wanted, seed: u64) -> ExitCode {
    if wanted.actors {
        // RUST_LOG says of what to hear more, or less.
        let filter = EnvFilter::builder().with_default_directive(LevelFilter::DEBUG.into()).from_env_lossy();
        let log = tracing_subscriber::fmt()
            .log_internal_errors(false)
            .with_env_filter(filter)
            .with_timer(VirtualTime(Instant::now()));
        log.with_ansi(false).init();
    }
    let told = wanted.run(seed, true);
    let mut out = std::io::stdout().lock();
    for line in &told.trace {
        // Who reads no further is no error.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    let _ = writeln!(out, "{}", told.summary);
    if told.finding { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Ends the process when a seed takes so long in real time: then something waits for what never comes, and time stands still.
const STANDS_STILL: Duration = Duration::from_secs(120);

/// Watches the seeds that begin.
fn watch(begun: &mpsc::Receiver<u64>) {
    let mut last = None;
    loop {
        match begun.recv_timeout(STANDS_STILL) {
            Ok(seed) => last = Some(seed),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(seed) = last {
                    eprintln!("seed {seed}: stands still for {STANDS_STILL:?} of real time");
                    std::process::exit(1);
                }
            }
        }
    }
}

fn many(wanted: &Wanted) -> ExitCode {
    let clock = SystemClock::new();
    let (begins, begun) = mpsc::channel();
    // Without it, one that stands still is for people to end.
    let _ = std::thread::Builder::new().name("exobus-sim-watch".into()).spawn(move || watch(&begun));
    let limit = wanted.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (mut done, mut findings) = (0, 0);
    for seed in (wanted.from..).take(wanted.runs.map_or(usize::MAX, |runs| runs as usize)) {
        if limit.is_some_and(|limit| clock.now() >= limit) {
            break;
        }
        done += 1;
        let _ = begins.send(seed);
        let finding = match catch_unwind(|| wanted.run(seed, false)) {
            Ok(Told { finding: false, .. }) => continue,
            Ok(told) => told.summary,
            Err(_) => format!("seed {seed}: panicked"),
        };
        findings += 1;
        println!("{finding}\n  exobus-sim{} --seed {seed}", if wanted.actors { " --actors" } else { "" });
        if !wanted.keeps_going {
            break;
        }
    }
    let minutes = clock.now().as_secs_f64() / 60.0;
    println!("{done} schedules in {minutes:.1} min, {:.0} a minute, {findings} findings", done as f64 / minutes);
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
