//! Rows that stand for others: what cuts between files are made of.

use std::ops::Range;

use arrow_array::{Array as _, UInt32Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_files::Access;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::arrangement::Arrangement;
use super::cuts;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::table::{Piece, Table};
use crate::reading::{ALL_ROWS, Reading, TableReader, ToRead};
use crate::semantics::{KeyColumn, KeyEncoder, conformed};
use crate::sources::BATCH_ROWS_MAX;

/// What `sample` is told. Its only argument is the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SampleParams {
    pub(super) pieces: Vec<Piece>,
    pub(super) reading: Reading,
    pub(super) arrangement: Arrangement,
    /// How many rows of each batch that is looked at are taken.
    pub(super) keys: usize,
    /// Which batches of a split are looked at.
    pub(super) look: SampledBatches,
    /// How many rows of each are read, where others can be passed over.
    pub(super) rows_read: u64,
    /// Whether rows whose key has a null are left out by who reads them.
    pub(super) drops_nulls: bool,
}

/// Batches that stand for all of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SampledBatches {
    /// The first: of text, which has to be read up to where one looks.
    First,
    /// One of so many, beginning with another one in each split: rows of a split may be in some order.
    Every(u64),
}

impl SampledBatches {
    /// Whether a batch is looked at, which is of this number in a split whose first row has this place.
    fn is_at(self, first_place: u64, number: u64) -> bool {
        match self {
            Self::First => number == 0,
            Self::Every(batches) => number % batches.max(1) == (first_place >> 32) % batches.max(1),
        }
    }
}

impl SampleParams {
    /// The rows that are looked at of a split that has so many.
    fn ranges(&self, first_place: u64, rows: u64) -> Vec<Range<u64>> {
        let of_batch = |number: u64| {
            // Not always the first of a batch: rows may be in some order.
            let parts = (BATCH_ROWS_MAX as u64 / self.rows_read).max(1);
            let from = number * BATCH_ROWS_MAX as u64;
            let left = rows.min(from + BATCH_ROWS_MAX as u64) - from;
            let from = from + (number % parts * self.rows_read).min(left.saturating_sub(self.rows_read));
            from..(from + self.rows_read).min(rows)
        };
        let batches = 0..rows.div_ceil(BATCH_ROWS_MAX as u64);
        batches.filter(|number| self.look.is_at(first_place, *number)).map(of_batch).collect()
    }
}

/// Cuts at rows at even distances in some splits; one without bytes stands for a row that is left out.
#[task(name = "table.sample", deterministic = true)]
pub(super) fn sample(context: &mut TaskContext<'_>, params: SampleParams) -> Result<Vec<ByteBuf>, TaskError> {
    let budget = TaskBudget::new(context);
    let (table, key) = (Table::of(context)?, params.arrangement.key().unwrap_or_default());
    let schema = projected(&table.schema, key);
    let encoder = KeyEncoder::new(&schema, key).map_err(of_table)?;
    let reader = TableReader::new(&params.reading, &schema, &budget.shared()).map_err(of_table)?;
    let mut sampled = Vec::new();
    for piece in &params.pieces {
        context.check_path(&piece.file.path)?;
        params.reading.options.beside().try_for_each(|folder| context.check_path(folder))?;
        let file =
            piece.file.open(&reader, &params.reading, Access::Ranges).map_err(|error| budget.of_source(error))?;
        for (split, first_place, described) in piece.splits() {
            // What says how many rows it has, and can pass over others, is read where it is looked at alone.
            let ranges =
                described.rows.filter(|_| file.passes_over_rows()).map(|rows| params.ranges(first_place, rows));
            let read = match &ranges {
                Some(ranges) if ranges.is_empty() => continue,
                Some(ranges) => file.read_ranges(split, ranges),
                None => file.read(ToRead::whole(split, described.state), ALL_ROWS),
            };
            let mut number = 0;
            for rows in read.map_err(|error| budget.of_source(error))? {
                context.check_cancelled()?;
                let rows = rows.map_err(|error| budget.of_source(error))?;
                let batch = &rows.batch;
                if batch.num_rows() == 0 {
                    continue;
                }
                let is_looked_at = ranges.is_some() || params.look.is_at(first_place, number);
                number += 1;
                if !is_looked_at {
                    continue;
                }
                let first_row = if ranges.is_some() { rows.row_of_split(0) } else { rows.first_row };
                let place = first_place + first_row;
                // Rows at even distances in what is looked at, as far as they are in the batch.
                let read = first_row..first_row + batch.num_rows() as u64;
                let looked_at = ranges.iter().flatten().find(|range| range.contains(&first_row));
                let within = looked_at.unwrap_or(&read);
                let (count, keys) = (within.end - within.start, (params.keys as u64).min(within.end - within.start));
                let chosen = (0..keys).map(|at| within.start + at * count / keys).filter(|row| read.contains(row));
                let chosen = UInt32Array::from_iter_values(chosen.map(|row| (row - read.start) as u32));
                let taken = match batch.num_columns() {
                    // All rows of a file without the columns of the key are alike.
                    0 => batch.slice(0, chosen.len()),
                    _ => take_record_batch(batch, &chosen).map_err(TaskError::fatal)?,
                };
                let taken = conformed(&taken, &schema).map_err(|error| {
                    let error = error.with_row(|at| chosen.value(at) as usize);
                    budget.of_source(file.row_error(&rows, error))
                })?;
                let keys = encoder.encode(&taken).map_err(of_table)?;
                let place_of =
                    |at: usize| (!params.arrangement.is_together()).then(|| place + u64::from(chosen.value(at)));
                let nulls: Vec<NullBuffer> = match params.drops_nulls {
                    true => taken.columns().iter().filter_map(|column| column.logical_nulls()).collect(),
                    false => Vec::new(),
                };
                sampled.extend((0..keys.len()).map(|at| match nulls.iter().any(|nulls| nulls.is_null(at)) {
                    true => ByteBuf::new(),
                    false => ByteBuf::from(cuts::cut(keys.get(at), place_of(at))),
                }));
                if params.look == SampledBatches::First {
                    break;
                }
            }
        }
    }
    Ok(sampled)
}

/// The columns of the table that the key is made of, in their order.
fn projected(schema: &SchemaRef, key: &[KeyColumn]) -> SchemaRef {
    let is_of_key = |name: &str| {
        let within = |path: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        key.iter().any(|key| key.column == name || within(&key.column))
    };
    let fields = schema.fields().iter().filter(|field| is_of_key(field.name())).cloned().collect::<Vec<_>>();
    Schema::new(fields).into()
}
