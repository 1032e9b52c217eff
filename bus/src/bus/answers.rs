//! Answers to requests: one subscription receives all of them and finds who waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::backend::{Incoming, Registration, Sink};
use crate::error::BusError;
use crate::subject::Subject;

/// The one subscription that receives all answers of a bus: `<inbox>.<id>.<token>`.
pub(super) struct Answers {
    pub(super) prefix: String,
    pub(super) table: Arc<AnswerTable>,
    pub(super) _registration: Registration,
}

impl Answers {
    pub(super) fn reply_subject(&self, token: u64) -> Result<Subject, BusError> {
        Ok(Subject::parse(&format!("{}.{token}", self.prefix))?)
    }
}

/// Who waits, and for how many.
pub(super) enum Waiter {
    One(oneshot::Sender<Incoming>),
    Many(mpsc::Sender<Incoming>),
}

#[derive(Default)]
pub(super) struct AnswerTable {
    next_token: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiter>>,
}

/// Takes a waiter out of the table, whatever way the wait ends.
pub(super) struct Waiting<'a> {
    table: &'a AnswerTable,
    pub(super) token: u64,
}

impl AnswerTable {
    pub(super) fn enter(&self, waiter: Waiter) -> Waiting<'_> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(token, waiter);
        Waiting { table: self, token }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.table.waiting.lock().remove(&self.token);
    }
}

impl Sink for AnswerTable {
    fn deliver(&self, incoming: Incoming) {
        let Some(token) = incoming.subject.tokens().last().and_then(|token| token.parse().ok()) else { return };
        let mut waiting = self.waiting.lock();
        match waiting.get(&token) {
            Some(Waiter::Many(sender)) => {
                // Full means that all answers that are wanted are there already.
                let _ = sender.try_send(incoming);
            }
            Some(Waiter::One(_)) => {
                if let Some(Waiter::One(sender)) = waiting.remove(&token) {
                    let _ = sender.send(incoming);
                }
            }
            // A late answer: whoever asked has stopped waiting.
            None => {}
        }
    }

    fn closed(&self) {
        self.waiting.lock().clear();
    }
}
