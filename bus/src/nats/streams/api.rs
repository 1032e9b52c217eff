//! Requests to JetStream, and its answers.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::Request;
use async_nats::{HeaderMap, RequestErrorKind};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::backend::{backend_error, to_nats};
use super::super::client::Reports;
use super::code;
use crate::error::BusError;
use crate::streams::{Append, Appended, Expect};

/// A connection, as JetStream's user.
pub(in crate::nats) struct JetStream {
    pub(in crate::nats) client: async_nats::Client,
    pub(in crate::nats) runtime: Handle,
    pub(in crate::nats) reports: Arc<Reports>,
    /// `$JS.API` or, of a domain, `$JS.<domain>.API`.
    pub(in crate::nats) api_prefix: String,
    pub(in crate::nats) replicas: usize,
    pub(in crate::nats) inbox_prefix: String,
}

/// Why JetStream did not do what it was asked.
pub(super) enum Failure {
    /// The request or its answer was lost, or made no sense.
    Bus(BusError),
    /// It says why.
    Said(u64, Said),
}

/// What JetStream says beside its code.
pub(super) struct Said {
    /// The request itself was wrong; another try would be, too.
    final_: bool,
    text: String,
}

impl Failure {
    pub(super) fn is(&self, code: u64) -> bool {
        matches!(self, Self::Said(said, _) if *said == code)
    }

    /// As an error about a stream.
    pub(super) fn of_stream(self, stream: &str) -> BusError {
        let (code, Said { final_, text }) = match self {
            Self::Bus(error) => return error,
            Self::Said(code, said) => (code, said),
        };
        let stream = stream.to_owned();
        match code {
            code::STREAM_MISSING => BusError::StreamMissing { stream },
            code::STORE_FAILED | code::NO_ROOM => BusError::StreamFull { stream, reason: text },
            code::SUBJECTS_OVERLAP => BusError::StreamDiffers { name: stream, what: text },
            code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => BusError::Unsupported(text),
            code if final_ => BusError::Config(format!("stream {stream}: {text} (code {code})")),
            code => backend_error("JetStream", format!("{text} (code {code})")),
        }
    }

    /// As an error about a consumer.
    pub(super) fn of_consumer(self, stream: &str, consumer: &str) -> BusError {
        match self {
            Self::Said(code::CONSUMER_MISSING, _) => {
                BusError::ConsumerMissing { stream: stream.to_owned(), consumer: consumer.to_owned() }
            }
            other => other.of_stream(stream),
        }
    }

    fn of_append(self, stream: &str, append: &Append) -> BusError {
        match (&self, append.expect) {
            (
                Self::Said(code::WRONG_LAST_SEQUENCE | code::WRONG_LAST_SEQUENCE_UNSAID, Said { text, .. }),
                Expect::Last(expected) | Expect::LastOfSubject(expected),
            ) => {
                // "wrong last sequence: 7"
                let found = text.rsplit(' ').next().and_then(|number| number.parse().ok());
                BusError::Conflict { subject: append.subject.to_string(), expected, found }
            }
            // The first append that finds the disk full is told so; later ones may not be answered at all.
            (Self::Said(_, Said { text, .. }), _) if text.contains("no space left on device") => {
                BusError::StoresNothing { stream: stream.to_owned(), reason: text.clone() }
            }
            _ => self.of_stream(stream),
        }
    }
}

impl JetStream {
    /// One request to the API, `verb` after its prefix.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        asked: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, Failure> {
        let payload = serde_json::to_vec(asked).map_err(|error| Failure::Bus(backend_error("JetStream", error)))?;
        let request = Request::new().payload(payload.into()).timeout(Some(deadline));
        let answer = self.request(format!("{}.{verb}", self.api_prefix), request, deadline).await;
        read(&answer.map_err(Failure::Bus)?.payload)
    }

    /// Sends a record and waits for its number.
    pub(super) async fn append(&self, stream: &str, append: &Append, deadline: Duration) -> Result<Appended, BusError> {
        let mut headers = to_nats(&append.message.headers)?.unwrap_or_else(HeaderMap::new);
        match append.expect {
            Expect::Any => {}
            Expect::Last(sequence) => headers.insert("Nats-Expected-Last-Sequence", sequence.to_string()),
            Expect::LastOfSubject(sequence) => {
                headers.insert("Nats-Expected-Last-Subject-Sequence", sequence.to_string())
            }
        }
        if let Some(ttl) = append.ttl {
            headers.insert("Nats-TTL", format!("{}s", ttl.as_secs()));
        }
        let request = Request::new().payload(append.message.payload.clone()).timeout(Some(deadline));
        let request = if headers.is_empty() { request } else { request.headers(headers) };
        let answer = self.request(append.subject.to_string(), request, deadline).await?;
        let ack: async_nats::jetstream::publish::PublishAck =
            read(&answer.payload).map_err(|failure| failure.of_append(stream, append))?;
        if ack.stream != stream {
            return Err(BusError::NotInStream { stream: stream.to_owned(), subject: append.subject.to_string() });
        }
        Ok(Appended { sequence: ack.sequence, duplicate: ack.duplicate })
    }

    /// One request; in an outage not even handing it to the client takes longer than `deadline`.
    pub(super) async fn request(
        &self,
        subject: String,
        request: Request,
        deadline: Duration,
    ) -> Result<async_nats::Message, BusError> {
        let timed_out = || BusError::TimedOut { what: format!("request on {subject}"), after: deadline };
        match timeout(deadline, self.client.send_request(subject.clone(), request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) if *self.reports.closed.borrow() => Err(BusError::Closed),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::NoResponders => Err(BusError::NoResponders { subject }),
                RequestErrorKind::TimedOut => Err(timed_out()),
                _ => Err(backend_error("JetStream", error)),
            },
            Err(_) => Err(timed_out()),
        }
    }
}

/// An answer is the value that was asked for, or `{"error": {"err_code", "description"}}`.
fn read<T: DeserializeOwned>(payload: &Bytes) -> Result<T, Failure> {
    let broken = |error| Failure::Bus(backend_error("read JetStream's answer", error));
    let value: Value = serde_json::from_slice(payload).map_err(broken)?;
    if let Some(error) = value.get("error") {
        let code = error["err_code"].as_u64().unwrap_or_default();
        let text = error["description"].as_str().unwrap_or("no reason given").to_owned();
        let final_ = error["code"].as_u64().is_some_and(|status| (400..500).contains(&status));
        return Err(Failure::Said(code, Said { final_, text }));
    }
    serde_json::from_value(value).map_err(broken)
}
