//! Rows of batches in the order of their keys.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt64Array};
use exobus_actors::registry::TaskError;

use super::budget::{TaskBudget, of_table};
use crate::block::Pick;
use crate::semantics::{KeyEncoder, KeyRows};
use crate::sources::Reservation;

/// Of each row: what is compared first, and where it is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of its key.
    prefix: u64,
    pick: Pick,
}

/// What an entry takes, with what the sort of it takes.
const ENTRY_BYTES: u64 = 2 * size_of::<Entry>() as u64;
/// What a batch takes besides its rows, for each of its columns.
const COLUMN_BYTES: u64 = 256;

/// Rows of batches whose last column says where in the input each row is. In order, they are in the order of their keys, rows of one key as in the input: the same on
/// any node, whatever rows came first.
pub(super) struct Ordered<'a> {
    encoder: &'a KeyEncoder,
    budget: Arc<TaskBudget>,
    memory: Reservation,
    batches: Vec<RecordBatch>,
    places: Vec<UInt64Array>,
    keys: Vec<KeyRows>,
    entries: Vec<Entry>,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(encoder: &'a KeyEncoder, budget: &Arc<TaskBudget>) -> Self {
        Self {
            encoder,
            budget: budget.clone(),
            memory: Reservation::none(&budget.shared()),
            batches: Vec::new(),
            places: Vec::new(),
            keys: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Adds a batch.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<(), TaskError> {
        let rows = batch.num_rows();
        let columns = batch.num_columns() as u64 * COLUMN_BYTES;
        let bytes = self.encoder.bytes(&batch).map_err(of_table)? + rows as u64 * ENTRY_BYTES + columns;
        self.memory.resize(self.memory.bytes() + bytes).map_err(|denied| self.budget.of_rows(denied))?;
        let keys = self.encoder.encode(&batch).map_err(of_table)?;
        let number = self.batches.len() as u32;
        self.entries.extend(
            (0..rows).map(|row| Entry { prefix: prefix(keys.get(row)), pick: Pick { batch: number, row: row as u32 } }),
        );
        self.places.push(batch.columns().last().expect("a column of places").as_primitive::<UInt64Type>().clone());
        self.keys.push(keys);
        self.batches.push(batch);
        Ok(())
    }

    /// Puts them in order.
    pub(super) fn sort(&mut self) {
        let (keys, places) = (&self.keys, &self.places);
        self.entries = Vec::with_capacity(keys.iter().map(KeyRows::len).sum());
        for (batch, keys) in (0..).zip(keys) {
            let entry = |row| Entry { prefix: prefix(keys.get(row)), pick: Pick { batch, row: row as u32 } };
            self.entries.extend((0..keys.len()).map(entry));
        }
        let key = |pick: Pick| keys[pick.batch as usize].get(pick.row as usize);
        let place = |pick: Pick| places[pick.batch as usize].value(pick.row as usize);
        // What comes in runs is merged: this sort finds them.
        self.entries.sort_by(|one, other| {
            one.prefix
                .cmp(&other.prefix)
                .then_with(|| key(one.pick).cmp(key(other.pick)))
                .then_with(|| place(one.pick).cmp(&place(other.pick)))
        });
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

    /// Where in the order rows begin of which this is not true; it is true of all before.
    pub(super) fn end_of(&self, from: usize, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let key = |pick: Pick| self.keys[pick.batch as usize].get(pick.row as usize);
        from + self.entries[from..].partition_point(|entry| is_before(key(entry.pick)))
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
