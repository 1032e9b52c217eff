//! How files of a table are written.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::Output;
use exobus_files::{IoBuffer, Location, OutputFolder, Schema, Token};
use exobus_shuffle::jobs::outputs::{self, PartFailure, PartFile};
use exobus_shuffle::records::RECORD_BYTES;
use serde::{Deserialize, Serialize};

use super::budget::{TaskBudget, of_table};
use crate::block::{BYTES_MAX, Gather, Layout, Limits, Pick};
use crate::reading::{ReadOptions, Reading, TableReader};
use crate::semantics::{FileTypes, KeyColumn, Nulls, conformed};
use crate::sinks::{
    Compression, FileForm, OutputFormat, SinkError, SinkOptions, SortedColumn, TableSink, as_text, as_text_bytes,
    batch_memory, packing_bytes, row_group_memory,
};
use crate::sources::{
    BATCH_BYTES_MAX, BATCH_ROWS_MAX, InputFile, InputFormat, MemoryBudget, Reservation, SourceError, print_schema,
    records,
};
use crate::{RowHasher, TableError};

/// How much is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileSize {
    /// So many bytes of values, about.
    Bytes(u64),
    /// So many rows at most.
    Rows(u64),
    /// As much as makes so many files.
    Count(u32),
}

impl Default for FileSize {
    fn default() -> Self {
        Self::Bytes(256 << 20)
    }
}

impl FileSize {
    /// How many files a table of so many bytes of values and rows has, at least one; no file is of no row where it is said how many it has.
    pub(super) fn files(self, value_bytes: u64, rows: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => value_bytes.div_ceil(bytes.max(1)).max(1),
            Self::Rows(of_file) => rows.div_ceil(of_file.max(1)).max(1),
            Self::Count(files) => u64::from(files).max(1),
        }
    }
}

/// How files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// The format; `None`: that of the first file that is read.
    pub format: Option<OutputFormat>,
    /// How files are compressed; `None`: Parquet with Snappy, others not at all.
    pub compression: Option<Compression>,
    /// Most rows of a row group of Parquet, 1 at least; `None`: 122 880. Other formats have no row groups, and are refused with it.
    pub group_rows: Option<u64>,
    /// How much is in a file.
    pub file_size: FileSize,
    /// Whether each file is read back when it is written, and its rows are compared with those that it was given.
    #[serde(default)]
    pub verify: bool,
}

impl WriteOptions {
    /// What files are written as, where the first one that is read has this format.
    ///
    /// # Errors
    /// The format cannot be compressed so, or has no row groups.
    pub(super) fn form(&self, first: Option<InputFormat>) -> Result<FileForm, TaskError> {
        let format = self.format.or(first.map(OutputFormat::of)).unwrap_or_default();
        let form = FileForm::new(format, self.compression).map_err(TaskError::request)?;
        form.with_group_rows(self.group_rows).map_err(TaskError::request)
    }

    /// Memory that a sink of this form takes, and the rows on their way to it, for a file of these columns with so many bytes of values and rows.
    pub(super) fn sink_bytes(&self, form: FileForm, schema: &ArrowSchema, (file_bytes, rows): (u64, u64)) -> u64 {
        let (rows, group_rows) = (rows.max(1), form.group_rows().min(rows.max(1)));
        let group_bytes = u128::from(file_bytes) * u128::from(group_rows) / u128::from(rows);
        // The message in which rows come to it.
        let message_bytes = file_bytes.min(BYTES_MAX);
        message_bytes
            + match form.format() {
                OutputFormat::Parquet => row_group_memory(schema, form.compression(), group_bytes as u64),
                OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines => packing_bytes(form.compression()),
                OutputFormat::Arrow => batch_memory(file_bytes.min(BATCH_BYTES_MAX)),
                OutputFormat::Records => 0,
            }
    }
}

/// What tasks are told that write files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FileParams {
    /// The folder.
    #[serde(with = "exobus_actors::paths")]
    pub(super) directory: std::path::PathBuf,
    /// The name of the file in it.
    pub(super) name: String,
    pub(super) form: FileForm,
    pub(super) options: WriteOptions,
    /// By what its rows are sorted, which readers are told.
    pub(super) sorted_by: Vec<KeyColumn>,
    /// Bytes of each of the two buffers that it is written with.
    pub(super) buffer_bytes: u64,
}

/// A file as it was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) token: Token,
    pub(super) row_hash: RowHash,
}

/// What the manifest of a folder of such files says of them.
pub(super) fn manifest(format: OutputFormat, schema: &SchemaRef) -> Schema {
    if format == OutputFormat::Records {
        return Schema::records(RECORD_BYTES as u64, records::KEY_BYTES as u64);
    }
    let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
    let delimiter = if format == OutputFormat::Tsv { '\t' } else { ',' };
    Schema::columns(&format.to_string(), columns, delimiter, format.types() == FileTypes::Text)
}

/// A file that a task writes.
pub(super) struct PartWriter<'a> {
    sink: TableSink<PartFile>,
    failure: PartFailure,
    schema: &'a SchemaRef,
    hasher: &'a RowHasher,
    budget: Arc<TaskBudget>,
    row_hash: RowHash,
    /// Hash of the rows as the format has them, where they are read back.
    stored_hash: RowHash,
    verify: Option<FileTypes>,
}

impl<'a> PartWriter<'a> {
    /// Begins one of rows of this schema.
    pub(super) fn create(
        context: &TaskContext<'_>,
        params: &FileParams,
        buffers: Vec<IoBuffer>,
        (schema, hasher): (&'a SchemaRef, &'a RowHasher),
        budget: &Arc<TaskBudget>,
    ) -> Result<Self, TaskError> {
        let file = PartFile::new(outputs::create_file(context, (&params.directory, &params.name), buffers, 0)?);
        let failure = file.failure();
        let sink = TableSink::new(file, schema, &params.sink(schema), &budget.shared());
        let sink = sink.map_err(|error| budget.of_sink(error, failure.take()))?;
        let (row_hash, stored_hash) = (RowHash::default(), RowHash::default());
        let verify = params.options.verify.then(|| params.form.format().types());
        Ok(Self { sink, failure, schema, hasher, budget: budget.clone(), row_hash, stored_hash, verify })
    }

    /// Writes rows, without their encodings and as messages of at most these limits, as sinks take them; they are hashed as they are written. `refused`: how the task fails over a row.
    pub(super) fn write(
        &mut self,
        (gather, limits): (&Gather, &Limits),
        picks: &[Pick],
        refused: impl FnOnce(TableError) -> TaskError,
    ) -> Result<(), TaskError> {
        for message in gather.messages(picks, limits).map_err(refused)? {
            let memory = Reservation::of(&self.budget.shared(), message.bytes());
            let _memory = memory.map_err(|denied| self.budget.of_message(denied))?;
            self.write_batch(&message.batch().map_err(of_table)?)?;
        }
        Ok(())
    }

    /// Writes the rows of a batch that has no encodings and is no larger than sinks take.
    pub(super) fn write_batch(&mut self, batch: &RecordBatch) -> Result<(), TaskError> {
        let mut memory = Reservation::none(&self.budget.shared());
        if self.verify == Some(FileTypes::Text) {
            memory.resize(as_text_bytes(batch)).map_err(|denied| self.budget.of_message(denied))?;
        }
        let row_hash = self.hasher.sum(batch).map_err(of_table)?;
        self.row_hash += row_hash;
        match self.verify {
            None => (),
            Some(FileTypes::Text) => self.stored_hash += self.hasher.sum(&as_text(batch)).map_err(of_table)?,
            Some(_) => self.stored_hash += row_hash,
        }
        self.sink.write(batch).map_err(|error| failed(&self.budget, &self.failure, error))
    }

    /// Writes all rows of a batch of this layout, some at a time: how many they are, and their hash as they were given. `refused`: how the task fails over the batch.
    pub(super) fn write_all(
        &mut self,
        (layout, limits): (&Arc<Layout>, &Limits),
        batch: &RecordBatch,
        refused: impl Fn(TableError) -> TaskError,
    ) -> Result<Output, TaskError> {
        let (rows, mut given) = (batch.num_rows(), Output::default());
        for from in (0..rows).step_by(BATCH_ROWS_MAX) {
            let batch = batch.slice(from, BATCH_ROWS_MAX.min(rows - from));
            let row_hash = self.hasher.sum(&batch).map_err(&refused)?;
            given.add(Output { bytes: 0, rows: batch.num_rows() as u64, row_hash });
            let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch)).map_err(of_table)?;
            let picks: Vec<Pick> = (0..batch.num_rows() as u32).map(|row| Pick { batch: 0, row }).collect();
            self.write((&gather, limits), &picks, |error| refused(error.with_row(|row| from + row)))?;
        }
        Ok(given)
    }

    /// Ends it, and reads it back where that is wanted.
    pub(super) fn finish(self, context: &mut TaskContext<'_>, params: &FileParams) -> Result<Written, TaskError> {
        Ok(self.finish_with_buffers(context, params)?.0)
    }

    /// The same; the buffers may be those of the next file.
    pub(super) fn finish_with_buffers(
        self,
        context: &mut TaskContext<'_>,
        params: &FileParams,
    ) -> Result<(Written, Vec<IoBuffer>), TaskError> {
        let (file, rows) = self.sink.finish().map_err(|error| failed(&self.budget, &self.failure, error))?;
        let (token, buffers) = outputs::finish_file(context, &params.directory, file.into_output(), rows)?;
        if self.verify.is_some() {
            let folder = OutputFolder::new(&params.directory, context.job())?;
            let place = folder.working_place().join(&token.temporary);
            let (is_over, format) = (|| context.cancelled(), params.form.format());
            let read = read_back(&place, format, (self.schema, self.hasher), &self.budget.shared(), is_over);
            let read = read.map_err(|error| self.budget.of_source(error))?.ok_or(TaskError::Cancelled)?;
            if (read.rows, read.row_hash) != (rows, self.stored_hash) {
                let (name, wrote, found) = (&token.name, self.stored_hash, read);
                return Err(TaskError::fatal(format!(
                    "{name} was read back as it was not written: {rows} rows of hash {wrote} were written, {} rows of hash {} read",
                    found.rows, found.row_hash
                )));
            }
            context.read_outside(token.bytes);
        }
        Ok((Written { token, row_hash: self.row_hash }, buffers))
    }
}

/// Rows of a file, and their hash, as the types are of this schema; `None`: nobody wants to know any longer (`is_over`), before all were read.
fn read_back(
    location: &Location,
    format: OutputFormat,
    (schema, hasher): (&SchemaRef, &RowHasher),
    budget: &Arc<dyn MemoryBudget>,
    is_over: impl Fn() -> bool,
) -> Result<Option<Output>, SourceError> {
    let input = InputFile::open(&*location.system()?, location)?;
    // Columns of records have names of their own; hashes go by where columns stand.
    let schema = if format == OutputFormat::Records { records::schema() } else { schema };
    let failed = |error| SourceError::Table { file: input.name().clone(), error };
    let types = || print_schema(schema.fields().iter().map(|field| (field.name().as_str(), field.data_type())));
    let is_text = format.read().is_text();
    let options = ReadOptions { schema: is_text.then(types), ..ReadOptions::default() };
    let reading = Reading::new(options, schema).map_err(failed)?;
    let reader = TableReader::new(&reading, schema, budget).map_err(failed)?;
    let file = reader.open(input.clone(), format.read())?;
    let mut read = Output::default();
    for rows in file.all_rows(&vec![false; file.splits()])? {
        if is_over() {
            return Ok(None);
        }
        let rows = rows?;
        let batch = conformed(&rows.batch, schema).map_err(|error| file.row_error(&rows, error))?;
        let row_hash = hasher.sum(&batch).map_err(failed)?;
        read.add(Output { bytes: 0, rows: batch.num_rows() as u64, row_hash });
    }
    Ok(Some(read))
}

fn failed(budget: &TaskBudget, failure: &PartFailure, error: SinkError) -> TaskError {
    budget.of_sink(error, failure.take())
}

impl FileParams {
    fn sink(&self, schema: &SchemaRef) -> SinkOptions {
        let sorted = |key: &KeyColumn| {
            let (column, _) = schema.column_with_name(&key.column)?;
            Some(SortedColumn { column, falling: key.descending, nulls_first: key.nulls == Nulls::First })
        };
        let sorted_by = self.sorted_by.iter().map_while(sorted).collect();
        SinkOptions { form: self.form, sorted_by }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use arrow_array::{Int64Array, RecordBatch};

    use super::*;
    use crate::sources::FixedBudget;

    /// A bit of a value that nothing else looks at.
    #[test]
    fn a_file_whose_bytes_changed_is_read_back_with_another_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let numbers = Int64Array::from_iter_values((0..1000).map(|number| number * 0x0101_0101));
        let batch = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let (schema, hasher) = (batch.schema(), RowHasher::new(&batch.schema()).unwrap());
        let wrote = (1000, hasher.sum(&batch).unwrap());
        let packed = [Compression::Gzip(1), Compression::Zstd(1)].map(|of| (OutputFormat::Csv, of));
        let forms = OutputFormat::ALL.map(|format| (format, Compression::None));
        let is_of_numbers = |(format, _): &(OutputFormat, _)| *format != OutputFormat::Records;
        for (format, compression) in forms.into_iter().chain(packed).filter(is_of_numbers) {
            let options = SinkOptions::new(FileForm::new(format, Some(compression)).unwrap());
            let mut sink = TableSink::new(Vec::new(), &schema, &options, &budget).unwrap();
            sink.write(&batch).unwrap();
            let (mut bytes, _) = sink.finish().unwrap();
            let read = |bytes: &[u8]| {
                std::fs::write(&path, bytes).unwrap();
                let read = read_back(&Location::from(&*path), format, (&schema, &hasher), &budget, || false);
                read.map(|read| read.map(|read| (read.rows, read.row_hash)).unwrap())
            };
            assert_eq!(read(&bytes).unwrap(), wrote, "{format}");
            if compression != Compression::None {
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                assert!(read(&bytes).is_err(), "{compression}");
                continue;
            }
            let value = (500 * 0x0101_0101_i64).to_string();
            let value = if format.read().is_text() {
                value.into_bytes()
            } else {
                (500 * 0x0101_0101_i64).to_le_bytes().to_vec()
            };
            let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
            bytes[at] ^= 1;
            assert_ne!(read(&bytes).unwrap(), wrote, "{format}");
        }
    }

    #[test]
    fn a_file_is_read_back_for_as_long_as_somebody_wants_to_know() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let numbers = Int64Array::from_iter_values(0..5 * BATCH_ROWS_MAX as i64);
        let batch = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let (schema, hasher) = (batch.schema(), RowHasher::new(&batch.schema()).unwrap());
        let formats = OutputFormat::ALL;
        for format in formats.into_iter().filter(|format| *format != OutputFormat::Records) {
            let options = SinkOptions::new(FileForm::new(format, Some(Compression::None)).unwrap());
            let mut sink = TableSink::new(Vec::new(), &schema, &options, &budget).unwrap();
            sink.write(&batch).unwrap();
            std::fs::write(&path, sink.finish().unwrap().0).unwrap();
            let asked = Cell::new(0);
            let read = |until: usize| {
                asked.set(0);
                let is_over = || asked.replace(asked.get() + 1) == until;
                read_back(&Location::from(&*path), format, (&schema, &hasher), &budget, is_over).unwrap()
            };
            let all = read(usize::MAX).map(|read| read.rows);
            assert_eq!((all, asked.get() >= 5), (Some(5 * BATCH_ROWS_MAX as u64), true), "{format}");
            assert!(read(2).is_none() && asked.get() == 3, "{format}: {} looks", asked.get());
        }
    }
}
