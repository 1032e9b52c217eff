//! A binary of one's own as a node: `examples/own_node.rs`. Needs a nats-server.

use crate::support;

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use exobus::{
    Client, ClientOptions, JobEnd, JobId, JobSpec,
    bus::Role,
    cluster,
    config::{NodeConfig, Overrides},
    random::SystemRandom,
    store::SystemClock,
};
use rustix::process::Signal;
use support::{Running, Scratch, command, finish};

/// Starting processes on a busy machine takes its time; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where cargo puts it when it builds the tests.
fn own_node_path() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_exobus")).with_file_name("examples").join("own_node")
}

fn own_node(args: &[&str]) -> Command {
    let exobus = command(args);
    let mut own = Command::new(own_node_path());
    own.args(exobus.get_args()).stdin(Stdio::null());
    for (name, value) in exobus.get_envs() {
        match value {
            Some(value) => own.env(name, value),
            None => own.env_remove(name),
        };
    }
    own
}

/// The process in which the test runs has those that stand in the cluster's files: so do the others.
fn with_the_clusters_tokens(mut command: Command) -> Command {
    command.env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    command
}

#[test]
fn it_takes_what_the_command_takes() {
    let help = finish(own_node(&["--help"]));
    assert_eq!(help.code, Some(0), "{help:#?}");
    for option in ["--config", "--cluster", "--memory", "--scheduler", "--executors", "Exit codes:"] {
        assert!(help.stdout.contains(option), "{option}: {help:#?}");
    }
    finish(own_node(&["--memory", "lots"])).expect(2, &["no size such as 4GiB"]);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/invalid/unknown_key.toml");
    finish(own_node(&["--config", file])).expect(2, &["unknown key `node.memroy`; did you mean `node.memory`?"]);
}

/// A cluster of one node, and the configuration of that.
fn cluster_of_one(scratch: &Scratch) -> (Running, PathBuf) {
    let folder = scratch.text("cluster");
    let dev = ["dev", "--nodes", "1", "--port", "0", "--memory", "64MiB", "--executors", "1", "--dir", &folder];
    let mut dev = Running::start(with_the_clusters_tokens(command(&dev)));
    dev.wait_for("ready at nats://", PATIENCE).unwrap_or_else(|| panic!("{:#?}", dev.seen));
    (dev, scratch.path("cluster/n1.toml"))
}

/// A node that is told what the one of that cluster is told, under another name, and these arguments.
fn own_node_of(config: &Path, args: &[&str], environment: &[(&str, &str)]) -> Running {
    let own = own_node(&[&["--config", config.to_str().unwrap(), "--name", "own"], args].concat());
    let mut own = with_the_clusters_tokens(own);
    own.envs(environment.iter().copied());
    let mut own = Running::start(own);
    own.wait_for("ready own in cluster", PATIENCE).unwrap_or_else(|| panic!("{:#?}", own.seen));
    own
}

/// A client of that cluster.
async fn client_of(config: &Path) -> Client {
    let settings = NodeConfig::load(Some(config), &Overrides::default()).unwrap();
    let (bus, subjects) = cluster::connect(&settings, Role::Submitter, "client").await.unwrap();
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SystemRandom));
    Client::connect(ClientOptions { clock, random, deadline: PATIENCE, ..ClientOptions::new(bus, subjects) })
        .await
        .unwrap()
}

#[test]
fn its_own_functions_run_on_it_in_processes_of_the_same_binary() {
    let scratch = Scratch::new();
    let (dev, config) = cluster_of_one(&scratch);
    let own = own_node_of(&config, &["--executors", "2"], &[("EXOBUS_NODE__EXECUTOR", "process")]);

    let runtime = cluster::runtime().unwrap();
    let (sum, processes) = run(&config, &runtime, "own.squares@1", 20).value::<(u64, BTreeSet<u32>)>().unwrap();
    assert_eq!(sum, 2870);
    let own_path = own_node_path().canonicalize().unwrap();
    assert!(!processes.is_empty() && !processes.contains(&own.child.id()), "{processes:?}");
    for process in processes {
        assert_eq!(fs::read_link(format!("/proc/{process}/exe")).unwrap(), own_path, "process {process}");
    }

    prints_of_a_job_are_shown(&config, &runtime);

    own.signal(Signal::TERM);
    let (code, said) = own.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}

/// Runs a program of the node as a job of its own.
fn run(config: &Path, runtime: &tokio::runtime::Runtime, program: &str, number: u64) -> JobEnd {
    run_as_job(config, runtime, program, number).1
}

/// As [`run`]; also the job.
fn run_as_job(config: &Path, runtime: &tokio::runtime::Runtime, program: &str, number: u64) -> (JobId, JobEnd) {
    runtime.block_on(async {
        let client = client_of(config).await;
        let spec = JobSpec::of(client.new_job(), program, &number).unwrap();
        let (client, job) = client.start(&spec).await.unwrap();
        (job, client.follow(job, |_| {}, std::future::pending()).await.unwrap())
    })
}

/// `exobus result` against a cluster of one node, which is killed, and started again.
#[test]
fn a_result_outlives_its_job_and_the_process_that_has_it_and_no_file_is_replaced_by_it() {
    let scratch = Scratch::new();
    let (dev, config) = cluster_of_one(&scratch);
    let spill = scratch.text("spill");
    let start = || own_node_of(&config, &["--spill", &spill], &[]);
    let own = start();
    let runtime = cluster::runtime().unwrap();
    let end = run(&config, &runtime, "own.kept@1", 100_000);
    assert!(end.result.is_ok(), "{:?}", end.result);
    let text: String = (1..=100_000_u64).map(|number| format!("{number} {}\n", number * number)).collect();

    let ask = |args: &[&str]| {
        finish(with_the_clusters_tokens(command(
            &[&["result"], args, &["--config", config.to_str().unwrap()]].concat(),
        )))
    };
    let list = || ask(&["list", "--json"]).expect(0, &[]).json();
    let listed = list();
    let id = listed["results"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed["results"][0]["bytes"], text.len(), "{listed}");
    let get = |name: &str, way: &str| ask(&["get", &id, "-o", &scratch.text(name), "--way", way]);
    for way in ["nats", "data"] {
        get(way, way).expect(0, &[]);
        assert_eq!(fs::read_to_string(scratch.path(way)).unwrap(), text, "{way}");
    }
    get("nats", "nats").expect(2, &["exists, and is not replaced"]);
    let unknown = "0".repeat(31) + "1";
    ask(&["get", &unknown, "-o", &scratch.text("unknown")]).expect(2, &[&unknown]);
    ask(&["get", &id, "--file", "nothing.txt", "-o", &scratch.text("unknown")]).expect(2, &["nothing.txt"]);
    assert_eq!(list(), listed);
    // Who reads half of it and goes.
    for way in ["nats", "data", "auto"] {
        let mut get = with_the_clusters_tokens(command(&[
            "result",
            "get",
            &id,
            "-o",
            "-",
            "--way",
            way,
            "--config",
            config.to_str().unwrap(),
        ]));
        let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut half = vec![0; text.len() / 2];
        get.stdout.take().unwrap().read_exact(&mut half).unwrap();
        let ended = get.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(text.as_bytes().starts_with(&half), "{way}");
        assert!(
            ended.status.code() == Some(3) && said.contains("write a result: write standard output: Broken pipe"),
            "{way}: {ended:?}"
        );
        assert!(!said.contains("over NATS"), "{way}: {said}");
    }
    let left = support::names(scratch.root());
    assert!(left.iter().all(|name| !name.contains("unknown")), "{left:?}");

    own.signal(Signal::KILL);
    own.end(PATIENCE);
    let own = start();
    get("after", "auto").expect(0, &[]);
    assert_eq!(fs::read_to_string(scratch.path("after")).unwrap(), text);

    // A node that leaves hands it to another one.
    own.signal(Signal::TERM);
    let (code, said) = own.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    get("handed-over", "auto").expect(0, &[]);
    assert_eq!(fs::read_to_string(scratch.path("handed-over")).unwrap(), text);

    ask(&["delete", &id]).expect(0, &[]);
    assert_eq!(list()["results"], serde_json::json!([]));
    get("deleted", "auto").expect(2, &[&id]);
    dev.signal(Signal::INT);
    assert_eq!(dev.end(PATIENCE).0, Some(0));
}

/// A job that would go on for long is followed, and cancelled: what follows it ends by itself.
fn prints_of_a_job_are_shown(config: &Path, runtime: &tokio::runtime::Runtime) {
    let config_text = config.to_str().unwrap();
    let ask = |args: &[&str]| with_the_clusters_tokens(command(&[args, &["--config", config_text]].concat()));
    let (tell, told) = tokio::sync::oneshot::channel();
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            runtime.block_on(async {
                let client = client_of(config).await;
                let spec = JobSpec::of(client.new_job(), "own.squares@1", &100_000_u64).unwrap();
                let mut tell = Some((tell, spec.job.to_string()));
                let begun = |_| {
                    if let Some((tell, job)) = tell.take() {
                        tell.send(job).unwrap();
                    }
                };
                let cancelled = async { cancelled.await.unwrap_or(()) };
                let end = client.run_spec(spec, begun, cancelled).await.unwrap();
                end.result
            })
        });
        let id = told.blocking_recv().expect("it begins");
        let mut logs = Running::start(ask(&["job", &id, "logs"]));
        logs.wait_for("[own own.square@1 ", PATIENCE).unwrap_or_else(|| panic!("{:#?}", logs.seen));
        let line = logs.seen.last().unwrap();
        assert!(line.contains("/1] square of "), "with task and attempt: {line}");
        cancel.send(()).unwrap();
        assert_eq!(job.join().unwrap(), Err(exobus::JobError::Cancelled));
        let (code, said) = logs.end(PATIENCE);
        assert_eq!(code, Some(0), "{:#?}", said.last());
    });
}
