//! The world: an event queue with virtual time, processes of nodes, the bus between them, and what goes wrong.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::Block;
use tokio::sync::oneshot;

use super::acts::{Act, Message, Pieces, Reads, Timer};
use super::chaos::{Fault, Plan, Target};
use super::dice::{Dice, VirtualClock};
use super::manager::params_of;
use super::node::{Around, Common, Done, Process, Running, number_of};
use super::oracle::Oracle;
use super::program::{Digest, Job, Made, PROGRAM, sum};
use super::server::{Answered, Question, Server};
use super::store::{Found, Store};
use crate::host::{HostMsg, JobSpec};
use crate::ids::{Incarnation, JobId, NodeId, ObjectId};
use crate::membership::Beat;
use crate::node_manager::{Key, NodeMsg, Report};
use crate::owner::OwnerMsg;
use crate::scheduler::SchedulerMsg;
use crate::shell::Reply;
use crate::task::{
    Consumed, FailureKind, JobError, Loss, LostObject, Parts, Returns, TaskFailure, TaskFigures, TaskSpec,
};

const JOB: JobId = JobId::from_u128(1);
/// A node is asked again for so long for what is to be fetched.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a job may take once everything is well.
const LIVES_FOR: Duration = Duration::from_secs(120);
/// How long after its end something may be left of it.
const SETTLES_IN: Duration = Duration::from_secs(30);
const CLIENT_ASKS_EVERY: Duration = Duration::from_secs(3);

struct Node {
    name: NodeId,
    slots: usize,
    process: Option<Process>,
    /// Rises with every process.
    boot: u32,
    frozen: bool,
    /// What has come while it was frozen.
    backlog: VecDeque<What>,
    /// What the last process left on disk.
    disk: Store,
    /// When the candidate looks next; earlier plans are void.
    election_at: Duration,
    cut_out: bool,
    cut_in: bool,
}

/// One end of a session.
#[derive(Default)]
pub(super) struct Session {
    /// Which half it is: each time that it was reset, another one.
    half: u32,
    /// Which life of the other node it is with.
    bound: Option<Incarnation>,
    /// The latest life of the other node that was met or heard of.
    seen: Incarnation,
    queue: VecDeque<Message>,
    /// A frame is on its way.
    flies: bool,
}

impl Session {
    /// Another life of the other node is there: what was under way to one before is lost. Whether anything was reset.
    pub(super) fn meets(&mut self, life: Incarnation) -> bool {
        let another = life > self.seen && self.bound.is_some();
        self.seen = self.seen.max(life);
        if another {
            self.queue.clear();
            (self.half, self.bound, self.flies) = (self.half + 1, None, false);
        }
        another
    }
}

/// What travels in a session.
struct Frame {
    from: At,
    to: usize,
    half: u32,
    /// For which life of the receiver, if that is known.
    bound: Option<Incarnation>,
    messages: Vec<Message>,
}

/// Something that happens at a node, in a process of it.
#[derive(Clone, Copy, Debug)]
struct At {
    node: usize,
    boot: u32,
    life: Incarnation,
}

enum What {
    Timer(At, Timer),
    Beat {
        to: usize,
        beat: Beat,
    },
    /// A frame of a session arrives.
    Frame(Frame),
    /// A session tries again.
    Knock {
        from: At,
        to: usize,
        half: u32,
    },
    /// A question arrives at the server.
    Question {
        at: At,
        number: u64,
        question: Question,
    },
    /// The server answers, unless it has lost power meanwhile.
    Says {
        at: At,
        number: u64,
        answered: Answered,
        server: u32,
    },
    Answer {
        at: At,
        number: u64,
        answered: Answered,
    },
    /// Nobody listens where a life of a node was.
    Refused {
        at: At,
        node: NodeId,
        life: Incarnation,
    },
    Executor {
        node: usize,
        boot: u32,
        run: u64,
    },
    Staged {
        at: At,
        key: Key,
        spec: Rc<TaskSpec>,
        pieces: Pieces,
        until: Duration,
    },
    Read {
        at: At,
        object: ObjectId,
        parts: Parts,
        from: NodeId,
        answer: AnswerTo,
        until: Duration,
    },
    Fault(Fault),
    Start(usize),
    Thaw(usize),
    Join {
        node: usize,
        out: bool,
        back: bool,
    },
    JoinPeers {
        from: usize,
        to: usize,
        both: bool,
    },
    StartServer,
    Heal,
    Client,
}

type AnswerTo = oneshot::Sender<Result<Block, JobError>>;

struct Scheduled {
    at: Duration,
    number: u64,
    what: What,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(super) struct World {
    now: Duration,
    events: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    nodes: Vec<Node>,
    /// Pairs of nodes of which the first cannot fetch from the second; how often it was cut.
    no_fetch: BTreeMap<(usize, usize), u32>,
    sessions: BTreeMap<(usize, usize), Session>,
    server: Server,
    common: Common,
    plan: Plan,
    healed: bool,
    dice: Dice,
    pub(super) oracle: Oracle,
    slots: u64,
    runs: u64,
    /// The client's question.
    asked: Option<u64>,
    faults: u64,
    pub(super) trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64, store: exobus_store::Store, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let job = Job::draw(&mut dice);
        let clock = Arc::new(VirtualClock::default());
        let node = |(index, slots): (usize, &usize)| Node {
            name: NodeId::new(&format!("n{index}")),
            slots: *slots,
            process: None,
            boot: 0,
            frozen: false,
            backlog: VecDeque::new(),
            disk: Store::default(),
            election_at: Duration::ZERO,
            cut_out: false,
            cut_in: false,
        };
        let nodes = plan.nodes.iter().enumerate().map(node).collect();
        let mut world = Self {
            now: Duration::ZERO,
            events: 0,
            queue: BinaryHeap::new(),
            nodes,
            no_fetch: BTreeMap::new(),
            sessions: BTreeMap::new(),
            server: Server::new(),
            common: Common { job: JOB, plan: job, clock, store },
            plan,
            healed: false,
            dice,
            oracle: Oracle::default(),
            slots: 0,
            runs: 0,
            asked: None,
            faults: 0,
            trace: traced.then(Vec::new),
        };
        let (plan, job) = (world.plan.clone(), world.common.plan.clone());
        world.note(None, || format!("{plan:?}"));
        world.note(None, || format!("{job:?}"));
        for index in 0..world.nodes.len() {
            let at = world.dice.millis(0..200);
            world.at(at, What::Start(index));
        }
        for (at, fault) in world.plan.faults.clone() {
            world.at(at, What::Fault(fault));
        }
        world.at(world.plan.heals, What::Heal);
        world.at(Duration::from_millis(250), What::Client);
        world
    }

    /// Runs to the end, or to the first finding.
    pub(super) fn run(&mut self) {
        let mut ended = None;
        let deadline = self.plan.heals + LIVES_FOR;
        while let Some(Reverse(next)) = self.queue.pop() {
            self.now = next.at;
            self.common.clock.set(self.now);
            if ended.is_none() && self.server.end(self.now).is_some() && self.healed {
                ended = Some(self.now);
                self.note(None, || "the job is over, and everything is well".to_owned());
            }
            let over = ended.is_some_and(|at| self.now >= at + SETTLES_IN);
            if over || self.oracle.finding.is_some() {
                break;
            }
            if ended.is_none() && self.now > deadline {
                self.oracle.found(|| format!("the job is not over {LIVES_FOR:?} after everything was mended"));
                break;
            }
            self.handle(next.what);
            self.one_scheduler_acts();
        }
        if self.oracle.finding.is_none() {
            self.judge();
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Events that were handled.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    fn at(&mut self, at: Duration, what: What) {
        self.events += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.events, what }));
    }

    fn after(&mut self, delay: Duration, what: What) {
        self.at(self.now + delay, what);
    }

    fn note(&mut self, node: Option<usize>, text: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let who = node.map_or("-", |node| self.nodes[node].name.as_str()).to_owned();
            let line = format!("{:>10.6} {who:<3} {}", self.now.as_secs_f64(), text());
            self.trace.get_or_insert_default().push(line);
        }
    }

    fn place(&self, node: usize) -> Option<At> {
        let Node { process, boot, .. } = &self.nodes[node];
        process.as_ref().map(|process| At { node, boot: *boot, life: process.life.incarnation })
    }

    /// Whether the process is the one that was meant, in the life that was.
    fn is_now(&self, at: At) -> bool {
        self.place(at.node).is_some_and(|now| now.boot == at.boot && now.life == at.life)
    }

    /// Whether something is meant for a node that is frozen: it waits then.
    fn frozen(&self, what: &What) -> Option<usize> {
        let node = match what {
            What::Timer(at, _)
            | What::Answer { at, .. }
            | What::Refused { at, .. }
            | What::Staged { at, .. }
            | What::Read { at, .. } => at.node,
            What::Knock { from, .. } => from.node,
            What::Beat { to, .. } => *to,
            What::Executor { node, .. } => *node,
            _ => return None,
        };
        self.nodes[node].frozen.then_some(node)
    }

    fn handle(&mut self, what: What) {
        if let Some(node) = self.frozen(&what) {
            return self.nodes[node].backlog.push_back(what);
        }
        match what {
            What::Timer(at, timer) if self.is_now(at) => {
                if timer != Timer::Election || self.nodes[at.node].election_at == self.now {
                    self.with(at.node, |process, around, done| process.timer(timer, around, done));
                }
            }
            What::Timer(..) => {}
            What::Beat { to, beat } => {
                if self.nodes[to].process.is_some() && !self.nodes[to].cut_in && self.server.up {
                    self.with(to, |process, around, done| process.beat(beat, around, done));
                }
            }
            What::Frame(frame) => self.frame(frame),
            What::Knock { from, to, half } => self.landed(from, to, half),
            What::Question { at, number, question } => {
                if self.server.up {
                    let (answered, when) = self.server.ask(self.now, question, &mut self.dice);
                    self.at(when, What::Says { at, number, answered, server: self.server.boot });
                }
            }
            What::Says { at, number, answered, server } => {
                if self.server.up && self.server.boot == server && !self.nodes[at.node].cut_in && !self.lost() {
                    let delay = self.delay();
                    self.after(delay, What::Answer { at, number, answered });
                }
            }
            What::Answer { at, number, answered } if self.is_now(at) => {
                self.with(at.node, |process, around, done| process.asked(number, answered, around, done));
            }
            What::Answer { .. } => {}
            What::Refused { at, node, life } => {
                if self.is_now(at) {
                    self.with(at.node, |process, around, done| process.refused(node, life, around, done));
                }
            }
            What::Executor { node, boot, run } => {
                if self.nodes[node].boot == boot && self.nodes[node].process.is_some() {
                    self.execute(node, run);
                }
            }
            What::Staged { at, key, spec, pieces, until } => {
                if self.is_now(at) {
                    self.stage(at, key, spec, pieces, until);
                }
            }
            What::Read { at, object, parts, from, answer, until } => {
                if self.is_now(at) {
                    self.read(at, (object, parts, from), answer, until);
                }
            }
            What::Fault(fault) => self.fault(fault),
            What::Start(node) => self.start(node),
            What::Thaw(node) => self.thaw(node),
            What::Join { node, out, back } => {
                self.note(Some(node), || "is joined with the bus again".to_owned());
                let node = &mut self.nodes[node];
                node.cut_out &= !out;
                node.cut_in &= !back;
            }
            What::JoinPeers { from, to, both } => {
                self.join_peers(from, to);
                if both {
                    self.join_peers(to, from);
                }
            }
            What::StartServer => {
                if !self.server.up {
                    self.note(None, || "the server is back".to_owned());
                    self.server.start();
                }
            }
            What::Heal => self.heal(),
            What::Client => self.client(),
        }
    }

    /// Lets a process handle something, and does what it wants.
    fn with(&mut self, node: usize, handle: impl FnOnce(&mut Process, &mut Around<'_>, &mut Done)) {
        let Some(mut process) = self.nodes[node].process.take() else { return };
        let (mut done, traced) = (Done::default(), self.trace.is_some());
        let name = self.nodes[node].name.clone();
        let mut around = Around {
            now: self.now,
            name: &name,
            common: &self.common,
            oracle: &mut self.oracle,
            dice: &mut self.dice,
            slots: &mut self.slots,
            sessions: &mut self.sessions,
            traced,
        };
        handle(&mut process, &mut around, &mut done);
        self.nodes[node].process = Some(process);
        self.perform(node, done);
    }

    fn perform(&mut self, node: usize, done: Done) {
        let Done { acts, beats, probes, renew, impostor } = done;
        for act in acts {
            self.act(node, act);
        }
        for (other, life) in probes {
            let to = number_of(&other);
            if let Some(at) = self.place(node)
                && self.nodes[to].process.is_none()
                && !self.no_fetch.contains_key(&(node, to))
            {
                let delay = self.delay();
                self.after(delay, What::Refused { at, node: other, life });
            }
        }
        for beat in beats {
            self.publish(node, &beat);
        }
        if impostor {
            self.oracle.found(|| format!("n{node} hears of another process of its name"));
        }
        if renew.is_some() {
            // Its sessions end with the life.
            self.sessions.retain(|(from, _), _| *from != node);
            self.with(node, |process, around, done| process.renew(around, done));
        }
        self.run_executors(node);
    }

    fn act(&mut self, node: usize, act: Act) {
        let Some(at) = self.place(node) else { return };
        match act {
            Act::Send(to, message) => {
                let to = number_of(&to);
                self.sessions.entry((node, to)).or_default().queue.push_back(message);
                self.send(node, to);
            }
            Act::After(delay, timer) => {
                if timer == Timer::Election {
                    self.nodes[node].election_at = self.now + delay;
                }
                self.after(delay, What::Timer(at, timer));
            }
            Act::Ask(who, question, deadline) => {
                self.slots += 1;
                let number = self.slots;
                if let Some(process) = &mut self.nodes[node].process {
                    process.life.asked.insert(number, who);
                }
                if !self.nodes[node].cut_out && !self.lost() {
                    let delay = self.delay();
                    self.after(delay, What::Question { at, number, question });
                }
                self.after(deadline, What::Timer(at, Timer::Unanswered(number)));
            }
            Act::Stage(key, spec, pieces) => {
                let (delay, until) = (self.dice.millis(1..30), self.now + PATIENCE);
                self.after(delay, What::Staged { at, key, spec, pieces, until });
            }
            Act::Hand(work) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.executors.queue.push_back(work);
                }
            }
            Act::Read { object, parts, node: from, answer } => {
                let (delay, until) = (self.dice.millis(1..30), self.now + PATIENCE);
                self.after(delay, What::Read { at, object, parts, from, answer, until });
            }
            Act::Note(text) => self.note(Some(node), || text),
        }
    }

    /// How long something takes from one process to another.
    fn delay(&mut self) -> Duration {
        if self.dice.chance(20) { self.dice.millis(5..60) } else { self.dice.micros(100..3000) }
    }

    /// Whether something gets lost on the bus.
    fn lost(&mut self) -> bool {
        let drops = if self.healed { 0 } else { self.plan.drops };
        self.dice.chance(drops)
    }

    fn publish(&mut self, from: usize, beat: &Beat) {
        if self.nodes[from].cut_out || !self.server.up {
            return;
        }
        for to in 0..self.nodes.len() {
            if !self.lost() {
                let delay = self.delay();
                self.after(delay, What::Beat { to, beat: beat.clone() });
            }
        }
    }

    /// Puts what waits for a node into a frame, if none is on its way.
    fn send(&mut self, from: usize, to: usize) {
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

    fn frame(&mut self, frame: Frame) {
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
            if from.life < theirs.seen {
                // Of a life that is over.
                return;
            }
            let reset = theirs.meets(from.life);
            theirs.bound = Some(from.life);
            if reset {
                self.session_reset(to, from.node, from.life);
            }
            let lives = self.is_now(from);
            let ours = self.sessions.entry((from.node, to)).or_default();
            if frame.bound.is_some_and(|bound| bound != receiver.life) {
                // Meant for a life that is over. The sender learns that, if it can.
                if !back {
                    return self.again(frame);
                }
                if lives && ours.meets(receiver.life) {
                    let lost = frame.messages.len();
                    self.note(Some(from.node), || format!("session with n{to} is reset, {lost} lost"));
                    self.session_reset(from.node, to, receiver.life);
                }
                return;
            }
            if lives && ours.half == frame.half {
                ours.meets(receiver.life);
                ours.bound = Some(receiver.life);
            }
        }
        let sender = self.nodes[from.node].name.clone();
        let half = frame.half;
        for message in frame.messages {
            // One of them may begin another life, or end the process.
            if !self.is_now(receiver) {
                break;
            }
            self.with(to, |process, around, done| {
                if local || !process.life.membership.is_over(&sender, from.life) {
                    process.deliver(message, around, done);
                }
            });
        }
        self.landed(from, to, half);
    }

    /// A session was made anew, with this life of the other node: who runs a job is told.
    fn session_reset(&mut self, node: usize, other: usize, life: Incarnation) {
        let message = OwnerMsg::SessionReset { node: self.nodes[other].name.clone(), incarnation: life };
        self.with(node, |process, around, done| process.deliver(Message::Owner(message), around, done));
    }

    /// A frame is not on its way any more: the next one may be.
    fn landed(&mut self, from: At, to: usize, half: u32) {
        if self.is_now(from) {
            let session = self.sessions.entry((from.node, to)).or_default();
            if session.half == half {
                session.flies = false;
                self.send(from.node, to);
            }
        }
    }

    /// A frame did not arrive: it is sent again, as long as its sender lives and the session lasts.
    fn again(&mut self, frame: Frame) {
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

    /// Whether one node can fetch from another, and whether it would know at once that it cannot.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let other = &self.nodes[to];
        other.process.is_some() && !other.frozen && !self.no_fetch.contains_key(&(from, to))
    }

    fn stage(&mut self, at: At, key: Key, spec: Rc<TaskSpec>, pieces: Pieces, until: Duration) {
        let (mut reads, mut gone, mut silent, mut released) =
            (Reads::new(), Vec::new(), Vec::new(), None::<(ObjectId, NodeId)>);
        for arg in &pieces {
            let mut read = Vec::new();
            for piece in arg {
                let Some(holder) = &piece.at else {
                    read.push((piece.object, self.oracle.truth.nothing(piece.object, piece.parts)));
                    continue;
                };
                let lost = |loss| LostObject { object: piece.object, node: holder.clone(), loss };
                let index = number_of(holder);
                if index != at.node && !self.reaches(at.node, index) {
                    silent.push(lost(Loss::Unreachable));
                    continue;
                }
                let process = self.nodes[index].process.as_ref().expect("it can be reached");
                match process.store.find(piece.object, piece.parts) {
                    Found::Here(parts) => read.push((piece.object, parts)),
                    Found::Absent => gone.push(lost(Loss::Gone)),
                    Found::Released => released = Some((piece.object, holder.clone())),
                }
            }
            reads.push(read);
        }
        let outcome = if !gone.is_empty() {
            Err(TaskFailure::argument_lost("gone", gone))
        } else if let Some((object, holder)) = released {
            self.note(Some(at.node), || format!("parts of {object} are released on {holder}, which it wants"));
            Err(TaskFailure::new(FailureKind::Error, "parts that it reads are released"))
        } else if let Some(first) = silent.first() {
            let membership = &self.nodes[at.node].process.as_ref().expect("it is now").life.membership;
            let dead = membership.health(&first.node).is_some_and(|health| health.is_gone());
            if !dead && self.now < until {
                let pause = self.dice.millis(50..500);
                return self.after(pause, What::Staged { at, key, spec, pieces, until });
            }
            silent.truncate(1);
            Err(TaskFailure::argument_lost("unreachable", silent))
        } else if !self.healed && self.plan.failures > 0 && self.dice.chance(self.plan.failures) {
            Err(TaskFailure::new(FailureKind::Denied, "no memory"))
        } else {
            Ok(reads)
        };
        if let Err(failure) = &outcome {
            self.note(Some(at.node), || format!("{:.8} #{} not staged: {failure}", key.1, key.2));
        }
        self.with(at.node, |process, around, done| process.staged(key, outcome, around, done));
    }

    fn read(&mut self, at: At, (object, parts, from): (ObjectId, Parts, NodeId), answer: AnswerTo, until: Duration) {
        let index = number_of(&from);
        let found = match self.reaches(at.node, index) {
            true => self.nodes[index].process.as_ref().map(|process| process.store.find(object, parts)),
            false => None,
        };
        match found {
            Some(Found::Here(read)) => {
                self.oracle.given(object, parts, &read);
                let _ = answer.send(Ok(Block::empty()));
                // Who waits for the answer is on that node.
                self.with(at.node, |process, around, done| process.go_on(around, done));
            }
            None if self.now < until => {
                let pause = self.dice.millis(50..500);
                self.after(pause, What::Read { at, object, parts, from, answer, until });
            }
            Some(Found::Released | Found::Absent) | None => {
                let message = Message::Owner(OwnerMsg::Unreadable { object, parts, node: from, answer });
                self.with(at.node, |process, around, done| process.deliver(message, around, done));
            }
        }
    }

    /// Idle executors take what is handed out.
    fn run_executors(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        loop {
            let Some(process) = self.nodes[node].process.as_mut().filter(|process| !process.fenced) else { return };
            if process.executors.running.len() >= process.slots {
                return;
            }
            let Some(work) = process.executors.queue.pop_front() else { return };
            if !work.flags.start(self.now) {
                continue;
            }
            self.runs += 1;
            let run = self.runs;
            let fails = !self.healed && self.dice.chance(self.plan.failures);
            self.oracle.work.failed += u64::from(fails);
            let task = work.key.1;
            process.executors.running.insert(run, Running { work, begun: self.now, sealed: 0, fails });
            self.oracle.begun(task);
            let slow = !self.healed && self.dice.chance(self.plan.stragglers);
            self.oracle.work.slow += u64::from(slow);
            let takes = if slow { self.dice.millis(3000..15_000) } else { self.dice.millis(1..self.plan.task_ms) };
            self.after(takes, What::Executor { node, boot, run });
        }
    }

    /// An executor has come to an output of a stream, or to the end.
    fn execute(&mut self, node: usize, run: u64) {
        let boot = self.nodes[node].boot;
        let process = self.nodes[node].process.as_mut().expect("looked before");
        let Some(mut running) = process.executors.running.remove(&run) else { return };
        let (job, task, attempt) = running.work.key;
        let spec = running.work.spec.clone();
        let (params, life) = (params_of(&spec), running.work.life);
        let mut digest = Digest::new();
        for (object, parts) in running.work.reads.iter().flatten() {
            digest.read(*object, parts);
        }
        let digest = digest.finish();
        let make = |index: u32| params.make(task.output(index), digest);
        let cancelled = running.work.flags.is_cancelled();
        let report =
            if spec.returns == Returns::Stream && running.sealed < params.stream && !cancelled && !running.fails {
                let index = running.sealed;
                running.sealed += 1;
                let made = make(index);
                let output = sum(&made);
                self.seal(node, task.output(index), &made);
                let process = self.nodes[node].process.as_mut().expect("looked before");
                process.executors.running.insert(run, running);
                let takes = self.dice.millis(1..self.plan.task_ms);
                self.after(takes, What::Executor { node, boot, run });
                Report::Yielded { job, task, attempt, index, output }
            } else {
                let micros = (self.now - running.begun).as_micros() as u64;
                let figures = TaskFigures { micros, ..TaskFigures::default() };
                let stops = cancelled && self.dice.chance(500);
                let outcome = if stops || running.fails {
                    let kind = if stops { FailureKind::Cancelled } else { FailureKind::Error };
                    // Some outputs may be complete by then.
                    if let Returns::Many(outputs) = spec.returns {
                        (1..outputs).for_each(|index| self.seal(node, task.output(index), &make(index)));
                    }
                    Err(TaskFailure::new(kind, "it did not end well"))
                } else {
                    let outputs: Vec<Made> = (0..params.outputs(spec.returns)).map(make).collect();
                    for (index, made) in (0..).zip(&outputs) {
                        self.oracle.made(task, index, made);
                        self.seal(node, task.output(index), made);
                    }
                    self.oracle.work.completed += 1;
                    let read = |(arg, pieces): (usize, &Vec<(ObjectId, Made)>)| {
                        let parts: Made = pieces.iter().flat_map(|(_, parts)| parts.iter().copied()).collect();
                        Consumed { arg: arg as u32, read: sum(&parts) }
                    };
                    let consumed = running.work.reads.iter().enumerate().map(read).collect();
                    Ok((outputs.iter().map(|made| sum(made)).collect(), consumed))
                };
                let how = if outcome.is_ok() { "is done" } else { "did not end well" };
                self.note(Some(node), || format!("{} {task:.8} #{attempt} {how}", spec.function));
                Report::Finished { job, task, attempt, outcome, figures, value: None }
            };
        // A NodeManager that is gone needs no reports.
        if self.place(node).is_some_and(|now| now.life == life) {
            let message = Message::Node(NodeMsg::Executor(report));
            self.with(node, |process, around, done| process.deliver(message, around, done));
        }
        self.run_executors(node);
    }

    fn seal(&mut self, node: usize, object: ObjectId, made: &Made) {
        // What has no bytes is nowhere.
        if sum(made).bytes == 0 {
            return;
        }
        if let Some(process) = &mut self.nodes[node].process
            && !process.store.seal(object, made)
        {
            self.oracle.found(|| format!("n{node} has another object of the name {object}"));
        }
    }

    fn target(&self, target: Target) -> Option<usize> {
        match target {
            Target::Node(node) => Some(node),
            Target::Host => self.processes().find(|(_, process)| process.hosts()).map(|(node, _)| node),
            Target::Scheduler => {
                let reigns = |process: &Process| process.life.scheduler.acts(self.now).is_some();
                self.processes().find(|(_, process)| reigns(process)).map(|(node, _)| node)
            }
        }
    }

    fn processes(&self) -> impl Iterator<Item = (usize, &Process)> {
        self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.process.as_ref()?)))
    }

    fn fault(&mut self, fault: Fault) {
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
    fn crash(&mut self, node: usize, keeps: u64) {
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

    fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        self.nodes[node].boot += 1;
        let store = std::mem::take(&mut self.nodes[node].disk);
        let (mut done, traced, slots) = (Done::default(), self.trace.is_some(), self.nodes[node].slots);
        let name = self.nodes[node].name.clone();
        let mut around = Around {
            now: self.now,
            name: &name,
            common: &self.common,
            oracle: &mut self.oracle,
            dice: &mut self.dice,
            slots: &mut self.slots,
            sessions: &mut self.sessions,
            traced,
        };
        let process = Process::start(slots, store, &mut around, &mut done);
        self.nodes[node].process = Some(process);
        self.note(Some(node), || "starts".to_owned());
        self.perform(node, done);
    }

    fn thaw(&mut self, node: usize) {
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

    fn join_peers(&mut self, from: usize, to: usize) {
        if let Some(cuts) = self.no_fetch.get_mut(&(from, to)) {
            *cuts -= 1;
            if *cuts == 0 {
                self.no_fetch.remove(&(from, to));
            }
        }
    }

    /// Everything is mended, and nothing goes wrong any more.
    fn heal(&mut self) {
        self.note(None, || "everything is mended".to_owned());
        self.healed = true;
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

    /// The client asks for a host until its job is there, and on where it stays.
    fn client(&mut self) {
        let over = self.server.end(self.now).is_some();
        if over || (!self.plan.client_stays && self.server.knows()) {
            return;
        }
        // Its question is answered soon, or never.
        let soon = if self.asked.is_none() { Duration::from_millis(100) } else { CLIENT_ASKS_EVERY };
        self.after(soon, What::Client);
        if let Some(answer) = self.asked.take().and_then(|asked| self.oracle.answers.remove(&asked)) {
            let Ok(placement) = answer else { return };
            let node = number_of(&placement.node);
            if self.nodes[node].process.is_some() && !self.nodes[node].frozen && !self.nodes[node].cut_in {
                let spec = JobSpec {
                    job: JOB,
                    tenant: "sim".into(),
                    program: PROGRAM.to_owned(),
                    params: bytes::Bytes::new(),
                    sample_ms: 0,
                };
                let message = Message::Host(HostMsg::Start { spec, client: NodeId::new("client") });
                self.with(node, |process, around, done| process.deliver(message, around, done));
            }
            return;
        }
        let Some(node) = self.target(Target::Scheduler).filter(|node| !self.nodes[*node].frozen) else { return };
        self.slots += 1;
        self.asked = Some(self.slots);
        let reply = Reply::to(NodeId::new("client"), self.slots);
        let message =
            SchedulerMsg::SubmitJob { job: JOB, tenant: "sim".into(), functions: vec![PROGRAM.into()], reply };
        self.with(node, |process, around, done| process.deliver(Message::Scheduler(message), around, done));
    }

    /// Never do two Schedulers act at a time.
    fn one_scheduler_acts(&mut self) {
        let acts = |(node, process): (usize, &Process)| {
            (!self.nodes[node].frozen).then_some(process.life.scheduler.acts(self.now)).flatten()
        };
        if self.processes().filter_map(acts).count() > 1 {
            self.oracle.found(|| "two schedulers act at a time".to_owned());
        }
    }

    /// What must be so when the job is over and everybody had time.
    fn judge(&mut self) {
        match self.server.end(self.now) {
            None => self.oracle.found(|| "nothing happens any more, and the job is not over".to_owned()),
            Some(Err(error)) => {
                let error = error.to_string();
                self.oracle.found(|| format!("the job failed: {error}"));
            }
            Some(Ok(value)) => {
                if !self.oracle.truth.is_result(value) {
                    self.oracle.found(|| "the job ended with a wrong result".to_owned());
                }
            }
        }
        let mut left = Vec::new();
        for (node, process) in self.processes() {
            if process.store.len() > 0 {
                left.push(format!("n{node} has {} objects", process.store.len()));
            }
            if !process.life.manager.is_idle() || !process.executors.running.is_empty() {
                left.push(format!("n{node} has attempts, or sets"));
            }
            if process.hosts() {
                left.push(format!("n{node} hosts it"));
            }
            if let Some(state) = process.life.scheduler.state(self.now)
                && let Some(job) = state.jobs().iter().find(|job| job.slots > 0)
            {
                // That there is a job of which nothing is heard any more it forgets in its own time.
                left.push(format!("the scheduler on n{node} lends it {} slots", job.slots));
            }
        }
        if !left.is_empty() {
            self.oracle.found(|| format!("the job is over, and {}", left.join(", ")));
        }
        // A word that is lost may let a new Scheduler think that nobody works on the job: another node takes it up.
        self.oracle.work_is_bounded(self.faults + u64::from(self.plan.drops > 0));
    }
}
