//! Splits that no row can match, told by what footers say: they are not read.
//!
//! They keep their numbers, so the places of all other rows are what they are without this; what footers say follows from the input, so the files do (law 9).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, Schema};

use super::ReadOptions;
use crate::expression::{Bound, Extent};
use crate::semantics::conformed;
use crate::sources::parquet::RowGroupStatistics;
use crate::sources::{FolderColumns, InputFile, MemoryBudget, MemoryDenied, Reservation, Source, folder_statistics};

/// What the footer of a file says of the columns that a condition looks at.
pub(crate) struct FileStatistics {
    /// By name; `None`: nothing is said, by text and files of Arrow.
    columns: Option<Vec<(String, RowGroupStatistics)>>,
    /// Whether a column is there that has others inside, or of which nothing can be said.
    unknown: Vec<String>,
    /// What the folders of the file are.
    folders: FolderColumns,
    _memory: Reservation,
}

impl FileStatistics {
    /// Of a file that is open.
    pub(crate) fn of(
        source: &Source,
        reading: &ReadOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, MemoryDenied> {
        let (mut columns, mut unknown) = (Vec::new(), Vec::new());
        let mut memory = Reservation::none(budget);
        let (Some(filter), Source::Parquet(file)) = (&reading.filter, source) else {
            return Ok(Self::of_folders(source.file(), reading, budget));
        };
        let looked_at = filter.columns();
        for (number, field) in file.schema().fields().iter().enumerate() {
            if !looked_at.contains(&field.name().as_str()) {
                continue;
            }
            match file.statistics(number) {
                None => unknown.push(field.name().clone()),
                Some(said) => {
                    let bytes = said.least.get_array_memory_size() + said.greatest.get_array_memory_size();
                    let bytes = memory.bytes() + bytes as u64 + said.nulls.get_array_memory_size() as u64;
                    memory.resize(bytes)?;
                    columns.push((field.name().clone(), said));
                }
            }
        }
        Ok(Self {
            columns: Some(columns),
            unknown,
            _memory: memory,
            ..Self::of_folders(source.file(), reading, budget)
        })
    }

    /// Of a file of which nothing is known but its folders. What is wrong with these whoever reads the file finds.
    pub(crate) fn of_folders(file: &InputFile, reading: &ReadOptions, budget: &Arc<dyn MemoryBudget>) -> Self {
        let folders = reading.folder_types().and_then(|types| file.folder_columns(&types)).unwrap_or_default();
        Self { columns: None, unknown: Vec::new(), folders, _memory: Reservation::none(budget) }
    }
}

/// Bounds of a column in the row groups of a file, as the table has it.
pub(super) enum Column<'a> {
    /// The file lacks it: all values are null.
    Missing,
    Unknown,
    Said(ArrayRef, ArrayRef, &'a RowGroupStatistics),
}

impl Column<'_> {
    /// In the row group, or the page, of that number, which has so many rows.
    pub(super) fn extent(&self, number: usize, rows: u64) -> Option<Extent<'_>> {
        match self {
            Self::Unknown => None,
            Self::Missing => Some(Extent { rows, nulls: Some(rows), bounds: None }),
            Self::Said(least, greatest, said) => {
                let nulls = said.nulls.is_valid(number).then(|| said.nulls.value(number));
                Some(Extent { rows, nulls, bounds: Some((least, greatest, number)) })
            }
        }
    }
}

impl FileStatistics {
    /// Of each split, which has so many rows, whether no row of it can meet the condition, which is bound to the schema of the table.
    pub(crate) fn left_out(&self, bound: &Bound, table: &Schema, rows: &[Option<u64>]) -> Vec<bool> {
        if self.columns.is_none() && self.folders.is_empty() {
            return vec![false; rows.len()];
        }
        let of_folder = |(field, value): &(FieldRef, ArrayRef)| {
            folder_statistics(value, rows).ok().map(|said| (field.name().clone(), said))
        };
        let folders: Vec<(String, RowGroupStatistics)> = self.folders.iter().filter_map(of_folder).collect();
        let column = |number: usize| {
            let name = table.field(number).name();
            match self.columns.iter().flatten().chain(&folders).find(|(of, _)| of == name) {
                Some((_, said)) => conformed_bounds(table, number, said),
                None if self.columns.is_none() || self.unknown.contains(name) => Column::Unknown,
                None => Column::Missing,
            }
        };
        let of_table: Vec<(usize, Column<'_>)> = bound.columns().into_iter().map(|at| (at, column(at))).collect();
        let is_left_out = |(split, rows): (usize, &Option<u64>)| {
            // Where nobody says how many rows there are, something is known of folders alone.
            let rows = rows.unwrap_or(1);
            let extent = |number: usize| of_table.iter().find(|(at, _)| *at == number)?.1.extent(split, rows);
            !bound.may_be_true(extent)
        };
        rows.iter().enumerate().map(is_left_out).collect()
    }
}

/// Bounds as values of the type that the table has; nothing where one of them is none.
pub(super) fn conformed_bounds<'a>(table: &Schema, number: usize, said: &'a RowGroupStatistics) -> Column<'a> {
    let of = |array: &ArrayRef| {
        let field = table.field(number).clone().with_nullable(true);
        let batch = RecordBatch::try_from_iter_with_nullable([(field.name(), array.clone(), true)]).ok()?;
        let conformed = conformed(&batch, &Schema::new(vec![field])).ok()?;
        Some(conformed.column(0).clone())
    };
    match (of(&said.least), of(&said.greatest)) {
        (Some(least), Some(greatest)) => Column::Said(least, greatest, said),
        _ => Column::Unknown,
    }
}
