//! Journals and histories of other releases, and the stored sample of this one's.

use std::time::Duration;

use bytes::Bytes;
use exobus_bus::streams::{Append, Stream, StreamConfig};
use exobus_bus::{Bus, Pattern, Subject, Subjects, codec};

use super::JOURNAL_VERSION;
use super::journal::{Journal, JournalError, JournalRecord};
use super::transition::Transition;
use crate::ids::{Epoch, JobId, NodeId};
use crate::joblog::LogsLink;
use crate::protocol::job::{Bodies, Carried, Digest, JobRecord, JobState, Outcome, Pieces, Reason, Stop, Used};

const DEADLINE: Duration = Duration::from_secs(5);

/// A record in which everything is said that can be.
fn full() -> JobRecord {
    let result = Err(Reason::new("program", "why"));
    let used = Used { nodes: 3, spilled_bytes: 1 << 40, received_bytes: 2, peak_memory_bytes: 3 << 30, owner_bytes: 4 };
    JobRecord {
        name: Some("nightly".into()),
        who: Some("ada@lab".into()),
        key: Some("2026-11-26".into()),
        priority: -7,
        limit_ms: Some(60_000),
        sample_ms: 100,
        spec: Digest { bytes: 2, hash: 3 << 100 },
        plan: Digest { bytes: 4, hash: 5 },
        state: JobState::Failed,
        accepted_unix_ms: 1_795_566_000_000,
        started_unix_ms: Some(1_795_566_000_040),
        ended_unix_ms: Some(1_795_566_001_000),
        host: Some(NodeId::new("n1")),
        runs: 2,
        stop: Some(Stop { at_unix_ms: 6, who: None, limit_ms: Some(60_000) }),
        outcome: Some(Outcome { result, value: None, cancelled: true, used }),
        ..JobRecord::queued(JobId::from_u128(7), "default", "sort@1", "sort@1")
    }
}

/// One of each transition.
fn transitions() -> Vec<Transition> {
    let job = JobId::from_u128(7);
    let accepted = |carried| Transition::Accepted(Box::new(full()), carried);
    let (result, value) = (Ok(Digest { bytes: 9, hash: 10 }), Some(Bytes::from_static(b"\x07")));
    let outcome = Outcome { result, value, cancelled: false, used: Used::default() };
    vec![
        Transition::Begins(Epoch(3)),
        accepted(Carried::Here(Bodies { spec: Bytes::from_static(b"{}"), plan: Bytes::from_static(b"\x80") })),
        accepted(Carried::Pieces(Pieces { spec: 2, plan: 3 })),
        accepted(Carried::Nowhere),
        Transition::Started { job, host: NodeId::new("n1"), at_unix_ms: 11 },
        Transition::Committing(job),
        Transition::Stopped(job, Stop { at_unix_ms: 12, who: Some("ada".into()), limit_ms: None }),
        Transition::Ended { job, state: JobState::Succeeded, outcome, at_unix_ms: 13 },
    ]
}

/// Jobs that were accepted before a release was replaced are accepted.
#[test]
fn the_stored_sample_is_what_is_written_and_read() {
    let stored = &include_bytes!("../../tests/samples/job-journal-1.bin")[..];
    let journal = JournalRecord { epoch: Epoch(3), transitions: transitions() };
    let history = full();
    let encode = |bytes: Result<Bytes, codec::CodecError>| bytes.unwrap();
    let records = [
        encode(codec::encode_checked_as(JOURNAL_VERSION, &journal)),
        encode(codec::encode_checked_as(JOURNAL_VERSION, &history)),
    ];
    let (first, rest) = stored
        .split_first_chunk::<4>()
        .map(|(length, rest)| rest.split_at(u32::from_le_bytes(*length) as usize))
        .unwrap();
    assert!(first == records[0] && rest == records[1], "other bytes than in the sample");
    assert_eq!(codec::decode_checked_as::<JournalRecord>(1, first).unwrap(), journal);
    assert_eq!(codec::decode_checked_as::<JobRecord>(1, rest).unwrap(), history);
    assert_eq!(JOURNAL_VERSION, 1, "another version has a sample of its own, and this one says that it is not read");
}

#[tokio::test]
async fn a_journal_of_another_version_is_refused_with_both_numbers_and_nothing_is_appended() {
    let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
    let logs = LogsLink::new(bus.clone(), subjects.clone());
    let journal = Journal::open((&bus, &subjects), logs, DEADLINE).await.unwrap().unwrap();
    let prefix = subjects.stream("journal").unwrap();
    let config = StreamConfig {
        bytes_max: 128 << 20,
        ..StreamConfig::new(
            &subjects.durable_name("stream", "journal").unwrap(),
            Pattern::parse(&format!("{prefix}.>")).unwrap(),
        )
    };
    let stream = Stream::open(&bus, &config, DEADLINE).await.unwrap();
    let record = JournalRecord { epoch: Epoch(1), transitions: transitions() };
    let record = codec::encode_checked_as(JOURNAL_VERSION + 1, &record).unwrap();
    let subject = Subject::parse(&format!("{prefix}.transitions")).unwrap();
    stream.append(Append::new(subject, record), DEADLINE).await.unwrap();
    let refused = journal.begin(Epoch(2)).await.unwrap_err();
    let text = crate::causes(&refused);
    assert!(matches!(refused, JournalError::Record { sequence: 1, .. }), "{refused:?}");
    assert!(text.contains("version 2") && text.contains('1'), "{text}");
    assert_eq!(stream.state().await.unwrap().records, 1);
}
