//! Subscribers that do not read.

use super::{next, read, text, texts_until, unique};
use crate::{Bus, SubscribeOptions};

/// Of 100 messages a subscription with room for 10 keeps the first 10 and counts 90, on the bus as well.
pub async fn a_full_subscriber_drops_the_newest_and_counts(a: Bus, b: Bus) {
    let subject = unique("full");
    let options = SubscribeOptions { capacity_messages: 10, ..SubscribeOptions::default() };
    let mut full = b.subscribe(subject.clone().into(), options).await.unwrap();
    let mut witness = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let dropped_before = b.stats().dropped_messages;
    for number in 0..100 {
        a.publish(subject.clone(), text(number.to_string())).await.unwrap();
    }
    // The witness saw the last one; the full one, served by a task of its own, may be a moment behind.
    for _ in 0..100 {
        next(&mut witness).await;
    }
    let deadline = tokio::time::Instant::now() + super::PATIENCE;
    while full.dropped() < 90 && tokio::time::Instant::now() < deadline {
        b.flush().await.unwrap();
    }
    assert_eq!(full.dropped(), 90);
    assert_eq!(b.stats().dropped_messages - dropped_before, 90);
    for number in 0..10 {
        assert_eq!(read(&next(&mut full).await.message), number.to_string());
    }
    // There is room again.
    a.publish(subject, text("after")).await.unwrap();
    assert_eq!(read(&next(&mut full).await.message), "after");
}

/// Who asks one that is full is told so, if that is what it is to be told; who may not be answered is not, and who is not dropped is answered by
/// whoever reads.
pub async fn who_asks_a_full_subscriber_is_told(a: Bus, b: Bus) {
    let subject = unique("busy");
    let options =
        SubscribeOptions { capacity_messages: 2, when_full: Some(text("full")), ..SubscribeOptions::default() };
    let mut full = b.subscribe(subject.clone().into(), options).await.unwrap();
    // Nobody waits for an answer to these.
    for number in 0..2 {
        a.publish(subject.clone(), text(number.to_string())).await.unwrap();
    }
    let told = a.request(subject.clone(), text("?"), super::PATIENCE).await.unwrap();
    assert_eq!((read(&told), full.dropped()), ("full".to_owned(), 1));
    for number in 0..2 {
        assert_eq!(read(&next(&mut full).await.message), number.to_string());
    }
    let answering = async { next(&mut full).await.reply(text("room")).await.unwrap() };
    let (told, ()) = tokio::join!(a.request(subject, text("?"), super::PATIENCE), answering);
    assert_eq!(read(&told.unwrap()), "room");
}

/// One that never reads costs others nothing.
pub async fn a_full_subscriber_does_not_harm_another(a: Bus, b: Bus) {
    let subject = unique("lazy");
    let options = SubscribeOptions { capacity_messages: 1, ..SubscribeOptions::default() };
    let _lazy = b.subscribe(subject.clone().into(), options).await.unwrap();
    let mut eager = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    for number in 0..1000 {
        a.publish(subject.clone(), text(number.to_string())).await.unwrap();
    }
    a.publish(subject, text("end")).await.unwrap();
    let texts = texts_until(&mut eager, "end").await;
    assert_eq!(texts, (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(eager.dropped(), 0);
}

/// Of 20 messages of 20 000 bytes a subscription with room for 100 000 keeps the first 4, each with what it takes by itself, and counts
/// the others; one message has room always.
pub async fn a_subscriber_drops_what_would_take_too_many_bytes(a: Bus, b: Bus) {
    let subject = unique("heavy");
    let options = SubscribeOptions { capacity_bytes: 100_000, ..SubscribeOptions::default() };
    let mut full = b.subscribe(subject.clone().into(), options).await.unwrap();
    let mut witness = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    for _ in 0..20 {
        a.publish(subject.clone(), text("x".repeat(20_000))).await.unwrap();
    }
    for _ in 0..20 {
        next(&mut witness).await;
    }
    let deadline = tokio::time::Instant::now() + super::PATIENCE;
    while full.dropped() < 16 && tokio::time::Instant::now() < deadline {
        b.flush().await.unwrap();
    }
    assert_eq!(full.dropped(), 16);
    for _ in 0..4 {
        next(&mut full).await;
    }
    a.publish(subject, text("y".repeat(200_000))).await.unwrap();
    assert_eq!(next(&mut full).await.message.payload.len(), 200_000);
}

/// What is larger than it may be arrives, and nothing of it but its subject and how large it was.
pub async fn a_message_that_is_too_large_for_a_subscriber_arrives_empty(a: Bus, b: Bus) {
    let subject = unique("small");
    let mut small = b.subscribe(subject.clone().into(), SubscribeOptions::small(100)).await.unwrap();
    let headed = text("").with_header("x", &"y".repeat(100)).unwrap();
    for message in [text("z".repeat(100)), text("z".repeat(101)), headed] {
        a.publish(subject.clone(), message).await.unwrap();
    }
    let fits = next(&mut small).await;
    assert_eq!((fits.message.payload.len(), fits.too_large), (100, None));
    for _ in 0..2 {
        let large = next(&mut small).await;
        assert_eq!((large.subject, large.message.wire_bytes()), (subject.clone(), 0));
        assert!(large.too_large.is_some_and(|bytes| bytes > 100), "{:?}", large.too_large);
    }
}
