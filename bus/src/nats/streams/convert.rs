//! Our settings and records as JetStream has them, and back.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Config as AnyConsumer, DeliverPolicy, IntoConsumerConfig, pull};
use async_nats::jetstream::stream as js;

use super::super::backend::{backend_error, from_nats};
use crate::error::BusError;
use crate::message::{Headers, Message};
use crate::streams::{ConsumerConfig, ReadFrom, Record, StreamConfig};
use crate::subject::{Pattern, Subject};

/// A limit; 0 is "none" here and -1 there.
fn limit(limit: u64) -> i64 {
    if limit == 0 { -1 } else { i64::try_from(limit).unwrap_or(i64::MAX) }
}

fn own_limit(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(0)
}

pub(super) fn stream_config(config: &StreamConfig, replicas: usize) -> js::Config {
    let marked = !config.expiry_markers.is_zero();
    js::Config {
        name: config.name.clone(),
        subjects: vec![config.subjects.to_string()],
        max_messages: limit(config.records_max),
        max_bytes: limit(config.bytes_max),
        max_messages_per_subject: if config.last_of_subject_only { 1 } else { -1 },
        max_consumers: -1,
        max_message_size: -1,
        max_age: config.age_max,
        // Refused, not pushed out: what was acknowledged stays.
        discard: js::DiscardPolicy::New,
        storage: if config.in_memory { js::StorageType::Memory } else { js::StorageType::File },
        num_replicas: replicas,
        duplicate_window: config.dedupe_window,
        allow_message_ttl: true,
        allow_rollup: marked,
        subject_delete_marker_ttl: marked.then_some(config.expiry_markers),
        ..js::Config::default()
    }
}

/// What a stream that is there is set to; what its server does not know is taken for granted.
pub(super) fn own_config(there: &js::Config, asked: &StreamConfig) -> Result<StreamConfig, BusError> {
    let [subjects] = there.subjects.as_slice() else {
        let what = format!("subjects are {:?}", there.subjects);
        return Err(BusError::StreamDiffers { name: there.name.clone(), what });
    };
    Ok(StreamConfig {
        name: there.name.clone(),
        subjects: Pattern::parse(subjects)?,
        records_max: own_limit(there.max_messages),
        bytes_max: own_limit(there.max_bytes),
        age_max: there.max_age,
        last_of_subject_only: there.max_messages_per_subject == 1,
        in_memory: there.storage == js::StorageType::Memory,
        dedupe_window: there.duplicate_window,
        expiry_markers: there.subject_delete_marker_ttl.unwrap_or(asked.expiry_markers),
    })
}

pub(super) fn consumer_config(config: &ConsumerConfig) -> AnyConsumer {
    let config = pull::Config {
        durable_name: Some(config.name.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: config.ack_wait,
        max_deliver: -1,
        max_ack_pending: i64::try_from(config.unacked_max).unwrap_or(i64::MAX),
        filter_subject: config.subjects.as_ref().map(Pattern::to_string).unwrap_or_default(),
        ..pull::Config::default()
    };
    config.into_consumer_config()
}

pub(super) fn own_consumer(there: &AnyConsumer, asked: &ConsumerConfig) -> Result<ConsumerConfig, BusError> {
    let filter = Some(there.filter_subject.as_str()).filter(|filter| !filter.is_empty());
    Ok(ConsumerConfig {
        name: asked.name.clone(),
        subjects: filter.map(Pattern::parse).transpose()?,
        ack_wait: there.ack_wait,
        unacked_max: usize::try_from(there.max_ack_pending).unwrap_or(0),
    })
}

/// A consumer that only remembers where it is, in the server's memory, until nobody has asked for a while.
pub(super) fn reader_config(name: &str, from: ReadFrom, subjects: Option<&Pattern>, idle_max: Duration) -> AnyConsumer {
    let config = pull::Config {
        name: Some(name.to_owned()),
        deliver_policy: match from {
            ReadFrom::First => DeliverPolicy::All,
            ReadFrom::Sequence(sequence) => DeliverPolicy::ByStartSequence { start_sequence: sequence.max(1) },
            ReadFrom::New => DeliverPolicy::New,
            ReadFrom::LastOfEachSubject => DeliverPolicy::LastPerSubject,
        },
        ack_policy: AckPolicy::None,
        max_deliver: 1,
        // "The last of each" wants a filter, even if it filters nothing.
        filter_subject: subjects.map_or_else(|| ">".to_owned(), Pattern::to_string),
        inactive_threshold: idle_max,
        memory_storage: true,
        num_replicas: 1,
        ..pull::Config::default()
    };
    config.into_consumer_config()
}

pub(super) fn raw_record(raw: js::RawMessage) -> Result<Record, BusError> {
    let message = async_nats::jetstream::message::StreamMessage::try_from(raw)
        .map_err(|error| backend_error("read a record", error.to_string()))?;
    let headers = own_headers(Some(message.headers));
    let subject = Subject::parse(&message.subject)?;
    Ok(Record { sequence: message.sequence, subject, message: Message { payload: message.payload, headers } })
}

/// A delivered record's message.
pub(super) fn own_message(payload: bytes::Bytes, headers: Option<async_nats::HeaderMap>) -> Message {
    Message { payload, headers: own_headers(headers) }
}

/// Without the conditions that the record was appended under.
fn own_headers(map: Option<async_nats::HeaderMap>) -> Headers {
    let all = from_nats(map);
    let mut headers = Headers::new();
    let kept = |name: &str| !name.starts_with("Nats-Expected-") && name != "Nats-TTL";
    for (name, value) in all.iter().filter(|(name, _)| kept(name)) {
        // They were valid a moment ago.
        let _ = headers.append(name, value);
    }
    headers
}
