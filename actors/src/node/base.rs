//! What is of the process of a node, and outlives each of its incarnations: the store, what serves it, executors.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use exobus_bus::{Bus, Subjects};
use exobus_store::{EventHook, Store, StoreEvent};
use parking_lot::RwLock;
use tracing::{info, warn};

use super::{ClusterOptions, NodeError, NodeOptions};
use crate::admission::Admission;
use crate::event::NodeFigures;
use crate::futures::{Compute, Home};
use crate::host::{JobsOver, NodeParts, RunningJobs};
use crate::isolation::{self, ExecutorKind};
use crate::joblog::LogsLink;
use crate::jobs::journal::JournalLink;
use crate::joining::Name;
use crate::membership::{Directory, MemoryPeak, ProcessWork};
use crate::merger::{MergerEvent, PushCount};
use crate::node_manager::Spared;
use crate::node_manager::{ExecutorLink, ExecutorParts, Gate, Pushed, SPIN, Stager, Suspicions, Tally};
use crate::printing::Printing;
use crate::random::Random;
use crate::results::{Adopting, ResultRecords, ResultsBase, ResultsParts};
use crate::scheduler::SchedulerLink;
use crate::shell::calls::Calls;
use crate::shell::{Inbox, Post};
use crate::tenants::Tenants;
use crate::transfer::{ClientOptions, ServerOptions, TransferClient, TransferServer};

/// Where jobs run in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jobs {
    /// On a thread of their own, so that no program is in the way of heartbeats.
    Apart,
    /// With the other actors.
    #[cfg(feature = "simulation")]
    Here,
}

/// What is of the process, and outlives each incarnation.
pub(super) struct Base {
    pub(super) post: Post,
    /// When the process began to be a node.
    pub(super) opened_at: Duration,
    pub(super) jobs: Jobs,
    pub(super) store: Store,
    pub(super) peak: Arc<MemoryPeak>,
    pub(super) directory: Directory,
    pub(super) transfer: TransferClient,
    /// Serves the objects of the store, where there is a cluster.
    pub(super) server: Option<Arc<TransferServer>>,
    pub(super) executors: Arc<dyn ExecutorLink>,
    /// Where tasks and programs print. After the executors: what ends with them is printed still.
    pub(super) printing: Prints,
    executor: ExecutorKind,
    pub(super) gate: Gate,
    pub(super) pushes: PushCount,
    pub(super) link: SchedulerLink,
    pub(super) jobs_over: JobsOver,
    pub(super) logs: LogsLink,
    pub(super) journal: JournalLink,
    log_quota_bytes: u64,
    pub(super) tenants: Tenants,
    pub(super) results: ResultsBase,
    /// What nodes show each other on the data plane.
    data_token: Arc<str>,
    home: Home,
    random: Arc<dyn Random>,
    compute: Arc<dyn Compute>,
    /// The name of the node, from when this process has it.
    pub(super) name: RefCell<Option<Name>>,
    /// Whom the store tells that memory is tight, while it is there.
    pub(super) merger: Arc<RwLock<Option<Inbox<MergerEvent>>>>,
}

/// What is printed on the node. Dropped, what waits is printed first.
pub(super) struct Prints(pub(super) Printing);

impl Drop for Prints {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Base {
    pub(super) fn open(
        options: &NodeOptions,
        post: Post,
        jobs: Jobs,
        executors: impl FnOnce(&ExecutorParts) -> Result<Arc<dyn ExecutorLink>, NodeError>,
    ) -> Result<Self, NodeError> {
        if isolation::is_executor() {
            let text = "this process was started as an executor: main has to call exobus::isolation::enter() first";
            return Err(NodeError::Other(text.into()));
        }
        let merger = Arc::<RwLock<Option<Inbox<MergerEvent>>>>::default();
        let store_options = exobus_store::StoreOptions {
            executors: options.executors,
            node: spill_name(options),
            on_event: Some(tell_when_tight(&merger, options.store.on_event.clone())),
            ..options.store.clone()
        };
        let store = Store::open(store_options, options.disk.clone(), options.clock.clone())?;
        let token = options.cluster.as_ref().map(data_token).transpose()?.unwrap_or_default();
        let fetching = ClientOptions {
            node: options.name.to_string(),
            network: options.network.clone(),
            tls: options.tls.clone(),
            random: options.random.clone(),
            ..ClientOptions::default()
        };
        let transfer = TransferClient::with(fetching, &token, options.clock.clone());
        let server = options.cluster.as_ref().map(|cluster| serve_objects(options, cluster, &store)).transpose()?;
        let gate = Gate::default();
        let to = options.cluster.as_ref().map(|cluster| (cluster.bus.clone(), cluster.subjects.clone()));
        let printing = Printing::new(options.name.clone(), options.secrets.clone(), to);
        let executors = executors(&ExecutorParts {
            count: options.executors,
            spin: Self::spin(options),
            store: store.clone(),
            tenants: options.tenants.clone(),
            clock: options.clock.clone(),
            gate: gate.clone(),
            isolation: Arc::new(options.isolation.clone()),
            printing: printing.clone(),
        })?;
        let logs = options.cluster.as_ref().map(|cluster| LogsLink::new(cluster.bus.clone(), cluster.subjects.clone()));
        let logs = logs.unwrap_or_else(|| options.logs.clone());
        let cluster = options.cluster.as_ref().map(|cluster| cluster.subjects.cluster().to_owned());
        let home = Home { cluster, log: logs.file().map(Into::into) };
        let results = results(options, &store)?;
        Ok(Self {
            journal: JournalLink::new(logs.clone()),
            logs,
            log_quota_bytes: options.log_quota_bytes,
            tenants: options.tenants.clone(),
            results,
            data_token: token.into(),
            home,
            random: options.random.clone(),
            compute: options.compute.clone(),
            link: SchedulerLink::new(post.clone()),
            opened_at: post.clock().now(),
            post,
            jobs,
            store,
            peak: Arc::default(),
            directory: Directory::default(),
            transfer,
            server: server.map(Arc::new),
            executor: options.isolation.executor,
            executors,
            printing: Prints(printing),
            gate,
            pushes: PushCount::default(),
            jobs_over: JobsOver::default(),
            name: RefCell::default(),
            merger,
        })
    }

    pub(super) fn spin(options: &NodeOptions) -> Duration {
        if options.cluster.is_none() { SPIN } else { Duration::ZERO }
    }

    pub(super) fn data_address(&self) -> String {
        self.server.as_ref().map(|server| server.address().to_string()).unwrap_or_default()
    }

    /// What jobs of a new incarnation need.
    pub(super) fn parts(&self, executors: usize) -> NodeParts {
        let server = self.server.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (directory, members) = (self.directory.clone(), self.directory.clone());
        let stager = Stager {
            node: self.post.node().clone(),
            store: self.store.clone(),
            executors,
            transfer: self.transfer.clone(),
            addresses: Arc::new(move |node| directory.data_address(node)),
            is_gone: Arc::new(move |node| members.is_gone(node)),
            suspicions: Suspicions::default(),
            clock: self.post.clock().clone(),
            received: Tally::default(),
            pushed: Pushed::default(),
            executor: self.executor,
        };
        let (store, peak, transfer, post) =
            (self.store.clone(), self.peak.clone(), self.transfer.clone(), self.post.clone());
        let pushes = self.pushes.clone();
        let cpus = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32);
        let figures = move || {
            let stats = store.stats();
            let memory_bytes = peak.look();
            let work = ProcessWork::of_this_process();
            NodeFigures {
                at_us: post.clock().now().as_micros() as u64,
                executors: executors as u32,
                cpus,
                budget_bytes: stats.budget_bytes,
                used_bytes: stats.used_bytes,
                tables_bytes: stats.outside_bytes,
                processes_bytes: stats.processes_bytes,
                granted_bytes: stats.granted_bytes,
                denied: stats.denied,
                spilled_bytes: stats.spilled_bytes,
                early_bytes: stats.early_bytes,
                restored_bytes: stats.restored_bytes,
                spill_us: stats.spill_us,
                restore_us: stats.restore_us,
                disk_read_bytes: work.disk_read_bytes,
                disk_written_bytes: work.disk_written_bytes,
                cpu_us: work.cpu.as_micros() as u64,
                received_bytes: transfer.received_bytes(),
                pushed_bytes: pushes.pushed_bytes(),
                revoked_bytes: pushes.revoked_bytes(),
                sent_bytes: server.upgrade().map_or(0, |server| server.stats().bytes),
                memory_bytes,
                peak_memory_bytes: peak.bytes(),
                control_messages: post.messages(),
                refused_messages: post.refused(),
            }
        };
        let results = ResultsParts {
            base: self.results.clone(),
            post: self.post.clone(),
            directory: self.directory.clone(),
            transfer: self.transfer.clone(),
            data_address: self.data_address(),
            data_token: self.data_token.clone(),
            calls: Calls::default(),
        };
        NodeParts {
            results,
            post: self.post.clone(),
            store: self.store.clone(),
            stager,
            scheduler: self.link.clone(),
            over: self.jobs_over.clone(),
            random: self.random.clone(),
            compute: self.compute.clone(),
            logs: self.logs.clone(),
            journal: self.journal.clone(),
            log_quota_bytes: self.log_quota_bytes,
            tenants: self.tenants.clone(),
            printing: self.printing.0.clone(),
            home: self.home.clone(),
            running: RunningJobs::new(),
            gate: self.gate.clone(),
            directory: self.directory.clone(),
            figures: Arc::new(figures),
            admission: Admission::new(self.post.node().clone(), self.store.clone()),
        }
    }
}

/// Where results are recorded and asked for: on the cluster's bus, or on one that does not leave the process.
fn results(options: &NodeOptions, store: &Store) -> Result<ResultsBase, NodeError> {
    let (bus, subjects) = match &options.cluster {
        Some(cluster) => (cluster.bus.clone(), cluster.subjects.clone()),
        None => {
            let subjects = Subjects::new("local").map_err(|error| NodeError::Other(error.to_string()))?;
            (Bus::in_process(), subjects)
        }
    };
    Ok(ResultsBase {
        store: store.clone(),
        records: ResultRecords::new(bus.clone(), subjects.clone(), options.clock.clone()),
        bus,
        subjects,
        kept_for: options.results_kept,
        tenants: Arc::default(),
        adopting: Adopting::default(),
        spared: Spared::default(),
    })
}

/// What the node's folders below spill directories are called: nodes of two clusters may have one name.
fn spill_name(options: &NodeOptions) -> String {
    let cluster = options.cluster.as_ref().map(|cluster| format!("{}.", cluster.subjects.cluster()));
    format!("{}{}", cluster.unwrap_or_default(), options.name)
}

/// What nodes show each other on the data plane.
fn data_token(cluster: &ClusterOptions) -> Result<String, NodeError> {
    let none =
        || NodeError::Other("a node needs the credentials of a node; its bus has those of a submitter".to_owned());
    cluster.bus.credentials().data_token().ok_or_else(none)
}

fn serve_objects(options: &NodeOptions, cluster: &ClusterOptions, store: &Store) -> Result<TransferServer, NodeError> {
    // The address may have been another node's: who looks for that one is told.
    let serving = ServerOptions {
        node: options.name.to_string(),
        listen: cluster.listen,
        network: options.network.clone(),
        tls: options.tls.clone(),
        ..ServerOptions::default()
    };
    TransferServer::start_with(serving, &data_token(cluster)?, store.clone(), options.clock.clone())
        .map_err(|source| NodeError::Io { what: format!("listen on {}", cluster.listen), source })
}

/// What happened to disks and to what is on them is for people to hear, too.
fn log(event: &StoreEvent) {
    match event {
        StoreEvent::DirRetired { dir, error } => warn!(dir = %dir.display(), error, "spill directory is out of use"),
        StoreEvent::DirRestored { dir } => info!(dir = %dir.display(), "spill directory has room again"),
        StoreEvent::ObjectLost { object, reason, .. } => warn!(object_id = %object, reason, "object lost"),
        StoreEvent::FileRefused { reason, .. } => warn!(reason, "spill file is left alone"),
        StoreEvent::IndexRebuilt { dir, reason } => warn!(dir = %dir.display(), reason, "index of spill files rebuilt"),
        StoreEvent::SpillStarted { .. } | StoreEvent::SpillFinished { .. } | StoreEvent::MemoryTight { .. } => {}
    }
}

/// A hook that logs, and tells the Merger when arguments find no memory, besides what `other` does.
fn tell_when_tight(merger: &Arc<RwLock<Option<Inbox<MergerEvent>>>>, other: Option<EventHook>) -> EventHook {
    let merger = merger.clone();
    Arc::new(move |event| {
        log(&event);
        if let (StoreEvent::MemoryTight { .. }, Some(merger)) = (&event, &*merger.read()) {
            // One that has ended holds nothing.
            let _ = merger.send(MergerEvent::Tight);
        }
        if let Some(other) = &other {
            other(event);
        }
    })
}
