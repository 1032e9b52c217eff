//! Durable streams: order, dedupe, conditions, reading, limits, removal.

use std::time::Duration;

use super::{PATIENCE, read, text};
use crate::streams::{Append, Appended, Expect, Purge, ReadFrom, Reader, Record, Stream, StreamConfig};
use crate::subject::unique_token;
use crate::{Bus, BusError, Message, Pattern, Subject};

/// A stream that no other clause uses.
pub(super) fn config() -> StreamConfig {
    let token = unique_token();
    let subjects = Pattern::parse(&format!("contract.{token}.>")).expect("a valid pattern");
    StreamConfig { bytes_max: 4 * 1024 * 1024, ..StreamConfig::new(&format!("contract_{token}"), subjects) }
}

pub(super) async fn open(bus: &Bus, config: &StreamConfig) -> Stream {
    Stream::open(bus, config, PATIENCE).await.unwrap()
}

/// `tail` within the stream.
pub(super) fn subject(stream: &Stream, tail: &str) -> Subject {
    let pattern = stream.config().subjects.as_str();
    Subject::parse(&pattern.replace('>', tail)).expect("a valid subject")
}

pub(super) async fn append(stream: &Stream, tail: &str, content: &str) -> u64 {
    let append = Append::new(subject(stream, tail), text(content));
    let appended = stream.append(append, PATIENCE).await.unwrap();
    assert!(!appended.duplicate);
    appended.sequence
}

pub(super) fn contents(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| read(&record.message)).collect()
}

/// At least `count` records, as they come.
async fn take(reader: &mut Reader, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < count {
        let batch = reader.next(7, PATIENCE).await.unwrap();
        assert!(!batch.records.is_empty(), "{} of {count} records came", records.len());
        records.extend(batch.records);
    }
    records
}

/// Everything that is there.
pub(super) async fn all(stream: &Stream) -> Vec<Record> {
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    let mut records = Vec::new();
    loop {
        let batch = reader.next(100, Duration::ZERO).await.unwrap();
        records.extend(batch.records);
        if batch.caught_up {
            return records;
        }
    }
}

/// Sequences are 1, 2, 3, and another handle reads what was written, headers included.
pub async fn records_are_numbered_and_read_in_order(a: Bus, b: Bus) {
    let config = config();
    let stream = open(&a, &config).await;
    for number in 1..=20_u64 {
        assert_eq!(append(&stream, "x.y", &number.to_string()).await, number);
    }
    let headed = text("headed").with_header("Exo-Note", "hello").unwrap();
    stream.append(Append::new(subject(&stream, "z"), headed.clone()), PATIENCE).await.unwrap();
    let mut reader = open(&b, &config).await.read(ReadFrom::First, None).await.unwrap();
    let records = take(&mut reader, 21).await;
    let numbers: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    assert_eq!(numbers, (1..=21).collect::<Vec<_>>());
    assert_eq!(contents(&records[..20]), (1..=20).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!((&records[0].subject, &records[20].message), (&subject(&stream, "x.y"), &headed));
    let rest = reader.next(7, Duration::ZERO).await.unwrap();
    assert!(rest.caught_up && rest.records.is_empty(), "{rest:?}");
}

/// Reading begins where it is told to, and takes only the subjects it is told.
pub async fn reading_begins_anywhere_and_filters(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    for (tail, content) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c.d", "c1"), ("b", "b2")] {
        append(&stream, tail, content).await;
    }
    let only = |tail: &str| Some(Pattern::from(subject(&stream, tail)));
    let from = async |from: ReadFrom, subjects: Option<Pattern>, count: usize| {
        let mut reader = stream.read(from, subjects).await.unwrap();
        let mut records = take(&mut reader, count).await;
        records.extend(reader.next(7, Duration::ZERO).await.unwrap().records);
        contents(&records)
    };
    assert_eq!(from(ReadFrom::Sequence(3), None, 3).await, ["a2", "c1", "b2"]);
    assert_eq!(from(ReadFrom::First, only("b"), 2).await, ["b1", "b2"]);
    assert_eq!(from(ReadFrom::Sequence(2), only("a"), 1).await, ["a2"]);
    assert_eq!(from(ReadFrom::LastOfEachSubject, None, 3).await, ["a2", "c1", "b2"]);
    let mut newest = stream.read(ReadFrom::New, None).await.unwrap();
    append(&stream, "a", "a3").await;
    assert_eq!(contents(&take(&mut newest, 1).await), ["a3"]);
}

/// A reader that waits gets what is appended later, and being cancelled costs it nothing.
pub async fn a_reader_follows(a: Bus, b: Bus) {
    let config = config();
    let stream = open(&a, &config).await;
    let mut reader = open(&b, &config).await.read(ReadFrom::First, None).await.unwrap();
    let waiting = reader.next(10, PATIENCE);
    let (batch, _) = tokio::join!(waiting, append(&stream, "x", "first"));
    assert_eq!(contents(&batch.unwrap().records), ["first"]);
    for round in 0..20 {
        // Whether the record comes before or after the end of the wait: it is not lost.
        let content = round.to_string();
        let cancelled = tokio::time::timeout(Duration::from_millis(round % 4), reader.next(10, PATIENCE));
        let (early, _) = tokio::join!(cancelled, append(&stream, "x", &content));
        let records = match early {
            Ok(batch) => batch.unwrap().records,
            Err(_) => take(&mut reader, 1).await,
        };
        assert_eq!(contents(&records), [content]);
    }
}

/// The second is answered with the first one's sequence, also under a condition that no longer holds.
pub async fn a_dedupe_id_is_appended_once(a: Bus, b: Bus) {
    let config = config();
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    let once = |stream: &Stream, expect| {
        Append::new(subject(stream, "x"), text("once")).dedupe("id-1").unwrap().expect(expect)
    };
    let first = ours.append(once(&ours, Expect::Last(0)), PATIENCE).await.unwrap();
    assert_eq!(first, Appended { sequence: 1, duplicate: false });
    append(&ours, "x", "other").await;
    for (stream, expect) in [(&ours, Expect::Any), (&theirs, Expect::Last(0)), (&theirs, Expect::LastOfSubject(0))] {
        let again = stream.append(once(stream, expect), PATIENCE).await.unwrap();
        assert_eq!(again, Appended { sequence: 1, duplicate: true }, "{expect:?}");
    }
    assert_eq!(contents(&all(&ours).await), ["once", "other"]);
}

/// An id is forgotten after the window, not before the record's own.
pub async fn a_dedupe_id_is_forgotten_after_the_window(a: Bus, _b: Bus) {
    let config = StreamConfig { dedupe_window: Duration::from_millis(200), ..config() };
    let stream = open(&a, &config).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut appended = 0;
    while appended < 2 {
        assert!(tokio::time::Instant::now() < deadline, "the id is remembered for ever");
        let append = Append::new(subject(&stream, "x"), text("again")).dedupe("id-1").unwrap();
        appended += u64::from(!stream.append(append, PATIENCE).await.unwrap().duplicate);
    }
    assert_eq!(stream.state().await.unwrap().records, 2);
}

/// Fencing: of two who expect the same last record one wins; the other learns it and nothing is appended.
pub async fn a_condition_that_does_not_hold_appends_nothing(a: Bus, b: Bus) {
    let config = config();
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    append(&ours, "x", "1").await;
    append(&ours, "y", "2").await;
    let attempt = |stream: &Stream, tail: &str, expect| Append::new(subject(stream, tail), text("won")).expect(expect);
    let stale = theirs.append(attempt(&theirs, "x", Expect::Last(1)), PATIENCE).await;
    assert!(matches!(stale, Err(BusError::Conflict { expected: 1, .. })), "{stale:?}");
    let stale = theirs.append(attempt(&theirs, "x", Expect::LastOfSubject(2)), PATIENCE).await;
    assert!(matches!(stale, Err(BusError::Conflict { expected: 2, .. })), "{stale:?}");
    assert!(!stale.unwrap_err().is_retryable());
    let there = theirs.append(attempt(&theirs, "x", Expect::LastOfSubject(0)), PATIENCE).await;
    assert!(matches!(there, Err(BusError::Conflict { expected: 0, .. })), "{there:?}");
    let (one, other) = tokio::join!(
        ours.append(attempt(&ours, "x", Expect::Last(2)), PATIENCE),
        theirs.append(attempt(&theirs, "x", Expect::Last(2)), PATIENCE),
    );
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
    ours.append(attempt(&ours, "x", Expect::LastOfSubject(3)), PATIENCE).await.unwrap();
    ours.append(attempt(&ours, "new", Expect::LastOfSubject(0)), PATIENCE).await.unwrap();
    assert_eq!(contents(&all(&ours).await), ["1", "2", "won", "won", "won"]);
}

/// The last of a subject, as of now, on any handle.
pub async fn the_last_record_of_a_subject(a: Bus, b: Bus) {
    let config = config();
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    assert_eq!(theirs.last(&subject(&ours, "x")).await.unwrap(), None);
    for content in ["1", "2", "3"] {
        let sequence = append(&ours, "x", content).await;
        append(&ours, "y", "other").await;
        let last = theirs.last(&subject(&ours, "x")).await.unwrap().unwrap();
        assert_eq!((last.sequence, read(&last.message).as_str()), (sequence, content));
    }
}

/// What is beyond a limit is refused, what is there stays, and there is room again after a purge.
pub async fn a_full_stream_refuses(a: Bus, _b: Bus) {
    let few = open(&a, &StreamConfig { records_max: 3, ..config() }).await;
    for number in 0..3 {
        append(&few, "x", &number.to_string()).await;
    }
    let refused = few.append(Append::new(subject(&few, "x"), text("3")), PATIENCE).await;
    assert!(matches!(refused, Err(BusError::StreamFull { .. })), "{refused:?}");
    assert_eq!(contents(&all(&few).await), ["0", "1", "2"]);
    assert_eq!(few.purge(&Purge { before: Some(3), ..Purge::default() }).await.unwrap(), 2);
    assert_eq!(append(&few, "x", "3").await, 4);

    let small = open(&a, &StreamConfig { bytes_max: 10_000, ..config() }).await;
    let mut taken = 0;
    let refused = loop {
        let append = Append::new(subject(&small, "x"), Message::new(vec![7; 1000]));
        match small.append(append, PATIENCE).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, BusError::StreamFull { .. }), "{refused}");
    // Ten of 1000 bytes do not fit with their subjects; a backend's own overhead may cost another.
    assert!((8..=9).contains(&taken), "{taken}");
}

/// Too large, foreign, forged: refused before sending.
pub async fn what_a_stream_cannot_take_is_refused(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    let limit = a.payload_max_bytes();
    let large = |bytes| Append::new(subject(&stream, "x"), Message::new(vec![1; bytes]));
    let refused = stream.append(large(limit + 1), PATIENCE).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })), "{refused:?}");
    assert_eq!(stream.append(large(limit), PATIENCE).await.unwrap().sequence, 1);
    assert_eq!(stream.last(&subject(&stream, "x")).await.unwrap().unwrap().message.payload.len(), limit);
    let foreign = stream.append(Append::new(super::unique("foreign"), text("x")), PATIENCE).await;
    assert!(matches!(foreign, Err(BusError::NotInStream { .. })), "{foreign:?}");
    let forged = text("x").with_header("Nats-Expected-Stream", "other").unwrap();
    let forged = stream.append(Append::new(subject(&stream, "x"), forged), PATIENCE).await;
    assert!(matches!(forged, Err(BusError::Header(_))), "{forged:?}");
}

/// Opening again, by anybody, gives the same stream; with other settings it is refused and says which.
pub async fn a_stream_is_opened_as_it_is(a: Bus, b: Bus) {
    let config = config();
    append(&open(&a, &config).await, "x", "1").await;
    assert_eq!(contents(&all(&open(&b, &config).await).await), ["1"]);
    let other = StreamConfig { records_max: 5, ..config.clone() };
    match Stream::open(&b, &other, PATIENCE).await {
        Err(BusError::StreamDiffers { what, .. }) => assert!(what.contains("records_max"), "{what}"),
        other => panic!("{other:?}"),
    }
    let rival = StreamConfig { name: format!("{}_rival", config.name), ..config };
    let refused = Stream::open(&b, &rival, PATIENCE).await;
    assert!(matches!(refused, Err(BusError::StreamDiffers { .. })), "{refused:?}");
}

/// Of some subjects, before a sequence, of all; sequences are not used again.
pub async fn purging_removes_what_it_is_told(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    for number in 1..=6 {
        append(&stream, if number % 2 == 0 { "even" } else { "odd" }, &number.to_string()).await;
    }
    let odd = Some(Pattern::from(subject(&stream, "odd")));
    let purge = async |subjects: &Option<Pattern>, before| {
        stream.purge(&Purge { subjects: subjects.clone(), before }).await.unwrap()
    };
    assert_eq!(purge(&odd, Some(4)).await, 2);
    assert_eq!(contents(&all(&stream).await), ["2", "4", "5", "6"]);
    assert_eq!(purge(&None, Some(5)).await, 2);
    assert_eq!(purge(&None, Some(5)).await, 0);
    assert_eq!(contents(&all(&stream).await), ["5", "6"]);
    let usage = a.stream_usage().await.unwrap();
    assert!(usage.streams >= 1 && usage.bytes > 0, "{usage:?}");
    let state = stream.state().await.unwrap();
    assert_eq!((state.records, state.first_sequence, state.last_sequence), (2, 5, 6));
    assert_eq!(purge(&None, None).await, 2);
    assert_eq!(append(&stream, "odd", "7").await, 7);
}

/// A stream that is gone is missed, and a new one of its name is empty.
pub async fn a_deleted_stream_is_gone(a: Bus, b: Bus) {
    let config = config();
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    append(&ours, "x", "1").await;
    assert!(theirs.delete().await.unwrap());
    assert!(!theirs.delete().await.unwrap());
    let append_to = Append::new(subject(&ours, "x"), text("2"));
    let missed = [
        ours.append(append_to, PATIENCE).await.map(drop),
        ours.last(&subject(&ours, "x")).await.map(drop),
        ours.read(ReadFrom::First, None).await.map(drop),
        ours.state().await.map(drop),
    ];
    for missed in missed {
        assert!(matches!(missed, Err(BusError::StreamMissing { .. })), "{missed:?}");
    }
    let anew = open(&a, &config).await;
    assert_eq!(append(&anew, "x", "anew").await, 1);
    assert_eq!(contents(&all(&anew).await), ["anew"]);
}

/// Everybody sees one identity as long as the stream is there, and another one when it was made anew.
pub async fn a_stream_that_was_made_anew_has_another_identity(a: Bus, b: Bus) {
    let config = config();
    assert!(!Stream::is_there(&a, &config.name, PATIENCE).await.unwrap());
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    assert!(Stream::is_there(&b, &config.name, PATIENCE).await.unwrap());
    let who = subject(&ours, "identity");
    let (mine, yours) = tokio::join!(ours.identity(&who, "x-"), theirs.identity(&who, "x-"));
    let first = mine.unwrap();
    assert_eq!(first, yours.unwrap());
    assert!(first.starts_with("x-"));
    append(&ours, "x", "1").await;
    assert_eq!((ours.identity(&who, "").await.unwrap(), ours.state().await.unwrap().records), (first.clone(), 2));
    ours.delete().await.unwrap();
    assert!(matches!(theirs.identity(&who, "").await, Err(BusError::StreamMissing { .. })));
    open(&a, &config).await;
    assert_ne!(theirs.identity(&who, "").await.unwrap(), first);
}

/// Each record replaces the earlier one of its subject, also in a full stream.
pub async fn the_last_of_each_subject_is_kept(a: Bus, _b: Bus) {
    let config = StreamConfig { last_of_subject_only: true, records_max: 2, ..config() };
    let stream = open(&a, &config).await;
    for (tail, content) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3"), ("b", "b2")] {
        append(&stream, tail, content).await;
    }
    assert_eq!(contents(&all(&stream).await), ["a3", "b2"]);
    let refused = stream.append(Append::new(subject(&stream, "c"), text("c1")), PATIENCE).await;
    assert!(matches!(refused, Err(BusError::StreamFull { .. })), "{refused:?}");
    assert_eq!(stream.state().await.unwrap().records, 2);
}

/// Records go when they are too old, and a marker tells readers where it is wanted.
pub async fn old_records_expire(a: Bus, _b: Bus) {
    let markers = StreamConfig {
        age_max: Duration::from_secs(1),
        expiry_markers: Duration::from_secs(60),
        last_of_subject_only: true,
        ..config()
    };
    let stream = open(&a, &markers).await;
    append(&stream, "x", "old").await;
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    assert_eq!(contents(&take(&mut reader, 1).await), ["old"]);
    let marker = take(&mut reader, 1).await.remove(0);
    assert!(marker.is_expiry_marker() && marker.subject == subject(&stream, "x"), "{marker:?}");
    let plain = open(&a, &StreamConfig { age_max: Duration::from_secs(1), ..config() }).await;
    append(&plain, "x", "old").await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while plain.state().await.unwrap().records > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the record does not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(append(&plain, "x", "new").await, 2);
}

/// Many at a time are all there, once, in the order of their answers' sequences.
pub async fn concurrent_appends_are_all_there(a: Bus, b: Bus) {
    let config = config();
    let (ours, theirs) = (open(&a, &config).await, open(&b, &config).await);
    let appends = (0..200).map(|number: usize| {
        let stream = if number.is_multiple_of(2) { &ours } else { &theirs };
        async move { (append(stream, "x", &number.to_string()).await, number.to_string()) }
    });
    let mut expected = futures::future::join_all(appends).await;
    expected.sort_unstable();
    let found: Vec<(u64, String)> =
        all(&ours).await.iter().map(|record| (record.sequence, read(&record.message))).collect();
    assert_eq!(found, expected);
}

/// Everything says `Closed`.
pub async fn streams_of_a_drained_bus_are_closed(a: Bus, _b: Bus) {
    let stream = open(&a, &config()).await;
    let mut reader = stream.read(ReadFrom::First, None).await.unwrap();
    a.drain().await.unwrap();
    let said = [
        stream.append(Append::new(subject(&stream, "x"), text("x")), PATIENCE).await.map(drop),
        stream.last(&subject(&stream, "x")).await.map(drop),
        reader.next(1, PATIENCE).await.map(drop),
        Stream::open(&a, stream.config(), PATIENCE).await.map(drop),
    ];
    for said in said {
        assert!(matches!(said, Err(BusError::Closed)), "{said:?}");
    }
}
