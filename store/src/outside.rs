//! Memory that somebody takes beside the region, counted in the same budget.

use std::{fmt, sync::Arc};

use crate::shared::Shared;

/// Says how much memory something takes that is not the store's: tables of a job, lists, buffers. It is never refused, since
/// it is there already; the store gives way by as much. Nothing any more when it is dropped.
///
/// For what can be refused ask for [`scratch`](crate::Store::scratch).
pub struct Outside {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Outside {
    pub(crate) fn new(shared: Arc<Shared>) -> Outside {
        Outside { shared, bytes: 0 }
    }

    /// It takes so many bytes now.
    pub fn set(&mut self, bytes: u64) {
        if bytes != self.bytes {
            self.shared.with(|state| state.tell_outside(self.bytes, bytes));
            self.bytes = bytes;
        }
    }

    /// What was said last.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({} bytes)", self.bytes)
    }
}
