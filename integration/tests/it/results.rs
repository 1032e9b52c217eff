//! Results over a real nats-server: pulled by a client that knows nothing but NATS and JSON.

use std::net::SocketAddr;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::protocol::results::JobKept;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Place, TaskOptions};
use exobus_bus::{Bus, NatsOptions, Subjects};
use exobus_store::RowHash;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use crate::harness::nats::NatsServer;

/// Far more than the store of a node holds.
const BYTES: u64 = 24 << 20;
const STORE_BYTES: u64 = 8 << 20;

/// So many bytes that are different everywhere.
#[task(name = "test.bytes_to_keep")]
fn bytes_to_keep(context: &mut TaskContext<'_>, bytes: u64) -> Result<(), TaskError> {
    let writer = context.output_at_sized(0, bytes)?;
    for part in 0..bytes >> 20 {
        let content = part_of_content(part);
        writer.begin_part(Some(content.len() as u64))?;
        writer.write(&content)?;
        writer.end_part(1, RowHash::of(&content));
    }
    Ok(())
}

fn part_of_content(part: u64) -> Vec<u8> {
    let word = |at: u64| (at ^ part << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..1 << 17).flat_map(word).collect()
}

async fn start(server: &NatsServer, spill: &tempfile::TempDir, number: usize) -> Node {
    let name = format!("n{number}");
    let bus = NatsOptions { name: name.clone(), ..NatsOptions::url(server.url()) };
    let mut options = NodeOptions::alone(1, STORE_BYTES);
    options.name = NodeId::new(&name);
    options.store.spill_dirs = vec![spill.path().join(&name)];
    options.cluster = Some(ClusterOptions {
        bus: Bus::connect(bus).await.unwrap(),
        subjects: Subjects::new("results").unwrap(),
        scheduler: number == 0,
        membership: MembershipOptions::default(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        join_deadline: Duration::from_secs(10),
    });
    // Joining blocks until the Scheduler has answered.
    tokio::task::spawn_blocking(|| Node::start(options)).await.unwrap().unwrap()
}

/// What any client in any language does.
struct AnyClient {
    nats: async_nats::Client,
    subject: String,
}

impl AnyClient {
    async fn connect(server: &NatsServer, tenant: &str) -> Self {
        let nats = async_nats::connect(server.url()).await.unwrap();
        Self { nats, subject: format!("exo.v1.results.api.{tenant}.result") }
    }

    async fn ask(&self, payload: impl Into<bytes::Bytes>) -> async_nats::Message {
        self.nats.request(self.subject.clone(), payload.into()).await.unwrap()
    }

    async fn read(&self, job: JobId, offset: u64, length: u64) -> async_nats::Message {
        let request = json!({ "id": job.to_string(), "file": "rows", "offset": offset, "length": length });
        self.ask(request.to_string()).await
    }

    /// The code and the words of a refusal.
    async fn refused(&self, payload: impl Into<bytes::Bytes>) -> (String, String) {
        let answer = self.ask(payload).await;
        let body: Value = serde_json::from_slice(&answer.payload).unwrap();
        let code = body["error"]["code"].as_str().unwrap().to_owned();
        assert_eq!(header(&answer, "Exo-Error"), code);
        (code, body["error"]["message"].as_str().unwrap().to_owned())
    }
}

fn header(message: &async_nats::Message, name: &str) -> String {
    message.headers.as_ref().and_then(|headers| headers.get(name)).map(ToString::to_string).unwrap_or_default()
}

/// Two nodes, and a result that the second one keeps.
async fn kept(server: &NatsServer, spill: &tempfile::TempDir) -> (Vec<Node>, JobId) {
    let nodes = vec![start(server, spill, 0).await, start(server, spill, 1).await];
    let job = nodes[0].new_job();
    let place = Place::Node { node: NodeId::new("n1"), soft: false };
    let options = TaskOptions { place, ..TaskOptions::default() };
    let program = async move |futures: Futures| {
        futures.keep_result("rows", &futures.submit_with(bytes_to_keep, &BYTES, &[], options)?)
    };
    let (outcome, end) = nodes[0].run(job, "keeps", None, program).await;
    outcome.unwrap();
    assert!(matches!(end.kept, Some(JobKept::Result { files: 1, bytes: BYTES, .. })), "{:?}", end.kept);
    (nodes, job)
}

async fn stop(nodes: Vec<Node>) {
    // The Scheduler's last.
    for node in nodes.into_iter().rev() {
        tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_nats_alone_pulls_a_result_that_is_larger_than_the_memory_of_its_node() {
    let (server, spill) = (NatsServer::start().await, tempfile::tempdir().unwrap());
    let (nodes, job) = kept(&server, &spill).await;
    let client = AnyClient::connect(&server, "local").await;
    let (mut offset, mut answers) = (0, 0);
    loop {
        let answer = client.read(job, offset, 512 * 1024).await;
        assert_eq!(header(&answer, "Exo-Error"), "", "{answer:?}");
        assert_eq!(
            (header(&answer, "Exo-Complete").as_str(), header(&answer, "Exo-Total")),
            ("true", BYTES.to_string())
        );
        if answer.payload.is_empty() {
            break;
        }
        let part = part_of_content(offset >> 20);
        let within = (offset & 0xf_ffff) as usize;
        assert!(answer.payload[..] == part[within..within + answer.payload.len()], "at {offset}");
        assert_eq!(header(&answer, "Exo-Offset"), offset.to_string());
        assert_eq!(header(&answer, "Exo-Hash").len(), 32);
        assert_eq!(header(&answer, "Exo-Member-Hash"), header(&answer, "Exo-File-Hash"));
        offset += answer.payload.len() as u64;
        answers += 1;
    }
    assert_eq!((offset, answers), (BYTES, BYTES / (512 * 1024)));
    let stats = nodes[1].store().stats();
    assert!(stats.peak_bytes <= STORE_BYTES, "{stats:?}");
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_none_get_an_answer_that_says_so_and_others_notice_nothing() {
    let (server, spill) = (NatsServer::start().await, tempfile::tempdir().unwrap());
    let (nodes, job) = kept(&server, &spill).await;
    let (client, foreign) = (AnyClient::connect(&server, "local").await, AnyClient::connect(&server, "another").await);
    let id = job.to_string();
    let nonsense = ["", "{", "null", "[]", r#"{"id": 3}"#, "\u{0}\u{1}", &format!(r#"{{"id": "{id}", "ofset": 1}}"#)];
    for payload in nonsense {
        let (code, message) = client.refused(payload.to_owned()).await;
        assert_eq!(code, "bad_request", "{payload:?}: {message}");
    }
    let deep = "[".repeat(4000);
    assert_eq!(client.refused(deep).await.0, "bad_request");
    let oversized = format!(r#"{{"id": "{id}", "file": "{}"}}"#, "f".repeat(100_000));
    let (code, message) = client.refused(oversized).await;
    assert!(code == "bad_request" && message.contains("4096"), "{message}");
    let too_long = json!({ "id": id, "length": 1 << 30 }).to_string();
    let (code, message) = client.refused(too_long).await;
    assert!(code == "length_too_large" && message.contains("524288"), "{message}");
    let (code, message) = client.refused(json!({ "id": id, "offset": BYTES + 1 }).to_string()).await;
    assert!(code == "offset_beyond_end" && message.contains(&BYTES.to_string()), "{message}");
    assert_eq!(client.refused(json!({ "id": id, "file": 7 }).to_string()).await.0, "no_such_file");
    let theirs = foreign.refused(json!({ "id": id }).to_string()).await;
    assert_eq!(theirs, foreign.refused(json!({ "id": id, "op": "stat" }).to_string()).await);
    let nobody_s = JobId::new().to_string();
    let unknown = foreign.refused(json!({ "id": nobody_s }).to_string()).await;
    assert_eq!((theirs.0, theirs.1.replace(&id, &nobody_s)), unknown, "another tenant's is one that is not there");
    // A client that names a subject of ours for the answer gets none, from whoever has the bytes.
    let stolen = async_nats::connect(server.url()).await.unwrap();
    let mut heard = stolen.subscribe("exo.v1.results.kv.x").await.unwrap();
    stolen.flush().await.unwrap();
    let request = json!({ "id": id, "length": 10 }).to_string();
    let reply = "exo.v1.results.kv.x";
    stolen.publish_with_reply(client.subject.clone(), reply, request.into()).await.unwrap();
    stolen.flush().await.unwrap();
    // Half of it, by somebody who goes.
    {
        let gone = AnyClient::connect(&server, "local").await;
        gone.read(job, 0, 512 * 1024).await;
        let inbox = gone.nats.new_inbox();
        for offset in 0..64 {
            let request = json!({ "id": id, "offset": offset << 18 }).to_string();
            gone.nats.publish_with_reply(gone.subject.clone(), inbox.clone(), request.into()).await.unwrap();
        }
        gone.nats.flush().await.unwrap();
    }
    for part in 0..BYTES >> 20 {
        let answer = client.read(job, part << 20, 1000).await;
        assert!(answer.payload[..] == part_of_content(part)[..1000], "part {part}");
    }
    let heard = heard.next().now_or_never();
    assert!(heard.is_none(), "{heard:?}");
    stop(nodes).await;
}
