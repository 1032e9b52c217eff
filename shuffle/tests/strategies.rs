//! The contract of strategies on one node. On a cluster it is run by `integration/`.

use exobus_actors::node::{Node, NodeOptions};
use exobus_shuffle::contract::World;

async fn one_node() -> World {
    let spill = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::alone(2, 24 << 20);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    World { nodes: vec![Node::start(options).unwrap()], keep: Box::new(spill) }
}

exobus_shuffle::strategy_contract!(crate::one_node);

// Not yet on a cluster of nodes with one executor each: there the job sometimes waits for ever for merges that queue behind
// the one that does not end.
mod push_best_effort {
    exobus_shuffle::strategy_contract!(@clauses crate::one_node, Push, a_merge_that_does_not_end_is_done_without);
}
