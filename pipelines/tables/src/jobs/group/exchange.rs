//! The tasks before the exchange and in the middle of it: maps and merges.

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::pieces;
use exobus_shuffle::jobs::values::write_value;
use exobus_store::{Block, ObjectWriter};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::block_totals::BlockTotals;
use super::collector::{Collector, ENTRIES_MIN, Parts};
use super::query::{Asked, Grouping, Kind};
use super::sampled::{OfBlocks, Telling};
use crate::block::{Limits, Messages};
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::parts::{account, arguments, write_sources};
use crate::jobs::pieces::{PieceReader, value_of};
use crate::jobs::rewrite::MESSAGE_BYTES;
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table};
use crate::reading::{Reading, Wanted};
use crate::semantics::conformed;

/// What `map` is told. Its arguments are the layout, the cuts and the pieces that it reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) reading: Reading,
    pub(super) asked: Asked,
    pub(super) row_bytes_max: RowLimit,
    /// Groups that are collected at a time, at most.
    pub(super) entries_max: u64,
}

/// Rows of some splits, those of groups put together as far as that helps, as an object with a part for each partition; its second output says how many rows there were.
#[task(name = "group.map", version = 5, deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    map_pieces(context, params, None).map(drop)
}

/// The same. `telling`: what is told of each block; what is returned has numbered its groups.
pub(super) fn map_pieces(
    context: &mut TaskContext<'_>,
    params: MapParams,
    telling: Option<Telling<'_>>,
) -> Result<Option<BlockTotals>, TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let grouping = params.asked.grouping(&table.schema)?;
    let cuts: Cuts = rmp_serde::from_slice(&context.block(1)).map_err(TaskError::fatal)?;
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, &budget)?;
    let reader = if telling.is_some() { reader.keeping() } else { reader };
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 2, &budget)?;
    let entries_max = params.entries_max as usize;
    let mut collector = Collector::new(&grouping, &cuts, entries_max, &budget.shared()).map_err(of_table)?;
    let of_blocks = telling.map(|telling| OfBlocks::new(&grouping, telling, &mut collector, &budget.shared()));
    let of_blocks = of_blocks.transpose();
    let mut of_blocks = of_blocks.map_err(|error| budget.of_groups(error))?;
    let (mut read, mut kept) = (0, Vec::new());
    for piece in &pieces {
        // Blocks of the piece whose rows are still to come: its runs, or all of it.
        let mut blocks = piece.runs.iter().map(|run| run.end).peekable();
        reader.each(context, piece, &mut Wanted::ALL.clone(), |rows| {
            if let Some(of_blocks) = &mut of_blocks {
                let first = rows.row_of_split(0);
                while blocks.next_if(|end| *end <= first).is_some() {
                    of_blocks.end(&mut collector).map_err(|error| budget.of_groups(error))??;
                }
            }
            let refused = |error| reader.refused(piece, &rows, error);
            let batch = conformed(&rows.batch, &table.schema).map_err(refused)?;
            read += batch.num_rows() as u64;
            let message = grouping.rows(&batch, piece.first_place(rows.split) + rows.first_row).map_err(refused)?;
            let is_kept = match &mut of_blocks {
                None => collector.add(Kind::Rows, &message),
                Some(of_blocks) => of_blocks.add(&message, &mut collector),
            };
            let is_kept = is_kept.map_err(|error| match error {
                Unordered::Table(error) => refused(error),
                denied => budget.of_groups(denied),
            })?;
            if is_kept {
                kept.push(rows);
            }
            Ok(())
        })?;
        if let Some(of_blocks) = &mut of_blocks {
            for _ in 0..blocks.len().max(1) {
                of_blocks.end(&mut collector).map_err(|error| budget.of_groups(error))??;
            }
        }
    }
    let totals = of_blocks.map(OfBlocks::into_totals);
    let limits = reader.limits();
    // With it goes the file that it has open.
    drop(reader);
    let parts = collector.finish().map_err(|error| budget.of_groups(error))?;
    let mut scratch = context.scratch(MESSAGE_BYTES)?;
    let writer = context.output()?;
    for partition in 0..cuts.partitions() {
        write_part(writer, (&parts, partition), &limits, &mut scratch, &budget)?;
    }
    write_value(context, 1, &read)?;
    Ok(totals)
}

/// Writes the rows of a partition as the next part of an object.
fn write_part(
    writer: &mut ObjectWriter,
    (parts, partition): (&Parts, usize),
    limits: &Limits,
    scratch: &mut [u8],
    budget: &Arc<TaskBudget>,
) -> Result<(), TaskError> {
    write_sources(writer, &parts.of(partition), limits, scratch, budget, |error, denied| match denied {
        Some(denied) => budget.of_groups(denied.into()),
        None => of_table(error),
    })
}

/// What `merge` is told. Its arguments are the layout and what is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MergeParams {
    pub(super) asked: Asked,
    pub(super) pieces: Vec<u32>,
}

/// Parts of groups, put together part by part as far as that helps into one object for each piece.
#[task(name = "group.merge", version = 3, deterministic = true)]
pub(super) fn merge(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let grouping = params.asked.grouping(&Table::of(context)?.schema)?;
    let args = arguments(context, 1);
    let (mut read, mut scratch) = (Output::default(), context.scratch(MESSAGE_BYTES)?);
    let everything = Cuts::new(Vec::new()).map_err(TaskError::fatal)?;
    for (piece, parts) in pieces::ranges(&params.pieces) {
        // What has no rows at all has no parts either.
        let with_rows = || args.iter().flatten().filter(|block| !block.is_empty());
        let bytes = pieces::bytes(with_rows().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let collector = Collector::new(&grouping, &everything, ENTRIES_MIN, &budget.shared());
            let mut collector = collector.map_err(of_table)?;
            for block in with_rows() {
                read.add(each_message(&grouping, block.part(part), |kind, message| {
                    collector.add(kind, message).map(drop).map_err(|error| budget.of_groups(error))
                })?);
            }
            let merged = collector.finish().map_err(|error| budget.of_groups(error))?;
            let writer = context.output_at_sized(piece, bytes)?;
            write_part(writer, (&merged, 0), &Limits::default(), &mut scratch, &budget)?;
        }
        context.seal_output(piece)?;
    }
    account(context, 1, &args, read);
    Ok(())
}

/// Calls `each` with the messages of a part; what was read.
#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
pub(super) fn each_message(
    grouping: &Grouping,
    part: Block,
    mut each: impl FnMut(Kind, &arrow_array::RecordBatch) -> Result<(), TaskError>,
) -> Result<Output, TaskError> {
    // SAFETY: what is merged and reduced are outputs of the tasks that map and merge, which write with a `Gather` and run in the node.
    let mut messages = unsafe { Messages::new(grouping.layouts.clone(), part) };
    for message in &mut messages {
        let (kind, message) = message.map_err(of_table)?;
        each(Kind::of(kind), &message)?;
    }
    Ok(messages.read())
}
