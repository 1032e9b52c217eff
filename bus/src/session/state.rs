//! What one side of a session knows and decides: frames and times in, effects out; no clock, no I/O.
//!
//! A session joins two *halves*, one in each process. A half is (incarnation of the process, epoch); whenever a side
//! has to forget, because the other side did or because it is told to, it goes on as a new half with a higher epoch,
//! and everything queued or unacknowledged is gone ([`Effect::Reset`]). Rules:
//! - a hello says which half we are; the answer, a welcome, is addressed to that half. A half is *bound* to another
//!   by the first frame that is addressed to it, which proves that the other side knows it: a stray hello of the past
//!   binds nothing;
//! - frames of a half older than one seen before are dropped. One of a later half makes a bound half reset, an unbound
//!   one not. So each restart or forgetting resets the other side once, and then both are unbound and bind;
//! - a frame addressed to a former half of ours is answered by a hello, which tells the sender to reset;
//! - a side that hears elsewhere of a later incarnation of the other one resets at once, and what it sends from then on waits for that:
//!   the first words to a process that has just been started are not spoken to the one before it;
//! - nothing changes that is not authentic (`session/opening.rs`): hello, welcome and refusal are sealed under the token, all else
//!   under the keys of both halves, which nobody else has and no other halves have. Only what tells nothing is done for a
//!   stranger, and rarely: it hears who we are.
//!
//! Within a bound session: go-back-N. Data frames are numbered from 1 and accepted in order only; each frame carries a
//! cumulative acknowledgement and the receiver's credit. A receiver that misses a frame says so once; then, and after
//! a reconnect, all unacknowledged frames are sent again. After silence only the first is, then more with every
//! acknowledgement, so that a frozen server does not find heaps of copies when it wakes.

mod greeting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::frame::{
    Challenge, FrameError, HEADER_BYTES, Half, Header, Kind, body, challenge, is_authentic, seal, versions,
};
use super::opening::{Opening, SessionKeys};
use super::outbox::Outbox;
use super::terms::{Consumed, Counts, Effect, Settings};
use greeting::common_version;

/// Most unacknowledged data frames.
pub(crate) const WINDOW_FRAMES: usize = 64;
/// So many unanswered data frames are acknowledged at once, also when there is nothing to send.
const ACK_EVERY_FRAMES: u32 = 16;
/// The versions of the body that this build speaks. Before 2 there were no MACs, before 3 copies of an object had no names, before 4 what is
/// said about a task did not name the attempt, and a node would have taken a task that wants aligned parts and packed them;
/// before 5 clients handed their jobs to hosts, and hosts told them how it stands.
pub(crate) const VERSIONS: (u16, u16) = (5, 5);
/// The layout of hello, welcome and refuse.
const HELLO_VERSION: u8 = 1;

#[derive(Debug)]
struct Unacked {
    seq: u64,
    frame: Bytes,
    sent_at: Duration,
    resent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing to say yet.
    Idle,
    /// Hellos are being sent.
    Greeting,
    /// Bound to this half; frames have this version.
    Bound { peer: Half, version: u8 },
    /// The peer speaks no version of ours.
    Unsupported,
}

/// A half of the peer that has greeted us, or answered our greeting.
#[derive(Debug, Clone)]
struct Met {
    challenge: Challenge,
    keys: SessionKeys,
}

/// One side of a session.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Settings,
    opening: Arc<Opening>,
    me: Half,
    my_challenge: Challenge,
    /// The latest half of the peer that was heard of.
    seen: Half,
    /// Its challenge, and the keys between both halves; `None` where it was heard of elsewhere only.
    met: Option<Met>,
    phase: Phase,
    link_up: bool,

    next_seq: u64,
    unacked: VecDeque<Unacked>,
    unacked_bytes: u64,
    /// Sent by this half in all.
    sent: Consumed,
    /// What the peer lets us send in all.
    credit: Consumed,
    /// After a timeout: the next frame to send again, and how many at the next acknowledgement.
    resend: Option<(u64, usize)>,
    /// The first missing frame that the peer's latest complaint was answered for.
    gap_answered: u64,

    received_seq: u64,
    acks_owed: u32,
    ack_now: bool,
    gap: bool,
    ack_due: Option<Duration>,
    /// What the last frame of ours let the peer send in all.
    granted: Consumed,

    smoothed: Option<(Duration, Duration)>,
    timeouts: u32,
    retry_at: Option<Duration>,
    /// When the peer last said something that was never heard before.
    heard_at: Duration,
    waiting_since: Option<Duration>,
    silence_told: bool,
    /// When somebody who could not be believed was last told who we are.
    hello_answered_at: Option<Duration>,
    /// When a release that cannot prove anything was last told what we speak.
    release_answered_at: Option<Duration>,
    /// The peer said goodbye.
    left: bool,

    pub(crate) counts: Counts,
}

impl Session {
    pub(crate) fn new(incarnation: u64, settings: Settings, opening: Arc<Opening>, link_up: bool) -> Self {
        Self::of(Half { incarnation, epoch: 1 }, settings, opening, link_up)
    }

    fn of(me: Half, settings: Settings, opening: Arc<Opening>, link_up: bool) -> Self {
        let granted = Consumed { items: settings.credit_items, bytes: settings.credit_bytes };
        Self {
            settings,
            me,
            my_challenge: opening.challenge(me),
            opening,
            seen: Half::NONE,
            met: None,
            phase: Phase::Idle,
            link_up,
            next_seq: 1,
            unacked: VecDeque::new(),
            unacked_bytes: 0,
            sent: Consumed::default(),
            credit: Consumed::default(),
            resend: None,
            gap_answered: 0,
            received_seq: 0,
            acks_owed: 0,
            ack_now: false,
            gap: false,
            ack_due: None,
            granted,
            smoothed: None,
            timeouts: 0,
            retry_at: None,
            heard_at: Duration::ZERO,
            waiting_since: None,
            silence_told: false,
            hello_answered_at: None,
            release_answered_at: None,
            left: false,
            counts: Counts::default(),
        }
    }

    /// As half `epoch`: of a process that had a session with this peer before, it has to be later than that one's.
    pub(crate) fn at_epoch(self, epoch: u32) -> Self {
        Self::of(Half { epoch, ..self.me }, self.settings, self.opening, self.link_up)
    }

    /// Whether the peer said goodbye.
    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    /// Since when the peer says nothing new, or did not answer what it was told; zero: it was never heard nor told.
    pub(crate) fn quiet_from(&self) -> Duration {
        self.heard_at.max(self.waiting_since.unwrap_or_default())
    }

    /// Whether there is something that the peer has to acknowledge.
    pub(crate) fn waits(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// The incarnation of the peer that was heard of; 0: none.
    pub(crate) fn peer_incarnation(&self) -> u64 {
        self.seen.incarnation
    }

    /// Says that this side leaves. Nobody answers: who does not hear it gives the session up after a while.
    pub(crate) fn say_bye(&self, effects: &mut Vec<Effect>) {
        if let Phase::Bound { peer, version } = self.phase {
            self.send_bare(self.header(Kind::Bye, version, peer), effects);
        }
    }

    /// The epoch that consumption counts for.
    pub(crate) fn epoch(&self) -> u32 {
        self.me.epoch
    }

    /// Frames that wait for an acknowledgement.
    pub(crate) fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// Their bytes.
    pub(crate) fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    pub(crate) fn is_unsupported(&self) -> bool {
        self.phase == Phase::Unsupported
    }

    /// When [`on_time`](Self::on_time) has to be called, if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let silence = self.silence_at();
        [self.retry_at, self.ack_due, silence].into_iter().flatten().min()
    }

    fn silence_at(&self) -> Option<Duration> {
        let since = self.waiting_since.filter(|_| !self.silence_told && self.link_up)?;
        Some(since.max(self.heard_at) + self.settings.silent_after)
    }

    /// Whether the peer has proven to this half of ours that it lives: a greeting may be one of the past.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.phase, Phase::Bound { .. })
    }

    /// What only frames can change that were never heard before: they are signs of life, and repeated ones are none.
    fn progress(&self) -> (Half, bool, u64, u64, Consumed) {
        let acknowledged = self.next_seq - self.unacked.len() as u64;
        (self.seen, self.is_bound(), self.received_seq, acknowledged, self.credit)
    }

    /// Takes a frame of the peer. Call [`pump`](Self::pump) after all that are there.
    pub(crate) fn on_frame(
        &mut self,
        now: Duration,
        frame: &Bytes,
        outbox: &mut Outbox,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FrameError> {
        let before = self.progress();
        let result = self.take_frame(now, frame, outbox, effects);
        if self.progress() != before {
            self.heard_at = now;
            self.silence_told = false;
        }
        result
    }

    fn take_frame(
        &mut self,
        now: Duration,
        frame: &Bytes,
        outbox: &mut Outbox,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FrameError> {
        let header = Header::read(frame)?;
        if header.from < self.seen {
            self.counts.frames_stale += 1;
            return Ok(());
        }
        if header.kind == Kind::Hello {
            if let Err(error) = self.check_greeting(frame, None) {
                if matches!(error, FrameError::Release { .. }) {
                    self.refuse_release(now, header.from, effects);
                }
                return Err(error);
            }
            self.meet(header.from, challenge(frame)?, outbox, effects);
            return self.on_hello(frame, &header, outbox, effects);
        }
        // To a former half of ours, or of a half that has not greeted this one: that cannot be proven. Whoever it is hears who we
        // are. To a later one: then we are the former, and keep quiet.
        let greets = matches!(header.kind, Kind::Welcome | Kind::Refuse);
        if header.to != self.me || (!greets && (header.from != self.seen || self.met.is_none())) {
            self.counts.frames_stale += 1;
            let recently = self.hello_answered_at.is_some_and(|at| now < at + self.settings.retry_min / 2);
            if header.to <= self.me && !recently {
                self.hello_answered_at = Some(now);
                self.say_hello(effects);
            }
            return Ok(());
        }
        match &self.met {
            _ if greets => {
                self.check_greeting(frame, Some(&self.my_challenge))?;
                self.meet(header.from, challenge(frame)?, outbox, effects);
                // A later half of a peer that we were bound to: this frame answers one that we are not any more.
                if header.to != self.me {
                    return Ok(());
                }
            }
            Some(met) if is_authentic(frame, &met.keys.receiving, None) => {}
            _ => return Err(FrameError::NotAuthentic),
        }
        if header.kind == Kind::Bye {
            self.left = true;
            return Ok(());
        }
        if header.kind == Kind::Refuse {
            let theirs = versions(frame)?;
            // Whoever says no to a version that it speaks is not to be understood.
            let supported = common_version(self.settings.versions, theirs).is_some();
            if !supported && !self.is_bound() {
                self.unsupported(header.from.incarnation, theirs, outbox, effects);
            }
            return Ok(());
        }
        let version = match (self.phase, header.kind) {
            (Phase::Bound { version, .. }, _) => version,
            (_, Kind::Welcome) => {
                let theirs = versions(frame)?;
                let Some(version) = common_version(self.settings.versions, theirs) else {
                    self.unsupported(header.from.incarnation, theirs, outbox, effects);
                    return Ok(());
                };
                self.bind(header.from, version);
                // The third step of the greeting, without which the peer stays unbound.
                self.ack_now = true;
                version
            }
            (_, _) => {
                let ours = self.settings.versions;
                if !(ours.0..=ours.1).contains(&u16::from(header.version)) {
                    return Err(FrameError::Version(header.version));
                }
                self.bind(header.from, header.version);
                header.version
            }
        };
        if header.kind != Kind::Welcome && header.version != version {
            return Err(FrameError::Version(header.version));
        }
        self.on_ack(now, &header, effects)?;
        if header.kind == Kind::Data {
            self.on_data(&header, frame, effects);
        }
        self.ack_now |= header.ack_now;
        Ok(())
    }

    fn on_ack(&mut self, now: Duration, header: &Header, effects: &mut Vec<Effect>) -> Result<(), FrameError> {
        if header.ack >= self.next_seq {
            return Err(FrameError::Header("acknowledges what was never sent"));
        }
        self.credit.items = self.credit.items.max(header.credit_items);
        self.credit.bytes = self.credit.bytes.max(header.credit_bytes);
        let mut acked = 0;
        while let Some(first) = self.unacked.front().filter(|first| first.seq <= header.ack) {
            self.unacked_bytes -= first.frame.len() as u64;
            if !first.resent {
                self.measure(now.saturating_sub(first.sent_at));
            }
            self.unacked.pop_front();
            acked += 1;
        }
        if acked > 0 {
            self.timeouts = 0;
            self.retry_at = (!self.unacked.is_empty()).then(|| now + self.retry_after());
            self.waiting_since = (!self.unacked.is_empty()).then_some(now);
            if let Some((cursor, burst)) = self.resend.take() {
                self.send_again(now, cursor, burst * 2, effects);
            }
        }
        if header.gap
            && let Some(first) = self.unacked.front().map(|first| first.seq)
            && first == header.ack + 1
            && first > self.gap_answered
        {
            self.gap_answered = first;
            self.send_again(now, first, WINDOW_FRAMES, effects);
        }
        Ok(())
    }

    fn on_data(&mut self, header: &Header, frame: &Bytes, effects: &mut Vec<Effect>) {
        if header.seq <= self.received_seq {
            self.counts.frames_repeated += 1;
            self.ack_now = true;
        } else if header.seq > self.received_seq + 1 {
            self.counts.frames_out_of_order += 1;
            self.ack_now = true;
            self.gap = true;
        } else {
            self.received_seq = header.seq;
            self.acks_owed += 1;
            self.counts.frames_received += 1;
            self.counts.items_received += u64::from(header.items);
            let body = body(frame);
            self.counts.bytes_received += body.len() as u64;
            effects.push(Effect::Deliver { from: header.from, items: header.items, body });
        }
    }

    /// Sends what may be sent, and what is owed.
    pub(crate) fn pump(&mut self, now: Duration, outbox: &mut Outbox, consumed: Consumed, effects: &mut Vec<Effect>) {
        if outbox.heard_of() > self.seen.incarnation {
            self.superseded(outbox.heard_of());
        }
        if !self.link_up {
            return;
        }
        match self.phase {
            Phase::Unsupported => outbox.clear(),
            Phase::Idle if outbox.is_empty() => {}
            Phase::Idle => {
                self.phase = Phase::Greeting;
                self.waiting_since = Some(now);
                self.retry_at = Some(now + self.retry_after());
                self.say_hello(effects);
            }
            Phase::Greeting => {}
            Phase::Bound { peer, version } => {
                let told = self.granted;
                self.granted.items = consumed.items + self.settings.credit_items;
                self.granted.bytes = consumed.bytes + self.settings.credit_bytes;
                // Half of the credit is worth a frame of its own; less rides along with whatever is sent.
                self.ack_now |= self.granted.items.saturating_sub(told.items) >= self.settings.credit_items / 2
                    || self.granted.bytes.saturating_sub(told.bytes) >= self.settings.credit_bytes / 2;
                let sent_data = self.send_data(now, peer, version, outbox, effects);
                let sent_ack = self.send_ack_if_due(now, peer, version, effects);
                if !sent_data && !sent_ack {
                    self.granted = told;
                }
                let waiting = !self.unacked.is_empty() || !outbox.is_empty();
                if waiting {
                    self.retry_at.get_or_insert(now + self.retry_after());
                    self.waiting_since.get_or_insert(now);
                } else {
                    self.retry_at = None;
                    self.waiting_since = None;
                }
            }
        }
    }

    fn send_data(
        &mut self,
        now: Duration,
        peer: Half,
        version: u8,
        outbox: &mut Outbox,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut sent = false;
        while self.unacked.len() < WINDOW_FRAMES && self.resend.is_none() {
            let Some((items, body_bytes)) = outbox.next_size() else { break };
            let after =
                Consumed { items: self.sent.items + u64::from(items), bytes: self.sent.bytes + body_bytes as u64 };
            if after.items > self.credit.items || after.bytes > self.credit.bytes {
                break;
            }
            let Some(mut draft) = outbox.pop() else { break };
            let header = Header { seq: self.next_seq, items, ..self.header(Kind::Data, version, peer) };
            header.write(&mut draft.bytes);
            let frame = self.sealed(draft.bytes);
            self.unacked_bytes += frame.len() as u64;
            self.unacked.push_back(Unacked { seq: self.next_seq, frame: frame.clone(), sent_at: now, resent: false });
            self.next_seq += 1;
            self.sent = after;
            self.counts.frames_sent += 1;
            self.counts.items_sent += u64::from(items);
            self.counts.bytes_sent += body_bytes as u64;
            self.acknowledged();
            effects.push(Effect::Send(frame));
            sent = true;
        }
        sent
    }

    fn send_ack_if_due(&mut self, now: Duration, peer: Half, version: u8, effects: &mut Vec<Effect>) -> bool {
        if self.ack_now || self.acks_owed >= ACK_EVERY_FRAMES {
            self.send_bare(self.header(Kind::Ack, version, peer), effects);
            self.counts.acks_sent += 1;
            self.acknowledged();
            return true;
        }
        if self.acks_owed > 0 {
            self.ack_due.get_or_insert(now + self.settings.ack_delay);
        }
        false
    }

    /// A frame that carries our acknowledgement was made.
    fn acknowledged(&mut self) {
        self.acks_owed = 0;
        self.ack_due = None;
        self.ack_now = false;
        self.gap = false;
    }

    /// Does what is due. Call [`pump`](Self::pump) afterwards.
    pub(crate) fn on_time(&mut self, now: Duration, outbox: &Outbox, effects: &mut Vec<Effect>) {
        if self.silence_at().is_some_and(|at| at <= now) {
            self.silence_told = true;
            let silent_for = now.saturating_sub(self.waiting_since.unwrap_or(now).max(self.heard_at));
            effects.push(Effect::Silent { incarnation: self.seen.incarnation, silent_for });
        }
        if self.ack_due.is_some_and(|at| at <= now) {
            self.ack_due = None;
            self.ack_now = true;
        }
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        if self.link_up {
            self.timeouts += 1;
            match self.phase {
                Phase::Greeting => self.say_hello(effects),
                Phase::Bound { peer, version } => match self.unacked.front().map(|first| first.seq) {
                    Some(first) => self.send_again(now, first, 1, effects),
                    // Out of credit: the frame that brought more may be lost.
                    None if !outbox.is_empty() => {
                        let header = Header { ack_now: true, ..self.header(Kind::Ack, version, peer) };
                        self.send_bare(header, effects);
                        self.counts.acks_sent += 1;
                    }
                    None => {}
                },
                Phase::Idle | Phase::Unsupported => {}
            }
        }
        self.retry_at = Some(now + self.retry_after());
    }

    /// The connection went, or came back; then everything that was on its way may be lost.
    pub(crate) fn on_link(&mut self, now: Duration, up: bool, effects: &mut Vec<Effect>) {
        self.link_up = up;
        if !up {
            return;
        }
        self.timeouts = 0;
        match self.phase {
            Phase::Greeting => {
                self.say_hello(effects);
                self.retry_at = Some(now + self.retry_after());
            }
            Phase::Bound { .. } => {
                if let Some(first) = self.unacked.front().map(|first| first.seq) {
                    self.send_again(now, first, WINDOW_FRAMES, effects);
                }
                // Asks the peer for what it sent meanwhile.
                self.gap = true;
                self.ack_now = true;
            }
            Phase::Idle | Phase::Unsupported => {}
        }
    }

    /// Forgets what is queued and unacknowledged, as if the peer had never been met. The peer resets when it speaks
    /// to us again or we to it.
    pub(crate) fn forget(&mut self, outbox: &mut Outbox) {
        self.renew(outbox);
    }

    /// The peer is this incarnation by now, or a later one, as was heard elsewhere. What was under way to an earlier one is lost; what
    /// is queued since is not: it waits for the later one. Who has told us need not be told.
    fn superseded(&mut self, incarnation: u64) {
        self.seen = Half { incarnation, epoch: 0 };
        self.met = None;
        match self.phase {
            Phase::Bound { .. } => self.go_on_as_another_half(),
            Phase::Unsupported => self.phase = Phase::Idle,
            Phase::Idle | Phase::Greeting => {}
        }
    }

    fn renew(&mut self, outbox: &mut Outbox) {
        outbox.clear();
        self.go_on_as_another_half();
    }

    fn go_on_as_another_half(&mut self) {
        let me = Half { epoch: self.me.epoch + 1, ..self.me };
        let fresh = Self::of(me, self.settings.clone(), self.opening.clone(), self.link_up);
        let counts = Counts { resets: self.counts.resets + 1, ..self.counts };
        let met = self
            .met
            .take()
            .map(|met| Met { keys: self.opening.keys((me, &fresh.my_challenge), (self.seen, &met.challenge)), ..met });
        *self = Self { seen: self.seen, met, heard_at: self.heard_at, counts, ..fresh };
    }

    fn send_again(&mut self, now: Duration, from_seq: u64, burst: usize, effects: &mut Vec<Effect>) {
        let mut left = burst;
        let mut next = from_seq;
        for unacked in self.unacked.iter_mut().filter(|unacked| unacked.seq >= from_seq) {
            next = unacked.seq;
            if left == 0 {
                break;
            }
            left -= 1;
            next += 1;
            unacked.resent = true;
            unacked.sent_at = now;
            self.counts.frames_resent += 1;
            effects.push(Effect::Send(unacked.frame.clone()));
        }
        self.resend = (next < self.next_seq && !self.unacked.is_empty()).then_some((next, burst));
        self.retry_at = Some(now + self.retry_after());
    }

    fn send_bare(&self, header: Header, effects: &mut Vec<Effect>) {
        let mut bytes = BytesMut::zeroed(HEADER_BYTES);
        header.write(&mut bytes);
        effects.push(Effect::Send(self.sealed(bytes)));
    }

    /// A frame within the session, sealed.
    fn sealed(&self, mut frame: BytesMut) -> Bytes {
        let met = self.met.as_ref().expect("who is bound has been met");
        seal(&mut frame, &met.keys.sending, None);
        frame.freeze()
    }

    fn header(&self, kind: Kind, version: u8, to: Half) -> Header {
        Header {
            version,
            kind,
            gap: self.gap,
            ack_now: false,
            from: self.me,
            to,
            seq: 0,
            ack: self.received_seq,
            credit_items: self.granted.items,
            credit_bytes: self.granted.bytes,
            items: 0,
        }
    }

    /// Smoothed round trip and its variation (RFC 6298).
    fn measure(&mut self, round_trip: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (round_trip, round_trip / 2),
            Some((smoothed, variation)) => {
                ((smoothed * 7 + round_trip) / 8, (variation * 3 + smoothed.abs_diff(round_trip)) / 4)
            }
        });
    }

    fn retry_after(&self) -> Duration {
        let measured = self.smoothed.map_or(Duration::ZERO, |(smoothed, variation)| smoothed + variation * 4);
        let doubled = measured.max(self.settings.retry_min) * (1 << self.timeouts.min(10));
        doubled.min(self.settings.retry_max)
    }
}
