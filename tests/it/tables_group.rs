//! `group` as a command: what it writes, and what it refuses.

use std::{fmt::Write as _, fs};

use rustix::process::{Signal, kill_process};

use crate::support::{self, Run, Scratch, cluster::watched, names};
use crate::tables::alone;

const SALES: &str = "city,day,price,n\noslo,2024-01-31,3.50,1\nrome,2024-01-31,1.25,2\noslo,2024-02-01,4.25,3\n,2024-02-01,9.00,4\nrome,2024-01-31,0.75,5\n";

fn sales() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path("sales.csv"), SALES).unwrap();
    scratch
}

fn group(scratch: &Scratch, more: &[&str]) -> Run {
    let (input, output) = (scratch.text("sales.csv"), scratch.text("out"));
    let args = [&["group", &input, "--output", &output][..], more].concat();
    let run = support::with_own_spill(scratch, &args);
    assert!(run.code == Some(0) || names(&scratch.path("out")).is_empty(), "{run:#?}");
    run
}

/// What it writes of the sales as CSV.
#[track_caller]
fn grouped(more: &[&str]) -> String {
    let scratch = sales();
    group(&scratch, more).expect(0, &[]);
    fs::read_to_string(scratch.path("out/part-00000.csv")).unwrap()
}

#[test]
fn groups_are_written_in_the_order_of_their_columns_with_what_is_said_of_them() {
    let said = "count(*), sum(price) as total, avg(price), min(day), max(day), first(n), last(n), count_distinct(day) as days, median(price)";
    let schema = ["--schema", "price decimal(10,2)"];
    let text = grouped(&[&["--by", "city", "--agg", said][..], &schema].concat());
    let head = "city,count(*),total,avg(price),min(day),max(day),first(n),last(n),days,\"quantile_cont(price, 0.5)\"\n";
    let rows = "oslo,2,7.75,3.875,2024-01-31,2024-02-01,1,3,2,3.875\nrome,2,2.00,1.0,2024-01-31,2024-01-31,2,5,1,1.0\n,1,9.00,9.0,2024-02-01,2024-02-01,4,4,1,9.0\n";
    assert_eq!(text, format!("{head}{rows}"));
    assert_eq!(
        grouped(&["--by", "day,city", "--where", "city is not null"]),
        "day,city\n2024-01-31,oslo\n2024-01-31,rome\n2024-02-01,oslo\n"
    );
    assert_eq!(grouped(&["--by", "city", "--agg", "count(*) as n", "--having", "n > 1"]), "city,n\noslo,2\nrome,2\n");
    let top = ["--agg", "sum(n) as s", "--top", "1", "--order-by", "s:desc"];
    assert_eq!(
        grouped(&[&["--by", "day,city"], &top[..], &["--per", "city"]].concat()),
        "day,city,s\n2024-02-01,oslo,3\n2024-01-31,rome,7\n2024-02-01,,4\n"
    );
    assert_eq!(grouped(&[&["--by", "city"], &top[..]].concat()), "city,s\nrome,7\n");
}

#[test]
fn the_summary_says_how_many_groups_there_are_and_explain_what_would_be_done() {
    let scratch = sales();
    group(&scratch, &["--by", "city"]).expect(0, &[]);
    let summary = group(&sales(), &["--by", "city", "--json"]).expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["rows_out"], &summary["files"]), (&5.into(), &3.into(), &1.into()));
    let input = scratch.text("sales.csv");
    let explain = |more: &[&str]| {
        support::exobus(&[&["explain", "group", &input, "--by", "city", "--agg", "sum(n)"], more].concat())
    };
    let explained = explain(&["--json"]).expect(0, &[]).json();
    assert_eq!((&explained["shuffled"]["maps"], &explained["partial"]["groups_sampled"]), (&1.into(), &3.into()));
    assert!(explain(&[]).expect(0, &[]).stdout.contains("5 rows that were sampled are of 3 groups"));
    let of_all = support::exobus(&["explain", "group", &input, "--agg", "count(*)"]);
    assert!(of_all.expect(0, &[]).stdout.contains("all rows are one group"), "{of_all:#?}");
}

#[test]
fn what_no_group_can_be_asked_is_refused_with_what_to_do() {
    let refused = |more: &[&str], code: i32, texts: &[&str]| {
        group(&sales(), more).expect(code, texts);
    };
    refused(&[], 2, &["--agg", "--by all rows are one group"]);
    refused(&["--by", "town"], 2, &["no column town"]);
    refused(&["--by", "citty"], 2, &["no column citty; did you mean city?"]);
    refused(&["--by", "city,city"], 2, &["--by names city twice"]);
    refused(&["--by", "city", "--agg", "summ(n)"], 2, &["summ", "did you mean sum"]);
    refused(&["--by", "city", "--agg", "sum(city)"], 2, &["column city is text", "sum adds integers"]);
    refused(&["--by", "city", "--agg", "sum(m)"], 2, &["no column m"]);
    refused(&["--by", "city", "--agg", "sum(n) as city"], 2, &["city"]);
    refused(&["--by", "city", "--agg", "quantile(n, 2)"], 2, &["quantile"]);
    refused(&["--by", "city", "--having", "total > 1"], 2, &["total"]);
    refused(&["--by", "city", "--order-by", "n"], 2, &["--top"]);
    refused(&["--by", "city", "--top", "1", "--per", "day"], 2, &["--per day is no column of the groups"]);
    refused(&["--by", "city", "--top", "1", "--order-by", "m"], 2, &["no column m"]);
}

#[test]
fn a_sum_that_does_not_fit_its_type_is_an_error_with_its_group() {
    let scratch = sales();
    let large = "9".repeat(38);
    fs::write(scratch.path("sales.csv"), format!("city,n\nrome,1\noslo,{large}\noslo,{large}\n")).unwrap();
    let run = group(&scratch, &["--by", "city", "--agg", "sum(n)", "--schema", "n decimal(38,0)"]);
    run.expect(1, &["sum of column n is outside decimal(38,0): of the group city = oslo"]);
}

/// More reduces than there are times that an output may be lost before its job fails.
const REDUCES: usize = 24;

/// What reduces have said of their groups is lost with the process, and asked for together: one by one, all maps would run again for each of them.
#[test]
fn a_job_that_is_killed_behind_many_reduces_is_gone_on_with() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    for file in 0..12 {
        let mut lines = String::from("key,value\n");
        (0..50_000).for_each(|row| writeln!(lines, "key {:09},{}", row * 12 + file, row % 1000).unwrap());
        fs::write(scratch.path(&format!("in/{file}.csv")), lines).unwrap();
    }
    let (input, output, spill) = (scratch.text("in"), scratch.text("out"), scratch.text("spill"));
    // What it makes is one file, whose groups do not fit memory together.
    let args = ["group", &input, "--by", "key", "--agg", "count(*), sum(value) as s", "--output", &output, "--json"];
    let limits = ["--memory", "64MiB", "--executors", "2", "--spill", &spill];
    let mut killed = false;
    let (run, events) = watched(&scratch, alone(&scratch, &[&args[..], &limits].concat()), |events, pid| {
        if !killed && events.finished("group.reduce") >= REDUCES {
            kill_process(pid, Signal::KILL).unwrap();
            killed = true;
        }
    });
    assert_eq!((killed, run.code), (true, None), "{} reduces: {run:#?}", events.finished("group.reduce"));
    let command = alone(&scratch, &["resume", "--json", "--spill", &spill]);
    let (run, events) = watched(&scratch, command, |_, _| {});
    let summary = run.expect(0, &[]).json();
    let (rows, files) = (&600_000.into(), &1.into());
    assert_eq!((&summary["rows"], &summary["rows_out"], &summary["files"]), (rows, rows, files));
    let (maps, reduces) = (events.finished("group.map"), events.finished("group.reduce"));
    assert!(maps <= 4 * reduces, "{maps} maps were run for {reduces} reduces");
}
