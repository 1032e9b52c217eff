//! Memory that somebody takes beside the region, counted in the same budget.

use std::{fmt, sync::Arc};

use crate::{error::StoreError, lent::LentGrants, options::Beside, shared::Shared};

/// Says how much memory something takes that is not the store's: tables of a job, lists, buffers. It is never refused, since
/// it is there already; the store gives way by as much. Nothing any more when it is dropped.
///
/// What can be refused is asked for: [`Store::outside`](crate::Store::outside), [`Store::scratch`](crate::Store::scratch).
pub struct Told {
    shared: Arc<Shared>,
    kind: Beside,
    bytes: u64,
}

impl Told {
    pub(crate) fn new(shared: Arc<Shared>, kind: Beside) -> Told {
        Told { shared, kind, bytes: 0 }
    }

    /// It takes so many bytes now.
    pub fn set(&mut self, bytes: u64) {
        if bytes != self.bytes {
            self.shared.with(|state| state.tell_outside(self.kind, self.bytes, bytes));
            self.bytes = bytes;
        }
    }

    /// What was said last.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Told({} bytes)", self.bytes)
    }
}

/// The right to so many bytes beside the region: of decoders, builders, pools, processes. What was granted is the region's no more, so
/// whoever has it may allocate as much. Nothing any more when it is dropped.
///
/// Requests of tasks that have not begun may wait for what a grant holds: whoever has one gives it back when its task ends.
pub struct Grant {
    from: Granter,
    bytes: u64,
}

#[derive(Clone)]
enum Granter {
    Own(Arc<Shared>),
    Lent(LentGrants),
}

impl Grant {
    /// Of a store of this process, which has granted it.
    pub(crate) fn own(shared: Arc<Shared>, bytes: u64) -> Grant {
        Grant { from: Granter::Own(shared), bytes }
    }

    /// Of the store of another process, which has granted it.
    pub(crate) fn lent(grants: LentGrants, bytes: u64) -> Grant {
        Grant { from: Granter::Lent(grants), bytes }
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it larger or smaller. Smaller is always granted: have given the memory back before. Larger is granted or denied within some 100
    /// ms, as [`Store::outside`](crate::Store::outside).
    ///
    /// # Errors
    /// `Denied` and `NeverGranted`, as there; it is as large as it was then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.resize_with(bytes, Shared::grant_outside)
    }

    /// As [`resize`](Self::resize), for memory that somebody has already, unasked: the machine has it no more, and is not asked whether it has.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn resize_to_used(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.resize_with(bytes, Shared::grant_used)
    }

    fn resize_with(
        &mut self,
        bytes: u64,
        grant: impl FnOnce(&Shared, u64, u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match (&self.from, bytes.checked_sub(self.bytes)) {
            (_, Some(0)) => {}
            (Granter::Own(shared), Some(more)) => grant(shared, self.bytes, more)?,
            (Granter::Own(shared), None) => shared.with(|state| state.end_grant(self.bytes - bytes)),
            (Granter::Lent(grants), Some(more)) => grants.more(more)?,
            (Granter::Lent(grants), None) => grants.less(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Adds another grant of the same store to it.
    pub(crate) fn merge(&mut self, mut other: Grant) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes a part out of it, which is a grant of its own; `None`: it has not so much.
    pub fn split(&mut self, bytes: u64) -> Option<Grant> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(Grant { from: self.from.clone(), bytes })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // Smaller is never refused.
        let _ = self.resize(0);
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({} bytes)", self.bytes)
    }
}
