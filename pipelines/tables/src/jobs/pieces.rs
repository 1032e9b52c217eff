//! Rows of pieces, as tasks read them.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_files::Access;
use serde::de::DeserializeOwned;

use super::budget::{TaskBudget, of_table};
use super::row_limit::RowLimit;
use super::table::{Piece, split_and_row};
use crate::TableError;
use crate::block::Limits;
use crate::reading::{ReadRows, Reading, TableFile, TableReader, ToRead, Wanted};
use crate::sources::{MemoryDenied, Place, Reservation, SourceError};

/// Reads pieces for a task.
pub(super) struct PieceReader<'a> {
    reading: &'a Reading,
    reader: TableReader,
    access: Access,
    row_limit: RowLimit,
    /// The file of the last piece, where it is kept for the next one.
    last: Option<RefCell<Option<(PathBuf, TableFile)>>>,
    budget: &'a Arc<TaskBudget>,
}

impl<'a> PieceReader<'a> {
    /// Rows come with these columns, as far as their file has them; a larger one than this is refused.
    pub(super) fn new(
        reading: &'a Reading,
        columns: &SchemaRef,
        row_limit: RowLimit,
        budget: &'a Arc<TaskBudget>,
    ) -> Result<Self, TaskError> {
        let reader = TableReader::new(reading, columns, &budget.shared()).map_err(of_table)?;
        Ok(Self { reading, reader, access: Access::Ranges, row_limit, last: None, budget })
    }

    /// Reads through the page cache: others read the same splits.
    pub(super) fn cached(self) -> Self {
        Self { access: Access::Cached, ..self }
    }

    /// Keeps each file open until a piece of another one is read: pieces that follow each other are of the same file more often than not.
    pub(super) fn keeping(self) -> Self {
        Self { last: Some(RefCell::default()), ..self }
    }

    /// Calls `each` with the rows of a piece, batch by batch, until there are no more or those that are wanted were given: its file is the one that was listed then (law 9).
    ///
    /// # Errors
    /// Those of reading and of `each`; a row that is larger than the limit; [`TaskError::Cancelled`].
    pub(super) fn each(
        &self,
        context: &mut TaskContext<'_>,
        piece: &Piece,
        wanted: &mut Wanted,
        mut each: impl FnMut(ReadRows) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        context.check_path(&piece.file.path)?;
        self.reading.options.beside().try_for_each(|folder| context.check_path(folder))?;
        let failed = |error| self.budget.of_source(error);
        let file = self.opened(piece).map_err(failed)?;
        let before = wanted.rows;
        for rows in file.rows(piece.to_read(), wanted) {
            context.check_cancelled()?;
            let rows = rows.map_err(failed)?;
            if rows.batch.num_rows() > 0 {
                if let Some((row, bytes)) = self.row_limit.larger_row(&rows.batch) {
                    return Err(self.too_large(piece, (&rows, row), bytes));
                }
                each(rows)?;
            }
        }
        let (bytes, rows) = piece.splits().fold((0, 0), |(bytes, rows), (.., split)| {
            (bytes + u128::from(split.value_bytes), rows + u128::from(split.rows_about()))
        });
        let read = u128::from(before - wanted.rows);
        let bytes = if file.passes_over() { bytes * read / rows.max(1) } else { bytes };
        context.read_outside(bytes as u64);
        if let Some(last) = &self.last {
            last.replace(Some((piece.file.path.clone(), file)));
        }
        Ok(())
    }

    /// The file of a piece, which may still be open.
    fn opened(&self, piece: &Piece) -> Result<TableFile, SourceError> {
        let last = self.last.as_ref().and_then(RefCell::take);
        match last.filter(|(path, _)| *path == piece.file.path) {
            Some((_, file)) => Ok(file),
            None => self.open(piece),
        }
    }

    fn open(&self, piece: &Piece) -> Result<TableFile, SourceError> {
        piece.file.open(&self.reader, self.reading, self.access)
    }

    /// How large the messages are that its rows are gathered in.
    pub(super) fn limits(&self) -> Limits {
        self.row_limit.limits()
    }

    /// How a task fails over rows of a piece: with their file, which is opened once more, and the place of the row that the error is about.
    pub(super) fn refused(&self, piece: &Piece, rows: &ReadRows, error: TableError) -> TaskError {
        if let TableError::RowTooLarge { row, bytes, .. } = error {
            return self.too_large(piece, (rows, row as usize), bytes);
        }
        self.budget.of_source(self.open(piece).map_or_else(|error| error, |file| file.row_error(rows, error)))
    }

    /// How a task fails over one of these rows, which is larger than the limit.
    fn too_large(&self, piece: &Piece, (rows, row): (&ReadRows, usize), bytes: u64) -> TaskError {
        self.refused_row(piece, (rows, row), self.row_limit.refusal(bytes, (&rows.batch, row)))
    }

    /// How a task fails that has no room for one of these rows.
    pub(super) fn denied(&self, piece: &Piece, (rows, row): (&ReadRows, usize), denied: MemoryDenied) -> TaskError {
        let error =
            self.at(piece, (rows, row), |file, place| SourceError::Memory { file, place, what: "the row", denied });
        self.budget.of_source(error)
    }

    /// How a task fails over the row of this place, of which nothing is held: it is read once more.
    pub(super) fn refused_at(&self, pieces: &[Piece], place: u64, error: TableError) -> TaskError {
        match self.row_at(pieces, place) {
            Ok(Some((piece, rows))) => self.refused(piece, &rows, error.with_row(|_| 0)),
            Ok(None) => of_table(error),
            Err(error) => self.budget.of_source(error),
        }
    }

    /// How a task fails that has no room for the row of this place, of which nothing is held.
    pub(super) fn denied_at(&self, pieces: &[Piece], place: u64, denied: MemoryDenied) -> TaskError {
        match self.row_at(pieces, place) {
            Ok(Some((piece, rows))) => self.denied(piece, (&rows, 0), denied),
            Ok(None) => self.budget.of_rows(denied),
            Err(error) => self.budget.of_source(error),
        }
    }

    /// The row of this place alone, and which of the pieces it is in, which are in the order of their splits.
    fn row_at<'p>(&self, pieces: &'p [Piece], place: u64) -> Result<Option<(&'p Piece, ReadRows)>, SourceError> {
        let (split, row) = split_and_row(place);
        let piece = &pieces[pieces.partition_point(|piece| piece.before <= split) - 1];
        let within = (split - piece.before) as usize;
        let file = self.open(piece)?;
        let to_read = ToRead::whole(piece.splits.start + within, piece.file.splits[within].state);
        let found =
            file.read(to_read, row..row + 1)?.find(|rows| rows.as_ref().map_or(true, |rows| rows.batch.num_rows() > 0));
        // A file that has changed may have no such row.
        file.source().file().check()?;
        Ok(found.transpose()?.map(|rows| (piece, rows)))
    }

    /// How a task fails over what became of these rows: with the place of the first of them.
    pub(super) fn refused_batch(&self, piece: &Piece, rows: &ReadRows, what: String) -> TaskError {
        self.refused_row(piece, (rows, 0), what)
    }

    fn refused_row(&self, piece: &Piece, row: (&ReadRows, usize), what: String) -> TaskError {
        let error = self.at(piece, row, |file, place| SourceError::Row { file, place, what });
        match error {
            SourceError::Row { .. } => TaskError::request(error),
            error => self.budget.of_source(error),
        }
    }

    fn at(
        &self,
        piece: &Piece,
        (rows, row): (&ReadRows, usize),
        error: impl FnOnce(Arc<str>, Place) -> SourceError,
    ) -> SourceError {
        let place = || {
            let file = self.open(piece)?;
            Ok((file.source().file().name().clone(), file.place_of(rows, row)?))
        };
        place().map_or_else(|error| error, |(file, place)| error(file, place))
    }
}

/// What is told of files takes so many times as many bytes as encoded, about.
const DECODED: u64 = 3;

/// The value that a task has as an argument, and the memory that it takes. Lists of files go to tasks like this: what a task is told itself is a message, which has room for some hundreds of them.
pub(super) fn value_of<T: DeserializeOwned>(
    context: &TaskContext<'_>,
    argument: usize,
    budget: &Arc<TaskBudget>,
) -> Result<(T, Reservation), TaskError> {
    let block = context.block(argument);
    let memory =
        Reservation::of(&budget.shared(), DECODED * block.len() as u64).map_err(|denied| budget.of_list(denied))?;
    Ok((rmp_serde::from_slice(&block).map_err(TaskError::fatal)?, memory))
}
