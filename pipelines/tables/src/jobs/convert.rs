//! Rows of a table as they are, in their order, in files of another format or length.
//!
//! Files end where splits of the input do, unless it is said how many rows or files there shall be: rows are counted then, where the input does not say how many it has. No row goes to another
//! node.

use std::path::PathBuf;

use ::futures::stream::{self, StreamExt as _, TryStreamExt as _};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::program;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Output, TaskOptions};
use exobus_files::part_name;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::{Plan, Sizes};
use serde::{Deserialize, Serialize};

use super::WriteOptions;
use super::budget::{TaskBudget, of_table};
use super::count::count;
use super::described::{Described, LOOK_BYTES};
use super::output::{FileParams, FileSize, PartWriter, Written, manifest};
use super::rewrite::{Rewrite, Rewritten};
use super::table::{Piece, Table, push_split};
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
    splits: std::ops::Range<usize>,
    /// Rows of the first split that are in files before this one.
    skip: u64,
    /// Rows of the file; `None`: all that is left of its splits.
    rows: Option<u64>,
}

/// What `convert` is told. Its only argument is the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ConvertParams {
    pieces: Vec<Piece>,
    reading: Reading,
    skip: u64,
    rows: Option<u64>,
    file: FileParams,
}

/// Rows of some splits as a file.
#[task(name = "table.convert", deterministic = true)]
fn convert_part(context: &mut TaskContext<'_>, params: ConvertParams) -> Result<Written, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let layout = std::sync::Arc::new(Layout::new(&table.schema).map_err(of_table)?);
    let of_rows = (&table.schema, &table.hasher);
    let mut file = PartWriter::create(context, &params.file, buffers, of_rows, &budget)?;
    let (mut skip, mut left) = (params.skip, params.rows.unwrap_or(u64::MAX));
    let reader = TableReader::new(&params.reading, &table.schema, &budget.shared()).map_err(of_table)?;
    for piece in &params.pieces {
        context.check_path(&piece.file.path)?;
        let source = piece.file.open(&reader, &params.reading).map_err(|error| budget.of_source(error))?;
        for (split, _, described) in piece.splits() {
            for rows in source.read(split, described.state).map_err(|error| budget.of_source(error))? {
                context.check_cancelled()?;
                let read = rows.map_err(|error| budget.of_source(error))?;
                let batch = &read.batch;
                let rows = batch.num_rows() as u64;
                let from = skip.min(rows);
                let to = rows.min(from.saturating_add(left));
                (skip, left) = (skip - from, left - (to - from));
                let picks: Vec<Pick> = (from..to).map(|row| Pick { batch: 0, row: row as u32 }).collect();
                let batch = conformed(batch, &table.schema).map_err(of_table)?;
                // Without their encodings, as sinks take them.
                let gather = Gather::new(layout.clone(), &[batch]).map_err(of_table)?;
                for message in gather.messages(&picks, &Limits::default()).map_err(of_table)? {
                    file.write(&message.batch().map_err(of_table)?)?;
                }
                if left == 0 {
                    break;
                }
            }
            context.read_outside(described.value_bytes);
        }
        source.source().file().check().map_err(|error| budget.of_source(error))?;
    }
    if let Some(missing) = params.rows.map(|_| left).filter(|left| *left > 0) {
        return Err(TaskError::fatal(format!("{missing} rows that were counted are not there")));
    }
    file.finish(context, &params.file.directory)
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
    let (value_bytes, rows) = (described.value_bytes(), described.rows());
    let parts = parts(&described, writing)?;
    let output = outputs::Output::claim(&futures, &rewrite.output, name).await?;
    let plan = Plan::of_chunks(Sizes::of(&futures.nodes(), value_bytes), Some(parts.len() as u32), 1 << 20);
    let buffer_bytes = plan.map_err(JobError::program)?.output_buffer_bytes;
    futures.plan_stage(name, parts.len() as u64, value_bytes)?;
    let layout = futures.put(&described.layout)?;
    let schema = Table::decode(&described.layout).map_err(JobError::program)?.schema;
    let file = FileParams {
        directory: rewrite.output.clone(),
        name: String::new(),
        format: described.format,
        options: writing,
        sorted_by: Vec::new(),
        buffer_bytes,
    };
    let splits: Vec<(usize, usize)> = (0..)
        .zip(&described.files)
        .flat_map(|(file, of)| (0..of.splits.len()).map(move |split| (file, split)))
        .collect();
    let mut made = Vec::with_capacity(parts.len());
    for (number, part) in parts.iter().enumerate() {
        let mut pieces = Vec::new();
        for at in part.splits.clone() {
            let (file, split) = splits[at];
            push_split(&mut pieces, &described.files[file], split, at as u32);
        }
        let values = pieces.iter().flat_map(|piece| &piece.file.splits);
        let (bytes, rows) =
            values.clone().fold((0, 0), |(bytes, rows), split| (bytes + split.value_bytes, rows + split.rows_about()));
        let largest = values.map(|split| split.value_bytes).max().unwrap_or(0);
        let outside_bytes = LOOK_BYTES + writing.sink_bytes(bytes, rows) + largest / 4;
        let file = FileParams { name: format!("{}.{}", part_name(number, parts.len()), file.format), ..file.clone() };
        let params =
            ConvertParams { pieces, reading: described.reading.clone(), skip: part.skip, rows: part.rows, file };
        let options = TaskOptions { scratch_bytes: vec![buffer_bytes; 2], outside_bytes, ..TaskOptions::default() };
        made.push(futures.submit_with(convert_part, &params, &[layout.arg()], options)?);
    }
    futures.wait_all(&made).await?;
    let mut written = Output::default();
    let mut values = stream::iter(made.iter().map(|output| futures.get_value::<Written>(output))).buffered(64);
    while let Some(Written { token, row_hash }) = values.try_next().await? {
        written.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
    }
    drop(values);
    if let Some(rows) = rows.filter(|rows| *rows != written.rows) {
        let detail = format!("input files say {rows} rows; wrote {} rows", written.rows);
        return Err(JobError::Conservation { edge: "input -> output".to_owned(), detail });
    }
    output.commit(&made, manifest(file.format, &schema)).await?;
    Ok(Rewritten {
        rows_read: written.rows,
        rows: written.rows,
        input_bytes: described.input_bytes(),
        output_bytes: written.bytes,
        row_hash_in: written.row_hash,
        row_hash_out: written.row_hash,
        strategy: None,
        maps: made.len() as u64,
        files: made.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// What goes into each file: at least one, also of a table without a row.
fn parts(described: &Described, writing: WriteOptions) -> Result<Vec<Part>, JobError> {
    let parts = match writing.file_size {
        FileSize::Bytes(bytes) => by_bytes(described.splits().map(|split| split.value_bytes), bytes),
        size => {
            let rows: Option<Vec<u64>> = described.splits().map(|split| split.rows).collect();
            let rows = rows.ok_or_else(|| JobError::program("rows of a split were not counted"))?;
            by_rows(&rows, size)
        }
    };
    match u32::try_from(parts.len()) {
        Ok(_) => Ok(parts),
        Err(_) => Err(JobError::program(format!("{} files are too many", parts.len()))),
    }
}

/// Whole splits, until a file has as many bytes.
fn by_bytes(splits: impl Iterator<Item = u64>, file_bytes: u64) -> Vec<Part> {
    let (mut parts, mut open, mut open_bytes) = (Vec::new(), 0..0, 0);
    for (at, bytes) in splits.enumerate() {
        if !open.is_empty() && open_bytes + bytes > file_bytes {
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
fn by_rows(splits: &[u64], size: FileSize) -> Vec<Part> {
    let all: u64 = splits.iter().sum();
    let files = size.files(0, all);
    let begin = |file: u64| match size {
        FileSize::Rows(rows) => all.min(file.saturating_mul(rows)),
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
        assert_eq!(splits(100), [0..6]);
        assert_eq!(by_bytes(std::iter::empty(), 8), [Part { splits: 0..0, skip: 0, rows: None }]);
    }

    #[test]
    fn files_of_so_many_rows_take_each_row_once_in_its_order() {
        let splits = [5_u64, 0, 3, 7, 0, 1];
        for size in [FileSize::Rows(1), FileSize::Rows(4), FileSize::Rows(100), FileSize::Count(3), FileSize::Count(40)]
        {
            let mut next = 0;
            for part in by_rows(&splits, size) {
                let before: u64 = splits[..part.splits.start].iter().sum();
                let there: u64 = splits[part.splits.clone()].iter().sum();
                let rows = part.rows.unwrap();
                assert!(rows == 0 || before + part.skip == next, "{size:?} {part:?}");
                assert!(part.skip + rows <= there, "{size:?} {part:?}");
                next += rows;
            }
            assert_eq!(next, 16, "{size:?}");
        }
        assert_eq!(by_rows(&[], FileSize::Count(1)).len(), 1);
    }
}
