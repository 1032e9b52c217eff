//! Rows about what is not as it was: clocks that jump, inputs that change, metadata with flipped bits.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::Outcome;
use super::alone::Alone;
use super::cluster::Cluster;
use super::disk::copy;
use super::flips::{Random, all_files, files};
use super::ground::Ground;
use super::needs::faketime;
use super::power::still_there;

/// Hours by which the clocks of nodes are ahead when they start: that their logs show it proves that they are read.
const AHEAD: i32 = 2;

/// The hours of day in which a log has lines.
fn hours(log: &str) -> Vec<i32> {
    let hour = |line: &str| line.starts_with("20").then(|| line.get(11..13)?.parse().ok())?;
    let mut hours: Vec<i32> = log.lines().filter_map(hour).collect();
    hours.dedup();
    hours
}

/// The hour of day, so many hours later.
#[allow(clippy::disallowed_methods, reason = "compared with what logs of real processes say")]
fn hour_of_day(later: i32) -> Result<i32> {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok((i32::try_from(seconds / 3600 % 24)? + later) % 24)
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn clocks_jump(ground: &Ground) -> Result<Outcome> {
    let clocks = ground.path("clocks");
    fs::create_dir(&clocks)?;
    let set = |node: &str, hours: i32| {
        // As a whole, or a node reads half of it.
        let (new, clock) = (clocks.join("new"), clocks.join(node));
        fs::write(&new, format!("{hours:+}h"))?;
        fs::rename(new, clock)
    };
    for node in ["n1", "n2", "n3"] {
        set(node, AHEAD)?;
    }
    let environment = vec![
        ("LD_PRELOAD", faketime().context("libfaketime")?.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", clocks.join("{name}").display().to_string()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ];
    let ahead = hour_of_day(AHEAD)?;
    let cluster = Cluster::start_with(ground, environment)?;
    let clean = cluster.clean("simple")?;
    let jumps = Cell::new(0);
    let (run, events) = cluster.run("simple", |events| {
        // Each node another way, and again and again while the job runs.
        let due = [events.done("map") > 10, events.done("map") > 40, events.done("reduce") > 1];
        while jumps.get() < due.len() && due[jumps.get()] {
            for (node, hours) in [("n1", [1, -1, 0]), ("n2", [-1, 0, 1]), ("n3", [0, 1, -1])] {
                set(node, hours[jumps.get()])?;
            }
            jumps.set(jumps.get() + 1);
        }
        Ok(jumps.get() == due.len())
    })?;
    let outcome = cluster.right(&clean, &run, &events, "clocks of all nodes an hour to and fro, each another way")?;
    // Longer than any lease lasts.
    std::thread::sleep(Duration::from_secs(8));
    let (again, _) = cluster.run("simple", |events| Ok(events.done("map") > 0))?;
    ground.is_right(&again)?;
    ensure!(events.replayed() == 0 && events.runs() == 1, "a node was held dead");
    let (mut epochs, mut jumped) = (0, 0);
    for node in ["n1", "n2", "n3"] {
        let log = cluster.log_of(node)?;
        ensure!(hours(&log).first() == Some(&ahead), "the clock of {node} was never {AHEAD} hours ahead: {log}");
        jumped += usize::from(hours(&log).len() > 1);
        epochs += log.matches("is the scheduler").count();
    }
    // Most have nothing to say later.
    ensure!(jumped > 0, "no clock jumped");
    ensure!(epochs == 1, "there were {epochs} epochs");
    cluster.end()?;
    let _ = fs::remove_dir_all(clocks);
    Ok(outcome)
}

/// What a map reads the second time is not what it was: that is what a function does that is not deterministic.
pub(super) fn input_changes(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    // Who hosts the job is known then.
    cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let input = ground.path("in");
    let mut was = Vec::new();
    let sorted = cluster.run("simple", |events| {
        let now = events.are_done(100, "map", &victim) && events.done("reduce") > 2;
        if now {
            let records = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("part-");
            for entry in fs::read_dir(&input)?.flatten().filter(records) {
                was.push((entry.path(), fs::read(entry.path())?));
                spoil(&entry.path())?;
            }
            cluster.signal(&victim, Signal::KILL)?;
        }
        Ok(now)
    });
    for (path, bytes) in &was {
        fs::write(path, bytes)?;
    }
    let (run, _) = sorted?;
    run.refused(5, &["sort.map", "deterministic"])?;
    cluster.end()?;
    let _ = fs::remove_dir_all(ground.path("out"));
    Ok(Outcome { what: run.error().to_owned(), added: None, more_attempts: 0, bytes_redone: 0 })
}

/// Changes a byte of the payload of every hundredth record.
fn spoil(path: &Path) -> Result<()> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    for at in (50..file.metadata()?.len()).step_by(10_000) {
        file.write_all_at(b"~", at)?;
    }
    Ok(())
}

/// Damages of the log of a job.
const DAMAGES: u64 = 8;

/// Goes on with jobs whose log has flipped bits: right, or not at all.
pub(super) fn in_the_job_log(ground: &Ground) -> Result<Outcome> {
    let alone = Alone::new(ground)?;
    let args = ["--strategy", "simple"];
    let (killed, _) = alone.run(alone.job(&[], &args), |events, process| {
        let now = events.are_done(30, "reduce", "local");
        if now {
            rustix::process::kill_process(process, Signal::KILL)?;
        }
        Ok(now)
    })?;
    ensure!(killed.code.is_none(), "it ended before it was killed: {}", killed.stderr);
    let log = files(&alone.path("state"), "log").pop().context("the log of a job")?;
    let (image, output) = (fs::read(&log)?, ground.path("out"));
    let kept = alone.path("kept");
    copy(&output, &kept)?;
    let mut random = Random::new(38);
    let (mut rights, mut refusals, mut last) = (0, 0, String::new());
    for nth in 0..DAMAGES {
        let mut damaged = image.clone();
        // From one bit to many.
        for _ in 0..1_u64 << (2 * nth / 3 * 2) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
        }
        fs::write(&log, damaged)?;
        let _ = fs::remove_dir_all(&output);
        copy(&kept, &output)?;
        let (spill, trace) = (ground.text("spill"), ground.text("trace"));
        let resume = ["resume", "--json", "--memory", super::ground::MEMORY, "--spill", &spill, "--timeline", &trace];
        let run = super::ground::finish(alone.command(&[], &resume))?;
        run.is_orderly().with_context(|| format!("damage {nth}"))?;
        if run.code == Some(0) {
            ground.is_right(&run).with_context(|| format!("damage {nth}: a wrong result"))?;
            rights += 1;
        } else {
            let reason = run.stderr.lines().find(|line| line.contains("cannot be used")).unwrap_or(run.error());
            last = reason.to_owned();
            refusals += 1;
        }
    }
    let _ = fs::remove_dir_all(&output);
    let _ = fs::remove_dir_all(ground.path("spill"));
    ensure!(refusals > 0, "no damage was met");
    let what =
        format!("{DAMAGES} damaged logs: {rights} gone on with and right, {refusals} refused, the last with: {last}");
    Ok(Outcome { what, added: None, more_attempts: 0, bytes_redone: 0 })
}

/// Flips bits in all that tells a node what is in its spill files: their index, and the footers of half of them.
fn spoil_metadata(folder: &Path) -> Result<(usize, usize)> {
    let (mut random, mut spoiled) = (Random::new(3838), (0, 0));
    for path in all_files(&folder.join("index")) {
        let mut bytes = fs::read(&path)?;
        for _ in 0..bytes.len().div_ceil(64) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        spoiled.0 += usize::from(!bytes.is_empty());
        fs::write(&path, bytes)?;
    }
    for path in files(folder, "spill").iter().step_by(2) {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let at = file.metadata()?.len().checked_sub(FOOTER_BYTES).context("a footer")? + random.below(TRAILER_BYTES);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ (1 << random.below(8))], at)?;
        spoiled.1 += 1;
    }
    Ok(spoiled)
}

/// A footer ends with a page, which begins with what says where the rest is.
const FOOTER_BYTES: u64 = 4096;
const TRAILER_BYTES: u64 = 40;

/// A node stops in order, with files that others still need; what is on its disk is damaged; it starts again.
pub(super) fn in_the_metadata_of_a_node(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (victim, spoiled) = (cluster.bystander()?, Cell::new((0, 0)));
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(30, "reduce", &victim);
        if now {
            cluster.stop_node(&victim)?;
            spoiled.set(spoil_metadata(&ground.spill_of(&victim))?);
            cluster.start_node(&victim)?;
        }
        Ok(now)
    })?;
    let (log, (indexes, footers)) = (cluster.log_of(&victim)?, spoiled.get());
    let refused = log.matches("spill file without a valid footer is deleted").count();
    let rebuilt = log.matches("index of spill files rebuilt").count();
    ensure!(indexes > 0 && rebuilt > 0, "the index was damaged and not rebuilt: {log}");
    ensure!(footers > 0 && refused == footers, "{footers} footers were damaged, {refused} found: {log}");
    let what = format!(
        "{indexes} files of the index and {footers} footers damaged, the index rebuilt {rebuilt} times, {refused} files given up, \
         {} objects of the others taken up",
        still_there(&log)
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.end()?;
    Ok(outcome)
}
