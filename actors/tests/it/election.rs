//! Several nodes that may become the Scheduler.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exobus_actors::client::{Client, ClientOptions};
use exobus_actors::futures::Futures;
use exobus_actors::ids::{Epoch, NodeId};
use exobus_actors::node::Node;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskOptions};
use exobus_bus::chaos::{Chaos, Direction, Faults};

use crate::harness::{Cluster, until};

#[task(name = "test.add_one")]
fn add_one(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number + 1)
}

/// Runs so many tasks, of which none was run before.
async fn add_up(futures: &Futures, numbers: std::ops::Range<u64>) -> Result<u64, JobError> {
    let submit = |number| futures.submit_with(add_one, &number, &[], TaskOptions::default());
    let mut sum = 0;
    for added in numbers.map(submit).collect::<Result<Vec<_>, _>>()? {
        sum += futures.get_value::<u64>(&added).await?;
    }
    Ok(sum)
}

fn scheduler(node: &Node) -> String {
    node.leader().map_or_else(String::new, |leader| leader.node.to_string())
}

fn epoch(node: &Node) -> Epoch {
    node.leader().map_or(Epoch(0), |leader| leader.epoch)
}

#[test]
fn when_the_scheduler_leaves_another_one_follows_and_a_running_job_goes_on() {
    let cluster = Arc::new(Cluster::new());
    for name in ["a", "b"] {
        cluster.start_candidate(name, &cluster.bus);
    }
    cluster.start("c");
    let host = cluster.node("c");
    assert_eq!(scheduler(&host), "a", "the first that was there");
    let before = epoch(&host);
    let (stopping, watched) = (cluster.clone(), host.clone());
    let (sum, ..) = cluster.run("c", async move |futures: Futures| {
        let first = add_up(&futures, 0..10).await?;
        // Who holds the node stops it, and nobody else does while the program waits.
        std::thread::Builder::new().spawn(move || stopping.stop("a")).unwrap();
        until(|| scheduler(&watched) == "b").await;
        Ok(first + add_up(&futures, 10..100).await?)
    });
    assert_eq!(sum.unwrap(), (1..=100).sum::<u64>());
    assert!(epoch(&host) > before);
    // Another job, from its start.
    let (sum, ..) = cluster.run("c", async |futures: Futures| add_up(&futures, 0..10).await);
    assert_eq!(sum.unwrap(), (1..=10).sum::<u64>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_cannot_renew_its_lease_is_succeeded_and_does_not_come_back() {
    let cluster = Arc::new(Cluster::new());
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    cluster.start_candidate("a", &chaos.bus());
    cluster.start_candidate("b", &cluster.bus);
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    assert_eq!((scheduler(&a), scheduler(&b)), ("a".into(), "a".into()));
    // Only the way to the keys is cut: both hear each other.
    let keys = format!("{}.>", cluster.subjects.kv("scheduler").unwrap());
    chaos.cut(Direction::Both, Some(keys.parse().unwrap()));
    until(|| scheduler(&a) == "b" && scheduler(&b) == "b").await;
    assert!(chaos.stats().cut_outgoing > 0);
    let before = epoch(&b);
    chaos.heal();
    // It is a candidate again, and no more than that.
    let host = cluster.node("a");
    let program = async |futures: Futures| add_up(&futures, 0..50).await;
    let (sum, _) = host.run(host.new_job(), "test", None, program).await;
    assert_eq!(sum.unwrap(), (1..=50).sum::<u64>());
    assert_eq!((epoch(&a), epoch(&b)), (before, before));
}

/// The Scheduler is away and nobody follows it: what was lent goes on.
#[tokio::test(flavor = "multi_thread")]
async fn leases_go_on_while_no_scheduler_speaks() {
    let cluster = Arc::new(Cluster::new());
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    cluster.start_candidate("a", &chaos.bus());
    let host = cluster.node("a");
    let keys = format!("{}.>", cluster.subjects.kv("scheduler").unwrap());
    let (cut, watched, told) = (chaos.clone(), host.clone(), Arc::new(Mutex::new(None)));
    let seen = told.clone();
    let program = async move |futures: Futures| {
        let first = add_up(&futures, 0..10).await?;
        cut.cut(Direction::Both, Some(keys.parse().unwrap()));
        until(|| watched.leader().is_none()).await;
        let second = add_up(&futures, 10..50).await?;
        *seen.lock().unwrap() = Some(watched.leader().map(|leader| leader.node));
        Ok(first + second)
    };
    let (sum, _) = host.run(host.new_job(), "test", None, program).await;
    assert_eq!(sum.unwrap(), (1..=50).sum::<u64>());
    assert_eq!(*told.lock().unwrap(), Some(None::<NodeId>), "it was all done without a Scheduler");
    chaos.heal();
    until(|| host.leader().is_some()).await;
}

/// The disk of the keys' server is full: it answers, and takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_looks_for_a_scheduler_hears_why_there_can_be_none() {
    let cluster = Arc::new(Cluster::new());
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    cluster.start_candidate("a", &chaos.bus());
    let host = cluster.node("a");
    let connect = async || {
        let (bus, subjects) = (cluster.bus.clone(), cluster.subjects.clone());
        let options = ClientOptions { deadline: Duration::from_secs(60), ..ClientOptions::new(bus, subjects) };
        Client::connect(options).await
    };
    chaos.set(Faults { disk_full: true, ..Faults::default() });
    until(|| host.leader().is_none()).await;
    let refused = connect().await.err().expect("there is no Scheduler").to_string();
    assert!(refused.contains("a cannot take the lease") && refused.contains("stores nothing"), "{refused}");
    chaos.set(Faults::default());
    until(|| host.leader().is_some()).await;
    connect().await.expect("there is one again");
}
