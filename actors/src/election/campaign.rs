//! What a candidate does to the world: keys written, the Scheduler of this node told, who asks answered.

use std::time::Duration;

use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::{Bus, BusError, Refusals, Subjects, SubscribeOptions};
use futures::future::{FutureExt as _, LocalBoxFuture};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use twox_hash::XxHash3_64;

use super::state::{Answer, Effect, ElectionOptions, Event, MAKE_AFTER, State};
use crate::durable::open_durable;
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::joblog::JobLogs;
use crate::joining::{Beats, ClusterOptions, Names, NoScheduler, NodeError, somebody_answers};
use crate::membership::{Directory, MembershipEvent};
use crate::protocol::scheduler::Reign;
use crate::scheduler::{Listing, SchedulerEvent, SchedulerLink};
use crate::shell::{Fatal, Inbox, Post};

/// The bucket, and its one key.
const BUCKET: &str = "scheduler";
const KEY: &str = "lease";
/// The bucket holds a few hundred bytes.
const BUCKET_BYTES: u64 = 64 * 1024;
/// How long an answer of the bucket may take before it counts as lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take to make what the servers have lost.
const MAKE_DEADLINE: Duration = Duration::from_secs(5);
/// How often who has just come looks whether others have made it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the farewell to the key may take.
const RELEASE_DEADLINE: Duration = Duration::from_secs(1);

/// On what an election is held.
pub(crate) enum Ground {
    /// A bucket of keys.
    Keys(Box<Keys>),
    /// The word of the configuration that there is one candidate.
    Word,
}

/// The bucket of the lease, and what is added to its revisions to make epochs.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    kv: Kv,
    base: u64,
    names: Names,
}

impl Keys {
    fn config(subjects: &Subjects) -> Result<KvConfig, BusError> {
        Ok(KvConfig {
            ttl: super::TTL,
            bytes_max: BUCKET_BYTES,
            deletions_kept: Duration::from_secs(60),
            deadline: ANSWER_DEADLINE,
            ..KvConfig::new(&subjects.durable_name("kv", BUCKET)?, subjects.kv(BUCKET)?)
        })
    }

    /// Opens everything that a cluster keeps on its servers, and makes what is not there: first what proves the nodes' token. `Ok(Err(_))`:
    /// they keep nothing for us. `anew`: in a cluster that had it before.
    async fn open(
        bus: &Bus,
        subjects: &Subjects,
        anew: bool,
        deadline: Duration,
    ) -> Result<Result<Self, BusError>, BusError> {
        let config = Self::config(subjects)?;
        let open = async || Ok((Names::make(bus, subjects, anew).await?, Kv::open(bus, &config).await?));
        let (names, kv) = match open_durable(deadline, open).await? {
            Ok(opened) => opened,
            Err(none) => return Ok(Err(none)),
        };
        let base = match JobLogs::open(bus, subjects, anew, deadline).await? {
            Some(logs) => match open_durable(deadline, async || logs.identity().await).await? {
                Ok(identity) => epochs_of(&identity),
                Err(none) => return Ok(Err(none)),
            },
            None => 0,
        };
        Ok(Ok(Self { kv, base, names }))
    }

    /// Whether others are there, and the servers have nothing: they were emptied. That is not for who has just come to say, so it waits a
    /// while. Every node that lives is heard within `beat`.
    async fn were_emptied(bus: &Bus, subjects: &Subjects, beat: Duration) -> Result<bool, NodeError> {
        let (config, refusals) = (Self::config(subjects)?, Refusals::default());
        let missing = async || matches!(Kv::is_there(bus, &config).await, Ok(false));
        if !missing().await {
            return Ok(false);
        }
        let (mut beats, mut others) = (Beats::hear(bus, subjects).await?, false);
        let waiting = async {
            while missing().await && (somebody_answers(bus, subjects, &refusals).await? || beats.within(beat).await) {
                others = true;
                sleep(LOOK_EVERY).await;
            }
            Ok::<_, NodeError>(())
        };
        // A candidate that answers makes it within that time, or is gone.
        timeout(MAKE_AFTER + ANSWER_DEADLINE, waiting).await.unwrap_or(Ok(()))?;
        Ok(others)
    }
}

/// Loses everything that a cluster keeps on its servers, as one does that is emptied.
#[cfg(feature = "simulation")]
pub(crate) async fn lose(bus: &Bus, subjects: &Subjects) -> Result<(), BusError> {
    if let Ok(keys) = Keys::open(bus, subjects, true, MAKE_DEADLINE).await? {
        keys.names.lose().await?;
        keys.kv.stream().delete().await?;
    }
    match JobLogs::open(bus, subjects, true, MAKE_DEADLINE).await? {
        Some(logs) => logs.lose().await,
        None => Ok(()),
    }
}

/// The first epochs of streams of this identity; those of two do not meet.
fn epochs_of(identity: &str) -> u64 {
    XxHash3_64::oneshot(identity.as_bytes()) >> 33 << 32
}

impl Ground {
    /// The names of nodes, where they are kept.
    pub(crate) fn names(&self) -> Option<Names> {
        match self {
            Self::Keys(keys) => Some(keys.names.clone()),
            Self::Word => None,
        }
    }

    /// Looks what the cluster's servers offer; tries for its deadline.
    ///
    /// # Errors
    /// The bus does not answer, or refuses; what is there is of nodes with another token.
    pub(crate) async fn of(cluster: &ClusterOptions) -> Result<Self, NodeError> {
        let (bus, subjects) = (&cluster.bus, &cluster.subjects);
        let anew = Keys::were_emptied(bus, subjects, cluster.membership.probe_after()).await?;
        let opened = Keys::open(bus, subjects, anew, cluster.join_deadline).await;
        match opened.map_err(|error| Names::refused(error, subjects))? {
            Ok(keys) => Ok(Self::Keys(Box::new(keys))),
            Err(error) => {
                warn!(
                    %error,
                    "the NATS server has no JetStream: there is no election, and exactly one node may say scheduler = true; \
                     when it is gone, new jobs wait for it"
                );
                Ok(Self::Word)
            }
        }
    }
}

/// What a campaign needs.
pub(crate) struct CampaignParts {
    pub(crate) post: Post,
    pub(crate) bus: Bus,
    pub(crate) subjects: Subjects,
    pub(crate) ground: Ground,
    pub(crate) link: SchedulerLink,
    pub(crate) directory: Directory,
    pub(crate) scheduler: Inbox<SchedulerEvent>,
    pub(crate) membership: Inbox<MembershipEvent>,
}

/// A candidate at work; it ends when this is dropped, without a farewell.
pub(crate) struct Campaign {
    leave: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Campaign {
    /// Begins, on this arbiter.
    pub(crate) fn start(parts: CampaignParts) -> Self {
        let (leave, left) = oneshot::channel();
        let runner = Runner { me: candidate(&parts.post), place: None, listing: None, trouble: None, parts };
        let task = match runner.parts.ground {
            Ground::Keys(ref keys) => {
                let keys = keys.clone();
                tokio::task::spawn_local(runner.contend(keys, left))
            }
            Ground::Word => tokio::task::spawn_local(runner.reign_alone(left)),
        };
        Self { leave: Some(leave), task }
    }

    /// Gives the lease back, so that the next one need not wait for its end.
    pub(crate) async fn leave(mut self) {
        if let Some(leave) = self.leave.take() {
            let _ = leave.send(());
        }
        // What was not released expires.
        let _ = timeout(RELEASE_DEADLINE, &mut self.task).await;
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the key says: which life of which node has it. For people, too.
fn candidate(post: &Post) -> String {
    let (node, Incarnation(incarnation)) = (post.node(), post.incarnation());
    format!("{node} {incarnation}")
}

struct Runner {
    parts: CampaignParts,
    me: String,
    /// Answers who looks for the Scheduler, while it is here, ...
    place: Option<Service>,
    /// ... and who wants to know its jobs.
    listing: Option<Listing>,
    /// Answers who looks for it in vain, while it cannot be anywhere.
    trouble: Option<(Cause, Service)>,
}

/// Why nobody can be the Scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    StoresNothing,
    Emptied,
}

impl Cause {
    fn of(state: &State) -> Option<Self> {
        match () {
            () if state.reign().is_some() => None,
            () if state.is_emptied() => Some(Self::Emptied),
            () if state.stores_nothing() => Some(Self::StoresNothing),
            () => None,
        }
    }

    /// For who looks for the Scheduler.
    fn told(self, node: &NodeId, cluster: &str) -> NoScheduler {
        let why = match self {
            Self::StoresNothing => format!(
                "{node} cannot take the lease of the scheduler: the NATS server answers, but stores nothing; its disk may be full"
            ),
            Self::Emptied => format!(
                "the NATS server answers, and has nothing of cluster {cluster}: its store was removed, or it is another server. \
                 {node} makes what is missing anew when that has been so for {} s",
                MAKE_AFTER.as_secs()
            ),
        };
        NoScheduler { why, passes: self == Self::Emptied }
    }
}

impl Runner {
    async fn contend(mut self, keys: Box<Keys>, mut left: oneshot::Receiver<()>) {
        let clock = self.parts.post.clock().clone();
        let Keys { kv, base, .. } = *keys;
        let mut state = State::new(ElectionOptions::default(), base, clock.now());
        let mut heard = self.parts.link.changes();
        let mut asked: Option<LocalBoxFuture<'static, Answer>> = None;
        let (mut effects, mut leaving) = (Vec::new(), false);
        loop {
            let wait = state.next_wakeup().map(|at| at.saturating_sub(clock.now()));
            let event = tokio::select! {
                biased;
                _ = &mut left, if !leaving => {
                    leaving = true;
                    Event::Leave
                }
                answer = async { asked.as_mut().expect("looked before").await }, if asked.is_some() => {
                    asked = None;
                    Event::Answered(answer)
                }
                Ok(()) = heard.changed() => {
                    Event::Heard(self.parts.link.epoch())
                }
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => Event::Tick,
            };
            state.on(clock.now(), event, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Reign { epoch, until, succeeds } => self.begin(epoch, until, succeeds).await,
                    Effect::Extend(until) => self.tell(state.reign(), until),
                    Effect::StepDown(why) => {
                        warn!(node = %self.parts.post.node(), why = why.text(), "no longer the scheduler");
                        self.end();
                    }
                    Effect::Release(revision) => {
                        if let Err(error) = kv.delete(KEY, Some(revision)).await {
                            debug!(%error, "the lease was not given back");
                        }
                    }
                    Effect::Make => {
                        asked = Some(make(self.parts.bus.clone(), self.parts.subjects.clone()).boxed_local());
                    }
                    Effect::Create | Effect::Update(_) | Effect::Look => {
                        asked = Some(ask(kv.clone(), self.me.clone(), effect).boxed_local());
                    }
                }
            }
            if leaving && asked.is_none() {
                return;
            }
            self.look_for_trouble(&state).await;
        }
    }

    /// Nobody reigns where keys cannot be written: who looks for the Scheduler hears why.
    async fn look_for_trouble(&mut self, state: &State) {
        let cause = Cause::of(state);
        if cause == self.trouble.as_ref().map(|(cause, _)| *cause) {
            return;
        }
        self.trouble = None;
        let Some(cause) = cause else {
            return info!(node = %self.parts.post.node(), "there may be a scheduler again");
        };
        let told = cause.told(self.parts.post.node(), self.parts.subjects.cluster());
        warn!(why = told.why, "there is no scheduler");
        self.trouble = self.serve("election", &told).await.map(|service| (cause, service));
    }

    /// Answers whoever asks something of the service, from now on.
    async fn serve<T: Serialize + Clone + 'static>(&self, service: &str, answer: &T) -> Option<Service> {
        let served = Service::start(&self.parts, service, answer.clone()).await;
        // Nodes hear of a Scheduler all the same.
        served.map_err(|error| warn!(%error, service, "who asks is not answered")).ok()
    }

    /// There is no election: what the configuration says is so, unless somebody else says the same.
    async fn reign_alone(mut self, mut left: oneshot::Receiver<()>) {
        let mut heard = self.parts.link.changes();
        let mut epoch = Epoch(0);
        loop {
            let known = heard.borrow_and_update().clone();
            if let Some(other) = known.as_ref().filter(|other| self.is_rival(other)) {
                return self.parts.post.fatal(second_scheduler(&other.node));
            }
            let known = self.parts.link.epoch();
            if known > epoch || epoch == Epoch(0) {
                epoch = Epoch(self.parts.post.clock().unix_ms().max(known.0.saturating_add(1)));
                self.begin(epoch, Duration::MAX, known > Epoch(0)).await;
            }
            tokio::select! {
                _ = &mut left => return,
                _ = heard.changed() => {}
            }
        }
    }

    /// Whether the Scheduler of another node lives.
    fn is_rival(&self, reign: &Reign) -> bool {
        let members = self.parts.directory.members();
        reign.node != *self.parts.post.node()
            && members.iter().any(|member| member.node == reign.node && !member.health.is_gone())
    }

    async fn begin(&mut self, epoch: Epoch, until: Duration, succeeds: bool) {
        let reign = Reign { epoch, node: self.parts.post.node().clone() };
        info!(node = %reign.node, epoch = epoch.0, "is the scheduler");
        self.tell_of(epoch, until, succeeds);
        self.place = self.serve("scheduler", &reign).await;
        let ways = (&self.parts.bus, &self.parts.post);
        let listing = Listing::start(ways, &self.parts.subjects, self.parts.scheduler.address()).await;
        self.listing = listing.map_err(|error| warn!(%error, "jobs are not listed to who asks")).ok();
        self.parts.link.follow(&reign);
        // At once: the sooner the others know, the sooner jobs go on.
        let _ = self.parts.membership.send(MembershipEvent::Speak);
    }

    fn tell(&self, reign: Option<Epoch>, until: Duration) {
        if let Some(epoch) = reign {
            self.tell_of(epoch, until, true);
        }
    }

    fn tell_of(&self, epoch: Epoch, until: Duration, succeeds: bool) {
        let _ = self.parts.scheduler.send(SchedulerEvent::Reign { epoch, until, succeeds });
    }

    fn end(&mut self) {
        (self.place, self.listing) = (None, None);
        self.parts.link.end_own();
        let _ = self.parts.scheduler.send(SchedulerEvent::StepDown);
    }
}

/// Why a node must end that says that it is the Scheduler, too.
pub(crate) fn second_scheduler(other: &NodeId) -> Fatal {
    let reason = format!(
        "{other} is the scheduler already; without JetStream there is no election, and exactly one node may say \
         scheduler = true"
    );
    Fatal { actor: "election".to_owned(), reason }
}

/// One question to the bucket, to its end.
async fn ask(kv: Kv, me: String, question: Effect) -> Answer {
    let answered = async {
        match question {
            Effect::Create => kv.create(KEY, me).await.map(Answer::Written),
            Effect::Update(revision) => kv.update(KEY, me, revision).await.map(Answer::Written),
            _ => kv.get(KEY).await.map(|entry| match entry {
                Some(entry) if entry.value == me.as_bytes() => Answer::Ours(entry.revision),
                other => Answer::NotOurs(other.map(|entry| entry.revision)),
            }),
        }
    };
    // A question to the bucket may be several to the server, each with a deadline of its own.
    match timeout(ANSWER_DEADLINE, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(BusError::Conflict { .. })) => Answer::Refused,
        Ok(Err(BusError::StreamMissing { .. })) => Answer::Missing,
        Ok(Err(error)) => {
            debug!(%error, "no word of the scheduler's lease");
            Answer::Lost
        }
        Err(_) => {
            debug!("no word of the scheduler's lease in time");
            Answer::Lost
        }
    }
}

/// Makes what the servers have lost, to its end.
async fn make(bus: Bus, subjects: Subjects) -> Answer {
    match timeout(MAKE_DEADLINE, Keys::open(&bus, &subjects, true, MAKE_DEADLINE)).await {
        Ok(Ok(Ok(Keys { base, .. }))) => {
            info!("what the NATS server had lost is there again, as it was made anew");
            Answer::Made { base }
        }
        Ok(Ok(Err(error)) | Err(error)) => {
            let error = Names::refused(error, &subjects);
            warn!(%error, "what the NATS server has lost cannot be made anew now");
            Answer::Lost
        }
        Err(_) => Answer::Lost,
    }
}

/// Answers questions, the same to each, until it is dropped.
struct Service(tokio::task::JoinHandle<()>);

impl Service {
    async fn start<T: Serialize + 'static>(parts: &CampaignParts, service: &str, answer: T) -> Result<Self, BusError> {
        let (bus, post) = (parts.bus.clone(), parts.post.clone());
        let mut questions =
            bus.subscribe(parts.subjects.ctl_all(service)?, SubscribeOptions::questions(service)).await?;
        Ok(Self(tokio::task::spawn_local(async move {
            while let Some(question) = questions.recv().await {
                match bus.asked::<()>(&question) {
                    // Who waits for an answer asks again.
                    Ok(asked) => drop(bus.answer(&question, &asked, &answer)),
                    Err(error) => post.refuse_stranger(question.subject.as_str(), "ctl", &error),
                }
            }
        })))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.abort();
    }
}
