//! Objects that a task looks at where they lie.

use std::ops::Range;

use exobus_store::{ObjectMeta, PartMeta, Parts, RangeRead, Store, StoreError};

use crate::ids::CopyId;

/// An object of an argument that is [in place](super::Mode::InPlace): takes no memory of the budget.
pub struct InPlace {
    source: Source,
    /// `None`: it has no bytes, and no parts.
    meta: Option<ObjectMeta>,
    parts: Range<usize>,
}

/// Reads bytes at an offset of an object.
pub(crate) type ReadLent = Box<dyn Fn(u64, &mut [u8]) -> Result<(), StoreError> + Send + Sync>;

enum Source {
    Here(Store),
    /// In the store of the node, where this process is one of its executors.
    Lent(ReadLent),
}

impl InPlace {
    /// An object of the node's store, in a process that is one of its executors.
    pub(crate) fn lent(meta: Option<ObjectMeta>, parts: Range<usize>, read: ReadLent) -> Self {
        Self { source: Source::Lent(read), meta, parts }
    }

    /// What another process is told of it.
    pub(crate) fn describe(&self) -> (Option<&ObjectMeta>, Range<usize>) {
        (self.meta.as_ref(), self.parts.clone())
    }

    /// Parts of an object of this store; nothing for one that has no bytes.
    ///
    /// # Errors
    /// `NotFound`, `NoSuchPart`.
    pub(crate) fn new(store: &Store, object: Option<CopyId>, parts: Parts) -> Result<Self, StoreError> {
        let Some(object) = object else {
            return Ok(Self { source: Source::Here(store.clone()), meta: None, parts: 0..0 });
        };
        let meta = store.meta(&object).ok_or(StoreError::NotFound(object))?;
        let parts = match parts {
            Parts::All => 0..meta.parts.len(),
            Parts::Range(start, end) => start as usize..end as usize,
        };
        if meta.parts.get(parts.clone()).is_none() {
            let (from, to, count) = (parts.start as u32, parts.end as u32, meta.parts.len() as u32);
            return Err(StoreError::NoSuchPart { object, from, to, count });
        }
        Ok(Self { source: Source::Here(store.clone()), meta: Some(meta), parts })
    }

    /// The directory entries of the parts that are meant; none of an object without bytes.
    pub fn parts(&self) -> &[PartMeta] {
        self.meta.as_ref().map_or(&[], |meta| &meta.parts[self.parts.clone()])
    }

    /// Reads what is at `offset`, counted from the beginning of the object as [`PartMeta::offset`] is, into `to`: a few
    /// bytes, which are not verified.
    ///
    /// # Errors
    /// `OutOfRange`; the disk failed.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        let Some(meta) = &self.meta else { return Ok(()) };
        let store = match &self.source {
            Source::Here(store) => store,
            Source::Lent(read) => return read(offset, to),
        };
        match store.read_range(&meta.id, offset, to.len() as u64)? {
            RangeRead::Memory(block) => to.copy_from_slice(&block),
            RangeRead::Disk(mut range) => drop(range.read(to)?),
        }
        Ok(())
    }
}
