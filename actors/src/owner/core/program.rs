//! What the program asks: its calls, what it waits for, and what it reads.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_store::Block;
use hashbrown::HashMap;
use tokio::sync::oneshot;
use tracing::info;

use super::state::Tracker;
use super::{OwnerCore, Surroundings};
use crate::event::EventKind;
use crate::futures::{FoundCopy, Notify, ProgramCall, Teller};
use crate::ids::{CopyId, NodeId, ObjectId};
use crate::joblog::Entry;
use crate::owner::effect::OwnerEffect;
use crate::owner::event::ReadError;
use crate::task::{JobError, Output, Parts};

/// Where bytes for the program go.
type BytesTo = oneshot::Sender<Result<Block, JobError>>;

/// Who waits, and for what of an object.
enum Waiter {
    Notify(Notify),
    Stream(Teller<Result<Option<ObjectId>, JobError>>),
    Stat(oneshot::Sender<Result<Output, JobError>>),
    Get { parts: Parts, answer: BytesTo },
    Find(oneshot::Sender<Result<FoundCopy, JobError>>),
}

/// A copy of which parts are being brought to the program.
struct Reading {
    copy: CopyId,
    parts: Parts,
    /// The other node that has it.
    from: Option<NodeId>,
    since: Duration,
    answer: BytesTo,
}

/// What the program waits for.
#[derive(Default)]
pub(super) struct ProgramWaits {
    waiters: HashMap<Tracker, Waiter>,
    last_tracker: Tracker,
    reads: BTreeMap<u64, Reading>,
    last_read: u64,
    /// How often the program has called.
    calls: u64,
    /// Queues of answers on their way to the program.
    unread: HashMap<usize, Weak<AtomicU64>>,
    /// Computations under way: what their threads are called, and since when.
    computing: BTreeMap<u64, (String, Duration)>,
}

impl ProgramWaits {
    fn wait(&mut self, waiter: Waiter) -> Tracker {
        self.last_tracker += 1;
        self.waiters.insert(self.last_tracker, waiter);
        self.last_tracker
    }

    /// Answers go into this queue from now on, or have before.
    fn answers_into(&mut self, queue: Weak<AtomicU64>) {
        self.unread.entry(queue.as_ptr() as usize).or_insert(queue);
    }

    /// How often the program has called.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Questions of the program that are not answered; streams are none, they are read when there is something.
    pub(super) fn unanswered(&self) -> u64 {
        let waits = self.waiters.values().filter(|waiter| !matches!(waiter, Waiter::Stream(_)));
        waits.count() as u64
    }

    /// Answers that the program has not taken.
    pub(super) fn unread(&mut self) -> u64 {
        self.unread.retain(|_, count| count.strong_count() > 0);
        self.unread.values().filter_map(Weak::upgrade).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Threads on which the program computes, and for how long.
    pub(super) fn computing(&self, now: Duration) -> Vec<(String, Duration)> {
        self.computing.values().map(|(thread, since)| (thread.clone(), now.saturating_sub(*since))).collect()
    }

    /// Threads on which the program computes still, when nobody waits for that any more.
    pub(super) fn leave_computing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.computing).into_values().map(|(thread, _)| thread).collect()
    }

    /// Objects that are being brought to the program, from which other node and for how long.
    pub(super) fn reads(&self, now: Duration) -> Vec<(ObjectId, NodeId, Duration)> {
        let read = |reading: &Reading| {
            let (object, _) = ObjectId::of_copy(reading.copy);
            Some((object, reading.from.clone()?, now.saturating_sub(reading.since)))
        };
        self.reads.values().filter_map(read).collect()
    }
}

impl OwnerCore {
    /// The program calls.
    pub(super) fn called(&mut self, call: ProgramCall, around: &dyn Surroundings) {
        self.program.calls += 1;
        match call {
            ProgramCall::Submit { id, description } => self.state.submit(id, *description),
            ProgramCall::Put { object, number, output, kept } => {
                self.state.put((object, number), output, &self.place.node, self.place.incarnation);
                if let Some(bytes) = kept {
                    self.state.keep_put(object, number, &bytes);
                }
            }
            ProgramCall::Track { object, notify } => {
                let tracker = self.program.wait(Waiter::Notify(notify));
                self.state.track_made(object, tracker);
            }
            ProgramCall::TrackStream { task, queue } => {
                self.program.answers_into(queue.unread());
                let tracker = self.program.wait(Waiter::Stream(queue));
                self.state.track_stream(task, tracker);
            }
            ProgramCall::Get { object, parts, answer } => self.wait_to_get(object, parts, answer),
            ProgramCall::Stat { object, answer } => {
                let tracker = self.program.wait(Waiter::Stat(answer));
                self.state.track_made(object, tracker);
            }
            ProgramCall::Find { object, unreadable, answer } => {
                if let Some(copy) = unreadable {
                    self.state.unreadable(copy);
                }
                self.wait_to_find(object, answer);
            }
            ProgramCall::OpenEdge { edge, shape } => self.state.open_edge(edge, shape),
            ProgramCall::JoinEdge { edge, object } => self.state.join_edge(edge, object),
            ProgramCall::Unread { edge, parts } => self.state.unread(edge, parts),
            ProgramCall::StopEdges(edge) => self.state.stop_edges(edge),
            ProgramCall::ReleaseEdge(edge) => self.state.release_edge(edge),
            ProgramCall::MakeSet { set, members, edge } => self.state.make_set(set, &members, edge),
            ProgramCall::ReleaseObject(object) => self.state.release_object(object),
            ProgramCall::ReleaseSet(set) => self.state.release_set(set),
            ProgramCall::ReleaseStream(task) => self.state.release_stream(task),
            ProgramCall::Cancel(object) => self.state.cancel_maker(object),
            ProgramCall::OpenLane { lane, node, ranges, fold_at, news } => {
                self.open_lane(lane, node, ranges, fold_at, news);
            }
            ProgramCall::Push { object, lanes } => self.lanes.push(&self.state, object, lanes),
            ProgramCall::MayGiveUp(object) => self.state.may_give_up(object),
            ProgramCall::Locations { object, answer } => drop(answer.send(self.state.locations(object))),
            ProgramCall::Plan { stage, tasks, bytes } => {
                self.emit_here(EventKind::StagePlanned { stage, tasks, bytes });
            }
            ProgramCall::Say { text } => {
                info!(job_id = %self.place.job, text, "the program says");
                self.emit_here(EventKind::Note { text });
            }
            ProgramCall::Estimate { snapshot } => self.emit_here(EventKind::Estimated { snapshot }),
            ProgramCall::OwnerBytes { answer } => drop(answer.send(self.state.bytes())),
            ProgramCall::Chose(choice) => self.note(Entry::Choice(choice)),
            ProgramCall::Computes { number, thread } => {
                self.program.computing.insert(number, (thread, around.now()));
            }
            ProgramCall::Computed { number } => drop(self.program.computing.remove(&number)),
            ProgramCall::Finished(result) => self.ending.returned(result),
        }
    }

    pub(super) fn resolved(
        &mut self,
        tracker: Tracker,
        object: ObjectId,
        outcome: Result<(), JobError>,
        around: &dyn Surroundings,
    ) {
        match self.program.waiters.remove(&tracker) {
            Some(Waiter::Notify(Notify::Once(answer))) => drop(answer.send(outcome)),
            Some(Waiter::Notify(Notify::Queue(queue))) => {
                self.program.answers_into(queue.unread());
                queue.send((object, outcome));
            }
            Some(Waiter::Get { parts, answer }) => match outcome {
                Ok(()) => self.get(object, parts, answer, around),
                Err(error) => drop(answer.send(Err(error))),
            },
            Some(Waiter::Stat(answer)) => {
                let stat = outcome.and_then(|()| {
                    let made = self.state.stat(object);
                    made.ok_or_else(|| JobError::program(format!("object {object} was released")))
                });
                let _ = answer.send(stat);
            }
            Some(Waiter::Find(answer)) => match outcome {
                Ok(()) => self.find(object, answer),
                Err(error) => drop(answer.send(Err(error))),
            },
            Some(Waiter::Stream(_)) | None => {}
        }
    }

    /// The program is told where an object is when it is somewhere.
    fn wait_to_find(&mut self, object: ObjectId, answer: oneshot::Sender<Result<FoundCopy, JobError>>) {
        let tracker = self.program.wait(Waiter::Find(answer));
        self.state.track(object, tracker);
    }

    fn find(&mut self, object: ObjectId, answer: oneshot::Sender<Result<FoundCopy, JobError>>) {
        match self.state.lookup(object) {
            Some((output, node, copy)) => drop(answer.send(Ok(FoundCopy { output, node, copy }))),
            // Released, or lost since it was found: whoever waits is told, or waits on.
            None => self.wait_to_find(object, answer),
        }
    }

    pub(super) fn streamed(&mut self, tracker: Tracker, item: Result<Option<ObjectId>, JobError>) {
        let over = !matches!(item, Ok(Some(_)));
        let announced = item.as_ref().ok().copied().flatten();
        let taken = match self.program.waiters.get(&tracker) {
            Some(Waiter::Stream(queue)) => queue.send(item),
            _ => false,
        };
        // The reader is gone: the reference that came with the announcement goes, too.
        if let Some(object) = announced.filter(|_| !taken) {
            self.state.release_object(object);
        }
        if over {
            self.program.waiters.remove(&tracker);
        }
    }

    /// The program gets the bytes of an object when it is there.
    fn wait_to_get(&mut self, object: ObjectId, parts: Parts, answer: BytesTo) {
        let tracker = self.program.wait(Waiter::Get { parts, answer });
        self.state.track(object, tracker);
    }

    /// Brings the bytes of an object to the program: they are here, on disk here, or elsewhere.
    fn get(&mut self, object: ObjectId, parts: Parts, answer: BytesTo, around: &dyn Surroundings) {
        let Some((output, node, copy)) = self.state.lookup(object) else {
            // Released, or lost since it was found: whoever waits is told, or waits on.
            return self.wait_to_get(object, parts, answer);
        };
        if output.bytes == 0 {
            return drop(answer.send(Ok(Block::empty())));
        }
        let from = (node != self.place.node).then_some(node);
        self.program.last_read += 1;
        let read = self.program.last_read;
        let reading = Reading { copy, parts, from: from.clone(), since: around.now(), answer };
        self.program.reads.insert(read, reading);
        self.effects.push(OwnerEffect::Read { read, copy, parts, from });
    }

    /// What came of reading for the program.
    pub(super) fn was_read(&mut self, read: u64, outcome: Result<Block, ReadError>) {
        let Some(Reading { copy, parts, answer, .. }) = self.program.reads.remove(&read) else { return };
        match outcome {
            Ok(block) => drop(answer.send(Ok(block))),
            Err(ReadError::Failed(error)) => drop(answer.send(Err(error))),
            Err(ReadError::Unreadable) => {
                self.state.unreadable(copy);
                // Not at once: what is put back is there only when that has been done.
                self.wait_to_get(ObjectId::of_copy(copy).0, parts, answer);
            }
        }
    }
}
