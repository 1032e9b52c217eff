//! `exobus job <id> timeline` on a cluster: of a job that is followed, of one that is over, and of one of which most is forgotten.

use std::fs;

use serde_json::Value;

use crate::support::{Run, Scratch, cluster::Cluster, command, exobus, finish};

/// Slices of tasks in a trace.
fn tasks(trace: &Value) -> usize {
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["cat"].as_str().is_some_and(|category| category.starts_with("task"))).count()
}

/// Hands a sort in, into so many files; its id.
fn hand_in(cluster: &Cluster, output: &str, partitions: u32) -> String {
    let scratch = &cluster.scratch;
    let (input, output, file) = (scratch.text("in"), scratch.text(output), scratch.text("job.toml"));
    let text = format!("kind = 'sort'\ninputs = ['{input}']\noutput = '{output}'\npartitions = {partitions}\n");
    fs::write(&file, text).unwrap();
    let run = exobus(&["submit", &file, "--cluster", &cluster.url, "--json"]);
    run.expect(0, &[]);
    run.json()["job"].as_str().unwrap().to_owned()
}

/// Draws a job; what was said, the picture and the trace.
fn draw(cluster: &Cluster, job: &str, more: &[&str]) -> (Run, String, Value) {
    let (plot, trace) = (cluster.scratch.text("p.svg"), cluster.scratch.text("t.json"));
    let args = ["job", job, "timeline", "--cluster", &cluster.url, "--plot", &plot, "--timeline", &trace];
    let run = exobus(&[&args, more].concat());
    run.expect(0, &[]);
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let (svg, trace) = (read(&plot), serde_json::from_str(&read(&trace)).unwrap());
    (run, svg, trace)
}

#[test]
fn a_job_is_drawn_while_it_runs_and_afterwards_and_what_is_missing_is_said() {
    let more = ["--memory", "96MiB", "--on-loss", "end", "--set", "node.executors=2"];
    let cluster = Cluster::of(Scratch::new(), &more);
    exobus(&["generate", "--records", "1000000", "--files", "4", &cluster.scratch.text("in")]).expect(0, &[]);
    let job = hand_in(&cluster, "followed", 12);
    let (run, svg, trace) = draw(&cluster, &job, &["--follow", "--json"]);
    let told = run.json();
    assert_eq!((&told["job"], &told["missing"], &told["over"]), (&job.as_str().into(), &0.into(), &true.into()));
    assert!(told["events"].as_u64().unwrap() > 16, "{told}");
    let other = &trace["otherData"];
    assert_eq!((&other["outcome"], &other["missing_events"]), (&"finished".into(), &0.into()));
    assert!(tasks(&trace) >= 12 + 4, "all tasks of a job that is followed: {}", tasks(&trace));
    assert!(svg.starts_with("<svg") && svg.contains("finished in") && !svg.contains("missing"), "{svg}");
    let lanes = trace["traceEvents"].as_array().unwrap().iter().map(|event| &event["args"]["name"]);
    assert_eq!(lanes.filter(|name| **name == "executor 1").count(), 3, "each node has what was set for all, two");
    assert!(!svg.contains("exobus job"), "the command that draws is not the one that ran");

    // Of one that is over there are the last events: here, all of them or most.
    let again = draw(&cluster, &job[..12], &["--json"]);
    let (events, missing) = (&again.0.json()["events"], &again.0.json()["missing"]);
    assert_eq!(events.as_u64().unwrap() + missing.as_u64().unwrap(), told["events"].as_u64().unwrap());

    // Of one with many tasks some are missing, which is said, and the end of it is drawn all the same.
    let job = hand_in(&cluster, "many", 300);
    exobus(&["job", &job, "watch", "--cluster", &cluster.url]).expect(0, &[]);
    let (run, svg, trace) = draw(&cluster, &job, &[]);
    run.expect(0, &["events are missing, and so is what they told"]);
    assert!(run.stdout.contains("plot in") && run.stdout.contains("timeline in"), "{run:#?}");
    assert!(svg.contains("events are missing, and what they told"), "{svg}");
    let missing = trace["otherData"]["missing_events"].as_u64().unwrap();
    assert!(missing > 50 && tasks(&trace) > 50, "{missing} are missing, {} are there", tasks(&trace));
    assert_eq!(trace["otherData"]["outcome"], "finished");

    let unknown =
        ["job", "0123456789", "timeline", "--cluster", &cluster.url, "--plot", &cluster.scratch.text("no.svg")];
    exobus(&unknown).expect(2, &["0123456789"]);
    assert!(!cluster.scratch.path("no.svg").exists(), "a file that nothing was written to is not left");
    cluster.end();
}

#[test]
fn what_is_to_be_drawn_is_said() {
    exobus(&["job", "0123456789", "timeline"]).expect(2, &["--plot <FILE>"]);
    let scratch = Scratch::new();
    let mut nobody = command(&["job", "0123456789", "timeline", "--plot", &scratch.text("p.svg")]);
    nobody.args(["--cluster", "nats://127.0.0.1:1", "--set", "cluster.connect_deadline=100ms"]);
    finish(nobody).expect(4, &[]);
    assert!(!scratch.path("p.svg").exists());
}
