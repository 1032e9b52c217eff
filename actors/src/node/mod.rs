//! One process of a cluster, or the whole runtime of a laptop: starts actors, routes what arrives, shuts down in order.
//!
//! Threads: `exobus-control` runs Membership, NodeManager, Scheduler and the pump of sessions on one arbiter; jobs
//! (Owner and coordinator) run on a second one, `exobus-jobs`, so that no program runs on the thread that says that the
//! node is alive. Embedded, where nobody else depends on the process, both are one: a hop between arbiters costs more
//! than a task. Executors, disk, sockets, the NATS client and what programs compute ([`Futures::compute`](crate::futures::Futures::compute)) have threads of their own.

mod base;
mod control;
mod leftovers;
pub mod memory;
mod options;
pub(crate) mod registered;

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc, oneshot};

pub use crate::joining::{ClusterOptions, NodeError};
#[cfg(feature = "simulation")]
pub(crate) use control::inhabit;
pub use options::NodeOptions;

use crate::event::{EventSink, NodeFigures};
use crate::futures::Futures;
use crate::host::{self, NodeParts};
use crate::ids::JobId;
use crate::membership::Change;
use crate::node_manager::Gate;
use crate::protocol::host::{JobEnd, JobSpec};
use crate::protocol::scheduler::Leader;
use crate::random::Random;
use crate::results::ResultClient;
use crate::shell::{Fatal, Post};
use crate::task::JobError;
use crate::words::Words;
use exobus_store::Store;

/// Something to do on the arbiter of jobs.
type Work = Box<dyn FnOnce(NodeParts) -> LocalBoxFuture<'static, ()> + Send>;

/// A running node. Dropping it stops it in order.
pub struct Node {
    parts: NodeParts,
    random: Arc<dyn Random>,
    work: Option<mpsc::UnboundedSender<Work>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    fatal: Arc<Mutex<Option<Fatal>>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.parts.post.node())
    }
}

impl Node {
    /// Starts a node and returns when it is ready: alone, or registered with its cluster's Scheduler.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn start(options: NodeOptions) -> Result<Self, NodeError> {
        Self::start_unless(options, std::future::pending())
    }

    /// The same, unless `told_to_stop` ends before the node is ready.
    ///
    /// # Errors
    /// `Stopped`: it did. See [`NodeError`].
    pub fn start_unless(
        options: NodeOptions,
        told_to_stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, NodeError> {
        control::start(options, told_to_stop)
    }

    /// The store of this node.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// Figures of this process now.
    pub fn figures(&self) -> NodeFigures {
        (self.parts.figures)()
    }

    /// The post of this process.
    pub fn post(&self) -> &Post {
        &self.parts.post
    }

    /// The Scheduler that this node follows.
    pub fn leader(&self) -> Option<Leader> {
        self.parts.scheduler.leader()
    }

    /// What becomes of the other nodes from now on, as this one sees it.
    pub fn changes(&self) -> tokio::sync::broadcast::Receiver<Change> {
        self.parts.directory.changes()
    }

    /// The results that are kept for a tenant, where this node is: in its cluster, or in this process alone.
    pub fn results(&self, tenant: &str) -> ResultClient {
        let results = &self.parts.results;
        ResultClient::new(results.bus.clone(), results.subjects.clone(), tenant)
    }

    /// What keeps executors from starting tasks while the others may hold this node dead.
    pub fn gate(&self) -> &Gate {
        &self.parts.gate
    }

    /// The id of a new job, by this node's clock and random numbers.
    pub fn new_job(&self) -> JobId {
        JobId::made(self.parts.post.clock().unix_ms(), self.random.next_u128())
    }

    /// Runs a program as a job on this node and returns what it returned, with how the job ended.
    ///
    /// # Errors
    /// The program's error, or why the job could not go on.
    pub async fn run<T, P>(
        &self,
        job: JobId,
        name: &str,
        events: Option<EventSink>,
        program: P,
    ) -> (Result<T, JobError>, JobEnd)
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Send + 'static,
    {
        let (tenant, params) = ("local".into(), Default::default());
        let spec = JobSpec { job, tenant, program: name.to_owned(), params, sample_ms: 0, plan_pieces: 0 };
        let value = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&value);
        let program = async move |futures| {
            let value = program(futures).await?;
            *slot.lock() = Some(value);
            Ok(Vec::new())
        };
        let end = self.work_on(spec, false, (events, Words::default()), program).await;
        let value = end.result.clone().map(|_| value.lock().take().expect("without a log its program has run"));
        (value, end)
    }

    /// The same for a program that can be run again: it is logged where this node logs jobs
    /// ([`NodeOptions::logs`]), under `spec`; where it was run before it goes on from there, and where it had ended the value
    /// comes out of the log. `program` is what `spec` says.
    ///
    /// # Errors
    /// As [`run`](Self::run); what is in the way of the log.
    pub async fn run_logged<T, P>(
        &self,
        spec: JobSpec,
        events: Option<EventSink>,
        program: P,
    ) -> (Result<T, JobError>, JobEnd)
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Serialize + DeserializeOwned,
    {
        self.run_told(spec, (events, Words::default()), program).await
    }

    /// The same for a program that is told words while it runs: [`Words::say`] says them.
    ///
    /// # Errors
    /// As [`run_logged`](Self::run_logged).
    pub async fn run_told<T, P>(
        &self,
        spec: JobSpec,
        watched: (Option<EventSink>, Words),
        program: P,
    ) -> (Result<T, JobError>, JobEnd)
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Serialize + DeserializeOwned,
    {
        let program = async move |futures| rmp_serde::to_vec_named(&program(futures).await?).map_err(JobError::program);
        let end = self.work_on(spec, true, watched, program).await;
        let value = end.result.clone().and_then(|bytes| rmp_serde::from_slice(&bytes).map_err(JobError::program));
        (value, end)
    }

    async fn work_on<P>(&self, spec: JobSpec, logged: bool, watched: (Option<EventSink>, Words), program: P) -> JobEnd
    where
        P: AsyncFnOnce(Futures) -> Result<Vec<u8>, JobError> + Send + 'static,
    {
        let (answer, outcome) = oneshot::channel();
        let work: Work = Box::new(move |node| {
            Box::pin(async move {
                let _entered = node.running.enter();
                let program = move |futures| -> LocalBoxFuture<'static, _> { Box::pin(program(futures)) };
                let _ = answer.send(host::run_here(&node, spec, logged, watched, program).await);
            })
        });
        let sent = self.work.as_ref().is_some_and(|queue| queue.send(work).is_ok());
        let end = if sent { outcome.await.ok() } else { None };
        end.unwrap_or_else(|| {
            let reason = self.fatal.lock().clone();
            let reason =
                reason.map_or_else(|| "the node has stopped".to_owned(), |f| format!("{}: {}", f.actor, f.reason));
            JobEnd::failed(JobError::Runtime { reason })
        })
    }

    /// Ends a job of this node.
    pub fn cancel(&self, job: JobId) {
        let owner = self.parts.post.address::<crate::protocol::owner::OwnerMsg>(
            self.parts.post.node(),
            &crate::protocol::owner::actor_name(job),
        );
        // A job that is over cannot be cancelled.
        let _ = owner.send(crate::protocol::owner::OwnerMsg::Cancel);
    }

    /// Waits until the node has ended by itself; the reason, when an actor panicked.
    pub fn join(mut self) -> Option<Fatal> {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.fatal.lock().clone()
    }

    /// Why the node ended, when an actor panicked.
    pub fn fatal(&self) -> Option<Fatal> {
        self.fatal.lock().clone()
    }

    /// Stops the node in order: running tasks end, peers are told, sockets and files are closed.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.work = None;
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shut_down();
    }
}
