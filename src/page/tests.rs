//! A page as clients see it that speak to its socket.

use exobus_queries::snapshot::{ShownGroup, ShownKind, ShownValue, Snapshot};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::*;

fn page() -> Page {
    Page::open(0, "exobus group".into()).unwrap_or_else(|failure| panic!("{failure}"))
}

/// A look at one group; the error is a part of its value.
fn look(number: u64, error: f64, name: &str) -> String {
    let value = ShownValue {
        estimate: json!(100.0),
        low: Some(100.0 - 100.0 * error),
        high: Some(100.0 + 100.0 * error),
        kind: Some(ShownKind::Approximate),
        level: Some(0.95),
        reason: None,
    };
    let groups = vec![ShownGroup { key: vec![json!(name)], values: vec![value] }];
    let snapshot = Snapshot {
        snapshot: number,
        seconds: number as f64,
        blocks_seen: number + 1,
        blocks: 5000,
        groups,
        ..Snapshot::default()
    };
    serde_json::to_string(&snapshot).unwrap()
}

/// What a client asks, and what it is answered.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn ask(page: &Page, path: &str, host: Option<&str>, token: Option<&str>) -> Self {
        let (address, _) = split(page);
        let mut stream = TcpStream::connect(address).await.unwrap();
        let host = host.unwrap_or(address);
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream: BufReader::new(stream) }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line
    }

    /// Status line and headers, in small letters.
    async fn head(&mut self) -> String {
        let mut head = String::new();
        loop {
            match self.line().await {
                line if line.trim().is_empty() => return head,
                line => head.push_str(&line.to_ascii_lowercase()),
            }
        }
    }

    /// What the next event says.
    async fn event(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().await.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

/// Address and token of a page.
fn split(page: &Page) -> (&str, &str) {
    page.url().strip_prefix("http://").unwrap().split_once("/#").unwrap()
}

/// Somebody who has pressed Ctrl-C, so that no test waits for viewers that do not read.
fn in_a_hurry() -> Interrupt {
    Interrupt::that_came()
}

#[tokio::test]
async fn without_the_token_nothing_of_the_job_is_told() {
    let page = page();
    page.board().look(&look(0, 0.5, "oslo"));
    let wrong = "0".repeat(64);
    for token in [None, Some(""), Some(wrong.as_str())] {
        let mut client = Client::ask(&page, "/snapshots", None, token).await;
        let head = client.head().await;
        assert!(head.starts_with("http/1.1 401") && head.contains("www-authenticate: bearer"), "{token:?}: {head}");
        assert!(!client.line().await.contains("oslo"));
    }
    let mut client = Client::ask(&page, "/", None, None).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200") && head.contains("cache-control: no-store"), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-") && !policy.contains("unsafe"), "{policy}");
    assert!(!head.contains("access-control"), "{head}");
    page.close(&in_a_hurry());
}

#[tokio::test]
async fn a_port_that_somebody_has_is_an_error_that_names_it() {
    let first = page();
    let port = split(&first).0.rsplit_once(':').unwrap().1.parse().unwrap();
    let failure = Page::open(port, String::new()).err().unwrap();
    assert_eq!(failure.exit, Exit::InputOutput);
    assert!(failure.to_string().contains(&format!("serve a page on 127.0.0.1:{port}")), "{failure}");
    first.close(&in_a_hurry());
}

#[tokio::test]
async fn requests_for_another_host_are_refused_whatever_token_they_have() {
    let page = page();
    page.board().look(&look(0, 0.5, "oslo"));
    let (_, token) = split(&page);
    for path in ["/", "/snapshots"] {
        let mut client = Client::ask(&page, path, Some("rebound.example"), Some(token)).await;
        let head = client.head().await;
        assert!(head.starts_with("http/1.1 403"), "{head}");
    }
    let mut client = Client::ask(&page, "/snapshots", Some("localhost:1"), Some(token)).await;
    assert!(client.head().await.starts_with("http/1.1 200"));
    page.close(&in_a_hurry());
}

#[tokio::test]
async fn who_comes_late_has_the_newest_at_once_and_the_errors_of_all() {
    let page = page();
    for number in 0..3 {
        page.board().look(&look(number, 0.5 / (number + 1) as f64, "oslo"));
    }
    let mut client = Client::ask(&page, "/snapshots", None, Some(split(&page).1)).await;
    let head = client.head().await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let shown = client.event().await;
    assert_eq!((&shown["state"], &shown["title"]), (&json!("running"), &json!("exobus group")));
    assert_eq!(shown["snapshot"]["snapshot"], 2);
    let errors: Vec<f64> =
        shown["looks"].as_array().unwrap().iter().map(|look| look["error"].as_f64().unwrap()).collect();
    assert!(errors.len() == 3 && errors[0] == 0.5 && errors.is_sorted_by(|one, other| one > other), "{errors:?}");
    // A look that comes again, as the job was taken up again, is there once.
    page.board().look(&look(1, 0.3, "rome"));
    let shown = client.event().await;
    assert_eq!(
        (&shown["snapshot"]["groups"][0]["key"][0], &shown["looks"].as_array().unwrap().len()),
        (&json!("rome"), &2)
    );
    page.close(&in_a_hurry());
}

#[tokio::test]
async fn who_looks_at_the_end_is_told_how_the_job_ended() {
    let page = page();
    let mut client = Client::ask(&page, "/snapshots", None, Some(split(&page).1)).await;
    client.head().await;
    assert_eq!(client.event().await["snapshot"], Value::Null);
    page.board().look(&look(0, 0.5, "oslo"));
    page.board().done();
    page.board().look(&look(1, 0.1, "oslo"));
    let closed = tokio::task::spawn_blocking(move || page.close(&Interrupt::that_never_comes()));
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).await.unwrap();
    closed.await.unwrap();
    let last = rest.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["state"], &last["snapshot"]["snapshot"]), (&json!("partial"), &json!(0)), "{rest}");
}

#[test]
fn the_end_of_a_job_is_told_once_and_as_it_was() {
    let state = |board: &Board| {
        let shown = board.watch().borrow().clone();
        let told: Value = serde_json::from_str(&shown.text).unwrap();
        (told["state"].as_str().unwrap().to_owned(), told["message"].clone(), shown.is_last)
    };
    let answer = serde_json::to_string(&Snapshot { is_final: true, ..Snapshot::default() }).unwrap();
    let board = Board::new("exobus group".into());
    board.look("no snapshot");
    assert_eq!(state(&board), ("running".into(), Value::Null, false));
    board.look(&answer);
    board.done();
    assert_eq!(state(&board), ("complete".into(), Value::Null, true));
    board.ended(State::Failed, "too late");
    assert_eq!(state(&board), ("complete".into(), Value::Null, true));
    let board = Board::new("exobus group".into());
    board.ended(State::Failed, "no such file");
    assert_eq!(state(&board), ("failed".into(), json!("no such file"), true));
    let board = Board::new("exobus group".into());
    board.done();
    assert_eq!(state(&board), ("over".into(), Value::Null, true));
}

#[tokio::test]
async fn viewers_who_do_not_read_hold_up_nobody() {
    let page = page();
    let token = split(&page).1;
    let mut frozen = Client::ask(&page, "/snapshots", None, Some(token)).await;
    frozen.head().await;
    // Far more than sockets hold.
    let name = "x".repeat(100_000);
    for number in 0..1000 {
        page.board().look(&look(number, 0.5, &name));
    }
    let mut client = Client::ask(&page, "/snapshots", None, Some(token)).await;
    client.head().await;
    assert_eq!(client.event().await["snapshot"]["snapshot"], 999);
    page.board().done();
    assert_eq!(client.event().await["state"], "partial");
    // It may still have what was written before, and then the end, and misses what was between.
    let mut seen = Vec::new();
    while seen.last() != Some(&999) {
        seen.push(frozen.event().await["snapshot"]["snapshot"].as_u64().unwrap_or_default());
    }
    assert!(seen.len() < 500, "{} looks were kept for it", seen.len());
    page.close(&in_a_hurry());
}
