//! The rows of an answer, as people are shown them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
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
    // Some at a time: the last of them is what may be beyond what is shown.
    const AT_A_TIME: usize = 256;
    'all: for (number, batch) in batches.iter().enumerate() {
        for from in (0..batch.num_rows()).step_by(AT_A_TIME) {
            let end = (from + AT_A_TIME).min(batch.num_rows());
            if add(&batch.slice(from, end - from))?.is_break() {
                is_all &= number + 1 == batches.len() && end == batch.num_rows();
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
