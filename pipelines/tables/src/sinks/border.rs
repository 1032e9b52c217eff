//! Where a piece of a file ends: by its rows and their bytes alone.

use arrow_array::RecordBatch;

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
