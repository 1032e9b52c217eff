//! Batches as sources give them: cut to a bound, with the place of their rows and the memory that they have.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::SourceError;
use super::memory::Reservation;

/// Most rows of a batch.
pub const BATCH_ROWS_MAX: usize = 64 << 10;
/// Most bytes of the values of a batch that has more than one row.
pub const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Rows that stand one behind the other in a split. Its columns may be views, which point to what was read; [`plain_schema`](crate::plain::plain_schema) of its schema is that of
/// the source.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// The rows.
    pub batch: RecordBatch,
    /// Which split of the file, from 0.
    pub split: usize,
    /// Which row of the split the first one is, from 0.
    pub first_row: u64,
    memory: Arc<Reservation>,
}

impl SourceBatch {
    /// Bytes that it and the batches which were decoded with it have in common, beside those that their pages have.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

/// What a reader has read and not given, some batches at a time.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) ready: VecDeque<SourceBatch>,
    /// There is nothing more to be read.
    pub(super) is_over: bool,
}

/// The next batch of a reader, which `read` has read on while nothing is ready; none behind an error.
pub(super) fn next_batch<R>(
    reader: &mut R,
    pending: impl Fn(&mut R) -> &mut Pending,
    read: impl Fn(&mut R) -> Result<(), SourceError>,
) -> Option<Result<SourceBatch, SourceError>> {
    loop {
        let Pending { ready, is_over } = pending(reader);
        if let Some(batch) = ready.pop_front() {
            return Some(Ok(batch));
        }
        if *is_over {
            return None;
        }
        if let Err(error) = read(reader) {
            pending(reader).is_over = true;
            return Some(Err(error));
        }
    }
}

/// Cuts rows into batches within the bounds; `memory` is given back when the last of them is dropped.
pub(super) fn cut(batch: &RecordBatch, split: usize, first_row: u64, memory: Reservation) -> Vec<SourceBatch> {
    cut_shared(batch, split, first_row, &Arc::new(memory))
}

/// As [`cut`], of rows that have their memory with others.
pub(super) fn cut_shared(
    batch: &RecordBatch,
    split: usize,
    first_row: u64,
    memory: &Arc<Reservation>,
) -> Vec<SourceBatch> {
    let mut ranges = Vec::new();
    cut_range(batch, 0..batch.num_rows(), &mut ranges);
    let of_range = |range: Range<usize>| SourceBatch {
        first_row: first_row + range.start as u64,
        batch: batch.slice(range.start, range.len()),
        split,
        memory: Arc::clone(memory),
    };
    ranges.into_iter().map(of_range).collect()
}

/// Halves a range until it is within the bounds.
fn cut_range(batch: &RecordBatch, range: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    if range.is_empty() {
        return;
    }
    let fits = range.len() <= BATCH_ROWS_MAX && value_bytes(batch, range.clone()) <= BATCH_BYTES_MAX;
    if fits || range.len() == 1 {
        ranges.push(range);
        return;
    }
    let middle = range.start + range.len() / 2;
    cut_range(batch, range.start..middle, ranges);
    cut_range(batch, middle..range.end, ranges);
}

/// Bytes that the values of rows have in plain types, with one for each that says whether it is null: those of two ranges are together those of both.
pub fn value_bytes(batch: &RecordBatch, range: Range<usize>) -> u64 {
    batch.columns().iter().map(|column| array_bytes(column.as_ref(), range.clone())).sum()
}

/// Bytes of values in these rows of a column.
pub(crate) fn array_bytes(array: &dyn Array, range: Range<usize>) -> u64 {
    use DataType::*;
    let rows = range.len() as u64;
    let within = |from: i64, to: i64| from.max(0) as usize..to.max(0) as usize;
    rows + match array.data_type() {
        Null | Boolean => 0,
        Utf8View => {
            rows * 4 + array.as_string_view().slice(range.start, range.len()).lengths().map(u64::from).sum::<u64>()
        }
        BinaryView => {
            rows * 4 + array.as_binary_view().slice(range.start, range.len()).lengths().map(u64::from).sum::<u64>()
        }
        Utf8 => {
            let ends = array.as_string::<i32>().value_offsets();
            rows * 4 + (ends[range.end] - ends[range.start]) as u64
        }
        Binary => {
            let ends = array.as_binary::<i32>().value_offsets();
            rows * 4 + (ends[range.end] - ends[range.start]) as u64
        }
        LargeUtf8 => {
            let ends = array.as_string::<i64>().value_offsets();
            rows * 8 + (ends[range.end] - ends[range.start]) as u64
        }
        LargeBinary => {
            let ends = array.as_binary::<i64>().value_offsets();
            rows * 8 + (ends[range.end] - ends[range.start]) as u64
        }
        FixedSizeBinary(width) => rows * *width as u64,
        List(_) => {
            let list = array.as_list::<i32>();
            let ends = list.value_offsets();
            let of = within(ends[range.start].into(), ends[range.end].into());
            rows * 4 + array_bytes(list.values().as_ref(), of)
        }
        LargeList(_) => {
            let list = array.as_list::<i64>();
            let ends = list.value_offsets();
            rows * 8 + array_bytes(list.values().as_ref(), within(ends[range.start], ends[range.end]))
        }
        Map(..) => {
            let map = array.as_map();
            let ends = map.value_offsets();
            let of = within(ends[range.start].into(), ends[range.end].into());
            rows * 4 + array_bytes(map.entries(), of)
        }
        FixedSizeList(_, size) => {
            let (list, size) = (array.as_fixed_size_list(), *size as usize);
            array_bytes(list.values().as_ref(), range.start * size..range.end * size)
        }
        Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| array_bytes(column.as_ref(), range.clone())).sum()
        }
        other => match other.primitive_width() {
            Some(width) => rows * width as u64,
            // Dictionaries, run ends, list views: as much as they have, in proportion.
            None => (array.get_buffer_memory_size() as u64).saturating_mul(rows) / (array.len().max(1) as u64),
        },
    }
}

/// Whether [`array_bytes`] of a row of such a column is what this row has: where values are behind others, it is a share of all.
pub(crate) fn is_counted_by_row(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Dictionary(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_) => false,
        List(of) | LargeList(of) | FixedSizeList(of, _) | Map(of, _) => is_counted_by_row(of.data_type()),
        Struct(fields) => fields.iter().all(|field| is_counted_by_row(field.data_type())),
        Union(fields, _) => fields.iter().all(|(_, field)| is_counted_by_row(field.data_type())),
        _ => true,
    }
}

/// The first of these rows that has more bytes than `most`, where `bytes` says what rows have together: half of them have, where it is not one.
pub(crate) fn larger_row(bytes: &impl Fn(Range<usize>) -> u64, rows: Range<usize>, most: u64) -> Option<usize> {
    if rows.is_empty() || bytes(rows.clone()) <= most {
        return None;
    }
    if rows.len() == 1 {
        return Some(rows.start);
    }
    let middle = rows.start.midpoint(rows.end);
    larger_row(bytes, rows.start..middle, most).or_else(|| larger_row(bytes, middle..rows.end, most))
}

/// Bytes that arrays have themselves: of views without what they point to, unless `with_texts`.
pub(super) fn own_bytes(data: &ArrayData, with_texts: bool) -> u64 {
    let is_view = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
    let buffers = if is_view && !with_texts { 1 } else { usize::MAX };
    let own: usize = data.buffers().iter().take(buffers).map(|buffer| buffer.capacity()).sum();
    let nulls = data.nulls().map_or(0, |nulls| nulls.buffer().capacity());
    let inside: u64 = data.child_data().iter().map(|child| own_bytes(child, with_texts)).sum();
    (own + nulls) as u64 + inside
}
