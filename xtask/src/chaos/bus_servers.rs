//! Rows about the servers of the bus: one of three is lost, the power is cut, the disk is full, the store is removed.

use std::cell::{Cell, RefCell};
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::Outcome;
use super::cluster::{Cluster, Setup, wait};
use super::disk::Disk;
use super::ground::{Ground, finish};

/// What the matrix allows for submitting while the servers elect a leader, and room for a machine that others use.
const SUBMIT_STALLS_AT_MOST: Duration = Duration::from_secs(30);
/// Twice what it allows for saying that a job cannot be accepted, likewise.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// Sorts of one file of the input each, that run beside the row's.
struct Small<'a> {
    ground: &'a Ground,
    running: Vec<(Child, String)>,
}

impl<'a> Small<'a> {
    fn start(cluster: &Cluster<'a>, count: usize) -> Result<Self> {
        let mut small = Self { ground: cluster.ground(), running: Vec::new() };
        let url = cluster.nats.url();
        for number in 0..count {
            let [input, output] =
                [format!("in/part-0000{number}"), format!("small-{number}")].map(|name| small.ground.text(&name));
            let args = ["sort", &input, "--output", &output, "--cluster", &url, "--partitions", "2"];
            let log = fs::File::create(small.ground.path(&format!("small-{number}.log")))?;
            let mut command = small.ground.command(&args);
            let child = command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
            small.running.push((child, output));
        }
        Ok(small)
    }

    /// Waits for all of them; all must be right.
    fn end(mut self) -> Result<()> {
        for (number, (mut child, output)) in self.running.drain(..).enumerate() {
            let status = child.wait()?;
            let log = self.ground.path(&format!("small-{number}.log"));
            ensure!(status.success(), "small job {number} was lost: {}", fs::read_to_string(&log)?);
            let checked = finish(self.ground.command(&["validate", "--json", &output]))?;
            ensure!(checked.code == Some(0), "the output of small job {number} is not valid: {}", checked.stderr);
            ensure!(checked.stdout.contains("250000"), "records are missing: {}", checked.stdout);
            fs::remove_dir_all(output)?;
            fs::remove_file(log)?;
        }
        Ok(())
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The server that leads most streams, and one that leads fewest; how many each leads.
fn leaders(cluster: &Cluster<'_>) -> Result<((usize, usize), (usize, usize))> {
    let answer = cluster.nats.ask(0, "jsz?accounts=true&streams=true")?;
    let streams = answer["account_details"].as_array().into_iter().flatten();
    let streams = streams.flat_map(|account| account["stream_detail"].as_array().cloned().unwrap_or_default());
    let mut leads = vec![0; cluster.nats.count()];
    for stream in streams {
        let leader =
            stream["cluster"]["leader"].as_str().and_then(|name| name.strip_prefix('s')?.parse::<usize>().ok());
        *leads.get_mut(leader.context("a stream without a leader")?).context("a server of this cluster")? += 1;
    }
    ensure!(leads.iter().sum::<usize>() > 0, "no streams: {answer}");
    let by_leads = |server: &(usize, usize)| server.1;
    let all = || leads.iter().copied().enumerate();
    Ok((all().max_by_key(by_leads).context("a server")?, all().min_by_key(by_leads).context("a server")?))
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn server_lost(ground: &Ground, which: fn(&Cluster<'_>) -> Result<(usize, usize)>) -> Result<Outcome> {
    let cluster = Cluster::start_as(ground, Setup { servers: 3, ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let bystander = cluster.bystander()?;
    let (victim, leads) = which(&cluster)?;
    let submitted = RefCell::new(None);
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(30, "map", &bystander);
        if now {
            cluster.nats.signal(victim, Signal::KILL)?;
            submitted.replace(Some((Instant::now(), Small::start(&cluster, 1)?)));
        }
        Ok(now)
    })?;
    let (at, small) = submitted.take().context("the second job")?;
    small.end()?;
    let second = at.elapsed();
    ensure!(second < SUBMIT_STALLS_AT_MOST, "a job that was submitted then took {second:?}");
    ensure!(events.replayed() == 0, "a node was called dead");
    let second = second.as_secs_f64();
    let what = format!(
        "nats-server {victim} of three killed, which led {leads} streams; a job submitted then was done after {second:.1} s"
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.nats.start_one(victim)?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn leader_lost(ground: &Ground) -> Result<Outcome> {
    server_lost(ground, |cluster| Ok(leaders(cluster)?.0))
}

pub(super) fn follower_lost(ground: &Ground) -> Result<Outcome> {
    server_lost(ground, |cluster| Ok(leaders(cluster)?.1))
}

/// The power of the server's machine is cut while jobs run that it has acknowledged; with nodes, theirs as well.
fn power_cut(ground: &Ground, nodes: bool) -> Result<Outcome> {
    const SMALL: usize = 4;
    let disk = Disk::in_a_file(ground.path("streams.img"), ground.path("streams"), 512)?;
    let cluster = Cluster::start_as(ground, Setup { streams: Some(disk.path().to_owned()), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let bystander = cluster.bystander()?;
    let accepted = || -> Result<usize> {
        let logs = super::cluster::NODES.iter().map(|name| Ok(cluster.log_of(name)?.matches("job accepted").count()));
        logs.sum()
    };
    let before = accepted()?;
    let (small, cut) = (RefCell::new(None), Cell::new(false));
    let (run, events) = cluster.run("simple", |events| {
        if small.borrow().is_none() && events.are_done(5, "map", &bystander) {
            small.replace(Some(Small::start(&cluster, SMALL)?));
        }
        // The sort, and those beside it.
        if !cut.get() && small.borrow().is_some() && accepted()? > before + SMALL {
            let snapshot = disk.snapshot()?;
            cluster.signal_nats(Signal::KILL)?;
            if nodes {
                super::cluster::NODES.iter().try_for_each(|name| cluster.signal(name, Signal::KILL))?;
            }
            disk.go_back_to(&snapshot)?;
            cluster.start_nats()?;
            if nodes {
                super::cluster::NODES.iter().try_for_each(|name| cluster.start_node(name))?;
            }
            cut.set(true);
        }
        Ok(cut.get())
    })?;
    small.take().context("jobs beside the sort")?.end()?;
    let whose = if nodes { "of the nats-server and of all nodes" } else { "of the nats-server" };
    let what = format!("power cut {whose} while {} acknowledged jobs ran, begun {} times", SMALL + 1, events.runs());
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.end()?;
    Ok(outcome)
}

pub(super) fn power_cut_of_the_server(ground: &Ground) -> Result<Outcome> {
    power_cut(ground, false)
}

pub(super) fn power_cut_of_all(ground: &Ground) -> Result<Outcome> {
    power_cut(ground, true)
}

/// The disk of the bus's server gets full while a job runs, and stays so until that is over. New ones are refused meanwhile.
pub(super) fn disk_full(ground: &Ground) -> Result<Outcome> {
    let disk = Disk::small(ground.path("streams"), 64)?;
    let cluster = Cluster::start_as(ground, Setup { streams: Some(disk.path().to_owned()), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let bystander = cluster.bystander()?;
    let (scheduler, refused) = (cluster.scheduler()?, Cell::new(None));
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(10, "map", &bystander);
        if now {
            disk.fill()?;
            // Its lease cannot be renewed, nor taken by anybody else.
            wait(|| Ok(cluster.log_of(&scheduler)?.contains("no longer the scheduler")))?;
            let [input, output, url] = [ground.text("in/part-00000"), ground.text("refused"), cluster.nats.url()];
            let args = ["sort", &input, "--output", &output, "--cluster", &url, "--partitions", "2"];
            // One that hangs is ended, which is no orderly end.
            refused.set(Some(finish(ground.within(&["timeout", "60"], &args))?));
        }
        Ok(now)
    })?;
    // The server does not recover from that by itself.
    cluster.signal_nats(Signal::KILL)?;
    disk.empty()?;
    cluster.start_nats()?;
    let refused = refused.take().context("the job that is refused")?;
    refused.is_orderly()?;
    ensure!(![Some(0), Some(124)].contains(&refused.code), "it was not refused: {}", refused.stderr);
    let (seconds, said) = (refused.seconds, refused.error());
    ensure!(said.contains("stores nothing"), "that does not say why: {said}");
    ensure!(seconds < REFUSED_WITHIN.as_secs_f64(), "it took {seconds:.1} s to say {said}");
    let what = format!(
        "disk of the nats-server full until the job that ran was over; another one refused after {seconds:.1} s ({said})"
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    let (again, _) = cluster.run("simple", |_| Ok(true))?;
    ground.is_right(&again)?;
    cluster.end()?;
    Ok(outcome)
}

/// The server is started again without anything that it held, while a job runs that was logged there, and another one is submitted.
pub(super) fn emptied(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (bystander, host) = (cluster.bystander()?, cluster.host()?);
    let small = RefCell::new(None);
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(20, "map", &bystander);
        if now {
            cluster.signal_nats(Signal::KILL)?;
            cluster.nats.empty(0)?;
            cluster.start_nats()?;
            small.replace(Some(Small::start(&cluster, 1)?));
        }
        Ok(now)
    })?;
    small.take().context("the second job")?.end()?;
    ensure!(events.runs() == 1 && events.replayed() == 0, "the job was begun anew, or a node was called dead");
    let log = cluster.log_of(&host)?;
    ensure!(
        log.contains("the NATS server was emptied, and has lost what was logged"),
        "{host} says nothing of it: {log}"
    );
    ensure!(!log.contains("another node has taken the job up"), "{host} took it for something else: {log}");
    let what = "nats-server emptied and started again under a job; another one submitted then is done, too";
    let outcome = cluster.right(&clean, &run, &events, what)?;
    // All is as it was before.
    let (again, _) = cluster.run("simple", |_| Ok(true))?;
    ground.is_right(&again)?;
    cluster.end()?;
    Ok(outcome)
}
