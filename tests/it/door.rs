//! What the door answers to who asks it wrongly, over a real nats-server: a code for programs, words for people, and where in a spec. Needs a
//! nats-server.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    time::Duration,
};

use exobus::{
    bus::{Bus, BusError, Message, NatsOptions, Subject},
    cluster,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, Scratch, cluster::PATIENCE, command, exobus, submitters_token};

/// The tenant "a", whose jobs are kept to a folder, and one that may use all files; a submitters' token is asked for.
struct Cluster {
    scratch: Scratch,
    dev: Running,
    url: String,
    bus: Bus,
    runtime: tokio::runtime::Runtime,
    token: String,
}

/// What a request says besides.
type Headers<'a> = &'a [(&'a str, &'a str)];

impl Cluster {
    fn start() -> Self {
        let scratch = Scratch::new();
        for folder in ["a/in", "b/in"] {
            exobus(&["generate", "--records", "1000", "--files", "1", &scratch.text(folder)]).expect(0, &[]);
        }
        symlink(scratch.path("b/in"), scratch.path("a/link")).unwrap();
        let mut nodes = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "128MiB", "--executors", "1"]);
        nodes.args(["--dir", &scratch.text("cluster")]).env("EXOBUS_SECURITY__SUBMITTERS", "token");
        nodes.env("EXOBUS_TENANTS__A__ROOTS", scratch.path("a")).env("EXOBUS_TENANTS__A__JOBS_RUNNING", "1");
        nodes.env("EXOBUS_TENANTS__FREE__JOBS", "1");
        let mut dev = Running::start(nodes);
        let url = dev.ready_at("nats://", PATIENCE);
        let runtime = cluster::runtime().unwrap();
        let bus = runtime.block_on(Bus::connect(NatsOptions::url(&url))).unwrap();
        let token = fs::read_to_string(submitters_token()).unwrap().trim().to_owned();
        Self { scratch, dev, url, bus, runtime, token }
    }

    /// Asks, and says no more than this.
    fn ask_with(&self, tenant: &str, verb: &str, request: &[u8], headers: Headers<'_>) -> Value {
        let subject = Subject::parse(&format!("exo.v1.local.api.{tenant}.{verb}")).unwrap();
        let message = headers
            .iter()
            .try_fold(Message::new(request.to_vec()), |message, (name, value)| message.with_header(name, value));
        let answer = self.runtime.block_on(self.bus.request(subject, message.unwrap(), PATIENCE)).unwrap();
        let told: Value = serde_json::from_slice(&answer.payload).unwrap();
        // Who does not read JSON finds the code in a header.
        assert_eq!(answer.headers.get("Exo-Error"), told["error"]["code"].as_str(), "{told}");
        told
    }

    /// Asks, with the token.
    fn ask(&self, tenant: &str, verb: &str, request: &str) -> Value {
        self.ask_with(tenant, verb, request.as_bytes(), &[("Exobus-Token", &self.token)])
    }

    fn at(&self, path: &str) -> String {
        self.scratch.text(path)
    }

    fn sort(&self, input: &str, output: &str) -> String {
        json!({ "kind": "sort", "inputs": [input], "output": output }).to_string()
    }
}

/// That an answer is an error of this code, at this place in the spec, with these words in what it says.
#[track_caller]
fn is_error(told: &Value, code: &str, at: Option<&str>, words: &[&str]) {
    let error = &told["error"];
    assert_eq!((error["code"].as_str(), error["at"].as_str()), (Some(code), at), "{told}");
    let message = error["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {told}");
    }
    assert!(message.len() < 1000 && !message.contains(char::is_control), "{told}");
    let fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert!(fields.iter().all(|field| ["at", "code", "message"].contains(field)), "{told}");
}

#[test]
fn what_cannot_be_done_is_answered_with_a_code_and_its_place() {
    let cluster = Cluster::start();
    specs(&cluster);
    paths(&cluster);
    who(&cluster);
    questions_about_jobs(&cluster);
    large(&cluster);
    // Nobody has noticed: nothing of that was a job, and one that is right is accepted and ends.
    let (input, output) = (cluster.at("a/in"), cluster.at("a/out"));
    let job = cluster.ask("a", "submit", &cluster.sort(&input, &output))["job"].as_str().unwrap().to_owned();
    let watch = json!({ "job": job, "wait_ms": 1000 }).to_string();
    while cluster.ask("a", "watch", &watch)["state"] != "succeeded" {}
    for path in ["b/out", "a/out-2", "c"] {
        assert!(!cluster.scratch.path(path).exists(), "{path} was made for a job that was refused");
    }
    let Cluster { dev, .. } = cluster;
    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}

fn specs(cluster: &Cluster) {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deep = |depth| format!("{{\"kind\": \"sort\", \"inputs\": {}}}", nested(depth));
    let (deep, deeper, deep_toml) = (deep(40), deep(100_000), format!("kind = \"sort\"\ninputs = {}", nested(40)));
    let whole = format!("kind = \"sort\"\ninputs = [{:?}]\noutput = {:?}\n", cluster.at("a/in"), cluster.at("a/out-2"));
    let with = |more: &str| format!("{whole}{more}");
    let table: [(&str, &str, Option<&str>, &[&str]); 17] = [
        ("kind = \"sort", "bad_spec", Some("line 1, column 13"), &["the spec is no TOML"]),
        ("kind = \"sort\"\ninputs = [\n", "bad_spec", Some("line 2, column 11"), &["the spec is no TOML"]),
        ("{\"kind\": \"sort\",", "bad_spec", Some("line 1, column 16"), &["the spec is no JSON"]),
        ("{\"kind\": \"sort\"} and more", "bad_spec", Some("line 1, column 18"), &["the spec is no JSON"]),
        ("", "bad_spec", None, &["the request is empty"]),
        ("name = \"mine\"", "missing", Some("kind"), &["kind = \"sort\""]),
        ("kind = 7", "wrong_type", Some("kind"), &["`kind` is a text"]),
        ("kind = \"sotr\"", "unknown_kind", Some("kind"), &["there is no kind of job `sotr`", "did you mean `sort`?"]),
        ("kind = \"sort.explain@99\"", "unknown_kind", Some("kind"), &["did you mean `sort.explain@1`?"]),
        (
            &with("partitons = 2"),
            "unknown_field",
            Some("partitons"),
            &["is no field of `sort`", "did you mean `partitions`?"],
        ),
        (
            &with("partitions = \"two\""),
            "wrong_type",
            Some("partitions"),
            &["cannot be \"two\"; expected a whole number"],
        ),
        (&with("partitions = 0"), "invalid", Some("partitions"), &["cannot be 0"]),
        // What only the plan finds, and not what explains it.
        (&with("verify = true\ncuts = \"uniform\""), "invalid", Some("cuts"), &["`verify` makes a table of them"]),
        (&with("priority = 1000"), "invalid", Some("priority"), &["from -100 to 100"]),
        (&deep, "too_deep", Some("line 1, column 59"), &["lists and tables are 33 deep", "may be 32"]),
        (&deeper, "too_deep", Some("line 1, column 59"), &["lists and tables are 33 deep", "may be 32"]),
        (&deep_toml, "too_deep", Some("line 2, column 41"), &["lists and tables are 33 deep", "may be 32"]),
    ];
    for (spec, code, at, words) in table {
        for verb in ["submit", "explain"] {
            is_error(&cluster.ask("a", verb, spec), code, at, words);
        }
    }
    let told = cluster.ask_with("a", "submit", b"kind = \"\xff\"", &[("Exobus-Token", &cluster.token)]);
    is_error(&told, "bad_spec", Some("line 1, column 9"), &["no UTF-8"]);
    let missing = json!({ "kind": "sort", "inputs": [cluster.at("a/in")] }).to_string();
    is_error(&cluster.ask("a", "submit", &missing), "missing", Some("output"), &["`sort` needs `output = "]);
    let told = cluster.ask("a", "explain", &missing);
    assert!(told["cost"]["input_bytes"].is_u64() && told["program"].is_null(), "it need not be said: {told}");
}

/// Paths that the tenant's jobs may not use, neither to read nor to write.
fn paths(cluster: &Cluster) {
    let (good_in, good_out) = (cluster.at("a/in"), cluster.at("a/out-2"));
    let outside = [
        cluster.at("b/in"),
        cluster.at("a/../b/in"),
        cluster.at("a/link"),
        cluster.at("a/link/part-00000"),
        "/".to_owned(),
        format!("file://{}", cluster.at("b/in")),
        "s3://bucket/x".to_owned(),
        "https://example.org/x".to_owned(),
    ];
    for path in &outside {
        for spec in [cluster.sort(path, &good_out), cluster.sort(&good_in, path)] {
            for verb in ["submit", "explain"] {
                is_error(
                    &cluster.ask("a", verb, &spec),
                    "forbidden_path",
                    None,
                    &["jobs may use files below", "/a\"] only"],
                );
            }
        }
        // Nor does a program of the registry, whose paths only it knows.
        let program = json!({ "kind": "sort.explain", "params": { "inputs": [path] } }).to_string();
        is_error(&cluster.ask("a", "submit", &program), "forbidden_path", None, &["jobs may use files below"]);
    }
    for relative in ["in", "./in", "../b/in"] {
        for spec in [cluster.sort(relative, &good_out), cluster.sort(&good_in, relative)] {
            is_error(&cluster.ask("a", "submit", &spec), "forbidden_path", None, &[relative, "begins with /"]);
        }
    }
    // It is said of URLs that they lead out, not what is there. Where there are no roots, what knows files says that there are none of such.
    for verb in ["submit", "explain"] {
        let told = cluster.ask("free", verb, &cluster.sort("gs://bucket/x", &cluster.at("c")));
        is_error(&told, "invalid", None, &["there are no files of scheme gs here"]);
    }
}

fn who(cluster: &Cluster) {
    let spec = cluster.sort(&cluster.at("a/in"), &cluster.at("a/out-2"));
    let wrong: [(Headers<'_>, &str); 3] = [
        (&[], "asks for its submitters' token"),
        (&[("Exobus-Token", "another token than the cluster's")], "is not the cluster's"),
        (&[("Exobus-Token", "")], "submitters' token"),
    ];
    for (headers, words) in wrong {
        for verb in ["submit", "explain", "cancel", "tell"] {
            let told = cluster.ask_with("a", verb, spec.as_bytes(), headers);
            is_error(&told, "unauthorized", None, &[words, "header Exobus-Token"]);
        }
    }
    for tenant in ["c", "default"] {
        for verb in ["submit", "list", "cluster"] {
            is_error(
                &cluster.ask(tenant, verb, &spec),
                "unknown_tenant",
                None,
                &[&format!("there is no tenant {tenant}")],
            );
        }
    }
}

fn questions_about_jobs(cluster: &Cluster) {
    // Of two jobs one runs for long, and the other one waits for it.
    let long = json!({ "kind": "bench", "params": { "what": { "Shuffle": { "maps": 100_000, "partitions": 1000 } } } })
        .to_string();
    let job = |spec: &str| cluster.ask("a", "submit", spec)["job"].as_str().unwrap().to_owned();
    let jobs = [job(&long), job(&long)];
    for job in &jobs {
        is_error(&cluster.ask("a", "value", job), "not_over", None, &[job, "it has returned nothing yet"]);
    }
    // Ids of a moment begin alike.
    for verb in ["status", "watch", "cancel", "value"] {
        let told = cluster.ask("a", verb, &json!({ "job": jobs[0][..6] }).to_string());
        is_error(&told, "ambiguous", None, &["several jobs of tenant a begin with", &jobs[0][..6]]);
    }
    // Whose job it is not hears what everybody hears of a job that was never there.
    let nobody = "0123456789abcdef0123456789abcdef";
    for verb in ["status", "watch", "events", "cancel", "why", "value", "logs"] {
        for (tenant, job) in [("a", nobody), ("free", nobody), ("free", jobs[0].as_str())] {
            let words = format!("tenant {tenant} has no job {job}");
            is_error(&cluster.ask(tenant, verb, &json!({ "job": job }).to_string()), "unknown_job", None, &[&words]);
        }
        for (request, code) in [("{\"job\": \"zzzzzzzz\"}", "unknown_job"), ("{\"job\": \"01234\"}", "unknown_job")] {
            is_error(&cluster.ask("a", verb, request), code, None, &["tenant a has no job"]);
        }
        for request in
            ["", "{}", "{\"job\": 7}", "{\"jb\": \"0123456789\"}", "[", "{\"job\": \"0123456789\", \"wait_ms\": -1}"]
        {
            is_error(&cluster.ask("a", verb, request), "bad_request", None, &["the request"]);
        }
    }
    is_error(&cluster.ask("a", "list", "{\"next\": \"x\"}"), "bad_request", None, &["`next`"]);
    is_error(&cluster.ask("a", "list", "{\"state\": \"done\"}"), "bad_request", None, &["unknown variant `done`"]);
    // A key that stands for another job, and an id that is none.
    let keyed =
        |number: u32| json!({ "kind": "bench.job", "name": number.to_string(), "idempotency_key": "k" }).to_string();
    let first = cluster.ask("free", "submit", &keyed(1))["job"].as_str().unwrap().to_owned();
    is_error(&cluster.ask("free", "submit", &keyed(2)), "key_taken", None, &[&first]);
    for id in ["7", "0123456789abcdef0123456789abcdeg"] {
        let headers = [("Exobus-Token", cluster.token.as_str()), ("Exobus-Job", id)];
        is_error(&cluster.ask_with("a", "submit", long.as_bytes(), &headers), "bad_request", None, &["Exobus-Job"]);
    }
    for job in jobs.iter().rev() {
        while cluster.ask("a", "cancel", job)["state"] != "cancelled" {}
        is_error(&cluster.ask("a", "value", job), "cancelled", None, &["cancelled"]);
    }
}

/// A spec that is too large: NATS does not carry it, and the command says so itself.
fn large(cluster: &Cluster) {
    let text = |bytes: usize| {
        let spec = |filling: &str| {
            let output = cluster.at("a/out-2");
            format!("{{\"inputs\":[\"{filling}\"],\"kind\":\"sort\",\"output\":\"{output}\"}}")
        };
        spec(&"x".repeat(bytes - spec("").len()))
    };
    let subject = Subject::parse("exo.v1.local.api.a.submit").unwrap();
    let refused = cluster.runtime.block_on(cluster.bus.request(subject, Message::new(text(5 << 20)), PATIENCE));
    match refused {
        Err(BusError::TooLarge { bytes, max_bytes, .. }) => assert_eq!((bytes, max_bytes), (5 << 20, 1 << 20)),
        other => panic!("{other:?}"),
    }
    // Whoever has no client that knows the limit is told by the server, which hangs up.
    #[allow(clippy::disallowed_methods, reason = "a client that is none of ours")]
    let mut stream = TcpStream::connect(cluster.url.strip_prefix("nats://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPUB exo.v1.local.api.a.submit _INBOX.x 5242880\r\n").unwrap();
    let mut said = Vec::new();
    // It may reset the connection after its last words.
    let _ = stream.read_to_end(&mut said);
    assert!(
        String::from_utf8_lossy(&said).contains("-ERR 'Maximum Payload Violation'"),
        "{:?}",
        String::from_utf8_lossy(&said)
    );

    let submit = |bytes: usize| {
        fs::write(cluster.scratch.path("large.json"), text(bytes)).unwrap();
        let mut submit = command(&["submit", &cluster.at("large.json"), "--cluster", &cluster.url]);
        submit.env("EXOBUS_CLUSTER__TENANT", "a");
        crate::support::finish(submit)
    };
    submit(5 << 20).expect(2, &["large.json: the spec has 5242880 bytes, and may have 1048576"]);
    // As large as a spec may be, and with its headers larger than a message.
    let run = submit(1 << 20);
    run.expect(2, &["message of 1048", "exo.v1.local.api.a.submit", "at most 1048576 are allowed"]);
}
