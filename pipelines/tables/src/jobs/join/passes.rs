//! A small table that has no room beside the tasks that read the large one: its pieces are read one after the other, and again for each *window* of rows of the large table.
//!
//! 1. How many rows of the small table match each row of a window is counted in a first pass, so it is known where each pair stands among those of its batch.
//! 2. Pairs are written in *loads*: in a pass for each of them those rows of the small table are copied that its pairs have. A load ends where pairs are given out, so these are given out in the same batches
//!    as where all of the table is there, whatever the memory is.
//!
//! What is there at a time is a window, a piece, and the rows of a load, which are one for each pair at most: all of it is asked for, and loads are smaller where it is denied.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::MutableBuffer;
use exobus_actors::registry::{InPlace, TaskError};
use exobus_store::PartMeta;

use super::found::Found;
use super::matching::Stopped;
use super::pairs::PAIRS_AT_ONCE;
use super::probe::{Keyed, Probing};
use super::query::JoinKind;
use crate::TableError;
use crate::block::{Gather, Layout, Limits, Messages, Pick};
use crate::jobs::budget::Unordered;
use crate::jobs::mapping::{BatchFunction, Given};
use crate::jobs::table::Table;
use crate::sources::{Reservation, value_bytes};

/// What a row of a window takes beside its values and its key: how many pairs it has, and how many of them were met.
const ROW_BYTES: u64 = 2 * size_of::<u32>() as u64;
/// What a pair of a load takes beside its row of the small table: which that is, and where in the load it stands.
const PAIR_BYTES: u64 = (size_of::<Pick>() + size_of::<Met>()) as u64;
/// What a row of a piece takes that may be one of a load.
const PIECE_ROW_BYTES: u64 = (size_of::<u32>() + size_of::<Pick>()) as u64;
/// Pairs that are given out at a time: a load has so many, or more of them.
const CHUNK: u64 = PAIRS_AT_ONCE as u64;

/// See the module.
pub(super) struct Passes<'a> {
    probing: &'a Probing<'a>,
    layout: Arc<Layout>,
    /// The small table, of which each part is a piece.
    small: Vec<InPlace>,
    window: Vec<Keyed>,
    /// Of the window.
    memory: Reservation,
    window_bytes: u64,
}

/// Some pairs of a batch of a window, by their numbers among all of it.
struct Span {
    batch: usize,
    pairs: Range<u64>,
}

/// A row of a piece that a pair of a load has.
struct Met {
    span: u32,
    pair: u32,
    row: u32,
}

/// Rows of the small table that the pairs of a load have.
struct Load {
    batches: Vec<RecordBatch>,
    /// Of each span, the row of each pair.
    rows: Vec<Vec<Pick>>,
    _memory: Reservation,
}

impl BatchFunction for Passes<'_> {
    fn apply(&mut self, batch: RecordBatch, given: Given<'_>) -> Result<(), TaskError> {
        if batch.num_rows() == 0 {
            return given(RecordBatch::new_empty(self.probing.joined.schema.clone()));
        }
        let keyed = self.probing.keyed(&batch)?;
        let rows = keyed.batch.num_rows();
        let bytes = value_bytes(&keyed.batch, 0..rows) + keyed.keys.value_data().len() as u64 + ROW_BYTES * rows as u64;
        if self.memory.bytes() + bytes > self.window_bytes {
            self.end(given)?;
        }
        let denied = |denied| self.probing.unordered(Unordered::Memory(denied));
        self.memory.resize(self.memory.bytes() + bytes).map_err(denied)?;
        self.window.push(keyed);
        Ok(())
    }

    fn end(&mut self, given: Given<'_>) -> Result<(), TaskError> {
        if self.window.is_empty() {
            return Ok(());
        }
        let window = std::mem::take(&mut self.window);
        self.write(&window, given).map_err(|stopped| self.probing.stopped(stopped))?;
        drop(window);
        self.memory.resize(0).map_err(|denied| self.probing.unordered(Unordered::Memory(denied)))
    }
}

impl<'a> Passes<'a> {
    /// Past these parts of objects. `window_bytes`: bytes of a window, or a batch where that is larger.
    pub(super) fn new(probing: &'a Probing<'a>, table: &Table, small: Vec<InPlace>, window_bytes: u64) -> Self {
        let memory = Reservation::none(&probing.budget.shared());
        Self { probing, layout: table.layout.clone(), small, window: Vec::new(), memory, window_bytes }
    }

    /// Writes the pairs of all rows of a window.
    fn write(&self, window: &[Keyed], given: Given<'_>) -> Result<(), Stopped<TaskError>> {
        let counts = self.counts(window)?;
        let pairs = |batch: usize| counts[batch].iter().map(|count| self.pairs_of(*count)).sum::<u64>();
        let pairs: Vec<u64> = (0..window.len()).map(pairs).collect();
        let (mut at, mut most, mut at_once) = ((0, 0), self.pairs_at_first(), PAIRS_AT_ONCE);
        while at.0 < window.len() {
            let (spans, end) = spans(&pairs, at, most);
            let load = match self.load(window, &counts, &spans) {
                Err(Stopped::Rows(Unordered::Memory(_))) if most > CHUNK => {
                    most = (most / 2).next_multiple_of(CHUNK);
                    continue;
                }
                load => load?,
            };
            for (span, rows) in spans.iter().zip(&load.rows) {
                let (keyed, counts) = (&window[span.batch], &counts[span.batch]);
                let mut take = self.probing.take(&mut *given);
                let pairs = self.probing.pairs(&keyed.batch, &load.batches, &mut take);
                let mut pairs = pairs.map_err(Stopped::Taken)?;
                if span.pairs.start > 0 {
                    *pairs.at_once() = at_once;
                }
                let mut first = 0;
                for (row, count) in (0..).zip(counts) {
                    let of_row = first..first + self.pairs_of(*count);
                    first = of_row.end;
                    let within = of_row.start.max(span.pairs.start)..of_row.end.min(span.pairs.end);
                    if within.is_empty() {
                        continue;
                    }
                    let [from, to] = [within.start, within.end].map(|pair| (pair - span.pairs.start) as usize);
                    // Of a row without pairs it matters alone whether it matches any.
                    let rows = match *count {
                        0 => &[][..],
                        _ if self.has_pairs() => &rows[from..to],
                        _ => &[Pick { batch: 0, row: 0 }][..],
                    };
                    self.probing.push(&mut pairs, row, rows)?;
                }
                pairs.write()?;
                at_once = *pairs.at_once();
            }
            at = end;
        }
        Ok(())
    }

    fn has_pairs(&self) -> bool {
        self.probing.arranged.query.kind.has_pairs()
    }

    /// How many rows are written of a row of the large table that matches so many.
    fn pairs_of(&self, count: u32) -> u64 {
        let kind = self.probing.arranged.query.kind;
        match (count, kind) {
            (0, _) => u64::from(kind.keeps(self.probing.side.other())),
            (_, JoinKind::Anti) => 0,
            (_, JoinKind::Semi) => 1,
            (count, _) => u64::from(count),
        }
    }

    /// How many pairs a load has, where all of them have rows as long as others: as many bytes as a window.
    fn pairs_at_first(&self) -> u64 {
        let of_small = |of: fn(&PartMeta) -> u64| self.small.iter().flat_map(InPlace::parts).map(of).sum::<u64>();
        let (bytes, rows) = (of_small(|part| part.bytes), of_small(|part| part.rows));
        let pairs = self.window_bytes / (PAIR_BYTES + bytes / rows.max(1));
        pairs.next_multiple_of(CHUNK).max(CHUNK)
    }

    /// How many rows of the small table match each row of each batch.
    fn counts(&self, window: &[Keyed]) -> Result<Vec<Vec<u32>>, Stopped<TaskError>> {
        let mut counts: Vec<Vec<u32>> = window.iter().map(|keyed| vec![0; keyed.batch.num_rows()]).collect();
        self.each_piece(|found| {
            for (keyed, counts) in window.iter().zip(&mut counts) {
                counts.iter_mut().zip(found.of_batch(keyed)).for_each(|(count, rows)| *count += rows.len() as u32);
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// The rows of the small table that pairs of these spans have.
    fn load(&self, window: &[Keyed], counts: &[Vec<u32>], spans: &[Span]) -> Result<Load, Stopped<TaskError>> {
        let budget = self.probing.budget.shared();
        if !self.has_pairs() {
            let rows = spans.iter().map(|_| Vec::new()).collect();
            return Ok(Load { batches: Vec::new(), rows, _memory: Reservation::none(&budget) });
        }
        let pairs: u64 = spans.iter().map(|span| span.pairs.end - span.pairs.start).sum();
        let mut memory = Reservation::of(&budget, PAIR_BYTES * pairs).map_err(Unordered::from)?;
        let none = |span: &Span| vec![Pick { batch: 0, row: 0 }; (span.pairs.end - span.pairs.start) as usize];
        let (mut batches, mut rows) = (Vec::new(), spans.iter().map(none).collect::<Vec<_>>());
        let mut met: Vec<Vec<u32>> = spans.iter().map(|span| vec![0; counts[span.batch].len()]).collect();
        self.each_piece(|found| {
            let first_rows: Vec<usize> = found
                .batches
                .iter()
                .scan(0, |first, batch| {
                    *first += batch.num_rows();
                    Some(*first - batch.num_rows())
                })
                .collect();
            let of_piece = found.batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            let _of_piece = Reservation::of(&budget, PIECE_ROW_BYTES * of_piece as u64).map_err(Unordered::from)?;
            // Which of those that are copied each row of the piece is, and which rows these are.
            let (mut numbers, mut copied, mut all_met) = (vec![u32::MAX; of_piece], Vec::new(), Vec::new());
            for (number, (span, met)) in (0..).zip(spans.iter().zip(&mut met)) {
                let mut first = 0;
                let of_rows = counts[span.batch].iter().zip(met).zip(found.of_batch(&window[span.batch]));
                for ((count, met), found) in of_rows {
                    let pair = first + u64::from(*met);
                    first += self.pairs_of(*count);
                    *met += found.len() as u32;
                    for (pair, pick) in (pair..).zip(found).filter(|(pair, _)| span.pairs.contains(pair)) {
                        let row = &mut numbers[first_rows[pick.batch as usize] + pick.row as usize];
                        if *row == u32::MAX {
                            *row = copied.len() as u32;
                            copied.push(*pick);
                        }
                        all_met.push(Met { span: number, pair: (pair - span.pairs.start) as u32, row: *row });
                    }
                }
            }
            let gather = Gather::new(self.layout.clone(), &found.batches)?;
            let mut places = Vec::with_capacity(copied.len());
            for message in gather.messages(&copied, &Limits::default())? {
                memory.resize(memory.bytes() + message.bytes()).map_err(Unordered::from)?;
                let batch = batches.len() as u32;
                places.extend((0..message.rows().len() as u32).map(|row| Pick { batch, row }));
                batches.push(message.batch()?);
            }
            all_met.iter().for_each(|met| rows[met.span as usize][met.pair as usize] = places[met.row as usize]);
            Ok(())
        })?;
        Ok(Load { batches, rows, _memory: memory })
    }

    /// Calls `each` with the rows of each piece of the small table, in their order.
    fn each_piece(
        &self,
        mut each: impl FnMut(&mut Found) -> Result<(), Stopped<TaskError>>,
    ) -> Result<(), Stopped<TaskError>> {
        let budget = self.probing.budget.shared();
        for object in &self.small {
            for part in object.parts() {
                self.probing.signal.check().map_err(Stopped::Taken)?;
                let _memory = Reservation::of(&budget, part.bytes).map_err(Unordered::from)?;
                let mut bytes = MutableBuffer::from_len_zeroed(part.bytes as usize);
                object.read(part.offset, bytes.as_slice_mut()).map_err(TableError::Store)?;
                let batches = self.batches(part, bytes)?;
                each(&mut Found::of(batches, &self.probing.of_small, &budget)?)?;
            }
        }
        Ok(())
    }

    /// The rows of a part, which has these bytes.
    #[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
    fn batches(&self, part: &PartMeta, bytes: MutableBuffer) -> Result<Vec<RecordBatch>, TableError> {
        // SAFETY: it is an output of the task `small`, which writes with a `Gather` and runs in the node.
        let mut messages = unsafe { Messages::of_bytes(vec![self.layout.clone()], bytes.into()) };
        let batches = (&mut messages).map(|message| message.map(|(_, batch)| batch)).collect::<Result<Vec<_>, _>>()?;
        let read = messages.read();
        match (read.rows, read.row_hash) == (part.rows, part.row_hash) {
            true => Ok(batches),
            // What is read where it lies nobody else has verified.
            false => Err(TableError::NotABlock { at: 0, what: "its bytes are not those that were written".to_owned() }),
        }
    }
}

/// The next pairs, up to so many, of batches of so many pairs each, from a pair of a batch on; and which pair is next then.
fn spans(pairs: &[u64], (mut batch, mut pair): (usize, u64), most: u64) -> (Vec<Span>, (usize, u64)) {
    let (mut spans, mut left) = (Vec::new(), most);
    while batch < pairs.len() && left > 0 {
        let to = pairs[batch].min(pair + left);
        if to > pair {
            spans.push(Span { batch, pairs: pair..to });
        }
        // A load ends where pairs are given out.
        left = left.saturating_sub((to - pair).next_multiple_of(CHUNK));
        (batch, pair) = if to == pairs[batch] { (batch + 1, 0) } else { (batch, to) };
    }
    (spans, (batch, pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_each_pair_once_and_end_where_pairs_are_given_out() {
        let pairs = [3 * CHUNK + 5, 0, 7, CHUNK, 2 * CHUNK];
        for most in [CHUNK, 2 * CHUNK, 3 * CHUNK, 100 * CHUNK] {
            let (mut at, mut next) = ((0, 0), [0; 5]);
            while at.0 < pairs.len() {
                let (spans, end) = spans(&pairs, at, most);
                assert!(spans.iter().map(|span| span.pairs.end - span.pairs.start).sum::<u64>() <= most);
                for span in spans {
                    assert_eq!(span.pairs.start, next[span.batch]);
                    let is_end = span.pairs.end == pairs[span.batch];
                    assert!(is_end || span.pairs.end.is_multiple_of(CHUNK), "{:?}", span.pairs);
                    next[span.batch] = span.pairs.end;
                }
                at = end;
            }
            assert_eq!(next, pairs, "{most} at a time");
        }
    }
}
