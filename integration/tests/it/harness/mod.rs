//! What the tests of this crate stand on: real servers, started and ended with the test.

pub mod nats;

use exobus_bus::contract::Fixture;
use exobus_bus::{Bus, NatsOptions};

/// A fresh server and two connections to it, for the contract of the bus.
pub async fn nats() -> Fixture {
    let server = nats::NatsServer::start().await;
    let connect = |name: &str| {
        let options = NatsOptions { name: name.to_owned(), ..NatsOptions::url(server.url()) };
        async move { Bus::connect(options).await.expect("connect to the test's server") }
    };
    let (a, b) = (connect("a").await, connect("b").await);
    Fixture { a, b, guard: Box::new(server) }
}
