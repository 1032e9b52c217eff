//! The rows of a table that have come to a file, one by one in the order of their keys.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::query::Side;
use crate::TableError;
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::jobs::rewrite::{Arranger, Merged, Merging};
use crate::sources::MemoryBudget;

/// See the module.
pub(super) struct Sorted<'a> {
    merging: Merging<'a>,
    /// Rows that are next; `None`: they were not asked for yet, or there are no more.
    merged: Option<Merged>,
    /// How many of these were taken.
    taken: usize,
    /// The key of rows that go on in what is merged next.
    key: Vec<u8>,
    is_over: bool,
}

impl<'a> Sorted<'a> {
    /// Of runs of batches, each of them in order.
    ///
    /// # Errors
    /// More memory is needed than there is; Arrow's.
    pub(super) fn new(
        arranger: &'a Arranger,
        budget: &Arc<dyn MemoryBudget>,
        runs: Vec<Vec<RecordBatch>>,
    ) -> Result<Self, Unordered> {
        let runs = runs.into_iter().map(Ok::<_, TableError>);
        let merging = Merging::new(arranger, None, budget, runs)?.with_keys(Side::BOTH.len());
        Ok(Self { merging, merged: None, taken: 0, key: Vec::new(), is_over: false })
    }

    /// All batches, by number.
    pub(super) fn batches(&self) -> &[RecordBatch] {
        self.merging.batches()
    }

    /// The next row and its key; `None`: there are no more.
    ///
    /// # Errors
    /// More memory is needed than there is; keys that are too large.
    pub(super) fn peek(&mut self) -> Result<Option<(&[u8], Pick)>, Unordered> {
        while !self.is_over && self.merged.as_ref().is_none_or(|merged| merged.rows.len() == self.taken) {
            // What was taken gives its memory back before there is more.
            self.merged = None;
            (self.merged, self.taken) = (self.merging.next()?, 0);
            self.is_over = self.merged.is_none();
        }
        Ok(self.at(self.taken))
    }

    /// The same, which is not the next one any longer then.
    ///
    /// # Errors
    /// As of [`peek`](Self::peek).
    pub(super) fn take(&mut self) -> Result<Option<(&[u8], Pick)>, Unordered> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.taken += 1;
        Ok(self.at(self.taken - 1))
    }

    /// Takes all rows that have the key of the next one.
    ///
    /// # Errors
    /// As of [`peek`](Self::peek), and those of `each`.
    pub(super) fn take_run<E: From<Unordered>>(
        &mut self,
        mut each: impl FnMut(Pick) -> Result<(), E>,
    ) -> Result<(), E> {
        self.peek()?;
        let mut goes_on = false;
        while let Some(merged) = &self.merged {
            let key = if goes_on { &self.key } else { merged.keys.get(self.taken) };
            let rest = self.taken..merged.rows.len();
            let end = rest.clone().find(|row| merged.keys.get(*row) != key).unwrap_or(rest.end);
            merged.rows[rest.start..end].iter().try_for_each(|row| each(*row))?;
            self.taken = end;
            if end < rest.end {
                break;
            }
            if !goes_on {
                self.key.clear();
                self.key.extend_from_slice(merged.keys.get(rest.end - 1));
                goes_on = true;
            }
            self.peek()?;
        }
        Ok(())
    }

    fn at(&self, row: usize) -> Option<(&[u8], Pick)> {
        self.merged.as_ref().map(|merged| (merged.keys.get(row), merged.rows[row]))
    }
}
