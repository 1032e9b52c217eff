//! `shuffle`, `dedupe`, `group`, `join`, `repartition` and `convert` as commands: in one process and on a cluster, and what becomes of them when something dies.

use std::path::Path;

use rustix::process::{Signal, kill_process};

use crate::support::{
    self, Scratch,
    cluster::{Cluster, watched},
    exobus,
};
use crate::tables::{ROWS, alone, files, write_table};

/// A command over the table.
struct Verb {
    name: &'static str,
    /// How often it is told the table: a join reads two.
    tables: usize,
    /// What it is told besides.
    more: &'static [&'static str],
    /// The stage whose tasks write its files, and how many of them have when something dies.
    stage: &'static str,
    tasks: usize,
    /// How many rows are written.
    rows: u64,
}

const VERBS: [Verb; 6] = [
    Verb { name: "shuffle", tables: 1, more: &["--seed", "7"], stage: "table.reduce", tasks: 3, rows: ROWS },
    Verb {
        name: "dedupe",
        tables: 1,
        more: &["--key", "city,ts", "--keep", "last", "--order-by", "id"],
        stage: "table.reduce",
        tasks: 3,
        rows: DISTINCT,
    },
    Verb {
        name: "group",
        tables: 1,
        more: &["--by", "city,ts", "--agg", "count(*), sum(id) as ids, count_distinct(id), first(id)"],
        stage: "group.write",
        tasks: 3,
        rows: DISTINCT,
    },
    Verb {
        name: "join",
        tables: 2,
        more: &["--on", "city,ts,id", "--how", "full"],
        stage: "join.reduce",
        tasks: 3,
        rows: ROWS + NO_CITY,
    },
    Verb { name: "repartition", tables: 1, more: &["--by", "city"], stage: "table.reduce", tasks: 3, rows: ROWS },
    Verb { name: "convert", tables: 1, more: &[], stage: "table.convert", tasks: 3, rows: ROWS },
];
/// Keys of the table: cities, or none, with each of the times.
const DISTINCT: u64 = 38_897;
/// Rows of the table without a city: these match none, not even themselves.
const NO_CITY: u64 = 23_075;

fn arguments<'a>(verb: &Verb, input: &'a str, output: &'a str) -> Vec<&'a str> {
    let inputs = std::iter::repeat_n(input, verb.tables);
    let all = ["--output", output, "--files", "12", "--format", "parquet", "--json"];
    std::iter::once(verb.name).chain(inputs).chain(all).chain(verb.more.iter().copied()).collect()
}

#[test]
fn a_job_over_a_table_that_is_killed_is_resumed_and_makes_the_same_files() {
    for verb in VERBS {
        let Verb { name, tables, stage, tasks, rows, .. } = verb;
        let scratch = Scratch::new();
        write_table(&scratch.path("table"));
        let (input, expected, output) = (scratch.text("table"), scratch.text("expected"), scratch.text("out"));
        let summary = support::with_own_spill(&scratch, &arguments(&verb, &input, &expected)).expect(0, &[]).json();
        let read = tables as u64 * ROWS;
        assert_eq!((&summary["rows"], &summary["rows_out"]), (&read.into(), &rows.into()), "{name}");
        let mut command = alone(&scratch, &arguments(&verb, &input, &output));
        command.args(["--memory", "128MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
        let mut killed = false;
        let (run, _) = watched(&scratch, command, |events, pid| {
            if !killed && events.finished(stage) >= tasks {
                kill_process(pid, Signal::KILL).unwrap();
                killed = true;
            }
        });
        assert_eq!((killed, run.code), (true, None), "{name}: {run:#?}");
        let command = alone(&scratch, &["resume", "--json", "--spill", &scratch.text("spill")]);
        let (run, events) = watched(&scratch, command, |_, _| {});
        let summary = run.expect(0, &[]).json();
        assert_eq!(summary["row_hash_in"], summary["row_hash_out"], "{name}");
        events.nothing_is_done_twice(stage);
        assert!(files(&scratch.path("out")) == files(Path::new(&expected)), "{name}");
    }
}

#[test]
fn a_node_that_is_killed_changes_nothing_of_what_becomes_of_a_table() {
    for verb in VERBS {
        let Verb { name, stage, tasks, .. } = verb;
        let cluster = Cluster::start("go-on");
        let scratch = &cluster.scratch;
        write_table(&scratch.path("table"));
        let (input, expected, output) = (scratch.text("table"), scratch.text("expected"), scratch.text("out"));
        support::with_own_spill(scratch, &arguments(&verb, &input, &expected)).expect(0, &[]);
        let mut killed = false;
        let (run, _) = cluster.run(&arguments(&verb, &input, &output), |events, _| {
            if !killed && events.finished(stage) >= tasks {
                cluster.kill("n3");
                killed = true;
            }
        });
        assert!(killed, "{name}: the node died while work went on");
        run.expect(0, &[]);
        assert!(files(&scratch.path("out")) == files(Path::new(&expected)), "{name}");
        cluster.end();
    }
}

#[test]
fn records_are_shuffled_as_ever_and_as_a_table_where_options_of_tables_say_so() {
    let scratch = Scratch::new();
    let (input, ours, theirs) = (scratch.text("in"), scratch.text("ours"), scratch.text("theirs"));
    exobus(&["generate", "--records", "20000", "--files", "2", &input]).expect(0, &[]);
    let with = |verb: &str, output: &str| {
        support::with_own_spill(&scratch, &[verb, &input, "--seed", "3", "--files", "4", "--output", output])
            .expect(0, &[]);
    };
    with("shuffle", &ours);
    with("random-shuffle", &theirs);
    for part in 0..4 {
        let read = |folder: &str| std::fs::read(Path::new(folder).join(format!("part-0000{part}"))).unwrap();
        assert!(read(&ours) == read(&theirs));
    }
    let none = scratch.text("none");
    exobus(&["shuffle", &input, "--seed", "3", "--output", &none, "--select", "key"])
        .expect(2, &["records are a column of", "--select"]);
    exobus(&["sort", &input, "--output", &none, "--format", "csv"]).expect(2, &["column key", "text is UTF-8"]);
    exobus(&["sort", "--generate", "1MB", "--format", "parquet"])
        .expect(2, &["--format is for tables", "`exobus generate`"]);
    exobus(&["sort", "--generate", "1MB", "--compression", "none"]).expect(2, &["leave --compression out"]);
}

#[test]
fn a_folder_of_tables_is_not_taken_for_records() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let (input, output) = (scratch.text("table"), scratch.text("out"));
    exobus(&["sort", &input, "--output", &output]).expect(2, &["a table is sorted by columns", "--key"]);
}
