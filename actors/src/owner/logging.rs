//! What the Owner writes into the job's log, what waits until that is durable, and how a job that was run before begins.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::actor::{JobOutcome, OwnerActor};
use super::deferred::{DeferredFrees, Freed};
use super::event::OwnerEvent;
use crate::ids::{CopyId, Incarnation, NodeId};
use crate::joblog::Choice;
use crate::joblog::{Entry, JobLog, LogNews, Run, TaskDone};
use crate::protocol;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::NodeMsg;

use crate::shell::{Kind, Scope};
use crate::task::{JobError, Output};

/// How long nodes may take to say what they hold of a job that is taken up again. What comes later is of use still.
const INVENTORY_DEADLINE: Duration = Duration::from_secs(3);

/// The log of a job that is about to run.
pub(crate) struct OwnerLog {
    /// The choices of its past are the program's.
    pub(crate) run: Run,
    /// Who is told when the program may begin.
    pub(crate) settled: oneshot::Sender<()>,
}

/// The log, while there is one.
#[derive(Default)]
pub(super) struct Logging {
    begins: Option<OwnerLog>,
    log: Option<JobLog>,
    /// What waits until it is durable.
    deferred: DeferredFrees<Result<Vec<u8>, JobError>>,
    /// Nodes that are to say what they hold, and who waits for that.
    awaited: BTreeSet<NodeId>,
    settled: Option<oneshot::Sender<()>>,
}

impl Logging {
    pub(super) fn new(begins: Option<OwnerLog>) -> Self {
        Self { begins, ..Self::default() }
    }

    fn add(&mut self, entry: Entry) {
        if let Some(log) = &mut self.log {
            log.add(entry);
        }
    }

    /// Bytes that wait to be written, or to be freed when that is done.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, JobLog::waiting_bytes) + self.deferred.bytes()
    }

    /// Another Scheduler has begun.
    pub(super) fn new_reign(&self) {
        if let Some(log) = &self.log {
            log.look();
        }
    }

    /// A node has said all that it holds, or will not.
    fn heard(&mut self, node: &NodeId) {
        self.awaited.remove(node);
        if self.awaited.is_empty() {
            self.settle();
        }
    }

    /// A node that is dead need not be waited for.
    pub(super) fn answers_no_more(&mut self, node: &NodeId) {
        self.heard(node);
    }

    /// The program may begin.
    pub(super) fn settle(&mut self) {
        if let Some(settled) = self.settled.take() {
            let _ = settled.send(());
        }
    }
}

impl OwnerActor {
    /// Opens the log and asks nodes what they hold of earlier runs.
    pub(super) fn begin_log(&mut self, scope: &mut Scope<'_, Self>) {
        let Some(OwnerLog { run: Run { logs, past, head }, settled }) = self.logging.begins.take() else {
            return;
        };
        let inbox = scope.inbox().clone();
        // The writer has it, and drops it when it ends.
        let living = self.post.census().living(Kind::LogWriter);
        let news = move |news| {
            let _ = &living;
            drop(inbox.send(OwnerEvent::Log(news)));
        };
        match JobLog::start(&logs, head, news) {
            Ok(log) => self.logging.log = Some(log),
            Err(error) => warn!(job_id = %self.job, %error, "the job is not logged"),
        }
        self.logging.settled = Some(settled);
        let runs = past.runs;
        if runs > 0 {
            info!(job_id = %self.job, runs, done = past.done.len(), choices = past.choices.len(), "job is taken up again");
            self.state.resume(past);
            let job = self.job;
            for node in self.state.alive_nodes() {
                let lanes = self.post.address::<MergerMsg>(&node, protocol::merger::ACTOR);
                // What was pushed to it was advice of an earlier run.
                let _ = lanes.send(MergerMsg::EndJob { job });
                self.take_inventory(&node);
                self.logging.awaited.insert(node);
            }
            scope.after(INVENTORY_DEADLINE, OwnerEvent::Settle);
        }
        if self.logging.awaited.is_empty() {
            self.logging.settle();
        }
    }

    /// The job begins from its beginning, and nodes may know it from runs of which its log knows nothing, which would be later ones to
    /// them: it is over for them, and begins.
    pub(super) fn forget_earlier_runs(&mut self) {
        if !self.logging.begins.as_ref().is_some_and(|log| log.run.head.forgets()) {
            return;
        }
        let job = self.job;
        for node in self.state.alive_nodes() {
            let _ = self.post.address::<MergerMsg>(&node, protocol::merger::ACTOR).send(MergerMsg::EndJob { job });
            self.tell(&node, NodeMsg::EndJob { job });
        }
    }

    /// Asks a node what it holds of the job.
    pub(super) fn take_inventory(&mut self, node: &NodeId) {
        let (job, owner, run) = (self.job, self.post.node().clone(), self.state.run());
        self.tell(node, NodeMsg::TakeInventory { job, owner, run });
    }

    /// What a node says that it holds of the job, or a part of that.
    pub(super) fn inventory(
        &mut self,
        (node, incarnation): (&NodeId, Incarnation),
        held: impl Iterator<Item = (CopyId, u32, Output)>,
        last: bool,
    ) {
        self.state.inventory((node, incarnation), held);
        if last {
            self.logging.heard(node);
        }
    }

    pub(super) fn note_choice(&mut self, choice: Choice) {
        self.logging.add(Entry::Choice(choice));
    }

    /// An attempt of a task was accepted.
    pub(super) fn note_done(&mut self, done: TaskDone) {
        self.logging.add(Entry::Done(done));
    }

    /// The job is over. It ends when that is durable: if another run has begun meanwhile, it is not this one's to end.
    pub(super) fn end_when_durable(&mut self, result: Result<Vec<u8>, JobError>, scope: &mut Scope<'_, Self>) {
        let Logging { log, deferred, .. } = &mut self.logging;
        match log {
            _ if deferred.is_ending() => {}
            Some(log) => {
                log.add(Entry::End(result.clone().map(Bytes::from)));
                deferred.end(log.position(), result);
            }
            None => self.end(result, scope),
        }
    }

    /// Frees something as soon as everything that was noted by now is durable: the completion of who read it last is.
    pub(super) fn free_when_durable(&mut self, node: NodeId, freed: Freed) {
        let log = self.logging.log.as_ref().map_or((0, 0), |log| (log.position(), log.durable()));
        if let Some((node, freed)) = self.logging.deferred.free(log, node, freed) {
            self.free_now(node, freed);
        }
    }

    fn free_now(&mut self, node: NodeId, freed: Freed) {
        match freed {
            Freed::Copy(copy) => self.frees.entry(node).or_default().push(copy),
            Freed::Parts(set, version, parts) => {
                let (job, run) = (self.job, self.state.run());
                self.tell(&node, NodeMsg::FreeParts { job, run, set, version, parts });
            }
        }
    }

    fn free_deferred(&mut self, up_to: u64) {
        let freed = self.logging.deferred.durable(up_to);
        freed.into_iter().for_each(|(node, freed)| self.free_now(node, freed));
    }

    pub(super) fn log_news(&mut self, news: LogNews, scope: &mut Scope<'_, Self>) {
        match news {
            LogNews::Durable(position) => {
                if let Some(log) = &mut self.logging.log {
                    log.became_durable(position);
                }
                self.free_deferred(position);
                if let Some(result) = self.logging.deferred.last_word(position) {
                    self.end(result, scope);
                }
            }
            LogNews::TakenOver => self.taken_over(scope),
        }
    }

    pub(super) fn taken_over(&mut self, scope: &mut Scope<'_, Self>) {
        self.logging.log = None;
        self.abandon("another node has taken the job up", scope);
    }

    /// Ends without a word: the job goes on elsewhere.
    fn abandon(&mut self, reason: &str, scope: &mut Scope<'_, Self>) {
        warn!(job_id = %self.job, reason, "the owner ends, the job does not");
        if let Some(done) = self.done.take() {
            let _ = done.send(JobOutcome::Abandoned { reason: reason.to_owned() });
        }
        scope.stop();
    }
}
