//! Where a piece of a file ends: by its rows and their bytes alone.

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

use crate::sources::value_bytes;

/// A piece that is being filled, and what it may have at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    rows: u64,
    bytes: u64,
    rows_max: u64,
    bytes_max: u64,
}

impl Border {
    /// Of a piece without rows.
    pub(super) fn new(rows_max: u64, bytes_max: u64) -> Self {
        Self { rows: 0, bytes: 0, rows_max: rows_max.max(1), bytes_max }
    }

    /// Bytes of values that the piece has so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many rows from `at` on the piece takes still; none: it is full. A row that is larger than a piece may be is alone in one.
    pub(super) fn take(&mut self, batch: &RecordBatch, at: usize) -> usize {
        let room = usize::try_from(self.rows_max - self.rows).unwrap_or(usize::MAX);
        let most = (batch.num_rows() - at).min(room);
        let fits = |rows: usize| self.bytes + value_bytes(batch, at..at + rows) <= self.bytes_max;
        let (mut low, mut high) = (0, most);
        if fits(most) {
            low = most;
        } else {
            while low + 1 < high {
                let middle = (low + high) / 2;
                if fits(middle) { low = middle } else { high = middle }
            }
        }
        let rows = if low == 0 && self.is_empty() { most.min(1) } else { low };
        self.bytes += value_bytes(batch, at..at + rows);
        self.rows += rows as u64;
        rows
    }

    /// The next piece.
    pub(super) fn end(&mut self) {
        (self.rows, self.bytes) = (0, 0);
    }
}

/// Rows that wait until a piece is full.
pub(super) struct Waiting {
    rows: Vec<RecordBatch>,
    border: Border,
}

impl Waiting {
    /// Of pieces of so many rows and bytes at most.
    pub(super) fn new(rows_max: u64, bytes_max: u64) -> Self {
        Self { rows: Vec::new(), border: Border::new(rows_max, bytes_max) }
    }

    /// Bytes of values that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.border.bytes()
    }

    /// Takes rows from `at` on that the piece has room for; how many, none: it is full.
    pub(super) fn take(&mut self, batch: &RecordBatch, at: usize) -> usize {
        let rows = self.border.take(batch, at);
        if rows > 0 {
            self.rows.push(batch.slice(at, rows));
        }
        rows
    }

    /// The piece, where it has rows, and begins the next one.
    ///
    /// # Errors
    /// Arrow's: its values fit no array.
    pub(super) fn end(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, ArrowError> {
        let piece = match self.rows.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(concat_batches(schema, several)?),
        };
        self.rows.clear();
        self.border.end();
        Ok(piece)
    }

    /// Has rows that wait be there alone, where they are some of a batch of so many rows, the last one that was given.
    ///
    /// # Errors
    /// Arrow's.
    pub(super) fn keep_alone(&mut self, of: usize) -> Result<(), ArrowError> {
        if let Some(last) = self.rows.pop_if(|last| last.num_rows() < of) {
            let all = UInt32Array::from_iter_values(0..last.num_rows() as u32);
            self.rows.push(take_record_batch(&last, &all)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use super::*;

    fn numbers(numbers: std::ops::Range<i64>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    #[test]
    fn rows_that_wait_hold_no_others_in_memory() {
        let (mut waiting, batch) = (Waiting::new(100, u64::MAX), numbers(0..10_000));
        assert_eq!(waiting.take(&batch, 9_990), 10);
        waiting.keep_alone(10_000).unwrap();
        assert!(waiting.rows[0].get_array_memory_size() < 1_000, "{}", waiting.rows[0].get_array_memory_size());
        let whole = numbers(0..20);
        assert_eq!(waiting.take(&whole, 0), 20);
        waiting.keep_alone(20).unwrap();
        assert!(waiting.rows[1].column(0).to_data().ptr_eq(&whole.column(0).to_data()), "a whole batch is not copied");
        assert_eq!((waiting.take(&batch, 0), waiting.take(&batch, 70)), (70, 0));
        let piece = waiting.end(&batch.schema()).unwrap().unwrap();
        assert_eq!(piece.num_rows(), 100);
        assert_eq!((waiting.bytes(), waiting.end(&batch.schema()).unwrap()), (0, None));
    }
}
