//! Sessions between nodes, as far as the cores can tell: what is said arrives once, in order, or the session is made anew.

use std::collections::VecDeque;

use super::{At, Node, What, World};
use crate::ids::Incarnation;
use crate::owner::OwnerEvent;
use crate::simulation::acts::Message;

/// One end of a session.
#[derive(Default)]
pub(in crate::simulation) struct Session {
    /// Which half it is: each time that it was reset, another one.
    half: u32,
    /// Which incarnation of the other node it is with.
    bound: Option<Incarnation>,
    /// The latest incarnation of the other node that was met or heard of.
    seen: Incarnation,
    queue: VecDeque<Message>,
    /// A frame is on its way.
    flies: bool,
}

impl Session {
    /// Another incarnation of the other node is there: what was under way to one before is lost. Whether anything was reset.
    pub(in crate::simulation) fn meets(&mut self, incarnation: Incarnation) -> bool {
        let another = incarnation > self.seen && self.bound.is_some();
        self.seen = self.seen.max(incarnation);
        if another {
            self.queue.clear();
            (self.half, self.bound, self.flies) = (self.half + 1, None, false);
        }
        another
    }
}

/// What travels in a session.
pub(super) struct Frame {
    from: At,
    to: usize,
    half: u32,
    /// For which incarnation of the receiver, if that is known.
    bound: Option<Incarnation>,
    messages: Vec<Message>,
}

impl World {
    pub(super) fn say(&mut self, from: usize, to: usize, message: Message) {
        self.sessions.entry((from, to)).or_default().queue.push_back(message);
        self.send(from, to);
    }

    /// Puts what waits for a node into a frame, if none is on its way.
    pub(super) fn send(&mut self, from: usize, to: usize) {
        let Some(at) = self.place(from) else { return };
        let session = self.sessions.entry((from, to)).or_default();
        if session.flies || session.queue.is_empty() {
            return;
        }
        session.flies = true;
        let (half, bound) = (session.half, session.bound);
        let messages: Vec<_> = session.queue.drain(..session.queue.len().min(64)).collect();
        let mut delay = if from == to { self.dice.micros(5..100) } else { self.delay() };
        if from != to && self.lost() {
            // It is sent again.
            delay += self.dice.millis(100..500);
        }
        self.after(delay, What::Frame(Frame { from: at, to, half, bound, messages }));
    }

    pub(super) fn frame(&mut self, frame: Frame) {
        let (from, to) = (frame.from, frame.to);
        if self.nodes[to].frozen {
            return self.nodes[to].backlog.push_back(What::Frame(frame));
        }
        let local = from.node == to;
        let open = |from: &Node, to: &Node| !from.cut_out && !to.cut_in;
        let there = self.server.up && open(&self.nodes[from.node], &self.nodes[to]);
        let back = self.server.up && open(&self.nodes[to], &self.nodes[from.node]);
        let (Some(receiver), true) = (self.place(to), local || there) else {
            return self.again(frame);
        };
        if local {
            if !self.is_now(from) {
                return;
            }
        } else {
            let theirs = self.sessions.entry((to, from.node)).or_default();
            if from.incarnation < theirs.seen {
                // Of an incarnation that is over.
                return;
            }
            let reset = theirs.meets(from.incarnation);
            theirs.bound = Some(from.incarnation);
            if reset {
                self.session_reset(to, from.node, from.incarnation);
            }
            let lives = self.is_now(from);
            let ours = self.sessions.entry((from.node, to)).or_default();
            if frame.bound.is_some_and(|bound| bound != receiver.incarnation) {
                // Meant for an incarnation that is over. The sender learns that, if it can.
                if !back {
                    return self.again(frame);
                }
                if lives && ours.meets(receiver.incarnation) {
                    let lost = frame.messages.len();
                    self.note(Some(from.node), || format!("session with n{to} is reset, {lost} lost"));
                    self.session_reset(from.node, to, receiver.incarnation);
                }
                return;
            }
            if lives && ours.half == frame.half {
                ours.meets(receiver.incarnation);
                ours.bound = Some(receiver.incarnation);
            }
        }
        let sender = self.nodes[from.node].name.clone();
        let half = frame.half;
        for message in frame.messages {
            // One of them may begin another incarnation, or end the process.
            if !self.is_now(receiver) {
                break;
            }
            self.with(to, |process, around, done| {
                if local || !process.actors.membership.state().is_over(&sender, from.incarnation) {
                    process.deliver(message, around, done);
                }
            });
        }
        self.landed(from, to, half);
    }

    /// A session was made anew, with this incarnation of the other node: who runs a job is told.
    pub(super) fn session_reset(&mut self, node: usize, other: usize, incarnation: Incarnation) {
        let event = OwnerEvent::SessionReset { node: self.nodes[other].name.clone(), incarnation };
        self.with(node, |process, around, done| process.owner_event(event, around, done));
    }

    /// A frame is not on its way any more: the next one may be.
    pub(super) fn landed(&mut self, from: At, to: usize, half: u32) {
        if self.is_now(from) {
            let session = self.sessions.entry((from.node, to)).or_default();
            if session.half == half {
                session.flies = false;
                self.send(from.node, to);
            }
        }
    }

    /// A frame did not arrive: it is sent again, as long as its sender lives and the session lasts.
    pub(super) fn again(&mut self, frame: Frame) {
        let Frame { from, to, half, messages, .. } = frame;
        if self.is_now(from) {
            let session = self.sessions.entry((from.node, to)).or_default();
            if session.half == half {
                for message in messages.into_iter().rev() {
                    session.queue.push_front(message);
                }
                let pause = self.dice.millis(100..500);
                self.after(pause, What::Knock { from, to, half });
            }
        }
    }
}
