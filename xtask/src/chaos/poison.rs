//! Rows about a job that must fail, and others that must not: a task under which executors die, and a message that is too
//! large.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::cluster::Cluster;
use super::executors::{executors, stat};
use super::faulty_disk::{FaultyDisk, Op};
use super::ground::{Ground, finish};
use super::messages::beside;

/// The file that only the poison task reads.
const POISON: &str = "part-poison";
/// Long enough to find who reads it.
const READ_TAKES: Duration = Duration::from_millis(400);
/// The poisoned job has failed within so much time after the other one is over.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const RECORD_BYTES: usize = 100;

/// Jobs that run after each other beside the poisoned one: together they take much longer than its attempts.
const BESIDE: usize = 16;

/// How many times as long they may take; the matrix wants 1.1, and the machine may have other things to do.
const SLOWER_AT_MOST: f64 = 1.5;

/// Runs them; the seconds that they took. `harm` is asked with the number of each until it says that harm was done.
fn sorts(cluster: &Cluster<'_>, harm: impl Fn(usize) -> Result<bool>) -> Result<f64> {
    let sort = |nth| {
        let (run, events) = cluster.run("simple", |_| harm(nth))?;
        ensure!(events.replayed() == 0, "{} tasks of another job were made again", events.replayed());
        Ok(cluster.ground().is_right(&run)?.seconds)
    };
    (0..BESIDE).map(sort).sum()
}

/// One task of a job reads a file of its own; whoever reads it is killed. Another job runs beside.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn killed_thrice(ground: &Ground) -> Result<Outcome> {
    let folder = ground.path("poison");
    let read = Arc::new(AtomicBool::new(false));
    let reading = Arc::clone(&read);
    let disk = FaultyDisk::mount(&folder, false, move |asked| {
        // The keys of a sample are read as well, by another task.
        if asked.op == Op::Read && asked.bytes > RECORD_BYTES * 10 {
            reading.store(true, Ordering::Relaxed);
            std::thread::sleep(READ_TAKES);
            reading.store(false, Ordering::Relaxed);
        }
        None
    })?;
    let file = folder.join(POISON);
    let records = fs::read(ground.path("in/part-00000"))?;
    fs::write(&file, &records[..RECORD_BYTES * 1000])?;
    let cluster = Cluster::start_with(ground, vec![("EXOBUS_NODE__EXECUTOR", "process-all".to_owned())])?;
    cluster.clean("simple")?;
    let alone = sorts(&cluster, |_| Ok(true))?;
    let poison = folder.display().to_string();
    let (output, said) = (ground.path("poisoned"), ground.path("poisoned.err"));
    let mut poisoned = cluster.sort_command(&[&poison], &output.display().to_string(), "simple");
    let mut poisoned = poisoned.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&said)?).spawn()?;
    let (killed, nodes) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let holds = |process: i32| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|path| path == file)
    };
    let kill = |over: &AtomicBool| {
        while !over.load(Ordering::Relaxed) {
            if read.load(Ordering::Relaxed)
                && let Some(process) = executors(ground).into_keys().find(|process| holds(*process))
                && let Some(node) = stat(process).and_then(|stat| stat.get(1).cloned())
                && let Some(pid) = Pid::from_raw(process)
            {
                kill_process(pid, Signal::KILL)?;
                killed.fetch_add(1, Ordering::Relaxed);
                nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
                while read.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    };
    // The task is tried again where nothing runs beside it: that may be when the other job is over.
    let both = beside(kill, || {
        let other = sorts(&cluster, |nth| Ok(nth > 0 || killed.load(Ordering::Relaxed) > 0));
        if other.is_err() {
            let _ = poisoned.kill();
        }
        for _ in 0..PATIENCE.as_millis() / LOOK_EVERY.as_millis() {
            if let Some(status) = poisoned.try_wait()? {
                return Ok((other, status.code()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        poisoned.kill()?;
        Ok((other, poisoned.wait()?.code()))
    });
    let (other, code) = both?;
    let text = fs::read_to_string(&said)?;
    let _ = fs::remove_file(&said);
    let _ = fs::remove_dir_all(&output);
    let beside = other.with_context(|| format!("the jobs beside: {text}"))?;
    let (killed, nodes) = (killed.into_inner(), nodes.into_inner().unwrap_or_else(PoisonError::into_inner).len());
    ensure!(code == Some(5), "the poisoned job ended with {code:?}: {text}");
    ensure!(killed == 3 && nodes >= 2, "{killed} executors were killed, on {nodes} nodes: {text}");
    for word in ["sort.map", POISON, "parameters", "killed by signal 9 (SIGKILL)"] {
        ensure!(text.contains(word), "it does not say {word:?}: {text}");
    }
    ensure!(beside < alone * SLOWER_AT_MOST, "the others took {beside:.1} s, and {alone:.1} s without");
    let what = format!(
        "three executors killed under one task on {nodes} nodes, its job fails with name and input; {BESIDE} others after each \
         other took {:.2} of their time without: right",
        beside / alone
    );
    let outcome = Outcome { what, added: Some(beside - alone), more_attempts: 0, bytes_redone: 0 };
    cluster.end()?;
    disk.end()?;
    Ok(outcome)
}

/// Inputs that are named one by one: in more bytes than nodes say to each other in a message, so that the plan goes in pieces, and in more
/// than a request may have.
const INPUTS: usize = 3000;
const INPUTS_TOO_MANY: usize = 9000;

pub(super) fn oversized(ground: &Ground) -> Result<Outcome> {
    let folder = ground.path("many");
    fs::create_dir(&folder)?;
    let (first, records) = (folder.join("first"), fs::read(ground.path("in/part-00000"))?);
    fs::write(&first, &records[..RECORD_BYTES])?;
    let mut inputs = Vec::new();
    for nth in 0..INPUTS_TOO_MANY {
        let path = folder.join(format!("{nth:0100}"));
        fs::hard_link(&first, &path)?;
        inputs.push(path.display().to_string());
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let bytes: usize = inputs[..INPUTS].iter().map(|input| input.len()).sum();
    ensure!(bytes > 256 << 10, "{bytes} bytes fit");
    let cluster = Cluster::start(ground)?;
    let sort = |inputs: &[&str]| finish(cluster.sort_command(inputs, &ground.text("out"), "simple"));
    let many = sort(&inputs[..INPUTS])?;
    many.is_orderly()?;
    ensure!(many.code == Some(0), "code {:?}: {}", many.code, many.stderr);
    ensure!(many.json("rows")?.as_u64() == Some(INPUTS as u64), "{} rows", many.json("rows")?);
    fs::remove_dir_all(ground.path("out"))?;
    let run = sort(&inputs)?;
    fs::remove_dir_all(&folder)?;
    let _ = fs::remove_dir_all(ground.path("out"));
    run.is_orderly()?;
    ensure!(run.code == Some(2) && run.stderr.contains("1048576"), "code {:?}: {}", run.code, run.stderr);
    // Nobody has noticed.
    let (again, _) = cluster.run("simple", |events| Ok(events.done("map") > 0))?;
    ground.is_right(&again)?;
    cluster.end()?;
    let what = format!("{INPUTS} inputs, named in {bytes} bytes: right; {INPUTS_TOO_MANY}: {}", run.error());
    Ok(Outcome { what, added: None, more_attempts: 0, bytes_redone: 0 })
}
