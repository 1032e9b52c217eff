//! The records of the sort benchmark as tables: by each verb, and through other formats.

use std::path::Path;

use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::dedupe::{DedupeTable, Keep, dedupe};
use exobus_tables::jobs::shuffle::{ShuffleTable, shuffle};
use exobus_tables::jobs::sort::SortTable;
use exobus_tables::jobs::{FileSize, Rewrite, WriteOptions};
use exobus_tables::semantics::KeyColumn;
use exobus_tables::sinks::OutputFormat;

use crate::support::{MIB, Table};

const NODE: (usize, u64) = (2, 128 * MIB);
const RECORDS: u32 = 40_000;

/// Records whose keys are there several times each; the value says which record it is.
fn records() -> Vec<[u8; 100]> {
    let record = |number: u32| {
        let mut record = [0; 100];
        record[..4].copy_from_slice(&(number.wrapping_mul(2_654_435_761) % 9_000).to_be_bytes());
        record[9] = 0xff;
        record[10..14].copy_from_slice(&number.to_be_bytes());
        record
    };
    (0..RECORDS).map(record).collect()
}

/// Folder `in` has them in two files, and one without any.
fn written() -> Table {
    let table = Table::new(3);
    std::fs::remove_dir_all(table.path("in")).unwrap();
    std::fs::create_dir(table.path("in")).unwrap();
    let records = records();
    let (first, second) = records.split_at(12_345);
    for (name, records) in [("part-00000", first), ("part-00001", &[]), ("part-00002", second)] {
        std::fs::write(table.path("in").join(name), records.concat()).unwrap();
    }
    table
}

/// All of a folder, with as many files of records as these.
fn read(folder: &Path, files: usize) -> Vec<[u8; 100]> {
    let names: Vec<_> = (0..files).map(|part| format!("part-{part:05}")).collect();
    let bytes: Vec<u8> = names.iter().flat_map(|name| std::fs::read(folder.join(name)).unwrap()).collect();
    assert!(!folder.join(format!("part-{files:05}")).exists());
    bytes.as_chunks().0.to_vec()
}

fn rewrite(table: &Table, output: &str, files: u32) -> Rewrite {
    let writing = WriteOptions { file_size: FileSize::Count(files), verify: true, ..WriteOptions::default() };
    Rewrite { writing, ..Rewrite::new(vec![table.path("in")], table.path(output)) }
}

fn key() -> Vec<KeyColumn> {
    vec![KeyColumn::rising("key")]
}

#[tokio::test]
async fn records_are_sorted_shuffled_and_deduplicated_by_their_keys() {
    let (table, all) = (written(), records());
    let sorted = table.sort(NODE, SortTable { table: rewrite(&table, "sorted", 3), key: key() }).await.unwrap();
    let mut expected = all.clone();
    expected.sort_by(|one, other| one[..10].cmp(&other[..10]));
    assert!(read(&table.path("sorted"), 3) == expected, "rows of one key are in the order of the input");
    let manifest = std::fs::read_to_string(table.path("sorted/_exobus.json")).unwrap();
    assert!(manifest.contains("\"records\"") && manifest.contains("\"key_bytes\":10"), "{manifest}");

    let params = ShuffleTable { table: rewrite(&table, "shuffled", 7), seed: 5 };
    let program = async move |futures| shuffle(futures, params).await;
    let shuffled = table.run(NODE, "table.shuffle", program).await.unwrap();
    assert_eq!(shuffled.row_hash_out, sorted.row_hash_out);
    let mut rows = read(&table.path("shuffled"), 7);
    assert!(rows != all);
    rows.sort_by_key(|record| <[u8; 4]>::try_from(&record[10..14]).unwrap());
    assert!(rows == all);

    let params = DedupeTable { table: rewrite(&table, "few", 2), key: key(), keep: Keep::First, order_by: Vec::new() };
    let program = async move |futures| dedupe(futures, params).await;
    table.run(NODE, "table.dedupe", program).await.unwrap();
    expected.dedup_by(|one, other| one[..10] == other[..10]);
    assert!(read(&table.path("few"), 2) == expected);
}

#[tokio::test]
async fn records_become_other_formats_and_records_again() {
    let table = written();
    for format in [OutputFormat::Parquet, OutputFormat::Arrow, OutputFormat::Records] {
        let there = format!("as-{format}");
        let mut params = ConvertTable { table: rewrite(&table, &there, 3), rows: None };
        params.table.writing.format = Some(format);
        let program = async move |futures| convert(futures, params).await;
        let first = table.run(NODE, "table.convert", program).await.unwrap();
        let mut params = ConvertTable { table: rewrite(&table, &format!("back-{format}"), 2), rows: None };
        params.table.inputs = vec![table.path(&there)];
        params.table.writing.format = Some(OutputFormat::Records);
        let program = async move |futures| convert(futures, params).await;
        let back = table.run(NODE, "table.convert", program).await.unwrap();
        assert_eq!((first.row_hash_out, first.rows), (back.row_hash_out, u64::from(RECORDS)), "{format}");
        assert!(read(&table.path(&format!("back-{format}")), 2) == records(), "{format}");
    }
}

/// Before anything is written.
#[tokio::test]
async fn what_is_not_all_records_or_cannot_be_is_refused() {
    let table = written();
    let refused = async |table: &Table, format, select: Option<&str>| {
        let mut params = ConvertTable { table: rewrite(table, "out", 1), rows: None };
        params.table.writing.format = Some(format);
        params.table.reading.select = select.map(|select| vec![select.to_owned()]);
        let program = async move |futures| convert(futures, params).await;
        let error = table.run(NODE, "table.convert", program).await.unwrap_err().to_string();
        assert!(!table.path("out").exists(), "{error}");
        error
    };
    let error = refused(&table, OutputFormat::Csv, None).await;
    assert!(error.contains("column key") && error.contains("no other bytes"), "{error}");
    let error = refused(&table, OutputFormat::Records, Some("value")).await;
    assert!(error.contains("the table has value FixedSizeBinary(90)") && error.contains("--format"), "{error}");
    std::fs::write(table.path("in/part-00003"), [0; 250]).unwrap();
    let error = refused(&table, OutputFormat::Parquet, None).await;
    assert!(error.contains("in/part-00003") && error.contains("250 bytes"), "{error}");
    std::fs::remove_file(table.path("in/part-00003")).unwrap();
    std::fs::write(table.path("in/z.csv"), "key,value\na,b\n").unwrap();
    let error = refused(&table, OutputFormat::Parquet, None).await;
    assert!(
        error.contains("in/part-00000") && error.contains("in/z.csv") && error.contains("--input-format"),
        "{error}"
    );
}
