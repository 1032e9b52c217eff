//! Files of records: input and output by direct I/O.
//!
//! Requests are large, several are under way at once, and the page cache is left out of it (on the reference machine
//! direct writes reach 1.9 GB/s, buffered ones 0.45). Where a file system refuses direct I/O the same calls are
//! buffered. Memory that grows with the data is the caller's.
//!
//! - [`input`]: which files there are, chunks of them, and reading a chunk;
//! - [`list`]: the files of an input, compactly, and which of them are read together;
//! - [`output`]: writing a file front to back under a temporary name, and committing it;
//! - [`DirectFile`]: the one place that asks for direct I/O, and does without where it must;
//! - [`generate`] and [`validate`]: the benchmark's two tools over whole files, with a thread per request in flight.
//!
//! Direct I/O moves blocks of [`ALIGNMENT`] bytes and records have 100, so offsets are kept at multiples of
//! [`STRIDE_BYTES`] wherever we choose them: there both fit.

pub mod buffer;
mod compressed;
pub mod content_hash;
mod direct;
pub mod error;
pub mod folder;
pub mod generate;
pub mod input;
pub mod list;
pub mod output;
pub mod validate;

pub use buffer::AlignedBuffer;
pub(crate) use compressed::{SIGNATURE_BYTES, refuse_compressed};
pub use content_hash::ContentHash;
pub use direct::DirectFile;
pub use error::FileError;
pub use folder::{
    CLAIM, Claim, ClaimLock, Claimed, MANIFEST, Manifest, ManifestFile, OutputFolder, Placed, Schema, Standing,
    check_output_folder, place,
};
pub use generate::{Generated, Stop, generate_dir, generate_dir_until, generate_file, generate_file_until};
pub use input::{Chunk, InputFile, ReadOptions, chunks, list_files, list_inputs, read_chunk};
pub(crate) use input::{read_files, visit_files, whole_rows};
pub(crate) use list::scratch_bytes;
pub use list::{FileList, FilePart, SMALL_FILE_BYTES};
pub use output::{IoBuffer, OutputFile, Token, abort, part_name, range_name, sync_dir};
pub use validate::validate_files;

/// What offset, length and memory of a direct request must be a multiple of, in bytes. 512 would do on some disks.
pub const ALIGNMENT: usize = 4096;

/// The least common multiple of [`ALIGNMENT`] and the record size, in bytes.
pub const STRIDE_BYTES: usize = 102_400;

/// Bytes of one request: about 8 MB, a multiple of [`STRIDE_BYTES`].
pub const REQUEST_BYTES: usize = 80 * STRIDE_BYTES;
