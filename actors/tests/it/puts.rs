//! What programs put into the store of their node.

use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::JobError;
use futures::channel::oneshot;

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
