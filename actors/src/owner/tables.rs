//! The tables of a job: what is known of its tasks, objects, sets, options and nodes, and how each is found.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::exchange::Ledger;
use super::placement::{FunctionIndex, Key, NodeIndex, NodeView, ReadyQueues, Shape};
use super::rare::{OfObject, OfTask, Rare, Waiter};
use super::reach::UnreachablePairs;
use super::resume::Resumed;
use super::run_times::RunTimes;
use super::state::{Effect, Tracker};
use crate::arena::{Arena, Index};
use crate::ids::{Attempt, Incarnation, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::task::Exchange;
use crate::task::{Description, JobError, Output, Parts, Place, Resources, Returns, StillRunning, TaskOptions};

/// A node index that stands for "nowhere".
pub(super) const NOWHERE: NodeIndex = NodeIndex::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To run again; its arguments have not been asked for yet.
    Wanted,
    Waiting {
        missing: u32,
    },
    Ready,
    Running,
    Done,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Pending,
    Here,
    Freed,
}

/// An argument with its source resolved to a table index.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArgEntry {
    pub(super) source: EntrySource,
    pub(super) parts: Parts,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EntrySource {
    Object(Index),
    Set(Index),
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) params: Box<[u8]>,
    pub(super) args: Box<[ArgEntry]>,
    pub(super) function: u32,
    pub(super) options: u32,
    pub(super) outputs: u32,
    /// Attempts made, recalled ones too: an old message never fits a new attempt.
    pub(super) attempts: u32,
    /// Attempts that count against the limit.
    pub(super) tries: u32,
    /// Taken back from the queue of a node, and not placed since.
    pub(super) recalled: bool,
    /// The program can do without it.
    pub(super) dispensable: bool,
    /// An attempt was accepted, and what it read is in the books.
    pub(super) counted: bool,
    pub(super) state: State,
    pub(super) live: SmallVec<[(Attempt, NodeIndex); 1]>,
    /// It has been given a second attempt beside one that runs.
    pub(super) copied: bool,
    pub(super) rare: Rare<OfTask>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: ObjectId,
    pub(super) output: Output,
    pub(super) task: Option<Index>,
    pub(super) references: u32,
    pub(super) lineage: u32,
    pub(super) at: NodeIndex,
    pub(super) value: Value,
    /// Whether the exchanges it belongs to have counted it.
    pub(super) accounted: bool,
    /// Whether `output` is known: it was made once.
    pub(super) made: bool,
    pub(super) rare: Rare<OfObject>,
}

impl Object {
    pub(super) fn pending(id: ObjectId, task: Index, references: u32) -> Self {
        let (task, value) = (Some(task), Value::Pending);
        let output = Output::default();
        let (at, rare) = (NOWHERE, Rare::default());
        Self { id, output, task, references, lineage: 0, at, value, accounted: false, made: false, rare }
    }

    /// This one waits for its value.
    pub(super) fn add_waiter(&mut self, waiter: Waiter) {
        self.rare.change(|rare| rare.waiters.push(waiter));
    }

    /// This one waits no more.
    pub(super) fn forget_waiter(&mut self, waiter: Waiter) {
        self.rare.change_if_there(|rare| rare.waiters.retain(|other| *other != waiter));
    }

    /// Takes who waits for its value.
    pub(super) fn take_waiters(&mut self) -> SmallVec<[Waiter; 1]> {
        self.rare.change_if_there(|rare| std::mem::take(&mut rare.waiters))
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.rare.get().is_some_and(|rare| !rare.waiters.is_empty())
    }

    /// The bytes of the value are known: should its node be lost, they are there still. Others than those of `output` are not taken.
    pub(super) fn keep_bytes(&mut self, bytes: &[u8]) {
        if self.output.bytes == bytes.len() as u64 {
            self.rare.change(|rare| rare.bytes = Some(bytes.into()));
        }
    }

    /// What is known of its bytes.
    pub(super) fn kept_bytes(&self) -> Option<Bytes> {
        let bytes = self.rare.get()?.bytes.as_deref()?;
        (bytes.len() as u64 == self.output.bytes).then(|| Bytes::copy_from_slice(bytes))
    }

    pub(super) fn forget_bytes(&mut self) {
        self.rare.change_if_there(|rare| rare.bytes = None);
    }

    /// The node with which its value was lost, as long as that has not been made again.
    pub(super) fn lost_at(&self) -> Option<NodeIndex> {
        self.rare.get()?.lost_at
    }

    pub(super) fn was_lost_at(&mut self, node: NodeIndex) {
        self.rare.change(|rare| rare.lost_at = Some(node));
    }

    pub(super) fn forget_loss(&mut self) {
        self.rare.change_if_there(|rare| rare.lost_at = None);
    }
}

impl Task {
    /// Why it failed.
    pub(super) fn failure(&self) -> Option<&JobError> {
        self.rare.get()?.failure.as_ref()
    }

    /// Takes who reads its outputs as they come.
    pub(super) fn take_readers(&mut self) -> SmallVec<[Tracker; 1]> {
        self.rare.change_if_there(|rare| std::mem::take(&mut rare.readers))
    }
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: SetId,
    pub(super) members: Box<[Index]>,
    pub(super) references: u32,
    pub(super) lineage: u32,
    pub(super) missing: u32,
    /// Whether all missing members have been asked for.
    pub(super) asked: bool,
    pub(super) books: Books,
    /// Nodes that know the members, or will when they have handled what was sent.
    pub(super) defined: BTreeSet<NodeIndex>,
    /// Tasks that wait until nothing is missing.
    pub(super) waiters: Vec<Index>,
}

/// Where what goes through a set is counted.
#[derive(Debug)]
pub(super) enum Books {
    /// Nowhere: it is no exchange.
    None,
    /// In books of its own.
    Own(Ledger),
    /// In those of all sets of this exchange.
    Shared(Arc<Exchange>),
}

/// Interned options, with what placement needs of them.
#[derive(Debug)]
pub(super) struct OptionsEntry {
    pub(super) options: TaskOptions,
    pub(super) key: Key,
}

/// A function of which the job has tasks.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    /// The name without the version: what people see.
    pub(super) stage: Arc<str>,
    /// Whether two attempts of a task of it give the same.
    pub(super) deterministic: bool,
    /// Whether its tasks publish what the job has made.
    pub(super) commits: bool,
    pub(super) stats: FunctionStats,
}

#[derive(Debug, Default)]
pub(super) struct FunctionStats {
    /// Of the last few tasks.
    pub(super) mean_micros: u64,
    /// Of all tasks.
    pub(super) times: RunTimes,
}

/// What a node has last said of an attempt that it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) running: StillRunning,
    /// How many tasks have finished; since 0: none since it began, as far as is known.
    pub(super) finished: SeenCount,
    /// How many of the tasks that the job can do without have finished.
    pub(super) dispensable_finished: SeenCount,
}

/// A count, as it stood while an attempt ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenCount {
    pub(super) count: u64,
    /// For how long the attempt had been running when the count was first seen to be that, microseconds.
    pub(super) since: u64,
}

impl SeenCount {
    /// The same count as `before`, or another one, which was seen just now; `first`: since when the first one is taken to stand.
    pub(super) fn seen(before: Option<Self>, count: u64, now: u64, first: u64) -> Self {
        let since = match before {
            None => first,
            Some(before) if before.count == count => before.since,
            Some(_) => now,
        };
        Self { count, since }
    }
}

/// Numbers about a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) submitted: u64,
    pub(crate) finished: u64,
    pub(crate) failed_attempts: u64,
    /// Tasks that were done and ran again, since what they had made was gone.
    pub(crate) replayed: u64,
    pub(crate) running: u64,
}

/// The tables of one job.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub(super) job: JobId,
    pub(super) tasks: Arena<Task>,
    pub(super) objects: Arena<Object>,
    pub(super) sets: Arena<Set>,
    pub(super) by_object: HashTable<Index>,
    pub(super) by_set: BTreeMap<SetId, Index>,
    /// Books that several sets share.
    pub(super) shared_books: BTreeMap<Arc<Exchange>, Ledger>,
    pub(super) retired: HashSet<TaskId>,
    /// Tasks that failed or were cancelled, and that nobody refers to.
    pub(super) abandoned: HashSet<TaskId>,
    /// No task of either kind has made more attempts.
    pub(super) attempts_before: u32,
    /// Attempts of earlier runs have numbers up to this one.
    pub(super) attempts_from: u32,
    /// What earlier runs have left.
    pub(super) resumed: Resumed,
    /// The node of the Owner itself, once it has said so.
    pub(super) home: Option<NodeIndex>,
    /// Tasks in the state `Wanted`.
    pub(super) wanted: Vec<Index>,
    /// How often something was lost.
    pub(super) losses: u64,
    pub(super) unreachable: UnreachablePairs,
    /// How many running tasks have been given a second attempt.
    pub(super) copies: u64,
    /// How many tasks have finished that the program could have done without.
    pub(super) dispensable_finished: u64,
    /// Final failures that nobody has been told of.
    pub(super) unobserved: BTreeMap<TaskId, JobError>,
    pub(super) functions: Vec<Function>,
    pub(super) function_index: HashMap<Arc<str>, FunctionIndex>,
    /// A task that publishes what the job has made has completed.
    pub(super) committed: bool,
    pub(super) options: Vec<OptionsEntry>,
    pub(super) option_index: HashMap<TaskOptions, u32>,
    pub(super) shapes: Vec<Resources>,
    pub(super) nodes: Vec<NodeView>,
    /// Functions that some node lacks.
    pub(super) scarce: BTreeSet<FunctionIndex>,
    pub(super) ready: ReadyQueues,
    pub(super) demanded: BTreeMap<Key, u64>,
    pub(super) counts: Counts,
    /// An exchange that did not balance when it was released; told when the program ends well.
    pub(super) unbalanced: Option<JobError>,
    pub(super) effects: Vec<Effect>,
}

/// Where a member of a set is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    At(NodeId),
    /// It has no bytes, so it is nowhere.
    NoBytes,
    /// It has bytes, and they are nowhere just now. Who is told so must not take it for one without.
    Lost,
}

impl OwnerState {
    pub(crate) fn new(job: JobId) -> Self {
        Self {
            job,
            tasks: Arena::default(),
            objects: Arena::default(),
            sets: Arena::default(),
            by_object: HashTable::new(),
            by_set: BTreeMap::new(),
            shared_books: BTreeMap::new(),
            retired: HashSet::new(),
            abandoned: HashSet::new(),
            attempts_before: 0,
            attempts_from: 0,
            resumed: Resumed::default(),
            home: None,
            wanted: Vec::new(),
            losses: 0,
            unreachable: UnreachablePairs::default(),
            copies: 0,
            dispensable_finished: 0,
            unobserved: BTreeMap::new(),
            functions: Vec::new(),
            function_index: HashMap::new(),
            committed: false,
            options: Vec::new(),
            option_index: HashMap::new(),
            shapes: Vec::new(),
            nodes: Vec::new(),
            scarce: BTreeSet::new(),
            ready: ReadyQueues::default(),
            demanded: BTreeMap::new(),
            counts: Counts::default(),
            unbalanced: None,
            effects: Vec::new(),
        }
    }

    /// Entries for tasks, objects and sets.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.tasks.len(), self.objects.len(), self.sets.len())
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Members of a set and where each is, by position.
    pub(crate) fn set_members(&self, set: SetId) -> Vec<(ObjectId, Whereabouts)> {
        let Some(set) = self.by_set.get(&set) else { return Vec::new() };
        let members = self.sets[*set].members.iter().map(|member| &self.objects[*member]);
        members.map(|object| (object.id, self.whereabouts(object))).collect()
    }

    fn whereabouts(&self, object: &Object) -> Whereabouts {
        match self.holder(object) {
            Some(node) => Whereabouts::At(node),
            None if object.output.bytes > 0 => Whereabouts::Lost,
            None => Whereabouts::NoBytes,
        }
    }

    /// Whether an output of this task is a member of a set.
    pub(crate) fn has_member_of(&self, set: SetId, task: TaskId) -> bool {
        let Some(set) = self.by_set.get(&set) else { return false };
        let maker = |member: &Index| self.objects[*member].task.map(|task| self.tasks[task].id);
        self.sets[*set].members.iter().any(|member| maker(member) == Some(task))
    }

    /// The books of a set, where it is an exchange.
    pub(super) fn ledger(&mut self, set: Index) -> Option<&mut Ledger> {
        match &mut self.sets[set].books {
            Books::None => None,
            Books::Own(ledger) => Some(ledger),
            Books::Shared(exchange) => self.shared_books.get_mut(exchange),
        }
    }

    /// Where what goes through a new set is counted.
    pub(super) fn books(&mut self, exchange: Option<Exchange>) -> Books {
        match exchange {
            None => Books::None,
            Some(exchange) if exchange.shared => {
                let ledger = Ledger::new(exchange.clone());
                let exchange = Arc::new(exchange);
                self.shared_books.entry(exchange.clone()).or_insert(ledger);
                Books::Shared(exchange)
            }
            Some(exchange) => Books::Own(Ledger::new(exchange)),
        }
    }

    pub(super) fn holder(&self, object: &Object) -> Option<NodeId> {
        (object.output.bytes > 0 && object.at != NOWHERE).then(|| self.nodes[usize::from(object.at)].id.clone())
    }

    /// Bytes of the entries alone, which are quickly counted.
    pub(crate) fn entries_bytes(&self) -> u64 {
        (self.tasks.bytes() + self.objects.bytes() + self.sets.bytes()) as u64
    }

    /// Bytes that these tables take: entries, hash tables, and the heap behind each task.
    pub(crate) fn bytes(&self) -> u64 {
        // glibc rounds to 16 and adds 8.
        let heap = |bytes: usize| if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) };
        let behind: usize = self
            .tasks
            .iter()
            .map(|(_, task)| heap(task.params.len()) + heap(size_of_val(&*task.args)) + heap(task.rare.bytes()))
            .sum::<usize>();
        let of_set = |set: &Set| heap(size_of_val(&*set.members)) + heap(set.waiters.capacity() * size_of::<Index>());
        let members: usize = self.sets.iter().map(|(_, set)| of_set(set)).sum();
        let of_object = |object: &Object| {
            let more =
                |rare: &OfObject| heap(rare.bytes.as_ref().map_or(0, |bytes| bytes.len())) + heap(rare.waiters_bytes());
            heap(object.rare.bytes()) + object.rare.get().map_or(0, more)
        };
        let rare: usize = self.objects.iter().map(|(_, object)| of_object(object)).sum();
        let ids = self.retired.capacity() * (size_of::<TaskId>() + 1) + self.by_object.capacity() * 5;
        let tables = self.tasks.bytes() + self.objects.bytes() + self.sets.bytes();
        (tables + behind + members + rare + ids) as u64
    }

    pub(super) fn key(&self, task: Index) -> Key {
        let entry = &self.tasks[task];
        let key = self.options[entry.options as usize].key;
        Key { function: self.if_scarce(entry.function), pinned: self.retried_at(task).or(key.pinned), ..key }
    }

    pub(super) fn is_stream(&self, task: Index) -> bool {
        self.options[self.tasks[task].options as usize].options.returns == Returns::Stream
    }

    pub(super) fn object_of(&self, id: ObjectId) -> Option<Index> {
        self.by_object.find(object_hash(id), |index| self.objects[*index].id == id).copied()
    }

    pub(super) fn find_task(&self, id: TaskId) -> Option<Index> {
        let object = self.object_of(id.output(0)).or_else(|| self.object_of(marker(id)))?;
        self.objects[object].task.filter(|task| self.tasks[*task].id == id)
    }

    pub(super) fn add_object(&mut self, object: Object) -> Index {
        let hash = object_hash(object.id);
        let index = self.objects.insert(object);
        let objects = &self.objects;
        self.by_object.insert_unique(hash, index, |index| object_hash(objects[*index].id));
        index
    }

    pub(super) fn known_node(&self, id: &NodeId) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.id == *id).map(|index| index as NodeIndex)
    }

    pub(super) fn node_or_add(&mut self, id: &NodeId) -> NodeIndex {
        match self.known_node(id) {
            Some(index) => index,
            None => self.node_index(id, Incarnation(0)),
        }
    }

    pub(super) fn node_index(&mut self, id: &NodeId, incarnation: Incarnation) -> NodeIndex {
        if let Some(index) = self.known_node(id) {
            let node = &self.nodes[usize::from(index)];
            if node.incarnation < incarnation {
                let over = node.incarnation != Incarnation(0) && node.alive;
                if over {
                    // It ended before anybody called it dead.
                    self.life_over(index);
                }
                let node = &mut self.nodes[usize::from(index)];
                node.incarnation = incarnation;
                node.alive = true;
                node.functions = None;
                if std::mem::take(&mut node.lost) {
                    self.effects.push(Effect::TakeStock { node: id.clone() });
                }
            }
            return index;
        }
        self.nodes.push(NodeView::new(id.clone(), incarnation));
        // It may have worked for an earlier run.
        if self.attempts_from > 0 && incarnation != Incarnation(0) {
            self.effects.push(Effect::TakeStock { node: id.clone() });
        }
        (self.nodes.len() - 1) as NodeIndex
    }

    pub(super) fn intern_function(&mut self, description: &Description) -> FunctionIndex {
        let name = &description.function;
        if let Some(index) = self.function_index.get(name) {
            return *index;
        }
        let index = self.functions.len() as FunctionIndex;
        self.functions.push(Function {
            name: name.clone(),
            stage: name.split('@').next().unwrap_or_default().into(),
            deterministic: description.deterministic,
            commits: description.commits,
            stats: FunctionStats::default(),
        });
        self.function_index.insert(name.clone(), index);
        self.look_for(index);
        index
    }

    /// The function of a task.
    pub(super) fn function(&self, task: Index) -> &Function {
        &self.functions[self.tasks[task].function as usize]
    }

    /// What people call the function of a task.
    pub(super) fn stage(&self, task: Index) -> Arc<str> {
        self.function(task).stage.clone()
    }

    /// Whether a running task has a second attempt.
    pub(super) fn set_copied(&mut self, task: Index, copied: bool) {
        match (std::mem::replace(&mut self.tasks[task].copied, copied), copied) {
            (false, true) => self.copies += 1,
            (true, false) => self.copies -= 1,
            _ => {}
        }
    }

    pub(super) fn intern_options(&mut self, mut options: TaskOptions) -> u32 {
        // The salt is in the id already; keeping it would make a table entry of every salted task.
        options.salt = 0;
        if let Some(index) = self.option_index.get(&options) {
            return *index;
        }
        let shape = self.intern_shape(&options.resources);
        let (mut pinned, mut kept) = (None, options.clone());
        if let Place::Node { node, soft } = &mut kept.place
            && !*soft
        {
            pinned = Some(self.node_or_add(node)).filter(|node| self.nodes[usize::from(*node)].alive);
            // What would bind it to a dead node is gone with that.
            *soft = pinned.is_none();
        }
        let index = self.options.len() as u32;
        self.options.push(OptionsEntry { options: kept, key: Key { pinned, shape, function: None } });
        self.option_index.insert(options, index);
        index
    }

    pub(super) fn intern_shape(&mut self, resources: &Resources) -> Shape {
        if let Some(index) = self.shapes.iter().position(|shape| shape == resources) {
            return index as Shape;
        }
        self.shapes.push(resources.clone());
        (self.shapes.len() - 1) as Shape
    }
}

pub(super) fn object_hash(id: ObjectId) -> u64 {
    // Ids are hashes already; fold the halves.
    (id.0 as u64) ^ ((id.0 >> 64) as u64)
}

/// The entry that stands for a task with several outputs, or a stream of them, as a whole.
pub(super) fn marker(task: TaskId) -> ObjectId {
    ObjectId(!task.as_u128())
}
