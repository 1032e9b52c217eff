//! Files that people name: what jobs read and write, wherever it is.
//!
//! A [`Location`] is what somebody wrote: a path, or a URL whose scheme says which [`FileSystem`] has it. The local one is here;
//! others are [registered](register) by scheme from above, so that no job knows of any.
//!
//! - [`FileSystem`]: what a file system owes: looking up, listing, reading ranges, files of attempts, folders of jobs;
//! - [`ReadFile`]: an open file, of which any thread reads any range;
//! - [`FileStatus`]: length and [`Version`] of a file, by which a later reader notices that it was changed;
//! - [`visit_files`], [`visit_table_files`]: which files the names that a user gave stand for;
//! - [`OutputFile`]: writing a file front to back, several requests under way, to a [`Token`];
//! - [`OutputFolder`]: the folder of a job's output, from its [`Claim`] to its [`Manifest`], which is the commit;
//! - [`AlignedBuffer`]: memory that direct I/O takes.
//!
//! All calls return when they are done, and may come from any thread. Memory that grows with the data is the caller's.

mod buffer;
pub mod content_hash;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod folder;
mod inputs;
mod local;
mod location;
mod output;
pub mod paths;
mod pattern;
mod registry;
mod system;

pub use buffer::AlignedBuffer;
pub use content_hash::ContentHash;
pub use error::FileError;
pub use folder::{
    CLAIM, Claim, ClaimLock, Claimant, Claimed, CommitError, FolderBackend, Format, LockState, MANIFEST, Made,
    Manifest, ManifestFile, ManifestWriter, Met, OutputFolder, Schema, Standing, Tokens, Verdict, check_output_folder,
};
pub use inputs::{visit_files, visit_table_files};
pub use local::{DirectFile, LocalFiles, Placed, place, sync_dir};
pub use location::{Location, is_hidden, says_value};
pub use output::{IoBuffer, OutputFile, Token, is_inside, part_name, range_name};
pub use registry::register;
pub use system::{
    Access, Entries, Entry, FileStatus, FileSystem, Kind, Planned, ReadFile, Version, WriteFile, WriteRequest,
};

/// What offset, length and memory of a direct request must be a multiple of, in bytes. 512 would do on some disks.
pub const ALIGNMENT: usize = 4096;
