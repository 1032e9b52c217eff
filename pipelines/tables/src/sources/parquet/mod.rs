//! Parquet: a footer that is looked over before it is believed, and row groups whose columns are read page by page.
//!
//! Promises:
//! - What a file says about sizes is asked for before it is taken ([`MemoryBudget`]): a footer, a page, what a page unpacks to, a batch. A page is in memory for as long as
//!   arrays point to it; a column chunk never is as a whole. A denial is an error with the bytes that were wanted.
//! - A page inflates to just what its header says, or is damaged; its CRC is checked where it has one.
//! - Damaged files are errors with row group, column and page. Without CRCs, and most writers write none, wrong values that are values go unseen, as in every reader.
//! - Splits are the row groups. Statistics are given out for leaving out what cannot match; nothing here follows from them.
//!
//! What is not read: encrypted files (also where only some columns are), data in other files, Brotli and LZO.

mod decoding;
mod delta;
mod footer;
mod inflate;
mod intervals;
mod offset_index;
mod page_header;
mod page_index;
mod pages;
mod rows;
mod statistics;
mod thrift;
mod types;

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use parquet::file::metadata::ParquetMetaData;

pub(crate) use self::decoding::LastDecoding;
pub(crate) use self::page_index::PageStatistics;
use self::rows::RowGroupRows;
pub use self::statistics::RowGroupStatistics;
use super::memory::{MemoryBudget, Reservation};
use super::{InputFile, Place, SourceBatch, SourceError, Split};

/// A file of which the footer was read.
pub struct ParquetFile {
    file: InputFile,
    metadata: ParquetMetaData,
    footer_begin: u64,
    /// How its columns are read.
    decoding: Arc<decoding::Decoding>,
    /// For the metadata.
    _memory: Reservation,
}

impl ParquetFile {
    /// Reads the footer of a file.
    ///
    /// # Errors
    /// What is wrong with the file, with its place; memory that was denied.
    pub fn open(file: InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        Self::open_after(file, &LastDecoding::default(), budget)
    }

    /// The same behind another file, which may be of the same schema.
    pub(crate) fn open_after(
        file: InputFile,
        last: &LastDecoding,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let footer::Footer { metadata, begin, memory } = footer::read(&file, budget)?;
        let decoding = last.or_made(&file, &metadata)?;
        Ok(Self { file, metadata, footer_begin: begin, decoding, _memory: memory })
    }

    /// The file.
    pub fn file(&self) -> &InputFile {
        &self.file
    }

    /// Names and plain types of its columns, and its metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.decoding.schema
    }

    /// What the footer says, as the library has it: nobody vouches for it.
    pub fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    /// A split for each row group.
    ///
    /// # Errors
    /// [`SourceError::Damaged`]: a row group has fewer than no rows or bytes.
    pub fn splits(&self) -> Result<Vec<Split>, SourceError> {
        let groups = 0..self.metadata.num_row_groups();
        groups
            .map(|index| {
                let rows = self.rows_of(index)?;
                let mut columns = self.metadata.row_group(index).columns().iter();
                let bytes =
                    columns.try_fold(0_u64, |sum, column| sum.checked_add(column.compressed_size().try_into().ok()?));
                let bytes = bytes
                    .ok_or_else(|| self.damaged(index, "it has fewer than no bytes, or more than any file has"))?;
                Ok(Split { index, bytes, rows: Some(rows) })
            })
            .collect()
    }

    fn rows_of(&self, group: usize) -> Result<u64, SourceError> {
        u64::try_from(self.metadata.row_group(group).num_rows())
            .map_err(|_| self.damaged(group, "it has fewer than no rows"))
    }

    fn damaged(&self, group: usize, what: &str) -> SourceError {
        SourceError::Damaged { file: self.file.name().clone(), place: Place::Group(group, None), what: what.to_owned() }
    }

    /// The rows of a split: those columns of [`schema`](Self::schema), in that order; all of them where none are said. Bounded batches, in the order of the file.
    ///
    /// # Errors
    /// Those of reading; each batch may be one, and is the last one then.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(
        self: &Arc<Self>,
        split: usize,
        columns: Option<&[usize]>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<impl Iterator<Item = Result<SourceBatch, SourceError>> + Send + use<>, SourceError> {
        let all: Vec<usize> = (0..self.decoding.schema.fields().len()).collect();
        RowGroupRows::new(self, split, (columns.unwrap_or(&all), None), budget)
    }

    /// As [`read`](Self::read), of those rows alone: ranges in order, of which no two have a row and no batch has rows of two, none beyond the row group. Pages without one of them are passed over, and not even looked for where the file says where pages are.
    pub(crate) fn read_ranges(
        self: &Arc<Self>,
        split: usize,
        columns: &[usize],
        ranges: &[Range<u64>],
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<impl Iterator<Item = Result<SourceBatch, SourceError>> + Send + use<>, SourceError> {
        RowGroupRows::new(self, split, (columns, Some(ranges)), budget)
    }
}

#[cfg(test)]
mod range_tests;
#[cfg(test)]
mod tests;
