//! Why a demand is not met, in words (law 8).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::lend::eligible;
use crate::protocol::scheduler::{NodeSpec, Shape, Wait};

use super::state::State;
use crate::ids::JobId;
use crate::task::Resources;

/// The reason of the first shape that can never be met; else how much of the demand waits, and for what.
pub(super) fn wait(state: &State, id: JobId, now: Duration) -> Option<Wait> {
    let job = state.jobs.get(&id)?;
    let up: Vec<_> = state.nodes.values().filter(|node| node.up).map(|node| &node.spec).collect();
    if let Some((shape, reason)) = job.shapes.iter().find_map(|shape| Some((shape, impossible(shape, &up)?))) {
        return Some(Wait { reason, never: state.is_settled(now).then(|| Box::new(shape.clone())) });
    }
    let mut wanted: BTreeMap<&Resources, u64> = BTreeMap::new();
    for shape in &job.shapes {
        *wanted.entry(&shape.resources).or_default() += u64::from(shape.count);
    }
    let mut reason = String::new();
    for (need, wanted) in wanted {
        let has: u64 = state.loans_of(id).map(|(_, loan)| u64::from(loan.slots.get(need).copied().unwrap_or(0))).sum();
        // Slots that need nothing are bounded by kindness, not by want.
        if has < wanted && need.0.values().any(|amount| *amount > 0) {
            let comma = if reason.is_empty() { "has" } else { ", " };
            let _ = write!(reason, "{comma} {has} of {wanted} slots of {need}");
        }
    }
    if reason.is_empty() {
        return None;
    }
    let others = state.jobs.iter().filter(|(other, job)| **other != id && !job.shapes.is_empty()).count();
    let returning =
        state.loans.iter().filter(|((other, _), loan)| *other != id && !loan.returning.0.is_empty()).count();
    match (others, returning) {
        (0, 0) => reason.push_str("; the cluster has no more"),
        (others, 0) => {
            let _ = write!(reason, "; shared with {others} other job{}", if others == 1 { "" } else { "s" });
        }
        (_, returning) => {
            let _ = write!(
                reason,
                "; others are giving back on {returning} lease{}",
                if returning == 1 { "" } else { "s" }
            );
        }
    }
    Some(Wait { reason, never: None })
}

/// Why no node could have one slot of this shape, even when idle.
fn impossible(shape: &Shape, up: &[&NodeSpec]) -> Option<String> {
    let could = |node: &&&NodeSpec| eligible(shape, node) && node.resources.times(&shape.resources) > 0;
    if up.iter().any(|node| could(&node)) {
        return None;
    }
    if up.is_empty() {
        return Some(format!("needs {}, cluster has no nodes", shape.resources));
    }
    if let Some(name) = &shape.node
        && !up.iter().any(|node| node.node == *name)
    {
        return Some(format!("needs node {name}, which is not in the cluster"));
    }
    if let Some(function) = &shape.function {
        let lacking = |node: &&&NodeSpec| !node.functions.contains(function);
        let named = |node: &&&NodeSpec| shape.node.as_ref().is_none_or(|name| *name == node.node);
        let lacking: Vec<_> = up.iter().filter(named).filter(lacking).map(|node| node.node.as_str()).collect();
        if lacking.len() == up.iter().filter(named).count() {
            return Some(format!("needs a node with {function}; without it: {}", lacking.join(", ")));
        }
    }
    let labels = || shape.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
    let able: Vec<_> = up.iter().filter(|node| eligible(shape, node)).collect();
    if able.is_empty() {
        let place = shape.node.as_ref().map_or("cluster has none".to_owned(), |name| format!("{name} has not"));
        return Some(format!("needs a node with {}, {place}", labels()));
    }
    let among = match (&shape.node, shape.labels.is_empty()) {
        (Some(name), _) => name.to_string(),
        (None, true) => "cluster".to_owned(),
        (None, false) => format!("cluster (nodes with {})", labels()),
    };
    for (kind, need) in shape.resources.0.iter().filter(|(_, need)| **need > 0) {
        let amount = |milli: u64| milli as f64 / 1000.0;
        let all: u64 = able.iter().map(|node| node.resources.get(kind)).sum();
        if all < *need {
            return Some(format!("needs {} {kind}, {among} has {}", amount(*need), amount(all)));
        }
        let most = able.iter().map(|node| node.resources.get(kind)).max().unwrap_or(0);
        if most < *need {
            return Some(format!(
                "needs {} {kind} on one node, the largest in {among} has {}",
                amount(*need),
                amount(most)
            ));
        }
    }
    Some(format!("needs {} on one node, {among} has none with all of it", shape.resources))
}
