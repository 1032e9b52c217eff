//! The NodeManager of a node: the real core, and what its effects do in this world.

use std::collections::BTreeMap;
use std::sync::Arc;

use exobus_store::StoreStats;

use super::acts::{Act, Answer, Cx, Message, Reads, Timer, Work};
use super::backlog::Backlog;
use super::store::Found;
use crate::event::NodeFigures;
use crate::ids::ObjectId;
use crate::node_manager::{Arguments, FiguresTaken, NodeCore, NodeCounts, NodeEffect, NodeEvent, Piece, with_losses};
use crate::protocol::owner::OwnerMsg;
use crate::registry::Function;
use crate::task::Resources;

/// What a node offers: the functions of our programs. What they make the executors of this world know.
fn offered() -> BTreeMap<Arc<str>, &'static Function> {
    const fn function(name: &'static str) -> Function {
        let call = |_: &mut crate::registry::TaskContext<'_>, _: &[u8]| Ok(());
        Function { name, version: 1, modes: &[], setup: None, deterministic: true, module: module_path!(), call }
    }
    static OFFERED: [Function; 5] = [
        function("sim.map"),
        function("sim.stream"),
        function("sim.merge"),
        function("sim.reduce"),
        function("sim.commit"),
    ];
    OFFERED.iter().map(|function| (function.key().into(), function)).collect()
}

pub(super) struct Manager {
    core: NodeCore<Reads>,
    backlog: Backlog<NodeEvent<Reads>>,
}

impl Manager {
    /// One of a node with so many executors, which begins.
    pub(super) fn begin(executors: usize, cx: &mut Cx<'_>) -> Self {
        let (me, resources) = ((cx.me.clone(), cx.incarnation), Resources::cpu(executors as u64 * 1000));
        let core = NodeCore::new(me, executors, resources, offered());
        let mut manager = Self { core, backlog: Backlog::default() };
        manager.core.started();
        manager.perform(cx);
        manager
    }

    /// The incarnation of the node is over.
    pub(super) fn end(&mut self) {
        self.core.end();
    }

    /// Whether nothing of any job is left.
    pub(super) fn is_idle(&self) -> bool {
        let NodeCounts { attempts, sets, .. } = self.core.counts();
        attempts + sets == 0
    }

    /// Something happens.
    pub(super) fn handle(&mut self, event: NodeEvent<Reads>, cx: &mut Cx<'_>) {
        let events = self.backlog.add(event, Timer::ManagerIsFree, cx);
        self.take_in(events, cx);
    }

    /// Takes in what has waited.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let events = self.backlog.take();
        self.take_in(events, cx);
    }

    fn take_in(&mut self, events: Vec<NodeEvent<Reads>>, cx: &mut Cx<'_>) {
        if events.is_empty() {
            return;
        }
        for event in events {
            let arguments = self.core.arguments_of(&event);
            let at_once = arguments.and_then(|(.., arguments)| at_once(&arguments, cx));
            self.core.on(event, at_once, cx.now);
            self.perform(cx);
        }
        self.core.flush(cx.now);
        self.perform(cx);
    }

    fn perform(&mut self, cx: &mut Cx<'_>) {
        for effect in self.core.effects() {
            self.act(effect, cx);
        }
    }

    fn act(&mut self, effect: NodeEffect<Reads>, cx: &mut Cx<'_>) {
        let tell = |owner, message, cx: &mut Cx<'_>| cx.send(owner, Message::Owner(message));
        match effect {
            NodeEffect::Tell { owner, message, .. } => tell(&owner, message, cx),
            NodeEffect::TellCompleted { key, owner, mut completed, small } => {
                let values = small.into_iter().filter_map(|(index, copy)| Some((index, cx.store.value(copy)?)));
                completed.values.extend(values);
                tell(&owner, self.core.completed(key, completed), cx);
            }
            NodeEffect::TellFailed { key, owner, failure, figures, read } => {
                let gone = read.into_iter().filter(|copy| !cx.store.has(*copy));
                let failure = with_losses(failure, cx.me, gone);
                tell(&owner, self.core.failed(key, failure, Some(figures)), cx);
            }
            NodeEffect::AskForSet { key, owner, set } => {
                cx.oracle.set_unknown(key);
                tell(&owner, OwnerMsg::SetUnknown { node: cx.me.clone(), set }, cx);
            }
            NodeEffect::TellInventory { owner, .. } => {
                let held = cx.store.inventory();
                cx.note(|| format!("takes an inventory for {owner}: {} copies", held.len()));
                self.core.inventory(&held).into_iter().for_each(|message| tell(&owner, message, cx));
            }
            NodeEffect::TellDoing { job, attempts, reply } => {
                let doing = self.core.doing(job, &attempts, &StoreStats::default(), cx.now);
                let (to, slot) = reply.goes_to();
                cx.send(to, Message::Answer { slot, answer: Answer::Doing(doing) });
            }
            NodeEffect::TellHolds => {
                let stored = (cx.store.len() > 0).then_some(cx.job);
                if let Some(holds) = self.core.holds(stored) {
                    cx.tell_scheduler(holds);
                }
            }
            NodeEffect::TakeFigures(listeners) => {
                let taken = FiguresTaken { listeners, figures: NodeFigures::default(), received: Vec::new() };
                self.core.on(NodeEvent::Figures(Box::new(taken)), None, cx.now);
                self.perform(cx);
            }
            NodeEffect::Stage { key, arguments, .. } => cx.acts.push(Act::Stage(key, arguments)),
            NodeEffect::CannotStage { key, failure } => cx.acts.push(Act::CannotStage(key, failure)),
            NodeEffect::Hand { spec, prepared: reads, flags, .. } => {
                cx.acts.push(Act::Hand(Work { incarnation: cx.incarnation, spec, reads, flags }));
            }
            NodeEffect::Delete(copies) => copies.into_iter().for_each(|copy| {
                cx.note(|| format!("{copy} is deleted"));
                cx.store.delete(copy);
            }),
            NodeEffect::DeleteJob(_) => {
                cx.note(|| "all of the job is deleted".to_owned());
                cx.store.clear();
            }
            NodeEffect::Release { copies, parts } => copies.into_iter().for_each(|copy| {
                cx.note(|| format!("{parts:?} of {copy} are released"));
                cx.store.release(copy, parts);
            }),
            NodeEffect::After(delay, timer) => cx.after(delay, Timer::Manager(timer)),
            // Sessions of this world know the way, fetches find out by themselves who is there, and memory is no matter.
            NodeEffect::Follow { .. }
            | NodeEffect::Forget(_)
            | NodeEffect::SuspectUnreachable(_)
            | NodeEffect::Count(_)
            | NodeEffect::Stale => {}
        }
    }
}

/// What an attempt reads, if all of it is here. What is in memory is found so now and then.
fn at_once(arguments: &Arguments, cx: &mut Cx<'_>) -> Option<Reads> {
    let here = |piece: &Piece| {
        let object = ObjectId::of_copy(piece.name).0;
        let parts = match &piece.at {
            None => cx.oracle.truth.nothing(object, piece.parts),
            Some(node) if node == cx.me => match cx.store.find(piece.name, piece.parts) {
                Found::Here(parts) => parts,
                Found::Released | Found::Absent => return None,
            },
            Some(_) => return None,
        };
        Some((object, parts))
    };
    let reads = arguments.iter().map(|pieces| pieces.iter().map(here).collect()).collect::<Option<Reads>>()?;
    cx.dice.chance(500).then_some(reads)
}
