//! A slab that grows by chunks: a million entries cost their own size, not twice it while a vector doubles. The first chunk
//! does double, so that few entries, as a small job has them, cost little.

/// Index into an [`Arena`].
pub(crate) type Index = u32;

const CHUNK: usize = 4096;

/// Entries with stable indices; freed slots are used again, the last freed first.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<Index>,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Arena<T> {
    pub(crate) fn insert(&mut self, value: T) -> Index {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            *self.slot(index) = Some(value);
            return index;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let chunks = self.chunks.len();
        let chunk = self.chunks.last_mut().expect("a chunk was just pushed");
        chunk.push(Some(value));
        Index::try_from((chunks - 1) * CHUNK + chunk.len() - 1).expect("fewer than 2^32 entries")
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<T> {
        let removed = self.slot(index).take();
        if removed.is_some() {
            self.len -= 1;
            self.free.push(index);
        }
        removed
    }

    fn slot(&mut self, index: Index) -> &mut Option<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    pub(crate) fn get(&self, index: Index) -> Option<&T> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)?.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the entries themselves, free slots included.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum::<usize>() * size_of::<Option<T>>()
            + self.free.capacity() * size_of::<Index>()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Index, &mut T)> {
        let chunks = self.chunks.iter_mut().enumerate();
        chunks.flat_map(|(chunk, entries)| {
            let entries = entries.iter_mut().enumerate();
            entries.filter_map(move |(at, entry)| Some(((chunk * CHUNK + at) as Index, entry.as_mut()?)))
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &T)> {
        self.chunks.iter().flatten().enumerate().filter_map(|(index, slot)| Some((index as Index, slot.as_ref()?)))
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
        self.slot(index).as_mut().expect("the index of a live entry")
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
        assert_eq!(arena.insert(7), indices[5]);
        assert_eq!(arena.len(), 10_000);
    }
}
