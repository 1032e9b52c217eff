//! The Scheduler's shell: messages in, leases out. Every candidate has one; the one that reigns acts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::protocol;
use crate::protocol::host::{HostMsg, JobSpec};
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{JobInfo, NodeInfo, Placement, Refusal, SchedulerMsg};

use super::event::SchedulerEvent;

use super::state::{Effect, Event, SchedulerOptions, State};
use crate::ids::{Epoch, JobId, NodeId};
use crate::joblog::{LogError, LogsLink};
use crate::shell::{Actor, Kind, Post, Reply, Scope};

/// Ticks come at least this often while there are jobs.
const TICK_MAX: Duration = Duration::from_secs(1);
/// How long after it has gathered it is looked which jobs have no host: Owners repeat their demand every second.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// How often that is looked from then on, besides when a host dies.
const LOOK_EVERY: Duration = Duration::from_secs(15);
const TICK_MIN: Duration = Duration::from_millis(20);

/// The actor.
pub struct Scheduler {
    post: Post,
    options: SchedulerOptions,
    logs: LogsLink,
    reign: Option<Reigning>,
    effects: Vec<Effect>,
    /// Whether it is looked from time to time which jobs are not over, ...
    looks: bool,
    /// ... and whether that is being done now.
    looking: bool,
}

/// What there is only while it reigns.
struct Reigning {
    state: State,
    /// When it stops by itself.
    until: Duration,
    asks: HashMap<u64, Reply<Result<Placement, Refusal>>>,
    next_ask: u64,
    /// Who is to be told what there is, as soon as that is known.
    lists: Vec<List>,
}

/// Who wants to know what there is.
enum List {
    Nodes(Reply<Vec<NodeInfo>>),
    /// `true`: all of them, whoever is not listed is not there.
    Jobs(bool, Reply<Vec<JobInfo>>),
}

impl Reigning {
    fn event(&mut self, event: SchedulerEvent) -> Option<Event> {
        match event {
            SchedulerEvent::Wire(message) => self.message(message),
            SchedulerEvent::NodeDown { node, incarnation, reason } => {
                info!(node = %node, reason, "node down");
                Some(Event::NodeDown { node, incarnation })
            }
            SchedulerEvent::Gathered | SchedulerEvent::Tick => Some(Event::Tick),
            SchedulerEvent::Unfinished(jobs) => Some(Event::Unfinished(jobs?)),
            SchedulerEvent::Reign { .. } | SchedulerEvent::StepDown | SchedulerEvent::Look => None,
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
    fn list(&mut self, post: &Post, now: Duration) {
        if self.state.gathers(now) {
            return;
        }
        for list in std::mem::take(&mut self.lists) {
            match list {
                List::Jobs(true, reply) if !self.state.is_settled(now) => self.lists.push(List::Jobs(true, reply)),
                List::Jobs(_, reply) => post.answer(reply, self.state.jobs()),
                List::Nodes(reply) => post.answer(reply, self.state.nodes()),
            }
        }
    }
}

impl Scheduler {
    /// A Scheduler that acts when it is told to.
    pub fn new(post: Post, options: SchedulerOptions, logs: LogsLink) -> Self {
        Self { post, options, logs, reign: None, effects: Vec::new(), looks: false, looking: false }
    }

    /// Looks which jobs are not over, since some may have no host.
    fn look(&mut self, scope: &mut Scope<'_, Self>) {
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let logs = self.logs.clone();
        scope.later(async move {
            let unfinished = async {
                match logs.get().await? {
                    Some(logs) => logs.unfinished().await,
                    None => Ok(Vec::new()),
                }
            };
            let jobs = unfinished.await.inspect_err(|error: &LogError| {
                warn!(%error, "jobs that are not over cannot be listed now");
            });
            let wanted = |spec: JobSpec| (spec.job, spec.tenant, vec![Arc::from(spec.program)]);
            Some(SchedulerEvent::Unfinished(jobs.ok().map(|jobs| jobs.into_iter().map(wanted).collect())))
        });
    }

    /// True when it begins, and gathers what there is.
    fn reign(&mut self, now: Duration, epoch: Epoch, until: Duration, succeeds: bool) -> bool {
        if let Some(reign) = self.reign.as_mut().filter(|reign| reign.state.epoch() == epoch) {
            reign.until = until;
            return false;
        }
        let options = self.options;
        let state = if succeeds { State::take_over(epoch, options, now) } else { State::new(epoch, options) };
        self.reign = Some(Reigning { state, until, asks: HashMap::new(), next_ask: 0, lists: Vec::new() });
        succeeds
    }

    fn tell(&self, job: JobId, owner: &NodeId, message: OwnerMsg) {
        if let Err(error) = self.post.address::<OwnerMsg>(owner, &protocol::owner::actor_name(job)).send(message) {
            // The Owner has just ended, or its node is gone: JobDone or NodeDown says so.
            debug!(job_id = %job, %error, "owner not told");
        }
    }

    fn act(&mut self, epoch: Epoch, effect: Effect, scope: &mut Scope<'_, Self>) {
        match effect {
            Effect::Leases { job, owner, leases, wait } => {
                self.tell(job, &owner, OwnerMsg::Leases { epoch, leases, wait });
            }
            Effect::Answer { ask, answer } => {
                if let Some(reply) = self.reign.as_mut().and_then(|reign| reign.asks.remove(&ask)) {
                    self.post.answer(reply, answer);
                }
            }
            Effect::EndJob { node, job } => {
                info!(job_id = %job, node = %node, "node has something of a job that is over");
                let manager = self.post.address::<NodeMsg>(&node, protocol::node_manager::ACTOR);
                if let Err(error) = manager.send(NodeMsg::EndJob { job }) {
                    debug!(job_id = %job, %error, "node not told");
                }
                // Where an Owner is there that has not heard of later runs, it must not go on.
                self.tell(job, &node, OwnerMsg::TakenOver { run: u32::MAX });
            }
            Effect::Look => self.look(scope),
            Effect::HomeLost { job, node } => {
                warn!(job_id = %job, node = %node, "host of the job died");
                self.look(scope);
            }
            Effect::Resume { job, on } => {
                info!(job_id = %job, node = %on, "job is to be taken up again");
                // Where it gets lost, it is said again when nothing is heard of the job.
                if let Err(error) =
                    self.post.address::<HostMsg>(&on, protocol::host::ACTOR).send(HostMsg::Resume { job })
                {
                    debug!(job_id = %job, %error, "host not told");
                }
            }
        }
    }
}

impl Actor for Scheduler {
    type Message = SchedulerMsg;
    type Event = SchedulerEvent;

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        scope.after(TICK_MAX, SchedulerEvent::Tick);
    }

    fn handle(&mut self, event: SchedulerEvent, scope: &mut Scope<'_, Self>) {
        let (now, tick) = (self.post.clock().now(), event == SchedulerEvent::Tick);
        self.looking &= !matches!(event, SchedulerEvent::Unfinished(_));
        match event {
            SchedulerEvent::Reign { epoch, until, succeeds } => {
                let begins = self.reign.as_ref().is_none_or(|reign| reign.state.epoch() != epoch);
                if self.reign(now, epoch, until, succeeds) {
                    // The next tick may be a second away, and people wait.
                    scope.after(self.options.gather, SchedulerEvent::Gathered);
                }
                if begins && !std::mem::replace(&mut self.looks, true) {
                    // By then the Owners that live have said so.
                    scope.after(self.options.gather + LOOK_AFTER, SchedulerEvent::Look);
                }
            }
            SchedulerEvent::Look => {
                self.looks = self.reign.is_some();
                if self.looks {
                    self.look(scope);
                    scope.after(LOOK_EVERY, SchedulerEvent::Look);
                }
            }
            SchedulerEvent::StepDown => self.reign = None,
            event => match &mut self.reign {
                Some(reign) if now < reign.until => {
                    if let Some(event) = reign.event(event) {
                        reign.state.on(now, event, &mut self.effects);
                    }
                    reign.list(&self.post, now);
                }
                _ if tick => {}
                // Not, or no longer, the Scheduler: who asked asks again where it is.
                _ => debug!(?event, "no scheduler here"),
            },
        }
        if tick {
            let wakeup = self.reign.as_ref().and_then(|reign| reign.state.next_wakeup());
            let wakeup = wakeup.map_or(TICK_MAX, |at| at.saturating_sub(now));
            scope.after(wakeup.clamp(TICK_MIN, TICK_MAX), SchedulerEvent::Tick);
        }
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        let effects = std::mem::take(&mut self.effects);
        if let Some(epoch) = self.reign.as_ref().map(|reign| reign.state.epoch()) {
            effects.into_iter().for_each(|effect| self.act(epoch, effect, scope));
        }
        let [jobs, loans, strangers] = self.reign.as_ref().map_or([0; 3], |reign| reign.state.living());
        let census = self.post.census();
        census.set(Kind::JobAtScheduler, jobs);
        census.set(Kind::Loan, loans);
        census.set(Kind::Stranger, strangers);
    }
}

#[cfg(test)]
mod tests {
    use exobus_store::Clock;
    use tokio::task::LocalSet;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::ids::Incarnation;
    use crate::protocol::scheduler::JobDemand;
    use crate::shell::{self, Inbox, PostOptions};

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Paused time.
    struct Paused(Instant);

    impl Clock for Paused {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    fn demand() -> SchedulerMsg {
        SchedulerMsg::Demand(JobDemand {
            job: JobId::from_u128(7),
            tenant: "default".into(),
            owner: NodeId::new("n1"),
            incarnation: Incarnation(1),
            sequence: 1,
            shapes: Vec::new(),
            leases: Vec::new(),
            held: Vec::new(),
        })
    }

    /// A Scheduler that has just begun to reign after another one.
    fn succeeding() -> (SchedulerOptions, Inbox<SchedulerEvent>) {
        let options = SchedulerOptions::default();
        let post = Post::new(PostOptions {
            node: NodeId::new("n1"),
            incarnation: Incarnation(1),
            clock: Arc::new(Paused(Instant::now())),
            on_fatal: Box::new(|fatal| panic!("{}", fatal.reason)),
        });
        let scheduler = Scheduler::new(post.clone(), options, LogsLink::default());
        let scheduler = shell::spawn(&post, crate::protocol::scheduler::ACTOR, scheduler);
        let reign = SchedulerEvent::Reign { epoch: Epoch(2), until: Duration::MAX, succeeds: true };
        scheduler.send(reign).unwrap();
        (options, scheduler)
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_not_listed_before_those_are_known_whose_owners_say_so_in_time() {
        let test = async |settled: bool, after: fn(&SchedulerOptions) -> Duration| {
            let (options, scheduler) = succeeding();
            let address = scheduler.address();
            let listed = address.ask(|reply| SchedulerMsg::ListJobs { settled, reply }, DEADLINE);
            let demands = async {
                sleep(after(&options) - Duration::from_millis(1)).await;
                scheduler.send(demand()).unwrap();
            };
            let (jobs, ()) = tokio::join!(listed, demands);
            let jobs: Vec<_> = jobs.unwrap().iter().map(|info| info.job).collect();
            assert_eq!(jobs, [JobId::from_u128(7)], "{settled}");
        };
        LocalSet::new().run_until(test(false, |options| options.gather)).await;
        LocalSet::new().run_until(test(true, |options| options.settle)).await;
    }
}
