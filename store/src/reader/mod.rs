//! An object as a stream: for arguments larger than memory, and for merging many at a time.
//!
//! What lies in memory is shown in place, one extent pinned at a time; what lies on disk is read ahead into a window of
//! memory that its caller was granted, one half while the other is consumed. A stream never asks for memory. In a process that maps the
//! store's region, each chunk is asked for where the store is.

mod local;

use std::{fmt, io::Read};

pub(crate) use self::local::LocalReader;
use crate::{error::StoreError, lent::LentReader, meta::PartMeta};

/// See the module. Made by [`Store::reader`](crate::Store::reader).
///
/// Chunks never cross from one part to the next. Of an object whose parts are [aligned](crate::Align::SixtyFour) each chunk begins at a
/// multiple of 64 bytes, in memory as in its part. Bytes from disk are compared with their checksums as they go by: an
/// error comes before the last chunk of a corrupt part is shown, so nobody reads a corrupt part to its end unawares.
pub struct ObjectReader(Reader);

#[allow(clippy::large_enum_variant, reason = "the large one is the one that there are many of")]
enum Reader {
    Local(LocalReader),
    Lent(LentReader),
}

impl From<LocalReader> for ObjectReader {
    fn from(reader: LocalReader) -> ObjectReader {
        ObjectReader(Reader::Local(reader))
    }
}

impl From<LentReader> for ObjectReader {
    fn from(reader: LentReader) -> ObjectReader {
        ObjectReader(Reader::Lent(reader))
    }
}

impl ObjectReader {
    /// The parts that the stream has, in order.
    pub fn parts(&self) -> &[PartMeta] {
        match &self.0 {
            Reader::Local(reader) => reader.parts(),
            Reader::Lent(reader) => reader.parts(),
        }
    }

    /// The offsets in the stream where its parts begin, and where the last one ends. Gaps between parts are not in the
    /// stream.
    pub fn part_boundaries(&self) -> Vec<u64> {
        let mut ends = vec![0];
        ends.extend(self.parts().iter().scan(0, |end, part| {
            *end += part.bytes;
            Some(*end)
        }));
        ends
    }

    /// Number, in the stream, of the part that the next chunk is of; the number of parts at the end.
    pub fn part_index(&self) -> usize {
        match &self.0 {
            Reader::Local(reader) => reader.part_index(),
            Reader::Lent(reader) => reader.part_index(),
        }
    }

    /// Bytes that were not shown yet.
    pub fn remaining(&self) -> u64 {
        match &self.0 {
            Reader::Local(reader) => reader.remaining(),
            Reader::Lent(reader) => reader.remaining(),
        }
    }

    /// The next bytes, at most to the end of the part; `None` at the end of the stream.
    ///
    /// # Errors
    /// `Corrupt`; a disk error; `NotFound` when the object was deleted meanwhile; `Denied` when there is something to be
    /// read from disk and the window has no page. The stream is of no use afterwards.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, StoreError> {
        match &mut self.0 {
            Reader::Local(reader) => reader.next_chunk(),
            Reader::Lent(reader) => reader.next_chunk(),
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Reader::Local(reader) => reader.read(to),
            Reader::Lent(reader) => reader.read(to),
        }
    }
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reader::Local(reader) => reader.fmt(f),
            Reader::Lent(reader) => reader.fmt(f),
        }
    }
}
