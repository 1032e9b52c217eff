//! The task behind the exchange: rows of both tables that come together become a file.

use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::Token;
use exobus_shuffle::jobs::outputs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::exchange::{Arranged, Tables};
use super::matching::{Stopped, match_rows};
use crate::RowHasher;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::parts::{account, arguments};
use crate::semantics::{conformed, stored_schema};

/// What `reduce` is told. Its arguments are the layouts of both tables, and one part of everything that comes to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    pub(super) file: FileParams,
    pub(super) arranged: Arranged,
    /// Keys of which rows of the left table are in other files, too.
    pub(super) divided: Vec<ByteBuf>,
}

/// What `reduce` made.
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
    let args = arguments(context, 2);
    let (sorted, read) = tables.sorted(&budget, args.iter().flatten().cloned())?;
    let mut file = PartWriter::create(context, &params.file, buffers, (&written, &hasher), &budget)?;
    let divided: Vec<Vec<u8>> = params.divided.into_iter().map(ByteBuf::into_vec).collect();
    let joined = (&tables.joined, params.arranged.query.kind);
    let signal = context.cancel_signal();
    let matched = match_rows(
        joined,
        sorted,
        &divided,
        &budget.shared(),
        || signal.check(),
        |rows| {
            signal.check()?;
            file.write_batch(&conformed(rows, &written).map_err(of_table)?)
        },
    );
    let came = matched.map_err(|stopped| match stopped {
        Stopped::Rows(error) => budget.of_order(error),
        Stopped::Taken(error) => error,
    })?;
    let came = came.left + came.right;
    if came != read.rows {
        return Err(TaskError::fatal(format!("{} rows came to a file, and {came} of them were matched", read.rows)));
    }
    let Written { token, row_hash } = file.finish(context, &params.file)?;
    account(context, 2, &args, Output { rows: came, ..read });
    Ok(Reduced { token, row_hash, came })
}
