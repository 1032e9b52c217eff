//! Cuts between buckets, from keys of blocks that lie evenly over the input.

use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::files::{AlignedBuffer, Chunk, InputFile, ReadOptions, STRIDE_BYTES, chunks, read_chunk};
use exobus_shuffle::records::{KEY_BYTES, as_records};

use super::Failure;

/// Blocks that are read, of 1024 records each.
const BLOCKS: usize = 128;

/// Cuts that make `buckets` buckets of about as many records.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn cuts(inputs: &[InputFile], buckets: usize) -> Result<Cuts, Failure> {
    let blocks: Vec<Chunk> = chunks(inputs, STRIDE_BYTES as u64);
    let step = blocks.len().div_ceil(BLOCKS).max(1);
    let mut scratch = AlignedBuffer::new(2 * STRIDE_BYTES);
    let mut keys = Vec::new();
    for block in blocks.iter().step_by(step) {
        let bytes = read_chunk(block, &mut scratch, &ReadOptions::default())?;
        keys.extend(as_records(bytes).iter().map(|record| record[..KEY_BYTES].to_vec()));
    }
    Cuts::from_sample(keys, buckets).map_err(|error| Failure::Memory(error.to_string()))
}
