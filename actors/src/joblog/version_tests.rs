//! Logs of other releases, and the stored sample of this one's.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::streams::{Append, Stream};
use exobus_bus::{Bus, Subject, Subjects, codec};

use super::logs::encode;
use super::{Choice, Entry, JobLogs, LOG_VERSION, LogError, NodeShape, Opened, TaskDone};
use crate::ids::{CopyNumber, Incarnation, JobId, JobSecret, NodeId, ObjectId, RowHash, TaskId};
use crate::protocol::host::{JobEnd, JobSpec};
use crate::task::{Consumed, JobError, Output};

const DEADLINE: Duration = Duration::from_secs(5);
const SECRET: JobSecret = JobSecret::from_u128(9);

fn spec(job: u128) -> JobSpec {
    let (program, params) = ("sort@1".to_owned(), Bytes::from_static(&[0x81, 0xa1, b'p', 7]));
    JobSpec { job: JobId::from_u128(job), tenant: "default".into(), program, params, sample_ms: 500, plan_pieces: 0 }
}

/// One record of each kind, with one of each entry and choice.
fn entries() -> Vec<Entry> {
    let (node, object) = (NodeId::new("n1"), ObjectId::from_u128(5 << 32));
    let shape = NodeShape { node: node.clone(), cpu_milli: 2000, memory_bytes: 1 << 30 };
    let output = Output { bytes: 8, rows: 1, row_hash: RowHash(9 << 100) };
    let done = TaskDone {
        task: TaskId::from_u128(6 << 32),
        node: node.clone(),
        outputs: vec![output, Output::default()],
        made_by: vec![CopyNumber::FIRST, CopyNumber::new(3, 2).unwrap()],
        consumed: vec![Consumed { arg: 1, read: output, ..Consumed::default() }],
        values: vec![(0, Bytes::from_static(b"value"))],
    };
    vec![
        Entry::Run { node: node.clone(), secret: SECRET },
        Entry::Choice(Choice::Ready(vec![object])),
        Entry::Choice(Choice::GivenUp(object)),
        Entry::Choice(Choice::Nodes(vec![shape])),
        Entry::Choice(Choice::Located(object, vec![node])),
        Entry::Choice(Choice::Folds(vec![(3, vec![object])])),
        Entry::Choice(Choice::Time(1_790_000_000_000)),
        Entry::Choice(Choice::Random(7)),
        Entry::Done(done),
        Entry::Committing,
        Entry::End(Ok(Bytes::from_static(b"result"))),
        Entry::End(Err(JobError::Cancelled)),
    ]
}

fn end() -> JobEnd {
    let nodes = BTreeMap::from([(NodeId::new("n1"), crate::event::NodeFigures::default())]);
    JobEnd { result: Ok(Bytes::from_static(b"result")), nodes, owner_bytes: 1 << 20, control_messages: 12, kept: None }
}

/// Logs of jobs that were not over when a release was replaced must be known for as long as it says that it knows them.
#[test]
fn the_stored_sample_is_what_is_written_and_read() {
    let stored = &include_bytes!("../../tests/samples/joblog-3.bin")[..];
    let records = [encode(&spec(7)).unwrap(), encode(&entries()).unwrap(), encode(&end()).unwrap()];
    let written: Vec<u8> =
        records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes()[..], record].concat()).collect();
    assert!(written == stored, "other bytes than in the sample");
    let mut rest = stored;
    let mut next = || {
        let (length, behind) = rest.split_first_chunk::<4>().unwrap();
        let (record, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        rest = behind;
        record
    };
    assert_eq!(codec::decode_checked_as::<JobSpec>(3, next()).unwrap(), spec(7));
    assert_eq!(codec::decode_checked_as::<Vec<Entry>>(3, next()).unwrap(), entries());
    assert_eq!(codec::decode_checked_as::<JobEnd>(3, next()).unwrap(), end());
    assert_eq!(LOG_VERSION, 3, "another version has a sample of its own, and this one says that it is not read");
}

/// Logs with a job of another release, 7, and one of this, 8; the stream, and the subject of the log of 7.
async fn logs_with_another_version(version: u8, spec_too: bool) -> (JobLogs, Stream, Subject) {
    let logs =
        JobLogs::open(&Bus::in_process(), &Subjects::new("test").unwrap(), false, DEADLINE).await.unwrap().unwrap();
    logs.accept(&spec(8)).await.unwrap();
    let (stream, log) = logs.continued(JobId::from_u128(7)).unwrap();
    let accepted = Subject::parse(&log.as_str().replace(".log", ".spec")).unwrap();
    let spec_version = if spec_too { version } else { LOG_VERSION };
    let records = [
        (accepted, codec::encode_checked_as(spec_version, &spec(7)).unwrap()),
        (log.clone(), codec::encode_checked_as(version, &entries()[..1]).unwrap()),
    ];
    for (subject, record) in records {
        stream.append(Append::new(subject, record), DEADLINE).await.unwrap();
    }
    (logs, stream, log)
}

#[tokio::test]
async fn a_log_of_another_version_is_refused_with_both_numbers_and_nothing_is_done_to_it() {
    for version in [1, 2, LOG_VERSION + 1] {
        let says_both = |error: LogError| {
            let text = error.to_string();
            let both = format!("is of version {version}, this exobus reads version 3: use the exobus that wrote it");
            assert!(matches!(error, LogError::Version { found, known: 3, .. } if found == version), "{error:?}");
            assert!(text.contains(&both) && text.contains(&JobId::from_u128(7).to_string()), "{text}");
        };
        let (logs, stream, log) = logs_with_another_version(version, true).await;
        let before = stream.state().await.unwrap();
        says_both(logs.spec(JobId::from_u128(7)).await.unwrap_err());
        says_both(logs.unfinished_if_readable().await.unwrap_err());
        let others: Vec<JobId> = logs.unfinished().await.unwrap().into_iter().map(|spec| spec.job).collect();
        assert_eq!(others, [JobId::from_u128(8)], "others go on");
        // What is in stores of it stays: nobody can say that it is over.
        assert!(logs.is_over(JobId::from_u128(7)).await.is_err());
        assert_eq!(stream.state().await.unwrap().records, before.records);
        assert!(stream.last(&log).await.unwrap().is_some());

        let (logs, stream, log) = logs_with_another_version(version, false).await;
        let last = stream.last(&log).await.unwrap().unwrap().sequence;
        let opened = logs.open_job(&spec(7), (&NodeId::new("n1"), Incarnation(1)), SECRET).await;
        says_both(opened.map(|_| ()).unwrap_err());
        assert_eq!(stream.last(&log).await.unwrap().unwrap().sequence, last, "no run is begun in it");
        let opened = logs.open_job(&spec(8), (&NodeId::new("n1"), Incarnation(1)), SECRET).await.unwrap();
        assert!(matches!(opened, Opened::Runs(_)), "others are taken up");
    }
}
