//! Rows of a table as they are, in their order, in files of another format or length.
//!
//! Files end where splits of the input do, unless it is said how many rows or files there shall be: rows are counted then, where the input does not say how many it has. No row goes to another
//! node.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ::futures::stream::{self, StreamExt as _, TryStreamExt as _};
use arrow_array::RecordBatch;
use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, RowHash};
use exobus_actors::program;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Output, TaskOptions};
use exobus_files::{IoBuffer, Token, part_name};
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::write_value;
use exobus_shuffle::{Plan, Sizes};
use serde::{Deserialize, Serialize};

use super::WriteOptions;
use super::budget::{TaskBudget, of_table};
use super::count::count;
use super::described::{Described, LOOK_BYTES};
use super::output::{FileParams, FileSize, PartWriter, Written, manifest};
use super::rewrite::{Rewrite, Rewritten, refuse_beyond};
use super::table::{Piece, Table};
use crate::block::{Gather, Layout, Limits, Pick};
use crate::reading::{Reading, TableReader};
use crate::semantics::conformed;

/// What the conversion of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvertTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
}

fn give_back(job: JobId, params: ConvertTable) {
    outputs::give_back(job, &params.table.output);
}

impl ConvertTable {
    /// Writes these files, or files of these folders, as Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf) -> Self {
        Self { table: Rewrite::new(inputs, output) }
    }
}

/// What goes into one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    /// The first split, counted over all files, and how many.
    splits: Range<usize>,
    /// Rows of the first split that are in files before this one.
    skip: u64,
    /// Rows of the file; `None`: all that is left of its splits.
    rows: Option<u64>,
}

/// Bytes of values that one task reads, unless a split or a file has more: files that begin within a split are written by the task that reads it.
const TASK_BYTES: u64 = 256 << 20;

/// What `convert` is told: files that follow each other, each of which is an output. Its only argument is the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ConvertParams {
    pieces: Vec<Piece>,
    reading: Reading,
    /// Rows of the first split that others write.
    skip: u64,
    /// The name of each file and how many rows it has; `None`, of the last: all that are left.
    files: Vec<(String, Option<u64>)>,
    /// What files are, but for their names.
    file: FileParams,
}

/// A file, and what was read for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Converted {
    token: Token,
    row_hash: RowHash,
    read_hash: RowHash,
}

/// Rows of some splits as files.
#[task(name = "table.convert", deterministic = true)]
fn convert_part(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let layout = Arc::new(Layout::new(&table.schema).map_err(of_table)?);
    let reader = TableReader::new(&params.reading, &table.schema, &budget.shared()).map_err(of_table)?;
    let mut files = Files::begin(context, &table, &params, &budget)?;
    let mut skip = params.skip;
    'pieces: for piece in &params.pieces {
        context.check_path(&piece.file.path)?;
        let source = piece.file.open(&reader, &params.reading).map_err(|error| budget.of_source(error))?;
        for (split, _, described) in piece.splits() {
            for rows in source.read(split, described.state).map_err(|error| budget.of_source(error))? {
                context.check_cancelled()?;
                let read = rows.map_err(|error| budget.of_source(error))?;
                let rows = read.batch.num_rows() as u64;
                let mut from = skip.min(rows);
                skip -= from;
                while from < rows {
                    let taken = files.room().min(rows - from);
                    if taken == 0 && !files.next(context)? {
                        // The rest of the split is the next task's.
                        break 'pieces;
                    }
                    let batch = read.batch.slice(from as usize, taken as usize);
                    files.write(&conformed(&batch, &table.schema).map_err(of_table)?, &layout)?;
                    from += taken;
                }
            }
            context.read_outside(described.value_bytes);
        }
        source.source().file().check().map_err(|error| budget.of_source(error))?;
    }
    files.finish(context)
}

/// The files of a task, one after the other.
struct Files<'a> {
    params: &'a ConvertParams,
    table: &'a Table,
    budget: &'a Arc<TaskBudget>,
    buffers: Vec<Vec<IoBuffer>>,
    /// The file that is open, its number, how many rows it takes still, and the hash of those that were read for it.
    open: Option<PartWriter<'a>>,
    number: usize,
    left: u64,
    read_hash: RowHash,
}

impl<'a> Files<'a> {
    fn begin(
        context: &mut TaskContext<'_>,
        table: &'a Table,
        params: &'a ConvertParams,
        budget: &'a Arc<TaskBudget>,
    ) -> Result<Self, TaskError> {
        let mut buffers = Vec::with_capacity(params.files.len());
        for _ in &params.files {
            buffers.push(outputs::output_buffers(context, params.file.buffer_bytes)?);
        }
        let mut files =
            Self { params, table, budget, buffers, open: None, number: 0, left: 0, read_hash: RowHash::default() };
        files.open(context)?;
        Ok(files)
    }

    fn open(&mut self, context: &TaskContext<'_>) -> Result<(), TaskError> {
        let (name, rows) = &self.params.files[self.number];
        let file = FileParams { name: name.clone(), ..self.params.file.clone() };
        let buffers = self.buffers.pop().expect("buffers for each file");
        let of_rows = (&self.table.schema, &self.table.hasher);
        self.open = Some(PartWriter::create(context, &file, buffers, of_rows, self.budget)?);
        (self.left, self.read_hash) = (rows.unwrap_or(u64::MAX), RowHash::default());
        Ok(())
    }

    /// How many rows the open file takes still.
    fn room(&self) -> u64 {
        self.left
    }

    /// Writes rows to it, without their encodings, as sinks take them.
    fn write(&mut self, batch: &RecordBatch, layout: &Arc<Layout>) -> Result<(), TaskError> {
        let rows = batch.num_rows();
        self.left -= rows as u64;
        self.read_hash += self.table.hasher.sum(batch).map_err(of_table)?;
        let picks: Vec<Pick> = (0..rows as u32).map(|row| Pick { batch: 0, row }).collect();
        let gather = Gather::new(layout.clone(), std::slice::from_ref(batch)).map_err(of_table)?;
        let file = self.open.as_mut().expect("a file is open");
        for message in gather.messages(&picks, &Limits::default()).map_err(of_table)? {
            file.write(&message.batch().map_err(of_table)?)?;
        }
        Ok(())
    }

    /// Ends the open file and opens the next one; `false`: there is none.
    fn next(&mut self, context: &mut TaskContext<'_>) -> Result<bool, TaskError> {
        if self.number + 1 == self.params.files.len() {
            return Ok(false);
        }
        self.end(context)?;
        self.number += 1;
        self.open(context)?;
        Ok(true)
    }

    fn end(&mut self, context: &mut TaskContext<'_>) -> Result<(), TaskError> {
        let (name, rows) = &self.params.files[self.number];
        if rows.is_some() && self.left > 0 {
            return Err(TaskError::fatal(format!("{name}: {} rows that were counted are not there", self.left)));
        }
        let file = self.open.take().expect("a file is open");
        let Written { token, row_hash } = file.finish(context, &self.params.file.directory)?;
        if row_hash != self.read_hash {
            let read = self.read_hash;
            return Err(TaskError::fatal(format!("{name}: rows of hash {row_hash} were written, of hash {read} read")));
        }
        write_value(context, self.number, &Converted { token, row_hash, read_hash: self.read_hash })
    }

    fn finish(mut self, context: &mut TaskContext<'_>) -> Result<(), TaskError> {
        loop {
            // Files without a row have none to begin with.
            let is_last = self.number + 1 == self.params.files.len();
            if is_last {
                return self.end(context);
            }
            self.next(context)?;
        }
    }
}

/// Writes a table once more.
///
/// # Errors
/// As of [`sort`](super::sort::sort), but for those of a key.
#[program(name = "table.convert", version = 1, give_back = give_back)]
pub async fn convert(futures: Futures, params: ConvertTable) -> Result<Rewritten, JobError> {
    let name = "table.convert";
    let rewrite = params.table;
    let mut described = Described::of(&futures, &rewrite, &[]).await?;
    let writing = rewrite.writing;
    if !matches!(writing.file_size, FileSize::Bytes(_)) {
        count(&futures, &mut described).await?;
    }
    let sizes = Sizes::of(&futures.nodes(), described.value_bytes());
    let parts = parts(&described, writing)?;
    let tasks = tasks(&described, &parts);
    for task in &tasks {
        let what = || format!("{}, of which files are to be written,", described.place_of(task[0].splits.start));
        refuse_beyond(sizes, (outside_bytes(&described, task, writing), 0), what)?;
    }
    let output = outputs::Output::claim(&futures, &rewrite.output, name).await?;
    let plan = Plan::of_chunks(sizes, Some(parts.len() as u32), 1 << 20).map_err(JobError::program)?;
    futures.plan_stage(name, tasks.len() as u64, described.value_bytes())?;
    let layout = futures.put(&described.layout)?;
    let schema = Table::decode(&described.layout).map_err(JobError::program)?.schema;
    let file = FileParams {
        directory: rewrite.output.clone(),
        name: String::new(),
        format: described.format,
        options: writing,
        sorted_by: Vec::new(),
        buffer_bytes: plan.output_buffer_bytes,
    };
    let mut made = Vec::with_capacity(parts.len());
    for task in &tasks {
        let names = (made.len()..).map(|number| format!("{}.{}", part_name(number, parts.len()), file.format));
        let params = ConvertParams {
            pieces: described.pieces_of(task[0].splits.start..task.last().map_or(0, |part| part.splits.end)),
            reading: described.reading.clone(),
            skip: task[0].skip,
            files: names.zip(task.iter().map(|part| part.rows)).collect(),
            file: file.clone(),
        };
        let options = TaskOptions {
            scratch_bytes: vec![file.buffer_bytes; 2 * task.len()],
            outside_bytes: outside_bytes(&described, task, writing),
            ..TaskOptions::default()
        };
        made.extend(futures.submit_many(convert_part, &params, &[layout.arg()], task.len() as u32, options)?);
    }
    futures.wait_all(&made).await?;
    let (mut written, mut read_hash) = (Output::default(), RowHash::default());
    let mut values = stream::iter(made.iter().map(|output| futures.get_value::<Converted>(output))).buffered(64);
    while let Some(Converted { token, row_hash, read_hash: of_file }) = values.try_next().await? {
        written.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
        read_hash += of_file;
    }
    drop(values);
    let counted = parts.iter().map(|part| part.rows).sum::<Option<u64>>().or(described.rows());
    if let Some(rows) = counted.filter(|rows| *rows != written.rows) {
        let detail = format!("{rows} rows are to be read; wrote {} rows", written.rows);
        return Err(JobError::Conservation { edge: "input -> output".to_owned(), detail });
    }
    output.commit(&made, manifest(file.format, &schema)).await?;
    Ok(Rewritten {
        rows_read: written.rows,
        rows: written.rows,
        input_bytes: described.input_bytes(),
        output_bytes: written.bytes,
        row_hash_in: read_hash,
        row_hash_out: written.row_hash,
        strategy: None,
        maps: tasks.len() as u64,
        files: made.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// Parts that one task writes: those that begin within a split go with the one before them.
fn tasks<'a>(described: &Described, parts: &'a [Part]) -> Vec<&'a [Part]> {
    let bytes: Vec<u64> = described.splits().map(|split| split.value_bytes).collect();
    let mut from = 0;
    let is_same = |(at, part): (usize, &Part)| {
        let read: u64 = bytes[parts[from].splits.start..part.splits.end].iter().sum();
        let goes_on =
            at > 0 && part.skip > 0 && (read <= TASK_BYTES || part.splits.len() == 1) && at - from < FILES_MAX;
        if !goes_on {
            from = at;
        }
        goes_on
    };
    let goes_on: Vec<bool> = parts.iter().enumerate().map(is_same).collect();
    let mut number = 0;
    parts
        .chunk_by(|_, _| {
            number += 1;
            goes_on[number]
        })
        .collect()
}

/// Files that one task writes, at most: each has buffers of its own.
const FILES_MAX: usize = 64;

/// What a task takes beside the store that writes these.
fn outside_bytes(described: &Described, parts: &[Part], writing: WriteOptions) -> u64 {
    let (from, to) = (parts[0].splits.start, parts.last().map_or(0, |part| part.splits.end));
    let splits = || described.splits().skip(from).take(to - from);
    let (bytes, rows) =
        splits().fold((0, 0), |(bytes, rows), split| (bytes + split.value_bytes, rows + split.rows_about()));
    let largest = splits().map(|split| split.value_bytes).max().unwrap_or(0);
    LOOK_BYTES + writing.sink_bytes(bytes, rows) + largest / 4
}

/// What goes into each file: at least one, also of a table without a row.
fn parts(described: &Described, writing: WriteOptions) -> Result<Vec<Part>, JobError> {
    match writing.file_size {
        FileSize::Bytes(bytes) => Ok(by_bytes(described.splits().map(|split| split.value_bytes), bytes)),
        size => {
            let rows: Option<Vec<u64>> = described.splits().map(|split| split.rows).collect();
            let rows = rows.ok_or_else(|| JobError::program("rows of a split were not counted"))?;
            match size.files(0, rows.iter().sum()) {
                files if files <= PARTS_MAX => Ok(by_rows(&rows, size, files)),
                files => Err(JobError::program(format!("{files} files are too many, {PARTS_MAX} are the most"))),
            }
        }
    }
}

/// Most files of a folder.
const PARTS_MAX: u64 = 1_000_000;

/// Whole splits, until a file has as many bytes. Those without any are no reason to end one.
fn by_bytes(splits: impl Iterator<Item = u64>, file_bytes: u64) -> Vec<Part> {
    let (mut parts, mut open, mut open_bytes) = (Vec::new(), 0..0, 0);
    for (at, bytes) in splits.enumerate() {
        if bytes > 0 && open_bytes > 0 && open_bytes + bytes > file_bytes {
            parts.push(Part { splits: std::mem::replace(&mut open, at..at), skip: 0, rows: None });
            open_bytes = 0;
        }
        open.end = at + 1;
        open_bytes += bytes;
    }
    if !open.is_empty() || parts.is_empty() {
        parts.push(Part { splits: open, skip: 0, rows: None });
    }
    parts
}

/// So many rows each, whatever the splits are.
fn by_rows(splits: &[u64], size: FileSize, files: u64) -> Vec<Part> {
    let all: u64 = splits.iter().sum();
    let begin = |file: u64| match size {
        FileSize::Rows(rows) => all.min(file.saturating_mul(rows.max(1))),
        _ => (u128::from(file) * u128::from(all) / u128::from(files)) as u64,
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
        Part { splits: at..end, skip: if end > at { from - before } else { 0 }, rows: Some(to - from) }
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
        assert_eq!(by_bytes(std::iter::empty(), 8), [Part { splits: 0..0, skip: 0, rows: None }]);
    }

    #[test]
    fn files_of_so_many_rows_take_each_row_once_in_its_order() {
        let splits = [5_u64, 0, 3, 7, 0, 1];
        for size in [FileSize::Rows(1), FileSize::Rows(4), FileSize::Rows(100), FileSize::Count(3), FileSize::Count(40)]
        {
            let mut next = 0;
            for part in by_rows(&splits, size, size.files(0, 16)) {
                let before: u64 = splits[..part.splits.start].iter().sum();
                let there: u64 = splits[part.splits.clone()].iter().sum();
                let rows = part.rows.unwrap();
                assert!(rows == 0 || before + part.skip == next, "{size:?} {part:?}");
                assert!(part.skip + rows <= there, "{size:?} {part:?}");
                next += rows;
            }
            assert_eq!(next, 16, "{size:?}");
        }
        assert_eq!(by_rows(&[], FileSize::Count(1), 1).len(), 1);
    }
}
