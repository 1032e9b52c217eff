//! Which leased slot a runnable task gets. Pure: tables in, a node out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::tables::Told;
use crate::arena::Index;
use crate::ids::{Incarnation, NodeId};
use crate::task::Resources;

/// Index of a node in a job's table of nodes; nodes are never removed from it.
pub(super) type NodeIndex = u16;
/// Index of an interned [`Resources`].
pub(super) type Shape = u16;
/// Index of an interned function.
pub(super) type FunctionIndex = u32;

/// Work that a node may have queued beyond what it runs, as time: enough to hide a round trip over the bus.
const QUEUED_MICROS: u64 = 4_000;
/// At least this many tasks are queued per slot, so that arguments are fetched while earlier tasks run.
const QUEUED_PER_SLOT_MIN: u64 = 2;
/// At most this many are queued per slot, however short they are.
const QUEUED_PER_SLOT_MAX: u64 = 256;
/// For so many seconds, a node on which a task found no room on any disk gets no others as long as there are nodes that have.
pub(super) const FULL_TICKS: u8 = 10;
/// Slots of a node for tasks that need nothing.
const FREE_SLOTS: u64 = 64;

/// What a job knows of a node.
#[derive(Debug)]
pub(super) struct NodeView {
    pub(super) id: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) alive: bool,
    pub(super) leased: Resources,
    /// What the Scheduler could lend there at most, as far as it is known.
    pub(super) could_lend: Resources,
    /// Tasks handed over and not yet back, by shape and function.
    pub(super) in_flight: BTreeMap<(Shape, FunctionIndex), u64>,
    /// Tasks given so far, by function: what `Place::Spread` evens out.
    pub(super) given: BTreeMap<FunctionIndex, u64>,
    /// What it says it can run; `None` until it is heard: then nothing is placed there.
    pub(super) functions: Option<BTreeSet<Arc<str>>>,
    /// Of the job's functions: those that it is known to lack.
    pub(super) lacks: BTreeSet<FunctionIndex>,
    /// What it has last said that it has been running for a while.
    pub(super) long_running: Vec<Told>,
    /// Attempts that were ended and run on there, each on an executor.
    pub(super) lingering: u64,
    /// Whether what an earlier incarnation had, or this one when it was called dead, was given up: it may be there still.
    pub(super) lost: bool,
    /// For so many seconds more its disks are held for full.
    pub(super) full_ticks: u8,
}

impl NodeView {
    pub(super) fn new(id: NodeId, incarnation: Incarnation) -> Self {
        Self {
            id,
            incarnation,
            alive: true,
            leased: Resources::default(),
            could_lend: Resources::default(),
            in_flight: BTreeMap::new(),
            given: BTreeMap::new(),
            functions: None,
            lacks: BTreeSet::new(),
            long_running: Vec::new(),
            lingering: 0,
            lost: false,
            full_ticks: 0,
        }
    }

    /// A task found no room on any disk.
    pub(super) fn found_full(&mut self) {
        self.full_ticks = FULL_TICKS;
    }

    /// Whether it is known to have the function.
    pub(super) fn has(&self, function: FunctionIndex) -> bool {
        self.functions.is_some() && !self.lacks.contains(&function)
    }

    fn slots(&self, need: &Resources) -> u64 {
        if self.leased.0.is_empty() {
            return 0;
        }
        self.leased.times(need).min(FREE_SLOTS).saturating_sub(self.lingering)
    }

    /// Whether it has tasks and no slot that any of them could run on.
    pub(super) fn is_stuck(&self, shapes: &[Resources]) -> bool {
        let mut shapes_there = self.in_flight.iter().filter(|(_, tasks)| **tasks > 0).peekable();
        shapes_there.peek().is_some()
            && shapes_there.all(|((shape, _), _)| self.slots(&shapes[usize::from(*shape)]) == 0)
    }

    /// Thousandths of the node's leased capacity that is taken, queued tasks included: 1000 is "every slot is busy".
    pub(super) fn load(&self, shapes: &[Resources]) -> u64 {
        self.in_flight
            .iter()
            .map(|((shape, _), tasks)| match self.slots(&shapes[usize::from(*shape)]) {
                0 => tasks * 1000,
                slots => tasks * 1000 / slots,
            })
            .sum()
    }

    /// Whether tasks of this function and shape can run there now, one after the other.
    pub(super) fn takes(&self, function: FunctionIndex, shape: Shape, shapes: &[Resources]) -> bool {
        self.alive && self.has(function) && self.slots(&shapes[usize::from(shape)]) > 0
    }

    /// Whether one more task of this function and shape may be handed over.
    fn accepts(&self, function: FunctionIndex, shape: Shape, shapes: &[Resources], mean_micros: u64) -> bool {
        self.takes(function, shape, shapes) && self.load(shapes) < 1000 * (1 + queued_per_slot(mean_micros))
    }
}

/// How many tasks may be queued per slot when one takes `mean_micros` (0: not known yet).
pub(super) fn queued_per_slot(mean_micros: u64) -> u64 {
    match mean_micros {
        0 => QUEUED_PER_SLOT_MIN,
        mean => (QUEUED_MICROS / mean).clamp(QUEUED_PER_SLOT_MIN, QUEUED_PER_SLOT_MAX),
    }
}

/// What decides where a task may go: tasks of one key wait in one queue, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Tasks bound to a node; they come first, since nobody else can take their place.
    pub(super) pinned: Option<NodeIndex>,
    pub(super) shape: Shape,
    /// The function, where some node lacks it: then its tasks wait for other nodes than those behind them.
    pub(super) function: Option<FunctionIndex>,
}

/// How a task likes to be placed, reduced to what the choice needs.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Least loaded.
    Anywhere,
    /// This node if it accepts, else least loaded.
    Soft(NodeIndex),
    /// Only this node.
    Hard(NodeIndex),
    /// The first of these that accepts (most argument bytes first), else least loaded.
    Near(Vec<NodeIndex>),
    /// Fewest tasks of the function so far.
    Spread,
}

/// Runnable tasks that wait for a slot.
#[derive(Debug, Default)]
pub(super) struct ReadyQueues(BTreeMap<(bool, Key), VecDeque<Index>>);

impl ReadyQueues {
    /// Adds a task at the end of its queue, or at the front for a new attempt of an old task.
    pub(super) fn push(&mut self, key: Key, task: Index, front: bool) {
        let queue = self.0.entry((key.pinned.is_none(), key)).or_default();
        if front { queue.push_front(task) } else { queue.push_back(task) }
    }

    /// The keys that have tasks, bound ones first.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.0.iter().filter(|(_, queue)| !queue.is_empty()).map(|((_, key), _)| *key).collect()
    }

    pub(super) fn front(&self, key: Key) -> Option<Index> {
        self.0.get(&(key.pinned.is_none(), key))?.front().copied()
    }

    pub(super) fn pop(&mut self, key: Key) -> Option<Index> {
        self.0.get_mut(&(key.pinned.is_none(), key))?.pop_front()
    }

    pub(super) fn remove(&mut self, key: Key, task: Index) {
        if let Some(queue) = self.0.get_mut(&(key.pinned.is_none(), key)) {
            queue.retain(|other| *other != task);
        }
    }

    /// Waiting tasks by key.
    pub(super) fn waiting(&self) -> BTreeMap<Key, u64> {
        let waiting = self.0.iter().filter(|(_, queue)| !queue.is_empty());
        waiting.map(|((_, key), queue)| (*key, queue.len() as u64)).collect()
    }

    /// All waiting tasks, queue by queue, each in its order.
    pub(super) fn into_tasks(self) -> impl Iterator<Item = Index> {
        self.0.into_values().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(VecDeque::is_empty)
    }
}

/// The node that gets a task of `function` and `shape` now, none of `kept_from`; `None` when it has to wait.
pub(super) fn choose(
    nodes: &[NodeView],
    shapes: &[Resources],
    shape: Shape,
    function: FunctionIndex,
    mean_micros: u64,
    wish: &Wish,
    kept_from: &[NodeIndex],
) -> Option<NodeIndex> {
    let full = |node: &NodeView| node.full_ticks > 0;
    let is_kept = |index: NodeIndex| kept_from.contains(&index);
    let could = |node: &NodeView| node.takes(function, shape, shapes);
    let empty_one = |(node, index): (&NodeView, NodeIndex)| could(node) && !full(node) && !is_kept(index);
    let avoid_full = nodes.iter().any(full) && nodes.iter().zip(0..).any(empty_one);
    let takes = |index: NodeIndex| nodes[usize::from(index)].accepts(function, shape, shapes, mean_micros);
    let accepts =
        |index: NodeIndex| takes(index) && !is_kept(index) && !(avoid_full && full(&nodes[usize::from(index)]));
    match wish {
        Wish::Hard(node) => return takes(*node).then_some(*node),
        Wish::Soft(node) if accepts(*node) => return Some(*node),
        // A node that is merely closer is not worth a queue while another one idles.
        Wish::Near(near) => {
            let idle = |index: NodeIndex| nodes[usize::from(index)].load(shapes) < 1000;
            let anyone_idle = (0..nodes.len() as NodeIndex).any(|index| accepts(index) && idle(index));
            let good = |index: &&NodeIndex| accepts(**index) && (idle(**index) || !anyone_idle);
            if let Some(node) = near.iter().find(good) {
                return Some(*node);
            }
        }
        Wish::Anywhere | Wish::Soft(_) | Wish::Spread => {}
    }
    let spread = matches!(wish, Wish::Spread);
    (0..nodes.len() as NodeIndex).filter(|index| accepts(*index)).min_by_key(|index| {
        let node = &nodes[usize::from(*index)];
        let given = node.given.get(&function).copied().unwrap_or(0);
        if spread { (given, node.load(shapes)) } else { (node.load(shapes), given) }
    })
}

/// The node with the most room for one more task of `function` and `shape`, none of `not`, where it would start at once.
pub(super) fn idle(
    nodes: &[NodeView],
    shapes: &[Resources],
    shape: Shape,
    function: FunctionIndex,
    not: &[NodeIndex],
) -> Option<NodeIndex> {
    let starts = |index: &NodeIndex| {
        let node = &nodes[usize::from(*index)];
        let slots = node.slots(&shapes[usize::from(shape)]);
        !not.contains(index)
            && node.takes(function, shape, shapes)
            && node.full_ticks == 0
            && node.load(shapes) + 1000 / slots <= 1000
    };
    let order = |index: &NodeIndex| {
        let node = &nodes[usize::from(*index)];
        (node.load(shapes), node.given.get(&function).copied().unwrap_or(0))
    };
    (0..nodes.len() as NodeIndex).filter(starts).min_by_key(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: u64, tasks: u64) -> NodeView {
        let mut node = NodeView::new(NodeId::new(name), Incarnation(1));
        node.leased = Resources::cpu(cpu);
        node.in_flight.insert((0, 0), tasks);
        node.functions = Some(BTreeSet::new());
        node
    }

    fn pick(nodes: &[NodeView], wish: Wish) -> Option<NodeIndex> {
        choose(nodes, &[Resources::cpu(1000)], 0, 0, 1_000_000, &wish, &[])
    }

    #[test]
    fn the_least_loaded_node_gets_the_task() {
        assert_eq!(pick(&[node("a", 2000, 2), node("b", 2000, 1)], Wish::Anywhere), Some(1));
        assert_eq!(pick(&[node("a", 4000, 2), node("b", 1000, 1)], Wish::Anywhere), Some(0), "load is per slot");
    }

    #[test]
    fn two_long_tasks_are_queued_per_slot_and_no_more() {
        assert_eq!(pick(&[node("a", 1000, 2)], Wish::Anywhere), Some(0));
        assert_eq!(pick(&[node("a", 1000, 3)], Wish::Anywhere), None);
    }

    #[test]
    fn short_tasks_are_queued_deeper() {
        assert_eq!(queued_per_slot(0), 2);
        assert_eq!(queued_per_slot(10), 256);
        assert_eq!(queued_per_slot(100), 40);
        assert_eq!(queued_per_slot(1_000_000), 2);
    }

    #[test]
    fn a_bound_task_waits_for_its_node() {
        let nodes = [node("a", 1000, 3), node("b", 1000, 0)];
        assert_eq!(pick(&nodes, Wish::Hard(0)), None);
        assert_eq!(pick(&nodes, Wish::Soft(0)), Some(1));
    }

    #[test]
    fn arguments_attract_unless_their_node_is_busy_and_another_idle() {
        let near = || Wish::Near(vec![0]);
        assert_eq!(pick(&[node("a", 1000, 0), node("b", 1000, 0)], near()), Some(0));
        assert_eq!(pick(&[node("a", 1000, 1), node("b", 1000, 0)], near()), Some(1));
        assert_eq!(pick(&[node("a", 1000, 2), node("b", 1000, 1)], near()), Some(0));
    }

    #[test]
    fn a_dead_or_unleased_node_gets_nothing() {
        let mut dead = node("a", 1000, 0);
        dead.alive = false;
        assert_eq!(pick(&[dead, node("b", 0, 0)], Wish::Anywhere), None);
    }

    #[test]
    fn a_node_without_the_function_gets_nothing_whatever_the_wish() {
        let lacking = || {
            let mut node = node("a", 4000, 0);
            node.lacks.insert(0);
            node
        };
        for wish in [Wish::Anywhere, Wish::Spread, Wish::Soft(0), Wish::Near(vec![0])] {
            assert_eq!(pick(&[lacking(), node("b", 1000, 2)], wish.clone()), Some(1), "{wish:?}");
            assert_eq!(pick(&[lacking()], wish.clone()), None, "{wish:?}");
        }
        assert_eq!(pick(&[lacking(), node("b", 1000, 0)], Wish::Hard(0)), None);
        let nodes = [lacking(), node("b", 1000, 2)];
        let other = choose(&nodes, &[Resources::cpu(1000)], 0, 1, 1_000_000, &Wish::Anywhere, &[]);
        assert_eq!(other, Some(0), "what it has, it gets");
    }

    #[test]
    fn a_node_that_has_not_said_what_it_has_gets_nothing() {
        let mut unheard = node("a", 1000, 0);
        unheard.functions = None;
        assert_eq!(pick(&[unheard], Wish::Anywhere), None);
    }
}
