//! A small table beside a large one: nothing of the large table goes to another node.
//!
//! 1. *small*: the small table in the order of its key as one object, which each node fetches once and all of its tasks read where it lies;
//! 2. *probe*: splits of the large table in, a file out ([`convert`](crate::jobs::convert)): for each row of it the rows of the small table with its key are looked up.
//!
//! Rows of the small table that match none would have to be known to all tasks, so there is no such join that writes them. The output is in the order of the large table, and rows that match one row of
//! it in the order of their places.

use std::pin::pin;
use std::sync::Arc;

use ::futures::TryStreamExt as _;
use arrow_array::{Array as _, RecordBatch};
use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{FunctionName, JobError, TaskOptions};
use exobus_shuffle::Sizes;
use exobus_shuffle::jobs::values::{read_values, write_value};
use exobus_store::{Align, Block};
use serde::{Deserialize, Serialize};

use super::JoinTables;
use super::exchange::{Arranged, Mapped};
use super::matching::Stopped;
use super::pairs::Pairs;
use super::query::{Broadcast, Joined, Side};
use super::rows::{OrderedRows, Rows};
use crate::TableError;
use crate::block::{Gather, Part, Pick};
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::convert::{ConvertParams, Converted, Function, rewritten, write_file};
use crate::jobs::described::{Described, LOOK_BYTES, PLACE_BYTES};
use crate::jobs::group::{Groups, NONE};
use crate::jobs::parts::write_sources;
use crate::jobs::pieces::{PieceReader, value_of};
use crate::jobs::rewrite::{MESSAGE_BYTES, Rewrite, Rewritten, map_outside_bytes, refuse_beyond};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table, push_split};
use crate::reading::Reading;
use crate::semantics::{KeyEncoder, conformed};
use crate::sources::{MemoryBudget, Reservation};

/// A table of so many bytes of values, with what it takes to look them up, is small.
const SMALL_BYTES: u64 = 64 << 20;
/// What a row of the small table takes while it is looked up, about: where it is, and the key of its group with the slots of that.
const ROW_BYTES: u64 = 64;

/// Which table is the small one, unless it is said: it follows from the tables alone, not from memory (law 9).
pub(super) fn small_side(params: &JoinTables, described: &[Described; 2]) -> Option<Side> {
    let is_small = |side: &Side| {
        let table = &described[*side as usize];
        table.value_bytes() + rows_about(table) * ROW_BYTES <= SMALL_BYTES
    };
    match params.broadcast {
        Broadcast::Left => Some(Side::Left),
        Broadcast::Right => Some(Side::Right),
        Broadcast::Never => None,
        Broadcast::Auto => {
            [Side::Right, Side::Left].into_iter().filter(|side| params.query.kind.can_broadcast(*side)).find(is_small)
        }
    }
}

/// How many rows a table has, or may have.
fn rows_about(table: &Described) -> u64 {
    table.splits().map(|split| split.rows_about()).sum()
}

/// What `small` is told. Its arguments are the layouts of both tables and the pieces of the small one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SmallParams {
    side: Side,
    reading: Reading,
    arranged: Arranged,
    row_bytes_max: RowLimit,
}

/// The small table in the order of its key, without rows whose key has a null; its second output is [`Mapped`].
#[task(name = "join.small", deterministic = true)]
fn small(context: &mut TaskContext<'_>, params: SmallParams) -> Result<(), TaskError> {
    let (budget, side) = (TaskBudget::new(context), params.side);
    let (table, joined) = tables_of(context, side, (0, 1), &params.arranged)?;
    let arranger = params.arranged.of(side).arranger(table.layout.schema())?;
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, &budget)?;
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 2, &budget)?;
    let mut rows = Rows::new((&table, &joined, side), &arranger, false, &budget);
    for piece in &pieces {
        rows.read(context, &reader, (piece, &pieces))?;
    }
    let OrderedRows { mut ordered, read, .. } = rows.end(&reader, &pieces)?;
    ordered.sort(arranger.keep);
    let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
    let picks: Vec<Pick> = ordered.picks(0..ordered.len()).collect();
    let (limits, mut scratch) = (reader.limits(), context.scratch(MESSAGE_BYTES)?);
    write_sources(
        context.output()?,
        &[(&gather, &picks)],
        &limits,
        &mut scratch,
        &budget,
        |error, denied| match denied {
            Some(denied) => budget.of_rows(denied),
            None => of_table(error),
        },
    )?;
    let passed = picks.len() as u64;
    write_value(context, 1, &Mapped { read, dropped: read - passed, divided: 0, passed })
}

/// The table of one side, and the join of both, by the layouts that these arguments have, that of the left table first.
fn tables_of(
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

/// What `probe` knows of the join beside what a conversion is told, as an argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Probed {
    side: Side,
    arranged: Arranged,
}

/// Rows of splits of the large table, each with those of the small one that match it, as a file. Its arguments are those of a conversion of the large table, the layouts of both tables, what is known
/// of the join, and the small table.
#[task(name = "join.probe", deterministic = true)]
fn probe(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<Converted, TaskError> {
    let budget = TaskBudget::new(context);
    let (Probed { side, arranged }, _memory) = value_of(context, 4, &budget)?;
    let (table, joined) = tables_of(context, side, (2, 3), &arranged)?;
    let found = Found::of(&table, (&arranged, side), context.block(5), &budget.shared());
    let mut found = found.map_err(|error| budget.of_order(error))?;
    let large = side.other();
    let encoder = KeyEncoder::new(&joined.tables[large as usize], arranged.of(large).key().unwrap_or_default());
    let (encoder, signal) = (encoder.map_err(of_table)?, context.cancel_signal());
    let of_large = &joined.tables[large as usize];
    write_file(
        context,
        params,
        &budget,
        Some(&mut |batch: RecordBatch, given| {
            if batch.num_rows() == 0 {
                return given(RecordBatch::new_empty(joined.schema.clone()));
            }
            let batch = conformed(&batch, of_large).map_err(of_table)?;
            let keys = encoder.encode(&batch).and_then(|keys| keys.into_array()).map_err(of_table)?;
            let nulls = joined.null_keys(large, &batch);
            found.groups.find(&keys, &mut found.numbers);
            let (of_batch, of_small) = (std::slice::from_ref(&batch), &found.batches[..]);
            let batches = if side == Side::Right { [of_batch, of_small] } else { [of_small, of_batch] };
            let pairs = Pairs::new((&joined, arranged.query.kind), batches, &budget.shared(), |rows: &RecordBatch| {
                signal.check()?;
                given(rows.clone())
            });
            let matched = pairs.map_err(Stopped::from).and_then(|mut pairs| {
                for row in 0..batch.num_rows() {
                    let number = found.numbers[row];
                    let is_null = nulls.as_ref().is_some_and(|nulls| nulls[row]);
                    let rows = if is_null || number == NONE { &[][..] } else { found.rows_of(number) };
                    let pick = Pick { batch: 0, row: row as u32 };
                    match (side, rows.is_empty()) {
                        (Side::Right, true) => pairs.push_left(pick)?,
                        (Side::Right, false) => pairs.push_pairs(pick, rows)?,
                        (Side::Left, true) => pairs.push_right(pick, false)?,
                        (Side::Left, false) => pairs.push_pairs_of(pick, rows)?,
                    }
                }
                pairs.write()
            });
            matched.map_err(|stopped: Stopped<TaskError>| match stopped {
                Stopped::Rows(error) => budget.of_order(error),
                Stopped::Taken(error) => error,
            })
        }),
    )
}

/// The rows of the small table by their keys.
struct Found {
    batches: Vec<RecordBatch>,
    groups: Groups,
    /// Where the rows of each group end among all.
    ends: Vec<u32>,
    rows: Vec<Pick>,
    /// Of the keys of a batch of the large table.
    numbers: Vec<u32>,
    _memory: Reservation,
}

impl Found {
    #[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
    fn of(
        table: &Table,
        (arranged, side): (&Arranged, Side),
        block: Block,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, Unordered> {
        let batches = match block.is_empty() {
            true => Vec::new(),
            // SAFETY: it is the output of the task `small`, which writes with a `Gather` and runs in the node.
            false => {
                unsafe { Part::new(table.layout.clone(), block.part(0)) }.collect::<Result<Vec<_>, TableError>>()?
            }
        };
        let encoder = KeyEncoder::new(table.layout.schema(), arranged.of(side).key().unwrap_or_default())?;
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut memory = Reservation::of(budget, 16 * count as u64)?;
        let (mut groups, mut numbers) = (Groups::default(), Vec::new());
        let (mut ends, mut rows) = (Vec::<u32>::with_capacity(count), Vec::with_capacity(count));
        for (number, batch) in (0..).zip(&batches) {
            let measured = encoder.measure(batch)?;
            let keys = Reservation::of(budget, measured.bytes()?)?;
            let encoded = measured.encode()?.into_array()?;
            memory.at_least(16 * count as u64 + groups.bytes_with(encoded.len(), encoded.value_data().len()))?;
            groups.intern(&encoded, &mut numbers)?;
            drop(keys);
            // Rows are in the order of their keys, so those of a group are one behind the other.
            for (row, group) in (0..).zip(&numbers) {
                rows.push(Pick { batch: number, row });
                ends.resize(*group as usize + 1, 0);
                ends[*group as usize] = rows.len() as u32;
            }
        }
        memory.resize(16 * count as u64 + groups.bytes())?;
        Ok(Self { batches, groups, ends, rows, numbers, _memory: memory })
    }

    fn rows_of(&self, group: u32) -> &[Pick] {
        let from = if group == 0 { 0 } else { self.ends[group as usize - 1] };
        &self.rows[from as usize..self.ends[group as usize] as usize]
    }
}

/// Joins two tables of which one is small.
pub(super) async fn run(
    futures: Futures,
    name: &'static str,
    params: JoinTables,
    (small_side, described): (Side, [Described; 2]),
    right: Rewrite,
) -> Result<Rewritten, JobError> {
    let sizes = Sizes::of(&futures.nodes(), described.iter().map(Described::value_bytes).sum());
    let table = &described[small_side as usize];
    let rows = rows_about(table);
    let mut pieces = Vec::new();
    for (at, (file, split)) in (0..).zip(table.numbered_splits()) {
        push_split(&mut pieces, file, split, at);
    }
    let layouts = [futures.put(&described[0].layout)?, futures.put(&described[1].layout)?];
    let columns = Table::decode(&table.layout).map_err(JobError::program)?.schema.fields().len() as u64 + 1;
    let outside_bytes = map_outside_bytes(&pieces, columns);
    let what =
        || format!("the {small_side} table, which all tasks are to have unless it is said that --broadcast is never,");
    let object_bytes = table.value_bytes() + rows * PLACE_BYTES;
    refuse_beyond(sizes, (outside_bytes, object_bytes), what)?;
    refuse_beyond(sizes, (LOOK_BYTES + rows * ROW_BYTES, object_bytes), what)?;
    let arranged = Arranged::new(params.query.clone());
    let row_bytes_max = RowLimit::of(sizes);
    let told =
        SmallParams { side: small_side, reading: table.reading.clone(), arranged: arranged.clone(), row_bytes_max };
    let options = TaskOptions {
        scratch_bytes: vec![MESSAGE_BYTES],
        outside_bytes,
        align: Align::SixtyFour,
        ..TaskOptions::default()
    };
    let pieces = futures.put_value(&pieces)?;
    let args = [layouts[0].arg(), layouts[1].arg(), pieces.arg()];
    let made = futures.submit_many(small, &told, &args, 2, options)?;
    let (object, mapped) = (&made[0], &made[1..]);
    let probed = futures.put_value(&Probed { side: small_side, arranged })?;
    let function = Function {
        name: FunctionName::of(probe),
        resources: TaskOptions::default().resources,
        args: vec![layouts[0].arg(), layouts[1].arg(), probed.arg(), object.arg()],
        outside_bytes: rows * ROW_BYTES,
    };
    let mut values = pin!(read_values::<Mapped>(&futures, mapped));
    let Some(Mapped { read, .. }) = values.try_next().await? else {
        return Err(JobError::program("the task that reads the small table said nothing"));
    };
    if let Some(rows) = table.rows().filter(|rows| *rows != read) {
        let detail = format!("input files of the {small_side} table say {rows} rows; read {read} rows");
        return Err(JobError::Conservation { edge: "input -> small table".to_owned(), detail });
    }
    let input_bytes = table.input_bytes();
    let large = if small_side == Side::Right { params.table } else { right };
    drop(described);
    let written = rewritten(futures.clone(), name, large, Some(function)).await?;
    Ok(Rewritten { input_bytes: written.input_bytes + input_bytes, rows_read: written.rows_read + read, ..written })
}
