//! Bytes of the region in a process that borrows them.
//!
//! # Soundness
//!
//! [`Region::lease`] and [`Region::view`] ask for what only the process with the allocator can know, so what they rest on is
//! the lender's word: room and scratch are lent to one borrower, and touched by nobody else before they come back or the
//! writer takes its next step; blocks and chunks are sealed (or a window that nobody fills before the next chunk is
//! asked for), and stay until they are given back. A lender that lies makes this process read or write wrong bytes of the
//! region, never of its own memory: both check that what they give out lies in the mapping.
#![allow(unsafe_code)] // The contracts of `Region::lease` and `Region::view`, as said above.

use std::{fmt, sync::Arc};

use super::{Lender, Loan, Place};
use crate::{
    alloc::Span,
    error::StoreError,
    region::{Lease, Region, View},
};

/// Tells the lender when something is not used any more.
pub(crate) struct LentLoan {
    lender: Arc<dyn Lender>,
    loan: Loan,
}

impl LentLoan {
    pub fn new(lender: &Arc<dyn Lender>, loan: Loan) -> LentLoan {
        LentLoan { lender: lender.clone(), loan }
    }
}

impl Drop for LentLoan {
    fn drop(&mut self) {
        self.lender.given_back(self.loan);
    }
}

/// Sealed bytes that the lender keeps where they are for as long as the caller keeps the loan, or the chunk.
pub(super) fn view(region: &Arc<Region>, place: Place) -> View {
    // SAFETY: see the module.
    unsafe { region.view(place.offset, place.bytes) }
}

/// Bytes that were lent to write. As long as this lives the process may store to them.
pub(crate) struct LentSpan {
    lease: Lease,
    region: Arc<Region>,
    /// `None`: room of a writer, which gives back as a whole.
    _loan: Option<LentLoan>,
}

impl LentSpan {
    /// # Errors
    /// The kernel has too many mappings of this process.
    pub fn new(region: &Arc<Region>, place: Place, loan: Option<LentLoan>) -> Result<LentSpan, StoreError> {
        let span = Span { offset: place.offset, bytes: place.bytes };
        region
            .allow_stores(span, true)
            .map_err(|source| StoreError::Region { bytes: place.bytes, source: Arc::new(source) })?;
        // SAFETY: see the module.
        let lease = unsafe { region.lease(span) };
        Ok(LentSpan { lease, region: region.clone(), _loan: loan })
    }

    pub fn bytes(&self) -> &[u8] {
        self.lease.bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.lease.bytes_mut()
    }
}

impl Drop for LentSpan {
    fn drop(&mut self) {
        // Before the loan goes. Where it fails, a stray pointer can do more than it should.
        let _ = self.region.allow_stores(self.lease.span(), false);
    }
}

impl fmt::Debug for LentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentSpan").field("lease", &self.lease).finish_non_exhaustive()
    }
}
