//! Rows of a file, its splits one behind the other.

use std::borrow::BorrowMut;
use std::ops::Range;

use super::rows::{ReadRows, TableFile, TableRows, ToRead};
use crate::sources::SourceError;

/// All rows of a split that are to be read.
pub(crate) const ALL_ROWS: Range<u64> = 0..u64::MAX;

/// Which rows are wanted of splits that are read one behind the other, of those that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How many of the first split are passed over: no more than it has.
    pub(crate) skip: u64,
    /// How many are given behind them, at most.
    pub(crate) rows: u64,
}

impl Wanted {
    pub(crate) const ALL: Self = Self { skip: 0, rows: u64::MAX };
}

/// Rows of a file, batch by batch. Whether it is the file that was listed is seen when there are no more, and where reading fails: whoever reads to the end has read one file (law 9).
pub(crate) struct FileRows<'a, S, W> {
    file: &'a TableFile,
    splits: S,
    wanted: W,
    rows: Option<TableRows<'a>>,
    is_over: bool,
}

impl TableFile {
    /// Rows of these splits. What `wanted` says afterwards is what is wanted of splits behind them.
    pub(crate) fn rows<'a, S: Iterator<Item = ToRead>>(
        &'a self,
        splits: S,
        wanted: &'a mut Wanted,
    ) -> FileRows<'a, S, &'a mut Wanted> {
        FileRows { file: self, splits, wanted, rows: None, is_over: false }
    }

    /// All rows, but those of splits of which this is true.
    ///
    /// # Errors
    /// Those of a look at all of a text, for how its splits begin.
    pub(crate) fn all_rows(
        &self,
        left_out: &[bool],
    ) -> Result<FileRows<'_, impl Iterator<Item = ToRead>, Wanted>, SourceError> {
        let states = self.states()?;
        let splits = left_out.iter().enumerate().filter(|(_, is_left_out)| !**is_left_out);
        let splits: Vec<ToRead> = splits.map(|(split, _)| ToRead::whole(split, states.get(split).copied())).collect();
        Ok(FileRows { file: self, splits: splits.into_iter(), wanted: Wanted::ALL, rows: None, is_over: false })
    }
}

impl<S: Iterator<Item = ToRead>, W: BorrowMut<Wanted>> FileRows<'_, S, W> {
    fn read(&mut self) -> Result<Option<ReadRows>, SourceError> {
        let wanted = self.wanted.borrow_mut();
        loop {
            if let Some(rows) = self.rows.as_mut().and_then(Iterator::next) {
                let rows = rows?;
                wanted.rows -= rows.batch.num_rows() as u64;
                return Ok(Some(rows));
            }
            if self.rows.take().is_some() {
                wanted.skip = 0;
            }
            if wanted.rows == 0 {
                return Ok(None);
            }
            let Some(split) = self.splits.next() else { return Ok(None) };
            let Wanted { skip, rows } = *wanted;
            self.rows = Some(self.file.read(split, skip..skip.saturating_add(rows))?);
        }
    }
}

impl<S: Iterator<Item = ToRead>, W: BorrowMut<Wanted>> Iterator for FileRows<'_, S, W> {
    type Item = Result<ReadRows, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose();
        if matches!(read, Some(Ok(_))) {
            return read;
        }
        self.is_over = true;
        // What is wrong with a file that has changed is that.
        self.file.source().file().check().err().map(Err).or(read)
    }
}
