//! A job that stands still says why, and says when it goes on. Time is that of a clock that is set forward by hand.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::owner::{self, OwnerMsg, Standing, Why};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, Resources, TaskOptions};
use exobus_actors::transfer::network::{Listener, MemoryNetwork, Network, Socket};
use exobus_store::{Clock, SystemClock};
use parking_lot::Mutex;

use crate::harness::{Cluster, MEMORY_BYTES};

/// The machine's clock, and what it was set forward by.
#[derive(Default)]
struct SetForward(SystemClock, AtomicU64);

impl SetForward {
    fn by(&self, seconds: u64) {
        self.1.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SetForward {
    fn now(&self) -> Duration {
        self.0.now() + Duration::from_secs(self.1.load(Ordering::SeqCst))
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }
}

static HELD: AtomicBool = AtomicBool::new(true);

/// Runs until it is let go.
#[task(name = "test.held")]
fn held(context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    run_while(context, || HELD.load(Ordering::SeqCst));
    Ok(number)
}

/// A test that fails leaves nothing that runs for ever.
fn run_while(context: &TaskContext<'_>, so: impl Fn() -> bool) {
    let clock = SystemClock::new();
    while so() && !context.cancelled() && clock.now() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
}

/// Runs until it is cancelled.
#[task(name = "test.stays")]
fn stays(context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    run_while(context, || true);
    Ok(number)
}

#[task(name = "test.adds", deterministic = true)]
fn adds(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.block(0).len() as u64)
}

#[task(name = "test.counts", deterministic = true)]
fn counts(context: &mut TaskContext<'_>, outputs: u64) -> Result<(), TaskError> {
    for number in 0..outputs {
        write(context, &number.to_be_bytes())?;
        context.next_output()?;
    }
    Ok(())
}

#[task(name = "test.eight_bytes", deterministic = true)]
fn eight_bytes(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    write(context, &[7; 8])
}

fn write(context: &mut TaskContext<'_>, content: &[u8]) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(None)?;
    writer.write(content)?;
    writer.end_part(1, Default::default());
    Ok(())
}

struct Alone {
    node: Arc<Node>,
    clock: Arc<SetForward>,
    events: Arc<Mutex<Vec<Event>>>,
    job: JobId,
    _spill: tempfile::TempDir,
}

impl Alone {
    fn new() -> Self {
        let (spill, clock) = (tempfile::tempdir().unwrap(), Arc::<SetForward>::default());
        let mut options = NodeOptions::alone(1, MEMORY_BYTES);
        options.store.spill_dirs = vec![spill.path().to_owned()];
        options.clock = clock.clone();
        let node = Arc::new(Node::start(options).unwrap());
        let job = node.new_job();
        Self { node, clock, events: Arc::default(), job, _spill: spill }
    }

    fn run<T, P>(&self, program: P) -> impl Future<Output = Result<T, JobError>> + use<T, P>
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Send + 'static,
    {
        let (events, node, job) = (self.events.clone(), self.node.clone(), self.job);
        async move {
            let sink = EventSink::new(move |event| events.lock().push(event));
            node.run(job, "test", Some(sink), program).await.0
        }
    }

    /// The first news of this kind.
    async fn news<T>(&self, find: impl Fn(&EventKind) -> Option<T>) -> T {
        let mut found = None;
        crate::harness::until(|| {
            found = self.events.lock().iter().find_map(|event| find(&event.kind));
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    async fn placed(&self) {
        self.news(|kind| matches!(kind, EventKind::TaskPlaced { .. }).then_some(())).await;
    }

    /// The wait that is told after `seconds` or more without progress. That a task runs is seen after a while only, and
    /// is progress: so time goes on until nothing else happens.
    async fn told_after(&self, seconds: u64) -> String {
        loop {
            self.clock.by(seconds);
            let reason = |kind: &EventKind| match kind {
                EventKind::Waiting { reason, for_ms, .. } if *for_ms >= seconds * 1000 => Some(reason.clone()),
                _ => None,
            };
            if let Ok(reason) = tokio::time::timeout(Duration::from_secs(3), self.news(reason)).await {
                return reason;
            }
        }
    }
}

async fn why_of(node: &Node, job: JobId, ask: bool) -> Why {
    let owner = node.post().address::<OwnerMsg>(node.post().node(), &owner::actor_name(job));
    owner.ask(|reply| OwnerMsg::Why { ask, reply }, Duration::from_secs(30)).await.unwrap()
}

#[tokio::test]
async fn a_task_that_does_not_end_is_named_and_so_is_the_end_of_the_wait() {
    HELD.store(true, Ordering::SeqCst);
    let alone = Alone::new();
    let running = tokio::spawn(alone.run(async |futures: Futures| {
        let first = futures.submit(held, &7, &[])?;
        futures.get_value::<u64>(&futures.submit(adds, &(), &[first.arg()])?).await
    }));
    alone.placed().await;
    let reason = alone.told_after(61).await;
    let (path, rest) = reason.split_once(" <- task ").unwrap_or_else(|| panic!("{reason}"));
    assert_eq!(path, "job waits for test.adds (1 of 1 tasks) <- its arguments: test.held (1 of 1 tasks)");
    assert!(rest.ends_with(" <- it runs there") && rest.contains("attempt 1 on local for "), "{reason}");

    let why = why_of(&alone.node, alone.job, true).await;
    assert_eq!(why.standing, Standing::Stalled);
    assert!(why.still_ms >= 60_000, "{why:?}");

    HELD.store(false, Ordering::SeqCst);
    assert!(running.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_job_says_that_it_goes_on() {
    let alone = Alone::new();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(alone.run(async |futures: Futures| {
        gone.await.unwrap();
        futures.ready(&futures.submit(eight_bytes, &(), &[])?).await?;
        std::future::pending::<Result<(), JobError>>().await
    }));
    alone.told_after(61).await;
    go.send(()).unwrap();
    let after_ms = alone
        .news(|kind| match kind {
            EventKind::GoesOn { after_ms, .. } => Some(*after_ms),
            _ => None,
        })
        .await;
    assert!(after_ms >= 61_000, "{after_ms}");
    alone.node.cancel(alone.job);
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
}

#[tokio::test]
async fn a_program_that_does_not_read_its_results_is_no_stall() {
    let alone = Alone::new();
    let running = tokio::spawn(alone.run(async |futures: Futures| {
        let stream = futures.submit_stream(counts, &4, &[], TaskOptions::default())?;
        std::future::pending::<()>().await;
        drop(stream);
        Ok(())
    }));
    alone.news(|kind| matches!(kind, EventKind::TaskFinished { .. }).then_some(())).await;
    let reason = alone.told_after(70).await;
    assert!(reason.starts_with("the program itself: it has not called the futures API for "), "{reason}");
    assert!(reason.ends_with(" while 4 results are unread"), "{reason}");
    let why = why_of(&alone.node, alone.job, false).await;
    assert_eq!(why.standing, Standing::Program);
    alone.node.cancel(alone.job);
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
}

#[tokio::test]
async fn a_task_that_is_queued_behind_another_blames_the_other() {
    let alone = Alone::new();
    let running = tokio::spawn(alone.run(async |futures: Futures| {
        let tasks = (0..3).map(|number| futures.submit(stays, &number, &[])).collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&tasks).await
    }));
    alone.placed().await;
    let reason = alone.told_after(15).await;
    assert!(reason.starts_with("job waits for test.stays (3 of 3 tasks) <- task "), "{reason}");
    assert!(reason.ends_with(" <- it runs there"), "{reason}");
    assert!(!reason.contains(';'), "one cause: {reason}");
    alone.node.cancel(alone.job);
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
}

/// One node with one cpu is a job's, so that nothing is left for the other.
#[tokio::test]
async fn a_job_that_others_leave_nothing_says_so() {
    let alone = Alone::new();
    let first = alone.node.new_job();
    let node = alone.node.clone();
    let program = async |futures: Futures| futures.ready(&futures.submit(stays, &1, &[])?).await;
    let other = tokio::spawn(async move { node.run(first, "other", None, program).await.0 });
    crate::harness::until_async(async || {
        why_of_if(&alone.node, first).await.is_some_and(|why| why.line().contains("runs there"))
    })
    .await;
    let all = TaskOptions { resources: Resources::cpu(1000), ..TaskOptions::default() };
    let running = tokio::spawn(
        alone.run(async move |futures: Futures| futures.ready(&futures.submit_with(stays, &2, &[], all)?).await),
    );
    crate::harness::until_async(async || {
        let Some(why) = why_of_if(&alone.node, alone.job).await else { return false };
        why.line().contains("test.stays (1 of 1 tasks) <- ")
            && (why.line().contains("lease") || why.line().contains("ready there"))
    })
    .await;
    for job in [first, alone.job] {
        alone.node.cancel(job);
    }
    assert_eq!(other.await.unwrap(), Err(JobError::Cancelled));
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
}

async fn why_of_if(node: &Node, job: JobId) -> Option<Why> {
    let owner = node.post().address::<OwnerMsg>(node.post().node(), &owner::actor_name(job));
    owner.ask(|reply| OwnerMsg::Why { ask: true, reply }, Duration::from_secs(30)).await.ok()
}

fn on(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

/// Memory that is taken by somebody who does not give it back.
#[tokio::test]
async fn a_task_without_memory_says_how_much_is_wanted_and_in_use() {
    let alone = Alone::new();
    let stats = alone.node.store().stats();
    let most = stats.budget_bytes - stats.reserve_bytes;
    let running = tokio::spawn(alone.run(async move |futures: Futures| {
        let scratch = |bytes| TaskOptions { scratch_bytes: vec![bytes], ..TaskOptions::default() };
        let first = futures.submit_with(stays, &1, &[], scratch(most * 3 / 4))?;
        let second = futures.submit_with(stays, &2, &[], scratch(most / 2))?;
        futures.wait_all(&[first, second]).await
    }));
    let why = async || why_of_if(&alone.node, alone.job).await.map(|why| why.line()).unwrap_or_default();
    let expected = "staging: memory, ";
    crate::harness::until_async(async || why().await.contains(expected)).await;
    let line = why().await;
    assert!(line.contains("wanted there in all, 0 fetches ahead <- store of local: "), "{line}");
    assert!(line.contains(" in use"), "{line}");
    alone.node.cancel(alone.job);
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
}

/// A network that makes no connection while it is held.
#[derive(Debug)]
struct Holding {
    inner: MemoryNetwork,
    held: Arc<AtomicBool>,
}

impl Network for Holding {
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Socket>> {
        while self.held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.inner.connect(address, timeout)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        self.inner.listen(address)
    }
}

#[tokio::test]
async fn a_fetch_names_the_node_that_it_waits_for() {
    let hold = Arc::<AtomicBool>::default();
    let cluster = Cluster::over(Arc::new(Holding { inner: MemoryNetwork::new(), held: hold.clone() }));
    cluster.start("host");
    cluster.start("other");
    let host = cluster.node("host");
    let job = host.new_job();
    let node = host.clone();
    hold.store(true, Ordering::SeqCst);
    let running = tokio::spawn(async move {
        let program = async |futures: Futures| {
            let made = futures.submit_with(eight_bytes, &(), &[], on("other"))?;
            futures.get_value::<u64>(&futures.submit_with(adds, &(), &[made.arg()], on("host"))?).await
        };
        node.run(job, "test", None, program).await.0
    });
    crate::harness::until_async(async || {
        why_of_if(&host, job)
            .await
            .is_some_and(|why| why.line().contains("staging: other asked for sizes of arguments"))
    })
    .await;
    hold.store(false, Ordering::SeqCst);
    assert_eq!(running.await.unwrap(), Ok(8));
}
