//! What comes with jobs and clients goes with them: things are counted, not bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use exobus_actors::client::{Client, ClientOptions};
use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::program;
use exobus_actors::protocol::host::JobSpec;
use exobus_actors::protocol::scheduler::SchedulerMsg;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::shell::mailbox;
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};

use crate::harness::{Cluster, until};

const NODES: [&str; 2] = ["a", "b"];

#[task(name = "census.double")]
fn double(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number * 2)
}

/// How many bytes its arguments have.
#[task(name = "census.bytes")]
fn measure(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    let blocks = (0..context.args()).flat_map(|arg| context.blocks(arg));
    Ok(blocks.map(|block| block.len() as u64).sum())
}

/// Objects, a put, a set, and tasks on both nodes; a number that is odd is waited for in vain.
#[program(name = "census.work", version = 1)]
async fn work(futures: Futures, number: u64) -> Result<u64, JobError> {
    let on = |node: &str| TaskOptions {
        place: Place::Node { node: NodeId::new(node), soft: false },
        ..TaskOptions::default()
    };
    let put = futures.put(&number.to_le_bytes())?;
    let made = (0..8).map(|n| futures.submit_with(double, &n, &[], on(NODES[n as usize % 2])));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let set = futures.set(&made)?;
    let counted = NODES.map(|node| futures.submit_with(measure, &(), &[put.arg(), set.arg()], on(node)));
    let mut sum = 0;
    for counted in counted {
        sum += futures.get_value::<u64>(&counted?).await?;
    }
    if !is_kept(number) {
        // Somebody cancels it.
        std::future::pending::<()>().await;
    }
    Ok(sum)
}

async fn client(cluster: &Cluster) -> Client {
    let options = ClientOptions::new(cluster.bus.clone(), cluster.subjects.clone());
    Client::connect(options).await.unwrap()
}

/// Whether a job goes on to its end; else its client cancels it.
fn is_kept(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// A client comes, runs a job, and leaves.
async fn run(cluster: &Cluster, number: u64) {
    let client = client(cluster).await;
    let spec = JobSpec {
        job: client.new_job(),
        tenant: "default".into(),
        program: "census.work@1".to_owned(),
        params: rmp_serde::to_vec_named(&number).unwrap().into(),
        sample_ms: 0,
        plan_pieces: 0,
    };
    let cancel = async {
        if is_kept(number) {
            std::future::pending::<()>().await;
        }
    };
    let end = client.run_spec(spec, |_| {}, cancel).await.unwrap();
    match is_kept(number) {
        true => assert!(end.result.is_ok(), "{end:?}"),
        false => assert_eq!(end.result, Err(JobError::Cancelled)),
    }
}

/// What there is on all nodes.
fn living(cluster: &Cluster) -> BTreeMap<String, u64> {
    let of = |name: &str| {
        let node = cluster.node(name);
        let mut living = node.post().living();
        living.extend([("objects", node.store().stats().objects), ("waiting", node.store().stats().waiting)]);
        let named = living.into_iter().map(|(what, count)| (format!("{name}: {what}"), count));
        named.collect::<Vec<_>>()
    };
    NODES.iter().flat_map(|name| of(name)).collect()
}

/// Everything but what a node has for as long as it lives.
fn of_jobs(living: &BTreeMap<String, u64>) -> u64 {
    let for_good = |what: &str| what.ends_with("actors") || what.ends_with("sessions");
    living.iter().filter(|(what, _)| !for_good(what)).map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_with_jobs_and_clients_goes_with_them() {
    let cluster = Cluster::new();
    NODES.iter().for_each(|name| cluster.start(name));
    run(&cluster, 0).await;
    let with_each_other =
        |living: &BTreeMap<String, u64>| NODES.map(|name| living[&format!("{name}: sessions")]) == [1, 1];
    until(|| of_jobs(&living(&cluster)) == 0 && with_each_other(&living(&cluster))).await;
    let before = living(&cluster);
    for number in 1..40 {
        run(&cluster, number).await;
    }
    let back = async {
        while living(&cluster) != before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let back = tokio::time::timeout(Duration::from_secs(30), back).await;
    assert_eq!(living(&cluster), before, "{back:?}");
}

/// It asks one who does not answer, and does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_goes_with_who_asks() {
    let cluster = Cluster::new();
    cluster.start("a");
    let node = cluster.node("a");
    until(|| node.post().living()["open questions"] == 0).await;
    let (deaf, mut questions) = mailbox::<SchedulerMsg, SchedulerMsg>(node.post(), "deaf");
    let deaf = deaf.address();
    for _ in 0..10 {
        let asked = deaf.ask(|reply| SchedulerMsg::ListNodes { reply }, Duration::from_secs(60));
        tokio::time::timeout(Duration::ZERO, asked).await.unwrap_err();
        assert!(questions.try_recv().is_ok(), "it was asked");
    }
    until(|| node.post().living()["open questions"] == 0).await;
}
