//! Hashes of rows where they lie.

use exobus_shuffle::kernels::prefetch;
use exobus_store::RowHash;

use super::column::{Column, Values};
use super::fill::fixed;
use super::picks::{Picks, Span};
use super::{Gather, Limits, Pick};
use crate::row_hash::{ColumnSeeds, Pairs};
use crate::{RowHasher, TableError};

/// Rows that are hashed at a time: their sums lie in the first caches.
const ROWS_AT_ONCE: usize = 4096;

impl Gather {
    /// The sum of the hashes of these rows, as `hasher`, which is of the schema of the layout, has it of a batch of them. Rows are only put together for it where a column has
    /// nulls, bools, lists, structs or dictionaries.
    ///
    /// # Errors
    /// As of [`messages`](Self::messages).
    pub fn row_hash(&self, hasher: &RowHasher, picks: &[Pick]) -> Result<RowHash, TableError> {
        if !self.columns().iter().all(is_flat) {
            let hash = |message: super::Message<'_>| hasher.sum(&message.batch()?);
            return self.messages(picks, &Limits::default())?.into_iter().map(hash).sum();
        }
        let sum_of = |picks: &[Pick]| {
            hasher.sum_by(picks.len(), |number, seeds, pairs| add(&self.columns()[number], seeds, picks, pairs))
        };
        Ok(picks.chunks(ROWS_AT_ONCE).map(sum_of).sum())
    }
}

/// Whether values can be hashed where they lie.
fn is_flat(column: &Column) -> bool {
    let values = matches!(column.values, Values::Fixed(..) | Values::Bytes { .. });
    values && column.levels.is_empty() && !column.nulls.any
}

/// Adds the hashes of the values of these rows.
fn add(column: &Column, seeds: &ColumnSeeds, picks: &[Pick], pairs: &mut Pairs) {
    match &column.values {
        Values::Fixed(width @ (1 | 2 | 4 | 8 | 16 | 32), values) => {
            let mut bytes = vec![0; width * picks.len()];
            fixed(*width, values, picks, &[], &mut bytes);
            seeds.add_fixed(*width, &bytes, None, pairs);
        }
        // Of others each may be as large as it likes.
        Values::Fixed(width, values) => {
            for (row, Pick { batch, row: from }) in picks.iter().enumerate() {
                seeds.add_value(&values[*batch as usize][*from as usize * width..][..*width], row, pairs);
            }
        }
        Values::Bytes { ranges, .. } => {
            let mut row = 0;
            let later = |span: Span| prefetch(ranges[span.source()].said_at(span.start as usize));
            let soon = |span: Span| prefetch(ranges[span.source()].get(span.start as usize));
            picks.each_ahead(later, soon, |span| {
                seeds.add_value(ranges[span.source()].get(span.start as usize), row, pairs);
                row += 1;
            });
        }
        _ => unreachable!("only flat columns are hashed where they lie"),
    }
}
