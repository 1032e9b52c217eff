//! The name of a node: taken before the first word is said under it, kept as long as the process lives, given back at its end.
//!
//! A bucket has a key for each name. Where there are no durable streams there is none, and heartbeats alone decide.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::{Bus, BusError, Subjects, SubscribeOptions, codec};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::base::Base;
use super::joining::genuine_beat;
use super::{ClusterOptions, NodeError, open_durable};
use crate::ids::{Incarnation, NodeId};
use crate::membership::{Claim, Claimant, Kept, MembershipMsg, Step, nobody_listens};
use crate::transfer::network::Network;

/// The bucket.
const BUCKET: &str = "nodes";
/// A key has some hundred bytes.
const BUCKET_BYTES: u64 = 1 << 20;
/// The key that says in what circumstances the bucket was made, and what it says where nodes were there then.
const MADE: &str = "made";
const ANEW: &str = "anew";
/// How often who wants a name looks whose it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often who has one does.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How long an answer of the bucket may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

/// The names of a cluster, for one of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    kv: Kv,
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

    /// Makes the bucket, or opens the one that is there. `anew`: in a cluster whose nodes had one, and may have names still.
    pub(crate) async fn make(bus: &Bus, subjects: &Subjects, anew: bool) -> Result<Self, BusError> {
        let names = Self { kv: Kv::open(bus, &Self::config(subjects)?).await? };
        if names.kv.get(MADE).await?.is_some() {
            return Ok(names);
        }
        match names.kv.create(MADE, if anew { ANEW } else { "first" }).await {
            Ok(_) | Err(BusError::Conflict { .. }) => Ok(names),
            Err(error) => Err(error),
        }
    }

    /// The names of a cluster that has a Scheduler, which has made the bucket; `None` where its servers keep nothing.
    pub(super) async fn find(cluster: &ClusterOptions) -> Result<Option<Self>, BusError> {
        let find = async || Self::make(&cluster.bus, &cluster.subjects, true).await;
        match open_durable(cluster.join_deadline, find).await? {
            Ok(names) => Ok(Some(names)),
            Err(error) => {
                debug!(%error, "names are kept by heartbeats alone");
                Ok(None)
            }
        }
    }

    async fn kept(&self, key: &str) -> Result<Kept, BusError> {
        let Some(entry) = self.kv.get(key).await? else {
            let anew = self.kv.get(MADE).await?.is_none_or(|made| made.value == ANEW);
            return Ok(if anew { Kept::Unknown } else { Kept::Nothing });
        };
        let revision = entry.revision;
        Ok(match codec::decode_checked(&entry.value) {
            Ok(claim) => Kept::Claim { claim, revision },
            Err(error) => {
                warn!(%error, key, "what is kept of a name cannot be read");
                // Of whom it is heartbeats tell.
                let process = "a process that wrote something else".to_owned();
                let born = Incarnation(0);
                let claim = Claim { born, incarnation: born, data_address: String::new(), process };
                Kept::Claim { claim, revision }
            }
        })
    }

    async fn put(&self, key: &str, claim: &Claim, revision: Option<u64>) -> Result<u64, BusError> {
        let value = codec::encode_checked(claim).map_err(|error| BusError::Config(error.to_string()))?;
        match revision {
            Some(revision) => self.kv.update(key, value, revision).await,
            None => self.kv.create(key, value).await,
        }
    }

    /// Loses them, as a server does that is emptied.
    #[cfg(feature = "simulation")]
    pub(crate) async fn lose(&self) -> Result<(), BusError> {
        self.kv.stream().delete().await.map(drop)
    }
}

/// A name that this process has.
#[derive(Clone, Debug)]
pub(super) struct Name {
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
    /// Takes the name of this node, as soon as nobody else has it, for a life that is above those of who had it before. `names`: where
    /// they are kept.
    ///
    /// # Errors
    /// `NameTaken`: another process lives under it. The bus does not answer.
    pub(super) async fn take(
        base: &Base,
        cluster: &ClusterOptions,
        names: Option<Names>,
        network: &Arc<dyn Network>,
    ) -> Result<Self, NodeError> {
        let (me, clock) = (base.post.node().clone(), base.post.clock().clone());
        let subject =
            cluster.subjects.node(me.as_str(), "beat").map_err(|error| NodeError::Other(error.to_string()))?;
        let mut beats = cluster.bus.subscribe(subject.into(), SubscribeOptions::default()).await?;
        let key = format!("node.{me}");
        let mut claim = Claim {
            born: base.post.incarnation(),
            incarnation: base.post.incarnation(),
            data_address: base.data_address(),
            process: format!("process {} on {}", std::process::id(), host()),
        };
        let mut claimant = Claimant::new(cluster.membership, clock.now());
        let (give_up, mut waits) = (clock.now() + cluster.join_deadline, false);
        loop {
            while let Some(beat) = beats.try_recv() {
                let payload = &beat.message.payload;
                let beat = genuine_beat(cluster.bus.credentials(), &cluster.subjects, &beat.subject, payload);
                if matches!(&beat, Ok(Ok(MembershipMsg::Beat(beat))) if !beat.stopping) {
                    claimant.heard(clock.now());
                }
            }
            let kept = match &names {
                None => Kept::Unknown,
                Some(names) => match names.kept(&key).await {
                    Ok(kept) => kept,
                    Err(error) if clock.now() < give_up => {
                        debug!(%error, "no word of the name");
                        sleep(LOOK_EVERY).await;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let holder = match &kept {
                // An answer was lost, and the name is ours.
                Kept::Claim { claim: kept, revision } if kept.is_of(&claim) => {
                    return Ok(Self { node: me, names, key, claim, revision: *revision });
                }
                Kept::Claim { claim, .. } => Some(claim.clone()),
                Kept::Nothing | Kept::Unknown => None,
            };
            match claimant.step(clock.now(), &kept) {
                Step::Take(revision) => {
                    let above = holder.map_or(0, |holder| holder.incarnation.0 + 1);
                    claim.incarnation = Incarnation(claim.incarnation.0.max(above));
                    let taken = match &names {
                        Some(names) => names.put(&key, &claim, revision).await,
                        None => Ok(0),
                    };
                    match taken {
                        Ok(revision) => return Ok(Self { node: me, names, key, claim, revision }),
                        Err(BusError::Conflict { .. }) => claimant.beaten(clock.now()),
                        // It is looked whether it was done.
                        Err(error) if error.is_retryable() => debug!(%error, "no word of the name"),
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
                    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.process);
                    return Err(NodeError::NameTaken { name: me, holder });
                }
                Step::Wait => {
                    if !std::mem::replace(&mut waits, true) {
                        let holder = holder.map(|holder| holder.process);
                        info!(node = %me, holder, "waits until the name is free");
                    }
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    /// The life in which it was taken.
    pub(super) fn incarnation(&self) -> Incarnation {
        self.claim.incarnation
    }

    /// Goes on under the name in another life of the process.
    ///
    /// # Errors
    /// `NameTaken`: another process has it meanwhile.
    pub(super) async fn renew(&mut self, incarnation: Incarnation) -> Result<(), NodeError> {
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
            Kept::Nothing | Kept::Unknown => self.revision = names.put(&self.key, &self.claim, None).await?,
        }
        Ok(Looked::Ours)
    }

    /// Looks after the name for ever, or until another process has it.
    pub(super) async fn keep(mut self) -> NodeError {
        loop {
            sleep(KEEP_EVERY).await;
            match self.look().await {
                Ok(Looked::Ours) => {}
                Ok(Looked::Lost(holder)) => return self.lost_to(holder),
                Err(error) => debug!(%error, "the name is not looked after now"),
            }
        }
    }

    /// Gives it back, so that the next one need not wait.
    pub(super) async fn release(mut self) {
        // The key may have been written again meanwhile.
        if let Ok(Looked::Ours) = self.look().await
            && let Some(names) = self.names
            && let Err(error) = names.kv.delete(&self.key, Some(self.revision)).await
        {
            debug!(%error, "the name was not given back");
        }
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
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Unknown);
    }

    #[tokio::test]
    async fn of_two_that_take_a_name_one_gets_it_and_who_lost_it_is_told() {
        let (_, _, names) = names(false).await;
        let first = names.put(KEY, &claim(1), None).await.unwrap();
        assert!(matches!(names.put(KEY, &claim(2), None).await, Err(BusError::Conflict { .. })));
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Claim { claim: claim(1), revision: first });
        let node = NodeId::new("n1");
        let mut frozen =
            Name { node, names: Some(names.clone()), key: KEY.to_owned(), claim: claim(1), revision: first };
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
        let (node, key) = (NodeId::new("n1"), KEY.to_owned());
        let mut name = Name { node, names: Some(names.clone()), key, claim: claim(1), revision: 17 };
        assert!(matches!(name.look().await.unwrap(), Looked::Ours));
        assert!(matches!(names.kept(KEY).await.unwrap(), Kept::Claim { claim, .. } if claim.is_of(&self::claim(1))));
        name.release().await;
        assert_eq!(names.kept(KEY).await.unwrap(), Kept::Unknown);
    }
}
