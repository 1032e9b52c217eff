//! How large a row may be.

use arrow_array::RecordBatch;
use exobus_actors::node::memory::SET_ASIDE_BYTES;
use exobus_shuffle::Sizes;
use serde::{Deserialize, Serialize};

use crate::block::Limits;
use crate::error::bytes_of;
use crate::sources::{array_bytes, is_counted_by_row, larger_row};

/// A row takes this part of a node's store at most: it is there as it was read, in messages, and some times more while it is written, by each executor.
const SHARE: u64 = 16;
/// What offsets of a message can count.
const MESSAGE_BYTES_MAX: u64 = i32::MAX as u64;

/// Most bytes of values of a row: a part of the store of the smallest node, so whether a row is refused follows from the data and from the memory that nodes were given, not from what others take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowLimit(u64);

impl RowLimit {
    /// Rows of any size.
    pub(super) const NONE: Self = Self(MESSAGE_BYTES_MAX);

    /// On nodes of these sizes.
    pub(super) fn of(sizes: Sizes) -> Self {
        Self((sizes.memory_bytes / SHARE).min(MESSAGE_BYTES_MAX))
    }

    /// The first row that is larger, and how many bytes its values take. Values behind dictionaries and run ends are not looked at: they are counted when they are gathered, within [`limits`](Self::limits).
    pub(super) fn larger_row(self, batch: &RecordBatch) -> Option<(usize, u64)> {
        let counted = batch.columns().iter().filter(|column| is_counted_by_row(column.data_type()));
        let counted: Vec<_> = counted.collect();
        let bytes = |rows: std::ops::Range<usize>| counted.iter().map(|column| array_bytes(column, rows.clone())).sum();
        let row = larger_row(&bytes, 0..batch.num_rows(), self.0)?;
        Some((row, bytes(row..row + 1)))
    }

    /// Of messages: one of a row has its header and what its buffers are aligned by besides values, so no row is refused that is not larger.
    pub(super) fn limits(self) -> Limits {
        Limits { row_bytes_max: (self.0 + self.0 / SHARE).min(MESSAGE_BYTES_MAX), ..Limits::default() }
    }

    /// What is wrong with a row for which messages gave up, or that takes so many bytes, and what to do.
    pub(super) fn refusal(self, bytes: u64, (batch, row): (&RecordBatch, usize)) -> String {
        let leave_out = "leave the column out (--select), or the row (--where)";
        if bytes > MESSAGE_BYTES_MAX {
            return format!(
                "the row takes {}; a row may take {MESSAGE_BYTES_MAX} bytes, however much memory there is: make its values smaller, {leave_out}",
                bytes_of(bytes)
            );
        }
        let of_column = |column: &usize| array_bytes(batch.column(*column), row..row + 1);
        let largest = (0..batch.num_columns()).max_by_key(of_column);
        let column = largest.map_or(String::new(), |column| {
            format!(", most of them in column {}", batch.schema_ref().field(column).name())
        });
        let least = (bytes * SHARE + SET_ASIDE_BYTES).div_ceil(1 << 20);
        format!(
            "the row takes {}{column}; a row may take 1/{SHARE} of a node's store, {} bytes: --memory {least}MiB is the least that works, or {leave_out}",
            bytes_of(bytes),
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, StringArray};

    use super::*;

    fn limit(memory_mib: u64) -> RowLimit {
        RowLimit::of(Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes: memory_mib << 20 })
    }

    fn batch(texts: ArrayRef) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(0..texts.len() as i64);
        RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef), ("text", texts)]).unwrap()
    }

    #[test]
    fn the_first_row_that_is_larger_is_found_and_what_is_said_to_be_the_least_works() {
        let texts = [3, 1 << 20, 3 << 20, 3, 4 << 20].map(|bytes| "x".repeat(bytes));
        let batch = batch(Arc::new(StringArray::from_iter_values(&texts)));
        // Together they have more than any of them may.
        assert_eq!(limit(65).larger_row(&batch), None);
        let (row, bytes) = limit(40).larger_row(&batch).unwrap();
        assert_eq!((row, bytes), (2, (3 << 20) + 4 + 1 + 8 + 1));
        let refusal = limit(40).refusal(bytes, (&batch, row));
        assert!(refusal.contains("3145742 bytes, most of them in column text; a row may take 1/16"), "{refusal}");
        let least: u64 = refusal.split("--memory ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
        let memory = least - (SET_ASIDE_BYTES >> 20);
        assert_eq!(limit(memory).larger_row(&batch.slice(0, 4)), None);
        assert!(limit(memory - 1).larger_row(&batch.slice(0, 4)).is_some());
        let refusal = limit(1 << 20).refusal(1 << 31, (&batch, row));
        assert!(refusal.contains("2147483648 bytes; a row may take 2147483647 bytes, however"), "{refusal}");
    }

    /// What a dictionary has is in no row.
    #[test]
    fn a_large_dictionary_is_no_large_row() {
        let texts: Vec<String> = (0..64).map(|text| format!("{text}").repeat(1 << 18)).collect();
        let texts: DictionaryArray<Int32Type> = texts.iter().map(String::as_str).collect();
        let batch = batch(Arc::new(texts));
        assert_eq!(limit(64).larger_row(&batch.slice(5, 1)), None);
        assert_eq!(limit(64).larger_row(&batch), None);
    }
}
