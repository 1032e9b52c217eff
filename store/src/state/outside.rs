//! Memory beside the region that its budget counts: tables of jobs, directories of objects, buffers.
//!
//! Nobody can be refused a table that has grown already, so this memory is not asked for but told, and the store gives way:
//! for what is told, spans of the region are taken from the allocator like any other memory (what is clean is dropped, what
//! is dirty is written), and the operating system takes back what lies behind them. So the process keeps to its sum.
//!
//! A span goes through `leaving` (handed out to nobody, the shell gives its memory back), `held` and `returning` (the shell
//! gets it memory again) before it is free; each step is reported by the shell, so no byte is taken from under a block.
//!
//! They have half of the region at most, and what must go on comes first: where a request waits and nobody holds anything
//! any more, they give all of it up until the request is served. What they take then is beyond the budget, and shows in
//! [`StoreStats::outside_bytes`](crate::StoreStats).

use super::{Effect, State};
use crate::{alloc::Span, budget::Ticket};

/// Spans are taken one by one.
pub(crate) const UNIT: u64 = 1 << 20;
/// So much is not worth a span: small jobs, a few thousand objects. The process has set it aside.
pub(crate) const FREE: u64 = 2 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// What those that have such memory say they take.
    told: u64,
    leaving: u64,
    held: Vec<Span>,
    returning: u64,
    /// The request for which all of it is given up.
    yielded_to: Option<Ticket>,
}

impl Outside {
    /// Bytes of the region that nobody can have for it.
    pub(super) fn taken(&self) -> u64 {
        self.leaving + self.held_bytes() + self.returning
    }

    fn held_bytes(&self) -> u64 {
        self.held.len() as u64 * UNIT
    }
}

impl State {
    /// Somebody takes more, or less, than before.
    pub fn tell_outside(&mut self, before: u64, now: u64) {
        self.outside.told = self.outside.told - before + now;
        self.pump();
    }

    /// Bytes that are taken beside the region.
    pub fn outside_bytes(&self) -> u64 {
        self.outside.told + self.table.directory_bytes()
    }

    /// How much of that the region can stand in for.
    pub fn outside_max(&self) -> u64 {
        FREE + self.budget.capacity() / 2 / UNIT * UNIT
    }

    fn outside_target(&self) -> u64 {
        if self.outside.yielded_to.is_some() {
            return 0;
        }
        (self.outside_bytes().min(self.outside_max()).saturating_sub(FREE)) / UNIT * UNIT
    }

    /// What is missing of what should be taken: the spiller makes room for it.
    pub(super) fn outside_owed(&self) -> u64 {
        self.outside_target().saturating_sub(self.outside.leaving + self.outside.held_bytes())
    }

    /// Takes and gives back spans until what is taken is what is told, as far as memory goes.
    pub(super) fn settle_outside(&mut self) {
        if self.outside.yielded_to.is_some_and(|ticket| !self.waits_for_memory(ticket)) {
            self.outside.yielded_to = None;
        }
        while self.outside_owed() > 0 {
            let Some(span) = self.take_last(UNIT) else { return };
            self.outside.leaving += span.bytes;
            self.effects.push(Effect::Withdraw(span));
        }
        let target = self.outside_target();
        while self.outside.leaving + self.outside.held_bytes() > target {
            let Some(span) = self.outside.held.pop() else { return };
            self.outside.returning += span.bytes;
            self.effects.push(Effect::Restore(span));
        }
    }

    /// Memory far behind, for which what is clean is dropped.
    fn take_last(&mut self, bytes: u64) -> Option<Span> {
        if self.budget.missing_for(bytes) > self.table.clean_bytes() {
            return None;
        }
        loop {
            if bytes <= self.budget.free()
                && let Some(span) = self.allocator.alloc_last(bytes)
            {
                self.budget.charge(span.bytes);
                return Some(span);
            }
            let dropped = self.table.drop_oldest_clean()?;
            self.give_back(dropped);
        }
    }

    /// A request waits, and nothing but this is in its way: gives everything up for it. `false`: there is nothing.
    pub(super) fn yield_outside(&mut self, to: Ticket) -> bool {
        if self.outside.taken() == 0 {
            return false;
        }
        self.outside.yielded_to = Some(to);
        self.settle_outside();
        true
    }

    /// The operating system has what was behind a span.
    pub fn withdrawn(&mut self, span: Span) {
        self.outside.leaving -= span.bytes;
        self.outside.held.push(span);
        self.pump();
    }

    /// There is memory behind a span again; `false`: there is none, and never will be.
    pub fn given_back(&mut self, span: Span, memory: bool) {
        self.outside.returning -= span.bytes;
        if memory {
            self.free(span);
        } else {
            self.allocator.lose(span);
            self.budget.release(span.bytes);
            self.budget.shrink_to(self.allocator.usable_bytes());
            self.memory_came_free();
        }
    }
}
