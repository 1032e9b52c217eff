//! Replay: what is lost with a node, or on its disk, is made again from lineage, where somebody still needs it.
//!
//! A lost object is like one that was freed while somebody holds it: its description is there, and who needs the value
//! (a task that must run, a `get`) makes its task run again, and so on backwards (law 2). Nothing else is made again: a
//! running task may have its arguments already, and a handle of the program may never be used.
//!
//! | what happens | what is done |
//! |---|---|
//! | an incarnation of a node is over | its attempts fail with `NodeLost`; its objects are lost; sets are told anew |
//! | an argument is not where it should be, or corrupt | that copy is lost; the attempt does not count |
//! | an argument's node cannot be reached for seconds | the task goes where its arguments can be read ([`reach`](super::reach)) |
//! | a small output is lost | the Owner has its bytes ([`bytes`](super::rare::OfObject::bytes)) and puts them into its own store |
//! | a task runs again whose arguments' parts were freed as they were read | copies that are spent are done without, and not taken back: its arguments come whole or not at all |
//! | a node is back | it says what it holds: the copies that went with it are taken, if somebody needs them, the rest is freed |
//!
//! What is made again must be what it was: rows, bytes and hash of an output are compared with those of the first time
//! (law 4), for streams output by output. Ledgers count once: a task that was counted is not counted again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::edge::EdgeEntry;
use super::object::Object;
use super::placement::NodeIndex;
use super::rare::Waiter;
use super::state::Effect;
use super::tables::{EntrySource, OwnerState};
use super::task::State;
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, CopyId, CopyNumber, Incarnation, NodeId, ObjectId, TaskId};
use crate::task::{FailureKind, JobError, Loss, LostObject, Output, Place, Resources, TaskFailure};

/// How often the outputs of one task may be lost. Each time, a node or a disk has failed; more is no accident.
const REPLAYS_MAX: u32 = 20;

impl OwnerState {
    /// The Owner says where it is itself.
    pub(super) fn is_at_home(&mut self, node: &NodeId, incarnation: Incarnation) {
        self.home = Some(self.node_index(node, incarnation));
    }

    /// Size, rows and hash of an object that was made, whether or not it is there still.
    pub(super) fn stat(&self, object: ObjectId) -> Option<Output> {
        let object = &self.objects[self.object_of(object)?];
        object.was_made().then_some(object.output())
    }

    /// The bytes of small outputs that a completion brought.
    pub(super) fn values(&mut self, task: TaskId, attempt: Attempt, values: &[(u32, Bytes)]) {
        for (index, bytes) in values {
            // Of an attempt that does not count no copy does.
            if let Some((object, _)) = self.that_counts(task.output(*index), attempt.makes()) {
                self.objects[object].keep_bytes(attempt.makes(), bytes);
            }
        }
    }

    /// A node died or left.
    pub(super) fn node_dead(&mut self, node: &NodeId, incarnation: Incarnation) {
        let Some(index) = self.known_node(node) else { return };
        let view = &mut self.nodes[usize::from(index)];
        if !view.alive || view.incarnation > incarnation {
            return;
        }
        view.alive = false;
        self.incarnation_over(index);
    }

    /// A node is there: back from the dead, or in a new incarnation. What it still has may spare work.
    pub(super) fn node_up(&mut self, node: &NodeId, incarnation: Incarnation) {
        // One that is new may have worked for an earlier run.
        if self.numbering.run > 0 {
            self.may_be_dead(node);
        }
        let Some(index) = self.known_node(node) else { return };
        let index = self.node_index(&self.nodes[usize::from(index)].id.clone(), incarnation);
        let view = &mut self.nodes[usize::from(index)];
        if view.incarnation != incarnation {
            return;
        }
        // The same incarnation may be called dead by mistake, and come back.
        view.alive = true;
        if std::mem::take(&mut view.lost) {
            self.effects.push(Effect::TakeInventory { node: node.clone() });
        }
    }

    /// The session with a node was made anew: an unknown end of what this incarnation of it was told, and of what it said, is lost.
    /// So no attempt there counts (none of them has failed), what it holds is lost until it says that it has it. Sessions are
    /// made anew with a new incarnation, which holds little; were that so with others, an inventory should be taken first.
    pub(super) fn session_reset(&mut self, node: &NodeId, incarnation: Incarnation) {
        let Some(index) = self.known_node(node) else { return };
        let view = &self.nodes[usize::from(index)];
        if view.incarnation < incarnation {
            // What is said to it from now on is for that incarnation, which knows nothing of what was said before.
            return self.node_up(node, incarnation);
        }
        if !view.alive || view.incarnation != incarnation {
            return;
        }
        let live = self.tasks.iter().filter_map(|(_, task)| {
            let attempt = task.live_at(index)?;
            Some((task.id, attempt))
        });
        for (id, attempt) in live.collect::<Vec<_>>() {
            if let Some(task) = self.find_task(id)
                && self.end_attempt(task, attempt, index)
            {
                self.given_back(task);
            }
        }
        self.holdings_lost(index);
        self.effects.push(Effect::TakeInventory { node: node.clone() });
    }

    /// Everything that an incarnation of a node had is gone.
    pub(super) fn incarnation_over(&mut self, node: NodeIndex) {
        let view = &mut self.nodes[usize::from(node)];
        view.leased = Resources::default();
        view.lost = true;
        self.unreachable.forget(node);
        self.unpin(node);
        self.holdings_lost(node);
        let running = self.tasks.iter().filter_map(|(task, entry)| {
            let attempt = entry.live_at(node)?;
            Some((task, attempt))
        });
        let id = self.nodes[usize::from(node)].id.clone();
        for (task, attempt) in running.collect::<Vec<_>>() {
            // A task may have ended with an earlier one of this list.
            if self.tasks.get(task).is_some() && self.end_attempt(task, attempt, node) {
                let failure = TaskFailure::new(FailureKind::NodeLost, id.to_string());
                self.attempt_failed(task, attempt, &id, failure, None);
            }
        }
        self.nodes[usize::from(node)].in_flight.clear();
    }

    /// What a node holds, and what it was told of sets, it does not any more, as far as is known.
    fn holdings_lost(&mut self, node: NodeIndex) {
        let view = &mut self.nodes[usize::from(node)];
        view.lingering = 0;
        view.long_running.clear();
        self.resumed.node_lost(node);
        for (_, task) in self.tasks.iter_mut() {
            task.rare.change_if_there(|rare| rare.rather_at = rare.rather_at.filter(|at| *at != node));
        }
        for (_, set) in self.sets.iter_mut() {
            set.unknown_at(node);
        }
        let here = self.objects.iter().filter(|(_, object)| object.holder() == Some(node));
        let lost: Vec<Index> = here.map(|(index, _)| index).collect();
        self.tell_lost(node, &lost);
        self.lose(&lost, Object::lose);
    }

    fn tell_lost(&mut self, node: NodeIndex, lost: &[Index]) {
        if lost.is_empty() {
            return;
        }
        let bytes = lost.iter().map(|object| self.objects[*object].output().bytes).sum();
        let kind = EventKind::ObjectsLost { objects: lost.len() as u64, bytes };
        self.happened(self.nodes[usize::from(node)].id.clone(), kind);
    }

    /// Tasks that were bound to a node are no longer: what bound them, objects that lie there, is gone with it.
    fn unpin(&mut self, node: NodeIndex) {
        let (id, mut unpinned) = (self.nodes[usize::from(node)].id.clone(), self.retried_no_more_at(node));
        for entry in self.options.entries.iter_mut().filter(|entry| entry.key.pinned == Some(node)) {
            (entry.key.pinned, unpinned) = (None, true);
            entry.options.place = Place::Node { node: id.clone(), soft: true };
        }
        if unpinned {
            self.queue_anew();
        }
    }

    /// These objects have no value any more, and what becomes of their copies `left` says: who waits for them waits again, and nodes that
    /// know sets with them are told anew. Small ones are put back at once.
    fn lose(&mut self, lost: &[Index], left: impl Fn(&mut Object)) {
        let moved: BTreeSet<Index> = lost.iter().copied().collect();
        let mut gone = BTreeSet::new();
        for object in &moved {
            if self.restore(*object) {
                continue;
            }
            left(&mut self.objects[*object]);
            gone.insert(*object);
        }
        if moved.is_empty() {
            return;
        }
        let mut broken = BTreeSet::new();
        let holding = self.sets.iter().filter(|(_, set)| set.members.iter().any(|it| moved.contains(it)));
        for index in holding.map(|(index, _)| index).collect::<Vec<_>>() {
            self.set_changed(index);
            let set = &mut self.sets[index];
            if !set.uses.is_referenced() {
                continue;
            }
            let missing: Vec<Index> = set.members.iter().copied().filter(|member| gone.contains(member)).collect();
            for member in missing {
                set.lacks_one_more(false);
                self.objects[member].add_waiter(Waiter::Set(index));
                broken.insert(index);
            }
        }
        let misses = |source: &EntrySource| match source {
            EntrySource::Object(object) => gone.contains(object),
            EntrySource::Set(set) => broken.contains(set),
        };
        let waiting = self.tasks.iter().filter(|(_, task)| {
            matches!(task.state(), State::Ready | State::Waiting { .. })
                && task.args.iter().any(|arg| misses(&arg.source))
        });
        for task in waiting.map(|(index, _)| index).collect::<Vec<_>>() {
            // It may have failed with another one of these, whose argument will never be made again.
            let entry = self.tasks.get(task);
            if entry.is_some_and(|entry| matches!(entry.state(), State::Ready | State::Waiting { .. })) {
                self.withdraw(task);
                self.await_args(task, false);
            }
        }
        for object in gone {
            let put = |entry: &&Object| entry.task.is_none() && entry.uses.is_referenced();
            if let Some(entry) = self.objects.get(object).filter(put) {
                let error = JobError::PutLost { object: entry.id };
                self.effects.push(Effect::Fail(error));
            }
        }
    }

    /// These copies are done without, on a node that may well live: they are freed, and not taken back.
    pub(super) fn do_without(&mut self, objects: &[Index]) {
        for object in objects {
            if let Some((node, copy)) = self.copy_that_counts(*object) {
                self.effects.push(Effect::Free { node, copy });
            }
        }
        self.lose(objects, Object::drop_value);
    }

    /// Puts a small object back whose bytes the Owner knows.
    fn restore(&mut self, object: Index) -> bool {
        let lost_at = self.objects[object].copy().at().map(|(node, _)| node);
        // What the program put lies here, and it is its copy that cannot be read.
        let is_elsewhere = |home: &NodeIndex| self.objects[object].task.is_none() || Some(*home) != lost_at;
        let Some(node) = self.home.filter(is_elsewhere) else { return false };
        let Some(number) = self.put_back(object) else { return false };
        self.objects[object].is_at(node, number, false);
        true
    }

    /// Puts a small object into the Owner's own store, where its bytes are known: another copy, of what the same attempt or the program made. Its
    /// number.
    pub(super) fn put_back(&mut self, object: Index) -> Option<CopyNumber> {
        let (maker, bytes) = self.objects[object].kept_bytes()?;
        if self.mixes(object, Some(maker)) {
            return None;
        }
        let number = match self.objects[object].task {
            Some(task) => self.next_number(task)?,
            None => self.numbering.next_of_put()?,
        };
        let (id, Output { rows, row_hash, .. }) = (self.objects[object].id, self.objects[object].output());
        self.resumed.forget(id);
        self.effects.push(Effect::Restore { copy: id.copy(self.job, number), maker, bytes, rows, row_hash });
        Some(number)
    }

    /// The Owner could not put it back.
    pub(super) fn not_restored(&mut self, copy: CopyId) {
        let (object, number) = ObjectId::of_copy(copy);
        if let Some((index, _)) = number.and_then(|number| self.that_counts(object, number)) {
            self.objects[index].forget_bytes();
            self.lose(&[index], Object::drop_value);
        }
    }

    /// A task that is done runs again, since something that it made is wanted and gone. Its arguments are asked for with
    /// the next flush: a chain of tasks may be as long as it likes.
    pub(super) fn run_again(&mut self, task: Index) {
        self.tasks[task].want_again();
        self.reference_args(task);
        self.wanted.push(task);
    }

    /// Asks for the arguments of all tasks that are to run again.
    pub(super) fn ask_for_wanted(&mut self) {
        while !self.wanted.is_empty() {
            let still =
                |owner: &Self, task: &Index| owner.tasks.get(*task).is_some_and(|task| task.state() == State::Wanted);
            let mut wanted = std::mem::take(&mut self.wanted);
            wanted.retain(|task| still(self, task));
            self.take_back_what_was_read(&wanted);
            for task in wanted {
                if !still(self, &task) {
                    continue;
                }
                self.tell_replayed(task);
                match self.replayed_too_often(task) {
                    Some(error) => self.fail_task(task, error),
                    None => self.await_args(task, true),
                }
            }
        }
    }

    fn tell_replayed(&mut self, task: Index) {
        if !self.tasks[task].is_replay() {
            return;
        }
        self.counts.replayed += 1;
        let entry = &self.tasks[task];
        let kind = EventKind::TaskReplayed { task: entry.id, stage: self.stage(task) };
        let at = self.home.map_or(0, usize::from);
        if let Some(node) = self.nodes.get(at) {
            self.happened(node.id.clone(), kind);
        }
    }

    fn replayed_too_often(&mut self, task: Index) -> Option<JobError> {
        let replays = self.tasks[task].rare.change(|rare| {
            rare.replays += 1;
            rare.replays
        });
        if replays <= REPLAYS_MAX {
            return None;
        }
        let entry = &self.tasks[task];
        let message = format!("its outputs were lost {REPLAYS_MAX} times");
        Some(JobError::Task {
            task: entry.id,
            function: self.stage(task).to_string(),
            attempt: Attempt::of(CopyNumber::new(self.numbering.run, entry.numbers()).unwrap_or(CopyNumber::FIRST)),
            node: "several nodes".to_owned(),
            failure: Box::new(TaskFailure::new(FailureKind::ArgumentLost, message)),
        })
    }

    /// Tasks that read parts of an edge once and are to run again find these parts freed, on nodes that are well, and on those that come
    /// back: the objects that they are of are made again, too.
    fn take_back_what_was_read(&mut self, wanted: &[Index]) {
        let mut members = BTreeSet::new();
        for task in wanted {
            let args = if self.tasks[*task].is_replay() { self.tasks[*task].args.len() } else { 0 };
            for position in 0..args {
                let arg = self.tasks[*task].args[position];
                if let EntrySource::Set(set) = arg.source
                    && self.edge_of(set).is_some_and(EdgeEntry::is_read_once)
                {
                    members.extend(self.sets[set].members.iter().copied());
                }
            }
        }
        self.make_whole(members);
    }

    /// Copies of these of which parts were freed are done without: somebody needs them whole.
    pub(super) fn make_whole(&mut self, mut members: BTreeSet<Index>) {
        for member in &members {
            self.resumed.whole_or_none(self.objects[*member].id);
        }
        // What has no bytes lacks none.
        members.retain(|member| self.objects[*member].copy().is_spent() && self.objects[*member].output().bytes > 0);
        let (here, not_here): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| self.objects[*member].is_here());
        for member in not_here {
            self.objects[member].forget_last();
        }
        // Their bytes at the Owner are of no use to who wants them where they were.
        here.iter().for_each(|member| self.objects[*member].forget_bytes());
        self.do_without(&here);
    }

    /// An attempt on `node` did not find arguments.
    pub(super) fn arguments_lost(&mut self, task: Index, node: &NodeId, failure: &TaskFailure) {
        // It may have been told of copies that have been lost, and made again, since.
        let counts = |lost: &&LostObject| self.that_counts(lost.object, lost.number).is_some();
        let lost: Vec<&LostObject> = failure.lost.iter().filter(counts).collect();
        let (unreachable, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(|lost| lost.loss == Loss::Unreachable);
        let mut gone = match unreachable.as_slice() {
            [] => BTreeMap::new(),
            unreachable => self.out_of_reach(task, node, unreachable),
        };
        for lost in &lost {
            if let Some((object, at)) = self.that_counts(lost.object, lost.number) {
                gone.entry(at).or_default().push(object);
            }
        }
        gone.into_iter().for_each(|(at, objects)| self.give_up(at, &objects));
    }

    /// The program could not be given this copy of an object.
    pub(super) fn unreadable(&mut self, copy: CopyId) {
        let (object, number) = ObjectId::of_copy(copy);
        if let Some((index, at)) = number.and_then(|number| self.that_counts(object, number)) {
            self.out_of_our_reach(index, at);
            self.give_up(at, &[index]);
        }
    }

    /// An object and the node of its copy with this number, if that is the one that counts.
    pub(super) fn that_counts(&self, object: ObjectId, number: CopyNumber) -> Option<(Index, NodeIndex)> {
        let index = self.object_of(object)?;
        self.objects[index].copy().at().filter(|(_, counts)| *counts == number).map(|(at, _)| (index, at))
    }

    /// Copies on a node that may well live are done without.
    fn give_up(&mut self, at: NodeIndex, objects: &[Index]) {
        self.tell_lost(at, objects);
        self.do_without(objects);
    }

    /// What a node that is back holds of this job: copies, for each the one that an attempt made whose bytes it has, and what it is. What
    /// is missing is taken; what does not count is freed.
    pub(super) fn inventory(
        &mut self,
        from: (&NodeId, Incarnation),
        held: impl Iterator<Item = (CopyId, u32, Output)>,
    ) {
        let Some(at) = self.admit(from) else { return };
        let (node, _) = from;
        for (copy, maker, output) in held {
            let (object, number) = ObjectId::of_copy(copy);
            let maker = CopyNumber::of_bits(maker);
            let kept = number.is_some_and(|number| self.takes_back(object, (at, number), maker, output));
            if !kept {
                self.effects.push(Effect::Free { node: node.clone(), copy });
            }
        }
    }

    /// A node has a copy of an object; whether that counts, now or still.
    fn takes_back(
        &mut self,
        id: ObjectId,
        (at, number): (NodeIndex, CopyNumber),
        maker: Option<CopyNumber>,
        output: Output,
    ) -> bool {
        // Another run of the job has begun, which made it: this one is over, and knows nothing of it.
        if number.run() > self.numbering.run {
            return true;
        }
        let Some(object) = self.object_of(id) else { return self.found(id, (at, number), maker, output) };
        let entry = &self.objects[object];
        if entry.copy().at() == Some((at, number)) {
            return true;
        }
        let being_made = |task: Index| self.tasks[task].live().iter().any(|(live, _)| live.makes() == number);
        if entry.task.is_some_and(being_made) {
            return true;
        }
        let wanted = entry.output() == output && entry.is_kept() && !self.mixes(object, maker);
        if entry.copy().was(number) && wanted {
            let spent = entry.copy().is_spent();
            self.is_back(object, at, number, spent);
            return true;
        }
        self.found(id, (at, number), maker, output)
    }

    /// Whether something counts of what the task of an object has made which is not of this attempt, and need not be the same.
    pub(super) fn mixes(&self, object: Index, maker: Option<CopyNumber>) -> bool {
        let task = self.objects[object].task.filter(|task| !self.function(*task).deterministic);
        task.is_some_and(|task| self.of_other_attempts(task, maker).next().is_some())
    }

    /// A copy that counted, or is as good, is there: what was being done to make another one ends.
    pub(super) fn is_back(&mut self, object: Index, at: NodeIndex, number: CopyNumber, spent: bool) {
        self.exists(object, at, number, spent);
        if let Some(task) = self.objects.get(object).and_then(|object| object.task) {
            self.unless_still_wanted(task);
        }
    }

    /// Ends a replay when everything that it was for is back: the task is as done, or as cancelled, as it was before.
    pub(super) fn unless_still_wanted(&mut self, task: Index) {
        let entry = &self.tasks[task];
        let (id, outputs) = (entry.id, entry.outputs());
        let replaying = matches!(entry.state(), State::Wanted | State::Waiting { .. } | State::Ready | State::Running);
        let missing = |index: u32| {
            let object = self.object_of(id.output(index)).map(|object| &self.objects[object]);
            object.is_some_and(|object| object.uses.is_referenced() && !object.is_here())
        };
        // Only of what was complete once, or cancelled, is it known that nothing else is to come. Streams are made again from the first one.
        if !replaying || !entry.is_replay() || (0..outputs).rev().any(missing) {
            return;
        }
        if !entry.is_counted() {
            return self.fail_task(task, JobError::Cancelled);
        }
        self.withdraw(task);
        self.tasks[task].is_done();
        for tracker in self.tasks[task].take_readers() {
            self.effects.push(Effect::Streamed { tracker, item: Ok(None) });
        }
        for index in 0..outputs {
            if let Some(object) = self.object_of(id.output(index)) {
                self.objects[object].give_up();
            }
        }
        self.unreference_args(task);
        self.retire_if_unused(task);
    }

    /// Whether an output that is made again is what it was the first time; if it is not, and somebody may have read that
    /// one, the job fails (law 4).
    pub(super) fn same_again(&mut self, object: Index, output: Output) -> bool {
        let entry = &self.objects[object];
        if !entry.was_made() || entry.output() == output {
            return true;
        }
        let Some(task) = entry.task else { return true };
        let function = self.function(task);
        if !function.deterministic && entry.edges().next().is_none() && !self.was_read(object) {
            return true;
        }
        let (task, function) = (self.tasks[task].id, function.name.to_string());
        self.effects.push(Effect::Fail(JobError::NonDeterministic { task, function }));
        false
    }

    /// Whether a task that is done may have read the object.
    fn was_read(&self, object: Index) -> bool {
        self.tasks.iter().any(|(_, task)| {
            (task.is_counted() || matches!(task.state(), State::Running))
                && task.args.iter().any(|arg| match arg.source {
                    EntrySource::Object(read) => read == object,
                    EntrySource::Set(set) => self.sets[set].members.contains(&object),
                })
        })
    }
}
