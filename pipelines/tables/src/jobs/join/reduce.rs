//! The tasks behind the exchange: rows of both tables that come together become a file, or a part of one.

use std::sync::Arc;

use arrow_array::RecordBatch;
use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::Token;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::write_value;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::exchange::{Arranged, Tables};
use super::matching::{Came, Others, Stopped, match_rows};
use crate::RowHasher;
use crate::block::{Gather, Layout, Limits, Pick};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::parts::{account, arguments, write_sources};
use crate::jobs::rewrite::MESSAGE_BYTES;
use crate::semantics::{conformed, stored_schema};

/// What `reduce` is told. Its arguments are the layouts of both tables, and one part of everything that comes to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    pub(super) file: FileParams,
    pub(super) arranged: Arranged,
    /// Keys of which rows of the left table are in other files, too.
    pub(super) divided: Vec<ByteBuf>,
}

/// What `reduce` made, or `assemble`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    pub(super) token: Token,
    pub(super) row_hash: RowHash,
    /// Rows that came, of both tables.
    pub(super) came: u64,
}

/// Rows of both tables, as they match, as a file.
#[task(name = "join.reduce", deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Reduced, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let tables = Tables::of(context, &params.arranged)?;
    let written = stored_schema(params.file.form.format().types(), &tables.joined.schema).map_err(of_table)?;
    let hasher = RowHasher::new(&written).map_err(of_table)?;
    let mut file = PartWriter::create(context, &params.file, buffers, (&written, &hasher), &budget)?;
    let divided = keys(params.divided);
    let others = Others { divided: &divided, are_cells: false };
    let came = matched(context, (&tables, &params.arranged), others, &budget, |_, rows| {
        file.write_batch(&conformed(rows, &written).map_err(of_table)?)
    })?;
    let Written { token, row_hash } = file.finish(context, &params.file)?;
    Ok(Reduced { token, row_hash, came: came.left + came.right })
}

/// What `stretch` is told. Its arguments are those of `reduce`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StretchParams {
    pub(super) arranged: Arranged,
    pub(super) divided: Vec<ByteBuf>,
    /// Whether it is of a heavy key, of which it has a piece of the rows of the right table.
    pub(super) is_cell: bool,
}

/// The second output of `stretch`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stretched {
    /// Rows that came, of both tables.
    pub(super) came: u64,
    /// Rows that it made.
    pub(super) rows: u64,
    /// In how many rounds of as many rows each they come to the file: of a heavy key one for each row of the left table that matches.
    pub(super) rounds: u64,
}

/// Rows of both tables, as they match, as an object of messages of what is written: a stretch of a file, or a cell of it. Its second output is [`Stretched`].
#[task(name = "join.stretch", deterministic = true)]
pub(super) fn stretch(context: &mut TaskContext<'_>, params: StretchParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let tables = Tables::of(context, &params.arranged)?;
    let layout = Arc::new(Layout::new(&tables.joined.schema).map_err(of_table)?);
    let divided = keys(params.divided);
    let others = Others { divided: &divided, are_cells: params.is_cell };
    let (mut rows, mut scratch) = (0, context.scratch(MESSAGE_BYTES)?);
    let came = matched(context, (&tables, &params.arranged), others, &budget, |context, batch| {
        rows += batch.num_rows() as u64;
        let gather = Gather::new(layout.clone(), std::slice::from_ref(batch)).map_err(of_table)?;
        let picks: Vec<Pick> = (0..batch.num_rows() as u32).map(|row| Pick { batch: 0, row }).collect();
        let sources = [(&gather, &picks[..])];
        write_sources(context.output_at(0)?, &sources, &Limits::default(), &mut scratch, &budget, |error, denied| {
            match denied {
                Some(denied) => budget.of_rows(denied),
                None => of_table(error),
            }
        })
    })?;
    let rounds = if params.is_cell { came.matched.max(1) } else { 1 };
    if rows % rounds != 0 {
        let (left, right) = (came.left, came.right);
        return Err(TaskError::fatal(format!("{left} rows with a key met {right} and became {rows} rows")));
    }
    write_value(context, 1, &Stretched { came: came.left + came.right, rows, rounds })
}

fn keys(keys: Vec<ByteBuf>) -> Vec<Vec<u8>> {
    keys.into_iter().map(ByteBuf::into_vec).collect()
}

/// Matches all rows that come to a task behind the layouts of both tables. `take` gets rows of what is written.
fn matched<'a>(
    context: &mut TaskContext<'a>,
    (tables, arranged): (&Tables, &Arranged),
    others: Others<'_>,
    budget: &Arc<TaskBudget>,
    mut take: impl FnMut(&mut TaskContext<'a>, &RecordBatch) -> Result<(), TaskError>,
) -> Result<Came, TaskError> {
    let args = arguments(context, 2);
    let (sorted, read) = tables.sorted(budget, args.iter().flatten().cloned())?;
    let joined = (&tables.joined, arranged.query.kind);
    let signal = context.cancel_signal();
    let matched = match_rows(
        joined,
        sorted,
        others,
        &budget.shared(),
        || signal.check(),
        |rows| {
            signal.check()?;
            take(context, rows)
        },
    );
    let came = matched.map_err(|stopped| match stopped {
        Stopped::Rows(error) => budget.of_order(error),
        Stopped::Taken(error) => error,
    })?;
    let rows = came.left + came.right;
    if rows != read.rows {
        return Err(TaskError::fatal(format!("{} rows came to a file, and {rows} of them were matched", read.rows)));
    }
    account(context, 2, &args, Output { rows, ..read });
    Ok(came)
}
