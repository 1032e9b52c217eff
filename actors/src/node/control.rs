//! Putting a node together, on its control thread.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use exobus_bus::session::{Endpoint, EndpointEvents, Event as SessionEvent, Peer, SessionOptions};
use exobus_bus::{Bus, Message, Refusals, Subject, Subjects, SubscribeOptions, codec};
use exobus_store::{Clock, EventHook, Store, StoreEvent};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{info, warn};

use super::{ClusterOptions, Node, NodeError, NodeOptions, NodeParts, Work};
use crate::event::NodeFigures;
use crate::host::{self, Host};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::{
    Directory, Membership, MembershipMsg, MembershipParts, MemoryPeak, ProcessWork, State as MembershipState,
};
use crate::merger::{self, Merger, MergerMsg, PushCount};
use crate::node_manager::{self, NodeManager, NodeManagerParts, Pushed, SPIN, Stager, Tally, ThreadExecutors};
use crate::registry::{Function, functions, programs};
use crate::scheduler::{self, NodeSpec, Scheduler, SchedulerMsg, SchedulerOptions};
use crate::shell::{self, Address, Fatal, Post, PostOptions};
use crate::transfer::{ClientOptions, ServerOptions, TransferClient, TransferServer};

/// How often a node tells the Scheduler that it is there.
const REGISTER_EVERY: Duration = Duration::from_secs(2);
/// How long the farewell to the other processes may take.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);

pub(super) fn start(options: NodeOptions) -> Result<Node, NodeError> {
    let fatal: Arc<Mutex<Option<Fatal>>> = Arc::default();
    let broken = Arc::new(Notify::new());
    let on_fatal = {
        let (fatal, broken) = (fatal.clone(), broken.clone());
        Box::new(move |reason: Fatal| {
            tracing::error!(actor = reason.actor, reason = reason.reason, "actor panicked, the node ends");
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
    let run = move || {
        // Made here, since actix would panic where the system has no descriptors or threads left.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(source) => {
                return drop(ready.send(Err(NodeError::Io { what: "start the control thread".into(), source })));
            }
        };
        let mut runtime = Some(runtime);
        let system = actix_rt::System::with_tokio_rt(|| runtime.take().expect("asked for once"));
        system.block_on(async move {
            match Running::assemble(options, post).await {
                Ok(running) => {
                    let _ = ready.send(Ok(running.parts.clone()));
                    running.serve(queue, stopped, &broken).await;
                }
                Err(error) => {
                    drop(ready.send(Err(error)));
                    // An actor that was never polled would be when it is dropped, without a runtime by then.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("exobus-control".into()).spawn(run);
    let thread = thread.map_err(|source| NodeError::Io { what: "start the control thread".into(), source })?;
    let parts = match outcome.recv() {
        Ok(parts) => parts?,
        Err(_) => return Err(NodeError::Other("the control thread ended while it started".into())),
    };
    Ok(Node { parts, random, work: Some(work), stop: Some(stop), thread: Some(thread), fatal })
}

/// A node that is put together, as long as it runs.
struct Running {
    parts: NodeParts,
    jobs: Option<actix_rt::Arbiter>,
    cluster: Option<Joined>,
}

/// What only a node of a cluster has.
struct Joined {
    endpoint: Endpoint,
    membership: Address<MembershipMsg>,
    server: Arc<TransferServer>,
}

/// What everything is made of before there are actors.
struct Base {
    post: Post,
    store: Store,
    peak: Arc<MemoryPeak>,
    directory: Directory,
    transfer: TransferClient,
    pushes: PushCount,
    /// Whom the store tells that memory is tight, once it is there.
    merger: Arc<OnceLock<Address<MergerMsg>>>,
}

impl Running {
    async fn assemble(options: NodeOptions, post: Post) -> Result<Self, NodeError> {
        let disk = Arc::new(exobus_store::RealDisk::default());
        let merger = Arc::<OnceLock<Address<MergerMsg>>>::default();
        let store_options = exobus_store::StoreOptions {
            executors: options.executors,
            node: options.name.to_string(),
            on_event: Some(tell_when_tight(&merger, options.store.on_event.clone())),
            ..options.store.clone()
        };
        let store = Store::open(store_options, disk, options.clock.clone())?;
        let directory = Directory::default();
        let token = options.cluster.as_ref().map(|cluster| cluster.token.clone()).unwrap_or_default();
        let fetching = ClientOptions {
            node: options.name.to_string(),
            network: options.network.clone(),
            random: options.random.clone(),
            ..ClientOptions::default()
        };
        let transfer = TransferClient::with(fetching, &token, options.clock.clone());
        let pushes = PushCount::default();
        let base = Base { post, store, peak: Arc::default(), directory, transfer, pushes, merger };
        match options.cluster {
            None => Ok(Self::alone(&base, options.executors, &options)?),
            Some(ref cluster) => Self::join(&base, &options, cluster).await,
        }
    }

    fn alone(base: &Base, executors: usize, options: &NodeOptions) -> Result<Self, NodeError> {
        let spec = node_spec(base, options, String::new());
        let scheduler = shell::spawn(
            &base.post,
            scheduler::ACTOR,
            Scheduler::new(base.post.clone(), Epoch(1), SchedulerOptions::default()),
        );
        let _ = scheduler.send(SchedulerMsg::NodeUp(spec));
        let parts = base.parts(scheduler, executors, Weak::new());
        spawn_node_manager(base, &parts, options, executors)?;
        Ok(Self { parts, jobs: None, cluster: None })
    }

    async fn join(base: &Base, options: &NodeOptions, cluster: &ClusterOptions) -> Result<Self, NodeError> {
        let me = Peer { node: options.name.to_string(), incarnation: base.post.incarnation().0 };
        let (endpoint, events) =
            Endpoint::open(cluster.bus.clone(), cluster.subjects.clone(), me, SessionOptions::default()).await?;
        base.post.connect(endpoint.clone());
        // The address may have been another node's: who looks for that one is told.
        let serving = ServerOptions {
            node: options.name.to_string(),
            listen: cluster.listen,
            network: options.network.clone(),
            ..ServerOptions::default()
        };
        let (store, clock) = (base.store.clone(), base.post.clock().clone());
        let server = TransferServer::start_with(serving, &cluster.token, store, clock)
            .map_err(|source| NodeError::Io { what: format!("listen on {}", cluster.listen), source })?;
        let server = Arc::new(server);
        let data_address = server.address().to_string();

        let local_scheduler = if cluster.scheduler {
            let epoch = Epoch(base.post.incarnation().0);
            let scheduler = Scheduler::new(base.post.clone(), epoch, SchedulerOptions::default());
            let scheduler = shell::spawn(&base.post, scheduler::ACTOR, scheduler);
            serve_where(cluster, &options.name).await?;
            Some(scheduler)
        } else {
            None
        };
        let membership = spawn_membership(base, cluster, data_address.clone(), local_scheduler.clone()).await?;
        let scheduler = match local_scheduler {
            Some(scheduler) => scheduler,
            None => {
                let clock = base.post.clock();
                let at = find_scheduler(&cluster.bus, &cluster.subjects, cluster.join_deadline, clock).await?;
                base.post.address(&at, scheduler::ACTOR)
            }
        };
        let parts = base.parts(scheduler.clone(), options.executors, Arc::downgrade(&server));
        // Nothing may arrive for actors that are not there yet, so the pump starts when all are.
        spawn_node_manager(base, &parts, options, options.executors)?;
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
        actix_rt::spawn(pump(events, base.post.clone()));

        let spec = node_spec(base, options, data_address);
        register(&scheduler, &spec, cluster).await?;
        actix_rt::spawn(keep_registered(scheduler, spec));
        info!(node = %options.name, "joined the cluster");
        Ok(Self { parts, jobs: Some(jobs), cluster: Some(Joined { endpoint, membership, server }) })
    }

    async fn serve(self, mut queue: mpsc::UnboundedReceiver<Work>, stopped: oneshot::Receiver<()>, broken: &Notify) {
        let (parts, jobs) = (self.parts.clone(), self.jobs.as_ref().map(actix_rt::Arbiter::handle));
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
        tokio::select! {
            biased;
            () = broken.notified() => {}
            _ = stopped => {}
            () = accept => {}
        }
        if let Some(joined) = self.cluster {
            let _ = joined.membership.send(MembershipMsg::Leave);
            // Who is gone acknowledges nothing.
            for gone in self.parts.directory.members().into_iter().filter(|member| member.health.is_gone()) {
                joined.endpoint.forget(gone.node.as_str());
            }
            if let Err(error) = joined.endpoint.drain(DRAIN_DEADLINE).await {
                info!(%error, "not everything was said before the end");
            }
            // The last handle (unless somebody takes figures at this moment): it stops.
            drop(joined.server);
        }
        if let Some(jobs) = self.jobs {
            jobs.stop();
            let _ = tokio::task::spawn_blocking(move || jobs.join()).await;
        }
    }
}

impl Base {
    /// What jobs need; `server` is the node's own, gone where it has none.
    fn parts(&self, scheduler: Address<SchedulerMsg>, executors: usize, server: Weak<TransferServer>) -> NodeParts {
        let directory = self.directory.clone();
        let stager = Stager {
            node: self.post.node().clone(),
            store: self.store.clone(),
            transfer: self.transfer.clone(),
            addresses: Arc::new(move |node| directory.data_address(node)),
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
            scheduler,
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
fn tell_when_tight(merger: &Arc<OnceLock<Address<MergerMsg>>>, other: Option<EventHook>) -> EventHook {
    let merger = merger.clone();
    Arc::new(move |event| {
        log(&event);
        if let (StoreEvent::MemoryTight { .. }, Some(merger)) = (&event, merger.get()) {
            // One that has ended holds nothing.
            let _ = merger.send(MergerMsg::Tight);
        }
        if let Some(other) = &other {
            other(event);
        }
    })
}

fn node_spec(base: &Base, options: &NodeOptions, data_address: String) -> NodeSpec {
    let programs = programs().keys().filter(|key| options.offers(key)).map(|key| Arc::from(key.as_str()));
    NodeSpec {
        node: options.name.clone(),
        incarnation: base.post.incarnation(),
        resources: options.resources.clone(),
        labels: options.labels.clone(),
        functions: offered(options).into_keys().chain(programs).collect(),
        data_address,
        memory_bytes: options.store.memory_bytes,
    }
}

/// The functions that the node runs.
fn offered(options: &NodeOptions) -> BTreeMap<Arc<str>, &'static Function> {
    functions().iter().filter(|(key, _)| options.offers(key)).map(|(key, function)| (key.clone(), *function)).collect()
}

fn spawn_node_manager(
    base: &Base,
    parts: &NodeParts,
    options: &NodeOptions,
    executors: usize,
) -> Result<(), NodeError> {
    let merger = Merger::new(base.post.clone(), parts.stager.clone(), base.pushes.clone());
    let merger = shell::spawn(&base.post, merger::ACTOR, merger);
    // There is one for each node; the hook of its store was made before it.
    let _ = base.merger.set(merger.clone());
    let stager = Stager { pushed: Pushed::to(merger), ..parts.stager.clone() };
    let mut refused = None;
    let spin = if options.cluster.is_none() { SPIN } else { Duration::ZERO };
    shell::spawn_at(&base.post, node_manager::ACTOR, |address| {
        let (store, clock) = (&base.store, base.post.clock());
        let threads = ThreadExecutors::start(executors, spin, store, &options.roots, clock, address);
        let threads = threads.unwrap_or_else(|error| {
            refused = Some(error);
            ThreadExecutors::none()
        });
        let figures = parts.figures.clone();
        NodeManager::new(NodeManagerParts {
            post: base.post.clone(),
            store: base.store.clone(),
            stager,
            executors: Box::new(threads),
            functions: offered(options),
            resources: options.resources.clone(),
            spin,
            figures: Box::new(move || figures()),
        })
    });
    refused.map_or(Ok(()), |source| Err(NodeError::Io { what: format!("start {executors} executors"), source }))
}

async fn spawn_membership(
    base: &Base,
    cluster: &ClusterOptions,
    data_address: String,
    scheduler: Option<Address<SchedulerMsg>>,
) -> Result<Address<MembershipMsg>, NodeError> {
    let me = base.post.node();
    let subject = |error: exobus_bus::SubjectError| NodeError::Other(error.to_string());
    let every_beat = cluster.subjects.every_node("beat").map_err(subject)?;
    let mut beats = cluster.bus.subscribe(every_beat, SubscribeOptions::default()).await?;
    let now = base.post.clock().now();
    let state = MembershipState::new(me.clone(), base.post.incarnation(), cluster.membership, now);
    let membership = shell::spawn(
        &base.post,
        "membership",
        Membership::new(MembershipParts {
            post: base.post.clone(),
            state,
            bus: cluster.bus.clone(),
            subject: cluster.subjects.node(me.as_str(), "beat").map_err(subject)?,
            store: base.store.clone(),
            peak: base.peak.clone(),
            data_address,
            directory: base.directory.clone(),
            scheduler,
        }),
    );
    let (address, subjects, post) = (membership.clone(), cluster.subjects.clone(), base.post.clone());
    actix_rt::spawn(async move {
        while let Some(delivery) = beats.recv().await {
            match genuine_beat(&subjects, &delivery.subject, &delivery.message.payload) {
                Ok(beat) => drop(address.send(beat)),
                Err(reason) => {
                    // `...node.<node>.beat`: who may publish there is the sender.
                    let sender = delivery.subject.as_str().rsplit('.').nth(1).unwrap_or_default();
                    post.refuse(sender, "beat", &reason);
                }
            }
        }
    });
    Ok(membership)
}

/// A heartbeat, if it is one and of the node in whose name it was published.
fn genuine_beat(subjects: &Subjects, subject: &Subject, payload: &[u8]) -> Result<MembershipMsg, String> {
    let message = codec::decode::<MembershipMsg>(payload).map_err(|error| error.to_string())?;
    let MembershipMsg::Beat(beat) = &message else { return Err("no heartbeat".to_owned()) };
    match subjects.node(beat.node.as_str(), "beat") {
        Ok(own) if own == *subject => Ok(message),
        _ => Err("a heartbeat in the name of another node".to_owned()),
    }
}

/// Answers whoever looks for the Scheduler.
async fn serve_where(cluster: &ClusterOptions, me: &NodeId) -> Result<(), NodeError> {
    let pattern = cluster.subjects.ctl_all("scheduler").map_err(|error| NodeError::Other(error.to_string()))?;
    let mut asked = cluster.bus.subscribe(pattern, SubscribeOptions::queue("scheduler")).await?;
    let answer = codec::encode(me).map_err(|error| NodeError::Other(error.to_string()))?;
    actix_rt::spawn(async move {
        while let Some(question) = asked.recv().await {
            let _ = question.try_reply(Message::new(answer.clone()));
        }
    });
    Ok(())
}

/// Asks until somebody says where the Scheduler is.
pub(crate) async fn find_scheduler(
    bus: &Bus,
    subjects: &Subjects,
    deadline: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<NodeId, NodeError> {
    let subject = subjects.ctl("scheduler", "where").map_err(|error| NodeError::Other(error.to_string()))?;
    let (started, refusals) = (clock.now(), Refusals::default());
    loop {
        let answer = bus.request(subject.clone(), Message::new(bytes::Bytes::new()), Duration::from_millis(500)).await;
        match answer.map(|message| codec::decode::<NodeId>(&message.payload)) {
            Ok(Ok(node)) => return Ok(node),
            Ok(Err(error)) => drop(refusals.refuse(subject.as_str(), "find the scheduler", &error)),
            // Nobody there yet, or the bus is: asked again until the deadline.
            Err(_) => {}
        }
        let waited = clock.now().saturating_sub(started);
        if waited >= deadline {
            return Err(NodeError::NoScheduler { cluster: subjects.cluster().to_owned(), waited });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Registers and waits until the Scheduler knows this node.
async fn register(
    scheduler: &Address<SchedulerMsg>,
    spec: &NodeSpec,
    cluster: &ClusterOptions,
) -> Result<(), NodeError> {
    let other = |error: &dyn std::fmt::Display| NodeError::Other(format!("register with the scheduler: {error}"));
    scheduler.send(SchedulerMsg::NodeUp(spec.clone())).map_err(|error| other(&error))?;
    // Messages of one sender keep their order, so the answer comes from a Scheduler that knows us.
    let nodes = scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, cluster.join_deadline).await;
    let nodes = nodes.map_err(|error| other(&error))?;
    match nodes.iter().find(|info| info.spec.node == spec.node) {
        Some(info) if info.up && info.spec.incarnation == spec.incarnation => Ok(()),
        _ => Err(other(&"it does not list this node; is the name taken?")),
    }
}

async fn keep_registered(scheduler: Address<SchedulerMsg>, spec: NodeSpec) {
    let mut every = tokio::time::interval(REGISTER_EVERY);
    loop {
        every.tick().await;
        if let Err(error) = scheduler.send(SchedulerMsg::NodeUp(spec.clone())) {
            warn!(%error, "scheduler not told");
        }
    }
}

/// Hands what arrives in sessions to the actors of this process.
pub(crate) async fn pump(mut events: EndpointEvents, post: Post) {
    while let Some(event) = events.recv().await {
        match event {
            SessionEvent::Items { from, items } => {
                if !NodeId::is_valid(&from.node) {
                    post.refuse(&from.node, "session", &"no name of a node");
                    continue;
                }
                let from = NodeId::new(&from.node);
                for (actor, item) in items {
                    post.deliver(&from, &actor, &item);
                }
            }
            // Counted and logged by the session, and sent by a build that is not ours: nothing of it can be answered.
            SessionEvent::Undecodable { .. } => {}
            // Membership says what became of the peer, and the jobs act on that.
            SessionEvent::Reset { peer, reason } => info!(node = peer.node, ?reason, "session reset"),
            SessionEvent::Silent { peer, since } => info!(node = peer.node, ?since, "peer is silent"),
            SessionEvent::Unsupported { peer, theirs } => {
                warn!(node = peer.node, ?theirs, "peer speaks no version of ours")
            }
        }
    }
}
