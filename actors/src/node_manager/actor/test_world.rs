//! A NodeManager with a store, whose executors hand what they are to run to the test, and who tells the test what it says to an Owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Bus, Subjects};
use exobus_store::disk::MemoryDisk;
use exobus_store::{Store, StoreOptions, SystemClock};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{NodeManager, NodeManagerParts};
use crate::event::NodeFigures;
use crate::ids::{Attempt, Incarnation, JobId, NodeId, TaskId};
use crate::isolation::ExecutorKind;
use crate::node_manager::{ExecutorLink, NodeEvent, Pushed, Report, Spared, Stager, Suspicions, Tally, Work};
use crate::owner::OwnerEvent;
use crate::printing::{Printing, Secrets};
use crate::protocol::node_manager::{ACTOR, NodeMsg};
use crate::protocol::owner::{self, OwnerMsg};
use crate::registry::Function;
use crate::scheduler::SchedulerLink;
use crate::shell::{self, Inbox, Post, PostOptions, mailbox};
use crate::task::{Resources, Returns, TaskSpec};
use crate::tenants::Tenants;
use crate::transfer::TransferClient;

pub(super) const JOB: JobId = JobId::from_u128(1);
const EXECUTORS: usize = 2;

/// Executors that are never done unless the test says so.
#[derive(Default)]
struct Hands(Mutex<Vec<Work>>);

impl ExecutorLink for Hands {
    fn run(&self, work: Work) {
        assert!(work.flags.start(Duration::ZERO), "nothing is taken back before it starts");
        self.0.lock().push(work);
    }

    fn count(&self) -> usize {
        EXECUTORS
    }
}

pub(in crate::node_manager) struct World {
    pub(super) store: Store,
    pub(super) endpoint: Endpoint,
    manager: Inbox<NodeEvent>,
    hands: Arc<Hands>,
    told: mpsc::UnboundedReceiver<OwnerEvent>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(|_| None, Spared::default()).await
    }

    /// Of a node in a cluster, in which these jobs are spared.
    pub(super) async fn in_cluster(spared: Spared) -> Self {
        Self::with(|post| Some(SchedulerLink::new(post.clone())), spared).await
    }

    async fn with(scheduler: impl FnOnce(&Post) -> Option<SchedulerLink>, spared: Spared) -> Self {
        let clock: Arc<dyn exobus_store::Clock> = Arc::new(SystemClock::new());
        let options =
            StoreOptions { memory_bytes: 64 << 20, spill_dirs: vec!["/spill".into()], ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(MemoryDisk::new()), clock.clone()).unwrap();
        let (node, incarnation) = (NodeId::new("here"), Incarnation(1));
        let on_fatal = Box::new(|fatal: shell::Fatal| panic!("{}", fatal.reason));
        let post = Post::new(PostOptions { node: node.clone(), incarnation, clock: clock.clone(), on_fatal });
        let (me, subjects) = (Peer { node: "here".into(), incarnation: 1 }, Subjects::new("test").unwrap());
        let (endpoint, _) = Endpoint::open(Bus::in_process(), subjects, me, SessionOptions::default()).await.unwrap();
        post.connect(endpoint.clone());
        let stager = Stager {
            node,
            store: store.clone(),
            executors: EXECUTORS,
            transfer: TransferClient::with(Default::default(), "token", clock.clone()),
            addresses: Arc::new(|_| None),
            is_gone: Arc::new(|_| false),
            suspicions: Suspicions::default(),
            clock,
            received: Tally::default(),
            pushed: Pushed::default(),
            executor: ExecutorKind::Thread,
        };
        let function: &'static Function = Box::leak(Box::new(Function {
            name: "test",
            version: 1,
            modes: &[],
            setup: None,
            deterministic: true,
            module: module_path!(),
            call: |_, _| Ok(()),
        }));
        let hands = Arc::new(Hands::default());
        let parts = NodeManagerParts {
            post: post.clone(),
            store: store.clone(),
            stager,
            executors: hands.clone(),
            printing: Printing::new(post.node().clone(), Secrets::default(), None),
            tenants: Tenants::default(),
            functions: BTreeMap::from([("test@1".into(), function)]),
            resources: Resources::cpu(1000 * EXECUTORS as u64),
            spin: Duration::ZERO,
            figures: Box::new(NodeFigures::default),
            scheduler: scheduler(&post),
            spared,
        };
        let manager = shell::spawn_at(&post, ACTOR, |address| NodeManager::new(parts, address));
        let (_, told) = mailbox::<OwnerMsg, OwnerEvent>(&post, &owner::actor_name(JOB));
        Self { store, endpoint, manager, hands, told }
    }

    /// An attempt of the task of this number.
    pub(in crate::node_manager) fn spec(number: u128, attempt: Attempt, returns: Returns) -> TaskSpec {
        TaskSpec { attempt, returns, ..TaskSpec::plain(JOB, TaskId::from_u128(number << 64), "test@1") }
    }

    pub(super) fn tell(&self, message: NodeMsg) {
        self.manager.send(message).unwrap();
    }

    pub(super) fn report(&self, report: Report) {
        self.manager.send(NodeEvent::Executor(report)).unwrap();
    }

    /// How many attempts have come to an executor.
    pub(super) fn started(&self) -> usize {
        self.hands.0.lock().len()
    }

    /// What the Owner is told next.
    pub(super) async fn told(&mut self) -> OwnerMsg {
        match self.told.recv().await {
            Some(OwnerEvent::Wire(message)) => message,
            other => panic!("{other:?}"),
        }
    }
}
