//! The tasks that read the large table and look its rows up in the small one: in all of it where that has room, and in a piece of it at a time where it has none ([`passes`](super::passes)).

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use exobus_actors::registry::{CancelSignal, TaskContext, TaskError};
use exobus_actors::task;
use exobus_store::Block;
use serde::{Deserialize, Serialize};

use super::exchange::Arranged;
use super::found::Found;
use super::matching::Stopped;
use super::pairs::Pairs;
use super::passes::Passes;
use super::query::{Joined, Side};
use crate::TableError;
use crate::block::{Layout, Part, Pick};
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::convert::{ConvertParams, Converted, write_file};
use crate::jobs::mapping::Given;
use crate::jobs::pieces::value_of;
use crate::jobs::table::Table;
use crate::semantics::{KeyEncoder, conformed};

/// What tasks that probe know of the join beside what a conversion is told, as an argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Probed {
    /// The small table.
    pub(super) side: Side,
    pub(super) arranged: Arranged,
    /// Bytes of rows of the large table that go past the pieces of the small one together.
    pub(super) window_bytes: u64,
}

/// The table of one side, and the join of both, by the layouts that these arguments have, that of the left table first.
pub(super) fn tables_of(
    context: &TaskContext<'_>,
    side: Side,
    (left, right): (usize, usize),
    arranged: &Arranged,
) -> Result<(Table, Joined), TaskError> {
    let [left, right] = [left, right].map(|arg| Table::decode(&context.block(arg)));
    let tables = [left?, right?];
    let joined = Joined::new(&arranged.query, &tables[0].schema, &tables[1].schema).map_err(of_table)?;
    let [left, right] = tables;
    Ok((if side == Side::Left { left } else { right }, joined))
}

/// Rows of splits of the large table, each with those of the small one that match it, as a file. Its arguments are those of a conversion of the large table, the layouts of both tables, what is known
/// of the join, and the small table.
#[task(name = "join.probe", version = 2, deterministic = true)]
pub(super) fn probe(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<Converted, TaskError> {
    let budget = TaskBudget::new(context);
    let (Probed { side, arranged, .. }, _memory) = value_of(context, 4, &budget)?;
    let (table, joined) = tables_of(context, side, (2, 3), &arranged)?;
    let probing = Probing::new(context, (&joined, &arranged), (side, &table), &budget)?;
    let batches = rows_of(&table.layout, &context.block(5)).map_err(of_table)?;
    let found = Found::of(batches, &probing.of_small, &budget.shared());
    let mut found = found.map_err(|error| budget.of_order(error))?;
    let mut function = |batch: RecordBatch, given: Given<'_>| {
        if batch.num_rows() == 0 {
            return given(RecordBatch::new_empty(joined.schema.clone()));
        }
        let keyed = probing.keyed(&batch)?;
        let small = found.batches.clone();
        let mut take = probing.take(given);
        let mut pairs = probing.pairs(&keyed.batch, &small, &mut take)?;
        let matched = (0..).zip(found.of_batch(&keyed)).try_for_each(|(row, rows)| probing.push(&mut pairs, row, rows));
        matched.and_then(|()| pairs.write()).map_err(|stopped| probing.stopped(stopped))
    };
    write_file(context, params, &budget, Some(&mut function))
}

/// The same, where the small table stays where it lies and is read piece by piece.
#[task(name = "join.probe_pieces", arguments = [whole, whole, whole, whole, whole, in_place], deterministic = true)]
pub(super) fn probe_pieces(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<Converted, TaskError> {
    let budget = TaskBudget::new(context);
    let (Probed { side, arranged, window_bytes }, _memory) = value_of(context, 4, &budget)?;
    let (table, joined) = tables_of(context, side, (2, 3), &arranged)?;
    let probing = Probing::new(context, (&joined, &arranged), (side, &table), &budget)?;
    let mut passes = Passes::new(&probing, &table, context.take_in_place(5), window_bytes);
    write_file(context, params, &budget, Some(&mut passes))
}

/// The batches of the small table.
#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
fn rows_of(layout: &Arc<Layout>, block: &Block) -> Result<Vec<RecordBatch>, TableError> {
    // SAFETY: it is the output of the task `small`, which writes with a `Gather` and runs in the node.
    let of_part = |part: usize| unsafe { Part::new(layout.clone(), block.part(part)) };
    (0..block.parts().len()).flat_map(of_part).collect()
}

/// What it takes to look rows of the large table up in the small one.
pub(super) struct Probing<'a> {
    pub(super) joined: &'a Joined,
    pub(super) arranged: &'a Arranged,
    /// The small table.
    pub(super) side: Side,
    of_large: KeyEncoder,
    pub(super) of_small: KeyEncoder,
    pub(super) budget: &'a Arc<TaskBudget>,
    pub(super) signal: CancelSignal,
}

/// Rows of the large table with their keys.
pub(super) struct Keyed {
    pub(super) batch: RecordBatch,
    pub(super) keys: BinaryArray,
    nulls: Option<Vec<bool>>,
}

impl Keyed {
    /// Whether the key of a row has a null.
    pub(super) fn has_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls[row])
    }
}

/// Who gets rows that are written.
pub(super) type Take<'a> = dyn FnMut(&RecordBatch) -> Result<(), TaskError> + 'a;

impl<'a> Probing<'a> {
    fn new(
        context: &TaskContext<'_>,
        (joined, arranged): (&'a Joined, &'a Arranged),
        (side, table): (Side, &Table),
        budget: &'a Arc<TaskBudget>,
    ) -> Result<Self, TaskError> {
        let large = side.other();
        let of_large = KeyEncoder::new(&joined.tables[large as usize], arranged.of(large).key().unwrap_or_default());
        let of_small = KeyEncoder::new(table.layout.schema(), arranged.of(side).key().unwrap_or_default());
        let (of_large, of_small) = (of_large.map_err(of_table)?, of_small.map_err(of_table)?);
        Ok(Self { joined, arranged, side, of_large, of_small, budget, signal: context.cancel_signal() })
    }

    /// A batch of the large table with its keys.
    pub(super) fn keyed(&self, batch: &RecordBatch) -> Result<Keyed, TaskError> {
        let large = self.side.other();
        let batch = conformed(batch, &self.joined.tables[large as usize]).map_err(of_table)?;
        let keys = self.of_large.encode(&batch).and_then(|keys| keys.into_array()).map_err(of_table)?;
        let nulls = self.joined.null_keys(large, &batch);
        Ok(Keyed { batch, keys, nulls })
    }

    /// What gives rows on, as long as they are wanted.
    pub(super) fn take<'t>(&'t self, given: Given<'t>) -> impl FnMut(&RecordBatch) -> Result<(), TaskError> + 't {
        move |rows| {
            self.signal.check()?;
            given(rows.clone())
        }
    }

    /// Pairs of rows of a batch of the large table and of batches of the small one.
    pub(super) fn pairs<'t>(
        &self,
        batch: &RecordBatch,
        small: &[RecordBatch],
        take: &'t mut Take<'_>,
    ) -> Result<Pairs<'_, impl FnMut(&RecordBatch) -> Result<(), TaskError> + 't>, TaskError> {
        let large = std::slice::from_ref(batch);
        let batches = if self.side == Side::Right { [large, small] } else { [small, large] };
        let take = move |rows: &RecordBatch| take(rows);
        let pairs = Pairs::new((self.joined, self.arranged.query.kind), batches, &self.budget.shared(), take);
        pairs.map_err(of_table)
    }

    /// Writes a row of the large table with these of the small one, which have its key; none: it matches none.
    pub(super) fn push<T: FnMut(&RecordBatch) -> Result<(), TaskError>>(
        &self,
        pairs: &mut Pairs<'_, T>,
        row: u32,
        rows: &[Pick],
    ) -> Result<(), Stopped<TaskError>> {
        let row = Pick { batch: 0, row };
        match (self.side, rows.is_empty()) {
            (Side::Right, true) => pairs.push_left(row),
            (Side::Right, false) => pairs.push_pairs(row, rows),
            (Side::Left, true) => pairs.push_right(row, false),
            (Side::Left, false) => pairs.push_pairs_of(row, rows),
        }
    }

    /// How the task fails.
    pub(super) fn stopped(&self, stopped: Stopped<TaskError>) -> TaskError {
        match stopped {
            Stopped::Rows(error) => self.unordered(error),
            Stopped::Taken(error) => error,
        }
    }

    pub(super) fn unordered(&self, error: Unordered) -> TaskError {
        self.budget.of_order(error)
    }
}
