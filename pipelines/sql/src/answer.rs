//! The rows of an answer, as people are shown them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_files::{FileError, Location, visit_files, visit_table_files};
use exobus_tables::jobs::TaskBudget;
use exobus_tables::look::Look;
use exobus_tables::plain::plain_type;
use exobus_tables::reading::ReadOptions;
use exobus_tables::sources::ListedFile;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What a look at the first rows is granted beside the store to begin with, bytes.
pub(crate) const LOOK_BYTES: u64 = 4 << 20;
/// Most bytes of the rows that people are shown: an answer of more has files.
const SHOWN_BYTES_MAX: usize = 4 << 20;

/// What [`first_rows`] is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FirstRowsParams {
    #[serde(with = "exobus_actors::paths")]
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) partial: bool,
    pub(crate) reading: ReadOptions,
    /// How many rows, at most.
    pub(crate) rows: u64,
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
#[task(name = "query.first_rows", deterministic = true)]
pub(crate) fn first_rows(context: &mut TaskContext<'_>, params: FirstRowsParams) -> Result<Shown, TaskError> {
    let FirstRowsParams { inputs, partial, reading, rows } = params;
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
    let look = Look::new(files, reading, budget.shared()).map_err(|error| budget.of_source(error))?;
    let found = look.first_rows(rows as usize).map_err(|error| budget.of_source(error))?;
    shown(&found.schema, &found.batches, found.is_all).map_err(TaskError::fatal)
}

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

/// As many of these rows as people are shown.
fn shown(schema: &Schema, batches: &[RecordBatch], is_all: bool) -> Result<Shown, ArrowError> {
    let fields = schema.fields().iter().map(|field| {
        let data_type = plain_type(field.data_type());
        field.as_ref().clone().with_data_type(data_type).with_nullable(true)
    });
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    let (mut rows, mut is_all) = (0, is_all);
    let mut add = |batch: &RecordBatch| -> Result<ControlFlow<()>, ArrowError> {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        writer.write(&RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)?;
        rows += batch.num_rows() as u64;
        Ok(match writer.get_ref().len() > SHOWN_BYTES_MAX {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    'all: for (number, batch) in batches.iter().enumerate() {
        let mut from = 0;
        while from < batch.num_rows() {
            let mut some = batch.slice(from, AT_A_TIME.min(batch.num_rows() - from));
            while some.num_rows() > 0 && slice_bytes(&some)? > SHOWN_BYTES_MAX {
                some = some.slice(0, some.num_rows() / 2);
            }
            let is_over = some.num_rows() == 0 || add(&some)?.is_break();
            from += some.num_rows();
            if is_over {
                is_all &= number + 1 == batches.len() && from == batch.num_rows();
                break 'all;
            }
        }
    }
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
