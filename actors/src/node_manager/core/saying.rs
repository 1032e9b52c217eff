//! What a node says of itself and of its attempts, from time to time or when it is asked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use exobus_store::StoreStats;

use super::{Key, Listeners, NodeCore, NodeEffect, NodeTimer, Phase, micros};
use crate::event::{NodeFigures, Received};
use crate::ids::{Attempt, CopyId, JobId, NodeId, TaskId};
use crate::node_manager::event::FiguresTaken;
use crate::node_manager::why::{self, Step, Trail};
use crate::protocol::node_manager::{ATTEMPTS_ASKED_MAX, AttemptState, Doing, INVENTORY_PER_MESSAGE};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{JOBS_OVER_MAX, SchedulerMsg};
use crate::task::{Output, StillRunning};

/// Figures are not taken more often than this: taking them costs some 50 us.
const SAMPLE_MIN_MS: u64 = 20;

/// A copy that is sealed here, the number of the copy that an attempt made whose bytes it has, and what it is.
pub(crate) type HeldCopy = (CopyId, u32, Output);

impl<P: Default> NodeCore<P> {
    /// What the Scheduler is told of jobs of which something is here, with those that the store has something of: some may have ended
    /// while this node was away. `None`: there are none.
    pub(crate) fn holds(&self, stored: impl IntoIterator<Item = JobId>) -> Option<SchedulerMsg> {
        let known = self.owners.keys().copied().chain(self.sets.jobs());
        let attempts = self.attempts.keys().map(|(job, ..)| *job);
        let jobs: BTreeSet<_> = stored.into_iter().chain(known).chain(attempts).collect();
        let (node, jobs) = (self.node.clone(), jobs.into_iter().take(JOBS_OVER_MAX).collect::<Vec<_>>());
        (!jobs.is_empty()).then_some(SchedulerMsg::Holds { node, jobs })
    }

    /// What an Owner is told that wants to know what is here of its job.
    pub(crate) fn inventory(&self, held: &[HeldCopy]) -> Vec<OwnerMsg> {
        // Nothing is said, too.
        let chunks = held.chunks(INVENTORY_PER_MESSAGE).chain(held.is_empty().then_some(&[][..]));
        let count = chunks.clone().count();
        let message = |(index, held): (usize, &[HeldCopy])| {
            let (node, incarnation) = self.me();
            let copies = held.iter().map(|(copy, ..)| *copy).collect();
            let makers = held.iter().map(|(_, maker, _)| *maker).collect();
            let outputs = held.iter().map(|(.., output)| *output).collect();
            OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last: index + 1 == count }
        };
        chunks.enumerate().map(message).collect()
    }

    /// Has the Owners told how much this node has done so far.
    pub(super) fn take_figures(&mut self) {
        if !self.watched.is_empty() {
            self.effects.push(NodeEffect::TakeFigures(Listeners::Watching));
        }
    }

    /// Figures were taken.
    pub(super) fn say_figures(&mut self, taken: FiguresTaken, now: Duration) {
        let FiguresTaken { listeners, figures, mut received } = taken;
        match listeners {
            Listeners::One { job, owner, last } => self.say(job, owner, (figures, &received, last), now),
            Listeners::Watching => {
                let grown = |told: &BTreeMap<NodeId, u64>, now: &Received| told.get(&now.from) != Some(&now.bytes);
                received.retain(|now| grown(&self.received_told, now));
                self.received_told.extend(received.iter().map(|now| (now.from.clone(), now.bytes)));
                let jobs = self.watched.keys().filter_map(|job| Some((*job, self.owners.get(job)?.clone())));
                for (job, owner) in jobs.collect::<Vec<_>>() {
                    self.say(job, owner, (figures, &received, false), now);
                }
            }
        }
    }

    fn say(
        &mut self,
        job: JobId,
        owner: NodeId,
        (figures, received, last): (NodeFigures, &[Received], bool),
        now: Duration,
    ) {
        // What was lost the next ones say again, but for what others have sent and never send again.
        let (node, received, running) = (self.node.clone(), received.to_vec(), self.still_running(job, now));
        let message = OwnerMsg::NodeFigures { node, figures: Box::new(figures), received, last, running };
        self.effects.push(NodeEffect::Tell { job, owner, message });
    }

    /// The attempts of a job that have been on an executor for a while, the longest first.
    fn still_running(&self, job: JobId, now: Duration) -> Vec<StillRunning> {
        let wanted = self.attempts.iter().map(|(key, running)| (key, &running.flags));
        let cancelled = self.cancelled.iter().map(|(key, cancelled)| (key, &cancelled.flags));
        let long = wanted.chain(cancelled).filter_map(|((of, task, attempt), flags)| {
            let time = flags.running_for(now).filter(|time| *of == job && *time >= StillRunning::AFTER)?;
            Some(StillRunning { task: *task, attempt: *attempt, micros: micros(time) })
        });
        let mut long: Vec<_> = long.collect();
        long.sort_unstable_by_key(|running| (Reverse(running.micros), running.task, running.attempt));
        long
    }

    /// What attempts of a job do or wait for, in the order of the question, on a node whose store says this of itself.
    pub(crate) fn doing(
        &self,
        job: JobId,
        attempts: &[(TaskId, Attempt)],
        store: &StoreStats,
        now: Duration,
    ) -> Vec<AttemptState> {
        let steps = self.attempts.iter().filter(|(key, _)| self.state.phase(**key) == Some(Phase::Staging));
        let steps = steps.filter_map(|(_, running)| Some(running.trail.as_ref()?.read()));
        let waiting: Vec<_> =
            steps.filter(|(step, _)| matches!(step, Step::Memory(_))).map(|(_, since)| since).collect();
        let state = |(task, attempt): &(TaskId, Attempt)| {
            let key = (job, *task, *attempt);
            let (doing, since) = self.doing_one(key, now, &waiting, store);
            let for_ms = now.saturating_sub(since).as_millis() as u64;
            AttemptState { task: *task, attempt: *attempt, doing, for_ms }
        };
        attempts.iter().take(ATTEMPTS_ASKED_MAX).map(state).collect()
    }

    /// What an attempt does, and since when.
    fn doing_one(&self, key: Key, now: Duration, waiting: &[Duration], store: &StoreStats) -> (Doing, Duration) {
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
                Some((step, since)) => (why::staging(step, since, waiting, store), since),
                None => (Doing::Staging, running.waits_since),
            },
            Some(Phase::Ready) => (ready, running.waits_since),
            Some(Phase::Handed) => match running.flags.running_for(now) {
                Some(time) => (why::running(running.flags.shortage(now)), now.saturating_sub(time)),
                None => (ready, running.waits_since),
            },
        }
    }

    /// A job wants to hear of this node: now, as a base for what comes, and from then on.
    pub(super) fn watch(&mut self, job: JobId, owner: &NodeId, sample_ms: u64) {
        let owner = self.owner(job, owner);
        self.watched.insert(job, sample_ms);
        self.effects.push(NodeEffect::TakeFigures(Listeners::One { job, owner, last: false }));
        if !self.sampling {
            self.sample_later();
        }
    }

    /// Figures more often than with every tick, as long as a job asks for them.
    pub(super) fn sample_later(&mut self) {
        let every = self.watched.values().copied().filter(|every| *every > 0).min();
        self.sampling = every.is_some();
        if let Some(every) = every {
            let delay = Duration::from_millis(every.max(SAMPLE_MIN_MS));
            self.effects.push(NodeEffect::After(delay, NodeTimer::Sample));
        }
    }
}
