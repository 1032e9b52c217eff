//! Queries that answer early and are told that enough was seen, or to go on, as commands.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

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
    let mut cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let (input, output) = (cluster.scratch.text("in"), cluster.scratch.text("out"));
    let on = ["--online", "--json", "--cluster", &cluster.url];
    let mut lines = Lines::of(command(&group(&input, &output, &on)));
    lines.next();
    let job = latest(&cluster);
    let tell = |word: &str| exobus(&["job", &job, word, "--cluster", &cluster.url]);
    let began = Instant::now();
    assert_eq!(tell("enough").expect(0, &[]).stdout, format!("job {job} was told that enough was seen\n"));
    tell("enough").expect(0, &[]);
    let (summary, _) = lines.end();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
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
