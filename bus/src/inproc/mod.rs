//! The bus inside one process: no server, no socket, same rules. Deliveries happen in the publisher's call, so order
//! is that of publishing and, with one thread, runs repeat exactly.

mod router;
mod streams;
#[cfg(feature = "fuzzing")]
pub(crate) use streams::fuzzing;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::backend::{Backend, BackendStats, ConnectionState, Incoming, Outgoing, Registration, Sink};
use crate::error::BusError;
use crate::message::Message;
use crate::streams::StreamBackend;
use crate::subject::Pattern;

use router::{Entry, Router};
use streams::Streams;

/// Settings of the in-process bus.
#[derive(Debug, Clone)]
pub struct InProcessOptions {
    /// Largest payload with headers, in bytes. Default 1 MiB, as a NATS server's.
    pub payload_max_bytes: usize,
}

impl Default for InProcessOptions {
    fn default() -> Self {
        Self { payload_max_bytes: 1024 * 1024 }
    }
}

/// The in-process backend.
pub struct InProcess {
    router: Arc<Router>,
    payload_max_bytes: usize,
    streams: Streams,
    closed: AtomicBool,
    connection: watch::Sender<ConnectionState>,
}

impl InProcess {
    /// A bus without subscribers; its streams are in memory.
    pub fn new(options: InProcessOptions) -> Self {
        Self::with_streams(options, Streams::in_memory())
    }

    /// The same, with streams in the file at `path`.
    ///
    /// # Errors
    /// `Storage` when the file cannot be used.
    pub async fn open(options: InProcessOptions, path: &Path) -> Result<Self, BusError> {
        Ok(Self::with_streams(options, Streams::open(path).await?))
    }

    fn with_streams(options: InProcessOptions, streams: Streams) -> Self {
        Self {
            router: Arc::default(),
            payload_max_bytes: options.payload_max_bytes,
            streams,
            closed: AtomicBool::new(false),
            connection: watch::Sender::new(ConnectionState { connected: true, connects: 1 }),
        }
    }

    fn check_open(&self) -> Result<(), BusError> {
        if self.closed.load(Ordering::Acquire) { Err(BusError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Backend for InProcess {
    fn publish(&self, outgoing: Outgoing) -> Result<(), BusError> {
        self.check_open()?;
        let bytes = outgoing.message.wire_bytes();
        if bytes > self.payload_max_bytes {
            let (subject, max_bytes) = (outgoing.subject.to_string(), self.payload_max_bytes);
            return Err(BusError::TooLarge { subject, bytes, max_bytes });
        }
        let Outgoing { subject, reply, message } = outgoing;
        let mut receivers = self.router.receivers(&subject);
        let Some(last) = receivers.pop() else {
            if let Some(reply) = reply {
                for sink in self.router.receivers(&reply) {
                    sink.deliver(Incoming {
                        subject: reply.clone(),
                        reply: None,
                        message: Message::default(),
                        too_large: None,
                        no_responders: true,
                    });
                }
            }
            return Ok(());
        };
        let incoming = Incoming { subject, reply, message, too_large: None, no_responders: false };
        for sink in receivers {
            sink.deliver(incoming.clone());
        }
        last.deliver(incoming);
        Ok(())
    }

    async fn subscribe(
        &self,
        pattern: Pattern,
        queue: Option<String>,
        sink: Arc<dyn Sink>,
    ) -> Result<Registration, BusError> {
        self.check_open()?;
        let id = self.router.insert(Entry { pattern, queue, sink });
        Ok(Registration::new(Unsubscribe { router: Arc::downgrade(&self.router), id }))
    }

    async fn flush(&self, _deadline: Duration) -> Result<(), BusError> {
        self.check_open()
    }

    async fn drain(&self, deadline: Duration) -> Result<(), BusError> {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.connection.send_modify(|state| state.connected = false);
            self.router.close();
        }
        self.streams.close(deadline).await
    }

    fn payload_max_bytes(&self) -> usize {
        self.payload_max_bytes
    }

    fn inbox_prefix(&self) -> &str {
        "_INBOX"
    }

    fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.connection.subscribe()
    }

    fn runtime(&self) -> Option<Handle> {
        None
    }

    fn streams(&self) -> Option<Arc<dyn StreamBackend>> {
        Some(Arc::new(self.streams.clone()))
    }

    fn stats(&self) -> BackendStats {
        BackendStats::default()
    }
}

struct Unsubscribe {
    router: std::sync::Weak<Router>,
    id: u64,
}

impl Drop for Unsubscribe {
    fn drop(&mut self) {
        if let Some(router) = self.router.upgrade() {
            router.remove(self.id);
        }
    }
}
