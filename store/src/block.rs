//! Sealed bytes to read: in place, without a copy, cheap to clone.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use crate::{
    directory::{PartSlice, byte_range},
    hold::Hold,
    ids::{CopyId, RowHash},
    lent::LentLoan,
    meta::PartMeta,
    region::View,
};

/// What the bytes are: the header that travels and is stored with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The copy.
    pub object: CopyId,
    /// Number of the copy that an attempt made whose bytes these are; zero for private copies, which are never announced.
    pub maker: u32,
    /// Number of the block's first part in the object.
    pub first_part: u32,
    /// How many parts it has.
    pub parts: u32,
    /// Sum of the lengths of the parts.
    pub bytes: u64,
    /// Sum of their rows.
    pub rows: u64,
    /// Sum of their row hashes.
    pub row_hash: RowHash,
    /// Checksum of the part where there is exactly one, else the wrapping sum of the parts' checksums.
    pub checksum: u64,
}

/// The bytes of consecutive parts of an object, immutable, 64-byte aligned where the object's parts are.
///
/// Dereferences to the bytes from the start of the first part that has any to the end of the last (with
/// [`Align::SixtyFour`](crate::Align) including the gaps between). While a block or a clone of it lives, its memory is
/// pinned: neither spilled nor freed, even when the object is deleted.
#[derive(Clone)]
pub struct Block {
    view: Option<View>,
    _keeper: Option<Keeper>,
    object: CopyId,
    maker: u32,
    first_part: u32,
    parts: PartSlice,
}

/// What keeps the bytes where they are.
#[derive(Clone)]
pub(crate) enum Keeper {
    /// A hold of this store; it is there to be dropped.
    Own { _hold: Arc<Hold> },
    /// A loan of the process that has the store.
    Lent { _loan: Arc<LentLoan> },
}

/// Whose parts a block is about to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub object: CopyId,
    pub maker: u32,
    pub first_part: u32,
}

impl Block {
    /// `bytes`: the view of [`byte_range`] of the parts and what keeps it; `None` when they have no bytes.
    pub(crate) fn new(origin: Origin, parts: PartSlice, bytes: Option<(View, Arc<Hold>)>) -> Block {
        Block::kept(origin, parts, bytes.map(|(view, hold)| (view, Keeper::Own { _hold: hold })))
    }

    pub(crate) fn kept(origin: Origin, parts: PartSlice, bytes: Option<(View, Keeper)>) -> Block {
        let (view, keeper) = bytes.unzip();
        let Origin { object, maker, first_part } = origin;
        Block { view, _keeper: keeper, object, maker, first_part, parts }
    }

    /// No bytes at all, of no object: what stands for an object that was never stored because it is empty.
    pub fn empty() -> Block {
        let origin = Origin { object: CopyId::default(), maker: 0, first_part: 0 };
        Block::new(origin, PartSlice::Many(Arc::new([]), 0..0), None)
    }

    /// The copy the bytes are of.
    pub fn object(&self) -> CopyId {
        self.object
    }

    /// The parts in it; their offsets count from the start of the object.
    pub fn parts(&self) -> &[PartMeta] {
        &self.parts
    }

    /// The bytes of part number `index` of the block (0: its first). Who takes many small parts one after the other spares what a block of
    /// each costs, which is an atomic counter or two.
    ///
    /// # Panics
    /// The block has no such part.
    pub fn part_bytes(&self, index: usize) -> &[u8] {
        &self[self.place_of(index)]
    }

    /// Where in the bytes of the block a part is.
    fn place_of(&self, index: usize) -> Range<usize> {
        let meta = &self.parts[index];
        if meta.bytes == 0 {
            return 0..0;
        }
        let start = self.parts.iter().find(|part| part.bytes > 0).map_or(0, |first| first.offset);
        let from = (meta.offset - start) as usize;
        from..from + meta.bytes as usize
    }

    /// Part number `index` of the block (0: its first), sharing the memory.
    ///
    /// # Panics
    /// The block has no such part.
    pub fn part(&self, index: usize) -> Block {
        let place = self.place_of(index);
        let view = self.view.as_ref().filter(|_| !place.is_empty()).map(|view| view.slice(place));
        Block {
            _keeper: self._keeper.clone().filter(|_| view.is_some()),
            view,
            first_part: self.first_part + index as u32,
            parts: self.parts.slice(index..index + 1),
            ..*self
        }
    }

    /// What the bytes are.
    pub fn header(&self) -> BlockHeader {
        BlockHeader {
            object: self.object,
            maker: self.maker,
            first_part: self.first_part,
            parts: self.parts.len() as u32,
            bytes: self.parts.iter().map(|part| part.bytes).sum(),
            rows: self.parts.iter().map(|part| part.rows).sum(),
            row_hash: self.parts.iter().map(|part| part.row_hash).sum(),
            checksum: self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.checksum)),
        }
    }

    /// Compares every part with its checksum; the number (in the block) of the first that does not fit.
    ///
    /// # Errors
    /// That number.
    pub fn verify(&self) -> Result<(), usize> {
        let start = byte_range(&self.parts).start;
        crate::checksum::first_corrupt(self, start, &self.parts).map_or(Ok(()), Err)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.view.as_deref().unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("object", &self.object)
            .field("first_part", &self.first_part)
            .field("parts", &self.parts.len())
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}
