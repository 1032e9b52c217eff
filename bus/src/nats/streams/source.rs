//! Reading in order: a consumer in the server's memory that is made anew, at our place, whenever something is odd.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer as js_consumer;
use async_trait::async_trait;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::JetStream;
use super::convert::reader_config;
use super::pull::End;
use crate::error::BusError;
use crate::streams::{Batch, ReadFrom, Source};
use crate::subject::{Pattern, unique_token};

/// The server forgets a reader that has asked for nothing so long; it is then made anew.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long making a consumer may take.
const MAKE_DEADLINE: Duration = Duration::from_secs(5);

pub(super) struct NatsSource {
    jetstream: Arc<JetStream>,
    stream: String,
    subjects: Option<Pattern>,
    /// Where the next consumer begins.
    from: ReadFrom,
    consumer: Option<Consumer>,
}

/// Deleted on the server when it is dropped.
struct Consumer {
    jetstream: Arc<JetStream>,
    stream: String,
    name: String,
    /// Of its next delivery.
    delivery: u64,
}

/// Pause before a consumer is tried to be made again.
const PAUSE: Duration = Duration::from_millis(50);

impl NatsSource {
    pub(super) async fn open(
        jetstream: Arc<JetStream>,
        stream: &str,
        from: ReadFrom,
        subjects: Option<Pattern>,
        deadline: Duration,
    ) -> Result<Self, BusError> {
        let mut source = Self { jetstream, stream: stream.to_owned(), subjects, from, consumer: None };
        if from == ReadFrom::New {
            // A consumer that is lost before its first record must not skip what came meanwhile.
            let info = source.jetstream.ask(&format!("STREAM.INFO.{stream}"), &json!({}), deadline).await;
            let info: async_nats::jetstream::stream::Info = info.map_err(|failure| failure.of_stream(stream))?;
            source.from = ReadFrom::Sequence(info.state.last_sequence + 1);
        }
        source.make(deadline).await?;
        Ok(source)
    }

    async fn make(&mut self, deadline: Duration) -> Result<(), BusError> {
        let name = unique_token();
        let config = reader_config(&name, self.from, self.subjects.as_ref(), IDLE_MAX);
        let asked = json!({ "stream_name": self.stream, "config": config, "action": "create" });
        let subject = format!("CONSUMER.CREATE.{}.{name}", self.stream);
        let made = self.jetstream.ask::<js_consumer::Info>(&subject, &asked, deadline).await;
        made.map_err(|failure| failure.of_stream(&self.stream))?;
        let (jetstream, stream) = (self.jetstream.clone(), self.stream.clone());
        self.consumer = Some(Consumer { jetstream, stream, name, delivery: 1 });
        Ok(())
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Batch, BusError> {
        let end = Instant::now() + wait;
        let healing_end = Instant::now() + wait.max(MAKE_DEADLINE);
        loop {
            if self.consumer.is_none()
                && let Err(error) = self.make(MAKE_DEADLINE).await
            {
                if !error.is_retryable() || Instant::now() >= healing_end {
                    return Err(error);
                }
                sleep(PAUSE).await;
                continue;
            }
            let (batch, whole) = self.pull(max, end.saturating_duration_since(Instant::now())).await?;
            if !batch.records.is_empty() || (whole && Instant::now() >= end) {
                return Ok(batch);
            }
            if Instant::now() >= healing_end {
                let what = format!("read of stream {}", self.stream);
                return Err(BusError::TimedOut { what, after: wait });
            }
        }
    }
}

impl NatsSource {
    /// What the consumer has, and whether that was said to be all. The consumer is given up whenever a record may have gone
    /// where nobody reads it: also when this is cancelled, so it is put back only at the end.
    async fn pull(&mut self, max: usize, wait: Duration) -> Result<(Batch, bool), BusError> {
        let Some(mut consumer) = self.consumer.take() else { return Ok((Batch::default(), false)) };
        let (pulled, ended) = self.jetstream.pull(&self.stream, &consumer.name, max, wait).await?;
        let whole = ended == End::Said;
        let mut batch = Batch { records: Vec::with_capacity(pulled.len()), caught_up: whole && pulled.is_empty() };
        for pulled in pulled {
            if pulled.delivery != consumer.delivery {
                // Something in between went to a pull that was cancelled.
                batch.caught_up = false;
                return Ok((batch, false));
            }
            consumer.delivery += 1;
            batch.caught_up = pulled.pending == 0;
            self.from = ReadFrom::Sequence(pulled.record.sequence + 1);
            batch.records.push(pulled.record);
        }
        if whole {
            self.consumer = Some(consumer);
        }
        Ok((batch, whole))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let (jetstream, subject) = (self.jetstream.clone(), format!("CONSUMER.DELETE.{}.{}", self.stream, self.name));
        // Should it fail, the server forgets the consumer a little later.
        self.jetstream.runtime.spawn(async move {
            let _ = jetstream.ask::<serde_json::Value>(&subject, &json!({}), MAKE_DEADLINE).await;
        });
    }
}
