//! What a store has lent to one process, and what it does for it.

use std::collections::HashMap;

use super::{LentBlock, LentStream, Loan, Place, Room, WriterStep};
use crate::{
    block::Block, error::StoreError, ids::CopyId, meta::ObjectMeta, options::WriterOptions, outside::Grant,
    reader::ObjectReader, scratch::Scratch, store::Store, writer::ObjectWriter,
};

/// The lender's side: does what a [`Lender`](super::Lender) is asked. Dropping it takes everything back, which is sound once
/// the other process is no more.
#[derive(Debug)]
pub struct Desk {
    store: Store,
    numbers: u32,
    blocks: HashMap<u32, Block>,
    readers: HashMap<u32, ObjectReader>,
    scratch: HashMap<u32, Scratch>,
    writers: HashMap<u32, ObjectWriter>,
    /// Memory beside the region that the functions of the process have asked for.
    outside: Grant,
}

impl Desk {
    /// Nothing is lent yet.
    pub fn new(store: Store) -> Desk {
        let outside = store.no_grant();
        Desk {
            store,
            outside,
            numbers: 0,
            blocks: HashMap::new(),
            readers: HashMap::new(),
            scratch: HashMap::new(),
            writers: HashMap::new(),
        }
    }

    fn number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    fn place(&self, bytes: &[u8]) -> Place {
        // What has no bytes is nowhere.
        self.store.place_of(bytes).filter(|place| place.bytes > 0).unwrap_or(Place { offset: 0, bytes: 0 })
    }

    /// Lends a block.
    pub fn lend_block(&mut self, block: Block) -> LentBlock {
        let number = self.number();
        let lent = LentBlock::of(&block, number, self.store.place_of(&block));
        // What has no bytes is not given back.
        if !block.is_empty() {
            self.blocks.insert(number, block);
        }
        lent
    }

    /// Lends a stream of which nothing was read yet.
    pub fn lend_stream(&mut self, reader: ObjectReader) -> LentStream {
        let number = self.number();
        let lent = LentStream::of(&reader, number);
        self.readers.insert(number, reader);
        lent
    }

    /// Lends scratch memory: its number, and where it is.
    pub fn lend_scratch(&mut self, scratch: Scratch) -> (u32, Place) {
        let (number, place) = (self.number(), self.place(&scratch));
        self.scratch.insert(number, scratch);
        (number, place)
    }

    /// See [`Lender::room`](super::Lender::room). `may_write`: whether the borrower may make an object of this id.
    ///
    /// # Errors
    /// What a step says, or that there is no room; no such writer.
    pub fn room(
        &mut self,
        writer: u32,
        steps: &[WriterStep],
        may_write: &dyn Fn(CopyId, &WriterOptions) -> bool,
    ) -> Result<Room, StoreError> {
        self.follow(writer, steps, may_write)?;
        let writer = self.writers.get_mut(&writer).ok_or_else(|| unknown("writer"))?;
        let (bytes, medium) = writer.room()?;
        // A page outside the region cannot be lent.
        let exhausted = StoreError::ReserveExhausted { bytes: bytes.len() as u64 };
        let place = self.store.place_of(bytes).ok_or(exhausted)?;
        Ok(Room { place, medium })
    }

    /// See [`Lender::seal`](super::Lender::seal).
    ///
    /// # Errors
    /// What a step, or sealing, says; no such writer.
    pub fn seal(
        &mut self,
        writer: u32,
        steps: &[WriterStep],
        may_write: &dyn Fn(CopyId, &WriterOptions) -> bool,
    ) -> Result<ObjectMeta, StoreError> {
        let followed = self.follow(writer, steps, may_write);
        let writer = self.writers.remove(&writer);
        followed?;
        writer.ok_or_else(|| unknown("writer"))?.seal()
    }

    fn follow(
        &mut self,
        number: u32,
        steps: &[WriterStep],
        may_write: &dyn Fn(CopyId, &WriterOptions) -> bool,
    ) -> Result<(), StoreError> {
        for step in steps {
            if let WriterStep::Open { object, options } = step {
                if !may_write(*object, options) {
                    return Err(StoreError::Lender(format!("object {object} is no output of what runs")));
                }
                self.writers.insert(number, self.store.writer(*object, *options));
                continue;
            }
            let writer = self.writers.get_mut(&number).ok_or_else(|| unknown("writer"))?;
            match *step {
                WriterStep::Open { .. } => {}
                WriterStep::BeginPart { bytes_max } => writer.begin_part(bytes_max)?,
                WriterStep::Advance { bytes } => writer.advance(bytes as usize),
                WriterStep::EndPart { rows, row_hash } => writer.end_part(rows, row_hash),
            }
        }
        Ok(())
    }

    /// See [`Lender::next_chunk`](super::Lender::next_chunk).
    ///
    /// # Errors
    /// What the stream says; no such stream.
    pub fn next_chunk(&mut self, reader: u32) -> Result<Option<Place>, StoreError> {
        let reader = self.readers.get_mut(&reader).ok_or_else(|| unknown("stream"))?;
        let Some(chunk) = reader.next_chunk()? else { return Ok(None) };
        Ok(Some(self.store.place_of(chunk).ok_or_else(|| unknown("chunk"))?))
    }

    /// See [`Lender::scratch`](super::Lender::scratch).
    ///
    /// # Errors
    /// `Denied`.
    pub fn scratch(&mut self, bytes: u64) -> Result<(u32, Place), StoreError> {
        let scratch = self.store.scratch(bytes)?;
        Ok(self.lend_scratch(scratch))
    }

    /// Lends memory beside the region, of which the other process is told how much it is: it is granted from now on.
    pub fn lend_outside(&mut self, grant: Grant) -> u64 {
        let bytes = grant.bytes();
        self.outside.merge(grant);
        bytes
    }

    /// See [`Lender::outside`](super::Lender::outside).
    ///
    /// # Errors
    /// `Denied`, `NeverGranted`.
    pub fn outside(&mut self, more_bytes: u64) -> Result<(), StoreError> {
        self.outside.resize(self.outside.bytes().saturating_add(more_bytes))
    }

    /// How much memory beside the region is lent.
    pub fn outside_bytes(&self) -> u64 {
        self.outside.bytes()
    }

    /// See [`Lender::given_back`](super::Lender::given_back).
    pub fn given_back(&mut self, loan: Loan) {
        match loan {
            Loan::Block(number) => drop(self.blocks.remove(&number)),
            Loan::Reader(number) => drop(self.readers.remove(&number)),
            Loan::Scratch(number) => drop(self.scratch.remove(&number)),
            Loan::Writer(number) => drop(self.writers.remove(&number)),
            // Nobody gives back more than it has: what others have stays theirs.
            Loan::Outside(bytes) => drop(self.outside.split(bytes)),
        }
    }
}

fn unknown(what: &str) -> StoreError {
    StoreError::Lender(format!("no such {what} was lent"))
}
