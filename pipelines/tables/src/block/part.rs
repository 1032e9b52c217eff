//! Parts in the store.

use exobus_store::{ObjectWriter, RowHash};

use super::gather::{Gather, Limits};
use super::picks::Pick;
use crate::TableError;

/// Writes these rows as the next part of an object, as messages of at most `limits`, and says that they have this hash.
///
/// While the part is in memory, messages are gathered where they will be read; on its way to disk they go through `scratch`, which holds one: no message is longer.
/// Parts of the object have to be [aligned](exobus_store::Align::SixtyFour), or nobody reads them in place.
///
/// # Errors
/// [`TableError::RowTooLarge`], [`TableError::ScratchTooSmall`], before anything was written; the store's.
pub fn write_part(
    writer: &mut ObjectWriter,
    gather: &Gather,
    picks: &[Pick],
    row_hash: RowHash,
    limits: &Limits,
    scratch: &mut [u8],
) -> Result<(), TableError> {
    let (layout, room) = (gather.layout(), scratch.len() as u64);
    if scratch.len() <= layout.header_bytes() {
        let (columns, bytes, bytes_min) = (layout.nodes(), scratch.len(), layout.header_bytes());
        return Err(TableError::ScratchTooSmall { columns, bytes, bytes_min });
    }
    let limits =
        Limits { bytes_max: limits.bytes_max.min(room), row_bytes_max: limits.row_bytes_max.min(room), ..*limits };
    let messages = gather.messages(picks, &limits)?;
    writer.begin_part(Some(messages.iter().map(|message| message.bytes()).sum()))?;
    for message in &messages {
        let bytes = message.bytes() as usize;
        match writer.spare()?.get_mut(..bytes) {
            Some(place) => {
                message.write(place);
                writer.advance(bytes);
            }
            None => {
                message.write(&mut scratch[..bytes]);
                writer.write(&scratch[..bytes])?;
            }
        }
    }
    writer.end_part(picks.len() as u64, row_hash);
    Ok(())
}
