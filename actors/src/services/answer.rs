//! What is asked about services and what is answered, as ADR-32 of NATS has it. Pure.

use std::collections::BTreeMap;

use exobus_bus::{SERVICES, Subject};
use serde_json::{Map, Value, json};

use crate::shell::calls::Count;

/// A service as it presents itself.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// `[A-Za-z0-9_-]+`.
    pub(crate) name: &'static str,
    /// No other service, and no other incarnation of the node, has it; a token of a subject.
    pub(crate) id: String,
    /// One line for people.
    pub(crate) description: &'static str,
    /// Since when it is there: RFC 3339, UTC.
    pub(crate) started: String,
    /// What clients may sort by.
    pub(crate) metadata: BTreeMap<&'static str, String>,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One thing that a service is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: &'static str,
    /// Where requests go.
    pub(crate) subject: String,
    /// Of those that listen in one group, one answers; empty: there is no such group.
    pub(crate) queue_group: &'static str,
    /// How often it was asked.
    pub(crate) count: Count,
    /// Figures beside those, an object. It is there where there are none, too: some clients do without it no better than without a count.
    pub(crate) data: Value,
}

/// What is asked of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Who is there?
    Ping,
    /// What is it, and where is it asked?
    Info,
    /// How much was it asked, and how does it stand?
    Stats,
}

/// A question, and whom it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    pub(crate) verb: Verb,
    name: Option<&'a str>,
    id: Option<&'a str>,
}

impl<'a> Question<'a> {
    /// The question on a subject; `None`: it is none that there is.
    pub(crate) fn parse(subject: &'a Subject) -> Option<Self> {
        let mut tokens = subject.tokens();
        if tokens.next() != Some(SERVICES) {
            return None;
        }
        let verb = match tokens.next()? {
            "PING" => Verb::Ping,
            "INFO" => Verb::Info,
            "STATS" => Verb::Stats,
            _ => return None,
        };
        let (name, id) = (tokens.next(), tokens.next());
        tokens.next().is_none().then_some(Self { verb, name, id })
    }

    /// Whether this service is to answer.
    pub(crate) fn is_for(&self, service: &Service) -> bool {
        self.name.is_none_or(|name| name == service.name) && self.id.is_none_or(|id| id == service.id)
    }
}

/// What a service answers.
pub(crate) fn answer(verb: Verb, service: &Service) -> Value {
    let word = match verb {
        Verb::Ping => "ping",
        Verb::Info => "info",
        Verb::Stats => "stats",
    };
    let mut answer = Map::new();
    answer.insert("type".into(), format!("io.nats.micro.v1.{word}_response").into());
    answer.insert("name".into(), service.name.into());
    answer.insert("id".into(), service.id.clone().into());
    answer.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    answer.insert("metadata".into(), json!(service.metadata));
    match verb {
        Verb::Ping => {}
        Verb::Info => {
            answer.insert("description".into(), service.description.into());
            answer.insert("endpoints".into(), service.endpoints.iter().map(endpoint_info).collect());
        }
        Verb::Stats => {
            answer.insert("started".into(), service.started.clone().into());
            answer.insert("endpoints".into(), service.endpoints.iter().map(endpoint_stats).collect());
        }
    }
    Value::Object(answer)
}

fn endpoint_info(endpoint: &Endpoint) -> Value {
    json!({
        "name": endpoint.name, "subject": endpoint.subject, "queue_group": endpoint.queue_group, "metadata": {},
    })
}

fn endpoint_stats(endpoint: &Endpoint) -> Value {
    let count = &endpoint.count;
    let nanos = u64::try_from(count.took.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "name": endpoint.name, "subject": endpoint.subject, "queue_group": endpoint.queue_group,
        "num_requests": count.requests, "num_errors": count.errors, "last_error": count.last_error,
        "processing_time": nanos, "average_processing_time": nanos.checked_div(count.requests).unwrap_or(0),
        "data": endpoint.data,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn service() -> Service {
        let count = Count { requests: 4, errors: 1, last_error: "no".to_owned(), took: Duration::from_nanos(10) };
        let endpoint = |name, queue_group, count, data| Endpoint {
            name,
            subject: format!("exo.{name}"),
            queue_group,
            count,
            data,
        };
        Service {
            name: "exobus-api",
            id: "n1-7-api".to_owned(),
            description: "the door",
            started: "2026-01-02T03:04:05.000Z".to_owned(),
            metadata: [("node", "n1".to_owned())].into(),
            endpoints: vec![
                endpoint("submit", "api", count, json!({})),
                endpoint("figures", "", Count::default(), json!({ "jobs": 2 })),
            ],
        }
    }

    #[test]
    fn answers_have_the_fields_that_clients_of_nats_read() {
        let version = env!("CARGO_PKG_VERSION");
        let own = |word: &str| {
            json!({
                "type": format!("io.nats.micro.v1.{word}_response"), "name": "exobus-api", "id": "n1-7-api",
                "version": version, "metadata": { "node": "n1" },
            })
        };
        assert_eq!(answer(Verb::Ping, &service()), own("ping"));
        let mut info = own("info");
        info["description"] = "the door".into();
        info["endpoints"] = json!([
            { "name": "submit", "subject": "exo.submit", "queue_group": "api", "metadata": {} },
            { "name": "figures", "subject": "exo.figures", "queue_group": "", "metadata": {} },
        ]);
        assert_eq!(answer(Verb::Info, &service()), info);
        let mut stats = own("stats");
        stats["started"] = "2026-01-02T03:04:05.000Z".into();
        stats["endpoints"] = json!([
            { "name": "submit", "subject": "exo.submit", "queue_group": "api", "num_requests": 4, "num_errors": 1,
              "last_error": "no", "processing_time": 10, "average_processing_time": 2, "data": {} },
            { "name": "figures", "subject": "exo.figures", "queue_group": "", "num_requests": 0, "num_errors": 0,
              "last_error": "", "processing_time": 0, "average_processing_time": 0, "data": { "jobs": 2 } },
        ]);
        assert_eq!(answer(Verb::Stats, &service()), stats);
    }

    #[test]
    fn a_question_is_for_all_or_for_those_of_a_name_or_for_one() {
        let is_for = |subject: &str| {
            let subject = Subject::parse(subject).unwrap();
            Question::parse(&subject).map(|question| question.is_for(&service()))
        };
        for (subject, expected) in [
            ("$SRV.PING", Some(true)),
            ("$SRV.INFO.exobus-api", Some(true)),
            ("$SRV.STATS.exobus-api.n1-7-api", Some(true)),
            ("$SRV.PING.exobus-store", Some(false)),
            ("$SRV.PING.exobus-api.n1-8-api", Some(false)),
            ("$SRV.PING.EXOBUS-API", Some(false)),
            ("$SRV.PING.exobus-api.n1-7-api.more", None),
            ("$SRV.SCHEMA", None),
            ("exo.PING", None),
        ] {
            assert_eq!(is_for(subject), expected, "{subject}");
        }
    }
}
