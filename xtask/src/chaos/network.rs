//! Rows about the network between nodes and to their bus: cut, one way or both, and lossy. Each node has a host of its own.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Outcome;
use super::cluster::{CLIENT, Cluster, NODES, Setup, wait};
use super::ground::{Ground, told};
use super::lan::{Lan, Weather};
use super::proxy::{Harm, Proxies};
use super::servers::HOST;

/// Longer than it takes to call a node dead.
const CUT_FOR: Duration = Duration::from_secs(6);
/// What the matrix asks for is one second; what takes so long waits for a timer that it should not.
const HEALED_WITHIN: Duration = Duration::from_secs(4);

/// Seconds; for faults of which each costs five at most.
const ADDED_AT_MOST: f64 = 40.0;

/// Whom a node does not reach.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Bus,
    Peers,
}

/// What is cut, as seen from the node.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Both,
    Out,
    In,
}

fn hosts() -> Result<Lan> {
    Lan::new(&[HOST, CLIENT, NODES[0], NODES[1], NODES[2]])
}

fn cut(lan: &Lan, victim: &str, side: Side, way: Way) -> Result<()> {
    let others = match side {
        Side::Bus => vec![HOST],
        Side::Peers => NODES.into_iter().filter(|node| *node != victim).collect(),
    };
    for other in others {
        if way != Way::In {
            lan.cut(victim, other)?;
        }
        if way != Way::Out {
            lan.cut(other, victim)?;
        }
    }
    Ok(())
}

/// How often all nodes together called this one dead.
fn deaths(cluster: &Cluster<'_>, victim: &str) -> Result<usize> {
    let mut deaths = 0;
    for name in NODES {
        let is_death = |line: &&str| {
            line.contains("node changed") && line.contains("Dead") && line.contains(&format!("node={victim}"))
        };
        deaths += cluster.log_of(name)?.lines().filter(is_death).count();
    }
    Ok(deaths)
}

/// Whether a node with this log is not fenced, and in the cluster; where it `was_dead` to others, in the incarnation that begins when it
/// hears of that, which is after it is heard again.
fn is_back(log: &str, was_dead: bool) -> bool {
    let last = |what: &str| log.rfind(what);
    let joined = last("joined the cluster");
    let is_heard = last("this node is not heard") < last("this node is heard again").max(joined);
    let began = last("another incarnation begins");
    is_heard && began <= joined && (began.is_some() || !was_dead)
}

/// A node is cut off from its bus for a while, when so many hundredths of a stage are done.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn off_the_bus(
    ground: &Ground,
    whom: fn(&Cluster<'_>) -> Result<String>,
    way: Way,
    (stage, percent): (&str, u64),
) -> Result<Outcome> {
    let lan = hosts()?;
    let cluster = Cluster::start_as(ground, Setup { lan: Some(&lan), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let victim = whom(&cluster)?;
    let before = cluster.log_of(&victim)?.len();
    let since = |what: &str| Ok::<_, anyhow::Error>(cluster.log_of(&victim)?[before..].matches(what).count());
    let (cut_at, served) = (Cell::new(None), Cell::new(0));
    let (run, events) = cluster.run("simple", |events| {
        if cut_at.get().is_none() && events.are_done(percent, stage, &victim) {
            served.set(events.received_from(&victim));
            cut(&lan, &victim, Side::Bus, way)?;
            cut_at.set(Some(Instant::now()));
        }
        Ok(cut_at.get().is_some())
    })?;
    let ended = cut_at.get().context("the cut")?.elapsed();
    std::thread::sleep(CUT_FOR.saturating_sub(ended));
    let packets = lan.counts().cut;
    ensure!(packets > 0, "nothing was cut");
    ensure!(since("this node is not heard")? > 0, "{victim} did not fence itself: {}", cluster.log_of(&victim)?);
    lan.heal();
    let healed = Instant::now();
    let was_dead = deaths(&cluster, &victim)? > 0;
    wait(|| Ok(is_back(&cluster.log_of(&victim)?, was_dead))).context("it is back in the cluster")?;
    let back = healed.elapsed();
    ensure!(back < HEALED_WITHIN, "{victim} was back in the cluster only after {back:?}");
    let incarnations = since("another incarnation begins")?;
    let more = events.received_from(&victim).saturating_sub(served.get());
    let what = format!(
        "{victim} cut off from NATS at {percent} % of {stage} for {:.1} s: {packets} packets, fenced, back after {:.1} s; \
         others fetched {:.0} MB from it meanwhile",
        CUT_FOR.max(ended).as_secs_f64(),
        back.as_secs_f64(),
        more as f64 / 1e6
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    in_time(&outcome)?;
    steady(&cluster, &victim, incarnations)?;
    cluster.end()?;
    Ok(outcome)
}

/// It was not called dead again and again, and works again.
fn steady(cluster: &Cluster<'_>, victim: &str, incarnations: usize) -> Result<()> {
    let deaths = deaths(cluster, victim)?;
    ensure!(
        deaths < NODES.len() && incarnations <= 1,
        "{victim} was called dead {deaths} times and began {incarnations} more incarnations"
    );
    let (again, _) = cluster.run("simple", |events| Ok(events.are_done(1, "map", victim)))?;
    cluster.ground().is_right(&again).map(drop)
}

/// A node is cut off from the other nodes until the job is over.
fn off_the_peers(ground: &Ground, way: Way, (stage, percent): (&str, u64)) -> Result<Outcome> {
    let lan = hosts()?;
    let cluster = Cluster::start_as(ground, Setup { lan: Some(&lan), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let victim = cluster.bystander()?;
    let (run, events) = cluster.run("simple", |events| {
        let now = events.are_done(percent, stage, &victim);
        if now {
            cut(&lan, &victim, Side::Peers, way)?;
        }
        Ok(now)
    })?;
    let packets = lan.counts().cut;
    ensure!(packets > 0, "nothing was cut");
    lan.heal();
    let what = format!(
        "{victim} cut off from other nodes at {percent} % of {stage} to the end: {packets} packets, {}",
        events.failures()
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    in_time(&outcome)?;
    let deaths = deaths(&cluster, &victim)?;
    ensure!(deaths == 0, "{victim} was called dead, which it was not");
    steady(&cluster, &victim, 0)?;
    cluster.end()?;
    Ok(outcome)
}

/// The way between nodes does harm to what they send each other, from the beginning of a sort to its end.
fn harmed(ground: &Ground, harm: Harm, what: &str) -> Result<Outcome> {
    let lan = hosts()?;
    let proxies = Proxies::start(&lan)?;
    let cluster = Cluster::start_as(ground, Setup { lan: Some(&lan), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    proxies.set(Some(harm));
    let (run, events) = cluster.run("simple", |_| Ok(proxies.harmed() > 0))?;
    proxies.set(None);
    let harmed = proxies.harmed();
    ensure!(harmed >= 3, "harm was done only {harmed} times");
    let what = format!("{harmed} {what}, {}", events.failures());
    let mut noticed = 0;
    for node in NODES {
        noticed += cluster.log_of(node)?.matches("wrong bytes came").count();
    }
    if let Harm::Flip(_) = harm {
        ensure!(noticed > 0, "no checksum found any of the flips");
    }
    let outcome = cluster.right(&clean, &run, &events, &format!("{what}; wrong checksums {noticed}"))?;
    in_time(&outcome)?;
    cluster.end()?;
    Ok(outcome)
}

/// What takes longer has waited for something that it should not have waited for.
fn in_time(outcome: &Outcome) -> Result<()> {
    let added = outcome.added.unwrap_or_default();
    ensure!(added < ADDED_AT_MOST, "it took {added:.1} s longer: {}", outcome.what);
    Ok(())
}

/// For how long row 9 sorts on a lossy network; the matrix wants ten minutes.
const LOSSY_SECONDS: &str = "EXOBUS_CHAOS_LOSSY_SECONDS";

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn lossy(ground: &Ground) -> Result<Outcome> {
    let seconds = told(LOSSY_SECONDS, 60)?;
    let lan = hosts()?;
    let cluster = Cluster::start_as(ground, Setup { lan: Some(&lan), ..Setup::default() })?;
    let clean = cluster.clean("simple")?;
    let (delay, jitter) = (Duration::from_millis(1), Duration::from_millis(4));
    lan.set_weather(Weather { lost: 0.02, repeated: 0.02, delay, jitter });
    let (begun, before) = (Instant::now(), lan.counts());
    let (mut outcomes, mut replayed) = (Vec::new(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let (run, events) = cluster.run("simple", |_| Ok(lan.counts().lost > before.lost))?;
        replayed += events.replayed();
        outcomes.push(cluster.right(&clean, &run, &events, "lossy")?);
    }
    let now = lan.counts();
    lan.set_weather(Weather::default());
    let count = |phrase| -> Result<usize> {
        let found = NODES.iter().map(|node| Ok(cluster.log_of(node)?.matches(phrase).count()));
        Ok(found.collect::<Result<Vec<_>>>()?.iter().sum())
    };
    let (dead, fenced) = (count("state=Dead")?, count("this node is not heard")?);
    ensure!(dead == 0 && fenced == 0, "{dead} times a node was called dead, {fenced} times one fenced itself");
    ensure!(replayed == 0, "{replayed} tasks were replayed");
    cluster.end()?;
    let sorts = outcomes.len();
    let added = outcomes.iter().filter_map(|outcome| outcome.added).sum::<f64>() / sorts as f64;
    let (passed, lost, repeated) = (now.passed - before.passed, now.lost - before.lost, now.repeated - before.repeated);
    let what = format!(
        "{sorts} sorts in {:.0} s on a network that lost {lost} of {} packets, repeated {repeated} and delayed all by 1 to 5 ms: \
         right, nobody called dead",
        begun.elapsed().as_secs_f64(),
        passed + lost
    );
    let more_attempts = outcomes.iter().map(|outcome| outcome.more_attempts).sum();
    Ok(Outcome { what, added: Some(added), more_attempts, bytes_redone: 0 })
}

pub(super) fn bits_flipped(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Harm::Flip(10), "bits flipped between nodes")
}

pub(super) fn frames_truncated(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Harm::Truncate(10), "answers truncated")
}

pub(super) fn connections_reset(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Harm::Reset(10), "connections reset")
}

pub(super) fn connections_stalled(ground: &Ground) -> Result<Outcome> {
    harmed(ground, Harm::Stall(3), "connections stalled")
}

pub(super) fn no_bus(ground: &Ground) -> Result<Outcome> {
    off_the_bus(ground, |it| it.bystander(), Way::Both, ("reduce", 20))
}

pub(super) fn no_bus_for_the_host(ground: &Ground) -> Result<Outcome> {
    off_the_bus(ground, |it| it.host(), Way::Both, ("reduce", 20))
}

pub(super) fn no_bus_for_the_scheduler(ground: &Ground) -> Result<Outcome> {
    off_the_bus(ground, |it| it.scheduler(), Way::Both, ("map", 30))
}

pub(super) fn nothing_to_the_bus(ground: &Ground) -> Result<Outcome> {
    off_the_bus(ground, |it| it.bystander(), Way::Out, ("map", 30))
}

pub(super) fn nothing_from_the_bus(ground: &Ground) -> Result<Outcome> {
    off_the_bus(ground, |it| it.bystander(), Way::In, ("map", 30))
}

pub(super) fn no_peers(ground: &Ground) -> Result<Outcome> {
    off_the_peers(ground, Way::Both, ("map", 50))
}

pub(super) fn nothing_to_peers(ground: &Ground) -> Result<Outcome> {
    off_the_peers(ground, Way::Out, ("map", 50))
}

pub(super) fn nothing_from_peers(ground: &Ground) -> Result<Outcome> {
    off_the_peers(ground, Way::In, ("map", 50))
}

#[cfg(test)]
mod tests {
    use super::is_back;

    #[test]
    fn a_node_that_was_dead_is_back_when_its_next_incarnation_has_joined() {
        let mut log = String::new();
        for (line, unless_dead, was_dead) in [
            ("joined the cluster", true, false),
            ("this node is not heard", false, false),
            ("this node is heard again", true, false),
            ("declared dead: another incarnation begins", false, false),
            ("joined the cluster", true, true),
        ] {
            log.push_str(line);
            assert_eq!((is_back(&log, false), is_back(&log, true)), (unless_dead, was_dead), "{line}");
        }
    }

    #[test]
    fn the_next_incarnation_may_have_joined_before_it_is_heard() {
        assert!(is_back(
            "joined the cluster, this node is not heard, another incarnation begins, joined the cluster",
            true
        ));
    }
}
