//! Jobs over tables on one node and on three, with little, more and plenty of memory, by several strategies, with nothing happening and with a process that is killed: what stands
//! in the output folder is the same, byte by byte. The three nodes need a nats-server.

use std::{fmt::Write as _, fs, path::Path};

use exobus::shuffle::Strategy;
use rustix::process::{Signal, kill_process};

use crate::support::{
    self, Scratch,
    cluster::{Cluster, Events, watched},
    exobus,
};
use crate::tables::alone;

/// Of each node, the first of which is less than the rows take: of 64 MiB the store has 32.
const MEMORIES: [&str; 3] = ["64MiB", "96MiB", "160MiB"];
const STRATEGIES: [Strategy; 3] = [Strategy::Simple, Strategy::Push, Strategy::TwoStage];
const ROWS: u64 = 20_000;
const ROWS_OF_FILE: u64 = ROWS / 4;
/// Bytes of the text of a row, 40 MB of all rows.
const NOTE_BYTES: usize = 2_000;
/// How often a job is run at most until a node dies before its end.
const TRIES: usize = 12;

/// A command over the table.
struct Verb {
    name: &'static str,
    files: &'static str,
    more: &'static [&'static str],
    /// The stage that reads the table, and the one that writes files.
    stages: [&'static str; 2],
}

/// Of many files: one that is converted takes little time, and what dies is to be missed before all are.
const CONVERT: Verb = Verb { name: "convert", files: "120", more: &[], stages: ["table.convert"; 2] };
const VERBS: [Verb; 3] = [
    Verb { name: "sort", files: "24", more: &["--key", "city,ts:desc"], stages: STAGES },
    Verb { name: "shuffle", files: "24", more: &["--seed", "7"], stages: STAGES },
    Verb {
        name: "dedupe",
        files: "24",
        more: &["--key", "city,ts", "--keep", "last", "--order-by", "price"],
        stages: STAGES,
    },
];
const STAGES: [&str; 2] = ["table.map", "table.reduce"];

/// What a folder has: names and bytes of its files, and its manifest, which is of the job that made it.
#[derive(PartialEq)]
struct Made(Vec<(String, Vec<u8>)>, serde_json::Value);

impl Made {
    fn of(folder: &Path) -> Self {
        let mut manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.join("_exobus.json")).unwrap()).unwrap();
        manifest.as_object_mut().unwrap().remove("job").expect("a manifest names its job");
        let files = support::parts(folder).into_iter();
        Self(files.map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect(), manifest)
    }
}

/// Four files of text, made one of Parquet each: a third of all rows has one city, some have none, and rows of one city and time are many.
fn write_table(scratch: &Scratch) {
    let text = scratch.path("text");
    fs::create_dir(&text).unwrap();
    let note = "what somebody wrote about it. ".repeat(NOTE_BYTES / 30);
    for file in 0..ROWS / ROWS_OF_FILE {
        let mut lines = String::from("id,city,ts,price,ok,day,note\n");
        for id in file * ROWS_OF_FILE..(file + 1) * ROWS_OF_FILE {
            let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let city = match mixed % 12 {
                0 => String::new(),
                1..=4 => "\"the largest, by far\"".to_owned(),
                _ => format!("city {}", mixed % 151),
            };
            let price = if mixed % 7 == 0 { String::new() } else { format!("{}.5", mixed % 1000) };
            let (ts, ok, day) = (mixed % 97, mixed % 2 == 0, 1 + mixed % 28);
            writeln!(lines, "{id},{city},{ts},{price},{ok},2024-02-{day:02},{mixed} {note}").unwrap();
        }
        fs::write(text.join(format!("{file}.csv")), lines).unwrap();
    }
    let rows = ROWS_OF_FILE.to_string();
    let args = ["--format", "parquet", "--rows-per-file", &rows, "--row-group-rows", "500", "--compression", "zstd"];
    exobus(&[&["convert", &scratch.text("text"), "--output", &scratch.text("table")], &args[..]].concat())
        .expect(0, &[]);
    assert_eq!(support::parts(&scratch.path("table")).len(), 4);
}

/// One verb done in one way.
struct Case<'a> {
    verb: &'a Verb,
    strategy: Option<Strategy>,
    memory: &'static str,
}

impl<'a> Case<'a> {
    fn of(verb: &'a Verb, memory: &'static str) -> Vec<Self> {
        let strategies = match verb.name {
            // No row goes anywhere.
            "convert" => vec![None],
            _ => STRATEGIES.map(Some).to_vec(),
        };
        strategies.into_iter().map(|strategy| Self { verb, strategy, memory }).collect()
    }

    fn args(&self, scratch: &Scratch) -> Vec<String> {
        let mut args = arguments(self.verb, scratch, "out");
        args.extend(self.strategy.into_iter().flat_map(|of| ["--strategy".to_owned(), of.name().to_owned()]));
        args
    }

    /// The command in this process, whose log is kept.
    fn alone(&self, scratch: &Scratch) -> std::process::Command {
        let mut args = self.args(scratch);
        args.extend(["--memory", self.memory, "--executors", "2", "--spill"].map(str::to_owned));
        args.push(scratch.text("spill"));
        alone(scratch, &texts(&args))
    }

    /// What was made is what was made with plenty of memory, and the summary says what it is to say; the folder is gone then.
    fn check(&self, scratch: &Scratch, (summary, nodes): (&serde_json::Value, u64)) {
        let Self { verb, strategy, memory } = self;
        let case = format!("{} {strategy:?} {memory} on {nodes} nodes: {summary}", verb.name);
        let said = strategy.map_or("", Strategy::name);
        assert_eq!((&summary["strategy"], &summary["rows"]), (&said.into(), &ROWS.into()), "{case}");
        assert_eq!((&summary["nodes"], &summary["row_hash_in"]), (&nodes.into(), &summary["row_hash_out"]), "{case}");
        assert!(!self.spills() || summary["spilled_bytes"].as_u64() > Some(0), "{case}");
        assert!(Made::of(&scratch.path("out")) == Made::of(&scratch.path(verb.name)), "{case}");
        fs::remove_dir_all(scratch.path("out")).unwrap();
    }

    /// Whether its rows are more than a node has memory for.
    fn spills(&self) -> bool {
        self.memory == MEMORIES[0] && self.verb.name != "convert"
    }
}

fn arguments(verb: &Verb, scratch: &Scratch, output: &str) -> Vec<String> {
    let (input, output) = (scratch.text("table"), scratch.text(output));
    let args = [verb.name, &input, "--output", &output, "--files", verb.files, "--row-group-rows", "200", "--json"];
    args.iter().chain(verb.more).map(|arg| (*arg).to_owned()).collect()
}

fn texts(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The table, and what each verb makes of it with plenty of memory.
fn prepare(scratch: &Scratch) {
    write_table(scratch);
    for verb in VERBS.iter().chain([&CONVERT]) {
        let run = support::with_own_spill(scratch, &texts(&arguments(verb, scratch, verb.name)));
        let summary = run.expect(0, &[]).json();
        assert_eq!(summary["rows"], ROWS, "{}", verb.name);
        let stay = summary["rows_out"].as_u64().unwrap();
        let is_less = verb.name == "dedupe";
        assert!(if is_less { (1_000..ROWS).contains(&stay) } else { stay == ROWS }, "{}: {summary}", verb.name);
    }
}

fn cases(memory: &'static str) -> impl Iterator<Item = Case<'static>> {
    VERBS.iter().chain([&CONVERT]).flat_map(move |verb| Case::of(verb, memory))
}

/// Those in which something dies: each verb by one strategy, another one with each memory and for each verb, so that any two of the three are there together.
fn cases_of_faults(memory: &'static str) -> impl Iterator<Item = Case<'static>> {
    let of_memory = MEMORIES.iter().position(|other| *other == memory).expect("one of them");
    let verbs = VERBS.iter().chain([&CONVERT]).enumerate();
    verbs.map(move |(number, verb)| {
        let mut cases = Case::of(verb, memory);
        cases.swap_remove((of_memory + number) % cases.len())
    })
}

#[test]
fn one_node() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for case in MEMORIES.into_iter().flat_map(cases) {
        let summary = support::finish(case.alone(&scratch)).expect(0, &[]).json();
        case.check(&scratch, (&summary, 1));
    }
}

/// With little memory it is killed among those that read, else among those that write.
fn stage_of(case: &Case<'_>) -> &'static str {
    case.verb.stages[usize::from(case.memory != MEMORIES[0])]
}

#[test]
fn one_node_whose_process_is_killed_and_resumed() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for case in MEMORIES.into_iter().flat_map(cases_of_faults) {
        let mut killed = false;
        let (run, _) = watched(&scratch, case.alone(&scratch), |events, pid| {
            if !killed && events.finished(stage_of(&case)) >= 1 {
                kill_process(pid, Signal::KILL).unwrap();
                killed = true;
            }
        });
        assert_eq!((killed, run.code), (true, None), "{run:#?}");
        assert!(!scratch.path("out/_exobus.json").exists(), "it was killed before its end");
        let command = alone(&scratch, &["resume", "--json", "--spill", &scratch.text("spill")]);
        let (run, _) = watched(&scratch, command, |_, _| {});
        case.check(&scratch, (&run.expect(0, &[]).json(), 1));
    }
}

/// Whether the job heard behind so many events that this node died, or that there is another process of it.
fn heard_of_its_end(events: &Events, before: usize) -> bool {
    let of_node = events.0[before..].iter().filter_map(|event| event["kind"].get("Node"));
    of_node.into_iter().any(|event| event["about"] == "n3" && (event["state"] == "Dead" || event["state"] == "Up"))
}

/// Three nodes of so much memory each; a node that is killed is started again.
fn three_nodes(memory: &'static str) {
    let scratch = Scratch::new();
    prepare(&scratch);
    let mut cluster = Cluster::of(scratch, &["--memory", memory, "--on-loss", "restart"]);
    // Before any node dies: who is started again is heard of a while later.
    for case in cases(memory) {
        let (run, _) = cluster.run(&texts(&case.args(&cluster.scratch)), |_, _| {});
        case.check(&cluster.scratch, (&run.expect(0, &[]).json(), 3));
    }
    for case in cases_of_faults(memory) {
        let has_died = (0..TRIES).any(|before| is_killed(&mut cluster, &case, before));
        assert!(has_died, "{} {:?}: no node died while the job was at work", case.verb.name, case.strategy);
    }
    cluster.end();
}

/// Runs it, and kills a node when it has done something of it; whether the job heard of that before its end. `tries`: how often it did not, so that on a fast machine it is killed early every other time.
fn is_killed(cluster: &mut Cluster, case: &Case<'_>, tries: usize) -> bool {
    let mut killed = None;
    let (run, events) = cluster.run(&texts(&case.args(&cluster.scratch)), |events, _| {
        let is_due = case.verb.stages.iter().any(|stage| events.finished_on("n3", stage));
        if killed.is_none() && is_due && (tries % 2 == 1 || events.finished(stage_of(case)) >= 1) {
            cluster.kill("n3");
            killed = Some(events.0.len());
        }
    });
    let summary = run.expect(0, &[]).json();
    assert!(summary["nodes"].as_u64() >= Some(2), "{summary}");
    case.check(&cluster.scratch, (&summary, summary["nodes"].as_u64().unwrap()));
    killed.is_some_and(|before| {
        cluster.wait_until_back("n3");
        heard_of_its_end(&events, before)
    })
}

#[test]
fn three_nodes_with_little_memory() {
    three_nodes(MEMORIES[0]);
}

#[test]
fn three_nodes_with_more_memory() {
    three_nodes(MEMORIES[1]);
}

#[test]
fn three_nodes_with_plenty_of_memory() {
    three_nodes(MEMORIES[2]);
}
