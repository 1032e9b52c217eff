//! Listens for questions about services, and answers them with what the node counts.

use std::collections::BTreeMap;
use std::rc::Rc;

use exobus_bus::{Bus, BusError, Delivery, Message, Pattern, SERVICES, Subjects, SubscribeOptions};
use tracing::{debug, warn};

use super::answer::{Question, Service, Verb, answer};
use super::figures::{self, Asked, Figures, Identity, SchedulerFigures};
use crate::api::DoorCalls;
use crate::host::NodeParts;
use crate::jobs::view::time;
use crate::shell::Kind;
use crate::shell::calls::Calls;

/// A question has no body worth reading.
const QUESTION_BYTES_MAX: usize = 1024;
/// What of questions may wait: some hundred. Who is dropped beyond that asks again.
const WAITING_BYTES: usize = 128 << 10;

/// What the services of an incarnation of a node are made of.
pub(crate) struct ServicesParts {
    pub(crate) node: NodeParts,
    pub(crate) bus: Bus,
    pub(crate) subjects: Subjects,
    /// What was asked at the door.
    pub(crate) door: DoorCalls,
}

/// Answers questions about services from now on, as long as the current arbiter lives. Where nobody outside this process can ask, there is nothing
/// to answer.
///
/// # Errors
/// The bus does not do what is asked. That the server's permissions are against it is none.
pub(crate) async fn open(parts: ServicesParts) -> Result<(), BusError> {
    if parts.bus.backend().asks_who_connects().is_none() {
        return Ok(());
    }
    let all = Pattern::parse(&format!("{SERVICES}.>"))?;
    let few = SubscribeOptions { capacity_bytes: WAITING_BYTES, ..SubscribeOptions::small(QUESTION_BYTES_MAX) };
    let mut questions = match parts.bus.subscribe(all, few).await {
        Ok(questions) => questions,
        Err(error @ BusError::Denied { .. }) => {
            warn!(%error, "this node is no service to `nats micro`: its user may not subscribe to $SRV.>");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let services = Rc::new(Services::new(parts));
    actix_rt::spawn(async move {
        while let Some(question) = questions.recv().await {
            services.answer(&question);
            // Heartbeats go out between two of them, however many there are.
            tokio::task::yield_now().await;
        }
    });
    Ok(())
}

struct Services {
    parts: ServicesParts,
    who: Identity,
    /// How often each was asked for its figures.
    asked: BTreeMap<&'static str, Calls>,
}

impl Services {
    fn new(parts: ServicesParts) -> Self {
        let post = &parts.node.post;
        let who = Identity {
            cluster: parts.subjects.cluster().to_owned(),
            node: post.node().to_string(),
            incarnation: post.incarnation().0,
            started: time(post.clock().unix_ms()),
        };
        let asked = figures::NAMES.into_iter().map(|name| (name, Calls::default())).collect();
        Self { parts, who, asked }
    }

    fn answer(&self, delivery: &Delivery) {
        let Some(question) = Question::parse(&delivery.subject) else { return };
        let clock = self.parts.node.post.clock();
        let begun = clock.now();
        for service in self.services(question.verb).iter().filter(|service| question.is_for(service)) {
            let said = serde_json::to_vec(&answer(question.verb, service)).expect("plain data has a form in JSON");
            // Whoever asked asks again.
            if let Err(error) = delivery.try_reply(Message::new(said)) {
                return debug!(subject = %delivery.subject, %error, "a question about services is not answered");
            }
            if let (Verb::Stats, Some(calls)) = (question.verb, self.asked.get(service.name)) {
                calls.note(clock.now().saturating_sub(begun), None);
            }
        }
    }

    fn services(&self, verb: Verb) -> Vec<Service> {
        // Only who asks for figures has them looked at.
        let figures = match verb {
            Verb::Stats => self.figures(),
            Verb::Ping | Verb::Info => {
                Figures { scheduler: self.leads().then(SchedulerFigures::default), ..Figures::default() }
            }
        };
        figures::services(&self.who, &figures, &self.counts())
    }

    /// Whether this node is the Scheduler, as far as it knows.
    fn leads(&self) -> bool {
        self.parts.node.scheduler.leader().is_some_and(|leader| leader.node == *self.parts.node.post.node())
    }

    fn figures(&self) -> Figures {
        let node = &self.parts.node;
        let census = node.post.census();
        Figures {
            process: (node.figures)(),
            store: node.store.stats(),
            attempts_waiting: census.get(Kind::AttemptWaiting),
            attempts_handed: census.get(Kind::AttemptHanded),
            lanes: census.get(Kind::Lane),
            pushes: census.get(Kind::Push),
            owners: census.get(Kind::Owner),
            hosted: census.get(Kind::Hosted),
            scheduler: self.leads().then(|| {
                let others = node.directory.members().into_iter().filter(|member| member.node != *node.post.node());
                let (up, gone): (Vec<_>, Vec<_>) = others.partition(|member| !member.health.is_gone());
                SchedulerFigures {
                    epoch: node.scheduler.leader().map_or(0, |leader| leader.epoch.0),
                    jobs_waiting: census.get(Kind::JobWaiting),
                    jobs_not_over: census.get(Kind::JobNotOver),
                    leases: census.get(Kind::Loan),
                    nodes: (1 + up.len() + gone.len()) as u64,
                    nodes_up: (1 + up.len()) as u64,
                }
            }),
        }
    }

    fn counts(&self) -> Asked {
        let parts = &self.parts;
        let of_result = (crate::results::VERB, crate::results::QUEUE, &parts.node.results.calls);
        let verbs = parts.door.verbs().chain([of_result]);
        let verbs = verbs.filter_map(|(verb, queue, calls)| {
            let subject = parts.subjects.every_api(verb).ok()?;
            Some((verb, subject.as_str().to_owned(), queue, calls.read()))
        });
        let handed_on = parts.subjects.node(&self.who.node, crate::api::HANDED_ON);
        Asked {
            figures: self.asked.iter().map(|(name, calls)| (*name, calls.read())).collect(),
            verbs: verbs.collect(),
            handed_on: (
                handed_on.map(|subject| subject.as_str().to_owned()).unwrap_or_default(),
                parts.door.handed_on().read(),
            ),
        }
    }
}
