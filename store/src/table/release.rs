//! Freeing parts of an object before the object: its extents go one by one, when all their bytes were released.

use std::ops::Range;

use super::{Freed, NONE, ObjectKey, Table};
use crate::meta::PartMeta;

impl Table {
    /// Nobody reads these parts of the object any more. An extent goes when all parts in it that have bytes were released. Said again of a
    /// part, it changes nothing.
    pub fn release(&mut self, key: ObjectKey, parts: Range<usize>, freed: &mut Freed) {
        let count = self.objects.get(key).directory.len();
        let released = self.released.entry(key).or_insert_with(|| vec![0; count.div_ceil(64)].into());
        let mut new = Vec::new();
        for part in parts {
            let (word, bit) = (&mut released[part / 64], 1 << (part % 64));
            if *word & bit == 0 {
                *word |= bit;
                new.push(part);
            }
        }
        // Runs of parts that were not.
        for run in new.chunk_by(|one, next| one + 1 == *next) {
            let slice = self.objects.get(key).directory.slice(run[0]..run[run.len() - 1] + 1);
            self.release_run(key, &slice, freed);
        }
    }

    /// Consecutive parts that were not released yet.
    fn release_run(&mut self, key: ObjectKey, parts: &[PartMeta], freed: &mut Freed) {
        let mut parts = parts.iter().filter(|part| part.bytes > 0).peekable();
        let mut previous = NONE;
        let mut extent = self.objects.get(key).first_extent;
        while extent != NONE && parts.peek().is_some() {
            let entry = self.extents.get_mut(extent);
            let next = entry.next_extent;
            let end = entry.start + entry.bytes;
            let here = std::iter::from_fn(|| parts.next_if(|part| part.offset < end));
            let released: u64 = here.map(|part| part.bytes).sum();
            entry.unreleased = entry.unreleased.saturating_sub(released);
            if released == 0 || entry.unreleased > 0 {
                previous = extent;
                extent = next;
                continue;
            }
            entry.object = NONE;
            if previous == NONE {
                self.objects.get_mut(key).first_extent = next;
            } else {
                self.extents.get_mut(previous).next_extent = next;
            }
            self.free_if_deleted(extent, freed);
            extent = next;
        }
    }

    /// Whether all bytes of these consecutive parts are still there, in memory or on disk.
    pub fn covers(&self, key: ObjectKey, parts: &[PartMeta]) -> bool {
        // One pass over both: the bytes of a part never lie across extents that are apart.
        let mut extents =
            self.extents_of(key).map(|(_, extent)| (extent.start, extent.start + extent.bytes)).peekable();
        parts.iter().filter(|part| part.bytes > 0).all(|part| {
            let mut at = part.offset;
            while let Some((start, end)) = extents.peek().copied().filter(|(start, _)| *start <= at) {
                at = at.max(end.max(start));
                if at >= part.offset + part.bytes {
                    return true;
                }
                extents.next();
            }
            false
        })
    }
}
