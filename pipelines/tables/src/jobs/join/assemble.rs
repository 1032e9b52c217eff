//! The task that makes a file of its stretches and cells: they are read as streams, so that they may be larger than memory.
//!
//! A cell has the rows that are written in the order of the rows of the left table, and of each of these in the order of its piece of the right one: as many rows of each. So a file goes round all cells of a
//! key once for each row of the left table, and takes of each of them what follows what it has taken before.

use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_shuffle::jobs::outputs;
use exobus_store::ObjectReader;
use serde::{Deserialize, Serialize};

use super::exchange::{Arranged, Tables};
use super::reduce::Reduced;
use crate::RowHasher;
use crate::block::{Layout, Streamed};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::parts::next_rows;
use crate::semantics::{conformed, stored_schema};

/// What `assemble` is told. Its arguments are the layouts of both tables, and the objects of all turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AssembleParams {
    pub(super) file: FileParams,
    pub(super) arranged: Arranged,
    pub(super) turns: Vec<Turn>,
}

/// A stretch of a file, or all cells of a heavy key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// How many rounds there are.
    pub(super) rounds: u64,
    /// How many rows are taken of each of its objects in each round.
    pub(super) rows: Vec<u64>,
}

/// Objects of rows as a file.
#[task(name = "join.assemble", arguments = [whole, whole, stream], deterministic = true)]
pub(super) fn assemble(context: &mut TaskContext<'_>, params: AssembleParams) -> Result<Reduced, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let joined = Tables::of(context, &params.arranged)?.joined;
    let written = stored_schema(params.file.form.format().types(), &joined.schema).map_err(of_table)?;
    let hasher = RowHasher::new(&written).map_err(of_table)?;
    let layout = Arc::new(Layout::new(&joined.schema).map_err(of_table)?);
    let args = 2..context.args();
    let mut streams: Vec<Option<Streamed>> =
        args.clone().map(|arg| context.readers(arg).pop_front().map(|reader| streamed(&layout, reader))).collect();
    let mut file = PartWriter::create(context, &params.file, buffers, (&written, &hasher), &budget)?;
    let mut rest = &mut streams[..];
    for Turn { rounds, rows } in &params.turns {
        let (of_turn, others) = rest.split_at_mut(rows.len());
        rest = others;
        for _ in 0..*rounds {
            for (stream, rows) in of_turn.iter_mut().zip(rows) {
                take(context, stream.as_mut(), *rows, &budget, |batch| {
                    file.write_batch(&conformed(batch, &written).map_err(of_table)?)
                })?;
            }
        }
    }
    for (arg, stream) in args.zip(&mut streams) {
        let Some(stream) = stream else { continue };
        if let Some(bytes) = stream.next_bytes().map_err(of_table)? {
            return Err(TaskError::fatal(format!("a message of {bytes} bytes is left of rows that come to a file")));
        }
        let Output { bytes, rows, row_hash } = stream.read();
        context.consumed(arg, bytes, rows, row_hash);
    }
    let Written { token, row_hash } = file.finish(context, &params.file)?;
    Ok(Reduced { token, row_hash, came: 0 })
}

#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
fn streamed(layout: &Arc<Layout>, reader: ObjectReader) -> Streamed {
    // SAFETY: what is assembled are outputs of the task `stretch`, which writes with a `Gather` and runs in the node.
    unsafe { Streamed::new(layout.clone(), reader) }
}

/// Takes so many rows of an object, which are whole messages. `None`: it has none.
fn take(
    context: &TaskContext<'_>,
    mut stream: Option<&mut Streamed>,
    rows: u64,
    budget: &Arc<TaskBudget>,
    mut each: impl FnMut(&arrow_array::RecordBatch) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut left = rows;
    while left > 0 {
        context.check_cancelled()?;
        let message = stream.as_mut().map(|stream| next_rows(stream, budget)).transpose()?.flatten();
        let taken = message.as_ref().map_or(0, |(batch, _)| batch.num_rows() as u64);
        if taken == 0 || taken > left {
            return Err(TaskError::fatal(format!(
                "of {rows} rows that come to a file {left} are left, and a message has {taken}"
            )));
        }
        message.iter().try_for_each(|(batch, _memory)| each(batch))?;
        left -= taken;
    }
    Ok(())
}
