//! What must hold, whatever happens. The first thing that does not is the finding of a run.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{Truth, meant};
use super::world::JOB;
use crate::ids::{Attempt, CopyId, Epoch, NodeId, ObjectId, TaskId};
use crate::joblog::Past;
use crate::node_manager::Key;
use crate::owner::OwnerState;
use crate::protocol::scheduler::{Placement, Refusal};

use crate::task::{FailureKind, Loss, Output, Parts, TaskFailure, TaskSpec};

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Different tasks that were submitted.
    pub tasks: u64,
    /// Attempts that were handed to nodes.
    pub handed: u64,
    /// Attempts that began to run.
    pub begun: u64,
    /// Attempts that completed, whether or not they counted.
    pub completed: u64,
    /// Runs of the program.
    pub runs: u64,
    /// Attempts that took very long.
    pub slow: u64,
    /// Attempts that failed by themselves.
    pub failed: u64,
    /// Second attempts beside one that takes long.
    pub copied: u64,
}

/// The judge.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) truth: Truth,
    pub(super) work: Work,
    pub(super) finding: Option<String>,
    /// Copies that faults took from nodes.
    taken: BTreeSet<(NodeId, CopyId)>,
    /// Copies that Owners have freed: of which run the last one was. One that was replaced and has not heard of it may free what the
    /// next one has found; that is made again.
    freed: BTreeMap<(NodeId, CopyId), u32>,
    /// The latest run of the program. What Owners of earlier ones still think is wrong, and means nothing.
    run: u32,
    /// The last run of which the Owner has told nodes that the job is over.
    ended: Option<u32>,
    /// Edges that were open then, and objects that were somewhere.
    left: (Vec<String>, usize),
    /// Tasks that the log had done when the program began again.
    done: BTreeSet<TaskId>,
    epochs: BTreeSet<Epoch>,
    /// The last epoch that the Owner of each run obeyed.
    obeyed: BTreeMap<u32, Epoch>,
    /// What the client was told, by question.
    pub(super) answers: BTreeMap<u64, Result<Placement, Refusal>>,
    begun: BTreeMap<TaskId, u64>,
    /// Attempts that did not count any more when they were handed to their nodes.
    in_vain: BTreeSet<(TaskId, Attempt)>,
}

impl Oracle {
    /// Something is not as it must be.
    pub(super) fn found(&mut self, finding: impl FnOnce() -> String) {
        if self.finding.is_none() {
            self.finding = Some(finding());
        }
    }

    /// A fault has taken a copy.
    pub(super) fn took(&mut self, node: &NodeId, copy: CopyId) {
        self.taken.insert((node.clone(), copy));
    }

    /// The Owner of a run tells nodes that the job is over: what they have of it goes.
    pub(super) fn ends(&mut self, state: &OwnerState) {
        if self.ended.replace(state.run()) != Some(state.run()) {
            self.left = state.left();
        }
    }

    /// The Owner ends a job of which the program has returned: what the program let go is gone, and all that was to be read was read.
    pub(super) fn ended_well(&mut self) {
        let (edges, objects) = std::mem::take(&mut self.left);
        if !edges.is_empty() || objects > 0 {
            self.found(|| format!("at the end of the job there are {objects} objects, and the edges {edges:?}"));
        }
    }

    /// The Owner of a run frees a copy.
    pub(super) fn frees(&mut self, run: u32, node: &NodeId, copy: CopyId) {
        self.freed.insert((node.clone(), copy), run);
    }

    /// Somebody begins to act as the Scheduler.
    pub(super) fn elected(&mut self, epoch: Epoch, succeeds: bool) {
        if let Some(last) = self.epochs.last().copied() {
            if epoch <= last {
                self.found(|| format!("epoch {} begins after epoch {}", epoch.0, last.0));
            }
            if !succeeds {
                self.found(|| format!("epoch {} begins as the first one, after epoch {}", epoch.0, last.0));
            }
        }
        self.epochs.insert(epoch);
    }

    /// A Scheduler tells an Owner something after its time is over.
    pub(super) fn lends_late(&mut self, node: &NodeId) {
        self.found(|| format!("the Scheduler of {node} tells an Owner something after its time"));
    }

    /// The Owner of a run keeps to leases of this epoch.
    pub(super) fn leased(&mut self, run: u32, epoch: Epoch) {
        let obeyed = self.obeyed.entry(run).or_default();
        let before = std::mem::replace(obeyed, epoch);
        if epoch < before {
            self.found(|| format!("leases of epoch {} are obeyed after those of epoch {}", epoch.0, before.0));
        }
    }

    /// The program begins again.
    pub(super) fn resumed(&mut self, past: &Past) {
        self.run = self.run.max(past.runs);
        self.done = past.done.iter().map(|done| done.task).collect();
    }

    pub(super) fn placed(&mut self, slot: u64, answer: Result<Placement, Refusal>) {
        self.answers.insert(slot, answer);
    }

    /// An attempt is handed to a node.
    pub(super) fn handed(&mut self, spec: &TaskSpec) {
        self.work.handed += 1;
        if spec.attempt.makes().counted() > 500 {
            self.found(|| format!("attempt {} of task {}", spec.attempt, spec.id));
        }
    }

    /// An attempt was handed to a node, and does not count any more.
    pub(super) fn handed_in_vain(&mut self, task: TaskId, attempt: Attempt) {
        self.in_vain.insert((task, attempt));
    }

    pub(super) fn begun(&mut self, task: TaskId) {
        self.work.begun += 1;
        *self.begun.entry(task).or_default() += 1;
    }

    /// An attempt has completed on a node: it must have read what is right, all of it and once.
    pub(super) fn made(&mut self, task: TaskId, index: u32, made: &[Output]) {
        let right = self.truth.of(task.output(index)).is_some_and(|right| right == made);
        if !right {
            self.found(|| format!("output {index} of task {task} is wrong: it was made of something else"));
        }
    }

    /// The program was given an object.
    pub(super) fn given(&mut self, object: ObjectId, parts: Parts, read: &[Output]) {
        let right = self.truth.of(object).is_some_and(|right| meant(right, parts) == read);
        if !right {
            self.found(|| format!("the program was given something else than object {object}"));
        }
    }

    /// The Owner has been told of a completion.
    pub(super) fn completed(&mut self, accepted: bool, logged: bool, task: TaskId, attempt: Attempt) {
        if logged && !accepted {
            self.found(|| format!("attempt {attempt} of task {task} counts although it was not accepted"));
        }
    }

    /// A set was not known where a task needs it. An Owner of an earlier run may not know that a node has forgotten it; and a Scheduler may
    /// have told a node that the job is over before what its Owner had said came there.
    pub(super) fn set_unknown(&mut self, (_, task, attempt): Key) {
        let over = attempt.run() < self.run || self.ended == Some(attempt.run());
        if over || self.in_vain.contains(&(task, attempt)) {
            return;
        }
        self.found(|| format!("attempt {attempt} of task {task} does not know its set"));
    }

    /// The Owner is told that an attempt failed.
    pub(super) fn failed(
        &mut self,
        state: &OwnerState,
        node: &NodeId,
        task: TaskId,
        attempt: Attempt,
        failure: &TaskFailure,
    ) {
        if failure.kind != FailureKind::ArgumentLost || state.run() < self.run || self.ended == Some(state.run()) {
            return;
        }
        for lost in failure.lost.iter().filter(|lost| lost.loss == Loss::Gone) {
            // Where the Owner still thinks that it is there, something must have taken it.
            let copy = lost.object.copy(JOB, lost.number);
            let here = state.lookup(lost.object).is_some_and(|(_, at, counts)| at == lost.node && counts == copy);
            let key = (lost.node.clone(), copy);
            let fault = self.taken.contains(&key) || self.freed.get(&key).is_some_and(|run| *run < state.run());
            if here && !fault {
                self.found(|| {
                    format!(
                        "attempt {attempt} of task {task} on {node} lost object {} of {} to nobody's fault",
                        lost.object, lost.node
                    )
                });
            }
        }
    }

    /// What was done, and what the faults of the run allow: each fault may cost each task twice. (Once, since what it made is lost; and once more,
    /// since maps that are made again for one reduce have been read by it when the output of another one is asked for, and found lost.)
    /// Where nothing goes wrong, each task runs once.
    pub(super) fn work_is_bounded(&mut self, faults: u64) {
        let tasks = self.truth.tasks.len() as u64;
        self.work.tasks = tasks;
        let (begun, allowed) = (self.work.begun, tasks * (1 + 2 * faults) + self.work.failed + self.work.copied);
        if begun > allowed {
            self.found(|| format!("{begun} attempts of {tasks} tasks began, with {faults} faults"));
        }
    }
}
