//! What the attempts on this node wait for, for Owners that ask (law 8).
//!
//! Nothing is counted or sent for it: staging leaves a trail of its step, and the rest is looked up when somebody asks.

use std::sync::Arc;
use std::time::Duration;

use exobus_store::StoreStats;
use parking_lot::Mutex;

use crate::ids::NodeId;
use crate::protocol::node_manager::Doing;
use crate::registry::{BeyondDeclared, Shortage};

/// Most nodes that are named as those that something is fetched from.
const NODES_NAMED_MAX: usize = 8;

/// What staging does at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    #[default]
    Begun,
    Pushed,
    Asking(Vec<NodeId>),
    /// So much of it beside the store.
    Memory(u64),
    Fetching(Vec<NodeId>, u64),
}

/// Where the staging of one attempt has come to, and since when; who stages it and who is asked share it.
#[derive(Clone, Debug)]
pub(crate) struct Trail(Arc<Mutex<(Step, Duration)>>);

impl Trail {
    pub(super) fn begun(now: Duration) -> Self {
        Self(Arc::new(Mutex::new((Step::Begun, now))))
    }

    /// It has come to this step.
    pub(super) fn at(&self, now: Duration, step: Step) {
        *self.0.lock() = (step, now);
    }

    pub(super) fn asking<'a>(&self, now: Duration, nodes: impl Iterator<Item = &'a NodeId>) {
        self.at(now, Step::Asking(first(nodes)));
    }

    pub(super) fn fetching<'a>(&self, now: Duration, nodes: impl Iterator<Item = &'a NodeId>, bytes: u64) {
        self.at(now, Step::Fetching(first(nodes), bytes));
    }

    pub(super) fn read(&self) -> (Step, Duration) {
        self.0.lock().clone()
    }
}

fn first<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> Vec<NodeId> {
    let mut named: Vec<NodeId> = Vec::new();
    for node in nodes {
        if named.len() == NODES_NAMED_MAX {
            break;
        }
        if !named.contains(node) {
            named.push(node.clone());
        }
    }
    named
}

/// A step, for who asks; `waiting`: since when the other attempts on this node wait for memory.
pub(super) fn staging(step: Step, since: Duration, waiting: &[Duration], store: &StoreStats) -> Doing {
    match step {
        Step::Begun => Doing::Staging,
        Step::Pushed => Doing::Pushed,
        Step::Asking(from) => Doing::Asking { from },
        Step::Memory(outside_wanted_bytes) => Doing::Memory {
            ahead: waiting.iter().filter(|other| **other < since).count() as u64,
            wanted_bytes: store.arguments_waiting_bytes,
            used_bytes: store.used_bytes,
            budget_bytes: store.budget_bytes.saturating_sub(store.reserve_bytes),
            outside_bytes: store.outside_bytes + store.processes_bytes + store.granted_bytes,
            outside_wanted_bytes,
        },
        Step::Fetching(from, bytes) => Doing::Fetching { from, bytes },
    }
}

/// An attempt that runs, for who asks; `shortage`: what is to be said of its memory.
pub(super) fn running(shortage: Option<Shortage>) -> Doing {
    match shortage {
        None => Doing::Running,
        Some(Shortage::Denied { bytes, held_bytes, times, ago }) => {
            Doing::Denied { bytes, held_bytes, times, ago_ms: ago.as_millis() as u64 }
        }
        Some(Shortage::BeyondDeclared(BeyondDeclared { process, used_bytes, declared_bytes })) => {
            Doing::BeyondDeclared { process, used_bytes, declared_bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_as_what_it_waits_for() {
        let at = |seconds| Duration::from_secs(seconds);
        let store = StoreStats {
            arguments_waiting_bytes: 5,
            used_bytes: 90,
            budget_bytes: 110,
            reserve_bytes: 10,
            outside_bytes: 3,
            processes_bytes: 4,
            granted_bytes: 5,
            ..StoreStats::default()
        };
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let memory = |ahead, outside_wanted_bytes| Doing::Memory {
            ahead,
            wanted_bytes: 5,
            used_bytes: 90,
            budget_bytes: 100,
            outside_bytes: 12,
            outside_wanted_bytes,
        };
        for (step, since, waiting, told) in [
            (Step::Begun, 0, &[][..], Doing::Staging),
            (Step::Pushed, 0, &[], Doing::Pushed),
            (Step::Asking(vec![a.clone()]), 0, &[], Doing::Asking { from: vec![a.clone()] }),
            (Step::Memory(4), 7, &[at(3), at(5), at(7), at(9)], memory(2, 4)),
            (Step::Memory(0), 1, &[at(1)], memory(0, 0)),
            (
                Step::Fetching(vec![a.clone(), b], 9),
                0,
                &[],
                Doing::Fetching { from: vec![a, NodeId::new("b")], bytes: 9 },
            ),
        ] {
            assert_eq!(staging(step.clone(), at(since), waiting, &store), told, "{step:?}");
        }
    }

    #[test]
    fn a_trail_names_each_node_once_and_not_too_many() {
        let trail = Trail::begun(Duration::ZERO);
        assert_eq!(trail.read().0, Step::Begun);
        let nodes: Vec<_> = (0..100).map(|at| NodeId::new(&format!("n{}", at / 2))).collect();
        trail.fetching(Duration::from_secs(1), nodes.iter(), 1);
        let Step::Fetching(named, 1) = trail.read().0 else { panic!("{:?}", trail.read()) };
        assert_eq!(named.len(), NODES_NAMED_MAX);
        assert_eq!(named[1], NodeId::new("n1"));
    }
}
