//! Rows of batches in order.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use exobus_actors::registry::TaskError;

use super::arrangement::{Arranged, Arranger, places};
use crate::block::Pick;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::dedupe::Keep;
use crate::sources::Reservation;

/// Of each row: what is compared first, and where it is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of its key behind those that all keys have.
    prefix: u64,
    pick: Pick,
}

/// What an entry takes, with what the sort of it takes.
const ENTRY_BYTES: u64 = 2 * size_of::<Entry>() as u64;
/// What a batch takes besides its rows, for each of its columns.
const COLUMN_BYTES: u64 = 256;

/// Rows of batches whose last column says where in the input each row is. In order, they are in the order of the arrangement, rows that it does not tell apart as in the input: the same on
/// any node, whatever rows came first.
pub(super) struct Ordered<'a> {
    arranger: &'a Arranger,
    budget: Arc<TaskBudget>,
    memory: Reservation,
    batches: Vec<RecordBatch>,
    rows: Vec<Arranged>,
    entries: Vec<Entry>,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(arranger: &'a Arranger, budget: &Arc<TaskBudget>) -> Self {
        let memory = Reservation::none(&budget.shared());
        Self { arranger, budget: budget.clone(), memory, batches: Vec::new(), rows: Vec::new(), entries: Vec::new() }
    }

    /// Adds a batch.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<(), TaskError> {
        let (rows, columns) = (batch.num_rows() as u64 * ENTRY_BYTES, batch.num_columns() as u64 * COLUMN_BYTES);
        let bytes = self.arranger.bytes(&batch).map_err(of_table)? + rows + columns;
        self.memory.resize(self.memory.bytes() + bytes).map_err(|denied| self.budget.of_rows(denied))?;
        self.rows.push(self.arranger.arrange(&batch).map_err(of_table)?);
        self.batches.push(batch);
        Ok(())
    }

    /// Puts them in order.
    pub(super) fn sort(&mut self) {
        let common = self.common_bytes();
        self.entries = Vec::with_capacity(self.rows.iter().map(|rows| rows.keys.len()).sum());
        for (batch, rows) in (0..).zip(&self.rows) {
            let entry = |row| {
                let prefix = prefix(&rows.keys.get(row)[common..]);
                Entry { prefix, pick: Pick { batch, row: row as u32 } }
            };
            self.entries.extend((0..rows.keys.len()).map(entry));
        }
        let mut entries = std::mem::take(&mut self.entries);
        // What comes in runs is merged: this sort finds them.
        entries.sort_by(|one, other| one.prefix.cmp(&other.prefix).then_with(|| self.compare(one.pick, other.pick)));
        self.entries = entries;
    }

    /// How many bytes all keys begin with alike.
    fn common_bytes(&self) -> usize {
        let mut keys = self.rows.iter().flat_map(|rows| (0..rows.keys.len()).map(|row| rows.keys.get(row)));
        let Some(first) = keys.next() else { return 0 };
        keys.fold(first.len(), |common, key| match key.get(..common) {
            Some(begin) if begin == &first[..common] => common,
            _ => first[..common].iter().zip(key).take_while(|(one, other)| one == other).count(),
        })
    }

    fn compare(&self, one: Pick, other: Pick) -> Ordering {
        let ties = |pick: Pick| self.rows[pick.batch as usize].ties.as_ref().map(|ties| ties.get(pick.row as usize));
        let by_ties = || ties(one).cmp(&ties(other));
        let by_place = || self.place(one).cmp(&self.place(other));
        self.key(one).cmp(self.key(other)).then_with(by_ties).then_with(by_place)
    }

    fn key(&self, pick: Pick) -> &[u8] {
        self.rows[pick.batch as usize].keys.get(pick.row as usize)
    }

    fn place(&self, pick: Pick) -> u64 {
        places(&self.batches[pick.batch as usize])[pick.row as usize]
    }

    /// Leaves the row of each key that is to stay; the others.
    pub(super) fn keep(&mut self, keep: Keep) -> Vec<Pick> {
        let (mut entries, mut kept, mut dropped) = (std::mem::take(&mut self.entries), 0, Vec::new());
        for at in 0..entries.len() {
            let entry = entries[at];
            let is_of = |last: &Entry| last.prefix == entry.prefix && self.key(last.pick) == self.key(entry.pick);
            match (entries[..kept].last().is_some_and(is_of), keep) {
                (false, _) => {
                    entries[kept] = entry;
                    kept += 1;
                }
                (true, Keep::First) => dropped.push(entry.pick),
                (true, Keep::Last) => dropped.push(std::mem::replace(&mut entries[kept - 1], entry).pick),
            }
        }
        entries.truncate(kept);
        self.entries = entries;
        dropped
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Which rows stand at these places of the order.
    pub(super) fn picks(&self, range: Range<usize>) -> Vec<Pick> {
        self.entries[range].iter().map(|entry| entry.pick).collect()
    }

    /// Where in the order rows begin of which this is not true, given key and place; it is true of all before.
    pub(super) fn end_of(&self, from: usize, is_before: impl Fn(&[u8], u64) -> bool) -> usize {
        let is_before = |entry: &Entry| is_before(self.key(entry.pick), self.place(entry.pick));
        from + self.entries[from..].partition_point(is_before)
    }
}

/// The first bytes of a key as a number in their order.
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}
