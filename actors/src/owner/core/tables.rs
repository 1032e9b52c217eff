//! The tables of a job: what is known of its tasks, objects, sets, options and nodes, and how each is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet, HashTable};

use super::commit::Commit;
use super::edge::EdgeEntry;
use super::object::Object;
use super::placement::{FunctionIndex, Key, NodeIndex, NodeView, ReadyQueues, Shape};
use super::quota::QuotaUse;
use super::rare::OfObject;
use super::reach::UnreachablePairs;
use super::resume::Resumed;
use super::run_times::RunTimes;
use super::set::Set;
use super::state::Effect;
use super::task::Task;
use crate::arena::{Arena, Index};
use crate::ids::{CopyId, CopyNumber, EdgeId, Incarnation, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::protocol::copies::Whereabouts;
use crate::task::{Description, JobError, Parts, Place, Resources, Returns, StillRunning, TaskOptions};

/// An argument with its source resolved to a table index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArgEntry {
    pub(super) source: EntrySource,
    pub(super) parts: Parts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntrySource {
    Object(Index),
    Set(Index),
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
    /// Running tasks that have been given a second attempt.
    pub(super) speculated: u64,
    /// Tasks that have finished and that the program could have done without.
    pub(super) dispensable_finished: u64,
    /// What attempts that have ended had printed.
    pub(super) printed_bytes: u64,
}

/// Tasks that nobody refers to any more: no more than their ids is known.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) done: HashSet<TaskId>,
    /// Failed or cancelled, and whether what they had read before was counted.
    pub(super) failed: HashMap<TaskId, bool>,
    /// How many numbers a task of either kind was given, where that was more than one.
    pub(super) numbers: HashMap<TaskId, u32>,
}

/// From where to where the numbers of copies count.
#[derive(Debug)]
pub(super) struct Numbering {
    /// Which run of the job this is, from 0.
    pub(super) run: u32,
    /// Most numbers that a task can be given in a run.
    pub(super) most: u32,
    /// How many copies of what the program had put were put back.
    pub(super) put_back: u32,
}

impl Numbering {
    /// The next number for a copy of what the program had put, which no other such copy of this run has.
    pub(super) fn next_of_put(&mut self) -> Option<CopyNumber> {
        let number = CopyNumber::put_back(self.run, self.put_back)?;
        self.put_back += 1;
        Some(number)
    }
}

/// Options of tasks, each once, and what tasks need.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) entries: Vec<OptionsEntry>,
    index: HashMap<TaskOptions, u32>,
    pub(super) shapes: Vec<Resources>,
}

impl std::ops::Index<usize> for Options {
    type Output = OptionsEntry;

    fn index(&self, index: usize) -> &OptionsEntry {
        &self.entries[index]
    }
}

/// Functions of which the job has tasks.
#[derive(Debug, Default)]
pub(super) struct Functions {
    pub(super) entries: Vec<Function>,
    index: HashMap<Arc<str>, FunctionIndex>,
    /// Those that some node lacks.
    pub(super) scarce: BTreeSet<FunctionIndex>,
}

impl std::ops::Index<usize> for Functions {
    type Output = Function;

    fn index(&self, index: usize) -> &Function {
        &self.entries[index]
    }
}

impl std::ops::IndexMut<usize> for Functions {
    fn index_mut(&mut self, index: usize) -> &mut Function {
        &mut self.entries[index]
    }
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
    set_versions: u32,
    pub(super) edges: Arena<EdgeEntry>,
    pub(super) by_edge: BTreeMap<EdgeId, Index>,
    pub(super) ended: Ended,
    pub(super) numbering: Numbering,
    /// What earlier runs have left.
    pub(super) resumed: Resumed,
    /// The node of the Owner itself, once it has said so.
    pub(super) home: Option<NodeIndex>,
    /// Tasks in the state `Wanted`.
    pub(super) wanted: Vec<Index>,
    pub(super) unreachable: UnreachablePairs,
    /// Final failures that nobody has been told of.
    pub(super) unobserved: BTreeMap<TaskId, JobError>,
    pub(super) functions: Functions,
    /// A task that publishes what the job has made has completed.
    pub(super) committed: bool,
    /// Whether tasks that commit may be handed out, ...
    pub(super) commit: Commit,
    /// ... and whether an earlier run has handed one out: what came of that nobody knows.
    pub(super) was_committing: bool,
    pub(super) options: Options,
    pub(super) nodes: Vec<NodeView>,
    pub(super) ready: ReadyQueues,
    pub(super) demanded: BTreeMap<Key, u64>,
    pub(super) counts: Counts,
    /// Whether somebody is told what becomes of each attempt; of faults somebody always is.
    pub(super) told_of_attempts: bool,
    /// Whether the job's log is told which attempt has made what.
    pub(super) logs_makers: bool,
    pub(super) quota: QuotaUse,
    pub(super) effects: Vec<Effect>,
}

impl OwnerState {
    pub(super) fn new(job: JobId) -> Self {
        Self {
            job,
            tasks: Arena::default(),
            objects: Arena::default(),
            sets: Arena::default(),
            by_object: HashTable::new(),
            by_set: BTreeMap::new(),
            set_versions: 0,
            edges: Arena::default(),
            by_edge: BTreeMap::new(),
            ended: Ended::default(),
            numbering: Numbering { run: 0, most: CopyNumber::PER_RUN, put_back: 0 },
            resumed: Resumed::default(),
            home: None,
            wanted: Vec::new(),
            unreachable: UnreachablePairs::default(),
            unobserved: BTreeMap::new(),
            functions: Functions::default(),
            committed: false,
            commit: Commit::NotYet,
            was_committing: false,
            options: Options::default(),
            nodes: Vec::new(),
            ready: ReadyQueues::default(),
            demanded: BTreeMap::new(),
            counts: Counts::default(),
            told_of_attempts: true,
            logs_makers: true,
            quota: QuotaUse::default(),
            effects: Vec::new(),
        }
    }

    /// Entries for tasks, objects and sets.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.tasks.len(), self.objects.len(), self.sets.len())
    }

    /// Edges of which the ledger is not closed, by name, and how many objects are somewhere.
    #[cfg(feature = "simulation")]
    pub(crate) fn left(&self) -> (Vec<String>, usize) {
        let edges = self.edges.iter().map(|(_, edge)| edge.name().to_owned()).collect();
        (edges, self.objects.iter().filter(|(_, object)| object.holder().is_some()).count())
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Members of a set and where each is, by position, and which version that is.
    pub(super) fn set_members(&self, set: SetId) -> (u32, Vec<(ObjectId, Whereabouts)>) {
        let Some(set) = self.by_set.get(&set) else { return (0, Vec::new()) };
        let members = self.sets[*set].members.iter().map(|member| &self.objects[*member]);
        (self.sets[*set].version(), members.map(|object| (object.id, self.whereabouts(object))).collect())
    }

    /// Where an object is.
    pub(super) fn whereabouts(&self, object: &Object) -> Whereabouts {
        match self.located(object) {
            _ if object.output().bytes == 0 => Whereabouts::NoBytes,
            Some((node, number)) => Whereabouts::At(node, number),
            None => Whereabouts::Lost,
        }
    }

    /// Which copies of its members a set means, or where they are, has changed.
    pub(super) fn set_changed(&mut self, set: Index) {
        let version = self.next_version();
        self.sets[set].changed(version);
    }

    /// Versions of all sets are counted together: a set that is made anew has a later one than nodes may know of it.
    pub(super) fn next_version(&mut self) -> u32 {
        self.set_versions += 1;
        self.set_versions
    }

    /// The next number for a copy of what a task makes; `None`: there is none left, and the job fails.
    pub(super) fn next_number(&mut self, task: Index) -> Option<CopyNumber> {
        let (most, next) = (self.numbering.most, self.tasks[task].numbers() + 1);
        let number = CopyNumber::new(self.numbering.run, next).filter(|number| number.counted() <= most);
        if number.is_some() {
            self.tasks[task].numbered();
            return number;
        }
        let (id, stage) = (self.tasks[task].id, self.stage(task));
        let reason = format!("{stage} (task {id}): all {most} numbers for copies of its outputs were given");
        self.effects.push(Effect::Fail(JobError::Runtime { reason }));
        None
    }

    /// The copy of an object that counts, by the name that nodes know, and its node; `None` where it has no bytes, too.
    pub(super) fn copy_that_counts(&self, object: Index) -> Option<(NodeId, CopyId)> {
        let object = &self.objects[object];
        let (node, number) = self.located(object)?;
        Some((node, object.id.copy(self.job, number)))
    }

    /// The copy of an object that counts and its node, where it has bytes.
    pub(super) fn located(&self, object: &Object) -> Option<(NodeId, CopyNumber)> {
        object.located().map(|(node, number)| (self.nodes[usize::from(node)].id.clone(), number))
    }

    /// What counts of the outputs of a task, and is of another attempt than this one.
    pub(super) fn of_other_attempts(&self, task: Index, attempt: Option<CopyNumber>) -> impl Iterator<Item = Index> {
        let (id, outputs) = (self.tasks[task].id, self.tasks[task].outputs());
        let outputs = (0..outputs).filter_map(move |index| self.object_of(id.output(index)));
        outputs.filter(move |output| self.objects[*output].maker().is_some_and(|maker| Some(maker) != attempt))
    }

    /// Bytes of the entries alone, which are quickly counted.
    pub(super) fn entries_bytes(&self) -> u64 {
        (self.tasks.bytes() + self.objects.bytes() + self.sets.bytes()) as u64
    }

    /// Bytes that these tables take: entries, hash tables, and the heap behind each task.
    pub(super) fn bytes(&self) -> u64 {
        // glibc rounds to 16 and adds 8.
        let heap = |bytes: usize| if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) };
        let behind: usize = self
            .tasks
            .iter()
            .map(|(_, task)| heap(task.params.len()) + heap(size_of_val(&*task.args)) + heap(task.rare.bytes()))
            .sum::<usize>();
        let of_set = |set: &Set| set.list_bytes().into_iter().map(heap).sum::<usize>();
        let members: usize = self.sets.iter().map(|(_, set)| of_set(set)).sum();
        let of_object = |object: &Object| {
            let more = |rare: &OfObject| {
                let lists: usize = rare.list_bytes().into_iter().map(heap).sum();
                heap(rare.bytes.as_ref().map_or(0, |(_, bytes)| bytes.len())) + lists
            };
            heap(object.rare().bytes()) + object.rare().get().map_or(0, more)
        };
        let rare: usize = self.objects.iter().map(|(_, object)| of_object(object)).sum();
        let ids = self.ended.done.capacity() * (size_of::<TaskId>() + 1) + self.by_object.capacity() * 5;
        let tables = self.tasks.bytes() + self.objects.bytes() + self.sets.bytes() + self.edges.bytes();
        let edges: usize = self.edges.iter().flat_map(|(_, edge)| edge.bytes()).map(heap).sum();
        (tables + behind + members + edges + rare + ids) as u64
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

    /// Which incarnation of a node is known.
    pub(super) fn incarnation_of(&self, node: &NodeId) -> Incarnation {
        self.known_node(node).map_or(Incarnation(0), |node| self.nodes[usize::from(node)].incarnation)
    }

    /// Who says something of attempts and copies, if that counts: the incarnation of the node that is known, or a later one, which is known from
    /// now on. What an incarnation that is over says, or a node that is held dead, is dropped: it is asked what it has when it is back.
    pub(super) fn admit(&mut self, (node, incarnation): (&NodeId, Incarnation)) -> Option<NodeIndex> {
        let index = self.node_index(node, incarnation);
        let view = &self.nodes[usize::from(index)];
        (view.incarnation == incarnation && view.alive).then_some(index)
    }

    pub(super) fn node_index(&mut self, id: &NodeId, incarnation: Incarnation) -> NodeIndex {
        if let Some(index) = self.known_node(id) {
            let node = &self.nodes[usize::from(index)];
            if node.incarnation < incarnation {
                // Of one that was only named until now nothing was heard.
                let first = node.incarnation == Incarnation(0);
                if !first && node.alive {
                    // It ended before anybody called it dead.
                    self.incarnation_over(index);
                }
                let node = &mut self.nodes[usize::from(index)];
                node.incarnation = incarnation;
                node.alive = true;
                node.functions = None;
                // It may have worked for an earlier run, too.
                if std::mem::take(&mut node.lost) || first && self.numbering.run > 0 {
                    self.effects.push(Effect::TakeInventory { node: id.clone() });
                }
            }
            return index;
        }
        self.nodes.push(NodeView::new(id.clone(), incarnation));
        // It may have worked for an earlier run.
        if self.numbering.run > 0 && incarnation != Incarnation(0) {
            self.effects.push(Effect::TakeInventory { node: id.clone() });
        }
        (self.nodes.len() - 1) as NodeIndex
    }

    pub(super) fn intern_function(&mut self, description: &Description) -> FunctionIndex {
        let name = &description.function;
        if let Some(index) = self.functions.index.get(name) {
            return *index;
        }
        let index = self.functions.entries.len() as FunctionIndex;
        self.functions.entries.push(Function {
            name: name.clone(),
            stage: name.split('@').next().unwrap_or_default().into(),
            deterministic: description.deterministic,
            commits: description.commits,
            stats: FunctionStats::default(),
        });
        self.functions.index.insert(name.clone(), index);
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
    pub(super) fn set_speculated(&mut self, task: Index, speculated: bool) {
        match (self.tasks[task].speculate(speculated), speculated) {
            (false, true) => self.counts.speculated += 1,
            (true, false) => self.counts.speculated -= 1,
            _ => {}
        }
    }

    pub(super) fn intern_options(&mut self, mut options: TaskOptions) -> u32 {
        // The salt is in the id already; keeping it would make a table entry of every salted task.
        options.salt = 0;
        if let Some(index) = self.options.index.get(&options) {
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
        let index = self.options.entries.len() as u32;
        self.options.entries.push(OptionsEntry { options: kept, key: Key { pinned, shape, function: None } });
        self.options.index.insert(options, index);
        index
    }

    pub(super) fn intern_shape(&mut self, resources: &Resources) -> Shape {
        if let Some(index) = self.options.shapes.iter().position(|shape| shape == resources) {
            return index as Shape;
        }
        self.options.shapes.push(resources.clone());
        (self.options.shapes.len() - 1) as Shape
    }
}

pub(super) fn object_hash(id: ObjectId) -> u64 {
    // Ids are hashes already, but for their low 32 bits.
    (id.as_u128() >> 64) as u64
}

/// The entry that stands for a task with several outputs, or a stream of them, as a whole.
pub(super) fn marker(task: TaskId) -> ObjectId {
    // Shifted so that the bits of a copy's number are zero, as in every id of an object.
    ObjectId::from_u128(!(task.as_u128() >> 32) << 32)
}
