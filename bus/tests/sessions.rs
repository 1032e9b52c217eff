//! Sessions on the in-process bus, calm and with faults, on paused time.

use std::time::Duration;

use bytes::Bytes;
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::session::{Endpoint, EndpointEvents, Event, Peer, ResetReason, SessionError, SessionOptions};
use exobus_bus::{Bus, Credentials, InProcessOptions, Message, Subjects};
use tokio::time::timeout;

/// Virtual, so it costs nothing.
const PATIENCE: Duration = Duration::from_secs(600);

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

async fn open_with(bus: &Bus, node: &str, incarnation: u64, options: SessionOptions) -> (Endpoint, EndpointEvents) {
    let me = Peer { node: node.to_owned(), incarnation };
    Endpoint::open(bus.clone(), subjects(), me, options).await.unwrap()
}

async fn open(bus: &Bus, node: &str, incarnation: u64) -> (Endpoint, EndpointEvents) {
    open_with(bus, node, incarnation, SessionOptions::default()).await
}

fn item(number: u32) -> Bytes {
    // Sizes vary, so that frames close at different places.
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(4 + (number as usize * 7) % 900, 0);
    bytes.into()
}

async fn next(events: &mut EndpointEvents) -> Event {
    timeout(PATIENCE, events.recv()).await.expect("no event").expect("the endpoint ended")
}

/// Reads items `from..to`; silences are allowed, nothing else.
async fn read(events: &mut EndpointEvents, from: u32, to: u32) {
    let mut expected = from;
    while expected < to {
        match next(events).await {
            Event::Items { items, .. } => {
                for (actor, bytes) in items {
                    assert_eq!(&*actor, format!("actor-{}", expected % 3));
                    assert_eq!(bytes, item(expected));
                    expected += 1;
                }
            }
            Event::Silent { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(expected, to);
}

fn send(endpoint: &Endpoint, to: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        endpoint.send(to, &format!("actor-{}", number % 3), item(number)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn items_arrive_once_and_in_order_both_ways() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    send(&a, "b", 0..20_000);
    send(&b, "a", 0..20_000);
    tokio::join!(read(&mut a_events, 0, 20_000), read(&mut b_events, 0, 20_000));
    a.drain(PATIENCE).await.unwrap();
    b.drain(PATIENCE).await.unwrap();
    let stats = a.stats();
    assert_eq!((stats.items_sent, stats.items_received), (20_000, 20_000));
    assert_eq!((stats.frames_resent, stats.frames_repeated, stats.frames_stale), (0, 0, 0), "{stats:?}");
    assert!(stats.frames_sent < 2_000, "items do not share frames: {stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fifth_lost_repeated_and_reordered_is_not_noticed() {
    for seed in 0..20 {
        let bus = Bus::in_process();
        let faults = Faults {
            drop: 0.2,
            repeat: 0.1,
            reorder: 0.2,
            delay: Some((Duration::from_micros(50), Duration::from_micros(500))),
            ..Faults::default()
        };
        let (chaos_a, chaos_b) = (Chaos::around(&bus, seed, faults.clone()), Chaos::around(&bus, !seed, faults));
        let (a, mut a_events) = open(&chaos_a.bus(), "a", 1).await;
        let (b, mut b_events) = open(&chaos_b.bus(), "b", 1).await;
        for batch in 0..40 {
            send(&a, "b", batch * 50..(batch + 1) * 50);
            send(&b, "a", batch * 50..(batch + 1) * 50);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        tokio::join!(read(&mut a_events, 0, 2000), read(&mut b_events, 0, 2000));
        a.drain(PATIENCE).await.unwrap();
        b.drain(PATIENCE).await.unwrap();
        for chaos in [chaos_a, chaos_b] {
            let stats = chaos.stats();
            assert!(stats.dropped > 5 && stats.repeated > 2 && stats.reordered > 5, "seed {seed}: {stats:?}");
        }
        let stats = a.stats();
        assert!(stats.frames_resent > 0 && stats.resets == 0, "seed {seed}: {stats:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_is_silence_and_healing_delivers_everything() {
    for direction in [Direction::Outgoing, Direction::Incoming, Direction::Both] {
        let bus = Bus::in_process();
        let chaos = Chaos::around(&bus, 1, Faults::default());
        let (a, mut a_events) = open(&chaos.bus(), "a", 1).await;
        let (_b, mut b_events) = open(&bus, "b", 1).await;
        send(&a, "b", 0..10);
        read(&mut b_events, 0, 10).await;
        a.drain(PATIENCE).await.unwrap();
        chaos.cut(direction, None);
        send(&a, "b", 10..500);
        let event = next(&mut a_events).await;
        let Event::Silent { peer, since } = &event else { panic!("{event:?}") };
        assert!(peer.node == "b" && peer.incarnation == 1 && *since >= Duration::from_secs(3), "{event:?}");
        // Told once, however long it lasts.
        assert!(timeout(Duration::from_secs(60), a_events.recv()).await.is_err());
        chaos.heal();
        read(&mut b_events, 10, 500).await;
        a.drain(PATIENCE).await.unwrap();
        let stats = chaos.stats();
        assert!(stats.cut_outgoing + stats.cut_incoming > 10, "{stats:?}");
        // A minute of silence: some probes, not heaps of copies.
        assert!(a.stats().frames_resent < 250, "{:?}", a.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_peer_resets_and_what_follows_arrives() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 5).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    drop((b, b_events));
    let (_b, mut b_events) = open(&bus, "b", 6).await;
    send(&a, "b", 10..20);
    let peer = Peer { node: "b".to_owned(), incarnation: 6 };
    assert_eq!(next(&mut a_events).await, Event::Reset { peer, reason: ResetReason::NewIncarnation });
    send(&a, "b", 100..200);
    read(&mut b_events, 100, 200).await;
    assert_eq!(a.stats().resets, 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_words_to_a_restarted_peer_of_which_was_heard_elsewhere_arrive() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 5).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    drop((b, b_events));
    // Meant for the one that is gone.
    send(&a, "b", 10..20);
    assert!(a.hears_of("b", 6), "something may be lost");
    send(&a, "b", 20..30);
    let (b, mut b_events) = open(&bus, "b", 6).await;
    read(&mut b_events, 20, 30).await;
    // Said once more, and of what is met by now, it changes nothing.
    assert!(!a.hears_of("b", 6) && !a.hears_of("b", 5));
    send(&a, "b", 30..40);
    read(&mut b_events, 30, 40).await;
    send(&b, "a", 0..1);
    read(&mut a_events, 0, 1).await;
    assert_eq!(a.stats().resets, 1, "and who has said it is not told");
}

#[tokio::test(start_paused = true)]
async fn messages_of_an_older_incarnation_are_dropped() {
    let bus = Bus::in_process();
    let (_b, mut b_events) = open(&bus, "b", 1).await;
    let (new, _new_events) = open(&bus, "a", 2).await;
    send(&new, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    // The old process of the node wakes up.
    let (old, _old_events) = open(&bus, "a", 1).await;
    send(&old, "b", 500..510);
    assert!(old.drain(Duration::from_secs(5)).await.is_err());
    send(&new, "b", 10..20);
    read(&mut b_events, 10, 20).await;
    let stats = _b.stats();
    assert!(stats.frames_stale > 0 && stats.resets == 0, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_peer_is_told_so() {
    let bus = Bus::in_process();
    let (a, _a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    a.drain(PATIENCE).await.unwrap();
    a.forget("b");
    send(&b, "a", 0..1);
    let peer = Peer { node: "a".to_owned(), incarnation: 1 };
    assert_eq!(next(&mut b_events).await, Event::Reset { peer, reason: ResetReason::PeerForgot });
    send(&a, "b", 50..60);
    read(&mut b_events, 50, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_stops_the_sender() {
    let bus = Bus::in_process();
    let options = SessionOptions { queue_bytes_max: 100_000, ..SessionOptions::default() };
    let (a, _a_events) = open_with(&bus, "a", 1, options).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    let mut sent = 0;
    let refused = loop {
        match a.send("b", &format!("actor-{}", sent % 3), item(sent)) {
            Ok(()) => sent += 1,
            // The queue drains while the reader's credit lasts.
            Err(SessionError::QueueFull { .. }) if timeout(Duration::from_secs(5), a.drain(PATIENCE)).await.is_ok() => {
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, SessionError::QueueFull { max_bytes: 100_000, .. }), "{refused}");
    assert!(a.waiting_bytes() > 90_000, "{}", a.waiting_bytes());
    let stats = b.stats();
    assert!(stats.bytes_received <= 16 * 1024 * 1024 && stats.items_received <= 65_536, "{stats:?}");
    assert!(sent > 20_000, "stopped long before the credit was used up: {sent}");
    read(&mut b_events, 0, sent).await;
    a.drain(PATIENCE).await.unwrap();
    assert_eq!(a.waiting_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn sending_says_what_is_wrong() {
    let bus = Bus::in_process_with(InProcessOptions { payload_max_bytes: 4096 });
    let (a, _events) = open(&bus, "a", 1).await;
    assert!(matches!(a.send("b.c", "x", Bytes::new()), Err(SessionError::Name(_))));
    assert!(matches!(a.send("b", "x y", Bytes::new()), Err(SessionError::Name(_))));
    assert!(matches!(a.send("a", "x", Bytes::new()), Err(SessionError::ToSelf { .. })));
    let error = a.send("b", "x", vec![0; 4096].into()).unwrap_err();
    let SessionError::ItemTooLarge { bytes: 4096, max_bytes, .. } = error else { panic!("{error}") };
    a.send("b", "x", vec![0; max_bytes].into()).unwrap();
    bus.drain().await.unwrap();
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(matches!(a.send("b", "x", Bytes::new()), Err(SessionError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn the_largest_item_travels() {
    let bus = Bus::in_process();
    let (a, _a_events) = open(&bus, "a", 1).await;
    let (_b, mut b_events) = open(&bus, "b", 1).await;
    let large = Bytes::from(vec![7; bus.payload_max_bytes() - 100]);
    for _ in 0..50 {
        a.send("b", "x", large.clone()).unwrap();
    }
    let mut count = 0;
    while count < 50 {
        let Event::Items { items, .. } = next(&mut b_events).await else { panic!("no items") };
        assert!(items.iter().all(|(_, item)| *item == large));
        count += items.len();
    }
}

#[tokio::test(start_paused = true)]
async fn nonsense_on_the_subject_is_counted_and_changes_nothing() {
    let bus = Bus::in_process();
    let (a, _a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    let subject = subjects().session("b", "a").unwrap();
    let mut state = 1_u64;
    for round in 0..10_000_u32 {
        // Random bytes, half of them with a frame's beginning.
        let mut bytes = Vec::new();
        for _ in 0..round % 120 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push((state >> 33) as u8);
        }
        if round % 2 == 0 && bytes.len() > 4 {
            bytes[..4].copy_from_slice(&[0xe5, 1, (round % 7) as u8, 0]);
            // Never a later half of the peer: that would be a reset, rightly.
            bytes.resize(bytes.len().max(16), 0);
            bytes[4..16].fill(0);
        }
        bus.try_publish(subject.clone(), Message::new(bytes)).unwrap();
        if round % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    send(&a, "b", 10..20);
    read(&mut b_events, 10, 20).await;
    assert!(b.stats().frames_of_strangers >= 9_000, "{:?}", b.stats());
    assert_eq!(b.stats().resets, 0);
}

#[tokio::test(start_paused = true)]
async fn events_end_with_the_endpoint_and_with_the_bus() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (_b, mut b_events) = open(&bus, "b", 1).await;
    drop(a);
    assert_eq!(timeout(PATIENCE, a_events.recv()).await.expect("no end"), None);
    bus.drain().await.unwrap();
    assert_eq!(timeout(PATIENCE, b_events.recv()).await.expect("no end"), None);
}

/// Reads until the other side has had time for everything, and nothing must come.
async fn nothing_comes(events: &mut EndpointEvents) {
    let heard =
        timeout(Duration::from_secs(20), async { while let Some(Event::Silent { .. }) = events.recv().await {} });
    heard.await.expect_err("something was heard");
}

#[tokio::test(start_paused = true)]
async fn only_who_knows_the_token_of_its_name_is_heard() {
    const NODES: Option<&str> = Some("the nodes' token of a test");
    const SUBMITTERS: Option<&str> = Some("the submitters' token of a test");
    let node = Credentials::node(NODES, SUBMITTERS);
    let wrong = Credentials::node(Some("another token of that length"), Some("another token of that length"));
    // As a submitter who tries to pass for a node.
    let climber = Credentials::node(SUBMITTERS, SUBMITTERS);
    let cases = [
        ("n2", node.clone(), true),
        ("client-1", node.clone(), true),
        ("client-1", Credentials::submitter(SUBMITTERS), true),
        ("n2", wrong.clone(), false),
        ("client-1", wrong, false),
        ("n2", Credentials::open(), false),
        ("client-1", Credentials::open(), false),
        ("n2", climber, false),
    ];
    for (name, credentials, believed) in cases {
        let bus = Bus::in_process();
        let (b, mut b_events) = open(&bus.with_credentials(node.clone()), "b", 1).await;
        let (a, mut a_events) = open(&bus.with_credentials(credentials), name, 1).await;
        send(&a, "b", 0..10);
        send(&b, name, 0..10);
        if believed {
            read(&mut b_events, 0, 10).await;
            read(&mut a_events, 0, 10).await;
            assert_eq!((a.stats().frames_of_strangers, b.stats().frames_of_strangers), (0, 0));
        } else {
            nothing_comes(&mut b_events).await;
            nothing_comes(&mut a_events).await;
            assert!(b.stats().frames_of_strangers > 2, "{name}: {:?}", b.stats());
            assert!(a.stats().frames_of_strangers > 2, "{name}: {:?}", a.stats());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn submitters_do_not_talk_to_each_other() {
    let bus = Bus::in_process();
    let (a, _events) = open(&bus, "client-1", 1).await;
    let refused = a.send("client-2", "x", Bytes::new()).unwrap_err();
    assert!(matches!(refused, SessionError::NoToken { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn strangers_with_ever_new_names_keep_nobody_out() {
    let credentials = Credentials::node(Some("the nodes' token of a test"), None);
    let bus = Bus::in_process().with_credentials(credentials);
    let (b, mut b_events) = open(&bus, "b", 1).await;
    for number in 0..20_000 {
        let subject = subjects().session("b", &format!("stranger-{number}")).unwrap();
        bus.try_publish(subject, Message::new(vec![0xe5; 100])).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let strangers = b.stats();
    assert!(strangers.peers < 2000 && strangers.frames_of_strangers == 20_000, "{strangers:?}");
    let (a, mut a_events) = open(&bus, "a", 1).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    send(&b, "a", 0..10);
    read(&mut a_events, 0, 10).await;
}

/// Until this is so; the time is virtual.
async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it comes about");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_takes_its_session_with_it() {
    let bus = Bus::in_process();
    let (server, mut server_events) = open(&bus, "server", 1).await;
    let (other, mut other_events) = open(&bus, "other", 1).await;
    send(&server, "other", 0..10);
    read(&mut other_events, 0, 10).await;
    for number in 0..100 {
        let name = format!("client-{number}");
        let (client, mut events) = open(&bus, &name, 1).await;
        send(&client, "server", 0..5);
        read(&mut server_events, 0, 5).await;
        // The last words are not acknowledged when it goes.
        send(&server, &name, 0..5);
        read(&mut events, 0, 5).await;
        client.leave(PATIENCE).await.unwrap();
        until(|| server.stats().peers == 1).await;
    }
    let stats = server.stats();
    assert_eq!((stats.items_sent, stats.items_received, stats.resets), (510, 500, 0), "what they counted stays");
    // Whose index was given to others goes on as it was.
    send(&server, "other", 10..20);
    read(&mut other_events, 10, 20).await;
    send(&other, "server", 0..5);
    read(&mut server_events, 0, 5).await;
}

#[tokio::test(start_paused = true)]
async fn who_left_may_come_again() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    for round in 0..5 {
        send(&a, "b", round * 10..round * 10 + 10);
        read(&mut b_events, round * 10, round * 10 + 10).await;
        send(&b, "a", round * 10..round * 10 + 10);
        read(&mut a_events, round * 10, round * 10 + 10).await;
        a.leave(PATIENCE).await.unwrap();
        until(|| (a.stats().peers, b.stats().peers) == (0, 0)).await;
    }
    assert_eq!((a.stats().resets, b.stats().resets), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_vanishes_is_forgotten_after_a_while_with_what_it_was_told() {
    let bus = Bus::in_process();
    let (server, mut server_events) = open(&bus, "server", 1).await;
    for number in 0..20 {
        let name = format!("client-{number}");
        let (client, events) = open(&bus, &name, 7).await;
        send(&client, "server", 0..5);
        read(&mut server_events, 0, 5).await;
        drop((client, events));
        send(&server, &name, 0..5);
    }
    assert_eq!(server.stats().peers, 20);
    // One that never answered anything is among them.
    send(&server, "nobody", 0..5);
    until(|| server.stats().peers == 0).await;
    let mut given_up = 0;
    while given_up < 20 {
        match next(&mut server_events).await {
            Event::Reset { peer, reason: ResetReason::GivenUp } => {
                assert_eq!(peer.incarnation, 7, "{peer:?}");
                given_up += 1;
            }
            Event::Silent { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_peer_is_met_anew_and_loses_nothing() {
    let bus = Bus::in_process();
    let (a, mut a_events) = open(&bus, "a", 1).await;
    let (b, mut b_events) = open(&bus, "b", 1).await;
    for round in 0..10 {
        send(&a, "b", round * 10..round * 10 + 10);
        read(&mut b_events, round * 10, round * 10 + 10).await;
        a.drain(PATIENCE).await.unwrap();
        until(|| (a.stats().peers, b.stats().peers) == (0, 0)).await;
        // At once, and long after.
        let wait = Duration::from_secs(if round % 2 == 0 { 0 } else { 500 });
        tokio::time::sleep(wait).await;
        send(&b, "a", round * 10..round * 10 + 10);
        read(&mut a_events, round * 10, round * 10 + 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_used_is_never_forgotten() {
    let bus = Bus::in_process();
    let (a, _a_events) = open(&bus, "a", 1).await;
    let (_b, mut b_events) = open(&bus, "b", 1).await;
    for round in 0..20 {
        send(&a, "b", round * 2..round * 2 + 2);
        read(&mut b_events, round * 2, round * 2 + 2).await;
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert_eq!(a.stats().peers, 1);
    }
    assert_eq!(a.stats().resets, 0);
}

/// One side forgets far sooner: the other one is told, as of a peer that was started anew.
#[tokio::test(start_paused = true)]
async fn who_was_forgotten_by_the_other_side_only_is_told_and_goes_on() {
    let bus = Bus::in_process();
    let hasty = SessionOptions { forget_after: Duration::from_secs(10), ..SessionOptions::default() };
    let (a, mut a_events) = open_with(&bus, "a", 1, hasty).await;
    let patient = SessionOptions { forget_after: Duration::from_secs(100_000), ..SessionOptions::default() };
    let (b, mut b_events) = open_with(&bus, "b", 1, patient).await;
    send(&a, "b", 0..10);
    read(&mut b_events, 0, 10).await;
    until(|| a.stats().peers == 0).await;
    send(&b, "a", 0..1);
    let peer = Peer { node: "a".to_owned(), incarnation: 1 };
    assert_eq!(next(&mut b_events).await, Event::Reset { peer, reason: ResetReason::PeerForgot });
    send(&b, "a", 30..40);
    read(&mut a_events, 30, 40).await;
    send(&a, "b", 50..60);
    read(&mut b_events, 50, 60).await;
}
