//! Rows about nodes and the bus: who dies, freezes, or cannot be heard.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::Outcome;
use super::cluster::Cluster;
use super::ground::Ground;

/// A node is killed when so many hundredths of a stage are done, and is not started again.
fn killed<'a>(
    ground: &'a Ground,
    whom: fn(&Cluster<'a>) -> Result<String>,
    (strategy, stage, percent): (&str, &str, u64),
) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean(strategy)?;
    let victim = whom(&cluster)?;
    let (run, events) = cluster.run_and_signal((strategy, stage, percent), &victim, Signal::KILL)?;
    let mut what = format!("{strategy}, at {percent} % of {stage}");
    if events.runs() > 1 {
        what += &format!(", begun {} times", events.runs());
    }
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn killed_among_maps(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::bystander, ("simple", "map", 10))
}

pub(super) fn killed_halfway(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::bystander, ("simple", "map", 90))
}

pub(super) fn killed_among_reduces(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::bystander, ("simple", "reduce", 50))
}

pub(super) fn killed_among_merges(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::bystander, ("two_stage", "merge", 50))
}

pub(super) fn killed_among_pushes(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::bystander, ("push", "merge", 50))
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn frozen(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let frozen: Cell<Option<Instant>> = Cell::new(None);
    let (run, events) = cluster.run("simple", |events| {
        if frozen.get().is_none() && events.are_done(30, "map", &victim) {
            cluster.signal(&victim, Signal::STOP)?;
            frozen.set(Some(Instant::now()));
        }
        Ok(frozen.get().is_some())
    })?;
    // It returns when the job may be over: what it says then must change nothing.
    let left = frozen.get().map_or(Duration::ZERO, |at| Duration::from_secs(10).saturating_sub(at.elapsed()));
    std::thread::sleep(left);
    cluster.signal(&victim, Signal::CONT)?;
    let outcome = cluster.right(&clean, &run, &events, "a node frozen for 10 s")?;
    // And it works again.
    let (again, _) = cluster.run("simple", |events| Ok(events.are_done(10, "map", &victim)))?;
    ground.is_right(&again)?;
    cluster.end()?;
    Ok(outcome)
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn slow(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let times = Cell::new(0);
    let (run, events) = cluster.run("simple", |events| {
        if !events.are_done(10, "map", &victim) {
            return Ok(false);
        }
        // A tenth of the processor, as long as the job runs.
        cluster.signal(&victim, Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(90));
        cluster.signal(&victim, Signal::CONT)?;
        times.set(times.get() + 1);
        Ok(times.get() >= 10)
    })?;
    let outcome = cluster.right(&clean, &run, &events, "a node with a tenth of the processor for a second")?;
    cluster.end()?;
    Ok(outcome)
}

/// The nats-server is away for a while.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn bus_away(
    ground: &Ground,
    what: &str,
    harm: impl Fn(&Cluster<'_>) -> Result<()>,
    mend: impl Fn(&Cluster<'_>) -> Result<()>,
    seconds: u64,
) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let (run, events) = cluster.run("simple", |events| {
        if !events.are_done(30, "map", &victim) {
            return Ok(false);
        }
        harm(&cluster)?;
        std::thread::sleep(Duration::from_secs(seconds));
        mend(&cluster)?;
        Ok(true)
    })?;
    let outcome = cluster.right(&clean, &run, &events, what)?;
    ensure!(events.replayed() == 0, "the silence of all was taken for the death of some");
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn bus_restarted(ground: &Ground) -> Result<Outcome> {
    let what = "nats-server killed and started again";
    bus_away(ground, what, |cluster| cluster.signal_nats(Signal::KILL), |cluster| cluster.start_nats(), 0)
}

pub(super) fn bus_gone(ground: &Ground) -> Result<Outcome> {
    let what = "nats-server gone for 30 s";
    bus_away(ground, what, |cluster| cluster.signal_nats(Signal::KILL), |cluster| cluster.start_nats(), 30)
}

pub(super) fn bus_frozen(ground: &Ground) -> Result<Outcome> {
    let what = "nats-server frozen for 30 s";
    bus_away(ground, what, |cluster| cluster.signal_nats(Signal::STOP), |cluster| cluster.signal_nats(Signal::CONT), 30)
}

pub(super) fn scheduler_killed(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.scheduler()?;
    let host = cluster.host()?;
    ensure!(victim != host, "{victim} hosts the job as well");
    let (run, events) = cluster.run_and_signal(("simple", "map", 30), &victim, Signal::KILL)?;
    let outcome = cluster.right(&clean, &run, &events, "the Scheduler's node, which had data, too")?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn host_killed_among_maps(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::host, ("simple", "map", 50))
}

pub(super) fn host_killed_among_reduces(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::host, ("simple", "reduce", 50))
}

pub(super) fn host_killed_among_pushes(ground: &Ground) -> Result<Outcome> {
    killed(ground, Cluster::host, ("push", "merge", 50))
}

pub(super) fn all_killed(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(30, "reduce", "n1");
        if now {
            cluster.kill_all()?;
        }
        Ok(now)
    })?;
    let outcome = cluster.right(&clean, &run, &events, "all nodes and the nats-server killed and started again")?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn told_to_stop(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let (run, events) = cluster.run_and_signal(("simple", "map", 50), &victim, Signal::TERM)?;
    cluster.ends_well(&victim)?;
    let outcome = cluster.right(&clean, &run, &events, "a node leaves in order")?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn second_fault(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let killed = Cell::new(0);
    let (run, events) = cluster.run("simple", |events| {
        if killed.get() == 0 && events.are_done(20, "reduce", &victim) {
            cluster.signal(&victim, Signal::KILL)?;
            cluster.start_node(&victim)?;
            killed.set(1);
        }
        if killed.get() == 1 && events.replayed() > 0 {
            cluster.signal(&victim, Signal::KILL)?;
            killed.set(2);
        }
        Ok(killed.get() == 2)
    })?;
    let outcome = cluster.right(&clean, &run, &events, "killed, started again, killed while work was made again")?;
    cluster.end()?;
    Ok(outcome)
}
