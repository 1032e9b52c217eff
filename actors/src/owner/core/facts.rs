//! What the tables say about a wait: which stages there are, what needs what, who has which attempt. Looked up when the
//! job is quiet or somebody asks; it costs a walk over all tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tables::{EntrySource, OwnerState};
use super::task::State;
use crate::arena::Index;
use crate::ids::NodeId;
#[cfg(any(test, feature = "simulation"))]
use crate::ids::{Attempt, TaskId};
use crate::owner::why::chain::{AttemptFacts, StageFacts};
use crate::protocol::node_manager::ATTEMPTS_ASKED_MAX;

impl OwnerState {
    /// All stages that have tasks which are not done.
    pub(in crate::owner) fn stage_facts(&self) -> BTreeMap<Arc<str>, StageFacts> {
        let mut stages: BTreeMap<Arc<str>, StageFacts> = BTreeMap::new();
        let mut sets = BTreeSet::new();
        for (_, task) in self.tasks.iter() {
            let name = &self.functions[task.function as usize].stage;
            let facts = stages.entry(name.clone()).or_default();
            match task.state() {
                State::Wanted | State::Waiting { .. } => facts.waiting += 1,
                State::Ready => facts.ready += 1,
                State::Running => facts.running += 1,
                // Many are done and forgotten: their function has counted them.
                State::Done | State::Failed => continue,
            }
            if !matches!(task.state(), State::Waiting { .. }) {
                continue;
            }
            for arg in &task.args {
                match arg.source {
                    EntrySource::Object(object) => facts.needs.extend(self.maker(object)),
                    // One set is the argument of many tasks of a stage.
                    EntrySource::Set(set) if sets.insert((task.function, set)) => {
                        facts.needs.extend(self.sets[set].members.iter().filter_map(|member| self.maker(*member)));
                    }
                    EntrySource::Set(_) => {}
                }
            }
        }
        stages.retain(|_, facts| facts.waiting + facts.ready + facts.running > 0);
        for function in &self.functions.entries {
            if let Some(facts) = stages.get_mut(&function.stage) {
                facts.done += function.stats.times.len();
            }
        }
        stages
    }

    /// The stage that makes an object which is not there, unless nothing will make it.
    fn maker(&self, object: Index) -> Option<Arc<str>> {
        let object = &self.objects[object];
        let task = object.task.filter(|_| !object.is_here())?;
        let task = &self.tasks[task];
        let makes = matches!(task.state(), State::Wanted | State::Waiting { .. } | State::Ready | State::Running);
        makes.then(|| self.functions[task.function as usize].stage.clone())
    }

    /// Whether a node has this attempt, as far as is known: what it makes counts.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn is_under_way(&self, task: TaskId, attempt: Attempt) -> bool {
        let live = self.find_task(task).map(|task| self.tasks[task].live());
        live.into_iter().flatten().any(|(live, _)| *live == attempt)
    }

    /// The attempts that nodes have, by node; of each node the first ones only.
    pub(super) fn attempt_facts(&self) -> BTreeMap<NodeId, Vec<AttemptFacts>> {
        let mut attempts: BTreeMap<NodeId, Vec<AttemptFacts>> = BTreeMap::new();
        for (_, task) in self.tasks.iter() {
            for (attempt, node) in task.live() {
                let node = &self.nodes[usize::from(*node)].id;
                let of_node = attempts.entry(node.clone()).or_default();
                if of_node.len() < ATTEMPTS_ASKED_MAX {
                    of_node.push(AttemptFacts {
                        stage: self.functions[task.function as usize].stage.clone(),
                        task: task.id,
                        attempt: *attempt,
                        node: node.clone(),
                    });
                }
            }
        }
        attempts
    }

    /// Why tasks that could run are not placed, with the stage of one of them: each kind once. Those that wait behind
    /// others for a slot are not told: what the others do is the cause.
    pub(in crate::owner) fn unplaced(&self) -> Vec<(Arc<str>, String)> {
        let stage = |key| {
            let first = self.ready.front(key)?;
            Some(self.stage(first))
        };
        let waiting = self.ready.waiting();
        waiting.iter().filter_map(|(key, tasks)| Some((stage(*key)?, self.why_not_placed(*key, *tasks)?))).collect()
    }
}
