//! `exobus dev`: a cluster of processes on this machine, from its start to its end. Needs a nats-server.

use crate::support;

use std::{fs, time::Duration};

use rustix::process::{Signal, kill_process};
use support::{Running, Scratch, Trace, command, exobus, names, node_process, processes_with};

/// Starting processes on a busy machine takes its time; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// What belongs to one cluster has its folder in the command line.
fn dev(scratch: &Scratch, nodes: &str) -> Running {
    assert!(
        std::env::var_os("EXOBUS_NATS_SERVER").is_some(),
        "EXOBUS_NATS_SERVER names the server for this test; `cargo xtask test` provides one"
    );
    let folder = scratch.text("cluster");
    let mut command = command(&["dev", "--nodes", nodes, "--port", "0", "--memory", "256MiB", "--executors", "1"]);
    command.args(["--dir", &folder]);
    Running::start(command)
}

/// A configuration that names the cluster.
fn client_config(scratch: &Scratch, url: &str) -> String {
    fs::write(scratch.path("client.toml"), format!("[cluster]\nnats_url = {url:?}\n")).unwrap();
    scratch.text("client.toml")
}

/// The URL from the line that says that the nodes are ready.
fn url(running: &mut Running) -> String {
    running.ready_at("nats://", PATIENCE)
}

fn processes_of(scratch: &Scratch) -> Vec<String> {
    processes_with(&scratch.text("cluster"))
}

/// Processes that were told to end are given until the deadline to be gone.
#[track_caller]
fn nothing_runs(scratch: &Scratch) {
    let clock = exobus::store::SystemClock::new();
    use exobus::store::Clock;
    while !processes_of(scratch).is_empty() {
        assert!(clock.now() < PATIENCE, "still running: {:#?}", processes_of(scratch));
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_is_that_of_one_cluster_at_a_time() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "1");
    let url = url(&mut cluster);
    let config = fs::read_to_string(scratch.path("cluster/n1.toml")).unwrap();

    let folder = scratch.text("cluster");
    let second = exobus(&["dev", "--nodes", "1", "--port", "0", "--memory", "256MiB", "--dir", &folder]);
    second.expect(2, &["a cluster of another exobus dev runs in", "say another --dir"]);
    assert_eq!(fs::read_to_string(scratch.path("cluster/n1.toml")).unwrap(), config, "the first one has what it had");
    exobus(&["generate", "--records", "1000", &scratch.text("in")]).expect(0, &[]);
    exobus(&["sort", &scratch.text("in"), "--output", &scratch.text("out"), "--cluster", &url]).expect(0, &[]);

    cluster.signal(Signal::INT);
    assert_eq!(cluster.end(PATIENCE).0, Some(0));
    dev(&scratch, "1").ready_at("nats://", PATIENCE);
}

#[test]
fn three_nodes_sort_and_all_stop_on_ctrl_c() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "3");
    let url = url(&mut cluster);

    let (input, output) = (scratch.text("in"), scratch.text("out"));
    exobus(&["generate", "--records", "200000", "--files", "5", &input]).expect(0, &[]);
    let (timeline, plot) = (scratch.text("t.json"), scratch.text("p.svg"));
    let asked = ["--timeline", &timeline, "--plot", &plot, "--partitions", "12"];
    let run = exobus(&[&["sort", &input, "--output", &output, "--cluster", &url, "--json"][..], &asked].concat());
    run.expect(0, &[]);
    let trace = Trace::read(&scratch.path("t.json"));
    assert_eq!((trace.outcome.as_str(), trace.count("sort.reduce")), ("finished", 12));
    for (_, process, lane) in &trace.attempts {
        assert!(["node n1", "node n2", "node n3"].contains(&process.as_str()), "{process}");
        assert_eq!(lane, "executor 0");
    }
    assert!(trace.count_category("transfer") > 0, "parts went between nodes");
    let svg = fs::read_to_string(scratch.path("p.svg")).unwrap();
    assert_eq!(svg.matches("class=\"task\"").count(), trace.attempts.len());
    assert!(svg.contains("Network"));
    let summary = run.json();
    assert_eq!(summary["rows"], 200_000);
    assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
    let sorted = exobus(&["validate", "--json", &output]);
    sorted.expect(0, &[]);
    assert_eq!(sorted.json()["checksum"], exobus(&["validate", "--json", &input]).json()["checksum"]);

    // A job over keyed rows is a program by its name, too.
    fs::write(scratch.path("text"), "to be or not to be").unwrap();
    let (text, counts) = (scratch.text("text"), scratch.text("counts"));
    let run = exobus(&["wordcount", &text, "--output", &counts, "--cluster", &url, "--json", "--partitions", "1"]);
    run.expect(0, &[]);
    assert_eq!((&run.json()["rows"], &run.json()["keys"]), (&6.into(), &4.into()));
    assert_eq!(fs::read_to_string(scratch.path("counts/part-00000")).unwrap(), "be\t2\nnot\t1\nor\t1\nto\t2\n");

    // Bad input is the job's to find there, and it names the file.
    let again = scratch.text("again");
    fs::write(scratch.path("torn"), [1; 150]).unwrap();
    let torn = scratch.text("torn");
    let asked = ["--timeline", &timeline];
    exobus(&[&["sort", &torn, "--output", &again, "--cluster", &url][..], &asked].concat())
        .expect(1, &["torn", "offset 100"]);
    let trace = Trace::read(&scratch.path("t.json"));
    assert!(trace.outcome.contains("offset 100"), "{}", trace.outcome);
    assert_eq!(trace.count("sort.list failed"), 1, "{:?}", trace.attempts);
    exobus(&["sort", &input, "--output", &output, "--cluster", &url]).expect(3, &["out", "not empty"]);
    assert!(!scratch.path("again").exists());

    let run = exobus(&["doctor", "--cluster", &url]);
    for what in ["nats ", "n1: 1 cpu", "n2: 1 cpu", "n3: 1 cpu"] {
        assert!(run.stdout.contains(what), "{what}: {run:#?}");
    }

    cluster.signal(Signal::INT);
    let (code, said) = cluster.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    nothing_runs(&scratch);
    let spill = scratch.path("cluster/spill");
    let left: Vec<String> = names(&spill).iter().flat_map(|node| names(&spill.join(node))).collect();
    assert_eq!(left.iter().filter(|name| name.ends_with(".spill")).count(), 0, "{left:?}");
}

/// Asks about the jobs until what there is will do.
fn ask_until<T>(args: &[&str], find: impl Fn(&serde_json::Value) -> Option<T>) -> T {
    use exobus::store::Clock;
    let clock = exobus::store::SystemClock::new();
    loop {
        let run = exobus(args);
        run.expect(0, &[]);
        if let Some(found) = find(&run.json()) {
            return found;
        }
        assert!(clock.now() < PATIENCE, "{run:#?}");
    }
}

/// How often a node is frozen until its silence is told.
const TRIES: usize = 8;

#[test]
fn a_job_that_waits_for_a_node_that_is_frozen_says_so() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "3");
    let url = url(&mut cluster);
    exobus(&["job", "012345", "why", "--cluster", &url]).expect(2, &["tenant default has no job 012345"]);
    assert_eq!(exobus(&["jobs", "--cluster", &url]).stdout, "no jobs\n");

    let work = ["bench", "shuffle", "--maps", "40000", "--partitions", "1000", "--cluster", &url, "--json"];
    let job = Running::start(command(&work));
    let (id, home) = ask_until(&["jobs", "--cluster", &url, "--json"], |jobs| {
        let job = &jobs["jobs"][0];
        Some((job["job"].as_str()?.to_owned(), job["host"].as_str()?.to_owned()))
    });
    // The first node has the Scheduler, and who hosts the job has to answer.
    let frozen = ["n2", "n3"].into_iter().find(|node| *node != home).unwrap();
    let why = ["job", &id, "why", "--cluster", &url, "--json"];
    let says = |why: &serde_json::Value, words: &str| why["chains"].to_string().contains(words);
    let cause = format!("<- node {frozen} does not say what it does: no answer within 2 s");
    let pid = node_process(&scratch.path(&format!("cluster/{frozen}.toml")));
    // The frozen node may be the one that is asked; by the time that another one is, the node may count as dead.
    let is_told = (0..TRIES).any(|_| {
        ask_until(&why, |why| says(why, &format!(" on {frozen} for ")).then_some(()));
        kill_process(pid, Signal::STOP).unwrap();
        let told = exobus(&["job", &id, "why", "--cluster", &url]);
        kill_process(pid, Signal::CONT).unwrap();
        told.expect(0, &[]);
        assert!(told.stdout.starts_with(&format!("job {id}: running")), "{}", told.stdout);
        told.stdout.contains(&cause)
    });
    assert!(is_told, "the frozen node was never named");

    job.signal(Signal::INT);
    job.end(PATIENCE);
    cluster.signal(Signal::INT);
    let (code, said) = cluster.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    nothing_runs(&scratch);
}

#[test]
fn every_command_goes_to_the_cluster_that_the_configuration_names() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "2");
    let url = url(&mut cluster);
    let config = client_config(&scratch, &url);
    let (input, text) = (scratch.text("in"), scratch.text("text"));
    exobus(&["generate", "--records", "20000", "--files", "2", &input]).expect(0, &[]);
    fs::write(&text, "to be or not to be").unwrap();
    let configured = |args: &[&str]| exobus(&[args, &["--config", &config]].concat());
    for job in [&["sort", &input][..], &["wordcount", &text], &["random-shuffle", &input, "--seed", "1"]] {
        let output = scratch.text(&format!("out-{}", job[0]));
        let run = configured(&[job, &["--output", &output, "--json"]].concat());
        run.expect(0, &[]);
        assert_eq!(run.json()["cluster"], "local", "{run:#?}");
    }
    let told = configured(&["sort", &input, "--output", &scratch.text("told"), "--partitions", "8"]);
    assert!(told.stdout.contains(" nodes of local, ") || told.stdout.contains(" on 1 node of local, "), "{told:#?}");
    assert!(configured(&["explain", "sort", &input]).stdout.contains("on 2 nodes with"));
    configured(&["explain", "sort", &scratch.text("missing")]).expect(3, &["missing"]);
    assert_eq!(configured(&["jobs"]).stdout, "no jobs\n");
    assert!(configured(&["doctor"]).stdout.contains("n2: 1 cpu"));
    configured(&["bench", "shuffle", "--maps", "4", "--partitions", "4"]).expect(0, &[]);

    // The environment is a configuration, too.
    let mut there = command(&["sort", &input, "--output", &scratch.text("there"), "--json"]);
    there.env("EXOBUS_CLUSTER__NATS_URL", &url);
    assert_eq!(support::finish(there).json()["cluster"], "local");
    let here = configured(&["sort", &input, "--output", &scratch.text("here"), "--json", "--local"]);
    assert_eq!((&here.json()["cluster"], &here.json()["nodes"]), (&serde_json::Value::Null, &1.into()));
    // What would be ignored there is refused.
    for setting in [["--memory", "1GiB"], ["--spill", "spill"], ["--executors", "2"]] {
        let run = configured(&[&["sort", &input, "--output", &scratch.text("no")][..], &setting].concat());
        run.expect(2, &[setting[0], "is a setting of this process", "--local"]);
    }
    cluster.signal(Signal::INT);
    assert_eq!(cluster.end(PATIENCE).0, Some(0));
}

#[test]
fn clients_that_come_and_go_are_no_news_for_nodes() {
    let scratch = Scratch::new();
    let mut start = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "64MiB", "--executors", "1"]);
    start.args(["--dir", &scratch.text("cluster")]).env("EXOBUS_LOG", "info,exobus_actors::joining=debug");
    let mut cluster = Running::start(start);
    let url = url(&mut cluster);
    let work = ["bench", "shuffle", "--maps", "4000", "--partitions", "1000", "--cluster", &url, "--json"];
    let client = Running::start(command(&work));
    ask_until(&["jobs", "--cluster", &url, "--json"], |jobs| jobs["jobs"][0]["job"].as_str().map(drop));
    // Nobody there knows it: its job goes on, and others are answered.
    client.signal(Signal::KILL);
    let jobs =
        ask_until(&["jobs", "--cluster", &url, "--json"], |jobs| jobs["jobs"][0]["job"].as_str().map(str::to_owned));
    exobus(&["job", &jobs, "cancel", "--cluster", &url]).expect(0, &[]);
    cluster.signal(Signal::INT);
    let (_, said) = cluster.end(PATIENCE);
    let news = said.iter().filter(|line| line.starts_with("n1 ") && line.contains("client"));
    assert_eq!(news.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_node_that_dies_is_named_and_started_again() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "2");
    url(&mut cluster);
    kill_process(node_process(&scratch.path("cluster/n2.toml")), Signal::KILL).unwrap();
    let told = cluster.wait_for("n2 ended unexpectedly", PATIENCE).unwrap();
    assert!(told.ends_with("(signal: 9 (SIGKILL)): it is started again"), "{told}");
    cluster.wait_for("ready n2", PATIENCE).unwrap_or_else(|| panic!("{:#?}", cluster.seen));
    cluster.signal(Signal::INT);
    assert_eq!(cluster.end(PATIENCE).0, Some(0));
    nothing_runs(&scratch);
}

#[test]
fn a_node_that_dies_ends_the_others_where_that_is_wanted() {
    let scratch = Scratch::new();
    let mut command = command(&["dev", "--nodes", "2", "--port", "0", "--memory", "64MiB", "--on-loss", "end"]);
    command.args(["--dir", &scratch.text("cluster")]);
    let mut cluster = Running::start(command);
    url(&mut cluster);
    kill_process(node_process(&scratch.path("cluster/n2.toml")), Signal::KILL).unwrap();
    let (code, said) = cluster.end(PATIENCE);
    assert_eq!(code, Some(5), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("error: n2 ended unexpectedly")), "{said:#?}");
    nothing_runs(&scratch);
}

#[test]
fn killing_dev_itself_leaves_no_process() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "2");
    url(&mut cluster);
    assert_eq!(processes_of(&scratch).len(), 4, "dev, server, two nodes: {:#?}", processes_of(&scratch));
    cluster.signal(Signal::KILL);
    nothing_runs(&scratch);
}

#[test]
fn without_a_server_it_says_where_it_looked() {
    let mut command = command(&["dev", "--nats-server", "/nowhere/nats-server"]);
    command.env_remove("EXOBUS_NATS_SERVER");
    support::finish(command).expect(2, &["no nats-server at /nowhere/nats-server"]);
}

#[test]
fn a_secure_cluster_sorts_and_goes_without_nothing() {
    let scratch = Scratch::new();
    let folder = scratch.text("cluster");
    let root = scratch.text("root");
    fs::create_dir(&root).unwrap();
    let mut command = command(&["dev", "--secure", "--port", "0", "--memory", "128MiB", "--executors", "1"]);
    command.args(["--root", &root, "--dir", &folder]);
    let mut cluster = Running::start(command);
    let ready = cluster.wait_for("ready at tls://", PATIENCE);
    assert!(ready.is_some_and(|line| line.contains("3 nodes")), "{:#?}", cluster.seen);

    let client = scratch.text("cluster/client.toml");
    for name in ["n1.toml", "n2.toml", "n3.toml", "client.toml"] {
        let text = fs::read_to_string(scratch.path(&format!("cluster/{name}"))).unwrap();
        assert!(!text.contains("insecure_"), "{name}: {text}");
        assert!(text.contains("data_ca_file") && text.contains("nats_nkey_seed_file"), "{name}: {text}");
    }
    for (input, output) in [("cluster/data/in", "cluster/data/out"), ("root/in", "root/out")] {
        let (input, output) = (scratch.text(input), scratch.text(output));
        exobus(&["generate", "--records", "300000", "--files", "5", &input]).expect(0, &[]);
        let sort = exobus(&["sort", &input, "--output", &output, "--config", &client, "--partitions", "12", "--json"]);
        sort.expect(0, &[]);
        let sorted = exobus(&["validate", "--json", &output]);
        sorted.expect(0, &[]);
        assert_eq!(sorted.json()["checksum"], exobus(&["validate", "--json", &input]).json()["checksum"]);
    }
    // Jobs are kept to roots.
    let outside = scratch.text("outside");
    let sort = exobus(&["sort", &scratch.text("root/in"), "--output", &outside, "--config", &client]);
    assert_ne!(sort.code, Some(0), "{}", sort.stderr);
    assert!(!scratch.path("outside").exists());
    // Who shows the server no certificate is nobody.
    let text = fs::read_to_string(&client).unwrap();
    let bare: Vec<_> =
        text.lines().filter(|line| !line.starts_with("nats_cert") && !line.starts_with("nats_key")).collect();
    fs::write(
        scratch.path("bare.toml"),
        bare.join("\n").replace("[security]", "connect_deadline = \"1s\"\n[security]"),
    )
    .unwrap();
    let refused = exobus(&["jobs", "--config", &scratch.text("bare.toml")]);
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);

    cluster.signal(Signal::INT);
    let (code, said) = cluster.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    nothing_runs(&scratch);
}
