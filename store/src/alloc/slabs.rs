//! Equal slots for small blocks.

use std::collections::{BTreeMap, BTreeSet};

use super::{PAGE, Span, pages::Pages};

/// Largest block that lies in a slot.
pub(crate) const SLOT_MAX: u64 = 16 << 10;

/// Pages of one slab: 128 KiB, at least 8 slots.
const SLAB_PAGES: u32 = 32;
const SLAB_BYTES: u64 = SLAB_PAGES as u64 * PAGE;

/// Multiples of 64 up to 512, then four sizes for each doubling: at most a quarter of a slot is not used.
const CLASSES: usize = 28;

fn class_of(bytes: u64) -> usize {
    debug_assert!(bytes > 0 && bytes <= SLOT_MAX);
    if bytes <= 512 {
        return (bytes.div_ceil(64) - 1) as usize;
    }
    let log = (bytes - 1).ilog2();
    let quarter = ((bytes - 1) >> (log - 2)) & 3;
    8 + (log as usize - 9) * 4 + quarter as usize
}

fn class_bytes(class: usize) -> u64 {
    if class < 8 {
        return (class as u64 + 1) * 64;
    }
    let (log, quarter) = ((class - 8) / 4 + 9, (class - 8) % 4);
    (1 << log) + (quarter as u64 + 1) * (1 << (log - 2))
}

/// Bytes of the slot for a block of this length.
pub(crate) fn slot_bytes(bytes: u64) -> u64 {
    class_bytes(class_of(bytes))
}

/// Bytes of the slabs that so many slots of this size fill.
pub(crate) fn slabs_bytes(slot_bytes: u64, count: u64) -> u64 {
    count.div_ceil(SLAB_BYTES / slot_bytes) * SLAB_BYTES
}

#[derive(Debug)]
struct Slab {
    class: u8,
    used: u16,
    /// Bit set = slot free.
    free: Box<[u64]>,
}

/// All slabs of a region.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// By first page.
    slabs: BTreeMap<u32, Slab>,
    /// Slabs with a free slot, by class.
    partial: [BTreeSet<u32>; CLASSES],
    /// Slabs without a block, at most one per class is kept.
    empty: BTreeMap<u8, u32>,
    /// Slabs with a page from here on take no block any more; `None`: all do.
    end: Option<u32>,
}

impl Slabs {
    pub fn alloc(&mut self, bytes: u64, pages: &mut Pages) -> Option<Span> {
        let class = class_of(bytes);
        let slot_bytes = class_bytes(class);
        let first = match self.partial[class].first() {
            Some(&first) => first,
            None => self.add_slab(class, pages)?,
        };
        let slab = self.slabs.get_mut(&first).expect("a slab in a list of partial slabs exists");
        let (word, bits) =
            slab.free.iter_mut().enumerate().find(|(_, bits)| **bits != 0).expect("a partial slab has a free slot");
        let slot = word as u64 * 64 + u64::from(bits.trailing_zeros());
        *bits &= *bits - 1;
        if slab.used == 0 {
            self.empty.remove(&slab.class);
        }
        slab.used += 1;
        if u64::from(slab.used) == SLAB_BYTES / slot_bytes {
            self.partial[class].remove(&first);
        }
        Some(Span { offset: u64::from(first) * PAGE + slot * slot_bytes, bytes: slot_bytes })
    }

    fn add_slab(&mut self, class: usize, pages: &mut Pages) -> Option<u32> {
        let first = match pages.alloc(SLAB_PAGES) {
            Some(first) => first,
            None if self.release_empty(pages) => pages.alloc(SLAB_PAGES)?,
            None => return None,
        };
        let slots = SLAB_BYTES / class_bytes(class);
        let free = (0..slots.div_ceil(64)).map(|word| match slots - word * 64 {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        });
        self.slabs.insert(first, Slab { class: class as u8, used: 0, free: free.collect() });
        self.partial[class].insert(first);
        self.empty.insert(class as u8, first);
        Some(first)
    }

    /// Gives a slot back. `false`: the span is not in a slab.
    pub fn free(&mut self, span: Span, pages: &mut Pages) -> bool {
        let page = (span.offset / PAGE) as u32;
        let Some((&first, slab)) = self.slabs.range_mut(..=page).next_back() else { return false };
        if page >= first + SLAB_PAGES {
            return false;
        }
        let slot_bytes = class_bytes(slab.class as usize);
        let within = span.offset - u64::from(first) * PAGE;
        assert!(within.is_multiple_of(slot_bytes) && span.bytes == slot_bytes, "freed {span:?}, which is no slot");
        let slot = within / slot_bytes;
        let (word, bit) = ((slot / 64) as usize, 1 << (slot % 64));
        assert!(slab.free[word] & bit == 0, "slot at {} was free already", span.offset);
        slab.free[word] |= bit;
        slab.used -= 1;
        let (class, emptied) = (slab.class, slab.used == 0);
        if self.end.is_some_and(|end| first + SLAB_PAGES > end) {
            return !emptied || self.release(first, pages);
        }
        self.partial[class as usize].insert(first);
        // One is kept: a task that makes and frees one block after the other would build a slab for each.
        if emptied && self.empty.insert(class, first).is_some_and(|other| self.release(other, pages)) {
            debug_assert_eq!(self.empty.get(&class), Some(&first));
        }
        true
    }

    /// Slabs with a page from `from` on take no block any more.
    pub fn cut(&mut self, from: u32, pages: &mut Pages) {
        self.release_empty(pages);
        let end = self.end.map_or(from, |end| end.min(from));
        self.end = Some(end);
        for partial in &mut self.partial {
            partial.retain(|first| first + SLAB_PAGES <= end);
        }
    }

    /// Gives all slabs without a block back. `false`: there was none.
    pub fn release_empty(&mut self, pages: &mut Pages) -> bool {
        let empty = std::mem::take(&mut self.empty);
        empty.values().fold(false, |_, &first| self.release(first, pages))
    }

    /// Pages in slabs without a block.
    #[cfg(test)]
    pub fn empty_pages(&self) -> u64 {
        self.empty.len() as u64 * u64::from(SLAB_PAGES)
    }

    fn release(&mut self, first: u32, pages: &mut Pages) -> bool {
        let slab = self.slabs.remove(&first).expect("an empty slab exists");
        self.partial[slab.class as usize].remove(&first);
        pages.free(first, SLAB_PAGES);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fit_and_waste_less_than_a_quarter() {
        for bytes in 1..=SLOT_MAX {
            let slot = slot_bytes(bytes);
            assert!(slot >= bytes && slot.is_multiple_of(64), "{bytes} in {slot}");
            assert!(slot - bytes < 64.max(bytes / 4), "{bytes} in {slot}");
        }
        assert_eq!(class_of(SLOT_MAX), CLASSES - 1);
        assert_eq!([slot_bytes(1), slot_bytes(1000), slot_bytes(1024), slot_bytes(1025)], [64, 1024, 1024, 1280]);
    }
}
