//! Values with small numbers as names, which are used again.

/// A vector with holes.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    items: Vec<Option<T>>,
    holes: Vec<u32>,
}

impl<T> Arena<T> {
    pub fn new() -> Arena<T> {
        Arena { items: Vec::new(), holes: Vec::new() }
    }

    pub fn insert(&mut self, item: T) -> u32 {
        match self.holes.pop() {
            Some(key) => {
                self.items[key as usize] = Some(item);
                key
            }
            None => {
                // A quarter more each time, where a vector doubles: with a million objects that is 20 MB less slack.
                if self.items.len() == self.items.capacity() {
                    self.items.reserve_exact((self.items.len() / 4).max(64));
                }
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        }
    }

    /// # Panics
    /// There is no such item: a number was used after it was removed.
    pub fn get(&self, key: u32) -> &T {
        self.items[key as usize].as_ref().expect("a number of a live item")
    }

    /// # Panics
    /// As [`Arena::get`].
    pub fn get_mut(&mut self, key: u32) -> &mut T {
        self.items[key as usize].as_mut().expect("a number of a live item")
    }

    /// # Panics
    /// As [`Arena::get`].
    pub fn remove(&mut self, key: u32) -> T {
        self.holes.push(key);
        self.items[key as usize].take().expect("a number of a live item")
    }
}
