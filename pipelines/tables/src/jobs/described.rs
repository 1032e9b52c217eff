//! Which files a table has, of what schema, and how they are cut.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::Schema;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_files::{Access, FileStatus, Location};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::budget::{TaskBudget, of_table};
use crate::block::Layout;
use crate::semantics::{FileTypes, KeyColumn, KeyEncoder, UnifiedSchema, stored_schema};
use crate::sources::InputFile;
use crate::sources::parquet::ParquetFile;

/// What a task that looks at footers is granted to begin with, bytes.
pub(super) const LOOK_BYTES: u64 = 4 << 20;
/// The column of places, which rows have on their way: no table may have one of this name.
pub(super) const PLACE: &str = "exobus.place";

/// What `describe` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DescribeParams {
    #[serde(with = "exobus_actors::paths")]
    pub(super) inputs: Vec<PathBuf>,
    pub(super) partial: bool,
    pub(super) key: Vec<KeyColumn>,
}

/// A table as it was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Described {
    /// The [`Layout`] of its rows on their way, encoded: columns of all files, as Parquet has them, and that of places.
    pub(super) layout: ByteBuf,
    pub(super) files: Vec<DescribedFile>,
}

/// One of its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DescribedFile {
    #[serde(with = "exobus_actors::paths")]
    pub(super) path: PathBuf,
    pub(super) status: FileStatus,
    pub(super) splits: Vec<DescribedSplit>,
}

/// A split of a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct DescribedSplit {
    /// Of its rows in memory, as far as the file says.
    pub(super) value_bytes: u64,
    pub(super) rows: u64,
}

/// Looks at the footers of all files, and refuses what cannot be one table, or has no such key.
#[task(name = "table.describe")]
pub(super) fn describe(context: &mut TaskContext<'_>, params: DescribeParams) -> Result<Described, TaskError> {
    let budget = TaskBudget::new(context, LOOK_BYTES)?;
    let mut listed = Vec::new();
    let check = |location: &Location| match location.as_path() {
        Some(path) => context.check_path(path),
        None => Ok(()),
    };
    exobus_files::visit_files((&params.inputs, params.partial), check, |location, status| {
        listed.push((location.to_path_buf(), status));
        context.check_cancelled()
    })?;
    let (mut unified, mut files) = (None::<UnifiedSchema>, Vec::with_capacity(listed.len()));
    for (path, status) in listed {
        context.check_cancelled()?;
        let file = open(&path, status, &budget)?;
        let (name, schema) = (file.file().name().to_string(), file.schema().clone());
        match &mut unified {
            None => unified = Some(UnifiedSchema::new(&name, &schema).map_err(of_table)?),
            Some(unified) => unified.add(&name, &schema).map_err(of_table)?,
        }
        let splits = (0..file.metadata().num_row_groups()).map(|index| {
            let group = file.metadata().row_group(index);
            let size = |figure: i64| u64::try_from(figure).unwrap_or(0);
            DescribedSplit { value_bytes: size(group.total_byte_size()), rows: size(group.num_rows()) }
        });
        files.push(DescribedFile { splits: splits.collect(), path, status });
    }
    let unified = unified.ok_or_else(|| TaskError::request("there is no file"))?;
    let schema = stored_schema(FileTypes::Parquet, &unified.schema()).map_err(of_table)?;
    KeyEncoder::new(&schema, &params.key).map_err(of_table)?;
    let layout = Layout::new(&with_places(&schema)?).map_err(of_table)?;
    Ok(Described { layout: ByteBuf::from(layout.encode()), files })
}

/// Opens a file of the table, as it was listed.
pub(super) fn open(
    path: &std::path::Path,
    status: FileStatus,
    budget: &Arc<TaskBudget>,
) -> Result<Arc<ParquetFile>, TaskError> {
    let file = Location::from(path).open(Access::Cached)?;
    let file = InputFile::new(file, status).map_err(|error| budget.of_source(error))?;
    let file = ParquetFile::open(file, &budget.shared()).map_err(|error| budget.of_source(error))?;
    Ok(Arc::new(file))
}

/// The schema with the column of places behind the others.
fn with_places(schema: &Schema) -> Result<Schema, TaskError> {
    if schema.column_with_name(PLACE).is_some() {
        return Err(TaskError::request(format!(
            "the table has a column {PLACE}, a name that exobus uses itself: rename it"
        )));
    }
    let place = arrow_schema::Field::new(PLACE, arrow_schema::DataType::UInt64, false);
    let fields = schema.fields().iter().cloned().chain([Arc::new(place)]);
    Ok(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

impl Described {
    /// Bytes of all its rows in memory, as far as its files say.
    pub(super) fn value_bytes(&self) -> u64 {
        self.splits().map(|split| split.value_bytes).sum()
    }

    pub(super) fn rows(&self) -> u64 {
        self.splits().map(|split| split.rows).sum()
    }

    pub(super) fn splits(&self) -> impl Iterator<Item = &DescribedSplit> {
        self.files.iter().flat_map(|file| &file.splits)
    }
}
