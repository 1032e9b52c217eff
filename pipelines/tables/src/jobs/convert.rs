//! Rows of a table as they are, in their order, in files of another format or length.
//!
//! Files end where splits of the input do, unless it is said how many rows or files there shall be: rows are counted then, where the input does not say how many it has. No row goes to another
//! node.

use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use ::futures::TryStreamExt as _;
use arrow_schema::SchemaRef;
use exobus_actors::futures::Futures;
use exobus_actors::ids::RowHash;
use exobus_actors::program;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Arg, FunctionName, JobError, Output, Resources, TaskOptions};
use exobus_files::{Token, part_name};
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::read_values;
use exobus_shuffle::{Plan, Sizes};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::budget::{TaskBudget, of_table};
use super::count::count;
use super::described::{Described, DescribedFile, LOOK_BYTES};
use super::mapping::{BatchFunction, Mapping};
use super::output::{FileParams, FileSize, PartWriter, Written, manifest};
use super::pieces::{PieceReader, value_of};
use super::rewrite::{Rewrite, Rewritten, refuse_beyond};
use super::row_limit::RowLimit;
use super::table::{Piece, Table, push_split};
use super::{TableJob, WriteOptions};
use crate::block::Layout;
use crate::reading::{Reading, Wanted};
use crate::semantics::{conformed, stored_schema};
use crate::sources::{Reservation, run_bytes, value_bytes, without_runs};
use crate::{RowHasher, TableError};

/// What the conversion of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvertTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
    /// The numbers of the rows that are written, of those that are read; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Range<u64>>,
}

impl TableJob for ConvertTable {
    const NAME: &'static str = "table.convert";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        convert(futures, self)
    }
}

impl ConvertTable {
    /// Writes these files, or files of these folders, as Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf) -> Self {
        Self { table: Rewrite::new(inputs, output), rows: None }
    }
}

/// What goes into one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FilePlan {
    /// The first split, counted over all files, and how many.
    splits: Range<usize>,
    /// Rows of the first split that are in files before this one.
    skip: u64,
    /// Rows of the file; `None`: all that is left of its splits.
    rows: Option<u64>,
}

/// What a task is told that writes a file of rows of some splits. Its arguments are the layout and the pieces that it reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConvertParams {
    reading: Reading,
    /// Rows of the first split that are in files before this one.
    skip: u64,
    /// Rows that are read for the file; `None`: all that are left.
    rows: Option<u64>,
    row_bytes_max: RowLimit,
    file: FileParams,
}

/// A file, and what was read for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Converted {
    token: Token,
    row_hash: RowHash,
    /// Rows and their hash.
    read: Output,
    /// The [`Layout`] of what a function made of the rows, encoded; nothing where there was no function.
    layout: ByteBuf,
}

/// Rows of some splits as a file.
#[task(name = "table.convert", version = 2, deterministic = true)]
fn convert_part(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<Converted, TaskError> {
    let budget = TaskBudget::new(context);
    write_file(context, params, &budget, None)
}

/// Rows of some splits, or what a function makes of them, as a file.
pub(super) fn write_file(
    context: &mut TaskContext<'_>,
    params: ConvertParams,
    budget: &Arc<TaskBudget>,
    function: Option<&mut dyn BatchFunction>,
) -> Result<Converted, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let table = Table::of(context)?;
    let mut mapping = function.map(|function| Mapping::new(function, &table.schema)).transpose()?;
    let schema = match &mapping {
        None => table.schema.clone(),
        Some(mapping) => stored_schema(params.file.form.format().types(), mapping.schema()).map_err(of_table)?,
    };
    let folders = params.reading.options.folder_types().map_err(|error| budget.of_source(error))?;
    let is_folder = |name: &str| folders.iter().any(|(folder, _)| folder == name);
    let (layout, hasher) = (Layout::new(&schema).map(Arc::new), RowHasher::new(&schema));
    let (layout, hasher) = (layout.map_err(of_table)?, hasher.map_err(of_table)?);
    let reader = PieceReader::new(&params.reading, &table.schema, params.row_bytes_max, budget)?;
    let reader = if params.rows.is_some() { reader.cached() } else { reader };
    let mut file = PartWriter::create(context, &params.file, buffers, (&schema, &hasher), budget)?;
    let mut wanted = Wanted { skip: params.skip, rows: params.rows.unwrap_or(u64::MAX) };
    // What was read, and what of that, or made of it, was to be written.
    let (mut read, mut given) = (Output::default(), Output::default());
    let (pieces, _pieces_memory): (Vec<Piece>, _) = value_of(context, 1, budget)?;
    for piece in &pieces {
        reader.each(context, piece, &mut wanted, |rows| {
            let refused = |error| reader.refused(piece, &rows, error);
            let batch = conformed(&rows.batch, &table.schema).map_err(refused)?;
            let Some(mapping) = &mut mapping else {
                given.add(file.write_all((&layout, &reader.limits()), &batch, refused)?);
                return Ok(());
            };
            let row_hash = table.hasher.sum(&batch).map_err(refused)?;
            read.add(Output { bytes: 0, rows: batch.num_rows() as u64, row_hash });
            let refused = |what| reader.refused_batch(piece, &rows, what);
            let unpacked = Reservation::of(&budget.shared(), run_bytes(&batch, is_folder));
            let _unpacked = unpacked.map_err(|denied| budget.of_folders(denied))?;
            let batch = without_runs(batch, is_folder).map_err(of_table)?;
            mapping.apply(batch, refused, |batch| {
                let batch = conformed(&batch, &schema).map_err(|error| refused_row(error, refused))?;
                let bytes = value_bytes(&batch, 0..batch.num_rows());
                let _made = Reservation::of(&budget.shared(), bytes).map_err(|denied| budget.of_given(denied))?;
                given.add(file.write_all((&layout, &reader.limits()), &batch, |error| refused_row(error, refused))?);
                Ok(())
            })
        })?;
    }
    if let Some(mapping) = &mut mapping {
        mapping.end(|batch| {
            let batch = conformed(&batch, &schema).map_err(of_table)?;
            let bytes = value_bytes(&batch, 0..batch.num_rows());
            let _made = Reservation::of(&budget.shared(), bytes).map_err(|denied| budget.of_given(denied))?;
            given.add(file.write_all((&layout, &reader.limits()), &batch, of_table)?);
            Ok(())
        })?;
    }
    if params.rows.is_some() && wanted.rows > 0 {
        return Err(TaskError::fatal(format!("{} rows that were counted are not there", wanted.rows)));
    }
    let Written { token, row_hash } = file.finish(context, &params.file)?;
    if (given.rows, given.row_hash) != (token.rows, row_hash) {
        return Err(TaskError::fatal(format!(
            "{} rows of hash {row_hash} were written, where {} of hash {} were to be",
            token.rows, given.rows, given.row_hash
        )));
    }
    Ok(match mapping {
        None => Converted { token, row_hash, read: given, layout: ByteBuf::new() },
        Some(_) => Converted { token, row_hash, read, layout: ByteBuf::from(layout.encode()) },
    })
}

/// How the task fails over a row that a function gave.
fn refused_row(error: TableError, refused: impl FnOnce(String) -> TaskError) -> TaskError {
    match error.of_row() {
        Some((_, row, what)) => {
            refused(format!("of what the function gave for the rows from there on, row {row}: {what}"))
        }
        None => of_table(error),
    }
}

/// Writes a table once more.
///
/// # Errors
/// As of [`sort`](super::sort::sort), but for those of a key.
#[program(name = "table.convert", version = 2, give_back = super::give_back, paths = super::paths)]
pub async fn convert(futures: Futures, params: ConvertTable) -> Result<Rewritten, JobError> {
    rewritten(futures, ConvertTable::NAME, (params.table, params.rows), None).await
}

/// What a conversion would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedConvert {
    /// Bytes of the input files.
    pub input_bytes: u64,
    /// Bytes of their values, nodes and memory.
    pub sizes: Sizes,
    /// How many files there would be, each of which a task writes.
    pub files: u64,
    /// Most bytes of memory that a task would begin with.
    pub task_bytes: u64,
}

/// Says what a conversion would do: rows are counted where it is said how many of them or how many files there shall be and files do not say it, and the output is not looked at.
///
/// # Errors
/// As of [`convert`].
#[program(name = "table.convert.explain", version = 1, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: ConvertTable) -> Result<ExplainedConvert, JobError> {
    let Planned { described, sizes, parts, .. } = Planned::of(&futures, (&params.table, params.rows), false).await?;
    let task_bytes = parts.iter().map(|(_, outside_bytes)| *outside_bytes).max().unwrap_or(0);
    Ok(ExplainedConvert { input_bytes: described.input_bytes(), sizes, files: parts.len() as u64, task_bytes })
}

/// How a table is written once more.
struct Planned {
    described: Described,
    sizes: Sizes,
    schema: SchemaRef,
    /// What goes into each file, and what its task takes beside the store.
    parts: Vec<(FilePlan, u64)>,
}

impl Planned {
    /// Looks at the table, and refuses one for which there is too little memory.
    async fn of(
        futures: &Futures,
        (rewrite, within): (&Rewrite, Option<Range<u64>>),
        is_mapped: bool,
    ) -> Result<Self, JobError> {
        let mut described = Described::of(futures, rewrite, &[], is_mapped).await?;
        let writing = rewrite.writing;
        if within.is_some() || !matches!(writing.file_size, FileSize::Bytes(_)) {
            count(futures, &mut described).await?;
        }
        let sizes = Sizes::of(&futures.nodes(), described.value_bytes());
        let splits = described.numbered_splits();
        let schema = Table::decode(&described.layout).map_err(JobError::program)?.schema;
        let mut parts = Vec::new();
        for part in self::parts(&described, writing, within)? {
            let (bytes, rows, largest) = read_about(&splits[part.splits.clone()], part.rows);
            let sink_bytes = writing.sink_bytes(described.form, &schema, (bytes, rows));
            let outside_bytes = LOOK_BYTES + sink_bytes + largest / 4;
            let what = || {
                let place = splits.get(part.splits.start).map_or("the table".to_owned(), |(file, split)| {
                    format!("{}, row group or piece {split}", file.path.display())
                });
                format!("{place}, of which a file is to be written,")
            };
            refuse_beyond(sizes, (outside_bytes, 0), what)?;
            parts.push((part, outside_bytes));
        }
        drop(splits);
        Ok(Self { described, sizes, schema, parts })
    }
}

/// What makes other rows of those of a table.
pub(super) struct Function {
    pub(super) name: FunctionName,
    /// What each of its tasks needs of its node.
    pub(super) resources: Resources,
    /// Arguments that its tasks have behind those of a conversion.
    pub(super) args: Vec<Arg>,
    /// What each of its tasks takes beside the store and beside what a conversion takes.
    pub(super) outside_bytes: u64,
}

/// Writes what a function makes of a table, or the table itself.
pub(super) async fn rewritten(
    futures: Futures,
    name: &'static str,
    (rewrite, within): (Rewrite, Option<Range<u64>>),
    function: Option<Function>,
) -> Result<Rewritten, JobError> {
    let planned = Planned::of(&futures, (&rewrite, within), function.is_some()).await?;
    let Planned { described, sizes, schema, parts } = planned;
    let (writing, splits) = (rewrite.writing, described.numbered_splits());
    let output = outputs::Output::claim(&futures, &rewrite.output, name).await?;
    let plan = Plan::of_chunks(sizes, Some(parts.len() as u32), 1 << 20).map_err(JobError::program)?;
    futures.plan_stage(name, parts.len() as u64, described.value_bytes())?;
    let layout = futures.put(&described.layout)?;
    let file = FileParams {
        directory: rewrite.output.clone(),
        name: String::new(),
        form: described.form,
        options: writing,
        sorted_by: Vec::new(),
        buffer_bytes: outputs::buffer_bytes(&plan, &rewrite.output),
    };
    let mut made = Vec::with_capacity(parts.len());
    for (number, (part, outside_bytes)) in parts.iter().enumerate() {
        let name = file.form.file_name(&part_name(number, parts.len()));
        let mut pieces = Vec::new();
        for at in part.splits.clone() {
            let (file, split) = splits[at];
            push_split(&mut pieces, file, split, at as u32);
        }
        let params = ConvertParams {
            reading: described.reading.clone(),
            skip: part.skip,
            rows: part.rows,
            row_bytes_max: RowLimit::of(sizes),
            file: FileParams { name, ..file.clone() },
        };
        let options = TaskOptions {
            scratch_bytes: vec![file.buffer_bytes; 2],
            outside_bytes: *outside_bytes,
            ..TaskOptions::default()
        };
        let pieces = futures.put_value(&pieces)?;
        let args = [layout.arg(), pieces.arg()];
        made.push(match &function {
            Some(Function { name, resources, args: more, outside_bytes }) => {
                let outside_bytes = options.outside_bytes + outside_bytes;
                let options = TaskOptions { resources: resources.clone(), outside_bytes, ..options };
                futures.submit_function(name, &params, &[&args[..], more].concat(), options)?
            }
            None => futures.submit_with(convert_part, &params, &args, options)?,
        });
    }
    futures.wait_all(&made).await?;
    let (mut written, mut read, mut layouts) = (Output::default(), Output::default(), Vec::new());
    let mut values = pin!(read_values(&futures, &made));
    while let Some(file) = values.try_next().await? {
        let Converted { token, row_hash, read: of_file, layout } = file;
        written.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
        read.add(of_file);
        if layouts.last() != Some(&layout) {
            layouts.push(layout);
        }
    }
    let schema = match (&function, layouts.as_slice()) {
        (None, _) => schema,
        (Some(_), [layout]) => Layout::decode(layout).map_err(JobError::program)?.schema().clone(),
        (Some(function), _) => {
            let key = function.name.key();
            return Err(JobError::program(format!("{key} gave batches without rows of different columns or types")));
        }
    };
    let counted = parts.iter().map(|(part, _)| part.rows).sum::<Option<u64>>().or(described.rows());
    if let Some(rows) = counted.filter(|rows| *rows != read.rows) {
        let detail = format!("{rows} rows are to be read; read {} rows", read.rows);
        return Err(JobError::Conservation { edge: "input -> output".to_owned(), detail });
    }
    output.commit(&made, manifest(file.form.format(), &schema)).await?;
    Ok(Rewritten {
        rows_read: read.rows,
        rows: written.rows,
        input_bytes: described.input_bytes(),
        output_bytes: written.bytes,
        row_hash_in: read.row_hash,
        row_hash_out: written.row_hash,
        strategy: None,
        maps: made.len() as u64,
        files: made.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// What a task reads, about, that writes so many rows of these splits, or all: bytes of their values, rows, and the bytes of the largest split.
fn read_about(splits: &[(&DescribedFile, usize)], rows: Option<u64>) -> (u64, u64, u64) {
    let splits = || splits.iter().map(|(file, split)| &file.splits[*split]);
    let of_splits =
        splits().fold((0, 0), |(bytes, rows), split| (bytes + split.value_bytes, rows + split.rows_about()));
    let (bytes, rows) = match (rows, of_splits) {
        // As much of them as it has of their rows.
        (Some(rows), (bytes, of)) => ((u128::from(bytes) * u128::from(rows) / u128::from(of.max(1))) as u64, rows),
        (None, all) => all,
    };
    let largest = splits().map(|split| split.value_bytes).max().unwrap_or(0);
    (bytes, rows, largest)
}

/// What goes into each file: at least one, also of a table without a row.
fn parts(described: &Described, writing: WriteOptions, within: Option<Range<u64>>) -> Result<Vec<FilePlan>, JobError> {
    match writing.file_size {
        FileSize::Bytes(bytes) if within.is_none() => {
            Ok(by_bytes(described.splits().map(|split| split.value_bytes), bytes))
        }
        size => {
            let rows: Option<Vec<u64>> = described.splits().map(|split| split.rows).collect();
            let rows = rows.ok_or_else(|| JobError::program("rows of a split were not counted"))?;
            let all = rows.iter().sum::<u64>();
            let within = within.map_or(0..all, |within| within.start.min(all)..within.end.min(all));
            let count = within.end.saturating_sub(within.start);
            let value_bytes = u128::from(described.value_bytes()) * u128::from(count) / u128::from(all.max(1));
            match size.files(value_bytes as u64, count) {
                files if files <= PARTS_MAX => Ok(by_rows(&rows, (within.start, count), size, files)),
                files => Err(JobError::program(format!("{files} files are too many, {PARTS_MAX} are the most"))),
            }
        }
    }
}

/// Most files of a folder.
const PARTS_MAX: u64 = 1_000_000;

/// Whole splits, until a file has as many bytes. Those without any are no reason to end one.
fn by_bytes(splits: impl Iterator<Item = u64>, file_bytes: u64) -> Vec<FilePlan> {
    let (mut parts, mut open, mut open_bytes) = (Vec::new(), 0..0, 0);
    for (at, bytes) in splits.enumerate() {
        if bytes > 0 && open_bytes > 0 && open_bytes + bytes > file_bytes {
            parts.push(FilePlan { splits: std::mem::replace(&mut open, at..at), skip: 0, rows: None });
            open_bytes = 0;
        }
        open.end = at + 1;
        open_bytes += bytes;
    }
    if !open.is_empty() || parts.is_empty() {
        parts.push(FilePlan { splits: open, skip: 0, rows: None });
    }
    parts
}

/// So many rows each, whatever the splits are: of all rows those from a number on, as many.
fn by_rows(splits: &[u64], (first, all): (u64, u64), size: FileSize, files: u64) -> Vec<FilePlan> {
    let begin = |file: u64| match size {
        FileSize::Rows(rows) => first + all.min(file.saturating_mul(rows.max(1))),
        _ => first + (u128::from(file) * u128::from(all) / u128::from(files)) as u64,
    };
    let (mut at, mut before) = (0, 0);
    let part = |file: u64| {
        let (from, to) = (begin(file), begin(file + 1));
        while at < splits.len() && before + splits[at] <= from {
            before += splits[at];
            at += 1;
        }
        let (mut end, mut covered) = (at, before);
        while end < splits.len() && covered < to {
            covered += splits[end];
            end += 1;
        }
        FilePlan { splits: at..end, skip: if end > at { from - before } else { 0 }, rows: Some(to - from) }
    };
    (0..files).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_whole_splits_have_no_more_bytes_than_is_said_unless_a_split_has() {
        let splits = |file_bytes| {
            let parts = by_bytes([4, 4, 4, 20, 1, 1].into_iter(), file_bytes);
            parts.into_iter().map(|part| part.splits).collect::<Vec<_>>()
        };
        assert_eq!(splits(8), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(splits(100), vec![0..6; 1]);
        let with_none = by_bytes([0, 100, 0, 100, 0].into_iter(), 64);
        assert_eq!(with_none.into_iter().map(|part| part.splits).collect::<Vec<_>>(), [0..3, 3..5]);
        assert_eq!(by_bytes(std::iter::empty(), 8), [FilePlan { splits: 0..0, skip: 0, rows: None }]);
    }

    #[test]
    fn files_of_so_many_rows_take_each_row_once_in_its_order() {
        let splits = [5_u64, 0, 3, 7, 0, 1];
        let sizes =
            [FileSize::Rows(1), FileSize::Rows(4), FileSize::Rows(100), FileSize::Count(3), FileSize::Count(40)];
        let sizes = sizes.into_iter().chain([FileSize::Bytes(2)]);
        for (size, (first, all)) in
            sizes.flat_map(|size| [(0, 16), (4, 5), (15, 1), (16, 0), (5, 3)].map(|of| (size, of)))
        {
            let mut next = first;
            for part in by_rows(&splits, (first, all), size, size.files(all, all)) {
                let before: u64 = splits[..part.splits.start].iter().sum();
                let there: u64 = splits[part.splits.clone()].iter().sum();
                let rows = part.rows.unwrap();
                assert!(rows == 0 || before + part.skip == next, "{size:?} {part:?}");
                assert!(part.skip + rows <= there, "{size:?} {part:?}");
                next += rows;
            }
            assert_eq!(next, first + all, "{size:?}");
        }
        assert_eq!(by_rows(&[], (0, 0), FileSize::Count(1), 1).len(), 1);
    }
}
