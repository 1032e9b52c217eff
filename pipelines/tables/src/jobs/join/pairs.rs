//! Pairs of rows of two tables, as they are written.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, FieldRef, Schema};

use super::matching::Stopped;
use super::query::{JoinKind, Joined, Side, Source};
use crate::TableError;
use crate::block::{BYTES_MAX, Gather, Layout, Limits, Message, Pick};
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// Pairs that are gathered at a time, at most.
pub(super) const PAIRS_AT_ONCE: usize = 8192;

/// Bytes of what is gathered at a time from keys, from the left table and from the right one, each: those who write take no more than a message of all of them.
const LIMITS: Limits = Limits { rows_max: PAIRS_AT_ONCE, bytes_max: BYTES_MAX / 3, row_bytes_max: i32::MAX as u64 };

/// Pairs of rows, some of which are of a row of one table alone, on their way to who writes them.
pub(super) struct Pairs<'a, T> {
    joined: &'a Joined,
    kind: JoinKind,
    budget: Arc<dyn MemoryBudget>,
    take: T,
    /// Which rows of each batch of either table have a key with a null; `None`: none of the batch has.
    nulls: [Vec<Option<Vec<bool>>>; 2],
    /// Keys, of the batches of the left table and, behind them, of those of the right one.
    keys: Columns,
    /// Other columns of each table, of its batches and, behind them, of one row of nulls.
    others: [Columns; 2],
    /// How many batches each table has.
    batches: [u32; 2],
    pairs: usize,
    /// How many pairs are gathered at a time: fewer where rows are large.
    at_once: usize,
}

/// Columns of what is written that come from the same rows.
struct Columns {
    /// Which columns of what is written they are.
    numbers: Vec<usize>,
    gather: Gather,
    picks: Vec<Pick>,
}

/// Which column of a table a source is, if it is one.
type ColumnOf<'a> = &'a dyn Fn(Source) -> Option<usize>;

impl Columns {
    /// Of columns of these batches, and of a row of nulls where that is wanted.
    fn new(joined: &Joined, tables: &[(Vec<RecordBatch>, ColumnOf<'_>)], with_nulls: bool) -> Result<Self, TableError> {
        let of_first = tables[0].1;
        let numbers: Vec<usize> =
            (0..joined.columns.len()).filter(|at| of_first(joined.columns[*at]).is_some()).collect();
        let field = |at: &usize| Field::clone(joined.schema.field(*at)).with_nullable(true);
        let schema = Arc::new(Schema::new(numbers.iter().map(field).collect::<Vec<_>>()));
        let mut batches = Vec::new();
        for (of_table, column_of) in tables {
            for batch in of_table {
                let columns = numbers.iter().filter_map(|at| column_of(joined.columns[*at]));
                let columns: Vec<ArrayRef> = columns.map(|column| batch.column(column).clone()).collect();
                // They may be encoded in some way.
                let fields = schema.fields().iter().zip(&columns);
                let field = |(field, column): (&FieldRef, &ArrayRef)| {
                    Field::clone(field).with_data_type(column.data_type().clone())
                };
                let of_batch = Arc::new(Schema::new(fields.map(field).collect::<Vec<_>>()));
                batches.push(batch_of(&of_batch, columns, batch.num_rows())?);
            }
        }
        if with_nulls {
            let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
            batches.push(batch_of(&schema, nulls, 1)?);
        }
        let gather = Gather::new(Arc::new(Layout::new(&schema)?), &batches)?;
        Ok(Self { numbers, gather, picks: Vec::new() })
    }

    /// The rows of some pairs as one message; `None`: they are too many for one.
    fn message(&self, pairs: Range<usize>) -> Result<Option<Message<'_>>, TableError> {
        let count = pairs.len();
        let mut messages = self.gather.messages(&self.picks[pairs], &LIMITS)?;
        Ok(messages.pop().filter(|message| message.rows().len() == count))
    }
}

fn batch_of(schema: &Arc<Schema>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, TableError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

impl<'a, E, T: FnMut(&RecordBatch) -> Result<(), E>> Pairs<'a, T> {
    /// Of rows of these batches of each table.
    pub(super) fn new(
        (joined, kind): (&'a Joined, JoinKind),
        [left, right]: [&[RecordBatch]; 2],
        budget: &Arc<dyn MemoryBudget>,
        take: T,
    ) -> Result<Self, TableError> {
        let key_of = |side: Side| {
            move |source| match source {
                Source::Key(pair) => Some(joined.keys[side as usize][pair]),
                _ => None,
            }
        };
        let (of_left, of_right) = (key_of(Side::Left), key_of(Side::Right));
        let keys = Columns::new(joined, &[(left.to_vec(), &of_left), (right.to_vec(), &of_right)], false)?;
        let in_left = |source| if let Source::Left(column) = source { Some(column) } else { None };
        let in_right = |source| if let Source::Right(column) = source { Some(column) } else { None };
        let others = [
            Columns::new(joined, &[(left.to_vec(), &in_left)], true)?,
            Columns::new(joined, &[(right.to_vec(), &in_right)], true)?,
        ];
        let nulls_of =
            |side, batches: &[RecordBatch]| batches.iter().map(|batch| joined.null_keys(side, batch)).collect();
        let nulls = [nulls_of(Side::Left, left), nulls_of(Side::Right, right)];
        let batches = [left.len() as u32, right.len() as u32];
        let budget = budget.clone();
        Ok(Self { joined, kind, budget, take, nulls, keys, others, batches, pairs: 0, at_once: PAIRS_AT_ONCE })
    }

    /// How many pairs are gathered at a time: where pairs go on that others gave out the first of, it is what that has become then.
    pub(super) fn at_once(&mut self) -> &mut usize {
        &mut self.at_once
    }

    /// A row of the left table that matches none.
    pub(super) fn push_left(&mut self, row: Pick) -> Result<(), Stopped<E>> {
        if self.kind.keeps_left() { self.push(Some(row), None) } else { Ok(()) }
    }

    /// A row of the right table that matches none, unless it does where nobody sees it.
    pub(super) fn push_right(&mut self, row: Pick, matches_elsewhere: bool) -> Result<(), Stopped<E>> {
        if self.kind.keeps_right() && !matches_elsewhere { self.push(None, Some(row)) } else { Ok(()) }
    }

    /// A row of the left table, and those of the right one that have its key: they match, unless that has a null.
    pub(super) fn push_pairs(&mut self, row: Pick, found: &[Pick]) -> Result<(), Stopped<E>> {
        match self.kind {
            _ if self.has_null(Side::Left, row) => self.push_left(row),
            JoinKind::Anti => Ok(()),
            JoinKind::Semi => self.push(Some(row), None),
            _ => found.iter().try_for_each(|of_right| self.push(Some(row), Some(*of_right))),
        }
    }

    /// A row of the right table, and those of the left one that have its key, which has no null: one of them at least.
    pub(super) fn push_pairs_of(&mut self, row: Pick, found: &[Pick]) -> Result<(), Stopped<E>> {
        found.iter().try_for_each(|of_left| self.push(Some(*of_left), Some(row)))
    }

    /// Whether the key of a row has a null.
    pub(super) fn has_null(&self, side: Side, row: Pick) -> bool {
        self.nulls[side as usize][row.batch as usize].as_ref().is_some_and(|nulls| nulls[row.row as usize])
    }

    fn push(&mut self, left: Option<Pick>, right: Option<Pick>) -> Result<(), Stopped<E>> {
        let [of_left, of_right] = self.batches;
        let behind_left = |row: Pick| Pick { batch: of_left + row.batch, ..row };
        self.keys.picks.extend(left.or(right.map(behind_left)));
        let nulls = |batches| Pick { batch: batches, row: 0 };
        self.others[0].picks.push(left.unwrap_or(nulls(of_left)));
        self.others[1].picks.push(right.unwrap_or(nulls(of_right)));
        self.pairs += 1;
        if self.pairs == PAIRS_AT_ONCE { self.write() } else { Ok(()) }
    }

    /// Gives out what was pushed.
    pub(super) fn write(&mut self) -> Result<(), Stopped<E>> {
        let mut from = 0;
        while from < self.pairs {
            let to = self.pairs.min(from + self.at_once);
            match self.batch(from..to)? {
                Some((batch, _memory)) => {
                    (self.take)(&batch).map_err(Stopped::Taken)?;
                    from = to;
                }
                None => self.at_once = (to - from).div_ceil(2),
            }
        }
        std::iter::once(&mut self.keys).chain(&mut self.others).for_each(|columns| columns.picks.clear());
        self.pairs = 0;
        Ok(())
    }

    /// Some pairs as rows of what is written; `None`: they are too large for one batch.
    fn batch(&self, pairs: Range<usize>) -> Result<Option<(RecordBatch, Reservation)>, Stopped<E>> {
        let all = [&self.keys, &self.others[0], &self.others[1]];
        let mut messages = Vec::with_capacity(all.len());
        for columns in all.into_iter().filter(|columns| !columns.numbers.is_empty()) {
            match columns.message(pairs.clone())? {
                Some(message) => messages.push((columns, message)),
                None => return Ok(None),
            }
        }
        let bytes = messages.iter().map(|(_, message)| message.bytes()).sum();
        let memory = Reservation::of(&self.budget, bytes).map_err(Unordered::from)?;
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.joined.columns.len()];
        for (columns, message) in &messages {
            let batch = message.batch()?;
            columns.numbers.iter().zip(batch.columns()).for_each(|(at, array)| arrays[*at] = Some(array.clone()));
        }
        let arrays: Vec<ArrayRef> = arrays.into_iter().flatten().collect();
        Ok(Some((batch_of(&self.joined.schema, arrays, pairs.len())?, memory)))
    }
}
