//! Room for a private copy of what comes from another node.

use std::{fmt, ops::Range, sync::Arc};

use crate::{
    block::{Block, Origin},
    checksum::Verifier,
    directory::PartSlice,
    error::StoreError,
    hold::{Held, Hold, OwnedSpan},
    meta::PartMeta,
    shared::Shared,
};

/// Room for the bytes of consecutive parts, from the start of the first that has any to the end of the last, gaps
/// included: exactly what [`Store::read_range`](crate::Store::read_range) sends for that range.
///
/// Fill it from the front with [`Fill::spare`] and [`Fill::advance`], then [`Fill::finish`]. Dropping it frees the room.
pub struct Fill {
    shared: Arc<Shared>,
    origin: Origin,
    parts: PartSlice,
    range: Range<u64>,
    /// `None` when there are no bytes.
    span: Option<OwnedSpan>,
    filled: u64,
    verifier: Box<Verifier>,
}

impl Fill {
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        parts: PartSlice,
        range: Range<u64>,
        span: Option<OwnedSpan>,
    ) -> Fill {
        Fill { shared, origin, parts, range, span, filled: 0, verifier: Box::new(Verifier::new()) }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where the next byte is in the object: what to ask the other node for.
    pub fn offset(&self) -> u64 {
        self.range.start + self.filled
    }

    /// The parts that come.
    pub fn parts(&self) -> &[PartMeta] {
        &self.parts
    }

    /// All room that is not filled yet; empty when everything is.
    pub fn spare(&mut self) -> &mut [u8] {
        let range = self.filled as usize..(self.range.end - self.range.start) as usize;
        match &mut self.span {
            Some(span) => &mut span.bytes_mut()[range],
            None => &mut [],
        }
    }

    /// The first `count` bytes of [`Fill::spare`] are filled.
    ///
    /// # Panics
    /// There was no room for so many.
    pub fn advance(&mut self, count: usize) {
        let filled = self.filled + count as u64;
        assert!(filled <= self.bytes(), "{count} bytes filled where {} were spare", self.bytes() - self.filled);
        if let Some(span) = &self.span {
            let arrived = &span.bytes()[self.filled as usize..filled as usize];
            self.verifier.feed(&self.parts, self.range.start + self.filled, arrived);
        }
        self.filled = filled;
    }

    /// Starts again from the front: the other node has to be asked anew.
    pub fn restart(&mut self) {
        (self.filled, *self.verifier) = (0, Verifier::new());
    }

    /// Verifies every part, and makes a block of it.
    ///
    /// # Errors
    /// `Incomplete`: there is room left. `Corrupt`: a part is not what its checksum says; the room is free again.
    pub fn finish(mut self) -> Result<Block, StoreError> {
        let (got, expected) = (self.filled, self.bytes());
        if got != expected {
            return Err(StoreError::Incomplete { object: self.origin.object, got, expected });
        }
        let Some(owned) = self.span.take() else { return Ok(Block::new(self.origin, self.parts.clone(), None)) };
        // The last bytes may have completed parts, and parts without bytes may follow them.
        self.verifier.feed(&self.parts, self.range.end, &[]);
        if let Some(part) = self.verifier.first_corrupt(&self.parts) {
            self.shared.with(|state| state.counters.corrupt_blocks += 1);
            return Err(StoreError::Corrupt {
                object: self.origin.object,
                part: self.origin.first_part + part as u32,
                file: "transfer".into(),
                offset: self.parts[part].offset,
            });
        }
        let span = owned.into_span();
        let hold = Arc::new(Hold::new(self.shared.clone(), Held::Private(span)));
        let view = self.shared.view(span.offset, expected);
        Ok(Block::new(self.origin, self.parts.clone(), Some((view, hold))))
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill")
            .field("object", &self.origin.object)
            .field("filled", &self.filled)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
