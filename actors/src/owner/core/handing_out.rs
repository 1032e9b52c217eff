//! What can run is handed out, and what the job could use is asked for. Where a task would rather go is decided here (`wish`: bound to a node,
//! tried again, near what it reads), from where it is kept in `reach.rs`, and which node with a free slot that gives in [`placement`]. Second attempts beside one
//! that takes too long find their node in `stragglers.rs`.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use super::placement::{self, Key, NodeIndex, Wish};
use super::reach::SetsAt;
use super::state::{Demand, Effect};
use super::tables::{EntrySource, OwnerState};
use crate::arena::Index;
use crate::event::EventKind;
use crate::ids::{Attempt, NodeId, SetId};
use crate::printing::JOB_BYTES_MAX;
use crate::protocol::scheduler::Wait;

use crate::task::{JobError, LocatedArg, LocatedSource, Place, Resources, TaskSpec};

/// Arguments of at least this many bytes attract their task.
const ATTRACTIVE_BYTES: u64 = 1 << 20;

impl OwnerState {
    /// Hands out what can run, asks for what it needs, and returns everything to be done, in order.
    pub(super) fn flush(&mut self) -> Vec<Effect> {
        self.ask_for_wanted();
        let mut sets = SetsAt::new();
        for key in self.ready.keys() {
            while let Some(task) = self.ready.front(key) {
                if let Err(error) = self.may_be_handed_out(task) {
                    self.fail_task(task, error);
                    continue;
                }
                if self.waits_to_commit(task) {
                    break;
                }
                let entry = &self.tasks[task];
                let (function, mean) = (entry.function, self.functions[entry.function as usize].stats.mean_micros);
                let wish = self.wish(task);
                let kept_from = self.kept_from(task, &mut sets);
                let (nodes, shapes) = (&self.nodes, &self.options.shapes);
                let Some(node) = placement::choose(nodes, shapes, key.shape, function, mean, &wish, &kept_from) else {
                    break;
                };
                self.ready.pop(key);
                self.start(task, node);
            }
        }
        self.demand();
        std::mem::take(&mut self.effects)
    }

    /// A second has passed: an idle job asks for less, and when some node idles while others queue, what was queued too
    /// deep is taken back.
    pub(super) fn rebalance(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.full_ticks = node.full_ticks.saturating_sub(1));
        self.unreachable.fade();
        if self.counts.running == 0 && self.ready.is_empty() && self.demanded.values().any(|n| *n > 1) {
            self.demanded.values_mut().for_each(|n| *n = 1);
            self.demand_effect();
        }
        if !self.ready.is_empty() {
            return;
        }
        let load: Vec<_> = self.nodes.iter().map(|node| node.load(&self.options.shapes)).collect();
        let idles = |index: &usize| {
            let node = &self.nodes[*index];
            node.alive && node.full_ticks == 0 && !node.leased.0.is_empty() && load[*index] < 1000
        };
        let idle: Vec<usize> = (0..load.len()).filter(idles).collect();
        if idle.is_empty() {
            return;
        }
        // An idle node is of use only for what may go there and for what it has the function of.
        let movable = |task: &Index| {
            let function = self.tasks[*task].function;
            self.key(*task).pinned.is_none() && idle.iter().any(|node| self.nodes[*node].has(function))
        };
        let mut busy: Vec<usize> = (0..load.len()).filter(|index| load[*index] > 1000).collect();
        busy.sort_by_key(|index| Reverse(load[*index]));
        for busy in busy {
            let half = self.nodes[busy].in_flight.values().sum::<u64>() / 2;
            let held = self.held(busy as NodeIndex).into_iter().rev().filter(movable);
            let recalled: Vec<Index> = held.take(half as usize).collect();
            if !recalled.is_empty() {
                return self.recall(busy as NodeIndex, &recalled);
            }
        }
    }

    /// Why tasks of this kind are not placed, for people; where they only wait for their turn, `None`.
    pub(super) fn why_not_placed(&self, key: Key, tasks: u64) -> Option<String> {
        let busy = self.nodes.iter().any(|node| node.in_flight.values().any(|tasks| *tasks > 0));
        if let Some(reason) = self.why_no_function(key, tasks) {
            return Some(reason);
        }
        let needs = &self.options.shapes[usize::from(key.shape)];
        if let Some(node) = key.pinned {
            return Some(format!("{tasks} tasks wait for {needs} on node {}", self.nodes[usize::from(node)].id));
        }
        if self.nodes.iter().all(|node| node.leased.0.is_empty()) {
            return Some(format!("{tasks} tasks wait for a lease of {needs}"));
        }
        (!busy).then(|| format!("{tasks} tasks that need {needs} wait for a slot"))
    }

    /// How much of a lease on `node` the tasks there occupy.
    pub(super) fn in_use(&self, node: &NodeId, leased: &Resources) -> Resources {
        let Some(index) = self.known_node(node) else { return Resources::default() };
        let mut in_use = Resources::default();
        for ((shape, _), tasks) in &self.nodes[usize::from(index)].in_flight {
            for (name, milli) in &self.options.shapes[usize::from(*shape)].0 {
                *in_use.0.entry(name.clone()).or_default() += milli * tasks;
            }
        }
        // Queued tasks are counted as well, but nobody can occupy more than there is.
        in_use.0.iter_mut().for_each(|(name, milli)| *milli = (*milli).min(leased.get(name)));
        in_use
    }

    /// It can run, and no attempt of it does.
    pub(super) fn make_ready(&mut self, task: Index, front: bool) {
        self.set_speculated(task, false);
        self.tasks[task].is_ready();
        self.ready.push(self.key(task), task, front);
    }

    fn wish(&mut self, task: Index) -> Wish {
        if let Some(node) = self.retried_at(task) {
            return Wish::Hard(node);
        }
        let bound = self.key(task).pinned.is_some();
        if let Some(node) = self.tasks[task].rare.get().and_then(|rare| rare.rather_at).filter(|_| !bound) {
            return Wish::Soft(node);
        }
        let entry = &self.options[self.tasks[task].options as usize];
        match &entry.options.place {
            Place::Node { node, soft } => {
                let (node, soft) = (node.clone(), *soft);
                let node = self.node_or_add(&node);
                let entry = &self.tasks[task];
                match soft {
                    false => Wish::Hard(node),
                    // Its queue there was too long: back in that queue, it would be as far from running as before.
                    true if entry.was_recalled() => Wish::Near(vec![node]),
                    true => Wish::Soft(node),
                }
            }
            Place::Spread => Wish::Spread,
            Place::Anywhere => self.near(task, ATTRACTIVE_BYTES),
            Place::NearArgs => self.near(task, 1),
        }
    }

    fn near(&self, task: Index, bytes_min: u64) -> Wish {
        let mut bytes_at: SmallVec<[(u64, NodeIndex); 4]> = SmallVec::new();
        for arg in &self.tasks[task].args {
            if let EntrySource::Object(index) = arg.source {
                let Some(at) = self.objects[index].holder() else { continue };
                let more = self.objects[index].output().bytes;
                match bytes_at.iter_mut().find(|(_, node)| *node == at) {
                    Some((bytes, _)) => *bytes += more,
                    None => bytes_at.push((more, at)),
                }
            }
        }
        bytes_at.retain(|(bytes, _)| *bytes >= bytes_min);
        if bytes_at.is_empty() {
            return Wish::Anywhere;
        }
        bytes_at.sort_unstable_by(|a, b| b.cmp(a));
        Wish::Near(bytes_at.iter().map(|(_, node)| *node).collect())
    }

    fn start(&mut self, task: Index, node: NodeIndex) {
        self.tasks[task].start();
        self.launch(task, node);
    }

    /// One more attempt of a task; `None`: it cannot have one more, and the job fails.
    pub(super) fn launch(&mut self, task: Index, node: NodeIndex) -> Option<Attempt> {
        let attempt = Attempt::of(self.next_number(task)?);
        for position in 0..self.tasks[task].args.len() {
            if let EntrySource::Set(set) = self.tasks[task].args[position].source {
                self.define_set(set, node);
            }
        }
        let key = self.key(task);
        let entry = &mut self.tasks[task];
        let function = entry.function;
        entry.attempt_begins(attempt, node);
        let view = &mut self.nodes[usize::from(node)];
        *view.in_flight.entry((key.shape, function)).or_default() += 1;
        *view.given.entry(function).or_default() += 1;
        self.counts.running += 1;
        let node = view.id.clone();
        let spec = Arc::new(self.spec(task, attempt));
        if self.told_of_attempts {
            let kind = EventKind::TaskPlaced { task: spec.id, attempt, stage: self.stage(task) };
            self.happened(node.clone(), kind);
        }
        self.effects.push(Effect::Run { node, spec });
        Some(attempt)
    }

    fn spec(&self, task: Index, attempt: Attempt) -> TaskSpec {
        let entry = &self.tasks[task];
        let options = &self.options[entry.options as usize].options;
        let args = entry.args.iter().map(|arg| match arg.source {
            EntrySource::Object(index) => {
                let object = &self.objects[index];
                let source = LocatedSource::Object { object: object.id, at: self.located(object) };
                LocatedArg { source, parts: arg.parts }
            }
            EntrySource::Set(index) => {
                let (id, version) = (self.sets[index].id, self.sets[index].version());
                LocatedArg { source: LocatedSource::Set { set: id, version }, parts: arg.parts }
            }
        });
        TaskSpec {
            job: self.job,
            id: entry.id,
            attempt,
            function: self.functions[entry.function as usize].name.clone(),
            params: entry.params.to_vec().into(),
            args: args.collect(),
            returns: options.returns,
            target_bytes: options.target_bytes,
            align: options.align,
            resources: options.resources.clone(),
            scratch_bytes: options.scratch_bytes.clone(),
            whole_max_bytes: options.whole_max_bytes,
            memory_max_bytes: options.memory_max_bytes,
            outside_bytes: self.needs_outside(task).max(options.outside_bytes),
            alone: self.needs_a_node_alone(task),
            silent: self.counts.printed_bytes >= JOB_BYTES_MAX as u64,
            timeout_ms: options.timeout.map_or(0, |timeout| (timeout.as_millis() as u64).max(1)),
        }
    }

    pub(super) fn define_set(&mut self, set: Index, node: NodeIndex) {
        if self.sets[set].define_at(node) {
            let node = self.nodes[usize::from(node)].id.clone();
            self.effects.push(Effect::DefineSet { node, set: self.sets[set].id });
        }
    }

    /// A node does not know a set that it should: it is told again before the next attempt that reads it.
    pub(super) fn set_unknown(&mut self, node: &NodeId, set: SetId) {
        if let (Some(node), Some(set)) = (self.known_node(node), self.by_set.get(&set)) {
            self.sets[*set].unknown_at(node);
        }
    }

    /// Says what the job could use when that has grown by more than a little.
    fn demand(&mut self) {
        let mut wanted = self.ready.waiting();
        for node in &self.nodes {
            for ((shape, function), tasks) in &node.in_flight {
                if *tasks > 0 {
                    let function = self.if_scarce(*function);
                    *wanted.entry(Key { pinned: None, shape: *shape, function }).or_default() += tasks;
                }
            }
        }
        // Powers of two, and only growth: the Scheduler is told O(log tasks) times, not once a task.
        let mut grew = false;
        for (key, tasks) in wanted {
            let demanded = self.demanded.entry(key).or_default();
            if tasks > *demanded {
                *demanded = tasks.next_power_of_two();
                grew = true;
            }
        }
        if grew {
            self.demand_effect();
        }
    }

    fn demand_effect(&mut self) {
        let demand = self.demanded.iter().map(|(key, slots)| self.slots(*key, *slots)).collect();
        self.effects.push(Effect::Demand(demand));
    }

    fn slots(&self, key: Key, slots: u64) -> Demand {
        Demand {
            resources: self.options.shapes[usize::from(key.shape)].clone(),
            node: key.pinned.map(|node| self.nodes[usize::from(node)].id.clone()),
            function: key.function.map(|function| self.functions[function as usize].name.clone()),
            slots,
        }
    }

    /// Why the Scheduler does not lend more: an error where tasks wait for slots that no node could ever lend. Such slots are not
    /// asked for any more when nothing waits for them, since it was cancelled, say.
    pub(super) fn refused(&mut self, wait: Option<&Wait>) -> Option<JobError> {
        let wait = wait?;
        let never = wait.never.as_ref()?;
        let is_it = |key: &Key| {
            let Demand { resources, node, function, .. } = self.slots(*key, 0);
            (&resources, &node, &function) == (&never.resources, &never.node, &never.function)
        };
        let key = self.demanded.keys().copied().find(is_it)?;
        if self.ready.front(key).is_some() {
            return Some(JobError::Unplaceable { reason: wait.reason.clone() });
        }
        self.demanded.remove(&key);
        self.demand_effect();
        None
    }
}
