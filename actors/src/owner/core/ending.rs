//! How a job ends: what its program returned, what it cannot go on without, or that somebody cancelled it; and the last figures of its
//! nodes, which are waited for a moment.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::warn;

use super::{OwnerCore, Surroundings};
use crate::event::EventKind;
use crate::ids::NodeId;
use crate::owner::effect::{JobOutcome, OwnerEffect, OwnerTimer};
use crate::protocol::scheduler::SchedulerMsg;
use crate::task::JobError;

/// How long nodes may take to say their last figures when the job ends; what one says later is not counted.
const FAREWELL: Duration = Duration::from_millis(500);

/// A job that has run so often, for whatever reason, does not begin again for what it had put and was lost.
const RUNS_MAX: u32 = 20;

/// What a job returns.
pub(crate) type JobResult = Result<Vec<u8>, JobError>;

/// What is known of the end of a job.
#[derive(Debug, Default)]
pub(super) struct JobEnding {
    failure: Option<JobError>,
    /// Somebody wants the job to end.
    cancelled: bool,
    result: Option<JobResult>,
    farewell: Option<Farewell>,
    over: bool,
}

/// A job that is over but for the last figures of some nodes.
#[derive(Debug)]
struct Farewell {
    result: JobResult,
    awaited: BTreeSet<NodeId>,
}

impl JobEnding {
    /// Whether the Owner has said how it ends: nothing comes of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the job is over, and its nodes say their last figures.
    pub(super) fn has_begun(&self) -> bool {
        self.farewell.is_some()
    }

    /// The job cannot go on. The first reason counts.
    pub(super) fn fail(&mut self, error: JobError) {
        self.failure.get_or_insert(error);
    }

    /// Somebody wants the job to end.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// The program has returned.
    pub(super) fn returned(&mut self, result: JobResult) {
        self.result = Some(result);
    }

    /// A node has said its last figures, or will not.
    pub(super) fn has_said(&mut self, node: &NodeId) {
        if let Some(farewell) = &mut self.farewell {
            farewell.awaited.remove(node);
        }
    }

    /// Nodes had their time.
    pub(super) fn awaits_nobody(&mut self) {
        if let Some(farewell) = &mut self.farewell {
            farewell.awaited.clear();
        }
    }
}

impl OwnerCore {
    /// How the job ends, if that is known by now.
    pub(super) fn decided(&mut self) -> Option<JobResult> {
        if self.ending.cancelled && !self.state.is_committing() {
            self.ending.cancelled = false;
            // Nobody wants it to begin again.
            self.ending.failure.take_if(|failure| matches!(failure, JobError::PutLost { .. }));
            self.ending.fail(JobError::Cancelled);
        }
        let decided = match (self.ending.failure.take(), self.ending.result.take()) {
            (Some(error), _) => Some(Err(error)),
            (None, Some(Ok(value))) => Some(self.state.close().map(|()| value)),
            (None, other) => other,
        };
        match &decided {
            Some(Err(error @ JobError::PutLost { .. })) if self.can_begin_again() => {
                self.begin_again(&error.to_string());
                None
            }
            _ => decided,
        }
    }

    /// Whether what this run lacks is no reason for its job to fail: another run finds what the log has, and goes on from there.
    fn can_begin_again(&self) -> bool {
        self.is_logged() && self.state.run() < RUNS_MAX
    }

    /// Ends the job: everything of it is given back everywhere. The nodes answer with their last figures.
    pub(super) fn end(&mut self, result: JobResult, around: &dyn Surroundings) {
        self.count_tables(around);
        let told: BTreeSet<NodeId> = self.watching.iter().cloned().collect();
        let awaited = told.iter().filter(|node| **node == self.place.node || self.state.is_alive(node));
        let awaited = awaited.cloned().collect();
        self.effects.extend(told.into_iter().map(|node| OwnerEffect::EndJob { node }));
        self.end_lanes();
        self.leave_computing();
        self.effects.push(OwnerEffect::DeleteAll);
        self.say_that_it_is_over();
        // When all that has been done.
        self.effects.push(OwnerEffect::LookAtFigures);
        self.ending.farewell = Some(Farewell { result, awaited });
        self.answer_open_questions(around);
        self.after(FAREWELL, OwnerTimer::Close);
    }

    /// What the program computes still goes on, and cannot be stopped: people hear on which threads.
    fn leave_computing(&mut self) {
        for thread in self.program.leave_computing() {
            warn!(job_id = %self.place.job, thread, "the job is over here, and its program computes on until its function returns");
            let text = format!("thread {thread} of this node computes for the job still, until its function returns");
            self.emit_here(EventKind::Note { text });
        }
    }

    /// The Scheduler is told that the job is over.
    pub(super) fn say_that_it_is_over(&mut self) {
        self.effects.push(OwnerEffect::SendScheduler(SchedulerMsg::JobDone { job: self.place.job }));
    }

    /// Says how the job ended, when all nodes that are awaited have said their last figures, this one, too.
    pub(super) fn close(&mut self) {
        let Some(Farewell { result, .. }) = self.ending.farewell.take_if(|farewell| farewell.awaited.is_empty()) else {
            return;
        };
        let error = result.as_ref().err().map(ToString::to_string);
        self.emit_here(EventKind::JobFinished { error });
        let nodes = std::mem::take(&mut self.figures).into_nodes();
        self.say_the_end(JobOutcome::Over { result, nodes, owner_bytes_peak: self.owner_bytes_peak });
    }

    /// Ends without a word: the job goes on elsewhere.
    pub(super) fn abandon(&mut self, reason: &str) {
        warn!(job_id = %self.place.job, reason, "the owner ends, the job does not");
        self.leave_computing();
        self.say_the_end(JobOutcome::Abandoned { reason: reason.to_owned() });
    }

    fn say_the_end(&mut self, outcome: JobOutcome) {
        self.ending.over = true;
        self.effects.push(OwnerEffect::End(outcome));
    }
}
