//! What the program waits for and reads: a mirror of `owner/reading.rs`.

use exobus_store::Block;
use tokio::sync::oneshot;

use super::{Owner, Waiter};
use crate::futures::Notify;
use crate::ids::ObjectId;
use crate::owner::Tracker;
use crate::simulation::acts::{Act, Cx};
use crate::simulation::store::Found;
use crate::task::{JobError, Parts};

impl Owner {
    pub(super) fn wait(&mut self, waiter: Waiter) -> Tracker {
        let tracker = self.next_tracker;
        self.next_tracker += 1;
        self.waiters.insert(tracker, waiter);
        tracker
    }

    pub(super) fn resolved(
        &mut self,
        tracker: Tracker,
        object: ObjectId,
        outcome: Result<(), JobError>,
        cx: &mut Cx<'_>,
    ) {
        match self.waiters.remove(&tracker) {
            Some(Waiter::Notify(Notify::Once(answer))) => drop(answer.send(outcome)),
            Some(Waiter::Notify(Notify::Queue(queue))) => drop(queue.send((object, outcome))),
            Some(Waiter::Get { parts, answer }) => match outcome {
                Ok(()) => self.get(object, parts, answer, cx),
                Err(error) => drop(answer.send(Err(error))),
            },
            Some(Waiter::Stat(answer)) => {
                let stat = outcome.and_then(|()| {
                    let made = self.state.stat(object);
                    made.ok_or_else(|| JobError::program(format!("object {object} was released")))
                });
                let _ = answer.send(stat);
            }
            Some(Waiter::Stream(_)) | None => {}
        }
    }

    pub(super) fn streamed(&mut self, tracker: Tracker, item: Result<Option<ObjectId>, JobError>) {
        let over = !matches!(item, Ok(Some(_)));
        let announced = item.as_ref().ok().copied().flatten();
        let taken = match self.waiters.get(&tracker) {
            Some(Waiter::Stream(queue)) => queue.send(item),
            _ => false,
        };
        if let Some(object) = announced.filter(|_| !taken) {
            self.state.release_object(object);
        }
        if over {
            self.waiters.remove(&tracker);
        }
    }

    pub(super) fn get(
        &mut self,
        object: ObjectId,
        parts: Parts,
        answer: oneshot::Sender<Result<Block, JobError>>,
        cx: &mut Cx<'_>,
    ) {
        let Some((output, node, copy)) = self.state.lookup(object) else {
            let tracker = self.wait(Waiter::Get { parts, answer });
            return self.state.track(object, tracker);
        };
        if output.bytes == 0 {
            return drop(answer.send(Ok(Block::empty())));
        }
        if node != *cx.me {
            return cx.acts.push(Act::Read { copy, parts, node, answer });
        }
        match cx.store.find(copy, parts) {
            Found::Here(read) => {
                cx.oracle.given(object, parts, &read);
                let _ = answer.send(Ok(Block::empty()));
            }
            Found::Released | Found::Absent => {
                self.state.unreadable(copy);
                self.get(object, parts, answer, cx);
            }
        }
    }
}
