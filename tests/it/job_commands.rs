//! `exobus submit`, `run`, `jobs` and `job` against a cluster: what they print and how they end, of jobs that succeed and of jobs that do not.
//! Needs a nats-server.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Run, Running, Scratch, cluster::PATIENCE, command, exobus, finish};

/// A cluster of one node with one executor, records to sort, and a file of one record and a half.
struct Cluster {
    scratch: Scratch,
    dev: Running,
    url: String,
}

impl Cluster {
    fn start() -> Self {
        let scratch = Scratch::new();
        exobus(&["generate", "--records", "5000", "--files", "2", &scratch.text("in")]).expect(0, &[]);
        fs::write(scratch.path("torn"), [1; 150]).unwrap();
        let folder = scratch.text("cluster");
        let dev = ["dev", "--nodes", "1", "--port", "0", "--memory", "256MiB", "--executors", "1", "--dir", &folder];
        let mut dev = Running::start(command(&dev));
        let url = dev.ready_at("nats://", PATIENCE);
        Self { scratch, dev, url }
    }

    fn run(&self, args: &[&str]) -> Run {
        exobus(&[args, &["--cluster", &self.url]].concat())
    }

    /// A spec of a sort.
    fn sort(&self, input: &str, output: &str) -> String {
        let (input, output) = (self.scratch.text(input), self.scratch.text(output));
        let text =
            format!("kind = \"sort\"\nname = \"mine\"\ninputs = [{input:?}]\noutput = {output:?}\npartitions = 2\n");
        self.written("job.toml", &text)
    }

    fn written(&self, name: &str, text: &str) -> String {
        fs::write(self.scratch.path(name), text).unwrap();
        self.scratch.text(name)
    }

    fn end(self) {
        self.dev.signal(Signal::INT);
        let (code, said) = self.dev.end(PATIENCE);
        assert_eq!(code, Some(0), "{said:#?}");
    }
}

/// The job of a line "job <id>", or "job <id>: <state>".
#[track_caller]
fn job_of(text: &str) -> String {
    let id = text.lines().find_map(|line| line.strip_prefix("job ")).unwrap_or_else(|| panic!("no job: {text:?}"));
    let id = id.split(':').next().unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{text:?}");
    id
}

/// Whether a fact of a job's status stands in a line of its own.
fn says(run: &Run, name: &str, value: &str) -> bool {
    run.stdout.lines().any(|line| line.strip_prefix(&format!("  {name:<10} ")).is_some_and(|said| said == value))
}

fn records(folder: &Path) -> usize {
    let parts = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let parts = parts.filter(|entry| entry.file_name().to_string_lossy().starts_with("part-"));
    parts.map(|entry| entry.metadata().unwrap().len() as usize).sum::<usize>() / 100
}

#[test]
fn a_job_is_handed_in_and_waited_for_and_says_what_it_did() {
    let cluster = Cluster::start();
    let spec = cluster.sort("in", "out-1");
    // Nobody waits: its id is printed, and it is known by that.
    let run = cluster.run(&["submit", &spec]);
    run.expect(0, &[]);
    let job = job_of(&run.stdout);
    assert_eq!(run.stdout, format!("job {job}: queued\n"));
    cluster.run(&["job", &job, "watch"]).expect(0, &[]);
    assert_eq!(records(&cluster.scratch.path("out-1")), 5000);

    // With and without a view of how far it comes, the end is the same.
    for (number, how) in [(2, "--wait"), (3, "--follow")] {
        let output = cluster.scratch.text(&format!("out-{number}"));
        let run = cluster.run(&["submit", &spec, how, "--set", &format!("output={output}")]);
        run.expect(0, &[]);
        let job = job_of(&run.stderr);
        assert_eq!(job_of(&run.stdout), job);
        assert!(run.stdout.starts_with(&format!("job {job}: succeeded\n")), "{how}: {run:#?}");
        for (name, value) in [("kind", "sort"), ("name", "mine"), ("host", "n1")] {
            assert!(says(&run, name, value), "{how}: {name}: {run:#?}");
        }
        assert_eq!(records(&cluster.scratch.path(&format!("out-{number}"))), 5000);
        let run = cluster.run(&["job", &job, "status"]);
        run.expect(0, &[]);
        assert!(run.stdout.starts_with(&format!("job {job}: succeeded\n")) && says(&run, "kind", "sort"), "{run:#?}");
    }
    let output = cluster.scratch.text("out-4");
    let run = cluster.run(&["submit", &spec, "--wait", "--json", "--set", &format!("output={output}")]);
    run.expect(0, &[]);
    let told = run.json();
    let last = told["job"].as_str().unwrap();
    assert_eq!(
        (&told["state"], &told["kind"], last),
        (&json!("succeeded"), &json!("sort"), job_of(&run.stderr).as_str())
    );

    // What is known of it: its state, what its program returned, what has happened.
    let status = cluster.run(&["job", last, "status", "--json"]).json();
    assert_eq!((&status["state"], &status["name"]), (&json!("succeeded"), &json!("mine")), "{status}");
    let result = cluster.run(&["job", last, "result"]);
    result.expect(0, &[]);
    assert_eq!(result.json()["rows"], 5000, "{result:#?}");
    let result = cluster.run(&["job", last, "result", "--json"]).json();
    assert_eq!((&result["job"], &result["value"]["rows"]), (&json!(last), &json!(5000)));
    let run = cluster.run(&["job", last, "events"]);
    run.expect(0, &[]);
    let events: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<_> = events.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.len() > 2, "{numbers:?}");
    assert!(events[0]["kind"].get("JobStarted").is_some(), "{}", events[0]);
    let end = &events.last().unwrap()["kind"]["JobFinished"];
    assert!(end.is_object() && end["error"].is_null(), "{end}");

    lists_of_jobs(&cluster);
    // A few digits stand for a job while they are those of one only; ids of a moment begin alike.
    cluster.run(&["job", &last[..31], "status"]).expect(0, &[]);
    cluster.run(&["job", &last[..6], "status"]).expect(2, &["several jobs of tenant default begin with"]);
    cluster.run(&["job", &last[..5], "status"]).expect(2, &["the first six or more will do"]);
    let nobody = "0123456789abcdef0123456789abcdef";
    for question in ["status", "result", "events", "watch"] {
        cluster.run(&["job", nobody, question]).expect(2, &[&format!("tenant default has no job {nobody}")]);
    }
    cluster.end();
}

/// Four jobs are over, all of which have succeeded.
fn lists_of_jobs(cluster: &Cluster) {
    let lines = |args: &[&str]| {
        let run = cluster.run(&[&["jobs"], args].concat());
        run.expect(0, &[]);
        let lines: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
        (lines, run.stderr)
    };
    let nothing = (vec!["no jobs".to_owned()], String::new());
    assert_eq!(lines(&[]), nothing, "none is under way");
    for state in ["queued", "running", "failed", "cancelled"] {
        assert_eq!(lines(&["--state", state]), nothing, "{state}");
    }
    for all in [&["--all"][..], &["--state", "succeeded"], &["--all", "--limit", "4"]] {
        let (found, more) = lines(all);
        assert_eq!((found.len(), more.as_str()), (4, ""), "{all:?}: {found:#?}");
        for line in &found {
            assert!(line.contains("  succeeded  sort \"mine\" on n1, submitted "), "{line}");
        }
        assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "the latest first: {found:#?}");
    }
    let (found, more) = lines(&["--state", "succeeded", "--limit", "3"]);
    assert_eq!((found.len(), more.as_str()), (3, "there are more; --limit 30 shows as many\n"));
    let told = cluster.run(&["jobs", "--all", "--limit", "3", "--json"]).json();
    assert_eq!((told["jobs"].as_array().unwrap().len(), told["next"].is_string()), (3, true), "{told}");
    cluster.run(&["jobs", "--state", "done"]).expect(2, &["succeeded, failed, cancelled is what a job can be"]);
    cluster.run(&["jobs", "--limit", "0"]).expect(2, &["--limit"]);
}

#[test]
fn a_program_is_run_with_parameters_of_a_file_or_of_stdin() {
    let cluster = Cluster::start();
    let params = json!({ "inputs": [cluster.scratch.text("in")], "partitions": 4 }).to_string();
    let file = cluster.written("params.json", &params);
    let run = cluster.run(&["run", "sort.explain", &file]);
    run.expect(0, &[]);
    let first = job_of(&run.stdout);
    assert_eq!(run.stdout, format!("job {first}: queued\n"));
    cluster.run(&["job", &first, "watch"]).expect(0, &[]);
    let run = cluster.run(&["run", "sort.explain@1", &file, "--wait"]);
    run.expect(0, &[]);
    let second = job_of(&run.stderr);
    assert!(run.stdout.starts_with(&format!("job {second}: succeeded\n")), "{run:#?}");
    assert!(says(&run, "kind", "sort.explain@1"), "{run:#?}");
    let mut from_stdin = command(&["run", "sort.explain", "-", "--wait", "--cluster", &cluster.url]);
    from_stdin.stdin(fs::File::open(&file).unwrap());
    let run = finish(from_stdin);
    run.expect(0, &[]);
    for job in [&first, &second, &job_of(&run.stderr)] {
        let result = cluster.run(&["job", job, "result"]);
        result.expect(0, &[]);
        let told = (&result.json()["input_bytes"], &result.json()["plan"]["partitions"]);
        assert_eq!(told, (&json!(500_000), &json!(4)), "{result:#?}");
    }
    // Without parameters, too.
    cluster.run(&["run", "bench.job", "--wait"]).expect(0, &[]);

    // What cannot be run is no job.
    let wrong = cluster.written("wrong.json", &params.replace(":4", ":\"many\""));
    cluster.run(&["run", "sort.explain", &wrong]).expect(2, &["params: ", "expected u32"]);
    cluster
        .run(&["run", "sort.explian", &file])
        .expect(2, &["there is no kind of job `sort.explian`", "`sort.explain`?"]);
    let broken = cluster.written("broken.json", "{\"inputs\": ");
    cluster.run(&["run", "sort.explain", &broken]).expect(2, &["broken.json: ", "EOF while parsing"]);
    cluster.run(&["run", "sort.explain", &cluster.scratch.text("nothing.json")]).expect(3, &["nothing.json"]);
    let listed = cluster.run(&["jobs", "--all", "--json"]).json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 4, "{listed}");
    cluster.end();
}

#[test]
fn a_job_that_fails_or_is_cancelled_ends_the_command_that_waits_for_it_with_its_code() {
    let cluster = Cluster::start();
    // Its input is wrong: half a record.
    let spec = cluster.sort("torn", "out");
    let run = cluster.run(&["submit", &spec, "--wait"]);
    run.expect(1, &["error: ", "torn", "offset 100"]);
    let failed = job_of(&run.stderr);
    assert!(run.stdout.starts_with(&format!("job {failed}: failed\n")), "{run:#?}");
    assert!(!cluster.scratch.path("out").exists());
    // Its input is not there, and a program as well says so.
    let missing = json!({ "inputs": [cluster.scratch.text("missing")] }).to_string();
    let run = cluster.run(&["run", "sort.explain", &cluster.written("missing.json", &missing), "--follow"]);
    run.expect(3, &["missing"]);
    let without = job_of(&run.stderr);
    assert!(run.stdout.starts_with(&format!("job {without}: failed\n")), "{run:#?}");
    // Whoever hands one in and goes has done what he wanted.
    let run = cluster.run(&["submit", &spec, "--json"]);
    run.expect(0, &[]);
    let later = run.json()["job"].as_str().unwrap().to_owned();
    cluster.run(&["job", &later, "watch"]).expect(1, &["offset 100"]);

    // Asked afterwards, too. That a question is answered is a success, but there is no result of a job that failed.
    for (job, code, words) in [(&failed, 1, "offset 100"), (&without, 3, "missing"), (&later, 1, "offset 100")] {
        let run = cluster.run(&["job", job, "status"]);
        run.expect(0, &[]);
        assert!(run.stdout.starts_with(&format!("job {job}: failed\n")), "{run:#?}");
        let error = run.stdout.lines().find(|line| line.starts_with("  error ")).unwrap_or_else(|| panic!("{run:#?}"));
        assert!(error.contains(words), "{error}");
        let status = cluster.run(&["job", job, "status", "--json"]).json();
        assert_eq!((&status["state"], &status["error"]["code"]), (&json!("failed"), &json!("task_failed")), "{status}");
        let result = cluster.run(&["job", job, "result"]);
        result.expect(code, &[words]);
        assert_eq!(result.stdout, "");
        let run = cluster.run(&["job", job, "events"]);
        run.expect(0, &[]);
        let last: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
        assert!(last["kind"]["JobFinished"]["error"].as_str().unwrap().contains(words), "{last}");
    }

    // One that would go on for long has no result yet, and then somebody ends it.
    let params = cluster
        .written("long.json", &json!({ "what": { "Shuffle": { "maps": 100_000, "partitions": 1000 } } }).to_string());
    let mut waiting = Running::start(command(&["run", "bench", &params, "--wait", "--cluster", &cluster.url]));
    let line = waiting.wait_for("job ", PATIENCE).unwrap_or_else(|| panic!("{:#?}", waiting.seen));
    let long = job_of(&line);
    let result = cluster.run(&["job", &long, "result"]);
    result.expect(2, &["it has returned nothing yet"]);
    let listed = cluster.run(&["jobs"]);
    assert!(listed.stdout.starts_with(&long) && listed.stdout.lines().count() == 1, "{listed:#?}");
    let run = cluster.run(&["job", &long, "cancel"]);
    run.expect(0, &[]);
    assert_eq!(run.stdout, format!("job {long}: cancelled\n"));
    let (code, said) = waiting.end(PATIENCE);
    assert_eq!(code, Some(5), "{said:#?}");
    assert!(said.contains(&format!("job {long}: cancelled")), "{said:#?}");
    cluster.run(&["job", &long, "result"]).expect(5, &["cancelled"]);
    // It is over, and stays what it is.
    assert_eq!(cluster.run(&["job", &long, "cancel"]).expect(0, &[]).stdout, format!("job {long}: cancelled\n"));

    let ids = |state: &str| {
        let jobs = cluster.run(&["jobs", "--state", state, "--json"]).json()["jobs"].as_array().unwrap().clone();
        jobs.iter().map(|job| job["job"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((ids("failed"), ids("cancelled")), (vec![later, without, failed], vec![long]));
    assert_eq!(ids("succeeded"), [""; 0]);
    let listed = cluster.run(&["jobs", "--state", "failed"]).stdout;
    assert!(listed.lines().all(|line| line.contains("ago: ") && line.contains("  failed ")), "{listed}");
    cluster.end();
}
