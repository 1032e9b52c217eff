//! Which node has which function: what nodes say of themselves, and what follows for waiting tasks.
//!
//! In most clusters every node runs the same binary and nothing of this matters. Where a node lacks a function, tasks of
//! that function wait in queues of their own and are asked for by name, so that the Scheduler lends where they can run.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::placement::{FunctionIndex, Key};
use super::tables::{Function, OwnerState};
use crate::ids::{Incarnation, NodeId};

impl OwnerState {
    /// A node says what it can run.
    pub(super) fn offers(&mut self, node: &NodeId, incarnation: Incarnation, functions: BTreeSet<Arc<str>>) {
        let index = usize::from(self.node_index(node, incarnation));
        if self.nodes[index].incarnation != incarnation {
            return;
        }
        let lacked = |(_, function): &(usize, &Function)| !functions.contains(&function.name);
        self.nodes[index].lacks = self
            .functions
            .entries
            .iter()
            .enumerate()
            .filter(lacked)
            .map(|(function, _)| function as FunctionIndex)
            .collect();
        self.nodes[index].functions = Some(functions);
        self.scarcity();
    }

    /// Nodes that are lent to the job and have not said what they can run.
    pub(super) fn unheard(&self) -> impl Iterator<Item = &NodeId> {
        let unheard = self.nodes.iter().filter(|node| node.functions.is_none() && !node.leased.0.is_empty());
        unheard.map(|node| &node.id)
    }

    /// Whether a node has not been declared dead.
    pub(super) fn is_alive(&self, node: &NodeId) -> bool {
        self.known_node(node).is_some_and(|index| self.nodes[usize::from(index)].alive)
    }

    /// The nodes that have not been declared dead.
    pub(super) fn alive_nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|node| node.alive).map(|node| node.id.clone()).collect()
    }

    /// A function is new to the job: which nodes lack it?
    pub(super) fn look_for(&mut self, function: FunctionIndex) {
        let name = &self.functions[function as usize].name;
        for node in &mut self.nodes {
            if node.functions.as_ref().is_some_and(|functions| !functions.contains(name)) {
                node.lacks.insert(function);
            }
        }
        self.scarcity();
    }

    /// The function, where some node lacks it.
    pub(super) fn if_scarce(&self, function: FunctionIndex) -> Option<FunctionIndex> {
        self.functions.scarce.contains(&function).then_some(function)
    }

    /// Puts waiting tasks into the queues that are theirs now, when that has changed.
    fn scarcity(&mut self) {
        let scarce: BTreeSet<_> = self.nodes.iter().flat_map(|node| node.lacks.iter().copied()).collect();
        if scarce == self.functions.scarce {
            return;
        }
        self.functions.scarce = scarce;
        self.queue_anew();
    }

    /// Keys of waiting tasks have changed.
    pub(super) fn queue_anew(&mut self) {
        for task in std::mem::take(&mut self.ready).into_tasks() {
            self.ready.push(self.key(task), task, false);
        }
        // What was asked for by other names is asked for anew.
        self.demanded.clear();
    }

    /// Says so when tasks wait only because no node that is lent has their function.
    pub(super) fn why_no_function(&self, key: Key, tasks: u64) -> Option<String> {
        let leased = || self.nodes.iter().filter(|node| node.alive && !node.leased.0.is_empty());
        let names = |nodes: &mut dyn Iterator<Item = &NodeId>| nodes.map(NodeId::as_str).collect::<Vec<_>>().join(", ");
        if leased().next().is_some() && leased().all(|node| node.functions.is_none()) {
            let unheard = names(&mut self.unheard());
            return Some(format!("{tasks} tasks wait to hear which functions {unheard} has"));
        }
        let function = key.function?;
        let name = &self.functions[function as usize].name;
        if let Some(node) = key.pinned.map(|pinned| &self.nodes[usize::from(pinned)])
            && node.lacks.contains(&function)
        {
            return Some(format!("{tasks} tasks of {name} wait for node {}, which lacks it", node.id));
        }
        if leased().next().is_none() || leased().any(|node| node.has(function)) {
            return None;
        }
        let lacking = names(&mut leased().map(|node| &node.id));
        Some(format!("{tasks} tasks wait for a lease on a node with {name}; lent are {lacking}, which lack it"))
    }
}
