//! Rows as a map has them: what a batch costs beside its rows is little against these, however many files they are of.

use std::sync::Arc;

use arrow_array::RecordBatch;
use exobus_actors::ids::RowHash;

use super::arrangement::places;
use super::ordered::COLUMN_BYTES;
use crate::TableError;
use crate::block::{Gather, Layout, Limits, Pick};
use crate::jobs::budget::Unordered;
use crate::jobs::table::Piece;
use crate::reading::ReadRows;
use crate::sources::{MemoryBudget, MemoryDenied, Reservation, value_bytes};

/// Bytes of values for each column from which on a batch is not small, and most bytes of a small batch.
const SMALL_COLUMN_BYTES: u64 = 16 << 10;
const SMALL_BYTES: u64 = 2 << 20;
/// What a batch that was read has for each column beside what its source asked for: fields and arrays, as the file has them, as they are read and as the table has them.
const READ_COLUMN_BYTES: u64 = 4 * COLUMN_BYTES;
/// Small batches are put together when so many are there, or when they have so much.
const TOGETHER_MAX: usize = 64;
const TOGETHER_BYTES: u64 = 4 << 20;
/// Fewer are never put together that were put together before: each time there are so many times fewer.
const TOGETHER_MIN: usize = 4;

/// What small batches of so many splits take while they are not put together yet, beside their values.
pub(super) fn small_bytes(splits: u64, columns: u64) -> u64 {
    splits.saturating_mul(columns).saturating_mul(READ_COLUMN_BYTES).min(TOGETHER_BYTES)
}

/// Some rows, whose last column says where in the input each is.
pub(in crate::jobs) struct Batch<'a> {
    pub(in crate::jobs) rows: RecordBatch,
    /// Of the rows without their places, where anybody asks for them.
    pub(super) hashes: Vec<RowHash>,
    /// What was read that they point to, and in which piece; of rows that were put together nothing.
    pub(super) read: Option<(&'a Piece, ReadRows)>,
    memory: Reservation,
}

impl<'a> Batch<'a> {
    /// Rows that were read.
    pub(in crate::jobs) fn read(
        (rows, hashes): (RecordBatch, Vec<RowHash>),
        read: (&'a Piece, ReadRows),
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, MemoryDenied> {
        let memory = Reservation::of(budget, READ_COLUMN_BYTES * rows.num_columns() as u64)?;
        Ok(Self { rows, hashes, read: Some(read), memory })
    }

    /// Rows that do not point to what was read.
    pub(in crate::jobs) fn copied(rows: RecordBatch, budget: &Arc<dyn MemoryBudget>) -> Result<Self, MemoryDenied> {
        let bytes = value_bytes(&rows, 0..rows.num_rows()) + COLUMN_BYTES * rows.num_columns() as u64;
        Ok(Self { rows, hashes: Vec::new(), read: None, memory: Reservation::of(budget, bytes)? })
    }

    /// The place of one of its rows.
    pub(super) fn place(&self, row: usize) -> u64 {
        places(&self.rows)[row]
    }

    fn value_bytes(&self) -> u64 {
        value_bytes(&self.rows, 0..self.rows.num_rows())
    }

    fn is_small(&self) -> bool {
        self.value_bytes() < (self.rows.num_columns() as u64 * SMALL_COLUMN_BYTES).min(SMALL_BYTES)
    }

    /// What is let go of where its rows are put together with others.
    fn held_bytes(&self) -> u64 {
        let read = self.read.as_ref().map_or(0, |(_, rows)| self.value_bytes() + rows.memory_bytes());
        read + self.memory.bytes()
    }
}

/// Why rows are not put together.
#[derive(Debug)]
pub(in crate::jobs) struct NotPacked {
    pub(in crate::jobs) error: Unordered,
    /// The place of the row that the error is about.
    pub(in crate::jobs) place: Option<u64>,
}

impl From<MemoryDenied> for NotPacked {
    fn from(denied: MemoryDenied) -> Self {
        Self { error: denied.into(), place: None }
    }
}

/// Puts small batches together, and those that are small then once more, until they are not: what they were read from is no longer held then.
pub(in crate::jobs) struct Packer<'a> {
    layout: Arc<Layout>,
    budget: Arc<dyn MemoryBudget>,
    /// Small batches by how often their rows were put together.
    levels: Vec<Vec<Batch<'a>>>,
}

impl<'a> Packer<'a> {
    pub(in crate::jobs) fn new(layout: &Arc<Layout>, budget: &Arc<dyn MemoryBudget>) -> Self {
        Self { layout: layout.clone(), budget: budget.clone(), levels: Vec::new() }
    }

    /// Takes a batch; those that are not small are put behind `packed`.
    pub(in crate::jobs) fn add(&mut self, batch: Batch<'a>, packed: &mut Vec<Batch<'a>>) -> Result<(), NotPacked> {
        self.add_to(0, batch, packed)
    }

    fn add_to(&mut self, level: usize, batch: Batch<'a>, packed: &mut Vec<Batch<'a>>) -> Result<(), NotPacked> {
        if !batch.is_small() {
            packed.push(batch);
            return Ok(());
        }
        if level == self.levels.len() {
            self.levels.push(Vec::new());
        }
        let batches = &mut self.levels[level];
        batches.push(batch);
        let least = if level == 0 { 1 } else { TOGETHER_MIN };
        let is_much = batches.iter().map(Batch::held_bytes).sum::<u64>() >= TOGETHER_BYTES;
        if batches.len() < TOGETHER_MAX && !(is_much && batches.len() >= least) {
            return Ok(());
        }
        let batches = std::mem::take(batches);
        together(&self.layout, batches, &self.budget)?
            .into_iter()
            .try_for_each(|batch| self.add_to(level + 1, batch, packed))
    }

    /// Puts those behind `packed` that are left, whatever they have.
    pub(in crate::jobs) fn finish(self, packed: &mut Vec<Batch<'a>>) -> Result<(), NotPacked> {
        let left: Vec<_> = self.levels.into_iter().flatten().collect();
        packed.extend(match left.len() {
            0 | 1 => left,
            _ => together(&self.layout, left, &self.budget)?,
        });
        Ok(())
    }
}

/// The rows of these batches in as few as messages have room for.
fn together<'a>(
    layout: &Arc<Layout>,
    batches: Vec<Batch<'a>>,
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Vec<Batch<'a>>, NotPacked> {
    let refused = |error: TableError| {
        let place = error.of_row().map(|(batch, row, _)| batches[batch].place(row));
        NotPacked { error: error.into(), place }
    };
    let rows: Vec<RecordBatch> = batches.iter().map(|batch| batch.rows.clone()).collect();
    let gather = Gather::new(layout.clone(), &rows).map_err(refused)?;
    let picks: Vec<Pick> = (0..)
        .zip(&rows)
        .flat_map(|(batch, rows)| (0..rows.num_rows() as u32).map(move |row| Pick { batch, row }))
        .collect();
    let mut hashes = batches.iter().flat_map(|batch| &batch.hashes).copied();
    let mut packed = Vec::new();
    for message in gather.messages(&picks, &Limits::default()).map_err(refused)? {
        let bytes = message.bytes() + COLUMN_BYTES * layout.schema().fields().len() as u64;
        let memory = Reservation::of(budget, bytes)?;
        let rows = message.batch().map_err(refused)?;
        let hashes = hashes.by_ref().take(rows.num_rows()).collect();
        packed.push(Batch { rows, hashes, read: None, memory });
    }
    Ok(packed)
}

#[cfg(test)]
mod tests;
