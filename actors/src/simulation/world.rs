//! The world: an event queue with virtual time, processes of nodes, the bus between them, and what goes wrong.

mod faults;
mod sessions;
mod work;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::sessions::Frame;
pub(super) use self::sessions::Session;
use super::acts::{Act, Message, Timer};
use super::chaos::{Fault, Plan, Target};
use super::dice::{Dice, VirtualClock};
use super::job::Job;
use super::node::{Around, Common, Done, Process, number_of};
use super::oracle::Oracle;
use super::program::PROGRAM;
use super::server::{Answered, Question, Server};
use super::store::Store;
use crate::protocol::host::HostMsg;
use crate::protocol::job::{Bodies, BodiesAt, JobRecord};
use crate::protocol::membership::Beat;
use crate::protocol::scheduler::SchedulerMsg;

use crate::ids::{CopyId, Incarnation, JobId, NodeId};

use crate::node_manager::{Arguments, Key};

use crate::shell::Reply;
use crate::task::{Parts, TaskFailure};

pub(super) const JOB: JobId = JobId::from_u128(1);
/// A node is asked again for so long for what is to be fetched.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a job may take once everything is well.
const LIVES_FOR: Duration = Duration::from_secs(120);
/// How long after its end something may be left of it: a Scheduler whose question which jobs are not over was lost asks again after 30 s
/// (`LOOK_DEADLINE`), and tells who has something of one that is over.
const SETTLES_IN: Duration = Duration::from_secs(60);
const CLIENT_ASKS_EVERY: Duration = Duration::from_secs(3);
/// What came later is drawn apart, so that it leaves as it is what was drawn before.
const MORE: u64 = 0x6564_6765_7300_0000;

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

/// Something that happens at a node, in a process of it.
#[derive(Clone, Copy, Debug)]
struct At {
    node: usize,
    boot: u32,
    incarnation: Incarnation,
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
    /// Nobody listens where an incarnation of a node was.
    Refused {
        at: At,
        node: NodeId,
        incarnation: Incarnation,
    },
    Executor {
        node: usize,
        boot: u32,
        run: u64,
    },
    Staged {
        at: At,
        key: Key,
        arguments: Arguments,
        until: Duration,
    },
    NotStaged {
        at: At,
        key: Key,
        failure: TaskFailure,
    },
    Read {
        at: At,
        read: u64,
        copy: CopyId,
        parts: Parts,
        from: NodeId,
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
    /// Until when there is no client.
    client_away: Duration,
    faults: u64,
    pub(super) trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64, store: exobus_store::Store, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let mut more = Dice::new(seed ^ MORE);
        let plan = Plan::draw(&mut dice, &mut more);
        let job = Job::draw(&mut dice, &mut more);
        let clock = Arc::new(VirtualClock::default());
        let full = *Dice::new(!seed).pick(&[0, 0, 0, 20]).expect("some");
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
            common: Common { job: JOB, plan: job, clock, store, full },
            plan,
            healed: false,
            dice,
            oracle: Oracle::default(),
            slots: 0,
            runs: 0,
            asked: None,
            client_away: Duration::ZERO,
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
        process.as_ref().map(|process| At { node, boot: *boot, incarnation: process.actors.incarnation })
    }

    /// Whether the process is the one that was meant, in the incarnation that was.
    fn is_now(&self, at: At) -> bool {
        self.place(at.node).is_some_and(|now| now.boot == at.boot && now.incarnation == at.incarnation)
    }

    /// Whether something is meant for a node that is frozen: it waits then.
    fn frozen(&self, what: &What) -> Option<usize> {
        let node = match what {
            What::Timer(at, _)
            | What::Answer { at, .. }
            | What::Refused { at, .. }
            | What::Staged { at, .. }
            | What::NotStaged { at, .. }
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
            What::Refused { at, node, incarnation } => {
                if self.is_now(at) {
                    self.with(at.node, |process, around, done| process.refused(node, incarnation, around, done));
                }
            }
            What::Executor { node, boot, run } => {
                if self.nodes[node].boot == boot && self.nodes[node].process.is_some() {
                    self.execute(node, run);
                }
            }
            What::Staged { at, key, arguments, until } => {
                if self.is_now(at) {
                    self.stage(at, key, arguments, until);
                }
            }
            What::NotStaged { at, key, failure } => {
                if self.is_now(at) {
                    self.staged(at.node, key, Err(failure));
                }
            }
            What::Read { at, read, copy, parts, from, until } => {
                if self.is_now(at) {
                    self.read(at, read, (copy, parts, from), until);
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
        let ((), done) = self.at_node(node, |around, done| handle(&mut process, around, done));
        self.nodes[node].process = Some(process);
        self.perform(node, done);
    }

    /// Lets a node do something with what is around it; also what it wants done.
    fn at_node<R>(&mut self, node: usize, act: impl FnOnce(&mut Around<'_>, &mut Done) -> R) -> (R, Done) {
        let mut done = Done::default();
        let mut around = Around {
            now: self.now,
            name: &self.nodes[node].name,
            common: &self.common,
            oracle: &mut self.oracle,
            dice: &mut self.dice,
            slots: &mut self.slots,
            sessions: &mut self.sessions,
            traced: self.trace.is_some(),
        };
        let result = act(&mut around, &mut done);
        (result, done)
    }

    fn perform(&mut self, node: usize, done: Done) {
        let Done { acts, beats, probes, renew, impostor } = done;
        for act in acts {
            self.act(node, act);
        }
        for (other, incarnation) in probes {
            let to = number_of(&other);
            if let Some(at) = self.place(node)
                && self.nodes[to].process.is_none()
                && !self.no_fetch.contains_key(&(node, to))
            {
                let delay = self.delay();
                self.after(delay, What::Refused { at, node: other, incarnation });
            }
        }
        for beat in beats {
            self.publish(node, &beat);
        }
        if impostor {
            self.oracle.found(|| format!("n{node} hears of another process of its name"));
        }
        if let Some(renewal) = renew {
            // Its sessions end with the incarnation.
            self.sessions.retain(|(from, _), _| *from != node);
            self.with(node, |process, around, done| process.renew(renewal, around, done));
        }
        self.run_executors(node);
    }

    fn act(&mut self, node: usize, act: Act) {
        let Some(at) = self.place(node) else { return };
        match act {
            Act::Send(to, message) => {
                self.say(node, number_of(&to), message);
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
                    process.actors.asked.insert(number, who);
                }
                if !self.nodes[node].cut_out && !self.lost() {
                    let delay = self.delay();
                    self.after(delay, What::Question { at, number, question });
                }
                self.after(deadline, What::Timer(at, Timer::Unanswered(number)));
            }
            Act::Stage(key, arguments) => {
                let (delay, until) = (self.dice.millis(1..30), self.now + PATIENCE);
                self.after(delay, What::Staged { at, key, arguments, until });
            }
            Act::CannotStage(key, failure) => self.after(Duration::ZERO, What::NotStaged { at, key, failure }),
            Act::Hand(work) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.executors.queue.push_back(work);
                }
            }
            Act::Read { read, copy, parts, node: from } => {
                let (delay, until) = (self.dice.millis(1..30), self.now + PATIENCE);
                self.after(delay, What::Read { at, read, copy, parts, from, until });
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

    fn processes(&self) -> impl Iterator<Item = (usize, &Process)> {
        self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.process.as_ref()?)))
    }

    /// The client asks for a host until its job is there, and on where it stays.
    fn client(&mut self) {
        let over = self.server.end(self.now).is_some();
        if over || (!self.plan.client_stays && self.server.knows()) {
            return;
        }
        if self.now < self.client_away {
            return self.at(self.client_away, What::Client);
        }
        // Its question is answered soon, or never.
        let soon = if self.asked.is_none() { Duration::from_millis(100) } else { CLIENT_ASKS_EVERY };
        self.after(soon, What::Client);
        if let Some(answer) = self.asked.take().and_then(|asked| self.oracle.answers.remove(&asked)) {
            let Ok(placement) = answer else { return };
            let node = number_of(&placement.node);
            if self.nodes[node].process.is_some() && !self.nodes[node].frozen && !self.nodes[node].cut_in {
                let record = Box::new(JobRecord::queued(JOB, "sim", PROGRAM, PROGRAM));
                let message = Message::Host(HostMsg::Run { record, bodies: BodiesAt::Here(Bodies::default()) });
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
            (!self.nodes[node].frozen).then_some(process.actors.scheduler.acts(self.now)).flatten()
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
            if !process.actors.manager.is_idle() || !process.executors.running.is_empty() {
                left.push(format!("n{node} has attempts, or sets"));
            }
            if process.hosts() {
                left.push(format!("n{node} hosts it"));
            }
            if let Some(state) = process.actors.scheduler.state(self.now)
                && let Some(job) = state.jobs().iter().find(|job| job.slots > 0)
            {
                // That there is a job of which nothing is heard any more it forgets in its own time.
                left.push(format!("the scheduler on n{node} lends it {} slots", job.slots));
            }
        }
        if !left.is_empty() {
            self.oracle.found(|| format!("the job is over, and {}", left.join(", ")));
        }
        // A word that is lost may let a new Scheduler think that nobody works on the job: another node takes it up. And maps may be made again
        // for who reads what was freed as others had read it.
        let again = [self.plan.drops > 0, self.common.plan.reads_what_was_freed()];
        self.oracle.work_is_bounded(self.faults + again.into_iter().map(u64::from).sum::<u64>());
    }
}
