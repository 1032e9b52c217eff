//! Rows about power cuts: what is on a disk below the file system, while processes believe that more is.
//!
//! The disk is a file with a file system, mounted. At the cut the process is stopped, the file is copied as it is (what the
//! kernel has not written is not in it), the process is killed, and the copy takes the disk's place.

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, kill_process};

use super::Outcome;
use super::alone::Alone;
use super::cluster::{Cluster, Events};
use super::disk::{Disk, copy};
use super::ground::Ground;

/// Room for what a job writes, MiB.
const DISK_MIB: u64 = 800;

/// Runs the job alone, with the job's log and the output on a disk whose power is cut when so much of a stage is done; then goes on.
fn cut(ground: &Ground, stage: &str, percent: u64) -> Result<Outcome> {
    let alone = Alone::new(ground)?;
    let disk = Disk::in_a_file(ground.path("disk.img"), ground.path("disk"), DISK_MIB)?;
    let (state, output) = (disk.path().join("state"), disk.path().join("out"));
    let snapshot = OnceCell::new();
    let on_disk = |mut command: Command| {
        command.env("XDG_STATE_HOME", &state);
        command
    };
    let args = ground.job_args().into_iter().map(|arg| match arg {
        arg if arg == ground.text("out") => output.display().to_string(),
        arg => arg,
    });
    let args: Vec<_> = args.chain(["--strategy", "simple"].map(str::to_owned)).collect();
    let (cut, before) = alone.run(on_disk(alone.command(&[], &args)), |events, process| {
        let now = events.are_done(percent, stage, "local");
        if now {
            kill_process(process, Signal::STOP)?;
            let _ = snapshot.set(disk.snapshot()?);
            kill_process(process, Signal::KILL)?;
        }
        Ok(now)
    })?;
    ensure!(cut.code.is_none(), "it ended before the cut: {}", cut.stderr);
    disk.go_back_to(snapshot.get().context("the cut")?)?;
    let resume = [
        "resume",
        "--json",
        "--memory",
        super::ground::MEMORY,
        "--spill",
        &ground.text("spill"),
        "--timeline",
        &ground.text("trace"),
    ];
    let (resumed, after) = alone.run(on_disk(alone.command(&[], &resume)), |_, _| Ok(true))?;
    ensure!(resumed.code == Some(0), "code {:?}: {}", resumed.code, resumed.stderr);
    // Where the checks look for it.
    copy(&output, &ground.path("out"))?;
    let twice = made_again(&before, &after);
    let what = format!(
        "at {percent} % of {stage}: gone on; of {} partitions that were done {twice} made again: right",
        before.done("reduce")
    );
    let outcome = ground.right(&resumed, &what);
    drop(disk);
    // What it had spilled is removed by the next job.
    let _ = fs::remove_dir_all(ground.path("spill"));
    outcome
}

/// Partitions that were made before and after.
fn made_again(before: &Events, after: &Events) -> usize {
    before.tasks_finished("reduce").intersection(&after.tasks_finished("reduce")).count()
}

pub(super) fn cut_among_maps(ground: &Ground) -> Result<Outcome> {
    cut(ground, "map", 50)
}

pub(super) fn cut_among_reduces(ground: &Ground) -> Result<Outcome> {
    cut(ground, "reduce", 50)
}

/// What a node has spilled is on a disk of its own, whose power is cut when so much of the reduces is done; then the node starts
/// again. `stop` ends its process, and says what the disk had then; `closed`: whether it had closed its files.
fn of_a_node(
    ground: &Ground,
    stop: impl Fn(&Cluster<'_>, &Disk) -> Result<PathBuf>,
    (what, closed): (&str, bool),
) -> Result<Outcome> {
    fs::create_dir_all(ground.path("spill"))?;
    let disk = Disk::in_a_file(ground.path("disk.img"), ground.spill_of(VICTIM), DISK_MIB)?;
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(30, "reduce", VICTIM);
        if now {
            let snapshot = stop(&cluster, &disk)?;
            disk.go_back_to(&snapshot)?;
            cluster.start_node(VICTIM)?;
        }
        Ok(now)
    })?;
    let there = still_there(&cluster.log_of(VICTIM)?);
    ensure!(!closed || there > 0, "nothing of what it had closed is on the disk");
    let outcome = cluster.right(&clean, &run, &events, &format!("{what}, {there} objects were still there"))?;
    cluster.end()?;
    drop(disk);
    fs::remove_dir_all(ground.path("spill"))?;
    Ok(outcome)
}

/// How many objects a node has found on its disk.
pub(super) fn still_there(log: &str) -> usize {
    let line = log.lines().find(|line| line.contains("objects of an earlier process are still on disk"));
    let count = line.and_then(|line| line.split("objects=").nth(1)?.split_whitespace().next()?.parse().ok());
    count.unwrap_or(0)
}

/// Hosts no job, and is not the Scheduler.
const VICTIM: &str = "n2";

pub(super) fn cut_of_a_node(ground: &Ground) -> Result<Outcome> {
    let stop = |cluster: &Cluster<'_>, disk: &Disk| {
        cluster.signal(VICTIM, Signal::STOP)?;
        let snapshot = disk.snapshot()?;
        cluster.signal(VICTIM, Signal::KILL)?;
        Ok(snapshot)
    };
    of_a_node(ground, stop, ("while it worked", false))
}

/// What it closed is on the disk.
pub(super) fn cut_after_the_end(ground: &Ground) -> Result<Outcome> {
    let stop = |cluster: &Cluster<'_>, disk: &Disk| {
        cluster.stop_node(VICTIM)?;
        disk.snapshot()
    };
    of_a_node(ground, stop, ("after it had stopped in order", true))
}
