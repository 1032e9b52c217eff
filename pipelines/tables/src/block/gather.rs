//! Taking rows from batches and writing them as messages, without a batch in between.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::column::Column;
use super::fill::Body;
use super::layout::Layout;
use super::measure::{Measure, Refused};
use super::picks::{Pick, SOURCES_MAX};
use super::{BYTES_MAX, ROWS_MAX};
use crate::TableError;
use crate::plain::check_names;

/// Rows of which a first message is measured: few, since nobody knows yet how many elements a row has.
const ROWS_GUESSED: usize = 256;
/// So many times more rows are measured than were, at most: what is noted while a message is measured and written is bounded by some times what is in it.
const GROWTH: usize = 8;
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
pub struct Message {
    rows: Range<usize>,
    measure: Measure,
    bytes: u64,
}

impl Message {
    /// Which of the picks are its rows.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Its length, a multiple of 64: header and body.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Rows of some batches, ready to be taken in any order.
#[derive(Debug)]
pub struct Gather {
    layout: Arc<Layout>,
    columns: Vec<Column>,
}

impl Gather {
    /// Of batches whose plain types are those of the layout, in any encoding. Their memory is shared, not copied.
    ///
    /// # Errors
    /// A batch has other types or names, or its columns in another order.
    ///
    /// # Panics
    /// 2^32 - 2 batches or more.
    pub fn new(layout: Arc<Layout>, batches: &[RecordBatch]) -> Result<Self, TableError> {
        assert!(batches.len() <= SOURCES_MAX, "{} batches", batches.len());
        let expected = layout.schema().fields().len();
        if let Some(batch) = batches.iter().find(|batch| batch.num_columns() != expected) {
            return Err(TableError::ColumnsDiffer { expected, found: batch.num_columns() });
        }
        let fields = layout.schema().fields();
        batches.iter().try_for_each(|batch| check_names("", fields, batch.schema_ref().fields()))?;
        let column = |at: usize| {
            let field = layout.schema().field(at);
            Column::new(field.name(), field, batches.iter().map(|batch| batch.column(at).clone()).collect())
        };
        let columns = (0..expected).map(column).collect::<Result<_, _>>()?;
        Ok(Self { layout, columns })
    }

    /// Cuts rows into messages, in their order. No rows are no message.
    ///
    /// # Errors
    /// [`TableError::RowTooLarge`], [`TableError::NullInColumn`].
    ///
    /// # Panics
    /// A pick is none of a row of the batches; when it is written, if not here.
    pub fn messages(&self, picks: &[Pick], limits: &Limits) -> Result<Vec<Message>, TableError> {
        let (mut messages, mut from, mut guess) = (Vec::new(), 0, ROWS_GUESSED);
        while from < picks.len() {
            let message = self.message(picks, from, guess, limits)?;
            from = message.rows.end;
            // A large row says nothing of those behind it.
            if message.bytes <= limits.bytes_max {
                guess = scaled(message.rows.len(), limits.bytes_max, message.bytes);
            }
            messages.push(message);
        }
        Ok(messages)
    }

    /// The message that begins at a row: `guess` rows, or fewer as they fit, or more, at most [`GROWTH`] times what was measured before.
    fn message(&self, picks: &[Pick], from: usize, guess: usize, limits: &Limits) -> Result<Message, TableError> {
        let mut most = limits.rows_max.min(ROWS_MAX).clamp(1, picks.len() - from);
        let (mut rows, mut fits) = (guess.clamp(1, most), None::<Message>);
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

    fn measured(&self, picks: &[Pick], rows: Range<usize>, limits: &Limits) -> Result<Message, Refused> {
        let bytes_max = if rows.len() > 1 { limits.bytes_max.saturating_mul(STOP as u64) } else { u64::MAX };
        let mut measure = Measure::new(self.layout.header_bytes() as u64, bytes_max);
        measure.nodes.reserve(self.layout.nodes());
        measure.buffers.reserve(self.layout.buffers());
        for column in &self.columns {
            measure.add(column, &picks[rows.clone()])?;
        }
        let bytes = measure.bytes();
        Ok(Message { rows, measure, bytes })
    }

    /// Writes a message that was measured for these picks: every byte of `out`.
    ///
    /// # Panics
    /// `out` has another length than the message, or the picks are others than were measured.
    pub fn write(&self, message: &Message, picks: &[Pick], out: &mut [u8]) {
        assert_eq!(out.len() as u64, message.bytes, "room for a message");
        let Measure { nodes, buffers, .. } = &message.measure;
        let (header, body) = out.split_at_mut(self.layout.header_bytes());
        header.copy_from_slice(&self.layout.header(message.rows.len() as u64, nodes, buffers));
        let mut body = Body::new(body, nodes, buffers);
        for column in &self.columns {
            body.add(column, &picks[message.rows.clone()]);
        }
    }
}

fn too_large(Pick { batch, row }: Pick, bytes: u64, bytes_max: u64) -> TableError {
    TableError::RowTooLarge { batch, row, bytes, bytes_max }
}

/// So many of `rows` rows, which take `bytes` bytes, as fit `bytes_max`, less a few.
fn scaled(rows: usize, bytes_max: u64, bytes: u64) -> usize {
    let fit = rows as u128 * u128::from(bytes_max) / u128::from(bytes.max(1));
    (fit - fit / 16) as usize
}
