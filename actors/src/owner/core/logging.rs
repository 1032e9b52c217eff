//! What the Owner notes in the job's log, what waits until that is durable, and how a job that was run before begins.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tracing::{info, warn};

use super::commit::Commit;
use super::deferred::{DeferredFrees, Freed};
use super::ending::JobResult;
use super::{OwnerCore, Surroundings};
use crate::event::EventKind;
use crate::ids::NodeId;
use crate::joblog::{Cut, Entry, Past, bytes_of};
use crate::owner::effect::{OwnerEffect, OwnerTimer};
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::LogUse;

/// How long nodes may take to say what they hold of a job that is taken up again. What comes later is of use still.
const INVENTORY_DEADLINE: Duration = Duration::from_secs(3);

/// How a job with a log begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// What earlier runs have noted. Their choices are the program's.
    pub(crate) past: Past,
    /// Nodes may know the job from runs of which its log knows nothing.
    pub(crate) forgets: bool,
    /// Whether the log can be written.
    pub(crate) logged: bool,
}

/// The log, as far as the Owner knows it.
#[derive(Debug, Default)]
pub(super) struct Logging {
    /// Whether what is noted goes anywhere.
    open: bool,
    /// How many entries were noted.
    noted: u64,
    /// How many of them are durable, or never will be.
    durable: u64,
    /// Bytes of what the writer of the log has not got yet, about.
    noted_bytes: u64,
    /// Since when the job cannot be taken up again, and why.
    cut: Option<Cut>,
    /// The entry that says that the job commits.
    commit_at: Option<u64>,
    /// What waits until it is durable.
    deferred: DeferredFrees<JobResult>,
    /// Nodes that are to say what they hold.
    awaited: BTreeSet<NodeId>,
    /// Whether the program waits until they have.
    settling: bool,
    /// Where nodes may know the job from runs of which its log knows nothing: those that were told that these are over.
    ended_at: Option<BTreeSet<NodeId>>,
}

impl Logging {
    /// Bytes of what waits for the writer of the log, and of what waits to be freed, about.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.noted_bytes + self.deferred.bytes()
    }

    /// The writer of the log gets what was noted.
    pub(super) fn handed_over(&mut self) {
        self.noted_bytes = 0;
    }
}

impl OwnerCore {
    /// Asks nodes what they hold of earlier runs; the program begins when they have said that, or at once.
    pub(super) fn begin(&mut self, Beginning { past, logged, .. }: Beginning) {
        (self.logging.open, self.logging.settling) = (logged, true);
        self.state.logs_makers = logged;
        let runs = past.runs;
        if runs > 0 {
            let (done, choices) = (past.done.len(), past.choices.len());
            info!(job_id = %self.place.job, runs, done, choices, "job is taken up again");
            if past.committing {
                (self.state.was_committing, self.state.commit) = (true, Commit::Noted);
                self.emit_here(EventKind::Committing);
            }
            self.state.resume(past);
            for node in self.state.alive_nodes() {
                // What was pushed to it was advice of an earlier run.
                self.end_at_merger(node.clone());
                self.take_inventory(&node);
                self.logging.awaited.insert(node);
            }
            self.after(INVENTORY_DEADLINE, OwnerTimer::Settle);
        }
        if self.logging.awaited.is_empty() {
            self.settle();
        }
    }

    /// The job begins from its beginning, and nodes may know it from runs of which its log knows nothing, which would be later ones to
    /// them: it is over for them, and begins.
    pub(super) fn forget_earlier_runs(&mut self) {
        self.logging.ended_at = Some(BTreeSet::new());
        self.state.alive_nodes().iter().for_each(|node| self.end_earlier_runs_at(node));
    }

    /// Where that is so, this is the first word to a node, whenever it is heard of.
    pub(super) fn end_earlier_runs_at(&mut self, node: &NodeId) {
        if self.logging.ended_at.as_mut().is_some_and(|ended_at| ended_at.insert(node.clone())) {
            self.end_at_merger(node.clone());
            self.effects.push(OwnerEffect::EndJob { node: node.clone() });
        }
    }

    /// A node has said all that it holds, or will not.
    pub(super) fn has_told_what_it_holds(&mut self, node: &NodeId) {
        self.logging.awaited.remove(node);
        if self.logging.awaited.is_empty() {
            self.settle();
        }
    }

    /// The program may begin.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.logging.settling) {
            self.effects.push(OwnerEffect::Settled);
        }
    }

    /// Notes something in the log, if there is one.
    pub(super) fn note(&mut self, entry: Entry) {
        if self.logging.open {
            self.logging.noted += 1;
            self.logging.noted_bytes += bytes_of(&entry) as u64;
            self.effects.push(OwnerEffect::Append(entry));
        }
    }

    /// Where a task is ready that commits: notes that, and lets it go when it is durable. True: it may go from now on.
    pub(super) fn commits(&mut self) -> bool {
        // A job whose end is noted publishes nothing any more.
        if self.state.commit != Commit::Wanted || self.logging.deferred.is_ending() {
            return false;
        }
        if self.logging.open && self.logging.commit_at.is_none() {
            self.note(Entry::Committing);
            self.logging.commit_at = Some(self.logging.noted);
        }
        let may_go = !self.logging.open || self.logging.commit_at.is_some_and(|at| at <= self.logging.durable);
        if may_go {
            self.state.commit = Commit::Noted;
            self.emit_here(EventKind::Committing);
        }
        may_go
    }

    /// The job is over. It ends when that is durable: if another run has begun meanwhile, it is not this one's to end.
    pub(super) fn end_when_durable(&mut self, result: JobResult) {
        if self.logging.deferred.is_ending() {
            return;
        }
        if result.is_err() {
            self.state.commit = Commit::NotYet;
        }
        self.note(Entry::End(result.clone().map(Bytes::from)));
        self.logging.deferred.end(self.logging.noted, result);
    }

    /// How the job ends, when that is durable, or there is no log.
    pub(super) fn last_word(&mut self) -> Option<JobResult> {
        let Logging { open, durable, deferred, .. } = &mut self.logging;
        deferred.last_word(if *open { *durable } else { u64::MAX })
    }

    /// Whether the end of the job is durable: no other run can begin any more.
    pub(super) fn has_the_last_word(&self) -> bool {
        self.ending.has_begun() || self.logging.deferred.has_last_word(self.logging.durable)
    }

    /// Frees something as soon as everything that was noted by now is durable: the completion of who read it last is.
    pub(super) fn free_when_durable(&mut self, node: NodeId, freed: Freed) {
        let log = if self.logging.open { (self.logging.noted, self.logging.durable) } else { (0, 0) };
        if let Some((node, freed)) = self.logging.deferred.free(log, node, freed) {
            self.free_now(node, freed);
        }
    }

    fn free_now(&mut self, node: NodeId, freed: Freed) {
        match freed {
            Freed::Copy(copy) => self.frees.entry(node).or_default().push(copy),
            Freed::Parts(set, version, parts) => {
                let (job, run) = (self.place.job, self.state.run());
                self.tell(&node, NodeMsg::FreeParts { job, run, set, version, parts });
            }
        }
    }

    /// The log is durable up to a position: what waited for that is freed.
    pub(super) fn became_durable(&mut self, position: u64) {
        self.logging.durable = self.logging.durable.max(position);
        for (node, freed) in self.logging.deferred.durable(position) {
            self.free_now(node, freed);
        }
    }

    /// Nothing is noted from now on but how the job ends. It goes on.
    pub(super) fn log_is_cut(&mut self, cut: Cut) {
        warn!(job_id = %self.place.job, "{cut}; the job goes on, and cannot be taken up again");
        let text = format!("{cut}; the job goes on, and cannot be taken up again when node {} ends", self.place.node);
        self.emit_here(EventKind::Note { text });
        self.logging.cut = Some(cut);
    }

    /// How much of its quota the log has, and since when it is cut.
    pub(super) fn log_use(&self, around: &dyn Surroundings) -> Option<LogUse> {
        let written = around.logged()?;
        let cut = self.logging.cut.as_ref().map(ToString::to_string);
        Some(LogUse { bytes: written.bytes, quota_bytes: written.quota_bytes, cut })
    }

    /// Another run of the job has begun.
    pub(super) fn taken_over(&mut self) {
        self.leave_log("another node has taken the job up");
    }

    /// Whether another run of the job would find in a log what this one has made, and no end of it.
    pub(super) fn is_logged(&self) -> bool {
        self.logging.open && self.logging.cut.is_none() && !self.logging.deferred.is_ending()
    }

    /// This run ends for the next one, which the Scheduler begins when it does not hear of this one.
    pub(super) fn begin_again(&mut self, why: &str) {
        self.emit_here(EventKind::Note { text: format!("the job begins again: {why}") });
        self.leave_log(why);
    }

    fn leave_log(&mut self, why: &str) {
        self.logging.open = false;
        self.effects.push(OwnerEffect::EndLog);
        self.abandon(why);
    }
}
