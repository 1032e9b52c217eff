//! What functions make of tables.

use std::cell::Cell;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow_schema::{DataType, Field};
use arrow_select::take::take_record_batch;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskFunction};
use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::map_batches::{Batches, MapTable, MappedFile, map_batches};
use exobus_tables::jobs::{FileSize, Rewrite, Rewritten};
use exobus_tables::sinks::OutputFormat;

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

fn texts(rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values((0..rows).map(|row| row.to_string())))
}

/// Another type where there are rows than where there are none.
#[task(name = "test.other_types", deterministic = true)]
fn other_types(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let number = if batch.num_rows() == 0 { batch["number"].clone() } else { texts(batch.num_rows()) };
        RecordBatch::try_from_iter([("number", number)]).map_err(TaskError::data)
    })
}

/// A column less where there are rows.
#[task(name = "test.lacks_a_column", deterministic = true)]
fn lacks_a_column(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let columns = [("number", batch["number"].clone()), ("note", texts(batch.num_rows()))];
        let count = if batch.num_rows() == 0 { 2 } else { 1 };
        let columns = columns.into_iter().take(count).map(|(name, column)| (name, column, true));
        RecordBatch::try_from_iter_with_nullable(columns).map_err(TaskError::data)
    })
}

/// A column more where there are rows.
#[task(name = "test.has_one_more", deterministic = true)]
fn has_one_more(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let columns = [("number", batch["number"].clone()), ("note", texts(batch.num_rows()))];
        let count = if batch.num_rows() == 0 { 1 } else { 2 };
        RecordBatch::try_from_iter(columns.into_iter().take(count)).map_err(TaskError::data)
    })
}

/// Columns that nobody could tell apart.
#[task(name = "test.names_alike", deterministic = true)]
fn names_alike(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let columns = ["number", "Number"].map(|name| (name, batch["number"].clone()));
        RecordBatch::try_from_iter(columns).map_err(TaskError::data)
    })
}

fn half_of(number: i64) -> Option<i64> {
    (number < 2_000 || number % 2 == 0).then_some(number / 2)
}

/// A column that has nulls behind the first rows alone, and stands in another place where there are rows.
#[task(name = "test.nulls_later", deterministic = true)]
fn nulls_later(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let numbers = batch["number"].as_primitive::<Int64Type>();
        let halves = Int64Array::from_iter(numbers.values().iter().map(|number| half_of(*number)));
        // Fields inside, too, say that they have nulls where they have some.
        let field = Field::new("half", DataType::Int64, halves.null_count() > 0);
        let within = StructArray::from(vec![(Arc::new(field), Arc::new(halves.clone()) as ArrayRef)]);
        let mut columns =
            vec![("number", batch["number"].clone()), ("half", Arc::new(halves) as _), ("within", Arc::new(within))];
        if batch.num_rows() > 0 {
            columns.reverse();
        }
        RecordBatch::try_from_iter(columns).map_err(TaskError::data)
    })
}

#[task(name = "test.two_hundred_times", deterministic = true)]
fn two_hundred_times(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, |batch| {
        let rows = (0..batch.num_rows() as u32).flat_map(|row| std::iter::repeat_n(row, 200));
        let numbers = batch.project(&[0]).map_err(TaskError::data)?;
        take_record_batch(&numbers, &UInt32Array::from_iter_values(rows)).map_err(TaskError::data)
    })
}

/// A few values of more than the node has memory for.
#[task(name = "test.shares_a_buffer", deterministic = true)]
fn shares_a_buffer(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    let many = Int64Array::from(vec![0; 128 << 20 >> 3]);
    batches.map(context, |batch| {
        let few = many.slice(7, batch.num_rows());
        RecordBatch::try_from_iter([("zero", Arc::new(few) as _)]).map_err(TaskError::data)
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

async fn mapped<F>(table: &Table, rewrite: Rewrite, memory: u64, function: F) -> Result<Rewritten, JobError>
where
    F: TaskFunction<Params = Batches, Value = MappedFile>,
{
    let mut params = MapTable::new(Vec::new(), table.path("out"), function);
    params.table = rewrite;
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
        let report = mapped(&table, table.rewrite(&output, FileSize::Rows(4_000)), memory, even_twice).await.unwrap();
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
    let refused = async |output: &str, error: Result<Rewritten, JobError>| {
        assert!(!table.path(output).join("_exobus.json").exists(), "{output}");
        error.unwrap_err().to_string()
    };
    let rewrite = |output: &str| table.rewrite(output, FileSize::Count(2));
    let error = refused("types", mapped(&table, rewrite("types"), 64, other_types).await).await;
    assert!(
        error.contains("column number is text, not int64") && error.contains("rows from there on as for none"),
        "{error}"
    );
    let error = refused("lacks", mapped(&table, rewrite("lacks"), 64, lacks_a_column).await).await;
    // Of several tasks any may be the first to fail.
    assert!(
        error.contains(".parquet, row group 0, row ") && error.contains(": columns number, not number, note"),
        "{error}"
    );
    assert!(error.contains("test.lacks_a_column"), "{error}");
    let error = refused("more", mapped(&table, rewrite("more"), 64, has_one_more).await).await;
    assert!(error.contains("columns number, note, not number:"), "{error}");
    let error = refused("alike", mapped(&table, rewrite("alike"), 64, names_alike).await).await;
    assert!(error.contains("number") && error.contains("Number"), "{error}");
    let error = refused("refused", mapped(&table, rewrite("refused"), 64, refuses).await).await;
    assert!(error.contains("rows that nobody wants") && error.contains("test.refuses"), "{error}");
}

#[tokio::test]
async fn nulls_may_begin_in_any_batch_and_columns_stand_in_any_order() {
    let table = Table::new(5_000);
    let mut rewrite = table.rewrite("out", FileSize::Count(2));
    rewrite.writing.verify = true;
    let report = mapped(&table, rewrite, 64, nulls_later).await.unwrap();
    assert_eq!((report.rows, report.files), (5_000, 2));
    let nulls = Cell::new(0);
    let (numbers, _) = table.read("out", |_, batch, numbers| {
        let halves = batch["half"].as_primitive::<Int64Type>();
        assert_eq!(batch.schema().field(0).name(), "number");
        assert_eq!(batch["within"].as_struct().column(0).as_primitive::<Int64Type>(), halves);
        for (at, number) in numbers.iter().enumerate() {
            let half = half_of(*number);
            assert_eq!(halves.is_valid(at).then(|| halves.value(at)), half, "{number}");
            nulls.set(nulls.get() + usize::from(half.is_none()));
        }
    });
    assert!(numbers.into_iter().eq(0..5_000));
    assert_eq!(nulls.get(), 1_500);
}

#[tokio::test]
async fn a_batch_becomes_more_rows_than_any_batch_has_and_is_read_back() {
    let table = Table::new(3_000);
    let mut rewrite = table.rewrite("out", FileSize::Rows(2_000));
    rewrite.writing.verify = true;
    let report = mapped(&table, rewrite, 64, two_hundred_times).await.unwrap();
    assert_eq!((report.rows_read, report.rows, report.files), (3_000, 600_000, 2));
    let (numbers, _) = table.read("out", |_, _, _| ());
    assert!(numbers.into_iter().eq((0..3_000).flat_map(|number| std::iter::repeat_n(number, 200))));
}

#[tokio::test]
async fn files_of_arrow_are_mapped_as_others_are() {
    let table = Table::new(20_000);
    let mut arrow = ConvertTable { table: table.rewrite("arrow", FileSize::Count(2)), rows: None };
    (arrow.table.writing.format, arrow.table.writing.group_rows) = (Some(OutputFormat::Arrow), None);
    let program = async move |futures| convert(futures, arrow).await;
    table.run((2, 128 * MIB), "table.convert", program).await.unwrap();
    let of_parquet = mapped(&table, table.rewrite("parquet-out", FileSize::Count(3)), 64, even_twice).await.unwrap();
    let rewrite = Rewrite { inputs: vec![table.path("arrow")], ..table.rewrite("arrow-out", FileSize::Count(3)) };
    let of_arrow = mapped(&table, rewrite, 64, even_twice).await.unwrap();
    assert_eq!((of_arrow.rows_read, of_arrow.row_hash_in), (20_000, of_parquet.row_hash_in));
    assert!(table.written("arrow-out") == table.written("parquet-out"), "files are the same");
}

#[tokio::test]
async fn values_that_share_a_large_buffer_take_the_memory_of_values() {
    let table = Table::new(3_000);
    let report = mapped(&table, table.rewrite("out", FileSize::Count(1)), 64, shares_a_buffer).await.unwrap();
    assert_eq!(report.rows, 3_000);
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
