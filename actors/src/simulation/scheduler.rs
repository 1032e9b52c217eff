//! The Scheduler of a node: its core, of which the effects are performed here.

use std::sync::Arc;
use std::time::Duration;

use super::acts::{Answer, Cx, Message, Timer, Who};
use super::program::PROGRAM;
use super::server::{Answered, Question};
use crate::protocol::host::HostMsg;
use crate::protocol::node_manager::NodeMsg;

use crate::ids::{Epoch, JobId};

use crate::jobs::quotas::TenantQuotas;
use crate::scheduler::{SchedulerCore, SchedulerEffect, SchedulerEvent, SchedulerOptions, State};

/// The actor.
pub(super) struct Scheduler {
    job: JobId,
    core: SchedulerCore,
}

impl Scheduler {
    pub(super) fn new(job: JobId, cx: &mut Cx<'_>) -> Self {
        let mut scheduler =
            Self { job, core: SchedulerCore::new(SchedulerOptions::default(), TenantQuotas::default()) };
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
        if let SchedulerEvent::Elected { epoch, succeeds, .. } = event
            && self.core.epoch() != Some(epoch)
        {
            cx.oracle.elected(epoch, succeeds);
        }
        self.core.on(event, cx.now);
        self.core.flush(cx.now);
        self.perform(cx);
    }

    fn perform(&mut self, cx: &mut Cx<'_>) {
        for effect in self.core.effects() {
            match effect {
                SchedulerEffect::TellOwner(_, node, message) => {
                    if self.core.acting(cx.now).is_none() {
                        cx.oracle.lends_late(cx.me);
                    }
                    cx.send(&node, Message::Owner(message));
                }
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
                // In this world nobody asks for jobs, and none is noted.
                SchedulerEffect::AnswerJobs(..)
                | SchedulerEffect::AnswerStanding(..)
                | SchedulerEffect::AnswerDescribed(..)
                | SchedulerEffect::AnswerRecords(..)
                | SchedulerEffect::AnswerFound(..)
                | SchedulerEffect::AnswerCount(..)
                | SchedulerEffect::OpenJournal(_)
                | SchedulerEffect::Journal(..)
                | SchedulerEffect::LookForEnd(_)
                | SchedulerEffect::LookForPieces
                | SchedulerEffect::ForgetPieces(_)
                | SchedulerEffect::Show(_) => {}
                SchedulerEffect::After(delay, event) => cx.after(delay, Timer::Scheduler(event)),
                SchedulerEffect::LookForUnfinished { deadline } => cx.ask(Who::Look, Question::Unfinished, deadline),
            }
        }
    }
}
