//! What the actors of a node tell each other, and what they want done: the words between their cores and the world.

use std::sync::Arc;
use std::time::Duration;

use super::dice::Dice;
use super::oracle::Oracle;
use super::server::Question;
use super::store::Store;
use crate::protocol::host::HostMsg;
use crate::protocol::node_manager::{AttemptState, NodeMsg};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{NodeInfo, SchedulerMsg};

use crate::ids::{CopyId, Incarnation, JobId, NodeId, ObjectId};
use crate::membership::MembershipEvent;
use crate::node_manager::{Arguments, Flags, Key, NodeTimer};
use crate::owner::OwnerTimer;

use crate::scheduler::{SchedulerEvent, SchedulerLink};
use crate::task::{Output, Parts, TaskFailure, TaskSpec};

/// A message to an actor of a node, as it travels in a session.
#[derive(Debug)]
pub(super) enum Message {
    Node(NodeMsg),
    Owner(OwnerMsg),
    Scheduler(SchedulerMsg),
    Host(HostMsg),
    Answer { slot: u64, answer: Answer },
}

#[derive(Debug)]
pub(super) enum Answer {
    Nodes(Vec<NodeInfo>),
    Doing(Vec<AttemptState>),
}

/// A moment that somebody waits for.
#[derive(Debug, PartialEq)]
pub(super) enum Timer {
    Membership(MembershipEvent),
    Election,
    Scheduler(SchedulerEvent),
    Register,
    Manager(NodeTimer),
    /// The NodeManager is not busy any more.
    ManagerIsFree,
    Owner(OwnerTimer),
    /// The Owner is not busy any more.
    OwnerIsFree,
    LogAgain,
    LookAtLog,
    ListAgain,
    CloseAgain,
    /// A question to the server has no answer.
    Unanswered(u64),
    /// A question of the Owner had its time.
    OwnerAsked(u64),
}

/// Who asked the server something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Election,
    Look,
    Open,
    Log,
    LogLook,
    Close,
}

/// What was read of each argument, piece by piece.
pub(super) type Reads = Vec<Vec<(ObjectId, Vec<Output>)>>;

/// An attempt that is handed to the executors.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) incarnation: Incarnation,
    pub(super) spec: Arc<TaskSpec>,
    pub(super) reads: Reads,
    pub(super) flags: Arc<Flags>,
}

#[derive(Debug)]
pub(super) enum Act {
    /// To an actor of a node, in the session with it.
    Send(NodeId, Message),
    After(Duration, Timer),
    /// A question to the server, and how long its answer may take.
    Ask(Who, Question, Duration),
    /// Get the arguments of an attempt.
    Stage(Key, Arguments),
    /// Say to the NodeManager, after what waits, that an attempt cannot be staged.
    CannotStage(Key, TaskFailure),
    Hand(Work),
    /// Bring an object to the program.
    Read {
        read: u64,
        copy: CopyId,
        parts: Parts,
        node: NodeId,
    },
    /// Something for the trace.
    Note(String),
}

/// What an actor of a node sees while it handles something.
pub(super) struct Cx<'a> {
    pub(super) now: Duration,
    pub(super) me: &'a NodeId,
    pub(super) incarnation: Incarnation,
    /// The only job there is.
    pub(super) job: JobId,
    pub(super) link: &'a SchedulerLink,
    pub(super) store: &'a mut Store,
    pub(super) oracle: &'a mut Oracle,
    pub(super) dice: &'a mut Dice,
    /// Of a thousand attempts so many cannot be sent, since too much waits for their node.
    pub(super) full: u64,
    pub(super) slots: &'a mut u64,
    pub(super) traced: bool,
    pub(super) acts: &'a mut Vec<Act>,
}

impl Cx<'_> {
    pub(super) fn send(&mut self, to: &NodeId, message: Message) {
        self.acts.push(Act::Send(to.clone(), message));
    }

    /// To whoever is the Scheduler, if anybody is known to be.
    pub(super) fn tell_scheduler(&mut self, message: SchedulerMsg) {
        if let Some(leader) = self.link.leader() {
            self.send(&leader.node, Message::Scheduler(message));
        }
    }

    pub(super) fn after(&mut self, delay: Duration, timer: Timer) {
        self.acts.push(Act::After(delay, timer));
    }

    pub(super) fn ask(&mut self, who: Who, question: Question, deadline: Duration) {
        self.acts.push(Act::Ask(who, question, deadline));
    }

    /// Whether too much waits for a node to send it another attempt.
    pub(super) fn is_full(&mut self) -> bool {
        self.dice.chance(self.full)
    }

    /// A number that no other question has.
    pub(super) fn slot(&mut self) -> u64 {
        *self.slots += 1;
        *self.slots
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.traced {
            self.acts.push(Act::Note(text()));
        }
    }
}
