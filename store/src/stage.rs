//! Memory for everything a task reads, all at once or not at all.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    alloc::PAGE,
    block::{Block, Origin},
    budget::Ticket,
    directory::{PartSlice, byte_range},
    error::StoreError,
    fill::Fill,
    hold::{Held, Hold, Home, OwnedSpan},
    ids::{CopyId, RowHash},
    meta::{PartMeta, Parts},
    options::Class,
    outside::Grant,
    scratch::Scratch,
    shared::{Shared, Signal},
    state::{Claim, Described, Granted, RequestItem, Waiting},
};

/// What [`Store::stage`](crate::Store::stage) is asked for.
#[derive(Clone, Debug)]
pub struct StageRequest {
    /// What is needed at the same time.
    pub items: Vec<StageItem>,
    /// In which queue it waits.
    pub class: Class,
}

/// One thing a task reads.
#[derive(Clone, Debug)]
pub enum StageItem {
    /// Parts of an object of this store, as one block: in place where they lie in memory in one piece, else loaded.
    Local {
        /// The object.
        object: CopyId,
        /// Which of its parts.
        parts: Parts,
    },
    /// Room for a private copy of parts that come from another node. It never becomes an object of this store.
    Remote {
        /// The object there.
        object: CopyId,
        /// Its parts that come, consecutive, with the offsets they have in the object.
        metas: Vec<PartMeta>,
    },
    /// Memory for the task's own use, granted together with what it reads.
    Scratch {
        /// How much.
        bytes: u64,
    },
    /// Memory beside the region for the task's own use, as [`Store::outside`](crate::Store::outside), granted together with what it reads.
    Outside {
        /// How much.
        bytes: u64,
    },
}

/// What a ticket resolves to, in the order of the request's items.
#[derive(Debug)]
pub struct Staged {
    /// One for each item.
    pub items: Vec<StagedItem>,
    /// From asking until memory for all of it was granted.
    pub memory_wait: Duration,
    /// From then until the last read from disk had ended (and memory that is used for the first time was there).
    pub load_wait: Duration,
    prefetch: Option<Prefetched>,
}

impl Staged {
    /// The task starts: a prefetch counts as its arguments from now on, so nobody is asked to give it up. Dropping the
    /// value does the same, since what the items hold is all that is left of it then.
    pub fn promote(&mut self) {
        self.prefetch = None;
    }
}

/// One granted item.
#[allow(clippy::large_enum_variant, reason = "one for each argument of a task: few, and taken apart at once")]
#[derive(Debug)]
pub enum StagedItem {
    /// The bytes.
    Ready(Block),
    /// Room for the bytes, to be filled.
    Fill(Fill),
    /// Memory for the task's own use; whole pages, at least what was asked for.
    Scratch(Scratch),
    /// Memory beside the region.
    Outside(Grant),
}

/// Scratch is asked for like room for one part, in whole pages so that direct I/O can use it.
fn room(bytes: u64) -> PartMeta {
    PartMeta { offset: 0, bytes: bytes.next_multiple_of(PAGE), rows: 0, row_hash: RowHash::default(), checksum: 0 }
}

/// Counts memory as held for work that has not started.
struct Prefetched {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Prefetched {
    fn drop(&mut self) {
        self.shared.with(|state| state.prefetch_ended(self.bytes));
    }
}

impl fmt::Debug for Prefetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefetched({} bytes)", self.bytes)
    }
}

/// A request for memory; a future of what it grants.
///
/// Dropping it revokes the request: what it waits for is not needed, what it got and nobody claimed is free again. One
/// of [`Class::Prefetch`] that was granted and not claimed (awaited) yet may be revoked by the store in favour of
/// arguments; it then waits again, at its old place.
pub struct StageTicket {
    shared: Arc<Shared>,
    items: Vec<StageItem>,
    /// `None`: refused at once, or over.
    waiting: Option<(Ticket, Arc<Signal>)>,
    refused: Option<StoreError>,
    asked: Duration,
    /// When its memory was granted, as far as it was seen.
    granted: Option<Duration>,
}

impl StageTicket {
    pub(crate) fn new(shared: &Arc<Shared>, request: StageRequest) -> StageTicket {
        let StageRequest { items, class } = request;
        let wanted = items
            .iter()
            .map(|item| match item {
                StageItem::Local { object, parts } => RequestItem::Local { object: *object, parts: *parts },
                StageItem::Remote { metas, .. } => RequestItem::Remote { metas: metas.as_slice().into() },
                StageItem::Scratch { bytes } => RequestItem::Remote { metas: [room(*bytes)].into() },
                StageItem::Outside { bytes } => RequestItem::Outside { bytes: *bytes },
            })
            .collect();
        let asked = shared.request(|state| state.request(class, wanted));
        let (waiting, refused) = match asked {
            Ok(waiting) => (Some(waiting), None),
            Err(error) => (None, Some(error)),
        };
        let asked = shared.clock.now();
        StageTicket { shared: shared.clone(), items, waiting, refused, asked, granted: None }
    }

    /// What the request waits for, for people: `None` when it can be claimed.
    pub fn why(&self) -> Option<String> {
        let (ticket, _) = self.waiting.as_ref()?;
        match self.shared.with(|state| state.why(*ticket)) {
            Waiting::Memory { ahead, bytes } => Some(format!("memory for {bytes} bytes: {ahead} requests ahead")),
            Waiting::Disk { reads } => Some(format!("disk: {reads} blocks are being read")),
            Waiting::Nothing => None,
        }
    }

    /// Whether awaiting it would answer at once.
    pub fn is_ready(&self) -> bool {
        self.why().is_none()
    }

    /// Whether it waits for memory no longer: what is left is to read from disk, or to touch memory for the first time.
    pub fn has_memory(&self) -> bool {
        self.waiting.as_ref().is_none_or(|(ticket, _)| self.shared.with(|state| state.has_memory(*ticket)))
    }

    /// Waits, for threads that may block.
    ///
    /// # Errors
    /// As the future.
    pub fn wait(mut self) -> Result<Staged, StoreError> {
        loop {
            if let Some(result) = self.try_claim() {
                return result;
            }
            if let Some((_, signal)) = &self.waiting {
                signal.wait();
            }
        }
    }

    /// Takes what was granted, if everything was.
    fn try_claim(&mut self) -> Option<Result<Staged, StoreError>> {
        let Some((ticket, _)) = &self.waiting else {
            return Some(Err(self.refused.take().unwrap_or(StoreError::Cancelled)));
        };
        let ticket = *ticket;
        let claim = self.shared.with(|state| state.claim(ticket));
        let result = match claim {
            Claim::Wait if self.shared.is_closed() => {
                self.shared.with(|state| state.cancel(ticket));
                Err(StoreError::Cancelled)
            }
            Claim::Wait => {
                if self.granted.is_none() && self.shared.with(|state| state.has_memory(ticket)) {
                    self.granted = Some(self.shared.clock.now());
                }
                return None;
            }
            Claim::Failed(error) => Err(self.shared.explain(error)),
            Claim::Got { granted, described, class, bytes } => {
                let prefetch = (class == Class::Prefetch).then(|| Prefetched { shared: self.shared.clone(), bytes });
                let now = self.shared.clock.now();
                let memory_at = self.granted.unwrap_or(now);
                let (memory_wait, load_wait) = (memory_at.saturating_sub(self.asked), now.saturating_sub(memory_at));
                let items = self.hand_over(granted, described);
                items.map(|items| Staged { items, memory_wait, load_wait, prefetch })
            }
        };
        self.waiting = None;
        self.shared.forget(ticket);
        Some(result)
    }

    fn hand_over(
        &mut self,
        granted: Vec<Granted>,
        described: Vec<Option<Described>>,
    ) -> Result<Vec<StagedItem>, StoreError> {
        let mut staged = Vec::with_capacity(granted.len());
        let mut failed = None;
        for ((item, granted), described) in std::mem::take(&mut self.items).into_iter().zip(granted).zip(described) {
            // After an error the rest is still taken over, so that it is given back.
            match (item, described) {
                (_, Some(described)) => staged.push(StagedItem::Ready(self.ready(granted, described))),
                (StageItem::Remote { object, metas }, None) => match self.fill(granted, object, metas) {
                    Ok(fill) => staged.push(StagedItem::Fill(fill)),
                    Err(error) => failed = Some(error),
                },
                (StageItem::Scratch { bytes }, None) => match self.own(granted) {
                    Ok(span) => staged.push(StagedItem::Scratch(Scratch::new(span, room(bytes).bytes as usize))),
                    Err(error) => failed = Some(error),
                },
                (StageItem::Outside { bytes }, None) => {
                    staged.push(StagedItem::Outside(Grant::own(self.shared.clone(), bytes)));
                }
                (StageItem::Local { .. }, None) => unreachable!("what is local is described"),
            }
        }
        failed.map_or(Ok(staged), Err)
    }

    fn ready(&self, granted: Granted, described: Described) -> Block {
        let (held, offset, bytes) = match granted {
            Granted::Empty | Granted::Outside { .. } => return Block::new(described.origin, described.parts, None),
            Granted::Shared { extent, offset, bytes } => (Held::Extent(extent), offset, bytes),
            Granted::Private { span, bytes } => (Held::Private(span), span.offset, bytes),
        };
        let hold = Arc::new(Hold::new(self.shared.clone(), held));
        Block::new(described.origin, described.parts, Some((self.shared.view(offset, bytes), hold)))
    }

    fn fill(&self, granted: Granted, object: CopyId, metas: Vec<PartMeta>) -> Result<Fill, StoreError> {
        let origin = Origin { object, maker: 0, first_part: 0 };
        let range = byte_range(&metas);
        let count = metas.len();
        let parts = PartSlice::Many(metas.into(), 0..count);
        let span = self.own(granted)?;
        Ok(Fill::new(self.shared.clone(), origin, parts, range, span))
    }

    fn own(&self, granted: Granted) -> Result<Option<OwnedSpan>, StoreError> {
        match granted {
            Granted::Private { span, .. } => {
                let own = self.shared.own(span, Home::Budget);
                own.map(Some).map_err(|source| StoreError::Region { bytes: span.bytes, source: Arc::new(source) })
            }
            Granted::Empty | Granted::Shared { .. } | Granted::Outside { .. } => Ok(None),
        }
    }
}

impl Future for StageTicket {
    type Output = Result<Staged, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((_, signal)) = &self.waiting {
            signal.register(context.waker());
        }
        match self.try_claim() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl Drop for StageTicket {
    fn drop(&mut self) {
        if let Some((ticket, _)) = self.waiting.take() {
            self.shared.with(|state| state.cancel(ticket));
            self.shared.forget(ticket);
        }
    }
}

impl fmt::Debug for StageTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageTicket")
            .field("items", &self.items.len())
            .field("why", &self.why())
            .finish_non_exhaustive()
    }
}

/// A block that is there already, or the wait for it; see [`Store::get`](crate::Store::get).
#[derive(Debug)]
pub struct GetFuture(Get);

#[derive(Debug)]
enum Get {
    Ready(Option<Result<Block, StoreError>>),
    Waits(Box<StageTicket>),
}

impl GetFuture {
    pub(crate) fn ready(result: Result<Block, StoreError>) -> GetFuture {
        GetFuture(Get::Ready(Some(result)))
    }

    pub(crate) fn waits(ticket: StageTicket) -> GetFuture {
        GetFuture(Get::Waits(Box::new(ticket)))
    }

    /// Waits, for threads that may block.
    ///
    /// # Errors
    /// As the future.
    pub fn wait(self) -> Result<Block, StoreError> {
        match self.0 {
            Get::Ready(result) => result.unwrap_or(Err(StoreError::Cancelled)),
            Get::Waits(ticket) => ticket.wait().and_then(only_block),
        }
    }

    /// What it waits for, for people: `None` when it is there.
    pub fn why(&self) -> Option<String> {
        match &self.0 {
            Get::Ready(_) => None,
            Get::Waits(ticket) => ticket.why(),
        }
    }
}

fn only_block(mut staged: Staged) -> Result<Block, StoreError> {
    match staged.items.pop() {
        Some(StagedItem::Ready(block)) => Ok(block),
        _ => Err(StoreError::Cancelled),
    }
}

impl Future for GetFuture {
    type Output = Result<Block, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Get::Ready(result) => Poll::Ready(result.take().unwrap_or(Err(StoreError::Cancelled))),
            Get::Waits(ticket) => Pin::new(&mut **ticket).poll(context).map(|result| result.and_then(only_block)),
        }
    }
}
