//! Nodes whose network is memory and whose random numbers have a seed.

use std::sync::Arc;

use exobus_actors::event::EventKind;
use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::random::SeededRandom;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_actors::transfer::network::{ChaosNetwork, MemoryNetwork};
use exobus_store::{Clock, SystemClock};

use crate::harness::{Cluster, MEMORY_BYTES};

const BYTES: u64 = 10_000_000;

#[task(name = "test.pattern")]
fn pattern(context: &mut TaskContext<'_>, bytes: u64) -> Result<(), TaskError> {
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let writer = context.output_sized(bytes)?;
    writer.begin_part(Some(bytes))?;
    writer.write(&content)?;
    writer.end_part(1, Default::default());
    Ok(())
}

#[task(name = "test.add_up")]
fn add_up(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.block(0).iter().map(|byte| u64::from(*byte)).sum())
}

fn on(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

/// Made on one node, read on the other.
async fn move_bytes(futures: Futures) -> Result<u64, JobError> {
    let made = futures.submit_with(pattern, &BYTES, &[], on("other"))?;
    futures.get_value(&futures.submit_with(add_up, &(), &[made.arg()], on("host"))?).await
}

fn two_nodes(network: &ChaosNetwork) -> Cluster {
    let cluster = Cluster::over(Arc::new(network.clone()));
    cluster.start("host");
    cluster.start("other");
    cluster
}

#[test]
fn an_object_moves_between_nodes_without_a_socket() {
    let network = ChaosNetwork::new(Arc::new(MemoryNetwork::new()));
    let cluster = two_nodes(&network);
    let (sum, end, _) = cluster.run("host", move_bytes);
    assert_eq!(sum.unwrap(), (0..BYTES).map(|at| at % 251).sum::<u64>());
    assert!(end.nodes[&NodeId::new("other")].sent_bytes >= BYTES, "{:?}", end.nodes);
    // It was this network: what it made can be cut.
    network.cut_all();
    assert!(network.cuts() > 0);
}

#[test]
fn a_connection_cut_in_a_body_costs_another_fetch_and_no_attempt() {
    let network = ChaosNetwork::new(Arc::new(MemoryNetwork::new()));
    let cluster = two_nodes(&network);
    network.cut_after(BYTES / 2);
    let (sum, _, events) = cluster.run("host", move_bytes);
    assert_eq!(sum.unwrap(), (0..BYTES).map(|at| at % 251).sum::<u64>());
    assert_eq!(network.cuts(), 1);
    let failed = events.iter().any(|event| matches!(event.kind, EventKind::TaskFailed { .. }));
    assert!(!failed, "{events:?}");
}

/// The time of the machine, on a day that never ends.
struct OneDay(SystemClock);

impl Clock for OneDay {
    fn now(&self) -> std::time::Duration {
        self.0.now()
    }

    fn unix_ms(&self) -> u64 {
        1_800_000_000_000
    }
}

/// The ids of two jobs, and what each of them learned.
fn run(seed: u64) -> Vec<(JobId, [u64; 3])> {
    let spill = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::alone(1, MEMORY_BYTES);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    options.clock = Arc::new(OneDay(SystemClock::new()));
    options.random = Arc::new(SeededRandom::new(seed));
    let node = Node::start(options).unwrap();
    let run = |_| {
        let job = node.new_job();
        let program = async |futures: Futures| Ok([(); 3].map(|()| futures.random()));
        (job, futures::executor::block_on(node.run(job, "test", None, program)).0.unwrap())
    };
    (0..2).map(run).collect()
}

#[test]
fn a_seed_gives_the_same_jobs_and_the_same_random_numbers() {
    let (first, again, other) = (run(7), run(7), run(8));
    assert_eq!(first, again);
    assert_ne!(first[0].0, first[1].0, "a job has an id of its own");
    assert_ne!(first[0].1, first[1].1);
    assert_ne!(first[0].0, other[0].0);
    assert_ne!(first[0].1, other[0].1);
    // Version and variant of a UUID that sorts by time.
    let id = first[0].0.to_string();
    assert!(id.starts_with(&format!("{:012x}7", 1_800_000_000_000_u64)), "{id}");
}
