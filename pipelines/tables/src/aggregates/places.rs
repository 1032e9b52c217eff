//! What the first and the last row of each group have.
//!
//! Of a batch only the rows that are kept are copied, all of them at once, into a *chunk*; groups say where in which chunk their value is. What no group has any more is left behind when
//! all values are copied into one chunk, now and then.

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, UInt64Array, cast::AsArray, new_null_array};
use arrow_schema::DataType;

use super::Accumulator;
use super::picked::Picker;
use crate::TableError;
use crate::block::Pick;

/// Values are copied into one chunk when there are more chunks, ...
const CHUNKS_MAX: usize = 256;
/// ... or when so many more rows than twice the groups are in them.
const ROWS_MORE: usize = 8192;

/// The value of the row with the least place of each group, or with the greatest.
pub(super) struct Placed<const LAST: bool> {
    data_type: DataType,
    picker: Picker,
    slots: Vec<Slot>,
    /// Of the plain type.
    chunks: Vec<ArrayRef>,
    chunk_rows: usize,
    chunk_bytes: usize,
    /// Groups that a batch changes.
    changed: Vec<u32>,
}

/// Which value a group has.
#[derive(Clone, Copy)]
struct Slot {
    /// Falls with places where the last one counts: the least rank counts.
    rank: u64,
    /// [`NONE`]: no row was seen.
    chunk: u32,
    row: u32,
}

const NONE: u32 = u32::MAX;

impl<const LAST: bool> Placed<LAST> {
    /// Of a column of this plain type.
    pub(super) fn new(data_type: &DataType) -> Result<Self, TableError> {
        Ok(Self {
            data_type: data_type.clone(),
            picker: Picker::new(data_type)?,
            slots: Vec::new(),
            chunks: Vec::new(),
            chunk_rows: 0,
            chunk_bytes: 0,
            changed: Vec::new(),
        })
    }

    fn rank(place: u64) -> u64 {
        if LAST { !place } else { place }
    }

    /// Notes rows that come before those of their groups, and copies their values.
    fn note(&mut self, rows: impl Iterator<Item = (u32, u64)>, values: &ArrayRef) -> Result<(), TableError> {
        let current = self.chunks.len() as u32;
        self.changed.clear();
        for (row, (group, place)) in rows.enumerate() {
            let (slot, rank) = (&mut self.slots[group as usize], Self::rank(place));
            // No two rows have one place, and a group without a row has the last rank of all.
            if rank <= slot.rank {
                if slot.chunk != current {
                    slot.chunk = current;
                    self.changed.push(group);
                }
                (slot.rank, slot.row) = (rank, row as u32);
            }
        }
        if self.changed.is_empty() {
            return Ok(());
        }
        let picks: Vec<Pick> = self
            .changed
            .iter()
            .map(|group| self.slots[*group as usize].row)
            .map(|row| Pick { batch: 0, row })
            .collect();
        for (row, group) in self.changed.iter().enumerate() {
            self.slots[*group as usize].row = row as u32;
        }
        let chunk = self.picker.picked(std::slice::from_ref(values), &picks)?;
        self.push(chunk);
        if self.chunks.len() > CHUNKS_MAX || self.chunk_rows > 2 * self.slots.len() + ROWS_MORE {
            self.compact()?;
        }
        Ok(())
    }

    fn push(&mut self, chunk: ArrayRef) {
        self.chunk_rows += chunk.len();
        self.chunk_bytes += chunk.get_array_memory_size();
        self.chunks.push(chunk);
    }

    fn compact(&mut self) -> Result<(), TableError> {
        let with_value = self.slots.iter().filter(|slot| slot.chunk != NONE);
        let picks: Vec<Pick> = with_value.map(|slot| Pick { batch: slot.chunk, row: slot.row }).collect();
        let chunk = self.picker.picked(&self.chunks, &picks)?;
        for (row, slot) in self.slots.iter_mut().filter(|slot| slot.chunk != NONE).enumerate() {
            (slot.chunk, slot.row) = (0, row as u32);
        }
        self.chunks.clear();
        (self.chunk_rows, self.chunk_bytes) = (0, 0);
        self.push(chunk);
        Ok(())
    }
}

impl<const LAST: bool> Accumulator for Placed<LAST> {
    fn resize(&mut self, groups: usize) {
        self.slots.resize(groups, Slot { rank: u64::MAX, chunk: NONE, row: 0 });
    }

    fn update(
        &mut self,
        groups: &[u32],
        argument: Option<&ArrayRef>,
        places: Option<&[u64]>,
    ) -> Result<(), TableError> {
        let (argument, places) = (argument.expect("values"), places.expect("places of rows"));
        assert_eq!(groups.len(), places.len(), "a place for each row");
        self.note(groups.iter().copied().zip(places.iter().copied()), argument)
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let places = states[0].as_primitive::<UInt64Type>();
        if places.null_count() == 0 {
            return self.note(groups.iter().copied().zip(places.values().iter().copied()), &states[1]);
        }
        // Groups without a row have nothing to add.
        let rows = || (0..groups.len()).filter(|row| places.is_valid(*row));
        let with_rows: Vec<(u32, u64)> = rows().map(|row| (groups[row], places.value(row))).collect();
        let picks: Vec<Pick> = rows().map(|row| Pick { batch: 0, row: row as u32 }).collect();
        let values = self.picker.picked(&states[1..], &picks)?;
        self.note(with_rows.into_iter(), &values)
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        let place = |group: &u32| {
            let slot = self.slots[*group as usize];
            (slot.chunk != NONE).then(|| Self::rank(slot.rank))
        };
        let places: UInt64Array = order.iter().map(place).collect();
        Ok(vec![Arc::new(places), self.finish(order)?])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        let mut chunks = self.chunks.clone();
        chunks.push(new_null_array(&self.data_type, 1));
        let pick = |group: &u32| match self.slots[*group as usize] {
            Slot { chunk: NONE, .. } => Pick { batch: self.chunks.len() as u32, row: 0 },
            slot => Pick { batch: slot.chunk, row: slot.row },
        };
        self.picker.picked(&chunks, &order.iter().map(pick).collect::<Vec<_>>())
    }

    fn bytes(&self) -> u64 {
        let slots = size_of::<Slot>() * self.slots.capacity() + 4 * self.changed.capacity();
        (slots + self.chunk_bytes) as u64
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.chunks.clear();
        (self.chunk_rows, self.chunk_bytes) = (0, 0);
    }
}
