//! Rows of batches in order.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::arrangement::{Arranged, Arranger, places};
use super::entries::{ENTRY_BYTES, Entry, Rows, in_common, in_order};
use super::kept::{Decided, Kept};
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::jobs::dedupe::Keep;
use crate::sources::{MemoryBudget, Reservation};

/// What a batch takes besides its rows, for each of its columns.
pub(super) const COLUMN_BYTES: u64 = 256;

/// Rows of batches whose last column says where in the input each row is. In order, they are in the order of the arrangement, rows that it does not tell apart as in the input: the same on
/// any node, whatever rows came first.
pub(in crate::jobs) struct Ordered<'a> {
    arranger: &'a Arranger,
    memory: Reservation,
    batches: Vec<RecordBatch>,
    rows: Vec<Arranged>,
    entries: Vec<Entry>,
}

impl<'a> Ordered<'a> {
    pub(in crate::jobs) fn new(arranger: &'a Arranger, budget: &Arc<dyn MemoryBudget>) -> Self {
        let memory = Reservation::none(budget);
        Self { arranger, memory, batches: Vec::new(), rows: Vec::new(), entries: Vec::new() }
    }

    /// Adds a batch.
    pub(in crate::jobs) fn add(&mut self, batch: RecordBatch) -> Result<(), Unordered> {
        // Where one row of each key stays, those that do are put elsewhere.
        let of_row = ENTRY_BYTES + self.arranger.keep.map_or(0, |_| size_of::<Entry>() as u64);
        let (rows, columns) = (batch.num_rows() as u64 * of_row, batch.num_columns() as u64 * COLUMN_BYTES);
        let measured = self.arranger.measure(&batch)?;
        let bytes = measured.bytes()? + rows + columns;
        self.memory.resize(self.memory.bytes() + bytes)?;
        self.rows.push(measured.arrange()?);
        self.batches.push(batch);
        Ok(())
    }

    /// Puts them in order. Where one row of each key is to stay, the others are no longer there then.
    pub(in crate::jobs) fn sort(&mut self, keep: Option<Keep>) {
        let common = self.common_bytes();
        let entries = || {
            (0..).zip(&self.rows).flat_map(|(batch, rows)| {
                let entry = move |row| Entry::new(&rows.keys.get(row)[common..], Pick { batch, row: row as u32 });
                (0..rows.keys.len()).map(entry)
            })
        };
        let count = self.rows.iter().map(|rows| rows.keys.len()).sum();
        let Some(keep) = keep else {
            self.entries = in_order(self, count, entries, |_| ());
            return;
        };
        let (mut of_key, mut kept) = (Kept::new(keep), Vec::with_capacity(count));
        in_order(self, count, entries, |alike| match alike {
            [entry] => kept.extend(of_key.end().into_iter().chain([*entry])),
            _ => alike.iter().for_each(|entry| {
                if let Some(Decided::Stays(entry)) = of_key.add(self.key(entry.pick()), *entry) {
                    kept.push(entry);
                }
            }),
        });
        kept.extend(of_key.end());
        self.entries = kept;
    }

    /// How many bytes all keys begin with alike.
    fn common_bytes(&self) -> usize {
        let mut keys = self.rows.iter().flat_map(|rows| (0..rows.keys.len()).map(|row| rows.keys.get(row)));
        let Some(first) = keys.next() else { return 0 };
        keys.fold(first.len(), |common, key| in_common(first, common, key))
    }

    fn key(&self, pick: Pick) -> &[u8] {
        self.rows[pick.batch as usize].keys.get(pick.row as usize)
    }

    fn place(&self, pick: Pick) -> u64 {
        places(&self.batches[pick.batch as usize])[pick.row as usize]
    }

    pub(in crate::jobs) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::jobs) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// A row of the order: its key, its batch, and its number in that.
    pub(in crate::jobs) fn row(&self, at: usize) -> (&[u8], &RecordBatch, usize) {
        let pick = self.entries[at].pick();
        (self.key(pick), &self.batches[pick.batch as usize], pick.row as usize)
    }

    /// Which rows stand at these places of the order.
    pub(in crate::jobs) fn picks(&self, range: Range<usize>) -> impl Iterator<Item = Pick> {
        self.entries[range].iter().map(|entry| entry.pick())
    }

    /// Where in the order rows begin of which this is not true, given key and place; it is true of all before.
    pub(in crate::jobs) fn end_of(&self, from: usize, is_before: impl Fn(&[u8], u64) -> bool) -> usize {
        let is_before = |entry: &Entry| is_before(self.key(entry.pick()), self.place(entry.pick()));
        from + self.entries[from..].partition_point(is_before)
    }
}

impl Rows for Ordered<'_> {
    fn compare(&self, one: Pick, other: Pick) -> Ordering {
        let row = |pick: Pick| self.rows[pick.batch as usize].row(pick.row as usize);
        row(one).cmp(&row(other)).then_with(|| self.place(one).cmp(&self.place(other)))
    }

    fn rows(&self, pick: Pick) -> (&Arranged, usize) {
        (&self.rows[pick.batch as usize], pick.row as usize)
    }
}
