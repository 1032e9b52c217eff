//! The tasks of a sort.

use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::Output;
use exobus_actors::{ids::RowHash, task};
use exobus_files::{Access, IoBuffer, Location, ReadFile, Token};
use exobus_store::{Block, ObjectReader, ObjectWriter};
use serde::{Deserialize, Serialize};

use crate::cuts::Cuts;
use crate::files::{FileList, FilePart, ReadOptions, read_chunk, read_files, scratch_bytes};
use crate::jobs::inputs;
use crate::jobs::outputs;
use crate::jobs::pieces;
use crate::jobs::reads::{account, sealed};
use crate::kernels::{self, Merge, ReadRun, RunSource, SliceRun, sort_scratch_bytes};
use crate::records::{KEY_BYTES, RECORD_BYTES};

/// What `list` is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ListParams {
    #[serde(with = "exobus_actors::paths")]
    pub(super) inputs: Vec<PathBuf>,
    pub(super) partial: bool,
}

/// Lists the inputs.
#[task(name = "sort.list", version = 2)]
pub(super) fn list(context: &mut TaskContext<'_>, params: ListParams) -> Result<FileList, TaskError> {
    inputs::list(context, (&params.inputs, params.partial), Some(RECORD_BYTES as u64))
}

/// What `sample` is told: where in the input records begin, in ascending order. Its only argument is the page with them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SampleParams {
    pub(super) places: Vec<u64>,
}

/// Reads the keys at some places.
#[task(name = "sort.sample", version = 2, deterministic = true)]
pub(super) fn sample(context: &mut TaskContext<'_>, params: SampleParams) -> Result<Vec<Key>, TaskError> {
    let page = inputs::page(context, 0)?;
    let mut keys = Vec::new();
    let mut open: Option<(FilePart, Arc<dyn ReadFile>)> = None;
    for place in params.places {
        context.check_cancelled()?;
        let part = page.parts(place..place + 1).next();
        let part =
            part.ok_or_else(|| TaskError::fatal(format!("byte {place} of the input is in no file of its page")))?;
        let offset = part.range.start;
        let (part, file) = match open.take() {
            Some((before, file)) if before.file_start == part.file_start => (before, file),
            _ => {
                let path = &part.file.path;
                context.check_path(path)?;
                let file = Location::from(path).open(Access::Cached)?;
                (part, file)
            }
        };
        let mut key = [0; KEY_BYTES];
        file.read_at(offset, &mut key, KEY_BYTES)?;
        keys.push(Key(key));
        open = Some((part, file));
    }
    Ok(keys)
}

/// One key, as bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key(#[serde(with = "serde_bytes")] pub(super) [u8; KEY_BYTES]);

/// What `map` is told: what of the input to sort. Its arguments are the cuts and the page with these files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) chunk: Range<u64>,
}

/// Sorts a chunk of a file, or several small files, into an object with a part for each partition.
#[task(name = "sort.map", version = 2, deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, MapParams { chunk }: MapParams) -> Result<(), TaskError> {
    let cuts: Cuts = rmp_serde::from_slice(&context.block(0)).map_err(TaskError::fatal)?;
    let page = inputs::page(context, 1)?;
    let chunk_bytes = chunk.end - chunk.start;
    let rows = chunk_bytes as usize / RECORD_BYTES;
    let mut input = context.scratch(scratch_bytes(&chunk))?;
    let mut scratch = context.scratch(sort_scratch_bytes(rows) as u64)?;
    let bytes = read(context, &page, chunk, &mut input)?;
    drop(page);
    context.read_outside(chunk_bytes);
    context.check_cancelled()?;
    let sorted = kernels::sort(bytes, &mut scratch);
    let bounds = sorted.bounds(&cuts);
    let writer = context.output_sized(chunk_bytes)?;
    for part in bounds.windows(2) {
        let (mut from, to) = (part[0], part[1]);
        let mut hash = RowHash::default();
        write_part(writer, ((to - from) * RECORD_BYTES) as u64, |room| {
            let rows = (room.len() / RECORD_BYTES).min(to - from);
            hash += sorted.gather(from..from + rows, &mut room[..rows * RECORD_BYTES]);
            from += rows;
            Ok(rows * RECORD_BYTES)
        })?;
        writer.end_part((to - part[0]) as u64, hash);
    }
    Ok(())
}

/// Reads what of the input one map sorts.
fn read<'a>(
    context: &TaskContext<'_>,
    page: &FileList,
    chunk: Range<u64>,
    into: &'a mut [u8],
) -> Result<&'a mut [u8], TaskError> {
    let mut parts = page.parts(chunk).peekable();
    let first = parts.next();
    if let Some(part) = &first
        && parts.peek().is_none()
    {
        context.check_path(&part.file.path)?;
        return Ok(read_chunk(&part.clone().chunk(), into, &ReadOptions::default())?);
    }
    // Of a chunk in several files these are whole.
    let files = first.into_iter().chain(parts).map(|part| part.file);
    let check = |path: &Path| {
        context.check_cancelled()?;
        context.check_path(path)
    };
    let bytes = read_files(files, into, check)?;
    Ok(&mut into[..bytes])
}

/// Begins a part and writes its `bytes` bytes; `next` puts whole records into the room it is given and says how many
/// bytes that was.
fn write_part(
    writer: &mut ObjectWriter,
    bytes: u64,
    mut next: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> Result<(), TaskError> {
    writer.begin_part(Some(bytes))?;
    let mut left = bytes;
    while left > 0 {
        let spare = writer.spare()?;
        let written = if spare.len() >= RECORD_BYTES {
            let written = next(spare)?;
            writer.advance(written);
            written
        } else {
            // The end of a staging chunk: a record that goes across.
            let mut record = [0; RECORD_BYTES];
            let written = next(&mut record)?;
            writer.write(&record[..written])?;
            written
        };
        if written == 0 {
            return Err(TaskError::fatal(format!("{left} of {bytes} bytes of a part are not there")));
        }
        left -= written as u64;
    }
    Ok(())
}

/// What `merge` is told. Each of its arguments is an object, or parts of all members of a set, with as many parts as the
/// pieces have together.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MergeParams {
    pub(super) pieces: Vec<u32>,
}

/// Merges sorted parts part by part: many objects into one for each piece. What is larger than the memory of the node comes
/// as streams and is merged through small windows.
#[task(name = "sort.merge", arguments = [either], deterministic = true)]
pub(super) fn merge_blocks(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    merge_parts(context, &params.pieces)
}

/// What `merge_blocks` does, for tasks that do more.
pub(crate) fn merge_parts(context: &mut TaskContext<'_>, pieces: &[u32]) -> Result<(), TaskError> {
    if (0..context.args()).any(|arg| context.is_stream(arg)) {
        return merge_streams(context, pieces);
    }
    let (sealed, mut blocks) = blocks(context);
    blocks.retain(|block| !block.is_empty());
    let mut read = Output::default();
    for (piece, parts) in pieces::ranges(pieces) {
        let bytes = pieces::bytes(blocks.iter().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let parts = blocks.iter().map(|block| block.part_bytes(part));
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            let part_bytes = parts.iter().map(|part| part.len() as u64).sum();
            let runs = parts.into_iter().map(run).collect::<Result<Vec<_>, _>>()?;
            read.add(merge_part(context.output_at_sized(piece, bytes)?, Merge::new(runs)?, part_bytes)?);
        }
        context.seal_output(piece)?;
    }
    account(context, 0, &sealed, read);
    Ok(())
}

/// As `merge_parts`, with all arguments as streams.
fn merge_streams(context: &mut TaskContext<'_>, pieces: &[u32]) -> Result<(), TaskError> {
    let (sealed, mut readers) = readers(context);
    let mut windows = context.windows();
    let mut read = Output::default();
    for (piece, parts) in pieces::ranges(pieces) {
        let bytes = pieces::bytes(readers.iter().map(ObjectReader::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let part_bytes = readers.iter().map(|reader| reader.parts()[part].bytes).sum();
            let runs = readers.iter_mut().zip(&mut windows).map(|(reader, window)| {
                let bytes = reader.parts()[part].bytes;
                ReadRun::new(reader.take(bytes), &mut **window)
            });
            let merge = Merge::new(runs.collect())?;
            read.add(merge_part(context.output_at_sized(piece, bytes)?, merge, part_bytes)?);
        }
        context.seal_output(piece)?;
    }
    account(context, 0, &sealed, read);
    Ok(())
}

/// What was sealed of each argument, and the blocks of all of them, one after the other.
fn blocks(context: &TaskContext<'_>) -> (Vec<Vec<Output>>, Vec<Block>) {
    let args: Vec<Vec<Block>> = (0..context.args()).map(|arg| context.blocks(arg)).collect();
    let sealed = args.iter().map(|blocks| sealed(blocks));
    (sealed.collect(), args.into_iter().flatten().collect())
}

/// As `blocks`, of streams.
fn readers(context: &mut TaskContext<'_>) -> (Vec<Vec<Output>>, Vec<ObjectReader>) {
    let args: Vec<Vec<ObjectReader>> = (0..context.args()).map(|arg| context.readers(arg).into()).collect();
    let sealed = args.iter().map(|readers| {
        let parts = readers.iter().flat_map(|reader| reader.parts());
        parts.map(|part| Output { bytes: part.bytes, rows: part.rows, row_hash: part.row_hash }).collect()
    });
    (sealed.collect(), args.into_iter().flatten().collect())
}

/// Writes what is merged as one part; what it was.
fn merge_part<S: RunSource>(writer: &mut ObjectWriter, mut merge: Merge<S>, bytes: u64) -> Result<Output, TaskError> {
    write_part(writer, bytes, |room| merge.next_into(room))?;
    writer.end_part(merge.rows(), merge.row_hash());
    Ok(Output { bytes, rows: merge.rows(), row_hash: merge.row_hash() })
}

/// What `reduce` is told. Its arguments are one part of everything that is left to merge.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    #[serde(with = "exobus_actors::paths")]
    pub(super) directory: PathBuf,
    pub(super) name: String,
    pub(super) buffer_bytes: u64,
}

/// What `reduce` made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    pub(super) token: Token,
    pub(super) row_hash: RowHash,
}

/// Merges sorted parts into a file. A partition that is larger than the memory of the node (one hot key will do) comes as
/// streams and is merged through small windows.
#[task(name = "sort.reduce", arguments = [either], deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Reduced, TaskError> {
    // What was granted for the buffers goes to them, before windows are taken of what is left.
    let buffers = outputs::output_buffers(context, params.buffer_bytes)?;
    if (0..context.args()).any(|arg| context.is_stream(arg)) {
        let (sealed, readers) = readers(context);
        let bytes = readers.iter().map(ObjectReader::remaining).sum();
        let windows = context.windows();
        let runs = readers.into_iter().zip(windows).map(|(reader, window)| ReadRun::new(reader, window));
        return write_file(context, Merge::new(runs.collect())?, Planned { bytes, sealed, buffers }, &params);
    }
    let (sealed, blocks) = blocks(context);
    let bytes = blocks.iter().map(|block| block.len() as u64).sum();
    let runs =
        blocks.iter().filter(|block| !block.is_empty()).map(|block| run(block)).collect::<Result<Vec<_>, _>>()?;
    write_file(context, Merge::new(runs)?, Planned { bytes, sealed, buffers }, &params)
}

/// What a reduce knows before it merges.
struct Planned {
    bytes: u64,
    /// Of each argument.
    sealed: Vec<Vec<Output>>,
    buffers: Vec<IoBuffer>,
}

fn write_file<S: RunSource>(
    context: &mut TaskContext<'_>,
    mut merge: Merge<S>,
    Planned { bytes, sealed, buffers }: Planned,
    params: &ReduceParams,
) -> Result<Reduced, TaskError> {
    let mut output = outputs::create_file(context, (&params.directory, &params.name), buffers, bytes)?;
    loop {
        context.check_cancelled()?;
        let merged = merge.next_into(output.spare()?)?;
        if merged == 0 {
            break;
        }
        output.advance(merged);
    }
    let (rows, row_hash) = (merge.rows(), merge.row_hash());
    let (token, _) = outputs::finish_file(context, &params.directory, output, rows)?;
    account(context, 0, &sealed, Output { bytes: rows * RECORD_BYTES as u64, rows, row_hash });
    Ok(Reduced { token, row_hash })
}

pub(super) fn run(part: &[u8]) -> Result<SliceRun<'_>, TaskError> {
    if !part.len().is_multiple_of(RECORD_BYTES) {
        return Err(TaskError::fatal(format!("a part of {} bytes is no whole number of records", part.len())));
    }
    Ok(SliceRun::new(part))
}
