//! A durable consumer of the server.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::Request;
use async_nats::jetstream::consumer as js_consumer;
use async_trait::async_trait;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::JetStream;
use super::pull::End;
use crate::error::BusError;
use crate::streams::{ConsumerBackend, Fetched, Settle};

/// Pause before a consumer that is not ready is asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the question takes whether a consumer exists.
const INFO_DEADLINE: Duration = Duration::from_secs(5);

pub(super) struct NatsConsumer {
    jetstream: Arc<JetStream>,
    stream: String,
    name: String,
}

impl NatsConsumer {
    pub(super) fn new(jetstream: Arc<JetStream>, stream: &str, name: &str) -> Self {
        Self { jetstream, stream: stream.to_owned(), name: name.to_owned() }
    }

    /// Tells a consumer that is not there from one that is not ready.
    async fn check(&self) -> Result<(), BusError> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        let info = self.jetstream.ask::<js_consumer::Info>(&subject, &json!({}), INFO_DEADLINE).await;
        match info.map_err(|failure| failure.of_consumer(&self.stream, &self.name)) {
            Err(error) if !error.is_retryable() => Err(error),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ConsumerBackend for NatsConsumer {
    async fn fetch(&self, max: usize, wait: Duration) -> Result<Vec<Fetched>, BusError> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (pulled, ended) = self.jetstream.pull(&self.stream, &self.name, max, left).await?;
            if !pulled.is_empty() {
                let fetched = pulled.into_iter().map(|pulled| Fetched {
                    record: pulled.record,
                    attempt: pulled.attempt,
                    token: pulled.reply,
                });
                return Ok(fetched.collect());
            }
            if ended == End::NoConsumer {
                self.check().await?;
                sleep(PAUSE).await;
            }
            // A server that may not deliver more before an acknowledgement says nothing at all.
            if end <= Instant::now() {
                return Ok(Vec::new());
            }
        }
    }

    async fn settle(&self, fetched: &Fetched, settle: Settle, deadline: Duration) -> Result<(), BusError> {
        let said = match settle {
            Settle::Ack => "+ACK".to_owned(),
            Settle::Nack(delay) if delay.is_zero() => "-NAK".to_owned(),
            Settle::Nack(delay) => format!("-NAK {{\"delay\": {}}}", delay.as_nanos()),
            Settle::InProgress => "+WPI".to_owned(),
        };
        let request = Request::new().payload(said.into()).timeout(Some(deadline));
        self.jetstream.request(fetched.token.clone(), request, deadline).await.map(drop)
    }
}
