//! What programs put into the store of their node.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use exobus_actors::client::{Client, ClientOptions};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::JobError;
use exobus_actors::{program, task};
use futures::channel::oneshot;
use serde_json::json;

use crate::harness::{Cluster, until};

/// The sum of the bytes of its argument.
#[task(name = "test.sum_of_put")]
fn sum_of_put(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.block(0).iter().map(|byte| u64::from(*byte)).sum())
}

#[test]
fn what_a_job_has_put_stays_though_another_job_with_equal_bytes_ends() {
    const CONTENT: [u8; 10_000] = [3; 10_000];
    let node = Node::start(NodeOptions::alone(2, 32 << 20)).unwrap();
    let (has_put, wait_until_put) = oneshot::channel::<()>();
    let (is_over, wait_until_over) = oneshot::channel::<()>();
    // Whoever of the two puts first: one ends while the other has it still.
    let first = async move |futures: Futures| -> Result<(), JobError> {
        let object = futures.put(&CONTENT)?;
        let freed = futures.put(&[4; 100])?;
        has_put.send(()).unwrap();
        wait_until_over.await.unwrap();
        assert!(*futures.get(&object).await? == CONTENT, "the end of the other job took it");
        assert_eq!(*futures.get(&freed).await?, [4; 100], "the other job has freed it");
        let sum = futures.submit(sum_of_put, &(), &[object.arg()])?;
        assert_eq!(futures.get_value::<u64>(&sum).await?, 30_000);
        Ok(())
    };
    let second = async |futures: Futures| -> Result<(), JobError> {
        let object = futures.put(&CONTENT)?;
        drop(futures.put(&[4; 100])?);
        let sum = futures.submit(sum_of_put, &(), &[object.arg()])?;
        assert_eq!(futures.get_value::<u64>(&sum).await?, 30_000);
        Ok(())
    };
    futures::executor::block_on(async {
        let other = async {
            wait_until_put.await.unwrap();
            node.run(JobId::new(), "second", None, second).await.0.unwrap();
            is_over.send(()).unwrap();
        };
        let (result, ()) = futures::join!(node.run(JobId::new(), "first", None, first), other);
        result.0.unwrap();
    });
}

/// Whether jobs may read what they have put.
static MAY_READ: AtomicBool = AtomicBool::new(false);
/// How often they began.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Puts so many bytes, and says what their sum is when it may read them.
#[program(name = "puts.read_later", version = 1)]
async fn read_later(futures: Futures, bytes: usize) -> Result<u64, JobError> {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let object = futures.put(&vec![3; bytes])?;
    while !MAY_READ.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sum = futures.submit(sum_of_put, &(), &[object.arg()])?;
    futures.get_value(&sum).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_and_lost_is_put_back_or_its_job_begins_again() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let (bus, subjects) = (cluster.bus.clone(), cluster.subjects.clone());
    let client = Client::connect(ClientOptions::new(bus, subjects)).await.unwrap();
    for (bytes, runs) in [(100_u64, 1), (100_000, 2)] {
        MAY_READ.store(false, Ordering::Relaxed);
        BEGUN.store(0, Ordering::Relaxed);
        let spec = json!({ "kind": "puts.read_later", "params": bytes }).to_string();
        let job: JobId = client.submit(spec.as_bytes()).await.unwrap().job.parse().unwrap();
        let node = cluster.node("n1");
        let held = || node.store().inventory(job.group());
        until(|| held().iter().any(|(meta, _)| meta.bytes == bytes)).await;
        node.store().delete(&held().iter().map(|(meta, _)| meta.id).collect::<Vec<_>>());
        MAY_READ.store(true, Ordering::Relaxed);
        let end = client.follow(job, |_| {}, std::future::pending()).await.unwrap();
        assert_eq!(end.value::<u64>(), Ok(3 * bytes), "{bytes} bytes");
        assert_eq!(BEGUN.load(Ordering::Relaxed), runs, "{bytes} bytes");
    }
}
