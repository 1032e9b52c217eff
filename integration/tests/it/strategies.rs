//! The contract of strategies on three nodes of a cluster: over a real nats-server and TCP, and over the in-process bus
//! without a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exobus_actors::ids::NodeId;
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::transfer::network::MemoryNetwork;
use exobus_bus::{Bus, NatsOptions, Subjects};
use exobus_shuffle::contract::World;

use crate::harness::nats::NatsServer;

/// What a node with one executor and little memory is made of; the first has the Scheduler.
fn options(number: usize, bus: Bus, spill: &tempfile::TempDir) -> NodeOptions {
    let name = format!("n{number}");
    let mut options = NodeOptions::alone(1, 6 << 20);
    options.name = NodeId::new(&name);
    options.store.spill_dirs = vec![spill.path().join(&name)];
    options.cluster = Some(ClusterOptions {
        bus,
        subjects: Subjects::new("contract").unwrap(),
        scheduler: number == 0,
        membership: MembershipOptions::default(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        join_deadline: Duration::from_secs(10),
    });
    options
}

async fn start(options: NodeOptions) -> Node {
    // Joining blocks until the Scheduler has answered.
    tokio::task::spawn_blocking(|| Node::start(options)).await.unwrap().unwrap()
}

pub async fn three_nodes() -> World {
    let server = NatsServer::start().await;
    let spill = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for number in 0..3 {
        let bus = NatsOptions { name: format!("n{number}"), ..NatsOptions::url(server.url()) };
        nodes.push(start(options(number, Bus::connect(bus).await.unwrap(), &spill)).await);
    }
    World { nodes, keep: Box::new((server, spill)) }
}

exobus_shuffle::strategy_contract!(crate::strategies::three_nodes);

mod in_process {
    use super::*;

    pub async fn three_nodes() -> World {
        let (bus, network) = (Bus::in_process(), Arc::new(MemoryNetwork::new()));
        let spill = tempfile::tempdir().unwrap();
        let mut nodes = Vec::new();
        for number in 0..3 {
            let mut options = options(number, bus.clone(), &spill);
            options.network = network.clone();
            nodes.push(start(options).await);
        }
        World { nodes, keep: Box::new(spill) }
    }

    exobus_shuffle::strategy_contract!(crate::strategies::in_process::three_nodes);
}
