//! What a node keeps in memory for jobs of any Owner, told to the store: attempts that wait or run, where members of sets are, and what
//! the sessions of the process hold back.

use exobus_store::Outside;

use super::{Members, NodeManager, Running};
use crate::ids::{JobId, SetId};
use crate::node_manager::staging::Located;
use crate::task::{LocatedArg, TaskSpec};

/// So much more is counted before the next tick.
const COUNT_AGAIN_BYTES: u64 = 1 << 20;
/// What an attempt or a set has in maps, queues and allocations of its own, about.
const ENTRY_BYTES: usize = 256;

/// What was counted last.
pub(super) struct Counted {
    /// Attempts and sets.
    tables: Outside,
    sessions: Outside,
    /// What has come since.
    grown: u64,
}

impl Counted {
    pub(super) fn new(outside: impl Fn() -> Outside) -> Self {
        Self { tables: outside(), sessions: outside(), grown: 0 }
    }
}

pub(super) fn attempt_bytes(spec: &TaskSpec) -> u64 {
    let args = size_of::<LocatedArg>() * spec.args.len() + size_of::<u64>() * spec.scratch_bytes.len();
    (ENTRY_BYTES + size_of::<Running>() + size_of::<TaskSpec>() + args + spec.params.len()) as u64
}

pub(super) fn set_bytes(members: usize) -> u64 {
    (ENTRY_BYTES + size_of::<((JobId, SetId), Members)>() + members * size_of::<Located>()) as u64
}

impl NodeManager {
    /// So much has come.
    pub(super) fn grew(&mut self, bytes: u64) {
        self.counted.grown += bytes;
        if self.counted.grown >= COUNT_AGAIN_BYTES {
            self.count();
        }
    }

    /// Counts everything; a walk over all attempts and sets.
    pub(super) fn count(&mut self) {
        let attempts: u64 = self.attempts.values().map(|running| attempt_bytes(&running.spec)).sum();
        let sets: u64 = self.sets.values().map(|set| set_bytes(set.members.len())).sum();
        self.counted.tables.set(attempts + sets);
        self.counted.sessions.set(self.post.waiting_bytes());
        self.counted.grown = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use exobus_bus::session::{Endpoint, Peer, SessionOptions};
    use exobus_bus::{Bus, Subjects};
    use exobus_store::disk::MemoryDisk;
    use exobus_store::{Store, StoreOptions, SystemClock};
    use tokio::task::LocalSet;
    use tokio::time::sleep;

    use super::super::{NodeManager, NodeManagerParts, TICK};
    use super::*;
    use crate::event::NodeFigures;
    use crate::ids::{Attempt, Incarnation, NodeId, ObjectId, TaskId};
    use crate::node_manager::NodeEvent;
    use crate::node_manager::{Doubts, ExecutorLink, Pushed, Stager, Tally, Work};
    use crate::protocol::node_manager::{ACTOR, NodeMsg, ObjectIds};
    use crate::registry::Function;
    use crate::shell::{self, Inbox, Post, PostOptions};
    use crate::task::{Resources, Returns};
    use crate::transfer::TransferClient;

    const JOB: JobId = JobId::from_u128(1);

    /// One that is never done.
    struct Busy;

    impl ExecutorLink for Busy {
        fn run(&self, work: Work) {
            std::mem::forget(work);
        }

        fn count(&self) -> usize {
            1
        }
    }

    struct World {
        store: Store,
        manager: Inbox<NodeEvent>,
        endpoint: Endpoint,
    }

    impl World {
        async fn new() -> Self {
            let clock: Arc<dyn exobus_store::Clock> = Arc::new(SystemClock::new());
            let options =
                StoreOptions { memory_bytes: 64 << 20, spill_dirs: vec!["/spill".into()], ..StoreOptions::default() };
            let store = Store::open(options, Arc::new(MemoryDisk::new()), clock.clone()).unwrap();
            let (node, incarnation) = (NodeId::new("here"), Incarnation(1));
            let on_fatal = Box::new(|fatal: crate::shell::Fatal| panic!("{}", fatal.reason));
            let post = Post::new(PostOptions { node: node.clone(), incarnation, clock: clock.clone(), on_fatal });
            let (me, subjects) = (Peer { node: "here".into(), incarnation: 1 }, Subjects::new("test").unwrap());
            let (endpoint, _) =
                Endpoint::open(Bus::in_process(), subjects, me, SessionOptions::default()).await.unwrap();
            post.connect(endpoint.clone());
            let stager = Stager {
                node,
                store: store.clone(),
                executors: 1,
                transfer: TransferClient::with(Default::default(), "token", clock.clone()),
                addresses: Arc::new(|_| None),
                is_gone: Arc::new(|_| false),
                doubts: Doubts::default(),
                clock,
                received: Tally::default(),
                pushed: Pushed::default(),
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
            let parts = NodeManagerParts {
                post: post.clone(),
                store: store.clone(),
                stager,
                executors: Arc::new(Busy),
                functions: BTreeMap::from([("test@1".into(), function)]),
                resources: Resources::cpu(1000),
                spin: Duration::ZERO,
                figures: Box::new(NodeFigures::default),
                scheduler: None,
            };
            let manager = shell::spawn_at(&post, ACTOR, |address| NodeManager::new(parts, address));
            Self { store, manager, endpoint }
        }

        fn run(&self, number: u128, params: usize) {
            let spec = TaskSpec {
                job: JOB,
                id: TaskId::from_u128(number),
                attempt: Attempt(1),
                function: "test@1".into(),
                params: vec![0; params].into(),
                args: Vec::new(),
                returns: Returns::One,
                target_bytes: 0,
                resources: Resources::cpu(1000),
                scratch_bytes: Vec::new(),
                whole_max_bytes: 0,
                memory_max_bytes: 0,
                timeout_ms: 0,
                alone: false,
            };
            self.manager.send(NodeMsg::Run { owner: NodeId::new("here"), spec }).unwrap();
        }

        /// What is counted after a tick.
        async fn bytes(&self) -> u64 {
            sleep(2 * TICK).await;
            self.store.stats().outside_bytes
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_and_sets_are_counted_as_long_as_they_are_there() {
        let test = async {
            let world = World::new().await;
            assert_eq!(world.bytes().await, 0);
            for number in 0..100 {
                world.run(number, 64 << 10);
            }
            // It grows too fast to be counted with ticks only.
            tokio::task::yield_now().await;
            let attempts = world.store.stats().outside_bytes;
            assert!(attempts > 5 << 20, "{attempts}");
            let attempts = world.bytes().await;
            assert!(attempts > 100 * (64 << 10), "{attempts}");
            let members: ObjectIds = (0..1000).map(ObjectId).collect();
            let (set, at) = (SetId::of(&[ObjectId(1)]), vec![0; 1000]);
            let nodes = vec![NodeId::new("there")];
            let define = NodeMsg::DefineSet { job: JOB, run: 0, set, start: 0, total: 1000, members, nodes, at };
            world.manager.send(define).unwrap();
            let both = world.bytes().await;
            assert!(both > attempts + 16_000, "{both}");
            world.manager.send(NodeMsg::EndJob { job: JOB }).unwrap();
            assert_eq!(world.bytes().await, 0);
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_another_node_is_counted_until_nobody_waits_for_it() {
        let test = async {
            let world = World::new().await;
            for _ in 0..100 {
                world.endpoint.send("there", "actor", vec![0; 64 << 10].into()).unwrap();
            }
            let waiting = world.bytes().await;
            assert!(waiting > 100 * (64 << 10), "{waiting}");
            world.endpoint.forget("there");
            assert_eq!(world.bytes().await, 0);
        };
        LocalSet::new().run_until(test).await;
    }
}
