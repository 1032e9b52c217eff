//! The Scheduler's shell: messages in, leases out. Every candidate has one; the one that is elected acts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{debug, warn};

use super::core::{SchedulerCore, SchedulerEffect};
use super::event::{SchedulerEvent, UnfinishedJob};
use super::state::SchedulerOptions;
use crate::ids::{JobId, NodeId};
use crate::joblog::{LogError, LogsLink};
use crate::protocol;
use crate::protocol::host::JobSpec;
use crate::protocol::scheduler::SchedulerMsg;
use crate::shell::{Actor, Kind, Post, Scope, Wire};

/// The actor.
pub struct Scheduler {
    post: Post,
    logs: LogsLink,
    core: SchedulerCore,
}

impl Scheduler {
    /// A Scheduler that acts when it is told to.
    pub fn new(post: Post, options: SchedulerOptions, logs: LogsLink) -> Self {
        Self { post, logs, core: SchedulerCore::new(options) }
    }

    fn look_for_unfinished(&self, deadline: Duration, scope: &mut Scope<'_, Self>) {
        let logs = self.logs.clone();
        scope.later(async move {
            let unfinished = async {
                match logs.get().await? {
                    Some(logs) => logs.unfinished().await,
                    None => Ok(Vec::new()),
                }
            };
            Some(SchedulerEvent::Unfinished(listed_by(deadline, unfinished).await))
        });
    }

    fn tell<M: Wire>(&self, job: JobId, node: &NodeId, actor: &str, message: M) {
        if let Err(error) = self.post.address::<M>(node, actor).send(message) {
            // The Owner has just ended, or the node is gone: JobDone or NodeDown says so.
            debug!(job_id = %job, %error, "not told");
        }
    }

    fn perform(&self, effect: SchedulerEffect, scope: &mut Scope<'_, Self>) {
        match effect {
            SchedulerEffect::TellOwner(job, node, message) => {
                self.tell(job, &node, &protocol::owner::actor_name(job), message);
            }
            SchedulerEffect::TellNode(job, node, message) => {
                self.tell(job, &node, protocol::node_manager::ACTOR, message);
            }
            SchedulerEffect::TellHost(job, node, message) => self.tell(job, &node, protocol::host::ACTOR, message),
            SchedulerEffect::AnswerPlacement(reply, answer) => self.post.answer(reply, answer),
            SchedulerEffect::AnswerNodes(reply, nodes) => self.post.answer(reply, nodes),
            SchedulerEffect::AnswerJobs(reply, jobs) => self.post.answer(reply, jobs),
            SchedulerEffect::After(delay, event) => scope.after(delay, event),
            SchedulerEffect::LookForUnfinished { deadline } => self.look_for_unfinished(deadline, scope),
        }
    }
}

/// The jobs that are not over; `None`: the logs could not say, or did not by the deadline.
async fn listed_by(
    deadline: Duration,
    unfinished: impl Future<Output = Result<Vec<JobSpec>, LogError>>,
) -> Option<Vec<UnfinishedJob>> {
    let wanted = |spec: JobSpec| (spec.job, spec.tenant, vec![Arc::from(spec.program)]);
    match timeout(deadline, unfinished).await {
        Ok(Ok(jobs)) => Some(jobs.into_iter().map(wanted).collect()),
        Ok(Err(error)) => {
            warn!(%error, "jobs that are not over cannot be listed now");
            None
        }
        Err(_) => {
            warn!(?deadline, "the logs do not say in time which jobs are not over");
            None
        }
    }
}

impl Actor for Scheduler {
    type Message = SchedulerMsg;
    type Event = SchedulerEvent;

    fn handle(&mut self, event: SchedulerEvent, _: &mut Scope<'_, Self>) {
        self.core.on(event, self.post.clock().now());
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        self.core.flush();
        for effect in self.core.effects() {
            self.perform(effect, scope);
        }
        let (census, [jobs, loans, strangers]) = (self.post.census(), self.core.living());
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
    use crate::ids::{Epoch, Incarnation};
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

    /// A Scheduler that has just succeeded another one.
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
        let elected = SchedulerEvent::Elected { epoch: Epoch(2), until: Duration::MAX, succeeds: true };
        scheduler.send(elected).unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn logs_that_do_not_say_by_the_deadline_which_jobs_are_not_over_are_not_waited_for() {
        assert_eq!(listed_by(DEADLINE, std::future::pending()).await, None);
        assert_eq!(listed_by(DEADLINE, async { Ok(Vec::new()) }).await, Some(Vec::new()));
    }
}
