//! The only place that counts bytes: who has how many, who waits for how many, and who is next.
//!
//! The order of service (law 5): outputs of running tasks, then arguments of the next tasks in order of arrival, then
//! prefetch. A request of the latter two is granted as a whole or not at all, so no two of them can each hold half of
//! what they need; whoever has been granted everything can start, and whoever has started never waits for a grant.
//! Outputs that find nothing go to disk, so they are in no queue: only while a disk request is about to set memory
//! free do they wait, and then nobody overtakes them ([`Budget::outputs_wait`]).
//!
//! That a request which is denied fails no job is the Owner's rule (`owner/core/attempts.rs` of the actors).
//!
//! Pure: no clock, no memory, no threads. Bytes here are bytes as the allocator rounds them.

use std::collections::BTreeMap;

use crate::options::Class;

/// A request for memory, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: u64,
    used: u64,
    peak: u64,
    queue: BTreeMap<(Class, Ticket), u64>,
    waiting_bytes: u64,
    next: u64,
    outputs_waiting: u64,
    outputs_waiting_bytes: u64,
    prefetched: u64,
}

impl Budget {
    pub fn new(capacity: u64) -> Budget {
        Budget {
            capacity,
            used: 0,
            peak: 0,
            queue: BTreeMap::new(),
            waiting_bytes: 0,
            next: 0,
            outputs_waiting: 0,
            outputs_waiting_bytes: 0,
            prefetched: 0,
        }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Bytes were handed out.
    pub fn charge(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        assert!(self.used <= self.capacity, "{} of {} bytes handed out", self.used, self.capacity);
    }

    /// Bytes came back.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.used, "{bytes} bytes came back, {} were handed out", self.used);
        self.used -= bytes;
    }

    /// The machine has less memory than was thought. More than that may be handed out by now: until it has come back, nothing is free.
    pub fn shrink_to(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// How many bytes have to come back before so many can be handed out.
    pub fn missing_for(&self, bytes: u64) -> u64 {
        (self.used + bytes).saturating_sub(self.capacity)
    }

    /// A request joins the end of its queue.
    pub fn enqueue(&mut self, class: Class, bytes: u64) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.requeue(class, ticket, bytes);
        ticket
    }

    /// A request takes the place in the queue that it had before: its grant was revoked.
    pub fn requeue(&mut self, class: Class, ticket: Ticket, bytes: u64) {
        let before = self.queue.insert((class, ticket), bytes);
        assert!(before.is_none(), "{ticket:?} waits already");
        self.waiting_bytes += bytes;
    }

    /// What a request waits for has become more or less.
    pub fn update(&mut self, class: Class, ticket: Ticket, bytes: u64) {
        let waits = self.queue.get_mut(&(class, ticket)).expect("an updated request waits");
        self.waiting_bytes = self.waiting_bytes - *waits + bytes;
        *waits = bytes;
    }

    /// A request was granted or given up.
    pub fn leave(&mut self, class: Class, ticket: Ticket) {
        if let Some(bytes) = self.queue.remove(&(class, ticket)) {
            self.waiting_bytes -= bytes;
        }
    }

    /// Who is next, and the bytes it was last known to need. Nobody while outputs wait: what becomes free is theirs.
    pub fn head(&self) -> Option<(Class, Ticket, u64)> {
        if self.outputs_waiting > 0 {
            return None;
        }
        self.queue.first_key_value().map(|(&(class, ticket), &bytes)| (class, ticket, bytes))
    }

    /// How many requests of its class are before this one.
    pub fn ahead(&self, class: Class, ticket: Ticket) -> usize {
        self.queue.range((class, Ticket(0))..(class, ticket)).count()
    }

    /// Bytes that a request waits for; zero when it does not.
    pub fn waiting_for(&self, class: Class, ticket: Ticket) -> u64 {
        self.queue.get(&(class, ticket)).copied().unwrap_or(0)
    }

    /// Requests that wait, outputs included.
    pub fn waiting(&self) -> u64 {
        self.queue.len() as u64 + self.outputs_waiting
    }

    /// Bytes that requests of a class wait for.
    pub fn waiting_bytes_of(&self, class: Class) -> u64 {
        let all = (class, Ticket(0))..=(class, Ticket(u64::MAX));
        self.queue.range(all).map(|(_, bytes)| *bytes).sum()
    }

    /// Bytes that requests of all classes, and outputs, wait for.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes + self.outputs_waiting_bytes
    }

    /// An output waits for a disk request that frees memory.
    pub fn outputs_wait(&mut self, bytes: u64) {
        self.outputs_waiting += 1;
        self.outputs_waiting_bytes += bytes;
    }

    /// It waits no longer.
    pub fn outputs_waited(&mut self, bytes: u64) {
        self.outputs_waiting -= 1;
        self.outputs_waiting_bytes -= bytes;
    }

    /// Whether an output waits, and for how many bytes all that wait.
    pub fn outputs_waiting(&self) -> Option<u64> {
        (self.outputs_waiting > 0).then_some(self.outputs_waiting_bytes)
    }

    /// Memory is held through a claimed prefetch: whoever holds it can be asked to give it up.
    pub fn prefetch_held(&mut self, bytes: u64) {
        self.prefetched += bytes;
    }

    /// It was given up or its task starts.
    pub fn prefetch_ended(&mut self, bytes: u64) {
        self.prefetched -= bytes;
    }

    pub fn prefetched(&self) -> u64 {
        self.prefetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_order_and_before_prefetch() {
        let mut budget = Budget::new(100);
        let prefetch = budget.enqueue(Class::Prefetch, 10);
        let first = budget.enqueue(Class::Arguments, 60);
        let second = budget.enqueue(Class::Arguments, 1);
        assert_eq!(budget.head(), Some((Class::Arguments, first, 60)));
        assert_eq!((budget.ahead(Class::Arguments, second), budget.ahead(Class::Prefetch, prefetch)), (1, 0));
        budget.leave(Class::Arguments, first);
        assert_eq!(budget.head(), Some((Class::Arguments, second, 1)));
        budget.leave(Class::Arguments, second);
        assert_eq!(budget.head(), Some((Class::Prefetch, prefetch, 10)));
        assert_eq!((budget.waiting(), budget.waiting_bytes()), (1, 10));
    }

    #[test]
    fn nobody_overtakes_an_output_that_waits() {
        let mut budget = Budget::new(100);
        let ticket = budget.enqueue(Class::Arguments, 1);
        budget.outputs_wait(70);
        assert_eq!(budget.head(), None);
        assert_eq!((budget.waiting(), budget.waiting_bytes()), (2, 71));
        budget.outputs_waited(70);
        assert_eq!(budget.head(), Some((Class::Arguments, ticket, 1)));
    }

    #[test]
    fn a_revoked_grant_keeps_its_place() {
        let mut budget = Budget::new(100);
        let first = budget.enqueue(Class::Prefetch, 5);
        let second = budget.enqueue(Class::Prefetch, 5);
        budget.leave(Class::Prefetch, first);
        budget.requeue(Class::Prefetch, first, 7);
        assert_eq!(budget.head(), Some((Class::Prefetch, first, 7)));
        assert_eq!(budget.ahead(Class::Prefetch, second), 1);
    }

    #[test]
    #[should_panic(expected = "handed out")]
    fn more_than_the_budget_cannot_be_handed_out() {
        let mut budget = Budget::new(100);
        budget.charge(60);
        budget.charge(41);
    }
}
