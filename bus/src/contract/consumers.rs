//! Durable consumers: acknowledgement and redelivery.

use std::time::Duration;

use super::PATIENCE;
use super::streams::{append, config, contents, open, subject};
use crate::streams::{Consumer, ConsumerConfig, Delivered};
use crate::{Bus, BusError, Pattern};

async fn take(consumer: &Consumer, count: usize) -> Vec<Delivered> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let fetched = consumer.fetch(count - taken.len(), PATIENCE).await.unwrap();
        assert!(!fetched.is_empty(), "{} of {count} records came", taken.len());
        taken.extend(fetched);
    }
    taken
}

fn texts(delivered: &[Delivered]) -> Vec<String> {
    contents(&delivered.iter().map(|one| one.record().clone()).collect::<Vec<_>>())
}

/// What is acknowledged never comes again; the place survives the handle and is shared by name.
pub async fn a_place_survives_its_handle(a: Bus, b: Bus) {
    let settings = config();
    let stream = open(&a, &settings).await;
    for number in 0..6 {
        append(&stream, "x", &number.to_string()).await;
    }
    let durable = ConsumerConfig::new("workers");
    let first = stream.consumer(&durable).await.unwrap();
    for delivered in take(&first, 4).await {
        assert_eq!(delivered.attempt(), 1);
        delivered.ack().await.unwrap();
        delivered.ack().await.unwrap();
    }
    drop(first);
    let second = open(&b, &settings).await.consumer(&durable).await.unwrap();
    assert_eq!(texts(&take(&second, 2).await), ["4", "5"]);
    assert!(second.fetch(1, Duration::ZERO).await.unwrap().is_empty());
}

/// Not acknowledged: again after `ack_wait`, counted; an acknowledgement of the second delivery is enough.
pub async fn what_is_not_acknowledged_comes_again(a: Bus, b: Bus) {
    let settings = config();
    let stream = open(&a, &settings).await;
    append(&stream, "x", "kept").await;
    append(&stream, "x", "lost").await;
    let durable = ConsumerConfig { ack_wait: Duration::from_millis(500), ..ConsumerConfig::new("workers") };
    let consumer = stream.consumer(&durable).await.unwrap();
    let first = take(&consumer, 2).await;
    first[0].ack().await.unwrap();
    let other = open(&b, &settings).await.consumer(&durable).await.unwrap();
    let again = take(&other, 1).await;
    assert_eq!((texts(&again), again[0].attempt()), (vec!["lost".to_owned()], 2));
    again[0].ack().await.unwrap();
    append(&stream, "x", "end").await;
    assert_eq!(texts(&take(&other, 1).await), ["end"]);
}

/// Given back: again at once, before `ack_wait`, which is far off here.
pub async fn what_is_given_back_comes_again_soon(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    append(&stream, "x", "1").await;
    let durable = ConsumerConfig { ack_wait: PATIENCE * 10, ..ConsumerConfig::new("workers") };
    let consumer = stream.consumer(&durable).await.unwrap();
    let first = take(&consumer, 1).await.remove(0);
    first.in_progress().await.unwrap();
    first.nack(Duration::from_millis(50)).await.unwrap();
    let again = take(&consumer, 1).await.remove(0);
    assert_eq!(again.attempt(), 2);
    again.nack(Duration::ZERO).await.unwrap();
    assert_eq!(take(&consumer, 1).await[0].attempt(), 3);
}

/// No more than `unacked_max` are under way; an acknowledgement makes room.
pub async fn unacknowledged_records_are_bounded(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    for number in 0..5 {
        append(&stream, "x", &number.to_string()).await;
    }
    let durable = ConsumerConfig { unacked_max: 2, ..ConsumerConfig::new("workers") };
    let consumer = stream.consumer(&durable).await.unwrap();
    let first = take(&consumer, 2).await;
    assert!(consumer.fetch(5, Duration::from_millis(50)).await.unwrap().is_empty());
    first[0].ack().await.unwrap();
    assert_eq!(texts(&take(&consumer, 1).await), ["2"]);
}

/// Two handles share the records, each gets some once; a filter keeps the rest away.
pub async fn members_share_and_filters_hold(a: Bus, b: Bus) {
    let settings = config();
    let stream = open(&a, &settings).await;
    for number in 0..10 {
        append(&stream, if number % 2 == 0 { "even" } else { "odd" }, &number.to_string()).await;
    }
    let even = Some(Pattern::from(subject(&stream, "even")));
    let durable = ConsumerConfig { subjects: even, ..ConsumerConfig::new("workers") };
    let ours = stream.consumer(&durable).await.unwrap();
    let theirs = open(&b, &settings).await.consumer(&durable).await.unwrap();
    let mut shared = texts(&take(&ours, 2).await);
    shared.extend(texts(&take(&theirs, 3).await));
    shared.sort_unstable();
    assert_eq!(shared, ["0", "2", "4", "6", "8"]);
}

/// Someone who waits gets what comes; someone whose consumer is gone is told.
pub async fn a_consumer_waits_and_ends(a: Bus, b: Bus) {
    let settings = config();
    let stream = open(&a, &settings).await;
    let durable = ConsumerConfig::new("workers");
    let consumer = open(&b, &settings).await.consumer(&durable).await.unwrap();
    let (fetched, _) = tokio::join!(consumer.fetch(5, PATIENCE), append(&stream, "x", "1"));
    assert_eq!(texts(&fetched.unwrap()), ["1"]);
    let other = ConsumerConfig { unacked_max: 7, ..durable };
    let refused = stream.consumer(&other).await;
    assert!(matches!(refused, Err(BusError::StreamDiffers { .. })), "{refused:?}");
    assert!(stream.delete_consumer("workers").await.unwrap());
    assert!(!stream.delete_consumer("workers").await.unwrap());
    let gone = consumer.fetch(1, PATIENCE).await;
    assert!(matches!(gone, Err(BusError::ConsumerMissing { .. })), "{gone:?}");
}
