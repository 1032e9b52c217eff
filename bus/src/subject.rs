//! Subjects: where a message goes, and the scheme of names that exobus uses.
//!
//! A [`Subject`] is a full name, a [`Pattern`] may hold wildcards: `*` stands for exactly one token, `>` for one
//! or more tokens at the end. Tokens are `[A-Za-z0-9_-]+`, so user text never becomes part of a subject and both
//! backends agree on what is valid. [`Subjects`] builds and takes apart the names of one cluster:
//!
//! | subject                                          | publisher          | subscriber              |
//! |--------------------------------------------------|--------------------|-------------------------|
//! | `exo.v1.<cluster>.ctl.<service>.<verb>`          | anyone (request)   | the service, one of a queue group |
//! | `exo.v1.<cluster>.node.<node>.<actor>`           | anyone             | that actor of that node |
//! | `exo.v1.<cluster>.node.<node>.beat`              | the node           | everyone (`node.*.beat`) |
//! | `exo.v1.<cluster>.node.<to>.session.<from>`      | node `from`        | node `to` (frames of [sessions](crate::session)) |
//! | `exo.v1.<cluster>.node.<to>.session.client.<from>` | submitter `from` | node `to`               |
//! | `exo.v1.<cluster>.client.<to>.session.<from>`    | node `from`        | submitter `to`          |
//! | `exo.v1.<cluster>.job.<tenant>.<job>.<channel>`  | see [`JobChannel`] | see [`JobChannel`]      |
//! | `exo.v1.<cluster>.api.<tenant>.<verb>`           | who speaks for the tenant (request) | nodes, one of a queue group |
//! | `exo.v1.<cluster>.stream.<stream>.<rest>`        | records of a [stream](crate::streams) | readers of the stream |
//! | `exo.v1.<cluster>.kv.<bucket>.<key>`             | writers of a [bucket](crate::kv) | watchers of the bucket |
//! | `exo.v1.<cluster>.data.<node>.<rest>`            | only when NATS is the data path | |
//!
//! Beside these there is [`SERVICES`], the tree of NATS itself on which clients ask what services there are: the only one whose first token
//! is no token of ours.
//!
//! What submitters say and what is said to them have tokens of their own, as permissions of a server cannot match a part of a
//! name: so they can keep a submitter from speaking in a node's place.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::Role;

/// What separates the receiver of a frame from its sender.
const SESSION: &str = "session";
/// In place of `node`, or before a name: a submitter's.
const CLIENT: &str = "client";

/// Below what a process of this role is spoken to in sessions.
fn place(role: Role) -> &'static str {
    match role {
        Role::Node => "node",
        Role::Submitter => CLIENT,
    }
}

/// The first token of all subjects of ours.
pub(crate) const SCHEME: &str = "exo";
/// The first token of the subjects on which clients of NATS ask what services there are.
pub const SERVICES: &str = "$SRV";
/// Longest subject or pattern, in bytes. NATS takes 4096 for a whole control line; names of ours are far shorter.
pub const SUBJECT_BYTES_MAX: usize = 255;

/// Why a text is no subject, pattern or token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// Nothing between two dots, or nothing at all.
    #[error("empty token in subject {subject:?}")]
    EmptyToken {
        /// The text as given.
        subject: String,
    },
    /// A character outside `[A-Za-z0-9_-]`.
    #[error("token {token:?} holds {character:?}; only letters, digits, `_` and `-` are allowed")]
    BadCharacter {
        /// The token it was found in.
        token: String,
        /// The first such character.
        character: char,
    },
    /// `*` mixed with text, `>` not at the end, or either of them in a full subject.
    #[error("wildcard out of place in {subject:?}")]
    Wildcard {
        /// The text as given.
        subject: String,
    },
    /// Longer than [`SUBJECT_BYTES_MAX`].
    #[error("subject of {bytes} bytes, at most {SUBJECT_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A valid subject that does not follow the scheme of this cluster.
    #[error("subject {subject:?} is none of this cluster's")]
    Foreign {
        /// The subject as given.
        subject: String,
    },
}

/// Checks one token.
///
/// # Errors
/// `EmptyToken` or `BadCharacter`.
pub fn check_token(token: &str) -> Result<(), SubjectError> {
    if token.is_empty() {
        return Err(SubjectError::EmptyToken { subject: token.to_owned() });
    }
    match token.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_' || *c == '-')) {
        Some(character) => Err(SubjectError::BadCharacter { token: token.to_owned(), character }),
        None => Ok(()),
    }
}

/// Checks a token of a subject; `index`: which one of it.
fn check_token_at(index: usize, token: &str) -> Result<(), SubjectError> {
    if index == 0 && token == SERVICES { Ok(()) } else { check_token(token) }
}

fn check_length(text: &str) -> Result<(), SubjectError> {
    if text.len() > SUBJECT_BYTES_MAX {
        return Err(SubjectError::TooLong { bytes: text.len() });
    }
    if text.is_empty() {
        return Err(SubjectError::EmptyToken { subject: String::new() });
    }
    Ok(())
}

/// A full subject: where one message goes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subject(Arc<str>);

impl Subject {
    /// Parses and validates.
    ///
    /// # Errors
    /// See [`SubjectError`]; wildcards are refused.
    pub fn parse(text: &str) -> Result<Self, SubjectError> {
        check_length(text)?;
        for (index, token) in text.split('.').enumerate() {
            match token {
                "" => return Err(SubjectError::EmptyToken { subject: text.to_owned() }),
                "*" | ">" => return Err(SubjectError::Wildcard { subject: text.to_owned() }),
                token => check_token_at(index, token)?,
            }
        }
        Ok(Self(text.into()))
    }

    /// The text, tokens separated by dots.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tokens in order; there is at least one.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

/// Which subjects a subscription receives. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Parses and validates; a full subject is a pattern too.
    ///
    /// # Errors
    /// See [`SubjectError`].
    pub fn parse(text: &str) -> Result<Self, SubjectError> {
        check_length(text)?;
        let mut ended = false;
        for (index, token) in text.split('.').enumerate() {
            if ended {
                return Err(SubjectError::Wildcard { subject: text.to_owned() });
            }
            match token {
                "" => return Err(SubjectError::EmptyToken { subject: text.to_owned() }),
                "*" => {}
                ">" => ended = true,
                token if token.len() > 1 && token.contains(['*', '>']) => {
                    return Err(SubjectError::Wildcard { subject: text.to_owned() });
                }
                token => check_token_at(index, token)?,
            }
        }
        Ok(Self(text.into()))
    }

    /// The text, tokens separated by dots.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it holds a wildcard.
    pub fn is_wild(&self) -> bool {
        self.0.contains(['*', '>'])
    }

    /// Whether a subject belongs to it.
    pub fn matches(&self, subject: &Subject) -> bool {
        let mut subject_tokens = subject.tokens();
        for token in self.0.split('.') {
            match (token, subject_tokens.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (mine, Some(theirs)) if mine == theirs => {}
                _ => return false,
            }
        }
        subject_tokens.next().is_none()
    }
}

macro_rules! text_like {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl TryFrom<String> for $type {
            type Error = SubjectError;
            fn try_from(text: String) -> Result<Self, SubjectError> {
                Self::parse(&text)
            }
        }
        impl std::str::FromStr for $type {
            type Err = SubjectError;
            fn from_str(text: &str) -> Result<Self, SubjectError> {
                Self::parse(text)
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.0.as_ref().to_owned()
            }
        }
    };
}
text_like!(Subject);
text_like!(Pattern);

impl From<Subject> for Pattern {
    fn from(subject: Subject) -> Self {
        Self(subject.0)
    }
}

/// The last token of a job's subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobChannel {
    /// Commands: submitter -> coordinator.
    Cmd,
    /// Events: whoever runs the job -> who watches it.
    Evt,
    /// Estimates with their error bounds, coordinator -> who watches it.
    Est,
    /// What its tasks and its program print: each node that runs some of it -> who watches it.
    Log,
}

impl JobChannel {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cmd, Self::Evt, Self::Est, Self::Log];

    /// The token: `cmd`, `evt`, `est` or `log`.
    pub fn token(self) -> &'static str {
        match self {
            Self::Cmd => "cmd",
            Self::Evt => "evt",
            Self::Est => "est",
            Self::Log => "log",
        }
    }
}

/// A subject of the scheme, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `ctl.<service>.<verb>`: a stateless request.
    Ctl {
        /// Which service.
        service: String,
        /// What it is asked.
        verb: String,
    },
    /// `node.<node>.<actor>`: an actor of a node.
    Node {
        /// The node's token.
        node: String,
        /// The actor's token.
        actor: String,
    },
    /// `node.<to>.session.<from>` and what stands for it where one of both is a submitter: a frame of a session.
    Session {
        /// The receiving process.
        to: String,
        /// The sending process; permissions of the server keep others from claiming it, or at least its role.
        from: String,
    },
    /// `job.<tenant>.<job>.<channel>`.
    Job {
        /// Whose job it is.
        tenant: String,
        /// The job's token.
        job: String,
        /// Which of its channels.
        channel: JobChannel,
    },
    /// `api.<tenant>.<verb>`: a request from outside, for a tenant.
    Api {
        /// For whom.
        tenant: String,
        /// What is asked.
        verb: String,
    },
    /// `stream.<stream>.<rest>`: a record of a durable stream.
    Stream {
        /// The stream.
        stream: String,
        /// The remaining tokens, separated by dots.
        rest: String,
    },
    /// `kv.<bucket>.<key>`: a key of a bucket.
    Kv {
        /// The bucket.
        bucket: String,
        /// Its tokens, separated by dots.
        key: String,
    },
    /// `data.<node>.<rest>`.
    Data {
        /// The receiving node.
        node: String,
        /// The remaining tokens, separated by dots.
        rest: String,
    },
}

/// Names of one cluster: `exo.v1.<cluster>.` and what follows. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subjects {
    prefix: Arc<str>,
}

impl Subjects {
    /// The scheme of the cluster `cluster` (a token).
    ///
    /// # Errors
    /// `cluster` is no token.
    pub fn new(cluster: &str) -> Result<Self, SubjectError> {
        check_token(cluster)?;
        Ok(Self { prefix: format!("{SCHEME}.v1.{cluster}").into() })
    }

    /// The cluster's token.
    pub fn cluster(&self) -> &str {
        self.prefix.rsplit('.').next().unwrap_or_default()
    }

    /// `exo.v1.<cluster>`, what every subject of the cluster begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `ctl.<service>.<verb>`: a stateless request to one of a queue group.
    ///
    /// # Errors
    /// A part is no token.
    pub fn ctl(&self, service: &str, verb: &str) -> Result<Subject, SubjectError> {
        self.subject(&["ctl", service, verb])
    }

    /// `ctl.<service>.*`: every verb of a service.
    ///
    /// # Errors
    /// `service` is no token.
    pub fn ctl_all(&self, service: &str) -> Result<Pattern, SubjectError> {
        self.pattern(&["ctl", service, "*"])
    }

    /// `node.<node>.<actor>`: an actor of a node.
    ///
    /// # Errors
    /// A part is no token.
    pub fn node(&self, node: &str, actor: &str) -> Result<Subject, SubjectError> {
        self.subject(&["node", node, actor])
    }

    /// `node.<node>.>`: everything addressed to a node.
    ///
    /// # Errors
    /// `node` is no token.
    pub fn node_all(&self, node: &str) -> Result<Pattern, SubjectError> {
        self.pattern(&["node", node, ">"])
    }

    /// `node.*.<actor>`: what any node says as, or to, `actor`; `beat` for the heartbeats of all.
    ///
    /// # Errors
    /// `actor` is no token.
    pub fn every_node(&self, actor: &str) -> Result<Pattern, SubjectError> {
        self.pattern(&["node", "*", actor])
    }

    /// Frames of the session from one process to another: `node.<to>.session.<from>` between nodes, `client.` in place of `node.` to a
    /// submitter, and `client.<from>` at the end from one. Both names say their [roles](Role::of).
    ///
    /// # Errors
    /// A part is no token.
    pub fn session(&self, to: &str, from: &str) -> Result<Subject, SubjectError> {
        let place = place(Role::of(to));
        match Role::of(from) {
            Role::Node => self.subject(&[place, to, SESSION, from]),
            Role::Submitter => self.subject(&[place, to, SESSION, CLIENT, from]),
        }
    }

    /// Frames from all processes to one: `node.<to>.session.>`, or `client.<to>.session.*`, as only nodes talk to submitters.
    ///
    /// # Errors
    /// `to` is no token.
    pub fn sessions_to(&self, to: &str) -> Result<Pattern, SubjectError> {
        let from = match Role::of(to) {
            Role::Node => ">",
            Role::Submitter => "*",
        };
        self.pattern(&[place(Role::of(to)), to, SESSION, from])
    }

    /// Who sends the frame on a [`session`](Self::session) subject. `None`: it is none, or its form is that of another role than the
    /// name's, so that no permission of the server has looked at the name as what it is.
    pub fn session_sender(subject: &Subject) -> Option<&str> {
        let mut tokens = subject.as_str().rsplit('.');
        let from = tokens.next()?;
        match (Role::of(from), tokens.next()?) {
            (Role::Node, SESSION) => Some(from),
            (Role::Submitter, CLIENT) if tokens.next()? == SESSION => Some(from),
            _ => None,
        }
    }

    /// `job.<tenant>.<job>.<channel>`.
    ///
    /// # Errors
    /// A part is no token.
    pub fn job(&self, tenant: &str, job: &str, channel: JobChannel) -> Result<Subject, SubjectError> {
        self.subject(&["job", tenant, job, channel.token()])
    }

    /// `job.<tenant>.<job>.*`: every channel of a job.
    ///
    /// # Errors
    /// A part is no token.
    pub fn job_all(&self, tenant: &str, job: &str) -> Result<Pattern, SubjectError> {
        self.pattern(&["job", tenant, job, "*"])
    }

    /// `job.*.*.<channel>`: one channel of every job.
    ///
    /// # Errors
    /// None in practice; the tokens are fixed.
    pub fn every_job(&self, channel: JobChannel) -> Result<Pattern, SubjectError> {
        self.pattern(&["job", "*", "*", channel.token()])
    }

    /// `api.<tenant>.<verb>`: a request from outside, for a tenant, which any NATS client can make; the server's permissions say who.
    ///
    /// # Errors
    /// A part is no token.
    pub fn api(&self, tenant: &str, verb: &str) -> Result<Subject, SubjectError> {
        self.subject(&["api", tenant, verb])
    }

    /// `api.*.<verb>`: what all tenants ask.
    ///
    /// # Errors
    /// `verb` is no token.
    pub fn every_api(&self, verb: &str) -> Result<Pattern, SubjectError> {
        self.pattern(&["api", "*", verb])
    }

    /// `data.<node>.<rest...>`: only when NATS is the data path.
    ///
    /// # Errors
    /// A part is no token, or `rest` is empty.
    pub fn data(&self, node: &str, rest: &[&str]) -> Result<Subject, SubjectError> {
        if rest.is_empty() {
            return Err(SubjectError::EmptyToken { subject: format!("{}.data.{node}.", self.prefix) });
        }
        let mut tokens = vec!["data", node];
        tokens.extend_from_slice(rest);
        self.subject(&tokens)
    }

    /// `stream.<stream>`: what the subjects of a durable stream's records begin with.
    ///
    /// # Errors
    /// `stream` is no token.
    pub fn stream(&self, stream: &str) -> Result<Subject, SubjectError> {
        self.subject(&["stream", stream])
    }

    /// `kv.<bucket>`: what the subjects of a bucket's keys begin with.
    ///
    /// # Errors
    /// `bucket` is no token.
    pub fn kv(&self, bucket: &str) -> Result<Subject, SubjectError> {
        self.subject(&["kv", bucket])
    }

    /// Name of a durable stream or bucket of this cluster in the server's account: `exo_<cluster>_<kind>_<name>`.
    ///
    /// # Errors
    /// A part is no token.
    pub fn durable_name(&self, kind: &str, name: &str) -> Result<String, SubjectError> {
        check_token(kind)?;
        check_token(name)?;
        Ok(format!("exo_{}_{kind}_{name}", self.cluster()))
    }

    /// Takes a subject of this cluster apart.
    ///
    /// # Errors
    /// `Foreign` when it is of another cluster or follows none of the forms.
    pub fn parse(&self, subject: &Subject) -> Result<Address, SubjectError> {
        let foreign = || SubjectError::Foreign { subject: subject.as_str().to_owned() };
        let rest = subject.as_str().strip_prefix(&*self.prefix).and_then(|rest| rest.strip_prefix('.'));
        let tokens: Vec<&str> = rest.ok_or_else(foreign)?.split('.').collect();
        let own = |token: &str| token.to_owned();
        match tokens.as_slice() {
            ["ctl", service, verb] => Ok(Address::Ctl { service: own(service), verb: own(verb) }),
            ["node", node, actor] => Ok(Address::Node { node: own(node), actor: own(actor) }),
            [_, to, SESSION, .., from] if self.session(to, from).as_ref() == Ok(subject) => {
                Ok(Address::Session { to: own(to), from: own(from) })
            }
            ["job", tenant, job, channel] => {
                let channel = JobChannel::ALL.into_iter().find(|c| c.token() == *channel).ok_or_else(foreign)?;
                Ok(Address::Job { tenant: own(tenant), job: own(job), channel })
            }
            ["api", tenant, verb] => Ok(Address::Api { tenant: own(tenant), verb: own(verb) }),
            ["stream", stream, rest @ ..] if !rest.is_empty() => {
                Ok(Address::Stream { stream: own(stream), rest: rest.join(".") })
            }
            ["kv", bucket, key @ ..] if !key.is_empty() => Ok(Address::Kv { bucket: own(bucket), key: key.join(".") }),
            ["data", node, rest @ ..] if !rest.is_empty() => {
                Ok(Address::Data { node: own(node), rest: rest.join(".") })
            }
            _ => Err(foreign()),
        }
    }

    fn subject(&self, tokens: &[&str]) -> Result<Subject, SubjectError> {
        for token in tokens {
            check_token(token)?;
        }
        let text = format!("{}.{}", self.prefix, tokens.join("."));
        check_length(&text)?;
        Ok(Subject(text.into()))
    }

    fn pattern(&self, tokens: &[&str]) -> Result<Pattern, SubjectError> {
        for token in tokens.iter().filter(|token| !matches!(**token, "*" | ">")) {
            check_token(token)?;
        }
        let text = format!("{}.{}", self.prefix, tokens.join("."));
        check_length(&text)?;
        Ok(Pattern(text.into()))
    }
}

/// A token that nobody else has, for inboxes and the like.
#[allow(
    clippy::disallowed_methods,
    reason = "processes of one server differ here even where a simulation gives them the same seed; nothing follows from it"
)]
pub(crate) fn unique_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, subject: &str, expected: bool) {
        let matched = Pattern::parse(pattern).unwrap().matches(&Subject::parse(subject).unwrap());
        assert_eq!(matched, expected, "{pattern} against {subject}");
    }

    #[test]
    fn patterns_match_as_the_server_does() {
        check("a.b", "a.b", true);
        check("a.b", "a.c", false);
        check("a.b", "a.b.c", false);
        check("a.b.c", "a.b", false);
        check("a.*", "a.b", true);
        check("a.*", "a.b.c", false);
        check("*.b", "a.b", true);
        check("a.>", "a.b", true);
        check("a.>", "a.b.c", true);
        check("a.>", "a", false);
        check(">", "a", true);
    }

    #[test]
    fn the_services_of_nats_are_the_only_tree_with_a_name_that_is_none_of_ours() {
        let ping = Subject::parse("$SRV.PING").unwrap();
        assert!(Pattern::parse("$SRV.>").unwrap().matches(&ping));
        assert!(!Pattern::parse("exo.>").unwrap().matches(&ping));
        for text in ["$SRV.$SRV", "a.$SRV", "$JS.API.INFO", "$SYS.>", "$SRVX.a", "$"] {
            let refused = (Subject::parse(text).is_err(), Pattern::parse(text).is_err());
            assert_eq!(refused, (true, true), "{text}");
        }
        assert!(check_token(SERVICES).is_err(), "no name of a node or a cluster is one");
    }

    #[test]
    fn bad_texts_are_refused_with_the_reason() {
        assert!(matches!(Subject::parse(""), Err(SubjectError::EmptyToken { .. })));
        assert!(matches!(Subject::parse("a..b"), Err(SubjectError::EmptyToken { .. })));
        assert!(matches!(Subject::parse("a.*"), Err(SubjectError::Wildcard { .. })));
        assert!(matches!(Subject::parse("a b"), Err(SubjectError::BadCharacter { character: ' ', .. })));
        assert!(matches!(Subject::parse("a.b\r\nPUB x"), Err(SubjectError::BadCharacter { .. })));
        assert!(matches!(Pattern::parse("a.>.b"), Err(SubjectError::Wildcard { .. })));
        assert!(matches!(Pattern::parse("a.b*"), Err(SubjectError::Wildcard { .. })));
        assert!(matches!(Subject::parse(&"a".repeat(256)), Err(SubjectError::TooLong { bytes: 256 })));
        assert!(Subject::parse(&"a".repeat(255)).is_ok());
    }

    #[test]
    fn user_text_cannot_become_part_of_a_name() {
        let subjects = Subjects::new("test").unwrap();
        assert!(subjects.node("n1.evil", "owner").is_err());
        assert!(subjects.node_all("*").is_ok_and(|p| p.as_str() == "exo.v1.test.node.*.>"));
        assert!(subjects.ctl("sched", ">").is_err());
        assert!(Subjects::new("a.b").is_err());
    }

    #[test]
    fn subjects_of_sessions_say_the_roles_of_both_ends_and_a_name_in_the_form_of_the_other_role_is_nobody() {
        let subjects = Subjects::new("test").unwrap();
        let check = |to: &str, from: &str, expected: &str| {
            let subject = subjects.session(to, from).unwrap();
            assert_eq!(subject.as_str(), format!("exo.v1.test.{expected}"));
            assert!(subjects.sessions_to(to).unwrap().matches(&subject), "{to} does not hear {from}");
            assert_eq!(Subjects::session_sender(&subject), Some(from));
        };
        check("n1", "n2", "node.n1.session.n2");
        check("n1", "client-7", "node.n1.session.client.client-7");
        check("client-7", "n1", "client.client-7.session.n1");
        check("n1", "client", "node.n1.session.client");
        for forged in [
            "node.n1.session.client.n2",
            "node.n1.session.client-7",
            "node.n1.session.client.x.client-7",
            "client.client-7.session.client.n1",
        ] {
            let subject = Subject::parse(&format!("exo.v1.test.{forged}")).unwrap();
            assert!(subjects.parse(&subject).is_err(), "{forged}");
            assert_eq!(Subjects::session_sender(&subject), None, "{forged}");
        }
    }

    #[test]
    fn a_request_from_outside_says_for_whom_it_is() {
        let subjects = Subjects::new("test").unwrap();
        let subject = subjects.api("default", "result").unwrap();
        assert_eq!(subject.as_str(), "exo.v1.test.api.default.result");
        assert_eq!(subjects.parse(&subject).unwrap(), Address::Api { tenant: "default".into(), verb: "result".into() });
        assert!(subjects.every_api("result").unwrap().matches(&subject));
        assert!(subjects.api("de.fault", "result").is_err() && subjects.api("*", "result").is_err());
    }

    #[test]
    fn another_clusters_subject_is_foreign() {
        let ours = Subjects::new("one").unwrap();
        let theirs = Subjects::new("oneandahalf").unwrap();
        let subject = theirs.ctl("sched", "lease").unwrap();
        assert!(matches!(ours.parse(&subject), Err(SubjectError::Foreign { .. })));
        assert_eq!(theirs.cluster(), "oneandahalf");
    }
}
