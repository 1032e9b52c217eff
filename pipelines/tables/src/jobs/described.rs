//! Which files a table has, of what schema, and how they are cut.

use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskOptions};
use exobus_files::{Access, FileStatus, Location};
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::budget::{TaskBudget, of_table};
use super::output::WriteOptions;
use super::rewrite::Rewrite;
use super::table::with_places;
use crate::block::Layout;
use crate::reading::{FileStatistics, ReadOptions, Reading, TableFile, TableReader};
use crate::semantics::{KeyColumn, KeyEncoder, UnifiedSchema, stored_schema};
use crate::sinks::{Compression, FileForm, OutputFormat};
use crate::sources::parquet::LastDecoding;
use crate::sources::text::{Packing, TextState};
use crate::sources::{InputFile, InputFormat, NamedTypes, Source, SourceError, print_schema};

/// What a task that looks at footers is granted to begin with, bytes.
pub(super) const LOOK_BYTES: u64 = 4 << 20;
/// Packed text is taken to be so many times as large.
const PACKED: u64 = 8;
/// Rows and bytes that no split has: footers say what they like, and sums of many must fit.
const SPLIT_MAX: (u64, u64) = (u32::MAX as u64, 1 << 44);
/// Bytes of a row, where nobody says how many rows there are.
const UNKNOWN_ROW_BYTES: u64 = 50;
/// What a row takes while it is put in order: its key, where it is, its place and its hash.
pub(super) const ROW_BYTES: u64 = 112;

/// What its place takes, which a row has with it.
pub(super) const PLACE_BYTES: u64 = size_of::<u64>() as u64;

/// What `describe` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DescribeParams {
    #[serde(with = "exobus_actors::paths")]
    pub(super) inputs: Vec<PathBuf>,
    pub(super) partial: bool,
    /// Columns that the job looks at.
    pub(super) key: Vec<KeyColumn>,
    /// What files will be written as, and how they are compressed, where that is said.
    pub(super) format: Option<OutputFormat>,
    pub(super) compression: Option<Compression>,
    pub(super) reading: ReadOptions,
}

/// A table as it was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Described {
    /// The [`Layout`] of its rows on their way, encoded: columns of all files, as the format has them that is written, and that of places.
    pub(super) layout: ByteBuf,
    pub(super) files: Vec<DescribedFile>,
    pub(super) reading: Reading,
    /// What files will be written as.
    pub(super) form: FileForm,
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
    /// Of its rows in memory, as far as is known without a look at them.
    pub(super) value_bytes: u64,
    /// Where the file says so.
    pub(super) rows: Option<u64>,
    /// Of text: how it begins.
    pub(super) state: Option<TextState>,
    /// No row of it meets the condition, as its file says: it is not read, and keeps its number. It is said to have neither rows nor bytes.
    pub(super) is_left_out: bool,
}

impl DescribedSplit {
    /// How many rows it has, or may have.
    pub(super) fn rows_about(&self) -> u64 {
        self.rows.unwrap_or(self.value_bytes / UNKNOWN_ROW_BYTES)
    }

    /// What a map of it takes beside the store: its values, decoded, and what puts its rows in order.
    pub(super) fn outside_bytes(&self) -> u64 {
        self.value_bytes * 3 / 2 + self.rows_about() * ROW_BYTES
    }

    /// What a map of it has in memory in all, with the object that it makes.
    pub(super) fn map_bytes(&self) -> u64 {
        self.outside_bytes() + self.part_bytes()
    }

    /// Bytes of its rows in the object that a map makes, with their places.
    pub(super) fn part_bytes(&self) -> u64 {
        self.value_bytes + self.rows_about() * PLACE_BYTES
    }
}

/// Looks at the footers of all files, and refuses what cannot be one table, or has no such key.
#[task(name = "table.describe")]
pub(super) fn describe(context: &mut TaskContext<'_>, params: DescribeParams) -> Result<Described, TaskError> {
    let budget = TaskBudget::new(context);
    let mut listed = Vec::new();
    let check = |location: &Location| match location.as_path() {
        Some(path) => context.check_path(path),
        None => Ok(()),
    };
    exobus_files::visit_files((&params.inputs, params.partial), check, |location, status| {
        listed.push((location.to_path_buf(), status));
        context.check_cancelled()
    })?;
    let formats = params.reading.formats(listed.iter().map(|(path, _)| Location::from(path)));
    let first = formats.map_err(|error| budget.of_source(error))?;
    let format = params.format.or(first.map(OutputFormat::of)).unwrap_or_default();
    let form = FileForm::new(format, params.compression).map_err(TaskError::request)?;
    let types = types_of_text(&listed, &params.reading, &budget)?;
    let schema = (!types.is_empty()).then(|| print_schema(types.iter().map(|(name, of)| (name.as_str(), of))));
    let reading = ReadOptions { schema, ..params.reading };
    let (mut unified, mut files) = (None::<UnifiedSchema>, Vec::with_capacity(listed.len()));
    let (mut statistics, last) = (Vec::with_capacity(listed.len()), LastDecoding::default());
    for (path, status) in listed {
        context.check_cancelled()?;
        let mut file = DescribedFile { path, status, splits: Vec::new() };
        // One at a time: there may be more of them than a process may have open.
        let opened = file
            .input(&reading, Access::Ranges)
            .and_then(|(file, format)| reading.open(file, format, &last, &budget.shared()));
        let source = opened.map_err(|error| budget.of_source(error))?;
        file.splits = splits(&source, &reading, &budget)?;
        let said = FileStatistics::of(&source, &reading, &budget.shared());
        statistics.push(said.map_err(|denied| budget.of_rows(denied))?);
        let (name, schema) = (source.file().name(), source.schema());
        match &mut unified {
            None => unified = Some(UnifiedSchema::new(name, schema).map_err(of_table)?),
            Some(unified) => unified.add(name, schema).map_err(of_table)?,
        }
        files.push(file);
    }
    let unified = unified.ok_or_else(|| TaskError::request("there is no file"))?;
    let table = unified.schema();
    let selected = reading.selected(&table, &params.key).map_err(of_table)?;
    let schema = stored_schema(format.types(), &selected).map_err(of_table)?;
    if !params.key.is_empty() {
        KeyEncoder::new(&schema, &params.key).map_err(of_table)?;
    }
    let layout = Layout::new(&with_places(&schema)?).map_err(of_table)?;
    let reading = Reading::new(reading, &table).map_err(of_table)?;
    if let Some(filter) = &reading.options.filter {
        let bound = filter.bind(&table).map_err(of_table)?;
        for (file, statistics) in files.iter_mut().zip(&statistics) {
            file.leave_out(&statistics.left_out(&bound, &table, &file.rows()));
        }
    }
    Ok(Described { layout: ByteBuf::from(layout.encode()), files, reading, form })
}

/// Types of the columns of text of all files.
fn types_of_text(
    listed: &[(PathBuf, FileStatus)],
    reading: &ReadOptions,
    budget: &Arc<TaskBudget>,
) -> Result<NamedTypes, TaskError> {
    let mut text = Vec::new();
    for (path, status) in listed {
        let location = Location::from(path);
        let format = reading.format(&location).map_err(TaskError::request)?;
        if matches!(format, InputFormat::Csv | InputFormat::Tsv) {
            text.push((move || InputFile::listed(&location, *status), format));
        }
    }
    reading.types_of_text(&text, &budget.shared()).map_err(|error| budget.of_source(error))
}

/// How a file is cut.
fn splits(source: &Source, reading: &ReadOptions, budget: &Arc<TaskBudget>) -> Result<Vec<DescribedSplit>, TaskError> {
    let states = source.states(&budget.shared()).map_err(|error| budget.of_source(error))?;
    let splits = source.splits().map_err(|error| budget.of_source(error))?;
    let split = |split: crate::sources::Split| {
        let value_bytes = match source {
            Source::Parquet(file) => bytes_of_group(file.metadata().row_group(split.index), reading),
            // Small numbers take more room than their text.
            Source::Text(file) if file.packing() == Packing::None => split.bytes.saturating_mul(2),
            Source::Text(_) => split.bytes.saturating_mul(PACKED),
            Source::Ipc(_) | Source::Records(_) => split.bytes,
        };
        let (rows_max, bytes_max) = SPLIT_MAX;
        if value_bytes > bytes_max || split.rows.is_some_and(|rows| rows > rows_max) {
            let (file, what) = (source.file().name(), "it says that it has more rows or bytes than any file has");
            return Err(TaskError::data(format!("{file}, row group {}: {what}", split.index)));
        }
        Ok(DescribedSplit {
            value_bytes,
            rows: split.rows,
            state: states.get(split.index).copied(),
            is_left_out: false,
        })
    };
    splits.into_iter().map(split).collect()
}

/// Bytes that the values of a row group have in memory, of the columns that are read: sizes in the file are of dictionaries and runs.
fn bytes_of_group(group: &RowGroupMetaData, reading: &ReadOptions) -> u64 {
    let size = |figure: i64| u64::try_from(figure).unwrap_or(u64::MAX);
    let of_column = |column: &ColumnChunkMetaData| {
        let values = size(column.num_values());
        let width = match column.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::FIXED_LEN_BYTE_ARRAY => size(column.column_descr().type_length().into()),
            Type::BYTE_ARRAY => {
                let said = column.unencoded_byte_array_data_bytes().map(size);
                return said.unwrap_or(size(column.uncompressed_size())).saturating_add(values.saturating_mul(16));
            }
        };
        values.saturating_mul(width)
    };
    let is_read =
        |column: &&ColumnChunkMetaData| column.column_path().parts().first().is_some_and(|name| reading.reads(name));
    let of_columns = group.columns().iter().filter(is_read).map(of_column).fold(0, u64::saturating_add);
    match reading.select {
        None => of_columns.max(size(group.total_byte_size())),
        Some(_) => of_columns,
    }
}

impl DescribedFile {
    /// How many rows each of its splits has, where the file says so.
    fn rows(&self) -> Vec<Option<u64>> {
        self.splits.iter().map(|split| split.rows).collect()
    }

    /// Leaves out those of its splits of which this is true.
    fn leave_out(&mut self, splits: &[bool]) {
        for (split, _) in self.splits.iter_mut().zip(splits).filter(|(_, is_left_out)| **is_left_out) {
            (split.is_left_out, split.value_bytes, split.rows) = (true, 0, Some(0));
        }
    }

    /// The file, as it was listed, and its format.
    fn input(&self, reading: &ReadOptions, access: Access) -> Result<(InputFile, InputFormat), SourceError> {
        let location = Location::from(&self.path);
        let of_format = |what| SourceError::Names { file: location.to_string().into(), what };
        let format = reading.format(&location).map_err(of_format)?;
        Ok((InputFile::new(location.open(access)?, self.status)?, format))
    }

    /// Opens it for who reads its rows.
    pub(super) fn open(
        &self,
        reader: &TableReader,
        reading: &Reading,
        access: Access,
    ) -> Result<TableFile, SourceError> {
        let (file, format) = self.input(&reading.options, access)?;
        reader.open(file, format)
    }
}

impl Described {
    /// Looks at a table, of which a job looks at these columns.
    pub(super) async fn of(futures: &Futures, rewrite: &Rewrite, key: &[KeyColumn]) -> Result<Self, JobError> {
        let Rewrite { inputs, reading, writing, partial, .. } = rewrite.clone();
        let WriteOptions { format, compression, .. } = writing;
        let params = DescribeParams { inputs, partial, key: key.to_vec(), format, compression, reading };
        let options = TaskOptions { outside_bytes: LOOK_BYTES, ..TaskOptions::default() };
        futures.get_value(&futures.submit_with(describe, &params, &[], options)?).await
    }

    /// All splits in their order, whose places in this list count those before them: the file of each, and its number in there.
    pub(super) fn numbered_splits(&self) -> Vec<(&DescribedFile, usize)> {
        self.files.iter().flat_map(|file| (0..file.splits.len()).map(move |split| (file, split))).collect()
    }

    /// Bytes of its files.
    pub(super) fn input_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.status.bytes).sum()
    }

    /// Bytes of all its rows in memory, as far as its files say.
    pub(super) fn value_bytes(&self) -> u64 {
        self.splits().map(|split| split.value_bytes).sum()
    }

    /// How many rows there are to be read, where all files say so; which of them meet a condition nobody knows.
    pub(super) fn rows(&self) -> Option<u64> {
        if self.reading.options.filter.is_some() {
            return None;
        }
        self.splits().map(|split| split.rows).sum()
    }

    pub(super) fn splits(&self) -> impl Iterator<Item = &DescribedSplit> {
        self.files.iter().flat_map(|file| &file.splits)
    }
}
