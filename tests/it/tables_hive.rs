//! `repartition`, and folders as columns: what is written to them, read from them, and refused.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Signal, kill_process};

use crate::support::{self, Run, Scratch, cluster::watched, exobus, names};
use crate::tables::{ROWS, alone, write_table};

/// Rows whose cities a name of a folder cannot have as they are: with a `/`, a `=`, a `%`, a quote and a comma, letters that are not ASCII, blanks around it, the word for null; and one that is null.
const SALES: &str = "id,city,day,price\n1,a/b,2024-01-31,3.5\n2,x=y,2024-01-31,1.25\n3,100%,2024-02-01,4.0\n4,,2024-02-01,9.0\n\
                     5,Tromsø 北,2024-01-31,0.5\n6, spaced ,2024-02-01,7.0\n7,__HIVE_DEFAULT_PARTITION__,2024-02-01,8.0\n\
                     8,\"quo\"\"te, comma\",2024-02-01,2.0\n9,a/b,2024-02-01,6.0\n";

fn sales() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path("sales.csv"), SALES).unwrap();
    scratch
}

fn run(scratch: &Scratch, verb: &str, input: &str, output: &str, more: &[&str]) -> Run {
    let (input, output) = (scratch.text(input), scratch.text(output));
    support::with_own_spill(scratch, &[&[verb, &input, "--output", &output][..], more].concat())
}

/// What stands below a folder and is input.
fn below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in names(folder).into_iter().filter(|name| !name.starts_with(['_', '.'])) {
        let path = folder.join(&name);
        match path.is_dir() {
            true => {
                files.extend(below(&path).into_iter().map(|(inside, bytes)| (Path::new(&name).join(inside), bytes)))
            }
            false => files.extend([(PathBuf::from(name), fs::read(path).unwrap())]),
        }
    }
    files
}

#[test]
fn what_is_written_to_folders_is_read_back_as_it_was_whatever_the_values_are() {
    let scratch = sales();
    let expected = ["--key", "id", "--format", "csv", "--files", "1"];
    run(&scratch, "sort", "sales.csv", "expected", &expected).expect(0, &[]);
    let expected_text = fs::read_to_string(scratch.path("expected/part-00000.csv")).unwrap();
    for (format, by) in
        [("csv", "city"), ("parquet", "city"), ("jsonl", "city,day"), ("arrow", "day,city"), ("tsv", "day")]
    {
        let (output, again) = (format!("{format}-{by}"), format!("{format}-{by}-again"));
        run(&scratch, "repartition", "sales.csv", &output, &["--partition-by", by, "--format", format]).expect(0, &[]);
        let back = [&expected[..], &["--select", "id,city,day,price"]].concat();
        run(&scratch, "sort", &output, &again, &back).expect(0, &[]);
        let text = fs::read_to_string(scratch.path(&format!("{again}/part-00000.csv"))).unwrap();
        assert_eq!(text, expected_text, "{output}");
        exobus(&["validate", &scratch.text(&output)]).expect(0, &[]);
        exobus(&["show", &scratch.text(&output)]).expect(0, &[]);
    }
    let folders = names(&scratch.path("csv-city"));
    let expected = [
        "_exobus.json",
        "city= spaced ",
        "city=%5F_HIVE_DEFAULT_PARTITION__",
        "city=100%25",
        "city=Tromsø 北",
        "city=__HIVE_DEFAULT_PARTITION__",
        "city=a%2Fb",
        "city=quo%22te, comma",
        "city=x%3Dy",
    ];
    assert_eq!(folders, expected);
    let text = fs::read_to_string(scratch.path("csv-city/city=a%2Fb/part-00000.csv")).unwrap();
    assert_eq!(text, "id,day,price\n1,2024-01-31,3.5\n9,2024-02-01,6.0\n");
}

#[test]
fn folders_are_columns_of_every_verb_behind_those_of_the_files() {
    let scratch = sales();
    run(&scratch, "repartition", "sales.csv", "out", &["--partition-by", "day,city", "--format", "parquet"])
        .expect(0, &[]);
    let input = scratch.text("out");
    let schema = exobus(&["show", &input, "--schema"]).expect(0, &[]).stdout.clone();
    assert_eq!(schema.trim(), "id int64,\nprice float64,\nday date,\ncity text");
    let stats = exobus(&["show", &input, "--stats", "--json"]).expect(0, &[]).json();
    let day = &stats["columns"][2];
    assert_eq!((&day["min"], &day["max"], &day["nulls"]), (&"2024-01-31".into(), &"2024-02-01".into(), &0.into()));
    let rows = |more: &[&str]| {
        let shown = exobus(&[&["show", &input, "--json"][..], more].concat()).expect(0, &[]).json();
        let ids: Vec<u64> = shown["rows"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
        ids
    };
    assert_eq!(rows(&["--where", "city = 'a/b' and day > '2024-01-31'"]), [9]);
    assert_eq!(rows(&["--where", "city is null"]), [4]);
    assert_eq!(rows(&["--where", "day = '2024-01-31' and price > 1"]).len(), 2);
    // Files of other days are not even read.
    fs::create_dir_all(scratch.path("broken/day=2024-03-01")).unwrap();
    fs::create_dir_all(scratch.path("broken/day=2024-03-02")).unwrap();
    fs::write(scratch.path("broken/day=2024-03-01/a.csv"), "id\n1\n").unwrap();
    let lines: String = (0..20_000).map(|row| format!("{row}\n")).collect();
    fs::write(scratch.path("broken/day=2024-03-02/a.csv"), format!("id\n{lines}no number\n")).unwrap();
    let sorted = ["--key", "id", "--where"];
    run(&scratch, "sort", "broken", "whole", &[&sorted[..], &["day < '2024-03-02'"]].concat()).expect(0, &[]);
    run(&scratch, "sort", "broken", "none", &[&sorted[..], &["day <= '2024-03-02'"]].concat())
        .expect(1, &["no number"]);

    run(&scratch, "group", "out", "days", &["--by", "day", "--agg", "count(*) as n", "--format", "csv"]).expect(0, &[]);
    let text = fs::read_to_string(scratch.path("days/part-00000.csv")).unwrap();
    assert_eq!(text, "day,n\n2024-01-31,3\n2024-02-01,6\n");
    let dedupe = ["--key", "day", "--select", "day,id", "--format", "csv", "--order-by", "id", "--files", "1"];
    run(&scratch, "dedupe", "out", "first", &dedupe).expect(0, &[]);
    assert_eq!(
        fs::read_to_string(scratch.path("first/part-00000.csv")).unwrap(),
        "day,id\n2024-01-31,1\n2024-02-01,3\n"
    );
    // A city that is null matches none, and its file has no row then that does.
    fs::write(scratch.path("names.csv"), "name,country\na/b,no\nTromsø 北,se\n").unwrap();
    let right = scratch.text("names.csv");
    for broadcast in ["never", "right"] {
        let join = [right.as_str(), "--on", "city=name", "--select", "id,city", "--format", "csv", "--files", "1"];
        let (output, more) = (format!("joined-{broadcast}"), [&join[..], &["--broadcast", broadcast]].concat());
        run(&scratch, "join", "out", &output, &more).expect(0, &[]);
        let text = fs::read_to_string(scratch.path(&format!("{output}/part-00000.csv"))).unwrap();
        assert_eq!(text, "id,city,country\n5,Tromsø 北,se\n1,a/b,no\n9,a/b,no\n", "{broadcast}");
    }
    for (how, broadcast, rows) in [
        ("inner", "never", 8),
        ("inner", "left", 8),
        ("inner", "right", 8),
        ("full", "never", 10),
        ("semi", "never", 8),
        ("anti", "never", 1),
        ("left", "right", 9),
    ] {
        let join = [input.as_str(), "--on", "day,city", "--select", "id,day,city", "--right-select", "day,city,price"];
        let more = [&join[..], &["--how", how, "--broadcast", broadcast, "--files", "3", "--json"]].concat();
        let summary = run(&scratch, "join", "out", &format!("joined-{how}-{broadcast}"), &more).expect(0, &[]).json();
        assert_eq!((&summary["rows"], &summary["rows_out"]), (&18.into(), &rows.into()), "{how}, {broadcast}");
    }
    run(&scratch, "shuffle", "out", "shuffled", &["--seed", "1", "--files", "2"]).expect(0, &[]);
    run(&scratch, "convert", "out", "converted", &["--format", "csv", "--select", "city,id"]).expect(0, &[]);
    // By a pattern those behind what is the same in all names, and none where nobody wants them.
    let shown = |name: &str, more: &[&str]| {
        let name = scratch.text(name);
        exobus(&[&["show", &name, "--schema"][..], more].concat()).expect(0, &[]).stdout.trim().replace('\n', " ")
    };
    assert_eq!(shown("out/*/*/*.parquet", &[]), "id int64, price float64, day date, city text");
    assert_eq!(shown("out/day=2024-01-31", &[]), "id int64, price float64, city text");
    assert_eq!(shown("out/**/*.parquet", &["--hive", "false"]), "id int64, price float64");
    assert_eq!(shown("out", &["--schema-text", "day text"]), "id int64, price float64, day text, city text");
    exobus(&["show", &input, "--hive", "false"]).expect(3, &["no files in this directory, but folders"]);
}

#[test]
fn values_of_which_no_folder_is_made_are_refused_and_nothing_is_left() {
    let scratch = sales();
    let refused = |more: &[&str], code: i32, texts: &[&str]| {
        run(&scratch, "repartition", "sales.csv", "out", more).expect(code, texts);
        assert!(!scratch.path("out").exists(), "{:?}", names(&scratch.path("out")));
    };
    refused(&[], 2, &["--partitions 80", "--by COLUMN", "--partition-by COLUMN"]);
    refused(&["--partition-by", "citty"], 2, &["no column citty; did you mean city?"]);
    refused(&["--partition-by", "price"], 2, &["column price is float64"]);
    refused(&["--partition-by", "id,city,day,price"], 2, &["price"]);
    refused(&["--files", "2", "--max-folders", "7"], 2, &["--partition-by"]);
    refused(
        &["--partition-by", "id", "--max-folders", "5"],
        2,
        &["columns id would make at least 9 folders, and 5 are the most"],
    );
    fs::write(scratch.path("sales.csv"), "id,city\n1,oslo\n2,\"\"\n").unwrap();
    refused(&["--partition-by", "city"], 1, &["column city has the value \"\"", "--where"]);
    fs::write(scratch.path("sales.csv"), format!("id,city\n1,oslo\n2,{}\n", "ø".repeat(130))).unwrap();
    refused(&["--partition-by", "city"], 1, &["column city has the value \"øø", "more than 255 bytes"]);
    fs::write(scratch.path("sales.csv"), "_id,city\n1,oslo\n").unwrap();
    refused(&["--partition-by", "_id"], 2, &["column _id cannot be folders", "rename it"]);
}

#[test]
fn explain_says_what_would_be_done() {
    let scratch = sales();
    let input = scratch.text("sales.csv");
    let explain = |more: &[&str]| exobus(&[&["explain", "repartition", &input, "--json"][..], more].concat());
    assert_eq!(explain(&["--partition-by", "city", "--files", "3"]).expect(0, &[]).json()["plan"]["partitions"], 3);
    assert_eq!(explain(&["--by", "city", "--files", "2"]).expect(0, &[]).json()["maps"], 1);
    assert_eq!(explain(&["--files", "4"]).expect(0, &[]).json()["files"], 4);
    explain(&[]).expect(2, &["--by COLUMN"]);
}

#[test]
fn a_repartition_into_folders_that_is_killed_is_resumed_and_makes_the_same_files() {
    let scratch = Scratch::new();
    write_table(&scratch.path("table"));
    let (input, output) = (scratch.text("table"), scratch.text("out"));
    let more = ["--partition-by", "ts", "--files", "12", "--format", "parquet", "--json"];
    let summary = run(&scratch, "repartition", "table", "expected", &more).expect(0, &[]).json();
    assert_eq!((&summary["rows_out"], &summary["row_hash_in"]), (&ROWS.into(), &summary["row_hash_out"]));
    let mut command = alone(&scratch, &[&["repartition", &input, "--output", &output][..], &more].concat());
    command.args(["--memory", "128MiB", "--executors", "2", "--spill", &scratch.text("spill")]);
    let mut killed = false;
    let (ran, _) = watched(&scratch, command, |events, pid| {
        if !killed && events.finished("table.reduce_folders") >= 3 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, ran.code), (true, None), "{ran:#?}");
    assert!(below(&scratch.path("out")).is_empty(), "nothing has its name before the commit");
    let command = alone(&scratch, &["resume", "--json", "--spill", &scratch.text("spill")]);
    let (ran, events) = watched(&scratch, command, |_, _| {});
    ran.expect(0, &[]);
    events.nothing_is_done_twice("table.reduce_folders");
    assert!(below(&scratch.path("out")) == below(&scratch.path("expected")));
    assert_eq!(names(&scratch.path("out")).iter().filter(|name| name.starts_with("ts=")).count(), 97);
}
