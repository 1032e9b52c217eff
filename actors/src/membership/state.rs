//! Who is alive, decided without a clock: time comes in with every event.
//!
//! | event                                             | this node thinks                | effect                          |
//! |---------------------------------------------------|---------------------------------|---------------------------------|
//! | beat of an unknown node                           | alive                           | `Changed`                       |
//! | beat, newer sequence, of an alive node            | alive                           | –                               |
//! | no beat for 3 beats and a half                    | suspected                       | `Changed`                       |
//! | beat of a suspected node                          | alive                           | `Changed`                       |
//! | no beat for a beat and a half, others are heard   | as before                       | `Probe`, once a beat            |
//! | nobody listens at the address of a silent node    | dead                            | `Changed`                       |
//! | no beat for 3 s                                   | dead                            | `Changed`                       |
//! | beat of a dead incarnation                        | dead still                      | told in the next own beat       |
//! | beat of a newer incarnation                       | alive, the older one is over    | `Changed`                       |
//! | beat of an older incarnation, repeated beat       | as before                       | counted                         |
//! | beat later than all of its node before            | as above                        | `Follows` whom it says; `Heard` |
//! | last beat (`stopping`)                            | left                            | `Changed`                       |
//! | nobody heard, own echo neither, for 3 s           | the bus is down; nobody dead    | `BusSilent`, `Fence`            |
//! | others heard, own echo not, for 3 s               | the others do not hear us       | `Fence`                         |
//! | two own echoes of beats sent since the fence      | heard again                     | `Unfence`                       |
//! | a beat names our incarnation as dead              | we are over                     | `Renew`                         |
//! | own name with a larger incarnation                | another process has our name    | `Impostor`                      |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ids::{Epoch, Incarnation, NodeId};
use crate::protocol::membership::{Beat, Figures, Health, Member, ZOMBIES_MAX, is_over};
use crate::protocol::scheduler::Leader;

/// The times of Membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipOptions {
    /// Time between two beats; 500 ms.
    pub beat_every: Duration,
    /// So many missed beats make a node suspected; 3.
    pub suspect_after_missed: u32,
    /// So much silence makes a node dead, and a node without the bus fence itself; 3 s.
    pub dead_after: Duration,
    /// Most nodes that are remembered, dead ones included; 10 000. The longest dead are forgotten first; when all are
    /// alive, further ones are counted and ignored.
    pub nodes_max: usize,
}

impl Default for MembershipOptions {
    fn default() -> Self {
        Self {
            beat_every: Duration::from_millis(500),
            suspect_after_missed: 3,
            dead_after: Duration::from_secs(3),
            nodes_max: 10_000,
        }
    }
}

impl MembershipOptions {
    /// Silence after which it is looked whether the node's process is there: a beat is late.
    pub fn probe_after(&self) -> Duration {
        self.beat_every + self.beat_every / 2
    }

    /// So long after the last sign of life of anybody, this node's own echo included, it may be the bus that is late.
    fn bus_late_after(&self) -> Duration {
        self.beat_every + self.beat_every / 4
    }

    /// Silence after which a node is suspected. Half a beat is added: the third beat is missing only when it is late.
    pub fn suspect_after(&self) -> Duration {
        self.beat_every * self.suspect_after_missed + self.beat_every / 2
    }

    /// Longest stretch between two signs of life, of anybody, that counts as silence.
    fn stretch_max(&self) -> Duration {
        self.beat_every * 2
    }
}

/// What happens to Membership.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipEvent {
    /// Time has passed.
    Tick,
    /// A beat arrived, this node's own included.
    Beat(Beat),
    /// Nobody listens where the Transfer of a node was, as its machine says: the process is gone.
    Refused {
        /// The node.
        node: NodeId,
        /// The incarnation that listened there.
        incarnation: Incarnation,
    },
    /// This node is about to stop.
    Leave,
    /// This node has something to say.
    Speak,
}

/// What Membership wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Publish a beat with these values; the driver adds figures and address. A beat that cannot go out now is skipped.
    Publish {
        /// This node's incarnation.
        incarnation: Incarnation,
        /// Number of the beat in the incarnation.
        sequence: u64,
        /// Whether it is the last one.
        stopping: bool,
        /// Dead incarnations that still beat.
        zombies: Vec<(NodeId, Incarnation)>,
    },
    /// What this node thinks of another one has changed, or it has a new incarnation.
    Changed {
        /// The other node.
        node: NodeId,
        /// Its incarnation; every smaller one is over.
        incarnation: Incarnation,
        /// What is thought of it now.
        health: Health,
        /// What was thought before, and of which incarnation; `None` for a node that was unknown.
        before: Option<(Incarnation, Health)>,
        /// How long it had been silent.
        silent: Duration,
    },
    /// A node is silent: connect to where its Transfer listens. When that is refused, say [`MembershipEvent::Refused`]; anything else,
    /// an answer or none, says nothing (it may be frozen, or cut off from the bus only).
    Probe {
        /// The node.
        node: NodeId,
        /// Which incarnation of it.
        incarnation: Incarnation,
        /// Where it listens.
        address: String,
    },
    /// Start no tasks and commit nothing outside: the others may hold this node dead. Running tasks and serving of
    /// objects go on.
    Fence {
        /// How long no beat of this node is known to have been taken by the bus.
        silent: Duration,
    },
    /// The others hear this node again.
    Unfence {
        /// How long it was fenced.
        fenced: Duration,
    },
    /// Somebody held this node dead: from now on it is this incarnation. Announce it, and the objects that are here.
    Renew {
        /// The new incarnation.
        incarnation: Incarnation,
        /// Who held the old one dead.
        told_by: NodeId,
    },
    /// Nobody at all is heard: the bus is away. Nobody is called dead while it lasts.
    BusSilent {
        /// For how long.
        silent: Duration,
    },
    /// Somebody is heard again.
    BusBack {
        /// For how long nobody was.
        silent: Duration,
    },
    /// A node said, in a beat that is none of before, that it follows this Scheduler.
    Follows {
        /// The node; this one, too.
        node: NodeId,
        /// Whom.
        leader: Leader,
    },
    /// A node has heard of a higher epoch than that of the Scheduler that it follows, if it follows any.
    Heard {
        /// The highest one that it has heard of.
        epoch: Epoch,
    },
    /// Another process beats under this node's name with a later incarnation: this one must end.
    Impostor {
        /// The incarnation of the other.
        incarnation: Incarnation,
    },
}

/// What was counted; all rise only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Beats of older or dead incarnations.
    pub stale: u64,
    /// Beats with a sequence seen before.
    pub repeated: u64,
    /// Beats of new nodes for which there was no room.
    pub refused: u64,
}

/// The pure core of Membership.
#[derive(Clone, Debug)]
pub struct State {
    me: NodeId,
    incarnation: Incarnation,
    options: MembershipOptions,
    sequence: u64,
    next_beat_at: Duration,
    /// Own beats without an echo yet: sequence and when it was sent.
    sent: VecDeque<(u64, Duration)>,
    /// When the last beat was sent of which the echo came back.
    proven_at: Duration,
    fenced: Option<Fenced>,
    left: bool,
    /// Time in which somebody was heard, accumulated up to `heard_at`.
    audible: Duration,
    heard_at: Duration,
    bus_silent: bool,
    peers: BTreeMap<NodeId, Peer>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Fenced {
    since: Duration,
    echoes: u32,
}

#[derive(Clone, Debug)]
struct Peer {
    incarnation: Incarnation,
    sequence: u64,
    health: Health,
    /// When it was heard: by the clock, and in audible time.
    heard_at: Duration,
    heard_audible: Duration,
    /// After how much silence it is probed next.
    probe_after: Duration,
    /// When this incarnation last beat after it was called dead.
    zombie_at: Option<Duration>,
    figures: Figures,
    data_address: String,
}

/// Probes at a time: each is a thread.
const PROBES_MAX: u32 = 32;

/// Own beats that wait for an echo, at most; older ones prove nothing any more.
const SENT_MAX: usize = 64;

impl State {
    /// A node that starts at `now` and has not been heard yet; the first tick publishes its first beat.
    pub fn new(me: NodeId, incarnation: Incarnation, options: MembershipOptions, now: Duration) -> Self {
        Self {
            me,
            incarnation,
            options,
            sequence: 0,
            next_beat_at: now,
            sent: VecDeque::new(),
            proven_at: now,
            fenced: None,
            left: false,
            audible: Duration::ZERO,
            heard_at: now,
            bus_silent: false,
            peers: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// This node.
    pub fn node(&self) -> &NodeId {
        &self.me
    }

    /// This node's incarnation now.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether this node must start nothing and commit nothing.
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is thought of a node; `None` for one never heard of.
    pub fn health(&self, node: &NodeId) -> Option<Health> {
        self.peers.get(node).map(|peer| peer.health)
    }

    /// Whether this incarnation of a node is over: declared dead, or followed by a later one. One that said goodbye is not: what it
    /// said before may still come.
    pub fn is_over(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        self.peers.get(node).is_some_and(|peer| is_over(incarnation, peer.incarnation, peer.health))
    }

    /// All other nodes, by name.
    pub fn members(&self, now: Duration) -> Vec<Member> {
        self.peers
            .iter()
            .map(|(node, peer)| Member {
                node: node.clone(),
                incarnation: peer.incarnation,
                health: peer.health,
                figures: peer.figures,
                data_address: peer.data_address.clone(),
                silent_ms: now.saturating_sub(peer.heard_at).as_millis() as u64,
            })
            .collect()
    }

    /// Takes one event in; what is to be done is appended to `effects`, in order.
    pub fn on(&mut self, now: Duration, event: MembershipEvent, effects: &mut Vec<Effect>) {
        match event {
            // A tick judges; a beat only adds evidence. So beats that queued up while this process was frozen are
            // all taken in before, or the audible clock keeps anybody from being called dead without them.
            MembershipEvent::Tick => {
                self.beat_if_due(now, effects);
                self.judge_self(now, effects);
                self.judge_peers(now, effects);
            }
            MembershipEvent::Beat(beat) => {
                self.hear(now, effects);
                if beat.node == self.me {
                    self.on_echo(now, &beat, effects);
                } else {
                    self.on_peer(now, beat, effects);
                }
            }
            MembershipEvent::Refused { node, incarnation } => self.on_refused(now, node, incarnation, effects),
            MembershipEvent::Leave => {
                self.left = true;
                self.publish(now, effects);
            }
            MembershipEvent::Speak if self.left => {}
            MembershipEvent::Speak => self.publish(now, effects),
        }
    }

    /// When the next tick has something to do; `None` after this node left.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if self.left {
            return None;
        }
        let fence_at = self.fenced.is_none().then(|| self.proven_at + self.options.dead_after);
        let bus_at = (!self.bus_silent).then(|| self.heard_at + self.options.dead_after);
        let peers_at = self.peers.values().filter_map(|peer| {
            let limit = match peer.health {
                Health::Alive => self.options.suspect_after(),
                Health::Suspected => self.options.dead_after,
                Health::Dead | Health::Left => return None,
            };
            let limit = if peer.data_address.is_empty() { limit } else { limit.min(peer.probe_after) };
            let still = (peer.heard_audible + limit).saturating_sub(self.audible);
            (still <= self.options.stretch_max()).then(|| self.heard_at + still)
        });
        peers_at.chain(fence_at).chain(bus_at).chain([self.next_beat_at]).min()
    }

    fn beat_if_due(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.left || now < self.next_beat_at {
            return;
        }
        // Beats missed while the process did not run are not made up for.
        let on_time = self.next_beat_at + self.options.beat_every;
        self.next_beat_at = if on_time > now { on_time } else { now + self.options.beat_every };
        self.publish(now, effects);
    }

    fn publish(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        self.sequence += 1;
        self.sent.push_back((self.sequence, now));
        if self.sent.len() > SENT_MAX {
            self.sent.pop_front();
        }
        // Who has fallen silent by now need not be told.
        let recent = now.saturating_sub(self.options.dead_after);
        let zombies = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.zombie_at.is_some_and(|at| at >= recent))
            .map(|(node, peer)| (node.clone(), peer.incarnation))
            .take(ZOMBIES_MAX)
            .collect();
        effects.push(Effect::Publish {
            incarnation: self.incarnation,
            sequence: self.sequence,
            stopping: self.left,
            zombies,
        });
    }

    /// Somebody was heard: the bus works.
    fn hear(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let silent = now.saturating_sub(self.heard_at);
        self.audible += silent.min(self.options.stretch_max());
        self.heard_at = now;
        if std::mem::take(&mut self.bus_silent) {
            // The others reconnect when they can: their silence starts anew.
            for peer in self.peers.values_mut() {
                peer.heard_audible = self.audible;
            }
            effects.push(Effect::BusBack { silent });
        }
    }

    fn on_echo(&mut self, now: Duration, beat: &Beat, effects: &mut Vec<Effect>) {
        if beat.incarnation > self.incarnation {
            effects.push(Effect::Impostor { incarnation: beat.incarnation });
            return;
        }
        if beat.incarnation < self.incarnation {
            self.counts.stale += 1;
            return;
        }
        let Some(at) = self.sent.iter().find(|(sequence, _)| *sequence == beat.sequence).map(|(_, at)| *at) else {
            self.counts.repeated += 1;
            return;
        };
        follows(beat, effects);
        self.sent.retain(|(sequence, _)| *sequence > beat.sequence);
        self.proven_at = self.proven_at.max(at);
        let fresh = now.saturating_sub(self.proven_at) < self.options.dead_after;
        if let Some(fenced) = &mut self.fenced
            && at >= fenced.since
        {
            // Two of them: between the two every other node has beaten once, and said if it held this one dead.
            fenced.echoes += 1;
            if fenced.echoes >= 2 && fresh {
                effects.push(Effect::Unfence { fenced: now.saturating_sub(fenced.since) });
                self.fenced = None;
            }
        }
    }

    fn on_peer(&mut self, now: Duration, beat: Beat, effects: &mut Vec<Effect>) {
        if let Some(peer) = self.peers.get(&beat.node) {
            if beat.incarnation < peer.incarnation {
                self.counts.stale += 1;
                return;
            }
            if beat.incarnation == peer.incarnation && beat.sequence <= peer.sequence {
                self.counts.repeated += 1;
                return;
            }
        } else if !self.make_room() {
            self.counts.refused += 1;
            return;
        }
        follows(&beat, effects);
        if beat.zombies.iter().any(|(node, incarnation)| *node == self.me && *incarnation == self.incarnation) {
            self.renew(now, &beat.node, effects);
        }
        let audible = self.audible;
        let before = self.peers.get(&beat.node).map(|peer| (peer.incarnation, peer.health));
        let silent = self.peers.get(&beat.node).map_or(Duration::ZERO, |peer| now.saturating_sub(peer.heard_at));
        let over = before.is_some_and(|(incarnation, health)| incarnation == beat.incarnation && health.is_gone());
        let health = match (over, beat.stopping) {
            (true, _) => before.map_or(Health::Dead, |(_, health)| health),
            (false, true) => Health::Left,
            (false, false) => Health::Alive,
        };
        if over {
            self.counts.stale += 1;
        }
        let peer = Peer {
            incarnation: beat.incarnation,
            sequence: beat.sequence,
            health,
            heard_at: now,
            heard_audible: audible,
            probe_after: self.options.probe_after(),
            zombie_at: (over && health == Health::Dead && !beat.stopping).then_some(now),
            figures: beat.figures,
            data_address: beat.data_address,
        };
        if before != Some((peer.incarnation, health)) {
            effects.push(Effect::Changed {
                node: beat.node.clone(),
                incarnation: peer.incarnation,
                health,
                before,
                silent,
            });
        }
        self.peers.insert(beat.node, peer);
    }

    /// Forgets the longest dead when there are too many nodes. False when all are alive.
    fn make_room(&mut self) -> bool {
        if self.peers.len() < self.options.nodes_max {
            return true;
        }
        let over = |peer: &Peer| peer.health.is_gone();
        let oldest = self.peers.iter().filter(|(_, peer)| over(peer)).min_by_key(|(_, peer)| peer.heard_at);
        let Some(node) = oldest.map(|(node, _)| node.clone()) else { return false };
        self.peers.remove(&node);
        true
    }

    fn renew(&mut self, now: Duration, told_by: &NodeId, effects: &mut Vec<Effect>) {
        self.incarnation = Incarnation(self.incarnation.0 + 1);
        self.sequence = 0;
        self.sent.clear();
        effects.push(Effect::Renew { incarnation: self.incarnation, told_by: told_by.clone() });
        // At once: the sooner the others know, the sooner there is work here.
        if !self.left {
            self.next_beat_at = now + self.options.beat_every;
            self.publish(now, effects);
        }
    }

    fn judge_self(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let unproven = now.saturating_sub(self.proven_at);
        if unproven >= self.options.dead_after && self.fenced.is_none() && !self.left {
            self.fenced = Some(Fenced { since: now, echoes: 0 });
            effects.push(Effect::Fence { silent: unproven });
        }
        let silent = now.saturating_sub(self.heard_at);
        if silent >= self.options.dead_after && !self.bus_silent {
            self.bus_silent = true;
            effects.push(Effect::BusSilent { silent });
        }
    }

    /// Audible time by now.
    fn audible_at(&self, now: Duration) -> Duration {
        self.audible + now.saturating_sub(self.heard_at).min(self.options.stretch_max())
    }

    fn is_bus_late(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard_at) > self.options.bus_late_after()
    }

    fn judge_peers(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.bus_silent {
            return;
        }
        let (audible, bus_late) = (self.audible_at(now), self.is_bus_late(now));
        let mut probes = PROBES_MAX;
        for (node, peer) in &mut self.peers {
            let silent = audible.saturating_sub(peer.heard_audible);
            let health = match peer.health {
                Health::Alive | Health::Suspected if silent >= self.options.dead_after => Health::Dead,
                Health::Alive if silent >= self.options.suspect_after() => Health::Suspected,
                unchanged => unchanged,
            };
            peer.becomes(node, health, silent, effects);
            if !health.is_gone() && silent >= peer.probe_after && !peer.data_address.is_empty() {
                peer.probe_after = silent + self.options.beat_every;
                if probes > 0 && !bus_late {
                    probes -= 1;
                    let (incarnation, address) = (peer.incarnation, peer.data_address.clone());
                    effects.push(Effect::Probe { node: node.clone(), incarnation, address });
                }
            }
        }
    }

    /// Silent *and* nobody there: neither alone is enough. A process that is there listens, and one that beats is there,
    /// whatever a firewall says.
    fn on_refused(&mut self, now: Duration, node: NodeId, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        let (audible, bus_late) = (self.audible_at(now), self.is_bus_late(now));
        let Some(peer) = self.peers.get_mut(&node).filter(|peer| peer.incarnation == incarnation) else { return };
        let silent = audible.saturating_sub(peer.heard_audible);
        if !bus_late && !peer.health.is_gone() && silent >= self.options.probe_after() {
            peer.becomes(&node, Health::Dead, silent, effects);
        }
    }
}

/// Tells whom the sender of a new beat follows, and of which epoch it has heard.
fn follows(beat: &Beat, effects: &mut Vec<Effect>) {
    if let Some(leader) = &beat.leader {
        effects.push(Effect::Follows { node: beat.node.clone(), leader: leader.clone() });
    }
    if beat.epoch > beat.leader.as_ref().map_or(Epoch(0), |leader| leader.epoch) {
        effects.push(Effect::Heard { epoch: beat.epoch });
    }
}

impl Peer {
    fn becomes(&mut self, node: &NodeId, health: Health, silent: Duration, effects: &mut Vec<Effect>) {
        if health != self.health {
            let before = Some((self.incarnation, self.health));
            self.health = health;
            let (node, incarnation) = (node.clone(), self.incarnation);
            effects.push(Effect::Changed { node, incarnation, health, before, silent });
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
pub(super) mod tests;
