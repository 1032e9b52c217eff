//! What functions make of tables.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_select::take::take_record_batch;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskFunction};
use exobus_tables::jobs::map_batches::{Batches, MapTable, MappedFile, map_batches};
use exobus_tables::jobs::{FileSize, Rewritten};

use crate::support::{MIB, Table};

/// Each row of an even number twice, and none of an odd one.
#[task(name = "test.even_twice", deterministic = true)]
fn even_twice(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let numbers = batch.column_by_name("number").unwrap().as_primitive::<Int64Type>();
        let even = (0..batch.num_rows() as u32).filter(|row| numbers.value(*row as usize) % 2 == 0);
        let rows = UInt32Array::from_iter_values(even.flat_map(|row| [row, row]));
        take_record_batch(&batch, &rows).map_err(TaskError::data)
    })
}

/// Other columns where there are rows than where there are none.
#[task(name = "test.other_columns", deterministic = true)]
fn other_columns(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let batch = match batch.num_rows() {
            0 => RecordBatch::try_from_iter([("number", Arc::new(Int64Array::from_iter_values([])) as _)]),
            rows => RecordBatch::try_from_iter([(
                "number",
                Arc::new(StringArray::from_iter_values((0..rows).map(|row| row.to_string()))) as _,
            )]),
        };
        batch.map_err(TaskError::data)
    })
}

/// A function that does not like what it reads.
#[task(name = "test.refuses", deterministic = true)]
fn refuses(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| match batch.num_rows() {
        0 => Ok(batch),
        rows => Err(TaskError::data(format!("{rows} rows that nobody wants"))),
    })
}

/// A file of the table, which somebody writes to.
static WRITTEN_TO: OnceLock<PathBuf> = OnceLock::new();

/// Somebody writes to a file while its last row is read.
#[task(name = "test.meanwhile", deterministic = true)]
fn meanwhile(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let numbers = batch.column_by_name("number").unwrap().as_primitive::<Int64Type>();
        if numbers.values().contains(&2_999) {
            let mut file = fs::OpenOptions::new().append(true).open(WRITTEN_TO.get().unwrap()).unwrap();
            file.write_all(b"more").unwrap();
        }
        Ok(batch)
    })
}

async fn mapped<F>(table: &Table, output: &str, size: FileSize, memory: u64, function: F) -> Result<Rewritten, JobError>
where
    F: TaskFunction<Params = Batches, Value = MappedFile>,
{
    let mut params = MapTable::new(Vec::new(), table.path(output), function);
    params.table = table.rewrite(output, size);
    let program = async move |futures| map_batches(futures, params).await;
    table.run((2, memory * MIB), "table.map_batches", program).await
}

#[tokio::test]
async fn rows_become_what_the_function_makes_of_them_whatever_the_memory_is() {
    let table = Table::new(30_000);
    let expected: Vec<i64> = (0..30_000).step_by(2).flat_map(|number| [number, number]).collect();
    let mut before = None;
    for memory in [64, 256] {
        let output = format!("twice-{memory}");
        let report = mapped(&table, &output, FileSize::Rows(4_000), memory, even_twice).await.unwrap();
        assert_eq!((report.rows_read, report.rows, report.files), (30_000, 30_000, 8), "{report:?}");
        assert_ne!(report.row_hash_in, report.row_hash_out);
        let (numbers, files) = table.written(&output);
        assert!(numbers == expected);
        let same = before.get_or_insert_with(|| files.clone()) == &files;
        assert!(same, "files are the same with {memory} MiB");
    }
}

#[tokio::test]
async fn batches_of_other_columns_and_errors_of_the_function_fail_the_job_and_nothing_is_written() {
    let table = Table::new(5_000);
    let error = mapped(&table, "other", FileSize::Count(2), 64, other_columns).await.unwrap_err().to_string();
    assert!(error.contains("number") && error.contains("Int64") && error.contains("Utf8"), "{error}");
    let error = mapped(&table, "refused", FileSize::Count(2), 64, refuses).await.unwrap_err().to_string();
    assert!(error.contains("rows that nobody wants") && error.contains("test.refuses"), "{error}");
    for output in ["other", "refused"] {
        assert!(!table.path(output).join("_exobus.json").exists(), "{output}");
    }
}

/// Of the file that changes one task reads the first rows, and another one the last: only that one can see it.
#[tokio::test]
async fn a_file_that_changes_while_some_of_its_rows_are_read_fails_the_job() {
    let table = Table::new(3_000);
    WRITTEN_TO.set(table.path("in").join("d.parquet")).unwrap();
    let mut params = MapTable::new(Vec::new(), table.path("out"), meanwhile);
    params.table = table.rewrite("out", FileSize::Rows(2_500));
    let program = async move |futures| map_batches(futures, params).await;
    let error = table.run((1, 64 * MIB), "table.map_batches", program).await.unwrap_err().to_string();
    assert!(error.contains("d.parquet") && error.contains("changed"), "{error}");
    assert!(!table.path("out").join("_exobus.json").exists());
}
