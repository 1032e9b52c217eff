//! What becomes of an attempt that an executor reports, and of what it has made.

use std::ops::Range;

use super::{Completed, Key, NodeCore, NodeEffect, Running, micros};
use crate::ids::{CopyId, Incarnation, NodeId};
use crate::node_manager::executor::Report;
use crate::node_manager::losses::may_be_a_loss;
use crate::protocol::owner::OwnerMsg;
use crate::registry::VALUE_MAX_BYTES;
use crate::task::{Consumed, FailureKind, Output, TaskFailure, TaskFigures, TaskTiming};

/// Small outputs are told to the Owner with the completion where there are so many outputs at most.
const VALUES_MAX: usize = 16;

/// What an attempt made and read, or why it failed.
type Outcome = Result<(Vec<Output>, Vec<Consumed>), TaskFailure>;

impl<P: Default> NodeCore<P> {
    /// An executor says this.
    pub(super) fn report(&mut self, report: Report) {
        match report {
            Report::Yielded { job, task, attempt, index, output } => {
                let key = (job, task, attempt);
                let Some(running) = self.attempts.get(&key) else { return self.delete_made(key, index..index + 1) };
                let (owner, (node, incarnation)) = (running.owner.clone(), self.me());
                self.tell(job, &owner, OwnerMsg::Yielded { node, incarnation, task, attempt, index, output });
            }
            Report::Finished { job, task, attempt, outcome, mut figures, value } => {
                let key = (job, task, attempt);
                let Some(running) = self.forget(key, outcome.is_ok().then_some(figures.micros)) else {
                    return self.ended_in_vain(key, outcome, figures);
                };
                let TaskTiming { executor, started_us, .. } = figures.timing;
                let ready_us = started_us.saturating_sub(micros(running.waits_since));
                figures.timing = TaskTiming { executor, started_us, ready_us, ..running.waited };
                match outcome {
                    Ok((outputs, consumed)) => {
                        let small = if value.is_some() { Vec::new() } else { self.small(&running, &outputs) };
                        let values = value.into_iter().map(|value| (0, value)).collect();
                        let owner = self.owner(job, &running.owner);
                        let completed = Completed { outputs, consumed, figures: Box::new(figures), values };
                        self.effects.push(NodeEffect::TellCompleted { key, owner, completed, small });
                    }
                    Err(failure) => self.ended_badly(key, &running, failure, figures),
                }
            }
        }
    }

    fn ended_badly(&mut self, key: Key, running: &Running<P>, failure: TaskFailure, figures: TaskFigures) {
        self.delete_made(key, 0..running.spec.announced_at_its_end());
        let failure = match running.timed_out {
            true => TaskFailure::new(FailureKind::Timeout, format!("after {} ms", running.spec.timeout_ms)),
            false => failure,
        };
        let read = match may_be_a_loss(&failure) {
            true => self.sets.read_on(&self.node, &running.spec),
            false => Vec::new(),
        };
        let owner = self.owner(key.0, &running.owner);
        self.effects.push(NodeEffect::TellFailed { key, owner, failure, figures: Box::new(figures), read });
    }

    /// The outputs whose bytes are told, for the job's log, and for an Owner on another node: what a job would have to begin anew for,
    /// should this node be lost, is often a few bytes that say what was written where.
    fn small(&self, running: &Running<P>, outputs: &[Output]) -> Vec<(u32, CopyId)> {
        if running.owner == self.node || outputs.len() > VALUES_MAX {
            return Vec::new();
        }
        let small = (0..).zip(outputs).filter(|(_, output)| (1..=VALUE_MAX_BYTES as u64).contains(&output.bytes));
        small.map(|(index, _)| (index, running.spec.makes(index))).collect()
    }

    /// An attempt has ended that had been cancelled: what it has made is nobody's, and goes. Its Owner compares what it made with what
    /// another attempt made.
    fn ended_in_vain(&mut self, key: Key, outcome: Outcome, figures: TaskFigures) {
        let may_have_sealed = self.cancelled.remove(&key).map_or(0, |cancelled| cancelled.outputs);
        self.delete_made(key, 0..may_have_sealed);
        if let (Ok((outputs, consumed)), Some(owner)) = (outcome, self.owners.get(&key.0)) {
            let (job, owner) = (key.0, owner.clone());
            let message =
                self.completed(key, Completed { outputs, consumed, figures: Box::new(figures), values: Vec::new() });
            self.effects.push(NodeEffect::Tell { job, owner, message });
        }
    }

    /// Deletes what an attempt has made and its Owner does not count: its copies have names of their own.
    fn delete_made(&mut self, (job, task, attempt): Key, outputs: Range<u32>) {
        if !outputs.is_empty() {
            let made = outputs.map(|index| task.output(index).copy(job, attempt.makes()));
            self.effects.push(NodeEffect::Delete(made.collect()));
        }
    }

    pub(super) fn me(&self) -> (NodeId, Incarnation) {
        (self.node.clone(), self.incarnation)
    }

    /// What the Owner of an attempt that completed is told.
    pub(crate) fn completed(&self, (_, task, attempt): Key, completed: Completed) -> OwnerMsg {
        let ((node, incarnation), Completed { outputs, consumed, figures, values }) = (self.me(), completed);
        OwnerMsg::Completed { node, incarnation, task, attempt, outputs, consumed, figures, values }
    }

    /// What the Owner of an attempt that failed is told; `figures`: of one that ran.
    pub(crate) fn failed(
        &self,
        (_, task, attempt): Key,
        failure: TaskFailure,
        figures: Option<Box<TaskFigures>>,
    ) -> OwnerMsg {
        let (node, incarnation) = self.me();
        OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures }
    }

    /// What the Owner of an attempt that was taken back is told.
    pub(super) fn recalled(&self, (_, task, attempt): Key) -> OwnerMsg {
        let (node, incarnation) = self.me();
        OwnerMsg::Recalled { node, incarnation, task, attempt }
    }
}
