//! [`Bus`]: the handle that everybody uses. Adds to a [`Backend`] what is the same for all of them: requests (one
//! shared subscription for all answers), bounded subscriptions that count what they drop, counters.

mod answers;
mod subscription;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio::time::{Instant, timeout_at};

pub use subscription::{Delivery, Subscription};

use crate::auth::{ANSWER_BYTES_MAX, Asked, Credentials, MessageError, QUESTION_BYTES_MAX};
use crate::backend::{Backend, Complaints, ConnectionState, Incoming, Outgoing, Registration, Sink};
use crate::codec::CodecError;
use crate::error::BusError;
use crate::inproc::{InProcess, InProcessOptions};
use crate::message::Message;
use crate::nats::{NatsBackend, NatsOptions};
use crate::session::Peer;
use crate::streams::{StreamBackend, Usage};
use crate::subject::{Pattern, Subject, check_token, unique_token};
use answers::{AnswerTable, Answers, Waiter, Waiting};
use subscription::{Bounded, Counted};

/// How long [`Bus::flush`] and [`Bus::drain`] wait for the server.
pub const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

/// Of the answers to one question, so many may wait to be looked at.
const ANSWERS_LOOKED_AT: usize = 16;

/// How to subscribe.
#[derive(Debug, Clone)]
pub struct SubscribeOptions {
    /// A token; of all subscribers of one queue group only one gets a message. `None`: every subscriber gets it.
    pub queue: Option<String>,
    /// How many messages may wait to be read. When it is full the newest message is dropped and counted. Default 8192.
    pub capacity_messages: usize,
    /// How many bytes they may take together, half a KiB for each beside its payload and headers. The same when that is full; one
    /// message has room always. Default 4 MiB.
    pub capacity_bytes: usize,
    /// Payload and headers of the largest message that makes sense here, in bytes. A larger one arrives empty: its receiver counts the
    /// nonsense, and nothing of it waits or is looked at. Default: no such limit but the bus's.
    pub message_bytes_max: usize,
    /// What whoever waits for an answer to a message that is dropped is answered, unless too much waits for the socket already. Default:
    /// nothing, so that he waits until his deadline.
    pub when_full: Option<Message>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            queue: None,
            capacity_messages: 8192,
            capacity_bytes: 4 * 1024 * 1024,
            message_bytes_max: usize::MAX,
            when_full: None,
        }
    }
}

impl SubscribeOptions {
    /// A member of a queue group.
    pub fn queue(group: &str) -> Self {
        Self { queue: Some(group.to_owned()), ..Self::default() }
    }

    /// For small messages of which anybody may send as many as it likes: of up to `message_bytes_max`, 1 MiB may wait.
    pub fn small(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, capacity_bytes: 1024 * 1024, ..Self::default() }
    }

    /// A member of a queue group that answers [sealed questions](Bus::ask).
    pub fn questions(group: &str) -> Self {
        Self { queue: Some(group.to_owned()), ..Self::small(QUESTION_BYTES_MAX) }
    }
}

/// When a request to many is complete: at the first of these.
#[derive(Debug, Clone)]
pub struct RequestMany {
    /// So many answers are there.
    pub max: usize,
    /// So long after the request.
    pub deadline: Duration,
    /// So long after the latest answer; `None`: no such limit.
    pub gap: Option<Duration>,
}

impl Default for RequestMany {
    fn default() -> Self {
        Self { max: 1024, deadline: Duration::from_secs(2), gap: Some(Duration::from_millis(200)) }
    }
}

/// Counters since the bus was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BusStats {
    /// Messages handed to the backend.
    pub published_messages: u64,
    /// Their bytes, headers included.
    pub published_bytes: u64,
    /// Messages that subscriptions received, requests' answers included.
    pub received_messages: u64,
    /// Their bytes, headers included.
    pub received_bytes: u64,
    /// Messages dropped because a subscription was full.
    pub dropped_messages: u64,
    /// Publishes refused because the outgoing queue was full.
    pub refused_full: u64,
    /// What only the backend can count.
    pub backend: crate::backend::BackendStats,
}

#[derive(Default)]
struct Counters {
    published_messages: AtomicU64,
    published_bytes: AtomicU64,
    received_messages: AtomicU64,
    received_bytes: AtomicU64,
    dropped_messages: AtomicU64,
    refused_full: AtomicU64,
}

/// A handle to a bus; clones share it. The handle may be used from any tokio runtime.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
    voice: Arc<Voice>,
}

/// Who speaks through a handle.
struct Voice {
    credentials: Credentials,
    me: Peer,
}

struct Inner {
    backend: Arc<dyn Backend>,
    answers: OnceCell<Answers>,
    counters: Arc<Counters>,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("stats", &self.stats()).finish()
    }
}

impl Bus {
    /// A bus inside this process; clones of the handle see each other, other in-process buses do not.
    pub fn in_process() -> Self {
        Self::in_process_with(InProcessOptions::default())
    }

    /// The same with another payload limit.
    pub fn in_process_with(options: InProcessOptions) -> Self {
        Self::over(Arc::new(InProcess::new(options)))
    }

    /// A bus inside this process whose durable streams are kept in the file at `path`, made if there is none. One bus at
    /// a time may use it: [`drain`](Self::drain) lets go of it.
    ///
    /// # Errors
    /// `Storage` when the file cannot be used: it is damaged, no such file of ours, or another bus has it open.
    pub async fn in_process_durable(options: InProcessOptions, path: &Path) -> Result<Self, BusError> {
        Ok(Self::over(Arc::new(InProcess::open(options, path).await?)))
    }

    /// Connects to a NATS server.
    ///
    /// # Errors
    /// `Connect` names the URL and how long it was tried; `Config` when the settings cannot be used.
    pub async fn connect(options: NatsOptions) -> Result<Self, BusError> {
        Ok(Self::over(Arc::new(NatsBackend::connect(options).await?)))
    }

    /// A bus over any backend, e.g. [`crate::chaos::Chaos`].
    pub fn over(backend: Arc<dyn Backend>) -> Self {
        let me = Peer { node: "nobody".to_owned(), incarnation: 0 };
        Self {
            inner: Arc::new(Inner { backend, answers: OnceCell::new(), counters: Arc::default() }),
            voice: Arc::new(Voice { credentials: Credentials::open(), me }),
        }
    }

    /// The same bus for who knows these tokens. Without this, those of a cluster that has none.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        let me = self.voice.me.clone();
        Self { inner: self.inner.clone(), voice: Arc::new(Voice { credentials, me }) }
    }

    /// The same bus for the process `me`: its questions say so.
    #[must_use]
    pub fn speaking_as(&self, me: Peer) -> Self {
        let credentials = self.voice.credentials.clone();
        Self { inner: self.inner.clone(), voice: Arc::new(Voice { credentials, me }) }
    }

    /// The tokens that whoever speaks through this handle knows.
    pub fn credentials(&self) -> &Credentials {
        &self.voice.credentials
    }

    /// Who speaks through this handle.
    pub fn me(&self) -> &Peer {
        &self.voice.me
    }

    /// Asks a service of the cluster, and proves who asks. The answer is authentic, and to this question: what else comes meanwhile, and
    /// says that we are not believed, ends nothing, as anybody can say it.
    ///
    /// # Errors
    /// As [`request`](Self::request), and `TooLarge` for more than [`QUESTION_BYTES_MAX`]; `Sealed` where after `deadline` there was
    /// nothing but what cannot be believed, or says that we are not (this first), and at once where an authentic answer makes no sense.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        subject: Subject,
        question: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, BusError> {
        let encode = |error: CodecError| BusError::Config(error.to_string());
        let (asked, bytes) = self.credentials().ask(&subject, self.me(), question).map_err(encode)?;
        if bytes.len() > QUESTION_BYTES_MAX {
            let (subject, bytes) = (subject.to_string(), bytes.len());
            return Err(BusError::TooLarge { subject, bytes, max_bytes: QUESTION_BYTES_MAX });
        }
        let mut asking = self.begin(subject, Message::new(bytes), (ANSWERS_LOOKED_AT, ANSWER_BYTES_MAX)).await?;
        let end = Instant::now() + deadline;
        let mut refused = None;
        loop {
            let error = match asking.next(end).await {
                Ok(Some(answer)) => match self.credentials().answered(&asked, &answer.payload) {
                    Err(error) if error.is_strangers() => error,
                    authentic => return Ok(authentic?),
                },
                Ok(None) => return Err(refused.map_or_else(|| asking.timed_out(deadline), BusError::Sealed)),
                Err(error) => return Err(error),
            };
            if matches!(error, MessageError::Denied(_)) || refused.is_none() {
                refused = Some(error);
            }
        }
    }

    /// The question in a message that arrived, if it is authentic. Who is not believed is told which token is wrong.
    ///
    /// # Errors
    /// Why it is not believed, or makes no sense.
    pub fn asked<T: DeserializeOwned>(&self, delivery: &Delivery) -> Result<Asked<T>, MessageError> {
        let asked = self.credentials().asked(&delivery.subject, &delivery.message.payload);
        if let Err(MessageError::NotBelieved(denied)) = &asked {
            // One that waits for no answer needs none.
            let _ = delivery.try_reply(Message::new(Credentials::deny(*denied)));
        }
        asked
    }

    /// Answers a question, sealed for who has asked it.
    ///
    /// # Errors
    /// As [`Delivery::reply`]; `Config`: the answer cannot be encoded.
    pub fn answer<Q>(&self, delivery: &Delivery, asked: &Asked<Q>, answer: &impl Serialize) -> Result<(), BusError> {
        let bytes = self.credentials().answer(asked, self.me(), answer);
        delivery.try_reply(Message::new(bytes.map_err(|error| BusError::Config(error.to_string()))?))
    }

    /// What it stands on, e.g. to put a [`crate::chaos::Chaos`] around it.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.inner.backend.clone()
    }

    /// Publishes. `Ok` means handed over, not delivered. Never waits for the socket.
    ///
    /// # Errors
    /// `TooLarge`, `Full`, `Closed`.
    pub async fn publish(&self, subject: Subject, message: Message) -> Result<(), BusError> {
        self.try_publish(subject, message)
    }

    /// [`publish`](Self::publish) for code that is not async.
    ///
    /// # Errors
    /// `TooLarge`, `Full`, `Closed`.
    pub fn try_publish(&self, subject: Subject, message: Message) -> Result<(), BusError> {
        self.send(Outgoing { subject, reply: None, message })
    }

    /// Publishes with a subject for answers that the caller subscribes to itself.
    ///
    /// # Errors
    /// `TooLarge`, `Full`, `Closed`.
    pub fn publish_with_reply(&self, subject: Subject, reply: Subject, message: Message) -> Result<(), BusError> {
        self.send(Outgoing { subject, reply: Some(reply), message })
    }

    fn send(&self, outgoing: Outgoing) -> Result<(), BusError> {
        let bytes = outgoing.message.wire_bytes();
        let max_bytes = self.payload_max_bytes();
        if bytes > max_bytes {
            return Err(BusError::TooLarge { subject: outgoing.subject.to_string(), bytes, max_bytes });
        }
        let result = self.inner.backend.publish(outgoing);
        let counters = &self.inner.counters;
        match &result {
            Ok(()) => {
                counters.published_messages.fetch_add(1, Ordering::Relaxed);
                counters.published_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(BusError::Full { .. }) => {
                counters.refused_full.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        result
    }

    /// Subscribes; when it returns, the server knows, so whatever is published from now on arrives here.
    ///
    /// # Errors
    /// `Subject` when the queue's name is no token; `TimedOut`, `Denied`, `Closed`.
    pub async fn subscribe(&self, pattern: Pattern, options: SubscribeOptions) -> Result<Subscription, BusError> {
        if let Some(queue) = &options.queue {
            check_token(queue)?;
        }
        let (sink, receiver) = self.bounded(&options);
        let registration = self.inner.backend.subscribe(pattern, options.queue, sink.clone()).await?;
        Ok(Subscription { bus: self.clone(), receiver, sink, _registration: registration })
    }

    fn bounded(&self, options: &SubscribeOptions) -> (Arc<Bounded>, mpsc::Receiver<Incoming>) {
        let (sender, receiver) = mpsc::channel(options.capacity_messages.max(1));
        let sink = Bounded {
            sender: Mutex::new(Some(sender)),
            waiting_bytes: AtomicUsize::new(0),
            capacity_bytes: options.capacity_bytes,
            message_bytes_max: options.message_bytes_max,
            dropped: AtomicU64::new(0),
            counters: self.inner.counters.clone(),
            when_full: options.when_full.clone().map(|answer| (answer, Arc::downgrade(&self.inner.backend))),
        };
        (Arc::new(sink), receiver)
    }

    /// Subscribes a sink that is called right where messages arrive, without a channel between.
    ///
    /// # Errors
    /// `TimedOut`, `Denied`, `Closed`.
    pub(crate) async fn attach(&self, pattern: Pattern, sink: Arc<dyn Sink>) -> Result<Registration, BusError> {
        let counted = Arc::new(Counted { sink, counters: self.inner.counters.clone() });
        self.inner.backend.subscribe(pattern, None, counted).await
    }

    /// Asks and waits for one answer.
    ///
    /// # Errors
    /// `NoResponders` at once when nobody subscribes to `subject`, `Denied` at once when the server says that we may not publish there,
    /// `TimedOut` after `deadline`; as [`publish`](Self::publish) otherwise.
    pub async fn request(&self, subject: Subject, message: Message, deadline: Duration) -> Result<Message, BusError> {
        let complaints = self.inner.backend.complaints();
        let denied = denied(complaints, &subject);
        let mut asking = self.begin(subject.clone(), message, (1, usize::MAX)).await?;
        let answer = tokio::select! {
            biased;
            answer = asking.next(Instant::now() + deadline) => answer?,
            reason = denied => return Err(BusError::Denied { subject: subject.to_string(), reason }),
        };
        answer.ok_or_else(|| asking.timed_out(deadline))
    }

    /// Asks and collects answers until `many` is satisfied; none in time is an empty list.
    ///
    /// # Errors
    /// `NoResponders` at once when nobody subscribes to `subject`; as [`publish`](Self::publish) otherwise.
    pub async fn request_many(
        &self,
        subject: Subject,
        message: Message,
        many: RequestMany,
    ) -> Result<Vec<Message>, BusError> {
        let end = Instant::now() + many.deadline;
        let mut asking = self.begin(subject, message, (many.max.clamp(1, 1 << 16), usize::MAX)).await?;
        let mut received = Vec::new();
        while received.len() < many.max {
            let until = match many.gap {
                Some(gap) if !received.is_empty() => end.min(Instant::now() + gap),
                _ => end,
            };
            match asking.next(until).await? {
                Some(answer) => received.push(answer),
                None => break,
            }
        }
        Ok(received)
    }

    /// Sends a question, of which up to `count` answers of up to `bytes_max` each are wanted; what comes beyond is dropped.
    async fn begin(
        &self,
        subject: Subject,
        message: Message,
        (count, bytes_max): (usize, usize),
    ) -> Result<Asking<'_>, BusError> {
        let answers = self.answers().await?;
        let (sender, receiver) = mpsc::channel(count);
        let waiting = answers.table.enter(Waiter { sender, bytes_max });
        let what = subject.clone();
        self.send(Outgoing { subject, reply: Some(answers.reply_subject(waiting.token)?), message })?;
        Ok(Asking { what, receiver, _waiting: waiting })
    }

    async fn answers(&self) -> Result<&Answers, BusError> {
        self.inner
            .answers
            .get_or_try_init(|| async {
                let prefix = format!("{}.{}", self.inner.backend.inbox_prefix(), unique_token());
                let table = Arc::new(AnswerTable::default());
                let pattern = Pattern::parse(&format!("{prefix}.*"))?;
                let registration = self.attach(pattern, table.clone()).await?;
                Ok(Answers { prefix, table, _registration: registration })
            })
            .await
    }

    /// Returns when the server has seen everything published here before.
    ///
    /// # Errors
    /// `TimedOut` after [`FLUSH_DEADLINE`], `Closed`.
    pub async fn flush(&self) -> Result<(), BusError> {
        self.inner.backend.flush(FLUSH_DEADLINE).await
    }

    /// Sends what is queued, ends all subscriptions after their last message, closes. For all clones.
    ///
    /// # Errors
    /// `TimedOut` when the server did not take everything in time; the bus is closed nevertheless.
    pub async fn drain(&self) -> Result<(), BusError> {
        self.inner.backend.drain(FLUSH_DEADLINE).await
    }

    /// Whether the server asks whoever connects who it is; `None`: nobody else can connect to this bus.
    pub fn asks_who_connects(&self) -> Option<bool> {
        self.inner.backend.asks_who_connects()
    }

    /// Largest payload with headers, in bytes; what the server says.
    pub fn payload_max_bytes(&self) -> usize {
        self.inner.backend.payload_max_bytes()
    }

    /// Follows the connection: up or down, and how often it came up.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.inner.backend.connection()
    }

    /// What all durable streams together take; also the way to learn whether there can be any.
    ///
    /// # Errors
    /// `Unsupported` when the server has none for us, `NoResponders` when it has none for anybody; `TimedOut` after
    /// [`FLUSH_DEADLINE`], `Closed`.
    pub async fn stream_usage(&self) -> Result<Usage, BusError> {
        self.stream_backend()?.usage(FLUSH_DEADLINE).await
    }

    pub(crate) fn stream_backend(&self) -> Result<Arc<dyn StreamBackend>, BusError> {
        let none = || BusError::Unsupported("this backend has no durable streams".to_owned());
        self.inner.backend.streams().ok_or_else(none)
    }

    /// The runtime that serves the socket, if the backend has one.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.inner.backend.runtime()
    }

    /// Counters since the bus was made, shared by all clones.
    pub fn stats(&self) -> BusStats {
        let counters = &self.inner.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BusStats {
            published_messages: of(&counters.published_messages),
            published_bytes: of(&counters.published_bytes),
            received_messages: of(&counters.received_messages),
            received_bytes: of(&counters.received_bytes),
            dropped_messages: of(&counters.dropped_messages),
            refused_full: of(&counters.refused_full),
            backend: self.inner.backend.stats(),
        }
    }
}

/// Waits until the server complains, from now on, that nothing may be published on a subject; its words.
fn denied(
    complaints: Option<watch::Receiver<Complaints>>,
    subject: &Subject,
) -> impl Future<Output = String> + Send + use<> {
    let so_far = complaints.as_ref().map_or(0, |complaints| complaints.borrow().count());
    // As the server has it: `Permissions Violation for Publish to "a.b"`.
    let text = format!("Publish to \"{subject}\"");
    async move {
        if let Some(mut complaints) = complaints {
            let found = complaints.wait_for(|complaints| complaints.after(so_far, &text).is_some()).await;
            if let Some(words) = found.ok().and_then(|found| found.after(so_far, &text).map(str::to_owned)) {
                return words;
            }
        }
        std::future::pending().await
    }
}

/// A question that was sent.
struct Asking<'a> {
    what: Subject,
    receiver: mpsc::Receiver<Incoming>,
    _waiting: Waiting<'a>,
}

impl Asking<'_> {
    /// The next answer; `None`: there was none until `end`.
    async fn next(&mut self, end: Instant) -> Result<Option<Message>, BusError> {
        match timeout_at(end, self.receiver.recv()).await {
            Ok(Some(incoming)) if incoming.no_responders => {
                Err(BusError::NoResponders { subject: self.what.to_string() })
            }
            Ok(Some(incoming)) => Ok(Some(incoming.message)),
            Ok(None) => Err(BusError::Closed),
            Err(_) => Ok(None),
        }
    }

    fn timed_out(&self, after: Duration) -> BusError {
        BusError::TimedOut { what: format!("request on {}", self.what), after }
    }
}
