//! Tables in other files: as many as are wanted, with rows of a key together, or in folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use exobus_actors::task::{Fault, JobError};
use exobus_files::Manifest;
use exobus_shuffle::Strategy;
use exobus_tables::jobs::repartition::{RepartitionTable, repartition};
use exobus_tables::jobs::{FileSize, Folders, Rewritten};
use exobus_tables::semantics::KeyColumn;
use exobus_tables::sinks::OutputFormat;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::support::{MIB, Table, key_of};

/// What is done with the table.
fn params(table: &Table, output: &str, size: FileSize, by: &[&str], folders: &[&str]) -> RepartitionTable {
    let folders = folders.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    RepartitionTable {
        table: table.rewrite(output, size),
        by: by.iter().copied().map(KeyColumn::rising).collect(),
        folders: (!folders.is_empty()).then(|| Folders::of(folders)),
    }
}

async fn run(table: &Table, node: (usize, u64), params: RepartitionTable) -> Result<Rewritten, String> {
    let program = async move |futures| repartition(futures, params).await;
    table.run(node, "table.repartition", program).await.map_err(|error| error.to_string())
}

async fn repartitioned(table: &Table, node: (usize, u64), params: RepartitionTable) -> Rewritten {
    let report = run(table, node, params).await.unwrap();
    assert_eq!((report.rows, report.row_hash_in), (table.rows as u64, report.row_hash_out));
    report
}

/// Names and bytes of all files below a folder, but for those that are never input.
fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            _ if name.starts_with(['_', '.']) => (),
            true => files.extend(
                files_below(&entry.path()).into_iter().map(|(inside, bytes)| (format!("{name}/{inside}"), bytes)),
            ),
            false => drop(files.insert(name, fs::read(entry.path()).unwrap())),
        }
    }
    files
}

/// Numbers of the rows of a file.
fn numbers(bytes: &[u8]) -> Vec<i64> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.to_vec())).unwrap();
    let batches = reader.build().unwrap().map(Result::unwrap);
    batches.flat_map(|batch| batch["number"].as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// Sees that a sort of what was written is the table: all rows are there once, with what their folders say.
async fn is_the_table(table: &Table, written: &str) {
    let again = format!("{written}-again");
    let mut sort = table.params(&again, &[KeyColumn::rising("number")], 2);
    sort.table.inputs = vec![table.path(written)];
    sort.table.reading.select = Some(["number", "user", "ts", "price", "list"].map(str::to_owned).to_vec());
    table.sort((2, 128 * MIB), sort).await.unwrap();
    assert!(table.written(&again).0.into_iter().eq(0..table.rows));
}

#[tokio::test]
async fn files_are_even_and_rows_stay_in_their_order() {
    let table = Table::new(20_000);
    let first = repartitioned(&table, (2, 128 * MIB), params(&table, "first", FileSize::Count(7), &[], &[])).await;
    assert_eq!((first.files, first.strategy), (7, None));
    let files = table.numbers_of_files("first");
    assert!(files.iter().all(|file| matches!(file.len(), 2_857 | 2_858)));
    assert!(files.concat().into_iter().eq(0..20_000));
    repartitioned(&table, (1, 64 * MIB), params(&table, "other", FileSize::Count(7), &[], &[])).await;
    assert!(table.bytes_of("other") == table.bytes_of("first"));
}

#[tokio::test]
async fn rows_of_a_key_are_in_one_file_and_files_are_the_same_wherever_they_are_made() {
    let table = Table::new(120_000);
    let of = |output: &str| params(&table, output, FileSize::Count(6), &["user"], &[]);
    let report = repartitioned(&table, (2, 256 * MIB), of("first")).await;
    assert_eq!(report.files, 6);
    let files = table.numbers_of_files("first");
    let mut file_of = BTreeMap::new();
    for (file, numbers) in files.iter().enumerate() {
        for number in numbers {
            assert_eq!(*file_of.entry(key_of(*number).0).or_insert(file), file, "row {number}");
        }
        // Rows of a key stand together, in the order of the input.
        assert!(numbers.is_sorted_by_key(|number| {
            let (user, _) = key_of(*number);
            (user.is_none(), user, *number)
        }));
    }
    let mut all = files.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..table.rows));
    let lengths: Vec<usize> = files.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|rows| *rows > 5_000), "{lengths:?}");
    for (strategy, node) in
        Strategy::ALL.into_iter().zip([(1, 64), (2, 64), (3, 96), (1, 256), (4, 128)].iter().cycle())
    {
        let mut params = of(strategy.name());
        params.table.strategy = Some(strategy);
        repartitioned(&table, (node.0, node.1 * MIB), params).await;
        assert!(table.bytes_of(strategy.name()) == table.bytes_of("first"), "{strategy:?}");
    }
}

#[tokio::test]
async fn folders_have_the_rows_of_their_values_and_are_the_same_wherever_they_are_made() {
    let table = Table::new(60_000);
    let of = |output: &str| params(&table, output, FileSize::Count(4), &[], &["ts"]);
    let report = repartitioned(&table, (2, 256 * MIB), of("first")).await;
    let files = files_below(&table.path("first"));
    // Four parts of fifty folders: a folder that is in two of them has two files.
    assert!((50..54).contains(&files.len()) && report.files == files.len() as u64, "{:?}", files.keys());
    let mut rows = 0;
    for (name, bytes) in &files {
        let (folder, file) = name.split_once('/').unwrap();
        let ts: i64 = folder.strip_prefix("ts=").unwrap().parse().unwrap();
        assert!(file.starts_with("part-0000"), "{name}");
        let numbers = numbers(bytes);
        assert!(numbers.is_sorted() && numbers.iter().all(|number| key_of(*number).1 == ts), "{name}");
        rows += numbers.len() as i64;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.clone())).unwrap();
        let names: Vec<_> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["number", "user", "price", "list"]);
    }
    assert_eq!(rows, table.rows);
    let manifest = Manifest::read(table.path("first")).unwrap().unwrap();
    assert_eq!(manifest.files.len(), files.len());
    assert!(manifest.files.iter().all(|file| files[&file.name].len() as u64 == file.bytes));
    assert_eq!(manifest.schema.columns, ["number", "user", "price", "list"]);
    is_the_table(&table, "first").await;
    for (strategy, node) in
        Strategy::ALL.into_iter().zip([(1, 64), (2, 64), (3, 96), (1, 256), (4, 128)].iter().cycle())
    {
        let mut params = of(strategy.name());
        params.table.strategy = Some(strategy);
        repartitioned(&table, (node.0, node.1 * MIB), params).await;
        assert!(files_below(&table.path(strategy.name())) == files, "{strategy:?}");
    }
}

#[tokio::test]
async fn folders_of_several_columns_have_nulls_and_rows_of_a_key_in_one_file() {
    let table = Table::new(1_200);
    let mut folders = params(&table, "out", FileSize::Count(3), &["ts"], &["user"]);
    folders.table.writing.verify = true;
    repartitioned(&table, (2, 128 * MIB), folders).await;
    let files = files_below(&table.path("out"));
    let nulls = files.keys().filter(|name| name.starts_with("user=__HIVE_DEFAULT_PARTITION__/")).count();
    let many = files.iter().filter(|(name, _)| name.starts_with("user=a user with very many rows/"));
    assert!(nulls > 0);
    let mut file_of = BTreeMap::new();
    for (name, bytes) in many {
        numbers(bytes).iter().for_each(|number| assert_eq!(*file_of.entry(key_of(*number).1).or_insert(name), name));
    }
    is_the_table(&table, "out").await;
    let table = Table::new(300);
    repartitioned(&table, (2, 128 * MIB), params(&table, "both", FileSize::Count(1), &[], &["ts", "user"])).await;
    assert!(files_below(&table.path("both")).keys().all(|name| name.starts_with("ts=") && name.contains("/user=")));
    is_the_table(&table, "both").await;
}

#[tokio::test]
async fn text_is_written_to_folders_and_a_table_without_a_row_has_none() {
    let table = Table::new(900);
    let mut text = params(&table, "text", FileSize::Count(2), &[], &["ts"]);
    text.table.reading.select = Some(["number", "ts", "user"].map(str::to_owned).to_vec());
    (text.table.writing.format, text.table.writing.group_rows) = (Some(OutputFormat::Csv), None);
    text.table.writing.verify = true;
    run(&table, (2, 128 * MIB), text).await.unwrap();
    let files = files_below(&table.path("text"));
    let lines: usize = files.values().map(|text| text.iter().filter(|byte| **byte == b'\n').count() - 1).sum();
    assert!(lines == 900 && files.values().all(|text| text.starts_with(b"number,user\n")));
    let empty = Table::new(0);
    let report = repartitioned(&empty, (2, 128 * MIB), params(&empty, "out", FileSize::Count(2), &[], &["ts"])).await;
    assert_eq!(report.files, 0);
    assert!(Manifest::read(empty.path("out")).unwrap().unwrap().files.is_empty());
}

#[tokio::test]
async fn more_folders_than_there_may_be_are_refused_with_how_many_there_would_be() {
    let table = Table::new(6_000);
    for (files, folders_max, words) in
        [(1, 10, "at least 50 folders, and 10 are the most"), (8, 30, "50 folders, and 30")]
    {
        let output = format!("out-{files}");
        let mut params = params(&table, &output, FileSize::Count(files), &[], &["ts"]);
        params.folders = Some(Folders { columns: vec!["ts".to_owned()], folders_max });
        let program = async move |futures| repartition(futures, params).await;
        let error = table.run((2, 128 * MIB), "table.repartition", program).await.unwrap_err();
        // Of whose fault it is the exit code follows, whether one reduce has too many or all together have.
        let is_of_request = matches!(&error, JobError::Task { failure, .. } if failure.fault == Fault::Request);
        let error = error.to_string();
        assert!(is_of_request && error.contains("columns ts would make") && error.contains(words), "{error}");
        assert!(error.contains("--max-folders"), "{error}");
        assert!(!table.path(&output).exists() || files_below(&table.path(&output)).is_empty(), "nothing is left");
    }
}

#[tokio::test]
async fn columns_that_make_no_folders_are_refused_before_anything_is_claimed() {
    let table = Table::new(300);
    for (columns, words) in [
        (&["price"][..], "column price is float64"),
        (&["list"], "column list is list("),
        (&["usr"], "no column usr; did you mean user?"),
        (&["ts", "ts"], "ts is selected twice"),
    ] {
        let params = params(&table, "out", FileSize::Count(2), &[], columns);
        let error = run(&table, (2, 128 * MIB), params).await.unwrap_err();
        assert!(error.contains(words), "{error}");
        assert!(!table.path("out").exists());
    }
    let mut records = params(&table, "out", FileSize::Count(2), &[], &["ts"]);
    (records.table.writing.format, records.table.writing.group_rows) = (Some(OutputFormat::Records), None);
    assert!(run(&table, (2, 128 * MIB), records).await.unwrap_err().contains("records"));
    let nothing = params(&table, "out", FileSize::Bytes(1 << 20), &[], &[]);
    assert!(!nothing.moves_rows());
}

#[tokio::test]
async fn folders_and_files_of_one_column_and_folders_of_others_are_refused_with_both_places() {
    let table = Table::new(900);
    let sorted = async |output: &str| {
        let mut sort = table.params(output, &[KeyColumn::rising("number")], 1);
        sort.table.inputs = vec![table.path("folders")];
        table.sort((1, 128 * MIB), sort).await.map_err(|error| error.to_string())
    };
    let put = |name: &str| {
        let path = table.path("folders").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(table.path("in/a.parquet"), path).unwrap();
    };
    put("ts=1/a.parquet");
    let error = sorted("out").await.unwrap_err();
    assert!(
        error.contains("column ts is in") && error.contains("ts=1/a.parquet") && error.contains("--hive"),
        "{error}"
    );
    fs::rename(table.path("folders/ts=1"), table.path("folders/day=1")).unwrap();
    sorted("one").await.unwrap();
    put("b.parquet");
    let error = sorted("out").await.unwrap_err();
    assert!(error.contains("b.parquet") && error.contains("in folders of columns day"), "{error}");
    assert!(!table.path("out").exists());
}
