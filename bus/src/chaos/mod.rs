//! A backend around a backend that loses, repeats, delays and reorders what is published, and cuts what is published
//! or received: for tests of everything above. Faults are drawn from a seed and counted, so that a test can prove that
//! they happened. With none set it keeps the contract of what it stands around. It never touches subscribing, flushing
//! and draining. Calls of durable streams are struck as requests: lost before they arrive, repeated, delayed, done with
//! their answer lost; whoever waits for one that is lost waits until its deadline.

mod streams;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::backend::{Backend, BackendStats, Complaints, ConnectionState, Incoming, Outgoing, Registration, Sink};
use crate::bus::Bus;
use crate::error::BusError;
use crate::streams::StreamBackend;
use crate::subject::{Pattern, Subject};
use streams::ChaosStreams;

/// Which faults, how often. Shares are of published messages, 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Share that is lost.
    pub drop: f64,
    /// Share that is sent twice.
    pub repeat: f64,
    /// Share that is held back for up to [`hold_max`](Self::hold_max) while later ones pass.
    pub reorder: f64,
    /// How long a reordered or repeated message is held back at most.
    pub hold_max: Duration,
    /// Share of calls of durable streams that are done and whose answer is lost.
    pub drop_answer: f64,
    /// Whether durable streams take nothing and say nothing of it, while they answer what is asked of what they have: so does a
    /// server whose disk is full.
    pub disk_full: bool,
    /// Every message is delayed by so much, least and most; order is kept.
    pub delay: Option<(Duration, Duration)>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            drop: 0.0,
            repeat: 0.0,
            reorder: 0.0,
            hold_max: Duration::from_millis(5),
            drop_answer: 0.0,
            disk_full: false,
            delay: None,
        }
    }
}

/// What a cut stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What is published here goes nowhere; what others publish arrives.
    Outgoing,
    /// What others publish does not arrive here.
    Incoming,
    /// Both.
    Both,
}

/// Faults that happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChaosStats {
    /// Messages published, whatever became of them.
    pub published: u64,
    /// Lost by [`Faults::drop`].
    pub dropped: u64,
    /// Lost by [`Faults::drop_answer`].
    pub answers_dropped: u64,
    /// Sent twice.
    pub repeated: u64,
    /// Held back.
    pub reordered: u64,
    /// Delayed with order kept.
    pub delayed: u64,
    /// Published into a cut.
    pub cut_outgoing: u64,
    /// Not received because of a cut.
    pub cut_incoming: u64,
}

/// The wrapper; clones share it. Made inside a tokio runtime, whose clock its delays follow.
#[derive(Clone)]
pub struct Chaos {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Arc<dyn Backend>,
    state: Arc<Mutex<State>>,
    later: mpsc::UnboundedSender<Later>,
}

struct State {
    random: StdRng,
    faults: Faults,
    cuts: Vec<(Direction, Option<Pattern>)>,
    stats: ChaosStats,
    /// When the latest message that keeps its order will be sent.
    in_order_until: Option<Instant>,
    next_number: u64,
}

/// A message to be sent later; ordered by time, then by number.
struct Later {
    due: Instant,
    number: u64,
    outgoing: Outgoing,
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Later {}
impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Later {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl State {
    fn is_cut(&self, subject: &Subject, direction: Direction) -> bool {
        self.cuts.iter().any(|(cut, pattern)| {
            (*cut == direction || *cut == Direction::Both) && pattern.as_ref().is_none_or(|p| p.matches(subject))
        })
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random_bool(share.min(1.0))
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(if span == 0 { 0 } else { self.random.random_range(0..=span) })
    }

    fn later(&mut self, due: Instant, outgoing: Outgoing) -> Later {
        self.next_number += 1;
        Later { due, number: self.next_number, outgoing }
    }
}

impl Chaos {
    /// Stands around `backend`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(backend: Arc<dyn Backend>, seed: u64, faults: Faults) -> Self {
        let state = State {
            random: StdRng::seed_from_u64(seed),
            faults,
            cuts: Vec::new(),
            stats: ChaosStats::default(),
            in_order_until: None,
            next_number: 0,
        };
        let (later, queue) = mpsc::unbounded_channel();
        tokio::spawn(send_later(backend.clone(), queue));
        Self { inner: Arc::new(Inner { backend, state: Arc::new(Mutex::new(state)), later }) }
    }

    /// Stands around a bus's backend.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn around(bus: &Bus, seed: u64, faults: Faults) -> Self {
        Self::new(bus.backend(), seed, faults)
    }

    /// A bus that these faults strike.
    pub fn bus(&self) -> Bus {
        Bus::over(Arc::new(self.clone()))
    }

    /// Other faults from now on.
    pub fn set(&self, faults: Faults) {
        self.inner.state.lock().faults = faults;
    }

    /// Cuts what goes in a direction, for the subjects of `pattern` or, if `None`, for all.
    pub fn cut(&self, direction: Direction, pattern: Option<Pattern>) {
        self.inner.state.lock().cuts.push((direction, pattern));
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        self.inner.state.lock().cuts.clear();
    }

    /// Faults that happened.
    pub fn stats(&self) -> ChaosStats {
        self.inner.state.lock().stats
    }
}

async fn send_later(backend: Arc<dyn Backend>, mut queue: mpsc::UnboundedReceiver<Later>) {
    let mut waiting: BinaryHeap<Reverse<Later>> = BinaryHeap::new();
    loop {
        let due = waiting.peek().map(|Reverse(later)| later.due);
        tokio::select! {
            biased;
            later = queue.recv() => match later {
                Some(later) => waiting.push(Reverse(later)),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some(Reverse(later)) = waiting.pop()
                    && let Err(error) = backend.publish(later.outgoing)
                {
                    tracing::debug!(%error, "delayed message not sent");
                }
            }
        }
    }
}

#[async_trait]
impl Backend for Chaos {
    fn publish(&self, outgoing: Outgoing) -> Result<(), BusError> {
        let mut state = self.inner.state.lock();
        state.stats.published += 1;
        if state.is_cut(&outgoing.subject, Direction::Outgoing) {
            state.stats.cut_outgoing += 1;
            return Ok(());
        }
        let faults = state.faults.clone();
        if state.chance(faults.drop) {
            state.stats.dropped += 1;
            return Ok(());
        }
        let now = Instant::now();
        if state.chance(faults.repeat) {
            state.stats.repeated += 1;
            let due = now + state.between(Duration::ZERO, faults.hold_max);
            let copy = state.later(due, outgoing.clone());
            let _ = self.inner.later.send(copy);
        }
        if state.chance(faults.reorder) {
            state.stats.reordered += 1;
            let due = now + state.between(Duration::from_nanos(1), faults.hold_max);
            let later = state.later(due, outgoing);
            let _ = self.inner.later.send(later);
            return Ok(());
        }
        let earliest = match faults.delay {
            Some((least, most)) => {
                state.stats.delayed += 1;
                now + state.between(least, most)
            }
            None => now,
        };
        // Messages without delay still queue behind delayed ones.
        let due = state.in_order_until.filter(|until| *until > earliest).unwrap_or(earliest);
        if due > now {
            state.in_order_until = Some(due);
            let later = state.later(due, outgoing);
            let _ = self.inner.later.send(later);
            return Ok(());
        }
        drop(state);
        self.inner.backend.publish(outgoing)
    }

    async fn subscribe(
        &self,
        pattern: Pattern,
        queue: Option<String>,
        sink: Arc<dyn Sink>,
    ) -> Result<Registration, BusError> {
        self.inner.backend.subscribe(pattern, queue, self.cuttable(sink)).await
    }

    async fn flush(&self, deadline: Duration) -> Result<(), BusError> {
        self.inner.backend.flush(deadline).await
    }

    async fn drain(&self, deadline: Duration) -> Result<(), BusError> {
        self.inner.backend.drain(deadline).await
    }

    fn asks_who_connects(&self) -> Option<bool> {
        self.inner.backend.asks_who_connects()
    }

    fn complaints(&self) -> Option<watch::Receiver<Complaints>> {
        self.inner.backend.complaints()
    }

    fn payload_max_bytes(&self) -> usize {
        self.inner.backend.payload_max_bytes()
    }

    fn inbox_prefix(&self) -> &str {
        self.inner.backend.inbox_prefix()
    }

    fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.inner.backend.connection()
    }

    fn runtime(&self) -> Option<Handle> {
        self.inner.backend.runtime()
    }

    fn streams(&self) -> Option<Arc<dyn StreamBackend>> {
        let inner = self.inner.backend.streams()?;
        Some(Arc::new(ChaosStreams { state: self.inner.state.clone(), inner }))
    }

    fn stats(&self) -> BackendStats {
        self.inner.backend.stats()
    }
}

impl Chaos {
    fn cuttable(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        Arc::new(Cuttable { state: self.inner.state.clone(), sink })
    }
}

/// Takes away what a cut stops on its way in.
struct Cuttable {
    state: Arc<Mutex<State>>,
    sink: Arc<dyn Sink>,
}

impl Sink for Cuttable {
    fn deliver(&self, incoming: Incoming) {
        {
            let mut state = self.state.lock();
            if state.is_cut(&incoming.subject, Direction::Incoming) {
                state.stats.cut_incoming += 1;
                return;
            }
        }
        self.sink.deliver(incoming);
    }

    fn closed(&self) {
        self.sink.closed();
    }
}
