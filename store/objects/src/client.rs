//! The client of all requests of the process: it limits them, repeats what passes, and connects to addresses that are allowed.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::failure::{Failure, GivenUp, cause, innermost, said};
use crate::retry::{Attempts, Budget, PATIENCE};
use crate::usage::COUNTERS;
use crate::{Addresses, Settings};

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long no byte of an answer comes before the request is given up and made again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A body that is sent, or comes, has so much longer for each byte.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// An answer that is no object: a page of a list, an error.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// A machine that has no keys to give does not answer at all.
const METADATA_PATIENCE: Duration = Duration::from_secs(2);
/// Whoever waits is told why after so long.
const TOLD_AFTER: Duration = Duration::from_secs(10);
/// What the rest of a connection may take; what is read goes on at once.
const READ_BUFFER_BYTES: usize = 128 << 10;

tokio::task_local! {
    /// A condition on a request that the library cannot say.
    static CONDITION: (header::HeaderName, HeaderValue);
}

/// Makes requests that delete, or complete an upload, on a condition: that nothing has the name (`If-None-Match: *`), say. It is none of the
/// signature, which allows that of all headers but Amazon's own.
pub(crate) async fn on_condition<T>(name: header::HeaderName, value: HeaderValue, work: impl Future<Output = T>) -> T {
    CONDITION.scope((name, value), work).await
}

type Transport = Connections<HttpsConnector<Tcp<Resolver>>, HttpRequestBody>;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// To endpoints that were configured; made when the first request is.
    configured: OnceLock<Transport>,
    /// To where a URL leads.
    named: OnceLock<Transport>,
    addresses: Addresses,
    requests: Arc<Semaphore>,
    /// Those to where URLs lead, which may be slow on purpose.
    named_requests: Arc<Semaphore>,
    budget: Mutex<Budget>,
    began: Instant,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Self {
        let began = Instant::now();
        Self(Arc::new(Shared {
            configured: OnceLock::new(),
            named: OnceLock::new(),
            addresses: settings.addresses.clone(),
            requests: Arc::new(Semaphore::new(settings.requests.max(1))),
            named_requests: Arc::new(Semaphore::new(settings.requests.max(1))),
            budget: Mutex::new(Budget::new(Duration::ZERO)),
            began,
        }))
    }

    /// For an endpoint that was configured, and for the services that keys come from.
    pub(crate) fn to_configured(&self) -> Connector {
        Connector { client: self.clone(), is_named: false }
    }

    /// For what URLs name.
    pub(crate) fn to_named(&self) -> Connector {
        Connector { client: self.clone(), is_named: true }
    }
}

/// What the library makes its clients with.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    client: Client,
    is_named: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The library allows it for the services of machines that give keys, and for nothing else here.
        let is_metadata = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let patience = if is_metadata { METADATA_PATIENCE } else { PATIENCE };
        Ok(HttpClient::new(Service { client: self.client.clone(), is_named: self.is_named, patience }))
    }
}

#[derive(Clone, Debug)]
struct Service {
    client: Client,
    is_named: bool,
    patience: Duration,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let shared = &*self.client.0;
        let (mut parts, body) = request.into_parts();
        // Keys that are asked for on the way are asked for without it.
        let is_conditional = parts.method == Method::DELETE
            || parts.method == Method::POST && parts.uri.query().is_some_and(|query| query.contains("uploadId="));
        if is_conditional {
            let _ = CONDITION.try_with(|(name, value)| parts.headers.insert(name, value.clone()));
        }
        let permits = if self.is_named { &shared.named_requests } else { &shared.requests };
        let (mut attempts, mut began, mut is_told) = (Attempts::default(), None, false);
        loop {
            let permit = permits.clone().acquire_owned().await.expect("never closed");
            let began = *began.get_or_insert_with(Instant::now);
            let left = self.patience.saturating_sub(began.elapsed());
            let attempt = self.attempt(&parts, body.clone(), (permit, left, attempts.made() > 0));
            let failed = match attempt.await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            let since = began.elapsed();
            let passes = failed.failure.passes().then_some(());
            let patience = self.patience.min(failed.failure.patience(self.is_named));
            let wait = passes.and_then(|()| attempts.failed(since, patience, rand::random(), failed.asked));
            let Some(wait) = wait else {
                let attempts = attempts.made().max(1);
                return Err(GivenUp { failure: failed.failure, attempts, since }.into());
            };
            let turn = shared.budget.lock().unwrap_or_else(PoisonError::into_inner).take(shared.began.elapsed());
            let (host, wait) = (parts.uri.host().unwrap_or_default(), wait.max(turn));
            tracing::debug!(host, method = %parts.method, failure = %failed.failure, ?wait, "a request is made again");
            if since >= TOLD_AFTER && !is_told {
                is_told = true;
                tracing::warn!(host, failure = %failed.failure, seconds = since.as_secs(), "a request is made again and again");
            }
            sleep(wait).await;
        }
    }
}

/// Why a request has failed, and how long the server asks to wait.
struct Failed {
    failure: Failure,
    asked: Option<Duration>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, asked: None }
    }
}

impl Service {
    /// Makes a request once, which may take so long.
    async fn attempt(
        &self,
        parts: &http::request::Parts,
        body: HttpRequestBody,
        (permit, left, is_repeated): (OwnedSemaphorePermit, Duration, bool),
    ) -> Result<HttpResponse, Failed> {
        let shared = &*self.client.0;
        if self.is_named {
            // Of a name, the resolver sees to that.
            let host = parts.uri.host().unwrap_or_default().trim_matches(['[', ']']);
            if let Some(address) = host.parse::<IpAddr>().ok().filter(|address| !shared.addresses.allow(*address)) {
                return Err(Failure::Address(address).into());
            }
        }
        let is_list = parts.uri.query().is_some_and(|query| query.contains("list-type"));
        let sent = body.content_length() as u64;
        COUNTERS.request(&parts.method, is_list, is_repeated, sent);
        let request = http::Request::from_parts(parts.clone(), body);
        let transport = match self.is_named {
            true => shared.named.get_or_init(|| transport(Some(shared.addresses.clone()))),
            false => shared.configured.get_or_init(|| transport(None)),
        };
        let answer_max = time_for(sent).min(left);
        let answer = timeout(answer_max, transport.request(request)).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| match cause(&error) {
                Some(Unresolved::Refused(address)) => Failure::Address(*address),
                Some(Unresolved::Unknown(reason)) => Failure::Name(reason.to_string()),
                None => Failure::Connection(innermost(&error)),
            })?,
            Err(_) => return Err(Failure::Silent(answer_max).into()),
        };
        let (head, body) = answer.into_parts();
        if head.status.is_success() && parts.method == Method::GET && !is_list {
            let length = text(&head.headers, "content-length").and_then(|length| length.parse().ok());
            let until = Instant::now() + time_for(length.unwrap_or(0));
            return Ok(HttpResponse::from_parts(head, streamed(body, (permit, until))));
        }
        let bytes = collected(body).await?;
        answered(head, bytes)
    }
}

/// What an answer says that is no object.
fn answered(head: http::response::Parts, body: Bytes) -> Result<HttpResponse, Failed> {
    let says = said(&body);
    let failure = match head.status {
        // An upload may be found to be wrong while its completion is under way, when the status has gone already.
        status if status.is_success() && is_error(&body) => {
            let passes = says.as_ref().is_some_and(|(code, _)| matches!(code.as_str(), "InternalError" | "SlowDown"));
            let status = if passes { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST };
            Failure::Status { status, says }
        }
        status if status.is_success() || status == StatusCode::NOT_MODIFIED => {
            return Ok(HttpResponse::from_parts(head, body.into()));
        }
        status if status.is_redirection() => {
            let to = ["x-amz-bucket-region", "location"].into_iter().find_map(|name| text(&head.headers, name));
            // What is behind may be a signature.
            let to = to.map(|to| to.split(['?', '#']).next().unwrap_or_default().to_owned());
            Failure::Redirect { to: to.unwrap_or_else(|| "another place".to_owned()) }
        }
        status => {
            let failure = Failure::Status { status, says };
            let is_of_bucket =
                matches!(&failure, Failure::Status { says: Some((code, _)), .. } if code == "NoSuchBucket");
            // What the library knows by its status.
            let is_known = matches!(status.as_u16(), 404 | 409 | 412) && !is_of_bucket;
            match is_known && !failure.passes() {
                true => return Ok(HttpResponse::from_parts(head, body.into())),
                false => failure,
            }
        }
    };
    Err(Failed {
        failure,
        asked: text(&head.headers, header::RETRY_AFTER.as_str()).and_then(|asked| retry_after(&asked)),
    })
}

/// Seconds, or a date.
fn retry_after(asked: &str) -> Option<Duration> {
    match asked.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => (chrono::DateTime::parse_from_rfc2822(asked).ok()?.to_utc() - chrono::Utc::now()).to_std().ok(),
    }
}

/// Whether the answer is an error of S3, whatever its status is.
fn is_error(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&body[..body.len().min(1000)]);
    let root = text.trim_start();
    let root = root.strip_prefix("<?xml").map_or(root, |rest| rest.split_once("?>").map_or("", |(_, rest)| rest));
    root.trim_start().starts_with("<Error>")
}

/// How long a body of so many bytes may take.
fn time_for(bytes: u64) -> Duration {
    SILENCE_MAX + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

async fn collected(mut body: hyper::body::Incoming) -> Result<Bytes, Failure> {
    let mut collected = BytesMut::new();
    loop {
        // A store that takes its time to complete an upload sends blanks meanwhile.
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => break,
            Ok(Some(frame)) => frame.map_err(|error| Failure::Connection(innermost(&error)))?,
            Err(_) => return Err(Failure::Silent(SILENCE_MAX)),
        };
        collected.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if collected.len() > ANSWER_BYTES_MAX {
            return Err(Failure::Connection(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
        }
    }
    COUNTERS.received(collected.len());
    Ok(collected.freeze())
}

/// The body as it comes, until a time; the request is under way until it has all come, or nobody wants it.
fn streamed(body: hyper::body::Incoming, (permit, until): (OwnedSemaphorePermit, Instant)) -> HttpResponseBody {
    let frames = futures::stream::unfold((body, permit), move |(mut body, permit)| async move {
        let wait = SILENCE_MAX.min(until.saturating_duration_since(Instant::now()));
        let frame = match timeout(wait, body.frame()).await {
            Ok(None) => return None,
            Ok(Some(Ok(frame))) => Ok(frame),
            Ok(Some(Err(error))) => Err(broken(Failure::Connection(innermost(&error)))),
            Err(_) => Err(broken(Failure::Silent(wait))),
        };
        Some((frame, (body, permit)))
    });
    let counted = frames.map(|frame: Result<Frame<Bytes>, HttpError>| {
        frame.inspect(|frame| COUNTERS.received(frame.data_ref().map_or(0, Bytes::len)))
    });
    HttpResponseBody::new(StreamBody::new(counted))
}

/// What ends a body that has begun: who reads it asks for the rest.
fn broken(failure: Failure) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, GivenUp { failure, attempts: 0, since: Duration::ZERO })
}

/// Connections to these addresses, or to all.
fn transport(addresses: Option<Addresses>) -> Transport {
    let mut tcp = Tcp::new_with_resolver(Resolver { addresses });
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_MAX));
    // A machine without certificates of authorities reaches plain endpoints, and is told so by the others.
    let ring = rustls::crypto::ring::default_provider();
    let tls = match HttpsConnectorBuilder::new().with_provider_and_native_roots(ring.clone()) {
        Ok(tls) => tls,
        Err(error) => {
            tracing::debug!(%error, "no certificates of authorities are installed: https:// reaches nobody");
            let none = rustls::ClientConfig::builder_with_provider(ring.into()).with_safe_default_protocol_versions();
            let none =
                none.expect("the provider has these versions").with_root_certificates(rustls::RootCertStore::empty());
            HttpsConnectorBuilder::new().with_tls_config(none.with_no_client_auth())
        }
    };
    let connector = tls.https_or_http().enable_http1().wrap_connector(tcp);
    let mut builder = Connections::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(20));
    builder.http1_max_buf_size(READ_BUFFER_BYTES).build(connector)
}

/// Finds the addresses of a name, those that are allowed.
#[derive(Clone, Debug)]
struct Resolver {
    /// `None`: all are.
    addresses: Option<Addresses>,
}

/// Why a name leads nowhere.
#[derive(Debug, thiserror::Error)]
enum Unresolved {
    /// It stands for this address, or for others that are not allowed either.
    #[error("{0} is not allowed")]
    Refused(IpAddr),
    /// It stands for nothing.
    #[error("{0}")]
    Unknown(std::io::Error),
}

impl tower_service::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let addresses = self.addresses.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(Unresolved::Unknown)?;
            let is_allowed = |found: &SocketAddr| addresses.as_ref().is_none_or(|all| all.allow(found.ip()));
            let (allowed, refused): (Vec<_>, Vec<_>) = found.partition(is_allowed);
            match refused.first() {
                Some(refused) if allowed.is_empty() => Err(Unresolved::Refused(refused.ip())),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_known_by_its_root_and_a_time_by_seconds_or_a_date() {
        assert!(is_error(b"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>"));
        assert!(!is_error(b"<DeleteResult><Error><Code>AccessDenied</Code></Error></DeleteResult>"));
        assert!(!is_error(b"") && !is_error(b"<?xml"));
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        let date = (chrono::Utc::now() + Duration::from_secs(100)).to_rfc2822();
        assert!(retry_after(&date).is_some_and(|wait| wait.as_secs().abs_diff(99) <= 2), "{date}");
        assert_eq!(retry_after("soon"), None);
    }
}
