//! Folders of output: one job at a time, whole or not there, and never what somebody else has put there.

use crate::support;

use std::{fs, process::Command};

use rustix::process::{Signal, kill_process};
use support::{
    Run, Scratch,
    cluster::{Cluster, Events, watched},
    command, exobus, finish, names, parts,
};

const CLAIM: &str = "_exobus.claim";

/// A command that keeps the logs of its jobs in the scratch folder.
fn alone(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = command(args);
    command.env("XDG_STATE_HOME", scratch.path("state"));
    command
}

fn generate(scratch: &Scratch, name: &str, records: &str) -> String {
    let folder = scratch.text(name);
    exobus(&["generate", "--records", records, "--files", "4", &folder]).expect(0, &[]);
    folder
}

/// Sorts `in` to `out` in 12 partitions, and calls `happening` once, when so many tasks of a stage are done.
fn sort_and(scratch: &Scratch, stage: &str, done: usize, happening: impl FnOnce(rustix::process::Pid)) -> Run {
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let mut command =
        alone(scratch, &["sort", &input, "--output", &output, "--partitions", "12", "--strategy", "simple"]);
    command.args(["--memory", "96MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
    let mut happening = Some(happening);
    let (run, _) = watched(scratch, command, |events: &Events, pid| {
        if events.finished(stage) >= done
            && let Some(happening) = happening.take()
        {
            happening(pid);
        }
    });
    assert!(happening.is_none(), "it was under way: {run:#?}");
    run
}

/// The job that has claimed a folder.
fn claimed_by(folder: &std::path::Path) -> String {
    let claim: serde_json::Value = serde_json::from_slice(&fs::read(folder.join(CLAIM)).unwrap()).unwrap();
    claim["job"].as_str().unwrap().to_owned()
}

#[test]
fn a_folder_that_a_job_writes_to_is_refused_to_others_and_the_error_names_it() {
    let scratch = Scratch::new();
    generate(&scratch, "in", "1000000");
    let small = generate(&scratch, "small", "2000");
    let run = sort_and(&scratch, "sort.map", 1, |_| {
        let job = claimed_by(&scratch.path("out"));
        let output = scratch.text("out");
        for command in ["sort", "random-shuffle", "wordcount"] {
            let seed: &[&str] = if command == "random-shuffle" { &["--seed", "1"] } else { &[] };
            let other = alone(&scratch, &[&[command, &small, "--output", &output], seed].concat());
            finish(other).expect(3, &["out: claimed by", &job, "sort on this machine", "which runs"]);
        }
        exobus(&["generate", "--records", "10", "--files", "2", &output]).expect(3, &[&job]);
        // Nor is it input by now.
        exobus(&["validate", &output]).expect(3, &["not whole", &job, "--partial"]);
        finish(alone(&scratch, &["resume", "--drop", &job])).expect(2, &["runs in another process"]);
    });
    run.expect(0, &[]);
    assert_eq!(parts(&scratch.path("out")).len(), 12);
    let [sorted, given] = ["out", "in"].map(|name| exobus(&["validate", "--json", &scratch.text(name)]).json());
    assert_eq!((&sorted["records"], &sorted["checksum"]), (&1_000_000.into(), &given["checksum"]));
}

#[test]
fn what_somebody_else_puts_into_the_folder_of_a_job_fails_it_and_stays() {
    let scratch = Scratch::new();
    generate(&scratch, "in", "300000");
    for name in ["part-00003", "stranger"] {
        let run = sort_and(&scratch, "sort.map", 1, |_| fs::write(scratch.path("out").join(name), "mine").unwrap());
        run.expect(3, &[&format!("out/{name}"), "left alone"]);
        assert_eq!(names(&scratch.path("out")), [name]);
        assert_eq!(fs::read_to_string(scratch.path("out").join(name)).unwrap(), "mine");
        fs::remove_dir_all(scratch.path("out")).unwrap();
    }
    assert_eq!(names(&scratch.path("state/exobus/jobs")), [""; 0]);
}

#[test]
fn a_job_that_is_killed_and_one_that_is_interrupted_leave_a_claim_and_nothing() {
    let scratch = Scratch::new();
    generate(&scratch, "in", "1000000");
    let run = sort_and(&scratch, "sort.reduce", 2, |pid| kill_process(pid, Signal::INT).unwrap());
    run.expect(130, &[]);
    assert!(!scratch.path("out").exists(), "{:?}", names(&scratch.path("out")));
    sort_and(&scratch, "sort.reduce", 2, |pid| kill_process(pid, Signal::KILL).unwrap());
    assert!(scratch.path("out").join(CLAIM).exists());
    // Another folder is not in its way, and this one is no input: `--partial` finds that there is nothing yet.
    let (output, other) = (scratch.text("out"), scratch.text("other"));
    finish(alone(&scratch, &["sort", &output, "--output", &other])).expect(3, &["not whole", "--partial"]);
    finish(alone(&scratch, &["sort", &output, "--output", &other, "--partial"])).expect(3, &["no files"]);
    // The log goes, with what could be gone on with: whoever comes next says so and takes over.
    let job = claimed_by(&scratch.path("out"));
    fs::remove_dir_all(scratch.path("state")).unwrap();
    let small = generate(&scratch, "small", "2000");
    let said = format!("claimed by job {job}, which is over: taking it over");
    finish(alone(&scratch, &["sort", &small, "--output", &output])).expect(0, &[&said]);
    assert_eq!(parts(&scratch.path("out")), ["part-00000"]);
}

#[test]
fn a_claim_of_another_machine_is_freed_by_who_knows() {
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, "in", "1000"), scratch.text("out"));
    fs::create_dir(scratch.path("out")).unwrap();
    let claim = r#"{"exobus_claim":1,"job":"0123456789abcdef0123456789abcdef","program":"sort","host":"elsewhere.example","claimed_unix_ms":1}"#;
    fs::write(scratch.path("out").join(CLAIM), claim).unwrap();
    let free = format!("exobus resume --drop 0123456789abcdef0123456789abcdef --output {output}");
    finish(alone(&scratch, &["sort", &input, "--output", &output])).expect(3, &["machine elsewhere.example", &free]);
    let drop = |job: &str| finish(alone(&scratch, &["resume", "--drop", job, "--output", &output]));
    drop("ffff").expect(2, &["it is claimed by job 0123456789abcdef"]);
    drop("0123").expect(0, &["is given up", "is free"]);
    finish(alone(&scratch, &["sort", &input, "--output", &output])).expect(0, &[]);
}

/// With a file given twice two maps have equal chunks, which were one task once.
#[test]
fn an_input_that_is_given_twice_is_read_twice() {
    let scratch = Scratch::new();
    let input = generate(&scratch, "in", "20000");
    let file = scratch.text("in/part-00000");
    let jobs: [(&str, &[&str]); 3] = [("sort", &[]), ("random-shuffle", &["--seed", "1"]), ("wordcount", &[])];
    for (job, options) in jobs {
        let output = scratch.text(job);
        let args = [&[job, &input, &file, &file, "--output", &output, "--json"], options].concat();
        let run = exobus(&args);
        run.expect(0, &[]);
        if job != "wordcount" {
            assert_eq!(run.json()["rows"], 30_000, "{job}");
        }
    }
    let sorted = exobus(&["validate", "--json", &scratch.text("sort")]);
    sorted.expect(0, &[]);
    assert_eq!(
        (&sorted.json()["records"], sorted.json()["duplicate_keys"].as_u64().unwrap() >= 10_000),
        (&30_000.into(), true)
    );
}

/// The commit is killed at each name that it gives, and the job goes on.
#[test]
fn a_job_that_is_killed_at_any_name_that_it_gives_is_resumed() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("there is no strace, so this was not tried");
        return;
    }
    let scratch = Scratch::new();
    let (input, output) = (generate(&scratch, "in", "20000"), scratch.text("out"));
    let given = exobus(&["validate", "--json", &input]).json();
    // The first name is the claim's; then come three parts and the manifest.
    for name in 1..=5 {
        // One executor makes all links: they are counted thread by thread.
        let sort = ["sort", &input, "--output", &output, "--partitions", "3", "--executors", "1"];
        let sort = alone(&scratch, &sort);
        let inject = format!("inject=link,linkat:signal=SIGKILL:when={name}");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=link,linkat", "-e", &inject]).arg(sort.get_program());
        traced.args(sort.get_args()).env("XDG_STATE_HOME", scratch.path("state"));
        let killed = finish(traced);
        assert_ne!(killed.code, Some(0), "{name}: {killed:#?}");
        let whole = scratch.path("out/_exobus.json").exists();
        assert_eq!(exobus(&["validate", &output]).code == Some(0), whole, "{name}: {:?}", names(&scratch.path("out")));
        finish(alone(&scratch, &["resume"])).expect(0, &[]);
        assert_eq!(names(&scratch.path("out")), ["_exobus.json", "part-00000", "part-00001", "part-00002"], "{name}");
        let sorted = exobus(&["validate", "--json", &output]);
        sorted.expect(0, &[]);
        assert_eq!(sorted.json()["checksum"], given["checksum"]);
        fs::remove_dir_all(&output).unwrap();
    }
}

#[test]
fn on_a_cluster_a_folder_is_one_jobs_too_until_that_is_over() {
    let cluster = Cluster::start("end");
    let scratch = &cluster.scratch;
    let small = generate(scratch, "small", "2000");
    let sort = |output: &str| exobus(&["sort", &small, "--output", output, "--cluster", &cluster.url]);
    let mut claim = None;
    // It goes on until it is cancelled: so often is its input read that it is not over before.
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let mut long = vec!["sort"];
    long.extend([&*input; 20]);
    long.extend(["--output", &output, "--strategy", "simple", "--partitions", "12"]);
    let (run, _) = cluster.run(&long, |events, client| {
        if claim.is_none() && events.finished("sort.map") >= 1 {
            let output = scratch.path("out");
            let job = claimed_by(&output);
            sort(&scratch.text("out")).expect(3, &[&job, "which runs"]);
            // Who is not of the cluster cannot know, and says how to go on.
            exobus(&["sort", &small, "--output", &scratch.text("out")]).expect(3, &[&job, "on cluster", "--drop"]);
            claim = Some((job, fs::read(output.join(CLAIM)).unwrap()));
            kill_process(client, Signal::INT).unwrap();
        }
    });
    run.expect(130, &["interrupted"]);
    // As if the job had been lost with its cluster's servers: it left a claim, and is not known.
    let (job, claim) = claim.expect("work went on");
    fs::create_dir(scratch.path("left")).unwrap();
    fs::write(scratch.path("left").join(CLAIM), claim).unwrap();
    sort(&scratch.text("left")).expect(0, &[&format!("claimed by job {job}, which is over: taking it over")]);
    assert_eq!(parts(&scratch.path("left")), ["part-00000"]);
    cluster.end();
}
