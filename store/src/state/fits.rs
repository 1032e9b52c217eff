//! Whether what is asked for can ever be had here, when nobody else has anything.

use super::{State, grants::RequestItem, outside::UNIT};
use crate::{alloc::Allocator, budget::Ticket, directory::byte_range, error::StoreError};

impl State {
    /// Whether so much can ever be granted here.
    ///
    /// # Errors
    /// [`StoreError::NeverGranted`], with both sizes.
    pub fn can_ever_grant(&self, bytes: u64) -> Result<(), StoreError> {
        let most = self.granted_max();
        if bytes > most { Err(StoreError::NeverGranted { bytes, most }) } else { Ok(()) }
    }

    /// Whether memory can hold blocks of these lengths together, with whether each is of whole pages, when nothing else is in it but
    /// so many bytes that are taken from it for what is beside it.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub(super) fn can_ever_hold(&self, blocks: &[(u64, bool)], outside: u64) -> Result<(), StoreError> {
        let paged: u64 = blocks.iter().filter(|(_, paged)| *paged).map(|(bytes, _)| *bytes).sum();
        let packed = blocks.iter().filter(|(_, paged)| !*paged).map(|(bytes, _)| *bytes);
        let units = outside.div_ceil(UNIT);
        let (need, capacity) = (paged + Allocator::rounded_together(packed) + units * UNIT, self.budget.capacity());
        if need > capacity
            || !self.allocator.is_whole() && !self.allocator.has_room_for(blocks.iter().copied(), units, UNIT)
        {
            return Err(StoreError::TooLarge { need, capacity });
        }
        Ok(())
    }

    /// Whether memory can still hold all of a request that waits. It could when the request came, or was granted what was revoked since.
    ///
    /// # Errors
    /// As [`can_ever_hold`](Self::can_ever_hold); an object or part that is not here.
    pub(super) fn can_still_hold(&self, ticket: Ticket) -> Result<(), StoreError> {
        if self.allocator.is_whole() {
            return Ok(());
        }
        let mut outside = 0;
        let block = |item: &RequestItem| {
            let range = match item {
                RequestItem::Local { object, parts } => byte_range(&self.find(object, *parts)?.2),
                RequestItem::Remote { metas } => byte_range(metas),
                RequestItem::Outside { bytes } => {
                    outside += bytes;
                    0..0
                }
            };
            Ok((range.end - range.start, self.plan(item)?.is_paged()))
        };
        let blocks = self.requests[&ticket].items.iter().map(block).collect::<Result<Vec<_>, StoreError>>()?;
        self.can_ever_grant(outside)?;
        self.can_ever_hold(&blocks, outside)
    }
}
