//! What Membership does besides judging who is alive ([`State`]): when it looks again, who is told of a change, and where it ends. Events
//! come in with the time; what is to be done comes out as [`MembershipEffect`]s.

use std::time::Duration;

use tracing::{info, warn};

use super::state::{Effect, MembershipEvent, State};
use crate::event::NodeState;
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::protocol::membership::{Health, Member};
use crate::protocol::scheduler::Leader;
use crate::scheduler::SchedulerEvent;
use crate::shell::Fatal;

const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_millis(500);

/// What became of a node, for those who listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The node.
    pub node: NodeId,
    /// Which incarnation.
    pub incarnation: Incarnation,
    /// What became of it.
    pub state: NodeState,
}

/// This node was declared dead: the incarnation that it begins now.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) told_by: NodeId,
    /// Of the new incarnation; goes on where this one's stops.
    pub(crate) state: State,
}

/// What Membership wants done.
#[derive(Debug)]
pub(crate) enum MembershipEffect {
    /// Say this to it later.
    After(Duration, MembershipEvent),
    /// These are all who were heard: whoever looks finds them, and what is told after this is so there.
    Know(Vec<Member>),
    /// Publish a beat with these values, and with figures, address, and whom this node follows. One that cannot go out now is skipped.
    Beat {
        /// This node's incarnation.
        incarnation: Incarnation,
        /// Number of the beat in the incarnation.
        sequence: u64,
        /// Whether it is the last one.
        stopping: bool,
        /// Dead incarnations that still beat.
        zombies: Vec<(NodeId, Incarnation)>,
    },
    /// What is said to this node is said to this incarnation from now on. Where what was said before may be lost by that, its jobs are told.
    Meet(NodeId, Incarnation),
    /// Tell the Scheduler of this node, where there is one.
    TellScheduler(SchedulerEvent),
    /// Tell whoever listens, above all the Owners of this node.
    Tell(Change),
    /// Look whether somebody listens at this address of an incarnation of a node; if not, that is [`MembershipEvent::Refused`].
    Probe(NodeId, Incarnation, String),
    /// Tasks may start (`true`), or may not.
    Gate(bool),
    /// A node follows this Scheduler, as it says.
    Follows(NodeId, Leader),
    /// A node has heard of this epoch, and does not follow its Scheduler.
    Heard(Epoch),
    /// This incarnation is over: the next one begins.
    Renew(Renewal),
    /// The node must end.
    Fail(Fatal),
}

/// The pure core of the actor.
#[derive(Debug)]
pub(crate) struct MembershipCore {
    state: State,
    /// What was decided since the last flush.
    decided: Vec<Effect>,
    /// This incarnation is over: the next one speaks.
    over: bool,
    effects: Vec<MembershipEffect>,
}

impl MembershipCore {
    /// Membership that goes on from this state.
    pub(crate) fn new(state: State) -> Self {
        let effects = vec![MembershipEffect::After(TICK_MIN, MembershipEvent::Tick)];
        Self { state, decided: Vec::new(), over: false, effects }
    }

    /// What it thinks.
    #[cfg(feature = "simulation")]
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// What is to be done, in order, since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<MembershipEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes one event in.
    pub(crate) fn on(&mut self, event: MembershipEvent, now: Duration) {
        if self.over {
            return;
        }
        let tick = event == MembershipEvent::Tick;
        self.state.on(now, event, &mut self.decided);
        if tick {
            let wakeup = self.state.next_wakeup().map_or(TICK_MAX, |at| at.saturating_sub(now));
            self.effects.push(MembershipEffect::After(wakeup.clamp(TICK_MIN, TICK_MAX), MembershipEvent::Tick));
        }
    }

    /// The events that were waiting have been taken in: what was decided is to be done.
    pub(crate) fn flush(&mut self, now: Duration) {
        if self.over {
            return;
        }
        // Before the changes are told: whoever hears of one finds it there.
        self.effects.push(MembershipEffect::Know(self.state.members(now)));
        for effect in std::mem::take(&mut self.decided) {
            self.act(effect);
        }
    }

    fn act(&mut self, effect: Effect) {
        let effect = match effect {
            Effect::Publish { incarnation, sequence, stopping, zombies } => {
                MembershipEffect::Beat { incarnation, sequence, stopping, zombies }
            }
            Effect::Changed { node, incarnation, health, silent, .. } => {
                return self.changed(node, incarnation, health, silent);
            }
            Effect::Probe { node, incarnation, address } => MembershipEffect::Probe(node, incarnation, address),
            Effect::Fence { silent } => {
                warn!(silent_ms = silent.as_millis() as u64, "this node is not heard: it starts nothing");
                MembershipEffect::Gate(false)
            }
            Effect::Unfence { fenced } => {
                info!(fenced_ms = fenced.as_millis() as u64, "this node is heard again");
                MembershipEffect::Gate(true)
            }
            Effect::BusSilent { silent } => {
                return warn!(silent_ms = silent.as_millis() as u64, "the bus is silent");
            }
            Effect::BusBack { silent } => return info!(silent_ms = silent.as_millis() as u64, "the bus is back"),
            Effect::Renew { incarnation, told_by } => {
                warn!(told_by = %told_by, incarnation = incarnation.0, "declared dead: another incarnation begins");
                self.over = true;
                MembershipEffect::Renew(Renewal { told_by, state: self.state.clone() })
            }
            Effect::Follows { node, leader } => MembershipEffect::Follows(node, leader),
            Effect::Heard { epoch } => MembershipEffect::Heard(epoch),
            Effect::Impostor { incarnation } => {
                let reason = format!(
                    "the name {} is taken: another process, of incarnation {}, has it since this one was frozen or cut off",
                    self.state.node(),
                    incarnation.0
                );
                MembershipEffect::Fail(Fatal { actor: "membership".to_owned(), reason })
            }
        };
        self.effects.push(effect);
    }

    fn changed(&mut self, node: NodeId, incarnation: Incarnation, health: Health, silent: Duration) {
        let state = match health {
            Health::Alive => NodeState::Up,
            Health::Suspected => NodeState::Suspected,
            Health::Dead => NodeState::Dead,
            Health::Left => NodeState::Left,
        };
        info!(node = %node, ?state, silent_ms = silent.as_millis() as u64, "node changed");
        // Before anybody who listens says a word to it. Who has heard of it from somebody else may have said one already.
        self.effects.push(MembershipEffect::Meet(node.clone(), incarnation));
        if health.is_gone() {
            let reason = format!("{state:?} after {silent:?} of silence");
            let down = SchedulerEvent::NodeDown { node: node.clone(), incarnation, reason };
            self.effects.push(MembershipEffect::TellScheduler(down));
        }
        self.effects.push(MembershipEffect::Tell(Change { node, incarnation, state }));
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
