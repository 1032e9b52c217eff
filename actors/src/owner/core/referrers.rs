//! Who refers to an entry of a table: a list that is looked at now and then, and may name some that do so no more.

use crate::arena::Index;

/// A list to which one is added at constant cost; those that are gone are left out when it is full.
#[derive(Debug, Default)]
pub(super) struct Referrers(Vec<Index>);

impl Referrers {
    /// Another one, or the last one again; `refers`: whether one of the list does so still.
    pub(super) fn add(&mut self, one: Index, refers: impl Fn(Index) -> bool) {
        if self.0.last() == Some(&one) {
            return;
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|listed| refers(*listed));
            if 2 * self.0.len() >= self.0.capacity() {
                self.0.reserve(self.0.len().max(1));
            }
        }
        self.0.push(one);
    }

    /// All that were added and may refer to it still.
    pub(super) fn listed(&self) -> &[Index] {
        &self.0
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Index>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    #[test]
    fn the_list_is_as_long_as_those_that_refer_are_many() {
        let (mut arena, mut list) = (Arena::default(), Referrers::default());
        for number in 0..1000 {
            let one = arena.insert(number);
            list.add(one, |listed| arena.get(listed).is_some());
            assert_eq!(list.listed().last(), Some(&one));
            if number >= 3 {
                arena.remove(list.listed()[list.listed().len() - 4]);
            }
        }
        assert!(list.bytes() <= 16 * size_of::<Index>(), "{} bytes for three", list.bytes());
        let all: Vec<Index> = (0..100).map(|number| arena.insert(number)).collect();
        all.iter().for_each(|one| list.add(*one, |listed| arena.get(listed).is_some()));
        assert!(all.iter().all(|one| list.listed().contains(one)), "who refers is in it");
    }
}
