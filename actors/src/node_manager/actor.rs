//! The NodeManager's shell: what its core wants is done, with the store, staging, the executors, and those who are told something.

mod counting;

#[cfg(test)]
mod copies_tests;
#[cfg(test)]
pub(super) mod test_world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::{Beside, Clock, Store};
use hashbrown::HashMap;
use tracing::{debug, info, warn};

use self::counting::Counted;
use super::core::{NodeCore, NodeCounts, NodeEffect};
use super::event::{FiguresTaken, NodeEvent, StagingDone};
use super::executor::{ExecutorLink, Work};
use super::spared::{Spared, Unneeded};
use super::staging::{Prepared, Stager};
use crate::event::NodeFigures;
use crate::ids::{CopyId, JobId, NodeId};
use crate::printing::Printing;
use crate::protocol;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::registry::Function;
use crate::scheduler::SchedulerLink;
use crate::shell::{Actor, Address, Inbox, Kind, Post, Scope};
use crate::task::{Parts, Resources};
use crate::tenants::Tenants;

/// What a NodeManager is made of.
pub struct NodeManagerParts {
    pub(crate) post: Post,
    pub(crate) store: Store,
    pub(crate) stager: Stager,
    /// They outlive an incarnation of the node; its attempts do not.
    pub(crate) executors: Arc<dyn ExecutorLink>,
    /// Where tasks print.
    pub(crate) printing: Printing,
    /// For whom jobs run.
    pub(crate) tenants: Tenants,
    /// What the node offers.
    pub(crate) functions: BTreeMap<Arc<str>, &'static Function>,
    pub(crate) resources: Resources,
    /// How long to stay awake for a task that was handed out.
    pub(crate) spin: Duration,
    /// Figures of the process, taken now.
    pub(crate) figures: Box<dyn Fn() -> NodeFigures>,
    /// Who is told of which jobs something is here. None where the node is alone: it knows its jobs, and what it has of others may be
    /// taken up again.
    pub(crate) scheduler: Option<SchedulerLink>,
    /// Of which jobs something may be kept beyond them here under names that it has not got yet: nobody is told that something is here, since it
    /// would be deleted if the job is over, and nothing of it is freed. A node that is alone asks nobody.
    pub(crate) spared: Spared,
}

/// The actor.
pub struct NodeManager {
    core: NodeCore<Prepared>,
    post: Post,
    clock: Arc<dyn Clock>,
    store: Store,
    stager: Stager,
    executors: Arc<dyn ExecutorLink>,
    printing: Printing,
    tenants: Tenants,
    /// Where they report.
    reports: Arc<Inbox<NodeEvent>>,
    figures: Box<dyn Fn() -> NodeFigures>,
    /// When the first of the events that were waiting was handled: looking at the clock for each would cost more than most of them.
    now: Option<Duration>,
    /// How the Owner of each job is reached.
    owners: HashMap<JobId, Address<OwnerMsg>>,
    awake: Rc<Cell<bool>>,
    awake_until: Rc<Cell<Duration>>,
    spin: Duration,
    scheduler: Option<SchedulerLink>,
    spared: Spared,
    /// What of all this is told to the store.
    counted: Counted,
}

impl NodeManager {
    /// A NodeManager without tasks, whose mailbox is `inbox`.
    pub fn new(parts: NodeManagerParts, inbox: &Inbox<NodeEvent>) -> Self {
        let me = (parts.post.node().clone(), parts.post.incarnation());
        Self {
            core: NodeCore::new(me, parts.executors.count(), parts.resources, parts.functions),
            clock: parts.post.clock().clone(),
            counted: Counted::new(|| parts.store.told(Beside::Tables)),
            post: parts.post,
            store: parts.store,
            stager: parts.stager,
            executors: parts.executors,
            printing: parts.printing,
            tenants: parts.tenants,
            reports: Arc::new(inbox.clone()),
            figures: parts.figures,
            now: None,
            owners: HashMap::new(),
            awake: Rc::default(),
            awake_until: Rc::default(),
            spin: parts.spin,
            scheduler: parts.scheduler,
            spared: parts.spared,
        }
    }

    fn address(&self, job: JobId, node: &NodeId) -> Address<OwnerMsg> {
        self.post.address(node, &protocol::owner::actor_name(job))
    }

    fn tell(&mut self, job: JobId, node: &NodeId, message: OwnerMsg) {
        let told = match self.owners.get(&job) {
            Some(owner) if owner.node() == node => owner.send(message),
            // One that is over is on another node than the one that is followed.
            Some(_) => self.address(job, node).send(message),
            None => {
                let owner = self.address(job, node);
                self.owners.entry(job).or_insert(owner).send(message)
            }
        };
        // An Owner that cannot be reached is gone or on a node that is: its Membership says which, and ends the job.
        if let Err(error) = told {
            debug!(job_id = %job, %error, "owner not told");
        }
    }

    /// The bytes of those of these copies that are in memory as one part.
    fn values(&self, of: Vec<(u32, CopyId)>) -> impl Iterator<Item = (u32, Bytes)> {
        of.into_iter().filter_map(|(index, copy)| {
            // What has several parts is put back without knowing where they end: it is made again.
            self.store.meta(&copy).filter(|meta| meta.parts.len() == 1)?;
            Some((index, Bytes::copy_from_slice(&self.store.try_get(&copy, Parts::All)?)))
        })
    }

    fn tell_inventory(&mut self, job: JobId, owner: &NodeId) {
        let held = self.store.inventory(job.group());
        let held: Vec<_> = held.iter().map(|(meta, maker)| (meta.id, *maker, meta.into())).collect();
        for message in self.core.inventory(&held) {
            self.tell(job, owner, message);
        }
    }

    fn tell_holds(&self) {
        let Some(scheduler) = &self.scheduler else { return };
        // Results are of no job that could be over.
        let stored = self.store.groups().into_iter().map(JobId::from_u128);
        let stored = stored.filter(|job| !job.is_taken() && !self.spared.spares(*job));
        if let Some(holds) = self.core.holds(stored)
            && let Err(error) = scheduler.send(holds)
        {
            debug!(%error, "scheduler not told of jobs");
        }
    }

    /// Keeps this thread from sleeping for a moment after it handed out work: a short task is back before a sleeping core
    /// is awake again.
    fn stay_awake(&mut self, scope: &mut Scope<'_, Self>) {
        self.awake_until.set(self.clock.now() + self.spin);
        if self.awake.replace(true) {
            return;
        }
        let (clock, awake, until) = (self.clock.clone(), self.awake.clone(), self.awake_until.clone());
        scope.later(async move {
            while clock.now() < until.get() {
                tokio::task::yield_now().await;
            }
            awake.set(false);
            None
        });
    }

    /// Does what the core wants; whether executors were given something.
    fn perform(&mut self, scope: &mut Scope<'_, Self>) -> bool {
        let mut effects = self.core.effects();
        let hands = effects.iter().any(|effect| matches!(effect, NodeEffect::Hand { .. }));
        for effect in effects.drain(..) {
            self.act(effect, scope);
        }
        self.core.give_back(effects);
        hands
    }

    /// Frees copies of a job, or parts of them; later, if they may be members of a result.
    fn free(&self, freed: Unneeded) {
        let freed = match self.scheduler {
            Some(_) => self.spared.keep_back(freed),
            None => Some(freed),
        };
        freed.into_iter().for_each(|freed| freed.free(&self.store));
    }

    fn act(&mut self, effect: NodeEffect<Prepared>, scope: &mut Scope<'_, Self>) {
        match effect {
            NodeEffect::Tell { job, owner, message } => self.tell(job, &owner, message),
            NodeEffect::TellCompleted { key, owner, mut completed, small } => {
                completed.values.extend(self.values(small));
                self.tell(key.0, &owner, self.core.completed(key, completed));
            }
            NodeEffect::TellFailed { key, owner, failure, figures, read } => {
                let failure = self.stager.with_losses(failure, &read);
                self.tell(key.0, &owner, self.core.failed(key, failure, Some(figures)));
            }
            NodeEffect::AskForSet { key, owner, set } => {
                let node = self.post.node().clone();
                self.tell(key.0, &owner, OwnerMsg::SetUnknown { node, set });
            }
            NodeEffect::TellInventory { job, owner } => self.tell_inventory(job, &owner),
            NodeEffect::TellDoing { job, attempts, reply } => {
                let doing = self.core.doing(job, &attempts, &self.store.stats(), self.clock.now());
                self.post.answer(reply, doing);
            }
            NodeEffect::TellHolds => self.tell_holds(),
            NodeEffect::TakeFigures(listeners) => {
                let (figures, received) = ((self.figures)(), self.stager.received.read());
                let taken = FiguresTaken { listeners, figures, received };
                self.core.on(NodeEvent::Figures(Box::new(taken)), None, self.clock.now());
                self.perform(scope);
            }
            NodeEffect::Follow { job, owner } => drop(self.owners.insert(job, self.address(job, &owner))),
            NodeEffect::Forget(job) => drop(self.owners.remove(&job)),
            NodeEffect::Stage { key, spec, function, arguments, trail } => {
                let work = self.stager.stage(&spec, function, arguments, trail);
                scope.later(async move {
                    let outcome = work.await.map(|prepared| {
                        let waits = prepared.waits;
                        (prepared, waits)
                    });
                    Some(NodeEvent::Staged(Box::new(StagingDone { key, outcome })))
                });
            }
            NodeEffect::CannotStage { key, failure } => {
                let _ = self.reports.send(NodeEvent::Staged(Box::new(StagingDone { key, outcome: Err(failure) })));
            }
            NodeEffect::Hand { owner, spec, function, prepared, flags } => {
                let (Prepared { args, memory, copies, .. }, reports) = (prepared, self.reports.clone());
                self.executors.run(Work { owner, spec, function, args, memory, copies, flags, reports });
            }
            NodeEffect::Delete(copies) => self.free(Unneeded::Copies(copies)),
            // The Scheduler is told of what stays when it has its names, and says again that the job is over.
            NodeEffect::DeleteJob(job) if self.scheduler.is_some() && self.spared.spares(job) => {
                info!(job_id = %job, "objects of a job that is over stay until the records of results can be read");
            }
            NodeEffect::DeleteJob(job) => self.store.delete_group(job.group()),
            NodeEffect::Release { copies, parts } => self.free(Unneeded::Parts(copies, parts)),
            NodeEffect::SuspectUnreachable(nodes) => {
                let now = self.clock.now();
                nodes.iter().for_each(|node| self.stager.suspicions.suspect(node, now));
            }
            NodeEffect::After(delay, timer) => scope.after(delay, NodeEvent::Timer(timer)),
            NodeEffect::Count(tables) => self.counted.set(tables, self.post.waiting_bytes()),
            NodeEffect::Stale => self.post.count_stale(1),
        }
    }
}

impl Actor for NodeManager {
    type Message = NodeMsg;
    type Event = NodeEvent;

    fn started(&mut self, _scope: &mut Scope<'_, Self>) {
        self.core.started();
    }

    fn handle(&mut self, event: NodeEvent, scope: &mut Scope<'_, Self>) {
        match &event {
            NodeEvent::Wire(NodeMsg::Watch { job, tenant, .. }) => {
                // It comes before the first task.
                self.tenants.job_begins(*job, tenant);
                self.printing.belongs_to(*job, tenant);
            }
            NodeEvent::Wire(NodeMsg::EndJob { job }) => self.tenants.job_ends(*job),
            _ => {}
        }
        let arguments = self.core.arguments_of(&event);
        let at_once = arguments.and_then(|(spec, function, arguments)| self.stager.at_once(spec, function, arguments));
        let now = *self.now.get_or_insert_with(|| self.clock.now());
        self.core.on(event, at_once, now);
        self.perform(scope);
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        let now = self.now.take().unwrap_or_else(|| self.clock.now());
        self.core.flush(now);
        let NodeCounts { attempts, waiting, handed, sets, jobs } = self.core.counts();
        let census = self.post.census();
        census.set(Kind::Attempt, attempts);
        census.set(Kind::AttemptWaiting, waiting);
        census.set(Kind::AttemptHanded, handed);
        census.set(Kind::Set, sets);
        census.set(Kind::JobAtNode, jobs);
        let hands = self.perform(scope);
        if self.core.attempts() == 0 {
            self.awake_until.set(Duration::ZERO);
        } else if hands && !self.spin.is_zero() {
            self.stay_awake(scope);
        }
    }

    fn stopped(&mut self) {
        let attempts = self.core.attempts();
        if attempts > 0 {
            warn!(node = %self.post.node(), attempts, "node manager stops with work in hand");
        }
    }
}

impl Drop for NodeManager {
    fn drop(&mut self) {
        self.core.end();
    }
}
