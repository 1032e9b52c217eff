//! What is answered, in the form in which it travels.

use std::fmt;

use bytes::Bytes;
use exobus_bus::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::event::progress::Progress;
use crate::protocol::job::{JobState, Reason};
use crate::spec::SpecError;

/// Header of an answer that says that there is none: a code.
pub const ERROR: &str = "Exo-Error";
/// How bytes are encoded that are no JSON.
pub(crate) const MSGPACK: &str = "msgpack";

/// Why something is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct ApiError {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// Where in a spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl ApiError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), at: None }
    }

    /// Not now: whoever asks again may be answered.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new("unavailable", message)
    }

    pub(crate) fn unknown_job(tenant: &str, job: &str) -> Self {
        let text =
            format!("tenant {tenant} has no job {}: it was never there, or is over for long", crate::spec::shown(job));
        Self::new("unknown_job", text)
    }

    /// As it travels.
    pub(crate) fn message(&self) -> Message {
        let message = json_message(&json!({ "error": self }));
        message.with_header(ERROR, &self.code).expect("a code is a value of a header")
    }
}

impl From<Reason> for ApiError {
    fn from(reason: Reason) -> Self {
        Self::new(&reason.code, reason.message)
    }
}

impl From<SpecError> for ApiError {
    fn from(error: SpecError) -> Self {
        Self { code: error.code.token().to_owned(), message: error.message, at: error.at }
    }
}

/// How it stands with a job, for who hands it in or cancels it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The job.
    pub job: String,
    /// How it stands.
    pub state: JobState,
    /// Whether it was handed in before, under the same key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
}

/// An answer in JSON.
pub(crate) fn json_message(value: &impl Serialize) -> Message {
    Message::new(serde_json::to_vec(value).expect("plain data has a form in JSON"))
}

/// An answer in bytes, of which a header says how they are encoded.
pub(crate) fn bytes_message(bytes: Bytes) -> Message {
    Message::new(bytes).with_header(super::ENCODING, MSGPACK).expect("a word is a value of a header")
}

/// How far a job has come, for who asks.
pub(crate) fn progress_json(progress: &Progress) -> Value {
    let (done, all) = progress.tasks();
    let mut told = serde_json::to_value(progress).expect("plain data has a form in JSON");
    told["tasks_done"] = json!(done);
    told["tasks"] = json!(all);
    told
}
