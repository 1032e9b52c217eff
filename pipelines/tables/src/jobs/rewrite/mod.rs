//! What the jobs share that put the rows of a table in another order: files in, files out.
//!
//! 1. *describe*: which files there are, their schemas as one, their splits;
//! 2. *cuts* between the files that are written: keys of a sample of rows, or hashes that are counted out;
//! 3. *map*: splits in, one object with a part for each file out, each in order;
//! 4. *merge*, where the strategy has it;
//! 5. *reduce*: one part of everything into a file;
//! 6. *commit*: when all rows are accounted for.
//!
//! The files follow from the input and the options alone (law 9): how many there are from the bytes or the rows of the input, cuts from rows that follow from the input, the order of rows of one key
//! from their places in the input, which rows have on their way. Memory, nodes, strategies and faults change nothing of them.

mod arrangement;
mod batches;
mod cuts;
mod entries;
mod folders;
mod kept;
mod map;
mod merge;
mod merging;
mod ordered;
mod plan;
mod program;
mod sample;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use exobus_actors::ids::RowHash;
use exobus_shuffle::Strategy;
use serde::{Deserialize, Serialize};

pub(super) use self::arrangement::{Arrangement, Arranger, MixedSeed, place_hash, places};
pub(super) use self::batches::{Batch, NotPacked, Packer};
pub(super) use self::cuts::{LookedAt, cuts_of, is_before, sampled};
pub(super) use self::entries::in_common;
pub use self::folders::Folders;
pub(super) use self::folders::SplitColumns;
pub(super) use self::map::MESSAGE_BYTES;
pub(super) use self::merging::{Merged, Merging};
pub(super) use self::ordered::Ordered;
pub(super) use self::plan::{
    FileAbout, MAP_SPLITS_MAX, check_file, check_splits, map_bytes, map_outside_bytes, map_outside_bytes_one_by_one,
    maps, refuse_beyond,
};
pub(super) use self::program::{estimates, explain, run};
use super::WriteOptions;
use crate::reading::ReadOptions;

/// Which table is rewritten, and where to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewrite {
    /// Files, or folders of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// A folder, empty or not there yet.
    #[serde(with = "exobus_actors::paths")]
    pub output: PathBuf,
    /// How files are read.
    pub reading: ReadOptions,
    /// How files are written.
    pub writing: WriteOptions,
    /// Which strategy; `None`: the one that is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// Whether a folder is read that a job has claimed and not committed.
    pub partial: bool,
}

impl Rewrite {
    /// These files, or files of these folders, as files of this folder.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf) -> Self {
        let (reading, writing) = (ReadOptions::default(), WriteOptions::default());
        Self { inputs, output, reading, writing, strategy: None, partial: false }
    }
}

/// What a job has done that rewrites a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewritten {
    /// Rows that were read.
    pub rows_read: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Bytes of the input files.
    pub input_bytes: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
    /// Hash of the rows that were read; of groups, of those that were made of them.
    pub row_hash_in: RowHash,
    /// Hash of the rows that were written, and of those that were left out; of groups, of those that were written.
    pub row_hash_out: RowHash,
    /// Which strategy ran; `None`: no row went to another node.
    pub strategy: Option<Strategy>,
    /// How many tasks read the table.
    pub maps: u64,
    /// How many files were written.
    pub files: u64,
    /// Bytes that the Owner's tables took at the end.
    pub owner_bytes: u64,
}
