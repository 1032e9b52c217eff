//! Durable streams when what keeps them is killed: nothing that was acknowledged is lost, nothing is there twice.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_bus::kv::{Change, Kv, KvConfig, WatchEvent};
use exobus_bus::streams::{Append, ConsumerConfig, ReadFrom, Record, Stream, StreamConfig};
use exobus_bus::{Bus, BusError, InProcessOptions, Message, NatsOptions, Pattern, Subject};
use tokio::time::timeout;

use crate::harness::nats::NatsServer;

const PATIENCE: Duration = Duration::from_secs(60);

fn subject(text: &str) -> Subject {
    Subject::parse(text).unwrap()
}

fn config() -> StreamConfig {
    StreamConfig::new("kept", Pattern::parse("kept.>").unwrap())
}

fn number(record: &Record) -> u64 {
    String::from_utf8_lossy(&record.message.payload).parse().unwrap()
}

async fn numbers(stream: &Stream) -> Vec<u64> {
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    let mut numbers = Vec::new();
    loop {
        let batch = reader.next(500, Duration::ZERO).await.unwrap();
        numbers.extend(batch.records.iter().map(number));
        if batch.caught_up {
            return numbers;
        }
    }
}

/// Appends 1 to `count` one after another, known by their number; notes how many are acknowledged.
async fn append_all(stream: Stream, count: u64, acknowledged: Arc<AtomicU64>) {
    for number in 1..=count {
        let append = Append::new(subject("kept.x"), Message::new(number.to_string()));
        stream.append(append.dedupe(&format!("n-{number}")).unwrap(), PATIENCE).await.unwrap();
        acknowledged.store(number, Ordering::Release);
    }
}

#[tokio::test]
async fn a_killed_server_loses_and_repeats_nothing_that_was_acknowledged() {
    const COUNT: u64 = 400;
    let mut server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    // Reads along all the time, over every restart.
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < COUNT as usize {
            match reader.next(100, Duration::from_secs(2)).await {
                Ok(batch) => seen.extend(batch.records.iter().map(number)),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
        seen
    });
    let acknowledged = Arc::new(AtomicU64::new(0));
    let appending = tokio::spawn(append_all(stream.clone(), COUNT, acknowledged.clone()));
    for kill_after in [100, 200, 300] {
        while acknowledged.load(Ordering::Acquire) < kill_after {
            assert!(!appending.is_finished(), "it appended nothing while the server was killed");
            tokio::task::yield_now().await;
        }
        server.stop();
        server.start_again().await;
    }
    timeout(PATIENCE * 2, appending).await.expect("appending hangs").unwrap();
    assert!(bus.stats().backend.reconnects >= 3, "{:?}", bus.stats());
    let expected: Vec<u64> = (1..=COUNT).collect();
    assert_eq!(numbers(&stream).await, expected);
    assert_eq!(timeout(PATIENCE, reading).await.expect("reading hangs").unwrap(), expected);
}

#[tokio::test]
async fn a_consumer_and_a_watch_go_on_after_the_server_was_killed() {
    let mut server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    append_all(stream.clone(), 3, Arc::default()).await;
    let durable = ConsumerConfig { ack_wait: Duration::from_secs(2), ..ConsumerConfig::new("workers") };
    let consumer = stream.consumer(&durable).await.unwrap();
    let first = consumer.fetch(1, PATIENCE).await.unwrap().remove(0);
    first.ack().await.unwrap();
    let kv =
        Kv::open(&bus, &KvConfig { deadline: PATIENCE, ..KvConfig::new("bucket", subject("kv.b")) }).await.unwrap();
    let revision = kv.create("k", "1").await.unwrap();
    let mut watch = kv.watch(None).await.unwrap();
    assert!(matches!(watch.next(PATIENCE).await.unwrap(), Some(WatchEvent::Changed(Change::Put(_)))));
    assert_eq!(watch.next(PATIENCE).await.unwrap(), Some(WatchEvent::CaughtUp));

    server.stop();
    let lost = kv.stream().last(&subject("kv.b.k")).await;
    assert!(lost.as_ref().is_err_and(BusError::is_retryable), "{lost:?}");
    server.start_again().await;

    let updated = kv.update("k", "2", revision).await.unwrap();
    loop {
        match watch.next(Duration::from_secs(5)).await {
            Ok(Some(WatchEvent::Changed(Change::Put(entry)))) => {
                assert_eq!((entry.revision, &entry.value[..]), (updated, &b"2"[..]));
                break;
            }
            Ok(None) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    // The first may come again: the server writes down what was acknowledged a moment later.
    let mut rest = BTreeSet::new();
    while !rest.is_superset(&BTreeSet::from([2, 3])) {
        match consumer.fetch(5, Duration::from_secs(5)).await {
            Ok(fetched) => {
                for delivered in fetched {
                    delivered.ack().await.unwrap();
                    rest.insert(number(delivered.record()));
                }
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_streams_says_so() {
    let server = NatsServer::start_without_streams("").await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let error = Stream::open(&bus, &config(), Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, BusError::Unsupported(_) | BusError::NoResponders { .. }), "{error:?}");
}

#[tokio::test]
async fn a_domain_of_its_own_is_spoken_to() {
    let server = NatsServer::start_with("").await;
    let asked = |domain: &str| NatsOptions { stream_domain: Some(domain.to_owned()), ..NatsOptions::url(server.url()) };
    let absent = Bus::connect(asked("elsewhere")).await.unwrap();
    let error = Stream::open(&absent, &config(), Duration::from_secs(1)).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
}

/// Killed with SIGKILL while it writes, three times over: all that it printed is there, in order and once.
#[tokio::test]
async fn a_killed_process_leaves_a_file_with_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("streams.redb");
    let mut printed = Vec::new();
    for round in 1..=3 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stream_writer"))
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start stream_writer");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..30 * round {
            printed.push(lines.next().expect("it ended by itself").unwrap().parse::<u64>().unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was in the pipe was acknowledged, too; a line may be torn.
        printed.extend(lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok()));
    }
    let bus = Bus::in_process_durable(InProcessOptions::default(), &path).await.unwrap();
    let kept = numbers(&Stream::open(&bus, &config(), PATIENCE).await.unwrap()).await;
    assert_eq!(kept, (1..=kept.len() as u64).collect::<Vec<_>>());
    let last = printed.iter().max().copied().unwrap();
    assert!(kept.len() as u64 >= last, "{} kept, {last} acknowledged", kept.len());
    bus.drain().await.unwrap();
}
