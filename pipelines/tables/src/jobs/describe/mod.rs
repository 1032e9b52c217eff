//! What a table is, as its files say: which they are, their schemas as one, their splits.
//!
//! One task lists the files. Where they are no more than [`CHUNK_FILES`] it looks at all of them, too, and that is all. Of more files
//! 1. each chunk is looked at by a task of its own ([`chunk`]);
//! 2. one task puts together what was seen, in the order of the files ([`asked`]);
//! 3. splits that no row can match are left out, chunk by chunk, where there is a condition.
//!
//! What comes of it, and what is wrong with a table, follows from the files in their order: not from how many are in a chunk, nor from which chunk was looked at first. So a task that finds
//! something wrong with a file says so in what it makes ([`seen`]), and fails for other reasons alone.

mod asked;
mod chunk;
mod list;
mod seen;
mod splits;
#[cfg(test)]
mod tests;

use std::pin::pin;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{JobError, TaskOptions};
use exobus_shuffle::jobs::values::read_values;

pub(super) use self::asked::{Asked, Blocks};
use self::asked::{Unified, unify};
use self::chunk::{ChunkParams, LeaveOutParams, describe_chunk, leave_out};
pub(super) use self::chunk::{check_location, write_files};
pub(super) use self::list::{FileList, written};
pub(super) use self::splits::block_bytes;
use super::described::{DescribeParams, Described, DescribedFile, LOOK_BYTES, Looked, describe};
use super::rewrite::{Folders, Rewrite};
use crate::semantics::KeyColumn;

/// Files that one task looks at: some 30 us each where footers are in memory, and a question or two to a store that is far.
const CHUNK_FILES: usize = 1000;

/// What a job wants of a table.
#[derive(Clone, Copy, Default)]
pub(super) struct WantedOf<'a> {
    /// Columns that it looks at.
    key: &'a [KeyColumn],
    /// Whether a function gets its rows.
    is_mapped: bool,
    /// Where columns are to be folders.
    folders: Option<&'a Folders>,
    /// As [`Asked::blocks`].
    blocks: Option<&'a Blocks>,
}

impl Described {
    /// Looks at a table, of which a job looks at these columns, and whose rows a function gets, where `is_mapped` says so.
    pub(super) async fn of(
        futures: &Futures,
        rewrite: &Rewrite,
        key: &[KeyColumn],
        is_mapped: bool,
    ) -> Result<Self, JobError> {
        let wanted = WantedOf { key, is_mapped, ..WantedOf::default() };
        Self::in_chunks(futures, rewrite, wanted, CHUNK_FILES).await
    }

    /// The same of a table whose rows are read in blocks.
    pub(super) async fn in_blocks(
        futures: &Futures,
        rewrite: &Rewrite,
        key: &[KeyColumn],
        blocks: &Blocks,
    ) -> Result<Self, JobError> {
        let wanted = WantedOf { key, is_mapped: true, blocks: Some(blocks), ..WantedOf::default() };
        Self::in_chunks(futures, rewrite, wanted, CHUNK_FILES).await
    }

    /// The same of a table that is written to folders, where these are said.
    pub(super) async fn in_folders(
        futures: &Futures,
        rewrite: &Rewrite,
        key: &[KeyColumn],
        folders: Option<&Folders>,
    ) -> Result<Self, JobError> {
        Self::in_chunks(futures, rewrite, WantedOf { key, folders, ..WantedOf::default() }, CHUNK_FILES).await
    }

    /// The same with so many files in a chunk.
    async fn in_chunks(
        futures: &Futures,
        rewrite: &Rewrite,
        wanted: WantedOf<'_>,
        chunk_files: usize,
    ) -> Result<Self, JobError> {
        let Rewrite { inputs, reading, writing, partial, .. } = rewrite.clone();
        let WantedOf { key, is_mapped, folders, blocks } = wanted;
        let (key, folders, blocks) = (key.to_vec(), folders.cloned(), blocks.cloned());
        let params = DescribeParams { inputs, partial, key, writing, is_mapped, folders, reading, chunk_files, blocks };
        let listed = futures.submit_with(describe, &params, &[], options())?;
        let (chunks, asked) = match futures.get_value(&listed.part(0)).await? {
            Looked::Whole(described) => return Ok(described),
            Looked::Listed { chunks, asked } => (chunks, asked),
        };
        let (mut seen, mut files) = (Vec::new(), Vec::new());
        for chunk in 1..=chunks {
            // The list is the program's from here on: one that is made again may be of other files.
            let list = futures.put(&futures.get(&listed.part(chunk)).await?)?;
            let params = ChunkParams { reading: asked.reading.clone(), blocks: asked.blocks.clone() };
            let mut made = futures.submit_many(describe_chunk, &params, &[list.arg()], 2, options())?.into_iter();
            seen.extend(made.next());
            files.extend(made.next());
        }
        let of_all = futures.submit_with(unify, &asked, &[futures.set(&seen)?.arg()], options())?;
        let unified: Unified = futures.get_value(&of_all).await?;
        if unified.table.is_some() {
            let params = LeaveOutParams { reading: asked.reading };
            let left =
                |files: &ObjectRef| futures.submit_with(leave_out, &params, &[files.arg(), of_all.arg()], options());
            files = files.iter().map(left).collect::<Result<_, _>>()?;
        }
        let mut all = Vec::new();
        let mut values = pin!(read_values::<Vec<DescribedFile>>(futures, &files));
        while let Some(of_chunk) = values.try_next().await? {
            all.extend(of_chunk);
        }
        let Unified { layout, reading, .. } = unified;
        Ok(Self { layout, files: all, reading, form: asked.form })
    }
}

/// Of tasks that look at files.
fn options() -> TaskOptions {
    TaskOptions { outside_bytes: LOOK_BYTES, ..TaskOptions::default() }
}
