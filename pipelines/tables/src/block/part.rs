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
/// [`TableError::RowTooLarge`], [`TableError::ScratchTooSmall`], before anything was written; the store's. Where a row is larger than the scratch and not than `limits`,
/// [`write_part_with_more`] goes on.
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

/// As [`write_part`], also of rows that are larger than `scratch`: `more` is asked for as many bytes as the largest of them needs, and gives them or nothing.
///
/// # Errors
/// As of [`write_part`]; [`TableError::RowTooLarge`] where `more` gave nothing, too.
pub fn write_part_with_more(
    writer: &mut ObjectWriter,
    gather: &Gather,
    (picks, row_hash): (&[Pick], RowHash),
    limits: &Limits,
    scratch: &mut [u8],
    mut more: impl FnMut(u64) -> Option<Vec<u8>>,
) -> Result<(), TableError> {
    let mut written = write_part(writer, gather, picks, row_hash, limits, scratch);
    let mut larger = Vec::new();
    while let Err(TableError::RowTooLarge { bytes, .. }) = &written
        && *bytes <= limits.row_bytes_max
        && *bytes > larger.len() as u64
    {
        let Some(given) = more(*bytes) else { break };
        larger = given;
        written = write_part(writer, gather, picks, row_hash, limits, &mut larger);
    }
    written.map_err(|error| match error {
        // However large the scratch is.
        TableError::RowTooLarge { batch, row, bytes, .. } if bytes > limits.row_bytes_max => {
            TableError::RowTooLarge { batch, row, bytes, bytes_max: limits.row_bytes_max }
        }
        error => error,
    })
}
