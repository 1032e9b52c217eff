//! [`Endpoint`]: what senders and the reader of events hold. The work is done by the [driver](super::driver).

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::driver::{Driver, Envelope, Idle, Inbox, RECEIVER};
use super::frame::is_authentic_greeting;
use super::opening::Opening;
use super::outbox::{FRAME_ITEMS_MAX, Outbox, Refused};
use super::state::VERSIONS;
use super::terms::{Consumed, Settings};
use super::{Event, Peer, SessionError, SessionOptions, SessionStats};
use crate::auth::{Key, Role};
use crate::backend::{Incoming, Sink};
use crate::bus::Bus;
use crate::error::BusError;
use crate::refusals::Refusals;
use crate::subject::{Subject, Subjects, check_token};

/// Most peers of a role at a time; frames of others are dropped. Nodes and submitters take no places from each other.
const PEERS_MAX: usize = 16 * 1024;
/// Of them, most strangers: who speaks as nobody we know hears who we are, but so many names of a role at most.
pub(super) const STRANGERS_MAX: usize = 1024;

/// What sender, reader and driver share about one peer.
pub(super) struct Link {
    pub(super) index: usize,
    pub(super) node: String,
    pub(super) subject: Subject,
    pub(super) outbox: Mutex<Outbox>,
    pub(super) reading: Mutex<Reading>,
    pub(super) unsupported: AtomicBool,
    /// What is proven before anything of the peer counts.
    pub(super) opening: Arc<Opening>,
    /// It has proven that it lives, or we speak to it of our own.
    known: AtomicBool,
    /// The session is over. Set by the driver.
    pub(super) over: AtomicBool,
    /// In the list of links to look at already.
    dirty: AtomicBool,
}

impl Link {
    /// Whether nobody knows if it lives: a greeting, too, may be one of the past.
    pub(super) fn is_stranger(&self) -> bool {
        !self.known.load(Ordering::Relaxed)
    }

    /// How much of session `epoch` the reader has taken; counting starts anew with a new session.
    pub(super) fn consumed(&self, epoch: u32) -> Consumed {
        let mut reading = self.reading.lock();
        if reading.epoch != epoch {
            *reading = Reading { epoch, ..Reading::default() };
        }
        reading.consumed
    }
}

/// How much of the current session the reader has taken.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) epoch: u32,
    pub(super) consumed: Consumed,
    /// Of it, what the driver was not told of yet.
    untold: Consumed,
}

#[derive(Default)]
pub(super) struct Links {
    by_node: HashMap<String, Arc<Link>>,
    /// How many there are of each role.
    of_role: [usize; 2],
    /// Indices that links had whose sessions are over; as many as `by_node` has less were given out in all.
    free: Vec<usize>,
}

/// What all handles of an endpoint share.
pub(super) struct Shared {
    pub(super) bus: Bus,
    subjects: Subjects,
    pub(super) me: Peer,
    pub(super) options: SessionOptions,
    pub(super) settings: Settings,
    pub(super) links: RwLock<Links>,
    /// Links to strangers, by role.
    strangers: [AtomicUsize; 2],
    /// What our challenges are made from.
    secret: Key,
    pub(super) inbox: Mutex<Inbox>,
    dirty: Mutex<Vec<Arc<Link>>>,
    pub(super) forgotten: Mutex<Vec<Arc<Link>>>,
    wake: Notify,
    pub(super) closed: AtomicBool,
    /// All peers are to be told that this side leaves.
    pub(super) leaving: AtomicBool,
    /// Grows with every call of `drain`; the driver answers it in `idle`.
    pub(super) drains: AtomicU64,
    pub(super) idle: watch::Sender<Idle>,
    pub(super) stats: Mutex<SessionStats>,
    pub(super) refusals: Refusals,
}

impl Shared {
    /// The link to a node that we speak to; made when there is none. `None` when there are too many, the name is no token, or we
    /// share none with it.
    fn link_to(&self, node: &str) -> Option<Arc<Link>> {
        let link = self.link(node, |_| true)?;
        self.knows(&link);
        Some(link)
    }

    /// The link to whoever says that it is this node, in this frame. Where there are as many strangers as there may be, only a greeting that
    /// is authentic makes one, and it takes the place of another one: it may be the first word of somebody who lives.
    pub(super) fn link_from(&self, node: &str, frame: &[u8]) -> Option<Arc<Link>> {
        let room = self.strangers(Role::of(node)) < STRANGERS_MAX;
        self.link(node, |opening| room || is_authentic_greeting(frame, opening.receiving(), None))
    }

    /// How many strangers of a role there are.
    pub(super) fn strangers(&self, role: Role) -> usize {
        self.strangers[role as usize].load(Ordering::Relaxed)
    }

    fn link(&self, node: &str, make: impl FnOnce(&Opening) -> bool) -> Option<Arc<Link>> {
        if let Some(link) = self.links.read().by_node.get(node) {
            return Some(link.clone());
        }
        let subject = self.subjects.session(node, &self.me.node).ok()?;
        let (credentials, cluster) = (self.bus.credentials(), self.subjects.prefix());
        let opening = Opening::new(credentials, cluster, &self.me.node, node, self.secret.derive(&[node.as_bytes()]))?;
        if !make(&opening) {
            return None;
        }
        let payload_max = self.bus.payload_max_bytes();
        let outbox = Outbox::new(self.options.queue_bytes_max, self.options.frame_bytes_max, payload_max);
        let mut links = self.links.write();
        if let Some(link) = links.by_node.get(node) {
            return Some(link.clone());
        }
        let role = Role::of(node) as usize;
        if links.of_role[role] >= PEERS_MAX {
            return None;
        }
        links.of_role[role] += 1;
        let index = links.free.pop().unwrap_or(links.by_node.len());
        let link = Arc::new(Link {
            index,
            node: node.to_owned(),
            subject,
            outbox: Mutex::new(outbox),
            reading: Mutex::default(),
            unsupported: AtomicBool::new(false),
            opening: Arc::new(opening),
            known: AtomicBool::new(false),
            over: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        });
        links.by_node.insert(node.to_owned(), link.clone());
        self.strangers[role].fetch_add(1, Ordering::Relaxed);
        Some(link)
    }

    /// The peer is no stranger.
    pub(super) fn knows(&self, link: &Link) {
        if !link.known.load(Ordering::Relaxed) && !link.known.swap(true, Ordering::Relaxed) {
            self.strangers[Role::of(&link.node) as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The link's session is over: who asks for its node gets another one. What is said to it from now on is refused.
    pub(super) fn unlink(&self, link: &Link) {
        link.over.store(true, Ordering::Release);
        // It is none of those that count.
        self.knows(link);
        let mut links = self.links.write();
        links.by_node.remove(&link.node);
        links.of_role[Role::of(&link.node) as usize] -= 1;
        links.free.push(link.index);
    }

    /// Has the driver look at a link.
    fn poke(&self, link: &Arc<Link>) {
        if !link.dirty.swap(true, Ordering::AcqRel) {
            self.dirty.lock().push(link.clone());
            self.wake.notify_one();
        }
    }

    /// The links to look at.
    pub(super) fn take_dirty(&self, into: &mut Vec<Arc<Link>>) {
        into.append(&mut self.dirty.lock());
        for link in into.iter() {
            link.dirty.store(false, Ordering::Release);
        }
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The reader took so much of session `epoch` with a peer.
    fn consumed(&self, link: &Arc<Link>, epoch: u32, taken: Consumed) {
        let worth_telling = {
            let mut reading = link.reading.lock();
            if reading.epoch != epoch {
                return;
            }
            reading.consumed.items += taken.items;
            reading.consumed.bytes += taken.bytes;
            reading.untold.items += taken.items;
            reading.untold.bytes += taken.bytes;
            // The session grants anew at half of the credit; told in quarters it never misses that.
            let worth = reading.untold.items >= self.settings.credit_items / 4
                || reading.untold.bytes >= self.settings.credit_bytes / 4;
            if worth {
                reading.untold = Consumed::default();
            }
            worth
        };
        if worth_telling {
            self.poke(link);
        }
    }
}

/// Frames arrive here, on the thread of the bus.
struct Frames(Arc<Shared>);

impl Sink for Frames {
    fn deliver(&self, incoming: Incoming) {
        let pushed = self.0.inbox.lock().push(incoming);
        if let Err(incoming) = pushed {
            let claimed = incoming.subject.as_str();
            self.0.refusals.refuse_stranger(claimed, RECEIVER, &"more frames than sessions allow");
        }
        self.0.wake.notify_one();
    }

    fn closed(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.wake.notify_one();
    }
}

/// A process's end of all its sessions; clones share it. When the last is dropped the endpoint closes, and what was
/// not acknowledged is lost: [`drain`](Self::drain) first.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("me", &self.inner.shared.me).field("stats", &self.stats()).finish()
    }
}

impl Endpoint {
    /// Opens the end of process `me`. When it returns, frames sent to `me` arrive. Its task runs next to the bus's
    /// socket where there is one, else on the current runtime.
    ///
    /// # Errors
    /// `Subject` when the node is no token; as [`Bus::subscribe`].
    pub async fn open(
        bus: Bus,
        subjects: Subjects,
        me: Peer,
        options: SessionOptions,
    ) -> Result<(Self, EndpointEvents), BusError> {
        Self::open_speaking(bus, subjects, me, options, VERSIONS).await
    }

    /// [`open`](Self::open) for a build that speaks other versions; for tests.
    pub(super) async fn open_speaking(
        bus: Bus,
        subjects: Subjects,
        me: Peer,
        options: SessionOptions,
        versions: (u16, u16),
    ) -> Result<(Self, EndpointEvents), BusError> {
        let pattern = subjects.sessions_to(&me.node)?;
        check_token(&me.node)?;
        let settings = Settings {
            credit_items: options.credit_items.max(u64::from(FRAME_ITEMS_MAX)),
            credit_bytes: options.credit_bytes.max(bus.payload_max_bytes() as u64),
            ack_delay: options.ack_delay,
            retry_min: options.retry_min,
            retry_max: options.retry_max,
            silent_after: options.silent_after,
            versions,
        };
        let inbox_bytes_max = options.inbox_bytes_max.max(2 * bus.payload_max_bytes());
        let shared = Arc::new(Shared {
            bus: bus.clone(),
            subjects,
            me,
            options,
            settings,
            links: RwLock::default(),
            strangers: Default::default(),
            secret: Key::random(),
            inbox: Mutex::new(Inbox::new(inbox_bytes_max)),
            dirty: Mutex::default(),
            forgotten: Mutex::default(),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            drains: AtomicU64::new(0),
            idle: watch::Sender::new(Idle::default()),
            stats: Mutex::default(),
            refusals: Refusals::default(),
        });
        let registration = bus.attach(pattern, Arc::new(Frames(shared.clone()))).await?;
        let (events, receiver) = mpsc::unbounded_channel();
        let driver = Driver::new(shared.clone(), events, registration);
        bus.runtime().unwrap_or_else(Handle::current).spawn(driver.run());
        let events = EndpointEvents { shared: shared.clone(), receiver };
        Ok((Self { inner: Arc::new(Inner { shared }) }, events))
    }

    /// Who we are.
    pub fn me(&self) -> &Peer {
        &self.inner.shared.me
    }

    /// Queues an item for an actor of a node. Never blocks; order is kept per node.
    ///
    /// # Errors
    /// See [`SessionError`]; then the item was not queued.
    pub fn send(&self, to: &str, actor: &str, item: Bytes) -> Result<(), SessionError> {
        let shared = &self.inner.shared;
        if shared.closed.load(Ordering::Acquire) {
            return Err(SessionError::Closed);
        }
        check_token(actor)?;
        if to == shared.me.node {
            return Err(SessionError::ToSelf { node: to.to_owned() });
        }
        loop {
            let Some(link) = shared.link_to(to) else {
                check_token(to)?;
                if Role::of(to) == Role::Submitter && Role::of(&shared.me.node) == Role::Submitter {
                    return Err(SessionError::NoToken { node: to.to_owned() });
                }
                return Err(SessionError::QueueFull { node: to.to_owned(), queued_bytes: 0, max_bytes: 0 });
            };
            if link.unsupported.load(Ordering::Acquire) {
                return Err(SessionError::Unsupported { node: to.to_owned() });
            }
            let pushed = link.outbox.lock().push(actor, &item);
            return match pushed {
                Ok(()) => {
                    shared.poke(&link);
                    Ok(())
                }
                // It ended between two lines: the driver is about to make room for the next one.
                Err(Refused::Over) => {
                    std::hint::spin_loop();
                    continue;
                }
                Err(Refused::Full { queued_bytes }) => Err(SessionError::QueueFull {
                    node: to.to_owned(),
                    queued_bytes,
                    max_bytes: shared.options.queue_bytes_max,
                }),
                Err(Refused::TooLarge { max_bytes }) => {
                    Err(SessionError::ItemTooLarge { node: to.to_owned(), bytes: item.len(), max_bytes })
                }
            };
        }
    }

    /// Says goodbye to all peers, so that none keeps anything of these sessions; what they had not acknowledged is lost, so
    /// [`drain`](Self::drain) first. Sending afterwards begins sessions anew.
    ///
    /// # Errors
    /// `NotDrained`: it was not said within `deadline`; peers find out by themselves.
    pub async fn leave(&self, deadline: Duration) -> Result<(), SessionError> {
        let shared = &self.inner.shared;
        shared.leaving.store(true, Ordering::Release);
        let said = async {
            self.answer(|_| true).await;
            // A process that leaves often ends: then what its socket has not written is never said.
            let _ = shared.bus.flush().await;
        };
        let late = |_| SessionError::NotDrained { items: 0, after: deadline };
        timeout(deadline, said).await.map_err(late)
    }

    /// Waits until the driver has looked after now and found what is wanted; false: it ended before.
    async fn answer(&self, wanted: impl Fn(&Idle) -> bool) -> bool {
        let shared = &self.inner.shared;
        let mut idle = shared.idle.subscribe();
        let mine = shared.drains.fetch_add(1, Ordering::AcqRel) + 1;
        shared.wake.notify_one();
        let found = |idle: &Idle| idle.answers >= mine && wanted(idle);
        idle.wait_for(|idle| idle.ended || found(idle)).await.is_ok_and(|idle| found(&idle))
    }

    /// Throws away what is queued and unacknowledged for a node that was given up, e.g. because it is dead. Should it
    /// speak again, it is told that it was forgotten, and gets [`Event::Reset`].
    pub fn forget(&self, node: &str) {
        let shared = &self.inner.shared;
        let link = shared.links.read().by_node.get(node).cloned();
        if let Some(link) = link {
            link.outbox.lock().clear();
            shared.forgotten.lock().push(link);
            shared.wake.notify_one();
        }
    }

    /// A node is said to be this incarnation by now, or a later one. What is queued and unacknowledged for an earlier one is gone, as when
    /// the later one speaks, but without an [`Event::Reset`]; what is sent from now on waits for that one. True: so it was, there had been
    /// an earlier one.
    pub fn hears_of(&self, node: &str, incarnation: u64) -> bool {
        let link = self.inner.shared.links.read().by_node.get(node).cloned();
        link.is_some_and(|link| link.outbox.lock().hears_of(incarnation))
    }

    /// Waits until everything sent so far is acknowledged by its receivers.
    ///
    /// # Errors
    /// `NotDrained` after `deadline`, `Closed`.
    pub async fn drain(&self, deadline: Duration) -> Result<(), SessionError> {
        let shared = &self.inner.shared;
        match timeout(deadline, self.answer(|idle| idle.outstanding == 0)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SessionError::Closed),
            Err(_) => Err(SessionError::NotDrained { items: shared.idle.borrow().outstanding, after: deadline }),
        }
    }

    /// Bytes that all sessions together hold back for their peers: items that wait, and frames that are not acknowledged.
    pub fn waiting_bytes(&self) -> u64 {
        let links = self.inner.shared.links.read();
        let queued: usize = links.by_node.values().map(|link| link.outbox.lock().queued_bytes()).sum();
        queued as u64 + self.stats().unacked_bytes
    }

    /// Counters of all sessions together; those of the latest few microseconds may be missing.
    pub fn stats(&self) -> SessionStats {
        *self.inner.shared.stats.lock()
    }
}

/// What an endpoint receives; a `Stream` too. Reading it grants credit to the senders, so a reader that stops stops
/// them. Ends when the endpoint is closed or the bus drained.
pub struct EndpointEvents {
    shared: Arc<Shared>,
    receiver: mpsc::UnboundedReceiver<Envelope>,
}

impl fmt::Debug for EndpointEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointEvents").field("me", &self.shared.me).finish()
    }
}

impl EndpointEvents {
    /// The next event. Cancel safe.
    pub async fn recv(&mut self) -> Option<Event> {
        let envelope = self.receiver.recv().await?;
        Some(self.open(envelope))
    }

    /// The next event if there is one.
    pub fn try_recv(&mut self) -> Option<Event> {
        let envelope = self.receiver.try_recv().ok()?;
        Some(self.open(envelope))
    }

    fn open(&self, envelope: Envelope) -> Event {
        if let Some(taken) = envelope.taken {
            self.shared.consumed(&taken.link, taken.epoch, taken.amount);
        }
        envelope.event
    }
}

impl Stream for EndpointEvents {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context).map(|next| next.map(|envelope| self.open(envelope)))
    }
}
