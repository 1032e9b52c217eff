//! Reading where the store is, see [`ObjectReader`](super::ObjectReader).

use std::{
    fmt,
    io::Read,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
};

use crate::{
    alloc::PAGE,
    checksum::Streaming,
    directory::{PartSlice, byte_range},
    error::StoreError,
    hold::{Held, Hold, OwnedSpan},
    ids::CopyId,
    io::StreamJob,
    meta::{PartMeta, Parts},
    region::View,
    scratch::Scratch,
    shared::Shared,
    state::Source,
    table::FileId,
};

/// What is in memory is shown in pieces, so that one slow consumer of a large part is seen to move.
const PIECE_MAX: u64 = 4 << 20;

/// See [`ObjectReader`](super::ObjectReader).
pub(crate) struct LocalReader {
    shared: Arc<Shared>,
    object: CopyId,
    parts: PartSlice,
    first_part: u32,
    /// The part that is being read, relative to the slice, and how much of it was shown.
    part: usize,
    shown: u64,
    hasher: Option<Streaming>,
    /// What `Read` did not take of the last chunk.
    left: Range<usize>,
    extent: Option<Extent>,
    window: Window,
}

/// The extent that is being read.
struct Extent {
    _hold: Hold,
    /// In the object.
    range: Range<u64>,
    bytes: Bytes,
}

enum Bytes {
    Memory(View),
    Disk { file: FileId, offset: u64 },
}

/// Two halves: one shown, one on its way. A window of one page is but one, and nothing is read ahead.
#[derive(Default)]
struct Window {
    shown: Option<OwnedSpan>,
    /// What of the file the shown half holds.
    holds: (FileId, Range<u64>),
    spare: Vec<OwnedSpan>,
    coming: Option<Coming>,
}

struct Coming {
    holds: (FileId, Range<u64>),
    answer: Receiver<(OwnedSpan, Result<(), StoreError>)>,
}

enum Chunk {
    Memory(Range<usize>),
    Window(Range<usize>),
}

impl LocalReader {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        id: &CopyId,
        parts: Parts,
        window: Scratch,
    ) -> Result<LocalReader, StoreError> {
        let first_part = if let Parts::Range(from, _) = parts { from } else { 0 };
        let parts = shared.with(|state| state.find(id, parts).map(|(_, _, parts)| parts))?;
        let mut reader = LocalReader {
            shared: shared.clone(),
            object: *id,
            parts,
            first_part,
            part: 0,
            shown: 0,
            hasher: None,
            left: 0..0,
            extent: None,
            window: Window::of(window),
        };
        reader.begin()?;
        Ok(reader)
    }

    /// Asks for the first bytes when they are on disk, so that many readers opened one after the other read at once.
    fn begin(&mut self) -> Result<(), StoreError> {
        let range = byte_range(&self.parts);
        if range.is_empty() {
            return Ok(());
        }
        self.enter(range.start)?;
        if let Some(Extent { range: extent, bytes: Bytes::Disk { file, offset }, .. }) = &self.extent {
            let (file, at) = (*file, offset + (range.start - extent.start));
            let last = offset + (extent.end.min(range.end) - extent.start);
            self.window.ask(&self.shared, file, at, last)?;
        }
        Ok(())
    }

    /// What a disk cannot give back is lost.
    fn lost_to(&self, error: &StoreError, file: FileId) {
        if let StoreError::Disk { .. } = error
            && !error.is_shortage()
        {
            self.shared.with(|state| {
                state.read_failed(file, &error.into());
                state.lose(self.object, &error.to_string());
            });
        }
    }

    /// The parts that the stream has, in order.
    pub fn parts(&self) -> &[PartMeta] {
        &self.parts
    }

    /// Number, in the stream, of the part that the next chunk is of; the number of parts at the end.
    pub fn part_index(&self) -> usize {
        let ended = self.parts.get(self.part).is_some_and(|part| part.bytes == self.shown);
        self.part + usize::from(ended && self.left.is_empty())
    }

    /// Bytes that were not shown yet.
    pub fn remaining(&self) -> u64 {
        let later: u64 = self.parts.iter().skip(self.part).map(|part| part.bytes).sum();
        later - self.shown + self.left.len() as u64
    }

    /// The next bytes, at most to the end of the part; `None` at the end of the stream.
    ///
    /// # Errors
    /// `Corrupt`; a disk error; `NotFound` when the object was deleted meanwhile; `Denied` when there is something to be
    /// read from disk and the window has no page. The stream is of no use afterwards.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.left = 0..0;
        let Some(chunk) = self.advance()? else { return Ok(None) };
        Ok(Some(self.bytes_of(&chunk)))
    }

    fn bytes_of(&self, chunk: &Chunk) -> &[u8] {
        match (chunk, &self.extent, &self.window) {
            (Chunk::Memory(range), Some(Extent { bytes: Bytes::Memory(view), .. }), _) => &view[range.clone()],
            (Chunk::Window(range), _, Window { shown: Some(span), .. }) => &span.bytes()[range.clone()],
            _ => unreachable!("a chunk is of what was just read"),
        }
    }

    fn advance(&mut self) -> Result<Option<Chunk>, StoreError> {
        while self.parts.get(self.part).is_some_and(|part| part.bytes == self.shown) {
            (self.part, self.shown, self.hasher) = (self.part + 1, 0, None);
        }
        let Some(part) = self.parts.get(self.part).copied() else {
            (self.extent, self.window) = (None, Window::default());
            return Ok(None);
        };
        let position = part.offset + self.shown;
        if !self.extent.as_ref().is_some_and(|extent| extent.range.contains(&position)) {
            self.enter(position)?;
        }
        let Some(Extent { range, bytes, .. }) = &self.extent else { unreachable!("entered just now") };
        let end = range.end.min(part.offset + part.bytes);
        let chunk = match bytes {
            Bytes::Memory(_) => {
                let from = (position - range.start) as usize;
                Chunk::Memory(from..from + (end - position).min(PIECE_MAX) as usize)
            }
            Bytes::Disk { file, offset } => {
                let (file, at) = (*file, offset + (position - range.start));
                // Nothing behind the last part of the stream is read ahead.
                let last = offset + (range.end.min(byte_range(&self.parts).end) - range.start);
                let got = self.show(file, at, last).inspect_err(|error| self.lost_to(error, file))?;
                Chunk::Window(got.start..got.end.min(got.start + (end - position) as usize))
            }
        };
        let (Chunk::Memory(range) | Chunk::Window(range)) = &chunk;
        self.shown += range.len() as u64;
        // Bytes that never left memory need no check, unless the part began on disk.
        if matches!(chunk, Chunk::Window(_)) || self.hasher.is_some() {
            let mut hasher = self.hasher.take().unwrap_or_else(Streaming::new);
            hasher.write(self.bytes_of(&chunk));
            if self.shown == part.bytes && hasher.finish() != part.checksum {
                return Err(self.corrupt(position));
            }
            self.hasher = Some(hasher);
        }
        Ok(Some(chunk))
    }

    fn corrupt(&self, position: u64) -> StoreError {
        let (file, offset) = match &self.extent {
            Some(Extent { range, bytes: Bytes::Disk { file, offset }, .. }) => {
                let path = self.shared.with(|state| state.path_of(*file));
                (path.to_path_buf(), offset + (position - range.start))
            }
            _ => Default::default(),
        };
        let part = self.first_part + self.part as u32;
        let error = StoreError::Corrupt { object: self.object, part, file, offset };
        self.shared.with(|state| {
            state.counters.corrupt_blocks += 1;
            state.lose(self.object, &error.to_string());
        });
        error
    }

    /// Pins the extent that has this byte, and lets go of the one before.
    fn enter(&mut self, position: u64) -> Result<(), StoreError> {
        self.extent = None;
        let object = self.object;
        let (key, range, source) = self.shared.with(|state| {
            let object = state.table.key(&object).ok_or(StoreError::NotFound(object))?;
            let found = state.table.extents_of(object).find(|(_, extent)| extent.start + extent.bytes > position);
            let (key, extent) = found.expect("every byte of a part is in an extent");
            let range = extent.start..extent.start + extent.bytes;
            let source = state.sources(object, &range)[0];
            state.pin(key);
            Ok((key, range, source))
        })?;
        let bytes = match source {
            Source::Memory { offset, bytes, .. } => Bytes::Memory(self.shared.view(offset, bytes)),
            Source::Disk { file, offset, .. } => Bytes::Disk { file, offset },
        };
        self.extent = Some(Extent { _hold: Hold::new(self.shared.clone(), Held::Extent(key)), range, bytes });
        Ok(())
    }

    /// Sees to it that the shown half of the window has the byte at `at` of a file, and asks for what follows, up to
    /// `last`. The bytes from there on, as a range of the half.
    fn show(&mut self, file: FileId, at: u64, last: u64) -> Result<Range<usize>, StoreError> {
        let window = &mut self.window;
        if window.shown.is_none() || window.holds.0 != file || !window.holds.1.contains(&at) {
            window.spare.extend(window.shown.take());
            let comes =
                window.coming.as_ref().is_some_and(|coming| coming.holds.0 == file && coming.holds.1.contains(&at));
            if !comes {
                window.drain();
                window.ask(&self.shared, file, at, last)?;
            }
            window.receive()?;
            let next = window.holds.1.end;
            if next < last && !window.spare.is_empty() {
                window.ask(&self.shared, file, next, last)?;
            }
        }
        let held = &window.holds.1;
        let from = (at - held.start) as usize;
        Ok(from..(held.end.min(last) - held.start) as usize)
    }
}

impl Window {
    fn of(memory: Scratch) -> Window {
        let spare = match memory.into_span() {
            Some(span) if span.span().bytes >= 2 * PAGE => {
                let half = span.span().bytes / 2 / PAGE * PAGE;
                let (one, other) = span.split(half);
                vec![one, other]
            }
            span => span.into_iter().collect(),
        };
        Window { spare, ..Window::default() }
    }

    /// Reads the block that has the byte at `at`, and what follows, into the spare half.
    fn ask(&mut self, shared: &Shared, file: FileId, at: u64, last: u64) -> Result<(), StoreError> {
        let span = self.spare.pop().ok_or(StoreError::Denied { bytes: PAGE, free: 0 })?;
        let from = at / PAGE * PAGE;
        let end = last.next_multiple_of(PAGE).min(from + span.span().bytes);
        let (done, answer) = sync_channel(1);
        shared.io.stream(StreamJob { file, offset: from, bytes: end - from, span, done });
        self.coming = Some(Coming { holds: (file, from..end), answer });
        Ok(())
    }

    /// Takes what was asked for; the half that was shown is spare.
    fn receive(&mut self) -> Result<(), StoreError> {
        let Some(coming) = self.coming.take() else { return Err(StoreError::Cancelled) };
        let (span, result) = coming.answer.recv().map_err(|_| StoreError::Cancelled)?;
        self.holds = coming.holds;
        match result {
            Ok(()) => {
                self.shown = Some(span);
                Ok(())
            }
            Err(error) => {
                self.spare.push(span);
                Err(error)
            }
        }
    }

    /// Gets the half back that holds something else.
    fn drain(&mut self) {
        if let Some(coming) = self.coming.take()
            && let Ok((span, _)) = coming.answer.recv()
        {
            self.spare.push(span);
        }
    }
}

impl Read for LocalReader {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if self.left.is_empty() {
            match self.advance().map_err(std::io::Error::other)? {
                Some(Chunk::Memory(range) | Chunk::Window(range)) => self.left = range,
                None => return Ok(0),
            }
        }
        let in_memory = matches!(self.extent, Some(Extent { bytes: Bytes::Memory(_), .. }));
        let count = to.len().min(self.left.len());
        let range = self.left.start..self.left.start + count;
        let chunk = if in_memory { Chunk::Memory(range) } else { Chunk::Window(range) };
        to[..count].copy_from_slice(self.bytes_of(&chunk));
        self.left.start += count;
        Ok(count)
    }
}

impl fmt::Debug for LocalReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectReader")
            .field("object", &self.object)
            .field("part", &self.part)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
