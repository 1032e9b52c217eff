//! Nodes that do not all have the same functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;

use exobus_actors::event::{Event, EventKind};
use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Place, TaskOptions};

use crate::harness::Cluster;

/// Some nodes lack it.
#[task(name = "test.scarce")]
fn scarce(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number * 3)
}

/// All nodes have it.
#[task(name = "test.common")]
fn common(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number * 2)
}

/// Returns when two of it run at the same time: on one-executor nodes that takes two nodes.
#[task(name = "test.meet")]
fn meet(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    static MEETING: Barrier = Barrier::new(2);
    MEETING.wait();
    Ok(number)
}

/// Where the tasks of each stage were placed.
fn placed(events: &[Event]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut placed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for event in events {
        match &event.kind {
            EventKind::TaskPlaced { stage, .. } => {
                placed.entry(&**stage).or_default().insert(event.node.as_str());
            }
            EventKind::TaskFailed { error, .. } => panic!("an attempt failed on {}: {error}", event.node),
            _ => {}
        }
    }
    placed
}

fn spread() -> TaskOptions {
    TaskOptions { place: Place::Spread, ..TaskOptions::default() }
}

#[test]
fn tasks_go_only_to_nodes_that_have_their_function() {
    let cluster = Cluster::new();
    cluster.start_without("bare", &["test.scarce"]);
    cluster.start("able");
    let program = async |futures: Futures| {
        let mut sum = 0;
        // Alternately, so that neither kind may hold up the other.
        let mut tasks = Vec::new();
        for number in 0..40_u64 {
            tasks.push(futures.submit_with(scarce, &number, &[], spread())?);
            tasks.push(futures.submit_with(common, &number, &[], spread())?);
        }
        for task in &tasks {
            sum += futures.get_value::<u64>(task).await?;
        }
        Ok(sum)
    };
    let (result, _, events) = cluster.run("bare", program);
    assert_eq!(result.unwrap(), (0..40).map(|number| number * 5).sum::<u64>());
    let placed = placed(&events);
    assert_eq!(placed["test.scarce"], BTreeSet::from(["able"]));
    assert_eq!(placed["test.common"], BTreeSet::from(["able", "bare"]));
}

#[test]
fn a_node_that_joins_later_gets_what_it_has_and_nothing_else() {
    let cluster = Cluster::new();
    cluster.start("first");
    let (started, at_start) = std::sync::mpsc::channel();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let program = async move |futures: Futures| {
        // The job has seen the cluster as it was.
        assert_eq!(futures.nodes().len(), 1);
        started.send(()).unwrap();
        gone.await.unwrap();
        let tasks = [0_u64, 1].map(|number| futures.submit_with(meet, &number, &[], spread()));
        let mut sum = 0;
        for task in tasks {
            sum += futures.get_value::<u64>(&task?).await?;
        }
        Ok(sum)
    };
    let (result, _, events) = std::thread::scope(|threads| {
        let cluster = &cluster;
        let running = threads.spawn(move || cluster.run("first", program));
        at_start.recv().unwrap();
        cluster.start_without("bare", &["test.meet"]);
        cluster.start("able");
        go.send(()).unwrap();
        running.join().unwrap()
    });
    assert_eq!(result.unwrap(), 1);
    assert_eq!(placed(&events)["test.meet"], BTreeSet::from(["able", "first"]));
}
