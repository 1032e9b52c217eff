//! The tasks that divide a partition of a sort by key.

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_store::{Block, ObjectReader, RowHash};

use super::tasks::run;
use crate::cuts::Cuts;
use crate::job::{Draw, Key};
use crate::kernels::{Merge, ReadRun, RunSource};
use crate::records::random::Random;
use crate::records::{KEY_BYTES, RECORD_BYTES, as_records, key_number, row_hash_sum};

/// Records that a split merges before it looks for cuts among them: they fit into the cache.
pub(super) const PIECE_BYTES: u64 = 64 << 10;

/// Draws keys of the only argument, where it lies.
#[task(name = "sort.draw", arguments = [in_place], deterministic = true)]
pub(super) fn draw(context: &mut TaskContext<'_>, keys: Draw) -> Result<Vec<Key>, TaskError> {
    let objects = context.in_place(0);
    // Where the records of each object end, all of them numbered one after the other.
    let mut ends = Vec::with_capacity(objects.len());
    let mut rows = 0;
    for object in objects {
        rows += object.parts().iter().map(|part| part.bytes).sum::<u64>() / RECORD_BYTES as u64;
        ends.push(rows);
    }
    let mut random = Random::at(u128::from(keys.seed));
    let mut drawn: Vec<u64> = (0..keys.keys_of(rows * RECORD_BYTES as u64))
        .map(|_| (((random.draw() >> 64) * u128::from(rows)) >> 64) as u64)
        .collect();
    drawn.sort_unstable();
    let mut found = Vec::with_capacity(drawn.len());
    for row in drawn {
        context.check_cancelled()?;
        let index = ends.partition_point(|end| *end <= row);
        let object = &objects[index];
        let mut offset = (row - if index == 0 { 0 } else { ends[index - 1] }) * RECORD_BYTES as u64;
        for part in object.parts() {
            if offset < part.bytes {
                let mut key = vec![0; KEY_BYTES];
                object.read(part.offset + offset, &mut key)?;
                found.push(Key(key));
                break;
            }
            offset -= part.bytes;
        }
    }
    Ok(found)
}

/// Merges a column, the second argument, into one object with a part for each range of keys between the cuts, the first.
/// Takes [`PIECE_BYTES`] of scratch.
#[task(name = "sort.split", arguments = [whole, either], deterministic = true)]
pub(super) fn split(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    let cuts: Cuts = rmp_serde::from_slice(&context.block(0)).map_err(TaskError::fatal)?;
    let read = if context.is_stream(1) {
        let readers = context.readers(1);
        let bytes = readers.iter().map(ObjectReader::remaining).sum();
        let windows = context.windows();
        let runs = readers.into_iter().zip(windows).map(|(reader, window)| ReadRun::new(reader, window));
        write_ranges(context, Merge::new(runs.collect())?, bytes, &cuts)?
    } else {
        let blocks: Vec<Block> = context.blocks(1).into_iter().filter(|block| !block.is_empty()).collect();
        let bytes = blocks.iter().map(|block| block.len() as u64).sum();
        let runs = blocks.iter().map(|block| run(block)).collect::<Result<Vec<_>, _>>()?;
        write_ranges(context, Merge::new(runs)?, bytes, &cuts)?
    };
    context.consumed(1, read.bytes, read.rows, read.row_hash);
    Ok(())
}

/// Writes what is merged, a part for each range; what was read. What is sealed is hashed anew, from what is written.
fn write_ranges<S: RunSource>(
    context: &mut TaskContext<'_>,
    mut merge: Merge<S>,
    bytes: u64,
    cuts: &Cuts,
) -> Result<Output, TaskError> {
    let mut piece = context.scratch(PIECE_BYTES)?;
    let mut ends = cuts.key_numbers().peekable();
    let (mut rows, mut row_hash) = (0, RowHash::default());
    context.output_sized(bytes)?.begin_part(None)?;
    loop {
        context.check_cancelled()?;
        let merged = merge.next_into(&mut piece)?;
        if merged == 0 && ends.peek().is_none() {
            break;
        }
        let writer = context.output()?;
        let mut left = &piece[..merged];
        loop {
            let records = as_records(left);
            let below = ends.peek().map_or(records.len(), |end| records.partition_point(|it| key_number(it) < *end));
            let (range, above) = left.split_at(below * RECORD_BYTES);
            writer.write(range)?;
            (rows, row_hash) = (rows + below as u64, row_hash + row_hash_sum(range));
            left = above;
            // The range goes on with the next piece, unless there is none.
            if ends.peek().is_none() || (left.is_empty() && merged > 0) {
                break;
            }
            writer.end_part(std::mem::take(&mut rows), std::mem::take(&mut row_hash));
            ends.next();
            writer.begin_part(None)?;
        }
    }
    context.output()?.end_part(rows, row_hash);
    let rows = merge.rows();
    Ok(Output { bytes: rows * RECORD_BYTES as u64, rows, row_hash: merge.row_hash() })
}
