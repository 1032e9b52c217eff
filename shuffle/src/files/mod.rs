//! Files of records, on any file system: what is about rows of a fixed length, and the benchmark's two tools.
//!
//! Reading and writing is [`exobus_files`]'s, whatever file system has a file; what people use of it with files of records is here again.
//! Requests are large, several are under way at once, and the page cache is left out of it (on the reference machine
//! direct writes reach 1.9 GB/s, buffered ones 0.45). Memory that grows with the data is the caller's.
//!
//! - [`input`]: which files there are, chunks of them, and reading a chunk;
//! - [`list`]: the files of an input, compactly, and which of them are read together;
//! - [`generate`] and [`validate`]: the benchmark's two tools over whole files, with a thread per request in flight.
//!
//! Direct I/O moves blocks of [`ALIGNMENT`] bytes and records have 100, so offsets are kept at multiples of
//! [`STRIDE_BYTES`] wherever we choose them: there both fit.

mod compressed;
pub mod generate;
pub mod input;
pub mod list;
pub mod validate;

pub(crate) use compressed::{SIGNATURE_BYTES, refuse_compressed};
pub use exobus_files::{
    ALIGNMENT, AlignedBuffer, ContentHash, DirectFile, FileError, MANIFEST, Manifest, Schema, part_name, sync_dir,
};
pub use generate::{Generated, Stop, generate_dir, generate_dir_until, generate_file, generate_file_until};
pub use input::{Chunk, InputFile, ReadOptions, chunks, list_files, list_inputs, read_chunk};
pub(crate) use input::{read_files, whole_rows};
pub(crate) use list::scratch_bytes;
pub use list::{FileList, FilePart, SMALL_FILE_BYTES};
pub use validate::validate_files;

/// The least common multiple of [`ALIGNMENT`] and the record size, in bytes.
pub const STRIDE_BYTES: usize = 102_400;

/// Bytes of one request: about 8 MB, a multiple of [`STRIDE_BYTES`].
pub const REQUEST_BYTES: usize = 80 * STRIDE_BYTES;

// Blocks that are hashed together end where records do.
const _: () = assert!(STRIDE_BYTES.is_multiple_of(exobus_files::content_hash::BLOCK_BYTES));

/// The schema of the sort benchmark's records.
pub fn record_schema() -> Schema {
    use crate::records::{KEY_BYTES, RECORD_BYTES};
    Schema::records(RECORD_BYTES as u64, KEY_BYTES as u64)
}
