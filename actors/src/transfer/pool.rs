//! The threads that fetch, their queue, and the connections that they share.
//!
//! Peers take turns, so that one that is slow or dead does not keep the others waiting: it has at most
//! [`connections_per_peer`](super::ClientOptions::connections_per_peer) threads. Of one peer, questions for
//! directories come before fetches: they are short, and fetches wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use exobus_store::{Block, Clock, CopyId, Hold};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::client::Connection;
use super::copy::Target;
use super::error::{PeerName, TransferError};
use super::fetch::Progress;
use super::token::ClusterToken;
use super::work::Worker;
use super::{ClientOptions, ClientStats, Counter, DirectoryList, FetchItem, wire};
use crate::random::Random;

/// Something to ask a peer.
pub(super) struct Job {
    pub(super) progress: Arc<Progress>,
    pub(super) work: Work,
}

/// A job that waits for a thread, or has one.
struct Held {
    job: Job,
    _hold: Hold,
}

/// What to ask, and who waits for the answer.
pub(super) enum Work {
    Directories {
        kind: wire::Kind,
        items: Vec<wire::Item>,
        done: oneshot::Sender<Result<DirectoryList, TransferError>>,
    },
    Fetch {
        items: Vec<FetchItem>,
        done: oneshot::Sender<Vec<Result<Block, TransferError>>>,
    },
    Copy {
        target: Target,
        done: oneshot::Sender<Result<CopyId, TransferError>>,
    },
}

impl Job {
    fn fail(self, error: TransferError) {
        // Who does not wait any more does not hear it.
        match self.work {
            Work::Directories { done, .. } => drop(done.send(Err(error))),
            Work::Fetch { items, done } => drop(done.send(items.iter().map(|_| Err(error.clone())).collect())),
            Work::Copy { done, .. } => drop(done.send(Err(error))),
        }
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) items: Counter,
    pub(super) bytes: Counter,
    pub(super) corrupt: Counter,
    pub(super) failed: Counter,
    pub(super) connected: Counter,
}

/// Where jobs are put. Does not keep the threads alive.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

/// Keeps the threads; when it is dropped they end, and all jobs with them.
pub(super) struct Threads(Queue);

struct Shared {
    worker: Worker,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<(String, String), Peer>,
    /// Whose turn was last: the next peer in order comes next.
    last: (String, String),
    waiting: usize,
    /// Threads that wait for a job.
    resting: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

#[derive(Default)]
struct Peer {
    directories: VecDeque<Held>,
    fetches: VecDeque<Held>,
    /// Jobs that threads work on.
    active: Vec<Arc<Progress>>,
    idle: Vec<(Connection, Duration)>,
}

impl Peer {
    fn has_work(&self) -> bool {
        !(self.directories.is_empty() && self.fetches.is_empty())
    }
}

fn key(peer: &PeerName) -> (String, String) {
    (peer.address.clone(), peer.node.clone())
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.0.state.lock().waiting).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("running", &self.0.0.state.lock().threads.len()).finish_non_exhaustive()
    }
}

impl Threads {
    pub(super) fn new(options: ClientOptions, token: ClusterToken, clock: Arc<dyn Clock>) -> Self {
        let worker = Worker { options, token, clock, counters: Counters::default() };
        Self(Queue(Arc::new(Shared { worker, state: Mutex::default(), wake: Condvar::new() })))
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.0
    }

    pub(super) fn stats(&self) -> ClientStats {
        let Counters { items, bytes, corrupt, failed, connected } = &self.0.0.worker.counters;
        ClientStats {
            items: items.get(),
            bytes: bytes.get(),
            corrupt: corrupt.get(),
            failed: failed.get(),
            connected: connected.get(),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let mut state = shared.state.lock();
        state.stopped = true;
        let mut left = Vec::new();
        for peer in state.peers.values_mut() {
            left.extend(peer.directories.drain(..));
            left.extend(peer.fetches.drain(..));
            peer.active.iter().for_each(|progress| progress.cancel());
        }
        state.waiting = 0;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        shared.wake.notify_all();
        for held in left {
            held.job.fail(TransferError::Stopped);
        }
        for thread in threads {
            // A thread that panicked has said so; its job has failed as stopped.
            let _ = thread.join();
        }
        shared.state.lock().peers.clear();
    }
}

impl Queue {
    /// Where ids of copies come from.
    pub(super) fn random(&self) -> Arc<dyn Random> {
        Arc::clone(&self.0.worker.options.random)
    }

    /// Queues a job; one that finds no room, or nobody to do it, fails.
    pub(super) fn push(&self, job: Job) {
        let mut state = self.0.state.lock();
        if let Err(error) = self.admit(&mut state) {
            drop(state);
            return job.fail(error);
        }
        state.waiting += 1;
        let peer = state.peers.entry(key(job.progress.peer())).or_default();
        let held = Held { job, _hold: self.0.worker.clock.hold() };
        match held.job.work {
            Work::Directories { .. } => peer.directories.push_back(held),
            Work::Fetch { .. } | Work::Copy { .. } => peer.fetches.push_back(held),
        }
        drop(state);
        self.0.wake.notify_one();
    }

    /// Whether there is room for a job, and a thread to do it some time: one is made when all are busy.
    fn admit(&self, state: &mut State) -> Result<(), TransferError> {
        let ClientOptions { threads, waiting_max, .. } = self.0.worker.options;
        if state.stopped {
            return Err(TransferError::Stopped);
        }
        if state.waiting >= waiting_max {
            return Err(TransferError::QueueFull { waiting: state.waiting });
        }
        if state.resting > state.waiting || state.threads.len() >= threads.max(1) {
            return Ok(());
        }
        let own = Arc::clone(&self.0);
        let name = format!("transfer-fetch-{}", state.threads.len());
        match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || own.work()) {
            Ok(thread) => state.threads.push(thread),
            // With fewer threads it takes longer; with none nothing would ever be done.
            Err(error) if state.threads.is_empty() => {
                return Err(TransferError::NoThread { cause: error.to_string() });
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Whether a peer answers a probe, beside all jobs.
    pub(super) async fn is_there(&self, peer: PeerName, within: Duration) -> bool {
        let Worker { options, token, clock, .. } = &self.0.worker;
        let options = ClientOptions { connect: within, stall: within, ..options.clone() };
        let (token, clock, hold) = (token.clone(), clock.clone(), clock.hold());
        let (tell, told) = oneshot::channel();
        let probe = move || {
            let opened = Connection::open(&peer, &options, &token, clock, &Progress::new(&peer, 0));
            let _ = tell.send(!opened.is_err_and(|error| error.is_silence()));
            drop(hold);
        };
        match std::thread::Builder::new().name("transfer-probe".into()).stack_size(STACK_BYTES).spawn(probe) {
            Ok(_) => told.await.unwrap_or(true),
            Err(_) => true,
        }
    }

    /// Drops a job that has not begun, and with it the memory that it holds.
    pub(super) fn forget(&self, progress: &Arc<Progress>) {
        let mut state = self.0.state.lock();
        let Some(peer) = state.peers.get_mut(&key(progress.peer())) else { return };
        let queues = [&mut peer.directories, &mut peer.fetches];
        let found = queues.into_iter().find_map(|queue| {
            let at = queue.iter().position(|held| Arc::ptr_eq(&held.job.progress, progress))?;
            queue.remove(at)
        });
        state.waiting -= usize::from(found.is_some());
        drop(state);
        // Outside the lock: giving memory back may wake others.
        drop(found);
    }

    /// How many jobs for the same peer are under way or come before this one.
    pub(super) fn ahead_of(&self, progress: &Arc<Progress>) -> usize {
        let state = self.0.state.lock();
        let Some(peer) = state.peers.get(&key(progress.peer())) else { return 0 };
        let before = |queue: &VecDeque<Held>| queue.iter().position(|held| Arc::ptr_eq(&held.job.progress, progress));
        let queued = match before(&peer.directories) {
            Some(before) => before,
            None => peer.directories.len() + before(&peer.fetches).unwrap_or(0),
        };
        peer.active.len() + queued
    }
}

/// Everything large is on the heap.
const STACK_BYTES: usize = 512 * 1024;

impl State {
    /// The next job, of the peer whose turn it is, and a connection if there is one.
    fn next(&mut self, per_peer: usize) -> Option<(Held, Option<Connection>)> {
        let later = self.peers.range((Bound::Excluded(self.last.clone()), Bound::Unbounded));
        let mut turns = later.chain(&self.peers);
        let turn = turns.find(|(_, peer)| peer.active.len() < per_peer && peer.has_work())?.0.clone();
        let peer = self.peers.get_mut(&turn)?;
        let held = peer.directories.pop_front().or_else(|| peer.fetches.pop_front())?;
        peer.active.push(Arc::clone(&held.job.progress));
        let connection = peer.idle.pop().map(|(connection, _)| connection);
        self.waiting -= 1;
        self.last = turn;
        Some((held, connection))
    }

    /// Takes out connections that nobody used since `before`, and peers of which nothing is left.
    fn prune(&mut self, before: Duration) -> Vec<Connection> {
        let mut old = Vec::new();
        self.peers.retain(|_, peer| {
            old.extend(peer.idle.extract_if(.., |(_, since)| *since < before).map(|(connection, _)| connection));
            !peer.idle.is_empty() || !peer.active.is_empty() || peer.has_work()
        });
        old
    }
}

impl Shared {
    fn work(&self) {
        let ClientOptions { connections_per_peer, idle, .. } = self.worker.options;
        let mut state = self.state.lock();
        while !state.stopped {
            if let Some((Held { job, _hold }, connection)) = state.next(connections_per_peer.max(1)) {
                MutexGuard::unlocked(&mut state, || {
                    let progress = Arc::clone(&job.progress);
                    let connection = self.worker.run(job, connection);
                    self.done(&progress, connection);
                });
                continue;
            }
            state.resting += 1;
            self.wake.wait_for(&mut state, idle);
            state.resting -= 1;
            let old = state.prune(self.worker.clock.now().saturating_sub(idle));
            MutexGuard::unlocked(&mut state, || drop(old));
        }
    }

    fn done(&self, progress: &Arc<Progress>, connection: Option<Connection>) {
        let now = self.worker.clock.now();
        connection.iter().for_each(Connection::rest);
        let mut state = self.state.lock();
        if let Some(peer) = state.peers.get_mut(&key(progress.peer())) {
            peer.active.retain(|other| !Arc::ptr_eq(other, progress));
            peer.idle.extend(connection.map(|connection| (connection, now)));
        }
        drop(state);
        // Another thread may have passed this peer over because it had its share.
        self.wake.notify_one();
    }
}
