//! Runs the cores of exobus in simulated worlds, see [`exobus_actors::simulation`].
//!
//! ```text
//! exobus-sim --seed N                                 one seed, and what happened in it
//! exobus-sim --runs K [--from SEED] [--minutes M]     many; ends with the first finding, or after M minutes
//! ```

use std::io::Write as _;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Duration;

use exobus_actors::simulation::{Report, run};
use exobus_store::{Clock as _, SystemClock};

const USAGE: &str = "exobus-sim --seed N | --runs K [--from SEED] [--minutes M] [--keep-going]";

/// What is wanted.
#[derive(Default)]
struct Wanted {
    seed: Option<u64>,
    runs: Option<u64>,
    from: u64,
    minutes: Option<u64>,
    /// All findings are told, not the first one only.
    keeps_going: bool,
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
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    match wanted() {
        Ok(Wanted { seed: Some(seed), .. }) => replay(seed),
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

fn replay(seed: u64) -> ExitCode {
    let report = run(seed, true);
    let mut out = std::io::stdout().lock();
    for line in &report.trace {
        // Who reads no further is no error.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    let _ = writeln!(out, "{}", summary(&report));
    if report.finding.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn summary(report: &Report) -> String {
    let Report { seed, finding, work, took, events, .. } = report;
    let how = finding.as_deref().unwrap_or("all is well");
    format!("seed {seed}: {how} ({:.1} s of virtual time, {events} events, {work:?})", took.as_secs_f64())
}

fn many(wanted: &Wanted) -> ExitCode {
    let clock = SystemClock::new();
    let limit = wanted.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (mut done, mut findings) = (0, 0);
    for seed in (wanted.from..).take(wanted.runs.map_or(usize::MAX, |runs| runs as usize)) {
        if limit.is_some_and(|limit| clock.now() >= limit) {
            break;
        }
        done += 1;
        let finding = match catch_unwind(|| run(seed, false)) {
            Ok(Report { finding: None, .. }) => continue,
            Ok(report) => summary(&report),
            Err(_) => format!("seed {seed}: panicked"),
        };
        findings += 1;
        println!("{finding}\n  exobus-sim --seed {seed}");
        if !wanted.keeps_going {
            break;
        }
    }
    let minutes = clock.now().as_secs_f64() / 60.0;
    println!("{done} schedules in {minutes:.1} min, {:.0} a minute, {findings} findings", done as f64 / minutes);
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
