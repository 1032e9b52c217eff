//! Rows by the first bytes of their keys.

use std::cmp::Ordering;

use exobus_shuffle::kernels::order;

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
        Self(u128::from(prefix(key)) << 64 | u128::from(pick.batch) << 32 | u128::from(pick.row))
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

/// Puts so many entries, which are the same ones each time, in their order; `compare`: rows whose keys begin alike.
pub(super) fn in_order<I: Iterator<Item = Entry>>(
    rows: usize,
    entries: impl Fn() -> I,
    compare: impl Fn(Pick, Pick) -> Ordering,
) -> Vec<Entry> {
    let mut numbers = vec![0; rows];
    let sample = entries().step_by(rows.div_ceil(SAMPLE).max(1)).map(Entry::prefix);
    order(|| entries().map(|entry| entry.0), sample, &mut numbers);
    let mut ordered: Vec<Entry> = numbers.into_iter().map(Entry).collect();
    for alike in ordered.chunk_by_mut(begin_alike).filter(|alike| alike.len() > 1) {
        // What comes in runs is merged: this sort finds them.
        alike.sort_by(|one, other| compare(one.pick(), other.pick()));
    }
    ordered
}

/// Consecutive entries that begin alike: rows of one key are in one of these.
pub(super) fn alike(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    entries.chunk_by(begin_alike)
}

fn begin_alike(one: &Entry, other: &Entry) -> bool {
    one.prefix() == other.prefix()
}

/// How many bytes this key has in common with so many first bytes of another one.
pub(super) fn in_common(first: &[u8], common: usize, key: &[u8]) -> usize {
    match key.get(..common) {
        Some(begin) if begin == &first[..common] => common,
        _ => first[..common].iter().zip(key).take_while(|(one, other)| one == other).count(),
    }
}

/// The first bytes of a key as a number in their order.
#[inline]
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}
