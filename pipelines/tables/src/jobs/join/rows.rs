//! Rows of one table as they are read, in the order of its key.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use exobus_actors::registry::{TaskContext, TaskError};

use super::filter::Sieve;
use super::query::{Joined, Side};
use crate::TableError;
use crate::jobs::budget::{TaskBudget, Unordered};
use crate::jobs::pieces::PieceReader;
use crate::jobs::rewrite::{Arranger, Batch, NotPacked, Ordered, Packer, places};
use crate::jobs::table::{Piece, Table};
use crate::reading::Wanted;
use crate::sources::Reservation;

/// Rows of pieces of one table, with their places, on their way into the order of its key.
pub(super) struct Rows<'a> {
    table: &'a Table,
    joined: &'a Joined,
    side: Side,
    /// Whether rows stay whose key has a null, which match nothing.
    keeps_nulls: bool,
    /// What leaves out rows that match nothing, where these are not written.
    sieve: Option<Sieve<'a>>,
    budget: &'a Arc<TaskBudget>,
    packer: Packer<'a>,
    batches: Vec<Batch<'a>>,
    ordered: Ordered<'a>,
    /// Of places.
    memory: Reservation,
    read: u64,
}

/// They, when all were read.
pub(super) struct OrderedRows<'a> {
    pub(super) ordered: Ordered<'a>,
    /// How many were read, also of those that were left out.
    pub(super) read: u64,
    _batches: Vec<Batch<'a>>,
    _memory: Reservation,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        (table, joined, side): (&'a Table, &'a Joined, Side),
        arranger: &'a Arranger,
        (keeps_nulls, sieve): (bool, Option<Sieve<'a>>),
        budget: &'a Arc<TaskBudget>,
    ) -> Self {
        Self {
            table,
            joined,
            side,
            keeps_nulls,
            sieve,
            budget,
            packer: Packer::new(&table.layout, &budget.shared()),
            batches: Vec::new(),
            ordered: Ordered::new(arranger, &budget.shared()),
            memory: Reservation::none(&budget.shared()),
            read: 0,
        }
    }

    /// Reads one of these pieces.
    pub(super) fn read(
        &mut self,
        context: &mut TaskContext<'_>,
        reader: &PieceReader<'_>,
        (piece, pieces): (&'a Piece, &[Piece]),
    ) -> Result<(), TaskError> {
        reader.each(context, piece, &mut Wanted::ALL.clone(), |rows| {
            let refused = |error| reader.refused(piece, &rows, error);
            let denied = |denied| self.budget.of_rows(denied);
            let more = self.memory.bytes() + size_of::<u64>() as u64 * rows.batch.num_rows() as u64;
            self.memory.resize(more).map_err(denied)?;
            let first = piece.first_place(rows.split) + rows.first_row;
            let placed = self.table.placed(&rows.batch, first).map_err(refused)?;
            self.read += placed.num_rows() as u64;
            let mut left_out = self.joined.null_keys(self.side, &placed).filter(|_| !self.keeps_nulls);
            if let Some(sieve) = &mut self.sieve
                && let Some(others) = sieve.left_out(&placed).map_err(|error| self.budget.of_order(error))?
            {
                let nulls = left_out.get_or_insert_with(|| vec![false; others.len()]);
                nulls.iter_mut().zip(others).for_each(|(is_left_out, is_other)| *is_left_out |= is_other);
            }
            let batch = match left_out.filter(|rows| rows.contains(&true)) {
                None => Batch::read((placed, Vec::new()), (piece, rows), &self.budget.shared()),
                Some(left_out) => Batch::copied(without(&placed, &left_out)?, &self.budget.shared()),
            };
            let packed = self.packer.add(batch.map_err(denied)?, &mut self.batches);
            packed.map_err(|error| not_packed(self.budget, reader, pieces, error))?;
            self.order(reader, pieces)
        })
    }

    /// All of them, in the order in which they were read.
    pub(super) fn end(mut self, reader: &PieceReader<'_>, pieces: &[Piece]) -> Result<OrderedRows<'a>, TaskError> {
        let packer = std::mem::replace(&mut self.packer, Packer::new(&self.table.layout, &self.budget.shared()));
        let packed = packer.finish(&mut self.batches);
        packed.map_err(|error| not_packed(self.budget, reader, pieces, error))?;
        self.order(reader, pieces)?;
        Ok(OrderedRows { ordered: self.ordered, read: self.read, _batches: self.batches, _memory: self.memory })
    }

    /// Adds those batches to the order that are not there yet.
    fn order(&mut self, reader: &PieceReader<'_>, pieces: &[Piece]) -> Result<(), TaskError> {
        for batch in &self.batches[self.ordered.batches().len()..] {
            self.ordered.add(batch.rows.clone()).map_err(|error| match error {
                Unordered::Table(error) => reader.refused_at(pieces, place_of(&batch.rows, &error), error),
                denied => self.budget.of_order(denied),
            })?;
        }
        Ok(())
    }
}

fn not_packed(
    budget: &TaskBudget,
    reader: &PieceReader<'_>,
    pieces: &[Piece],
    NotPacked { error, place }: NotPacked,
) -> TaskError {
    match (error, place) {
        (Unordered::Table(error), Some(place)) => reader.refused_at(pieces, place, error),
        (error, _) => budget.of_order(error),
    }
}

/// The place of the row of a batch with which something is wrong.
pub(super) fn place_of(batch: &RecordBatch, error: &TableError) -> u64 {
    let row = error.of_row().map_or(0, |(_, row, _)| row);
    places(batch).get(row).copied().unwrap_or_default()
}

/// The rows of a batch of which this is not true.
pub(super) fn without(batch: &RecordBatch, left_out: &[bool]) -> Result<RecordBatch, TaskError> {
    let stays: BooleanArray = left_out.iter().map(|is_left_out| Some(!is_left_out)).collect();
    filter_record_batch(batch, &stays).map_err(TaskError::fatal)
}
