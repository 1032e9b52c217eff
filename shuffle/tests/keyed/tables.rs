//! Aggregation.

use std::collections::BTreeMap;

use exobus_actors::task::Output;
use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::Aggregate;
use exobus_shuffle::jobs::aggregate::Operation;

use crate::bench::{Bench, numbers, sorted_lines};

pub fn aggregate(key: &str, value: Option<&str>, header: bool) -> Aggregate {
    let operations = vec![Operation::Count, Operation::Sum, Operation::Min, Operation::Max];
    Aggregate { key: key.into(), value: value.map(str::to_owned), operations, delimiter: b',', header }
}

for_every_strategy!(groups_are_aggregated_with_little_memory, super::groups_are_aggregated);

const ROWS: usize = 150_000;

async fn groups_are_aggregated(strategy: Strategy) {
    let bench = Bench::least();
    // Keys of which the line ends are inside quotes, and values in hundredths.
    let mut expected: BTreeMap<u64, (u64, i64, i64, i64)> = BTreeMap::new();
    let mut csv = String::from("note,\"the \"\"key\"\"\",value\n");
    for number in numbers(2).take(ROWS) {
        let (key, value) = (number % 45_000, (number / 45_000) as i64 % 100_000 - 50_000);
        let sign = if value < 0 { "-" } else { "" };
        let (whole, hundredths) = (value.abs() / 100, value.abs() % 100);
        csv += &format!("\"a\n\"\"note,\"\"\r\n\",k{key},{sign}{whole}.{hundredths:02}\n");
        let group = expected.entry(key).or_insert((0, 0, i64::MAX, i64::MIN));
        *group = (group.0 + 1, group.1 + value, group.2.min(value), group.3.max(value));
    }
    let show = |value: i64| {
        let text = format!("{}{}.{:02}", if value < 0 { "-" } else { "" }, value.abs() / 100, value.abs() % 100);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let line = |(key, group): (&u64, &(u64, i64, i64, i64))| {
        format!("k{key},{},{},{},{}", group.0, show(group.1), show(group.2), show(group.3))
    };
    let mut lines: Vec<String> = expected.iter().map(line).collect();
    lines.sort();
    let file = bench.file("table.csv", &csv);
    let job = aggregate("the \"key\"", Some("value"), true);
    let ran = bench.run(job, std::slice::from_ref(&file), Some(strategy)).await.unwrap();
    let found = sorted_lines(&ran.output, "\"the \"\"key\"\"\",count,sum,min,max");
    assert!(found == lines, "{} lines, {} expected", found.len(), lines.len());
    assert_eq!(ran.report.emitted, Output { rows: ROWS as u64, ..Output::default() });
    assert_eq!(ran.report.reduced, ran.report.emitted);
    assert!(ran.report.maps > 5, "a file with line ends in quotes is cut: {:?}", ran.report);
    assert!(ran.spilled_bytes > 0, "{:?}", ran.report);
}

#[tokio::test]
async fn odd_tables_are_aggregated_right() {
    let bench = Bench::new();
    let run = async |csv: &str, job: Aggregate| {
        let file = bench.file("odd.csv", csv);
        let ran = bench.run(job, &[file], None).await;
        ran.map(|ran| sorted_lines(&ran.output, "k,count,sum,min,max")).map_err(|error| error.to_string())
    };
    let named = || aggregate("k", Some("v"), true);
    let numbered = || aggregate("1", Some("2"), false);
    assert_eq!(run("", named()).await.unwrap(), [""; 0]);
    assert_eq!(run("k,v\n", named()).await.unwrap(), [""; 0]);
    assert_eq!(run("\u{feff}k,v\r\n\r\na,1\r\n\r\nb,2", named()).await.unwrap(), ["a,1,1,1,1", "b,1,2,2,2"]);
    assert_eq!(run("a,1\rb,2\ra,3", numbered()).await.unwrap(), ["a,2,4,1,3", "b,1,2,2,2"]);
    assert_eq!(run("\"x,\"\"y\",1\n,2\n", numbered()).await.unwrap(), ["\"x,\"\"y\",1,1,1,1", ",1,2,2,2"]);
    assert_eq!(run("a,\na,\nb,5\n", numbered()).await.unwrap(), ["a,2,,,", "b,1,5,5,5"]);
    assert_eq!(run("v,k\n0.1,a\n0.2,a\n", named()).await.unwrap(), ["a,2,0.3,0.1,0.2"]);
    let counts = run("a\nb\na\n", Aggregate { operations: vec![Operation::Count], ..aggregate("1", None, false) });
    assert_eq!(counts.await.unwrap(), ["a,2", "b,1"]);
    // More than one piece, one key.
    assert_eq!(run(&"k,2\n".repeat(200_000), numbered()).await.unwrap(), ["k,200000,400000,2,2"]);

    let wrong = run("a,1\n\"b\n\",2\n\nc,x7\n", numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv:5: x7 is not a number (column 2)"), "{wrong}");
    let wrong = run(&format!("{}a,\"x\ny\"\n", "k,2\n".repeat(200_000)), numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv:200001: x\\ny is not a number (column 2)"), "{wrong}");
    let wrong = run("a,1\nb\n", numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv:2: the record has 1 field, there is no column 2"), "{wrong}");
    let wrong = run("key,v\na,1\n", named()).await.unwrap_err();
    assert!(wrong.contains("odd.csv:1: no column \"k\"; there are \"key\", \"v\""), "{wrong}");
    let wrong = run("k,v,k\na,1,b\n", named()).await.unwrap_err();
    assert!(wrong.contains("more than one column is called \"k\""), "{wrong}");
    let wrong = run("a,1\n", aggregate("k", Some("2"), false)).await.unwrap_err();
    assert!(wrong.contains("no column \"k\": without a header, columns are numbers from 1"), "{wrong}");
    let wrong = run("a,1\n", aggregate("3", Some("2"), false)).await.unwrap_err();
    assert!(wrong.contains("odd.csv:1: no column 3: the first record has 2 fields"), "{wrong}");
}

#[tokio::test]
async fn a_quote_that_is_not_closed_is_called_so() {
    let bench = Bench::new();
    let run = async |csv: &str| {
        let file = bench.file("quote.csv", csv);
        let count = Aggregate { operations: vec![Operation::Count], ..aggregate("1", None, false) };
        let ran = bench.run(count, &[file], None).await;
        ran.map(|ran| sorted_lines(&ran.output, "k,count")).map_err(|error| error.to_string())
    };
    let never = "a quote is opened in this record and never closed";
    for (csv, line) in [("a,1\n\"b,2\nc,3\n", 2), ("a,\"", 1), ("a\n\n\"x\"\",y", 3)] {
        let wrong = run(csv).await.unwrap_err();
        assert!(wrong.contains(&format!("quote.csv:{line}: {never}")), "{csv:?}: {wrong}");
    }
    // What is closed at the very end, or is no quote where it stands.
    for (csv, rows) in [("a,\"\"", "a,1"), ("a,\"b\"", "a,1"), ("a\"b,1", "\"a\"\"b\",1")] {
        assert_eq!(run(csv).await.unwrap(), [rows], "{csv:?}");
    }
    // In a file that is cut, and of which no more than a window is in memory.
    let wrong = run(&format!("{}\"{}", "k,2\n".repeat(200_000), "k,2\n".repeat(1_000_000))).await.unwrap_err();
    let late = "quote.csv:200001: a quote is opened in this record and not closed within ";
    assert!(wrong.contains(late), "{wrong}");
    // Closed by the next quote there is: what is wrong is something else, and how far the record goes is said with it.
    let file = bench.file("quote.csv", "\"a,1\nb,2\n\"c,x\n");
    let wrong = bench.run(aggregate("1", Some("2"), false), &[file], None).await.map(drop).unwrap_err().to_string();
    let hint = "quote.csv:1: x is not a number (column 2); the record ends on line 3: is a quote not closed?";
    assert!(wrong.contains(hint), "{wrong}");
}
