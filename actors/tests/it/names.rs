//! Several processes that want the name of one node.

use std::sync::Arc;

use exobus_actors::node::NodeError;
use exobus_bus::chaos::{Chaos, Direction, Faults};

use crate::harness::{Cluster, until};

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
