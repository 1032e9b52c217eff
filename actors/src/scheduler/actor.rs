//! The Scheduler's shell: messages in, leases out. Every candidate has one; the one that is elected acts.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::BusError;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::core::{JournalCall, SchedulerCore, SchedulerEffect};
use super::event::{Noted, OpenedJournal, SchedulerEvent, UnfinishedJob};
use super::state::SchedulerOptions;
use crate::causes;
use crate::ids::{Epoch, JobId, NodeId};
use crate::joblog::LogError;
use crate::jobs::journal::{Journal, JournalError, JournalLink, Place};
use crate::jobs::quotas::TenantQuotas;
use crate::jobs::view::View;
use crate::protocol;
use crate::protocol::host::JobSpec;
use crate::protocol::job::{Carried, Outcome};
use crate::protocol::scheduler::SchedulerMsg;
use crate::shell::{Actor, Kind, Post, Scope, Wire};

/// The actor.
pub struct Scheduler {
    post: Post,
    journal: JournalLink,
    core: SchedulerCore,
    /// The journal of jobs, and where this Scheduler appends, while it acts.
    writes: Option<(Journal, Place)>,
    /// What people watch, while it acts.
    view: Option<View>,
}

/// How long it is waited before the journal is tried again.
const JOURNAL_AGAIN: Duration = Duration::from_millis(500);

impl Scheduler {
    /// A Scheduler that acts when it is told to.
    pub fn new(post: Post, options: SchedulerOptions, quotas: TenantQuotas, journal: JournalLink) -> Self {
        Self { post, journal, core: SchedulerCore::new(options, quotas), writes: None, view: None }
    }

    fn look_for_unfinished(&self, deadline: Duration, scope: &mut Scope<'_, Self>) {
        let logs = self.journal.logs().clone();
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

    fn perform(&mut self, effect: SchedulerEffect, scope: &mut Scope<'_, Self>) {
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
            SchedulerEffect::AnswerStanding(reply, standing) => self.post.answer(reply, standing),
            SchedulerEffect::AnswerDescribed(reply, described) => self.post.answer(reply, described),
            SchedulerEffect::AnswerRecords(reply, page) => self.post.answer(reply, page),
            SchedulerEffect::AnswerFound(reply, found) => self.post.answer(reply, found),
            SchedulerEffect::AnswerCount(reply, count) => self.post.answer(reply, count),
            SchedulerEffect::OpenJournal(epoch) => self.open_journal(epoch, scope),
            SchedulerEffect::Journal(epoch, call) => self.call_journal(epoch, call, scope),
            SchedulerEffect::LookForEnd(job) => self.look_for_end(job, scope),
            SchedulerEffect::LookForPieces => self.look_for_pieces(scope),
            SchedulerEffect::ForgetPieces(jobs) => self.forget_pieces(jobs, scope),
            SchedulerEffect::Show(record) => {
                if let Some(view) = &self.view {
                    view.show(*record);
                }
            }
        }
    }

    fn open_journal(&mut self, epoch: Epoch, scope: &mut Scope<'_, Self>) {
        (self.writes, self.view) = (None, None);
        let link = self.journal.clone();
        scope.later(async move {
            loop {
                let opened = async {
                    let Some(journal) = link.get().await? else { return Ok(None) };
                    // The server may have been emptied since.
                    journal.reopen_if(true).await?;
                    let (place, found) = journal.begin(epoch).await?;
                    Ok::<_, JournalError>(Some((journal, place, found)))
                };
                match opened.await {
                    Ok(None) => return Some(SchedulerEvent::JournalOpened(epoch, None)),
                    Ok(Some((journal, place, found))) => {
                        let (jobs, ended) = (found.transitions.len(), found.ended.len());
                        info!(transitions = jobs, ended, "the journal of jobs is read");
                        return Some(SchedulerEvent::JournalOpened(
                            epoch,
                            Some(Box::new(OpenedJournal { journal, place, found })),
                        ));
                    }
                    Err(JournalError::Fenced(by)) => {
                        warn!(?epoch, ?by, "another Scheduler writes the journal of jobs");
                        return Some(SchedulerEvent::Fenced(epoch));
                    }
                    Err(error) => warn!(error = causes(&error), "the journal of jobs cannot be opened now"),
                }
                sleep(JOURNAL_AGAIN).await;
            }
        });
    }

    fn look_for_pieces(&self, scope: &mut Scope<'_, Self>) {
        let logs = self.journal.logs().clone();
        scope.later(async move {
            let found = logs.get().await.ok()??.with_pieces().await;
            let found = found.map_err(|error| debug!(%error, "what is left of jobs that are none cannot be read"));
            found.ok().map(SchedulerEvent::Pieces)
        });
    }

    fn forget_pieces(&self, jobs: Vec<JobId>, scope: &mut Scope<'_, Self>) {
        let logs = self.journal.logs().clone();
        scope.later(async move {
            let logs = logs.get().await.ok()??;
            for job in jobs {
                match logs.forget_pieces(job).await {
                    Ok(true) => info!(job_id = %job, "what a job was to be accepted with is removed: it never was"),
                    Ok(false) => {}
                    Err(error) => debug!(job_id = %job, %error, "what is left of a job that is none is not removed"),
                }
            }
            None
        });
    }

    fn look_for_end(&self, job: JobId, scope: &mut Scope<'_, Self>) {
        let logs = self.journal.logs().clone();
        scope.later(async move {
            let end = match logs.get().await.ok()? {
                Some(logs) => {
                    logs.end(job).await.map_err(|error| debug!(%error, "how a job ended cannot be read")).ok()?
                }
                None => None,
            };
            Some(SchedulerEvent::LookedForEnd(job, end.map(|end| Box::new(Outcome::of(&end)))))
        });
    }

    /// Does what is wanted of the journal, however often that has to be tried; where there is none, it is done.
    fn call_journal(&mut self, epoch: Epoch, call: JournalCall, scope: &mut Scope<'_, Self>) {
        let Some((journal, place)) = self.writes.clone() else {
            let done = match call {
                JournalCall::Append(_) => Noted::Appended(0),
                _ => return,
            };
            return drop(scope.inbox().send(SchedulerEvent::Noted(epoch, done)));
        };
        scope.later(async move {
            loop {
                let error = match journal_call(&journal, place, &call).await {
                    Ok(noted) => return Some(SchedulerEvent::Noted(epoch, noted?)),
                    Err(JournalError::Fenced(by)) => {
                        warn!(?epoch, ?by, "another Scheduler writes the journal of jobs");
                        return Some(SchedulerEvent::Fenced(epoch));
                    }
                    Err(JournalError::Bus(BusError::StreamMissing { .. }))
                        if matches!(call, JournalCall::Append(_)) =>
                    {
                        warn!("the journal of jobs is lost with the NATS server, and begins anew");
                        return Some(SchedulerEvent::Noted(epoch, Noted::Lost));
                    }
                    Err(error) => error,
                };
                warn!(error = causes(&error), "the journal of jobs cannot be written now");
                if matches!(call, JournalCall::Trim(_) | JournalCall::Forget(_)) {
                    return None;
                }
                sleep(JOURNAL_AGAIN).await;
            }
        });
    }

    /// What the shell has to know of an event before the core does.
    fn follow(&mut self, event: &SchedulerEvent, scope: &Scope<'_, Self>) {
        match event {
            SchedulerEvent::JournalOpened(epoch, Some(opened)) => {
                self.writes = Some((opened.journal.clone(), opened.place));
                let (inbox, epoch) = (scope.inbox().clone(), *epoch);
                let lost = move || drop(inbox.send(SchedulerEvent::ViewLost(epoch)));
                self.view = Some(opened.journal.view(lost));
            }
            SchedulerEvent::Noted(epoch, Noted::Appended(sequence)) => {
                if let Some((_, place)) = self.writes.as_mut().filter(|(_, place)| place.epoch == *epoch) {
                    place.last = *sequence;
                }
            }
            SchedulerEvent::Noted(epoch, Noted::Lost) => {
                if let Some((_, place)) = self.writes.as_mut().filter(|(_, place)| place.epoch == *epoch) {
                    place.last = 0;
                }
            }
            _ => {}
        }
    }
}

/// Does one thing that is wanted of the journal; `None`: nobody needs to know.
async fn journal_call(journal: &Journal, place: Place, call: &JournalCall) -> Result<Option<Noted>, JournalError> {
    Ok(match call {
        JournalCall::Append(transitions) => {
            journal.reopen_if(place.last == 0).await?;
            Some(Noted::Appended(journal.append(place, transitions.clone()).await?.last))
        }
        JournalCall::Archive(jobs) => Some(Noted::Archived(journal.archive(jobs).await?)),
        JournalCall::Read(jobs) => {
            let mut read = Vec::new();
            for (job, sequence) in jobs {
                match journal.carried(*job, *sequence).await {
                    Ok(carried) => read.push((*job, carried)),
                    Err(error @ (JournalError::NoBodies(_) | JournalError::Record { .. })) => {
                        warn!(job_id = %job, error = causes(&error), "what a job was accepted with is lost");
                        read.push((*job, Carried::Nowhere));
                    }
                    Err(error) => return Err(error),
                }
            }
            Some(Noted::Read(read))
        }
        JournalCall::Trim(before) => {
            journal.trim(*before).await?;
            None
        }
        JournalCall::Forget(jobs) => {
            journal.forget(jobs).await?;
            None
        }
    })
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

    fn handle(&mut self, event: SchedulerEvent, scope: &mut Scope<'_, Self>) {
        self.follow(&event, scope);
        self.core.knows_time(self.post.clock().unix_ms());
        self.core.on(event, self.post.clock().now());
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        self.core.flush(self.post.clock().now());
        for effect in self.core.effects() {
            self.perform(effect, scope);
        }
        if !self.core.acts() {
            self.view = None;
        }
        let (census, [jobs, loans, strangers]) = (self.post.census(), self.core.living());
        census.set(Kind::JobAtScheduler, jobs);
        let [waiting, not_over] = self.core.jobs_known();
        census.set(Kind::JobWaiting, waiting);
        census.set(Kind::JobNotOver, not_over);
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
        let scheduler = Scheduler::new(post.clone(), options, TenantQuotas::default(), JournalLink::default());
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
