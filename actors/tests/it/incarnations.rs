//! Nodes that the others cannot hear for a while, and what they and their messages are worth afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exobus_actors::event::NodeState;
use exobus_actors::futures::Futures;
use exobus_actors::ids::{CopyId, Epoch, Incarnation, JobId, NodeId};
use exobus_actors::protocol::membership::{Beat, MembershipMsg};
use exobus_actors::protocol::owner::{self, OwnerMsg};
use exobus_actors::protocol::scheduler::{Shape, Wait};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, Resources, TaskOptions};
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Message, codec};

use crate::harness::{Cluster, until};

static STARTED: AtomicBool = AtomicBool::new(false);

#[task(name = "test.note_start")]
fn note_start(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    STARTED.store(true, Ordering::SeqCst);
    Ok(number)
}

#[task(name = "test.echo")]
fn echo(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number)
}

/// Runs until it is cancelled.
#[task(name = "test.until_cancelled")]
fn until_cancelled(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    while !context.cancelled() {
        std::thread::yield_now();
    }
    Err(TaskError::fatal("it was cancelled"))
}

fn on(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

/// Nobody else is there who could declare it dead: it goes on as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_node_starts_nothing_and_goes_on_when_it_is_heard_again() {
    let cluster = Arc::new(Cluster::new());
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    cluster.start_candidate("a", &chaos.bus());
    let host = cluster.node("a");
    let before = host.post().incarnation();
    let (cut, watched) = (chaos.clone(), host.clone());
    let program = async move |futures: Futures| {
        let first: u64 = futures.get_value(&futures.submit_with(echo, &1, &[], on("a"))?).await?;
        cut.cut(Direction::Both, None);
        until(|| watched.gate().is_closed()).await;
        let second = futures.submit_with(note_start, &2, &[], on("a"))?;
        until(|| watched.gate().waiting() == 1).await;
        assert!(!STARTED.load(Ordering::SeqCst), "it is in an executor's hands, and not started");
        cut.heal();
        Ok(first + futures.get_value::<u64>(&second).await?)
    };
    let (sum, _) = host.run(host.new_job(), "test", None, program).await;
    assert_eq!(sum.unwrap(), 3);
    assert!(STARTED.load(Ordering::SeqCst));
    assert_eq!(host.post().incarnation(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_declared_dead_begins_another_incarnation_with_its_store_and_works() {
    let cluster = Arc::new(Cluster::new());
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    cluster.start_candidate("a", &cluster.bus);
    let mut seen = cluster.node("a").changes();
    let mut becomes = async |state| until(|| seen.try_recv().is_ok_and(|change| change.state == state)).await;
    cluster.start_candidate("b", &chaos.bus());
    becomes(NodeState::Up).await;
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let before = b.post().incarnation();

    // An object in the store, of a job that is hosted elsewhere, say; and a job that is hosted here, with a task that runs.
    let elsewhere = a.new_job().group();
    let kept = b.store().put(b"kept", |content| CopyId::new(elsewhere, content)).unwrap().id;
    let (told, ready) = tokio::sync::oneshot::channel();
    let hosted = {
        let b = b.clone();
        tokio::spawn(async move {
            let program = async move |futures: Futures| -> Result<u64, JobError> {
                let running = futures.submit_with(until_cancelled, &(), &[], on("b"))?;
                let _ = told.send(());
                futures.get_value::<u64>(&running).await
            };
            b.run(b.new_job(), "test", None, program).await.0
        })
    };
    ready.await.unwrap();

    chaos.cut(Direction::Both, None);
    becomes(NodeState::Dead).await;
    until(|| b.gate().is_closed()).await;
    chaos.heal();
    let error = hosted.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("node b") && error.contains("declared dead by a"), "{error}");
    until(|| b.post().incarnation() > before).await;
    assert!(b.store().contains(&kept), "the store is the same");

    // The next job's task needs the executor that the old task had, and runs under the new incarnation.
    let program = async |futures: Futures| futures.get_value(&futures.submit_with(echo, &5, &[], on("b"))?).await;
    let (five, _) = a.run(a.new_job(), "test", None, program).await;
    assert_eq!(five, Ok(5_u64));
    assert!(b.fatal().is_none());
    // And what is hosted there.
    let program = async |futures: Futures| futures.get_value(&futures.submit_with(echo, &6, &[], on("a"))?).await;
    let (six, _) = b.run(b.new_job(), "test", None, program).await;
    assert_eq!(six, Ok(6_u64));
}

/// Whatever actor it is for: one place drops it.
#[tokio::test]
async fn words_of_an_incarnation_that_is_over_are_dropped_whomever_they_are_for() {
    let cluster = Cluster::new();
    cluster.start("target");
    let target = cluster.node("target");
    let ghost = |incarnation| {
        let peer = Peer { node: "ghost".into(), incarnation };
        Endpoint::open(cluster.bus.clone(), cluster.subjects.clone(), peer, SessionOptions::default())
    };
    let beat = |incarnation| Beat::new(NodeId::new("ghost"), Incarnation(incarnation), 1);
    let mut heard = target.changes();
    let subject = cluster.subjects.node("ghost", "beat").unwrap();
    let bytes = cluster.bus.credentials().seal(&subject, &MembershipMsg::Beat(beat(5))).unwrap();
    cluster.bus.try_publish(subject, Message::new(bytes)).unwrap();
    until(|| heard.try_recv().is_ok()).await;

    // The incarnation that lives is listened to, even if nonsense is all that it says.
    let say = |endpoint: &Endpoint, actor: &str| endpoint.send("target", actor, vec![77].into()).unwrap();
    // A session belongs to one incarnation, so that the older one speaks first.
    let (before, _events) = ghost(4).await.unwrap();
    let refused = target.figures().refused_messages;
    let actors = ["scheduler", "node", "merger", "host", "owner-1", "replies"];
    for actor in actors {
        say(&before, actor);
    }
    until(|| target.post().stale() == actors.len() as u64).await;
    assert_eq!(target.figures().refused_messages, refused, "nobody has looked at them");
    drop(before);
    let (now, _events) = ghost(5).await.unwrap();
    say(&now, "node");
    until(|| target.figures().refused_messages == refused + 1).await;
    assert_eq!(target.post().stale(), actors.len() as u64);
}

#[tokio::test]
async fn an_owner_drops_what_a_scheduler_of_an_older_epoch_says() {
    let cluster = Arc::new(Cluster::new());
    cluster.start("target");
    let target = cluster.node("target");
    let job: JobId = target.new_job();
    let (bus, subjects, watched) = (cluster.bus.clone(), cluster.subjects.clone(), target.clone());
    let program = async move |futures: Futures| {
        let first: u64 = futures.get_value(&futures.submit_with(echo, &1, &[], TaskOptions::default())?).await?;
        let me = Peer { node: "deposed".into(), incarnation: 1 };
        let (endpoint, _events) = Endpoint::open(bus, subjects, me, SessionOptions::default()).await.unwrap();
        let gpu = Shape::anywhere(Resources::default().with("gpu", 1000), 1);
        let never = Wait { reason: "needs 1 gpu".into(), never: Some(Box::new(gpu)) };
        let messages = [
            OwnerMsg::Leases { epoch: Epoch(0), leases: Some(Vec::new()), wait: None },
            OwnerMsg::Leases { epoch: Epoch(0), leases: Some(Vec::new()), wait: Some(never) },
        ];
        for message in &messages {
            let item = [&[0][..], &codec::encode(message).unwrap()].concat();
            endpoint.send("target", &owner::actor_name(job), item.into()).unwrap();
        }
        until(|| watched.post().stale() == 2).await;
        // Neither has it lost its slots, nor does it give up.
        Ok(first + futures.get_value::<u64>(&futures.submit_with(echo, &2, &[], TaskOptions::default())?).await?)
    };
    let (sum, _) = target.run(job, "test", None, program).await;
    assert_eq!(sum, Ok(3));
}
