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

use super::core::{ANSWER_DEADLINE, CampaignCore, CampaignEffect, CampaignEvent, LeaseQuestion, UnopposedCore};
use super::state::{Answer, MAKE_AFTER};
use crate::durable::open_durable;
use crate::joblog::JobLogs;
#[cfg(feature = "simulation")]
use crate::joblog::LogsLink;
#[cfg(feature = "simulation")]
use crate::jobs::journal::JournalLink;
use crate::joining::{Beats, ClusterOptions, Names, NodeError, somebody_answers};
use crate::membership::{Directory, MembershipEvent};
use crate::scheduler::{SchedulerEvent, SchedulerLink};
use crate::shell::{Inbox, Post};

/// The bucket, and its one key.
const BUCKET: &str = "scheduler";
const KEY: &str = "lease";
/// The bucket holds a few hundred bytes.
const BUCKET_BYTES: u64 = 64 * 1024;
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

/// The bucket of the lease, and what tells which one it is.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    kv: Kv,
    logs: Option<JobLogs>,
    /// What was added to its revisions to make epochs when it was opened.
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

    /// Opens everything that a cluster keeps on its servers, and makes what is not there: first what proves the nodes' token. Where they are
    /// emptied after a part of it was opened, all of it is opened again. `Ok(Err(_))`: they keep nothing for us. `anew`: in a cluster that
    /// had it before.
    async fn open(
        bus: &Bus,
        subjects: &Subjects,
        anew: bool,
        deadline: Duration,
    ) -> Result<Result<Self, BusError>, BusError> {
        let config = Self::config(subjects)?;
        let open = async || {
            let names = Names::make(bus, subjects, anew).await?;
            let kv = Kv::open(bus, &config).await?;
            let logs = JobLogs::open(bus, subjects, anew, deadline).await?;
            let base = base(logs.as_ref()).await?;
            Ok(Self { kv, logs, base, names })
        };
        open_durable(deadline, open).await
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
    use super::core::MAKE_DEADLINE;

    if let Ok(keys) = Keys::open(bus, subjects, true, MAKE_DEADLINE).await? {
        keys.names.lose().await?;
        keys.kv.stream().delete().await?;
    }
    let logs = LogsLink::new(bus.clone(), subjects.clone());
    if let Some(journal) = JournalLink::new(logs).get().await? {
        journal.lose().await?;
    }
    match JobLogs::open(bus, subjects, true, MAKE_DEADLINE).await? {
        Some(logs) => logs.lose().await,
        None => Ok(()),
    }
}

/// What is added to revisions to make epochs, in what the servers keep now. The epochs of two identities do not meet.
pub(crate) async fn base(logs: Option<&JobLogs>) -> Result<u64, BusError> {
    let Some(logs) = logs else { return Ok(0) };
    Ok(XxHash3_64::oneshot(logs.identity().await?.as_bytes()) >> 33 << 32)
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
        let task = match parts.ground {
            Ground::Keys(ref keys) => {
                let keys = (**keys).clone();
                tokio::task::spawn_local(Runner::new(parts, Some(keys.clone())).contend(keys.base, left))
            }
            Ground::Word => tokio::task::spawn_local(Runner::new(parts, None).run_unopposed(left)),
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

/// Performs what the core of a campaign wants.
struct Runner {
    parts: CampaignParts,
    /// The bucket of the lease, where there is one, ...
    keys: Option<Keys>,
    /// ... and what it is asked.
    asked: Option<LocalBoxFuture<'static, CampaignEvent>>,
    /// Answers who looks for the Scheduler, while it is here.
    place: Option<Service>,
    /// Answers who looks for it in vain, while it cannot be anywhere.
    trouble: Option<Service>,
}

impl Runner {
    fn new(parts: CampaignParts, keys: Option<Keys>) -> Self {
        Self { parts, keys, asked: None, place: None, trouble: None }
    }

    async fn contend(mut self, base: u64, left: oneshot::Receiver<()>) {
        let (post, clock) = (self.parts.post.clone(), self.parts.post.clock().clone());
        let me = (post.node(), post.incarnation());
        let (mut left, mut epochs) = (left.fuse(), self.parts.link.epochs());
        let heard = *epochs.borrow_and_update();
        let mut core = CampaignCore::new(me, self.parts.subjects.cluster(), base, heard, clock.now());
        while !core.is_over() {
            let wait = core.next_wakeup().map(|at| at.saturating_sub(clock.now()));
            let event = tokio::select! {
                biased;
                _ = &mut left => CampaignEvent::Leave,
                event = async { self.asked.as_mut().expect("looked before").await }, if self.asked.is_some() => {
                    self.asked = None;
                    event
                }
                Ok(()) = epochs.changed() => CampaignEvent::Heard(*epochs.borrow_and_update()),
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => CampaignEvent::Tick,
            };
            core.on(event, clock.now());
            for effect in core.effects() {
                if let Some(event) = self.perform(effect).await {
                    core.on(event, clock.now());
                }
            }
        }
    }

    async fn run_unopposed(mut self, left: oneshot::Receiver<()>) {
        let mut core = UnopposedCore::new(self.parts.post.node());
        let (mut left, mut epochs) = (left.fuse(), self.parts.link.epochs());
        loop {
            let (heard, followed) = (*epochs.borrow_and_update(), self.parts.link.leader());
            let (members, unix_ms) = (self.parts.directory.members(), self.parts.post.clock().unix_ms());
            core.on(followed.as_ref(), heard, &members, unix_ms);
            for effect in core.effects() {
                self.perform(effect).await;
            }
            if core.is_over() {
                return;
            }
            tokio::select! {
                _ = &mut left => return,
                _ = epochs.changed() => {}
            }
        }
    }

    /// Performs one effect; what came of it, where the core is to hear of that at once.
    async fn perform(&mut self, effect: CampaignEffect) -> Option<CampaignEvent> {
        match effect {
            CampaignEffect::Ask(question, deadline) => self.asked = self.ask(question, deadline),
            CampaignEffect::Release(revision) => self.release(revision).await,
            CampaignEffect::Tell(event) => drop(self.parts.scheduler.send(event)),
            CampaignEffect::Serve(leader) => {
                self.place = self.serve("scheduler", &leader).await;
            }
            CampaignEffect::Withdraw => self.place = None,
            CampaignEffect::Follow(leader) => drop(self.parts.link.follow(&leader)),
            CampaignEffect::EndOwn => self.parts.link.end_own(),
            CampaignEffect::Speak => drop(self.parts.membership.send(MembershipEvent::Speak)),
            CampaignEffect::Explain(told) => {
                self.trouble = None;
                self.trouble = self.serve("election", &told?).await;
                return self.trouble.is_none().then_some(CampaignEvent::Unexplained);
            }
            CampaignEffect::Fail(fatal) => self.parts.post.fatal(fatal),
        }
        None
    }

    /// Answers whoever asks something of the service, from now on.
    async fn serve<T: Serialize + Clone + 'static>(&self, service: &str, answer: &T) -> Option<Service> {
        let served = Service::start(&self.parts, service, answer.clone()).await;
        // Nodes hear of a Scheduler all the same.
        served.map_err(|error| warn!(%error, service, "who asks is not answered")).ok()
    }

    async fn release(&self, revision: u64) {
        if let Some(keys) = &self.keys
            && let Err(error) = keys.kv.delete(KEY, Some(revision)).await
        {
            debug!(%error, "the lease was not given back");
        }
    }

    fn ask(&self, question: LeaseQuestion, deadline: Duration) -> Option<LocalBoxFuture<'static, CampaignEvent>> {
        let keys = self.keys.clone()?;
        Some(match question {
            LeaseQuestion::Make => make(self.parts.bus.clone(), self.parts.subjects.clone(), deadline).boxed_local(),
            question => ask(keys, question, deadline).boxed_local(),
        })
    }
}

/// One question to the bucket, to its end. A bucket that was made anew has the name of the one that was lost: a revision becomes an epoch
/// where it was the same one before and after.
async fn ask(Keys { kv, logs, .. }: Keys, question: LeaseQuestion, deadline: Duration) -> CampaignEvent {
    let is_of = async |base_then: u64| Ok::<_, BusError>(base(logs.as_ref()).await? == base_then);
    let answered = async {
        let (LeaseQuestion::Create(_, base) | LeaseQuestion::Update(_, base, _) | LeaseQuestion::Look(base)) = question
        else {
            unreachable!("what the servers have lost is made elsewhere")
        };
        if !is_of(base).await? {
            return Ok(CampaignEvent::Answered(Answer::Another));
        }
        let event = match question {
            LeaseQuestion::Create(says, _) => CampaignEvent::Answered(Answer::Written(kv.create(KEY, says).await?)),
            LeaseQuestion::Update(says, _, revision) => {
                CampaignEvent::Answered(Answer::Written(kv.update(KEY, says, revision).await?))
            }
            _ => {
                let found = kv.get(KEY).await?;
                CampaignEvent::Found(found.map(|entry| (entry.value.to_vec(), entry.revision)))
            }
        };
        Ok(if is_of(base).await? { event } else { CampaignEvent::Answered(Answer::Another) })
    };
    // A question to the bucket may be several to the server, each with a deadline of its own.
    let answer = match timeout(deadline, answered).await {
        Ok(Ok(event)) => return event,
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
    };
    CampaignEvent::Answered(answer)
}

/// Makes what the servers have lost, to its end.
async fn make(bus: Bus, subjects: Subjects, deadline: Duration) -> CampaignEvent {
    let answer = match timeout(deadline, Keys::open(&bus, &subjects, true, deadline)).await {
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
    };
    CampaignEvent::Answered(answer)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_not_renewed_in_a_bucket_that_others_have_made_anew_though_its_revision_is_there() {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let open = async |anew| Keys::open(&bus, &subjects, anew, MAKE_AFTER).await.unwrap().unwrap();
        let answered = async |keys: &Keys, question| match ask(keys.clone(), question, ANSWER_DEADLINE).await {
            CampaignEvent::Answered(answer) => answer,
            event => panic!("{event:?}"),
        };
        let keys = open(false).await;
        let create = |says: &str, keys: &Keys| LeaseQuestion::Create(says.to_owned(), keys.base);
        let Answer::Written(revision) = answered(&keys, create("n1 7", &keys)).await else { panic!("nobody has it") };
        keys.kv.stream().delete().await.unwrap();
        keys.logs.as_ref().expect("the bus keeps streams").lose().await.unwrap();
        let anew = open(true).await;
        assert_eq!(answered(&anew, create("n2 1", &anew)).await, Answer::Written(revision));
        let renew = LeaseQuestion::Update("n1 7".to_owned(), keys.base, revision);
        assert_eq!(answered(&keys, renew).await, Answer::Another);
        assert_eq!(anew.kv.get(KEY).await.unwrap().expect("it is there").value.to_vec(), b"n2 1");
    }
}
