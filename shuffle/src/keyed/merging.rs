//! The tasks of keyed jobs that merge: `merge` and `reduce`. What is larger than the memory of the node comes as streams
//! and is merged through small windows.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::Output;
use exobus_files::{IoBuffer, Token};
use exobus_store::{Block, ObjectReader, ObjectWriter, RowHash};
use serde::{Deserialize, Serialize};

use super::KeyedJob;
use super::register::Registered;
use super::tasks::ROWS_PER_LOOK;
use super::values::{Combined, Group, Values};
use crate::jobs::outputs::{PartFile, create_file, finish_file, output_buffers};
use crate::jobs::pieces;
use crate::rows::{ReadRows, RowMerge, RowRun, RowsError, SliceRows, push_row};

impl From<RowsError> for TaskError {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Read(error) => error.into(),
            error => Self::fatal(error),
        }
    }
}

/// What `merge` is told. Each of its arguments is an object, or parts of all members of a set, with as many parts as the
/// pieces have together.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct MergeParams<J> {
    pub(super) job: Arc<J>,
    pub(super) pieces: Vec<u32>,
}

pub(super) fn merge<J: Registered>(context: &mut TaskContext<'_>, params: MergeParams<J>) -> Result<(), TaskError> {
    let mut read = vec![Output::default(); context.args()];
    if (0..context.args()).any(|arg| context.is_stream(arg)) {
        merge_streams(context, &params, &mut read)?;
    } else {
        merge_blocks(context, &params, &mut read)?;
    }
    for (arg, Output { bytes, rows, row_hash }) in read.into_iter().enumerate() {
        context.consumed(arg, bytes, rows, row_hash);
    }
    Ok(())
}

fn merge_blocks<J: Registered>(
    context: &mut TaskContext<'_>,
    params: &MergeParams<J>,
    read: &mut [Output],
) -> Result<(), TaskError> {
    let (of, blocks) = blocks(context);
    for (piece, parts) in pieces::ranges(&params.pieces) {
        let bytes = pieces::bytes(blocks.iter().map(Block::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let parts = of.iter().zip(&blocks).map(|(arg, block)| (*arg, block.part_bytes(part)));
            let parts: Vec<(usize, &[u8])> = parts.filter(|(_, part)| !part.is_empty()).collect();
            let runs = parts.iter().map(|(_, part)| SliceRows::new(part)).collect();
            let mut merge = RowMerge::new(runs)?;
            merge_part(&*params.job, &mut merge, context.output_at_sized(piece, bytes)?)?;
            parts.iter().zip(merge.read()).for_each(|((arg, _), of_run)| read[*arg].add(*of_run));
        }
        context.seal_output(piece)?;
    }
    Ok(())
}

fn merge_streams<J: Registered>(
    context: &mut TaskContext<'_>,
    params: &MergeParams<J>,
    read: &mut [Output],
) -> Result<(), TaskError> {
    let (of, mut readers) = readers(context);
    let mut windows = context.windows();
    for (piece, parts) in pieces::ranges(&params.pieces) {
        let bytes = pieces::bytes(readers.iter().map(ObjectReader::parts), &parts);
        for part in parts {
            context.check_cancelled()?;
            let runs = readers.iter_mut().zip(&mut windows).map(|(reader, window)| {
                let part_bytes = reader.parts()[part].bytes;
                ReadRows::new(io::Read::take(reader, part_bytes), &mut **window)
            });
            let mut merge = RowMerge::new(runs.collect())?;
            merge_part(&*params.job, &mut merge, context.output_at_sized(piece, bytes)?)?;
            let of_runs = merge.read().to_vec();
            drop(merge);
            of.iter().zip(of_runs).for_each(|(arg, of_run)| read[*arg].add(of_run));
        }
        context.seal_output(piece)?;
    }
    Ok(())
}

/// Writes what is merged as one part.
fn merge_part<J: KeyedJob, R: RowRun>(
    job: &J,
    merge: &mut RowMerge<R>,
    writer: &mut ObjectWriter,
) -> Result<(), TaskError> {
    writer.begin_part(None)?;
    let (mut rows, mut row_hash) = (0, RowHash::default());
    let mut made = Vec::new();
    let mut write = |key: &[u8], value: &[u8], writer: &mut ObjectWriter| -> Result<(), TaskError> {
        made.clear();
        push_row(&mut made, key, value);
        rows += 1;
        row_hash += crate::rows::hash_of(&made);
        Ok(writer.write(&made)?)
    };
    if job.merges() {
        let mut key = Vec::new();
        while let Some(row) = merge.row() {
            key.clear();
            key.extend_from_slice(row.key());
            let mut group = Group::new(job, merge);
            job.merge(&key, Values::new(&mut group), &mut |value| write(&key, value, writer))?;
            group.finish()?;
        }
    } else if job.combines() {
        let mut value = Vec::new();
        while combine_group(job, merge, &mut value)? {
            write(merge.key(), &value, writer)?;
        }
    } else {
        while let Some(row) = merge.row() {
            writer.write(row.bytes())?;
            row_hash += merge.take()?.unwrap_or_default();
            rows += 1;
        }
    }
    writer.end_part(rows, row_hash);
    Ok(())
}

/// Takes all rows of the next key, combined into `value`; false when there is none. The merge knows the key.
fn combine_group<J: KeyedJob, R: RowRun>(
    job: &J,
    merge: &mut RowMerge<R>,
    value: &mut Vec<u8>,
) -> Result<bool, TaskError> {
    let Some(row) = merge.row() else { return Ok(false) };
    value.clear();
    value.extend_from_slice(row.value());
    merge.take()?;
    while merge.goes_on() {
        if let Some(row) = merge.row() {
            job.combine(merge.key(), value, row.value())?;
        }
        merge.take()?;
    }
    Ok(true)
}

/// What `reduce` is told. Its arguments are one part of everything that is left to merge.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ReduceParams<J> {
    pub(super) job: Arc<J>,
    #[serde(with = "exobus_actors::paths")]
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

pub(super) fn reduce<J: Registered>(
    context: &mut TaskContext<'_>,
    params: ReduceParams<J>,
) -> Result<Reduced, TaskError> {
    // What was granted for the buffers goes to them, before windows are taken of what is left.
    let buffers = output_buffers(context, params.buffer_bytes)?;
    if (0..context.args()).any(|arg| context.is_stream(arg)) {
        let (of, readers) = readers(context);
        let windows = context.windows();
        let runs = readers.into_iter().zip(windows).map(|(reader, window)| ReadRows::new(reader, window));
        return write_file(context, RowMerge::new(runs.collect())?, &of, buffers, &params);
    }
    let (of, blocks) = blocks(context);
    let runs = blocks.iter().map(|block| SliceRows::new(block));
    write_file(context, RowMerge::new(runs.collect())?, &of, buffers, &params)
}

/// The blocks of all arguments that have any bytes, and the argument that each is of.
fn blocks(context: &TaskContext<'_>) -> (Vec<usize>, Vec<Block>) {
    let blocks = (0..context.args()).flat_map(|arg| context.blocks(arg).into_iter().map(move |block| (arg, block)));
    blocks.filter(|(_, block)| !block.is_empty()).unzip()
}

/// As `blocks`, of streams.
fn readers(context: &mut TaskContext<'_>) -> (Vec<usize>, Vec<ObjectReader>) {
    let mut readers = Vec::new();
    for arg in 0..context.args() {
        readers.extend(context.readers(arg).into_iter().map(|reader| (arg, reader)));
    }
    readers.into_iter().unzip()
}

fn write_file<J: Registered, R: RowRun>(
    context: &mut TaskContext<'_>,
    mut merge: RowMerge<R>,
    of: &[usize],
    buffers: Vec<IoBuffer>,
    params: &ReduceParams<J>,
) -> Result<Reduced, TaskError> {
    let output = create_file(context, (&params.directory, &params.name), buffers, 0)?;
    let mut file = PartFile::new(output);
    let failure = file.failure();
    let reduced = reduce_all(context, &*params.job, &mut merge, &mut file);
    let (keys, conserved) = match failure.take() {
        Some(failure) => return Err(failure.into()),
        None => reduced?,
    };
    let (token, _) = finish_file(context, &params.directory, file.into_output(), keys)?;
    for (arg, read) in of.iter().zip(merge.read()) {
        context.consumed(*arg, read.bytes, read.rows, read.row_hash);
    }
    Ok(Reduced { token, keys, conserved })
}

fn reduce_all<J: KeyedJob, R: RowRun>(
    context: &TaskContext<'_>,
    job: &J,
    merge: &mut RowMerge<R>,
    file: &mut dyn io::Write,
) -> Result<(u64, Output), TaskError> {
    let (mut keys, mut conserved) = (0u64, Output::default());
    job.head(file)?;
    let mut look = || {
        keys += 1;
        if keys.is_multiple_of(ROWS_PER_LOOK) { context.check_cancelled() } else { Ok(()) }
    };
    if job.combines() {
        let mut value = Vec::new();
        while combine_group(job, merge, &mut value)? {
            look()?;
            conserved.add(job.conserved(merge.key(), &value));
            job.reduce(merge.key(), Values::new(&mut Combined { value: &value, shown: false }), file)?;
        }
        return Ok((keys, conserved));
    }
    let mut key = Vec::new();
    while let Some(row) = merge.row() {
        look()?;
        key.clear();
        key.extend_from_slice(row.key());
        let mut group = Group::new(job, merge);
        job.reduce(&key, Values::new(&mut group), file)?;
        conserved.add(group.finish()?);
    }
    Ok((keys, conserved))
}
