//! Which task is staged next, and which is handed to an executor. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::ids::{Attempt, JobId, TaskId};
use crate::task::Resources;

/// One attempt on this node.
pub(crate) type Key = (JobId, TaskId, Attempt);

/// Functions whose tasks take less than this are handed out ahead of free executors: the way there and back would
/// otherwise cost more than the task.
const SHORT_MICROS: u64 = 200;
/// How many short tasks are handed out per executor.
const SHORT_PER_EXECUTOR: usize = 64;

/// For so many ticks what is to run alone waits until those before it have ended, and for as many until its arguments are there, and keeps
/// those behind it waiting. Then it runs beside others: better than a node that stands idle for one of them.
const ALONE_TICKS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Queued,
    Staging,
    Ready,
    Handed,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    phase: Phase,
    function: &'static str,
    resources: Resources,
    wants: Wants,
}

/// What an attempt wants of its node besides its resources.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// Arguments, or memory.
    pub(crate) staging: bool,
    /// Memory beside the store, which it is granted when it is staged.
    pub(crate) memory_beside: bool,
    /// The executors for itself, and the memory: nothing else is staged or runs meanwhile.
    pub(crate) alone: bool,
}

/// What the NodeManager has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Get the arguments ready.
    Stage(Key),
    /// Give it to the executors.
    Hand(Key),
}

/// The queue of a node.
#[derive(Debug)]
pub(crate) struct NodeState {
    executors: usize,
    capacity: Resources,
    used: Resources,
    entries: HashMap<Key, Entry>,
    /// Attempts in order of arrival, by phase; the handed ones are only counted.
    queued: BTreeMap<u64, Key>,
    ready: BTreeMap<u64, Key>,
    /// Those that are to run alone, in all phases.
    alone: BTreeSet<u64>,
    staging: usize,
    handed: usize,
    /// The only one that is handed is to be alone.
    taken: bool,
    /// Ticks that the first one that is to be alone has waited: for others to end, or for its arguments.
    waited: u32,
    next: u64,
    mean_micros: HashMap<&'static str, u64>,
}

impl NodeState {
    pub(crate) fn new(executors: usize, capacity: Resources) -> Self {
        Self {
            executors,
            capacity,
            used: Resources::default(),
            entries: HashMap::new(),
            queued: BTreeMap::new(),
            ready: BTreeMap::new(),
            alone: BTreeSet::new(),
            staging: 0,
            handed: 0,
            taken: false,
            waited: 0,
            next: 0,
            mean_micros: HashMap::new(),
        }
    }

    /// A new attempt; false when it is known.
    pub(crate) fn add(&mut self, key: Key, function: &'static str, resources: Resources, wants: Wants) -> bool {
        if self.entries.contains_key(&key) {
            return false;
        }
        let number = self.next;
        self.next += 1;
        let phase = if wants.staging { Phase::Queued } else { Phase::Ready };
        let queue = if wants.staging { &mut self.queued } else { &mut self.ready };
        queue.insert(number, key);
        if wants.alone {
            self.alone.insert(number);
        }
        self.entries.insert(key, Entry { number, phase, function, resources, wants });
        true
    }

    /// Whether an attempt is here that is to run alone: until it has run nothing that comes may hold memory.
    pub(crate) fn has_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Its arguments are there; false when it is gone.
    pub(crate) fn staged(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        entry.phase = Phase::Ready;
        self.staging -= 1;
        self.ready.insert(entry.number, key);
        true
    }

    pub(crate) fn phase(&self, key: Key) -> Option<Phase> {
        self.entries.get(&key).map(|entry| entry.phase)
    }

    /// How many queued attempts are before it, how many are with the executors, and how many executors there are.
    pub(crate) fn before(&self, key: Key) -> (u64, u64, u64) {
        let ahead = self.entries.get(&key).map_or(0, |entry| self.queued.range(..entry.number).count());
        (ahead as u64, self.handed as u64, self.executors as u64)
    }

    /// How many attempts wait, for their arguments or for an executor, and how many executors have, those included that were handed out ahead.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.queued.len() + self.staging + self.ready.len(), self.handed]
    }

    /// The attempt is over, or was taken back. `micros`: how long it ran.
    pub(crate) fn remove(&mut self, key: Key, micros: Option<u64>) -> bool {
        let Some(entry) = self.entries.remove(&key) else { return false };
        if self.alone.first() == Some(&entry.number) {
            self.waited = 0;
        }
        self.alone.remove(&entry.number);
        match entry.phase {
            Phase::Queued => drop(self.queued.remove(&entry.number)),
            Phase::Staging => self.staging -= 1,
            Phase::Ready => drop(self.ready.remove(&entry.number)),
            Phase::Handed => {
                self.handed -= 1;
                self.taken &= !entry.wants.alone;
                for (name, milli) in &entry.resources.0 {
                    *self.used.0.entry(name.clone()).or_default() -= milli;
                }
            }
        }
        if let Some(micros) = micros {
            let mean = self.mean_micros.entry(entry.function).or_insert(micros);
            *mean = (*mean * 7 + micros) / 8;
        }
        true
    }

    /// The attempts of a job, in an order that is always the same.
    pub(crate) fn keys_of(&self, job: JobId) -> Vec<Key> {
        let mut keys: Vec<_> = self.entries.keys().filter(|key| key.0 == job).copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Some time has passed, the same each time.
    pub(crate) fn tick(&mut self) {
        if self.taken || self.alone.is_empty() {
            return self.waited = 0;
        }
        self.waited += 1;
        if self.waited >= ALONE_TICKS
            && let Some(number) = self.alone.pop_first()
            && let Some(entry) = self.entries.values_mut().find(|entry| entry.number == number)
        {
            (entry.wants.alone, self.waited) = (false, 0);
        }
    }

    /// What to do next.
    pub(crate) fn advance(&mut self, effects: &mut Vec<Effect>) {
        self.hand_out(effects);
        while let Some((number, key)) = self.queued.first_key_value().map(|(number, key)| (*number, *key))
            && self.may_stage(number, self.entries[&key].wants)
        {
            self.queued.remove(&number);
            self.entries.get_mut(&key).expect("a queued attempt has an entry").phase = Phase::Staging;
            self.staging += 1;
            if self.alone.contains(&number) {
                self.waited = 0;
            }
            effects.push(Effect::Stage(key));
        }
    }

    /// Whether the first one that is queued may hold memory now.
    fn may_stage(&self, number: u64, wants: Wants) -> bool {
        if self.taken || self.is_behind_alone(number) {
            return false;
        }
        if wants.alone {
            return self.staging == 0 && self.handed == 0 && self.ready.range(..number).next().is_none();
        }
        // What is granted beside the store is of no use to one that no executor is there for.
        let ahead = if wants.memory_beside { self.executors.saturating_sub(self.handed) } else { self.executors };
        // Those that wait behind one that is to run alone needed no staging, and hold nothing.
        let ready = self.alone.first().map_or(self.ready.len(), |alone| self.ready.range(..alone).count());
        self.staging + ready < ahead + 1
    }

    fn is_behind_alone(&self, number: u64) -> bool {
        self.alone.first().is_some_and(|alone| *alone < number)
    }

    fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        let mut from = 0;
        while !self.taken
            && let Some((number, key)) = self.ready.range(from..).next().map(|(number, key)| (*number, *key))
        {
            let entry = &self.entries[&key];
            let short = self.mean_micros.get(entry.function).is_some_and(|mean| *mean < SHORT_MICROS);
            let limit = if short { self.executors * SHORT_PER_EXECUTOR } else { self.executors };
            // What is to run alone waits for those before it, those that are being staged too, and those behind it wait for it.
            let waits = self.is_behind_alone(number) || entry.wants.alone && self.handed + self.staging > 0;
            if self.handed >= limit || waits {
                return;
            }
            from = number + 1;
            // What does not fit keeps its place; something smaller behind it may fit.
            if !short && !self.fits(&entry.resources) {
                continue;
            }
            let entry = self.entries.get_mut(&key).expect("looked up above");
            entry.phase = Phase::Handed;
            for (name, milli) in &entry.resources.0 {
                *self.used.0.entry(name.clone()).or_default() += milli;
            }
            self.taken = entry.wants.alone;
            self.ready.remove(&number);
            self.handed += 1;
            effects.push(Effect::Hand(key));
        }
    }

    fn fits(&self, need: &Resources) -> bool {
        // A lease never asks for more than there is; where one does, the task runs alone instead of never.
        let alone = self.handed == 0;
        need.0.iter().all(|(name, milli)| alone || self.used.get(name) + milli <= self.capacity.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128) -> Key {
        (JobId::from_u128(1), TaskId::from_u128(n), Attempt::nth(1))
    }

    fn wants(staging: bool, alone: bool) -> Wants {
        Wants { staging, alone, memory_beside: false }
    }

    fn node() -> NodeState {
        NodeState::new(2, Resources::cpu(2000).with("gpu", 1000))
    }

    fn advance(node: &mut NodeState) -> Vec<Effect> {
        let mut effects = Vec::new();
        node.advance(&mut effects);
        effects
    }

    #[test]
    fn tasks_start_in_order_and_no_more_than_executors() {
        let mut node = node();
        for n in 0..4 {
            assert!(node.add(key(n), "f", Resources::cpu(1000), wants(false, false)));
        }
        assert_eq!(advance(&mut node), [Effect::Hand(key(0)), Effect::Hand(key(1))]);
        assert!(node.remove(key(0), Some(1_000_000)));
        assert_eq!(advance(&mut node), [Effect::Hand(key(2))]);
        assert_eq!(advance(&mut node), []);
    }

    #[test]
    fn short_tasks_are_handed_out_ahead() {
        let mut node = node();
        assert!(node.add(key(0), "f", Resources::cpu(1000), wants(false, false)));
        assert_eq!(advance(&mut node).len(), 1);
        node.remove(key(0), Some(3));
        for n in 1..1000 {
            node.add(key(n), "f", Resources::cpu(1000), wants(false, false));
        }
        assert_eq!(advance(&mut node).len(), 2 * SHORT_PER_EXECUTOR);
    }

    #[test]
    fn one_task_more_than_executors_is_kept_staged() {
        let mut node = node();
        for n in 0..9 {
            node.add(key(n), "f", Resources::cpu(1000), wants(true, false));
        }
        assert_eq!(advance(&mut node), [Effect::Stage(key(0)), Effect::Stage(key(1)), Effect::Stage(key(2))]);
        assert!(node.staged(key(1)));
        assert_eq!(advance(&mut node), [Effect::Hand(key(1)), Effect::Stage(key(3))], "first ready, first started");
        assert!(node.staged(key(0)));
        assert_eq!(advance(&mut node), [Effect::Hand(key(0)), Effect::Stage(key(4))]);
    }

    #[test]
    fn a_scarce_resource_holds_back_only_those_that_need_it() {
        let mut node = node();
        let gpu = || Resources::default().with("gpu", 1000);
        node.add(key(0), "g", gpu(), wants(false, false));
        node.add(key(1), "g", gpu(), wants(false, false));
        node.add(key(2), "f", Resources::cpu(1000), wants(false, false));
        assert_eq!(advance(&mut node), [Effect::Hand(key(0)), Effect::Hand(key(2))]);
        node.remove(key(0), Some(1_000_000));
        assert_eq!(advance(&mut node), [Effect::Hand(key(1))]);
    }

    #[test]
    fn what_is_to_run_alone_waits_for_those_before_it_and_those_behind_it_wait_for_it() {
        let mut node = node();
        let add =
            |node: &mut NodeState, n: u128, alone| node.add(key(n), "f", Resources::cpu(1000), wants(false, alone));
        for n in 0..5 {
            assert!(add(&mut node, n, n == 1 || n == 2));
        }
        assert_eq!(advance(&mut node), [Effect::Hand(key(0))]);
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), [Effect::Hand(key(1))]);
        assert_eq!(advance(&mut node), []);
        node.remove(key(1), None);
        assert_eq!(advance(&mut node), [Effect::Hand(key(2))]);
        node.remove(key(3), None);
        assert_eq!(advance(&mut node), []);
        node.remove(key(2), Some(1));
        assert_eq!(advance(&mut node), [Effect::Hand(key(4))], "however short it is");
        assert!(add(&mut node, 5, false));
        assert_eq!(advance(&mut node), [Effect::Hand(key(5))], "and then all is as before");
    }

    #[test]
    fn what_is_to_run_alone_does_not_wait_for_ever_for_one_that_does_not_end() {
        let mut node = node();
        for n in 0..3 {
            node.add(key(n), "f", Resources::cpu(1000), wants(false, n == 1));
        }
        assert_eq!(advance(&mut node), [Effect::Hand(key(0))]);
        for _ in 1..ALONE_TICKS {
            node.tick();
            assert_eq!(advance(&mut node), []);
        }
        node.tick();
        assert_eq!(advance(&mut node), [Effect::Hand(key(1))]);
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), [Effect::Hand(key(2))], "and is one like others");
    }

    #[test]
    fn nothing_holds_memory_beside_what_is_to_run_alone() {
        let mut node = node();
        for n in 0..6 {
            node.add(key(n), "f", Resources::cpu(1000), wants(true, n == 2));
        }
        assert_eq!(advance(&mut node), [Effect::Stage(key(0)), Effect::Stage(key(1))], "none behind it");
        assert!(node.has_alone());
        node.staged(key(0));
        assert_eq!(advance(&mut node), [Effect::Hand(key(0))]);
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), [], "one before it is still to run");
        node.staged(key(1));
        assert_eq!(advance(&mut node), [Effect::Hand(key(1))]);
        node.remove(key(1), None);
        assert_eq!(advance(&mut node), [Effect::Stage(key(2))]);
        node.add(key(6), "f", Resources::cpu(1000), wants(false, false));
        assert_eq!(advance(&mut node), [], "nor does one begin that needs nothing");
        node.staged(key(2));
        assert_eq!(advance(&mut node), [Effect::Hand(key(2))]);
        assert_eq!(advance(&mut node), []);
        node.remove(key(2), None);
        assert!(!node.has_alone());
        assert_eq!(
            advance(&mut node),
            [Effect::Hand(key(6)), Effect::Stage(key(3)), Effect::Stage(key(4)), Effect::Stage(key(5))]
        );
    }

    #[test]
    fn what_needs_nothing_runs_alone_after_what_is_being_staged() {
        let mut node = node();
        node.add(key(0), "f", Resources::cpu(1000), wants(true, false));
        node.add(key(1), "f", Resources::cpu(1000), wants(false, true));
        node.add(key(2), "f", Resources::cpu(1000), wants(true, false));
        assert_eq!(advance(&mut node), [Effect::Hand(key(1))], "nothing is being staged yet");
        assert_eq!(advance(&mut node), []);
        node.remove(key(1), None);
        assert_eq!(advance(&mut node), [Effect::Stage(key(0)), Effect::Stage(key(2))]);
        node.add(key(3), "f", Resources::cpu(1000), wants(false, true));
        assert_eq!(advance(&mut node), []);
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), []);
        node.remove(key(2), None);
        assert_eq!(advance(&mut node), [Effect::Hand(key(3))]);
    }

    #[test]
    fn what_waits_behind_one_that_is_to_run_alone_keeps_nobody_before_it_waiting() {
        let mut node = node();
        for n in 0..5 {
            node.add(key(n), "f", Resources::cpu(1000), wants(true, n == 4));
        }
        assert_eq!(advance(&mut node).len(), 3);
        for n in 5..99 {
            node.add(key(n), "f", Resources::cpu(1000), wants(false, false));
        }
        (0..3).for_each(|n| assert!(node.remove(key(n), None)));
        assert_eq!(advance(&mut node), [Effect::Stage(key(3))]);
        node.remove(key(3), None);
        assert_eq!(advance(&mut node), [Effect::Stage(key(4))]);
    }

    #[test]
    fn what_is_to_run_alone_does_not_keep_others_waiting_for_ever_for_its_arguments() {
        let mut node = node();
        for n in 0..3 {
            node.add(key(n), "f", Resources::cpu(1000), wants(n > 0, n == 1));
        }
        assert_eq!(advance(&mut node), [Effect::Hand(key(0))]);
        (1..ALONE_TICKS).for_each(|_| node.tick());
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), [Effect::Stage(key(1))]);
        (1..ALONE_TICKS).for_each(|_| node.tick());
        assert_eq!(advance(&mut node), []);
        node.tick();
        assert_eq!(advance(&mut node), [Effect::Stage(key(2))]);
    }

    #[test]
    fn memory_beside_the_store_is_granted_to_one_more_than_there_are_free_executors() {
        let mut node = node();
        let wants = Wants { staging: true, memory_beside: true, alone: false };
        for n in 0..6 {
            node.add(key(n), "f", Resources::cpu(1000), wants);
        }
        assert_eq!(advance(&mut node), [0, 1, 2].map(|n| Effect::Stage(key(n))));
        (0..3).for_each(|n| assert!(node.staged(key(n))));
        assert_eq!(advance(&mut node), [Effect::Hand(key(0)), Effect::Hand(key(1))], "one waits for an executor");
        node.remove(key(0), None);
        assert_eq!(advance(&mut node), [Effect::Hand(key(2)), Effect::Stage(key(3))]);
    }

    #[test]
    fn a_repeated_attempt_is_ignored() {
        let mut node = node();
        assert!(node.add(key(0), "f", Resources::cpu(1000), wants(false, false)));
        assert!(!node.add(key(0), "f", Resources::cpu(1000), wants(false, false)));
        assert!(node.remove(key(0), None));
        assert!(!node.remove(key(0), None));
    }

    #[test]
    fn what_is_before_an_attempt_is_known() {
        let mut node = node();
        for n in 0..9 {
            node.add(key(n), "f", Resources::cpu(1000), wants(true, false));
        }
        advance(&mut node);
        assert_eq!([5, 3, 0, 77].map(|n| node.before(key(n))), [(2, 0, 2), (0, 0, 2), (0, 0, 2), (0, 0, 2)]);
        assert_eq!([0, 5, 77].map(|n| node.phase(key(n))), [Some(Phase::Staging), Some(Phase::Queued), None]);
        assert!(node.staged(key(1)));
        advance(&mut node);
        assert_eq!((node.before(key(5)), node.phase(key(1))), ((1, 1, 2), Some(Phase::Handed)));
    }

    #[test]
    fn what_is_taken_back_while_its_arguments_come_makes_room_for_the_next() {
        let mut node = node();
        for n in 0..9 {
            node.add(key(n), "f", Resources::cpu(1000), wants(true, false));
        }
        assert_eq!(advance(&mut node).len(), 3);
        for n in 0..2 {
            assert!(node.remove(key(n), None));
            assert_eq!(advance(&mut node), [Effect::Stage(key(n + 3))]);
        }
    }

    #[test]
    fn the_attempts_of_a_job_are_listed_in_order() {
        let mut node = node();
        let of = |job: u128, n: u128| (JobId::from_u128(job), TaskId::from_u128(n), Attempt::nth(1));
        for key in [of(1, 9), of(2, 1), of(1, 2)] {
            node.add(key, "f", Resources::cpu(1000), wants(false, false));
        }
        assert_eq!(node.keys_of(JobId::from_u128(1)), [of(1, 2), of(1, 9)]);
        assert_eq!(node.keys_of(JobId::from_u128(3)), []);
    }

    #[test]
    fn the_mean_follows_what_tasks_take_lately() {
        let mut node = node();
        for (n, (micros, mean)) in [(800, 800), (1600, 900), (100, 800)].into_iter().enumerate() {
            node.add(key(n as u128), "f", Resources::cpu(1000), wants(false, false));
            advance(&mut node);
            node.remove(key(n as u128), Some(micros));
            assert_eq!(node.mean_micros["f"], mean);
        }
    }
}
