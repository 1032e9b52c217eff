//! The faults of a soak: what is done to nodes and to the nats-server, and when it happened.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::super::cluster::Cluster;
use super::super::flips::Random;
use super::Soak;

/// What happens to a cluster or, for the last ones, to one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A node is killed and started again.
    Node,
    /// Two nodes are.
    TwoNodes,
    /// All nodes are.
    AllNodes,
    /// A node is told to stop, and started again.
    NodeStopped,
    /// A node is frozen, for less or for more than it takes to be declared dead.
    NodeFrozen,
    /// The nats-server is killed and started again.
    Server,
    /// The nats-server and all nodes are.
    Everything,
    /// The client is interrupted.
    Cancelled,
    /// The client is killed, its job goes on.
    ClientKilled,
    /// Another job writes to the same folder.
    SameFolder,
    /// The process of a job without a cluster is killed; the job is taken up again.
    AloneKilled,
    /// The input is not there.
    NoInput,
}

/// Those that happen to the cluster, and how often out of all.
const OF_THE_CLUSTER: [(Fault, u64); 7] = [
    (Fault::Node, 30),
    (Fault::TwoNodes, 12),
    (Fault::AllNodes, 4),
    (Fault::NodeStopped, 12),
    (Fault::NodeFrozen, 12),
    (Fault::Server, 12),
    (Fault::Everything, 4),
];

/// For how long after its end a fault still explains what jobs say: until the cluster is sure of it, and whole again.
const AFTERMATH: Duration = Duration::from_secs(30);

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "a node killed",
            Self::TwoNodes => "two nodes killed",
            Self::AllNodes => "all nodes killed",
            Self::NodeStopped => "a node told to stop",
            Self::NodeFrozen => "a node frozen",
            Self::Server => "the nats-server killed",
            Self::Everything => "the nats-server and all nodes killed",
            Self::Cancelled => "the client interrupted",
            Self::ClientKilled => "the client killed",
            Self::SameFolder => "another job with the same folder",
            Self::AloneKilled => "a job alone killed and resumed",
            Self::NoInput => "no such input",
        }
    }
}

/// Which faults happened when.
#[derive(Default)]
pub(super) struct History(Vec<(Fault, Duration, Option<Duration>)>);

impl History {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn counts(&self) -> BTreeMap<Fault, usize> {
        let mut counts = BTreeMap::new();
        for (fault, ..) in &self.0 {
            *counts.entry(*fault).or_default() += 1;
        }
        counts
    }

    /// Faults of the cluster that are not over, or have been for less than their aftermath, at some time between.
    pub(super) fn between(&self, from: Duration, until: Duration) -> Vec<Fault> {
        let of_the_cluster = |fault: &Fault| OF_THE_CLUSTER.iter().any(|(of_it, _)| of_it == fault);
        let met = self.0.iter().filter(|(fault, begun, ended)| {
            of_the_cluster(fault) && *begun <= until && ended.is_none_or(|ended| ended + AFTERMATH >= from)
        });
        met.map(|(fault, ..)| *fault).collect()
    }
}

/// Notes a fault of one job, which is over at once.
pub(super) fn note(soak: &Soak<'_>, fault: Fault) {
    let now = soak.now();
    if let Ok(mut history) = soak.history.lock() {
        history.0.push((fault, now, Some(now)));
    }
}

/// A fault of the cluster is going on while `harm` does it.
fn during(soak: &Soak<'_>, fault: Fault, harm: impl FnOnce() -> Result<()>) -> Result<()> {
    let now = soak.now();
    let place = soak.history.lock().map_or(0, |mut history| {
        history.0.push((fault, now, None));
        history.0.len() - 1
    });
    let harmed = harm();
    let now = soak.now();
    if let Ok(mut history) = soak.history.lock() {
        history.0[place].2 = Some(now);
    }
    harmed
}

#[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
fn pause(random: &mut Random, from_ms: u64, to_ms: u64) {
    std::thread::sleep(Duration::from_millis(from_ms + random.below(to_ms - from_ms)));
}

/// Waits for a while, then does some harm, and mends it.
pub(super) fn one(soak: &Soak<'_>, cluster: &Cluster<'_>, random: &mut Random) -> Result<()> {
    pause(random, 500, 12_000);
    let names = cluster.names();
    let mut drawn = random.below(OF_THE_CLUSTER.iter().map(|(_, weight)| weight).sum());
    let mut fault = Fault::Node;
    for (candidate, weight) in OF_THE_CLUSTER {
        if drawn < weight {
            fault = candidate;
            break;
        }
        drawn -= weight;
    }
    let first = random.below(names.len() as u64) as usize;
    let second = (first + 1 + random.below(names.len() as u64 - 1) as usize) % names.len();
    let victims = match fault {
        Fault::TwoNodes => vec![names[first].clone(), names[second].clone()],
        Fault::AllNodes | Fault::Everything => names,
        Fault::Server => vec![],
        _ => vec![names[first].clone()],
    };
    eprintln!("soak: {:.1} s: {} {}", soak.now().as_secs_f64(), fault.name(), victims.join(" "));
    during(soak, fault, || match fault {
        Fault::NodeStopped => {
            cluster.stop_node(&victims[0])?;
            pause(random, 0, 4_000);
            start(cluster, &victims)
        }
        Fault::NodeFrozen => {
            cluster.signal(&victims[0], Signal::STOP)?;
            pause(random, 200, 9_000);
            cluster.signal(&victims[0], Signal::CONT)
        }
        _ => {
            let server = matches!(fault, Fault::Server | Fault::Everything);
            if server {
                cluster.signal_nats(Signal::KILL)?;
            }
            kill(cluster, &victims, random)?;
            pause(random, 0, 8_000);
            if server {
                cluster.start_nats()?;
            }
            start(cluster, &victims)
        }
    })
}

fn kill(cluster: &Cluster<'_>, victims: &[String], random: &mut Random) -> Result<()> {
    for (nth, victim) in victims.iter().enumerate() {
        if nth > 0 {
            pause(random, 0, 300);
        }
        cluster.signal(victim, Signal::KILL)?;
    }
    Ok(())
}

/// Starts nodes that do not run, after a look at what their last incarnations said.
fn start(cluster: &Cluster<'_>, victims: &[String]) -> Result<()> {
    for victim in victims {
        orderly(cluster, victim)?;
        cluster.start_node(victim)?;
    }
    Ok(())
}

fn orderly(cluster: &Cluster<'_>, name: &str) -> Result<()> {
    let log = cluster.log_of(name)?;
    ensure!(!log.contains("panicked"), "{name} panicked: {log}");
    Ok(())
}

/// Fails where a node does not run, or has panicked.
pub(super) fn mended(cluster: &Cluster<'_>) -> Result<()> {
    for name in cluster.names() {
        orderly(cluster, &name)?;
        cluster.has_not_ended(&name)?;
    }
    Ok(())
}
