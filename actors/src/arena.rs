//! A slab that grows by chunks: a million entries cost their own size, not twice it while a vector doubles. The first chunk
//! does double, so that few entries, as a small job has them, cost little.
//!
//! Slots are used again, and each time under another generation, which an [`Index`] carries: one that was kept for longer than its entry
//! finds nothing, not what is in the slot by now. Generations are counted modulo 32: that makes a mistake loud, not impossible. So what belongs
//! to an entry is kept in it, and goes with it; nothing is kept beside an arena under the index of an entry of it.

use std::num::NonZeroU32;

/// Names an entry of an [`Arena`]. In the order of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Index(NonZeroU32);

/// Bits of an index that say which entry of a slot is meant; the others are the slot.
const GENERATION_BITS: u32 = 5;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const CHUNK: usize = 4096;

impl Index {
    fn new(slot: usize, generation: u8) -> Self {
        // Counted from 1, so that an index that may be none takes no more than one.
        let slot = u32::try_from(slot + 1).ok().filter(|slot| slot >> (u32::BITS - GENERATION_BITS) == 0);
        let bits = slot.expect("fewer than 2^27 entries") << GENERATION_BITS | u32::from(generation);
        Self(NonZeroU32::new(bits).expect("slots count from 1"))
    }

    fn slot(self) -> usize {
        (self.0.get() >> GENERATION_BITS) as usize - 1
    }

    fn generation(self) -> u8 {
        (self.0.get() & GENERATION_MASK) as u8
    }
}

/// Entries with stable indices; freed slots are used again, the last freed first.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    /// Slots without an entry.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    entries: Vec<Option<T>>,
    /// Of the entry of each slot; of the next one, where there is none.
    generations: Vec<u8>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Arena<T> {
    pub(crate) fn insert(&mut self, value: T) -> Index {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            let (chunk, at) = (&mut self.chunks[slot as usize / CHUNK], slot as usize % CHUNK);
            chunk.entries[at] = Some(value);
            return Index::new(slot as usize, chunk.generations[at]);
        }
        if self.chunks.last().is_none_or(|chunk| chunk.entries.len() == CHUNK) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            let (entries, generations) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
            self.chunks.push(Chunk { entries, generations });
        }
        let chunks = self.chunks.len();
        let chunk = self.chunks.last_mut().expect("a chunk was just pushed");
        chunk.entries.push(Some(value));
        chunk.generations.push(0);
        Index::new((chunks - 1) * CHUNK + chunk.entries.len() - 1, 0)
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<T> {
        let chunk = self.chunks.get_mut(index.slot() / CHUNK)?;
        let at = index.slot() % CHUNK;
        let removed = chunk.entries.get_mut(at).filter(|_| chunk.generations[at] == index.generation())?.take()?;
        chunk.generations[at] = (index.generation() + 1) & GENERATION_MASK as u8;
        self.len -= 1;
        self.free.push(index.slot() as u32);
        Some(removed)
    }

    pub(crate) fn get(&self, index: Index) -> Option<&T> {
        let (chunk, at) = (self.chunks.get(index.slot() / CHUNK)?, index.slot() % CHUNK);
        chunk.entries.get(at)?.as_ref().filter(|_| chunk.generations[at] == index.generation())
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut T> {
        let (chunk, at) = (self.chunks.get_mut(index.slot() / CHUNK)?, index.slot() % CHUNK);
        chunk.entries.get_mut(at)?.as_mut().filter(|_| chunk.generations[at] == index.generation())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the entries themselves, free slots included.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.entries.capacity()).sum::<usize>() * (size_of::<Option<T>>() + 1)
            + self.free.capacity() * size_of::<u32>()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Index, &mut T)> {
        let chunks = (0..).step_by(CHUNK).zip(&mut self.chunks);
        chunks.flat_map(|(first, chunk)| {
            let entries = (first..).zip(&mut chunk.entries).zip(&chunk.generations);
            entries.filter_map(|((slot, entry), generation)| Some((Index::new(slot, *generation), entry.as_mut()?)))
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &T)> {
        let chunks = (0..).step_by(CHUNK).zip(&self.chunks);
        chunks.flat_map(|(first, chunk)| {
            let entries = (first..).zip(&chunk.entries).zip(&chunk.generations);
            entries.filter_map(|((slot, entry), generation)| Some((Index::new(slot, *generation), entry.as_ref()?)))
        })
    }
}

impl<T> std::ops::Index<Index> for Arena<T> {
    type Output = T;

    fn index(&self, index: Index) -> &T {
        self.get(index).expect("the index of a live entry")
    }
}

impl<T> std::ops::IndexMut<Index> for Arena<T> {
    fn index_mut(&mut self, index: Index) -> &mut T {
        self.get_mut(index).expect("the index of a live entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut arena = Arena::default();
        let indices: Vec<_> = (0..10_000).map(|value| arena.insert(value)).collect();
        assert_eq!(arena[indices[9_999]], 9_999);
        assert_eq!(arena.remove(indices[5]), Some(5));
        assert_eq!(arena.remove(indices[5]), None);
        assert!(arena.get(indices[5]).is_none());
        assert_eq!(arena.insert(7).slot(), indices[5].slot());
        assert_eq!(arena.len(), 10_000);
        assert_eq!(arena.iter().map(|(_, value)| *value).sum::<u32>(), 9_999 * 10_000 / 2 + 2);
        assert!(arena.iter().zip(arena.iter().skip(1)).all(|((one, _), (next, _))| one < next));
    }

    #[test]
    fn an_index_that_is_kept_for_longer_than_its_entry_finds_nothing() {
        let mut arena = Arena::default();
        let mut old = arena.insert(0);
        for value in 1..100 {
            arena.remove(old);
            let new = arena.insert(value);
            assert!(arena.get(old).is_none() && arena.get_mut(old).is_none());
            assert_eq!(arena.remove(old), None);
            assert_eq!((arena[new], arena.iter().next()), (value, Some((new, &value))));
            old = new;
        }
    }
}
