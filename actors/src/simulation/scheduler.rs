//! The Scheduler of a node and its campaign: the core of the Scheduler, of which the effects are performed here, and a mirror of the shell of
//! the campaign (`election/campaign.rs`).

use std::sync::Arc;
use std::time::Duration;

use super::acts::{Answer, Cx, Message, Timer, Who};
use super::program::PROGRAM;
use super::server::{Answered, Question};
use crate::election::state::{self as election, ElectionOptions};
use crate::protocol::host::HostMsg;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::scheduler::Reign;

use crate::ids::{Epoch, Incarnation, JobId, NodeId};

use crate::scheduler::{SchedulerCore, SchedulerEffect, SchedulerEvent, SchedulerOptions, State};

/// How long the server may take to say which jobs are not over.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);
const LEASE_DEADLINE: Duration = Duration::from_secs(1);

/// The actor.
pub(super) struct Scheduler {
    job: JobId,
    core: SchedulerCore,
}

impl Scheduler {
    pub(super) fn new(job: JobId, cx: &mut Cx<'_>) -> Self {
        let mut scheduler = Self { job, core: SchedulerCore::new(SchedulerOptions::default()) };
        scheduler.perform(cx);
        scheduler
    }

    /// The epoch under which it acts now.
    pub(super) fn acts(&self, now: Duration) -> Option<Epoch> {
        self.state(now).map(State::epoch)
    }

    /// What it thinks, while it acts.
    pub(super) fn state(&self, now: Duration) -> Option<&State> {
        self.core.acting(now)
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

    pub(super) fn handle(&mut self, event: SchedulerEvent, cx: &mut Cx<'_>) {
        if let SchedulerEvent::Reign { epoch, succeeds, .. } = event
            && self.core.epoch() != Some(epoch)
        {
            cx.oracle.reigns(epoch, succeeds);
        }
        self.core.on(event, cx.now);
        self.core.flush();
        self.perform(cx);
    }

    fn perform(&mut self, cx: &mut Cx<'_>) {
        for effect in self.core.effects() {
            match effect {
                SchedulerEffect::TellOwner(_, node, message) => cx.send(&node, Message::Owner(message)),
                SchedulerEffect::TellNode(_, node, message) => {
                    if let NodeMsg::EndJob { .. } = message {
                        cx.note(|| format!("{node} has something of the job, which is over"));
                    }
                    cx.send(&node, Message::Node(message));
                }
                SchedulerEffect::TellHost(_, node, message) => {
                    if let HostMsg::Resume { .. } = message {
                        cx.note(|| format!("{node} is to take the job up"));
                    }
                    cx.send(&node, Message::Host(message));
                }
                SchedulerEffect::AnswerPlacement(reply, answer) => cx.oracle.placed(reply.goes_to().1, answer),
                SchedulerEffect::AnswerNodes(reply, nodes) => {
                    let (to, slot) = reply.goes_to();
                    cx.send(to, Message::Answer { slot, answer: Answer::Nodes(nodes) });
                }
                // In this world nobody asks for jobs.
                SchedulerEffect::AnswerJobs(..) => {}
                SchedulerEffect::After(delay, event) => cx.after(delay, Timer::Scheduler(event)),
                SchedulerEffect::LookForUnfinished => cx.ask(Who::Look, Question::Unfinished, LOOK_DEADLINE),
            }
        }
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
