//! The tasks of keyed jobs. Each is generic over the job and registered once for every job by `keyed_job!`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::Output;
use exobus_store::{Block, ObjectWriter, RowHash};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::input::{Input, Mark, Piece};
use super::register::Registered;
use super::{KeyedJob, Split};
use crate::files::{self, FileError, InputFile, IoBuffer, OutputFile, OutputOptions, Token};
use crate::jobs::outputs;
use crate::rows::{ROW_HEADER_BYTES, Row, RowBuffer, RowError, RowMerge, push_row};

impl From<RowError> for TaskError {
    fn from(error: RowError) -> Self {
        Self::fatal(error)
    }
}

/// Rows between two looks at whether the task is still wanted.
const ROWS_PER_LOOK: u64 = 4096;
/// Most bytes of the window that input is read through.
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Entry points by the names of their stages, for `keyed_job!`.
pub mod call {
    use super::*;

    macro_rules! entries {
        ($($stage:ident)*) => {
            $(
                #[doc = concat!("The task function `", stringify!($stage), "`.")]
                #[doc(hidden)]
                pub fn $stage<J: Registered>(context: &mut TaskContext<'_>, bytes: &[u8]) -> Result<(), TaskError> {
                    let value = super::$stage::<J>(context, decode(bytes)?)?;
                    context.return_value(&value)
                }
            )*
        };
    }

    entries!(list split probe map merge reduce commit);

    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TaskError> {
        exobus_actors::decode_params(bytes)
    }
}

/// What `list` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ListParams<J> {
    pub(super) job: Arc<J>,
    pub(super) inputs: Vec<PathBuf>,
    pub(super) output: PathBuf,
}

/// What `list` found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    pub(super) files: Vec<InputFile>,
    /// Whether the output directory was made for this job.
    pub(super) created: bool,
}

fn list<J: Registered>(context: &mut TaskContext<'_>, params: ListParams<J>) -> Result<Listed, TaskError> {
    for path in params.inputs.iter().chain([&params.output]) {
        context.check_path(path)?;
    }
    let files = files::list_files(&params.inputs)?;
    if let Split::Records(bytes) = params.job.split() {
        files.iter().try_for_each(|file| files::whole_rows(file, bytes))?;
    }
    for file in &files {
        // A link in an input folder may lead anywhere.
        context.check_path(&file.path)?;
    }
    let created = files::prepare_output_dir(&params.output)?;
    Ok(Listed { files, created })
}

/// What `split` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct SplitParams<J> {
    pub(super) job: Arc<J>,
    pub(super) file: InputFile,
    pub(super) step_bytes: u64,
    pub(super) scratch_bytes: u64,
}

/// What `split` found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub(super) marks: Vec<Mark>,
}

fn split<J: Registered>(context: &mut TaskContext<'_>, params: SplitParams<J>) -> Result<Found, TaskError> {
    let mut scratch = context.scratch(params.scratch_bytes)?;
    let (window, spare, _) = carve(&mut scratch);
    context.check_path(&params.file.path)?;
    let piece = Piece::whole(params.file, 0);
    let mut found = Found::default();
    let mut mark = |mark| {
        found.marks.push(mark);
        context.check_cancelled()
    };
    params.job.marks(&mut Input::open(&piece, window, spare)?, params.step_bytes, &mut mark)?;
    context.check_cancelled()?;
    context.read_outside(piece.bytes());
    Ok(found)
}

/// Window, memory for the map, and the rest.
fn carve(scratch: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let window_bytes = (scratch.len() / 8).min(WINDOW_BYTES_MAX);
    let (window, rest) = scratch.split_at_mut(window_bytes);
    let (spare, rest) = rest.split_at_mut(window_bytes);
    (window, spare, rest)
}

/// What `probe` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ProbeParams<J> {
    pub(super) job: Arc<J>,
    pub(super) pieces: Vec<Piece>,
    pub(super) scratch_bytes: u64,
}

/// What `probe` saw, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Of the input.
    pub(super) read_bytes: u64,
    /// Of the rows that were made of it.
    pub(super) emitted_bytes: u64,
    /// Of those that combining left, piece by piece.
    pub(super) combined_bytes: u64,
}

fn probe<J: Registered>(context: &mut TaskContext<'_>, params: ProbeParams<J>) -> Result<Probed, TaskError> {
    let mut scratch = context.scratch(params.scratch_bytes)?;
    let mut probed = Probed::default();
    for piece in &params.pieces {
        let made = map_passes(context, &*params.job, piece, 1, &mut scratch, |_, buffer| {
            probed.combined_bytes += buffer.bytes() as u64;
            Ok(())
        })?;
        probed.read_bytes += piece.bytes();
        probed.emitted_bytes += made.emitted_bytes;
    }
    Ok(probed)
}

/// What `map` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct MapParams<J> {
    pub(super) job: Arc<J>,
    pub(super) piece: Piece,
    pub(super) partitions: u32,
    pub(super) scratch_bytes: u64,
}

/// What a map made before anything was combined: its second output.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) conserved: Output,
    pub(super) emitted_bytes: u64,
}

fn map<J: Registered>(context: &mut TaskContext<'_>, params: MapParams<J>) -> Result<(), TaskError> {
    let MapParams { job, piece, partitions, scratch_bytes } = params;
    let mut scratch = context.scratch(scratch_bytes)?;
    let mut parts = Parts::default();
    let made = map_passes(context, &*job, &piece, partitions, &mut scratch, |context, buffer| {
        let writer = context.output_sized(buffer.bytes() as u64)?;
        for (partition, row) in buffer.sorted() {
            parts.go_to(writer, partition)?;
            writer.write(row.bytes())?;
            parts.rows += 1;
            parts.row_hash += row.hash();
        }
        Ok(())
    })?;
    parts.finish(context.output()?, partitions)?;
    context.read_outside(piece.bytes());
    let made = rmp_serde::to_vec_named(&made).map_err(TaskError::fatal)?;
    let writer = context.output_at(1)?;
    writer.begin_part(Some(made.len() as u64))?;
    writer.write(&made)?;
    writer.end_part(1, RowHash::default());
    Ok(())
}

/// The parts of an object that is written in their order.
#[derive(Debug, Default)]
struct Parts {
    /// How many have been begun.
    begun: u32,
    /// What is in the last of them.
    rows: u64,
    row_hash: RowHash,
}

impl Parts {
    /// Ends and begins parts until `partition` is the open one.
    fn go_to(&mut self, writer: &mut ObjectWriter, partition: u32) -> Result<(), TaskError> {
        while self.begun <= partition {
            self.end(writer);
            writer.begin_part(None)?;
            self.begun += 1;
        }
        Ok(())
    }

    fn end(&mut self, writer: &mut ObjectWriter) {
        if self.begun > 0 {
            writer.end_part(std::mem::take(&mut self.rows), std::mem::take(&mut self.row_hash));
        }
    }

    fn finish(&mut self, writer: &mut ObjectWriter, partitions: u32) -> Result<(), TaskError> {
        self.go_to(writer, partitions - 1)?;
        self.end(writer);
        Ok(())
    }
}

/// Maps a piece as often as it takes for all rows to have been in the buffer; `each` is given those of one pass.
fn map_passes<J: KeyedJob>(
    context: &mut TaskContext<'_>,
    job: &J,
    piece: &Piece,
    partitions: u32,
    scratch: &mut [u8],
    mut each: impl FnMut(&mut TaskContext<'_>, &mut RowBuffer<'_>) -> Result<(), TaskError>,
) -> Result<Made, TaskError> {
    context.check_path(&piece.file.path)?;
    let partitioner = job.partitioner(partitions)?;
    let partition_of = |key: &[u8]| partitioner.partition_of(key);
    let combine = |key: &[u8], into: &mut Vec<u8>, value: &[u8]| job.combine(key, into, value);
    let (window, spare, rest) = carve(scratch);
    let mut buffer = RowBuffer::new(rest, &partition_of, job.combines().then_some(&combine));
    loop {
        let mut made = Made::default();
        let mut emit = |key: &[u8], value: &[u8]| {
            if made.conserved.rows.is_multiple_of(ROWS_PER_LOOK) {
                context.check_cancelled()?;
            }
            made.conserved.add(job.conserved(key, value));
            made.emitted_bytes += (ROW_HEADER_BYTES + key.len() + value.len()) as u64;
            buffer.push(key, value)
        };
        job.map(&mut Input::open(piece, window, spare)?, &mut emit)?;
        each(context, &mut buffer)?;
        if !buffer.next_pass() {
            return Ok(made);
        }
    }
}

/// What `merge` is told. Each of its arguments is an object, or parts of all members of a set, with that many parts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct MergeParams<J> {
    pub(super) job: Arc<J>,
    pub(super) parts: u32,
}

fn merge<J: Registered>(context: &mut TaskContext<'_>, params: MergeParams<J>) -> Result<(), TaskError> {
    // Each block with the number of its argument.
    let blocks: Vec<(usize, Block)> =
        (0..context.args()).flat_map(|arg| context.blocks(arg).into_iter().map(move |block| (arg, block))).collect();
    let blocks: Vec<_> = blocks.into_iter().filter(|(_, block)| !block.is_empty()).collect();
    let bytes = blocks.iter().map(|(_, block)| block.len() as u64).sum();
    let mut read = vec![Output::default(); context.args()];
    for part in 0..params.parts as usize {
        context.check_cancelled()?;
        let parts: Vec<(usize, Block)> = blocks.iter().map(|(arg, block)| (*arg, block.part(part))).collect();
        let mut merge = RowMerge::new(parts.iter().map(|(_, part)| &part[..]))?;
        let (mut rows, mut row_hash) = (0, RowHash::default());
        let writer = context.output_sized(bytes)?;
        writer.begin_part(None)?;
        merge_groups(&*params.job, &mut merge, |row| {
            rows += 1;
            row_hash += row.hash();
            Ok(writer.write(row.bytes())?)
        })?;
        writer.end_part(rows, row_hash);
        for ((arg, _), of_run) in parts.iter().zip(merge.read()) {
            read[*arg].add(*of_run);
        }
    }
    for (arg, Output { bytes, rows, row_hash }) in read.into_iter().enumerate() {
        context.consumed(arg, bytes, rows, row_hash);
    }
    Ok(())
}

/// Gives on the rows of a merge, those of one key combined where the job does that.
fn merge_groups<J: KeyedJob>(
    job: &J,
    merge: &mut RowMerge<'_>,
    mut each: impl FnMut(Row<'_>) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let (mut value, mut combined) = (Vec::new(), Vec::new());
    while let Some(row) = merge.next_row()? {
        if !job.combines() || merge.key() != Some(row.key()) {
            each(row)?;
            continue;
        }
        value.clear();
        value.extend_from_slice(row.value());
        while merge.key() == Some(row.key()) {
            let Some(next) = merge.next_row()? else { break };
            job.combine(row.key(), &mut value, next.value())?;
        }
        combined.clear();
        push_row(&mut combined, row.key(), &value);
        each(Row::first_of(&combined, 0)?)?;
    }
    Ok(())
}

/// What `reduce` is told. Its arguments are one part of everything that is left to merge.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ReduceParams<J> {
    pub(super) job: Arc<J>,
    pub(super) directory: PathBuf,
    pub(super) name: String,
    pub(super) buffer_bytes: u64,
}

/// What `reduce` made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reduced {
    pub(super) token: Token,
    pub(super) keys: u64,
    pub(super) conserved: Output,
}

fn reduce<J: Registered>(context: &mut TaskContext<'_>, params: ReduceParams<J>) -> Result<Reduced, TaskError> {
    let blocks: Vec<Vec<Block>> = (0..context.args()).map(|arg| context.blocks(arg)).collect();
    let mut buffer = || -> Result<IoBuffer, TaskError> { Ok(Box::new(context.scratch(params.buffer_bytes)?)) };
    let buffers = vec![buffer()?, buffer()?];
    let attempt = format!("{}-{}", context.task(), context.attempt());
    // The name comes with the parameters, too.
    context.check_path(&params.directory.join(&params.name))?;
    let output = OutputFile::create(&params.directory, &params.name, &attempt, buffers, OutputOptions::default())?;
    let mut file = Writing { output, failure: None };
    let mut merge = RowMerge::new(blocks.iter().flatten().map(|block| &block[..]))?;
    let reduced = reduce_all(context, &*params.job, &mut merge, &mut file);
    let (keys, conserved) = match file.failure {
        Some(failure) => return Err(failure.into()),
        None => reduced?,
    };
    let (token, _buffers) = file.output.finish()?;
    if context.cancelled() {
        files::abort(&token)?;
        return Err(TaskError::Cancelled);
    }
    let args = blocks.iter().enumerate().flat_map(|(arg, blocks)| blocks.iter().map(move |_| arg));
    for (arg, read) in args.zip(merge.read()) {
        context.consumed(arg, read.bytes, read.rows, read.row_hash);
    }
    context.wrote_outside(token.bytes);
    Ok(Reduced { token, keys, conserved })
}

fn reduce_all<J: KeyedJob>(
    context: &TaskContext<'_>,
    job: &J,
    merge: &mut RowMerge<'_>,
    file: &mut dyn io::Write,
) -> Result<(u64, Output), TaskError> {
    let (mut keys, mut conserved) = (0u64, Output::default());
    job.head(file)?;
    if job.combines() {
        merge_groups(job, merge, |row| {
            if keys.is_multiple_of(ROWS_PER_LOOK) {
                context.check_cancelled()?;
            }
            keys += 1;
            conserved.add(job.conserved(row.key(), row.value()));
            job.reduce(row.key(), &mut std::iter::once(row.value()), file)
        })?;
        return Ok((keys, conserved));
    }
    while let Some(key) = merge.key() {
        if keys.is_multiple_of(ROWS_PER_LOOK) {
            context.check_cancelled()?;
        }
        keys += 1;
        let mut failure = None;
        let mut values = std::iter::from_fn(|| {
            let row = if merge.key() == Some(key) { merge.next_row() } else { Ok(None) };
            let row = row.map_err(|error| failure = Some(error)).ok()??;
            conserved.add(job.conserved(key, row.value()));
            Some(row.value())
        });
        job.reduce(key, &mut values, file)?;
        // What the job did not look at has been there all the same.
        values.for_each(drop);
        if let Some(failure) = failure {
            return Err(failure.into());
        }
    }
    Ok((keys, conserved))
}

/// The file of a reduce; keeps what went wrong, which an I/O error cannot say.
struct Writing {
    output: OutputFile,
    failure: Option<FileError>,
}

impl io::Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.output.write(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failure = Some(failure);
                Err(io::Error::other("the part file cannot be written"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[expect(clippy::extra_unused_type_parameters, reason = "all stages are called alike")]
fn commit<J: Registered>(context: &mut TaskContext<'_>, directory: PathBuf) -> Result<(), TaskError> {
    outputs::commit(context, &directory)
}
