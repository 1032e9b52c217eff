//! Sorts of tables in nodes of this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;
use exobus_shuffle::Strategy;
use exobus_tables::jobs::sort::{ReadOptions, SortTable, SortedTable, WriteOptions, sort};
use exobus_tables::semantics::{KeyColumn, Nulls};
use exobus_tables::sinks::{Compression, IpcSink, ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const MIB: u64 = 1 << 20;

/// Row `number` of the table: what its key is, if it has one, and its time.
fn key_of(number: i64) -> (Option<String>, i64) {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    // One user in three has a tenth of all rows; every eleventh row has none.
    let user = match mixed % 11 {
        0 => None,
        1 => Some("a user with very many rows".to_owned()),
        _ => Some(format!("user {:04}", mixed % 700)),
    };
    (user, (mixed % 50) as i64)
}

/// Rows of these numbers.
fn rows(numbers: std::ops::Range<i64>) -> RecordBatch {
    let keys: Vec<_> = numbers.clone().map(key_of).collect();
    let mut lists = ListBuilder::new(Int64Builder::new());
    for number in numbers.clone() {
        (0..number % 4).for_each(|element| lists.values().append_value(element));
        lists.append(number % 5 > 0);
    }
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("number", Arc::new(Int64Array::from_iter_values(numbers.clone())), false),
        ("user", Arc::new(StringArray::from_iter(keys.iter().map(|(user, _)| user.as_deref()))), true),
        ("ts", Arc::new(Int64Array::from_iter_values(keys.iter().map(|(_, ts)| *ts))), true),
        ("price", Arc::new(Float64Array::from_iter(numbers.map(|n| (n % 3 > 0).then_some(n as f64 / 7.0)))), true),
        ("list", Arc::new(lists.finish()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn write(path: &Path, numbers: std::ops::Range<i64>, group_rows: u64) {
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let options = ParquetOptions { group_rows, compression: Compression::Zstd(1).codec(), ..ParquetOptions::default() };
    let all = rows(numbers);
    let mut sink = ParquetSink::new(Vec::new(), &all.schema(), &options, &budget).unwrap();
    sink.write(&all).unwrap();
    fs::write(path, sink.finish().unwrap().0).unwrap();
}

struct Table {
    folder: tempfile::TempDir,
    rows: i64,
}

impl Table {
    /// Files of several row groups each, one of them without a row.
    fn new(rows: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in");
        fs::create_dir(&input).unwrap();
        let third = rows / 3;
        write(&input.join("a.parquet"), 0..third, 1_000);
        write(&input.join("b.parquet"), third..third, 1_000);
        write(&input.join("c.parquet"), third..2 * third, 7_000);
        write(&input.join("d.parquet"), 2 * third..rows, 3_500);
        Self { folder, rows }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn params(&self, output: &str, key: &[KeyColumn]) -> SortTable {
        SortTable {
            inputs: vec![self.path("in")],
            output: self.path(output),
            key: key.to_vec(),
            files: Some(5),
            reading: ReadOptions::default(),
            writing: WriteOptions { group_rows: 2_000, ..WriteOptions::default() },
            strategy: None,
            partial: false,
        }
    }

    async fn sort(&self, (executors, memory_bytes): (usize, u64), params: SortTable) -> Result<SortedTable, JobError> {
        let mut options = NodeOptions::alone(executors, memory_bytes);
        options.store.spill_dirs = vec![self.path("spill")];
        let node = Node::start(options).unwrap();
        let program = async move |futures| sort(futures, params).await;
        let result = node.run(JobId::new(), "table.sort", None, program).await.0;
        node.stop();
        result
    }

    /// Numbers of the rows in the order of the files of a folder, and the bytes of these.
    fn written(&self, output: &str) -> (Vec<i64>, Vec<(String, Vec<u8>)>) {
        let (numbers, files) = self.read(output, |name, batch, numbers| {
            // Rows are what they were in all their columns.
            for (at, number) in numbers.iter().enumerate() {
                assert_eq!(batch.slice(at, 1).columns(), rows(*number..number + 1).columns(), "{name}");
            }
        });
        (numbers, files)
    }

    /// The same, with a look at each batch.
    fn read(&self, output: &str, look: impl Fn(&str, &RecordBatch, &[i64])) -> (Vec<i64>, Vec<(String, Vec<u8>)>) {
        let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(self.path(output))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
            .filter(|(name, _)| name.ends_with(".parquet"))
            .collect();
        files.sort();
        let mut numbers = Vec::new();
        for (name, bytes) in &files {
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.clone())).unwrap();
            for batch in reader.build().unwrap() {
                let batch = batch.unwrap();
                let of_batch = batch["number"].as_primitive::<Int64Type>().values().to_vec();
                look(name, &batch, &of_batch);
                numbers.extend(of_batch);
            }
        }
        (numbers, files)
    }
}

fn by_user_and_time() -> Vec<KeyColumn> {
    vec![KeyColumn::rising("user"), KeyColumn { descending: true, ..KeyColumn::rising("ts") }]
}

/// The numbers of rows from 0 on in the order of [`by_user_and_time`].
fn in_order(rows: i64) -> Vec<i64> {
    let mut numbers: Vec<i64> = (0..rows).collect();
    numbers.sort_by_key(|number| {
        let (user, ts) = key_of(*number);
        (user.is_none(), user, -ts)
    });
    numbers
}

#[tokio::test]
async fn the_same_files_whatever_the_strategy_the_memory_and_the_executors_are() {
    let table = Table::new(120_000);
    let expected = in_order(table.rows);
    let (mut first, mut maps) = (None, std::collections::BTreeSet::new());
    let strategies = Strategy::ALL.map(Some);
    let runs = strategies.iter().map(|strategy| (*strategy, 4, 64 * MIB));
    for (strategy, executors, memory) in runs.chain([(None, 1, 96 * MIB), (None, 2, 512 * MIB)]) {
        let output = format!("{strategy:?}-{executors}-{memory}");
        let params = SortTable { strategy, ..table.params(&output, &by_user_and_time()) };
        let report = table.sort((executors, memory), params).await.unwrap();
        assert_eq!((report.rows, report.files), (120_000, 5), "{output}");
        assert_eq!(report.row_hash_in, report.row_hash_out);
        maps.insert(report.maps);
        match &first {
            None => {
                let (numbers, files) = table.written(&output);
                assert!(numbers == expected, "{output}: rows of one key are in the order of the input");
                assert_eq!(files.len(), 5);
                assert!(files.iter().all(|(_, bytes)| bytes.len() > 10_000), "cuts are about even");
                first = Some(files);
            }
            Some(first) => {
                let (_, files) = table.read(&output, |_, _, _| ());
                assert!(*first == files, "{output}: the files are others");
            }
        }
    }
    assert!(maps.len() >= 2 && maps.last().is_some_and(|most| *most >= 4), "rows came to maps otherwise: {maps:?}");
}

#[tokio::test]
async fn nulls_stand_where_they_are_told_and_what_cannot_be_a_key_is_named() {
    let table = Table::new(3_000);
    let first = KeyColumn { nulls: Nulls::First, descending: true, ..KeyColumn::rising("user") };
    table.sort((1, 128 * MIB), table.params("first", &[first])).await.unwrap();
    let (numbers, _) = table.written("first");
    let users: Vec<_> = numbers.iter().map(|number| key_of(*number).0).collect();
    let nulls = users.iter().filter(|user| user.is_none()).count();
    assert!(nulls > 100 && users[..nulls].iter().all(Option::is_none));
    assert!(users[nulls..].is_sorted_by(|one, other| one >= other));
    for (column, words) in [("usr", "user"), ("list.x", "list.x")] {
        let refused = table.sort((1, 128 * MIB), table.params("none", &[KeyColumn::rising(column)])).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(column) && error.contains(words), "{error}");
        assert!(!table.path("none").exists(), "nothing is claimed");
    }
}

#[tokio::test]
async fn a_file_that_is_no_table_and_one_that_does_not_fit_the_others_are_named() {
    let table = Table::new(300);
    fs::write(table.path("in/e.parquet"), "PAR1 but no more").unwrap();
    let error = table.sort((1, 128 * MIB), table.params("out", &by_user_and_time())).await.unwrap_err().to_string();
    assert!(error.contains("e.parquet"), "{error}");
    let other: Vec<(&str, ArrayRef)> = vec![("number", Arc::new(StringArray::from(vec!["one"])))];
    let other = RecordBatch::try_from_iter(other).unwrap();
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let mut sink = ParquetSink::new(Vec::new(), &other.schema(), &ParquetOptions::default(), &budget).unwrap();
    sink.write(&other).unwrap();
    fs::write(table.path("in/e.parquet"), sink.finish().unwrap().0).unwrap();
    let error = table.sort((1, 128 * MIB), table.params("out", &by_user_and_time())).await.unwrap_err().to_string();
    assert!(error.contains("number") && error.contains("a.parquet") && error.contains("e.parquet"), "{error}");
}

#[tokio::test]
async fn more_data_than_memory_is_sorted_within_it() {
    let table = Table::new(900_000);
    let params = SortTable { files: Some(12), ..table.params("out", &by_user_and_time()) };
    let report = table.sort((2, 64 * MIB), params).await.unwrap();
    assert_eq!((report.rows, report.files), (900_000, 12));
    assert!(report.maps >= 8, "{report:?}");
    let (numbers, _) = table.read("out", |_, _, _| ());
    assert!(numbers == in_order(table.rows));
}

#[tokio::test]
async fn a_table_that_is_in_order_already_is_divided_evenly() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table { rows: 60_000, folder };
    fs::create_dir(table.path("in")).unwrap();
    write(&table.path("in/a.parquet"), 0..table.rows, 300);
    let params = SortTable { files: Some(20), ..table.params("out", &[KeyColumn::rising("number")]) };
    table.sort((2, 128 * MIB), params).await.unwrap();
    let (numbers, files) = table.read("out", |_, _, _| ());
    assert!(numbers.into_iter().eq(0..table.rows));
    let sizes: Vec<usize> = files.iter().map(|(_, bytes)| bytes.len()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    assert!(sizes.len() == 20 && sizes.iter().all(|size| *size < 2 * mean), "{sizes:?}");
}

#[tokio::test]
async fn text_whose_files_have_other_columns_or_none_is_one_table() {
    let table = Table { rows: 4, folder: tempfile::tempdir().unwrap() };
    fs::create_dir(table.path("in")).unwrap();
    fs::write(table.path("in/a.csv"), "number,city\n3,rome\n1,oslo\n").unwrap();
    fs::write(table.path("in/b.csv"), "price,number\n1.5,2\n,4\n").unwrap();
    fs::write(table.path("in/c.csv"), "").unwrap();
    let params = SortTable { files: Some(1), ..table.params("out", &[KeyColumn::rising("number")]) };
    let report = table.sort((1, 256 * MIB), params).await.unwrap();
    assert_eq!(report.rows, 4);
    let (numbers, _) = table.read("out", |_, batch, _| {
        let cities: Vec<Option<&str>> = batch["city"].as_string::<i32>().iter().collect();
        assert_eq!(cities, [Some("oslo"), None, Some("rome"), None]);
        assert_eq!(batch["price"].null_count(), 3);
    });
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[tokio::test]
async fn rows_of_files_without_the_columns_of_the_key_are_those_whose_key_is_null() {
    let table = Table { rows: 4, folder: tempfile::tempdir().unwrap() };
    fs::create_dir(table.path("in")).unwrap();
    fs::write(table.path("in/a.csv"), "number\n4\n2\n").unwrap();
    fs::write(table.path("in/b.csv"), "number,city\n1,rome\n3,oslo\n").unwrap();
    for (nulls, expected) in [(Nulls::Last, [3, 1, 4, 2]), (Nulls::First, [4, 2, 3, 1])] {
        let output = format!("{nulls:?}");
        let key = KeyColumn { nulls, ..KeyColumn::rising("city") };
        // Cuts between files follow from keys that are sampled in both.
        let params = SortTable { files: Some(3), ..table.params(&output, &[key]) };
        table.sort((1, 256 * MIB), params).await.unwrap();
        assert_eq!(table.read(&output, |_, _, _| ()).0, expected);
    }
}

#[tokio::test]
async fn a_table_without_rows_is_sorted_by_every_strategy() {
    let table = Table::new(0);
    for strategy in Strategy::ALL.map(Some).into_iter().chain([None]) {
        let output = format!("{strategy:?}");
        let params = SortTable { strategy, ..table.params(&output, &by_user_and_time()) };
        let report = table.sort((1, 128 * MIB), params).await.unwrap();
        assert_eq!((report.rows, report.files), (0, 5), "{output}");
        assert_eq!(table.written(&output).1.len(), 5);
    }
}

/// Rows as text has them, with a column that is not in the other files, and numbers in another order.
fn write_text(path: &Path, numbers: std::ops::Range<i64>) {
    let line = |number: i64| {
        let (user, ts) = key_of(number);
        let user = user.map_or(String::new(), |user| format!("\"{user}\""));
        format!("{ts},{user},\"a note,\nof two lines\",{number}\n")
    };
    let text: String = numbers.map(line).collect();
    fs::write(path, format!("ts,user,note,number\n{text}")).unwrap();
}

#[tokio::test]
async fn files_of_several_formats_are_one_table_by_the_names_of_their_columns() {
    let table = Table::new(3_000);
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let arrow = rows(3_000..4_000);
    let mut sink = IpcSink::new(Vec::new(), &arrow.schema(), &budget).unwrap();
    sink.write(&arrow).unwrap();
    fs::write(table.path("in/e.arrow"), sink.finish().unwrap().0).unwrap();
    write_text(&table.path("in/f.csv"), 4_000..6_000);
    let report = table.sort((2, 128 * MIB), table.params("out", &by_user_and_time())).await.unwrap();
    assert_eq!(report.rows, 6_000);
    let expected = in_order(6_000);
    let mut numbers: Vec<i64> = Vec::new();
    let mut notes = 0;
    for part in 0..5 {
        let bytes = fs::read(table.path(&format!("out/part-0000{part}.parquet"))).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            numbers.extend(batch["number"].as_primitive::<Int64Type>().values());
            notes += batch["note"]
                .as_string::<i32>()
                .iter()
                .flatten()
                .filter(|note| *note == "a note,\nof two lines")
                .count();
        }
    }
    assert!(numbers == expected);
    assert_eq!(notes, 2_000, "who has no such column has nulls there");
    let params = table.params("misfit", &by_user_and_time());
    let params =
        SortTable { reading: ReadOptions { schema: Some("note int64".into()), ..ReadOptions::default() }, ..params };
    let error = table.sort((2, 128 * MIB), params).await.unwrap_err().to_string();
    assert!(error.contains("f.csv, line 2, column note") && error.contains("--schema"), "{error}");
}
