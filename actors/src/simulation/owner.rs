//! The Owner of the job, with its program: its core, what comes of it done in this world, and the writer of its log.

mod logging;

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use exobus_store::Block;
use futures::future::LocalBoxFuture;
use futures::task::ArcWake;
use tokio::sync::mpsc;

use self::logging::{LOOK_EVERY, Log};
use super::acts::{Act, Cx, Message, Timer};
use super::backlog::Backlog;
use super::job::Job;
use super::store::Found;
use crate::event::{EventKind, NodeFigures};
use crate::futures::{Choices, ComputeThreads, Futures, FuturesParts, ProgramCall};
use crate::host::{offers, shapes};
use crate::ids::{CopyId, Epoch, JobId, JobSecret, NodeId, ObjectId};
use crate::joblog::{Entry, Past};
use crate::jobs::quotas::Quotas;
use crate::owner::{
    Beginning, JobOutcome, JobResult, OwnerCore, OwnerEffect, OwnerEvent, OwnerPlace, ReadError, Surroundings,
};
use crate::protocol;
use crate::protocol::node_manager::{AttemptState, NodeMsg};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{NodeInfo, SchedulerMsg};
use crate::shell::{Post, Reply, mailbox};
use crate::task::{Parts, TaskSpec};

/// Raised when the program can go on.
struct Flag(AtomicBool);

impl ArcWake for Flag {
    fn wake_by_ref(flag: &Arc<Self>) {
        flag.0.store(true, Ordering::Relaxed);
    }
}

/// A job's program: real futures, polled when they are woken.
struct Program {
    run: LocalBoxFuture<'static, JobResult>,
    woken: Arc<Flag>,
    over: bool,
}

/// What a run begins with.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) past: Past,
    pub(super) name: String,
    pub(super) last: u64,
}

/// A question that is not answered yet.
enum Asked {
    Nodes,
    Doing { question: u64, node: NodeId },
}

/// What the Owner looks at.
struct Seen {
    now: Duration,
    epoch: Epoch,
    speaks: bool,
}

impl Seen {
    fn of(cx: &Cx<'_>) -> Self {
        Self { now: cx.now, epoch: cx.link.epoch(), speaks: cx.link.speaks() }
    }
}

impl Surroundings for Seen {
    fn now(&self) -> Duration {
        self.now
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn scheduler_speaks(&self) -> bool {
        self.speaks
    }

    fn log_bytes(&self) -> u64 {
        0
    }

    fn admission(&self) -> Option<String> {
        None
    }
}

pub(super) struct Owner {
    core: OwnerCore,
    backlog: Backlog<OwnerEvent>,
    /// What it wants done, since the last batch.
    effects: Vec<OwnerEffect>,
    /// What has come of what was done, and waits to be taken in.
    comes_back: VecDeque<OwnerEvent>,
    log: Option<Log>,
    asked: BTreeMap<u64, Asked>,
    pub(super) outcome: Option<JobOutcome>,
    program: Option<Program>,
    inbox: mpsc::UnboundedReceiver<OwnerEvent>,
    handle: Futures,
    plan: Job,
}

impl Owner {
    pub(super) fn new(
        (job, plan): (JobId, Job),
        Run { past, name, last }: Run,
        post: &Post,
        infos: Vec<NodeInfo>,
        store: exobus_store::Store,
        cx: &mut Cx<'_>,
    ) -> Self {
        let (address, inbox) = mailbox::<OwnerMsg, OwnerEvent>(post, &protocol::owner::actor_name(job));
        let handle = Futures::new(FuturesParts {
            job,
            secret: JobSecret::from_u128(job.as_u128()),
            run: past.runs,
            owner: address.inlet(),
            store,
            functions: offers(&infos),
            nodes: shapes(&infos),
            choices: Choices::replaying(past.choices.clone()),
            seed: job.as_u128() as u64,
            clock: post.clock().clone(),
            compute: Arc::new(ComputeThreads),
            printer: crate::printing::Printer::nowhere(),
            home: Default::default(),
            others: Default::default(),
            keeps: Default::default(),
            words: Default::default(),
        });
        let (node, incarnation) = (cx.me.clone(), cx.incarnation);
        let place =
            OwnerPlace { job, tenant: "sim".into(), quotas: Quotas::default(), node, incarnation, events: Some(0) };
        let mut owner = Self {
            core: OwnerCore::new(place, infos, cx.now),
            backlog: Backlog::default(),
            effects: Vec::new(),
            comes_back: VecDeque::new(),
            log: Some(Log::new(name, last)),
            asked: BTreeMap::new(),
            outcome: None,
            program: None,
            inbox,
            handle,
            plan,
        };
        cx.note(|| format!("begins run {} of the job", past.runs));
        if past.runs > 0 {
            cx.oracle.resumed(&past);
        }
        let begins = Beginning { past, forgets: false, logged: true };
        owner.core.started(Some(begins), NodeFigures::default());
        cx.after(LOOK_EVERY, Timer::LookAtLog);
        owner.flush(cx);
        owner
    }

    /// Something happens.
    pub(super) fn handle(&mut self, event: OwnerEvent, cx: &mut Cx<'_>) {
        let events = self.backlog.add(event, Timer::OwnerIsFree, cx);
        self.take_all_in(events, cx);
    }

    /// Takes in what has waited.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let events = self.backlog.take();
        self.take_all_in(events, cx);
    }

    fn take_all_in(&mut self, events: Vec<OwnerEvent>, cx: &mut Cx<'_>) {
        if events.is_empty() {
            return;
        }
        events.into_iter().for_each(|event| self.take_in(event, cx));
        self.flush(cx);
    }

    /// The core takes an event in, and the oracle looks at what comes of it.
    fn take_in(&mut self, event: OwnerEvent, cx: &mut Cx<'_>) {
        match &event {
            OwnerEvent::Program(ProgramCall::Submit { id, description }) => cx.oracle.truth.submitted(*id, description),
            OwnerEvent::Program(ProgramCall::MakeSet { set, members, edge }) => {
                cx.oracle.truth.set(*set, members, edge.is_some());
            }
            OwnerEvent::Wire(OwnerMsg::Failed { node, task, attempt, failure, .. }) => {
                cx.oracle.failed(self.core.state(), node, *task, *attempt, failure);
            }
            OwnerEvent::Wire(OwnerMsg::Inventory { node, copies, .. }) => {
                copies.iter(cx.job).for_each(|copy| cx.note(|| format!("{node} holds {copy}")));
            }
            _ => {}
        }
        let completed = match &event {
            OwnerEvent::Wire(OwnerMsg::Completed { task, attempt, .. }) => Some((*task, *attempt)),
            _ => None,
        };
        let finished = self.core.state().counts().finished;
        self.core.on(event, &Seen::of(cx));
        let before = self.effects.len();
        self.core.take_effects(&mut self.effects);
        if let Some((task, attempt)) = completed {
            let accepted = self.core.state().counts().finished > finished;
            let logs =
                |effect: &OwnerEffect| matches!(effect, OwnerEffect::Append(Entry::Done(done)) if done.task == task);
            cx.oracle.completed(accepted, self.effects[before..].iter().any(logs), task, attempt);
        }
        cx.oracle.leased(self.core.state().run(), self.core.obeys());
    }

    /// The batch is handled: what came of it is done, and the program goes on.
    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) {
        loop {
            self.core.flush(&Seen::of(cx));
            self.core.take_effects(&mut self.effects);
            for effect in std::mem::take(&mut self.effects) {
                self.perform(effect, cx);
            }
            if self.outcome.is_some() {
                self.program = None;
                return;
            }
            self.write(cx);
            if !self.go_on(cx) {
                return;
            }
        }
    }

    /// Does what the Owner wants done.
    fn perform(&mut self, effect: OwnerEffect, cx: &mut Cx<'_>) {
        match effect {
            OwnerEffect::Run { node, spec } => self.run(node, spec, cx),
            OwnerEffect::EndJob { node } => {
                cx.oracle.ends(self.core.state());
                cx.send(&node, Message::Node(NodeMsg::EndJob { job: cx.job }));
            }
            OwnerEffect::Send { node, message } => self.send(&node, message, cx),
            OwnerEffect::LookAtFigures => {
                self.comes_back.push_back(OwnerEvent::Figures(Box::default(), Vec::new()));
            }
            OwnerEffect::SendScheduler(message) => cx.tell_scheduler(message),
            OwnerEffect::AskNodes { deadline } => {
                let slot = self.ask(Asked::Nodes, deadline, cx);
                cx.tell_scheduler(SchedulerMsg::ListNodes { reply: Reply::to(cx.me.clone(), slot) });
            }
            OwnerEffect::AskDoing { question, node, attempts, deadline } => {
                cx.note(|| format!("{node} is asked what it does"));
                let slot = self.ask(Asked::Doing { question, node: node.clone() }, deadline, cx);
                let (job, reply) = (cx.job, Reply::to(cx.me.clone(), slot));
                cx.send(&node, Message::Node(NodeMsg::Doing { job, attempts, reply }));
            }
            OwnerEffect::After(delay, timer) => cx.after(delay, Timer::Owner(timer)),
            OwnerEffect::Put { copy, maker, .. } => {
                let made = cx.oracle.truth.of(ObjectId::of_copy(copy).0).cloned();
                if !made.is_some_and(|made| cx.store.seal(copy, &made, maker)) {
                    self.comes_back.push_back(OwnerEvent::NotPut(copy));
                }
            }
            OwnerEffect::Read { read, copy, parts, from: Some(node) } => {
                cx.acts.push(Act::Read { read, copy, parts, node });
            }
            OwnerEffect::Read { read, copy, parts, from: None } => {
                self.read_here(read, copy, parts, cx);
            }
            OwnerEffect::DeleteAll => cx.store.clear(),
            OwnerEffect::Append(entry) => {
                if let Some(log) = &mut self.log {
                    log.add(entry);
                }
            }
            OwnerEffect::LookAtLog => self.look(cx),
            OwnerEffect::EndLog => self.log = None,
            OwnerEffect::Settled => {
                let woken = Arc::new(Flag(AtomicBool::new(true)));
                self.program = Some(Program { run: self.plan.start(self.handle.clone()), woken, over: false });
            }
            OwnerEffect::Event { at, kind } => note_event(&at, &kind, cx),
            OwnerEffect::End(outcome) => {
                if let JobOutcome::Over { result: Ok(_), .. } = &outcome {
                    cx.oracle.ended_well();
                }
                self.outcome = Some(outcome);
            }
            // Nobody here pushes, asks why or counts memory.
            OwnerEffect::Advise { .. }
            | OwnerEffect::Answer { .. }
            | OwnerEffect::Takes(_)
            | OwnerEffect::CountStale => {}
        }
    }

    /// Now and then too much waits for a node, and it gets nothing more for the moment.
    fn run(&mut self, node: NodeId, spec: Arc<TaskSpec>, cx: &mut Cx<'_>) {
        cx.oracle.handed(&spec);
        // Of what came at once, the last thing may be that the node has lost what it knew: the attempt does not count any more.
        if !self.core.state().is_under_way(spec.id, spec.attempt) {
            cx.oracle.handed_in_vain(spec.id, spec.attempt);
        }
        let (task, attempt, owner) = (spec.id, spec.attempt, cx.me.clone());
        if cx.is_full() {
            cx.note(|| format!("{task:.8} #{attempt} cannot be sent to {node}: too much waits for it"));
            return self.comes_back.push_back(OwnerEvent::Unsent { node, task, attempt, never: None });
        }
        cx.send(&node, Message::Node(NodeMsg::Run { owner, spec }));
    }

    fn send(&mut self, node: &NodeId, message: NodeMsg, cx: &mut Cx<'_>) {
        match &message {
            NodeMsg::Free { job, copies } => {
                let run = self.core.state().run();
                for copy in copies.iter(*job) {
                    cx.note(|| format!("{copy} is to be freed on {node}"));
                    cx.oracle.frees(run, node, copy);
                }
            }
            NodeMsg::TakeInventory { .. } => cx.note(|| format!("{node} is asked what it holds")),
            _ => {}
        }
        cx.send(node, Message::Node(message));
    }

    fn read_here(&mut self, read: u64, copy: CopyId, parts: Parts, cx: &mut Cx<'_>) {
        let outcome = match cx.store.find(copy, parts) {
            Found::Here(made) => {
                cx.oracle.given(ObjectId::of_copy(copy).0, parts, &made);
                Ok(Block::empty())
            }
            Found::Released | Found::Absent => Err(ReadError::Unreadable),
        };
        self.comes_back.push_back(OwnerEvent::Read { read, outcome });
    }

    fn ask(&mut self, asked: Asked, deadline: Duration, cx: &mut Cx<'_>) -> u64 {
        let slot = cx.slot();
        self.asked.insert(slot, asked);
        cx.after(deadline, Timer::OwnerAsked(slot));
        slot
    }

    /// The Scheduler says which nodes there are.
    pub(super) fn listed(&mut self, slot: u64, nodes: Vec<NodeInfo>, cx: &mut Cx<'_>) {
        if let Some(Asked::Nodes) = self.asked.remove(&slot) {
            self.handle(OwnerEvent::Nodes(nodes), cx);
        }
    }

    /// A node says what attempts there do.
    pub(super) fn does(&mut self, slot: u64, states: Vec<AttemptState>, cx: &mut Cx<'_>) {
        if let Some(Asked::Doing { question, node }) = self.asked.remove(&slot) {
            self.handle(OwnerEvent::Doing { question, node, answer: Ok(states) }, cx);
        }
    }

    /// Who was asked had time to answer.
    pub(super) fn had_time(&mut self, slot: u64, cx: &mut Cx<'_>) {
        match self.asked.remove(&slot) {
            Some(Asked::Nodes) => self.handle(OwnerEvent::Nodes(Vec::new()), cx),
            Some(Asked::Doing { question, node }) => {
                let answer = Err("no answer in time".to_owned());
                self.handle(OwnerEvent::Doing { question, node, answer }, cx);
            }
            None => {}
        }
    }

    /// Lets the program go on, and takes its calls; false when there were none.
    fn go_on(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut finished = None;
        if let Some(program) = &mut self.program
            && !program.over
            && program.woken.0.swap(false, Ordering::Relaxed)
        {
            let waker = futures::task::waker(program.woken.clone());
            if let Poll::Ready(result) = Pin::new(&mut program.run).poll(&mut Context::from_waker(&waker)) {
                (program.over, finished) = (true, Some(result));
            }
        }
        let mut called = false;
        while let Some(event) = self.comes_back.pop_front() {
            called = true;
            self.take_in(event, cx);
        }
        while let Ok(event) = self.inbox.try_recv() {
            called = true;
            self.take_in(event, cx);
        }
        // What the program let go at its end comes before.
        if let Some(result) = finished {
            called = true;
            self.take_in(OwnerEvent::Program(ProgramCall::Finished(result)), cx);
        }
        let woken = self.program.as_ref().is_some_and(|run| !run.over && run.woken.0.load(Ordering::Relaxed));
        called || woken
    }
}

fn note_event(at: &NodeId, kind: &EventKind, cx: &mut Cx<'_>) {
    if let EventKind::TaskSpeculated { .. } = kind {
        cx.oracle.work.copied += 1;
    }
    cx.note(|| match kind {
        EventKind::TaskSpeculated { task, attempt, slow, .. } => {
            format!("{task:.8} #{attempt} is a copy of one that takes long on {slow}")
        }
        EventKind::TaskPlaced { task, attempt, stage } => format!("{stage} {task:.8} #{attempt} to {at}"),
        EventKind::TaskFinished { task, attempt, stage, .. } => {
            format!("{stage} {task:.8} #{attempt} of {at} is accepted")
        }
        EventKind::TaskReplayed { task, stage } => format!("{stage} {task:.8} is to be done again"),
        EventKind::TaskResumed { task, stage } => format!("{stage} {task:.8} was done by an earlier run"),
        EventKind::TaskFailed { task, attempt, stage, error, .. } => {
            format!("{stage} {task:.8} #{attempt} of {at} failed: {error}")
        }
        EventKind::ObjectsLost { objects, .. } => format!("{objects} objects of {at} are lost"),
        kind => format!("event at {at}: {kind:?}"),
    });
}
