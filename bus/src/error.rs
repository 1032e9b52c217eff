//! What can go wrong on the bus, made for the caller's `match`.

use std::time::Duration;

use crate::auth::MessageError;
use crate::message::HeaderError;
use crate::subject::SubjectError;

/// Errors of the bus. [`is_retryable`](Self::is_retryable) says whether trying again may help; lost messages are no
/// error here, since a publish that returned `Ok` was not necessarily delivered.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// A name that is no subject, pattern or token.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// A header that cannot be sent.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Refused before sending: larger than the payload limit.
    #[error("message of {bytes} bytes for {subject}, at most {max_bytes} are allowed")]
    TooLarge {
        /// Where it was to go.
        subject: String,
        /// Payload and headers.
        bytes: usize,
        /// The limit of the backend.
        max_bytes: usize,
    },
    /// The outgoing queue is full: the server is away or slow. Nothing was sent.
    #[error(
        "outgoing queue is full ({queued_bytes} bytes wait, at most {max_bytes} bytes and {max_messages} messages)"
    )]
    Full {
        /// Bytes that wait for the socket.
        queued_bytes: usize,
        /// The limit in bytes.
        max_bytes: usize,
        /// The limit in messages.
        max_messages: usize,
    },
    /// Nobody subscribes to the subject of a request.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// Where the request went.
        subject: String,
    },
    /// No answer in time.
    #[error("{what}: no answer within {after:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// The deadline that passed.
        after: Duration,
    },
    /// The bus was closed or drained.
    #[error("the bus is closed")]
    Closed,
    /// The message that was to be answered asked for no answer.
    #[error("message on {subject} asks for no reply")]
    NoReplyWanted {
        /// Its subject.
        subject: String,
    },
    /// Answers go to inboxes; this is a subject of the scheme.
    #[error("no answer goes to {reply}: it is no inbox")]
    NoInbox {
        /// Where the answer was to go.
        reply: String,
    },
    /// A message cannot be believed, or its sender does not believe us.
    #[error(transparent)]
    Sealed(#[from] MessageError),
    /// The server does not allow it.
    #[error("the server refuses {subject}: {reason}")]
    Denied {
        /// Subject or pattern.
        subject: String,
        /// The server's words.
        reason: String,
    },
    /// No connection before the deadline, or one that can never be.
    #[error("cannot connect to NATS at {url} (tried for {tried_for:?}): {reason}")]
    Connect {
        /// The URL, without secrets.
        url: String,
        /// How long it was tried.
        tried_for: Duration,
        /// The last failure.
        reason: String,
        /// Whether a later try may do.
        retryable: bool,
    },
    /// A setting that cannot be used: a missing or readable-by-all secret, a malformed context.
    #[error("NATS settings: {0}")]
    Config(String),
    /// No stream of that name.
    #[error("there is no stream {stream}")]
    StreamMissing {
        /// Its name.
        stream: String,
    },
    /// No durable consumer of that name.
    #[error("stream {stream} has no consumer {consumer}")]
    ConsumerMissing {
        /// The stream.
        stream: String,
        /// The consumer's name.
        consumer: String,
    },
    /// The stream, or consumer, is there with other settings.
    #[error("{name} exists with other settings: {what}")]
    StreamDiffers {
        /// Stream or consumer.
        name: String,
        /// What differs.
        what: String,
    },
    /// A subject outside a stream's pattern.
    #[error("stream {stream} takes no records on {subject}")]
    NotInStream {
        /// The stream.
        stream: String,
        /// The subject.
        subject: String,
    },
    /// Somebody else was faster: the last record is another one. Nothing was appended.
    #[error("{subject}: expected {expected} to be the last sequence{}", found.map(|found| format!(", found {found}")).unwrap_or_default())]
    Conflict {
        /// Subject of the record.
        subject: String,
        /// The sequence that the caller expected; 0 for none.
        expected: u64,
        /// The one that is, where the server says.
        found: Option<u64>,
    },
    /// The stream's limits are reached. Nothing was appended.
    #[error("stream {stream} is full: {reason}")]
    StreamFull {
        /// The stream.
        stream: String,
        /// Which limit.
        reason: String,
    },
    /// The backend cannot do it: no JetStream, no streams.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The server of a stream answers, and stores nothing. It does not heal before it is started anew.
    #[error("stream {stream}: its server answers, but stores nothing: {reason}")]
    StoresNothing {
        /// The stream's name.
        stream: String,
        /// What is known of it.
        reason: String,
    },
    /// What a file of streams holds is damaged, or the disk failed. Nothing is trusted after that: the bus must be made anew.
    #[error("stream storage: {0}")]
    Storage(String),
    /// Anything else that the client library says.
    #[error("{what}: {source}")]
    Backend {
        /// What was tried.
        what: &'static str,
        /// What the library said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl BusError {
    /// Whether the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::NoResponders { .. } | Self::TimedOut { .. } | Self::Backend { .. } => true,
            Self::Connect { retryable, .. } => *retryable,
            _ => false,
        }
    }

    /// Whether what is in the way may be out of it soon: the call may succeed later, or somebody makes the streams of a server that was
    /// emptied anew.
    pub fn may_heal(&self) -> bool {
        self.is_retryable() || matches!(self, Self::StreamMissing { .. })
    }

    /// Whether the caller, not the world, is to blame.
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self,
            Self::Subject(_)
                | Self::Header(_)
                | Self::TooLarge { .. }
                | Self::NoReplyWanted { .. }
                | Self::Config(_)
                | Self::StreamDiffers { .. }
                | Self::NotInStream { .. }
        )
    }
}
