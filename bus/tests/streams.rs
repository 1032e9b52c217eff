//! Durable streams in process: what faults on the way do, and what a file keeps.

use std::time::Duration;

use exobus_bus::chaos::{Chaos, Faults};
use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::streams::{Append, ConsumerConfig, Expect, Purge, ReadFrom, Stream, StreamConfig};
use exobus_bus::{Bus, BusError, InProcessOptions, Message, Pattern, Subject};

const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> StreamConfig {
    StreamConfig::new("kept", Pattern::parse("kept.>").unwrap())
}

fn record(number: u64) -> Append {
    Append::new(Subject::parse("kept.x").unwrap(), Message::new(number.to_string()))
}

async fn contents(stream: &Stream) -> Vec<String> {
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    let mut contents = Vec::new();
    loop {
        let batch = reader.next(64, Duration::ZERO).await.unwrap();
        contents.extend(batch.records.iter().map(|r| String::from_utf8_lossy(&r.message.payload).into_owned()));
        if batch.caught_up {
            return contents;
        }
    }
}

async fn file(path: &std::path::Path) -> Bus {
    Bus::in_process_durable(InProcessOptions::default(), path).await.unwrap()
}

fn faults() -> Faults {
    Faults { drop: 0.2, drop_answer: 0.2, repeat: 0.2, ..Faults::default() }
}

#[tokio::test(start_paused = true)]
async fn lost_and_repeated_appends_with_an_id_append_once() {
    for seed in 0..20 {
        let bus = Bus::in_process();
        let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
        let chaos = Chaos::around(&bus, seed, faults());
        let struck = Stream::open(&chaos.bus(), &config(), PATIENCE).await.unwrap();
        for number in 0..50 {
            // Each is conditional on the one before: a copy that slipped in would make the next one fail.
            let append = record(number).dedupe(&format!("n-{number}")).unwrap().expect(Expect::Last(number));
            let appended = struck.append(append, PATIENCE).await.unwrap();
            assert_eq!(appended.sequence, number + 1, "seed {seed}");
        }
        let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        assert_eq!(contents(&stream).await, expected, "seed {seed}");
        let stats = chaos.stats();
        assert!(stats.dropped > 0 && stats.answers_dropped > 0 && stats.repeated > 0, "seed {seed}: {stats:?}");
    }
}

/// Without an id the handle does not repeat what may have been done.
#[tokio::test(start_paused = true)]
async fn a_lost_append_without_an_id_is_the_callers_to_repeat() {
    let bus = Bus::in_process();
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    let chaos = Chaos::around(&bus, 1, Faults::default());
    let struck = Stream::open(&chaos.bus(), &config(), PATIENCE).await.unwrap();
    chaos.set(Faults { drop_answer: 1.0, ..Faults::default() });
    let lost = struck.append(record(1), PATIENCE).await;
    assert!(matches!(lost, Err(BusError::TimedOut { .. })), "{lost:?}");
    assert_eq!(contents(&stream).await, ["1"]);
}

/// One who updates a counter under its revision, through faults, counts right: every success is one step.
#[tokio::test(start_paused = true)]
async fn conditional_writes_through_faults_happen_once() {
    for seed in 0..20 {
        let bus = Bus::in_process();
        let config = KvConfig { deadline: PATIENCE, ..KvConfig::new("b", Subject::parse("kv.b").unwrap()) };
        let calm = Kv::open(&bus, &config).await.unwrap();
        let chaos = Chaos::around(&bus, seed, faults());
        let kv = Kv::open(&chaos.bus(), &config).await.unwrap();
        let mut revision = kv.create("n", "0").await.unwrap();
        for number in 1..40 {
            revision = kv.update("n", number.to_string(), revision).await.unwrap();
            assert_eq!(revision, number + 1, "seed {seed}: a write happened twice");
        }
        assert_eq!(&calm.get("n").await.unwrap().unwrap().value[..], b"39");
        assert!(chaos.stats().answers_dropped > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_through_faults_gets_everything_at_least_once() {
    for seed in 0..10 {
        let bus = Bus::in_process();
        let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
        for number in 0..50 {
            stream.append(record(number), PATIENCE).await.unwrap();
        }
        let chaos = Chaos::around(&bus, seed, faults());
        let struck = Stream::open(&chaos.bus(), &config(), PATIENCE).await.unwrap();
        let consumer = struck.consumer(&ConsumerConfig::new("workers")).await.unwrap();
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 50 {
            let Ok(fetched) = consumer.fetch(7, Duration::from_secs(40)).await else { continue };
            for delivered in fetched {
                seen.insert(delivered.record().sequence);
                // Lost or not: at worst it comes again.
                let _ = delivered.ack().await;
            }
        }
        assert!(chaos.stats().answers_dropped > 0, "seed {seed}");
    }
}

#[tokio::test]
async fn a_file_keeps_records_ids_places_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("streams.redb");
    let bus = file(&path).await;
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    for number in 1..=5 {
        stream.append(record(number).dedupe(&format!("n-{number}")).unwrap(), PATIENCE).await.unwrap();
    }
    let consumer = stream.consumer(&ConsumerConfig::new("workers")).await.unwrap();
    let fetched = consumer.fetch(3, PATIENCE).await.unwrap();
    fetched[0].ack().await.unwrap();
    fetched[2].ack().await.unwrap();
    stream.purge(&Purge { before: Some(2), ..Purge::default() }).await.unwrap();
    let kv = Kv::open(&bus, &KvConfig::new("bucket", Subject::parse("kv.b").unwrap())).await.unwrap();
    let revision = kv.put("k", "v").await.unwrap();
    let busy = Bus::in_process_durable(InProcessOptions::default(), &path).await;
    assert!(matches!(busy, Err(BusError::Storage(_))), "two buses have one file: {busy:?}");
    bus.drain().await.unwrap();

    let bus = file(&path).await;
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    assert_eq!(contents(&stream).await, ["2", "3", "4", "5"]);
    let again = stream.append(record(4).dedupe("n-4").unwrap(), PATIENCE).await.unwrap();
    assert!(again.duplicate && again.sequence == 4, "{again:?}");
    let consumer = stream.consumer(&ConsumerConfig::new("workers")).await.unwrap();
    let rest: Vec<u64> = consumer.fetch(9, PATIENCE).await.unwrap().iter().map(|one| one.record().sequence).collect();
    assert_eq!(rest, [2, 4, 5]);
    assert_eq!(stream.append(record(6), PATIENCE).await.unwrap().sequence, 6);
    let kv = Kv::open(&bus, &KvConfig::new("bucket", Subject::parse("kv.b").unwrap())).await.unwrap();
    assert_eq!(kv.get("k").await.unwrap().unwrap().revision, revision);
    let other = Stream::open(&bus, &StreamConfig { records_max: 9, ..config() }, PATIENCE).await;
    assert!(matches!(other, Err(BusError::StreamDiffers { .. })), "{other:?}");
    bus.drain().await.unwrap();
}

/// Wherever a bit flips, the file is refused, or what it gives is what was written: never something else.
#[tokio::test]
async fn a_damaged_file_gives_no_wrong_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("streams.redb");
    let bus = file(&path).await;
    let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
    let marker = |number: u64| format!("payload-{number:08}");
    for number in 1..=200 {
        let append = Append::new(Subject::parse("kept.x").unwrap(), Message::new(marker(number)));
        stream.append(append, PATIENCE).await.unwrap();
    }
    bus.drain().await.unwrap();
    let good = std::fs::read(&path).unwrap();
    let at = good.windows(8).enumerate().filter(|(_, window)| window == b"payload-").map(|(at, _)| at);
    let places: Vec<usize> = at.collect();
    assert!(places.len() >= 200, "the payloads are not in the file as they are");
    let mut refused = 0;
    for place in places.iter().step_by(places.len() / 20) {
        let mut bad = good.clone();
        bad[place + 12] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        match Bus::in_process_durable(InProcessOptions::default(), &path).await {
            Err(error) => {
                assert!(matches!(error, BusError::Storage(_)), "{error}");
                refused += 1;
            }
            Ok(bus) => {
                // The flip was in a page that is not used any more.
                let stream = Stream::open(&bus, &config(), PATIENCE).await.unwrap();
                assert_eq!(contents(&stream).await, (1..=200).map(marker).collect::<Vec<_>>());
                bus.drain().await.unwrap();
            }
        }
    }
    assert!(refused > 0, "no flip was found");
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "not a database").unwrap();
    let refused = Bus::in_process_durable(InProcessOptions::default(), &path).await;
    assert!(matches!(refused, Err(BusError::Storage(_))), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"not a database");
    let missing = Bus::in_process_durable(InProcessOptions::default(), &dir.path().join("no/such/folder")).await;
    assert!(matches!(missing, Err(BusError::Storage(_))), "{missing:?}");
}
