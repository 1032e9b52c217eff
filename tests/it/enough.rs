//! Queries that answer early and are told that enough was seen, or to go on, as commands.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use exobus_store::{Clock as _, SystemClock};
use serde_json::Value;

use crate::support::{Scratch, cluster::Cluster, command, exobus, finish, names, parts};
use crate::tables::alone;

const FILES: usize = 120;
const ROWS: usize = 20_000;

/// Sales in four cities, in as many blocks as there are files: it takes a while to read them all.
fn sales() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    for file in 0..FILES {
        let row = |row: usize| {
            let mixed = (file * ROWS + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            format!("{},{}.5\n", ["oslo", "rome", "lima", "oslo"][mixed % 4], mixed % 100)
        };
        let rows: String = (0..ROWS).map(row).collect();
        fs::write(scratch.path(&format!("in/{file:02}.csv")), format!("city,price\n{rows}")).unwrap();
    }
    scratch
}

fn group<'a>(input: &'a str, output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let said = ["group", input, "--output", output, "--by", "city", "--agg", "count(*) as n, sum(price), avg(price)"];
    [&said[..], more].concat()
}

fn file(folder: &Path) -> String {
    assert_eq!(parts(folder).len(), 1, "{:?}", names(folder));
    fs::read_to_string(folder.join("part-00000.csv")).unwrap()
}

/// The tasks of a timeline that have read blocks.
fn maps(timeline: &Path) -> BTreeSet<String> {
    let drawn: Value = serde_json::from_slice(&fs::read(timeline).unwrap()).unwrap();
    let events = drawn["traceEvents"].as_array().or(drawn.as_array()).unwrap();
    let are_maps = events.iter().filter(|event| event["cat"] == "task" && event["name"] == "query.map");
    are_maps.map(|event| event["args"]["task"].as_str().unwrap().to_owned()).collect()
}

/// What a command prints, line by line, as it comes.
struct Lines {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl Lines {
    fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdout }
    }

    /// The next line, of JSON.
    #[track_caller]
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut said = String::new();
            self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{error}: {line:?}, {said}")
        })
    }

    /// The last line, and what was said beside it; the command ends well.
    #[track_caller]
    fn end(mut self) -> (Value, String) {
        let (mut rest, mut said) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{said}");
        (serde_json::from_str(rest.lines().last().unwrap()).unwrap(), said)
    }
}

/// The job of a cluster that was handed in last.
fn latest(cluster: &Cluster) -> String {
    let jobs = exobus(&["jobs", "--all", "--json", "--cluster", &cluster.url]).expect(0, &[]).json();
    jobs["jobs"][0]["job"].as_str().unwrap().to_owned()
}

#[test]
fn a_query_of_a_cluster_ends_when_somebody_says_that_it_is_enough() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let (input, output) = (cluster.scratch.text("in"), cluster.scratch.text("out"));
    let on = ["--online", "--json", "--cluster", &cluster.url];
    let mut lines = Lines::of(command(&group(&input, &output, &on)));
    lines.next();
    let job = latest(&cluster);
    let tell = |word: &str| exobus(&["job", &job, word, "--cluster", &cluster.url]);
    let clock = SystemClock::new();
    let began = clock.now();
    assert_eq!(tell("enough").expect(0, &[]).stdout, format!("job {job} was told that enough was seen\n"));
    tell("enough").expect(0, &[]);
    let (summary, _) = lines.end();
    let took = clock.now() - began;
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(summary["ended"], "it was stopped", "{summary}");
    assert!(summary["blocks_seen"].as_u64().unwrap() < FILES as u64, "{summary}");
    assert!(names(Path::new(&output)).is_empty());
    assert_eq!(exobus(&["job", &job, "status", "--json", "--cluster", &cluster.url]).json()["state"], "succeeded");
    tell("go-on").expect(2, &["is over: it has succeeded, and hears nothing any more"]);
    // Of others it is said why it is of no use.
    let tell = |job: &str| exobus(&["job", job, "enough", "--cluster", &cluster.url]);
    tell("0123456789abcdef0123456789abcdef").expect(2, &["has no job 0123456789abcdef"]);
    let spec = r#"{"kind": "bench", "params": {"what": {"Shuffle": {"maps": 100000, "partitions": 1000}}}}"#;
    fs::write(cluster.scratch.path("long.json"), spec).unwrap();
    exobus(&["submit", &cluster.scratch.text("long.json"), "--cluster", &cluster.url]).expect(0, &[]);
    let long = latest(&cluster);
    while exobus(&["job", &long, "status", "--json", "--cluster", &cluster.url]).json()["state"] != "running" {}
    tell(&long).expect(2, &[&format!("job {long} does not listen: it shows nothing before its end")]);
    exobus(&["job", &long, "cancel", "--cluster", &cluster.url]).expect(0, &[]);
    cluster.end();
}

/// `script` gives a command a terminal of its own.
#[test]
fn enter_on_the_terminal_says_that_it_is_enough() {
    let scratch = sales();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let inner = alone(&scratch, &group(&input, &output, &["--online", "--executors", "1"]));
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    for (name, value) in inner.get_envs() {
        value.map(|value| script.env(name, value));
    }
    let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let (mut told, mut buffer) = (String::new(), [0; 4096]);
    // A terminal is wide enough for this only in parts, as it draws over what was there.
    while !told.contains("that is enough") {
        let read = stdout.read(&mut buffer).unwrap();
        assert!(read > 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    stdin.write_all(b"\n").unwrap();
    stdout.read_to_string(&mut told).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("it was stopped") && told.contains("nothing was written"), "{told}");
    assert!(names(Path::new(&output)).is_empty());
}

#[test]
fn a_query_that_a_cluster_keeps_goes_on_to_the_exact_answer() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let scratch = &cluster.scratch;
    finish(alone(scratch, &group(&scratch.text("in"), &scratch.text("batch"), &[]))).expect(0, &[]);
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let on = ["--online", "--json", "--cluster", &cluster.url];
    let stops = [&on[..], &["--until", "time=1ms", "--keep-for", "10min"]].concat();
    let (summary, said) = Lines::of(command(&group(&input, &output, &stops))).end();
    assert_eq!(summary["ended"], "time=1ms was over", "{summary}");
    let job = summary["kept_job"].as_str().unwrap().to_owned();
    let hint = format!("to go on to the exact answer: exobus group --continue {job} --cluster {}\n", cluster.url);
    assert!(said.ends_with(&hint), "{said}");
    let status = || exobus(&["job", &job, "status", "--json", "--cluster", &cluster.url]).json()["state"].clone();
    assert_eq!(status(), "running");
    // Whoever looks at it sees why it stands still.
    let shown = Lines::of(command(&["job", &job, "estimate", "--json", "--cluster", &cluster.url])).next();
    assert!(shown["stopped"]["met"]["time"].is_object(), "{shown}");
    let goes_on = |job: &str| command(&["group", "--continue", job, "--json", "--cluster", &cluster.url]);
    let (summary, _) = Lines::of(goes_on(&job[..20])).end();
    assert_eq!(summary["ended"], "everything was read: the answer is exact", "{summary}");
    assert_eq!((&summary["rows"], &summary["replayed_tasks"]), (&(FILES * ROWS).into(), &Value::Null));
    assert_eq!(file(Path::new(&output)), file(&scratch.path("batch")));
    assert_eq!(status(), "succeeded");
    finish(goes_on(&job)).expect(2, &["is over: it has succeeded, and cannot go on"]);
    finish(goes_on("0123456789abcdef0123456789abcdef")).expect(2, &["has no job 0123456789abcdef"]);
    // Nobody has it go on in time.
    let output = scratch.text("later");
    let stops = [&on[..], &["--until", "time=1ms", "--keep-for", "500ms"]].concat();
    let (summary, _) = Lines::of(command(&group(&input, &output, &stops))).end();
    let job = summary["kept_job"].as_str().unwrap();
    let state = || exobus(&["job", job, "status", "--json", "--cluster", &cluster.url]).json()["state"].clone();
    while state() != "succeeded" {}
    finish(goes_on(job)).expect(2, &["is over"]);
    assert!(names(Path::new(&output)).is_empty());
    let refused = |more: &[&str], words: &str| {
        finish(command(&group(&input, &output, &[&on[..], more].concat()))).expect(2, &[words]);
    };
    refused(&["--keep", "kept"], "say for how long, as in --keep-for 10min");
    refused(&["--keep-for", "soon"], "\"soon\" is none above 0");
    cluster.end();
}

#[test]
fn sql_that_a_cluster_keeps_goes_on_to_the_exact_answer() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let (input, scratch) = (cluster.scratch.text("in"), cluster.scratch.text("steps"));
    let text =
        format!("SELECT city, count(*) AS n, sum(price) AS paid FROM '{input}' GROUP BY city ORDER BY n DESC LIMIT 2");
    let query = |more: &[&str]| {
        let said = ["query", &text, "--scratch", &scratch, "--json", "--cluster", &cluster.url];
        command(&[&said[..], more].concat())
    };
    let batch = finish(query(&[])).expect(0, &[]).json();
    let (answer, said) = Lines::of(query(&["--online", "--until", "time=1ms", "--keep-for", "10min"])).end();
    let job = answer["online"]["kept_job"].as_str().unwrap();
    assert!(said.contains(&format!("exobus query --continue {job}")), "{said}");
    let goes_on = || command(&["query", "--continue", job, "--json", "--cluster", &cluster.url]);
    let (answer, _) = Lines::of(goes_on()).end();
    assert_eq!(answer["rows"], batch["rows"], "{answer}");
    assert!(names(Path::new(&scratch)).is_empty());
    finish(goes_on()).expect(2, &["is over: it has succeeded, and cannot go on"]);
    cluster.end();
}

#[test]
fn a_query_that_a_process_keeps_in_a_folder_goes_on_in_another_process() {
    let scratch = sales();
    let (input, output, keep) = (scratch.text("in"), scratch.text("out"), scratch.text("kept"));
    finish(alone(&scratch, &group(&input, &scratch.text("batch"), &[]))).expect(0, &[]);
    let (before, behind) = (scratch.text("before.json"), scratch.text("behind.json"));
    let stops = ["--online", "--json", "--until", "time=1ms", "--keep", &keep, "--timeline", &before];
    let (summary, said) = Lines::of(alone(&scratch, &group(&input, &output, &stops))).end();
    assert_eq!(summary["ended"], "time=1ms was over", "{summary}");
    let seen = summary["blocks_seen"].as_u64().unwrap();
    assert!((1..FILES as u64).contains(&seen), "{summary}");
    let job = summary["kept_job"].as_str().unwrap().to_owned();
    assert!(said.ends_with(&format!("exobus group --continue {job}\n")), "{said}");
    assert_eq!(names(Path::new(&keep)), [format!("exobus-kept-{job}")]);
    let list = finish(alone(&scratch, &["resume", "--list"]));
    assert!(list.expect(0, &[]).stdout.starts_with(&job), "{list:?}");
    let unknown = alone(&scratch, &["group", "--continue", "0123456789abcdef0123456789abcdef"]);
    finish(unknown).expect(2, &["no job of this machine whose id begins with 0123456789abcdef"]);
    let goes_on = || alone(&scratch, &["group", "--continue", &job[..20], "--json", "--timeline", &behind]);
    let (summary, said) = Lines::of(goes_on()).end();
    assert_eq!(
        (&summary["ended"], &summary["rows"]),
        (&"everything was read: the answer is exact".into(), &(FILES * ROWS).into())
    );
    assert!(said.contains("tasks were done before the job was taken up again"), "{said}");
    let (before, behind) = (maps(Path::new(&before)), maps(Path::new(&behind)));
    assert!(!before.is_empty() && !behind.is_empty() && before.is_disjoint(&behind), "blocks were read twice: {said}");
    assert_eq!(file(Path::new(&output)), file(&scratch.path("batch")));
    assert!(!Path::new(&keep).exists());
    finish(goes_on()).expect(2, &["it is over, or never was"]);
    // Given up, it leaves nothing.
    let stops = ["--online", "--json", "--until", "time=1ms", "--keep", &keep];
    let (summary, _) = Lines::of(alone(&scratch, &group(&input, &scratch.text("more"), &stops))).end();
    let job = summary["kept_job"].as_str().unwrap();
    finish(alone(&scratch, &["resume", "--drop", job])).expect(0, &[]);
    assert!(!Path::new(&keep).exists());
    let refused = |more: &[&str], words: &str| {
        finish(alone(&scratch, &group(&input, &output, more))).expect(2, &[words]);
    };
    refused(&["--online", "--keep-for", "10min"], "say --keep DIR");
    refused(&["--keep", &keep], "--online");
    refused(&["--keep-for", "10min"], "--online");
    refused(&["--online", "--continue", job], "cannot be used with");
}

#[test]
fn a_query_of_sql_that_is_kept_prints_its_answer_when_it_goes_on() {
    let scratch = sales();
    let (input, keep, spill) = (scratch.text("in"), scratch.text("kept"), scratch.text("spill"));
    let text = format!("SELECT city, sum(price) AS paid FROM '{input}' GROUP BY city");
    let query = |more: &[&str]| alone(&scratch, &[&["query"], more, &["--spill", &spill]].concat());
    let expected = finish(query(&[&text, "--format", "csv"])).expect(0, &[]).stdout.clone();
    let told = finish(query(&[&text, "--online", "--until", "time=1ms", "--keep", &keep]));
    assert!(told.expect(0, &[]).stdout.contains("time=1ms was over"), "{told:?}");
    let job = told.stderr.rsplit("--continue ").next().unwrap().trim().to_owned();
    let told = finish(query(&["--continue", &job, "--format", "csv"]));
    assert_eq!(told.expect(0, &[]).stdout, expected);
    assert!(!Path::new(&keep).exists() && names(&scratch.path("spill")).is_empty());
    finish(query(&[&text, "--continue", &job])).expect(2, &["cannot be used with"]);
}
