//! How many rows, or values.

use arrow_array::{Array, ArrayRef, cast::AsArray, types::Int64Type};

use super::Accumulator;
use super::columns::{chosen, counts, each_row};
use crate::TableError;

/// A number for each group.
#[derive(Default)]
pub(super) struct Counts {
    counts: Vec<u64>,
}

impl Accumulator for Counts {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        // Of the `Null` type, too.
        let nulls = argument.and_then(|argument| argument.logical_nulls());
        let counts = &mut self.counts;
        each_row(groups, nulls.as_ref(), |group, _| counts[group] += 1);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        for (group, count) in groups.iter().zip(states[0].as_primitive::<Int64Type>().values()) {
            let sum = &mut self.counts[*group as usize];
            *sum = u64::try_from(*count)
                .ok()
                .and_then(|count| sum.checked_add(count))
                .filter(|sum| *sum <= i64::MAX as u64)
                .ok_or_else(|| TableError::NotAState { column: "count".to_owned(), what: "no number of rows" })?;
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        Ok(vec![self.finish(order)?])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        Ok(counts(chosen(&self.counts, order).copied()))
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        vec![chosen(&self.counts, order).map(|count| *count as f64).collect()]
    }

    fn bytes(&self) -> u64 {
        8 * self.counts.capacity() as u64
    }

    fn clear(&mut self) {
        self.counts.clear();
    }
}
