//! What the program waits for and reads: objects that exist, streams, sizes, bytes.

use exobus_store::Block;
use tokio::sync::oneshot;

use super::actor::OwnerActor;
use super::event::OwnerEvent;
use super::state::Tracker;
use crate::futures::{Notify, Teller};
use crate::ids::ObjectId;
use crate::shell::Scope;
use crate::task::{FailureKind, JobError, Output, Parts};

/// Who waits, and for what of an object.
pub(super) enum Waiter {
    Notify(Notify),
    Stream(Teller<Result<Option<ObjectId>, JobError>>),
    Stat(oneshot::Sender<Result<Output, JobError>>),
    Get { parts: Parts, answer: oneshot::Sender<Result<Block, JobError>> },
}

impl OwnerActor {
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
        scope: &mut Scope<'_, Self>,
    ) {
        match self.waiters.remove(&tracker) {
            Some(Waiter::Notify(Notify::Once(answer))) => drop(answer.send(outcome)),
            Some(Waiter::Notify(Notify::Queue(queue))) => {
                self.unread.add(queue.unread());
                queue.send((object, outcome));
            }
            Some(Waiter::Get { parts, answer }) => match outcome {
                Ok(()) => self.get(object, parts, answer, scope),
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
        // The reader is gone: the reference that came with the announcement goes, too.
        if let Some(object) = announced.filter(|_| !taken) {
            self.state.release_object(object);
        }
        if over {
            self.waiters.remove(&tracker);
        }
    }

    /// Brings the bytes of an object to the program: they are here, on disk here, or elsewhere.
    pub(super) fn get(
        &mut self,
        object: ObjectId,
        parts: Parts,
        answer: oneshot::Sender<Result<Block, JobError>>,
        scope: &mut Scope<'_, Self>,
    ) {
        let Some((output, node, copy)) = self.state.lookup(object) else {
            // Released, or lost since it was found: whoever waits is told, or waits on.
            let tracker = self.wait(Waiter::Get { parts, answer });
            return self.state.track(object, tracker);
        };
        if output.bytes == 0 {
            return drop(answer.send(Ok(Block::empty())));
        }
        if node != *self.post.node() {
            let (stager, job) = (self.stager.clone(), self.job);
            let read = self.reads.begin(object, &node, self.now());
            return scope.later(async move {
                let _read = read;
                match stager.get(job, copy, parts, node).await {
                    Err(failure) if failure.kind == FailureKind::ArgumentLost => {
                        return Some(OwnerEvent::Unreadable { copy, parts, answer });
                    }
                    Err(failure) => drop(answer.send(Err(JobError::Store { message: failure.to_string() }))),
                    Ok(block) => drop(answer.send(Ok(block))),
                }
                None
            });
        }
        match self.store.try_get(&copy, parts) {
            Some(block) => drop(answer.send(Ok(block))),
            None => {
                let block = self.store.get(&copy, parts);
                scope.later(async move {
                    match block.await {
                        Err(error) if error.is_lost() => {
                            return Some(OwnerEvent::Unreadable { copy, parts, answer });
                        }
                        block => drop(answer.send(block.map_err(JobError::from))),
                    }
                    None
                });
            }
        }
    }
}
