//! Executors: what runs one task at a time: a thread, which calls the function itself or has a process call it
//! ([`isolation`](crate::isolation)). Spoken to by messages only.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exobus_store::{Clock, Store};

use super::event::NodeEvent;
use crate::ids::{Attempt, JobId, NodeId, TaskId};
use crate::isolation::{Attempted, ExecutorKind, IsolatedExecutor, Isolation};
use crate::printing::{Output as Printed, Printer, Printing, Prints as _};
use crate::registry::{
    Account, Argument, ContextParts, Finished, Function, Granted, Objects, SetupState, Shortage, TaskContext,
    TaskError, state_of,
};
use crate::shell::Inbox;
use crate::task::{Consumed, FailureKind, Output, TaskFailure, TaskFigures, TaskSpec, TaskTiming};
use crate::tenants::Tenants;

use super::gate::Gate;
use super::staging::PrivateCopy;

/// One attempt, ready to run.
pub struct Work {
    /// The node of the job's Owner.
    pub owner: NodeId,
    /// What to run.
    pub spec: Arc<TaskSpec>,
    /// Its function.
    pub function: &'static Function,
    /// Its arguments.
    pub args: Vec<Argument>,
    /// Memory that was granted with them.
    pub memory: Granted,
    /// Copies of other nodes' objects that the arguments read; deleted when the attempt is over.
    pub copies: Vec<PrivateCopy>,
    /// Shared with the NodeManager.
    pub flags: Arc<Flags>,
    /// Who is told of it. When the node has begun another incarnation by then, nobody is.
    pub reports: Arc<Inbox<NodeEvent>>,
}

/// How long an idle executor, and a NodeManager that waits for one, look for news before they sleep. Only where the
/// submitting program is in the same process: what comes over a bus takes longer than that, and needs the cores.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

const QUEUED: u8 = 0;
const STARTED: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// What the NodeManager and the executor of an attempt tell each other without messages.
#[derive(Debug, Default)]
pub struct Flags {
    state: AtomicU8,
    /// When it started, microseconds on the node's clock.
    started_us: AtomicU64,
    cancelled: Arc<AtomicBool>,
    account: Arc<Account>,
}

impl Flags {
    /// Asks a running attempt to stop.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to stop.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// What is to be said of its memory, while it runs; `None`: nothing.
    pub(crate) fn shortage(&self, now: Duration) -> Option<Shortage> {
        self.account.shortage(now)
    }

    /// Takes the attempt back, if it has not started.
    pub fn take_back(&self) -> bool {
        self.state.compare_exchange(QUEUED, TAKEN_BACK, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// For how long it has been on an executor at `now`; `None` when it never was.
    pub fn running_for(&self, now: Duration) -> Option<Duration> {
        let started = self.state.load(Ordering::Acquire) == STARTED;
        started.then(|| now.saturating_sub(Duration::from_micros(self.started_us.load(Ordering::Relaxed))))
    }

    /// It starts now, unless it was taken back.
    pub(crate) fn start(&self, now: Duration) -> bool {
        self.started_us.store(now.as_micros() as u64, Ordering::Relaxed);
        self.state.compare_exchange(QUEUED, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What an executor reports.
#[derive(Debug)]
pub enum Report {
    /// A streaming attempt sealed an output.
    Yielded {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Position in the stream.
        index: u32,
        /// What it is.
        output: Output,
    },
    /// An attempt is over.
    Finished {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// What came of it.
        outcome: Result<(Vec<Output>, Vec<Consumed>), TaskFailure>,
        /// Time and place, and bytes where it succeeded; what it waited for the NodeManager knows.
        figures: TaskFigures,
        /// The bytes of its only output, where it returned a small value.
        value: Option<Bytes>,
    },
}

/// The way to the executors of a node.
pub trait ExecutorLink: Send + Sync {
    /// Hands an attempt to whichever executor is free first. Every attempt is reported as `Finished` exactly once,
    /// unless it was taken back before it started.
    fn run(&self, work: Work);

    /// How many tasks can run at a time.
    fn count(&self) -> usize;
}

/// Executors that are threads of this process.
pub(crate) struct ThreadExecutors {
    work: Option<crossbeam_channel::Sender<Work>>,
    gate: Gate,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// What the executors of a node are made of.
pub(crate) struct ExecutorParts {
    /// How many tasks run at a time.
    pub(crate) count: usize,
    /// How long they look for work before they sleep.
    pub(crate) spin: Duration,
    /// Where tasks write.
    pub(crate) store: Store,
    /// For whom they work, and where these may read and write files.
    pub(crate) tenants: Tenants,
    pub(crate) clock: Arc<dyn Clock>,
    /// They start nothing while it is closed.
    pub(crate) gate: Gate,
    /// Each has a process for the functions that this says, from the first one on.
    pub(crate) isolation: Arc<Isolation>,
    /// Where tasks print.
    pub(crate) printing: Printing,
}

impl ThreadExecutors {
    /// Starts them.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(parts: &ExecutorParts) -> std::io::Result<Self> {
        let (sender, receiver) = crossbeam_channel::unbounded::<Work>();
        let awake = Arc::new(AtomicBool::new(false));
        let threads = (0..parts.count).map(|index| {
            let mut thread = Thread {
                executor: Executor::new(index, parts),
                work: receiver.clone(),
                gate: parts.gate.clone(),
                awake: awake.clone(),
                spin: parts.spin,
            };
            std::thread::Builder::new().name(format!("exobus-exec-{index}")).spawn(move || thread.run())
        });
        Ok(Self { work: Some(sender), gate: parts.gate.clone(), threads: threads.collect::<Result<_, _>>()? })
    }
}

impl ExecutorLink for ThreadExecutors {
    fn run(&self, work: Work) {
        // The channel is open as long as `self` is.
        if let Some(channel) = &self.work {
            let _ = channel.send(work);
        }
    }

    fn count(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for ThreadExecutors {
    fn drop(&mut self) {
        self.work = None;
        // Who waits there finds that its attempt was taken back.
        self.gate.open();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// An executor that is a thread.
struct Thread {
    executor: Executor,
    work: crossbeam_channel::Receiver<Work>,
    gate: Gate,
    /// Whether one of the idle executors is looking for work instead of sleeping.
    awake: Arc<AtomicBool>,
    spin: Duration,
}

impl Thread {
    fn run(&mut self) {
        while let Some(work) = self.next() {
            self.gate.pass();
            if let Some(started) = self.executor.begin(&work) {
                self.executor.run(work, started);
            }
        }
    }

    /// The next attempt. One idle executor looks for it a while before it sleeps: waking a sleeping core costs more than
    /// a short task takes.
    fn next(&self) -> Option<Work> {
        let clock = &self.executor.clock;
        if !self.spin.is_zero() && !self.awake.swap(true, Ordering::AcqRel) {
            let until = clock.now() + self.spin;
            let mut found = self.work.try_recv();
            while matches!(found, Err(crossbeam_channel::TryRecvError::Empty)) && clock.now() < until {
                std::hint::spin_loop();
                found = self.work.try_recv();
            }
            self.awake.store(false, Ordering::Release);
            match found {
                Ok(work) => return Some(work),
                Err(crossbeam_channel::TryRecvError::Disconnected) => return None,
                Err(crossbeam_channel::TryRecvError::Empty) => {}
            }
        }
        self.work.recv().ok()
    }
}

/// What runs one attempt at a time.
pub(crate) struct Executor {
    index: u32,
    store: Store,
    tenants: Tenants,
    clock: Arc<dyn Clock>,
    states: HashMap<&'static str, SetupState>,
    kind: ExecutorKind,
    isolated: IsolatedExecutor,
    printing: Arc<Printing>,
}

impl Executor {
    pub(crate) fn new(index: usize, parts: &ExecutorParts) -> Self {
        let ExecutorParts { store, tenants, clock, isolation, printing, .. } = parts;
        Self {
            index: index as u32,
            store: store.clone(),
            tenants: tenants.clone(),
            clock: clock.clone(),
            states: HashMap::new(),
            kind: isolation.executor,
            isolated: IsolatedExecutor::new(
                (isolation.clone(), printing.secrets().clone()),
                store.clone(),
                clock.clone(),
            ),
            printing: Arc::new(printing.clone()),
        }
    }

    /// When the attempt has started: now, unless it was taken back.
    pub(crate) fn begin(&self, work: &Work) -> Option<Duration> {
        let now = self.clock.now();
        work.flags.start(now).then_some(now)
    }

    /// Runs an attempt that has started, and reports it.
    pub(crate) fn run(&mut self, work: Work, started: Duration) {
        let (job, task, attempt) = (work.spec.job, work.spec.id, work.spec.attempt);
        let (spec, reports) = (work.spec.clone(), work.reports.clone());
        let output = self.printing.of_task(&work.spec);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.execute(work, &output)));
        // It may have left a printer behind.
        output.flush();
        let micros = self.clock.now().saturating_sub(started).as_micros() as u64;
        let (mut outcome, figures, value) = match outcome {
            Ok(Ok(Finished { outputs, consumed, figures, value })) => (Ok((outputs, consumed)), figures, value),
            Ok(Err(failure)) => (Err(failure), TaskFigures::default(), None),
            Err(panic) => {
                let failure = TaskFailure::new(FailureKind::Panic, crate::panic_text(&*panic));
                (Err(failure), TaskFigures::default(), None)
            }
        };
        if let Err(failure) = &mut outcome {
            output.hide(&mut failure.message);
        }
        let (executor, started_us) = (self.index, started.as_micros() as u64);
        let timing = TaskTiming { executor, started_us, ..TaskTiming::default() };
        let figures = TaskFigures { micros, timing, printed_bytes: output.sent_bytes(), ..figures };
        let report = Report::Finished { job, task, attempt, outcome, figures, value };
        if reports.send(NodeEvent::Executor(report)).is_err() {
            // The incarnation of the node for which it ran is over: nobody else knows of what it has made.
            let made = (0..spec.announced_at_its_end()).map(|index| spec.makes(index));
            self.store.delete(&made.collect::<Vec<_>>());
        }
    }

    fn execute(&mut self, work: Work, output: &Arc<Printed>) -> Result<Finished, TaskFailure> {
        let Work { spec, function, args, memory, flags, reports, copies: _copies, .. } = work;
        let roots = self.tenants.roots_of(spec.job);
        let roots = roots.map_err(|text| TaskFailure::new(FailureKind::Error, text))?.clone();
        let store = self.store.clone();
        let mut announce = |index: u32, output: Output| {
            let report = Report::Yielded { job: spec.job, task: spec.id, attempt: spec.attempt, index, output };
            if reports.send(NodeEvent::Executor(report)).is_err() {
                store.delete(&[spec.makes(index)]);
            }
        };
        if self.kind.isolates(function, &spec) {
            let (cancelled, account, announce) = (&*flags.cancelled, &*flags.account, &mut announce);
            let output = output.clone();
            let attempted =
                Attempted { spec: &spec, roots: &roots, args, memory, cancelled, account, announce, output };
            return self.isolated.run(attempted);
        }
        if spec.memory_max_bytes > 0 {
            let text = "it has a memory limit, and this node has no executor processes (node.executor = \"process\")";
            return Err(TaskFailure::new(FailureKind::Rejected, text));
        }
        let state = state_of(function, &mut self.states).map_err(TaskError::into_failure)?;
        let parts = ContextParts {
            store: Objects::Here(self.store.clone()),
            roots,
            job: spec.job,
            task: spec.id,
            attempt: spec.attempt,
            args,
            memory,
            returns: spec.returns,
            target_bytes: spec.target_bytes,
            align: spec.align,
            cancelled: flags.cancelled.clone(),
            account: flags.account.clone(),
            clock: self.clock.clone(),
            printer: Printer::to(output.clone()),
        };
        TaskContext::new(parts, &mut announce, state).call(function, &spec.params)
    }
}
