//! Parts in the store.

use exobus_actors::task::Output;
use exobus_store::{ObjectWriter, RowHash};

use super::gather::{Gather, Limits};
use super::picks::Pick;
use crate::TableError;

/// Rows that are written as a part, or as some of its messages.
pub(crate) type Source<'a> = (&'a Gather, &'a [Pick]);

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
    write(writer, &[(gather, picks)], Some(row_hash), limits, scratch).map(drop)
}

/// Writes the rows of all sources, one source behind the other. `row_hash`: their hash; `None`: that of the bytes of the messages is said. What was written.
fn write(
    writer: &mut ObjectWriter,
    sources: &[Source<'_>],
    row_hash: Option<RowHash>,
    limits: &Limits,
    scratch: &mut [u8],
) -> Result<Output, TableError> {
    let room = scratch.len() as u64;
    let limits =
        Limits { bytes_max: limits.bytes_max.min(room), row_bytes_max: limits.row_bytes_max.min(room), ..*limits };
    let mut messages = Vec::new();
    for (gather, picks) in sources {
        let layout = gather.layout();
        if scratch.len() <= layout.header_bytes() {
            let (columns, bytes, bytes_min) = (layout.nodes(), scratch.len(), layout.header_bytes());
            return Err(TableError::ScratchTooSmall { columns, bytes, bytes_min });
        }
        messages.extend(gather.messages(picks, &limits)?);
    }
    let bytes = messages.iter().map(|message| message.bytes()).sum();
    writer.begin_part(Some(bytes))?;
    let mut of_bytes = RowHash::default();
    for message in &messages {
        let bytes = message.bytes() as usize;
        let mut hash = |written: &[u8]| {
            if row_hash.is_none() {
                of_bytes += RowHash::of(written);
            }
        };
        match writer.spare()?.get_mut(..bytes) {
            Some(place) => {
                message.write(place);
                hash(place);
                writer.advance(bytes);
            }
            None => {
                message.write(&mut scratch[..bytes]);
                hash(&scratch[..bytes]);
                writer.write(&scratch[..bytes])?;
            }
        }
    }
    let rows = sources.iter().map(|(_, picks)| picks.len() as u64).sum();
    let row_hash = row_hash.unwrap_or(of_bytes);
    writer.end_part(rows, row_hash);
    Ok(Output { bytes, rows, row_hash })
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
    more: impl FnMut(u64) -> Option<Vec<u8>>,
) -> Result<(), TableError> {
    write_with_more(writer, &[(gather, picks)], Some(row_hash), limits, scratch, more).map(drop)
}

/// Writes rows of several layouts as the next part of an object, those of one source behind those of another. Its hash is that of the bytes of its messages, which
/// [`Messages`](super::Messages) adds up again. What was written.
///
/// # Errors
/// As of [`write_part_with_more`].
pub(crate) fn write_messages(
    writer: &mut ObjectWriter,
    sources: &[Source<'_>],
    limits: &Limits,
    scratch: &mut [u8],
    more: impl FnMut(u64) -> Option<Vec<u8>>,
) -> Result<Output, TableError> {
    write_with_more(writer, sources, None, limits, scratch, more)
}

fn write_with_more(
    writer: &mut ObjectWriter,
    sources: &[Source<'_>],
    row_hash: Option<RowHash>,
    limits: &Limits,
    scratch: &mut [u8],
    mut more: impl FnMut(u64) -> Option<Vec<u8>>,
) -> Result<Output, TableError> {
    let mut written = write(writer, sources, row_hash, limits, scratch);
    let mut larger = Vec::new();
    while let Err(TableError::RowTooLarge { bytes, .. }) = &written
        && *bytes <= limits.row_bytes_max
        && *bytes > larger.len() as u64
    {
        let Some(given) = more(*bytes) else { break };
        larger = given;
        written = write(writer, sources, row_hash, limits, &mut larger);
    }
    written.map_err(|error| match error {
        // However large the scratch is.
        TableError::RowTooLarge { batch, row, bytes, .. } if bytes > limits.row_bytes_max => {
            TableError::RowTooLarge { batch, row, bytes, bytes_max: limits.row_bytes_max }
        }
        error => error,
    })
}
