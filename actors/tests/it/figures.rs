//! What a job is told of the nodes that worked for it.

use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};

use crate::harness::Cluster;

const BYTES: usize = 10_000_000;
const TASKS: u64 = 200;

#[task(name = "test.make")]
fn make(context: &mut TaskContext<'_>, bytes: usize) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(Some(bytes as u64))?;
    writer.write(&vec![7; bytes])?;
    writer.end_part(1, Default::default());
    Ok(())
}

#[task(name = "test.length")]
fn length(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.block(0).len() as u64)
}

#[task(name = "test.nothing")]
fn nothing(_context: &mut TaskContext<'_>, _number: u64) -> Result<(), TaskError> {
    Ok(())
}

fn on(node: &str) -> TaskOptions {
    let place = Place::Node { node: NodeId::new(node), soft: false };
    TaskOptions { place, ..TaskOptions::default() }
}

/// An object is made on one node and read on the other.
async fn move_bytes(futures: &Futures) -> Result<u64, JobError> {
    let made = futures.submit_with(make, &BYTES, &[], on("other"))?;
    let read = futures.submit_with(length, &(), &[made.arg()], on("host"))?;
    futures.get_value(&read).await
}

/// Small tasks on the other node.
async fn keep_busy(futures: &Futures) -> Result<(), JobError> {
    let tasks = (0..TASKS).map(|number| futures.submit_with(nothing, &number, &[], on("other")));
    futures.wait_all(&tasks.collect::<Result<Vec<_>, _>>()?).await
}

#[test]
fn a_job_counts_what_was_done_for_it_on_all_nodes() {
    let cluster = Cluster::new();
    cluster.start("host");
    cluster.start("other");
    let (host, other) = (NodeId::new("host"), NodeId::new("other"));

    let program = async |futures: Futures| move_bytes(&futures).await;
    let (result, end, _) = cluster.run("host", program);
    assert_eq!(result.unwrap(), BYTES as u64);
    assert!(end.nodes[&other].sent_bytes >= BYTES as u64, "{:?}", end.nodes);
    assert_eq!(end.nodes[&host].received_bytes, end.nodes[&other].sent_bytes);

    // A second job: it ends long before the next figures are due, and what the first one did is not its own.
    let program = async |futures: Futures| keep_busy(&futures).await;
    let (result, end, events) = cluster.run("host", program);
    result.unwrap();
    assert_eq!(end.nodes[&other].sent_bytes, 0);
    assert_eq!(end.nodes[&host].received_bytes, 0);
    assert!(cluster.node("other").figures().sent_bytes >= BYTES as u64, "the node itself counts on");
    let said = end.nodes[&other].control_messages;
    assert!(said >= TASKS, "each completion is a message: {said}");
    assert!(end.nodes[&host].control_messages >= TASKS, "and so is each task");
    assert_eq!(end.control_messages, end.nodes.values().map(|node| node.control_messages).sum::<u64>());
    let last = events.last().unwrap();
    assert!(matches!(last.kind, exobus_actors::event::EventKind::JobFinished { error: None }), "{last:?}");
}
