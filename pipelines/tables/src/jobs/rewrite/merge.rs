//! Parts in order become one: of an object, where the strategy merges, and of a file in the end.

use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::Token;
use exobus_shuffle::jobs::{outputs, pieces};
use exobus_store::{Block, ObjectWriter};
use serde::{Deserialize, Serialize};

use arrow_array::RecordBatch;

use super::arrangement::Arrangement;
use super::map::MESSAGE_BYTES;
use super::merging::{Merged, Merging};
use crate::TableError;
use crate::block::{Gather, Limits, Part, Pick};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::parts::{account, arguments, write_rows};
use crate::jobs::table::Table;
use crate::sources::Reservation;

/// Rows that are gathered for the file at a time. Pages of it end where they do.
const ROWS_AT_ONCE: usize = 8192;
/// What a row takes of which it is known where it stands.
pub(super) const PICK_BYTES: u64 = size_of::<Pick>() as u64;

/// What `merge` is told. Its arguments are the layout and what is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MergeParams {
    pub(super) pieces: Vec<u32>,
    pub(super) arrangement: Arrangement,
}

/// Parts in order, merged part by part into one object for each piece.
#[task(name = "table.merge", deterministic = true)]
pub(super) fn merge(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let arranger = params.arrangement.arranger(table.layout.schema())?;
    let args = arguments(context, 1);
    let mut read = Output::default();
    let mut scratch = context.scratch(MESSAGE_BYTES)?;
    for (piece, parts) in pieces::ranges(&params.pieces) {
        // What has no rows at all has no parts either.
        let with_rows = || args.iter().flatten().filter(|block| !block.is_empty());
        let bytes = pieces::bytes(with_rows().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let parts: Vec<Block> = with_rows().map(|block| block.part(part)).collect();
            let mut merging = Merging::new(&arranger, None, &budget.shared(), runs_of(&table, parts.iter().cloned()))
                .map_err(|error| budget.of_order(error))?;
            let mut merged = Output { bytes: parts.iter().map(|part| part.len() as u64).sum(), ..Output::default() };
            for batch in merging.batches() {
                merged.rows += batch.num_rows() as u64;
                merged.row_hash += table.hasher.sum(&table.values(batch)?).map_err(of_table)?;
            }
            let gather = Gather::new(table.layout.clone(), merging.batches()).map_err(of_table)?;
            let picked = Reservation::of(&budget.shared(), merged.rows * PICK_BYTES);
            let picked = picked.map_err(|denied| budget.of_rows(denied))?;
            let mut picks = Vec::with_capacity(merged.rows as usize);
            while let Some(Merged { rows, .. }) = merging.next().map_err(|error| budget.of_order(error))? {
                context.check_cancelled()?;
                picks.extend(rows);
            }
            let writer: &mut ObjectWriter = context.output_at_sized(piece, bytes)?;
            let refused = |error, denied: Option<_>| match denied {
                None => refused(error, part),
                Some(denied) => budget.of_rows(denied),
            };
            write_rows(
                writer,
                (&gather, &Limits::default()),
                (&picks, merged.row_hash),
                &mut scratch,
                &budget,
                refused,
            )?;
            drop(picked);
            read.add(merged);
        }
        context.seal_output(piece)?;
    }
    account(context, 1, &args, read);
    Ok(())
}

/// How a task fails over a row whose input file nobody knows any longer.
pub(super) fn refused(error: TableError, file: impl std::fmt::Display) -> TaskError {
    match error.of_row() {
        Some((.., what)) => TaskError::data(format!("a row of output file {file}: {what}")),
        None => of_table(error),
    }
}

/// The rows of each of these parts.
pub(super) fn runs_of(
    table: &Table,
    parts: impl Iterator<Item = Block>,
) -> impl Iterator<Item = Result<Vec<RecordBatch>, TableError>> {
    parts.map(|part| rows_of(table, part).collect())
}

#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
fn rows_of(table: &Table, part: Block) -> impl Iterator<Item = Result<RecordBatch, TableError>> {
    // SAFETY: all but the first argument of the tasks that merge and reduce are outputs of those that map and merge, which write with a `Gather` and run in the node.
    unsafe { Part::new(table.layout.clone(), part) }
}

/// What `reduce` is told. Its arguments are the layout and one part of everything that is left to merge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    pub(super) file: FileParams,
    pub(super) arrangement: Arrangement,
}

/// What a reduce made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    /// The files, in the order of their rows.
    pub(super) tokens: Vec<Token>,
    pub(super) row_hash: RowHash,
    pub(super) dropped: Output,
}

/// Parts in order, merged into a file.
#[task(name = "table.reduce", version = 3, deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Reduced, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let arranger = params.arrangement.arranger(table.layout.schema())?;
    let args = arguments(context, 1);
    let parts = args.iter().flatten().filter(|part| !part.is_empty()).cloned();
    let mut merging = Merging::new(&arranger, arranger.keep, &budget.shared(), runs_of(&table, parts))
        .map_err(|error| budget.of_order(error))?;
    let values = merging.batches().iter().map(|batch| table.values(batch)).collect::<Result<Vec<_>, _>>()?;
    let gather = Gather::new(table.values_layout()?, &values).map_err(of_table)?;
    let of_rows = (&table.schema, &table.hasher);
    let mut file = PartWriter::create(context, &params.file, buffers, of_rows, &budget)?;
    let in_file = |error| refused(error, &params.file.name);
    let mut dropped = Output::default();
    merged_rows(&mut merging, &budget, |rows| {
        context.check_cancelled()?;
        match rows {
            MergedRows::Stay(rows) => file.write((&gather, &Limits::default()), rows, in_file),
            MergedRows::LeftOut(rows) => {
                let row_hash = gather.row_hash(&table.hasher, rows).map_err(of_table)?;
                dropped.add(Output { bytes: 0, rows: rows.len() as u64, row_hash });
                Ok(())
            }
        }
    })?;
    let Written { token, row_hash } = file.finish(context, &params.file)?;
    // What was read is what was written and what was left out, each by its own hash: the books of the arguments are compared with that.
    let read = Output { bytes: 0, rows: token.rows + dropped.rows, row_hash: row_hash + dropped.row_hash };
    account(context, 1, &args, read);
    Ok(Reduced { tokens: vec![token], row_hash, dropped })
}

/// Rows of a merge.
pub(super) enum MergedRows<'a> {
    /// The next ones, as many as are gathered for a file at a time; fewer at the end.
    Stay(&'a [Pick]),
    LeftOut(&'a [Pick]),
}

/// Calls `each` with all rows of a merge, in their order.
pub(super) fn merged_rows(
    merging: &mut Merging<'_>,
    budget: &TaskBudget,
    mut each: impl FnMut(MergedRows<'_>) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut next = Vec::new();
    while let Some(merged) = merging.next().map_err(|error| budget.of_order(error))? {
        next.extend(merged.rows);
        let whole = next.len() / ROWS_AT_ONCE * ROWS_AT_ONCE;
        next[..whole].chunks(ROWS_AT_ONCE).try_for_each(|rows| each(MergedRows::Stay(rows)))?;
        next.drain(..whole);
        each(MergedRows::LeftOut(&merged.dropped))?;
    }
    if next.is_empty() { Ok(()) } else { each(MergedRows::Stay(&next)) }
}
