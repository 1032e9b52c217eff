//! What a subscriber holds: bounded, and it counts what it drops.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Bus, Counters};
use crate::backend::{Backend, Incoming, Outgoing, Registration, Sink};
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
    /// The bytes of a message that is larger than the subscription takes: it arrives without payload and headers, so that whoever has sent it
    /// can be told.
    pub too_large: Option<usize>,
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
        self.bus.try_publish(reply.clone(), message)
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
        let Incoming { subject, reply, message, too_large, .. } = incoming;
        Delivery { subject, message, reply, too_large, bus: self.bus.clone() }
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
    /// What is answered to what is dropped, and by whom: weak, as the backend has the sinks.
    pub(super) when_full: Option<(Message, Weak<dyn Backend>)>,
}

/// While more than this waits for the socket, what is dropped is not answered: the answers would be in the way of all else.
const REFUSALS_WAITING_BYTES: u64 = 512 * 1024;

impl Bounded {
    /// Tells who waits for an answer that there will be none.
    fn refuse(&self, dropped: Incoming) {
        let Some((answer, backend)) = &self.when_full else { return };
        let inbox = dropped.reply.filter(|reply| reply.tokens().next() != Some(SCHEME));
        let (Some(inbox), Some(backend)) = (inbox, backend.upgrade()) else { return };
        if backend.stats().queued_bytes > REFUSALS_WAITING_BYTES {
            return;
        }
        let answer = answer.clone();
        let bytes = answer.wire_bytes() as u64;
        if backend.publish(Outgoing { subject: inbox, reply: None, message: answer }).is_ok() {
            self.counters.published_messages.fetch_add(1, Ordering::Relaxed);
            self.counters.published_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Sink for Bounded {
    fn deliver(&self, mut incoming: Incoming) {
        let sender = self.sender.lock();
        let Some(known) = sender.as_ref() else { return };
        let bytes = incoming.message.wire_bytes();
        if bytes > self.message_bytes_max {
            (incoming.message, incoming.too_large) = (Message::default(), Some(bytes));
        }
        let held = incoming.held_bytes();
        // It counts before the reader can take it.
        let waiting = self.waiting_bytes.fetch_add(held, Ordering::Relaxed);
        let sent = match waiting > 0 && waiting + held > self.capacity_bytes {
            true => Err(mpsc::error::TrySendError::Full(incoming)),
            false => known.try_send(incoming),
        };
        // Who is answered below may be in this process.
        drop(sender);
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(held, Ordering::Relaxed);
        }
        match sent {
            Ok(()) => {
                self.counters.received_messages.fetch_add(1, Ordering::Relaxed);
                self.counters.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(mpsc::error::TrySendError::Full(dropped)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                self.counters.dropped_messages.fetch_add(1, Ordering::Relaxed);
                self.refuse(dropped);
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
