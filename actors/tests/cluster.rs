//! Two nodes in one process, joined by the in-process bus, objects going between them over TCP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::ids::{Attempt, JobId, NodeId, RowHash};
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_bus::{Bus, Subjects};
use exobus_store::StoreOptions;

/// Makes an object of `bytes` bytes, each the remainder of its position.
#[task(name = "test.make")]
fn make(context: &mut TaskContext<'_>, bytes: u64) -> Result<(), TaskError> {
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let writer = context.output_sized(bytes)?;
    writer.begin_part(Some(bytes))?;
    writer.write(&content)?;
    writer.end_part(0, RowHash::default());
    Ok(())
}

/// Adds up the bytes of a streamed argument.
#[task(name = "test.sum", arguments = [stream])]
fn sum(context: &mut TaskContext<'_>, _nothing: ()) -> Result<u64, TaskError> {
    let mut total = 0;
    for mut reader in context.readers(0) {
        while let Some(chunk) = reader.next_chunk()? {
            total += chunk.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }
    Ok(total)
}

/// Gives its parameter back; with `stuck`, the first attempt runs until it is cancelled, and then completes all the same.
#[task(name = "test.stuck_at_first", deterministic = true)]
fn stuck_at_first(context: &mut TaskContext<'_>, (number, stuck): (u64, bool)) -> Result<u64, TaskError> {
    while stuck && context.attempt() == Attempt::nth(1) && !context.cancelled() {
        std::thread::yield_now();
    }
    Ok(number)
}

fn node(name: &str, bus: &Bus, scheduler: bool, spill: &tempfile::TempDir, memory_bytes: u64) -> Node {
    let cluster = ClusterOptions {
        bus: bus.clone(),
        subjects: Subjects::new("test").unwrap(),
        scheduler,
        membership: MembershipOptions::default(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        join_deadline: Duration::from_secs(10),
    };
    let directory = spill.path().join(name);
    std::fs::create_dir(&directory).unwrap();
    let store = StoreOptions { memory_bytes, spill_dirs: vec![directory], ..StoreOptions::default() };
    let alone = NodeOptions::alone(1, memory_bytes);
    Node::start(NodeOptions { name: NodeId::new(name), store, cluster: Some(cluster), ..alone }).unwrap()
}

/// The second node has a fraction of the memory that its argument takes.
#[tokio::test]
async fn a_streamed_argument_of_another_node_is_read_and_its_copy_deleted() {
    const BYTES: u64 = 40 << 20;
    let spill = tempfile::tempdir().unwrap();
    let bus = Bus::in_process();
    let first = node("first", &bus, true, &spill, 256 << 20);
    let second = Arc::new(node("second", &bus, false, &spill, 16 << 20));
    let watched = second.clone();
    let program = async move |futures: exobus_actors::futures::Futures| -> Result<u64, JobError> {
        let at = |node: &str| TaskOptions {
            place: Place::Node { node: NodeId::new(node), soft: false },
            ..TaskOptions::default()
        };
        let made = (0..2).map(|n| futures.submit_with(make, &(BYTES / 2 + n), &[], at("first")));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&made).await?;
        let before = watched.store().stats().objects;
        let set = futures.set(&made)?;
        let total: u64 = futures.get_value(&futures.submit_with(sum, &(), &[set.arg()], at("second"))?).await?;
        // Only the sum itself is left there, or, once the program has let it go, nothing.
        let stats = watched.store().stats();
        assert!(stats.objects <= before + 1, "{} objects, {before} before", stats.objects);
        assert!(stats.written_through_bytes + stats.spilled_bytes > 0, "the copies did not fit into memory");
        Ok(total)
    };
    let (total, _) = first.run(JobId::from_u128(7), "test", None, program).await;
    let expected: u64 =
        [BYTES / 2, BYTES / 2 + 1].iter().map(|bytes| (0..*bytes).map(|at| at % 251).sum::<u64>()).sum();
    assert_eq!(total.unwrap(), expected);
    drop(second);
    drop(first);
}

/// The attempt that is stuck ends only when it is cancelled: without a second one that wins, this test does not end.
#[tokio::test]
async fn a_task_that_is_stuck_is_done_by_a_second_attempt_on_the_other_node() {
    let spill = tempfile::tempdir().unwrap();
    let bus = Bus::in_process();
    let first = node("first", &bus, true, &spill, 64 << 20);
    let second = node("second", &bus, false, &spill, 64 << 20);
    let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
    let events = heard.clone();
    let sink = EventSink::new(move |event| events.lock().unwrap().push(event));
    let program = async move |futures: exobus_actors::futures::Futures| -> Result<u64, JobError> {
        let options = TaskOptions { place: Place::Spread, ..TaskOptions::default() };
        let submit = |number: u64, stuck| futures.submit_with(stuck_at_first, &(number, stuck), &[], options.clone());
        let usual = (0..20).map(|number| submit(number, false)).collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&usual).await?;
        futures.get_value(&submit(42, true)?).await
    };
    let (value, _) = first.run(JobId::from_u128(8), "test", Some(sink), program).await;
    assert_eq!(value, Ok(42));
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let copied = heard.iter().find_map(|event| match &event.kind {
        EventKind::TaskSpeculated { task, attempt, slow, .. } => {
            Some((*task, *attempt, slow.clone(), event.node.clone()))
        }
        _ => None,
    });
    let (task, attempt, slow, elsewhere) = copied.expect("a copy was started");
    assert_ne!(slow, elsewhere);
    let won = heard.iter().find_map(|event| match &event.kind {
        EventKind::TaskFinished { task: done, attempt, .. } if *done == task => Some((*attempt, event.node.clone())),
        _ => None,
    });
    assert_eq!(won, Some((attempt, elsewhere)), "the second attempt");
    // What the first one made in the end goes with the job, or was freed before.
    for node in [&first, &second] {
        for _ in 0..500 {
            if node.store().stats().objects == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(node.store().stats().objects, 0);
    }
}
