//! What tasks that merge say of what they have read.

use exobus_actors::registry::TaskContext;
use exobus_actors::task::Output;
use exobus_store::{Block, RowHash};

/// What was sealed of each of these blocks.
pub fn sealed(blocks: &[Block]) -> Vec<Output> {
    let headers = blocks.iter().map(Block::header);
    headers.map(|header| Output { bytes: header.bytes, rows: header.rows, row_hash: header.row_hash }).collect()
}

/// Says what was read of each argument from `first` on, of which `sealed` was made. The rows of all of them were hashed together, as they
/// were read: what the last argument brought is the rest when what was sealed in the others is taken off, so that the
/// books of all of them close only if each row was read.
pub fn account(context: &mut TaskContext<'_>, first: usize, sealed: &[Vec<Output>], mut read: Output) {
    let last = sealed.len().saturating_sub(1);
    for (arg, sealed) in sealed.iter().enumerate().take(last) {
        for block in sealed {
            read.bytes = read.bytes.wrapping_sub(block.bytes);
            read.rows = read.rows.wrapping_sub(block.rows);
            read.row_hash = RowHash(read.row_hash.0.wrapping_sub(block.row_hash.0));
            context.consumed(first + arg, block.bytes, block.rows, block.row_hash);
        }
    }
    context.consumed(first + last, read.bytes, read.rows, read.row_hash);
}
