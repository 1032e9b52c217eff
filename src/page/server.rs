//! What is answered: the page, and the stream of what it shows.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page, without anything of the job |
//! | `GET /snapshots` with `Authorization: Bearer TOKEN` | server-sent events, each with all that is to be shown, from the newest on; the last one ends the stream |
//! | the same without the token | 401 |
//! | any for another host than this machine | 403 |

use std::convert::Infallible;

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
            WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::{self, Next},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use exobus_actors::random::{Random as _, SystemRandom};
use futures::{Stream, stream};
use tokio::sync::watch;

use super::{
    Board,
    access::{Token, is_loopback},
    board::Shown,
};

/// The page; `{nonce}` stands where its own script and style say that they are its own.
const PAGE: &str = include_str!("page.html");
const NONCE: &str = "{nonce}";

#[derive(Clone)]
struct Served {
    board: Board,
    token: Token,
}

pub(super) fn router(board: Board, token: Token) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/snapshots", get(snapshots))
        .layer(middleware::from_fn(guard))
        .with_state(Served { board, token })
}

/// Refuses requests that are meant for another host, and has browsers keep answers for this page alone.
async fn guard(request: Request, next: Next) -> Response {
    let is_ours = request.headers().get(HOST).is_some_and(|host| is_loopback(host.as_bytes()));
    let mut answer = match is_ours {
        true => next.run(request).await,
        false => (StatusCode::FORBIDDEN, "this is no host of that name\n").into_response(),
    };
    let headers = answer.headers_mut();
    let mut add = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    add(CACHE_CONTROL, "no-store");
    add(REFERRER_POLICY, "no-referrer");
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    add(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    answer
}

/// The page, whose script and style run as they are the ones of this answer, and which may fetch from here alone.
async fn page() -> Response {
    let nonce = format!("{:032x}", SystemRandom.next_u128());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, policy.as_str())];
    (headers, PAGE.replace(NONCE, &nonce)).into_response()
}

async fn snapshots(State(served): State<Served>, headers: HeaderMap) -> Response {
    let has_token = headers.get(AUTHORIZATION).is_some_and(|value| served.token.is_in(value.as_bytes()));
    if !has_token {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], "the token is missing or wrong\n")
            .into_response();
    }
    Sse::new(events(served.board.watch())).keep_alive(KeepAlive::default()).into_response()
}

/// What there is at once, then the newest whenever the viewer takes more, until the last.
fn events(board: watch::Receiver<Shown>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some((board, true)), async |left| {
        let (mut board, is_first) = left?;
        if !is_first {
            board.changed().await.ok()?;
        }
        let Shown { text, is_last } = board.borrow_and_update().clone();
        Some((Ok(Event::default().data(text)), (!is_last).then_some((board, false))))
    })
}
