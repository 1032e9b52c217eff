//! Memory that readers and writers of files take, asked for before it is taken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_store::Store;

/// Where memory is asked for: what decoders inflate and build lies beside the store, and is counted with it.
///
/// Implementers owe: [`take`](Self::take) answers at once, with all of what was asked for or nothing; what was taken counts until it is given back; asking for nothing is
/// granted. Whoever is denied gets an error, and nothing was taken.
pub trait MemoryBudget: Send + Sync {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// [`MemoryDenied`]: there are not so many.
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied>;

    /// Gives back so many of the bytes that were taken.
    fn give_back(&self, bytes: u64);
}

/// So many bytes were asked for, and are not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes of memory were denied")]
pub struct MemoryDenied {
    /// How many more bytes were asked for.
    pub wanted: u64,
}

/// Bytes that somebody has of a budget. They are given back when it is dropped.
pub struct Reservation {
    budget: Arc<dyn MemoryBudget>,
    bytes: u64,
}

impl Reservation {
    /// Of nothing so far.
    pub fn none(budget: &Arc<dyn MemoryBudget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Of so many bytes.
    ///
    /// # Errors
    /// As [`MemoryBudget::take`].
    pub fn of(budget: &Arc<dyn MemoryBudget>, bytes: u64) -> Result<Self, MemoryDenied> {
        let mut reservation = Self::none(budget);
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it larger or smaller. Smaller is never denied: have given the memory back before.
    ///
    /// # Errors
    /// As [`MemoryBudget::take`]; it is as large as it was then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), MemoryDenied> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => (),
            Some(more) => self.budget.take(more)?,
            None => self.budget.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Takes another one of the same budget into it.
    pub fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Makes it larger where it is smaller than that.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn at_least(&mut self, bytes: u64) -> Result<(), MemoryDenied> {
        self.resize(bytes.max(self.bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} bytes)", self.bytes)
    }
}

/// A budget of a fixed number of bytes: of a program without a store, and of tests.
#[derive(Debug)]
pub struct FixedBudget {
    bytes_max: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl FixedBudget {
    /// Of so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// How many bytes are taken now.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Most bytes that were taken at any time.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl MemoryBudget for FixedBudget {
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let before = before.map_err(|_| MemoryDenied { wanted: bytes })?;
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes were given back of {before} that were taken");
    }
}

/// Memory beside the region of a store ([`Store::outside`]), one grant that grows and shrinks. It is asked for in steps of 1 MiB, of which one is
/// kept when less is used, so that a page of a file is not a question to the store. An answer may take some 100 ms, while the region gives way.
pub struct StoreBudget {
    state: parking_lot::Mutex<StoreState>,
}

struct StoreState {
    used: u64,
    grant: exobus_store::Grant,
}

/// Bytes by which a store is asked for more.
const STEP: u64 = 1 << 20;

impl StoreBudget {
    /// Memory of that store; none so far.
    pub fn new(store: &Store) -> Self {
        Self { state: parking_lot::Mutex::new(StoreState { used: 0, grant: store.no_grant() }) }
    }
}

impl MemoryBudget for StoreBudget {
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
        let denied = MemoryDenied { wanted: bytes };
        let mut state = self.state.lock();
        let used = state.used.checked_add(bytes).ok_or(denied)?;
        if state.grant.bytes() < used {
            let wanted = used.checked_next_multiple_of(STEP).ok_or(denied)?;
            state.grant.resize(wanted).map_err(|_| denied)?;
        }
        state.used = used;
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        assert!(state.used >= bytes, "{bytes} bytes were given back of {} that were taken", state.used);
        state.used -= bytes;
        let kept = state.used.next_multiple_of(STEP) + STEP;
        if state.grant.bytes() > kept {
            // Smaller is never refused.
            let _ = state.grant.resize(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_budget_denies_what_it_has_not_and_takes_nothing_then() {
        let fixed = Arc::new(FixedBudget::new(100));
        let budget: Arc<dyn MemoryBudget> = fixed.clone();
        let mut one = Reservation::of(&budget, 60).unwrap();
        assert_eq!(Reservation::of(&budget, 41).unwrap_err(), MemoryDenied { wanted: 41 });
        assert_eq!(one.resize(u64::MAX).unwrap_err(), MemoryDenied { wanted: u64::MAX - 60 });
        assert_eq!((one.bytes(), fixed.used_bytes()), (60, 60));
        one.resize(100).unwrap();
        one.resize(10).unwrap();
        assert_eq!((fixed.used_bytes(), fixed.peak_bytes()), (10, 100));
        drop(one);
        assert_eq!(fixed.used_bytes(), 0);
    }
}
