//! What an implementation owes: five operations on bytes. Requests, counting and bounded subscriptions are built on
//! them once, in [`crate::Bus`], so they behave the same everywhere.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::error::BusError;
use crate::message::Message;
use crate::streams::StreamBackend;
use crate::subject::{Pattern, Subject};

/// A message on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Where it goes.
    pub subject: Subject,
    /// Where an answer goes, when one is wanted.
    pub reply: Option<Subject>,
    /// What is sent.
    pub message: Message,
}

/// A message that arrived.
#[derive(Clone)]
pub struct Incoming {
    /// Where it was sent to.
    pub subject: Subject,
    /// Where an answer goes, when one is wanted.
    pub reply: Option<Subject>,
    /// What was sent; empty when `no_responders`.
    pub message: Message,
    /// The bytes of a message of which a subscription has taken none, as it takes shorter ones: of `message` nothing is left.
    pub too_large: Option<usize>,
    /// Said by the bus, on the reply subject of a request, when nobody subscribes to where the request went.
    pub no_responders: bool,
}

/// What a message takes while it waits, beside its payload and headers: its place in a queue, its subject, what the allocator adds.
const EMPTY_BYTES: usize = 512;

impl Incoming {
    /// Bytes of memory that it takes while it waits, about. Queues are bounded in these: whoever sends chooses how long messages are.
    pub(crate) fn held_bytes(&self) -> usize {
        self.message.wire_bytes() + EMPTY_BYTES
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("subject", &self.subject)
            .field("reply", &self.reply)
            .field("bytes", &self.message.wire_bytes())
            .field("no_responders", &self.no_responders)
            .finish()
    }
}

/// Takes what a subscription receives. Called by the backend, in order, one message at a time per publisher; must
/// return at once (no lock held for long, no waiting).
pub trait Sink: Send + Sync {
    /// One message.
    fn deliver(&self, incoming: Incoming);
    /// Nothing more will come: the bus was drained or closed. Called once at most.
    fn closed(&self);
}

/// Keeps a subscription alive; dropping it ends the subscription.
pub struct Registration {
    _guard: Box<dyn Send + Sync>,
}

impl Registration {
    /// Wraps whatever ends the subscription when it is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self { _guard: Box::new(guard) }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}

/// Whether there is a connection, and the how manieth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionState {
    /// Whether it is up now.
    pub connected: bool,
    /// How often it came up; 1 after the first connect. When it grows, messages may have been lost.
    pub connects: u64,
}

/// What the server has said that it does not allow: the latest few complaints, in its own words, and how many there were.
#[derive(Debug, Clone, Default)]
pub struct Complaints {
    count: u64,
    latest: VecDeque<String>,
}

impl Complaints {
    /// Of so many the words are known.
    const KEPT: usize = 64;

    /// Another one.
    pub(crate) fn add(&mut self, words: String) {
        self.count += 1;
        if self.latest.len() == Self::KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(words);
    }

    /// How many there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The first of those that came after so many of which the words contain `text`.
    pub(crate) fn after(&self, count: u64, text: &str) -> Option<&str> {
        let older = (self.latest.len() as u64).saturating_sub(self.count - count);
        self.latest.iter().skip(older as usize).find(|words| words.contains(text)).map(String::as_str)
    }
}

/// What only the backend can count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendStats {
    /// Messages whose subject breaks our syntax; they were dropped.
    pub malformed_messages: u64,
    /// Messages that the client library dropped before we saw them.
    pub dropped_by_client: u64,
    /// Times the connection came back.
    pub reconnects: u64,
    /// Bytes that wait for the socket.
    pub queued_bytes: u64,
}

/// A bus without comfort. Promises, each with clauses in the contract suite (feature "contract"):
/// messages of one publisher to one subject arrive in order; of each queue group one member gets a message; a message
/// with `reply` to a subject without subscribers is answered at once by an [`Incoming`] with `no_responders`.
/// Messages may be lost (never on the in-process bus, unless a subscriber is full).
#[async_trait]
pub trait Backend: Send + Sync {
    /// Sends without waiting.
    ///
    /// # Errors
    /// `TooLarge`, `Full` (nothing was sent), `Closed`.
    fn publish(&self, outgoing: Outgoing) -> Result<(), BusError>;

    /// Subscribes; when it returns, the server knows.
    ///
    /// # Errors
    /// `TimedOut`, `Denied`, `Closed`.
    async fn subscribe(
        &self,
        pattern: Pattern,
        queue: Option<String>,
        sink: Arc<dyn Sink>,
    ) -> Result<Registration, BusError>;

    /// Returns when the server has seen everything published and subscribed here before.
    ///
    /// # Errors
    /// `TimedOut` after `deadline`, `Closed`.
    async fn flush(&self, deadline: Duration) -> Result<(), BusError>;

    /// Sends what is queued, ends all subscriptions (each [`Sink::closed`] is called after its last message) and
    /// closes. A second call does nothing.
    ///
    /// # Errors
    /// `TimedOut` when the server did not take everything within `deadline`; closed it is nevertheless.
    async fn drain(&self, deadline: Duration) -> Result<(), BusError>;

    /// Whether whoever connects has to say who it is; `None`: nobody else can connect.
    fn asks_who_connects(&self) -> Option<bool> {
        None
    }

    /// Follows what the server complains of; `None`: nobody is there who would forbid anything.
    fn complaints(&self) -> Option<watch::Receiver<Complaints>> {
        None
    }

    /// Largest payload with headers, in bytes.
    fn payload_max_bytes(&self) -> usize;

    /// What subjects for answers begin with.
    fn inbox_prefix(&self) -> &str;

    /// Follows the connection.
    fn connection(&self) -> watch::Receiver<ConnectionState>;

    /// The runtime that serves the socket, for tasks that should run next to it; `None` where there is none.
    fn runtime(&self) -> Option<Handle>;

    /// Durable streams, where the backend has them.
    fn streams(&self) -> Option<Arc<dyn StreamBackend>> {
        None
    }

    /// What only the backend can count.
    fn stats(&self) -> BackendStats;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_found_by_who_has_not_heard_of_it_and_as_long_as_it_is_one_of_the_latest() {
        let mut complaints = Complaints::default();
        complaints.add("no a".to_owned());
        assert_eq!(complaints.after(0, "a"), Some("no a"));
        assert_eq!((complaints.after(0, "b"), complaints.after(1, "a")), (None, None));
        let before = complaints.count();
        for _ in 1..Complaints::KEPT {
            complaints.add("no b".to_owned());
        }
        assert_eq!((complaints.after(0, "a"), complaints.after(before, "b")), (Some("no a"), Some("no b")));
        complaints.add("no c".to_owned());
        assert_eq!((complaints.after(0, "a"), complaints.after(before, "c")), (None, Some("no c")));
    }
}
