//! Joins of two tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type};
use arrow_array::{ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use exobus_actors::task::JobError;
use exobus_shuffle::Strategy;
use exobus_tables::jobs::join::{Broadcast, JoinKind, JoinQuery, JoinTables, join};
use exobus_tables::jobs::{FileSize, Rewritten};
use exobus_tables::reading::ReadOptions;

use crate::support::{MIB, Table, batches_by_file, batches_of, write_batch};

/// What a row has in the columns that are compared: a number, and a day.
type Key = [Option<i64>; 2];
/// Which rows of the left and of the right table a row that is written is made of.
type Sides = (Option<usize>, Option<usize>);

const ONE_COLUMN: &[&str] = &["id=uid"];
const TWO_COLUMNS: &[&str] = &["id=uid", "day"];
const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];
const NODE: (usize, u64) = (2, 64 * MIB);

/// In which order rows are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Of the key, then of the left table, then of the right one.
    Key,
    /// Of the left table, then of the right one.
    Left,
    /// Of the right table, then of the left one.
    Right,
}

/// Two tables in files.
struct Tables {
    table: Table,
    left: Vec<Key>,
    right: Vec<Key>,
    /// Bytes of a note of the right table, at least.
    note_bytes: usize,
}

/// A note of so many bytes at least.
fn note(side: &str, number: usize, bytes: usize) -> Option<String> {
    (number % 7 != 3).then(|| format!("{:.<bytes$}", format!("{side} {number}")))
}

fn notes(side: &str, numbers: Range<usize>, bytes: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter(numbers.map(|number| note(side, number, bytes))))
}

fn numbers_from(numbers: Range<usize>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(numbers.map(|number| number as i64)))
}

/// Rows of the left table, of which the first has this number: its columns of the key are of 32 and of 64 bits.
fn left_rows(keys: &[Key], first: usize, note_bytes: usize) -> RecordBatch {
    let numbers = first..first + keys.len();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("number", numbers_from(numbers.clone()), false),
        ("id", Arc::new(Int32Array::from_iter(keys.iter().map(|[id, _]| id.map(|id| id as i32)))), true),
        ("day", Arc::new(Int64Array::from_iter(keys.iter().map(|[_, day]| *day))), true),
        ("note", notes("left", numbers, note_bytes), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Rows of the right table: its columns of the key are of 64 and of 16 bits.
fn right_rows(keys: &[Key], first: usize, note_bytes: usize) -> RecordBatch {
    let numbers = first..first + keys.len();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("place", numbers_from(numbers.clone()), false),
        ("uid", Arc::new(Int64Array::from_iter(keys.iter().map(|[id, _]| *id))), true),
        ("day", Arc::new(Int16Array::from_iter(keys.iter().map(|[_, day]| day.map(|day| day as i16)))), true),
        ("note", notes("right", numbers, note_bytes), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Three files, one of them without a row.
fn write_files(folder: &Path, keys: &[Key], group_rows: u64, rows: impl Fn(&[Key], usize) -> RecordBatch) {
    fs::create_dir(folder).unwrap();
    let third = keys.len() / 3;
    for (name, numbers) in [("a", 0..third), ("b", third..third), ("c", third..keys.len())] {
        let batch = rows(&keys[numbers.clone()], numbers.start);
        write_batch(&folder.join(format!("{name}.parquet")), &batch, group_rows);
    }
}

impl Tables {
    fn new(left: Vec<Key>, right: Vec<Key>, group_rows: u64) -> Self {
        Self::with_notes(left, right, group_rows, 0)
    }

    /// Notes of the right table have so many bytes at least.
    fn with_notes(left: Vec<Key>, right: Vec<Key>, group_rows: u64, note_bytes: usize) -> Self {
        let table = Table { folder: tempfile::tempdir().unwrap(), rows: left.len() as i64 };
        write_files(&table.path("in"), &left, group_rows, |keys, first| left_rows(keys, first, 0));
        write_files(&table.path("right"), &right, group_rows, |keys, first| right_rows(keys, first, note_bytes));
        Self { table, left, right, note_bytes }
    }

    /// A join by the key, whatever the tables are.
    fn params(&self, output: &str, on: &[&str], kind: JoinKind, files: u32) -> JoinTables {
        let on = on.iter().map(|pair| pair.parse().unwrap()).collect();
        JoinTables {
            table: self.table.rewrite(output, FileSize::Count(files)),
            right: vec![self.table.path("right")],
            right_reading: ReadOptions::default(),
            query: JoinQuery { on, kind, suffix: Some("_r".to_owned()) },
            broadcast: Broadcast::Never,
        }
    }

    async fn run(&self, node: (usize, u64), params: JoinTables) -> Result<Rewritten, JobError> {
        self.table.run(node, "table.join", async move |futures| join(futures, params).await).await
    }

    /// Joins, and looks at all rows that are written.
    async fn check(&self, output: &str, params: JoinTables, order: Order) -> Rewritten {
        let (kind, columns) = (params.query.kind, params.query.on.len());
        let report = self.run(NODE, params).await.unwrap_or_else(|error| panic!("{output}: {error}"));
        self.look(output, &report, (columns, kind, order));
        report
    }

    /// Looks at all rows that are written.
    fn look(&self, output: &str, report: &Rewritten, (columns, kind, order): (usize, JoinKind, Order)) {
        let expected = self.expected(columns, kind, order);
        let read = (self.left.len() + self.right.len()) as u64;
        assert_eq!((report.rows_read, report.rows), (read, expected.len() as u64), "{output}");
        let batches = batches_of(&self.table.path(output));
        let (left, right) = (|row: usize| self.left[row], |row: usize| self.right[row]);
        let of_left =
            |of: &dyn Fn(usize) -> Option<i64>| expected.iter().map(|(row, _)| row.and_then(of)).collect::<Vec<_>>();
        let of_right =
            |of: &dyn Fn(usize) -> Option<i64>| expected.iter().map(|(_, row)| row.and_then(of)).collect::<Vec<_>>();
        let of_key = |column: usize| {
            let of = |sides: &Sides| sides.0.map(left).or(sides.1.map(right)).and_then(|key| key[column]);
            expected.iter().map(of).collect::<Vec<_>>()
        };
        let mut all: Vec<(&str, Vec<Option<i64>>)> =
            vec![("number", of_left(&|row| Some(row as i64))), ("id", of_key(0))];
        let of_days = if columns == 2 { of_key(1) } else { of_left(&|row| left(row)[1]) };
        all.push(("day", of_days));
        let has_right = !matches!(kind, JoinKind::Semi | JoinKind::Anti);
        if has_right {
            all.push(("place", of_right(&|row| Some(row as i64))));
        }
        if has_right && columns == 1 {
            all.push(("day_r", of_right(&|row| right(row)[1])));
        }
        for (column, expected) in all {
            let found = numbers(&batches, column);
            assert_eq!(found.len(), expected.len(), "{output}");
            if let Some(row) = (0..found.len()).find(|row| found[*row] != expected[*row]) {
                panic!("{output}, row {row}: {column} is {:?}, not {:?}", found[row], expected[row]);
            }
        }
        let are_notes = |column: &str, side: &str, bytes: usize, row_of: &dyn Fn(&Sides) -> Option<usize>| {
            let rows = expected.iter().map(row_of);
            texts(&batches, column).eq(rows.map(|row| row.and_then(|row| note(side, row, bytes))))
        };
        assert!(are_notes("note", "left", 0, &|sides| sides.0), "{output}: other notes of the left table");
        let are_right = !has_right || are_notes("note_r", "right", self.note_bytes, &|sides| sides.1);
        assert!(are_right, "{output}: other notes of the right table");
        for batch in &batches {
            let names: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            let more: &[&str] = match (has_right, columns) {
                (false, _) => &[],
                (true, 1) => &["place", "day_r", "note_r"],
                (true, _) => &["place", "note_r"],
            };
            assert_eq!(names, [&["number", "id", "day", "note"][..], more].concat(), "{output}");
        }
    }

    /// Which rows are written, in their order, where the first columns of the key are compared.
    fn expected(&self, columns: usize, kind: JoinKind, order: Order) -> Vec<Sides> {
        // Nulls stand behind all numbers.
        let in_order = |key: &Key| key[..columns].iter().map(|part| (part.is_none(), *part)).collect::<Vec<_>>();
        let mut keys = BTreeMap::<Vec<(bool, Option<i64>)>, [Vec<usize>; 2]>::new();
        for (side, rows) in [&self.left, &self.right].into_iter().enumerate() {
            for (row, key) in rows.iter().enumerate() {
                keys.entry(in_order(key)).or_default()[side].push(row);
            }
        }
        let keeps_left = matches!(kind, JoinKind::Left | JoinKind::Full | JoinKind::Anti);
        let keeps_right = matches!(kind, JoinKind::Right | JoinKind::Full);
        let mut expected = Vec::new();
        for (key, [left, right]) in keys {
            let is_null = key.iter().any(|(is_null, _)| *is_null);
            match (is_null || left.is_empty() || right.is_empty(), kind) {
                (true, _) => {
                    expected.extend(left.iter().filter(|_| keeps_left).map(|row| (Some(*row), None)));
                    expected.extend(right.iter().filter(|_| keeps_right).map(|row| (None, Some(*row))));
                }
                (false, JoinKind::Anti) => (),
                (false, JoinKind::Semi) => expected.extend(left.iter().map(|row| (Some(*row), None))),
                (false, _) => {
                    for row in left {
                        expected.extend(right.iter().map(|of_right| (Some(row), Some(*of_right))));
                    }
                }
            }
        }
        match order {
            Order::Key => (),
            Order::Left => expected.sort_unstable(),
            Order::Right => expected.sort_unstable_by_key(|(left, right)| (*right, *left)),
        }
        expected
    }
}

fn numbers(batches: &[RecordBatch], column: &str) -> Vec<Option<i64>> {
    let of = |batch: &RecordBatch| match batch[column].data_type() {
        DataType::Int16 => {
            let days = batch[column].as_primitive::<Int16Type>().iter();
            days.map(|day| day.map(i64::from)).collect::<Vec<_>>()
        }
        _ => batch[column].as_primitive::<Int64Type>().iter().collect(),
    };
    batches.iter().flat_map(of).collect()
}

fn texts(batches: &[RecordBatch], column: &str) -> impl Iterator<Item = Option<String>> {
    batches.iter().flat_map(move |batch| batch[column].as_string::<i32>().iter()).map(|text| text.map(str::to_owned))
}

/// Keys of so many rows, numbers of which are among these: one in eleven has none, and one in seven has no day.
fn keys(rows: usize, ids: Range<i64>, seed: usize) -> Vec<Key> {
    let key = |row: usize| {
        let mixed = ((row + seed) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let id = ids.start + (mixed / 11 % (ids.end - ids.start) as u64) as i64;
        [(!mixed.is_multiple_of(11)).then_some(id), (!mixed.is_multiple_of(7)).then_some((mixed / 7 % 3) as i64 - 1)]
    };
    (0..rows).map(key).collect()
}

fn ids(ids: impl IntoIterator<Item = Option<i64>>) -> Vec<Key> {
    ids.into_iter().map(|id| [id, Some(0)]).collect()
}

#[tokio::test]
async fn every_kind_writes_the_rows_that_a_comparison_of_all_keys_finds_in_the_order_of_the_key() {
    let tables = Tables::new(keys(4_000, 0..500, 0), keys(2_500, 200..800, 1_000_003), 700);
    for kind in KINDS {
        for on in [ONE_COLUMN, TWO_COLUMNS] {
            let output = format!("{kind}-{}", on.len());
            let report = tables.check(&output, tables.params(&output, on, kind, 4), Order::Key).await;
            assert_eq!((report.files, report.row_hash_in), (4, report.row_hash_out), "{output}");
        }
    }
}

#[tokio::test]
async fn rows_of_one_key_are_in_the_order_of_the_left_table_and_then_of_the_right_one() {
    let left = ids([Some(3), Some(1), None, Some(1), Some(5)]);
    let right = ids([Some(1), Some(4), None, Some(1), Some(3)]);
    let tables = Tables::new(left, right, 2);
    for files in [1, 4] {
        let output = format!("{files}");
        tables.run(NODE, tables.params(&output, ONE_COLUMN, JoinKind::Full, files)).await.unwrap();
        let batches = batches_of(&tables.table.path(&output));
        let found: Vec<_> = numbers(&batches, "number").into_iter().zip(numbers(&batches, "place")).collect();
        let of_both = [(1, 0), (1, 3), (3, 0), (3, 3), (0, 4)].map(|(left, right)| (Some(left), Some(right)));
        let of_one = [(None, Some(1)), (Some(4), None), (Some(2), None), (None, Some(2))];
        assert_eq!(found, [&of_both[..], &of_one].concat(), "{files} files");
        let id = |id: i64| Some(id);
        let of_ids = [id(1), id(1), id(1), id(1), id(3), id(4), id(5), None, None];
        assert_eq!(numbers(&batches, "id"), of_ids, "the key is that of the table that has it");
    }
}

#[tokio::test]
async fn the_same_files_whatever_the_strategy_the_memory_and_the_executors_are() {
    let tables = Tables::new(keys(80_000, 0..30_000, 0), keys(50_000, 10_000..45_000, 1_000_003), 2_000);
    let strategies = Strategy::ALL.map(Some);
    let runs = strategies.iter().map(|strategy| (*strategy, 4, 64 * MIB));
    let (mut first, mut maps) = (None, BTreeSet::new());
    for (strategy, executors, memory) in runs.chain([(None, 1, 96 * MIB), (None, 2, 512 * MIB)]) {
        let output = format!("{strategy:?}-{executors}-{memory}");
        let mut params = tables.params(&output, TWO_COLUMNS, JoinKind::Full, 5);
        params.table.strategy = strategy;
        let report = tables.run((executors, memory), params).await.unwrap_or_else(|error| panic!("{output}: {error}"));
        assert_eq!((report.rows_read, report.files), (130_000, 5), "{output}");
        maps.insert(report.maps);
        let files = tables.table.bytes_of(&output);
        if first.is_none() {
            tables.look(&output, &report, (2, JoinKind::Full, Order::Key));
            assert!(files.iter().all(|(_, bytes)| bytes.len() > 10_000), "cuts are about even");
        }
        assert!(*first.get_or_insert_with(|| files.clone()) == files, "{output}: the files are others");
    }
    assert!(maps.len() >= 2, "rows came to maps otherwise: {maps:?}");
}

/// A filter of its keys leaves out most rows of the other table, where such rows are not written.
#[tokio::test]
async fn a_table_that_is_much_smaller_meets_the_rows_of_the_other_one_that_have_its_keys() {
    let large = || keys(150_000, 0..30_000, 0);
    let small = || keys(2_000, 29_000..50_000, 1_000_003);
    for (name, tables) in
        [("right", Tables::new(large(), small(), 4_000)), ("left", Tables::new(small(), large(), 4_000))]
    {
        for kind in KINDS {
            let output = format!("{name}-{kind}");
            tables.check(&output, tables.params(&output, TWO_COLUMNS, kind, 3), Order::Key).await;
        }
        let mut first = None;
        for (strategy, memory) in
            Strategy::ALL.map(|strategy| (Some(strategy), 64 * MIB)).into_iter().chain([(None, 256 * MIB)])
        {
            let output = format!("{name}-{strategy:?}-{memory}");
            let mut params = tables.params(&output, ONE_COLUMN, JoinKind::Inner, 3);
            params.table.strategy = strategy;
            tables.run((2, memory), params).await.unwrap_or_else(|error| panic!("{output}: {error}"));
            let files = tables.table.bytes_of(&output);
            assert!(*first.get_or_insert_with(|| files.clone()) == files, "{output}: the files are others");
        }
    }
}

/// Nine of ten rows of the left table have one key, which is in the middle or null; some rows of the right one have it, and some have none.
fn with_a_heavy_key(heavy: Option<i64>) -> Tables {
    let of_left = |row: i64| match row % 10 {
        0 => (row % 100 != 50).then_some(row / 10 % 200),
        _ => heavy,
    };
    let of_right = |row: i64| match row {
        1 | 134 | 267 => Some(77),
        row if row % 10 == 0 => None,
        row => Some(300 - row % 70 * 4),
    };
    Tables::new(ids((0..40_000).map(of_left)), ids((0..400).map(of_right)), 1_000)
}

#[tokio::test]
async fn a_key_with_most_rows_of_the_left_table_is_divided_among_files_of_even_length() {
    for heavy in [Some(77), None] {
        let tables = with_a_heavy_key(heavy);
        for kind in KINDS {
            // Rows of the right table that have the divided key, or none, are written as often as they are there.
            let output = format!("{kind}-{heavy:?}");
            tables.check(&output, tables.params(&output, ONE_COLUMN, kind, 6), Order::Key).await;
        }
        let files = batches_by_file(&tables.table.path(&format!("full-{heavy:?}")));
        let rows_of = |file: &Vec<RecordBatch>| numbers(file, "number").into_iter().flatten().collect::<BTreeSet<_>>();
        let lengths: Vec<usize> = files.iter().map(|file| rows_of(file).len()).collect();
        let mean = lengths.iter().sum::<usize>() / lengths.len();
        assert!(lengths.iter().all(|rows| *rows > mean / 2 && *rows < 2 * mean), "{heavy:?}: {lengths:?}");
        let with_it = files.iter().filter(|file| numbers(file, "id").contains(&heavy)).count();
        assert!(with_it >= 5, "{heavy:?} is in {with_it} files");
    }
}

#[tokio::test]
async fn rows_that_are_left_out_since_their_key_has_a_null_make_no_file() {
    let left = ids((0..40_000).map(|row| (row % 10 == 0).then_some(row / 10 % 2_000)));
    let tables = Tables::new(left, ids((0..2_000).map(|row| Some(1_999 - row))), 1_000);
    tables.check("out", tables.params("out", ONE_COLUMN, JoinKind::Inner, 6), Order::Key).await;
    let rows = |file: &Vec<RecordBatch>| file.iter().map(RecordBatch::num_rows).sum::<usize>();
    let lengths: Vec<usize> = batches_by_file(&tables.table.path("out")).iter().map(rows).collect();
    let mean = 4_000 / 6;
    assert!(lengths.iter().all(|rows| *rows > mean / 2 && *rows < 2 * mean), "{lengths:?}");
}

#[tokio::test]
async fn files_of_a_divided_key_are_the_same_whatever_the_strategy_and_the_memory_are() {
    let tables = with_a_heavy_key(Some(77));
    let mut first = None;
    let strategies = Strategy::ALL.map(Some);
    for (strategy, node) in strategies.into_iter().map(|strategy| (strategy, NODE)).chain([(None, (1, 256 * MIB))]) {
        let output = format!("{strategy:?}-{}", node.0);
        let mut params = tables.params(&output, ONE_COLUMN, JoinKind::Full, 6);
        params.table.strategy = strategy;
        tables.run(node, params).await.unwrap_or_else(|error| panic!("{output}: {error}"));
        let files = tables.table.bytes_of(&output);
        assert!(*first.get_or_insert_with(|| files.clone()) == files, "{output}: the files are others");
    }
}

#[tokio::test]
async fn a_right_table_of_one_key_meets_few_rows_of_the_left_one_or_none() {
    let right = || ids((0..20_000).map(|_| Some(5)));
    for left in [vec![Some(5), None, Some(1), Some(5), Some(9)], vec![Some(9), None, Some(1)]] {
        let tables = Tables::new(ids(left), right(), 1_000);
        for kind in KINDS {
            let output = format!("out-{kind}");
            tables.check(&output, tables.params(&output, ONE_COLUMN, kind, 5), Order::Key).await;
        }
    }
}

#[tokio::test]
async fn a_key_that_is_there_thousands_of_times_in_both_tables_has_millions_of_pairs_within_little_memory() {
    let tables = Tables::new(ids((0..3_000).map(|_| Some(7))), ids((0..3_000).map(|_| Some(7))), 1_000);
    let mut params = tables.params("out", ONE_COLUMN, JoinKind::Inner, 2);
    params.table.reading.select = Some(vec!["id".to_owned()]);
    params.right_reading.select = Some(vec!["uid".to_owned(), "place".to_owned()]);
    params.table.writing.group_rows = None;
    let report = tables.run(NODE, params).await.unwrap();
    assert_eq!((report.rows_read, report.rows, report.files), (6_000, 9_000_000, 2));
}

/// Nearly all rows of the right table have one key, which two rows of the left one have: 75 MB of them, for which the store of a node with 64 MiB has no room.
fn with_a_heavy_key_on_the_right(heavy: Option<i64>) -> Tables {
    let of_left = |row: i64| match row {
        row if row % 90 == 7 => heavy,
        row if row % 9 == 0 => None,
        row => Some(row % 120),
    };
    let of_right = |row: i64| match row % 1_000 {
        999 => None,
        500 => Some(row / 1_000 % 140),
        _ => heavy,
    };
    Tables::with_notes(ids((0..180).map(of_left)), ids((0..110_000).map(of_right)), 8_000, 720)
}

#[tokio::test]
async fn a_key_of_the_right_table_with_more_rows_than_memory_meets_each_row_of_the_left_one() {
    // A key, or that there is none, which matches nothing.
    let of_key = (Some(77), [JoinKind::Full, JoinKind::Anti]);
    for (heavy, kinds) in [of_key, (None, [JoinKind::Right, JoinKind::Semi])] {
        let tables = with_a_heavy_key_on_the_right(heavy);
        for kind in kinds {
            let output = format!("{kind}-{heavy:?}");
            tables.check(&output, tables.params(&output, ONE_COLUMN, kind, 8), Order::Key).await;
        }
    }
}

#[tokio::test]
async fn files_of_a_heavy_key_are_the_same_whatever_the_strategy_and_the_memory_are() {
    let tables = with_a_heavy_key_on_the_right(Some(77));
    let mut first = None;
    let strategies = [Strategy::Simple, Strategy::TwoStage].map(|strategy| (Some(strategy), NODE));
    for (strategy, node) in strategies.into_iter().chain([(None, (1, 512 * MIB))]) {
        let output = format!("{strategy:?}-{}", node.0);
        let mut params = tables.params(&output, ONE_COLUMN, JoinKind::Full, 6);
        params.table.strategy = strategy;
        params.table.writing.verify = strategy.is_none();
        let report = tables.run(node, params).await.unwrap_or_else(|error| panic!("{output}: {error}"));
        assert_eq!(report.files, 6, "{output}");
        let files = tables.table.bytes_of(&output);
        assert!(*first.get_or_insert_with(|| files.clone()) == files, "{output}: the files are others");
    }
}

#[tokio::test]
async fn tables_larger_than_memory_are_joined_within_it() {
    const ROWS: i64 = 1_000_000;
    // Each number once, in another order than that of rows, and half of them in both tables.
    let of_left = |row: i64| row * 387_421 % ROWS;
    let of_right = |row: i64| ROWS / 2 + row * 654_323 % ROWS;
    let tables = Tables::new(
        ids((0..ROWS).map(|row| Some(of_left(row)))),
        ids((0..ROWS).map(|row| Some(of_right(row)))),
        10_000,
    );
    let report = tables.run(NODE, tables.params("out", ONE_COLUMN, JoinKind::Full, 12)).await.unwrap();
    assert_eq!((report.rows_read, report.rows, report.files), (2_000_000, 1_500_000, 12));
    assert!(report.maps >= 8, "{report:?}");
    let batches = batches_of(&tables.table.path("out"));
    assert!(numbers(&batches, "id").into_iter().eq((0..ROWS * 3 / 2).map(Some)));
    let are_right = |column: &str, of: &dyn Fn(i64) -> i64, ids: Range<i64>| {
        let found = numbers(&batches, column);
        (0..).zip(&found).all(|(id, row)| row.map(of) == ids.contains(&id).then_some(id))
    };
    assert!(are_right("number", &of_left, 0..ROWS));
    assert!(are_right("place", &of_right, ROWS / 2..ROWS * 3 / 2));
}

#[tokio::test]
async fn a_table_without_rows_matches_nothing() {
    let (left, right) = (|| keys(900, 0..100, 0), || keys(700, 50..150, 1_000_003));
    for (name, left, right) in [("left", vec![], right()), ("right", left(), vec![]), ("both", vec![], vec![])] {
        let tables = Tables::new(left, right, 200);
        for kind in KINDS {
            let output = format!("{name}-{kind}");
            let report = tables.check(&output, tables.params(&output, ONE_COLUMN, kind, 3), Order::Key).await;
            assert_eq!(report.files, 3, "{output}");
        }
    }
}

#[tokio::test]
async fn rows_that_do_not_meet_the_condition_of_their_table_match_nothing() {
    // What files say of themselves tells of the one condition that no row meets it, and not of the other one.
    for (name, filter_left, filter_right) in [
        ("left", Some("number < 0"), None),
        ("left-read", Some("note = 'none'"), None),
        ("right", None, Some("place < 0")),
        ("right-read", None, Some("note = 'none'")),
    ] {
        let mut tables = Tables::new(keys(900, 0..100, 0), keys(700, 50..150, 1_000_003), 200);
        if filter_left.is_some() {
            tables.left.clear();
        }
        if filter_right.is_some() {
            tables.right.clear();
        }
        for kind in KINDS {
            let output = format!("{name}-{kind}");
            let mut params = tables.params(&output, TWO_COLUMNS, kind, 3);
            params.table.reading.filter = filter_left.map(|filter| filter.parse().unwrap());
            params.right_reading.filter = filter_right.map(|filter| filter.parse().unwrap());
            tables.check(&output, params, Order::Key).await;
        }
    }
    let mut tables = Tables::new(keys(900, 0..100, 0), keys(700, 50..150, 1_000_003), 200);
    let mut params = tables.params("some", ONE_COLUMN, JoinKind::Full, 3);
    params.table.reading.filter = Some("number < 300".parse().unwrap());
    params.right_reading.filter = Some("place < 200".parse().unwrap());
    tables.left.truncate(300);
    tables.right.truncate(200);
    tables.check("some", params, Order::Key).await;
}

#[tokio::test]
async fn a_small_table_meets_the_other_one_in_the_order_of_that() {
    let tables = Tables::new(keys(4_000, 0..500, 0), keys(2_500, 200..800, 1_000_003), 700);
    let of_right = [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti];
    let said = of_right.map(|kind| (kind, Broadcast::Right, Order::Left)).into_iter().chain([
        (JoinKind::Inner, Broadcast::Left, Order::Right),
        (JoinKind::Right, Broadcast::Left, Order::Right),
        (JoinKind::Left, Broadcast::Auto, Order::Left),
        (JoinKind::Right, Broadcast::Auto, Order::Right),
        (JoinKind::Full, Broadcast::Auto, Order::Key),
    ]);
    for (kind, broadcast, order) in said {
        for on in [ONE_COLUMN, TWO_COLUMNS] {
            let output = format!("{kind}-{broadcast}-{}", on.len());
            let params = JoinTables { broadcast, ..tables.params(&output, on, kind, 3) };
            let report = tables.check(&output, params, order).await;
            assert_eq!(report.files, 3, "{output}");
            let again = format!("{output}-again");
            let params = JoinTables { broadcast, ..tables.params(&again, on, kind, 3) };
            tables.run((1, 256 * MIB), params).await.unwrap();
            assert!(tables.table.bytes_of(&output) == tables.table.bytes_of(&again), "{output}: the files are others");
        }
    }
}

#[tokio::test]
async fn a_table_that_is_broadcast_and_larger_than_memory_is_read_in_passes_and_the_files_are_the_same() {
    // One key has more rows than pairs are given out at a time, and three rows of the left table have it.
    let of_right = |[id, day]: Key, row: usize| [if row.is_multiple_of(11) { Some(-7) } else { id }, day];
    let right = (0..).zip(keys(100_000, 0..50_000, 5)).map(|(row, key)| of_right(key, row)).collect();
    let of_left = |[id, day]: Key, row: usize| [if row % 2_000 == 99 { Some(-7) } else { id }, day];
    let left = (0..).zip(keys(6_000, 10_000..70_000, 1_000_003)).map(|(row, key)| of_left(key, row)).collect();
    // 65 MB, where the store of a node has 64 MiB.
    let large_on_the_right = Tables::with_notes(left, right, 5_000, 640);
    let large_on_the_left = Tables::new(keys(250_000, 0..90_000, 0), keys(3_000, 50_000..140_000, 1_000_003), 20_000);
    let said = [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti]
        .map(|kind| (&large_on_the_right, kind, Broadcast::Right, Order::Left))
        .into_iter()
        .chain(
            [JoinKind::Inner, JoinKind::Right].map(|kind| (&large_on_the_left, kind, Broadcast::Left, Order::Right)),
        );
    for (tables, kind, broadcast, order) in said {
        let output = format!("{kind}-{broadcast}");
        tables.check(&output, JoinTables { broadcast, ..tables.params(&output, ONE_COLUMN, kind, 2) }, order).await;
        let at_once = format!("{output}-at-once");
        let params = JoinTables { broadcast, ..tables.params(&at_once, ONE_COLUMN, kind, 2) };
        tables.run((1, 1024 * MIB), params).await.unwrap_or_else(|error| panic!("{at_once}: {error}"));
        assert!(tables.table.bytes_of(&output) == tables.table.bytes_of(&at_once), "{output}: the files are others");
    }
}

#[tokio::test]
async fn a_small_table_without_rows_meets_the_other_one() {
    for (name, left, right) in
        [("left", vec![], keys(700, 0..90, 5)), ("right", keys(900, 0..90, 0), vec![]), ("both", vec![], vec![])]
    {
        let tables = Tables::new(left, right, 200);
        for kind in KINDS {
            let order = match kind {
                JoinKind::Full => Order::Key,
                JoinKind::Right => Order::Right,
                _ => Order::Left,
            };
            let output = format!("{name}-{kind}");
            let params = JoinTables { broadcast: Broadcast::Auto, ..tables.params(&output, ONE_COLUMN, kind, 3) };
            tables.check(&output, params, order).await;
        }
    }
}

#[tokio::test]
async fn what_is_no_join_is_refused_before_anything_is_written() {
    let tables = Tables::new(keys(90, 0..10, 0), keys(90, 0..10, 5), 20);
    let refused = async |params: JoinTables, words: &[&str]| {
        let error = tables.run(NODE, params).await.unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(!tables.table.path("out").exists(), "{error}");
    };
    let on = |on: &[&str]| tables.params("out", on, JoinKind::Inner, 2);
    let types = ["note=uid", "text in the left table", "int64 in the right table"];
    refused(on(&["note=uid"]), &types).await;
    refused(on(&["idd=uid"]), &["no column idd", "id"]).await;
    refused(on(&["id=ui"]), &["no column ui", "uid"]).await;
    refused(on(&["id=uid", "id=day"]), &["in two pairs"]).await;
    refused(on(&[]), &["columns that have to be the same"]).await;
    let mut alike = on(ONE_COLUMN);
    alike.query.suffix = None;
    refused(alike, &["\"day\" of the right table", "--suffix"]).await;
    let mut rows = on(ONE_COLUMN);
    rows.table.writing.file_size = FileSize::Rows(10);
    refused(rows, &["nobody knows how many rows"]).await;
    for (kind, broadcast) in [(JoinKind::Full, Broadcast::Right), (JoinKind::Left, Broadcast::Left)] {
        let params = JoinTables { broadcast, ..tables.params("out", ONE_COLUMN, kind, 2) };
        refused(params, &["match none", "broadcast"]).await;
    }
    // Of which no rows are written that would have one name with others.
    let mut semi = tables.params("semi", ONE_COLUMN, JoinKind::Semi, 2);
    semi.query.suffix = None;
    tables.run(NODE, semi).await.unwrap();
}

#[tokio::test]
async fn a_row_group_of_either_table_that_is_larger_than_memory_is_named() {
    let (many, few) = (|| ids((0..600_000).map(Some)), || ids((0..10).map(Some)));
    for (folder, left, right) in [("in", many(), few()), ("right", few(), many())] {
        let tables = Tables::new(left, right, 1_000_000);
        let params = tables.params("out", ONE_COLUMN, JoinKind::Inner, 2);
        let error = tables.run((1, 48 * MIB), params).await.unwrap_err().to_string();
        let place = format!("{folder}/a.parquet, row group or piece 0,");
        assert!(error.contains(&place) && error.contains("--memory"), "{error}");
        assert!(!tables.table.path("out").exists(), "{error}");
    }
}
