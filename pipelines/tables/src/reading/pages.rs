//! Rows of a row group that are in pages of which one row at least may meet the condition, as the file says.

use std::ops::Range;
use std::sync::Arc;

use super::Condition;
use super::leaving_out::{Column, conformed_bounds};
use crate::sources::parquet::{PageStatistics, ParquetFile};
use crate::sources::{FolderColumns, MemoryBudget, SourceError};

/// Rows between two ranges that are read with these where there are fewer: to pass over them takes longer than to decode them.
const GAP_ROWS: u64 = 1024;

/// A column that the condition looks at.
enum Pages {
    /// The file lacks it.
    Missing,
    /// Nothing is said of its pages.
    Unknown,
    Said(PageStatistics),
}

/// The rows that are read of a row group, which has so many, in order; `None`: all.
pub(super) fn ranges(
    file: &ParquetFile,
    (group, rows): (usize, u64),
    (condition, folders): (&Condition, &FolderColumns),
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Option<Vec<Range<u64>>>, SourceError> {
    let mut pages = Vec::new();
    for field in condition.schema.fields() {
        let number = file.schema().fields().iter().position(|here| here.name() == field.name());
        let is_folder = folders.iter().any(|(folder, _)| folder.name() == field.name());
        pages.push(match number {
            // All rows of the file have one value: whether it meets the condition is known before.
            None if is_folder => Pages::Unknown,
            None => Pages::Missing,
            Some(number) => file.page_statistics(group, number, budget)?.map_or(Pages::Unknown, Pages::Said),
        });
    }
    let mut borders: Vec<u64> = pages.iter().flat_map(|pages| pages.first_rows().iter().copied()).collect();
    borders.sort_unstable();
    borders.dedup();
    if borders.len() < 2 {
        return Ok(None);
    }
    let columns: Vec<Column<'_>> = pages
        .iter()
        .enumerate()
        .map(|(number, pages)| match pages {
            Pages::Missing => Column::Missing,
            Pages::Unknown => Column::Unknown,
            Pages::Said(said) => conformed_bounds(&condition.schema, number, &said.statistics),
        })
        .collect();
    let mut kept: Vec<Range<u64>> = Vec::new();
    for (at, first) in borders.iter().enumerate() {
        let end = borders.get(at + 1).copied().unwrap_or(rows);
        let extent = |column: usize| {
            let (page, rows_of_page) = pages[column].page_of(*first, rows).unwrap_or((0, end - first));
            columns[column].extent(page, rows_of_page)
        };
        if !condition.bound.may_be_true(extent) {
            continue;
        }
        match kept.last_mut().filter(|last| first - last.end < GAP_ROWS) {
            Some(last) => last.end = end,
            None => kept.push(*first..end),
        }
    }
    let is_all = kept.first().is_some_and(|first| *first == (0..rows));
    Ok((!is_all).then_some(kept))
}

impl Pages {
    fn first_rows(&self) -> &[u64] {
        match self {
            Self::Said(said) => &said.first_rows,
            _ => &[],
        }
    }

    /// The page that has a row, and how many rows it has.
    fn page_of(&self, row: u64, rows_of_group: u64) -> Option<(usize, u64)> {
        let first_rows = self.first_rows();
        let page = first_rows.partition_point(|first| *first <= row).checked_sub(1)?;
        let end = first_rows.get(page + 1).copied().unwrap_or(rows_of_group);
        Some((page, end - first_rows[page]))
    }
}
