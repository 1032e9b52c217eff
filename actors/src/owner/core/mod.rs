//! What an Owner decides: one event in, effects out. What it looks at beside its events is in [`Surroundings`]; the only channels that it
//! has are those on which the program, beside it on its arbiter, waits for answers.
//!
//! The [shell](super::shell) feeds it with events and does what comes of them; so does the simulation (`simulation/owner.rs`), which runs
//! this very code in a world of its own. After a batch of events [`OwnerCore::flush`] says what came of all of them: tasks that became
//! ready are placed there, and what is to be said to a node is collected. The core asks for its timers by [`OwnerEffect::After`] (a tick each second,
//! and two deadlines), and hears them as events.
//!
//! ```text
//! mod.rs       events and messages                 leasing.rs   what the job was lent
//! program.rs   calls of the program, and reading   lanes.rs     what is pushed to Mergers
//! nodes.rs     what nodes are told                 figures.rs   what nodes count for the job
//! logging.rs   what is logged and waits for that   ending.rs    how the job ends
//! deferred.rs  frees that wait for the log         asking.rs    questions why the job stands still
//!
//! state.rs     what the program does to tasks, objects and sets; the tables are in tables.rs, task.rs,
//!              object.rs, copy.rs, set.rs, uses.rs, rare.rs
//! attempts.rs  what nodes report of attempts       lifetime.rs  counting, making and freeing
//! handing_out.rs  what can run goes to nodes (placement.rs, offers.rs, reach.rs, retry_placement.rs, run_times.rs,
//!              stragglers.rs)
//! replay.rs    making again what was lost          resume.rs    going on where an earlier run ended
//! commit.rs    tasks whose effects are for good    edge.rs      what goes through edges, and their ledgers
//! facts.rs     what the tables say about a wait
//! ```

mod asking;
mod attempts;
mod commit;
#[cfg(test)]
mod commit_tests;
mod copy;
#[cfg(test)]
mod core_tests;
mod deferred;
mod edge;
#[cfg(test)]
mod edge_tests;
mod ending;
mod facts;
mod figures;
mod handing_out;
#[cfg(test)]
mod handing_out_tests;
mod lanes;
mod leasing;
mod lifetime;
mod logging;
#[cfg(test)]
mod mutant_tests;
mod nodes;
mod object;
mod offers;
mod placement;
mod program;
#[cfg(test)]
mod property_tests;
mod quota;
mod rare;
mod reach;
#[cfg(test)]
mod reach_tests;
mod referrers;
mod replay;
#[cfg(test)]
mod replay_tests;
mod resume;
#[cfg(test)]
mod resume_tests;
mod retry_placement;
mod run_times;
mod set;
mod state;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod stop_tests;
mod stragglers;
#[cfg(test)]
mod stragglers_tests;
mod tables;
mod task;
mod uses;
#[cfg(test)]
mod world_tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info};

use self::asking::Questions;
pub(in crate::owner) use self::asking::unanswered;
use self::deferred::Freed;
use self::ending::JobEnding;
#[cfg(feature = "simulation")]
pub(crate) use self::ending::JobResult;
use self::figures::JobFigures;
use self::lanes::Lanes;
use self::leasing::Leasing;
pub(crate) use self::logging::Beginning;
use self::logging::Logging;
use self::program::ProgramWaits;
use self::state::Effect;
pub(crate) use self::tables::OwnerState;
use super::effect::{OwnerEffect, OwnerTimer};
use super::event::OwnerEvent;
use crate::event::{EventKind, NodeFigures, NodeState, Received};
use crate::ids::{Attempt, CopyId, Epoch, Incarnation, JobId, NodeId, ObjectId, TaskId};
use crate::joblog::{Entry, LogNews, TaskDone, Written};
use crate::jobs::quotas::Quotas;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::{OwnerMsg, Why};
use crate::protocol::scheduler::NodeInfo;
use crate::shell::Reply;

/// Tables that grow by so much within a second are counted before it is over.
const COUNT_AGAIN_BYTES: u64 = 1 << 20;
/// How often an Owner looks after its job.
const TICK: Duration = Duration::from_secs(1);

/// What an Owner can look at while it decides.
pub(crate) trait Surroundings {
    /// The time of the node's clock.
    fn now(&self) -> Duration;

    /// The epoch of the Scheduler that is followed.
    fn epoch(&self) -> Epoch;

    /// Whether that Scheduler was heard a moment ago.
    fn scheduler_speaks(&self) -> bool;

    /// Bytes of entries that wait to be written into the log, about.
    fn log_bytes(&self) -> u64;

    /// How much of its quota the log of the job has, if it has one.
    fn logged(&self) -> Option<Written> {
        None
    }

    /// Why the job may not begin, if it may not.
    fn admission(&self) -> Option<String>;
}

/// Whose job it is, and where its Owner runs.
#[derive(Clone, Debug)]
pub(crate) struct OwnerPlace {
    pub(crate) job: JobId,
    pub(crate) tenant: Arc<str>,
    /// What the tenant lets it use.
    pub(crate) quotas: Quotas,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Who hears of the job's events, if somebody does: how often nodes say their figures for it, milliseconds; 0: each half second.
    pub(crate) events: Option<u64>,
}

/// The core of an Owner.
pub(crate) struct OwnerCore {
    place: OwnerPlace,
    state: OwnerState,
    effects: Vec<OwnerEffect>,
    /// The nodes that have been told to watch the job.
    watching: HashSet<NodeId>,
    leasing: Leasing,
    /// Whether the Scheduler was asked which nodes there are, and has not answered.
    asking: bool,
    figures: JobFigures,
    frees: BTreeMap<NodeId, Vec<CopyId>>,
    recalls: BTreeMap<NodeId, Vec<(TaskId, Attempt)>>,
    lanes: Lanes,
    logging: Logging,
    /// Attempts that could not be sent, and wait for the next second.
    unsent: Vec<(NodeId, TaskId, Attempt)>,
    program: ProgramWaits,
    questions: Questions,
    ending: JobEnding,
    owner_bytes_peak: u64,
    /// What [`growing_bytes`](Self::growing_bytes) were when all of its memory was counted last.
    counted_bytes: u64,
}

impl OwnerCore {
    /// The Owner of a job without tasks, that starts `now` in a cluster of these nodes.
    pub(crate) fn new(place: OwnerPlace, cluster: Vec<NodeInfo>, now: Duration) -> Self {
        let mut owner = Self {
            state: OwnerState::new(place.job),
            effects: Vec::new(),
            watching: HashSet::new(),
            leasing: Leasing::default(),
            asking: false,
            figures: JobFigures::default(),
            frees: BTreeMap::new(),
            recalls: BTreeMap::new(),
            lanes: Lanes::default(),
            logging: Logging::default(),
            unsent: Vec::new(),
            program: ProgramWaits::default(),
            questions: Questions::new(now),
            ending: JobEnding::default(),
            owner_bytes_peak: 0,
            counted_bytes: 0,
            place,
        };
        (owner.state.told_of_attempts, owner.state.logs_makers) = (owner.place.events.is_some(), false);
        owner.state.may_use(owner.place.quotas);
        owner.state.is_at_home(&owner.place.node, owner.place.incarnation);
        owner.nodes_said(cluster);
        owner
    }

    /// Called once, before the first event; `begins`: what the log of the job knows, if there is one; `figures`: what this node has counted
    /// since its process started.
    pub(crate) fn started(&mut self, begins: Option<Beginning>, figures: NodeFigures) {
        let here = self.place.node.clone();
        // From here on, whatever the NodeManager says later: a job may be over before it does.
        self.figures.said(&here, figures);
        if begins.as_ref().is_some_and(|begins| begins.forgets) {
            self.forget_earlier_runs();
        }
        self.watched_by(&here);
        if let Some(begins) = begins {
            self.begin(begins);
        }
        self.after(TICK, OwnerTimer::Tick);
    }

    /// Takes in what happened.
    pub(crate) fn on(&mut self, event: OwnerEvent, around: &dyn Surroundings) {
        // The rest of the batch in which it ended: what an Owner that was taken over makes of it is nobody's business.
        if self.ending.is_over() {
            return;
        }
        match event {
            OwnerEvent::Wire(message) => self.message(message, around),
            OwnerEvent::Program(call) => self.called(call, around),
            // The one that was told may be the one before.
            OwnerEvent::NewEpoch if self.ending.has_begun() => self.say_that_it_is_over(),
            OwnerEvent::NewEpoch => {
                self.say_demand(around);
                self.effects.push(OwnerEffect::LookAtLog);
            }
            OwnerEvent::Nodes(nodes) => {
                self.asking = false;
                self.nodes_said(nodes);
            }
            OwnerEvent::NodeState { node, incarnation, state } => self.node_state(node, incarnation, state, around),
            OwnerEvent::SessionReset { node, incarnation } => self.state.session_reset(&node, incarnation),
            OwnerEvent::Log(news) => self.log_news(news),
            OwnerEvent::Unsent { node, task, attempt, never: None } => self.unsent.push((node, task, attempt)),
            OwnerEvent::Unsent { node, task, attempt, never: Some(reason) } => {
                self.state.rejected(&node, task, attempt, reason);
            }
            OwnerEvent::EndUnsent(node) => self.ending.has_said(&node),
            OwnerEvent::Figures(figures, received) => {
                let here = self.place.node.clone();
                self.ending.has_said(&here);
                self.figured(here, *figures, received);
            }
            OwnerEvent::NotPut(copy) => self.state.not_restored(copy),
            OwnerEvent::Read { read, outcome } => self.was_read(read, outcome),
            OwnerEvent::Doing { question, node, answer } => self.answered(question, node, answer, around),
            OwnerEvent::Timer(OwnerTimer::Settle) => self.settle(),
            OwnerEvent::Timer(OwnerTimer::Close) => self.ending.awaits_nobody(),
            OwnerEvent::Timer(OwnerTimer::Tick) if self.ending.has_begun() => {}
            OwnerEvent::Timer(OwnerTimer::Tick) => {
                self.tick(around);
                self.after(TICK, OwnerTimer::Tick);
            }
        }
    }

    /// The events that were waiting have been taken in: what comes of all of them.
    pub(crate) fn flush(&mut self, around: &dyn Surroundings) {
        if self.ending.is_over() {
            return;
        }
        if self.ending.has_begun() {
            return self.close();
        }
        for effect in self.state.flush() {
            self.translate(effect, around);
        }
        if self.commits() {
            for effect in self.state.flush() {
                self.translate(effect, around);
            }
        }
        if self.growing_bytes(around) >= self.counted_bytes + COUNT_AGAIN_BYTES {
            self.count_tables(around);
        }
        self.send_collected();
        self.send_pushed();
        if let Some(result) = self.decided() {
            self.end_when_durable(result);
        }
        if self.ending.is_over() {
            return;
        }
        // What came before that, or with it, has been taken in whole.
        if let Some(result) = self.last_word() {
            self.end(result, around);
        }
    }

    /// Puts what is to be done, in this order, behind what `effects` has.
    pub(crate) fn take_effects(&mut self, effects: &mut Vec<OwnerEffect>) {
        self.logging.handed_over();
        if effects.is_empty() {
            // Nothing is copied, and both lists serve again.
            std::mem::swap(effects, &mut self.effects);
        } else {
            effects.append(&mut self.effects);
        }
    }

    /// The tables.
    #[cfg(feature = "simulation")]
    pub(crate) fn state(&self) -> &OwnerState {
        &self.state
    }

    /// The epoch of the leases that it keeps to.
    #[cfg(feature = "simulation")]
    pub(crate) fn obeys(&self) -> Epoch {
        self.leasing.epoch()
    }

    fn after(&mut self, delay: Duration, timer: OwnerTimer) {
        self.effects.push(OwnerEffect::After(delay, timer));
    }

    fn emit(&mut self, at: NodeId, kind: Box<EventKind>) {
        if self.place.events.is_some() {
            self.effects.push(OwnerEffect::Event { at, kind });
        }
    }

    fn emit_here(&mut self, kind: EventKind) {
        self.emit(self.place.node.clone(), Box::new(kind));
    }

    fn answer(&mut self, reply: Reply<Why>, why: Why) {
        self.effects.push(OwnerEffect::Answer { reply, why });
    }

    fn job(&self) -> JobId {
        self.place.job
    }

    fn message(&mut self, message: OwnerMsg, around: &dyn Surroundings) {
        match message {
            OwnerMsg::Completed { node, incarnation, task, attempt, outputs, consumed, figures, values } => {
                let logged = self.state.logs_makers;
                let counts = if logged { self.state.counts_in_ledgers(task, &consumed) } else { Vec::new() };
                let made_by = self.state.completed((&node, incarnation), task, attempt, &outputs, &consumed, *figures);
                if let Some(made_by) = made_by {
                    if node != self.place.node {
                        self.state.values(task, attempt, &values);
                    }
                    self.note(Entry::Done(TaskDone { task, node, outputs, made_by, consumed: counts, values }));
                }
            }
            OwnerMsg::Yielded { node, incarnation, task, attempt, index, output } => {
                self.questions.watchdog.output();
                self.state.yielded((&node, incarnation), task, attempt, index, output);
            }
            OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures } => {
                self.state.failed((&node, incarnation), task, attempt, failure, figures.map(|figures| *figures));
            }
            OwnerMsg::Recalled { node, incarnation, task, attempt } => {
                self.state.recalled((&node, incarnation), task, attempt);
            }
            OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last } => {
                // What came before may have had something freed there.
                self.flush(around);
                if self.ending.is_over() {
                    return;
                }
                let held = copies.iter(self.place.job).zip(makers).zip(outputs);
                self.state.inventory((&node, incarnation), held.map(|((copy, maker), output)| (copy, maker, output)));
                if last {
                    self.has_told_what_it_holds(&node);
                }
            }
            OwnerMsg::SetUnknown { node, set } => self.state.set_unknown(&node, set),
            // One that has ended its job has the last word.
            OwnerMsg::TakenOver { run } if run > self.state.run() && !self.has_the_last_word() => self.taken_over(),
            OwnerMsg::TakenOver { .. } => {}
            OwnerMsg::Rejected { node, task, attempt, reason } => self.state.rejected(&node, task, attempt, reason),
            OwnerMsg::Leases { epoch, leases, wait } if self.is_of_now(epoch, around) => {
                self.waits_for(wait);
                if let Some(leases) = leases {
                    self.leased(epoch, leases, around);
                }
            }
            OwnerMsg::Leases { .. } => {}
            OwnerMsg::NodeFigures { node, figures, received, last, running } => {
                if last {
                    self.ending.has_said(&node);
                }
                self.questions.watchdog.runs(&node, &running);
                self.state.still_running(&node, &running);
                self.figured(node, *figures, received);
            }
            OwnerMsg::FoldDue { node, lane, blocks, bytes, tight } => {
                let count = blocks.len() as u32;
                let blocks = blocks.iter(self.place.job).map(|block| ObjectId::of_copy(block).0).collect();
                if self.lanes.fold_due(lane, blocks) {
                    self.emit(node, Box::new(EventKind::FoldDue { blocks: count, bytes, tight }));
                }
            }
            OwnerMsg::Why { ask, reply } => self.asked_why(ask, reply, around),
            OwnerMsg::Cancel => self.ending.cancel(),
        }
    }

    /// What an effect of the tables is for the world.
    fn translate(&mut self, effect: Effect, around: &dyn Surroundings) {
        let job = self.place.job;
        match effect {
            Effect::DefineSet { node, set } => self.send_set(&node, set),
            Effect::Run { node, spec } => {
                self.watched_by(&node);
                self.effects.push(OwnerEffect::Run { node, spec });
            }
            Effect::Recall { node, task, attempt } => self.recalls.entry(node).or_default().push((task, attempt)),
            Effect::Cancel { node, task, attempt } => self.tell(&node, NodeMsg::Cancel { job, task, attempt }),
            Effect::Free { node, copy } => self.free_when_durable(node, Freed::Copy(copy)),
            Effect::FreeParts { node, set, version, parts } => {
                self.free_when_durable(node, Freed::Parts(set, version, parts));
            }
            Effect::Restore { copy, maker, bytes, rows, row_hash } => {
                self.effects.push(OwnerEffect::Put { copy, maker, bytes, rows, row_hash });
            }
            Effect::TakeInventory { node } => {
                // It is another process or another incarnation, or what it was told may be lost: it knows nothing of this job.
                self.watching.remove(&node);
                self.take_inventory(&node);
            }
            Effect::SuspectUnreachable { node, of } => {
                self.tell(&node, NodeMsg::SuspectUnreachable { job, nodes: of.into() });
            }
            Effect::Resolved { tracker, object, outcome } => self.resolved(tracker, object, outcome, around),
            Effect::Streamed { tracker, item } => self.streamed(tracker, item),
            Effect::Demand(demand) => {
                self.leasing.wants(demand);
                self.say_demand(around);
            }
            Effect::Event { at, kind } => {
                match &*kind {
                    EventKind::TaskFailed { task, attempt, stage, error, last, .. } => {
                        info!(job_id = %job, task_id = %task, %attempt, %stage, error, last, "attempt failed");
                    }
                    EventKind::TaskFinished { task, attempt, stage, .. } => {
                        debug!(job_id = %job, task_id = %task, %attempt, %stage, "task completed");
                    }
                    _ => {}
                }
                self.emit(at, kind);
            }
            Effect::Fail(error) => self.ending.fail(error),
        }
    }

    fn tick(&mut self, around: &dyn Surroundings) {
        self.run_out(around);
        self.hand_out_what_was_unsent();
        self.state.rebalance();
        self.say_demand(around);
        self.count_tables(around);
        self.watch(around);
    }

    fn log_news(&mut self, news: LogNews) {
        match news {
            LogNews::Durable(position) => self.became_durable(position),
            LogNews::TakenOver => self.taken_over(),
            LogNews::Cut(cut) => self.log_is_cut(cut),
        }
    }

    fn node_state(&mut self, node: NodeId, incarnation: Incarnation, state: NodeState, around: &dyn Surroundings) {
        self.emit_here(EventKind::Node { about: node.clone(), state });
        self.questions.heard_of(&node, state, around.now());
        if matches!(state, NodeState::Dead | NodeState::Left) {
            self.ending.has_said(&node);
            self.has_told_what_it_holds(&node);
            self.state.node_dead(&node, incarnation);
        } else if state == NodeState::Up {
            self.end_earlier_runs_at(&node);
            self.state.node_up(&node, incarnation);
        }
    }

    fn figured(&mut self, node: NodeId, figures: NodeFigures, received: Vec<Received>) {
        for from_one in received {
            self.emit(node.clone(), Box::new(EventKind::Received(from_one)));
        }
        let figures = self.figures.said(&node, figures);
        self.questions.watchdog.figures(&node, &figures);
        self.emit(node, Box::new(EventKind::NodeFigures(figures)));
    }

    /// What grows fast, and is known without a walk.
    fn growing_bytes(&self, around: &dyn Surroundings) -> u64 {
        self.state.entries_bytes() + self.waiting_bytes(around)
    }

    /// Bytes that wait to be written into the log, or to be freed when that is done.
    fn waiting_bytes(&self, around: &dyn Surroundings) -> u64 {
        around.log_bytes() + self.logging.waiting_bytes()
    }

    /// Says what the tables take by now, with what waits for the log; a walk over all tasks, objects and sets.
    fn count_tables(&mut self, around: &dyn Surroundings) {
        let bytes = self.state.bytes();
        self.owner_bytes_peak = self.owner_bytes_peak.max(bytes);
        self.counted_bytes = self.growing_bytes(around);
        let takes = bytes + self.waiting_bytes(around);
        self.effects.push(OwnerEffect::Takes(takes));
    }
}
