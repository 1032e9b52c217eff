//! Who may speak: what a process proves before anything that it says reaches an actor.
//!
//! A cluster has two secrets, its *tokens*. Who knows the nodes' token may speak as a node; who knows the submitters' token
//! may speak as a submitter, and as nothing else. What a name may say is a matter of the name alone, so that no message has
//! to claim a role: names that begin with [`SUBMITTER_PREFIX`] are submitters', all others nodes'. Two nodes share the nodes'
//! token, a node and a submitter the submitters' one; two submitters share nothing and never talk.
//!
//! | what travels | proof | what it binds |
//! |---|---|---|
//! | hello, welcome, refusal of a [session](crate::session) | MAC under the token, with a challenge of each side | cluster, both names, both incarnations |
//! | data and acknowledgements in it | MAC under a key made from both challenges | the session, the direction, the whole frame with its number |
//! | beats | MAC under the nodes' token ([`Credentials::seal`]) | the subject, hence cluster and node; incarnation and sequence are in the beat |
//! | requests of `ctl` | MAC under the asker's token ([`Credentials::ask`]) | the subject, asker, incarnation, a challenge |
//! | their answers | MAC under the same token | the question with its challenge, who answers |
//!
//! All MACs are SipHash-2-4 with 128 bits; their keys are made by keyed BLAKE3. What a [`Speaker`] says is proven: outside of this crate there is no other way
//! to get one. `docs/subjects.md` says what a replay can do, and what no token can guard.
//!
//! A cluster may go without either token ([`Credentials::open`]): then a key that everybody knows takes its place, and all else stays
//! the same. So there is one path, and a process with a token and one without do not talk by mistake.

mod credentials;
mod key;
mod message;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use credentials::Credentials;
pub(crate) use key::{Key, MAC_BYTES, random};
pub use key::{sign, verify};
pub(crate) use message::ANSWER_BYTES_MAX;
pub use message::{Asked, MessageError, QUESTION_BYTES_MAX, Question};

/// How names of submitters begin; no node has such a name.
pub const SUBMITTER_PREFIX: &str = "client-";

/// As what somebody speaks, and the token that proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Hosts objects and jobs: may say everything.
    Node,
    /// Hands jobs in and asks after them: may say the little that nodes take from one, in its own name.
    Submitter,
}

impl Role {
    /// As what a process of this name speaks.
    pub fn of(name: &str) -> Self {
        match name.starts_with(SUBMITTER_PREFIX) {
            true => Self::Submitter,
            false => Self::Node,
        }
    }

    /// Whose token it is, and the key of the configuration that names its file.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => ("nodes' token", "security.token_file"),
            Self::Submitter => ("submitters' token", "security.submitters_token_file"),
        }
    }
}

/// Somebody who has proven to know the token that goes with its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Speaker {
    name: String,
    incarnation: u64,
}

impl Speaker {
    /// Only for where a MAC was verified.
    pub(crate) fn proven(name: String, incarnation: u64) -> Self {
        Self { name, incarnation }
    }

    /// Anybody, without proof: for fuzzing what comes after it.
    #[cfg(feature = "fuzzing")]
    pub fn supposed(name: &str) -> Self {
        Self::proven(name.to_owned(), 1)
    }

    /// Its name, a token of subjects.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which incarnation of it.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// As what it speaks.
    pub fn role(&self) -> Role {
        Role::of(&self.name)
    }
}

/// What a cluster says to who shows the wrong token. It is not proven itself, as there is nothing to prove it with, so once is never
/// enough: a process that hears nothing else for a second, however often it asks, gives up with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Denied {
    /// Which of both tokens.
    pub token: Role,
    /// What is the matter with it.
    pub why: Why,
}

/// See [`Denied`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Why {
    /// It is another one than the cluster's.
    Wrong,
    /// None was shown, and the cluster has one.
    Missing,
    /// One was shown, and the cluster has none.
    Unwanted,
}

impl Denied {
    /// As it is for who finds that it cannot open what others have sealed, where this is what it would say to them.
    #[must_use]
    pub(super) fn seen_from_there(self) -> Self {
        let why = match self.why {
            Why::Missing => Why::Unwanted,
            Why::Unwanted => Why::Missing,
            Why::Wrong => Why::Wrong,
        };
        Self { why, ..self }
    }
}

impl std::error::Error for Denied {}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, key) = self.token.words();
        match self.why {
            Why::Wrong => write!(
                f,
                "the {token} of this process is not the cluster's: copy the cluster's file to where {key} says"
            ),
            Why::Missing => {
                write!(f, "the cluster asks for its {token}, and this process has none: {key} has to name the file")
            }
            Why::Unwanted => write!(f, "this process shows a {token}, and the cluster goes without one: remove {key}"),
        }
    }
}
