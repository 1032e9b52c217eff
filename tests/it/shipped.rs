//! The shipped configuration of a cluster, exactly as it is: the files of the server, of three nodes and of who submits. What they
//! cannot know (addresses, secrets, folders) is put in their place from outside. Needs a nats-server.

use crate::support;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use exobus::store::{Clock, SystemClock};
use nkeys::KeyPair;
use rustix::process::Signal;
use support::{Run, Running, Scratch, command, exobus, finish};

const PATIENCE: Duration = Duration::from_secs(90);
/// The roles of `configs/nats/cluster.conf`, in its order.
const ROLES: [&str; 4] = ["node", "submitter", "viewer", "operator"];

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(file)
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The nodes of the shipped files.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Certificates as the commands make them: of an authority for the server and those who connect to it, and of another one for data.
fn certify(scratch: &Scratch) {
    let (nats, data, out) = (scratch.text("nats-ca"), scratch.text("data-ca"), scratch.text("."));
    for folder in [&nats, &data] {
        exobus(&["config", "ca", folder]).expect(0, &[]);
    }
    let others = ["--server", "localhost", "--client", "node", "--client", "submitter"];
    exobus(&[&["config", "cert", "--ca", &nats][..], &others, &[&out]].concat()).expect(0, &[]);
    let nodes = NODES.iter().flat_map(|node| ["--node", node]).collect::<Vec<_>>();
    exobus(&[&["config", "cert", "--ca", &data, "--cluster", "lab"][..], &nodes, &[&out]].concat()).expect(0, &[]);
    fs::copy(scratch.path("nats-ca/ca.pem"), scratch.path("ca.pem")).unwrap();
}

/// A server with the shipped file, killed when dropped.
struct Lab {
    scratch: Scratch,
    server: Child,
    url: String,
}

impl Lab {
    fn start() -> Self {
        let scratch = Scratch::new();
        certify(&scratch);
        let mut text = fs::read_to_string(shipped("nats/cluster.conf")).unwrap();
        let mut at = 0;
        for role in ROLES {
            let pair = KeyPair::new_user();
            at += text[at..].find("nkey: \"").expect("a user for each role") + 7;
            assert!(text[..at].contains(&format!("# {role}:")), "the users of the file come in another order");
            text.replace_range(at..at + 56, &pair.public_key());
            write(&scratch.path(&format!("{role}.nk")), &pair.seed().unwrap());
            let permissions = format!("roles/{role}.conf");
            fs::create_dir_all(scratch.path("roles")).unwrap();
            fs::copy(shipped(&format!("nats/{permissions}")), scratch.path(&permissions)).unwrap();
        }
        let here = scratch.root().to_str().unwrap();
        for (theirs, ours) in [
            ("/etc/nats/", format!("{here}/")),
            ("/var/lib/nats", format!("{here}/nats")),
            ("0.0.0.0:4222", "127.0.0.1:-1".to_owned()),
        ] {
            assert!(text.contains(theirs), "{theirs}");
            text = text.replace(theirs, &ours);
        }
        fs::write(scratch.path("cluster.conf"), format!("{text}\nports_file_dir: \"{here}\"\n")).unwrap();
        let program = std::env::var_os("EXOBUS_NATS_SERVER")
            .expect("EXOBUS_NATS_SERVER names the server for this test; `cargo xtask test` provides one");
        let mut command = Command::new(program);
        command.arg("-c").arg(scratch.path("cluster.conf")).stdin(Stdio::null());
        let log = fs::File::create(scratch.path("nats.log")).unwrap();
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let ports = scratch.path(&format!("nats-server_{}.ports", server.id()));
        // From here on it is killed whatever happens.
        let mut lab = Self { scratch, server, url: String::new() };
        let clock = SystemClock::new();
        let port = || {
            let ports: serde_json::Value = serde_json::from_str(&fs::read_to_string(&ports).ok()?).ok()?;
            let (_, port) = ports["nats"][0].as_str()?.rsplit_once(':')?;
            Some(port.to_owned())
        };
        lab.url = loop {
            if let Some(port) = port() {
                break format!("tls://localhost:{port}");
            }
            let said = fs::read_to_string(lab.scratch.path("nats.log")).unwrap();
            assert!(clock.now() < PATIENCE, "the server does not start: {said}");
            std::thread::yield_now();
        };
        for tokens in ["nodes.token", "submitters.token"] {
            exobus(&["config", "token", &lab.scratch.text(tokens)]).expect(0, &[]);
        }
        lab
    }

    /// A command of somebody of this role, with a shipped file.
    fn command(&self, role: &str, file: &str, args: &[&str]) -> Command {
        let config = shipped(&format!("cluster/three/{file}"));
        let mut command = command(&[args, &["--config", config.to_str().unwrap()]].concat());
        let certified = if role == "node" { "node" } else { "submitter" };
        for (key, value) in [
            ("CLUSTER__NATS_URL", self.url.clone()),
            ("CLUSTER__NATS_CA_FILE", self.scratch.text("ca.pem")),
            ("CLUSTER__NATS_CERT_FILE", self.scratch.text(&format!("{certified}.pem"))),
            ("CLUSTER__NATS_KEY_FILE", self.scratch.text(&format!("{certified}.key"))),
            ("CLUSTER__NATS_NKEY_SEED_FILE", self.scratch.text(&format!("{role}.nk"))),
            ("SECURITY__SUBMITTERS_TOKEN_FILE", self.scratch.text("submitters.token")),
            ("SECURITY__DATA_CA_FILE", self.scratch.text("data-ca/ca.pem")),
        ] {
            command.env(format!("EXOBUS_{key}"), value);
        }
        command
    }

    fn node(&self, name: &str) -> Running {
        let mut command = self.command("node", &format!("{name}.toml"), &["node"]);
        for (key, value) in [
            ("LISTEN", "127.0.0.1:0".to_owned()),
            ("MEMORY", "128MiB".to_owned()),
            ("EXECUTORS", "1".to_owned()),
            ("SPILL_DIRS", self.scratch.text("spill")),
        ] {
            command.env(format!("EXOBUS_NODE__{key}"), value);
        }
        command.env("EXOBUS_SECURITY__TOKEN_FILE", self.scratch.path("nodes.token"));
        command.env("EXOBUS_SECURITY__ROOTS", self.scratch.root());
        command.env("EXOBUS_SECURITY__DATA_CERT_FILE", self.scratch.path(&format!("{name}.pem")));
        command.env("EXOBUS_SECURITY__DATA_KEY_FILE", self.scratch.path(&format!("{name}.key")));
        command.env("EXOBUS_LOG", "info,async_nats=error");
        let mut node = Running::start(command);
        assert!(node.wait_for("ready ", PATIENCE).is_some(), "{name}: {:#?}", node.seen);
        node
    }

    fn sort(&self, output: &str) -> Command {
        let (input, output) = (self.scratch.text("in"), self.scratch.text(output));
        let args = ["sort", &input, "--output", &output, "--cluster", &self.url, "--json"];
        self.command("submitter", "client.toml", &args)
    }

    /// Jobs, as a viewer sees them.
    fn jobs(&self) -> Run {
        let mut command = self.command("viewer", "client.toml", &["jobs", "--json"]);
        command.env("EXOBUS_CLUSTER__NATS_INBOX_PREFIX", "_INBOX_viewer");
        finish(command)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn the_shipped_cluster_works_on_without_its_first_node_and_a_viewer_sees_its_jobs() {
    let lab = Lab::start();
    let first = lab.node("n1");
    let others = ["n2", "n3"].map(|name| lab.node(name));
    exobus(&["generate", "--records", "1000000", "--files", "8", &lab.scratch.text("in")]).expect(0, &[]);
    let none = lab.jobs();
    none.expect(0, &[]);
    assert_eq!(none.json()["jobs"], serde_json::json!([]));

    // It is the Scheduler, as it was the first that was there.
    assert!(first.seen.iter().any(|line| line.contains("is the scheduler")), "{:#?}", first.seen);
    first.signal(Signal::KILL);
    let sort = Running::start(lab.sort("out"));
    let clock = SystemClock::new();
    loop {
        let seen = lab.jobs();
        seen.expect(0, &[]);
        if let Some(job) = seen.json()["jobs"].as_array().and_then(|jobs| jobs.first()) {
            assert!(["queued", "starting", "running"].contains(&job["state"].as_str().unwrap()), "{job}");
            break;
        }
        assert!(clock.now() < PATIENCE, "a viewer sees no job");
    }
    let (code, said) = sort.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    let sorted = exobus(&["validate", "--json", &lab.scratch.text("out")]);
    sorted.expect(0, &[]);
    assert_eq!(sorted.json()["checksum"], exobus(&["validate", "--json", &lab.scratch.text("in")]).json()["checksum"]);

    // It comes back as it was.
    drop(first);
    let back = lab.node("n1");
    finish(lab.sort("again")).expect(0, &[]);
    for node in others.into_iter().chain([back]) {
        node.signal(Signal::TERM);
        let (code, said) = node.end(PATIENCE);
        assert_eq!(code, Some(0), "{said:#?}");
    }
}
