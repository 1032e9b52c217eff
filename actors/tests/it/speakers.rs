//! Who may speak: nodes that know the nodes' token, submitters that know theirs, and each says what is its to say.

use std::sync::Arc;
use std::time::Duration;

use exobus_actors::client::{Client, ClientError, ClientOptions};
use exobus_actors::ids::{Incarnation, JobId, NodeId};
use exobus_actors::node::Node;
use exobus_actors::protocol::host::HostMsg;
use exobus_actors::protocol::membership::{Beat, MembershipMsg};
use exobus_actors::protocol::scheduler::{NodeSpec, SchedulerMsg};
use exobus_actors::shell::Reply;
use exobus_actors::task::Resources;
use exobus_bus::auth::Why;
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::session::{Endpoint, EndpointEvents, Peer, SessionOptions};
use exobus_bus::{Bus, Credentials, Denied, Message, Role, SubscribeOptions, codec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::harness::{Cluster, MEMORY_BYTES, until};

const NODES: Option<&str> = Some("the nodes' token of a test");
const SUBMITTERS: Option<&str> = Some("the submitters' token of a test");
const OTHER: Option<&str> = Some("another token of that length");

fn cluster() -> Cluster {
    let cluster = Cluster::with(Credentials::node(NODES, SUBMITTERS));
    cluster.start("n1");
    cluster
}

/// A client that shows this token at the door.
async fn client(cluster: &Cluster, token: Option<&str>) -> Client {
    let options = ClientOptions {
        token: token.map(Into::into),
        deadline: Duration::from_secs(30),
        ..ClientOptions::new(cluster.bus.clone(), cluster.subjects.clone())
    };
    Client::connect(options).await.unwrap()
}

async fn nodes(cluster: &Cluster) -> Vec<String> {
    let told: Value = client(cluster, None).await.ask("nodes", &json!({})).await.unwrap();
    told["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

async fn open(cluster: &Cluster, credentials: Credentials, name: &str) -> (Endpoint, EndpointEvents) {
    let bus: Bus = cluster.bus.with_credentials(credentials);
    let me = Peer { node: name.to_owned(), incarnation: 1 };
    Endpoint::open(bus, cluster.subjects.clone(), me, SessionOptions::default()).await.unwrap()
}

fn say(endpoint: &Endpoint, actor: &str, message: &impl Serialize) {
    let item = [&[0][..], &codec::encode(message).unwrap()].concat();
    endpoint.send("n1", actor, item.into()).unwrap();
}

fn beat(node: &str, incarnation: Incarnation) -> Beat {
    Beat::new(NodeId::new(node), incarnation, 1)
}

fn spec(node: &str) -> NodeSpec {
    NodeSpec {
        node: NodeId::new(node),
        incarnation: Incarnation(1),
        resources: Resources::cpu(64_000),
        labels: Default::default(),
        functions: Vec::new(),
        data_address: "127.0.0.1:9".to_owned(),
        memory_bytes: 1 << 40,
    }
}

#[tokio::test]
async fn a_node_with_another_token_never_joins() {
    let cluster = cluster();
    let cases = [
        (Credentials::node(OTHER, SUBMITTERS), "the nodes' token of this process is not the cluster's"),
        (Credentials::node(None, SUBMITTERS), "the cluster asks for its nodes' token"),
        (Credentials::node(NODES, OTHER), "the submitters' token of this process is not the cluster's"),
        (Credentials::node(NODES, None), "the cluster asks for its submitters' token"),
        // Who hands in jobs, as a node.
        (Credentials::node(SUBMITTERS, SUBMITTERS), "the nodes' token of this process is not the cluster's"),
    ];
    for (number, (credentials, said)) in (0..).zip(cases) {
        for candidate in [false, true] {
            let bus = cluster.bus.with_credentials(credentials.clone());
            // The one before may still be giving its folder back.
            let name = format!("n{number}-{candidate}");
            let refused = cluster.try_start(&bus, candidate, &name, &[], MEMORY_BYTES).expect_err(said).to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }
    assert_eq!(nodes(&cluster).await, ["n1"]);
    let refused = cluster.try_start(&cluster.bus, false, "client-4", &[], MEMORY_BYTES).err().unwrap().to_string();
    assert!(refused.contains("names that begin with client- are submitters'"), "{refused}");
}

/// A way to the cluster for who knows another token, on which questions to its services are lost; attempts to write the Scheduler's lease
/// are counted, and lost.
fn way_of_a_stranger(cluster: &Cluster) -> (Chaos, Bus) {
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    let lease = format!("{}.>", cluster.subjects.kv("scheduler").unwrap());
    chaos.cut(Direction::Outgoing, Some(lease.parse().unwrap()));
    let deaf = Chaos::around(&chaos.bus(), 2, Faults::default());
    deaf.cut(Direction::Outgoing, Some(cluster.subjects.ctl_all("scheduler").unwrap()));
    let bus = deaf.bus().with_credentials(Credentials::node(OTHER, SUBMITTERS));
    (chaos, bus)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_with_another_token_takes_no_lease_where_nobody_is_there_to_tell_it() {
    let cluster = Arc::new(cluster());
    let (stopping, (chaos, bus)) = (cluster.clone(), way_of_a_stranger(&cluster));
    let refused = tokio::task::spawn_blocking(move || {
        stopping.stop("n1");
        Node::start(stopping.elsewhere("n2", true, &bus)).expect_err("it has another token").to_string()
    });
    let refused = refused.await.unwrap();
    assert!(refused.contains("the nodes' token of this process is not the cluster's"), "{refused}");
    assert!(refused.contains("Stream exo_test_kv_nodes"), "{refused}");
    assert_eq!(chaos.stats().cut_outgoing, 0, "it has tried to take the lease");
    let starting = cluster.clone();
    tokio::task::spawn_blocking(move || starting.start_candidate("n1", &starting.bus)).await.unwrap();
    assert_eq!(nodes(&cluster).await, ["n1"]);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_another_token_that_hears_no_answer_takes_no_name_from_a_node() {
    let cluster = Arc::new(cluster());
    let (first, (_, bus)) = (cluster.node("n1"), way_of_a_stranger(&cluster));
    let starting = cluster.clone();
    let refused = tokio::task::spawn_blocking(move || {
        Node::start(starting.elsewhere("n1", true, &bus)).expect_err("it has another token").to_string()
    });
    let refused = refused.await.unwrap();
    assert!(refused.contains("the nodes' token of this process is not the cluster's"), "{refused}");
    assert!(first.fatal().is_none());
    drop(first);
    // The name is still that one's, to give back.
    let again = tokio::task::spawn_blocking(move || {
        cluster.stop("n1");
        cluster.start("n1");
    });
    again.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_that_is_not_repeated_keeps_no_node_out() {
    let cluster = Arc::new(Cluster::new());
    let mut questions =
        cluster.bus.subscribe("exo.v1.test.ctl.>".parse().unwrap(), SubscribeOptions::default()).await.unwrap();
    let forger = tokio::spawn(async move {
        // Each question is denied the first time it is asked, and not heard when it is asked again.
        let (mut last, mut denials) = (None, 0);
        while let Some(question) = questions.recv().await {
            if last.take().as_ref() != Some(&question.subject) {
                let denied = Denied { token: Role::Node, why: Why::Wrong };
                question.try_reply(Message::new(Credentials::deny(denied))).unwrap();
                (last, denials) = (Some(question.subject.clone()), denials + 1);
            }
            if denials == 4 {
                break;
            }
        }
        denials
    });
    let starting = cluster.clone();
    tokio::task::spawn_blocking(move || starting.start("n1")).await.unwrap();
    // Of the node, of a submitter in its name, and of a candidate that finds nothing on the server.
    assert_eq!(forger.await.unwrap(), 4);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

/// One that does not care for what it is told: it beats, and registers in a session.
#[tokio::test]
async fn what_a_stranger_says_in_the_name_of_a_node_reaches_no_actor() {
    let cluster = cluster();
    let target = cluster.node("n1");
    for credentials in [Credentials::node(OTHER, OTHER), Credentials::open(), Credentials::node(SUBMITTERS, SUBMITTERS)]
    {
        let mut heard = target.changes();
        let before = target.figures().refused_messages;
        let (stranger, _events) = open(&cluster, credentials.clone(), "n4").await;
        say(&stranger, "scheduler", &SchedulerMsg::NodeUp(spec("n4")));
        let subject = cluster.subjects.node("n4", "beat").unwrap();
        // As if n1 were dead: it would begin another incarnation.
        let zombies = vec![(NodeId::new("n1"), target.post().incarnation())];
        let beat = Beat { zombies, ..beat("n4", Incarnation(1)) };
        let sealed = credentials.seal(&subject, &MembershipMsg::Beat(beat)).unwrap();
        cluster.bus.try_publish(subject, Message::new(sealed)).unwrap();
        // The beat, and greetings.
        until(|| target.figures().refused_messages >= before + 3).await;
        assert!(heard.try_recv().is_err(), "a stranger is held for a node");
        assert_eq!(nodes(&cluster).await, ["n1"]);
    }
    assert!(target.fatal().is_none());
}

#[tokio::test]
async fn who_hands_a_job_in_hears_that_its_token_is_wrong_or_missing_and_may_look_without_one() {
    let cluster = cluster();
    let said = async |token| match client(&cluster, token).await.submit(b"kind = 'nothing'").await.unwrap_err() {
        ClientError::Refused(error) => (error.code, error.message),
        error => panic!("{error}"),
    };
    let (code, wrong) = said(OTHER).await;
    assert_eq!(code, "unauthorized");
    assert!(wrong.contains("the submitters' token of this process is not the cluster's"), "{wrong}");
    assert!(!wrong.contains(OTHER.unwrap()), "{wrong}");
    let (code, missing) = said(None).await;
    assert_eq!(code, "unauthorized");
    assert!(missing.contains("asks for its submitters' token") && missing.contains("Exobus-Token"), "{missing}");
    assert_eq!(said(SUBMITTERS).await.0, "unknown_kind", "it may");
    let job = JobId::new();
    let refused = client(&cluster, None).await.cancel(job).await.unwrap_err();
    assert_eq!(refused.code(), Some("unauthorized"));
    let unknown = client(&cluster, None).await.status(job).await.unwrap_err();
    assert_eq!(unknown.code(), Some("unknown_job"), "whoever looks changes nothing");
    // Where NATS decides, none is wanted.
    let by_nats = Cluster::with(Credentials::node(NODES, None));
    by_nats.start("n1");
    let admitted = client(&by_nats, None).await.submit(b"kind = 'nothing'").await.unwrap_err();
    assert_eq!(admitted.code(), Some("unknown_kind"));
}

#[tokio::test]
async fn a_submitter_says_nothing_in_sessions() {
    let cluster = cluster();
    let target = cluster.node("n1");
    let before = target.figures().refused_messages;
    let (submitter, _events) = open(&cluster, Credentials::submitter(SUBMITTERS), "client-1").await;
    let forbidden = [
        SchedulerMsg::NodeUp(spec("n4")),
        SchedulerMsg::NodeUp(spec("client-1")),
        SchedulerMsg::JobDone { job: JobId::from_u128(1) },
        SchedulerMsg::ListNodes { reply: Reply::to(NodeId::new("client-1"), 1) },
    ];
    for message in &forbidden {
        say(&submitter, "scheduler", message);
    }
    say(&submitter, "host", &HostMsg::Resume { job: JobId::from_u128(1) });
    say(&submitter, "membership", &MembershipMsg::Beat(beat("n1", target.post().incarnation())));
    // What only its own process tells Membership has no form on the wire.
    say(&submitter, "membership", &"Leave");
    // An answer, and a rejection of a task: nobody asks a submitter.
    submitter.send("n1", "replies", [&[2][..], &1_u64.to_be_bytes(), &[1, 0xc0]].concat().into()).unwrap();
    submitter.send("n1", "scheduler", [&[3][..], &[7; 36], b"why"].concat().into()).unwrap();
    let refused = forbidden.len() as u64 + 5;
    until(|| target.figures().refused_messages >= before + refused).await;
    assert_eq!(target.figures().refused_messages, before + refused);

    assert_eq!(nodes(&cluster).await, ["n1"], "all that it said before has changed nothing");
    assert!(target.fatal().is_none());
}
