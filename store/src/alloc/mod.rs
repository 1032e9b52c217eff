//! Who lies where in the region: a pure allocator whose metadata is outside the region.
//!
//! Two levels. [`pages`] hands out runs of 4 KiB pages, the lowest place that fits first, because low pages were touched
//! before and first touch costs more than everything else. [`slabs`] cuts runs of 32 pages into equal slots for
//! blocks up to 16 KiB, so that a block of 1 kB costs 1 kB.
//!
//! Why not the `offset-allocator` crate, which is otherwise a fine O(1) allocator: it never finds a freed block of the
//! very size asked for again unless that size is one of its bins (requests round up, free blocks round down), so a
//! stream of equal blocks walks on into untouched memory; it knows no order of addresses; it cannot grow or
//! shrink a block in place; and its table of nodes is laid out for the largest number of blocks at the start
//! (1 000 000 blocks: 64 MB).

pub(crate) mod pages;
pub(crate) mod slabs;

use pages::Pages;
use slabs::Slabs;

/// Unit of the page level, and the alignment that direct I/O needs.
pub(crate) const PAGE: u64 = 4096;

/// A run of bytes of the region: both numbers are multiples of 64, for page-level runs of 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// From the start of the region.
    pub offset: u64,
    /// Length as allocated, at least what was asked for.
    pub bytes: u64,
}

impl Span {
    pub fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// Allocator of one region.
#[derive(Debug)]
pub(crate) struct Allocator {
    pages: Pages,
    slabs: Slabs,
}

impl Allocator {
    /// All of `bytes` free; what does not fill a page is left out.
    pub fn new(bytes: u64) -> Allocator {
        let pages = u32::try_from(bytes / PAGE).unwrap_or(u32::MAX);
        Allocator { pages: Pages::new(pages), slabs: Slabs::default() }
    }

    /// Bytes that [`Allocator::alloc`] takes for a block of this length.
    pub fn rounded(bytes: u64) -> u64 {
        if bytes == 0 {
            0
        } else if bytes <= slabs::SLOT_MAX {
            slabs::slot_bytes(bytes)
        } else {
            bytes.next_multiple_of(PAGE)
        }
    }

    /// Bytes that blocks of these lengths take in an empty region, slabs included that are not filled.
    pub fn rounded_together(lengths: impl Iterator<Item = u64>) -> u64 {
        let mut small = std::collections::BTreeMap::<u64, u64>::new();
        let mut total = 0;
        for bytes in lengths {
            let rounded = Allocator::rounded(bytes);
            if bytes > slabs::SLOT_MAX {
                total += rounded;
            } else if bytes > 0 {
                *small.entry(rounded).or_default() += 1;
            }
        }
        small.into_iter().fold(total, |total, (slot, count)| total + slabs::slabs_bytes(slot, count))
    }

    /// Gives slabs without a block back, which are kept for the next one otherwise: they lie in the way of large runs.
    pub fn release_empty(&mut self) {
        self.slabs.release_empty(&mut self.pages);
    }

    /// Room for `bytes > 0`, 64-byte aligned, from a page on when it is larger than a slot. `None`: nothing fits.
    pub fn alloc(&mut self, bytes: u64) -> Option<Span> {
        if bytes <= slabs::SLOT_MAX { self.slabs.alloc(bytes, &mut self.pages) } else { self.alloc_pages(bytes) }
    }

    /// Room that begins at a page and can grow and shrink.
    pub fn alloc_pages(&mut self, bytes: u64) -> Option<Span> {
        let count = u32::try_from(bytes.div_ceil(PAGE)).ok()?;
        let first = match self.pages.alloc(count) {
            Some(first) => first,
            // Slabs without a block in them are kept for the next block; give them up before giving up.
            None if self.slabs.release_empty(&mut self.pages) => self.pages.alloc(count)?,
            None => return None,
        };
        Some(Span { offset: u64::from(first) * PAGE, bytes: u64::from(count) * PAGE })
    }

    /// Room that begins at a page, as far behind as there is any: where it is in nobody's way.
    pub fn alloc_last(&mut self, bytes: u64) -> Option<Span> {
        let count = u32::try_from(bytes.div_ceil(PAGE)).ok()?;
        let first = self.pages.alloc_last(count)?;
        Some(Span { offset: u64::from(first) * PAGE, bytes: u64::from(count) * PAGE })
    }

    /// Makes a page-level run longer where it lies. `false`: the pages behind it are taken.
    pub fn grow(&mut self, span: &mut Span, extra: u64) -> bool {
        let Ok(count) = u32::try_from(extra.div_ceil(PAGE)) else { return false };
        let grown = self.pages.take_at((span.end() / PAGE) as u32, count);
        if grown {
            span.bytes += u64::from(count) * PAGE;
        }
        grown
    }

    /// Gives the pages of a page-level run behind its first `bytes > 0` back.
    pub fn shrink(&mut self, span: &mut Span, bytes: u64) {
        let keep = bytes.next_multiple_of(PAGE);
        if keep < span.bytes {
            self.pages.free(((span.offset + keep) / PAGE) as u32, ((span.bytes - keep) / PAGE) as u32);
            span.bytes = keep;
        }
    }

    /// Gives a run back.
    pub fn free(&mut self, span: Span) {
        let paged = span.offset.is_multiple_of(PAGE) && span.bytes.is_multiple_of(PAGE);
        if span.bytes <= slabs::SLOT_MAX && self.slabs.free(span, &mut self.pages) {
            return;
        }
        assert!(paged, "freed {span:?}, which was never handed out");
        self.pages.free((span.offset / PAGE) as u32, (span.bytes / PAGE) as u32);
    }

    /// Bytes in free pages; free slots of slabs in use do not count.
    #[cfg(test)]
    pub fn free_bytes(&self) -> u64 {
        (u64::from(self.pages.free_pages()) + self.slabs.empty_pages()) * PAGE
    }

    /// Bytes of the pages that can be handed out when everything has come back. What is out of use is counted here and nowhere else.
    pub fn usable_bytes(&self) -> u64 {
        u64::from(self.pages.usable()) * PAGE
    }

    /// Whether nothing is out of use.
    pub fn is_whole(&self) -> bool {
        self.pages.is_whole()
    }

    /// Whether blocks of these lengths, with whether each is of whole pages, can lie beside each other when everything has come back, and then
    /// so many units of this length behind them.
    pub fn has_room_for(&self, blocks: impl Iterator<Item = (u64, bool)>, units: u64, unit: u64) -> bool {
        let mut emptied = Allocator { pages: self.pages.emptied(), slabs: Slabs::default() };
        let fits = |(bytes, paged)| (if paged { emptied.alloc_pages(bytes) } else { emptied.alloc(bytes) }).is_some();
        blocks.filter(|(bytes, _)| *bytes > 0).all(fits) && (0..units).all(|_| emptied.alloc_last(unit).is_some())
    }

    /// Takes everything from `offset` on out of use for good, and what is in use there when it comes back: the operating system has no more
    /// memory.
    pub fn cut(&mut self, offset: u64) {
        let from = (offset / PAGE) as u32;
        self.slabs.cut(from, &mut self.pages);
        self.pages.cut(from);
    }

    /// Takes a run of whole pages that was handed out out of use for good, instead of giving it back.
    pub fn lose(&mut self, span: Span) {
        self.pages.lose((span.offset / PAGE) as u32, (span.bytes / PAGE) as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_place_that_fits_is_taken_first() {
        let mut allocator = Allocator::new(1 << 20);
        let spans: Vec<Span> = (0..8).map(|_| allocator.alloc(100_000).unwrap()).collect();
        assert!(spans.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        allocator.free(spans[5]);
        allocator.free(spans[2]);
        assert_eq!(allocator.alloc(100_000), Some(spans[2]));
        assert_eq!(allocator.alloc(90_000).map(|span| span.offset), Some(spans[5].offset));
    }

    #[test]
    fn what_is_in_nobodys_way_lies_behind_everything() {
        let mut allocator = Allocator::new(1 << 20);
        let first = allocator.alloc_last(PAGE).unwrap();
        assert_eq!(first, Span { offset: (1 << 20) - PAGE, bytes: PAGE });
        let second = allocator.alloc_last(2 * PAGE).unwrap();
        assert_eq!(second.end(), first.offset);
        allocator.free(first);
        // The page that came free is too short; what is before the second one is not.
        assert_eq!(allocator.alloc_last(3 * PAGE).unwrap().end(), second.offset);
        assert_eq!(allocator.alloc_last(PAGE), Some(first));
        assert_eq!(allocator.alloc_last(1 << 20), None);
    }

    #[test]
    fn a_run_grows_and_shrinks_where_it_lies() {
        let mut allocator = Allocator::new(1 << 20);
        let mut span = allocator.alloc_pages(4096).unwrap();
        assert!(allocator.grow(&mut span, 8192));
        assert_eq!(span, Span { offset: 0, bytes: 12288 });
        let behind = allocator.alloc_pages(1).unwrap();
        assert!(!allocator.grow(&mut span, 1));
        allocator.shrink(&mut span, 5000);
        assert_eq!(span.bytes, 8192);
        assert_eq!(allocator.alloc_pages(1).map(|span| span.offset), Some(8192));
        allocator.free(behind);
    }

    #[test]
    fn an_empty_slab_does_not_keep_a_large_run_from_fitting() {
        let mut allocator = Allocator::new(256 << 10);
        let small = allocator.alloc(1000).unwrap();
        assert_eq!(small.bytes, 1024);
        assert_eq!(allocator.alloc(256 << 10), None);
        allocator.free(small);
        assert_eq!(allocator.free_bytes(), 256 << 10);
        assert!(allocator.alloc(256 << 10).is_some());
    }

    #[test]
    fn what_is_cut_is_never_handed_out() {
        let mut allocator = Allocator::new(1 << 20);
        let low = allocator.alloc_pages(64 << 10).unwrap();
        allocator.cut(512 << 10);
        assert_eq!(allocator.usable_bytes(), 512 << 10);
        assert_eq!(allocator.alloc_pages((512 << 10) - low.bytes + 1), None);
        assert!(allocator.alloc_pages((512 << 10) - low.bytes).is_some());
        assert_eq!(allocator.free_bytes(), 0);
    }

    #[test]
    fn a_slab_behind_a_cut_takes_no_more_blocks_and_goes_with_its_last_one() {
        let mut allocator = Allocator::new(1 << 20);
        let low = allocator.alloc_pages(512 << 10).unwrap();
        let [first, second] = [(); 2].map(|()| allocator.alloc(1000).unwrap());
        allocator.cut(512 << 10);
        assert_eq!(allocator.alloc(1000), None, "the memory behind it is not there");
        allocator.free(first);
        assert_eq!(allocator.alloc(1000), None);
        allocator.free(second);
        allocator.free(low);
        assert_eq!((allocator.free_bytes(), allocator.usable_bytes()), (512 << 10, 512 << 10));
    }

    #[test]
    fn what_is_lost_is_lost_once_and_what_is_left_lies_apart() {
        const UNIT: u64 = 128 << 10;
        let mut allocator = Allocator::new(8 * UNIT);
        let [front, middle, behind] = [3, 2, 3].map(|units| allocator.alloc_pages(units * UNIT).unwrap());
        allocator.lose(middle);
        allocator.free(behind);
        assert_eq!(allocator.usable_bytes(), 6 * UNIT);
        let fits = |units: &[u64]| allocator.has_room_for(units.iter().map(|units| (units * UNIT, true)), 0, UNIT);
        assert!(fits(&[3, 3]) && fits(&[2, 1, 1, 2]) && fits(&[]));
        assert!(!fits(&[4]) && !fits(&[2, 2, 2]) && !fits(&[3, 3, 1]));
        allocator.cut(4 * UNIT);
        assert_eq!(allocator.usable_bytes(), 3 * UNIT, "half of what is lost is behind it");
        allocator.cut(UNIT);
        allocator.free(front);
        assert_eq!((allocator.usable_bytes(), allocator.free_bytes()), (UNIT, UNIT));
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_everything_comes_back(
            steps in prop::collection::vec((0u8..4, 1u64..80_000), 1..300),
        ) {
            const TOTAL: u64 = 4 << 20;
            let mut allocator = Allocator::new(TOTAL);
            let mut live: BTreeMap<u64, (Span, bool)> = BTreeMap::new();
            for (action, size) in steps {
                let nth = (size as usize) % live.len().max(1);
                match action {
                    0 | 1 => {
                        let paged = action == 1;
                        let Some(span) = (if paged { allocator.alloc_pages(size) } else { allocator.alloc(size) }) else {
                            prop_assert!(live.values().map(|(span, _)| span.bytes).sum::<u64>() > TOTAL / 8);
                            continue;
                        };
                        prop_assert!(span.bytes >= size && span.end() <= TOTAL && span.offset % 64 == 0);
                        if !paged {
                            prop_assert_eq!(span.bytes, Allocator::rounded(size));
                        }
                        let before = live.range(..=span.offset).next_back().map(|(_, (span, _))| *span);
                        let after = live.range(span.offset..).next().map(|(_, (span, _))| *span);
                        prop_assert!(before.is_none_or(|before| before.end() <= span.offset), "{:?} {:?}", before, span);
                        prop_assert!(after.is_none_or(|after| after.offset >= span.end()), "{:?} {:?}", span, after);
                        live.insert(span.offset, (span, paged || size > slabs::SLOT_MAX));
                    }
                    2 => {
                        if let Some(key) = live.keys().nth(nth).copied() {
                            allocator.free(live.remove(&key).unwrap().0);
                        }
                    }
                    _ => {
                        if let Some((span, true)) = live.values_mut().nth(nth) {
                            if size % 2 == 0 {
                                allocator.shrink(span, size.min(span.bytes));
                            } else {
                                allocator.grow(span, size);
                            }
                        }
                        let spans: Vec<Span> = live.values().map(|(span, _)| *span).collect();
                        prop_assert!(spans.windows(2).all(|pair| pair[0].end() <= pair[1].offset));
                    }
                }
            }
            for (span, _) in live.into_values() {
                allocator.free(span);
            }
            prop_assert_eq!(allocator.free_bytes(), TOTAL);
            prop_assert_eq!(allocator.alloc_pages(TOTAL).map(|span| span.bytes), Some(TOTAL));
        }
    }
}
