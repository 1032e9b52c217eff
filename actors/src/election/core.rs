//! What a candidate does besides the election ([`State`]): who is told what of who is elected, who is followed, and what who looks for the
//! Scheduler is answered. Events come in with the time; what is to be done comes out as [`CampaignEffect`]s.

use std::time::Duration;

use tracing::{info, warn};

use super::state::{Answer, Effect, ElectionOptions, Event, MAKE_AFTER, State};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::joining::NoScheduler;
use crate::protocol::membership::Member;
use crate::protocol::scheduler::Leader;
use crate::scheduler::SchedulerEvent;
use crate::shell::Fatal;

/// How long an answer of the bucket may take before it counts as lost.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take to make what the servers have lost.
pub(super) const MAKE_DEADLINE: Duration = Duration::from_secs(5);

/// What happens to a candidate.
#[derive(Debug)]
pub(crate) enum CampaignEvent {
    /// Time has passed.
    Tick,
    /// The question that was asked last has come to an end.
    Answered(Answer),
    /// It was looked, as that question wanted: what the key says, and its revision; `None`: it is gone.
    Found(Option<(Vec<u8>, u64)>),
    /// Somebody has heard of this epoch.
    Heard(Epoch),
    /// Who looks for the Scheduler in vain is not told why, since the bus does not let it.
    Unexplained,
    /// This node is about to stop.
    Leave,
}

/// What a candidate asks the bucket of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseQuestion {
    /// Make the key, in the bucket of this base; it says this.
    Create(String, u64),
    /// Write this into it, in the bucket of this base, if that is its revision.
    Update(String, u64, u64),
    /// Look what it says, in the bucket of this base.
    Look(u64),
    /// Make the bucket, and everything else that the cluster keeps on its servers; open what is there.
    Make,
}

/// What a candidate wants done.
#[derive(Debug, PartialEq)]
pub(crate) enum CampaignEffect {
    /// Ask. The answer is [`CampaignEvent::Found`] or [`CampaignEvent::Answered`]; with [`Answer::Lost`] where none comes within this time.
    Ask(LeaseQuestion, Duration),
    /// Remove the key, if this is its revision.
    Release(u64),
    /// Tell the Scheduler of this node.
    Tell(SchedulerEvent),
    /// Answer who looks for the Scheduler that it is here, and who wants to know its jobs.
    Serve(Leader),
    /// Answer them no longer.
    Withdraw,
    /// Follow this node's own Scheduler, ...
    Follow(Leader),
    /// ... and no longer.
    EndOwn,
    /// Let Membership say at once whom this node follows.
    Speak,
    /// Answer who looks for the Scheduler in vain why there is none, instead of what was said before; `None`: do not. Where that cannot be,
    /// it is [`CampaignEvent::Unexplained`].
    Explain(Option<NoScheduler>),
    /// The node must end.
    Fail(Fatal),
}

/// What is done when this node's Scheduler is elected.
fn begin(node: &NodeId, epoch: Epoch, until: Duration, succeeds: bool) -> [CampaignEffect; 4] {
    info!(node = %node, epoch = epoch.0, "is the scheduler");
    let leader = Leader { epoch, node: node.clone() };
    [
        CampaignEffect::Tell(SchedulerEvent::Elected { epoch, until, succeeds }),
        CampaignEffect::Serve(leader.clone()),
        CampaignEffect::Follow(leader),
        // At once: the sooner the others know, the sooner jobs go on.
        CampaignEffect::Speak,
    ]
}

/// Why nobody can be the Scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    StoresNothing,
    Emptied,
}

impl Cause {
    fn of(state: &State) -> Option<Self> {
        match () {
            () if state.epoch().is_some() => None,
            () if state.is_emptied() => Some(Self::Emptied),
            () if state.stores_nothing() => Some(Self::StoresNothing),
            () => None,
        }
    }

    /// For who looks for the Scheduler.
    fn told(self, node: &NodeId, cluster: &str) -> NoScheduler {
        let why = match self {
            Self::StoresNothing => format!(
                "{node} cannot take the lease of the scheduler: the NATS server answers, but stores nothing; its disk may be full"
            ),
            Self::Emptied => format!(
                "the NATS server answers, and has nothing of cluster {cluster}: its store was removed, or it is another server. \
                 {node} makes what is missing anew when that has been so for {} s",
                MAKE_AFTER.as_secs()
            ),
        };
        NoScheduler { why, passes: self == Self::Emptied }
    }
}

/// The pure core of a campaign where there is an election.
#[derive(Debug)]
pub(crate) struct CampaignCore {
    node: NodeId,
    cluster: String,
    /// What the key says: which incarnation of which node has it. For people, too.
    me: String,
    state: State,
    /// Of what who looks for the Scheduler in vain is told.
    explained: Option<Cause>,
    effects: Vec<CampaignEffect>,
}

impl CampaignCore {
    /// A candidate that tries at once; `base` and `heard` as for [`State::new`].
    pub(crate) fn new(
        (node, Incarnation(incarnation)): (&NodeId, Incarnation),
        cluster: &str,
        base: u64,
        heard: Epoch,
        now: Duration,
    ) -> Self {
        Self {
            node: node.clone(),
            cluster: cluster.to_owned(),
            me: format!("{node} {incarnation}"),
            state: State::new(ElectionOptions::default(), base, heard, now),
            explained: None,
            effects: Vec::new(),
        }
    }

    /// When it wants a tick, instead of any earlier wish.
    pub(crate) fn next_wakeup(&self) -> Option<Duration> {
        self.state.next_wakeup()
    }

    /// Whether it has left, and nothing that it asked is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_over()
    }

    /// What is to be done, in order, since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<CampaignEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes one event in.
    pub(crate) fn on(&mut self, event: CampaignEvent, now: Duration) {
        let event = match event {
            CampaignEvent::Tick => Event::Tick,
            CampaignEvent::Answered(answer) => Event::Answered(answer),
            CampaignEvent::Found(Some((says, revision))) if says == self.me.as_bytes() => {
                Event::Answered(Answer::Ours(revision))
            }
            CampaignEvent::Found(found) => Event::Answered(Answer::NotOurs(found.map(|(_, revision)| revision))),
            CampaignEvent::Heard(epoch) => Event::Heard(epoch),
            // It is tried again when something happens.
            CampaignEvent::Unexplained => return self.explained = None,
            CampaignEvent::Leave => Event::Leave,
        };
        let mut decided = Vec::new();
        self.state.on(now, event, &mut decided);
        decided.into_iter().for_each(|effect| self.act(effect));
        if !self.is_over() {
            self.explain();
        }
    }

    fn act(&mut self, effect: Effect) {
        let ask = |question| CampaignEffect::Ask(question, ANSWER_DEADLINE);
        let effect = match effect {
            Effect::Create => ask(LeaseQuestion::Create(self.me.clone(), self.state.base())),
            Effect::Update(revision) => ask(LeaseQuestion::Update(self.me.clone(), self.state.base(), revision)),
            Effect::Look => ask(LeaseQuestion::Look(self.state.base())),
            Effect::Make => CampaignEffect::Ask(LeaseQuestion::Make, MAKE_DEADLINE),
            Effect::Release(revision) => CampaignEffect::Release(revision),
            Effect::Lead { epoch, until, succeeds } => {
                return self.effects.extend(begin(&self.node, epoch, until, succeeds));
            }
            Effect::Extend(until) => {
                let Some(epoch) = self.state.epoch() else { return };
                CampaignEffect::Tell(SchedulerEvent::Elected { epoch, until, succeeds: true })
            }
            Effect::StepDown(why) => {
                warn!(node = %self.node, why = why.text(), "no longer the scheduler");
                self.effects.extend([CampaignEffect::Withdraw, CampaignEffect::EndOwn]);
                CampaignEffect::Tell(SchedulerEvent::StepDown)
            }
        };
        self.effects.push(effect);
    }

    /// Nobody is elected where keys cannot be written: who looks for the Scheduler hears why.
    fn explain(&mut self) {
        let cause = Cause::of(&self.state);
        if cause == self.explained {
            return;
        }
        self.explained = cause;
        let told = cause.map(|cause| cause.told(&self.node, &self.cluster));
        match &told {
            Some(told) => warn!(why = told.why, "there is no scheduler"),
            None => info!(node = %self.node, "there may be a scheduler again"),
        }
        self.effects.push(CampaignEffect::Explain(told));
    }
}

/// The pure core of a campaign where there is no election: what the configuration says is so, unless somebody else says the same.
#[derive(Debug)]
pub(crate) struct UnopposedCore {
    node: NodeId,
    epoch: Epoch,
    over: bool,
    effects: Vec<CampaignEffect>,
}

impl UnopposedCore {
    /// A candidate that has not begun to act.
    pub(crate) fn new(node: &NodeId) -> Self {
        Self { node: node.clone(), epoch: Epoch(0), over: false, effects: Vec::new() }
    }

    /// Whether it is no candidate any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// What is to be done, in order, since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<CampaignEffect> {
        std::mem::take(&mut self.effects)
    }

    /// This is known now: who is followed, the highest epoch that was heard of, who is there, and the time of day.
    pub(crate) fn on(&mut self, followed: Option<&Leader>, heard: Epoch, members: &[Member], unix_ms: u64) {
        if let Some(other) = followed.filter(|other| self.is_rival(other, members)) {
            self.over = true;
            self.effects.push(CampaignEffect::Fail(second_scheduler(&other.node)));
        } else if heard > self.epoch || self.epoch == Epoch(0) {
            self.epoch = Epoch(unix_ms.max(heard.0.saturating_add(1)));
            self.effects.extend(begin(&self.node, self.epoch, Duration::MAX, heard > Epoch(0)));
        }
    }

    /// Whether the Scheduler of another node lives.
    fn is_rival(&self, leader: &Leader, members: &[Member]) -> bool {
        leader.node != self.node && members.iter().any(|member| member.node == leader.node && !member.health.is_gone())
    }
}

/// Why a node must end that says that it is the Scheduler, too.
pub(crate) fn second_scheduler(other: &NodeId) -> Fatal {
    let reason = format!(
        "{other} is the scheduler already; without JetStream there is no election, and exactly one node may say \
         scheduler = true"
    );
    Fatal { actor: "election".to_owned(), reason }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
