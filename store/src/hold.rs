//! Who owns which bytes of the region: the two places where spans become memory.
//!
//! [`OwnedSpan`] is a span nobody else knows of (an unsealed output, a fill, scratch, a chunk of the reserve); [`Hold`]
//! keeps sealed bytes where they are while somebody reads them. Both give the bytes back when they are dropped.
#![allow(unsafe_code)] // The contracts of `Region::lease` and `Region::view`; see region.rs.

use std::{fmt, sync::Arc};

use crate::{
    alloc::Span,
    region::{Lease, View},
    shared::Shared,
    table::ExtentKey,
};

/// Where a span goes when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The store's budget.
    Budget,
    /// The executors' reserve.
    Reserve,
}

/// Bytes of the region that only their owner knows, to read and write.
pub(crate) struct OwnedSpan {
    shared: Arc<Shared>,
    /// `None` only while it is taken apart.
    lease: Option<Lease>,
    home: Home,
}

impl OwnedSpan {
    /// Takes a span that was allocated just now, and gets memory behind it.
    ///
    /// # Errors
    /// The machine has no memory; the span is free again and what lies beyond is out of use.
    ///
    /// # Safety
    /// As [`Region::lease`](crate::region::Region::lease): the caller got the span from the allocator that `home` says,
    /// or from the table as loading, and gives it to nobody else.
    unsafe fn new(shared: &Arc<Shared>, span: Span, home: Home) -> std::io::Result<OwnedSpan> {
        if let Err(error) = shared.region.back(span.end()) {
            shared.memory_refused(span, home);
            return Err(error);
        }
        // SAFETY: passed on to the caller.
        let lease = unsafe { shared.region.lease(span) };
        Ok(OwnedSpan { shared: shared.clone(), lease: Some(lease), home })
    }

    pub fn span(&self) -> Span {
        self.lease().span()
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("only taken when it is gone")
    }

    pub fn bytes(&self) -> &[u8] {
        self.lease().bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.lease.as_mut().expect("only taken when it is gone").bytes_mut()
    }

    /// Makes it at least `extra` bytes longer where it lies, if the memory behind it is free. Page-level spans only.
    pub fn grow(&mut self, extra: u64) -> bool {
        debug_assert_eq!(self.home, Home::Budget);
        let before = self.span();
        let mut span = before;
        if !self.shared.with(|state| state.grow(&mut span, extra)) {
            return false;
        }
        if self.lease.as_mut().expect("only taken when it is gone").resize(span).is_err() {
            self.shared.with(|state| state.shrink(&mut span, before.bytes));
            return false;
        }
        true
    }

    /// Gives all but the first `bytes` back. Page-level spans only.
    pub fn shrink(&mut self, bytes: u64) {
        let mut span = self.span();
        let keep = bytes.next_multiple_of(crate::alloc::PAGE);
        if keep >= span.bytes {
            return;
        }
        // The lease goes first: what the allocator has may be handed out at once.
        let lease = self.lease.as_mut().expect("only taken when it is gone");
        lease.resize(Span { bytes: keep, ..span }).expect("a shorter span needs no memory");
        self.shared.with(|state| state.shrink(&mut span, bytes));
    }

    /// Two of one: the first `bytes`, and the rest. Page-level spans of more bytes, cut between pages.
    pub fn split(mut self, bytes: u64) -> (OwnedSpan, OwnedSpan) {
        let Span { offset, bytes: all } = self.span();
        assert!(bytes.is_multiple_of(crate::alloc::PAGE) && 0 < bytes && bytes < all, "{bytes} of {all} bytes");
        let lease = self.lease.as_mut().expect("only taken when it is gone");
        lease.resize(Span { offset, bytes }).expect("a shorter span needs no memory");
        // SAFETY: these bytes were the other lease's until just now, and are nobody's else.
        let rest = unsafe { self.shared.region.lease(Span { offset: offset + bytes, bytes: all - bytes }) };
        let rest = OwnedSpan { shared: self.shared.clone(), lease: Some(rest), home: self.home };
        (self, rest)
    }

    /// The span alone, for the table: whoever has it owns the bytes.
    pub fn into_span(mut self) -> Span {
        self.lease.take().expect("only taken when it is gone").into_span()
    }
}

impl Drop for OwnedSpan {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let span = lease.into_span();
            match self.home {
                Home::Budget => self.shared.with(|state| state.free(span)),
                Home::Reserve => self.shared.reserve.give_back(span),
            }
        }
    }
}

impl fmt::Debug for OwnedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSpan").field("lease", &self.lease).field("home", &self.home).finish_non_exhaustive()
    }
}

/// What is kept in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// A pinned extent.
    Extent(ExtentKey),
    /// A private copy.
    Private(Span),
}

/// Keeps sealed bytes where they are until it is dropped.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    held: Held,
}

impl Hold {
    /// Takes over a pin or a sealed private span that the state granted.
    pub fn new(shared: Arc<Shared>, held: Held) -> Hold {
        Hold { shared, held }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.with(|state| match self.held {
            Held::Extent(extent) => state.unpin(extent),
            Held::Private(span) => state.free(span),
        });
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({:?})", self.held)
    }
}

impl Shared {
    /// Owns a span that the allocator handed to the caller just now.
    pub(crate) fn own(self: &Arc<Self>, span: Span, home: Home) -> std::io::Result<OwnedSpan> {
        // SAFETY: callers got the span from `State::allocate`, `Reserve::chunk` or a granted request, which hand each
        // span to one caller only, and keep no copy of it that they use.
        unsafe { OwnedSpan::new(self, span, home) }
    }

    /// The span of a load, which is the loader's alone: its extent is marked as loading, or its request does not answer
    /// a claim, until the loader has reported.
    pub(crate) fn load_target(&self, span: Span) -> std::io::Result<Lease> {
        self.region.back(span.end())?;
        // SAFETY: as said above; one job exists for a span, and it is run once.
        Ok(unsafe { self.region.lease(span) })
    }

    /// Sealed bytes that a [`Hold`], or a mark in the table (writing, pinned as a source), keeps where they are.
    pub(crate) fn view(&self, offset: u64, bytes: u64) -> View {
        // SAFETY: callers keep the hold beside the view, and run disk jobs only until they report. Sealed bytes are
        // never leased again before they are freed.
        unsafe { self.region.view(offset, bytes) }
    }
}
