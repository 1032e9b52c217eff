//! Splits in, an object with a part for each file out.

use std::ops::Range;

use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::values::write_value;
use serde::{Deserialize, Serialize};

use super::arrangement::Arrangement;
use super::batches::{Batch, NotPacked, Packer};
use super::cuts;
use super::ordered::Ordered;
use crate::TableError;
use crate::block::{Gather, Pick};
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::parts::write_rows;
use crate::jobs::pieces::{PieceReader, value_of};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table};
use crate::reading::{Reading, Wanted};
use crate::sources::Reservation;

/// Bytes of the largest message of a part with more than one row.
pub(in crate::jobs) const MESSAGE_BYTES: u64 = 8 << 20;
/// What a row takes while it is mapped, besides its values and what puts it in order: its place, its hash, and which partition it is of.
const PLACED_BYTES: u64 = (size_of::<u64>() + size_of::<RowHash>() + size_of::<u32>()) as u64;

/// What `map` is told. Its arguments are the layout, the cuts and the pieces that it reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) reading: Reading,
    pub(super) arrangement: Arrangement,
    pub(super) row_bytes_max: RowLimit,
}

/// The second output of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapped {
    /// What it read, without the bytes.
    pub(super) read: Output,
    /// What of that it left out.
    pub(super) dropped: Output,
}

/// Rows of some splits, in order, as an object with a part for each file; its second output is [`Mapped`].
#[task(name = "table.map", deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let arranger = params.arrangement.arranger(table.layout.schema())?;
    let cuts: Cuts = rmp_serde::from_slice(&context.block(1)).map_err(TaskError::fatal)?;
    let (mut read, mut memory) = (Output::default(), Reservation::none(&budget.shared()));
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, &budget)?;
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 2, &budget)?;
    let (mut packer, mut batches) = (Packer::new(&table.layout, &budget.shared()), Vec::new());
    let mut ordered = Ordered::new(&arranger, &budget.shared());
    // How the task fails over a row of a batch.
    let refused_of = |(batch, row): (&Batch<'_>, usize), error: TableError| match &batch.read {
        Some((piece, rows)) => reader.refused(piece, rows, error),
        None => reader.refused_at(&pieces, batch.place(row), error),
    };
    let not_packed = |NotPacked { error, place }| match (error, place) {
        (Unordered::Table(error), Some(place)) => reader.refused_at(&pieces, place, error),
        (error, _) => budget.of_order(error),
    };
    // Those batches that are not in order yet.
    let mut order = |batches: &[Batch<'_>]| {
        batches[ordered.batches().len()..].iter().try_for_each(|batch| {
            ordered.add(batch.rows.clone()).map_err(|error| match error {
                Unordered::Table(error) => refused_of((batch, error.of_row().map_or(0, |(_, row, _)| row)), error),
                denied => budget.of_order(denied),
            })
        })
    };
    for piece in &pieces {
        reader.each(context, piece, &mut Wanted::ALL.clone(), |rows| {
            // Their places and hashes.
            let more = memory.bytes() + PLACED_BYTES * rows.batch.num_rows() as u64;
            memory.resize(more).map_err(|denied| budget.of_rows(denied))?;
            let refused = |error| reader.refused(piece, &rows, error);
            let placed = table.placed(&rows.batch, piece.first_place(rows.split) + rows.first_row).map_err(refused)?;
            let mut of_batch = Vec::new();
            table.hasher.rows(&table.values(&placed)?, &mut of_batch).map_err(refused)?;
            read.add(Output { bytes: 0, rows: of_batch.len() as u64, row_hash: of_batch.iter().copied().sum() });
            let batch = Batch::read((placed, of_batch), (piece, rows), &budget.shared());
            packer.add(batch.map_err(|denied| budget.of_rows(denied))?, &mut batches).map_err(not_packed)?;
            order(&batches)
        })?;
    }
    packer.finish(&mut batches).map_err(not_packed)?;
    order(&batches)?;
    ordered.sort(arranger.keep);
    let partitions = partitions(&ordered, &cuts);
    let mut sums = sums_of(&partitions, &ordered, &batches);
    let dropped = sums.pop().expect("a sum of the rows of no partition");
    let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
    let (limits, mut scratch) = (reader.limits(), context.scratch(MESSAGE_BYTES)?);
    let writer = context.output()?;
    for (partition, sum) in partitions.into_iter().zip(sums) {
        let picks: Vec<Pick> = ordered.picks(partition).collect();
        let of_part = (&picks[..], sum.row_hash);
        write_rows(writer, (&gather, &limits), of_part, &mut scratch, &budget, |error, denied| {
            let Some((number, row, _)) = error.of_row() else { return of_table(error) };
            let batch = &batches[number];
            match (denied, &batch.read) {
                (None, _) => refused_of((batch, row), error),
                (Some(denied), Some((piece, rows))) => reader.denied(piece, (rows, row), denied),
                (Some(denied), None) => reader.denied_at(&pieces, batch.place(row), denied),
            }
        })?;
    }
    write_value(context, 1, &Mapped { read, dropped })
}

/// Which rows of the order each partition has.
fn partitions(ordered: &Ordered<'_>, cuts: &Cuts) -> Vec<Range<usize>> {
    let (mut partitions, mut from) = (Vec::with_capacity(cuts.partitions()), 0);
    for cut in cuts.keys() {
        let to = ordered.end_of(from, |key, place| cuts::is_before(cut, key, place));
        partitions.push(std::mem::replace(&mut from, to)..to);
    }
    partitions.push(from..ordered.len());
    partitions
}

/// Rows and hashes of each partition, and at last of the rows of none, which were left out. Each row is told which partition it is of, and then hashes are read as they lie: those of the rows of
/// one partition lie anywhere.
fn sums_of(partitions: &[Range<usize>], ordered: &Ordered<'_>, batches: &[Batch<'_>]) -> Vec<Output> {
    let mut partition_of: Vec<Vec<u32>> =
        batches.iter().map(|batch| vec![partitions.len() as u32; batch.hashes.len()]).collect();
    for (number, range) in (0..).zip(partitions) {
        ordered
            .picks(range.clone())
            .for_each(|Pick { batch, row }| partition_of[batch as usize][row as usize] = number);
    }
    let mut sums = vec![Output::default(); partitions.len() + 1];
    let hashes = batches.iter().flat_map(|batch| &batch.hashes);
    for (hash, partition) in hashes.zip(partition_of.iter().flatten()) {
        let sum = &mut sums[*partition as usize];
        sum.rows += 1;
        sum.row_hash += *hash;
    }
    sums
}
