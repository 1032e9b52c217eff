//! Taking rows from batches and writing them as messages, without a batch in between.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::MutableBuffer;
use arrow_schema::FieldRef;

use super::column::Column;
use super::fill::Body;
use super::layout::Layout;
use super::measure::{Measure, Refused};
use super::picks::{Pick, SOURCES_MAX, Span};
use super::read::gathered;
use super::{BYTES_MAX, ROWS_MAX};
use crate::TableError;
use crate::semantics::check_schema;

/// Rows of which a first message is measured: few, since nobody knows yet how many elements a row has.
const ROWS_GUESSED: usize = 256;
/// So many times more rows are measured than were, at most: what is noted while a message is measured and written is bounded by some times what is in it.
const GROWTH: usize = 8;
/// Of the elements of a nested column takes what is noted so many times the bytes of a message at most.
const NOTED: u64 = 4;
/// Rows are no longer measured when they take so many times what a message may.
const STOP: usize = 4;

/// How large messages may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows of a message; default [`ROWS_MAX`]. At least one is written.
    pub rows_max: usize,
    /// Most bytes of a message with more than one row; default [`BYTES_MAX`].
    pub bytes_max: u64,
    /// Most bytes of a message with one row: a larger row is refused. Default: as many as fit an `i32`.
    pub row_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows_max: ROWS_MAX, bytes_max: BYTES_MAX, row_bytes_max: i32::MAX as u64 }
    }
}

/// A message that was measured, to be written: which of the rows are in it, and how long it will be to the byte.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    gather: &'a Gather,
    /// All rows that were cut into messages.
    picks: &'a [Pick],
    rows: Range<usize>,
    measure: Measure,
    bytes: u64,
}

impl Message<'_> {
    /// Which of the picks are its rows.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Its length, a multiple of 64: header and body.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes it: every byte of `out`.
    ///
    /// # Panics
    /// `out` has another length than the message.
    pub fn write(&self, out: &mut [u8]) {
        assert_eq!(out.len() as u64, self.bytes, "room for a message");
        let (layout, Measure { nodes, buffers, .. }) = (&self.gather.layout, &self.measure);
        let (header, body) = out.split_at_mut(layout.header_bytes());
        header.copy_from_slice(&layout.header(self.rows.len() as u64, nodes, buffers));
        let mut body = Body::new(body, nodes, buffers);
        for column in &self.gather.columns {
            body.add(column, &self.picks[self.rows.clone()]);
        }
        body.end();
    }

    /// Its rows as a batch of the layout's schema, of as many bytes as the message has: what is written to files.
    ///
    /// # Errors
    /// Arrow's, which no message gives.
    pub fn batch(&self) -> Result<RecordBatch, TableError> {
        let mut bytes = MutableBuffer::from_len_zeroed(self.bytes as usize);
        self.write(bytes.as_slice_mut());
        gathered(&self.gather.layout, bytes.into())
    }
}

/// Rows of some batches, ready to be taken in any order.
#[derive(Debug)]
pub struct Gather {
    layout: Arc<Layout>,
    columns: Vec<Column>,
    /// How many rows each of the batches has.
    rows: Vec<usize>,
}

impl Gather {
    /// Of batches of the layout's schema as [`check_schema`] has it, in any encoding. Their memory is shared, not copied.
    ///
    /// # Errors
    /// A batch has other types or names, or its columns in another order.
    ///
    /// # Panics
    /// 2^32 - 2 batches or more.
    pub fn new(layout: Arc<Layout>, batches: &[RecordBatch]) -> Result<Self, TableError> {
        assert!(batches.len() <= SOURCES_MAX, "{} batches", batches.len());
        batches.iter().try_for_each(|batch| check_schema(layout.schema(), batch.schema_ref()))?;
        let columns = columns(&layout, batches);
        Ok(Self { layout, columns, rows: batches.iter().map(RecordBatch::num_rows).collect() })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Of which schema the batches are.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Puts another batch in the place of one, whose memory it gives up: a merge goes on with the next one of a run. An empty batch takes none.
    ///
    /// # Errors
    /// As of [`new`](Self::new); nothing has changed then.
    ///
    /// # Panics
    /// There is no batch of this number.
    pub fn replace(&mut self, number: u32, batch: &RecordBatch) -> Result<(), TableError> {
        check_schema(self.layout.schema(), batch.schema_ref())?;
        self.rows[number as usize] = batch.num_rows();
        let others = columns(&self.layout, std::slice::from_ref(batch));
        for (column, other) in self.columns.iter_mut().zip(others) {
            column.replace(number as usize, other);
        }
        Ok(())
    }

    /// Cuts rows into messages, in their order. No rows are no message.
    ///
    /// While a message is measured or written, elements of lists behind dictionaries, run ends and structs with nulls take memory beside it: 16 bytes where they do not lie
    /// one behind the other, at each level of nesting 4 times `bytes_max` (of a message of one row `row_bytes_max`) at most, or twice that while it grows. Messages of more are cut
    /// into smaller ones; such a row alone is too large.
    ///
    /// # Errors
    /// [`TableError::RowTooLarge`], [`TableError::NullInColumn`].
    ///
    /// # Panics
    /// A pick is none of a row of the batches.
    pub fn messages<'a>(&'a self, picks: &'a [Pick], limits: &Limits) -> Result<Vec<Message<'a>>, TableError> {
        let is_none = |pick: &&Pick| self.rows.get(pick.batch as usize).is_none_or(|rows| pick.row as usize >= *rows);
        if let Some(Pick { batch, row }) = picks.iter().find(is_none) {
            panic!("there is no row {row} of batch {batch}");
        }
        let (mut messages, mut from, mut guess) = (Vec::new(), 0, ROWS_GUESSED);
        while from < picks.len() {
            let message = self.message(picks, from, guess, limits)?;
            from = message.rows.end;
            // A large row says nothing of those behind it.
            if message.bytes <= limits.bytes_max {
                let rows = message.rows.len();
                guess = scaled(rows, limits.bytes_max, message.bytes).min(rows * GROWTH);
            }
            messages.push(message);
        }
        Ok(messages)
    }

    /// The message that begins at a row: `guess` rows, or fewer as they fit, or more, at most [`GROWTH`] times what was measured before.
    fn message<'a>(
        &'a self,
        picks: &'a [Pick],
        from: usize,
        guess: usize,
        limits: &Limits,
    ) -> Result<Message<'a>, TableError> {
        let mut most = limits.rows_max.min(ROWS_MAX).clamp(1, picks.len() - from);
        let (mut rows, mut fits) = (guess.clamp(1, most), None::<Message<'a>>);
        loop {
            let bytes_max = if rows > 1 { limits.bytes_max } else { limits.row_bytes_max.max(limits.bytes_max) };
            let next = match self.measured(picks, from..from + rows, limits) {
                Ok(message) if message.bytes <= bytes_max => {
                    let more = scaled(rows, limits.bytes_max, message.bytes).min(rows * GROWTH).min(most);
                    if more < 2 * rows && (more < most || more <= rows) {
                        return Ok(message);
                    }
                    fits = Some(message);
                    more
                }
                Ok(message) if rows == 1 => return Err(too_large(picks[from], message.bytes, bytes_max)),
                Err(Refused::TooMany) if rows == 1 => return Err(too_large(picks[from], u64::MAX, bytes_max)),
                Err(Refused::Null(column)) => return Err(self.null(picks, from..from + rows, limits, column)),
                refused => {
                    most = rows - 1;
                    let fewer = refused.map_or(rows / STOP, |message| scaled(rows, limits.bytes_max, message.bytes));
                    fewer.clamp(1, most)
                }
            };
            match fits.take_if(|fits| next <= fits.rows.len()) {
                Some(message) => return Ok(message),
                None => rows = next,
            }
        }
    }

    /// Which of these rows has the null that was found in a column that has none.
    fn null(&self, picks: &[Pick], mut rows: Range<usize>, limits: &Limits, column: String) -> TableError {
        let has_null = |row: &usize| matches!(self.measured(picks, *row..row + 1, limits), Err(Refused::Null(_)));
        let Pick { batch, row } = picks[rows.find(has_null).expect("a null in one of the rows")];
        TableError::NullInColumn { column, batch, row }
    }

    fn measured<'a>(&'a self, picks: &'a [Pick], rows: Range<usize>, limits: &Limits) -> Result<Message<'a>, Refused> {
        let (bytes_max, most) = match rows.len() {
            2.. => (limits.bytes_max.saturating_mul(STOP as u64), limits.bytes_max),
            _ => (u64::MAX, limits.row_bytes_max.max(limits.bytes_max)),
        };
        let spans_max = usize::try_from(most.saturating_mul(NOTED) / size_of::<Span>() as u64).unwrap_or(usize::MAX);
        #[cfg(test)]
        MEASURED.with(|measured| measured.set(measured.get() + rows.len()));
        let mut measure = Measure::new(self.layout.header_bytes() as u64, bytes_max, spans_max.max(ROWS_MAX));
        measure.nodes.reserve(self.layout.nodes());
        measure.buffers.reserve(self.layout.buffers());
        for column in &self.columns {
            measure.add(column, &picks[rows.clone()])?;
        }
        let bytes = measure.bytes();
        Ok(Message { gather: self, picks, rows, measure, bytes })
    }
}

#[cfg(test)]
thread_local! {
    /// How many rows were measured, each as often as it was.
    pub(super) static MEASURED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The columns of batches that were checked.
fn columns(layout: &Layout, batches: &[RecordBatch]) -> Vec<Column> {
    let column = |(at, field): (usize, &FieldRef)| {
        Column::new(field.name(), field, batches.iter().map(|batch| batch.column(at).clone()).collect())
    };
    layout.schema().fields().iter().enumerate().map(column).collect()
}

fn too_large(Pick { batch, row }: Pick, bytes: u64, bytes_max: u64) -> TableError {
    TableError::RowTooLarge { batch, row, bytes, bytes_max }
}

/// So many of `rows` rows, which take `bytes` bytes, as fit `bytes_max`, less a few.
fn scaled(rows: usize, bytes_max: u64, bytes: u64) -> usize {
    let fit = rows as u128 * u128::from(bytes_max) / u128::from(bytes.max(1));
    (fit - fit / 16) as usize
}
