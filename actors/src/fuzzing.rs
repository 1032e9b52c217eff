//! What bytes of other processes reach in this crate, as functions for fuzzing: none may panic, whatever the bytes.

use std::sync::Arc;

use exobus_bus::{Speaker, codec};
use exobus_store::SystemClock;

use crate::joblog::Choice;
use crate::protocol::host::{JobEnd, JobSpec};
use crate::protocol::node_manager::{AttemptState, NodeMsg};
use crate::protocol::owner::{OwnerMsg, Why};
use crate::protocol::scheduler::{JobInfo, NodeInfo, Placement, Refusal};

use crate::ids::{CopyNumber, Incarnation, JobSecret, NodeId, RowHash, TaskId};
use crate::isolation;
use crate::joblog::{Entry, Past, TaskDone};
use crate::results;

use crate::shell::{Post, PostOptions, Wire, mailbox};
use crate::spec::{SPEC_BYTES_MAX, Spec};
use crate::task::{Consumed, JobError, Output};
use crate::transfer::wire;

/// A message, decoded and encoded again: what can be read can be written and read again.
pub fn message<M: Wire>(bytes: &[u8]) {
    let Ok(message) = codec::decode::<M>(bytes) else { return };
    let _ = (message.about(), message.said_by());
    // A longer form of the same value may not fit any more.
    if let Ok(again) = codec::encode(&message) {
        assert!(codec::decode::<M>(&again).is_ok(), "what was written cannot be read");
    }
}

/// A request for a result, as any client can make it.
pub fn result_request(bytes: &[u8]) {
    let Ok(request) = results::request::parse(bytes) else { return };
    if let Ok(job) = request.job() {
        assert_eq!(job.to_string(), request.id.unwrap_or_default().to_ascii_lowercase(), "an id is written in one way");
    }
    let _ = codec::decode::<results::record::ResultRecord>(bytes);
}

/// A spec, as anybody can hand it in: what is stored of it says the same. No file is looked at.
pub fn spec(bytes: &[u8]) {
    let Ok(spec) = Spec::parse(bytes) else { return };
    let stored = spec.canonical();
    if stored.len() <= SPEC_BYTES_MAX {
        assert_eq!(Spec::parse(&stored).as_ref(), Ok(&spec));
    }
    let _ = spec.paths();
}

/// Answers to questions.
pub fn answers(bytes: &[u8]) {
    let _ = codec::decode::<Why>(bytes);
    let _ = codec::decode::<Vec<AttemptState>>(bytes);
    let _ = codec::decode::<Vec<NodeInfo>>(bytes);
    let _ = codec::decode::<Vec<JobInfo>>(bytes);
    let _ = codec::decode::<Result<Placement, Refusal>>(bytes);
    let _ = codec::decode::<NodeId>(bytes);
}

/// Records of the log of a job, in order: each one's length in two bytes, and it.
pub fn joblog(mut bytes: &[u8]) {
    let (mut past, mut read) = (Past::default(), 0);
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (record, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        bytes = rest;
        let _ = codec::decode::<JobSpec>(record);
        let _ = codec::decode::<JobEnd>(record);
        if let Ok(entries) = codec::decode::<Vec<Entry>>(record) {
            read += entries.len();
            past.add(entries);
        }
    }
    assert!(past.choices.len() + past.done.len() <= read, "nothing is made up");
}

/// Logs as they are written: seeds for [`joblog`].
pub fn joblogs() -> Vec<Vec<u8>> {
    let node = NodeId::new("n");
    let task = TaskId::from_u128(1);
    let output = Output { bytes: 8, rows: 1, row_hash: RowHash(9) };
    let (consumed, made_by) = (vec![Consumed { arg: 0, read: output, ..Consumed::default() }], vec![CopyNumber::FIRST]);
    let done = TaskDone {
        task,
        node: node.clone(),
        outputs: vec![output],
        made_by,
        consumed,
        values: vec![(0, "value".into())],
    };
    let records = [
        codec::encode(&[Entry::Run { node, secret: JobSecret::from_u128(7) }][..]),
        codec::encode(&[Entry::Choice(Choice::Nodes(Vec::new())), Entry::Done(done)][..]),
        codec::encode(&[Entry::End(Err(JobError::program("why")))][..]),
    ];
    let record = |record: Result<bytes::Bytes, _>| record.expect("it is small");
    let records = records.map(record).map(|record| [&(record.len() as u16).to_le_bytes()[..], &record].concat());
    vec![records.concat()]
}

/// What a node and its executor processes tell each other.
pub fn executor(bytes: &[u8]) {
    isolation::read_either(bytes);
}

/// Seeds for [`executor`].
pub fn executor_messages() -> Vec<Vec<u8>> {
    isolation::samples()
}

/// An item of a session for actors of this process: the first byte says which.
pub fn post_item(bytes: &[u8]) {
    let Some((actor, item)) = bytes.split_first() else { return };
    let clock = Arc::new(SystemClock::new());
    let (node, incarnation) = (NodeId::new("n"), Incarnation(1));
    let post = Post::new(PostOptions { node, incarnation, clock, on_fatal: Box::new(|_| {}) });
    let (_owner, owned) = mailbox::<OwnerMsg, OwnerMsg>(&post, "owner");
    let (_node, managed) = mailbox::<NodeMsg, NodeMsg>(&post, "node");
    let actor = ["owner", "node", "replies", "nobody"][usize::from(*actor % 4)];
    post.deliver(&Speaker::supposed("peer"), actor, item);
    post.deliver(&Speaker::supposed("client-1"), actor, item);
    drop((owned, managed));
}

/// What a server of Transfer reads: a hello, then a request; also one whose check fits.
pub fn transfer_server(bytes: &[u8]) {
    if let Ok(lengths) = wire::decode_hello_head(bytes) {
        let texts = bytes.get(wire::HELLO_BYTES..).unwrap_or_default();
        let _ = wire::decode_hello_texts(lengths, texts);
    }
    let Ok(head) = wire::decode_request_head(bytes) else { return };
    let items = bytes.get(wire::REQUEST_BYTES..).unwrap_or_default();
    let Ok(items) = wire::decode_items(&head, items) else { return };
    assert_eq!(wire::encode_request(head.kind, &items), bytes, "a request has one form");
}

/// What a client of Transfer reads: a welcome, the head of an answer, a directory.
pub fn transfer_client(bytes: &[u8]) {
    let _ = wire::decode_welcome_head(bytes);
    if let Ok(head) = wire::decode_answer_head(bytes) {
        let _ = head.verify(bytes.get(wire::ANSWER_BYTES..).unwrap_or_default());
    }
}

/// The directory of parts that another node tells.
pub fn transfer_directory(bytes: &[u8]) {
    let Ok(parts) = wire::decode_parts(bytes) else { return };
    assert_eq!(wire::encode_parts(&parts), bytes);
    let _ = wire::byte_range(&parts);
    exobus_store::fuzzing::part_directory(&parts);
}

/// Frames of Transfer as they are sent: seeds for the three of it.
pub fn transfer_frames() -> [Vec<Vec<u8>>; 3] {
    use exobus_store::{CopyId, PartMeta, Parts};
    let items = [
        wire::Item { object: CopyId::new(3, 7), parts: Parts::All },
        wire::Item { object: CopyId::new(3, 8), parts: Parts::Range(3, 5) },
    ];
    let hello = wire::encode_hello(&wire::Hello { token: b"a token", from: "n1", to: "n2" });
    let requests = [wire::Kind::Directory, wire::Kind::Read].map(|kind| wire::encode_request(kind, &items));
    let mut answer = Vec::new();
    wire::encode_answer_head(&mut answer, 1, wire::Status::Failed, 5, b"cause");
    let answers =
        vec![wire::encode_welcome(Ok("n2")), wire::encode_welcome(Err("no")), [&answer[..], b"cause"].concat()];
    let part = |offset| PartMeta { offset, bytes: 64, rows: 2, row_hash: Default::default(), checksum: 9 };
    let parts = wire::encode_parts(&[part(0), part(64), part(128)]);
    [[vec![hello], requests.to_vec()].concat(), answers, vec![parts]]
}
