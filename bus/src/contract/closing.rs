//! The end.

use super::{PATIENCE, next, read, text, unique};
use crate::{Bus, BusError, SubscribeOptions};

/// Nothing published before `drain` is lost, and subscriptions end after their last message.
pub async fn a_drained_bus_delivers_what_was_sent_before(a: Bus, b: Bus) {
    let subject = unique("drain");
    let own = unique("own");
    let mut theirs = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let mut ours = a.subscribe(own.clone().into(), SubscribeOptions::default()).await.unwrap();
    // Received on both handles before the end; with in-process buses both are the same bus.
    for number in 0..1000 {
        a.publish(subject.clone(), text(number.to_string())).await.unwrap();
        a.publish(own.clone(), text(number.to_string())).await.unwrap();
    }
    a.drain().await.unwrap();
    for number in 0..1000 {
        assert_eq!(read(&next(&mut theirs).await.message), number.to_string());
        assert_eq!(read(&next(&mut ours).await.message), number.to_string());
    }
    let end = tokio::time::timeout(PATIENCE, ours.recv()).await.expect("the subscription does not end");
    assert!(end.is_none());
}

/// Every operation says `Closed`; draining again is fine.
pub async fn a_closed_bus_refuses_everything(a: Bus, _b: Bus) {
    let subject = unique("closed");
    a.drain().await.unwrap();
    a.drain().await.unwrap();
    let published = a.publish(subject.clone(), text("x")).await;
    assert!(matches!(published, Err(BusError::Closed)), "{published:?}");
    let subscribed = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await;
    assert!(matches!(subscribed, Err(BusError::Closed)), "{subscribed:?}");
    let asked = a.request(subject, text("x"), PATIENCE).await;
    assert!(matches!(asked, Err(BusError::Closed)), "{asked:?}");
    let flushed = a.flush().await;
    assert!(matches!(flushed, Err(BusError::Closed)), "{flushed:?}");
}
