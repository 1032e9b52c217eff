//! Reading a stream that another process lends, chunk by chunk.

use std::{fmt, io::Read, sync::Arc};

use super::{Lender, LentLoan, span::view};
use crate::{error::StoreError, meta::PartMeta, region::Region, region::View};

/// See [`ObjectReader`](crate::ObjectReader) for what its methods promise.
pub(crate) struct LentReader {
    region: Arc<Region>,
    lender: Arc<dyn Lender>,
    number: u32,
    parts: Vec<PartMeta>,
    /// The part that is being read, and how much of it was shown.
    part: usize,
    shown: u64,
    /// The last chunk, and how much of it `Read` has taken.
    chunk: Option<View>,
    taken: usize,
    /// Whether `Read` has some of the chunk left.
    reads: bool,
    _loan: LentLoan,
}

impl LentReader {
    pub fn new(
        region: &Arc<Region>,
        lender: &Arc<dyn Lender>,
        number: u32,
        loan: LentLoan,
        parts: Vec<PartMeta>,
    ) -> LentReader {
        LentReader {
            region: region.clone(),
            lender: lender.clone(),
            number,
            parts,
            part: 0,
            shown: 0,
            chunk: None,
            taken: 0,
            reads: false,
            _loan: loan,
        }
    }

    pub fn parts(&self) -> &[PartMeta] {
        &self.parts
    }

    fn left(&self) -> usize {
        if self.reads { self.chunk.as_ref().map_or(0, |chunk| chunk.len() - self.taken) } else { 0 }
    }

    pub fn part_index(&self) -> usize {
        let ended = self.parts.get(self.part).is_some_and(|part| part.bytes == self.shown);
        self.part + usize::from(ended && self.left() == 0)
    }

    pub fn remaining(&self) -> u64 {
        let later: u64 = self.parts.iter().skip(self.part).map(|part| part.bytes).sum();
        later - self.shown + self.left() as u64
    }

    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.reads = false;
        self.advance()?;
        Ok(self.chunk.as_deref())
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.chunk = None;
        while self.parts.get(self.part).is_some_and(|part| part.bytes == self.shown) {
            (self.part, self.shown) = (self.part + 1, 0);
        }
        if self.part < self.parts.len()
            && let Some(place) = self.lender.next_chunk(self.number)?
        {
            self.shown += place.bytes;
            self.chunk = Some(view(&self.region, place));
        }
        Ok(())
    }
}

impl Read for LentReader {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if self.left() == 0 {
            self.advance().map_err(std::io::Error::other)?;
            (self.reads, self.taken) = (true, 0);
        }
        let Some(chunk) = &self.chunk else { return Ok(0) };
        let count = to.len().min(chunk.len() - self.taken);
        to[..count].copy_from_slice(&chunk[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

impl fmt::Debug for LentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentReader")
            .field("part", &self.part)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
