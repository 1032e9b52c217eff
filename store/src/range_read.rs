//! Any run of bytes of an object, for sending it: from memory where it lies there, else straight from the disk without
//! loading the rest.

use std::{fmt, sync::Arc};

use crate::{
    block::{Block, Origin},
    directory::{PartSlice, byte_range},
    disk::AlignedBuffer,
    error::StoreError,
    hold::{Held, Hold},
    ids::CopyId,
    io,
    shared::Shared,
    state::Source,
    table::ExtentKey,
};

/// Where a range is read from. Made by [`Store::read_range`](crate::Store::read_range).
#[derive(Debug)]
pub enum RangeRead {
    /// All of it is in memory in one piece: no copy.
    Memory(Block),
    /// Some of it is on disk, or it is in several pieces.
    Disk(DiskRange),
}

impl RangeRead {
    /// Bytes of the range.
    pub fn bytes(&self) -> u64 {
        match self {
            RangeRead::Memory(block) => block.len() as u64,
            RangeRead::Disk(range) => range.remaining,
        }
    }
}

/// A range that is read piece by piece with the caller's buffer. Takes no memory of the budget; up to 1 MiB of its own
/// while something is read from disk. Whoever receives the bytes verifies them: ranges need not end where parts do.
pub struct DiskRange {
    shared: Arc<Shared>,
    object: CopyId,
    _holds: Vec<Hold>,
    /// In reverse order; `to` is the place within the range.
    sources: Vec<Source>,
    buffer: AlignedBuffer,
    position: u64,
    remaining: u64,
}

impl DiskRange {
    /// Bytes that were not read yet.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Fills the front of `to` with the next bytes; how many. Zero: the range, or `to`, is at its end.
    ///
    /// # Errors
    /// The disk failed. The object's copy here is then lost, and no longer in the store.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < to.len() && self.remaining > 0 {
            let rest = &mut to[filled..];
            let got = self.read_some(rest)?;
            filled += got;
            self.position += got as u64;
            self.remaining -= got as u64;
        }
        Ok(filled)
    }

    fn read_some(&mut self, to: &mut [u8]) -> Result<usize, StoreError> {
        let Some(source) = self.sources.last_mut() else {
            let count = to.len().min(self.remaining as usize);
            to[..count].fill(0);
            return Ok(count);
        };
        let (Source::Memory { to: begins, .. } | Source::Disk { to: begins, .. }) = *source;
        if begins > self.position {
            // A gap between two parts.
            let count = to.len().min((begins - self.position) as usize);
            to[..count].fill(0);
            return Ok(count);
        }
        let count = match source {
            Source::Memory { offset, bytes, to: begins } => {
                let count = (*bytes).min(to.len() as u64);
                to[..count as usize].copy_from_slice(&self.shared.view(*offset, count));
                (*offset, *bytes, *begins) = (*offset + count, *bytes - count, *begins + count);
                count
            }
            Source::Disk { file, offset, bytes, to: begins } => {
                let count = (*bytes).min(to.len() as u64);
                let begun = self.shared.clock.now();
                let read =
                    io::read_unaligned(&self.shared, *file, *offset, &mut to[..count as usize], &mut self.buffer);
                self.shared.disk_time.read(self.shared.clock.now().saturating_sub(begun));
                self.shared.with(|state| match &read {
                    Ok(()) => state.counters.restored_bytes += count,
                    Err(error) if error.is_shortage() => {}
                    Err(error) => {
                        state.read_failed(*file, &error.into());
                        state.lose(self.object, &error.to_string());
                    }
                });
                read?;
                (*offset, *bytes, *begins) = (*offset + count, *bytes - count, *begins + count);
                count
            }
        };
        let (Source::Memory { bytes, .. } | Source::Disk { bytes, .. }) = *source;
        if bytes == 0 {
            self.sources.pop();
        }
        Ok(count as usize)
    }
}

impl fmt::Debug for DiskRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskRange({} bytes left)", self.remaining)
    }
}

/// See [`Store::read_range`](crate::Store::read_range).
pub(crate) fn open(shared: &Arc<Shared>, id: &CopyId, offset: u64, bytes: u64) -> Result<RangeRead, StoreError> {
    enum Found {
        Memory { extent: ExtentKey, at: u64 },
        Pieces { extents: Vec<ExtentKey>, sources: Vec<Source> },
    }
    let range = offset..offset.saturating_add(bytes);
    let (found, origin, parts) = shared.with(|state| {
        let key = state.table.key(id).ok_or(StoreError::NotFound(*id))?;
        let object = state.table.object(key);
        let parts = object.directory.slice(0..object.directory.len());
        if range.end > object.directory.span() {
            return Err(StoreError::OutOfRange { object: *id, offset, bytes, span: object.directory.span() });
        }
        let mut origin = Origin { object: *id, maker: object.maker, first_part: 0 };
        // The parts that lie in it, where it begins with one.
        let wanted = parts.partition_point(|part| part.offset + part.bytes <= offset)
            ..parts.partition_point(|part| part.offset < range.end);
        // Other parts may have been released.
        if !wanted.is_empty() && !state.table.covers(key, &parts.slice(wanted)) {
            return Err(StoreError::NotFound(*id));
        }
        let first = parts.partition_point(|part| part.offset < offset);
        let end = parts.partition_point(|part| part.offset + part.bytes <= range.end).max(first);
        let within = parts.slice(first..end);
        origin.first_part = first as u32;
        let parts = if byte_range(&within).start == offset { within } else { PartSlice::default() };
        if range.is_empty() {
            return Ok((None, origin, parts));
        }
        if let Some((extent, at)) = state.pin_resident(key, range.clone()) {
            return Ok((Some(Found::Memory { extent, at }), origin, parts));
        }
        let extents: Vec<ExtentKey> = state.overlapping(key, &range).map(|(extent, ..)| extent).collect();
        let sources = state.sources(key, &range);
        extents.iter().for_each(|extent| state.pin(*extent));
        Ok((Some(Found::Pieces { extents, sources }), origin, parts))
    })?;
    Ok(match found {
        None => RangeRead::Memory(Block::new(origin, parts, None)),
        Some(Found::Memory { extent, at }) => {
            let hold = Arc::new(Hold::new(shared.clone(), Held::Extent(extent)));
            RangeRead::Memory(Block::new(origin, parts, Some((shared.view(at, bytes), hold))))
        }
        Some(Found::Pieces { extents, mut sources }) => {
            sources.reverse();
            RangeRead::Disk(DiskRange {
                shared: shared.clone(),
                object: *id,
                _holds: extents.into_iter().map(|extent| Hold::new(shared.clone(), Held::Extent(extent))).collect(),
                sources,
                buffer: AlignedBuffer::default(),
                position: 0,
                remaining: bytes,
            })
        }
    })
}
