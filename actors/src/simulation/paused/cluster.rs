//! Real nodes on one runtime: each is a `LocalSet` that can be dropped, which kills it, and left alone, which freezes it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::{Bus, Subjects};
use exobus_store::disk::{Fault as DiskFault, FaultyDisk, MemoryDisk, Op};
use exobus_store::{Clock, StoreOptions};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tracing::{Instrument as _, info_span, warn};

use super::executors::{PacedCompute, PacedExecutors};
use crate::host::NodeParts;
use crate::ids::NodeId;
use crate::membership::MembershipOptions;
use crate::node::{ClusterOptions, NodeError, NodeOptions, inhabit};
use crate::node_manager::ExecutorLink;
use crate::random::SeededRandom;
use crate::shell::Fatal;
use crate::simulation::dice::Dice;
use crate::transfer::network::{ChaosNetwork, MemoryNetwork, Network};

/// How long a node may take to find its cluster.
const JOIN_DEADLINE: Duration = Duration::from_secs(60);

/// How all nodes are.
pub(super) struct Setup {
    pub(super) bus: Bus,
    pub(super) subjects: Subjects,
    pub(super) network: MemoryNetwork,
    pub(super) clock: Arc<dyn Clock>,
    /// Bytes of the store of each.
    pub(super) memory_bytes: u64,
    /// How long tasks take, milliseconds.
    pub(super) takes_ms: Range<u64>,
    /// What happens to messages until everything is mended.
    pub(super) faults: Faults,
}

/// Where a node is, whether or not its process lives.
pub(super) struct Seat {
    name: NodeId,
    executors: usize,
    /// Whether it stands for election.
    pub(super) scheduler: bool,
    /// What outlives a process.
    disk: FaultyDisk,
    /// Why one of its processes ended by itself.
    fatal: Arc<Mutex<Option<Fatal>>>,
    process: Option<Process>,
}

/// A process of a node.
struct Process {
    /// Stops it in order.
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    freezer: Rc<Freezer>,
    bus: Chaos,
    network: ChaosNetwork,
    ready: std::sync::mpsc::Receiver<Result<NodeParts, NodeError>>,
    parts: RefCell<Option<NodeParts>>,
    ended: Rc<Cell<bool>>,
}

/// Whether a process is left alone.
#[derive(Default)]
struct Freezer {
    frozen: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// A future that is left alone while it is frozen.
struct Freezable<F> {
    future: Pin<Box<F>>,
    freezer: Rc<Freezer>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.freezer.frozen.get() {
            self.freezer.waker.set(Some(context.waker().clone()));
            return Poll::Pending;
        }
        self.future.as_mut().poll(context)
    }
}

impl Seat {
    pub(super) fn new(index: usize, executors: usize) -> Self {
        Self {
            name: NodeId::new(&format!("n{index}")),
            executors,
            scheduler: true,
            disk: FaultyDisk::new(Arc::new(MemoryDisk::new())),
            fatal: Arc::default(),
            process: None,
        }
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &NodeId {
        &self.name
    }

    pub(super) fn lives(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.ended.get())
    }

    /// Starts a process, if there is none. False where one is about to end: then it is too early.
    pub(super) fn start(&mut self, setup: &Setup, dice: &mut Dice) -> bool {
        if self.lives() {
            return self.process.as_ref().is_some_and(|process| process.stop.is_some());
        }
        self.process = None;
        let mut seed = || dice.below(u64::MAX);
        let bus = Chaos::around(&setup.bus, seed(), setup.faults.clone());
        let network = ChaosNetwork::new(Arc::new(setup.network.clone()));
        let random = Arc::new(SeededRandom::new(seed()));
        let pace = seed();
        let (pace, takes_ms) = ([pace, !pace].map(Dice::new), setup.takes_ms.clone());
        let [pace, of_programs] = pace;
        let options = NodeOptions {
            name: self.name.clone(),
            store: StoreOptions {
                memory_bytes: setup.memory_bytes,
                reserve_per_executor_bytes: 2 << 20,
                io_threads: 2,
                spill_dirs: vec!["/spill".into()],
                keep_files: true,
                ..StoreOptions::default()
            },
            cluster: Some(ClusterOptions {
                bus: bus.bus(),
                subjects: setup.subjects.clone(),
                scheduler: self.scheduler,
                membership: MembershipOptions::default(),
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                join_deadline: JOIN_DEADLINE,
            }),
            clock: setup.clock.clone(),
            random,
            network: Arc::new(network.clone()) as Arc<dyn Network>,
            compute: Arc::new(PacedCompute::new(takes_ms.clone(), of_programs)),
            disk: Arc::new(self.disk.clone()),
            ..NodeOptions::alone(self.executors, setup.memory_bytes)
        };
        let (say, ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (freezer, ended) = (Rc::<Freezer>::default(), Rc::<Cell<bool>>::default());
        let (end, fatal) = (ended.clone(), self.fatal.clone());
        let name = self.name.clone();
        let process = async move {
            // All that it spawns goes with it.
            let tasks = LocalSet::new();
            let executors = |parts: &_| Arc::new(PacedExecutors::start(parts, takes_ms, pace)) as Arc<dyn ExecutorLink>;
            tasks.run_until(Box::pin(inhabit(options, say, stopped, executors, fatal))).await;
            end.set(true);
        };
        let process = process.instrument(info_span!("node", %name));
        let task = spawn_local(Freezable { future: Box::pin(process), freezer: freezer.clone() });
        let parts = RefCell::default();
        self.process = Some(Process { stop: Some(stop), task, freezer, bus, network, ready, parts, ended });
        true
    }

    /// Kills the process: nobody hears a word of it from now on.
    pub(super) async fn kill(&mut self) {
        let Some(process) = self.process.take() else { return };
        process.bus.cut(Direction::Both, None);
        process.freezer.set(false);
        process.task.abort();
        // Cancelled.
        let _ = process.task.await;
    }

    /// Stops the process in order.
    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.process.as_mut().and_then(|process| process.stop.take()) {
            let _ = stop.send(());
        }
    }

    pub(super) fn freeze(&self, frozen: bool) {
        if let Some(process) = &self.process {
            process.freezer.set(frozen);
        }
    }

    pub(super) fn cut_bus(&self, direction: Direction) {
        if let Some(process) = &self.process {
            process.bus.cut(direction, None);
        }
    }

    /// The bus does to this process what it is told to, and nothing is cut.
    pub(super) fn mend_bus(&self, faults: Option<Faults>) {
        if let Some(process) = &self.process {
            process.bus.heal();
            faults.into_iter().for_each(|faults| process.bus.set(faults));
        }
    }

    /// The disk does this with some request of this kind, soon.
    pub(super) fn fail_disk(&self, op: Op, nth: u64, fault: DiskFault) {
        self.disk.fail(op, nth, fault);
    }

    /// The disk takes so many more bytes.
    pub(super) fn fill_disk(&self, bytes: u64) {
        self.disk.capacity(bytes);
    }

    /// The disk does what it should, and has room.
    pub(super) fn mend_disk(&self) {
        self.disk.heal();
    }

    /// Breaks all connections that the process has made to others.
    pub(super) fn break_connections(&self) {
        if let Some(process) = &self.process {
            process.network.cut_all();
        }
    }

    /// The parts of the node, once it has joined.
    pub(super) fn parts(&self) -> Option<NodeParts> {
        let process = self.process.as_ref()?;
        match process.ready.try_recv() {
            Ok(Ok(parts)) => drop(process.parts.replace(Some(parts))),
            Ok(Err(error)) => warn!("{} did not join: {error:?}", self.name),
            Err(_) => {}
        }
        process.parts.borrow().clone()
    }

    /// The panic of an actor in one of its processes, if there was any.
    pub(super) fn fatal(&self) -> Option<String> {
        self.fatal.lock().as_ref().map(|fatal| format!("{}: {}", fatal.actor, fatal.reason))
    }
}

impl Freezer {
    fn set(&self, frozen: bool) {
        self.frozen.set(frozen);
        if !frozen && let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
