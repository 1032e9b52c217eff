//! Ways to prove who one is, and what each role of the shipped server configuration may do.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exobus_bus::session::{Endpoint, Event, Peer, SessionOptions};
use exobus_bus::{Bus, BusError, JobChannel, Message, NatsOptions, RequestMany, Subject, Subjects, SubscribeOptions};
use nkeys::KeyPair;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
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
    // By way of a context, as the `nats` command would name it; there is no secret in it, so others may read it.
    let context = format!(r#"{{"url":"{}","nkey":"{}"}}"#, server.url(), server.dir().join("right").display());
    let path = server.dir().join("context.json");
    std::fs::write(&path, context).unwrap();
    Bus::connect(NatsOptions::context(path)).await.unwrap().flush().await.unwrap();
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
    // Its token and its seed may stand in the context itself, then only its owner may read that.
    let inline = serde_json::json!({ "url": server.url(), "user_jwt": user_token, "user_seed": user.seed().unwrap() });
    let context = private_file(server.dir(), "inline.json", &inline.to_string());
    Bus::connect(NatsOptions::context(context.clone())).await.unwrap().flush().await.unwrap();
    std::fs::set_permissions(&context, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = Bus::connect(NatsOptions::context(context)).await;
    assert!(matches!(&refused, Err(BusError::Config(why)) if why.contains("644")), "{refused:?}");
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

/// The page with the table of what roles may do, and with the users of another tenant.
const PAGE: &str = include_str!("../../../docs/security.md");

/// The roles of the shipped files, as the columns of the table have them, with what their inboxes begin with.
const ROLES: [(&str, &str); 6] = [
    ("node", "_INBOX_node"),
    ("submitter", "_INBOX_submitter"),
    ("viewer", "_INBOX_viewer"),
    ("operator", "_INBOX"),
    ("submitter of `lab-a`", "_INBOX_submitter_lab-a"),
    ("viewer of `lab-a`", "_INBOX_viewer_lab-a"),
];

/// A shipped file of the server.
fn shipped(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/nats").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between two texts, the first time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from:?}")) + from.len();
    &text[start..start + text[start..].find(to).unwrap_or_else(|| panic!("no {to:?} after {from:?}"))]
}

/// The server of `configs/nats/cluster.conf` with the users of another tenant, as `docs/security.md` says to add them, with keys of this
/// test and without TLS. The files that it includes are the shipped ones.
struct Cluster {
    server: NatsServer,
    pairs: Vec<KeyPair>,
}

impl Cluster {
    async fn start() -> Self {
        let config = shipped("cluster.conf");
        let authorization = between(&config, "\nauthorization {", "\n}");
        let (users, end) = authorization.rsplit_once(']').expect("a list of users");
        let mut users = format!("{users}{}]{end}", between(PAGE, "```conf\n", "```"));
        let (mut pairs, mut files, mut at) = (Vec::new(), Vec::new(), 0);
        for (role, _) in ROLES {
            let pair = KeyPair::new_user();
            at += users[at..].find("nkey: \"").expect("a user for each role") + 7;
            let end = at + users[at..].find('"').expect("the end of the key");
            users.replace_range(at..end, &pair.public_key());
            let file = between(&users[at..], "include \"", "\"").to_owned();
            let words = role.replace('`', "").replace(" of ", " ");
            assert!(words.split(' ').all(|word| file.contains(word)), "{role}: its user includes {file}");
            files.push((file.clone(), shipped(&file)));
            pairs.push(pair);
        }
        let server = NatsServer::start_including(&format!("authorization {{{users}}}"), &files).await;
        Self { server, pairs }
    }

    fn pair(&self, role: &str) -> (&KeyPair, &'static str) {
        let index = ROLES.iter().position(|(name, _)| *name == role).expect("a known role");
        (&self.pairs[index], ROLES[index].1)
    }

    async fn connect(&self, role: &str) -> Bus {
        let (pair, inbox_prefix) = self.pair(role);
        let seed = private_file(self.server.dir(), role, &pair.seed().unwrap());
        let options = NatsOptions {
            nkey_seed_file: Some(seed),
            inbox_prefix: Some(inbox_prefix.to_owned()),
            ..NatsOptions::url(self.server.url())
        };
        Bus::connect(options).await.unwrap()
    }

    /// A connection that says to the server, word for word, what a test wants to: no client is between that knows what is allowed.
    async fn speak(&self, role: &str) -> Speaker {
        let address = self.server.url().strip_prefix("nats://").expect("a URL of NATS");
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        let mut info = String::new();
        stream.read_line(&mut info).await.unwrap();
        let info: serde_json::Value = serde_json::from_str(info.strip_prefix("INFO ").expect("a greeting")).unwrap();
        let (pair, _) = self.pair(role);
        let signature = base64(&pair.sign(info["nonce"].as_str().expect("a nonce").as_bytes()).unwrap());
        let connect = serde_json::json!({
            "verbose": false, "pedantic": false, "nkey": pair.public_key(), "sig": signature, "lang": "test",
            "version": "1", "protocol": 1,
        });
        let mut speaker = Speaker { stream };
        assert_eq!(speaker.say(&format!("CONNECT {connect}\r\n")).await, None, "{role} is not let in");
        speaker
    }
}

struct Speaker {
    stream: BufReader<TcpStream>,
}

impl Speaker {
    /// Says it; what the server complains of.
    async fn say(&mut self, words: &str) -> Option<String> {
        self.stream.write_all(format!("{words}PING\r\n").as_bytes()).await.unwrap();
        let mut complaint = None;
        loop {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.stream.read_line(&mut line)).await.expect("no answer").unwrap();
            assert!(read > 0, "the server hangs up after {words:?}: {complaint:?}");
            match line.trim_end() {
                "PONG" => return complaint,
                "PING" => self.stream.write_all(b"PONG\r\n").await.unwrap(),
                line if line.starts_with("-ERR") => complaint = Some(line.to_owned()),
                // The server tells of its neighbours.
                line if line.starts_with("INFO") => {}
                line => panic!("{words:?} is answered with {line:?}"),
            }
        }
    }

    async fn may(&mut self, does: &str, subject: &str) -> bool {
        let (words, denies) = match does {
            "publish" => (format!("PUB {subject} 2\r\nhi\r\n"), "Publish"),
            "subscribe" => (format!("SUB {subject} 7\r\nUNSUB 7\r\n"), "Subscription"),
            does => panic!("the table has a row of who tries to {does}"),
        };
        match self.say(&words).await {
            None => true,
            Some(complaint) => {
                let expected = format!("-ERR 'Permissions Violation for {denies} to \"{subject}\"'");
                assert_eq!(complaint, expected);
                false
            }
        }
    }
}

/// A row of the table: what is tried, on which subjects, and who may.
struct Row {
    does: String,
    subjects: Vec<String>,
    may: Vec<bool>,
}

/// The table of the page.
fn table() -> Vec<Row> {
    let section = between(PAGE, "## Who may do what on the NATS server\n", "\n### ");
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = section.lines().filter(|line| line.starts_with('|'));
    let head = cells(lines.next().expect("a table"));
    assert_eq!(head[2..], ROLES.map(|(role, _)| role.to_owned()), "the table has other columns");
    let row = |line: &str| {
        let cells = cells(line);
        assert_eq!(cells.len(), head.len(), "{line}");
        let may = cells[2..].iter().map(|cell| match cell.as_str() {
            "yes" => true,
            "no" => false,
            cell => panic!("{cell}: {line}"),
        });
        let subjects = cells[1].split(", ").map(|subject| subject.trim_matches('`').to_owned()).collect();
        Row { does: cells[0].clone(), subjects, may: may.collect() }
    };
    lines.skip(1).map(row).collect()
}

/// The table says of each role what it may; here each cell of it is tried.
#[tokio::test]
async fn the_shipped_permissions_are_what_the_table_says() {
    let (cluster, table) = (Cluster::start().await, table());
    let mut wrong = Vec::new();
    for (index, (role, _)) in ROLES.into_iter().enumerate() {
        let mut speaker = cluster.speak(role).await;
        for row in &table {
            for subject in &row.subjects {
                let may = speaker.may(&row.does, subject).await;
                if may != row.may[index] {
                    wrong.push(format!("{role} may {} on {subject}: {may}", row.does));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the table in docs/security.md says otherwise:\n{}", wrong.join("\n"));
}

/// What the table has to speak of, whatever it says: nobody takes a row away unseen.
#[test]
fn the_table_speaks_of_everything_that_is_to_be_denied() {
    let table = table();
    let tried = |does: &str, subject: &str| {
        table.iter().any(|row| row.does == does && row.subjects.iter().any(|tried| tried == subject))
    };
    for (does, subject) in [
        ("subscribe", "exo.v1.lab.node.>"),
        ("subscribe", "exo.v1.lab.node.n1.session.*"),
        ("subscribe", "exo.v1.lab.ctl.>"),
        ("subscribe", "exo.v1.lab.stream.>"),
        ("subscribe", "exo.v1.lab.kv.jobs.lab-a.*"),
        ("subscribe", "exo.v1.lab.job.lab-a.*.log"),
        ("subscribe", "$JS.API.>"),
        ("subscribe", "$SRV.>"),
        ("subscribe", "_INBOX_submitter.>"),
        ("publish", "exo.v1.lab.node.n1.session.n2"),
        ("publish", "exo.v1.lab.api.lab-a.submit"),
        ("publish", "exo.v1.lab.api.default.submit"),
        ("publish", "exo.v1.lab.kv.jobs.lab-a.j1"),
        ("publish", "exo.v1.lab.job.default.j1.log"),
        ("publish", "exo.v1.lab.stream.jobs.j1"),
        ("publish", "$JS.API.INFO"),
        ("publish", "$SRV.PING"),
        ("publish", "_INBOX_submitter.r7.1"),
    ] {
        assert!(tried(does, subject), "no row says who may {does} on {subject}");
    }
}

/// The files of the other tenant are those of `default` with another name, and nothing of `default` is left in them.
#[test]
fn a_tenant_has_the_permissions_of_the_default_one_under_its_own_name() {
    for role in ["submitter", "viewer"] {
        let inbox = format!("_INBOX_{role}");
        let expected = shipped(&format!("roles/{role}.conf"))
            .replace("default", "lab-a")
            .replace(&inbox, &format!("{inbox}_lab-a"));
        assert_eq!(shipped(&format!("tenants/lab-a/{role}.conf")), expected);
    }
}

#[tokio::test]
async fn each_role_of_the_shipped_configuration_can_do_its_work() {
    let cluster = Cluster::start().await;
    let subjects = Subjects::new("lab").unwrap();
    let (node, other, submitter, viewer) = (
        cluster.connect("node").await,
        cluster.connect("node").await,
        cluster.connect("submitter").await,
        cluster.connect("viewer").await,
    );

    // Nodes talk in a session, both ways.
    let open = |bus: &Bus, node: &str| {
        let me = Peer { node: node.to_owned(), incarnation: 1 };
        Endpoint::open(bus.clone(), subjects.clone(), me, SessionOptions::default())
    };
    let (a, mut a_events) = open(&node, "n1").await.unwrap();
    let (b, mut b_events) = open(&other, "n2").await.unwrap();
    a.send("n2", "x", "to n2".into()).unwrap();
    b.send("n1", "x", "to n1".into()).unwrap();
    for (events, text) in [(&mut a_events, "to n1"), (&mut b_events, "to n2")] {
        let event = timeout(PATIENCE, events.recv()).await.expect("nothing came").unwrap();
        let Event::Items { items, .. } = event else { panic!("{event:?}") };
        assert_eq!(items[0].1, text);
    }

    // Who is no node asks at the door what its role may ask.
    let looks = ["status", "list", "watch", "events", "estimate", "why", "logs", "nodes", "cluster"];
    let does = ["submit", "explain", "cancel", "tell", "value", "result"];
    let asks = [(&submitter, [&looks[..], &does].concat()), (&viewer, looks.to_vec())];
    for (bus, verb) in asks.into_iter().flat_map(|(bus, verbs)| verbs.into_iter().map(move |verb| (bus, verb))) {
        let door = subjects.every_api(verb).unwrap();
        let mut asked = node.subscribe(door, SubscribeOptions::queue("api")).await.unwrap();
        let answering = async { asked.recv().await.unwrap().reply(Message::new("an answer")).await.unwrap() };
        let asking = bus.request(subjects.api("default", verb).unwrap(), Message::new("{}"), PATIENCE);
        let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.expect(verb);
        assert_eq!(answer.unwrap().payload, "an answer", "{verb}");
    }

    // An operator asks what services there are, and a node says more than one word to that.
    let operator = cluster.connect("operator").await;
    let mut asked = node.subscribe("$SRV.>".parse().unwrap(), SubscribeOptions::default()).await.unwrap();
    let answering = async {
        let asked = asked.recv().await.unwrap();
        for answer in ["a node", "a store"] {
            asked.reply(Message::new(answer)).await.unwrap();
        }
    };
    let all = RequestMany { max: 2, deadline: PATIENCE, gap: None };
    let asking = operator.request_many("$SRV.PING".parse().unwrap(), Message::new(""), all);
    let (answers, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answers.unwrap().len(), 2);

    // Viewers and submitters hear what jobs print.
    for bus in [&viewer, &submitter] {
        let subject = subjects.job("default", "j1", JobChannel::Log).unwrap();
        let mut heard = bus.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
        node.publish(subject, Message::new("a line")).await.unwrap();
        assert_eq!(timeout(PATIENCE, heard.recv()).await.unwrap().unwrap().message.payload, "a line");
    }
}

/// What a permission does not say: an answer to what one has asked oneself, and the inboxes of others of one's role.
#[tokio::test]
async fn who_is_no_node_answers_in_nobodys_place() {
    let cluster = Cluster::start().await;
    let subjects = Subjects::new("lab").unwrap();
    let (node, submitter, viewer) =
        (cluster.connect("node").await, cluster.connect("submitter").await, cluster.connect("viewer").await);
    let everything = viewer.subscribe("exo.v1.lab.node.>".parse().unwrap(), SubscribeOptions::default()).await;
    assert!(matches!(everything, Err(BusError::Denied { .. })), "who is denied is told so");

    // What may not be published does not arrive; what the node sends itself afterwards does.
    let everything = "exo.v1.lab.>".parse().unwrap();
    let mut all = node.subscribe(everything, SubscribeOptions::default()).await.unwrap();
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

    // To the inbox of others of their role they say nothing, either.
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
