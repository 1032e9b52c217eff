//! Who gets a message, in which order, unchanged.

use bytes::Bytes;

use super::{next, pattern, read, text, texts_until, unique};
use crate::{Bus, Message, SubscribeOptions};

/// Everybody who subscribed, on either handle, gets the message once.
pub async fn every_plain_subscriber_gets_a_message(a: Bus, b: Bus) {
    let subject = unique("plain");
    let mut first = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let mut second = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    a.publish(subject.clone(), text("one")).await.unwrap();
    a.publish(subject.clone(), text("end")).await.unwrap();
    assert_eq!(texts_until(&mut first, "end").await, ["one"]);
    assert_eq!(texts_until(&mut second, "end").await, ["one"]);
}

/// Two members of a group share what a plain subscriber gets in full.
pub async fn one_of_a_queue_group_gets_a_message(a: Bus, b: Bus) {
    let subject = unique("queue");
    let mut first = a.subscribe(subject.clone().into(), SubscribeOptions::queue("workers")).await.unwrap();
    let mut second = b.subscribe(subject.clone().into(), SubscribeOptions::queue("workers")).await.unwrap();
    let mut plain = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    for number in 0..100 {
        b.publish(subject.clone(), text(number.to_string())).await.unwrap();
    }
    let mut shared = Vec::new();
    while shared.len() < 100 {
        let delivery = tokio::select! {
            delivery = next(&mut first) => delivery,
            delivery = next(&mut second) => delivery,
        };
        shared.push(read(&delivery.message).parse::<u32>().unwrap());
    }
    for number in 0..100 {
        assert_eq!(read(&next(&mut plain).await.message), number.to_string());
    }
    // Everything of this publisher has arrived; had a message come twice, it would be waiting.
    a.flush().await.unwrap();
    assert!(first.try_recv().is_none() && second.try_recv().is_none(), "a message came twice");
    shared.sort_unstable();
    assert_eq!(shared, (0..100).collect::<Vec<_>>());
}

/// Of 200 messages each of two members gets at least a tenth.
pub async fn every_member_of_a_queue_group_gets_a_share(a: Bus, b: Bus) {
    let subject = unique("share");
    let mut first = a.subscribe(subject.clone().into(), SubscribeOptions::queue("workers")).await.unwrap();
    let mut second = b.subscribe(subject.clone().into(), SubscribeOptions::queue("workers")).await.unwrap();
    for _ in 0..200 {
        a.publish(subject.clone(), text("x")).await.unwrap();
    }
    let (mut to_first, mut to_second) = (0, 0);
    while to_first + to_second < 200 {
        tokio::select! {
            _ = next(&mut first) => to_first += 1,
            _ = next(&mut second) => to_second += 1,
        }
    }
    assert!(to_first >= 20 && to_second >= 20, "{to_first} and {to_second} of 200");
}

/// `*` is one token, `>` one or more.
pub async fn a_wildcard_gets_what_it_matches_and_nothing_else(a: Bus, b: Bus) {
    let root = unique("wild");
    let of = |tail: &str| crate::Subject::parse(&format!("{root}.{tail}")).unwrap();
    let mut one = a.subscribe(pattern(&format!("{root}.*.end")), SubscribeOptions::default()).await.unwrap();
    let mut rest = a.subscribe(pattern(&format!("{root}.x.>")), SubscribeOptions::default()).await.unwrap();
    for tail in ["x", "x.end", "y.end", "y.z", "x.z.end", "x.z", "last.end"] {
        b.publish(of(tail), text(tail)).await.unwrap();
    }
    b.publish(of("x.last"), text("x.last")).await.unwrap();
    assert_eq!(texts_until(&mut one, "last.end").await, ["x.end", "y.end"]);
    assert_eq!(texts_until(&mut rest, "x.last").await, ["x.end", "x.z.end", "x.z"]);
}

/// 5000 messages arrive as they were published.
pub async fn one_publisher_and_subject_keep_their_order(a: Bus, b: Bus) {
    let subject = unique("order");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    for number in 0..5000 {
        a.publish(subject.clone(), text(number.to_string())).await.unwrap();
    }
    for number in 0..5000 {
        assert_eq!(read(&next(&mut subscription).await.message), number.to_string());
    }
    assert_eq!(subscription.dropped(), 0);
}

/// What another connection publishes right after `subscribe` returned arrives; 50 times over.
pub async fn subscribe_returns_when_the_server_knows(a: Bus, b: Bus) {
    for round in 0..50 {
        let subject = unique("known");
        let mut subscription = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
        b.publish(subject, text(round.to_string())).await.unwrap();
        assert_eq!(read(&next(&mut subscription).await.message), round.to_string());
    }
}

/// Nobody is left, so a request says so.
pub async fn a_dropped_subscription_gets_nothing_more(a: Bus, b: Bus) {
    let subject = unique("gone");
    let subscription = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    drop(subscription);
    // The end of a subscription reaches the server soon, not at once: ask until it has.
    let deadline = tokio::time::Instant::now() + super::PATIENCE;
    loop {
        a.flush().await.unwrap();
        let asked = b.request(subject.clone(), text("?"), std::time::Duration::from_millis(50)).await;
        if matches!(asked, Err(crate::BusError::NoResponders { .. })) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "still subscribed: {asked:?}");
    }
}

/// Names, values, several values of a name, text that is not ASCII.
pub async fn headers_survive(a: Bus, b: Bus) {
    let subject = unique("headers");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let mut message = text("body");
    message.headers.insert(crate::message::TRACE_ID, "4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
    message.headers.append("Exo-List", "first: one").unwrap();
    message.headers.append("Exo-List", "second").unwrap();
    message.headers.insert("exo-lower", "größer").unwrap();
    a.publish(subject.clone(), message.clone()).await.unwrap();
    let delivery = next(&mut subscription).await;
    assert_eq!(delivery.message, message);
    assert_eq!(delivery.subject, subject);
    assert_eq!(delivery.reply, None);
}

/// Nothing is something, with and without headers.
pub async fn an_empty_payload_survives(a: Bus, b: Bus) {
    let subject = unique("empty");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let plain = Message::new(Bytes::new());
    let headed = Message::new(Bytes::new()).with_header("Exo-Only", "header").unwrap();
    a.publish(subject.clone(), plain.clone()).await.unwrap();
    a.publish(subject, headed.clone()).await.unwrap();
    assert_eq!(next(&mut subscription).await.message, plain);
    assert_eq!(next(&mut subscription).await.message, headed);
}

/// Made on one runtime, used on another, in another thread.
pub async fn a_handle_works_from_another_runtime(a: Bus, b: Bus) {
    let subject = unique("runtime");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let other = std::thread::Builder::new().spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let own = unique("echo");
            let mut echo = a.subscribe(own.clone().into(), SubscribeOptions::default()).await.unwrap();
            a.publish(own, text("to myself")).await.unwrap();
            let heard = read(&next(&mut echo).await.message);
            a.publish(subject, text(heard)).await.unwrap();
        });
    });
    assert_eq!(read(&next(&mut subscription).await.message), "to myself");
    other.unwrap().join().unwrap();
}
