//! The truth about a job: tasks, objects, sets, references, attempts. Pure: what happened goes in, effects come out.
//!
//! Life of a task: *waiting* for arguments -> *ready* for a slot -> *running* (one or more live attempts) -> *done*, or
//! *failed*. Life of an object: *pending* -> *here* (on a node) -> *freed*.
//!
//! An object has two counts. *References* (handles of the program, sets, tasks that have not completed) keep its value;
//! *lineage* (tasks and sets whose own outputs or members could be asked for again) keeps its description. When both
//! are zero for all outputs of a task, the task is *retired*: only its id is remembered. A completed task stays
//! completed; who needs a value that was freed makes it run again (law 2).
//!
//! The tables and the program's calls are here; what nodes report is in `attempts`, counting in `lifetime`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::exchange::{Exchange, Ledger};
use super::placement::{self, Key, NodeIndex, NodeView, ReadyQueues, Shape, Wish};
use crate::arena::{Arena, Index};
use crate::event::EventKind;
use crate::ids::{Attempt, Incarnation, JobId, NodeId, ObjectId, SetId, TaskId};
use crate::task::{
    Arg, Description, JobError, LocatedArg, Output, Parts, Place, Resources, Returns, Source, TaskOptions, TaskSpec,
};

/// Who waits for an object or a stream: numbered by the program's futures.
pub type Tracker = u64;

/// Arguments of at least this many bytes attract their task.
const ATTRACTIVE_BYTES: u64 = 1 << 20;
/// A node index that stands for "nowhere".
pub(super) const NOWHERE: NodeIndex = NodeIndex::MAX;

/// Slots that a job could use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// What one slot has.
    pub(crate) resources: Resources,
    /// The node, where only this one will do.
    pub(crate) node: Option<NodeId>,
    /// How many.
    pub(crate) slots: u64,
}

/// What the Owner does to the world.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Tell a node the members of a set.
    DefineSet { node: NodeId, set: SetId },
    /// Hand an attempt to a node.
    Run { node: NodeId, spec: Box<TaskSpec> },
    /// Ask for an attempt that has not started.
    Recall { node: NodeId, task: TaskId, attempt: Attempt },
    /// End an attempt.
    Cancel { node: NodeId, task: TaskId, attempt: Attempt },
    /// Delete an object.
    Free { node: NodeId, object: ObjectId },
    /// Delete parts of a set's members.
    FreeParts { node: NodeId, set: SetId, parts: Parts },
    /// An object that somebody waits for is there, or never will be.
    Resolved { tracker: Tracker, object: ObjectId, outcome: Result<(), JobError> },
    /// A stream went on: the next object, or its end.
    Streamed { tracker: Tracker, item: Result<Option<ObjectId>, JobError> },
    /// What the job could use.
    Demand(Vec<Demand>),
    /// Something to tell people, about something at a node.
    Event { at: NodeId, kind: EventKind },
    /// The job cannot go on.
    Fail(JobError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting { missing: u32 },
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
    pub(super) state: State,
    pub(super) live: SmallVec<[(Attempt, NodeIndex); 1]>,
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
}

impl Object {
    pub(super) fn pending(id: ObjectId, task: Index, references: u32) -> Self {
        let (task, value) = (Some(task), Value::Pending);
        Self { id, output: Output::default(), task, references, lineage: 0, at: NOWHERE, value, accounted: false }
    }
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: SetId,
    pub(super) members: Box<[Index]>,
    pub(super) references: u32,
    pub(super) lineage: u32,
    pub(super) missing: u32,
    pub(super) ledger: Option<Ledger>,
    /// Nodes that know the members, or will when they have handled what was sent.
    pub(super) defined: BTreeSet<NodeIndex>,
}

/// Interned options, with what placement needs of them.
#[derive(Debug)]
pub(super) struct OptionsEntry {
    pub(super) options: TaskOptions,
    pub(super) key: Key,
}

#[derive(Debug, Default)]
pub(super) struct FunctionStats {
    pub(super) finished: u64,
    pub(super) mean_micros: u64,
}

/// Numbers about a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) submitted: u64,
    pub(crate) finished: u64,
    pub(crate) failed_attempts: u64,
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
    pub(super) retired: HashSet<TaskId>,
    /// Tasks that wait for an object or a set.
    pub(super) object_waiters: HashMap<Index, SmallVec<[Index; 2]>>,
    pub(super) set_waiters: HashMap<Index, Vec<Index>>,
    /// Sets that lack an object.
    pub(super) object_sets: HashMap<Index, SmallVec<[Index; 1]>>,
    pub(super) trackers: HashMap<Index, SmallVec<[Tracker; 1]>>,
    pub(super) streams: HashMap<Index, SmallVec<[Tracker; 1]>>,
    pub(super) failures: HashMap<Index, JobError>,
    /// How often memory was denied to tasks that have not completed since.
    pub(super) denials: HashMap<Index, u32>,
    /// Final failures that nobody has been told of.
    pub(super) unobserved: BTreeMap<TaskId, JobError>,
    pub(super) functions: Vec<Arc<str>>,
    /// Their names without the version: what people see.
    pub(super) stages: Vec<Arc<str>>,
    pub(super) function_index: HashMap<Arc<str>, u32>,
    pub(super) stats: Vec<FunctionStats>,
    pub(super) options: Vec<OptionsEntry>,
    pub(super) option_index: HashMap<TaskOptions, u32>,
    pub(super) shapes: Vec<Resources>,
    pub(super) nodes: Vec<NodeView>,
    pub(super) ready: ReadyQueues,
    pub(super) demanded: BTreeMap<Key, u64>,
    pub(super) counts: Counts,
    /// An exchange that did not balance when it was released; told when the program ends well.
    pub(super) unbalanced: Option<JobError>,
    pub(super) effects: Vec<Effect>,
}

pub(super) fn object_hash(id: ObjectId) -> u64 {
    // Ids are hashes already; fold the halves.
    (id.0 as u64) ^ ((id.0 >> 64) as u64)
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
            retired: HashSet::new(),
            object_waiters: HashMap::new(),
            set_waiters: HashMap::new(),
            object_sets: HashMap::new(),
            trackers: HashMap::new(),
            streams: HashMap::new(),
            failures: HashMap::new(),
            denials: HashMap::new(),
            unobserved: BTreeMap::new(),
            functions: Vec::new(),
            stages: Vec::new(),
            function_index: HashMap::new(),
            stats: Vec::new(),
            options: Vec::new(),
            option_index: HashMap::new(),
            shapes: Vec::new(),
            nodes: Vec::new(),
            ready: ReadyQueues::default(),
            demanded: BTreeMap::new(),
            counts: Counts::default(),
            unbalanced: None,
            effects: Vec::new(),
        }
    }

    // ---------------------------------------------------------------- what the program does

    /// A task is wanted; its outputs get one reference each. A description that is known is the same task.
    pub(crate) fn submit(&mut self, id: TaskId, description: Description) {
        self.counts.submitted += 1;
        if let Some(task) = self.find_task(id) {
            return self.submit_again(task, &description);
        }
        let args = match self.resolve_args(&description.args) {
            Ok(args) => args,
            Err(error) => return self.effects.push(Effect::Fail(error)),
        };
        let completed_before = self.retired.remove(&id);
        let (function, options) =
            (self.intern_function(&description.function), self.intern_options(description.options));
        let returns = self.options[options as usize].options.returns;
        let outputs = match returns {
            Returns::One => 1,
            Returns::Many(n) => n,
            Returns::Stream => 0,
        };
        let task = self.tasks.insert(Task {
            id,
            params: description.params.as_ref().into(),
            args,
            function,
            options,
            outputs,
            attempts: 0,
            tries: 0,
            state: if completed_before { State::Done } else { State::Waiting { missing: 0 } },
            live: SmallVec::new(),
        });
        for index in 0..outputs {
            let object = self.add_object(Object::pending(id.output(index), task, 1));
            if completed_before {
                self.objects[object].value = Value::Freed;
            }
        }
        if returns != Returns::One {
            let handles = u32::from(returns == Returns::Stream);
            self.add_object(Object::pending(marker(id), task, handles));
        }
        self.remember_args(task);
        if !completed_before {
            self.reference_args(task);
            self.await_args(task);
        }
    }

    fn submit_again(&mut self, task: Index, description: &Description) {
        let (id, outputs) = (self.tasks[task].id, self.tasks[task].outputs);
        if self.is_stream(task) {
            if let Some(marker) = self.object_of(marker(id)) {
                self.objects[marker].references += 1;
            }
        } else {
            for index in 0..outputs {
                if let Some(object) = self.object_of(id.output(index)) {
                    self.objects[object].references += 1;
                }
            }
        }
        // Cancelled or failed before: submitting again is a new attempt. Its arguments may have been replaced since.
        if self.tasks[task].state == State::Failed {
            match self.resolve_args(&description.args) {
                Ok(args) => {
                    self.failures.remove(&task);
                    self.unobserved.remove(&id);
                    self.forget_args(task);
                    self.tasks[task].args = args;
                    self.tasks[task].tries = 0;
                    self.remember_args(task);
                    self.reference_args(task);
                    self.await_args(task);
                }
                Err(error) => self.effects.push(Effect::Fail(error)),
            }
        }
    }

    /// The program put `output` under `object`; it gets one reference.
    pub(crate) fn put(&mut self, object: ObjectId, output: Output, node: &NodeId, incarnation: Incarnation) {
        let at = self.node_index(node, incarnation);
        match self.object_of(object) {
            Some(known) => {
                let entry = &mut self.objects[known];
                entry.references += 1;
                // The same content was put before and freed: now it is there again.
                (entry.value, entry.at) = (Value::Here, at);
            }
            None => {
                let value = Value::Here;
                let (references, lineage, task) = (1, 0, None);
                self.add_object(Object { id: object, output, task, references, lineage, at, value, accounted: false });
            }
        }
    }

    /// Somebody waits for an object.
    pub(crate) fn track(&mut self, object: ObjectId, tracker: Tracker) {
        let Some(index) = self.object_of(object) else {
            let outcome = Err(JobError::program(format!("object {:032x} was released", object.0)));
            return self.effects.push(Effect::Resolved { tracker, object, outcome });
        };
        if self.objects[index].value == Value::Here {
            return self.effects.push(Effect::Resolved { tracker, object, outcome: Ok(()) });
        }
        if let Some(task) = self.objects[index].task {
            if let Some(error) = self.failures.get(&task).cloned() {
                self.observe(&error);
                return self.effects.push(Effect::Resolved { tracker, object, outcome: Err(error) });
            }
            self.want(task);
        }
        self.trackers.entry(index).or_default().push(tracker);
    }

    /// Somebody reads the outputs of a streaming task; those sealed before are given at once.
    pub(crate) fn track_stream(&mut self, id: TaskId, tracker: Tracker) {
        let Some(task) = self.find_task(id) else {
            let error = JobError::program(format!("stream {id} was released"));
            return self.effects.push(Effect::Streamed { tracker, item: Err(error) });
        };
        self.want(task);
        for index in 0..self.tasks[task].outputs {
            if let Some(object) = self.object_of(id.output(index)) {
                self.objects[object].references += 1;
                self.effects.push(Effect::Streamed { tracker, item: Ok(Some(id.output(index))) });
            }
        }
        match self.tasks[task].state {
            State::Done => self.effects.push(Effect::Streamed { tracker, item: Ok(None) }),
            State::Failed => {
                let error = self.failures[&task].clone();
                self.observe(&error);
                self.effects.push(Effect::Streamed { tracker, item: Err(error) });
            }
            State::Waiting { .. } | State::Ready | State::Running => {
                self.streams.entry(task).or_default().push(tracker);
            }
        }
    }

    /// The program made a set; it gets one reference, and so does each member. The same list is the same set.
    pub(crate) fn make_set(&mut self, id: SetId, members: &[ObjectId], exchange: Option<Exchange>) {
        if let Some(set) = self.by_set.get(&id).copied() {
            // Its last reference may be gone while a task remembers it: then its members are wanted again.
            return self.reference_set(set);
        }
        let known: Vec<_> = members.iter().map_while(|member| self.object_of(*member)).collect();
        if known.len() < members.len() {
            let error = JobError::program(format!("set member {:032x} was released", members[known.len()].0));
            return self.effects.push(Effect::Fail(error));
        }
        let set = self.sets.insert(Set {
            id,
            members: known.into(),
            references: 1,
            lineage: 0,
            missing: 0,
            ledger: exchange.map(Ledger::new),
            defined: BTreeSet::new(),
        });
        self.by_set.insert(id, set);
        for position in 0..members.len() {
            let member = self.sets[set].members[position];
            self.objects[member].references += 1;
            self.objects[member].lineage += 1;
            if self.objects[member].value == Value::Here {
                self.enter(set, member);
                continue;
            }
            self.sets[set].missing += 1;
            self.object_sets.entry(member).or_default().push(set);
            if let Some(task) = self.objects[member].task {
                self.want(task);
            }
        }
    }

    /// One reference of the program to an object is gone.
    pub(crate) fn release_object(&mut self, object: ObjectId) {
        if let Some(index) = self.object_of(object) {
            self.unreference_object(index);
        }
    }

    /// One reference of the program to a stream is gone.
    pub(crate) fn release_stream(&mut self, task: TaskId) {
        self.release_object(marker(task));
    }

    /// One reference of the program to a set is gone.
    pub(crate) fn release_set(&mut self, set: SetId) {
        if let Some(index) = self.by_set.get(&set).copied() {
            self.unreference_set(index);
        }
    }

    /// The program no longer wants a task; whoever waits for it is told so. Done tasks stay done.
    pub(crate) fn cancel(&mut self, id: TaskId) {
        let Some(task) = self.find_task(id) else { return };
        if !matches!(self.tasks[task].state, State::Done | State::Failed) {
            self.fail_task(task, JobError::Cancelled);
        }
    }

    /// The program no longer wants the task that makes an object.
    pub(crate) fn cancel_maker(&mut self, object: ObjectId) {
        if let Some(task) = self.object_of(object).and_then(|index| self.objects[index].task) {
            self.cancel(self.tasks[task].id);
        }
    }

    /// Nodes that hold an object; empty while it does not exist.
    pub(crate) fn locations(&self, object: ObjectId) -> Vec<NodeId> {
        self.lookup(object).map(|(_, node)| node).into_iter().collect()
    }

    /// Size and place of an object that exists.
    pub(crate) fn lookup(&self, object: ObjectId) -> Option<(Output, NodeId)> {
        let object = &self.objects[self.object_of(object)?];
        (object.value == Value::Here).then(|| (object.output, self.nodes[usize::from(object.at)].id.clone()))
    }

    /// The books and the unread failures at the end of the program.
    ///
    /// # Errors
    /// An exchange that does not balance, or a failure that nobody was told of.
    pub(crate) fn close(&self) -> Result<(), JobError> {
        if let Some(error) = self.unobserved.values().next().or(self.unbalanced.as_ref()) {
            return Err(error.clone());
        }
        self.sets.iter().try_for_each(|(_, set)| set.balance())
    }

    // ---------------------------------------------------------------- after a batch of events

    /// Hands out what can run, asks for what it needs, and returns everything to be done, in order.
    pub(crate) fn flush(&mut self) -> Vec<Effect> {
        for key in self.ready.keys() {
            while let Some(task) = self.ready.front(key) {
                let entry = &self.tasks[task];
                let (function, mean) = (entry.function, self.stats[entry.function as usize].mean_micros);
                let wish = self.wish(task);
                let Some(node) = placement::choose(&self.nodes, &self.shapes, key.shape, function, mean, &wish) else {
                    break;
                };
                self.ready.pop(key);
                self.start(task, node);
            }
        }
        self.demand();
        std::mem::take(&mut self.effects)
    }

    /// A second has passed: an idle job asks for less, and when some node idles while others queue, what was queued too
    /// deep is taken back.
    pub(crate) fn rebalance(&mut self) {
        if self.counts.running == 0 && self.ready.is_empty() && self.demanded.values().any(|n| *n > 1) {
            self.demanded.values_mut().for_each(|n| *n = 1);
            self.demand_effect();
        }
        if !self.ready.is_empty() {
            return;
        }
        let load: Vec<_> = self.nodes.iter().map(|node| node.load(&self.shapes)).collect();
        let idle =
            self.nodes.iter().zip(&load).any(|(node, load)| node.alive && !node.leased.0.is_empty() && *load < 1000);
        let busiest = (0..load.len()).max_by_key(|index| load[*index]);
        if let Some(busiest) = busiest.filter(|index| idle && load[*index] > 1000) {
            let queued: u64 = self.nodes[busiest].in_flight.values().sum();
            self.recall_from(busiest as NodeIndex, (queued / 2) as usize);
        }
    }

    /// Why nothing runs, for people; `None` while something does.
    pub(crate) fn why(&self) -> Option<String> {
        if self.counts.running > 0 {
            let busy = self.nodes.iter().filter(|node| node.in_flight.values().any(|n| *n > 0));
            let busy: Vec<_> = busy.map(|node| node.id.to_string()).collect();
            return Some(format!("{} tasks on {}", self.counts.running, busy.join(", ")));
        }
        let waiting = self.ready.waiting();
        let (key, tasks) = waiting.iter().next()?;
        let needs = &self.shapes[usize::from(key.shape)];
        if let Some(node) = key.pinned {
            return Some(format!("{tasks} tasks wait for {needs} on node {}", self.nodes[usize::from(node)].id));
        }
        if self.nodes.iter().all(|node| node.leased.0.is_empty()) {
            return Some(format!("{tasks} tasks wait for a lease of {needs}"));
        }
        Some(format!("{tasks} tasks that need {needs} wait for a slot"))
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
    /// `None`: the object has no bytes, so it is nowhere.
    pub(crate) fn set_members(&self, set: SetId) -> Vec<(ObjectId, Option<NodeId>)> {
        let Some(set) = self.by_set.get(&set) else { return Vec::new() };
        let members = self.sets[*set].members.iter().map(|member| &self.objects[*member]);
        members.map(|object| (object.id, self.holder(object))).collect()
    }

    fn holder(&self, object: &Object) -> Option<NodeId> {
        (object.output.bytes > 0).then(|| self.nodes[usize::from(object.at)].id.clone())
    }

    /// How much of a lease on `node` the tasks there occupy.
    pub(crate) fn in_use(&self, node: &NodeId, leased: &Resources) -> Resources {
        let Some(index) = self.known_node(node) else { return Resources::default() };
        let mut in_use = Resources::default();
        for (shape, tasks) in &self.nodes[usize::from(index)].in_flight {
            for (name, milli) in &self.shapes[usize::from(*shape)].0 {
                *in_use.0.entry(name.clone()).or_default() += milli * tasks;
            }
        }
        // Queued tasks are counted as well, but nobody can occupy more than there is.
        in_use.0.iter_mut().for_each(|(name, milli)| *milli = (*milli).min(leased.get(name)));
        in_use
    }

    /// Bytes that these tables take: entries, hash tables, and the heap behind each task.
    pub(crate) fn bytes(&self) -> u64 {
        // glibc rounds to 16 and adds 8.
        let heap = |bytes: usize| if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) };
        let behind: usize =
            self.tasks.iter().map(|(_, task)| heap(task.params.len()) + heap(size_of_val(&*task.args))).sum::<usize>();
        let members: usize = self.sets.iter().map(|(_, set)| heap(size_of_val(&*set.members))).sum();
        let waiters = self.object_waiters.capacity() * (size_of::<(Index, SmallVec<[Index; 2]>)>() + 1)
            + self.object_sets.capacity() * (size_of::<(Index, SmallVec<[Index; 1]>)>() + 1)
            + self.trackers.capacity() * (size_of::<(Index, SmallVec<[Tracker; 1]>)>() + 1)
            + self.retired.capacity() * (size_of::<TaskId>() + 1);
        let tables = self.tasks.bytes() + self.objects.bytes() + self.sets.bytes();
        (tables + self.by_object.capacity() * 5 + behind + members + waiters) as u64
    }

    // ---------------------------------------------------------------- placing

    pub(super) fn make_ready(&mut self, task: Index, front: bool) {
        self.tasks[task].state = State::Ready;
        self.ready.push(self.key(task), task, front);
    }

    pub(super) fn key(&self, task: Index) -> Key {
        self.options[self.tasks[task].options as usize].key
    }

    fn wish(&mut self, task: Index) -> Wish {
        let entry = &self.options[self.tasks[task].options as usize];
        match &entry.options.place {
            Place::Node { node, soft } => {
                let (node, soft) = (node.clone(), *soft);
                let node = self.node_or_add(&node);
                if soft { Wish::Soft(node) } else { Wish::Hard(node) }
            }
            Place::Spread => Wish::Spread,
            Place::Anywhere => self.near(task, ATTRACTIVE_BYTES),
            Place::NearArgs => self.near(task, 1),
        }
    }

    fn near(&self, task: Index, bytes_min: u64) -> Wish {
        let mut bytes_at: SmallVec<[(u64, NodeIndex); 4]> = SmallVec::new();
        for arg in &self.tasks[task].args {
            if let EntrySource::Object(index) = arg.source {
                let object = &self.objects[index];
                match bytes_at.iter_mut().find(|(_, node)| *node == object.at) {
                    Some((bytes, _)) => *bytes += object.output.bytes,
                    None => bytes_at.push((object.output.bytes, object.at)),
                }
            }
        }
        bytes_at.retain(|(bytes, _)| *bytes >= bytes_min);
        if bytes_at.is_empty() {
            return Wish::Anywhere;
        }
        bytes_at.sort_unstable_by(|a, b| b.cmp(a));
        Wish::Near(bytes_at.iter().map(|(_, node)| *node).collect())
    }

    fn start(&mut self, task: Index, node: NodeIndex) {
        for position in 0..self.tasks[task].args.len() {
            if let EntrySource::Set(set) = self.tasks[task].args[position].source {
                self.define_set(set, node);
            }
        }
        let key = self.key(task);
        let entry = &mut self.tasks[task];
        entry.attempts += 1;
        entry.tries += 1;
        entry.state = State::Running;
        let (attempt, function) = (Attempt(entry.attempts), entry.function);
        entry.live.push((attempt, node));
        let view = &mut self.nodes[usize::from(node)];
        *view.in_flight.entry(key.shape).or_default() += 1;
        *view.given.entry(function).or_default() += 1;
        self.counts.running += 1;
        let node = view.id.clone();
        let spec = Box::new(self.spec(task, attempt));
        let stage = self.stages[function as usize].clone();
        let kind = EventKind::TaskPlaced { task: spec.id, attempt, stage };
        self.effects.push(Effect::Event { at: node.clone(), kind });
        self.effects.push(Effect::Run { node, spec });
    }

    fn spec(&self, task: Index, attempt: Attempt) -> TaskSpec {
        let entry = &self.tasks[task];
        let options = &self.options[entry.options as usize].options;
        let args = entry.args.iter().map(|arg| match arg.source {
            EntrySource::Object(index) => {
                let object = &self.objects[index];
                let at = self.holder(object);
                LocatedArg { arg: Arg { source: Source::Object(object.id), parts: arg.parts }, at }
            }
            EntrySource::Set(index) => {
                LocatedArg { arg: Arg { source: Source::Set(self.sets[index].id), parts: arg.parts }, at: None }
            }
        });
        TaskSpec {
            job: self.job,
            id: entry.id,
            attempt,
            function: self.functions[entry.function as usize].clone(),
            params: entry.params.to_vec().into(),
            args: args.collect(),
            returns: options.returns,
            target_bytes: options.target_bytes,
            resources: options.resources.clone(),
            scratch_bytes: options.scratch_bytes.clone(),
            timeout_ms: options.timeout.map_or(0, |timeout| (timeout.as_millis() as u64).max(1)),
        }
    }

    pub(super) fn define_set(&mut self, set: Index, node: NodeIndex) {
        if self.sets[set].defined.insert(node) {
            let node = self.nodes[usize::from(node)].id.clone();
            self.effects.push(Effect::DefineSet { node, set: self.sets[set].id });
        }
    }

    pub(super) fn is_stream(&self, task: Index) -> bool {
        self.options[self.tasks[task].options as usize].options.returns == Returns::Stream
    }

    // ---------------------------------------------------------------- tables

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
            let node = &mut self.nodes[usize::from(index)];
            if node.incarnation < incarnation {
                let first_sight = node.incarnation == Incarnation(0);
                node.incarnation = incarnation;
                node.alive = true;
                if !first_sight {
                    node.in_flight.clear();
                }
            }
            return index;
        }
        self.nodes.push(NodeView::new(id.clone(), incarnation));
        (self.nodes.len() - 1) as NodeIndex
    }

    fn intern_function(&mut self, name: &Arc<str>) -> u32 {
        if let Some(index) = self.function_index.get(name) {
            return *index;
        }
        let index = self.functions.len() as u32;
        self.functions.push(name.clone());
        self.stages.push(name.split('@').next().unwrap_or_default().into());
        self.stats.push(FunctionStats::default());
        self.function_index.insert(name.clone(), index);
        index
    }

    fn intern_options(&mut self, mut options: TaskOptions) -> u32 {
        // The salt is in the id already; keeping it would make a table entry of every salted task.
        options.salt = 0;
        if let Some(index) = self.option_index.get(&options) {
            return *index;
        }
        let shape = self.intern_shape(&options.resources);
        let pinned = match &options.place {
            Place::Node { node, soft: false } => Some(self.node_or_add(&node.clone())),
            _ => None,
        };
        let index = self.options.len() as u32;
        self.options.push(OptionsEntry { options: options.clone(), key: Key { pinned, shape } });
        self.option_index.insert(options, index);
        index
    }

    fn intern_shape(&mut self, resources: &Resources) -> Shape {
        if let Some(index) = self.shapes.iter().position(|shape| shape == resources) {
            return index as Shape;
        }
        self.shapes.push(resources.clone());
        (self.shapes.len() - 1) as Shape
    }

    /// Says what the job could use when that has grown by more than a little.
    fn demand(&mut self) {
        let mut wanted = self.ready.waiting();
        for node in &self.nodes {
            for (shape, tasks) in &node.in_flight {
                if *tasks > 0 {
                    *wanted.entry(Key { pinned: None, shape: *shape }).or_default() += tasks;
                }
            }
        }
        // Powers of two, and only growth: the Scheduler is told O(log tasks) times, not once a task.
        let mut grew = false;
        for (key, tasks) in wanted {
            let demanded = self.demanded.entry(key).or_default();
            if tasks > *demanded {
                *demanded = tasks.next_power_of_two();
                grew = true;
            }
        }
        if grew {
            self.demand_effect();
        }
    }

    fn demand_effect(&mut self) {
        let demand = self.demanded.iter().map(|(key, slots)| Demand {
            resources: self.shapes[usize::from(key.shape)].clone(),
            node: key.pinned.map(|node| self.nodes[usize::from(node)].id.clone()),
            slots: *slots,
        });
        let demand = demand.collect();
        self.effects.push(Effect::Demand(demand));
    }
}

/// The entry that stands for a task with several outputs, or a stream of them, as a whole.
pub(super) fn marker(task: TaskId) -> ObjectId {
    ObjectId(!task.as_u128())
}
