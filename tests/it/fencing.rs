//! Clusters of real processes that lose some of them, or cannot hear each other. Needs a nats-server.

use crate::support;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use exobus::store::{Clock, SystemClock};
use rustix::process::Signal;
use support::{Running, Scratch, Trace, command, exobus};

/// Starting processes on a busy machine takes its time; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server, killed when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(scratch: &Scratch, streams: bool) -> Self {
        Self::start_at(scratch, streams, "-1")
    }

    fn start_at(scratch: &Scratch, streams: bool, port: &str) -> Self {
        let server = std::env::var_os("EXOBUS_NATS_SERVER")
            .expect("EXOBUS_NATS_SERVER names the server for this test; `cargo xtask test` provides one");
        let folder = scratch.path("nats");
        fs::create_dir(&folder).unwrap();
        let shown = folder.display();
        let streams = match streams {
            true => format!("jetstream {{ store_dir: \"{shown}/store\", sync_interval: always }}\n"),
            false => String::new(),
        };
        let config = format!("host: 127.0.0.1\nport: {port}\nports_file_dir: \"{shown}\"\n{streams}");
        fs::write(folder.join("server.conf"), config).unwrap();
        let mut command = Command::new(server);
        command.arg("-c").arg(folder.join("server.conf"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let ports = folder.join(format!("nats-server_{}.ports", child.id()));
        // From here on it is killed whatever happens.
        let mut server = Self { child, url: String::new() };
        let url = |ports: &PathBuf| {
            let ports: serde_json::Value = serde_json::from_str(&fs::read_to_string(ports).ok()?).ok()?;
            Some(ports["nats"][0].as_str()?.to_owned())
        };
        let clock = SystemClock::new();
        loop {
            if let Some(url) = url(&ports) {
                server.url = url;
                return server;
            }
            assert!(clock.now() < PATIENCE, "the server does not start");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node with one executor; `more` is the rest of its section.
fn node(scratch: &Scratch, server: &Server, name: &str, more: &str) -> Running {
    let spill = scratch.path("spill");
    let token = scratch.path("token");
    if !token.exists() {
        exobus(&["config", "token", &scratch.text("token")]).expect(0, &[]);
    }
    let text = format!(
        "[cluster]\nnats_url = {:?}\n[node]\nname = {name:?}\nmemory = \"256MiB\"\nexecutors = 1\nspill_dirs = [{spill:?}]\n{more}\n\
         [security]\ntoken_file = {token:?}\ninsecure_any_path = true\n",
        server.url,
    );
    let config = scratch.path(&format!("{name}.toml"));
    fs::write(&config, text).unwrap();
    let mut command = command(&["node", "--config", config.to_str().unwrap()]);
    command.env("EXOBUS_LOG", "info,async_nats=error");
    Running::start(command)
}

fn ready(node: &mut Running) {
    assert!(node.wait_for("ready ", PATIENCE).is_some(), "{:#?}", node.seen);
}

const CANDIDATE: &str = "scheduler = true";
/// Nothing is lent there, so that no job has data there.
const ONLY_SCHEDULER: &str = "scheduler = true\n[node.resources]\ncpu_milli = 0";

/// The Scheduler's node has the last name, so that others host jobs.
#[test]
fn when_the_schedulers_node_is_killed_a_sort_goes_on_and_the_next_is_accepted() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch, true);
    let mut first = node(&scratch, &server, "n9", ONLY_SCHEDULER);
    ready(&mut first);
    let mut standby = node(&scratch, &server, "n1", CANDIDATE);
    ready(&mut standby);
    let mut other = node(&scratch, &server, "n2", "");
    ready(&mut other);
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    exobus(&["generate", "--records", "1000000", "--files", "8", &input]).expect(0, &[]);

    let mut sort = Running::start(command(&[
        "sort",
        &input,
        "--output",
        &output,
        "--cluster",
        &server.url,
        "--json",
        "--partitions",
        "16",
    ]));
    assert!(standby.wait_for("job accepted", PATIENCE).is_some(), "{:#?}", standby.seen);
    first.signal(Signal::KILL);
    assert!(standby.wait_for("is the scheduler", PATIENCE).is_some(), "{:#?}", standby.seen);
    assert!(sort.child.try_wait().unwrap().is_none(), "there was work when it was killed, and after: {:#?}", sort.seen);
    let (code, said) = sort.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    let sorted = exobus(&["validate", "--json", &output]);
    sorted.expect(0, &[]);
    assert_eq!(sorted.json()["checksum"], exobus(&["validate", "--json", &input]).json()["checksum"]);

    let again = scratch.text("again");
    exobus(&["sort", &input, "--output", &again, "--cluster", &server.url, "--json"]).expect(0, &[]);
    assert!(other.child.try_wait().unwrap().is_none(), "{:#?}", other.seen);
}

#[test]
fn a_node_that_was_frozen_comes_back_under_another_incarnation_and_works_for_the_next_job() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch, true);
    let mut first = node(&scratch, &server, "n1", CANDIDATE);
    ready(&mut first);
    let mut frozen = node(&scratch, &server, "n2", "");
    ready(&mut frozen);

    frozen.signal(Signal::STOP);
    let dead = first.wait_for("state=Dead", PATIENCE);
    assert!(dead.is_some_and(|line| line.contains("node=n2")), "{:#?}", first.seen);
    frozen.signal(Signal::CONT);
    assert!(frozen.wait_for("declared dead: another incarnation begins", PATIENCE).is_some(), "{:#?}", frozen.seen);
    assert!(frozen.wait_for("joined the cluster", PATIENCE).is_some(), "{:#?}", frozen.seen);
    let doctor = || exobus(&["doctor", "--cluster", &server.url]);
    let clock = SystemClock::new();
    while !doctor().stdout.contains("n2: 1 cpu") {
        assert!(clock.now() < PATIENCE, "{:#?}", doctor());
    }

    let (input, output, timeline) = (scratch.text("in"), scratch.text("out"), scratch.text("t.json"));
    exobus(&["generate", "--records", "200000", "--files", "5", &input]).expect(0, &[]);
    let asked = ["--partitions", "12", "--timeline", &timeline];
    exobus(&[&["sort", &input, "--output", &output, "--cluster", &server.url][..], &asked].concat()).expect(0, &[]);
    let trace = Trace::read(&scratch.path("t.json"));
    assert!(trace.attempts.iter().any(|(_, process, _)| process == "node n2"), "{:?}", trace.attempts);
    exobus(&["validate", "--json", &output]).expect(0, &[]);
    assert!(frozen.child.try_wait().unwrap().is_none(), "the same process: {:#?}", frozen.seen);
}

#[test]
fn without_jetstream_one_candidate_works_with_a_warning_and_a_second_one_is_refused() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch, false);
    let mut only = node(&scratch, &server, "n1", CANDIDATE);
    assert!(only.wait_for("no JetStream", PATIENCE).is_some(), "{:#?}", only.seen);
    ready(&mut only);
    let second = node(&scratch, &server, "n2", CANDIDATE);
    let (code, said) = second.end(PATIENCE);
    assert_ne!(code, Some(0));
    assert!(said.iter().any(|line| line.contains("n1 is the scheduler already")), "{said:#?}");
    let text = scratch.text("text");
    fs::write(&text, "to be or not to be").unwrap();
    let run = exobus(&["wordcount", &text, "--output", &scratch.text("counts"), "--cluster", &server.url, "--json"]);
    run.expect(0, &[]);
    assert_eq!(run.json()["keys"], 4);
}

/// Where no server is: none was started.
#[allow(clippy::disallowed_methods, reason = "a port of this machine that nobody has")]
fn nobody() -> Server {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Server { child: Command::new("true").spawn().unwrap(), url: format!("nats://127.0.0.1:{port}") }
}

/// The node's spill folder is another one, as it would be on another machine: else its lock is in the way.
fn again(scratch: &Scratch, server: &Server, name: &str) -> Running {
    let config = fs::read_to_string(scratch.path(&format!("{name}.toml"))).unwrap();
    let other = scratch.path(&format!("{name}-again.toml"));
    fs::write(&other, config.replace(&scratch.text("spill"), &scratch.text("spill-again"))).unwrap();
    assert!(config.contains(&server.url));
    let mut command = command(&["node", "--config", other.to_str().unwrap()]);
    command.env("EXOBUS_LOG", "info,async_nats=error");
    Running::start(command)
}

#[test]
fn a_second_process_under_a_name_is_refused_and_a_killed_one_comes_back_by_itself() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch, true);
    let mut first = node(&scratch, &server, "n1", CANDIDATE);
    ready(&mut first);
    let mut named = node(&scratch, &server, "n2", "");
    ready(&mut named);

    let (code, said) = again(&scratch, &server, "n2").end(PATIENCE);
    assert_eq!(code, Some(2), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("the name n2 is taken: process")), "{said:#?}");
    assert!(named.child.try_wait().unwrap().is_none(), "the healthy one goes on: {:#?}", named.seen);

    named.signal(Signal::KILL);
    let mut back = node(&scratch, &server, "n2", "");
    ready(&mut back);
    let input = scratch.text("in");
    exobus(&["generate", "--records", "1000", &input]).expect(0, &[]);
    exobus(&["sort", &input, "--output", &scratch.text("out"), "--cluster", &server.url]).expect(0, &[]);
}

#[test]
fn a_frozen_process_whose_name_was_taken_meanwhile_ends_and_says_so() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch, true);
    let mut first = node(&scratch, &server, "n1", CANDIDATE);
    ready(&mut first);
    let mut frozen = node(&scratch, &server, "n2", "");
    ready(&mut frozen);
    frozen.signal(Signal::STOP);
    let mut taken = again(&scratch, &server, "n2");
    ready(&mut taken);
    frozen.signal(Signal::CONT);
    let (code, said) = frozen.end(PATIENCE);
    assert_eq!(code, Some(5), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("the name n2 is taken")), "{said:#?}");
    assert!(taken.child.try_wait().unwrap().is_none(), "{:#?}", taken.seen);
}

#[test]
fn a_node_that_starts_while_its_server_is_away_goes_on_trying_and_says_so() {
    let scratch = Scratch::new();
    let nobody = nobody();
    let mut node = node(&scratch, &nobody, "n1", CANDIDATE);
    assert!(node.wait_for("this node goes on trying", PATIENCE).is_some(), "{:#?}", node.seen);
    let _server = Server::start_at(&scratch, true, nobody.url.rsplit(':').next().unwrap());
    ready(&mut node);
    // One that is still waiting can be stopped.
    let mut waits = self::node(&scratch, &self::nobody(), "n2", CANDIDATE);
    assert!(waits.wait_for("this node goes on trying", PATIENCE).is_some(), "{:#?}", waits.seen);
    waits.signal(Signal::TERM);
    assert_eq!(waits.end(PATIENCE).0, Some(0));
}
