//! Several processes that want the name of one node.

use std::sync::Arc;
use std::time::Duration;

use exobus_actors::node::{Node, NodeError, NodeOptions};
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::session::Peer;
use exobus_bus::{Bus, Message};
use exobus_store::{Clock, SystemClock};

use crate::harness::{Cluster, until};

/// One whose wall clock was set back by an hour.
struct SetBack(SystemClock);

impl Clock for SetBack {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms() - 3_600_000
    }
}

/// A node under a name, with the clock of its machine set back or not.
fn at(cluster: &Cluster, name: &str, scheduler: bool, set_back: bool) -> NodeOptions {
    let options = cluster.elsewhere(name, scheduler, &cluster.bus);
    let clock = SystemClock::new();
    NodeOptions { clock: if set_back { Arc::new(SetBack(clock)) } else { Arc::new(clock) }, ..options }
}

/// A way to the cluster on which nothing that is to be kept is stored.
fn full(cluster: &Cluster) -> Bus {
    Chaos::around(&cluster.bus, 1, Faults { disk_full: true, ..Faults::default() }).bus()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_under_a_name_is_refused_and_the_first_one_works_on() {
    let cluster = Arc::new(Cluster::new());
    cluster.start("a");
    cluster.start("b");
    let again = cluster.clone();
    let refused = tokio::task::spawn_blocking(move || again.start_elsewhere("b", &again.bus)).await.unwrap();
    let Err(NodeError::NameTaken { name, holder }) = refused else { panic!("{refused:?}") };
    assert_eq!((name.as_str(), holder.contains("process")), ("b", true), "{holder}");
    let first = cluster.node("b");
    assert_eq!(first.fatal(), None);
    drop(first);
    // One that stops in order gives it back.
    cluster.stop("b");
    cluster.start("b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_cut_off_and_finds_its_name_taken_ends_and_says_so() {
    let cluster = Arc::new(Cluster::new());
    cluster.start("a");
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    let old = cluster.start_elsewhere("b", &chaos.bus()).unwrap();
    chaos.cut(Direction::Both, None);
    let again = cluster.clone();
    let new = tokio::task::spawn_blocking(move || again.start_elsewhere("b", &again.bus)).await.unwrap().unwrap();
    assert!(new.post().incarnation() > old.post().incarnation());
    assert_eq!(old.fatal(), None, "it cannot know yet");
    chaos.heal();
    until(|| old.fatal().is_some()).await;
    let fatal = old.fatal().unwrap();
    assert!(fatal.reason.contains("the name b is taken"), "{fatal:?}");
    assert_eq!(new.fatal(), None);
    tokio::task::spawn_blocking(move || drop((old, new))).await.unwrap();
}

#[test]
fn a_node_that_stopped_in_order_comes_back_whatever_its_clock_says_then() {
    let cluster = Cluster::new();
    cluster.start("a");
    let first = Node::start(at(&cluster, "b", false, false)).unwrap();
    let before = first.post().incarnation();
    first.stop();
    let again = Node::start(at(&cluster, "b", false, true)).unwrap();
    assert!(again.post().incarnation() > before);
    assert_eq!(again.fatal(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_answers_names_the_incarnation_that_it_is_in() {
    let cluster = Arc::new(Cluster::new());
    let starting = cluster.clone();
    let node = tokio::task::spawn_blocking(move || {
        Node::start(at(&starting, "a", true, false)).unwrap().stop();
        Node::start(at(&starting, "a", true, true)).unwrap()
    });
    let node = node.await.unwrap();
    let place = cluster.subjects.ctl("scheduler", "where").unwrap();
    let me = Peer { node: "b".to_owned(), incarnation: 1 };
    let (_, question) = cluster.bus.credentials().ask(&place, &me, &()).unwrap();
    let answer = cluster.bus.request(place, Message::new(question), Duration::from_secs(30)).await.unwrap();
    // Version, that it is an answer, the answerer's name with its length, and the incarnation.
    assert_eq!(&answer.payload[2..4], [1, b'a']);
    let incarnation = u64::from_le_bytes(answer.payload[4..12].try_into().unwrap());
    assert_eq!(incarnation, node.post().incarnation().0);
    tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_name_the_server_does_not_store_says_so_and_gives_up() {
    let cluster = Arc::new(Cluster::new());
    let (starting, bus) = (cluster.clone(), full(&cluster));
    let refused = tokio::task::spawn_blocking(move || {
        starting.start("a");
        let mut options = starting.elsewhere("b", false, &bus);
        options.cluster.as_mut().unwrap().join_deadline = Duration::from_secs(5);
        Node::start(options)
    });
    let refused = refused.await.unwrap().unwrap_err();
    assert!(matches!(&refused, NodeError::StoresNothing { .. }), "{refused:?}");
    assert!(refused.to_string().contains("b cannot take its name: the NATS server answers, but stores nothing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_name_ends_when_it_is_told_to() {
    let cluster = Arc::new(Cluster::new());
    let (starting, bus) = (cluster.clone(), full(&cluster));
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let refused = tokio::task::spawn_blocking(move || {
        starting.start("a");
        let mut options = starting.elsewhere("b", false, &bus);
        options.cluster.as_mut().unwrap().join_deadline = Duration::from_secs(3600);
        tell.send(()).unwrap();
        Node::start_unless(options, async { drop(told.await) })
    });
    let refused = refused.await.unwrap().unwrap_err();
    assert!(matches!(refused, NodeError::Stopped), "{refused:?}");
}
