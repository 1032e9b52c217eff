//! Jobs whose process, host, or whole cluster is killed: they are taken up again, and what was finished is not done again.

use crate::support;

use std::{fs, path::Path, process::Command, time::Duration};

use rustix::process::{Signal, kill_process};
use support::{
    Scratch,
    cluster::{Cluster, Events, PATIENCE, is_sorted, watched},
    command, exobus, finish, names,
};

/// A command that keeps the logs of its jobs in the scratch folder.
fn alone(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = command(args);
    command.env("XDG_STATE_HOME", scratch.path("state"));
    command
}

fn logs(scratch: &Scratch) -> Vec<String> {
    names(&scratch.path("state/exobus/jobs"))
}

/// Sorts in one process that is killed when so many tasks of a stage are done.
fn killed_alone(scratch: &Scratch, strategy: &str, stage: &str, done: usize) -> Events {
    exobus(&["generate", "--records", "1000000", "--files", "4", &scratch.text("in")]).expect(0, &[]);
    killed_with_input(scratch, strategy, stage, done)
}

fn killed_with_input(scratch: &Scratch, strategy: &str, stage: &str, done: usize) -> Events {
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let mut command = alone(scratch, &["sort", &input, "--output", &output, "--strategy", strategy]);
    command.args(["--partitions", "12", "--memory", "96MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
    let mut killed = false;
    let (run, events) = watched(scratch, command, |events, pid| {
        if !killed && events.finished(stage) >= done {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{run:#?}");
    assert_eq!(logs(scratch).len(), 1);
    events
}

/// Goes on with the only job there is.
fn resumed_alone(scratch: &Scratch) -> Events {
    let command = alone(scratch, &["resume", "--json", "--spill", &scratch.text("spill")]);
    let (run, events) = watched(scratch, command, |_, _| {});
    run.expect(0, &[]);
    let summary = run.json();
    assert_eq!((&summary["rows"], &summary["row_hash_in"]), (&1_000_000.into(), &summary["row_hash_out"]));
    is_sorted(scratch);
    assert_eq!(logs(scratch), [""; 0], "it is over");
    assert_eq!(names(&scratch.path("spill")), [""; 0]);
    events
}

#[test]
fn a_sort_that_is_killed_among_the_maps_is_resumed() {
    let scratch = Scratch::new();
    killed_alone(&scratch, "simple", "sort.map", 2);
    resumed_alone(&scratch);
}

#[test]
fn partitions_that_were_finished_before_the_kill_are_not_made_again() {
    let scratch = Scratch::new();
    killed_alone(&scratch, "simple", "sort.reduce", 7);
    resumed_alone(&scratch).nothing_is_done_twice("sort.reduce");
}

/// What lists them is more than the log keeps: it is made again, though there is something in the output folder by now.
#[test]
fn a_sort_of_many_files_is_resumed() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "1000000", "--files", "100", &scratch.text("in")]).expect(0, &[]);
    killed_with_input(&scratch, "simple", "sort.reduce", 5);
    resumed_alone(&scratch).nothing_is_done_twice("sort.reduce");
}

#[test]
fn a_sort_that_is_killed_twice_is_resumed_twice() {
    let scratch = Scratch::new();
    killed_alone(&scratch, "push", "sort.merge", 2);
    let command = alone(&scratch, &["resume", "--spill", &scratch.text("spill")]);
    let mut killed = false;
    let (run, _) = watched(&scratch, command, |events, pid| {
        if !killed && events.finished("sort.reduce") >= 4 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{run:#?}");
    resumed_alone(&scratch).nothing_is_done_twice("sort.reduce");
}

/// The log in the file has its quota.
#[test]
fn a_job_beyond_the_quota_of_its_log_goes_on_and_is_not_taken_up_but_ended_in_words() {
    let scratch = Scratch::new();
    exobus(&["generate", "--records", "1000000", "--files", "4", &scratch.text("in")]).expect(0, &[]);
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let sort = |scratch: &Scratch| {
        let mut command = alone(scratch, &["sort", &input, "--output", &output, "--partitions", "12"]);
        command.args(["--memory", "96MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
        command.env("EXOBUS_NODE__JOB_LOG", "4KiB");
        command
    };
    let says_so = |events: &Events| {
        events
            .of("Note")
            .any(|note| note.to_string().contains("before the job did: its quota of 4096 bytes is used up"))
    };
    let mut killed = false;
    let (run, _) = watched(&scratch, sort(&scratch), |events, pid| {
        // It goes on after that.
        if !killed && says_so(events) && events.finished("sort.reduce") >= 3 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{run:#?}");
    let resumed = finish(alone(&scratch, &["resume", "--spill", &scratch.text("spill")]));
    resumed.expect(5, &["cannot be taken up again", "its quota of 4096 bytes is used up"]);
    assert_eq!(logs(&scratch), [""; 0], "it is over");
    assert!(!scratch.path("out").exists(), "what it had made is given back: {:?}", names(&scratch.path("out")));
    // And beyond it a job ends as any other.
    let (run, events) = watched(&scratch, sort(&scratch), |_, _| {});
    run.expect(0, &[]);
    assert!(says_so(&events), "{run:#?}");
    is_sorted(&scratch);
    assert_eq!(logs(&scratch), [""; 0], "it is over");
}

#[test]
fn jobs_that_were_not_finished_are_listed_and_can_be_given_up() {
    let scratch = Scratch::new();
    let resume = |args: &[&str]| finish(alone(&scratch, &[&["resume"], args].concat()));
    resume(&[]).expect(2, &["every job of this machine was finished"]);
    killed_alone(&scratch, "simple", "sort.map", 2);
    let listed = resume(&["--list", "--json"]).json();
    let job = listed["jobs"][0]["job"].as_str().unwrap().to_owned();
    assert_eq!((listed["jobs"].as_array().unwrap().len(), &listed["jobs"][0]["program"]), (1, &"sort".into()));
    let told = resume(&["--list"]);
    let lines: Vec<&str> = told.stdout.lines().map(str::trim).collect();
    let [first, command, paths] = lines[..] else { panic!("{told:#?}") };
    assert!(first.starts_with(&format!("{job}  sort  begun ")) && first.ends_with(" ago"), "{told:#?}");
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    assert!(command.starts_with(&format!("exobus sort {input} --output {output} --strategy simple")), "{told:#?}");
    assert_eq!(paths, format!("{input} -> {output}"));
    assert_eq!((&listed["jobs"][0]["inputs"][0], &listed["jobs"][0]["output"]), (&input.into(), &output.into()));
    resume(&["ffff"]).expect(2, &["no job whose id begins with ffff"]);
    let output = scratch.text("out");
    // Whoever wants the folder meanwhile is told of the job.
    let (said, other) = (format!("exobus resume {job}"), ["sort", &scratch.text("in"), "--output", &output]);
    finish(alone(&scratch, &other)).expect(3, &[&output, &job, "which was not finished", &said]);
    resume(&["--drop", &job[..12]]).expect(0, &["is given up", &output]);
    assert!(!scratch.path("out").exists(), "it was made for the job: {:?}", names(&scratch.path("out")));
    assert_eq!(resume(&["--list", "--json"]).json()["jobs"], serde_json::json!([]));
    assert_eq!(logs(&scratch), [""; 0]);
}

/// Memory, executors and spill folders are those of the process that began the job.
#[test]
fn a_job_is_resumed_with_what_its_process_had() {
    let scratch = Scratch::new();
    let before = killed_alone(&scratch, "simple", "sort.map", 2);
    // No setting is repeated.
    let (run, events) = watched(&scratch, alone(&scratch, &["resume"]), |_, _| {});
    run.expect(0, &[]);
    let had = |events: &Events| {
        let figures = events.of("NodeFigures").next().unwrap();
        (figures["budget_bytes"].as_u64().unwrap(), figures["executors"].as_u64().unwrap())
    };
    assert_eq!(had(&events), had(&before));
    assert!(had(&before).0 <= 64 << 20 && had(&before).1 == 2, "{:?}", had(&before));
    assert_eq!(names(&scratch.path("spill")), [""; 0], "what the killed process left there is removed");
    is_sorted(&scratch);
}

#[test]
fn a_job_that_ends_by_itself_leaves_no_log() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    exobus(&["generate", "--records", "1000", &input]).expect(0, &[]);
    finish(alone(&scratch, &["sort", &input, "--output", &output])).expect(0, &[]);
    assert_eq!(logs(&scratch), [""; 0]);
    // Nor does one that fails.
    finish(alone(&scratch, &["sort", &input, "--output", &output])).expect(3, &[]);
    fs::write(scratch.path("odd"), "not a record").unwrap();
    finish(alone(&scratch, &["sort", &scratch.text("odd"), "--output", &scratch.text("other")]));
    assert_eq!(logs(&scratch), [""; 0]);
}

/// So often it is tried to kill the host while work goes on: who watches a job hears of it a moment later, and it may be over by then.
const TRIES: usize = 6;

/// The node that hosts the job dies when so many tasks of a stage are done; the job goes on elsewhere, and its client with it.
fn host_dies(strategy: &str, stage: &str, done: usize, on_loss: &str) -> Events {
    let tried = (0..TRIES).map(|_| host_dies_once(strategy, stage, done, on_loss));
    let taken_up = |events: &Events| events.of("JobStarted").count() >= 2;
    tried.into_iter().find(taken_up).expect("the host never died before the job was over")
}

fn host_dies_once(strategy: &str, stage: &str, done: usize, on_loss: &str) -> Events {
    let cluster = Cluster::start(on_loss);
    let mut killed = None;
    let (run, events) = cluster.sort(strategy, |events, _| {
        if killed.is_none() && events.finished(stage) >= done {
            let host = events.host().unwrap();
            cluster.kill(&host);
            killed = Some(host);
        }
    });
    assert!(killed.is_some(), "it died while work went on");
    if run.code != Some(0) {
        cluster.dev.signal(Signal::INT);
        panic!("{run:#?} {:#?}", cluster.dev.end(PATIENCE).1);
    }
    assert_eq!(run.json()["row_hash_in"], run.json()["row_hash_out"]);
    is_sorted(&cluster.scratch);
    cluster.end();
    events
}

#[test]
fn the_host_is_killed_among_the_maps() {
    let events = host_dies("simple", "sort.map", 2, "go-on");
    assert!(events.of("JobStarted").count() >= 2, "the client has heard of the second run");
}

#[test]
fn the_host_is_killed_among_the_reduces() {
    host_dies("simple", "sort.reduce", 6, "go-on").nothing_is_done_twice("sort.reduce");
}

#[test]
fn the_host_is_killed_among_pushed_merges() {
    host_dies("push", "sort.merge", 2, "go-on");
}

#[test]
fn the_host_is_killed_and_comes_back() {
    host_dies("two_stage", "sort.merge", 3, "restart");
}

#[test]
fn all_nodes_are_killed_at_once_and_the_job_goes_on_when_they_are_back() {
    let cluster = Cluster::start("restart");
    let mut killed = false;
    let (run, _) = cluster.sort("simple", |events, _| {
        if !killed && events.finished("sort.reduce") >= 5 {
            ["n1", "n2", "n3"].iter().for_each(|node| cluster.kill(node));
            killed = true;
        }
    });
    assert!(killed, "they died while work went on");
    run.expect(0, &[]);
    is_sorted(&cluster.scratch);
    // 36 maps, and what came before and after them.
    let done = |line: &String| {
        line.split_once("job is taken up again")?.1.split_once(" done=")?.1.split(' ').next()?.parse::<u64>().ok()
    };
    let done: Vec<u64> = cluster.end().iter().filter_map(done).collect();
    assert!(!done.is_empty() && done.iter().all(|done| *done > 36), "{done:?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a job of other processes is waited for, and nobody tells this one")]
fn a_client_that_is_killed_is_no_loss() {
    let cluster = Cluster::start("end");
    let mut killed = false;
    let (run, _) = cluster.sort("simple", |events, client| {
        if !killed && events.finished("sort.map") >= 1 {
            kill_process(client, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None));
    let output = cluster.scratch.path("out");
    let committed = |output: &Path| names(output).iter().filter(|name| name.starts_with("part-")).count();
    let began = std::time::SystemTime::now();
    while committed(&output) < 12 {
        assert!(began.elapsed().unwrap() < PATIENCE, "{:?}", names(&output));
        std::thread::sleep(Duration::from_millis(20));
    }
    cluster.end();
}
