//! Sorting files of 100-byte records: files in, globally ordered part files out.
//!
//! 1. *list*: which input files there are; *claim* the output directory;
//! 2. *sample*: keys at random places of the input, from which the cuts between partitions are made;
//! 3. *map*: read a chunk, sort it, write its records in order as one object with a part for each partition;
//! 4. *reduce*: merge one part of every map output into a file under a temporary name;
//!    or, where a partition is far larger than others, *draw* keys of it, *split* it at those and *reduce* the ranges;
//! 5. *commit*: when all rows are accounted for, give all files their final names.
//!
//! Conservation (law 1) is checked twice: for the edges between maps and reduces by the Owner, and from bytes read to
//! bytes written by the program. A job that fails leaves nothing under the final names.

mod program;
mod ranges;
mod tasks;

pub use program::{CutsFrom, ExplainParams, SortParams, SortReport, explain, sort};
#[cfg(feature = "contract")]
pub(crate) use {
    program::{draw_task, split_task},
    tasks::merge_parts,
};
