//! The contract of strategies on three nodes of a cluster, over a real nats-server and TCP.

use std::net::SocketAddr;
use std::time::Duration;

use exobus_actors::ids::NodeId;
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_bus::{Bus, NatsOptions, Subjects};
use exobus_shuffle::contract::World;

use crate::harness::nats::NatsServer;

pub async fn three_nodes() -> World {
    let server = NatsServer::start().await;
    let spill = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for number in 0..3 {
        let name = format!("n{number}");
        let bus = Bus::connect(NatsOptions { name: name.clone(), ..NatsOptions::url(server.url()) }).await.unwrap();
        let cluster = ClusterOptions {
            bus,
            subjects: Subjects::new("contract").unwrap(),
            scheduler: number == 0,
            membership: MembershipOptions::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: "a token for tests of thirty-two bytes".into(),
            join_deadline: Duration::from_secs(10),
        };
        let mut options = NodeOptions::alone(1, 12 << 20);
        options.name = NodeId::new(&name);
        options.store.spill_dirs = vec![spill.path().join(&name)];
        options.cluster = Some(cluster);
        // Joining blocks until the Scheduler has answered.
        nodes.push(tokio::task::spawn_blocking(|| Node::start(options)).await.unwrap().unwrap());
    }
    World { nodes, keep: Box::new((server, spill)) }
}

exobus_shuffle::strategy_contract!(crate::strategies::three_nodes);
