//! What the store of a node does, as far as the cores can tell: it has objects, or has not.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{Made, meant, sum};
use crate::ids::ObjectId;
use crate::task::{Output, Parts};

/// The objects of a node. Bytes that were read are the reader's: who deletes an object takes it from nobody.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<ObjectId, Kept>,
}

#[derive(Debug)]
struct Kept {
    made: Made,
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
    /// An object is complete. One of the same content is kept, if it lacks nothing; false where there is another one of that name.
    pub(super) fn seal(&mut self, object: ObjectId, made: &Made) -> bool {
        match self.objects.get(&object) {
            Some(kept) if kept.made != *made => false,
            Some(kept) if kept.released.is_empty() => true,
            _ => {
                self.objects.insert(object, Kept { made: made.clone(), released: BTreeSet::new() });
                true
            }
        }
    }

    pub(super) fn find(&self, object: ObjectId, parts: Parts) -> Found {
        let Some(kept) = self.objects.get(&object) else { return Found::Absent };
        let range = match parts {
            Parts::All => 0..kept.made.len() as u32,
            Parts::Range(start, end) => start..end,
        };
        if kept.released.range(range).next().is_some() {
            return Found::Released;
        }
        Found::Here(meant(&kept.made, parts).to_vec())
    }

    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// The bytes of a small object of one part.
    pub(super) fn parts_of(&self, object: ObjectId) -> Option<usize> {
        Some(self.objects.get(&object)?.made.len())
    }

    /// What an object is, as a whole.
    pub(super) fn output_of(&self, object: ObjectId) -> Option<Output> {
        Some(sum(&self.objects.get(&object)?.made))
    }

    pub(super) fn delete(&mut self, object: ObjectId) -> bool {
        self.objects.remove(&object).is_some()
    }

    pub(super) fn release(&mut self, object: ObjectId, parts: Parts) {
        if let Some(kept) = self.objects.get_mut(&object) {
            let range = match parts {
                Parts::All => 0..kept.made.len() as u32,
                Parts::Range(start, end) => start..end,
            };
            kept.released.extend(range);
        }
    }

    pub(super) fn ids(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }
}
