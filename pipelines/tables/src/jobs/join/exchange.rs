//! The tasks before the exchange and in the middle of it: maps and merges.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Schema;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::pieces;
use exobus_shuffle::jobs::values::write_value;
use exobus_store::{Block, ObjectWriter};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::cuts::{Borders, HeavyKey};
use super::filter::{Sieve, write_hashes};
use super::query::{JoinQuery, Joined, Side};
use super::rows::{OrderedRows, Rows, place_of};
use super::sorted::Sorted;
use crate::TableError;
use crate::block::{Gather, Layout, Limits, Messages, Pick};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::dedupe::Keep;
use crate::jobs::parts::{account, arguments, write_sources};
use crate::jobs::pieces::{PieceReader, value_of};
use crate::jobs::rewrite::{Arrangement, Arranger, MESSAGE_BYTES, Ordered, is_before};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table, with_places, with_right_places};
use crate::reading::Reading;
use crate::semantics::stored_schema;
use crate::sinks::FileForm;
use crate::sources::Reservation;

/// Rows that are merged between two looks at whether anybody wants them.
const ROWS_AT_ONCE: usize = 1 << 16;

/// What a join of two tables is to a task: their layouts are its first arguments.
pub(super) struct Tables {
    pub(super) of: [Table; 2],
    pub(super) joined: Joined,
    arrangers: [Arranger; 2],
}

impl Tables {
    /// Of the first two arguments of a task.
    pub(super) fn of(context: &TaskContext<'_>, arranged: &Arranged) -> Result<Self, TaskError> {
        Self::new([Table::decode(&context.block(0))?, Table::decode(&context.block(1))?], arranged)
    }

    fn new(of: [Table; 2], arranged: &Arranged) -> Result<Self, TaskError> {
        let joined = Joined::new(&arranged.query, &of[0].schema, &of[1].schema).map_err(of_table)?;
        let arranger = |side: Side| arranged.of(side).arranger(of[side as usize].layout.schema());
        let arrangers = [arranger(Side::Left)?, arranger(Side::Right)?];
        Ok(Self { of, joined, arrangers })
    }

    pub(super) fn table(&self, side: Side) -> &Table {
        &self.of[side as usize]
    }

    pub(super) fn arranger(&self, side: Side) -> &Arranger {
        &self.arrangers[side as usize]
    }

    /// The rows of these parts, those of each table in the order of its keys; what was read.
    pub(super) fn sorted<'a>(
        &'a self,
        budget: &Arc<TaskBudget>,
        parts: impl Iterator<Item = Block>,
    ) -> Result<([Sorted<'a>; 2], Output), TaskError> {
        let (mut runs, mut read) = ([Vec::new(), Vec::new()], Output::default());
        for part in parts.filter(|part| !part.is_empty()) {
            let mut messages = self.messages(part);
            let mut of_part = [Vec::new(), Vec::new()];
            for message in &mut messages {
                let (side, batch) = message.map_err(of_table)?;
                of_part[side].push(batch);
            }
            read.add(messages.read());
            runs.iter_mut().zip(of_part).for_each(|(runs, run)| runs.extend((!run.is_empty()).then_some(run)));
        }
        let [left, right] = runs;
        let sorted = |side, runs| Sorted::new(self.arranger(side), &budget.shared(), runs);
        let denied = |error| budget.of_order(error);
        Ok(([sorted(Side::Left, left).map_err(denied)?, sorted(Side::Right, right).map_err(denied)?], read))
    }

    #[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
    fn messages(&self, part: Block) -> Messages {
        let layouts = self.of.iter().map(|table| table.layout.clone()).collect();
        // SAFETY: what is merged and reduced are outputs of the tasks that map and merge, which write with a `Gather` and run in the node.
        unsafe { Messages::new(layouts, part) }
    }
}

/// Which rows match, and in which order they come together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Arranged {
    pub(super) query: JoinQuery,
    arrangements: [Arrangement; 2],
}

impl Arranged {
    pub(super) fn new(query: JoinQuery) -> Self {
        // Where rows of the right table are not written, one of each key tells all.
        let right = match query.kind.has_pairs() {
            true => Arrangement::by_key(query.right_key()),
            false => Arrangement::distinct(query.right_key(), Vec::new(), Keep::First),
        };
        Self { arrangements: [Arrangement::by_key(query.left_key()), right], query }
    }

    pub(super) fn of(&self, side: Side) -> &Arrangement {
        &self.arrangements[side as usize]
    }
}

/// What `bind` is told. Its arguments are the layouts of both tables, as they were found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BindParams {
    pub(super) query: JoinQuery,
    /// What files will be written as.
    pub(super) form: FileForm,
}

/// The layouts of both tables with keys of the same types, encoded; a query that is none for them is refused.
#[task(name = "join.bind", deterministic = true)]
pub(super) fn bind(context: &mut TaskContext<'_>, params: BindParams) -> Result<[ByteBuf; 2], TaskError> {
    let [left, right] = [0, 1].map(|arg| Table::decode(&context.block(arg)));
    let joined = Joined::new(&params.query, &left?.schema, &right?.schema).map_err(|error| match error {
        // Types and names of two tables are told by whoever joins them.
        TableError::NotUnified(_) | TableError::NamesAlike { .. } => TaskError::request(error),
        error => of_table(error),
    })?;
    stored_schema(params.form.format().types(), &joined.schema).map_err(of_table)?;
    let [left, right] = &joined.tables;
    let encoded = |schema: Schema| -> Result<ByteBuf, TaskError> {
        Ok(ByteBuf::from(Layout::new(&schema).map_err(of_table)?.encode()))
    };
    Ok([encoded(with_places(left)?)?, encoded(with_right_places(right)?)?])
}

/// What `map` is told. Its arguments are the layouts of both tables, the borders of partitions, the pieces that it reads, and perhaps a filter of the keys of the other table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) side: Side,
    /// Whether its third output is to be the hashes of its keys.
    pub(super) says_keys: bool,
    /// Whether there is a filter.
    pub(super) is_filtered: bool,
    pub(super) reading: Reading,
    pub(super) arranged: Arranged,
    pub(super) row_bytes_max: RowLimit,
}

/// The second output of a map: rows that it read, that it left out, that went to one file more, each as often as they did, and that it passed on, each as often as it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapped {
    pub(super) read: u64,
    pub(super) dropped: u64,
    pub(super) divided: u64,
    pub(super) passed: u64,
}

/// Rows of some splits of one table, in order, as an object with a part for each partition; its second output is [`Mapped`].
#[task(name = "join.map", version = 2, deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    let (budget, side) = (TaskBudget::new(context), params.side);
    let tables = Tables::of(context, &params.arranged)?;
    let (table, arranger) = (tables.table(side), tables.arranger(side));
    let borders: Borders = rmp_serde::from_slice(&context.block(2)).map_err(TaskError::fatal)?;
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, &budget)?;
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 3, &budget)?;
    let keeps_nulls = params.arranged.query.kind.keeps(side);
    let filter = params.is_filtered.then(|| context.block(4));
    let sieve = filter.as_deref().map(|blocks| {
        let key = params.arranged.of(side).key().unwrap_or_default();
        Sieve::of(blocks, (table.layout.schema(), key), Reservation::none(&budget.shared()))
    });
    let mut rows = Rows::new((table, &tables.joined, side), arranger, (keeps_nulls, sieve.transpose()?), &budget);
    for piece in &pieces {
        rows.read(context, &reader, (piece, &pieces))?;
    }
    let OrderedRows { mut ordered, read, .. } = rows.end(&reader, &pieces)?;
    ordered.sort(arranger.keep);
    let mut mapped = Mapped { read, dropped: read - ordered.len() as u64, divided: 0, passed: 0 };
    let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
    let (limits, mut scratch) = (reader.limits(), context.scratch(MESSAGE_BYTES)?);
    let writer = context.output()?;
    for partition in partitions(&tables, side, &ordered, &borders) {
        let picks: Vec<Pick> = ordered.picks(partition).collect();
        mapped.passed += picks.len() as u64;
        write_sources(writer, &[(&gather, &picks)], &limits, &mut scratch, &budget, |error, denied| {
            let Some((batch, ..)) = error.of_row() else { return of_table(error) };
            let place = place_of(&ordered.batches()[batch], &error);
            match denied {
                None => reader.refused_at(&pieces, place, error),
                Some(denied) => reader.denied_at(&pieces, place, denied),
            }
        })?;
    }
    mapped.divided = mapped.passed - ordered.len() as u64;
    if params.says_keys {
        write_hashes(context, 2, &ordered)?;
    }
    write_value(context, 1, &mapped)
}

/// Which rows of the order go to each partition: to that of their file, or to those of a stretch or of cells of it.
fn partitions(tables: &Tables, side: Side, ordered: &Ordered<'_>, borders: &Borders) -> Vec<Range<usize>> {
    let mut partitions = Vec::new();
    for (file, rows) in (0..).zip(files(tables, side, ordered, &borders.cuts)) {
        let mut from = rows.start;
        for heavy in borders.heavy(file) {
            let begin = ordered.end_of(from, |key, _| key < &heavy.key[..]).min(rows.end);
            let end = ordered.end_of(begin, |key, _| key <= &heavy.key[..]).min(rows.end);
            partitions.push(from..begin);
            cells(tables, side, ordered, (begin..end, heavy), &mut partitions);
            from = end;
        }
        partitions.push(from..rows.end);
    }
    partitions
}

/// Which of these rows, which have a heavy key, go to each cell of a file: of the left table all to each of them, unless the key has a null, which matches nothing; of the right table a piece to each.
fn cells(
    tables: &Tables,
    side: Side,
    ordered: &Ordered<'_>,
    (rows, heavy): (Range<usize>, &HeavyKey),
    cells: &mut Vec<Range<usize>>,
) {
    let is_null = || {
        let (_, batch, row) = ordered.row(rows.start);
        tables.joined.null_keys(side, &batch.slice(row, 1)).is_some()
    };
    match side {
        Side::Left if !rows.is_empty() && is_null() => {
            cells.push(rows.clone());
            cells.extend(heavy.places.iter().map(|_| rows.end..rows.end));
        }
        Side::Left => cells.extend(std::iter::repeat_n(rows, heavy.places.len() + 1)),
        Side::Right => {
            let mut from = rows.start;
            for piece_end in &heavy.places {
                let end = ordered.end_of(from, |key, place| key <= &heavy.key[..] && place < *piece_end).min(rows.end);
                cells.push(from..end);
                from = end;
            }
            cells.push(from..rows.end);
        }
    }
}

/// Which rows of the order go to each file: of the left table each to one; of the right table each to all that have its key, unless that has a null: nothing of the left table is to meet it then,
/// and it goes behind what is.
fn files(tables: &Tables, side: Side, ordered: &Ordered<'_>, cuts: &Cuts) -> Vec<Range<usize>> {
    let (mut files, mut from) = (Vec::with_capacity(cuts.partitions()), 0);
    for cut in cuts.keys() {
        let (end, next) = match side {
            Side::Left => {
                let end = ordered.end_of(from, |key, place| is_before(cut, key, place));
                (end, end)
            }
            Side::Right => right_end(tables, ordered, from, cut),
        };
        files.push(from..end);
        from = next;
    }
    files.push(from..ordered.len());
    files
}

/// Where rows of the right table end that go before a cut, and where those begin that go behind it.
fn right_end(tables: &Tables, ordered: &Ordered<'_>, from: usize, cut: &[u8]) -> (usize, usize) {
    // Also those of a key that the cut divides by places of the left table.
    let end = ordered.end_of(from, |key, _| key < cut);
    let Some((key, batch, row)) = (end > from).then(|| ordered.row(end - 1)) else { return (end, end) };
    if cut.len() == key.len() || !cut.starts_with(key) {
        return (end, end);
    }
    let begin = ordered.end_of(from, |other, _| other < key);
    match tables.joined.null_keys(Side::Right, &batch.slice(row, 1)) {
        Some(_) => (begin, begin),
        None => (end, begin),
    }
}

/// What `merge` is told. Its arguments are the layouts and what is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MergeParams {
    pub(super) pieces: Vec<u32>,
    pub(super) arranged: Arranged,
}

/// Parts in order, those of each table merged part by part, into one object for each piece.
#[task(name = "join.merge", deterministic = true)]
pub(super) fn merge(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let tables = Tables::of(context, &params.arranged)?;
    let args = arguments(context, 2);
    let (mut read, mut scratch) = (Output::default(), context.scratch(MESSAGE_BYTES)?);
    for (piece, parts) in pieces::ranges(&params.pieces) {
        // What has no rows at all has no parts either.
        let with_rows = || args.iter().flatten().filter(|block| !block.is_empty());
        let bytes = pieces::bytes(with_rows().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let (sorted, of_part) = tables.sorted(&budget, with_rows().map(|block| block.part(part)))?;
            read.add(of_part);
            let picked = Reservation::of(&budget.shared(), of_part.rows * size_of::<Pick>() as u64);
            let _picked = picked.map_err(|denied| budget.of_rows(denied))?;
            let mut merged = Vec::new();
            for (side, mut sorted) in Side::BOTH.into_iter().zip(sorted) {
                let layout = tables.table(side).layout.clone();
                let gather = Gather::new(layout, sorted.batches()).map_err(of_table)?;
                let mut picks = Vec::new();
                while let Some((_, row)) = sorted.take().map_err(|error| budget.of_order(error))? {
                    picks.push(row);
                    if picks.len() % ROWS_AT_ONCE == 0 {
                        context.check_cancelled()?;
                    }
                }
                merged.push((gather, picks));
            }
            let sources: Vec<(&Gather, &[Pick])> = merged
                .iter()
                .map(|(gather, picks)| (gather, &picks[..]))
                .filter(|(_, picks)| !picks.is_empty())
                .collect();
            let writer: &mut ObjectWriter = context.output_at_sized(piece, bytes)?;
            write_sources(writer, &sources, &Limits::default(), &mut scratch, &budget, |error, denied| match denied {
                Some(denied) => budget.of_rows(denied),
                None => of_table(error),
            })?;
        }
        context.seal_output(piece)?;
    }
    account(context, 2, &args, read);
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch, UInt64Array};
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::jobs::join::{JoinKind, Pair};
    use crate::sources::{FixedBudget, MemoryBudget};

    /// Rows of these ids and places.
    fn ordered<'a>(tables: &'a Tables, side: Side, rows: &[(Option<i64>, u64)]) -> Ordered<'a> {
        let ids = Int64Array::from_iter(rows.iter().map(|(id, _)| *id));
        let places = UInt64Array::from_iter_values(rows.iter().map(|(_, place)| *place));
        let schema = tables.table(side).layout.schema().clone();
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let mut ordered = Ordered::new(tables.arranger(side), &budget);
        ordered.add(RecordBatch::try_new(schema, vec![Arc::new(ids), Arc::new(places)]).unwrap()).unwrap();
        ordered.sort(None);
        ordered
    }

    #[test]
    fn rows_of_a_heavy_key_go_to_each_cell_of_their_file_on_the_left_and_piece_by_piece_to_each_file_on_the_right() {
        let schema = Schema::new(vec![Field::new("id", DataType::Int64, true)]);
        let table = |schema: Schema| Table::decode(&Layout::new(&schema).unwrap().encode()).unwrap();
        let of = [table(with_places(&schema).unwrap()), table(with_right_places(&schema).unwrap())];
        let query = JoinQuery { on: vec![Pair::same("id")], kind: JoinKind::Full, suffix: None };
        let tables = Tables::new(of, &Arranged::new(query)).unwrap();
        let left = [(Some(1), 0), (Some(5), 1), (Some(5), 2), (Some(5), 3), (Some(9), 4), (None, 5), (None, 6)];
        let left = ordered(&tables, Side::Left, &left);
        let right = [(Some(5), 9), (Some(5), 10), (Some(5), 11), (Some(5), 12), (Some(9), 0), (None, 1), (None, 2)];
        let right = ordered(&tables, Side::Right, &right);
        let key = |row: usize| left.row(row).0.to_vec();
        let heavy = |row: usize, places: &[u64]| HeavyKey { key: key(row).into(), places: places.to_vec() };
        // The file between has one row of the left table, and ends within the key.
        let cut = |place: u64| [key(1), place.to_be_bytes().to_vec()].concat();
        let cuts = Cuts::new(vec![key(1), cut(2)]).unwrap();
        let borders = Borders::new(cuts, vec![heavy(1, &[10, 12]), heavy(5, &[2])]);
        let of = |side, ordered| partitions(&tables, side, ordered, &borders);
        let of_left = [0..1, 1..1, 1..2, 1..2, 1..2, 2..2, 2..2, 2..4, 2..4, 2..4, 4..5, 5..7, 7..7, 7..7];
        assert_eq!(of(Side::Left, &left), of_left);
        let of_right = [0..0, 0..0, 0..1, 1..3, 3..4, 4..4, 0..0, 0..1, 1..3, 3..4, 4..5, 5..6, 6..7, 7..7];
        assert_eq!(of(Side::Right, &right), of_right);
        assert_eq!(borders.shares().len(), of_left.len());
    }
}
