//! The rows of an answer, as people are shown them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use exobus_actors::futures::Home;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::JobError;
use exobus_files::{FileError, Location, visit_files, visit_table_files};
use exobus_tables::block::Layout;
use exobus_tables::jobs::TaskBudget;
use exobus_tables::look::Look;
use exobus_tables::plain::plain_type;
use exobus_tables::reading::ReadOptions;
use exobus_tables::sources::ListedFile;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::program::asked;

/// What a look at the first rows is granted beside the store to begin with, bytes.
pub(crate) const LOOK_BYTES: u64 = 4 << 20;
/// Most bytes of the rows that people are shown: an answer of more has files.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// The same, with what was shown of groups before, where what a job returns stands in its log: a record of that has 256 KiB.
const LOGGED_BYTES_MAX: usize = 224 << 10;
/// As much room there is at least.
const ROOM_BYTES: usize = 16 << 10;

/// What [`first_rows`] is told. Its only argument is what was [asked].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FirstRowsParams {
    #[serde(with = "exobus_actors::paths")]
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) partial: bool,
    pub(crate) reading: ReadOptions,
    /// How many rows, at most.
    pub(crate) rows: u64,
    /// How many bytes of them, at most.
    pub(crate) bytes: usize,
    /// Which table of the query the files are; `None`: none.
    pub(crate) table: Option<usize>,
}

/// The first rows of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The rows, a stream of Arrow.
    stream: ByteBuf,
    /// How many.
    pub rows: u64,
    /// Whether these are all.
    pub is_all: bool,
}

/// The first rows of files.
#[task(name = "query.first_rows", version = 2, deterministic = true)]
pub(crate) fn first_rows(context: &mut TaskContext<'_>, params: FirstRowsParams) -> Result<Shown, TaskError> {
    let FirstRowsParams { inputs, partial, reading, rows, bytes, table } = params;
    let mut files = Vec::new();
    let check = |location: &Location| -> Result<(), TaskError> {
        location.as_path().map_or(Ok(()), |path: &Path| context.check_path(path))
    };
    let mut push = |location: &Location, status, below| -> Result<(), TaskError> {
        files.push(ListedFile { location: location.clone(), status, below });
        context.check_cancelled()
    };
    match reading.reads_folders() {
        true => visit_table_files((&inputs, partial), check, push)?,
        false => visit_files((&inputs, partial), check, |location, status| push(location, status, 0))?,
    }
    let budget = TaskBudget::new(context);
    let mut look = Look::new(files, reading, budget.shared()).map_err(|error| budget.of_source(error))?;
    if let Some(table) = table {
        let (_, tables, _) = asked(context)?;
        look = look.of_table(Layout::decode(&tables[table].1).map_err(TaskError::fatal)?.schema().clone());
    }
    let found = look.first_rows(rows as usize).map_err(|error| budget.of_source(error))?;
    shown((&found.schema, &found.batches), found.is_all, bytes).map_err(TaskError::fatal)
}

/// What a batch of a stream takes beside its values, and each column of it, about.
const MESSAGE_BYTES: usize = 512;
const COLUMN_BYTES: usize = 128;

/// Rows that are added at a time, at most.
const AT_A_TIME: usize = 256;

/// What rows take that point to no others.
fn slice_bytes(rows: &RecordBatch) -> Result<usize, ArrowError> {
    let of_column = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => Ok(column.as_string_view().lengths().map(|length| 16 + length as usize).sum()),
        DataType::BinaryView => Ok(column.as_binary_view().lengths().map(|length| 16 + length as usize).sum()),
        _ => column.to_data().get_slice_memory_size(),
    };
    rows.columns().iter().map(of_column).sum()
}

/// How many bytes of rows a job returns, at most, which returns that beside them.
pub(crate) fn shown_bytes_max(home: &Home, beside: &impl Serialize) -> Result<usize, JobError> {
    if home.cluster.is_none() && home.log.is_none() {
        return Ok(SHOWN_BYTES_MAX);
    }
    let beside = rmp_serde::to_vec(beside).map_err(JobError::program)?;
    Ok(LOGGED_BYTES_MAX.saturating_sub(beside.len()).max(ROOM_BYTES))
}

/// As many of these rows as people are shown.
fn shown((schema, batches): (&Schema, &[RecordBatch]), is_all: bool, bytes_max: usize) -> Result<Shown, ArrowError> {
    let fields = schema.fields().iter().map(|field| {
        let data_type = plain_type(field.data_type());
        field.as_ref().clone().with_data_type(data_type).with_nullable(true)
    });
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    let mut rows = 0;
    let mut add = |writer: &mut StreamWriter<Vec<u8>>, batch: &RecordBatch| -> Result<(), ArrowError> {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        rows += batch.num_rows() as u64;
        writer.write(&RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    };
    let of_message = MESSAGE_BYTES + schema.fields().len() * COLUMN_BYTES;
    let mut left: usize = batches.iter().map(RecordBatch::num_rows).sum();
    'all: for batch in batches {
        let mut from = 0;
        while from < batch.num_rows() {
            let wanted = AT_A_TIME.min(batch.num_rows() - from);
            let room = bytes_max.saturating_sub(writer.get_ref().len() + of_message);
            let mut some = batch.slice(from, wanted);
            while some.num_rows() > 0 && slice_bytes(&some)? > room {
                some = some.slice(0, some.num_rows() / 2);
            }
            if some.num_rows() > 0 {
                add(&mut writer, &some)?;
            }
            (from, left) = (from + some.num_rows(), left - some.num_rows());
            if some.num_rows() < wanted {
                break 'all;
            }
        }
    }
    let is_all = is_all && left == 0;
    Ok(Shown { stream: ByteBuf::from(writer.into_inner()?), rows, is_all })
}

impl Shown {
    /// The columns and the rows; without any, nothing is shown.
    ///
    /// # Errors
    /// Arrow's, for bytes that are none.
    pub fn batches(&self) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
        if self.stream.is_empty() {
            return Ok((Arc::new(Schema::empty()), Vec::new()));
        }
        let reader = StreamReader::try_new(self.stream.as_slice(), None)?;
        let schema = reader.schema();
        Ok((schema, reader.collect::<Result<_, _>>()?))
    }
}

/// What a step leaves out of the folder of its files when nobody reads them any more.
pub(crate) fn remove(folder: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError::io(folder, "remove what steps have written", 0, error))
        }
        _ => Ok(()),
    }
}
