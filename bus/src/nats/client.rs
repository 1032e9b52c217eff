//! The client of `async-nats`, made from our options, and what it reports.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::options::{Login, NatsOptions, Resolved};
use crate::backend::{Complaints, ConnectionState};
use crate::error::BusError;
use crate::refusals::Refusals;

/// Reconnect backoff. With it the client was back 22 ms after a server restart.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// What the client's events say; written by the client's runtime, read by everybody.
pub(super) struct Reports {
    pub(super) connection: watch::Sender<ConnectionState>,
    pub(super) closed: watch::Sender<bool>,
    pub(super) complaints: watch::Sender<Complaints>,
    pub(super) dropped_by_client: std::sync::atomic::AtomicU64,
    /// Messages whose subject breaks our syntax, by subject.
    pub(super) malformed: Refusals,
}

impl Reports {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            connection: watch::Sender::new(ConnectionState { connected: false, connects: 0 }),
            closed: watch::Sender::new(false),
            complaints: watch::Sender::new(Complaints::default()),
            dropped_by_client: 0.into(),
            malformed: Refusals::default(),
        })
    }

    fn take(&self, event: Event) {
        use std::sync::atomic::Ordering::Relaxed;
        match event {
            Event::Connected => {
                self.connection
                    .send_modify(|state| *state = ConnectionState { connected: true, connects: state.connects + 1 });
            }
            Event::Disconnected => self.connection.send_modify(|state| state.connected = false),
            Event::Closed => {
                self.connection.send_modify(|state| state.connected = false);
                self.closed.send_replace(true);
            }
            Event::SlowConsumer(subscription) => {
                self.dropped_by_client.fetch_add(1, Relaxed);
                tracing::warn!(subscription, "message dropped by the NATS client");
            }
            Event::ServerError(error) => {
                let text = error.to_string();
                tracing::warn!(error = %text, "the NATS server complains");
                self.complaints.send_modify(|complaints| complaints.add(text));
            }
            Event::LameDuckMode | Event::Draining | Event::ClientError(_) => {}
        }
    }
}

/// Connects, trying until the deadline. Own loop instead of the library's `retry_on_initial_connect`, since that
/// reports neither the cause nor failures that no retry heals.
pub(super) async fn connect(
    options: &NatsOptions,
    resolved: &Resolved,
    reports: &Arc<Reports>,
) -> Result<async_nats::Client, BusError> {
    let started = Instant::now();
    let deadline = started + options.connect_deadline;
    let failed = |reason: String, retryable: bool| BusError::Connect {
        url: resolved.shown_url.clone(),
        tried_for: started.elapsed(),
        reason,
        retryable,
    };
    let mut backoff = BACKOFF_MIN;
    let mut last_reason = "no attempt was finished".to_owned();
    loop {
        let attempt = connect_options(options, resolved, reports)?.connect(resolved.servers.as_slice());
        match timeout_at(deadline, attempt).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => {
                let reason = chain(&error);
                match error.kind() {
                    ConnectErrorKind::Authentication
                    | ConnectErrorKind::AuthorizationViolation
                    | ConnectErrorKind::ServerParse
                    | ConnectErrorKind::Tls => return Err(failed(reason, false)),
                    _ => last_reason = reason,
                }
            }
            Err(_) => return Err(failed(last_reason, true)),
        }
        if Instant::now() + backoff >= deadline {
            return Err(failed(last_reason, true));
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// An error with its sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

fn connect_options(
    options: &NatsOptions,
    resolved: &Resolved,
    reports: &Arc<Reports>,
) -> Result<ConnectOptions, BusError> {
    let reports = reports.clone();
    let mut built = ConnectOptions::new()
        .name(&options.name)
        .connection_timeout(Duration::from_secs(2))
        .ping_interval(options.ping_interval)
        .client_capacity(options.queue_messages_max)
        // Read by a task that never waits, so this much is only reached when that task does not run at all.
        .subscription_capacity(64 * 1024)
        // Subjects are checked when they are made.
        .skip_subject_validation(true)
        .custom_inbox_prefix(&resolved.inbox_prefix)
        .max_reconnects(None)
        .reconnect_delay_callback(|attempts| {
            (BACKOFF_MIN * u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(10)).min(BACKOFF_MAX)
        })
        .event_callback(move |event| {
            reports.take(event);
            std::future::ready(())
        });
    built = match &resolved.login {
        Login::None => built,
        Login::Creds(text) => {
            built.credentials(&text.0).map_err(|error| BusError::Config(format!("credentials file: {error}")))?
        }
        Login::Nkey(seed) => built.nkey(seed.0.clone()),
        Login::Token(token) => built.token(token.0.clone()),
        Login::Password(user, password) => built.user_and_password(user.clone(), password.0.clone()),
    };
    if let Some(ca) = &resolved.tls_ca {
        built = built.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((cert, key)) = &resolved.tls_pair {
        built = built.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
    }
    if resolved.tls_first {
        built = built.tls_first();
    }
    Ok(built)
}
