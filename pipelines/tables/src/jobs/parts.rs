//! Parts of objects, as the tasks of a shuffle read and write them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use exobus_actors::futures::ObjectRef;
use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{JobError, Output, Place, TaskOptions};
use exobus_shuffle::jobs::reads;
use exobus_store::{Align, Block, ObjectWriter};

use super::budget::{TaskBudget, of_table};
use super::rewrite::MESSAGE_BYTES;
use crate::TableError;
use crate::block::{Gather, Limits, Pick, Source, Streamed, write_messages, write_part_with_more};
use crate::sources::{MemoryDenied, Reservation};

/// The next rows of an object that is read as a stream, and the memory that they take; `None`: there are no more.
pub(super) fn next_rows(
    stream: &mut Streamed,
    budget: &Arc<TaskBudget>,
) -> Result<Option<(RecordBatch, Reservation)>, TaskError> {
    let Some(bytes) = stream.next_bytes().map_err(of_table)? else { return Ok(None) };
    let memory = Reservation::of(&budget.shared(), bytes).map_err(|denied| budget.of_message(denied))?;
    Ok(stream.next().map_err(of_table)?.map(|rows| (rows, memory)))
}

/// What a task reads, by argument, from this one on.
pub(super) fn arguments(context: &TaskContext<'_>, first: usize) -> Vec<Vec<Block>> {
    (first..context.args()).map(|arg| context.blocks(arg)).collect()
}

/// Says what was read of these, of which the first is this argument.
pub(super) fn account(context: &mut TaskContext<'_>, first: usize, args: &[Vec<Block>], read: Output) {
    let sealed: Vec<Vec<Output>> = args.iter().map(|blocks| reads::sealed(blocks)).collect();
    // Parts begin at multiples of 64 bytes: what is between them was sealed, too.
    let bytes = args.iter().flatten().map(|block| block.header().bytes).sum();
    reads::account(context, first, &sealed, Output { bytes, ..read });
}

/// Of tasks that write parts, and take so much beside the store.
pub(super) fn options(place: Place, outside_bytes: u64) -> TaskOptions {
    let scratch_bytes = vec![MESSAGE_BYTES];
    TaskOptions { place, scratch_bytes, outside_bytes, align: Align::SixtyFour, ..TaskOptions::default() }
}

/// The outputs of a task that makes parts and says something of them.
pub(super) fn two(outputs: Vec<ObjectRef>) -> Result<[ObjectRef; 2], JobError> {
    <[ObjectRef; 2]>::try_from(outputs).map_err(|_| JobError::program("the task has two outputs"))
}

/// Writes these rows as the next part of an object, as messages of at most these limits; a row that is larger than the scratch is written with memory that is asked for. `refused`: how the task fails over a
/// row, for which memory was denied or is not asked for.
pub(super) fn write_rows(
    writer: &mut ObjectWriter,
    (gather, limits): (&Gather, &Limits),
    of_part: (&[Pick], RowHash),
    scratch: &mut [u8],
    budget: &Arc<TaskBudget>,
    refused: impl FnOnce(TableError, Option<MemoryDenied>) -> TaskError,
) -> Result<(), TaskError> {
    asking(budget, refused, |more| write_part_with_more(writer, gather, of_part, limits, scratch, more))
}

/// Writes rows of several layouts, as [`write_messages`] does, and else as [`write_rows`] does.
pub(super) fn write_sources(
    writer: &mut ObjectWriter,
    sources: &[Source<'_>],
    limits: &Limits,
    scratch: &mut [u8],
    budget: &Arc<TaskBudget>,
    refused: impl FnOnce(TableError, Option<MemoryDenied>) -> TaskError,
) -> Result<(), TaskError> {
    asking(budget, refused, |more| write_messages(writer, sources, limits, scratch, more)).map(drop)
}

/// Writes with as much more memory as there is, where that is needed for a row.
fn asking<T>(
    budget: &Arc<TaskBudget>,
    refused: impl FnOnce(TableError, Option<MemoryDenied>) -> TaskError,
    write: impl FnOnce(&mut dyn FnMut(u64) -> Option<Vec<u8>>) -> Result<T, TableError>,
) -> Result<T, TaskError> {
    let (mut larger, mut denied) = (Reservation::none(&budget.shared()), None);
    let mut more = |bytes: u64| match larger.resize(bytes) {
        Ok(()) => Some(vec![0; bytes as usize]),
        Err(error) => {
            denied = Some(error);
            None
        }
    };
    let written = write(&mut more);
    written.map_err(|error| {
        let denied = denied.filter(|_| matches!(error, TableError::RowTooLarge { .. }));
        refused(error, denied)
    })
}
