//! A process of a node: what of it outlives an incarnation, and the actors of the present one. What the cores of Membership and of the campaign want
//! is done in `node/cores.rs`. Mirrors of `host/` and `node/` are here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::acts::{Act, Answer, Cx, Message, Reads, Timer, Who, Work};
use super::dice::{Dice, VirtualClock};
use super::job::Job;
use super::manager::Manager;
use super::oracle::Oracle;
use super::owner::{Owner, Run};
use super::program::{PROGRAM, functions};
use super::scheduler::Scheduler;
use super::server::{Answered, Question};
use super::store::Store;
use super::world::Session;
use crate::election::state::Answer as LeaseAnswer;
use crate::election::{CampaignCore, CampaignEvent};
use crate::host::{CLOSE_AGAIN, CLOSES_MAX, JobsOver, NODES_DEADLINE};
use crate::protocol::host::HostMsg;
use crate::protocol::membership::Beat;
use crate::protocol::scheduler::{Leader, NodeSpec, SchedulerMsg};

use crate::ids::{Epoch, Incarnation, JobId, NodeId};
use crate::membership::{MembershipCore, MembershipEvent, MembershipOptions, Renewal, State};
use crate::node::registered::{REGISTER_EVERY, registration};
use crate::node_manager::NodeEvent;
use crate::owner::{JobOutcome, JobResult, OwnerEvent};
use crate::scheduler::SchedulerLink;
use crate::shell::{Post, PostOptions, Reply};
use crate::task::Resources;

const NODES_TRY: Duration = Duration::from_secs(2);
const OPEN_DEADLINE: Duration = Duration::from_secs(5);

/// What is the same for all nodes.
pub(super) struct Common {
    pub(super) job: JobId,
    pub(super) plan: Job,
    pub(super) clock: Arc<VirtualClock>,
    /// The futures API wants one; nothing is put there.
    pub(super) store: exobus_store::Store,
    /// Of a thousand attempts so many cannot be sent.
    pub(super) full: u64,
}

/// Where the job is, on a node that was told to run it.
enum Hosting {
    No,
    /// The log is being opened.
    Opening,
    /// The Scheduler is asked which nodes there are.
    Listing {
        run: Box<Run>,
        slot: u64,
        until: Duration,
    },
    Runs(Box<Owner>),
    /// How the job ended is being written down.
    Closing {
        result: JobResult,
        tries: usize,
    },
}

/// Attempts on the executors: they outlive incarnations.
#[derive(Default)]
pub(super) struct Executors {
    pub(super) queue: VecDeque<Work>,
    pub(super) running: BTreeMap<u64, Running>,
}

pub(super) struct Running {
    pub(super) work: Work,
    pub(super) begun: Duration,
    /// Outputs of a stream that were sealed.
    pub(super) sealed: u32,
    pub(super) fails: bool,
}

/// What of a process outlives an incarnation, and what does not.
pub(super) struct Process {
    pub(super) post: Post,
    pub(super) link: SchedulerLink,
    pub(super) fenced: bool,
    pub(super) store: Store,
    pub(super) executors: Executors,
    pub(super) slots: usize,
    over: JobsOver,
    pub(super) actors: Actors,
}

/// The actors of an incarnation.
pub(super) struct Actors {
    pub(super) incarnation: Incarnation,
    pub(super) membership: MembershipCore,
    pub(super) scheduler: Scheduler,
    campaign: CampaignCore,
    pub(super) manager: Manager,
    hosting: Hosting,
    leaders: watch::Receiver<Option<Leader>>,
    epochs: watch::Receiver<Epoch>,
    pub(super) asked: BTreeMap<u64, Who>,
}

/// What came of handling something.
#[derive(Default)]
pub(super) struct Done {
    pub(super) acts: Vec<Act>,
    pub(super) beats: Vec<Beat>,
    /// Silent incarnations of other nodes, of which it is to be looked whether they are there.
    pub(super) probes: Vec<(NodeId, Incarnation)>,
    /// This incarnation is over.
    pub(super) renew: Option<Renewal>,
    pub(super) impostor: bool,
}

/// What handlers draw from and report to.
pub(super) struct Around<'a> {
    pub(super) now: Duration,
    pub(super) name: &'a NodeId,
    pub(super) common: &'a Common,
    pub(super) oracle: &'a mut Oracle,
    pub(super) dice: &'a mut Dice,
    pub(super) slots: &'a mut u64,
    /// Of all nodes with all others.
    pub(super) sessions: &'a mut BTreeMap<(usize, usize), Session>,
    pub(super) traced: bool,
}

/// The number of a node.
pub(super) fn number_of(name: &NodeId) -> usize {
    name.as_str()[1..].parse().expect("nodes are named by number")
}

macro_rules! cx {
    ($process:expr, $around:expr, $done:expr) => {
        Cx {
            now: $around.now,
            me: $around.name,
            incarnation: $process.actors.incarnation,
            job: $around.common.job,
            link: &$process.link,
            store: &mut $process.store,
            oracle: &mut *$around.oracle,
            dice: &mut *$around.dice,
            full: $around.common.full,
            slots: &mut *$around.slots,
            traced: $around.traced,
            acts: &mut $done.acts,
        }
    };
}

// After the macro, which it uses.
mod cores;

impl Process {
    pub(super) fn start(slots: usize, store: Store, around: &mut Around<'_>, done: &mut Done) -> Self {
        let incarnation = Incarnation(super::dice::BEGIN_MS + around.now.as_millis() as u64);
        let post = Post::new(PostOptions {
            node: around.name.clone(),
            incarnation,
            clock: around.common.clock.clone(),
            on_fatal: Box::new(|_| {}),
        });
        let link = SchedulerLink::new(post.clone());
        let membership = State::new(around.name.clone(), incarnation, MembershipOptions::default(), around.now);
        let mut store = store;
        let actors = Actors::begin(membership, slots, &link, &mut store, around, done);
        let executors = Executors::default();
        let mut process =
            Self { post, link, fenced: false, store, executors, slots, over: JobsOver::default(), actors };
        process.begin(around, done);
        process
    }

    /// What the actors want before any event.
    fn begin(&mut self, around: &mut Around<'_>, done: &mut Done) {
        self.perform_membership(around, done);
        self.wake_campaign(around, done);
    }

    /// This incarnation was declared dead: the next one begins.
    pub(super) fn renew(&mut self, Renewal { state, .. }: Renewal, around: &mut Around<'_>, done: &mut Done) {
        self.actors.manager.end();
        self.actors.hosting = Hosting::No;
        self.post.renew(state.incarnation());
        self.actors = Actors::begin(state, self.slots, &self.link, &mut self.store, around, done);
        self.begin(around, done);
    }

    /// Whether it has anything to do with the job.
    pub(super) fn hosts(&self) -> bool {
        !matches!(self.actors.hosting, Hosting::No)
    }

    fn spec(&self, around: &Around<'_>) -> NodeSpec {
        NodeSpec {
            node: around.name.clone(),
            incarnation: self.actors.incarnation,
            resources: Resources::cpu(self.slots as u64 * 1000),
            labels: BTreeMap::new(),
            functions: functions().into_iter().chain([Arc::from(PROGRAM)]).collect(),
            data_address: String::new(),
            memory_bytes: 0,
        }
    }

    /// A message has come, of this node or another one.
    pub(super) fn deliver(&mut self, message: Message, around: &mut Around<'_>, done: &mut Done) {
        match message {
            Message::Node(message) => {
                let mut cx = cx!(self, around, done);
                self.actors.manager.handle(message.into(), &mut cx);
            }
            Message::Owner(message) => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.handle(message.into(), &mut cx!(self, around, done));
                }
            }
            Message::Scheduler(message) => {
                let mut cx = cx!(self, around, done);
                self.actors.scheduler.handle(message.into(), &mut cx);
            }
            Message::Host(HostMsg::Run { .. }) => self.host(true, around, done),
            Message::Host(HostMsg::Resume { .. }) => self.host(false, around, done),
            Message::Host(_) => {}
            Message::Answer { slot, answer } => self.answered(slot, answer, around, done),
        }
        self.settle(around, done);
    }

    /// Something happens to the Owner that only its own process can say.
    pub(super) fn owner_event(&mut self, event: OwnerEvent, around: &mut Around<'_>, done: &mut Done) {
        self.tell_owner(event, around, done);
        self.settle(around, done);
    }

    /// Runs the job, unless it does already.
    fn host(&mut self, accept: bool, around: &mut Around<'_>, done: &mut Done) {
        if !self.hosts() {
            self.actors.hosting = Hosting::Opening;
            let (node, incarnation) = (around.name.clone(), self.actors.incarnation);
            let question = Question::Open { node, incarnation, accept };
            cx!(self, around, done).ask(Who::Open, question, OPEN_DEADLINE);
        }
    }

    fn answered(&mut self, slot: u64, answer: Answer, around: &mut Around<'_>, done: &mut Done) {
        match answer {
            Answer::Nodes(nodes) => match std::mem::replace(&mut self.actors.hosting, Hosting::No) {
                Hosting::Listing { run, slot: asked, .. } if asked == slot => {
                    around.oracle.work.runs += 1;
                    let job = (around.common.job, around.common.plan.clone());
                    let (post, store) = (self.post.clone(), around.common.store.clone());
                    let owner = Owner::new(job, *run, &post, nodes, store, &mut cx!(self, around, done));
                    self.actors.hosting = Hosting::Runs(Box::new(owner));
                }
                mut other => {
                    if let Hosting::Runs(owner) = &mut other {
                        owner.listed(slot, nodes, &mut cx!(self, around, done));
                    }
                    self.actors.hosting = other;
                }
            },
            Answer::Doing(states) => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.does(slot, states, &mut cx!(self, around, done));
                }
            }
        }
    }

    /// The Scheduler is asked which nodes there are, again and again until it is too late.
    fn list(&mut self, around: &mut Around<'_>, done: &mut Done) {
        let mut cx = cx!(self, around, done);
        let Hosting::Listing { slot, until, .. } = &mut self.actors.hosting else { return };
        if cx.now >= *until {
            cx.note(|| "no scheduler says which nodes there are: the job is not taken up".to_owned());
            self.actors.hosting = Hosting::No;
            return;
        }
        *slot = cx.slot();
        let reply = Reply::to(cx.me.clone(), *slot);
        cx.tell_scheduler(SchedulerMsg::ListNodes { reply });
        cx.after(NODES_TRY, Timer::ListAgain);
    }

    /// The server has answered, or its time is over.
    pub(super) fn asked(&mut self, number: u64, answered: Answered, around: &mut Around<'_>, done: &mut Done) {
        let Some(who) = self.actors.asked.remove(&number) else { return };
        match who {
            Who::Election => {
                let event = match answered {
                    Answered::Written(revision) => CampaignEvent::Answered(LeaseAnswer::Written(revision)),
                    Answered::Refused => CampaignEvent::Answered(LeaseAnswer::Refused),
                    Answered::Lease(found) => {
                        CampaignEvent::Found(found.map(|(says, revision)| (says.into_bytes(), revision)))
                    }
                    _ => CampaignEvent::Answered(LeaseAnswer::Lost),
                };
                self.campaign(event, around, done);
            }
            Who::Look => {
                let mut cx = cx!(self, around, done);
                self.actors.scheduler.looked(&answered, &mut cx);
            }
            Who::Open => {
                if matches!(self.actors.hosting, Hosting::Opening) {
                    self.actors.hosting = match answered {
                        Answered::Runs(run) => Hosting::Listing { run, slot: 0, until: around.now + NODES_DEADLINE },
                        Answered::Over => {
                            self.over.add(around.common.job);
                            cx!(self, around, done).tell_scheduler(SchedulerMsg::JobDone { job: around.common.job });
                            Hosting::No
                        }
                        _ => Hosting::No,
                    };
                    self.list(around, done);
                }
            }
            Who::Log => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.wrote(answered, &mut cx!(self, around, done));
                }
            }
            Who::LogLook => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.looked(&answered, &mut cx!(self, around, done));
                }
            }
            Who::Close => match answered {
                Answered::Closed => self.actors.hosting = Hosting::No,
                _ => cx!(self, around, done).after(CLOSE_AGAIN, Timer::CloseAgain),
            },
        }
        self.settle(around, done);
    }

    fn close(&mut self, around: &mut Around<'_>, done: &mut Done) {
        if let Hosting::Closing { result, tries } = &mut self.actors.hosting {
            *tries += 1;
            if *tries > CLOSES_MAX {
                self.actors.hosting = Hosting::No;
                return;
            }
            let end = result.clone().map(Bytes::from);
            cx!(self, around, done).ask(Who::Close, Question::Close(end), OPEN_DEADLINE);
        }
    }

    /// A moment has come.
    pub(super) fn timer(&mut self, timer: Timer, around: &mut Around<'_>, done: &mut Done) {
        match timer {
            Timer::Membership(event) => self.membership(event, around, done),
            Timer::Election => self.campaign(CampaignEvent::Tick, around, done),
            Timer::Scheduler(event) => {
                let mut cx = cx!(self, around, done);
                self.actors.scheduler.handle(event, &mut cx);
            }
            Timer::Register => {
                self.register(false, around, done);
                cx!(self, around, done).after(REGISTER_EVERY, Timer::Register);
            }
            Timer::Manager(timer) => {
                let mut cx = cx!(self, around, done);
                self.actors.manager.handle(NodeEvent::Timer(timer), &mut cx);
            }
            Timer::ManagerIsFree => {
                let mut cx = cx!(self, around, done);
                self.actors.manager.catch_up(&mut cx);
            }
            Timer::Owner(timer) => self.tell_owner(OwnerEvent::Timer(timer), around, done),
            Timer::OwnerIsFree => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.catch_up(&mut cx!(self, around, done));
                }
            }
            Timer::LogAgain => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.write_again(&mut cx!(self, around, done));
                }
            }
            Timer::LookAtLog => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.look_at_times(&mut cx!(self, around, done));
                }
            }
            Timer::OwnerAsked(slot) => {
                if let Hosting::Runs(owner) = &mut self.actors.hosting {
                    owner.had_time(slot, &mut cx!(self, around, done));
                }
            }
            Timer::ListAgain => self.list(around, done),
            Timer::CloseAgain => self.close(around, done),
            Timer::Unanswered(number) => return self.asked(number, Answered::Lost, around, done),
        }
        self.settle(around, done);
    }

    /// Something happens to the NodeManager that only its own process can say.
    pub(super) fn manager_event(&mut self, event: NodeEvent<Reads>, around: &mut Around<'_>, done: &mut Done) {
        let mut cx = cx!(self, around, done);
        self.actors.manager.handle(event, &mut cx);
        self.settle(around, done);
    }

    fn tell_owner(&mut self, event: OwnerEvent, around: &mut Around<'_>, done: &mut Done) {
        if let Hosting::Runs(owner) = &mut self.actors.hosting {
            owner.handle(event, &mut cx!(self, around, done));
        }
    }

    /// Nobody listens where an incarnation of another node was.
    pub(super) fn refused(&mut self, node: NodeId, incarnation: Incarnation, around: &mut Around<'_>, done: &mut Done) {
        self.membership(MembershipEvent::Refused { node, incarnation }, around, done);
        self.settle(around, done);
    }

    pub(super) fn beat(&mut self, beat: Beat, around: &mut Around<'_>, done: &mut Done) {
        self.membership(MembershipEvent::Beat(beat), around, done);
        self.settle(around, done);
    }

    fn register(&mut self, another: bool, around: &mut Around<'_>, done: &mut Done) {
        let spec = self.spec(around);
        let mut cx = cx!(self, around, done);
        registration(another, &spec, &self.over).into_iter().for_each(|message| cx.tell_scheduler(message));
    }

    /// Another Scheduler is followed, or none.
    fn follow_another(&mut self, known: bool, around: &mut Around<'_>, done: &mut Done) {
        if known {
            self.register(true, around, done);
        }
        self.tell_owner(OwnerEvent::NewEpoch, around, done);
        if known && matches!(self.actors.hosting, Hosting::Listing { .. }) {
            self.list(around, done);
        }
    }

    /// What follows from what was handled: another Scheduler is followed, or a higher epoch was heard of; the Owner has ended.
    fn settle(&mut self, around: &mut Around<'_>, done: &mut Done) {
        loop {
            if self.actors.epochs.has_changed().unwrap_or(false) {
                let epoch = *self.actors.epochs.borrow_and_update();
                self.campaign(CampaignEvent::Heard(epoch), around, done);
            } else if self.actors.leaders.has_changed().unwrap_or(false) {
                let known = self.actors.leaders.borrow_and_update().is_some();
                self.follow_another(known, around, done);
            } else {
                break;
            }
        }
        let Hosting::Runs(owner) = &mut self.actors.hosting else { return };
        match owner.outcome.take() {
            None => {}
            Some(JobOutcome::Over { result, .. }) => {
                cx!(self, around, done).note(|| format!("the job is over: {:?}", result.as_ref().map(Vec::len)));
                self.over.add(around.common.job);
                self.actors.hosting = Hosting::Closing { result, tries: 0 };
                self.close(around, done);
            }
            Some(JobOutcome::Abandoned { reason }) => {
                cx!(self, around, done).note(|| format!("the owner ends, the job does not: {reason}"));
                self.actors.hosting = Hosting::No;
            }
        }
    }
}

impl Actors {
    fn begin(
        membership: State,
        slots: usize,
        link: &SchedulerLink,
        store: &mut Store,
        around: &mut Around<'_>,
        done: &mut Done,
    ) -> Self {
        let incarnation = membership.incarnation();
        let mut cx = Cx {
            now: around.now,
            me: around.name,
            incarnation,
            job: around.common.job,
            link,
            store,
            oracle: &mut *around.oracle,
            dice: &mut *around.dice,
            full: around.common.full,
            slots: &mut *around.slots,
            traced: around.traced,
            acts: &mut done.acts,
        };
        let manager = Manager::begin(slots, &mut cx);
        cx.after(Duration::from_millis(20), Timer::Register);
        Self {
            incarnation,
            membership: MembershipCore::new(membership),
            scheduler: Scheduler::new(around.common.job, &mut cx),
            campaign: CampaignCore::new((around.name, incarnation), "sim", 0, link.epoch(), around.now),
            manager,
            hosting: Hosting::No,
            leaders: link.changes(),
            epochs: link.epochs(),
            asked: BTreeMap::new(),
        }
    }
}
