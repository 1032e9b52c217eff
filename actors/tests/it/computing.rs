//! What programs compute is in nobody's way, and what comes of it is theirs alone.

use std::sync::mpsc;
use std::time::Duration;

use exobus_actors::event::EventKind;
use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::owner::{self, OwnerMsg, Why};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};

use crate::common::run_on;
use crate::harness::{Cluster, MEMORY_BYTES, until, until_async};

#[task(name = "test.doubles", deterministic = true)]
fn doubles(_: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(2 * number)
}

/// Waits for tasks on two nodes, one after the other.
async fn double_on(futures: &Futures, nodes: [&str; 2]) -> Result<Vec<u64>, JobError> {
    let mut doubled = Vec::new();
    for (number, node) in (0..).zip(nodes) {
        let place = Place::Node { node: NodeId::new(node), soft: false };
        let options = TaskOptions { place, ..TaskOptions::default() };
        doubled.push(futures.get_value(&futures.submit_with(doubles, &number, &[], options)?).await?);
    }
    Ok(doubled)
}

async fn why(node: &Node, job: JobId) -> Option<Why> {
    let owner = node.post().address::<OwnerMsg>(node.post().node(), &owner::actor_name(job));
    owner.ask(|reply| OwnerMsg::Why { ask: true, reply }, Duration::from_secs(30)).await.ok()
}

/// The program of a job that computes until it is told something, which it returns.
fn computes_until(told: mpsc::Receiver<u64>) -> impl AsyncFnOnce(Futures) -> Result<u64, JobError> + Send {
    async move |futures: Futures| futures.compute(move || told.recv().unwrap_or_default()).await
}

#[tokio::test]
async fn a_program_that_computes_is_in_no_other_jobs_way() {
    let cluster = Cluster::new();
    cluster.start("host");
    cluster.start("other");
    let host = cluster.node("host");
    let (tell, told) = mpsc::channel();
    let (node, job) = (host.clone(), host.new_job());
    let computing = tokio::spawn(async move { node.run(job, "computes", None, computes_until(told)).await.0 });
    // The watchdog of the job knows of it, and answers while it computes.
    until_async(async || {
        why(&host, job).await.is_some_and(|why| why.line().contains("it computes on thread exobus-comp-"))
    })
    .await;
    // The other one has its leases, its tasks and its calls meanwhile, and its program learns which nodes there are.
    let other = async |futures: Futures| {
        assert_eq!(futures.nodes().len(), 2);
        double_on(&futures, ["host", "other"]).await
    };
    let (doubled, _) = host.run(host.new_job(), "other", None, other).await;
    assert_eq!(doubled, Ok(vec![0, 2]));
    // So has another job of this one's thread that computes itself.
    let pure = async |futures: Futures| futures.compute_pure(|| 5_u64).await;
    assert_eq!(host.run(host.new_job(), "pure", None, pure).await.0, Ok(5));
    assert!(!computing.is_finished());
    tell.send(7).unwrap();
    assert_eq!(computing.await.unwrap(), Ok(7));
}

fn alone(spill: &tempfile::TempDir) -> Node {
    let mut options = NodeOptions::alone(1, MEMORY_BYTES);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    Node::start(options).unwrap()
}

#[tokio::test]
async fn a_program_that_never_stops_computing_is_cancelled_and_its_thread_is_named() {
    let spill = tempfile::tempdir().unwrap();
    let node = std::sync::Arc::new(alone(&spill));
    // It is told nothing before the end of the test.
    let (tell, told) = mpsc::channel();
    let job = node.new_job();
    let (events, running) = {
        let (send, events) = mpsc::channel();
        let sink = exobus_actors::event::EventSink::new(move |event| drop(send.send(event)));
        let node = node.clone();
        (events, tokio::spawn(async move { node.run(job, "test", Some(sink), computes_until(told)).await.0 }))
    };
    let mut line = String::new();
    until_async(async || {
        line = why(&node, job).await.map(|why| why.line()).unwrap_or_default();
        line.contains("it computes on ")
    })
    .await;
    let thread = line.split_whitespace().find(|word| word.starts_with("exobus-comp-")).unwrap().to_owned();
    node.cancel(job);
    assert_eq!(running.await.unwrap(), Err(JobError::Cancelled));
    let notes = events.try_iter().filter_map(|event| match event.kind {
        EventKind::Note { text } => Some(text),
        _ => None,
    });
    let left = format!("thread {thread} of this node computes for the job still, until its function returns");
    assert_eq!(notes.collect::<Vec<_>>(), [left]);
    // Others notice nothing, and neither does the end of the node.
    assert_eq!(
        node.run(node.new_job(), "other", None, async |futures| double_on(&futures, ["local"; 2]).await).await.0,
        Ok(vec![0, 2])
    );
    std::sync::Arc::into_inner(node).expect("nobody else has it").stop();
    tell.send(7).expect("the thread is there still, and waits");
}

#[test]
fn a_computation_that_panics_fails_its_job_only_with_its_words() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let (result, ..) =
        run_on(&node, async |futures: Futures| futures.compute(|| -> u64 { panic!("the plan has {} parts", 0) }).await);
    assert_eq!(result, Err(JobError::Panic { message: "the plan has 0 parts".to_owned() }));
    assert_eq!(node.fatal().map(|fatal| fatal.reason), None);
    assert_eq!(run_on(&node, async |futures: Futures| double_on(&futures, ["local"; 2]).await).0, Ok(vec![0, 2]));
}

#[tokio::test]
async fn of_many_computations_of_a_job_a_few_run_at_a_time_and_all_come_to_their_end() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Arc::new(parking_lot::Mutex::new(gone));
    let job = node.run(node.new_job(), "test", None, async move |futures: Futures| {
        let computations = (0..40_u64).map(|number| {
            let gone = gone.clone();
            futures.compute(move || {
                MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Until nobody holds them back any more.
                let _ = gone.lock().recv();
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                number
            })
        });
        all(computations).await
    });
    let held = async {
        until(|| RUNNING.load(Ordering::SeqCst) == 8).await;
        drop(go);
    };
    let ((sums, _), ()) = futures::join!(job, held);
    assert_eq!(sums, Ok((0..40).collect()));
    assert_eq!(MOST.load(Ordering::SeqCst), 8);
}

async fn all(
    computations: impl Iterator<Item = impl Future<Output = Result<u64, JobError>>>,
) -> Result<Vec<u64>, JobError> {
    futures::future::try_join_all(computations).await
}
