//! Ways to prove who one is, and what each role of the shipped server configuration may do.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exobus_bus::session::{Endpoint, Event, Peer, SessionOptions};
use exobus_bus::{Bus, BusError, JobChannel, Message, NatsOptions, Subject, Subjects, SubscribeOptions};
use nkeys::KeyPair;
use tokio::time::timeout;

use crate::harness::nats::NatsServer;

const PATIENCE: Duration = Duration::from_secs(20);

fn private_file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[tokio::test]
async fn an_nkey_seed_file_opens_the_door() {
    let (pair, other) = (KeyPair::new_user(), KeyPair::new_user());
    let server =
        NatsServer::start_with(&format!("authorization {{ users: [ {{ nkey: {} }} ] }}", pair.public_key())).await;
    let connect = |name: &str, seed: String| {
        let seed = private_file(server.dir(), name, &seed);
        Bus::connect(NatsOptions { nkey_seed_file: Some(seed), ..NatsOptions::url(server.url()) })
    };
    connect("right", pair.seed().unwrap()).await.unwrap().flush().await.unwrap();
    let refused = timeout(PATIENCE, connect("wrong", other.seed().unwrap())).await.expect("tried again and again");
    assert!(matches!(refused, Err(BusError::Connect { retryable: false, .. })), "{refused:?}");
}

/// Base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            text.push(char::from(LETTERS[(word >> (18 - 6 * index)) as usize & 63]));
        }
    }
    text
}

/// A token as the `nsc` command makes them.
fn token(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: serde_json::Value) -> String {
    let header = base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let claims = serde_json::json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name,
        "nats": nats,
    });
    let signed = format!("{header}.{}", base64(claims.to_string().as_bytes()));
    let signature = base64(&issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

#[tokio::test]
async fn a_credentials_file_opens_the_door() {
    let (operator, account, user) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user());
    let unlimited = serde_json::json!({
        "type": "account", "version": 2,
        "limits": { "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
                    "conn": -1, "leaf": -1 },
    });
    let operator_token = token(&operator, &operator, "op", serde_json::json!({ "type": "operator", "version": 2 }));
    let account_token = token(&operator, &account, "account", unlimited);
    let user_claims = serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let user_token = token(&account, &user, "user", user_claims);
    let server = NatsServer::start_without_streams(&format!(
        "operator: {operator_token}\nresolver: MEMORY\nresolver_preload: {{ {}: {account_token} }}",
        account.public_key()
    ))
    .await;
    let creds = format!(
        "-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    );
    let creds = private_file(server.dir(), "user.creds", &creds);
    let options = NatsOptions { creds_file: Some(creds.clone()), ..NatsOptions::url(server.url()) };
    Bus::connect(options).await.unwrap().flush().await.unwrap();
    // By way of a context, as the `nats` command would name it.
    let context = format!(r#"{{"url":"{}","creds":"{}"}}"#, server.url(), creds.display());
    let context = private_file(server.dir(), "context.json", &context);
    Bus::connect(NatsOptions::context(context)).await.unwrap().flush().await.unwrap();
    let refused = timeout(PATIENCE, Bus::connect(NatsOptions::url(server.url()))).await.expect("tried for ever");
    assert!(matches!(refused, Err(BusError::Connect { .. })), "{refused:?}");
}

#[tokio::test]
async fn mutual_tls_opens_the_door_and_a_foreign_authority_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, foreign) = (authority("ours"), authority("foreign"));
    let issue = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ours).unwrap();
        let certificate = private_file(dir.path(), &format!("{name}.pem"), &certificate.pem());
        (certificate, private_file(dir.path(), &format!("{name}.key"), &key.serialize_pem()))
    };
    let ca = private_file(dir.path(), "ca.pem", &ours.pem());
    let foreign_ca = private_file(dir.path(), "foreign.pem", &foreign.pem());
    let (server_cert, server_key) = issue("server");
    let (client_cert, client_key) = issue("client");
    let server = NatsServer::start_with(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        server_cert.display(),
        server_key.display(),
        ca.display()
    ))
    .await;
    let url = server.url().replace("tls://", "nats://");
    let options = |ca: &Path, with_client: bool| NatsOptions {
        tls_ca_file: Some(ca.to_owned()),
        tls_cert_file: with_client.then(|| client_cert.clone()),
        tls_key_file: with_client.then(|| client_key.clone()),
        connect_deadline: Duration::from_millis(500),
        ..NatsOptions::url(&url)
    };
    Bus::connect(options(&ca, true)).await.unwrap().flush().await.unwrap();
    for (wrong, what) in [(options(&foreign_ca, true), "a foreign authority"), (options(&ca, false), "no certificate")]
    {
        let refused = timeout(PATIENCE, Bus::connect(wrong)).await.expect("tried for ever");
        assert!(matches!(refused, Err(BusError::Connect { .. })), "{what}: {refused:?}");
    }
    // A key that others can read is no secret.
    std::fs::set_permissions(&client_key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Bus::connect(options(&ca, true)).await, Err(BusError::Config(_))));
}

/// The server of `configs/nats/cluster.conf`, with keys of this test and without TLS.
struct Cluster {
    server: NatsServer,
    roles: Vec<(&'static str, KeyPair)>,
}

impl Cluster {
    async fn start() -> Self {
        let config = include_str!("../../../configs/nats/cluster.conf");
        let start = config.find("authorization {").expect("the file has users");
        let end = start + config[start..].find("\n}").expect("the users have an end") + 2;
        let mut users = config[start..end].to_owned();
        let mut roles = Vec::new();
        let mut at = 0;
        for role in ["node", "submitter", "viewer", "operator"] {
            let pair = KeyPair::new_user();
            at += users[at..].find("nkey: \"").expect("a user for each role") + 7;
            assert!(users[..at].contains(&format!("# {role}:")), "the users of the file come in another order");
            users.replace_range(at..at + 56, &pair.public_key());
            roles.push((role, pair));
        }
        Self { server: NatsServer::start_with(&users).await, roles }
    }

    async fn connect(&self, role: &str) -> Bus {
        let (_, pair) = self.roles.iter().find(|(name, _)| *name == role).expect("a known role");
        let inbox_prefix = (role != "operator").then(|| format!("_INBOX_{role}"));
        let seed = private_file(self.server.dir(), role, &pair.seed().unwrap());
        let options = NatsOptions { nkey_seed_file: Some(seed), inbox_prefix, ..NatsOptions::url(self.server.url()) };
        Bus::connect(options).await.unwrap()
    }
}

#[tokio::test]
async fn each_role_of_the_shipped_configuration_can_do_its_work() {
    let cluster = Cluster::start().await;
    let subjects = Subjects::new("lab").unwrap();
    let (node, submitter, viewer) =
        (cluster.connect("node").await, cluster.connect("submitter").await, cluster.connect("viewer").await);

    // A submitter asks a service on a node.
    let submit = subjects.ctl("jobs", "submit").unwrap();
    let mut service = node.subscribe(submit.clone().into(), SubscribeOptions::queue("jobs")).await.unwrap();
    let answering = async {
        let question = service.recv().await.unwrap();
        question.reply(Message::new("accepted")).await.unwrap();
    };
    let asking = submitter.request(submit, Message::new("a job"), PATIENCE);
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "accepted");

    // They talk in a session, both ways.
    let open = |bus: &Bus, node: &str| {
        let me = Peer { node: node.to_owned(), incarnation: 1 };
        Endpoint::open(bus.clone(), subjects.clone(), me, SessionOptions::default())
    };
    let (a, mut a_events) = open(&node, "n1").await.unwrap();
    let (b, mut b_events) = open(&submitter, "client-1").await.unwrap();
    a.send("client-1", "x", "to the client".into()).unwrap();
    b.send("n1", "x", "to the node".into()).unwrap();
    for (events, text) in [(&mut a_events, "to the node"), (&mut b_events, "to the client")] {
        let event = timeout(PATIENCE, events.recv()).await.expect("nothing came").unwrap();
        let Event::Items { items, .. } = event else { panic!("{event:?}") };
        assert_eq!(items[0].1, text);
    }

    // A viewer lists jobs, without a session.
    let list = subjects.ctl("jobs", "list").unwrap();
    let mut service = node.subscribe(list.clone().into(), SubscribeOptions::queue("jobs")).await.unwrap();
    let answering = async { service.recv().await.unwrap().reply(Message::new("no jobs")).await.unwrap() };
    let asking = viewer.request(list, Message::new(""), PATIENCE);
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "no jobs");

    // Viewers and submitters hear what jobs print.
    for bus in [&viewer, &submitter] {
        let subject = subjects.job("default", "j1", JobChannel::Log).unwrap();
        let mut heard = bus.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
        node.publish(subject, Message::new("a line")).await.unwrap();
        assert_eq!(timeout(PATIENCE, heard.recv()).await.unwrap().unwrap().message.payload, "a line");
    }
    // A submitter asks for what belongs to its tenant.
    let door = subjects.every_api("result").unwrap();
    let mut asked = node.subscribe(door, SubscribeOptions::queue("results")).await.unwrap();
    let answering = async { asked.recv().await.unwrap().reply(Message::new("bytes")).await.unwrap() };
    let asking = submitter.request(subjects.api("default", "result").unwrap(), Message::new("{}"), PATIENCE);
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "bytes");

    // A viewer sees events of jobs.
    let events = subjects.every_job(JobChannel::Evt).unwrap();
    let mut seen = viewer.subscribe(events, SubscribeOptions::default()).await.unwrap();
    let subject = subjects.job("me", "j1", JobChannel::Evt).unwrap();
    node.publish(subject, Message::new("started")).await.unwrap();
    assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap().unwrap().message.payload, "started");
}

#[tokio::test]
async fn no_role_of_the_shipped_configuration_can_do_more() {
    let cluster = Cluster::start().await;
    let subjects = Subjects::new("lab").unwrap();
    let (node, submitter, viewer) =
        (cluster.connect("node").await, cluster.connect("submitter").await, cluster.connect("viewer").await);
    let denied = |bus: &Bus, pattern: &str| {
        let (bus, pattern) = (bus.clone(), pattern.parse().unwrap());
        async move { matches!(bus.subscribe(pattern, SubscribeOptions::default()).await, Err(BusError::Denied { .. })) }
    };
    assert!(denied(&viewer, "exo.v1.lab.node.>").await, "a viewer reads sessions");
    assert!(denied(&viewer, "exo.v1.lab.client.>").await, "a viewer reads what is said to submitters");
    assert!(denied(&submitter, "exo.v1.lab.node.>").await, "a submitter reads what others say to nodes");
    assert!(denied(&viewer, "_INBOX_submitter.>").await, "a viewer reads a submitter's answers");
    assert!(denied(&submitter, "exo.v1.lab.ctl.>").await, "a submitter reads others' requests");
    assert!(denied(&submitter, "_INBOX_node.>").await, "a submitter reads a node's answers");
    assert!(denied(&node, "exo.v1.other.>").await, "a node reads another cluster");

    // What may not be published does not arrive; what the node sends itself afterwards does.
    let everything = "exo.v1.lab.>".parse().unwrap();
    let mut all = node.subscribe(everything, SubscribeOptions::default()).await.unwrap();
    for (bus, subject) in [
        (&viewer, subjects.job("me", "j1", JobChannel::Cmd).unwrap()),
        (&viewer, subjects.node("n1", "owner").unwrap()),
        (&viewer, subjects.ctl("jobs", "submit").unwrap()),
        (&submitter, subjects.job("me", "j1", JobChannel::Evt).unwrap()),
        (&submitter, subjects.job("me", "j1", JobChannel::Log).unwrap()),
        (&viewer, subjects.job("me", "j1", JobChannel::Log).unwrap()),
        (&submitter, subjects.node("n1", "beat").unwrap()),
        (&submitter, subjects.session("n2", "n1").unwrap()),
        (&submitter, subjects.session("client-1", "n1").unwrap()),
        (&submitter, subjects.api("another", "result").unwrap()),
        (&submitter, subjects.node("n1", "result").unwrap()),
        (&viewer, subjects.api("default", "result").unwrap()),
    ] {
        bus.publish(subject, Message::new("forged")).await.unwrap();
        bus.flush().await.unwrap();
    }
    // Nor as the answer to something that one has asked oneself.
    for (bus, role) in [(&submitter, "submitter"), (&viewer, "viewer")] {
        let own: Subject = format!("_INBOX_{role}.sync.me").parse().unwrap();
        let mut asked = bus.subscribe(own.clone().into(), SubscribeOptions::default()).await.unwrap();
        let target = subjects.session("client-1", "n1").unwrap();
        bus.publish_with_reply(own, target.clone(), Message::new("?")).unwrap();
        assert_eq!(timeout(PATIENCE, asked.recv()).await.unwrap().unwrap().reply, Some(target.clone()));
        bus.publish(target, Message::new("forged")).await.unwrap();
        bus.flush().await.unwrap();
    }
    node.publish(subjects.node("n1", "owner").unwrap(), Message::new("end")).await.unwrap();
    assert_eq!(timeout(PATIENCE, all.recv()).await.unwrap().unwrap().message.payload, "end");

    // To the inbox of others of their role neither.
    for (bus, role) in [(&submitter, "submitter"), (&viewer, "viewer")] {
        let other = cluster.connect(role).await;
        let inbox = |part: &str| format!("_INBOX_{role}.{part}.7");
        let mut heard = other.subscribe(inbox("*").parse().unwrap(), SubscribeOptions::default()).await.unwrap();
        bus.publish(inbox("somebody").parse().unwrap(), Message::new("forged")).await.unwrap();
        bus.flush().await.unwrap();
        other.publish(inbox("sync").parse().unwrap(), Message::new("end")).await.unwrap();
        assert_eq!(timeout(PATIENCE, heard.recv()).await.unwrap().unwrap().message.payload, "end");
    }
}
