//! Durable streams on JetStream, spoken to by its request subjects: one way to ask, one way to read errors, a deadline on
//! everything, whichever call it is. The library's own types are used for what is sent and received.
//!
//! Reads that must be current go to the stream's leader, never to a replica that may lag (`allow_direct` is off).

mod api;
mod consumer;
mod convert;
mod pull;
mod source;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::account as js_account;
use async_nats::jetstream::consumer as js_consumer;
use async_nats::jetstream::stream as js;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

pub(super) use api::JetStream;

use self::consumer::NatsConsumer;
use self::source::NatsSource;
use crate::error::BusError;
use crate::message::DEDUPE_ID;
use crate::streams::{
    Append, Appended, ConsumerBackend, ConsumerConfig, Expect, Purge, ReadFrom, Record, Source, StreamBackend,
    StreamConfig, StreamState, Usage,
};
use crate::subject::{Pattern, Subject};

/// Codes of JetStream's errors that mean something of their own here.
mod code {
    pub(super) const CONSUMER_MISSING: u64 = 10014;
    pub(super) const NO_MESSAGE: u64 = 10037;
    pub(super) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    pub(super) const NO_ROOM: u64 = 10047;
    pub(super) const STREAM_EXISTS: u64 = 10058;
    pub(super) const STREAM_MISSING: u64 = 10059;
    pub(super) const SUBJECTS_OVERLAP: u64 = 10065;
    pub(super) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(super) const NOT_ENABLED: u64 = 10076;
    pub(super) const STORE_FAILED: u64 = 10077;
    pub(super) const CONSUMER_EXISTS: u64 = 10148;
    pub(super) const WRONG_LAST_SEQUENCE_UNSAID: u64 = 10164;
}

/// Streams over one connection.
pub(super) struct NatsStreams {
    pub(super) jetstream: Arc<JetStream>,
}

#[derive(Deserialize)]
struct Success {
    #[serde(default)]
    success: bool,
}

#[derive(Deserialize)]
struct Purged {
    #[serde(default)]
    purged: u64,
}

#[derive(Deserialize)]
struct Raw {
    message: js::RawMessage,
}

fn same_settings(info: &js::Info, config: &StreamConfig) -> Result<(), BusError> {
    match convert::own_config(&info.config, config)?.difference(config) {
        Some(what) => Err(BusError::StreamDiffers { name: config.name.clone(), what }),
        None => Ok(()),
    }
}

#[async_trait]
impl StreamBackend for NatsStreams {
    async fn usage(&self, deadline: Duration) -> Result<Usage, BusError> {
        let account = self.jetstream.ask::<js_account::Account>("INFO", &json!({}), deadline).await;
        let account = account.map_err(|failure| failure.of_stream("*"))?;
        let bytes_max = u64::try_from(account.limits.max_storage.unwrap_or(-1)).ok();
        Ok(Usage { streams: account.streams as u64, bytes: account.storage, bytes_max })
    }

    async fn open(&self, config: &StreamConfig, deadline: Duration) -> Result<(), BusError> {
        // A server counts what a stream asks for before it looks whether it is there: with little room left it would refuse.
        match self.stream_info(&config.name, deadline).await {
            Err(BusError::StreamMissing { .. }) => {}
            other => return same_settings(&other?, config),
        }
        let asked = convert::stream_config(config, self.jetstream.replicas);
        let made: Result<js::Info, _> =
            self.jetstream.ask(&format!("STREAM.CREATE.{}", config.name), &asked, deadline).await;
        match made {
            Ok(_) => Ok(()),
            Err(failure) if failure.is(code::STREAM_EXISTS) => {
                same_settings(&self.stream_info(&config.name, deadline).await?, config)
            }
            Err(failure) => Err(failure.of_stream(&config.name)),
        }
    }

    async fn append(&self, stream: &str, append: Append, deadline: Duration) -> Result<Appended, BusError> {
        match self.jetstream.append(stream, &append, deadline).await {
            Err(BusError::NoResponders { .. }) => {
                // Either there is no such stream, or the server has not loaded it yet.
                let info: Result<js::Info, _> = self.stream_info(stream, deadline).await;
                Err(info.err().unwrap_or(BusError::NoResponders { subject: append.subject.to_string() }))
            }
            Err(conflict @ BusError::Conflict { .. }) => match self.own(stream, &append, deadline).await? {
                Some(sequence) => Ok(Appended { sequence, duplicate: true }),
                None => Err(conflict),
            },
            other => other,
        }
    }

    async fn last(&self, stream: &str, subject: &Subject, deadline: Duration) -> Result<Option<Record>, BusError> {
        let asked = json!({ "last_by_subj": subject.as_str() });
        let found = self.jetstream.ask::<Raw>(&format!("STREAM.MSG.GET.{stream}"), &asked, deadline).await;
        match found {
            Ok(raw) => convert::raw_record(raw.message).map(Some),
            Err(failure) if failure.is(code::NO_MESSAGE) => Ok(None),
            Err(failure) => Err(failure.of_stream(stream)),
        }
    }

    async fn state(&self, stream: &str, deadline: Duration) -> Result<StreamState, BusError> {
        let info: js::Info = self.stream_info(stream, deadline).await?;
        let js::State { messages, bytes, first_sequence, last_sequence, .. } = info.state;
        let first_sequence = if messages == 0 { last_sequence + 1 } else { first_sequence };
        Ok(StreamState { records: messages, bytes, first_sequence, last_sequence })
    }

    async fn purge(&self, stream: &str, purge: &Purge, deadline: Duration) -> Result<u64, BusError> {
        let mut asked = json!({});
        if let Some(subjects) = &purge.subjects {
            asked["filter"] = subjects.as_str().into();
        }
        if let Some(before) = purge.before {
            // The server takes 0 for "all".
            if before <= 1 {
                return Ok(0);
            }
            asked["seq"] = before.into();
        }
        let purged = self.jetstream.ask::<Purged>(&format!("STREAM.PURGE.{stream}"), &asked, deadline).await;
        purged.map(|purged| purged.purged).map_err(|failure| failure.of_stream(stream))
    }

    async fn delete(&self, stream: &str, deadline: Duration) -> Result<bool, BusError> {
        let deleted = self.jetstream.ask::<Success>(&format!("STREAM.DELETE.{stream}"), &json!({}), deadline).await;
        match deleted {
            Ok(deleted) => Ok(deleted.success),
            Err(failure) if failure.is(code::STREAM_MISSING) => Ok(false),
            Err(failure) => Err(failure.of_stream(stream)),
        }
    }

    async fn read(
        &self,
        stream: &str,
        from: ReadFrom,
        subjects: Option<Pattern>,
        deadline: Duration,
    ) -> Result<Box<dyn Source>, BusError> {
        Ok(Box::new(NatsSource::open(self.jetstream.clone(), stream, from, subjects, deadline).await?))
    }

    async fn consume(
        &self,
        stream: &str,
        config: &ConsumerConfig,
        deadline: Duration,
    ) -> Result<Arc<dyn ConsumerBackend>, BusError> {
        let asked = json!({
            "stream_name": stream,
            "config": convert::consumer_config(config),
            "action": "create",
        });
        let subject = format!("CONSUMER.CREATE.{stream}.{}", config.name);
        let made = self.jetstream.ask::<js_consumer::Info>(&subject, &asked, deadline).await;
        match made {
            Ok(_) => {}
            Err(failure) if failure.is(code::CONSUMER_EXISTS) => {
                let subject = format!("CONSUMER.INFO.{stream}.{}", config.name);
                let info = self.jetstream.ask::<js_consumer::Info>(&subject, &json!({}), deadline).await;
                let info = info.map_err(|failure| failure.of_consumer(stream, &config.name))?;
                if let Some(what) = convert::own_consumer(&info.config, config)?.difference(config) {
                    return Err(BusError::StreamDiffers { name: format!("{stream}/{}", config.name), what });
                }
            }
            Err(failure) => return Err(failure.of_consumer(stream, &config.name)),
        }
        Ok(Arc::new(NatsConsumer::new(self.jetstream.clone(), stream, &config.name)))
    }

    async fn delete_consumer(&self, stream: &str, name: &str, deadline: Duration) -> Result<bool, BusError> {
        let subject = format!("CONSUMER.DELETE.{stream}.{name}");
        match self.jetstream.ask::<Success>(&subject, &json!({}), deadline).await {
            Ok(deleted) => Ok(deleted.success),
            Err(failure) if failure.is(code::CONSUMER_MISSING) => Ok(false),
            Err(failure) => Err(failure.of_stream(stream)),
        }
    }
}

impl NatsStreams {
    /// The sequence of an append that an earlier try of it did: the server looks at conditions before it looks at dedupe
    /// ids, so a repeated one meets the conflict with itself. Under its condition it can only be in one place.
    async fn own(&self, stream: &str, append: &Append, deadline: Duration) -> Result<Option<u64>, BusError> {
        let asked = match (append.dedupe_id(), append.expect) {
            (None, _) | (_, Expect::Any) => return Ok(None),
            (Some(_), Expect::Last(last)) => json!({ "seq": last + 1 }),
            (Some(_), Expect::LastOfSubject(last)) => {
                json!({ "seq": last + 1, "next_by_subj": append.subject.as_str() })
            }
        };
        let found = self.jetstream.ask::<Raw>(&format!("STREAM.MSG.GET.{stream}"), &asked, deadline).await;
        match found {
            Ok(raw) => {
                let record = convert::raw_record(raw.message)?;
                let own = record.message.headers.get(DEDUPE_ID) == append.dedupe_id();
                Ok(own.then_some(record.sequence))
            }
            Err(failure) if failure.is(code::NO_MESSAGE) => Ok(None),
            Err(failure) => Err(failure.of_stream(stream)),
        }
    }

    async fn stream_info(&self, stream: &str, deadline: Duration) -> Result<js::Info, BusError> {
        let info = self.jetstream.ask(&format!("STREAM.INFO.{stream}"), &json!({}), deadline).await;
        info.map_err(|failure| failure.of_stream(stream))
    }
}
