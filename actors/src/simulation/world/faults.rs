//! What goes wrong, and is mended.

use std::time::Duration;

use super::{Node, What, World};
use crate::simulation::acts::Timer;
use crate::simulation::chaos::{Fault, Target};
use crate::simulation::node::Process;

impl World {
    pub(super) fn target(&self, target: Target) -> Option<usize> {
        match target {
            Target::Node(node) => Some(node),
            Target::Host => self.processes().find(|(_, process)| process.hosts()).map(|(node, _)| node),
            Target::Scheduler => {
                let acts = |process: &Process| process.actors.scheduler.acts(self.now).is_some();
                self.processes().find(|(_, process)| acts(process)).map(|(node, _)| node)
            }
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        self.note(None, || format!("{fault:?}"));
        self.faults += u64::from(fault.costs_work());
        match fault {
            Fault::Crash { target, keeps, back } => {
                if let Some(node) = self.target(target) {
                    self.crash(node, keeps);
                    self.after(back, What::Start(node));
                }
            }
            Fault::Freeze { target, lasts } => {
                if let Some(node) = self.target(target).filter(|node| self.nodes[*node].process.is_some()) {
                    self.note(Some(node), || "is frozen".to_owned());
                    self.nodes[node].frozen = true;
                    self.after(lasts, What::Thaw(node));
                }
            }
            Fault::CutBus { target, out, back, lasts } => {
                if let Some(node) = self.target(target) {
                    self.note(Some(node), || "is cut off from the bus".to_owned());
                    self.nodes[node].cut_out |= out;
                    self.nodes[node].cut_in |= back;
                    self.after(lasts, What::Join { node, out, back });
                }
            }
            Fault::CutPeers { from, to, both, lasts } => {
                *self.no_fetch.entry((from, to)).or_default() += 1;
                if both {
                    *self.no_fetch.entry((to, from)).or_default() += 1;
                }
                self.after(lasts, What::JoinPeers { from, to, both });
            }
            Fault::Server { lasts } => {
                self.server.cut(self.now);
                self.after(lasts, What::StartServer);
            }
            Fault::Executor { target } => {
                if let Some(node) = self.target(target).filter(|node| !self.nodes[*node].frozen) {
                    self.executor_dies(node);
                }
            }
            Fault::Client { lasts } => {
                self.asked = None;
                self.client_away = self.now + lasts;
            }
            Fault::Lose { target, per_mille } => {
                let Some(node) = self.target(target) else { return };
                let Node { process, name, .. } = &mut self.nodes[node];
                let Some(process) = process else { return };
                for object in process.store.ids() {
                    if self.dice.chance(per_mille) {
                        process.store.delete(object);
                        self.oracle.took(name, object);
                    }
                }
            }
        }
    }

    /// A process ends without a word.
    pub(super) fn crash(&mut self, node: usize, keeps: u64) {
        let Node { process, name, frozen, backlog, disk, .. } = &mut self.nodes[node];
        let Some(process) = process.take() else { return };
        (*frozen, *disk) = (false, process.store);
        let unread = std::mem::take(backlog);
        for object in disk.ids() {
            if !self.dice.chance(keeps) {
                disk.delete(object);
                self.oracle.took(name, object);
            }
        }
        self.sessions.retain(|(from, _), _| *from != node);
        for what in unread {
            if let What::Frame(frame) = what {
                self.again(frame);
            }
        }
        let left = self.nodes[node].disk.len();
        self.note(Some(node), || format!("is killed; {left} objects stay on its disk"));
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        self.nodes[node].boot += 1;
        let (slots, store) = (self.nodes[node].slots, std::mem::take(&mut self.nodes[node].disk));
        let (process, done) = self.at_node(node, |around, done| Process::start(slots, store, around, done));
        self.nodes[node].process = Some(process);
        self.note(Some(node), || "starts".to_owned());
        self.perform(node, done);
    }

    pub(super) fn thaw(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].frozen) {
            return;
        }
        self.note(Some(node), || "goes on".to_owned());
        for what in std::mem::take(&mut self.nodes[node].backlog) {
            let what = match what {
                // The candidate's clock has gone on.
                What::Timer(at, Timer::Election) => {
                    self.nodes[node].election_at = self.now;
                    What::Timer(at, Timer::Election)
                }
                what => what,
            };
            self.after(Duration::ZERO, what);
        }
    }

    pub(super) fn join_peers(&mut self, from: usize, to: usize) {
        if let Some(cuts) = self.no_fetch.get_mut(&(from, to)) {
            *cuts -= 1;
            if *cuts == 0 {
                self.no_fetch.remove(&(from, to));
            }
        }
    }

    /// Everything is mended, and nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.note(None, || "everything is mended".to_owned());
        (self.healed, self.common.full) = (true, 0);
        self.no_fetch.clear();
        if !self.server.up {
            self.server.start();
        }
        for node in 0..self.nodes.len() {
            (self.nodes[node].cut_out, self.nodes[node].cut_in) = (false, false);
            self.thaw(node);
            self.start(node);
        }
    }
}
