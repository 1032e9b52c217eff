//! Rows of the small table, or of a piece of it, by their keys.

use std::sync::Arc;

use arrow_array::{Array as _, BinaryArray, RecordBatch};

use super::probe::Keyed;
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::jobs::group::{Groups, NONE};
use crate::semantics::KeyEncoder;
use crate::sources::{MemoryBudget, Reservation};

/// What a row takes beside its key: its place, and its group while these are counted.
const ROW_BYTES: u64 = (size_of::<Pick>() + 2 * size_of::<u32>()) as u64;

/// See the module.
pub(super) struct Found {
    pub(super) batches: Vec<RecordBatch>,
    groups: Groups,
    /// Where the rows of each group end among all.
    ends: Vec<u32>,
    /// The rows of each group, in their order.
    rows: Vec<Pick>,
    /// Of the keys of a batch of the large table.
    numbers: Vec<u32>,
    _memory: Reservation,
}

impl Found {
    /// Of these batches, whose keys have no nulls.
    ///
    /// # Errors
    /// More memory is needed than there is; keys that are too large.
    pub(super) fn of(
        batches: Vec<RecordBatch>,
        encoder: &KeyEncoder,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, Unordered> {
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut memory = Reservation::of(budget, ROW_BYTES * count as u64)?;
        let (mut groups, mut numbers, mut all) = (Groups::default(), Vec::new(), Vec::with_capacity(count));
        for batch in &batches {
            let measured = encoder.measure(batch)?;
            let keys = Reservation::of(budget, measured.bytes()?)?;
            let encoded = measured.encode()?.into_array()?;
            let of_keys = groups.bytes_with(encoded.len(), encoded.value_data().len());
            memory.at_least(ROW_BYTES * count as u64 + of_keys)?;
            groups.intern(&encoded, &mut numbers)?;
            drop(keys);
            all.extend_from_slice(&numbers);
        }
        // How many rows each group has, then where they begin, and, when all of them are there, where they end.
        let mut ends = vec![0_u32; groups.len()];
        all.iter().for_each(|group| ends[*group as usize] += 1);
        let mut begin = 0;
        ends.iter_mut().for_each(|end| begin += std::mem::replace(end, begin));
        let mut rows = vec![Pick { batch: 0, row: 0 }; count];
        let picks = (0..)
            .zip(&batches)
            .flat_map(|(batch, rows)| (0..rows.num_rows() as u32).map(move |row| Pick { batch, row }));
        for (group, pick) in all.iter().zip(picks) {
            let end = &mut ends[*group as usize];
            rows[*end as usize] = pick;
            *end += 1;
        }
        drop(all);
        memory.resize(ROW_BYTES * count as u64 + groups.bytes())?;
        Ok(Self { batches, groups, ends, rows, numbers, _memory: memory })
    }

    /// Whether no two rows have the same key.
    pub(super) fn is_unique(&self) -> bool {
        self.groups.len() == self.rows.len()
    }

    /// Of each of these keys the first row that has it, of the only batch; `None`: there is none.
    pub(super) fn first_of(&mut self, keys: &BinaryArray) -> impl Iterator<Item = Option<u32>> {
        self.groups.find(keys, &mut self.numbers);
        let (numbers, ends, rows) = (&self.numbers, &self.ends, &self.rows);
        numbers.iter().map(move |group| {
            let from = match *group {
                NONE => return None,
                0 => 0,
                group => ends[group as usize - 1],
            };
            Some(rows[from as usize].row)
        })
    }

    /// The rows that have the key of each row of a batch of the large table, row by row: none, where that has a null.
    pub(super) fn of_batch(&mut self, of: &Keyed) -> impl Iterator<Item = &[Pick]> {
        self.groups.find(&of.keys, &mut self.numbers);
        let (numbers, ends, rows) = (&self.numbers, &self.ends, &self.rows);
        numbers.iter().enumerate().map(move |(row, group)| {
            if *group == NONE || of.has_null(row) {
                return &[][..];
            }
            let from = if *group == 0 { 0 } else { ends[*group as usize - 1] };
            &rows[from as usize..ends[*group as usize] as usize]
        })
    }
}
