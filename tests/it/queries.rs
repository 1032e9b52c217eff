//! `exobus query`: answers of SQL over files, as a command and on a cluster.

use std::fs;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{
    Run, Scratch,
    cluster::{Cluster, watched},
    command, exobus, finish, names, node_process, parts,
};
use crate::tables::alone;

pub const FILES: usize = 80;
pub const ROWS: usize = 300;

/// Sales in four cities, in as many blocks as there are files, and the country of some cities.
pub fn sales() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    for file in 0..FILES {
        let row = |row: usize| {
            let mixed = (file * ROWS + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            format!("{},{},{}.5\n", file * ROWS + row, ["oslo", "rome", "lima", "oslo"][mixed % 4], mixed % 100)
        };
        let rows: String = (0..ROWS).map(row).collect();
        fs::write(scratch.path(&format!("in/{file:02}.csv")), format!("Id,city,Price\n{rows}")).unwrap();
    }
    fs::write(scratch.path("cities.csv"), "name,country\noslo,norway\nrome,italy\nparis,france\n").unwrap();
    scratch
}

/// A query in the folder of the tables, with a spill folder of its own, in which nothing is left.
#[track_caller]
pub fn query(scratch: &Scratch, text: &str, more: &[&str]) -> Run {
    let spill = scratch.text("spill");
    let args = [&["query", text, "--memory", "128MiB", "--spill", &spill][..], more].concat();
    let mut command = command(&args);
    command.current_dir(scratch.path("."));
    let run = finish(command);
    assert_eq!(names(&scratch.path("spill")), [""; 0], "something is left: {run:#?}");
    run
}

/// The answer as lines of CSV.
#[track_caller]
pub fn csv(scratch: &Scratch, text: &str) -> String {
    query(scratch, text, &["--format", "csv"]).expect(0, &[]).stdout.clone()
}

pub const TOTALS: &str = "SELECT city, count(*) AS n, sum(price) AS paid FROM 'in' GROUP BY city";

/// The lines that [`TOTALS`] answers, by the rows themselves.
pub fn totals() -> Vec<(&'static str, u64, f64)> {
    let mut totals = [("lima", 0, 0.0), ("oslo", 0, 0.0), ("rome", 0, 0.0)];
    for row in 0..FILES * ROWS {
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let total = &mut totals[[1, 2, 0, 1][mixed % 4]];
        total.1 += 1;
        total.2 += (mixed % 100) as f64 + 0.5;
    }
    totals.to_vec()
}

#[test]
fn an_answer_is_printed_for_people_and_programs_or_written_to_files() {
    let scratch = sales();
    let text = format!("{TOTALS} ORDER BY paid DESC, city LIMIT 2");
    let mut expected = totals();
    expected.sort_by(|one, other| other.2.total_cmp(&one.2));
    let lines: String = expected[..2].iter().map(|(city, n, paid)| format!("{city},{n},{paid:?}\n")).collect();
    let shown = query(&scratch, &text, &[]);
    shown.expect(0, &[]);
    assert!(shown.stdout.contains("│ paid") && shown.stdout.contains("2 rows, of 24 000 read"), "{}", shown.stdout);
    assert_eq!(csv(&scratch, &text), format!("city,n,paid\n{lines}"));
    let told = query(&scratch, &text, &["--json"]).expect(0, &[]).json();
    assert_eq!(told["rows"][0], json!({ "city": expected[0].0, "n": expected[0].1, "paid": expected[0].2 }));
    assert_eq!((&told["is_all"], &told["steps"], &told["rows_read"]), (&json!(true), &json!(1), &json!(24_000)));
    let written = query(&scratch, &text, &["--output", "out", "--format", "csv"]);
    written.expect(0, &[]);
    assert!(written.stdout.contains("answered 24 000 rows, 2 rows written"), "{}", written.stdout);
    assert_eq!(fs::read_to_string(scratch.path("out/part-00000.csv")).unwrap(), format!("city,n,paid\n{lines}"));
    assert!(!scratch.path("out.steps").exists());
    // Rows as they are: no step.
    let rows = csv(&scratch, "SELECT upper(City) AS c, ID FROM 'in' WHERE \"Price\" > 98 AND id < 1000 LIMIT 3");
    assert_eq!(rows.lines().count(), 4, "{rows}");
    assert!(rows.starts_with("c,Id\n"), "{rows}");
    let rows = query(&scratch, "SELECT * FROM 'in'", &["--rows", "7"]);
    assert!(rows.stdout.contains("the first 7 rows: --output writes all of them"), "{}", rows.stdout);
    let joined = "SELECT country, count(*) AS n FROM s LEFT JOIN c ON city = name GROUP BY country ORDER BY country";
    let joined = query(&scratch, joined, &["--table", "s=in", "--table", "C=cities.csv", "--format", "csv"]);
    let [lima, oslo, rome] = [0, 1, 2].map(|at| totals()[at].1);
    assert_eq!(joined.expect(0, &[]).stdout, format!("country,n\nitaly,{rome}\nnorway,{oslo}\n,{lima}\n"));
}

#[test]
fn a_query_is_explained_as_its_steps() {
    let scratch = sales();
    let text = format!("EXPLAIN {TOTALS} ORDER BY paid DESC LIMIT 2");
    let explained = query(&scratch, &text, &[]).expect(0, &[]).stdout.clone();
    for line in [
        " 1. group by city: count(*) as n, sum(Price) as paid, of in",
        "the first 2 by paid:desc",
        "answer: step 1",
        "--online shows it before it is done",
    ] {
        assert!(explained.contains(line), "{line:?} is not in {explained}");
    }
    let text = "EXPLAIN SELECT country, sum(price * 2) FROM 'in' JOIN 'cities.csv' ON city = name WHERE id > 5 AND id % 2 = 0 GROUP BY country";
    let explained = query(&scratch, text, &[]).expect(0, &[]).stdout.clone();
    for line in
        [" 1. join, inner, on city=name: in", "where Id > 5", " 2. group by country: sum(", "step 1", "Id % 2 = 0"]
    {
        assert!(explained.contains(line), "{line:?} is not in {explained}");
    }
}

#[test]
fn what_is_wrong_with_a_query_is_told_with_its_place_and_nothing_is_left() {
    let scratch = sales();
    fs::write(scratch.path("bad.csv"), "n\n1\n2\nx\n").unwrap();
    for (text, code, told) in [
        ("SELECT citty FROM 'in'", 2, "line 1, column 8: no column citty; did you mean city?"),
        (
            "SELECT city,\n  summ(price) FROM 'in' GROUP BY city",
            2,
            "line 2, column 3: no function summ; did you mean sum?",
        ),
        ("SELECT city FORM 'in'", 2, "line 1, column"),
        ("SELECT city FROM inn", 2, "line 1, column 18: no table inn; files go into quotes"),
        ("SELECT city FROM 'inn'", 3, "inn: look up: No such file"),
        ("DELETE FROM 'in'", 2, "a query reads: SELECT"),
        ("SELECT 1", 2, "a query reads a table at least"),
        ("SELECT city + 1 FROM 'in'", 2, "cannot coerce arithmetic expression text + int64"),
        ("SELECT city, price FROM 'in' GROUP BY city", 2, "line 1, column 14"),
        ("SELECT id / (id - id) FROM 'in'", 1, "in/00.csv: divide by zero"),
        ("SELECT sum(id / (id - 1)) FROM 'in'", 1, "divide by zero"),
        ("SELECT cast(city AS int) FROM 'in'", 1, "annot cast string"),
        ("SELECT sum(city) FROM 'in'", 2, "sum"),
        ("SELECT random() FROM 'in'", 2, "line 1, column 8: random() gives another value"),
        ("SELECT rank() OVER (ORDER BY id) FROM 'in'", 2, "line 1, column 15: a window has no operator here"),
        ("SELECT approx_distinct(city) FROM 'in'", 2, "line 1, column 8: approx_distinct"),
        ("SELECT city FROM 'in' WHERE id NOT IN (SELECT id FROM 'in')", 2, "line 1, column 32: NOT IN with a subquery"),
    ] {
        query(&scratch, text, &[]).expect(code, &[told]);
        assert_eq!(names(&scratch.path("spill")), [""; 0], "{text}");
    }
    let failed = query(&scratch, "SELECT id / (id - id) AS x FROM 'in' ORDER BY id", &["--output", "out"]);
    failed.expect(1, &["divide by zero"]);
    assert!(!scratch.path("out").exists() && !scratch.path("out.steps").exists(), "{failed:#?}");
    query(&scratch, "SELECT city FROM salez", &["--table", "sales=in"])
        .expect(2, &["line 1, column 18: no table salez; did you mean sales?"]);
    query(&scratch, TOTALS, &["--format", "parquet"]).expect(2, &["parquet is not printed"]);
    query(&scratch, TOTALS, &["--until", "error=1%"]).expect(2, &["--online"]);
    query(&scratch, TOTALS, &["--table", "x=in"]).expect(2, &["the query names no table x"]);
}

#[test]
fn tables_without_rows_and_with_one_are_answered() {
    let scratch = sales();
    fs::write(scratch.path("none.csv"), "a,b\n").unwrap();
    fs::write(scratch.path("one.csv"), "a,b\n1,x\n").unwrap();
    let of = |text: &str| csv(&scratch, text);
    assert_eq!(of("SELECT count(*) AS n, sum(length(a)) AS s FROM 'none.csv'"), "n,s\n0,\n");
    assert_eq!(of("SELECT a, count(*) AS n FROM 'none.csv' GROUP BY a"), "a,n\n");
    assert_eq!(of("SELECT a, b FROM 'none.csv' ORDER BY b LIMIT 3"), "a,b\n");
    assert_eq!(of("SELECT b, sum(a) AS s FROM 'one.csv' GROUP BY b"), "b,s\nx,1\n");
    assert_eq!(of("SELECT a FROM 'one.csv' WHERE a > 1"), "a\n");
    assert_eq!(of("SELECT count(*) AS n FROM 'one.csv' x JOIN 'none.csv' y ON x.b = y.b"), "n\n0\n");
}

#[test]
fn groups_with_long_texts_fit_a_small_memory_also_early_and_in_steps() {
    let scratch = Scratch::new();
    let row = |row: u64| {
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        format!(
            "{},{}.5,{mixed:x} what somebody wrote about it and about other things as well\n",
            row * 7919 % 266_667,
            row % 1000
        )
    };
    let rows: String = (0..400_000).map(row).collect();
    fs::write(scratch.path("notes.csv"), format!("key,price,note\n{rows}")).unwrap();
    let (spill, table) = (scratch.text("spill"), scratch.text("table"));
    let convert = ["convert", &scratch.text("notes.csv"), "--output", &table, "--format", "parquet", "--files", "4"];
    let narrow = ["--row-group-rows", "20000", "--spill", &spill];
    finish(command(&[&convert[..], &narrow].concat())).expect(0, &[]);
    let what = "count(*) AS n, sum(price) AS total, avg(price) AS mean, max(note)";
    let steps = format!("SELECT key, min(note) AS short, {what} AS note FROM '{table}' GROUP BY key");
    let whole = format!("SELECT key, {what} AS long FROM '{table}' GROUP BY key");
    // The step of the first one is there since it calls a column as another one is called.
    for (text, more) in [(&steps, &["--executors", "4"][..]), (&whole, &["--executors", "1", "--online"])] {
        let output = scratch.text(&format!("out{}", more.len()));
        let mut command = command(&["query", text, "--memory", "96MiB", "--spill", &spill, "--output", &output]);
        command.args(["--files", "8", "--row-group-rows", "5000"]).args(more);
        finish(command).expect(0, &[]);
    }
}

#[test]
fn files_that_a_query_cannot_read_by_itself_are_read_behind_a_conversion() {
    let scratch = Scratch::new();
    fs::write(scratch.path("empty.csv"), "").unwrap();
    let told = query(&scratch, "SELECT * FROM 'empty.csv'", &[]).expect(0, &[]).stdout.clone();
    assert!(told.contains("0 rows"), "{told}");
    fs::write(scratch.path("mixed.jsonl"), "{\"a\": 1}\n{\"a\": [1]}\n").unwrap();
    let said = ["--json-mixed text", "a query has no such option, `exobus convert` has it"];
    query(&scratch, "SELECT a FROM 'mixed.jsonl'", &[]).expect(1, &said);
    let (from, to) = (scratch.text("mixed.jsonl"), scratch.text("texts"));
    exobus(&["convert", &from, "--output", &to, "--format", "csv", "--json-mixed", "text"]).expect(0, &[]);
    let told = query(&scratch, "SELECT a FROM 'texts'", &["--format", "csv"]).expect(0, &[]).stdout.clone();
    assert_eq!(told, "a\n1\n[1]\n");
}

#[test]
fn the_hash_of_a_plan_is_that_of_what_is_asked() {
    let scratch = sales();
    let plan = |text: &str| query(&scratch, text, &["--json"]).expect(0, &[]).json()["plan"].clone();
    let of = |limit: u32| plan(&format!("SELECT city, count(*) AS n FROM 'in' WHERE price > {limit} GROUP BY city"));
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    // When it was asked is in the plan, where it matters.
    let now = "SELECT city, max(now()) AS t FROM 'in' GROUP BY city";
    assert_ne!(plan(now), plan(now));
}

#[test]
fn the_first_groups_of_each_part_are_answered_and_shown_before() {
    let scratch = sales();
    let groups = "SELECT id % 3 AS part, city, sum(price) AS paid FROM 'in' GROUP BY id % 3, city";
    let text = format!("{groups} QUALIFY row_number() OVER (PARTITION BY id % 3 ORDER BY sum(price) DESC, city) <= 2");
    let all = csv(&scratch, groups);
    let mut expected: Vec<Vec<&str>> = all.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let paid = |row: &[&str]| row[2].parse::<f64>().unwrap();
    expected.sort_by(|one, other| one[0].cmp(other[0]).then(paid(other).total_cmp(&paid(one))));
    let mut expected: Vec<String> = expected.chunks(3).flat_map(|part| &part[..2]).map(|row| row.join(",")).collect();
    expected.sort();
    let answer = csv(&scratch, &text);
    let mut found: Vec<&str> = answer.lines().skip(1).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    let online = query(&scratch, &text, &["--online", "--json"]).expect(0, &[]).stdout.clone();
    let mut lines: Vec<Value> = online.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.pop();
    assert!(lines.len() > 5 && lines.iter().all(|look| look["groups"].as_array().unwrap().len() == 6), "{online}");
    // The number itself is known of nobody.
    let number = "row_number() OVER (PARTITION BY id % 3 ORDER BY sum(price) DESC) AS number";
    let numbered = groups.replace(" FROM", &format!(", {number} FROM"));
    let of = |columns: &str| format!("SELECT {columns} FROM ({numbered}) AS numbered WHERE number <= 2");
    assert_eq!(csv(&scratch, &of("city")).lines().count(), 7);
    query(&scratch, &of("city, number"), &[]).expect(2, &["a window has no operator here"]);
}

#[test]
fn expressions_are_selected_by_every_command() {
    let scratch = sales();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let select = "Id, round(Price * 2, 0) AS twice, upper(city) AS City";
    let args = ["sort", &input, "--key", "twice:desc,Id", "--select", select, "--where", "Id < 50"];
    exobus(&[&args[..], &["--output", &output, "--files", "1"]].concat()).expect(0, &[]);
    let text = fs::read_to_string(scratch.path("out/part-00000.csv")).unwrap();
    let twice: Vec<f64> = text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(twice.len() == 50 && twice.is_sorted_by(|one, other| one >= other), "{text}");
    assert!(text.starts_with("Id,twice,City\n") && text.contains(",OSLO"), "{text}");
    let shown = exobus(&["show", &input, "--select", "*, Price + 1 AS more", "--rows", "1"]);
    assert!(shown.expect(0, &[]).stdout.contains("more"), "{shown:#?}");
    let refused = |select: &str, told: &str| {
        exobus(&["show", &input, "--select", select]).expect(2, &[told]);
    };
    refused("Prize * 2 AS x", "column 1: no column prize; did you mean price?");
    refused("sum(Price) AS x", "expressions are of one row here");
    refused("now() AS x", "now() gives another value");
}

#[test]
fn a_query_that_is_killed_goes_on_behind_the_step_that_was_done() {
    let scratch = sales();
    let (input, spill) = (scratch.text("in"), scratch.text("spill"));
    let text = format!(
        "SELECT city, Id % 1000 AS part, sum(price) AS paid FROM '{input}' GROUP BY city, part ORDER BY paid, city, part"
    );
    let run = |output: &str| {
        let output = scratch.text(output);
        let args = ["query", &text, "--memory", "96MiB", "--spill", &spill, "--format", "csv", "--partitions", "1"];
        alone(&scratch, &[&args[..], &["--output", &output]].concat())
    };
    finish(run("whole")).expect(0, &[]);
    let mut killed = false;
    let (told, _) = watched(&scratch, run("out"), |events, pid| {
        if !killed && events.finished("shuffle.commit") == 1 {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, told.code), (true, None), "{told:#?}");
    assert!(names(&scratch.path("out.steps")).len() == 1, "the step that was done is there");
    finish(alone(&scratch, &["resume", "--spill", &spill])).expect(0, &[]);
    let file = |folder: &str| fs::read_to_string(scratch.path(folder).join("part-00000.csv")).unwrap();
    assert_eq!(parts(&scratch.path("out")).len(), 1);
    assert_eq!(file("out"), file("whole"));
    assert!(!scratch.path("out.steps").exists());
}

#[test]
fn a_query_of_a_cluster_that_loses_a_node_is_answered() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let scratch = &cluster.scratch;
    let (input, cities, steps) = (scratch.text("in"), scratch.text("cities.csv"), scratch.text("steps"));
    let text = format!(
        "SELECT country, count(*) AS n, sum(price) AS paid FROM '{input}' JOIN '{cities}' ON city = name GROUP BY country ORDER BY country DESC"
    );
    let alone = query(scratch, &text, &["--json", "--local"]).expect(0, &[]).json();
    let mut killed = None;
    let dev = scratch.path("cluster");
    let (told, _) = cluster.run(&["query", &text, "--scratch", &steps, "--json"], |events, _| {
        let Some(host) = events.host().filter(|_| killed.is_none() && events.finished("shuffle.commit") >= 1) else {
            return;
        };
        let other = ["n1", "n2", "n3"].into_iter().find(|node| *node != host).unwrap();
        kill_process(node_process(&dev.join(format!("{other}.toml"))), Signal::KILL).unwrap();
        killed = Some(other);
    });
    let answer = told.expect(0, &[]).json();
    assert!(killed.is_some());
    assert_eq!((&answer["rows"], &answer["steps"]), (&alone["rows"], &json!(3)));
    assert_eq!(names(&scratch.path("steps")), [""; 0]);
    // Rows come from the job, which returns no more than its log takes.
    let printed = |text: &str| cluster.run(&["query", text, "--scratch", &steps, "--format", "csv"], |_, _| ()).0;
    let expected = query(scratch, &text, &["--format", "csv", "--local"]).expect(0, &[]).stdout.clone();
    assert_eq!(printed(&text).expect(0, &[]).stdout, expected);
    printed(&format!("SELECT * FROM '{input}'")).expect(3, &["these are the first ", "and there are more"]);
    assert_eq!(names(&scratch.path("steps")), [""; 0]);
    let (refused, _) = cluster.run(&["query", &text], |_, _| ());
    refused.expect(2, &["say --scratch, a folder that all nodes reach"]);
}
