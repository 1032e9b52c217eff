//! Putting a node together, on its control thread, life by life.
//!
//! A node that the others have declared dead while it was frozen or cut off does not end: it begins another *life*, under the
//! next incarnation. What a life is made of is made anew for each: actors, sessions, jobs. What is of the process stays:
//! the store with its objects, the sockets that serve them, the executors.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use exobus_bus::Refusals;
use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_store::{EventHook, Store, StoreEvent};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{error, info, warn};

use super::joining::{ask_where, find_scheduler, hear_beats, keep_registered, pump, register};
use super::leftovers::delete_leftovers;
use super::{ClusterOptions, JobsOver, Life, Node, NodeError, NodeOptions, NodeParts, Work};
use crate::election::{Campaign, CampaignParts, Ground, second_scheduler};
use crate::event::NodeFigures;
use crate::host::{self, Host};
use crate::ids::{Epoch, Incarnation};
use crate::isolation;
use crate::joblog::LogsLink;
use crate::membership::{
    Directory, Membership, MembershipMsg, MembershipParts, MemoryPeak, ProcessWork, Renewal, State as MembershipState,
};
use crate::merger::{self, Merger, MergerMsg, PushCount};
use crate::node_manager::{self, Gate, NodeManager, NodeManagerParts, Pushed, SPIN, Stager, Tally, ThreadExecutors};
use crate::registry::{Function, functions, programs};
use crate::scheduler::{self, NodeSpec, Reign, Scheduler, SchedulerLink, SchedulerMsg, SchedulerOptions};
use crate::shell::{self, Address, Fatal, Post, PostOptions};
use crate::transfer::network::Network;
use crate::transfer::{ClientOptions, ServerOptions, TransferClient, TransferServer};

/// How long the farewell to the other processes may take.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);
/// The same at the end of a life: who begins the next one is soon missed.
const LIFE_DRAIN_DEADLINE: Duration = Duration::from_millis(500);
/// How long the jobs of a life may take to end. Heartbeats come again after that, and must before the node is dead again.
const LIFE_JOBS_DEADLINE: Duration = Duration::from_secs(1);

pub(super) fn start(options: NodeOptions) -> Result<Node, NodeError> {
    let fatal: Arc<Mutex<Option<Fatal>>> = Arc::default();
    let broken = Arc::new(Notify::new());
    let on_fatal = {
        let (fatal, broken) = (fatal.clone(), broken.clone());
        Box::new(move |reason: Fatal| {
            error!(actor = reason.actor, reason = reason.reason, "the node ends");
            fatal.lock().get_or_insert(reason);
            broken.notify_one();
        })
    };
    let post = Post::new(PostOptions {
        node: options.name.clone(),
        incarnation: Incarnation(options.clock.unix_ms()),
        clock: options.clock.clone(),
        on_fatal,
    });
    let (stop, stopped) = oneshot::channel();
    let random = options.random.clone();
    let (work, queue) = mpsc::unbounded_channel::<Work>();
    let (ready, outcome) = std::sync::mpsc::channel();
    let mut orders = Orders { queue, stopped, broken };
    let run = move || {
        let base = match Base::open(&options, post) {
            Ok(base) => base,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let (mut ready, mut renewal) = (Some(ready), None);
        loop {
            let system = match system() {
                Ok(system) => system,
                Err(error) => return refuse(&base, ready.take(), error),
            };
            // Everything that a life has spawned on this thread goes with its system.
            let Some(next) = system.block_on(live(&base, &options, &mut orders, &mut ready, renewal)) else { return };
            base.post.renew(next.state.incarnation());
            renewal = Some(next);
        }
    };
    let thread = std::thread::Builder::new().name("exobus-control".into()).spawn(run);
    let thread = thread.map_err(|source| NodeError::Io { what: "start the control thread".into(), source })?;
    let parts = match outcome.recv() {
        Ok(parts) => parts?,
        Err(_) => return Err(NodeError::Other("the control thread ended while it started".into())),
    };
    Ok(Node { parts, random, work: Some(work), stop: Some(stop), thread: Some(thread), fatal })
}

/// One life of the node, from its start to its end; the next one, if there is one.
async fn live(
    base: &Base,
    options: &NodeOptions,
    orders: &mut Orders,
    ready: &mut Option<std::sync::mpsc::Sender<Result<NodeParts, NodeError>>>,
    renewal: Option<Renewal>,
) -> Option<Renewal> {
    match (Running::assemble(base, options, renewal).await, ready.take()) {
        (Ok(running), ready) => {
            if let Some(ready) = ready {
                let _ = ready.send(Ok(running.parts.clone()));
            }
            running.serve(orders).await
        }
        (Err(error), ready) => {
            refuse(base, ready, error);
            // An actor that was never polled would be when it is dropped, without a runtime by then.
            tokio::time::sleep(Duration::from_millis(1)).await;
            None
        }
    }
}

/// Says why there is no life, to who waits for the first one or as the end of the process.
fn refuse(base: &Base, ready: Option<std::sync::mpsc::Sender<Result<NodeParts, NodeError>>>, error: NodeError) {
    match ready {
        Some(ready) => drop(ready.send(Err(error))),
        None => {
            let reason = format!("no new life after it was declared dead: {error}");
            base.post.fatal(Fatal { actor: "node".to_owned(), reason });
        }
    }
}

/// The system of actors of a life. Its runtime is made here, since actix would panic where there are no descriptors or
/// threads left.
fn system() -> Result<actix_rt::SystemRunner, NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|source| NodeError::Io { what: "start the control thread".into(), source })?;
    let mut runtime = Some(runtime);
    Ok(actix_rt::System::with_tokio_rt(|| runtime.take().expect("asked for once")))
}

/// What a node is told from outside.
struct Orders {
    queue: mpsc::UnboundedReceiver<Work>,
    stopped: oneshot::Receiver<()>,
    broken: Arc<Notify>,
}

/// A life of a node that is put together, as long as it lasts.
struct Running {
    parts: NodeParts,
    jobs: Option<actix_rt::Arbiter>,
    cluster: Option<Joined>,
}

/// What only a node of a cluster has.
struct Joined {
    endpoint: Endpoint,
    membership: Address<MembershipMsg>,
    campaign: Option<Campaign>,
    renewals: mpsc::UnboundedReceiver<Renewal>,
}

/// What is of the process, and outlives each life.
struct Base {
    post: Post,
    store: Store,
    peak: Arc<MemoryPeak>,
    directory: Directory,
    transfer: TransferClient,
    /// Serves the objects of the store, where there is a cluster.
    server: Option<Arc<TransferServer>>,
    executors: Arc<ThreadExecutors>,
    gate: Gate,
    pushes: PushCount,
    link: SchedulerLink,
    jobs_over: JobsOver,
    logs: LogsLink,
    /// Whom the store tells that memory is tight, while it is there.
    merger: Arc<RwLock<Option<Address<MergerMsg>>>>,
}

impl Base {
    fn open(options: &NodeOptions, post: Post) -> Result<Self, NodeError> {
        if isolation::is_executor() {
            let text = "this process was started as an executor: main has to call exobus::isolation::enter() first";
            return Err(NodeError::Other(text.into()));
        }
        let disk = Arc::new(exobus_store::RealDisk::default());
        let merger = Arc::<RwLock<Option<Address<MergerMsg>>>>::default();
        let store_options = exobus_store::StoreOptions {
            executors: options.executors,
            node: spill_name(options),
            on_event: Some(tell_when_tight(&merger, options.store.on_event.clone())),
            ..options.store.clone()
        };
        let store = Store::open(store_options, disk, options.clock.clone())?;
        let token = options.cluster.as_ref().map(|cluster| cluster.token.clone()).unwrap_or_default();
        let fetching = ClientOptions {
            node: options.name.to_string(),
            network: options.network.clone(),
            random: options.random.clone(),
            ..ClientOptions::default()
        };
        let transfer = TransferClient::with(fetching, &token, options.clock.clone());
        let server = options.cluster.as_ref().map(|cluster| serve_objects(options, cluster, &store)).transpose()?;
        let (spin, gate) = (Self::spin(options), Gate::default());
        let isolation = Arc::new(options.isolation.clone());
        let (roots, clock) = (&options.roots, &options.clock);
        let executors = ThreadExecutors::start(options.executors, spin, &store, roots, clock, &gate, &isolation);
        let executors = executors.map_err(|source| {
            let what = format!("start {} executors", options.executors);
            NodeError::Io { what, source }
        })?;
        let logs = options.cluster.as_ref().map(|cluster| LogsLink::new(cluster.bus.clone(), cluster.subjects.clone()));
        let logs = logs.unwrap_or_else(|| options.logs.clone());
        Ok(Self {
            logs,
            link: SchedulerLink::new(post.clone()),
            post,
            store,
            peak: Arc::default(),
            directory: Directory::default(),
            transfer,
            server: server.map(Arc::new),
            executors: Arc::new(executors),
            gate,
            pushes: PushCount::default(),
            jobs_over: JobsOver::default(),
            merger,
        })
    }

    fn spin(options: &NodeOptions) -> Duration {
        if options.cluster.is_none() { SPIN } else { Duration::ZERO }
    }

    fn data_address(&self) -> String {
        self.server.as_ref().map(|server| server.address().to_string()).unwrap_or_default()
    }
}

/// What the node's folders below spill directories are called: nodes of two clusters may have one name.
fn spill_name(options: &NodeOptions) -> String {
    let cluster = options.cluster.as_ref().map(|cluster| format!("{}.", cluster.subjects.cluster()));
    format!("{}{}", cluster.unwrap_or_default(), options.name)
}

fn serve_objects(options: &NodeOptions, cluster: &ClusterOptions, store: &Store) -> Result<TransferServer, NodeError> {
    // The address may have been another node's: who looks for that one is told.
    let serving = ServerOptions {
        node: options.name.to_string(),
        listen: cluster.listen,
        network: options.network.clone(),
        ..ServerOptions::default()
    };
    TransferServer::start_with(serving, &cluster.token, store.clone(), options.clock.clone())
        .map_err(|source| NodeError::Io { what: format!("listen on {}", cluster.listen), source })
}

impl Running {
    async fn assemble(base: &Base, options: &NodeOptions, renewal: Option<Renewal>) -> Result<Self, NodeError> {
        match &options.cluster {
            None => Ok(Self::alone(base, options)),
            Some(cluster) => Self::join(base, options, cluster, renewal).await,
        }
    }

    fn alone(base: &Base, options: &NodeOptions) -> Self {
        let scheduler = Scheduler::new(base.post.clone(), SchedulerOptions::default(), LogsLink::default());
        let scheduler = shell::spawn(&base.post, scheduler::ACTOR, scheduler);
        let epoch = Epoch(1);
        let _ = scheduler.send(SchedulerMsg::Reign { epoch, until: Duration::MAX, succeeds: false });
        let _ = scheduler.send(SchedulerMsg::NodeUp(node_spec(base, options)));
        base.link.follow(&Reign { epoch, node: options.name.clone() });
        let parts = base.parts(options.executors);
        spawn_node_manager(base, &parts, options);
        Self { parts, jobs: None, cluster: None }
    }

    async fn join(
        base: &Base,
        options: &NodeOptions,
        cluster: &ClusterOptions,
        renewal: Option<Renewal>,
    ) -> Result<Self, NodeError> {
        let me = Peer { node: options.name.to_string(), incarnation: base.post.incarnation().0 };
        let (endpoint, events) =
            Endpoint::open(cluster.bus.clone(), cluster.subjects.clone(), me, SessionOptions::default()).await?;
        base.post.connect(endpoint.clone());

        // A candidate's is there all the time, and acts while it reigns.
        let scheduler = cluster.scheduler.then(|| {
            let scheduler = Scheduler::new(base.post.clone(), SchedulerOptions::default(), base.logs.clone());
            shell::spawn(&base.post, scheduler::ACTOR, scheduler)
        });
        let first = renewal.is_none();
        if first {
            // Before anybody hears that the node is there, and asks what it has.
            delete_leftovers(&base.store, &base.logs).await;
        }
        let (renew, renewals) = mpsc::unbounded_channel();
        let membership = spawn_membership(base, (cluster, &options.network), scheduler.clone(), renewal, renew)?;
        hear_beats(cluster, &base.post, membership.clone()).await?;
        // Before it registers: who was never heard cannot fall silent, and a Scheduler would count on it for ever.
        let _ = membership.send(MembershipMsg::Speak);
        let campaign = match scheduler {
            Some(scheduler) => Some(stand(base, cluster, scheduler, membership.clone()).await?),
            None => None,
        };
        // Later lives know from the one before, and hear of it.
        if first {
            let clock = base.post.clock();
            let reign = find_scheduler(&cluster.bus, &cluster.subjects, cluster.join_deadline, clock).await?;
            base.link.follow(&reign);
        }
        let parts = base.parts(options.executors);
        // Nothing may arrive for actors that are not there yet, so the pump starts when all are.
        spawn_node_manager(base, &parts, options);
        // Arbiters panic where there is no thread for them.
        let probe = std::thread::Builder::new().name("exobus-probe".into()).spawn(|| {});
        let probe = probe.map_err(|source| NodeError::Io { what: "start the thread of jobs".into(), source })?;
        let _ = probe.join();
        let jobs = actix_rt::Arbiter::new();
        let (hosting, hosted) = oneshot::channel();
        let host_parts = parts.clone();
        jobs.spawn(async move {
            let post = host_parts.post.clone();
            shell::spawn(&post, host::ACTOR, Host::new(host_parts));
            let _ = hosting.send(());
        });
        hosted.await.map_err(|_| NodeError::Other("the arbiter of jobs did not start".into()))?;
        actix_rt::spawn(pump(events, base.post.clone(), base.directory.clone()));

        let spec = node_spec(base, options);
        if first {
            register(&base.link, &spec, cluster.join_deadline, base.post.clock()).await?;
        }
        actix_rt::spawn(keep_registered(base.link.clone(), spec, base.jobs_over.clone()));
        info!(node = %options.name, incarnation = base.post.incarnation().0, "joined the cluster");
        let cluster = Joined { endpoint, membership, campaign, renewals };
        Ok(Self { parts, jobs: Some(jobs), cluster: Some(cluster) })
    }

    /// Runs what it is told to, to the end of the node, or of this life: then the next one is returned.
    async fn serve(mut self, orders: &mut Orders) -> Option<Renewal> {
        let (parts, jobs) = (self.parts.clone(), self.jobs.as_ref().map(actix_rt::Arbiter::handle));
        let queue = &mut orders.queue;
        let accept = async {
            while let Some(work) = queue.recv().await {
                let parts = parts.clone();
                match &jobs {
                    Some(arbiter) => drop(arbiter.spawn_fn(move || drop(actix_rt::spawn(work(parts))))),
                    None => drop(actix_rt::spawn(work(parts))),
                }
            }
            std::future::pending::<()>().await
        };
        let renewed = async {
            match &mut self.cluster {
                Some(joined) => joined.renewals.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            () = orders.broken.notified() => {}
            _ = &mut orders.stopped => {}
            Some(renewal) = renewed => return self.end_life(renewal, orders).await,
            () = accept => {}
        }
        // Jobs that are logged go on elsewhere.
        let reason = format!("node {}, which hosts the job, has stopped", self.parts.post.node());
        let _ = tokio::time::timeout(LIFE_JOBS_DEADLINE, self.parts.life.end(reason.into())).await;
        if let Some(joined) = self.cluster {
            if let Some(campaign) = joined.campaign {
                campaign.leave().await;
            }
            let _ = joined.membership.send(MembershipMsg::Leave);
            // Who is gone acknowledges nothing.
            for gone in self.parts.directory.members().into_iter().filter(|member| member.health.is_gone()) {
                joined.endpoint.forget(gone.node.as_str());
            }
            if let Err(error) = joined.endpoint.drain(DRAIN_DEADLINE).await {
                info!(%error, "not everything was said before the end");
            }
        }
        if let Some(jobs) = self.jobs {
            jobs.stop();
            let _ = tokio::task::spawn_blocking(move || jobs.join()).await;
        }
        None
    }

    /// The others have declared this life dead. Its jobs end, and say so to their clients; its tasks are cancelled.
    async fn end_life(self, renewal: Renewal, orders: &Orders) -> Option<Renewal> {
        let node = self.parts.post.node();
        let reason = format!("node {node}, which hosts the job, was declared dead by {} meanwhile", renewal.told_by);
        let jobs_end = tokio::time::timeout(LIFE_JOBS_DEADLINE, self.parts.life.end(reason.into())).await;
        if let Some(joined) = &self.cluster
            && let Err(error) = joined.endpoint.drain(LIFE_DRAIN_DEADLINE).await
        {
            info!(%error, "not everything was said before the end of this life");
        }
        if let Some(jobs) = self.jobs {
            jobs.stop();
            let joined = tokio::task::spawn_blocking(move || jobs.join());
            if tokio::time::timeout(LIFE_JOBS_DEADLINE, joined).await.is_err() {
                let reason = "declared dead, and a job does not end: its program blocks its thread".to_owned();
                warn!(reason, jobs_ended = jobs_end.is_ok());
                orders.broken.notify_one();
                return None;
            }
        }
        Some(renewal)
    }
}

/// Makes the node a candidate.
async fn stand(
    base: &Base,
    cluster: &ClusterOptions,
    scheduler: Address<SchedulerMsg>,
    membership: Address<MembershipMsg>,
) -> Result<Campaign, NodeError> {
    let ground = Ground::of(&cluster.bus, &cluster.subjects, cluster.join_deadline).await?;
    if matches!(ground, Ground::Word)
        && let Some(other) = ask_where(&cluster.bus, &cluster.subjects, &Refusals::default()).await?
        && other.node != *base.post.node()
    {
        return Err(NodeError::Other(second_scheduler(&other.node).reason));
    }
    Ok(Campaign::start(CampaignParts {
        post: base.post.clone(),
        bus: cluster.bus.clone(),
        subjects: cluster.subjects.clone(),
        ground,
        link: base.link.clone(),
        directory: base.directory.clone(),
        scheduler,
        membership,
    }))
}

impl Base {
    /// What jobs of a new life need.
    fn parts(&self, executors: usize) -> NodeParts {
        let server = self.server.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (directory, members) = (self.directory.clone(), self.directory.clone());
        let stager = Stager {
            node: self.post.node().clone(),
            store: self.store.clone(),
            transfer: self.transfer.clone(),
            addresses: Arc::new(move |node| directory.data_address(node)),
            is_gone: Arc::new(move |node| members.is_gone(node)),
            clock: self.post.clock().clone(),
            received: Tally::default(),
            pushed: Pushed::default(),
        };
        let (store, peak, transfer, post) =
            (self.store.clone(), self.peak.clone(), self.transfer.clone(), self.post.clone());
        let pushes = self.pushes.clone();
        let figures = move || {
            let stats = store.stats();
            let memory_bytes = peak.look();
            let work = ProcessWork::of_this_process();
            NodeFigures {
                at_us: post.clock().now().as_micros() as u64,
                executors: executors as u32,
                budget_bytes: stats.budget_bytes,
                used_bytes: stats.used_bytes,
                spilled_bytes: stats.spilled_bytes,
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
        NodeParts {
            post: self.post.clone(),
            store: self.store.clone(),
            stager,
            scheduler: self.link.clone(),
            over: self.jobs_over.clone(),
            logs: self.logs.clone(),
            life: Life::new(),
            gate: self.gate.clone(),
            directory: self.directory.clone(),
            figures: Arc::new(figures),
        }
    }
}

/// What happened to disks and to what is on them is for people to hear, too.
fn log(event: &StoreEvent) {
    match event {
        StoreEvent::DirRetired { dir, error } => warn!(dir = %dir.display(), error, "spill directory is out of use"),
        StoreEvent::DirRestored { dir } => info!(dir = %dir.display(), "spill directory has room again"),
        StoreEvent::ObjectLost { object, reason, .. } => warn!(object_id = %object, reason, "object lost"),
        StoreEvent::IndexRebuilt { dir, reason } => warn!(dir = %dir.display(), reason, "index of spill files rebuilt"),
        StoreEvent::SpillStarted { .. } | StoreEvent::SpillFinished { .. } | StoreEvent::MemoryTight { .. } => {}
    }
}

/// A hook that logs, and tells the Merger when arguments find no memory, besides what `other` does.
fn tell_when_tight(merger: &Arc<RwLock<Option<Address<MergerMsg>>>>, other: Option<EventHook>) -> EventHook {
    let merger = merger.clone();
    Arc::new(move |event| {
        log(&event);
        if let (StoreEvent::MemoryTight { .. }, Some(merger)) = (&event, &*merger.read()) {
            // One that has ended holds nothing.
            let _ = merger.send(MergerMsg::Tight);
        }
        if let Some(other) = &other {
            other(event);
        }
    })
}

fn node_spec(base: &Base, options: &NodeOptions) -> NodeSpec {
    let programs = programs().keys().filter(|key| options.offers(key)).map(|key| Arc::from(key.as_str()));
    NodeSpec {
        node: options.name.clone(),
        incarnation: base.post.incarnation(),
        resources: options.resources.clone(),
        labels: options.labels.clone(),
        functions: offered(options).into_keys().chain(programs).collect(),
        data_address: base.data_address(),
        memory_bytes: options.store.memory_bytes,
    }
}

/// The functions that the node runs.
fn offered(options: &NodeOptions) -> BTreeMap<Arc<str>, &'static Function> {
    functions().iter().filter(|(key, _)| options.offers(key)).map(|(key, function)| (key.clone(), *function)).collect()
}

fn spawn_node_manager(base: &Base, parts: &NodeParts, options: &NodeOptions) {
    let merger = Merger::new(base.post.clone(), parts.stager.clone(), base.pushes.clone());
    let merger = shell::spawn(&base.post, merger::ACTOR, merger);
    *base.merger.write() = Some(merger.clone());
    let stager = Stager { pushed: Pushed::to(merger), ..parts.stager.clone() };
    shell::spawn_at(&base.post, node_manager::ACTOR, |address| {
        let figures = parts.figures.clone();
        let parts = NodeManagerParts {
            post: base.post.clone(),
            store: base.store.clone(),
            stager,
            executors: base.executors.clone(),
            functions: offered(options),
            resources: options.resources.clone(),
            spin: Base::spin(options),
            figures: Box::new(move || figures()),
            scheduler: options.cluster.is_some().then(|| base.link.clone()),
        };
        NodeManager::new(parts, address)
    });
}

fn spawn_membership(
    base: &Base,
    (cluster, network): (&ClusterOptions, &Arc<dyn Network>),
    scheduler: Option<Address<SchedulerMsg>>,
    renewal: Option<Renewal>,
    renewals: mpsc::UnboundedSender<Renewal>,
) -> Result<Address<MembershipMsg>, NodeError> {
    let me = base.post.node();
    let fresh =
        || MembershipState::new(me.clone(), base.post.incarnation(), cluster.membership, base.post.clock().now());
    let subject = cluster.subjects.node(me.as_str(), "beat").map_err(|error| NodeError::Other(error.to_string()))?;
    let membership = Membership::new(MembershipParts {
        post: base.post.clone(),
        state: renewal.map_or_else(fresh, |renewal| renewal.state),
        bus: cluster.bus.clone(),
        network: network.clone(),
        subject,
        store: base.store.clone(),
        peak: base.peak.clone(),
        data_address: base.data_address(),
        directory: base.directory.clone(),
        scheduler,
        link: base.link.clone(),
        gate: base.gate.clone(),
        renewals,
    });
    Ok(shell::spawn(&base.post, "membership", membership))
}
