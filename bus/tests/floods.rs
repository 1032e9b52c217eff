//! What waits here of messages that anybody may send: far less than is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::session::{Endpoint, Event, Peer, SessionOptions};
use exobus_bus::{Bus, Credentials, Message, Subject, Subjects, SubscribeOptions};
use tokio::time::timeout;

const MIB: usize = 1024 * 1024;
/// Virtual, so it costs nothing.
const PATIENCE: Duration = Duration::from_secs(600);
static CONTENT: [u8; MIB - 1024] = [0xe5; MIB - 1024];

/// Counts the bytes of its payloads that somebody still has.
#[derive(Clone, Default)]
struct Flood(Arc<AtomicUsize>);

struct Counted(Arc<AtomicUsize>, usize);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &CONTENT[..self.1]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Flood {
    /// Publishes 10 000 messages of so many bytes on a subject; what is kept of all so far, in bytes.
    fn strike(&self, bus: &Bus, subject: &Subject, bytes: usize) -> usize {
        for _ in 0..10_000 {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            let payload = Bytes::from_owner(Counted(self.0.clone(), bytes));
            bus.try_publish(subject.clone(), Message::new(payload)).unwrap();
        }
        self.0.load(Ordering::Relaxed)
    }
}

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

#[tokio::test]
async fn a_reader_of_small_messages_that_stops_keeps_one_mib_of_them_and_nothing_of_large_ones() {
    let bus = Bus::in_process();
    for (bytes, most) in [(CONTENT.len(), 0), (16 * 1024 + 1, 0), (16 * 1024, MIB), (1, MIB / 512)] {
        let (flood, pattern) = (Flood::default(), subjects().every_node("beat").unwrap());
        let mut beats = bus.subscribe(pattern, SubscribeOptions::small(16 * 1024)).await.unwrap();
        let kept = flood.strike(&bus, &subjects().node("x", "beat").unwrap(), bytes);
        assert!(kept <= most && kept >= most / 2, "{kept} bytes of messages of {bytes}");
        // Each takes something, however short it is.
        assert!(beats.dropped() >= 10_000 - 2048, "{}", beats.dropped());
        // What was read has room again.
        while beats.try_recv().is_some() {}
        assert_eq!(flood.0.load(Ordering::Relaxed), 0);
        let dropped = beats.dropped();
        bus.try_publish(subjects().node("x", "beat").unwrap(), Message::new("beat")).unwrap();
        assert!(beats.try_recv().is_some() && beats.dropped() == dropped);
    }
}

#[tokio::test]
async fn a_plain_reader_that_stops_keeps_four_mib() {
    let bus = Bus::in_process();
    let subject = subjects().node("x", "owner").unwrap();
    let _unread = bus.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let kept = Flood::default().strike(&bus, &subject, CONTENT.len());
    assert!((2 * MIB..=4 * MIB).contains(&kept), "{kept} bytes");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_keeps_eight_mib_of_what_it_has_not_looked_at_and_hears_its_peers_afterwards() {
    let bus = Bus::in_process().with_credentials(Credentials::node(Some("the nodes' token of a test"), None));
    let open = |node: &str| {
        let me = Peer { node: node.to_owned(), incarnation: 1 };
        Endpoint::open(bus.clone(), subjects(), me, SessionOptions::default())
    };
    let ((b, mut b_events), (a, _a_events)) = (open("b").await.unwrap(), open("a").await.unwrap());
    let flood = Flood::default();
    for bytes in [CONTENT.len(), 64 * 1024] {
        // It does not run meanwhile: nothing here waits.
        let kept = flood.strike(&bus, &subjects().session("b", "n9").unwrap(), bytes);
        assert!((6 * MIB..=8 * MIB).contains(&kept), "{kept} bytes of frames of {bytes}");
    }
    a.send("b", "x", "hi".into()).unwrap();
    let event = timeout(PATIENCE, b_events.recv()).await.expect("nothing is heard").unwrap();
    assert!(matches!(&event, Event::Items { items, .. } if items[0].1 == "hi"), "{event:?}");
    assert_eq!(flood.0.load(Ordering::Relaxed), 0);
    assert_eq!(b.stats().frames_of_strangers, 20_000);
}
