//! Rows about executor processes: one node whose every function runs in them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::ground::{Ground, Run, finish};

/// How long a job may take until one of its processes works.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a job is tried until a process that is hit runs a task.
const TRIES: u32 = 4;
/// What a job says that lost attempts.
const LOST: &str = "attempts failed and ran again";

/// What `/proc/PID/stat` says behind the name.
pub(super) fn stat(process: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Executor processes of nodes of this ground, and the processor time that each has taken.
pub(super) fn executors(ground: &Ground) -> BTreeMap<i32, u64> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let processes = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let executor = |process: i32| {
        let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).ok();
        let is_ours = read("cmdline")?.starts_with(b"exobus-executor\0") && ground.is_in_environment(&read("environ")?);
        is_ours.then(|| Some((process, stat(process)?.get(11)?.parse().ok()?)))?
    };
    processes.filter_map(executor).collect()
}

/// Runs the job, and does so to processes that work, `times` times. One may be between two tasks just then: a job to which no harm
/// was done is right, and proves nothing.
fn harmed(ground: &Ground, signal: Signal, times: u32, what: &str) -> Result<Outcome> {
    for _ in 0..TRIES {
        let run = harmed_once(ground, signal, times)?;
        if run.stderr.contains(LOST) {
            return ground.right(&run, what);
        }
        ground.is_right(&run)?;
    }
    bail!("no attempt was lost in {TRIES} runs")
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn harmed_once(ground: &Ground, signal: Signal, times: u32) -> Result<Run> {
    let mut command = ground.command(&ground.job_args());
    command.env("EXOBUS_NODE__EXECUTOR", "process-all");
    let hit = Cell::new(0);
    let run = std::thread::scope(|threads| {
        let running = threads.spawn(|| finish(command));
        let mut before = BTreeMap::new();
        for _ in 0..PATIENCE.as_millis() / LOOK_EVERY.as_millis() {
            if running.is_finished() || hit.get() >= times {
                break;
            }
            let now = executors(ground);
            let works = |process: &&i32| before.get(*process).is_some_and(|ticks| now[*process] > *ticks);
            if let Some(pid) = now.keys().find(works).and_then(|process| Pid::from_raw(*process)) {
                kill_process(pid, signal)?;
                hit.set(hit.get() + 1);
                // The next one is another.
                before.clear();
                std::thread::sleep(LOOK_EVERY * 5);
            } else {
                before = now;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        running.join().ok().context("the job's thread")?
    })?;
    ensure!(hit.get() == times, "{} of {times} processes were there to be harmed", hit.get());
    Ok(run)
}

pub(super) fn killed(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Signal::KILL, 3, "three executor processes killed: right")
}

pub(super) fn aborting(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Signal::ABORT, 2, "two executor processes aborted: right")
}

pub(super) fn stopped(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Signal::STOP, 1, "an executor process stopped: right")
}
