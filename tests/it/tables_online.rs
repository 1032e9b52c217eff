//! `group --online` as a command: what is shown before everything was read, and that the answer is that of `group`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::support::{
    Run, Scratch,
    cluster::{Cluster, watched},
    command, finish, names, parts,
};
use crate::tables::alone;

const FILES: usize = 80;
const ROWS: usize = 300;

/// Sales in four cities, in as many blocks as there are files.
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

fn args<'a>(input: &'a str, output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let said = ["group", input, "--output", output, "--by", "city", "--agg", "count(*) as n, sum(price), avg(price)"];
    [&said[..], more].concat()
}

fn run(scratch: &Scratch, output: &str, more: &[&str]) -> Run {
    let (input, output) = (scratch.text("in"), scratch.text(output));
    finish(alone(scratch, &args(&input, &output, more)))
}

fn file(folder: &Path) -> String {
    assert_eq!(parts(folder).len(), 1, "{:?}", names(folder));
    fs::read_to_string(folder.join("part-00000.csv")).unwrap()
}

#[test]
fn looks_are_lines_of_json_and_the_answer_is_that_of_a_group() {
    let scratch = sales();
    run(&scratch, "batch", &[]).expect(0, &[]);
    let expected = file(&scratch.path("batch"));
    let told = run(&scratch, "out", &["--online", "--json", "--seed", "3"]);
    told.expect(0, &[]);
    assert_eq!(file(&scratch.path("out")), expected);
    let mut lines: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!((&summary["rows"], &summary["rows_out"]), (&(FILES * ROWS).into(), &3.into()));
    assert_eq!(summary["snapshots"], lines.len());
    let answer = lines.last().unwrap();
    assert_eq!(
        (&answer["final"], &answer["blocks"], &answer["groups"][0]["key"][0]),
        (&true.into(), &FILES.into(), &"lima".into())
    );
    let before = &lines[lines.len() - 2]["groups"][0]["values"][0];
    let (low, high) = (before["low"].as_f64().unwrap(), before["high"].as_f64().unwrap());
    let exact = answer["groups"][0]["values"][0]["estimate"].as_f64().unwrap();
    assert!(low < exact && exact < high && before["kind"] == "approximate", "{before} {exact}");
    // For people.
    let told = run(&scratch, "people", &["--online"]);
    told.expect(
        0,
        &[
            "2 of 80 blocks (2.5 %) in ",
            " s, 3 groups, no bounds yet",
            "all blocks (100.0 %) in ",
            " s, 3 groups, exact",
        ],
    );
    assert!(
        told.stdout.contains("everything was read: the answer is exact") && told.stdout.contains("│ sum(price)"),
        "{}",
        told.stdout
    );
}

#[test]
fn a_query_that_knows_enough_ends_and_its_folder_is_free() {
    let scratch = sales();
    let told = run(&scratch, "out", &["--online", "--until", "error=20%"]);
    told.expect(0, &[]);
    assert!(
        told.stdout.contains("error=20% was met") && told.stdout.contains("nothing was written"),
        "{}",
        told.stdout
    );
    assert!(names(&scratch.path("out")).is_empty());
    let summary = run(&scratch, "out", &["--online", "--until", "time=1ms", "--json"]).expect(0, &[]).stdout.clone();
    let last: Value = serde_json::from_str(summary.lines().last().unwrap()).unwrap();
    assert!(last["blocks_seen"].as_u64().unwrap() < FILES as u64 && last["ended"] == "time=1ms was over", "{last}");
    run(&scratch, "out", &["--online", "--until", "error=1%:guaranteed"]).expect(0, &[]);
    assert_eq!(parts(&scratch.path("out")).len(), 1, "everything was read");
    let refused = run(&scratch, "more", &["--online", "--until", "soon"]);
    refused.expect(2, &["\"soon\" is nothing to wait for"]);
    run(&scratch, "more", &["--until", "error=1%"]).expect(2, &["--online"]);
}

#[test]
fn a_query_that_is_killed_among_its_looks_goes_on_to_the_same_answer() {
    let scratch = sales();
    run(&scratch, "batch", &[]).expect(0, &[]);
    let (input, output, spill) = (scratch.text("in"), scratch.text("out"), scratch.text("spill"));
    let mut killed = false;
    let command =
        alone(&scratch, &args(&input, &output, &["--online", "--json", "--spill", &spill, "--executors", "1"]));
    let (told, events) = watched(&scratch, command, |events, pid| {
        if !killed && events.finished("query.look") >= 3 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, told.code), (true, None), "{} looks: {told:#?}", events.finished("query.look"));
    let told = finish(alone(&scratch, &["resume", "--json", "--spill", &spill]));
    told.expect(0, &[]);
    assert_eq!(file(&scratch.path("out")), file(&scratch.path("batch")));
    let shown: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown[shown.len() - 2]["final"], true, "{:#?}", told.stdout);
}

#[test]
fn a_query_of_a_cluster_that_loses_a_node_is_answered_and_anybody_may_ask_how_it_stands() {
    let mut cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    run(&cluster.scratch, "batch", &[]).expect(0, &[]);
    let (input, output) = (cluster.scratch.text("in"), cluster.scratch.text("out"));
    let mut killed = None;
    let dev = cluster.scratch.path("cluster");
    let (told, _) = cluster.run(&args(&input, &output, &["--online", "--json"]), |events, _| {
        let Some(host) = events.host().filter(|_| killed.is_none() && events.finished("query.look") >= 2) else {
            return;
        };
        let other = ["n1", "n2", "n3"].into_iter().find(|node| *node != host).unwrap();
        let node = crate::support::node_process(&dev.join(format!("{other}.toml")));
        kill_process(node, Signal::KILL).unwrap();
        killed = Some(other);
    });
    told.expect(0, &[]);
    assert_eq!(file(Path::new(&output)), file(&cluster.scratch.path("batch")), "{killed:?}");
    cluster.wait_until_back(killed.expect("a node was killed"));
    // Whoever comes late has the last snapshot at once.
    let mut jobs = command(&["jobs", "--all", "--json", "--cluster", &cluster.url]);
    let jobs: Value = serde_json::from_slice(&jobs.stdout(Stdio::piped()).output().unwrap().stdout).unwrap();
    let job = jobs["jobs"][0]["job"].as_str().unwrap().to_owned();
    let mut asks = command(&["job", &job, "estimate", "--json", "--cluster", &cluster.url]);
    let said = asks.stdout(Stdio::piped()).output().unwrap().stdout;
    let line = BufReader::new(&said[..]).lines().next().unwrap().unwrap();
    let shown: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&shown["final"], &shown["groups_seen"]), (&true.into(), &3.into()), "{line}");
    cluster.end();
}
