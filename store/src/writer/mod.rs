//! Writing an object, part by part.
//!
//! Where the store is, by [`local`]; in a process that maps its region, by [`lent`](crate::lent): the same calls, decided where the
//! store is.

mod local;

use std::fmt;

pub(crate) use self::local::{EXTENT_MIN, LocalWriter, same_content};
use crate::{
    error::StoreError,
    ids::{ObjectId, RowHash},
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
pub struct ObjectWriter(Writer);

#[allow(clippy::large_enum_variant, reason = "the large one is the one that there are many of")]
enum Writer {
    Local(LocalWriter),
    Lent(LentWriter),
}

impl From<LocalWriter> for ObjectWriter {
    fn from(writer: LocalWriter) -> ObjectWriter {
        ObjectWriter(Writer::Local(writer))
    }
}

impl From<LentWriter> for ObjectWriter {
    fn from(writer: LentWriter) -> ObjectWriter {
        ObjectWriter(Writer::Lent(writer))
    }
}

impl ObjectWriter {
    /// The object being written.
    pub fn id(&self) -> ObjectId {
        match &self.0 {
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
        match &mut self.0 {
            Writer::Local(writer) => writer.begin_part(bytes_max),
            Writer::Lent(writer) => writer.begin_part(bytes_max),
        }
    }

    /// The next writable bytes: the whole rest of the part while it is in memory, a chunk on its way to disk otherwise.
    /// Empty only when the part has reached its announced length. Say how many were written with
    /// [`ObjectWriter::advance`].
    ///
    /// # Errors
    /// No part is open. No memory, and no directory to write to.
    #[inline]
    pub fn spare(&mut self) -> Result<&mut [u8], StoreError> {
        match &mut self.0 {
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
        match &mut self.0 {
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
        match &mut self.0 {
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
        match &mut self.0 {
            Writer::Local(writer) => writer.write(bytes),
            Writer::Lent(writer) => writer.write(bytes),
        }
    }

    /// Ends the part. What it holds is the caller's word: `rows` and the sum of their hashes.
    ///
    /// # Panics
    /// No part is open.
    pub fn end_part(&mut self, rows: u64, row_hash: RowHash) {
        match &mut self.0 {
            Writer::Local(writer) => writer.end_part(rows, row_hash),
            Writer::Lent(writer) => writer.end_part(rows, row_hash),
        }
    }

    /// Bytes in the open part so far; zero when none is open.
    pub fn part_bytes(&self) -> u64 {
        match &self.0 {
            Writer::Local(writer) => writer.part_bytes(),
            Writer::Lent(writer) => writer.part_bytes(),
        }
    }

    /// Bytes of all parts so far, the open one included: to see when a target size is reached.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
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
    pub fn seal(self) -> Result<ObjectMeta, StoreError> {
        match self.0 {
            Writer::Local(writer) => writer.seal(),
            Writer::Lent(writer) => writer.seal(),
        }
    }
}

impl fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Writer::Local(writer) => writer.fmt(f),
            Writer::Lent(writer) => writer.fmt(f),
        }
    }
}
