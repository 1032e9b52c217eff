//! Sessions over a real server: its restart, its freezing, a restarted peer.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::session::{Endpoint, EndpointEvents, Event, Peer, ResetReason, SessionError, SessionOptions};
use exobus_bus::{Bus, NatsOptions, Subjects};
use tokio::time::{Instant, timeout};

use crate::harness::nats::NatsServer;

const PATIENCE: Duration = Duration::from_secs(30);

async fn open(server: &NatsServer, node: &str, incarnation: u64) -> (Bus, Endpoint, EndpointEvents) {
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let me = Peer { node: node.to_owned(), incarnation };
    let subjects = Subjects::new("it").unwrap();
    let (endpoint, events) = Endpoint::open(bus.clone(), subjects, me, SessionOptions::default()).await.unwrap();
    (bus, endpoint, events)
}

/// Reads the numbers `from..to`, in order; says when each tenth of them was there.
async fn read_numbers(events: &mut EndpointEvents, from: u64, to: u64) {
    let mut expected = from;
    while expected < to {
        let event = timeout(PATIENCE, events.recv()).await.expect("items do not come").expect("the endpoint ended");
        match event {
            Event::Items { items, .. } => {
                for (actor, item) in items {
                    assert_eq!(&*actor, "counter");
                    assert_eq!(u64::from_le_bytes(item.as_ref().try_into().unwrap()), expected);
                    expected += 1;
                }
            }
            Event::Silent { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

/// Sends `from..to`, letting others run now and then; the queue is large enough for all.
async fn send_numbers(endpoint: &Endpoint, to: &str, numbers: std::ops::Range<u64>) {
    for value in numbers {
        endpoint.send(to, "counter", number(value)).unwrap();
        if value % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn every_item_arrives_once_and_in_order_both_ways() {
    let server = NatsServer::start().await;
    let (_, a, mut a_events) = open(&server, "a", 1).await;
    let (_, b, mut b_events) = open(&server, "b", 1).await;
    let total = 200_000;
    tokio::join!(
        send_numbers(&a, "b", 0..total),
        send_numbers(&b, "a", 0..total),
        read_numbers(&mut a_events, 0, total),
        read_numbers(&mut b_events, 0, total),
    );
    a.drain(PATIENCE).await.unwrap();
    assert_eq!(a.stats().items_sent, total);
    assert_eq!(a.stats().frames_resent, 0, "nothing was lost, so nothing is sent again");
}

#[tokio::test]
async fn a_server_restart_in_the_middle_loses_and_repeats_nothing() {
    let mut server = NatsServer::start().await;
    let (bus, a, mut a_events) = open(&server, "a", 1).await;
    let (_, b, mut b_events) = open(&server, "b", 1).await;
    let total = 300_000;
    let mut connection = bus.connection();
    // Three restarts while items flow both ways.
    let restarts = async {
        for _ in 0..3 {
            server.stop();
            timeout(PATIENCE, connection.wait_for(|state| !state.connected)).await.unwrap().unwrap();
            server.start_again().await;
            timeout(PATIENCE, connection.wait_for(|state| state.connected)).await.unwrap().unwrap();
        }
    };
    let sending = async {
        send_numbers(&a, "b", 0..total / 3).await;
        send_numbers(&b, "a", 0..total / 3).await;
        restarts.await;
        send_numbers(&a, "b", total / 3..total).await;
        send_numbers(&b, "a", total / 3..total).await;
    };
    tokio::join!(sending, read_numbers(&mut a_events, 0, total), read_numbers(&mut b_events, 0, total));
    assert!(bus.stats().backend.reconnects >= 3, "{:?}", bus.stats());
    a.drain(PATIENCE).await.unwrap();
    b.drain(PATIENCE).await.unwrap();
    let resent = a.stats().frames_resent + b.stats().frames_resent;
    assert!(resent > 0, "the restarts struck nothing: {:?}", a.stats());
}

#[tokio::test]
async fn a_session_goes_on_within_a_second_of_the_reconnect() {
    let mut server = NatsServer::start().await;
    let (bus, a, _a_events) = open(&server, "a", 1).await;
    let (_, _b, mut b_events) = open(&server, "b", 1).await;
    send_numbers(&a, "b", 0..1).await;
    read_numbers(&mut b_events, 0, 1).await;
    let mut connection = bus.connection();
    server.stop();
    timeout(PATIENCE, connection.wait_for(|state| !state.connected)).await.unwrap().unwrap();
    send_numbers(&a, "b", 1..1000).await;
    server.start_again().await;
    timeout(PATIENCE, connection.wait_for(|state| state.connected)).await.unwrap().unwrap();
    let back = Instant::now();
    read_numbers(&mut b_events, 1, 1000).await;
    // The promise is a second; a loaded machine gets five.
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
}

#[tokio::test]
async fn a_frozen_server_makes_peers_silent_and_then_everything_arrives() {
    let server = NatsServer::start().await;
    let (_, a, mut a_events) = open(&server, "a", 1).await;
    let (_, _b, mut b_events) = open(&server, "b", 1).await;
    send_numbers(&a, "b", 0..10).await;
    read_numbers(&mut b_events, 0, 10).await;
    server.freeze();
    send_numbers(&a, "b", 10..5000).await;
    let event = timeout(PATIENCE, a_events.recv()).await.expect("the silence is not told").unwrap();
    assert!(matches!(&event, Event::Silent { peer, since } if peer.node == "b" && since.as_secs() >= 3), "{event:?}");
    server.thaw();
    read_numbers(&mut b_events, 10, 5000).await;
    a.drain(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_restarted_peer_is_a_reset_and_then_a_new_session() {
    let server = NatsServer::start().await;
    let (_, a, mut a_events) = open(&server, "a", 1).await;
    let (bus, b, mut b_events) = open(&server, "b", 1).await;
    send_numbers(&a, "b", 0..10).await;
    read_numbers(&mut b_events, 0, 10).await;
    drop((bus, b, b_events));
    let (_, _b, mut b_events) = open(&server, "b", 2).await;
    a.send("b", "counter", number(99)).unwrap();
    let event = timeout(PATIENCE, a_events.recv()).await.expect("no reset").unwrap();
    let expected =
        Event::Reset { peer: Peer { node: "b".to_owned(), incarnation: 2 }, reason: ResetReason::NewIncarnation };
    assert_eq!(event, expected);
    send_numbers(&a, "b", 0..10).await;
    read_numbers(&mut b_events, 0, 10).await;
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_sender_and_loses_nothing() {
    let server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let subjects = Subjects::new("it").unwrap();
    let me = Peer { node: "a".to_owned(), incarnation: 1 };
    let options = SessionOptions { queue_bytes_max: 4_000_000, ..SessionOptions::default() };
    let (a, _a_events) = Endpoint::open(bus, subjects, me, options).await.unwrap();
    let (_, b, mut b_events) = open(&server, "b", 1).await;
    // Until both the reader's credit and the sender's queue are used up, and stay so.
    let mut sent = 0;
    let mut refused_since = Instant::now();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match a.send("b", "counter", number(sent)) {
            Ok(()) => {
                sent += 1;
                refused_since = Instant::now();
            }
            Err(SessionError::QueueFull { .. }) if refused_since.elapsed() > Duration::from_millis(300) => break,
            Err(SessionError::QueueFull { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
        assert!(Instant::now() < deadline, "the sender is never stopped");
    }
    let received = b.stats().items_received;
    assert!((1..=65_536).contains(&received), "more came than the credit of 65 536 allows: {received}");
    read_numbers(&mut b_events, 0, sent).await;
}

#[tokio::test]
async fn many_peers_talk_all_to_all() {
    let server = NatsServer::start().await;
    let names: Vec<String> = (0..8).map(|index| format!("n{index}")).collect();
    let mut endpoints = Vec::new();
    for name in &names {
        endpoints.push(open(&server, name, 1).await);
    }
    for (from, (_, endpoint, _)) in names.iter().zip(&endpoints) {
        for to in names.iter().filter(|to| *to != from) {
            send_numbers(endpoint, to, 0..500).await;
        }
    }
    for (_, _, events) in &mut endpoints {
        let mut next = std::collections::BTreeMap::new();
        let mut finished = BTreeSet::new();
        while finished.len() < names.len() - 1 {
            let event = timeout(PATIENCE, events.recv()).await.expect("items do not come").unwrap();
            let Event::Items { from, items } = event else { panic!("{event:?}") };
            let expected: &mut u64 = next.entry(from.name().to_owned()).or_default();
            for (_, item) in items {
                assert_eq!(u64::from_le_bytes(item.as_ref().try_into().unwrap()), *expected);
                *expected += 1;
            }
            if *expected == 500 {
                finished.insert(from.name().to_owned());
            }
        }
    }
}
