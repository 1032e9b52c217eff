//! Which files a table has, of what schema, and how they are cut.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_files::{Access, FileStatus, Location};
use exobus_shuffle::jobs::values::write_value;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::budget::TaskBudget;
use super::describe::{Asked, Blocks, FileList, block_bytes, check_location, write_files, written};
use super::output::WriteOptions;
use super::rewrite::Folders;
use crate::reading::{ReadOptions, Reading, TableFile, TableReader};
use crate::semantics::KeyColumn;
use crate::sinks::FileForm;
use crate::sources::text::TextState;
use crate::sources::{InputFile, InputFormat, NamedTypes, SourceError, print_schema};

/// What a task that looks at footers is granted to begin with, bytes.
pub(super) const LOOK_BYTES: u64 = 4 << 20;
/// Bytes of a row, where nobody says how many rows there are.
const UNKNOWN_ROW_BYTES: u64 = 50;
/// What a row takes while it is put in order: its key, where it is, its place and its hash.
pub(super) const ROW_BYTES: u64 = 112;

/// What a split takes of a task beside its rows and the path of its file: what is told of it, encoded and decoded, and the row that it has at least.
const TOLD_BYTES: u64 = 640;
/// A path is there so many times: encoded, and as bytes are counted that are decoded.
const PATHS: u64 = 4;

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
    /// What files will be written as, as far as it is said.
    pub(super) writing: WriteOptions,
    /// Whether a function makes other rows of these: they need not be such as the format has.
    pub(super) is_mapped: bool,
    /// Where columns are to be folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) folders: Option<Folders>,
    pub(super) reading: ReadOptions,
    /// How many files are looked at by one task.
    pub(super) chunk_files: usize,
    /// As [`Asked::blocks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<Blocks>,
}

/// A table as it was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Described {
    /// The [`Layout`](crate::block::Layout) of its rows on their way, encoded: columns of all files, as the format has them that is written, and that of places.
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
    /// How many of the folders at the end of its path may be columns.
    #[serde(default)]
    pub(super) below: usize,
    pub(super) splits: Vec<DescribedSplit>,
    /// Of each split the numbers of the rows with which runs of it begin, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<Vec<u64>>,
    /// Of each column of which that was asked, between which numbers its values are; `None`: nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) extents: Vec<Option<(f64, f64)>>,
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

    /// So many of its rows.
    pub(super) fn part(&self, rows: u64) -> Self {
        let value_bytes = u128::from(self.value_bytes) * u128::from(rows) / u128::from(self.rows_about().max(1));
        Self { value_bytes: value_bytes as u64, rows: Some(rows), ..*self }
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

/// What was looked at for a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Looked {
    /// All of its files.
    Whole(Described),
    /// A list of its files, which has so many chunks: the parts behind this one.
    Listed {
        /// How many parts there are.
        chunks: u32,
        /// What is asked of the table.
        asked: Asked,
    },
}

/// Lists all files, and refuses what cannot be one table; looks at their footers, unless they are more than one chunk of files. What it makes has [`Looked`] as its first part.
#[task(name = "table.describe", version = 2)]
pub(super) fn describe(context: &mut TaskContext<'_>, params: DescribeParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let mut list = FileList::new(&budget.shared());
    let check = |location: &Location| check_location(context, location);
    let mut push = |location: &Location, status, below| {
        list.push(location, status, below).map_err(|denied| budget.of_list(denied))?;
        context.check_cancelled()
    };
    let inputs = (&params.inputs[..], params.partial);
    match params.reading.reads_folders() {
        true => exobus_files::visit_table_files(inputs, check, push)?,
        false => exobus_files::visit_files(inputs, check, |location, status| push(location, status, 0))?,
    }
    let folders = list.files.iter().map(|file| (file.path.as_path(), file.below));
    let reading = params.reading.with_folders(folders).map_err(|error| budget.of_source(error))?;
    let formats = reading.formats(list.files.iter().map(|file| Location::from(&file.path)));
    let first = formats.map_err(|error| budget.of_source(error))?;
    let form = params.writing.form(first)?;
    let types = types_of_text(&list.files, &reading, &budget)?;
    let schema = (!types.is_empty()).then(|| print_schema(types.iter().map(|(name, of)| (name.as_str(), of))));
    // Types were inferred before: they are those that a batch has, too.
    let split_bytes =
        params.blocks.as_ref().map(|_| bytes_to_cut(&list.files, &reading).map(block_bytes)).transpose()?;
    let reading = ReadOptions { schema, split_bytes, ..reading };
    let first = list.files.first().map_or(String::new(), |file| file.path.display().to_string());
    let DescribeParams { key, is_mapped, folders, blocks, .. } = params;
    let asked = Asked { reading, first, key, form, is_mapped, folders, blocks };
    if list.files.len() > params.chunk_files {
        let mut chunks = list.files.chunks(params.chunk_files);
        write_value(context, 0, &Looked::Listed { chunks: chunks.len() as u32, asked })?;
        return chunks.try_for_each(|chunk| write_files(context, 0, chunk, &budget));
    }
    let described = asked.whole(context, &mut list, &budget)?;
    let _written = written(&described.files, &budget.shared()).map_err(|denied| budget.of_list(denied))?;
    context.return_value(&Looked::Whole(described))
}

/// Types of the columns of text of all files.
fn types_of_text(
    listed: &[DescribedFile],
    reading: &ReadOptions,
    budget: &Arc<TaskBudget>,
) -> Result<NamedTypes, TaskError> {
    let mut text = Vec::new();
    for DescribedFile { path, status, .. } in listed {
        let location = Location::from(path);
        let format = reading.format(&location).map_err(TaskError::request)?;
        if format.is_text() {
            text.push((move || InputFile::listed(&location, *status), format));
        }
    }
    reading.types_of_text(&text, &budget.shared()).map_err(|error| budget.of_source(error))
}

/// Bytes of the files that are cut by bytes.
fn bytes_to_cut(listed: &[DescribedFile], reading: &ReadOptions) -> Result<u64, TaskError> {
    let of_file = |file: &DescribedFile| {
        let format = reading.format(&Location::from(&file.path)).map_err(TaskError::request)?;
        Ok(if format.is_text() || format == InputFormat::Arrow { file.status.bytes } else { 0 })
    };
    listed.iter().map(of_file).sum()
}

impl DescribedFile {
    /// What a task that is told of one of its splits takes for that, however few rows it has.
    pub(super) fn told_bytes(&self) -> u64 {
        TOLD_BYTES + PATHS * self.path.as_os_str().len() as u64
    }

    /// How many rows each of its splits has, where the file says so.
    pub(super) fn rows(&self) -> Vec<Option<u64>> {
        self.splits.iter().map(|split| split.rows).collect()
    }

    /// The runs of a split, by the numbers of their rows; none: it is not cut.
    pub(super) fn runs(&self, split: usize) -> Vec<Range<u64>> {
        let (Some(begins), Some(rows)) = (self.runs.get(split), self.splits[split].rows) else { return Vec::new() };
        let ends = begins.iter().skip(1).copied().chain([rows]);
        if begins.len() < 2 {
            Vec::new()
        } else {
            begins.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
        }
    }

    /// Leaves out those of its splits of which this is true.
    pub(super) fn leave_out(&mut self, splits: &[bool]) {
        for (split, _) in self.splits.iter_mut().zip(splits).filter(|(_, is_left_out)| **is_left_out) {
            (split.is_left_out, split.value_bytes, split.rows) = (true, 0, Some(0));
        }
    }

    /// The file, as it was listed, and its format.
    pub(super) fn input(&self, reading: &ReadOptions, access: Access) -> Result<(InputFile, InputFormat), SourceError> {
        let location = Location::from(&self.path);
        let of_format = |what| SourceError::Names { file: location.to_string().into(), what };
        let format = reading.format(&location).map_err(of_format)?;
        Ok((InputFile::new(location.open(access)?, self.status)?.below(self.below), format))
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
        if self.reading.options.leaves_out() {
            return None;
        }
        self.splits().map(|split| split.rows).sum()
    }

    /// Of each column of which that was asked, between which numbers its values are in all files.
    pub(super) fn extents(&self) -> Vec<Option<(f64, f64)>> {
        let mut files = self.files.iter().map(|file| &file.extents);
        let mut all = files.next().cloned().unwrap_or_default();
        for of_file in files {
            for (here, there) in all.iter_mut().zip(of_file) {
                *here = here.zip(*there).map(|(here, there)| (here.0.min(there.0), here.1.max(there.1)));
            }
        }
        all
    }

    pub(super) fn splits(&self) -> impl Iterator<Item = &DescribedSplit> {
        self.files.iter().flat_map(|file| &file.splits)
    }
}
