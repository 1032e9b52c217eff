//! Requests in, answers out.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Bus, BusError, Delivery, Message, Subject, Subjects, SubscribeOptions, Subscription};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, info};

use super::answer::ApiError;
use super::{explain, look, submit};
use crate::host::NodeParts;
use crate::ids::NodeId;
use crate::joining::{NodeError, Search, find_scheduler};
use crate::protocol::scheduler::SchedulerMsg;
use crate::shell::Reply;
use crate::shell::calls::Calls;
use crate::spec::SPEC_BYTES_MAX;
use crate::tenants::Tenant;

/// Header of a request: the submitters' token.
pub const TOKEN: &str = "Exobus-Token";
/// Header of a request: who says that he asks.
pub const WHO: &str = "Exobus-Who";
/// Header of a request: how the answer is to be encoded, "msgpack", where there is a choice; of an answer: how it is.
pub const ENCODING: &str = "Exobus-Encoding";
/// Header of a `submit`: the id that the job is to have, 32 hexadecimal digits; who hands the same job in again under it has one job.
pub const JOB: &str = "Exobus-Job";
/// Header of a `submit`: the job is not to do what the spec says, but to say what that would take.
pub const EXPLAIN: &str = "Exobus-Explain";
/// Header of a request: how often figures of nodes are wanted, milliseconds.
pub const SAMPLE_MS: &str = "Exobus-Sample-Ms";

/// The queue group of the nodes of a cluster.
const QUEUE: &str = "api";
/// Requests that a node works on at a time.
pub const WORK_MAX: usize = 64;
/// Requests of which something is to happen first that wait on a node.
pub const WAITS_MAX: usize = 1024;
/// A request that is no spec has at most so many bytes.
const REQUEST_BYTES_MAX: usize = 4096;
/// What headers may add.
const HEADER_BYTES_MAX: usize = 2048;
/// What of specs may wait for a node, bytes.
const SPECS_WAITING_BYTES: usize = 4 << 20;

/// What is answered to requests for which there is no room.
fn crowded() -> Message {
    ApiError::unavailable("more requests wait at this node than it can keep: ask again").message()
}

/// What requests are handed on under to a node.
pub(crate) const HANDED_ON: &str = "api";
/// Headers of a request that is handed on: what it asks, and for whom.
const VERB: &str = "Exo-Verb";
const TENANT: &str = "Exo-Tenant";

/// The verbs, each with the bytes that a request may have.
const VERBS: [(&str, usize); 14] = [
    ("submit", SPEC_BYTES_MAX),
    ("explain", SPEC_BYTES_MAX),
    ("status", REQUEST_BYTES_MAX),
    ("list", REQUEST_BYTES_MAX),
    ("watch", REQUEST_BYTES_MAX),
    ("events", REQUEST_BYTES_MAX),
    ("estimate", REQUEST_BYTES_MAX),
    ("cancel", REQUEST_BYTES_MAX),
    ("tell", REQUEST_BYTES_MAX),
    ("why", REQUEST_BYTES_MAX),
    ("value", REQUEST_BYTES_MAX),
    ("logs", REQUEST_BYTES_MAX),
    ("nodes", REQUEST_BYTES_MAX),
    ("cluster", REQUEST_BYTES_MAX),
];

/// The door of a node.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) parts: NodeParts,
    pub(crate) bus: Bus,
    pub(crate) subjects: Subjects,
    pub(super) work: Arc<Semaphore>,
    pub(super) waits: Arc<Semaphore>,
    calls: DoorCalls,
}

/// How often each verb was asked for at a door, and how long that took, waiting for something to happen included; errors are those that were answered.
/// Clones share it.
#[derive(Clone)]
pub(crate) struct DoorCalls {
    verbs: Arc<[(&'static str, Calls)]>,
    /// Requests that other nodes had and this one answers.
    handed_on: Calls,
}

impl DoorCalls {
    fn new() -> Self {
        Self { verbs: VERBS.map(|(verb, _)| (verb, Calls::default())).into(), handed_on: Calls::default() }
    }

    /// The verbs, each with the queue group of those who answer and what was counted.
    pub(crate) fn verbs(&self) -> impl Iterator<Item = (&'static str, &'static str, &Calls)> {
        self.verbs.iter().map(|(verb, calls)| (*verb, QUEUE, calls))
    }

    /// Requests that other nodes had and this one answers.
    pub(crate) fn handed_on(&self) -> &Calls {
        &self.handed_on
    }

    fn of(&self, verb: Option<&str>) -> &Calls {
        let found = self.verbs.iter().find(|(name, _)| Some(*name) == verb);
        found.map_or(&self.handed_on, |(_, calls)| calls)
    }
}

/// A request, as far as everybody looks at it.
pub(super) struct Asked<'a> {
    pub(super) tenant: Arc<str>,
    pub(super) verb: &'a str,
    pub(super) message: &'a Message,
    /// Where the answer goes.
    pub(super) inbox: Option<&'a Subject>,
    /// Whether another node has handed it on to this one, which can answer.
    pub(super) is_handed_on: bool,
}

/// A request that is larger than one with this verb may be; `None`: one that was handed on, which is a spec.
fn too_large(verb: Option<&str>, bytes: usize) -> ApiError {
    let most = VERBS.iter().find(|(name, _)| Some(*name) == verb).map_or(SPEC_BYTES_MAX, |(_, most)| *most);
    let verb = verb.unwrap_or("submit");
    let text = format!(
        "the request has {bytes} bytes with its headers; a {verb} may have {most}, and {HEADER_BYTES_MAX} of headers"
    );
    ApiError::new("too_large", text)
}

impl Asked<'_> {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.message.headers.get(name)
    }
}

impl Door {
    /// A door of the node of these parts.
    pub(crate) fn new(parts: NodeParts, bus: Bus, subjects: Subjects) -> Self {
        let (work, waits) = (Arc::new(Semaphore::new(WORK_MAX)), Arc::new(Semaphore::new(WAITS_MAX)));
        Self { parts, bus, subjects, work, waits, calls: DoorCalls::new() }
    }

    /// What was asked at this door so far, for who shows it.
    pub(crate) fn calls(&self) -> DoorCalls {
        self.calls.clone()
    }

    /// Answers requests from now on, as long as the current arbiter lives.
    ///
    /// # Errors
    /// The bus does not do what is asked.
    pub(crate) async fn open(self) -> Result<(), BusError> {
        for (verb, bytes_max) in VERBS {
            let small = SubscribeOptions::small(bytes_max + HEADER_BYTES_MAX);
            let capacity_bytes = if bytes_max > REQUEST_BYTES_MAX { SPECS_WAITING_BYTES } else { small.capacity_bytes };
            let (queue, when_full) = (Some(QUEUE.to_owned()), Some(crowded()));
            let options = SubscribeOptions { queue, capacity_bytes, when_full, ..small };
            let requests = self.bus.subscribe(self.subjects.every_api(verb)?, options).await?;
            actix_rt::spawn(self.clone().serve(Some(verb), requests));
        }
        let own = self.subjects.node(self.parts.post.node().as_str(), HANDED_ON)?;
        let options = SubscribeOptions {
            capacity_bytes: SPECS_WAITING_BYTES,
            when_full: Some(crowded()),
            ..SubscribeOptions::small(SPEC_BYTES_MAX + HEADER_BYTES_MAX)
        };
        let handed_on = self.bus.subscribe(own.into(), options).await?;
        actix_rt::spawn(self.serve(None, handed_on));
        Ok(())
    }

    /// Has another node answer, which can.
    pub(super) fn hand_on(&self, asked: &Asked<'_>, to: &NodeId) -> Result<(), ApiError> {
        let failed = |error: BusError| ApiError::unavailable(format!("node {to} cannot be asked: {error}"));
        let Some(inbox) = asked.inbox else {
            return Err(ApiError::new("bad_request", "the request names no inbox for its answer"));
        };
        let subject = self.subjects.node(to.as_str(), HANDED_ON).map_err(|error| failed(error.into()))?;
        let message = asked.message.clone().with_header(VERB, asked.verb);
        let message = message.and_then(|message| message.with_header(TENANT, &asked.tenant));
        let message = message.map_err(|error| ApiError::new("bad_request", error.to_string()))?;
        self.bus.publish_with_reply(subject, inbox.clone(), message).map_err(failed)
    }

    /// Answers requests with this verb; `None`: those that other nodes have handed on.
    async fn serve(self, verb: Option<&'static str>, mut requests: Subscription) {
        while let Some(delivery) = requests.recv().await {
            // Who asks for more than can be worked on waits in the subscription, which is bounded.
            let Ok(permit) = self.work.clone().acquire_owned().await else { return };
            let door = self.clone();
            actix_rt::spawn(async move {
                let clock = door.parts.post.clock();
                let begun = clock.now();
                let answer = door.answer(verb, &delivery, permit).await;
                let error = answer.as_ref().err().map(|error| format!("{}: {error}", error.code));
                door.calls.of(verb).note(clock.now().saturating_sub(begun), error);
                let answer = match answer {
                    Ok(Some(answer)) => answer,
                    Ok(None) => return,
                    Err(error) => error.message(),
                };
                if let Err(error) = delivery.try_reply(answer) {
                    debug!(subject = %delivery.subject, %error, "a request is not answered");
                }
            });
        }
    }

    /// What is answered; `None`: another node answers.
    async fn answer(
        &self,
        verb: Option<&'static str>,
        delivery: &Delivery,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<Message>, ApiError> {
        if let Some(bytes) = delivery.too_large {
            return Err(too_large(verb, bytes));
        }
        let (message, is_handed_on) = (&delivery.message, verb.is_none());
        let headers = &message.headers;
        let (tenant, verb) = match verb {
            Some(verb) => (delivery.subject.tokens().nth(4), verb),
            // Only nodes speak on subjects of nodes.
            None => (headers.get(TENANT), headers.get(VERB).unwrap_or_default()),
        };
        let tenant: Arc<str> = tenant.unwrap_or_default().into();
        self.tenant(&tenant)?;
        let asked = Asked { tenant, verb, message, inbox: delivery.inbox(), is_handed_on };
        if matches!(verb, "submit" | "explain" | "cancel" | "tell") {
            self.admit(&asked)?;
        }
        match verb {
            "submit" => submit::submit(self, &asked).await,
            "explain" => explain::answer(self, &asked, permit).await,
            "cancel" => submit::cancel(self, &asked, permit).await.map(Some),
            "tell" => submit::tell(self, &asked).await.map(Some),
            _ => look::answer(self, &asked, permit).await.map(Some),
        }
    }

    /// What a tenant may do.
    pub(super) fn tenant(&self, name: &str) -> Result<&Tenant, ApiError> {
        // Which others there are is nobody's business who is none of them.
        let unknown = || ApiError::new("unknown_tenant", format!("there is no tenant {}", crate::spec::shown(name)));
        self.parts.tenants.get(name).ok_or_else(unknown)
    }

    /// Whether somebody may change something.
    fn admit(&self, asked: &Asked<'_>) -> Result<(), ApiError> {
        self.bus.credentials().admits(asked.header(TOKEN)).map_err(|denied| {
            info!(tenant = &*asked.tenant, verb = asked.verb, %denied, "somebody is turned away at the door");
            let text = format!("{denied}: it belongs into the header {TOKEN} of the request");
            ApiError::new("unauthorized", text)
        })
    }
}

/// How long the Scheduler may take to answer a door, ...
const SCHEDULER_DEADLINE: Duration = Duration::from_secs(8);
/// ... and how long it is waited for one where none is known.
const ELECTED_IN: Duration = Duration::from_secs(2);

impl Door {
    /// Asks the Scheduler, whoever that is.
    pub(super) async fn scheduler<T>(&self, question: impl Fn(Reply<T>) -> SchedulerMsg) -> Result<T, ApiError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let link = &self.parts.scheduler;
        let deadline = if link.leader().is_some() { SCHEDULER_DEADLINE } else { ELECTED_IN };
        let error = match link.ask(question, deadline).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if link.leader().is_some() {
            return Err(ApiError::unavailable(format!("the Scheduler does not answer: {error}; ask again")));
        }
        let search = Search { deadline: ELECTED_IN, trouble: Duration::ZERO };
        match find_scheduler(&self.bus, &self.subjects, search, self.parts.post.clock()).await {
            Err(NodeError::NoScheduler { why, .. }) => {
                Err(ApiError::new("no_scheduler", format!("there is no Scheduler: {why}; ask again")))
            }
            _ => Err(ApiError::unavailable("there was no Scheduler a moment ago: ask again")),
        }
    }
}
