//! The tasks of a sort of a table.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::Token;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::outputs::{self, PartFile};
use exobus_shuffle::jobs::{pieces, reads};
use exobus_store::{Block, ObjectWriter};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::block::{Gather, Layout, Limits, Part, Pick, write_part};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::described::{DescribedFile, DescribedSplit, ReadOptions, open};
use crate::jobs::ordered::{Ordered, places};
use crate::semantics::Nulls;
use crate::semantics::{KEY_VERSION, KeyColumn, KeyEncoder, conformed};
use crate::sinks::{Compression, GROUP_ROWS, ParquetOptions, ParquetSink, SinkError, SortedColumn};
use crate::sources::Reservation;
use crate::{RowHasher, TableError};

/// Rows that are gathered for the file at a time. Pages of it end where they do.
const ROWS_AT_ONCE: usize = 8192;
/// So much of a sampled key is kept.
const CUT_BYTES_MAX: usize = 64;
/// Bytes of the largest message of a part, and of the largest row.
pub(super) const MESSAGE_BYTES: u64 = 8 << 20;

/// What a row takes while it is mapped, besides its values and what puts it in order: its place and its hash.
const PLACED_BYTES: u64 = (size_of::<u64>() + size_of::<RowHash>()) as u64;

/// The key, as parameters of tasks have it: what they make follows from the version of its bytes, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TableKey {
    columns: Vec<KeyColumn>,
    version: u32,
}

impl TableKey {
    pub(super) fn new(columns: &[KeyColumn]) -> Self {
        Self { columns: columns.to_vec(), version: KEY_VERSION }
    }
}

/// What all tasks know of the table: their first argument.
struct Table {
    /// Of its rows on their way.
    layout: Arc<Layout>,
    /// Of its rows, without the column of places.
    schema: SchemaRef,
    hasher: RowHasher,
    encoder: KeyEncoder,
}

impl Table {
    fn of(context: &TaskContext<'_>, key: &TableKey) -> Result<Self, TaskError> {
        if key.version != KEY_VERSION {
            let version = key.version;
            return Err(TaskError::fatal(format!(
                "keys are of version {version}, this release makes version {KEY_VERSION}"
            )));
        }
        let layout = Arc::new(Layout::decode(&context.block(0)).map_err(of_table)?);
        let all = layout.schema();
        let fields = all.fields().iter().take(all.fields().len() - 1).cloned().collect::<Vec<_>>();
        let schema = Arc::new(Schema::new_with_metadata(fields, all.metadata().clone()));
        let hasher = RowHasher::new(&schema).map_err(of_table)?;
        Ok(Self { hasher, encoder: KeyEncoder::new(all, &key.columns).map_err(of_table)?, schema, layout })
    }

    /// The batch without the column of places.
    fn values(&self, batch: &RecordBatch) -> Result<RecordBatch, TaskError> {
        let columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        batch.project(&columns).map_err(TaskError::fatal)
    }

    /// A batch of the table with the places of its rows, the first of which has this one.
    fn placed(&self, batch: &RecordBatch, first: u64) -> Result<RecordBatch, TaskError> {
        let batch = conformed(batch, &self.schema).map_err(of_table)?;
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let mut fields = batch.schema_ref().fields().to_vec();
        columns.push(Arc::new(places(first, batch.num_rows())));
        fields.extend(self.layout.schema().fields().last().cloned());
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(TaskError::fatal)
    }
}

/// Splits of a file that follow each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    /// The file, with these splits alone: what a task is told is no larger than what it reads.
    pub(super) file: DescribedFile,
    /// Which of the file's they are.
    pub(super) splits: Range<usize>,
    /// How many splits there are before them in all files.
    pub(super) before: u32,
}

impl Piece {
    /// Its splits, each with its number in the file.
    fn splits(&self) -> impl Iterator<Item = (usize, &DescribedSplit)> {
        self.splits.clone().zip(&self.file.splits)
    }
}

/// What `sample` is told. Its only argument is the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SampleParams {
    pub(super) pieces: Vec<Piece>,
    pub(super) reading: ReadOptions,
    pub(super) key: TableKey,
    /// How many rows of each batch are looked at.
    pub(super) keys: usize,
    /// Whether the first batch of a split stands for all of it.
    pub(super) first_only: bool,
}

/// Keys of rows at even distances in some splits.
#[task(name = "table.sort.sample", deterministic = true)]
pub(super) fn sample(context: &mut TaskContext<'_>, params: SampleParams) -> Result<Vec<ByteBuf>, TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context, &params.key)?;
    let schema = projected(&table.schema, &params.key.columns);
    let encoder = KeyEncoder::new(&schema, &params.key.columns).map_err(of_table)?;
    let mut sampled = Vec::new();
    for piece in &params.pieces {
        context.check_path(&piece.file.path)?;
        let file = open(&piece.file, &params.reading, &budget)?;
        let here = file.schema().fields().iter().enumerate();
        let columns: Vec<usize> =
            here.filter(|(_, field)| schema.column_with_name(field.name()).is_some()).map(|(at, _)| at).collect();
        for (split, described) in piece.splits() {
            let batches = file.read(split, described.state, Some(&columns), &budget.shared());
            for batch in batches.map_err(|error| budget.of_source(error))? {
                context.check_cancelled()?;
                let batch = batch.map_err(|error| budget.of_source(error))?.batch;
                let (rows, keys) = (batch.num_rows(), params.keys.min(batch.num_rows()));
                let chosen = UInt32Array::from_iter_values((0..keys).map(|at| (at * rows / keys) as u32));
                let chosen = match columns.as_slice() {
                    // All rows of a file without the columns of the key are alike.
                    [] => batch.slice(0, keys),
                    _ => take_record_batch(&batch, &chosen).map_err(TaskError::fatal)?,
                };
                let chosen = conformed(&chosen, &schema).map_err(of_table)?;
                let keys = encoder.encode(&chosen).map_err(of_table)?;
                // A cut may be any bytes: those of a long key divide as well where they end early.
                let cut = |key: &[u8]| ByteBuf::from(&key[..key.len().min(CUT_BYTES_MAX)]);
                sampled.extend((0..keys.len()).map(|row| cut(keys.get(row))));
                if params.first_only {
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
    Arc::new(Schema::new(fields))
}

/// What `map` is told. Its arguments are the layout and the cuts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) pieces: Vec<Piece>,
    pub(super) reading: ReadOptions,
    pub(super) key: TableKey,
}

/// Rows of some splits, in order, as an object with a part for each partition.
#[task(name = "table.sort.map", deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context, &params.key)?;
    let cuts: Cuts = rmp_serde::from_slice(&context.block(1)).map_err(TaskError::fatal)?;
    let (mut ordered, mut hashes, mut sources) = (Ordered::new(&table.encoder, &budget), Vec::new(), Vec::new());
    let (mut read_bytes, mut memory) = (0, Reservation::none(&budget.shared()));
    for piece in &params.pieces {
        context.check_path(&piece.file.path)?;
        let file = open(&piece.file, &params.reading, &budget)?;
        for (split, described) in piece.splits() {
            let first = u64::from(piece.before + (split - piece.splits.start) as u32) << 32;
            let batches = file.read(split, described.state, None, &budget.shared());
            for batch in batches.map_err(|error| budget.of_source(error))? {
                context.check_cancelled()?;
                let batch = batch.map_err(|error| budget.of_source(error))?;
                // Its places and hashes.
                let more = memory.bytes() + PLACED_BYTES * batch.batch.num_rows() as u64;
                memory.resize(more).map_err(|denied| budget.of_rows(denied))?;
                let placed = table.placed(&batch.batch, first + batch.first_row)?;
                let mut of_batch = Vec::new();
                table.hasher.rows(&table.values(&placed)?, &mut of_batch).map_err(of_table)?;
                hashes.push(of_batch);
                ordered.add(placed)?;
                sources.push(batch);
            }
            read_bytes += described.value_bytes;
        }
        file.file().check().map_err(|error| budget.of_source(error))?;
    }
    ordered.sort();
    let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
    let mut scratch = context.scratch(MESSAGE_BYTES)?;
    let writer = context.output()?;
    let mut from = 0;
    for partition in 0..cuts.partitions() {
        let to = match cuts.keys().get(partition) {
            Some(cut) => ordered.end_of(from, |key| key < cut.as_slice()),
            None => ordered.len(),
        };
        let picks = ordered.picks(from..to);
        let hash = |pick: &Pick| hashes[pick.batch as usize][pick.row as usize];
        let row_hash = picks.iter().map(hash).sum();
        write_part(writer, &gather, &picks, row_hash, &Limits::default(), &mut scratch).map_err(of_table)?;
        from = to;
    }
    context.read_outside(read_bytes);
    Ok(())
}

/// What `merge` is told. Its arguments are the layout and what is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MergeParams {
    pub(super) pieces: Vec<u32>,
    pub(super) key: TableKey,
}

/// Parts in order, merged part by part into one object for each piece.
#[task(name = "table.sort.merge", deterministic = true)]
pub(super) fn merge(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context, &params.key)?;
    let args = arguments(context);
    let mut read = Output::default();
    let mut scratch = context.scratch(MESSAGE_BYTES)?;
    for (piece, parts) in pieces::ranges(&params.pieces) {
        // What has no rows at all has no parts either.
        let with_rows = || args.iter().flatten().filter(|block| !block.is_empty());
        let bytes = pieces::bytes(with_rows().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let mut ordered = Ordered::new(&table.encoder, &budget);
            let blocks = with_rows().map(|block| block.part(part));
            let merged = add_parts(&table, blocks, &mut ordered)?;
            ordered.sort();
            let gather = Gather::new(table.layout.clone(), ordered.batches()).map_err(of_table)?;
            let writer: &mut ObjectWriter = context.output_at_sized(piece, bytes)?;
            let picks = ordered.picks(0..ordered.len());
            write_part(writer, &gather, &picks, merged.row_hash, &Limits::default(), &mut scratch).map_err(of_table)?;
            read.add(merged);
        }
        context.seal_output(piece)?;
    }
    reads::account(context, 1, &sealed(&args), read);
    Ok(())
}

/// What is merged or reduced, by argument.
fn arguments(context: &TaskContext<'_>) -> Vec<Vec<Block>> {
    (1..context.args()).map(|arg| context.blocks(arg)).collect()
}

/// What was sealed of each of these arguments.
fn sealed(args: &[Vec<Block>]) -> Vec<Vec<Output>> {
    args.iter().map(|blocks| reads::sealed(blocks)).collect()
}

/// Adds the rows of parts; what they are, by their own hash.
fn add_parts(
    table: &Table,
    parts: impl Iterator<Item = Block>,
    ordered: &mut Ordered<'_>,
) -> Result<Output, TaskError> {
    let mut read = Output::default();
    for part in parts.filter(|part| !part.is_empty()) {
        read.bytes += part.len() as u64;
        for batch in rows_of(table, part) {
            let batch = batch.map_err(of_table)?;
            read.rows += batch.num_rows() as u64;
            read.row_hash += table.hasher.sum(&table.values(&batch)?).map_err(of_table)?;
            ordered.add(batch)?;
        }
    }
    Ok(read)
}

#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
fn rows_of(table: &Table, part: Block) -> impl Iterator<Item = Result<RecordBatch, TableError>> {
    // SAFETY: all but the first argument of the tasks that merge and reduce are outputs of those that map and merge, which write with a `Gather` and run in the node.
    unsafe { Part::new(table.layout.clone(), part) }
}

/// What `reduce` is told. Its arguments are the layout and one part of everything that is left to merge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    #[serde(with = "exobus_actors::paths")]
    pub(super) directory: PathBuf,
    pub(super) name: String,
    pub(super) key: TableKey,
    pub(super) writing: WriteOptions,
    pub(super) buffer_bytes: u64,
}

/// What `reduce` made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    pub(super) token: Token,
    pub(super) row_hash: RowHash,
}

/// Parts in order, merged into a file.
#[task(name = "table.sort.reduce", deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Reduced, TaskError> {
    let buffers = outputs::output_buffers(context, params.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let table = Table::of(context, &params.key)?;
    let args = arguments(context);
    let mut ordered = Ordered::new(&table.encoder, &budget);
    // Hashed is what is written: what was read is compared with that.
    for part in args.iter().flatten().filter(|part| !part.is_empty()) {
        for batch in rows_of(&table, part.clone()) {
            ordered.add(batch.map_err(of_table)?)?;
        }
    }
    ordered.sort();
    let output = outputs::create_file(context, (&params.directory, &params.name), buffers, 0)?;
    let file = PartFile::new(output);
    let failure = file.failure();
    let failed = |error: SinkError| budget.of_sink(error, failure.take());
    let options = params.writing.options(&table.schema, &params.key.columns);
    let mut sink = ParquetSink::new(file, &table.schema, &options, &budget.shared()).map_err(failed)?;
    let layout = Arc::new(Layout::new(&table.schema).map_err(of_table)?);
    let values = ordered.batches().iter().map(|batch| table.values(batch)).collect::<Result<Vec<_>, _>>()?;
    let gather = Gather::new(layout, &values).map_err(of_table)?;
    let mut row_hash = RowHash::default();
    for from in (0..ordered.len()).step_by(ROWS_AT_ONCE) {
        context.check_cancelled()?;
        let picks = ordered.picks(from..ordered.len().min(from + ROWS_AT_ONCE));
        for message in gather.messages(&picks, &Limits::default()).map_err(of_table)? {
            let batch = message.batch().map_err(of_table)?;
            row_hash += table.hasher.sum(&batch).map_err(of_table)?;
            sink.write(&batch).map_err(failed)?;
        }
    }
    let (file, rows) = sink.finish().map_err(failed)?;
    let token = outputs::finish_file(context, &params.directory, file.into_output(), rows)?;
    let bytes = args.iter().flatten().map(|block| block.header().bytes).sum();
    reads::account(context, 1, &sealed(&args), Output { bytes, rows, row_hash });
    Ok(Reduced { token, row_hash })
}

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// How pages are compressed.
    pub compression: Compression,
    /// Most rows of a row group.
    pub group_rows: u64,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { compression: Compression::default(), group_rows: GROUP_ROWS }
    }
}

impl WriteOptions {
    /// Of a file of this schema whose rows are in the order of this key.
    fn options(self, schema: &SchemaRef, key: &[KeyColumn]) -> ParquetOptions {
        let sorted = |key: &KeyColumn| {
            let (column, _) = schema.column_with_name(&key.column)?;
            Some(SortedColumn { column, falling: key.descending, nulls_first: key.nulls == Nulls::First })
        };
        let sorted_by = key.iter().map_while(sorted).collect();
        ParquetOptions { compression: self.compression.codec(), sorted_by, group_rows: self.group_rows }
    }
}
