//! [`Backend`] over a NATS connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::message::OutboundMessage;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout, timeout_at};

use super::client::{Reports, connect};
use super::options::{NatsOptions, resolve};
use super::streams::{JetStream, NatsStreams};
use crate::backend::{Backend, BackendStats, Complaints, ConnectionState, Incoming, Outgoing, Registration, Sink};
use crate::error::BusError;
use crate::message::{Headers, Message};
use crate::streams::StreamBackend;
use crate::subject::{Pattern, Subject, SubjectError, unique_token};

/// How long a subscribe waits for the server.
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(5);
/// What is asked in an outage may be lost with the connection, so it is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long a dropped backend goes on writing what is queued.
const LAST_WORDS_DEADLINE: Duration = Duration::from_secs(1);

/// The NATS backend. When it is dropped its thread writes what is queued, for a second at most, and ends; only
/// [`drain`](Backend::drain) says whether everything was taken.
pub struct NatsBackend {
    pub(super) client: async_nats::Client,
    pub(super) runtime: Handle,
    pub(super) reports: Arc<Reports>,
    inbox_prefix: String,
    streams: Arc<NatsStreams>,
    queued_bytes: Arc<AtomicUsize>,
    queue_bytes_max: usize,
    queue_messages_max: usize,
    draining: AtomicBool,
    /// Ends the thread when the client is sent, or this is dropped.
    ending: Option<oneshot::Sender<async_nats::Client>>,
}

impl NatsBackend {
    /// Connects.
    ///
    /// # Errors
    /// `Connect` names the URL and how long it was tried; `Config` when the settings cannot be used.
    pub async fn connect(options: NatsOptions) -> Result<Self, BusError> {
        let resolved = resolve(&options)?;
        let inbox_prefix = resolved.inbox_prefix.clone();
        let (queue_bytes_max, queue_messages_max) = (options.queue_bytes_max, options.queue_messages_max);
        let (api_prefix, replicas) = (resolved.api_prefix.clone(), options.stream_replicas);
        let reports = Reports::new();
        let (ending, ended) = oneshot::channel();
        let runtime = spawn_runtime(ended)?;
        let connecting = {
            let reports = reports.clone();
            runtime.spawn(async move { connect(&options, &resolved, &reports).await })
        };
        let client = connecting.await.map_err(|error| backend_error("connect", error))??;
        let jetstream = JetStream {
            client: client.clone(),
            runtime: runtime.clone(),
            reports: reports.clone(),
            api_prefix,
            replicas,
            inbox_prefix: inbox_prefix.clone(),
        };
        Ok(Self {
            client,
            runtime,
            reports,
            inbox_prefix,
            streams: Arc::new(NatsStreams { jetstream: Arc::new(jetstream) }),
            queued_bytes: Arc::default(),
            queue_bytes_max,
            queue_messages_max,
            draining: AtomicBool::new(false),
            ending: Some(ending),
        })
    }

    fn check_open(&self) -> Result<(), BusError> {
        if self.draining.load(Ordering::Acquire) { Err(BusError::Closed) } else { Ok(()) }
    }

    fn full(&self) -> BusError {
        BusError::Full {
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed),
            max_bytes: self.queue_bytes_max,
            max_messages: self.queue_messages_max,
        }
    }

    /// How often the server has complained so far.
    fn complaints_so_far(&self) -> u64 {
        self.reports.complaints.borrow().count()
    }

    /// What it has complained of since, with this text in it.
    fn complaint_since(&self, so_far: u64, text: &str) -> Option<String> {
        self.reports.complaints.borrow().after(so_far, text).map(str::to_owned)
    }
}

impl Drop for NatsBackend {
    fn drop(&mut self) {
        if let Some(ending) = self.ending.take() {
            let _ = ending.send(self.client.clone());
        }
    }
}

/// Starts the thread of the client's runtime; it ends when `ended` resolves.
fn spawn_runtime(ended: oneshot::Receiver<async_nats::Client>) -> Result<Handle, BusError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| backend_error("start the NATS runtime", error))?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("exobus-nats".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                if let Ok(client) = ended.await {
                    // Whoever published last and let go has not waited for the socket.
                    let _ = timeout(LAST_WORDS_DEADLINE, client.flush()).await;
                }
            });
            // Blocking tasks (name lookups) must not hold up the end of the process.
            runtime.shutdown_background();
        })
        .map_err(|error| backend_error("start the NATS thread", error))?;
    Ok(handle)
}

pub(super) fn backend_error(
    what: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> BusError {
    BusError::Backend { what, source: source.into() }
}

/// A payload that counts as queued until the client has let go of it, that is, until it is written.
struct Queued {
    payload: Bytes,
    queued_bytes: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queued_bytes.fetch_sub(self.payload.len(), Ordering::Relaxed);
    }
}

#[async_trait]
impl Backend for NatsBackend {
    fn publish(&self, outgoing: Outgoing) -> Result<(), BusError> {
        self.check_open()?;
        let Outgoing { subject, reply, message } = outgoing;
        let bytes = message.payload.len();
        if self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.queue_bytes_max {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(self.full());
        }
        let queued = Queued { payload: message.payload, queued_bytes: self.queued_bytes.clone() };
        let outbound = OutboundMessage {
            subject: subject.as_str().into(),
            reply: reply.map(|reply| reply.as_str().into()),
            payload: Bytes::from_owner(queued),
            headers: to_nats(&message.headers)?,
        };
        // Polled once: it is ready unless the queue is full. Unconstrained, or a task that did much would be told
        // "pending" by the scheduler and we would take that for "full".
        match unconstrained(self.client.publish_message(outbound)).now_or_never() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => match error.kind() {
                async_nats::PublishErrorKind::MaxPayloadExceeded => {
                    let max_bytes = self.payload_max_bytes();
                    Err(BusError::TooLarge { subject: subject.to_string(), bytes, max_bytes })
                }
                _ => Err(BusError::Closed),
            },
            None => Err(self.full()),
        }
    }

    async fn subscribe(
        &self,
        pattern: Pattern,
        queue: Option<String>,
        sink: Arc<dyn Sink>,
    ) -> Result<Registration, BusError> {
        self.check_open()?;
        let timed_out = || BusError::TimedOut { what: format!("subscribe to {pattern}"), after: SUBSCRIBE_DEADLINE };
        let deadline = Instant::now() + SUBSCRIBE_DEADLINE;
        let so_far = self.complaints_so_far();
        let subscribing = async {
            match queue {
                None => self.client.subscribe(pattern.to_string()).await,
                Some(queue) => self.client.queue_subscribe(pattern.to_string(), queue).await,
            }
        };
        let mut subscriber = timeout_at(deadline, subscribing)
            .await
            .map_err(|_| timed_out())?
            .map_err(|error| backend_error("subscribe", error))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let reports = self.reports.clone();
        self.runtime.spawn(async move {
            let mut stopped = stopped.fuse();
            loop {
                let next = tokio::select! {
                    // What arrived comes first; after the registration is gone nobody looks at it anyway.
                    biased;
                    next = subscriber.next() => next,
                    _ = &mut stopped => return,
                };
                match next {
                    Some(message) => pass_on(message, &*sink, &reports),
                    None => {
                        sink.closed();
                        return;
                    }
                }
            }
        });
        self.flush(deadline.saturating_duration_since(Instant::now())).await.map_err(|error| match error {
            BusError::TimedOut { .. } => timed_out(),
            other => other,
        })?;
        if let Some(reason) = self.complaint_since(so_far, &format!("\"{pattern}\"")) {
            return Err(BusError::Denied { subject: pattern.to_string(), reason });
        }
        Ok(Registration::new(parking_lot::Mutex::new(stop)))
    }

    async fn flush(&self, deadline: Duration) -> Result<(), BusError> {
        if *self.reports.closed.borrow() {
            return Err(BusError::Closed);
        }
        // What we say to ourselves comes back in order with everything that this connection sent before, whoever else hears it.
        let (end, so_far) = (Instant::now() + deadline, self.complaints_so_far());
        loop {
            let subject = format!("{}.sync.{}", self.inbox_prefix, unique_token());
            let left = end.saturating_duration_since(Instant::now()).min(ASK_AGAIN_AFTER);
            // Heard on the client's own thread: there it is seen after the client's earlier reports, of a denied subscription for
            // example. Another thread could see it before them.
            let client = self.client.clone();
            let hearing = self.runtime.spawn(async move { timeout(left, hear_oneself(client, subject)).await });
            match hearing.await.map_err(|_| BusError::Closed)? {
                Ok(true) => return Ok(()),
                Ok(false) if *self.reports.closed.borrow() => return Err(BusError::Closed),
                Ok(false) | Err(_) if Instant::now() >= end => {
                    let what = match self.complaint_since(so_far, &format!("\"{}.sync.", self.inbox_prefix)) {
                        Some(reason) => format!("flush ({reason})"),
                        None => "flush".to_owned(),
                    };
                    return Err(BusError::TimedOut { what, after: deadline });
                }
                Ok(false) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => {}
            }
        }
    }

    async fn drain(&self, deadline: Duration) -> Result<(), BusError> {
        if self.draining.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let end = Instant::now() + deadline;
        let flushed = self.flush(deadline).await;
        let mut closed = self.reports.closed.subscribe();
        // The client stops reading its queue when it drains, so this is the last thing that is sent.
        let draining = async {
            self.client.drain().await.map_err(|_| BusError::Closed)?;
            closed.wait_for(|closed| *closed).await.map_err(|_| BusError::Closed).map(drop)
        };
        match timeout_at(end.max(Instant::now() + Duration::from_millis(100)), draining).await {
            Ok(result) => flushed.and(result),
            Err(_) => Err(BusError::TimedOut { what: "drain".to_owned(), after: deadline }),
        }
    }

    fn asks_who_connects(&self) -> Option<bool> {
        Some(self.client.server_info().auth_required)
    }

    fn complaints(&self) -> Option<watch::Receiver<Complaints>> {
        Some(self.reports.complaints.subscribe())
    }

    fn payload_max_bytes(&self) -> usize {
        self.client.max_payload()
    }

    fn inbox_prefix(&self) -> &str {
        &self.inbox_prefix
    }

    fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.reports.connection.subscribe()
    }

    fn runtime(&self) -> Option<Handle> {
        Some(self.runtime.clone())
    }

    fn streams(&self) -> Option<Arc<dyn StreamBackend>> {
        Some(self.streams.clone())
    }

    fn stats(&self) -> BackendStats {
        BackendStats {
            malformed_messages: self.reports.malformed.count(),
            dropped_by_client: self.reports.dropped_by_client.load(Ordering::Relaxed),
            reconnects: self.reports.connection.borrow().connects.saturating_sub(1),
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed) as u64,
        }
    }
}

/// Whether something that was published on a subject of our own has come back; false: the client is closed.
async fn hear_oneself(client: async_nats::Client, subject: String) -> bool {
    let Ok(mut heard) = client.subscribe(subject.clone()).await else { return false };
    client.publish(subject, Bytes::new()).await.is_ok() && heard.next().await.is_some()
}

/// Hands a message of the client to a sink; one whose subject breaks our syntax is counted and dropped.
fn pass_on(message: async_nats::Message, sink: &dyn Sink, reports: &Reports) {
    match incoming(message) {
        Ok(incoming) => sink.deliver(incoming),
        Err((subject, error)) => drop(reports.malformed.refuse(&subject, "nats", &error)),
    }
}

/// A payload of up to so many bytes is copied.
const COPIED_BYTES_MAX: usize = 4096;

/// The payload of a message, which may wait for long: a small one would keep the buffer that the client has read it into, which has many.
fn apart(payload: Bytes) -> Bytes {
    if payload.len() <= COPIED_BYTES_MAX { Bytes::copy_from_slice(&payload) } else { payload }
}

/// The client's message as ours; its subject when that breaks our syntax. A reply subject that does is dropped:
/// nobody of ours uses such.
pub(super) fn incoming(message: async_nats::Message) -> Result<Incoming, (async_nats::Subject, SubjectError)> {
    let subject = Subject::parse(&message.subject).map_err(|error| (message.subject, error))?;
    Ok(Incoming {
        subject,
        reply: message.reply.and_then(|reply| Subject::parse(&reply).ok()),
        message: Message { payload: apart(message.payload), headers: from_nats(message.headers) },
        too_large: None,
        no_responders: message.status == Some(async_nats::StatusCode::NO_RESPONDERS),
    })
}

pub(super) fn to_nats(headers: &Headers) -> Result<Option<async_nats::HeaderMap>, BusError> {
    if headers.is_empty() {
        return Ok(None);
    }
    let mut map = async_nats::HeaderMap::new();
    for (name, value) in headers.iter() {
        map.append(name, value);
    }
    Ok(Some(map))
}

/// Headers that ours cannot express (made by other clients) are left out.
pub(super) fn from_nats(map: Option<async_nats::HeaderMap>) -> Headers {
    let mut headers = Headers::new();
    for (name, values) in map.iter().flat_map(async_nats::HeaderMap::iter) {
        for value in values {
            if let Err(error) = headers.append(name.as_ref(), value.as_str()) {
                tracing::debug!(%error, "header left out");
            }
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_message_that_waits_keeps_nothing_of_what_was_read_with_it() {
        let read = Bytes::from(vec![7; 64 << 10]);
        let of = |bytes: usize| async_nats::Message {
            subject: "a.b".into(),
            reply: None,
            payload: read.slice(..bytes),
            headers: None,
            status: None,
            description: None,
            length: bytes,
        };
        let small = incoming(of(COPIED_BYTES_MAX)).unwrap();
        assert!(read.is_unique() && small.message.payload == read[..COPIED_BYTES_MAX]);
        let _large = incoming(of(COPIED_BYTES_MAX + 1)).unwrap();
        assert!(!read.is_unique(), "it is not copied");
    }
}
