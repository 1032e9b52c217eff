//! What all handles of a store share: the state behind its one lock, the memory, the disks.
//!
//! The lock is short: no I/O, no copying, no hashing and no call-back happens below it. Decisions are the state's; it
//! leaves effects, which are carried out here after the lock is let go of.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    alloc::Span,
    budget::Ticket,
    clock::Clock,
    dirs::Dirs,
    error::StoreError,
    hold::{Home, OwnedSpan},
    io::IoQueue,
    options::{EventHook, StoreEvent},
    region::{self, Region},
    reserve::Reserve,
    spill,
    state::{Effect, State},
};

/// A directory that was full takes files again when so much is free: that of a whole file, and of the next.
const RESTORED_BYTES_MIN: u64 = 2 * spill::FILE_BYTES;

/// Memory beside the region is granted or denied within this time, but for what the operating system takes for it.
const ANSWER_MAX: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Shared {
    pub region: Arc<Region>,
    inner: Mutex<Inner>,
    /// Where outputs wait for disk requests that set memory free.
    outputs: Condvar,
    pub reserve: Reserve,
    pub io: IoQueue,
    pub dirs: Dirs,
    pub clock: Arc<dyn Clock>,
    on_event: Option<EventHook>,
    release: Option<fn()>,
    pub memory_bytes: u64,
    pub reserve_bytes: u64,
    pub indexes_rebuilt: AtomicU64,
    pub disk_time: DiskTime,
}

/// What disk requests took since the start, summed over the threads that did them.
pub(crate) struct DiskTime {
    /// Threads that may write.
    writers: u64,
    write_us: AtomicU64,
    read_us: AtomicU64,
}

impl DiskTime {
    fn new(writers: u64) -> DiskTime {
        DiskTime { writers, write_us: AtomicU64::new(0), read_us: AtomicU64::new(0) }
    }

    pub fn wrote(&self, time: Duration) {
        self.write_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn read(&self, time: Duration) {
        self.read_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Bytes per second of all writers at work, when `bytes` were written; `None`: nothing was.
    fn write_rate(&self, bytes: u64) -> Option<u64> {
        bytes.saturating_mul(1_000_000 * self.writers).checked_div(self.write_us.load(Ordering::Relaxed))
    }

    /// Microseconds of writes and of reads.
    pub fn micros(&self) -> (u64, u64) {
        (self.write_us.load(Ordering::Relaxed), self.read_us.load(Ordering::Relaxed))
    }
}

struct Inner {
    state: State,
    signals: BTreeMap<Ticket, Arc<Signal>>,
    closed: bool,
}

/// Where one waits for a request.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    condvar: Condvar,
}

#[derive(Default)]
struct SignalState {
    raised: bool,
    waker: Option<Waker>,
}

impl Signal {
    fn raise(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.raised = true;
            state.waker.take()
        };
        self.condvar.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Blocks until it is raised, and lowers it.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while !state.raised {
            self.condvar.wait(&mut state);
        }
        state.raised = false;
    }

    /// Who to wake when it is raised. Look at the request again after this: it may have been raised before.
    pub fn register(&self, waker: &Waker) {
        let mut state = self.state.lock();
        state.raised = false;
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

/// Effects with whom they concern, to carry out without the lock.
struct Todo {
    effects: Vec<Effect>,
    signals: Vec<Arc<Signal>>,
}

/// What a new [`Shared`] is made of.
pub(crate) struct Setup {
    pub region: Region,
    pub state: State,
    pub reserve: Reserve,
    pub dirs: Dirs,
    pub clock: Arc<dyn Clock>,
    pub on_event: Option<EventHook>,
    pub release: Option<fn()>,
    pub memory_bytes: u64,
    pub reserve_bytes: u64,
    pub writers: u64,
}

impl Shared {
    pub fn new(setup: Setup) -> Shared {
        Shared {
            region: Arc::new(setup.region),
            inner: Mutex::new(Inner { state: setup.state, signals: BTreeMap::new(), closed: false }),
            outputs: Condvar::new(),
            reserve: setup.reserve,
            io: IoQueue::new(setup.clock.clone()),
            dirs: setup.dirs,
            clock: setup.clock,
            on_event: setup.on_event,
            release: setup.release,
            memory_bytes: setup.memory_bytes,
            reserve_bytes: setup.reserve_bytes,
            indexes_rebuilt: AtomicU64::new(0),
            disk_time: DiskTime::new(setup.writers),
        }
    }

    /// Changes or looks at the state, then carries out what follows. `change` must be short, and must not drop anything
    /// that gives bytes back.
    pub fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut inner = self.lock();
        let result = change(&mut inner.state);
        let todo = inner.todo();
        drop(inner);
        self.carry_out(todo);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        inner.state.backed = self.region.backed();
        let written = self.disk_time.write_rate(inner.state.counters.spilled_bytes);
        inner.state.grows_slowly = spill::grows_slowly(self.region.growth(), written);
        inner
    }

    fn carry_out(&self, todo: Option<Todo>) {
        let Some(Todo { effects, signals }) = todo else { return };
        for effect in effects {
            match effect {
                Effect::Wake(_) | Effect::Granted(_) => {}
                Effect::WakeOutputs => {
                    self.outputs.notify_all();
                }
                Effect::Load(job) => self.io.load(job),
                Effect::Write(job) => {
                    if job.first {
                        self.tell(StoreEvent::SpillStarted { bytes: job.items.iter().map(|item| item.bytes).sum() });
                    }
                    self.io.write(job);
                }
                Effect::File(work) => self.io.file(work),
                Effect::Tell(event) => self.tell(event),
                Effect::Withdraw(span) => {
                    self.region.withdraw(span);
                    self.with(|state| state.withdrawn(span));
                }
                Effect::Release => {
                    if let Some(release) = self.release {
                        release();
                    }
                }
                Effect::Restore(span) => {
                    let memory = self.region.restore(span).is_ok();
                    self.with(|state| state.given_back(span, memory));
                }
            }
        }
        for signal in signals {
            signal.raise();
        }
    }

    /// Calls the hook. No lock is held here.
    pub fn tell(&self, event: StoreEvent) {
        if let Some(hook) = &self.on_event {
            hook(event);
        }
    }

    /// An index was set aside.
    pub fn index_damaged(&self, dir: &Path, reason: String) {
        self.indexes_rebuilt.fetch_add(1, Ordering::Relaxed);
        self.tell(StoreEvent::IndexRebuilt { dir: dir.to_owned(), reason });
    }

    /// Puts a request into its queue.
    pub fn request(
        &self,
        enqueue: impl FnOnce(&mut State) -> Result<Ticket, StoreError>,
    ) -> Result<(Ticket, Arc<Signal>), StoreError> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(StoreError::Cancelled);
        }
        let result = enqueue(&mut inner.state).map(|ticket| {
            let signal = Arc::new(Signal::default());
            inner.signals.insert(ticket, signal.clone());
            (ticket, signal)
        });
        let todo = inner.todo();
        drop(inner);
        self.carry_out(todo);
        result
    }

    /// The request is over.
    pub fn forget(&self, ticket: Ticket) {
        self.inner.lock().signals.remove(&ticket);
    }

    /// No request is accepted any more, and all who wait are told.
    pub fn close(&self) {
        let signals: Vec<Arc<Signal>> = {
            let mut inner = self.inner.lock();
            inner.closed = true;
            inner.signals.values().cloned().collect()
        };
        signals.iter().for_each(|signal| signal.raise());
        self.outputs.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    /// Memory for an output of a running task, or scratch; waits for nothing but the store's own disk requests, and
    /// only while they are bound to help. `None`: there is none, write to disk.
    pub fn allocate(self: &Arc<Self>, bytes: u64, paged: bool) -> Option<OwnedSpan> {
        loop {
            let span = self.allocate_span(bytes, paged)?;
            // A refusal of the operating system has made the budget smaller, so this ends.
            if let Ok(owned) = self.own(span, Home::Budget) {
                return Some(owned);
            }
        }
    }

    fn allocate_span(&self, bytes: u64, paged: bool) -> Option<Span> {
        let mut inner = self.lock();
        let mut waits = None;
        let span = loop {
            if let Some(span) = inner.state.allocate(bytes, paged) {
                break Some(span);
            }
            if inner.closed || !inner.state.will_come_free(bytes, paged) {
                break None;
            }
            if waits.is_none() {
                waits = Some(State::takes(bytes, paged));
                inner.state.budget.outputs_wait(State::takes(bytes, paged));
            }
            inner.state.pump();
            match inner.todo() {
                None => self.outputs.wait(&mut inner),
                // Anything may happen meanwhile, so look again before waiting.
                todo => MutexGuard::unlocked(&mut inner, || self.carry_out(todo)),
            }
        };
        if let Some(bytes) = waits {
            inner.state.budget.outputs_waited(bytes);
        }
        inner.state.pump();
        let todo = inner.todo();
        drop(inner);
        self.carry_out(todo);
        span
    }

    /// Memory beside the region for somebody who runs; waits for the store's own disk requests, while they are bound to help, and for no
    /// longer than [`ANSWER_MAX`].
    ///
    /// # Errors
    /// `Denied`, `NeverGranted`.
    pub fn grant_outside(&self, has: u64, more: u64) -> Result<(), StoreError> {
        let units = self.with(|state| {
            // What others have they give back: only what one has in all can be too much for ever.
            state.can_ever_grant(has.saturating_add(more))?;
            Ok::<_, StoreError>(state.units_for(more))
        })?;
        // The region's addresses may be more than the machine's memory. What was touched of it comes free.
        let lacks = |extra: u64| {
            let has = if units > 0 { region::machine_has() } else { None };
            has.filter(|has| has.saturating_add(extra) < units + region::MACHINE_SPARE)
        };
        let lacking = lacks(self.region.backed_bytes());
        if lacking.is_some() || !self.take_outside(more) {
            return Err(self.denied(more, lacking));
        }
        match lacks(0) {
            None => Ok(()),
            lacking => {
                self.with(|state| state.end_grant(more));
                Err(self.denied(more, lacking))
            }
        }
    }

    /// As [`grant_outside`](Self::grant_outside), for memory that somebody has already.
    ///
    /// # Errors
    /// `Denied`, `NeverGranted`.
    pub fn grant_used(&self, has: u64, more: u64) -> Result<(), StoreError> {
        self.with(|state| state.can_ever_grant(has.saturating_add(more)))?;
        if self.take_outside(more) { Ok(()) } else { Err(self.denied(more, None)) }
    }

    fn denied(&self, bytes: u64, machine: Option<u64>) -> StoreError {
        let free = self.with(|state| {
            state.counters.denied += 1;
            state.counters.denied_bytes += bytes;
            state.grantable_bytes()
        });
        StoreError::Denied {
            bytes,
            free: machine.map_or(free, |has| free.min(has.saturating_sub(region::MACHINE_SPARE))),
        }
    }

    fn take_outside(&self, more: u64) -> bool {
        let until = self.clock.now() + ANSWER_MAX;
        let mut inner = self.lock();
        let mut waits = None;
        let granted = loop {
            if inner.state.grant_outside(more) {
                break true;
            }
            let left = until.saturating_sub(self.clock.now());
            if inner.closed || left.is_zero() || !inner.state.can_grant_soon(more) {
                break false;
            }
            if waits.is_none() {
                waits = Some(inner.state.grant_waits(more));
            }
            inner.state.pump();
            match inner.todo() {
                None => drop(self.outputs.wait_for(&mut inner, left)),
                todo => MutexGuard::unlocked(&mut inner, || self.carry_out(todo)),
            }
        };
        if let Some(waited) = waits {
            inner.state.grant_waited(waited);
        }
        inner.state.pump();
        let todo = inner.todo();
        drop(inner);
        // Only then has the operating system what the region had.
        self.carry_out(todo);
        granted
    }

    /// Waits until memory or a disk may have come free for outputs; `false`: nothing was heard for so long.
    pub fn wait_for_outputs(&self, at_most: Duration) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        // Who frees memory speaks of it only while somebody waits.
        inner.state.budget.outputs_wait(1);
        let timed_out = self.outputs.wait_for(&mut inner, at_most).timed_out();
        inner.state.budget.outputs_waited(1);
        !timed_out
    }

    /// Waits until a request to a disk has ended, and asks nobody to make room.
    pub fn wait_for_disk(&self, at_most: Duration) {
        let mut inner = self.inner.lock();
        if !inner.closed {
            self.outputs.wait_for(&mut inner, at_most);
        }
    }

    /// Takes full directories into use again whose file system has room for `needed` bytes, and some to spare.
    pub fn restore_full_dirs(&self, needed: u64) {
        let full: Vec<_> = self.with(|state| {
            let dirs: Vec<_> = state.files.dirs().map(|(path, _)| path.to_owned()).collect();
            state.files.full().into_iter().map(|dir| (dir, dirs[dir].clone())).collect()
        });
        for (dir, path) in full {
            if self.dirs.disk.free_bytes(&path) >= needed.saturating_add(RESTORED_BYTES_MIN) {
                self.with(|state| state.restore(dir));
            }
        }
    }

    /// A chunk of the reserve, to write so many bytes with when memory is full; see [`Reserve::chunk`].
    pub fn chunk(self: &Arc<Self>, wanted: u64) -> Option<OwnedSpan> {
        let span = self.reserve.chunk(wanted)?;
        self.own(span, Home::Reserve).ok()
    }

    /// The operating system had no memory for a span.
    pub fn memory_refused(&self, span: Span, home: Home) {
        match home {
            Home::Budget => {
                let reached = self.region.reached();
                self.with(|state| {
                    state.cut(reached);
                    state.free(span);
                });
            }
            Home::Reserve => self.reserve.give_back(span),
        }
    }

    /// Fills in what only the outside knows.
    pub fn explain(&self, mut error: StoreError) -> StoreError {
        if let StoreError::DiskFull { dirs, .. } = &mut error {
            for dir in dirs {
                dir.free_bytes = self.dirs.disk.free_bytes(&dir.path);
            }
        }
        error
    }
}

impl Inner {
    fn todo(&mut self) -> Option<Todo> {
        if self.state.effects.is_empty() {
            return None;
        }
        let effects = std::mem::take(&mut self.state.effects);
        let woken = |effect: &Effect| match effect {
            Effect::Wake(ticket) | Effect::Granted(ticket) => self.signals.get(ticket).cloned(),
            _ => None,
        };
        let signals = effects.iter().filter_map(woken).collect();
        Some(Todo { effects, signals })
    }
}
