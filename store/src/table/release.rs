//! Freeing parts of an object before the object: its extents go one by one, when all their bytes were released.

use std::ops::Range;

use super::{Freed, NONE, ObjectKey, Table};

impl Table {
    /// Nobody reads these bytes of the object any more. An extent goes when all of its bytes were released; each byte
    /// is released once.
    pub fn release(&mut self, key: ObjectKey, bytes: Range<u64>, freed: &mut Freed) {
        let mut previous = NONE;
        let mut extent = self.objects.get(key).first_extent;
        while extent != NONE {
            let entry = self.extents.get_mut(extent);
            if entry.start >= bytes.end {
                break;
            }
            let next = entry.next_extent;
            let end = entry.start + entry.bytes;
            let released = end.min(bytes.end).saturating_sub(entry.start.max(bytes.start));
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

    /// Whether all of these bytes are still there, in memory or on disk.
    pub fn covers(&self, key: ObjectKey, bytes: Range<u64>) -> bool {
        let mut at = bytes.start;
        for (_, extent) in self.extents_of(key) {
            if at >= bytes.end || extent.start > at {
                break;
            }
            at = at.max(extent.start + extent.bytes);
        }
        at >= bytes.end
    }
}
