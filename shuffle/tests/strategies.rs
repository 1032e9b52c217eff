//! The contract of strategies on one node. On a cluster it is run by `integration/`.

use exobus_actors::node::{Node, NodeOptions};
use exobus_shuffle::contract::World;

async fn one_node() -> World {
    let spill = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::alone(2, 12 << 20);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    World { nodes: vec![Node::start(options).unwrap()], keep: Box::new(spill) }
}

exobus_shuffle::strategy_contract!(crate::one_node);
