//! What a node of a cluster says and hears from outside its actors: where the Scheduler is, who lives, what comes in sessions.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::auth::{MessageError, SUBMITTER_PREFIX};
use exobus_bus::session::{EndpointEvents, Event as SessionEvent, Peer};
use exobus_bus::{Bus, BusError, Credentials, Denied, Refusals, Subject, Subjects, SubscribeOptions, Subscription};
use exobus_store::Clock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::{ClusterOptions, NodeError};
use crate::ids::{Incarnation, NodeId};
use crate::membership::{Directory, MembershipEvent};
use crate::protocol::membership::{BEAT_BYTES_MAX, MembershipMsg};
use crate::protocol::scheduler::{Leader, NodeSpec, SchedulerMsg};
use crate::scheduler::SchedulerLink;
use crate::shell::{Inbox, Post};

/// The question after the Scheduler.
const WHERE: (&str, &str) = ("scheduler", "where");
/// How often who looks for something looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Who has said for so long no more that there can be no Scheduler does not say so.
const TROUBLE_LASTS: Duration = Duration::from_secs(1);
/// Who is told for so long that its token is wrong gives up.
const DENIED_FOR: Duration = Duration::from_secs(1);
/// What to do where nobody says why there is no Scheduler.
const NOBODY: &str = "start a node with `scheduler = true`, or look whether those that there are reach this NATS server under this cluster's name";
/// What passes by itself has passed by then.
const PASSES_IN: Duration = Duration::from_secs(20);
/// How long one question after the Scheduler may take.
const WHERE_DEADLINE: Duration = Duration::from_millis(500);

/// Hands the heartbeats of all nodes to Membership.
pub(crate) async fn hear_beats(
    cluster: &ClusterOptions,
    post: &Post,
    membership: Inbox<MembershipEvent>,
) -> Result<(), NodeError> {
    let every_beat = cluster.subjects.every_node("beat").map_err(|error| NodeError::Other(error.to_string()))?;
    let mut beats = cluster.bus.subscribe(every_beat, SubscribeOptions::small(BEAT_BYTES_MAX)).await?;
    let (subjects, post) = (cluster.subjects.clone(), post.clone());
    let credentials = cluster.bus.credentials().clone();
    actix_rt::spawn(async move {
        while let Some(delivery) = beats.recv().await {
            // `...node.<node>.beat`: who says that it is the sender.
            let sender = delivery.subject.as_str().rsplit('.').nth(1).unwrap_or_default();
            match genuine_beat(&credentials, &subjects, &delivery.subject, &delivery.message.payload) {
                Ok(Ok(beat)) => drop(membership.send(beat)),
                Ok(Err(reason)) => post.refuse(sender, "beat", &reason),
                Err(error) => post.refuse_stranger(sender, "beat", &error),
            }
        }
    });
    Ok(())
}

/// A heartbeat, if a node has sent it; `Ok(Err(_))`: one has, and it is none, or in the name of another one.
pub(crate) fn genuine_beat(
    credentials: &Credentials,
    subjects: &Subjects,
    subject: &Subject,
    payload: &[u8],
) -> Result<Result<MembershipMsg, String>, MessageError> {
    let message = match credentials.unseal::<MembershipMsg>(subject, payload) {
        Ok(message) => message,
        Err(error) if error.is_strangers() => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let MembershipMsg::Beat(beat) = &message;
    Ok(match subjects.node(beat.node.as_str(), "beat") {
        Ok(own) if own == *subject => Ok(message),
        _ => Err("a heartbeat in the name of another node".to_owned()),
    })
}

/// What became of a question to a service of the cluster.
enum Heard<T> {
    Answer(T),
    /// Nobody answers, or what does is no answer.
    Nothing,
    /// Whoever answers says that it does not believe this process. It proves nothing, so anybody can say so.
    Denied(Denied),
}

async fn ask_once<T: DeserializeOwned>(
    bus: &Bus,
    subjects: &Subjects,
    (service, verb): (&str, &str),
    refusals: &Refusals,
) -> Result<Heard<T>, NodeError> {
    let subject = subjects.ctl(service, verb).map_err(|error| NodeError::Other(error.to_string()))?;
    match bus.ask(subject.clone(), &(), WHERE_DEADLINE).await {
        Ok(answer) => Ok(Heard::Answer(answer)),
        Err(BusError::Sealed(MessageError::Denied(denied))) => Ok(Heard::Denied(denied)),
        Err(BusError::Sealed(error)) => {
            refusals.refuse(subject.as_str(), "find the scheduler", &error);
            Ok(Heard::Nothing)
        }
        // Nobody there yet, or the bus is.
        Err(_) => Ok(Heard::Nothing),
    }
}

/// Asks a service of the cluster; `None`: nobody answers, or what does is no answer.
///
/// # Errors
/// `Denied`: nothing but that was heard for [`DENIED_FOR`], however often it was asked. Whoever can make this process believe so again
/// and again without knowing a token can keep answers from it as well.
async fn ask<T: DeserializeOwned>(
    bus: &Bus,
    subjects: &Subjects,
    question: (&str, &str),
    refusals: &Refusals,
) -> Result<Option<T>, NodeError> {
    let mut since = None;
    loop {
        let denied = match ask_once(bus, subjects, question, refusals).await? {
            Heard::Answer(answer) => return Ok(Some(answer)),
            Heard::Nothing => return Ok(None),
            Heard::Denied(denied) => denied,
        };
        if since.get_or_insert_with(Instant::now).elapsed() >= DENIED_FOR {
            return Err(NodeError::Denied(denied));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether the cluster takes the submitters' token that this node takes from its submitters; nobody there to tell is no objection.
///
/// # Errors
/// `Denied`: a submitter would be believed by one of both only.
pub(crate) async fn agree_on_submitters(bus: &Bus, subjects: &Subjects) -> Result<(), NodeError> {
    let Peer { node, incarnation } = bus.me();
    let as_submitter =
        bus.speaking_as(Peer { node: format!("{SUBMITTER_PREFIX}of-{node}"), incarnation: *incarnation });
    ask_where(&as_submitter, subjects, &Refusals::default()).await.map(drop)
}

/// Asks where the Scheduler is; `None`: nobody says.
pub(crate) async fn ask_where(
    bus: &Bus,
    subjects: &Subjects,
    refusals: &Refusals,
) -> Result<Option<Leader>, NodeError> {
    ask(bus, subjects, WHERE, refusals).await
}

/// Whether a cluster takes whoever speaks through this bus as a node; false where nobody says.
///
/// # Errors
/// `Denied`: which token is wrong.
pub async fn takes_as_node(bus: &Bus, subjects: &Subjects) -> Result<bool, NodeError> {
    ask_where(bus, subjects, &Refusals::default()).await.map(|leader| leader.is_some())
}

/// How long somebody looks for the Scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// At most.
    pub(crate) deadline: Duration,
    /// Where candidates have said for so long that there can be none.
    pub(crate) trouble: Duration,
}

/// Whether a Scheduler answers, or a candidate that says why there can be none.
pub(crate) async fn somebody_answers(bus: &Bus, subjects: &Subjects, refusals: &Refusals) -> Result<bool, NodeError> {
    Ok(ask_where(bus, subjects, refusals).await?.is_some() || ask_trouble(bus, subjects, refusals).await?.is_some())
}

/// The heartbeats of all nodes, for who has none of its own yet.
pub(crate) struct Beats<'a> {
    beats: Subscription,
    credentials: &'a Credentials,
    subjects: &'a Subjects,
}

impl<'a> Beats<'a> {
    /// From now on.
    pub(crate) async fn hear(bus: &'a Bus, subjects: &'a Subjects) -> Result<Self, NodeError> {
        let every_beat = subjects.every_node("beat").map_err(|error| NodeError::Other(error.to_string()))?;
        let beats = bus.subscribe(every_beat, SubscribeOptions::default()).await?;
        Ok(Self { beats, credentials: bus.credentials(), subjects })
    }

    /// Whether a node was heard since it was asked last, or is within this time.
    pub(crate) async fn within(&mut self, time: Duration) -> bool {
        let heard = async {
            while let Some(beat) = self.beats.recv().await {
                let beat = genuine_beat(self.credentials, self.subjects, &beat.subject, &beat.message.payload);
                if matches!(beat, Ok(Ok(MembershipMsg::Beat(beat))) if !beat.stopping) {
                    // Older ones say no more.
                    while self.beats.try_recv().is_some() {}
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(time, heard).await.unwrap_or(false)
    }
}

async fn ask_trouble(bus: &Bus, subjects: &Subjects, refusals: &Refusals) -> Result<Option<NoScheduler>, NodeError> {
    ask(bus, subjects, ("election", "trouble"), refusals).await
}

/// What a candidate says why there can be no Scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoScheduler {
    /// For people.
    pub(crate) why: String,
    /// It will be over soon, by itself: who can wait does.
    pub(crate) passes: bool,
}

/// What candidates say, and from when to when they have said so.
struct Trouble {
    since: Duration,
    heard: Duration,
    told: NoScheduler,
}

/// Asks until somebody says where the Scheduler is.
pub(crate) async fn find_scheduler(
    bus: &Bus,
    subjects: &Subjects,
    search: Search,
    clock: &Arc<dyn Clock>,
) -> Result<Leader, NodeError> {
    let (started, refusals) = (clock.now(), Refusals::default());
    let mut trouble: Option<Trouble> = None;
    loop {
        if let Some(answer) = ask(bus, subjects, WHERE, &refusals).await? {
            return Ok(answer);
        }
        let told = ask_trouble(bus, subjects, &refusals).await?;
        let now = clock.now();
        trouble = match (told, trouble) {
            (Some(told), None) => Some(Trouble { since: now, heard: now, told }),
            (Some(told), Some(known)) => Some(Trouble { heard: now, told, ..known }),
            // An answer may be lost.
            (None, known) => known.filter(|known| now.saturating_sub(known.heard) < TROUBLE_LASTS),
        };
        let waited = now.saturating_sub(started);
        let passes = trouble.as_ref().is_some_and(|known| known.told.passes);
        let in_vain = trouble.as_ref().is_some_and(|known| now.saturating_sub(known.since) >= search.trouble);
        let deadline = if passes { search.deadline.max(PASSES_IN) } else { search.deadline };
        if (in_vain && !passes) || waited >= deadline {
            let why = trouble.map_or_else(|| NOBODY.to_owned(), |known| known.told.why);
            return Err(NodeError::NoScheduler { cluster: subjects.cluster().to_owned(), waited, why });
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Registers and waits until the Scheduler knows this node.
pub(crate) async fn register(
    scheduler: &SchedulerLink,
    spec: &NodeSpec,
    deadline: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<(), NodeError> {
    let other = |error: &dyn std::fmt::Display| NodeError::Other(format!("register with the scheduler: {error}"));
    let started = clock.now();
    loop {
        // It may have stepped down in between: then the next one is told.
        let told = scheduler.send(SchedulerMsg::NodeUp(spec.clone()));
        let left = deadline.saturating_sub(clock.now().saturating_sub(started));
        let nodes = scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, left).await;
        let nodes = nodes.map_err(|error| other(&error))?;
        let listed = nodes.iter().find(|info| info.spec.node == spec.node);
        if listed.is_some_and(|info| info.up && info.spec.incarnation == spec.incarnation) {
            return Ok(());
        }
        let taken = listed.is_some_and(|info| info.spec.incarnation > spec.incarnation);
        if taken || clock.now().saturating_sub(started) >= deadline {
            told.map_err(|error| other(&error))?;
            return Err(other(&"it does not list this node; is the name taken?"));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Hands what arrives in sessions to the actors of this process.
///
/// What an incarnation of a node says that is over, as far as this node knows, is dropped here, whomever it is for: nothing of it
/// counts any more, and the node is told by Membership.
pub(crate) async fn pump(mut events: EndpointEvents, post: Post, directory: Directory) {
    while let Some(event) = events.recv().await {
        match event {
            SessionEvent::Items { from, items } => {
                if !NodeId::is_valid(from.name()) {
                    post.refuse(from.name(), "session", &"no name of a node");
                    continue;
                }
                if directory.is_over(&NodeId::new(from.name()), Incarnation(from.incarnation())) {
                    post.count_stale(items.len() as u64);
                    debug!(node = from.name(), items = items.len(), "words of an incarnation that is over");
                    continue;
                }
                for (actor, item) in items {
                    post.deliver(&from, &actor, &item);
                }
            }
            // Counted and logged by the session, and sent by a build that is not ours: nothing of it can be answered.
            SessionEvent::Undecodable { .. } => {}
            // Membership says what became of the peer; jobs exchange with it what was lost.
            SessionEvent::Reset { peer, reason } => {
                info!(node = peer.node, ?reason, "session reset");
                if NodeId::is_valid(&peer.node) {
                    directory.session_reset(NodeId::new(&peer.node), Incarnation(peer.incarnation));
                }
            }
            // What becomes of nodes Membership says; the others are clients, which come and go.
            SessionEvent::Silent { peer, since } => debug!(node = peer.node, ?since, "peer is silent"),
            SessionEvent::Unsupported { peer, theirs } => {
                warn!(node = peer.node, ?theirs, "peer speaks no version of ours")
            }
        }
    }
}
