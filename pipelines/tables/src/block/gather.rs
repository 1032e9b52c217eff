//! Taking rows from batches and writing them as messages, without a batch in between.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::column::Column;
use super::fill::Body;
use super::layout::Layout;
use super::measure::Measure;
use super::picks::{Pick, SOURCES_MAX};
use super::{BYTES_MAX, ROWS_MAX, padded};
use crate::TableError;

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
    /// Of batches whose plain types are those of the layout, in any encoding. Their memory is shared, not copied; of dictionaries and run
    /// ends 8 bytes a row are noted.
    ///
    /// # Errors
    /// A batch has other types.
    ///
    /// # Panics
    /// 2^32 - 2 batches or more.
    pub fn new(layout: Arc<Layout>, batches: &[RecordBatch]) -> Result<Self, TableError> {
        assert!(batches.len() <= SOURCES_MAX, "{} batches", batches.len());
        let expected = layout.schema().fields().len();
        if let Some(batch) = batches.iter().find(|batch| batch.num_columns() != expected) {
            return Err(TableError::ColumnsDiffer { expected, found: batch.num_columns() });
        }
        let column = |at: usize| {
            let field = layout.schema().field(at);
            Column::new(field.name(), field.data_type(), batches.iter().map(|batch| batch.column(at).clone()).collect())
        };
        let columns = (0..expected).map(column).collect::<Result<_, _>>()?;
        Ok(Self { layout, columns })
    }

    /// Cuts rows into messages, in their order. No rows are no message.
    ///
    /// # Errors
    /// [`TableError::RowTooLarge`].
    ///
    /// # Panics
    /// A pick is none of a row of the batches; when it is written, if not here.
    pub fn messages(&self, picks: &[Pick], limits: &Limits) -> Result<Vec<Message>, TableError> {
        let (mut messages, mut from, mut guess) = (Vec::new(), 0, limits.rows_max);
        while from < picks.len() {
            let message = self.message(picks, from, guess, limits)?;
            (from, guess) = (message.rows.end, scaled(message.rows.len(), limits.bytes_max, message.bytes));
            messages.push(message);
        }
        Ok(messages)
    }

    /// The message that begins at a row: `guess` rows, or fewer as they fit.
    fn message(&self, picks: &[Pick], from: usize, guess: usize, limits: &Limits) -> Result<Message, TableError> {
        let mut rows = guess.min(limits.rows_max).min(ROWS_MAX).clamp(1, picks.len() - from);
        loop {
            let message = self.measured(picks, from..from + rows);
            let bytes = message.as_ref().map_or(u64::MAX, |message| message.bytes);
            let bytes_max = if rows > 1 { limits.bytes_max } else { limits.row_bytes_max.max(limits.bytes_max) };
            match message.filter(|_| bytes <= bytes_max) {
                Some(message) => return Ok(message),
                None if rows > 1 => rows = scaled(rows, limits.bytes_max, bytes).clamp(1, rows - 1),
                None => {
                    let Pick { batch, row } = picks[from];
                    return Err(TableError::RowTooLarge { batch, row, bytes, bytes_max });
                }
            }
        }
    }

    /// `None`: more than offsets can count.
    fn measured(&self, picks: &[Pick], rows: Range<usize>) -> Option<Message> {
        let mut measure = Measure::default();
        measure.nodes.reserve(self.layout.nodes());
        measure.buffers.reserve(self.layout.buffers());
        for column in &self.columns {
            measure.add(column, &picks[rows.clone()]).ok()?;
        }
        let body: u64 = measure.buffers.iter().map(|bytes| padded(*bytes)).sum();
        Some(Message { rows, measure, bytes: self.layout.header_bytes() as u64 + body })
    }

    /// Writes a message that was measured for these picks: every byte of `out`.
    ///
    /// # Panics
    /// `out` has another length than the message, or the picks are others than were measured.
    pub fn write(&self, message: &Message, picks: &[Pick], out: &mut [u8]) {
        assert_eq!(out.len() as u64, message.bytes, "room for a message");
        let Measure { nodes, buffers } = &message.measure;
        let (header, body) = out.split_at_mut(self.layout.header_bytes());
        header.copy_from_slice(&self.layout.header(message.rows.len() as u64, nodes, buffers));
        let mut body = Body::new(body, nodes, buffers);
        for column in &self.columns {
            body.add(column, &picks[message.rows.clone()]);
        }
    }
}

/// So many of `rows` rows, which take `bytes` bytes, as fit `bytes_max`, less a few.
fn scaled(rows: usize, bytes_max: u64, bytes: u64) -> usize {
    let fit = rows as u128 * u128::from(bytes_max) / u128::from(bytes.max(1));
    (fit - fit / 16) as usize
}
