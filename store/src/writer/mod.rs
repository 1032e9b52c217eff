//! Writing an object, part by part.
//!
//! Where the store is, by [`local`]; in a process that maps its region, by [`lent`](crate::lent): the same calls, decided where the
//! store is.

mod local;

use std::{fmt, io};

pub(crate) use self::local::{EXTENT_MIN, LocalWriter, same_content};
use crate::{
    error::StoreError,
    ids::{CopyId, RowHash},
    lent::{LentWriter, Medium},
    meta::ObjectMeta,
};

/// Writes an object. Made by [`Store::writer`](crate::Store::writer).
///
/// ```text
/// (begin_part  (spare advance | write)*  end_part)*  seal
/// ```
///
/// It never waits for a grant or for another task; what finds no memory goes to disk. Dropped without
/// [`ObjectWriter::seal`], everything it wrote is freed.
///
/// What is one blob and has no parts to speak of is written through [`io::Write`] (`write!`, [`io::copy`], any encoder): the first
/// bytes begin the only part, and sealing ends it, as one row without a hash. Within a part that [`ObjectWriter::begin_part`] has
/// begun, the same writes go on with that part.
pub struct ObjectWriter {
    writer: Writer,
    part: Part,
}

/// What is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing, and there was nothing yet.
    Never,
    /// A part that its writer ends.
    Open,
    /// The only part, which sealing ends.
    Blob,
    /// Nothing, after some part.
    Ended,
}

#[allow(clippy::large_enum_variant, reason = "the large one is the one that there are many of")]
enum Writer {
    Local(LocalWriter),
    Lent(LentWriter),
}

impl From<LocalWriter> for ObjectWriter {
    fn from(writer: LocalWriter) -> ObjectWriter {
        ObjectWriter { writer: Writer::Local(writer), part: Part::Never }
    }
}

impl From<LentWriter> for ObjectWriter {
    fn from(writer: LentWriter) -> ObjectWriter {
        ObjectWriter { writer: Writer::Lent(writer), part: Part::Never }
    }
}

impl ObjectWriter {
    /// The object being written.
    pub fn id(&self) -> CopyId {
        match &self.writer {
            Writer::Local(writer) => writer.id(),
            Writer::Lent(writer) => writer.id(),
        }
    }

    /// Begins the next part. `bytes_max`: it will not be longer; `None`: nobody knows. A known length saves moving the
    /// part when it outgrows its memory.
    ///
    /// # Errors
    /// A part is open already. No memory, and no directory to write to.
    pub fn begin_part(&mut self, bytes_max: Option<u64>) -> Result<(), StoreError> {
        match &mut self.writer {
            Writer::Local(writer) => writer.begin_part(bytes_max),
            Writer::Lent(writer) => writer.begin_part(bytes_max),
        }?;
        self.part = Part::Open;
        Ok(())
    }

    /// The next writable bytes: the whole rest of the part while it is in memory, a chunk on its way to disk otherwise.
    /// Empty only when the part has reached its announced length. Say how many were written with
    /// [`ObjectWriter::advance`].
    ///
    /// # Errors
    /// No part is open. No memory, and no directory to write to.
    #[inline]
    pub fn spare(&mut self) -> Result<&mut [u8], StoreError> {
        match &mut self.writer {
            Writer::Local(writer) => writer.spare(),
            Writer::Lent(writer) => writer.spare(),
        }
    }

    /// All room that there is without asking again, for the open part and those behind it, and where it is: what is lent to
    /// another process at a time. Room that was lent to this one is not lent on.
    ///
    /// # Errors
    /// As [`ObjectWriter::spare`].
    pub fn room(&mut self) -> Result<(&mut [u8], Medium), StoreError> {
        match &mut self.writer {
            Writer::Local(writer) => writer.room(),
            Writer::Lent(writer) => writer.spare().map(|spare| (spare, Medium::Disk)),
        }
    }

    /// The first `count` bytes of the last [`ObjectWriter::spare`] are written.
    ///
    /// # Panics
    /// There was no room for so many, or no part is open.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        match &mut self.writer {
            Writer::Local(writer) => writer.advance(count),
            Writer::Lent(writer) => writer.advance(count),
        }
    }

    /// Copies bytes into the part, any number.
    ///
    /// # Errors
    /// As [`ObjectWriter::spare`]; `PartTooLong` beyond the announced length.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        match &mut self.writer {
            Writer::Local(writer) => writer.write(bytes),
            Writer::Lent(writer) => writer.write(bytes),
        }
    }

    /// Ends the part. What it holds is the caller's word: `rows` and the sum of their hashes.
    ///
    /// # Panics
    /// No part is open.
    pub fn end_part(&mut self, rows: u64, row_hash: RowHash) {
        self.part = Part::Ended;
        match &mut self.writer {
            Writer::Local(writer) => writer.end_part(rows, row_hash),
            Writer::Lent(writer) => writer.end_part(rows, row_hash),
        }
    }

    /// Bytes in the open part so far; zero when none is open.
    pub fn part_bytes(&self) -> u64 {
        match &self.writer {
            Writer::Local(writer) => writer.part_bytes(),
            Writer::Lent(writer) => writer.part_bytes(),
        }
    }

    /// Bytes of all parts so far, the open one included: to see when a target size is reached.
    pub fn bytes(&self) -> u64 {
        match &self.writer {
            Writer::Local(writer) => writer.bytes(),
            Writer::Lent(writer) => writer.bytes(),
        }
    }

    /// Makes the object visible to all. An object of the same id and content that is there already is kept, and this
    /// one is freed.
    ///
    /// # Errors
    /// A part is open. `Conflict`: there is an object of this id with other content. A disk error: what was written to
    /// disk did not arrive.
    pub fn seal(mut self) -> Result<ObjectMeta, StoreError> {
        if self.part == Part::Blob {
            self.end_part(1, RowHash::default());
        }
        match self.writer {
            Writer::Local(writer) => writer.seal(),
            Writer::Lent(writer) => writer.seal(),
        }
    }
}

/// One blob, or more of the part that is open. Errors hold the [`StoreError`], and task functions give them on with `?`.
impl io::Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.part == Part::Never {
            self.begin_part(None).map_err(io::Error::other)?;
            self.part = Part::Blob;
        }
        if self.part == Part::Ended {
            let what = "begin_part before more bytes: only an object of one part goes without";
            return Err(io::Error::other(StoreError::WriterMisused { object: self.id(), what }));
        }
        ObjectWriter::write(self, bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.writer {
            Writer::Local(writer) => writer.fmt(f),
            Writer::Lent(writer) => writer.fmt(f),
        }
    }
}
