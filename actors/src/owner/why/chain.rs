//! Why a job stands still: from the job to the task to the node to the cause. Pure: facts in, words out.
//!
//! A chain is a list of links, each the reason of the one before it. There may be several; those that have lasted longest
//! come first, and alike ones are one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::watchdog::{QUIET, STALLED};
use crate::ids::{Attempt, NodeId, ObjectId, TaskId};
use crate::protocol::node_manager::{AttemptState, Doing};
use crate::protocol::owner::Standing;
use crate::spec::units::size;

/// Most chains of one answer.
const CHAINS_MAX: usize = 8;
/// Most links of a chain; stages that need each other are fewer.
const LINKS_MAX: usize = 16;

/// What is known of a stage: all tasks of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::owner) struct StageFacts {
    pub(in crate::owner) done: u64,
    pub(in crate::owner) waiting: u64,
    pub(in crate::owner) ready: u64,
    pub(in crate::owner) running: u64,
    /// Stages that make what its waiting tasks wait for.
    pub(in crate::owner) needs: BTreeSet<Arc<str>>,
}

impl StageFacts {
    fn all(&self) -> u64 {
        self.done + self.waiting + self.ready + self.running
    }
}

/// An attempt that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::owner) struct AttemptFacts {
    pub(in crate::owner) stage: Arc<str>,
    pub(in crate::owner) task: TaskId,
    pub(in crate::owner) attempt: Attempt,
    pub(in crate::owner) node: NodeId,
}

/// What a node answered, or why it did not.
pub(in crate::owner) type Answer = Result<Vec<AttemptState>, String>;

/// All that the Owner knows about a wait.
#[derive(Clone, Debug, Default)]
pub(in crate::owner) struct Facts {
    /// For how long nothing has moved.
    pub(in crate::owner) still: Duration,
    /// For how long the program has called nothing.
    pub(in crate::owner) idle: Duration,
    /// Questions of the program that are not answered.
    pub(in crate::owner) asks: u64,
    /// Answers that it has not taken.
    pub(in crate::owner) unread: u64,
    /// Threads on which the program computes, and for how long.
    pub(in crate::owner) computing: Vec<(String, Duration)>,
    /// Objects that are being brought to the program, from where and for how long.
    pub(in crate::owner) reads: Vec<(ObjectId, NodeId, Duration)>,
    pub(in crate::owner) stages: BTreeMap<Arc<str>, StageFacts>,
    /// Why tasks that could run are not placed, by the stage of the first of them.
    pub(in crate::owner) unplaced: Vec<(Arc<str>, String)>,
    /// Why the job has not begun, if it has not.
    pub(in crate::owner) admission: Option<String>,
    /// What the Scheduler says of it.
    pub(in crate::owner) scheduler: Option<String>,
    pub(in crate::owner) attempts: Vec<AttemptFacts>,
    /// Nodes that are silent, and for how long.
    pub(in crate::owner) suspected: BTreeMap<NodeId, Duration>,
    pub(in crate::owner) answers: BTreeMap<NodeId, Answer>,
}

/// How it stands with the job, and the chains.
pub(in crate::owner) fn why(facts: &Facts) -> (Standing, Vec<Vec<String>>) {
    let mut found = Vec::new();
    let admission = facts.admission.iter();
    found.extend(admission.map(|reason| (facts.still, vec!["the job waits to begin".to_owned(), reason.clone()])));
    found.extend(attempts(facts));
    for (stage, reason) in &facts.unplaced {
        let mut links = path(facts, stage);
        links.push(reason.clone());
        links.extend(facts.scheduler.clone());
        found.push((facts.still, links));
    }
    for (object, node, time) in &facts.reads {
        let mut links =
            vec![format!("the program reads object {:08x} of {node} for {}", short(object.as_u128()), text(*time))];
        links.extend(silent(facts, node));
        found.push((*time, links));
    }
    if found.is_empty() {
        found.extend(orphans(facts));
    }
    if found.is_empty() {
        let standing = if facts.still < QUIET { Standing::Running } else { Standing::Program };
        return (standing, vec![vec![program(facts)]]);
    }
    // The one that has lasted longest first; what is alike keeps the order of stages.
    found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    found.truncate(CHAINS_MAX);
    let standing = match facts.still {
        still if still < QUIET => Standing::Running,
        still if still < STALLED => Standing::Quiet,
        _ => Standing::Stalled,
    };
    let mut chains: Vec<_> = found.into_iter().map(|(_, links)| links).collect();
    if (facts.unread > 0 || !facts.computing.is_empty()) && facts.idle >= QUIET {
        chains.push(vec![program(facts)]);
    }
    (standing, chains)
}

/// What the program does when it does not wait for us.
fn program(facts: &Facts) -> String {
    let calls = match facts.idle {
        idle if idle < QUIET => "it calls the futures API".to_owned(),
        idle => format!("it has not called the futures API for {}", text(idle)),
    };
    let computes = |(thread, time): &(String, Duration)| format!("thread {thread} for {}", text(*time));
    if !facts.computing.is_empty() {
        return format!("the program itself: it computes on {}", list(facts.computing.iter().map(computes)));
    }
    match (facts.unread, facts.asks) {
        (0, 0) => format!("the program itself: {calls} and waits for nothing that the job makes"),
        (0, asks) => format!("the program itself: {calls}, {asks} of its questions are open"),
        (unread, _) => format!("the program itself: {calls} while {unread} results are unread"),
    }
}

/// Tasks that wait although nothing is placed or could be.
fn orphans(facts: &Facts) -> Vec<(Duration, Vec<String>)> {
    let stuck = facts.stages.iter().filter(|(_, stage)| stage.waiting > 0);
    let chain = |(name, stage): (&Arc<str>, &StageFacts)| {
        let mut links = path(facts, name);
        links.push(match stage.needs.is_empty() {
            true => "its arguments are not there, and no task makes them".to_owned(),
            false => format!("its arguments: no task of {} runs or could", list(stage.needs.iter())),
        });
        (facts.still, links)
    };
    stuck.map(chain).collect()
}

/// A chain for each kind of thing that attempts of a stage do on a node.
fn attempts(facts: &Facts) -> Vec<(Duration, Vec<String>)> {
    /// The attempt that has done so for longest, and how many do.
    struct Group<'a> {
        first: &'a AttemptFacts,
        state: Option<&'a AttemptState>,
        for_ms: u64,
        count: u64,
    }
    let mut groups: BTreeMap<(&str, &NodeId, &'static str), Group<'_>> = BTreeMap::new();
    for attempt in &facts.attempts {
        let state = match facts.answers.get(&attempt.node) {
            Some(Ok(states)) => {
                states.iter().find(|state| (state.task, state.attempt) == (attempt.task, attempt.attempt))
            }
            Some(Err(_)) | None => None,
        };
        // Those of a node that were not asked for wait behind those that were.
        let answered = matches!(facts.answers.get(&attempt.node), Some(Ok(_)));
        if answered && state.is_none() {
            continue;
        }
        let (kind, for_ms) = state.map_or(("", 0), |state| (kind(&state.doing), state.for_ms));
        let group = groups.entry((&*attempt.stage, &attempt.node, kind));
        let group = group.or_insert(Group { first: attempt, state, for_ms, count: 0 });
        group.count += 1;
        if for_ms > group.for_ms {
            (group.first, group.state, group.for_ms) = (attempt, state, for_ms);
        }
    }
    // What waits for its turn does so because of the others: it is a cause only where there is no other.
    let all_queued = groups.keys().all(|(.., kind)| matches!(*kind, "queued" | "ready"));
    let told =
        groups.into_values().filter(|group| all_queued || group.state.is_none_or(|state| !is_queue(&state.doing)));
    let chain = |group: Group<'_>| {
        let AttemptFacts { stage, task, attempt, node } = group.first;
        let time = group.state.map_or(facts.still, |state| Duration::from_millis(state.for_ms));
        let mut links = path(facts, stage);
        let others = match group.count - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let lasted = if group.state.is_some() { format!(" for {}", text(time)) } else { String::new() };
        links.push(format!("task {:08x} attempt {attempt} on {node}{lasted}{others}", short(task.as_u128())));
        if let Some(state) = group.state {
            links.extend(doing(facts, &state.doing, node));
        }
        links.extend(silent(facts, node));
        links.truncate(LINKS_MAX);
        (time, links)
    };
    told.map(chain).collect()
}

fn is_queue(doing: &Doing) -> bool {
    matches!(kind(doing), "queued" | "ready")
}

fn kind(doing: &Doing) -> &'static str {
    match doing {
        Doing::NotHere => "not here",
        Doing::Queued { .. } => "queued",
        Doing::Staging => "staging",
        Doing::Pushed => "pushed",
        Doing::Asking { .. } => "asking",
        Doing::Memory { .. } => "memory",
        Doing::Fetching { .. } => "fetching",
        Doing::Ready { .. } => "ready",
        Doing::Running => "running",
        Doing::Denied { .. } => "denied",
        Doing::BeyondDeclared { .. } => "beyond declared",
        Doing::Cancelled => "cancelled",
    }
}

/// What an attempt does, and why that takes time.
fn doing(facts: &Facts, doing: &Doing, node: &NodeId) -> Vec<String> {
    let from = |nodes: &[NodeId]| {
        let silent = nodes.iter().filter(|other| *other != node).flat_map(|other| silent(facts, other));
        silent.collect::<Vec<_>>()
    };
    match doing {
        Doing::NotHere => vec![format!("{node} does not have it: lost on the way, or just over")],
        Doing::Queued { ahead } => vec![format!("queued there, {ahead} before it")],
        Doing::Staging => vec!["staging: its arguments are made ready".to_owned()],
        Doing::Pushed => vec!["staging: parts that were pushed there are on their way".to_owned()],
        Doing::Asking { from: nodes } => {
            let mut links = vec![format!("staging: {} asked for sizes of arguments", list(nodes.iter()))];
            links.extend(from(nodes));
            links
        }
        Doing::Memory { ahead, wanted_bytes: 0, .. } => {
            vec![format!("staging: arguments are loaded from disk, {ahead} fetches ahead")]
        }
        Doing::Memory { ahead, wanted_bytes, used_bytes, budget_bytes, outside_bytes, outside_wanted_bytes } => {
            let beside = |bytes: u64, what: &str| match bytes {
                0 => String::new(),
                bytes => format!(", {} of it beside the store{what}", size(bytes)),
            };
            let (own, taken) = (beside(*outside_wanted_bytes, " for this task"), beside(*outside_bytes, ""));
            vec![
                format!("staging: memory, {} wanted there in all{own}, {ahead} fetches ahead", size(*wanted_bytes)),
                format!("store of {node}: {} of {} in use{taken}", size(*used_bytes), size(*budget_bytes)),
            ]
        }
        Doing::Fetching { from: nodes, bytes } => {
            let amount = if *bytes > 0 { size(*bytes) } else { "arguments".to_owned() };
            let mut links = vec![format!("staging: {amount} fetched from {}", list(nodes.iter()))];
            links.extend(from(nodes));
            links
        }
        Doing::Ready { handed, executors } => {
            vec![format!("ready there: {handed} attempts are with its {executors} executors")]
        }
        Doing::Running => vec!["it runs there".to_owned()],
        Doing::Denied { bytes, held_bytes, times, ago_ms } => vec![format!(
            "it runs there: {} beside the store were denied, {} are granted; denied {times} times, the last time {} ago",
            size(*bytes),
            size(*held_bytes),
            text(Duration::from_millis(*ago_ms)),
        )],
        Doing::BeyondDeclared { process, used_bytes, declared_bytes } => vec![format!(
            "it runs there: process {process} has {} of memory where {} were declared, and gets no further task",
            size(*used_bytes),
            size(*declared_bytes),
        )],
        Doing::Cancelled => vec!["it was cancelled, and has not looked since".to_owned()],
    }
}

/// What is wrong with a node.
fn silent(facts: &Facts, node: &NodeId) -> Vec<String> {
    let mut links = Vec::new();
    if let Some(Err(error)) = facts.answers.get(node) {
        links.push(format!("node {node} does not say what it does: {error}"));
    }
    if let Some(time) = facts.suspected.get(node) {
        links.push(format!("node {node} suspected since {}", text(*time)));
    }
    links
}

/// From the job to a stage: which stages need it, and how many of its tasks are not done.
fn path(facts: &Facts, stage: &Arc<str>) -> Vec<String> {
    let mut names = vec![stage.clone()];
    while let Some(last) = names.last()
        && names.len() < LINKS_MAX / 2
        && let Some((next, _)) =
            facts.stages.iter().find(|(name, facts)| facts.needs.contains(last) && !names.contains(name))
    {
        names.push(next.clone());
    }
    let link = |(index, name): (usize, &Arc<str>)| {
        let known = facts.stages.get(name);
        let (left, all) = known.map_or((0, 0), |stage| (stage.all() - stage.done, stage.all()));
        let begin = if index == 0 { "job waits for " } else { "its arguments: " };
        format!("{begin}{name} ({left} of {all} tasks)")
    };
    names.iter().rev().enumerate().map(link).collect()
}

fn list<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The first digits of an id: enough to find it.
fn short(id: u128) -> u32 {
    (id >> 96) as u32
}

/// `41 s`, `3 min 20 s`.
pub(in crate::owner) fn text(time: Duration) -> String {
    match time.as_secs() {
        0..1 => format!("{} ms", time.as_millis()),
        seconds @ 1..100 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
