//! What is said of groups.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use exobus_shuffle::Strategy;
use exobus_tables::aggregates::parse_list;
use exobus_tables::jobs::group::{GroupQuery, GroupTable, Top, group};
use exobus_tables::jobs::{FileSize, Rewritten};

use crate::support::{MIB, Table, batches_of, key_of};

type Names = Option<String>;

fn query(by: &[&str], aggregates: &str) -> GroupQuery {
    let by = by.iter().map(|column| (*column).to_owned()).collect();
    GroupQuery { by, aggregates: parse_list(aggregates).unwrap(), having: None, top: None }
}

async fn run(table: &Table, output: &str, node: (usize, u64), params: GroupTable) -> Rewritten {
    let program = async move |futures| group(futures, params).await;
    table.run(node, "table.group", program).await.unwrap_or_else(|error| panic!("{output}: {error}"))
}

/// A column of texts, over all batches.
fn texts(batches: &[RecordBatch], column: &str) -> Vec<Names> {
    let of = |batch: &RecordBatch| {
        let texts = batch[column].as_string::<i32>().clone();
        (0..texts.len()).map(move |row| texts.is_valid(row).then(|| texts.value(row).to_owned())).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

fn numbers(batches: &[RecordBatch], column: &str) -> Vec<Option<i64>> {
    batches.iter().flat_map(|batch| batch[column].as_primitive::<Int64Type>().iter().collect::<Vec<_>>()).collect()
}

fn sums(batches: &[RecordBatch], column: &str) -> Vec<Option<i128>> {
    batches.iter().flat_map(|batch| batch[column].as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>()).collect()
}

fn floats(batches: &[RecordBatch], column: &str) -> Vec<Option<u64>> {
    let of = |batch: &RecordBatch| {
        let floats = batch[column].as_primitive::<Float64Type>().iter();
        floats.map(|float| float.map(f64::to_bits)).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

/// Numbers of the rows of each user, in the order of users, those without a name last.
fn users(rows: i64) -> BTreeMap<(bool, Names), Vec<i64>> {
    let mut users = BTreeMap::<_, Vec<i64>>::new();
    for number in 0..rows {
        let user = key_of(number).0;
        users.entry((user.is_none(), user)).or_default().push(number);
    }
    users
}

#[tokio::test]
async fn groups_are_the_same_bytes_whatever_the_strategy_the_memory_and_the_number_of_executors() {
    let table = Table::new(200_000);
    let said = "count(*), sum(number) as s, avg(price), min(ts), max(ts), count_distinct(ts) as times, first(number) as f, \
                last(number) as l, quantile(ts, 0.5) as middle, variance(price), sum(price) as prices";
    let users = users(table.rows);
    let mut files = None;
    for strategy in
        [None, Some(Strategy::Push), Some(Strategy::TwoStage), Some(Strategy::Riffle), Some(Strategy::Streaming)]
    {
        for node in [(2, 64 * MIB), (1, 256 * MIB)] {
            let output = format!("{strategy:?}-{}", node.0);
            let mut rewrite = table.rewrite(&output, FileSize::Count(3));
            rewrite.strategy = strategy;
            let report = run(&table, &output, node, GroupTable { table: rewrite, query: query(&["user"], said) }).await;
            assert_eq!((report.rows_read, report.rows, report.files), (200_000, users.len() as u64, 3), "{output}");
            let batches = batches_of(&table.path(&output));
            assert_eq!(texts(&batches, "user"), users.keys().map(|(_, user)| user.clone()).collect::<Vec<_>>());
            let of_users = |of: fn(&[i64]) -> i64| users.values().map(|rows| Some(of(rows))).collect::<Vec<_>>();
            assert_eq!(numbers(&batches, "count(*)"), of_users(|rows| rows.len() as i64), "{output}");
            assert_eq!(numbers(&batches, "f"), of_users(|rows| rows[0]));
            assert_eq!(numbers(&batches, "l"), of_users(|rows| rows[rows.len() - 1]));
            let times = |rows: &[i64]| {
                let mut times: Vec<i64> = rows.iter().map(|number| key_of(*number).1).collect();
                times.sort_unstable();
                times
            };
            assert_eq!(
                numbers(&batches, "min(ts)"),
                users.values().map(|rows| Some(times(rows)[0])).collect::<Vec<_>>()
            );
            let middle = |rows: &Vec<i64>| Some(times(rows)[rows.len().div_ceil(2) - 1]);
            assert_eq!(numbers(&batches, "middle"), users.values().map(middle).collect::<Vec<_>>());
            let distinct = |rows: &Vec<i64>| {
                let mut times = times(rows);
                times.dedup();
                Some(times.len() as i64)
            };
            assert_eq!(numbers(&batches, "times"), users.values().map(distinct).collect::<Vec<_>>());
            let sum = |rows: &Vec<i64>| Some(rows.iter().map(|number| i128::from(*number)).sum());
            assert_eq!(sums(&batches, "s"), users.values().map(sum).collect::<Vec<_>>());
            assert!(floats(&batches, "variance(price)").iter().all(Option::is_some));
            let written = table.bytes_of(&output);
            assert!(*files.get_or_insert_with(|| written.clone()) == written, "{output} has other bytes");
        }
    }
}

#[tokio::test]
async fn more_groups_than_memory_holds_are_each_written_once() {
    let table = Table::new(1_500_000);
    let rewrite = table.rewrite("groups", FileSize::Rows(200_000));
    let said = "count(*) as rows, sum(ts) as s, first(user) as user";
    let report =
        run(&table, "groups", (2, 48 * MIB), GroupTable { table: rewrite, query: query(&["number"], said) }).await;
    assert_eq!((report.rows_read, report.rows, report.files), (1_500_000, 1_500_000, 8));
    let batches = batches_of(&table.path("groups"));
    assert!(numbers(&batches, "number").into_iter().eq((0..1_500_000).map(Some)));
    assert!(sums(&batches, "s").into_iter().eq((0..1_500_000).map(|number| Some(i128::from(key_of(number).1)))));
    assert!(texts(&batches, "user").into_iter().eq((0..1_500_000).map(|number| key_of(number).0)));
}

#[tokio::test]
async fn of_each_part_the_first_groups_stay_wherever_parts_end_in_partitions() {
    let table = Table::new(300_000);
    let (mut counts, mut expected) = (BTreeMap::<(bool, Names, i64), i64>::new(), Vec::new());
    for number in 0..table.rows {
        let (user, ts) = key_of(number);
        *counts.entry((user.is_none(), user, ts)).or_default() += 1;
    }
    for ((_, user), rows) in users(table.rows) {
        let mut times: Vec<i64> = rows.iter().map(|number| key_of(*number).1).collect();
        times.sort_unstable();
        times.dedup();
        let count = |ts: i64| counts[&(user.is_none(), user.clone(), ts)];
        times.sort_by_key(|ts| (-count(*ts), *ts));
        expected.extend(times.into_iter().take(3).map(|ts| (user.clone(), Some(ts), Some(count(ts)))));
    }
    for (output, by) in [("as-they-are", ["user", "ts"]), ("turned", ["ts", "user"])] {
        let top = Top { rows: 3, order_by: vec!["n:desc".parse().unwrap()], per: vec!["user".to_owned()] };
        let query = GroupQuery { top: Some(top), ..query(&by, "count(*) as n") };
        let table_of = table.rewrite(output, FileSize::Count(2));
        let report = run(&table, output, (2, 64 * MIB), GroupTable { table: table_of, query }).await;
        assert_eq!((report.rows, report.files), (expected.len() as u64, 2), "{output}");
        let batches = batches_of(&table.path(output));
        let found = texts(&batches, "user").into_iter().zip(numbers(&batches, "ts")).zip(numbers(&batches, "n"));
        assert!(found.map(|((user, ts), n)| (user, ts, n)).eq(expected.clone()), "{output}");
    }
    let top = Top { rows: 5, order_by: vec!["n:desc".parse().unwrap()], per: Vec::new() };
    let query = GroupQuery { top: Some(top), ..query(&["number"], "max(ts) as n") };
    run(&table, "all", (2, 64 * MIB), GroupTable { table: table.rewrite("all", FileSize::Count(1)), query }).await;
    let mut all: Vec<(i64, i64)> = (0..table.rows).map(|number| (-key_of(number).1, number)).collect();
    all.sort_unstable();
    let found = numbers(&batches_of(&table.path("all")), "number");
    assert_eq!(found, all[..5].iter().map(|(_, number)| Some(*number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn groups_that_do_not_meet_their_condition_are_left_out_and_a_table_without_rows_has_none() {
    let table = Table::new(50_000);
    let having = Some("n > 1000 and user is not null".parse().unwrap());
    let query = GroupQuery { having, ..query(&["user"], "count(*) as n") };
    let params = GroupTable { table: table.rewrite("many", FileSize::Count(1)), query: query.clone() };
    let report = run(&table, "many", (2, 64 * MIB), params).await;
    assert_eq!((report.rows_read, report.rows), (50_000, 1));
    assert_eq!(texts(&batches_of(&table.path("many")), "user"), [Some("a user with very many rows".to_owned())]);
    let mut none = table.rewrite("none", FileSize::default());
    none.reading.filter = Some("number < 0".parse().unwrap());
    let report = run(&table, "none", (2, 64 * MIB), GroupTable { table: none, query }).await;
    assert_eq!((report.rows_read, report.rows, report.files), (0, 0, 1));
}

#[tokio::test]
async fn without_columns_all_rows_are_one_group_which_is_there_without_rows_too() {
    let table = Table::new(50_000);
    let said = "count(*), sum(number) as s, max(number) as most, count_distinct(user) as users, quantile(number, 0.5) as middle, first(user) as user";
    let row = async |output: &str, rewrite| {
        let report = run(&table, output, (2, 64 * MIB), GroupTable { table: rewrite, query: query(&[], said) }).await;
        assert_eq!((report.rows, report.files), (1, 1), "{output}");
        let batches = batches_of(&table.path(output));
        let of_numbers = ["count(*)", "most", "users", "middle"].map(|column| numbers(&batches, column)[0]);
        (of_numbers, sums(&batches, "s")[0], texts(&batches, "user")[0].clone())
    };
    let users = users(table.rows).keys().filter(|(is_null, _)| !is_null).count() as i64;
    let all = (0..table.rows).map(i128::from).sum();
    assert_eq!(
        row("all", table.rewrite("all", FileSize::Count(1))).await,
        ([Some(50_000), Some(49_999), Some(users), Some(24_999)], Some(all), key_of(0).0)
    );
    let mut rewrite = table.rewrite("none", FileSize::Count(1));
    rewrite.reading.filter = Some("number < 0".parse().unwrap());
    assert_eq!(row("none", rewrite).await, ([Some(0), None, Some(0), None], None, None));
    // No column is named at all.
    let rewrite = table.rewrite("rows", FileSize::Count(1));
    run(&table, "rows", (2, 64 * MIB), GroupTable { table: rewrite, query: query(&[], "count(*)") }).await;
    assert_eq!(numbers(&batches_of(&table.path("rows")), "count(*)"), [Some(50_000)]);
}
