//! Rows about memory: processes that the kernel kills for want of it, and machines that have less than was configured.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;

use super::Outcome;
use super::alone::Alone;
use super::cluster::{Cluster, NODES, Setup};
use super::executors::executors;
use super::ground::{Ground, Run, finish};
use super::messages::beside;

/// Where the memory control groups are, in the first version of control groups.
const GROUPS: &str = "/sys/fs/cgroup/memory";
/// What the nodes of a cluster are told to use, what they may have beside it, and what their control groups have.
const MEMORY_BYTES: u64 = 96 << 20;
const BESIDE_BYTES: u64 = 16 << 20;
const GROUP_BYTES: u64 = MEMORY_BYTES + (32 << 20);
/// Sorts at once, each of more than all nodes have.
const JOBS: usize = 6;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A memory control group, removed when it is dropped.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(GROUPS).join(format!("exobus-chaos-{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let group = Self(path);
        fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string())?;
        Ok(group)
    }

    fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// How often the kernel has killed in it.
    fn kills(&self) -> Result<u64> {
        let control = fs::read_to_string(self.0.join("memory.oom_control"))?;
        let kills = control.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.context("a count of kills")?.parse().context("a count of kills")
    }

    /// A shell that puts itself into the group and becomes the program that follows.
    fn wrapper(&self) -> Vec<String> {
        let script = format!("echo $$ > {} && exec \"$@\"", self.processes().display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// Sorts with executor processes. Those that `works` chooses by the processor time they took are given no more memory,
/// until the kernel has killed `kills` of them; `for_good`: after that, too.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn starved(ground: &Ground, kills: u64, works: fn(u64) -> bool, at_once: &str, for_good: bool) -> Result<Run> {
    // One page: the next that a process needs is refused.
    let group = Group::new(4096)?;
    let alone = Alone::new(ground)?;
    let mut command = alone.job(&[], &["--strategy", "simple", "--executors", at_once]);
    command.env("EXOBUS_NODE__EXECUTOR", "process-all");
    let begun = AtomicBool::new(false);
    let starve = |over: &AtomicBool| {
        let mut hit = BTreeSet::new();
        while !over.load(Ordering::Relaxed) {
            for (process, ticks) in executors(ground) {
                let more = for_good || group.kills()? < kills;
                if begun.load(Ordering::Relaxed) && more && works(ticks) && !hit.contains(&process) {
                    // It may have ended.
                    if fs::write(group.processes(), process.to_string()).is_ok() {
                        hit.insert(process);
                    }
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    };
    let (run, _) = beside(starve, || {
        alone.run(command, |events, _| {
            begun.store(events.done("map") > 2, Ordering::Relaxed);
            Ok(group.kills()? >= kills)
        })
    })?;
    Ok(run)
}

pub(super) fn executor_starved(ground: &Ground) -> Result<Outcome> {
    let run = starved(ground, 2, |ticks| ticks > 0, "2", false)?;
    let said = run.stderr.matches("executor process lost").count();
    ensure!(said >= 2 && run.stderr.contains("died=out of memory: killed by the kernel"), "{}", run.stderr);
    ground.right(
        &run,
        &format!("{said} executor processes killed by the kernel for want of memory, and called so: right"),
    )
}

pub(super) fn executors_starved(ground: &Ground) -> Result<Outcome> {
    let run = starved(ground, 3, |_| true, "1", true)?;
    run.refused(5, &["out of memory: killed by the kernel", "(sort.map, attempt 3 on "])?;
    let _ = fs::remove_dir_all(ground.path("out"));
    Ok(Outcome { what: run.error().to_owned(), added: None, more_attempts: 0, bytes_redone: 0 })
}

/// A sort in a control group with less memory than it is told to use.
pub(super) fn group_below_the_budget(ground: &Ground) -> Result<Outcome> {
    let group = Group::new(48 << 20)?;
    let wrapper = group.wrapper();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let run = finish(ground.within(&wrapper, &ground.job_args()))?;
    ensure!(group.kills()? == 0, "the kernel killed it: {}", run.stderr);
    run.refused(
        2,
        &["100663296 bytes of memory need a control group of 134217728", "that of this process has 50331648"],
    )?;
    Ok(Outcome { what: run.error().to_owned(), added: None, more_attempts: 0, bytes_redone: 0 })
}

/// A sort in a control group with just what it is told to use and what the kernel counts beside.
pub(super) fn group_of_the_budget(ground: &Ground) -> Result<Outcome> {
    let group = Group::new((96 + 32) << 20)?;
    let wrapper = group.wrapper();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let run = finish(ground.within(&wrapper, &ground.job_args()))?;
    ensure!(group.kills()? == 0, "the kernel killed it: {}", run.stderr);
    ground.right(&run, "a group of 128 MiB for 96 MiB of memory: right")
}

/// The same, told nothing.
pub(super) fn group_without_a_budget(ground: &Ground) -> Result<Outcome> {
    let group = Group::new(160 << 20)?;
    let wrapper = group.wrapper();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let args = ground.job_args();
    let at = args.iter().position(|arg| arg == "--memory").context("a sort with --memory")?;
    let args: Vec<_> = args[..at].iter().chain(&args[at + 2..]).collect();
    let run = finish(ground.within(&wrapper, &args))?;
    ensure!(group.kills()? == 0, "the kernel killed it: {}", run.stderr);
    ground.right(&run, "160 MiB and no memory told: it took its share: right")
}

/// Anonymous and shared memory of a process together.
fn memory_of(process: Pid) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a field of the status")?;
        Ok(1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>()?)
    };
    Ok(field("RssAnon:")? + field("RssShmem:")?)
}

/// Nodes with four executors each, in control groups with little more than they are told to use, under several jobs at once.
#[allow(clippy::disallowed_methods, reason = "what real processes take is looked at in real time")]
pub(super) fn nodes_in_groups(ground: &Ground) -> Result<Outcome> {
    let groups = NODES.iter().map(|_| Group::new(GROUP_BYTES)).collect::<Result<Vec<_>>>()?;
    let wrappers = groups.iter().map(Group::wrapper).collect();
    let environment = vec![("EXOBUS_NODE__EXECUTORS", "4".to_owned())];
    let cluster = Cluster::start_as(ground, Setup { wrappers, environment, ..Setup::default() })?;
    let nodes = NODES.iter().map(|name| cluster.process(name)).collect::<Result<Vec<_>>>()?;
    let (samples, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let look = |over: &AtomicBool| {
        while !over.load(Ordering::Relaxed) {
            for node in &nodes {
                most.fetch_max(memory_of(*node)?, Ordering::Relaxed);
                samples.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    };
    let input = ground.text("in");
    let runs = beside(look, || {
        let sort = |nth: usize| {
            let strategy = ["simple", "two_stage", "push"][nth % 3];
            let mut command = cluster.sort_command(&[&input], &ground.text(&format!("out-{nth}")), strategy);
            Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
        };
        let jobs = (0..JOBS).map(sort).collect::<Result<Vec<_>>>()?;
        jobs.into_iter().map(|job| Ok(job.wait_with_output()?)).collect::<Result<Vec<_>>>()
    })?;
    for group in &groups {
        ensure!(group.kills()? == 0, "the kernel killed a node");
    }
    for (nth, run) in runs.iter().enumerate() {
        ensure!(run.status.success(), "job {nth}: {}", String::from_utf8_lossy(&run.stderr));
        ground.has_made_right(&format!("out-{nth}"))?;
    }
    cluster.end()?;
    let (samples, most) = (samples.into_inner(), most.into_inner());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    ensure!(most > MEMORY_BYTES / 2, "the nodes had little to do: {:.1} MiB", mib(most));
    ensure!(most <= MEMORY_BYTES + BESIDE_BYTES, "a node of 96 MiB had {:.1} MiB", mib(most));
    let what = format!(
        "three nodes of 96 MiB in groups of 128 MiB under {JOBS} sorts at once: right, none killed, at most {:.1} MiB in \
         {samples} samples",
        mib(most)
    );
    Ok(Outcome { what, added: Some(0.0), more_attempts: 0, bytes_redone: 0 })
}
