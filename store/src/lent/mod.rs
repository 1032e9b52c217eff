//! What a store lends to another process that maps its region: blocks, streams, scratch and room for outputs.
//!
//! Code there sees the same types as here ([`Block`], [`ObjectReader`], [`ObjectWriter`], [`Scratch`]); what they decide is
//! decided by the *lender*, the process that has the store. So bytes are counted in one place, and none is copied: what
//! crosses between the processes is where bytes lie. Whatever is lent stays where it is until it is
//! [given back](Lender::given_back), or the process that borrowed it is no more.
//!
//! The other process may store to what was lent to it to write, and to nothing else of the region, see
//! [`span`].
//!
//! ```text
//! lender:    Desk, over the Store           what crosses: Place, Room, WriterStep, LentBlock, LentStream
//! borrower:  LentStore over a Lender, which asks
//! ```

mod desk;
mod reader;
mod span;
mod writer;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};

pub use self::desk::Desk;
pub(crate) use self::{
    reader::LentReader,
    span::{LentLoan, LentSpan},
    writer::LentWriter,
};
use crate::{
    block::{Block, Keeper, Origin},
    clock::Clock,
    directory::PartSlice,
    error::{DirState, StoreError},
    ids::{CopyId, RowHash},
    meta::{ObjectMeta, PartMeta},
    options::WriterOptions,
    outside::Grant,
    reader::ObjectReader,
    region::Region,
    scratch::Scratch,
    writer::ObjectWriter,
};

/// A run of bytes of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// From the start of the region.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// Where an output's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    /// They stay where they are written.
    Memory,
    /// They are written to disk from there when the chunk is full.
    Disk,
}

/// Room for the next bytes of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Where.
    pub place: Place,
    /// What becomes of what is written there.
    pub medium: Medium,
}

/// What was done with an [`ObjectWriter`] in the other process, in order: the lender does the same with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriterStep {
    /// It was made.
    Open {
        /// The object.
        object: CopyId,
        /// How it is written.
        options: WriterOptions,
    },
    /// [`ObjectWriter::begin_part`].
    BeginPart {
        /// Its argument.
        bytes_max: Option<u64>,
    },
    /// [`ObjectWriter::advance`], any number of times.
    Advance {
        /// Bytes in all.
        bytes: u64,
    },
    /// [`ObjectWriter::end_part`].
    EndPart {
        /// Its rows.
        rows: u64,
        /// Their hashes.
        row_hash: RowHash,
    },
}

/// Something that was lent: by the number that it was given, or how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loan {
    /// A block; numbered by the lender.
    Block(u32),
    /// A stream; numbered by the lender.
    Reader(u32),
    /// Scratch memory; numbered by the lender.
    Scratch(u32),
    /// A writer; numbered by the borrower.
    Writer(u32),
    /// So many bytes of the memory beside the region.
    Outside(u64),
}

/// A block as the borrower is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentBlock {
    loan: u32,
    object: CopyId,
    maker: u32,
    first_part: u32,
    parts: Vec<PartMeta>,
    /// `None`: it has no bytes.
    place: Option<Place>,
}

impl LentBlock {
    /// Describes a block of the lender's store; `place` is [`Store::place_of`](crate::Store::place_of) of it.
    pub fn of(block: &Block, loan: u32, place: Option<Place>) -> LentBlock {
        let header = block.header();
        LentBlock {
            loan,
            object: header.object,
            maker: header.maker,
            first_part: header.first_part,
            parts: block.parts().to_vec(),
            place: place.filter(|place| place.bytes > 0),
        }
    }
}

/// A stream as the borrower is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentStream {
    loan: u32,
    parts: Vec<PartMeta>,
}

impl LentStream {
    /// Describes a stream of which nothing was read yet.
    pub fn of(reader: &ObjectReader, loan: u32) -> LentStream {
        LentStream { loan, parts: reader.parts().to_vec() }
    }
}

/// A [`StoreError`] on its way to the borrower: what callers tell apart stays apart, the rest is its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in StoreError")]
pub enum LentError {
    /// [`StoreError::Denied`]
    Denied { bytes: u64, free: u64 },
    /// [`StoreError::ReserveExhausted`]
    ReserveExhausted { bytes: u64 },
    /// [`StoreError::TooLarge`]
    TooLarge { need: u64, capacity: u64 },
    /// [`StoreError::NeverGranted`]
    NeverGranted { bytes: u64, most: u64 },
    /// [`StoreError::DiskFull`]
    DiskFull { needed: u64, dirs: Vec<DirState> },
    /// [`StoreError::PartTooLong`]
    PartTooLong { object: CopyId, part: u32, announced: u64 },
    /// [`StoreError::Conflict`]
    Conflict { object: CopyId },
    /// Any other.
    Other { text: String },
}

impl From<&StoreError> for LentError {
    fn from(error: &StoreError) -> LentError {
        match error {
            StoreError::Denied { bytes, free } => LentError::Denied { bytes: *bytes, free: *free },
            StoreError::ReserveExhausted { bytes } => LentError::ReserveExhausted { bytes: *bytes },
            StoreError::TooLarge { need, capacity } => LentError::TooLarge { need: *need, capacity: *capacity },
            StoreError::NeverGranted { bytes, most } => LentError::NeverGranted { bytes: *bytes, most: *most },
            StoreError::DiskFull { needed, dirs } => LentError::DiskFull { needed: *needed, dirs: dirs.clone() },
            StoreError::PartTooLong { object, part, announced } => {
                LentError::PartTooLong { object: *object, part: *part, announced: *announced }
            }
            StoreError::Conflict(object) => LentError::Conflict { object: *object },
            other => LentError::Other { text: other.to_string() },
        }
    }
}

impl LentError {
    /// As the borrower's code sees it.
    pub fn into_store_error(self) -> StoreError {
        match self {
            LentError::Denied { bytes, free } => StoreError::Denied { bytes, free },
            LentError::ReserveExhausted { bytes } => StoreError::ReserveExhausted { bytes },
            LentError::TooLarge { need, capacity } => StoreError::TooLarge { need, capacity },
            LentError::NeverGranted { bytes, most } => StoreError::NeverGranted { bytes, most },
            LentError::DiskFull { needed, dirs } => StoreError::DiskFull { needed, dirs },
            LentError::PartTooLong { object, part, announced } => StoreError::PartTooLong { object, part, announced },
            LentError::Conflict { object } => StoreError::Conflict(object),
            LentError::Other { text } => StoreError::Lender(text),
        }
    }
}

/// The process that has the store, as the one that maps its region sees it.
pub trait Lender: Send + Sync {
    /// Room for what comes next in an output, after these steps.
    ///
    /// # Errors
    /// What a step, or [`ObjectWriter::spare`], says.
    fn room(&self, writer: u32, steps: &[WriterStep]) -> Result<Room, StoreError>;

    /// Seals an output, after these steps. The writer is gone, whatever comes of it.
    ///
    /// # Errors
    /// What a step, or [`ObjectWriter::seal`], says.
    fn seal(&self, writer: u32, steps: &[WriterStep]) -> Result<ObjectMeta, StoreError>;

    /// [`ObjectReader::next_chunk`]: it stays until the next one is asked for.
    ///
    /// # Errors
    /// Its errors.
    fn next_chunk(&self, reader: u32) -> Result<Option<Place>, StoreError>;

    /// [`Store::scratch`](crate::Store::scratch), as a loan of this number.
    ///
    /// # Errors
    /// Its errors.
    fn scratch(&self, bytes: u64) -> Result<(u32, Place), StoreError>;

    /// [`Store::outside`](crate::Store::outside): so many bytes more are wanted. Both sides say by how much what is granted changes, and never
    /// how much it is: what one says is right whatever the other has said meanwhile.
    ///
    /// # Errors
    /// Its errors; as many as before are granted then.
    fn outside(&self, more_bytes: u64) -> Result<(), StoreError>;

    /// It is not used any more. Nothing fails: what is not told is given back with the process. May be told later, with
    /// something else.
    fn given_back(&self, loan: Loan);

    /// Tells now what was given back.
    fn flush(&self) {}
}

/// Where grants of the store of another process come from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LentGrants {
    lender: Arc<dyn Lender>,
}

impl LentGrants {
    pub(crate) fn more(&self, more_bytes: u64) -> Result<(), StoreError> {
        self.lender.outside(more_bytes)
    }

    pub(crate) fn less(&self, bytes: u64) {
        self.lender.given_back(Loan::Outside(bytes));
        // Others may wait for it.
        self.lender.flush();
    }
}

/// A store of another process. Cheap to clone.
#[derive(Clone)]
pub struct LentStore {
    region: Arc<Region>,
    grants: LentGrants,
    lender: Arc<dyn Lender>,
    writers: Arc<AtomicU32>,
}

impl std::fmt::Debug for LentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LentStore({:?})", self.region)
    }
}

impl LentStore {
    /// Maps the region, a descriptor of which came from [`Store::region_fd`](crate::Store::region_fd).
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn map(region: OwnedFd, lender: Arc<dyn Lender>, clock: Arc<dyn Clock>) -> io::Result<LentStore> {
        let region = Arc::new(Region::of_other(region, clock)?);
        let grants = LentGrants { lender: lender.clone() };
        Ok(LentStore { region, grants, lender, writers: Arc::default() })
    }

    /// A block that was lent.
    pub fn block(&self, lent: LentBlock) -> Block {
        let LentBlock { loan, object, maker, first_part, parts, place } = lent;
        let origin = Origin { object, maker, first_part };
        let count = parts.len();
        let loan = LentLoan::new(&self.lender, Loan::Block(loan));
        let bytes = place.map(|place| (span::view(&self.region, place), Keeper::Lent { _loan: Arc::new(loan) }));
        Block::kept(origin, PartSlice::Many(parts.into(), 0..count), bytes)
    }

    /// A stream that was lent.
    pub fn reader(&self, lent: LentStream) -> ObjectReader {
        let loan = LentLoan::new(&self.lender, Loan::Reader(lent.loan));
        LentReader::new(&self.region, &self.lender, lent.loan, loan, lent.parts).into()
    }

    /// Scratch memory that was lent; `None`: none at all.
    ///
    /// # Errors
    /// The kernel does not let this process store to it.
    pub fn lent_scratch(&self, loan: u32, place: Place) -> Result<Scratch, StoreError> {
        let loan = LentLoan::new(&self.lender, Loan::Scratch(loan));
        if place.bytes == 0 {
            return Ok(Scratch::lent(None));
        }
        Ok(Scratch::lent(Some(LentSpan::new(&self.region, place, Some(loan))?)))
    }

    /// As [`Store::scratch`](crate::Store::scratch).
    ///
    /// # Errors
    /// `Denied`: do it with less memory, or on disk.
    pub fn scratch(&self, bytes: u64) -> Result<Scratch, StoreError> {
        if bytes == 0 {
            return Ok(Scratch::lent(None));
        }
        let (loan, place) = self.lender.scratch(bytes)?;
        self.lent_scratch(loan, place)
    }

    /// As [`Store::outside`](crate::Store::outside).
    ///
    /// # Errors
    /// `Denied`: do it with less, or on disk. `NeverGranted`.
    pub fn outside(&self, bytes: u64) -> Result<Grant, StoreError> {
        let mut grant = self.no_grant();
        grant.resize(bytes)?;
        Ok(grant)
    }

    /// A grant of nothing, to be made larger.
    pub fn no_grant(&self) -> Grant {
        Grant::lent(self.grants.clone(), 0)
    }

    /// Memory beside the region that was granted to this process before it asked ([`Desk::lend_outside`]).
    pub fn lent_outside(&self, bytes: u64) -> Grant {
        Grant::lent(self.grants.clone(), bytes)
    }

    /// Tells the lender now what is not used any more.
    pub fn flush(&self) {
        self.lender.flush();
    }

    /// As [`Store::writer`](crate::Store::writer).
    pub fn writer(&self, id: CopyId, options: WriterOptions) -> ObjectWriter {
        let number = self.writers.fetch_add(1, Ordering::Relaxed);
        LentWriter::new(&self.region, &self.lender, number, id, options).into()
    }
}

#[cfg(test)]
mod tests;
