//! Lists of extents in order of last use, threaded through the extents themselves.

use super::{Extent, ExtentKey, NONE, arena::Arena};

/// Neighbours of an extent on its list.
#[derive(Debug)]
pub(crate) struct Links {
    previous: ExtentKey,
    next: ExtentKey,
}

impl Default for Links {
    fn default() -> Self {
        Links { previous: NONE, next: NONE }
    }
}

/// A doubly linked list; every operation takes constant time.
#[derive(Debug)]
pub(crate) struct LruList {
    first: ExtentKey,
    last: ExtentKey,
    bytes: u64,
}

impl LruList {
    pub fn new() -> LruList {
        LruList { first: NONE, last: NONE, bytes: 0 }
    }

    /// The one that is on the list for the longest time.
    pub fn first(&self) -> Option<ExtentKey> {
        (self.first != NONE).then_some(self.first)
    }

    /// Memory of all on the list.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn push_back(&mut self, extents: &mut Arena<Extent>, key: ExtentKey, bytes: u64) {
        let links = &mut extents.get_mut(key).links;
        *links = Links { previous: self.last, next: NONE };
        if self.last == NONE {
            self.first = key;
        } else {
            extents.get_mut(self.last).links.next = key;
        }
        self.last = key;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, extents: &mut Arena<Extent>, key: ExtentKey, bytes: u64) {
        let links = std::mem::take(&mut extents.get_mut(key).links);
        if links.previous == NONE {
            self.first = links.next;
        } else {
            extents.get_mut(links.previous).links.next = links.next;
        }
        if links.next == NONE {
            self.last = links.previous;
        } else {
            extents.get_mut(links.next).links.previous = links.previous;
        }
        self.bytes -= bytes;
    }
}
