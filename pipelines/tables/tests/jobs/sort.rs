//! Sorts of tables.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringArray};
use exobus_shuffle::Strategy;
use exobus_tables::jobs::sort::SortTable;
use exobus_tables::semantics::{KeyColumn, Nulls};
use exobus_tables::sinks::{IpcSink, ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::support::{MIB, Table, by_user_and_time, in_order, key_of, rows, write};

fn with_strategy(strategy: Option<Strategy>, mut params: SortTable) -> SortTable {
    params.table.strategy = strategy;
    params
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
        let params = with_strategy(strategy, table.params(&output, &by_user_and_time(), 5));
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
    table.sort((1, 128 * MIB), table.params("first", &[first], 5)).await.unwrap();
    let (numbers, _) = table.written("first");
    let users: Vec<_> = numbers.iter().map(|number| key_of(*number).0).collect();
    let nulls = users.iter().filter(|user| user.is_none()).count();
    assert!(nulls > 100 && users[..nulls].iter().all(Option::is_none));
    assert!(users[nulls..].is_sorted_by(|one, other| one >= other));
    for (column, words) in [("usr", "user"), ("list.x", "list.x")] {
        let refused = table.sort((1, 128 * MIB), table.params("none", &[KeyColumn::rising(column)], 5)).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(column) && error.contains(words), "{error}");
        assert!(!table.path("none").exists(), "nothing is claimed");
    }
}

#[tokio::test]
async fn a_file_that_is_no_table_and_one_that_does_not_fit_the_others_are_named() {
    let table = Table::new(300);
    fs::write(table.path("in/e.parquet"), "PAR1 but no more").unwrap();
    let error = table.sort((1, 128 * MIB), table.params("out", &by_user_and_time(), 5)).await.unwrap_err().to_string();
    assert!(error.contains("e.parquet"), "{error}");
    let other: Vec<(&str, ArrayRef)> = vec![("number", Arc::new(StringArray::from(vec!["one"])))];
    let other = RecordBatch::try_from_iter(other).unwrap();
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let mut sink = ParquetSink::new(Vec::new(), &other.schema(), &ParquetOptions::default(), &budget).unwrap();
    sink.write(&other).unwrap();
    fs::write(table.path("in/e.parquet"), sink.finish().unwrap().0).unwrap();
    let error = table.sort((1, 128 * MIB), table.params("out", &by_user_and_time(), 5)).await.unwrap_err().to_string();
    assert!(error.contains("number") && error.contains("a.parquet") && error.contains("e.parquet"), "{error}");
}

#[tokio::test]
async fn more_data_than_memory_is_sorted_within_it() {
    let table = Table::new(900_000);
    let params = table.params("out", &by_user_and_time(), 12);
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
    let params = table.params("out", &[KeyColumn::rising("number")], 20);
    table.sort((2, 128 * MIB), params).await.unwrap();
    let (numbers, files) = table.read("out", |_, _, _| ());
    assert!(numbers.into_iter().eq(0..table.rows));
    let sizes: Vec<usize> = files.iter().map(|(_, bytes)| bytes.len()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    assert!(sizes.len() == 20 && sizes.iter().all(|size| *size < 2 * mean), "{sizes:?}");
}

#[tokio::test]
async fn a_table_whose_files_are_each_in_order_is_divided_evenly() {
    let (files, rows_of_file) = (33, 100_000);
    let table = Table { rows: files * rows_of_file, folder: tempfile::tempdir().unwrap() };
    fs::create_dir(table.path("in")).unwrap();
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    for file in 0..files {
        let numbers = Int64Array::from_iter_values((0..rows_of_file).map(|row| row * files + file));
        let batch = RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef)]).unwrap();
        let mut sink = ParquetSink::new(Vec::new(), &batch.schema(), &ParquetOptions::default(), &budget).unwrap();
        sink.write(&batch).unwrap();
        fs::write(table.path(&format!("in/{file:02}.parquet")), sink.finish().unwrap().0).unwrap();
    }
    let params = table.params("out", &[KeyColumn::rising("number")], 20);
    table.sort((2, 256 * MIB), params).await.unwrap();
    let files = table.numbers_of_files("out");
    assert!(files.concat().into_iter().eq(0..table.rows));
    let mean = table.rows as usize / files.len();
    let lengths: Vec<usize> = files.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|rows| *rows < 2 * mean), "{lengths:?}");
}

#[tokio::test]
async fn text_whose_files_have_other_columns_or_none_is_one_table() {
    let table = Table { rows: 4, folder: tempfile::tempdir().unwrap() };
    fs::create_dir(table.path("in")).unwrap();
    fs::write(table.path("in/a.csv"), "number,city\n3,rome\n1,oslo\n").unwrap();
    fs::write(table.path("in/b.csv"), "price,number\n1.5,2\n,4\n").unwrap();
    fs::write(table.path("in/c.csv"), "").unwrap();
    let params = table.params("out", &[KeyColumn::rising("number")], 1);
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
        let params = table.params(&output, &[key], 3);
        table.sort((1, 256 * MIB), params).await.unwrap();
        assert_eq!(table.read(&output, |_, _, _| ()).0, expected);
    }
}

#[tokio::test]
async fn a_table_without_rows_is_sorted_by_every_strategy() {
    let table = Table::new(0);
    for strategy in Strategy::ALL.map(Some).into_iter().chain([None]) {
        let output = format!("{strategy:?}");
        let params = with_strategy(strategy, table.params(&output, &by_user_and_time(), 5));
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
    let report = table.sort((2, 128 * MIB), table.params("out", &by_user_and_time(), 5)).await.unwrap();
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
    let mut params = table.params("misfit", &by_user_and_time(), 5);
    params.table.reading.schema = Some("note int64".into());
    let error = table.sort((2, 128 * MIB), params).await.unwrap_err().to_string();
    assert!(error.contains("f.csv, line 2, column note") && error.contains("--schema"), "{error}");
}

#[tokio::test]
async fn a_key_of_no_column_is_refused_before_anything_is_written() {
    let table = Table::new(3_000);
    let error = table.sort((1, 64 * MIB), table.params("out", &[], 1)).await.unwrap_err().to_string();
    assert_eq!(error, "there is no key: name a column at least");
    assert!(!table.path("out").exists());
}

#[tokio::test]
async fn thousands_of_files_of_one_row_are_sorted_within_little_memory() {
    const FILES: i64 = 5_000;
    for extension in ["csv", "parquet"] {
        let table = Table { rows: FILES, folder: tempfile::tempdir().unwrap() };
        fs::create_dir(table.path("in")).unwrap();
        for number in 0..FILES {
            let path = table.path(&format!("in/{number:04}.{extension}"));
            let (user, ts) = key_of(number);
            match extension {
                "csv" => {
                    fs::write(path, format!("number,user,ts\n{number},{},{ts}\n", user.unwrap_or_default())).unwrap()
                }
                _ => write(&path, number..number + 1, 1),
            }
        }
        let mut first = None;
        for memory in [64 * MIB, 256 * MIB] {
            let output = format!("out-{memory}");
            let report = table.sort((2, memory), table.params(&output, &by_user_and_time(), 3)).await.unwrap();
            assert_eq!((report.rows, report.files, report.row_hash_in), (5_000, 3, report.row_hash_out), "{extension}");
            let (numbers, files) = table.read(&output, |_, _, _| ());
            assert!(numbers == in_order(FILES), "{extension}: rows of one key are in the order of the input");
            assert!(*first.get_or_insert_with(|| files.clone()) == files, "{extension}: the files are others");
        }
    }
}
