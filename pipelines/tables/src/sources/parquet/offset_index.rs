//! Where the pages of a column lie in a row group, as its offset index says: whoever wants some rows goes to their pages and reads nothing of others.
//!
//! Rows and places that are out of line (rows that do not rise, pages that are not one behind the other from the first byte of data to the last) are not believed, and pages are found one behind the other then.
//! That a page has the rows which the index says is seen when it is read; of pages that nobody reads it is believed. So whoever reads all rows, some of them after others, reads each once, or is told of a lie.

use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::ColumnChunkMetaData;

use super::super::memory::{MemoryBudget, MemoryDenied, Reservation};
use super::super::{Place, SourceError};
use super::ParquetFile;
use super::thrift::{Cursor, DEPTH_MAX, ThriftType, Wrong};

/// Most bytes of an index that is read.
const INDEX_MAX: u64 = 16 << 20;
/// Bytes of an index that a page takes at least: three fields and an end.
const PAGE_BYTES_MIN: usize = 7;
/// Memory for each byte of an index: a page of [`PAGE_BYTES_MIN`], and the bytes themselves.
const MEMORY_FACTOR: u64 = 1 + ((size_of::<IndexedPage>() + size_of::<u64>()) as u64).div_ceil(PAGE_BYTES_MIN as u64);
/// Bytes between two pages that are read with these where there are fewer: to ask for the next page alone takes longer.
const GAP_BYTES: u64 = 32 << 10;

/// A page of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexedPage {
    /// Where its header begins in the file.
    pub(super) begin: u64,
    /// Bytes of its header and of what is behind it.
    pub(super) bytes: u64,
    /// Its first row, of those of the row group.
    pub(super) first_row: u64,
}

impl IndexedPage {
    fn end(&self) -> u64 {
        self.begin.saturating_add(self.bytes)
    }
}

/// The pages of a column in a row group; the rows of the first are the first, those of each follow those of the one before.
pub(super) struct OffsetIndex {
    pub(super) pages: Vec<IndexedPage>,
    memory: Reservation,
}

impl OffsetIndex {
    /// The first row of each page, and the memory that is reserved for them.
    pub(super) fn into_first_rows(self) -> (Vec<u64>, Reservation) {
        (self.first_rows().collect(), self.memory)
    }

    pub(super) fn first_rows(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|page| page.first_row)
    }
}

impl ParquetFile {
    /// Where the pages of a column of the file are in a row group; `None`: the file does not say it, or it is not believed.
    ///
    /// # Errors
    /// Memory that was denied; what the disk says.
    pub(super) fn offset_index(
        &self,
        group: usize,
        leaf: usize,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Option<OffsetIndex>, SourceError> {
        let chunk = self.metadata.row_group(group).column(leaf);
        let Some((at, bytes)) = self.index_range(chunk.offset_index_offset(), chunk.offset_index_length()) else {
            return Ok(None);
        };
        let memory = Reservation::of(budget, MEMORY_FACTOR * bytes);
        let memory = memory.map_err(|denied| self.pages_denied(group, chunk, denied))?;
        let mut index = vec![0; bytes as usize];
        self.file.read_at(at, &mut index)?;
        Ok(read_pages(&index, self.rows_of(group)?).ok().map(|pages| OffsetIndex { pages, memory }))
    }

    /// Where an index lies, and its bytes.
    pub(super) fn index_range(&self, offset: Option<i64>, length: Option<i32>) -> Option<(u64, u64)> {
        let (at, bytes) = (u64::try_from(offset?).ok()?, u64::try_from(length?).ok()?);
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.footer_begin);
        (is_within && bytes > 0 && bytes <= INDEX_MAX).then_some((at, bytes))
    }

    pub(super) fn pages_denied(&self, group: usize, chunk: &ColumnChunkMetaData, denied: MemoryDenied) -> SourceError {
        let place = Place::Group(group, Some(chunk.column_path().string().into()));
        SourceError::Memory { file: self.file.name().clone(), place, what: "what it says of its pages", denied }
    }
}

/// Pages whose first rows rise from 0 on and are below the number of rows.
fn read_pages(offset_index: &[u8], rows: u64) -> Result<Vec<IndexedPage>, Wrong> {
    const LIST: Wrong = Wrong::Malformed("a list of other things");
    let mut cursor = Cursor::new(offset_index);
    let (mut pages, mut last, mut structs) = (Vec::new(), 0, 0);
    while let Some((number, kind)) = cursor.field(last)? {
        match (number, kind) {
            (1, ThriftType::List) => {
                let (count, of) = cursor.list()?;
                if of != ThriftType::Struct || !pages.is_empty() {
                    return Err(LIST);
                }
                pages.reserve_exact(offset_index.len().div_ceil(PAGE_BYTES_MIN).min(count));
                for _ in 0..count {
                    pages.push(read_page(&mut cursor)?);
                }
            }
            _ => cursor.skip(kind, DEPTH_MAX, &mut structs)?,
        }
        last = number;
    }
    let is_right = pages.first().is_some_and(|page| page.first_row == 0)
        && pages.is_sorted_by(|one, other| one.first_row < other.first_row)
        && pages.last().is_some_and(|last| last.first_row < rows);
    if is_right { Ok(pages) } else { Err(Wrong::Malformed("rows that do not rise")) }
}

fn read_page(cursor: &mut Cursor<'_>) -> Result<IndexedPage, Wrong> {
    let (mut begin, mut bytes, mut first_row) = (None, None, None);
    let (mut last, mut structs) = (0, 0);
    while let Some((number, kind)) = cursor.field(last)? {
        match (number, kind) {
            (1, ThriftType::I64) => begin = u64::try_from(cursor.number()?).ok(),
            (2, ThriftType::I32) => bytes = u64::try_from(cursor.int()?).ok(),
            (3, ThriftType::I64) => first_row = u64::try_from(cursor.number()?).ok(),
            _ => cursor.skip(kind, DEPTH_MAX, &mut structs)?,
        }
        last = number;
    }
    let missing = Wrong::Malformed("a page without its place or its first row");
    let (begin, bytes) = (begin.ok_or(missing)?, bytes.ok_or(missing)?);
    Ok(IndexedPage { begin, bytes, first_row: first_row.ok_or(missing)? })
}

/// The pages of a column of which some rows are read.
pub(super) struct WantedPages {
    pages: Vec<IndexedPage>,
    /// Of each page, where what is read in one go with it ends.
    ends: Vec<u64>,
    rows: u64,
    _memory: Reservation,
}

impl WantedPages {
    /// Of a column whose data are these bytes of a file, in a row group of so many rows. `wanted`: ranges of rows, in order. `None`: the pages are not one behind the other from the first of these bytes to the last,
    /// so that one of them may be left out.
    pub(super) fn new(index: OffsetIndex, data: Range<u64>, rows: u64, wanted: &[Range<u64>]) -> Option<Self> {
        let OffsetIndex { pages, memory } = index;
        let follow = pages.is_sorted_by(|one, other| one.end() == other.begin);
        let are_all = pages.first()?.begin == data.start && pages.last()?.end() == data.end;
        if !follow || !are_all || pages.iter().any(|page| page.bytes == 0) {
            return None;
        }
        let mut ends: Vec<u64> = pages.iter().map(IndexedPage::end).collect();
        // The next page that is wanted, where it begins and where what is read with it ends.
        let mut next: Option<(u64, u64)> = None;
        let mut after = rows;
        let mut wanted = wanted.iter().rev().peekable();
        for (page, end) in pages.iter().zip(&mut ends).rev() {
            while wanted.next_if(|rows| rows.start >= after).is_some() {}
            if wanted.peek().is_some_and(|rows| rows.end > page.first_row) {
                if let Some((_, end_of_next)) = next.filter(|(begin, _)| begin - *end <= GAP_BYTES) {
                    *end = end_of_next;
                }
                next = Some((page.begin, *end));
            }
            after = page.first_row;
        }
        Some(Self { pages, ends, rows, _memory: memory })
    }

    /// A page of data by its number; `None`: there are no more.
    pub(super) fn page(&self, number: usize) -> Option<IndexedPage> {
        self.pages.get(number).copied()
    }

    /// Where the first page of data begins.
    pub(super) fn begin(&self) -> u64 {
        self.pages[0].begin
    }

    /// Where what is read in one go with a page ends.
    pub(super) fn read_until(&self, number: usize) -> u64 {
        self.ends[number]
    }

    /// How many rows a page has.
    pub(super) fn rows_of(&self, number: usize) -> u64 {
        let end = self.pages.get(number + 1).map_or(self.rows, |next| next.first_row);
        end - self.pages[number].first_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::FixedBudget;

    /// Pages of ten rows and of so many bytes, the first of them at 100.
    fn index(bytes: &[u64]) -> OffsetIndex {
        let mut begin = 100;
        let page = |(number, bytes): (u64, &u64)| {
            let page = IndexedPage { begin, bytes: *bytes, first_row: 10 * number };
            begin += bytes;
            page
        };
        let pages = (0..).zip(bytes).map(page).collect();
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(0));
        OffsetIndex { pages, memory: Reservation::none(&budget) }
    }

    #[test]
    fn pages_are_read_together_up_to_the_last_one_that_is_wanted_near_by() {
        let large = GAP_BYTES + 1;
        let bytes = [50, large, 60, GAP_BYTES, 70, 80];
        let end_of = |number: usize| 100 + bytes[..=number].iter().sum::<u64>();
        let all = 100..end_of(5);
        let wanted = WantedPages::new(index(&bytes), all.clone(), 55, &[5..6, 20..31, 49..50]).unwrap();
        // Between the first and the third is more than is read for nothing; the fourth is wanted, for one row.
        assert_eq!(wanted.read_until(0), end_of(0));
        assert_eq!([2, 3, 4].map(|number| wanted.read_until(number)), [end_of(4); 3]);
        assert_eq!((wanted.rows_of(0), wanted.rows_of(5)), (10, 5));
        // The fourth is as large as what is read for nothing at most.
        let wanted = WantedPages::new(index(&bytes), all, 55, &[20..30, 40..41]).unwrap();
        assert_eq!(wanted.read_until(2), end_of(4));
    }

    #[test]
    fn pages_that_leave_out_bytes_of_the_column_or_are_beyond_it_are_not_believed() {
        let rows = std::slice::from_ref(&(0..20));
        let within = |pages: OffsetIndex, column: Range<u64>| WantedPages::new(pages, column, 20, rows).is_some();
        assert!(within(index(&[5, 6]), 100..111));
        for column in [99..111, 101..111, 100..110, 100..112] {
            assert!(!within(index(&[5, 6]), column));
        }
        assert!(!within(index(&[0, 11]), 100..111) && !within(index(&[]), 100..100));
        for begin in [104, 106] {
            let mut moved = index(&[5, 6]);
            moved.pages[1] = IndexedPage { begin, bytes: 111 - begin, ..moved.pages[1] };
            assert!(!within(moved, 100..111), "a gap, or bytes of two pages");
        }
        let mut endless = index(&[5, 6]);
        endless.pages[0].bytes = u64::MAX;
        assert!(!within(endless, 100..111));
    }
}
