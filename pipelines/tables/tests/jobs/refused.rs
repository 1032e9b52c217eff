//! Rows that cannot be written are told by their file and their place in it.

use std::fs;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_tables::expression::Expression;
use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::dedupe::{DedupeTable, Keep, dedupe};
use exobus_tables::jobs::map_batches::{Batches, MapTable, MappedFile, map_batches};
use exobus_tables::jobs::shuffle::{ShuffleTable, shuffle};
use exobus_tables::jobs::sort::SortTable;
use exobus_tables::jobs::{FileSize, Rewrite};
use exobus_tables::semantics::KeyColumn;
use exobus_tables::sinks::{OutputFormat, ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};

use crate::support::{MIB, Table};

fn budget() -> Arc<dyn MemoryBudget> {
    Arc::new(FixedBudget::new(1 << 30))
}

fn fixed(width: i32, values: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    let mut column = FixedSizeBinaryBuilder::new(width);
    for value in values {
        match value {
            None => column.append_null(),
            Some(value) => {
                let mut bytes = vec![0; width as usize];
                bytes[..4].copy_from_slice(&value.to_be_bytes());
                column.append_value(bytes).unwrap();
            }
        }
    }
    Arc::new(column.finish())
}

/// Rows as records are, in row groups of 1 000, of which one has no value; all keys are the same.
fn with_a_null(rows: u32, null: u32) -> Vec<u8> {
    let columns = [
        ("key", fixed(10, (0..rows).map(|_| Some(7))), false),
        ("value", fixed(90, (0..rows).map(|row| (row != null).then_some(row))), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let options = ParquetOptions { group_rows: 1_000, ..ParquetOptions::default() };
    let mut sink = ParquetSink::new(Vec::new(), &batch.schema(), &options, &budget()).unwrap();
    sink.write(&batch).unwrap();
    sink.finish().unwrap().0
}

/// A folder with two files, of which the second one has that row without a value.
fn table(null: u32) -> Table {
    let table = Table::new(3);
    fs::remove_dir_all(table.path("in")).unwrap();
    fs::create_dir(table.path("in")).unwrap();
    fs::write(table.path("in/a.parquet"), with_a_null(2_000, u32::MAX)).unwrap();
    fs::write(table.path("in/b.parquet"), with_a_null(3_000, null)).unwrap();
    table
}

fn to_records(table: &Table) -> Rewrite {
    let mut rewrite = table.rewrite("out", FileSize::Count(2));
    (rewrite.writing.format, rewrite.writing.group_rows) = (Some(OutputFormat::Records), None);
    rewrite
}

/// Takes the values of all rows but the first.
#[task(name = "test.takes_values", deterministic = true)]
fn takes_values(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let values = fixed(90, (0..batch.num_rows()).map(|row| (row == 0).then_some(1)));
        RecordBatch::try_from_iter([("key", batch["key"].clone()), ("value", values)]).map_err(TaskError::data)
    })
}

#[tokio::test]
async fn a_null_where_records_have_none_is_told_by_its_file_and_row_whatever_the_verb_is() {
    let table = table(1_234);
    let (node, key) = ((2, 128 * MIB), vec![KeyColumn::rising("key")]);
    let told = |error: String| {
        assert!(error.contains("in/b.parquet, row group 1, row 234: column value has a null"), "{error}");
        assert!(error.contains("--where 'not value is null'") && error.contains("another --format"), "{error}");
        assert!(!table.path("out").exists(), "{error}");
    };
    let params = ConvertTable { table: to_records(&table), rows: None };
    let program = async move |futures| convert(futures, params).await;
    told(table.run(node, "table.convert", program).await.unwrap_err().to_string());
    let mut params = ConvertTable { table: to_records(&table), rows: None };
    params.table.writing.file_size = FileSize::Rows(1_500);
    let program = async move |futures| convert(futures, params).await;
    told(table.run(node, "table.convert", program).await.unwrap_err().to_string());
    let params = SortTable { table: to_records(&table), key: key.clone() };
    told(table.sort(node, params).await.unwrap_err().to_string());
    let params = ShuffleTable { table: to_records(&table), seed: 1 };
    let program = async move |futures| shuffle(futures, params).await;
    told(table.run(node, "table.shuffle", program).await.unwrap_err().to_string());
    // Also a row that is left out, by whichever task.
    let params = DedupeTable { table: to_records(&table), key, keep: Keep::First, order_by: Vec::new() };
    let program = async move |futures| dedupe(futures, params).await;
    told(table.run(node, "table.dedupe", program).await.unwrap_err().to_string());
}

#[tokio::test]
async fn a_null_that_a_function_gives_is_told_by_the_rows_that_it_got() {
    let table = table(u32::MAX);
    fs::remove_file(table.path("in/a.parquet")).unwrap();
    let mut params = MapTable::new(Vec::new(), table.path("out"), takes_values);
    params.table = to_records(&table);
    params.table.reading.filter = Some("value >= '\0\0\u{4}'".parse::<Expression>().unwrap());
    params.table.writing.file_size = FileSize::Count(1);
    let program = async move |futures| map_batches(futures, params).await;
    let error = table.run((1, 128 * MIB), "table.map_batches", program).await.unwrap_err().to_string();
    let what = "in/b.parquet, row group 1, row 24: of what the function gave for the rows from there on, row 1: column value has a null";
    assert!(error.contains(what), "{error}");
}

/// Leaves out what records cannot hold: a column, and rows without a value.
#[task(name = "test.leaves_out", deterministic = true)]
fn leaves_out(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let of_records = batch.project(&[0, 1]).map_err(TaskError::data)?;
        let has_value = BooleanArray::from_iter((0..batch.num_rows()).map(|row| Some(batch["value"].is_valid(row))));
        arrow_select::filter::filter_record_batch(&of_records, &has_value).map_err(TaskError::data)
    })
}

#[tokio::test]
async fn a_function_gets_rows_that_the_format_cannot_hold() {
    let table = table(1_234);
    fs::write(table.path("in/c.csv"), "note\nof no record\n").unwrap();
    let mut params = MapTable::new(Vec::new(), table.path("out"), leaves_out);
    params.table = to_records(&table);
    let program = async move |futures| map_batches(futures, params).await;
    let report = table.run((2, 128 * MIB), "table.map_batches", program).await.unwrap();
    assert_eq!((report.rows_read, report.rows), (5_001, 4_999));
    let bytes = |part: &str| fs::metadata(table.path("out").join(part)).unwrap().len();
    assert_eq!(bytes("part-00000") + bytes("part-00001"), 499_900);
}

/// Rows are counted as the file has them, those that do not meet the condition too.
#[tokio::test]
async fn a_row_behind_a_condition_is_told_by_its_place_in_the_file() {
    let table = table(2_345);
    let filtered = |filter: &str| {
        let mut rewrite = to_records(&table);
        rewrite.reading.filter = Some(filter.parse::<Expression>().unwrap());
        ConvertTable { table: rewrite, rows: None }
    };
    let text = "value >= '\0\0\u{8}' or value is null";
    let params = filtered(text);
    let program = async move |futures| convert(futures, params).await;
    let error = table.run((1, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("in/b.parquet, row group 2, row 345: column value has a null"), "{error}");
    // As the error says.
    let params = filtered("not value is null");
    let program = async move |futures| convert(futures, params).await;
    assert_eq!(table.run((1, 128 * MIB), "table.convert", program).await.unwrap().rows, 4_999);
}

/// Rows that each have a list of so many texts, all of them the same MiB: a file says it once.
fn with_lists(path: &std::path::Path, lengths: &[usize]) {
    let values = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
    let texts = DictionaryArray::new(Int32Array::from(vec![0; lengths.iter().sum()]), values);
    let element = Arc::new(Field::new("item", texts.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let lists = ListArray::new(element, offsets, Arc::new(texts), None);
    let numbers = Int64Array::from_iter_values((0..lengths.len() as i64).rev());
    let columns = [("number", Arc::new(numbers) as ArrayRef), ("lists", Arc::new(lists))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut file = arrow_ipc::writer::FileWriter::try_new(fs::File::create(path).unwrap(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    file.finish().unwrap();
}

#[tokio::test]
async fn a_row_that_is_too_large_is_told_by_its_file_and_place() {
    let table = table(0);
    fs::remove_file(table.path("in/a.parquet")).unwrap();
    fs::remove_file(table.path("in/b.parquet")).unwrap();
    let sort = || SortTable { table: table.rewrite("out", FileSize::Count(1)), key: vec![KeyColumn::rising("number")] };
    with_lists(&table.path("in/a.arrow"), &[0, 1, 100, 2]);
    let error = table.sort((1, 64 * MIB), sort()).await.unwrap_err().to_string();
    assert!(error.contains("in/a.arrow, row group 0, row 2: the row takes ") && error.contains("--memory"), "{error}");
    with_lists(&table.path("in/a.arrow"), &[0, 2, 1, 2_100]);
    let what = "in/a.arrow, row group 0, row 3: the row takes more than can be gathered; a row may take 2147483647 bytes, however much memory there is: make its";
    let error = table.sort((1, 128 * MIB), sort()).await.unwrap_err().to_string();
    assert!(error.contains(what), "{error}");
    let params = ConvertTable { table: table.rewrite("out", FileSize::Count(1)), rows: None };
    let program = async move |futures| convert(futures, params).await;
    let error = table.run((1, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains(what), "{error}");
}

/// Rows in row groups of three, of which the fifth has a text of so many bytes.
fn with_a_long_text(table: &Table, bytes: usize) {
    let texts = (0..7).map(|row| "x".repeat(if row == 4 { bytes } else { 3 }));
    let columns = [
        ("number", Arc::new(Int64Array::from_iter_values((0..7).rev())) as ArrayRef),
        ("text", Arc::new(StringArray::from_iter_values(texts))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = ParquetOptions { group_rows: 3, ..ParquetOptions::default() };
    let mut sink = ParquetSink::new(Vec::new(), &batch.schema(), &options, &budget()).unwrap();
    sink.write(&batch).unwrap();
    fs::remove_dir_all(table.path("in")).unwrap();
    fs::create_dir(table.path("in")).unwrap();
    fs::write(table.path("in/a.parquet"), sink.finish().unwrap().0).unwrap();
}

#[tokio::test]
async fn a_row_beyond_its_share_of_memory_is_told_with_the_memory_that_is_enough() {
    let table = table(0);
    let (node, mib) = ((1, 256 * MIB), 1 << 20);
    let sort = || SortTable { table: table.rewrite("out", FileSize::Count(1)), key: vec![KeyColumn::rising("number")] };
    let convert_by = async |file_size| {
        let params = ConvertTable { table: table.rewrite("out", file_size), rows: None };
        table.run(node, "table.convert", async move |futures| convert(futures, params).await).await
    };
    let told = |error: String, place: &str| {
        let what = "the row takes 20971534 bytes, most of them in column text; a row may take 1/16 of a node's store, 16777216 bytes: --memory 353MiB is the least that works";
        assert!(error.contains(&format!("in/a.{place}: {what}")), "{error}");
        assert!(error.contains("--select") && !table.path("out").exists(), "{error}");
    };
    with_a_long_text(&table, 20 * mib);
    told(table.sort(node, sort()).await.unwrap_err().to_string(), "parquet, row group 1, row 1");
    told(convert_by(FileSize::default()).await.unwrap_err().to_string(), "parquet, row group 1, row 1");
    told(convert_by(FileSize::Rows(2)).await.unwrap_err().to_string(), "parquet, row group 1, row 1");
    // As the error says.
    assert_eq!(table.sort((1, (353 - 32) * MIB), sort()).await.unwrap().rows, 7);
    fs::remove_dir_all(table.path("out")).unwrap();
    let mut without = sort();
    without.table.reading.select = Some(vec!["number".to_owned()]);
    assert_eq!(table.sort(node, without).await.unwrap().rows, 7);
    fs::remove_dir_all(table.path("out")).unwrap();
    fs::remove_file(table.path("in/a.parquet")).unwrap();
    fs::write(table.path("in/a.csv"), format!("number,text\n1,a\n2,\"{}\"\n", "x".repeat(20 * mib))).unwrap();
    told(table.sort(node, sort()).await.unwrap_err().to_string(), "csv, line 3");
}
