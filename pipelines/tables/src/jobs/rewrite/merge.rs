//! Parts in order become one: of an object, where the strategy merges, and of a file in the end.

use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::Token;
use exobus_shuffle::jobs::{outputs, pieces, reads};
use exobus_store::{Block, ObjectWriter};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::arrangement::Arrangement;
use super::map::{MESSAGE_BYTES, sum_of};
use super::ordered::Ordered;
use crate::TableError;
use crate::block::{Gather, Part, Pick};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::table::{Table, write_rows};
use crate::sources::Reservation;

/// Rows that are gathered for the file at a time. Pages of it end where they do.
const ROWS_AT_ONCE: usize = 8192;

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
    let args = arguments(context);
    let mut read = Output::default();
    let mut scratch = context.scratch(MESSAGE_BYTES)?;
    for (piece, parts) in pieces::ranges(&params.pieces) {
        // What has no rows at all has no parts either.
        let with_rows = || args.iter().flatten().filter(|block| !block.is_empty());
        let bytes = pieces::bytes(with_rows().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let mut ordered = Ordered::new(&arranger, &budget);
            let mut merged = Output::default();
            for part in with_rows().map(|block| block.part(part)).filter(|part| !part.is_empty()) {
                merged.bytes += part.len() as u64;
                for batch in rows_of(&table, part) {
                    let batch = batch.map_err(of_table)?;
                    merged.rows += batch.num_rows() as u64;
                    merged.row_hash += table.hasher.sum(&table.values(&batch)?).map_err(of_table)?;
                    ordered.add(batch)?;
                }
            }
            ordered.sort();
            let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
            let writer: &mut ObjectWriter = context.output_at_sized(piece, bytes)?;
            let picks = ordered.picks(0..ordered.len());
            write_rows(writer, &gather, (&picks, merged.row_hash), &mut scratch, &budget)?;
            read.add(merged);
        }
        context.seal_output(piece)?;
    }
    reads::account(context, 1, &sealed(&args), read);
    Ok(())
}

/// What is merged or reduced, by argument.
fn arguments(context: &TaskContext<'_>) -> Vec<Vec<Block>> {
    (1..context.args()).map(|arg| context.blocks(arg)).collect()
}

/// What was sealed of each of these arguments.
fn sealed(args: &[Vec<Block>]) -> Vec<Vec<Output>> {
    args.iter().map(|blocks| reads::sealed(blocks)).collect()
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

/// What `reduce` made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    pub(super) token: Token,
    pub(super) row_hash: RowHash,
    pub(super) dropped: Output,
}

/// Parts in order, merged into a file.
#[task(name = "table.reduce", deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Reduced, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let arranger = params.arrangement.arranger(table.layout.schema())?;
    let args = arguments(context);
    let mut ordered = Ordered::new(&arranger, &budget);
    for part in args.iter().flatten().filter(|part| !part.is_empty()) {
        for batch in rows_of(&table, part.clone()) {
            ordered.add(batch.map_err(of_table)?)?;
        }
    }
    ordered.sort();
    let values = ordered.batches().iter().map(|batch| table.values(batch)).collect::<Result<Vec<_>, _>>()?;
    let dropped = match arranger.keep {
        Some(keep) => {
            let picks = ordered.keep(keep);
            dropped(&table, &budget, &values, &picks)?
        }
        None => Output::default(),
    };
    let of_rows = (&table.schema, &table.hasher);
    let mut file = PartWriter::create(context, &params.file, buffers, of_rows, &budget)?;
    let gather = Gather::new(table.values_layout()?, &values).map_err(of_table)?;
    for from in (0..ordered.len()).step_by(ROWS_AT_ONCE) {
        context.check_cancelled()?;
        file.write(&gather, &ordered.picks(from..ordered.len().min(from + ROWS_AT_ONCE)))?;
    }
    let Written { token, row_hash } = file.finish(context, &params.file.directory)?;
    // What was read is what was written and what was left out, each by its own hash: the books of the arguments are compared with that.
    let bytes = args.iter().flatten().map(|block| block.header().bytes).sum();
    let (rows, read_hash) = (token.rows + dropped.rows, row_hash + dropped.row_hash);
    reads::account(context, 1, &sealed(&args), Output { bytes, rows, row_hash: read_hash });
    Ok(Reduced { token, row_hash, dropped })
}

/// Rows of these batches that are left out.
fn dropped(
    table: &Table,
    budget: &Arc<TaskBudget>,
    values: &[RecordBatch],
    picks: &[Pick],
) -> Result<Output, TaskError> {
    let rows: usize = values.iter().map(RecordBatch::num_rows).sum();
    let memory = Reservation::of(&budget.shared(), (rows * size_of::<RowHash>()) as u64);
    let _memory = memory.map_err(|denied| budget.of_rows(denied))?;
    let hashed = values.iter().map(|batch| {
        let mut hashes = Vec::new();
        table.hasher.rows(batch, &mut hashes).map(|()| hashes).map_err(of_table)
    });
    let hashes = hashed.collect::<Result<Vec<_>, _>>()?;
    Ok(sum_of(picks, |pick| hashes[pick.batch as usize][pick.row as usize]))
}
