//! What the store of a node does, as far as the cores can tell: it has objects, or has not.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::program::{Made, meant, sum};
use crate::ids::{CopyId, CopyNumber};
use crate::task::{Output, Parts};

/// The objects of a node. Bytes that were read are the reader's: who deletes an object takes it from nobody.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<CopyId, Kept>,
}

#[derive(Debug)]
struct Kept {
    made: Made,
    /// The attempt that made these bytes.
    maker: CopyNumber,
    /// Parts that nobody will ask for again.
    released: BTreeSet<u32>,
}

/// What came of asking for parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here(Vec<Output>),
    /// They were released.
    Released,
    Absent,
}

impl Store {
    /// A copy is complete, of what this attempt made; false where there is one of that name, and it is another one.
    pub(super) fn seal(&mut self, copy: CopyId, made: &Made, maker: CopyNumber) -> bool {
        let kept = || Kept { made: made.clone(), maker, released: BTreeSet::new() };
        let kept = self.objects.entry(copy).or_insert_with(kept);
        kept.made == *made && kept.maker == maker
    }

    pub(super) fn find(&self, copy: CopyId, parts: Parts) -> Found {
        let Some(kept) = self.objects.get(&copy) else { return Found::Absent };
        let range = match parts {
            Parts::All => 0..kept.made.len() as u32,
            Parts::Range(start, end) => start..end,
        };
        if kept.released.range(range).next().is_some() {
            return Found::Released;
        }
        Found::Here(meant(&kept.made, parts).to_vec())
    }

    pub(super) fn has(&self, copy: CopyId) -> bool {
        self.objects.contains_key(&copy)
    }

    /// The bytes of an object of one part.
    pub(super) fn value(&self, copy: CopyId) -> Option<Bytes> {
        match &*self.objects.get(&copy)?.made {
            [part] => Some(vec![0; part.bytes as usize].into()),
            _ => None,
        }
    }

    /// All copies, the attempt that made the bytes of each, and what it is as a whole.
    pub(super) fn inventory(&self) -> Vec<(CopyId, u32, Output)> {
        self.objects.iter().map(|(copy, kept)| (*copy, kept.maker.get(), sum(&kept.made))).collect()
    }

    pub(super) fn delete(&mut self, copy: CopyId) -> bool {
        self.objects.remove(&copy).is_some()
    }

    pub(super) fn release(&mut self, copy: CopyId, parts: Parts) {
        if let Some(kept) = self.objects.get_mut(&copy) {
            let range = match parts {
                Parts::All => 0..kept.made.len() as u32,
                Parts::Range(start, end) => start..end,
            };
            kept.released.extend(range);
        }
    }

    pub(super) fn ids(&self) -> Vec<CopyId> {
        self.objects.keys().copied().collect()
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }
}
