//! Which row of a key stays.

use crate::jobs::dedupe::Keep;

/// Goes through rows in order, and leaves one of each key.
#[derive(Debug)]
pub(super) struct Kept<T> {
    keep: Keep,
    /// The key of the rows that are looked at, and the one that stays of those so far.
    key: Vec<u8>,
    stays: Option<T>,
}

/// What is known of a row for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided<T> {
    Stays(T),
    /// It is left out.
    Dropped(T),
}

impl<T: Copy> Kept<T> {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, key: Vec::new(), stays: None }
    }

    /// The next row; which row is decided now: this one, the one before it, or none yet.
    pub(super) fn add(&mut self, key: &[u8], row: T) -> Option<Decided<T>> {
        match (&mut self.stays, self.keep) {
            (Some(_), Keep::First) if self.key == key => Some(Decided::Dropped(row)),
            (Some(stays), Keep::Last) if self.key == key => Some(Decided::Dropped(std::mem::replace(stays, row))),
            (stays, _) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                stays.replace(row).map(Decided::Stays)
            }
        }
    }

    /// There are no more rows of the last key, as at the end and before a row whose key no other has: the one that stays.
    pub(super) fn end(&mut self) -> Option<T> {
        self.stays.take()
    }
}
