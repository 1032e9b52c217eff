//! The name of a node: taken before the first word is said under it, kept as long as the process lives, given back at its end.
//!
//! A bucket has a key for each name. Where there are no durable streams there is none, and heartbeats alone decide.
//!
//! All values of the bucket are [sealed](Credentials::seal) under the nodes' token. Its first key says so much of the cluster as anybody
//! who may be a node of it can open: who cannot has another token, and ends before it writes anything. Silence of the others is no such
//! proof: they may be stopped, or stalled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::auth::MessageError;
use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::{Bus, BusError, Credentials, Subject, Subjects, SubscribeOptions};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::asking::genuine_beat;
use super::{ClusterOptions, NodeError};
use crate::durable::open_durable;
use crate::ids::{Incarnation, NodeId};
use crate::membership::{Claim, Claimant, Kept, Step, nobody_listens};
use crate::protocol::membership::{BEAT_BYTES_MAX, MembershipMsg};
use crate::shell::Post;
use crate::transfer::network::Network;

/// The bucket.
const BUCKET: &str = "nodes";
/// A key has some hundred bytes.
const BUCKET_BYTES: u64 = 1 << 20;
/// The key that is written first, and proves the token.
const MADE: &str = "made";
/// How long the last incarnation of a name that was given back is remembered. Nodes whose names are made up leave one each.
const FREE_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often who wants a name looks whose it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often who has one does.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How long an answer of the bucket may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// A server that answers and took nothing so often in a row stores nothing, ...
const UNSTORED_MIN: u32 = 2;
/// ... and that is said so often.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// In what circumstances the bucket was made.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// Nodes were there, and may have names that it does not know of.
    anew: bool,
}

/// The value of a name's key.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Held(Claim),
    /// It was given back; in this incarnation it was somebody's last.
    Free(Incarnation),
}

/// The names of a cluster, for one of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    kv: Kv,
    prefix: Subject,
    credentials: Credentials,
}

impl Names {
    fn config(subjects: &Subjects) -> Result<KvConfig, BusError> {
        Ok(KvConfig {
            bytes_max: BUCKET_BYTES,
            deletions_kept: Duration::from_secs(60),
            deadline: ANSWER_DEADLINE,
            ..KvConfig::new(&subjects.durable_name("kv", BUCKET)?, subjects.kv(BUCKET)?)
        })
    }

    /// Makes the bucket, or opens the one that is there, and proves that it is of nodes with this process's token; nothing else is
    /// written into it before. `anew`: in a cluster whose nodes had one, and may have names still.
    ///
    /// # Errors
    /// `Sealed`: it was made by nodes with another token, see [`refused`](Self::refused). The bus does not do what is asked.
    pub(crate) async fn make(bus: &Bus, subjects: &Subjects, anew: bool) -> Result<Self, BusError> {
        let config = Self::config(subjects)?;
        let kv = Kv::open(bus, &config).await?;
        let names = Self { kv, prefix: config.prefix, credentials: bus.credentials().clone() };
        while names.made().await?.is_none() {
            match names.kv.create(MADE, names.seal(MADE, &Made { anew })?).await {
                Ok(_) => break,
                // Whoever was faster may have another token.
                Err(BusError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    async fn made(&self) -> Result<Option<Made>, BusError> {
        let made = self.kv.get(MADE).await?;
        made.map(|made| Ok(self.credentials.unseal_kept(&self.subject(MADE)?, &made.value)?)).transpose()
    }

    /// Why [`make`](Self::make) failed, for people.
    pub(crate) fn refused(error: BusError, subjects: &Subjects) -> NodeError {
        let stream = || Self::config(subjects).map_or_else(|error| error.to_string(), |config| config.name);
        match error {
            BusError::Sealed(MessageError::Denied(denied)) => {
                NodeError::Sealed { why: denied.to_string(), stream: stream() }
            }
            BusError::Sealed(error) => NodeError::Sealed { why: error.to_string(), stream: stream() },
            error => error.into(),
        }
    }

    /// The names of a cluster that has, or had, a Scheduler, which has made the bucket; `None` where its servers keep nothing.
    pub(crate) async fn find(cluster: &ClusterOptions, deadline: Duration) -> Result<Option<Self>, NodeError> {
        let find = async || Self::make(&cluster.bus, &cluster.subjects, true).await;
        match open_durable(deadline, find).await {
            Ok(Ok(names)) => Ok(Some(names)),
            Ok(Err(error)) => {
                debug!(%error, "names are kept by heartbeats alone");
                Ok(None)
            }
            Err(error) => Err(Self::refused(error, &cluster.subjects)),
        }
    }

    async fn kept(&self, key: &str) -> Result<Kept, BusError> {
        let Some(entry) = self.kv.get(key).await? else {
            return match self.made().await {
                Ok(Some(Made { anew: false })) => Ok(Kept::Nothing),
                // It was lost, and made anew, perhaps by others.
                Ok(_) | Err(BusError::Sealed(_)) => Ok(Kept::Unknown { revision: None }),
                Err(error) => Err(error),
            };
        };
        let revision = entry.revision;
        Ok(match self.credentials.unseal(&self.subject(key)?, &entry.value) {
            Ok(Record::Held(claim)) => Kept::Claim { claim, revision },
            Ok(Record::Free(last)) => Kept::Free { last, revision },
            Err(error) => {
                warn!(%error, key, "what is kept of a name is not believed");
                Kept::Unknown { revision: Some(revision) }
            }
        })
    }

    async fn put(&self, key: &str, claim: &Claim, revision: Option<u64>) -> Result<u64, BusError> {
        let value = self.seal(key, &Record::Held(claim.clone()))?;
        match revision {
            Some(revision) => self.kv.update(key, value, revision).await,
            None => self.kv.create(key, value).await,
        }
    }

    async fn free(&self, key: &str, last: Incarnation, revision: u64) -> Result<u64, BusError> {
        self.kv.update_for(key, self.seal(key, &Record::Free(last))?, revision, FREE_FOR).await
    }

    fn seal(&self, key: &str, value: &impl Serialize) -> Result<Bytes, BusError> {
        let sealed = self.credentials.seal(&self.subject(key)?, value);
        sealed.map_err(|error| BusError::Config(error.to_string()))
    }

    fn subject(&self, key: &str) -> Result<Subject, BusError> {
        Ok(Subject::parse(&format!("{}.{key}", self.prefix))?)
    }

    /// Loses them, as a server does that is emptied.
    #[cfg(feature = "simulation")]
    pub(crate) async fn lose(&self) -> Result<(), BusError> {
        self.kv.stream().delete().await.map(drop)
    }
}

/// A name that this process has.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    node: NodeId,
    names: Option<Names>,
    key: String,
    claim: Claim,
    revision: u64,
}

/// What became of a name when it was looked after.
#[derive(Debug)]
enum Looked {
    Ours,
    /// It is that process's now.
    Lost(String),
}

impl Name {
    /// Takes the name of this node, as soon as nobody else has it, for an incarnation that is above those of who had it before. `names`: where
    /// they are kept.
    ///
    /// # Errors
    /// `NameTaken`: another process lives under it. The bus does not answer.
    pub(crate) async fn take(
        (post, data_address): (&Post, String),
        cluster: &ClusterOptions,
        mut names: Option<Names>,
        network: &Arc<dyn Network>,
    ) -> Result<Self, NodeError> {
        let (me, clock) = (post.node().clone(), post.clock().clone());
        let subject =
            cluster.subjects.node(me.as_str(), "beat").map_err(|error| NodeError::Other(error.to_string()))?;
        let mut beats = cluster.bus.subscribe(subject.into(), SubscribeOptions::small(BEAT_BYTES_MAX)).await?;
        let key = format!("node.{me}");
        let mut claim = Claim {
            born: post.incarnation(),
            incarnation: post.incarnation(),
            data_address,
            process: format!("process {} on {}", std::process::id(), host()),
        };
        let mut claimant = Claimant::new(cluster.membership, clock.now());
        let (give_up, mut waits) = (clock.now() + cluster.join_deadline, false);
        let mut unstored = Unstored::default();
        loop {
            let kept = match &names {
                None => Kept::Unknown { revision: None },
                Some(opened) => match opened.kept(&key).await {
                    Ok(kept) => kept,
                    // The servers were emptied since it was opened.
                    Err(BusError::StreamMissing { .. }) if clock.now() < give_up => {
                        names = Names::find(cluster, give_up.saturating_sub(clock.now())).await?;
                        continue;
                    }
                    Err(error) if clock.now() < give_up => {
                        debug!(%error, "no word of the name");
                        sleep(LOOK_EVERY).await;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            while let Some(beat) = beats.try_recv() {
                let payload = &beat.message.payload;
                let beat = genuine_beat(cluster.bus.credentials(), &cluster.subjects, &beat.subject, payload);
                if let Ok(Ok(MembershipMsg::Beat(beat))) = beat {
                    claimant.heard(clock.now(), &beat, &kept);
                }
            }
            let holder = match &kept {
                // An answer was lost, and the name is ours.
                Kept::Claim { claim: kept, revision } if kept.is_of(&claim) => {
                    return Ok(Self { node: me, names, key, claim, revision: *revision });
                }
                Kept::Claim { claim, .. } => Some(claim.process.clone()),
                Kept::Nothing | Kept::Unknown { .. } | Kept::Free { .. } => None,
            };
            unstored.look(&me, clock.now(), give_up)?;
            match claimant.step(clock.now(), &kept) {
                Step::Take(revision) => {
                    claim.incarnation = claim.incarnation.max(kept.next_incarnation());
                    let taken = match &names {
                        Some(names) => names.put(&key, &claim, revision).await,
                        None => Ok(0),
                    };
                    match taken {
                        Ok(revision) => return Ok(Self { node: me, names, key, claim, revision }),
                        Err(BusError::Conflict { .. }) => {
                            unstored = Unstored::default();
                            claimant.beaten(clock.now());
                        }
                        // It is looked whether it was done.
                        Err(error) if error.may_heal() => {
                            debug!(%error, "no word of the name");
                            unstored.tries += 1;
                            sleep(LOOK_EVERY).await;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                // What we listen on ourselves nobody else does.
                Step::Probe(address) if address == claim.data_address => claimant.nobody_listens(),
                Step::Probe(address) => {
                    if nobody_listens(network, &clock, address).await {
                        claimant.nobody_listens();
                    }
                }
                Step::Refuse => {
                    let holder = holder.unwrap_or_else(|| "another process".to_owned());
                    return Err(NodeError::NameTaken { name: me, holder });
                }
                Step::Wait => {
                    if !std::mem::replace(&mut waits, true) {
                        info!(node = %me, holder, "waits until the name is free");
                    }
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    /// The incarnation in which it was taken.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.claim.incarnation
    }

    /// Goes on under the name in another incarnation of the process.
    ///
    /// # Errors
    /// `NameTaken`: another process has it meanwhile.
    pub(crate) async fn renew(&mut self, incarnation: Incarnation) -> Result<(), NodeError> {
        self.claim.incarnation = incarnation;
        match self.look().await {
            Ok(Looked::Lost(holder)) => return Err(self.lost_to(holder)),
            Ok(Looked::Ours) => {
                if let Some(names) = &self.names {
                    match names.put(&self.key, &self.claim, Some(self.revision)).await {
                        Ok(revision) => self.revision = revision,
                        Err(error) => debug!(%error, "the name is not renewed now"),
                    }
                }
            }
            // The heartbeats of who has it tell, too.
            Err(error) => debug!(%error, "the name is not looked after now"),
        }
        Ok(())
    }

    fn lost_to(&self, holder: String) -> NodeError {
        NodeError::NameTaken { name: self.node.clone(), holder }
    }

    /// Looks whose the name is, and says that it is ours where that was lost.
    async fn look(&mut self) -> Result<Looked, BusError> {
        let Some(names) = &self.names else { return Ok(Looked::Ours) };
        match names.kept(&self.key).await? {
            Kept::Claim { claim, revision } if claim.is_of(&self.claim) => self.revision = revision,
            Kept::Claim { claim, .. } => return Ok(Looked::Lost(claim.process)),
            Kept::Free { last, .. } if last > self.claim.incarnation => {
                return Ok(Looked::Lost("a process that has stopped since".to_owned()));
            }
            Kept::Free { revision, .. } => {
                self.revision = names.put(&self.key, &self.claim, Some(revision)).await?;
            }
            Kept::Nothing => self.revision = names.put(&self.key, &self.claim, None).await?,
            Kept::Unknown { revision } => self.revision = names.put(&self.key, &self.claim, revision).await?,
        }
        Ok(Looked::Ours)
    }

    /// Looks after the name for ever, or until another process has it.
    pub(crate) async fn keep(mut self) -> NodeError {
        loop {
            sleep(KEEP_EVERY).await;
            match self.look().await {
                Ok(Looked::Ours) => {}
                Ok(Looked::Lost(holder)) => return self.lost_to(holder),
                Err(error) => debug!(%error, "the name is not looked after now"),
            }
        }
    }

    /// Gives it back, so that the next one need not wait. Its last incarnation stays known: the others take that name for one that has left in
    /// that incarnation, and believe no earlier one, whatever the clock of the next process says.
    pub(crate) async fn release(mut self) {
        // The key may have been written again meanwhile.
        if let Ok(Looked::Ours) = self.look().await
            && let Some(names) = self.names
            && let Err(error) = names.free(&self.key, self.claim.incarnation, self.revision).await
        {
            debug!(%error, "the name was not given back");
        }
    }
}

/// Whether what is written for a name is stored, by a server that answers questions.
#[derive(Debug, Default)]
struct Unstored {
    /// Writes in a row of which nothing was heard, and which were not found afterwards.
    tries: u32,
    said: Option<Duration>,
}

impl Unstored {
    /// The key was read, and is not what was written.
    ///
    /// # Errors
    /// `StoresNothing`: it is time to give up.
    fn look(&mut self, name: &NodeId, now: Duration, give_up: Duration) -> Result<(), NodeError> {
        if self.tries < UNSTORED_MIN {
            return Ok(());
        }
        let error = NodeError::StoresNothing { name: name.clone() };
        if now >= give_up {
            return Err(error);
        }
        if self.said.is_none_or(|at| now.saturating_sub(at) >= SAY_EVERY) {
            self.said = Some(now);
            warn!("{error}");
        }
        Ok(())
    }
}

/// The name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "node.n1";

    fn claim(incarnation: u64) -> Claim {
        let (born, data_address) = (Incarnation(incarnation), "127.0.0.1:1".to_owned());
        Claim { born, incarnation: born, data_address, process: "process 1 on host".to_owned() }
    }

    const UNKNOWN: Kept = Kept::Unknown { revision: None };

    fn of(names: &Names, claim: Claim, revision: u64) -> Name {
        let (node, names, key) = (NodeId::new("n1"), Some(names.clone()), KEY.to_owned());
        Name { node, names, key, claim, revision }
    }

    async fn names(anew: bool) -> (Bus, Subjects, Names) {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let names = Names::make(&bus, &subjects, anew).await.unwrap();
        (bus, subjects, names)
    }

    #[tokio::test]
    async fn what_is_not_kept_says_nothing_where_names_were_lost() {
        let (bus, subjects, names) = names(false).await;
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Nothing);
        Names::make(&bus, &subjects, true).await.unwrap();
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Nothing, "they were not made anew");
        let (_, _, names) = self::names(true).await;
        assert_eq!(names.kept(KEY).await.unwrap(), UNKNOWN);
    }

    #[tokio::test]
    async fn who_has_another_token_than_who_made_the_names_writes_nothing_into_them() {
        let (one, other) = (Some("the nodes' token of a test"), Some("another token of that length"));
        let (wrong, missing, unwanted) = ("is not the cluster's", "has none", "goes without one: remove");
        for (theirs, ours, said) in [(one, other, wrong), (one, None, missing), (None, one, unwanted)] {
            let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
            let names = Names::make(&bus.with_credentials(Credentials::node(theirs, None)), &subjects, false).await;
            let names = names.unwrap();
            let before = names.kv.entries().await.unwrap();
            let stranger = bus.with_credentials(Credentials::node(ours, None));
            for anew in [false, true] {
                let error = Names::make(&stranger, &subjects, anew).await.unwrap_err();
                let text = Names::refused(error, &subjects).to_string();
                assert!(text.contains(said) && text.contains("remove that stream"), "{text}");
                assert!(text.contains("exo_test_kv_nodes"), "{text}");
            }
            assert_eq!(names.kv.entries().await.unwrap(), before);
            // The documented way to another token.
            names.kv.stream().delete().await.unwrap();
            Names::make(&stranger, &subjects, false).await.unwrap();
        }
    }

    #[tokio::test]
    async fn of_two_tokens_that_make_names_at_once_one_is_the_clusters() {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let make = |token| {
            let bus = bus.with_credentials(Credentials::node(Some(token), None));
            let subjects = subjects.clone();
            async move { Names::make(&bus, &subjects, false).await }
        };
        let (one, other) = tokio::join!(make("the nodes' token of a test"), make("another token of that length"));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    }

    #[tokio::test]
    async fn what_others_wrote_for_a_name_ends_nobody_who_has_it() {
        let (bus, subjects, names) = names(false).await;
        let revision = names.put(KEY, &claim(1), None).await.unwrap();
        let stranger = Names {
            credentials: Credentials::node(Some("another token of that length"), None),
            ..Names::make(&bus, &subjects, false).await.unwrap()
        };
        let written = stranger.put(KEY, &claim(9), Some(revision)).await.unwrap();
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Unknown { revision: Some(written) });
        let mut name = of(&names, claim(1), revision);
        assert!(matches!(name.look().await.unwrap(), Looked::Ours));
        assert!(matches!(names.kept(KEY).await.unwrap(), Kept::Claim { claim, .. } if claim == self::claim(1)));
    }

    #[tokio::test]
    async fn of_two_that_take_a_name_one_gets_it_and_who_lost_it_is_told() {
        let (_, _, names) = names(false).await;
        let first = names.put(KEY, &claim(1), None).await.unwrap();
        assert!(matches!(names.put(KEY, &claim(2), None).await, Err(BusError::Conflict { .. })));
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Claim { claim: claim(1), revision: first });
        let mut frozen = of(&names, claim(1), first);
        frozen.renew(Incarnation(5)).await.unwrap();
        let Kept::Claim { claim: renewed, revision } = names.kept(KEY).await.unwrap() else { panic!("it is kept") };
        assert!(renewed.is_of(&claim(1)) && renewed.incarnation == Incarnation(5) && revision > first);
        assert!(matches!(names.put(KEY, &claim(9), Some(first)).await, Err(BusError::Conflict { .. })));
        names.put(KEY, &claim(9), Some(revision)).await.unwrap();
        assert!(matches!(frozen.renew(Incarnation(6)).await, Err(NodeError::NameTaken { .. })));
        frozen.release().await;
        assert!(matches!(names.kept(KEY).await.unwrap(), Kept::Claim { .. }), "it is not that one's to give back");
    }

    #[tokio::test]
    async fn a_name_that_was_lost_with_its_server_is_said_again() {
        let (_, _, names) = names(true).await;
        let mut name = of(&names, claim(1), 17);
        assert!(matches!(name.look().await.unwrap(), Looked::Ours));
        assert!(matches!(names.kept(KEY).await.unwrap(), Kept::Claim { claim, .. } if claim.is_of(&self::claim(1))));
    }

    #[tokio::test]
    async fn a_name_that_was_given_back_tells_the_last_incarnation_under_it() {
        let (_, _, names) = names(false).await;
        let revision = names.put(KEY, &claim(5), None).await.unwrap();
        of(&names, claim(5), revision).release().await;
        let kept = names.kept(KEY).await.unwrap();
        assert!(matches!(kept, Kept::Free { last: Incarnation(5), .. }), "{kept:?}");
        // Who had the name before that one, and was cut off, does not have it any more.
        assert!(matches!(of(&names, claim(1), 1).look().await.unwrap(), Looked::Lost(_)));
    }
}
