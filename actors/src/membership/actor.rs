//! Membership's shell: beats in and out, changes to whoever listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Bus, Message, Subject};
use exobus_store::{Clock, Store};
use parking_lot::RwLock;
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use super::core::{Change, MembershipCore, MembershipEffect, Renewal};
use super::figures::{MemoryPeak, Sampler, StoreUse};
use crate::protocol::membership::{Beat, Member, MembershipMsg, is_over};

use super::state::{MembershipEvent, State};
use crate::ids::{Incarnation, NodeId};
use crate::node_manager::Gate;
use crate::scheduler::{SchedulerEvent, SchedulerLink};
use crate::shell::{Actor, Inbox, Post, SaidBy, Scope, Wire};
use crate::transfer::network::Network;

impl From<MembershipMsg> for MembershipEvent {
    fn from(message: MembershipMsg) -> Self {
        match message {
            MembershipMsg::Beat(beat) => Self::Beat(beat),
        }
    }
}

impl Wire for MembershipMsg {
    const PROTOCOL: &'static str = "membership";

    fn said_by(&self) -> SaidBy<'_> {
        match self {
            Self::Beat(beat) => SaidBy::ThatNode(&beat.node, beat.incarnation),
        }
    }
}

/// How long a probe may take: whoever is not there is refused at once.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);

/// Who is in the cluster, readable from everywhere in the process.
#[derive(Clone, Debug)]
pub struct Directory {
    members: Arc<RwLock<BTreeMap<NodeId, Member>>>,
    changes: broadcast::Sender<Change>,
    resets: broadcast::Sender<(NodeId, Incarnation)>,
}

impl Default for Directory {
    fn default() -> Self {
        Self { members: Arc::default(), changes: broadcast::channel(256).0, resets: broadcast::channel(256).0 }
    }
}

impl Directory {
    /// One that knows these.
    #[cfg(test)]
    pub(crate) fn of(members: impl IntoIterator<Item = Member>) -> Self {
        let directory = Self::default();
        directory.members.write().extend(members.into_iter().map(|member| (member.node.clone(), member)));
        directory
    }

    /// Something has become of a member.
    #[cfg(test)]
    pub(crate) fn becomes(&self, member: Member, state: crate::event::NodeState) {
        let change = Change { node: member.node.clone(), incarnation: member.incarnation, state };
        self.members.write().insert(member.node.clone(), member);
        let _ = self.changes.send(change);
    }

    /// Where the Transfer of a node listens.
    pub fn data_address(&self, node: &NodeId) -> Option<String> {
        let members = self.members.read();
        members.get(node).map(|member| member.data_address.clone()).filter(|address| !address.is_empty())
    }

    /// Whether this incarnation of a node is over, see [`State::is_over`].
    pub fn is_over(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        let members = self.members.read();
        members.get(node).is_some_and(|member| is_over(incarnation, member.incarnation, member.health))
    }

    /// Whether a node is dead or has left, as far as is known here.
    pub fn is_gone(&self, node: &NodeId) -> bool {
        self.members.read().get(node).is_some_and(|member| member.health.is_gone())
    }

    /// Resolves when a node is gone, as far as is known here, or there is another process of its name.
    pub(crate) async fn gone(&self, node: &NodeId) {
        let mut changes = self.changes();
        let incarnation = || self.members.read().get(node).map(|member| member.incarnation);
        let now = incarnation();
        while !self.is_gone(node) && incarnation() == now {
            if let Err(broadcast::error::RecvError::Closed) = changes.recv().await {
                return std::future::pending().await;
            }
        }
    }

    /// Everybody who was heard, by name.
    pub fn members(&self) -> Vec<Member> {
        self.members.read().values().cloned().collect()
    }

    /// The session with an incarnation of a node was made anew: what was said last, either way, is lost.
    pub(crate) fn session_reset(&self, node: NodeId, incarnation: Incarnation) {
        // Nobody listens when no job runs.
        let _ = self.resets.send((node, incarnation));
    }

    /// With which nodes sessions are made anew from now on.
    pub(crate) fn resets(&self) -> broadcast::Receiver<(NodeId, Incarnation)> {
        self.resets.subscribe()
    }

    /// What becomes of nodes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

/// What Membership is made of.
pub(crate) struct MembershipParts {
    pub(crate) post: Post,
    pub(crate) bus: Bus,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) subject: Subject,
    pub(crate) store: Store,
    pub(crate) peak: Arc<MemoryPeak>,
    pub(crate) data_address: String,
    pub(crate) directory: Directory,
    /// The Scheduler of this process, where it is a candidate.
    pub(crate) scheduler: Option<Inbox<SchedulerEvent>>,
    /// Whom this node follows.
    pub(crate) link: SchedulerLink,
    /// Closed while the others may hold this node dead.
    pub(crate) gate: Gate,
    /// Told when they did, and this incarnation is over.
    pub(crate) renewals: mpsc::UnboundedSender<Renewal>,
}

/// The actor.
pub(crate) struct Membership {
    parts: MembershipParts,
    sampler: Sampler,
    core: MembershipCore,
}

impl Membership {
    pub(crate) fn new(parts: MembershipParts, state: State) -> Self {
        Self { parts, sampler: Sampler::new(), core: MembershipCore::new(state) }
    }

    fn beat(&mut self, incarnation: Incarnation, sequence: u64, stopping: bool, zombies: Vec<(NodeId, Incarnation)>) {
        let stats = self.parts.store.stats();
        let store = StoreUse {
            budget_bytes: stats.budget_bytes,
            used_bytes: stats.used_bytes,
            spilled_bytes: stats.spill_file_bytes,
        };
        let figures = self.sampler.sample(&self.parts.peak, store);
        let node = self.parts.post.node().clone();
        let data_address = self.parts.data_address.clone();
        let (leader, epoch) = (self.parts.link.leader(), self.parts.link.epoch());
        let beat = Beat { node, incarnation, sequence, figures, data_address, stopping, leader, epoch, zombies };
        let sealed = self.parts.bus.credentials().seal(&self.parts.subject, &MembershipMsg::Beat(beat));
        let bytes = sealed.expect("a beat is small and flat");
        // A beat that cannot go out now is skipped: a late one says nothing.
        let _ = self.parts.bus.try_publish(self.parts.subject.clone(), Message::new(bytes));
    }

    /// Looks whether the process of a silent node is there.
    fn probe(&self, node: NodeId, incarnation: Incarnation, address: String, scope: &mut Scope<'_, Self>) {
        let looked = nobody_listens(&self.parts.network, self.parts.post.clock(), address);
        scope.later(async move { looked.await.then_some(MembershipEvent::Refused { node, incarnation }) });
    }

    fn perform(&mut self, effect: MembershipEffect, scope: &mut Scope<'_, Self>) {
        match effect {
            MembershipEffect::After(delay, event) => scope.after(delay, event),
            MembershipEffect::Know(members) => {
                *self.parts.directory.members.write() =
                    members.into_iter().map(|member| (member.node.clone(), member)).collect();
            }
            MembershipEffect::Beat { incarnation, sequence, stopping, zombies } => {
                self.beat(incarnation, sequence, stopping, zombies);
            }
            MembershipEffect::Meet(node, incarnation) => {
                if self.parts.post.hears_of(&node, incarnation) {
                    self.parts.directory.session_reset(node, incarnation);
                }
            }
            MembershipEffect::TellScheduler(event) => {
                if let Some(Err(error)) = self.parts.scheduler.as_ref().map(|scheduler| scheduler.send(event)) {
                    warn!(%error, "scheduler not told of a dead node");
                }
            }
            // Nobody listens when no job runs.
            MembershipEffect::Tell(change) => drop(self.parts.directory.changes.send(change)),
            MembershipEffect::Probe(node, incarnation, address) => self.probe(node, incarnation, address, scope),
            MembershipEffect::Gate(true) => self.parts.gate.open(),
            MembershipEffect::Gate(false) => self.parts.gate.close(),
            MembershipEffect::Follows(node, leader) => self.parts.link.heard(&node, &leader),
            MembershipEffect::Heard(epoch) => self.parts.link.hears(epoch),
            MembershipEffect::Renew(renewal) => drop(self.parts.renewals.send(renewal)),
            MembershipEffect::Fail(fatal) => self.parts.post.fatal(fatal),
        }
    }
}

/// Whether connections to an address are refused: the process that listened there is gone. It is looked on a thread of its own, from
/// now on: connecting may take a while.
pub(crate) fn nobody_listens(
    network: &Arc<dyn Network>,
    clock: &Arc<dyn Clock>,
    address: String,
) -> impl Future<Output = bool> + 'static {
    let (tell, told) = tokio::sync::oneshot::channel();
    let (network, hold) = (network.clone(), clock.hold());
    let connect = move || {
        let outcome = network.connect(&address, PROBE_DEADLINE);
        let _ = tell.send(outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
        drop(hold);
    };
    // Without a thread for it, the silence decides.
    let started = std::thread::Builder::new().name("exobus-look".into()).spawn(connect).is_ok();
    async move { started && told.await.unwrap_or(false) }
}

impl Actor for Membership {
    type Message = MembershipMsg;
    type Event = MembershipEvent;

    fn handle(&mut self, event: MembershipEvent, _: &mut Scope<'_, Self>) {
        self.core.on(event, self.parts.post.clock().now());
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        self.core.flush(self.parts.post.clock().now());
        for effect in self.core.effects() {
            self.perform(effect, scope);
        }
    }
}
