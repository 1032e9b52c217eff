//! Membership's shell: beats in and out, changes to whoever listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Bus, Message, Subject};
use exobus_store::{Clock, Store};
use parking_lot::RwLock;
use tokio::sync::{broadcast, mpsc};
use tracing::{info, warn};

use super::figures::{MemoryPeak, Sampler, StoreUse};
use crate::protocol::membership::{Beat, Health, Member, MembershipMsg, is_over};

use super::state::{Effect, MembershipEvent, State};
use crate::event::NodeState;
use crate::ids::{Incarnation, NodeId};
use crate::node_manager::Gate;
use crate::scheduler::{SchedulerEvent, SchedulerLink};
use crate::shell::{Actor, Fatal, Inbox, Post, SaidBy, Scope, Wire};
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

const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_millis(500);
/// How long a probe may take: whoever is not there is refused at once.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);

/// What became of a node, for those who listen.
#[derive(Clone, Debug)]
pub struct Change {
    /// The node.
    pub node: NodeId,
    /// Which life.
    pub incarnation: Incarnation,
    /// What became of it.
    pub state: NodeState,
}

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
    /// Where the Transfer of a node listens.
    pub fn data_address(&self, node: &NodeId) -> Option<String> {
        let members = self.members.read();
        members.get(node).map(|member| member.data_address.clone()).filter(|address| !address.is_empty())
    }

    /// Whether this life of a node is over, see [`State::is_over`].
    pub fn is_over(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        let members = self.members.read();
        members.get(node).is_some_and(|member| is_over(incarnation, member.incarnation, member.health))
    }

    /// Whether a node is dead or has left, as far as is known here.
    pub fn is_gone(&self, node: &NodeId) -> bool {
        self.members.read().get(node).is_some_and(|member| member.health.is_gone())
    }

    /// Everybody who was heard, by name.
    pub fn members(&self) -> Vec<Member> {
        self.members.read().values().cloned().collect()
    }

    /// The session with a life of a node was made anew: what was said last, either way, is lost.
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
    pub(crate) state: State,
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
    /// Told when they did, and this life is over.
    pub(crate) renewals: mpsc::UnboundedSender<Renewal>,
}

/// This node was declared dead: the life that it begins now.
pub(crate) struct Renewal {
    pub(crate) told_by: NodeId,
    /// Of the new life; goes on where this one's stops.
    pub(crate) state: State,
}

/// The actor.
pub(crate) struct Membership {
    parts: MembershipParts,
    sampler: Sampler,
    effects: Vec<Effect>,
    /// This life is over: the next one speaks.
    over: bool,
}

impl Membership {
    pub(crate) fn new(parts: MembershipParts) -> Self {
        Self { parts, sampler: Sampler::new(), effects: Vec::new(), over: false }
    }

    fn publish(
        &mut self,
        incarnation: Incarnation,
        sequence: u64,
        stopping: bool,
        zombies: Vec<(NodeId, Incarnation)>,
    ) {
        let stats = self.parts.store.stats();
        let store = StoreUse {
            budget_bytes: stats.budget_bytes,
            used_bytes: stats.used_bytes,
            spilled_bytes: stats.spill_file_bytes,
        };
        let figures = self.sampler.sample(&self.parts.peak, store);
        let node = self.parts.post.node().clone();
        let data_address = self.parts.data_address.clone();
        let reign = self.parts.link.reign();
        let beat = Beat { node, incarnation, sequence, figures, data_address, stopping, reign, zombies };
        let sealed = self.parts.bus.credentials().seal(&self.parts.subject, &MembershipMsg::Beat(beat));
        let bytes = sealed.expect("a beat is small and flat");
        // A beat that cannot go out now is skipped: a late one says nothing.
        let _ = self.parts.bus.try_publish(self.parts.subject.clone(), Message::new(bytes));
    }

    fn changed(&self, node: NodeId, incarnation: Incarnation, health: Health, silent: Duration) {
        let state = match health {
            Health::Alive => NodeState::Up,
            Health::Suspected => NodeState::Suspected,
            Health::Dead => NodeState::Dead,
            Health::Left => NodeState::Left,
        };
        info!(node = %node, ?state, silent_ms = silent.as_millis() as u64, "node changed");
        // Before anybody who listens says a word to it. Who has heard of it from somebody else may have said one already.
        if self.parts.post.hears_of(&node, incarnation) {
            self.parts.directory.session_reset(node.clone(), incarnation);
        }
        if let Some(scheduler) = self.parts.scheduler.as_ref().filter(|_| health.is_gone()) {
            let reason = format!("{state:?} after {silent:?} of silence");
            if let Err(error) = scheduler.send(SchedulerEvent::NodeDown { node: node.clone(), incarnation, reason }) {
                warn!(%error, "scheduler not told of a dead node");
            }
        }
        // Nobody listens when no job runs.
        let _ = self.parts.directory.changes.send(Change { node, incarnation, state });
    }

    /// Looks whether the process of a silent node is there.
    fn probe(&self, node: NodeId, incarnation: Incarnation, address: String, scope: &mut Scope<'_, Self>) {
        let looked = nobody_listens(&self.parts.network, self.parts.post.clock(), address);
        scope.later(async move { looked.await.then_some(MembershipEvent::Refused { node, incarnation }) });
    }

    fn act(&mut self, effect: Effect, scope: &mut Scope<'_, Self>) {
        match effect {
            Effect::Publish { incarnation, sequence, stopping, zombies } => {
                self.publish(incarnation, sequence, stopping, zombies);
            }
            Effect::Changed { node, incarnation, health, silent, .. } => {
                self.changed(node, incarnation, health, silent);
            }
            Effect::Probe { node, incarnation, address } => self.probe(node, incarnation, address, scope),
            Effect::Fence { silent } => {
                warn!(silent_ms = silent.as_millis() as u64, "this node is not heard: it starts nothing");
                self.parts.gate.close();
            }
            Effect::Unfence { fenced } => {
                info!(fenced_ms = fenced.as_millis() as u64, "this node is heard again");
                self.parts.gate.open();
            }
            Effect::BusSilent { silent } => warn!(silent_ms = silent.as_millis() as u64, "the bus is silent"),
            Effect::BusBack { silent } => info!(silent_ms = silent.as_millis() as u64, "the bus is back"),
            Effect::Renew { incarnation, told_by } => {
                warn!(told_by = %told_by, incarnation = incarnation.0, "declared dead: another life begins");
                self.over = true;
                let state = self.parts.state.clone();
                let _ = self.parts.renewals.send(Renewal { told_by, state });
            }
            Effect::Follows { node, reign } => self.parts.link.heard(&node, &reign),
            Effect::Impostor { incarnation } => self.end(format!(
                "the name {} is taken: another process, of incarnation {}, has it since this one was frozen or cut off",
                self.parts.post.node(),
                incarnation.0
            )),
        }
    }

    fn end(&self, reason: String) {
        self.parts.post.fatal(Fatal { actor: "membership".to_owned(), reason });
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

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        scope.after(TICK_MIN, MembershipEvent::Tick);
    }

    fn handle(&mut self, event: MembershipEvent, scope: &mut Scope<'_, Self>) {
        if self.over {
            return;
        }
        let now = self.parts.post.clock().now();
        let tick = event == MembershipEvent::Tick;
        self.parts.state.on(now, event, &mut self.effects);
        if tick {
            let wakeup = self.parts.state.next_wakeup().map_or(TICK_MAX, |at| at.saturating_sub(now));
            scope.after(wakeup.clamp(TICK_MIN, TICK_MAX), MembershipEvent::Tick);
        }
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        if self.over {
            return;
        }
        // Before the changes are told: whoever hears of one finds it in the directory.
        let members = self.parts.state.members(self.parts.post.clock().now());
        *self.parts.directory.members.write() =
            members.into_iter().map(|member| (member.node.clone(), member)).collect();
        for effect in std::mem::take(&mut self.effects) {
            self.act(effect, scope);
        }
    }
}
