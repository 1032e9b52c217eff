//! The executors' fixed reserve: what an output can always be written to disk with, however full the store is.
//!
//! Carved from the budget at open, and for writers that found no memory only; whatever else a task needs is granted before
//! it starts. A writer takes at most a quarter of what is left, so that one who comes later finds something, too, however
//! many write at a time: with smaller requests to the disk, but without waiting for the others.

use parking_lot::Mutex;

use crate::alloc::{Allocator, PAGE, Span};

/// Least reserve of an executor.
pub(crate) const RESERVE_MIN: u64 = 2 << 20;
/// No chunk is larger: a disk is not faster with more.
pub(crate) const CHUNK_MAX: u64 = 2 << 20;
/// A chunk is at most this share of what is free.
const SHARE_OF_FREE: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// Where the reserve begins in the region.
    start: u64,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    pages: Allocator,
    bytes: u64,
}

impl Reserve {
    /// `bytes` is a multiple of 4096.
    pub fn new(start: u64, bytes: u64) -> Reserve {
        Reserve { start, left: Mutex::new(Left { pages: Allocator::new(bytes), bytes }) }
    }

    /// Room of whole pages to write `wanted` bytes with, piece by piece: as much as that if it may be. `None`: there is not
    /// one page.
    pub fn chunk(&self, wanted: u64) -> Option<Span> {
        let mut left = self.left.lock();
        let most = (left.bytes / SHARE_OF_FREE / PAGE * PAGE).clamp(PAGE, CHUNK_MAX);
        let mut bytes = wanted.next_multiple_of(PAGE).clamp(PAGE, most);
        loop {
            match left.pages.alloc_pages(bytes) {
                Some(span) => {
                    left.bytes -= span.bytes;
                    return Some(Span { offset: span.offset + self.start, ..span });
                }
                // What is free may lie apart.
                None if bytes > PAGE => bytes = (bytes / 2).next_multiple_of(PAGE),
                None => return None,
            }
        }
    }

    pub fn give_back(&self, span: Span) {
        let mut left = self.left.lock();
        left.bytes += span.bytes;
        left.pages.free(Span { offset: span.offset - self.start, ..span });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writers_at_a_time_each_find_something() {
        let reserve = Reserve::new(1 << 30, 4 << 20);
        let chunks: Vec<Span> = std::iter::from_fn(|| reserve.chunk(u64::MAX / 2)).collect();
        assert_eq!(chunks[0], Span { offset: 1 << 30, bytes: 1 << 20 });
        assert_eq!(chunks[1].bytes, 3 << 18);
        assert!(chunks.len() > 20, "{} chunks", chunks.len());
        assert_eq!(chunks.iter().map(|chunk| chunk.bytes).sum::<u64>(), 4 << 20, "nothing is left over");
        assert!(chunks.iter().all(|chunk| chunk.bytes.is_multiple_of(PAGE)));
        reserve.give_back(chunks[1]);
        assert_eq!(reserve.chunk(100), Some(Span { bytes: PAGE, ..chunks[1] }), "no more than is asked for");
        assert_eq!(reserve.chunk(u64::MAX / 2).map(|chunk| chunk.bytes), Some(((3 << 18) - PAGE) / 4 / PAGE * PAGE));
    }

    #[test]
    fn what_lies_apart_is_given_in_smaller_chunks() {
        let reserve = Reserve::new(0, 64 * PAGE);
        let pages: Vec<Span> = (0..64).map(|_| reserve.chunk(1).unwrap()).collect();
        pages.iter().step_by(2).for_each(|page| reserve.give_back(*page));
        assert_eq!(reserve.chunk(1 << 20), Some(pages[0]));
    }
}
