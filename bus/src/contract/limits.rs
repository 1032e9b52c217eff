//! What is refused before it is sent.

use super::{next, read, text, unique};
use crate::{Bus, BusError, Message, SubscribeOptions};

/// The error names both sizes, and the connection lives on.
pub async fn a_payload_of_the_limit_passes_and_one_byte_more_is_refused(a: Bus, b: Bus) {
    let subject = unique("large");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let limit = a.payload_max_bytes();
    assert_eq!(limit, b.payload_max_bytes());
    match a.publish(subject.clone(), Message::new(vec![1; limit + 1])).await {
        Err(BusError::TooLarge { bytes, max_bytes, .. }) => assert_eq!((bytes, max_bytes), (limit + 1, limit)),
        other => panic!("{other:?}"),
    }
    let request = a.request(subject.clone(), Message::new(vec![1; limit + 1]), super::PATIENCE).await;
    assert!(matches!(request, Err(BusError::TooLarge { .. })), "{request:?}");
    a.publish(subject.clone(), Message::new(vec![2; limit])).await.unwrap();
    assert_eq!(next(&mut subscription).await.message.payload, vec![2; limit]);
    a.publish(subject, text("still here")).await.unwrap();
    assert_eq!(read(&next(&mut subscription).await.message), "still here");
}

/// As a server counts them, to the byte.
pub async fn headers_count_towards_the_limit(a: Bus, b: Bus) {
    let subject = unique("headed");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let headed = |bytes: usize| Message::new(vec![3; bytes]).with_header("Exo-Note", "hello").unwrap();
    let room = a.payload_max_bytes() - headed(0).headers.wire_bytes();
    let refused = a.publish(subject.clone(), headed(room + 1)).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })), "{refused:?}");
    a.publish(subject, headed(room)).await.unwrap();
    assert_eq!(next(&mut subscription).await.message, headed(room));
}

/// Bad subjects cannot be made at all; a queue group is named by text.
pub async fn a_bad_queue_name_is_refused(a: Bus, _b: Bus) {
    for name in ["", "two words", "a.b", "*", "x\r\nPUB y 0"] {
        let refused = a.subscribe(unique("queue").into(), SubscribeOptions::queue(name)).await;
        assert!(matches!(refused, Err(BusError::Subject(_))), "{name:?}: {refused:?}");
    }
}
