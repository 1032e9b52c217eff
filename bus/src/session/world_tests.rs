//! Two session states in a world of loss, repetition, reordering, outages, restarts and forgetting, on simulated time.
//!
//! Each side numbers its items (generation, number); a generation ends whenever the side restarts, forgets or is
//! reset. What a side delivers must be, generation after generation, 0, 1, 2, ... without holes or repeats. Once the
//! faults stop, everything must arrive, and the other side may have been reset once per restart or forgetting at most. An
//! adversary who hears everything, and does not know the token, changes nothing of that: it repeats what it has heard,
//! earlier incarnations included, and makes frames of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::frame::{Actors, HEADER_BYTES, Half, Header, Kind, fix_checksum, read_items, seal};
use super::opening::Opening;
use super::outbox::Outbox;
use super::state::Session;
use super::terms::{Consumed, Effect, Settings};
use crate::auth::{Credentials, Key};

/// Schedules per test; 50 000 were run once.
const SEEDS: u64 = 500;

struct Side {
    session: Session,
    outbox: Outbox,
    incarnation: u64,
    consumed: Consumed,
    /// Delivered to a reader that has not read it yet; with the epoch it counts for.
    unread: Vec<(u32, Consumed)>,
    generation: u32,
    next_number: u32,
    /// The latest item delivered here.
    latest: Option<(u32, u32)>,
    delivered: u64,
    resets: u32,
    silences: u32,
    /// Frames that the process has not looked at, and whether they are honest.
    inbox: Vec<(Bytes, bool)>,
}

/// A process: its challenges are its own.
fn opening(index: usize) -> Arc<Opening> {
    let (me, peer) = [("a", "b"), ("b", "a")][index];
    let credentials = Credentials::node(Some("the nodes' token of this world"), None);
    Arc::new(Opening::new(&credentials, "exo.v1.world", me, peer, Key::random()).unwrap())
}

impl Side {
    fn new(index: usize, incarnation: u64, generation: u32, latest: Option<(u32, u32)>) -> Self {
        Self {
            session: Session::new(incarnation, Settings::tight(), opening(index), true),
            outbox: Outbox::new(100_000, 300, 4096),
            incarnation,
            consumed: Consumed::default(),
            unread: Vec::new(),
            generation,
            next_number: 0,
            latest,
            delivered: 0,
            resets: 0,
            silences: 0,
            inbox: Vec::new(),
        }
    }

    fn new_generation(&mut self) {
        self.generation += 1;
        self.next_number = 0;
        self.consumed = Consumed::default();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Frame {
        to: usize,
        bytes: Vec<u8>,
        honest: bool,
    },
    /// The process looks at what has come in since the last time.
    Turn {
        of: usize,
    },
    Tick,
}

struct World {
    seed: u64,
    now: Duration,
    random: StdRng,
    sides: [Side; 2],
    queue: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    next_event: u64,
    lose: f64,
    repeat: f64,
    jitter_us: u64,
    /// A frame waits less than so long until it is looked at, with all that came meanwhile.
    turn_us: u64,
    link_up: bool,
    spontaneous: u32,
    lost: u64,
    /// What the adversary has heard; `None`: there is none.
    heard: Option<Vec<(usize, Vec<u8>)>>,
    /// Of its frames, those that were refused as nobody's.
    unmasked: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let lose = [0.0, 0.02, 0.2, 0.5][random.random_range(0..4)];
        let repeat = [0.0, 0.1, 0.3][random.random_range(0..3)];
        let jitter_us = [0, 300, 50_000][random.random_range(0..3)];
        let turn_us = [1, 500, 5_000][random.random_range(0..3)];
        Self {
            seed,
            now: Duration::ZERO,
            random,
            sides: [Side::new(0, 1, 0, None), Side::new(1, 1, 0, None)],
            queue: BinaryHeap::new(),
            next_event: 0,
            lose,
            repeat,
            jitter_us,
            turn_us,
            link_up: true,
            spontaneous: 0,
            lost: 0,
            heard: None,
            unmasked: 0,
        }
    }

    fn post(&mut self, after: Duration, event: Event) {
        self.next_event += 1;
        self.queue.push(Reverse((self.now + after, self.next_event, event)));
    }

    fn publish(&mut self, from: usize, frame: &Bytes) {
        if let Some(heard) = &mut self.heard {
            heard.push((1 - from, frame.to_vec()));
        }
        if !self.link_up || self.random.random_bool(self.lose) {
            self.lost += 1;
            return;
        }
        let copies = if self.random.random_bool(self.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let micros = 100 + if self.jitter_us == 0 { 0 } else { self.random.random_range(0..self.jitter_us) };
            self.post(
                Duration::from_micros(micros),
                Event::Frame { to: 1 - from, bytes: frame.to_vec(), honest: true },
            );
        }
    }

    /// The adversary repeats something, to whom it was said or to who said it, or says something of its own.
    fn interfere(&mut self) {
        let Some(heard) = &self.heard else { return };
        if heard.is_empty() {
            return;
        }
        let (mut to, mut bytes) = heard[self.random.random_range(0..heard.len())].clone();
        match self.random.random_range(0..5) {
            0 => {}
            1 => to = 1 - to,
            // Cut behind the versions, as a release without MACs greets: to whom it was said, or back to who said it.
            2 => {
                bytes.truncate(HEADER_BYTES + 4);
                if bytes.len() == HEADER_BYTES + 4 {
                    fix_checksum(&mut bytes);
                }
                to = if self.random.random_bool(0.5) { to } else { 1 - to };
            }
            // Something in it is another, and the checksum fits again.
            3 => {
                let at = self.random.random_range(0..bytes.len());
                bytes[at] ^= 1 << self.random.random_range(0..8_u32);
                fix_checksum(&mut bytes);
            }
            // A later incarnation than any, under another token.
            _ => {
                let half = Half { incarnation: u64::from(self.random.random_range(1..u32::MAX)), epoch: 1 };
                let me = Half { incarnation: self.sides[to].incarnation, epoch: 1 };
                let kind =
                    [Kind::Hello, Kind::Welcome, Kind::Refuse, Kind::Data, Kind::Ack][self.random.random_range(0..5)];
                let header = Header {
                    version: 2,
                    kind,
                    gap: true,
                    ack_now: true,
                    from: half,
                    to: if kind == Kind::Hello { Half::NONE } else { me },
                    seq: u64::from(kind == Kind::Data),
                    ack: 0,
                    credit_items: u64::MAX,
                    credit_bytes: u64::MAX,
                    items: 0,
                };
                let mut frame = BytesMut::zeroed(HEADER_BYTES);
                header.write(&mut frame);
                frame.extend_from_slice(&[2, 0, 2, 0]);
                frame.extend_from_slice(&[9; 16]);
                seal(&mut frame, &Key::random(), None);
                bytes = frame.to_vec();
            }
        }
        let micros = self.random.random_range(0..1000);
        self.post(Duration::from_micros(micros), Event::Frame { to, bytes, honest: false });
    }

    fn send_items(&mut self, from: usize, count: u32) {
        for _ in 0..count {
            let side = &mut self.sides[from];
            let mut item = side.generation.to_le_bytes().to_vec();
            item.extend_from_slice(&side.next_number.to_le_bytes());
            item.resize(8 + (side.next_number % 50) as usize, 0);
            if side.outbox.push("actor", &item).is_ok() {
                side.next_number += 1;
            }
        }
        self.pump(from);
    }

    fn pump(&mut self, index: usize) {
        let side = &mut self.sides[index];
        let mut effects = Vec::new();
        side.session.pump(self.now, &mut side.outbox, side.consumed, &mut effects);
        assert!(side.session.unacked() <= super::state::WINDOW_FRAMES);
        self.apply(index, effects);
        if let Some(at) = self.sides[index].session.deadline() {
            self.post(at.saturating_sub(self.now), Event::Tick);
        }
    }

    fn apply(&mut self, index: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(frame) => self.publish(index, &frame),
                Effect::Deliver { items, body, .. } => self.deliver(index, items, &body),
                Effect::Reset { .. } => {
                    self.sides[index].resets += 1;
                    self.sides[index].new_generation();
                }
                Effect::Silent { .. } => self.sides[index].silences += 1,
                Effect::Unsupported { .. } => panic!("seed {}: both speak version 1", self.seed),
            }
        }
    }

    fn deliver(&mut self, index: usize, declared: u32, body: &Bytes) {
        let seed = self.seed;
        let side = &mut self.sides[index];
        let (items, result) = read_items(body, declared, &mut Actors::default());
        result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (_, item) in items {
            let word = |at: usize| u32::from_le_bytes(item[at..at + 4].try_into().unwrap());
            let this = (word(0), word(4));
            let expected = match side.latest {
                Some((generation, number)) if generation == this.0 => (generation, number + 1),
                Some((generation, _)) if generation > this.0 => panic!("seed {seed}: {this:?} after {:?}", side.latest),
                _ => (this.0, 0),
            };

            assert_eq!(this, expected, "seed {seed}: side {index} lost or repeated an item");
            side.latest = Some(this);
            side.delivered += 1;
        }
        side.unread.push((side.session.epoch(), Consumed { items: u64::from(declared), bytes: body.len() as u64 }));
    }

    /// The reader takes everything that waits.
    fn read(&mut self, index: usize) {
        let side = &mut self.sides[index];
        for (epoch, amount) in side.unread.drain(..) {
            if epoch == side.session.epoch() {
                side.consumed.items += amount.items;
                side.consumed.bytes += amount.bytes;
            }
        }
        self.pump(index);
    }

    fn restart(&mut self, index: usize) {
        self.spontaneous += 1;
        let old = &self.sides[index];
        // What the peer numbered goes on from where the old process saw it; ours is a new generation.
        let (incarnation, generation, latest) = (old.incarnation + 1, old.generation + 1, old.latest);
        let (resets, silences, delivered) = (old.resets, old.silences, old.delivered);
        // The new process never saw the unfinished generation.
        let latest = latest.map(|(generation, _)| (generation, u32::MAX));
        let side = Side { resets, silences, delivered, ..Side::new(index, incarnation, generation, latest) };
        self.sides[index] = side;
        let mut effects = Vec::new();
        let up = self.link_up;
        self.sides[index].session.on_link(self.now, up, &mut effects);
        self.apply(index, effects);
    }

    fn forget(&mut self, index: usize) {
        self.spontaneous += 1;
        let side = &mut self.sides[index];
        side.session.forget(&mut side.outbox);
        side.new_generation();
    }

    fn link(&mut self, up: bool) {
        self.link_up = up;
        for index in 0..2 {
            let mut effects = Vec::new();
            self.sides[index].session.on_link(self.now, up, &mut effects);
            self.apply(index, effects);
            self.pump(index);
        }
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match event {
            Event::Frame { to, bytes, honest } => {
                self.sides[to].inbox.push((bytes.into(), honest));
                if self.sides[to].inbox.len() == 1 {
                    let micros = self.random.random_range(0..self.turn_us);
                    self.post(Duration::from_micros(micros), Event::Turn { of: to });
                }
            }
            Event::Turn { of } => {
                for (frame, honest) in std::mem::take(&mut self.sides[of].inbox) {
                    let side = &mut self.sides[of];
                    let mut effects = Vec::new();
                    let result = side.session.on_frame(self.now, &frame, &mut side.outbox, &mut effects);
                    // Both speak the same, so a refusal was called for by the adversary, and proves nothing.
                    let called_for = self.heard.is_some() && frame[2] == 2;
                    match result {
                        Err(error) if honest && !called_for => panic!("seed {}: {error}", self.seed),
                        Err(_) => self.unmasked += 1,
                        Ok(()) => {}
                    }
                    self.apply(of, effects);
                }
                self.pump(of);
            }
            Event::Tick => {
                for index in 0..2 {
                    let side = &mut self.sides[index];
                    if side.session.deadline().is_some_and(|at| at <= self.now) {
                        let mut effects = Vec::new();
                        side.session.on_time(self.now, &side.outbox, &mut effects);
                        self.apply(index, effects);
                        self.pump(index);
                    }
                }
            }
        }
        true
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Runs, reading all the time, until nothing is queued, unacknowledged or unread.
    fn run_until_quiet(&mut self, within: Duration) {
        let end = self.now + within;
        loop {
            let busy = |side: &Side| !side.outbox.is_empty() || side.session.unacked() > 0 || !side.unread.is_empty();
            if !self.sides.iter().any(busy) {
                return;
            }
            assert!(
                self.now < end,
                "seed {}: no progress, {:#?}",
                self.seed,
                [&self.sides[0].session, &self.sides[1].session]
            );
            self.run_for(Duration::from_millis(10));
            self.read(0);
            self.read(1);
        }
    }
}

fn run(seed: u64, with_endings: bool) -> World {
    run_with(seed, with_endings, false)
}

fn run_with(seed: u64, with_endings: bool, adversary: bool) -> World {
    let mut world = World::new(seed);
    world.heard = adversary.then(Vec::new);
    for _ in 0..60 {
        for _ in 0..5 {
            world.interfere();
        }
        let side = world.random.random_range(0..2);
        match world.random.random_range(0..20) {
            0..=9 => {
                let count = world.random.random_range(1..40);
                world.send_items(side, count);
            }
            10..=13 => world.read(side),
            14 if world.link_up => world.link(false),
            14 | 15 if !world.link_up => world.link(true),
            16 if with_endings => world.restart(side),
            17 if with_endings => world.forget(side),
            _ => {
                let micros = world.random.random_range(50..200_000);
                world.run_for(Duration::from_micros(micros));
            }
        }
    }
    // The faults stop. What is lost to a reset that is noticed only now is not complained about ...
    (world.lose, world.repeat, world.jitter_us) = (0.0, 0.0, 0);
    // (A reconnect repairs much, so there is none if it is not needed.)
    if !world.link_up {
        world.link(true);
    }
    // (One-way traffic, too: acknowledgements that ride on the other side's data would hide those that are missing.)
    let senders: &[usize] = [&[0][..], &[1], &[0, 1]][(seed % 3) as usize];
    for &side in senders {
        world.send_items(side, 1);
    }
    world.run_until_quiet(Duration::from_secs(60));
    // ... but from now on everything arrives.
    let before: Vec<u64> = world.sides.iter().map(|side| side.delivered).collect();
    for &side in senders {
        world.send_items(side, 100);
    }
    world.run_until_quiet(Duration::from_secs(60));
    for &from in senders {
        let (to, sent) = (1 - from, &world.sides[from]);
        assert_eq!(world.sides[to].delivered - before[to], 100, "seed {seed}");
        assert_eq!(world.sides[to].latest, Some((sent.generation, sent.next_number - 1)), "seed {seed}");
    }
    let resets: u32 = world.sides.iter().map(|side| side.resets).sum();
    assert!(resets <= world.spontaneous, "seed {seed}: {resets} resets by {} endings", world.spontaneous);
    world
}

#[test]
fn whatever_is_lost_repeated_or_reordered_every_item_arrives_once_and_in_order() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let world = run(seed, false);
        assert_eq!(world.sides[0].resets + world.sides[1].resets, 0, "seed {seed}: reset without a reason");
        lost += world.lost;
    }
    assert!(lost > 5_000, "the faults did not strike: {lost}");
}

#[test]
fn who_hears_everything_and_does_not_know_the_token_changes_nothing() {
    let (mut unmasked, mut resets) = (0, 0);
    for seed in 0..SEEDS {
        let calm = run_with(seed, false, true);
        assert_eq!(calm.sides[0].resets + calm.sides[1].resets, 0, "seed {seed}: reset without a reason");
        let stormy = run_with(seed, true, true);
        unmasked += calm.unmasked + stormy.unmasked;
        resets += stormy.sides[0].resets + stormy.sides[1].resets;
    }
    assert!(unmasked > 10_000, "the adversary did hardly anything: {unmasked}");
    assert!(resets > 300, "hardly any session was reset: {resets}");
}

#[test]
fn restarts_and_forgetting_reset_the_other_side_once_and_then_all_is_well() {
    let mut resets = 0;
    for seed in 0..SEEDS {
        let world = run(seed, true);
        resets += world.sides[0].resets + world.sides[1].resets;
    }
    assert!(resets > 300, "hardly any session was reset: {resets}");
}
