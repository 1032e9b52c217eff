//! Who reaches whom: nodes that live, and one of which could not fetch from the other.
//!
//! Which of the two is cut off nobody knows, and nothing is held against either; the pair is remembered for a while, both ways
//! (a connection needs both). Meanwhile a task goes where its arguments can be read, and is kept from nodes where they cannot.
//! Only where no node reads them all is something made again: what the best node lacks, there. Objects of the program cannot be
//! made again, so they stay, and their readers go to them.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::placement::NodeIndex;
use super::state::Effect;
use super::tables::{EntrySource, OwnerState};
use crate::arena::Index;
use crate::ids::NodeId;
use crate::task::{Loss, LostObject};

/// Seconds for which a pair is remembered, after the last complaint. Then a task or two find out how it stands.
const REMEMBERED: u32 = 30;

/// Pairs, the smaller index first, and how many seconds more they are remembered.
#[derive(Debug, Default)]
pub(super) struct UnreachablePairs(BTreeMap<(NodeIndex, NodeIndex), u32>);

impl UnreachablePairs {
    fn pair(one: NodeIndex, other: NodeIndex) -> (NodeIndex, NodeIndex) {
        (one.min(other), one.max(other))
    }

    fn put(&mut self, one: NodeIndex, other: NodeIndex) {
        self.0.insert(Self::pair(one, other), REMEMBERED);
    }

    /// Whether it is in unreachable pairs with several others: then it is the one that is cut off, and not they.
    fn is_alone(&self, node: NodeIndex) -> bool {
        self.0.keys().filter(|(one, other)| *one == node || *other == node).count() > 1
    }

    fn has(&self, one: NodeIndex, other: NodeIndex) -> bool {
        self.0.contains_key(&Self::pair(one, other))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A second has passed.
    pub(super) fn fade(&mut self) {
        self.0.retain(|_, seconds| {
            *seconds -= 1;
            *seconds > 0
        });
    }

    /// An incarnation of a node is over: another one may be elsewhere.
    pub(super) fn forget(&mut self, node: NodeIndex) {
        self.0.retain(|(one, other), _| *one != node && *other != node);
    }
}

/// What a node cannot read of a task's arguments: objects that cannot be made again, and bytes.
type Hidden = (u64, u64);

/// What lies on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    irreplaceable: u64,
    bytes: u64,
}

/// What lies where, of arguments.
pub(super) type HeldAt = SmallVec<[(NodeIndex, Held); 4]>;

/// What lies where of sets, as long as nothing moves.
pub(super) type SetsAt = HashMap<Index, HeldAt>;

fn add(held_at: &mut HeldAt, node: NodeIndex, more: Held) {
    let known = held_at.iter().position(|(at, _)| *at == node).unwrap_or_else(|| {
        held_at.push((node, Held::default()));
        held_at.len() - 1
    });
    let held = &mut held_at[known].1;
    held.irreplaceable += more.irreplaceable;
    held.bytes += more.bytes;
}

impl OwnerState {
    /// An attempt on `node` could not fetch these from nodes that live: nothing is lost unless no node can read it all.
    /// Returns what is given up, by node.
    pub(super) fn out_of_reach(
        &mut self,
        task: Index,
        node: &NodeId,
        lost: &[&LostObject],
    ) -> BTreeMap<NodeIndex, Vec<Index>> {
        let Some(here) = self.known_node(node).filter(|here| self.is_up(*here)) else { return BTreeMap::new() };
        for lost in lost.iter().filter(|lost| lost.loss == Loss::Unreachable) {
            if let Some(there) = self.known_node(&lost.node).filter(|there| *there != here && self.is_up(*there)) {
                // Who is in unreachable pairs with several others explains this one.
                let news = !self.unreachable.has(here, there)
                    && !self.unreachable.is_alone(here)
                    && !self.unreachable.is_alone(there);
                self.unreachable.put(here, there);
                if news {
                    self.spread_suspicion(here, there);
                }
            }
        }
        let best = match self.key(task).pinned {
            Some(only) => only,
            None => {
                let held_at = self.held_by_args(task, &mut SetsAt::new());
                let rank = |at: &NodeIndex| (self.hidden(*at, &held_at), *at != here);
                self.candidates(task).min_by_key(rank).unwrap_or(here)
            }
        };
        self.rather_run(task, best);
        let mut given_up: BTreeMap<NodeIndex, Vec<Index>> = BTreeMap::new();
        for object in self.objects_of_args(task) {
            let (at, maker) = (self.objects[object].holder(), self.objects[object].task);
            if let (Some(at), Some(maker)) = (at.filter(|at| self.unreachable.has(best, *at)), maker) {
                self.rather_run(maker, best);
                given_up.entry(at).or_default().push(object);
            }
        }
        given_up
    }

    /// A task is to run where its arguments, or its readers, can be reached.
    fn rather_run(&mut self, task: Index, at: NodeIndex) {
        self.tasks[task].rare.change(|rare| rare.rather_at = Some(at));
    }

    /// One of the two may be cut off from all: the others are not to find that out one after the other.
    fn spread_suspicion(&mut self, here: NodeIndex, there: NodeIndex) {
        let id = |node: NodeIndex| self.nodes[usize::from(node)].id.clone();
        let of = [id(here), id(there)];
        let told = self.nodes.iter().filter(|node| node.alive);
        self.effects.extend(told.map(|node| Effect::SuspectUnreachable { node: node.id.clone(), of: of.clone() }));
    }

    /// The program could not be given an object that lies elsewhere: what makes it again does so where the program is.
    pub(super) fn out_of_our_reach(&mut self, object: Index, there: NodeIndex) {
        if let Some(home) = self.home.filter(|home| *home != there && self.is_up(there))
            && let Some(maker) = self.objects[object].task
        {
            self.rather_run(maker, home);
        }
    }

    /// Nodes that a task is kept from, since others can read more of its arguments.
    pub(super) fn kept_from(&self, task: Index, sets: &mut SetsAt) -> SmallVec<[NodeIndex; 4]> {
        if self.unreachable.is_empty() {
            return SmallVec::new();
        }
        let held_at = self.held_by_args(task, sets);
        let hidden: SmallVec<[(NodeIndex, Hidden); 4]> =
            self.candidates(task).map(|node| (node, self.hidden(node, &held_at))).collect();
        let least = hidden.iter().map(|(_, hidden)| *hidden).min().unwrap_or_default();
        hidden.iter().filter(|(_, hidden)| *hidden > least).map(|(node, _)| *node).collect()
    }

    fn is_up(&self, node: NodeIndex) -> bool {
        self.nodes[usize::from(node)].alive
    }

    /// Nodes where the task could run.
    fn candidates(&self, task: Index) -> impl Iterator<Item = NodeIndex> {
        let (function, shape) = (self.tasks[task].function, self.key(task).shape);
        let nodes = self.nodes.iter().zip(0..);
        nodes.filter(move |(node, _)| node.takes(function, shape, &self.options.shapes)).map(|(_, index)| index)
    }

    fn hidden(&self, from: NodeIndex, held_at: &HeldAt) -> Hidden {
        let out_of_reach = held_at.iter().filter(|(at, _)| self.unreachable.has(from, *at)).map(|(_, held)| held);
        out_of_reach.fold((0, 0), |sum, held| (sum.0 + held.irreplaceable, sum.1 + held.bytes))
    }

    fn held_of(&self, objects: impl Iterator<Item = Index>) -> HeldAt {
        let mut held_at = HeldAt::new();
        for object in objects.map(|object| &self.objects[object]) {
            if let Some(at) = object.holder() {
                let irreplaceable = u64::from(object.task.is_none());
                add(&mut held_at, at, Held { irreplaceable, bytes: object.output().bytes });
            }
        }
        held_at
    }

    fn held_by_args(&self, task: Index, sets: &mut SetsAt) -> HeldAt {
        let mut held_at = HeldAt::new();
        for arg in &self.tasks[task].args {
            match arg.source {
                EntrySource::Object(object) => {
                    let held = self.held_of(std::iter::once(object));
                    held.into_iter().for_each(|(at, held)| add(&mut held_at, at, held));
                }
                EntrySource::Set(set) => {
                    let held = sets.entry(set).or_insert_with(|| self.held_of(self.sets[set].members.iter().copied()));
                    held.iter().for_each(|(at, held)| add(&mut held_at, *at, *held));
                }
            }
        }
        held_at
    }

    fn objects_of_args(&self, task: Index) -> Vec<Index> {
        let objects = self.tasks[task].args.iter().flat_map(|arg| match arg.source {
            EntrySource::Object(object) => vec![object],
            EntrySource::Set(set) => self.sets[set].members.to_vec(),
        });
        objects.collect()
    }
}
