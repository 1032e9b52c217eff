//! What the Owner writes into the job's log, what waits until that is durable, and how a job that was run before begins.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::actor::{JobOutcome, OwnerActor};
use super::protocol::OwnerMsg;
use crate::futures::Choice;
use crate::ids::{NodeId, ObjectId, SetId, TaskId};
use crate::joblog::{Entry, JobLog, JobLogs, LogNews, Run, TaskDone, Trouble};
use crate::merger::{self, MergerMsg};
use crate::node_manager::NodeMsg;
use crate::shell::Scope;
use crate::task::{Consumed, JobError, Output, Parts, TaskSpec};

/// How long nodes may take to say what they hold of a job that is taken up again. What comes later is of use still.
const STOCK_DEADLINE: Duration = Duration::from_secs(3);

/// The log of a job that is about to run.
pub(crate) struct OwnerLog {
    /// The choices of its past are the program's.
    pub(crate) run: Run,
    /// Who is told when the program may begin.
    pub(crate) settled: oneshot::Sender<()>,
}

/// What is to be freed on a node.
#[derive(Debug)]
pub(super) enum Freed {
    Object(ObjectId),
    Parts(SetId, Parts),
}

/// The log, while there is one.
#[derive(Default)]
pub(super) struct Logging {
    begins: Option<OwnerLog>,
    logs: Option<JobLogs>,
    log: Option<JobLog>,
    /// The last record of a log that cannot be written any more.
    refused_after: Option<u64>,
    /// What is freed when the log is durable up to a position, in order.
    held: VecDeque<(u64, NodeId, Freed)>,
    /// How the job ends when the log is durable up to a position.
    last_word: Option<(u64, Result<Vec<u8>, JobError>)>,
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

    /// A node has said all that it holds, or will not.
    pub(super) fn heard(&mut self, node: &NodeId) {
        self.awaited.remove(node);
        if self.awaited.is_empty() {
            self.settle();
        }
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
        let Some(OwnerLog { run: Run { logs, past, name, last }, settled }) = self.logging.begins.take() else {
            return;
        };
        let address = scope.address().clone();
        let news = move |news| drop(address.send(OwnerMsg::Log(news)));
        match JobLog::start(&logs, self.job, (name, last), news) {
            Ok(log) => self.logging.log = Some(log),
            Err(error) => warn!(job_id = %self.job, %error, "the job is not logged"),
        }
        self.logging.settled = Some(settled);
        self.logging.logs = Some(logs);
        let runs = past.runs;
        if runs > 0 {
            info!(job_id = %self.job, runs, done = past.done.len(), choices = past.choices.len(), "job is taken up again");
            self.state.resume(past);
            let job = self.job;
            for node in self.state.alive_nodes() {
                let lanes = self.post.address::<MergerMsg>(&node, merger::ACTOR);
                // What was pushed to it was advice of an earlier run.
                let _ = lanes.send(MergerMsg::EndJob { job });
                self.take_stock(&node);
                self.logging.awaited.insert(node);
            }
            scope.after(STOCK_DEADLINE, OwnerMsg::Settle);
        }
        if self.logging.awaited.is_empty() {
            self.logging.settle();
        }
    }

    /// Asks a node what it holds of the job.
    pub(super) fn take_stock(&mut self, node: &NodeId) {
        let (job, owner, run) = (self.job, self.post.node().clone(), self.state.run());
        self.tell(node, NodeMsg::TakeStock { job, owner, run });
    }

    pub(super) fn note_choice(&mut self, choice: Choice) {
        self.logging.add(Entry::Choice(choice));
    }

    /// A task has completed for the first time.
    pub(super) fn note_done(
        &mut self,
        (node, task): (&NodeId, TaskId),
        outputs: Vec<Output>,
        consumed: Vec<Consumed>,
        values: Vec<(u32, Bytes)>,
    ) {
        if self.logging.log.is_none() {
            return;
        }
        self.logging.add(Entry::Done(TaskDone { task, node: node.clone(), outputs, consumed, values }));
    }

    /// The job is over. It ends when that is durable: if another run has begun meanwhile, it is not this one's to end.
    pub(super) fn end_when_durable(&mut self, result: Result<Vec<u8>, JobError>, scope: &mut Scope<'_, Self>) {
        let Logging { log, logs, last_word, refused_after, .. } = &mut self.logging;
        match (log, logs, *refused_after) {
            _ if last_word.is_some() => {}
            (Some(log), ..) => {
                log.add(Entry::End(result.clone().map(Bytes::from)));
                *last_word = Some((log.position(), result));
            }
            (None, Some(logs), Some(last)) => {
                *last_word = Some((u64::MAX, result));
                let (logs, job) = (logs.clone(), self.job);
                scope.later(async move {
                    // Where that cannot be known, it ends as it would without a log.
                    let ours = logs.is_last(job, last).await.unwrap_or(true);
                    let trouble = LogNews::Trouble(Trouble::TakenOver);
                    Some(OwnerMsg::Log(if ours { LogNews::Durable(u64::MAX) } else { trouble }))
                });
            }
            _ => self.end(result, scope),
        }
    }

    fn say_last_word(&mut self, up_to: u64, scope: &mut Scope<'_, Self>) {
        if self.logging.last_word.as_ref().is_some_and(|(position, _)| *position <= up_to)
            && let Some((_, result)) = self.logging.last_word.take()
        {
            self.end(result, scope);
        }
    }

    /// Frees something as soon as everything that was noted by now is durable: the completion of who read it last is.
    pub(super) fn free_when_durable(&mut self, node: NodeId, freed: Freed) {
        match &self.logging.log {
            Some(log) if log.durable() < log.position() => {
                self.logging.held.push_back((log.position(), node, freed));
            }
            _ => self.free_now(node, freed),
        }
    }

    fn free_now(&mut self, node: NodeId, freed: Freed) {
        match freed {
            Freed::Object(object) => self.frees.entry(node).or_default().push(object),
            Freed::Parts(set, parts) => {
                let job = self.job;
                self.tell(&node, NodeMsg::FreeParts { job, set, parts });
            }
        }
    }

    /// Frees outputs of a task that wait for this on a node, durable or not: what it makes there next has the same names.
    pub(super) fn free_held_of(&mut self, node: &NodeId, spec: &TaskSpec) {
        let is_output = |freed: &Freed| matches!(freed, Freed::Object(object) if spec.may_make(*object));
        let held = std::mem::take(&mut self.logging.held);
        let (here, others) = held.into_iter().partition(|(_, at, freed)| at == node && is_output(freed));
        self.logging.held = others;
        let here: VecDeque<(u64, NodeId, Freed)> = here;
        here.into_iter().for_each(|(_, node, freed)| self.free_now(node, freed));
    }

    fn free_held(&mut self, up_to: u64) {
        while let Some((position, ..)) = self.logging.held.front()
            && *position <= up_to
            && let Some((_, node, freed)) = self.logging.held.pop_front()
        {
            self.free_now(node, freed);
        }
    }

    pub(super) fn log_news(&mut self, news: LogNews, scope: &mut Scope<'_, Self>) {
        match news {
            LogNews::Durable(position) => {
                if let Some(log) = &mut self.logging.log {
                    log.became_durable(position);
                }
                self.free_held(position);
                self.say_last_word(position, scope);
            }
            LogNews::Trouble(Trouble::TakenOver) => {
                self.taken_over(scope);
            }
            LogNews::Trouble(Trouble::Refused { reason, last }) => {
                warn!(job_id = %self.job, reason, "the job goes on, and can be taken up again only as far as it was logged");
                (self.logging.log, self.logging.refused_after) = (None, Some(last));
                self.free_held(u64::MAX);
                if let Some((_, result)) = self.logging.last_word.take() {
                    self.end_when_durable(result, scope);
                }
            }
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
