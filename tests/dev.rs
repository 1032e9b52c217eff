//! `exobus dev`: a cluster of processes on this machine, from its start to its end. Needs a nats-server.

mod support;

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

/// The URL from the line that says that the nodes are ready.
fn url(running: &mut Running) -> String {
    let line = running.wait_for("ready at nats://", PATIENCE).unwrap_or_else(|| panic!("{:#?}", running.seen));
    line.split_whitespace().find(|word| word.starts_with("nats://")).unwrap().to_owned()
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
        .expect(3, &["torn", "offset 100"]);
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

#[test]
fn a_job_that_waits_for_a_node_that_is_frozen_says_so() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "3");
    let url = url(&mut cluster);
    exobus(&["job", "0123", "why", "--cluster", &url]).expect(2, &["no job 0123 in the cluster"]);
    assert_eq!(exobus(&["jobs", "--cluster", &url]).stdout, "no jobs\n");

    let work = ["bench", "shuffle", "--maps", "4000", "--partitions", "1000", "--cluster", &url, "--json"];
    let job = Running::start(command(&work));
    let (id, home) = ask_until(&["jobs", "--cluster", &url, "--json"], |jobs| {
        let job = &jobs["jobs"][0];
        Some((job["job"].as_str()?.to_owned(), job["home"].as_str()?.to_owned()))
    });
    // The first node has the Scheduler, and who hosts the job has to answer.
    let frozen = ["n2", "n3"].into_iter().find(|node| *node != home).unwrap();
    let why = ["job", &id, "why", "--cluster", &url, "--json"];
    let says = |why: &serde_json::Value, words: &str| why["chains"].to_string().contains(words);
    ask_until(&why, |why| says(why, &format!(" on {frozen} for ")).then_some(()));
    let pid = node_process(&scratch.path(&format!("cluster/{frozen}.toml")));
    kill_process(pid, Signal::STOP).unwrap();
    let told = exobus(&["job", &id, "why", "--cluster", &url]);
    told.expect(0, &[]);
    assert!(told.stdout.starts_with(&format!("job {id}: ")), "{}", told.stdout);
    let cause = format!("<- node {frozen} does not say what it does: no answer within 2 s");
    assert!(told.stdout.contains(&cause), "{}", told.stdout);

    kill_process(pid, Signal::CONT).unwrap();
    job.signal(Signal::INT);
    job.end(PATIENCE);
    cluster.signal(Signal::INT);
    let (code, said) = cluster.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
    nothing_runs(&scratch);
}

#[test]
fn a_node_that_dies_is_named_and_ends_the_others() {
    let scratch = Scratch::new();
    let mut cluster = dev(&scratch, "2");
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
