//! Pulling records from a consumer of the server.

use std::time::Duration;

use async_nats::StatusCode;
use futures::StreamExt;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::super::backend::backend_error;
use super::api::JetStream;
use super::convert::own_message;
use crate::error::BusError;
use crate::streams::Record;
use crate::subject::{Subject, unique_token};

/// How long the end of a pull may take beyond its own time, before it is taken for lost.
const GRACE: Duration = Duration::from_secs(1);
/// One pull waits so long at most; whoever waits longer pulls again. Bounds what a lost request costs.
const PULL_MAX: Duration = Duration::from_secs(5);

/// A record with what its delivery says.
pub(super) struct Pulled {
    pub(super) record: Record,
    pub(super) attempt: u64,
    /// Where its acknowledgement goes.
    pub(super) reply: String,
    /// Number of this delivery by its consumer: 1, 2, 3 ... A gap is a delivery that we never saw.
    pub(super) delivery: u64,
    /// Records that the consumer has not delivered yet.
    pub(super) pending: u64,
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All that was asked for, or the server said that there is no more.
    Said,
    /// No word: the connection came anew, or the request or its answer was lost. Deliveries may be lost.
    Unsaid,
    /// There is no such consumer, or not any more, or not yet.
    NoConsumer,
}

impl JetStream {
    /// Up to `max` records as soon as there is one; without a wait, those that are there.
    pub(super) async fn pull(
        &self,
        stream: &str,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<(Vec<Pulled>, End), BusError> {
        let ready = self.pull_once(stream, consumer, max, None).await?;
        if !ready.0.is_empty() || ready.1 != End::Said || wait < Duration::from_millis(1) {
            return Ok(ready);
        }
        // Waiting for more than one would leave those behind the first on their way when we return.
        self.pull_once(stream, consumer, 1, Some(wait.min(PULL_MAX))).await
    }

    async fn pull_once(
        &self,
        stream: &str,
        consumer: &str,
        max: usize,
        wait: Option<Duration>,
    ) -> Result<(Vec<Pulled>, End), BusError> {
        if *self.reports.closed.borrow() {
            return Err(BusError::Closed);
        }
        let mut connection = self.reports.connection.subscribe();
        let connects = connection.borrow_and_update().connects;
        let end = Instant::now() + wait.unwrap_or_default() + GRACE;
        let inbox = format!("{}.pull.{}", self.inbox_prefix, unique_token());
        let asked = match wait {
            Some(wait) => json!({ "batch": max, "expires": u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX) }),
            None => json!({ "batch": max, "no_wait": true }),
        };
        let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.api_prefix);
        let opening = async {
            let subscriber =
                self.client.subscribe(inbox.clone()).await.map_err(|error| backend_error("pull", error))?;
            let published = self.client.publish_with_reply(subject, inbox, asked.to_string().into()).await;
            published.map_err(|error| backend_error("pull", error))?;
            Ok::<_, BusError>(subscriber)
        };
        let Ok(opened) = timeout_at(end, opening).await else { return Ok((Vec::new(), End::Unsaid)) };
        let mut subscriber = opened?;
        let mut pulled = Vec::new();
        while pulled.len() < max {
            let message = tokio::select! {
                biased;
                message = timeout_at(end, subscriber.next()) => message,
                _ = connection.wait_for(|state| state.connects != connects) => return Ok((pulled, End::Unsaid)),
            };
            let Ok(Some(message)) = message else { return Ok((pulled, End::Unsaid)) };
            match message.status {
                None | Some(StatusCode::OK) => pulled.push(read(message)?),
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => return Ok((pulled, End::Said)),
                // 409 tells of a consumer that was deleted or moves, or of too many that wait.
                Some(status) => {
                    tracing::debug!(%status, description = message.description.as_deref(), stream, "pull ended");
                    return Ok((pulled, End::NoConsumer));
                }
            }
        }
        Ok((pulled, End::Said))
    }
}

/// Reads `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<attempt>.<sequence>.<delivery>.<time>.<pending>[.<more>]`.
fn read(message: async_nats::Message) -> Result<Pulled, BusError> {
    let reply = message.reply.as_deref().unwrap_or_default().to_owned();
    let tokens: Vec<&str> = reply.split('.').collect();
    let first = if tokens.len() >= 11 { 6 } else { 4 };
    let number = |at: usize| tokens.get(first + at).and_then(|token| token.parse::<u64>().ok());
    let (Some(attempt), Some(sequence), Some(delivery), Some(pending)) = (number(0), number(1), number(2), number(4))
    else {
        return Err(backend_error("read a delivery", format!("its acknowledgement goes to {reply:?}")));
    };
    let subject = Subject::parse(&message.subject)?;
    let record = Record { sequence, subject, message: own_message(message.payload, message.headers) };
    Ok(Pulled { record, attempt, reply, delivery, pending })
}
