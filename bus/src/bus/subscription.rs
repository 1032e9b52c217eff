//! What a subscriber holds: bounded, and it counts what it drops.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Bus, Counters};
use crate::backend::{Incoming, Registration, Respond, Sink};
use crate::error::BusError;
use crate::message::Message;
use crate::subject::{SCHEME, Subject};

/// One received message.
#[derive(Clone)]
pub struct Delivery {
    /// Where it was sent to.
    pub subject: Subject,
    /// What was sent.
    pub message: Message,
    /// Where an answer goes; `None` when none is wanted.
    pub reply: Option<Subject>,
    responder: Option<Arc<dyn Respond>>,
    bus: Bus,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("subject", &self.subject)
            .field("reply", &self.reply)
            .field("bytes", &self.message.wire_bytes())
            .finish()
    }
}

impl Delivery {
    /// Where an answer goes that somebody else gives; `None`: none is wanted, or it would go to a subject of ours, where only who may
    /// publish there itself may have one sent.
    pub fn inbox(&self) -> Option<&Subject> {
        self.reply.as_ref().filter(|reply| reply.tokens().next() != Some(SCHEME))
    }

    /// Answers. `Ok` means handed over, not delivered.
    ///
    /// # Errors
    /// `NoReplyWanted`; as [`Bus::publish`] otherwise.
    pub async fn reply(&self, message: Message) -> Result<(), BusError> {
        self.try_reply(message)
    }

    /// [`reply`](Self::reply) for code that is not async.
    ///
    /// # Errors
    /// `NoReplyWanted`; as [`Bus::publish`] otherwise.
    pub fn try_reply(&self, message: Message) -> Result<(), BusError> {
        let Some(reply) = &self.reply else {
            return Err(BusError::NoReplyWanted { subject: self.subject.to_string() });
        };
        // Or who may only ask could have who may write records, say, write them.
        if reply.tokens().next() == Some(SCHEME) {
            return Err(BusError::NoInbox { reply: reply.to_string() });
        }
        match &self.responder {
            Some(responder) => responder.respond(message),
            None => self.bus.try_publish(reply.clone(), message),
        }
    }
}

/// Receives messages; a `Stream` too. Dropping it unsubscribes. Ends after the last message when the bus is drained.
pub struct Subscription {
    pub(super) bus: Bus,
    pub(super) receiver: mpsc::Receiver<Incoming>,
    pub(super) sink: Arc<Bounded>,
    pub(super) _registration: Registration,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("dropped", &self.dropped()).finish()
    }
}

impl Subscription {
    /// The next message, or `None` after the bus was drained. Cancel safe.
    pub async fn recv(&mut self) -> Option<Delivery> {
        self.receiver.recv().await.map(|incoming| self.taken(incoming))
    }

    /// The next message if one waits.
    pub fn try_recv(&mut self) -> Option<Delivery> {
        self.receiver.try_recv().ok().map(|incoming| self.taken(incoming))
    }

    fn taken(&self, incoming: Incoming) -> Delivery {
        self.sink.waiting_bytes.fetch_sub(incoming.held_bytes(), Ordering::Relaxed);
        let Incoming { subject, reply, message, responder, .. } = incoming;
        Delivery { subject, message, reply, responder, bus: self.bus.clone() }
    }

    /// How many messages were dropped because this subscription was full.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped.load(Ordering::Relaxed)
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.receiver.poll_recv(context).map(|next| next.map(|incoming| self.taken(incoming)))
    }
}

/// Sink of a [`Subscription`]: drops and counts when full.
pub(super) struct Bounded {
    pub(super) sender: Mutex<Option<mpsc::Sender<Incoming>>>,
    /// What the messages take that wait to be read.
    pub(super) waiting_bytes: AtomicUsize,
    pub(super) capacity_bytes: usize,
    pub(super) message_bytes_max: usize,
    pub(super) dropped: AtomicU64,
    pub(super) counters: Arc<Counters>,
}

impl Sink for Bounded {
    fn deliver(&self, mut incoming: Incoming) {
        let sender = self.sender.lock();
        let Some(sender) = sender.as_ref() else { return };
        let bytes = incoming.message.wire_bytes();
        if bytes > self.message_bytes_max {
            incoming.message = Message::default();
        }
        let held = incoming.held_bytes();
        // It counts before the reader can take it.
        let waiting = self.waiting_bytes.fetch_add(held, Ordering::Relaxed);
        let sent = match waiting > 0 && waiting + held > self.capacity_bytes {
            true => Err(mpsc::error::TrySendError::Full(incoming)),
            false => sender.try_send(incoming),
        };
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(held, Ordering::Relaxed);
        }
        match sent {
            Ok(()) => {
                self.counters.received_messages.fetch_add(1, Ordering::Relaxed);
                self.counters.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                self.counters.dropped_messages.fetch_add(1, Ordering::Relaxed);
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    fn closed(&self) {
        self.sender.lock().take();
    }
}

/// Counts for sinks that have no channel of their own.
pub(super) struct Counted {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) counters: Arc<Counters>,
}

impl Sink for Counted {
    fn deliver(&self, incoming: Incoming) {
        self.counters.received_messages.fetch_add(1, Ordering::Relaxed);
        self.counters.received_bytes.fetch_add(incoming.message.wire_bytes() as u64, Ordering::Relaxed);
        self.sink.deliver(incoming);
    }

    fn closed(&self) {
        self.sink.closed();
    }
}
