//! Kernels: what a task does with records in memory, on plain slices.
//!
//! - [`mod@sort`]: order the records of a chunk, find the partition bounds, gather them into place;
//! - [`mod@partition`]: group records by partition without ordering them, in a chunk or into a buffer for each;
//! - [`merge`]: many sorted runs into one, resumable, from memory or from streams.
//!
//! They know neither actors nor the store. Memory that grows with the input is handed in by the caller, and each
//! kernel has a function that says how much it needs; what a kernel allocates itself grows with partitions or runs only.
//! Rows are hashed where they are copied, exactly once, when their bytes are in registers anyway.

mod memory;
pub mod merge;
pub mod partition;
pub mod sort;
#[cfg(test)]
mod tests;

pub use memory::{prefetch, prefetch_value};
pub use merge::{Merge, ReadRun, RunSource, SliceRun};
pub use partition::{Partitioned, Scatter, partition, partition_scratch_bytes};
pub use sort::{Sorted, order, sort, sort_pieces, sort_scratch_bytes};
