//! The Scheduler of a node and its campaign: their pure cores, and mirrors of their shells (`scheduler/actor.rs`,
//! `election/campaign.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::acts::{Answer, Cx, Message, Timer, Who};
use super::program::PROGRAM;
use super::server::{Answered, Question};
use crate::election::state::{self as election, ElectionOptions};
use crate::protocol::host::HostMsg;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{Placement, Refusal, Reign, SchedulerMsg};

use crate::ids::{Epoch, Incarnation, JobId, NodeId};

use crate::scheduler::{Effect, Event, SchedulerEvent, SchedulerOptions, State};
use crate::shell::Reply;

const TICK_MAX: Duration = Duration::from_secs(1);
const TICK_MIN: Duration = Duration::from_millis(20);
const LOOK_AFTER: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_secs(15);
const LOOK_DEADLINE: Duration = Duration::from_secs(5);
const LEASE_DEADLINE: Duration = Duration::from_secs(1);

struct Reigning {
    state: State,
    until: Duration,
    asks: BTreeMap<u64, Reply<Result<Placement, Refusal>>>,
    next_ask: u64,
    lists: Vec<(NodeId, u64)>,
}

/// The actor.
pub(super) struct Scheduler {
    job: JobId,
    reign: Option<Reigning>,
    looks: bool,
    looking: bool,
}

impl Scheduler {
    pub(super) fn new(job: JobId, cx: &mut Cx<'_>) -> Self {
        cx.after(TICK_MAX, Timer::Scheduler);
        Self { job, reign: None, looks: false, looking: false }
    }

    /// The epoch under which it acts now.
    pub(super) fn acts(&self, now: Duration) -> Option<Epoch> {
        self.reign.as_ref().filter(|reign| now < reign.until).map(|reign| reign.state.epoch())
    }

    /// What it thinks, while it acts.
    pub(super) fn state(&self, now: Duration) -> Option<&State> {
        self.reign.as_ref().filter(|reign| now < reign.until).map(|reign| &reign.state)
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.looking, true) {
            cx.ask(Who::Look, Question::Unfinished, LOOK_DEADLINE);
        }
    }

    /// The server has said whether the job is over.
    pub(super) fn looked(&mut self, answered: &Answered, cx: &mut Cx<'_>) {
        let job = (self.job, Arc::from("sim"), vec![Arc::from(PROGRAM)]);
        let jobs = match answered {
            Answered::Unfinished(true) => Some(vec![job]),
            Answered::Unfinished(false) => Some(Vec::new()),
            _ => None,
        };
        self.handle(SchedulerEvent::Unfinished(jobs), cx);
    }

    fn begin(&mut self, now: Duration, epoch: Epoch, until: Duration, succeeds: bool) -> bool {
        if let Some(reign) = self.reign.as_mut().filter(|reign| reign.state.epoch() == epoch) {
            reign.until = until;
            return false;
        }
        let options = SchedulerOptions::default();
        let state = if succeeds { State::take_over(epoch, options, now) } else { State::new(epoch, options) };
        self.reign = Some(Reigning { state, until, asks: BTreeMap::new(), next_ask: 0, lists: Vec::new() });
        succeeds
    }

    pub(super) fn handle(&mut self, event: SchedulerEvent, cx: &mut Cx<'_>) {
        let (now, tick) = (cx.now, event == SchedulerEvent::Tick);
        self.looking &= !matches!(event, SchedulerEvent::Unfinished(_));
        let mut effects = Vec::new();
        match event {
            SchedulerEvent::Reign { epoch, until, succeeds } => {
                let begins = self.reign.as_ref().is_none_or(|reign| reign.state.epoch() != epoch);
                if begins {
                    cx.oracle.reigns(epoch, succeeds);
                }
                if self.begin(now, epoch, until, succeeds) {
                    cx.after(SchedulerOptions::default().gather, Timer::Gathered);
                }
                if begins && !std::mem::replace(&mut self.looks, true) {
                    cx.after(SchedulerOptions::default().gather + LOOK_AFTER, Timer::Look);
                }
            }
            SchedulerEvent::Look => {
                self.looks = self.reign.is_some();
                if self.looks {
                    self.look(cx);
                    cx.after(LOOK_EVERY, Timer::Look);
                }
            }
            SchedulerEvent::StepDown => self.reign = None,
            event => {
                if let Some(reign) = self.reign.as_mut().filter(|reign| now < reign.until) {
                    if let Some(event) = reign.event(now, event, cx) {
                        reign.state.on(now, event, &mut effects);
                    }
                    if !reign.state.gathers(now) {
                        for (to, slot) in std::mem::take(&mut reign.lists) {
                            let answer = Answer::Nodes(reign.state.nodes());
                            cx.send(&to, Message::Answer { slot, answer });
                        }
                    }
                }
            }
        }
        if tick {
            let wakeup = self.reign.as_ref().and_then(|reign| reign.state.next_wakeup());
            let wakeup = wakeup.map_or(TICK_MAX, |at| at.saturating_sub(now));
            cx.after(wakeup.clamp(TICK_MIN, TICK_MAX), Timer::Scheduler);
        }
        if let Some(epoch) = self.reign.as_ref().map(|reign| reign.state.epoch()) {
            effects.into_iter().for_each(|effect| self.act(epoch, effect, cx));
        }
    }

    fn act(&mut self, epoch: Epoch, effect: Effect, cx: &mut Cx<'_>) {
        match effect {
            Effect::Leases { owner, leases, wait, .. } => {
                cx.send(&owner, Message::Owner(OwnerMsg::Leases { epoch, leases, wait }));
            }
            Effect::Answer { ask, answer } => {
                if let Some(reply) = self.reign.as_mut().and_then(|reign| reign.asks.remove(&ask)) {
                    cx.oracle.placed(reply.goes_to().1, answer);
                }
            }
            Effect::EndJob { node, job } => {
                cx.note(|| format!("{node} has something of the job, which is over"));
                cx.send(&node, Message::Node(NodeMsg::EndJob { job }));
                cx.send(&node, Message::Owner(OwnerMsg::TakenOver { run: u32::MAX }));
            }
            Effect::Look => self.look(cx),
            Effect::HomeLost { node, .. } => {
                cx.note(|| format!("{node}, which hosts the job, is gone"));
                self.look(cx);
            }
            Effect::Resume { job, on } => {
                cx.note(|| format!("{on} is to take the job up"));
                cx.send(&on, Message::Host(HostMsg::Resume { job }));
            }
        }
    }
}

impl Reigning {
    fn event(&mut self, now: Duration, event: SchedulerEvent, cx: &mut Cx<'_>) -> Option<Event> {
        match event {
            SchedulerEvent::Wire(message) => self.message(now, message, cx),
            SchedulerEvent::NodeDown { node, incarnation, .. } => Some(Event::NodeDown { node, incarnation }),
            SchedulerEvent::Gathered | SchedulerEvent::Tick => Some(Event::Tick),
            SchedulerEvent::Unfinished(jobs) => Some(Event::Unfinished(jobs?)),
            SchedulerEvent::Reign { .. } | SchedulerEvent::StepDown | SchedulerEvent::Look => None,
        }
    }

    fn message(&mut self, now: Duration, message: SchedulerMsg, cx: &mut Cx<'_>) -> Option<Event> {
        Some(match message {
            SchedulerMsg::NodeUp(spec) => Event::NodeUp(spec),
            SchedulerMsg::SubmitJob { job, tenant, functions, reply } => {
                self.next_ask += 1;
                self.asks.insert(self.next_ask, reply);
                Event::Submit { ask: self.next_ask, job, tenant, functions }
            }
            SchedulerMsg::Demand(demand) => Event::Demand(demand),
            SchedulerMsg::Release { job, lease } => Event::Release { job, lease },
            SchedulerMsg::JobDone { job } => Event::JobDone { job },
            SchedulerMsg::JobsOver { jobs } => Event::JobsOver(jobs),
            SchedulerMsg::ListNodes { reply } => {
                let (to, slot) = reply.goes_to();
                if self.state.gathers(now) {
                    self.lists.push((to.clone(), slot));
                } else {
                    let answer = Answer::Nodes(self.state.nodes());
                    cx.send(&to.clone(), Message::Answer { slot, answer });
                }
                return None;
            }
            SchedulerMsg::Holds { node, jobs } => Event::Holds { node, jobs },
            SchedulerMsg::ListJobs { .. } => return None,
        })
    }
}

/// A candidate at work.
pub(super) struct Campaign {
    state: election::State,
    me: String,
}

/// What the campaign wants of others on its node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    Reign { epoch: Epoch, until: Duration, succeeds: bool },
    StepDown,
}

impl Campaign {
    pub(super) fn new(node: &NodeId, Incarnation(incarnation): Incarnation, cx: &mut Cx<'_>) -> Self {
        cx.after(Duration::ZERO, Timer::Election);
        Self { state: election::State::new(ElectionOptions::default(), 0, cx.now), me: format!("{node} {incarnation}") }
    }

    /// Takes an event in; what others are to be told.
    pub(super) fn on(&mut self, event: election::Event, cx: &mut Cx<'_>) -> Vec<Word> {
        let mut effects = Vec::new();
        self.state.on(cx.now, event, &mut effects);
        let mut words = Vec::new();
        for effect in effects {
            let question = match effect {
                election::Effect::Create => Question::Create(self.me.clone()),
                election::Effect::Update(revision) => Question::Update(self.me.clone(), revision),
                election::Effect::Look => Question::Get,
                election::Effect::Release(revision) => Question::Delete(revision),
                // This world's server is not emptied.
                election::Effect::Make => continue,
                election::Effect::Reign { epoch, until, succeeds } => {
                    cx.note(|| format!("is the scheduler of epoch {}", epoch.0));
                    cx.link.follow(&Reign { epoch, node: cx.me.clone() });
                    words.push(Word::Reign { epoch, until, succeeds });
                    continue;
                }
                election::Effect::Extend(until) => {
                    let extended = self.state.reign().map(|epoch| Word::Reign { epoch, until, succeeds: true });
                    words.extend(extended);
                    continue;
                }
                election::Effect::StepDown(why) => {
                    cx.note(|| format!("no longer the scheduler: {}", why.text()));
                    cx.link.end_own();
                    words.push(Word::StepDown);
                    continue;
                }
            };
            cx.ask(Who::Election, question, LEASE_DEADLINE);
        }
        if let Some(at) = self.state.next_wakeup() {
            cx.after(at.saturating_sub(cx.now), Timer::Election);
        }
        words
    }

    /// An answer of the server, as the candidate takes it.
    pub(super) fn answer(&self, answered: &Answered) -> Option<election::Answer> {
        Some(match answered {
            Answered::Written(revision) => election::Answer::Written(*revision),
            Answered::Refused => election::Answer::Refused,
            Answered::Lease(Some((holder, revision))) if *holder == self.me => election::Answer::Ours(*revision),
            Answered::Lease(other) => election::Answer::NotOurs(other.as_ref().map(|(_, revision)| *revision)),
            Answered::Lost => election::Answer::Lost,
            _ => return None,
        })
    }
}
