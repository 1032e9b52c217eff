//! The executors' fixed reserve: what a running task can always have, however full the store is.
//!
//! Carved from the budget at open. Each executor has one chunk to write with when memory is full; the rest is for the
//! windows of streaming readers. Whoever comes when all is taken (more threads write than there are executors) tries
//! the budget instead, and gets a clear error when that is full, too.

use parking_lot::Mutex;

use crate::alloc::{Allocator, PAGE, Span};

/// Least reserve of an executor.
pub(crate) const RESERVE_MIN: u64 = 2 << 20;
/// Least and largest chunk of a writer.
const CHUNK_MIN: u64 = 1 << 20;
const CHUNK_MAX: u64 = 4 << 20;

/// The two kinds of memory in the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Chunks of writers.
    Chunks,
    /// Windows of readers.
    Windows,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// Where the reserve begins in the region.
    start: u64,
    chunk_bytes: u64,
    pools: Mutex<Pools>,
}

#[derive(Debug)]
struct Pools {
    chunks: Vec<Span>,
    windows: Allocator,
}

impl Reserve {
    /// `per_executor` is a multiple of 4096 and at least [`RESERVE_MIN`].
    pub fn new(start: u64, executors: u64, per_executor: u64) -> Reserve {
        let chunk_bytes = (per_executor / 4).clamp(CHUNK_MIN, CHUNK_MAX) / PAGE * PAGE;
        let chunks = (0..executors).rev().map(|nth| Span { offset: start + nth * chunk_bytes, bytes: chunk_bytes });
        let windows = Allocator::new(executors * (per_executor - chunk_bytes));
        let start_of_windows = start + executors * chunk_bytes;
        Reserve { start: start_of_windows, chunk_bytes, pools: Mutex::new(Pools { chunks: chunks.collect(), windows }) }
    }

    /// Bytes of a writer's chunk: a multiple of 4096, at least 1 MiB.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// A chunk to write with.
    pub fn chunk(&self) -> Option<Span> {
        self.pools.lock().chunks.pop()
    }

    /// A window to read with.
    pub fn window(&self, bytes: u64) -> Option<Span> {
        let span = self.pools.lock().windows.alloc_pages(bytes)?;
        Some(Span { offset: span.offset + self.start, ..span })
    }

    pub fn give_back(&self, pool: Pool, span: Span) {
        let mut pools = self.pools.lock();
        match pool {
            Pool::Chunks => pools.chunks.push(span),
            Pool::Windows => pools.windows.free(Span { offset: span.offset - self.start, ..span }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_executor_has_a_chunk_and_readers_share_the_rest() {
        let reserve = Reserve::new(1 << 30, 3, 4 << 20);
        assert_eq!(reserve.chunk_bytes(), 1 << 20);
        let chunks: Vec<Span> = (0..3).map(|_| reserve.chunk().unwrap()).collect();
        assert_eq!(chunks[0].offset, 1 << 30);
        assert_eq!(reserve.chunk(), None);
        let window = reserve.window(9 << 20).unwrap();
        assert_eq!(window, Span { offset: (1 << 30) + (3 << 20), bytes: 9 << 20 });
        assert_eq!(reserve.window(1), None);
        reserve.give_back(Pool::Windows, window);
        assert!(reserve.window(4096).is_some());
        reserve.give_back(Pool::Chunks, chunks[1]);
        assert_eq!(reserve.chunk(), Some(chunks[1]));
    }
}
