//! An Owner's tables, and nodes that do what they are told: what the tests of its parts share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::sample::Index;

use super::state::{Demand, Effect, Tracker};
use super::tables::OwnerState;
use crate::event::EventKind;
use crate::ids::{
    Attempt, CopyId, CopyNumber, EdgeId, Incarnation, JobId, JobSecret, NodeId, ObjectId, RowHash, SetId, TaskId,
};
use crate::joblog::TaskDone;
use crate::protocol::copies::Whereabouts;
use crate::task::{
    Arg, Consumed, Description, EdgeShape, FailureKind, JobError, LocatedSource, Loss, LostObject, Output, Parts,
    Resources, Source, TaskFailure, TaskFigures, TaskOptions, TaskSpec,
};

pub(super) const JOB: JobId = JobId::from_u128(1);
pub(super) const SECRET: JobSecret = JobSecret::from_u128(1);
pub(super) const INCARNATION: Incarnation = Incarnation(1);

pub(super) fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

pub(super) fn offer(functions: &[&str]) -> BTreeSet<Arc<str>> {
    functions.iter().map(|name| Arc::from(*name)).collect()
}

/// Members of a set, and where each is, in a version of it.
type Members = (u32, Vec<(ObjectId, Whereabouts)>);

/// An Owner with nodes that do what they are told.
pub(super) struct World {
    pub(super) owner: OwnerState,
    /// Slots of each node, which incarnation it is in, and whether it lives.
    pub(super) nodes: BTreeMap<NodeId, (u64, Incarnation, bool)>,
    pub(super) running: BTreeMap<(TaskId, Attempt), (NodeId, TaskSpec)>,
    /// Attempts that were cancelled while they ran.
    pub(super) zombies: BTreeMap<(TaskId, Attempt), (NodeId, TaskSpec)>,
    /// What the stores of the nodes hold, and the attempt that made it.
    pub(super) stored: BTreeMap<(NodeId, CopyId), CopyNumber>,
    /// Objects that are not what the Owner knows.
    pub(super) foreign: BTreeSet<ObjectId>,
    /// What the Owner has put into its own store, with the bytes.
    pub(super) restored: Vec<(CopyId, Bytes)>,
    /// What each node was told of each set.
    pub(super) defined: BTreeMap<(NodeId, SetId), Members>,
    /// Second attempts beside a first one.
    pub(super) copied: Vec<(TaskId, Attempt, NodeId)>,
    /// How long tasks take.
    pub(super) micros: u64,
    pub(super) resolved: BTreeMap<Tracker, Result<(), JobError>>,
    pub(super) streamed: BTreeMap<Tracker, Vec<Result<Option<ObjectId>, JobError>>>,
    pub(super) freed: Vec<(NodeId, ObjectId)>,
    pub(super) freed_parts: Vec<(NodeId, SetId, Parts)>,
    pub(super) suspected: Vec<(NodeId, [NodeId; 2])>,
    pub(super) cancelled: Vec<(TaskId, Attempt)>,
    pub(super) recalled: Vec<(TaskId, Attempt)>,
    pub(super) failed: Option<JobError>,
    pub(super) demand: Vec<Demand>,
    /// Tasks as they completed for the first time.
    pub(super) log: Vec<TaskDone>,
}

impl OwnerState {
    /// A set of these objects, which join an edge of this shape; where parts are kept, one that is declared so for all such sets.
    pub(super) fn make_edge_set(&mut self, set: SetId, members: &[ObjectId], shape: EdgeShape) {
        let ordinal = if shape.keep { 0 } else { set.as_u128() as u64 };
        let edge = EdgeId::of(shape.name.as_bytes(), ordinal);
        self.open_edge(edge, shape);
        for member in members {
            let object = self.object_of(*member).expect("members are there");
            if self.objects[object].edges().next().is_none() {
                self.join_edge(edge, *member);
            }
        }
        self.make_set(set, members, Some(edge));
        self.release_edge(edge);
    }
}

impl World {
    pub(super) fn new(nodes: &[(&str, u64)]) -> Self {
        let mut owner = OwnerState::new(JOB);
        let leases: Vec<_> =
            nodes.iter().map(|(name, slots)| (node(name), INCARNATION, Resources::cpu(slots * 1000))).collect();
        owner.leases(&leases);
        for (node, ..) in &leases {
            owner.offers(node, INCARNATION, offer(&["f@1"]));
        }
        let nodes = nodes.iter().map(|(name, slots)| (node(name), (*slots, INCARNATION, true))).collect();
        Self {
            owner,
            nodes,
            running: BTreeMap::new(),
            zombies: BTreeMap::new(),
            stored: BTreeMap::new(),
            foreign: BTreeSet::new(),
            restored: Vec::new(),
            defined: BTreeMap::new(),
            copied: Vec::new(),
            micros: 0,
            resolved: BTreeMap::new(),
            streamed: BTreeMap::new(),
            freed: Vec::new(),
            freed_parts: Vec::new(),
            suspected: Vec::new(),
            cancelled: Vec::new(),
            recalled: Vec::new(),
            failed: None,
            demand: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(super) fn description(name: &str, args: &[Arg], options: TaskOptions) -> Description {
        let params = Bytes::from(name.to_owned());
        Description {
            function: "f@1".into(),
            deterministic: true,
            commits: false,
            params,
            args: args.to_vec(),
            options,
        }
    }

    pub(super) fn submit_with(&mut self, name: &str, args: &[Arg], options: TaskOptions) -> TaskId {
        let description = Self::description(name, args, options);
        let id = description.id(SECRET);
        self.owner.submit(id, description);
        self.settle();
        id
    }

    pub(super) fn submit(&mut self, name: &str, args: &[Arg]) -> TaskId {
        self.submit_with(name, args, TaskOptions::default())
    }

    pub(super) fn settle(&mut self) {
        let mut asked = Vec::new();
        for effect in self.owner.flush() {
            match effect {
                Effect::Run { node, spec } => {
                    for arg in &spec.args {
                        if let LocatedSource::Set { set, version } = arg.source {
                            let told = self.defined.get(&(node.clone(), set));
                            assert_eq!(told, Some(&self.owner.set_members(set)), "{node} knows where {set} is");
                            assert_eq!(told.map(|(told, _)| *told), Some(version), "{node} is told of that version");
                        }
                    }
                    let before = self.running.insert((spec.id, spec.attempt), (node, (*spec).clone()));
                    assert!(before.is_none(), "an attempt is run once");
                }
                Effect::Resolved { tracker, outcome, .. } => drop(self.resolved.insert(tracker, outcome)),
                Effect::Streamed { tracker, item } => self.streamed.entry(tracker).or_default().push(item),
                Effect::Free { node, copy } => {
                    if self.stored.remove(&(node.clone(), copy)).is_some() {
                        self.freed.push((node, ObjectId::of_copy(copy).0));
                    }
                }
                Effect::Restore { copy, maker, bytes, .. } => {
                    let before = self.stored.insert((node("home"), copy), maker);
                    assert_eq!(before, None, "no name is given twice");
                    self.restored.push((copy, bytes));
                }
                Effect::TakeInventory { node } => asked.push(node),
                Effect::SuspectUnreachable { node, of } => self.suspected.push((node, of)),
                Effect::FreeParts { node, set, parts, .. } => self.freed_parts.push((node, set, parts)),
                Effect::Cancel { task, attempt, .. } => {
                    self.zombies.extend(self.running.remove_entry(&(task, attempt)));
                    self.cancelled.push((task, attempt));
                }
                Effect::Recall { task, attempt, .. } => self.recalled.push((task, attempt)),
                Effect::Fail(error) => drop(self.failed.get_or_insert(error)),
                Effect::Demand(demand) => self.demand = demand,
                Effect::Event { at, kind } => {
                    if let EventKind::TaskSpeculated { task, attempt, .. } = *kind {
                        self.copied.push((task, attempt, at));
                    }
                }
                // A message to a node that is dead is lost.
                Effect::DefineSet { node, set } => {
                    if self.nodes.get(&node).is_none_or(|(_, _, up)| *up) {
                        self.defined.insert((node, set), self.owner.set_members(set));
                    }
                }
            }
        }
        // It answers when it has done what it was told before.
        asked.iter().for_each(|node| self.inventory(node));
    }

    pub(super) fn incarnation(&self, node: &NodeId) -> Incarnation {
        self.nodes.get(node).map_or(INCARNATION, |(_, incarnation, _)| *incarnation)
    }

    /// A node says what it holds.
    pub(super) fn inventory(&mut self, node: &NodeId) {
        let incarnation = self.incarnation(node);
        let held = self.stored.iter().filter(|((at, _), _)| at == node);
        let held: Vec<_> =
            held.map(|((_, copy), maker)| (*copy, maker.get(), self.made(ObjectId::of_copy(*copy).0))).collect();
        self.owner.inventory((node, incarnation), held.into_iter());
        self.settle();
    }

    /// A node holds a copy, which an attempt of this number made.
    pub(super) fn keep(&mut self, node: &NodeId, object: ObjectId, made_by: u32) {
        let number = Attempt::nth(made_by).makes();
        self.stored.insert((node.clone(), object.copy(JOB, number)), number);
    }

    /// Size and place of an object that exists.
    pub(super) fn lookup(&self, object: ObjectId) -> Option<(Output, NodeId)> {
        self.owner.lookup(object).map(|(output, node, _)| (output, node))
    }

    /// The copy of an object that counts is not to be had from a node.
    pub(super) fn lost(&self, object: ObjectId, node: NodeId, loss: Loss) -> LostObject {
        let counts = self.owner.lookup(object).and_then(|(.., copy)| ObjectId::of_copy(copy).1);
        LostObject { object, number: counts.unwrap_or(CopyNumber::FIRST), node, loss }
    }

    /// The program cannot be given the copy of an object that counts.
    pub(super) fn unreadable(&mut self, object: ObjectId) {
        let (.., copy) = self.owner.lookup(object).expect("it is there");
        self.owner.unreadable(copy);
        self.settle();
    }

    /// Whether a node holds some copy of an object.
    pub(super) fn holds(&self, node: &NodeId, object: ObjectId) -> bool {
        self.stored.keys().any(|(at, copy)| at == node && ObjectId::of_copy(*copy).0 == object)
    }

    /// What an object is that nodes hold.
    fn made(&self, id: ObjectId) -> Output {
        if self.foreign.contains(&id) {
            return output(77, 7);
        }
        let known =
            self.owner.object_of(id).map(|object| &self.owner.objects[object]).filter(|object| object.was_made());
        known.map(|object| object.output()).or_else(|| self.owner.resumed.logged(id)).unwrap_or_default()
    }

    /// A node is gone, with or without what it held.
    pub(super) fn crash(&mut self, node: &NodeId, keeps: bool) {
        let incarnation = self.incarnation(node);
        self.nodes.get_mut(node).expect("it is known").2 = false;
        self.defined.retain(|(at, _), _| at != node);
        self.running.retain(|_, (at, _)| at != node);
        self.zombies.retain(|_, (at, _)| at != node);
        self.stored.retain(|(at, _), _| keeps || at != node);
        self.owner.node_dead(node, incarnation);
        self.lend();
    }

    /// A node is there again, in a new incarnation.
    pub(super) fn restart(&mut self, node: &NodeId) {
        let entry = self.nodes.get_mut(node).expect("it is known");
        (entry.1, entry.2) = (Incarnation(entry.1.0 + 1), true);
        let incarnation = entry.1;
        self.owner.node_up(node, incarnation);
        self.owner.offers(node, incarnation, offer(&["f@1"]));
        self.lend();
    }

    /// Some node dies, if it lives, with or without what it held.
    pub(super) fn crash_one(&mut self, at: &Index, keeps: bool) {
        let (node, (.., lives)) = self.nodes.iter().nth(at.index(self.nodes.len())).expect("there are nodes");
        if *lives {
            self.crash(&node.clone(), keeps);
        }
    }

    /// Some node comes back, if it is dead.
    pub(super) fn restart_one(&mut self, at: &Index) {
        let (node, (.., lives)) = self.nodes.iter().nth(at.index(self.nodes.len())).expect("there are nodes");
        if !*lives {
            self.restart(&node.clone());
        }
    }

    /// The session with some node is made anew, if it lives; when it is asked what it holds, it ends what it runs.
    pub(super) fn reset_one(&mut self, at: &Index) {
        let (node, (_, incarnation, lives)) =
            self.nodes.iter().nth(at.index(self.nodes.len())).expect("there are nodes");
        if *lives {
            let (node, incarnation) = (node.clone(), *incarnation);
            self.owner.session_reset(&node, incarnation);
            let (ended, others) = std::mem::take(&mut self.running).into_iter().partition(|(_, (at, _))| *at == node);
            self.running = others;
            self.zombies.extend::<BTreeMap<_, _>>(ended);
            self.defined.retain(|(at, _), _| *at != node);
            self.settle();
        }
    }

    /// All that are dead come back.
    pub(super) fn restart_all(&mut self) {
        let dead: Vec<_> = self.nodes.iter().filter(|(_, (.., lives))| !lives).map(|(node, _)| node.clone()).collect();
        dead.iter().for_each(|node| self.restart(node));
    }

    /// Some attempt that runs.
    pub(super) fn any_running(&self, at: &Index) -> Option<(TaskId, Attempt)> {
        (!self.running.is_empty()).then(|| *self.running.keys().nth(at.index(self.running.len())).expect("so many run"))
    }

    pub(super) fn lend(&mut self) {
        let living = self.nodes.iter().filter(|(_, (_, _, lives))| *lives);
        let leases: Vec<_> = living
            .map(|(node, (slots, incarnation, _))| (node.clone(), *incarnation, Resources::cpu(slots * 1000)))
            .collect();
        self.owner.leases(&leases);
        self.settle();
    }

    pub(super) fn attempt_of(&self, task: TaskId) -> (Attempt, NodeId) {
        let found = self.running.iter().find(|((id, _), _)| *id == task).expect("the task runs");
        (found.0.1, found.1.0.clone())
    }

    pub(super) fn runs(&self, task: TaskId) -> bool {
        self.running.keys().any(|(id, _)| *id == task)
    }

    pub(super) fn complete_with(&mut self, task: TaskId, outputs: &[Output], consumed: &[Consumed]) {
        let attempt = self.attempt_of(task).0;
        self.complete_attempt(task, attempt, outputs, consumed);
    }

    /// An attempt completes, whether or not it was cancelled.
    pub(super) fn complete_attempt(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        outputs: &[Output],
        consumed: &[Consumed],
    ) {
        let key = (task, attempt);
        let (node, _) = match self.running.remove(&key) {
            Some(running) => {
                let made = |index: usize| (running.0.clone(), task.output(index as u32).copy(JOB, attempt.makes()));
                self.stored.extend((0..outputs.len()).map(|index| (made(index), attempt.makes())));
                running
            }
            // Its node deletes what it has made.
            None => self.zombies.remove(&key).expect("the attempt runs"),
        };
        let figures = TaskFigures { micros: self.micros, ..TaskFigures::default() };
        let incarnation = self.incarnation(&node);
        if let Some(made_by) = self.owner.completed((&node, incarnation), task, attempt, outputs, consumed, figures) {
            let (outputs, consumed, values) = (outputs.to_vec(), consumed.to_vec(), Vec::new());
            self.log.push(TaskDone { task, node, outputs, made_by, consumed, values });
        }
        self.settle();
    }

    pub(super) fn complete(&mut self, task: TaskId) {
        self.complete_with(task, &[output(8, 1)], &[]);
    }

    pub(super) fn fail(&mut self, task: TaskId, kind: FailureKind) {
        let attempt = self.attempt_of(task).0;
        self.fail_attempt(task, attempt, kind);
    }

    pub(super) fn fail_with(&mut self, task: TaskId, failure: TaskFailure) {
        let attempt = self.attempt_of(task).0;
        self.fail_attempt_with(task, attempt, failure);
    }

    pub(super) fn fail_attempt(&mut self, task: TaskId, attempt: Attempt, kind: FailureKind) {
        self.fail_attempt_with(task, attempt, TaskFailure::new(kind, "why"));
    }

    fn fail_attempt_with(&mut self, task: TaskId, attempt: Attempt, failure: TaskFailure) {
        let (node, _) = self.running.remove(&(task, attempt)).expect("the attempt runs");
        let incarnation = self.incarnation(&node);
        self.owner.failed((&node, incarnation), task, attempt, failure, None);
        self.settle();
    }

    /// An attempt did not find an argument.
    pub(super) fn lose_argument(&mut self, task: TaskId, attempt: Attempt, lost: LostObject) {
        let (node, _) = self.running.remove(&(task, attempt)).expect("the attempt runs");
        let incarnation = self.incarnation(&node);
        self.owner.failed((&node, incarnation), task, attempt, TaskFailure::argument_lost("gone", [lost]), None);
        self.settle();
    }

    pub(super) fn release(&mut self, task: TaskId) {
        self.owner.release_object(task.output(0));
        self.settle();
    }
}

pub(super) fn output(bytes: u64, rows: u64) -> Output {
    Output { bytes, rows, row_hash: RowHash(u128::from(rows)) }
}

pub(super) fn whole(task: TaskId) -> Arg {
    Arg { source: Source::Object(task.output(0)), parts: Parts::All }
}
