//! A small table beside a large one: nothing of the large table goes to another node.
//!
//! 1. *small*: the small table as one object, in pieces of some MiB, which each node fetches once and all of its tasks read where it lies;
//! 2. *probe*: splits of the large table in, a file out ([`convert`](crate::jobs::convert)): for each row of it the rows of the small table with its key are looked up. Where the small table has no room
//!    beside that, it is read in several passes ([`passes`](super::passes)), and the same is written.
//!
//! Rows of the small table that match none would have to be known to all tasks, so there is no such join that writes them. The output is in the order of the large table, and rows that match one row of
//! it in the order of their places.

use std::pin::pin;

use ::futures::TryStreamExt as _;
use arrow_array::RecordBatch;
use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{FunctionName, JobError, TaskOptions};
use exobus_shuffle::Sizes;
use exobus_shuffle::jobs::values::{read_values, write_value};
use exobus_store::Align;
use serde::{Deserialize, Serialize};

use super::JoinTables;
use super::exchange::{Arranged, Mapped};
use super::probe::{Probed, probe, probe_pieces, tables_of};
use super::query::{Broadcast, Side};
use super::rows::{place_of, without};
use crate::block::{Gather, Pick};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::convert::{Function, rewritten};
use crate::jobs::described::{Described, LOOK_BYTES, PLACE_BYTES};
use crate::jobs::parts::write_sources;
use crate::jobs::pieces::{PieceReader, value_of};
use crate::jobs::rewrite::{MESSAGE_BYTES, Rewrite, Rewritten, refuse_beyond};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::Piece;
use crate::reading::{Reading, Wanted};
use crate::sources::{Reservation, value_bytes};

/// A table of so many bytes of values, with what it takes to look them up, is small.
const SMALL_BYTES: u64 = 64 << 20;
/// What a row of the small table takes while it is looked up, about: where it is, and the key of its group with the slots of that.
const ROW_BYTES: u64 = 64;
/// Bytes of a piece of the small table, about: where it does not fit, so much of it is there at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// A small table that takes more than this share of the memory of a node, with what all executors need to look rows up in it, is read in passes.
const SMALL_SHARE: u64 = 2;
/// Each executor has windows of this share of the memory of a node in passes.
const WINDOW_SHARE: u64 = 16;

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

/// Bytes of the object that a small table is.
pub(super) fn object_bytes(table: &Described) -> u64 {
    table.value_bytes() + rows_about(table) * PLACE_BYTES
}

/// What `small` is told. Its arguments are the layouts of both tables and the pieces of the small one, of one split each.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SmallParams {
    side: Side,
    reading: Reading,
    arranged: Arranged,
    row_bytes_max: RowLimit,
    /// Bytes of the object, about, where all of it is to be at hand at a time; else 0.
    object_bytes: u64,
}

/// The small table in its order, without rows whose key has a null, as an object of pieces; its second output is [`Mapped`].
#[task(name = "join.small", version = 2, deterministic = true)]
fn small(context: &mut TaskContext<'_>, params: SmallParams) -> Result<(), TaskError> {
    let (budget, side) = (TaskBudget::new(context), params.side);
    let (table, joined) = tables_of(context, side, (0, 1), &params.arranged)?;
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, &budget)?;
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 2, &budget)?;
    let (limits, mut scratch) = (reader.limits(), context.scratch(MESSAGE_BYTES)?);
    let (mut mapped, mut batches) = (Mapped::default(), Vec::<RecordBatch>::new());
    let mut memory = Reservation::none(&budget.shared());
    for (number, piece) in (1..).zip(&pieces) {
        reader.each(context, piece, &mut Wanted::ALL.clone(), |rows| {
            let refused = |error| reader.refused(piece, &rows, error);
            let first = piece.first_place(rows.split) + rows.first_row;
            let placed = table.placed(&rows.batch, first).map_err(refused)?;
            mapped.read += placed.num_rows() as u64;
            let placed = match joined.null_keys(side, &placed) {
                None => placed,
                Some(nulls) => without(&placed, &nulls)?,
            };
            let bytes = memory.bytes() + value_bytes(&placed, 0..placed.num_rows());
            memory.resize(bytes).map_err(|denied| budget.of_rows(denied))?;
            batches.push(placed);
            Ok(())
        })?;
        if number < pieces.len() && memory.bytes() < PIECE_BYTES {
            continue;
        }
        let gather = Gather::new(table.layout.clone(), &batches).map_err(of_table)?;
        let of_batch =
            |(batch, rows): (u32, &RecordBatch)| (0..rows.num_rows() as u32).map(move |row| Pick { batch, row });
        let picks: Vec<Pick> = (0..).zip(&batches).flat_map(of_batch).collect();
        let rows = (u128::from(PIECE_BYTES) * picks.len() as u128).div_ceil(u128::from(memory.bytes().max(1)));
        for of_piece in picks.chunks(rows.max(1) as usize) {
            mapped.passed += of_piece.len() as u64;
            let writer = context.output_at_sized(0, params.object_bytes)?;
            write_sources(writer, &[(&gather, of_piece)], &limits, &mut scratch, &budget, |error, denied| {
                let Some((batch, ..)) = error.of_row() else { return of_table(error) };
                let place = place_of(&batches[batch], &error);
                match denied {
                    None => reader.refused_at(&pieces, place, error),
                    Some(denied) => reader.denied_at(&pieces, place, denied),
                }
            })?;
        }
        drop(gather);
        batches.clear();
        memory.resize(0).map_err(|denied| budget.of_rows(denied))?;
    }
    mapped.dropped = mapped.read - mapped.passed;
    write_value(context, 1, &mapped)
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
    let splits = (0..).zip(table.numbered_splits());
    let read = splits.filter(|(_, (file, split))| !file.splits[*split].is_left_out);
    let pieces: Vec<Piece> = read.map(|(at, (file, split))| Piece::new(file, split, at)).collect();
    let layouts = [futures.put(&described[0].layout)?, futures.put(&described[1].layout)?];
    // Of one split at a time, and of what that is put together with.
    let largest = pieces.iter().map(|piece| piece.file.splits[0].map_bytes() + piece.file.told_bytes()).max();
    let object_bytes = object_bytes(table);
    let outside_bytes = LOOK_BYTES + largest.unwrap_or(0) + 2 * PIECE_BYTES.min(object_bytes);
    refuse_beyond(sizes, (outside_bytes, 0), || format!("a split of the {small_side} table, which is broadcast,"))?;
    let executors = u64::from(sizes.executors_per_node.max(1));
    let is_whole = object_bytes + executors * rows * ROW_BYTES <= sizes.memory_bytes / SMALL_SHARE;
    let arranged = Arranged::new(params.query.clone());
    let row_bytes_max = RowLimit::of(sizes);
    let told = SmallParams {
        side: small_side,
        reading: table.reading.clone(),
        arranged: arranged.clone(),
        row_bytes_max,
        object_bytes: if is_whole { object_bytes } else { 0 },
    };
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
    let window_bytes = sizes.memory_bytes / (WINDOW_SHARE * executors);
    let probed = futures.put_value(&Probed { side: small_side, arranged, window_bytes })?;
    let rows_of_piece = (u128::from(rows) * u128::from(PIECE_BYTES) / u128::from(object_bytes.max(1))) as u64;
    let (name_of_probe, probe_bytes) = match is_whole {
        true => (FunctionName::of(probe), rows * ROW_BYTES),
        // A window, rows of a load, and a piece.
        false => (FunctionName::of(probe_pieces), 2 * window_bytes + PIECE_BYTES + rows_of_piece * ROW_BYTES),
    };
    let function = Function {
        name: name_of_probe,
        resources: TaskOptions::default().resources,
        args: vec![layouts[0].arg(), layouts[1].arg(), probed.arg(), object.arg()],
        outside_bytes: probe_bytes,
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
    let written = rewritten(futures.clone(), name, (large, None), Some(function)).await?;
    Ok(Rewritten { input_bytes: written.input_bytes + input_bytes, rows_read: written.rows_read + read, ..written })
}
