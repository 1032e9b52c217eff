//! What all tasks of a job know of its table.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use exobus_actors::registry::{TaskContext, TaskError};
use serde::{Deserialize, Serialize};

use super::budget::of_table;
use super::described::{DescribedFile, DescribedSplit};
use crate::block::Layout;
use crate::reading::ToRead;
use crate::semantics::conformed;
use crate::{RowHasher, TableError};

/// The column of places, which rows have on their way: no table may have one of this name.
const PLACE: &str = "exobus.place";
/// The same of the second table of a job.
const RIGHT_PLACE: &str = "exobus.right_place";

/// A table, by the layout that tasks have as their first argument.
pub(super) struct Table {
    /// Of its rows on their way: the columns of the table, and that of places behind them.
    pub(super) layout: Arc<Layout>,
    /// Of its rows.
    pub(super) schema: SchemaRef,
    pub(super) hasher: RowHasher,
}

impl Table {
    /// Of the first argument of a task.
    pub(super) fn of(context: &TaskContext<'_>) -> Result<Self, TaskError> {
        Self::decode(&context.block(0))
    }

    /// Of an encoded layout.
    pub(super) fn decode(layout: &[u8]) -> Result<Self, TaskError> {
        let layout = Arc::new(Layout::decode(layout).map_err(of_table)?);
        let all = layout.schema();
        let fields = all.fields().iter().take(all.fields().len() - 1).cloned().collect::<Vec<_>>();
        let schema = Arc::new(Schema::new_with_metadata(fields, all.metadata().clone()));
        Ok(Self { hasher: RowHasher::new(&schema).map_err(of_table)?, schema, layout })
    }

    /// The layout of its rows without their places, as they are written to files.
    pub(super) fn values_layout(&self) -> Result<Arc<Layout>, TaskError> {
        Layout::new(&self.schema).map(Arc::new).map_err(of_table)
    }

    /// A batch of rows on their way without their places.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<RecordBatch, TaskError> {
        let columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        batch.project(&columns).map_err(TaskError::fatal)
    }

    /// A batch of the table with the places of its rows, the first of which has this one.
    pub(super) fn placed(&self, batch: &RecordBatch, first: u64) -> Result<RecordBatch, TableError> {
        let batch = conformed(batch, &self.schema)?;
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let mut fields = batch.schema_ref().fields().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter_values(first..first + batch.num_rows() as u64)));
        fields.extend(self.layout.schema().fields().last().cloned());
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }
}

/// The schema with the column of places behind the others.
pub(super) fn with_places(schema: &Schema) -> Result<Schema, TaskError> {
    with_column(schema, PLACE)
}

/// The same for the second table of a job: rows of both go together, and are told apart by the names of columns.
pub(super) fn with_right_places(schema: &Schema) -> Result<Schema, TaskError> {
    with_column(schema, RIGHT_PLACE)
}

fn with_column(schema: &Schema, name: &str) -> Result<Schema, TaskError> {
    if schema.column_with_name(name).is_some() {
        return Err(TaskError::request(format!(
            "the table has a column {name}, a name that exobus uses itself: rename it"
        )));
    }
    let place = Field::new(name, DataType::UInt64, false);
    let fields = schema.fields().iter().cloned().chain([Arc::new(place)]);
    Ok(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The place of the first row of a split before which there are so many: rows of a table are in the order of their places.
pub(super) fn first_place(splits_before: u32) -> u64 {
    u64::from(splits_before) << 32
}

/// Behind how many splits a place is, and of which row of the next one.
pub(super) fn split_and_row(place: u64) -> (u32, u64) {
    ((place >> 32) as u32, place & u64::from(u32::MAX))
}

/// Splits of a file that follow each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    /// The file, with these splits alone: what a task is told is no larger than what it reads.
    pub(super) file: DescribedFile,
    /// Which of the file's they are.
    pub(super) splits: Range<usize>,
    /// How many splits there are before them in all files.
    pub(super) before: u32,
    /// Of its only split, the numbers of the rows that are read, in order; none: all rows of all splits are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<Range<u64>>,
}

impl Piece {
    /// A split of a file, behind so many.
    pub(super) fn new(file: &DescribedFile, split: usize, before: u32) -> Self {
        let splits = vec![file.splits[split]];
        let file = DescribedFile {
            path: file.path.clone(),
            status: file.status,
            below: file.below,
            splits,
            runs: Vec::new(),
            extents: Vec::new(),
        };
        Self { file, splits: split..split + 1, before, runs: Vec::new() }
    }

    /// Its splits, as files are read.
    pub(super) fn to_read(&self) -> impl Iterator<Item = ToRead> {
        self.splits().map(|(split, _, described)| ToRead { split, state: described.state, runs: self.runs.clone() })
    }

    /// The place of the first row of a split of that number in the file, which is one of them.
    pub(super) fn first_place(&self, split: usize) -> u64 {
        first_place(self.before + (split - self.splits.start) as u32)
    }

    /// Its splits that are read: the number of each in the file, the place of its first row, and what is known of it.
    pub(super) fn splits(&self) -> impl Iterator<Item = (usize, u64, &DescribedSplit)> {
        let numbered = self.splits.clone().zip(self.before..).zip(&self.file.splits);
        numbered
            .filter(|(_, described)| !described.is_left_out)
            .map(|((split, before), described)| (split, first_place(before), described))
    }
}

/// Adds a split to those that were taken before it, as a part of the last piece where it follows that.
pub(super) fn push_split(pieces: &mut Vec<Piece>, file: &DescribedFile, split: usize, before: u32) {
    let continues =
        |piece: &&mut Piece| piece.file.path == file.path && piece.splits.end == split && piece.runs.is_empty();
    match pieces.last_mut().filter(continues) {
        Some(piece) => {
            piece.splits.end += 1;
            piece.file.splits.push(file.splits[split]);
        }
        None => pieces.push(Piece::new(file, split, before)),
    }
}
