//! What a Scheduler does besides lending ([`State`]): whether it acts, whose questions are open, and when it looks at clock and logs. Events
//! come in with the time; what is to be done comes out as [`SchedulerEffect`]s.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::event::{Noted, SchedulerEvent};
use super::state::{Effect, Event, SchedulerOptions, State};
use crate::ids::{Epoch, JobId, NodeId};
use crate::jobs::book::{Ask, Book, BookEffect, BookEvent, BookOptions, Listed};
use crate::jobs::quotas::TenantQuotas;
use crate::jobs::transition::Transition;
use crate::protocol::host::HostMsg;
use crate::protocol::job::{BodiesAt, JobRecord, Reason, Standing};
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{
    Described, JobInfo, Live, NodeInfo, Placement, RecordPage, RecordRow, Refusal, SchedulerMsg,
};
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

/// How often it is looked of which jobs there are pieces that are none: whoever handed one in died before it was accepted, or was refused.
/// Those of which there were such the time before, too, are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

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
    /// Open the journal of jobs, and begin to append to it; what came of that is [`SchedulerEvent::JournalOpened`].
    OpenJournal(Epoch),
    /// Something is wanted of the journal; what came of it is [`SchedulerEvent::Noted`].
    Journal(Epoch, JournalCall),
    /// How it stands with a job, for who watches.
    Show(Box<JobRecord>),
    /// Look in its log how a job has ended; what came of that is [`SchedulerEvent::LookedForEnd`].
    LookForEnd(JobId),
    /// Look in the logs of which jobs there are pieces of a spec. What came of that is [`SchedulerEvent::Pieces`].
    LookForPieces,
    /// Forget what there is of these, which were never accepted.
    ForgetPieces(Vec<JobId>),
    /// Answer who has handed in a job, or wants one to end.
    AnswerStanding(Reply<Result<Standing, Reason>>, Result<Standing, Reason>),
    /// Answer what is known of a job.
    AnswerDescribed(Reply<Option<Described>>, Option<Described>),
    /// Answer which jobs a tenant has.
    AnswerRecords(Reply<RecordPage>, RecordPage),
    /// Answer which jobs begin with some digits.
    AnswerFound(Reply<Vec<JobId>>, Vec<JobId>),
    /// Answer how many jobs there are before one.
    AnswerCount(Reply<u64>, u64),
}

/// What is wanted of the journal.
#[derive(Debug)]
pub(crate) enum JournalCall {
    /// Make this durable.
    Append(Vec<Transition>),
    /// Put these into the history.
    Archive(Vec<(Box<JobRecord>, BodiesAt)>),
    /// Read what these were accepted with, in the records with these numbers.
    Read(Vec<(JobId, u64)>),
    /// Remove the records before this one.
    Trim(u64),
    /// Take these out of the history.
    Forget(Vec<(Arc<str>, JobId)>),
}

/// The pure core of the actor.
#[derive(Debug)]
pub(crate) struct SchedulerCore {
    options: SchedulerOptions,
    quotas: TenantQuotas,
    acting: Option<Acting>,
    /// Whether it is looked from time to time which jobs are not over, ...
    looks: bool,
    /// ... and whether that is being done now.
    looking: bool,
    /// Whether it is looked from time to time what is left of jobs that are none.
    sweeps: bool,
    /// The time that people have, milliseconds since 1970.
    unix_ms: u64,
    effects: Vec<SchedulerEffect>,
}

/// Who wants to know where a job can run.
#[derive(Debug)]
enum Asker {
    Client(Reply<Result<Placement, Refusal>>),
    /// The book, for this job.
    Book(JobId),
}

/// What there is only while it acts.
#[derive(Debug)]
struct Acting {
    state: State,
    /// When it stops by itself.
    until: Duration,
    asks: HashMap<u64, Asker>,
    /// The jobs of the cluster, ...
    book: Book,
    /// ... and who is answered by it.
    standings: HashMap<Ask, Reply<Result<Standing, Reason>>>,
    next_ask: u64,
    /// Who is to be told what there is, as soon as that is known.
    lists: Vec<List>,
    /// Jobs of which there was something when that was looked last, and which are none.
    unknown: BTreeSet<JobId>,
    /// What was decided since the last flush; it comes to nothing where it stops acting before.
    decided: Vec<Effect>,
}

/// Who wants to know what there is.
#[derive(Debug)]
enum List {
    Nodes(Reply<Vec<NodeInfo>>),
    /// `true`: all of them, whoever is not listed is not there.
    Jobs(bool, Reply<Vec<JobInfo>>),
    /// What the book knows.
    Records(SchedulerMsg),
}

/// What an event is about.
enum Taken {
    /// Nodes, and what is lent of them.
    Lending(Event),
    /// Jobs.
    Jobs(BookEvent),
}

impl Acting {
    fn on(&mut self, (now, unix_ms): (Duration, u64), event: SchedulerEvent, effects: &mut Vec<SchedulerEffect>) {
        if let SchedulerEvent::Unfinished(Some(jobs)) = &event {
            self.look_for_ends(now, jobs.iter().map(|(job, ..)| *job).collect(), effects);
        }
        match self.event(event) {
            Some(Taken::Lending(event)) => {
                let time_passes = event == Event::Tick;
                self.state.on(now, event, &mut self.decided);
                let nodes = if self.state.gathers(now) { 0 } else { self.state.nodes_up() };
                if self.book.has_nodes(nodes) || time_passes {
                    self.book.on(now, unix_ms, BookEvent::Tick);
                }
            }
            Some(Taken::Jobs(event)) => self.book.on(now, unix_ms, event),
            None => {}
        }
        self.list(now, effects);
    }

    /// Of which of these there was something the time before, too, though nobody knows them.
    fn sweep(&mut self, mut found: BTreeSet<JobId>) -> Option<Vec<JobId>> {
        if !self.book.is_loaded() {
            return None;
        }
        found.retain(|job| self.book.record(*job).is_none());
        let old: Vec<JobId> = found.iter().filter(|job| self.unknown.contains(job)).copied().collect();
        self.unknown = found;
        (!old.is_empty()).then_some(old)
    }

    /// Jobs of which no log says that they are not over, and of which nothing is heard: they may be.
    fn look_for_ends(&mut self, now: Duration, unfinished: BTreeSet<JobId>, effects: &mut Vec<SchedulerEffect>) {
        let jobs: Vec<JobId> = self.book.hosted().map(|record| record.job).collect();
        for job in jobs {
            if unfinished.contains(&job) || self.state.hears_of(job, now) {
                self.book.is_heard_of(job);
            } else {
                effects.push(SchedulerEffect::LookForEnd(job));
            }
        }
    }

    fn event(&mut self, event: SchedulerEvent) -> Option<Taken> {
        Some(Taken::Lending(match event {
            SchedulerEvent::Wire(message) => return self.message(message),
            SchedulerEvent::NodeDown { node, incarnation, reason } => {
                info!(node = %node, reason, "node down");
                Event::NodeDown { node, incarnation }
            }
            SchedulerEvent::Gathered | SchedulerEvent::Tick => Event::Tick,
            SchedulerEvent::Unfinished(jobs) => Event::Unfinished(jobs?),
            SchedulerEvent::JournalOpened(_, found) => {
                if found.is_none() {
                    self.book.is_volatile();
                }
                let found = found.map(|opened| opened.found).unwrap_or_default();
                return Some(Taken::Jobs(BookEvent::Loaded(Box::new(found))));
            }
            SchedulerEvent::Noted(_, noted) => {
                return Some(Taken::Jobs(match noted {
                    Noted::Appended(sequence) => BookEvent::Appended(sequence),
                    Noted::Lost => BookEvent::Lost,
                    Noted::Archived(jobs) => BookEvent::Archived(jobs),
                    Noted::Read(read) => BookEvent::Read(read),
                }));
            }
            SchedulerEvent::LookedForEnd(job, Some(outcome)) => {
                return Some(Taken::Jobs(BookEvent::Ended { job, outcome: *outcome }));
            }
            SchedulerEvent::ViewLost(_) => {
                self.book.show_all();
                return None;
            }
            SchedulerEvent::LookedForEnd(job, None) => {
                self.state.has_no_end(job);
                return Some(Taken::Jobs(BookEvent::Missing { job }));
            }
            SchedulerEvent::Elected { .. }
            | SchedulerEvent::StepDown
            | SchedulerEvent::Look
            | SchedulerEvent::Sweep
            | SchedulerEvent::Pieces(_)
            | SchedulerEvent::Fenced(_) => return None,
        }))
    }

    fn message(&mut self, message: SchedulerMsg) -> Option<Taken> {
        Some(Taken::Lending(match message {
            SchedulerMsg::NodeUp(spec) => Event::NodeUp(spec),
            SchedulerMsg::SubmitJob { job, tenant, functions, reply } => {
                self.next_ask += 1;
                self.asks.insert(self.next_ask, Asker::Client(reply));
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
            SchedulerMsg::Describe { .. }
            | SchedulerMsg::ListRecords { .. }
            | SchedulerMsg::Find { .. }
            | SchedulerMsg::QueueBefore { .. } => {
                self.lists.push(List::Records(message));
                return None;
            }
            SchedulerMsg::Accept { submission, reply } => {
                let ask = self.answers(reply);
                return Some(Taken::Jobs(BookEvent::Submit { ask, submission }));
            }
            SchedulerMsg::Cancel { tenant, job, who, reply } => {
                let ask = self.answers(reply);
                return Some(Taken::Jobs(BookEvent::Cancel { ask, tenant, job, who }));
            }
            SchedulerMsg::JobStarted { job, host } => return Some(Taken::Jobs(BookEvent::Started { job, host })),
            SchedulerMsg::JobCommitting { job } => return Some(Taken::Jobs(BookEvent::Committing { job })),
            SchedulerMsg::JobTurnedAway { job, reason } => {
                info!(job_id = %job, reason, "job turned away by its host");
                self.state.was_turned_away(job);
                return Some(Taken::Jobs(BookEvent::TurnedAway { job }));
            }
            SchedulerMsg::JobEnded { job, outcome } => {
                return Some(Taken::Jobs(BookEvent::Ended { job, outcome: *outcome }));
            }
        }))
    }

    /// Somebody is to be answered by the book, under this number.
    fn answers(&mut self, reply: Reply<Result<Standing, Reason>>) -> Ask {
        self.next_ask += 1;
        self.standings.insert(self.next_ask, reply);
        self.next_ask
    }

    /// What is known of a job.
    fn described(&self, tenant: &str, job: JobId) -> Option<Described> {
        let Some(record) = self.book.record(job).filter(|record| *record.tenant == *tenant) else {
            return self.book.ended(job).filter(|ended| *ended.tenant == *tenant).map(|_| Described::Archived);
        };
        let before = self.book.place_in_queue(job).map(|before| before as u64);
        let (record, info, durable) = (record.clone(), self.state.job_info(job), self.book.is_durable());
        Some(Described::Live(Box::new(Live { record, before, info, durable })))
    }

    fn records(&self, tenant: &str, all: bool, before: Option<JobId>, most: usize) -> RecordPage {
        let mut rows = self.book.list(tenant, all, before, most + 1);
        let more = rows.len() > most;
        rows.truncate(most);
        let row = |listed: Listed<'_>| match listed {
            Listed::Record(record) => RecordRow::Record(Box::new(record.clone())),
            Listed::Ended(ended) => RecordRow::Archived(ended.job),
        };
        RecordPage { jobs: rows.into_iter().map(row).collect(), more }
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
                // What there is is known when the journal is read.
                List::Records(message) if !self.book.is_loaded() => self.lists.push(List::Records(message)),
                List::Records(SchedulerMsg::Describe { tenant, job, reply }) => {
                    effects.push(SchedulerEffect::AnswerDescribed(reply, self.described(&tenant, job)));
                }
                List::Records(SchedulerMsg::ListRecords { tenant, all, before, most, reply }) => {
                    let page = self.records(&tenant, all, before, most as usize);
                    effects.push(SchedulerEffect::AnswerRecords(reply, page));
                }
                List::Records(SchedulerMsg::Find { tenant, digits, reply }) => {
                    effects.push(SchedulerEffect::AnswerFound(reply, self.book.find(&tenant, &digits)));
                }
                List::Records(SchedulerMsg::QueueBefore { tenant, priority, reply }) => {
                    let before = self.book.queue_before(&tenant, priority) as u64;
                    effects.push(SchedulerEffect::AnswerCount(reply, before));
                }
                List::Records(_) => {}
            }
        }
    }
}

impl SchedulerCore {
    /// A Scheduler that acts when it is told to.
    pub(crate) fn new(options: SchedulerOptions, quotas: TenantQuotas) -> Self {
        let effects = vec![SchedulerEffect::After(TICK_MAX, SchedulerEvent::Tick)];
        Self { options, quotas, acting: None, looks: false, looking: false, sweeps: false, unix_ms: 0, effects }
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

    /// How many jobs wait for their turn, and how many are not over, these included.
    pub(crate) fn jobs_known(&self) -> [usize; 2] {
        self.acting.as_ref().map_or([0; 2], |acting| acting.book.counts())
    }

    /// Whether it acts.
    pub(crate) fn acts(&self) -> bool {
        self.acting.is_some()
    }

    /// What is to be done, in order, since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<SchedulerEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Which time people have, milliseconds since 1970.
    pub(crate) fn knows_time(&mut self, unix_ms: u64) {
        self.unix_ms = unix_ms;
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
            SchedulerEvent::Sweep => {
                self.sweeps = self.acting.is_some();
                if self.sweeps {
                    self.effects.push(SchedulerEffect::LookForPieces);
                    self.after(SWEEP_EVERY, SchedulerEvent::Sweep);
                }
            }
            SchedulerEvent::Pieces(found) => {
                if let Some(acting) = &mut self.acting {
                    self.effects.extend(acting.sweep(found).map(SchedulerEffect::ForgetPieces));
                }
            }
            SchedulerEvent::StepDown => self.acting = None,
            // Of a time in which it acted before.
            SchedulerEvent::JournalOpened(epoch, _)
            | SchedulerEvent::Noted(epoch, _)
            | SchedulerEvent::ViewLost(epoch)
            | SchedulerEvent::Fenced(epoch)
                if self.acting.as_ref().is_none_or(|acting| acting.state.epoch() != epoch) => {}
            // Whoever writes the journal now is the Scheduler, and is heard of soon.
            SchedulerEvent::Fenced(_) => self.acting = None,
            // What its own journal says is no matter of time: it may go on in a moment.
            event @ (SchedulerEvent::JournalOpened(..) | SchedulerEvent::Noted(..) | SchedulerEvent::ViewLost(_)) => {
                if let Some(acting) = &mut self.acting {
                    acting.on((now, self.unix_ms), event, &mut self.effects);
                }
            }
            event => match &mut self.acting {
                Some(acting) if now < acting.until => acting.on((now, self.unix_ms), event, &mut self.effects),
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
    pub(crate) fn flush(&mut self, now: Duration) {
        let Some(epoch) = self.acting.as_ref().map(|acting| acting.state.epoch()) else { return };
        loop {
            let Some(acting) = &mut self.acting else { return };
            let (decided, noted) = (std::mem::take(&mut acting.decided), acting.book.effects());
            if decided.is_empty() && noted.is_empty() {
                return;
            }
            decided.into_iter().for_each(|effect| self.act(now, epoch, effect));
            noted.into_iter().for_each(|effect| self.keep(now, epoch, effect));
        }
    }

    /// Does what the book wants.
    fn keep(&mut self, now: Duration, epoch: Epoch, effect: BookEffect) {
        let Some(acting) = &mut self.acting else { return };
        let call = match effect {
            BookEffect::Append(transitions) => JournalCall::Append(transitions),
            BookEffect::Archive(jobs) => JournalCall::Archive(jobs),
            BookEffect::Read(jobs) => JournalCall::Read(jobs),
            BookEffect::Trim(before) => JournalCall::Trim(before),
            BookEffect::Forget(jobs) => JournalCall::Forget(jobs),
            BookEffect::Answer(ask, answer) => {
                if let Some(reply) = acting.standings.remove(&ask) {
                    self.effects.push(SchedulerEffect::AnswerStanding(reply, answer));
                }
                return;
            }
            BookEffect::Place { job, tenant, program } => {
                acting.next_ask += 1;
                let ask = acting.next_ask;
                acting.asks.insert(ask, Asker::Book(job));
                let submit = Event::Submit { ask, job, tenant, functions: vec![program] };
                acting.state.on(now, submit, &mut acting.decided);
                return;
            }
            BookEffect::Run { node, record, bodies } => {
                info!(job_id = %record.job, node = %node, program = record.program, "job is to begin");
                let (job, is_to_stop) = (record.job, record.stop.is_some());
                self.effects.push(SchedulerEffect::TellHost(job, node.clone(), HostMsg::Run { record, bodies }));
                if is_to_stop {
                    self.effects.push(SchedulerEffect::TellHost(job, node, HostMsg::Cancel { job }));
                }
                return;
            }
            BookEffect::Cancel { node, job } => {
                return self.effects.push(SchedulerEffect::TellHost(job, node, HostMsg::Cancel { job }));
            }
            BookEffect::Show(record) => return self.effects.push(SchedulerEffect::Show(record)),
        };
        self.effects.push(SchedulerEffect::Journal(epoch, call));
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
        let (asks, standings, lists, decided) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        let book = Book::new(BookOptions::default(), self.quotas.clone());
        let unknown = BTreeSet::new();
        self.acting = Some(Acting { state, until, asks, book, standings, next_ask: 0, lists, unknown, decided });
        self.effects.push(SchedulerEffect::OpenJournal(epoch));
        if succeeds {
            // The next tick may be a second away, and people wait.
            self.after(options.gather, SchedulerEvent::Gathered);
        }
        if !std::mem::replace(&mut self.looks, true) {
            // By then the Owners that live have said so.
            self.after(options.gather + LOOK_AFTER, SchedulerEvent::Look);
        }
        if !std::mem::replace(&mut self.sweeps, true) {
            self.after(SWEEP_EVERY, SchedulerEvent::Sweep);
        }
    }

    /// Looks which jobs are not over, since some may have no host.
    fn look(&mut self) {
        if !std::mem::replace(&mut self.looking, true) {
            self.effects.push(SchedulerEffect::LookForUnfinished { deadline: LOOK_DEADLINE });
        }
    }

    fn act(&mut self, now: Duration, epoch: Epoch, effect: Effect) {
        match effect {
            Effect::Leases { job, owner, leases, wait } => {
                self.effects.push(SchedulerEffect::TellOwner(job, owner, OwnerMsg::Leases { epoch, leases, wait }));
            }
            Effect::Answer { ask, answer } => {
                let Some(acting) = &mut self.acting else { return };
                match acting.asks.remove(&ask) {
                    Some(Asker::Client(reply)) => self.effects.push(SchedulerEffect::AnswerPlacement(reply, answer)),
                    Some(Asker::Book(job)) => {
                        if answer == Err(Refusal::Over) {
                            self.effects.push(SchedulerEffect::LookForEnd(job));
                        }
                        acting.book.on(now, self.unix_ms, BookEvent::Placed { job, answer });
                    }
                    None => {}
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
                self.effects.push(SchedulerEffect::TellHost(job, on.clone(), HostMsg::Resume { job }));
                let record = self.acting.as_ref().and_then(|acting| acting.book.record(job));
                if record.is_some_and(|record| record.stop.is_some()) {
                    // It is to know that before the program begins.
                    self.effects.push(SchedulerEffect::TellHost(job, on, HostMsg::Cancel { job }));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
