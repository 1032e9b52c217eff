//! The task that runs all sessions of an endpoint: gives the [states](super::state) frames, times and items, and does
//! what they say. It takes everything that is there, then lets each touched session send once, so frames and
//! acknowledgements gather by themselves while it is busy and go out at once when it is not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::endpoint::{Link, STRANGERS_MAX, Shared};
use super::frame::{Actors, FrameError, Half, read_items};
use super::state::{Session, VERSIONS};
use super::terms::{Consumed, Counts, Effect, ResetReason};
use super::{Event, Peer, SessionStats};
use crate::auth::{Role, Speaker};
use crate::backend::{ConnectionState, Incoming, Registration};
use crate::error::BusError;
use crate::message::Message;
use crate::subject::Subjects;

/// Frames that may wait for the driver, beside the bound in bytes.
const INBOX_FRAMES_MAX: usize = 16 * 1024;
/// Who refuses, in the log.
pub(super) const RECEIVER: &str = "session";

/// Frames that arrived and were not looked at yet. What finds no room is as if it were lost: an honest peer sends it again.
pub(super) struct Inbox {
    frames: Vec<Incoming>,
    /// What these take, and those that the driver is just looking at.
    bytes: usize,
    bytes_max: usize,
}

impl Inbox {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { frames: Vec::new(), bytes: 0, bytes_max }
    }

    /// Takes a frame in, or gives it back when there is no room.
    pub(super) fn push(&mut self, incoming: Incoming) -> Result<(), Incoming> {
        let bytes = incoming.held_bytes();
        if self.frames.len() >= INBOX_FRAMES_MAX || self.bytes + bytes > self.bytes_max {
            return Err(incoming);
        }
        self.bytes += bytes;
        self.frames.push(incoming);
        Ok(())
    }

    /// Hands out all frames, into an empty list. They count as long as they are not [done](Self::done).
    fn take(&mut self, into: &mut Vec<Incoming>) -> usize {
        std::mem::swap(&mut self.frames, into);
        self.bytes
    }

    fn done(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }
}

/// Answer to drains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Idle {
    /// The latest drain that was seen.
    pub(super) answers: u64,
    /// Unacknowledged frames, and 1 for each peer with something queued.
    pub(super) outstanding: usize,
    pub(super) ended: bool,
}

/// An event, and what its reading gives back.
pub(super) struct Envelope {
    pub(super) event: Event,
    pub(super) taken: Option<Taken>,
}

pub(super) struct Taken {
    pub(super) link: Arc<Link>,
    pub(super) epoch: u32,
    pub(super) amount: Consumed,
}

struct Slot {
    link: Arc<Link>,
    session: Session,
    begun_at: Duration,
    touched: bool,
    /// What of its counters is in the endpoint's already.
    counted: Counts,
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Envelope>,
    _registration: Registration,
    connection: watch::Receiver<ConnectionState>,
    link_state: ConnectionState,
    /// Since when there is a connection.
    linked_at: Duration,
    started: Instant,
    /// By the index of their links; none where a session is over and its index was not given out again.
    slots: Vec<Option<Slot>>,
    /// The latest epoch of all sessions that are over: later ones begin behind it, so that no half is ever met twice.
    epochs: u32,
    /// When it is looked next whom nobody has heard for long.
    look_at: Duration,
    touched: Vec<usize>,
    /// By role: links to strangers in the order in which they came, and some that are none any more.
    strangers: [VecDeque<Arc<Link>>; 2],
    actors: Actors,
    /// When the timer goes off; may be earlier than needed.
    armed: Option<Duration>,
    refused: u64,
    alive: bool,
    // Reused from turn to turn.
    frames: Vec<Incoming>,
    dirty: Vec<Arc<Link>>,
    effects: Vec<Effect>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Envelope>,
        registration: Registration,
    ) -> Self {
        let mut connection = shared.bus.connection();
        let link_state = *connection.borrow_and_update();
        Self {
            shared,
            events,
            _registration: registration,
            connection,
            link_state,
            linked_at: Duration::ZERO,
            started: Instant::now(),
            slots: Vec::new(),
            epochs: 0,
            look_at: Duration::ZERO,
            touched: Vec::new(),
            strangers: Default::default(),
            actors: Actors::default(),
            armed: None,
            refused: 0,
            alive: true,
            frames: Vec::new(),
            dirty: Vec::new(),
            effects: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        let mut connection = self.connection.clone();
        let sleep = sleep_until(self.started);
        tokio::pin!(sleep);
        let mut sleeps_until = None;
        while self.alive && !shared.closed.load(Ordering::Acquire) {
            let worked = self.turn();
            if self.armed != sleeps_until
                && let Some(at) = self.armed
            {
                sleep.as_mut().reset(self.started + at);
            }
            sleeps_until = self.armed;
            if worked {
                // Lets the socket's task write what was published, and more work gather meanwhile.
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                () = shared.woken() => {}
                changed = connection.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let state = *connection.borrow_and_update();
                    self.on_link(state);
                }
                () = &mut sleep, if self.armed.is_some() => self.on_time(),
                () = self.events.closed() => break,
            }
        }
        shared.closed.store(true, Ordering::Release);
        self.publish_stats();
        shared.idle.send_modify(|idle| idle.ended = true);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes what is there. Says whether there was anything.
    fn turn(&mut self) -> bool {
        let drains = self.shared.drains.load(Ordering::Acquire);
        let taken_bytes = self.shared.inbox.lock().take(&mut self.frames);
        let mut dirty = std::mem::take(&mut self.dirty);
        self.shared.take_dirty(&mut dirty);
        let forgotten = std::mem::take(&mut *self.shared.forgotten.lock());
        let worked = !(self.frames.is_empty() && dirty.is_empty() && forgotten.is_empty() && self.touched.is_empty());
        if worked {
            let now = self.now();
            for link in forgotten {
                if let Some(slot) = self.slot(now, &link) {
                    slot.session.forget(&mut link.outbox.lock());
                }
            }
            let mut frames = std::mem::take(&mut self.frames);
            for incoming in frames.drain(..) {
                self.on_frame(now, incoming);
            }
            self.frames = frames;
            self.shared.inbox.lock().done(taken_bytes);
            for link in dirty.drain(..) {
                if self.slot(now, &link).is_some() {
                    self.touch(link.index);
                }
            }
            self.pump_touched(now);
            self.publish_stats();
        }
        self.dirty = dirty;
        if self.shared.leaving.swap(false, Ordering::AcqRel) {
            self.leave();
        }
        self.answer_drains(drains);
        worked
    }

    fn answer_drains(&self, drains: u64) {
        let idle = *self.shared.idle.borrow();
        if idle.answers == drains && idle.outstanding == 0 {
            return;
        }
        let of = |slot: &Slot| slot.session.unacked() + usize::from(!slot.link.outbox.lock().is_empty());
        let outstanding = self.slots.iter().flatten().map(of).sum();
        self.shared.idle.send_replace(Idle { answers: drains, outstanding, ended: false });
    }

    /// The slot of a link; made when the link is new, none when its session is over.
    fn slot(&mut self, now: Duration, link: &Arc<Link>) -> Option<&mut Slot> {
        if link.over.load(Ordering::Acquire) {
            return None;
        }
        if self.slots.len() <= link.index {
            self.slots.resize_with(link.index + 1, || None);
        }
        let slot = &mut self.slots[link.index];
        if slot.is_none() {
            let (incarnation, settings) = (self.shared.me.incarnation, self.shared.settings.clone());
            let session = Session::new(incarnation, settings, link.opening.clone(), self.link_state.connected);
            let session = session.at_epoch(self.epochs + 1);
            link.reading.lock().epoch = session.epoch();
            *slot =
                Some(Slot { link: link.clone(), session, begun_at: now, touched: false, counted: Counts::default() });
            self.arm(now + self.shared.options.forget_after);
            if link.is_stranger() {
                self.admit_stranger(link);
            }
        }
        self.slots[link.index].as_mut()
    }

    /// It takes the place of who has been a stranger for longest, where there are too many.
    fn admit_stranger(&mut self, link: &Arc<Link>) {
        let role = Role::of(&link.node);
        let strangers = &mut self.strangers[role as usize];
        strangers.push_back(link.clone());
        if strangers.len() >= 2 * STRANGERS_MAX {
            strangers.retain(|link| link.is_stranger());
        }
        while self.shared.strangers(role) > STRANGERS_MAX
            && let Some(oldest) = self.strangers[role as usize].pop_front()
        {
            // It may have become known, and be spoken to, a moment ago.
            let speechless = {
                let mut outbox = oldest.outbox.lock();
                let speechless = oldest.is_stranger() && outbox.is_empty();
                if speechless {
                    outbox.end();
                }
                speechless
            };
            if speechless {
                self.end(oldest.index);
            }
        }
    }

    /// The timer goes off at `at` or before.
    fn arm(&mut self, at: Duration) {
        self.armed = Some(self.armed.map_or(at, |armed| armed.min(at)));
    }

    fn touch(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        if !std::mem::replace(&mut slot.touched, true) {
            self.touched.push(index);
        }
    }

    /// Ends the session of a peer that is gone, and forgets it.
    fn end(&mut self, index: usize) {
        let Some(mut slot) = self.slots.get_mut(index).and_then(Option::take) else { return };
        slot.link.outbox.lock().end();
        self.epochs = self.epochs.max(slot.session.epoch());
        count(&mut self.shared.stats.lock(), &mut slot);
        self.shared.unlink(&slot.link);
    }

    /// Says goodbye to all.
    fn leave(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for index in 0..self.slots.len() {
            let Some(slot) = &self.slots[index] else { continue };
            slot.session.say_bye(&mut effects);
            let link = slot.link.clone();
            self.apply(&link, &mut effects);
            self.end(index);
        }
        self.effects = effects;
        self.publish_stats();
    }

    /// Forgets whom nobody has heard for long. Who has something to hear that was not said for so long has lost it.
    fn forget_the_silent(&mut self, now: Duration) {
        let after = self.shared.options.forget_after;
        if now < self.look_at {
            return;
        }
        let mut next = now + after;
        for index in 0..self.slots.len() {
            let Some(slot) = &self.slots[index] else { continue };
            let quiet_from = slot.session.quiet_from().max(slot.begun_at).max(self.linked_at);
            if !self.link_state.connected || quiet_from + after > now {
                next = next.min(quiet_from + after);
                continue;
            }
            let waits = slot.session.waits();
            {
                let mut outbox = slot.link.outbox.lock();
                if !waits && !outbox.is_empty() {
                    // Something has just been queued.
                    continue;
                }
                outbox.end();
            }
            let (node, incarnation) = (slot.link.node.clone(), slot.session.peer_incarnation());
            tracing::debug!(node, incarnation, waits, "peer forgotten");
            self.end(index);
            if waits && incarnation > 0 {
                let (peer, reason) = (Peer { node, incarnation }, ResetReason::GivenUp);
                self.tell(Event::Reset { peer, reason });
            }
        }
        self.publish_stats();
        // Not for each of many one by one.
        self.look_at = next.max(now + after / 8);
    }

    fn on_frame(&mut self, now: Duration, incoming: Incoming) {
        let frame = &incoming.message.payload;
        let sender = Subjects::session_sender(&incoming.subject).filter(|node| *node != self.shared.me.node);
        let Some(link) = sender.and_then(|node| self.shared.link_from(node, frame)) else {
            self.shared.refusals.refuse_stranger(incoming.subject.as_str(), RECEIVER, &"no frame of another process");
            return;
        };
        let mut effects = std::mem::take(&mut self.effects);
        let Some(slot) = self.slot(now, &link) else { return };
        let result = slot.session.on_frame(now, frame, &mut link.outbox.lock(), &mut effects);
        let (is_bound, has_left) = (slot.session.is_bound(), slot.session.has_left());
        if is_bound {
            self.shared.knows(&link);
        }
        match result {
            Ok(()) => {}
            Err(error) if error.is_strangers() => {
                self.shared.refusals.refuse_stranger(&link.node, RECEIVER, &error);
            }
            Err(error) => {
                self.shared.refusals.refuse(&link.node, RECEIVER, &error);
            }
        }
        self.apply(&link, &mut effects);
        self.effects = effects;
        if has_left {
            self.end(link.index);
        }
        self.touch(link.index);
    }

    fn pump_touched(&mut self, now: Duration) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let Some(slot) = self.slots[index].as_mut() else { continue };
            slot.touched = false;
            let link = slot.link.clone();
            let consumed = link.consumed(slot.session.epoch());
            slot.session.pump(now, &mut link.outbox.lock(), consumed, &mut effects);
            link.unsupported.store(slot.session.is_unsupported(), Ordering::Release);
            if let Some(at) = slot.session.deadline() {
                self.arm(at);
            }
            self.apply(&link, &mut effects);
        }
        self.touched = touched;
        self.effects = effects;
    }

    fn on_time(&mut self) {
        let now = self.now();
        self.armed = None;
        let mut effects = std::mem::take(&mut self.effects);
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots[index].as_mut() else { continue };
            match slot.session.deadline() {
                Some(at) if at <= now => {
                    let link = slot.link.clone();
                    slot.session.on_time(now, &link.outbox.lock(), &mut effects);
                    self.apply(&link, &mut effects);
                    self.touch(index);
                }
                Some(at) => self.arm(at),
                None => {}
            }
        }
        self.effects = effects;
        self.forget_the_silent(now);
        if self.slots.iter().any(Option::is_some) {
            self.arm(self.look_at.max(now));
        }
    }

    fn on_link(&mut self, state: ConnectionState) {
        let now = self.now();
        let before = std::mem::replace(&mut self.link_state, state);
        self.linked_at = now;
        let mut effects = std::mem::take(&mut self.effects);
        for index in 0..self.slots.len() {
            // Down and up again between two looks counts as well.
            if before.connected == state.connected && before.connects == state.connects {
                break;
            }
            let Some(slot) = self.slots[index].as_mut() else { continue };
            let link = slot.link.clone();
            slot.session.on_link(now, state.connected, &mut effects);
            self.apply(&link, &mut effects);
            self.touch(index);
        }
        self.effects = effects;
    }

    /// Does what a session says, in order.
    fn apply(&mut self, link: &Arc<Link>, effects: &mut Vec<Effect>) {
        let peer = |incarnation| Peer { node: link.node.clone(), incarnation };
        for effect in effects.drain(..) {
            match effect {
                Effect::Send(frame) => {
                    match self.shared.bus.try_publish(link.subject.clone(), Message::new(frame)) {
                        Ok(()) => {}
                        Err(BusError::Closed) => self.alive = false,
                        // As if it were lost: the session sends it again.
                        Err(error) => {
                            self.refused += 1;
                            tracing::debug!(node = link.node, %error, "frame not sent");
                        }
                    }
                }
                Effect::Deliver { from, items, body } => self.deliver(link, from, items, &body),
                Effect::Reset { incarnation, reason } => {
                    tracing::info!(node = link.node, incarnation, ?reason, "session reset");
                    self.tell(Event::Reset { peer: peer(incarnation), reason });
                }
                Effect::Silent { incarnation, silent_for } => {
                    self.tell(Event::Silent { peer: peer(incarnation), since: silent_for });
                }
                Effect::Unsupported { incarnation, theirs } => {
                    let error = FrameError::Release { theirs, ours: VERSIONS };
                    tracing::warn!(node = link.node, incarnation, %error, "no session version in common");
                    self.tell(Event::Unsupported { peer: peer(incarnation), theirs });
                }
            }
        }
    }

    fn deliver(&mut self, link: &Arc<Link>, from: Half, declared: u32, body: &Bytes) {
        let (items, result) = read_items(body, declared, &mut self.actors);
        // The session has verified the frame.
        let from = Speaker::proven(link.node.clone(), from.incarnation);
        let Some(epoch) = self.slots[link.index].as_ref().map(|slot| slot.session.epoch()) else { return };
        // Before the reader can take the event, or what it takes would not count.
        link.consumed(epoch);
        let amount = Consumed { items: u64::from(declared), bytes: body.len() as u64 };
        let mut taken = Some(Taken { link: link.clone(), epoch, amount });
        if !items.is_empty() {
            let event = Event::Items { from: from.clone(), items };
            self.send_event(Envelope { event, taken: taken.take() });
        }
        if let Err(error) = result {
            self.shared.refusals.refuse(&link.node, RECEIVER, &error);
            self.send_event(Envelope { event: Event::Undecodable { from, error }, taken });
        }
    }

    fn tell(&mut self, event: Event) {
        self.send_event(Envelope { event, taken: None });
    }

    fn send_event(&mut self, envelope: Envelope) {
        // Credit bounds the channel; without a reader there is no use in going on.
        self.alive &= self.events.send(envelope).is_ok();
    }

    fn publish_stats(&mut self) {
        let mut stats = self.shared.stats.lock();
        (stats.peers, stats.unacked_bytes) = (0, 0);
        for slot in self.slots.iter_mut().flatten() {
            stats.peers += 1;
            stats.unacked_bytes += slot.session.unacked_bytes();
            count(&mut stats, slot);
        }
        stats.frames_malformed = self.shared.refusals.count();
        stats.frames_of_strangers = self.shared.refusals.strangers();
        stats.frames_refused = self.refused;
    }
}

/// What a session counted since the last time goes to the endpoint's counters.
fn count(stats: &mut SessionStats, slot: &mut Slot) {
    let (now, before) = (slot.session.counts, slot.counted);
    if now != before {
        add(stats, &now, &before);
        slot.counted = now;
    }
}

fn add(stats: &mut SessionStats, now: &Counts, before: &Counts) {
    stats.frames_sent += now.frames_sent - before.frames_sent;
    stats.frames_resent += now.frames_resent - before.frames_resent;
    stats.acks_sent += now.acks_sent - before.acks_sent;
    stats.items_sent += now.items_sent - before.items_sent;
    stats.bytes_sent += now.bytes_sent - before.bytes_sent;
    stats.frames_received += now.frames_received - before.frames_received;
    stats.items_received += now.items_received - before.items_received;
    stats.bytes_received += now.bytes_received - before.bytes_received;
    stats.frames_repeated += now.frames_repeated - before.frames_repeated;
    stats.frames_out_of_order += now.frames_out_of_order - before.frames_out_of_order;
    stats.frames_stale += now.frames_stale - before.frames_stale;
    stats.resets += now.resets - before.resets;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Subject;

    #[test]
    fn frames_count_until_they_are_done_with() {
        let frame = || Incoming {
            subject: Subject::parse("exo.v1.test.node.b.session.a").unwrap(),
            reply: None,
            message: Message::new(vec![0; 1000]),
            too_large: None,
            no_responders: false,
        };
        let mut inbox = Inbox::new(10 * frame().held_bytes());
        for _ in 0..10 {
            inbox.push(frame()).unwrap();
        }
        inbox.push(frame()).unwrap_err();
        let mut taken = Vec::new();
        let bytes = inbox.take(&mut taken);
        assert_eq!(taken.len(), 10);
        inbox.push(frame()).unwrap_err();
        inbox.done(bytes);
        inbox.push(frame()).unwrap();
        assert_eq!(inbox.take(&mut Vec::new()), frame().held_bytes());
    }
}
