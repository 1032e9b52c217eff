//! Answers to requests: one subscription receives all of them and finds who waits.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::auth::random;
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

/// Who waits. Its channel has room for all answers that are wanted.
pub(super) struct Waiter {
    pub(super) sender: mpsc::Sender<Incoming>,
    /// A larger answer is none.
    pub(super) bytes_max: usize,
}

#[derive(Default)]
pub(super) struct AnswerTable {
    waiting: Mutex<HashMap<u64, Waiter>>,
}

/// Takes a waiter out of the table, whatever way the wait ends.
pub(super) struct Waiting<'a> {
    table: &'a AnswerTable,
    pub(super) token: u64,
}

impl AnswerTable {
    /// Under a token that nobody can foresee, or whoever may publish where answers go could answer before who was asked.
    pub(super) fn enter(&self, waiter: Waiter) -> Waiting<'_> {
        let token = random() as u64;
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
        let waiting = self.waiting.lock();
        // None: a late answer, whoever asked has stopped waiting.
        let waiter = waiting.get(&token).filter(|waiter| incoming.message.wire_bytes() <= waiter.bytes_max);
        if let Some(waiter) = waiter {
            // Full means that all answers that are wanted are there already.
            let _ = waiter.sender.try_send(incoming);
        }
    }

    fn closed(&self) {
        self.waiting.lock().clear();
    }
}
