//! Rows by the first bytes of their keys.

use std::cmp::Ordering;

use exobus_shuffle::cuts::key_prefix;
use exobus_shuffle::kernels::order;

use super::arrangement::Arranged;
use crate::block::Pick;

/// Entries that the kernel is shown beforehand.
const SAMPLE: usize = 1024;

/// Of each row: the first bytes of its key, and which row it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry(u128);

/// What an entry takes, with what those take meanwhile that begin alike.
pub(super) const ENTRY_BYTES: u64 = 2 * size_of::<Entry>() as u64;

impl Entry {
    /// Of a row whose key begins with these bytes, behind those that all keys begin with.
    #[inline]
    pub(super) fn new(key: &[u8], pick: Pick) -> Self {
        Self(u128::from(key_prefix(key)) << 64 | u128::from(pick.batch) << 32 | u128::from(pick.row))
    }

    #[inline]
    pub(super) fn prefix(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    pub(super) fn pick(self) -> Pick {
        Pick { batch: (self.0 >> 32) as u32, row: self.0 as u32 }
    }
}

/// Rows whose keys begin alike are compared as wholes.
pub(super) trait Rows {
    fn compare(&self, one: Pick, other: Pick) -> Ordering;
    /// The rows whose keys are looked at soon.
    fn rows(&self, pick: Pick) -> (&Arranged, usize);
}

/// Entries between asking for memory and looking at it.
const AHEAD: usize = 16;

/// Puts so many entries, which are the same ones each time, in their order, and calls `each` for those that begin alike, in their order: rows of one key are in one of these.
pub(super) fn in_order<I: Iterator<Item = Entry>>(
    rows: &impl Rows,
    count: usize,
    entries: impl Fn() -> I,
    mut each: impl FnMut(&[Entry]),
) -> Vec<Entry> {
    let mut numbers = vec![0; count];
    let sample = entries().step_by(count.div_ceil(SAMPLE).max(1)).map(Entry::prefix);
    order(|| entries().map(|entry| entry.0), sample, &mut numbers);
    let mut ordered: Vec<Entry> = numbers.into_iter().map(Entry).collect();
    let mut from = 0;
    while from < count {
        let prefix = ordered[from].prefix();
        let mut to = from;
        while ordered.get(to).is_some_and(|entry| entry.prefix() == prefix) {
            ask(&ordered, to + 2 * AHEAD, |pick| prefetch_ends(rows, pick));
            ask(&ordered, to + AHEAD, |pick| prefetch_key(rows, pick));
            to += 1;
        }
        let alike = &mut ordered[from..to];
        if alike.len() > 1 {
            // What comes in runs is merged: this sort finds them.
            alike.sort_by(|one, other| rows.compare(one.pick(), other.pick()));
        }
        each(alike);
        from = to;
    }
    ordered
}

/// Asks for what is needed of an entry, where it begins as the next one does: keys of random rows lie anywhere in memory.
#[inline]
fn ask(ordered: &[Entry], at: usize, what: impl Fn(Pick)) {
    if let Some([one, next]) = ordered.get(at..at + 2)
        && one.prefix() == next.prefix()
    {
        what(one.pick());
        what(next.pick());
    }
}

fn prefetch_ends(rows: &impl Rows, pick: Pick) {
    let (arranged, row) = rows.rows(pick);
    arranged.keys.prefetch_end(row);
}

fn prefetch_key(rows: &impl Rows, pick: Pick) {
    let (arranged, row) = rows.rows(pick);
    arranged.keys.prefetch(row);
}

/// How many bytes this key has in common with so many first bytes of another one.
pub(in crate::jobs) fn in_common(first: &[u8], common: usize, key: &[u8]) -> usize {
    match key.get(..common) {
        Some(begin) if begin == &first[..common] => common,
        _ => first[..common].iter().zip(key).take_while(|(one, other)| one == other).count(),
    }
}
