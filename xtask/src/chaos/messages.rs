//! Rows about messages that are not what was sent, or come more than once: a client of the same nats-server says them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Outcome;
use super::bus::{Client, Message};
use super::cluster::{Cluster, Events};
use super::flips::Random;
use super::ground::{Ground, Run, told};

const LISTEN_FOR: Duration = Duration::from_millis(1);

/// Runs `harm` in a thread of its own while `work` is done.
pub(super) fn beside<T>(
    harm: impl FnOnce(&AtomicBool) -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let harming = threads.spawn(|| harm(&over));
        let done = work();
        over.store(true, Ordering::Relaxed);
        let harmed = harming.join().ok().context("the injector's thread")?;
        let done = done?;
        harmed.context("the injector")?;
        Ok(done)
    })
}

/// All tasks were accepted once each.
fn once_each(events: &Events) -> Result<()> {
    let twice = events.finished_twice();
    ensure!(twice.is_empty() && events.replayed() == 0, "tasks that were completed more than once: {twice:?}");
    Ok(())
}

/// Says most messages again, once or twice, up to a fifth of a second later: after others that were sent behind them.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn repeat(port: u16, over: &AtomicBool, repeated: &AtomicU64) -> Result<()> {
    let mut client = Client::connect(port)?;
    client.listen()?;
    let (begun, mut random) = (Instant::now(), Random::new(27));
    let mut later: BTreeMap<(Duration, u64), Message> = BTreeMap::new();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        if let Some(message) = client.next(LISTEN_FOR)? {
            for _ in 0..random.below(3) {
                number += 1;
                // A few come when all is different: a second later and more.
                let delay = if random.below(20) == 0 { 1000 + random.below(2000) } else { random.below(200) };
                later.insert((begun.elapsed() + Duration::from_millis(delay), number), message.clone());
            }
        }
        let after = later.split_off(&(begun.elapsed(), 0));
        client.publish(later.values())?;
        repeated.fetch_add(later.len() as u64, Ordering::Relaxed);
        later = after;
    }
    Ok(())
}

pub(super) fn repeated(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("push")?;
    let (port, again) = (cluster.port(), AtomicU64::new(0));
    let (run, events) = beside(
        |over| repeat(port, over, &again),
        || cluster.run("push", |events| Ok(again.load(Ordering::Relaxed) > 500 && events.done("map") > 10)),
    )?;
    once_each(&events)?;
    let again = again.load(Ordering::Relaxed);
    let what = format!("{again} messages said again, up to 3 s later and behind others");
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.end()?;
    Ok(outcome)
}

/// How long garbage is published at least.
const GARBAGE_FOR: Duration = Duration::from_secs(20);
/// How many messages of garbage there are at least on each kind of subject; the matrix wants a million. None: a few ten thousand in all.
const MALFORMED_EACH: &str = "EXOBUS_CHAOS_MALFORMED_EACH";
const GARBAGE_AT_ONCE: usize = 64;
/// The same where so much is wanted that it would take a quarter of an hour.
const MUCH_AT_ONCE: usize = 512;
const PAUSE: Duration = Duration::from_millis(4);
const DURABLE_ONE_IN: u64 = 500;
/// Real messages that are remembered of each subject, and subjects of each kind.
const SAMPLES_MAX: usize = 32;

const SUBJECTS: &str = "exo.v1.local.";

/// What subjects have in common that differ in names of nodes, clients and jobs only.
fn kind(subject: &str) -> String {
    let words: Vec<&str> = subject.trim_start_matches(SUBJECTS).split('.').collect();
    match words[..] {
        [at @ ("node" | "client"), _, what, ..] => format!("{at}.*.{what}"),
        ["job", .., what] => format!("job.*.{what}"),
        [durable @ ("kv" | "stream"), what, ..] => format!("{durable}.{what}"),
        _ => words.join("."),
    }
}

/// Real messages of a kind by subject, to be maimed, and how much garbage was made of them.
#[derive(Default)]
struct Kind {
    samples: BTreeMap<String, VecDeque<Message>>,
    littered: u64,
}

/// All kinds; and subjects that nobody has used.
struct Samples(BTreeMap<String, Kind>);

impl Samples {
    fn new() -> Self {
        let unused = [
            "ctl.scheduler.where",
            "ctl.nobody.nothing",
            "job.local.0.evt",
            "data.n1.x",
            "node.n1.beat",
            "node.n1.session.n9",
            "api.default.submit",
            "node.n1.api",
        ];
        let mut samples = Self(BTreeMap::new());
        for end in unused {
            samples.of(&format!("{SUBJECTS}{end}"));
        }
        samples
    }

    fn of(&mut self, subject: &str) -> &mut VecDeque<Message> {
        let kind = self.0.entry(kind(subject)).or_default();
        if kind.samples.len() == SAMPLES_MAX && !kind.samples.contains_key(subject) {
            // Of clients that are gone, mostly.
            kind.samples.pop_first();
        }
        kind.samples.entry(subject.to_owned()).or_default()
    }

    fn add(&mut self, message: Message) {
        let samples = self.of(&message.subject);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(message);
    }

    fn is_durable(kind: &str) -> bool {
        kind.starts_with("kv.") || kind.starts_with("stream.")
    }

    /// What nobody should have sent.
    fn garbage(&mut self, random: &mut Random) -> Option<Message> {
        let nth = random.below(self.0.len() as u64) as usize;
        let (kind, Kind { samples, littered }) = self.0.iter_mut().nth(nth)?;
        // What is published there is a write, durable before it is answered: a few, or it is the disk that is tried.
        if Self::is_durable(kind) && random.below(DURABLE_ONE_IN) > 0 {
            return None;
        }
        let (subject, samples) = samples.iter().nth(random.below(samples.len() as u64) as usize)?;
        *littered += 1;
        let none = || Message { subject: subject.clone(), reply: None, headers: Vec::new(), payload: Vec::new() };
        let mut message = match samples.len() as u64 {
            0 => none(),
            count => samples[random.below(count) as usize].clone(),
        };
        maim(&mut message.payload, random);
        Some(message)
    }

    /// Of the kinds that are not durable, the one with the least garbage, and how much that is.
    fn least(&self) -> Option<(&str, u64)> {
        let passing = self.0.iter().filter(|(kind, _)| !Self::is_durable(kind));
        passing.map(|(name, kind)| (name.as_str(), kind.littered)).min_by_key(|(_, littered)| *littered)
    }

    fn littered(&self) -> u64 {
        self.0.values().map(|kind| kind.littered).sum()
    }
}

fn maim(payload: &mut Vec<u8>, random: &mut Random) {
    let bytes =
        |random: &mut Random, most| (0..random.below(most)).map(|_| random.below(256) as u8).collect::<Vec<_>>();
    let length = payload.len() as u64;
    match random.below(5) {
        0 => *payload = bytes(random, 2000),
        // As a value that is no such value.
        1 => *payload = [vec![1], bytes(random, 200)].concat(),
        // Nested without end.
        2 => *payload = [vec![1], vec![0x91; 1 + random.below(5000) as usize]].concat(),
        3 if length > 0 => payload.truncate(random.below(length) as usize),
        _ if length > 0 => {
            for _ in 0..=random.below(4) {
                let at = random.below(length) as usize;
                payload[at] ^= 1 << random.below(8);
            }
        }
        _ => *payload = bytes(random, 20),
    }
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn litter(port: u16, at_once: usize, over: &AtomicBool, samples: &Mutex<Samples>) -> Result<()> {
    let mut client = Client::connect(port)?;
    client.listen()?;
    let mut random = Random::new(25);
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < PAUSE {
            if let Some(message) = client.next(LISTEN_FOR)? {
                lock(samples).add(message);
            }
        }
        let mut known = lock(samples);
        let garbage: Vec<_> = (0..at_once).filter_map(|_| known.garbage(&mut random)).collect();
        drop(known);
        client.publish(&garbage)?;
    }
    Ok(())
}

fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn malformed(ground: &Ground) -> Result<Outcome> {
    let each = told(MALFORMED_EACH, 0)?;
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (port, samples, sorts) = (cluster.port(), Mutex::new(Samples::new()), Cell::new(0));
    let littered = || lock(&samples).littered();
    let (run, events): (Run, Events) = beside(
        |over| litter(port, if each > 0 { MUCH_AT_ONCE } else { GARBAGE_AT_ONCE }, over, &samples),
        || {
            let begun = Instant::now();
            loop {
                let before = littered();
                let sorted =
                    cluster.run("simple", |events| Ok(littered() > before + 1000 && events.done("map") > 10))?;
                sorts.set(sorts.get() + 1);
                let enough = lock(&samples).least().is_some_and(|(_, least)| least >= each);
                if (begun.elapsed() > GARBAGE_FOR && enough) || sorted.0.code != Some(0) {
                    return Ok(sorted);
                }
                ground.is_right(&sorted.0)?;
            }
        },
    )?;
    let (all, sorts, samples) = (littered(), sorts.get(), lock(&samples));
    let (kind, least) = samples.least().context("subjects")?;
    let what = format!(
        "{all} malformed messages on every subject (least, on {kind}: {least}) during {sorts} sorts, 0 deaths; the last"
    );
    let outcome = cluster.right(&clean, &run, &events, &what)?;
    cluster.end()?;
    Ok(outcome)
}
