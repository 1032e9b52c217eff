//! Functions that commit: what they publish was checked before, and a job that they publish for is not cancelled, unless it goes on.

use std::path::PathBuf;
use std::sync::Barrier;

use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, RowHash};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{EdgeShape, JobError};

use crate::harness::Cluster;

/// Makes ten rows of a part.
#[task(name = "test.commits.map")]
fn map(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(Some(10))?;
    writer.write(b"0123456789")?;
    writer.end_part(10, RowHash(10));
    Ok(())
}

/// Says that it has read so many of them.
#[task(name = "test.commits.reduce")]
fn reduce(context: &mut TaskContext<'_>, rows: u64) -> Result<u64, TaskError> {
    context.consumed(0, rows, rows, RowHash(u128::from(rows)));
    Ok(rows)
}

/// Publishes.
#[task(name = "test.commits.publish", commits = true)]
fn publish(_context: &mut TaskContext<'_>, file: PathBuf) -> Result<(), TaskError> {
    Ok(std::fs::write(file, "published")?)
}

/// Two who wait for each other, twice.
static MEETING: Barrier = Barrier::new(2);

/// Publishes when it has been met twice.
#[task(name = "test.commits.publish_late", commits = true)]
fn publish_late(context: &mut TaskContext<'_>, file: PathBuf) -> Result<(), TaskError> {
    MEETING.wait();
    MEETING.wait();
    context.check_cancelled()?;
    Ok(std::fs::write(file, "published")?)
}

/// Where the next one is met.
static BUSY: Barrier = Barrier::new(2);

/// Runs until it is cancelled.
#[task(name = "test.commits.goes_on")]
fn goes_on(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    BUSY.wait();
    while !context.cancelled() {
        std::thread::yield_now();
    }
    Err(TaskError::Cancelled)
}

#[test]
fn what_does_not_balance_is_not_published() {
    let cluster = Cluster::new();
    cluster.start("n");
    let folder = tempfile::tempdir().unwrap();
    for (rows, is_published) in [(9_u64, false), (10, true)] {
        let file = folder.path().join(rows.to_string());
        let target = file.clone();
        let program = async move |futures: Futures| {
            let mapped = futures.submit(map, &(), &[])?;
            let shuffled = futures.closed_edge(EdgeShape::new("map -> reduce", 1), std::slice::from_ref(&mapped))?;
            let reduced = futures.submit(reduce, &rows, &[shuffled.part(0)])?;
            futures.ready(&reduced).await?;
            futures.ready(&futures.submit(publish, &target, &[reduced.arg()])?).await
        };
        let (result, ..) = cluster.run("n", program);
        assert_eq!(file.exists(), is_published, "{rows} of 10 rows were read: {result:?}");
        match result {
            Ok(()) => assert!(is_published),
            Err(error) => assert!(matches!(error, JobError::Conservation { .. }) && !is_published, "{error}"),
        }
    }
}

#[test]
fn a_job_that_is_cancelled_while_it_is_committed_ends_well() {
    let cluster = Cluster::new();
    cluster.start("n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let (node, target, job) = (cluster.node("n"), file.clone(), JobId::new());
    let program = async move |futures: Futures| futures.ready(&futures.submit(publish_late, &target, &[])?).await;
    let running = std::thread::scope(|scope| {
        let run = || futures::executor::block_on(node.run(job, "test", None, program)).0;
        #[allow(clippy::disallowed_methods, reason = "a test that waits for a job on a thread of its own")]
        let running = scope.spawn(run);
        MEETING.wait();
        node.cancel(job);
        // Another job comes and goes where the Owner lives: that has heard of the cancel meanwhile.
        let other = node.run(JobId::new(), "other", None, async |_| Ok(()));
        assert_eq!(futures::executor::block_on(other).0, Ok(()));
        MEETING.wait();
        running.join().unwrap()
    });
    assert_eq!(running, Ok(()));
    assert!(file.exists());
}

#[test]
fn a_job_that_goes_on_after_a_commit_is_cancelled_and_what_it_published_stays() {
    let cluster = Cluster::new();
    cluster.start("n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let (node, target, job) = (cluster.node("n"), file.clone(), JobId::new());
    let program = async move |futures: Futures| {
        futures.ready(&futures.submit(publish, &target, &[])?).await?;
        futures.ready(&futures.submit(goes_on, &(), &[])?).await
    };
    let result = std::thread::scope(|scope| {
        let run = || futures::executor::block_on(node.run(job, "test", None, program)).0;
        #[allow(clippy::disallowed_methods, reason = "a test that waits for a job on a thread of its own")]
        let running = scope.spawn(run);
        BUSY.wait();
        node.cancel(job);
        running.join().unwrap()
    });
    assert_eq!(result, Err(JobError::Cancelled));
    assert!(file.exists());
}
