//! A table in files, jobs over it in nodes of this process, and what they wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;
use exobus_tables::jobs::sort::{SortTable, sort};
use exobus_tables::jobs::{FileSize, Rewrite, Rewritten, WriteOptions};
use exobus_tables::semantics::KeyColumn;
use exobus_tables::sinks::{Compression, OutputFormat, ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

pub const MIB: u64 = 1 << 20;

/// Row `number` of the table: what its key is, if it has one, and its time.
pub fn key_of(number: i64) -> (Option<String>, i64) {
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
pub fn rows(numbers: std::ops::Range<i64>) -> RecordBatch {
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

pub fn write(path: &Path, numbers: std::ops::Range<i64>, group_rows: u64) {
    write_batch(path, &rows(numbers), group_rows);
}

/// Writes a file of Parquet with these rows.
pub fn write_batch(path: &Path, rows: &RecordBatch, group_rows: u64) {
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let options = ParquetOptions { group_rows, compression: Compression::Zstd(1), ..ParquetOptions::default() };
    let mut sink = ParquetSink::new(Vec::new(), &rows.schema(), &options, &budget).unwrap();
    sink.write(rows).unwrap();
    fs::write(path, sink.finish().unwrap().0).unwrap();
}

pub struct Table {
    pub folder: tempfile::TempDir,
    pub rows: i64,
}

impl Table {
    /// Files of several row groups each, one of them without a row.
    pub fn new(rows: i64) -> Self {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The table, to be written as so many files of Parquet.
    pub fn rewrite(&self, output: &str, file_size: FileSize) -> Rewrite {
        let writing = WriteOptions {
            format: Some(OutputFormat::Parquet),
            group_rows: Some(2_000),
            file_size,
            ..WriteOptions::default()
        };
        Rewrite { writing, ..Rewrite::new(vec![self.path("in")], self.path(output)) }
    }

    /// A sort by a key into so many files.
    pub fn params(&self, output: &str, key: &[KeyColumn], files: u32) -> SortTable {
        SortTable { table: self.rewrite(output, FileSize::Count(files)), key: key.to_vec() }
    }

    pub async fn sort(&self, node: (usize, u64), params: SortTable) -> Result<Rewritten, JobError> {
        self.run(node, "table.sort", async move |futures| sort(futures, params).await).await
    }

    /// Runs a program on a node of its own, of so many executors and bytes of memory. Nothing goes wrong there, so no task runs again.
    pub async fn run(
        &self,
        (executors, memory_bytes): (usize, u64),
        name: &str,
        program: impl AsyncFnOnce(Futures) -> Result<Rewritten, JobError> + Send + 'static,
    ) -> Result<Rewritten, JobError> {
        let mut options = NodeOptions::alone(executors, memory_bytes);
        options.store.spill_dirs = vec![self.path("spill")];
        let node = Node::start(options).unwrap();
        let again = Arc::new(Mutex::new(Vec::new()));
        let seen = again.clone();
        let events = EventSink::new(move |event: Event| {
            if let EventKind::TaskReplayed { stage, .. } = event.kind {
                seen.lock().unwrap().push(stage);
            }
        });
        let result = node.run(JobId::new(), name, Some(events), program).await.0;
        node.stop();
        assert!(again.lock().unwrap().is_empty(), "tasks ran again, though nothing was lost: {again:?}");
        result
    }

    /// Numbers of the rows of each file of a folder; rows are what they were in all their columns.
    pub fn numbers_of_files(&self, output: &str) -> Vec<Vec<i64>> {
        let (numbers, files) = self.read(output, |_, _, _| ());
        let rows = |bytes: &Vec<u8>| {
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.clone())).unwrap();
            reader.metadata().file_metadata().num_rows() as usize
        };
        let mut numbers = numbers.into_iter();
        files.iter().map(|(_, bytes)| numbers.by_ref().take(rows(bytes)).collect()).collect()
    }

    /// Numbers of the rows in the order of the files of a folder, and the bytes of these.
    pub fn written(&self, output: &str) -> (Vec<i64>, Vec<(String, Vec<u8>)>) {
        let (numbers, files) = self.read(output, |name, batch, numbers| {
            // Rows are what they were in all their columns.
            for (at, number) in numbers.iter().enumerate() {
                assert_eq!(batch.slice(at, 1).columns(), rows(*number..number + 1).columns(), "{name}");
            }
        });
        (numbers, files)
    }

    /// Names and bytes of the files of a folder.
    pub fn bytes_of(&self, output: &str) -> Vec<(String, Vec<u8>)> {
        bytes_of(&self.path(output))
    }

    /// The same, with a look at each batch.
    pub fn read(&self, output: &str, look: impl Fn(&str, &RecordBatch, &[i64])) -> (Vec<i64>, Vec<(String, Vec<u8>)>) {
        let files = self.bytes_of(output);
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

fn bytes_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name.ends_with(".parquet"))
        .collect();
    files.sort();
    files
}

/// All rows of a folder, in the order of its files.
pub fn batches_of(folder: &Path) -> Vec<RecordBatch> {
    batches_by_file(folder).into_iter().flatten().collect()
}

/// The rows of each file of a folder.
pub fn batches_by_file(folder: &Path) -> Vec<Vec<RecordBatch>> {
    let rows = |(_, bytes): (String, Vec<u8>)| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
        reader.build().unwrap().map(Result::unwrap).collect()
    };
    bytes_of(folder).into_iter().map(rows).collect()
}

pub fn by_user_and_time() -> Vec<KeyColumn> {
    vec![KeyColumn::rising("user"), KeyColumn { descending: true, ..KeyColumn::rising("ts") }]
}

/// The numbers of rows from 0 on in the order of [`by_user_and_time`].
pub fn in_order(rows: i64) -> Vec<i64> {
    let mut numbers: Vec<i64> = (0..rows).collect();
    numbers.sort_by_key(|number| {
        let (user, ts) = key_of(*number);
        (user.is_none(), user, -ts)
    });
    numbers
}
