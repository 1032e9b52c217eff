//! What a node says of itself and of its attempts, from time to time or when it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use exobus_store::StoreStats;
use tracing::debug;

use super::{NodeManager, SAMPLE_MIN_MS, micros};
use crate::event::{NodeFigures, Received};
use crate::ids::{Attempt, JobId, NodeId, TaskId};
use crate::node_manager::event::NodeEvent;
use crate::node_manager::state::{Key, Phase};
use crate::node_manager::why;
use crate::node_manager::why::{Step, Trail};
use crate::protocol::node_manager::{ATTEMPTS_ASKED_MAX, AttemptState, Doing};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{JOBS_OVER_MAX, SchedulerMsg};

use crate::shell::Scope;
use crate::task::StillRunning;

impl NodeManager {
    /// Tells the Scheduler of which jobs something is here: some may have ended while this node was away.
    pub(super) fn say_holds(&self) {
        let Some(scheduler) = &self.scheduler else { return };
        let stored = self.store.groups().into_iter().map(JobId::from_u128);
        let known = self.owners.keys().copied().chain(self.sets.keys().map(|(job, _)| *job));
        let jobs: BTreeSet<_> = stored.chain(known).chain(self.attempts.keys().map(|(job, ..)| *job)).collect();
        if jobs.is_empty() {
            return;
        }
        let (node, jobs) = (self.node(), jobs.into_iter().take(JOBS_OVER_MAX).collect());
        if let Err(error) = scheduler.send(SchedulerMsg::Holds { node, jobs }) {
            debug!(%error, "scheduler not told of jobs");
        }
    }

    /// Tells the Owners how much this node has done so far.
    pub(super) fn say_figures(&mut self) {
        if self.watched.is_empty() {
            return;
        }
        let grown = |told: &BTreeMap<NodeId, u64>, now: &Received| told.get(&now.from) != Some(&now.bytes);
        let mut received = self.stager.received.read();
        received.retain(|now| grown(&self.received_told, now));
        self.received_told.extend(received.iter().map(|now| (now.from.clone(), now.bytes)));
        let figures = (self.figures)();
        for job in self.watched.keys() {
            self.say(*job, figures, &received, false);
        }
    }

    pub(super) fn say(&self, job: JobId, figures: NodeFigures, received: &[Received], last: bool) {
        if let Some(owner) = self.owners.get(&job) {
            // What was lost the next ones say again, but for what others have sent and never send again.
            let (node, received, running) = (self.node(), received.to_vec(), self.still_running(job));
            let _ = owner.send(OwnerMsg::NodeFigures { node, figures, received, last, running });
        }
    }

    /// The attempts of a job that have been on an executor for a while, the longest first.
    pub(super) fn still_running(&self, job: JobId) -> Vec<StillRunning> {
        let now = self.clock.now();
        let wanted = self.attempts.iter().map(|(key, running)| (key, &running.flags));
        let cancelled = self.cancelled.iter().map(|(key, cancelled)| (key, &cancelled.flags));
        let long = wanted.chain(cancelled).filter_map(|((of, task, attempt), flags)| {
            let time = flags.running_for(now).filter(|time| *of == job && *time >= StillRunning::AFTER)?;
            Some(StillRunning { task: *task, attempt: *attempt, micros: micros(time) })
        });
        let mut long: Vec<_> = long.collect();
        long.sort_unstable_by_key(|running| (std::cmp::Reverse(running.micros), running.task));
        long
    }

    /// What attempts of a job do or wait for, in the order of the question.
    pub(super) fn doing(&self, job: JobId, attempts: &[(TaskId, Attempt)]) -> Vec<AttemptState> {
        let now = self.clock.now();
        let steps = self.attempts.iter().filter(|(key, _)| self.state.phase(**key) == Some(Phase::Staging));
        let steps = steps.filter_map(|(_, running)| Some(running.trail.as_ref()?.read()));
        let waiting: Vec<_> = steps.filter(|(step, _)| *step == Step::Memory).map(|(_, since)| since).collect();
        let stats = self.store.stats();
        let state = |(task, attempt): &(TaskId, Attempt)| {
            let key = (job, *task, *attempt);
            let (doing, since) = self.doing_one(key, now, &waiting, &stats);
            let for_ms = now.saturating_sub(since).as_millis() as u64;
            AttemptState { task: *task, attempt: *attempt, doing, for_ms }
        };
        attempts.iter().take(ATTEMPTS_ASKED_MAX).map(state).collect()
    }

    /// What an attempt does, and since when.
    pub(super) fn doing_one(
        &self,
        key: Key,
        now: Duration,
        waiting: &[Duration],
        stats: &StoreStats,
    ) -> (Doing, Duration) {
        let Some(running) = self.attempts.get(&key) else {
            return match self.cancelled.get(&key) {
                Some(cancelled) => {
                    let time = cancelled.flags.running_for(now).unwrap_or_default();
                    (Doing::Cancelled, now.saturating_sub(time))
                }
                None => (Doing::NotHere, now),
            };
        };
        let (ahead, handed, executors) = self.state.before(key);
        let ready = Doing::Ready { handed, executors };
        match self.state.phase(key) {
            None => (Doing::NotHere, now),
            Some(Phase::Queued) => (Doing::Queued { ahead }, running.waits_since),
            Some(Phase::Staging) => match running.trail.as_ref().map(Trail::read) {
                Some((step, since)) => (why::staging(step, since, waiting, stats), since),
                None => (Doing::Staging, running.waits_since),
            },
            Some(Phase::Ready) => (ready, running.waits_since),
            Some(Phase::Handed) => match running.flags.running_for(now) {
                Some(time) => (Doing::Running, now.saturating_sub(time)),
                None => (ready, running.waits_since),
            },
        }
    }

    /// A job wants to hear of this node: now, as a base for what comes, and from then on.
    pub(super) fn watch(&mut self, job: JobId, owner: &NodeId, sample_ms: u64, scope: &mut Scope<'_, Self>) {
        self.owner(job, owner);
        self.watched.insert(job, sample_ms);
        self.say(job, (self.figures)(), &self.stager.received.read(), false);
        if !self.sampling {
            self.sample_later(scope);
        }
    }

    /// Figures more often than with every tick, as long as a job asks for them.
    pub(super) fn sample_later(&mut self, scope: &mut Scope<'_, Self>) {
        let every = self.watched.values().copied().filter(|every| *every > 0).min();
        self.sampling = every.is_some();
        if let Some(every) = every {
            scope.after(Duration::from_millis(every.max(SAMPLE_MIN_MS)), NodeEvent::Sample);
        }
    }
}
