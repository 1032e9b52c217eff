//! The Owner of the job, with its program: its pure cores, and a mirror of its shell (`owner/actor.rs`, `owner/logging.rs`).

mod logging;
mod reading;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use exobus_store::Block;
use futures::future::LocalBoxFuture;
use futures::task::ArcWake;
use tokio::sync::{mpsc, oneshot};

use super::acts::{Cx, Message, Timer};
use super::program::Job;
use crate::event::{EventKind, NodeState};
use crate::futures::{Choices, Futures, FuturesParts, NodeShape, Notify, ProgramCall, Teller};
use crate::ids::{Attempt, CopyId, Incarnation, JobId, JobSecret, NodeId, ObjectId, TaskId};
use crate::joblog::{Entry, Past, TaskDone};
use crate::protocol;
use crate::protocol::node_manager::{AttemptState, Doing, NodeMsg, SET_MEMBERS_PER_MESSAGE};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{NodeInfo, SchedulerMsg};

use crate::owner::{Asker, DeferredFrees, Effect, Freed, Leasing, Look, OwnerEvent, OwnerState, Tracker, Watchdog};

use crate::shell::{Post, Reply, mailbox};
use crate::task::{JobError, Output, Parts, Resources};

const TICK: Duration = Duration::from_secs(1);
const FAREWELL: Duration = Duration::from_millis(500);
const INVENTORY_DEADLINE: Duration = Duration::from_secs(3);
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
const CALL_DEADLINE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Entries of a record; the real one counts bytes.
const RECORD: usize = 64;

/// How a job ends.
pub(super) type JobResult = Result<Vec<u8>, JobError>;

/// How an Owner ends.
#[derive(Debug)]
pub(super) enum Outcome {
    Over(JobResult),
    Abandoned(String),
}

enum Waiter {
    Notify(Notify),
    Stream(Teller<Result<Option<ObjectId>, JobError>>),
    Stat(oneshot::Sender<Result<Output, JobError>>),
    Get { parts: Parts, answer: oneshot::Sender<Result<Block, JobError>> },
}

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

/// The writer of the log (`joblog/writer.rs`).
#[derive(Debug)]
struct Log {
    run: String,
    last: u64,
    waiting: VecDeque<Entry>,
    /// Entries of the record that is being written.
    asked: Option<usize>,
    noted: u64,
    written: u64,
}

/// What a run begins with.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) past: Past,
    pub(super) name: String,
    pub(super) last: u64,
}

struct Ending {
    result: JobResult,
    awaited: BTreeSet<NodeId>,
}

pub(super) struct Owner {
    job: JobId,
    state: OwnerState,
    leasing: Leasing,
    deferred: DeferredFrees<JobResult>,
    log: Option<Log>,
    /// Nodes that are to say what they hold.
    awaited: BTreeSet<NodeId>,
    waiters: BTreeMap<Tracker, Waiter>,
    next_tracker: Tracker,
    nodes: BTreeSet<NodeId>,
    frees: BTreeMap<NodeId, Vec<CopyId>>,
    recalls: BTreeMap<NodeId, Vec<(TaskId, Attempt)>>,
    /// The question which nodes there are.
    listing: Option<(u64, Duration)>,
    failure: Option<JobError>,
    result: Option<JobResult>,
    watchdog: Watchdog,
    calls: u64,
    /// What nodes were asked to do, and have not answered.
    doing: BTreeMap<u64, NodeId>,
    answers: BTreeMap<NodeId, Vec<AttemptState>>,
    ending: Option<Ending>,
    pub(super) outcome: Option<Outcome>,
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
        let up = || infos.iter().filter(|info| info.up);
        let mut functions: BTreeMap<Arc<str>, Vec<NodeId>> = BTreeMap::new();
        for info in up() {
            for function in &info.spec.functions {
                functions.entry(function.clone()).or_default().push(info.spec.node.clone());
            }
        }
        let shape = |info: &NodeInfo| NodeShape {
            node: info.spec.node.clone(),
            cpu_milli: info.spec.resources.get("cpu"),
            memory_bytes: info.spec.memory_bytes,
        };
        let handle = Futures::new(FuturesParts {
            job,
            secret: JobSecret::from_u128(job.as_u128()),
            run: past.runs,
            owner: address.inlet(),
            store,
            functions,
            nodes: up().map(shape).collect(),
            choices: Choices::replaying(past.choices.clone()),
            seed: job.as_u128() as u64,
            clock: post.clock().clone(),
            home: Default::default(),
            others: Default::default(),
        });
        let mut owner = Self {
            job,
            state: OwnerState::new(job),
            leasing: Leasing::default(),
            deferred: DeferredFrees::default(),
            log: Some(Log { run: name, last, waiting: VecDeque::new(), asked: None, noted: 0, written: 0 }),
            awaited: BTreeSet::new(),
            waiters: BTreeMap::new(),
            next_tracker: 1,
            nodes: BTreeSet::new(),
            frees: BTreeMap::new(),
            recalls: BTreeMap::new(),
            listing: None,
            failure: None,
            result: None,
            watchdog: Watchdog::new(cx.now),
            calls: 0,
            doing: BTreeMap::new(),
            answers: BTreeMap::new(),
            ending: None,
            outcome: None,
            program: None,
            inbox,
            handle,
            plan,
        };
        owner.state.is_at_home(cx.me, cx.incarnation);
        owner.nodes_said(infos);
        owner.started(past, cx);
        owner
    }

    fn started(&mut self, past: Past, cx: &mut Cx<'_>) {
        self.node(&cx.me.clone(), cx);
        if past.runs > 0 {
            cx.oracle.resumed(&past);
            self.state.resume(past);
            for node in self.state.alive_nodes() {
                self.take_inventory(&node, cx);
                self.awaited.insert(node);
            }
            cx.after(INVENTORY_DEADLINE, Timer::Settle);
        }
        if self.awaited.is_empty() {
            self.settle();
        }
        cx.after(TICK, Timer::Owner);
        self.flush(cx);
    }

    /// The program may begin.
    pub(super) fn settle(&mut self) {
        if self.program.is_none() {
            let woken = Arc::new(Flag(AtomicBool::new(true)));
            self.program = Some(Program { run: self.plan.start(self.handle.clone()), woken, over: false });
        }
    }

    fn heard(&mut self, node: &NodeId) {
        self.awaited.remove(node);
        if self.awaited.is_empty() {
            self.settle();
        }
    }

    /// First contact with a node: it is watched.
    fn node(&mut self, node: &NodeId, cx: &mut Cx<'_>) {
        if self.nodes.insert(node.clone()) {
            let (job, owner) = (self.job, cx.me.clone());
            cx.send(node, Message::Node(NodeMsg::Watch { job, owner, sample_ms: 0 }));
        }
    }

    fn tell(&mut self, node: &NodeId, message: NodeMsg, cx: &mut Cx<'_>) {
        self.node(node, cx);
        cx.send(node, Message::Node(message));
    }

    fn take_inventory(&mut self, node: &NodeId, cx: &mut Cx<'_>) {
        cx.note(|| format!("{node} is asked what it holds"));
        let (job, owner, run) = (self.job, cx.me.clone(), self.state.run());
        self.tell(node, NodeMsg::TakeInventory { job, owner, run }, cx);
    }

    pub(super) fn handle(&mut self, event: OwnerEvent, cx: &mut Cx<'_>) {
        match event {
            OwnerEvent::Wire(message) => self.message(message, cx),
            OwnerEvent::Program(call) => self.call(call, cx),
            OwnerEvent::NewReign => self.say_demand(cx),
            OwnerEvent::Nodes(nodes) => self.nodes_said(nodes),
            OwnerEvent::NodeState { node, incarnation, state } => self.node_state(&node, incarnation, state),
            OwnerEvent::SessionReset { node, incarnation } => self.state.session_reset(&node, incarnation),
            OwnerEvent::Log(news) => self.log_news(news, cx),
            OwnerEvent::Unreadable { copy, parts, answer } => {
                self.state.unreadable(copy);
                self.get(ObjectId::of_copy(copy).0, parts, answer, cx);
            }
            OwnerEvent::Settle => self.settle(),
            OwnerEvent::Close => {
                if let Some(ending) = &mut self.ending {
                    ending.awaited.clear();
                }
            }
            OwnerEvent::Tick if self.ending.is_some() => {}
            OwnerEvent::Tick => {
                self.tick(cx);
                cx.after(TICK, Timer::Owner);
            }
            OwnerEvent::Told(_) => unreachable!("nobody says that here"),
        }
        self.flush(cx);
    }

    fn message(&mut self, message: OwnerMsg, cx: &mut Cx<'_>) {
        match message {
            OwnerMsg::Completed { node, incarnation, task, attempt, outputs, consumed, figures, values } => {
                let before = self.state.counts();
                let made_by = self.state.completed((&node, incarnation), task, attempt, &outputs, &consumed, figures);
                let accepted = self.state.counts().finished > before.finished;
                cx.oracle.completed(accepted, made_by.is_some(), (&node, incarnation), task, attempt);
                if let Some(made_by) = made_by {
                    if node != *cx.me {
                        self.state.values(task, attempt, &values);
                    }
                    self.note(Entry::Done(TaskDone { task, node, outputs, made_by, consumed, values }));
                }
            }
            OwnerMsg::Yielded { node, incarnation, task, attempt, index, output } => {
                self.watchdog.output();
                self.state.yielded((&node, incarnation), task, attempt, index, output);
            }
            OwnerMsg::Failed { node, incarnation, task, attempt, failure, figures } => {
                cx.oracle.failed(&self.state, &node, task, attempt, &failure);
                self.state.failed((&node, incarnation), task, attempt, failure, figures);
            }
            OwnerMsg::Recalled { node, incarnation, task, attempt } => {
                self.state.recalled((&node, incarnation), task, attempt);
            }
            OwnerMsg::Inventory { node, incarnation, copies, makers, outputs, last } => {
                copies.iter(self.job).for_each(|copy| cx.note(|| format!("{node} holds {copy}")));
                let held = copies.iter(self.job).zip(makers).zip(outputs);
                self.state.inventory((&node, incarnation), held.map(|((copy, maker), output)| (copy, maker, output)));
                if last {
                    self.heard(&node);
                }
            }
            OwnerMsg::SetUnknown { node, set } => self.state.set_unknown(&node, set),
            OwnerMsg::TakenOver { run } if run > self.state.run() && self.ending.is_none() => self.taken_over(),
            OwnerMsg::TakenOver { .. } => {}
            OwnerMsg::Leases { epoch, leases, wait } if self.leasing.is_of_now(epoch, cx.link.epoch()) => {
                if let Some(error) = self.state.refused(wait.as_ref()) {
                    self.failure.get_or_insert(error);
                }
                let Some(leases) = leases else { return };
                cx.oracle.leased(self.state.run(), epoch);
                self.leasing.leased(cx.now, epoch, leases);
                self.state.leases(&self.leasing.lent());
                if self.listing.is_none() && self.state.unheard().next().is_some() {
                    let slot = cx.slot();
                    self.listing = Some((slot, cx.now + CALL_DEADLINE));
                    cx.tell_scheduler(SchedulerMsg::ListNodes { reply: Reply::to(cx.me.clone(), slot) });
                }
            }
            OwnerMsg::Leases { .. } => {}
            OwnerMsg::NodeFigures { node, last, running, .. } => {
                if let Some(ending) = self.ending.as_mut().filter(|_| last) {
                    ending.awaited.remove(&node);
                }
                self.watchdog.runs(&node, &running);
                self.state.still_running(&node, &running);
            }
            OwnerMsg::Rejected { .. } | OwnerMsg::FoldDue { .. } | OwnerMsg::Why { .. } | OwnerMsg::Cancel => {
                unreachable!("nobody says that here")
            }
        }
    }

    fn call(&mut self, call: ProgramCall, cx: &mut Cx<'_>) {
        self.calls += 1;
        match call {
            ProgramCall::Submit { id, description } => {
                cx.oracle.truth.submitted(id, &description);
                self.state.submit(id, description);
            }
            ProgramCall::Track { object, notify } => {
                let tracker = self.wait(Waiter::Notify(notify));
                self.state.track_made(object, tracker);
            }
            ProgramCall::TrackStream { task, queue } => {
                let tracker = self.wait(Waiter::Stream(queue));
                self.state.track_stream(task, tracker);
            }
            ProgramCall::Get { object, parts, answer } => {
                let tracker = self.wait(Waiter::Get { parts, answer });
                self.state.track(object, tracker);
            }
            ProgramCall::Stat { object, answer } => {
                let tracker = self.wait(Waiter::Stat(answer));
                self.state.track_made(object, tracker);
            }
            ProgramCall::MakeSet { set, members, exchange } => {
                cx.oracle.truth.set(set, &members);
                self.state.make_set(set, &members, exchange);
            }
            ProgramCall::ReleaseObject(object) => self.state.release_object(object),
            ProgramCall::ReleaseSet(set) => self.state.release_set(set),
            ProgramCall::ReleaseStream(task) => self.state.release_stream(task),
            ProgramCall::Cancel(object) => self.state.cancel_maker(object),
            ProgramCall::MayGiveUp(object) => self.state.may_give_up(object),
            ProgramCall::Locations { object, answer } => drop(answer.send(self.state.locations(object))),
            ProgramCall::OwnerBytes { answer } => drop(answer.send(self.state.bytes())),
            ProgramCall::Chose(choice) => self.note_choice(choice),
            ProgramCall::Finished(result) => self.result = Some(result),
            ProgramCall::Plan { .. } | ProgramCall::Say { .. } => {}
            ProgramCall::Put { .. } | ProgramCall::OpenLane { .. } | ProgramCall::Push { .. } => {
                unreachable!("no program here does that")
            }
        }
    }

    fn act(&mut self, effect: Effect, cx: &mut Cx<'_>) {
        match effect {
            Effect::DefineSet { node, set } => {
                let (version, members) = self.state.set_members(set);
                let (job, run, total) = (self.job, self.state.run(), members.len() as u32);
                let chunks = members.chunks(SET_MEMBERS_PER_MESSAGE).chain(members.is_empty().then_some(&[][..]));
                for (index, chunk) in chunks.enumerate() {
                    let (start, members) = ((index * SET_MEMBERS_PER_MESSAGE) as u32, chunk.iter().cloned().collect());
                    self.tell(&node, NodeMsg::DefineSet { job, run, set, version, start, total, members }, cx);
                }
            }
            Effect::Run { node, spec } => {
                cx.oracle.handed(&spec);
                let owner = cx.me.clone();
                self.tell(&node, NodeMsg::Run { owner, spec: *spec }, cx);
            }
            Effect::Recall { node, task, attempt } => self.recalls.entry(node).or_default().push((task, attempt)),
            Effect::Cancel { node, task, attempt } => {
                let job = self.job;
                self.tell(&node, NodeMsg::Cancel { job, task, attempt }, cx);
            }
            Effect::Free { node, copy } => self.free_when_durable(node, Freed::Copy(copy), cx),
            Effect::Restore { copy, maker, .. } => {
                let made = cx.oracle.truth.of(ObjectId::of_copy(copy).0).cloned();
                if !made.is_some_and(|made| cx.store.seal(copy, &made, maker)) {
                    self.state.not_restored(copy);
                }
            }
            Effect::TakeInventory { node } => {
                self.nodes.remove(&node);
                self.take_inventory(&node, cx);
            }
            Effect::Doubt { node, of } => {
                let message = NodeMsg::Doubt { job: self.job, nodes: of.into() };
                self.tell(&node, message, cx);
            }
            Effect::FreeParts { node, set, version, parts } => {
                self.free_when_durable(node, Freed::Parts(set, version, parts), cx);
            }
            Effect::Resolved { tracker, object, outcome } => self.resolved(tracker, object, outcome, cx),
            Effect::Streamed { tracker, item } => self.streamed(tracker, item),
            Effect::Demand(demand) => {
                self.leasing.wants(demand);
                self.say_demand(cx);
            }
            Effect::Event { kind: EventKind::TaskSpeculated { task, attempt, slow, .. }, .. } => {
                cx.oracle.work.copied += 1;
                cx.note(|| format!("{task:.8} #{attempt} is a copy of one that takes long on {slow}"));
            }
            Effect::Event { at, kind } => cx.note(|| match kind {
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
            }),
            Effect::Fail(error) => {
                cx.note(|| format!("the job cannot go on: {error}"));
                self.failure.get_or_insert(error);
            }
        }
    }

    fn send_frees(&mut self, node: &NodeId, cx: &mut Cx<'_>) {
        let (job, run) = (self.job, self.state.run());
        let copies = self.frees.remove(node).unwrap_or_default();
        copies.iter().for_each(|copy| cx.oracle.frees(run, node, *copy));
        if !copies.is_empty() {
            self.tell(node, NodeMsg::Free { job, copies: copies.into_iter().collect() }, cx);
        }
    }

    fn say_demand(&mut self, cx: &mut Cx<'_>) {
        let asker = Asker { job: self.job, tenant: "sim".into(), node: cx.me.clone(), incarnation: cx.incarnation };
        let in_use = |node: &NodeId, leased: &Resources| self.state.in_use(node, leased);
        let demand = self.leasing.demand(asker, cx.link.epoch(), in_use);
        cx.tell_scheduler(SchedulerMsg::Demand(demand));
    }

    fn nodes_said(&mut self, nodes: Vec<NodeInfo>) {
        for NodeInfo { spec, .. } in nodes.into_iter().filter(|info| info.up) {
            self.state.offers(&spec.node, spec.incarnation, spec.functions.into_iter().collect());
            self.state.could_lend(&spec.node, spec.incarnation, spec.resources);
        }
    }

    /// The Scheduler says which nodes there are.
    pub(super) fn listed(&mut self, slot: u64, nodes: Vec<NodeInfo>, cx: &mut Cx<'_>) {
        if self.listing.is_some_and(|(asked, _)| asked == slot) {
            self.listing = None;
            self.handle(OwnerEvent::Nodes(nodes), cx);
        }
    }

    fn node_state(&mut self, node: &NodeId, incarnation: Incarnation, state: NodeState) {
        if matches!(state, NodeState::Dead | NodeState::Left) {
            if let Some(ending) = &mut self.ending {
                ending.awaited.remove(node);
            }
            self.heard(node);
            self.state.node_dead(node, incarnation);
        } else if state == NodeState::Up {
            self.state.node_up(node, incarnation);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.leasing.run_out(cx.now, cx.link.speaks()) {
            self.state.leases(&self.leasing.lent());
        }
        if self.listing.is_some_and(|(_, until)| cx.now >= until) {
            self.listing = None;
        }
        self.state.rebalance();
        self.say_demand(cx);
        if let Look::Quiet(quiet) = self.watchdog.look(cx.now, self.state.counts().finished, self.calls) {
            self.ask_nodes(quiet, cx);
        }
    }

    /// Nothing has moved: nodes are asked what attempts there do.
    fn ask_nodes(&mut self, quiet: Duration, cx: &mut Cx<'_>) {
        cx.note(|| format!("no progress for {quiet:?}, nodes are asked what they do"));
        cx.oracle.quiet();
        self.doing.clear();
        self.answers.clear();
        for (node, attempts) in self.state.attempt_facts() {
            let slot = cx.slot();
            let (job, reply) = (self.job, Reply::to(cx.me.clone(), slot));
            let attempts = attempts.iter().map(|attempt| (attempt.task, attempt.attempt)).collect();
            self.tell(&node, NodeMsg::Doing { job, attempts, reply }, cx);
            self.doing.insert(slot, node);
        }
        let round = cx.slot();
        cx.after(ANSWER_DEADLINE, Timer::Told(round));
    }

    pub(super) fn does(&mut self, slot: u64, states: Vec<AttemptState>, cx: &mut Cx<'_>) {
        if let Some(node) = self.doing.remove(&slot) {
            self.answers.insert(node, states);
            if self.doing.is_empty() {
                self.told(cx);
            }
        }
    }

    /// Nodes have answered, or had their time (`hand_out_again` of the real one).
    pub(super) fn told(&mut self, cx: &mut Cx<'_>) {
        self.doing.clear();
        for (node, states) in std::mem::take(&mut self.answers) {
            for state in states.iter().filter(|state| state.doing == Doing::NotHere) {
                cx.note(|| format!("{:.8} #{} was lost on the way to {node}", state.task, state.attempt));
                self.state.recalled((&node, self.state.life_of(&node)), state.task, state.attempt);
            }
        }
        self.flush(cx);
    }

    fn end(&mut self, result: JobResult, cx: &mut Cx<'_>) {
        let job = self.job;
        let mut awaited = BTreeSet::new();
        for node in self.nodes.clone() {
            cx.send(&node, Message::Node(NodeMsg::EndJob { job }));
            if node != *cx.me && self.state.is_alive(&node) {
                awaited.insert(node);
            }
        }
        cx.store.clear();
        cx.tell_scheduler(SchedulerMsg::JobDone { job });
        self.ending = Some(Ending { result, awaited });
        cx.after(FAREWELL, Timer::Farewell);
    }

    fn close(&mut self) {
        if let Some(ending) = self.ending.take_if(|ending| ending.awaited.is_empty()) {
            self.outcome.get_or_insert(Outcome::Over(ending.result));
        }
    }

    /// The batch is handled: what came of it is done, and the program goes on.
    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) {
        loop {
            if self.outcome.is_some() {
                self.program = None;
                return;
            }
            if self.ending.is_some() {
                return self.close();
            }
            for effect in self.state.flush() {
                self.act(effect, cx);
            }
            for node in self.frees.keys().cloned().collect::<Vec<_>>() {
                self.send_frees(&node, cx);
            }
            let job = self.job;
            for (node, tasks) in std::mem::take(&mut self.recalls) {
                self.tell(&node, NodeMsg::Recall { job, tasks }, cx);
            }
            let result = match (self.failure.take(), self.result.take()) {
                (Some(error), _) => Some(Err(error)),
                (None, Some(Ok(value))) => Some(self.state.close().map(|()| value)),
                (None, other) => other,
            };
            if let Some(result) = result {
                self.end_when_durable(result, cx);
            }
            self.write(cx);
            cx.oracle.owner_is_right(&self.state, cx.now);
            if !self.go_on(cx) {
                return;
            }
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
        while let Ok(event) = self.inbox.try_recv() {
            if let OwnerEvent::Program(call) = event {
                called = true;
                self.call(call, cx);
            }
        }
        // What the program let go at its end comes before.
        if let Some(result) = finished {
            self.call(ProgramCall::Finished(result), cx);
        }
        let woken = self.program.as_ref().is_some_and(|run| !run.over && run.woken.0.load(Ordering::Relaxed));
        called || woken || self.result.is_some()
    }
}
