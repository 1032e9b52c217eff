//! Memory beside the region that its budget counts: tables of jobs, directories of objects, buffers, executor processes, and what
//! tasks ask for.
//!
//! For all of it the store gives way: spans of the region are taken from the allocator like any other memory (what is clean is
//! dropped, what is dirty is written), and the operating system takes back what lies behind them. So the process keeps to its sum.
//!
//! A span goes through `leaving` (handed out to nobody, the shell gives its memory back), `held` and `returning` (the shell
//! gets it memory again) before it is free; each step is reported by the shell, so no byte is taken from under a block.
//!
//! To put memory behind a span again takes as long as to touch new memory (0.4 s for 1 GiB), and tasks that ask for the same come one after the
//! other. So what is held and taken by nobody any more is *surplus*: it stays held, whoever takes something next has it at once, and it goes back
//! where the region lacks room: before anything is written for that, and as much of it as is lacking. What the allocator of the process keeps of what tasks have freed is
//! within the surplus, so it goes to the operating system first then.
//!
//! There are two kinds, which differ in who comes first:
//!
//! - What is *told* is there already, and nobody can be refused a table that has grown. Spans are taken for it as memory comes free. Tables
//!   have half of the region at most, executor processes that nobody has asked for a quarter, and what must go on comes first: where a
//!   request waits and nobody holds anything any more, they give all of it up until the request is served. What they take then is beyond
//!   the budget, and shows in [`StoreStats::outside_bytes`](crate::StoreStats).
//! - What is *granted* was asked for before it was allocated: it has its spans from then on, all of them, and keeps them, as a task keeps its
//!   scratch. Three quarters of the region at most.

use super::{Effect, State};
use crate::{alloc::Span, budget::Ticket, options::Beside, spill};

/// Spans are taken one by one.
pub(crate) const UNIT: u64 = 1 << 20;
/// So much of tables is not worth a span: small jobs, a few thousand objects. The process has set it aside.
pub(crate) const FREE: u64 = 2 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// What tables are told to take.
    tables: u64,
    /// What executor processes are told to take.
    processes: u64,
    /// What was asked for and granted.
    granted: u64,
    leaving: u64,
    held: Vec<Span>,
    returning: u64,
    /// The request for which all that is told is given up.
    yielded_to: Option<Ticket>,
    /// What those who run have asked for and wait for: surplus that they are about to have does not go back meanwhile.
    asked: u64,
    /// Whether somebody has had less than was granted since memory that was freed went to the operating system the last time.
    freed: bool,
}

impl Outside {
    /// Bytes of the region that nobody can have for it.
    fn taken(&self) -> u64 {
        self.leaving + self.held_bytes() + self.returning
    }

    /// The part of it that comes back when somebody waits and nobody holds anything.
    pub(super) fn loose(&self) -> u64 {
        self.taken().saturating_sub(self.granted_units())
    }

    fn held_bytes(&self) -> u64 {
        self.held.len() as u64 * UNIT
    }

    fn granted_units(&self) -> u64 {
        self.granted.next_multiple_of(UNIT)
    }
}

impl State {
    /// Somebody takes more, or less, than before.
    pub fn tell_outside(&mut self, kind: Beside, before: u64, now: u64) {
        let told = match kind {
            Beside::Tables => &mut self.outside.tables,
            Beside::Processes => &mut self.outside.processes,
        };
        *told = *told - before + now;
        self.pump();
    }

    /// Bytes of tables beside the region.
    pub fn outside_bytes(&self) -> u64 {
        self.outside.tables + self.table.directory_bytes()
    }

    /// How much of that the region can stand in for.
    pub fn outside_max(&self) -> u64 {
        let left = self.budget.capacity().saturating_sub(self.outside.granted_units());
        FREE + left.min(self.budget.capacity() / 2) / UNIT * UNIT
    }

    /// Bytes that executor processes take and nobody has asked for.
    pub fn processes_bytes(&self) -> u64 {
        self.outside.processes
    }

    /// How much of that the region can stand in for.
    pub fn processes_max(&self) -> u64 {
        self.budget.capacity() / 4 / UNIT * UNIT
    }

    /// Bytes that were asked for and granted.
    pub fn granted_bytes(&self) -> u64 {
        self.outside.granted
    }

    /// How much can be granted when nobody has anything else, of all together.
    pub fn granted_max(&self) -> u64 {
        self.budget.capacity() / 4 * 3 / UNIT * UNIT
    }

    /// Bytes of the region that go when so much more is granted.
    pub fn units_for(&self, more: u64) -> u64 {
        (self.outside.granted + more).next_multiple_of(UNIT) - self.outside.granted_units()
    }

    /// As much of it as is not surplus already.
    pub(super) fn taken_for(&self, more: u64) -> u64 {
        self.units_for(more).saturating_sub(self.surplus_bytes())
    }

    fn told_target(&self) -> u64 {
        if self.outside.yielded_to.is_some_and(|ticket| self.waits_for_memory(ticket)) {
            return 0;
        }
        let tables = self.outside_bytes().min(self.outside_max()).saturating_sub(FREE) / UNIT * UNIT;
        let processes = self.outside.processes.min(self.processes_max());
        tables + processes.next_multiple_of(UNIT)
    }

    fn outside_target(&self) -> u64 {
        self.told_target() + self.outside.granted_units()
    }

    /// What is missing of what should be taken: the spiller makes room for it.
    pub(super) fn outside_owed(&self) -> u64 {
        self.outside_target().saturating_sub(self.outside.leaving + self.outside.held_bytes())
    }

    /// Takes spans until what is taken is what is told and granted, as far as memory goes.
    pub(super) fn settle_outside(&mut self) {
        if self.outside.yielded_to.is_some_and(|ticket| !self.waits_for_memory(ticket)) {
            self.outside.yielded_to = None;
        }
        while self.outside_owed() > 0 {
            let Some(span) = self.take_last(UNIT) else { return };
            self.leaves(span);
        }
    }

    /// What the operating system has and nobody takes any more.
    pub(super) fn surplus_bytes(&self) -> u64 {
        let given_up = self.outside.leaving + self.outside.held_bytes();
        given_up.saturating_sub(self.outside_target()).min(self.outside.held_bytes())
    }

    /// Surplus that goes back where the region lacks room.
    fn recallable_bytes(&self) -> u64 {
        self.surplus_bytes().saturating_sub(self.outside.asked)
    }

    /// What the operating system is about to give back.
    pub(super) fn returning_bytes(&self) -> u64 {
        self.outside.returning
    }

    /// That, and what it is asked for where the region lacks room.
    pub(super) fn coming_bytes(&self) -> u64 {
        self.outside.returning + self.recallable_bytes()
    }

    /// Bytes that are counted as used, and that nobody uses.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.outside.taken().saturating_sub(self.outside_target())
    }

    /// Gets as much of the surplus back as the region lacks, where those who wait need so much and some is to be spare; a piece of it where what
    /// is free seems to lie apart.
    pub(super) fn recall_surplus(&mut self, needed: u64, apart: bool) {
        let spare = spill::spare_bytes(self.budget.capacity());
        let soon = self.budget.free() + self.table.clean_bytes() + self.table.writing_bytes() + self.outside.returning;
        let lacking = (needed + spare).saturating_sub(soon);
        let apart = if apart && self.outside.returning == 0 { spill::REQUEST_BYTES } else { 0 };
        self.recall(lacking.max(apart));
    }

    fn recall(&mut self, bytes: u64) {
        for _ in 0..bytes.min(self.recallable_bytes()).div_ceil(UNIT) {
            let Some(span) = self.outside.held.pop() else { return };
            self.outside.returning += span.bytes;
            if std::mem::take(&mut self.outside.freed) {
                self.effects.push(Effect::Release);
            }
            self.effects.push(Effect::Restore(span));
        }
    }

    fn leaves(&mut self, span: Span) {
        self.outside.leaving += span.bytes;
        self.effects.push(Effect::Withdraw(span));
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

    /// Somebody who runs asks for so much more: grants all of it at once, or nothing. What is told already comes first.
    pub fn grant_outside(&mut self, more: u64) -> bool {
        let missing = self.missing_outside(more);
        let granted = missing <= self.table.clean_bytes() && self.grant_units(more);
        if !granted && missing <= self.table.clean_bytes() {
            // What was dropped in vain may be enough for somebody else.
            self.pump();
        }
        granted
    }

    /// Grants so much more, or nothing; the effects are for the caller to have carried out before anybody uses it.
    pub(super) fn grant_units(&mut self, more: u64) -> bool {
        if self.outside.granted.saturating_add(more) > self.granted_max() {
            return false;
        }
        let mut spans = Vec::new();
        for _ in 0..self.taken_for(more) / UNIT {
            match self.take_last(UNIT) {
                Some(span) => spans.push(span),
                None => {
                    spans.into_iter().for_each(|span| self.give_back(span));
                    return false;
                }
            }
        }
        self.outside.granted += more;
        spans.into_iter().for_each(|span| self.leaves(span));
        true
    }

    /// How much has to come free before so much more can be granted to somebody who runs.
    fn missing_outside(&self, more: u64) -> u64 {
        self.budget.missing_for(self.taken_for(more) + self.outside_owed())
    }

    /// Whether that comes free by disk requests alone, without waiting for anybody.
    pub fn can_grant_soon(&self, more: u64) -> bool {
        self.outside.granted.saturating_add(more) <= self.granted_max()
            && self.comes_free(self.missing_outside(more), self.outside.returning)
    }

    /// Somebody who runs waits for so much more: bytes of memory that have to come free for it, to be said again when it waits no longer.
    pub fn grant_waits(&mut self, more: u64) -> (u64, u64) {
        let (units, takes) = (self.units_for(more), self.taken_for(more));
        self.outside.asked += units;
        self.budget.outputs_wait(takes);
        (units, takes)
    }

    /// It waits no longer.
    pub fn grant_waited(&mut self, (units, takes): (u64, u64)) {
        self.outside.asked -= units;
        self.budget.outputs_waited(takes);
    }

    /// How much more could be granted now, when what is clean is dropped.
    pub fn grantable_bytes(&self) -> u64 {
        let free = (self.budget.free() + self.table.clean_bytes()).saturating_sub(self.outside_owed()) / UNIT * UNIT;
        let free = free + self.surplus_bytes();
        let rounded = self.outside.granted_units() - self.outside.granted;
        (free + rounded).min(self.granted_max().saturating_sub(self.outside.granted))
    }

    /// Somebody has less than was granted: the rest is the region's again.
    pub fn end_grant(&mut self, bytes: u64) {
        self.end_grant_quietly(bytes);
        self.pump();
    }

    /// As [`end_grant`](Self::end_grant); the caller looks at the queue.
    pub(super) fn end_grant_quietly(&mut self, bytes: u64) {
        self.outside.granted -= bytes;
        self.outside.freed |= bytes > 0;
    }

    /// A request waits, and nothing but what is told is in its way: gives that up for it. `false`: there is nothing.
    pub(super) fn yield_outside(&mut self, to: Ticket) -> bool {
        if self.outside.loose() == 0 {
            return false;
        }
        self.outside.yielded_to = Some(to);
        true
    }

    /// Everything that is surplus comes back.
    #[cfg(test)]
    pub(super) fn recall_all(&mut self) {
        self.recall(u64::MAX);
    }

    /// Bytes of spans that the operating system is about to have.
    #[cfg(test)]
    pub(super) fn outside_leaving(&self) -> u64 {
        self.outside.leaving
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
