//! Which of the jobs that wait has its turn: fair between tenants, and between the priorities of a tenant.
//!
//! The tenant with the fewest jobs under way comes first ([`Book`](super::book::Book)). Within a tenant priorities take turns
//! (stride scheduling, Waldspurger and Weihl 1995): each step of 10 has twice the turns, so that a job of the lowest is behind others,
//! and never for ever. Within a priority the oldest comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::JobId;

/// The stride of priority 0.
const STRIDE: u128 = 1 << 40;
/// So much more priority is twice the turns.
const DOUBLES: i32 = 10;

/// The jobs that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    tenants: BTreeMap<Arc<str>, Lane>,
    length: usize,
}

/// Those of a tenant.
#[derive(Clone, Debug, Default)]
struct Lane {
    priorities: BTreeMap<i32, Turns>,
}

/// Those of a priority, in the order in which they were accepted, ...
#[derive(Clone, Debug, Default)]
struct Turns {
    waiting: BTreeSet<(u64, JobId)>,
    /// ... and how far its turns have come.
    pass: u128,
}

/// How far a turn of this priority takes it.
fn stride(priority: i32) -> u128 {
    let steps = priority.clamp(-100, 100).div_euclid(DOUBLES);
    if steps >= 0 { STRIDE >> steps } else { STRIDE << -steps }
}

impl Queue {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// How many of a tenant wait.
    pub(crate) fn len_of(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, |lane| lane.priorities.values().map(|turns| turns.waiting.len()).sum())
    }

    /// A job waits; `order` tells those apart that were accepted before and after.
    pub(crate) fn add(&mut self, tenant: &Arc<str>, priority: i32, order: u64, job: JobId) {
        let lane = self.tenants.entry(Arc::clone(tenant)).or_default();
        // Who begins to wait has no claim for the time in which it did not.
        let least = lane.priorities.values().map(|turns| turns.pass).min().unwrap_or(0);
        let turns = lane.priorities.entry(priority).or_insert_with(|| Turns { pass: least, ..Turns::default() });
        self.length += usize::from(turns.waiting.insert((order, job)));
    }

    /// A job waits no more.
    pub(crate) fn remove(&mut self, tenant: &str, priority: i32, order: u64, job: JobId) -> bool {
        let Some(lane) = self.tenants.get_mut(tenant) else { return false };
        let Some(turns) = lane.priorities.get_mut(&priority) else { return false };
        let was = turns.waiting.remove(&(order, job));
        self.length -= usize::from(was);
        if turns.waiting.is_empty() {
            lane.priorities.remove(&priority);
        }
        if lane.priorities.is_empty() {
            self.tenants.remove(tenant);
        }
        was
    }

    /// The tenants of which a job waits.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tenants.keys()
    }

    /// Takes the job of a tenant whose turn it is.
    pub(crate) fn take(&mut self, tenant: &str) -> Option<JobId> {
        let lane = self.tenants.get_mut(tenant)?;
        // Of those that have come equally far, the higher one.
        let (&priority, _) = lane.priorities.iter().min_by_key(|(priority, turns)| (turns.pass, -**priority))?;
        let turns = lane.priorities.get_mut(&priority)?;
        turns.pass += stride(priority);
        let (order, job) = turns.waiting.first().copied()?;
        self.remove(tenant, priority, order, job);
        Some(job)
    }

    /// How many jobs of its tenant and priority, or a higher one, have their turn before it at least.
    pub(crate) fn before(&self, tenant: &str, priority: i32, order: u64, job: JobId) -> usize {
        let Some(lane) = self.tenants.get(tenant) else { return 0 };
        let higher = lane.priorities.range(priority + 1..).map(|(_, turns)| turns.waiting.len()).sum::<usize>();
        let same = lane.priorities.get(&priority).map_or(0, |turns| turns.waiting.range(..(order, job)).count());
        higher + same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(jobs: &[(&str, i32)]) -> Queue {
        let mut queue = Queue::default();
        for (at, (tenant, priority)) in jobs.iter().enumerate() {
            queue.add(&Arc::from(*tenant), *priority, at as u64, JobId::from_u128(at as u128));
        }
        queue
    }

    fn taken(queue: &mut Queue, tenant: &str) -> Vec<u128> {
        std::iter::from_fn(|| queue.take(tenant)).map(JobId::as_u128).collect()
    }

    #[test]
    fn the_oldest_of_a_priority_comes_first_and_a_higher_one_before() {
        let mut queue = queue(&[("a", 0), ("a", 0), ("b", 0), ("a", 50)]);
        assert_eq!((queue.len(), queue.len_of("a")), (4, 3));
        assert_eq!(queue.before("a", 0, 1, JobId::from_u128(1)), 2);
        assert_eq!(taken(&mut queue, "a"), [3, 0, 1]);
        assert_eq!(taken(&mut queue, "b"), [2]);
        assert_eq!((queue.len(), queue.tenants().count()), (0, 0));
    }

    #[test]
    fn a_low_priority_is_behind_and_not_starved() {
        let jobs: Vec<(&str, i32)> = (0..300).map(|at| ("a", if at < 150 { 30 } else { 0 })).collect();
        let mut queue = queue(&jobs);
        let order = taken(&mut queue, "a");
        let low_among_first = order[..90].iter().filter(|job| **job >= 150).count();
        assert!((8..=12).contains(&low_among_first), "one of nine: {low_among_first}");
    }

    #[test]
    fn who_waits_no_more_has_no_turn() {
        let mut queue = queue(&[("a", 0), ("a", 0)]);
        assert!(queue.remove("a", 0, 0, JobId::from_u128(0)));
        assert!(!queue.remove("a", 0, 0, JobId::from_u128(0)));
        assert_eq!(taken(&mut queue, "a"), [1]);
    }
}
