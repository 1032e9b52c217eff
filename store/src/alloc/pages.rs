//! Runs of pages, lowest place first.

use std::collections::{BTreeMap, BTreeSet};

/// Four bins for each power of two of a u32.
const BINS: usize = 128;

/// In the bin of the very size, runs may be too short; so many of them are tried before larger ones are taken.
const TRIES: usize = 16;

/// Free runs of pages, kept by place and by size. A page number is a u32: regions up to 16 TiB.
#[derive(Debug)]
pub(crate) struct Pages {
    /// First page -> pages of each free run; neighbours are always joined.
    runs: BTreeMap<u32, u32>,
    /// First pages of the free runs of each size class.
    bins: Vec<BTreeSet<u32>>,
    /// Bit `b` is set where `bins[b]` is not empty.
    filled: u128,
    free: u32,
    /// First page -> pages of each run that is out of use, see [`Pages::lose`].
    lost: BTreeMap<u32, u32>,
    total: u32,
    /// Pages from here on are out of use, see [`Pages::cut`].
    end: u32,
}

fn bin_of(count: u32) -> usize {
    let log = count.ilog2();
    let next_two_bits = (u64::from(count) << 2 >> log) & 3;
    (log as usize) * 4 + next_two_bits as usize
}

impl Pages {
    pub fn new(total: u32) -> Pages {
        let mut pages = Pages {
            runs: BTreeMap::new(),
            bins: vec![BTreeSet::new(); BINS],
            filled: 0,
            free: 0,
            lost: BTreeMap::new(),
            total,
            end: total,
        };
        pages.free(0, total);
        pages
    }

    /// What it is like when everything has come back.
    pub fn emptied(&self) -> Pages {
        let mut pages = Pages { lost: self.lost.clone(), end: self.end, ..Pages::new(0) };
        let mut from = 0;
        for (&first, &count) in &self.lost {
            pages.free(from, first - from);
            from = first + count;
        }
        pages.free(from, self.end.saturating_sub(from));
        pages
    }

    /// Whether no pages are out of use.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.end == self.total
    }

    /// Pages that can be handed out when everything has come back.
    pub fn usable(&self) -> u32 {
        let lost = self.lost.iter().map(|(&first, &count)| (first + count).min(self.end).saturating_sub(first));
        self.end - lost.sum::<u32>()
    }

    #[cfg(test)]
    pub fn free_pages(&self) -> u32 {
        self.free
    }

    /// `count > 0` pages in a row.
    pub fn alloc(&mut self, count: u32) -> Option<u32> {
        let first = self.find(count)?;
        let taken = self.take_at(first, count);
        debug_assert!(taken);
        Some(first)
    }

    /// `count > 0` pages in a row, as far behind as there are any.
    pub fn alloc_last(&mut self, count: u32) -> Option<u32> {
        let (&first, &length) = self.runs.iter().rev().find(|&(_, &length)| length >= count)?;
        self.remove(first, length);
        if length > count {
            self.insert(first, length - count);
        }
        self.free -= count;
        Some(first + length - count)
    }

    /// The lowest run that fits, up to [`TRIES`] runs that nearly do.
    fn find(&self, count: u32) -> Option<u32> {
        let bin = bin_of(count);
        let fits = |first: &&u32| self.runs[first] >= count;
        let mut best = self.bins[bin].iter().take(TRIES).find(fits).copied();
        let mut larger = if bin + 1 < BINS { self.filled >> (bin + 1) << (bin + 1) } else { 0 };
        while larger != 0 {
            let lowest = self.bins[larger.trailing_zeros() as usize].first().copied();
            best = match (best, lowest) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            larger &= larger - 1;
        }
        best.or_else(|| self.bins[bin].iter().skip(TRIES).find(fits).copied())
    }

    /// Takes exactly these pages when they are the start of a free run.
    pub fn take_at(&mut self, first: u32, count: u32) -> bool {
        match self.runs.get(&first) {
            Some(&length) if length >= count && count > 0 => {
                self.remove(first, length);
                if length > count {
                    self.insert(first + count, length - count);
                }
                self.free -= count;
                true
            }
            _ => false,
        }
    }

    /// Gives pages back and joins them with free neighbours.
    pub fn free(&mut self, first: u32, count: u32) {
        // Pages behind a cut are not free again, they are gone.
        let count = count.min(self.end.saturating_sub(first));
        if count == 0 {
            return;
        }
        self.free += count;
        let (mut first, mut count) = (first, count);
        if let Some((&before, &length)) = self.runs.range(..first).next_back() {
            assert!(before + length <= first, "pages {first}.. were free already");
            if before + length == first {
                self.remove(before, length);
                (first, count) = (before, length + count);
            }
        }
        if let Some((&after, &length)) = self.runs.range(first..).next() {
            assert!(first + count <= after, "pages {first}.. were free already");
            if first + count == after {
                self.remove(after, length);
                count += length;
            }
        }
        self.insert(first, count);
    }

    /// Takes pages that are in use out of use: they are never free again.
    pub fn lose(&mut self, first: u32, count: u32) {
        self.lost.insert(first, count);
    }

    /// Takes all pages from `from` on out of use; those in use now leave when they are freed.
    pub fn cut(&mut self, from: u32) {
        self.end = self.end.min(from);
        let behind: Vec<(u32, u32)> =
            self.runs.iter().filter(|&(&first, &count)| first + count > from).map(|(&a, &b)| (a, b)).collect();
        for (first, count) in behind {
            self.remove(first, count);
            self.free -= count;
            if first < from {
                self.insert(first, from - first);
                self.free += from - first;
            }
        }
    }

    fn insert(&mut self, first: u32, count: u32) {
        let bin = bin_of(count);
        self.runs.insert(first, count);
        self.bins[bin].insert(first);
        self.filled |= 1 << bin;
    }

    fn remove(&mut self, first: u32, count: u32) {
        let bin = bin_of(count);
        self.runs.remove(&first);
        self.bins[bin].remove(&first);
        if self.bins[bin].is_empty() {
            self.filled &= !(1 << bin);
        }
    }
}
