//! Files that people name: what jobs read and write, wherever it is.
//!
//! A [`Location`] is what somebody wrote: a path, or a URL whose scheme says which [`FileSystem`] has it. The local one is here;
//! others are [registered](register) by scheme from above, so that no job knows of any.
//!
//! - [`FileSystem`]: what a file system owes: looking up, listing, reading ranges;
//! - [`ReadFile`]: an open file, of which any thread reads any range;
//! - [`FileStatus`]: length and [`Version`] of a file, by which a later reader notices that it was changed;
//! - [`AlignedBuffer`]: memory that direct I/O takes.
//!
//! All calls return when they are done, and may come from any thread.

mod buffer;
mod error;
mod local;
mod location;
mod registry;
mod system;

pub use buffer::AlignedBuffer;
pub use error::FileError;
pub use local::{DirectFile, LocalFiles};
pub use location::{Location, is_hidden};
pub use registry::register;
pub use system::{Access, Entries, Entry, FileStatus, FileSystem, Kind, ReadFile, Version};

/// What offset, length and memory of a direct request must be a multiple of, in bytes. 512 would do on some disks.
pub const ALIGNMENT: usize = 4096;
