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

impl<T: Copy> Kept<T> {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, key: Vec::new(), stays: None }
    }

    /// The next row: one that stays for good or not at all is known then.
    pub(super) fn add(&mut self, key: &[u8], row: T, (kept, dropped): (&mut Vec<T>, &mut Vec<T>)) {
        match (&mut self.stays, self.keep) {
            (Some(_), Keep::First) if self.key == key => dropped.push(row),
            (Some(stays), Keep::Last) if self.key == key => dropped.push(std::mem::replace(stays, row)),
            (stays, _) => {
                kept.extend(stays.replace(row));
                self.key.clear();
                self.key.extend_from_slice(key);
            }
        }
    }

    /// The next row, whose key no row has that was given or will be.
    pub(super) fn add_alone(&mut self, row: T, kept: &mut Vec<T>) {
        kept.extend(self.stays.take());
        kept.push(row);
    }

    /// There are no more rows: the one of the last key.
    pub(super) fn end(&mut self) -> Option<T> {
        self.stays.take()
    }
}
