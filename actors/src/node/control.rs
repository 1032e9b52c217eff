//! Putting a node together, on its control thread, one incarnation after the other.
//!
//! A node that the others have declared dead while it was frozen or cut off does not end: it begins its
//! next *incarnation*. What an incarnation is made of is made anew for each: actors, sessions, jobs. What is of the process stays:
//! the store with its objects, the sockets that serve them, the executors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::auth::SUBMITTER_PREFIX;
use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Refusals, Role};
use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{error, info, warn};

use super::base::{Base, Jobs};
use super::leftovers::delete_leftovers;
use super::registered::keep_registered;
use super::{ClusterOptions, Node, NodeError, NodeOptions, Work};
use crate::api::Door;
use crate::election::{Campaign, CampaignParts, Ground, second_scheduler};
use crate::host::{Host, NodeParts};
use crate::ids::{Epoch, Incarnation};
use crate::jobs::journal::JournalLink;
use crate::joining::{Name, Names, Search, agree_on_submitters, ask_where, find_scheduler, hear_beats, pump, register};
use crate::membership::{Membership, MembershipEvent, MembershipParts, Renewal, State as MembershipState};
use crate::merger::Merger;
use crate::node_manager::{
    ExecutorLink, ExecutorParts, NodeManager, NodeManagerParts, Pushed, Stager, ThreadExecutors,
};
use crate::protocol;
use crate::protocol::scheduler::{Leader, NodeSpec, SchedulerMsg};
use crate::registry::{Function, functions, programs};
use crate::results::Results;
use crate::scheduler::{Scheduler, SchedulerEvent, SchedulerOptions};
use crate::services::{self, ServicesParts};
use crate::shell::{self, Fatal, Inbox, Post, PostOptions};
use crate::transfer::network::Network;

/// How long the farewell to the other processes may take.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);
/// The same at the end of an incarnation: who begins the next one is soon missed.
const INCARNATION_DRAIN_DEADLINE: Duration = Duration::from_millis(500);
/// How long the jobs of an incarnation may take to end. Heartbeats come again after that, and must before the node is dead again.
const JOBS_DEADLINE: Duration = Duration::from_secs(1);

/// How long it may take to hand results over to other nodes, where there are some; what is not handed over then is on this node's disks.
const RESULTS_DEADLINE: Duration = Duration::from_secs(20);

/// A Scheduler that was found at last has time for the node.
const REGISTERS_IN: Duration = Duration::from_secs(2);

/// Tells who waits for a node to be there.
type Ready = std::sync::mpsc::Sender<Result<NodeParts, NodeError>>;

/// The post of a node that is about to start: what it may end of is put into `fatal`, and who waits is told.
fn post(options: &NodeOptions, fatal: &Arc<Mutex<Option<Fatal>>>) -> (Post, Arc<Notify>) {
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
    (post, broken)
}

fn check_name(options: &NodeOptions) -> Result<(), NodeError> {
    match Role::of(options.name.as_str()) {
        Role::Submitter if options.cluster.is_some() => Err(NodeError::Other(format!(
            "{} is no name for a node: names that begin with {SUBMITTER_PREFIX} are submitters'",
            options.name
        ))),
        _ => Ok(()),
    }
}

/// The process of a node, as the incarnation that it is in now.
fn me(post: &Post) -> Peer {
    Peer { node: post.node().to_string(), incarnation: post.incarnation().0 }
}

/// What an incarnation of a node says, it says as that incarnation.
fn in_own_name(cluster: &ClusterOptions, post: &Post) -> ClusterOptions {
    ClusterOptions { bus: cluster.bus.speaking_as(me(post)), ..cluster.clone() }
}

pub(super) fn start(
    options: NodeOptions,
    told_to_stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Node, NodeError> {
    check_name(&options)?;
    let fatal = Arc::default();
    let (post, broken) = post(&options, &fatal);
    let (stop, stopped) = oneshot::channel();
    let random = options.random.clone();
    let (work, queue) = mpsc::unbounded_channel::<Work>();
    let (ready, outcome) = std::sync::mpsc::channel();
    let told_to_stop = told_to_stop.boxed();
    let mut orders = Orders { queue, told_to_stop, stopped, broken };
    let run = move || {
        let threads = |parts: &ExecutorParts| {
            let what = || format!("start {} executors", parts.count);
            let executors = ThreadExecutors::start(parts).map_err(|source| NodeError::Io { what: what(), source })?;
            Ok(Arc::new(executors) as Arc<dyn ExecutorLink>)
        };
        let base = match Base::open(&options, post, Jobs::Apart, threads) {
            Ok(base) => base,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let (mut ready, mut renewal) = (Some(ready), None);
        loop {
            let system = match system() {
                Ok(system) => system,
                Err(error) => return refuse(&base, ready.take(), error),
            };
            // Everything that an incarnation has spawned on this thread goes with its system.
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

/// Runs a node on this task and the current `LocalSet`, jobs and all, until it is told to stop or to the first panic; `executors`
/// makes what runs its tasks. Who drops this kills it. The reason is put into `fatal` when an actor panics.
#[cfg(feature = "simulation")]
pub(crate) async fn inhabit(
    options: NodeOptions,
    ready: Ready,
    stopped: oneshot::Receiver<()>,
    executors: impl FnOnce(&ExecutorParts) -> Arc<dyn ExecutorLink>,
    fatal: Arc<Mutex<Option<Fatal>>>,
) {
    let (post, broken) = post(&options, &fatal);
    let (_work, queue) = mpsc::unbounded_channel::<Work>();
    let mut orders = Orders { queue, told_to_stop: std::future::pending().boxed(), stopped, broken };
    let opened =
        check_name(&options).and_then(|()| Base::open(&options, post, Jobs::Here, |parts| Ok(executors(parts))));
    let base = match opened {
        Ok(base) => base,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let (mut ready, mut renewal) = (Some(ready), None);
    loop {
        // Everything that an incarnation has spawned goes with it.
        let spawned = tokio::task::LocalSet::new();
        let next = spawned.run_until(Box::pin(live(&base, &options, &mut orders, &mut ready, renewal))).await;
        drop(spawned);
        let Some(next) = next else { break };
        base.post.renew(next.state.incarnation());
        renewal = Some(next);
    }
}

/// One incarnation of the node, from its start to its end; the next one, if there is one.
async fn live(
    base: &Base,
    options: &NodeOptions,
    orders: &mut Orders,
    ready: &mut Option<Ready>,
    renewal: Option<Renewal>,
) -> Option<Renewal> {
    let refused = async |ready, error| {
        release_name(base).await;
        refuse(base, ready, error);
        // An actor that was never polled would be when it is dropped, without a runtime by then.
        tokio::time::sleep(Duration::from_millis(1)).await;
        None
    };
    let starts = ready.is_some();
    let assembled = tokio::select! {
        biased;
        () = &mut orders.told_to_stop, if starts => Err(NodeError::Stopped),
        assembled = Running::assemble(base, options, renewal) => assembled,
    };
    let mut running = match assembled {
        Ok(running) => running,
        Err(error) => return refused(ready.take(), error).await,
    };
    if let Some(waiting) = ready.take() {
        let admitted = tokio::select! {
            biased;
            () = &mut orders.told_to_stop => Err(NodeError::Stopped),
            admitted = running.admitted() => admitted,
        };
        match admitted {
            Ok(None) => drop(waiting.send(Ok(running.parts.clone()))),
            Ok(Some(renewal)) => {
                *ready = Some(waiting);
                return running.end_incarnation(renewal, orders).await;
            }
            Err(error) => return refused(Some(waiting), error).await,
        }
    }
    running.serve(base, orders).await
}

/// Says why there is no incarnation, to who waits for the first one or as the end of the process.
fn refuse(base: &Base, ready: Option<Ready>, error: NodeError) {
    match ready {
        Some(ready) => drop(ready.send(Err(error))),
        None => {
            let reason = format!("no new incarnation after it was declared dead: {error}");
            base.post.fatal(Fatal { actor: "node".to_owned(), reason });
        }
    }
}

/// The system of actors of an incarnation. Its runtime is made here, since actix would panic where there are no descriptors or
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
    /// Ends the start of the node; looked at until it is there.
    told_to_stop: BoxFuture<'static, ()>,
    stopped: oneshot::Receiver<()>,
    broken: Arc<Notify>,
}

/// An incarnation of a node that is put together, as long as it lasts.
struct Running {
    parts: NodeParts,
    jobs: Option<actix_rt::Arbiter>,
    cluster: Option<Joined>,
}

/// What only a node of a cluster has.
struct Joined {
    endpoint: Endpoint,
    membership: Inbox<MembershipEvent>,
    campaign: Option<Campaign>,
    renewals: mpsc::UnboundedReceiver<Renewal>,
    /// What the Scheduler is told that this node is.
    spec: NodeSpec,
    /// When the Scheduler has to know it at last, in whatever incarnation.
    join_by: Duration,
}

impl Running {
    async fn assemble(base: &Base, options: &NodeOptions, renewal: Option<Renewal>) -> Result<Self, NodeError> {
        match &options.cluster {
            None => {
                let alone = Self::alone(base, options);
                Results::start(&alone.parts.results).await?;
                Ok(alone)
            }
            Some(cluster) => Self::join(base, options, cluster, renewal).await,
        }
    }

    fn alone(base: &Base, options: &NodeOptions) -> Self {
        let scheduler = Scheduler::new(
            base.post.clone(),
            SchedulerOptions::default(),
            base.tenants.quotas(),
            JournalLink::default(),
        );
        let scheduler = shell::spawn(&base.post, protocol::scheduler::ACTOR, scheduler);
        let epoch = Epoch(1);
        let _ = scheduler.send(SchedulerEvent::Elected { epoch, until: Duration::MAX, succeeds: false });
        let _ = scheduler.send(SchedulerMsg::NodeUp(node_spec(base, options)));
        base.link.follow(&Leader { epoch, node: options.name.clone() });
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
        let first = renewal.is_none();
        let cluster = &in_own_name(cluster, &base.post);
        if first {
            // Before it says a word to anybody, or stands for election: does the cluster believe that it is one of its nodes?
            ask_where(&cluster.bus, &cluster.subjects, &Refusals::default()).await?;
            agree_on_submitters(&cluster.bus, &cluster.subjects).await?;
        }
        let (ground, leader) = match (cluster.scheduler, first) {
            (true, _) => (Some(Ground::of(cluster).await?), None),
            (false, true) => (None, Some(search_scheduler(base, cluster).await?)),
            (false, false) => (None, None),
        };
        if first {
            // Before anybody hears that the node is there, and asks what it has; and before it has its name, which others would take for
            // free again if it did not beat.
            delete_leftovers(&base.store, &base.logs, &base.results, base.post.node()).await;
        }
        // Not a word is said under it before.
        take_name(base, options, cluster, ground.as_ref()).await?;
        let (me, cluster) = (me(&base.post), &in_own_name(cluster, &base.post));
        let (endpoint, events) =
            Endpoint::open(cluster.bus.clone(), cluster.subjects.clone(), me, SessionOptions::default()).await?;
        base.post.connect(endpoint.clone());

        // A candidate's is there all the time, and acts while its node is elected.
        let scheduler = cluster.scheduler.then(|| {
            let scheduler = Scheduler::new(
                base.post.clone(),
                SchedulerOptions::default(),
                base.tenants.quotas(),
                base.journal.clone(),
            );
            shell::spawn(&base.post, protocol::scheduler::ACTOR, scheduler)
        });
        let (renew, renewals) = mpsc::unbounded_channel();
        let membership = spawn_membership(base, (cluster, &options.network), scheduler.clone(), renewal, renew)?;
        hear_beats(cluster, &base.post, membership.clone()).await?;
        // Before it registers: who was never heard cannot fall silent, and a Scheduler would count on it for ever.
        let _ = membership.send(MembershipEvent::Speak);
        let campaign = match (scheduler, ground) {
            (Some(scheduler), Some(ground)) => Some(stand(base, cluster, ground, scheduler, membership.clone()).await?),
            _ => None,
        };
        // Later incarnations know from the one before, and hear of it.
        let leader = match leader {
            None if first => Some(search_scheduler(base, cluster).await?),
            known => known,
        };
        if let Some(leader) = leader {
            base.link.follow(&leader);
        }
        let parts = base.parts(options.executors);
        // Nothing may arrive for actors that are not there yet, so the pump starts when all are.
        spawn_node_manager(base, &parts, options);
        Results::start(&parts.results).await?;
        let jobs = match base.jobs {
            Jobs::Apart => Some(host_apart(&parts).await?),
            #[cfg(feature = "simulation")]
            Jobs::Here => {
                shell::spawn(&base.post, protocol::host::ACTOR, Host::new(parts.clone()));
                None
            }
        };
        actix_rt::spawn(pump(events, base.post.clone(), base.directory.clone()));
        let (bus, subjects) = (cluster.bus.clone(), cluster.subjects.clone());
        let door = Door::new(parts.clone(), bus.clone(), subjects.clone());
        let calls = door.calls();
        door.open().await?;
        services::open(ServicesParts { node: parts.clone(), bus, subjects, door: calls }).await?;

        // One deadline is for finding the Scheduler.
        let (spec, join_by) = (node_spec(base, options), base.opened_at + 2 * cluster.join_deadline);
        let cluster = Joined { endpoint, membership, campaign, renewals, spec, join_by };
        Ok(Self { parts, jobs, cluster: Some(cluster) })
    }

    /// Waits until the Scheduler knows this node. The others may declare it dead before: then the next incarnation is returned.
    async fn admitted(&mut self) -> Result<Option<Renewal>, NodeError> {
        let Some(joined) = &mut self.cluster else { return Ok(None) };
        let clock = self.parts.post.clock();
        let left = joined.join_by.saturating_sub(clock.now()).max(REGISTERS_IN);
        tokio::select! {
            biased;
            Some(renewal) = joined.renewals.recv() => Ok(Some(renewal)),
            registered = register(&self.parts.scheduler, &joined.spec, left, clock) => registered.map(|()| None),
        }
    }

    /// Runs what it is told to, to the end of the node, or of this incarnation: then the next one is returned.
    async fn serve(mut self, base: &Base, orders: &mut Orders) -> Option<Renewal> {
        if let Some(name) = base.name.borrow().clone() {
            let post = base.post.clone();
            actix_rt::spawn(async move {
                let reason = format!("{}; it was taken while this process was frozen or cut off", name.keep().await);
                post.fatal(Fatal { actor: "node".to_owned(), reason });
            });
        }
        let (parts, jobs) = (self.parts.clone(), self.jobs.as_ref().map(actix_rt::Arbiter::handle));
        if let Some(joined) = &self.cluster {
            actix_rt::spawn(keep_registered(parts.scheduler.clone(), joined.spec.clone(), parts.over.clone()));
            info!(node = %parts.post.node(), incarnation = parts.post.incarnation().0, "joined the cluster");
        }
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
            Some(renewal) = renewed => return self.end_incarnation(renewal, orders).await,
            () = accept => {}
        }
        // Jobs that are logged go on elsewhere.
        let reason = format!("node {}, which hosts the job, has stopped", self.parts.post.node());
        let _ = tokio::time::timeout(JOBS_DEADLINE, self.parts.running.end(reason.into())).await;
        if let Some(joined) = self.cluster {
            self.parts.results.hand_over(RESULTS_DEADLINE).await;
            if let Some(campaign) = joined.campaign {
                campaign.leave().await;
            }
            let _ = joined.membership.send(MembershipEvent::Leave);
            // Who is gone acknowledges nothing.
            for gone in self.parts.directory.members().into_iter().filter(|member| member.health.is_gone()) {
                joined.endpoint.forget(gone.node.as_str());
            }
            if let Err(error) = joined.endpoint.drain(DRAIN_DEADLINE).await {
                info!(%error, "not everything was said before the end");
            }
            release_name(base).await;
        }
        if let Some(jobs) = self.jobs {
            jobs.stop();
            let _ = tokio::task::spawn_blocking(move || jobs.join()).await;
        }
        None
    }

    /// The others have declared this incarnation dead. Its jobs end, and say so to their clients; its tasks are cancelled.
    async fn end_incarnation(self, renewal: Renewal, orders: &Orders) -> Option<Renewal> {
        let node = self.parts.post.node();
        let reason = format!("node {node}, which hosts the job, was declared dead by {} meanwhile", renewal.told_by);
        let jobs_end = tokio::time::timeout(JOBS_DEADLINE, self.parts.running.end(reason.into())).await;
        if let Some(joined) = &self.cluster
            && let Err(error) = joined.endpoint.drain(INCARNATION_DRAIN_DEADLINE).await
        {
            info!(%error, "not everything was said before the end of this incarnation");
        }
        if let Some(jobs) = self.jobs {
            jobs.stop();
            let joined = tokio::task::spawn_blocking(move || jobs.join());
            if tokio::time::timeout(JOBS_DEADLINE, joined).await.is_err() {
                let reason = "declared dead, and a job does not end: its program blocks its thread".to_owned();
                warn!(reason, jobs_ended = jobs_end.is_ok());
                orders.broken.notify_one();
                return None;
            }
        }
        Some(renewal)
    }
}

/// Starts the thread of jobs, with the Host on it.
async fn host_apart(parts: &NodeParts) -> Result<actix_rt::Arbiter, NodeError> {
    // Arbiters panic where there is no thread for them.
    let probe = std::thread::Builder::new().name("exobus-probe".into()).spawn(|| {});
    let probe = probe.map_err(|source| NodeError::Io { what: "start the thread of jobs".into(), source })?;
    let _ = probe.join();
    let jobs = actix_rt::Arbiter::new();
    let (hosting, hosted) = oneshot::channel();
    let parts = parts.clone();
    jobs.spawn(async move {
        let post = parts.post.clone();
        shell::spawn(&post, protocol::host::ACTOR, Host::new(parts));
        let _ = hosting.send(());
    });
    hosted.await.map_err(|_| NodeError::Other("the arbiter of jobs did not start".into()))?;
    Ok(jobs)
}

/// Takes the name of the node, or keeps it in another incarnation.
async fn take_name(
    base: &Base,
    options: &NodeOptions,
    cluster: &ClusterOptions,
    ground: Option<&Ground>,
) -> Result<(), NodeError> {
    let known = base.name.take();
    let name = match known {
        Some(mut name) => {
            name.renew(base.post.incarnation()).await?;
            name
        }
        None => {
            let names = match ground {
                Some(ground) => ground.names(),
                None => Names::find(cluster, cluster.join_deadline).await?,
            };
            let name = Name::take((&base.post, base.data_address()), cluster, names, &options.network).await?;
            base.post.renew(name.incarnation());
            name
        }
    };
    base.name.replace(Some(name));
    Ok(())
}

/// Gives the name back, if this process has it.
async fn release_name(base: &Base) {
    if let Some(name) = base.name.take() {
        // Where it is not, it is free when this process is gone.
        let _ = tokio::time::timeout(JOBS_DEADLINE, name.release()).await;
    }
}

/// Asks until somebody says where the Scheduler is; somebody may be about to mend what keeps it away.
async fn search_scheduler(base: &Base, cluster: &ClusterOptions) -> Result<Leader, NodeError> {
    let search = Search { deadline: cluster.join_deadline, trouble: cluster.join_deadline };
    find_scheduler(&cluster.bus, &cluster.subjects, search, base.post.clock()).await
}

/// Makes the node a candidate.
async fn stand(
    base: &Base,
    cluster: &ClusterOptions,
    ground: Ground,
    scheduler: Inbox<SchedulerEvent>,
    membership: Inbox<MembershipEvent>,
) -> Result<Campaign, NodeError> {
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
    let merger = shell::spawn(&base.post, protocol::merger::ACTOR, merger);
    *base.merger.write() = Some(merger.clone());
    let stager = Stager { pushed: Pushed::to(merger.inlet()), ..parts.stager.clone() };
    shell::spawn_at(&base.post, protocol::node_manager::ACTOR, |inbox| {
        let figures = parts.figures.clone();
        let parts = NodeManagerParts {
            post: base.post.clone(),
            store: base.store.clone(),
            stager,
            executors: base.executors.clone(),
            printing: base.printing.0.clone(),
            tenants: base.tenants.clone(),
            functions: offered(options),
            resources: options.resources.clone(),
            spin: Base::spin(options),
            figures: Box::new(move || figures()),
            scheduler: options.cluster.is_some().then(|| base.link.clone()),
            spared: base.results.spared.clone(),
        };
        NodeManager::new(parts, inbox)
    });
}

fn spawn_membership(
    base: &Base,
    (cluster, network): (&ClusterOptions, &Arc<dyn Network>),
    scheduler: Option<Inbox<SchedulerEvent>>,
    renewal: Option<Renewal>,
    renewals: mpsc::UnboundedSender<Renewal>,
) -> Result<Inbox<MembershipEvent>, NodeError> {
    let me = base.post.node();
    let fresh =
        || MembershipState::new(me.clone(), base.post.incarnation(), cluster.membership, base.post.clock().now());
    let subject = cluster.subjects.node(me.as_str(), "beat").map_err(|error| NodeError::Other(error.to_string()))?;
    let parts = MembershipParts {
        post: base.post.clone(),
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
    };
    let membership = Membership::new(parts, renewal.map_or_else(fresh, |renewal| renewal.state));
    Ok(shell::spawn(&base.post, "membership", membership))
}
