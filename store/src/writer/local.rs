//! Writing where the store is: into memory while there is any, else right to disk.
//!
//! A writer never waits for a grant or for another task. When the budget is used up it waits at most for disk requests
//! of the store itself that are bound to set memory free, which takes no longer than writing its own bytes to disk;
//! when nothing can be spilled either (everything is read by somebody), its parts go to a spill file through a chunk of
//! the executors' reserve.

use std::{fmt, sync::Arc};

use crate::{
    alloc::PAGE,
    checksum::{self, Streaming},
    directory::Directory,
    disk_tail::{DiskTail, Patience},
    error::StoreError,
    hold::OwnedSpan,
    ids::{CopyId, RowHash},
    lent::Medium,
    meta::{ObjectMeta, PartMeta},
    options::WriterOptions,
    reserve::CHUNK_MAX,
    shared::Shared,
    state::Sealed,
    table::NewExtent,
};

/// Memory that a writer takes at a time when it does not know how much it will need.
pub(crate) const EXTENT_MIN: u64 = 64 << 10;
const EXTENT_MAX: u64 = 8 << 20;

/// See the module, and [`ObjectWriter`](super::ObjectWriter) for what its methods promise.
pub(crate) struct LocalWriter {
    shared: Arc<Shared>,
    id: CopyId,
    options: WriterOptions,
    parts: Vec<PartMeta>,
    done: Vec<Done>,
    current: Current,
    /// Where the current extent begins in the object.
    start: u64,
    part: Option<OpenPart>,
    /// An error lost some of the bytes, so it cannot be sealed.
    broken: bool,
}

/// A finished extent that is not in the table yet.
enum Done {
    Memory { start: u64, bytes: u64, span: OwnedSpan },
    Disk { start: u64, extent: crate::disk_tail::DiskExtent },
}

enum Current {
    None,
    Memory { span: OwnedSpan, used: u64 },
    Disk(Box<DiskTail>),
}

struct OpenPart {
    bytes: u64,
    bytes_max: Option<u64>,
    /// Of the first `hashed` bytes: hashed while they are in the cache, before they leave for disk. A short part in
    /// memory is hashed at its end, in one go.
    hasher: Option<Streaming>,
    hashed: u64,
}

impl OpenPart {
    fn hash(&mut self, bytes: &[u8]) {
        self.hasher.get_or_insert_with(Streaming::new).write(bytes);
        self.hashed += bytes.len() as u64;
    }
}

impl LocalWriter {
    pub(crate) fn new(shared: Arc<Shared>, id: CopyId, options: WriterOptions) -> LocalWriter {
        LocalWriter {
            shared,
            id,
            options,
            parts: Vec::new(),
            done: Vec::new(),
            current: Current::None,
            start: 0,
            part: None,
            broken: false,
        }
    }

    /// The object being written.
    pub fn id(&self) -> CopyId {
        self.id
    }

    /// Begins the next part. `bytes_max`: it will not be longer; `None`: nobody knows. A known length saves moving the
    /// part when it outgrows its memory.
    ///
    /// # Errors
    /// A part is open already. No memory, and no directory to write to.
    pub fn begin_part(&mut self, bytes_max: Option<u64>) -> Result<(), StoreError> {
        if self.part.is_some() {
            return Err(self.misused("end_part before the next begin_part"));
        }
        let align = self.options.align.bytes();
        let needs = bytes_max.unwrap_or(1);
        let fits = match &mut self.current {
            Current::None => false,
            Current::Memory { span, used } => {
                let begin = used.next_multiple_of(align);
                let fits = begin + needs <= span.span().bytes || needs == 0;
                if fits {
                    span.bytes_mut()[*used as usize..begin as usize].fill(0);
                    *used = begin;
                }
                fits
            }
            // Going back to memory for a small part would cost the object one more extent for little.
            Current::Disk(tail) => {
                let stays = bytes_max.is_some_and(|bytes| bytes < EXTENT_MIN);
                if stays {
                    tail.align(align)?;
                }
                stays
            }
        };
        self.part = Some(OpenPart { bytes: 0, bytes_max, hasher: None, hashed: 0 });
        if !fits && needs > 0 {
            self.next_extent(bytes_max).inspect_err(|_| self.broken = true)?;
        }
        Ok(())
    }

    /// The next writable bytes: the whole rest of the part while it is in memory, a chunk on its way to disk otherwise.
    /// Empty only when the part has reached its announced length. Say how many were written with
    /// [`LocalWriter::advance`].
    ///
    /// # Errors
    /// No part is open. No memory, and no directory to write to.
    pub fn spare(&mut self) -> Result<&mut [u8], StoreError> {
        let Some(part) = &self.part else { return Err(self.misused("begin_part before spare")) };
        let left = part.bytes_max.map_or(u64::MAX, |most| most - part.bytes);
        if left > 0 {
            let full = match &self.current {
                Current::None => true,
                Current::Memory { span, used } => *used == span.span().bytes,
                Current::Disk(_) => false,
            };
            if full {
                self.make_room().inspect_err(|_| self.broken = true)?;
            }
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Ok(match &mut self.current {
            Current::None => &mut [],
            Current::Memory { span, used } => {
                let rest = &mut span.bytes_mut()[*used as usize..];
                let most = rest.len().min(left);
                &mut rest[..most]
            }
            Current::Disk(tail) => {
                let chunk = tail.spare()?;
                let most = chunk.len().min(left);
                &mut chunk[..most]
            }
        })
    }

    /// All room that there is without asking again, for the open part and those behind it, and whether it lies in memory or is
    /// a chunk on its way to disk.
    ///
    /// # Errors
    /// As [`LocalWriter::spare`].
    pub fn room(&mut self) -> Result<(&mut [u8], Medium), StoreError> {
        self.spare()?;
        Ok(match &mut self.current {
            Current::None => (&mut [], Medium::Memory),
            Current::Memory { span, used } => (&mut span.bytes_mut()[*used as usize..], Medium::Memory),
            Current::Disk(tail) => (tail.spare()?, Medium::Disk),
        })
    }

    /// The first `count` bytes of the last [`LocalWriter::spare`] are written.
    ///
    /// # Panics
    /// There was no room for so many, or no part is open.
    pub fn advance(&mut self, count: usize) {
        let part = self.part.as_mut().expect("advance within a part");
        part.bytes += count as u64;
        assert!(part.bytes_max.is_none_or(|most| part.bytes <= most), "the part is longer than announced");
        match &mut self.current {
            Current::None => assert_eq!(count, 0, "advance without spare"),
            Current::Memory { span, used } => {
                *used += count as u64;
                assert!(*used <= span.span().bytes, "more bytes written than were spare");
                if part.bytes - part.hashed >= checksum::HASHED_AT_ONCE {
                    let from = *used - (part.bytes - part.hashed);
                    part.hash(&span.bytes()[from as usize..*used as usize]);
                }
            }
            Current::Disk(tail) => {
                part.hash(tail.advance(count));
            }
        }
    }

    /// Copies bytes into the part, any number.
    ///
    /// # Errors
    /// As [`LocalWriter::spare`]; `PartTooLong` beyond the announced length.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(OpenPart { bytes: written, bytes_max: Some(most), .. }) = &self.part
            && written + bytes.len() as u64 > *most
        {
            let part = self.parts.len() as u32;
            return Err(StoreError::PartTooLong { object: self.id, part, announced: *most });
        }
        while !bytes.is_empty() {
            let spare = self.spare()?;
            let count = spare.len().min(bytes.len());
            spare[..count].copy_from_slice(&bytes[..count]);
            self.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Ends the part. What it holds is the caller's word: `rows` and the sum of their hashes.
    ///
    /// # Panics
    /// No part is open.
    pub fn end_part(&mut self, rows: u64, row_hash: RowHash) {
        let mut part = self.part.take().expect("end_part within a part");
        let (within, rest) = match &self.current {
            Current::None => (0, &[][..]),
            Current::Memory { span, used } => {
                let rest = *used - (part.bytes - part.hashed);
                (used - part.bytes, &span.bytes()[rest as usize..*used as usize])
            }
            Current::Disk(tail) => (tail.written() - part.bytes, &[][..]),
        };
        let checksum = if part.hashed == 0 {
            checksum::of(rest)
        } else {
            part.hash(rest);
            part.hasher.map_or_else(|| checksum::of(&[]), |hasher| hasher.finish())
        };
        self.parts.push(PartMeta { offset: self.start + within, bytes: part.bytes, rows, row_hash, checksum });
    }

    /// Bytes in the open part so far; zero when none is open.
    pub fn part_bytes(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.bytes)
    }

    /// Bytes of all parts so far, the open one included: to see when a target size is reached.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum::<u64>() + self.part_bytes()
    }

    /// Makes the copy visible to all. One of the same name and content that is there already is kept, and this one is freed.
    ///
    /// # Errors
    /// A part is open. `Conflict`: there is a copy of this name with other content. A disk error: what was written to
    /// disk did not arrive.
    pub fn seal(mut self) -> Result<ObjectMeta, StoreError> {
        if self.part.is_some() || self.broken {
            return Err(self.misused("end_part before seal, and no error before that"));
        }
        self.finish_extent()?;
        self.compact();
        let LocalWriter { shared, id, options, parts, done, .. } = self;
        let directory = Directory::new(&parts);
        let extents: Vec<NewExtent> = done.iter().map(Done::describe).collect();
        let result = shared.with(|state| {
            if let Some(existing) = state.meta(&id) {
                return Err(existing);
            }
            state.written_through(&extents);
            state.seal(Sealed { id, maker: options.maker, directory, extents: &extents });
            // The table owns the memory from here on; below the lock nothing may be dropped that locks.
            Ok(())
        });
        match result {
            Ok(()) => {
                done.into_iter().for_each(Done::let_go);
                Ok(ObjectMeta::of(id, parts.into()))
            }
            Err(existing) if same_content(&existing.parts, &parts) => Ok(existing),
            Err(_) => Err(StoreError::Conflict(id)),
        }
    }

    fn misused(&self, what: &'static str) -> StoreError {
        StoreError::WriterMisused { object: self.id, what }
    }

    /// More room for a part that is open; it never lies in two extents.
    fn make_room(&mut self) -> Result<(), StoreError> {
        let part_bytes = self.part_bytes();
        if let Current::Memory { span, .. } = &mut self.current {
            let more = span.span().bytes.clamp(EXTENT_MIN, EXTENT_MAX);
            if span.grow(more) || span.grow(EXTENT_MIN) {
                return Ok(());
            }
        }
        if part_bytes == 0 {
            let bytes_max = self.part.as_ref().and_then(|part| part.bytes_max);
            return self.next_extent(bytes_max);
        }
        // The part moves to a larger place; what lies before it stays.
        let Current::Memory { span, used } = std::mem::replace(&mut self.current, Current::None) else {
            unreachable!("only memory runs out of room")
        };
        let from = used - part_bytes;
        let part = &span.bytes()[from as usize..used as usize];
        let larger = (part_bytes * 2).max(EXTENT_MIN);
        match self.shared.allocate(larger, true) {
            Some(mut to) => {
                to.bytes_mut()[..part.len()].copy_from_slice(part);
                self.current = Current::Memory { span: to, used: part_bytes };
            }
            None => {
                let mut patience = Patience::default();
                let mut tail = loop {
                    match DiskTail::open(&self.shared, larger.max(CHUNK_MAX)) {
                        Err(StoreError::DiskFull { .. }) if patience.wait(&self.shared, larger) => {}
                        tail => break Box::new(tail?),
                    }
                };
                let open = self.part.as_mut().expect("a part is open");
                open.hash(&part[open.hashed as usize..]);
                let mut rest = part;
                while !rest.is_empty() {
                    let spare = tail.spare()?;
                    let count = spare.len().min(rest.len());
                    spare[..count].copy_from_slice(&rest[..count]);
                    tail.advance(count);
                    rest = &rest[count..];
                }
                self.current = Current::Disk(tail);
            }
        }
        // Gaps made by alignment go with the part they precede.
        let before = self.parts.last().map_or(0, |part| part.offset + part.bytes).saturating_sub(self.start).min(from);
        let next_start = self.start + from;
        self.keep(span, before);
        self.start = next_start;
        Ok(())
    }

    /// Ends the current extent and begins one with room for the next part.
    fn next_extent(&mut self, bytes_max: Option<u64>) -> Result<(), StoreError> {
        self.finish_extent()?;
        let hint = self.options.bytes_hint.saturating_sub(self.start);
        // A good hint gives the object one extent, so that all of it is one block; it may not take the whole store.
        let most = (self.shared.memory_bytes / 16).max(EXTENT_MAX);
        let wanted = hint.clamp(EXTENT_MIN, most).max(bytes_max.unwrap_or(0));
        let least = bytes_max.unwrap_or(EXTENT_MIN).max(1);
        // Who does not know how much it will be may write much.
        let through = if bytes_max.is_none() && hint == 0 { CHUNK_MAX } else { wanted };
        let mut patience = Patience::default();
        loop {
            let span = self.shared.allocate(wanted, true);
            let span = span.or_else(|| (least < wanted).then(|| self.shared.allocate(least, true)).flatten());
            self.current = match span {
                Some(span) => Current::Memory { span, used: 0 },
                None => match DiskTail::open(&self.shared, through) {
                    Ok(tail) => Current::Disk(Box::new(tail)),
                    // The task would fail: others may free something in a moment.
                    Err(StoreError::DiskFull { .. }) if patience.wait(&self.shared, least) => continue,
                    Err(error) => return Err(error),
                },
            };
            return Ok(());
        }
    }

    fn finish_extent(&mut self) -> Result<(), StoreError> {
        let align = self.options.align.bytes();
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => {}
            Current::Memory { span, used } => {
                let end = self.start + used;
                self.keep(span, used);
                self.start = end.next_multiple_of(align);
            }
            Current::Disk(tail) => {
                let end = self.start + tail.written();
                if tail.written() > 0 {
                    self.done.push(Done::Disk { start: self.start, extent: tail.finish()? });
                }
                self.start = end.next_multiple_of(align);
            }
        }
        Ok(())
    }

    fn keep(&mut self, mut span: OwnedSpan, used: u64) {
        if used > 0 {
            span.shrink(used);
            self.done.push(Done::Memory { start: self.start, bytes: used, span });
        }
    }

    /// A small object moves from its pages into a slot: an output of a few bytes must not cost 4 KiB.
    fn compact(&mut self) {
        if let [Done::Memory { bytes, span, .. }] = &mut self.done[..] {
            let takes = crate::state::State::takes(*bytes, false);
            if takes < span.span().bytes.min(4 * PAGE)
                && let Some(slot) = self.shared.with(|state| state.allocate(*bytes, false))
                && let Ok(mut slot) = self.shared.own(slot, crate::hold::Home::Budget)
            {
                slot.bytes_mut()[..*bytes as usize].copy_from_slice(&span.bytes()[..*bytes as usize]);
                *span = slot;
            }
        }
    }
}

impl Done {
    fn describe(&self) -> NewExtent {
        match self {
            Done::Memory { start, bytes, span } => {
                NewExtent { start: *start, bytes: *bytes, memory: Some(span.span()), disk: None }
            }
            Done::Disk { start, extent } => {
                NewExtent { start: *start, bytes: extent.bytes(), memory: None, disk: Some(extent.place()) }
            }
        }
    }

    /// The table has it now.
    fn let_go(self) {
        match self {
            Done::Memory { span, .. } => drop(span.into_span()),
            Done::Disk { extent, .. } => extent.let_go(),
        }
    }
}

/// Whether two attempts wrote the same, part by part; where the parts lie may differ.
pub(crate) fn same_content(one: &[PartMeta], other: &[PartMeta]) -> bool {
    let key = |part: &PartMeta| (part.bytes, part.rows, part.row_hash, part.checksum);
    one.iter().map(key).eq(other.iter().map(key))
}

impl fmt::Debug for LocalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWriter")
            .field("id", &self.id)
            .field("parts", &self.parts.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
