//! Who gets memory, in which order, and what is read from disk for it.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Effect, State,
    loads::{LoadJob, LoadTarget, Plan, Source},
};
use crate::{
    alloc::Span,
    block::Origin,
    budget::Ticket,
    directory::{PartSlice, byte_range},
    error::StoreError,
    ids::CopyId,
    meta::{PartMeta, Parts},
    options::{Class, StoreEvent},
    spill,
    table::{ExtentKey, Freed},
};

/// One thing that a request asks for.
#[derive(Clone, Debug)]
pub(crate) enum RequestItem {
    /// Parts of an object here, in one piece.
    Local { object: CopyId, parts: Parts },
    /// Room for parts of an object elsewhere.
    Remote { metas: Arc<[PartMeta]> },
    /// Memory beside the region.
    Outside { bytes: u64 },
}

/// What an item of this store shows, as it was when it was asked for: it may be deleted while it waits.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub origin: Origin,
    pub parts: PartSlice,
}

/// What an item got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// No bytes.
    Empty,
    /// Bytes of a pinned extent, `offset` in the region.
    Shared { extent: ExtentKey, offset: u64, bytes: u64 },
    /// A private copy, filled or to be filled.
    Private { span: Span, bytes: u64 },
    /// So many bytes beside the region.
    Outside { bytes: u64 },
}

#[derive(Debug)]
enum Phase {
    /// In the queue.
    Waiting,
    /// Has its memory; so many reads are not done yet.
    Loading(usize),
    /// Can be claimed.
    Ready,
    /// Can be told.
    Failed(StoreError),
}

/// A request in any phase.
#[derive(Debug)]
pub(crate) struct Request {
    class: Class,
    pub(super) items: Vec<RequestItem>,
    /// `None` for those from elsewhere.
    described: Vec<Option<Described>>,
    phase: Phase,
    granted: Vec<Granted>,
    /// Extents pinned only while a private copy is made of them.
    sources: Vec<ExtentKey>,
    /// First error of a read; kept until the others have ended.
    error: Option<StoreError>,
    /// Nobody wants it any more; it goes when its reads have ended.
    cancelled: bool,
}

/// Why a request is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// `ahead` requests of its class are served before it, and it needs so many bytes.
    Memory { ahead: usize, bytes: u64 },
    /// It has its memory; so many reads are under way.
    Disk { reads: usize },
    /// It can be claimed.
    Nothing,
}

/// Answer to a claim.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Not yet.
    Wait,
    /// Everything, in the order of the items; the holds are the claimer's from now on.
    Got { granted: Vec<Granted>, described: Vec<Option<Described>>, class: Class, bytes: u64 },
    /// It will never be.
    Failed(StoreError),
}

impl State {
    /// A request joins its queue. Look at it with [`State::claim`] before waiting.
    ///
    /// # Errors
    /// An object or part that is not here; more bytes than the whole budget.
    pub fn request(&mut self, class: Class, items: Vec<RequestItem>) -> Result<Ticket, StoreError> {
        let (mut blocks, mut outside, mut needs) = (Vec::with_capacity(items.len()), 0, 0);
        let mut described = Vec::with_capacity(items.len());
        for item in &items {
            let range = match item {
                RequestItem::Local { object, parts } => {
                    let (_, found, slice) = self.find(object, *parts)?;
                    let first_part = if let Parts::Range(from, _) = parts { *from } else { 0 };
                    let origin = Origin { object: *object, maker: found.maker, first_part };
                    let range = byte_range(&slice);
                    described.push(Some(Described { origin, parts: slice }));
                    range
                }
                RequestItem::Remote { metas } => {
                    described.push(None);
                    byte_range(metas)
                }
                RequestItem::Outside { bytes } => {
                    described.push(None);
                    outside += bytes;
                    0..0
                }
            };
            let plan = self.plan(item)?;
            blocks.push((range.end - range.start, plan.is_paged()));
            needs += plan.needs(self);
        }
        needs += self.taken_for(outside);
        self.can_ever_grant(outside)?;
        self.can_ever_hold(&blocks, outside)?;
        let ticket = self.budget.enqueue(class, needs);
        let request = Request {
            class,
            items,
            described,
            phase: Phase::Waiting,
            granted: Vec::new(),
            sources: Vec::new(),
            error: None,
            cancelled: false,
        };
        self.requests.insert(ticket, request);
        self.pump();
        Ok(ticket)
    }

    fn fail_waiting(&mut self, class: Class, ticket: Ticket, error: StoreError) {
        self.budget.leave(class, ticket);
        self.requests.get_mut(&ticket).expect("it is in the queue").phase = Phase::Failed(error);
        self.effects.push(Effect::Wake(ticket));
    }

    /// Takes what a request got, if it got it.
    pub fn claim(&mut self, ticket: Ticket) -> Claim {
        match self.requests.get(&ticket).map(|request| &request.phase) {
            None => Claim::Failed(StoreError::Cancelled),
            Some(Phase::Waiting | Phase::Loading(_)) => Claim::Wait,
            Some(Phase::Ready | Phase::Failed(_)) => {
                let request = self.requests.remove(&ticket).expect("looked at just now");
                if let Phase::Failed(error) = request.phase {
                    return Claim::Failed(error);
                }
                let bytes = request.granted.iter().map(|granted| self.held_bytes(granted)).sum();
                if request.class == Class::Prefetch {
                    self.budget.prefetch_held(bytes);
                }
                Claim::Got { granted: request.granted, described: request.described, class: request.class, bytes }
            }
        }
    }

    /// A claimed prefetch was given up, or its task starts.
    pub fn prefetch_ended(&mut self, bytes: u64) {
        self.budget.prefetch_ended(bytes);
        self.tight = None;
    }

    /// Nobody waits for the request any more; what it holds is free as soon as possible.
    pub fn cancel(&mut self, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        match request.phase {
            Phase::Waiting => self.budget.leave(request.class, ticket),
            Phase::Loading(_) => {
                request.cancelled = true;
                return;
            }
            Phase::Ready | Phase::Failed(_) => {}
        }
        let request = self.requests.remove(&ticket).expect("looked at just now");
        self.let_go(&request.granted);
        self.pump();
    }

    /// Whether a request is in its queue still.
    pub(super) fn waits_for_memory(&self, ticket: Ticket) -> bool {
        matches!(self.requests.get(&ticket), Some(Request { phase: Phase::Waiting, .. }))
    }

    /// Whether a request has its memory.
    pub fn has_memory(&self, ticket: Ticket) -> bool {
        let phase = self.requests.get(&ticket).map(|request| &request.phase);
        matches!(phase, Some(Phase::Loading(_) | Phase::Ready))
    }

    /// Why a request waits.
    pub fn why(&self, ticket: Ticket) -> Waiting {
        match self.requests.get(&ticket) {
            Some(Request { phase: Phase::Waiting, class, .. }) => {
                let bytes = self.budget.waiting_for(*class, ticket);
                Waiting::Memory { ahead: self.budget.ahead(*class, ticket), bytes }
            }
            Some(Request { phase: Phase::Loading(reads), .. }) => Waiting::Disk { reads: *reads },
            _ => Waiting::Nothing,
        }
    }

    /// A load ended.
    pub fn loaded(&mut self, job: &LoadJob, result: Result<(), StoreError>) {
        let disk: u64 =
            job.sources.iter().map(|source| if let Source::Disk { bytes, .. } = source { *bytes } else { 0 }).sum();
        if result.is_ok() {
            self.counters.restored_bytes += disk;
        }
        let waiters = match job.target {
            LoadTarget::Private(ticket) => vec![ticket],
            LoadTarget::Extent(extent) => {
                let mut freed = Freed::default();
                self.table.end_load(extent, result.is_ok(), &mut freed);
                self.freed(freed);
                self.loading.remove(&extent).expect("a load that ended was under way")
            }
        };
        // An object that cannot be read because this process lacks descriptors is there still.
        if let Err(error @ (StoreError::Corrupt { .. } | StoreError::Disk { .. })) = &result
            && !error.is_shortage()
        {
            self.counters.corrupt_blocks += u64::from(matches!(error, StoreError::Corrupt { .. }));
            let file = job.sources.iter().find_map(|source| match source {
                Source::Disk { file, .. } if matches!(error, StoreError::Disk { .. }) => Some(*file),
                _ => None,
            });
            if let Some(file) = file {
                self.read_failed(file, &error.into());
            }
            self.lose(job.object, &error.to_string());
        }
        for ticket in waiters {
            self.read_ended(ticket, result.as_ref().err());
        }
        self.memory_came_free();
    }

    fn read_ended(&mut self, ticket: Ticket, error: Option<&StoreError>) {
        let request = self.requests.get_mut(&ticket).expect("a request stays until its reads have ended");
        request.error = request.error.take().or_else(|| error.cloned());
        let Phase::Loading(left) = &mut request.phase else { panic!("a read ended for {request:?}") };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let sources = std::mem::take(&mut request.sources);
        let error = request.error.take();
        request.phase = Phase::Ready;
        if request.cancelled || error.is_some() {
            let granted = std::mem::take(&mut request.granted);
            if request.cancelled {
                self.requests.remove(&ticket);
            } else if let Some(error) = error {
                request.phase = Phase::Failed(error);
            }
            self.let_go(&granted);
        }
        for extent in sources {
            self.unpin_quietly(extent);
        }
        self.effects.push(Effect::Wake(ticket));
    }

    /// Frees holds without looking at the queue, which the caller does.
    fn let_go(&mut self, granted: &[Granted]) {
        for granted in granted {
            match *granted {
                Granted::Empty => {}
                Granted::Shared { extent, .. } => self.unpin_quietly(extent),
                Granted::Private { span, .. } => self.give_back(span),
                Granted::Outside { bytes } => self.end_grant_quietly(bytes),
            }
        }
    }

    fn unpin_quietly(&mut self, extent: ExtentKey) {
        let mut freed = Freed::default();
        self.table.unpin(extent, &mut freed);
        self.freed(freed);
    }

    fn held_bytes(&self, granted: &Granted) -> u64 {
        match granted {
            Granted::Empty => 0,
            Granted::Shared { extent, .. } => self.table.extent(*extent).memory().map_or(0, |span| span.bytes),
            Granted::Private { span, .. } => span.bytes,
            Granted::Outside { bytes } => *bytes,
        }
    }

    /// Serves the queues as far as memory goes, then lets the spiller make room for those who wait.
    pub fn pump(&mut self) {
        self.fragmented = false;
        self.settle_outside();
        while let Some((class, ticket, needs)) = self.budget.head() {
            if let Err(error) = self.can_still_hold(ticket) {
                self.fail_waiting(class, ticket, error);
                continue;
            }
            let presses = self.presses(class);
            if !presses && !self.has_spare_for(needs) {
                break;
            }
            let used = self.budget.used();
            match self.try_grant(class, ticket) {
                Ok(true) => {}
                // Clean memory went, but the first items lay around it already: there is more room in one piece now.
                Ok(false) if self.budget.used() < used => {}
                Ok(false) => {
                    if presses && self.make_room(class, ticket) {
                        continue;
                    }
                    break;
                }
                Err(error) => self.fail_waiting(class, ticket, error),
            }
        }
        self.spill();
    }

    /// Whether others are spilled for a request of this class: for arguments always, for prefetch only while nobody
    /// holds anything, since it could wait for ever otherwise.
    pub(super) fn presses(&self, class: Class) -> bool {
        class == Class::Arguments || self.pinned_bytes() == 0
    }

    /// Prefetch gets only what the spiller would keep free anyhow.
    fn has_spare_for(&self, needs: u64) -> bool {
        let spared = needs + spill::spare_bytes(self.budget.capacity()) / 2;
        self.budget.missing_for(spared) <= self.table.clean_bytes()
    }

    /// The head of the arguments finds no memory, and spilling alone does not help: revokes a prefetch (`true`: look
    /// again), gives up when nothing can ever change, or asks those who hold memory for work that has not started.
    fn make_room(&mut self, class: Class, head: Ticket) -> bool {
        if self.coming_bytes() > 0 {
            // The operating system gives it back first.
            return false;
        }
        if self.fragmented && self.table.clean_bytes() > 0 {
            // Its own arguments that are in memory already may lie in the way of the rest: they are read again.
            while let Some(span) = self.table.drop_oldest_clean() {
                self.give_back(span);
            }
            return true;
        }
        let spillable = self.table.dirty_bytes() > 0 && self.files.usable();
        if spillable || self.table.writing_bytes() > 0 {
            return false;
        }
        let ready = |request: &Request| request.class == Class::Prefetch && matches!(request.phase, Phase::Ready);
        let revoked = self.requests.iter().rev().find(|(_, request)| ready(request)).map(|(ticket, _)| *ticket);
        if let Some(ticket) = revoked {
            let request = self.requests.get_mut(&ticket).expect("found just now");
            request.phase = Phase::Waiting;
            let granted = std::mem::take(&mut request.granted);
            let bytes = granted.iter().map(|granted| self.held_bytes(granted)).sum();
            self.let_go(&granted);
            self.budget.requeue(Class::Prefetch, ticket, bytes);
            return true;
        }
        if self.pinned_bytes() == 0 && self.yield_outside(head) {
            return false;
        }
        if self.pinned_bytes() == 0 && self.table.dirty_bytes() > 0 {
            // Nobody runs who could free anything, and nothing can be written.
            let needed = self.budget.waiting_for(class, head);
            let error = self.disk_full(needed);
            self.fail_waiting(class, head, error);
            return true;
        }
        if self.tight != Some(head) {
            self.tight = Some(head);
            self.effects.push(Effect::Tell(StoreEvent::MemoryTight {
                waiting_bytes: self.budget.waiting_bytes(),
                revocable_bytes: self.budget.prefetched(),
            }));
        }
        false
    }

    /// Grants everything at once, or nothing.
    fn try_grant(&mut self, class: Class, ticket: Ticket) -> Result<bool, StoreError> {
        let items = std::mem::take(&mut self.requests.get_mut(&ticket).expect("it is in the queue").items);
        let tried = self.try_items(class, ticket, &items);
        let request = self.requests.get_mut(&ticket).expect("it is in the queue");
        request.items = items;
        let Some((granted, sources, reads)) = tried? else { return Ok(false) };
        request.granted = granted;
        request.sources = sources;
        self.budget.leave(class, ticket);
        if reads == 0 {
            request.phase = Phase::Ready;
            self.effects.push(Effect::Wake(ticket));
        } else {
            request.phase = Phase::Loading(reads);
            self.effects.push(Effect::Granted(ticket));
        }
        Ok(true)
    }

    #[expect(clippy::type_complexity, reason = "three lists for one caller")]
    fn try_items(
        &mut self,
        class: Class,
        ticket: Ticket,
        items: &[RequestItem],
    ) -> Result<Option<(Vec<Granted>, Vec<ExtentKey>, usize)>, StoreError> {
        let mut plans = items.iter().map(|item| self.plan(item)).collect::<Result<Vec<_>, _>>()?;
        // The same extent may be wanted twice; it is read once.
        let mut read = BTreeSet::new();
        for plan in &mut plans {
            if let Plan::Load { extent, offset, bytes, .. } = *plan
                && !read.insert(extent)
            {
                *plan = Plan::Loading { extent, offset, bytes };
            }
        }
        let outside = plans.iter().map(|plan| if let Plan::Outside { bytes } = plan { *bytes } else { 0 }).sum();
        let needs = plans.iter().map(|plan| plan.needs(self)).sum::<u64>() + self.taken_for(outside);
        self.budget.update(class, ticket, needs);
        if self.budget.missing_for(needs) > self.table.clean_bytes() {
            return Ok(None);
        }
        // What it has already must not be taken to make room for the rest.
        let kept: Vec<ExtentKey> = plans.iter().flat_map(|plan| self.extents_in(plan)).collect();
        for extent in &kept {
            self.table.pin(*extent);
        }
        self.allocator.release_empty();
        let mut spans = Vec::with_capacity(plans.len());
        for plan in &plans {
            let bytes = match plan {
                Plan::Load { extent, .. } => self.table.extent(*extent).bytes,
                Plan::Copy { range, .. } => range.end - range.start,
                Plan::Room { bytes } => *bytes,
                _ => 0,
            };
            let span = if bytes > 0 { self.take_memory(bytes, plan.is_paged()) } else { None };
            if bytes > 0 && span.is_none() {
                self.let_go_in_vain(spans, kept);
                return Ok(None);
            }
            spans.push(span);
        }
        if !self.grant_units(outside) {
            self.let_go_in_vain(spans, kept);
            return Ok(None);
        }
        let mut granted = Vec::with_capacity(plans.len());
        let (mut sources, mut reads) = (Vec::new(), 0);
        for (plan, span) in plans.into_iter().zip(spans) {
            granted.push(self.carry_out(ticket, plan, span, &mut sources, &mut reads));
        }
        Ok(Some((granted, sources, reads)))
    }

    /// There is enough memory for a request, and not in the right places.
    fn let_go_in_vain(&mut self, spans: Vec<Option<Span>>, kept: Vec<ExtentKey>) {
        self.fragmented = true;
        for span in spans.into_iter().flatten() {
            self.give_back(span);
        }
        for extent in kept {
            self.unpin_quietly(extent);
        }
    }
}
