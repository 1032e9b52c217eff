//! Rows of a batch that may be among the first ones of all in some order.

use std::cmp::Ordering;

use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_ord::sort::{LexicographicalComparator, SortColumn, lexsort_to_indices};
use arrow_schema::{ArrowError, DataType};
use arrow_select::filter::filter_record_batch;

use super::floats::as_ordered;
use super::{BoundFirst, evaluated};

impl BoundFirst {
    /// Of the rows of a batch that are kept (`None`: all) as many as are wanted, the first ones in the order; of those that it does not tell apart the first ones of the batch. So each row that is
    /// among the first ones of all is one of these, and the answer does not depend on where batches end.
    pub(super) fn among(&self, rows: &RecordBatch, kept: Option<BooleanArray>) -> Result<Option<BooleanArray>, String> {
        let count = kept.as_ref().map_or(rows.num_rows(), BooleanArray::true_count);
        if count <= self.rows {
            return Ok(kept);
        }
        let arrow = |error: ArrowError| error.to_string();
        let among = kept.as_ref().map(|kept| filter_record_batch(rows, kept)).transpose().map_err(arrow)?;
        let mut columns = Vec::with_capacity(self.order.len());
        for (expression, options) in &self.order {
            let values = as_ordered(evaluated(expression, among.as_ref().unwrap_or(rows))?);
            if !is_ordered_alike(values.data_type()) {
                return Ok(kept);
            }
            columns.push(SortColumn { values, options: Some(*options) });
        }
        let is_first = match self.rows.checked_sub(1) {
            None => BooleanBuffer::new_unset(count),
            Some(last) => {
                let last = lexsort_to_indices(&columns, Some(self.rows)).map_err(arrow)?.value(last) as usize;
                let comparator = LexicographicalComparator::try_new(&columns).map_err(arrow)?;
                let orders: Vec<Ordering> = (0..count).map(|row| comparator.compare(row, last)).collect();
                let mut alike = self.rows - orders.iter().filter(|order| order.is_lt()).count();
                BooleanBuffer::collect_bool(count, |row| match orders[row] {
                    Ordering::Less => true,
                    Ordering::Greater => false,
                    Ordering::Equal => {
                        let is_first = alike > 0;
                        alike -= usize::from(is_first);
                        is_first
                    }
                })
            }
        };
        let Some(kept) = kept else { return Ok(Some(BooleanArray::new(is_first, None))) };
        let mut next = kept.values().set_indices().zip(is_first.iter()).filter(|(_, is_first)| *is_first).peekable();
        let all = BooleanBuffer::collect_bool(kept.len(), |row| next.next_if(|(at, _)| *at == row).is_some());
        Ok(Some(BooleanArray::new(all, None)))
    }
}

/// Whether keys of tables have the order that Arrow has.
fn is_ordered_alike(data_type: &DataType) -> bool {
    use DataType::*;
    let is_text = matches!(data_type, Utf8 | Utf8View | LargeUtf8 | Binary | BinaryView | LargeBinary | Boolean);
    is_text || data_type.is_numeric() || data_type.is_temporal() && !matches!(data_type, Interval(_))
}
