//! The jobs of a cluster, as the Scheduler decides about them. Pure: time comes in with events, what is to be done comes out as effects.
//!
//! | event                           | then                                                                                  |
//! |---------------------------------|---------------------------------------------------------------------------------------|
//! | a job is handed in              | refused, or noted; answered when that is durable                                      |
//! | ... with a key that is known    | the job that it stands for is named; with another spec it is refused                   |
//! | a job waits, and there is room  | a node is asked for; that is not noted, as the job's own log says it                  |
//! | its host says how it stands     | noted                                                                                 |
//! | a job that waits is cancelled   | it is over when that is noted                                                         |
//! | one that was started is         | noted, and its host is told, again and again, until it is over                        |
//! | its time is over                | the same, but that it has failed                                                      |
//! | nothing is heard of a start     | it is started again                                                                   |
//! | a job is over                   | it goes to the history, and then out of the journal                                   |
//!
//! Whatever is noted goes into the next record of the journal, all that waits together, one record under way at a time. What is told to
//! anybody was durable before. Where there is no journal, it is at once, and lost with the Scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::history::{Ended, History, KEPT_IN_MEMORY};
use super::keys::Keys;
use super::queue::Queue;
use super::quotas::TenantQuotas;
use super::transition::Transition;
use crate::ids::{JobId, NodeId};
use crate::protocol::job::{
    Bodies, BodiesAt, Carried, Digest, JobRecord, JobState, Outcome, Reason, Standing, Stop, Submission,
};
use crate::protocol::scheduler::{Placement, Refusal};

/// A spec and a plan of so many bytes together stand in the journal itself.
pub(crate) const INLINE_BYTES_MAX: usize = 32 << 10;
/// Bytes that a record of the journal has at most, about: it and what the bus adds fit a message.
const RECORD_BYTES_MAX: usize = 160 << 10;
/// A node of which nothing is heard for so long after it was told to host a job may never have been told.
const STARTS_IN: Duration = Duration::from_secs(5);
/// How often a host is told that its job is to end.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Of what jobs were accepted with so much is kept of each, and of all.
pub(super) const KEPT_BYTES_EACH: usize = 4 << 10;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// How long a job that could not start waits before it tries again.
const HELD_FOR: Duration = Duration::from_secs(1);
/// So often in a row a job is missing that is lost: it is looked every 15 s.
const MISSING_MAX: u32 = 2;
/// Bytes of jobs that are not over that the journal may have, about: with more of them no other is accepted.
const LIVE_BYTES_MAX: usize = 32 << 20;
/// So many records of the journal may stand before that of the oldest job that is not over, before that one is noted once more.
const LAG_MAX: u64 = 512;

/// What a cluster lets jobs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookOptions {
    /// Jobs under way for each node that is there; 32.
    pub per_node: usize,
    /// Of these, for each tenant: so many of a tenant's jobs may be under way even where those of others take all the room; 2.
    pub first_per_node: usize,
}

impl Default for BookOptions {
    fn default() -> Self {
        Self { per_node: 32, first_per_node: 2 }
    }
}

/// Whom to answer.
pub type Ask = u64;

/// Why he is not.
pub type Refused = Reason;

/// What a Scheduler finds that begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// What the journal has, with the number of its record.
    pub(crate) transitions: Vec<(u64, Transition)>,
    /// What the history has, and the keys of its jobs.
    pub(crate) ended: Vec<(Ended, Option<Keyed>)>,
}

/// The key of a job, its spec, and when it was accepted.
pub(crate) type Keyed = (String, Digest, u64);

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum BookEvent {
    /// What the journal and the history have.
    Loaded(Box<Found>),
    /// Somebody hands a job in.
    Submit { ask: Ask, submission: Box<Submission> },
    /// Somebody wants a job to end.
    Cancel { ask: Ask, tenant: Arc<str>, job: JobId, who: Option<String> },
    /// Where a job can run.
    Placed { job: JobId, answer: Result<Placement, Refusal> },
    /// A node that was to host a job has no room for it.
    TurnedAway { job: JobId },
    /// Its program begins.
    Started { job: JobId, host: NodeId },
    /// It makes its output visible.
    Committing { job: JobId },
    /// It is over.
    Ended { job: JobId, outcome: Outcome },
    /// It has no host, as far as is known, and its log says neither that it goes on nor how it ended.
    Missing { job: JobId },
    /// What was to be appended is durable, under this number.
    Appended(u64),
    /// What was appended, and what was to be, is lost with the server: the journal begins anew.
    Lost,
    /// What was over is in the history.
    Archived(Vec<JobId>),
    /// What jobs were accepted with that are noted once more.
    Read(Vec<(JobId, Carried)>),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BookEffect {
    /// To be made durable, all or nothing; then say [`BookEvent::Appended`].
    Append(Vec<Transition>),
    /// To be put into the history; then say [`BookEvent::Archived`].
    Archive(Vec<(Box<JobRecord>, BodiesAt)>),
    /// To be looked up, in the records of the journal with these numbers; then say [`BookEvent::Read`].
    Read(Vec<(JobId, u64)>),
    /// Records of the journal before this one are needed no more.
    Trim(u64),
    /// These are to go out of the history.
    Forget(Vec<(Arc<str>, JobId)>),
    /// Somebody is answered.
    Answer(Ask, Result<Standing, Refused>),
    /// A node is wanted that has this program.
    Place { job: JobId, tenant: Arc<str>, program: Arc<str> },
    /// A node is to host a job.
    Run { node: NodeId, record: Box<JobRecord>, bodies: BodiesAt },
    /// A host is to end a job.
    Cancel { node: NodeId, job: JobId },
    /// How it stands now, for who watches.
    Show(Box<JobRecord>),
}

/// A job that is not over.
#[derive(Clone, Debug)]
struct Live {
    record: JobRecord,
    /// Where that is which it was accepted with.
    bodies: BodiesAt,
    /// What is small of it is here, too, should the journal be lost.
    kept: Option<Bodies>,
    /// The record of the journal that says so.
    noted: u64,
    /// How often it was missing.
    missing: u32,
    /// Since when it is to start, and where, unless it has.
    starting: Option<(Duration, Option<NodeId>)>,
    /// That its program begins is noted.
    begun: bool,
    /// Its end is noted, and not durable yet.
    ends: bool,
    /// When its host was told last that it is to end.
    stop_told: Option<Duration>,
}

/// Something that is to become durable, and who is answered then.
#[derive(Clone, Debug)]
struct Waiting {
    transition: Transition,
    answers: Vec<(Ask, Standing)>,
}

impl Waiting {
    /// The record of this job, where it says that the job is accepted.
    fn accepts(&self, job: JobId) -> Option<&JobRecord> {
        match &self.transition {
            Transition::Accepted(record, _) if record.job == job => Some(record),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    options: BookOptions,
    quotas: TenantQuotas,
    /// Whether there is a journal: else nobody takes up what this Scheduler leaves.
    durable: bool,
    /// What came before it knew what there is; `None`: it knows.
    early: Option<Vec<BookEvent>>,
    live: BTreeMap<JobId, Live>,
    of_tenant: BTreeMap<Arc<str>, usize>,
    /// By the number of the record of the journal that has them.
    by_noted: BTreeSet<(u64, JobId)>,
    /// Bytes of what is noted of jobs that are not over, about.
    live_bytes: usize,
    /// Bytes of what is kept of them here.
    kept_bytes: usize,
    queue: Queue,
    /// Jobs that could not start, and wait until then before they try again.
    held: Vec<(Duration, JobId)>,
    keys: Keys,
    history: History,
    waiting: Vec<Waiting>,
    under_way: Vec<Waiting>,
    /// Jobs that are over and not in the history yet.
    unarchived: BTreeMap<JobId, (Box<JobRecord>, BodiesAt, u64)>,
    archiving: bool,
    reading: bool,
    trimmed: u64,
    last: u64,
    nodes: usize,
    effects: Vec<BookEffect>,
}

/// Most events that are kept until it knows what there is, ...
const EARLY_MAX: usize = 20_000;
/// ... and so many before questions are refused: who asks is not there for ever.
const ASKED_EARLY_MAX: usize = 256;

impl Book {
    /// A book that knows nothing before it is [`Loaded`](BookEvent::Loaded).
    pub(crate) fn new(options: BookOptions, quotas: TenantQuotas) -> Self {
        Self {
            options,
            quotas,
            durable: true,
            early: Some(Vec::new()),
            live: BTreeMap::new(),
            of_tenant: BTreeMap::new(),
            by_noted: BTreeSet::new(),
            live_bytes: 0,
            kept_bytes: 0,
            queue: Queue::default(),
            held: Vec::new(),
            keys: Keys::default(),
            history: History::default(),
            waiting: Vec::new(),
            under_way: Vec::new(),
            unarchived: BTreeMap::new(),
            archiving: false,
            reading: false,
            trimmed: 0,
            last: 0,
            nodes: 0,
            effects: Vec::new(),
        }
    }

    /// There is no journal: what is noted is durable at once.
    pub(crate) fn is_volatile(&mut self) {
        self.durable = false;
    }

    /// A job is not missing.
    pub(crate) fn is_heard_of(&mut self, job: JobId) {
        if let Some(live) = self.live.get_mut(&job) {
            live.missing = 0;
        }
    }

    /// Shows how it stands with every job that is not over.
    pub(crate) fn show_all(&mut self) {
        let shown = self.live.values().map(|live| BookEffect::Show(Box::new(live.record.clone())));
        self.effects.extend(shown);
    }

    /// What is to be done since this was asked last.
    pub(crate) fn effects(&mut self) -> Vec<BookEffect> {
        std::mem::take(&mut self.effects)
    }

    /// So many nodes are there; whether that is another number than before.
    pub(crate) fn has_nodes(&mut self, nodes: usize) -> bool {
        std::mem::replace(&mut self.nodes, nodes) != nodes
    }

    /// Whether what is noted outlives the Scheduler.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Whether it knows which jobs there are.
    pub(crate) fn is_loaded(&self) -> bool {
        self.early.is_none()
    }

    /// A job that is not over, or was so a moment ago; `None`: it is in the history, or unknown.
    pub(crate) fn record(&self, job: JobId) -> Option<&JobRecord> {
        let over = || self.unarchived.get(&job).map(|(record, ..)| &**record);
        self.live.get(&job).map(|live| &live.record).or_else(over)
    }

    /// How many jobs have their turn before one that waits.
    pub(crate) fn place_in_queue(&self, job: JobId) -> Option<usize> {
        let live = self.live.get(&job).filter(|live| live.record.state == JobState::Queued)?;
        let record = &live.record;
        Some(self.queue.before(&record.tenant, record.priority, record.accepted_unix_ms, job))
    }

    /// How many jobs wait for their turn, and how many are not over, these included.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.queue.len(), self.live.len()]
    }

    /// How many jobs would have their turn before one of this tenant and priority that is handed in now.
    pub(crate) fn queue_before(&self, tenant: &str, priority: i32) -> usize {
        self.queue.before(tenant, priority, u64::MAX, JobId::from_u128(u128::MAX))
    }

    /// The jobs of a tenant, the latest first, from before `before` on: those that are not over with their records, of the others the ids.
    pub(crate) fn list(&self, tenant: &str, all: bool, before: Option<JobId>, most: usize) -> Vec<Listed<'_>> {
        let live =
            self.live.values().map(|live| &live.record).chain(self.unarchived.values().map(|(record, ..)| &**record));
        let mut listed: BTreeMap<JobId, Listed<'_>> = live
            .filter(|record| *record.tenant == *tenant && (all || !record.state.is_over()))
            .map(|record| (record.job, Listed::Record(record)))
            .collect();
        if all {
            for ended in self.history.of(tenant, before, most) {
                listed.entry(ended.job).or_insert(Listed::Ended(ended));
            }
        }
        let wanted = listed.into_iter().rev().filter(|(job, _)| before.is_none_or(|before| *job < before));
        wanted.map(|(_, listed)| listed).take(most).collect()
    }

    /// Up to two jobs of a tenant whose ids begin with these digits, of which there are less than 32.
    pub(crate) fn find(&self, tenant: &str, digits: &str) -> Vec<JobId> {
        let Ok(first) = u128::from_str_radix(digits, 16) else { return Vec::new() };
        let free = 128 - 4 * digits.len().min(31) as u32;
        let (first, last) = (JobId::from_u128(first << free), JobId::from_u128((first << free) | ((1 << free) - 1)));
        let live =
            self.live.range(first..=last).filter(|(_, live)| *live.record.tenant == *tenant).map(|(job, _)| *job);
        let over = self.history.between(first, last).filter(|ended| *ended.tenant == *tenant).map(|ended| ended.job);
        live.chain(over).take(2).collect()
    }

    /// What is remembered of a job that is over, as long as that is.
    pub(crate) fn ended(&self, job: JobId) -> Option<&Ended> {
        self.history.get(job)
    }

    /// The jobs that should have a host now, and the one that each has, as far as is known.
    pub(crate) fn hosted(&self) -> impl Iterator<Item = &JobRecord> {
        self.live.values().map(|live| &live.record).filter(|record| record.state.is_hosted())
    }

    /// Takes one event in; `now` is on the node's clock, `unix_ms` the wall's.
    pub(crate) fn on(&mut self, now: Duration, unix_ms: u64, event: BookEvent) {
        match (&mut self.early, event) {
            (_, BookEvent::Loaded(found)) => self.loaded(now, unix_ms, *found),
            (_, BookEvent::Appended(sequence)) => self.appended(now, unix_ms, sequence),
            (_, BookEvent::Lost) => self.lost(),
            (Some(_), BookEvent::Tick) => {}
            (Some(early), event @ (BookEvent::Submit { .. } | BookEvent::Cancel { .. }))
                if early.len() < ASKED_EARLY_MAX =>
            {
                early.push(event);
            }
            (Some(_), BookEvent::Submit { ask, .. } | BookEvent::Cancel { ask, .. }) => {
                self.refuse(
                    ask,
                    "unavailable",
                    "the Scheduler has just begun, and learns which jobs there are: ask again",
                );
            }
            (Some(early), event) if early.len() < EARLY_MAX => early.push(event),
            (Some(_), _) => {}
            (None, event) => self.take(now, unix_ms, event),
        }
        self.append();
    }

    fn take(&mut self, now: Duration, unix_ms: u64, event: BookEvent) {
        match event {
            BookEvent::Submit { ask, submission } => self.submit(ask, *submission, unix_ms),
            BookEvent::Cancel { ask, tenant, job, who } => self.cancel(unix_ms, ask, &tenant, job, who),
            BookEvent::Placed { job, answer } => self.placed(now, job, answer),
            BookEvent::TurnedAway { job } => self.again(now, job),
            BookEvent::Started { job, host } => self.started(job, host, unix_ms),
            BookEvent::Committing { job } => {
                if self.live.get(&job).is_some_and(|live| !live.ends && live.record.state != JobState::Committing) {
                    self.note(Transition::Committing(job), Vec::new());
                }
            }
            BookEvent::Ended { job, outcome } => self.end(job, &outcome, unix_ms, Vec::new()),
            BookEvent::Archived(jobs) => self.archived(jobs),
            BookEvent::Read(read) => self.carry(read),
            BookEvent::Tick => self.tick(now, unix_ms),
            BookEvent::Missing { job } => self.missing(job, unix_ms),
            BookEvent::Loaded(_) | BookEvent::Appended(_) | BookEvent::Lost => {}
        }
        self.start(now);
    }

    // --- what becomes durable -------------------------------------------------------------------------------------------------

    fn note(&mut self, transition: Transition, answers: Vec<(Ask, Standing)>) {
        self.waiting.push(Waiting { transition, answers });
    }

    /// Sends off what waits, as much as a record has, unless another one is under way.
    fn append(&mut self) {
        if self.waiting.is_empty() || !self.under_way.is_empty() {
            return;
        }
        let mut bytes = 0;
        let fits = self.waiting.iter().take_while(|waiting| {
            bytes += waiting.transition.bytes();
            bytes <= RECORD_BYTES_MAX
        });
        let count = fits.count().max(1);
        self.under_way = self.waiting.drain(..count).collect();
        let transitions = self.under_way.iter().map(|waiting| waiting.transition.clone()).collect();
        self.effects.push(BookEffect::Append(transitions));
    }

    /// The journal begins anew. What stands here is noted again; of what is to run and was in no other place nothing is left.
    fn lost(&mut self) {
        let again = self.live.values_mut().map(|live| {
            let carried = match &live.bodies {
                BodiesAt::Here(bodies) => Carried::Here(bodies.clone()),
                BodiesAt::Pieces(pieces) => Carried::Pieces(*pieces),
                BodiesAt::Journal(_) | BodiesAt::Nowhere => match &live.kept {
                    Some(bodies) => Carried::Here(bodies.clone()),
                    None => Carried::Nowhere,
                },
            };
            Waiting { transition: Transition::Accepted(Box::new(live.record.clone()), carried), answers: Vec::new() }
        });
        let again: Vec<Waiting> = again.collect();
        let waiting = std::mem::take(&mut self.under_way).into_iter().chain(std::mem::take(&mut self.waiting));
        self.waiting = again.into_iter().chain(waiting).collect();
        (self.trimmed, self.last) = (0, 0);
    }

    fn appended(&mut self, now: Duration, unix_ms: u64, sequence: u64) {
        self.last = sequence;
        for Waiting { transition, answers } in std::mem::take(&mut self.under_way) {
            self.apply(sequence, transition, unix_ms);
            for (ask, standing) in answers {
                self.effects.push(BookEffect::Answer(ask, Ok(standing)));
            }
        }
        if self.is_loaded() {
            self.archive();
            self.trim();
            self.start(now);
        }
    }

    /// What has happened, and is durable.
    fn apply(&mut self, sequence: u64, transition: Transition, unix_ms: u64) {
        match transition {
            Transition::Begins(_) => {}
            Transition::Accepted(record, carried) => self.accepted(sequence, *record, carried),
            Transition::Started { job, host, at_unix_ms } => self.change(job, JobState::Running, |record| {
                record.host = Some(host);
                record.runs += 1;
                // A time limit is of all runs.
                record.started_unix_ms.get_or_insert(at_unix_ms);
            }),
            Transition::Committing(job) => self.change(job, JobState::Committing, |_| {}),
            Transition::Stopped(job, stop) => {
                if let Some(live) = self.live.get_mut(&job) {
                    live.record.stop.get_or_insert(stop);
                    self.effects.push(BookEffect::Show(Box::new(live.record.clone())));
                    self.effects.extend(live.record.host.clone().map(|node| BookEffect::Cancel { node, job }));
                }
            }
            Transition::Ended { job, state, outcome, at_unix_ms } => {
                self.change(job, state, |record| {
                    record.ended_unix_ms = Some(at_unix_ms);
                    record.outcome = Some(outcome);
                });
                self.is_over(job, unix_ms);
            }
        }
    }

    fn accepted(&mut self, sequence: u64, mut record: JobRecord, carried: Carried) {
        let job = record.job;
        if record.state == JobState::Starting {
            // What is noted once more may say so. Whether it did its log knows, and whoever opens that.
            (record.state, record.host) = (JobState::Queued, None);
        }
        if self.history.get(job).is_some() {
            return;
        }
        if let Some(key) = &record.key {
            self.keys.add((&record.tenant, key), (job, record.spec), record.accepted_unix_ms);
        }
        if let Some(live) = self.live.get(&job) {
            self.by_noted.remove(&(live.noted, job));
        }
        self.by_noted.insert((sequence, job));
        let at = carried.at(sequence);
        let (bodies, kept) = match carried {
            Carried::Here(bodies) if !self.durable => (BodiesAt::Here(bodies), None),
            // What is in the journal takes little memory here.
            Carried::Here(bodies) => (at, self.small(bodies)),
            Carried::Pieces(_) | Carried::Nowhere => (at, None),
        };
        if let Some(live) = self.live.get_mut(&job) {
            // It is noted once more.
            (live.noted, live.bodies) = (sequence, bodies);
            return;
        }
        if record.state == JobState::Queued {
            self.queue.add(&record.tenant, record.priority, record.accepted_unix_ms, job);
        }
        *self.of_tenant.entry(record.tenant.clone()).or_default() += 1;
        self.live_bytes += live_bytes(&record);
        self.kept_bytes += kept.as_ref().map_or(0, |bodies| bodies.bytes());
        self.effects.push(BookEffect::Show(Box::new(record.clone())));
        let (starting, stop_told) = (None, None);
        self.live.insert(
            job,
            Live { record, bodies, kept, noted: sequence, missing: 0, starting, begun: false, ends: false, stop_told },
        );
    }

    /// Of what a job was accepted with, what is small, as far as there is room for it.
    fn small(&self, bodies: Bodies) -> Option<Bodies> {
        let bytes = bodies.bytes();
        let fits = bytes > 0 && bytes <= KEPT_BYTES_EACH && self.kept_bytes + bytes <= KEPT_BYTES_MAX;
        fits.then_some(bodies)
    }

    fn change(&mut self, job: JobId, state: JobState, how: impl FnOnce(&mut JobRecord)) {
        let Some(live) = self.live.get_mut(&job).filter(|live| live.record.state.may_become(state)) else { return };
        let record = &mut live.record;
        if record.state == JobState::Queued {
            self.queue.remove(&record.tenant, record.priority, record.accepted_unix_ms, job);
        }
        record.state = state;
        live.starting = None;
        how(record);
        self.effects.push(BookEffect::Show(Box::new(record.clone())));
    }

    // --- what others say ------------------------------------------------------------------------------------------------------

    fn refuse(&mut self, ask: Ask, code: &str, message: &str) {
        self.effects.push(BookEffect::Answer(ask, Err(Reason::new(code, message))));
    }

    fn submit(&mut self, ask: Ask, submission: Submission, unix_ms: u64) {
        let Submission { mut record, carried } = submission;
        let job = record.job;
        if let Some(same) = self.is_same(&record) {
            // The same question again, as the answer before was not there in time; or somebody who takes another one's id.
            return self.submit_again(ask, job, same, &job.to_string());
        }
        let mut keyed = None;
        if let Some(key) = record.key.clone() {
            if let Some((job, spec)) = self.keys.of(&record.tenant, &key, unix_ms) {
                return self.submit_again(ask, job, spec == record.spec.hash, &key);
            }
            keyed = Some(key);
        }
        let noted = self.under_way.iter().chain(&self.waiting).filter(|waiting| {
            matches!(&waiting.transition, Transition::Accepted(noted, _) if noted.tenant == record.tenant && !self.live.contains_key(&noted.job))
        });
        let of_tenant = self.of_tenant.get(&record.tenant).copied().unwrap_or(0) + noted.count();
        let most = self.quotas.get(&record.tenant).jobs;
        if of_tenant >= most {
            let text = format!(
                "tenant {} has {of_tenant} jobs that are not over, and may have {most}: wait for some to end",
                record.tenant
            );
            return self.refuse(ask, "quota", &text);
        }
        if self.durable && self.live_bytes + live_bytes(&record) > LIVE_BYTES_MAX {
            let text = "the jobs that wait have as many bytes as the journal may have: wait for some to end";
            return self.refuse(ask, "quota", text);
        }
        if let Some(key) = keyed {
            self.keys.add((&record.tenant, &key), (job, record.spec), unix_ms);
        }
        record.state = JobState::Queued;
        record.accepted_unix_ms = unix_ms;
        let standing = Standing { job: record.job, state: JobState::Queued, known: false };
        self.note(Transition::Accepted(Box::new(record), carried), vec![(ask, standing)]);
    }

    /// Whether a job of this id is known that is of the same tenant and spec; `None`: none is known.
    fn is_same(&self, handed_in: &JobRecord) -> Option<bool> {
        let is = |known: &JobRecord| (&known.tenant, known.spec.hash) == (&handed_in.tenant, handed_in.spec.hash);
        let noted =
            self.under_way.iter().chain(&self.waiting).find_map(|waiting| waiting.accepts(handed_in.job)).map(is);
        let ended = || self.history.get(handed_in.job).map(|ended| ended.tenant == handed_in.tenant);
        self.record(handed_in.job).map(is).or(noted).or_else(ended)
    }

    /// A job is handed in with a key that stands for one already.
    fn submit_again(&mut self, ask: Ask, job: JobId, same: bool, key: &str) {
        if !same {
            let text = format!("the key {key:?} stands for job {job}, which has another spec; it does for 24 hours");
            return self.refuse(ask, "key_taken", &text);
        }
        let state = self.record(job).map(|record| record.state).or(self.history.get(job).map(|ended| ended.state));
        let standing = Standing { job, state: state.unwrap_or(JobState::Queued), known: true };
        if state.is_some() {
            return self.effects.push(BookEffect::Answer(ask, Ok(standing)));
        }
        let mut noted = self.under_way.iter_mut().chain(&mut self.waiting);
        match noted.find(|waiting| waiting.accepts(job).is_some()) {
            Some(waiting) => waiting.answers.push((ask, standing)),
            None => {
                let text = format!(
                    "the key {key:?} stands for job {job}, which is over for long: nothing else is known of it"
                );
                self.refuse(ask, "forgotten", &text);
            }
        }
    }

    fn cancel(&mut self, unix_ms: u64, ask: Ask, tenant: &str, job: JobId, who: Option<String>) {
        let Some(live) = self.live.get_mut(&job).filter(|live| *live.record.tenant == *tenant) else {
            let over = self.unarchived.get(&job).map(|(record, ..)| (record.tenant.clone(), record.state));
            let over = over.or_else(|| self.history.get(job).map(|ended| (ended.tenant.clone(), ended.state)));
            return match over.filter(|(of, _)| **of == *tenant) {
                Some((_, state)) => {
                    self.effects.push(BookEffect::Answer(ask, Ok(Standing { job, state, known: true })));
                }
                None => self.refuse(ask, "unknown_job", &format!("tenant {tenant} has no job {job}")),
            };
        };
        if live.record.state == JobState::Queued && live.starting.is_none() && !live.ends {
            let standing = Standing { job, state: JobState::Cancelled, known: true };
            return self.end(job, &never_begun(), unix_ms, vec![(ask, standing)]);
        }
        let standing = Standing { job, state: live.record.state, known: true };
        if live.ends || live.record.stop.is_some() {
            return self.effects.push(BookEffect::Answer(ask, Ok(standing)));
        }
        let stop = Stop { at_unix_ms: unix_ms, who, limit_ms: None };
        self.note(Transition::Stopped(job, stop), vec![(ask, standing)]);
    }

    fn placed(&mut self, now: Duration, job: JobId, answer: Result<Placement, Refusal>) {
        let Some(live) = self.live.get_mut(&job).filter(|live| live.starting.is_some() && !live.ends) else { return };
        match answer {
            Ok(Placement { node, .. }) => {
                live.starting = Some((now, Some(node.clone())));
                live.record.state = JobState::Starting;
                live.record.host = Some(node.clone());
                let (record, bodies) = (Box::new(live.record.clone()), live.bodies.clone());
                self.effects.push(BookEffect::Show(record.clone()));
                self.effects.push(BookEffect::Run { node, record, bodies });
            }
            // It waits for a node that has its program, or for any.
            Err(_) => self.again(now, job),
        }
    }

    /// A job that could not be started waits, a moment at least.
    fn again(&mut self, now: Duration, job: JobId) {
        let Some(live) = self.live.get_mut(&job).filter(|live| live.starting.is_some() && !live.ends) else { return };
        live.starting = None;
        live.record.state = JobState::Queued;
        live.record.host = None;
        self.effects.push(BookEffect::Show(Box::new(live.record.clone())));
        self.held.push((now + HELD_FOR, job));
    }

    /// Those that have waited that moment are in the queue again.
    fn release(&mut self, now: Duration, unix_ms: u64) {
        let mut stopped = Vec::new();
        let live = &self.live;
        let queue = &mut self.queue;
        self.held.retain(|(until, job)| {
            let waits = now < *until;
            let queued = |live: &&Live| live.record.state == JobState::Queued && live.starting.is_none() && !live.ends;
            if let Some(Live { record, .. }) = live.get(job).filter(queued).filter(|_| !waits) {
                stopped.extend(record.stop.is_some().then_some(*job));
                queue.add(&record.tenant, record.priority, record.accepted_unix_ms, *job);
            }
            waits
        });
        // Somebody has wanted that meanwhile.
        stopped.into_iter().for_each(|job| self.end(job, &never_begun(), unix_ms, Vec::new()));
    }

    /// A job of which there is nothing: when that is so again and again, it is lost. Of one that waits there is nothing yet.
    fn missing(&mut self, job: JobId, unix_ms: u64) {
        let Some(live) = self.live.get_mut(&job).filter(|live| live.record.state.is_hosted()) else { return };
        live.missing += 1;
        if live.missing >= MISSING_MAX {
            if let Some(bodies) = live.kept.clone() {
                // It begins anew, wherever there is room.
                (live.missing, live.begun, live.record.host) = (0, false, None);
                live.record.state = JobState::Queued;
                live.bodies = BodiesAt::Here(bodies);
                let record = &live.record;
                self.queue.add(&record.tenant, record.priority, record.accepted_unix_ms, job);
                return self.effects.push(BookEffect::Show(Box::new(record.clone())));
            }
            // Should it run somewhere all the same, it ends there.
            self.effects.extend(live.record.host.clone().map(|node| BookEffect::Cancel { node, job }));
            let text = "the node that ran it is gone, and there is no log to take it up from";
            self.end(job, &Outcome::failed(Reason::new("lost", text)), unix_ms, Vec::new());
        }
    }

    fn started(&mut self, job: JobId, host: NodeId, unix_ms: u64) {
        let Some(live) = self.live.get_mut(&job).filter(|live| !live.ends) else {
            // One that was ended while it was taken for one that waits, say, is to end there, too. One that is not known at all, as the
            // servers were emptied, goes on.
            if self.record(job).is_some() || self.history.get(job).is_some() {
                self.effects.push(BookEffect::Cancel { node: host, job });
            }
            return;
        };
        live.missing = 0;
        let record = &live.record;
        let is_known = record.state.is_hosted() || live.begun;
        if is_known && record.host.as_ref() == Some(&host) {
            return;
        }
        live.begun = true;
        if record.state == JobState::Queued {
            // Another Scheduler has started it.
            self.queue.remove(&record.tenant, record.priority, record.accepted_unix_ms, job);
            live.record.state = JobState::Starting;
        }
        live.starting = None;
        live.record.host = Some(host.clone());
        self.note(Transition::Started { job, host, at_unix_ms: unix_ms }, Vec::new());
    }

    fn end(&mut self, job: JobId, outcome: &Outcome, unix_ms: u64, answers: Vec<(Ask, Standing)>) {
        let Some(live) = self.live.get_mut(&job).filter(|live| !live.ends) else { return };
        live.ends = true;
        live.starting = None;
        let record = &live.record;
        if record.state == JobState::Queued {
            self.queue.remove(&record.tenant, record.priority, record.accepted_unix_ms, job);
        }
        let (state, outcome) = record.end_state(outcome);
        self.note(Transition::Ended { job, state, outcome, at_unix_ms: unix_ms }, answers);
    }

    /// The end of a job is durable.
    fn is_over(&mut self, job: JobId, unix_ms: u64) {
        let Some(live) = self.live.remove(&job) else { return };
        if let Some(count) = self.of_tenant.get_mut(&live.record.tenant) {
            *count -= 1;
        }
        self.of_tenant.retain(|_, count| *count > 0);
        self.live_bytes -= live_bytes(&live.record);
        self.kept_bytes -= live.kept.as_ref().map_or(0, |bodies| bodies.bytes());
        let forgotten = self.history.add(Ended::of(&live.record), unix_ms);
        self.unarchived.insert(job, (Box::new(live.record), live.bodies, live.noted));
        self.forget(forgotten);
    }

    fn forget(&mut self, forgotten: Vec<(Arc<str>, JobId)>) {
        for (_, job) in &forgotten {
            if let Some((.., noted)) = self.unarchived.remove(job) {
                self.by_noted.remove(&(noted, *job));
            }
        }
        if !forgotten.is_empty() {
            self.effects.push(BookEffect::Forget(forgotten));
        }
    }

    // --- turns ----------------------------------------------------------------------------------------------------------------

    /// Starts what has its turn.
    fn start(&mut self, now: Duration) {
        while let Some(tenant) = self.next_tenant() {
            let Some(live) = self.queue.take(&tenant).and_then(|job| self.live.get_mut(&job)) else { return };
            live.starting = Some((now, None));
            let (job, program) = (live.record.job, Arc::from(live.record.program.as_str()));
            self.effects.push(BookEffect::Place { job, tenant, program });
        }
    }

    /// The tenant whose turn it is: of those of which another job may be under way, the one with the fewest.
    fn next_tenant(&self) -> Option<Arc<str>> {
        let has_room = self.live.len() - self.queue.len() < self.options.per_node * self.nodes;
        let of_each = if has_room { usize::MAX } else { self.options.first_per_node * self.nodes };
        let waiting = self.queue.tenants().filter_map(|tenant| {
            let all = self.of_tenant.get(tenant).copied().unwrap_or(0);
            let under_way = all.saturating_sub(self.queue.len_of(tenant));
            // One that could not start, and waits a moment, keeps no other one of its tenant from starting.
            let of_tenant =
                |(_, job): &&(Duration, JobId)| self.live.get(job).is_some_and(|live| live.record.tenant == *tenant);
            let held = self.held.iter().filter(of_tenant).count();
            let most = self.quotas.get(tenant).jobs_running.unwrap_or(usize::MAX).min(of_each);
            (self.nodes > 0 && under_way.saturating_sub(held) < most).then_some((under_way, tenant))
        });
        waiting.min().map(|(_, tenant)| tenant.clone())
    }

    fn tick(&mut self, now: Duration, unix_ms: u64) {
        let (mut late, mut over) = (Vec::new(), Vec::new());
        for (job, live) in &mut self.live {
            if live.starting.as_ref().is_some_and(|(since, _)| now >= *since + STARTS_IN) {
                late.push(*job);
            }
            let record = &live.record;
            let began = record.started_unix_ms.filter(|_| !live.ends && record.stop.is_none());
            if let Some((limit_ms, _)) =
                record.limit_ms.zip(began).filter(|(limit, at)| at.saturating_add(*limit) <= unix_ms)
            {
                over.push((*job, Stop { at_unix_ms: unix_ms, who: None, limit_ms: Some(limit_ms) }));
            }
            let tells = record.stop.is_some() && !live.ends && live.stop_told.is_none_or(|at| now >= at + TELL_EVERY);
            if let Some(node) = record.host.clone().filter(|_| tells) {
                live.stop_told = Some(now);
                self.effects.push(BookEffect::Cancel { node, job: *job });
            }
        }
        late.into_iter().for_each(|job| self.again(now, job));
        self.release(now, unix_ms);
        for (job, stop) in over {
            // It is noted once: by then it has a stop.
            if !self.is_noted(|transition| matches!(transition, Transition::Stopped(of, _) if *of == job)) {
                self.note(Transition::Stopped(job, stop), Vec::new());
            }
        }
        self.keys.forget_old(unix_ms);
        let forgotten = self.history.forget_old(unix_ms);
        self.forget(forgotten);
        self.archive();
        self.trim();
    }

    fn is_noted(&self, what: impl Fn(&Transition) -> bool) -> bool {
        self.under_way.iter().chain(&self.waiting).any(|waiting| what(&waiting.transition))
    }

    // --- journal and history --------------------------------------------------------------------------------------------------

    fn loaded(&mut self, now: Duration, unix_ms: u64, Found { transitions, ended }: Found) {
        let Some(early) = self.early.take() else { return };
        for (ended, keyed) in ended {
            if let Some((key, spec, accepted_unix_ms)) = keyed {
                self.keys.add((&ended.tenant, &key), (ended.job, spec), accepted_unix_ms);
            }
            let forgotten = self.history.add(ended, unix_ms);
            self.forget(forgotten);
        }
        for (sequence, transition) in transitions {
            self.last = self.last.max(sequence);
            self.apply(sequence, transition, unix_ms);
        }
        for event in early {
            self.take(now, unix_ms, event);
        }
        self.archive();
        self.start(now);
    }

    fn archive(&mut self) {
        if self.archiving || self.unarchived.is_empty() {
            return;
        }
        if !self.durable {
            // The latest stay here.
            while self.unarchived.len() > KEPT_IN_MEMORY {
                if let Some((job, (.., noted))) = self.unarchived.pop_first() {
                    self.by_noted.remove(&(noted, job));
                }
            }
            return;
        }
        self.archiving = true;
        let some = self.unarchived.values().take(64).map(|(record, bodies, _)| (record.clone(), bodies.clone()));
        self.effects.push(BookEffect::Archive(some.collect()));
    }

    fn archived(&mut self, jobs: Vec<JobId>) {
        self.archiving = false;
        for job in jobs {
            if let Some((.., noted)) = self.unarchived.remove(&job) {
                self.by_noted.remove(&(noted, job));
            }
        }
        self.archive();
        self.trim();
    }

    /// Lets the journal become shorter: what stands before the oldest job that is not over goes; where that is one of long ago, it is noted
    /// once more.
    fn trim(&mut self) {
        if !self.durable || self.reading || self.last == 0 {
            return;
        }
        let first = self.by_noted.first().map_or(self.last, |(noted, _)| *noted);
        if first > self.trimmed + LAG_MAX / 8 || self.by_noted.is_empty() && first > self.trimmed {
            self.trimmed = first;
            self.effects.push(BookEffect::Trim(first));
        } else if self.last > first + LAG_MAX {
            let old = self.by_noted.iter().take_while(|(noted, _)| self.last > noted + LAG_MAX / 2);
            let of_live = |(noted, job): &&(u64, JobId)| self.live.get(job).is_some_and(|live| live.noted == *noted);
            let old: Vec<_> = old.filter(of_live).take(256).map(|(noted, job)| (*job, *noted)).collect();
            if !old.is_empty() {
                self.reading = true;
                self.effects.push(BookEffect::Read(old));
            }
        }
    }

    fn carry(&mut self, read: Vec<(JobId, Carried)>) {
        self.reading = false;
        for (job, carried) in read {
            // What is about to be noted of it would be lost behind what it is now: it is read again later.
            if self.is_noted(|noted| noted.job() == Some(job)) {
                continue;
            }
            if let Some(live) = self.live.get(&job).filter(|live| !live.ends) {
                let carried = if live.record.state > JobState::Starting { Carried::Nowhere } else { carried };
                self.note(Transition::Accepted(Box::new(live.record.clone()), carried), Vec::new());
            }
        }
    }
}

/// What a job that is not over has in the journal, about; what is larger than stands there is elsewhere.
fn live_bytes(record: &JobRecord) -> usize {
    let bodies = record.spec.bytes + record.plan.bytes;
    1024 + if bodies <= INLINE_BYTES_MAX as u64 { bodies as usize } else { 0 }
}

/// How a job ended that was cancelled while it waited.
fn never_begun() -> Outcome {
    Outcome { cancelled: true, ..Outcome::failed(Reason::new("cancelled", "cancelled before it began")) }
}

/// A row of a list.
#[derive(Clone, Debug)]
pub(crate) enum Listed<'a> {
    /// All that is known.
    Record(&'a JobRecord),
    /// The rest is in the history.
    Ended(&'a Ended),
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
