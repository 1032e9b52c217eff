//! Messages that make no sense: all are counted. Of each sender that has proven who it is one is logged, of all strangers one a minute.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use exobus_bus::session::{Endpoint, Peer, SessionOptions};
use exobus_bus::{Message, codec};
use parking_lot::Mutex;

use crate::harness::Cluster;

const PATIENCE: Duration = Duration::from_secs(30);

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Captured;

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures what all threads of this process log.
fn capture() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Captured).init());
}

/// Lines about messages of strangers.
fn lines_about_strangers() -> usize {
    let log = String::from_utf8(LOG.lock().clone()).unwrap();
    log.lines().filter(|line| line.contains("messages of strangers dropped")).count()
}

/// Lines about refused messages of a sender.
fn lines_about(sender: &str) -> usize {
    let log = String::from_utf8(LOG.lock().clone()).unwrap();
    log.lines().filter(|line| line.contains("message refused") && line.contains(sender)).count()
}

/// One of each kind of nonsense, in place of a value of a protocol.
fn nonsense() -> [Vec<u8>; 5] {
    let foreign = {
        let mut bytes = codec::encode(&"fine but for its version").unwrap().to_vec();
        bytes[0] = codec::FORMAT_VERSION + 1;
        bytes
    };
    let deep = [vec![codec::FORMAT_VERSION], vec![0x91; 100_000]].concat();
    let other_type = codec::encode(&["no", "message"]).unwrap().to_vec();
    let too_large = [vec![codec::FORMAT_VERSION], vec![0xc0; codec::SIZE_BYTES_MAX]].concat();
    [Vec::new(), foreign, deep, other_type, too_large]
}

#[tokio::test]
async fn every_refused_message_is_counted_and_who_sends_them_cannot_flood_the_log() {
    capture();
    let cluster = Cluster::new();
    cluster.start("target");
    let target = cluster.node("target");
    let before = target.figures().refused_messages;
    let mut sent = 0;

    // Heartbeats of two strangers.
    for sender in ["stranger-a", "stranger-b"] {
        let subject = cluster.subjects.node(sender, "beat").unwrap();
        for _ in 0..10 {
            for bytes in nonsense() {
                cluster.bus.try_publish(subject.clone(), Message::new(bytes)).unwrap();
                sent += 1;
            }
        }
    }
    // What is no frame, on the subject of a session.
    let subject = cluster.subjects.session("target", "stranger-c").unwrap();
    for _ in 0..50 {
        cluster.bus.try_publish(subject.clone(), Message::new("no frame")).unwrap();
        sent += 1;
    }
    // Items in good frames: of an unknown kind, and messages to actors that are there.
    let me = Peer { node: "peer-d".into(), incarnation: 1 };
    let options = SessionOptions::default();
    let (endpoint, _events) = Endpoint::open(cluster.bus.clone(), cluster.subjects.clone(), me, options).await.unwrap();
    for actor in ["scheduler", "node", "host"] {
        for bytes in nonsense().iter().filter(|bytes| bytes.len() < 200_000) {
            for kind in [0_u8, 77] {
                endpoint.send("target", actor, [&[kind], &bytes[..]].concat().into()).unwrap();
                sent += 1;
            }
        }
    }
    let refused = || target.figures().refused_messages - before;
    let all = async {
        while refused() < sent {
            tokio::task::yield_now().await;
        }
    };
    // What comes of it is checked below; without a bound a message that is not counted would be a test that hangs.
    let _ = tokio::time::timeout(PATIENCE, all).await;
    assert_eq!(refused(), sent);
    assert_eq!(lines_about("peer-d"), 1);
    // One for each place that strangers can reach: beats, and sessions.
    assert_eq!(lines_about_strangers(), 2);
    // A word to a job that is over is late, not wrong.
    endpoint.send("target", "owner-of-nobody", [&[0_u8], &nonsense()[1][..]].concat().into()).unwrap();
    endpoint.drain(PATIENCE).await.unwrap();
    assert_eq!(refused(), sent);
    assert!(target.fatal().is_none(), "the node lives on");
}
