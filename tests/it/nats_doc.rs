//! `docs/nats.md`: each command in it is run against a cluster, and so is the script in Python that it names. Needs a nats-server, and a Python
//! with nats-py; `cargo xtask test` provides both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Running, Scratch, command, exobus, finish};

const PATIENCE: Duration = Duration::from_secs(90);

/// The Python that tests use.
fn python() -> PathBuf {
    let fetched = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/duckdb/venv/bin/python");
    let python = std::env::var_os("EXOBUS_DUCKDB_PYTHON").map_or_else(fetched, PathBuf::from);
    assert!(python.exists(), "no Python with nats-py at {}; `cargo xtask duckdb` provides one", python.display());
    python
}

/// A cluster of one node that asks nobody who he is, and its URL.
fn cluster(scratch: &Scratch) -> (Running, String) {
    cluster_of(&["--nodes", "1"], scratch)
}

fn cluster_of(args: &[&str], scratch: &Scratch) -> (Running, String) {
    let folder = scratch.text("cluster");
    let mut dev = command(&["dev", "--port", "0", "--memory", "256MiB", "--executors", "2"]);
    // The cluster makes a token of its own.
    dev.args(["--dir", &folder]).args(args).env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    let mut dev = Running::start(dev);
    let url = dev.ready_at(if args.contains(&"--secure") { "tls://" } else { "nats://" }, PATIENCE);
    (dev, url)
}

/// A cluster with the shipped permissions, TLS and a token for submitters; jobs may use the folder of the test.
fn secure_cluster(nodes: &str, scratch: &Scratch) -> (Running, String) {
    let root = scratch.root().to_str().unwrap().to_owned();
    cluster_of(&["--secure", "--nodes", nodes, "--root", &root], scratch)
}

/// The commands of the page, in order.
fn commands() -> Vec<String> {
    let page = include_str!("../../docs/nats.md");
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).filter(|line| line.starts_with("nats ")).map(str::to_owned).collect()
}

struct Shell<'a> {
    scratch: &'a Scratch,
    url: &'a str,
    /// Whether the cluster asks who somebody is.
    is_secure: bool,
}

/// As whom a command of the page is run where that matters: with the fewest permissions that will do.
fn role_of(line: &str) -> &'static str {
    let changes = ["submit", "explain", "cancel", "tell", "value"].map(|verb| format!("api.default.{verb} "));
    match () {
        () if line.contains("nats micro") => "operator",
        () if changes.iter().any(|verb| line.contains(verb)) => "submitter",
        () => "viewer",
    }
}

impl Shell<'_> {
    /// Runs a command of the page in a folder with a `job.toml`.
    fn run(&self, line: &str, job: &str) -> Value {
        let stdout = self.lines(line, job);
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{line}: {stdout}"))
    }

    /// What services answer to a `nats micro` command, one each.
    fn micro(&self, line: &str) -> Vec<Value> {
        let stdout = self.lines(line, "");
        let answers =
            stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}: {stdout}")));
        answers.collect()
    }

    fn lines(&self, line: &str, job: &str) -> String {
        let mut line = line.replace("JOB", job);
        if self.is_secure && role_of(&line) == "submitter" && !line.contains("TOKEN") {
            line = line.replace("nats req", "nats req -H 'Exobus-Token:TOKEN'");
        }
        let run = finish(self.command(&line.replace("TOKEN", &self.token())));
        run.expect(0, &[]);
        run.stdout
    }

    /// What submitters show; anything where nobody asks.
    fn token(&self) -> String {
        match self.is_secure {
            true => fs::read_to_string(self.scratch.path("cluster/submitters.token")).unwrap().trim().to_owned(),
            false => "no-token-is-wanted".to_owned(),
        }
    }

    fn command(&self, line: &str) -> Command {
        let cli = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nats_doc/cli.py");
        let nats = format!("nats() {{ {} {} \"$@\"; }}\n{line}", python().display(), cli.display());
        let mut shell = Command::new("bash");
        shell.args(["-c", &nats]).current_dir(self.scratch.root()).env("NATS_URL", self.url);
        if self.is_secure {
            shell.env("XDG_CONFIG_HOME", self.scratch.path("cluster/contexts")).env("NATS_CONTEXT", role_of(line));
        }
        shell
    }

    /// Hands in a sort and waits for its end.
    fn sort(&self, output: &str) {
        self.job_toml(output);
        let submit = "nats req exo.v1.local.api.default.submit \"$(cat job.toml)\"";
        let job = self.run(submit, "")["job"].as_str().unwrap().to_owned();
        let watch = "nats req exo.v1.local.api.default.watch '{\"job\": \"JOB\", \"wait_ms\": 500}'";
        while self.run(watch, &job)["state"] != "succeeded" {}
    }

    fn job_toml(&self, output: &str) {
        let (input, output) = (self.scratch.text("in"), self.scratch.text(output));
        let text = format!("kind = \"sort\"\ninputs = [{input:?}]\noutput = {output:?}\n");
        fs::write(self.scratch.path("job.toml"), text).unwrap();
    }
}

#[test]
fn every_command_of_the_page_is_answered() {
    let scratch = Scratch::new();
    let (dev, url) = cluster(&scratch);
    answers_every_command(&scratch, (dev, &url), false);
}

#[test]
fn every_command_of_the_page_is_answered_with_the_shipped_permissions_and_tls() {
    let scratch = Scratch::new();
    let (dev, url) = secure_cluster("1", &scratch);
    assert!(url.starts_with("tls://"), "{url}");
    answers_every_command(&scratch, (dev, &url), true);
}

fn answers_every_command(scratch: &Scratch, (dev, url): (Running, &str), is_secure: bool) {
    exobus(&["generate", "--records", "20000", "--files", "2", &scratch.text("in")]).expect(0, &[]);
    let shell = Shell { scratch, url, is_secure };
    shell.job_toml("out-0");
    if is_secure {
        let bare = "nats req -H 'Exobus-Token:wrong' exo.v1.local.api.default.submit \"$(cat job.toml)\"";
        assert_eq!(shell.run(bare, "")["error"]["code"], "unauthorized", "a wrong token");
    }
    let (mut job, mut outputs) = (String::new(), 0);
    for line in commands() {
        if line.starts_with("nats sub") || line.starts_with("nats micro") {
            continue;
        }
        let verb = line.split("api.default.").nth(1).unwrap().split(' ').next().unwrap();
        if verb == "submit" {
            outputs += 1;
            shell.job_toml(&format!("out-{outputs}"));
        }
        let told = shell.run(&line, &job);
        if verb == "tell" {
            assert_eq!(told["error"]["code"], "over", "{line}: {told}");
            continue;
        }
        assert!(told.get("error").is_none(), "{line}: {told}");
        match verb {
            "submit" => {
                assert_eq!(told["state"], "queued", "{line}");
                job = told["job"].as_str().unwrap().to_owned();
                while shell.run("nats req exo.v1.local.api.default.watch '{\"job\": \"JOB\", \"wait_ms\": 500}'", &job)
                    ["state"]
                    != "succeeded"
                {}
            }
            "explain" => {
                assert_eq!(told["input"], serde_json::json!({ "files": 2, "bytes": 2_000_000 }), "{told}");
                assert_eq!((&told["nodes"], &told["jobs_before"]), (&1.into(), &0.into()), "{told}");
                assert_eq!(told["cost"]["input_bytes"], 2_000_000, "{told}");
                assert!(told["cost"]["estimates"][0]["strategy"].is_string(), "{told}");
            }
            "status" | "watch" | "events" => assert_eq!(told["state"], "succeeded", "{line}: {told}"),
            "value" => assert_eq!(told["value"]["rows"], 20_000, "{told}"),
            "list" => {
                assert!(told["jobs"].as_array().unwrap().iter().any(|row| row["job"] == *job), "{told}");
            }
            "cancel" => assert_eq!(told["state"], "succeeded", "it is over: {told}"),
            "nodes" => assert_eq!(told["nodes"][0]["node"], "n1", "{told}"),
            "cluster" => assert_eq!(told["scheduler"], "n1", "{told}"),
            _ => {}
        }
    }
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

#[test]
fn who_subscribes_to_the_view_hears_how_a_job_comes_to_its_end() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "1000", "--files", "1", &scratch.text("in")]).expect(0, &[]);
    let (dev, url) = secure_cluster("1", &scratch);
    let shell = Shell { scratch: &scratch, url: &url, is_secure: true };
    shell.job_toml("out");
    let line = commands().into_iter().find(|line| line.starts_with("nats sub")).expect("the page has one");
    let mut listens = Running::start(shell.command(&line));
    listens.wait_for("subscribed", PATIENCE).unwrap_or_else(|| panic!("{:#?}", listens.seen));
    let submit = "nats req exo.v1.local.api.default.submit \"$(cat job.toml)\"";
    let job = shell.run(submit, "")["job"].as_str().unwrap().to_owned();
    let end = listens.wait_for("\"succeeded\"", PATIENCE).unwrap_or_else(|| panic!("{:#?}", listens.seen));
    assert!(end.contains(&format!("kv.jobs.default.{job}")), "{end}");
    drop(listens);
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

/// The sum of a number of an endpoint over all services that answered.
fn sum(answers: &[Value], endpoint: &str, number: impl Fn(&Value) -> &Value) -> u64 {
    let of = |answer: &Value| {
        let found = answer["endpoints"].as_array().unwrap().iter().find(|found| found["name"] == endpoint);
        number(found.unwrap_or_else(|| panic!("no endpoint {endpoint}: {answer}"))).as_u64().unwrap()
    };
    answers.iter().map(of).sum()
}

#[test]
fn nodes_are_services_of_nats_and_their_figures_grow_with_a_job() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "20000", "--files", "2", &scratch.text("in")]).expect(0, &[]);
    let (dev, url) = secure_cluster("3", &scratch);
    let shell = Shell { scratch: &scratch, url: &url, is_secure: true };

    // The page's commands are all that is run here; the client library reads each answer on the way.
    let answers: BTreeMap<String, Vec<Value>> = commands()
        .into_iter()
        .filter(|line| line.starts_with("nats micro"))
        .map(|line| (line["nats micro ".len()..].to_owned(), shell.micro(&line)))
        .collect();
    let listed = &answers["ls"];
    let nodes_of = |name: &str| -> Vec<&str> {
        let of = listed.iter().filter(|answer| answer["name"] == name);
        let mut nodes: Vec<_> = of.map(|answer| answer["metadata"]["node"].as_str().unwrap()).collect();
        nodes.sort_unstable();
        nodes
    };
    for name in ["exobus-node", "exobus-store", "exobus-merger", "exobus-owner", "exobus-api"] {
        assert_eq!(nodes_of(name), ["n1", "n2", "n3"], "{name}: {listed:#?}");
    }
    assert_eq!(nodes_of("exobus-scheduler").len(), 1, "{listed:#?}");
    let ids: BTreeSet<_> = listed.iter().map(|answer| answer["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), listed.len(), "two have one id: {listed:#?}");
    assert!(listed.iter().all(|answer| answer["metadata"]["cluster"] == "local"), "{listed:#?}");
    let info = &answers["info exobus-scheduler"];
    assert_eq!(info.len(), 1, "{info:#?}");
    assert_eq!(info[0]["endpoints"][0]["name"], "figures", "{info:#?}");

    let stats = |name: &str| {
        let answers = shell.micro(&format!("nats micro stats {name}"));
        assert!(answers.iter().all(|answer| answer["name"] == name), "{answers:#?}");
        answers
    };
    let requests = |answers: &[Value]| sum(answers, "submit", |endpoint| &endpoint["num_requests"]);
    let (api, node, store) =
        (&answers["stats exobus-api"], &answers["stats exobus-node"], &answers["stats exobus-store"]);
    assert_eq!((api.len(), node.len(), store.len(), requests(api)), (3, 3, 3, 0), "{api:#?}");
    shell.sort("out");
    let refused = shell.run("nats req exo.v1.local.api.default.submit 'kind = \"no such\"'", "");
    assert_eq!(refused["error"]["code"], "unknown_kind", "{refused}");

    let after = stats("exobus-api");
    assert_eq!(requests(&after), 2, "{after:#?}");
    assert_eq!(sum(&after, "submit", |endpoint| &endpoint["num_errors"]), 1, "{after:#?}");
    assert!(sum(&after, "submit", |endpoint| &endpoint["processing_time"]) > 0, "{after:#?}");
    assert!(after.iter().any(|answer| answer.to_string().contains("unknown_kind: ")), "{after:#?}");
    let after = stats("exobus-node");
    for figure in ["control_messages", "cpu_us"] {
        let of = |answers: &[Value]| sum(answers, "figures", |endpoint| &endpoint["data"][figure]);
        assert!(of(&after) > of(node), "{figure} has not grown: {node:#?} {after:#?}");
    }
    let of = |figure: &str| sum(&after, "figures", |endpoint| &endpoint["data"][figure]);
    assert_eq!((of("slots"), of("slots_used"), of("queue_depth")), (6, 0, 0), "{after:#?}");
    assert!(of("process_bytes") > 0 && of("budget_bytes") > 0, "{after:#?}");
    assert_eq!(sum(&after, "figures", |endpoint| &endpoint["num_requests"]), 3, "each was asked once before");
    let (before, after) = (store, stats("exobus-store"));
    let peak = |answers: &[Value]| sum(answers, "memory", |endpoint| &endpoint["data"]["peak_bytes"]);
    assert!(peak(&after) > peak(before), "nothing was ever in the stores: {after:#?}");
    let scheduler = stats("exobus-scheduler");
    assert_eq!(scheduler.len(), 1, "{scheduler:#?}");
    let data = &scheduler[0]["endpoints"][0]["data"];
    assert_eq!((&data["nodes"], &data["nodes_up"], &data["jobs_waiting"]), (&3.into(), &3.into(), &0.into()), "{data}");
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

#[test]
fn a_context_of_the_nats_command_says_where_a_cluster_is() {
    let scratch = Scratch::new();
    let (dev, url) = cluster(&scratch);
    fs::create_dir_all(scratch.path("config/nats/context")).unwrap();
    let write = |name: &str, mode: u32, text: &str| {
        let path = scratch.path(&format!("config/nats/context/{name}.json"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    write("lab", 0o644, &format!(r#"{{"description": "a lab", "url": "{url}", "token": "", "nkey": ""}}"#));
    write("open", 0o644, &format!(r#"{{"url": "{url}", "user": "me", "password": "open sesame"}}"#));
    let jobs = |context: &str, file: Option<&str>| {
        let mut jobs = command(&["jobs", "--json"]);
        jobs.env("XDG_CONFIG_HOME", scratch.path("config")).env("EXOBUS_CLUSTER__NATS_CONTEXT", context);
        if let Some(file) = file {
            jobs.env("EXOBUS_CLUSTER__NATS_CONTEXT_FILE", file);
        }
        finish(jobs)
    };
    let found = jobs("lab", None);
    found.expect(0, &[]);
    assert_eq!(found.json()["jobs"], serde_json::json!([]));
    jobs("nowhere", None).expect(2, &["nats/context/nowhere.json"]);
    jobs("../lab", None).expect(2, &["no name of a context"]);
    jobs("lab", Some("/etc/lab.json")).expect(2, &["are both set"]);
    let open = jobs("open", None);
    open.expect(2, &["open.json", "chmod 600"]);
    assert!(!format!("{}{}", open.stdout, open.stderr).contains("sesame"), "a password is shown: {}", open.stderr);
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

/// The lines of Python of the page, run as a submitter.
#[test]
fn every_line_of_python_of_the_page_is_answered() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "20000", "--files", "2", &scratch.text("in")]).expect(0, &[]);
    let (dev, url) = secure_cluster("1", &scratch);
    let page = include_str!("../../docs/nats.md");
    let lines = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has some");
    let verbs = ["explain", "status", "list", "watch", "events", "why", "logs", "value", "cancel", "nodes", "cluster"];
    assert!(verbs.iter().all(|verb| lines.contains(&format!("\"{verb}\""))), "{lines}");
    let indented: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let program = format!(
        "import asyncio, sys\nfrom pathlib import Path\nimport nats\nfrom jobs import Exobus, from_context\n\n\
         async def main():\n    nc = await nats.connect({url:?}, **from_context(sys.argv[1]))\n    \
         exobus = Exobus(nc, token=Path(sys.argv[2]).read_text().strip())\n    \
         spec = {{\"kind\": \"sort\", \"inputs\": [{input:?}], \"output\": {output:?}}}\n{indented}    \
         print(plan[\"cost\"][\"input_bytes\"], value[\"value\"][\"rows\"], nodes[\"nodes\"][0][\"node\"], cluster[\"scheduler\"])\n    \
         await nc.close()\n\nasyncio.run(main())\n"
    );
    fs::write(scratch.path("page.py"), program).unwrap();
    let mut command = Command::new(python());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [manifest.join("examples/nats_py"), manifest.join("tests/it/nats_doc")];
    command.env("PYTHONPATH", std::env::join_paths(folders).unwrap()).arg(scratch.path("page.py"));
    let (context, token) = ("cluster/contexts/nats/context/submitter.json", "cluster/submitters.token");
    let run = finish({
        command.args([scratch.text(context), scratch.text(token)]);
        command
    });
    run.expect(0, &[]);
    assert!(run.stdout.contains("2000000 20000 n1 n1"), "{}", run.stdout);
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

/// Nothing of exobus is installed where the script runs.
#[test]
fn the_script_in_python_submits_watches_reads_and_cancels() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "600000", "--files", "2", &scratch.text("in")]).expect(0, &[]);
    let (dev, url) = secure_cluster("1", &scratch);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/nats_py/jobs.py");
    let mut command = Command::new(python());
    // Where the package `nkeys` is stood in for.
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nats_doc"));
    let (context, token) = ("cluster/contexts/nats/context/submitter.json", "cluster/submitters.token");
    command.arg(script).args(["--context", &scratch.text(context), "--token-file", &scratch.text(token)]);
    command.args([&url, &scratch.text("in"), &scratch.text("out")]);
    let run = finish(command);
    run.expect(0, &[]);
    for said in
        ["it has succeeded", "'rows': 600000", "the other one is cancelled", "refused: unknown_field", "jobs: [("]
    {
        assert!(run.stdout.contains(said), "{said}: {}", run.stdout);
    }
    assert!(scratch.path("out/_exobus.json").exists() && !scratch.path("out-2").exists());
    dev.signal(rustix::process::Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}
