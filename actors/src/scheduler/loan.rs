//! What a job has on a node, and the arithmetic of resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, LeaseId};
use crate::task::Resources;

/// Adds `amounts`, `times` over.
pub(super) fn add(to: &mut Resources, amounts: &Resources, times: u64) {
    for (name, amount) in &amounts.0 {
        let sum = to.0.entry(Arc::clone(name)).or_insert(0);
        *sum = sum.saturating_add(amount.saturating_mul(times));
    }
}

/// `a` without `b`, nothing below zero; without zeros.
pub(super) fn minus(a: &Resources, b: &Resources) -> Resources {
    let rest = |(name, amount): (&Arc<str>, &u64)| {
        let rest = amount.saturating_sub(b.get(name));
        (rest > 0).then(|| (Arc::clone(name), rest))
    };
    Resources(a.0.iter().filter_map(rest).collect())
}

/// The smaller amount of each; without zeros.
fn lesser(a: &Resources, b: &Resources) -> Resources {
    let lesser = |(name, amount): (&Arc<str>, &u64)| {
        let lesser = (*amount).min(b.get(name));
        (lesser > 0).then(|| (Arc::clone(name), lesser))
    };
    Resources(a.0.iter().filter_map(lesser).collect())
}

/// Slots of one node, lent to one job.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    pub(super) id: LeaseId,
    /// Rises when `slots` change.
    pub(super) version: u64,
    pub(super) incarnation: Incarnation,
    /// Slots, by what one has.
    pub(super) slots: BTreeMap<Resources, u32>,
    /// Taken back and perhaps still in use: not lent to anybody else until reported idle, or until its loan ends.
    pub(super) returning: Resources,
    pub(super) returning_until: Duration,
    /// Of `returning`, never more than that: what the Owner said is in use. It outlasts the end of the loan while the Owner says so.
    pub(super) kept: Resources,
    pub(super) ends_at: Duration,
}

impl Loan {
    pub(super) fn new(id: LeaseId, incarnation: Incarnation) -> Self {
        Self {
            id,
            version: 0,
            incarnation,
            slots: BTreeMap::new(),
            returning: Resources::default(),
            returning_until: Duration::ZERO,
            kept: Resources::default(),
            ends_at: Duration::ZERO,
        }
    }

    /// What a job has of an earlier epoch, `in_use` of it: given back unless it is lent again.
    pub(super) fn taken_over(
        id: LeaseId,
        incarnation: Incarnation,
        resources: &Resources,
        in_use: &Resources,
        ends_at: Duration,
    ) -> Self {
        let returning = minus(resources, &Resources::default());
        let kept = lesser(in_use, &returning);
        // Some version is there already: a report that knows of none says nothing of it.
        Self { version: 1, returning, kept, returning_until: ends_at, ends_at, ..Self::new(id, incarnation) }
    }

    /// What may be used.
    pub(super) fn resources(&self) -> Resources {
        let mut sum = Resources::default();
        for (need, count) in &self.slots {
            add(&mut sum, need, u64::from(*count));
            if need.0.values().all(|amount| *amount == 0) {
                // A slot that needs nothing is something all the same: an empty lease is one to give back.
                sum.0.entry("cpu".into()).or_insert(0);
            }
        }
        sum
    }

    /// What nobody else may have.
    pub(super) fn held(&self) -> Resources {
        let mut held = self.resources();
        add(&mut held, &self.returning, 1);
        held
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.slots.is_empty() && self.returning.0.is_empty()
    }

    /// Takes back slots beyond `target`. True when there were any.
    pub(super) fn shrink(&mut self, target: &BTreeMap<Resources, u32>) -> bool {
        let mut shrunk = false;
        for (need, count) in &mut self.slots {
            let left = (*count).min(target.get(need).copied().unwrap_or(0));
            if left < *count {
                add(&mut self.returning, need, u64::from(*count - left));
                *count = left;
                shrunk = true;
            }
        }
        if shrunk {
            self.returning.0.retain(|_, amount| *amount > 0);
            self.returning_until = self.ends_at;
            self.slots.retain(|_, count| *count > 0);
            self.version += 1;
        }
        shrunk
    }

    /// Lends slots up to `target`, first of what the job is giving back itself, then of what is `free` on the node,
    /// which gets less by it. True when any could be lent; the loan then lasts until `ends_at`.
    pub(super) fn grow(&mut self, target: &BTreeMap<Resources, u32>, free: &mut Resources, ends_at: Duration) -> bool {
        let mut grown = false;
        for (need, wanted) in target {
            let more = wanted.saturating_sub(self.slots.get(need).copied().unwrap_or(0));
            for _ in 0..more {
                let own = lesser(need, &self.returning);
                let rest = minus(need, &own);
                if rest.0.iter().any(|(kind, amount)| free.get(kind) < *amount) {
                    break;
                }
                self.returning = minus(&self.returning, &own);
                *free = minus(free, &rest);
                *self.slots.entry(need.clone()).or_default() += 1;
                grown = true;
            }
        }
        if grown {
            self.version += 1;
            self.kept = lesser(&self.kept, &self.returning);
            self.ends_at = ends_at;
        }
        grown
    }

    /// The Owner, which knows `version`, uses `in_use`: what was to be given back and is not used is free. True when
    /// there was any. A report on an older version says nothing of what was lent then and taken back since.
    pub(super) fn report(&mut self, version: u64, in_use: &Resources) -> bool {
        if version < self.version || self.returning.0.is_empty() {
            return false;
        }
        let beyond = lesser(&minus(in_use, &self.resources()), &self.returning);
        let freed = beyond != self.returning;
        self.returning = beyond.clone();
        self.kept = beyond;
        freed
    }

    /// Ends what has run out; `speaks`: the Owner is heard. True when anything is free now.
    pub(super) fn run_out(&mut self, now: Duration, speaks: bool) -> bool {
        let mut freed = false;
        if !self.returning.0.is_empty() && now >= self.returning_until {
            // What a living Owner says it uses stays its own until it says otherwise.
            let left = if speaks { self.kept.clone() } else { Resources::default() };
            freed = left != self.returning;
            self.kept = lesser(&self.kept, &left);
            self.returning = left;
        }
        if now >= self.ends_at && !self.slots.is_empty() {
            self.slots.clear();
            self.version += 1;
            freed = true;
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(need: Resources, count: u32) -> BTreeMap<Resources, u32> {
        BTreeMap::from([(need, count)])
    }

    #[test]
    fn what_was_lent_ends_with_its_loan_though_nobody_has_taken_it_back() {
        let (need, end) = (Resources::cpu(1000), Duration::from_secs(9));
        let mut loan = Loan::new(LeaseId(1), Incarnation(1));
        assert!(loan.grow(&slots(need.clone(), 2), &mut Resources::cpu(2000), end));
        let version = loan.version;
        assert!(!loan.run_out(end - Duration::from_millis(1), false) && loan.held() == Resources::cpu(2000));
        assert!(loan.run_out(end, false), "both are free");
        assert!(loan.is_over() && loan.held() == Resources::default());
        assert!(loan.version > version, "a report of before says nothing of it");
    }

    #[test]
    fn what_a_silent_owner_had_in_use_is_not_kept_of_what_it_is_lent_later() {
        let (gpu, cpu) = (Resources::default().with("gpu", 1000), Resources::cpu(1000));
        let mut free = cpu.clone().with("gpu", 1000);
        let mut loan = Loan::new(LeaseId(1), Incarnation(1));
        assert!(loan.grow(&slots(gpu.clone(), 1), &mut free, Duration::from_secs(4)));
        assert!(loan.shrink(&BTreeMap::new()));
        loan.report(loan.version, &gpu);
        assert_eq!(loan.held(), gpu, "it says that it uses it");
        assert!(loan.run_out(Duration::from_secs(4), false), "it is not heard any more");
        assert_eq!(loan.held(), Resources::default());
        assert!(loan.grow(&slots(cpu.clone(), 1), &mut free, Duration::from_secs(8)));
        assert!(loan.shrink(&BTreeMap::new()));
        assert_eq!(loan.held(), cpu);
        loan.run_out(Duration::from_secs(8), true);
        assert_eq!(loan.held(), Resources::default(), "of that it has said nothing, and somebody else has the other");
    }
}
