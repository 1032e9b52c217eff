//! A task that nothing can run is refused with the reason, by a node that is alone as by a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError, functions};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, Resources, TaskOptions};

use crate::common::run_on;
use crate::harness::Cluster;

#[task(name = "test.fits")]
fn fits(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number + 1)
}

/// No node of these tests offers it.
#[task(name = "test.nowhere")]
fn nowhere(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number)
}

/// Longer than any refusal takes: who runs into it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn with(resources: Resources) -> TaskOptions {
    TaskOptions { resources, ..TaskOptions::default() }
}

/// What nothing can run, and a part of the reason.
fn impossible() -> [(TaskOptions, &'static str); 4] {
    let there = Place::Node { node: NodeId::new("elsewhere"), soft: false };
    [
        (with(Resources::cpu(1000).with("gpu", 1000)), "needs 1 gpu, cluster has 0"),
        (with(Resources::cpu(100_000)), "needs 100 cpu"),
        (TaskOptions { place: there, ..TaskOptions::default() }, "needs node elsewhere, which is not in the cluster"),
        (TaskOptions { scratch_bytes: vec![1 << 40], ..TaskOptions::default() }, "bytes"),
    ]
}

/// Waits for `what`, which is refused; what it is refused for.
async fn refused(futures: &Futures, options: TaskOptions, number: u64) -> Result<String, JobError> {
    let task = futures.submit_with(fits, &number, &[], options)?;
    let got = tokio::time::timeout(PATIENCE, futures.get_value::<u64>(&task)).await;
    Ok(got.map_or_else(|_| "nobody says anything".to_owned(), |got| format!("{got:?}")))
}

/// How jobs end that submit such a task: at once, and when others of theirs have run and do run.
fn check(run: impl Fn(bool, TaskOptions) -> Result<String, JobError>) {
    for (options, reason) in impossible() {
        for busy in [false, true] {
            let error = match run(busy, options.clone()) {
                Ok(said) => said,
                Err(error) => error.to_string(),
            };
            assert!(error.contains(reason), "{options:?}, busy {busy}: {error}");
        }
    }
}

async fn program(futures: Futures, busy: bool, options: TaskOptions) -> Result<String, JobError> {
    if busy {
        assert_eq!(futures.get_value::<u64>(&futures.submit(fits, &1, &[])?).await?, 2);
    }
    refused(&futures, options, 7).await
}

fn alone() -> NodeOptions {
    let kept = functions().keys().filter(|key| !key.starts_with("test.nowhere"));
    let functions: BTreeSet<String> = kept.map(ToString::to_string).collect();
    NodeOptions { functions: Some(functions), ..NodeOptions::alone(2, 64 << 20) }
}

#[test]
fn a_node_alone_refuses_what_nothing_can_run_and_says_why() {
    let node = Node::start(alone()).unwrap();
    check(|busy, options| run_on(&node, async move |futures| program(futures, busy, options).await).0);
}

#[test]
fn a_cluster_refuses_what_nothing_can_run_and_says_why() {
    let cluster = Cluster::new();
    cluster.start("one");
    cluster.start("two");
    check(|busy, options| cluster.run("one", async move |futures| program(futures, busy, options).await).0);
}

#[test]
fn a_function_that_no_node_has_is_refused_when_it_is_submitted() {
    let node = Node::start(alone()).unwrap();
    let (result, ..) = run_on(&node, async |futures| futures.submit(nowhere, &1, &[]).map(drop));
    assert_eq!(result.unwrap_err().to_string(), "function test.nowhere@1 is not known to: local");
    let cluster = Cluster::new();
    cluster.start_without("bare", &["test.nowhere"]);
    let (result, ..) = cluster.run("bare", async |futures: Futures| futures.submit(nowhere, &1, &[]).map(drop));
    assert_eq!(result.unwrap_err().to_string(), "function test.nowhere@1 is not known to: bare");
}
