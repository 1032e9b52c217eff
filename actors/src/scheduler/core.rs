//! What a Scheduler does besides lending ([`State`]): whether it acts, whose questions are open, and when it looks at clock and logs. Events
//! come in with the time; what is to be done comes out as [`SchedulerEffect`]s.

use std::collections::HashMap;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::event::SchedulerEvent;
use super::state::{Effect, Event, SchedulerOptions, State};
use crate::ids::{Epoch, JobId, NodeId};
use crate::protocol::host::HostMsg;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{JobInfo, NodeInfo, Placement, Refusal, SchedulerMsg};
use crate::shell::Reply;

/// Ticks come at least this often while there are jobs.
const TICK_MAX: Duration = Duration::from_secs(1);
const TICK_MIN: Duration = Duration::from_millis(20);
/// How long after it has gathered it is looked which jobs have no host: Owners repeat their demand every second.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// How often that is looked from then on, besides when a host dies.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long the logs may take to answer: enough to go through some ten thousand jobs of a server that answers each call.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);

/// What a Scheduler wants done.
#[derive(Debug)]
pub(crate) enum SchedulerEffect {
    /// Tell the Owner of a job, on this node.
    TellOwner(JobId, NodeId, OwnerMsg),
    /// Tell a NodeManager, about this job.
    TellNode(JobId, NodeId, NodeMsg),
    /// Tell a Host, about this job.
    TellHost(JobId, NodeId, HostMsg),
    /// Answer a submission.
    AnswerPlacement(Reply<Result<Placement, Refusal>>, Result<Placement, Refusal>),
    /// Answer who wants to know which nodes there are.
    AnswerNodes(Reply<Vec<NodeInfo>>, Vec<NodeInfo>),
    /// Answer who wants to know which jobs there are.
    AnswerJobs(Reply<Vec<JobInfo>>, Vec<JobInfo>),
    /// Say this to it later.
    After(Duration, SchedulerEvent),
    /// Look in the logs which jobs are not over. What came of that, no answer by the deadline, too, is [`SchedulerEvent::Unfinished`].
    LookForUnfinished { deadline: Duration },
}

/// The pure core of the actor.
#[derive(Debug)]
pub(crate) struct SchedulerCore {
    options: SchedulerOptions,
    acting: Option<Acting>,
    /// Whether it is looked from time to time which jobs are not over, ...
    looks: bool,
    /// ... and whether that is being done now.
    looking: bool,
    effects: Vec<SchedulerEffect>,
}

/// What there is only while it acts.
#[derive(Debug)]
struct Acting {
    state: State,
    /// When it stops by itself.
    until: Duration,
    asks: HashMap<u64, Reply<Result<Placement, Refusal>>>,
    next_ask: u64,
    /// Who is to be told what there is, as soon as that is known.
    lists: Vec<List>,
    /// What was decided since the last flush; it comes to nothing where it stops acting before.
    decided: Vec<Effect>,
}

/// Who wants to know what there is.
#[derive(Debug)]
enum List {
    Nodes(Reply<Vec<NodeInfo>>),
    /// `true`: all of them, whoever is not listed is not there.
    Jobs(bool, Reply<Vec<JobInfo>>),
}

impl Acting {
    fn on(&mut self, now: Duration, event: SchedulerEvent, effects: &mut Vec<SchedulerEffect>) {
        if let Some(event) = self.event(event) {
            self.state.on(now, event, &mut self.decided);
        }
        self.list(now, effects);
    }

    fn event(&mut self, event: SchedulerEvent) -> Option<Event> {
        match event {
            SchedulerEvent::Wire(message) => self.message(message),
            SchedulerEvent::NodeDown { node, incarnation, reason } => {
                info!(node = %node, reason, "node down");
                Some(Event::NodeDown { node, incarnation })
            }
            SchedulerEvent::Gathered | SchedulerEvent::Tick => Some(Event::Tick),
            SchedulerEvent::Unfinished(jobs) => Some(Event::Unfinished(jobs?)),
            SchedulerEvent::Elected { .. } | SchedulerEvent::StepDown | SchedulerEvent::Look => None,
        }
    }

    fn message(&mut self, message: SchedulerMsg) -> Option<Event> {
        Some(match message {
            SchedulerMsg::NodeUp(spec) => Event::NodeUp(spec),
            SchedulerMsg::SubmitJob { job, tenant, functions, reply } => {
                self.next_ask += 1;
                self.asks.insert(self.next_ask, reply);
                Event::Submit { ask: self.next_ask, job, tenant, functions }
            }
            SchedulerMsg::Demand(demand) => Event::Demand(demand),
            SchedulerMsg::Release { job, lease } => Event::Release { job, lease },
            SchedulerMsg::JobDone { job } => Event::JobDone { job },
            SchedulerMsg::JobsOver { jobs } => Event::JobsOver(jobs),
            SchedulerMsg::ListNodes { reply } => {
                self.lists.push(List::Nodes(reply));
                return None;
            }
            SchedulerMsg::ListJobs { settled, reply } => {
                self.lists.push(List::Jobs(settled, reply));
                return None;
            }
            SchedulerMsg::Holds { node, jobs } => Event::Holds { node, jobs },
        })
    }

    /// Answers who wants to know what there is, if that is known.
    fn list(&mut self, now: Duration, effects: &mut Vec<SchedulerEffect>) {
        if self.state.gathers(now) {
            return;
        }
        for list in std::mem::take(&mut self.lists) {
            match list {
                List::Jobs(true, reply) if !self.state.is_settled(now) => self.lists.push(List::Jobs(true, reply)),
                List::Jobs(_, reply) => effects.push(SchedulerEffect::AnswerJobs(reply, self.state.jobs())),
                List::Nodes(reply) => effects.push(SchedulerEffect::AnswerNodes(reply, self.state.nodes())),
            }
        }
    }
}

impl SchedulerCore {
    /// A Scheduler that acts when it is told to.
    pub(crate) fn new(options: SchedulerOptions) -> Self {
        let effects = vec![SchedulerEffect::After(TICK_MAX, SchedulerEvent::Tick)];
        Self { options, acting: None, looks: false, looking: false, effects }
    }

    /// The epoch that it was told of last, unless it was to step down since.
    #[cfg(feature = "simulation")]
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.acting.as_ref().map(|acting| acting.state.epoch())
    }

    /// What it thinks, while it acts.
    #[cfg(feature = "simulation")]
    pub(crate) fn acting(&self, now: Duration) -> Option<&State> {
        self.acting.as_ref().filter(|acting| now < acting.until).map(|acting| &acting.state)
    }

    /// How many jobs, loans, and jobs of which nothing is heard there are.
    pub(crate) fn living(&self) -> [usize; 3] {
        self.acting.as_ref().map_or([0; 3], |acting| acting.state.living())
    }

    /// What is to be done, in order, since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<SchedulerEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes one event in.
    pub(crate) fn on(&mut self, event: SchedulerEvent, now: Duration) {
        let tick = event == SchedulerEvent::Tick;
        self.looking &= !matches!(event, SchedulerEvent::Unfinished(_));
        match event {
            SchedulerEvent::Elected { epoch, until, succeeds } => self.elected(now, epoch, until, succeeds),
            SchedulerEvent::Look => {
                self.looks = self.acting.is_some();
                if self.looks {
                    self.look();
                    self.after(LOOK_EVERY, SchedulerEvent::Look);
                }
            }
            SchedulerEvent::StepDown => self.acting = None,
            event => match &mut self.acting {
                Some(acting) if now < acting.until => acting.on(now, event, &mut self.effects),
                _ if tick => {}
                // Not, or no longer, the Scheduler: who asked asks again where it is.
                _ => debug!(?event, "no scheduler here"),
            },
        }
        if tick {
            let wakeup = self.acting.as_ref().and_then(|acting| acting.state.next_wakeup());
            let wakeup = wakeup.map_or(TICK_MAX, |at| at.saturating_sub(now));
            self.after(wakeup.clamp(TICK_MIN, TICK_MAX), SchedulerEvent::Tick);
        }
    }

    /// The events that were waiting have been taken in: what was decided is to be done.
    pub(crate) fn flush(&mut self) {
        let Some(acting) = &mut self.acting else { return };
        let epoch = acting.state.epoch();
        for effect in std::mem::take(&mut acting.decided) {
            self.act(epoch, effect);
        }
    }

    fn after(&mut self, delay: Duration, event: SchedulerEvent) {
        self.effects.push(SchedulerEffect::After(delay, event));
    }

    /// Begins to act, or goes on.
    fn elected(&mut self, now: Duration, epoch: Epoch, until: Duration, succeeds: bool) {
        if let Some(acting) = self.acting.as_mut().filter(|acting| acting.state.epoch() == epoch) {
            acting.until = until;
            return;
        }
        let options = self.options;
        let state = if succeeds { State::take_over(epoch, options, now) } else { State::new(epoch, options) };
        let (asks, lists, decided) = (HashMap::new(), Vec::new(), Vec::new());
        self.acting = Some(Acting { state, until, asks, next_ask: 0, lists, decided });
        if succeeds {
            // The next tick may be a second away, and people wait.
            self.after(options.gather, SchedulerEvent::Gathered);
        }
        if !std::mem::replace(&mut self.looks, true) {
            // By then the Owners that live have said so.
            self.after(options.gather + LOOK_AFTER, SchedulerEvent::Look);
        }
    }

    /// Looks which jobs are not over, since some may have no host.
    fn look(&mut self) {
        if !std::mem::replace(&mut self.looking, true) {
            self.effects.push(SchedulerEffect::LookForUnfinished { deadline: LOOK_DEADLINE });
        }
    }

    fn act(&mut self, epoch: Epoch, effect: Effect) {
        match effect {
            Effect::Leases { job, owner, leases, wait } => {
                self.effects.push(SchedulerEffect::TellOwner(job, owner, OwnerMsg::Leases { epoch, leases, wait }));
            }
            Effect::Answer { ask, answer } => {
                if let Some(reply) = self.acting.as_mut().and_then(|acting| acting.asks.remove(&ask)) {
                    self.effects.push(SchedulerEffect::AnswerPlacement(reply, answer));
                }
            }
            Effect::EndJob { node, job } => {
                info!(job_id = %job, node = %node, "node has something of a job that is over");
                self.effects.push(SchedulerEffect::TellNode(job, node.clone(), NodeMsg::EndJob { job }));
                // Where an Owner is there that has not heard of later runs, it must not go on.
                let taken_over = OwnerMsg::TakenOver { run: u32::MAX };
                self.effects.push(SchedulerEffect::TellOwner(job, node, taken_over));
            }
            Effect::Look => self.look(),
            Effect::HomeLost { job, node } => {
                warn!(job_id = %job, node = %node, "host of the job died");
                self.look();
            }
            Effect::Resume { job, on } => {
                info!(job_id = %job, node = %on, "job is to be taken up again");
                // Where it gets lost, it is said again when nothing is heard of the job.
                self.effects.push(SchedulerEffect::TellHost(job, on, HostMsg::Resume { job }));
            }
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
